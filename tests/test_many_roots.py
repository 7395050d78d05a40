"""Several projects in one call: each as by itself, and one report of all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from lint_cli_support import CLIP, WIDE

from amp_migrate import api
from amp_migrate.cli.main import main

SCRIPT = """\
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
ROOTS = ["strict", "mild"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two projects side by side, whose configurations differ."""
    for root, lint in (
        ("strict", 'fail-on = "warning"\nseverity = "info"'),
        ("mild", 'ignore = ["TCU"]\nfail-on = "never"'),
    ):
        Path(tmp_path, root).mkdir()
        table = f'[tool.amp-migrate]\nexclude = ["left/"]\n[tool.amp-migrate.lint]\n{lint}\n'
        Path(tmp_path, root, "pyproject.toml").write_text(table)
        Path(tmp_path, root, "wide.py").write_text(WIDE)
        Path(tmp_path, root, "clip.py").write_text(CLIP)
        Path(tmp_path, root, "train.py").write_text(SCRIPT)
    Path(tmp_path, "mild", "pyproject.toml").write_text(
        '[tool.amp-migrate]\ndtype = "bfloat16"\n'
        '[tool.amp-migrate.lint]\nignore = ["TCU"]\nfail-on = "never"\n'
    )
    monkeypatch.setenv("AMP_MIGRATE_NO_CACHE", "1")
    for variable in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--output-format", "json").stdout)


def test_each_is_told_as_by_itself() -> None:
    alone = [run("lint", root) for root in ROOTS]
    together = run("lint", *ROOTS)
    found = [one.stdout.splitlines()[:-1] for one in alone]
    assert together.stdout.splitlines()[:-1] == found[0] + found[1]
    assert "of 2 projects" in together.stdout.splitlines()[-1]
    assert [one.exit_code for one in (*alone, together)] == [1, 0, 1]
    assert run("lint", *reversed(ROOTS)).stdout.splitlines()[:-1] == found[1] + found[0]


def test_findings_are_grouped_by_root(folder: Path) -> None:
    alone = [run_json("lint", root) for root in ROOTS]
    together = run_json("lint", *ROOTS)
    assert [one["root"] for one in together["projects"]] == [
        str(folder / root) for root in ROOTS
    ]
    for number, one in enumerate(alone):
        assert together["projects"][number]["counts"] == one["projects"][0]["counts"]
        own = [dict(f) for f in together["findings"] if f["project"] == number]
        assert [{**f, "project": 0} for f in own] == one["findings"]
        assert own


def test_sarif_names_the_folder_of_each(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    done = run("lint", "../strict", "../mild", "--output-format", "sarif")
    [log] = json.loads(done.stdout)["runs"]
    bases = log["originalUriBaseIds"]
    assert [bases[f"PROJECT{n}"]["uri"] for n in (1, 2)] == [
        (folder / root).as_uri() + "/" for root in ROOTS
    ]
    places = [
        one["locations"][0]["physicalLocation"]["artifactLocation"]
        for one in log["results"]
    ]
    assert {"uri": "clip.py", "uriBaseId": "PROJECT1"} in places
    assert {"uri": "clip.py", "uriBaseId": "PROJECT2"} in places


def test_rewrites_are_those_of_each() -> None:
    alone = [run(root, "--diff") for root in ROOTS]
    together = run(*ROOTS, "--diff")
    assert together.stdout == alone[0].stdout + alone[1].stdout
    assert "float16" in alone[0].stdout
    assert "bfloat16" in alone[1].stdout
    told = run_json(*ROOTS)
    assert [one["project"] for one in told["changes"]] == [0, 1]
    assert [one["counts"]["done"] for one in told["projects"]] == [1, 1]
    assert told["counts"]["done"] == 2
    assert run(*ROOTS, "--write").exit_code == 0
    assert "bfloat16" in Path("mild/train.py").read_text()
    assert "bfloat16" not in Path("strict/train.py").read_text()


def test_processes_come_to_the_same() -> None:
    for root in ROOTS:
        for number in range(15):
            Path(root, f"more{number:02}.py").write_text(SCRIPT)
    alone = run(*ROOTS, "--diff", "--jobs", "1")
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate", *ROOTS, "--diff", "--jobs", "2"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == alone.stdout


def test_the_api_does_the_same() -> None:
    report = api.migrate_paths(ROOTS)
    texts = [one.result.output for one in report.changed]
    assert ["bfloat16" in text for text in texts] == [False, True]
    assert len({one.program for one in report.changed}) == 2


def test_what_is_in_no_project_belongs_together(folder: Path) -> None:
    """And what is below another path belongs to that one's project."""
    Path("loose").mkdir()
    Path("loose/util.py").write_text("WIDTH = 13\n")
    Path("one.py").write_text("import torch\nfrom loose.util import WIDTH\n")
    found = run_json("lint", "one.py", "loose", "strict/wide.py", "strict")
    assert [one["root"] for one in found["projects"]] == [
        str(folder),
        str(folder / "strict"),
    ]
    nested = folder / "strict" / "inner"
    nested.mkdir()
    (nested / "pyproject.toml").write_text("[tool.amp-migrate]\n")
    (nested / "wide.py").write_text(WIDE)
    assert len(run_json("lint", "strict", "strict/inner")["projects"]) == 1
    assert len(run_json("lint", "strict/wide.py", "strict/inner")["projects"]) == 2


def test_baselines_are_those_of_each() -> None:
    for root in ROOTS:
        file = Path(root, "pyproject.toml")
        file.write_text(file.read_text() + 'baseline = "known.json"\n')
    assert run("lint", *ROOTS, "--write-baseline").exit_code == 0
    assert all(Path(root, "known.json").exists() for root in ROOTS)
    assert run("lint", *ROOTS).exit_code == 0
    assert run_json("lint", *ROOTS)["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--baseline", "a.json"], "--baseline is the file of one project"),
        (["--probe", "wide:Net"], "--probe builds models of one project"),
    ],
)
def test_what_is_of_one_project_is_no_matter_for_two(
    arguments: list[str], words: str
) -> None:
    done = run("lint", *ROOTS, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_one_report_has_one_form() -> None:
    file = Path("mild", "pyproject.toml")
    file.write_text(file.read_text() + 'output-format = "github"\n')
    done = run("lint", *ROOTS)
    assert done.exit_code == 2
    assert "choose one by --output-format" in done.stderr
    assert run("lint", *ROOTS, "--output-format", "text").exit_code == 1


def test_paths_are_read_from_a_file(folder: Path) -> None:
    wanted = run("lint", *ROOTS)
    Path("roots.txt").write_text("# ours\nstrict\n\nmild\n")
    assert run("lint", "--paths-from", "roots.txt").stdout == wanted.stdout
    both = run("lint", "strict", "--paths-from", "roots.txt")
    assert both.stdout == wanted.stdout
    done = CliRunner().invoke(
        main, ["stats", "--paths-from", "-"], input=os.linesep.join(ROOTS)
    )
    assert done.stdout == run("stats", *ROOTS).stdout
    gone = run("lint", "--paths-from", "gone.txt")
    assert (gone.exit_code, gone.stderr.startswith("error: gone.txt")) == (2, True)
    Path("roots.txt").write_text("\n")
    assert run("lint", "--paths-from", "roots.txt").exit_code == 2
