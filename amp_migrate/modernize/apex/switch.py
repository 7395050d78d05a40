"""The condition under which a program is under apex.amp, as a scaler's switch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeGuard

from amp_migrate.edit.names.uses import Position
from amp_migrate.modernize.apex.forms import Initialize, Removed, ScaledBackward
from amp_migrate.modernize.apex.level import Level

_PREFIX = re.compile(r"(?:\w+\.)+")


def agree(program: Mapping[str, Removed]) -> tuple[str, str, Position | None] | None:
    """(message, file, place or None) where it is not the same condition that starts apex.amp and uses it."""
    starts = [(file, one) for file, r in program.items() for one in r.initializes]
    scales = [(file, one) for file, r in program.items() for one in r.backwards]
    if not starts:
        file = scales[0][0] if scales else next(iter(program))
        at = scales[0][1].at if scales else None
        return "amp.initialize() is not seen", file, at
    if not scales:
        file, first = starts[0]
        return "amp.scale_loss() is not seen", file, first.at
    levels: dict[tuple[str, str], Level] = {}
    started: set[tuple[str, str, str]] = set()
    for file, start in starts:
        for optimizer in start.optimizers:
            key = (file, start.function, optimizer)
            if key in started and not start.beside_birth:
                return "amp.initialize() is called twice", file, start.at
            started.add(key)
        if levels.setdefault((file, start.function), start.level) != start.level:
            return "amp.initialize() is called with several levels", file, start.at
    file, first = starts[0]
    if len({one.level.off for _, one in starts}) > 1:
        return "amp.initialize() is called with O0 and with others", file, first.at
    flags = {frozenset(_conjuncts(one.flags)) for _, one in starts}
    if len(flags) > 1:
        return "amp.initialize() is called under several conditions", file, first.at
    wanted = flags.pop()
    # What is said of the level, some say again where the loss is scaled.
    level = frozenset(_conjuncts(first.level.enabled))
    for file, one in scales:
        message = _disagreement(one, wanted, level)
        if message:
            return message, file, one.at
    return None


def _disagreement(
    one: ScaledBackward, wanted: frozenset[str], level: frozenset[str]
) -> str:
    around = set(_conjuncts(one.tests))
    if not wanted <= around:
        missing = sorted(wanted - around)[0]
        other = f"only if {sorted(around)[0]}" if around else "always"
        return f"amp.initialize() is called only if {missing}, amp.scale_loss() {other}"
    gone = set(_conjuncts(one.collapsed))
    if not gone <= wanted | level:
        extra = sorted(gone - wanted - level)[0]
        return f"amp.scale_loss() is used only if {extra}, amp.initialize() always"
    return ""


def _conjuncts(tests: tuple[str, ...]) -> Iterator[str]:
    """Conditions that must all hold, without the objects that hold the settings."""
    for test in tests:
        tree = ast.parse(test, mode="eval").body
        parts = tree.values if _is_and(tree) else [tree]
        for part in parts:
            while _is_not(part) and _is_not(part.operand):
                part = part.operand.operand
            if _is_not(part) and isinstance(part.operand, ast.Compare):
                compared = part.operand
                if len(compared.ops) == 1 and isinstance(compared.ops[0], ast.Eq):
                    part = ast.Compare(
                        compared.left, [ast.NotEq()], compared.comparators
                    )
            yield _PREFIX.sub("", ast.unparse(part)).lstrip("_")


def _is_not(tree: ast.expr) -> TypeGuard[ast.UnaryOp]:
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)


def _is_and(tree: ast.expr) -> TypeGuard[ast.BoolOp]:
    return isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)


class Switch:
    """What one call of ``amp.initialize`` asks for."""

    def __init__(
        self, start: Initialize, text: str, program: Mapping[str, str]
    ) -> None:
        """``text``: the file without apex."""
        self._start = start
        self._text = text
        self._program = program

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """What has to hold."""
        return (*self._start.flags, *self._start.level.enabled)

    def expression(self, line: int) -> str | None:
        """The switch behind a line; empty where that is too early, None where it is always on."""
        if not self.conditions:
            return None
        code = " and ".join(
            f"({one})" if len(self.conditions) > 1 and " or " in one else one
            for one in self.conditions
        )
        if not all(self._is_set(name, line) for name in _roots(code)):
            return ""
        return code if self._is_bool(code) else f"bool({code})"

    def _is_set(self, name: str, line: int) -> bool:
        """Whether a variable has the value by a line that it has when apex.amp is started."""
        tree = ast.parse(self._text)
        function = _function(tree, self._start.function)
        if function is None:
            return False
        stored = [
            node.lineno
            for node in _own(function)
            if isinstance(node, ast.Name)
            and node.id == name
            and isinstance(node.ctx, ast.Store)
        ]
        stored += [
            node.lineno
            for node in _own(function)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node) in " ".join(self.conditions)
        ]
        return all(other < line for other in stored)

    def _is_bool(self, code: str) -> bool:
        tree = ast.parse(code, mode="eval").body
        parts = tree.values if isinstance(tree, ast.BoolOp) else [tree]
        return all(map(self._is_bool_part, parts))

    def _is_bool_part(self, part: ast.expr) -> bool:
        if isinstance(part, ast.Compare):
            return True
        if _is_not(part):
            return True
        name = re.escape(ast.unparse(part).rpartition(".")[2].lstrip("_"))
        texts = self._program.values()
        # An option of the command line says itself what it is.
        option = re.compile(
            rf"add_argument\([^()]*['\"]--{name.replace('_', '[-_]')}['\"]([^()]*)"
        )
        options = [said for text in texts for said in option.findall(text)]
        if options:
            return all("store_true" in o or "store_false" in o for o in options)
        set_here = re.compile(rf"\b_?{name}(?:\s*:\s*bool)?\s*=\s*(?:True|False)\b")
        return any(set_here.search(text) for text in texts)


def _roots(code: str) -> set[str]:
    return {
        node.id
        for node in ast.walk(ast.parse(code, mode="eval"))
        if isinstance(node, ast.Name)
    }


def _function(tree: ast.Module, qualname: str) -> ast.AST | None:
    if qualname == "<module>":
        return tree
    current: ast.AST = tree
    for name in qualname.split("."):
        found = [
            node
            for node in _own(current)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and node.name == name
        ]
        if len(found) != 1:
            return None
        current = found[0]
    return current


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a scope, but not what stands in those inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _own(child)
