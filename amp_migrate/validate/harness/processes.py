"""Training that a script would leave to other processes, as far as one process can do it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed
import torch.multiprocessing

ONLY_ONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
"""What ``torchrun --nproc-per-node 1`` says in the environment; port 0 is any that is free."""


def stay_here(say: Callable[..., None]) -> None:
    """One process that is spawned for the only GPU is this one. Says ``process`` for each fork."""
    inner = torch.multiprocessing.spawn

    @functools.wraps(inner)
    def spawn(
        fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, **given: Any
    ) -> Any:
        if nprocs != 1 or not join:
            return inner(fn, args, nprocs, join, **given)
        fn(0, *args)
        return None

    torch.multiprocessing.spawn = spawn
    sys.modules["torch.multiprocessing.spawn"].spawn = spawn  # type: ignore[attr-defined]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lambda: say("process"))
    if torch.distributed.is_available():
        keep_groups()


def keep_groups() -> None:
    """No process group is destructed before this process ends.

    Gloo's destructor waits for its threads while it holds the interpreter's lock, which a thread needs
    that drops a Python object of the state that it was handed (a mode or a hook of autograd).
    """
    distributed = torch.distributed
    inner_init, inner_new = distributed.init_process_group, distributed.new_group
    kept: list[Any] = []

    @functools.wraps(inner_init)
    def init_process_group(*args: Any, **given: Any) -> None:
        inner_init(*args, **given)
        kept.append(distributed.group.WORLD)

    @functools.wraps(inner_new)
    def new_group(*args: Any, **given: Any) -> Any:
        kept.append(inner_new(*args, **given))
        return kept[-1]

    distributed.init_process_group = init_process_group
    distributed.new_group = new_group
