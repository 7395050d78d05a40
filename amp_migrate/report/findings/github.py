"""Findings as workflow commands of GitHub Actions, which annotate the lines of a pull request.

https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Severity
from amp_migrate.report.findings.ci import checkout, name
from amp_migrate.report.findings.listing import Listing
from amp_migrate.report.findings.text import said

_COMMANDS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}


def commands(listing: Listing) -> str:
    """One command for each finding, and for each file that cannot be read."""
    return "".join(f"{line}\n" for line in _lines(listing))


def _lines(listing: Listing) -> Iterator[str]:
    folder = checkout()
    for one in listing.told:
        finding = one.finding
        place: dict[str, str | int] = {
            "file": name(one.file, folder),
            "line": one.line,
        }
        if not one.cell:
            place["endLine"] = max(finding.end_line, one.line)
            # Columns are said to be of no use where an annotation covers several lines.
            if place["endLine"] == one.line:
                place["col"] = finding.place.column
        place["title"] = f"{finding.code} {one.rule.name}"
        message = "\n".join(
            [f"{one.where}{finding.message}", *map(said, finding.chain)]
        )
        yield _command(_COMMANDS[finding.severity], place, message)
    for error in listing.errors:
        place = {"file": name(error.path, folder)}
        if error.line:
            place["line"] = error.line
        yield _command("error", {**place, "title": "amp-migrate"}, error.message)


def _command(kind: str, properties: dict[str, str | int], message: str) -> str:
    given = ",".join(f"{key}={_property(str(one))}" for key, one in properties.items())
    return f"::{kind} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
