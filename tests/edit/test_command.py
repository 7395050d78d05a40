"""The migration as a LibCST codemod: the same text as by itself, and warnings for what is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import libcst as cst
import pytest
from libcst.codemod import CodemodContext, SkipFile
from programs import HEAD
from shorthand import before

from amp_migrate.api import Options, migrate_source
from amp_migrate.codemod import MigrateCommand

OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
SCRIPT = HEAD + OPT + before("for x, y in data:\n    STEPS\n")
EVALUATES = SCRIPT + "with torch.no_grad():\n    print(model(x).mean())\n"
STEPS_TWICE = SCRIPT + "    opt.step()\n"
NAME = "amp_migrate.codemod.MigrateCommand"


def transformed(text: str, **options: object) -> tuple[str, list[str]]:
    context = CodemodContext(filename="train.py")
    command = MigrateCommand(context, **options)
    return command.transform_module(cst.parse_module(text)).code, context.warnings


def test_what_the_command_writes_is_what_the_api_writes() -> None:
    assert transformed(SCRIPT) == (migrate_source(SCRIPT).output, [])


@pytest.mark.parametrize(
    "given, options",
    [
        ({"dtype": "bfloat16"}, Options(dtype="bfloat16")),
        ({"evaluation": True}, Options(evaluation=True)),
    ],
)
def test_options_arrive(given: dict[str, object], options: Options) -> None:
    output, _ = transformed(EVALUATES, **given)
    assert output == migrate_source(EVALUATES, options=options).output
    assert output != migrate_source(EVALUATES).output


def test_what_is_left_alone_is_warned_about() -> None:
    output, warnings = transformed(STEPS_TWICE)
    assert output == STEPS_TWICE
    line = STEPS_TWICE[: STEPS_TWICE.index("loss.backward")].count("\n") + 1
    (warning,) = warnings
    assert warning.startswith(f"train.py:{line}: AMP031 ")


def test_what_this_python_cannot_read_is_skipped() -> None:
    """LibCST reads more than the Python that runs it."""
    text = "loss.backward()\nb'é'\n"
    with pytest.raises(SkipFile, match=r"train\.py:2"):
        transformed(text)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "libcst.tool", "codemod", "-x", NAME]
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [*command, *arguments, "-j", "1", "--no-format", "train.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_libcsts_tool_rewrites_the_file(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    result = run(tmp_path, "--dtype", "bfloat16")
    assert result.returncode == 0
    expected = migrate_source(SCRIPT, options=Options(dtype="bfloat16")).output
    assert path.read_text() == expected


def test_libcsts_tool_tells_the_warnings(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(STEPS_TWICE)
    assert "AMP031" in run(tmp_path).stderr
    assert path.read_text() == STEPS_TWICE
