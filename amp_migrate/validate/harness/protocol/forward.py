"""Watches forwards: layers that stay in float32 though a scaled loss depends on them, and BCE."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..where import Line, Where
from .autocast import Regions
from .findings import Findings
from .known import Known, tensors_in

FULL = "_amp_smoke_full"
"""The key under which autograd nodes are marked that came out of a layer in float32."""

LAYERS = (
    torch.nn.Linear,
    torch.nn.modules.conv._ConvNd,
    torch.nn.RNNBase,
    torch.nn.RNNCellBase,
    torch.nn.MultiheadAttention,
    torch.nn.Bilinear,
)
"""The layers that autocast makes faster: those that multiply matrices."""

MOST_NODES = 100_000
MOST_WALKS = 200
"""No more of a graph, and no more graphs, are searched for marks."""


def _compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    ask = getattr(compiler, "is_compiling", None)
    return bool(ask()) if ask is not None else False


class Forwards:
    """Marks what comes out of layers in float32, and looks for the marks when a loss is scaled."""

    def __init__(
        self,
        known: Known,
        regions: Regions,
        settle: Callable[[], None],
        findings: Findings,
        where: Where,
    ) -> None:
        """``settle`` is called when training goes on after gradients were used."""
        self._known = known
        self._settle = settle
        self._regions = regions
        self._findings = findings
        self._where = where
        self._marked = False
        self._walks = 0

    def patch(self) -> None:
        def after_forward(module: Any, inputs: Any, output: Any) -> None:
            # While a graph is compiled this is all that there is of the hook.
            if not _compiling() and isinstance(module, LAYERS):
                self._settle()
                self._ran(module, output)

        torch.nn.modules.module.register_module_forward_hook(after_forward)
        self._patch_bce()

    def check_scaled(self, roots: list[Any]) -> None:
        """A scaled backward begins at these tensors."""
        if not self._marked or self._walks >= MOST_WALKS:
            return
        self._walks += 1
        nodes = [root.grad_fn for root in roots if root.grad_fn is not None]
        seen = set(nodes)
        found: dict[Line | None, str] = {}
        while nodes and len(seen) < MOST_NODES:
            node = nodes.pop()
            mark = node.metadata.get(FULL)
            if mark is not None:
                found.setdefault(mark[0], mark[1])
            for after, _ in node.next_functions:
                if after is not None and after not in seen:
                    seen.add(after)
                    nodes.append(after)
        for line, detail in found.items():
            self._findings.report("forward-outside-autocast", line, detail)

    def _ran(self, module: Any, output: Any) -> None:
        if not self._known.any_scaler or self._known.running_backward:
            return
        if self._regions.open or not torch.is_grad_enabled():
            return
        mark: tuple[Line | None, str] | None = None
        for tensor in tensors_in(output):
            if tensor.grad_fn is not None and tensor.dtype == torch.float32:
                if mark is None:
                    mark = (self._call(), type(module).__name__)
                tensor.grad_fn.metadata[FULL] = mark
                self._marked = True

    def _call(self) -> Line | None:
        """The line that called the outermost module: that is where a region is missing."""
        line: Line | None = None
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_name == "_call_impl":
                line = None
            elif line is None and self._where.is_users(code.co_filename):
                line = Line(code.co_filename, frame.f_lineno, code.co_name)
            frame = frame.f_back
        return line

    def _patch_bce(self) -> None:
        functional = torch.nn.functional
        inner = functional.binary_cross_entropy

        @functools.wraps(inner)
        def binary_cross_entropy(input: Any, *args: Any, **kwargs: Any) -> Any:
            if not _compiling() and isinstance(input, torch.Tensor):
                if self._regions.on(input.device.type):
                    self._findings.report("bce-in-autocast", self._where.line(2))
            return inner(input, *args, **kwargs)

        functional.binary_cross_entropy = binary_cross_entropy
