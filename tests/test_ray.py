"""A run whose work is done by Ray: a small cluster on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import standin
from lint_cli_support import CLIP

from amp_migrate.cli.exits import ExitCode

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

LOOP = "for x in y:\n    loss.backward()\n"
TESTS = Path(standin.__file__).resolve().parent
ORDERS = """\
import sys
if any(word == "amp_migrate" or "default_worker" in word for word in sys.orig_argv):
    import standin
    from amp_migrate.migrate import program
    program.migrate_program = standin.migrate_program
"""
"""What Ray's workers, which know nothing of a main module, do when Python starts."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work, python = tmp_path / "work", tmp_path / "python"
    (work / ".git").mkdir(parents=True)
    python.mkdir()
    (python / "sitecustomize.py").write_text(ORDERS)
    paths = [python, TESTS, TESTS.parent]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(work)
    return tmp_path


def start(*arguments: str) -> subprocess.Popen[bytes]:
    def heed_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-m", "amp_migrate", *arguments, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def run(*arguments: str) -> tuple[int, bytes, bytes]:
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    return process.returncode, out, err


def until(true: Callable[[], bool]) -> None:
    for _ in range(900):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("waited for a minute and a half")


def lives(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_cluster_comes_to_what_this_machine_comes_to(project: Path) -> None:
    """Also where a worker is killed in the middle, and where one dies whenever it is at a file."""
    for number in range(12):
        text = LOOP if number % 5 else "loss.backward()  # AMP040\n"
        Path(f"f{number:02}.py").write_text(text)
    wanted = run("--diff")
    assert wanted[1]
    once = project / "died"
    Path("f05.py").write_text(f"# core: die once {once}\n{LOOP}")
    once.touch()
    again = run("--diff")
    once.unlink()
    assert run("--diff", "--executor", "ray") == again
    assert once.exists()
    Path("f05.py").write_text(f"# core: die\n{LOOP}")
    code, _out, err = run("--check", "--executor", "ray")
    assert code == ExitCode.ERROR
    assert b"error: f05.py: internal error: the process died" in err


def test_what_is_beside_the_sources_arrives(project: Path) -> None:
    """Rules of the user's, and how black is configured, are read where the files are."""
    (project / "python" / "sitecustomize.py").unlink()
    Path("pyproject.toml").write_text(
        '[tool.black]\nline-length = 60\n[tool.amp-migrate.lint]\nextend-rules = ["own.toml"]\n'
    )
    Path("own.toml").write_text(
        '[layers.Fused]\norigins = ["own.Fused"]\nparameters = ["width", "out"]\n'
        'sizes = {in = "width", out = "out"}\nwidths = ["in", "out"]\n'
    )
    Path("model.py").write_text("import own, torch\n\nlayer = own.Fused(13, 17)\n")
    Path("clip.py").write_text(CLIP)
    local = run("lint", "--severity", "info")
    assert b"13" in local[1]
    assert run("lint", "--severity", "info", "--executor", "ray") == local


def test_ctrl_c_ends_the_cluster_that_was_started_here(project: Path) -> None:
    for number in range(3):
        Path(f"f{number}.py").write_text(f"# core: wait {project}\n{LOOP}")
    process = start("--check", "--executor", "ray")
    until(lambda: len(list(project.glob("at-work-*"))) == 2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"\n")
    workers = [int(path.name.split("-")[-1]) for path in project.glob("at-work-*")]
    until(lambda: not any(map(lives, workers)))


@pytest.mark.parametrize("command", ["migrate", "lint", "stats"])
def test_an_address_where_nobody_is_is_an_error_in_one_line(command: str) -> None:
    Path("a.py").write_text("import torch\n" + LOOP)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = run(command, ".", "--executor", address)
    assert (code, out) == (ExitCode.ERROR, b"")
    assert err.decode() == (f"error: {address} cannot be reached: Connection refused\n")
