"""When to analyse: not while somebody types, and never twice at a time for one project."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

_log = logging.getLogger(__name__)


class Lane:
    """One kind of analysis. What came to be outdated while it ran is run again, once."""

    def __init__(
        self, run: Callable[[Path], Awaitable[None]], delay: Callable[[], float]
    ) -> None:
        """``delay``: how many seconds without an edit to wait for."""
        self._run = run
        self._delay = delay
        self._dirty: set[Path] = set()
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    def ask(self, root: Path) -> None:
        """Have a project analysed soon."""
        self._dirty.add(root)
        if root not in self._tasks:
            self._tasks[root] = asyncio.ensure_future(self._work(root))

    async def settled(self, root: Path, most: float | None = None) -> None:
        """Wait until nothing is left to do for a project, or for so many seconds."""
        if root in self._tasks:
            await asyncio.wait([self._tasks[root]], timeout=most)

    async def _work(self, root: Path) -> None:
        try:
            while root in self._dirty:
                while root in self._dirty:
                    self._dirty.discard(root)
                    await asyncio.sleep(self._delay())
                try:
                    await self._run(root)
                except Exception:
                    _log.exception("internal error in %s", root)
        finally:
            del self._tasks[root]

    def stop(self) -> None:
        """Do nothing more."""
        for task in self._tasks.values():
            task.cancel()
