"""Which files a run is about: the named ones, and the programs below the named directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amp_migrate.core.results import SourceError
from amp_migrate.sources.document import NOTEBOOK_SUFFIX
from amp_migrate.sources.extra import readable, unreadable
from amp_migrate.sources.files import exists, reason
from amp_migrate.sources.ignore import (
    Patterns,
    ignore_file,
    is_ignored,
    repository_excludes,
)

ALWAYS_EXCLUDED = frozenset(
    {
        *(".bzr", ".git", ".hg", ".svn"),
        *(".direnv", ".pixi", ".venv", "venv", "site-packages", "__pypackages__"),
        *(".eggs", ".nox", ".tox", "build", "dist", "node_modules"),
        *(".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        "__pycache__",
    }
)
"""Directories that hold nobody's own source; ``exclude = ["!build/"]`` takes one back in."""

_EXCLUDED_SUFFIXES = (".egg", ".egg-info", ".dist-info")


@dataclass(frozen=True, slots=True)
class Filters:
    """The patterns of the user, gitignore-style and relative to ``root``."""

    root: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force_exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to read, in a fixed order, and what could not even be looked at."""

    files: tuple[str, ...]
    errors: tuple[SourceError, ...]
    skipped: int = 0
    """How many notebooks are there beside them, which cannot be read without nbformat."""


@dataclass(slots=True)
class _Search:
    include: Patterns
    exclude: Patterns
    force_exclude: Patterns
    root: str
    files: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Real path -> (path to show, whether it is a link)."""
    errors: list[SourceError] = field(default_factory=list)
    endings: tuple[str, ...] = (".py", NOTEBOOK_SUFFIX)
    notebooks: bool = True
    """Whether they can be read; if not, those in directories are counted and left out."""
    skipped: int = 0

    def add(self, path: str, *, link: bool, real: str | None = None) -> None:
        """Take in a file; ``real``: its path without links, where that is known."""
        real = real or str(Path(path).resolve())
        known = self.files.get(real)
        if known is None or (known[1] and not link):
            self.files[real] = (path, link)

    def name(self, path: str) -> None:
        """Take in a path that the user gave."""
        absolute = lexical(path)
        try:
            mode = Path(path).stat().st_mode
        except OSError as error:
            self.errors.append(SourceError(path, reason(error)))
            return
        if self.force_exclude.covers(absolute):
            return
        if stat.S_ISDIR(mode):
            self.walk(path)
        elif not stat.S_ISREG(mode):
            self.errors.append(SourceError(path, "is neither a file nor a directory"))
        elif not path.endswith(".pyi"):
            try:
                check_kind(path)
            except SourceError as error:
                self.errors.append(error)
            else:
                self.add(path, link=False)

    def walk(self, top: str) -> None:
        start = lexical(top)
        ignore_files = tuple(
            patterns
            for patterns in _ignore_files_above(start, self.root)
            # Whoever names an ignored directory wants what is in it.
            if not patterns.covers(start, directory=True)
        )
        named = self.exclude.covers(start, directory=True)
        pending = [(os.path.normpath(top), start, ignore_files)]
        while pending:
            shown, directory, inherited = pending.pop()
            own = ignore_file(directory)
            rules = (*inherited, own) if own is not None else inherited
            try:
                with os.scandir(directory) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError as error:
                self.errors.append(
                    SourceError(shown, f"cannot be read: {reason(error)}")
                )
                continue
            below = []
            # Asking for each file takes longer than all else here.
            real = Path(directory).resolve()
            for entry in entries:
                path = (
                    entry.name if shown == os.curdir else str(Path(shown, entry.name))
                )
                absolute = entry.path
                # Links to directories are not followed: what is in this project is met anyway, and
                # what is not is none of this run's business. So there are no loops, either.
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_directory and not self._is_candidate(entry):
                    continue
                if self.leaves_out(
                    absolute, rules, directory=is_directory, obey_exclude=not named
                ):
                    continue
                if is_directory:
                    below.append((path, absolute, rules))
                elif self.include and not self.include.covers(absolute):
                    continue
                elif not self.notebooks and entry.name.endswith(NOTEBOOK_SUFFIX):
                    self.skipped += 1
                elif entry.is_symlink():
                    self.add(path, link=True)
                else:
                    self.add(path, link=False, real=str(real / entry.name))
            pending += reversed(below)

    def _is_candidate(self, entry: os.DirEntry[str]) -> bool:
        if not entry.name.endswith(self.endings):
            return False
        try:
            if not entry.is_file():
                return False
        except OSError:
            return False
        if not entry.is_symlink():
            return True
        # What a link brings in from outside would be written outside.
        return Path(entry.path).resolve().is_relative_to(Path(self.root).resolve())

    def leaves_out(
        self,
        absolute: str,
        rules: Sequence[Patterns],
        *,
        directory: bool,
        obey_exclude: bool = True,
    ) -> bool:
        """Whether the patterns of the user, or ignore files, leave out an entry of a directory."""
        if self.force_exclude.decide(absolute, directory=directory) is True:
            return True
        verdict = self.exclude.decide(absolute, directory=directory)
        if verdict is False or (verdict is True and obey_exclude):
            return verdict
        if directory and _is_always_excluded(absolute):
            return True
        return is_ignored(absolute, rules, directory=directory)


def discover(paths: Sequence[str], filters: Filters) -> Found:
    """The files to read for ``paths``, each once, however often and however spelled it is named.

    Raises `PatternError` for a pattern in ``filters`` that means nothing.
    """
    search = _search(filters)
    for path in paths:
        search.name(path)
    files = tuple(path for path, _ in search.files.values())
    return Found(files, tuple(search.errors), search.skipped)


def _search(filters: Filters) -> _Search:
    return _Search(
        include=Patterns(filters.root, map(_without_dot, filters.include)),
        exclude=Patterns(filters.root, map(_without_dot, filters.exclude)),
        force_exclude=_force_exclude(filters),
        root=filters.root,
        notebooks=readable(),
    )


def every_file(root: str, endings: tuple[str, ...]) -> list[str]:
    """All files of a project with some endings, whatever the user's patterns say, readable or not."""
    nothing = Patterns(root, ())
    search = _Search(nothing, nothing, nothing, root, endings=endings)
    search.name(root)
    return [path for path, _ in search.files.values()]


def check_kind(path: str) -> None:
    """Raise `SourceError` for a file that is named like something that cannot be read here."""
    if path.endswith(NOTEBOOK_SUFFIX) and not readable():
        raise unreadable(path)


def is_force_excluded(path: str, filters: Filters) -> bool:
    """Whether ``path`` is left out even when it is named."""
    return _force_exclude(filters).covers(lexical(path))


def is_left_out(path: str, filters: Filters) -> bool:
    """Whether a search of the whole project passes a file by, be it there or not."""
    search = _search(filters)
    absolute, root = lexical(path), lexical(filters.root)
    if search.include and not search.include.covers(absolute):
        return True
    rules = _ignore_files_above(root, root)
    inside = [one for one in Path(absolute).parents if one.is_relative_to(root)]
    for directory in reversed(inside):
        if str(directory) != root and search.leaves_out(
            str(directory), rules, directory=True
        ):
            return True
        own = ignore_file(str(directory))
        rules += [] if own is None else [own]
    return search.leaves_out(absolute, rules, directory=False)


def _force_exclude(filters: Filters) -> Patterns:
    return Patterns(filters.root, map(_without_dot, filters.force_exclude))


def lexical(path: str) -> str:
    """``path`` made absolute without following links, so that patterns see what the user sees."""
    return os.path.normpath(Path(path).absolute())


def git_root(path: str) -> str | None:
    """The nearest directory at or above ``path`` that is the root of a git work tree."""
    return next((str(one) for one in upwards(path) if exists(one / ".git")), None)


def upwards(path: str) -> Iterator[Path]:
    """``path`` and the directories above it."""
    yield Path(path)
    yield from Path(path).parents


def _ignore_files_above(start: str, root: str) -> list[Patterns]:
    """Those that speak about ``start`` from above it, from the top down."""
    top = git_root(start) or root
    found = []
    for directory in map(str, upwards(start)):
        if directory != start:
            found.append(ignore_file(directory))
        if directory == top:
            found.append(repository_excludes(directory))
            break
    return [patterns for patterns in reversed(found) if patterns is not None]


def _is_always_excluded(directory: str) -> bool:
    path = Path(directory)
    return (
        path.name in ALWAYS_EXCLUDED
        or path.name.endswith(_EXCLUDED_SUFFIXES)
        or exists(path / "pyvenv.cfg")
    )


def _without_dot(pattern: str) -> str:
    # "./train" is how a shell spells what to git is "/train".
    return pattern[1:] if pattern.startswith("./") else pattern
