"""Functions that run with a module's forward without being called by name: hooks, and new forwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, unpacked
from amp_migrate.program.link import Program

_REGISTERS = frozenset("""register_forward_hook register_forward_pre_hook
    register_module_forward_hook register_module_forward_pre_hook""".split())
_RUNS = frozenset(("forward", "__call__"))


def attached(
    program: Program, files: Collection[str]
) -> Iterator[tuple[str, ir.Stmt, list[str]]]:
    """(function, statement, what is attached) of each statement that attaches functions to modules.

    Of a lambda, the body stands in the statement itself.
    """
    for function, stmt, values in program.noted(_all_attached):
        if ir.file_of(function) in files:
            found = [name for v in values for name in _meant(program, function, v)]
            yield function, stmt, found


def _all_attached(program: Program) -> list[tuple[str, ir.Stmt, list[ir.Expr]]]:
    found = []
    for function, stmt in program.all_statements():
        values = list(_attached_by(program, function, stmt))
        if values:
            found.append((function, stmt, values))
    return found


def _attached_by(program: Program, function: str, stmt: ir.Stmt) -> Iterator[ir.Expr]:
    for target, value, _ in unpacked(stmt):
        if isinstance(target, ir.Attr) and target.attr in _RUNS and value is not None:
            yield value
    for call in calls_of(stmt):
        origin = program.origin(call.func, function) or ""
        name = ir.method_of(call)
        if _REGISTERS & {name, origin.rpartition(".")[2]}:
            yield from (arg.value for arg in call.args)
        elif origin == "builtins.setattr" and len(call.args) == 3:
            given = call.args[1].value
            if isinstance(given, ir.Const) and given.value in _RUNS:
                yield call.args[2].value


def _meant(program: Program, function: str, value: ir.Expr) -> Iterator[str]:
    """The functions that a value may be, or be made of: ``hook``, ``Hook()``, ``partial(hook, 1)``."""
    for inner in ir.walk(value):
        for ref in program.resolve(inner, function):
            if ref.kind == "function":
                yield ref.name
            elif ref.kind == "instance":
                called = program.method(ref.name, "__call__")
                if called is not None:
                    yield called
