"""What `amp-migrate lint` says about one place: plain data that checks make and reports print."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from amp_migrate.core.places import Place


class Severity(str, Enum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    """Training raises, or is wrong."""
    WARNING = "warning"
    """Training is slower than it has to be, or loses something, and this is known to matter."""
    INFO = "info"
    """True, but too small to matter, a matter of the data, or to be measured first."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Confidence(str, Enum):
    """How sure it is that a size is what a finding says."""

    CERTAIN = "certain"
    """Written there, or the only value that can arrive."""
    DEFAULT = "default"
    """The value where nobody says otherwise: a parameter's, an option's, a configuration's."""
    CANDIDATE = "candidate"
    """One of several values that arrive."""


@dataclass(frozen=True, slots=True)
class Step:
    """One link of the chain that led to a number: ``hidden = args.hidden (default 1500, train.py:31)``."""

    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found."""

    code: str
    """A code of the rule catalogue, such as ``TCU101``."""
    severity: Severity
    place: Place
    message: str
    """One line, without the code and without a full stop."""
    symbol: str = ""
    """The function or class that it stands in, ``Model.__init__``; empty at the top level."""
    expression: str = ""
    """The source of what is judged: with path, code and symbol it identifies a finding while lines move."""
    chain: tuple[Step, ...] = ()
    """Where the number comes from, the origin first."""
    confidence: Confidence = Confidence.CERTAIN
    data: tuple[tuple[str, object], ...] = ()
    """Figures for machines, JSON values by name: ``("size", 50257), ("padded", 50304)``."""
    end_line: int = 0
    """The last line of what is judged, in the coordinates of ``place``; 0 where it is the same line."""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """How a finding can be mended in the source."""

    safe: bool
    """It keeps what the program computes, bit for bit, where the program was right; else it changes what is
    computed, and is made only with ``--unsafe-fixes``."""
    title: str
    """What it does, in a few words: ``remove set_to_none=False``."""
    edits: tuple[object, ...] = ()
    """For `amp_migrate.lint.fixes`, which alone knows what they are."""
