"""What a run says beside its output: a line for each loop left alone, and for each note."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.results import Diagnostic, Note, Place
from amp_migrate.run.outcome import Report

INTERNAL_ERROR = "AMP090"
"""The code under which the core leaves a loop alone because it does not trust its own rewrite."""


def diagnostic(found: Diagnostic, said: dict[tuple[str, ...], Place]) -> Iterator[str]:
    """The lines for one loop, or older use, left alone; those after the first are indented.

    ``said`` remembers between calls what was said to write by hand, so as not to say it twice.
    """
    place, blocker = found.place, found.blocker
    yield f"{place.path}:{place.line}:{place.column} {found.code} {found.message}"
    if blocker is not None:
        text = f": {blocker.text}" if blocker.text else ""
        yield f"  blocked by {blocker.path}:{blocker.line}{text}"
    if not found.by_hand:
        return
    latest = next(reversed(said), None)
    before = said.setdefault(found.by_hand, place)
    said[found.by_hand] = said.pop(found.by_hand)  # the last one is the latest
    if found.by_hand == latest:
        return  # what stands above, a line or two away
    if before is not place:
        yield f"  by hand: as above, for {before.path}:{before.line}"
    else:
        yield "  by hand:"
        for entry in found.by_hand:
            yield from (f"    {line}".rstrip() for line in entry.split("\n"))


def note(found: Note) -> str:
    """The line for what is left to be done by hand where something was migrated."""
    place = found.place
    return f"{place.path}:{place.line}:{place.column} note: {found.message}"


def has_internal_error(report: Report) -> bool:
    """Whether a loop was left alone through a fault of this program."""
    return any(
        found.code == INTERNAL_ERROR
        for result in report.results
        for found in result.diagnostics
    )
