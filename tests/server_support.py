"""An editor that starts the server, types, and does what it is offered."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient, client_capabilities

LONG = 90.0
"""Seconds after which an answer will not come; nobody waits that long for one that does."""
COMMAND = [sys.executable, "-m", "amp_migrate", "server"]


class Editor:
    """What a person sees and does."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.shown: dict[str, types.PublishDiagnosticsParams] = {}
        self.times_shown: dict[str, int] = {}
        self.messages: list[str] = []
        self.watched: list[types.Registration] = []
        self._news = asyncio.Event()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = params
            self.times_shown[params.uri] = self.times_shown.get(params.uri, 0) + 1
            self._news.set()

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        def said(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self._news.set()

        @client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def watch(params: types.RegistrationParams) -> None:
            self.watched += params.registrations

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    # -- typing -----------------------------------------------------------------------------------

    def open(self, name: str, text: str | None = None) -> str:
        """Open a file, with other text than it has on disk where that is given."""
        uri = self.uri(name)
        if text is None:
            text = (self.folder / name).read_text(encoding="utf-8")
        self.texts[uri], self.versions[uri] = text, 1
        item = types.TextDocumentItem(uri, "python", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def type(self, name: str, text: str) -> None:
        """Replace all of a text."""
        self._change(name, types.TextDocumentContentChangeWholeDocument(text), text)

    def insert(self, name: str, row: int, column: int, text: str) -> None:
        """Put something into a line, counted as the protocol does."""
        uri = self.uri(name)
        place = types.Position(row, column)
        change = types.TextDocumentContentChangePartial(types.Range(place, place), text)
        edited = applied(self.texts[uri], [types.TextEdit(change.range, text)])
        self._change(name, change, edited)

    def _change(self, name: str, change: Any, text: str) -> None:
        uri = self.uri(name)
        self.texts[uri] = text
        self.versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(
            uri=uri, version=self.versions[uri]
        )
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(document, [change])
        )

    def close(self, name: str) -> None:
        document = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def save(self, name: str) -> None:
        uri = self.uri(name)
        (self.folder / name).write_text(self.texts[uri], encoding="utf-8")
        self.client.text_document_did_save(
            types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
        )

    def open_notebook(self, name: str) -> list[str]:
        """Open a notebook; the addresses of its cells."""
        uri = self.uri(name)
        book = json.loads((self.folder / name).read_text(encoding="utf-8"))
        cells, items = [], []
        for number, cell in enumerate(book["cells"]):
            is_code = cell["cell_type"] == "code"
            address = uri.replace("file:", "vscode-notebook-cell:") + f"#{number}"
            kind = types.NotebookCellKind(2 if is_code else 1)
            cells.append(types.NotebookCell(kind, address))
            if is_code:
                text = "".join(cell["source"])
                items.append(types.TextDocumentItem(address, "python", 1, text))
                self.texts[address], self.versions[address] = text, 1
        notebook = types.NotebookDocument(uri, "jupyter-notebook", 1, cells)
        self.client.notebook_document_did_open(
            types.DidOpenNotebookDocumentParams(notebook, items)
        )
        return [cell.document for cell in cells]

    def type_in_cell(self, name: str, cell: str, text: str) -> None:
        """Replace all of a cell."""
        self.texts[cell] = text
        self.versions[cell] += 1
        document = types.VersionedTextDocumentIdentifier(
            uri=cell, version=self.versions[cell]
        )
        change = types.TextDocumentContentChangeWholeDocument(text)
        contents = types.NotebookDocumentCellContentChanges(document, [change])
        self.client.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(
                    version=2, uri=self.uri(name)
                ),
                types.NotebookDocumentChangeEvent(
                    cells=types.NotebookDocumentCellChanges(text_content=[contents])
                ),
            )
        )

    # -- looking ----------------------------------------------------------------------------------

    async def until(self, seen: Callable[[], bool]) -> None:
        """Wait until something is seen."""

        async def watch() -> None:
            while not seen():
                self._news.clear()
                await self._news.wait()

        await asyncio.wait_for(watch(), LONG)

    async def codes(self, uri: str) -> list[tuple[int, str | int | None]]:
        """(line, code) of what is shown in a document as it is now, once it is."""
        await self.until(
            lambda: uri in self.shown and self.shown[uri].version == self.versions[uri]
        )
        return [
            (one.range.start.line + 1, one.code) for one in self.shown[uri].diagnostics
        ]

    def diagnostic(self, uri: str, code: str | None) -> types.Diagnostic:
        return next(one for one in self.shown[uri].diagnostics if one.code == code)

    async def hover(self, uri: str, row: int, column: int) -> types.Hover | None:
        return await self.client.text_document_hover_async(
            types.HoverParams(
                types.TextDocumentIdentifier(uri), types.Position(row, column)
            )
        )

    # -- doing ------------------------------------------------------------------------------------

    async def offers(
        self, uri: str, row: int, *only: str
    ) -> dict[str, types.CodeAction]:
        """What is offered in a line, by its title."""
        here = types.Position(row, 0)
        there = types.Position(row, 200)
        found = await self.client.text_document_code_action_async(
            types.CodeActionParams(
                types.TextDocumentIdentifier(uri),
                types.Range(here, there),
                types.CodeActionContext(
                    [], list(only) or None, types.CodeActionTriggerKind.Invoked
                ),
            )
        )
        assert found is not None
        return {one.title: one for one in found if isinstance(one, types.CodeAction)}

    async def done(self, action: types.CodeAction) -> dict[str, str]:
        """The texts that an action changes, by address, as they are afterwards."""
        assert action.disabled is None
        resolved = await self.client.code_action_resolve_async(action)
        assert resolved.edit is not None
        assert resolved.edit.document_changes is not None
        after = {}
        for change in resolved.edit.document_changes:
            assert isinstance(change, types.TextDocumentEdit)
            uri = change.text_document.uri
            assert change.text_document.version == self.versions.get(uri)
            before = self.texts.get(uri)
            if before is None:
                before = Path(uri.removeprefix("file://")).read_text(encoding="utf-8")
            after[uri] = applied(before, change.edits)
        return after


def applied(text: str, edits: Sequence[Any]) -> str:
    """A text after edits, in the units of UTF-16."""
    lines = text.split("\n")

    def offset(position: types.Position) -> int:
        head = lines[position.line].encode("utf-16-le")[: 2 * position.character]
        before = sum(len(line) + 1 for line in lines[: position.line])
        return before + len(head.decode("utf-16-le"))

    spans = [(offset(e.range.start), offset(e.range.end), e.new_text) for e in edits]
    for start, stop, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


@asynccontextmanager
async def editing(
    folder: Path,
    options: Any = None,
    *,
    client: str = "visual-studio-code",
) -> AsyncIterator[Editor]:
    """A session in a folder."""
    connected = LanguageClient(converter_factory=default_converter)
    editor = Editor(connected, folder)
    await connected.start_io(*COMMAND)
    capabilities = client_capabilities(client)
    await connected.initialize_session(
        types.InitializeParams(
            capabilities=capabilities,
            root_uri=folder.as_uri(),
            initialization_options=options,
        )
    )
    try:
        yield editor
    finally:
        await connected.shutdown_session()
        process = connected._server
        await connected.stop()
    assert process is not None
    assert process.returncode == 0


def run(session: Coroutine[Any, Any, None]) -> None:
    """One session, to its end."""
    asyncio.run(asyncio.wait_for(session, 3 * LONG))
