"""The hooks, as pre-commit runs them on a repository: installed from what is here, without torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amp_migrate.catalogue.rules import refusal

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (
    ".pre-commit-hooks.yaml",
    "LICENSE",
    "README.md",
    "amp_migrate",
    "pyproject.toml",
    "rules",
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pre_commit") is None or shutil.which("git") is None,
    reason="needs pre-commit and git",
)

CLIPPED = """\
import torch
from torch import nn

from steps import scaler

def step(model, optimizer, loss):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
STEPS = """\
import torch

scaler = torch.amp.GradScaler("cuda")
"""


def run(
    *command: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("GIT_", "PYTHONPATH", "VIRTUAL_ENV"))
    }
    clean |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def committed(folder: Path) -> str:
    """Everything in ``folder`` as one commit; its name."""
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        done = run("git", *command, folder=folder)
        assert done.returncode == 0, done.stderr
    return run("git", "rev-parse", "HEAD", folder=folder).stdout.strip()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("hooks") / "amp-migrate"
    folder.mkdir()
    for name in SHIPPED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder, committed(folder)


@pytest.fixture
def project(tmp_path: Path, hooks: tuple[Path, str], home: Path) -> Path:
    folder, revision = hooks
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {folder}\n  rev: {revision}\n  hooks:\n"
        "  - id: amp-migrate\n  - id: amp-migrate-lint\n"
    )
    (tmp_path / "plain.py").write_text("print('hello')\n")
    (tmp_path / "notes.txt").write_text("loss.backward()\n")
    committed(tmp_path)
    installed = pre_commit(tmp_path, home, "install-hooks")
    if installed.returncode and not os.environ.get("CI"):
        if "No matching distribution" in installed.stdout:
            pytest.skip("no network to install the hooks from")
    assert installed.returncode == 0, installed.stdout[-2000:]
    return tmp_path


def pre_commit(
    folder: Path, home: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pre_commit", *arguments, "--color", "never")
    return run(*command, folder=folder, PRE_COMMIT_HOME=str(home))


def add(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    run("git", "add", "-A", folder=folder)


def test_a_clean_commit_passes(project: Path, home: Path) -> None:
    result = pre_commit(project, home, "run", "--all-files")
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("Passed") == 2
    [bin_folder] = home.glob("*/py_env-*/bin")
    found = run(str(bin_folder / "python"), "-c", "import torch", folder=project)
    assert "No module named 'torch'" in found.stderr


def test_a_loop_that_would_change_fails(project: Path, home: Path) -> None:
    script = refusal("AMP024").counter_example
    add(project, train=script)
    result = pre_commit(project, home, "run", "amp-migrate")
    assert result.returncode == 1
    assert "would rewrite train.py" in result.stdout
    assert (project / "train.py").read_text(encoding="utf-8") == script


def test_lint_reads_the_files_that_are_not_handed_to_it(
    project: Path, home: Path
) -> None:
    add(project, steps=STEPS)
    run("git", "commit", "-qm", "steps", "--no-verify", folder=project)
    add(project, clipped=CLIPPED)
    result = pre_commit(project, home, "run", "amp-migrate-lint")
    assert "clipped.py:8" in result.stdout
    assert result.returncode == 1
