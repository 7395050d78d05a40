"""Lint as plugins of flake8, one for the codes of each kind. Each file is looked at alone.

What goes wrong (a configuration that means nothing) is raised: flake8 tells of it, with the plugin's name.

flake8 has no dependency on them, nor they on it: it finds them by their entry points.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from amp_migrate import __version__, api
from amp_migrate.core.findings import Finding
from amp_migrate.lint.selection import selection
from amp_migrate.run import config

Reported = tuple[int, int, str, type]
"""What flake8 takes: a line, a column from 0, code and words, and who says so."""


class _Plugin:
    prefix = ""
    name = "amp-migrate"
    version = __version__

    def __init__(self, tree: ast.AST, filename: str, lines: Sequence[str]) -> None:
        """flake8 gives what the names of these parameters ask for; a ``tree`` makes it one call a file."""
        # Not in `run`, whose exceptions flake8 does not catch.
        self.found = _found(filename, "".join(lines))

    def run(self) -> Iterator[Reported]:
        """The findings of the file whose codes begin with ``prefix``."""
        for one in self.found:
            if one.code.startswith(self.prefix):
                place = one.place
                message = f"{one.code} {one.message}"
                yield place.line, place.column - 1, message, type(self)


class Amp(_Plugin):
    """Misuse of AMP, and comments that silence nothing."""

    prefix = "AMP"


class Tcu(_Plugin):
    """Sizes and habits that leave Tensor Cores idle."""

    prefix = "TCU"


@lru_cache(maxsize=1)
def _settings(filename: str) -> config.Settings:
    return config.load([filename])


@lru_cache(maxsize=1)
def _found(filename: str, text: str) -> tuple[Finding, ...]:
    """Both plugins are asked for one file after the other."""
    settings = _settings(filename)
    # Its patterns are relative to the project, which a text by itself knows nothing of.
    lint = replace(settings.options.lint, per_file_ignores=())
    result = api.lint_source(
        text, path=filename, options=replace(settings.options, lint=lint)
    )
    chosen = selection(filename, str(settings.root), settings.options.lint)
    least = settings.showing.severity
    return tuple(
        one
        for one in result.findings
        if one.severity.rank <= least.rank and chosen.takes(one.code)
    )
