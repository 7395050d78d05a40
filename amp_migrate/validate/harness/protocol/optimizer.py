"""Watches optimizers: steps outside their scaler, and gradients that are zeroed."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ..where import Where
from .autocast import Regions
from .findings import Findings
from .known import Gradient, Known, grad_of, parameters_of


class Optimizers:
    """Hooks every optimizer's step, and patches the two `zero_grad`."""

    def __init__(
        self, known: Known, regions: Regions, findings: Findings, where: Where
    ) -> None:
        self._known = known
        self._regions = regions
        self._findings = findings
        self._where = where

    def patch(self) -> None:
        base: Any = torch.optim.Optimizer
        inner_init = base.__init__

        @functools.wraps(inner_init)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            inner_init(optimizer, *args, **kwargs)
            self._known.meet(optimizer)

        base.__init__ = init

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not self._known.quiet:
                self._regions.check_step(self._where.line(2))
                self._check(optimizer)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            # A closure has made the gradients in the meantime.
            if not self._known.quiet and (args or kwargs):
                self._check(optimizer)

        register_optimizer_step_pre_hook(before)
        register_optimizer_step_post_hook(after)
        self._patch_zero_grad(base, parameters_of)
        self._patch_zero_grad(torch.nn.Module, lambda module: module.parameters())

    def _patch_zero_grad(self, base: Any, parameters: Any) -> None:
        inner = base.zero_grad

        @functools.wraps(inner)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            with self._known.quietly():
                inner(owner, *args, **kwargs)
            self._zeroed(parameters(owner))

        base.zero_grad = zero_grad

    def _zeroed(self, parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            grad = grad_of(parameter)
            if grad is not None:
                self._known.gradients.drop(grad)

    def _check(self, optimizer: Any) -> None:
        """A step outside any scaler."""
        rule: str | None = None
        for parameter in parameters_of(optimizer):
            grad = grad_of(parameter)
            gradient = self._known.gradients.of(grad)
            if gradient is None or not gradient.was_scaled:
                continue
            rule = rule or self._rule(gradient)
            # It is told once, and not again where the step reads them.
            self._known.gradients.drop(grad)
        if rule is not None:
            self._findings.report(rule, self._where.line(3))

    def _rule(self, gradient: Gradient) -> str:
        raw = gradient.is_scaled or gradient.stepped
        state = "ready" if raw else "unscaled"
        return self._findings.broken_with("plain-step", "scaled", state)
