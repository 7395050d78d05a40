"""The intermediate representation: what the other rooms know of a file.

Plain frozen data that travels between processes. Expressions compare by what they say, not by where
they stand, so that two spellings of one condition are equal. ``FACTS_VERSION`` changes whenever the
meaning of a field does, for anything that keeps facts beyond one run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from amp_migrate.core.effort import spend
from amp_migrate.core.records import quickly_made

FACTS_VERSION = 8

MODULE = "<module>"
"""The name of a file's top level, which is treated as a function without parameters."""

LISTED = "listed"
"""A ``for`` that is written ``[opt.step() for opt in opts]``, with the element for its body."""

_IN_FILE = "::"

Path = tuple[tuple[str, int], ...]
"""Where a statement stands: (field of the parent, index) from the module down.

Fields are ``body``, ``orelse``, ``finalbody``, ``handlers[i].body`` and ``cases[i].body``; an ``elif``
is the only statement of its parent's ``orelse``, as in the standard library's ``ast``.
"""


def global_name(file: str, name: str) -> str:
    """What identifies a function or class among those of all files: its file and its name in it."""
    return f"{file}{_IN_FILE}{name}"


def file_of(key: str) -> str:
    """The file of a function or class."""
    return key.rpartition(_IN_FILE)[0]


def local_name(key: str) -> str:
    """The name of a function or class without its file, ``Trainer.train``."""
    return key.rpartition(_IN_FILE)[2]


def top_of(key: str) -> str:
    """The key of the top level of the file that a function or class stands in."""
    return f"{file_of(key)}{_IN_FILE}{MODULE}"


def is_top(key: str) -> bool:
    """Whether a function is the top level of its file."""
    return key.endswith(_IN_FILE + MODULE)


class Line(int):
    """A line number, from 1, that knows its file: what stops a loop may stand in another file."""

    file: str

    def __new__(cls, number: int, file: str) -> Line:
        line = super().__new__(cls, number)
        line.file = file
        return line

    def __reduce__(self) -> tuple[type[Line], tuple[int, str]]:
        return Line, (int(self), self.file)


class _Known:
    """Room for the hash of an expression, which to find is a walk through all of it, and for that walk."""

    __slots__ = ("_hash", "known_walk")

    _hash: int
    known_walk: tuple[Expr, ...]


_Expression = TypeVar("_Expression", bound=type[_Known])


def _hashed_once(kind: _Expression) -> _Expression:
    """A kind of expressions that keep their hash: they are asked for it again and again."""
    compute = kind.__hash__

    def hashed(self: _Known) -> int:
        try:
            return self._hash
        except AttributeError:
            found = compute(self)
            object.__setattr__(self, "_hash", found)
            return found

    kind.__hash__ = hashed  # type: ignore[assignment,method-assign]
    return kind


@quickly_made
@dataclass(frozen=True, slots=True)
class Name:
    id: str


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Attr(_Known):
    value: Expr
    attr: str


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Item(_Known):
    value: Expr
    key: Expr


@quickly_made
@dataclass(frozen=True, slots=True)
class Const:
    value: object


@quickly_made
@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a call; ``star`` is ``""``, ``"*"`` or ``"**"``."""

    value: Expr
    name: str | None = None
    star: str = ""


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Call(_Known):
    func: Expr
    args: tuple[Arg, ...]
    line: int = field(compare=False, default=0)
    column: int = field(compare=False, default=0)
    called: str | None = field(compare=False, default=None)
    """The variable that the text calls in its place, with less arguments."""

    def argument(self, position: int, name: str) -> Expr | None:
        """The value given for a parameter by position or by name, if it is given plainly."""
        for arg in self.args:
            if arg.name == name:
                return arg.value
        plain = [arg for arg in self.args if arg.name is None]
        if any(arg.star for arg in plain[: position + 1]):
            return None
        return plain[position].value if position < len(plain) else None


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Display(_Known):
    """A tuple, list, set or dict written out. ``keys`` holds None for ``**mapping`` entries."""

    kind: str
    items: tuple[Expr, ...]
    keys: tuple[Expr | None, ...] = ()


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Operation(_Known):
    """Operators, comparisons, conditionals, f-strings: ``op`` as it is written in the language.

    A ``slice`` has three operands, ``None`` where one is not written; a ``formattedvalue`` with more
    than one operand is formatted in some way of its own.
    """

    op: str
    operands: tuple[Expr, ...]


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Deferred(_Known):
    """A lambda: evaluated later, or never. ``params`` are bound inside."""

    params: tuple[str, ...]
    body: Expr
    plain: bool = True
    """Its parameters are positional and without defaults."""


@_hashed_once
@quickly_made
@dataclass(frozen=True, slots=True)
class Comprehension(_Known):
    elements: tuple[Expr, ...]
    targets: tuple[Expr, ...]
    iterables: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    lazy: bool = False
    """It is a generator: computed when something asks for its elements."""
    is_set: bool = False


@_hashed_once
@dataclass(frozen=True, slots=True)
class Walrus(_Known):
    target: Expr
    value: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Suspend(_Known):
    """``await``, ``yield`` or ``yield from``."""

    kind: str
    value: Expr | None


Expr = (
    Name
    | Attr
    | Item
    | Const
    | Call
    | Display
    | Operation
    | Deferred
    | Comprehension
    | Walrus
    | Suspend
)


class _WithParts:
    """Room for what `program.bindings` finds in a statement."""

    __slots__ = ("known_calls", "known_parts")

    known_calls: tuple[Call, ...]
    known_parts: tuple[Expr, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class Stmt(_WithParts):
    """One statement. ``kind`` is the lower-case name of the ``ast`` class it was read from.

    ``value`` is the assigned value, the expression, the test, the iterable or the returned value;
    ``targets`` is what it binds, in order; ``exprs`` is every expression of the statement's own line,
    in the order of evaluation, nested blocks not included.
    """

    kind: str
    path: Path
    line: int
    column: int
    end_line: int
    value: Expr | None = None
    targets: tuple[Expr, ...] = ()
    exprs: tuple[Expr, ...] = ()
    blocks: tuple[Block, ...] = ()
    names: tuple[str, ...] = ()
    """Names that a ``def``, ``class``, ``import``, ``global``, ``nonlocal``, handler or pattern concerns."""
    op: str = ""
    """The operator of an augmented assignment; `LISTED` of a ``for`` that is written as a list, or the
    reverse; ``no field`` of an annotation in a dataclass that makes none."""
    is_elif: bool = False
    step: Call | None = None
    """Of ``loss = optimizer.step(closure)`` that is read as ``loss = closure()``: the plain step that
    follows, the last of ``exprs``."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Block:
    field: str
    body: tuple[Stmt, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class Param:
    name: str
    kind: str
    """``positional`` (also keyword), ``keyword`` (only), ``*`` or ``**``."""
    default: Expr | None = None
    annotation: Expr | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A function, method or, as `MODULE`, the file's top level.

    ``qualname``, ``parent`` and ``class_name`` are keys: unique among all files.
    """

    qualname: str
    name: str
    path: Path
    line: int
    column: int
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    decorators: tuple[Expr, ...]
    parent: str | None
    """The function whose scope encloses this one."""
    class_name: str | None
    """The class whose body holds it."""
    is_async: bool = False
    is_generator: bool = False
    bound: frozenset[str] = frozenset()
    """Names that are local here."""
    global_names: frozenset[str] = frozenset()
    nonlocal_names: frozenset[str] = frozenset()
    imports: tuple[tuple[str, str], ...] = ()
    """(local name, dotted origin) of the imports in this scope; relative ones keep their dots."""

    @property
    def self_name(self) -> str | None:
        """The name by which a method knows its instance."""
        if self.class_name is None or not self.params:
            return None
        if any(
            isinstance(d, Name) and d.id in ("staticmethod", "classmethod")
            for d in self.decorators
        ):
            return None
        first = self.params[0]
        return first.name if first.kind == "positional" else None


@dataclass(frozen=True, slots=True)
class Class:
    qualname: str
    name: str
    path: Path
    line: int
    bases: tuple[Expr, ...]
    methods: tuple[tuple[str, str], ...]
    """(name, qualified name of the function)."""
    parent: str
    body: tuple[Stmt, ...]
    """Statements of the class body itself."""
    decorators: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    path: str
    functions: dict[str, Function]
    classes: dict[str, Class]
    identifiers: frozenset[str]
    """Every name, attribute, parameter and keyword that the file mentions."""
    strings: frozenset[str] = frozenset()
    """String constants that could be names: what reflection or a dict key may mean by them."""
    star_imports: tuple[str, ...] = ()
    plain_imports: frozenset[str] = frozenset()
    """What ``import a.b.c`` statements name, of which the variable is only ``a``."""
    named_imports: frozenset[str] = frozenset()
    """Modules that `importlib.import_module` is given by name."""
    off_lines: frozenset[int] = frozenset()
    """Lines whose statement is marked ``# amp: off``."""
    off: bool = False
    """The whole file is marked."""

    @property
    def top(self) -> Function:
        """The file's top level."""
        return self.functions[global_name(self.path, MODULE)]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions in the order of evaluation."""
    parts = _PARTS.get(type(expr))
    return () if parts is None else parts(expr)


def _parts_of_call(expr: Call) -> tuple[Expr, ...]:
    return (expr.func, *(arg.value for arg in expr.args))


def _parts_of_display(expr: Display) -> tuple[Expr, ...]:
    return (*(key for key in expr.keys if key is not None), *expr.items)


def _parts_of_comprehension(expr: Comprehension) -> tuple[Expr, ...]:
    return (*expr.iterables, *expr.targets, *expr.conditions, *expr.elements)


_PARTS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Attr: lambda expr: (expr.value,),
    Item: lambda expr: (expr.value, expr.key),
    Call: _parts_of_call,
    Display: _parts_of_display,
    Operation: lambda expr: tuple(expr.operands),
    Deferred: lambda expr: (expr.body,),
    Comprehension: _parts_of_comprehension,
    Walrus: lambda expr: (expr.value, expr.target),
    Suspend: lambda expr: () if expr.value is None else (expr.value,),
}
"""By kind of expression; a name or a constant has no parts."""


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it, outermost first, left to right."""
    if isinstance(expr, (Name, Const)):
        spend(1)
        return iter((expr,))
    try:
        found = expr.known_walk
    except AttributeError:
        found = tuple(_walked(expr))
        object.__setattr__(expr, "known_walk", found)
    spend(len(found))
    return iter(found)


def _walked(expr: Expr) -> list[Expr]:
    found: list[Expr] = []
    stack = [expr]
    while stack:
        current = stack.pop()
        found.append(current)
        parts = _PARTS.get(type(current))
        if parts is not None:
            stack.extend(reversed(parts(current)))
    return found


def names_in(expr: Expr) -> set[str]:
    """The variables that an expression mentions."""
    return {inner.id for inner in walk(expr) if isinstance(inner, Name)}


def says(expr: Expr, names: Collection[str]) -> bool:
    """Whether an expression mentions a variable, or an attribute, of one of some names."""
    return any(last_of(inner) in names for inner in walk(expr))


def last_of(expr: Expr) -> str | None:
    """The name of a variable, or of an attribute."""
    if isinstance(expr, Attr):
        return expr.attr
    return expr.id if isinstance(expr, Name) else None


def ways_to(
    expr: Expr, mention: Expr, way: tuple[Expr, ...] = ()
) -> Iterator[tuple[Expr, ...]]:
    """What is around each of the mentions in an expression, outermost first."""
    way = (*way, expr)
    if expr == mention:
        yield way
    for child in children(expr):
        yield from ways_to(child, mention, way)


def words_in(expr: Expr) -> Iterator[str]:
    """The names and the constants in an expression."""
    for inner in walk(expr):
        word = inner.value if isinstance(inner, Const) else last_of(inner)
        if isinstance(inner, (Name, Attr, Const)):
            yield str(word)


def calls_in(expr: Expr) -> Iterator[Call]:
    """The calls inside an expression in the order in which they run, lambdas left out."""
    found: list[Call] = []
    _add_calls(expr, found, [])
    return iter(found)


def all_calls_in(exprs: Iterable[Expr]) -> list[Call]:
    """The calls inside some expressions in the order in which they run; those in lambdas come last."""
    found: list[Call] = []
    lambdas: list[Deferred] = []
    for expr in exprs:
        _add_calls(expr, found, lambdas)
    while lambdas:
        inside: list[Deferred] = []
        _add_calls(lambdas.pop(0).body, found, inside)
        lambdas[:0] = inside
    return found


def _add_calls(expr: Expr, found: list[Call], lambdas: list[Deferred]) -> None:
    if isinstance(expr, Deferred):
        lambdas.append(expr)
        return
    parts = _PARTS.get(type(expr))
    if parts is not None:
        for child in parts(expr):
            if type(child) in _PARTS:
                _add_calls(child, found, lambdas)
        if isinstance(expr, Call):
            found.append(expr)


def statements(block: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of a block and of the blocks nested in it, in source order.

    Bodies of nested functions and classes are not part of their statement.
    """
    found: list[Stmt] = []
    stack = list(reversed(block))
    while stack:
        stmt = stack.pop()
        found.append(stmt)
        for inner in reversed(stmt.blocks):
            stack.extend(reversed(inner.body))
    spend(len(found))
    return iter(found)


def distance(path: Path, other: Path) -> int | None:
    """How far behind another statement one stands in that one's block, be it within one that does; below 0:
    before it. None where it stands in another block."""
    depth = len(other) - 1
    beside = path[:depth] == other[:depth] and len(path) > depth
    if not beside or path[depth][0] != other[depth][0]:
        return None
    return path[depth][1] - other[depth][1]


def key_of(expr: Expr) -> str | None:
    """``a``, ``a.b`` or ``a['k']`` as one text: the name under which a value is kept."""
    match expr:
        case Name(id=name):
            return name
        case Attr(value=value, attr=attr):
            base = key_of(value)
            return None if base is None else f"{base}.{attr}"
        case Item(value=value, key=Const(value=key)):
            base = key_of(value)
            return None if base is None else f"{base}[{key!r}]"
        case _:
            return None


def method_of(call: Call) -> str:
    """The name of the attribute that a call is one of, ``c`` of ``a.b.c()``; empty where it is of none."""
    return call.func.attr if isinstance(call.func, Attr) else ""


def is_starred(expr: Expr) -> bool:
    """``*expr``"""
    return isinstance(expr, Operation) and expr.op == "starred"


def receiver_of(call: Call) -> Expr:
    """What that is an attribute of, where a call is of one: ``a.b``."""
    assert isinstance(call.func, Attr)
    return call.func.value


def before_calls(expr: Expr, methods: Collection[str]) -> Expr:
    """What calls of some methods begin with: ``a.b`` of ``a.b.c().d()``."""
    while isinstance(expr, Call) and method_of(expr) in methods:
        expr = receiver_of(expr)
    return expr


def dotted(expr: Expr) -> tuple[str, ...] | None:
    """``a.b.c`` as ("a", "b", "c")."""
    parts: list[str] = []
    while isinstance(expr, Attr):
        parts.append(expr.attr)
        expr = expr.value
    if not isinstance(expr, Name):
        return None
    parts.append(expr.id)
    return tuple(reversed(parts))


def render(expr: Expr) -> str | None:
    """Source text for the simple expressions that edits repeat elsewhere; None for all others."""
    match expr:
        case Name(id=name):
            return name
        case Const(value=value):
            return (
                repr(value)
                if isinstance(value, (str, int, float, bool, type(None)))
                else None
            )
        case Attr(value=value, attr=attr):
            base = render(value)
            return None if base is None else f"{base}.{attr}"
        case Item(value=value, key=Display(kind="tuple", items=(_, _, *_) as items)):
            parts = [part for part in map(render, (value, *items)) if part]
            whole = len(parts) > len(items)
            return f"{parts[0]}[{', '.join(parts[1:])}]" if whole else None
        case Item(value=value, key=key):
            base, index = render(value), render(key)
            return None if base is None or index is None else f"{base}[{index}]"
        case Call(func=Name(id="super"), args=args) if args:
            given = [render(arg.value) for arg in args]
            plain = all(isinstance(arg.value, Name) and not arg.name for arg in args)
            return f"super({','.join(filter(None, given))})" if plain else None
        case Call(func=func, args=()):
            base = render(func)
            return None if base is None else f"{base}()"
        case Operation(op="not", operands=(operand,)):
            inner = _in_brackets(operand)
            return None if inner is None else f"not {inner}"
        case Operation(op="and" | "or" as op, operands=operands):
            parts = [part for part in map(_in_brackets, operands) if part]
            return f" {op} ".join(parts) if len(parts) == len(operands) else None
        case Operation(
            op="is" | "is not" | "==" | "!=" | "<" | "<=" | ">" | ">=" as op,
            operands=(left, right),
        ):
            before, after = render(left), render(right)
            return None if before is None or after is None else f"{before} {op} {after}"
        case _:
            return None


def _in_brackets(expr: Expr) -> str | None:
    """The same as an operand of ``not``, ``and`` or ``or``."""
    text = render(expr)
    binds_less = isinstance(expr, Operation) and expr.op in ("and", "or")
    return f"({text})" if binds_less and text is not None else text
