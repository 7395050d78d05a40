"""Hooks on gradients: they see them scaled, which only some do not mind."""

from __future__ import annotations

from amp_migrate.facts import ir
from amp_migrate.project.link import Program

_MULTIPLIES = ("mul", "div")


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
