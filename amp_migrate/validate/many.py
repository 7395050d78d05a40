"""Several scripts, each proven by whoever has time: this process, others of this machine, or a cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from amp_migrate.core.limits import most_memory
from amp_migrate.run.executors import TRIES, mapped, opened
from amp_migrate.run.jobs import LOCAL
from amp_migrate.validate.prove import Request, prove
from amp_migrate.validate.validation import Progress
from amp_migrate.validate.verdict import Outcome, Verdict

_THREADS = "OMP_NUM_THREADS"
"""Clusters set it for their workers, and what is summed in another order is another number."""

Steps = Callable[[], contextlib.AbstractContextManager[Progress]]
"""Shows the runs of one script."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One script for a process that knows nothing of the one which asks."""

    number: int
    request: Request
    here: Path
    """What names of files are relative to."""
    threads: str | None
    share: int
    """Into how many parts the memory of the machine that runs it is divided; 0: a bound was said."""


def prove_all(
    requests: Sequence[Request],
    *,
    steps: Steps,
    progress: Callable[[int, int], None],
    jobs: int = 1,
    executor: str = LOCAL,
    is_bounded: bool = False,
) -> Generator[Verdict, None, None]:
    """A verdict on each, in their order.

    ``jobs``: how many are at work at the same time, on this machine. ``steps`` shows the runs of a
    script where this process makes them, ``progress`` how many scripts are done where others do.
    ``is_bounded``: whether the requests say how much memory a run may take; else it is most of the
    machine's that it is made on.
    Raises `ExecutorError` where there is no such executor.
    """
    if executor == LOCAL and min(jobs, len(requests)) <= 1:
        for request in requests:
            with steps() as shown, ended_in_order():
                verdict = _judged(request, 0 if is_bounded else 1, shown)
            yield verdict
        return
    share = 0 if is_bounded else jobs if executor == LOCAL else 1
    on_gpu = any(request.device != "cpu" for request in requests)
    tasks = [
        _Task(number, one, Path.cwd(), os.environ.get(_THREADS), share)
        for number, one in enumerate(requests)
    ]
    ready: dict[int, Verdict] = {}
    told = 0
    with ended_in_order(), opened(executor, jobs, gpus=on_gpu) as crew:
        for done, (task, found) in enumerate(mapped(crew, _prove, tasks), 1):
            reason = f"the process that ran it died {TRIES} times"
            ready[task.number] = found or _not_judged(task.request, reason)
            progress(done, len(tasks))
            while told in ready:
                yield ready.pop(told)
                told += 1


def _prove(task: _Task) -> Verdict:
    """In the process that does it."""
    try:
        os.chdir(task.here)
        if not task.request.file.exists():
            raise FileNotFoundError
    except OSError:
        place = task.here / task.request.file
        reason = f"there is no {place} on {socket.gethostname()}"
        return _not_judged(task.request, reason)
    if task.threads is None:
        os.environ.pop(_THREADS, None)
    else:
        os.environ[_THREADS] = task.threads
    try:
        with ended_in_order():
            return _judged(task.request, task.share, lambda name, done: None)
    except SystemExit:
        # A pool of processes would take it for an answer, and not for the end that it is.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise


def _judged(request: Request, share: int, progress: Progress) -> Verdict:
    if share:
        limits = replace(request.limits, memory=most_memory() // share)
        request = replace(request, limits=limits)
    try:
        verdict = prove(request, progress)
    except Exception as error:
        words = " ".join(str(error).split())
        reason = f"internal error: {type(error).__name__}: {words}; please report it"
        return _not_judged(request, reason)
    return replace(verdict, script=request.shown)


def _not_judged(request: Request, reason: str) -> Verdict:
    return Verdict(request.shown, Outcome.NOT_JUDGED, reason)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Has whoever ends this process, and a terminal that closes, end what it started as Ctrl-C does."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may ask for signals
        for number in (getattr(signal, name) for name in names):
            # Under nohup, and in what a shell has in the background, it stays ignored.
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
