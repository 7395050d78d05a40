"""What is read as something else: ``[o.step() for o in opts]`` as a loop, ``namedtuple()`` as a class, a
lambda with defaults as one that chooses."""

from __future__ import annotations

import ast
import copy

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
            ] or [ast.Pass()]
            made = ast.ClassDef(name, [func], [], body, [])
            for inner in (made, *ast.walk(ast.Module(body, []))):
                if not isinstance(inner, ast.Module):
                    ast.copy_location(inner, node)
            return made
    return None


def read_as_updates(tree: ast.Module) -> None:
    """Let ``for k in ("g", "d"): opts[k] = Adam(nets[k].parameters())`` be `opts.update`, in place, of what
    it puts there under each of the keys, where something takes that out under one that is written.

    Only where nothing tells them apart: the loop's variable is read in loops of its own alone.
    """
    for node in ast.walk(tree):
        for block in ("body", "orelse"):
            stmts = getattr(node, block, None)
            if not isinstance(stmts, list):
                continue
            for index, stmt in enumerate(stmts):
                made = _as_update(stmt, tree) if isinstance(stmt, ast.For) else None
                if made is not None:
                    made.was_loop = True  # type: ignore[attr-defined]
                    stmts[index] = made


def _as_update(loop: ast.For, tree: ast.Module) -> ast.Expr | None:
    match loop:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Tuple(elts=keys) | ast.List(elts=keys),
            body=[
                ast.Assign(
                    targets=[ast.Subscript(value=holder, slice=ast.Name(id=by))],
                    value=ast.Call(func=ast.Name() | ast.Attribute() as func) as value,
                )
            ],
            orelse=[],
        ) if (
            by == name
        ):
            words = {key.value for key in keys if isinstance(key, ast.Constant)}
            inside = [*ast.walk(value)]
            calls = [n for n in inside if isinstance(n, ast.Call) and n is not value]
            dotted = ast.unparse(func)
            said = ast.unparse(holder)
            if (
                len(words) == len(keys) > 0
                and all(isinstance(word, str) for word in words)
                and dotted.replace(".", "").isidentifier()
                and dotted.rpartition(".")[2][:1].isupper()
                and said.replace(".", "").isidentifier()
                and not any(isinstance(n, _SCOPES) for n in inside)
                and not any(
                    isinstance(n, ast.expr) and ast.unparse(n) == said for n in inside
                )
                and any(
                    ast.unparse(call.func).endswith(".parameters") for call in calls
                )
                and all(
                    isinstance(call.func, ast.Attribute)
                    and call.func.attr == "parameters"
                    and not any(isinstance(n, ast.Call) for n in ast.walk(call.func))
                    for call in calls
                )
                and _is_own(name, tree)
                and any(
                    isinstance(n, ast.Subscript)
                    and isinstance(n.slice, ast.Constant)
                    and n.slice.value in words
                    and ast.unparse(n.value).rpartition(".")[2]
                    == said.rpartition(".")[2]
                    for n in ast.walk(tree)
                )
            ):
                values = [_Put(name, key).visit(copy.deepcopy(value)) for key in keys]
                for position, one in enumerate(values):
                    one.col_offset += position  # No two are in one place.
                update = ast.Attribute(holder, "update", ast.Load())
                given: list[ast.expr] = [ast.Dict([*keys], values)]
                made = ast.copy_location(ast.Expr(ast.Call(update, given, [])), loop)
                for inner in (made.value, update, given[0]):
                    ast.copy_location(inner, value)
                return made
    return None


class _Put(ast.NodeTransformer):
    def __init__(self, name: str, key: ast.expr) -> None:
        self.name = name
        self.key = key

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id != self.name:
            return node
        return ast.copy_location(copy.copy(self.key), node)


def _is_own(name: str, tree: ast.Module) -> bool:
    """Whether all that a file says of a variable stands in loops, and comprehensions, that bind it."""
    pending: list[ast.AST] = [tree]
    for node in pending:
        match node:
            case ast.For(target=ast.Name(id=bound)) if bound == name:
                pending += [node.iter, *node.orelse]
            case (
                ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp()
            ) if any(
                isinstance(one.target, ast.Name) and one.target.id == name
                for one in node.generators
            ):
                pass
            case ast.Name(id=said) | ast.arg(arg=said) if said == name:
                return False
            case ast.Global(names=names) | ast.Nonlocal(names=names) if name in names:
                return False
            case ast.alias(name=said, asname=alias) if name in (said, alias):
                return False
            case _:
                pending += ast.iter_child_nodes(node)
    return True


def with_defaults(node: ast.Lambda) -> tuple[tuple[str, ...], ast.expr]:
    """The parameters and the body of a lambda, in which a parameter may be what it is by default:
    ``lambda h, bound=-1e9: h.clamp(bound)`` with ``bound if bound else -1e9``.

    One that is a variable of its own name, ``model=model``, is that variable.
    """
    args = node.args
    params = [*args.posonlyargs, *args.args]
    pairs = [
        *zip(reversed(params), reversed(args.defaults), strict=False),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    by_default = {arg.arg: value for arg, value in pairs if value is not None}
    same = {name for name, value in by_default.items() if ast.unparse(value) == name}
    every = [
        *params,
        *filter(None, (args.vararg,)),
        *args.kwonlyargs,
        *filter(None, (args.kwarg,)),
    ]
    names = tuple(arg.arg for arg in every if arg.arg not in same)
    chosen = {name: value for name, value in by_default.items() if name not in same}
    return names, _Chosen(chosen).visit(node.body) if chosen else node.body


class _Chosen(ast.NodeTransformer):
    def __init__(self, by_default: dict[str, ast.expr]) -> None:
        self.by_default = by_default

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.by_default.get(node.id)
        if value is None or isinstance(node.ctx, ast.Store):
            return node
        return ast.copy_location(ast.IfExp(node, node, value), node)
