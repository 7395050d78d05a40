"""`--write --validate`: what running proves is written, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from validated import PLAIN

from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.main import main
from amp_migrate.core import results
from amp_migrate.migrate import program as migration

TRAINER = """\
from torch import nn


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
SCRIPT = """\
import sys

import torch
from trainer import train

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(12, 8, device=device)
if __name__ == "__main__":
    train(model, optimizer, [(x, x[:, :3].argmax(1))] * int(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def keep(files: Mapping[str, str], *words: str) -> Result:
    for name, text in files.items():
        Path(name).write_text(text)
    options = ["--no-cache", "--write", "--validate"]
    return CliRunner().invoke(main, [".", *options, *words], prog_name="amp-migrate")


def untouched(files: Mapping[str, str]) -> bool:
    present = {
        path.name: path.read_text() for path in Path().glob("*") if path.is_file()
    }
    return present == dict(files)


def break_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the step is left to the optimizer, which sees scaled gradients."""
    real = migration.migrate_program

    def broken(*given: Any, **more: Any) -> Any:
        return {
            file: (
                replace(
                    one,
                    output=one.output.replace(
                        "scaler.step(optimizer)", "optimizer.step()"
                    ),
                )
                if isinstance(one, results.Result)
                else one
            )
            for file, one in real(*given, **more).items()
        }

    monkeypatch.setattr(migration, "migrate_program", broken)


def test_what_is_proven_is_written_with_the_arguments_that_it_was_run_with() -> None:
    files = {"trainer.py": TRAINER, "script.py": SCRIPT}
    result = keep(files, "--arguments", "6", "--steps", "3")
    assert (
        "script.py 6: proven: the rewrite trains as the original does" in result.stderr
    )
    assert "rewritten places ran, 3 steps; " in result.stderr
    assert result.stderr.count("rewrote ") == 2
    assert result.exit_code == ExitCode.OK
    assert "scaler.step(optimizer)" in Path("trainer.py").read_text()
    assert "GradScaler" in Path("script.py").read_text()


def test_what_is_disproved_stays_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    break_rewrites(monkeypatch)
    files = {"train.py": PLAIN}
    result = keep(files)
    assert untouched(files)
    assert result.exit_code == ExitCode.DISPROVED
    assert "train.py:13:5 AMP091 train.py is disproved: L1 scaled: " in result.stderr
    assert "migrated 0 of 1 training loop in 1 file\n" in result.stderr
    assert "  1  AMP091  with a rewrite that running it disproved\n" in result.stderr
    assert "rewrote" not in result.stderr


def test_one_script_that_does_not_run_keeps_its_whole_program() -> None:
    training = PLAIN.replace("\n", "\n    ").rstrip(" ")
    head = 'import sys\n\nimport trainer\n\nif __name__ == "__main__":\n'
    script = f"{head}    trainer.train(int(sys.argv[1]))\n"
    files = {"trainer.py": f"def train(number):\n    {training}", "script.py": script}
    result = keep(files)
    assert untouched(files)
    assert result.exit_code == ExitCode.NOT_PROVEN
    assert "AMP092 script.py is not proven: the original" in result.stderr


def test_a_script_that_does_not_run_keeps_what_others_prove() -> None:
    other = SCRIPT.replace("int(sys.argv[1])", "6")
    files = {"trainer.py": TRAINER, "a.py": other, "b.py": SCRIPT}
    result = keep(files)
    assert "a.py: proven: " in result.stderr
    assert untouched(files)
    assert result.exit_code == ExitCode.NOT_PROVEN


def test_a_program_that_is_proven_is_written_beside_one_that_is_not() -> None:
    files = {"good.py": PLAIN, "bad.py": "import no_such_module\n" + PLAIN}
    result = keep(files)
    assert Path("bad.py").read_text() == files["bad.py"]
    assert "scaler.update()" in Path("good.py").read_text()
    assert result.exit_code == ExitCode.NOT_PROVEN


def test_nothing_to_do_runs_nothing() -> None:
    result = keep({"x.py": "import torch\nraise SystemExit(1)\n"})
    assert (result.exit_code, "running" in result.stderr) == (ExitCode.OK, False)
