"""Where an expression stands in its statement, for edits of that expression alone."""

from __future__ import annotations

from amp_migrate.edit.edits import Steps
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

_SIMPLE = frozenset("assign annassign augassign return expr".split())
_BINARY = frozenset("+ - * / // % ** @ << >> & | ^".split())
_COMPARES = frozenset("== != < <= > >= is not in".split())
_UNARY = frozenset("-x +x ~ not".split())


def steps_to(stmt: ir.Stmt, wanted: ir.Expr) -> Steps | None:
    """The way from a simple statement's value down to that very expression, if it can be written."""
    if stmt.kind not in _SIMPLE or stmt.value is None:
        return None
    return _steps(stmt.value, wanted)


def _steps(expr: ir.Expr, wanted: ir.Expr) -> Steps | None:
    if expr is wanted:
        return ()
    if not _is_open(expr):
        return None
    for index, child in enumerate(ir.children(expr)):
        found = _steps(child, wanted)
        if found is not None:
            return (index, *found)
    return None


def _is_open(expr: ir.Expr) -> bool:
    """Whether an edit finds its way into an expression of this kind."""
    match expr:
        case ir.Attr() | ir.Item():
            return True
        case ir.Call(called=called):
            return called is None
        case ir.Display(kind=kind, keys=keys):
            return kind in ("tuple", "list") or (kind == "dict" and None not in keys)
        case ir.Operation(op=op, operands=operands):
            if op == "if":
                return True
            if len(operands) == 1:
                return op in _UNARY
            return len(operands) == 2 and op in _BINARY | _COMPARES
    return False


def occurrence_of(stmt: ir.Stmt, call: ir.Call) -> int:
    """The position of a call among those of the same callee in its statement."""
    same = [
        inner
        for inner in parts_of(stmt)
        if isinstance(inner, ir.Call)
        and (inner.called, inner.func) == (call.called, call.func)
    ]
    same.sort(key=lambda inner: (inner.line, inner.column))
    return next(i for i, inner in enumerate(same) if inner is call)
