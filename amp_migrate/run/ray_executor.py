"""Ray as a `concurrent.futures.Executor`: the machines of a cluster, or those that it starts here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from amp_migrate.core.garbage import collect_seldom
from amp_migrate.run.cache import tool
from amp_migrate.run.jobs import ExecutorError
from amp_migrate.sources.files import exists

INSTALL = 'pip install "amp-migrate[ray]"'
_SECONDS = 10.0
"""What a cluster has to answer that it is there: Ray itself asks for half a minute, or two."""
_GRACE = 6.0
"""Seconds that tasks have to end when nobody wants them any more."""
_STORE = 256 * 2**20
"""Bytes of shared memory, where Ray is started here: what travels is small."""

Answer = TypeVar("Answer")


class RayExecutor(Executor):
    """Tasks of Ray, one to a processor. Shut down, it ends what is under way."""

    def __init__(self, name: str, workers: int, *, gpus: bool = False) -> None:
        """``name``: an address, or "ray" for the cluster of this machine, else one of ``workers`` here.

        ``gpus``: whether each task asks for one, where the cluster has any.
        Raises `ExecutorError` where there is no Ray, or none at the address.
        """
        # Ray tells of workers that died on standard output, which is ours; only this keeps it from it.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
        if "://" in name:
            _show_token()
        try:
            import ray
        except ImportError:
            raise ExecutorError(f"--executor {name} needs Ray: {INSTALL}") from None
        self._ray = ray
        self._identity = tool.identity()
        self._pending: set[Any] = set()
        address = name if "://" in name else os.environ.get("RAY_ADDRESS")
        if address:
            _look_for(address)
        else:
            address = _cluster_here()
        self._where = address or "Ray"
        said = {"log_to_driver": False, "logging_level": "ERROR"}
        of_its_own = {
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": _STORE,
        }
        if address:
            of_its_own = {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    with contextlib.nullcontext() if address else _undisturbed():
                        ray.init(address or "local", **said, **of_its_own)
                except ConnectionAbortedError:
                    # A head that is just starting ends what it has begun; not so the second time.
                    ray.init(address, **said)
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                ray.shutdown()
            raise
        # Ray leaves the process where it could not reach who it has found.
        except (Exception, SystemExit) as error:
            raise ExecutorError(
                f"{self._where} cannot be reached: {_line(error)}"
            ) from None
        of = ray.exceptions
        self._deaths = (
            of.WorkerCrashedError,
            of.NodeDiedError,
            of.OutOfMemoryError,
            of.ObjectLostError,
            of.RayTaskError,
            of.TaskCancelledError,
        )
        count = 1 if gpus and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        # Tries are counted by who hands out the work, the same for all executors; Ray's own have no
        # bound where memory ran out.
        self._call = ray.remote(num_cpus=1, num_gpus=count, max_retries=0)(_called)

    def submit(
        self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any
    ) -> Future[Answer]:
        answer: Future[Answer] = Future()
        try:
            ref = self._call.remote(self._identity, partial(fn, *args, **kwargs))
        except Exception as error:
            answer.set_exception(self._lost(error))
            return answer
        self._pending.add(ref)
        ref.future().add_done_callback(partial(self._told, answer, ref))
        return answer

    def _told(self, answer: Future[Any], ref: Any, inner: Future[Any]) -> None:
        self._pending.discard(ref)
        error = inner.exception()
        if error is None:
            same, value = inner.result()
            if same:
                answer.set_result(value)
            else:
                answer.set_exception(self._other_tool())
            return
        if isinstance(error, ImportError):
            answer.set_exception(self._other_tool())
        elif isinstance(error, self._deaths):
            answer.set_exception(BrokenExecutor(_line(error)))
        else:
            answer.set_exception(self._lost(error))

    def _other_tool(self) -> ExecutorError:
        return ExecutorError(
            f"the workers of {self._where} have another amp-migrate, Python or library than this machine:"
            " install the same on both"
        )

    def _lost(self, error: BaseException) -> ExecutorError:
        return ExecutorError(f"{self._where} was lost: {_line(error)}")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with contextlib.suppress(Exception):  # of a cluster that is gone
            if cancel_futures and self._pending:
                # First as by Ctrl-C, so that they end what they have started.
                refs = list(self._pending)
                for ref in refs:
                    self._ray.cancel(ref)
                _, left = self._ray.wait(refs, num_returns=len(refs), timeout=_GRACE)
                for ref in left:
                    self._ray.cancel(ref, force=True)
        with contextlib.suppress(Exception):
            self._ray.shutdown()


def _called(identity: str | None, do: Callable[[], Answer]) -> tuple[bool, Any]:
    """In a worker: whether its tool is the same, and the answer if it is."""
    if tool.identity() != identity:
        return False, None
    collect_seldom()
    return True, do()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Has Ctrl-C wait until what is started inside is there: half of it, nobody would end."""
    pressed: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    except ValueError:  # not in the main thread, where Ctrl-C does not come
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _show_token() -> None:
    """Have Ray's client show the user's token, if there is one, as Ray's own commands do unasked.

    A cluster that asks for one says nothing to whoever shows none; others do not look at it.
    """
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    with contextlib.suppress(RuntimeError):  # nobody's home
        if any(map(os.environ.get, names)) or exists(Path.home() / ".ray/auth_token"):
            os.environ.setdefault("RAY_AUTH_MODE", "token")


def _cluster_here() -> str:
    """The address of the cluster that ``ray start`` has started here; empty where there is none.

    Ray writes it down, and where the cluster was killed it stays written down: Ray itself would try for
    minutes to reach it, or take whichever it finds, which may be another run's own.
    """
    folder = os.environ.get("RAY_TMPDIR")
    if not folder and sys.platform.startswith("linux"):
        folder = os.environ.get("TMPDIR")
    if not folder:
        folder = tempfile.gettempdir() if os.name == "nt" else "/tmp"
    try:
        last = Path(folder, "ray", "ray_current_cluster").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if _refusal(last) else last


def _look_for(address: str) -> None:
    """Raises `ExecutorError` where nobody listens, which Ray says late, and not in one line."""
    reason = _refusal(address)
    if reason:
        raise ExecutorError(f"{address} cannot be reached: {reason}")


def _refusal(address: str) -> str:
    """Why nobody can be spoken to at an address; empty where somebody can."""
    try:
        parts = urlsplit(address if "://" in address else f"ray://{address}")
        where = parts.hostname or "", parts.port or 10001
        socket.create_connection(where, _SECONDS).close()
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
