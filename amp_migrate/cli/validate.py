"""`amp-migrate validate`: what a person types to have a rewrite proven by running it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import click

from amp_migrate import __version__
from amp_migrate.cli import completion
from amp_migrate.cli.commands import Command, UserError
from amp_migrate.cli.exits import Proof
from amp_migrate.cli.shared import EXECUTOR
from amp_migrate.core.options import DTYPES
from amp_migrate.core.results import SourceError
from amp_migrate.report.destination import Destination
from amp_migrate.report.terminal import Terminal
from amp_migrate.run import config
from amp_migrate.run.jobs import ExecutorError
from amp_migrate.validate.verdict import Verdict

_ARGUMENTS = f"{__name__}.arguments"
"""In a context's ``meta``: what the scripts are given."""

STEPS = 30
SECONDS = 600.0
"""What each run of a script may take, where nothing else is said."""

EXAMPLES = [
    ("amp-migrate validate train.py", "is the rewrite of this script right?"),
    (
        "amp-migrate validate train.py -- --epochs 1",
        "the script is given these arguments",
    ),
    ("amp-migrate validate -m pkg.train", "a module"),
    ("amp-migrate validate scripts/", "each script of a directory"),
    (
        "amp-migrate validate repos/* --executor ray://head:10001",
        "the scripts of many projects, on a cluster",
    ),
    (
        "amp-migrate validate train.py --against HEAD",
        "is what I changed since the last commit right?",
    ),
    (
        "amp-migrate validate --monitor-only train.py",
        "watch a script that uses AMP already",
    ),
]


def _known_profile(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> str | None:
    from amp_migrate.catalogue.gpus import profiles

    if value is not None and value not in profiles.names():
        known = ", ".join(profiles.names())
        raise click.BadParameter(f"{value!r} is not one of {known}")
    return value


class _Validate(Command):
    """Tells the arguments of a script, which follow ``--``, from the scripts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is before ``--``; the rest is kept."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_ARGUMENTS] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])


@click.command(
    cls=_Validate,
    examples=EXAMPLES,
    exits=Proof,
)
@click.argument(
    "words",
    nargs=-1,
    metavar="SCRIPT... [-- ARGUMENTS]",
    shell_complete=completion.files,
)
@click.option(
    "-m", "module", metavar="MODULE", help="Run a module instead of a script."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=STEPS,
    metavar="N",
    help=f"The most optimizer steps of each run. Default: {STEPS}.",
)
@click.option(
    "--python",
    "interpreter",
    default=sys.executable,
    metavar="INTERPRETER",
    shell_complete=completion.files,
    help="The Python that runs the script, and has torch. Default: this one.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    help="Where to run. Default: auto, which is CUDA if there is one.",
)
@click.option(
    "--against",
    metavar="REV",
    help="Compare the work tree with a git revision, which is the original.",
)
@click.option(
    "--monitor-only",
    is_flag=True,
    help="Only watch the script, which uses AMP already.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="What autocast casts to. Default: float16.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=1),
    default=SECONDS,
    metavar="SECONDS",
    help=f"The most time for each run. Default: {SECONDS:g}.",
)
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0.1),
    metavar="GIB",
    help="The most resident memory for each run. Default: three quarters of the machine's.",
)
@click.option("--threads", type=click.IntRange(min=1), metavar="N", hidden=True)
@click.option(
    "--profile",
    metavar="NAME",
    callback=_known_profile,
    shell_complete=completion.profiles,
    help="The GPU that shapes are judged for, from volta to blackwell. Default: the one there is, or ampere.",
)
@click.option(
    "--report",
    metavar="FILE",
    shell_complete=completion.files,
    help="Write a page with curves, figures and shapes.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="How many scripts to validate at the same time on this machine. Default: 1.",
)
@EXECUTOR
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    shell_complete=completion.files,
    help="A pyproject.toml to use instead of the project's.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="When to use colour. Default: auto.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the verdicts.")
@click.option("-v", "--verbose", is_flag=True, help="Print every figure.")
@click.pass_context
def validate(
    ctx: click.Context,
    *,
    words: tuple[str, ...],
    module: str | None,
    steps: int,
    interpreter: str,
    device: str,
    against: str | None,
    monitor_only: bool,
    dtype: str | None,
    time_limit: float,
    memory_limit: float | None,
    threads: int | None,
    profile: str | None,
    report: str | None,
    jobs: int,
    executor: str,
    as_json: bool,
    config_file: str | None,
    color: str,
    quiet: bool,
    verbose: bool,
) -> Proof:
    """Prove the rewrite of a training script by running it beside the original.

    Each script is run about twenty times for a few optimizer steps, in its own interpreter and
    the current directory; what it writes goes to a scratch folder and is thrown away. Of a directory
    that is a project of its own, each script is run there.
    """
    from amp_migrate.core.limits import most_memory
    from amp_migrate.report import verdicts as told
    from amp_migrate.validate import many, prove
    from amp_migrate.validate import validation as validate
    from amp_migrate.validate.order import Entry
    from amp_migrate.validate.runner import Limits

    if module is None and not words:
        raise click.UsageError("name a script, a directory of scripts, or -m MODULE")
    if against is not None and monitor_only:
        raise click.UsageError("--against and --monitor-only exclude each other")
    destination = None if report is None else _destination(report)
    terminal = Terminal(colour=color, quiet=quiet)
    memory = most_memory() if memory_limit is None else int(memory_limit * 2**30)
    limits = Limits(time_limit, memory, steps, threads)
    requests = []
    try:
        for script in _scripts(module, words, ctx.meta[_ARGUMENTS]):
            overrides = config.Overrides(dtype=dtype)
            settings = prove.settings(
                script.file, overrides, config_file, folder=script.folder
            )
            requests.append(
                prove.Request(
                    entry=Entry(*script.entry),
                    file=script.file,
                    folder=script.folder,
                    settings=settings,
                    interpreter=interpreter,
                    limits=limits,
                    device=device,
                    against=against,
                    profile=profile,
                    monitor_only=monitor_only,
                    name=script.name,
                )
            )
    except config.ConfigError as error:
        raise UserError(str(error)) from None
    found = []
    runs = validate.number_of_runs(on_cuda=device == "cuda", monitor_only=monitor_only)
    for request in requests:
        terminal.say(
            f"running {request.shown}: it is executed about {runs} times, for up to {steps} optimizer"
            f" steps and {time_limit:g} s each; what it writes is thrown away"
        )
    try:
        with contextlib.ExitStack() as stack:
            verdicts = many.prove_all(
                requests,
                steps=partial(terminal.steps, runs),
                progress=stack.enter_context(terminal.progress()),
                jobs=jobs,
                executor=executor,
                is_bounded=memory_limit is not None,
            )
            for verdict in stack.enter_context(contextlib.closing(verdicts)):
                found.append(verdict)
                if not as_json:
                    for line, colour in told.lines(verdict, verbose=verbose):
                        terminal.write_line(line, colour)
    except ExecutorError as error:
        raise UserError(str(error)) from None
    if as_json:
        terminal.write_text(told.as_json(found))
    if destination is not None:
        _write_report(destination, found)
    return Proof.of(verdict.outcome for verdict in found)


@dataclass(frozen=True)
class _Script:
    """What is to be run, and where."""

    entry: tuple[str, tuple[str, ...], bool]
    """The fields of an `Entry`."""
    file: Path
    folder: Path
    """The working directory."""
    name: str = ""
    """What messages call it, where that is not what it is started as."""


def _scripts(
    module: str | None, words: Sequence[str], arguments: tuple[str, ...]
) -> Iterator[_Script]:
    here = Path.cwd()
    if module is not None:
        arguments = (*words, *arguments)
        yield _Script((module, arguments, True), _module_file(module), here)
        return
    for word in dict.fromkeys(words):
        path = Path(word)
        if path.is_file():
            yield _Script((word, arguments, False), path, here)
            continue
        if not path.is_dir():
            hint = "; arguments of the script follow --" if words[0] != word else ""
            raise UserError(f"{word}: no such file{hint}")
        scripts = [file for file in sorted(path.glob("*.py")) if _is_script(file)]
        if not scripts:
            raise UserError(
                f"{word}: no script in it (a file that trains, or has __main__)"
            )
        for file in scripts:
            if path.resolve() != here.resolve() and config.is_project(word):
                entry = (file.name, arguments, False)
                name = " ".join((str(file), *arguments))
                yield _Script(entry, file, path.resolve(), name)
            else:
                yield _Script((str(file), arguments, False), file, here)


def _is_script(file: Path) -> bool:
    from amp_migrate.validate.rewriting import is_script

    return is_script(file.read_text(encoding="utf-8", errors="replace"))


def _module_file(module: str) -> Path:
    parts = Path(*module.split("."))
    for base in (Path(), Path("src")):
        for file in (base / parts.with_suffix(".py"), base / parts / "__main__.py"):
            if file.is_file():
                return file
    raise UserError(f"{module}: no such module in the current directory")


def _destination(path: str) -> Destination:
    try:
        return Destination(path)
    except SourceError as error:
        raise UserError(str(error)) from None


def _write_report(destination: Destination, found: Sequence[Verdict]) -> None:
    from amp_migrate.report import page

    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    try:
        destination.write(page.html(found, date=date, version=__version__))
    except SourceError as error:
        raise UserError(str(error)) from None
