"""All that something leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_One = TypeVar("_One")


def reached(
    start: Iterable[_One], onward: Callable[[_One], Iterable[_One]]
) -> dict[_One, None]:
    """Some things with all that they lead to, step by step, in the order in which they are met."""
    found = dict.fromkeys(start)
    pending = list(found)
    for one in pending:
        more = [other for other in dict.fromkeys(onward(one)) if other not in found]
        found |= dict.fromkeys(more)
        pending += more
    return found
