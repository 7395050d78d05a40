"""A copy-on-write overlay of the file system for Python code: what it writes goes to scratch.

The user's files are read as they are, until the script changes one: then it sees its own copy. What
it makes, renames or removes it sees made, renamed or removed; nothing of the user's is. A user's
folder that may not be written counts as one that may: it is not written.

It stands in os, io and builtins, so it holds for what is written in Python, and for the libraries in
C that ``libraries`` knows. What gets past it is refused (``guard``), if Python hears of it; programs
that are no Python, and unknown libraries in C, are held by ``confine`` alone.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import islice
from typing import Any

from .disk import is_folder
from .functions import Functions
from .guard import Guard
from .layers import Layers
from .libraries import Libraries

# The harness: it works below the overlay, too.
_OWN = __name__.rpartition(".")[0].rpartition(".")[0]
# They work below the overlay: the import system reads the user's sources as they are.
_BELOW = frozenset(
    "posix nt _io _frozen_importlib _frozen_importlib_external zipimport".split()
)


class Overlay:
    """Redirects the writes of this process. One a process; its children install their own.

    ``scratch``: a folder, made if need be; processes with the same one see each other's writes.
    ``passed``: paths below which everything is left alone, besides the scratch folder itself.
    ``guarded``: paths that are redirected although they lie below one of those.
    """

    def __init__(
        self, scratch: str, passed: Sequence[str], guarded: Sequence[str] = ()
    ) -> None:
        self._layers = Layers(scratch, passed, guarded)
        self._guard = Guard(self._layers)
        self._functions = Functions(self._layers, self._guard)
        self._libraries = Libraries(
            self.path_to_read, self.path_to_write, self._layers.to_enter
        )

    def install(self) -> None:
        """Replace the functions; best before anything else is imported. Needs no torch."""
        kept: dict[int, Any] = {}
        for name, function in self._functions.of_os().items():
            original = getattr(os, name)
            kept[id(original)] = stand_in = _StandIn("os", name, function)
            for supported in (
                os.supports_dir_fd,
                os.supports_fd,
                os.supports_follow_symlinks,
                os.supports_effective_ids,
            ):
                if original in supported:
                    supported.add(stand_in)
        kept[id(io.open)] = _StandIn("io", "open", self._functions.open_file)
        kept[id(io.FileIO)] = self._functions.file_class()
        _replace_everywhere(kept)
        self._guard.install()
        self._libraries.install()

    def patch_torch(self) -> None:
        """Redirect also what torch reads and writes in C++.

        That happens by itself where torch is imported after ``install``. May be called again.
        """
        self._libraries.patch_torch()

    def path_to_read(self, path: Any) -> str:
        """The file on disk that holds what the script sees at this path."""
        try:
            return self._layers.locate(path).real
        except OSError:
            return self._nowhere(path)

    def path_to_write(self, path: Any, empty: bool = False) -> str:
        """The file on disk to write instead; it has what the file had, unless ``empty``."""
        try:
            place = self._layers.locate(path)
            if is_folder(place.status):
                return self._layers.own(place, whole=True)
            return self._layers.to_open(
                place, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if empty else 0)
            )
        except OSError:
            return self._nowhere(path)

    def _nowhere(self, path: Any) -> str:
        """A path at which the library finds itself that a folder is missing."""
        return self._layers.upper + os.path.normpath(self._layers.absolute(path))


class _StandIn:
    """Like a function in C, it does not become a method where it is kept in a class."""

    def __init__(self, module: str, name: str, function: Callable[..., Any]) -> None:
        self.__module__ = module
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"See {module}.{name}."
        self._function = function

    def __call__(self, *values: Any, **more: Any) -> Any:
        return self._function(*values, **more)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


def survey() -> None:
    """Find what `Overlay.install` will replace, for all processes that are forked from this one.

    Each of them would copy most of what is loaded, by only looking at it.
    """
    global _surveyed
    wanted = {id(value) for value in vars(os).values() if callable(value)}
    _found.extend(_holders(wanted | {id(io.open), id(io.FileIO)}))
    _surveyed = len(sys.modules)


_found: list[tuple[Any, str]] = []
_surveyed = 0
"""How many modules have been looked at: those that were loaded first."""


def _holders(wanted: Container[int]) -> Iterator[tuple[Any, str]]:
    """Where objects of these ids are kept: modules, and classes that took them over, with the name there."""
    for name in list(islice(reversed(sys.modules), len(sys.modules) - _surveyed)):
        module = sys.modules[name]
        if name in _BELOW or name == _OWN or name.startswith(f"{_OWN}."):
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in wanted:
                yield module, key
            elif isinstance(value, type) and value.__module__ == name:
                for inner in list(vars(value)):
                    if id(_held(value, inner)) in wanted:
                        yield value, inner


def _held(owner: Any, key: str) -> Any:
    value = vars(owner).get(key)
    return value.__func__ if isinstance(value, staticmethod) else value


def _replace_everywhere(kept: dict[int, Any]) -> None:
    """Replaces objects, by their ids, in all modules, and where classes took them over."""
    for owner, key in [*_found, *_holders(kept)]:
        new = kept.get(id(_held(owner, key)))
        if new is not None:
            setattr(owner, key, staticmethod(new) if isinstance(owner, type) else new)
