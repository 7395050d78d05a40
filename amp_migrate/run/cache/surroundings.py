"""What is read from outside of a program when it is rewritten: how black is configured there, and rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from amp_migrate.program.glance import digest, digest_of
from amp_migrate.sources.files import exists

_READ = ("pyproject.toml", ".pre-commit-config.yaml")
_MARKERS = (".git", ".hg")
"""Where those that look for these files stop, if they are there."""


class Surroundings:
    """The files around the folders of a run, each looked at once."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}
        self._of_user = _of_user()

    def of(self, folders: Iterable[Path]) -> list[str]:
        """Digests of what `edit.formatting` may read for files in some folders."""
        found = []
        for folder in sorted(folders):
            # The one follows links, the other does not.
            found += [self._above(folder), self._above(folder.resolve())]
        return [*found, self._of_user]

    def _above(self, folder: Path) -> str:
        if folder not in self._known:
            above = "" if folder.parent == folder else self._above(folder.parent)
            here = [
                *(content(folder / name) for name in _READ),
                *(exists(folder / name) for name in _MARKERS),
            ]
            # Folders without any on the way decide nothing: a project may lie anywhere.
            self._known[folder] = digest_of([above, here]) if any(here) else above
        return self._known[folder]


def _of_user() -> str:
    """Black's own configuration of this user."""
    try:
        if sys.platform == "win32":
            return content(Path.home() / ".black")
        folder = os.environ.get("XDG_CONFIG_HOME", "~/.config")
        return content(Path(folder).expanduser() / "black")
    except RuntimeError:  # nobody's home
        return ""


def content(path: Path) -> str:
    """The digest of a file; empty where it cannot be read."""
    try:
        return digest(path.read_bytes())
    except OSError:
        return ""
