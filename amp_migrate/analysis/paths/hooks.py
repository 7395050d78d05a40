"""Hooks on gradients: they see them scaled, which only some do not mind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.analysis.tables.dtype_table import ARITHMETIC, NUMBERS
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now, each_part, parts_of, unpacked
from amp_migrate.program.link import Program

_MULTIPLIES = ("mul", "div")
_KEEPS_VALUE = ("clone", "neg", "contiguous")
_DEEPEST = 4
_ON_GRADIENTS = frozenset(
    """register_hook register_full_backward_hook register_backward_hook
    register_post_accumulate_grad_hook register_full_backward_pre_hook
    register_multi_grad_hook register_comm_hook register_prehook
    register_module_full_backward_hook register_module_full_backward_pre_hook
    register_module_backward_hook""".split()
)
_TABLES = re.compile(
    r"_(global_)?backward_(pre_)?hooks|_post_accumulate_grad_hooks|_is_full_backward_hook"
)
_BY_NAME = frozenset(
    ("builtins.getattr", "operator.methodcaller", "operator.attrgetter")
)
_LOOKS = re.compile("isnan|isinf|isfinite")
_PART_OF_A_NAME = re.compile(r"(?i)hook|register")


def seen_by(program: Program, function: str, call: ir.Call) -> str | None:
    """What a call registers that sees scaled gradients, and minds."""
    origin = program.origin(call.func, function) or ""
    method = ir.method_of(call)
    if origin == "" and method in _ON_GRADIENTS:
        if linear(program, function, call) or _ignores(program, function, call):
            return None
        return f"{method}() {_does(program, function, call)}"
    if origin.rpartition(".")[2] in _ON_GRADIENTS:
        return f"{origin}() {_does(program, function, call)}"
    if origin in _BY_NAME and any(_may_be_hook(arg.value) for arg in call.args):
        return "a hook that is found by its name may see"
    if origin == "wandb.watch" and logs_gradients(call):
        return "wandb.watch() logs"
    return None


def _does(program: Program, function: str, call: ir.Call) -> str:
    """What the hook that a call registers does to scaled gradients, as far as can be told."""
    for arg in call.args:
        for ref in program.resolve(arg.value, function):
            if ref.kind == "function" and _raises_on_inf(program.functions[ref.name]):
                return "raises on inf or NaN, where a scaler skips the step, in"
    return "sees"


def _raises_on_inf(hook: ir.Function) -> bool:
    """Whether a function raises on its own account, and looks for inf or NaN."""
    statements = list(ir.statements(hook.body))
    return any(stmt.kind in ("raise", "assert") for stmt in statements) and any(
        isinstance(call.func, ir.Attr) and _LOOKS.fullmatch(call.func.attr)
        for stmt in statements
        for call in calls_now(stmt)
    )


def kept(program: Program) -> Iterator[tuple[str, str, int]]:
    """What is taken hold of, without a call, that puts hooks on gradients: where, how, and the line."""
    imported = {
        local
        for function in program.functions.values()
        for local, target in function.imports
        if target.rpartition(".")[2] in _ON_GRADIENTS
    }
    for function, stmt in program.all_statements():
        for expr in stmt.exprs:
            called = {
                id(inner.func) for inner in ir.walk(expr) if isinstance(inner, ir.Call)
            }
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Attr) and _TABLES.fullmatch(inner.attr):
                    yield function, f"a hook in {inner.attr} sees", stmt.line
                registers = (
                    isinstance(inner, ir.Attr) and inner.attr in _ON_GRADIENTS
                ) or (isinstance(inner, ir.Name) and inner.id in imported)
                if registers and id(inner) not in called:
                    yield function, "a hook may see", stmt.line


def _may_be_hook(name: ir.Expr) -> bool:
    """Whether an attribute's name may be that of a function which registers hooks on gradients."""
    if isinstance(name, ir.Const):
        return name.value in _ON_GRADIENTS
    return isinstance(name, ir.Operation) and any(
        isinstance(inner, ir.Const)
        and isinstance(inner.value, str)
        and _PART_OF_A_NAME.search(inner.value) is not None
        for inner in ir.walk(name)
    )


def linear(program: Program, function: str, call: ir.Call) -> bool:
    """Whether a hook multiplies by a number, or clears a part, and does nothing else: ``lambda grad:
    grad * 0.5``, a function that returns such, or ``reverse(rate)``, which returns that function.
    """
    hook = call.argument(0, "hook")
    if isinstance(hook, ir.Deferred):
        return len(hook.params) == 1 and (
            _scales(program, function, hook.body, ir.Name(hook.params[0]))
        )
    found = () if hook is None else program.noted(PointsTo).whole(hook, function)
    return bool(found) and all(
        one.kind == "function" and _returns_scaled(program, one.name) for one in found
    )


def _returns_scaled(program: Program, hook: str) -> bool:
    facts = program.functions[hook]
    match facts.params, facts.body:
        case [param, *others], [*before, ir.Stmt(kind="return", value=value)] if (
            value is not None
        ):
            gradient = ir.Name(param.name)
            return (
                not facts.decorators
                and param.kind == "positional"
                and all(other.default is not None for other in others)
                and all(_clears(program, hook, stmt, gradient) for stmt in before)
                and _scales(program, hook, value, gradient)
            )
    return False


def _clears(program: Program, hook: str, stmt: ir.Stmt, gradient: ir.Name) -> bool:
    """``grad[10:] = 0``, whatever the gradient is, or ``grad = grad.clone()``."""
    match stmt:
        case ir.Stmt(kind="assign", targets=(target,), value=value) if (
            value is not None
        ):
            match target:
                case ir.Item(value=held, key=key):
                    zero = isinstance(value, ir.Const) and value.value == 0
                    return zero and held == gradient and gradient not in ir.walk(key)
            return target == gradient and _scales(program, hook, value, gradient)
    return isinstance(stmt.value, ir.Const)


def _scales(program: Program, function: str, expr: ir.Expr, gradient: ir.Name) -> bool:
    """Whether an expression is a gradient times a number. (A tensor may be of another dtype, in which what
    a hook returns must not be.)"""

    def both(one: ir.Expr, factor: ir.Expr) -> bool:
        return _scales(program, function, one, gradient) and (
            _is_number(program, function, factor)
        )

    match expr:
        case ir.Name():
            return expr == gradient
        case ir.Operation(op="*", operands=(left, right)):
            return both(left, right) or both(right, left)
        case ir.Operation(op="/", operands=(left, factor)):
            return both(left, factor)
        case ir.Operation(op="-x", operands=(value,)):
            return _scales(program, function, value, gradient)
        case ir.Call(func=ir.Attr(value=value, attr=method), args=()):
            same = method in _KEEPS_VALUE
            return same and _scales(program, function, value, gradient)
        case ir.Call(
            func=ir.Attr(value=value, attr=method), args=(ir.Arg(name=None) as arg,)
        ):
            return method in _MULTIPLIES and both(value, arg.value)
    return False


def _ignores(program: Program, function: str, call: ir.Call) -> bool:
    """Whether a hook is a function that neither looks at what it is given, nor gives or calls anything:
    ``def clear(self, *args): self.kept = None``."""
    hook = call.argument(0, "hook")
    refs = () if hook is None else program.resolve(hook, function)
    return bool(refs) and all(
        ref.kind == "function" and _is_blind(program.functions[ref.name])
        for ref in refs
    )


def _is_blind(hook: ir.Function) -> bool:
    given = {param.name for param in hook.params} - {hook.self_name}
    return not hook.is_generator and not any(
        (stmt.kind == "return" and stmt.value != ir.Const(None))
        or isinstance(inner, (ir.Call, ir.Deferred))
        or (isinstance(inner, ir.Name) and inner.id in given)
        or (isinstance(inner, ir.Attr) and inner.attr == "grad")
        for stmt, inner in each_part(hook.body)
    )


def readers(program: Program, function: str, call: ir.Call) -> frozenset[str] | None:
    """The functions that read what a hook does nothing but keep: ``def keep(self, grad): self.last = grad``;
    None where it does more."""
    hook = call.argument(0, "hook")
    refs = () if hook is None else program.resolve(hook, function)
    kept = {_kept_in(program.functions.get(ref.name)) for ref in refs}
    said = any(not kept.isdisjoint(one.strings) for one in program.modules.values())
    if not kept or None in kept or said:
        return None
    return frozenset(
        where
        for name in kept
        for where, stmt in program.mentioning(name or "")
        for one in parts_of(stmt)
        if isinstance(one, ir.Attr) and one.attr == name
        if not any(one is target for target, _, _ in unpacked(stmt))
    )


def _kept_in(hook: ir.Function | None) -> str | None:
    """The attribute that a method gives its argument to, and does nothing else."""
    match None if hook is None else (hook.params, hook.body):
        case [
            [own, given],
            [
                ir.Stmt(
                    kind="assign", targets=(ir.Attr(value=holder, attr=name),)
                ) as stmt
            ],
        ] if (holder, stmt.value) == (ir.Name(own.name), ir.Name(given.name)):
            return name
    return None


def _is_number(program: Program, function: str, expr: ir.Expr, depth: int = 0) -> bool:
    """A number, or what is made of numbers only."""
    match expr:
        case ir.Const(value=value):
            # None cannot be multiplied: such a hook is never run.
            return value is None or isinstance(value, (int, float))
        case ir.Operation(op=op, operands=operands) if op in (*ARITHMETIC, "-x"):
            return all(_is_number(program, function, one, depth) for one in operands)
        case ir.Call(func=func) if program.origin(func, function) is not None:
            return NUMBERS.fullmatch(program.origin(func, function) or "") is not None
        case ir.Name(id=name) if any(
            made.stmt.kind == "augassign" for made in program.defined(name, function)
        ):
            return False
    found = program.noted(PointsTo).whole(expr, function)
    return (
        bool(found)
        and depth < _DEEPEST
        and all(
            not one.fields
            and one.kind == "value"
            and _is_number(program, one.function, one.expr, depth + 1)
            for one in found
        )
    )


def logs_gradients(call: ir.Call) -> bool:
    """Whether ``wandb.watch(model)`` puts hooks on gradients: it does unless it is told otherwise."""
    return call.argument(2, "log") not in (ir.Const("parameters"), ir.Const(None))
