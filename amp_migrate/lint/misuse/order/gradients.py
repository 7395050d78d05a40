"""What a statement does to ``.grad``: reads values, or changes them in a way that a scale spoils."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.tables.degrees import Unclear
from amp_migrate.analysis.values.scales import (
    GRADIENT,
    PLAIN,
    SCALE,
    Mixed,
    Scales,
    without_data,
)
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now, parts_of
from amp_migrate.program.link import Program

_TELLS = frozenset(
    """norm item mean max min std var sum numpy tolist pow square histc append add_scalar
    add_histogram""".split()
)
"""Methods that give values of gradients away, or make numbers of them."""
_CUTS = frozenset(("clamp_", "clamp_min_", "clamp_max_", "clip_", "renorm_"))
_MULTIPLIES = frozenset(("mul_", "div_"))
_FOREACH = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_ANY_SCALE = frozenset("isnan isinf isfinite sign".split())
"""What is the same for gradients of any scale."""


class Gradients:
    """Tells it for one program."""

    def __init__(self, program: Program, scales: Scales) -> None:
        self.program = program
        self.scales = scales

    def touch(self, stmt: ir.Stmt, function: str) -> str:
        """``edit``, ``descend`` (a parameter is changed by them), ``read``, ``rescale`` (it knows of the
        scale), ``zero`` or ``""``."""
        program = self.program
        if "grad" not in program.modules[ir.file_of(function)].identifiers:
            return ""
        if stmt.kind in ("if", "while", "assert", "for"):
            return ""
        mentions = any(_mentions(expr) for expr in stmt.exprs)
        if mentions and any(_word(inner, "scale") for inner in parts_of(stmt)):
            return "rescale"
        if mentions and stmt.kind == "assign" and stmt.value == ir.Const(None):
            return "zero"
        written = self._written(stmt, function)
        if written:
            return written
        if not mentions:
            return ""
        if _edits(stmt, function, program):
            return "edit"
        if stmt.kind == "augassign" and any(_is_grad(t) for t in stmt.targets):
            # p.grad /= scale: a division that is not read may be the unscaling.
            return "rescale" if stmt.op in ("*", "/") else ""
        if any(
            isinstance(call.func, ir.Attr)
            and call.func.attr in _MULTIPLIES
            and _mentions(call.func.value)
            for call in calls_now(stmt)
        ):
            return "rescale"
        return "read" if _reads(stmt, function, program) else ""

    def _written(self, stmt: ir.Stmt, function: str) -> str:
        """What is written, by its power of the scale: gradients have one, parameters none."""
        for target, value in self._writes(stmt, function):
            owner = _owner(value)
            # What has a gradient has none of the scale itself.
            given = {(function, ir.key_of(owner) or ""): PLAIN} if owner else {}
            is_gradient = _holds(target)
            try:
                if not is_gradient and without_data(target) != owner:
                    held = self.scales.of(target, function, stmt)
                    is_gradient = GRADIENT in held.sources
                    if not (
                        is_gradient or self.scales.is_parameter(target, function, stmt)
                    ):
                        continue
                made = self.scales.of(value, function, stmt, given)
            except Mixed as mixed:
                if not mixed.of_gradients:
                    continue
                return "edit" if is_gradient else "descend"
            except Unclear:
                continue
            if SCALE in made.sources:
                return "rescale"
            if GRADIENT in made.sources:
                if is_gradient and made.degree == 0.0:
                    return "edit"
                if not is_gradient and made.is_scaled:
                    return "descend"
        return ""

    def _writes(
        self, stmt: ir.Stmt, function: str
    ) -> Iterator[tuple[ir.Expr, ir.Expr]]:
        """What a statement writes into, and the value that it then has, as an expression."""
        if stmt.value is not None and stmt.kind in ("assign", "augassign"):
            for target in stmt.targets:
                if stmt.kind == "augassign":
                    yield target, ir.Operation(stmt.op, (target, stmt.value))
                elif isinstance(target, ir.Attr) and target.attr in ("grad", "data"):
                    yield target, stmt.value
        for call in calls_now(stmt):
            origin = self.program.origin(call.func, function) or ""
            if isinstance(call.func, ir.Attr) and not origin:
                name, written = call.func.attr, call.func.value
                if name.endswith("_") and not name.endswith("__"):
                    plain = ir.Attr(written, name.rstrip("_"))
                    args = call.args
                    if name == "copy_" and args:
                        yield written, args[0].value
                    else:
                        yield written, ir.Call(plain, args, call.line, call.column)
            elif origin.startswith("torch._foreach_") and origin.endswith("_"):
                if len(call.args) > 1:
                    written, other = call.args[0].value, call.args[1].value
                    op = _FOREACH.get(origin[len("torch._foreach_") : -1])
                    if op is not None:
                        yield written, ir.Operation(op, (written, other))


def _edits(stmt: ir.Stmt, function: str, program: Program) -> bool:
    if stmt.kind == "assign" and any(_is_grad(target) for target in stmt.targets):
        return stmt.value is not None and _is_random(stmt.value, function, program)
    return any(
        isinstance(call.func, ir.Attr)
        and call.func.attr in _CUTS
        and _holds(call.func.value)
        for call in calls_now(stmt)
    )


def _is_random(value: ir.Expr, function: str, program: Program, depth: int = 0) -> bool:
    if _mentions(value):
        return False
    for inner in ir.walk(value):
        if isinstance(inner, ir.Call):
            name = program.origin(inner.func, function) or ""
            if name in ("torch.randn", "torch.randn_like", "torch.normal"):
                return True
        if isinstance(inner, ir.Name) and depth < 2:
            owner = program.owner(inner.id, function)
            found = program.definitions(owner, inner.id) if owner == function else []
            if len(found) == 1 and found[0].value is not None:
                if _is_random(found[0].value, function, program, depth + 1):
                    return True
    return False


def _reads(stmt: ir.Stmt, function: str, program: Program) -> bool:
    if any(map(_averages, calls_now(stmt))):
        return True
    for expr in stmt.exprs:
        names = {
            call.func.attr if isinstance(call.func, ir.Attr) else ir.key_of(call.func)
            for call in ir.calls_in(expr)
        }
        if names & _ANY_SCALE:
            return False
        for call in ir.calls_in(expr):
            if isinstance(call.func, ir.Attr) and call.func.attr in _TELLS:
                given = [arg.value for arg in call.args]
                if any(map(_mentions, (call.func.value, *given))):
                    return True
            origin = program.origin(call.func, function)
            if origin in ("builtins.print", "torch.norm", "torch.linalg.vector_norm"):
                if any(_mentions(arg.value) for arg in call.args):
                    return True
    return False


def _averages(call: ir.Call) -> bool:
    """Whether gradients go into an average that is kept, with those of other scales: ``lerp_(grad, w)``,
    ``mul_(w).add_(grad)``."""
    match call:
        case ir.Call(func=ir.Attr(attr="lerp_")):
            pass
        case ir.Call(
            func=ir.Attr(ir.Call(func=ir.Attr(attr="mul_")), "add_" | "addcmul_")
        ):
            pass
        case _:
            return False
    return any(_mentions(arg.value) for arg in call.args)


def _is_grad(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Attr) and expr.attr == "grad"


def _holds(expr: ir.Expr) -> bool:
    """``p.grad``, ``p.grad.data``, ``p.grad[0]``."""
    while isinstance(expr, ir.Item) or (
        isinstance(expr, ir.Attr) and expr.attr == "data"
    ):
        expr = expr.value
    return _is_grad(expr)


def _owner(expr: ir.Expr) -> ir.Expr | None:
    """The parameter whose gradient an expression holds."""
    for inner in ir.walk(expr):
        if isinstance(inner, ir.Attr) and inner.attr == "grad":
            return inner.value
    return None


def _mentions(expr: ir.Expr) -> bool:
    """Whether values of gradients stand in an expression; to ask if there are any is none."""
    if isinstance(expr, ir.Operation) and expr.op in ("is", "is not"):
        return False
    if isinstance(expr, ir.Attr) and expr.attr in ("shape", "dtype", "device"):
        return False
    if isinstance(expr, ir.Call) and (ir.key_of(expr.func) or "").endswith("_like"):
        return False
    if _is_grad(expr):
        return True
    return any(_mentions(child) for child in ir.children(expr))


def _word(expr: ir.Expr, word: str) -> bool:
    return word in (ir.last_of(expr) or "").lower()
