"""However `validate` ends, nothing of what it started goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ENDLESS = """\
import time
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    time.sleep(0.05)
    optimizer.zero_grad()
    loss = model(torch.ones(1, 2, device=device)).sum()
    loss.backward()
    optimizer.step()
"""


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _started(folder: Path) -> list[int]:
    """The process that serves and those of runs, as far as they have begun."""
    lines = [
        json.loads(line)
        for status in folder.glob("amp-migrate-*/status.jsonl")
        for line in status.read_text().splitlines()
    ]
    return [line["pid"] for line in lines if "pid" in line]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return (
        not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    )


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _validate(
    folder: Path, *words: str, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    options = ["--device", "cpu", "--threads", "1", "--steps", "100000"]
    return subprocess.Popen(
        [sys.executable, "-m", "amp_migrate", "validate", *options, *words],
        cwd=folder,
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        },
        stdout=stdout,
        stderr=subprocess.PIPE,
        # A process group of its own, as a shell gives; with the signals of a new program, also where
        # the tests run in the background, with SIGINT ignored.
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)]
)
def test_runs_end_with_it(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    process = _validate(tmp_path, "train.py")
    _until(lambda: len(_started(tmp_path)) == 2)
    started = _started(tmp_path)
    os.killpg(process.pid, getattr(signal, name))
    process.communicate()
    assert process.returncode == code
    _until(lambda: not any(map(_lives, started)))
    if name != "SIGKILL":
        assert not list(tmp_path.glob("amp-migrate-*"))


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interpreter_that_dies_is_no_proof(tmp_path: Path) -> None:
    ended = ENDLESS.replace("while True", "for _ in range(3)")
    text = "import os\n" + ended + "os.kill(os.getppid(), 9)\n"
    (tmp_path / "train.py").write_text(text)
    process = _validate(tmp_path, "train.py", "--json")
    process.communicate()
    assert process.returncode == 2
