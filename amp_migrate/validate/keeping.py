"""Which rewrites are kept: those that running them proves. The rest stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from amp_migrate.core.results import Diagnostic, Loop, SourceError
from amp_migrate.core.results import Outcome as LoopOutcome
from amp_migrate.run.config import Settings
from amp_migrate.run.outcome import Migration, Report
from amp_migrate.validate import rewriting
from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.record import shown
from amp_migrate.validate.verdict import Outcome, Verdict

DISPROVED = "AMP091"
NOT_PROVEN = "AMP092"
"""The codes under which a loop is left alone whose rewrite was run, or could not be."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Why the rewrite of one program is not kept."""

    code: str
    reason: str


Proving = Callable[[str, Rewriting], Verdict]
"""Runs a script, named by its path, in both of its forms."""


def proven_alone(report: Report, settings: Settings, prove: Proving) -> Report:
    """The report in which only proven rewrites are left; of the others, every byte is as it was.

    Files of one program are kept together or not at all: each script that runs one of them has to
    be proven, and each of them has to be run by one.
    """
    programs: dict[int, list[Migration]] = {}
    for one in report.migrations:
        programs.setdefault(one.program, []).append(one)
    against: dict[int, Judgement] = {}
    for number, migrations in programs.items():
        if any(one.changed for one in migrations):
            found = _judge(migrations, settings, prove)
            if found is not None:
                against[number] = found
    return replace(
        report,
        migrations=tuple(
            _left_alone(one, against[one.program]) if one.program in against else one
            for one in report.migrations
        ),
    )


def _judge(
    migrations: list[Migration], settings: Settings, prove: Proving
) -> Judgement | None:
    results = {one.document.path: one.result for one in migrations}
    try:
        scripts, left = rewriting.scripts(results, settings)
    except SourceError as error:
        return Judgement(NOT_PROVEN, str(error))
    if left:
        return Judgement(NOT_PROVEN, f"no script is known that runs {min(left)}")
    doubt: Judgement | None = None
    for script, made in scripts.items():
        verdict = prove(script, made)
        if verdict.outcome is Outcome.DISPROVED:
            # It decides, whatever others come to.
            words = f"{shown(script)} is disproved: {verdict.reason}"
            return Judgement(DISPROVED, words)
        if not verdict.proven and doubt is None:
            words = f"{shown(script)} is not proven: {verdict.reason}"
            doubt = Judgement(NOT_PROVEN, words)
    return doubt


def _left_alone(one: Migration, why: Judgement) -> Migration:
    result = one.result
    loops = tuple(_not_kept(loop, why) for loop in result.loops)
    result = replace(result, output=result.source, loops=loops, notes=())
    return replace(one, result=result, output=one.document.data)


def _not_kept(loop: Loop, why: Judgement) -> Loop:
    if loop.outcome is not LoopOutcome.MIGRATED:
        return loop
    found = Diagnostic(why.code, loop.place, why.reason)
    return replace(loop, outcome=LoopOutcome.LEFT_ALONE, diagnostic=found)
