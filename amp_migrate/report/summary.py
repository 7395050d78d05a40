"""The end of a run: what was done, what was left alone and what would help, and the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from amp_migrate.catalogue.rules import CatalogueError, refusal
from amp_migrate.core.results import Outcome, Unaligned
from amp_migrate.report.words import number
from amp_migrate.run.jobs import Job
from amp_migrate.run.outcome import Report

_MOST_REASONS = 6
"""With more of them, the rarer ones are only counted."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some loops, or older uses, were left alone."""

    code: str
    count: int
    words: str
    """Completes "2 loops ..."."""
    remedy: str
    """What helps most often; empty where nothing is known of the code."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The sum of a run, in numbers of training loops or of older uses."""

    analysed: int
    """Files that could be read, whatever is in them."""
    files: int
    """Those with something that was done, or left alone."""
    done: int
    left_alone: int
    already: int
    """Under AMP before the run."""
    off: int
    """Switched off by a comment."""
    reasons: tuple[Reason, ...]
    """Of what was left alone, the most frequent first."""
    errors: int
    unread: int
    """Files that were not analysed."""
    unaligned: Unaligned

    @property
    def units(self) -> int:
        """All that were found."""
        return self.wanted + self.already + self.off

    @property
    def wanted(self) -> int:
        """What there was to do."""
        return self.done + self.left_alone


def total(summaries: Sequence[Summary]) -> Summary:
    """Several in one."""
    codes: Counter[str] = Counter()
    for one in summaries:
        codes.update({reason.code: reason.count for reason in one.reasons})
    sizes = [one.unaligned for one in summaries if one.unaligned.sizes]
    return Summary(
        **{name: sum(getattr(one, name) for one in summaries) for name in _NUMBERS},
        reasons=_ordered(codes),
        unaligned=_together(sizes),
    )


def summarized(report: Report) -> Summary:
    """The sum of what a run found."""
    units = [unit for result in report.results for unit in result.units]
    outcomes = Counter(unit.outcome for unit in units)
    codes = Counter(
        unit.diagnostic.code if unit.diagnostic else ""
        for unit in units
        if unit.outcome is Outcome.LEFT_ALONE
    )
    sizes = [one.unaligned for one in report.results if one.unaligned.sizes]
    return Summary(
        analysed=len(report.analysed),
        files=sum(
            any(
                unit.outcome not in (Outcome.ALREADY, Outcome.OFF)
                for unit in result.units
            )
            for result in report.results
        ),
        done=outcomes[Outcome.MIGRATED] + outcomes[Outcome.MODERNIZED],
        left_alone=outcomes[Outcome.LEFT_ALONE],
        already=outcomes[Outcome.ALREADY],
        off=outcomes[Outcome.OFF],
        reasons=_ordered(codes),
        errors=len(report.failures),
        unread=len(report.unread),
        unaligned=_together(sizes),
    )


def lines(
    summary: Summary, *, job: Job, written: bool, all_reasons: bool
) -> Iterator[str]:
    """What a person reads. ``written``: whether the changes are on disk by now."""
    one, many, verb = _WORDS[job]
    if summary.wanted:
        verb = f"{verb}d" if written else f"would {verb}"
        yield (
            f"{verb} {summary.done} of {number(summary.wanted, one, many)}"
            f" in {number(summary.files, 'file')}"
        )
    elif not summary.already:
        found = f"no {many} found in {number(summary.analysed, 'file')}"
        yield found if summary.analysed or summary.errors else "no Python files found"
    if summary.reasons:
        yield f"left alone: {summary.left_alone}"
        yield from reasons(summary, everything=all_reasons)
    if summary.already:
        yield f"under AMP already: {number(summary.already, one, many)}"
    if summary.errors:
        words = number(summary.errors, "error")
        if summary.unread > summary.errors:
            words += f", {summary.unread} files not analysed"
        yield words
    if summary.unaligned.sizes:
        words = number(summary.unaligned.sizes, "layer size")
        yield f"{words} not divisible by {summary.unaligned.unit}: `amp-migrate lint`"


def next_step(
    summary: Summary, *, job: Job, written: bool, runnable: bool, proof: str
) -> str:
    """One line on what to do now; empty where there is nothing.

    ``runnable``: whether a script is among what is rewritten; ``proof``: the arguments of
    ``amp-migrate validate`` that would prove the rewrite.
    """
    if summary.done:
        steps = [] if written else ["`--write` rewrites the files"]
        if runnable and not written and job is Job.MIGRATE:
            steps.append(
                "`--write --validate` first runs them, and writes only what is proven"
            )
        elif proof and job is Job.MIGRATE:
            steps.append(f"`amp-migrate validate {proof}` runs a script to prove it")
        return f"next: {'; '.join(steps)}" if steps else ""
    if summary.reasons and summary.reasons[0].code:
        code = summary.reasons[0].code
        return f"next: `amp-migrate explain {code}` says more"
    if summary.already:
        return "next: `amp-migrate lint` looks for mistakes in the use of AMP"
    return ""


_WORDS = {
    Job.MIGRATE: ("training loop", "training loops", "migrate"),
    Job.MODERNIZE: (
        "use of an older AMP interface",
        "uses of older AMP interfaces",
        "modernize",
    ),
}
"""What a job is about, one and many, and what is done with it."""


def reasons(summary: Summary, *, everything: bool) -> Iterator[str]:
    """Why something was left alone, and what helps most; ``everything``: also what is rare."""
    found = summary.reasons
    if not found:
        return
    shown = found if everything else found[:_MOST_REASONS]
    if len(found) == len(shown) + 1:
        shown = found  # a line that names it is no longer than one that counts it
    rest = found[len(shown) :]
    others = sum(one.count for one in rest)
    width = len(str(max(others, shown[0].count)))
    for one in shown:
        head = f"  {one.count:>{width}}  {one.code}  "
        yield f"{head}{one.words}".rstrip()
        if one.remedy:
            yield f"{' ' * len(head)}{one.remedy}"
    if rest:
        yield f"  {others:>{width}}  for {len(rest)} other reasons (-v lists them)"


_NUMBERS = [one.name for one in fields(Summary) if one.type == "int"]


def _together(sizes: Sequence[Unaligned]) -> Unaligned:
    return Unaligned(sum(one.sizes for one in sizes), sizes[0].unit if sizes else 8)


def _ordered(codes: Mapping[str, int]) -> tuple[Reason, ...]:
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(_reason(code, count) for code, count in ordered)


def _reason(code: str, count: int) -> Reason:
    try:
        rule = refusal(code)
    except CatalogueError:
        return Reason(code, count, "" if code else "without a reason", "")
    return Reason(code, count, rule.summary, rule.remedy)
