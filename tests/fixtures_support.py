"""Where the training scripts of `fixtures/` are, for the tests that read and those that run them."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures"
MIGRATE = sorted(path.parent.name for path in FIXTURES.glob("migrate/*/plain.py"))
LEAVE = sorted(path.stem for path in FIXTURES.glob("leave/*.py"))

each_migration = pytest.mark.parametrize("name", MIGRATE)
each_left_alone = pytest.mark.parametrize("name", LEAVE)


def plain(name: str) -> str:
    """A script as its author left it."""
    return (FIXTURES / "migrate" / name / "plain.py").read_text(encoding="utf-8")


def golden(name: str) -> str:
    """The same, as the tool rewrites it: generated, then read by eye."""
    return (FIXTURES / "migrate" / name / "migrated.py").read_text(encoding="utf-8")
