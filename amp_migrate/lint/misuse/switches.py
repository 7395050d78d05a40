"""Switches of AMP that one half of it has, and the other has not: autocast, and the scaler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amp_migrate.analysis.objects.points_to import Object
from amp_migrate.core.findings import Finding, Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Amp
from amp_migrate.lint.misuse.order.events import AmpEvent
from amp_migrate.lint.misuse.order.protocol import protocol_of
from amp_migrate.program import ir

HALF_A_SWITCH = "AMP127"

_BY_DEVICE = re.compile(r"(?i)cuda|device|cpu|gpu|mps|is_enabled|dtype|float16|fp16_")
"""What is named in a switch that both halves know of by themselves, or that is no switch of AMP."""


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    protocol = protocol_of(context)
    found: dict[tuple[str, int], Finding] = {}
    for function in protocol.events.read:
        scaled = [
            (stmt, event)
            for stmt, event in protocol.events.direct(function)
            if isinstance(event, AmpEvent) and event.kind == "scaled"
        ]
        if len({event.scaler for _, event in scaled}) == 1:
            for at, there, severity in _unequal(protocol.amp, function, scaled):
                if ir.file_of(there) == file:
                    message = (
                        "the scaler stays on where autocast is switched off: give it the same enabled="
                        if severity is Severity.INFO
                        else ""
                    )
                    found[there, at.line] = context.finding(
                        HALF_A_SWITCH, there, at, message, severity=severity
                    )
    yield from found.values()


def _unequal(
    amp: Amp, function: str, scaled: list[tuple[ir.Stmt, AmpEvent]]
) -> Iterator[tuple[ir.Call, str, Severity]]:
    """The half that has no switch, where the other has one; both as one function uses them."""
    scaler = scaled[0][1].scaler
    made = [] if scaler is None else amp.scalers(scaler, function)
    regions = [*_regions(amp, function)]
    if len(made) != 1 or not regions or scaler is None:
        return
    call = made[0].expr
    assert isinstance(call, ir.Call)
    if not amp.is_always_scaler(scaler, function) or any(arg.star for arg in call.args):
        return
    enabled = call.argument(99, "enabled")
    if len([arg for arg in call.args if arg.name is None]) > 1:
        return
    always = enabled is None or amp.truth(enabled, made[0].function) is True
    tests = [one for _, one, _ in regions]
    if always and all(one is not None for one in tests):
        # What is scaled under a test of its own is decided by that.
        if not any(
            _tests(amp, function, stmt) or not isinstance(stmt.value, ir.Call)
            for stmt, _ in scaled
        ) and not any(
            test is None or _is_by_device(amp, test, function) for test in tests
        ):
            yield call, made[0].function, Severity.INFO
    elif enabled is not None and amp.truth(enabled, made[0].function) is None:
        if _is_by_device(amp, enabled, made[0].function):
            return
        for stmt, test, one in regions:
            assert isinstance(one.expr, ir.Call)
            region = amp.autocast(one.expr, one.function)
            if test is None and region is not None and region.enabled is True:
                if region.dtype == "float16" and not _tests(amp, function, stmt):
                    yield one.expr, one.function, Severity.WARNING


def _regions(
    amp: Amp, function: str
) -> Iterator[tuple[ir.Stmt, ir.Expr | None, Object]]:
    """The regions that a function opens: the statement, the switch of each, and what makes it."""
    for stmt in ir.statements(amp.program.functions[function].body):
        for expr in stmt.exprs if stmt.kind == "with" else ():
            region = amp.entered(expr, function)
            if region is None or region.enabled is False:
                continue
            chosen = _choice(amp, expr, function)
            for one in amp.points_to.of(expr, function, stmt):
                if not _is_call(one):
                    continue
                assert isinstance(one.expr, ir.Call)
                own = amp.autocast(one.expr, one.function)
                if own is not None:
                    given = one.expr.argument(99, "enabled")
                    switch = given if own.enabled is None else chosen
                    tests = _tests(amp, function, stmt)
                    yield stmt, switch or (tests[-1] if tests else None), one


def _is_call(one: Object) -> bool:
    return isinstance(one.expr, ir.Call) and not one.fields


def _choice(amp: Amp, expr: ir.Expr, function: str) -> ir.Expr | None:
    """The test that chooses between a region and a null context."""
    if isinstance(expr, ir.Operation) and expr.op == "if":
        return expr.operands[0]
    if isinstance(expr, ir.Name):
        owner = amp.program.owner(expr.id, function)
        given = amp.program.definitions(owner, expr.id) if owner else []
        if len(given) == 1 and given[0].value is not None and given[0].value != expr:
            if owner is not None and isinstance(given[0].value, ir.Operation):
                return _choice(amp, given[0].value, owner)
    return None


def _tests(amp: Amp, function: str, stmt: ir.Stmt) -> list[ir.Expr]:
    """The tests of the ``if`` statements around a statement."""
    return [
        outer.value
        for outer in ir.statements(amp.program.functions[function].body)
        if outer.kind == "if" and outer.value is not None
        if outer.path == stmt.path[: len(outer.path)] and outer is not stmt
    ]


def _is_by_device(amp: Amp, test: ir.Expr, function: str) -> bool:
    """Whether a switch asks for the device, or for a dtype, directly or by its name's value."""
    exprs = [test]
    exprs += [
        one.expr
        for part in ir.walk(test)
        if isinstance(part, (ir.Name, ir.Attr))
        for one in amp.points_to.of(part, function)
    ]
    return any(
        _BY_DEVICE.search(
            str(
                inner.id
                if isinstance(inner, ir.Name)
                else inner.attr if isinstance(inner, ir.Attr) else inner.value
            )
        )
        for expr in exprs
        for inner in ir.walk(expr)
        if isinstance(inner, (ir.Name, ir.Attr, ir.Const))
    )
