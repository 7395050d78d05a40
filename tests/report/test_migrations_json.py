"""The JSON report of the commands that rewrite files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result

from amp_migrate.cli.main import main

LOOP = """\
import torch
from torch import nn

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4, device="cuda")).sum()
    loss.backward()
    optimizer.step()
"""
CLOSURE = """\
import torch
from torch import nn

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.LBFGS(model.parameters())
def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4, device="cuda")).sum()
    loss.backward()
    return loss
for step in range(3):
    optimizer.step(closure)
"""
OLD = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def amp(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def report(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    done = amp(*arguments, "--output-format", "json", stdin=stdin)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_changes_reasons_and_errors() -> None:
    Path("a.py").write_text(LOOP)
    Path("b.py").write_text(CLOSURE)
    Path("c.py").write_text("import torch\nloss.backward()\n(")
    found = report()
    assert found["written"] is False
    assert found["counts"] == {
        "files": 2,
        "done": 1,
        "left_alone": 1,
        "under_amp": 0,
        "off": 0,
        "errors": 1,
        "unaligned_sizes": 0,
    }
    assert [one["code"] for one in found["reasons"]] == ["AMP013"]
    (change,) = found["changes"]
    assert change["path"] == "a.py"
    assert change["diff"].encode() == amp("a.py").stdout_bytes
    first, second = found["units"]
    assert first == {
        "project": 0,
        "kind": "training loop",
        "path": "a.py",
        "line": 9,
        "column": 5,
        "outcome": "migrated",
        "function": "<module>",
    }
    assert (second["outcome"], second["function"]) == ("left alone", "closure")
    reason = second["reason"]
    assert reason["code"] == "AMP013" and reason["by_hand"]
    assert reason["blocked_by"]["line"] == 12
    assert reason["blocked_by"]["text"] == "optimizer.step(closure)"
    (error,) = found["errors"]
    assert (error["path"], error["line"]) == ("c.py", 3)


def test_it_says_whether_files_were_written() -> None:
    Path("a.py").write_text(LOOP)
    assert report("--write")["written"] is True
    assert "GradScaler" in Path("a.py").read_text()
    (unit,) = report()["units"]
    assert unit["outcome"] == "under AMP already"


def test_exit_codes_are_those_of_the_mode() -> None:
    Path("a.py").write_text(LOOP)
    done = amp("--check", "--output-format", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["counts"]["done"] == 1
    assert "GradScaler" not in Path("a.py").read_text()


def test_older_interfaces() -> None:
    Path("a.py").write_text(OLD)
    found = report("modernize")
    (unit,) = found["units"]
    assert (unit["kind"], unit["outcome"]) == ("older interface", "modernized")
    assert "+scaler = torch.amp.GradScaler(" in found["changes"][0]["diff"]


def test_places_in_a_notebook_are_in_its_cells() -> None:
    head, loop = LOOP.split("for step", 1)
    cells = [nbformat.v4.new_code_cell(one) for one in (head, f"for step{loop}")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), "a.ipynb")
    (unit,) = report()["units"]
    assert (unit["path"], unit["cell"], unit["line"]) == ("a.ipynb", 2, 4)


def test_it_goes_with_neither_a_plan_nor_a_filter() -> None:
    Path("a.py").write_text(LOOP)
    assert amp("--explain-plan", "--output-format", "json").exit_code == 2
    assert amp("-", "--output-format", "json", stdin=LOOP).exit_code == 2
    (unit,) = report("-", "--diff", stdin=LOOP)["units"]
    assert unit["path"] == "<stdin>"
