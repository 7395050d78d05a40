"""What a person types. Options are checked here, and nothing is decided."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from amp_migrate import __version__
from amp_migrate.cli import completion
from amp_migrate.cli.commands import Command, Program, UserError
from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.shared import (
    PATHS,
    READING,
    STDIN,
    TEXT_OR_JSON,
    check_reading,
    decorated_with,
    do,
    projects,
    ready,
    standard_input,
)
from amp_migrate.core.options import DTYPES
from amp_migrate.core.results import Outcome, Place, SourceError
from amp_migrate.report.terminal import Terminal
from amp_migrate.run import config
from amp_migrate.run.jobs import ExecutorError, Job
from amp_migrate.run.outcome import Report, merged
from amp_migrate.sources.ignore import PatternError

if TYPE_CHECKING:
    from amp_migrate.run.cache.store import Store

EXAMPLES = [
    ("amp-migrate", "show what would change in the current directory"),
    ("amp-migrate train.py --write", "rewrite one file"),
    (
        "amp-migrate train.py --write --validate",
        "the same, if running it proves that it trains as before",
    ),
    ("amp-migrate src | git apply", "the same, by way of git"),
    ("amp-migrate src --check", "for CI: fail when a file would change"),
    (
        "amp-migrate src --explain-plan",
        "where each optimizer is made, and how it reaches its steps",
    ),
    ("amp-migrate src --output-format json", "all that is found, for a program"),
    ("amp-migrate - < train.py", "from standard input to standard output"),
]

MODERNIZE_EXAMPLES = [
    ("amp-migrate modernize", "show what would change in the current directory"),
    ("amp-migrate modernize src --write", "rewrite the files"),
    ("amp-migrate modernize src --check", "for CI: fail when a file would change"),
    (
        "amp-migrate modernize src --torch-version 2.3",
        "for torch 2.3, without custom_fwd and custom_bwd",
    ),
]


@dataclass(frozen=True, slots=True)
class _Proof:
    """How scripts are run to prove what is to be written."""

    interpreter: str
    arguments: tuple[str, ...]
    steps: int | None

    def kept(
        self, report: Report, project: config.Project, terminal: Terminal
    ) -> Report:
        """What is proven."""
        # Imported here: most runs run nothing.
        from amp_migrate.cli.proving import proven

        return proven(
            report,
            project.settings,
            terminal,
            interpreter=self.interpreter,
            arguments=self.arguments,
            steps=self.steps,
        )


@dataclass(frozen=True, slots=True)
class _Afterwards:
    """What is left to say once files have been rewritten."""

    undoing: tuple[str, ...] = ()
    committed: bool = False
    """Whether the last commit has all of them as they were before."""


class Mode(Enum):
    """What becomes of the rewritten files."""

    DIFF = "--diff"
    WRITE = "--write"
    CHECK = "--check"
    PLAN = "--explain-plan"


def _torch_version(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    try:
        return None if value is None else config.parse_torch_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(
    cls=Program,
    default="migrate",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Rewrite PyTorch fp32 training loops for automatic mixed precision, or say why not.

    PATHS are Python files, notebooks and directories; the current directory where there are none. A
    dash stands for standard input. Only these files are changed; other files of the same program
    are only read.
    """


_shared: Callable[[Any], Any] = decorated_with(
    PATHS,
    click.option(
        "--diff", is_flag=True, help="Print a diff that git apply takes (the default)."
    ),
    click.option(
        "--write",
        is_flag=True,
        help="Rewrite the files, those of one program together.",
    ),
    click.option(
        "--check", is_flag=True, help="Write nothing; exit 1 if a file would change."
    ),
    TEXT_OR_JSON,
    click.option(
        "--exit-code", is_flag=True, help="With --diff: exit 1 if a file would change."
    ),
    click.option(
        "--torch-version",
        metavar="X.Y",
        callback=_torch_version,
        help="The oldest torch to support. Default: what the project requires, or 2.4.",
    ),
    READING,
)
"""The argument and the options of every command that rewrites files."""


@main.command(
    cls=Command,
    examples=EXAMPLES,
    short_help="Rewrite training loops for AMP (the default).",
)
@_shared
@click.option(
    "--validate",
    "proving",
    is_flag=True,
    help="With --write: run each script beside its rewrite, and write only what is proven.",
)
@click.option(
    "--python",
    "interpreter",
    default=sys.executable,
    metavar="INTERPRETER",
    shell_complete=completion.files,
    help="With --validate: the Python that runs the scripts, and has torch. Default: this one.",
)
@click.option(
    "--arguments",
    default="",
    metavar="WORDS",
    help="With --validate: the arguments of the scripts, in one string.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --validate: the most optimizer steps of each run. Default: 30.",
)
@click.option(
    "--explain-plan", is_flag=True, help="Print what was found and what will be done."
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="What autocast casts to. Default: float16.",
)
@click.option(
    "--eval/--no-eval",
    "evaluation",
    default=None,
    help="Also put evaluation (under no_grad) under autocast. Default: no.",
)
def migrate(
    *,
    dtype: str | None,
    evaluation: bool | None,
    proving: bool,
    interpreter: str,
    arguments: str,
    steps: int | None,
    **given: Any,
) -> ExitCode:
    """Rewrite training loops for automatic mixed precision; the default command."""
    try:
        words = tuple(shlex.split(arguments))
    except ValueError as error:
        raise click.UsageError(f"--arguments: {error}") from None
    if proving and not given["write"]:
        raise click.UsageError("--validate goes with --write")
    proof = _Proof(interpreter, words, steps) if proving else None
    return _run(Job.MIGRATE, dtype=dtype, evaluation=evaluation, proof=proof, **given)


@main.command(
    cls=Command,
    examples=MODERNIZE_EXAMPLES,
    short_help="Rewrite older AMP interfaces for torch.amp.",
)
@_shared
def modernize(**given: Any) -> ExitCode:
    """Rewrite uses of torch.cuda.amp and torch.cpu.amp for torch.amp, or say why not."""
    return _run(Job.MODERNIZE, **given)


main.add_lazily(
    "lint",
    "amp_migrate.cli.lint:lint",
    "Report what is wrong or slow in training code.",
)
main.add_lazily(
    "stats",
    "amp_migrate.cli.stats:stats",
    "Count training loops: under AMP, to migrate, blocked.",
)
main.add_lazily(
    "explain", "amp_migrate.cli.explain:explain", "Explain what a code means."
)
main.add_lazily(
    "server",
    "amp_migrate.cli.server:server",
    "Serve an editor (language server protocol).",
)
main.add_lazily(
    "validate", "amp_migrate.cli.validate:validate", "Prove a rewrite by running it."
)
main.add_lazily(
    "cache",
    "amp_migrate.cli.cache:cache",
    "Show or delete the kept results of earlier runs.",
)


def _run(
    job: Job,
    *,
    paths: tuple[str, ...],
    diff: bool,
    write: bool,
    check: bool,
    output_format: str,
    exit_code: bool,
    store: Store | None,
    stdin_filename: str | None,
    config_file: str | None,
    jobs: int | None,
    executor: str,
    color: str,
    quiet: bool,
    verbose: bool,
    torch_version: tuple[int, int] | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    force_exclude: tuple[str, ...],
    explain_plan: bool = False,
    dtype: str | None = None,
    evaluation: bool | None = None,
    proof: _Proof | None = None,
) -> ExitCode:
    chosen = {
        Mode.DIFF: diff,
        Mode.WRITE: write,
        Mode.CHECK: check,
        Mode.PLAN: explain_plan,
    }
    modes = [mode for mode, is_set in chosen.items() if is_set]
    as_json = output_format == "json"
    _check_usage(paths, modes, exit_code, as_json=as_json)
    check_reading(paths, stdin_filename, torn=quiet and verbose)
    terminal = Terminal(colour=color, quiet=quiet)
    overrides = config.Overrides(
        dtype=dtype,
        torch_version=torch_version,
        evaluation=evaluation,
        # An option that may be repeated is empty where it is not given.
        include=include or None,
        exclude=exclude or None,
        force_exclude=force_exclude or None,
    )
    data = standard_input(paths)
    try:
        asked = projects(paths, stdin_filename, overrides, config_file)
        if not ready(asked, terminal, write=write, verbose=verbose):
            return ExitCode.ERROR
        reports = list(
            do(job, asked, data, stdin_filename, jobs, terminal, store, executor)
        )
    except (config.ConfigError, ExecutorError, PatternError, SourceError) as error:
        raise UserError(str(error)) from None

    report = merged(reports)
    afterwards = _Afterwards()
    to_stdout = data is not None and not modes
    if data is not None and to_stdout and not report.failures:
        terminal.write(report.changed[0].output if report.changed else data)
    elif write:
        if proof is not None:
            reports = [
                proof.kept(one, project, terminal)
                for project, one in zip(asked, reports, strict=True)
            ]
        reports, afterwards = _write(reports, asked, terminal)
        report = merged(reports)
        if proof is not None:
            afterwards = replace(afterwards, committed=False)
    elif not to_stdout and not as_json:
        _show(report, modes[0] if modes else Mode.DIFF, terminal)
    if as_json:
        from amp_migrate.report.migrations_json import document

        roots = [one.settings.root for one in asked]
        terminal.write_text(document(reports, roots, written=write))
    code = _conclude(
        report,
        terminal,
        job=job,
        written=write or to_stdout,
        verbose=verbose,
        strict=check or exit_code,
        proving=proof is not None,
    )
    # Last, where it is not lost above a screenful of diagnostics.
    for line in afterwards.undoing:
        terminal.say(line)
    if not to_stdout:
        _say_next(report, terminal, job, afterwards if write else None)
    return code


def _check_usage(
    paths: tuple[str, ...],
    modes: list[Mode],
    exit_code: bool,
    *,
    as_json: bool,
) -> None:
    if len(modes) > 1:
        raise click.UsageError(
            f"{modes[0].value} and {modes[1].value} exclude each other"
        )
    if exit_code and modes not in ([], [Mode.DIFF]):
        raise click.UsageError("--exit-code goes with --diff")
    if as_json and modes == [Mode.PLAN]:
        raise click.UsageError(
            "--output-format json and --explain-plan exclude each other"
        )
    if as_json and STDIN in paths and not modes:
        raise click.UsageError(
            "--output-format json with standard input (-) needs --diff or --check"
        )
    if STDIN in paths and modes == [Mode.WRITE]:
        raise click.UsageError("--write has no file to write with standard input (-)")


def _show(report: Report, mode: Mode, terminal: Terminal) -> None:
    """Print what ``mode`` asks for, with all files as they were."""
    if mode is Mode.DIFF and report.changed:
        from amp_migrate.report import diff

        terminal.write_diff(diff.of_migrations(report.changed))
    elif mode is Mode.CHECK:
        for migration in report.changed:
            terminal.say(f"would rewrite {migration.document.path}")
    elif mode is Mode.PLAN:
        plans = (f"{line}\n" for result in report.results for line in result.plan)
        terminal.write_text("".join(plans))


def _write(
    reports: list[Report], projects: list[config.Project], terminal: Terminal
) -> tuple[list[Report], _Afterwards]:
    """Rewrite the files; answers with what came of it, and what can be done about it."""
    if not any(report.changed for report in reports):
        return reports, _Afterwards()
    from amp_migrate.report import undo
    from amp_migrate.run import engine

    before = undo.uncommitted_work(merged(reports).changed)
    reports = [
        engine.write(report, project.settings.root) if report.changed else report
        for report, project in zip(reports, projects, strict=True)
    ]
    changed = merged(reports).changed
    for migration in changed:
        terminal.say(f"rewrote {migration.document.path}")
    undoing = () if terminal.quiet else undo.advice(before, changed)
    committed = undo.all_committed(before, changed)
    return reports, _Afterwards(tuple(undoing), committed)


def _say_next(
    report: Report, terminal: Terminal, job: Job, written: _Afterwards | None
) -> None:
    from amp_migrate.report.summary import next_step, summarized

    scripts = _scripts(report)
    proof = shlex.quote(scripts[0]) if len(scripts) == 1 else "SCRIPT"
    if written is not None:
        proof = f"{proof} --against HEAD" if written.committed else ""
    line = next_step(
        summarized(report),
        job=job,
        written=written is not None,
        runnable=bool(scripts),
        proof=proof,
    )
    if line:
        terminal.say(line)


def _scripts(report: Report) -> list[str]:
    """The files that are rewritten and can be run; what is rewritten alone surely can."""
    from amp_migrate.program.imports import scan_imports

    return [
        one.document.path
        for one in report.changed
        if len(report.changed) == 1 or scan_imports(one.result.source).is_script
    ]


def _conclude(
    report: Report,
    terminal: Terminal,
    *,
    job: Job,
    written: bool,
    verbose: bool,
    strict: bool,
    proving: bool,
) -> ExitCode:
    """Say what is left to say, and put it into one number."""
    for failure in report.failures:
        terminal.error(str(failure.error))
        if verbose and failure.traceback:
            terminal.say(failure.traceback.rstrip())
    from amp_migrate.report import messages
    from amp_migrate.report.summary import lines, summarized

    by_hand: dict[tuple[str, ...], Place] = {}
    for result in report.results:
        for one in result.units:
            found = one.diagnostic
            if found is None or (one.outcome is Outcome.ALREADY and not verbose):
                continue
            headline, *details = messages.diagnostic(found, by_hand)
            terminal.say(headline, bold=True)
            for line in details:
                terminal.say(line)
    for result in report.results:
        for note in result.notes:
            terminal.say(messages.note(note), bold=True)
    summary = summarized(report)
    for line in lines(summary, job=job, written=written, all_reasons=verbose):
        terminal.say(line)
    if report.failures or messages.has_internal_error(report):
        return ExitCode.ERROR
    if proving:
        from amp_migrate.cli.proving import not_kept

        if code := not_kept(report):
            return code
    return ExitCode.WOULD_CHANGE if strict and report.changed else ExitCode.OK
