"""``amp-migrate modernize``: files, programs of several files, notebooks, and what really runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amp_migrate.api import modernize_paths
from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.main import main

OLD = "import torch\n\nscaler = torch.cuda.amp.GradScaler(1024.0)\n"
NEW = 'import torch\n\nscaler = torch.amp.GradScaler("cuda", init_scale=1024.0)\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def amp(*arguments: str, stdin: bytes | None = None) -> Result:
    given = ["modernize", *arguments]
    return CliRunner().invoke(main, given, input=stdin, prog_name="amp-migrate")


def write(**contents: str) -> None:
    for name, content in contents.items():
        Path(f"{name}.py").write_bytes(content.encode())


def test_a_diff_is_what_one_gets() -> None:
    write(a=OLD, b="x = 1\n", c=NEW)
    result = amp()
    assert result.stdout == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n import torch\n \n"
        "-scaler = torch.cuda.amp.GradScaler(1024.0)\n"
        '+scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)\n'
    )
    assert (
        result.stderr
        == "would modernize 1 of 1 use of an older AMP interface in 1 file\n"
        "next: `--write` rewrites the files\n"
    )
    assert result.exit_code == ExitCode.OK
    assert Path("a.py").read_text() == OLD


def test_write_and_a_second_run() -> None:
    write(a=OLD)
    result = amp("--write")
    assert Path("a.py").read_text() == NEW
    assert result.stdout == ""
    assert (
        "rewrote a.py\nmodernized 1 of 1 use of an older AMP interface" in result.stderr
    )
    again = amp("--write")
    assert again.stderr == "no uses of older AMP interfaces found in 1 file\n"
    assert Path("a.py").read_text() == NEW


@pytest.mark.parametrize("mode", [["--check"], ["--diff", "--exit-code"]])
def test_exit_code(mode: list[str]) -> None:
    write(a=OLD)
    assert amp(*mode).exit_code == ExitCode.WOULD_CHANGE
    write(a=NEW)
    assert amp(*mode).exit_code == ExitCode.OK


def test_standard_input() -> None:
    assert amp("-", stdin=OLD.encode()).stdout == NEW


def test_newlines_and_encoding_stay() -> None:
    old = "# -*- coding: latin-1 -*-\n# é\n" + OLD
    new = "# -*- coding: latin-1 -*-\n# é\n" + NEW
    Path("a.py").write_bytes(old.replace("\n", "\r\n").encode("latin-1"))
    amp("--write")
    assert Path("a.py").read_bytes() == new.replace("\n", "\r\n").encode("latin-1")


def test_wide_characters_before_a_name() -> None:
    write(a='import torch\nx = "é☃😀", torch.cuda.amp.GradScaler()\n')
    amp("--write")
    new = 'import torch\nx = "é☃😀", torch.amp.GradScaler("cuda")\n'
    assert Path("a.py").read_text(encoding="utf-8") == new


def test_what_is_left_is_told() -> None:
    write(a="from torch.cuda.amp import *\n")
    result = amp()
    assert result.exit_code == ExitCode.OK
    assert result.stderr.startswith(
        "a.py:1:1 AMP051 everything is imported from it (*)\n"
    )
    assert (
        "left alone: 1\n"
        "  1  AMP051  used in a way that is not followed\n"
        "             import the name once and call it directly\n" in result.stderr
    )


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntt = torch.cuda\nx = tt.amp.GradScaler()\n",
        "from torch import cuda as c\nimport torch\nx = c.amp.GradScaler()\n",
        "import torch\nx = (torch.cuda  # here\n  .amp.GradScaler())\n",
        "import torch\nf(torch.cuda)\ndef f(c): return (c.  # here\n  amp.GradScaler())\n",
    ],
)
def test_no_way_of_writing_it_is_overlooked(text: str) -> None:
    write(a=text)
    assert amp("--check").exit_code or "AMP051" in amp().stderr


def test_not_python_is_an_error_where_it_matters() -> None:
    write(a="import torch.cuda.amp\nprint 'x'\n", b="print 'x'\n")
    result = amp()
    assert result.exit_code == ExitCode.ERROR
    assert "error: a.py:2: not valid for Python" in result.stderr
    assert "b.py" not in result.stderr


def test_the_oldest_torch_of_the_project_counts() -> None:
    write(
        a="from torch.cuda.amp import custom_fwd\n\n\n@custom_fwd\ndef f():\n    pass\n"
    )
    assert "AMP052" in amp("--torch-version", "2.3").stderr
    Path("requirements.txt").write_text("torch>=2.3\n")
    assert "AMP052" in amp().stderr
    assert 'custom_fwd(device_type="cuda")' in amp("--torch-version", "2.4").stdout
    Path("requirements.txt").write_text("torch>=2.5\n")
    assert 'custom_fwd(device_type="cuda")' in amp().stdout


def test_in_several_processes() -> None:
    for number in range(30):
        write(**{f"m{number}": OLD})
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate", "modernize", "--write", "--jobs", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "modernized 30 of 30 uses of older AMP interfaces in 30 files" in done.stderr
    assert {path.read_text() for path in Path().glob("m*.py")} == {NEW}


def test_from_python() -> None:
    write(a=OLD)
    report = modernize_paths(["."], write=True)
    assert [one.result.path for one in report.changed] == ["a.py"]
    assert Path("a.py").read_text() == NEW


# Several files


def test_a_name_that_other_files_import_stays() -> None:
    write(
        amputil="from torch.cuda.amp import autocast\n",
        train="from amputil import autocast\n\nwith autocast(True):\n    pass\n",
    )
    result = amp()
    assert result.stdout == ""
    assert (
        "amputil.py:1:28 AMP051 autocast is imported from here by train.py"
        in result.stderr
    )


@pytest.mark.parametrize(
    "train",
    [
        "from amputil import *\nc = autocast(True)\n",
        "import amputil\nc = amputil.autocast()\n",
    ],
)
def test_the_same_by_other_ways(train: str) -> None:
    write(amputil="from torch.cuda.amp import autocast\n", train=train)
    assert amp().stdout == ""


def test_a_name_of_its_own_in_each_file() -> None:
    text = "from torch.cuda.amp import autocast\n\nwith autocast():\n    pass\n"
    write(one="import two\n" + text, two=text)
    amp("--write")
    for name in ("one", "two"):
        assert 'autocast("cuda")' in Path(f"{name}.py").read_text()


def test_a_test_in_a_file_that_is_not_given_keeps_the_class() -> None:
    write(
        train=OLD + "import check\n",
        check="import torch\n\n\ndef ok(s):\n    return isinstance(s, torch.cuda.amp.GradScaler)\n",
    )
    result = amp("train.py")
    assert result.stdout == ""
    assert "AMP051" in result.stderr and "check.py" in result.stderr
    both = amp("--write")
    assert both.exit_code == ExitCode.OK
    assert (
        "torch.cuda" not in Path("train.py").read_text() + Path("check.py").read_text()
    )


def test_a_notebook() -> None:
    pytest.importorskip("nbformat")
    cells = ["import torch\n%matplotlib inline", "scaler = torch.cuda.amp.GradScaler()"]
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "execution_count": None,
                "id": f"c{number}",
                "metadata": {},
                "outputs": [],
                "source": source.splitlines(keepends=True),
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    Path("a.ipynb").write_text(json.dumps(notebook, indent=1) + "\n")
    amp("--write")
    sources = [
        "".join(c["source"]) for c in json.loads(Path("a.ipynb").read_text())["cells"]
    ]
    assert sources == [cells[0], 'scaler = torch.amp.GradScaler("cuda")']


# What really runs

SCRIPT = """\
import torch
import torch.cuda.amp
from torch import nn
from torch.cuda import amp
from torch.cuda.amp import GradScaler, autocast
from torch.cuda.amp import custom_bwd, custom_fwd


class Square(torch.autograd.Function):
    @staticmethod
    @custom_fwd
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @amp.custom_bwd
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class Cube(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @custom_bwd
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad


@autocast(False)
def loss_of(model, x, y):
    return nn.functional.mse_loss(Cube.apply(Square.apply(model(x))), y)


torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scalers = [
    GradScaler(1024.0, enabled=False),
    amp.GradScaler(2.0, 4.0, 0.5, 10, False),
    torch.cuda.amp.GradScaler(enabled=False),
    torch.cpu.amp.GradScaler(16.0, growth_interval=3),
]
assert all(isinstance(scaler, (torch.amp.GradScaler)) for scaler in scalers)
print([scaler.state_dict() for scaler in scalers])
for scaler in scalers:
    optimizer.zero_grad()
    with amp.autocast(False, torch.float16, True), torch.cpu.amp.autocast(True):
        out = model(torch.ones(2, 4))
    with torch.cuda.amp.autocast(enabled=False):
        loss = loss_of(model, torch.ones(2, 4), torch.zeros(2, 1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(out.dtype, repr(loss.item()), model.weight.tolist())
"""


def test_no_warning_is_left_and_the_result_is_the_same() -> None:
    pytest.importorskip("torch")
    write(old=SCRIPT, new=SCRIPT)
    assert amp("new.py", "--write", "--torch-version", "2.4").exit_code == ExitCode.OK
    assert Path("new.py").read_text() != SCRIPT

    def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *options, name]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    before = run("old.py")
    assert before.returncode == 0 and before.stdout
    after = run(
        "new.py", "-W", "error::FutureWarning", "-W", "error::DeprecationWarning"
    )
    assert after.stderr == ""
    assert after.stdout == before.stdout
    assert "is deprecated" in before.stderr
