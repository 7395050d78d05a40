"""The small projects of `fixtures/projects/`, for the tests that read and those that run them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from fixtures_support import FIXTURES
from trees import Tree, files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECTS = sorted(path.parent.name for path in FIXTURES.glob("projects/*/project.toml"))

every_project = pytest.mark.parametrize("name", PROJECTS)


@dataclass(frozen=True)
class Project:
    """A project as its author left it, how it is started, and what the tool makes of it."""

    name: str

    @property
    def folder(self) -> Path:
        return FIXTURES / "projects" / self.name

    @cached_property
    def about(self) -> dict[str, object]:
        """What `project.toml` says."""
        return tomllib.loads((self.folder / "project.toml").read_text(encoding="utf-8"))

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """How it is run."""
        first = (self.about["entry"], *self.about.get("args", []))
        return (first, *map(tuple, self.about.get("more", [])))

    @property
    def left(self) -> list[tuple[str, str]]:
        """The loops that have to stay as they are: (file, code)."""
        return sorted((path, code) for path, code in self.about.get("left", []))

    @property
    def reported(self) -> set[str]:
        """The rules that the monitor rightly finds broken, where the migration says so too."""
        return set(self.about.get("reported", []))

    @property
    def plain(self) -> Path:
        return self.folder / "plain"

    @property
    def migrated(self) -> Path:
        """Where the golden tree is, if there is one: generated, then read by eye."""
        return self.folder / "migrated"

    @property
    def golden(self) -> Path:
        """What the tool has to make of it; where nothing is to be done, what it was."""
        return self.migrated if self.migrated.is_dir() else self.plain

    @property
    def settled(self) -> bool:
        """Whether it is known what has to become of it."""
        return self.migrated.is_dir() or bool(self.left)

    def before(self) -> Tree:
        """The project to run, before its migration."""
        return Tree(self.plain, self.commands)

    def after(self) -> Tree:
        """The project to run, after its migration."""
        return Tree(self.golden, self.commands, partly=bool(self.left))


def settled(update: bool) -> list[str]:
    """The projects to look at: those with a golden tree, or all where it is to be made."""
    return [name for name in PROJECTS if update or Project(name).settled]


def migrated() -> list[str]:
    """The projects in which something changes."""
    return [name for name in PROJECTS if Project(name).migrated.is_dir()]


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a tree, by their paths in it."""
    return {path: (folder / path).read_bytes() for path in files(folder)}
