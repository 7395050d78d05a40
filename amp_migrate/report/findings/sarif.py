"""Findings as SARIF 2.1.0, which GitHub code scanning and many viewers read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from amp_migrate import __version__
from amp_migrate.catalogue.rules import LintRule, lint_rule
from amp_migrate.core.findings import Severity, Step
from amp_migrate.core.results import Place, SourceError
from amp_migrate.report.findings.ci import checkout, name
from amp_migrate.report.findings.listing import Listing, Told

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "ampMigrateFinding/v1"
"""The name of our fingerprint; the number grows with a change of what it is made of."""
_BASE = "SRCROOT"
_PROJECT = "PROJECT"
"""With a number: what paths in a project are relative to that lies elsewhere."""
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class _Bases:
    """What paths are relative to: the checkout, and the projects that lie outside of it."""

    def __init__(self, listing: Listing) -> None:
        self._checkout = checkout()
        outside = [
            part.root
            for part in listing.parts
            if not part.root.is_relative_to(self._checkout)
        ]
        self._projects = {
            root: f"{_PROJECT}{number}" for number, root in enumerate(outside, 1)
        }

    def as_plain(self) -> dict[str, Any]:
        """All that have a name."""
        named = {_BASE: self._checkout} | {
            identity: root for root, identity in self._projects.items()
        }
        return {
            identity: {"uri": folder.as_uri().rstrip("/") + "/"}
            for identity, folder in named.items()
        }

    def artifact(self, path: str) -> dict[str, Any]:
        """Where a file is."""
        found = name(path, self._checkout)
        if Path(found).is_absolute():
            # The innermost, where one project is in another.
            for root in Path(found).parents:
                if root in self._projects:
                    uri = quote(os.fsencode(Path(found).relative_to(root).as_posix()))
                    return {"uri": uri, "uriBaseId": self._projects[root]}
            return {"uri": Path(found).as_uri()}
        artifact = {"uri": quote(os.fsencode(found))}
        if not found.startswith("<"):
            artifact["uriBaseId"] = _BASE
        return artifact


def log(listing: Listing) -> str:
    """A log with one run."""
    bases = _Bases(listing)
    codes = sorted({one.finding.code for one in listing.told})
    numbers = {code: number for number, code in enumerate(codes)}
    run = {
        "tool": {
            "driver": {
                "name": "amp-migrate",
                "semanticVersion": __version__,
                "rules": [_rule(lint_rule(code)) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": bases.as_plain(),
        "invocations": [
            {
                "executionSuccessful": not listing.errors,
                "toolExecutionNotifications": [
                    _notification(error, bases) for error in listing.errors
                ],
            }
        ],
        "results": [
            _result(one, numbers[one.finding.code], bases) for one in listing.told
        ],
    }
    return (
        json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)
        + "\n"
    )


def _rule(rule: LintRule) -> dict[str, Any]:
    steps = "\n".join(rule.by_hand)
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.message},
        "help": {
            "text": f"{rule.why}\n\n{steps}",
            "markdown": f"{rule.why}\n\n```python\n{steps}\n```",
        },
        "defaultConfiguration": {"level": _LEVELS[Severity(rule.severity)]},
        "properties": {"tags": [_family(rule.code)]},
    }


def _family(code: str) -> str:
    if code.startswith("AMP"):
        return "correctness"
    return "shapes" if code.startswith("TCU1") else "performance"


def _result(one: Told, number: int, bases: _Bases) -> dict[str, Any]:
    finding = one.finding
    region: dict[str, Any] = {"startLine": one.line}
    if not one.cell:
        region["startColumn"] = finding.place.column
        if finding.end_line > one.line:
            region["endLine"] = finding.end_line
    if finding.place.text:
        region["snippet"] = {"text": finding.place.text}
    location = _physical(one.file, bases, region)
    if finding.symbol:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.symbol}]
    steps = [
        _step(identity, step, bases) for identity, step in enumerate(finding.chain, 1)
    ]
    result = {
        "ruleId": finding.code,
        "ruleIndex": number,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{one.where}{finding.message}"},
        "locations": [location],
        "partialFingerprints": {FINGERPRINT: one.fingerprint},
        "properties": {
            "confidence": finding.confidence.value,
            "expression": finding.expression,
            "data": dict(finding.data),
        },
    }
    if steps:
        result["relatedLocations"] = steps
    return result


def _step(identity: int, step: Step, bases: _Bases) -> dict[str, Any]:
    location: dict[str, Any] = {"id": identity, "message": {"text": step.text}}
    place = step.place
    # The lines of a notebook's cell are no lines of its file.
    if place is not None and place.line > 0 and not is_cell(place):
        location |= _physical(place.path, bases, {"startLine": place.line})
    return location


def is_cell(place: Place) -> bool:
    """Whether a place counts its lines in the cell of a notebook."""
    return ".ipynb:cell " in place.path


def _physical(path: str, bases: _Bases, region: dict[str, Any]) -> dict[str, Any]:
    artifact = bases.artifact(path)
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _notification(error: SourceError, bases: _Bases) -> dict[str, Any]:
    region = {"startLine": error.line or 1}
    return {
        "level": "error",
        "message": {"text": error.message},
        "locations": [_physical(error.path, bases, region)],
    }
