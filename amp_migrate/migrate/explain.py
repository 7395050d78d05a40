"""A plan in words, for ``--explain-plan``."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.analysis.paths.identity import order
from amp_migrate.analysis.paths.loops import Note
from amp_migrate.migrate.scaling.groups import Group
from amp_migrate.program import ir
from amp_migrate.program.link import Program

Spot = Callable[[int, str], str]
"""What a line of a file is called: ``line 12``."""


def explain_group(
    group: Group, program: Program, shown: Callable[[str], str], spot: Spot
) -> list[str]:
    """Where a group's optimizer is born, how it travels, and what becomes of each site."""
    own = ir.file_of(group.loops[0].function)

    def inside(key: str) -> str:
        name, file = ir.local_name(key), ir.file_of(key)
        return name if file == own else f"{name} of {shown(file)}"

    def at(line: int, key: str) -> str:
        return spot(line, ir.file_of(key))

    names = sorted({slot.name for slot in group.slots}) or ["no optimizer found"]
    first = spot(group.first_line, own).removeprefix("line ")
    lines = [f"{shown(own)}:{first}: optimizer {', '.join(names)}"]
    for birth in sorted(group.births, key=lambda b: (b.function, b.stmt.line)):
        where = at(birth.stmt.line, birth.function)
        lines.append(f"  born at {where} in {inside(birth.function)}")
    for slot in sorted(group.slots, key=order):
        kind = "attribute of class" if slot.kind == "attribute" else "variable of"
        lines.append(f"  travels as {slot.name}, {kind} {inside(slot.owner)}")
    for loop in group.loops:
        for backward in loop.backwards:
            where = at(backward.event.line, backward.function)
            lines.append(f"  backward at {where} in {inside(backward.function)}")
    if group.refusal is not None:
        lines.append(f"  stopped: {group.refusal.code} {group.refusal.message}")
        line = group.refusal.line
        if isinstance(line, ir.Line):
            of = "" if line.file == own else f" of {shown(line.file)}"
            lines.append(f"  by {spot(line, line.file)}{of}")
        return lines
    assert group.travel is not None and group.placement is not None
    for born in group.travel.born:
        where = f"{at(born.line, born.function)} in {inside(born.function)}"
        lines.append(f"  switch after {where}: {born.code}")
    for run in group.runs:
        last = (*run.path[:-1], (run.path[-1][0], run.last))
        start = at(_line(program, run.function, run.path), run.function)
        end = at(_line(program, run.function, last, end=True), run.function)
        extent = start if start == end else f"{start} to {end}"
        lines.append(f"  autocast region over {extent} in {inside(run.function)}")
    placement = group.placement
    placed: list[tuple[str, str, ir.Path]] = [
        (word, function, path)
        for word, calls in (
            ("unscale_ before", placement.unscale_before),
            ("update after", placement.update_after),
            ("update before", placement.update_before),
        )
        for function, path in sorted({(f, p) for f, p, _ in calls})
    ]
    placed += [("guarded step at", f, p) for f, p in sorted(placement.guarded)]
    for word, function, path in placed:
        where = at(_line(program, function, path), function)
        lines.append(f"  {word} {where} in {inside(function)}")
    return lines


def explain_notes(
    notes: list[Note], own: str, shown: Callable[[str], str], spot: Spot
) -> list[str]:
    """What a plan of a file's loops leaves to be done by hand."""
    lines = []
    for note in notes:
        assert isinstance(note.line, ir.Line)
        of = "" if note.line.file == own else f" of {shown(note.line.file)}"
        lines.append(
            f"  by hand at {spot(note.line, note.line.file)}{of}: {note.message}"
        )
    return lines


def _line(program: Program, function: str, path: ir.Path, end: bool = False) -> int:
    stmt = program.control(function).statements[path]
    return stmt.end_line if end else stmt.line
