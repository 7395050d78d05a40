"""Whether what the output asks for as a switch has been made by then."""

from __future__ import annotations

from collections.abc import Collection

from amp_migrate.program import ir
from amp_migrate.program.control_flow import ControlFlow
from amp_migrate.program.reader import read_module


def undefined(text: str, switches: Collection[str]) -> str | None:
    """A switch that a statement reads although no way to it makes one; None where there is none."""
    for function in read_module(text).functions.values():
        own = function.bound.intersection(switches)
        own -= function.global_names | function.nonlocal_names
        own -= {param.name for param in function.params}
        if not own:
            continue
        control = ControlFlow(function)
        for stmt in ir.statements(function.body):
            for expr in stmt.exprs:
                read = {
                    inner.id for inner in ir.walk(expr) if isinstance(inner, ir.Name)
                }
                for name in sorted(read & own):
                    if ir.Name(name) in stmt.targets:
                        continue
                    made, _ = control.reaching(name, stmt.path)
                    # Code behind an exit of the program asks for nothing.
                    if not made and control.is_reached(stmt.path):
                        return f"line {stmt.line}: {name} is not defined here"
    return None
