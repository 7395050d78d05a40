"""Gradients that processes exchange by hand: ``dist.all_reduce(p.grad)``, then a division.

Each process has a scaler of its own, and all of them must skip the same steps. So the infinities have
to be looked for after the exchange, when all processes see the same ones: gradients are exchanged as
they are, scaled. Sums and multiples do not mind the scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

_COLLECTIVE = re.compile(
    r"torch\.distributed\.(distributed_c10d\.)?(all_reduce|reduce|broadcast|all_gather|gather|scatter"
    r"|reduce_scatter|all_to_all|send|recv|isend|irecv)\w*"
    r"|torch\.distributed\.nn\.\w+"
)
_SOUNDS_LIKE_ONE = re.compile(
    r"(?i)((average|avg|sync|synchronize|reduce|gather|share|broadcast)\w*grad|grad\w*_?"
    r"(average|avg|sync|all_?reduce|exchange))"
)
_LINEAR = ("SUM", "AVG")
_MULTIPLIES = ("div_", "mul_", "true_divide_")


class Exchange:
    """Tells which statements of a program exchange gradients."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._communicating: dict[str, bool] = {}
        self._speaking: dict[str, bool] = {}

    def kind(self, stmt: ir.Stmt, function: str) -> str | None:
        """``exchange`` (gradients as they are), ``rescale`` (beside an exchange: a multiple of them, or
        the question whether there are any), ``mixture`` (an exchange in any other form), or None.
        """
        mentions = any(_mentions_gradient(expr) for expr in stmt.exprs)
        collectives = [c for c in calls_of(stmt) if self._is_collective(c, function)]
        if collectives and (mentions or self._speaks_of_gradients(function)):
            call = collectives[0]
            plain = stmt.kind in ("expr", "assign") and self._is_plain(call, function)
            return "exchange" if plain else "mixture"
        if mentions and any(
            self._communicates(callee)
            for call in calls_of(stmt)
            for callee in self.program.callees(call, function)
        ):
            return "mixture"
        if mentions and self._communicates(function):
            return "rescale" if _is_multiple(stmt) or _asks_if_any(stmt) else None
        return None

    def sounds_like_one(self, name: str) -> bool:
        """Whether somebody else's function exchanges gradients, by its name."""
        return bool(_SOUNDS_LIKE_ONE.search(name))

    def _is_collective(self, call: ir.Call, function: str) -> bool:
        origin = self.program.origin(call.func, function) or ""
        return bool(_COLLECTIVE.fullmatch(origin))

    def _is_plain(self, call: ir.Call, function: str) -> bool:
        """``all_reduce(p.grad)``, ``broadcast(p.grad.data, 0)``: a sum, or the same for all."""
        origin = self.program.origin(call.func, function) or ""
        first = call.argument(0, "tensor")
        if not origin.endswith((".all_reduce", ".broadcast")) or not _is_gradient(
            first
        ):
            return False
        operation = call.argument(1, "op") if origin.endswith("reduce") else None
        return operation is None or (
            isinstance(operation, ir.Attr) and operation.attr in _LINEAR
        )

    def _communicates(self, function: str) -> bool:
        """Whether a function, or one that it calls, runs a collective."""
        if function not in self._communicating:
            self._communicating[function] = False
            self._communicating[function] = any(
                self._is_collective(call, function)
                or any(map(self._communicates, self.program.callees(call, function)))
                for call in self._calls(function)
            )
        return self._communicating[function]

    def _speaks_of_gradients(self, function: str) -> bool:
        if function not in self._speaking:
            body = self.program.functions[function].body
            self._speaking[function] = any(
                _mentions_gradient(expr)
                for stmt in ir.statements(body)
                for expr in stmt.exprs
            )
        return self._speaking[function]

    def _calls(self, function: str) -> Iterator[ir.Call]:
        for stmt in ir.statements(self.program.functions[function].body):
            yield from calls_of(stmt)


def _mentions_gradient(expr: ir.Expr) -> bool:
    return any(isinstance(e, ir.Attr) and e.attr == "grad" for e in ir.walk(expr))


def _is_gradient(expr: ir.Expr | None) -> bool:
    """``p.grad`` or ``p.grad.data``."""
    if isinstance(expr, ir.Attr) and expr.attr == "data":
        expr = expr.value
    return isinstance(expr, ir.Attr) and expr.attr == "grad"


def _asks_if_any(stmt: ir.Stmt) -> bool:
    """``if p.grad is not None``."""
    test = stmt.value
    return (
        stmt.kind == "if"
        and isinstance(test, ir.Operation)
        and test.op in ("is", "is not")
        and _is_gradient(test.operands[0])
        and test.operands[1] == ir.Const(None)
    )


def _is_multiple(stmt: ir.Stmt) -> bool:
    """``p.grad /= n``, ``p.grad.data.div_(n)``, ``p.grad = p.grad / n``."""
    value = stmt.value
    if stmt.kind == "augassign":
        factor = value is None or _mentions_gradient(value)
        return stmt.op in "*/" and _is_gradient(stmt.targets[0]) and not factor
    if stmt.kind == "expr" and isinstance(value, ir.Call):
        func = value.func
        return (
            isinstance(func, ir.Attr)
            and func.attr in _MULTIPLIES
            and _is_gradient(func.value)
            and not any(_mentions_gradient(arg.value) for arg in value.args)
        )
    if stmt.kind == "assign" and isinstance(value, ir.Operation) and value.op in "*/":
        if len(stmt.targets) != 1 or len(value.operands) != 2:
            return False
        left, right = value.operands
        return (
            left == stmt.targets[0]
            and _is_gradient(left)
            and not (_mentions_gradient(right))
        )
    return False
