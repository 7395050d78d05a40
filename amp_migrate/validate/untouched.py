"""Whether a run left the user's folder as it was: the net under the overlay."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

# What tools make beside the user's own work; a run may let them make it.
_CACHES = frozenset(
    ".git .hg .svn __pycache__ .mypy_cache .pytest_cache .ruff_cache .ipynb_checkpoints .venv venv"
    " node_modules .tox .nox".split()
)


@dataclass(frozen=True)
class Snapshot:
    """What is in a folder: by relative path, kind, size in bytes and time of change in ns."""

    entries: dict[str, tuple[int, int, int]] = field(repr=False)
    complete: bool  # whether all was looked at, or only the first so many


@dataclass(frozen=True)
class Change:
    """One entry of the user's that is not as it was."""

    path: str  # relative to the folder
    what: str  # "made", "removed" or "changed"


def snapshot(
    folder: Path, *, skipping: tuple[Path, ...] = (), at_most: int = 100_000
) -> Snapshot:
    """Looks at up to ``at_most`` entries, folders near the top first, not following links.

    Left out: ``skipping`` (the scratch folder), version control, caches, virtual environments.
    """
    left_out = {os.path.realpath(path) for path in skipping}
    entries: dict[str, tuple[int, int, int]] = {}
    waiting = [""]
    while waiting:
        later: list[str] = []
        for below in waiting:
            for entry in _scan(folder / below):
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.name in _CACHES or os.path.realpath(entry.path) in left_out:
                    continue
                if len(entries) >= at_most:
                    return Snapshot(entries, complete=False)
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    later.append(path)
                    # Its size and time only say that entries came or went; those are looked at.
                    entries[path] = (stat.S_IFDIR, 0, 0)
                else:
                    entries[path] = (
                        stat.S_IFMT(status.st_mode),
                        status.st_size,
                        status.st_mtime_ns,
                    )
        waiting = later
    return Snapshot(entries, complete=True)


def changes(before: Snapshot, after: Snapshot) -> list[Change]:
    """What differs, by path. Where a snapshot is not complete, only what both looked at is judged."""
    found = []
    for path in sorted({*before.entries, *after.entries}):
        old, new = before.entries.get(path), after.entries.get(path)
        if old == new:
            continue
        if old is None:
            what, known = "made", before.complete
        elif new is None:
            what, known = "removed", after.complete
        else:
            what, known = "changed", True
        if known:
            found.append(Change(path, what))
    return found


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # it may not be read, or is gone
