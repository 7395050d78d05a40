"""What it takes to read notebooks, which the base installation is without."""

from __future__ import annotations

from importlib.util import find_spec

from amp_migrate.core.results import SourceError

INSTALL = 'pip install "amp-migrate[notebook]"'
"""What makes notebooks readable."""


def readable() -> bool:
    """Whether they are."""
    return find_spec("nbformat") is not None


def unreadable(path: str) -> SourceError:
    """The error to raise where they are not."""
    return SourceError(path, f"notebooks need nbformat: {INSTALL}")
