"""Verdicts as one page of HTML that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from amp_migrate.report import page_charts, page_shapes
from amp_migrate.report.markup import Markup, element
from amp_migrate.validate.verdict import Figure, Finding, LevelVerdict, Outcome, Verdict

TONES = {
    Outcome.PROVEN: "good",
    Outcome.UNDERFLOW: "good",
    Outcome.DISPROVED: "bad",
    Outcome.NOT_FINITE: "open",
    Outcome.NOT_JUDGED: "open",
    Outcome.NOTHING: "open",
}
"""The class of each outcome."""

MARKS = {"good": "✓", "bad": "✗", "open": "?"}
"""What says the same as the colours."""


def html(verdicts: Sequence[Verdict], *, date: str, version: str) -> str:
    """The page. ``date`` and ``version`` (this program's) are told as they are given."""
    title = "amp-migrate validate"
    if len(verdicts) == 1:
        title += f": {verdicts[0].script}: {verdicts[0].outcome.value}"
    return whole(
        title,
        "amp-migrate validate",
        _overview(verdicts) if len(verdicts) > 1 else Markup(""),
        *(
            _script(verdict, f"script{number}")
            for number, verdict in enumerate(verdicts, 1)
        ),
        date=date,
        version=version,
    )


def whole(title: str, heading: str, *content: Markup, date: str, version: str) -> str:
    """A page that holds all that it needs."""
    style = files("amp_migrate.report").joinpath("page.css").read_text("utf-8")
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element(
                "meta", name="viewport", content="width=device-width, initial-scale=1"
            ),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            element("style", Markup(style)),
        ),
        element(
            "body",
            element("header", element("h1", heading)),
            element("main", *content),
            element(
                "footer",
                element("p", f"Written by amp-migrate {version} on {date}."),
            ),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n"


def _overview(verdicts: Sequence[Verdict]) -> Markup:
    rows = [
        element(
            "li",
            _pill(verdict.outcome),
            element(
                "span",
                element("a", verdict.script, class_="place", href=f"#script{number}"),
                element("span", verdict.reason),
            ),
        )
        for number, verdict in enumerate(verdicts, 1)
    ]
    proven = sum(verdict.proven for verdict in verdicts)
    return element(
        "section",
        element("h3", f"{proven} of {len(verdicts)} scripts proven"),
        element("ul", *rows, class_="plain overview"),
    )


def _script(verdict: Verdict, key: str) -> Markup:
    return element(
        "article",
        _banner(verdict),
        _section("Levels", _levels(verdict.levels) if verdict.levels else None),
        _section("Curves", page_charts.curves(verdict, f"{key}-curve")),
        _section("Speed and memory", page_charts.speeds(verdict, f"{key}-speed")),
        _section("Protocol", _findings(verdict.findings) if verdict.findings else None),
        _section(
            "Shapes that ran",
            page_shapes.shapes(verdict.shapes) if verdict.shapes else None,
        ),
        _section("Notes", _notes(verdict.notes) if verdict.notes else None),
        id=key,
    )


def _section(title: str, content: Markup | None) -> Markup:
    if content is None:
        return Markup("")
    return element("section", element("h3", title), content)


def _banner(verdict: Verdict) -> Markup:
    facts = []
    if verdict.sites:
        ran = f"{verdict.sites_run} of {verdict.sites}"
        facts.append(("rewritten places that ran", ran))
    if verdict.levels:
        facts += [
            ("applied steps", str(verdict.steps)),
            ("runs", f"{verdict.runs} in {verdict.seconds:.0f} s"),
        ]
    if verdict.tensor_cores is not None:
        facts.append(("time of matrix products", str(verdict.tensor_cores)))
    facts += [
        (name, value)
        for name, value in (
            ("device", verdict.device),
            ("torch", verdict.torch),
            ("Python", verdict.python),
        )
        if value
    ]
    return element(
        "section",
        _pill(verdict.outcome),
        element("h2", verdict.script),
        element("p", verdict.reason, class_="reason"),
        (
            element(
                "dl",
                *(
                    element("div", element("dt", name), element("dd", value))
                    for name, value in facts
                ),
                class_="facts",
            )
            if facts
            else ""
        ),
        class_=f"banner {TONES[verdict.outcome]}",
    )


def _pill(outcome: Outcome) -> Markup:
    tone = TONES[outcome]
    return element("span", f"{MARKS[tone]} {outcome.value}", class_=f"pill {tone}")


def _levels(levels: Sequence[LevelVerdict]) -> Markup:
    return element(
        "ul",
        *(
            element(
                "li",
                element(
                    "div",
                    element("b", level.level.value),
                    _pill(level.outcome),
                    element("span", level.summary),
                    class_="head",
                ),
                _figures(level.figures) if level.figures else "",
                *(element("p", detail, class_="detail") for detail in level.details),
            )
            for level in levels
        ),
        class_="levels",
    )


def _figures(figures: Sequence[Figure]) -> Markup:
    head = element(
        "tr",
        element("th", element("span", "holds", class_="hidden")),
        element("th", "figure"),
        element("th", "measured", class_="number"),
        element("th", "has to be"),
    )
    rows = [
        element(
            "tr",
            _holds(figure),
            element("td", figure.name, class_="figure"),
            element("td", figure.value, class_="number"),
            element("td", figure.bound, class_="bound"),
            class_=None if figure.holds else "missed",
        )
        for figure in figures
    ]
    return element("table", element("thead", head), element("tbody", *rows))


def _holds(figure: Figure) -> Markup:
    if not figure.bound:
        return element("td", class_="mark")
    tone = "good" if figure.holds else "bad"
    words = "holds" if figure.holds else "does not hold"
    mark = element("span", MARKS[tone], role="img", aria_label=words)
    return element("td", mark, class_=f"mark {tone}")


def _findings(findings: Sequence[Finding]) -> Markup:
    return element(
        "ul",
        *(
            element(
                "li",
                element("span", f"{finding.path}:{finding.line}", class_="place"),
                element(
                    "span",
                    finding.severity,
                    class_=f"pill {'bad' if finding.severity == 'error' else 'open'}",
                ),
                " ",
                element("b", finding.title),
                f": {finding.message}",
                f" ({finding.count} times)" if finding.count > 1 else "",
            )
            for finding in findings
        ),
        class_="plain",
    )


def _notes(notes: Sequence[str]) -> Markup:
    return element("ul", *(element("li", note) for note in notes), class_="plain")
