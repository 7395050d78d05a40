"""A plan in words, for ``--explain-plan``."""

from __future__ import annotations

from amp_migrate.facts import ir
from amp_migrate.plan.groups import Group
from amp_migrate.project.link import Program


def explain_group(group: Group, program: Program) -> list[str]:
    """Where a group's optimizer is born, how it travels, and what becomes of each site."""
    path = program.facts.path
    names = sorted({slot.name for slot in group.slots}) or ["no optimizer found"]
    first = group.loops[0].backwards[0].event
    lines = [f"{path}:{first.line}: optimizer {', '.join(names)}"]
    for birth in sorted(group.births, key=lambda birth: birth.stmt.line):
        lines.append(f"  born at line {birth.stmt.line} in {birth.function}")
    for slot in sorted(group.slots, key=lambda s: (s.kind, s.owner, s.name)):
        kind = "attribute of class" if slot.kind == "attribute" else "variable of"
        lines.append(f"  travels as {slot.name}, {kind} {slot.owner}")
    for loop in group.loops:
        for backward in loop.backwards:
            lines.append(
                f"  backward at line {backward.event.line} in {backward.function}"
            )
    if group.refusal is not None:
        lines.append(f"  stopped: {group.refusal.code} {group.refusal.message}")
        if group.refusal.line:
            lines.append(f"  by line {group.refusal.line}")
        return lines
    assert group.travel is not None and group.placement is not None
    for born in group.travel.born:
        lines.append(f"  switch after line {born.line} in {born.function}: {born.code}")
    for run in group.runs:
        start = _line(program, run.function, run.path)
        end = _line(
            program,
            run.function,
            (*run.path[:-1], (run.path[-1][0], run.last)),
            end=True,
        )
        where = f"line {start}" if start == end else f"lines {start} to {end}"
        lines.append(f"  autocast region over {where} in {run.function}")
    for word, sites in (
        ("unscale_ before", group.placement.unscale_before),
        ("update after", group.placement.update_after),
        ("update before", group.placement.update_before),
        ("guarded step at", group.placement.guarded),
    ):
        for function, site in sorted(sites):
            lines.append(
                f"  {word} line {_line(program, function, site)} in {function}"
            )
    return lines


def _line(program: Program, function: str, path: ir.Path, end: bool = False) -> int:
    for stmt in ir.statements(program.functions[function].body):
        if stmt.path == path:
            return stmt.end_line if end else stmt.line
    return 0
