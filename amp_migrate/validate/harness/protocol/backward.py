"""Watches every backward: whether it was scaled, by which scaler, and which gradients it reached."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..where import Line, Where
from .autocast import Regions
from .forward import Forwards
from .known import Gradient, Known, Scaler, grad_of, is_zero, parameters_of
from .scaler import SCALED

if TYPE_CHECKING:
    Sources = dict[tuple[Scaler | None, int], Line | None]

MOST_NODES = 100_000
"""No more of a graph is looked at."""


class Backwards:
    """Patches `torch.autograd.backward`, which `Tensor.backward` calls as well."""

    def __init__(
        self, known: Known, regions: Regions, forwards: Forwards, where: Where
    ) -> None:
        self._known = known
        self._regions = regions
        self._forwards = forwards
        self._where = where

    def patch(self) -> None:
        inner = torch.autograd.backward

        @functools.wraps(inner)
        def backward(
            tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
        ) -> None:
            if self._known.running_backward:
                # Of a checkpoint, inside the backward that counts.
                inner(tensors, grad_tensors, *args, **kwargs)
                return
            line = self._where.line(2)
            self._regions.check_backward(line)
            if not self._known.any_scaler:
                inner(tensors, grad_tensors, *args, **kwargs)
                return
            roots = _listed(tensors)
            sources = self._sources(roots, _listed(grad_tensors), line)
            if any(scaler is not None for scaler, _ in sources or {}):
                self._forwards.check_scaled(roots)
            before = list(self._reachable())
            self._known.running_backward = True
            try:
                inner(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._known.running_backward = False
                self._mark(before, sources)

        torch.autograd.backward = backward

    def _reachable(self) -> Iterator[tuple[Any, Any, int]]:
        """Every parameter that is optimized, its gradient, and how often that was written."""
        for optimizer in self._known.optimizers.alive():
            for parameter in parameters_of(optimizer):
                grad = grad_of(parameter)
                self._forget_zeroed(grad)
                yield parameter, grad, -1 if grad is None else grad._version

    def _forget_zeroed(self, grad: Any) -> None:
        """Gradients that a step is done with may have been zeroed by hand, unwatched."""
        gradient = self._known.gradients.of(grad)
        if gradient is not None and gradient.unscaled:
            with self._known.quietly():
                if is_zero(grad):
                    self._known.gradients.drop(grad)

    def _mark(
        self, before: list[tuple[Any, Any, int]], sources: Sources | None
    ) -> None:
        gradients = self._known.gradients
        gradients.prune()
        marked = set()
        for parameter, old, version in before:
            grad = grad_of(parameter)
            if grad is None or id(parameter) in marked:
                continue
            if grad is old and grad._version == version:
                continue
            marked.add(id(parameter))
            if sources is None:
                gradients.drop(grad)
                continue
            gradient = gradients.of(old) if old is not None else None
            if gradient is None:
                gradient = Gradient()
            gradient.add(sources)
            gradients.put(grad, gradient)
        for scaler, _ in sources or {}:
            if scaler is not None:
                scaler.scale_was_read = False

    def _sources(
        self, roots: list[Any], given: list[Any], line: Line | None
    ) -> Sources | None:
        """Where the gradients come from that it makes; None: the user may have scaled by hand."""
        found: Sources = {}
        plain = False
        for index, root in enumerate(roots):
            if not isinstance(root, torch.Tensor):
                continue
            source = self._known.scaled.get(root)
            if source is None and index < len(given):
                source = self._known.scaled.get(given[index])
            if source is not None:
                found[source] = line
                continue
            scaled, rest = _scaled_in(root)
            found.update((source, line) for source in scaled)
            plain = plain or rest or not scaled
        if plain:
            if self._known.scale_was_read():
                return None
            found[None, 0] = line
        return found


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _scaled_in(root: Any) -> tuple[list[tuple[Scaler, int]], bool]:
    """What a loss was put together from: scaled terms, and whether it has other ones."""
    if root.grad_fn is None:
        return [], True
    found: list[tuple[Scaler, int]] = []
    rest = False
    seen = {root.grad_fn}
    todo = [root.grad_fn]
    while todo and len(seen) < MOST_NODES:
        node = todo.pop()
        source = node.metadata.get(SCALED)
        if source is not None:
            found.append(source)
            continue
        if not node.next_functions:
            rest = True
        for after, _ in node.next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                todo.append(after)
    return found, rest
