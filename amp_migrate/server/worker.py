"""The process that analyses, and how the server talks to it.

Analysis holds the interpreter for as long as it takes; in a process of its own it keeps nobody from
typing, and what kills it (a stack or a memory that ran out) does not kill the server: the next question
starts a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

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
    """A process that answers one question after the other."""

    def __init__(self, *, behind: bool = False) -> None:
        """``behind``: others that compute come first."""
        self._behind = behind
        self._process: asyncio.subprocess.Process | None = None
        self._one = asyncio.Lock()

    async def start(self) -> None:
        """Have the process ready before there is a question."""
        async with self._one:
            await self._alive()

    async def ask(self, question: str, *about: object) -> Any:
        """What a function of `analysis`, by its name, answers. Raises `WorkerError`."""
        # Who no longer wants to know does not tear a conversation apart.
        return await asyncio.shield(self._ask(question, about))

    async def _ask(self, question: str, about: tuple[object, ...]) -> Any:
        async with self._one:
            try:
                process = await self._alive()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(_framed((question, about)))
                await process.stdin.drain()
                size = int.from_bytes(await process.stdout.readexactly(_HEAD), "big")
                answered, value = pickle.loads(await process.stdout.readexactly(size))
            except (OSError, asyncio.IncompleteReadError) as error:
                self.stop()
                raise WorkerError(f"the analysis died: {error}") from None
        if not answered:
            raise WorkerError(value)
        return value

    async def _alive(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            # Not with -m, which would look for modules in the folder of the user's project first.
            path = [one for one in sys.path if one]
            code = _START.format(path=path, behind=self._behind)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _framed(message: object) -> bytes:
    data = pickle.dumps(message)
    return len(data).to_bytes(_HEAD, "big") + data


def serve(behind: bool) -> None:
    """Answer what is asked on standard input, until it ends; ``behind``: see `Worker`."""
    if behind and hasattr(os, "nice"):
        os.nice(10)
    # Imported here: the server itself has no use for it.
    from amp_migrate.server import analysis

    collect_seldom()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whoever prints does not speak to the server
    while head := asked.read(_HEAD):
        question, about = pickle.loads(asked.read(int.from_bytes(head, "big")))
        answers.write(_framed(_answer(getattr(analysis, question), about)))
        answers.flush()


def _answer(
    question: Callable[..., object], about: tuple[object, ...]
) -> tuple[bool, object]:
    try:
        return True, question(*about)
    except Exception:
        return False, traceback.format_exc()
