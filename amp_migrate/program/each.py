"""Comprehensions that are loops: ``[opt.step() for opt in opts]`` as a statement."""

from __future__ import annotations

import ast

_METHODS = frozenset({"step", "zero_grad"})
_SCOPES = (
    ast.NamedExpr,
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.DictComp,
)
HIDDEN = "'"
"""In a name: no variable of the function around can have it."""


def steps_each(listed: ast.ListComp) -> bool:
    """Whether a list is made only for what a method does to each of some objects in turn."""
    if len(listed.generators) != 1 or not isinstance(listed.elt, ast.Call):
        return False
    generator, func = listed.generators[0], listed.elt.func
    return (
        not generator.ifs
        and not generator.is_async
        and isinstance(func, ast.Attribute)
        and func.attr in _METHODS
        and not any(
            isinstance(inner, _SCOPES) and inner is not listed
            for inner in ast.walk(listed)
        )
    )


def as_loop(node: ast.Expr, listed: ast.ListComp) -> ast.For:
    """The same as a ``for``, whose variables are those of no function."""
    generator = listed.generators[0]
    bound = {
        inner.id for inner in ast.walk(generator.target) if isinstance(inner, ast.Name)
    }
    for part in (generator.target, listed.elt):
        for inner in ast.walk(part):
            if isinstance(inner, ast.Name) and inner.id in bound:
                inner.id += f"{HIDDEN}{listed.lineno}:{listed.col_offset}"
    line = ast.copy_location(ast.Expr(listed.elt), listed.elt)
    return ast.copy_location(
        ast.For(generator.target, generator.iter, [line], [], None), node
    )
