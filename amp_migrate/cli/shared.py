"""What the commands that read programs have in common: their options, and how a run begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amp_migrate.cli import completion
from amp_migrate.cli.commands import UserError
from amp_migrate.report.terminal import Terminal
from amp_migrate.run import config
from amp_migrate.run.jobs import LOCAL, Job, checked
from amp_migrate.run.outcome import Report

if TYPE_CHECKING:
    from amp_migrate.run.cache.store import Store

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


def _listing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the paths that are named and those that a file lists as one, ``paths``."""

    @wraps(command)
    def with_paths(
        *, paths: tuple[str, ...], paths_from: str | None, **given: Any
    ) -> Any:
        listed = () if paths_from is None else _listed(paths_from)
        return command(paths=tuple(dict.fromkeys((*paths, *listed))), **given)

    return with_paths


def _listed(name: str) -> list[str]:
    """The paths in a file."""
    try:
        data = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
        lines = [line.strip() for line in data.decode().splitlines()]
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{name}: not utf-8") from None
    paths = [line for line in lines if line and not line.startswith("#")]
    if not paths:
        # No path means the current directory, which nobody asked for here.
        raise UserError(f"{name}: lists no path")
    return paths


PATHS: Callable[[Any], Any] = decorated_with(
    click.argument(
        "paths", nargs=-1, metavar="[PATHS]...", shell_complete=completion.paths
    ),
    click.option(
        "--paths-from",
        metavar="FILE",
        shell_complete=completion.files,
        help="A file with further paths, one a line; '-' is standard input.",
    ),
    _listing,
)


def _caching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the three options as one, ``store``."""

    @wraps(command)
    def with_store(
        *, no_cache: bool, cache_dir: str | None, cache_limit: int, **given: Any
    ) -> Any:
        # Imported here: whoever asks for help does without it.
        from amp_migrate.run.cache.store import Store, folder

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

EXECUTOR: Callable[[Any], Any] = click.option(
    "--executor",
    default=LOCAL,
    metavar="NAME",
    callback=_executor,
    help="Who does the work: local, ray, or the cluster at ray://HOST:PORT. Default: local.",
)

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
    EXECUTOR,
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


def projects(
    paths: tuple[str, ...],
    stdin_filename: str | None,
    overrides: config.Overrides,
    config_file: str | None,
) -> list[config.Project]:
    """The projects that the paths are in. Raises `ConfigError`."""
    if STDIN not in paths:
        return config.projects(paths, overrides, config_file)
    files = (stdin_filename,) if stdin_filename else ()
    return config.projects(files, overrides, config_file)


def standard_input(paths: tuple[str, ...]) -> bytes | None:
    """The program on standard input, where that is what is meant."""
    return sys.stdin.buffer.read() if STDIN in paths else None


def do(
    job: Job,
    projects: Sequence[config.Project],
    data: bytes | None,
    stdin_filename: str | None,
    jobs: int | None,
    terminal: Terminal,
    store: Store | None,
    executor: str,
) -> Generator[Report, None, None]:
    """The job, on ``data`` or else on the projects: a report of each, in order."""
    # Imported here: whoever asks for help does without it.
    from amp_migrate.run import engine

    if data is not None:
        yield engine.run_text(
            data,
            path=stdin_filename or "<stdin>",
            settings=projects[0].settings,
            job=job,
            store=store,
        )
        return
    skipped = 0
    with terminal.progress() as progress:
        for report in engine.run_all(
            projects,
            job=job,
            jobs=jobs,
            progress=progress,
            store=store,
            executor=executor,
        ):
            skipped += report.skipped
            yield report
    if skipped:
        # Imported here: most runs have no notebook that cannot be read.
        from amp_migrate.sources.extra import INSTALL

        count = "1 notebook" if skipped == 1 else f"{skipped} notebooks"
        terminal.say(f"skipped {count}: to read them, {INSTALL}")


def describe(settings: config.Settings) -> str:
    """The settings that one may want to know."""
    major, minor = settings.options.torch_version
    return (
        f"project root {settings.root}; configuration {settings.config_file or 'none'};"
        f" {settings.options.dtype}; torch {major}.{minor} ({settings.torch_version_from})"
    )


def ready(
    projects: Sequence[config.Project],
    terminal: Terminal,
    *,
    write: bool,
    verbose: bool,
) -> bool:
    """Whether nothing is left of an interrupted write that would be in this run's way."""
    for project in projects:
        if verbose:
            terminal.say(describe(project.settings))
    # All are looked at: who puts one right by hand wants to know of the others.
    settled = [_settle(one.settings, terminal, write=write) for one in projects]
    return all(settled)


def _settle(settings: config.Settings, terminal: Terminal, *, write: bool) -> bool:
    # Imported here: whoever asks for help does without it.
    from amp_migrate.sources import journal

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
