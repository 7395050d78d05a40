"""A run that is ended before its time: by Ctrl-C, by a signal, or by whoever reads its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import standin
from lint_cli_support import CLIP

from amp_migrate.cli.exits import ExitCode, Lint, Told

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals, and bash")

LOOP = "for x in y:\n    loss.backward()\n"
STANDIN = str(Path(standin.__file__).resolve())


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*arguments: str) -> subprocess.Popen[bytes]:
    def heed_interrupts() -> None:
        # Tests that run in the background have SIGINT ignored, under nohup SIGHUP too.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, STANDIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("waited for a minute")


def at_work() -> list[int]:
    return [int(path.name.split("-")[-1]) for path in Path().glob("at-work-*")]


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or ") Z " not in status.read_text()


def wait_in(files: int, mode: str, jobs: int) -> subprocess.Popen[bytes]:
    """A run whose processes are at work on files that take for ever."""
    for number in range(files):
        Path(f"f{number:02}.py").write_text(f"# core: wait\n{LOOP}")
    process = start(mode, "--jobs", str(jobs))
    until(lambda: len(at_work()) == jobs)
    return process


@pytest.mark.parametrize("mode", ["--check", "--diff", "--write"])
@pytest.mark.parametrize(("files", "jobs"), [(1, 1), (24, 2)])
def test_ctrl_c(mode: str, files: int, jobs: int) -> None:
    process = wait_in(files, mode, jobs)
    # A terminal tells all of its processes.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"\n")
    until(lambda: not any(map(lives, at_work())))
    assert Path("f00.py").read_text() == f"# core: wait\n{LOOP}"
    assert not list(Path().glob(".amp-migrate-*"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGHUP"])
def test_no_process_outlives_the_one_that_started_it(name: str) -> None:
    process = wait_in(24, "--check", 2)
    process.send_signal(getattr(signal, name))
    assert process.wait(timeout=60) == -getattr(signal, name)
    until(lambda: not any(map(lives, at_work())))


@pytest.mark.parametrize("module", ["amp_migrate.cli.main", "click", "platformdirs"])
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    program = f"""
import sys

class Pressed:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Pressed())
sys.argv = ["amp-migrate", "cache"]
from amp_migrate.__main__ import run
run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == ExitCode.INTERRUPTED
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--diff"],
        ["--help"],
        ["lint"],
        ["lint", "--output-format", "json"],
        ["lint", "--help"],
        ["explain"],
        ["explain", "AMP101"],
        ["cache"],
        ["modernize"],
        ["stats"],
        ["stats", "--output-format", "json"],
        ["validate", "loop.py", "--python", "gone"],
        ["validate", "loop.py", "--python", "gone", "--json", "-q"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_pipe_that_nobody_reads_is_neither_success_nor_error(
    arguments: list[str],
) -> None:
    Path("clip.py").write_text(CLIP)
    Path("loop.py").write_text(LOOP)
    Path("old.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, STANDIN, *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.returncode == ExitCode.CUT_SHORT == Lint.CUT_SHORT == Told.CUT_SHORT
    assert done.stderr == b"" or arguments[0] == "validate"
    assert b"Traceback" not in done.stderr and b"error" not in done.stderr


@pytest.mark.parametrize("arguments", [["--check"], ["--no-such-option"], ["gone.py"]])
def test_messages_that_nobody_reads_are_no_traceback(arguments: list[str]) -> None:
    Path("loop.py").write_text(LOOP)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, STANDIN, *arguments]
    done = subprocess.run(command, stderr=writing, stdout=subprocess.PIPE)
    os.close(writing)
    assert done.returncode in (ExitCode.CUT_SHORT, ExitCode.ERROR)
    assert done.stdout == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_may_stop_in_the_middle(
    unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    for number in range(20):
        Path(f"f{number:02}.py").write_text(LOOP * 2000)
    process = start("--jobs", "1")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"diff --git a/f00.py b/f00.py\n"
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (ExitCode.CUT_SHORT, b"")
