"""The language server: which message of the protocol asks for what."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from amp_migrate import __version__
from amp_migrate.catalogue.rules import rule
from amp_migrate.report import rules
from amp_migrate.server.actions import KINDS, covers
from amp_migrate.server.buffers import Buffers
from amp_migrate.server.session import OutdatedError, Session

_PYTHON_CELLS = [types.NotebookCellLanguage("python")]
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithNotebook(
            notebook=types.NotebookDocumentFilterNotebookType("jupyter-notebook"),
            cells=_PYTHON_CELLS,
        )
    ],
    save=True,
)
_WATCHED = ("**/*.py", "**/*.ipynb", "**/pyproject.toml", "**/.gitignore")


class Server(LanguageServer):
    """Speaks to one editor on standard input and output."""

    def __init__(self) -> None:
        super().__init__("amp-migrate", __version__, notebook_document_sync=_NOTEBOOKS)
        self.session = Session(self)


def make_server() -> Server:
    """A server that waits to be started."""
    server = Server()
    session = server.session

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        before = server.workspace
        # Its documents count lines as editors do.
        server.protocol._workspace = Buffers(
            before.root_uri,
            types.TextDocumentSyncKind.Incremental,
            list(before.folders.values()),
            before.position_encoding,
        )
        session.configure(params.initialization_options)

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        session.start()
        workspace = server.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace else None
        if watching is not None and watching.dynamic_registration:
            watchers = [types.FileSystemWatcher(pattern) for pattern in _WATCHED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            server.client_register_capability(
                types.RegistrationParams([types.Registration("files", method, options)])
            )

    for method in (
        *(types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CLOSE),
        *(types.NOTEBOOK_DOCUMENT_DID_OPEN, types.NOTEBOOK_DOCUMENT_DID_CLOSE),
        *(types.TEXT_DOCUMENT_DID_SAVE, types.NOTEBOOK_DOCUMENT_DID_SAVE),
        types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
    ):

        @server.feature(method)
        def on_disk(params: Any) -> None:
            session.changed(fresh=True)

    for method in (
        types.TEXT_DOCUMENT_DID_CHANGE,
        types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    ):

        @server.feature(method)
        def in_memory(params: Any) -> None:
            session.changed(fresh=False)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configure(params: types.DidChangeConfigurationParams) -> None:
        settings = params.settings
        if isinstance(settings, dict):
            settings = settings.get("amp-migrate", settings)
        if settings:
            session.configure(settings)
            session.changed(fresh=True)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        return _hover(server, params)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=list(KINDS), resolve_provider=True),
    )
    async def actions(params: types.CodeActionParams) -> Sequence[types.CodeAction]:
        can = _code_actions(server)
        offered = await session.actions(
            params, disabled=bool(can and can.disabled_support)
        )
        if can and can.resolve_support and "edit" in can.resolve_support.properties:
            return offered
        done = []
        for one in offered:
            try:
                if one.data is not None:
                    one.edit = await session.edit(one.data)
                done.append(one)
            except OutdatedError:
                continue
        return done

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        try:
            if action.data is not None:
                action.edit = await session.edit(action.data)
        except OutdatedError as error:
            code = types.LSPErrorCodes.RequestFailed.value
            raise JsonRpcException(str(error), code) from None
        return action

    @server.feature(types.SHUTDOWN)
    def shutdown(params: Any) -> None:
        session.stop()

    return server


def _code_actions(
    server: Server,
) -> types.CodeActionClientCapabilities | None:
    documents = server.client_capabilities.text_document
    return None if documents is None else documents.code_action


def _hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    _, shown = server.session.published.get(params.text_document.uri, (None, []))
    found = [one for one in shown if one.code and covers(one.range, params.position)]
    if not found:
        return None
    named = dict.fromkeys(str(one.code) for one in found)
    documents = server.client_capabilities.text_document
    hovering = documents.hover if documents is not None else None
    kinds = (hovering and hovering.content_format) or [types.MarkupKind.PlainText]
    if types.MarkupKind.Markdown in kinds:
        text = "\n---\n\n".join(rules.page(rule(code)) for code in named)
        contents = types.MarkupContent(types.MarkupKind.Markdown, text)
    else:
        text = "\n".join(rules.as_text(rule(code)) for code in named)
        contents = types.MarkupContent(types.MarkupKind.PlainText, text)
    return types.Hover(contents, found[0].range)


def serve(interrupted: int) -> None:
    """Serve an editor on standard input and output until it ends the session.

    ``interrupted``: the exit code where Ctrl-C ends it.
    """
    server = make_server()

    def leave() -> None:
        # Who reads from the editor would wait for it for ever.
        try:
            server.session.stop()
        finally:
            os._exit(interrupted)

    with contextlib.suppress(ValueError):  # only the main thread may ask for signals
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda number, frame: leave())
            _on_interrupt(leave)
    # The protocol closes its end; and whoever prints does not speak to the editor.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr
    try:
        server.start_io(stdout=answers)
    finally:
        server.session.stop()


def _on_interrupt(leave: Callable[[], None]) -> None:
    """Leave on Ctrl-C also where it comes just before the loop waits for the editor: its handler would
    run only when the editor next says something."""
    waiting, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())

    def wait() -> None:
        while signal.SIGINT not in waiting.recv(1):
            pass
        leave()

    threading.Thread(target=wait, daemon=True).start()
    woken.detach()
