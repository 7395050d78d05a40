"""Findings for people: in full, in one line each, or counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from amp_migrate.core.findings import Severity, Step
from amp_migrate.report.findings.listing import Listing, Told
from amp_migrate.report.words import number

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}

Line = tuple[str, str]
"""A line and its colour, empty for none."""


def full(listing: Listing) -> Iterator[Line]:
    """Each finding with the source line, the way the number came, and what mends it."""
    for one in listing.told:
        finding = one.finding
        if not one.is_shown:
            continue
        yield _headline(one)
        if finding.place.text:
            yield f"  | {finding.place.text}", ""
        for index, step in enumerate(finding.chain):
            yield f"  {'-> ' if index else ''}{said(step)}", ""
        if finding.fix is not None:
            flag = "--fix" if finding.fix.safe else "--fix --unsafe-fixes"
            yield f"  {flag}: {finding.fix.title}", ""


def said(step: Step) -> str:
    """A step with its place, where its words do not have it already."""
    place = step.place
    if place is None or f":{place.line}" in step.text:
        return step.text
    return f"{step.text} ({place.path}:{place.line})"


def concise(listing: Listing) -> Iterator[Line]:
    """One line for each finding."""
    for one in listing.told:
        if one.is_shown:
            yield _headline(one)


def statistics(listing: Listing) -> Iterator[Line]:
    """One line for each code, the most frequent first: all severities."""
    rows = counted(listing)
    width = len(str(max((count for *_, count in rows), default=0)))
    for code, severity, words, count in rows:
        line = f"{count:>{width}} {code} {severity.value:<7} {words}"
        yield line, COLOURS[severity]


def counted(listing: Listing) -> list[tuple[str, Severity, str, int]]:
    """(code, severity, the rule's title, how many)."""
    found = Counter((one.finding.code, one.finding.severity) for one in listing.told)
    titles = {one.finding.code: one.rule.summary for one in listing.told}
    ordered = sorted(
        found.items(), key=lambda row: (-row[1], row[0][0], row[0][1].rank)
    )
    return [
        (code, severity, titles[code], count) for (code, severity), count in ordered
    ]


def summary(listing: Listing) -> str:
    """One line with numbers."""
    numbers = [
        number(listing.counts[severity], severity.value)
        for severity in Severity
        if severity is not Severity.INFO and listing.counts[severity]
    ]
    infos = listing.counts[Severity.INFO]
    if not numbers:
        numbers.append("nothing found" if not infos else "no errors or warnings")
    files = number(len({*listing.files} - listing.unread), "file")
    parts = [f"{', '.join(numbers)} in {files}"]
    if len(listing.parts) > 1:
        parts[0] += f" of {len(listing.parts)} projects"
    if infos:
        hidden = not all(one.is_shown for one in listing.told)
        parts.append(number(infos, "info") + (" (--severity info)" if hidden else ""))
    if listing.fixed:
        parts.append(f"{listing.fixed} fixed")
    if listing.silenced:
        parts.append(f"{listing.silenced} silenced by comments")
    if listing.known:
        parts.append(f"{listing.known} in the baseline")
    if listing.gone:
        words = "entry" if listing.gone == 1 else "entries"
        parts.append(f"{listing.gone} {words} of the baseline no longer found")
    if listing.unread:
        parts.append(number(len(listing.unread), "file") + " not analysed")
    return "; ".join(parts)


def _headline(one: Told) -> Line:
    finding, place = one.finding, one.finding.place
    severity = finding.severity
    line = (
        f"{place.path}:{place.line}:{place.column} {finding.code}"
        f" {severity.value}: {' '.join(finding.message.split())}"
    )
    return line, COLOURS[severity]
