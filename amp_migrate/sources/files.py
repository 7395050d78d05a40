"""Reading and replacing files, with errors a person can read."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from amp_migrate.core.results import SourceError

PREFIX = ".amp-migrate-"
"""What the names of this program's own files begin with, beside the files that it replaces."""


def exists(path: Path) -> bool:
    """Whether there is such a file; no where one may not even ask, which pathlib raises for."""
    try:
        return path.exists()
    except OSError:
        return False


def read(path: str) -> bytes:
    """The bytes of a file. Raises `SourceError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(path, f"cannot be read: {reason(error)}") from None


def replace(path: str, before: bytes, after: bytes) -> None:
    """Put ``after`` where ``before`` was, wholly or not at all.

    Symbolic links stay links: their target is replaced. Owner (where allowed) and mode bits stay.
    Raises `SourceError` when the file no longer holds ``before``, or cannot be written.
    """
    target = unchanged(path, before)
    try:
        staged = stage(target, after, f"{PREFIX}{secrets.token_hex(8)}")
        try:
            staged.replace(target)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


def unchanged(path: str, before: bytes) -> Path:
    """The file to replace for ``path``, with all links followed.

    Raises `SourceError` when it no longer holds ``before``, or may not be written.
    """
    if read(path) != before:
        raise SourceError(path, "not written: it changed while amp-migrate was at work")
    target = Path(path).resolve()
    if not os.access(target, os.W_OK):
        # Renaming over it would work, but a read-only file says that it wants to be left alone.
        raise SourceError(path, "cannot be written: the file is read-only")
    return target


def stage(target: Path, data: bytes, name: str) -> Path:
    """A new file of that name beside ``target``, on disk, ready to be renamed over it.

    It has the mode bits of ``target``, and its owner where that is allowed. Raises OSError; then
    there is no such file.
    """
    status = target.stat()
    staged = target.with_name(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(staged, flags, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if hasattr(os, "chown"):
            # Before the mode: a change of owner clears the set-user-ID bits.
            with contextlib.suppress(OSError):
                os.chown(staged, status.st_uid, status.st_gid)
        staged.chmod(stat.S_IMODE(status.st_mode))
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


def unwritable(path: str, error: OSError) -> SourceError:
    """The error to raise where ``path`` could not be replaced."""
    return SourceError(path, f"cannot be written: {reason(error)}")


def reason(error: OSError) -> str:
    """What the system says, without numbers and file names."""
    return error.strerror or str(error) or type(error).__name__
