"""Lists that are filled by ``append`` where everybody sees what is in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

Place = tuple[str, str]
"""What a variable or attribute is known by: its owner and its name."""


@dataclass(frozen=True, slots=True)
class Appended:
    """One call of ``append``."""

    holder: ir.Expr
    call: ir.Call
    definition: Definition
    """What is appended, and where."""
    in_turn: bool = False
    """It is one for each turn of a loop."""


def appended(
    program: Program,
    place_of: Callable[[ir.Expr, str], Place | None],
    definitions: Callable[[ir.Expr, str], list[Definition]],
) -> dict[Place, list[Appended]]:
    """What is appended to each list of which it is certain that it holds that and no more, in order."""
    found: dict[Place, list[Appended]] = {}
    for function, stmt, call in program.calls_named("append"):
        if not isinstance(call.func, ir.Attr):
            continue
        place = place_of(call.func.value, function)
        if place is None:
            continue
        value = call.args[0].value if len(call.args) == 1 else None
        definition = Definition(function, stmt, value)
        found.setdefault(place, []).append(Appended(call.func.value, call, definition))
    certain: dict[Place, list[Appended]] = {}
    for place, calls in found.items():
        if all(_is_certain(program, one, definitions) for one in calls):
            certain[place] = calls
        elif all(_is_filled_here(one, definitions) for one in calls):
            certain[place] = [replace(one, in_turn=True) for one in calls]
    return certain


def _is_filled_here(
    one: Appended, definitions: Callable[[ir.Expr, str], list[Definition]]
) -> bool:
    """Whether a list begins empty in the function that appends to it, be it in a loop."""
    at, stmt = one.definition.function, one.definition.stmt
    begun = definitions(one.holder, at)
    return (
        stmt.kind == "expr"
        and stmt.value is one.call
        and one.definition.value is not None
        and len(begun) == 1
        and _is_empty(begun[0].value)
        and begun[0].function == at
        and _is_behind_or_inside(stmt.path, begun[0].stmt.path)
    )


def _is_certain(
    program: Program,
    one: Appended,
    definitions: Callable[[ir.Expr, str], list[Definition]],
) -> bool:
    """Whether a list begins empty, and gets an element for each optimizer that is made."""
    at, stmt = one.definition.function, one.definition.stmt
    value = one.definition.value
    if stmt.kind != "expr" or stmt.value is not one.call or value is None:
        return False
    begun = definitions(one.holder, at)
    if len(begun) != 1 or not _is_empty(begun[0].value):
        return False
    made = begun[0]
    if made.function != at and not _are_inits(program, made.function, at):
        return False
    if made.function == at:
        beside = len(made.stmt.path) == len(stmt.path)
        if not beside or not _is_behind(stmt.path, made.stmt.path):
            return False
    elif _may_run_again(program, at, stmt):
        return False
    if isinstance(value, ir.Call):
        return True
    known = definitions(value, at) if isinstance(value, (ir.Name, ir.Attr)) else []
    return bool(known) and all(
        d.function == at and d.index is None and _is_behind(stmt.path, d.stmt.path)
        for d in known
    )


def _is_empty(value: ir.Expr | None) -> bool:
    return value == ir.Display("list", ())


def _are_inits(program: Program, one: str, other: str) -> bool:
    """Whether two methods run once for each instance, one after the other."""
    owners = [program.functions[function].class_name for function in (one, other)]
    return all(ir.local_name(f).endswith(".__init__") for f in (one, other)) and (
        owners[0] is not None
        and owners[1] is not None
        and owners[1] in program.family(owners[0])
    )


def _may_run_again(program: Program, function: str, stmt: ir.Stmt) -> bool:
    """Whether a statement may run more often than its function, or in part."""
    return any(
        outer.kind not in ("if", "with")
        for outer in ir.statements(program.functions[function].body)
        if outer.path == stmt.path[: len(outer.path)] and outer.path != stmt.path
    )


def _is_behind(path: ir.Path, earlier: ir.Path) -> bool:
    """Whether a statement stands behind another, or behind one around it, in one block."""
    depth = len(path) - 1
    return (
        len(earlier) > depth
        and path[:-1] == earlier[:depth]
        and path[-1][0] == earlier[depth][0]
        and path[-1][1] > earlier[depth][1]
    )


def _is_behind_or_inside(path: ir.Path, earlier: ir.Path) -> bool:
    """Whether a statement, or one around it, stands behind another in one block."""
    depth = len(earlier) - 1
    return (
        len(path) > depth
        and path[:depth] == earlier[:depth]
        and path[depth][0] == earlier[depth][0]
        and path[depth][1] > earlier[depth][1]
    )
