"""What of a program changes out of sight of who reads it."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, calls_now
from amp_migrate.program.link import Program

_CHANGING = frozenset(
    "append extend insert pop clear update setdefault remove sort reverse popitem".split()
)


def changed_globals(program: Program) -> Iterator[tuple[str, set[str]]]:
    found: dict[str, set[str]] = {file: set() for file in program.modules}
    for qualname, function in program.functions.items():
        if ir.is_top(qualname):
            continue
        for name in function.global_names:
            found[ir.file_of(qualname)].add(name)
        for stmt in program.statements(qualname):
            roots = [_root(t) for t in stmt.targets if isinstance(t, ir.Item)]
            for call in calls_now(stmt):
                if isinstance(call.func, ir.Attr) and call.func.attr in _CHANGING:
                    if isinstance(call.func.value, ir.Name):
                        roots.append(call.func.value.id)
            for root in roots:
                if root is None:
                    continue
                owner = program.owner(root, qualname)
                if owner is not None and ir.is_top(owner):
                    home = program.elsewhere(ir.Name(root), qualname)
                    if home is None:
                        found[ir.file_of(owner)].add(root)
                    elif isinstance(home[0], ir.Name):
                        found[ir.file_of(home[1])].add(home[0].id)
    yield from found.items()


def set_from_outside(program: Program) -> dict[str, set[str]]:
    """The variables of each file that another assigns to: ``config.width = 5``."""
    found: dict[str, set[str]] = {}
    for owner, name in program.set_from_outside:
        found.setdefault(ir.file_of(owner), set()).add(name)
    return found


def gives_back(function: ir.Function) -> bool:
    if len(function.params) != 1 or function.is_generator or function.is_async:
        return False
    name = function.params[0].name
    returns = 0
    for stmt in ir.statements(function.body):
        if any(bound == name for bound, _, _ in bindings(stmt)):
            return False
        if any(isinstance(t, ir.Attr) and _root(t) == name for t in stmt.targets):
            return False
        if any(_sets(call, name) for call in calls_now(stmt)):
            return False
        if stmt.kind == "return":
            returns += 1
            if stmt.value != ir.Name(name):
                return False
    return returns > 0 and function.body[-1].kind == "return"


def _sets(call: ir.Call, name: str) -> bool:
    """``setattr(name, ...)``."""
    first = call.args[0].value if call.args else None
    return call.func == ir.Name("setattr") and first == ir.Name(name)


def _root(expr: ir.Expr) -> str | None:
    while isinstance(expr, (ir.Item, ir.Attr)):
        expr = expr.value
    return expr.id if isinstance(expr, ir.Name) else None
