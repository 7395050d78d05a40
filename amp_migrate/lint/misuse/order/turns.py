"""What is done in each turn of a loop, and what only in some of its turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.analysis.paths.walk import Site
from amp_migrate.lint.misuse.order.amp import Key
from amp_migrate.lint.misuse.order.conditions import operands
from amp_migrate.program import ir

Around = Sequence[tuple[str, ir.Stmt]]
"""The statements around what happens, outermost first, those of callers included."""


class Turns:
    """The loops in which each scaler scales, steps and updates."""

    def __init__(self, points_to: PointsTo) -> None:
        self.points_to = points_to
        self._done: dict[tuple[str, Key], dict[Site, set[bool]]] = defaultdict(
            lambda: defaultdict(set)
        )
        """(what, scaler): the innermost loops, and whether a test of a count stands between."""
        self._within: dict[Key, set[Site]] = defaultdict(set)
        """All loops around what each scaler scales."""
        self._counts: dict[Site, bool] = {}

    def note(self, what: str, scaler: Key, around: Around) -> bool:
        """Something is done by a scaler; whether that is in each turn of the innermost loop."""
        counted, found = False, False
        for function, stmt in reversed(around[:-1]):
            site = function, stmt.path
            if stmt.kind in ("for", "while"):
                self._done[what, scaler][site].add(counted)
                found = not counted
                break
            counted = counted or (stmt.kind == "if" and self._is_count(site, stmt))
        if what == "scaled":
            self._within[scaler] |= {(function, stmt.path) for function, stmt in around}
        return found

    def _is_count(self, site: Site, stmt: ir.Stmt) -> bool:
        """Whether a test holds in every so-manieth turn: ``(i + 1) % 4 == 0``, or by a variable."""
        if site not in self._counts:
            self._counts[site] = stmt.value is not None and any(
                isinstance(inner, ir.Operation)
                and (inner.op == "%" or self._is_of_counter(inner, site[0]))
                for part in operands(stmt.value)
                for one in (
                    part,
                    *(o.expr for o in self.points_to.of(part, site[0], stmt)),
                )
                for inner in ir.walk(one)
            )
        return self._counts[site]

    def _is_of_counter(self, test: ir.Operation, function: str) -> bool:
        """Whether a test compares what is counted up: ``self.count == self.every``."""
        return test.op in ("==", ">=", ">") and any(
            stmt.kind == "augassign"
            and stmt.op == "+"
            and isinstance(stmt.value, ir.Const)
            and one in stmt.targets
            and ir.file_of(there) == ir.file_of(function)
            for one in test.operands
            if isinstance(one, (ir.Name, ir.Attr))
            for there, stmt in self.points_to.program.mentioning(ir.last_of(one) or "")
        )

    def updates_in_each(self, scaler: Key) -> bool:
        """Whether a scaler is updated in each turn of a loop that accumulates, and steps in some."""
        scaled, steps, updates = (
            self._done[what, scaler] for what in ("scaled", "step", "update")
        )
        return bool(steps) and any(
            counted == {True} and False in updates[loop] and False in scaled[loop]
            for loop, counted in list(steps.items())
            if loop in updates and loop in scaled
        )

    def is_fed_outside(self, scaler: Key, loop: Site) -> bool:
        """Whether all that a scaler scales is scaled outside of a loop."""
        return bool(self._within[scaler]) and loop not in self._within[scaler]
