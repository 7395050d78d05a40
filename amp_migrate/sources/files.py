"""Reading and replacing files, with errors a person can read."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from amp_migrate.results import SourceError


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
    target = Path(path).resolve()
    if read(path) != before:
        raise SourceError(path, "not written: it changed while amp-migrate was at work")
    if not os.access(target, os.W_OK):
        # Renaming over it would work, but a read-only file says that it wants to be left alone.
        raise SourceError(path, "cannot be written: the file is read-only")
    try:
        _replace(target, after)
    except OSError as error:
        raise SourceError(path, f"cannot be written: {reason(error)}") from None


def _replace(target: Path, data: bytes) -> None:
    status = target.stat()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".amp-migrate-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if hasattr(os, "chown"):
            # Before the mode: a change of owner clears the set-user-ID bits.
            with contextlib.suppress(OSError):
                os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(stat.S_IMODE(status.st_mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def reason(error: OSError) -> str:
    """What the system says, without numbers and file names."""
    return error.strerror or str(error) or type(error).__name__
