"""What stands in for the functions of os, io and builtins that take paths."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

from .changes import Changes
from .disk import error
from .guard import Guard
from .layers import Layers, Place
from .scans import Entry, Scan

# Functions of os that look at what a path leads to, and those that change it in place; for each,
# whether links in its last part are followed when nothing else is said.
_LOOKS = {"access": True, "statvfs": True, "pathconf": True, "readlink": False}
_LOOKS.update({"getxattr": True, "listxattr": True})
_ALTERS = {
    "chmod": True,
    "chown": True,
    "utime": True,
    "truncate": True,
    "chflags": True,
}
_ALTERS.update({"setxattr": True, "removexattr": True})
_ALTERS.update({"lchmod": False, "lchown": False, "lchflags": False})


class Functions:
    """They take what the originals take; errors name the path that was given."""

    def __init__(self, layers: Layers, guard: Guard) -> None:
        self._layers = layers
        self._changes = Changes(layers)
        self._mapping = guard.mapping()
        self._open = io.open
        self._os_open = os.open
        self._os_stat = os.stat
        self._os_scandir = os.scandir
        self._os_chdir = os.chdir
        self._os_getcwd = os.getcwd

    def of_os(self) -> dict[str, Callable[..., Any]]:
        """By the names they have in os; only those that os has here."""
        changes = self._changes
        functions: dict[str, Callable[..., Any]] = {
            "open": _naming(self.open_descriptor),
            "stat": _naming(self.stat),
            "lstat": _naming(self._lstat),
            "listdir": _naming(self._listdir),
            "scandir": _naming(self._scandir),
            "chdir": _naming(self._chdir),
            "getcwd": self._layers.working_folder,
            "getcwdb": lambda: os.fsencode(self._layers.working_folder()),
            "mkdir": _naming(changes.mkdir),
            "rmdir": _naming(changes.rmdir),
            "remove": _naming(changes.unlink),
            "unlink": _naming(changes.unlink),
            "rename": _naming(changes.rename),
            "replace": _naming(changes.rename),
            "link": _naming(changes.link),
            "symlink": _naming(changes.symlink),
        }
        functions.update(
            (name, self._looking(getattr(os, name), follows))
            for name, follows in _LOOKS.items()
            if hasattr(os, name)
        )
        functions.update(
            (name, self._altering(getattr(os, name), follows))
            for name, follows in _ALTERS.items()
            if hasattr(os, name)
        )
        functions.update(
            ("f" + name, functions[name])
            for name in ("chmod", "chown")
            if hasattr(os, "f" + name)
        )
        return functions

    def open_descriptor(
        self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        """As os.open."""
        new = flags & os.O_CREAT and flags & os.O_EXCL
        follow = not (new or flags & getattr(os, "O_NOFOLLOW", 0))
        place = self._layers.locate(path, follow, dir_fd)
        return self._os_open(self._layers.to_open(place, flags), flags, mode)

    def open_file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """As open."""
        if opener is None and self._is_plain(file, mode):
            return self._open(file, mode, buffering, encoding, errors, newline, closefd)
        file = file if isinstance(file, int) else os.fspath(file)
        with _Mapped(self._mapping, file):
            opener = opener or self._opener
            return self._open(
                file, mode, buffering, encoding, errors, newline, closefd, opener
            )

    def file_class(self) -> Any:
        """As io.FileIO, of which what ``open`` makes are instances too."""
        original: Any = io.FileIO
        functions = self

        class Kind(type):
            def __instancecheck__(cls, instance: object) -> bool:
                return (
                    isinstance(instance, original)
                    if cls is FileIO
                    else type.__instancecheck__(cls, instance)
                )

        class FileIO(original, metaclass=Kind):
            def __init__(
                self,
                file: Any,
                mode: str = "r",
                closefd: bool = True,
                opener: Any = None,
            ) -> None:
                if opener is None and functions._is_plain(file, mode):
                    original.__init__(self, file, mode, closefd)
                    return
                with _Mapped(functions._mapping, file):
                    original.__init__(
                        self, file, mode, closefd, opener or functions._opener
                    )

        FileIO.__module__, FileIO.__qualname__ = "io", "FileIO"
        return FileIO

    def stat(
        self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        """As os.stat."""
        if isinstance(path, int):
            return self._os_stat(path)
        place = self._layers.locate(path, follow_symlinks, dir_fd)
        if place.status is not None and not place.free:
            return place.status
        return self._os_stat(place.real, follow_symlinks=follow_symlinks)

    def _lstat(self, path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        return self.stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def _opener(self, path: Any, flags: int) -> int:
        try:
            return self.open_descriptor(path, flags, 0o666)
        except OSError as problem:
            problem.filename = path
            raise

    def _is_plain(self, file: Any, mode: str) -> bool:
        """Whether the system may open that path as it is."""
        if isinstance(file, int):
            return True
        try:
            place = self._layers.locate(file)
            text = os.fsdecode(file)
        except TypeError:
            return True  # open has better words for it
        except OSError:
            return False
        if not text:
            return True
        if not place.free and not frozenset(mode).isdisjoint("wax+"):
            return False
        if text.startswith("/"):
            return text == place.real
        return self._os_getcwd().rstrip("/") + "/" + text == place.real

    def _listdir(self, path: Any = None) -> list[Any]:
        place = self._folder(path)
        if not place.free and not self._layers.sides(place.path):
            self._os_scandir(place.real).close()  # raises what is wrong
        names = self._layers.names(place)
        return (
            [os.fsencode(name) for name in names] if isinstance(path, bytes) else names
        )

    def _scandir(self, path: Any = None) -> Any:
        place = self._folder(path)
        sides = (
            [place.real]
            if place.free
            else self._layers.sides(place.path) or [place.real]
        )
        shown = (
            None
            if isinstance(path, int)
            else os.fsdecode("." if path is None else path)
        )
        if shown == sides[0] and len(sides) == 1 and not self._layers.is_touched(place):
            return self._os_scandir(path)
        scans = [self._os_scandir(side) for side in sides]
        return Scan(
            self._merged(place, sides, scans, shown, isinstance(path, bytes)), scans
        )

    def _merged(
        self,
        place: Place,
        sides: list[str],
        scans: list[Any],
        shown: str | None,
        encoded: bool,
    ) -> Iterator[Entry]:
        folder = place.path.rstrip("/")
        met = set()
        for number, scan in enumerate(scans):
            side = sides[number]
            users = side == place.path and not place.free
            gone = self._layers.removed_names(place.path) if users else ()
            for entry in scan:
                if entry.name in met or entry.name in gone:
                    continue
                met.add(entry.name)
                yield Entry(entry, shown, folder + "/" + entry.name, self.stat, encoded)

    def _folder(self, path: Any) -> Place:
        if isinstance(path, int):
            path = self._layers.of_descriptor(path)
        return self._layers.locate("." if path is None else path)

    def _chdir(self, path: Any) -> None:
        if isinstance(path, int):
            self._os_chdir(path)
            return
        self._os_chdir(self._layers.to_enter(path))

    def _looking(self, original: Any, follows: bool) -> Callable[..., Any]:
        def look(
            path: Any, *values: Any, dir_fd: int | None = None, **more: Any
        ) -> Any:
            if isinstance(path, int):
                return original(path, *values, **more)
            place = self._layers.locate(
                path, more.get("follow_symlinks", follows), dir_fd
            )
            result = original(place.real, *values, **more)
            return (
                os.fsencode(result)
                if isinstance(path, bytes) and isinstance(result, str)
                else result
            )

        return _naming(look)

    def _altering(self, original: Any, follows: bool) -> Callable[..., Any]:
        def alter(
            path: Any, *values: Any, dir_fd: int | None = None, **more: Any
        ) -> Any:
            at = path
            if isinstance(path, int):
                at = self._users_file(path)
                if at is None:
                    return original(path, *values, **more)
            place = self._layers.locate(
                at, more.get("follow_symlinks", follows), dir_fd
            )
            if place.status is None and not place.free:
                raise error(errno.ENOENT, place.path)
            return original(self._layers.own(place), *values, **more)

        return _naming(alter)

    def _users_file(self, descriptor: int) -> str | None:
        """The path of an open file that is the user's; None of any other."""
        try:
            path = self._layers.real_of_descriptor(descriptor)
        except OSError:
            return None
        return None if self._layers.is_free(path) else path


class _Mapped:
    """Tells the guard that a path is opened by an opener, which goes elsewhere."""

    def __init__(self, mapping: Any, path: Any) -> None:
        self._mapping = mapping
        self._path = path

    def __enter__(self) -> None:
        self._outer = getattr(self._mapping, "path", None)
        self._mapping.path = self._path

    def __exit__(self, *exception: object) -> None:
        self._mapping.path = self._outer


def _naming(function: Callable[..., Any]) -> Callable[..., Any]:
    """Errors name the path that was given."""

    def named(path: Any = None, *values: Any, **more: Any) -> Any:
        try:
            return function(path, *values, **more)
        except OSError as problem:
            problem.filename = path
            raise

    return named
