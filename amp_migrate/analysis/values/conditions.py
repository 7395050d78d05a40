"""Tests on the way to a place, as sets of outcomes: split, simplified, and written out again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from amp_migrate.analysis.objects.moves import Guards
from amp_migrate.core.effort import spend
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


def alternatives(condition: Condition) -> Iterator[Condition]:
    """The same in disjunctive normal form: one alternative for each part of an ``or`` that holds, or of an
    ``and`` that does not."""
    choices = []
    for test, outcome in condition:
        parts: tuple[ir.Expr, ...] = (test,)
        if isinstance(test, ir.Operation) and test.op == ("or" if outcome else "and"):
            parts = test.operands
        choices.append([(part, outcome) for part in parts])
    for chosen in product(*choices):
        spend(len(chosen))
        yield frozenset(literals(chosen))


def simplified(ways: frozenset[Condition]) -> frozenset[Condition]:
    """The prime implicants of some alternatives, by iterated consensus: two that disagree about one test
    hold together without it. Those that contradict themselves never hold."""
    current = {
        way
        for way in ways
        if not any((test, not outcome) in way for test, outcome in way)
    }
    while True:
        found = current | {
            (one | other) - {(test, outcome), (test, not outcome)}
            for one in current
            for other in current
            for test, outcome in one
            if {t for t, o in one if (t, not o) in other} == {test}
        }
        spend(len(found) ** 2)
        smallest = {one for one in found if not any(o < one for o in found)}
        if smallest == current:
            return frozenset(current)
        current = smallest


_OPPOSITE = {"==": "!=", "!=": "==", "is": "is not", "is not": "is"}


def render(expr: ir.Expr, outcome: bool) -> str | None:
    """Source text for a test, or for its opposite."""
    if not outcome and isinstance(expr, ir.Operation):
        if expr.op in _OPPOSITE:
            return ir.render(ir.Operation(_OPPOSITE[expr.op], expr.operands))
    return ir.render(expr if outcome else ir.Operation("not", (expr,)))
