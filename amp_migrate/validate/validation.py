"""Proves one rewrite: the original twice, then the levels, then a verdict."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

from amp_migrate.catalogue.gpus.profiles import Profile
from amp_migrate.validate import curves, kernels, levels
from amp_migrate.validate.compare import difference, printed, saved
from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.kernels import KernelShares
from amp_migrate.validate.order import AS_WRITTEN, Order, Switches, Task
from amp_migrate.validate.record import Record, shown
from amp_migrate.validate.runner import Runner
from amp_migrate.validate.shapes import Room, ShapesReport, judge, room_for_batch
from amp_migrate.validate.shapes_table import as_dict, lines_of
from amp_migrate.validate.sites import Site, ran
from amp_migrate.validate.verdict import (
    Finding,
    LevelVerdict,
    Outcome,
    Speed,
    Verdict,
)

OLDEST_ON_CPU = (2, 3)
"""The first torch with a scaler and fp16 autocast for the CPU."""

_ASKS_LAUNCHER = re.compile(
    r"(KeyError: '|environment variable )(MASTER_(ADDR|PORT)|(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE)\b"
)
"""What a script says that is to be started by ``torchrun``."""

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")

SLOW = 2.0
"""Seconds by which a run is longer, at least, whose time is to be another one."""

Progress = Callable[[str, int], None]
"""Called with what is being run, and the number of runs so far."""


def number_of_runs(*, on_cuda: bool, monitor_only: bool) -> int:
    """About how often a script is run."""
    if monitor_only:
        return 1
    return levels.RUNS + (3 if on_cuda else 0)


class Validation:
    """The proof of one rewrite, with a runner that serves both forms of it."""

    def __init__(
        self,
        runner: Runner,
        rewriting: Rewriting,
        progress: Progress,
        profile: Profile | None = None,
    ) -> None:
        """``profile``: of the GPU that shapes are judged for; None: they are not recorded."""
        self.profile = profile
        self.runner = runner
        self.rewriting = rewriting
        self.progress = progress
        self.records: list[Record] = []
        self.notes: list[str] = []
        self._longest = 0.0
        """Seconds of the longest run so far."""

    def run(self) -> Verdict:
        """All runs, and what they come to."""
        return self._told(self._judge)

    def watch(self) -> Verdict:
        """Only watch the program as it is, which uses AMP."""
        return self._told(self._watch)

    def _told(self, judge: Callable[[], Verdict]) -> Verdict:
        begun = time.monotonic()
        verdict = judge()
        machine = self.runner.machine
        if self.runner.standin:
            self.notes.append("the script saw a stand-in for CUDA, and ran on the CPU")
        return replace(
            verdict,
            device=machine.gpu["name"] if machine.gpu else "CPU",
            python=machine.python,
            torch=machine.torch,
            runs=len(self.records),
            seconds=time.monotonic() - begun,
            notes=(*self.notes, *verdict.notes),
        )

    def _watch(self) -> Verdict:
        order = Order("watched", False, Task.MONITOR, AS_WRITTEN)
        self.runner.standin = self.runner.on_cpu
        judged, findings = levels.protocol(self._run, order, {"error"})
        if self.runner.standin and not self.records[-1].all("step"):
            self.runner.standin = False
            judged, findings = levels.protocol(self._run, order, {"error"})
        record = self.records[-1]
        outcome, reason = judged.outcome, judged.summary
        on = any(line["on"] for line in record.all("region"))
        if outcome is Outcome.PROVEN and not on:
            outcome = Outcome.NOT_JUDGED
            reason = "the script enters no autocast region here"
        elif outcome is Outcome.PROVEN and not record.all("step"):
            outcome = Outcome.NOT_JUDGED
            reason = "the script makes no optimizer step here"
        return Verdict(
            str(self.runner.program.entry),
            outcome,
            reason,
            levels=(judged,),
            steps=len(record.all("step")),
            findings=tuple(findings),
        )

    def _judge(self) -> Verdict:
        reference = self._original()
        if reference.failure:
            return self._could_not(
                f"the original does not run here: {reference.failure}"
            )
        if not reference.all("step"):
            where = ""
            if reference.all("process"):
                where = ": it starts processes of its own, whose training is not seen"
            return self._could_not(f"the original makes no optimizer step here{where}")
        again = self._run(levels.AGAIN)
        found = difference(reference, again)
        if found:
            return self._could_not(
                f"the original differs from itself when it is run twice: {found}"
            )
        compare = _Comparison(reference, again, self._slowly)
        verdicts = [levels.off(self._run, reference, compare)]
        if self._disproved(verdicts):
            return self._flaky(reference) or self._conclude(reference, verdicts)
        if not self._has_scaler():
            torch = self.runner.machine.torch
            self.notes.append(f"torch {torch} has no scaler for the CPU: L0 only")
            return self._conclude(reference, verdicts)
        # Told by the run, not by the text: the scaler may be in a file that is the same in both forms.
        is_scaled = self.rewriting.scaled or bool(self.records[-1].all("scaler"))
        if is_scaled:
            verdicts.append(levels.loss_scaling(self._run, reference, compare))
        if self._disproved(verdicts):
            flaky = self._flaky(reference)
            if flaky is not None:
                return flaky
        switches = levels.as_mixed(is_scaled)
        mixed: list[Record] = []
        if not self._disproved(verdicts):
            judged, mixed = levels.mixed_precision(
                self._run, reference, is_scaled=is_scaled
            )
            verdicts.append(judged)
            if self.runner.on_cpu:
                self.notes.append("L2 is CPU emulation of CUDA's autocast, not CUDA")
        # Also where a level failed: it names the line.
        watched = Order("watched", True, Task.MONITOR, switches)
        judged, findings = levels.protocol(self._run, watched, {"error", "warning"})
        verdicts.append(judged)
        speeds = [] if self.runner.on_cpu else self._speeds()
        shapes = self._shapes(switches, self._room(reference, speeds))
        return replace(
            self._conclude(reference, verdicts, mixed, findings),
            speeds=tuple(speeds),
            tensor_cores=None if self.runner.on_cpu else self._tensor_cores(),
            shapes={} if shapes is None else as_dict(shapes),
            shape_lines=() if shapes is None else tuple(lines_of(shapes, Path.cwd())),
        )

    @staticmethod
    def _room(reference: Record, speeds: Sequence[Speed]) -> Room | None:
        """What batch size the freed memory would allow; None where that cannot be known."""
        if len(speeds) != 2:
            return None
        batch = reference.all("loader")[0]["batch"] if reference.all("loader") else None
        return room_for_batch(speeds[0].memory, speeds[1].memory, batch)

    def _tensor_cores(self) -> KernelShares | None:
        """How much of the time of matrix products is spent on Tensor Cores, by kernels' names."""
        order = Order("timing the kernels", True, Task.KERNELS, AS_WRITTEN)
        return kernels.shares(
            [
                (line["name"], line["microseconds"])
                for line in self._run(order).all("kernel")
            ]
        )

    def _shapes(self, switches: Switches, room: Room | None) -> ShapesReport | None:
        """What the rewritten program multiplies; None where that was not asked for, or not seen."""
        if self.profile is None:
            return None
        record = self._run(Order("recording shapes", True, Task.SHAPES, switches))
        if not record.all("gemm"):
            return None
        return judge(record.lines, self.profile, room)

    def _original(self) -> Record:
        """The original, as on a GPU where that works."""
        self.runner.standin = self.runner.on_cpu
        record = self._first(levels.ORIGINAL)
        if not self.runner.on_cpu and not record.last("end").get("cuda", True):
            self.runner.leave_gpu()
            self.notes.append("the script trains on the CPU, though there is a GPU")
            return self._original()
        if self.runner.standin and (record.failure or not record.all("step")):
            failure = record.failure
            self.runner.standin = False
            record = self._first(levels.ORIGINAL)
            if record.failure and "CUDA" in record.failure:
                return replace(record, killed=failure or record.failure)
        return record

    def _first(self, order: Order) -> Record:
        """A run of a script of which nobody knows yet whether it needs a launcher."""
        record = self._run(order)
        if not self.runner.launched and _ASKS_LAUNCHER.search(record.failure):
            self.runner.launched = True
            self.notes.append("it ran as torchrun would run it in one process")
            record = self._run(order)
        while folder := self._not_installed(record.failure):
            self.runner.paths.append(folder)
            self.notes.append(f"{folder} was taken to be on PYTHONPATH")
            record = self._run(order)
        return record

    def _not_installed(self, failure: str) -> str | None:
        """A folder with a package of the program that a script expects to be installed."""
        missing = _MISSING_MODULE.search(failure)
        if missing is None:
            return None
        program = self.runner.program
        for folder in program.folder.joinpath(program.entry.name).parents:
            module = folder / missing[1]
            inside = (str(module.with_suffix(".py")), f"{module}{os.sep}")
            if any(path.startswith(inside) for path in program.files):
                path = str(folder)
                return None if path in self.runner.paths else path
        return None

    def _flaky(self, reference: Record) -> Verdict | None:
        """Of a GPU: not every kernel gives the same bits each time, and some differ seldom."""
        if self.runner.on_cpu:
            return None
        found = difference(reference, self._run(levels.AGAIN))
        if not found:
            return None
        return self._could_not(
            f"the original differs from itself when it is run again: {found}"
        )

    def _slowly(self, reference: Record) -> Record:
        """The original, so slow that the time it takes is another one, and so is its memory on a GPU."""
        delay = (SLOW + 2 * self._longest) / len(reference.all("step"))
        return self._run(
            replace(levels.ORIGINAL, name="the original, slowly", delay=delay)
        )

    @staticmethod
    def _disproved(verdicts: list[LevelVerdict]) -> bool:
        return any(one.outcome is Outcome.DISPROVED for one in verdicts)

    def _conclude(
        self,
        reference: Record,
        verdicts: list[LevelVerdict],
        mixed: Sequence[Record] = (),
        findings: Sequence[Finding] = (),
    ) -> Verdict:
        rewritten = [record for record in self.records if record.order.rewritten]
        seen = [
            line
            for record in rewritten
            for line in (*record.all("region"), *record.all("loss"))
        ]
        loaded = {path for record in rewritten for path in record.loaded}
        wanted = {
            site
            for site in self.rewriting.sites
            if self.rewriting.all_needed or site.path in loaded
        }
        done = ran(wanted, seen)
        outcome, reason = self._outcome(verdicts, loaded, wanted, done)
        return Verdict(
            script=str(self.runner.program.entry),
            outcome=outcome,
            reason=reason,
            levels=tuple(verdicts),
            sites_run=len(done),
            sites=len(wanted),
            steps=max((len(record.all("step")) for record in rewritten), default=0),
            losses=curves.losses(reference, mixed[0] if mixed else None),
            scales=(
                curves.scales(mixed[-1]) if mixed and mixed[-1].all("scaler") else ()
            ),
            findings=tuple(findings),
        )

    def _outcome(
        self,
        verdicts: list[LevelVerdict],
        loaded: set[str],
        wanted: set[Site],
        done: set[Site],
    ) -> tuple[Outcome, str]:
        for one in verdicts:
            if one.outcome is Outcome.DISPROVED:
                return Outcome.DISPROVED, f"{one.level.value}: {one.summary}"
        for path in sorted(self.rewriting.rewritten):
            if path not in loaded and self.rewriting.all_needed:
                return (
                    Outcome.NOT_JUDGED,
                    f"{shown(path)} was rewritten and is never loaded",
                )
        if not loaded:
            return Outcome.NOT_JUDGED, "it loads no file that differs"
        if wanted and not done:
            return Outcome.NOT_JUDGED, "none of the rewritten places ran"
        for one in verdicts:
            if one.outcome in (Outcome.NOT_FINITE, Outcome.NOT_JUDGED):
                return one.outcome, f"{one.level.value}: {one.summary}"
        if any(one.outcome is Outcome.UNDERFLOW for one in verdicts):
            return Outcome.UNDERFLOW, "the rewrite trains as the original does"
        return Outcome.PROVEN, "the rewrite trains as the original does"

    def _speeds(self) -> list[Speed]:
        found = []
        for name, rewritten in (("original", False), ("rewritten", True)):
            order = Order(f"timing the {name}", rewritten, Task.CLOCK, AS_WRITTEN)
            times = self._run(order).last("times")
            if times and times["milliseconds"]:
                found.append(_speed(name, times["milliseconds"], times["memory"]))
        return found

    def _run(self, order: Order) -> Record:
        self.progress(order.name, len(self.records))
        begun = time.monotonic()
        record = self.runner.run(order)
        self._longest = max(self._longest, time.monotonic() - begun)
        self.records.append(record)
        return record

    def _could_not(self, reason: str) -> Verdict:
        return Verdict(str(self.runner.program.entry), Outcome.NOT_JUDGED, reason)

    def _has_scaler(self) -> bool:
        if not self.runner.on_cpu:
            return True
        return self.runner.machine.torch_version >= OLDEST_ON_CPU


class _Comparison:
    """How runs differ from the original.

    What they print and save counts, too, where that is the same each time, and in a slow run.
    """

    def __init__(
        self, reference: Record, again: Record, slowly: Callable[[Record], Record]
    ) -> None:
        """``slowly`` makes a run of the original in which time tells."""
        self._reference = reference
        self._slowly: Callable[[Record], Record] | None = slowly
        self._beside = [one for one in (printed, saved) if not one(reference, again)]

    def __call__(self, reference: Record, candidate: Record) -> str:
        found = difference(reference, candidate)
        if found:
            return found
        found = self._look_beside(reference, candidate)
        if found and self._slowly is not None:
            slow = self._slowly(self._reference)
            self._slowly = None
            self._beside = [
                one for one in self._beside if not one(self._reference, slow)
            ]
            found = self._look_beside(reference, candidate)
        return found

    def _look_beside(self, reference: Record, candidate: Record) -> str:
        found = (compare(reference, candidate) for compare in self._beside)
        return next(filter(None, found), "")


def _speed(name: str, milliseconds: list[float], memory: int | None) -> Speed:
    if len(milliseconds) < 2:
        milliseconds = milliseconds * 2
    low, middle, high = quantiles(milliseconds, n=4)
    return Speed(name, middle, low, high, memory)
