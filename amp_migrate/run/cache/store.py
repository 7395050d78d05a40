"""A folder of entries by name: written as a whole, read only where they are whole, bounded in size.

Nothing here fails a run: what cannot be read is not there, what cannot be written is not kept. Several
runs may use a folder at once: an entry is renamed to its place, and who prunes takes none that is new.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_migrate.program.glance import digest

LIMIT = 256 * 2**20
"""Bytes that entries may take, where nothing else is said."""
_ENTRIES = "entries"
_SUFFIX = ".entry"
_HEAD = b"amp-migrate cache 1 "
_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# This folder is amp-migrate's cache, and may be deleted at any time.
# See https://bford.info/cachedir/
"""
_SIZE = "size"
"""A file with the bytes of all entries: an estimate, since several runs may write at once."""
_DAY = 24 * 60 * 60
_ABANDONED = 60 * 60
"""Seconds after which what a run that was killed has half written is nobody's."""
_KEPT = 0.8
"""How much of what it may hold is left in a folder that was too full."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a folder holds."""

    entries: int
    bytes: int


def folder(named: str | None) -> Path:
    """Where the entries lie: in the folder that is named, or in the user's cache folder."""
    if named:
        return Path(named)
    # Imported here: whoever names a folder does without it.
    from platformdirs import user_cache_path

    return user_cache_path("amp-migrate", appauthor=False)


class Store:
    """The entries in a folder, which need not exist."""

    def __init__(self, folder: Path, limit: int) -> None:
        """``limit``: the most bytes that stay there after a run."""
        self.folder = folder
        self.limit = limit
        self._written = 0
        self._is_writable: bool | None = None
        self._is_trusted: bool | None = None

    def read(self, name: str) -> Any:
        """The data of an entry; None where there is none that is whole."""
        if not self._trusted():
            return None
        path = self._path(name)
        try:
            with path.open("rb") as file:
                head, body = file.readline(), file.read()
                old = os.fstat(file.fileno()).st_mtime < time.time() - _DAY
            if head != _head(name, body):
                return None
            data = json.loads(body)
        except (OSError, ValueError, RecursionError):
            return None
        if old:
            # What was used last stays longest.
            with contextlib.suppress(OSError):
                os.utime(path)
        return data

    def write(self, name: str, data: Any) -> None:
        """Keep an entry, if that is possible."""
        if not self._ready():
            return
        path = self._path(name)
        body = json.dumps(data, separators=(",", ":")).encode()
        staged = path.with_name(f"{secrets.token_hex(8)}.staged")
        try:
            path.parent.mkdir(exist_ok=True)
            try:
                staged.write_bytes(_head(name, body) + body)
                staged.replace(path)
            except BaseException:
                staged.unlink(missing_ok=True)
                raise
        except OSError:
            # A full disk, or one that may not be written: it will be the same for the next entry.
            self._is_writable = False
        else:
            self._written += len(body)

    def close(self) -> None:
        """Once a run has written all: prune where that was too much."""
        if not self._written or not self._is_writable:
            return
        size = self.folder / _SIZE
        try:
            known = int(size.read_text())
            fresh = time.time() - size.stat().st_mtime < _DAY
        except (OSError, ValueError):
            known, fresh = 0, False
        total = known + self._written
        if total > self.limit or not fresh:
            self.prune()
        else:
            status = size.stat()
            self._note(total)
            with contextlib.suppress(OSError):
                # The day counts from when all were last looked at.
                os.utime(size, (status.st_atime, status.st_mtime))
        self._written = 0

    def prune(self) -> None:
        """Take out what was not used for the longest time, as long as there is too much."""
        now = time.time()
        entries = []
        for path, status in self._all():
            if path.suffix == _SUFFIX:
                entries.append((status.st_mtime, status.st_size, path))
            elif status.st_mtime < now - _ABANDONED:
                _remove(path)
        total = sum(size for _, size, _ in entries)
        if total > self.limit:
            for _, size, path in sorted(entries):
                if total <= self.limit * _KEPT:
                    break
                _remove(path)
                total -= size
        self._note(total)

    def clear(self) -> Usage:
        """Take out everything; answers with what that was."""
        found = self.usage()
        for path, _ in self._all():
            _remove(path)
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()
        _remove(self.folder / _SIZE)
        return found

    def usage(self) -> Usage:
        """What there is."""
        sizes = [one.st_size for path, one in self._all() if path.suffix == _SUFFIX]
        return Usage(len(sizes), sum(sizes))

    def _path(self, name: str) -> Path:
        return self.folder / _ENTRIES / name[:2] / f"{name[2:]}{_SUFFIX}"

    def _folders(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return [one for one in (self.folder / _ENTRIES).iterdir() if one.is_dir()]
        return []

    def _all(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for path in list(folder.iterdir()):
                    with contextlib.suppress(OSError):
                        yield path, path.lstat()

    def _note(self, total: int) -> None:
        with contextlib.suppress(OSError):
            (self.folder / _SIZE).write_text(str(total))

    def _trusted(self) -> bool:
        """Whether nobody else can put anything here: what is read decides what is written to files."""
        if self._is_trusted is None:
            try:
                mode = self.folder.stat().st_mode
                self._is_trusted = os.name == "nt" or not mode & stat.S_IWOTH
            except OSError:
                return False
        return self._is_trusted

    def _ready(self) -> bool:
        """Whether something can be written."""
        if self._is_writable is None:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self.folder / _ENTRIES).mkdir(exist_ok=True)
                for name, text in (("CACHEDIR.TAG", _TAG), (".gitignore", "*\n")):
                    if not (self.folder / name).exists():
                        (self.folder / name).write_text(text)
                self._is_writable = self._trusted()
            except OSError:
                self._is_writable = False
        return self._is_writable


def _head(name: str, body: bytes) -> bytes:
    return _HEAD + f"{name} {digest(body)}\n".encode()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
