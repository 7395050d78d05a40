"""The frame of the command line: a default command, errors in one line, exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from amp_migrate.cli.exits import Counted, ExitCode, Lint, Proof, Served, Told
from amp_migrate.core.garbage import collect_seldom
from amp_migrate.report.terminal import Terminal

_WIDEST = 80
"""Characters of what the list of commands says of one."""

IMPLIED = f"{__name__}.implied"
"""In a context's ``meta`` where nobody named the command."""


class UserError(click.ClickException):
    """Something the user has to put right; ends the program with `ExitCode.ERROR`."""

    exit_code = ExitCode.ERROR


class Command(click.Command):
    """A command whose callback returns one of its ``exits``, with examples at the end of its help."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        exits: type[Counted | ExitCode | Lint | Proof | Served | Told] = ExitCode,
        **rest: Any,
    ) -> None:
        super().__init__(*args, **rest)
        self.examples = examples
        self.exits = exits

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, and the table of exit codes."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_dl(self.examples)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), code.meaning) for code in self.exits])


class Program(click.Group):
    """A group of commands, one of which is meant where none is named.

    ``program PATH`` is ``program <default> PATH``. What is named like a command is the command; a
    file of that name is reached as ``./name``.
    """

    def __init__(self, *args: Any, default: str, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.default = default
        self.lazy: dict[str, tuple[str, str]] = {}

    def add_lazily(self, name: str, origin: str, help_: str) -> None:
        """Add a command, ``module:attribute``, that is imported when it is asked for.

        ``help_``: what the list of commands says of it.
        """
        self.lazy[name] = origin, help_

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which the commands were added."""
        return [*self.commands, *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            origin, help_ = self.lazy[cmd_name]
            module, _, attribute = origin.partition(":")
            found: click.Command = getattr(import_module(module), attribute)
            found.short_help = help_
            return found
        return super().get_command(ctx, cmd_name)

    @property
    def default_command(self) -> click.Command:
        """The command that is meant where none is named."""
        return self.commands[self.default]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the default command where the user did not."""
        own = {*self.list_commands(ctx)}.union(
            *(option.opts for option in self.get_params(ctx))
        )
        if not args or args[0] not in own:
            args = [self.default, *args]
            ctx.meta[IMPLIED] = True
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Those of the default command."""
        return self.default_command.collect_usage_pieces(ctx)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """The default command's options, the program's own, and the commands."""
        records = [
            record
            for option in [*self.default_command.params, *self.get_params(ctx)]
            if isinstance(option, click.Option)
            and (record := option.get_help_record(ctx))
        ]
        with formatter.section("Options"):
            formatter.write_dl(records)
        self.format_commands(ctx, formatter)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """All of them, none of which is imported for it."""
        known = {
            name: command.get_short_help_str(limit=_WIDEST)
            for name, command in self.commands.items()
        }
        known |= {name: help_ for name, (_, help_) in self.lazy.items()}
        with formatter.section("Commands"):
            formatter.write_dl([*known.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """That of the default command."""
        self.default_command.format_epilog(ctx, formatter)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and leave the process with an `ExitCode`, whatever happens."""
        if standalone_mode:
            collect_seldom()
        run: Callable[..., Any] = partial(
            super().main, args, prog_name, complete_var, **extra
        )
        if not standalone_mode:
            return run(standalone_mode=False)
        try:
            code = run(standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence()
            code = ExitCode.CUT_SHORT
        except click.Abort:
            # Whoever presses it once more is not told where that came from.
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            code = ExitCode.INTERRUPTED
        except click.ClickException as error:
            code = _fail(error.format_message())
        except Exception as error:
            code = _fail(_describe(error))
        sys.exit(int(code or ExitCode.OK))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, which may mean to print help; else as `invoke`."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            _silence()
            raise SystemExit(ExitCode.CUT_SHORT) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; who closes our output early (``| head``) has seen enough."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _silence()
            return ExitCode.CUT_SHORT


def _fail(message: str) -> ExitCode:
    try:
        Terminal().error(message)
    except BrokenPipeError:
        _silence()
    return ExitCode.ERROR


def _describe(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return (
        f"internal error: {type(error).__name__}: {error} ({where}); please report it"
    )


def _silence() -> None:
    """Let what is still buffered for a closed pipe, up to the interpreter's end, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
