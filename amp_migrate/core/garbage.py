"""How often Python looks for cycles of garbage: the facts of a project are many objects without any."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 200_000
"""Reading all of timm (311 files) took 5.5 s at Python's own 700, 2.2 s at this and with no collection at
all (CPython 3.11, two busy cores), and no more memory."""


def collect_seldom() -> None:
    """For processes that are ours."""
    _set_threshold()
    # What is left at the end goes back to the system at once, whether it is garbage or not: to go through
    # all of timm took 1.3 s.
    atexit.register(gc.freeze)


def _set_threshold() -> None:
    gc.set_threshold(_ALLOCATIONS, 10, 10)


_keeps = False
"""A large program is being worked on."""


@contextmanager
def one_large_program() -> Iterator[None]:
    """What is made inside `kept` is not looked at until this ends."""
    global _keeps
    _keeps = True
    try:
        yield
    finally:
        _keeps = False
        gc.unfreeze()


@contextmanager
def kept() -> Iterator[None]:
    """What is made inside has no cycles, and stays: to go through the facts of timm again and again took a
    tenth of its lint."""
    keeps = _keeps and gc.isenabled()
    if keeps:
        gc.disable()
    try:
        yield
    finally:
        if keeps:
            gc.freeze()
            gc.enable()


@contextmanager
def collected_seldom() -> Iterator[None]:
    """The same for what is done inside: a library leaves its caller's process as it was."""
    before = gc.get_threshold()
    _set_threshold()
    try:
        yield
    finally:
        gc.set_threshold(*before)
