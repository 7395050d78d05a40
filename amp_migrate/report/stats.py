"""How far projects have come with AMP: as text, as JSON and as one page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from amp_migrate.report import charts, page
from amp_migrate.report.charts import Bar, Titles
from amp_migrate.report.markup import Markup, element, joined
from amp_migrate.report.summary import Summary, reasons, total
from amp_migrate.report.words import number

_MOST_BARS = 30
"""Of one chart; the tables have all rows."""


@dataclass(frozen=True, slots=True)
class Project:
    """One of the paths that were named."""

    name: str
    summary: Summary


def states(summary: Summary) -> dict[str, int]:
    """The training loops by what can be said of them: each is in one of these."""
    return {
        "under AMP": summary.already,
        "can be migrated": summary.done,
        "left alone": summary.left_alone,
        "switched off": summary.off,
    }


def lines(projects: Sequence[Project], *, verbose: bool) -> Iterator[str]:
    """For a terminal. With ``verbose``, also rare reasons."""
    whole = total([one.summary for one in projects])
    rows = [(one.name, one.summary) for one in projects]
    if len(rows) > 1:
        rows.append(("in all", whole))
    heads = ["loops", *states(whole)]
    cells = [[row.units, *states(row).values()] for _, row in rows]
    left = max(len("project"), *(len(name) for name, _ in rows))
    widths = [
        max(len(head), *(len(str(row[index])) for row in cells))
        for index, head in enumerate(heads)
    ]
    yield _aligned("project", left, heads, widths)
    for (name, _), row in zip(rows, cells, strict=True):
        yield _aligned(name, left, [str(cell) for cell in row], widths)
    if whole.reasons:
        yield ""
        yield f"what blocks {number(whole.left_alone, 'loop')}:"
        yield from reasons(whole, everything=verbose)
    if whole.unread:
        yield ""
        yield f"not counted: {number(whole.unread, 'file')} that could not be read"


def as_json(projects: Sequence[Project]) -> str:
    """The same facts as one document."""
    data = {
        "version": 1,
        "projects": [{"path": one.name, **_plain(one.summary)} for one in projects],
        "total": _plain(total([one.summary for one in projects])),
    }
    return json.dumps(data, indent=2) + "\n"


def html(projects: Sequence[Project], *, date: str, version: str) -> str:
    """The same facts as a page."""
    whole = total([one.summary for one in projects])
    share = f"{100 * whole.already / whole.units:.0f} %" if whole.units else "none"
    parts = [
        element(
            "section",
            element("h2", f"{number(whole.units, 'training loop')}"),
            element(
                "p",
                f"{share} under AMP, in {number(len(projects), 'project')}"
                f" with {number(whole.analysed, 'file')}",
                class_="reason",
            ),
            _bars("states", "All training loops", list(states(whole).items())),
        )
    ]
    if len(projects) > 1:
        parts.append(_by_project(projects))
    if whole.reasons:
        parts.append(_by_reason(whole))
    title = "amp-migrate stats"
    return page.whole(title, title, *parts, date=date, version=version)


def _aligned(name: str, left: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    row = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name:<{left}}  {'  '.join(row)}"


def _plain(summary: Summary) -> dict[str, Any]:
    return {
        "files": summary.analysed,
        "files_not_read": summary.unread,
        "loops": summary.units,
        "under_amp": summary.already,
        "can_be_migrated": summary.done,
        "left_alone": summary.left_alone,
        "switched_off": summary.off,
        "reasons": [asdict(reason) for reason in summary.reasons],
    }


def _bars(key: str, title: str, rows: Sequence[tuple[str, int]]) -> Markup:
    shown = [
        Bar(name, count, None, None, str(count), style="s0")
        for name, count in rows[:_MOST_BARS]
    ]
    left = len(rows) - len(shown)
    remark = f"{left} more are in the table." if left else ""
    titles = Titles(key, title, "training loops", "")
    return charts.bars(titles, shown, remark, whole=True)


def _by_project(projects: Sequence[Project]) -> Markup:
    ordered = sorted(projects, key=lambda one: (-one.summary.done, one.name))
    heads = ["loops", *states(projects[0].summary)]
    rows = [
        [one.name, str(one.summary.units), *map(str, states(one.summary).values())]
        for one in ordered
    ]
    chart = [(one.name, one.summary.done) for one in ordered]
    return element(
        "section",
        element("h3", "Projects"),
        _bars("projects", "Loops that can be migrated", chart),
        _table(["project", *heads], rows, numbers=range(1, len(heads) + 1)),
    )


def _by_reason(whole: Summary) -> Markup:
    chart = [(f"{one.code} {one.words}", one.count) for one in whole.reasons]
    rows = [[one.code, str(one.count), one.words, one.remedy] for one in whole.reasons]
    heads = ["code", "loops", "left alone", "what helps most often"]
    return element(
        "section",
        element("h3", "What blocks the rest"),
        _bars("reasons", "Loops left alone, by reason", chart),
        _table(heads, rows, numbers=(1,)),
    )


def _code(text: str) -> Markup:
    """Words, some of them between backticks."""
    parts = enumerate(text.split("`"))
    return joined(*(element("code", part) if odd % 2 else part for odd, part in parts))


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]
) -> Markup:
    def row(kind: str, cells: Sequence[str]) -> Markup:
        return element(
            "tr",
            *(
                element(
                    kind, _code(cell), class_="number" if index in numbers else None
                )
                for index, cell in enumerate(cells)
            ),
        )

    return element(
        "div",
        element(
            "table",
            element("thead", row("th", heads)),
            element("tbody", joined(*(row("td", cells) for cells in rows))),
        ),
        class_="scroll",
    )
