"""Forward passes that no region of autocast holds: beside a loss that one does, and in validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import all_calls
from amp_migrate.lint.misuse.order.numerics import LAYERS
from amp_migrate.lint.misuse.order.protocol import protocol_of
from amp_migrate.lint.misuse.order.regions import Regions
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, each_part
from amp_migrate.program.link import CallSite

OUTSIDE = "AMP220"
VALIDATED = "AMP221"

_LOSSES = re.compile(
    r"torch\.nn\.functional\.(\w+_loss|cross_entropy|kl_div|binary_cross_entropy_with_logits)"
    r"|torch\.nn\.(modules\.\w+\.)?\w+Loss"
)
_OPENS = frozenset(("region", "enter"))
_METHODS = frozenset(
    "mean sum pow square abs float size view reshape squeeze to cuda long".split()
)
"""Methods of tensors that go with a loss."""
_REDUCES = frozenset(("mean", "sum"))
"""Those that make one."""


_DEEPEST = 3


class _Forward(NamedTuple):
    function: str
    stmt: ir.Stmt
    call: ir.Call


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    protocol = protocol_of(context)
    if not protocol.stepping:
        return
    forwards = context.noted(_Forwards)
    found = ((OUTSIDE, forwards.outside), (VALIDATED, forwards.validated))
    for code, each in found:
        for one in each:
            if ir.file_of(one.function) == file:
                yield context.finding(code, one.function, one.call)


class _Forwards:
    def __init__(self, context: Context) -> None:
        self.protocol = protocol = protocol_of(context)
        self.events = protocol.events
        self.amp = protocol.amp
        self.program = protocol.amp.program
        self.regions = Regions(protocol.amp)
        self.values = self.program.noted(PointsTo)
        self._trained = self._find_trained()
        """What optimizers that scalers step were given the parameters of."""

    def _find_trained(self) -> set[object]:
        found: set[object] = set()
        for function in self.events.read:
            for stmt, call in all_calls(self.program, function):
                if isinstance(call.func, ir.Attr) and call.func.attr == "parameters":
                    key = self.amp.key(call.func.value, function)
                    if any(
                        key in (self.protocol.owners.modules.get(one) or ())
                        for one in self.protocol.stepping
                    ):
                        found |= self._objects(call.func.value, function, stmt)
        return found

    def _objects(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> set[object]:
        if not isinstance(expr, (ir.Name, ir.Attr)):
            return set()
        return {
            (one.kind, one.expr, one.function, one.fields)
            for one in self.values.of(expr, function, stmt)
            if one.kind in ("value", "instance", "lost")
        }

    def _forwards(self, function: str) -> Iterator[_Forward]:
        """The calls of trained models in a function that no region holds, as far as is seen."""
        if self.program.functions[function].is_generator:
            return
        for stmt, call in all_calls(self.program, function):
            found = self._objects(call.func, function, stmt)
            # A region that is off says that fp32 is meant.
            if (
                found
                and found <= self._trained
                and self.regions.around(function, stmt) is None
                and self._is_open(call, function, stmt, ())
            ):
                yield _Forward(function, stmt, call)

    def _is_open(
        self, call: ir.Call, function: str, stmt: ir.Stmt, calls: tuple[CallSite, ...]
    ) -> bool:
        """Whether no region holds a call, nor is opened by what is called."""
        callees = self.program.callees(call, function)
        if any(
            self.events.kinds(one) & _OPENS or self.regions.of(one) for one in callees
        ):
            return False
        return self.regions.open_at(function, stmt, calls) is None

    def _is_model(self, call: ir.Call, function: str, stmt: ir.Stmt) -> bool:
        """Whether a call is that of a model, or of a layer."""
        found = self._objects(call.func, function, stmt)
        if found and found <= self._trained:
            return True
        refs = self.program.resolve(call.func, function)
        return bool(refs) and all(
            (ref.kind == "made" and LAYERS.fullmatch(ref.name))
            or (
                ref.kind == "instance"
                and "torch.nn.Module" in self.program.external_bases(ref.name)
            )
            for ref in refs
        )

    # -- training -----------------------------------------------------------------------------------

    @cached_property
    def outside(self) -> list[_Forward]:
        """Forward passes outside of every region, whose loss is computed inside of one."""
        return list(self._find_outside())

    def _find_outside(self) -> Iterator[_Forward]:
        for function in self.events.read:
            # A region that is off says that fp32 is meant.
            bodies = [
                self._body(function, path)
                for path, region in self.regions.of(function)
                if path and region.enabled is not False
            ]
            if not all(self._is_loss_only(function, body) for body in bodies):
                continue
            used = {
                id(one.expr): one
                for body in bodies
                for stmt, inner in each_part(body)
                if isinstance(inner, ir.Name)
                for one in self.values.of(inner, function, stmt)
            }
            for made in used.values():
                if isinstance(made.expr, ir.Call) and made.stmt is not None:
                    one = _Forward(made.function, made.stmt, made.expr)
                    if (
                        self._is_model(made.expr, made.function, made.stmt)
                        and self._is_open(
                            made.expr, made.function, made.stmt, made.context
                        )
                        and not self.regions.is_without_gradients(*one[:2])
                    ):
                        yield one

    def _body(self, function: str, path: ir.Path) -> tuple[ir.Stmt, ...]:
        stmt = self.program.control(function).statements[path]
        return stmt.blocks[0].body

    def _is_loss_only(
        self, function: str, body: tuple[ir.Stmt, ...], depth: int = 0
    ) -> bool:
        """Whether statements compute a loss, and nothing that a forward pass may hide in."""
        calls = [call for _, call in each_call(body)]
        methods = [
            call.func.attr
            for call in calls
            if isinstance(call.func, ir.Attr) and call.func.attr in _METHODS
        ]
        losses = [self._is_loss(call, function, depth) for call in calls]
        return (any(losses) or not _REDUCES.isdisjoint(methods)) and (
            losses.count(True) + len(methods) == len(calls)
        )

    def _is_loss(self, call: ir.Call, function: str, depth: int) -> bool:
        origin = self.program.origin(call.func, function)
        if origin is not None:
            return _LOSSES.fullmatch(origin) is not None
        callees = self.program.callees(call, function)
        if callees:
            return depth < _DEEPEST and all(
                self._is_loss_only(one, self.program.functions[one].body, depth + 1)
                for one in callees
            )
        refs = self.program.resolve(call.func, function)
        return bool(refs) and all(
            ref.kind == "made" and _LOSSES.fullmatch(ref.name) for ref in refs
        )

    # -- validation ---------------------------------------------------------------------------------

    @cached_property
    def validated(self) -> list[_Forward]:
        """The first forward pass without gradients of each function that validates in fp32 what is
        trained in half precision."""
        return list(self._find_validated())

    def _find_validated(self) -> Iterator[_Forward]:
        if not self._trains_in_regions():
            return
        for function in self.program.functions:
            if self._is_about_torch(function):
                found = (
                    one
                    for one in (*self._forwards(function), *self._called(function))
                    if self.regions.is_without_gradients(*one[:2])
                )
                yield from [one for one, _ in zip(found, range(1), strict=False)]

    def _called(self, function: str) -> Iterator[_Forward]:
        """The calls, outside of every region, of functions that do no more than call a trained model."""
        for stmt, call in all_calls(self.program, function):
            for callee in self.program.callees(call, function):
                body = self.program.functions[callee].body
                made = [(inner, one) for one in body for inner in calls_of(one)]
                if len(body) == 1 and made and not self.regions.of(callee):
                    if self.regions.is_without_gradients(callee, made[0][1]):
                        continue  # It is told there.
                    found = self._objects(made[0][0].func, callee, made[0][1])
                    if found and found <= self._trained:
                        if self._is_open(call, function, stmt, ()):
                            yield _Forward(function, stmt, call)

    def _is_about_torch(self, function: str) -> bool:
        words = self.program.modules[ir.file_of(function)].identifiers
        return not words.isdisjoint(("no_grad", "inference_mode"))

    def _trains_in_regions(self) -> bool:
        return any(
            self.regions.open_at(function, stmt) is not None
            and self._objects(call.func, function, stmt) & self._trained
            for function in self.events.read
            for stmt, call in all_calls(self.program, function)
        )
