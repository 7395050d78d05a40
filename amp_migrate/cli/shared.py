"""What the commands that read programs have in common: their options, and how a run begins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from amp_migrate.cli import completion
from amp_migrate.report.terminal import Terminal
from amp_migrate.run import config, engine
from amp_migrate.run.cache.store import Store, folder
from amp_migrate.run.executors import LOCAL, checked
from amp_migrate.run.jobs import Job
from amp_migrate.sources import journal

STDIN = "-"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def decorated_with(
    *options: Callable[[Decorated], Decorated],
) -> Callable[[Decorated], Decorated]:
    """Several options as one; their order is that of the help."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


TEXT_OR_JSON: Callable[[Any], Any] = click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="The form of the output. Default: text.",
)


def _patterns(name: str, meaning: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        f"--{name}",
        multiple=True,
        metavar="PATTERN",
        help=f"{meaning} Written as in .gitignore, relative to the project root; may be repeated.",
    )


PATHS: Callable[[Any], Any] = click.argument(
    "paths", nargs=-1, metavar="[PATHS]...", shell_complete=completion.paths
)


def _caching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the three options as one, ``store``."""

    @wraps(command)
    def with_store(
        *, no_cache: bool, cache_dir: str | None, cache_limit: int, **given: Any
    ) -> Any:
        store = None if no_cache else Store(folder(cache_dir), cache_limit * 2**20)
        return command(store=store, **given)

    return with_store


def _executor(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    try:
        return checked(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


CACHE_DIR: Callable[[Any], Any] = click.option(
    "--cache-dir",
    metavar="DIR",
    shell_complete=completion.folders,
    envvar="AMP_MIGRATE_CACHE_DIR",
    show_envvar=True,
    help="Where results are kept. Default: the user's cache folder.",
)

CACHING: Callable[[Any], Any] = decorated_with(
    click.option(
        "--no-cache",
        is_flag=True,
        envvar="AMP_MIGRATE_NO_CACHE",
        show_envvar=True,
        help="Neither use nor keep the results of earlier runs.",
    ),
    CACHE_DIR,
    click.option(
        "--cache-limit",
        type=click.IntRange(min=0),
        default=256,
        metavar="MB",
        envvar="AMP_MIGRATE_CACHE_LIMIT",
        show_envvar=True,
        help="The most space that results take. Default: 256.",
    ),
    _caching,
)
"""What is remembered from run to run."""

FILES: Callable[[Any], Any] = decorated_with(
    _patterns(
        "include",
        "Of the files in directories, take only these. Default: all *.py and *.ipynb.",
    ),
    _patterns(
        "exclude",
        "Of the files in directories, leave these out; '!these/' takes back in what is left out otherwise.",
    ),
    _patterns("force-exclude", "Leave these out even when they are named."),
    click.option(
        "--config",
        "config_file",
        metavar="FILE",
        shell_complete=completion.files,
        help="A pyproject.toml to use instead of the project's.",
    ),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many processes to use. Default: one per CPU.",
    ),
    click.option(
        "--executor",
        default=LOCAL,
        metavar="NAME",
        callback=_executor,
        help="Who does the work: local, ray, or the cluster at ray://HOST:PORT. Default: local.",
    ),
    CACHING,
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="When to use colour. Default: auto.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print only errors."),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Print the settings in force, and more details.",
    ),
)
"""Which files to read, and how to talk about them."""

READING: Callable[[Any], Any] = decorated_with(
    click.option(
        "--stdin-filename", metavar="NAME", help="With -: the path that the input has."
    ),
    FILES,
)
"""The same, where a program may also come from standard input."""


def check_reading(
    paths: tuple[str, ...], stdin_filename: str | None, *, torn: bool
) -> None:
    """Whether the options of `READING` go together. Raises `click.UsageError`."""
    if STDIN in paths and len(paths) > 1:
        raise click.UsageError("standard input (-) goes with no other path")
    if stdin_filename is not None and STDIN not in paths:
        raise click.UsageError("--stdin-filename goes with standard input (-)")
    if torn:
        raise click.UsageError("--quiet and --verbose exclude each other")


def named(paths: tuple[str, ...], stdin_filename: str | None) -> tuple[str, ...]:
    """The files that the settings are looked up for."""
    if STDIN not in paths:
        return paths
    return (stdin_filename,) if stdin_filename else ()


def standard_input(paths: tuple[str, ...]) -> bytes | None:
    """The program on standard input, where that is what is meant."""
    return sys.stdin.buffer.read() if STDIN in paths else None


def do(
    job: Job,
    paths: tuple[str, ...],
    data: bytes | None,
    stdin_filename: str | None,
    settings: config.Settings,
    jobs: int | None,
    terminal: Terminal,
    store: Store | None,
    executor: str,
) -> engine.Report:
    """The job, on ``data`` or else on the paths."""
    if data is not None:
        return engine.run_text(
            data,
            path=stdin_filename or "<stdin>",
            settings=settings,
            job=job,
            store=store,
        )
    with terminal.progress() as progress:
        report = engine.run(
            paths or (".",),
            settings=settings,
            job=job,
            jobs=jobs,
            progress=progress,
            store=store,
            executor=executor,
        )
    if report.skipped:
        # Imported here: most runs have no notebook that cannot be read.
        from amp_migrate.sources.extra import INSTALL

        count = "1 notebook" if report.skipped == 1 else f"{report.skipped} notebooks"
        terminal.say(f"skipped {count}: to read them, {INSTALL}")
    return report


def describe(settings: config.Settings) -> str:
    """The settings that one may want to know."""
    major, minor = settings.options.torch_version
    return (
        f"project root {settings.root}; configuration {settings.config_file or 'none'};"
        f" {settings.options.dtype}; torch {major}.{minor} ({settings.torch_version_from})"
    )


def settle(settings: config.Settings, terminal: Terminal, *, write: bool) -> bool:
    """Whether nothing is left of an interrupted write that would be in this run's way."""
    if not write:
        found = journal.pending(settings.root)
        if found is not None:
            terminal.say(found)
        return True
    recovery = journal.recover(settings.root)
    if recovery is None:
        return True
    if recovery.settled:
        for line in recovery.lines:
            terminal.say(line)
    else:
        terminal.error(*recovery.lines)
    return recovery.settled
