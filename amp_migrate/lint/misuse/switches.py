"""Switches of AMP that one half of it has, and the other has not: autocast, and the scaler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from amp_migrate.core.findings import Finding, Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.events import AmpEvent
from amp_migrate.lint.misuse.order.protocol import protocol_of
from amp_migrate.lint.misuse.order.regions import Regions
from amp_migrate.program import ir

HALF_A_SWITCH = "AMP127"

_BY_DEVICE = re.compile(r"(?i)cuda|device|cpu|gpu|mps|is_enabled|dtype|float16|fp16_")
"""What is named in a switch that both halves know of by themselves, or that is no switch of AMP."""
_FARTHEST = 3
"""Calls away that a region is looked for, or a test of a switch."""


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    switches = context.noted(_Switches)
    for at, there, severity in switches.unequal.values():
        if ir.file_of(there) == file:
            message = (
                "the scaler stays on where autocast is switched off: give it the same enabled="
                if severity is Severity.INFO
                else ""
            )
            yield context.finding(HALF_A_SWITCH, there, at, message, severity=severity)


class _Opened(NamedTuple):
    """A region: the function that opens it, what decides if it is on, and what makes it."""

    function: str
    switch: ir.Expr | None
    call: ir.Call
    made_in: str


class _Switches:
    def __init__(self, context: Context) -> None:
        self.events = events = protocol_of(context).events
        self.amp = events.amp
        self.program = events.program
        self.regions = Regions(events.amp)

    @cached_property
    def unequal(self) -> dict[tuple[str, int], tuple[ir.Call, str, Severity]]:
        """The halves that have no switch, where the other has one, by their places."""
        return {(there, at.line): (at, there, s) for at, there, s in self._find()}

    def _find(self) -> Iterator[tuple[ir.Call, str, Severity]]:
        for function in self.events.read:
            scaled = [
                (stmt, event.scaler)
                for stmt, event in self.events.direct(function)
                if isinstance(event, AmpEvent) and event.kind == "scaled"
            ]
            if len({scaler for _, scaler in scaled}) == 1:
                stmts = [stmt for stmt, _ in scaled]
                yield from self._unequal(function, scaled[0][1], stmts)

    def _unequal(
        self, function: str, scaler: ir.Expr | None, scaled: list[ir.Stmt]
    ) -> Iterator[tuple[ir.Call, str, Severity]]:
        amp = self.amp
        made = [] if scaler is None else amp.scalers(scaler, function)
        if len(made) != 1 or scaler is None:
            return
        call, there = made[0].expr, made[0].function
        assert isinstance(call, ir.Call)
        if not amp.is_always_scaler(scaler, function):
            return
        if any(a.star for a in call.args) or sum(a.name is None for a in call.args) > 1:
            return
        enabled = call.argument(99, "enabled")
        truth = True if enabled is None else amp.truth(enabled, there)
        # What is scaled under a test of its own is decided by that.
        tested = any(
            self._tests(function, stmt) or not isinstance(stmt.value, ir.Call)
            for stmt in scaled
        )
        if truth is True and not tested:
            opened = self._around(function)
            if opened and not any(
                one.switch is None or self._is_by_device(one.switch, one.function)
                for one in opened
            ):
                yield call, there, Severity.INFO
        elif truth is None and enabled and not self._is_by_device(enabled, there):
            for one in self._around(function):
                own = amp.autocast(one.call, one.made_in)
                if one.switch is None and own is not None and own.enabled is True:
                    if own.dtype == "float16" and not self._is_chosen(one.function):
                        yield one.call, one.made_in, Severity.WARNING

    def _around(self, function: str) -> list[_Opened]:
        """The regions that a scaled loss may come from: of its function, else of those that it calls, else
        of its callers, or of those that they call."""
        level, seen = {function}, set[str]()
        for _ in range(_FARTHEST):
            called = {c for one in level for c in self.events.called_from(one)}
            for near in (level, called):
                found = [o for one in sorted(near - seen) for o in self._opened(one)]
                if found:
                    return found
                seen |= near
            sites = self.program.call_sites
            callers = {site.caller for one in level for site in sites.get(one, ())}
            level = callers.intersection(self.events.read)
        return []

    def _opened(self, function: str) -> Iterator[_Opened]:
        """The regions that a function opens to train in."""
        for stmt in self.program.statements(function):
            for expr in stmt.exprs if stmt.kind == "with" else ():
                region = self.amp.entered(expr, function)
                if region is None or region.enabled is False:
                    continue
                if self.regions.is_without_gradients(function, stmt):
                    continue
                for one in self.amp.points_to.of(expr, function, stmt):
                    if not isinstance(one.expr, ir.Call) or one.fields:
                        continue
                    own = self.amp.autocast(one.expr, one.function)
                    if own is not None:
                        given = one.expr.argument(99, "enabled")
                        chosen = self._choice(expr, function)
                        if one.function != function and one.stmt is not None:
                            inside = self._tests(one.function, one.stmt)
                            chosen = chosen or next(iter(inside), None)
                        switch = given if own.enabled is None else chosen
                        tests = self._tests(function, stmt)
                        switch = switch or (tests[0] if tests else None)
                        yield _Opened(function, switch, one.expr, one.function)

    def _choice(self, expr: ir.Expr, function: str) -> ir.Expr | None:
        """The test that chooses between a region and a null context."""
        if isinstance(expr, ir.Operation) and expr.op == "if":
            return expr.operands[0]
        if isinstance(expr, ir.Call):
            made = self.program.returns(expr, function)
            found = (self._choice(value, callee) for callee, value in made)
            return next((one for one in found if one is not None), None)
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            given = self.program.definitions(owner, expr.id) if owner else []
            if owner and len(given) == 1 and given[0].value != expr:
                if isinstance(given[0].value, ir.Operation):
                    return self._choice(given[0].value, owner)
        return None

    def _is_chosen(self, function: str, depth: int = 0) -> bool:
        """Whether all calls of a function stand under tests."""
        sites = self.program.call_sites.get(function, ()) if depth < _FARTHEST else ()
        return bool(sites) and all(
            any(
                ir.Name("__name__") not in ir.walk(test)
                for test in self._tests(site.caller, site.stmt)
            )
            or self._is_chosen(site.caller, depth + 1)
            for site in sites
        )

    def _tests(self, function: str, stmt: ir.Stmt) -> list[ir.Expr]:
        """The tests of the ``if`` statements around a statement, from the inside out."""
        return [
            outer.value
            for outer in self.program.control(function).around(stmt.path)
            if outer.kind == "if" and outer.value is not None
        ]

    def _is_by_device(self, test: ir.Expr, function: str) -> bool:
        """Whether a switch asks for the device, or for a dtype, directly or by its name's value."""
        exprs = [test]
        exprs += [
            one.expr
            for part in ir.walk(test)
            if isinstance(part, (ir.Name, ir.Attr))
            for one in self.amp.points_to.of(part, function)
        ]
        return any(
            _BY_DEVICE.search(word) for expr in exprs for word in ir.words_in(expr)
        )
