"""Values of which one of several arrives, and what is known behind a fork."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING

from amp_migrate.analysis.sizes.domain.values import (
    Absent,
    Choice,
    Known,
    Tup,
    Unknown,
    Value,
    World,
    confidence_of,
    is_whole,
    multiple_of,
    same,
    unknown_multiple,
    weakened,
    weakest,
)

if TYPE_CHECKING:
    pass


MAX_CHOICES = 12
"""More values than these for one variable are told as none."""


def alternatives(value: Value) -> tuple[tuple[World, Value], ...]:
    """A value as a list of possible ones."""
    if isinstance(value, Choice):
        return value.alternatives
    return ((frozenset(), value),)


def compatible(one: World, other: World) -> bool:
    """Whether two values can meet."""
    if not one or not other:
        return True
    ways = dict(one)
    return all(ways.get(fork, way) == way for fork, way in other)


def choice(found: list[tuple[World, Value]], reason: str = "several values") -> Value:
    """One value for several possible ones."""
    flat = [
        (world | inner, value)
        for world, one in found
        for inner, value in alternatives(one)
        if compatible(world, inner)
    ]
    if not flat:
        return Unknown(reason)
    first = flat[0][1]
    if all(same(first, value) for _, value in flat[1:]):
        return weakened(first, weakest(*(confidence_of(v) for _, v in flat)))
    blind = [value for _, value in flat if isinstance(value, Unknown)]
    if blind or len(flat) > MAX_CHOICES:
        if all(isinstance(v, Unknown) or _is_number(v) for _, v in flat):
            multiple = gcd(*(multiple_of(value) for _, value in flat))
            whole = all(is_whole(value) for _, value in flat)
            why = blind[0].reason if blind else reason
            return unknown_multiple(why, multiple, whole)
        return Unknown(blind[0].reason if blind else reason)
    return Choice(tuple(flat))


def _is_number(value: Value) -> bool:
    return isinstance(value, Known) and isinstance(value.value, (int, float))


def lifted(values: tuple[Value, ...], compute: Callable[..., Value]) -> Value:
    """``compute`` on every combination that can occur of what some values may be."""
    if not any(isinstance(value, Choice) for value in values):
        return compute(*values)
    rows: list[tuple[World, tuple[Value, ...]]] = [(frozenset(), ())]
    for value in values:
        rows = [
            (world | other, (*row, one))
            for world, row in rows
            for other, one in alternatives(value)
            if compatible(world, other)
        ]
        if len(rows) > 4 * MAX_CHOICES:
            return Unknown(
                "several values", gcd(*(multiple_of(v) for v in values)) and 1
            )
    return choice([(world, compute(*row)) for world, row in rows])


def joined(one: Value, other: Value, fork: int) -> Value:
    """What a variable holds behind a fork, where it holds ``one`` on the first way."""
    if isinstance(one, Absent):
        return other
    if isinstance(other, Absent):
        return one
    if same(one, other):
        return weakened(one, weakest(confidence_of(one), confidence_of(other)))
    if isinstance(one, Tup) and isinstance(other, Tup):
        if len(one.items) == len(other.items):
            pairs = zip(one.items, other.items, strict=True)
            return Tup(tuple(joined(x, y, fork) for x, y in pairs), one.names)
    return choice([(frozenset({(fork, 0)}), one), (frozenset({(fork, 1)}), other)])
