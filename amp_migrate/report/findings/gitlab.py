"""Findings as a Code Quality report of GitLab.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from amp_migrate.core.findings import Severity
from amp_migrate.report.findings.ci import checkout, name
from amp_migrate.report.findings.listing import Listing

_SEVERITIES = {
    Severity.ERROR: "critical",
    Severity.WARNING: "minor",
    Severity.INFO: "info",
}
UNREADABLE = "unreadable-file"
"""The check that a file fails which cannot be read."""


def code_quality(listing: Listing) -> str:
    """A list of findings, and of files that cannot be read."""
    folder = checkout()
    issues = [
        _issue(
            f"{one.finding.code}: {one.where}{one.finding.message}",
            one.finding.code,
            one.fingerprint,
            _SEVERITIES[one.finding.severity],
            name(one.file, folder),
            one.line,
        )
        for one in listing.told
    ]
    for error in listing.errors:
        path = name(error.path, folder)
        print_ = hashlib.sha256(f"{path}\0{error.message}".encode("utf-8", "replace"))
        issues.append(
            _issue(
                error.message,
                UNREADABLE,
                print_.hexdigest()[:32],
                "blocker",
                path,
                error.line or 1,
            )
        )
    return json.dumps(issues, indent=2) + "\n"


def _issue(
    description: str,
    check: str,
    fingerprint: str,
    severity: str,
    path: str,
    line: int,
) -> dict[str, Any]:
    return {
        "description": description,
        "check_name": check,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }
