"""The disk itself, below the overlay."""

from __future__ import annotations

import os
import stat

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Real:
    """os as it was before anything was replaced in it."""

    open = staticmethod(os.open)
    lstat = staticmethod(os.lstat)
    stat = staticmethod(os.stat)
    listdir = staticmethod(os.listdir)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    unlink = staticmethod(os.unlink)
    rename = staticmethod(os.replace)
    link = staticmethod(os.link)
    symlink = staticmethod(os.symlink)
    readlink = staticmethod(os.readlink)
    chmod = staticmethod(os.chmod)
    utime = staticmethod(os.utime)
    getcwd = staticmethod(os.getcwd)


def writes(flags: int) -> bool:
    """Whether ``os.open`` with these flags may change a file."""
    return bool(flags & _WRITES)


def lstat(path: str) -> os.stat_result | None:
    """What is at a path; None of nothing, and of what cannot be looked at."""
    try:
        return Real.lstat(path)
    except (OSError, ValueError):
        return None


def is_folder(status: os.stat_result | None) -> bool:
    """Whether that is the status of a folder."""
    return status is not None and stat.S_ISDIR(status.st_mode)


def error(number: int, path: str) -> OSError:
    """The system's error of that number."""
    return OSError(number, os.strerror(number), path)


def write_copy(source: str | None, target: str) -> None:
    """Copies a file's bytes; of no file, writes an empty one."""
    made = Real.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if source is None:
            return
        given = Real.open(source, os.O_RDONLY)
        try:
            while True:
                block = os.read(given, 1 << 22)
                if not block:
                    return
                while block:
                    block = block[os.write(made, block) :]
        finally:
            os.close(given)
    finally:
        os.close(made)
