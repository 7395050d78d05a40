"""What a run says that it is doing, in this process and in others; on terminals only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amp_migrate.core import phases
from amp_migrate.run import engine
from amp_migrate.run.config import Settings
from amp_migrate.run.jobs import Job

SCRIPT = """import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
"""


def announced(folder: Path, job: Job, jobs: int) -> dict[str, set[int]]:
    """How many steps each phase has, as a run announces them."""
    found: dict[str, set[int]] = {}

    def note(phase: str, done: int, total: int) -> None:
        assert 0 <= done < total
        found.setdefault(phase, set()).add(total)

    with phases.shown_to(note):
        engine.run([str(folder)], settings=Settings(root=folder), job=job, jobs=jobs)
    return found


def test_phases_of_one_program_are_announced(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import helper\n" + SCRIPT)
    (tmp_path / "helper.py").write_text("x = 1\n")
    migrating = announced(tmp_path, Job.MIGRATE, 1)
    assert migrating["reading files"] == {2}
    assert migrating["planning training loops"] == {1}
    assert migrating["rewriting files"] == {1}
    linting = announced(tmp_path, Job.LINT, 1)
    assert linting.keys() >= {"reading files", "checking"}
    assert not announced(tmp_path, Job.MODERNIZE, 1).keys() - {"looking at files"}


def test_phases_of_other_processes_are_announced(tmp_path: Path) -> None:
    for number in range(engine.WORTH_PROCESSES):
        (tmp_path / f"train_{number}.py").write_text(SCRIPT)
    here = announced(tmp_path, Job.MIGRATE, 1)
    elsewhere = announced(tmp_path, Job.MIGRATE, 2)
    # Of what several processes do at the same time, not all is seen.
    assert elsewhere["looking at files"] == here["looking at files"] == {24}
    assert elsewhere.keys() - {"looking at files"}
    assert elsewhere.keys() <= here.keys()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
def test_only_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    import pty

    (tmp_path / "train.py").write_text("import helper\n" + SCRIPT)
    (tmp_path / "helper.py").write_text("x = 1\n")
    code = (
        "from amp_migrate.report import terminal\n"
        "terminal._PATIENCE = -1\n"
        "from amp_migrate.cli.main import main\n"
        "main(['train.py', '--no-cache', '--diff'])\n"
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)

    def shown(*, on_terminal: bool) -> str:
        reading, writing = pty.openpty()
        stream = writing if on_terminal else subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stream,
        )
        os.close(writing)
        parts = []
        if process.stderr is not None:
            parts.append(process.stderr.read())
            process.stderr.close()
        while on_terminal:
            try:
                part = os.read(reading, 65536)
            except OSError:  # nobody writes any more
                break
            if not part:
                break
            parts.append(part)
        os.close(reading)
        assert process.wait() == 0
        return b"".join(parts).decode()

    assert "━" in shown(on_terminal=True)
    assert "━" not in shown(on_terminal=False)
