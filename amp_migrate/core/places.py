"""Where something stands."""

from __future__ import annotations

from dataclasses import dataclass

_CELL = ":cell "
"""What stands between the path of a notebook and the number of a cell."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file. ``line`` counts from 1, ``column`` (in characters) from 1."""

    path: str
    line: int
    column: int
    text: str = ""
    """The source line, stripped; empty where it was not kept."""

    def cell_of(self, path: str) -> int:
        """The number of the cell of a notebook, ``path``, that this is in; 0 for other files."""
        suffix = self.path.removeprefix(path)
        return int(suffix.removeprefix(_CELL)) if suffix.startswith(_CELL) else 0
