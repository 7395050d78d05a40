"""What the stand-in for CUDA answers to those who ask `torch.cuda` and `torch.accelerator`."""

from __future__ import annotations

import collections
import contextlib
import time
from typing import Any

import torch

NAME = "stand-in for CUDA (CPU)"


class _Stream:
    """A stream or event: all is done at once here."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self._at = 0.0

    def record(self, *args: Any) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, other: _Stream) -> float:
        return (other._at - self._at) * 1000.0

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    wait = wait_event = wait_stream = record

    def record_event(self, event: Any = None) -> Any:
        event = event or _Stream()
        event.record()
        return event

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        pass


class _Properties:
    name = NAME
    major, minor = 8, 0
    total_memory = 16 << 30
    multi_processor_count = 108
    warp_size = 32
    max_threads_per_multi_processor = 2048
    regs_per_multiprocessor = 65536
    shared_memory_per_multiprocessor = 164 << 10
    L2_cache_size = 40 << 20
    is_integrated = is_multi_gpu_board = 0


class _Place(contextlib.nullcontext):  # type: ignore[type-arg]
    """A context manager for a device or stream: a class, since libraries ask for instances."""


class _Runtime:
    """The functions of libcudart: each succeeds."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **given: 0


def install() -> None:
    """For the rest of this process."""
    _answer_for_cuda()
    _answer_for_accelerator()
    torch.version.cuda = "12.4"
    torch.backends.cudnn.is_available = _always(True)


def _always(value: Any) -> Any:
    return lambda *args, **given: value


_QUESTIONS: dict[str, Any] = {
    "is_available": True,
    "is_initialized": False,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": NAME,
    "get_device_capability": (8, 0),
    "get_device_properties": _Properties(),
    # So that a script that chooses takes fp16, and there is a scaler to look at.
    "is_bf16_supported": False,
    "is_tf32_supported": True,
    "can_device_access_peer": False,
    "is_current_stream_capturing": False,
    "initial_seed": 0,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "memory_cached": 0,
    "max_memory_cached": 0,
    "device_memory_used": 0,
    "mem_get_info": (8 << 30, 16 << 30),
    "memory_stats": collections.defaultdict(int),
    "memory_summary": "",
    "memory_snapshot": [],
    "list_gpu_processes": "",
    "utilization": 0,
    "memory_usage": 0,
    "temperature": 0,
    "power_draw": 0,
    "clock_rate": 0,
    "get_arch_list": ["sm_80"],
    "get_gencode_flags": "",
    "get_sync_debug_mode": 0,
    "get_rng_state_all": [],
    "current_stream": _Stream(),
    "default_stream": _Stream(),
    "cudart": _Runtime(),
}
_ORDERS = (
    "_lazy_init init synchronize empty_cache ipc_collect set_device set_stream manual_seed manual_seed_all"
    " seed seed_all reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached set_per_process_memory_fraction set_rng_state set_rng_state_all"
    " set_sync_debug_mode"
).split()


def _answer_for_cuda() -> None:
    cuda: Any = torch.cuda
    answers = {name: _always(value) for name, value in _QUESTIONS.items()}
    answers.update({name: _always(None) for name in _ORDERS})
    answers.update(
        get_rng_state=lambda *args, **given: torch.zeros(16, dtype=torch.uint8),
        device=_Place,
        device_of=_Place,
        stream=_Place,
        StreamContext=_Place,
        Stream=_Stream,
        Event=_Stream,
    )
    for name, answer in answers.items():
        setattr(cuda, name, answer)
        # Some are taken from the module where they are made.
        for module in (cuda.memory, cuda.random, cuda.streams):
            if hasattr(module, name):
                setattr(module, name, answer)
    for name in ("_record_memory_history", "_dump_snapshot"):
        setattr(cuda.memory, name, _always(None))
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, _always(None))
    cuda.nvtx.range = _Place
    for name in ("init", "start", "stop"):
        setattr(cuda.profiler, name, _always(None))
    cuda.profiler.profile = _Place


def _answer_for_accelerator() -> None:
    """The module that stands for whatever accelerator there is, since torch 2.6."""
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    answers = {
        "is_available": True,
        "current_accelerator": torch.device("cuda"),
        "device_count": 1,
        "current_device_index": 0,
        "current_device_idx": 0,
        "device_index": _Place(),
        "current_stream": _Stream(),
        "get_memory_info": (8 << 30, 16 << 30),
        "memory_stats": collections.defaultdict(int),
    }
    for name in accelerator.__all__:
        if name in answers:
            setattr(accelerator, name, _always(answers[name]))
        elif name.startswith(("memory_", "max_memory_")):
            setattr(accelerator, name, _always(0))
        elif name.startswith(("empty_", "reset_", "set_", "synchronize")):
            setattr(accelerator, name, _always(None))
