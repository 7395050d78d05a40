"""Sees what training does: each loss, each step, and what was left at the end.

Two runs that do the same give the same lines, to the bit: a loss is told with a digest of its
elements, a step with one of all parameters and buffers after it.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .enough import enough
from .protocol.closure import closure_of
from .scaled import mark, true_loss
from .where import Line, Where

BALLAST = 64 << 20
"""Bytes on the GPU of a run that is to use more memory, as far as the script can tell."""


class _SkippedError(Exception):
    """Leaves a step in the middle; ``value`` is what its closure returned."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Injection:
    """An inf among the gradients of one optimizer, after one backward; both are counted from 0.

    With ``skip`` the step that meets it is left out, and nothing else is: what a scaler would do.
    """

    def __init__(self, backward: int, optimizer: int, skip: bool) -> None:
        self.backward = backward
        self.optimizer = optimizer
        self.skip = skip


class Recorder:
    """Patches torch in a process that is about to run one script.

    It says, in the order of events:

    - ``loss``: bits, value, scaled, scale, path, line; one for each root of a backward
    - ``step``: optimizer (counted in order of birth), bits, norm (2-norm of all its gradients), finite,
      lr (of the first group), scale,
      scaled (whether a scaler makes it), memory (peak bytes since the last step; CUDA only), path, line
    - ``region``: path, line, on; once for each line that enters autocast, and for whether it is on
    - ``scaler``: one is made, enabled or not
    - ``skip``: optimizer, scale; a step that a scaler left out, or that met an injected inf
    - ``saved``: bits; what is given to `torch.save`, but for the states of scalers
    - ``end``: state, randomness (digests), how ("steps" or "finished"), cuda (whether it was used)
    """

    def __init__(
        self,
        say: Callable[..., None],
        where: Where,
        *,
        stop_after: int | None = None,
        injection: Injection | None = None,
        perturbation: float = 0.0,
        delay: float = 0.0,
    ) -> None:
        """``perturbation``: relative, what each parameter is changed by when its optimizer is made.

        ``delay``: seconds that are slept after each step; on a GPU, some memory is taken as well.
        """
        self.say = say
        self.where = where
        self.stop_after = stop_after
        self.injection = injection
        self.perturbation = perturbation
        self.delay = delay
        self.scalers: list[Any] = []
        self.in_backward = False
        self._optimizers: list[Any] = []
        self._modules: list[weakref.ref[Any]] = []
        self._poisoned: set[int] = set()
        self._perturbed: set[int] = set()
        self._regions: set[tuple[Line, bool]] = set()
        self._backwards = 0
        self._steps = 0
        self._ended = False
        self._ballast: Any = None
        self._stepping: list[bool] = []
        """For each `GradScaler.step` under way, whether its optimizer really stepped."""

    def patch(self) -> None:
        self._patch_backward()
        self._patch_optimizers()
        self._patch_clip()
        self._patch_modules()
        self._patch_scaler()
        self._patch_autocast()
        self._patch_save()

    def finish(self, how: str = "finished") -> None:
        """Tell what is left; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        values: list[Any] = []
        for optimizer in self._optimizers:
            values += [p for group in optimizer.param_groups for p in group["params"]]
            # `state_dict` and not `state`: the latter's keys are the parameters themselves.
            values += _leaves(optimizer.state_dict())
        # What no optimizer trains: averages of parameters, target networks, copies.
        for module in self._alive():
            values += [*module._parameters.values(), *module._buffers.values()]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        others = [value for value in values if not isinstance(value, torch.Tensor)]
        self.say(
            "end",
            how=how,
            state=digest(tensors) + _digest_text(repr(others)),
            randomness=_randomness(),
            cuda=torch.cuda.is_initialized(),
        )

    # -- what is seen ---------------------------------------------------------------------------

    def _patch_backward(self) -> None:
        inner = torch.autograd.backward

        @functools.wraps(inner)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._ended:
                enough.say()
            for tensor in _listed(tensors):
                self._see_loss(tensor)
            around, self.in_backward = self.in_backward, True
            try:
                inner(tensors, *args, **kwargs)
            finally:
                self.in_backward = around
            wanted = self.injection
            if wanted is not None and wanted.backward == self._backwards:
                self._inject(wanted.optimizer)
            self._backwards += 1

        torch.autograd.backward = backward

    def _see_loss(self, tensor: Any) -> None:
        true = true_loss(tensor) if self.scalers else None
        scaled = true is not None
        true = tensor.detach() if true is None else true
        value = float(true.flatten()[0].item()) if true.numel() else math.nan
        self.say(
            "loss",
            bits=digest([true]),
            value=value,
            scaled=scaled,
            scale=self._scale(),
            **self._here(),
        )

    def _inject(self, index: int) -> None:
        for group in self._optimizers[index].param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    with torch.no_grad():
                        parameter.grad[(0,) * parameter.grad.dim()] = math.inf
                    self._poisoned.add(index)
                    return
        self.say("note", message="no gradient was there to make infinite")

    def _patch_optimizers(self) -> None:
        base = torch.optim.Optimizer
        inner_init = base.__init__
        inner_zero_grad = base.zero_grad

        @functools.wraps(inner_init)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            inner_init(optimizer, *args, **kwargs)
            self._index(optimizer)
            self._perturb(optimizer)
            self._patch_step(type(optimizer))

        @functools.wraps(inner_zero_grad)
        def zero_grad(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            # The inf goes away with the gradients: a script that looks at the norm and skips.
            self._poisoned.discard(self._index(optimizer))
            inner_zero_grad(optimizer, *args, **kwargs)

        base.__init__ = init
        base.zero_grad = zero_grad

    def _patch_clip(self) -> None:
        """One norm over gradients of several optimizers carries an inf to all: none of them steps then."""
        inner = torch.nn.utils.clip_grad_norm_

        @functools.wraps(inner)
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(parameters, torch.Tensor):
                parameters = list(parameters)
            clipped = {id(one) for one in _listed(parameters) if one.grad is not None}
            concerned = {
                index
                for index, optimizer in enumerate(self._optimizers)
                for group in optimizer.param_groups
                if not clipped.isdisjoint(map(id, group["params"]))
            }
            norm = inner(parameters, *args, **kwargs)
            if not concerned.isdisjoint(self._poisoned) and not math.isfinite(norm):
                self._poisoned |= concerned
            return norm

        torch.nn.utils.clip_grad_norm_ = clip
        torch.nn.utils.clip_grad.clip_grad_norm_ = clip

    def _patch_step(self, cls: Any) -> None:
        inner = cls.step
        if getattr(inner, "_amp_smoke", False):
            return

        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._ended:
                enough.say()
            index = self._index(optimizer)
            closure = closure_of(args, kwargs)
            norm: float | None = None

            def with_gradients(value: Any = None) -> Any:
                nonlocal norm
                skips = self.injection is not None and self.injection.skip
                if skips and index in self._poisoned:
                    self._poisoned.discard(index)
                    raise _SkippedError(value)
                norm = _gradient_norm(optimizer)
                return value

            try:
                if closure is None:
                    with_gradients()
                    result = inner(optimizer, *args, **kwargs)
                else:
                    # The gradients are there when the closure has run.
                    result = inner(optimizer, lambda: with_gradients(closure()))
            except _SkippedError as skipped:
                self.say("skip", optimizer=index, scale=self._scale())
                return skipped.value
            if _found_inf(optimizer):
                return result
            if self._stepping:
                self._stepping[-1] = True
            # A step that finds no gradients does nothing, and may as well be left out.
            if norm is not None:
                self._see_step(index, norm)
            return result

        wrapped = functools.wraps(inner)(step)
        vars(wrapped)["_amp_smoke"] = True
        cls.step = wrapped

    def _see_step(self, index: int, norm: float) -> None:
        groups = self._optimizers[index].param_groups
        tensors = [p for group in groups for p in group["params"]]
        for module in self._alive():
            # Running statistics: they show a forward that ran once too often.
            tensors += module._buffers.values()
        self.say(
            "step",
            optimizer=index,
            bits=digest(tensors),
            norm=norm,
            finite=math.isfinite(norm),
            lr=float(groups[0].get("lr", math.nan)),
            scale=self._scale(),
            scaled=bool(self._stepping),
            memory=_peak_memory(),
            **self._here(),
        )
        if self.delay:
            time.sleep(self.delay)
            if torch.cuda.is_initialized() and self._ballast is None:
                self._ballast = torch.empty(BALLAST, dtype=torch.uint8, device="cuda")
        self._steps += 1
        if self.stop_after is not None and self._steps >= self.stop_after:
            self.finish("steps")
            enough.say()

    def _patch_modules(self) -> None:
        inner_init = torch.nn.Module.__init__
        inner_set_state = torch.nn.Module.__setstate__
        inner_zero_grad = torch.nn.Module.zero_grad

        @functools.wraps(inner_init)
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            inner_init(module, *args, **kwargs)
            self._modules.append(weakref.ref(module))

        @functools.wraps(inner_set_state)
        def set_state(module: Any, state: Any) -> None:
            # Of a copy, or one from a file.
            inner_set_state(module, state)
            self._modules.append(weakref.ref(module))

        @functools.wraps(inner_zero_grad)
        def zero_grad(module: Any, *args: Any, **kwargs: Any) -> None:
            self._poisoned.clear()
            inner_zero_grad(module, *args, **kwargs)

        torch.nn.Module.__init__ = init
        torch.nn.Module.__setstate__ = set_state
        torch.nn.Module.zero_grad = zero_grad

    def _patch_scaler(self) -> None:
        base = torch.cuda.amp.GradScaler.__mro__[-2]
        inner_init, inner_scale, inner_step = base.__init__, base.scale, base.step

        @functools.wraps(inner_init)
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            inner_init(scaler, *args, **kwargs)
            self.say("scaler")
            if scaler.is_enabled():
                self.scalers.append(scaler)

        @functools.wraps(inner_scale)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = inner_scale(scaler, outputs)
            if scaler.is_enabled():
                for one, true in zip(_listed(result), _listed(outputs)):
                    mark(one, true, scaler.get_scale())
            return result

        @functools.wraps(inner_step)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._stepping.append(False)
            try:
                return inner_step(scaler, optimizer, *args, **kwargs)
            finally:
                stepped = self._stepping.pop()
                if not stepped and sys.exc_info()[0] is None:
                    self.say(
                        "skip", optimizer=self._index(optimizer), scale=self._scale()
                    )

        base.__init__, base.scale, base.step = init, scale, step

    def _patch_autocast(self) -> None:
        autocast = torch.amp.autocast_mode.autocast
        base = next(c for c in autocast.__mro__[::-1] if "__enter__" in vars(c))
        inner = base.__enter__

        @functools.wraps(inner)
        def enter(region: Any) -> Any:
            line, on = self.where.line(2), bool(region._enabled)
            if line is not None and (line, on) not in self._regions:
                self._regions.add((line, on))
                self.say("region", path=line.path, line=line.number, on=on)
            return inner(region)

        base.__enter__ = enter

    def _patch_save(self) -> None:
        inner = torch.save

        @functools.wraps(inner)
        def save(value: Any, *args: Any, **given: Any) -> Any:
            leaves = [] if _is_of_scaler(value) else list(_saved_leaves(value))
            if leaves:
                tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
                others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
                self.say("saved", bits=digest(tensors) + _digest_text(repr(others)))
            return inner(value, *args, **given)

        torch.save = torch.serialization.save = save

    # -- small questions ------------------------------------------------------------------------

    def _alive(self) -> Iterator[Any]:
        """The modules that there are, in the order of their birth."""
        for reference in self._modules:
            module = reference()
            if module is not None:
                yield module

    def _index(self, optimizer: Any) -> int:
        for index, known in enumerate(self._optimizers):
            if known is optimizer:
                return index
        self._optimizers.append(optimizer)
        return len(self._optimizers) - 1

    def _perturb(self, optimizer: Any) -> None:
        if not self.perturbation:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._perturbed:
                    continue
                self._perturbed.add(id(parameter))
                # A stream of its own: the script's must not notice.
                own = torch.Generator().manual_seed(len(self._perturbed))
                noise = torch.rand(parameter.shape, generator=own) * 2 - 1
                with torch.no_grad():
                    change = 1 + self.perturbation * noise.to(parameter.device)
                    parameter.mul_(change.to(parameter.dtype))

    def _scale(self) -> float | None:
        return float(self.scalers[-1].get_scale()) if self.scalers else None

    def _here(self) -> dict[str, Any]:
        line = self.where.line(2)
        return {} if line is None else {"path": line.path, "line": line.number}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def digest(tensors: list[Any]) -> str:
    """One name for the dtypes, shapes and bits of some tensors; None, and what has no bits, counts too."""
    total = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        if tensor is None or torch.nn.parameter.is_lazy(tensor) or tensor.is_meta:
            total.update(b"none")
            continue
        plain = tensor.detach()
        if plain.is_sparse:
            plain = plain.to_dense()
        total.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        total.update(_bits(plain))
    return total.hexdigest()


def _bits(plain: Any) -> Any:
    flat = plain.cpu().resolve_conj().resolve_neg().contiguous().view(-1)
    try:
        return flat.view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError):  # quantized, or without numpy
        return bytes(flat.untyped_storage().tolist())


def _digest_text(text: str) -> str:
    return hashlib.blake2b(text.encode()).hexdigest()[:16]


def _randomness() -> str:
    streams = [digest([torch.get_rng_state()]), repr(random.getstate())]
    if torch.cuda.is_initialized():
        streams.append(digest(torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        streams.append(repr(numpy.random.get_state()))
    return _digest_text("".join(streams))


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


def _saved_leaves(value: Any) -> Iterator[Any]:
    """The tensors and plain values of what is saved; the state of a scaler, which is new, is left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not _is_of_scaler(item):
                yield str(key)
                yield from _saved_leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _saved_leaves(item)
    elif isinstance(value, torch.nn.Module):
        yield from _saved_leaves(value.state_dict())
    elif isinstance(value, (torch.Tensor, int, float, str, bool, type(None))):
        yield value


def _is_of_scaler(value: Any) -> bool:
    """Whether a value is a scaler's state; that of one that is off is empty."""
    return isinstance(value, dict) and (not value or "growth_factor" in value)


def _gradient_norm(optimizer: Any) -> float | None:
    """The 2-norm of all gradients; None where there is none at all."""
    norms = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None:
                values = gradient.detach()
                if values.is_sparse:
                    values = values.coalesce().values()
                norms.append(float(values.double().norm()))
    if not norms:
        return None
    if not all(map(math.isfinite, norms)):
        return math.nan
    # An optimizer that unscales by itself has its gradients scaled here.
    scale = getattr(optimizer, "grad_scale", None)
    return math.hypot(*norms) / (1.0 if scale is None else float(scale))


def _found_inf(optimizer: Any) -> bool:
    """Whether an optimizer that looks for infs by itself left its step out."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _peak_memory() -> int | None:
    if not torch.cuda.is_initialized():
        return None
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return int(peak)
