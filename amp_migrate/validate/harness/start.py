"""One run of a script: everything is patched as the run asks for, then the script is `__main__`."""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import os
import runpy
import sys
import traceback
import types
import warnings
from typing import Any

import torch

from . import processes, seeds, standin
from .backward_products import ProductCounter
from .children import enter
from .clock import Clock
from .enough import enough
from .kernel_times import KernelTimes
from .log import Log
from .overlay.confine import confine
from .overlay.offline import offline_environment
from .protocol.monitor import Monitor
from .recorder import Injection, Recorder
from .shapes.gemms import GemmRecorder
from .switches import Switches
from .where import Where


def run(path: str) -> None:
    """Make the run that a JSON file describes; the log says what came of it.

    Its last line is ``exit``: how ("finished", "stopped" or "failed"), and of a failure: error (its type
    and message), path and line of the user's code, and traceback.
    """
    order = enter(path)
    log = Log(order["log"])
    where = Where([*order["files"], *order["served"]])
    try:
        os.environ.update(offline_environment(order["scratch"]))
        if order["on_cpu"]:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        if order["confined"]:
            # For what is not written by way of Python; before anything starts a thread.
            confine([order["scratch"]])
        _send_output(order)
        os.chdir(order["cwd"])
        how = _Run(order, log, where).run()
        log.say("exit", how="stopped" if enough.reached else how)
    except BaseException as error:
        # What a script does that was ended early says nothing: it may fail where results are missing.
        if enough.reached:
            log.say("exit", how="stopped")
        else:
            log.say("exit", how="failed", **_failure(error, where, order["stderr"]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def probe(path: str) -> None:
    """Say what this machine has: cuda, and of a GPU its name, capability and memory in bytes, and whether it
    is seen by a confined process, too."""
    log = Log(path)
    confined = _sees_cuda_confined(os.path.dirname(path))
    if not confined and not torch.cuda.is_available():
        log.say("machine", cuda=False)
        return
    properties = torch.cuda.get_device_properties(0)
    log.say(
        "machine",
        cuda=True,
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        memory=properties.total_memory,
        built_for=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        confined=confined,
    )


def _sees_cuda_confined(scratch: str) -> bool:
    if not hasattr(os, "fork"):
        return bool(torch.cuda.is_available())  # nothing is confined there
    child = os.fork()
    if not child:
        try:
            confine([scratch])
            os._exit(not torch.cuda.is_available())
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


class _StoppedError(Exception):
    """The script stopped itself."""


class _Run:
    def __init__(self, order: dict[str, Any], log: Log, where: Where) -> None:
        self.order = order
        self.log = log
        self.where = where

    def run(self) -> str:
        order = self.order
        if order["threads"]:
            torch.set_num_threads(order["threads"])
        timed = order["task"] in ("clock", "kernels")
        seeds.fix(order["seed"])
        if not timed:
            seeds.determine()
            if not order["on_cpu"]:
                seeds.draw_alike()
            seeds.load_data_here(self.log.say)
        if order["standin"]:
            standin.install()
        if order["launched"]:
            os.environ.update(processes.ONLY_ONE)
        processes.stay_here(self.log.say)
        Switches(on_cpu=order["on_cpu"], **order["switches"]).patch()
        with contextlib.ExitStack() as stack:
            enough.leave = lambda: self._leave(stack)
            finish = self._watch(stack)
            warnings.simplefilter("always")
            warnings.showwarning = self._warn
            # Where garbage is collected depends on how much was allocated; without it, which modules
            # live depends on the script alone.
            if not timed:
                gc.disable()
            _execute(order["entry"])
            finish()
        return "finished"

    def _leave(self, stack: contextlib.ExitStack) -> None:
        """End this process, as if the script had ended here."""
        stack.close()
        self.log.say("exit", how="stopped")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _watch(self, stack: contextlib.ExitStack) -> Any:
        """Set up what the run is made for; the answer is called after the script."""
        order = self.order
        if order["task"] == "clock":
            clock = Clock(self.log.say, order["steps"])
            clock.patch()
            return clock.finish
        if order["task"] == "kernels":
            kernels = KernelTimes(self.log.say)
            kernels.patch()
            return kernels.finish
        injection = order["injection"]
        recorder = Recorder(
            self.log.say,
            self.where,
            stop_after=order["steps"],
            injection=None if injection is None else Injection(*injection),
            perturbation=order["perturbation"],
            delay=order["delay"],
        )
        recorder.patch()
        task = order["task"]
        if task == "products":
            device = "cpu" if order["on_cpu"] else "cuda"
            stack.enter_context(ProductCounter(self.log.say, recorder, device))
        elif task == "monitor":
            monitor = Monitor(self.log, self.where, order["protocol"])
            monitor.patch()
            stack.callback(monitor.finish)
        elif task == "shapes":
            shapes = GemmRecorder(self.where)
            stack.callback(shapes.finish, self.log)
            stack.enter_context(shapes)
        return recorder.finish

    def _warn(
        self,
        message: Any,
        category: Any,
        filename: str,
        lineno: int,
        *_: Any,
        **__: Any,
    ) -> None:
        self.log.say(
            "warning",
            message=f"{category.__name__}: {message}",
            users=self.where.is_users(filename),
            path=filename,
            line=lineno,
        )


def _send_output(order: dict[str, Any]) -> None:
    """What the script prints goes into files; it reads nothing."""
    sys.stdout.flush()
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for name, target in (("stdout", 1), ("stderr", 2)):
        file = os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, target)


def _execute(entry: dict[str, Any]) -> None:
    """Run a script or a module as ``python`` and ``python -m`` would."""
    sys.argv = [entry["name"], *entry["arguments"]]
    sys.path += entry["paths"]
    try:
        if entry["module"]:
            sys.path[0] = os.getcwd()
            runpy.run_module(entry["name"], run_name="__main__", alter_sys=True)
        else:
            _execute_script(entry["name"])
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise _StoppedError(
                f"the script stopped with status {stop.code!r}"
            ) from stop


def _execute_script(name: str) -> None:
    path = os.path.abspath(name)
    sys.path[0] = os.path.dirname(path)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _failure(error: BaseException, where: Where, stderr: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "error": f"{type(error).__name__}: {error}",
        "traceback": "".join(
            traceback.format_exception(type(error), error, error.__traceback__)
        ),
    }
    if isinstance(error, _StoppedError):
        sys.stderr.flush()
        with open(stderr, encoding="utf-8", errors="replace") as file:
            said = [line.strip() for line in file if line.strip()]
        found["error"] = ": ".join([str(error), *said[-1:]])
    for frame in traceback.extract_tb(error.__traceback__):
        if where.is_users(frame.filename):
            found.update(path=frame.filename, line=frame.lineno)
    return found
