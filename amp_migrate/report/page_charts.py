"""The charts of one verdict, and the values in them as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from amp_migrate.report import charts
from amp_migrate.report.axes import number
from amp_migrate.report.charts import Bar, Series, Titles
from amp_migrate.report.markup import Markup, element, joined
from amp_migrate.validate.verdict import Curve, Speed, Verdict

MAX_PLACES = 6
"""Charts of losses: scripts have one or two; a helper in a library could have a hundred."""

MAX_ROWS = 400
"""Of a table of values."""


def curves(verdict: Verdict, key: str) -> Markup | None:
    """Losses and scales; None where there are none."""
    by_place: dict[str, list[Curve]] = {}
    for curve in verdict.losses:
        if curve.values:
            by_place.setdefault(curve.place, []).append(curve)
    found = []
    tables = []
    for index, (place, drawn) in enumerate(list(by_place.items())[:MAX_PLACES]):
        name = f"Loss of {_short(place)}" if place else "Loss"
        series = [Series(one.name, _steps(one), one.values) for one in drawn]
        unit = "step" if all(one.steps for one in drawn) else "loss"
        titles = Titles(f"{key}{index}", name, unit, "loss")
        found.append(charts.lines(titles, series))
        tables.append(_table(name, unit, series))
    scales = [
        Series(one.name, range(len(one.values)), one.values)
        for one in verdict.scales
        if one.values
    ]
    if scales:
        titles = Titles(f"{key}-scale", "Loss scale", "step tried", "scale")
        found.append(charts.stairs(titles, scales))
        tables.append(_table("Loss scale", "step tried", scales))
    if not found:
        return None
    more = len(by_place) - MAX_PLACES
    return joined(
        element("div", *found, class_="charts"),
        (
            element("p", f"{more} more places have losses.", class_="remark")
            if more > 0
            else ""
        ),
        element("details", element("summary", "The values as tables"), *tables),
    )


def speeds(verdict: Verdict, key: str) -> Markup | None:
    """Time of an iteration and peak memory; None where nothing was timed."""
    if not verdict.speeds:
        return None
    first, last = verdict.speeds[0], verdict.speeds[-1]
    remark = "Median and quartiles, without hooks and after warm-up."
    if len(verdict.speeds) == 2 and last.median > 0:
        remark += f" Speedup: {first.median / last.median:.2f}."
    times = [
        Bar(
            one.name,
            one.median,
            one.low,
            one.high,
            f"{one.median:.2f} ms ({one.low:.2f} to {one.high:.2f})",
        )
        for one in verdict.speeds
    ]
    titles = Titles(f"{key}-time", "Time of an iteration", "milliseconds", "")
    found = [charts.bars(titles, times, remark)]
    sizes = [_memory(one) for one in verdict.speeds if one.memory is not None]
    if sizes:
        titles = Titles(f"{key}-memory", "Peak memory on the GPU", "MiB", "")
        remark = ""
        if len(sizes) == 2 and sizes[0].value > 0:
            remark = f"Of the original's: {sizes[1].value / sizes[0].value:.0%}."
        found.append(charts.bars(titles, sizes, remark))
    return element("div", *found, class_="charts")


def _memory(speed: Speed) -> Bar:
    mebibytes = (speed.memory or 0) / 2**20
    return Bar(speed.name, mebibytes, None, None, f"{mebibytes:.0f} MiB")


def _steps(curve: Curve) -> Sequence[int]:
    return curve.steps or range(len(curve.values))


def _short(place: str) -> str:
    """A path and line without the folders."""
    return PurePath(place).name


def _table(name: str, unit: str, series: Sequence[Series]) -> Markup:
    rows: dict[tuple[float, int], dict[int, float]] = {}
    for index, one in enumerate(series):
        seen: dict[float, int] = {}
        for x, y in zip(one.xs, one.ys, strict=True):
            # Several losses may belong to one step.
            seen[x] = seen.get(x, 0) + 1
            rows.setdefault((x, seen[x]), {})[index] = y
    shown = sorted(rows.items())[:MAX_ROWS]
    head = [element("th", unit, scope="col", class_="number")]
    head += [element("th", one.name, scope="col", class_="number") for one in series]
    body = [
        element(
            "tr",
            element("td", f"{x:g}", class_="number"),
            *(
                element("td", number(row[i]) if i in row else "", class_="number")
                for i in range(len(series))
            ),
        )
        for (x, _), row in shown
    ]
    left = len(rows) - len(shown)
    return joined(
        element(
            "div",
            element(
                "table",
                element("caption", name),
                element("thead", element("tr", *head)),
                element("tbody", *body),
            ),
            class_="scroll tall",
            tabindex="0",
            role="region",
            aria_label=f"values: {name}",
        ),
        element("p", f"and {left} more", class_="remark") if left else "",
    )
