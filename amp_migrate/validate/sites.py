"""Which places of a rewritten text are there to be run: its autocast regions and scaled backwards."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """Lines of a rewritten text, counted from 1, both ends included."""

    path: str
    """Its real path."""
    first: int
    last: int


def sites(path: str, before: str, after: str) -> list[Site]:
    """The autocast regions and scaled backwards that a rewrite has brought."""
    new = _new_lines(before, after)
    found = []
    for node in ast.walk(ast.parse(after)):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any(_name(item.context_expr) == "autocast" for item in node.items):
                found.append(Site(path, node.lineno, node.body[0].lineno - 1))
        elif isinstance(node, ast.Call) and _name(node) == "backward":
            if any(_name(inner) == "scale" for inner in ast.walk(node)):
                found.append(Site(path, node.lineno, node.end_lineno or node.lineno))
    return [
        Site(site.path, site.first, max(site.first, site.last))
        for site in found
        if site.first in new
    ]


def ran(wanted: Iterable[Site], seen: Iterable[Mapping[str, object]]) -> set[Site]:
    """Those of the places that log lines with ``path`` and ``line`` tell of."""
    lines = {
        (os.path.realpath(str(line["path"])), line["line"])
        for line in seen
        if "path" in line
    }
    return {
        site
        for site in wanted
        if any((site.path, line) in lines for line in range(site.first, site.last + 1))
    }


def _new_lines(before: str, after: str) -> set[int]:
    matcher = difflib.SequenceMatcher(
        None, before.splitlines(), after.splitlines(), autojunk=False
    )
    return {
        number + 1
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag != "equal"
        for number in range(start, end)
    }


def _name(node: ast.AST) -> str:
    """The last name of what is called."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
