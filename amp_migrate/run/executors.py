"""Who does the work of a run: this process, processes of this machine, or a cluster.

All are a `concurrent.futures.Executor`. That a process died fails only what it was at, which is tried
again a few times; what a run comes to does not depend on who did it, nor does the order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    wait,
)
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from amp_migrate.core.garbage import collect_seldom
from amp_migrate.run import relay
from amp_migrate.run.jobs import LOCAL, ExecutorError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

TRIES = 3
"""How often something is begun whose process dies, in all."""
WAITING = 512
"""The most tasks that an executor is given before the first of them is done."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")


@contextmanager
def opened(name: str, workers: int, *, gpus: bool = False) -> Iterator[Executor]:
    """The executor of a name, with so many processes where they are this machine's own.

    ``gpus``: whether each task wants a GPU for itself, of a cluster that has some.
    Raises `ExecutorError` where it cannot be had.
    """
    executor: Executor
    if name != LOCAL:
        # Imported here: it is an extra, and takes a while.
        from amp_migrate.run.ray_executor import RayExecutor

        executor = RayExecutor(name, workers, gpus=gpus)
    elif workers > 1:
        executor = _Processes(workers)
    else:
        executor = _Here()
    try:
        yield executor
    finally:
        # After Ctrl-C, nobody wants to know what they are still at, which may take minutes.
        executor.shutdown(cancel_futures=True)


def mapped(
    executor: Executor, do: Callable[[Task], Answer], tasks: Iterable[Task]
) -> Iterator[tuple[Task, Answer | None]]:
    """Each task with its answer, as they come; None for one whose process died each time."""
    rest = iter(tasks)
    pending: dict[Future[Answer], tuple[Task, int]] = {}
    most = 1 if isinstance(executor, _Here) else WAITING
    while True:
        for task in islice(rest, most - len(pending)):
            pending[executor.submit(do, task)] = task, 1
        if not pending:
            return
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            task, tries = pending.pop(future)
            error = future.exception()
            if error is None:
                yield task, future.result()
            elif isinstance(error, ExecutorError) or not isinstance(error, Exception):
                raise error
            elif tries < TRIES:
                pending[executor.submit(do, task)] = task, tries + 1
            else:
                yield task, None


class _Here(Executor):
    """This process: what is asked for is done at once."""

    def submit(
        self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any
    ) -> Future[Answer]:
        done: Future[Answer] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class _Processes(Executor):
    """Processes of this machine, of which each dies alone: a thread looks after every one."""

    def __init__(self, workers: int) -> None:
        # Imported here: most runs have no need of processes.
        import multiprocessing
        from concurrent.futures import ThreadPoolExecutor

        # Not forked: a copy of a process that runs threads (a progress bar's, a caller's) can hang.
        self._context = multiprocessing.get_context("spawn")
        self._slot = relay.slot(self._context)
        self._shown = ExitStack()
        self._shown.enter_context(relay.shown_from(self._slot))
        self._threads = ThreadPoolExecutor(workers)
        self._own = threading.local()
        self._pools: set[ProcessPoolExecutor] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(
        self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any
    ) -> Future[Answer]:
        return self._threads.submit(self._in_process, fn, *args, **kwargs)

    def _in_process(
        self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any
    ) -> Answer:
        pool = getattr(self._own, "pool", None)
        try:
            with self._lock:
                if self._closed:
                    raise BrokenExecutor
                if pool is None:
                    pool = self._own.pool = self._pool()
                    self._pools.add(pool)
                future = pool.submit(fn, *args, **kwargs)
            return future.result()
        except BrokenExecutor:
            self._own.pool = None
            raise

    def _pool(self) -> ProcessPoolExecutor:
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(
            1,
            mp_context=self._context,
            initializer=_start_worker,
            initargs=(self._slot,),
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        with self._lock:
            self._closed = cancel_futures
            if cancel_futures:
                for pool in self._pools:
                    for process in list((pool._processes or {}).values()):
                        process.terminate()
        self._threads.shutdown(wait)
        # Waiting, even then: a pool that is let go of at once may forget to cancel.
        for pool in self._pools:
            pool.shutdown(wait)
        self._shown.close()


def _start_worker(slot: Any) -> None:
    relay.leave_in(slot)
    # Ctrl-C reaches every process of the terminal; one of them is enough to answer it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    collect_seldom()


def _end_with_parent() -> None:
    """Let a worker end when the process that it works for is killed, which tells it nothing."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def processors() -> int:
    """How many this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
