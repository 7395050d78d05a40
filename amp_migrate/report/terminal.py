"""Where output goes: bytes to standard output, words to standard error, colour to terminals."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import click

from amp_migrate.core import phases
from amp_migrate.core.phases import Watcher
from amp_migrate.run.outcome import Progress

_PATIENCE = 0.5
"""Seconds of work before a progress bar is worth its flicker."""


class Terminal:
    """The two output streams of one run."""

    def __init__(self, *, colour: str = "auto", quiet: bool = False) -> None:
        self._colour = colour
        self.quiet = quiet

    def write(self, data: bytes) -> None:
        """Put ``data`` on standard output as it is, whatever the locale."""
        stream = sys.stdout.buffer
        try:
            rest = memoryview(data)
            while rest:
                # Python without buffers (PYTHONUNBUFFERED) may write only a part.
                rest = rest[stream.write(rest) :]
            stream.flush()
        except BrokenPipeError:
            raise  # whoever reads has seen enough
        except OSError as error:
            message = f"standard output: cannot be written: {error.strerror}"
            raise click.ClickException(message) from None

    def write_text(self, text: str) -> None:
        """Put ``text`` on standard output, escaping what its encoding lacks."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self.write(text.encode(encoding, "backslashreplace"))

    def write_line(self, line: str, colour: str = "") -> None:
        """Put a line on standard output, in a colour where that is a terminal that people read."""
        styled = click.style(line, fg=colour) if colour else line
        if not self._wants_colour(sys.stdout):
            styled = line
        self.write_text(styled + "\n")

    def write_diff(self, diff: bytes) -> None:
        """Put a diff on standard output: plain for programs, in colour for people."""
        if diff and self._wants_colour(sys.stdout):
            from amp_migrate.report.colour import print_diff

            print_diff(diff, sys.stdout)
        else:
            self.write(diff)

    def say(self, line: str, **style: Any) -> None:
        """Print a line to standard error, unless the user wants quiet."""
        if not self.quiet:
            self._print(line, **style)

    def error(self, message: str, *details: str) -> None:
        """Print an error, always, in one line, and lines that go with it."""
        label = click.style("error:", fg="red", bold=True)
        self._print(f"{label} {' '.join(message.splitlines())}")
        for line in details:
            self._print(line)

    def _print(self, line: str, **style: Any) -> None:
        styled = click.style(line, **style) if style else line
        click.echo(styled, err=True, color=self._wants_colour(sys.stderr))

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """A progress bar that appears on a terminal only, and only when the work takes a while.

        What is given counts programs; beside them it shows what is done within one in this process.
        """
        if self.quiet or self._colour == "never" or not sys.stderr.isatty():
            yield _nothing
            return
        start = time.monotonic()
        update: Watcher | None = None
        with contextlib.ExitStack() as stack:

            def advance(phase: str, done: int, total: int) -> None:
                nonlocal update
                if update is None and time.monotonic() - start > _PATIENCE:
                    update = stack.enter_context(_bars())
                if update is not None:
                    update(phase, done, total)

            stack.enter_context(phases.shown_to(advance))
            yield lambda done, total: advance("", done, total)

    @contextlib.contextmanager
    def steps(self, total: int) -> Iterator[Callable[[str, int], None]]:
        """Tells what is being done, and how much of it is done; on terminals only."""
        if self.quiet or self._colour == "never" or not sys.stderr.isatty():
            yield _untold
            return
        from rich.console import Console
        from rich.status import Status

        with Status("", console=Console(stderr=True)) as status:
            begun = time.monotonic()

            def tell(name: str, done: int) -> None:
                left = ""
                if done:
                    seconds = (time.monotonic() - begun) / done * max(0, total - done)
                    left = f", about {seconds:.0f} s to go"
                status.update(f"run {done + 1} of {total}: {name}{left}")

            yield tell

    def _wants_colour(self, stream: IO[str]) -> bool:
        if self._colour != "auto":
            return self._colour == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return not plain and stream.isatty()


def _untold(name: str, done: int) -> None:
    pass


def _nothing(done: int, total: int) -> None:
    pass


@contextlib.contextmanager
def _bars() -> Iterator[Watcher]:
    """One for the programs of a run, if there are several, and one for what is being done now."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        programs = bars.add_task("programs", total=None, visible=False)
        now = bars.add_task("", total=None, visible=False)

        last = ""

        def update(phase: str, done: int, total: int) -> None:
            nonlocal last
            task = now if phase else programs
            bars.update(
                task,
                description=phase or "programs",
                completed=done,
                total=total or None,
                visible=total != 1,
                refresh=phase != last,
            )
            last = phase

        yield update
