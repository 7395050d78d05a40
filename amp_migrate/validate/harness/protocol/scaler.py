"""Watches GradScalers: what they scale, and whether unscale_, step and update come in their order."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..where import Line, Where
from .autocast import Regions
from .checkpoint import Checkpoints
from .closure import closure_of
from .findings import Findings
from .known import (
    Gradient,
    Known,
    Scaler,
    grad_of,
    is_zero,
    parameters_of,
    tensors_in,
)

SCALED = "_amp_smoke_scaled"
"""The key under which autograd nodes are marked that multiply by a scale."""


def scaler_class() -> Any:
    """The class of torch itself: what stands in for it, and the older ones, are derived from it."""
    known = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    return next(c for c in reversed(known.__mro__) if c.__name__ == "GradScaler")


class Scalers:
    """Patches the methods of GradScaler."""

    def __init__(
        self,
        known: Known,
        regions: Regions,
        checkpoints: Checkpoints,
        findings: Findings,
        where: Where,
    ) -> None:
        self._known = known
        self._regions = regions
        self._checkpoints = checkpoints
        self._findings = findings
        self._where = where

    def patch(self) -> None:
        base = scaler_class()
        for name, watch in (
            ("__init__", self._watch_init),
            ("scale", self._watch_scale),
            ("unscale_", self._watch_unscale),
            ("step", self._watch_step),
            ("update", self._watch_update),
            ("get_scale", self._watch_get_scale),
            ("load_state_dict", self._watch_load),
        ):
            inner = getattr(base, name)
            setattr(base, name, functools.wraps(inner)(watch(inner)))

    def finish(self) -> None:
        """The script has ended: was the last step of each scaler followed by an update?"""
        if self._known.cut_off:
            return
        for scaler in self._known.scalers.alive():
            record = self._known.scalers.get(scaler)
            if record is not None:
                for optimizer in record.pending.alive():
                    self._findings.report(
                        "missing-update", record.pending.get(optimizer)
                    )

    # --- the methods ------------------------------------------------------------------------

    def _watch_init(self, inner: Any) -> Any:
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            inner(scaler, *args, **kwargs)
            self._record(scaler)

        return init

    def _watch_scale(self, inner: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            result = inner(scaler, outputs)
            record = self._record(scaler)
            if record is not None and result is not outputs:
                self._checkpoints.check_iteration()
                self._scaled(record, result)
            return result

        return scale

    def _watch_unscale(self, inner: Any) -> Any:
        def unscale_(scaler: Any, optimizer: Any) -> Any:
            record = self._record(scaler)
            if record is None or self._known.quiet:
                return inner(scaler, optimizer)
            line = self._where.line(2)
            self._check_unscale(scaler, record, optimizer, line)
            with self._known.quietly():
                result = inner(scaler, optimizer)
            self._unscaled(optimizer, line)
            return result

        return unscale_

    def _watch_step(self, inner: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            record = self._record(scaler)
            if record is None or self._known.quiet:
                return inner(scaler, optimizer, *args, **kwargs)
            line = self._where.line(2)
            self._check_step(scaler, record, optimizer, line)
            if closure_of(args, kwargs) is not None:
                self._findings.report("closure-in-scaler-step", line)
            # By then the line is one of torch's own.
            self._regions.check_step(line)
            with self._known.quietly():
                result = inner(scaler, optimizer, *args, **kwargs)
            if not getattr(optimizer, "_step_supports_amp_scaling", False):
                self._unscaled(optimizer, line)
            for gradient in self._gradients(optimizer):
                gradient.stepped = True
            record.pending.put(optimizer, line)
            self._known.optimizers.put(optimizer, record)
            return result

        return step

    def _watch_update(self, inner: Any) -> Any:
        def update(scaler: Any, new_scale: Any = None) -> Any:
            record = self._record(scaler)
            if record is None:
                return inner(scaler, new_scale)
            line = self._where.line(2)
            if new_scale is None and not any(
                state["found_inf_per_device"]
                for state in scaler._per_optimizer_states.values()
            ):
                self._findings.report(self._findings.broken_by("update", "ready"), line)
            result = inner(scaler, new_scale)
            record.epoch += 1
            record.updated_at = line
            record.pending.clear()
            return result

        return update

    def _watch_get_scale(self, inner: Any) -> Any:
        def get_scale(scaler: Any) -> Any:
            record = self._record(scaler)
            caller = sys._getframe(1).f_code.co_filename
            if record is not None and self._where.is_users(caller):
                record.scale_was_read = True
            return inner(scaler)

        return get_scale

    def _watch_load(self, inner: Any) -> Any:
        def load_state_dict(scaler: Any, state: Any) -> Any:
            record = self._record(scaler)
            if record is not None:
                record.loaded = True
                self._checkpoints.scaler_loaded()
            return inner(scaler, state)

        return load_state_dict

    # --- what they mean ---------------------------------------------------------------------

    def _record(self, scaler: Any) -> Scaler | None:
        """What is known of a scaler; None of one that is not enabled."""
        if not getattr(scaler, "_enabled", False):
            return None
        record = self._known.scalers.get(scaler)
        if record is None:
            record = Scaler(self._where.line(3), self._known.now())
            self._known.scalers.put(scaler, record)
            self._known.any_scaler = True
        return record

    def _scaled(self, record: Scaler, result: Any) -> None:
        if record.first_use is None:
            record.first_use = self._known.now()
        for tensor in tensors_in(result):
            source = (record, record.epoch)
            self._known.scaled.put(tensor, source)
            if tensor.grad_fn is not None:
                tensor.grad_fn.metadata[SCALED] = source
        if self._regions.dtypes == {torch.bfloat16}:
            self._findings.report("scaler-with-bfloat16", self._where.line(3))

    def _gradients(self, optimizer: Any) -> Iterator[Gradient]:
        for parameter in parameters_of(optimizer):
            gradient = self._known.gradients.of(grad_of(parameter))
            if gradient is not None:
                yield gradient

    def _unscaled(self, optimizer: Any, line: Line | None) -> None:
        for gradient in self._gradients(optimizer):
            if not gradient.unscaled:
                gradient.unscaled = True
                gradient.unscaled_at = line
                gradient.mixed = False

    def _stage(self, scaler: Any, optimizer: Any) -> str:
        """Where it stands, as the table of the protocol calls it."""
        state = scaler._per_optimizer_states.get(id(optimizer))
        return "ready" if state is None else str(state["stage"].name).lower()

    def _check_call(
        self, call: str, stage: str, record: Scaler, optimizer: Any, line: Line | None
    ) -> bool:
        """Whether a call may come at this stage; behind another backward, an update is missing."""
        again = any(gradient.is_scaled for gradient in self._gradients(optimizer))
        rule = self._findings.broken_by(call, stage, again and stage == "stepped")
        if rule:
            missing = rule == "missing-update"
            place = record.pending.get(optimizer) if missing else line
            self._findings.report(rule, place)
        return not rule

    def _check_unscale(
        self, scaler: Any, record: Scaler, optimizer: Any, line: Line | None
    ) -> None:
        stage = self._stage(scaler, optimizer)
        if self._check_call("unscale_", stage, record, optimizer, line):
            self._check_gradients(record, optimizer, line)

    def _check_step(
        self, scaler: Any, record: Scaler, optimizer: Any, line: Line | None
    ) -> None:
        stage = self._stage(scaler, optimizer)
        self._check_call("step", stage, record, optimizer, line)
        if stage == "ready":
            self._check_gradients(record, optimizer, line)
        elif any(gradient.mixed for gradient in self._gradients(optimizer)):
            self._report_mixed(optimizer)
        self._known.meet(optimizer)
        before = self._known.optimizers.get(optimizer)
        if (
            before is not None
            and before is not record
            and not record.loaded
            and before.first_use is not None
            and before.first_use < record.birth
        ):
            self._findings.report("scaler-reborn", record.born)

    def _report_mixed(self, optimizer: Any) -> None:
        rule = self._findings.broken_with("backward", "scaled", "unscaled")
        for line in {g.unscaled_at for g in self._gradients(optimizer) if g.mixed}:
            self._findings.report(rule, line)

    def _check_gradients(
        self, record: Scaler, optimizer: Any, line: Line | None
    ) -> None:
        """What a scaler is about to divide by its scale has to be what it scaled by just that."""
        found: set[tuple[str, Line | None]] = set()
        rule = self._findings.broken_with
        again = False
        for parameter in parameters_of(optimizer):
            grad = grad_of(parameter)
            if grad is None:
                continue
            if grad.dtype == torch.float16 and not getattr(
                optimizer, "_step_supports_amp_scaling", False
            ):
                found.add(("half-parameters", line))
            gradient = self._known.gradients.of(grad)
            if gradient is None:
                continue
            if gradient.unscaled:
                again = again or not is_zero(grad)
                continue
            if gradient.mixed:
                mixed = rule("backward", "scaled", "unscaled")
                found.add((mixed, gradient.unscaled_at))
            epochs = {epoch for scaler, epoch in gradient.sources if scaler is record}
            for (scaler, epoch), backward in gradient.sources.items():
                if scaler is None:
                    found.add((rule("step", "plain"), backward))
                elif scaler is not record:
                    found.add((rule("step", "other"), line))
                elif epoch != record.epoch:
                    use = "backward" if len(epochs) > 1 else "step"
                    found.add((rule(use, "stale"), record.updated_at))
        if again and not found:
            found.add((self._findings.broken_by("unscale_", "unscaled"), line))
        for broken, place in sorted(found, key=str):
            self._findings.report(broken, place)
