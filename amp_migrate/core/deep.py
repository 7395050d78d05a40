"""Room for deep recursion: large programs have long chains of calls and of values to follow."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_FRAMES = 40_000
"""How deep Python's calls may go."""
_STACK = 512 * 1024 * 1024
"""Bytes of the stack for them; of these, only what is used takes memory."""
_WORDS = 1 << 20
"""Room for the frames of Python's own functions, in one piece; as above."""

_Answer = TypeVar("_Answer")


def with_room(ask: Callable[[], _Answer]) -> _Answer:
    """What ``ask`` answers or raises, asked where it may recurse far deeper than usual."""
    answers: list[_Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(_in_one_piece(ask))
        except BaseException as error:
            errors.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    try:
        # Not waited for after Ctrl-C, which only the main thread hears of.
        thread = threading.Thread(target=run, daemon=True)
        sys.setrecursionlimit(max(limit, _FRAMES))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if errors:
        raise errors[0]
    return answers[0]


def _in_one_piece(ask: Callable[[], _Answer]) -> _Answer:
    return ask()


# CPython has frames in pieces of 16 kB, of which each is got from the system when it is entered, and given
# back when it is left. A loop whose calls go over the end of one takes a hundred times as long as another.
# A frame that is larger has a larger piece, up to the next power of two, and others lie in what it leaves.
_in_one_piece.__code__ = _in_one_piece.__code__.replace(co_stacksize=_WORDS + 1)


@contextmanager
def bounded(frames: int) -> Iterator[None]:
    """Where calls go deeper than so many frames, a RecursionError is raised."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
