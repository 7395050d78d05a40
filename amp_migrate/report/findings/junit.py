"""Findings as JUnit's XML: a suite for each file, in which a finding that fails the run is a failure.

Findings that do not fail the run are passing cases with their words in ``system-out``, so that a
report of tests is as red as the exit code.
"""

from __future__ import annotations

import re
from collections import defaultdict
from xml.sax.saxutils import escape, quoteattr

from amp_migrate.core.results import SourceError
from amp_migrate.report.findings.listing import Listing, Told
from amp_migrate.report.findings.text import said

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What an XML 1.0 document cannot hold."""


def suites(listing: Listing) -> str:
    """The document."""
    told: dict[str, list[Told]] = defaultdict(list)
    for one in listing.told:
        told[one.file].append(one)
    errors: dict[str, list[SourceError]] = defaultdict(list)
    for error in listing.errors:
        errors[error.path].append(error)
    files = dict.fromkeys([*listing.files, *told, *errors])
    failures = sum(one.fails for one in listing.told)
    bodies = [_suite(file, told[file], errors[file]) for file in files]
    tests = sum(max(len(told[file]) + len(errors[file]), 1) for file in files)
    head = (
        f'<testsuites name="amp-migrate lint" tests="{tests}" failures="{failures}"'
        f' errors="{len(listing.errors)}">'
    )
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', head, *bodies, "</testsuites>"]
    return "\n".join(lines) + "\n"


def _suite(file: str, told: list[Told], errors: list[SourceError]) -> str:
    failures = sum(one.fails for one in told)
    cases = [_case(one) for one in told]
    cases += [
        f"    <testcase name={_attribute('readable')} classname={_attribute(file)}>\n"
        f"      <error message={_attribute(one.message)}>{_text(str(one))}</error>\n"
        "    </testcase>"
        for one in errors
    ]
    if not cases:
        cases = [f'    <testcase name="clean" classname={_attribute(file)}/>']
    head = (
        f'  <testsuite name={_attribute(file)} tests="{len(cases)}"'
        f' failures="{failures}" errors="{len(errors)}" skipped="0">'
    )
    return "\n".join([head, *cases, "  </testsuite>"])


def _case(one: Told) -> str:
    finding, place = one.finding, one.finding.place
    name = f"{finding.code} {one.rule.name} ({place.path}:{place.line}:{place.column})"
    words = "\n".join(
        [
            f"{place.path}:{place.line}:{place.column}"
            f" {finding.code} {finding.severity.value}: {finding.message}",
            *map(said, finding.chain),
        ]
    )
    inner = f"<system-out>{_text(words)}</system-out>"
    if one.fails:
        kind = _attribute(finding.severity.value)
        message = _attribute(finding.message)
        inner = f"<failure type={kind} message={message}>{_text(words)}</failure>"
    return (
        f"    <testcase name={_attribute(name)} classname={_attribute(one.file)}>\n"
        f"      {inner}\n"
        "    </testcase>"
    )


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", text))
