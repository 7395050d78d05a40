"""How long each kernel of the GPU takes in some iterations of a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .clock import WARM_UP, after_each_backward
from .enough import enough

ITERATIONS = 10


class KernelTimes:
    """Says ``kernel``, a line for each name: name and microseconds, in `ITERATIONS` after warm-up."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._backwards = 0
        self._profile: Any = None

    def patch(self) -> None:
        after_each_backward(self._count)

    def _count(self) -> None:
        self._backwards += 1
        if self._backwards == WARM_UP:
            self._profile = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]
            )
            self._profile.__enter__()
        elif self._backwards == WARM_UP + ITERATIONS:
            self.finish()
            enough.say()

    def finish(self) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        torch.cuda.synchronize()
        profile.__exit__(None, None, None)
        for kernel in profile.key_averages():
            # The name of the attribute before torch 2.4.
            time = getattr(kernel, "self_device_time_total", None)
            if time is None:
                time = kernel.self_cuda_time_total
            if time:
                self._say("kernel", name=kernel.key, microseconds=float(time))
