"""Runs scripts under the monitor and fp16 on the CPU, each in a forked worker, for its tests."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # loaded by the first optimizer: a second of every worker's time, otherwise
from trees import Tree, run_main

from amp_migrate.catalogue.protocol import protocol
from amp_migrate.catalogue.rules import lint_code, lint_rule
from amp_migrate.validate.harness.log import Log
from amp_migrate.validate.harness.processes import keep_groups
from amp_migrate.validate.harness.protocol.monitor import Monitor
from amp_migrate.validate.harness.switches import Switches
from amp_migrate.validate.harness.where import Where

TIME_LIMIT = 60.0
"""Seconds that one program may take."""


@dataclass(slots=True)
class Seen:
    """What came of one run."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    """The final ones."""
    news: list[dict[str, Any]] = field(default_factory=list)
    """Those that were told at once."""
    error: str = ""
    output: str = ""
    randomness: bytes = b""
    """The state of the random stream at the end."""

    def rules(self, *, notes: bool = False) -> set[tuple[str, int]]:
        """Rules and lines, without notes."""
        return {
            (finding["rule"], finding["line"])
            for finding in self.findings
            if notes or lint_rule(lint_code(finding["rule"])).severity != "info"
        }


def _work(
    program: str | Tree, forced: bool, monitored: bool, log: str, pipe: Any
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_groups()
    seen = Seen()
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        if forced:
            Switches(
                on_cpu=True, scaler=True, autocast=True, init_scale=2.0**10
            ).patch()
        monitor = Monitor(Log(log), Where(), protocol()) if monitored else None
        if monitor is not None:
            monitor.patch()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.redirect_stdout(output))
                stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
                if monitor is not None:
                    stack.callback(monitor.finish)
                if isinstance(program, Tree):
                    program.run(Path(folder))
                else:
                    file = Path(folder) / "script.py"
                    file.write_text(program)
                    run_main(program, os.fspath(file), [os.fspath(file)])
        except BaseException as error:
            seen.error = f"{type(error).__name__}: {error}"
        os.chdir("/")
    seen.output = output.getvalue()
    seen.randomness = torch.get_rng_state().numpy().tobytes()
    pipe.send(seen)
    pipe.close()


def watch(program: str | Tree, *, forced: bool = True, monitored: bool = True) -> Seen:
    """Run a script or project to its end. ``forced``: fp16 on the CPU takes the place of CUDA."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/log"
        process = context.Process(
            target=_work, args=(program, forced, monitored, log, sender), daemon=True
        )
        process.start()
        sender.close()
        try:
            if not receiver.poll(TIME_LIMIT):
                raise TimeoutError(f"more than {TIME_LIMIT:g} s")
            seen: Seen = receiver.recv()
        finally:
            process.join(1.0)
            if process.is_alive():
                process.kill()
            process.join()
            receiver.close()
        if monitored:
            told = [json.loads(line) for line in Path(log).read_text().splitlines()]
            seen.findings = [entry for entry in told if entry["final"]]
            seen.news = [entry for entry in told if not entry["final"]]
    return seen
