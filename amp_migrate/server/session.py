"""One editor: what it has open, what was found in it, and what it is told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from amp_migrate.core.findings import Finding
from amp_migrate.core.places import Place
from amp_migrate.core.results import Loop
from amp_migrate.run import config
from amp_migrate.server.actions import UNDER_AMP, Offer
from amp_migrate.server.buffers import Buffer, Text, open_buffers
from amp_migrate.server.diagnostics import Teller
from amp_migrate.server.edits import workspace_edit
from amp_migrate.server.lanes import Lane
from amp_migrate.server.pages import Pages
from amp_migrate.server.requests import Edited, Mend, Project
from amp_migrate.server.settings import EditorSettings
from amp_migrate.server.worker import Worker, WorkerError
from amp_migrate.sources.discovery import Filters, is_left_out
from amp_migrate.sources.ignore import PatternError
from amp_migrate.sources.lines import matching_blocks

_log = logging.getLogger(__name__)
_IDLE = 0.5
"""Seconds without an edit before a migration is planned, which takes longer than lint."""


_PATIENCE = 3.0
"""Seconds that a list of actions waits for an analysis."""


class OutdatedError(Exception):
    """An action that cannot be done: one line, for the user."""


@dataclass
class State:
    """What is known of one open file."""

    linted: Buffer | None = None
    """As it was when lint looked at it."""
    findings: tuple[Finding, ...] = ()
    planned: Buffer | None = None
    """As it was when its migration was planned."""
    loops: tuple[Loop, ...] = ()


class Session:
    """All of it; what is slow is done by two processes, so that lint never waits for a migration."""

    def __init__(self, server: LanguageServer) -> None:
        self.server = server
        self.settings = EditorSettings()
        self.states: dict[str, State] = {}
        """By path."""
        self.published: dict[str, tuple[int | None, list[types.Diagnostic]]] = {}
        """By URI: the version, and what the editor shows."""
        self._pages = Pages()
        self._linter, self._planner = Worker(), Worker(behind=True)
        self._fresh: dict[Worker, set[Path]] = {
            self._linter: set(),
            self._planner: set(),
        }
        """Projects of which other files may have changed since a process was last asked."""
        self._said: set[str] = set()
        self._tried: set[Filters] = set()
        """Patterns that mean something."""
        self.lint = Lane(self._lint, lambda: self.settings.debounce / 1000)
        self.plan = Lane(self._plan, lambda: _IDLE)

    # -- what happens in the editor ---------------------------------------------------------------

    def configure(self, given: object) -> None:
        """Take the editor's settings."""
        try:
            self.settings = EditorSettings.read(given)
        except config.ConfigError as error:
            self.settings = EditorSettings()
            self.say(str(error))

    def start(self) -> None:
        """Get ready for the first file."""
        for worker in (self._linter, self._planner):
            worker.start()

    def changed(self, *, fresh: bool) -> None:
        """Something is open that was not, or is different; ``fresh``: perhaps on disk, too."""
        buffers = self.buffers()
        for path in self.states.keys() - buffers.keys():
            del self.states[path]
        shown = {text.uri for one in buffers.values() for text in one.texts}
        for uri in self.published.keys() - shown:
            self._publish(uri, None, [])
            del self.published[uri]
        for root in self.projects(buffers):
            if fresh:
                for roots in self._fresh.values():
                    roots.add(root)
            self.lint.ask(root)
            if self.settings.migration:
                self.plan.ask(root)

    def say(self, message: str) -> None:
        """Show a message, once."""
        if message not in self._said:
            self._said.add(message)
            params = types.ShowMessageParams(types.MessageType.Error, message)
            self.server.window_show_message(params)

    def stop(self) -> None:
        """End all work."""
        for lane in (self.lint, self.plan):
            lane.stop()
        for worker in (self._linter, self._planner):
            worker.stop()
        self._pages.close()

    # -- what is open -----------------------------------------------------------------------------

    def buffers(self) -> dict[str, Buffer]:
        """What is open now, by path."""
        return {one.path: one for one in open_buffers(self.server.workspace)}

    def find(self, uri: str) -> tuple[Buffer, Text] | None:
        """What is open under an address."""
        for buffer in self.buffers().values():
            for text in buffer.texts:
                if text.uri == uri:
                    return buffer, text
        return None

    def projects(self, buffers: Mapping[str, Buffer]) -> dict[Path, Project]:
        """The projects of what is open, by their roots."""
        found: dict[Path, Project] = {}
        for path, buffer in buffers.items():
            settings = self._load(path)
            if settings is not None:
                before = found.get(settings.root)
                known = {} if before is None else before.open
                opened = {**known, path: buffer.content}
                found[settings.root] = Project(settings, opened, fresh=False)
        return found

    def _load(self, path: str) -> config.Settings | None:
        chosen = self.settings
        try:
            settings = config.load([path], chosen.overrides, chosen.config_file)
            if settings.filters not in self._tried:
                is_left_out(path, settings.filters)
                self._tried.add(settings.filters)
            return settings
        except (config.ConfigError, PatternError) as error:
            self.say(str(error))
        return None

    def teller(self, buffers: Mapping[str, Buffer]) -> Teller:
        """Who puts findings into the editor's coordinates."""
        site = self.settings.rule_pages
        codec = self.server.workspace.position_codec
        return Teller(codec, lambda code: self._pages.link(code, site), buffers)

    # -- analysis ---------------------------------------------------------------------------------

    async def _lint(self, root: Path) -> None:
        found = await self._ask(self._linter, root, "look")
        if found is not None:
            current, looked = found
            for path, buffer in current.items():
                if path in looked.findings:
                    state = self.states.setdefault(path, State())
                    state.linted, state.findings = buffer, looked.findings[path]
            self._tell(looked.problems)

    async def _plan(self, root: Path) -> None:
        await self.lint.settled(root)
        found = await self._ask(self._planner, root, "find_loops")
        if found is not None:
            current, planned = found
            for path, buffer in current.items():
                if path in planned.loops:
                    state = self.states.setdefault(path, State())
                    state.planned, state.loops = buffer, planned.loops[path]
            self._tell(planned.problems)

    async def _ask(
        self,
        worker: Worker,
        root: Path,
        question: str,
        *about: object,
    ) -> tuple[dict[str, Buffer], Any] | None:
        """An answer, with the buffers that are still what they were when it was asked for."""
        buffers = self.buffers()
        project = self.projects(buffers).get(root)
        if project is None:
            return None
        fresh = root in self._fresh[worker]
        self._fresh[worker].discard(root)
        try:
            answer = await worker.ask(question, replace(project, fresh=fresh), *about)
        except WorkerError as error:
            self._fresh[worker].add(root)
            _log.error("%s", error)
            return None
        now = self.buffers()
        current = {
            path: buffer
            for path, buffer in buffers.items()
            if path in now and now[path].version == buffer.version
        }
        return current, answer

    def _tell(self, problems: Iterable[str]) -> None:
        """Show what is known by now."""
        for problem in problems:
            _log.warning("%s", problem)
        buffers = self.buffers()
        teller = self.teller(buffers)
        for path, buffer in buffers.items():
            state = self.states.get(path)
            # Of what cannot be read at the moment, or is being looked at, the last stays.
            if state is None or not _same(state.linted, buffer):
                continue
            for text in (one for one in buffer.texts if one.version is not None):
                found = list(self._diagnostics(teller, state, buffer, text))
                self._publish(text.uri, text.version, found)

    def _diagnostics(
        self, teller: Teller, state: State, buffer: Buffer, text: Text
    ) -> Iterator[types.Diagnostic]:
        for finding in state.findings:
            if buffer.find(finding.place.path) == text:
                yield teller.finding(text, finding)
        if state.planned is None or not self.settings.migration:
            return
        for loop in state.loops:
            before = state.planned.find(loop.place.path)
            if before is None or before.uri != text.uri:
                continue
            place = moved(loop.place, before.lines, text.lines)
            if place is not None:
                told = teller.loop(text, replace(loop, place=place))
                if told is not None:
                    yield told

    def _publish(
        self, uri: str, version: int | None, found: list[types.Diagnostic]
    ) -> None:
        if self.published.get(uri) != (version, found):
            self.published[uri] = version, found
            self.server.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri, found, version)
            )

    # -- what the editor asks ---------------------------------------------------------------------

    async def actions(
        self, params: types.CodeActionParams, *, disabled: bool
    ) -> list[types.CodeAction]:
        """What may be done at a place; ``disabled``: with what may not, and why."""
        uri = params.text_document.uri
        for lane in self._lanes_for(params):
            root = self._root_of(uri)
            if root is not None:
                await lane.settled(root, _PATIENCE)
        found = self.find(uri)
        if found is None:
            return []
        buffer, text = found
        state = self.states.get(buffer.path, State())
        offer = Offer(self.teller(self.buffers()), buffer, text, params)
        offered: list[types.CodeAction] = []
        if _same(state.linted, buffer):
            offered += offer.fixes(state.findings)
        if _same(state.planned, buffer):
            offered += offer.migrations(state.loops, disabled=disabled)
        return offered

    def _lanes_for(self, params: types.CodeActionParams) -> Iterator[Lane]:
        """The kinds of analysis that an answer has to wait for."""
        yield self.lint
        found, root = self.find(params.text_document.uri), None
        # What is shown beside the line whenever the cursor moves does not wait for a plan.
        if params.context.trigger_kind is types.CodeActionTriggerKind.Automatic:
            return
        if found is not None:
            state = self.states.get(found[0].path, State())
            root = self._root_of(params.text_document.uri)
            if root is not None and not _same(state.planned, found[0]):
                self.plan.ask(root)
                yield self.plan

    def _root_of(self, uri: str) -> Path | None:
        found = self.find(uri)
        settings = None if found is None else self._load(found[0].path)
        return None if settings is None else settings.root

    async def edit(self, data: Mapping[str, Any]) -> types.WorkspaceEdit:
        """What an action does. Raises `OutdatedError` where it can no longer be done, or could never."""
        path = data["path"]
        buffer = self.buffers().get(path)
        if buffer is None or [list(one) for one in buffer.version] != data["version"]:
            raise OutdatedError("the file has changed since")
        settings = self._load(path)
        if settings is None:
            raise OutdatedError("the configuration is not valid")
        place = None if data["place"] is None else Place(**data["place"])
        if data["kind"] == UNDER_AMP:
            found = await self._ask(
                self._planner, settings.root, "put_under_amp", place
            )
        else:
            only = None if place is None else (data["code"], place)
            found = await self._ask(
                self._linter, settings.root, "mend", Mend(path, only)
            )
        if found is None:
            raise OutdatedError("the file could not be analysed")
        current, edited = found
        if edited.reason:
            raise OutdatedError(edited.reason)
        if any(path in self.buffers() and path not in current for path in edited.files):
            raise OutdatedError("a file has changed since")
        return self._workspace_edit(edited, current)

    def _workspace_edit(
        self, edited: Edited, buffers: Mapping[str, Buffer]
    ) -> types.WorkspaceEdit:
        workspace = self.server.client_capabilities.workspace
        can = workspace.workspace_edit if workspace is not None else None
        return workspace_edit(
            edited,
            buffers,
            self.server.workspace.position_codec,
            versioned=bool(can and can.document_changes),
        )


def _same(known: Buffer | None, buffer: Buffer) -> bool:
    return known is not None and known.version == buffer.version


def moved(place: Place, before: Sequence[str], after: Sequence[str]) -> Place | None:
    """A place in a text that was edited; None where its line was."""
    row = place.line - 1
    for old, new, size in matching_blocks(before, after):
        if old <= row < old + size:
            return replace(place, line=row - old + new + 1)
    return None
