"""Runs several forms of a script, one after the other in one process, and times their iterations.

``python clock.py JOB OUT``: the JSON in JOB says what to do, OUT gets one line of JSON for each run,
at once. Needs torch and nothing else. An iteration is what lies between two backward passes: on CUDA
between two events on the stream, so that nothing waits for the GPU; elsewhere by the wall clock.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


class Enough(BaseException):
    """All iterations were seen. No Exception: scripts catch those."""


class Clock:
    """Marks the end of each backward pass, and ends the run when there are enough of them."""

    def __init__(self, warm_up: int, iterations: int, seconds: float) -> None:
        """``seconds``: after the warm-up, no more than that, but eight iterations at least."""
        self.warm_up = warm_up
        self.iterations = iterations
        self.seconds = seconds
        self.marks: list[Any] = []
        self.begun = 0.0

    def mark(self) -> None:
        self.marks.append(_now())
        done = len(self.marks) - 1 - self.warm_up
        if done == 0:
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            self.begun = time.monotonic()
        late = time.monotonic() - self.begun > self.seconds
        if done >= self.iterations or (done >= 8 and late):
            raise Enough

    def milliseconds(self) -> list[float]:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        marks = self.marks[self.warm_up :]
        return [_between(a, b) for a, b in zip(marks, marks[1:])]  # noqa: B905, RUF007


def _now() -> Any:
    if not torch.cuda.is_available():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(first: Any, second: Any) -> float:
    if isinstance(first, float):
        return (second - first) * 1000.0
    return first.elapsed_time(second)


def machine() -> dict[str, Any]:
    """What it is measured on."""
    found = {
        "kind": "machine",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": None,
    }
    if torch.cuda.is_available():
        found.update(
            device=torch.cuda.get_device_name(),
            capability=list(torch.cuda.get_device_capability()),
            cudnn=torch.backends.cudnn.version(),
        )
    return found


def timed(form: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """One run of one form."""
    clock = Clock(job["warm_up"], job["iterations"], job["seconds"])
    current.mark = clock.mark
    _prepare(job["tf32"])
    before = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    error = _run(form["path"], form["arguments"])
    found: dict[str, Any] = {"kind": "run", "form": form["name"], "error": error}
    if not error:
        found["milliseconds"] = clock.milliseconds()
        if torch.cuda.is_available():
            found["memory"] = torch.cuda.max_memory_allocated() - before
    return found


def _prepare(tf32: bool) -> None:
    """The state that a run may have left behind is undone: memory, seeds, switches."""
    gc.collect()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _run(path: str, arguments: list[str]) -> str:
    """Why it failed; empty where enough was seen."""
    sys.argv = [path, *arguments]
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            runpy.run_path(path, run_name="__main__")
        except Enough:
            return ""
        except BaseException as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
    return "it ended before there were enough iterations"


class Current:
    """The mark of the run in progress."""

    mark: Callable[[], None]


current = Current()


def patch() -> None:
    """From now on each backward pass is marked."""
    inner = torch.autograd.backward

    def backward(*args: Any, **given: Any) -> None:
        inner(*args, **given)
        current.mark()

    torch.autograd.backward = backward


def main(job_file: str, out_file: str) -> None:
    """All forms, several rounds of them, to and fro: what changes with time meets all alike."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    with Path(out_file).open("a", encoding="utf-8") as out:

        def say(line: dict[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        say(machine())
        patch()
        for number in range(job["rounds"]):
            for form in job["forms"][:: -1 if number % 2 else 1]:
                say(timed(form, job))


if __name__ == "__main__":
    main(*sys.argv[1:])
