"""Which autocast regions are open, and those that are opened or closed wrongly."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, NamedTuple

import torch

from ..where import Line, Where
from .findings import Findings


class Region(NamedTuple):
    """An autocast region that is open."""

    instance: Any
    line: Line | None
    by_hand: bool
    """Whether it was opened by a call of `__enter__`, not by a with statement."""


def _is_on(device: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # Before torch 2.4 there was a function for each device.
        if device == "cuda":
            return bool(torch.is_autocast_enabled())
        of_device = getattr(torch, f"is_autocast_{device}_enabled", lambda: False)
        return bool(of_device())


class Regions:
    """Watches autocast objects being entered and left, in each thread."""

    def __init__(self, findings: Findings, where: Where) -> None:
        self._findings = findings
        self._where = where
        self._local = threading.local()
        self._devices: set[str] = set()
        self.dtypes: set[Any] = set()
        """Those that enabled regions have computed in."""

    @property
    def open(self) -> list[Region]:
        """The regions of this thread that are open, enabled or not, the innermost last."""
        regions: list[Region] | None = getattr(self._local, "regions", None)
        if regions is None:
            regions = self._local.regions = []
        return regions

    def on(self, device: str | None = None) -> bool:
        """Whether operators are cast, on one device or any that regions were opened for."""
        return any(map(_is_on, [device] if device is not None else self._devices))

    def patch(self) -> None:
        # The class of torch itself: what stands in for it is derived from it.
        base: Any = next(
            c
            for c in reversed(torch.amp.autocast_mode.autocast.__mro__)
            if c.__name__ == "autocast"
        )
        inner_enter, inner_exit = base.__enter__, base.__exit__

        @functools.wraps(inner_enter)
        def enter(instance: Any) -> Any:
            self._entered(instance)
            return inner_enter(instance)

        @functools.wraps(inner_exit)
        def leave(instance: Any, *error: Any) -> Any:
            regions = self.open
            for index in range(len(regions) - 1, -1, -1):
                if regions[index].instance is instance:
                    del regions[index]
                    break
            return inner_exit(instance, *error)

        base.__enter__, base.__exit__ = enter, leave

    def check_backward(self, line: Line | None) -> None:
        """A backward begins."""
        if not self.on():
            return
        by_hand = [r for r in self.open if r.by_hand]
        if by_hand:
            self._findings.report("autocast-left-on", by_hand[0].line)
        elif self.open:
            self._findings.report("backward-in-autocast", line)
        elif not self._findings.any("autocast-reentered"):
            self._findings.report("autocast-left-on", line)

    def check_step(self, line: Line | None) -> None:
        """An optimizer steps. What is not cached is not stale."""
        if self.on() and torch.is_autocast_cache_enabled():
            self._findings.report("step-in-autocast", line)

    def finish(self) -> None:
        """The script has ended, one way or the other, and left all of its with statements."""
        for region in self.open:
            if region.instance._enabled:
                self._findings.report("autocast-left-on", region.line)

    def _entered(self, instance: Any) -> None:
        line = self._where.line(2)
        if instance._enabled:
            self._devices.add(instance.device)
            self.dtypes.add(instance.fast_dtype)
        if any(region.instance is instance for region in self.open):
            self._findings.report("autocast-reentered", line)
        self.open.append(Region(instance, line, self._is_by_hand()))

    def _is_by_hand(self) -> bool:
        frame: Any = sys._getframe(3)
        # torch.cuda.amp.autocast and the like pass it on to their base class.
        while frame is not None and frame.f_code.co_name == "__enter__":
            frame = frame.f_back
        if frame is None or not self._where.is_users(frame.f_code.co_filename):
            return False
        # A with statement mentions no names.
        return "__enter__" in frame.f_code.co_names
