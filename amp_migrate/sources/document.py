"""What a file is read as, by its name: a Python source, or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from amp_migrate.core.results import SourceError
from amp_migrate.sources.text import NEWLINE, Document

NOTEBOOK_SUFFIX = ".ipynb"

SIZE_LIMIT = 4 * 1024 * 1024
"""Bytes. A source larger than this was written by a program."""

NOTEBOOK_LIMIT = 64 * 1024 * 1024
"""Bytes. A notebook also holds what it has printed and drawn."""


class Source(Protocol):
    """One file as it was read: the program in it, and the way back into its bytes."""

    @property
    def path(self) -> str:
        """The name that messages use."""

    @property
    def data(self) -> bytes:
        """The file."""

    @property
    def text(self) -> str:
        """The program, its lines ended by ``\\n``."""

    def encode(self, text: str) -> bytes:
        """The file with ``text``, an edited program, in the place of the program."""

    def split(self, text: str) -> list[str]:
        """The part of each cell in ``text``, this program or one edited from it."""

    def join(self, parts: Sequence[str]) -> str:
        """What `split` took apart."""

    def said(self, line: int) -> str:
        """A line of the program, counted from 1, as it stands in the file."""

    def place(self, line: int) -> tuple[int, int]:
        """(cell, line in it) of a line of the program; cell 0 where the file has no cells."""

    def line_in_file(self, cell: int, line: int) -> int:
        """The line of the file that holds what `place` calls a line of a cell."""

    def heading(self, line: int) -> Sequence[str]:
        """What a line of the file, counted from 0, is a part of, from the outside in: words for a diff."""


def open_document(path: str, data: bytes) -> Source:
    """Read ``data``, the bytes of a file that is named ``path``.

    Raises `SourceError`.
    """
    if not path.endswith(NOTEBOOK_SUFFIX):
        _limit(path, len(data), SIZE_LIMIT)
        return Document.decode(path, data)
    # Imported here: most runs have no notebook.
    from amp_migrate.sources.notebook import Notebook

    _limit(path, len(data), NOTEBOOK_LIMIT)
    notebook = Notebook.decode(path, data)
    _limit(path, len(notebook.text.encode("utf-8", "replace")), SIZE_LIMIT, " of code")
    return notebook


def legible(path: str, data: bytes) -> str:
    """What can be seen of a program at a glance, whether or not it can be read."""
    if path.endswith(NOTEBOOK_SUFFIX):
        from amp_migrate.sources.notebook import legible_code

        return legible_code(data)
    text = data.decode("utf-8-sig", "replace")
    return NEWLINE.sub("\n", text) if "\r" in text else text


def _limit(path: str, size: int, limit: int, of: str = "") -> None:
    if size > limit:
        found, most = f"{size / 1024**2:.1f} MB{of}", f"{limit // 1024**2} MB"
        raise SourceError(path, f"too large: {found}, the limit is {most}")
