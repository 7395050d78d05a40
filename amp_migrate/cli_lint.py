"""`amp-migrate lint`: what a person, or a pipeline, types to be told what is wrong or slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from amp_migrate import config, engine
from amp_migrate.cli_shared import (
    PATHS,
    READING,
    check_reading,
    decorated_with,
    describe,
    do,
    named,
    settle,
    standard_input,
)
from amp_migrate.commands import Command, UserError
from amp_migrate.config_lint import FAIL_ON, FORMATS, SEVERITIES, a_profile, prefixes
from amp_migrate.exits import Lint
from amp_migrate.jobs import Job
from amp_migrate.options import LINT_DTYPES
from amp_migrate.report.findings import formats, text
from amp_migrate.report.findings.listing import Listing, told
from amp_migrate.report.terminal import Terminal
from amp_migrate.results import SourceError
from amp_migrate.sources.ignore import PatternError

EXAMPLES = [
    ("amp-migrate lint", "what is wrong or slow in the current directory"),
    ("amp-migrate lint src --select TCU1", "only the rules about shapes"),
    ("amp-migrate lint src --severity info", "what is too small to matter, too"),
    ("amp-migrate lint --output-format github", "as annotations of a pull request"),
    ("amp-migrate lint --write-baseline amp.json", "accept what there is"),
    ("amp-migrate lint --baseline amp.json", "and be told only what is new"),
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
        f"--{name}", multiple=True, metavar="CODES", callback=_codes, help=meaning
    )


_LINTING: Callable[[Any], Any] = decorated_with(
    click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        help="How to tell it: text. Those for machines hold every severity.",
    ),
    click.option("--output-file", metavar="FILE", help="Where to: standard output."),
    _choice_of_rules(
        "select", "Only these rules: codes or their beginnings, 'TCU1,AMP101', or ALL."
    ),
    _choice_of_rules("extend-select", "These rules as well."),
    _choice_of_rules("ignore", "Not these rules; the longer beginning decides."),
    click.option(
        "--profile",
        metavar="NAME",
        callback=_profile,
        help="The GPU that shapes are judged for, from volta to blackwell: ampere.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(LINT_DTYPES),
        help="What products are computed in: what autocast in the code says, or float16.",
    ),
    click.option(
        "--align",
        type=click.IntRange(min=1),
        metavar="N",
        help="What sizes should be a multiple of: what the GPU and the dtype need.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(FAIL_ON),
        help="Exit 1 for this severity and worse: error.",
    ),
    click.option(
        "--severity",
        type=click.Choice(SEVERITIES),
        help="The least that text shows: warning.",
    ),
    click.option(
        "--statistics", is_flag=True, help="Only count the findings of each rule."
    ),
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    exits=Lint,
    short_help="Tell what is wrong or slow in training code.",
)
@PATHS
@_LINTING
@READING
def lint(
    *,
    paths: tuple[str, ...],
    output_file: str | None,
    statistics: bool,
    stdin_filename: str | None,
    config_file: str | None,
    jobs: int | None,
    color: str,
    quiet: bool,
    verbose: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    force_exclude: tuple[str, ...],
    **lint_options: Any,
) -> Lint:
    """Tell what is wrong or slow in training code: sizes, misuse of AMP, idle Tensor Cores.

    PATHS are Python files, notebooks and directories; the current directory where there are none. A
    dash stands for standard input. Nothing is run, and nothing is changed.
    """
    check_reading(paths, stdin_filename, torn=quiet and verbose)
    terminal = Terminal(colour=color, quiet=quiet)
    overrides = config.Overrides(
        include=include or None,
        exclude=exclude or None,
        force_exclude=force_exclude or None,
        lint={key.replace("_", "-"): value for key, value in lint_options.items()},
    )
    data = standard_input(paths)
    try:
        settings = config.load(named(paths, stdin_filename), overrides, config_file)
        if statistics and not _counts(settings.showing.output_format):
            raise click.UsageError("--statistics goes with text, concise and json")
        if verbose:
            terminal.say(describe(settings))
        if not settle(settings, terminal, write=False):
            return Lint.ERROR
        report = do(Job.LINT, paths, data, stdin_filename, settings, jobs, terminal)
        listing = _listing(report, settings)
        _tell(listing, settings, terminal, output_file, statistics=statistics)
    except (config.ConfigError, PatternError, SourceError) as error:
        raise UserError(str(error)) from None
    for failure in report.failures:
        terminal.error(str(failure.error))
        if verbose and failure.traceback:
            terminal.say(failure.traceback.rstrip())
    if report.failures:
        return Lint.ERROR
    return Lint.FOUND if listing.failed else Lint.CLEAN


def _listing(report: engine.Report, settings: config.Settings) -> Listing:
    return Listing(
        told=told(report, settings.root),
        errors=report.errors,
        files=report.paths,
        fail_on=settings.showing.fail_on,
    )


def _counts(output_format: str) -> bool:
    return formats.is_for_people(output_format) or output_format == "json"


def _tell(
    listing: Listing,
    settings: config.Settings,
    terminal: Terminal,
    output_file: str | None,
    *,
    statistics: bool,
) -> None:
    """Print the findings, or put them into a file."""
    showing = settings.showing
    lines: Iterable[text.Line]
    if not formats.is_for_people(showing.output_format):
        if statistics:
            from amp_migrate.report.findings import as_json

            output = as_json.statistics(listing)
        else:
            output = formats.written(showing.output_format, listing)
        lines = ()
    else:
        output = ""
        if statistics:
            lines = text.statistics(listing)
        elif showing.output_format == "concise":
            lines = text.concise(listing, showing.severity)
        else:
            lines = text.full(listing, showing.severity)
    if output_file is not None:
        # Imported here: most runs write no file.
        from amp_migrate.report.destination import Destination

        output += "".join(f"{line}\n" for line, _ in lines)
        Destination(output_file).write(output)
        terminal.say(text.summary(listing, showing.severity))
        return
    if output:
        terminal.write(output.encode("utf-8", "backslashreplace"))
    for line, colour in lines:
        terminal.write_line(line, colour)
    if not terminal.quiet and formats.is_for_people(showing.output_format):
        terminal.write_line(text.summary(listing, showing.severity))
