"""What a migration says about one file: plain data that every layer and every caller shares.

Nothing here knows how a result was reached, so that the command line, the API, the LibCST codemod
and the reports can all speak of it in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from amp_migrate.core.findings import Finding
from amp_migrate.core.places import (
    Place as Place,
)  # results are told of by their places


class Outcome(str, Enum):
    """What became of one training loop."""

    MIGRATED = "migrated"
    MODERNIZED = "modernized"
    LEFT_ALONE = "left alone"
    ALREADY = "under AMP already"
    """Nothing to do: somebody migrated it before. Its diagnostic says so, for those who ask."""
    OFF = "off"
    """Marked ``# amp: off``: left alone without a word."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Why one training loop was left byte for byte as it was."""

    code: str
    """A code of the rule catalogue, ``AMP0xx``."""
    place: Place
    """The ``backward()`` of the loop."""
    message: str
    """One line, without the code."""
    blocker: Place | None = None
    """The line that blocked the migration, where that is not the place itself."""
    by_hand: tuple[str, ...] = ()
    """The few lines a person would write instead."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One training loop: the innermost loop (or the function) around one or more ``backward()``."""

    place: Place
    function: str
    """Qualified name of the function that holds it; ``<module>`` for module level."""
    outcome: Outcome
    diagnostic: Diagnostic | None = None
    group: int = 0
    """The same for the loops of a program that are migrated together, or not at all."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a migration that was made leaves to be done by hand."""

    place: Place
    message: str


@dataclass(frozen=True, slots=True)
class OldUse:
    """One use of an older AMP interface: an import with all that it is used for, or one mention."""

    place: Place
    outcome: Outcome
    diagnostic: Diagnostic | None = None


@dataclass(frozen=True, slots=True)
class Unaligned:
    """Sizes of layers that lint would warn of."""

    sizes: int = 0
    unit: int = 8
    """What they should be a multiple of."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one source text."""

    path: str
    source: str
    output: str
    """Equal to ``source`` where nothing was to be done."""
    loops: tuple[Loop, ...] = ()
    plan: tuple[str, ...] = field(default=())
    """What ``--explain-plan`` prints for this file, one line an entry."""
    notes: tuple[Note, ...] = ()
    """What is left to be done by hand for the loops of this file, wherever that is."""
    old_uses: tuple[OldUse, ...] = ()
    """Of a file that is modernized, which has no ``loops``."""
    findings: tuple[Finding, ...] = ()
    """Of a file that is linted, in source order: what is left after ``output`` is written."""
    unaligned: Unaligned = Unaligned()
    """Of a program that is migrated: those of all its given files, told with the first of them."""
    fixed: tuple[Finding, ...] = ()
    """What ``output`` mends."""
    silenced: tuple[Finding, ...] = ()
    """What comments in a file that is linted keep quiet."""

    @property
    def changed(self) -> bool:
        """Whether the output differs from the source."""
        return self.output != self.source

    @property
    def units(self) -> tuple[Loop | OldUse, ...]:
        """What was looked at."""
        return (*self.loops, *self.old_uses)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """One per loop, or older use, left alone, in source order."""
        return tuple(one.diagnostic for one in self.units if one.diagnostic is not None)


class SourceError(Exception):
    """A file that cannot be processed (unreadable, not valid Python, ...): one line, no traceback.

    ``line`` counts from 1; 0 where no line is to blame.
    """

    def __init__(self, path: str, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional args, which here are not the constructor's.
        return (SourceError, (self.path, self.message, self.line, self.column))
