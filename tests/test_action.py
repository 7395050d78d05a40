"""The action of GitHub: its scripts are run as they stand there, on a small project."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from amp_migrate.catalogue.rules import lint_rule, refusal

ROOT = Path(__file__).resolve().parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")

CLIPPED = lint_rule("AMP101").example
PLAIN = refusal("AMP024").counter_example

posix = pytest.mark.skipif(os.name == "nt", reason="bash, and a script for a program")


@dataclass
class Done:
    """What a run of all steps came to."""

    code: int = 0
    printed: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    summary: str = ""


class Runner:
    """As much of a runner as a composite action needs."""

    def __init__(self, workspace: Path, temporary: Path, action: Path = ROOT) -> None:
        self.workspace = workspace
        self.temporary = temporary
        self.action = action

    def run(self, skip: tuple[str, ...] = (), **given: str) -> Done:
        """The steps in order, until one fails; ``given``: inputs, and outputs of the steps in ``skip``."""
        known = {
            "github.action_path": str(self.action),
            "runner.temp": str(self.temporary),
        }
        for name, spec in ACTION["inputs"].items():
            known[f"inputs.{name}"] = spec["default"]
        for name, value in given.items():
            key = name.replace("_", "-")
            assert f"inputs.{key}" in known
            known[f"inputs.{key}"] = value
        known["steps.install.outputs.folder"] = str(self.temporary / "amp-migrate")
        known["steps.install.outputs.program"] = str(self.temporary / "program")
        done = Done()
        for step in STEPS:
            if step.get("id") in skip or not holds(step.get("if"), known):
                continue
            if "uses" in step:
                done.used[step["uses"]] = {
                    key: filled(value, known) for key, value in step["with"].items()
                }
            elif not self._step(step, known, done):
                break
        done.outputs = {
            name: filled(spec["value"], known)
            for name, spec in ACTION["outputs"].items()
        }
        return done

    def _step(self, step: dict[str, Any], known: dict[str, str], done: Done) -> bool:
        output, summary = self.temporary / "output", self.temporary / "summary"
        output.write_text("")
        summary.write_text("")
        script = self.temporary / "step.sh"
        script.write_text(step["run"])
        folder = filled(step.get("working-directory", "."), known)
        assert step["shell"] == "bash"
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace / folder,
            env={
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("PYTHONPATH", "VIRTUAL_ENV", "AMP_MIGRATE_"))
            }
            | {
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_WORKSPACE": str(self.workspace),
            }
            | {key: filled(value, known) for key, value in step.get("env", {}).items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        done.printed += ended.stdout
        done.summary += summary.read_text(encoding="utf-8")
        for line in output.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step['id']}.outputs.{name}"] = value
        done.code = ended.returncode
        return done.code == 0


def filled(text: str, known: dict[str, str]) -> str:
    """Expressions as GitHub fills them in: nothing for an output that is not there."""
    return EXPRESSION.sub(lambda found: known.get(found[1], ""), text)


def holds(condition: str | None, known: dict[str, str]) -> bool:
    if condition is None:
        return True
    found = re.fullmatch(r"(inputs\.[\w-]+) (==|!=) '([^']*)'", condition)
    assert found is not None, condition
    return (known[found[1]] == found[3]) is (found[2] == "==")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """One whose program is the one under test."""
    workspace, temporary = tmp_path / "workspace", tmp_path / "temporary"
    workspace.mkdir()
    (temporary / "amp-migrate").mkdir(parents=True)
    program = temporary / "program"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m amp_migrate "$@"\n'
    )
    program.chmod(0o755)
    return Runner(workspace, temporary)


def run(runner: Runner, **given: str) -> Done:
    return runner.run(("install",), **given)


def add(runner: Runner, **texts: str) -> None:
    for name, text in texts.items():
        path = runner.workspace / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_scripts_hold_no_expressions() -> None:
    """What a pull request can decide must not become text of a script."""
    for step in STEPS:
        assert "${{" not in step.get("run", "")


def test_each_input_is_used_and_told_of() -> None:
    steps = json.dumps(STEPS)
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.*?) \|$", page, flags=re.M)
    assert [(name, text) for name, text, _ in rows] == [
        (name, spec["description"].strip()) for name, spec in ACTION["inputs"].items()
    ]
    for (_, _, default), (name, spec) in zip(
        rows, ACTION["inputs"].items(), strict=True
    ):
        assert f"inputs.{name}" in steps
        assert default == (f"`{spec['default']}`" if spec["default"] else "")


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-actions", "action.yml"),
        ("vendor.github-workflows", ".github/workflows/*.yml"),
    ],
)
def test_what_github_reads_is_valid(schema: str, pattern: str) -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    files = [str(path) for path in ROOT.glob(pattern)]
    if not files:
        pytest.skip("a source distribution has no workflows")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@posix
def test_a_clean_project_passes(runner: Runner) -> None:
    add(runner, hello="print('hello')\n")
    done = run(runner)
    assert done.code == 0, done.printed
    assert done.outputs["lint-status"] == "0"
    assert done.outputs["would-change"] == "false"
    assert Path(done.outputs["diff-file"]).read_text() == ""
    assert list(done.used) == ["actions/setup-python@v5"]


@posix
def test_an_error_annotates_and_fails(runner: Runner) -> None:
    add(runner, **{"src/train": CLIPPED})
    done = run(runner, working_directory="src", upload_sarif="true")
    assert done.code == 1
    assert "::error file=src/train.py,line=" in done.printed
    assert "AMP101" in done.summary
    [results] = json.loads(Path(done.outputs["sarif-file"]).read_text("utf-8"))["runs"]
    assert "AMP101" in {one["ruleId"] for one in results["results"]}
    # Code scanning is told before the step fails.
    assert done.used["github/codeql-action/upload-sarif@v3"] == {
        "sarif_file": done.outputs["sarif-file"],
        "category": "amp-migrate",
    }


@posix
def test_what_fails_is_said_by_an_input(runner: Runner) -> None:
    add(runner, train=CLIPPED)
    done = run(runner, fail_on="never", annotations="false", python_version="")
    assert done.code == 0, done.printed
    assert "::" not in done.printed
    assert "train.py:" in done.printed and "AMP101" in done.printed
    assert done.used == {}
    options = "--ignore\nAMP101\n\n--severity\ninfo\n"
    assert run(runner, lint_options=options).code == 0


@posix
@pytest.mark.parametrize(("migration", "code"), [("report", 0), ("check", 1)])
def test_the_diff_is_a_file_that_git_takes(
    runner: Runner, migration: str, code: int
) -> None:
    add(runner, train=PLAIN)
    done = run(runner, migration=migration)
    assert done.code == code, done.printed
    assert done.outputs["would-change"] == "true"
    diff = Path(done.outputs["diff-file"])
    assert "+scaler = torch.amp.GradScaler" in diff.read_text(encoding="utf-8")
    assert diff.read_text(encoding="utf-8") in done.summary
    assert "would migrate 1 of 1 training loop" in done.printed
    if shutil.which("git"):
        subprocess.run(["git", "apply", diff], cwd=runner.workspace, check=True)
        again = run(runner, migration=migration)
        assert again.code == 0, again.printed
        assert again.outputs["would-change"] == "false"


@posix
def test_migration_may_be_off(runner: Runner) -> None:
    add(runner, train=PLAIN)
    done = run(runner, migration="off", summary="false")
    assert done.code == 0, done.printed
    assert done.outputs["diff-file"] == done.outputs["would-change"] == ""
    assert done.summary == ""


@posix
def test_options_reach_the_migration(runner: Runner) -> None:
    add(runner, train=PLAIN, other=PLAIN)
    done = run(runner, paths="train.py\n", migration_options="--torch-version\n2.2\n")
    diff = Path(done.outputs["diff-file"]).read_text(encoding="utf-8")
    assert "torch.cuda.amp.GradScaler" in diff
    assert "other.py" not in diff


@posix
@pytest.mark.parametrize("name", ["a b", "$(touch made)", "-q", "`touch made`", "'"])
def test_names_are_names(runner: Runner, name: str) -> None:
    add(runner, **{name: PLAIN}, other=PLAIN)
    done = run(runner, paths=f"{name}.py", migration="check")
    assert done.code == 1, done.printed
    assert "would migrate 1 of 1 training loop in 1 file" in done.printed
    assert not (runner.workspace / "made").exists()


@posix
@pytest.mark.parametrize(
    "given",
    [
        {"fail_on": "sometimes"},
        {"lint_options": "--no-such-option"},
        {"migration": "perhaps"},
        {"migration_options": "--write"},
        {"paths": "gone.py"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_fails(runner: Runner, given: dict[str, str]) -> None:
    add(runner, hello="print('hello')\n")
    done = run(runner, **given)
    assert done.code == 2, done.printed
    assert list(runner.workspace.iterdir()) == [runner.workspace / "hello.py"]


@posix
def test_a_file_that_cannot_be_read_fails_the_step(runner: Runner) -> None:
    add(runner, broken="import torch\nloss.backward(\n")
    done = run(runner, fail_on="never")
    assert done.code == 2
    assert "::error file=broken.py" in done.printed


@posix
def test_it_installs_itself(tmp_path: Path) -> None:
    """All steps, as they are: the folder of the action is what is installed, without torch."""
    action = tmp_path / "action"
    action.mkdir()
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, action / name)
    for name in ("amp_migrate", "rules"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, action / name, ignore=ignored)
    for name in ("workspace", "temporary"):
        (tmp_path / name).mkdir()
    runner = Runner(tmp_path / "workspace", tmp_path / "temporary", action)
    add(runner, train=CLIPPED)
    done = runner.run()
    if "No matching distribution" in done.printed and not os.environ.get("CI"):
        pytest.skip("no network to install from")
    assert done.code == 1, done.printed
    assert "::error file=train.py" in done.printed
    [folder] = runner.temporary.glob("amp-migrate.*/venv/lib/*/site-packages")
    assert not (folder / "torch").exists()
