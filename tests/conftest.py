"""Options and paths that all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The helper modules beside the tests are imported by their plain names, however pytest is run.
sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write fixtures/migrate/*/migrated.py from what the tool makes of plain.py",
    )
