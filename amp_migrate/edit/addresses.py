"""Where an expression stands in its statement, for edits of that expression alone."""

from __future__ import annotations

from amp_migrate.edit.edits import Steps
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

_SIMPLE = frozenset("assign annassign augassign return expr".split())
_BINARY = frozenset("+ - * / // % ** @ << >> & | ^".split())
_COMPARES = frozenset("== != < <= > >= is not in".split())
_UNARY = frozenset("-x +x ~ not".split())


def steps_to(
    stmt: ir.Stmt, wanted: ir.Expr, in_test: bool = False, each: bool = False
) -> Steps | None:
    """The way from a simple statement's value down to that very expression, if it can be written.

    ``in_test``: also from the test of an ``if`` before which something can stand; what is under a
    condition there is found, too. ``each``: into the elements of comprehensions, whose variables live
    nowhere else, and into lambdas.
    """
    kinds = _SIMPLE
    if in_test and stmt.kind == "if" and not stmt.is_elif:
        kinds = frozenset(("if",))
    if stmt.kind not in kinds or stmt.value is None:
        return None
    return _steps(stmt.value, wanted, kinds is not _SIMPLE, each)


def _steps(expr: ir.Expr, wanted: ir.Expr, in_test: bool, each: bool) -> Steps | None:
    if expr is wanted:
        return ()
    children = ir.children(expr)
    if each and isinstance(expr, ir.Comprehension):
        children = expr.elements
    elif each and isinstance(expr, ir.Deferred):
        pass
    elif not _is_open(expr) and not (in_test and _is_pair(expr)):
        return None
    for index, child in enumerate(children):
        found = _steps(child, wanted, in_test, each)
        if found is not None:
            return (index, *found)
    return None


def _is_pair(expr: ir.Expr) -> bool:
    """``one and other``: three of them are nested where they are edited."""
    return (
        isinstance(expr, ir.Operation)
        and expr.op in ("and", "or")
        and len(expr.operands) == 2
    )


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
