"""Rewritten sources under their original paths, for this process and the Python processes it starts.

A file's path, its neighbours, ``__file__`` and relative data stay what they are; only the text that
Python compiles is another one. Nothing is written where the user's files lie, no bytecode either.
"""

from __future__ import annotations

import importlib.machinery
import io
import linecache
import os
import sys
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from typing import Any

from .finders import next_spec


class Served:
    """Texts that take the place of files."""

    def __init__(
        self, texts: Mapping[str, bytes], loaded: Callable[[str], None]
    ) -> None:
        """``texts``: by real path; ``loaded`` is told the path of each that Python asks for."""
        self._texts = {os.path.realpath(path): text for path, text in texts.items()}
        self._loaded = loaded

    def text(self, path: str) -> bytes | None:
        """The text that stands for a file, if there is one."""
        found = self._texts.get(os.path.realpath(path))
        if found is not None:
            self._loaded(os.path.realpath(path))
            lines = found.decode("utf-8", "replace").splitlines(keepends=True)
            # For tracebacks, and for what reads the source of a function: no time means no check.
            linecache.cache[path] = (len(found), None, lines, path)
        return found

    def install(self) -> None:
        """For the rest of this process."""
        if not self._texts:
            return
        sys.meta_path.insert(0, _Finder(self))
        # For what is run by its path: the main program of a process that multiprocessing starts.
        inner = io.open_code

        def open_code(path: str) -> Any:
            found = self.text(path)
            return inner(path) if found is None else io.BytesIO(found)

        io.open_code = open_code

    def covers(self, path: str) -> bool:
        """Whether a text stands for a file."""
        return os.path.realpath(path) in self._texts


class _Finder(MetaPathFinder):
    """Asks all other finders, and gives what they find another loader where a text is served."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec = next_spec(self, name, path, target)
        origin = None if spec is None else spec.origin
        if origin is not None and self._served.covers(origin):
            spec.loader = _Loader(name, origin, self._served)
            spec.cached = None
        return spec

    def invalidate_caches(self) -> None:
        """Nothing is kept here."""


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, served: Served) -> None:
        super().__init__(name, path)
        self._served = served

    def get_data(self, path: str) -> bytes:
        found = self._served.text(path)
        return super().get_data(path) if found is None else found

    def get_code(self, fullname: str) -> Any:
        # Not by way of bytecode files, which hold what the file says.
        return self.source_to_code(self.get_data(self.path), self.path)
