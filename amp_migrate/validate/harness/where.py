"""Which line of the user's own code is running."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from types import FrameType
from typing import NamedTuple

_INSTALLED = {"site-packages", "dist-packages"}


class Line(NamedTuple):
    """A line of a file; ``number`` counts from 1."""

    path: str
    number: int
    function: str


class Where:
    """Tells the user's code from libraries: what is not installed, and what was named."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        """``named``: files that are the user's wherever they lie."""
        self._named: frozenset[str] = frozenset(map(os.path.realpath, named))
        own = os.path.dirname(os.path.abspath(__file__))
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        paths = sysconfig.get_paths()
        installed = {own, *(paths[name] for name in names)}
        installed.update(site.getsitepackages(), [site.getusersitepackages()])
        self._libraries = tuple(
            os.path.join(os.path.realpath(root), "") for root in installed
        )
        self._known: dict[str, bool] = {}

    def is_users(self, file: str) -> bool:
        """Whether a code object's file name is of the user's code."""
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = self._look(file)
        return known

    def line(self, depth: int = 1) -> Line | None:
        """The innermost line of the user's that is running; None in a thread of a library's own.

        ``depth``: how many frames of the caller's are left out at least.
        """
        frame: FrameType | None = sys._getframe(depth)
        while frame is not None:
            code = frame.f_code
            if self.is_users(code.co_filename):
                return Line(code.co_filename, frame.f_lineno, code.co_name)
            frame = frame.f_back
        return None

    def _look(self, file: str) -> bool:
        if file.startswith("<"):
            return False
        path = os.path.realpath(file)
        if path in self._named:
            return True
        # Those of other interpreters that PYTHONPATH or a .pth file names are installed, too.
        if not _INSTALLED.isdisjoint(path.split(os.sep)):
            return False
        return not path.startswith(self._libraries)
