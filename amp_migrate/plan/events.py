"""What each statement does to training: the events that the protocol is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from amp_migrate.facts import ir
from amp_migrate.plan import vocabulary
from amp_migrate.project.link import Program, calls_of
from amp_migrate.project.optimizers import Optimizers, Slot


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a statement does.

    ``kind``: ``backward``, ``step``, ``zero`` (gradients dropped), ``access`` (gradients read or
    edited), ``call`` (of functions of this program that hold events themselves).
    """

    kind: str
    line: int
    column: int
    call: ir.Call | None = field(default=None, compare=False)
    slot: Slot | None = None
    callees: tuple[str, ...] = ()
    model: str = ""
    """For ``zero`` by a module: the key of that module."""


class Events:
    """The events of every statement of a program, computed once."""

    def __init__(self, program: Program, optimizers: Optimizers) -> None:
        self.program = program
        self.optimizers = optimizers
        self._of: dict[tuple[str, ir.Path], tuple[Event, ...]] = {}
        self._kinds: dict[str, frozenset[str]] = {}
        self._direct: dict[str, list[tuple[ir.Stmt, Event]]] = {}
        for qualname, function in program.functions.items():
            self._direct[qualname] = []
            for stmt in ir.statements(function.body):
                found = tuple(self._read(stmt, qualname))
                self._of[qualname, stmt.path] = found
                self._direct[qualname] += [(stmt, event) for event in found]
        self._spread()

    def of(self, function: str, stmt: ir.Stmt) -> tuple[Event, ...]:
        """The events on a statement's own line, in the order in which they happen."""
        return tuple(
            event
            for event in self._of[function, stmt.path]
            if event.kind != "call"
            or any(self._kinds[callee] for callee in event.callees)
        )

    def direct(self, function: str) -> list[tuple[ir.Stmt, Event]]:
        """(statement, event) of one function, callees not looked into."""
        return self._direct[function]

    def kinds(self, function: str) -> frozenset[str]:
        """The kinds of event that a call of the function may bring about."""
        return self._kinds[function]

    def steps_within(
        self, function: str, block: Iterator[ir.Stmt] | tuple[ir.Stmt, ...]
    ) -> set[Slot]:
        """Slots whose optimizers step when the statements run, calls included."""
        found: set[Slot] = set()
        for stmt in ir.statements(tuple(block)):
            for event in self._of[function, stmt.path]:
                if event.kind == "step" and event.slot is not None:
                    found.add(event.slot)
                for callee in event.callees:
                    found |= self._steps[callee]
        return found

    def _spread(self) -> None:
        """Let kinds and stepping slots flow from callees to callers until nothing changes."""
        kinds = {
            q: {e.kind for _, e in d if e.kind != "call"}
            for q, d in self._direct.items()
        }
        steps = {
            q: {e.slot for _, e in d if e.kind == "step" and e.slot is not None}
            for q, d in self._direct.items()
        }
        changed = True
        while changed:
            changed = False
            for qualname, direct in self._direct.items():
                for _, event in direct:
                    for callee in event.callees:
                        if not kinds[callee] <= kinds[qualname]:
                            kinds[qualname] |= kinds[callee]
                            changed = True
                        if not steps[callee] <= steps[qualname]:
                            steps[qualname] |= steps[callee]
                            changed = True
        self._kinds = {q: frozenset(k) for q, k in kinds.items()}
        self._steps: dict[str, set[Slot]] = steps

    # -- reading ------------------------------------------------------------------------------

    def _read(self, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        if stmt.kind in ("functiondef", "classdef"):
            return
        if _zeroes_by_hand(stmt):
            yield Event("zero", stmt.line, stmt.column)
            return
        if _inside_zeroing(self.program.functions[function], stmt):
            return
        if self._touches_gradients(stmt, function):
            yield Event("access", stmt.line, stmt.column)
        for call in calls_of(stmt):
            yield from self._of_call(call, stmt, function)

    def _of_call(self, call: ir.Call, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        program = self.program
        callees = program.callees(call, function)
        if callees:
            yield Event("call", call.line, call.column, call, callees=callees)
            return
        where = (call.line, call.column, call)
        origin = program.origin(call.func, function)
        if origin is not None and vocabulary.GRADIENT_CLIPPERS.fullmatch(origin):
            yield Event("access", *where)
            return
        if not isinstance(call.func, ir.Attr):
            if self._may_touch_gradients(call, function, origin):
                yield Event("access", *where)
            return
        receiver, method = call.func.value, call.func.attr
        if method == "backward":
            yield Event("backward", *where)
        elif method == "step":
            slot = self.optimizers.slot(receiver, function)
            if slot is not None and self._is_optimizer(slot, receiver, function):
                yield Event("step", *where, slot=slot)
            elif slot is None and self.optimizers.looks_like_one(receiver, function):
                name = ir.key_of(receiver) or "?"
                yield Event("step", *where, slot=Slot("unknown", function, name))
        elif method == "zero_grad":
            slot = self.optimizers.slot(receiver, function)
            known = slot is not None and self._is_optimizer(slot, receiver, function)
            model = "" if known else ir.key_of(receiver) or "?"
            yield Event("zero", *where, slot=slot, model=model)
        elif self._may_touch_gradients(call, function, origin):
            yield Event("access", *where)

    def _is_optimizer(self, slot: Slot, receiver: ir.Expr, function: str) -> bool:
        trace = self.optimizers.trace(slot)
        if trace.births:
            return True
        named = any(p.kind in ("closure", "wrapped", "apex") for p in trace.problems)
        return named or self.optimizers.looks_like_one(receiver, function)

    def _touches_gradients(self, stmt: ir.Stmt, function: str) -> bool:
        for expr in (*stmt.exprs, *stmt.targets):
            for inner in ir.walk(expr):
                if (
                    isinstance(inner, ir.Attr)
                    and inner.attr == "grad"
                    and self.program.origin(inner, function) is None
                ):
                    return True
        return False

    def _may_touch_gradients(
        self, call: ir.Call, function: str, origin: str | None
    ) -> bool:
        """Whether somebody else's function is handed what it needs to read or edit gradients."""
        name = (
            call.func.attr
            if isinstance(call.func, ir.Attr)
            else ir.key_of(call.func) or ""
        )
        if name in ("no_grad", "enable_grad", "set_grad_enabled", "inference_mode"):
            return False
        if not vocabulary.GRADIENT_HELPER.search(name):
            return False
        if origin is not None and origin.startswith(("torch.", "numpy.", "builtins.")):
            return False
        return any(self._leads_to_gradients(arg.value, function) for arg in call.args)

    def _leads_to_gradients(self, expr: ir.Expr, function: str) -> bool:
        for inner in ir.walk(expr):
            if isinstance(inner, ir.Attr) and inner.attr in (
                "parameters",
                "named_parameters",
            ):
                return True
            key = ir.key_of(inner)
            if key is not None and vocabulary.MODEL_LIKE.search(key):
                return True
            slot = self.optimizers.slot(inner, function) if key is not None else None
            if slot is not None and self._is_optimizer(slot, inner, function):
                return True
        return False


def _grad_uses(stmt: ir.Stmt) -> Iterator[tuple[str, ir.Stmt]]:
    """How a statement and all inside it use ``.grad``: ``zero``, ``test`` or ``other``."""
    for inner in ir.statements((stmt,)):
        mentions = sum(
            isinstance(e, ir.Attr) and e.attr == "grad"
            for x in inner.exprs
            for e in ir.walk(x)
        )
        if not mentions:
            continue
        if (
            inner.kind == "assign" and inner.value == ir.Const(None) and mentions == 1
        ) or (inner.kind == "expr" and _is_zeroing_call(inner.value)):
            yield "zero", inner
        elif inner.kind == "if" and _is_none_test(inner.value):
            yield "test", inner
        else:
            yield "other", inner


def _is_zeroing_call(expr: ir.Expr | None) -> bool:
    # p.grad.zero_(), p.grad.data.zero_(), p.grad.detach_(), p.grad.detach_().zero_()
    while isinstance(expr, (ir.Call, ir.Attr)):
        if isinstance(expr, ir.Call):
            if expr.args or not isinstance(expr.func, ir.Attr):
                return False
            expr = expr.func
        elif expr.attr == "grad":
            return True
        elif expr.attr in ("zero_", "detach_", "data", "detach", "requires_grad_"):
            expr = expr.value
        else:
            return False
    return False


def _is_none_test(expr: ir.Expr | None) -> bool:
    return (
        isinstance(expr, ir.Operation)
        and expr.op in ("is", "is not")
        and ir.Const(None) in expr.operands
    )


def _zeroes_by_hand(stmt: ir.Stmt) -> bool:
    """A loop over parameters (or a single statement) that does nothing to ``.grad`` but drop it."""
    if stmt.kind not in ("for", "expr", "assign"):
        return False
    uses = [use for use, _ in _grad_uses(stmt)]
    return "zero" in uses and "other" not in uses


def _inside_zeroing(function: ir.Function, stmt: ir.Stmt) -> bool:
    """Whether the statement is part of a loop that `_zeroes_by_hand` has already counted."""
    depth = len(function.path)
    if len(stmt.path) - depth < 2:
        return False
    return any(
        outer.kind == "for"
        and outer.path == stmt.path[: len(outer.path)]
        and _zeroes_by_hand(outer)
        for outer in ir.statements(function.body)
        if len(outer.path) < len(stmt.path)
    )
