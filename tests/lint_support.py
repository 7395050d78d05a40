"""Short ways to lint source text in tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

from amp_migrate.api import Options, lint_paths, lint_source
from amp_migrate.core.findings import Finding
from amp_migrate.core.options import LintOptions

DEFAULTS = Options()


def lint(text: str, **options: Any) -> tuple[Finding, ...]:
    """The findings in one text, under `LintOptions` by name."""
    given = replace(DEFAULTS, lint=LintOptions(**options))
    return lint_source(dedent(text), options=given).findings


def lint_files(
    folder: Path, texts: dict[str, str], **options: Any
) -> dict[str, tuple[Finding, ...]]:
    """The findings in a project of several files, by the file's name in it."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    given = replace(DEFAULTS, lint=LintOptions(**options))
    report = lint_paths([folder], options=given)
    assert not report.errors
    return {
        Path(one.document.path)
        .resolve()
        .relative_to(folder.resolve())
        .as_posix(): (one.result.findings)
        for one in report.migrations
    }


def told(findings: tuple[Finding, ...]) -> list[str]:
    """``12 TCU101`` for each finding."""
    return [f"{found.place.line} {found.code}" for found in findings]
