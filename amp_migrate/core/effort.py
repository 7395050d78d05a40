"""How much work may go into one program: counted in steps, which are the same on every machine.

Counted is what all analyses are made of: expressions and statements that are looked at, values that are
resolved or followed, statements that are walked. Whatever runs away passes there.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST_STEPS = 400_000_000
"""Some minutes: a step is what it takes to look at one expression, some tenths of a microsecond. The 354
files of pytorch-ignite take a tenth of that."""


class TooLargeError(Exception):
    """A program that cannot be analysed in sensible time."""


class _Effort(threading.local):
    left: float = math.inf


_effort = _Effort()


def spend(steps: int) -> None:
    """Count some steps, more for what takes longer; raises `TooLargeError` where that is too many."""
    _effort.left -= steps
    if _effort.left < 0:
        raise TooLargeError


@contextmanager
def limited() -> Iterator[None]:
    """So many steps for what this thread does inside."""
    before, _effort.left = _effort.left, MOST_STEPS
    try:
        yield
    finally:
        _effort.left = before
