"""Where autocast is on and where it is off, with some regions in a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from amp_migrate.analysis.objects.flow import Flow
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.modules import Modules
from amp_migrate.analysis.paths.hooked_forwards import attached
from amp_migrate.analysis.values.called import Called
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.analysis.values.traces import Traces
from amp_migrate.core.closure import reached
from amp_migrate.migrate.regions.regions import Regions, Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

_Kind = TypeVar("_Kind", bound=Traces)


class Contexts:
    """What runs inside of some regions, and what outside of all: a function may be called from both."""

    def __init__(
        self,
        program: Program,
        regions: Regions,
        runs: Collection[Run],
        called: Collection[str],
        files: Collection[str],
        can_run: Callable[[str], bool],
        in_fp32: Statements = (),
        executes: Callable[[str, ir.Stmt], bool] = lambda function, stmt: True,
    ) -> None:
        """``called``: the functions that regions call. ``files``: where to look, at what can run, and which
        statements of it that ``executes``.
        ``in_fp32``: the statements for which autocast is turned off again.
        """
        self.program = program
        self.regions = regions
        self.runs = runs
        self.called = called
        self.files = files
        self.can_run = can_run
        self.in_fp32 = in_fp32
        self.executes = executes
        self.inside = frozenset(self._inside())
        self.outside = self._find_outside()

    def traces(
        self, kind: type[_Kind], flow: Flow, modules: Modules, forward: Forward
    ) -> _Kind:
        """What is half there."""
        hooks: set[str | tuple[str, ir.Path]] = set()
        for function, stmt, hooked in attached(self.program, self.files):
            hooks |= {(function, stmt.path), *hooked}
        return kind(
            flow,
            modules,
            forward,
            self.inside,
            self.called,
            self.outside,
            hooks,
            self.in_fp32,
        )

    def outside_in(self, function: str) -> Iterator[ir.Stmt]:
        """The statements of a function that stand in no region."""
        for stmt in self.program.statements(function):
            site = (function, stmt.path)
            if (site not in self.inside or site in self.in_fp32) and (
                stmt.kind not in ("functiondef", "classdef")
                and self.executes(function, stmt)
            ):
                yield stmt

    def _inside(self) -> Iterator[tuple[str, ir.Path]]:
        """The statements of regions, and of those that are under autocast already."""
        for run in self.runs:
            for stmt in self.regions.statements_in(run):
                yield run.function, stmt.path
            if run.hoists:
                # The ``backward()`` whose loss is made in it: what else it does is of no dtype.
                yield run.function, (*run.path[:-1], (run.path[-1][0], run.last))
        for function, scope in self.program.functions.items():
            if ir.file_of(function) not in self.files:
                continue
            for stmt in ir.statements(scope.body):
                if stmt.kind == "with" and any(map(_speaks_of_autocast, stmt.exprs)):
                    yield from ((function, s.path) for s in ir.statements((stmt,)))

    def _find_outside(self) -> dict[str, None]:
        """The functions that run outside of every region, callers first."""
        program = self.program
        outermost = [
            name
            for name, scope in program.functions.items()
            if ir.file_of(name) in self.files
            and (
                ir.is_top(name)
                or any(run.function == name for run in self.runs)
                or not (
                    program.call_sites.get(name)
                    or name in self.called
                    or scope.name in ("forward", "__call__")
                )
            )
        ]
        called = program.noted(Called)

        def calls(function: str) -> Iterator[str]:
            for stmt in self.outside_in(function):
                for call in calls_of(stmt):
                    yield from program.callees(call, function)
                    sites = called.sites_of(call, function, stmt)
                    yield from (site.callee for site in sites)

        return reached(
            filter(self.can_run, outermost),
            lambda function: filter(self.can_run, calls(function)),
        )


def _speaks_of_autocast(expr: ir.Expr) -> bool:
    return any(
        isinstance(inner, (ir.Name, ir.Attr))
        and (ir.key_of(inner) or "").rsplit(".", 1)[-1] == "autocast"
        for inner in ir.walk(expr)
    )
