"""What the check before writing knows of gradients that are given a scale and lose it again."""

from __future__ import annotations

import ast
from collections.abc import Collection

_BLOCKS = ("body", "orelse", "finalbody")


def without_inner_scale(
    tree: ast.Module, switches: Collection[str], known: Collection[str]
) -> None:
    """Take the scale out of calls of ``torch.autograd.grad`` behind which it is divided out at once, of
    everything that they bind.

    ``known``: the names of the input, none of which may be overwritten.
    """
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "torch.autograd"
        for alias in node.names
        if alias.name == "grad"
    }
    for node in ast.walk(tree):
        for field in _BLOCKS:
            body = getattr(node, field, None)
            if isinstance(body, list):
                _unscale(body, aliases, switches, known)


def _unscale(
    body: list[ast.stmt],
    aliases: Collection[str],
    switches: Collection[str],
    known: Collection[str],
) -> None:
    for position, stmt in enumerate(body):
        call = _called(stmt)
        if call is None or not _is_grad(call.func, aliases):
            continue
        given = [
            *call.args[:1],
            *(k.value for k in call.keywords if k.arg == "outputs"),
        ]
        for scale in given:
            if not (
                isinstance(scale, ast.Call)
                and isinstance(scale.func, ast.Attribute)
                and scale.func.attr == "scale"
                and isinstance(scale.func.value, (ast.Name, ast.Attribute))
                and _last(scale.func.value) in switches
                and len(scale.args) == 1
                and not scale.keywords
            ):
                continue
            assert isinstance(stmt, ast.Assign)
            switch = ast.unparse(scale.func.value)
            behind = body[position + 1 :]
            inverse = _name_of(behind[0]) if behind else ""
            wanted = [
                [f"{inverse} = 1.0 / {switch}.get_scale()"],
                *_divided(stmt, inverse),
            ]
            there = behind[: len(wanted)]
            if (
                inverse
                and inverse not in known
                and len(there) == len(wanted)
                and all(
                    ast.unparse(one) in texts
                    for one, texts in zip(there, wanted, strict=True)
                )
            ):
                _replace(call, scale, scale.args[0])
                del body[position + 1 : position + 1 + len(wanted)]


def _called(stmt: ast.stmt) -> ast.Call | None:
    """The call of ``a = f(x)``, ``a, b = f(x)`` and ``a = f(x)[0]``."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return None
    value = stmt.value
    if isinstance(value, ast.Subscript) and ast.unparse(value.slice) == "0":
        value = value.value
    return value if isinstance(value, ast.Call) else None


def _is_grad(func: ast.expr, aliases: Collection[str]) -> bool:
    if isinstance(func, ast.Attribute):
        return func.attr == "grad"
    return isinstance(func, ast.Name) and func.id in aliases


def _divided(stmt: ast.Assign, inverse: str) -> list[list[str]]:
    """For each name that a statement binds to gradients, the ways to divide the scale out of them."""
    target = stmt.targets[0]
    if isinstance(target, ast.Name) and isinstance(stmt.value, ast.Call):
        name = target.id
        each = [f"{g} * {inverse} for {g} in {name}" for g in ("g", "grad")]
        ways = [f"[{one}]" for one in each] + [f"tuple(({one}))" for one in each]
        return [[f"{name} = {way}" for way in ways]]
    items = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return [[f"{one} = {one} * {inverse}"] for one in map(ast.unparse, items)]


def _name_of(stmt: ast.stmt) -> str:
    if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
        return stmt.targets[0].id
    return ""


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _replace(call: ast.Call, old: ast.expr, new: ast.expr) -> None:
    call.args = [new if arg is old else arg for arg in call.args]
    for keyword in call.keywords:
        if keyword.value is old:
            keyword.value = new
