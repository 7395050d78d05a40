"""With a cache, every answer is the one without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cache_support import (
    ALONE,
    MODEL,
    OLD,
    PROGRAM,
    TRAIN,
    amp,
    entries,
    process,
    remembered,
    worked_on,
    write,
)

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = [
    ["--check"],
    ["--diff"],
    ["--explain-plan", "--verbose"],
    ["--dtype", "bfloat16", "train.py", "alone.py"],
    ["modernize", "--check"],
    ["modernize", "--diff", "--exit-code"],
    ["lint", "--severity", "info"],
    ["lint", "--output-format", "json"],
    ["lint", "--output-format", "sarif"],
    ["lint", "--output-format", "gitlab", "train.py"],
    ["lint", "--diff", "--unsafe-fixes"],
    ["lint", "--statistics", "--select", "ALL"],
]


def notebook(code: str) -> str:
    cell = {"cell_type": "code", "source": code, "metadata": {}, "outputs": []}
    cells = [{**cell, "execution_count": None, "id": "a"}]
    return json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_all_output_is_the_same(command: list[str]) -> None:
    trouble = {
        "broken.py": "import torch\nloss.backward(\n",
        "latin.py": "# coding: klingon\nimport torch\nloss.backward()\n",
        "book.ipynb": notebook(ALONE),
        "windows.py": ALONE.replace("\n", "\r\n"),
        "quiet.py": OLD + "x = torch.nn.Linear(1501, 3)  # amp: ignore[TCU101]\n",
    }
    write(PROGRAM | trouble)
    plain = amp(*command, "--no-cache")
    assert entries() == []
    first = amp(*command)
    assert entries() != []
    assert (first, remembered(*command)) == (plain, plain)


@pytest.mark.parametrize(
    "command", [["--write"], ["modernize", "--write"], ["lint", "--fix"]], ids=" ".join
)
def test_what_is_written_is_the_same(command: list[str], project: Path) -> None:
    write(PROGRAM)
    before = {path: path.read_bytes() for path in Path().glob("*.py")}
    plain = amp(*command, "--no-cache")
    wanted = {path: path.read_bytes() for path in Path().glob("*.py")}
    for run in (amp, remembered):
        for path, data in before.items():
            path.write_bytes(data)
        assert run(*command) == plain
        assert {path: path.read_bytes() for path in Path().glob("*.py")} == wanted


def test_standard_input_is_remembered() -> None:
    write(PROGRAM)
    given = ["-", "--stdin-filename", "train.py"]
    plain = amp(*given, "--no-cache", stdin=TRAIN.encode())
    assert amp(*given, stdin=TRAIN.encode()) == plain
    assert remembered(*given, stdin=TRAIN.encode()) == plain
    assert b"GradScaler" in plain.out


def test_a_change_costs_its_own_program() -> None:
    write(PROGRAM)
    assert worked_on("lint") == set(PROGRAM)
    assert worked_on("lint") == set()
    write({"model.py": MODEL + "\n"})
    assert worked_on("lint") == {"model.py", "train.py"}
    write({"model.py": MODEL + "import old\n"})
    assert worked_on("lint") == {"model.py", "train.py", "old.py"}
    assert worked_on("lint") == set()


def test_one_file_of_a_program_is_judged_by_all_of_it() -> None:
    write(PROGRAM)
    amp("--check", "train.py")
    assert worked_on("--check", "train.py") == set()
    write({"model.py": MODEL.replace("self.layer(inputs)", "self.layer(inputs).log()")})
    assert worked_on("--check", "train.py") == {"model.py", "train.py"}


def test_a_project_may_be_elsewhere(project: Path) -> None:
    write(PROGRAM)
    first = amp("lint", "--output-format", "concise")
    moved = project.parent / "elsewhere"
    shutil.copytree(project, moved)
    os.chdir(moved)
    assert remembered("lint", "--output-format", "concise") == first
    os.chdir(project.parent)
    told = amp("lint", "--output-format", "concise", "elsewhere").out
    assert (
        told == amp("lint", "--output-format", "concise", "elsewhere", "--no-cache").out
    )
    assert b"elsewhere/train.py:" in told


def test_files_are_called_as_they_are_seen_from_here(project: Path) -> None:
    write(
        PROGRAM | {"model.py": MODEL.replace("inputs)\n", "inputs).sigmoid().log()\n")}
    )
    given = ["--check", str(project / "train.py")]
    here = amp(*given)
    assert b" model.py" in here.err
    os.chdir(project.parent)
    there = amp(*given, "--no-cache")
    assert b" project/model.py" in there.err
    assert amp(*given) == there


# Everything that an answer depends upon

SHORT = """\
import torch

from model import Model

model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for inputs in batches:
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
"""
"""Black would leave it as it is, also where lines are shorter."""
NARROW = "[tool.black]\nline-length = 60\n"
CHANGES = {
    "a file": {"train.py": SHORT + "    # More.\n"},
    "a file it imports": {"model.py": MODEL.replace("inputs)", "inputs).bfloat16()")},
    "a file that imports it": {"late.py": "from train import optimizer\noptimizer.step()\n"},
    "what an import means": {"torch/__init__.py": "import model\n"},
    "black's line length": {"pyproject.toml": NARROW},
    "black's line length for a folder above": {"../pyproject.toml": NARROW, ".git": ""},
    "black's configuration of the user": {"../home/black": NARROW},
    "black's hook": {
        ".pre-commit-config.yaml": "repos:\n- repo: x\n  hooks:\n  - id: black\n    args: [-l, '60']\n"
    },
    "the torch that is required": {"requirements.txt": "torch==2.0\n"},
    "a torch that is too old": {"requirements.txt": "torch==1.4\n"},
    "the tool's own table": {"pyproject.toml": '[tool.amp-migrate]\ndtype = "bfloat16"\n'},
    "what is ignored": {".gitignore": "train.py\n"},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str, project: Path) -> None:
    # Black itself remembers where it found its settings.
    run = process if change.startswith("black") else amp
    write({"model.py": MODEL, "train.py": SHORT})
    if ".git" in CHANGES[change]:
        # Where black looks for its settings ends at the root of a repository.
        (project / ".git").rmdir()
    before = run("--diff")
    changes = {name: text for name, text in CHANGES[change].items() if text}
    write(changes)
    after = run("--diff", "--no-cache")
    assert after != before
    assert (run("--diff"), remembered("--diff")) == (after, after)
    for name in changes:
        Path(name).unlink()
    write({"model.py": MODEL, "train.py": SHORT})
    assert run("--diff") == before


LIBRARY = """\
import torch


def fit(model, optimizer, batches):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
"""
CALLER = """\
import torch

from lib.trainer import fit

model = torch.nn.Linear(8, 8).cuda()
fit(model, torch.optim.SGD(model.parameters(), lr=0.1), [])
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", "from setuptools import setup\nsetup()\n"),
        ("pyproject.toml", "[project]\nname = 'lib'\n"),
        ("README.md", "Call `fit(model, optimizer, batches)`.\n"),
        ("lib/__init__.py", "__version__ = '1'\n"),
    ],
)
def test_who_else_may_call_is_seen(name: str, text: str) -> None:
    write({"lib/__init__.py": "", "lib/trainer.py": LIBRARY, "run.py": CALLER})
    before = amp("--diff")
    write({name: text})
    after = amp("--diff", "--no-cache")
    assert before != after
    assert (amp("--diff"), remembered("--diff")) == (after, after)


def test_what_a_configuration_calls_is_seen() -> None:
    script = SHORT.replace("torch.optim.SGD(", "instantiate(cfg.optimizer, ")
    write(
        {
            "train.py": "from hydra.utils import instantiate\n" + script,
            "model.py": MODEL,
            "conf/run.yaml": "optimizer:\n  _target_: torch.optim.SGD\n",
        }
    )
    before = amp("--diff")
    write({"conf/run.yaml": "optimizer:\n  _target_: torch.optim.LBFGS\n"})
    after = amp("--diff", "--no-cache")
    assert before != after
    assert (amp("--diff"), remembered("--diff")) == (after, after)


def test_layers_of_the_users_own_are_seen() -> None:
    layers = '[layers.Fused]\nlike = "Linear"\norigins = ["fused.Linear"]\n'
    write(
        {
            "layers.toml": layers,
            "pyproject.toml": '[tool.amp-migrate.lint]\nextend-rules = ["layers.toml"]\n',
            "a.py": "import torch\nimport fused\nlayer = fused.Linear(1501, 512)\n",
        }
    )
    before = process("lint")
    assert b"1501" in before.out
    write({"layers.toml": layers.replace("fused.Linear", "other.Linear")})
    assert b"1501" not in process("lint").out
    write({"layers.toml": layers})
    assert remembered("lint") == before


def test_the_tool_itself_is_seen(tmp_path: Path) -> None:
    write(PROGRAM)
    copy = tmp_path / "copy"
    for name in ("amp_migrate", "rules"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, ignore=leave)

    def told() -> str:
        command = [sys.executable, "-m", "amp_migrate", "lint", "--severity", "info"]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    assert "fills gradients with zeros" in told()
    rule = copy / "rules" / "TCU304-gradients-zeroed.toml"
    rule.write_text(rule.read_text("utf-8").replace("fills", "pads"), "utf-8")
    assert "pads gradients with zeros" in told()
    code = copy / "amp_migrate" / "lint" / "throughput" / "zeroing.py"
    with code.open("a") as file:
        file.write("\n\nraise RuntimeError('another version')\n")
    assert "TCU304" not in told()


# Every file that is looked into

RECORDER = """
import json, os, sys
root, out, *arguments = sys.argv[1:]
seen = set()

def hook(event, given):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(given[0], (str, bytes, os.PathLike)):
        path = os.path.realpath(os.fsdecode(given[0]))
        if path.startswith(root):
            seen.add(path)

from amp_migrate.cli.main import main
sys.addaudithook(hook)
try:
    main(arguments, prog_name="amp-migrate")
finally:
    with open(out, "w") as file:
        json.dump(sorted(seen), file)
"""


@pytest.mark.parametrize(
    "command",
    [["--diff"], ["lint", "--diff", "--unsafe-fixes"], ["modernize", "--diff"]],
    ids=" ".join,
)
def test_a_run_with_a_cache_looks_into_every_file_that_one_without_does(
    command: list[str], project: Path, tmp_path: Path
) -> None:
    # What is not even opened cannot be known to be as it was.
    write(
        PROGRAM
        | {
            "pyproject.toml": "[tool.black]\nline-length = 60\n",
            ".pre-commit-config.yaml": "repos: []\n",
            ".gitignore": "nothing\n",
            "README.md": "fit(x)\n",
            "docs/index.md": "fit(x)\n",
            "conf/a.yaml": "_target_: model.Model\n",
            "hydrated.py": "import hydra\n" + CALLER,
            "lib/__init__.py": "",
            "lib/trainer.py": LIBRARY,
            "lib/pyproject.toml": "[tool.black]\n",
            "requirements/train.txt": "torch>=2.4\n",
            "setup.cfg": "[metadata]\nname = x\n",
            "environment.yml": "dependencies:\n- pytorch>=2.4\n",
            "../home/black": "[tool.black]\n",
            "book.ipynb": notebook(ALONE),
        }
    )
    out = tmp_path / "seen.json"

    def opened(*more: str) -> set[str]:
        given = [sys.executable, "-c", RECORDER, str(tmp_path.resolve()), str(out)]
        arguments = [*command, *more, "--jobs", "1"]
        subprocess.run([*given, *arguments], capture_output=True, check=False)
        return {one for one in json.loads(out.read_text()) if "/cache" not in one}

    without = opened("--no-cache")
    amp(*command)
    assert remembered(*command) == amp(*command, "--no-cache")
    assert {str(project / "train.py"), str(project / "README.md")} <= without
    assert without - opened() == set()
