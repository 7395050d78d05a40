"""`amp-migrate stats`: how far projects have come with AMP."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from amp_migrate import __version__
from amp_migrate.cli import completion
from amp_migrate.cli.commands import Command, UserError
from amp_migrate.cli.exits import Counted
from amp_migrate.cli.shared import (
    FILES,
    PATHS,
    STDIN,
    TEXT_OR_JSON,
    do,
    ready,
)
from amp_migrate.core.results import SourceError
from amp_migrate.report.terminal import Terminal
from amp_migrate.run import config
from amp_migrate.run.jobs import ExecutorError, Job
from amp_migrate.sources.ignore import PatternError

if TYPE_CHECKING:
    from amp_migrate.run.cache.store import Store

EXAMPLES = [
    ("amp-migrate stats", "the project in the current directory"),
    ("amp-migrate stats repos/*", "all projects of an organisation, one by one"),
    ("amp-migrate stats repos/* --report amp.html", "a page with plots"),
    ("amp-migrate stats repos/* --output-format json", "for a program"),
]


@click.command(
    cls=Command,
    examples=EXAMPLES,
    exits=Counted,
)
@PATHS
@TEXT_OR_JSON
@click.option(
    "--report",
    metavar="FILE",
    shell_complete=completion.files,
    help="Write a page with plots.",
)
@FILES
def stats(
    *,
    paths: tuple[str, ...],
    output_format: str,
    report: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    force_exclude: tuple[str, ...],
    config_file: str | None,
    jobs: int | None,
    executor: str,
    store: Store | None,
    color: str,
    quiet: bool,
    verbose: bool,
) -> Counted:
    """Count the training loops of projects: under AMP already, to be migrated, or blocked, and by what.

    Each of PATHS is one project, with its own configuration. Nothing is written or run.
    """
    from amp_migrate.report import stats as told
    from amp_migrate.report.destination import Destination
    from amp_migrate.report.summary import summarized

    if STDIN in paths:
        raise click.UsageError("standard input (-) is not a project")
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other")
    terminal = Terminal(colour=color, quiet=quiet)
    overrides = config.Overrides(
        include=include or None,
        exclude=exclude or None,
        force_exclude=force_exclude or None,
    )
    projects = []
    failed = False
    try:
        destination = None if report is None else Destination(report)
        names = tuple(dict.fromkeys(paths or (".",)))
        asked = [
            config.Project((name,), config.load((name,), overrides, config_file))
            for name in names
        ]
        ready(asked, terminal, write=False, verbose=verbose)
        reports = do(Job.MIGRATE, asked, None, None, jobs, terminal, store, executor)
        with closing(reports):
            for name, found in zip(names, reports, strict=True):
                for error in found.errors:
                    failed = True
                    terminal.error(str(error))
                projects.append(told.Project(name, summarized(found)))
        if output_format == "json":
            terminal.write_text(told.as_json(projects))
        else:
            for line in told.lines(projects, verbose=verbose):
                terminal.write_line(line)
        if destination is not None:
            date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
            destination.write(told.html(projects, date=date, version=__version__))
    except (config.ConfigError, ExecutorError, PatternError, SourceError) as error:
        raise UserError(str(error)) from None
    return Counted.ERROR if failed else Counted.OK
