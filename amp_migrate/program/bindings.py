"""What one statement binds and calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from amp_migrate.core.effort import spend
from amp_migrate.program import ir

IMPORTS = ("import", "importfrom")


def calls_of(stmt: ir.Stmt) -> Iterator[ir.Call]:
    """The calls on a statement's own line, in the order in which they run; lambdas included last."""
    try:
        found = stmt.known_calls
    except AttributeError:
        found = tuple(ir.all_calls_in(stmt.exprs))
        object.__setattr__(stmt, "known_calls", found)
    spend(1 + len(found))
    return iter(found)


def calls_now(stmt: ir.Stmt) -> Iterator[ir.Call]:
    """The same without those of lambdas, which run whenever these are called."""
    return (call for expr in stmt.exprs for call in ir.calls_in(expr))


def parts_of(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    """Every expression on a statement's own line with everything inside it, outermost first."""
    try:
        found = stmt.known_parts
    except AttributeError:
        found = tuple(inner for expr in stmt.exprs for inner in ir.walk(expr))
        object.__setattr__(stmt, "known_parts", found)
    spend(1 + len(found))
    return found


def each_call(block: tuple[ir.Stmt, ...]) -> Iterator[tuple[ir.Stmt, ir.Call]]:
    """`calls_of` all statements in a block, each call with its statement."""
    return ((stmt, call) for stmt in ir.statements(block) for call in calls_of(stmt))


def each_part(block: tuple[ir.Stmt, ...]) -> Iterator[tuple[ir.Stmt, ir.Expr]]:
    """`parts_of` all statements in a block, each expression with its statement."""
    return ((stmt, part) for stmt in ir.statements(block) for part in parts_of(stmt))


def outcome(
    test: ir.Expr,
    values: Callable[[ir.Expr], Collection[object]],
    told: Callable[[ir.Expr], bool | None],
) -> bool | None:
    """What a test comes to, where it is always the same. ``values``: all that an expression may be, or
    nothing; ``told``: what is known of a part of the test by itself."""
    known = told(test)
    if known is not None:
        return known
    match test:
        case ir.Operation(op="not", operands=(negated,)):
            found = outcome(negated, values, told)
            return None if found is None else not found
        case ir.Operation(op="and" | "or" as op, operands=operands):
            parts = {outcome(one, values, told) for one in operands}
            decides = op == "or"
            if decides in parts:
                return decides
            return None if None in parts else not decides
        case ir.Operation(op="==" | "!=" as op, operands=(left, right)):
            equal = {one == other for one in values(left) for other in values(right)}
            return (equal == {True}) is (op == "==") if len(equal) == 1 else None
        case ir.Operation(op="is" | "is not" as op, operands=(left, ir.Const(None))):
            absent = {one is None for one in values(left)}
            return (absent == {True}) is (op == "is") if len(absent) == 1 else None
        case ir.Name() | ir.Attr():
            truths = set(map(bool, values(test)))
            return truths.pop() if len(truths) == 1 else None
    return None


def unpacked(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr, ir.Expr | None, int | None]]:
    """(target, value, index) for each single target of a statement."""
    whole = stmt.kind in ("assign", "annassign")
    for target in stmt.targets:
        value = stmt.value if whole else None
        yield from _unpacked_target(target, value, None)


def _unpacked_target(
    target: ir.Expr, value: ir.Expr | None, index: int | None
) -> Iterator[tuple[ir.Expr, ir.Expr | None, int | None]]:
    if isinstance(target, ir.Display):
        for position, item in enumerate(target.items):
            if index is not None:
                yield from _unpacked_target(item, None, None)
            elif isinstance(value, ir.Display) and len(value.items) == len(
                target.items
            ):
                yield from _unpacked_target(item, value.items[position], None)
            else:
                yield from _unpacked_target(item, value, position)
    elif isinstance(target, ir.Operation) and target.op == "starred":
        yield from _unpacked_target(target.operands[0], None, None)
    else:
        yield target, value, index


def bindings(stmt: ir.Stmt) -> Iterator[tuple[str, ir.Expr | None, int | None]]:
    """(name, value, index) for each variable that a statement binds; ``del`` gives it no value."""
    if stmt.kind == "delete":
        return
    if stmt.kind in ("functiondef", "classdef"):
        yield stmt.names[0], None, None
    elif stmt.kind in (*IMPORTS, "try", "trystar", "match"):
        for name in stmt.names:
            yield name, None, None
    for target, value, index in unpacked(stmt):
        if isinstance(target, ir.Name):
            yield target.id, value, index
    for inner in parts_of(stmt):
        if isinstance(inner, ir.Walrus) and isinstance(inner.target, ir.Name):
            yield inner.target.id, inner.value, None
