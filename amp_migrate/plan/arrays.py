"""What leaves torch for NumPy: bfloat16 raises there, float16 goes on as float16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_migrate.facts import ir
from amp_migrate.plan import dtype_table
from amp_migrate.plan.edits import Island
from amp_migrate.plan.flow import Made
from amp_migrate.plan.forward import Forward
from amp_migrate.plan.loops import Refusal
from amp_migrate.plan.precision import Precision
from amp_migrate.plan.remedies import Remedies, Unclear
from amp_migrate.project.bindings import calls_of

_INTEGERS = frozenset(
    "argmax argmin argsort long int bool nonzero multinomial eq ne lt le gt ge".split()
)
_WITH_PLACES = frozenset("max min topk sort median mode kthvalue".split())
_KEEPS = frozenset(
    "cpu cuda to detach view reshape squeeze unsqueeze flatten clone contiguous t data".split()
)
_LEAVES = ("asarray", "array", "ascontiguousarray")
_DEEPEST = 6


class Arrays:
    """Plans the casts of what becomes an array."""

    def __init__(self, remedies: Remedies, forward: Forward) -> None:
        self.remedies = remedies
        self.program = remedies.program
        islands = {
            (function, edit.path)
            for function, edit in remedies.edits
            if isinstance(edit, Island)
        }
        under = remedies.halves.under_autocast
        self.precision = Precision(self.program, forward, under, islands)

    def refusal(self, functions: Iterable[str]) -> Refusal | None:
        """The first array of some functions that may be made of half values, and cannot be helped."""
        for function in functions:
            for stmt in ir.statements(self.program.functions[function].body):
                if stmt.kind in ("functiondef", "classdef"):
                    continue
                for call in calls_of(stmt):
                    for tensor in self._leaving(call, function):
                        found = self._of(tensor, function, stmt, call.line)
                        if found is not None:
                            return found
        return None

    def _leaving(self, call: ir.Call, function: str) -> Iterator[ir.Expr]:
        func = call.func
        origin = self.program.origin(func, function)
        if origin is None:
            if isinstance(func, ir.Attr) and func.attr == "numpy":
                yield func.value
        elif origin.startswith("numpy.") and origin.rsplit(".", 1)[-1] in _LEAVES:
            yield from (arg.value for arg in call.args[:1] if not arg.star)

    def _of(
        self, tensor: ir.Expr, function: str, stmt: ir.Stmt, line: int
    ) -> Refusal | None:
        at = Made(tensor, function, stmt)
        if not self.precision.may_be_half(tensor, function, stmt):
            return None
        if self.remedies.halves.is_never_half(at) or self._is_integer(at, 0):
            return None
        if self.remedies.dtypes.is_fp32(at):
            try:
                self.remedies.upcast(function, stmt, tensor)
                return None
            except Unclear:
                pass
        message = "an array is made of what may be in half precision"
        return Refusal("AMP020", message, line)

    def _is_integer(self, at: Made, depth: int) -> bool:
        """Whether a value holds integers, such as places of largest elements."""
        if depth > _DEEPEST:
            return False
        match at.expr:
            case ir.Operation(op=op):
                return op in dtype_table.COMPARISONS
            case ir.Attr(value=value, attr=attr) if attr in ("indices", "data"):
                inner = Made(value, at.function, at.stmt)
                return attr == "indices" or self._is_integer(inner, depth + 1)
            case ir.Item(value=ir.Call() as call, key=ir.Const(value=1 | -1)):
                return _last(call) in _WITH_PLACES
            case ir.Item(value=value):
                return self._is_integer(Made(value, at.function, at.stmt), depth + 1)
            case ir.Call(func=func):
                name = _last(at.expr)
                if name in _WITH_PLACES:
                    return at.index == 1
                if name in _INTEGERS:
                    return True
                return (
                    name in _KEEPS
                    and isinstance(func, ir.Attr)
                    and self._is_integer(
                        Made(func.value, at.function, at.stmt), depth + 1
                    )
                )
            case ir.Name() | ir.Attr():
                made = self.remedies.flow.made(at)
                return bool(made) and all(
                    one.expr != at.expr and self._is_integer(one, depth + 1)
                    for one in made or ()
                )
        return False


def _last(call: ir.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ir.Attr)
        else (ir.key_of(call.func) or "")
    )
