"""Findings and training loops as the diagnostics of a protocol that counts in UTF-16."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types
from pygls.workspace import PositionCodec

from amp_migrate.core.findings import Finding, Severity, Step
from amp_migrate.core.places import Place
from amp_migrate.core.results import Loop, Outcome
from amp_migrate.server.buffers import Buffer, Text
from amp_migrate.sources.discovery import lexical

SOURCE = "amp-migrate"
CAN = "this training loop can be put under AMP"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}


@dataclass(frozen=True)
class Teller:
    """The words and the coordinates of one editor."""

    codec: PositionCodec
    link: Callable[[str], str]
    """The page of a code."""
    buffers: Mapping[str, Buffer]
    """What is open, by path."""

    def finding(self, text: Text, one: Finding) -> types.Diagnostic:
        """What lint found."""
        fix = one.fix
        fixable = None if fix is None else ("safe" if fix.safe else "unsafe")
        return types.Diagnostic(
            range=self.range(text, one.place, one.expression, one.end_line),
            severity=_SEVERITIES[one.severity],
            code=one.code,
            code_description=types.CodeDescription(self.link(one.code)),
            source=SOURCE,
            message=one.message,
            related_information=list(self._steps(one.chain)) or None,
            data={"fixable": fixable} if fixable else None,
        )

    def loop(self, text: Text, one: Loop) -> types.Diagnostic | None:
        """What a migration says of a loop, if it has something to say."""
        range_ = self.range(text, one.place)
        if one.outcome is Outcome.MIGRATED:
            return types.Diagnostic(
                range=range_,
                severity=types.DiagnosticSeverity.Hint,
                source=SOURCE,
                message=CAN,
            )
        found = one.diagnostic
        if one.outcome is not Outcome.LEFT_ALONE or found is None:
            return None
        blocker = () if found.blocker is None else (Step("blocked by", found.blocker),)
        return types.Diagnostic(
            range=range_,
            severity=types.DiagnosticSeverity.Information,
            code=found.code,
            code_description=types.CodeDescription(self.link(found.code)),
            source=SOURCE,
            message=f"this training loop is left alone: {found.message}",
            related_information=list(self._steps(blocker)) or None,
        )

    def range(
        self, text: Text, place: Place, expression: str = "", end_line: int = 0
    ) -> types.Range:
        """From where something begins to the end of its expression, its last line, or its line."""
        row = min(max(place.line, 1), len(text.lines)) - 1
        line = text.lines[row]
        first = min(max(place.column, 1) - 1, len(line))
        last = min(max(end_line, row + 1), len(text.lines)) - 1
        if expression and line.startswith(expression, first):
            last, stop = row, first + len(expression)
        else:
            stop = len(text.lines[last].rstrip())
        if (last, stop) <= (row, first):
            last, stop = row, len(line)
        return types.Range(
            self._position(text, row, first), self._position(text, last, stop)
        )

    def _position(self, text: Text, row: int, column: int) -> types.Position:
        units = self.codec.client_num_units(text.lines[row][:column])
        return types.Position(row, units)

    def _steps(
        self, steps: Iterable[Step]
    ) -> Iterator[types.DiagnosticRelatedInformation]:
        for step in steps:
            location = None if step.place is None else self._location(step.place)
            if location is not None:
                yield types.DiagnosticRelatedInformation(location, step.text)

    def _location(self, place: Place) -> types.Location | None:
        path = lexical(place.path)
        for buffer in self.buffers.values():
            text = buffer.find(path)
            if text is not None:
                return types.Location(text.uri, self.range(text, place))
        if place.line < 1 or ":cell " in place.path:
            return None
        # Of a file that is not open, the line will do.
        here, there = place.line - 1, place.line
        start, stop = types.Position(here, 0), types.Position(there, 0)
        return types.Location(Path(path).as_uri(), types.Range(start, stop))
