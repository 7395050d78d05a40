"""What os.scandir gives of a folder whose entries lie in two folders on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any


class Entry:
    """As os.DirEntry, of an entry that lies elsewhere than it seems."""

    __slots__ = ("_entry", "_full", "_look", "name", "path")

    def __init__(
        self,
        entry: Any,
        shown: str | None,
        full: str,
        look: Callable[..., Any],
        encoded: bool,
    ) -> None:
        """``shown``: the folder as it was named; ``full``: the path as the script sees it."""
        path = entry.name if shown is None else os.path.join(shown, entry.name)
        self._entry = entry
        self._full = full
        self._look = look
        self.name: Any = os.fsencode(entry.name) if encoded else entry.name
        self.path: Any = os.fsencode(path) if encoded else path

    def inode(self) -> int:
        return self._entry.inode()  # type: ignore[no-any-return]

    def is_symlink(self) -> bool:
        return self._entry.is_symlink()  # type: ignore[no-any-return]

    def is_junction(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self._entry.is_symlink():
            return self._leads_to(stat.S_ISDIR)
        return self._entry.is_dir(follow_symlinks=False)  # type: ignore[no-any-return]

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self._entry.is_symlink():
            return self._leads_to(stat.S_ISREG)
        return self._entry.is_file(follow_symlinks=False)  # type: ignore[no-any-return]

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if follow_symlinks and self._entry.is_symlink():
            return self._look(self._full)  # type: ignore[no-any-return]
        return self._entry.stat(follow_symlinks=False)  # type: ignore[no-any-return]

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def _leads_to(self, kind: Callable[[int], bool]) -> bool:
        try:
            return kind(self._look(self._full).st_mode)
        except FileNotFoundError:
            return False


class Scan:
    """An iterator that is closed with what it reads from, as that of os.scandir."""

    def __init__(self, entries: Iterator[Entry], sources: list[Any]) -> None:
        self._entries = entries
        self._sources = sources

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self._entries = iter(())
