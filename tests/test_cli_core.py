"""The command line and the core together."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amp_migrate.cli.main import main

SCRIPT = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(3):
    inputs = torch.randn(8, 4, device=device)
    targets = torch.zeros(8, dtype=torch.long, device=device)
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_bytes(SCRIPT.replace("\n", "\r\n").encode())


def amp(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def test_what_the_diff_shows_is_what_write_writes() -> None:
    diff = amp().stdout_bytes
    subprocess.run(["git", "apply"], input=diff, check=True)
    applied = Path("train.py").read_bytes()
    assert b"    scaler.scale(loss).backward()\r\n" in applied
    subprocess.run(["git", "apply", "-R"], input=diff, check=True)
    assert amp("--write").exit_code == 0
    assert Path("train.py").read_bytes() == applied


def test_a_second_run_changes_nothing() -> None:
    assert amp("--check").exit_code == 1
    amp("--write")
    assert amp("--check").exit_code == 0


def test_standard_input_comes_out_rewritten() -> None:
    amp("--write")
    rewritten = Path("train.py").read_bytes().decode().replace("\r\n", "\n")
    assert amp("-", stdin=SCRIPT).stdout == rewritten


def test_options_arrive() -> None:
    assert "torch.float16" in amp().stdout
    assert "torch.bfloat16" in amp("--dtype", "bfloat16").stdout
    assert "torch.cuda.amp.GradScaler" in amp("--torch-version", "2.1").stdout


def test_what_is_no_python_is_an_error() -> None:
    Path("broken.py").write_text("def f(:\n    loss.backward()\n")
    result = amp("--check")
    assert result.exit_code == 2
    assert "error: broken.py:1: " in result.stderr
    assert "would rewrite train.py" in result.stderr
