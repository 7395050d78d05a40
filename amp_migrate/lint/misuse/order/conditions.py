"""Tests of ``if`` statements, so written that those which decide together are equal."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.program import ir

Fact = tuple[ir.Expr, bool]
"""A test without negation, and its outcome."""

_OPPOSITES = {"is not": "is", "!=": "==", "not in": "in", ">=": "<", "<=": ">"}


def plain(test: ir.Expr) -> Fact:
    """A test and the outcome that it asks for: ``x is not None`` is ``x``, ``a != b`` is not ``a == b``.

    ``x`` and ``x is not None`` differ for 0 and empty values, which no switch or scaler is.
    """
    outcome = True
    while True:
        match test:
            case ir.Operation(op="not", operands=(inner,)):
                test, outcome = inner, not outcome
            case ir.Operation(op="is", operands=(inner, ir.Const(value=None))):
                test, outcome = inner, not outcome
            case ir.Operation(op="is not", operands=(inner, ir.Const(value=None))):
                test = inner
            case ir.Operation(
                op="is" | "==", operands=(inner, ir.Const(value=bool() as v))
            ):
                test, outcome = inner, outcome is v
            case ir.Operation(op=op, operands=operands) if op in _OPPOSITES:
                test, outcome = ir.Operation(_OPPOSITES[op], operands), not outcome
            case _:
                return test, outcome


def facts(test: ir.Expr, outcome: bool) -> tuple[Fact, ...]:
    """What is known where a test came out in one way."""
    inner, wanted = plain(test)
    holds = outcome is wanted
    if isinstance(inner, ir.Operation) and inner.op == ("and" if holds else "or"):
        return tuple(
            fact for operand in inner.operands for fact in facts(operand, holds)
        )
    if any(_may_change(part) for part in ir.walk(inner)):
        return ()
    return ((inner, holds),)


def operands(test: ir.Expr) -> Iterator[ir.Expr]:
    """The parts of a test that each decide by themselves."""
    if isinstance(test, ir.Operation) and test.op in ("and", "or", "not"):
        for operand in test.operands:
            yield from operands(operand)
    else:
        yield test


def may_be(test: ir.Expr, outcome: bool, known: frozenset[Fact]) -> bool:
    """Whether a test may come out in one way where some things are known."""
    inner, wanted = plain(test)
    holds = outcome is wanted
    if isinstance(inner, ir.Const):
        return bool(inner.value) is holds
    if isinstance(inner, ir.Operation) and inner.op in ("and", "or"):
        every = inner.op == ("and" if holds else "or")
        found = (may_be(operand, holds, known) for operand in inner.operands)
        return all(found) if every else any(found)
    return (inner, not holds) not in known


def guarded(
    expr: ir.Expr, tests: tuple[Fact, ...] = ()
) -> Iterator[tuple[ir.Call, tuple[Fact, ...]]]:
    """The calls in an expression, each with the tests in it, and their outcomes, that let it run."""
    match expr:
        case ir.Deferred():
            return
        case ir.Operation(op="if", operands=(test, body, orelse)):
            yield from guarded(test, tests)
            yield from guarded(body, (*tests, (test, True)))
            yield from guarded(orelse, (*tests, (test, False)))
        case ir.Operation(op="and" | "or" as op, operands=operands):
            for operand in operands:
                yield from guarded(operand, tests)
                tests = (*tests, (operand, op == "and"))
        case _:
            for child in ir.children(expr):
                yield from guarded(child, tests)
    if isinstance(expr, ir.Call):
        yield expr, tests


def _may_change(expr: ir.Expr) -> bool:
    # A call may answer differently the next time.
    return isinstance(expr, (ir.Call, ir.Suspend, ir.Walrus, ir.Comprehension))
