"""`lint` with `fix`: what is mended, what is left, and that programs compute what they did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from amp_migrate.api import Options, Result, lint_paths, lint_source
from amp_migrate.core.findings import Finding
from amp_migrate.core.options import LintOptions
from amp_migrate.lint.fixes import rewrite

SCRIPT = '''\
"""Trains a little."""
import torch
from torch import nn

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)  # for now

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    x = torch.randn(2, 3, 8, 8).to(device)
    optimizer.zero_grad(set_to_none=False)
    mask = torch.ones(
        2, 4,  # one a channel
        dtype=torch.float32,
    ).to(device, non_blocking=True)
    loss = (model(x).mean((2, 3)) * mask).pow(2).mean() + torch.zeros(()).to(device)
    loss.backward()
    optimizer.step(); torch.cuda.synchronize()

    # give it back
    torch.cuda.empty_cache()  # every step
    if step:
        losses.append(loss.item())
'''
SAFE = '''\
"""Trains a little."""
import torch
from torch import nn

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.manual_seed(0)
# for now

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    x = torch.randn(2, 3, 8, 8).to(device)
    optimizer.zero_grad(set_to_none=False)
    mask = torch.ones(
        2, 4,  # one a channel
        dtype=torch.float32,
        device=device,
    )
    loss = (model(x).mean((2, 3)) * mask).pow(2).mean() + torch.zeros((), device=device)
    loss.backward()
    optimizer.step()

    # give it back
    torch.cuda.empty_cache()  # every step
    if step:
        losses.append(loss.item())
'''


def mend(text: str, *, unsafe: bool = False, select: tuple[str, ...] = ()) -> Result:
    """A text with its fixes made."""
    given = LintOptions(select=select, fix=True, unsafe_fixes=unsafe)
    return lint_source(text, options=replace(Options(), lint=given))


def codes(found: tuple[Finding, ...]) -> list[str]:
    return sorted(one.code for one in found)


def losses(text: str) -> list[float]:
    """What a script puts into ``losses`` on the CPU."""
    space: dict[str, object] = {}
    try:
        exec(compile(text, "script", "exec"), space)
    finally:
        torch.autograd.set_detect_anomaly(False)
    found = space["losses"]
    assert isinstance(found, list)
    return found


def test_what_is_safe_is_mended_and_the_rest_is_left() -> None:
    result = mend(SCRIPT, select=("TCU205", "TCU3"))
    assert result.output == SAFE
    assert codes(result.fixed) == ["TCU205", "TCU302", "TCU303", "TCU303"]
    assert codes(result.findings) == ["TCU302", "TCU303", "TCU304", "TCU307", "TCU309"]


def test_a_second_run_changes_nothing() -> None:
    assert mend(SAFE).output == SAFE
    unsafe = mend(SCRIPT, unsafe=True).output
    assert mend(unsafe, unsafe=True).output == unsafe


def test_unsafe_fixes_are_made_where_they_are_asked_for() -> None:
    output = mend(SCRIPT, unsafe=True).output
    assert "nn.Conv2d(3, 4, 3, bias=False)" in output
    assert "optimizer.zero_grad()\n" in output
    assert "x = torch.randn(2, 3, 8, 8, device=device)\n" in output
    assert "    # give it back\n    # every step\n    if step:\n" in output


def test_a_safe_fix_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    before, after = losses(SCRIPT), losses(mend(SCRIPT).output)
    assert len(before) == 2 and before == after


def test_only_what_is_selected_is_mended() -> None:
    output = mend(SCRIPT, select=("TCU302",)).output
    assert output == SCRIPT.replace("; torch.cuda.synchronize()", "")


def test_nothing_is_mended_unless_it_is_asked_for() -> None:
    result = lint_source(SCRIPT)
    assert not result.changed and not result.fixed


def test_a_clean_file_stays_clean() -> None:
    text = dedent("""\
        import torch
        from torch import nn

        device = torch.device("cuda")
        model = nn.Linear(8, 8).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            mask = torch.zeros(100, 200, 300, 400, 500, 6000, dtype=torch.float32).to(device)
            optimizer.zero_grad()
            model(mask).sum().backward()
            optimizer.step()
        """)
    made = """\
    mask = torch.zeros(
        100, 200, 300, 400, 500, 6000, dtype=torch.float32, device=device
    )
"""
    assert made in mend(text).output


def test_a_fix_that_does_not_help_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rewrite, "rewrite", lambda text, edits, length: f"{text}x = 1\n"
    )
    result = mend(SCRIPT, select=("TCU302",))
    assert result.output == SCRIPT and not result.fixed
    assert codes(result.findings) == ["TCU302", "TCU302"]


def test_a_fix_that_loses_a_comment_is_not_made() -> None:
    text = SCRIPT.replace(
        "set_to_none=False)", "\n        set_to_none=False  # why\n    )"
    )
    result = mend(text, unsafe=True, select=("TCU304",))
    assert result.output == text and codes(result.findings) == ["TCU304"]


def test_a_notebook_is_mended_cell_by_cell(tmp_path: Path) -> None:
    lines = SCRIPT.splitlines(keepends=True)
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": str(number),
            "metadata": {},
            "outputs": [],
            "source": part,
        }
        for number, part in enumerate([["%matplotlib inline\n", *lines[:9]], lines[9:]])
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps(book, indent=1), encoding="utf-8")
    given = LintOptions(select=("TCU303", "TCU302"), fix=True)
    report = lint_paths([path], options=Options(lint=given), write=True)
    assert not report.errors
    (one,) = report.migrations
    assert codes(one.result.fixed) == ["TCU302", "TCU303", "TCU303"]
    written = json.loads(path.read_text(encoding="utf-8"))
    source = "".join("".join(cell["source"]) for cell in written["cells"])
    assert "torch.zeros((), device=device)" in source
    assert "%matplotlib inline" in source and "synchronize" not in source
    (left,) = one.result.findings[-1:]
    assert left.place.path.endswith("cell 2")


def test_files_are_written(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    given = LintOptions(select=("TCU205", "TCU3"), fix=True)
    lint_paths([tmp_path], options=Options(lint=given), write=True)
    assert path.read_text(encoding="utf-8") == SAFE
