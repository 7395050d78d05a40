"""A project to run over, and a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; the cache lies beside it."""
    monkeypatch.setenv("AMP_MIGRATE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("AMP_MIGRATE_NO_CACHE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    # Black's own configuration of whoever runs the tests is nothing to them.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder
