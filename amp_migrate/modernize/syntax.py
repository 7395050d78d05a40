"""Small questions about the syntax of code that uses AMP."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from amp_migrate.edit.names.uses import OLD_NAME, Argument

_VERSION_TEST = re.compile(r"(?i)version|torch_?\d|hasattr\(torch")
_NAMES = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})


def chooses_interface(test: ast.expr, branches: Iterable[ast.AST]) -> bool:
    """``torch.amp.GradScaler("cuda") if TORCH_2_4 else torch.cuda.amp.GradScaler()``"""
    if not _VERSION_TEST.search(ast.unparse(test)):
        return False
    old, new = _interfaces(branches)
    return bool(old & new)


def falls_back(stmt: ast.Try) -> bool:
    """``try: torch.amp.GradScaler("cuda")``, and ``except ...: torch.cuda.amp.GradScaler()``"""
    _, new = _interfaces(stmt.body)
    old, _ = _interfaces(stmt.handlers)
    return bool(old & new)


def _interfaces(branches: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that are taken from an older interface, and those from a newer one."""
    named = [
        parts
        for branch in branches
        for node in ast.walk(branch)
        if isinstance(node, ast.Attribute)
        and node.attr in _NAMES
        and (parts := dotted(node))
    ]
    old = {parts[-1] for parts in named if {"cuda", "cpu"} & {*parts}}
    new = {parts[-1] for parts in named if not {"cuda", "cpu"} & {*parts}}
    return old, new


def arguments(call: ast.Call) -> Iterable[Argument]:
    """What a call is given."""
    for arg in call.args:
        starred = isinstance(arg, ast.Starred)
        yield Argument(None, "*" if starred else "", said(arg))
    for keyword in call.keywords:
        star = "**" if keyword.arg is None else ""
        yield Argument(keyword.arg, star, said(keyword.value))


def said(node: ast.expr | None) -> str:
    """A dotted name, or the code of a constant; nothing for all else."""
    if isinstance(node, ast.Constant):
        return repr(node.value)
    return ".".join(dotted(node)) if node is not None else ""


def dotted(node: ast.expr) -> tuple[str, ...]:
    """``a.b.c`` as ("a", "b", "c"); nothing for other expressions, and for targets."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            return ()
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return ()
    return (node.id, *reversed(parts))


def cannot_fail(stmt: ast.stmt) -> bool:
    """Whether a statement only imports AMP from torch, or sets a constant or an alias of torch's AMP."""
    match stmt:
        case ast.Import(names=names):
            return all(a.name == "torch" or _is_there(a.name) for a in names)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            return all(_is_there(f"{module}.{a.name}") for a in names)
        case ast.Assign(targets=[ast.Name()], value=value):
            return isinstance(value, ast.Constant) or _is_there(".".join(dotted(value)))
        case ast.Pass():
            return True
        case _:
            return False


def _is_there(dotted: str) -> bool:
    """Whether an older interface's name is in every torch with which there is a newer one."""
    found = OLD_NAME.match(dotted)
    names = ("", "autocast", "GradScaler", "custom_fwd", "custom_bwd")
    return found is not None and dotted[found.end() + 1 :] in names
