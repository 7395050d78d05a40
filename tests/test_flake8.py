"""The plugins, as flake8 finds and runs them: installed from the wheel, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pages_support import DOCS, Page

from amp_migrate.api import lint_source
from amp_migrate.catalogue.rules import lint_rule

SIZES = lint_rule("TCU102").example
CLIPPED = lint_rule("AMP101").example
BLOCKS = {block.title: block.text for block in Page(DOCS / "flake8.md").blocks}


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("flake8") is None:
        pytest.skip("flake8 is not installed")
    folder = tmp_path_factory.mktemp("installed")
    wheel.extractall(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    (tmp_path / "setup.cfg").write_text("")
    return tmp_path


def flake8(*arguments: str, stdin: str | None = None) -> tuple[int, list[str]]:
    """The exit code, and what is said with our codes, or by way of a crash."""
    done = subprocess.run(
        [sys.executable, "-m", "flake8", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    return done.returncode, [one for one in lines if re.search(r" (AMP|TCU|E9)", one)]


def expected(name: str, text: str) -> list[str]:
    return [
        f"./{name}:{one.place.line}:{one.place.column}: {one.code} {one.message}"
        for one in lint_source(text).findings
        if one.severity.value != "info"
    ]


def test_flake8_names_both(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flake8", "--version"], capture_output=True, text=True
    )
    assert "amp-migrate: " in done.stdout, done.stdout + done.stderr


def test_findings_are_those_of_lint_each_once(project: Path) -> None:
    (project / "clipped.py").write_text(CLIPPED)
    (project / "sizes.py").write_text(SIZES.replace("\n", "\r\n"), newline="")
    wanted = expected("clipped.py", CLIPPED) + expected("sizes.py", SIZES)
    assert {"AMP101", "TCU102"} <= {line.split()[1] for line in wanted}
    assert flake8() == (1, sorted(wanted))
    assert flake8("--jobs", "2")[1] == sorted(wanted)
    found = flake8(
        "--select", "AMP,TCU", "--stdin-display-name", "a.py", "-", stdin=SIZES
    )
    assert found == (
        1,
        [one.replace("./sizes", "a") for one in expected("sizes.py", SIZES)],
    )


def test_flake8s_own_settings_hold(project: Path) -> None:
    (project / "legacy").mkdir()
    for name in ("legacy/sizes.py", "sizes.py"):
        (project / name).write_text(SIZES)
    (project / ".flake8").write_text(BLOCKS[".flake8"])
    assert flake8() == (1, expected("sizes.py", SIZES))
    assert flake8("--extend-ignore", "TCU")[1] == []


def test_suppressions_are_honoured(project: Path) -> None:
    line = next(one for one in SIZES.splitlines() if "Linear" in one)
    for comment in ("# amp: ignore[TCU102] ours", "# noqa: TCU102", "# noqa"):
        (project / "sizes.py").write_text(SIZES.replace(line, f"{line}  {comment}"))
        assert flake8("--max-line-length", "200") == (0, [])
    (project / "sizes.py").write_text(f"import torch  # amp: ignore[TCU102]\n{SIZES}")
    assert [one.split()[1] for one in flake8()[1]][:1] == ["AMP100"]


def test_the_projects_settings_hold(project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text(
        "[tool.amp-migrate.lint]\n"
        'ignore = ["AMP101"]\n'
        'per-file-ignores = { "/old.py" = ["TCU1"] }\n'
    )
    for name in ("old.py", "new.py"):
        (inner / name).write_text(SIZES)
    (inner / "clipped.py").write_text(CLIPPED)
    codes = {tuple(one.split(":")[0::3]) for one in flake8()[1]}
    assert ("./inner/new.py", " TCU102 Linear(1024, 1500)") in codes
    assert not any(file == "./inner/old.py" for file, _ in codes)
    assert not any("AMP101" in words for _, words in codes)


def test_a_file_is_looked_at_alone(project: Path) -> None:
    (project / "sizes.py").write_text("WIDTH = 1501\n")
    (project / "model.py").write_text(
        "from torch import nn\n\nfrom sizes import WIDTH\n\nlayer = nn.Linear(WIDTH, 4096)\n"
    )
    assert flake8() == (0, [])


def test_a_configuration_that_means_nothing_is_told(project: Path) -> None:
    (project / "sizes.py").write_text(SIZES)
    (project / "pyproject.toml").write_text("[tool.amp-migrate.lint]\nprofil = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "flake8"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert re.search(r"amp-migrate\[(AMP|TCU)\].*profil", done.stdout + done.stderr)


def test_ruff_leaves_our_comments_where_it_is_told_to(project: Path) -> None:
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    file = project / "sizes.py"
    file.write_text("from torch import nn\n\nnn.Linear(1501, 4096)  # noqa: TCU102\n")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--preview"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUFF_")}
    for settings, code in (
        ('[tool.ruff.lint]\nextend-select = ["RUF100", "RUF102"]\n', 1),
        (BLOCKS["pyproject.toml"], 0),
    ):
        (project / "pyproject.toml").write_text(settings)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
