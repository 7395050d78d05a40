"""What the names of a text stand for, for its check: found anew, by nothing but Python's scopes.

The check must not share what the plan believes. So it reads less: imports, aliases of torch's own
names, and everything else that hides a name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class _Scope:
    around: _Scope | None
    is_class: bool = False
    is_comprehension: bool = False
    imported: dict[str, set[str]] = field(default_factory=dict)
    aliases: dict[str, list[ast.expr]] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    outer: dict[str, bool] = field(default_factory=dict)
    """Names declared ``global`` (True) or ``nonlocal``."""

    def home(self, name: str) -> _Scope | None:
        """The scope whose variable a name is."""
        current: _Scope | None = self
        while current is not None:
            if current.outer.get(name) and current.around is not None:
                while current.around is not None:
                    current = current.around
                continue
            if name in current.bound and name not in current.outer:
                if current is self or not current.is_class:
                    return current
            current = current.around
        return None


class TorchNames:
    """The dotted names of torch that expressions of one text stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: dict[ast.Name, _Scope] = {}
        self._asked: set[tuple[_Scope, str]] = set()
        self._outside: list[tuple[_Scope, str, str]] = []
        """Imports to a variable of a function around: (scope, name, target)."""
        self._each(ast.iter_child_nodes(tree), _Scope(None))
        for scope, name, target in self._outside:
            home = scope.home(name)
            if home is not None:
                home.imported.setdefault(name, set()).add(target)

    def dotted(self, node: ast.expr) -> str:
        """``torch.cuda.amp.autocast`` for an expression; nothing for what is not torch's."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node not in self._scopes:
            return ""
        found = self._found(node.id, self._scopes[node].home(node.id))
        return ".".join([found, *reversed(parts)]) if found else ""

    def _found(self, name: str, home: _Scope | None) -> str:
        if home is None or (home, name) in self._asked:
            return ""
        self._asked.add((home, name))
        found = {
            *home.imported.get(name, ()),
            *map(self.dotted, home.aliases.get(name, ())),
        }
        self._asked.discard((home, name))
        found = {one for one in found if one.split(".")[0] == "torch"}
        # An older name with a newer one of the same end: that is for a torch without the newer.
        old = {one for one in found if one.startswith(("torch.cuda.", "torch.cpu."))}
        return min(old or found, default="")

    # -- reading ------------------------------------------------------------------------------

    def _node(self, node: ast.AST, scope: _Scope) -> None:
        match node:
            case ast.Name():
                self._scopes[node] = scope
                if not isinstance(node.ctx, ast.Load):
                    self._bind(node.id, scope)
            case ast.Global():
                scope.outer.update(dict.fromkeys(node.names, True))
            case ast.Nonlocal():
                scope.outer.update(dict.fromkeys(node.names, False))
            case ast.Import() | ast.ImportFrom():
                for name, target in _imported(node):
                    if scope.outer.get(name) is False:
                        self._outside.append((scope, name, target))
                    self._bind(name, scope).imported.setdefault(name, set()).add(target)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                self._bind(name, scope)
                self._each(ast.iter_child_nodes(node), scope)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self._bind(name, scope)
                self._each(ast.iter_child_nodes(node), scope)
            case ast.NamedExpr(target=target):
                outside = scope
                while outside.is_comprehension and outside.around is not None:
                    outside = outside.around
                self._node(target, outside)
                self._node(node.value, scope)
            case ast.Assign() | ast.AnnAssign():
                for name, value in _aliases(node):
                    self._bind(name, scope).aliases.setdefault(name, []).append(value)
                self._each(ast.iter_child_nodes(node), scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node, scope)
            case ast.ClassDef():
                self._bind(node.name, scope)
                self._each((*node.decorator_list, *node.bases, *node.keywords), scope)
                self._each(node.body, _Scope(scope, is_class=True))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = _Scope(scope, is_comprehension=True)
                self._node(node.generators[0].iter, scope)
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.comprehension):
                        first = child is node.generators[0]
                        self._node(child.target, inner)
                        self._each(
                            [*([] if first else [child.iter]), *child.ifs], inner
                        )
                    else:
                        self._node(child, inner)
            case _:
                self._each(ast.iter_child_nodes(node), scope)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope
    ) -> None:
        inner = _Scope(scope)
        if not isinstance(node, ast.Lambda):
            self._bind(node.name, scope)
            self._each(node.decorator_list, scope)
            self._each([node.returns] if node.returns else [], scope)
        self._node(node.args, scope)
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                inner.bound.add(arg.arg)
        self._each(node.body if isinstance(node.body, list) else [node.body], inner)

    def _each(self, nodes: Iterable[ast.AST], scope: _Scope) -> None:
        for node in nodes:
            self._node(node, scope)

    def _bind(self, name: str, scope: _Scope) -> _Scope:
        """Where a name is bound that a scope gives a value."""
        while scope.outer.get(name) and scope.around is not None:
            scope = scope.around
        if name not in scope.outer:
            scope.bound.add(name)
        return scope


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            yield alias.asname or alias.name, f"{dots}{node.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            root = alias.name.split(".")[0]
            yield root, root


def _aliases(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, ast.expr]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for one, value in pairs:
            if isinstance(one, ast.Name) and isinstance(
                value, (ast.Name, ast.Attribute)
            ):
                yield one.id, value
