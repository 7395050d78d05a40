"""What a run that rewrites files found, as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amp_migrate import __version__
from amp_migrate.core.results import Diagnostic, Loop, OldUse, Place, SourceError
from amp_migrate.report.diff import of_migrations
from amp_migrate.report.summary import Summary, summarized
from amp_migrate.run.outcome import Migration, Report, merged

VERSION = 1
"""Of the form of the document; it grows by keys without a change of the number."""


def document(reports: Sequence[Report], roots: Sequence[Path], *, written: bool) -> str:
    """Everything that was found in projects. ``written``: whether the changes are on disk by now."""
    report = merged(reports)
    summary = summarized(report)
    data = {
        "version": VERSION,
        "tool": {"name": "amp-migrate", "version": __version__},
        "written": written,
        "counts": _counts(summary),
        "projects": [
            {"root": str(root), "counts": _counts(summarized(one))}
            for root, one in zip(roots, reports, strict=True)
        ],
        "reasons": [asdict(reason) for reason in summary.reasons],
        "changes": [
            {"project": number, **_change(one)}
            for number, one in _by_project(reports, report)
            if one.changed
        ],
        "units": [
            {"project": number, **unit}
            for number, one in _by_project(reports, report)
            for unit in _units(one)
        ],
        "errors": [error(one) for one in report.errors],
    }
    return json.dumps(data, indent=2) + "\n"


def _counts(summary: Summary) -> dict[str, int]:
    return {
        "files": summary.analysed,
        "done": summary.done,
        "left_alone": summary.left_alone,
        "under_amp": summary.already,
        "off": summary.off,
        "errors": summary.errors,
        "unaligned_sizes": summary.unaligned.sizes,
    }


def _by_project(
    reports: Sequence[Report], report: Report
) -> Iterator[tuple[int, Migration]]:
    """The migrations of all, each with the number of its project."""
    numbers = (number for number, one in enumerate(reports) for _ in one.migrations)
    return zip(numbers, report.migrations, strict=True)


def error(found: SourceError) -> dict[str, Any]:
    """What could not be read or written."""
    where = {"line": found.line, "column": found.column} if found.line else {}
    return {"path": found.path, **where, "message": found.message}


def _change(one: Migration) -> dict[str, Any]:
    diff = of_migrations([one]).decode("utf-8", "replace")
    path = one.result.path
    notes = [
        {**_place(note.place, path), "message": note.message}
        for note in one.result.notes
    ]
    return {"path": path, "program": one.program, "diff": diff, "notes": notes}


def _units(one: Migration) -> Iterator[dict[str, Any]]:
    for unit in one.result.units:
        yield _unit(unit, one.result.path)


def _unit(unit: Loop | OldUse, path: str) -> dict[str, Any]:
    """A training loop, or a use of an older interface."""
    found = {
        "kind": "training loop" if isinstance(unit, Loop) else "older interface",
        **_place(unit.place, path),
        "outcome": unit.outcome.value,
    }
    if isinstance(unit, Loop):
        found["function"] = unit.function
    if unit.diagnostic is not None:
        found["reason"] = _reason(unit.diagnostic, path)
    return found


def _reason(found: Diagnostic, path: str) -> dict[str, Any]:
    blocker = found.blocker
    return {
        "code": found.code,
        "message": found.message,
        "blocked_by": (
            None if blocker is None else {**_place(blocker, path), "text": blocker.text}
        ),
        "by_hand": list(found.by_hand),
        "help": f"amp-migrate explain {found.code}",
    }


def _place(place: Place, path: str) -> dict[str, Any]:
    """Where something is. In a notebook ``line`` and ``column`` count in the ``cell``."""
    cell = place.cell_of(path)
    return {
        "path": path if cell else place.path,
        **({"cell": cell} if cell else {}),
        "line": place.line,
        "column": place.column,
    }
