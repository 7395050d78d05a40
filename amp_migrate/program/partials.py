"""``run = partial(train, model)`` with ``run(data)``, read as ``train(model, data)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.program.each import HIDDEN

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_RUN = "__name__ == '__main__'"
_Scope = ast.FunctionDef | ast.Module
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


def read_as_calls(tree: ast.Module) -> None:
    """Let the calls of a variable of a function, or of a script, that holds a partial be calls of what it is
    of, in place.

    Only where nothing tells them apart: a function of the file, whose partial is called and nothing else.
    """
    defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    nodes = list(_statements(tree)) if defined else []
    blocks: list[tuple[_Scope, list[ast.stmt]]] = [
        (one, one.body) for one in nodes if isinstance(one, ast.FunctionDef)
    ]
    # Nobody imports what is bound there.
    blocks += [
        (tree, one.body)
        for one in tree.body
        if isinstance(one, ast.If) and ast.unparse(one.test) == _RUN
    ]
    found: list[tuple[_Scope, ast.Assign, str, ast.Call]] = []
    for scope, body in blocks:
        for stmt in body:
            match stmt:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(args=[ast.Name(id=of), *_]) as value,
                ) if (
                    of in defined
                ):
                    found.append((scope, stmt, name, value))
    if not found:
        return
    names = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        for alias in node.names
        if alias.name == "partial"
    }
    bound = list(_bound(tree))
    for scope, stmt, name, made in found:
        first = made.args[0]
        if isinstance(first, ast.Name) and bound.count(first.id) == 1:
            if ast.unparse(made.func) in {*names, "functools.partial"}:
                _read(scope, stmt, name, made)


def _read(scope: _Scope, stmt: ast.Assign, name: str, made: ast.Call) -> None:
    own = list(_own(scope))
    calls = [
        node for node in own if isinstance(node, ast.Call) and _says(node.func, name)
    ]
    if sum(_says(node, name) for node in ast.walk(scope)) != len(calls) + 1:
        return
    parts: list[tuple[str | None, ast.expr]] = [(None, a) for a in made.args[1:]]
    parts += [(keyword.arg or "**", keyword.value) for keyword in made.keywords]
    spread = [k for call in calls for k in call.keywords if made.keywords and not k.arg]
    if spread or any(n == "**" or isinstance(p, ast.Starred) for n, p in parts):
        return
    # What is given is what it was there, whatever becomes of its variable.
    hidden = [ast.Name(f"{name}{HIDDEN}{i}", ast.Store()) for i in range(len(parts))]
    given = [
        part if _stays(part, scope, stmt) else ast.Name(held.id, ast.Load())
        for (_, part), held in zip(parts, hidden, strict=True)
    ]
    left = [i for i, (_, part) in enumerate(parts) if given[i] is not part]
    for call in calls:
        said = {keyword.arg for keyword in call.keywords}
        call.called = name  # type: ignore[attr-defined]
        call.func = made.args[0]
        call.args = [*given[: len(made.args) - 1], *call.args]
        call.keywords += [
            ast.keyword(named, value)
            for (named, _), value in zip(parts, given, strict=True)
            if named is not None and named not in said
        ]
    stmt.targets = [ast.Tuple([hidden[i] for i in left], ast.Store())]
    stmt.value = ast.Tuple([parts[i][1] for i in left], ast.Load())
    ast.fix_missing_locations(stmt)
    for call in calls:
        ast.fix_missing_locations(call)


def _stays(value: ast.expr, scope: _Scope, stmt: ast.stmt) -> bool:
    """Whether an expression says the same wherever a function says it, from a statement on."""
    if not isinstance(value, ast.Name):
        return isinstance(value, ast.Constant)
    later = [
        node
        for node in ast.walk(scope)
        if isinstance(node, (ast.Nonlocal, ast.Global))
        or (getattr(node, "lineno", 0) >= stmt.lineno and node is not stmt)
    ]
    names = {name for node in later for name in _bound(node, inside=False)}
    return value.id not in names and value.id in _bound(scope)


def _says(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, those further out first."""
    pending: list[ast.AST] = [tree]
    for node in pending:
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            pending += getattr(node, name, ())
        yield node


def _own(scope: _Scope) -> Iterator[ast.AST]:
    """All that stands in a function, but for what others in it do."""
    pending: list[ast.AST] = [*scope.body]
    for node in pending:
        yield node
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)


def _bound(tree: ast.AST, inside: bool = True) -> Iterator[str]:
    """The names that are given values, each as often as it is."""
    for node in ast.walk(tree) if inside else (tree,):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.arg(arg=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Nonlocal(names=names) | ast.Global(names=names):
                yield from names
            case ast.alias(name=name, asname=alias):
                yield alias or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)):
                yield name
