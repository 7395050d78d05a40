"""Findings as JSON: one document, or one line for each finding."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from amp_migrate import __version__
from amp_migrate.core.findings import Severity
from amp_migrate.core.results import Place
from amp_migrate.report.findings.listing import Listing, Told
from amp_migrate.report.findings.text import counted
from amp_migrate.report.migrations_json import error

VERSION = 1
"""Of the form of the document; it grows by keys without a change of the number."""


def document(listing: Listing) -> str:
    """Everything that was found."""
    counts = {one.value: listing.counts[one] for one in Severity}
    return _text(
        {
            "version": VERSION,
            "tool": {"name": "amp-migrate", "version": __version__},
            "files": len(listing.files),
            "counts": {**counts, "baseline": listing.known, "fixed": listing.fixed}
            | {"silenced": listing.silenced},
            "projects": _parts(listing),
            "findings": [entry(one) for one in listing.told],
            "errors": [error(one) for one in listing.errors],
        }
    )


def lines(listing: Listing) -> str:
    """One object in a line for each finding; what cannot be read is told on standard error."""
    return "".join(json.dumps(entry(one)) + "\n" for one in listing.told)


def statistics(listing: Listing) -> str:
    """One object for each code and severity."""
    keys = ("code", "severity", "summary", "count")
    return _text([dict(zip(keys, row, strict=True)) for row in counted(listing)])


def entry(one: Told) -> dict[str, Any]:
    """One finding. In a notebook ``line`` and ``column`` count in the ``cell``."""
    finding = one.finding
    place = finding.place
    return {
        "code": finding.code,
        "rule": one.rule.name,
        "severity": finding.severity.value,
        "project": one.project,
        "path": one.file,
        **({"cell": one.cell} if one.cell else {}),
        "line": place.line,
        "column": place.column,
        "end_line": finding.end_line or place.line,
        "message": finding.message,
        "symbol": finding.symbol,
        "expression": finding.expression,
        "confidence": finding.confidence.value,
        "chain": [
            {"text": step.text, **({} if step.place is None else _place(step.place))}
            for step in finding.chain
        ],
        "data": dict(finding.data),
        "fix": (
            None
            if finding.fix is None
            else {"safe": finding.fix.safe, "title": finding.fix.title}
        ),
        "fingerprint": one.fingerprint,
        "help": f"amp-migrate explain {finding.code}",
    }


def _parts(listing: Listing) -> list[dict[str, Any]]:
    """The projects; findings have their number in this list."""
    found = Counter((one.project, one.finding.severity) for one in listing.told)
    return [
        {
            "root": str(part.root),
            "files": part.files,
            "counts": {one.value: found[number, one] for one in Severity},
            "errors": part.errors,
        }
        for number, part in enumerate(listing.parts)
    ]


def _place(place: Place) -> dict[str, Any]:
    return {"path": place.path, "line": place.line, "column": place.column}


def _text(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
