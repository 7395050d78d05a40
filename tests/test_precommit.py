"""The hooks, as pre-commit runs them on a repository: installed from what is here, without torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amp_migrate.catalogue.rules import lint_rule, refusal

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (
    ".pre-commit-hooks.yaml",
    "LICENSE",
    "README.md",
    "amp_migrate",
    "pyproject.toml",
    "rules",
)

HOOKS = (
    "amp-migrate",
    "amp-migrate-lint",
    "amp-migrate-modernize",
    "amp-migrate-fix",
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
        + "".join(f"  - id: {name}\n" for name in HOOKS)
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
    assert result.stdout.count("Passed") == len(HOOKS)
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


@pytest.mark.parametrize(
    ("hook", "text", "wanted"),
    [
        (
            "amp-migrate-modernize",
            "from torch.cuda.amp import GradScaler\n\nscaler = GradScaler(1024.0)\n",
            'from torch.amp import GradScaler\n\nscaler = GradScaler("cuda", init_scale=1024.0)\n',
        ),
        (
            "amp-migrate-fix",
            lint_rule("AMP209").example,
            lint_rule("AMP209").counter_example,
        ),
    ],
)
def test_a_hook_that_writes_fails_once(
    project: Path, home: Path, hook: str, text: str, wanted: str
) -> None:
    add(project, train=text)
    first = pre_commit(project, home, "run", hook)
    assert first.returncode == 1
    assert "files were modified by this hook" in first.stdout
    assert (project / "train.py").read_text(encoding="utf-8") == wanted
    run("git", "add", "-A", folder=project)
    again = pre_commit(project, home, "run", hook)
    assert again.returncode == 0, again.stdout


def test_what_cannot_be_fixed_is_the_lint_hooks_to_tell(
    project: Path, home: Path
) -> None:
    add(project, clipped=CLIPPED, steps=STEPS)
    assert pre_commit(project, home, "run", "amp-migrate-fix").returncode == 0
    assert pre_commit(project, home, "run", "amp-migrate-lint").returncode == 1
    assert (project / "clipped.py").read_text(encoding="utf-8") == CLIPPED


STYLES = {
    "black": "x = 'a'\n",
    "ruff": "import os\n",
    "amp-migrate": refusal("AMP024").counter_example,
    "amp-migrate-lint": lint_rule("AMP101").example,
}


@pytest.mark.parametrize("hook", STYLES)
def test_our_own_hooks(tmp_path: Path, hook: str) -> None:
    """Each finds what is wrong with a file of ours, and nothing where nothing is."""
    for name in (".pre-commit-config.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".gitignore").write_text(".venv\n")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    test = tmp_path / "tests" / "test_it.py"
    test.parent.mkdir()
    test.write_text("print()\n")
    committed(tmp_path)
    clean = pre_commit(tmp_path, tmp_path / "home", "run", "--all-files")
    assert clean.returncode == 0, clean.stdout
    assert clean.stdout.count("Passed") == len(STYLES)
    test.write_text(STYLES[hook], encoding="utf-8")
    found = pre_commit(tmp_path, tmp_path / "home", "run", "--all-files", hook)
    assert found.returncode == 1, found.stdout
