"""Times the iterations of a script that is otherwise left as it is."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from .enough import enough

WARM_UP = 5
"""Iterations that are not counted: kernels are chosen and memory is allocated in them."""


def after_each_backward(see: Callable[[], None]) -> None:
    """For the rest of this process, call ``see`` after each backward; a script that was ended ends."""
    inner = torch.autograd.backward

    @functools.wraps(inner)
    def backward(*args: Any, **given: Any) -> None:
        if enough.reached:
            enough.say()
        inner(*args, **given)
        see()

    torch.autograd.backward = backward


class Clock:
    """Says ``times``: milliseconds between backward passes, and memory, the peak bytes since warm-up.

    On CUDA by events, so that nothing waits for the GPU; else by the wall clock.
    """

    def __init__(self, say: Callable[..., None], iterations: int) -> None:
        self._say = say
        self._wanted = WARM_UP + iterations + 1
        self._marks: list[Any] = []

    def patch(self) -> None:
        after_each_backward(self._mark)

    def finish(self) -> None:
        marks = self._marks[WARM_UP:]
        on_cuda = torch.cuda.is_initialized()
        if on_cuda:
            torch.cuda.synchronize()
        self._say(
            "times",
            milliseconds=[
                a.elapsed_time(b) if on_cuda else (b - a) * 1000.0
                for a, b in zip(marks, marks[1:])
            ],
            memory=torch.cuda.max_memory_allocated() if on_cuda else None,
        )

    def _mark(self) -> None:
        if torch.cuda.is_initialized():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())
        if len(self._marks) == WARM_UP and torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        if len(self._marks) >= self._wanted:
            self.finish()
            enough.say()
