"""A file that is written at the end of long work; whether it can be is found out at its start."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from amp_migrate.core.results import SourceError
from amp_migrate.sources import files

_PROGRAMS = frozenset({".py", ".pyi", ".ipynb"})
"""These are named by mistake, where the file was left out."""


class Destination:
    """Where a report goes."""

    def __init__(self, path: str) -> None:
        """Raises `SourceError` where such a file can be neither made nor replaced, or is a program."""
        self.path = path
        if Path(path).suffix in _PROGRAMS:
            raise SourceError(path, "is a program, and not replaced by a report")
        try:
            self._try()
        except OSError as error:
            raise files.unwritable(path, error) from None

    def write(self, text: str) -> None:
        """Put ``text`` there, wholly or not at all. Raises `SourceError`."""
        data = text.encode("utf-8")
        target = Path(self.path).resolve()
        try:
            if target.is_file():
                files.replace(self.path, files.read(self.path), data)
            elif target.exists():
                target.write_bytes(data)  # a device or a pipe
            else:
                _create(target, data)
        except OSError as error:
            raise files.unwritable(self.path, error) from None

    def _try(self) -> None:
        target = Path(self.path).resolve()
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists():
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if not target.is_file():
                return
        # A folder that may be written to can still be on a file system that may not.
        _staged(target, b"").unlink()


def _create(target: Path, data: bytes) -> None:
    staged = _staged(target, data)
    try:
        staged.replace(target)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


def _staged(target: Path, data: bytes) -> Path:
    """A new file beside ``target``, with the modes that new files get."""
    staged = target.with_name(f"{files.PREFIX}{secrets.token_hex(8)}")
    try:
        with staged.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    return staged
