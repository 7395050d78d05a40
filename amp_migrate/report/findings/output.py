"""Puts findings where they are wanted: on a terminal, or into a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amp_migrate.report.findings import formats, text
from amp_migrate.report.findings.listing import Listing
from amp_migrate.report.terminal import Terminal


@dataclass(frozen=True)
class Output:
    """Where the findings of a run go, and in which form."""

    terminal: Terminal
    format: str
    file: str | None = None
    aside: bool = False
    """Standard output is somebody else's: people are told on standard error."""

    def tell(self, listing: Listing, *, statistics: bool) -> None:
        """Print the findings, or put them into the file. Raises `SourceError`."""
        people = formats.is_for_people(self.format)
        if people:
            lines = list(self._lines(listing, statistics=statistics))
        else:
            lines = [(self._document(listing, statistics=statistics).rstrip("\n"), "")]
        if self.file is not None:
            # Imported here: most runs write no file.
            from amp_migrate.report.destination import Destination

            words = "".join(f"{line}\n" for line, _ in lines if line or people)
            Destination(self.file).write(words)
            self.terminal.say(text.summary(listing))
        elif people:
            for line, colour in lines:
                self._line(line, colour)
            if not self.terminal.quiet:
                self._line(text.summary(listing), "")
        else:
            words = "".join(f"{line}\n" for line, _ in lines if line)
            self.terminal.write(words.encode("utf-8", "backslashreplace"))

    def _line(self, line: str, colour: str) -> None:
        if self.aside:
            self.terminal.say(line, fg=colour or None)
        else:
            self.terminal.write_line(line, colour)

    def _lines(self, listing: Listing, *, statistics: bool) -> Iterable[text.Line]:
        if statistics:
            return text.statistics(listing)
        if self.format == "concise":
            return text.concise(listing)
        return text.full(listing)

    def _document(self, listing: Listing, *, statistics: bool) -> str:
        if statistics:
            from amp_migrate.report.findings import as_json

            return as_json.statistics(listing)
        return formats.written(self.format, listing)
