"""Text to facts: what a file imports, what its names are bound to, and where it mentions imports.

Migrating needs to know what statements do to training; modernising needs to know each place where a
name is mentioned, annotations and decorators included. So it has facts of its own: scopes, bindings
and mentions, with positions. Like all facts they are plain data about one file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from amp_migrate.facts.marks import off_marks
from amp_migrate.facts.syntax import parse

TOP = 0
"""The number of a file's outermost scope."""

OLD_NAME = re.compile(r"torch\.(cuda|cpu)\.amp(?=\.|$)")
"""How the dotted name of an older interface begins."""

_VERSION_TEST = re.compile(r"(?i)version|torch_?\d|hasattr\(torch")
_NAMES = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
_TYPE_TESTS = frozenset({"isinstance", "issubclass"})
_PATCHERS = frozenset({"setattr", "patch", "object"})
"""``setattr(a, ...)``, ``mock.patch("a.b")`` and ``mock.patch.object(a, ...)``."""

Position = tuple[int, int]
"""(line from 1, column in characters from 0)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that gives a name a value in its scope."""

    kind: str
    """``import``, ``from``, ``alias`` (``name = a.b.c``) or ``other``."""
    at: Position
    target: str = ""
    """The dotted name that an import binds; relative ones keep their dots."""
    parts: tuple[str, ...] = ()
    """What an alias stands for, as it is written."""
    module: str = ""
    """What ``import a.b.c`` names, where the variable is only ``a``."""
    tries: tuple[tuple[int, str], ...] = ()
    """The ``try`` statements around it, from outside: (number, field)."""


@dataclass(frozen=True, slots=True)
class Argument:
    """``star`` is ``""``, ``"*"`` or ``"**"``; ``value`` a dotted name, or the code of a constant."""

    keyword: str | None
    star: str
    value: str


@dataclass(frozen=True, slots=True)
class Mention:
    """A dotted name, ``a.b.c``, where it is read."""

    parts: tuple[str, ...]
    scope: int
    at: Position
    role: str
    """``call``, ``decorator`` (not called), ``type`` (an annotation), ``tested`` (what isinstance is
    asked for), ``alias`` (the whole value of ``name = ...``), ``compared``, ``base`` (of a class),
    ``text`` (in an f-string), or ``value``."""
    arguments: tuple[Argument, ...] = ()
    """Of a call."""
    alias: str = ""
    """The name that an alias binds, in the same scope."""
    off: bool = False
    """Under a mark ``# amp: off``."""
    shim: bool = False
    """For an older torch: the other branch of a test for the version uses torch.amp."""


@dataclass(frozen=True, slots=True)
class Scope:
    parent: int | None
    is_class: bool
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer: dict[str, int | None] = field(default_factory=dict)
    """Names declared ``global`` (`TOP`) or ``nonlocal`` (None)."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The facts of one file."""

    path: str
    scopes: tuple[Scope, ...]
    mentions: tuple[Mention, ...]
    stars: tuple[tuple[str, Position], ...]
    """``from module import *``."""
    strings: tuple[tuple[str, Position], ...]
    """String constants that are an older interface's dotted name."""
    sound: frozenset[int]
    """The ``try`` statements whose body only imports from torch and sets constants."""
    exported: frozenset[str]
    """The names in ``__all__``."""
    off: bool
    """The whole file is marked ``# amp: off``."""
    patches: tuple[tuple[str, ...], ...]
    """What attributes are set on from outside: ``a.b`` for ``a.b.c = ...`` or ``setattr(a.b, ...)``."""
    autocast_dtypes: frozenset[str]
    """What ``autocast(dtype=...)`` calls are given, as far as it is a dotted name; else ``?``."""

    def owner(self, name: str, scope: int) -> int | None:
        """The scope in which a name lives that is mentioned in another."""
        current: int | None = scope
        while current is not None:
            found = self.scopes[current]
            if name in found.outer and current != TOP:
                if found.outer[name] == TOP:
                    current = TOP
                    continue
            elif name in found.bindings and (current == scope or not found.is_class):
                return current
            current = found.parent
        return None


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
        self.sound: set[int] = set()
        self.patches: list[tuple[str, ...]] = []
        self.autocast_dtypes: set[str] = set()
        self.off_lines: frozenset[int] = frozenset()
        self.off = False
        self.shim = False
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
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _dotted(value):
                parts = _dotted(value)
                at = self._at(stmt)
                made = Binding("alias", at, parts=parts, tries=self.tries)
                self._bind(name, scope, made)
                self._mention(value, scope, "alias", alias=name)
            case ast.AnnAssign():
                self._expr(stmt.annotation, scope, "type")
                self._expr(stmt.target, scope, "value")
                if stmt.value is not None:
                    self._expr(stmt.value, scope, "value")
            case ast.Try():
                self._try(stmt, scope)
            case ast.If() if _chooses_interface(stmt.test, (*stmt.body, *stmt.orelse)):
                before, self.shim = self.shim, True
                self._others(stmt, scope)
                self.shim = before
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case _:
                self._others(stmt, scope)

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
        if all(map(_cannot_fail, stmt.body)):
            self.sound.add(number)
        self.block(stmt.body, scope, (*around, (number, "body")))
        for handler in stmt.handlers:
            inner = (*around, (number, "handlers"))
            self.tries = inner
            if handler.name:
                self._bind_other(handler.name, scope, handler)
            if handler.type is not None:
                self._expr(handler.type, scope, "value")
            self.block(handler.body, scope, inner)
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
            self.patches.append(_dotted(node.value))
        if _dotted(node):
            self._mention(node, scope, role)
            return
        match node:
            case ast.Call():
                self._call(node, scope, role == "text")
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
            case ast.IfExp() if _chooses_interface(node.test, (node.body, node.orelse)):
                before, self.shim = self.shim, True
                self._others(node, scope)
                self.shim = before
            case ast.NamedExpr():
                self._expr(node.value, scope, "value")
                # Bound around comprehensions; there and here it is no import.
                made = Binding("other", self._at(node), tries=self.tries)
                self._add_around(node.target.id, scope, made)
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
                if isinstance(node, ast.JoinedStr):
                    # Older Pythons do not know where such a name stands.
                    inside = "text"
                if role == "text":
                    inside = role
                if isinstance(node, ast.Compare):
                    inside = "compared"
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expr(child, scope, inside)
                    elif not isinstance(child, (ast.expr_context, ast.operator)):
                        self._others(child, scope)

    def _call(self, node: ast.Call, scope: int, in_text: bool) -> None:
        func = _dotted(node.func)
        if func:
            self._mention(node.func, scope, "text" if in_text else "call", node)
        else:
            self._expr(node.func, scope, "value")
        if func[-1:] == ("autocast",):
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            dtype = given.get("dtype", node.args[1] if len(node.args) > 1 else None)
            if dtype is not None:
                self.autocast_dtypes.add(_said(dtype) or "?")
        if func[-1:] and func[-1] in _PATCHERS and node.args:
            first = node.args[0]
            whole = first.value if isinstance(first, ast.Constant) else None
            text = whole.rpartition(".")[0] if isinstance(whole, str) else ""
            self.patches.append(tuple(text.split(".")) if text else _dotted(first))
        for index, arg in enumerate(node.args):
            asked = func[-1:] and func[0] in _TYPE_TESTS and index == 1
            value = arg.value if isinstance(arg, ast.Starred) else arg
            plain = "text" if in_text else "value"
            self._expr(value, scope, "tested" if asked and not in_text else plain)
        for keyword in node.keywords:
            self._expr(keyword.value, scope, "text" if in_text else "value")

    def _mention(
        self,
        node: ast.expr,
        scope: int,
        role: str,
        call: ast.Call | None = None,
        alias: str = "",
    ) -> None:
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        arguments = () if call is None else tuple(_arguments(call))
        parts, at = _dotted(node), self._at(root)
        self.mentions.append(
            Mention(parts, scope, at, role, arguments, alias, self.off, self.shim)
        )


def _chooses_interface(test: ast.expr, branches: Iterable[ast.AST]) -> bool:
    """``torch.amp.GradScaler("cuda") if TORCH_2_4 else torch.cuda.amp.GradScaler()``"""
    if not _VERSION_TEST.search(ast.unparse(test)):
        return False
    named = [
        _dotted(node)
        for branch in branches
        for node in ast.walk(branch)
        if isinstance(node, ast.Attribute) and node.attr in _NAMES
    ]
    old = {parts[-1] for parts in named if parts and {"cuda", "cpu"} & {*parts}}
    return any(p[-1] in old and not {"cuda", "cpu"} & {*p} for p in named if p)


def _arguments(call: ast.Call) -> Iterable[Argument]:
    for arg in call.args:
        starred = isinstance(arg, ast.Starred)
        yield Argument(None, "*" if starred else "", _said(arg))
    for keyword in call.keywords:
        star = "**" if keyword.arg is None else ""
        yield Argument(keyword.arg, star, _said(keyword.value))


def _said(node: ast.expr | None) -> str:
    """A dotted name, or the code of a constant; nothing for all else."""
    if isinstance(node, ast.Constant):
        return repr(node.value)
    return ".".join(_dotted(node)) if node is not None else ""


def _dotted(node: ast.expr) -> tuple[str, ...]:
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


def _cannot_fail(stmt: ast.stmt) -> bool:
    """Whether a statement only imports AMP from torch, or sets a constant or an alias of torch's AMP."""
    match stmt:
        case ast.Import(names=names):
            return all(a.name == "torch" or _is_there(a.name) for a in names)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            return all(_is_there(f"{module}.{a.name}") for a in names)
        case ast.Assign(targets=[ast.Name()], value=value):
            return isinstance(value, ast.Constant) or _is_there(
                ".".join(_dotted(value))
            )
        case ast.Pass():
            return True
        case _:
            return False


def _is_there(dotted: str) -> bool:
    """Whether an older interface's name is in every torch with which there is a newer one."""
    found = OLD_NAME.match(dotted)
    names = ("", "autocast", "GradScaler", "custom_fwd", "custom_bwd")
    return found is not None and dotted[found.end() + 1 :] in names
