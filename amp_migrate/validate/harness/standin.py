"""A stand-in for CUDA, for scripts that go there unconditionally on a machine that has none.

`torch.cuda.is_available()` is true and devices keep their names, so that a script takes the branch
that it takes on a GPU; but tensors that it moves to CUDA or makes there stay on the CPU, and so does
`tensor.device`. Only what scripts commonly ask of `torch.cuda` is answered.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import standin_answers


def install() -> None:
    """For the rest of this process."""
    standin_answers.install()
    _stay_on_one_device()
    _be_the_only_process()
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
        if func is torch.device and args and isinstance(args[0], int):
            return func("cuda", *args)
        name = getattr(func, "__name__", "")
        if name in ("cuda", "pin_memory") and args:
            return args[0]
        if name == "get_device":
            return 0
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
_TYPES = "Float Double Long Int Byte Bool Half Short Char BFloat16".split()
_TAKE_DEVICE = frozenset({"to", "new_tensor", "new_zeros", "new_ones", "new_full"})


def _stay_on_one_device() -> None:
    """What takes a device without being a torch function."""
    module = torch.nn.Module
    module.cuda = lambda self, device=None: self
    module_to = module.to

    def to(self: Any, *args: Any, **given: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cpu", *args[1:])
        if type(given.get("device")) is int:
            given["device"] = "cpu"
        return module_to(self, *args, **given)

    module.to = to
    torch.Tensor.record_stream = lambda self, stream: None
    inner_load = torch.load

    def load(file: Any, map_location: Any = None, *args: Any, **given: Any) -> Any:
        if not callable(map_location):
            map_location = "cpu"
        return inner_load(file, map_location, *args, **given)

    torch.load = load
    for storage in (torch.UntypedStorage, torch.storage.TypedStorage):
        storage.cuda = lambda self, *args, **given: self
    set_device, set_type = torch.set_default_device, torch.set_default_tensor_type
    torch.set_default_device = lambda device: set_device(_on_cpu(device))
    torch.set_default_tensor_type = lambda kind: set_type(
        kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind
    )
    parallel = torch.nn.DataParallel

    def init(self: Any, wrapped: Any, *args: Any, **given: Any) -> None:
        module.__init__(self)
        self.module = wrapped
        self.device_ids = [0]
        self.output_device = self.dim = 0

    parallel.__init__ = init
    parallel.forward = lambda self, *inputs, **given: self.module(*inputs, **given)
    torch.nn.parallel.data_parallel = _data_parallel
    torch.Generator = _Generator
    for name in _TYPES:
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    loader = torch.utils.data.DataLoader
    loader_init = loader.__init__

    def unpinned(self: Any, *args: Any, **given: Any) -> None:
        loader_init(self, *args, **given)
        self.pin_memory = False

    loader.__init__ = unpinned


class _Generator(torch._C.Generator):
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(
            cls, "cpu" if isinstance(device, int) else _on_cpu(device)
        )


def _data_parallel(
    wrapped: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return wrapped(*inputs, **(module_kwargs or {}))


def _be_the_only_process() -> None:
    """Process groups of NCCL are Gloo's, and their modules have no device of their own."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    inner_group, inner_barrier = distributed.init_process_group, distributed.barrier

    def init_process_group(backend: Any = None, *args: Any, **given: Any) -> Any:
        given.pop("device_id", None)
        return inner_group("gloo", *args, **given)

    def barrier(*args: Any, **given: Any) -> Any:
        given.pop("device_ids", None)
        return inner_barrier(*args, **given)

    distributed.init_process_group = init_process_group
    distributed.barrier = barrier
    distributed.is_nccl_available = lambda: True
    parallel: Any = torch.nn.parallel.DistributedDataParallel
    inner = parallel.__init__

    def init(
        self: Any,
        wrapped: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **given: Any,
    ) -> None:
        inner(self, wrapped, None, None, *args, **given)

    parallel.__init__ = init
