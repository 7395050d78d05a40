"""What a run says beside its output: a line for each loop left alone, errors, and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from amp_migrate.catalogue.rules import CatalogueError, refusal
from amp_migrate.core.results import (
    Diagnostic,
    Loop,
    Note,
    OldUse,
    Outcome,
    Place,
    Result,
)
from amp_migrate.run.engine import Report
from amp_migrate.run.jobs import Job

INTERNAL_ERROR = "AMP090"
"""The code under which the core leaves a loop alone because it does not trust its own rewrite."""


def diagnostic(found: Diagnostic, said: dict[tuple[str, ...], Place]) -> Iterator[str]:
    """The lines for one loop, or older use, left alone; those after the first are indented.

    ``said`` remembers between calls what was said to write by hand, so as not to say it twice.
    """
    place, blocker = found.place, found.blocker
    yield f"{place.path}:{place.line}:{place.column} {found.code} {found.message}"
    if blocker is not None:
        text = f": {blocker.text}" if blocker.text else ""
        yield f"  blocked by {blocker.path}:{blocker.line}{text}"
    if not found.by_hand:
        return
    before = said.setdefault(found.by_hand, place)
    if before is not place:
        yield f"  by hand: as above, for {before.path}:{before.line}"
    else:
        yield "  by hand:"
        for entry in found.by_hand:
            yield from (f"    {line}".rstrip() for line in entry.split("\n"))


def note(found: Note) -> str:
    """The line for what is left to be done by hand where something was migrated."""
    place = found.place
    return f"{place.path}:{place.line}:{place.column} note: {found.message}"


def has_internal_error(report: Report) -> bool:
    """Whether a loop was left alone through a fault of this program."""
    return any(
        found.code == INTERNAL_ERROR
        for result in report.results
        for found in result.diagnostics
    )


def summary(report: Report, *, written: bool, job: Job = Job.MIGRATE) -> str:
    """One line with numbers. ``written``: whether the changes are on disk by now."""
    units = [unit for result in report.results for unit in _counted(result)]
    already = [unit for unit in units if unit.outcome is Outcome.ALREADY]
    units = [unit for unit in units if unit.outcome is not Outcome.ALREADY]
    sentences = []
    if units or not already:
        sentences.append(_of_units(report, units, job, written=written))
    left_alone = [unit for unit in units if unit.outcome is Outcome.LEFT_ALONE]
    if left_alone:
        sentences.append(f"{len(left_alone)} left alone ({_reasons(left_alone)})")
    if already:
        words = _number(len(already), "training loop")
        sentences.append(f"{words} under AMP already")
    if report.failures:
        words = _number(len(report.failures), "error")
        if len(report.unread) > len(report.failures):
            words += f", {len(report.unread)} files not analysed"
        sentences.append(words)
    return "; ".join(sentences)


def sizes(report: Report) -> str:
    """One line on sizes that `amp-migrate lint` would warn of; empty where there are none."""
    found = [one.unaligned for one in report.results if one.unaligned.sizes]
    if not found:
        return ""
    count = sum(one.sizes for one in found)
    words = _number(count, "layer size")
    return f"{words} not divisible by {found[0].unit}: `amp-migrate lint`"


def _of_units(
    report: Report, units: Sequence[Loop | OldUse], job: Job, *, written: bool
) -> str:
    one, many, verb = _WORDS[job]
    if not report.files:
        return "no Python files found"
    if not units:
        return f"no {many} found in {_number(len(report.analysed), 'file')}"
    done = len(units) - sum(unit.outcome is Outcome.LEFT_ALONE for unit in units)
    files = sum(
        any(unit.outcome is not Outcome.ALREADY for unit in _counted(result))
        for result in report.results
    )
    verb = f"{verb}d" if written else f"would {verb}"
    return (
        f"{verb} {done} of {_number(len(units), one, many)}"
        f" in {_number(files, 'file')}"
    )


_WORDS = {
    Job.MIGRATE: ("training loop", "training loops", "migrate"),
    Job.MODERNIZE: (
        "use of an older AMP interface",
        "uses of older AMP interfaces",
        "modernize",
    ),
}
"""What a job is about, one and many, and what is done with it."""


def _counted(result: Result) -> list[Loop | OldUse]:
    return [unit for unit in result.units if unit.outcome is not Outcome.OFF]


def _reasons(units: Sequence[Loop | OldUse]) -> str:
    codes = Counter(unit.diagnostic.code if unit.diagnostic else "" for unit in units)
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {_words(code)}" for code, count in ordered)


def _words(code: str) -> str:
    try:
        return refusal(code).summary
    except CatalogueError:
        return code or "without a reason"


def _number(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
