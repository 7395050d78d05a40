"""A stand-in for CUDA, for scripts that go there unconditionally on a machine that has none.

`torch.cuda.is_available()` is true and devices keep their names, so that a script takes the branch
that it takes on a GPU; but tensors that it moves to CUDA or makes there stay on the CPU, and so does
`tensor.device`. Only what scripts commonly ask of `torch.cuda` is answered.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

NAME = "stand-in for CUDA (CPU)"


def install() -> None:
    """For the rest of this process."""
    _answer()
    _stay_on_one_device()
    _Here().__enter__()


def _on_cpu(value: Any) -> Any:
    """A device, or a value that may hold some, with CUDA's replaced by the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str):
        is_cuda = value == "cuda" or value.startswith("cuda:")
        return "cpu" if is_cuda else value
    return value


class _Here(TorchFunctionMode):
    """Every torch function that is told a CUDA device is told the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "cuda" and args:
            return args[0]
        if name == "pin_memory" and args:
            return args[0]
        if name == "__get__" and getattr(func, "__self__", None) is _IS_CUDA:
            return True
        kwargs.pop("pin_memory", None)
        if "device" in kwargs:
            device = kwargs["device"]
            kwargs["device"] = "cpu" if isinstance(device, int) else _on_cpu(device)
        if name in _TAKE_DEVICE:
            args = tuple(_on_cpu(argument) for argument in args)
            if name == "to" and len(args) > 1 and type(args[1]) is int:
                args = (args[0], "cpu", *args[2:])
        if name == "type" and len(args) > 1 and isinstance(args[1], str):
            args = (args[0], args[1].replace("torch.cuda.", "torch."), *args[2:])
        return func(*args, **kwargs)


_IS_CUDA = torch.Tensor.is_cuda
_TAKE_DEVICE = frozenset({"to", "new_tensor", "new_zeros", "new_ones", "new_full"})


def _stay_on_one_device() -> None:
    """What takes a device without being a torch function."""
    module = torch.nn.Module
    module.cuda = lambda self, device=None: self
    inner_load = torch.load

    def load(file: Any, map_location: Any = None, *args: Any, **given: Any) -> Any:
        if not callable(map_location) and not isinstance(map_location, dict):
            map_location = "cpu"
        return inner_load(file, map_location, *args, **given)

    torch.load = load
    set_device, set_type = torch.set_default_device, torch.set_default_tensor_type
    torch.set_default_device = lambda device: set_device(_on_cpu(device))
    torch.set_default_tensor_type = lambda kind: set_type(
        kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind
    )
    parallel = torch.nn.DataParallel

    def init(self: Any, wrapped: Any, *args: Any, **given: Any) -> None:
        module.__init__(self)
        self.module = wrapped
        self.device_ids = []  # so that it calls the module itself

    parallel.__init__ = init
    for name in ("Float", "Double", "Long", "Int", "Byte", "Bool", "Half", "Short"):
        kind = f"{name}Tensor"
        setattr(torch.cuda, kind, getattr(torch, kind))
    loader = torch.utils.data.DataLoader
    loader_init = loader.__init__

    def unpinned(self: Any, *args: Any, **given: Any) -> None:
        loader_init(self, *args, **given)
        self.pin_memory = False

    loader.__init__ = unpinned


class _Stream:
    """A stream or event: all is done at once here."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self._at = 0.0

    def record(self, *args: Any) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, other: _Stream) -> float:
        return (other._at - self._at) * 1000.0

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


def _answer() -> None:
    cuda: Any = torch.cuda

    def always(value: Any) -> Any:
        return lambda *args, **given: value

    for name, value in {
        "is_available": True,
        "is_initialized": False,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": NAME,
        "get_device_capability": (8, 0),
        "get_device_properties": _Properties(),
        "is_bf16_supported": True,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (8 << 30, 16 << 30),
        "memory_stats": {},
        "memory_summary": "",
        "utilization": 0,
        "get_arch_list": ["sm_80"],
        "current_stream": _Stream(),
        "default_stream": _Stream(),
        "stream": contextlib.nullcontext(),
        "device": contextlib.nullcontext(),
        "device_of": contextlib.nullcontext(),
    }.items():
        setattr(cuda, name, always(value))
    for name in (
        "_lazy_init init synchronize empty_cache ipc_collect set_device manual_seed manual_seed_all seed"
        " seed_all reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached"
        " set_per_process_memory_fraction set_rng_state set_rng_state_all"
    ).split():
        setattr(cuda, name, always(None))
    cuda.get_rng_state = always(torch.ByteTensor(16).zero_())
    cuda.get_rng_state_all = always([])
    cuda.Stream = cuda.Event = _Stream
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, always(None))
    cuda.nvtx.range = always(contextlib.nullcontext())
    torch.backends.cudnn.is_available = always(True)
