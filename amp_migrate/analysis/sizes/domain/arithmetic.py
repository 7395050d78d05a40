"""Operators on known values, on unknown ones of which a divisor is known, and on everything else."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from math import gcd
from typing import Any

from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.heap import boxes_in
from amp_migrate.analysis.sizes.domain.traces import merged
from amp_migrate.analysis.sizes.domain.values import (
    Known,
    Tup,
    Unknown,
    Value,
    is_whole,
    multiple_of,
    unknown_multiple,
    weakest,
)

MAX_BITS = 4096
"""Numbers longer than this are nobody's size, and not computed."""
MAX_TEXT = 10_000
MAX_ITEMS = 4096
"""Longer lists than this are not written out."""

_BINARY: dict[str, Callable[[Any, Any], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "|": operator.or_,
    "&": operator.and_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "is", "is not"})
_SIMPLE_FORMAT = re.compile(r"(?:[^%]|%%|%[sd])*")


def sure(value: object, *of: Value) -> Known:
    """A computed value with the trace and the confidence of what it was computed from."""
    known = [one for one in of if isinstance(one, Known)]
    traces = [one.trace for one in known if one.trace is not None]
    trace = merged(*traces) if len(traces) > 1 else traces[0] if traces else None
    return Known(value, trace, weakest(*[one.confidence for one in known]))


def unary(op: str, value: Value) -> Value:
    """``-x``, ``+x``, ``~x``."""
    return lifted((value,), lambda one: _unary(op, one))


def _unary(op: str, value: Value) -> Value:
    if isinstance(value, Known) and isinstance(value.value, (int, float)):
        number = value.value
        if op == "-x":
            return sure(-number, value)
        if op == "+x":
            return sure(+number, value)
        if op == "~" and isinstance(number, int):
            return sure(~number, value)
    if isinstance(value, Unknown) and op in ("-x", "+x"):
        return value
    return Unknown(_reason(value))


def binary(op: str, left: Value, right: Value) -> Value:
    """The result of an operator between two values."""
    if isinstance(left, Known) and isinstance(right, Known):
        return _computed(op, left, right)
    return lifted((left, right), lambda one, other: _binary(op, one, other))


def _binary(op: str, left: Value, right: Value) -> Value:
    if isinstance(left, Known) and isinstance(right, Known):
        return _computed(op, left, right)
    if op in _COMPARISONS:
        return _compared(op, left, right)
    if isinstance(left, Tup) or isinstance(right, Tup):
        return _tuples(op, left, right)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return _divisors(op, left, right)
    return Unknown("operator")


def _computed(op: str, left: Known, right: Known) -> Value:
    a, b = left.value, right.value
    if op == "is":
        return sure(a is b if _single(a, b) else a == b, left, right)
    if op == "is not":
        return sure(a is not b if _single(a, b) else a != b, left, right)
    if op in ("in", "not in"):
        if isinstance(a, str) and isinstance(b, str):
            return sure((a in b) == (op == "in"), left, right)
        return Unknown("operator")
    if op not in _BINARY or not _bounded(op, a, b):
        return Unknown("operator")
    try:
        result = _BINARY[op](a, b)
    except (ArithmeticError, TypeError, ValueError):
        return Unknown("operator")
    if isinstance(result, complex):
        return Unknown("operator")
    return sure(result, left, right)


def _single(a: object, b: object) -> bool:
    return a is None or b is None or isinstance(a, bool) or isinstance(b, bool)


def _bounded(op: str, a: object, b: object) -> bool:
    """Whether the result is small enough to be computed."""
    if isinstance(a, (str, bytes)) or isinstance(b, (str, bytes)):
        if op == "*":
            text, times = (a, b) if isinstance(a, (str, bytes)) else (b, a)
            assert isinstance(text, (str, bytes))
            return isinstance(times, int) and len(text) * times <= MAX_TEXT
        if op == "%":
            return isinstance(a, str) and _SIMPLE_FORMAT.fullmatch(a) is not None
        if op == "+":
            return (
                isinstance(a, (str, bytes))
                and isinstance(b, (str, bytes))
                and len(a) + len(b) <= MAX_TEXT
            )
        return True
    if isinstance(a, range) or isinstance(b, range):
        return op in ("==", "!=")
    if isinstance(a, int) and isinstance(b, int):
        if op == "**":
            return b < 0 or a.bit_length() * b <= MAX_BITS
        if op == "<<":
            return b >= 0 and a.bit_length() + b <= MAX_BITS
        return a.bit_length() + b.bit_length() <= 2 * MAX_BITS
    return True


def _compared(op: str, left: Value, right: Value) -> Value:
    """Comparisons where one side is no number or text: only with None the answer is known."""
    if op in ("is", "is not", "==", "!="):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Known) and one.value is None:
                if not isinstance(other, Unknown):
                    # A function, class, object, list or tuple: not None.
                    return sure(op in ("is not", "!="), one)
        if left is right and op in ("is", "is not") and any(boxes_in(left)):
            return Known(op == "is")
        if isinstance(left, Tup) and isinstance(right, Tup) and op in ("==", "!="):
            return _equal_tuples(op, left, right)
    reason = _reason(left) or _reason(right)
    return Unknown(reason or "comparison", whole=True)


def _equal_tuples(op: str, left: Tup, right: Tup) -> Value:
    if len(left.items) != len(right.items):
        return Known(op == "!=")
    results = [binary("==", a, b) for a, b in zip(left.items, right.items, strict=True)]
    known = [one for one in results if isinstance(one, Known)]
    if any(not one.value for one in known):
        return sure(op == "!=", *known)
    if len(known) == len(results):
        return sure(op == "==", *known)
    return Unknown("comparison", whole=True)


def _tuples(op: str, left: Value, right: Value) -> Value:
    match left, right:
        case Tup(items=a), Tup(items=b) if op == "+" and len(a) + len(b) <= MAX_ITEMS:
            return Tup((*a, *b))
        case (Tup(items=items), Known(value=int(times))) | (
            Known(value=int(times)),
            Tup(items=items),
        ) if (
            op == "*" and len(items) * times <= MAX_ITEMS
        ):
            return Tup(items * times)
        case Known(value=str(template)), Tup(items=items) if op == "%":
            texts = [one for one in items if isinstance(one, Known)]
            if len(texts) == len(items) and _SIMPLE_FORMAT.fullmatch(template):
                try:
                    shown = template % tuple(one.value for one in texts)
                except (TypeError, ValueError):
                    return Unknown("operator")
                return sure(shown, left, *texts)
    return Unknown(_reason(left) or _reason(right) or "operator")


def _divisors(op: str, left: Value, right: Value) -> Value:
    """What is left of a common divisor, where the value itself is not known."""
    reason = _reason(left) or _reason(right)
    a, b = multiple_of(left), multiple_of(right)
    whole = is_whole(left) and is_whole(right)
    numbers = _may_be_number(left) and _may_be_number(right)
    if not numbers:
        return Unknown(reason)
    match op:
        case "*":
            return unknown_multiple(reason, a * b, whole)
        case "+" | "-":
            return unknown_multiple(reason, gcd(a, b), whole)
        case "//" if b and isinstance(right, Known):
            exact = a % b == 0
            return unknown_multiple(reason, a // b if exact else 1, whole)
        case "/" if b and isinstance(right, Known) and whole and a % b == 0:
            return unknown_multiple(reason, a // b, whole)
        case "%" if whole and b:
            return unknown_multiple(reason, gcd(a, b), whole)
        case "**" if isinstance(right, Known) and type(right.value) is int:
            if 0 < right.value <= 8:
                return unknown_multiple(reason, a**right.value, whole)
    return Unknown(reason, whole=whole and op in ("&", "|", "^", "<<", ">>"))


def _may_be_number(value: Value) -> bool:
    if isinstance(value, Known):
        return isinstance(value.value, (int, float))
    return isinstance(value, Unknown)


def _reason(value: Value) -> str:
    return value.reason if isinstance(value, Unknown) else ""


def truth(value: Value) -> Known | None:
    """Whether a value is true in a condition, as a `Known`; None where that is not known."""
    match value:
        case Known(value=content):
            return sure(bool(content), value)
        case Tup(items=items):
            return Known(bool(items))
        case _:
            return None
