"""Linux itself keeps this process and its children from writing outside some folders (Landlock).

For what Python does not hear of: libraries in C, and programs that a script starts. They fail as in a
folder that they may not write. Facts: the kernel's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Sequence

SYSTEM = ("/dev", "/proc")
"""Where no file is kept. CUDA, among others, writes to both."""

# System calls have had one number on all architectures since before Landlock came.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVILEGES = 38  # of prctl

_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# Removing and making entries, of which REFER, moving them to another folder, came with version 2.
_ENTRIES = sum(1 << bit for bit in range(4, 14))


def confine(writable: Sequence[str]) -> bool:
    """From now on nothing can be written but below these paths and `SYSTEM`; whether the kernel does it.

    It holds for this thread, for the threads and processes it starts, and for good; so call it early,
    and in the first process only. Reading is not restricted, nor is changing modes and times. Programs
    with set-uid no longer get their rights (on a machine just started, that keeps CUDA from making its
    device files).
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 2:
        return (
            False  # files could not be moved from folder to folder, not even in scratch
        )
    writes = _WRITE_FILE | _ENTRIES | (_TRUNCATE if version > 2 else 0)
    handled = struct.pack("=Q", writes)
    ruleset = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if ruleset < 0:
        return False
    try:
        for path in (*writable, *SYSTEM):
            _allow(libc, ruleset, path, writes)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return int(libc.syscall(_RESTRICT_SELF, ruleset, 0)) == 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, writes: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return  # nothing there to write
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            writes &= _WRITE_FILE | _TRUNCATE
        libc.syscall(
            _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", writes, descriptor), 0
        )
    finally:
        os.close(descriptor)
