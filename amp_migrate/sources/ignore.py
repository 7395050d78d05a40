"""gitignore-style patterns: from ``.gitignore`` files, configuration and command line.

The patterns are `pathspec`'s; which one decides is settled here, as git does it: the last pattern
that matches, in the deepest ignore file that has one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec.pattern import Pattern


class PatternError(ValueError):
    """A pattern that means nothing."""


class Patterns:
    """An ordered list of patterns, relative to ``base``."""

    def __init__(
        self, base: str, lines: Iterable[str], *, lenient: bool = False
    ) -> None:
        self.base = base
        self._patterns: list[Pattern] = []
        for line in lines:
            try:
                self._patterns += _compile(line)
            except ValueError:
                if not lenient:
                    raise PatternError(
                        f"{line!r} is not a gitignore-style pattern"
                    ) from None
        self._patterns.reverse()

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def decide(self, path: str, *, directory: bool = False) -> bool | None:
        """Whether the last pattern that matches takes ``path`` (absolute) in; None: none does."""
        relative = _relative(path, self.base)
        if relative is None or not self._patterns:
            return None
        if directory:
            relative += "/"
        for pattern in self._patterns:
            if pattern.match_file(relative):
                return pattern.include
        return None

    def covers(self, path: str, *, directory: bool = False) -> bool:
        """Whether ``path`` or a directory on the way to it is taken in."""
        if self.decide(path, directory=directory) is True:
            return True
        parents = Path(path).parents
        return any(
            self.decide(str(parent), directory=True) is True for parent in parents
        )


def _compile(line: str) -> list[Pattern]:
    from pathspec import GitIgnoreSpec

    stripped = line.rstrip("\n")
    if stripped.endswith("/**"):
        # To git, "data/**" is what is inside data, not data itself; pathspec takes both.
        stripped += "/*"
    return [
        one
        for one in GitIgnoreSpec.from_lines([stripped]).patterns
        if one.include is not None
    ]


def _relative(path: str, base: str) -> str | None:
    prefix = base if base.endswith(os.sep) else base + os.sep
    if not path.startswith(prefix):
        return None
    return path[len(prefix) :].replace(os.sep, "/")


def ignore_file(directory: str) -> Patterns | None:
    """The patterns of the ``.gitignore`` in ``directory``, if it has one."""
    return _patterns_in(Path(directory, ".gitignore"), directory)


def repository_excludes(root: str) -> Patterns | None:
    """The patterns of ``.git/info/exclude``, which belong to one clone only."""
    return _patterns_in(Path(root, ".git", "info", "exclude"), root)


def _patterns_in(path: Path, base: str) -> Patterns | None:
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return (
        Patterns(base, text.removeprefix("\ufeff").splitlines(), lenient=True) or None
    )


def is_ignored(path: str, files: Sequence[Patterns], *, directory: bool) -> bool:
    """Whether ignore files, given from the top down, leave ``path`` out."""
    for patterns in reversed(files):
        verdict = patterns.decide(path, directory=directory)
        if verdict is not None:
            return verdict
    return False
