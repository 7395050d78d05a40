"""The server: reads paths of runs on standard input, makes each in a process of its own.

Torch is loaded once and each run is a fork of this process, so that it costs what the script costs;
nothing here touches CUDA, which does not survive a fork. Where there is no fork (Windows), a run is a
new interpreter. When whoever gives the orders is gone, however that came, so is the run.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

from .log import Log

POLL = 0.01
"""Seconds between two looks at a run."""

_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def main() -> None:
    """Serve; or, told ``run`` or ``probe`` and a path, do that."""
    word, path = sys.argv[1:3]
    if word == "serve":
        _serve(Log(path))
    else:
        _do(word, path)


def _serve(status: Log) -> None:
    # Should anything ask for CUDA while it is loaded: by a way that lets CUDA survive the forks.
    own = os.environ.get(_BY_NVML)
    os.environ[_BY_NVML] = "1"
    try:
        import torch
    except BaseException as error:
        status.say("broken", message=f"{type(error).__name__}: {error}")
        return
    with contextlib.suppress(Exception):
        # The first optimizer loads it: a second of every run, otherwise.
        import torch._dynamo

        # What each run would do by itself, otherwise.
        from . import start  # noqa: F401
        from .overlay.overlay import survey

        survey()
    if own is None:
        del os.environ[_BY_NVML]
    else:
        os.environ[_BY_NVML] = own
    status.say(
        "ready", torch=torch.__version__, python=sys.version.split()[0], pid=os.getpid()
    )
    for line in sys.stdin:
        word, path = line.rstrip("\n").split(" ", 1)
        if hasattr(os, "fork"):
            process = os.fork()
            if not process:
                _leave(word, path)
            status.say("started", pid=process)
            code = _wait(process)
        else:
            command = [sys.executable, "-m", "_amp_smoke", word, path]
            child = subprocess.Popen(command)
            status.say("started", pid=child.pid)
            code = child.wait()
        status.say("ended", code=code)


def _wait(process: int) -> int:
    """The status of a run that has ended: by itself, or because nobody waits for it any more."""
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        # No order comes before the last is done: what there is to read is the end of the file.
        if select.select([0], [], [], POLL)[0]:
            os.kill(process, signal.SIGKILL)
            # Its group is there only when it has come so far as to make it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            return os.waitpid(process, 0)[1]


def _leave(word: str, path: str) -> None:
    """In the fork: be the leader of a process group, do the run, and nothing of the server's."""
    try:
        os.setsid()
        _do(word, path)
        os._exit(0)
    finally:
        os._exit(1)


def _do(word: str, path: str) -> None:
    from .start import probe, run

    {"run": run, "probe": probe}[word](path)


if __name__ == "__main__":
    main()
