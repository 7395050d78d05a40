"""The findings of a run with the names that they go by outside of it, for every format to print."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from amp_migrate.catalogue.rules import LintRule, lint_rule
from amp_migrate.core.findings import Finding, Severity
from amp_migrate.core.results import SourceError
from amp_migrate.run.engine import Migration
from amp_migrate.sources.discovery import lexical


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

    @property
    def where(self) -> str:
        """``cell 3, line 2: `` in a notebook, whose lines are no lines of the file."""
        place = self.finding.place
        return f"cell {self.cell}, line {place.line}: " if self.cell else ""

    @cached_property
    def rule(self) -> LintRule:
        """What the catalogue says."""
        return lint_rule(self.finding.code)


@dataclass(frozen=True)
class Listing:
    """What there is to tell."""

    told: tuple[Told, ...]
    errors: tuple[SourceError, ...] = ()
    files: tuple[str, ...] = ()
    """All that were looked at."""
    unread: frozenset[str] = frozenset()
    """Those that were not analysed."""
    fail_on: Severity | None = None
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

    def fails(self, severity: Severity) -> bool:
        """Whether a finding of such severity fails the run."""
        return self.fail_on is not None and severity.rank <= self.fail_on.rank

    @property
    def failed(self) -> bool:
        """Whether one is among these."""
        return any(self.fails(severity) for severity in self.counts)


def told(migrations: Iterable[Migration], root: Path) -> Iterator[Told]:
    """All findings, in order; ``root``: the project's."""
    for migration in migrations:
        path = migration.result.path
        relative = relative_to(root, path)
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
            yield Told(finding, path, relative, print_, line, cell)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def relative_to(folder: Path, path: str) -> str:
    """What a file is called from a folder; forward slashes."""
    absolute = lexical(path)
    try:
        return Path(os.path.relpath(absolute, folder)).as_posix()
    except ValueError:  # another drive
        return Path(absolute).as_posix()
