"""What a file is read as, by its name: a Python source, or a notebook."""

from __future__ import annotations

from typing import Protocol

from amp_migrate.sources.text import Document

NOTEBOOK_SUFFIX = ".ipynb"


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

    def place(self, line: int) -> tuple[int, int]:
        """(cell, line in it) of a line of the program; cell 0 where the file has no cells."""

    def heading(self, line: int) -> str:
        """What a hunk of a diff that changes this line of the file, from 0, is about; or nothing."""


def open_document(path: str, data: bytes) -> Source:
    """Read ``data``, the bytes of a file that is named ``path``.

    Raises `SourceError`.
    """
    if path.endswith(NOTEBOOK_SUFFIX):
        # Imported here: most runs have no notebook.
        from amp_migrate.sources.notebook import Notebook

        return Notebook.decode(path, data)
    return Document.decode(path, data)
