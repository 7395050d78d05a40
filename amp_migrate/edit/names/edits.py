"""What a plan asks for, each edit addressed to a name by its position."""

from __future__ import annotations

from dataclasses import dataclass

from amp_migrate.edit.names.uses import Position


@dataclass(frozen=True, slots=True)
class Rename:
    """A dotted name for another."""

    at: Position
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Recall:
    """A call of a dotted name that becomes one of another, with the device and its arguments' names."""

    at: Position
    old: str
    new: str
    device: str
    """``"cuda"``: the first argument; ``device_type="cuda"``: the first keyword."""
    keywords: tuple[str | None, ...]
    """For each argument, the keyword that it gets."""
    more: tuple[tuple[str, str], ...] = ()
    """Keywords that are new, with their values; they stand behind the device."""


@dataclass(frozen=True, slots=True)
class CallDecorator:
    """``@custom_fwd`` to ``@custom_fwd(device_type="cuda")``."""

    at: Position
    old: str
    new: str
    device: str


@dataclass(frozen=True, slots=True)
class MoveImport:
    """A name that is imported from another module: ``a.b.name``."""

    at: Position
    old: str
    new: str


Edit = Rename | Recall | CallDecorator | MoveImport
