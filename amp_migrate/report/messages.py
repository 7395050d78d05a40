"""What a run says beside its output: a line for each loop left alone, errors, and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from amp_migrate.catalogue import CatalogueError, refusal
from amp_migrate.engine import Report
from amp_migrate.results import Diagnostic, Loop, Outcome, Place

INTERNAL_ERROR = "AMP090"
"""The code under which the core leaves a loop alone because it does not trust its own rewrite."""


def diagnostic(found: Diagnostic, said: dict[tuple[str, ...], Place]) -> Iterator[str]:
    """The lines for one loop left alone; those after the first are indented.

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


def has_internal_error(report: Report) -> bool:
    """Whether a loop was left alone through a fault of this program."""
    return any(
        found.code == INTERNAL_ERROR
        for result in report.results
        for found in result.diagnostics
    )


def summary(report: Report, *, written: bool) -> str:
    """One line with numbers. ``written``: whether the changes are on disk by now."""
    loops = [loop for result in report.results for loop in _counted(result.loops)]
    already = [loop for loop in loops if loop.outcome is Outcome.ALREADY]
    loops = [loop for loop in loops if loop.outcome is not Outcome.ALREADY]
    sentences = []
    if loops or not already:
        sentences.append(_of_loops(report, loops, written=written))
    left_alone = [loop for loop in loops if loop.outcome is Outcome.LEFT_ALONE]
    if left_alone:
        sentences.append(f"{len(left_alone)} left alone ({_reasons(left_alone)})")
    if already:
        words = _number(len(already), "training loop")
        sentences.append(f"{words} under AMP already")
    if report.failures:
        sentences.append(f"{_number(len(report.failures), 'error')}")
    return "; ".join(sentences)


def _of_loops(report: Report, loops: Sequence[Loop], *, written: bool) -> str:
    if not report.files:
        return "no Python files found"
    if not loops:
        return f"no training loops found in {_number(report.files, 'file')}"
    migrated = sum(loop.outcome is Outcome.MIGRATED for loop in loops)
    files = sum(
        any(loop.outcome is not Outcome.ALREADY for loop in _counted(result.loops))
        for result in report.results
    )
    verb = "migrated" if written else "would migrate"
    return (
        f"{verb} {migrated} of {_number(len(loops), 'training loop')}"
        f" in {_number(files, 'file')}"
    )


def _counted(loops: Sequence[Loop]) -> list[Loop]:
    return [loop for loop in loops if loop.outcome is not Outcome.OFF]


def _reasons(loops: Sequence[Loop]) -> str:
    codes = Counter(loop.diagnostic.code if loop.diagnostic else "" for loop in loops)
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {_words(code)}" for code, count in ordered)


def _words(code: str) -> str:
    try:
        return refusal(code).summary
    except CatalogueError:
        return code or "without a reason"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
