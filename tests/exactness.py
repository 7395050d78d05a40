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
import hashlib
import io
import math
import multiprocessing
import os
import random
import re
import tempfile
import traceback
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy
import torch
import torch._dynamo  # loaded by the first optimizer: a second of every worker's time, otherwise
import torch.distributions
import torch.utils.data
from torch.utils._python_dispatch import TorchDispatchMode
from trees import Tree, run_main

from amp_migrate.smoke.harness import policy

Program = str | Tree

TIME_LIMIT = 60.0
"""Seconds that one program may take."""

SCALE_CAP = 2.0**32
"""A scale that doubles every step or two is sent back to its start here, before fp32 overflows."""

MEAN_LOSS_TOLERANCE = 1e-2
FIRST_LOSS_TOLERANCE = 1e-2
LOSS_FLOOR = 1e-2
"""Bounds of the mixed level. Measured over 60 steps, 3 seeds, 4 models and 2 optimizers, correct
fp16 training changes the mean loss by at most 4.5e-4 and the first by 1.3e-4, relative; 1e-2 is the
floor that such small numbers are given. Relative to the mean magnitude of the losses, since some of
them cross zero, and at least to `LOSS_FLOOR`, since others go there."""

# fmt: off
_GEMMS = frozenset({
    "_scaled_dot_product_flash_attention_for_cpu_backward", "addbmm", "addmm", "addmv", "addr",
    "baddbmm", "bmm", "convolution_backward", "dot", "mkldnn_rnn_layer_backward", "mm", "mv",
})
# fmt: on


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
    skipped_steps: int = 0
    """Steps that the harness left out because of the poison."""
    scalers: int = 0
    half_gemms: int = 0
    """Matrix products and convolutions inside backward that ran in fp16: so did their forwards."""
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


def _digest(tensors: list[Any]) -> str:
    total = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        if tensor is None:
            total.update(b"none")
            continue
        plain = tensor.detach()
        if plain.is_sparse:
            plain = plain.to_dense()
        total.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        total.update(plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _leaves(value: Any) -> Iterator[Any]:
    """The tensors and plain values of an optimizer's state dict, in order."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


class _GemmCounter(TorchDispatchMode):
    """Sees operators below autocast and autograd: what really runs, in which dtype."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if self.recorder.in_backward and func.overloadpacket.__name__ in _GEMMS:
            dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor)}
            if torch.float16 in dtypes:
                self.recorder.run.half_gemms += 1
            elif torch.float32 in dtypes:
                self.recorder.run.full_gemms += 1
        return func(*args, **(kwargs or {}))


class _Skipped(Exception):
    """Leaves a step in the middle; ``value`` is what its closure returned."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Recorder:
    """Patches torch, in a process that is about to run one script."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.run = Run(mode)
        self.optimizers: list[Any] = []
        self.modules: list[weakref.ref[Any]] = []
        self.poisoned: set[int] = set()
        self.backwards = 0
        self.in_backward = False

    def patch(self) -> None:
        self._patch_backward()
        self._patch_optimizers()
        self._patch_modules()
        if self.mode.scaler:
            self._patch_scaler()
            self._patch_autocast()

    def finish(self) -> None:
        values: list[Any] = []
        for optimizer in self.optimizers:
            values += [p for group in optimizer.param_groups for p in group["params"]]
            # `state_dict` and not `state`: the latter's keys are the parameters themselves.
            values += _leaves(optimizer.state_dict())
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        others = repr(
            [value for value in values if not isinstance(value, torch.Tensor)]
        )
        self.run.state = (
            _digest(tensors) + hashlib.blake2b(others.encode()).hexdigest()[:16]
        )
        streams = f"{_digest([torch.get_rng_state()])}{random.getstate()}{numpy.random.get_state()}"
        self.run.randomness = hashlib.blake2b(streams.encode()).hexdigest()[:16]

    # What is recorded.

    def _index(self, optimizer: Any) -> int:
        for index, known in enumerate(self.optimizers):
            if known is optimizer:
                return index
        self.optimizers.append(optimizer)
        return len(self.optimizers) - 1

    def _patch_backward(self) -> None:
        inner = torch.autograd.backward

        @functools.wraps(inner)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
            for tensor in several:
                true = getattr(tensor, "_true_loss", None)
                if true is None:
                    self.run.plain_backwards += 1
                    true = tensor
                else:
                    self.run.scaled_backwards += 1
                value = true.detach().flatten()[0].item() if true.numel() else math.nan
                self.run.events.append(Event("loss", -1, _digest([true]), value))
            self.in_backward = True
            try:
                inner(tensors, *args, **kwargs)
            finally:
                self.in_backward = False
            if self.mode.poison is not None and self.mode.poison[0] == self.backwards:
                self._inject(self.mode.poison[1])
            self.backwards += 1

        torch.autograd.backward = backward

    def _inject(self, index: int) -> None:
        for group in self.optimizers[index].param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    with torch.no_grad():
                        parameter.grad[(0,) * parameter.grad.dim()] = math.inf
                    self.poisoned.add(index)
                    return
        raise AssertionError("there is no gradient to poison")

    def _patch_optimizers(self) -> None:
        recorder = self
        base = torch.optim.Optimizer
        inner_init = base.__init__
        inner_zero_grad = base.zero_grad

        def wrap_step(cls: Any) -> None:
            inner_step = cls.step
            if getattr(inner_step, "_recorded", False):
                return

            @functools.wraps(inner_step)
            def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                index = recorder._index(optimizer)
                closure = kwargs.get("closure", args[0] if args else None)
                counts = False

                def with_gradients(value: Any = None) -> Any:
                    nonlocal counts
                    if recorder.mode.skip_poisoned and index in recorder.poisoned:
                        recorder.poisoned.discard(index)
                        recorder.run.skipped_steps += 1
                        raise _Skipped(value)
                    # A step that finds no gradients does nothing, and may as well be left out.
                    counts = any(
                        p.grad is not None
                        for group in optimizer.param_groups
                        for p in group["params"]
                    )
                    return value

                try:
                    if closure is None:
                        with_gradients()
                        result = inner_step(optimizer, *args, **kwargs)
                    else:
                        # The gradients are there when the closure has run.
                        result = inner_step(
                            optimizer, lambda: with_gradients(closure())
                        )
                except _Skipped as skipped:
                    return skipped.value
                if counts:
                    recorder._record_step(index)
                return result

            step._recorded = True  # type: ignore[attr-defined]
            cls.step = step

        @functools.wraps(inner_init)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            inner_init(optimizer, *args, **kwargs)
            recorder._index(optimizer)
            wrap_step(type(optimizer))

        @functools.wraps(inner_zero_grad)
        def zero_grad(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            # The inf goes away with the gradients: a script that looks at the norm and skips.
            recorder.poisoned.discard(recorder._index(optimizer))
            inner_zero_grad(optimizer, *args, **kwargs)

        base.__init__ = init
        base.zero_grad = zero_grad

    def _record_step(self, index: int) -> None:
        groups = self.optimizers[index].param_groups
        tensors = [p for group in groups for p in group["params"]]
        for reference in self.modules:
            module = reference()
            if module is not None:
                # Running statistics: they show a forward that ran once too often.
                tensors += list(module._buffers.values())
        self.run.events.append(Event("step", index, _digest(tensors), 0.0))

    def _patch_modules(self) -> None:
        recorder = self
        inner_init = torch.nn.Module.__init__
        inner_zero_grad = torch.nn.Module.zero_grad

        @functools.wraps(inner_init)
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            inner_init(module, *args, **kwargs)
            recorder.modules.append(weakref.ref(module))

        @functools.wraps(inner_zero_grad)
        def zero_grad(module: Any, *args: Any, **kwargs: Any) -> None:
            recorder.poisoned.clear()
            inner_zero_grad(module, *args, **kwargs)

        torch.nn.Module.__init__ = init  # type: ignore[method-assign]
        torch.nn.Module.zero_grad = zero_grad  # type: ignore[method-assign]

    # What is forced.

    def _patch_scaler(self) -> None:
        recorder = self
        mode = self.mode

        class Scaler(torch.amp.GradScaler):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                # A different power of two for each: gradients must not meet a stranger's scale.
                self._first_scale = mode.init_scale * 2.0 ** (
                    3 * (recorder.run.scalers % 4)
                )
                recorder.run.scalers += 1
                super().__init__(
                    "cpu",
                    init_scale=self._first_scale,
                    growth_interval=mode.growth_interval,
                    enabled=True,
                )

            def scale(self, outputs: Any) -> Any:
                result = super().scale(outputs)
                if isinstance(outputs, torch.Tensor):
                    result._true_loss = outputs.detach().clone()
                return result

            def update(self, new_scale: Any = None) -> None:
                super().update(new_scale)
                if self.get_scale() >= SCALE_CAP:
                    super().update(self._first_scale)

        for module in (torch, torch.amp, torch.amp.grad_scaler, torch.cuda.amp):
            module.GradScaler = Scaler  # type: ignore[attr-defined]

    def _patch_autocast(self) -> None:
        mode = self.mode

        class Autocast(torch.amp.autocast_mode.autocast):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                enabled = kwargs.get("enabled", args[2] if len(args) > 2 else True)
                super().__init__(
                    "cpu", dtype=torch.float16, enabled=mode.autocast and bool(enabled)
                )

        for module in (torch, torch.amp, torch.amp.autocast_mode):
            module.autocast = Autocast  # type: ignore[attr-defined]
        for name in ("custom_fwd", "custom_bwd"):
            decorate = getattr(torch.amp, name)

            def on_the_cpu(
                method: Any = None, *, decorate: Any = decorate, **kwargs: Any
            ) -> Any:
                return decorate(method, **{**kwargs, "device_type": "cpu"})

            for namespace in (torch.amp, torch.cuda.amp):
                setattr(namespace, name, on_the_cpu)
        # Its first parameter is `enabled`, not the device.
        torch.cuda.amp.autocast = lambda enabled=True, *_, **__: Autocast(  # type: ignore[misc,assignment]
            "cuda", enabled=enabled
        )


def _execute(program: Program, name: str, recorder: _Recorder, folder: str) -> None:
    """Run it as it would be run, in an empty folder; a script has no arguments."""
    with contextlib.ExitStack() as stack:
        if recorder.mode.autocast:
            stack.enter_context(_GemmCounter(recorder))
            # Not every processor has recurrent layers in fp16 in oneDNN; what is behind it does.
            torch._C._set_mkldnn_enabled(False)
            policy.apply()
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
    recorder = _Recorder(mode)
    run = recorder.run
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
                    recorder.patch()
                    _execute(program, name, recorder, folder)
                recorder.finish()
            except BaseException as error:
                where = _where(error, name, folder)
                run.error = f"{type(error).__name__}: {error}{where}"
        os.chdir("/")
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
    reference = execute(original, ORIGINAL, name)
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
    reference = execute(original, ORIGINAL, name)
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
    plain = execute(original, ORIGINAL, name)
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
    reference = execute(original, ORIGINAL, name)
    candidate = execute(rewritten, MIXED, name)
    if reference.error or candidate.error:
        return [
            f"{run.mode.name}: {run.error}"
            for run in (reference, candidate)
            if run.error
        ]
    found = _unscaled(candidate, rewritten)
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
