"""What the processes of a run use, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def resident_memory(group: int) -> int:
    """Resident bytes of all processes of a process group; 0 where the system does not say."""
    if _PROC.is_dir():
        return sum(_resident(path) for path in _members(group))
    try:
        listed = subprocess.run(
            ["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False
        )
    except OSError:
        return 0
    rows = [line.split() for line in listed.stdout.splitlines()]
    return sum(int(row[1]) * 1024 for row in rows if row[:1] == [str(group)])


def most_memory() -> int:
    """Resident bytes that a run may take where nothing is said: three quarters of the machine's."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
        return int(0.75 * pages * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 16 * 2**30


def end(group: int) -> None:
    """Kill all processes of a process group."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    else:
        subprocess.run(
            ["taskkill", "/F", "/T", "/PID", str(group)],
            capture_output=True,
            check=False,
        )


def _members(group: int) -> list[Path]:
    found = []
    for path in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name of the program stands in brackets and may hold anything.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                found.append(path)
    return found


def _resident(path: Path) -> int:
    try:
        pages = int((path / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
