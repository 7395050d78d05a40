"""`amp-migrate lint`: what a person, or a pipeline, types to be told what is wrong or slow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amp_migrate.cli import completion
from amp_migrate.cli.commands import Command, UserError
from amp_migrate.cli.exits import Lint
from amp_migrate.cli.probe import judged
from amp_migrate.cli.shared import (
    PATHS,
    READING,
    check_reading,
    decorated_with,
    do,
    projects,
    ready,
    standard_input,
)
from amp_migrate.core.options import LINT_DTYPES
from amp_migrate.core.results import SourceError
from amp_migrate.report.findings import formats
from amp_migrate.report.findings.listing import (
    Listing,
    Part,
    relative_to,
    together,
    told,
)
from amp_migrate.report.findings.output import Output
from amp_migrate.report.terminal import Terminal
from amp_migrate.report.words import number
from amp_migrate.run import config
from amp_migrate.run.config_lint import (
    FAIL_ON,
    FORMATS,
    SEVERITIES,
    a_profile,
    prefixes,
)
from amp_migrate.run.jobs import ExecutorError, Job
from amp_migrate.run.outcome import Report, merged
from amp_migrate.sources.ignore import PatternError

if TYPE_CHECKING:
    from amp_migrate.run.cache.store import Store

EXAMPLES = [
    ("amp-migrate lint", "what is wrong or slow in the current directory"),
    ("amp-migrate lint src --select TCU1", "only the rules about shapes"),
    ("amp-migrate lint src --severity info", "with what is too small to matter"),
    ("amp-migrate lint --output-format github", "as annotations of a pull request"),
    (
        "amp-migrate lint --baseline amp.json --write-baseline",
        "accept all current findings",
    ),
    ("amp-migrate lint --baseline amp.json", "report only new findings"),
    ("amp-migrate lint src --fix", "fix what can be fixed"),
    ("amp-migrate explain TCU101", "what a code means"),
]


def _codes(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        return prefixes(one for value in values for one in value.split(",") if one)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _profile(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> str | None:
    try:
        return None if value is None else a_profile(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _choice_of_rules(name: str, meaning: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}",
        multiple=True,
        metavar="CODES",
        callback=_codes,
        shell_complete=completion.codes,
        help=meaning,
    )


_LINTING: Callable[[Any], Any] = decorated_with(
    click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        help="The form of the report. Default: text. Forms for programs hold every severity.",
    ),
    click.option(
        "--output-file",
        metavar="FILE",
        shell_complete=completion.files,
        help="Where to write the report. Default: standard output.",
    ),
    _choice_of_rules(
        "select", "Only these rules: codes or their beginnings, 'TCU1,AMP101', or ALL."
    ),
    _choice_of_rules("extend-select", "These rules as well."),
    _choice_of_rules("ignore", "Not these rules; the longer beginning decides."),
    click.option(
        "--profile",
        metavar="NAME",
        callback=_profile,
        shell_complete=completion.profiles,
        help="The GPU that shapes are judged for, from volta to blackwell. Default: ampere.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(LINT_DTYPES),
        help="The dtype of matrix products. Default: what autocast in the code says, or float16.",
    ),
    click.option(
        "--align",
        type=click.IntRange(min=1),
        metavar="N",
        help="What sizes should be a multiple of. Default: what the GPU and the dtype need.",
    ),
    click.option(
        "--probe",
        multiple=True,
        metavar="MODULE:FACTORY",
        help="Run this function of your code, which builds a model, to learn its sizes; no weights are made.",
    ),
    click.option(
        "--python",
        metavar="PATH",
        shell_complete=completion.files,
        default=sys.executable,
        show_default="this one",
        help="With --probe: the Python that runs your code, and has torch.",
    ),
    click.option(
        "--baseline",
        metavar="FILE",
        shell_complete=completion.files,
        help="Report only what is not in this file, which --write-baseline writes.",
    ),
    click.option(
        "--write-baseline",
        is_flag=True,
        help="Accept all current findings: write them into the baseline.",
    ),
    click.option(
        "--fix",
        is_flag=True,
        help="Fix what can be fixed without changing what is computed.",
    ),
    click.option(
        "--unsafe-fixes",
        is_flag=True,
        help="With --fix or --diff: also fix what changes what is computed.",
    ),
    click.option(
        "--diff",
        is_flag=True,
        help="Print what --fix would change; exit 1 if anything.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(FAIL_ON),
        help="Exit 1 for findings of this severity or worse. Default: error.",
    ),
    click.option(
        "--severity",
        type=click.Choice(SEVERITIES),
        help="The lowest severity that text shows. Default: warning.",
    ),
    click.option(
        "--statistics", is_flag=True, help="Only count the findings of each rule."
    ),
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    exits=Lint,
)
@PATHS
@_LINTING
@READING
def lint(
    *,
    paths: tuple[str, ...],
    output_file: str | None,
    statistics: bool,
    write_baseline: bool,
    diff: bool,
    probe: tuple[str, ...],
    python: str,
    store: Store | None,
    stdin_filename: str | None,
    config_file: str | None,
    jobs: int | None,
    executor: str,
    color: str,
    quiet: bool,
    verbose: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    force_exclude: tuple[str, ...],
    **given: Any,
) -> Lint:
    """Report what is wrong or slow in training code: sizes, misuse of AMP, idle Tensor Cores.

    PATHS are Python files, notebooks and directories; the current directory where there are none. A
    dash stands for standard input. Nothing is run but what --probe names,
    and without --fix nothing is changed.
    """
    fix = bool(given["fix"])
    check_reading(paths, stdin_filename, torn=quiet and verbose)
    _check_usage(given, diff=diff, write_baseline=write_baseline)
    terminal = Terminal(colour=color, quiet=quiet)
    given["fix"] = fix or diff
    overrides = config.Overrides(
        include=include or None,
        exclude=exclude or None,
        force_exclude=force_exclude or None,
        lint={key.replace("_", "-"): value for key, value in given.items()},
    )
    data = standard_input(paths)
    try:
        asked = projects(paths, stdin_filename, overrides, config_file)
        _check_several(asked, given, probe)
        form = asked[0].settings.showing.output_format
        told_apart = formats.is_for_people(form)
        if statistics and not told_apart and form != "json":
            raise click.UsageError("--statistics goes with text, concise and json")
        if write_baseline and any(
            one.settings.showing.baseline is None for one in asked
        ):
            raise click.UsageError("--write-baseline needs --baseline FILE")
        if data is not None and fix and not (told_apart or output_file):
            raise click.UsageError(
                f"with --fix, standard output is the program; {form} needs --output-file"
            )
        if not ready(asked, terminal, write=fix and data is None, verbose=verbose):
            return Lint.ERROR
        asked = [
            replace(one, settings=judged(one.settings, probe, python, terminal))
            for one in asked
        ]
        found = do(
            Job.LINT, asked, data, stdin_filename, jobs, terminal, store, executor
        )
        reports = []
        listings = []
        with closing(found):
            for project, one in zip(asked, found, strict=True):
                if not (diff or fix or write_baseline):
                    listings.append(_listing(one, project.settings))
                    # Of thousands of projects, only what is told is kept.
                    one = replace(one, migrations=())
                reports.append(one)
        report = merged(reports)
        changed = bool(report.changed)
        if diff:
            _show_diff(report, terminal)
        elif fix:
            reports = [
                _mend(one, data, project.settings, terminal)
                for project, one in zip(asked, reports, strict=True)
            ]
            report = merged(reports)
        if write_baseline:
            for project, one in zip(asked, reports, strict=True):
                _accept(one, project.settings, terminal)
        elif fix:
            listings = [
                _listing(one, project.settings)
                for project, one in zip(asked, reports, strict=True)
            ]
        listing = together(listings)
        if not (diff or write_baseline):
            aside = fix and data is not None
            output = Output(terminal, form, output_file, aside=aside)
            output.tell(listing, statistics=statistics)
    except (config.ConfigError, ExecutorError, PatternError, SourceError) as error:
        raise UserError(str(error)) from None
    for failure in report.failures:
        terminal.error(str(failure.error))
        if verbose and failure.traceback:
            terminal.say(failure.traceback.rstrip())
    if report.failures:
        return Lint.ERROR
    if write_baseline:
        return Lint.CLEAN
    return Lint.FOUND if (changed if diff else listing.failed) else Lint.CLEAN


def _check_usage(given: dict[str, Any], *, diff: bool, write_baseline: bool) -> None:
    if diff and given["fix"]:
        raise click.UsageError("--diff and --fix exclude each other")
    if write_baseline and (diff or given["fix"]):
        raise click.UsageError("--write-baseline goes with neither --fix nor --diff")
    if given["unsafe_fixes"] and not (diff or given["fix"]):
        raise click.UsageError("--unsafe-fixes goes with --fix or --diff")


def _check_several(
    asked: Sequence[config.Project], given: dict[str, Any], probe: tuple[str, ...]
) -> None:
    """Whether there can be one report of projects that may be configured in different ways."""
    if len(asked) == 1:
        return
    of = f"of these {len(asked)} projects"
    if given["baseline"] is not None:
        raise click.UsageError(
            f"--baseline is the file of one project: configure one in each {of}"
        )
    if probe:
        raise click.UsageError(
            f"--probe builds models of one project: run it on each {of}"
        )
    forms = sorted({one.settings.showing.output_format for one in asked})
    if len(forms) > 1:
        raise click.UsageError(
            f"{' and '.join(forms)} are the configured formats {of}: choose one by"
            " --output-format"
        )


def _show_diff(report: Report, terminal: Terminal) -> None:
    from amp_migrate.report import diff

    if report.changed:
        terminal.write_diff(diff.of_migrations(report.changed))
    count = sum(len(result.fixed) for result in report.results)
    files = number(len(report.changed), "file")
    terminal.say(f"would fix {number(count, 'finding')} in {files}")


def _mend(
    report: Report,
    data: bytes | None,
    settings: config.Settings,
    terminal: Terminal,
) -> Report:
    """Write what is mended: to standard output where it came from standard input."""
    if data is not None:
        if not report.failures:
            terminal.write(report.changed[0].output if report.changed else data)
    elif report.changed:
        # Imported here: most runs write nothing.
        from amp_migrate.run import engine

        report = engine.write(report, settings.root)
        for fixed in report.changed:
            terminal.say(f"rewrote {fixed.document.path}")
    return report


def _listing(report: Report, settings: config.Settings) -> Listing:
    found = tuple(told(report.migrations, settings))
    file = settings.showing.baseline
    known = gone = 0
    if file is not None:
        from amp_migrate.report.findings import baseline

        entries, everything = baseline.read(file), found
        found, known = baseline.split(everything, entries)
        looked, judged = _judged(report, settings)
        gone = baseline.gone(everything, entries, looked, judged)
    return Listing(
        told=found,
        errors=report.errors,
        files=report.paths,
        unread=report.unread,
        parts=(Part(settings.root, len(report.paths), len(report.errors)),),
        known=known,
        gone=gone,
        fixed=sum(len(result.fixed) for result in report.results),
        silenced=sum(len(result.silenced) for result in report.results),
    )


def _judged(
    report: Report, settings: config.Settings
) -> tuple[set[str], Callable[[str], bool]]:
    """The files (relative to the root) and the codes that a run is a judge of."""
    from amp_migrate.catalogue.rules import lint_codes
    from amp_migrate.lint.selection import is_selected

    looked = {relative_to(settings.root, path) for path in report.analysed}
    known, options = set(lint_codes()), settings.options.lint
    # Of a code that is gone, nothing will ever be found.
    return looked, lambda code: code not in known or is_selected(code, options)


def _accept(report: Report, settings: config.Settings, terminal: Terminal) -> None:
    """Write the baseline."""
    from amp_migrate.report.destination import Destination
    from amp_migrate.report.findings import baseline

    file = settings.showing.baseline
    assert file is not None
    before = baseline.read(file) if Path(file).exists() else []
    found = tuple(told(report.migrations, settings))
    looked, judged = _judged(report, settings)
    words = baseline.text(found, before, looked, judged, settings.root)
    Destination(file).write(words)
    terminal.say(f"{number(len(found), 'finding')} accepted in {file}")
