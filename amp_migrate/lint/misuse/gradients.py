"""What a statement does to ``.grad``: reads values, or changes them in a way that a scale spoils."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.program import ir
from amp_migrate.program.link import Program

_TELLS = frozenset(
    """norm item mean max min std var sum numpy tolist pow square histc append add_scalar
    add_histogram""".split()
)
"""Methods that give values of gradients away, or make numbers of them."""
_CUTS = frozenset(("clamp_", "clamp_min_", "clamp_max_", "clip_", "renorm_"))
_ADDS = frozenset(("add_", "sub_"))
_ANY_SCALE = frozenset("isnan isinf isfinite sign".split())
"""What is the same for gradients of any scale."""


def touch(stmt: ir.Stmt, function: str, program: Program) -> str:
    """``edit``, ``read``, ``rescale`` (it knows of the scale), ``zero`` or ``""``."""
    if not any(_mentions(expr) for expr in stmt.exprs):
        return ""
    if stmt.kind in ("if", "while", "assert", "for"):
        return ""
    if any(_word(inner, "scale") for expr in stmt.exprs for inner in ir.walk(expr)):
        return "rescale"
    if stmt.kind == "assign" and stmt.value == ir.Const(None):
        return "zero"
    if _edits(stmt, function, program):
        return "edit"
    if stmt.kind == "augassign" and any(_is_grad(t) for t in stmt.targets):
        # p.grad /= scale: a division that is not read may be the unscaling.
        return "rescale" if stmt.op in ("*", "/") else ""
    for expr in stmt.exprs:
        for call in ir.calls_in(expr):
            if isinstance(call.func, ir.Attr) and call.func.attr in ("mul_", "div_"):
                if _mentions(call.func.value):
                    return "rescale"
    return "read" if _reads(stmt, function, program) else ""


def _edits(stmt: ir.Stmt, function: str, program: Program) -> bool:
    if stmt.kind == "assign" and any(_is_grad(target) for target in stmt.targets):
        return stmt.value is not None and _is_random(stmt.value, function, program)
    if stmt.kind == "augassign" and any(_is_grad(target) for target in stmt.targets):
        return (
            stmt.op in ("+", "-")
            and stmt.value is not None
            and _is_of_another_scale(stmt.value, stmt.targets[0], function, program)
        )
    for call in _calls(stmt):
        if not isinstance(call.func, ir.Attr) or not _holds(call.func.value):
            continue
        if call.func.attr in _CUTS:
            return True
        if call.func.attr in _ADDS and call.args:
            return _is_of_another_scale(
                call.args[0].value, call.func.value, function, program
            )
    return False


def _is_of_another_scale(
    value: ir.Expr, target: ir.Expr, function: str, program: Program
) -> bool:
    """Whether what is added to a gradient is noise, or made of the parameter itself."""
    if _mentions(value):
        return False
    if _is_random(value, function, program):
        return True
    owner = _owner(target)
    return owner is not None and any(inner == owner for inner in ir.walk(value))


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


def _calls(stmt: ir.Stmt) -> Iterator[ir.Call]:
    for expr in stmt.exprs:
        yield from ir.calls_in(expr)


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
    text = ""
    if isinstance(expr, ir.Name):
        text = expr.id
    elif isinstance(expr, ir.Attr):
        text = expr.attr
    return word in text.lower()
