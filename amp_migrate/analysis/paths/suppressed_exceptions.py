"""Exceptions that are handled out of sight of the code that raises them: by a ``with``, by a decorator."""

from __future__ import annotations

from amp_migrate.program import ir
from amp_migrate.program.link import Program

_BY_NAME = ("suppress", "raises", "ignored")


def swallows(program: Program, function: str, stmt: ir.Stmt) -> bool:
    """Whether a ``with`` statement may swallow an exception of its body."""
    for expr in stmt.exprs:
        for call in ir.calls_in(expr):
            if (ir.key_of(call.func) or "").rsplit(".", 1)[-1] in _BY_NAME:
                return True
            refs = program.resolve(call.func, function)
            if any(_handles(program, r.name) for r in refs if r.kind == "function"):
                return True
        for inner in ir.walk(expr):
            for ref in program.resolve(inner, function):
                leaves = ref.kind == "instance" and program.method(ref.name, "__exit__")
                if leaves and _may_return_true(program.functions[leaves]):
                    return True
    return False


def is_guarded(program: Program, function: str) -> bool:
    """Whether a decorator of a function may handle its exceptions."""
    scope = program.functions[function]
    for decorator in scope.decorators:
        made = decorator.func if isinstance(decorator, ir.Call) else decorator
        for ref in program.resolve(made, scope.parent or function):
            if ref.kind == "function" and _handles(program, ref.name):
                return True
            if ref.kind in ("class", "instance"):
                called = program.method(ref.name, "__call__")
                if called is not None and _handles(program, called):
                    return True
    return False


def _handles(program: Program, function: str) -> bool:
    """Whether a function, or one that is defined in it, handles exceptions."""
    return function in program.noted(_handling)


def _handling(program: Program) -> frozenset[str]:
    found: set[str] = set()
    for name, scope in program.functions.items():
        if any(
            block.field.startswith("handlers")
            for stmt in ir.statements(scope.body)
            for block in stmt.blocks
        ):
            outer: str | None = name
            while outer is not None:
                found.add(outer)
                outer = program.functions[outer].parent
    return frozenset(found)


def _may_return_true(function: ir.Function) -> bool:
    return any(
        stmt.kind == "return"
        and stmt.value is not None
        and stmt.value not in (ir.Const(None), ir.Const(False))
        for stmt in ir.statements(function.body)
    )
