"""What a run found: plain data, told by the reports and written by the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amp_migrate.core.results import Result, SourceError

if TYPE_CHECKING:
    from amp_migrate.sources.document import Source

Progress = Callable[[int, int], None]
"""Called with the number of programs done and the number of programs in all."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file that a run is about: as read, what came of it, and the bytes to write."""

    document: Source
    result: Result
    output: bytes
    program: int = 0
    """The number of its program: the files of one are written together, or none of them."""

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self.output != self.document.data


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be processed."""

    error: SourceError
    traceback: str = ""
    """Of an internal error; empty where the file is to blame."""
    others: tuple[str, ...] = ()
    """Paths of the other files that could not be processed with it: those of one program."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found."""

    migrations: tuple[Migration, ...]
    """In the order of discovery; files that it is not about are not among them."""
    failures: tuple[Failure, ...]
    paths: tuple[str, ...]
    """The files that were looked at."""
    skipped: int = 0
    """How many notebooks were not, for lack of nbformat."""

    @property
    def files(self) -> int:
        """How many files were looked at."""
        return len(self.paths)

    @property
    def results(self) -> tuple[Result, ...]:
        """The result of each migration."""
        return tuple(migration.result for migration in self.migrations)

    @property
    def errors(self) -> tuple[SourceError, ...]:
        """What kept files from being processed."""
        return tuple(failure.error for failure in self.failures)

    @property
    def unread(self) -> frozenset[str]:
        """The paths of the files that were not analysed."""
        return frozenset(
            path for one in self.failures for path in (one.error.path, *one.others)
        )

    @property
    def analysed(self) -> frozenset[str]:
        """The paths of the files that were: what is named and not there is neither."""
        return frozenset(self.paths) - self.unread

    @property
    def changed(self) -> tuple[Migration, ...]:
        """The migrations that have something to write."""
        return tuple(migration for migration in self.migrations if migration.changed)


def merged(reports: Sequence[Report]) -> Report:
    """The reports of several projects as one: the programs of all have numbers of their own."""
    if len(reports) == 1:
        return reports[0]
    migrations: list[Migration] = []
    before = 0
    for report in reports:
        migrations += (
            replace(one, program=before + one.program) for one in report.migrations
        )
        before = 1 + max((one.program for one in migrations), default=-1)
    return Report(
        tuple(migrations),
        tuple(one for report in reports for one in report.failures),
        tuple(path for report in reports for path in report.paths),
        sum(report.skipped for report in reports),
    )
