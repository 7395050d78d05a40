"""Makes two runs of a script the same: seeds, deterministic kernels, data in this process."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data
from torch.utils._python_dispatch import TorchDispatchMode


def fix(offset: int) -> None:
    """Seed what a script may not seed itself; what it does seed is shifted by ``offset``."""
    random.seed(offset)
    torch.manual_seed(offset)
    random.seed = _seed_anew(random.seed, offset, "a")
    torch.manual_seed = _seed_anew(torch.manual_seed, offset)
    torch.random.manual_seed = torch.manual_seed
    torch.cuda.manual_seed = _seed_anew(torch.cuda.manual_seed, offset)
    torch.cuda.manual_seed_all = _seed_anew(torch.cuda.manual_seed_all, offset)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(offset)
    numpy.random.seed = _seed_anew(numpy.random.seed, offset)
    numpy.random.default_rng = _seed_anew(numpy.random.default_rng, offset)


def determine() -> None:
    """Ask for kernels that give the same bits each time."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    # Many scripts switch it on, and it chooses kernels by how fast they are this time.
    torch._C._set_cudnn_benchmark = _ignore
    vars(type(torch.backends.cudnn))["benchmark"].setter = _ignore
    # Filling empty tensors is for finding mistakes, and costs time.
    if hasattr(torch.utils, "deterministic"):
        torch.utils.deterministic.fill_uninitialized_memory = False


def draw_alike() -> None:
    """Have dropout on a GPU drop the same elements in half precision as in fp32.

    Its kernels draw for as many elements at a time as are read at a time, which depends on the dtype, and
    those of attention are others for each; so the same training would look like another.
    """
    _DropoutInFull().__enter__()
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return  # an old torch
    inner = torch.nn.functional.scaled_dot_product_attention

    @functools.wraps(inner)
    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        *args: Any,
        **given: Any,
    ) -> Any:
        if not dropout_p:
            return inner(query, key, value, attn_mask, dropout_p, *args, **given)
        with sdpa_kernel(SDPBackend.MATH):
            return inner(query, key, value, attn_mask, dropout_p, *args, **given)

    torch.nn.functional.scaled_dot_product_attention = attention


class _DropoutInFull(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.native_dropout.default and args[2] is not False:
            tensor, chance = args[:2]
            kept = torch.rand(tensor.shape, device=tensor.device) >= chance
            return tensor * kept * (1 / (1 - chance) if chance < 1 else 0.0), kept
        return func(*args, **(kwargs or {}))


def load_data_here(say: Callable[..., None]) -> None:
    """Loaders load in this process: workers would each have a random stream of their own.

    Says ``loader`` for each: batch, its batch size; None where it has none.
    """
    base = torch.utils.data.DataLoader
    inner = base.__init__

    @functools.wraps(inner)
    def init(loader: Any, *args: Any, **given: Any) -> None:
        positional = list(args)
        for index, name, value in _QUIET:
            if len(positional) > index:
                positional[index] = value
            elif name in given:
                given[name] = value
        inner(loader, *positional, **given)
        say("loader", batch=loader.batch_size)

    base.__init__ = init


_QUIET = (
    (5, "num_workers", 0),
    (9, "timeout", 0),
    (11, "multiprocessing_context", None),
    (13, "prefetch_factor", None),
    (14, "persistent_workers", False),
)
"""Parameters of DataLoader, by position and name, and what they are where nothing runs beside."""


def _ignore(value: Any) -> None:
    """In place of what sets something."""


def _seed_anew(function: Any, offset: int, name: str = "seed") -> Any:
    """What seeds by the clock or the system seeds with ``offset``, other seeds are shifted by it.

    ``name``: of the function's first parameter.
    """

    @functools.wraps(function)
    def seed(*args: Any, **given: Any) -> Any:
        value = args[0] if args else given.pop(name, None)
        if value is None:
            value = offset
        elif isinstance(value, int):
            value += offset
        return function(value, *args[1:], **given)

    return seed
