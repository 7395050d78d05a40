"""`--write --validate`: rewrites are proven by running them before a file is touched."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.validate import SECONDS, STEPS
from amp_migrate.core.limits import most_memory
from amp_migrate.report import verdicts
from amp_migrate.report.terminal import Terminal
from amp_migrate.run.config import Settings
from amp_migrate.run.outcome import Report
from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.keeping import DISPROVED, NOT_PROVEN, proven_alone
from amp_migrate.validate.many import ended_in_order
from amp_migrate.validate.order import Entry
from amp_migrate.validate.prove import Request, prove
from amp_migrate.validate.runner import Limits
from amp_migrate.validate.validation import number_of_runs
from amp_migrate.validate.verdict import Verdict


def proven(
    report: Report,
    settings: Settings,
    terminal: Terminal,
    *,
    interpreter: str,
    arguments: tuple[str, ...],
    steps: int | None,
) -> Report:
    """What is left to be written once each script has been run beside its rewrite."""
    limits = Limits(SECONDS, most_memory(), steps or STEPS)

    def told(script: str, made: Rewriting) -> Verdict:
        name = _from_here(script)
        request = Request(
            entry=Entry(name, arguments, False),
            file=Path(name),
            folder=Path.cwd(),
            settings=settings,
            interpreter=interpreter,
            limits=limits,
            made=made,
        )
        runs = number_of_runs(on_cuda=False, monitor_only=False)
        terminal.say(
            f"running {request.entry} about {runs} times, to prove the rewrite"
        )
        with terminal.steps(runs) as progress, ended_in_order():
            verdict = prove(request, progress)
        # Of shapes, `validate` and `lint` tell.
        brief = replace(verdict, shape_lines=())
        for line, colour in verdicts.lines(brief):
            terminal.say(line, **({"fg": colour} if colour else {}))
        return verdict

    return proven_alone(report, settings, told)


def not_kept(report: Report) -> ExitCode:
    """What the rewrites that were not kept make of the exit code."""
    codes = {found.code for result in report.results for found in result.diagnostics}
    if DISPROVED in codes:
        return ExitCode.DISPROVED
    return ExitCode.NOT_PROVEN if NOT_PROVEN in codes else ExitCode.OK


def _from_here(script: str) -> str:
    """A path as one would type it."""
    path = Path(script)
    here = Path.cwd()
    if path.is_absolute() and path.is_relative_to(here):
        return os.path.relpath(path, here)
    return script
