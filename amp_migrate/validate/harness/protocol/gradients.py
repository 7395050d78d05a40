"""Watches what becomes of gradients while they are scaled: clipping, reading and editing.

Not every use is wrong. What is the same at any scale passes: `is None`, zeroing, views and copies,
multiplying by a number, adding gradients of one scale, the search for infs. What takes their values
does not: norms, `item()`, printing, clamping, adding noise, a step by hand.

Operators are watched from the first time that a scaled gradient is taken out of `.grad` until there
is none left; correct code mostly runs unwatched.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from ..where import Where
from .findings import Findings
from .known import Gradient, Known, grad_of, is_zero

# fmt: off
_SAME_VALUES = frozenset("""
_to_copy _unsafe_view _reshape_alias alias as_strided cat clone contiguous detach detach_ diagonal expand
flatten index_select lift_fresh narrow permute reshape select slice split split_with_sizes squeeze
squeeze_ stack t t_ to transpose transpose_ unbind unfold unsqueeze unsqueeze_ view
""".split())
"""Operators whose results are the gradient again, or a part of it."""

_HOMOGENEOUS = frozenset("mul div neg abs neg_ mul_ div_ true_divide true_divide_".split())
"""Operators whose results have the same scale as the gradient, if it is one of the operands only."""

_SUMS = frozenset("add add_ sub sub_ copy_".split())
"""Operators that may mix gradients of the same scale."""

_NO_VALUES = frozenset("""
_coalesced_ _has_same_storage_numel _indices _nnz _values coalesce empty_like full_like indices
is_coalesced is_pinned is_same_size isinf isnan new_empty new_empty_strided new_full new_ones new_zeros
ones_like rand_like randn_like record_stream resize_ set_ sym_numel sym_size sym_storage_offset
sym_stride values zeros_like
""".split())
"""Operators for which the values do not matter, or not their scale."""

_CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_")
# fmt: on

_RECORDER = os.path.join(os.path.dirname(__file__), "recorder.py")
"""What looks at gradients beside the monitor, on nobody's behalf."""

_COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional")
"""Averages over processes: every one of them has the same scale."""


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


class _Operators(TorchDispatchMode):
    """Sees every operator that the script runs, once pushed."""

    def __init__(self, uses: GradientUses) -> None:
        super().__init__()
        self._uses = uses

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        scaled = self._uses.judge(func, [*args, *kwargs.values()])
        result = func(*args, **kwargs)
        if scaled:
            self._uses.carry(scaled[0], func, args, result)
        return result


class GradientUses:
    """Patches `Tensor.grad` and the functions that clip."""

    def __init__(self, known: Known, findings: Findings, where: Where) -> None:
        self._known = known
        self._findings = findings
        self._where = where
        self._mode = _Operators(self)
        self._watching = False

    def patch(self) -> None:
        self._patch_grad()
        places = (torch.nn.utils, torch.nn.utils.clip_grad)
        for name in _CLIPS:
            for place in places:
                if hasattr(place, name):
                    self._patch_clip(place, name)
        # These see through modes, or past them.
        self._patch_use(torch.Tensor, "numpy")
        self._patch_use(torch.Tensor, "tolist")
        self._patch_use(torch._tensor_str, "_str")

    def settle(self) -> None:
        """Stop watching operators if there is nothing left to watch."""
        if self._watching and not self._known.gradients.any_scaled():
            self._unwatch()

    def finish(self) -> None:
        """The script has ended."""
        self._unwatch()

    # --- clipping -------------------------------------------------------------------------------

    def _patch_clip(self, place: Any, name: str) -> None:
        inner = getattr(place, name)

        @functools.wraps(inner)
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(parameters, torch.Tensor):
                parameters = list(parameters)
            several = (
                [parameters] if isinstance(parameters, torch.Tensor) else parameters
            )
            grads = [grad_of(p) for p in several if isinstance(p, torch.Tensor)]
            if not self._known.quiet and any(map(self._scaled, grads)):
                rule = self._findings.broken_with("clip", "scaled")
                self._findings.report(rule, self._where.line(2))
            with self._known.quietly():
                return inner(parameters, *args, **kwargs)

        setattr(place, name, clip)

    def _patch_use(self, place: Any, name: str) -> None:
        inner = getattr(place, name)

        @functools.wraps(inner)
        def use(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._watching and not self._known.quiet and self._scaled(tensor):
                rule = self._findings.broken_with("read", "scaled")
                self._findings.report(rule, self._where.line(2), name.strip("_"))
            with self._known.quietly():
                return inner(tensor, *args, **kwargs)

        setattr(place, name, use)

    # --- from `.grad` on ------------------------------------------------------------------------

    def _patch_grad(self) -> None:
        torch_s: Any = torch.Tensor.grad

        def get(tensor: Any) -> Any:
            grad = torch_s.__get__(tensor)
            if grad is not None and self._known.any_scaler and not self._known.quiet:
                if self._scaled(grad) and not self._is_for_recorder():
                    self._watch()
            return grad

        def put(tensor: Any, value: Any) -> None:
            if value is not None and self._known.any_scaler and not self._known.quiet:
                self._check_replaced(torch_s.__get__(tensor), value)
            torch_s.__set__(tensor, value)

        def remove(tensor: Any) -> None:
            torch_s.__delete__(tensor)

        torch.Tensor.grad = property(get, put, remove, torch_s.__doc__)

    def _check_replaced(self, old: Any, value: Any) -> None:
        """Something is put in the place of a scaled gradient, where a scaler will divide it."""
        if old is None or not self._scaled(old) or not isinstance(value, torch.Tensor):
            return
        if self._known.gradients.of(value) is not None:
            return
        with self._known.quietly():
            if not is_zero(value):
                rule = self._findings.broken_with("edit", "scaled")
                self._findings.report(rule, self._where.line(3))

    def _watch(self) -> None:
        if torch.is_inference_mode_enabled():
            return  # When it ends, it undoes what entering a mode has set for this thread.
        modes = _get_current_dispatch_mode_stack()
        if any(getattr(mode, "_mode_key", None) is not None for mode in modes):
            return  # A graph is being traced.
        if self._mode not in modes:
            # Below the modes of others: those are left in the order that they were entered in.
            others = _lifted()
            _push_mode(self._mode)
            for mode in others:
                _push_mode(mode)
            self._watching = True

    def _unwatch(self) -> None:
        if torch.is_inference_mode_enabled():
            return
        if self._mode in _get_current_dispatch_mode_stack():
            for mode in _lifted():
                if mode is not self._mode:
                    _push_mode(mode)
            self._watching = False

    def _is_for_recorder(self) -> bool:
        """Whether it is the recorder, and not the user, who looks at gradients."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if self._where.is_users(file):
                return False
            if file == _RECORDER:
                return True
            frame = frame.f_back
        return False

    # --- operators ------------------------------------------------------------------------------

    def _scaled(self, tensor: Any) -> bool:
        gradient = self._known.gradients.of(tensor)
        return gradient is not None and self._is_live(gradient)

    def _is_live(self, gradient: Gradient) -> bool:
        return gradient.is_scaled and not self._known.scale_was_read()

    def judge(self, func: Any, values: list[Any]) -> list[Gradient]:
        """Report an operator if it takes values of scaled gradients; returns those that it takes."""
        if self._known.quiet or self._known.running_backward:
            return []
        of = self._known.gradients.of
        tensors = list(_tensors(values))
        found = [g for g in map(of, tensors) if g is not None and self._is_live(g)]
        if not found:
            return []
        space, _, rest = str(func).partition(".")
        name = rest.partition(".")[0]
        if name.startswith("_foreach_"):
            name = name[len("_foreach_") :]
        if space in _COLLECTIVES or name in _SAME_VALUES or name in _NO_VALUES:
            return found
        first = values[0] if values else None
        changes = name.endswith("_") and any(
            self._scaled(tensor) for tensor in _tensors([first])
        )
        if changes and (name == "zero_" or (name == "fill_" and values[1] == 0)):
            for tensor in _tensors([first]):
                self._known.gradients.drop(tensor)
            return []
        operands = [tensor for tensor in tensors if tensor.is_floating_point()]
        among = len(operands) == len(found)
        if name in _HOMOGENEOUS and not (among and len(_sides(values)) > 1):
            return found
        if name in _SUMS and among and len(_sides(values)) > 1:
            return found
        if name == "div" and among:
            return []
        if name in ("eq", "ne") and (among or _is_special(values[1:])):
            return []
        if self._is_for_recorder():
            return []
        use = "edit" if changes else "read"
        rule = self._findings.broken_with(use, "scaled")
        self._findings.report(rule, self._where.line(3), name)
        return []

    def carry(self, gradient: Gradient, func: Any, args: Any, result: Any) -> None:
        """Its results are the same gradient, elsewhere."""
        name = str(func).partition(".")[2].partition(".")[0]
        if name in _NO_VALUES:
            return
        for tensor in _tensors([result]):
            if tensor.is_floating_point() and self._known.gradients.of(tensor) is None:
                self._known.gradients.put(tensor, gradient)


def _lifted() -> list[Any]:
    """All modes, taken off; the innermost last."""
    modes = list(_get_current_dispatch_mode_stack())
    for _ in modes:
        _pop_mode()
    return modes


def _sides(values: list[Any]) -> list[Any]:
    """The operands that are tensors, or lists of them."""
    return [value for value in values if list(_tensors([value]))]


def _is_special(values: list[Any]) -> bool:
    """Whether they are numbers that scaling leaves as they are."""
    return all(
        isinstance(value, (int, float)) and (value == 0 or not math.isfinite(value))
        for value in values
    )
