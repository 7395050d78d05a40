"""Tests on the way to a place, as sets of outcomes: split, simplified, and written out again."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.objects.moves import Guards
from amp_migrate.program import ir

Condition = frozenset[tuple[ir.Expr, bool]]
"""Tests with their outcomes, all of which must hold."""


def literals(guards: Guards) -> Iterator[tuple[ir.Expr, bool]]:
    """Tests without ``not``, and each part of an ``and`` that holds by itself."""
    for test, outcome in guards:
        if isinstance(test, ir.Operation):
            if test.op == "not":
                yield from literals(((test.operands[0], not outcome),))
                continue
            if test.op == ("and" if outcome else "or"):
                yield from literals(tuple((o, outcome) for o in test.operands))
                continue
        if isinstance(test, ir.Const) and bool(test.value) is outcome:
            continue
        yield test, outcome


def simplified(ways: frozenset[Condition]) -> frozenset[Condition]:
    """Alternatives of which none is part of another, and no two differ in one outcome only."""
    current = set(ways)
    while True:
        merged = {
            one & other
            for one in current
            for other in current
            if len(one) == len(other) == len(one & other) + 1
            and {(t, not o) for t, o in one - other} == other - one
        }
        smallest = {
            one
            for one in current | merged
            if not any(o < one for o in current | merged)
        }
        if smallest == current:
            return frozenset(current)
        current = smallest


_OPPOSITE = {"==": "!=", "!=": "==", "is": "is not", "is not": "is"}


def render(expr: ir.Expr, outcome: bool) -> str | None:
    """Source text for a test, or for its opposite."""
    if not outcome and isinstance(expr, ir.Operation):
        if expr.op in _OPPOSITE:
            return ir.render(ir.Operation(_OPPOSITE[expr.op], expr.operands))
        if expr.op in ("and", "or"):
            inner = render(expr, True)
            return None if inner is None else f"not ({inner})"
    if not outcome:
        inner = render(expr, True)
        return None if inner is None else f"not {inner}"
    if isinstance(expr, ir.Operation) and expr.op == "not":
        return render(expr.operands[0], False)
    if isinstance(expr, ir.Operation) and expr.op in ("and", "or"):
        parts = []
        for operand in expr.operands:
            part = render(operand, True)
            if part is None:
                return None
            nested = isinstance(operand, ir.Operation) and operand.op in ("and", "or")
            parts.append(f"({part})" if nested else part)
        return f" {expr.op} ".join(parts)
    if isinstance(expr, ir.Operation) and expr.op in ("<", "<="):
        left, right = map(ir.render, expr.operands)
        return None if left is None or right is None else f"{left} {expr.op} {right}"
    return ir.render(expr)
