"""What the server and the process that analyses say to each other: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amp_migrate.core.findings import Finding
from amp_migrate.core.places import Place
from amp_migrate.core.results import Loop
from amp_migrate.run.config import Settings


@dataclass(frozen=True, slots=True)
class Project:
    """A project as the editor has it."""

    settings: Settings
    open: Mapping[str, str | bytes]
    """By path: the text of a file, or the bytes that a notebook would have on disk."""
    fresh: bool = True
    """Other files than the open ones may have changed since the last time."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is to be told of the open files, by their paths; one that cannot be read now is left out."""

    findings: Mapping[str, tuple[Finding, ...]]
    problems: tuple[str, ...] = ()
    """What kept programs from being analysed."""


@dataclass(frozen=True, slots=True)
class Loops:
    """The training loops of the open files, likewise."""

    loops: Mapping[str, tuple[Loop, ...]]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mend:
    """Which findings of a file to mend."""

    path: str
    only: tuple[str, Place] | None = None
    """The code and the place of one; None: all that can be mended safely."""


@dataclass(frozen=True, slots=True)
class Edited:
    """New contents of files, by their paths."""

    files: Mapping[str, tuple[str | bytes, str | bytes]]
    """What stood there, and what is to stand there; bytes of notebooks."""
    reason: str = ""
    """Why there are none."""
