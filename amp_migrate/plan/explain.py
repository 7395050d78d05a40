"""A plan in words, for ``--explain-plan``."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.facts import ir
from amp_migrate.plan.groups import Group
from amp_migrate.project.link import Program


def explain_group(
    group: Group, program: Program, shown: Callable[[str], str]
) -> list[str]:
    """Where a group's optimizer is born, how it travels, and what becomes of each site."""
    own = ir.file_of(group.loops[0].function)

    def inside(key: str) -> str:
        name, file = ir.local_name(key), ir.file_of(key)
        return name if file == own else f"{name} of {shown(file)}"

    names = sorted({slot.name for slot in group.slots}) or ["no optimizer found"]
    lines = [f"{shown(own)}:{group.first_line}: optimizer {', '.join(names)}"]
    for birth in sorted(group.births, key=lambda b: (b.function, b.stmt.line)):
        lines.append(f"  born at line {birth.stmt.line} in {inside(birth.function)}")
    for slot in sorted(group.slots, key=lambda s: (s.kind, s.owner, s.name)):
        kind = "attribute of class" if slot.kind == "attribute" else "variable of"
        lines.append(f"  travels as {slot.name}, {kind} {inside(slot.owner)}")
    for loop in group.loops:
        for backward in loop.backwards:
            line, where = backward.event.line, inside(backward.function)
            lines.append(f"  backward at line {line} in {where}")
    if group.refusal is not None:
        lines.append(f"  stopped: {group.refusal.code} {group.refusal.message}")
        if isinstance(group.refusal.line, ir.Line):
            line = group.refusal.line
            of = "" if line.file == own else f" of {shown(line.file)}"
            lines.append(f"  by line {line}{of}")
        return lines
    assert group.travel is not None and group.placement is not None
    for born in group.travel.born:
        where = inside(born.function)
        lines.append(f"  switch after line {born.line} in {where}: {born.code}")
    for run in group.runs:
        start = _line(program, run.function, run.path)
        end = _line(
            program,
            run.function,
            (*run.path[:-1], (run.path[-1][0], run.last)),
            end=True,
        )
        extent = f"line {start}" if start == end else f"lines {start} to {end}"
        lines.append(f"  autocast region over {extent} in {inside(run.function)}")
    for word, sites in (
        ("unscale_ before", group.placement.unscale_before),
        ("update after", group.placement.update_after),
        ("update before", group.placement.update_before),
        ("guarded step at", group.placement.guarded),
    ):
        for function, site in sorted(sites):
            line = _line(program, function, site)
            lines.append(f"  {word} line {line} in {inside(function)}")
    return lines


def _line(program: Program, function: str, path: ir.Path, end: bool = False) -> int:
    for stmt in ir.statements(program.functions[function].body):
        if stmt.path == path:
            return stmt.end_line if end else stmt.line
    return 0
