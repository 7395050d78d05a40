"""Which optimizers' parameters a loss is computed from, as far as that can be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amp_migrate.facts import ir
from amp_migrate.plan.loops import Backward
from amp_migrate.plan.ownership import Ownership
from amp_migrate.plan.regions import Regions, Run
from amp_migrate.project.bindings import calls_of
from amp_migrate.project.link import Program
from amp_migrate.project.optimizers import Slot


class Reach:
    """Answers for the losses of one group."""

    def __init__(
        self, program: Program, regions: Regions, ownership: Ownership
    ) -> None:
        self.program = program
        self.regions = regions
        self.ownership = ownership

    def reached(self, backward: Backward, runs: Sequence[Run]) -> frozenset[Slot]:
        """The optimizers that hold a module which the forward of a loss mentions."""
        found: set[Slot] = set()
        seen: set[str] = set()
        for function, stmt in self._statements(backward, runs):
            found |= self._in_statement(function, stmt, seen)
        return frozenset(found)

    def _statements(
        self, backward: Backward, runs: Sequence[Run]
    ) -> Iterator[tuple[str, ir.Stmt]]:
        yield backward.function, backward.stmt
        for run in runs:
            for stmt in self.regions.statements_in(run):
                yield run.function, stmt

    def _in_statement(self, function: str, stmt: ir.Stmt, seen: set[str]) -> set[Slot]:
        found: set[Slot] = set()
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                if isinstance(inner, (ir.Name, ir.Attr, ir.Item)):
                    found |= self.ownership.holders(inner, function)
        for call in calls_of(stmt):
            for callee in self.program.callees(call, function):
                if callee not in seen:
                    seen.add(callee)
                    for own in ir.statements(self.program.functions[callee].body):
                        found |= self._in_statement(callee, own, seen)
        return found
