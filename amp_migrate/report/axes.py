"""Axes of charts: where a value is, and which values are told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SPREAD = 100.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""

FLAT = 1e-5
"""Relative spread up to which values are shown as one."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Tick:
    """A value that is told: its place from 0 to 1, and how it is written."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to places."""

    low: float
    high: float
    """In the units of `transform`."""
    transform: Callable[[float], float]
    ticks: tuple[Tick, ...]

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        return (self.transform(value) - self.low) / (self.high - self.low)


def values_axis(values: Iterable[float], wanted: int = 5) -> Axis:
    """For finite values: linear, or logarithmic where they are positive and spread widely."""
    found = sorted(values)
    low, high = (found[0], found[-1]) if found else (0.0, 1.0)
    if low > 0 and high / low >= SPREAD:
        return _decades(low, high)
    largest = max(abs(low), abs(high))
    margin = (high - low) * 0.06
    if high - low <= FLAT * largest:
        margin = largest * 0.1 or 1.0
    bottom = low - margin
    if low >= 0 > bottom:
        bottom = 0.0
    return _linear(bottom, high + margin, wanted)


def from_zero(highest: float, wanted: int = 4, *, whole: bool = False) -> Axis:
    """For bars, whose length is what is seen; ``whole``: of numbers that have no fractions."""
    return _linear(0.0, highest * 1.04 or 1.0, wanted, least=float(whole))


def counting(first: float, last: float, wanted: int = 6) -> Axis:
    """For whole numbers, such as steps."""
    if last <= first:
        first, last = first - 0.5, first + 0.5
    return _linear(first, last, wanted, least=1.0)


def powers_of_two(values: Iterable[float]) -> Axis:
    """For loss scales, which double and halve."""
    found = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log2(min(found))) - 1
    high = math.ceil(math.log2(max(found))) + 1
    every = max(1, math.ceil((high - low) / 5))
    exponents = [n for n in range(low, high + 1) if n % every == 0]
    return _logarithmic(low, high, _log2, "2", exponents)


def number(value: float) -> str:
    """A value in four digits or so."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.3e}"


def _log2(value: float) -> float:
    # What is not positive is drawn at the bottom.
    return math.log2(value) if value > 0 else -math.inf


def _decades(low: float, high: float) -> Axis:
    bottom, top = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((top - bottom) / 5))
    exponents = [n for n in range(bottom, top + 1) if n % every == 0]
    return _logarithmic(bottom, top, math.log10, "10", exponents)


def _logarithmic(
    low: float,
    high: float,
    transform: Callable[[float], float],
    base: str,
    exponents: list[int],
) -> Axis:
    ticks = tuple(
        Tick((n - low) / (high - low), base + str(n).translate(_SUPERSCRIPTS))
        for n in exponents
    )
    return Axis(low, high, transform, ticks)


def _linear(low: float, high: float, wanted: int, least: float = 0.0) -> Axis:
    step = max(_nice((high - low) / wanted), least)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    ticks = tuple(
        Tick((n * step - low) / (high - low), _label(n * step, step))
        for n in range(first, last + 1)
    )
    return Axis(low, high, float, ticks)


def _nice(step: float) -> float:
    """The nearest of 1, 2 and 5 times a power of ten, as ratios go."""
    power = 10.0 ** math.floor(math.log10(step))
    factor = min((1, 2, 5, 10), key=lambda factor: abs(math.log(step / power / factor)))
    return factor * power


def _label(value: float, step: float) -> str:
    if value == 0:
        return "0"
    if step >= 1e-4 and abs(value) < 1e5:
        return f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
    return f"{value:.{_digits(value, step)}e}"


def _digits(value: float, step: float) -> int:
    """Decimals that tell neighbours apart in scientific notation."""
    return max(0, math.floor(math.log10(abs(value)) - math.log10(step) + 1e-9))
