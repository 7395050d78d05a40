"""What the monitor knows of a run: its scalers, its optimizers, and which gradients are scaled.

Nothing of the user's is kept alive: scalers, optimizers and tensors are known by weak references,
gradients by weak references to their storages. A gradient is looked up by the memory that it lies
in, so that views, `.data` and `.detach()` of it are it, and one that took its place is not.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..where import Line

Value = TypeVar("Value")


class WeakIds(Generic[Value]):
    """A value for each of some objects, known by identity, for as long as the object lives."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[Any, Value]] = {}

    def get(self, thing: Any) -> Value | None:
        item = self._items.get(id(thing))
        return item[1] if item is not None and item[0]() is thing else None

    def put(self, thing: Any, value: Value) -> None:
        key = id(thing)

        def forget(reference: Any, items: Any = self._items) -> None:
            if key in items and items[key][0] is reference:
                del items[key]

        self._items[key] = (weakref.ref(thing, forget), value)

    def alive(self) -> list[Any]:
        things = [reference() for reference, _ in list(self._items.values())]
        return [thing for thing in things if thing is not None]

    def clear(self) -> None:
        self._items.clear()


class Scaler:
    """What is known of one enabled GradScaler."""

    def __init__(self, born: Line | None, birth: int) -> None:
        self.born = born
        self.birth = birth
        self.first_use: int | None = None
        """When it first scaled something, on the same clock as ``birth``."""
        self.epoch = 0
        """How often it was updated: gradients of one epoch have one scale."""
        self.updated_at: Line | None = None
        self.loaded = False
        self.scale_was_read = False
        """The user's code asked for the scale since the last scaled backward, so it may unscale by
        hand, or clip at a bound that is scaled as well."""
        self.pending: WeakIds[Line | None] = WeakIds()
        """The steps of optimizers since the last update."""


class Gradient:
    """Where the values of one gradient come from."""

    def __init__(self) -> None:
        self.sources: dict[tuple[Scaler | None, int], Line | None] = {}
        """The backward of each scaler and epoch that went in; without a scaler, None and 0."""
        self.unscaled_at: Line | None = None
        self.unscaled = False
        self.stepped = False
        self.mixed = False
        """Scaled gradients were added after it was unscaled."""

    @property
    def is_scaled(self) -> bool:
        return not self.unscaled and self.was_scaled

    @property
    def was_scaled(self) -> bool:
        return any(scaler is not None for scaler, _ in self.sources)

    def add(self, sources: dict[tuple[Scaler | None, int], Line | None]) -> None:
        """A backward has added to it."""
        if self.unscaled:
            self.sources = {}
            self.mixed = True
            self.unscaled = False
        self.stepped = False
        self.sources.update(sources)


def _place(tensor: Any) -> tuple[Any, int, int] | None:
    """The storage of a tensor, and where in it, in bytes, the tensor begins and ends."""
    try:
        if tensor.is_sparse:
            tensor = tensor._values()
        start = tensor.storage_offset() * tensor.element_size()
        extent = 1 + sum(
            (size - 1) * stride
            for size, stride in zip(tensor.shape, tensor.stride(), strict=False)
        )
        if 0 in tensor.shape:
            return None
        return tensor.untyped_storage(), start, start + extent * tensor.element_size()
    except (RuntimeError, NotImplementedError):
        return None  # A layout without a storage.


_weak: Any = StorageWeakRef


class Gradients:
    """Gradients by the memory that they lie in."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Any, list[tuple[int, int, Gradient]]]] = {}

    def of(self, tensor: Any) -> Gradient | None:
        """The gradient that a tensor is, or is a view of."""
        if not self._places or tensor is None:
            return None
        place = _place(tensor)
        if place is None:
            return None
        storage, start, end = place
        known = self._places.get(storage._cdata)
        if known is None or known[0].expired():
            return None
        for first, last, gradient in known[1]:
            if first < end and start < last:
                return gradient
        return None

    def put(self, tensor: Any, gradient: Gradient) -> None:
        place = _place(tensor)
        if place is None:
            return
        storage, start, end = place
        known = self._places.get(storage._cdata)
        if known is None or known[0].expired():
            # The weak reference keeps the address from being given to another storage.
            known = (_weak(storage), [])
            self._places[storage._cdata] = known
        spans = known[1]
        spans[:] = [s for s in spans if s[1] <= start or end <= s[0]]
        spans.append((start, end, gradient))

    def drop(self, tensor: Any) -> None:
        """All of it has other values now; what it is only a part of is what it was."""
        place = _place(tensor)
        if place is None:
            return
        storage, start, end = place
        known = self._places.get(storage._cdata)
        if known is not None:
            known[1][:] = [s for s in known[1] if s[0] < start or end < s[1]]

    def prune(self) -> None:
        """Forget what was freed."""
        for key, (reference, spans) in list(self._places.items()):
            if not spans or reference.expired():
                del self._places[key]

    def any_scaled(self) -> bool:
        return any(
            gradient.is_scaled
            for reference, spans in self._places.values()
            if spans and not reference.expired()
            for _, _, gradient in spans
        )


_GRAD: Any = torch.Tensor.grad
"""The attribute as torch has it, before anybody watches it."""


def grad_of(tensor: Any) -> Any:
    """`tensor.grad`, unwatched."""
    return _GRAD.__get__(tensor)


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors of a value: itself, or those of a list or tuple at any depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def is_zero(tensor: Any) -> bool:
    """Whether all of its values are zeros."""
    return not bool((tensor._values() if tensor.is_sparse else tensor).any())


class Known:
    """Everything that the parts of the monitor know in common."""

    def __init__(self) -> None:
        self.scalers: WeakIds[Scaler] = WeakIds()
        self.any_scaler = False
        """Whether there ever was an enabled one."""
        self.optimizers: WeakIds[Scaler | None] = WeakIds()
        """Each with the scaler that last stepped it."""
        self.gradients = Gradients()
        self.scaled: WeakIds[tuple[Scaler, int]] = WeakIds()
        """Results of `scaler.scale`, with scaler and epoch."""
        self._clock = itertools.count()
        self._quiet = threading.local()
        self.running_backward = False
        self.cut_off = False
        """Whether the run did not come to its own end."""

    def now(self) -> int:
        return next(self._clock)

    @property
    def quiet(self) -> bool:
        """Whether torch itself is at work here, on behalf of something that was judged already."""
        return getattr(self._quiet, "depth", 0) > 0

    @contextmanager
    def quietly(self) -> Iterator[None]:
        self._quiet.depth = getattr(self._quiet, "depth", 0) + 1
        try:
            yield
        finally:
            self._quiet.depth -= 1

    def meet(self, optimizer: Any) -> None:
        """Optimizers announce themselves where they are made; what only looks like one, when used."""
        if self.optimizers.get(optimizer) is None and hasattr(
            optimizer, "param_groups"
        ):
            self.optimizers.put(optimizer, None)

    def scale_was_read(self) -> bool:
        return any(
            record.scale_was_read
            for record in map(self.scalers.get, self.scalers.alive())
            if record is not None
        )


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """The tensors that an optimizer steps."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]
