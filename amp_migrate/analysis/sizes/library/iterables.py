"""What loops run over: ranges, and what is made of other iterables."""

from __future__ import annotations

import math
from typing import Any

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_ITEMS, sure
from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    OPEN,
    External,
    Frame,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import model
from amp_migrate.analysis.sizes.library.numbers import plain
from amp_migrate.program import ir


@model("builtins.len")
def _len(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 1:
        return Unknown("call", whole=True)

    def compute(value: Value) -> Value:
        if isinstance(value, Mapping_):
            return (
                Unknown("data", whole=True)
                if OPEN in value.state
                else Known(len(value.entries()))
            )
        if isinstance(value, Known) and isinstance(value.value, (str, range)):
            return plain(len, value)
        if isinstance(value, Tup):
            return Known(len(value.items))
        if isinstance(value, Sequence) and value.items is not None:
            return Known(len(value.items))
        return Unknown("data", whole=True)

    return lifted((given.positional[0],), compute)


@model("builtins.range")
def _range(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords or not 1 <= len(given.positional) <= 3:
        return Unknown("range")
    if all(isinstance(v, Known) and type(v.value) is int for v in given.positional):
        return plain(range, *given.positional)
    return Unknown("range")


@model("builtins.enumerate")
def _enumerate(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    items = m.elements(given.positional[0]) if given.positional else None
    start = given.get(1, "start") or Known(0)
    if items is None or not isinstance(start, Known) or type(start.value) is not int:
        return Unknown("loop")
    return Tup(tuple(Tup((Known(k), one)) for k, one in enumerate(items, start.value)))


@model("builtins.zip", "itertools.product")
def _zip(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    rows = [m.elements(one) for one in given.positional]
    if given.rest or given.keywords or any(row is None for row in rows):
        return Unknown("loop")
    whole = [row for row in rows if row is not None]
    if f.origin == "builtins.zip":
        return Tup(tuple(Tup(tuple(row)) for row in zip(*whole, strict=False)))
    import itertools

    if math.prod(map(len, whole)) > MAX_ITEMS:
        return Unknown("loop")
    return Tup(tuple(Tup(row) for row in itertools.product(*whole)))


@model("itertools.chain")
def _chain(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    rows = [m.elements(one) for one in given.positional]
    if given.rest or any(row is None for row in rows):
        return Unknown("loop")
    return Tup(tuple(one for row in rows for one in row or ()))


@model("itertools.repeat")
def _repeat(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    times = given.get(1, "times")
    if (
        isinstance(times, Known)
        and type(times.value) is int
        and times.value <= MAX_ITEMS
    ):
        return Tup((given.positional[0],) * times.value)
    return Unknown("loop")


@model("builtins.reversed", "builtins.sorted")
def _reordered(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    source = given.positional[0] if given.positional else Unknown("loop")
    in_set = isinstance(source, Sequence) and source.kind == "set"
    items = (
        source.items if isinstance(source, Sequence) and in_set else m.elements(source)
    )
    if items is None or given.keywords or (in_set and f.origin.endswith("reversed")):
        return Unknown("loop")
    if f.origin == "builtins.reversed":
        return Tup(tuple(reversed(items)))
    known = [one for one in items if isinstance(one, Known)]
    if len(known) < len(items):
        return Unknown("loop")
    try:
        ordered = sorted(known, key=_content)
    except TypeError:
        return Unknown("loop")
    return Sequence("list", Tup(tuple(ordered)))


def _content(value: Known) -> Any:
    return value.value


@model("builtins.map")
def _map(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 2 or given.rest or given.keywords:
        return Unknown("loop")
    items = m.elements(given.positional[1])
    if items is None or len(items) > 256:
        return Unknown("loop")
    return Tup(
        tuple(m.call(given.positional[0], Given([one]), site, frame) for one in items)
    )


@model("builtins.filter")
def _filter(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 2 or given.rest:
        return Unknown("loop")
    test, source = given.positional
    items = m.elements(source)
    if items is None or len(items) > 256:
        return Unknown("loop")
    kept = []
    for one in items:
        is_none = isinstance(test, Known) and test.value is None
        known = m.truth(one if is_none else m.call(test, Given([one]), site, frame))
        if known is None:
            return Unknown("loop")
        if known.value:
            kept.append(one)
    return Tup(tuple(kept))


@model("builtins.any", "builtins.all")
def _any(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    items = m.elements(given.positional[0]) if given.positional else None
    if items is None:
        return Unknown("condition", whole=True)
    decisive = f.origin.endswith("any")
    found = [m.truth(one) for one in items]
    for one in found:
        if one is not None and bool(one.value) is decisive:
            return sure(decisive, one)
    if any(one is None for one in found):
        return Unknown("condition", whole=True)
    return sure(not decisive, *(one for one in found if one is not None))
