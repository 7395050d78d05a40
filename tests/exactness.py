"""Runs a training script and its rewritten form on the CPU and says how they differ.

Three levels, each sharper than a loss curve:

- `OFF`: as the script is on a machine without CUDA: scaler and autocast are disabled.
- `scaled(...)`: the scaler is on, autocast is off. Scaling by powers of two is exact in fp32, so
  every loss, every parameter after every step and the output must still be bit-identical. The scale
  moves all the time and differs between scalers, or a forgotten `update` would go unseen.
- `MIXED`: both on, fp16 autocast on the CPU: no bits to compare, but statistics and a few facts.

A program is the text of a script, or a `Tree`: a whole project and how it is started. It runs in a
forked worker that has torch loaded already; what is patched for it dies with the worker.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import math
import multiprocessing
import os
import random
import re
import tempfile
import traceback
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy
import torch
import torch._dynamo  # loaded by the first optimizer: a second of every worker's time, otherwise
import torch.distributions
import torch.utils.data
from fixtures_support import FIXTURES
from trees import Tree, run_main

from amp_migrate.validate.harness.backward_products import ProductCounter
from amp_migrate.validate.harness.processes import keep_groups
from amp_migrate.validate.harness.recorder import Injection, Recorder
from amp_migrate.validate.harness.switches import Switches
from amp_migrate.validate.harness.where import Where
from amp_migrate.validate.sites import Site, sites

Program = str | Tree

TIME_LIMIT = 60.0
"""Seconds that one program may take."""

MEAN_LOSS_TOLERANCE = 1e-2
FIRST_LOSS_TOLERANCE = 1e-2
LOSS_FLOOR = 1e-2
"""Bounds of the mixed level. Measured over 60 steps, 3 seeds, 4 models and 2 optimizers, correct
fp16 training changes the mean loss by at most 4.5e-4 and the first by 1.3e-4, relative; 1e-2 is the
floor that such small numbers are given. Relative to the mean magnitude of the losses, since some of
them cross zero, and at least to `LOSS_FLOOR`, since others go there."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How a script is run."""

    name: str
    scaler: bool = False
    """Whether every GradScaler is forced to be enabled."""
    autocast: bool = False
    """Whether every region that asks for autocast gets fp16 on the CPU; else none gets any."""
    init_scale: float = 2.0**16
    growth_interval: int = 2000
    poison: tuple[int, int] | None = None
    """After backward number [0], optimizer number [1] finds an inf among its gradients."""
    skip_poisoned: bool = False
    """Do what a scaler would do: leave out the step that meets the inf, and nothing else."""
    perturbation: float = 0.0
    """Relative: what each parameter is changed by when its optimizer is made."""


ORIGINAL = Mode("original")
OFF = Mode("off")
MIXED = Mode("mixed", scaler=True, autocast=True, init_scale=2.0**10)


def scaled(init_scale: float, growth_interval: int) -> Mode:
    """The scaler alone, with a scale that moves."""
    return Mode(
        f"scaled from 2**{int(math.log2(init_scale))} every {growth_interval}",
        scaler=True,
        init_scale=init_scale,
        growth_interval=growth_interval,
    )


MOVING_SCALES = (scaled(2.0**8, 2), scaled(2.0**4, 1), scaled(2.0**20, 3))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that training did. ``bits`` are equal where the event is."""

    kind: str
    """``loss`` or ``step``."""
    optimizer: int
    """Of a step: the optimizer, counted in order of birth; -1 for a loss."""
    bits: str
    value: float
    """Of a loss: its (first) value; of a step: 0."""

    def __str__(self) -> str:
        if self.kind == "loss":
            return f"loss {self.value!r}"
        return f"step of optimizer {self.optimizer}, then parameters {self.bits[:8]}"


@dataclass(slots=True)
class Run:
    """What was seen of one run. Plain data: it comes out of another process."""

    mode: Mode
    events: list[Event] = field(default_factory=list)
    state: str = ""
    """Digest of all parameters and the state of all optimizers at the end."""
    randomness: str = ""
    """Digest of the random streams at the end."""
    stdout: str = ""
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    scaled_backwards: int = 0
    plain_backwards: int = 0
    half_gemms: int = 0
    """Matrix products and convolutions inside backward that ran in fp16: so did their forwards."""
    reached: set[tuple[str, int]] = field(default_factory=set)
    """The lines that enter autocast, scale a loss or let a scaler step: (file, line)."""
    full_gemms: int = 0
    """Those that ran in fp32: parts of a forward that were left outside autocast. Counted in the
    backward, since what makes data or evaluates is no business of the migration."""

    @property
    def losses(self) -> list[float]:
        return [event.value for event in self.events if event.kind == "loss"]

    @property
    def steps(self) -> int:
        return sum(event.kind == "step" for event in self.events)

    def poison_at_step(self, step: int) -> tuple[int, int]:
        """Where an inf has to appear for it to be met by that step: (backward, optimizer)."""
        backwards = -1
        steps = -1
        for event in self.events:
            if event.kind == "loss":
                backwards += 1
            else:
                steps += 1
                if steps == step:
                    return backwards, event.optimizer
        raise ValueError(f"there is no step {step}")


# --- in the worker ------------------------------------------------------------------------------


class _Watch:
    """What is patched for one run, and what comes of it."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.run = Run(mode)
        injection = None
        if mode.poison is not None:
            injection = Injection(*mode.poison, mode.skip_poisoned)
        self.recorder = Recorder(
            self._say,
            Where(),
            injection=injection,
            perturbation=mode.perturbation,
        )

    def patch(self) -> None:
        if self.mode.scaler:
            Switches(
                on_cpu=True,
                scaler=True,
                autocast=self.mode.autocast,
                init_scale=self.mode.init_scale,
                growth_interval=self.mode.growth_interval,
            ).patch()
        self.recorder.patch()

    def _say(self, kind: str, **said: Any) -> None:
        run = self.run
        if kind == "region" or said.get("scaled"):
            run.reached.add((os.path.realpath(said["path"]), said["line"]))
        if kind == "loss":
            run.events.append(Event("loss", -1, said["bits"], said["value"]))
            if said["scaled"]:
                run.scaled_backwards += 1
            else:
                run.plain_backwards += 1
        elif kind == "step":
            run.events.append(Event("step", said["optimizer"], said["bits"], 0.0))
        elif kind == "products":
            run.half_gemms, run.full_gemms = said["half"], said["full"]
        elif kind == "end":
            run.state, run.randomness = said["state"], said["randomness"]
        elif kind == "note":
            raise AssertionError(said["message"])


def _execute(program: Program, name: str, watch: _Watch, folder: str) -> None:
    """Run it as it would be run, in an empty folder; a script has no arguments."""
    with contextlib.ExitStack() as stack:
        if watch.mode.autocast:
            stack.enter_context(ProductCounter(watch._say, watch.recorder, "cpu"))
        if isinstance(program, Tree):
            program.run(Path(folder))
        else:
            run_main(program, name, [name])


def _where(error: BaseException, name: str, folder: str) -> str:
    """The last line of the program's own that an error went through."""
    where = ""
    inside = f"{Path(folder).resolve()}{os.sep}"
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == name:
            where = f" (line {frame.lineno})"
        elif frame.filename.startswith(inside):
            where = f" ({frame.filename[len(inside) :]}, line {frame.lineno})"
    return where


def _work(program: Program, name: str, mode: Mode, pipe: Any) -> None:
    torch.set_num_threads(1)
    # What a script does not seed itself would else be seeded anew by each fork.
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    # Where garbage is collected depends on how much was allocated; without it, which modules live
    # depends on the script alone.
    gc.disable()
    os.environ.pop("WORLD_SIZE", None)
    os.environ.pop("RANK", None)
    keep_groups()
    watch = _Watch(mode)
    run = watch.run
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            # A plain hook and no `record=True`: scripts may use `catch_warnings` on their own.
            warnings.showwarning = (
                lambda message, category, *_, **__: run.warnings.append(
                    f"{category.__name__}: {message}"
                )
            )
            # Deprecated entry points announce themselves when they are patched, too.
            try:
                with (
                    contextlib.redirect_stdout(output),
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    watch.patch()
                    _execute(program, name, watch, folder)
                watch.recorder.finish()
            except BaseException as error:
                where = _where(error, name, folder)
                run.error = f"{type(error).__name__}: {error}{where}"
        os.chdir("/")
        top = os.path.realpath(folder)
        run.reached = {(os.path.relpath(file, top), at) for file, at in run.reached}
    run.stdout = output.getvalue()
    pipe.send(run)
    pipe.close()


# --- for tests ----------------------------------------------------------------------------------


def execute(program: Program, mode: Mode = ORIGINAL, name: str = "script.py") -> Run:
    """Run one program in a forked worker and say what was seen."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_work, args=(program, name, mode, sender), daemon=True
    )
    process.start()
    sender.close()
    try:
        if not receiver.poll(TIME_LIMIT):
            raise TimeoutError(f"{name} took more than {TIME_LIMIT:g} s ({mode.name})")
        run: Run = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(
            f"{name} died with status {process.exitcode} ({mode.name})"
        ) from None
    finally:
        if process.is_alive():
            process.join(1.0)
        if process.is_alive():
            process.kill()
        process.join()
        receiver.close()
    return run


@functools.lru_cache(maxsize=1000)
def _original(program: Program, name: str) -> Run:
    return execute(program, ORIGINAL, name)


def reference_of(program: Program, name: str = "script.py") -> Run:
    """How the original trains: run once for all that is compared with it, where it cannot change."""
    if isinstance(program, str) or FIXTURES in program.folder.parents:
        return _original(program, name)
    return execute(program, ORIGINAL, name)


def compare(reference: Run, candidate: Run) -> list[str]:
    """Every way in which two runs are not the same to the bit; empty where they are."""
    if reference.error or candidate.error:
        return [
            f"{run.mode.name}: {run.error}"
            for run in (reference, candidate)
            if run.error
        ]
    found = []
    for position, (a, b) in enumerate(
        zip(reference.events, candidate.events, strict=False)
    ):
        if (a.kind, a.optimizer, a.bits) != (b.kind, b.optimizer, b.bits):
            found.append(f"event {position}: {a} became {b}")
            break
    if len(reference.events) != len(candidate.events):
        found.append(
            f"{len(reference.events)} losses and steps became {len(candidate.events)}"
        )
    if reference.state != candidate.state:
        found.append("parameters or optimizer state differ at the end")
    if reference.randomness != candidate.randomness:
        found.append("the random streams differ at the end")
    if reference.stdout != candidate.stdout:
        found.append(
            f"output differs: {reference.stdout!r} became {candidate.stdout!r}"
        )
    return found


def check_off(
    original: Program, rewritten: Program, name: str = "script.py"
) -> list[str]:
    """Off means off: without CUDA the rewritten script is the original one."""
    reference = reference_of(original, name)
    candidate = execute(rewritten, OFF, name)
    found = compare(reference, candidate)
    new = sorted(set(candidate.warnings) - set(reference.warnings))
    return found + [f"a new warning: {warning}" for warning in new]


def check_scaled(
    original: Program,
    rewritten: Program,
    mode: Mode = MOVING_SCALES[0],
    name: str = "script.py",
) -> list[str]:
    """With the scaler on and in fp32 the rewritten script is still the original one."""
    reference = reference_of(original, name)
    candidate = execute(rewritten, mode, name)
    return compare(reference, candidate) + _unscaled(candidate, rewritten)


def check_injected(
    original: Program,
    rewritten: Program,
    step: int | None = None,
    mode: Mode = MOVING_SCALES[0],
    name: str = "script.py",
) -> list[str]:
    """One inf among the gradients, which the scaler must answer with precisely one skipped step."""
    plain = reference_of(original, name)
    if plain.error:
        return [f"original: {plain.error}"]
    poison = plain.poison_at_step(plain.steps // 2 if step is None else step)
    control = execute(
        original, replace(ORIGINAL, poison=poison, skip_poisoned=True), name
    )
    candidate = execute(rewritten, replace(mode, poison=poison), name)
    if plain.steps <= control.steps:
        return ["the injected inf did not cost the original a step: nothing was tested"]
    return compare(control, candidate) + _unscaled(candidate, rewritten)


def check_mixed(
    original: Program, rewritten: Program, name: str = "script.py"
) -> list[str]:
    """With scaler and fp16 autocast on: it runs, it trains, and it really is mixed precision."""
    reference = reference_of(original, name)
    candidate = execute(rewritten, MIXED, name)
    if reference.error or candidate.error:
        return [
            f"{run.mode.name}: {run.error}"
            for run in (reference, candidate)
            if run.error
        ]
    found = _unscaled(candidate, rewritten) + _missed(
        _sources(original, name), _sources(rewritten, name), candidate
    )
    if not candidate.scaled_backwards:
        found.append("no backward was scaled")
    if not candidate.steps:
        found.append("no step was applied")
    if not candidate.half_gemms:
        found.append(
            "no matrix product or convolution of a training forward ran in fp16"
        )
    fp32 = re.search(r"autocast\(.cuda., enabled=False\)", _text(rewritten))
    if candidate.full_gemms and not fp32 and not _partly(rewritten):
        found.append(
            f"{candidate.full_gemms} matrix products that the losses depend on were left in fp32"
            f" ({candidate.half_gemms} ran in fp16)"
        )
    before, after = reference.losses, candidate.losses
    if len(before) != len(after):
        return [*found, f"{len(before)} losses became {len(after)}"]
    if not all(math.isfinite(value) for value in after):
        return [*found, "a loss is not finite"]
    magnitude = max(LOSS_FLOOR, sum(abs(value) for value in before) / len(before))
    if abs(after[0] - before[0]) > FIRST_LOSS_TOLERANCE * max(
        magnitude, abs(before[0])
    ):
        found.append(f"the first loss {before[0]!r} became {after[0]!r}")
    mean_before, mean_after = sum(before) / len(before), sum(after) / len(after)
    if abs(mean_after - mean_before) > MEAN_LOSS_TOLERANCE * magnitude:
        found.append(f"the mean loss {mean_before!r} became {mean_after!r}")
    return found


def _missed(before: dict[str, str], after: dict[str, str], run: Run) -> list[str]:
    """The regions, scaled backwards and steps of a rewrite that a run did not come by."""
    found = []
    for name, text in after.items():
        if text == before.get(name):
            continue
        wanted = sites(name, before.get(name, ""), text)
        steps = {
            number
            for number, line in enumerate(text.splitlines(), 1)
            if re.search(r"scaler\w*(\[.*?\])?\.step\(", line)
        }
        wanted += [Site(name, number, number) for number in steps]
        found += [
            f"{name}:{site.first} was not run"
            for site in wanted
            if not any(
                (name, line) in run.reached for line in range(site.first, site.last + 1)
            )
        ]
    return found


def _sources(program: Program, name: str) -> dict[str, str]:
    """The texts that a program runs, by file."""
    return program.sources() if isinstance(program, Tree) else {name: program}


def _unscaled(run: Run, rewritten: Program) -> list[str]:
    if run.error or not run.plain_backwards or "# amp: off" in _text(rewritten):
        return []
    if _partly(rewritten):
        return []
    return [f"{run.plain_backwards} backwards were not scaled"]


def _text(program: Program) -> str:
    return program.text() if isinstance(program, Tree) else program


def _partly(rewritten: Program) -> bool:
    return isinstance(rewritten, Tree) and rewritten.partly
