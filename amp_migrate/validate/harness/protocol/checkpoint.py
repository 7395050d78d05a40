"""Watches checkpoints: whether the state of the scaler is saved, and loaded, with the optimizer's."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ..where import Line, Where
from .findings import Findings
from .known import Known

MOST_DEEP = 6
MOST_VALUES = 100_000
"""No more of what is saved or loaded is looked through."""
MOST_STATES = 256
"""So many states are remembered, the last ones."""

_OPTIMIZER_KEYS = {"state", "param_groups"}
_SCALER_KEYS = {"scale", "growth_factor", "backoff_factor", "growth_interval"}


def _parts(value: Any) -> Iterator[Any]:
    """An object and what it consists of, without the contents of tensors and of states."""
    todo = [(value, 0)]
    seen: set[int] = set()
    while todo and len(seen) < MOST_VALUES:
        part, depth = todo.pop()
        if id(part) in seen or isinstance(part, (torch.Tensor, str, bytes, int, float)):
            continue
        seen.add(id(part))
        yield part
        if depth == MOST_DEEP or _is_scaler(part):
            continue
        if isinstance(part, dict):
            # A scaler's state may be an entry of its optimizer's.
            own = _OPTIMIZER_KEYS if _is_optimizer(part) else ()
            inside: list[Any] = [part[key] for key in part if key not in own]
        elif _is_optimizer(part):
            inside = []
        elif isinstance(part, (list, tuple, set)):
            inside = list(part)
        elif isinstance(part, torch.nn.Module) or not hasattr(part, "__dict__"):
            inside = []
        else:
            inside = list(vars(part).values())
        todo += [(item, depth + 1) for item in inside]


def _is_optimizer(part: Any) -> bool:
    if isinstance(part, dict):
        return part.keys() >= _OPTIMIZER_KEYS and isinstance(
            part["param_groups"], (list, tuple)
        )
    return isinstance(part, torch.optim.Optimizer)


def _is_scaler(part: Any) -> bool:
    if isinstance(part, dict):
        return part.keys() >= _SCALER_KEYS
    return any(base.__name__ == "GradScaler" for base in type(part).__mro__)


class Checkpoints:
    """Patches `torch.save`, `torch.load` and the state dicts of optimizers."""

    def __init__(self, known: Known, findings: Findings, where: Where) -> None:
        self._known = known
        self._findings = findings
        self._where = where
        self._owners: dict[int, Any] = {}
        """By the identity of the list of groups in a state: that list, and whose it is."""
        self._unsaved: list[Line | None] = []
        """Where an optimizer was saved, and no scaler so far."""
        self._scaler_was_saved = False
        self._unloaded: list[Line | None] = []
        """Where the state of a scaler was read from a file."""
        self._resumed = False

    def patch(self) -> None:
        self._patch_optimizer()
        inner_save, inner_load = torch.save, torch.load

        @functools.wraps(inner_save)
        def save(obj: Any, *args: Any, **kwargs: Any) -> None:
            self._saved(obj)
            inner_save(obj, *args, **kwargs)

        @functools.wraps(inner_load)
        def load(*args: Any, **kwargs: Any) -> Any:
            result = inner_load(*args, **kwargs)
            if any(map(_is_scaler, _parts(result))):
                self._unloaded.append(self._where.line(2))
                self._resumed = False
            return result

        torch.save, torch.load = save, load

    def check_iteration(self) -> None:
        """Training goes on: what is not saved by now is not saved with it."""
        if self._unsaved and not self._scaler_was_saved:
            for line in self._unsaved:
                self._findings.report("checkpoint-without-scaler", line)
        self._unsaved = []
        if self._unloaded and self._resumed:
            for line in self._unloaded:
                self._findings.report("scaler-state-not-loaded", line)
            self._unloaded = []

    def scaler_loaded(self) -> None:
        """A scaler was given a state."""
        self._unloaded = []

    def finish(self) -> None:
        """The script has ended, and may have saved for the last time."""
        if not self._known.cut_off:
            self._resumed = False
            self.check_iteration()

    def _saved(self, obj: Any) -> None:
        parts = list(_parts(obj))
        if any(map(_is_scaler, parts)):
            self._scaler_was_saved = True
        elif any(_is_optimizer(part) and self._is_scaled(part) for part in parts):
            self._unsaved.append(self._where.line(3))

    def _is_scaled(self, state: Any) -> bool:
        """Whether it is of an optimizer that a scaler steps; where that is not known, of any."""
        owner: Any = state
        if isinstance(state, dict):
            groups, reference = self._owners.get(
                id(state["param_groups"]), (None, None)
            )
            if groups is None or reference() is None:
                return any(
                    map(self._known.optimizers.get, self._known.optimizers.alive())
                )
            owner = reference()
        return self._known.optimizers.get(owner) is not None

    def _patch_optimizer(self) -> None:
        base: Any = torch.optim.Optimizer
        inner_state, inner_load = base.state_dict, base.load_state_dict

        @functools.wraps(inner_state)
        def state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            state = inner_state(optimizer, *args, **kwargs)
            groups = state["param_groups"]
            # Without tensors, and kept: its identity is what tells whose state it is.
            self._owners[id(groups)] = (groups, weakref.ref(optimizer))
            while len(self._owners) > MOST_STATES:
                del self._owners[next(iter(self._owners))]
            return state

        @functools.wraps(inner_load)
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._resumed = True
            return inner_load(optimizer, *args, **kwargs)

        base.state_dict = state_dict
        base.load_state_dict = load_state_dict
