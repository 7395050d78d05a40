"""What was proven of a rewrite, and what was not: plain data for every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from amp_migrate.validate.kernels import KernelShares


class Outcome(str, Enum):
    """What came of one level, or of the whole."""

    PROVEN = "proven"
    DISPROVED = "disproved"
    UNDERFLOW = "proven at low scales"
    """The runs differ only where fp32 itself under- or overflows: at low scales they are the same."""
    NOT_FINITE = "the original has gradients that are not finite"
    """A scaler leaves such steps out by design, so that there is nothing to compare."""
    NOT_JUDGED = "not judged"
    NOTHING = "nothing to migrate"
    """There is no training loop in it: of several scripts, none that has to be proven."""


class Level(str, Enum):
    """See DESIGN: each level is sharper than a loss curve, and sees what the others do not."""

    OFF = "L0 off"
    SCALED = "L1 scaled"
    MIXED = "L2 mixed"
    MONITOR = "protocol"


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured, and what it had to be."""

    name: str
    value: str
    bound: str = ""
    """In words; empty where the figure is only told."""
    holds: bool = True


@dataclass(frozen=True, slots=True)
class LevelVerdict:
    """What came of one level."""

    level: Level
    outcome: Outcome
    summary: str
    """One line."""
    figures: tuple[Figure, ...] = ()
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A series of one run, for drawing: one value per loss, or per try of a step."""

    name: str
    values: tuple[float, ...]
    place: str = ""
    """Of a loss: the original's ``path:line`` of its backward; empty where it has just one."""
    steps: tuple[int, ...] = ()
    """Of losses: how many steps were made before each."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the protocol monitor saw; ``line`` counts from 1 in the text that ran."""

    rule: str
    severity: str
    path: str
    line: int
    message: str
    count: int = 1
    code: str = ""
    """That of lint, where it knows the same fault without running the program."""

    @property
    def title(self) -> str:
        """What people are told that it is: ``AMP101 clipped-scaled-gradients``."""
        return f"{self.code} {self.rule}".lstrip()


@dataclass(frozen=True, slots=True)
class Speed:
    """Milliseconds an iteration, median and quartiles, and peak bytes on the GPU."""

    name: str
    median: float
    low: float
    high: float
    memory: int | None


@dataclass(frozen=True)
class Verdict:
    """What was found of one script."""

    script: str
    outcome: Outcome
    reason: str
    """One line."""
    device: str = ""
    python: str = ""
    torch: str = ""
    levels: tuple[LevelVerdict, ...] = ()
    sites_run: int = 0
    sites: int = 0
    steps: int = 0
    """Applied optimizer steps of a rewritten run."""
    runs: int = 0
    seconds: float = 0.0
    losses: tuple[Curve, ...] = ()
    scales: tuple[Curve, ...] = ()
    speeds: tuple[Speed, ...] = ()
    tensor_cores: KernelShares | None = None
    """Of the time of matrix products on a GPU, the share in kernels that are known to use them."""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    shapes: Mapping[str, Any] = field(default_factory=dict)
    """What `shapes` says of the matrix products that ran, as plain data."""
    shape_lines: tuple[str, ...] = ()
    """The same for a terminal."""

    @property
    def proven(self) -> bool:
        """Whether it holds, for what ran."""
        return self.outcome in (Outcome.PROVEN, Outcome.UNDERFLOW)
