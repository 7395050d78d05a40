"""What the tests of proofs share."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from validated import Said

from amp_migrate.cli.main import main


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes files and validates: ``validate({"train.py": text}, "train.py", ...)``."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, str], *words: str) -> Said:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        options = ["--threads", "1", "--device", "cpu"]
        found = CliRunner().invoke(main, ["validate", *options, *words])
        return Said(found.exit_code, found.stdout, found.stderr)

    return run
