"""Loops that are written as lists, ``[opt.step() for opt in opts]``: there is room for one call only."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.analysis.paths.loops import refused
from amp_migrate.edit.edits import Placed, ScalerStep
from amp_migrate.program import ir
from amp_migrate.program.link import Program


def check_room(program: Program, edits: Iterable[Placed]) -> None:
    """Raise `Blocked` where an edit would put a statement into such a list."""
    lines = {
        (ir.file_of(qualname), inner.path): stmt.line
        for qualname, function in program.functions.items()
        for stmt in ir.statements(function.body)
        if stmt.op == ir.LISTED
        for inner in ir.statements((stmt,))
        if inner is not stmt
    }
    for file, edit in edits:
        line = lines.get((file, edit.path))
        plain = isinstance(edit, ScalerStep) and not (edit.update or edit.guard)
        if line is not None and not plain:
            message = "a list of steps has no room for what a scaler needs beside them"
            raise refused("AMP016", message, line)
