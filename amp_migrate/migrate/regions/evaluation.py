"""``no_grad`` evaluation under autocast, on request."""

from __future__ import annotations

from collections.abc import Collection

from amp_migrate.analysis.objects.forward import Forward, names_no_grad
from amp_migrate.analysis.paths.events import Events
from amp_migrate.migrate.regions.regions import Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program


def plan_evaluation(
    program: Program, events: Events, forward: Forward, files: Collection[str]
) -> list[Run]:
    """The forward computations of functions and blocks of some files that run without gradients."""
    runs: list[Run] = []
    for qualname, function in program.functions.items():
        if ir.file_of(qualname) not in files:
            continue
        if {"backward", "step"} & events.kinds(qualname) and not ir.is_top(qualname):
            continue
        # A module's own forward is put under autocast by whoever calls it.
        if function.name != "forward" and any(
            names_no_grad(decorator) for decorator in function.decorators
        ):
            runs += _runs_in(qualname, function.body, forward)
            continue
        for stmt in ir.statements(function.body):
            if stmt.kind == "with" and any(names_no_grad(expr) for expr in stmt.exprs):
                runs += _runs_in(qualname, stmt.blocks[0].body, forward)
    return runs


def _runs_in(function: str, body: tuple[ir.Stmt, ...], forward: Forward) -> list[Run]:
    """One run a block: from its first forward statement to its last; loops are entered."""
    runs: list[Run] = []
    first: int | None = None
    last = 0
    for index, stmt in enumerate(body):
        if stmt.kind in ("functiondef", "classdef") or not forward.in_statement(
            stmt, function
        ):
            continue
        on_its_line = any(forward.is_forward(call, function) for call in calls_of(stmt))
        if stmt.blocks and not on_its_line:
            if first is not None:
                runs.append(Run(function, body[first].path, last))
                first = None
            for block in stmt.blocks:
                runs += _runs_in(function, block.body, forward)
            continue
        first = index if first is None else first
        last = index
    if first is not None and not body[first].is_elif:
        runs.append(Run(function, body[first].path, last))
    return runs
