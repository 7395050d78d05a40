"""A run whose work is done by Ray: a small cluster on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(name="sessions")
def _sessions() -> Iterator[Path]:
    """A folder for Ray's sessions, with a path that is short enough for its sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work, python = tmp_path / "work", tmp_path / "python"
    (work / ".git").mkdir(parents=True)
    python.mkdir()
    (python / "sitecustomize.py").write_text(ORDERS)
    paths = [python, TESTS, TESTS.parent]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # What other sessions have left is theirs; the token that Ray makes is for no one else.
    monkeypatch.setenv("RAY_TMPDIR", str(sessions))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    (tmp_path / "token").write_text("a token of thirty-two characters")
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
        end(process)
    return process.returncode, out, err


def end(process: subprocess.Popen[bytes]) -> None:
    """Whatever it has started, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture(name="head")
def _head(project: Path) -> Iterator[str]:
    """The address of a cluster, as an organisation has one: with (what it takes for) two GPUs."""
    port = free_port()
    options = f"--head --block --port=0 --ray-client-server-port={port} --num-cpus=2 --num-gpus=2"
    more = "--include-dashboard=false --disable-usage-stats --object-store-memory=100000000"
    process = subprocess.Popen(
        [Path(sys.executable).parent / "ray", "start", *f"{options} {more}".split()],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: process.poll() is not None or not refused(port))
        assert process.poll() is None
        yield f"ray://127.0.0.1:{port}"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        end(process)


def refused(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) != 0


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


def session(process: int) -> list[int]:
    """All that a process has started, which is of its session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            status = path.read_text().rpartition(")")[2].split()
            if status[0] != "Z" and status[3] == str(process):
                found.append(int(path.parent.name))
    return found


def test_ctrl_c_while_the_cluster_starts() -> None:
    Path("a.py").write_text(LOOP)
    process = start("--check", "--executor", "ray")
    try:
        until(lambda: len(session(process.pid)) > 1)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=90)
        assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"\n")
        until(lambda: not session(process.pid))
    finally:
        end(process)


@pytest.mark.parametrize("command", ["migrate", "lint", "stats"])
def test_an_address_where_nobody_is_is_an_error_in_one_line(command: str) -> None:
    Path("a.py").write_text("import torch\n" + LOOP)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = run(command, ".", "--executor", address)
    assert (code, out) == (ExitCode.ERROR, b"")
    assert err.decode() == (f"error: {address} cannot be reached: Connection refused\n")


def test_a_cluster_that_was_killed_is_no_cluster(sessions: Path) -> None:
    """Ray has it written down still, and would try for minutes to reach it."""
    (sessions / "ray").mkdir()
    (sessions / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}")
    Path("a.py").write_text("import torch\n" + LOOP)
    assert run("--diff", "--executor", "ray") == run("--diff")


def test_the_cluster_at_an_address(head: str, project: Path) -> None:
    """Many roots and a token, then without one."""
    (project / "python" / "sitecustomize.py").unlink()
    for root in ("one", "two"):
        Path(root, ".git").mkdir(parents=True)
        Path(root, "clip.py").write_text(CLIP)
    local = run("lint", "one", "two", "--output-format", "json")
    assert json.loads(local[1])["findings"]
    assert (
        run("lint", "one", "two", "--output-format", "json", "--executor", head)
        == local
    )


TRAINS = """\
import os
import torch

print(os.environ["CUDA_VISIBLE_DEVICES"])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4).cuda()).square().mean()
    loss.backward()
    optimizer.step()
"""
ENDLESS = TRAINS.replace("range(3)", "range(10**9)")


def servers(folder: Path) -> dict[int, int]:
    """The interpreters that make runs for a script in a folder, by the processes that asked for them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                b"_amp_smoke\0serve" in (path / "cmdline").read_bytes()
                and (path / "cwd").readlink() == folder
            ):
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                found[int(parent)] = int(path.name)
        except OSError:
            continue
    return found


def said(out: bytes) -> Any:
    """Verdicts, without what is another time each time."""
    found = json.loads(out)["scripts"]
    for one in found:
        del one["seconds"]
    return found


def test_scripts_are_validated_by_a_cluster(
    head: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a GPU; also where the worker of one is killed. Nothing is left of any of them."""
    pytest.importorskip("torch")
    (project / "python" / "sitecustomize.py").unlink()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "none")
    for name in ("b.py", "a.py"):
        Path(name).write_text(TRAINS)
    options = ("validate", "b.py", "a.py", "--json", "-q", "--steps", "2")
    local = run(*options)
    process = start(*options, "--executor", head)
    try:
        until(lambda: len(servers(Path.cwd())) == 2)
        worker, server = servers(Path.cwd()).popitem()
        os.kill(worker, signal.SIGKILL)
        out, err = process.communicate(timeout=300)
    finally:
        end(process)
    assert (process.returncode, err) == (local[0], local[2]) == (0, b"")
    assert said(out) == said(local[1])
    assert [one["script"] for one in said(out)] == ["b.py", "a.py"]
    assert not lives(server)


def test_ctrl_c_ends_what_a_cluster_validates(
    head: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (project / "python" / "sitecustomize.py").unlink()
    Path("a.py").write_text(ENDLESS)
    process = start("validate", "a.py", "--steps", "1000000", "--executor", head)
    try:
        until(lambda: len(servers(Path.cwd())) == 1)
        assert list(project.glob("amp-migrate-*"))
        [server] = servers(Path.cwd()).values()
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, b"")
    until(lambda: not lives(server))
    until(lambda: not list(project.glob("amp-migrate-*")))
