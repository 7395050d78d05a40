"""Text to facts, with the standard library's ``ast``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol, cast

from amp_migrate.core.deep import bounded
from amp_migrate.core.effort import cut
from amp_migrate.core.results import SourceError
from amp_migrate.program import ir
from amp_migrate.program.each import (
    as_class,
    as_loop,
    read_as_updates,
    steps_each,
    with_defaults,
)
from amp_migrate.program.imports import imports_by_name
from amp_migrate.program.marks import off_marks
from amp_migrate.program.partials import read_as_calls
from amp_migrate.sources.syntax import parse

_NO_FIELD = ("ClassVar", "typing.ClassVar", "KW_ONLY", "dataclasses.KW_ONLY")
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.MatMult: "@",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.FloorDiv: "//",
    ast.Invert: "~",
    ast.Not: "not",
    ast.UAdd: "+x",
    ast.USub: "-x",
    ast.And: "and",
    ast.Or: "or",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


_FRAMES = 1_000
"""How deep the reader may go: some 300 operators, calls or branches within each other."""


def read_module(text: str, path: str = "<string>") -> ir.ModuleFacts:
    """The facts of one file.

    Raises `SourceError` where the text is not valid for the Python that runs this, or too deep.
    """
    tree = parse(text, path)
    lines = text.split("\n")
    if "partial" in text:
        read_as_calls(tree)
    if ".parameters()" in text:
        read_as_updates(tree)
    reader = _Reader(lines, path)
    try:
        # What is read can be walked many times: by whoever is given far more room than this.
        with bounded(_FRAMES):
            reader.read_top(tree)
    except RecursionError:
        cut()
        raise SourceError(path, "nested too deeply to be read") from None
    off_lines, off = off_marks(text, tree)
    return ir.ModuleFacts(
        path=path,
        functions=reader.functions,
        classes=reader.classes,
        identifiers=frozenset(reader.identifiers),
        strings=frozenset(reader.strings),
        star_imports=tuple(reader.star_imports),
        plain_imports=frozenset(reader.plain_imports),
        named_imports=imports_by_name(text),
        off_lines=off_lines,
        off=off,
    )


class _Make(Protocol):
    """Makes the `Stmt` of the node being read: kind, place and extent are known to it."""

    def __call__(
        self,
        value: ir.Expr | None = None,
        targets: Iterable[ir.Expr] = (),
        exprs: Iterable[ir.Expr] = (),
        blocks: Iterable[ir.Block] = (),
        names: Iterable[str] = (),
        op: str = "",
        is_elif: bool = False,
    ) -> ir.Stmt: ...


class _Scope:
    """What is gathered about one function while its body is read."""

    def __init__(self, qualname: str, parent: _Scope | None) -> None:
        self.qualname = qualname
        self.parent = parent
        self.bound: set[str] = set()
        self.global_names: set[str] = set()
        self.nonlocal_names: set[str] = set()
        self.imports: list[tuple[str, str]] = []
        self.is_generator = False


class _Reader:
    def __init__(self, lines: list[str], file: str) -> None:
        self.lines = lines
        self.file = file
        self.top = ir.global_name(file, ir.MODULE)
        self.functions: dict[str, ir.Function] = {}
        self.classes: dict[str, ir.Class] = {}
        self.identifiers: set[str] = set()
        self.strings: set[str] = set()
        self.star_imports: list[str] = []
        self.plain_imports: set[str] = set()
        self.scope = _Scope(self.top, None)
        self._line_numbers: dict[int, ir.Line] = {}

    def read_top(self, tree: ast.Module) -> None:
        body = self._block(tree.body, (), "body", None)
        self.functions[self.top] = ir.Function(
            qualname=self.top,
            name=ir.MODULE,
            path=(),
            line=self._line(1),
            column=1,
            params=(),
            body=body,
            decorators=(),
            parent=None,
            class_name=None,
            bound=frozenset(self.scope.bound),
            imports=tuple(self.scope.imports),
        )

    # -- statements ---------------------------------------------------------------------------

    def _block(
        self, nodes: list[ast.stmt], path: ir.Path, name: str, class_name: str | None
    ) -> tuple[ir.Stmt, ...]:
        return tuple(
            self._stmt(node, (*path, (name, index)), class_name)
            for index, node in enumerate(nodes)
        )

    def _line(self, number: int) -> ir.Line:
        # One object for all that stands in a line: they are many, and travel between processes.
        line = self._line_numbers.get(number)
        if line is None:
            line = self._line_numbers[number] = ir.Line(number, self.file)
        return line

    def _column(self, line: int, utf8_column: int) -> int:
        if line > len(self.lines):
            return utf8_column + 1
        text = self.lines[line - 1]
        if text.isascii():
            return min(utf8_column, len(text)) + 1
        prefix = text.encode("utf-8", "surrogatepass")[:utf8_column]
        return len(prefix.decode("utf-8", "replace")) + 1

    def _stmt(self, node: ast.stmt, path: ir.Path, class_name: str | None) -> ir.Stmt:
        line, end = self._line(node.lineno), node.end_lineno or node.lineno
        column = self._column(node.lineno, node.col_offset)
        kind = type(node).__name__.lower().removeprefix("async")

        def make(
            value: ir.Expr | None = None,
            targets: Iterable[ir.Expr] = (),
            exprs: Iterable[ir.Expr] = (),
            blocks: Iterable[ir.Block] = (),
            names: Iterable[str] = (),
            op: str = "",
            is_elif: bool = False,
        ) -> ir.Stmt:
            return ir.Stmt(
                kind,
                path,
                line,
                column,
                end,
                value,
                tuple(targets),
                tuple(exprs),
                tuple(blocks),
                tuple(names),
                op,
                is_elif,
            )

        def block(name: str, nodes: list[ast.stmt]) -> list[ir.Block]:
            return (
                [ir.Block(name, self._block(nodes, path, name, class_name))]
                if nodes
                else []
            )

        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function(node, path, class_name, make)
            case ast.ClassDef():
                return self._class(node, path, make)
            case ast.Expr(value=ast.ListComp() as listed) if steps_each(listed):
                return self._each(node, listed, path, class_name)
            case ast.Return(value=value) | ast.Expr(value=value):
                read = None if value is None else self._expr(value)
                op = ir.LISTED if hasattr(node, "was_loop") else ""
                return make(read, exprs=() if read is None else (read,), op=op)
            case ast.Assign() if made := as_class(node):
                return self._stmt(made, path, class_name)
            case ast.Assign(targets=targets, value=value):
                read = self._expr(value)
                bound = [self._target(target) for target in targets]
                return make(read, bound, (read, *bound))
            case ast.AnnAssign(target=target, value=value, annotation=annotation):
                bound_to = self._target(target)
                op = "" if _is_field(annotation) else "no field"
                if value is None:
                    return make(exprs=(bound_to,), op=op)
                read = self._expr(value)
                return make(read, (bound_to,), (read, bound_to), op=op)
            case ast.AugAssign(target=target, op=operator, value=value):
                read = self._expr(value)
                bound_to = self._target(target)
                return make(
                    read, (bound_to,), (read, bound_to), op=_OPERATORS[type(operator)]
                )
            case ast.Delete(targets=targets):
                deleted = [self._target(target) for target in targets]
                return make(targets=deleted, exprs=deleted)
            case ast.For() | ast.AsyncFor():
                iterable = self._expr(node.iter)
                bound_to = self._target(node.target)
                return make(
                    iterable,
                    (bound_to,),
                    (iterable, bound_to),
                    block("body", node.body) + block("orelse", node.orelse),
                )
            case ast.While():
                test = self._expr(node.test)
                blocks = block("body", node.body) + block("orelse", node.orelse)
                return make(test, exprs=(test,), blocks=blocks)
            case ast.If():
                test = self._expr(node.test)
                blocks = block("body", node.body) + block("orelse", node.orelse)
                start = (
                    self.lines[line - 1][column - 1 :]
                    if line <= len(self.lines)
                    else ""
                )
                return make(
                    test, exprs=(test,), blocks=blocks, is_elif=start.startswith("elif")
                )
            case ast.With() | ast.AsyncWith():
                exprs: list[ir.Expr] = []
                targets_: list[ir.Expr] = []
                for item in node.items:
                    exprs.append(self._expr(item.context_expr))
                    if item.optional_vars is not None:
                        targets_.append(self._target(item.optional_vars))
                return make(
                    None, targets_, (*exprs, *targets_), block("body", node.body)
                )
            case ast.Raise():
                values = [
                    self._expr(e) for e in (node.exc, node.cause) if e is not None
                ]
                return make(exprs=values)
            case ast.Assert():
                test = self._expr(node.test)
                message = [] if node.msg is None else [self._expr(node.msg)]
                return make(test, exprs=(test, *message))
            case ast.Import():
                return make(names=[self._import(alias, None) for alias in node.names])
            case ast.ImportFrom():
                origin = "." * node.level + (node.module or "")
                return make(names=[self._import(alias, origin) for alias in node.names])
            case ast.Global(names=names):
                self.scope.global_names.update(names)
                return make(names=names)
            case ast.Nonlocal(names=names):
                self.scope.nonlocal_names.update(names)
                return make(names=names)
            case ast.Match():
                exprs = [self._expr(node.subject)]
                blocks = []
                captured = []
                for index, case in enumerate(node.cases):
                    for inner in ast.walk(case.pattern):
                        bound_name = getattr(inner, "name", None) or getattr(
                            inner, "rest", None
                        )
                        if isinstance(bound_name, str):
                            self._bind(bound_name)
                            captured.append(bound_name)
                    if case.guard is not None:
                        exprs.append(self._expr(case.guard))
                    blocks += block(f"cases[{index}].body", case.body)
                return make(exprs[0], exprs=exprs, blocks=blocks, names=captured)
            case _ if kind in ("try", "trystar"):
                return self._try(cast(ast.Try, node), path, class_name, make)
            case _:
                return make()

    def _try(
        self, node: ast.Try, path: ir.Path, class_name: str | None, make: _Make
    ) -> ir.Stmt:
        blocks = [ir.Block("body", self._block(node.body, path, "body", class_name))]
        names = []
        for index, handler in enumerate(node.handlers):
            if handler.name:
                self._bind(handler.name)
                names.append(handler.name)
            name = f"handlers[{index}].body"
            blocks.append(
                ir.Block(name, self._block(handler.body, path, name, class_name))
            )
        for name in ("orelse", "finalbody"):
            nodes = getattr(node, name)
            if nodes:
                blocks.append(
                    ir.Block(name, self._block(nodes, path, name, class_name))
                )
        return make(blocks=blocks, names=names)

    def _each(
        self,
        node: ast.Expr,
        listed: ast.ListComp,
        path: ir.Path,
        class_name: str | None,
    ) -> ir.Stmt:
        """``[opt.step() for opt in opts]`` as the loop that it is."""
        self.identifiers |= {n.id for n in ast.walk(listed) if isinstance(n, ast.Name)}
        loop = self._stmt(as_loop(node, listed), path, class_name)
        return replace(loop, op=ir.LISTED)

    def _import(self, alias: ast.alias, origin: str | None) -> str:
        if alias.name == "*":
            self.star_imports.append(origin or "")
            return "*"
        if origin is None:
            self.plain_imports.add(alias.name)
            local = alias.asname or alias.name.split(".")[0]
            target = alias.name if alias.asname else local
        else:
            local = alias.asname or alias.name
            target = (
                f"{origin}{alias.name}"
                if origin.endswith(".")
                else f"{origin}.{alias.name}"
            )
        self.scope.imports.append((local, target))
        self._bind(local)
        return local

    def _function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        path: ir.Path,
        class_name: str | None,
        make: _Make,
    ) -> ir.Stmt:
        self._bind(node.name)
        decorators = tuple(self._expr(decorator) for decorator in node.decorator_list)
        params = self._params(node.args)
        outer = self.scope
        prefix = class_name if class_name is not None else outer.qualname
        qualname = self._qualname(prefix, node.name)
        while qualname in self.functions or qualname in self.classes:
            # A second definition of one name: the facts of both are kept apart.
            qualname += "'"
        self.scope = _Scope(qualname, outer)
        self.functions[qualname] = None  # type: ignore[assignment]  # reserves the order
        for param in params:
            self._bind(param.name)
        body = self._block(node.body, path, "body", None)
        scope, self.scope = self.scope, outer
        self.functions[qualname] = ir.Function(
            qualname=qualname,
            name=node.name,
            path=path,
            line=self._line(node.lineno),
            column=self._column(node.lineno, node.col_offset),
            params=params,
            body=body,
            decorators=decorators,
            parent=outer.qualname,
            class_name=class_name,
            is_async=isinstance(node, ast.AsyncFunctionDef),
            is_generator=scope.is_generator,
            bound=frozenset(scope.bound - scope.global_names - scope.nonlocal_names),
            global_names=frozenset(scope.global_names),
            nonlocal_names=frozenset(scope.nonlocal_names),
            imports=tuple(scope.imports),
        )
        defaults = [param.default for param in params if param.default is not None]
        return make(exprs=(*decorators, *defaults), names=(node.name, qualname))

    def _qualname(self, outer: str, name: str) -> str:
        return (
            ir.global_name(self.file, name) if outer == self.top else f"{outer}.{name}"
        )

    def _params(self, args: ast.arguments) -> tuple[ir.Param, ...]:
        positional = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (
            len(positional) - len(args.defaults)
        )
        defaults += args.defaults
        read: list[ir.Param] = []

        def add(arg: ast.arg, kind: str, default: ast.expr | None) -> None:
            read.append(
                ir.Param(
                    arg.arg,
                    kind,
                    None if default is None else self._expr(default),
                    None if arg.annotation is None else self._expr(arg.annotation),
                )
            )

        for arg, default in zip(positional, defaults, strict=True):
            add(arg, "positional", default)
        if args.vararg:
            add(args.vararg, "*", None)
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            add(arg, "keyword", default)
        if args.kwarg:
            add(args.kwarg, "**", None)
        return tuple(read)

    def _class(self, node: ast.ClassDef, path: ir.Path, make: _Make) -> ir.Stmt:
        self._bind(node.name)
        bases = tuple(self._expr(base) for base in node.bases)
        keywords = tuple(self._expr(keyword.value) for keyword in node.keywords)
        decorators = tuple(self._expr(decorator) for decorator in node.decorator_list)
        outer = self.scope
        qualname = self._qualname(outer.qualname, node.name)
        while qualname in self.functions or qualname in self.classes:
            qualname += "'"
        # Names bound in a class body are no variables of the scope around it.
        self.scope = _Scope(outer.qualname, outer)
        self.scope.bound = set()
        body = self._block(node.body, path, "body", qualname)
        self.scope = outer
        self.classes[qualname] = ir.Class(
            qualname,
            node.name,
            path,
            self._line(node.lineno),
            bases,
            tuple(_methods(body)),
            outer.qualname,
            body,
            decorators,
        )
        return make(exprs=(*decorators, *bases, *keywords), names=(node.name, qualname))

    # -- expressions --------------------------------------------------------------------------

    def _bind(self, name: str) -> None:
        self.identifiers.add(name)
        self.scope.bound.add(name)

    def _target(self, node: ast.expr) -> ir.Expr:
        """An expression in a binding position: its plain names become local."""
        for inner in (node,) if isinstance(node, ast.Name) else ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(
                inner.ctx, (ast.Store, ast.Del)
            ):
                self._bind(inner.id)
        return self._expr(node)

    def _expr(self, node: ast.expr) -> ir.Expr:
        match node:
            case ast.Name(id=name):
                self.identifiers.add(name)
                return ir.Name(name)
            case ast.Attribute(value=value, attr=attr):
                self.identifiers.add(attr)
                return ir.Attr(self._expr(value), attr)
            case ast.Subscript(value=value, slice=index):
                return ir.Item(self._expr(value), self._expr(index))
            case ast.Constant(value=constant):
                if isinstance(constant, str) and constant.isidentifier():
                    self.strings.add(constant)
                return ir.Const(constant)
            case ast.Call(func=func, args=args, keywords=keywords):
                callee = self._expr(func)
                given = []
                for arg in args:
                    if isinstance(arg, ast.Starred):
                        given.append(ir.Arg(self._expr(arg.value), star="*"))
                    else:
                        given.append(ir.Arg(self._expr(arg)))
                for keyword in keywords:
                    if keyword.arg is not None:
                        self.identifiers.add(keyword.arg)
                    star = "**" if keyword.arg is None else ""
                    given.append(ir.Arg(self._expr(keyword.value), keyword.arg, star))
                column = self._column(node.lineno, node.col_offset)
                line, called = self._line(node.lineno), getattr(node, "called", None)
                return ir.Call(callee, tuple(given), line, column, called)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                kind = type(node).__name__.lower()
                return ir.Display(kind, tuple(self._expr(item) for item in items))
            case ast.Dict(keys=keys, values=values):
                return ir.Display(
                    "dict",
                    tuple(self._expr(value) for value in values),
                    tuple(None if key is None else self._expr(key) for key in keys),
                )
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as number)
            ):
                return ir.Const(-number)
            case ast.BinOp(left=left, op=operator, right=right):
                operands = (self._expr(left), self._expr(right))
                return ir.Operation(_OPERATORS[type(operator)], operands)
            case ast.UnaryOp(op=operator, operand=operand):
                return ir.Operation(_OPERATORS[type(operator)], (self._expr(operand),))
            case ast.BoolOp(op=operator, values=values):
                return ir.Operation(
                    _OPERATORS[type(operator)],
                    tuple(self._expr(value) for value in values),
                )
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                operands = (self._expr(left), self._expr(right))
                return ir.Operation(_OPERATORS[type(operator)], operands)
            case ast.Compare(left=left, comparators=comparators):
                return ir.Operation(
                    "compare", tuple(self._expr(e) for e in (left, *comparators))
                )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ir.Operation(
                    "if", (self._expr(test), self._expr(body), self._expr(orelse))
                )
            case ast.Lambda(args=args, body=body):
                params = self._params(args)
                plain = all(
                    param.kind == "positional" and param.default is None
                    for param in params
                )
                names, body = with_defaults(node)
                return ir.Deferred(names, self._expr(body), plain)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.NamedExpr(target=target, value=value):
                read = self._expr(value)
                return ir.Walrus(self._target(target), read)
            case ast.Await(value=awaited):
                return ir.Suspend("await", self._expr(awaited))
            case ast.YieldFrom(value=source):
                self.scope.is_generator = True
                return ir.Suspend("yield from", self._expr(source))
            case ast.Yield(value=yielded):
                self.scope.is_generator = True
                return ir.Suspend(
                    "yield", None if yielded is None else self._expr(yielded)
                )
            case ast.Slice(lower=lower, upper=upper, step=step):
                parts = (lower, upper, step)
                return ir.Operation(
                    "slice",
                    tuple(
                        ir.Const(None) if part is None else self._expr(part)
                        for part in parts
                    ),
                )
            case ast.FormattedValue(value=shown, conversion=conversion) if (
                conversion != -1 and node.format_spec is None
            ):
                how = ir.Const(f"!{chr(conversion)}")
                return ir.Operation("formattedvalue", (self._expr(shown), how))
            case _:
                # f-strings, starred: what matters is what stands inside.
                inner = [
                    c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)
                ]
                name = type(node).__name__.lower()
                return ir.Operation(name, tuple(self._expr(child) for child in inner))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> ir.Expr:
        elements = (
            [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        )
        generators = node.generators
        return ir.Comprehension(
            elements=tuple(self._expr(element) for element in elements),
            # The targets are local to the comprehension, not to the function around it.
            targets=tuple(self._expr(generator.target) for generator in generators),
            iterables=tuple(self._expr(generator.iter) for generator in generators),
            conditions=tuple(self._expr(test) for g in generators for test in g.ifs),
            lazy=isinstance(node, ast.GeneratorExp),
            is_set=isinstance(node, ast.SetComp),
        )


def _is_field(annotation: ast.expr) -> bool:
    """Whether an annotation in a dataclass makes a field: not `ClassVar`, nor the mark `KW_ONLY`."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.Constant):
        return not str(annotation.value).startswith(_NO_FIELD)
    name = getattr(annotation, "attr", getattr(annotation, "id", ""))
    return name not in _NO_FIELD


def _methods(body: tuple[ir.Stmt, ...]) -> Iterator[tuple[str, str]]:
    """What a class body defines, with the other names that it gives it: ``blend = mix``."""
    known: dict[str, str] = {}
    for stmt in ir.statements(body):
        if stmt.kind == "functiondef":
            known[stmt.names[0]] = stmt.names[1]
            yield stmt.names[0], stmt.names[1]
        elif stmt.kind == "assign" and isinstance(stmt.value, ir.Name):
            for target in stmt.targets:
                if isinstance(target, ir.Name) and stmt.value.id in known:
                    yield target.id, known[stmt.value.id]
