"""Whether training in mixed precision is still the same training, by the criteria of statistics.

Paired runs: the same seeds, the same first parameters, the same order of data. What fp32 itself does to
a script whose parameters are changed by the relative precision of fp16 is the noise that mixed
precision is measured against. Measured over 60 steps, 3 seeds, 4 models and 2 optimizers, correct fp16
training changes the mean loss by at most 4.5e-4 and the first by 1.3e-4, relative, which is 0.3 to 5
times that noise; broken training by 20 times and more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from amp_migrate.validate.record import Record
from amp_migrate.validate.verdict import Figure

NOISE = 2.0**-11
"""Relative change of the parameters of a noise twin: half the distance of neighbours in fp16."""

FIRST = 1e-2
FLOOR = 1e-2
MOST = 5e-2
SKIPPED_SHARE = 0.3
SKIPPED = 20
FIRST_SKIPS = 8
"""What a scaler may need to find its scale: 65536 / 2**8 suits losses that are sums over a batch."""
SMALL_LOSS = 1e-2
"""Losses are compared relative to their mean magnitude, but at least to this: some go to zero."""


def first_loss(before: Sequence[float], after: Sequence[float]) -> Figure:
    """Before any update only the forward can differ."""
    scale = max(_magnitude(before), abs(before[0]))
    found = abs(after[0] - before[0]) / scale
    return Figure(
        "first loss, relative difference",
        f"{found:.1e}",
        f"≤ {FIRST:g}",
        found <= FIRST,
    )


def all_finite(records: Sequence[Record]) -> Figure:
    """No loss overflowed."""
    bad = sum(not math.isfinite(value) for one in records for value in one.losses)
    return Figure("losses that are not finite", str(bad), "0", not bad)


def trajectory(
    plain: Sequence[Sequence[float]],
    noisy: Sequence[Sequence[float]],
    mixed: Sequence[Sequence[float]],
    part: float,
    name: str,
) -> list[Figure]:
    """Mean losses of the last ``part`` of the runs, one run a seed, against the noise of fp32."""
    ours = [_mean_difference(a, b, part) for a, b in zip(plain, mixed, strict=True)]
    noise = [_mean_difference(a, b, part) for a, b in zip(plain, noisy, strict=True)]
    typical = max(5 * median(noise), FLOOR)
    largest = max(10 * max(noise), MOST)
    return [
        Figure(
            f"{name}, relative difference, median",
            f"{median(ours):.1e}",
            f"≤ {typical:.1e} (fp32 noise {median(noise):.1e})",
            median(ours) <= typical,
        ),
        Figure(
            f"{name}, relative difference, largest",
            f"{max(ours):.1e}",
            f"≤ {largest:.1e} (fp32 noise {max(noise):.1e})",
            max(ours) <= largest,
        ),
    ]


def learning(before: Sequence[float], after: Sequence[float]) -> Figure | None:
    """How much of the drop of the loss is kept; None where there is next to none in fp32."""
    ends = max(1, len(before) // 5)
    drop = fmean(before[:ends]) - fmean(before[-ends:])
    if drop <= 0.05 * _magnitude(before):
        return None
    ends = max(1, len(after) // 5)
    kept = (fmean(after[:ends]) - fmean(after[-ends:])) / drop
    return Figure(
        "drop of the loss, to that of fp32",
        f"{kept:.2f}",
        "0.80 to 1.25",
        0.8 <= kept <= 1.25,
    )


def skipped(record: Record, initial: float) -> list[Figure]:
    """How a scaler that starts at its default gets on."""
    left_out = len(record.all("skip"))
    steps = record.all("step")
    attempts = left_out + len(steps)
    most = min(SKIPPED, max(FIRST_SKIPS, math.ceil(SKIPPED_SHARE * attempts)))
    scale = float(steps[-1]["scale"] or 1.0) if steps else 0.0
    late = _applied_late(record)
    return [
        Figure(
            f"steps skipped from a scale of {initial:g}",
            f"{left_out} of {attempts}",
            f"≤ {most}",
            left_out <= most,
        ),
        Figure("scale at the end", f"{scale:g}", "≥ 1", scale >= 1),
        Figure("steps applied in the last quarter", str(late), "≥ 1", late >= 1),
    ]


def _applied_late(record: Record) -> int:
    tried = [one["kind"] for one in record.lines if one["kind"] in ("step", "skip")]
    return tried[len(tried) * 3 // 4 :].count("step")


def _mean_difference(
    before: Sequence[float], after: Sequence[float], part: float
) -> float:
    # A run that skipped a step has made more backward passes for as many steps.
    length = min(len(before), len(after))
    start = int(length * (1 - part))
    difference = fmean(after[start:length]) - fmean(before[start:length])
    if not math.isfinite(difference):
        return math.inf
    return abs(difference) / _magnitude(before[:length])


def _magnitude(losses: Sequence[float]) -> float:
    return max(SMALL_LOSS, fmean(abs(value) for value in losses))
