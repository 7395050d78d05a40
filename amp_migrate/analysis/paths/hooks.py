"""Hooks on gradients: they see them scaled, which only some do not mind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.program import ir
from amp_migrate.program.bindings import each_part
from amp_migrate.program.link import Program

_MULTIPLIES = ("mul", "div")
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
        for expr in stmt.exprs
        for call in ir.calls_in(expr)
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
    """Whether a hook multiplies by a number and does nothing else: ``lambda grad: grad * 0.5``."""
    hook = call.argument(0, "hook")
    if not isinstance(hook, ir.Deferred) or len(hook.params) != 1:
        return False
    gradient = ir.Name(hook.params[0])
    match hook.body:
        case ir.Operation(op="*" | "/", operands=(left, factor)) if left == gradient:
            return _is_number(program, function, factor)
        case ir.Operation(op="*", operands=(factor, right)) if right == gradient:
            return _is_number(program, function, factor)
        case ir.Operation(op="-x", operands=(operand,)):
            return operand == gradient
        case ir.Call(
            func=ir.Attr(value=value, attr=method), args=(ir.Arg(name=None) as arg,)
        ):
            plain = value == gradient and method in _MULTIPLIES
            return plain and _is_number(program, function, arg.value)
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


def _is_number(program: Program, function: str, expr: ir.Expr) -> bool:
    """A number, or a variable that is never anything else."""
    if isinstance(expr, ir.Name):
        owner = program.owner(expr.id, function)
        found = [] if owner is None else program.definitions(owner, expr.id)
        given = () if owner is None else program.functions[owner].params
        return (
            bool(found)
            and not any(param.name == expr.id for param in given)
            and all(
                d.stmt.kind == "assign" and isinstance(d.value, ir.Const) for d in found
            )
        )
    return isinstance(expr, ir.Const) and isinstance(expr.value, (int, float))


def logs_gradients(call: ir.Call) -> bool:
    """Whether ``wandb.watch(model)`` puts hooks on gradients: it does unless it is told otherwise."""
    return call.argument(2, "log") not in (ir.Const("parameters"), ir.Const(None))
