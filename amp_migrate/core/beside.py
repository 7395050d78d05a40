"""A part of the work on one large program, done on another core: in a copy of this process, which has all
that was read and linked already. What comes back is plain data.

To send the facts of files to other processes, or from them, takes as long as to read the files: timm's 304
are read in 2.6 s of CPU time, packed in 1.3 s and unpacked in 1.1 to 2.0 s.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from amp_migrate.core import effort, phases

_Answer = TypeVar("_Answer")
_MOST_TOKENS = 2048
"""Of two bytes each: 4 KiB is what the smallest pipe holds."""


class _Help(threading.local):
    """Whether the work of a thread may be done by others, too."""

    allowed = False


_help = _Help()


@contextmanager
def helped(allowed: bool) -> Iterator[None]:
    """Whether what this thread does inside may use another core."""
    before, _help.allowed = _help.allowed, allowed and sys.platform == "linux"
    try:
        yield
    finally:
        _help.allowed = before


def is_helped() -> bool:
    """Whether `beside` makes a difference."""
    return _help.allowed


@contextmanager
def beside(work: Callable[[], _Answer]) -> Iterator[Callable[[], _Answer]]:
    """Have something done while this thread goes on; what is given waits for the answer.

    Whatever goes wrong there, and all that would go beyond what a program may take, is done again here, and
    so comes to what it would have come to without help.
    """
    if not _help.allowed:
        yield work
        return
    answers, answer_in = os.pipe()
    alive, life = os.pipe()
    with warnings.catch_warnings():
        # Other threads do not matter to a copy that asks none of them, and ends without a word.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(answers)
        os.close(life)
        _do(work, answer_in, alive)
    os.close(answer_in)
    os.close(alive)

    def answer() -> _Answer:
        with os.fdopen(answers, "rb", closefd=False) as file:
            said = file.read()
        if said:
            found, cut, steps = cast("tuple[_Answer, bool, int]", pickle.loads(said))
            if effort.take(steps):
                if cut:
                    effort.cut()
                return found
        return work()

    try:
        yield answer
    finally:
        os.close(answers)
        # It ends itself, too, when this process is killed, and nobody holds the other end.
        os.close(life)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def shared(do: Callable[[int], _Answer], count: int) -> list[_Answer]:
    """What comes of each of the numbers below ``count``, done by two cores: each takes what comes next.

    What one of them does must not matter to what the other finds.
    """
    if not _help.allowed or count < 2:
        return list(map(do, range(count)))
    # Two processes that read from one pipe never get the same. As much as any pipe holds at once:
    tokens = min(count, _MOST_TOKENS)
    taken, given = os.pipe()
    os.write(given, b"".join(n.to_bytes(2, "big") for n in range(tokens)))
    os.close(given)

    def some() -> dict[int, _Answer]:
        found = {}
        while token := os.read(taken, 2):
            for number in range(int.from_bytes(token, "big"), count, tokens):
                found[number] = do(number)
        return found

    try:
        with beside(some) as other:
            found = some()
            found |= other()
    finally:
        os.close(taken)
    # Where the other one has failed, what it had taken is left.
    return [found[n] if n in found else do(n) for n in range(count)]


def _do(work: Callable[[], object], answer_in: int, alive: int) -> None:
    """What the copy does: it never returns."""
    try:
        # Ctrl-C reaches every process of the terminal; one of them is enough to answer it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
        _help.allowed = False
        phases.hide()
        # What there is stays; to look through it would copy it.
        gc.freeze()
        with effort.watched() as spent:
            before = spent.left
            found = work()
            said = pickle.dumps((found, spent.cut, before - spent.left))
        with os.fdopen(answer_in, "wb") as file:
            file.write(said)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _end_with(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)
