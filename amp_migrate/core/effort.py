"""How much work may go into one program: counted in steps, which are the same on every machine.

Counted is what all analyses are made of: expressions and statements that are looked at, values that are
resolved or followed, statements that are walked. Whatever runs away passes there.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST_STEPS = 800_000_000
"""Some minutes: a step is what it takes to look at one expression, some tenths of a microsecond. The 354
files of pytorch-ignite take a twentieth of that; those of PFLlib, with 39 algorithms in one program, half."""


class TooLargeError(Exception):
    """A program that cannot be analysed in sensible time."""


class Effort(threading.local):
    """What a thread may still spend, and whether all was well."""

    left: float = math.inf
    cut: bool = False
    """Whether the machine set a bound that its answer goes around: another time, it may be another."""


_effort = Effort()


@contextmanager
def watched() -> Iterator[Effort]:
    """Tells whether what this thread does inside was cut."""
    _effort.cut = False
    yield _effort


def cut() -> None:
    """Say that something was left out for lack of memory, or of room for recursion."""
    _effort.cut = True


def spend(steps: int) -> None:
    """Count some steps, more for what takes longer; raises `TooLargeError` where that is too many."""
    _effort.left -= steps
    if _effort.left < 0:
        raise TooLargeError


def left() -> float:
    """How many steps may still be spent."""
    return _effort.left


def take(steps: float) -> bool:
    """Count the steps that were spent elsewhere; not where that is too many, which is not told by them:
    what both came to need is counted twice."""
    if steps > _effort.left:
        return False
    _effort.left -= steps
    return True


@contextmanager
def limited() -> Iterator[Effort]:
    """So many steps for what this thread does inside."""
    before, _effort.left = _effort.left, MOST_STEPS
    try:
        with watched() as effort:
            yield effort
    finally:
        _effort.left = before
