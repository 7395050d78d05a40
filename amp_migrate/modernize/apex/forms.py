"""The forms of apex.amp: what a text had of it, and why one is not known."""

from __future__ import annotations

from dataclasses import dataclass, field

from amp_migrate.edit.names.uses import Position
from amp_migrate.modernize.apex.level import Level


@dataclass(frozen=True, slots=True)
class Initialize:
    """``model, optimizer = amp.initialize(...)``."""

    function: str
    at: Position
    flags: tuple[str, ...]
    """The conditions under which it runs, and the optimizer is not made."""
    level: Level
    optimizers: tuple[str, ...]
    beside_birth: bool = False
    """It stands in a branch in which the optimizer is made."""


@dataclass(frozen=True, slots=True)
class ScaledBackward:
    """``with amp.scale_loss(...)``."""

    function: str
    at: Position
    tests: tuple[str, ...]
    """All conditions around it in its function."""
    collapsed: tuple[str, ...] = ()
    """Those of them that are gone: their other branch is the same without apex."""


@dataclass(slots=True)
class Removed:
    """A text without apex.amp, and what it had of it."""

    text: str
    initializes: list[Initialize] = field(default_factory=list)
    backwards: list[ScaledBackward] = field(default_factory=list)


class UnknownFormError(Exception):
    """Why nothing is taken out."""

    def __init__(self, message: str, at: Position) -> None:
        super().__init__(message)
        self.at = at
