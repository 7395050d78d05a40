"""What is read as another statement: ``[o.step() for o in opts]`` as a loop, ``namedtuple()`` as a class."""

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


def as_class(node: ast.Assign) -> ast.ClassDef | None:
    """``State = namedtuple("State", "net opt")`` as the class that it makes, whose fields are written out."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(
                func=ast.Name(id="namedtuple")
                | ast.Attribute(attr="namedtuple") as func,
                args=[ast.Constant(), names],
                keywords=[],
            ),
        ):
            try:
                fields = ast.literal_eval(names)
            except (TypeError, ValueError):
                return None
            if isinstance(fields, str):
                fields = fields.replace(",", " ").split()
            if not isinstance(fields, (list, tuple)) or not all(
                isinstance(one, str) and one.isidentifier() for one in fields
            ):
                return None
            body: list[ast.stmt] = [
                ast.AnnAssign(ast.Name(one, ast.Store()), ast.Constant(None), None, 1)
                for one in fields
            ]
            made = ast.ClassDef(name, [func], [], body or [ast.Pass()], [])
            for inner in (made, *ast.walk(ast.Module(body, []))):
                if not isinstance(inner, ast.Module):
                    ast.copy_location(inner, node)
            return made
    return None
