"""Starts `clock.py` for one case and reads what it says."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from gpu_smoke.cases import Case

CLOCK = Path(__file__).resolve().parent / "clock.py"


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    warm_up: int
    iterations: int
    """Of one round."""
    rounds: int
    seconds: float
    """After warm-up, of one round of one form."""


REAL = Effort(warm_up=10, iterations=20, rounds=2, seconds=3.0)
TINY = Effort(warm_up=1, iterations=2, rounds=1, seconds=60.0)


@dataclass(frozen=True)
class Timing:
    """One form: milliseconds an iteration, of all rounds, and peak bytes on the GPU; or an error."""

    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    count: int = 0
    memory: int | None = None
    error: str = ""


def probe(python: str) -> dict[str, Any]:
    """The machine that a Python sees. Raises RuntimeError where it has no torch."""
    lines, said = _work(python, {"rounds": 0, "forms": []}, 120.0)
    if not lines:
        raise RuntimeError(f"{python}: {said}")
    return lines[0]


def measure(
    python: str,
    case: Case,
    forms: Sequence[str],
    *,
    tf32: bool,
    tiny: bool,
    timeout: float,
) -> dict[str, Timing]:
    """By form. Those that were not reached in ``timeout`` seconds have an error."""
    effort = TINY if tiny else REAL
    arguments = case.tiny if tiny else case.arguments
    job = {
        "warm_up": effort.warm_up,
        "iterations": effort.iterations,
        "rounds": effort.rounds,
        "seconds": effort.seconds,
        "tf32": tf32,
        "forms": [
            {"name": form, "path": str(case.file(form)), "arguments": list(arguments)}
            for form in forms
        ],
    }
    lines, said = _work(python, job, timeout)
    runs = [line for line in lines if line["kind"] == "run"]
    return {
        form: _timing([run for run in runs if run["form"] == form], said)
        for form in forms
    }


def _work(
    python: str, job: dict[str, Any], timeout: float
) -> tuple[list[dict[str, Any]], str]:
    """The lines, and why there are no more of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        out = folder / "out.jsonl"
        out.touch()
        command = [python, str(CLOCK), str(folder / "job.json"), str(out)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, cwd=folder
            )
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        except subprocess.TimeoutExpired:
            said = "no time was left"
        except OSError as error:
            said = error.strerror or str(error)
        text = out.read_text(encoding="utf-8")
    complete = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in complete], said


def _timing(runs: Sequence[dict[str, Any]], said: str) -> Timing:
    if not runs:
        return Timing(error=said)
    for run in runs:
        if run["error"]:
            return Timing(error=run["error"])
    times = [time for run in runs for time in run["milliseconds"]]
    low, middle, high = quantiles(times, n=4)
    peaks = [run["memory"] for run in runs if "memory" in run]
    return Timing(middle, low, high, len(times), max(peaks) if peaks else None)
