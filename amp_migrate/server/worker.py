"""The process that analyses, and how the server talks to it.

Analysis holds the interpreter for as long as it takes; in a process of its own it keeps nobody from
typing, and what kills it (a stack or a memory that ran out) does not kill the server: the next question
starts a new one.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from amp_migrate.core.garbage import collect_seldom

_HEAD = 8
"""Bytes that say how many follow."""
_START = (
    "import sys; sys.path[:] = {path!r};"
    " from amp_migrate.server.worker import serve; serve({behind})"
)


class WorkerError(Exception):
    """A question that was not answered, in words for a log."""


class Worker:
    """A process that answers one question after the other.

    A thread speaks with it. As a task of the event loop the conversation would be torn where the loop
    ends, and a loop that ends while it starts a process may wait for that process forever.
    """

    def __init__(self, *, behind: bool = False) -> None:
        """``behind``: others that compute come first."""
        self._behind = behind
        self._thread = ThreadPoolExecutor(1)
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """Have the process ready before there is a question."""
        self._thread.submit(self._alive)

    async def ask(self, question: str, *about: object) -> Any:
        """What a function of `analysis`, by its name, answers. Raises `WorkerError`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, question, about)

    def _ask(self, question: str, about: tuple[object, ...]) -> object:
        try:
            process = self._alive()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_framed((question, about)))
            process.stdin.flush()
            answered, value = pickle.loads(_read(process.stdout))
        except (OSError, EOFError) as error:
            self._end()
            raise WorkerError(f"the analysis died: {error}") from None
        if not answered:
            raise WorkerError(value)
        return value

    def _alive(self) -> subprocess.Popen[bytes]:
        with self._changing:
            if self._stopped:
                raise EOFError("the session has ended")
            if self._process is None or self._process.poll() is not None:
                # Not with -m, which would look for modules in the folder of the user's project first.
                path = [one for one in sys.path if one]
                code = _START.format(path=path, behind=self._behind)
                self._process = subprocess.Popen(
                    (sys.executable, "-c", code),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            return self._process

    def stop(self) -> None:
        """End the process for good, whatever it is doing."""
        self._stopped = True
        self._end()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _end(self) -> None:
        with self._changing:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def _framed(message: object) -> bytes:
    data = pickle.dumps(message)
    return len(data).to_bytes(_HEAD, "big") + data


def _read(pipe: IO[bytes]) -> bytes:
    """A message without its head. Raises `EOFError` where none comes, or not all of it."""
    head = pipe.read(_HEAD)
    size = int.from_bytes(head, "big")
    message = pipe.read(size) if len(head) == _HEAD else b""
    if not message or len(message) < size:
        raise EOFError("it said no more")
    return message


def serve(behind: bool) -> None:
    """Answer what is asked on standard input, until it ends; ``behind``: see `Worker`."""
    if behind and hasattr(os, "nice"):
        os.nice(10)
    # Imported here: the server itself has no use for it.
    from amp_migrate.server import analysis

    collect_seldom()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whoever prints does not speak to the server
    while True:
        try:
            question, about = pickle.loads(_read(asked))
        except EOFError:
            return
        answers.write(_framed(_answer(getattr(analysis, question), about)))
        answers.flush()


def _answer(
    question: Callable[..., object], about: tuple[object, ...]
) -> tuple[bool, object]:
    try:
        return True, question(*about)
    except Exception:
        return False, traceback.format_exc()
