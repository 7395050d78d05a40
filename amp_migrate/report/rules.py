"""A rule of the catalogue in words: on a terminal, as data, and as a page of the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from amp_migrate.catalogue.rules import LintRule, Refusal, Rule

_WIDTH = 88
_PAGE_WIDTH = 110
_KINDS = {
    "refusal": "why a training loop is left alone",
    "old-use": "why an older AMP interface stays",
    "lint": "what `amp-migrate lint` reports",
}


def title(rule: Rule) -> str:
    """A few words that stand by themselves."""
    words = rule.summary
    if rule.kind == "refusal":
        words = f"Training loops left alone: {words}"
    elif rule.kind == "old-use":
        words = f"Older AMP interfaces that stay: {words}"
    return words


def as_line(rule: Rule) -> str:
    """In a list."""
    graded = f" ({rule.severity})" if isinstance(rule, LintRule) else ""
    return f"{rule.code} {rule.name}{graded}: {rule.summary}"


def as_data(rule: Rule) -> dict[str, Any]:
    """Every field by its name."""
    return asdict(rule)


def as_text(rule: Rule) -> str:
    """For a terminal."""
    parts = [f"{rule.code} {rule.name}", title(rule)]
    if facts := _facts(rule):
        parts.append(facts)
    parts += [_filled(rule.message), _filled(rule.why)]
    if isinstance(rule, Refusal):
        parts.append(_filled(_helps(rule)))
    if rule.by_hand:
        parts.append(f"By hand:\n\n{_indented(rule.by_hand)}")
    if rule.example:
        heading = "Found in:" if isinstance(rule, LintRule) else "Left alone:"
        parts.append(f"{heading}\n\n{_indented(rule.example.strip().splitlines())}")
    if rule.counter_example:
        lines = rule.counter_example.strip().splitlines()
        parts.append(f"Not in:\n\n{_indented(lines)}")
    if isinstance(rule, LintRule) and rule.options:
        parts.append(f"Both with {_settings(rule.options)}.")
    parts.append("Sources:\n" + "\n".join(f"  {one}" for one in rule.sources))
    return "\n\n".join(parts) + "\n"


def _helps(rule: Refusal) -> str:
    return f"What helps most often: {rule.remedy}."


def _filled(text: str, width: int = _WIDTH) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _indented(lines: Iterable[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")


def _facts(rule: Rule) -> str:
    if not isinstance(rule, LintRule):
        return ""
    fixes = {
        "safe": "fixed by --fix",
        "unsafe": "fixed by --fix --unsafe-fixes",
        "none": "fixed by hand",
    }
    said = [f"severity: {rule.severity}, at most", fixes[rule.fix]]
    if not rule.default:
        said.append("off unless it is selected")
    return "; ".join(said)


def _settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in sorted(options.items()))


def page(rule: Rule) -> str:
    """One page of the documentation, in Markdown."""
    parts = [f"# {rule.code} {rule.name}", f"{_upper(title(rule))}."]
    if facts := _facts(rule):
        parts.append(f"{_upper(facts)}.")
    parts += [_filled(rule.message, _PAGE_WIDTH), _filled(rule.why, _PAGE_WIDTH)]
    if isinstance(rule, Refusal):
        parts.append(_filled(_helps(rule), _PAGE_WIDTH))
    if rule.by_hand:
        parts += ["## By hand", _python(rule.by_hand)]
    for phrase, lines in rule.advice.items() if isinstance(rule, Refusal) else ():
        parts += [f'Where the message says "{phrase}":', _python(lines)]
    if rule.example:
        heading = (
            "Example" if isinstance(rule, LintRule) else "A loop that is left alone"
        )
        parts += [f"## {heading}", _python(rule.example.strip().splitlines())]
    if rule.counter_example:
        heading = (
            "The same without it"
            if isinstance(rule, LintRule)
            else "The closest that is not"
        )
        parts += [f"## {heading}", _python(rule.counter_example.strip().splitlines())]
    if isinstance(rule, LintRule) and rule.options:
        parts.append(f"Both with `{_settings(rule.options)}`.")
    parts += ["## Sources", "\n".join(f"- <{one}>" for one in rule.sources)]
    return "\n\n".join(parts) + "\n"


def index(rules: Sequence[Rule]) -> str:
    """The table of all pages."""
    parts = [
        "# Rules",
        "What `amp-migrate` calls its findings and its reasons. `amp-migrate explain CODE` prints the page of"
        " a code.",
    ]
    for kind in ("lint", "refusal", "old-use"):
        rows = [rule for rule in rules if rule.kind == kind]
        if not rows:
            continue
        parts.append(f"## {_upper(_KINDS[kind])}")
        if kind == "lint":
            head = "| code | rule | severity | fix | what |\n|---|---|---|---|---|"
        else:
            head = "| code | rule | what |\n|---|---|---|"
        parts.append("\n".join([head, *(_row(rule) for rule in rows)]))
    return "\n\n".join(parts) + "\n"


def _row(rule: Rule) -> str:
    link = f"[{rule.code}]({rule.code}.md)"
    if isinstance(rule, LintRule):
        grade = rule.severity if rule.default else f"{rule.severity}, off by default"
        return f"| {link} | {rule.name} | {grade} | {rule.fix} | {rule.summary} |"
    return f"| {link} | {rule.name} | {rule.summary} |"


def _python(lines: Iterable[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
