"""Verdicts as text for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from amp_migrate.validate.verdict import LevelVerdict, Outcome, Speed, Verdict

MARKS = {
    Outcome.PROVEN: "green",
    Outcome.UNDERFLOW: "green",
    Outcome.DISPROVED: "red",
    Outcome.NOT_FINITE: "yellow",
    Outcome.NOT_JUDGED: "yellow",
    Outcome.NOTHING: "",
}
"""The colour that each outcome is told in."""


def lines(verdict: Verdict, *, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """What a person reads of one script: lines, each with a colour or none.

    With ``verbose``, all figures of all levels; else those that miss their bounds.
    """
    colour = MARKS[verdict.outcome]
    yield f"{verdict.script}: {verdict.outcome.value}: {verdict.reason}", colour
    if not verdict.levels:
        return
    width = max(len(level.outcome.value) for level in verdict.levels)
    for level in verdict.levels:
        head = f"  {level.level.value:<10} {level.outcome.value:<{width}}  "
        yield head + level.summary, MARKS[level.outcome]
        yield from _details(level, verbose)
    for finding in verdict.findings:
        place = f"{finding.path}:{finding.line}"
        times = "" if finding.count == 1 else f" ({finding.count} times)"
        yield f"    {place}: {finding.title}: {finding.message}{times}", ""
    yield f"  {_extent(verdict)}", ""
    for line in _speeds(verdict.speeds):
        yield f"  {line}", ""
    if verdict.tensor_cores is not None:
        yield f"  time of matrix products: {verdict.tensor_cores}", ""
    for line in verdict.shape_lines:
        yield f"  {line}".rstrip(), ""
    for note in verdict.notes:
        yield f"  note: {note}", ""


def as_json(verdicts: Sequence[Verdict]) -> str:
    """One document for all scripts. Numbers that JSON does not have are null."""
    data = {"version": 1, "scripts": [_plain(asdict(one)) for one in verdicts]}
    return json.dumps(data, indent=2) + "\n"


def _details(level: LevelVerdict, verbose: bool) -> Iterator[tuple[str, str]]:
    shown = [figure for figure in level.figures if verbose or not figure.holds]
    names = max((len(figure.name) for figure in shown), default=0)
    values = max((len(figure.value) for figure in shown), default=0)
    for figure in shown:
        line = f"    {figure.name:<{names}}  {figure.value:>{values}}  {figure.bound}"
        yield line.rstrip(), "" if figure.holds else "red"
    for detail in level.details:
        yield f"    {detail}", ""


def _extent(verdict: Verdict) -> str:
    steps = "1 step" if verdict.steps == 1 else f"{verdict.steps} steps"
    return (
        f"{verdict.sites_run} of {verdict.sites} rewritten places ran, {steps};"
        f" {verdict.runs} runs in {verdict.seconds:.0f} s"
        f" (torch {verdict.torch}, {verdict.device})"
    )


def _speeds(speeds: Sequence[Speed]) -> Iterator[str]:
    for one in speeds:
        memory = "" if one.memory is None else f", {one.memory / 2**20:.0f} MiB at most"
        yield (
            f"{one.name}: {one.median:.2f} ms an iteration"
            f" (quartiles {one.low:.2f} to {one.high:.2f}){memory}"
        )
    if len(speeds) == 2:
        before, after = speeds
        line = f"speedup {before.median / after.median:.2f}"
        if before.memory and after.memory:
            line += f", {after.memory / before.memory:.2f} of the memory"
        yield line


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (_INF, -_INF)):
        return None
    return value


_INF = float("inf")
