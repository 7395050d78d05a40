"""Where something stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file. ``line`` counts from 1, ``column`` (in characters) from 1."""

    path: str
    line: int
    column: int
    text: str = ""
    """The source line, stripped; empty where it was not kept."""
