"""Where an editor finds the page of a rule: on a site, or in files that are written when asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

from amp_migrate.catalogue.rules import rule
from amp_migrate.report.rules import page


class Pages:
    """The pages of the rules, for the time that the server runs."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def link(self, code: str, site: str | None) -> str:
        """The address of a page; ``site``: where ``{code}`` stands for the code."""
        if site is not None:
            return site.replace("{code}", code)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="amp-migrate-rules-")
        file = Path(self._folder.name, f"{code}.md")
        if not file.exists():
            file.write_text(page(rule(code)), encoding="utf-8")
        return file.as_uri()

    def close(self) -> None:
        """Take the files away."""
        if self._folder is not None:
            self._folder.cleanup()
