"""Loops that are written as lists, ``[opt.step() for opt in opts]``: there is room for one call only."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.analysis.paths.loops import refused
from amp_migrate.edit.edits import Insert, Placed, ScalerStep
from amp_migrate.program import ir
from amp_migrate.program.link import Program


def check_room(program: Program, edits: Iterable[Placed]) -> None:
    """Raise `Blocked` where an edit would put a statement into such a list, or change a loop that is read as
    what it does in all its rounds."""
    lines = program.noted(_listed)
    for file, edit in edits:
        stmt = lines.get((file, edit.path))
        if stmt is not None and stmt.kind == "expr" and not isinstance(edit, Insert):
            message = (
                "a loop that makes several optimizers would make each in another way"
            )
            raise refused("AMP016", message, stmt.line)
        plain = isinstance(edit, ScalerStep) and not (edit.update or edit.guard)
        if stmt is not None and stmt.kind != "expr" and not plain:
            message = "a list of steps has no room for what a scaler needs beside them"
            raise refused("AMP016", message, stmt.line)


def _listed(program: Program) -> dict[tuple[str, ir.Path], ir.Stmt]:
    """By file and path, the statements in such lists and loops, each with the whole."""
    return {
        (ir.file_of(function), inner.path): stmt
        for function in program.functions
        for stmt in program.statements(function)
        if stmt.op == ir.LISTED
        for inner in ir.statements((stmt,))
        if inner is not stmt or stmt.kind == "expr"
    }
