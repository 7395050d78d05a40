"""What a statement may run of which nothing says that it does: what was given to what is not followed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from amp_migrate.analysis.objects.carriers import CHOICES, UnseenCalls
from amp_migrate.analysis.objects.contents import PUTS
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.points_to import IN_PLACE, Object, PointsTo, State
from amp_migrate.analysis.paths.events import operators_of
from amp_migrate.analysis.values.called import Called
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Program

_OF_DATA = frozenset(("__getitem__", "__setitem__", "__contains__"))
_MOST_STATES = 200
"""So far it is looked where something comes from."""

Run = tuple[list[str], list[tuple[str, ir.Stmt]]]
"""Functions, and statements that give lambdas."""


class _Given(NamedTuple):
    """A function or lambda that is given to nobody knows whom, where that is said, and ``under`` which
    keyword, at which place, as which attribute (``.name``) or into what one holds (``.name[]``); None: in
    whatever way."""

    what: str | ir.Deferred
    function: str
    stmt: ir.Stmt
    under: str | int | None


class Way(NamedTuple):
    """How something may have come into sight: by a parameter or an attribute of that name (``.name``), or
    any attribute (``.``); None: in whatever way. A call may give it at a ``place``, or at one before, where
    others are filled in."""

    name: str | None
    place: int = -1

    def leads_from(self, under: str | int | None) -> bool:
        """Whether it may be what is given so."""
        if self.name == ".":
            return isinstance(under, str) and under[0] == "." and under[-1] != "]"
        if self.name is None or under in (None, "."):
            return True
        if isinstance(under, int):
            return under <= self.place
        return under.strip(".[]") == self.name.strip(".")


class Ways:
    """The ways by which what is not followed may have come to be the value of an expression."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._points_to = program.noted(PointsTo)
        self._known: dict[tuple[ir.Expr, str, ir.Path | None], frozenset[Way]] = {}
        self._names = {f.name for f in program.functions.values()}

    def to(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> frozenset[Way]:
        """Those to an expression; none where all that it may be is in sight."""
        asked = expr, function, stmt.path
        if asked not in self._known:
            self._known[asked] = frozenset(self._find(expr, function, stmt))
        return self._known[asked]

    def _find(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> Iterator[Way]:
        program = self.program
        at: tuple[ir.Expr, str, ir.Stmt | None] = expr, function, stmt
        pending, seen = [at], {at}
        attributes: dict[str, None] = {}
        looked = 0
        for expr, function, place in pending:
            match expr:
                case ir.Call(
                    func=ir.Name(id="getattr"), args=(ir.Arg(held), ir.Arg(name), *_)
                ):
                    if isinstance(name, ir.Const):
                        expr = ir.Attr(held, str(name.value))
                    else:
                        yield from self._by_any_name(held, function, place, attributes)
            if isinstance(expr, ir.Attr) and expr.attr not in program.attribute_targets:
                yield from self._by_attribute(expr.attr)
            else:
                start = State(expr, function, place)
                for one in self._points_to.trail(start, most=_MOST_STATES):
                    if isinstance(one, Object):
                        at = self._handed_back(one) or pending[0]
                        pending += () if at in seen else (at,)
                        seen.add(at)
                        yield from self._of(one, attributes)
                    elif isinstance(one.expr, ir.Attr) and one.fields[:1] != ():
                        if one.fields[0][0] in ("item", "each"):
                            # Others may put something there who know whose it is by another name.
                            yield from self._by_attribute(one.expr.attr)
            for attr in [*attributes][looked:]:
                for _, made in program.attribute_targets.get(attr, ()):
                    more = made.value and (made.value, made.function, made.stmt)
                    if more and more not in seen:
                        seen.add(more)
                        pending.append(more)
            looked = len(attributes)

    def _by_any_name(
        self,
        held: ir.Expr,
        function: str,
        stmt: ir.Stmt | None,
        attributes: dict[str, None],
    ) -> Iterator[Way]:
        """``getattr(x, name)``: what was set on it out of sight, or what its class has."""
        program = self.program
        for one in self._points_to.of(held, function, stmt, most=_MOST_STATES):
            if one.name in program.classes and not one.fields:
                for name, targets in program.attribute_targets.items():
                    if any(program.self_class(d.function) for _, d in targets):
                        if program.attribute_definitions(one.name, name):
                            attributes[name] = None
            elif any(self._of(one, {})):
                yield Way(".")

    def _of(self, one: Object, attributes: dict[str, None]) -> Iterator[Way]:
        """Those to an object; ``attributes``: of what is not followed, all of whose values are asked for."""
        program = self.program
        if one.kind == "value" and isinstance(one.expr, ir.Call):
            if self._is_made_in_sight(one):
                return
        elif one.kind not in ("lost", "open") or one.name == IN_PLACE:
            return
        taken = [str(name) for kind, name in one.fields if kind == "attribute"]
        if isinstance(one.expr, ir.Attr) and not one.fields:
            taken = [one.expr.attr]
        if taken:
            attributes[taken[0]] = None
            yield from self._by_attribute(taken[0])
            return
        param = None
        if isinstance(one.expr, ir.Name):
            params = program.functions[one.function].params
            param = next((p for p in params if p.name == one.expr.id), None)
        if param is None:
            yield Way(None)
        elif param.kind == "**":
            key = one.fields[0][1] if one.fields else None
            yield Way(key if isinstance(key, str) else None)
        elif param.kind == "*":
            yield Way(param.name, 99)
        else:
            yield Way(param.name, params.index(param))

    def _by_attribute(self, name: str) -> Iterator[Way]:
        """That by an attribute, which may be a field of an object that a call makes."""
        program = self.program
        if any(name in program.written_fields(one) for one in program.classes):
            yield Way(f".{name}", 99)
        elif name in program.attribute_targets:
            yield Way(f".{name}")

    def _is_made_in_sight(self, one: Object) -> bool:
        """Whether a call is none of what is not followed: a library's, a class's, or a method of a tensor."""
        assert isinstance(one.expr, ir.Call)
        program, func = self.program, one.expr.func
        return (
            bool(one.name or program.resolve(func, one.function))
            or program.origin(func, one.function) is not None
            or self._handed_back(one) is not None
        )

    def _handed_back(self, one: Object) -> tuple[ir.Expr, str, ir.Stmt | None] | None:
        """What a library's method is called on, where it may give it back, or what is in it."""
        match one.expr:
            case ir.Call(func=ir.Attr(value=value, attr=name)) if (
                one.kind == "value"
                and name not in self._names
                and name not in self.program.attribute_targets
            ):
                return value, one.function, one.stmt
        return None


class Unseen:
    """What statements may run so, where loops are in some ``files`` and run ``functions``."""

    def __init__(
        self,
        program: Program,
        forward: Forward,
        files: frozenset[str],
        functions: Iterable[str],
        live: Live | None,
    ) -> None:
        self.program = program
        self.forward = forward
        self.files = files
        self.functions = functions
        self.live = live
        self._called = program.noted(Called)
        self._ways = program.noted(Ways)
        self._found: dict[tuple[str, ir.Path], Run] = {}

    def run_by(self, function: str, stmt: ir.Stmt) -> Run:
        """What a statement may run: the methods of objects that are not followed, the functions that are
        given to nobody knows whom, and the statements that give lambdas so.
        """
        asked = function, stmt.path
        if asked not in self._found:
            methods: list[str] = []
            lambdas: list[tuple[str, ir.Stmt]] = []
            for call in self._unclear_calls(function, stmt):
                if self._called.sites_of(call, function, stmt):
                    continue
                methods += self._methods_kept(call, function, stmt)
                for given, where, at, _ in self._given_to(call, function, stmt):
                    if not isinstance(given, ir.Deferred):
                        fits = self._fits(given, call) or self._is_filled(where, at)
                        methods += (given,) if fits else ()
                    elif len(given.params) == len(call.args) or not (
                        given.plain and not any(arg.star for arg in call.args)
                    ):
                        lambdas.append((where, at))
            methods += self._operators_kept(function, stmt)
            self._found[asked] = methods, lambdas
        return self._found[asked]

    def _unclear_calls(self, function: str, stmt: ir.Stmt) -> Iterator[ir.Call]:
        """The calls of what no name leads to."""
        program = self.program
        for call in calls_of(stmt):
            func = call.func
            is_known = not (
                isinstance(func, ir.Call) and func.func == ir.Name("getattr")
            ) and (program.resolve(func, function) or program.origin(func, function))
            if not is_known and (call.args or ir.method_of(call) in self._kept):
                yield call

    def _fits(self, function: str, call: ir.Call) -> bool:
        """Whether a call may run a function by what it gives, or a property that gives what it calls."""
        facts = self.program.functions[function]
        of_object = facts.self_name is not None or (
            ir.Name("classmethod") in facts.decorators
        )
        return self._called.takes(
            function, call, of_object
        ) or self.program.is_property(function)

    # -- objects -------------------------------------------------------------------------------

    @cached_property
    def _kept(self) -> dict[str, list[tuple[str, str]]]:
        """By name, the methods of what is no module and may be where nobody follows it, with its class."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for class_name in self.program.classes:
            if ir.file_of(class_name) not in self.files:
                continue
            if self.forward.is_module_class(class_name):
                continue
            if self.live is not None and (
                class_name not in self.live.classes or self.live.is_apart(class_name)
            ):
                continue
            for name, method in self.program.classes[class_name].methods:
                found[name].append((method, class_name))
        return found

    def _methods_kept(
        self, call: ir.Call, function: str, stmt: ir.Stmt
    ) -> Iterator[str]:
        ways = [(call.func, "__call__")]
        match call.func:
            case ir.Attr(value=held, attr=name):
                ways.append((held, name))
            case ir.Call(
                func=ir.Name(id="getattr"),
                args=(of, ir.Arg(value=ir.Const(value=str(name))), *_),
            ):
                ways.append((of.value, name))
        for held, name in ways:
            for method, class_name in self._kept.get(name, ()):
                if self._fits(method, call):
                    if self._may_be(held, function, stmt, class_name):
                        yield method

    def _operators_kept(self, function: str, stmt: ir.Stmt) -> Iterator[str]:
        """What operators may run of objects that are not followed, ``self.loss @ h``, and properties."""
        asked = [(held, words - _OF_DATA) for held, words in operators_of(stmt)]
        for inner in parts_of(stmt):
            if isinstance(inner, ir.Attr) and inner.attr in self._kept:
                asked.append((inner.value, frozenset((inner.attr,))))
        for held, words in asked:
            for word in sorted(words & self._kept.keys()):
                for method, class_name in self._kept[word]:
                    if word.startswith("__") or self.program.is_property(method):
                        if self._may_be(held, function, stmt, class_name):
                            yield method

    def _may_be(
        self, held: ir.Expr, function: str, stmt: ir.Stmt, class_name: str
    ) -> bool:
        """Whether an expression may be an object of a class that is not followed there."""
        unseen = (self.program.whole or self.program).noted(UnseenCalls)
        return unseen.may_be(held, function, class_name) and bool(
            self._ways.to(held, function, stmt)
        )

    # -- functions -----------------------------------------------------------------------------

    def _given_to(
        self, call: ir.Call, function: str, stmt: ir.Stmt
    ) -> Iterator[_Given]:
        """What of those a call may run."""
        ways: frozenset[Way] = frozenset()
        if call.args:
            ways = self._ways.to(call.func, function, stmt)
        by_name = isinstance(call.func, ir.Attr)
        for one in self._given if ways or by_name else ():
            if (by_name and one.under == ".") or any(
                way.leads_from(one.under) for way in ways
            ):
                yield one

    @cached_property
    def _given(self) -> list[_Given]:
        """Functions and lambdas that are given to nobody knows whom: by a call, or as an attribute."""
        program = self.program
        found: dict[_Given, None] = {}
        pending = [
            (value, function, stmt, under)
            for function in self.functions
            for stmt in program.statements(function)
            for value, under in self._gives(function, stmt)
        ]
        seen = set(pending)
        handed_on: dict[tuple[frozenset[Way], str | int | None], None] = {}
        for value, where, at, under in pending:
            more: list[tuple[ir.Expr, str, ir.Stmt, str | int | None]] = []
            for inner in _handed_on(value):
                if isinstance(inner, ir.Deferred):
                    found[_Given(inner, where, at, under)] = None
                    continue
                if not isinstance(inner, (ir.Name, ir.Attr, ir.Call)):
                    continue
                refs = program.resolve(inner, where)
                for ref in refs:
                    if ref.kind == "function" and not program.is_property(ref.name):
                        found[_Given(ref.name, where, at, under)] = None
                if isinstance(inner, ir.Call):
                    continue
                if not refs and program.is_param(where, ir.key_of(inner) or ""):
                    ways = self._ways.to(inner, where, at)
                    named = frozenset(way for way in ways if way.place >= 0)
                    handed_on[named, under] = None
                more += (
                    (made.value, made.function, made.stmt, under)
                    for made in program.definitions_of(inner, where)
                    if isinstance(made.value, (ir.Display, ir.Deferred))
                )
            for one in more:
                if one not in seen:
                    seen.add(one)
                    pending.append(one)
        for given in (known := list(found)):
            for ways, under in handed_on if given.under is not None else ():
                if any(way.leads_from(given.under) for way in ways):
                    more_given = given._replace(under=under)
                    if more_given not in found:
                        found[more_given] = None
                        known.append(more_given)
        return known

    def _gives(
        self, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[ir.Expr, str | int | None]]:
        """What a statement gives to nobody knows whom, and under what."""
        for call in self._unclear_calls(function, stmt):
            if ir.method_of(call) in PUTS:
                holder = ir.receiver_of(call)
                under = f".{holder.attr}[]" if isinstance(holder, ir.Attr) else None
                yield from ((arg.value, under) for arg in call.args)
                continue
            starred = False
            for place, arg in enumerate(call.args):
                starred |= bool(arg.star)
                yield arg.value, arg.name or (None if starred else place)
        for target in stmt.targets if stmt.value is not None else ():
            assert stmt.value is not None
            is_item = isinstance(target, ir.Item)
            target = target.value if isinstance(target, ir.Item) else target
            if isinstance(target, ir.Attr) and self._is_unclear(target.value, function):
                yield stmt.value, f".{target.attr}" + "[]" * is_item
        for call in calls_of(stmt):
            match call:
                case ir.Call(ir.Name("setattr"), (held, name, value)):
                    if self._is_unclear(held.value, function):
                        attr = getattr(name.value, "value", None)
                        known = isinstance(attr, str)
                        yield value.value, f".{attr}" if known else "."

    def _is_unclear(self, held: ir.Expr, function: str) -> bool:
        return self.program.class_of_self(held, function) is None and not (
            self.program.resolve(held, function)
        )

    def _is_filled(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether what a statement gives may have some of its arguments: ``functools.partial(f, y=y)``."""
        return any(
            self.program.origin(call.func, function) == "functools.partial"
            for call in calls_of(stmt)
        )


def _handed_on(expr: ir.Expr) -> Iterator[ir.Expr]:
    """What an expression may stand for, or hold."""
    yield expr
    parts: Iterable[ir.Expr] = ()
    match expr:
        case ir.Call(args=args):
            parts = [arg.value for arg in args]
        case ir.Item(value=part) | ir.Deferred(body=part):
            parts = (part,)
        case ir.Comprehension(iterables=iterables, elements=elements):
            parts = (*iterables, *elements)
        case ir.Operation(op=op) if op not in CHOICES:
            pass
        case ir.Display() | ir.Operation() | ir.Walrus():
            parts = ir.children(expr)
    for part in parts:
        yield from _handed_on(part)
