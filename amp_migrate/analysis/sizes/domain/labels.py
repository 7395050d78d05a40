"""Names for the numbers in a tuple, list or dict that is written out: where each of them stands."""

from __future__ import annotations

from typing import Protocol

from amp_migrate.analysis.sizes.domain.traces import link, source
from amp_migrate.analysis.sizes.domain.values import (
    ITEMS,
    Box,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Value,
    is_number,
)
from amp_migrate.program import ir

MAX_LABELS = 64
"""A longer list is data."""


_NO_NAMES = (ir.Const, ir.Call, ir.Operation, ir.Display)


class Writes(Protocol):
    """Changes an entry of a box."""

    def write(self, box: Box, key: object, value: Value) -> None: ...


def labelled(heap: Writes, value: Value, name: str, expr: ir.Expr, line: int) -> Value:
    """A value whose numbers know that ``name``, or an entry of it, was given ``expr`` in a line.

    Lists and dicts only where ``expr`` writes them out: others have their names already.
    """
    if isinstance(value, Known):
        # What is no name is not spelled like one.
        if is_number(value) and (isinstance(expr, _NO_NAMES) or source(expr) != name):
            trace = link(name, expr, line, value.trace)
            return Known(value.value, trace, value.confidence)
        return value
    made = _entries(expr)
    if made is None or len(made) > MAX_LABELS:
        return value
    if isinstance(value, Tup):
        return _items(heap, value, name, made, line)
    if isinstance(value, Sequence):
        held = value.state[ITEMS]
        if isinstance(held, Tup):
            heap.write(value, ITEMS, _items(heap, held, name, made, line))
    elif isinstance(value, Mapping_):
        for key, entry in made.items():
            old = value.state.get(("key", key))
            if old is not None:
                label = f"{name}[{key!r}]"
                new = labelled(heap, old, label, entry, line)
                if new is not old:
                    heap.write(value, ("key", key), new)
    return value


def unpacked(
    heap: Writes, value: Value, targets: ir.Display, expr: ir.Expr, line: int
) -> Value:
    """A tuple that is taken apart, each number with the name that it gets."""
    if not isinstance(value, Tup) or len(value.items) != len(targets.items):
        return value
    made = _entries(expr) or {}
    return Tup(
        tuple(
            labelled(heap, item, source(target), made.get(position, expr), line)
            for position, (item, target) in enumerate(
                zip(value.items, targets.items, strict=True)
            )
        )
    )


def _items(
    heap: Writes, value: Tup, name: str, made: dict[object, ir.Expr], line: int
) -> Tup:
    if len(made) != len(value.items):
        return value
    items = (
        labelled(heap, item, f"{name}[{position}]", made[position], line)
        for position, item in enumerate(value.items)
    )
    return Tup(tuple(items), value.names)


def _entries(expr: ir.Expr) -> dict[object, ir.Expr] | None:
    """What is written out: by key, or by position; None of what is not written out."""
    match expr:
        case ir.Display(kind="dict", items=items, keys=keys):
            return {
                key.value: item
                for key, item in zip(keys, items, strict=True)
                if isinstance(key, ir.Const) and isinstance(key.value, (str, int))
            }
        case ir.Display(items=items):
            starred = any(ir.is_starred(item) for item in items)
            return None if starred else dict(enumerate(items))
        case ir.Call(func=ir.Name(id="dict"), args=args):
            if all(arg.name is not None and not arg.star for arg in args):
                return {arg.name: arg.value for arg in args}
    return None
