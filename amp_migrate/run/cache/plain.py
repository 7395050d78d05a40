"""Results as plain data, and back: what is read is checked to be of the types that are declared."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from amp_migrate.core.findings import Fix

_LEFT_OUT: dict[type, frozenset[str]] = {Fix: frozenset({"edits"})}
"""Fields that nobody asks for once the work is done, and that have a default."""


def as_plain(value: Any) -> Any:
    """Data of dataclasses, enums and tuples, as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [as_plain(getattr(value, name)) for name, _ in _fields(type(value))]
    if isinstance(value, (tuple, list)):
        return [as_plain(one) for one in value]
    return value


def from_plain(kind: Any, plain: Any) -> Any:
    """What `as_plain` was given, which was of a type. Raises ValueError where it cannot have been."""
    return _reader(kind)(plain)


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """The names and types of the fields that are kept."""
    hints = get_type_hints(kind)
    left_out = _LEFT_OUT.get(kind, frozenset())
    return tuple(
        (one.name, hints[one.name])
        for one in dataclasses.fields(kind)
        if one.name not in left_out
    )


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    if kind is object:
        return _frozen
    if get_origin(kind) in (Union, types.UnionType):
        (inner,) = (one for one in get_args(kind) if one is not types.NoneType)
        return lambda plain: None if plain is None else _reader(inner)(plain)
    if get_origin(kind) is tuple:
        return _tuple_reader(get_args(kind))
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind in (str, int, bool):
        return lambda plain: _exactly(kind, plain)
    raise TypeError(f"{kind} is not kept")


def _exactly(kind: type, plain: Any) -> Any:
    if type(plain) is not kind:
        raise ValueError
    return plain


def _frozen(plain: Any) -> Any:
    return tuple(map(_frozen, plain)) if isinstance(plain, list) else plain


def _tuple_reader(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    def read(plain: Any) -> Any:
        if type(plain) is not list:
            raise ValueError
        if kinds[-1] is Ellipsis:
            return tuple(map(_reader(kinds[0]), plain))
        if len(plain) != len(kinds):
            raise ValueError
        return tuple(_reader(kind)(one) for kind, one in zip(kinds, plain, strict=True))

    return read


def _dataclass_reader(kind: Any) -> Callable[[Any], Any]:
    fields = [(name, _reader(inner)) for name, inner in _fields(kind)]

    def read(plain: Any) -> Any:
        if type(plain) is not list or len(plain) != len(fields):
            raise ValueError
        values = zip(fields, plain, strict=True)
        return kind(**{name: inner(one) for (name, inner), one in values})

    return read
