"""Makes two runs of a script the same: seeds, deterministic kernels, data in this process."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data


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
