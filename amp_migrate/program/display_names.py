"""What messages call the files and lines of a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from amp_migrate.core.results import Place, SourceError
from amp_migrate.program.programs import ProgramSources


class Telling:
    """The words for the places of one program."""

    def __init__(self, sources: ProgramSources, shown: Mapping[str, str]) -> None:
        """``shown``: what messages call a file, where that is not its path."""
        self._sources = sources
        self._shown = shown

    def file(self, file: str) -> str:
        """What messages call a file."""
        if file in self._shown:
            return self._shown[file]
        relative = os.path.relpath(file)
        return file if relative.startswith(os.pardir) else Path(relative).as_posix()

    def spot(self, line: int, file: str) -> str:
        """What the words about a plan call a line."""
        document = self._sources.documents.get(file)
        cell, inside = (0, line) if document is None else document.place(line)
        return f"cell {cell}, line {inside}" if cell else f"line {line}"

    def place(self, file: str, line: int, column: int) -> Place:
        """Where a line of the program stands: in a notebook, by its cell and the line in that."""
        shown = self.file(file)
        text = self._sources.texts[file].split("\n")
        if not 0 < line <= len(text):
            return Place(shown, int(line), column)
        document = self._sources.documents.get(file)
        if document is None:
            return Place(shown, int(line), column, text[line - 1].strip())
        cell, inside = document.place(line)
        said = document.said(line)
        # A cell may be indented as a whole.
        column += max(said.find(text[line - 1]), 0)
        return Place(
            f"{shown}:cell {cell}" if cell else shown, inside, column, said.strip()
        )

    def error(self, file: str, error: SourceError) -> SourceError:
        """An error in a program's text as one in the file."""
        shown, line = self.file(file), error.line
        document = self._sources.documents.get(file)
        cell, inside = document.place(line) if document and line else (0, line)
        if cell:
            words = f"cell {cell}, line {inside}: {error.message}"
            return SourceError(shown, words)
        return SourceError(shown, error.message, line, error.column)
