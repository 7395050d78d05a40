"""Text to facts: the scopes, bindings and mentions of one file."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.edit.names.uses import (
    OLD_NAME,
    TOP,
    Binding,
    Mention,
    Position,
    Scope,
    Uses,
)
from amp_migrate.modernize.syntax import (
    arguments,
    cannot_fail,
    chooses_interface,
    dotted,
    falls_back,
    said,
)
from amp_migrate.program.marks import off_marks
from amp_migrate.sources.syntax import parse

_TYPE_TESTS = frozenset({"isinstance", "issubclass"})
_PATCHERS = frozenset({"setattr", "patch", "object"})
"""``setattr(a, ...)``, ``mock.patch("a.b")`` and ``mock.patch.object(a, ...)``."""


def read_uses(text: str, path: str) -> Uses:
    """The facts of a file; raises `SourceError` where it is not valid Python."""
    tree = parse(text, path)
    reader = _Reader(text)
    lines, off = off_marks(text, tree)
    reader.off_lines = lines
    reader.block(tree.body, TOP, ())
    return Uses(
        path,
        tuple(reader.scopes),
        tuple(reader.mentions),
        tuple(reader.stars),
        tuple(reader.strings),
        tuple(reader.tails),
        frozenset(reader.sound),
        frozenset(_exported(tree)),
        off,
        tuple(reader.patches),
        frozenset(reader.autocast_dtypes),
    )


def _exported(tree: ast.Module) -> Iterable[str]:
    for stmt in tree.body:
        if isinstance(stmt, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
                for node in ast.walk(stmt):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield node.value


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.scopes = [Scope(None, False)]
        self.mentions: list[Mention] = []
        self.stars: list[tuple[str, Position]] = []
        self.strings: list[tuple[str, Position]] = []
        self.tails: list[tuple[tuple[str, ...], Position]] = []
        self.sound: set[int] = set()
        self.patches: list[tuple[str, ...]] = []
        self.autocast_dtypes: set[str] = set()
        self.off_lines: frozenset[int] = frozenset()
        self.off = False
        self.shim = False
        self.in_text = False
        """Inside of an f-string: older Pythons do not know where such a name stands."""
        self.tries: tuple[tuple[int, str], ...] = ()
        self.tries_seen = 0

    # -- scopes -------------------------------------------------------------------------------

    def _open(self, parent: int, is_class: bool = False) -> int:
        self.scopes.append(Scope(parent, is_class))
        return len(self.scopes) - 1

    def _at(self, node: ast.AST) -> Position:
        line: int = node.lineno  # type: ignore[attr-defined]
        column: int = node.col_offset  # type: ignore[attr-defined]
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if not text.isascii():
            head = text.encode("utf-8", "surrogatepass")[:column]
            column = len(head.decode("utf-8", "replace"))
        return line, column

    def _bind(self, name: str, scope: int, binding: Binding) -> None:
        declared = self.scopes[scope].outer
        if name not in declared or scope == TOP:
            self._add(name, scope, binding)
        elif declared[name] is not None:
            self._add(name, TOP, binding)
        else:
            # Somewhere around: it counts for every scope that might be meant.
            self._add_around(name, self.scopes[scope].parent, binding)

    def _add(self, name: str, scope: int, binding: Binding) -> None:
        self.scopes[scope].bindings.setdefault(name, []).append(binding)

    def _add_around(self, name: str, scope: int | None, binding: Binding) -> None:
        while scope is not None:
            self._add(name, scope, binding)
            scope = self.scopes[scope].parent

    def _bind_other(self, name: str, scope: int, node: ast.AST) -> None:
        self._bind(name, scope, Binding("other", self._at(node), tries=self.tries))

    # -- statements ---------------------------------------------------------------------------

    def block(
        self, body: Iterable[ast.stmt], scope: int, tries: tuple[tuple[int, str], ...]
    ) -> None:
        statements = list(body)
        for stmt in statements:
            # A declaration counts for the whole scope.
            self._declare(stmt, scope)
        for stmt in statements:
            before, self.tries = (self.off, self.tries), tries
            if self._is_off(stmt):
                self.off = True
            self._statement(stmt, scope)
            self.off, self.tries = before

    def _is_off(self, stmt: ast.stmt) -> bool:
        first = min(
            [stmt.lineno, *(d.lineno for d in getattr(stmt, "decorator_list", ()))]
        )
        return first in self.off_lines or stmt.lineno in self.off_lines

    def _declare(self, stmt: ast.stmt, scope: int) -> None:
        if isinstance(stmt, ast.Global):
            self.scopes[scope].outer.update(dict.fromkeys(stmt.names, TOP))
        elif isinstance(stmt, ast.Nonlocal):
            self.scopes[scope].outer.update(dict.fromkeys(stmt.names, None))
        elif not isinstance(
            stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            for inner in ast.iter_child_nodes(stmt):
                if isinstance(inner, ast.stmt):
                    self._declare(inner, scope)
                elif isinstance(inner, (ast.ExceptHandler, ast.match_case)):
                    for nested in inner.body:
                        self._declare(nested, scope)

    def _statement(self, stmt: ast.stmt, scope: int) -> None:
        match stmt:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._decorators(stmt.decorator_list, scope)
                self._bind_other(stmt.name, scope, stmt)
                inner = self._open(scope)
                self._parameters(stmt.args, scope, inner)
                if stmt.returns is not None:
                    self._expr(stmt.returns, scope, "type")
                self.block(stmt.body, inner, ())
            case ast.ClassDef():
                self._decorators(stmt.decorator_list, scope)
                for base in stmt.bases:
                    self._expr(base, scope, "base")
                for keyword in stmt.keywords:
                    self._expr(keyword.value, scope, "value")
                self._bind_other(stmt.name, scope, stmt)
                self.block(stmt.body, self._open(scope, is_class=True), ())
            case ast.Import():
                for alias in stmt.names:
                    local = alias.asname or alias.name.split(".")[0]
                    target = alias.name if alias.asname else local
                    self._bind(local, scope, self._imported("import", alias, target))
            case ast.ImportFrom():
                origin = "." * stmt.level + (stmt.module or "")
                for alias in stmt.names:
                    if alias.name == "*":
                        self.stars.append((origin, self._at(stmt)))
                        continue
                    dot = "" if origin.endswith(".") else "."
                    target = f"{origin}{dot}{alias.name}"
                    local = alias.asname or alias.name
                    self._bind(local, scope, self._imported("from", alias, target))
            case ast.Assign():
                self._assign(stmt.targets, stmt.value, scope, stmt)
            case ast.AnnAssign():
                self._expr(stmt.annotation, scope, "type")
                if stmt.value is not None:
                    self._assign([stmt.target], stmt.value, scope, stmt)
                else:
                    self._expr(stmt.target, scope, "value")
            case ast.Try():
                self._try(stmt, scope)
            case ast.If() if chooses_interface(stmt.test, (*stmt.body, *stmt.orelse)):
                before, self.shim = self.shim, True
                self._others(stmt, scope)
                self.shim = before
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case _:
                self._others(stmt, scope)

    def _assign(
        self, targets: list[ast.expr], value: ast.expr, scope: int, stmt: ast.stmt
    ) -> None:
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        parts = dotted(value)
        if parts and len(names) == len(targets):
            for name in names:
                made = Binding("alias", self._at(stmt), parts=parts, tries=self.tries)
                self._bind(name, scope, made)
            self._mention(value, scope, "alias", aliases=tuple(names))
            return
        match targets, value:
            case [ast.Tuple(elts=left)], ast.Tuple(elts=right) if len(left) == len(
                right
            ) and not any(isinstance(one, ast.Starred) for one in (*left, *right)):
                for target, one in zip(left, right, strict=True):
                    self._assign([target], one, scope, stmt)
                return
        for expr in (*targets, value):
            self._expr(expr, scope, "value")

    def _others(self, node: ast.AST, scope: int) -> None:
        """Expressions and blocks of a statement, in whatever field they stand."""
        tries = self.tries
        for _, value in ast.iter_fields(node):
            items = value if isinstance(value, list) else [value]
            if items and isinstance(items[0], ast.stmt):
                self.block(items, scope, tries)
                continue
            for item in items:
                if isinstance(item, ast.expr):
                    self._expr(item, scope, "value")
                elif isinstance(item, ast.AST):
                    name = getattr(item, "name", None) or getattr(item, "rest", None)
                    if isinstance(item, ast.pattern) and isinstance(name, str):
                        self._bind_other(name, scope, item)
                    self._others(item, scope)

    def _try(self, stmt: ast.Try, scope: int) -> None:
        self.tries_seen += 1
        number, around = self.tries_seen, self.tries
        if all(map(cannot_fail, stmt.body)):
            self.sound.add(number)
        self.block(stmt.body, scope, (*around, (number, "body")))
        before = self.shim
        self.shim = before or falls_back(stmt)
        for handler in stmt.handlers:
            inner = (*around, (number, "handlers"))
            self.tries = inner
            if handler.name:
                self._bind_other(handler.name, scope, handler)
            if handler.type is not None:
                self._expr(handler.type, scope, "value")
            self.block(handler.body, scope, inner)
        self.shim = before
        self.block(stmt.orelse, scope, (*around, (number, "orelse")))
        self.block(stmt.finalbody, scope, (*around, (number, "finalbody")))

    def _imported(self, kind: str, alias: ast.alias, target: str) -> Binding:
        whole = alias.name if kind == "import" and not alias.asname else ""
        return Binding(kind, self._at(alias), target, tries=self.tries, module=whole)

    def _decorators(self, decorators: Iterable[ast.expr], scope: int) -> None:
        for decorator in decorators:
            self._expr(decorator, scope, "decorator")

    def _parameters(self, args: ast.arguments, scope: int, inner: int) -> None:
        for default in (*args.defaults, *args.kw_defaults):
            if default is not None:
                self._expr(default, scope, "value")
        named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        for arg in (*named, args.vararg, args.kwarg):
            if arg is not None:
                self._bind_other(arg.arg, inner, arg)
                if arg.annotation is not None:
                    self._expr(arg.annotation, scope, "type")

    # -- expressions --------------------------------------------------------------------------

    def _expr(self, node: ast.expr, scope: int, role: str) -> None:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            target = scope
            self._bind_other(node.id, target, node)
            return
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self.patches.append(dotted(node.value))
        if dotted(node):
            self._mention(node, scope, role)
            return
        match node:
            case ast.Call():
                self._call(node, scope)
            case ast.Lambda():
                inner = self._open(scope)
                self._parameters(node.args, scope, inner)
                self._expr(node.body, inner, "value")
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = self._open(scope)
                for index, generator in enumerate(node.generators):
                    self._expr(generator.iter, inner if index else scope, "value")
                    self._expr(generator.target, inner, "value")
                    for test in generator.ifs:
                        self._expr(test, inner, "value")
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expr(child, inner, "value")
            case ast.IfExp() if chooses_interface(node.test, (node.body, node.orelse)):
                before, self.shim = self.shim, True
                self._others(node, scope)
                self.shim = before
            case ast.NamedExpr():
                self._expr(node.value, scope, "value")
                # Bound around comprehensions; there and here it is no import.
                made = Binding("other", self._at(node), tries=self.tries)
                self._add_around(node.target.id, scope, made)
            case ast.Attribute():
                tail = [node.attr]
                start = node.value
                while isinstance(start, ast.Attribute):
                    tail.append(start.attr)
                    start = start.value
                if not self.off:
                    self.tails.append((tuple(reversed(tail)), self._at(node)))
                self._expr(start, scope, "value")
            case ast.Constant(value=str(text)):
                if (
                    role != "type"
                    and OLD_NAME.match(text)
                    and all(part.isidentifier() for part in text.split("."))
                ):
                    self.strings.append((text, self._at(node)))
            case _:
                keeps = isinstance(
                    node, (ast.Subscript, ast.BinOp, ast.Tuple, ast.List)
                )
                inside = role if role in ("type", "tested") and keeps else "value"
                if isinstance(node, ast.Compare):
                    inside = "compared"
                before = self.in_text
                self.in_text = before or isinstance(node, ast.JoinedStr)
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expr(child, scope, inside)
                    elif not isinstance(child, (ast.expr_context, ast.operator)):
                        self._others(child, scope)
                self.in_text = before

    def _call(self, node: ast.Call, scope: int) -> None:
        func = dotted(node.func)
        if func:
            self._mention(node.func, scope, "call", node)
        else:
            self._expr(node.func, scope, "value")
        if func[-1:] == ("autocast",):
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            dtype = given.get("dtype", node.args[1] if len(node.args) > 1 else None)
            if dtype is not None:
                self.autocast_dtypes.add(said(dtype) or "?")
        if func[-1:] and func[-1] in _PATCHERS and node.args:
            first = node.args[0]
            whole = first.value if isinstance(first, ast.Constant) else None
            text = whole.rpartition(".")[0] if isinstance(whole, str) else ""
            self.patches.append(tuple(text.split(".")) if text else dotted(first))
        for index, arg in enumerate(node.args):
            asked = func[-1:] and func[0] in _TYPE_TESTS and index == 1
            value = arg.value if isinstance(arg, ast.Starred) else arg
            self._expr(value, scope, "tested" if asked else "value")
        for keyword in node.keywords:
            self._expr(keyword.value, scope, "value")

    def _mention(
        self,
        node: ast.expr,
        scope: int,
        role: str,
        call: ast.Call | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        given = () if call is None else tuple(arguments(call))
        parts, at = dotted(node), self._at(root)
        role = "text" if self.in_text else role
        self.mentions.append(
            Mention(parts, scope, at, role, given, aliases, self.off, self.shim)
        )
