"""What the editor has open, as files: a notebook's cells are put together to the notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument, Workspace

from amp_migrate.sources.document import NOTEBOOK_SUFFIX
from amp_migrate.sources.text import NEWLINE


class Document(TextDocument):
    """A text whose lines are those that an editor counts: Python also ends them at form feeds."""

    @property
    def lines(self) -> tuple[str, ...]:
        """With their ends."""
        starts = [0, *(found.end() for found in NEWLINE.finditer(self.source))]
        stops = [*starts[1:], len(self.source)]
        found = (self.source[a:b] for a, b in zip(starts, stops, strict=True))
        return tuple(line for line in found if line)


class Buffers(Workspace):
    """The documents of one editor."""

    def _create_text_document(
        self,
        doc_uri: str,
        source: str | None = None,
        version: int | None = None,
        language_id: str | None = None,
    ) -> TextDocument:
        return Document(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            sync_kind=self._sync_kind,
            position_codec=self._position_codec,
        )


@dataclass(frozen=True, slots=True)
class Text:
    """One document that the editor knows: a file, or the cell of a notebook."""

    uri: str
    version: int | None
    lines: tuple[str, ...]
    """Without their ends."""

    @classmethod
    def of(cls, document: TextDocument) -> Text:
        """As it is now."""
        lines = tuple(NEWLINE.sub("\n", document.source).split("\n"))
        return cls(document.uri, document.version, lines)


@dataclass(frozen=True, slots=True)
class Buffer:
    """An open file at one moment."""

    uri: str
    path: str
    content: str | bytes
    """Its text, or the bytes that a notebook would have on disk."""
    texts: tuple[Text, ...]
    """The file, or all cells of the notebook, those of prose among them."""

    def find(self, path: str) -> Text | None:
        """The document that a place of an analysis means by its path."""
        if path == self.path:
            return None if self.path.endswith(NOTEBOOK_SUFFIX) else self.texts[0]
        number = path.removeprefix(f"{self.path}:cell ")
        if number == path or not number.isdecimal():
            return None
        return self.texts[int(number) - 1] if int(number) <= len(self.texts) else None

    @property
    def version(self) -> tuple[tuple[str, int | None], ...]:
        """What tells this moment from others."""
        return tuple((text.uri, text.version) for text in self.texts)


def open_buffers(workspace: Workspace) -> Iterator[Buffer]:
    """All Python files and notebooks that are open."""
    for notebook in workspace.notebook_documents.values():
        path = path_of(notebook.uri, workspace)
        if path is not None and path.endswith(NOTEBOOK_SUFFIX):
            documents = [
                # An editor need not send cells of prose.
                workspace.text_documents.get(unquote(cell.document))
                or Document(cell.document, "", language_id="markdown")
                for cell in notebook.cells
            ]
            texts = tuple(map(Text.of, documents))
            content = _notebook(notebook, documents)
            yield Buffer(notebook.uri, path, content, texts)
    for uri, document in workspace.text_documents.items():
        path = path_of(document.uri, workspace)
        if path is None or workspace.get_notebook_document(cell_uri=uri) is not None:
            continue
        # The JSON of a notebook is not what a person sees of it.
        if not (path.endswith(".py") or document.language_id == "python"):
            continue
        text = NEWLINE.sub("\n", document.source)
        yield Buffer(document.uri, path, text, (Text.of(document),))


def path_of(uri: str, workspace: Workspace) -> str | None:
    """The path of a document; of one that was never saved, where it would be in the project's root."""
    path = to_fs_path(uri)
    parts = urlsplit(uri)
    if parts.scheme == "untitled":
        root = workspace.root_path or str(Path.cwd())
        name = Path(parts.path).name
        path = str(Path(root) / (name if "." in name else f"{name}.py"))
    if path is None or path.endswith(".pyi"):
        return None
    return path


def _notebook(
    notebook: types.NotebookDocument, documents: Sequence[TextDocument]
) -> bytes:
    cells: list[dict[str, object]] = []
    for cell, document in zip(notebook.cells, documents, strict=True):
        made: dict[str, object] = {"metadata": {}, "source": document.source}
        if cell.kind is types.NotebookCellKind.Code and _is_python(document):
            made |= {"cell_type": "code", "outputs": [], "execution_count": None}
        else:
            made["cell_type"] = "raw"
        cells.append(made)
    # The language of the kernel, where the editor says it.
    metadata: Any = notebook.metadata if isinstance(notebook.metadata, dict) else {}
    stated = metadata.get("metadata", metadata)
    kept = {
        key: stated[key]
        for key in ("kernelspec", "language_info")
        if isinstance(stated, dict) and isinstance(stated.get(key), dict)
    }
    book = {"cells": cells, "metadata": kept, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(book).encode()


def _is_python(document: TextDocument) -> bool:
    return document.language_id in (None, "", "python", "ipython")
