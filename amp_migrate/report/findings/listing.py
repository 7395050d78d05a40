"""The findings of a run with the names that they go by outside of it, for every format to print."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from amp_migrate.catalogue.rules import LintRule, lint_rule
from amp_migrate.core.findings import Finding, Severity
from amp_migrate.core.results import SourceError
from amp_migrate.run.config import Settings
from amp_migrate.run.config_lint import Showing
from amp_migrate.run.outcome import Migration
from amp_migrate.sources.discovery import lexical

_USUAL = Showing()


@dataclass(frozen=True)
class Told:
    """One finding, and what identifies it."""

    finding: Finding
    file: str
    """As the user named it; without the cell of a notebook."""
    relative: str
    """Relative to the project root."""
    fingerprint: str
    """The same as long as the code that is judged is, wherever its lines move."""
    line: int
    """In the file; of a notebook, the line of JSON that holds the source."""
    cell: int = 0
    """Of a notebook, counted from 1; 0 in other files."""
    project: int = 0
    """The number of its project among those of the listing."""
    showing: Showing = _USUAL
    """What its project has configured."""

    @property
    def where(self) -> str:
        """``cell 3, line 2: `` in a notebook, whose lines are no lines of the file."""
        place = self.finding.place
        return f"cell {self.cell}, line {place.line}: " if self.cell else ""

    @property
    def fails(self) -> bool:
        """Whether it fails the run."""
        least = self.showing.fail_on
        return least is not None and self.finding.severity.rank <= least.rank

    @property
    def is_shown(self) -> bool:
        """Whether people are shown it."""
        return self.finding.severity.rank <= self.showing.severity.rank

    @cached_property
    def rule(self) -> LintRule:
        """What the catalogue says."""
        return lint_rule(self.finding.code)


@dataclass(frozen=True)
class Part:
    """A project of a listing."""

    root: Path
    files: int
    """How many were looked at."""
    errors: int


@dataclass(frozen=True)
class Listing:
    """What there is to tell."""

    told: tuple[Told, ...]
    errors: tuple[SourceError, ...] = ()
    files: tuple[str, ...] = ()
    """All that were looked at."""
    unread: frozenset[str] = frozenset()
    """Those that were not analysed."""
    parts: tuple[Part, ...] = ()
    """The projects, in order."""
    known: int = 0
    """How many findings are not among these, since the baseline has them."""
    gone: int = 0
    """How many entries of the baseline are found no more."""
    fixed: int = 0
    """How many findings were mended."""
    silenced: int = 0
    """How many findings comments have silenced."""
    counts: Counter[Severity] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.counts.update(one.finding.severity for one in self.told)

    @property
    def failed(self) -> bool:
        """Whether one is among these."""
        return any(one.fails for one in self.told)


def together(listings: Sequence[Listing]) -> Listing:
    """Those of several projects as one."""
    return Listing(
        told=tuple(
            replace(one, project=number)
            for number, listing in enumerate(listings)
            for one in listing.told
        ),
        errors=tuple(one for listing in listings for one in listing.errors),
        files=tuple(file for listing in listings for file in listing.files),
        unread=frozenset().union(*(listing.unread for listing in listings)),
        parts=tuple(part for listing in listings for part in listing.parts),
        known=sum(listing.known for listing in listings),
        gone=sum(listing.gone for listing in listings),
        fixed=sum(listing.fixed for listing in listings),
        silenced=sum(listing.silenced for listing in listings),
    )


def told(migrations: Iterable[Migration], settings: Settings) -> Iterator[Told]:
    """All findings of a project, in order."""
    for migration in migrations:
        path = migration.result.path
        relative = relative_to(settings.root, path)
        seen: Counter[tuple[str, ...]] = Counter()
        for finding in migration.result.findings:
            identity = (
                relative,
                finding.code,
                finding.symbol,
                " ".join(finding.expression.split()),
            )
            # Of findings that say the same, the order tells them apart.
            print_ = _digest(*identity, str(seen[identity]))
            seen[identity] += 1
            place = finding.place
            cell = place.cell_of(path)
            line = migration.document.line_in_file(cell, place.line)
            yield Told(
                finding,
                path,
                relative,
                print_,
                line,
                cell,
                showing=settings.showing,
            )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def relative_to(folder: Path, path: str) -> str:
    """What a file is called from a folder; forward slashes."""
    absolute = lexical(path)
    try:
        return Path(os.path.relpath(absolute, folder)).as_posix()
    except ValueError:  # another drive
        return Path(absolute).as_posix()
