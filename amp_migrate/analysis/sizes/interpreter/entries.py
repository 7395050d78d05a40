"""Entries and elements of values, and what assignments to attributes and entries change."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_ITEMS, sure
from amp_migrate.analysis.sizes.domain.choices import choice, joined
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    ITEMS,
    OPEN,
    Absent,
    Choice,
    ClassValue,
    External,
    Frame,
    Func,
    Instance,
    Known,
    Mapping_,
    Sequence,
    Tensor,
    Tup,
    Unknown,
    Value,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.attributes import Attributes, decorations
from amp_migrate.analysis.sizes.interpreter.expressions import hashable
from amp_migrate.program import ir


class Entries(Attributes):
    """``value[key]``, what a loop gets, and assignments to parts."""

    def item(self, value: Value, key: Value) -> Value:
        """What ``value[key]`` is worth."""
        if isinstance(value, Choice):
            return self._each(value, lambda one: self.item(one, key))
        if isinstance(key, Choice):
            return self._each(key, lambda one: self.item(value, one))
        if isinstance(value, Unknown):
            return Unknown(value.reason or "entry")
        if isinstance(value, Mapping_):
            return self._entry(value, key)
        if isinstance(value, Instance):
            if value.kind == "model" and isinstance(key, Known):
                return self._of_model(value, str(key.value))
            if value.cls is not None:
                getter = self.find(value, "__getitem__")
                if isinstance(getter, Func):
                    site = ir.Call(ir.Name("__getitem__"), (), getter.function.line)
                    return self.call(getter, Given([key]), site, getter.scope)
            return Unknown("entry")
        if isinstance(value, Known) and isinstance(key, Known):
            if isinstance(value.value, (str, range)) and type(key.value) is int:
                try:
                    return sure(value.value[key.value], value, key)
                except (IndexError, OverflowError):
                    return Unknown("index")
            return Unknown("entry")
        items = value.items if isinstance(value, (Tup, Sequence)) else None
        if items is None:
            return Unknown("list")
        if isinstance(key, Known) and isinstance(key.value, int):
            try:
                return weakened(items[key.value], key.confidence)
            except IndexError:
                return Unknown("index")
        if items and len(items) <= 12 and all(isinstance(i, Known) for i in items):
            fork = self.new_fork()
            return choice(
                [(frozenset({(fork, way)}), one) for way, one in enumerate(items)]
            )
        return Unknown("index")

    def _entry(self, value: Mapping_, key: Value) -> Value:
        entries = value.entries()
        openness = value.state.get(OPEN)
        if isinstance(openness, Unknown):
            return Unknown(openness.reason or "entry")
        if not isinstance(key, Known):
            found = list(entries.values())
            if openness is None and found and len(found) <= 12:
                fork = self.new_fork()
                return choice(
                    [(frozenset({(fork, w)}), one) for w, one in enumerate(found)]
                )
            return Unknown("entry")
        if hashable(key.value) and key.value in entries:
            return weakened(entries[key.value], key.confidence)
        if value.factory is not None and openness is None:
            made = self.call(
                value.factory, Given(), ir.Call(ir.Name("?"), ()), Frame("", None)
            )
            self.write(value, ("key", key.value), made)
            return made
        return Unknown("parameter" if openness is not None else "entry")

    def elements(self, value: Value) -> tuple[Value, ...] | None:
        """What a loop over a value gets, in order; None where that is not known."""
        match value:
            case Tup(items=items):
                return items
            case Sequence(kind=kind):
                return None if kind == "set" else value.items
            case Known(value=range() as numbers):
                try:
                    if len(numbers) > MAX_ITEMS:
                        return None
                except OverflowError:
                    return None
                return tuple(sure(number, value) for number in numbers)
            case Known(value=str() as text):
                return tuple(sure(letter, value) for letter in text)
            case Mapping_():
                if OPEN in value.state or value.is_opaque:
                    return None
                return tuple(Known(key) for key in value.entries())
            case Tensor(shape=tuple() as shape) if shape and isinstance(
                shape[0], Known
            ):
                return None
            case _:
                return None

    def set_item(self, value: Value, key: Value, new: Value) -> None:
        """``value[key] = new``."""
        if isinstance(value, Mapping_):
            if isinstance(key, Known) and hashable(key.value):
                self.write(value, ("key", key.value), new)
            else:
                self.spoil([value], "unknown key")
        elif isinstance(value, Sequence):
            items = value.items
            if items is None:
                return
            if (
                isinstance(key, Known)
                and isinstance(key.value, int)
                and -len(items) <= key.value < len(items)
            ):
                changed = list(items)
                changed[key.value] = weakened(new, self.path)
                self.write(value, ITEMS, Tup(tuple(changed)))
            else:
                self.write(value, ITEMS, Unknown("list"))
        elif isinstance(value, External) and value.origin == "dict.of":
            if isinstance(value.of, Instance) and isinstance(key, Known):
                self.set_attribute(value.of, str(key.value), new)
            elif value.of is not None:
                self.spoil([value.of], "__dict__")
        elif isinstance(value, Choice):
            self.spoil([value])

    def set_attribute(self, value: Value, name: str, new: Value) -> None:
        """``value.name = new``."""
        if isinstance(value, Instance):
            if value.cls is not None:
                if self.method(value.cls, "__setattr__") is not None:
                    self.spoil([value], "__setattr__")
                    return
                held = self.method(value.cls, name)
                if isinstance(held, Func) and "property" in decorations(held.function):
                    self.spoil([value], "property")
                    return
                if held is not None and self.is_descriptor(held):
                    self.write(value, name, Unknown("descriptor"))
                    return
            self.write(value, name, new)
        elif isinstance(value, ClassValue):
            self.write(value, name, new)
        elif isinstance(value, Choice):
            fork = self.new_fork()
            for _, one in value.alternatives:
                if isinstance(one, (Instance, ClassValue)):
                    before = one.state.get(name, Absent())
                    self.write(one, name, joined(before, new, fork))
