"""Charts as SVG whose text keeps its size on every screen.

All places are percentages, so that no chart has to be scaled with its labels; only the lines lie in
a stretched coordinate system of their own, with strokes that are not. Values are told by tooltips
of the browser: no script is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from amp_migrate.report.axes import (
    Axis,
    counting,
    from_zero,
    number,
    powers_of_two,
    values_axis,
)
from amp_migrate.report.markup import Markup, element, joined

UNITS = 1000.0
"""Width and height of the coordinate system of lines."""

MAX_STRIPS = 150
"""Tooltips of one chart: more would be narrower than a pointer."""

HUGE = 1e300
"""From here on, sums of values overflow."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line: points from left to right. A y that is not finite interrupts it."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A median with its quartiles, or a single value."""

    name: str
    value: float
    low: float | None
    high: float | None
    told: str
    """The figures with their unit."""
    style: str = ""
    """The class of its colour; else each row of a chart has its own."""


@dataclass(frozen=True, slots=True)
class Titles:
    """What a chart says of itself. ``key`` is unlike that of all other charts of the page."""

    key: str
    title: str
    x: str
    y: str


def lines(titles: Titles, series: Sequence[Series]) -> Markup:
    """Values over steps; the first series is drawn below the others, and wider."""
    values = values_axis(y for one in series for y in one.ys if is_drawable(y))
    return _figure(titles, series, values, stairs=False)


def stairs(titles: Titles, series: Sequence[Series]) -> Markup:
    """Values that hold until they are changed, by powers of two: a loss scale."""
    values = powers_of_two(y for one in series for y in one.ys if is_drawable(y))
    return _figure(titles, series, values, stairs=True)


def bars(
    titles: Titles, rows: Sequence[Bar], remark: str = "", *, whole: bool = False
) -> Markup:
    """Bars from zero, each with its quartiles as a whisker; ``whole``: of numbers without fractions."""
    axis = from_zero(max(row.high or row.value for row in rows), whole=whole)
    height = 48 * len(rows)
    parts = [
        _grid_x(axis),
        *(
            part
            for index, row in enumerate(rows)
            for part in _bar(axis, index, len(rows), row)
        ),
        _text("axis", titles.x, x="50%", y="100%", dy="2.9em", anchor="middle"),
    ]
    said = "; ".join(f"{row.name}: {row.told}" for row in rows)
    return element(
        "figure",
        element("figcaption", element("b", titles.title)),
        _svg(titles, said, parts, class_="plot bars", style=f"height: {height + 56}px"),
        element("p", remark, class_="remark") if remark else "",
    )


def is_drawable(value: float) -> bool:
    """Whether it has a place on an axis."""
    return math.isfinite(value) and abs(value) < HUGE


def _figure(
    titles: Titles, series: Sequence[Series], values: Axis, *, stairs: bool
) -> Markup:
    xs = [x for one in series for x in one.xs]
    across = counting(min(xs, default=0), max(xs, default=1))
    drawn = [
        element(
            "path",
            d=_path(one, across, values, stairs),
            class_=f"line {_style(index, series)}",
            vector_effect="non-scaling-stroke",
        )
        for index, one in enumerate(series)
    ]
    parts = [
        *(
            joined(
                element(
                    "line", x1="0", x2="100%", y1=_down(t.place), y2=_down(t.place)
                ),
                _text(
                    "tick",
                    t.label,
                    x="0",
                    y=_down(t.place),
                    dx="-8",
                    dy="0.32em",
                    anchor="end",
                ),
            )
            for t in values.ticks
        ),
        _grid_x(across),
        element(
            "svg",
            *drawn,
            viewBox=f"0 0 {UNITS:g} {UNITS:g}",
            preserveAspectRatio="none",
            width="100%",
            height="100%",
            overflow="visible",
        ),
        *_strips(series, across, titles.x),
        _text("axis", titles.x, x="50%", y="100%", dy="2.9em", anchor="middle"),
        _text("axis", titles.y, x="0", y="0", dx="-46", dy="-0.9em", anchor="start"),
    ]
    said = "; ".join(_told(one, titles.x) for one in series)
    return element(
        "figure",
        element("figcaption", element("b", titles.title), _legend(series)),
        _svg(titles, said, parts, class_="plot"),
        *(element("p", text, class_="remark bad") for text in _missing(series)),
    )


def _svg(titles: Titles, said: str, parts: Sequence[str], **attributes: str) -> Markup:
    return element(
        "svg",
        element("title", titles.title, id=f"{titles.key}-title"),
        element("desc", said, id=f"{titles.key}-desc"),
        *parts,
        role="img",
        aria_labelledby=f"{titles.key}-title {titles.key}-desc",
        **attributes,
    )


def _legend(series: Sequence[Series]) -> Markup:
    return element(
        "span",
        *(
            element(
                "span",
                element(
                    "svg",
                    element(
                        "path", d="M0 6H26", class_=f"line {_style(index, series)}"
                    ),
                    width="26",
                    height="12",
                    aria_hidden="true",
                ),
                one.name,
            )
            for index, one in enumerate(series)
        ),
        class_="legend",
    )


def _style(index: int, series: Sequence[Series]) -> str:
    """The class of a line: the first of several lies below the others."""
    return f"s{index}" if len(series) > 1 else "only"


def _grid_x(axis: Axis) -> Markup:
    return joined(
        *(
            joined(
                element(
                    "line", y1="0", y2="100%", x1=_over(t.place), x2=_over(t.place)
                ),
                _text(
                    "tick",
                    t.label,
                    x=_over(t.place),
                    y="100%",
                    dy="1.5em",
                    anchor="middle",
                ),
            )
            for t in axis.ticks
        )
    )


def _path(series: Series, across: Axis, values: Axis, stairs: bool) -> str:
    words = []
    broken = True
    for x, y in zip(series.xs, series.ys, strict=True):
        if not is_drawable(y):
            broken = True
            continue
        left = UNITS * across.place(x)
        top = UNITS * (1 - min(1.0, max(0.0, values.place(y))))
        if broken:
            # The line of no length makes a single point a dot.
            words.append(f"M{left:.1f} {top:.1f}h0")
        elif stairs:
            words.append(f"H{left:.1f}V{top:.1f}")
        else:
            words.append(f"L{left:.1f} {top:.1f}")
        broken = False
    return "".join(words)


def _strips(series: Sequence[Series], across: Axis, unit: str) -> list[Markup]:
    """Upright stripes that see nothing but the pointer: each tells the values at one x."""
    at: dict[float, list[str]] = {}
    for one in series:
        for x, y in zip(one.xs, one.ys, strict=True):
            at.setdefault(x, []).append(f"{one.name}: {number(y)}")
    every = max(1, math.ceil(len(at) / MAX_STRIPS))
    chosen = sorted(at)[::every]
    if not chosen:
        return []
    edges = [
        0.0,
        *((across.place(a) + across.place(b)) / 2 for a, b in pairwise(chosen)),
        1.0,
    ]
    return [
        element(
            "rect",
            element("title", "\n".join((f"{unit} {x:g}", *at[x]))),
            x=_over(left),
            width=_over(max(0.0, right - left)),
            y="0",
            height="100%",
            class_="strip",
        )
        for x, (left, right) in zip(chosen, pairwise(edges), strict=True)
    ]


def _bar(axis: Axis, index: int, count: int, row: Bar) -> list[Markup]:
    # Thirds of its row: the words, the bar, nothing.
    top = index / count
    tall = 1 / count
    parts = [
        _text("name", row.name, x="0", y=_over(top + 0.27 * tall), anchor="start"),
        _text("value", row.told, x="100%", y=_over(top + 0.27 * tall), anchor="end"),
        element(
            "rect",
            element("title", f"{row.name}: {row.told}"),
            x="0",
            y=_over(top + 0.4 * tall),
            width=_over(axis.place(row.value)),
            height=_over(0.38 * tall),
            class_=f"bar {row.style or f's{index}'}",
        ),
    ]
    if row.low is None or row.high is None:
        return parts
    middle = _over(top + 0.59 * tall)
    low, high = _over(axis.place(row.low)), _over(axis.place(row.high))
    parts.append(
        element("line", x1=low, x2=high, y1=middle, y2=middle, class_="whisker")
    )
    for end in (low, high):
        ends = {"y1": _over(top + 0.5 * tall), "y2": _over(top + 0.68 * tall)}
        parts.append(element("line", x1=end, x2=end, class_="whisker", **ends))
    return parts


def _told(series: Series, unit: str) -> str:
    """A line in words."""
    seen = [(x, y) for x, y in zip(series.xs, series.ys, strict=True) if is_drawable(y)]
    if not seen:
        return f"{series.name}: no finite value"
    lowest = min(y for _, y in seen)
    highest = max(y for _, y in seen)
    (first, start), (last, end) = seen[0], seen[-1]
    return (
        f"{series.name}: from {number(start)} at {unit} {first:g} to {number(end)} at {unit} {last:g},"
        f" between {number(lowest)} and {number(highest)}"
    )


def _missing(series: Sequence[Series]) -> list[str]:
    found = []
    for one in series:
        count = sum(not is_drawable(y) for y in one.ys)
        if count:
            found.append(
                f"{one.name}: {count} of {len(one.ys)} values are not finite, and not drawn."
            )
    return found


def _text(
    class_: str,
    words: str,
    *,
    x: str,
    y: str,
    anchor: str,
    dx: str | None = None,
    dy: str | None = None,
) -> Markup:
    return element(
        "text", words, x=x, y=y, dx=dx, dy=dy, text_anchor=anchor, class_=class_
    )


def _over(share: float) -> str:
    return f"{100 * share:.3f}%"


def _down(place: float) -> str:
    return _over(1 - place)
