"""Tables of embeddings whose weight is multiplied by as well: they are told of where that happens."""

from __future__ import annotations

from amp_migrate.lint.context import Context
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

_MULTIPLY = frozenset({"linear", "matmul", "mm", "bmm", "einsum"})


def tied(context: Context, file: str) -> frozenset[str]:
    """What the layers of a file are bound to whose weight is another layer's too, or is multiplied by."""
    facts = context.program.modules[file]
    return frozenset(
        owner
        for name in (context.functions(file) if "weight" in facts.identifiers else ())
        for stmt in context.program.statements(name)
        for owner in _in_statement(stmt)
    )


def _in_statement(stmt: ir.Stmt) -> set[str]:
    found: set[str] = set()
    if stmt.kind == "assign" and stmt.value is not None:
        owners = [_owner(target) for target in stmt.targets]
        if any(owners) and _owner(stmt.value):
            found |= {owner for owner in (*owners, _owner(stmt.value)) if owner}
    for expr in parts_of(stmt):
        operands: tuple[ir.Expr, ...] = ()
        if isinstance(expr, ir.Operation) and expr.op == "@":
            operands = expr.operands
        elif isinstance(expr, ir.Call):
            called = ir.dotted(expr.func)
            if called and called[-1] in _MULTIPLY:
                operands = tuple(arg.value for arg in expr.args)
        for operand in operands:
            found |= {owner for one in ir.walk(operand) if (owner := _owner(one))}
    return found


def _owner(expr: ir.Expr) -> str:
    """``wte`` of ``self.transformer.wte.weight``."""
    if isinstance(expr, ir.Attr) and expr.attr == "weight":
        return ir.last_of(expr.value) or ""
    return ""
