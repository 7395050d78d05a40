"""What the tests of proofs share."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from validated import Said

from amp_migrate.cli.main import main
from amp_migrate.validate import prove
from amp_migrate.validate.runner import Limits, Program, Runner

_IDLE: dict[tuple[object, ...], Runner] = {}


class _Lent:
    """A server that another test is done with: to load torch takes longer than most of the proofs.

    What a run does it does in a fork; whose environment is another one gets a server of its own.
    """

    def __init__(
        self, interpreter: str, program: Program, limits: Limits, *, device: str
    ) -> None:
        said = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        self.key = (interpreter, device, tuple(sorted(said.items())))
        self.asked = interpreter, program, limits, device

    def __enter__(self) -> Runner:
        interpreter, program, limits, device = self.asked
        runner = _IDLE.pop(self.key, None)
        if runner is None:
            new = Runner(interpreter, program, limits, device=device)
            self.runner = new.__enter__()
        else:
            self.runner = runner
            runner.limits, runner.standin, runner.launched = limits, False, False
            runner.serve(program)
        return self.runner

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None and self.key not in _IDLE:
            _IDLE[self.key] = self.runner
        else:
            self.runner.__exit__(kind, *rest)


@pytest.fixture(autouse=True, scope="session")
def server() -> Iterator[type[_Lent]]:
    """What all proofs of these tests are made with, in the place of `Runner`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prove, "Runner", _Lent)
        yield _Lent
        while _IDLE:
            _IDLE.popitem()[1].__exit__(None, None, None)


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes files and validates: ``validate({"train.py": text}, "train.py", ...)``."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, str], *words: str) -> Said:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        options = ["--threads", "1", "--device", "cpu"]
        found = CliRunner().invoke(main, ["validate", *options, *words])
        return Said(found.exit_code, found.stdout, found.stderr)

    return run
