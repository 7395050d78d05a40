"""The comparer of two versions, on versions that differ in a known way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ROOT / "benchmarks" / "compare.py"
MIGRATED = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(50, 1001).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    loss = model(x.to(device)).sum()
    loss.backward()
    optimizer.step()
"""
REFUSED = MIGRATED.replace("loss.backward()", "loss.backward(torch.ones(()))")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "migrated.py").write_text(MIGRATED)
    (folder / "refused.py").write_text(REFUSED)
    return folder


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A checkout of the same version, to be changed."""
    folder = tmp_path / "other"
    for part in ("amp_migrate", "rules"):
        shutil.copytree(ROOT / part, folder / part)
    return folder


def compare(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COMMAND), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_version_is_like_itself_in_a_wheel(tree: Path, other: Path) -> None:
    wheel = other / "some.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path in other.rglob("*"):
            name = path.relative_to(other)
            if name.parts[0] in ("amp_migrate", "rules"):
                inside = (
                    name if name.parts[0] == "amp_migrate" else "amp_migrate" / name
                )
                packed.write(path, inside)
    done = compare(ROOT, wheel, tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tree: no differences" in done.stdout
    assert "| migrated | 1 | 1 |" in done.stdout
    assert "| AMP032 | 1 | 1 |" in done.stdout


CHANGED = """
from dataclasses import replace as _replace

_old_migrate, _old_lint = migrate_paths, lint_paths

def _changed(report, change):
    changed = [_replace(one, result=change(one.result)) for one in report.migrations]
    return _replace(report, migrations=tuple(changed))

def migrate_paths(paths):
    def change(result):
        output = result.output.replace("scaler", "grad_scaler")
        loops = [
            _replace(loop, diagnostic=loop.diagnostic and _replace(loop.diagnostic, code="AMP034"))
            for loop in result.loops
        ]
        return _replace(result, output=output, loops=tuple(loops))
    return _changed(_old_migrate(paths), change)

def lint_paths(paths):
    def change(result):
        if result.path == "refused.py":
            return _replace(result, findings=())
        return _replace(result, findings=tuple(_replace(one, message="?") for one in result.findings))
    return _changed(_old_lint(paths), change)
"""


def test_every_kind_of_difference_is_told(tree: Path, other: Path) -> None:
    with (other / "amp_migrate" / "api.py").open("a", encoding="utf-8") as api:
        api.write(CHANGED)
    saved, diffs = tree.parent / "all.json", tree.parent / "diffs"
    done = compare(ROOT, other, tree, "--json", saved, "--diffs", diffs)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "loop: refused.py:9:5: left alone AMP032  ->  left alone AMP034" in done.stdout
    )
    assert "rewrite: migrated.py: +" in done.stdout
    assert "| AMP032 | 1 | 0 |" in done.stdout
    assert "| AMP034 | 0 | 1 |" in done.stdout
    [compared] = json.loads(saved.read_text())
    kinds = {one["kind"] for one in compared["differences"]}
    assert kinds == {"loop", "rewrite", "info", "wording"}
    old, new = (
        (diffs / f"tree__migrated.py.{name}.diff").read_text()
        for name in ("old", "new")
    )
    assert old.replace("scaler", "grad_scaler") == new


def test_a_crash_is_told_and_the_other_trees_are_compared(
    tree: Path, other: Path
) -> None:
    (other / "amp_migrate" / "api.py").write_text("raise ValueError('broken')\n")
    second = tree.parent / "second"
    shutil.copytree(tree, second)
    done = compare(ROOT, other, tree, second, "--job", "migrate")
    assert done.returncode == 2
    assert done.stdout.count("ValueError: broken") == 2


def test_a_look_is_kept_by_content(tree: Path, other: Path) -> None:
    cache = tree.parent / "cache"
    arguments = (ROOT, other, tree, "--job", "migrate", "--cache", cache)
    assert compare(*arguments).returncode == 0
    kept = sorted(cache.iterdir())
    assert kept
    (other / "amp_migrate" / "api.py").write_text("raise ValueError('broken')\n")
    assert compare(*arguments).returncode == 2
    assert sorted(cache.iterdir()) == kept


def test_what_is_no_version_is_said(tree: Path) -> None:
    done = compare("no-such-revision", ROOT, tree)
    assert done.returncode != 0
    assert "no-such-revision is no checkout, wheel or revision" in done.stderr
