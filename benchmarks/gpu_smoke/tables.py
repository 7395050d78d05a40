"""What was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amp_migrate.validate.verdict import Level, Verdict
from gpu_smoke.cases import DTYPES, FP32, Case
from gpu_smoke.measure import Timing

AIM = 0.98
"""Of the speed of a migration by hand."""

_HEADER = (
    "model",
    "TF32",
    "AMP",
    "fp32 [ms]",
    "migrated [ms]",
    "by hand [ms]",
    "speedup",
    "to by hand",
    "fp32 [MiB]",
    "migrated [MiB]",
    "memory",
    "published speedup",
)


@dataclass(frozen=True)
class Row:
    """One model, with TF32 or without, in one type."""

    case: Case
    tf32: bool
    dtype: str
    timings: Mapping[str, Timing]
    """By form; empty where nothing was measured."""

    @property
    def to_by_hand(self) -> float | None:
        """Speed of what the tool wrote, to that of what the book says."""
        ours, theirs = (self.timings.get(form) for form in DTYPES[self.dtype])
        return _ratio(theirs, ours)


def models(rows: Sequence[Row]) -> Iterator[str]:
    """The table of the models. A cell is empty where there is no figure."""
    yield _line(_HEADER)
    yield _line(["---"] * 3 + ["---:"] * 8 + ["---"])
    for row in rows:
        ours, theirs = (row.timings.get(form) for form in DTYPES[row.dtype])
        plain = row.timings.get(FP32)
        memory = ""
        if plain and ours and plain.memory and ours.memory:
            memory = f"{ours.memory / plain.memory:.2f}"
        yield _line(
            [
                row.case.title,
                "on" if row.tf32 else "off",
                row.dtype,
                _time(plain),
                _time(ours),
                _time(theirs),
                _number(_ratio(plain, ours)),
                _number(row.to_by_hand),
                _mebibytes(plain),
                _mebibytes(ours),
                memory,
                row.case.published if row.dtype == "fp16" and not row.tf32 else "",
            ]
        )


def aim(rows: Sequence[Row]) -> str:
    """Whether what the tool writes is as fast as it should be."""
    found = [row.to_by_hand for row in rows if row.to_by_hand is not None]
    if not found:
        return "Nothing was measured."
    missed = sum(ratio < AIM for ratio in found)
    verdict = "all reach it" if not missed else f"{missed} of {len(found)} miss it"
    return (
        f"Speed as migrated, to that by hand: {min(found):.3f} to {max(found):.3f};"
        f" the aim is at least {AIM}: {verdict}."
    )


def errors(rows: Sequence[Row]) -> Iterator[str]:
    """What did not run."""
    told = set()
    for row in rows:
        for form, timing in row.timings.items():
            line = f"- {row.case.title}, {form}: {timing.error}"
            if timing.error and line not in told:
                told.add(line)
                yield line


def verdicts(found: Mapping[str, Verdict]) -> Iterator[str]:
    """The table of the fixtures."""
    levels = list(Level)
    yield _line(
        ["fixture", "verdict", *(level.value for level in levels), "sites", "runs", "s"]
    )
    yield _line(["---"] * (2 + len(levels)) + ["---:"] * 3)
    for name, verdict in found.items():
        by_level = {one.level: one.outcome.value for one in verdict.levels}
        yield _line(
            [
                name,
                verdict.outcome.value,
                *(by_level.get(level, "") for level in levels),
                f"{verdict.sites_run} of {verdict.sites}",
                str(verdict.runs),
                f"{verdict.seconds:.0f}",
            ]
        )
    for name, verdict in found.items():
        if not verdict.proven:
            yield ""
            yield f"{name}: {verdict.reason}"


def machine(found: Mapping[str, Any], driver: str, date: str) -> str:
    """What it was measured on, in one line."""
    if not found["device"]:
        return f"{date}, no CUDA device, torch {found['torch']}"
    major, minor = found["capability"]
    return (
        f"{date}, {found['device']} (compute capability {major}.{minor}), driver {driver},"
        f" torch {found['torch']}, CUDA {found['cuda']}, cuDNN {found['cudnn']}"
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _time(timing: Timing | None) -> str:
    if timing is None or timing.error:
        return ""
    return f"{timing.median:.2f} ({timing.low:.2f} to {timing.high:.2f})"


def _mebibytes(timing: Timing | None) -> str:
    if timing is None or timing.memory is None:
        return ""
    return f"{timing.memory / 2**20:.0f}"


def _ratio(above: Timing | None, below: Timing | None) -> float | None:
    if above is None or below is None or above.error or below.error:
        return None
    return above.median / below.median


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
