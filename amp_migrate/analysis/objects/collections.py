"""Lists, tuples, dicts and namespaces that a program keeps things in, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.analysis.objects.contents import Contents, Place, Put
from amp_migrate.analysis.objects.points_to import ANY as ANY_ITEM
from amp_migrate.analysis.objects.points_to import (
    EACH,
    Bound,
    Object,
    PointsTo,
    State,
    positions,
)
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition


@dataclass(frozen=True, slots=True)
class Turn:
    """The variable of a ``for`` that has each key of a collection in turn, ``for k in opts``, or a
    parameter that is one of them."""

    function: str
    name: str
    may_repeat: bool = field(default=False, compare=False)
    """No loop over the collection itself binds it: ``for name in names`` may have one key twice."""


@dataclass(frozen=True, slots=True)
class Member:
    """An attribute of a namespace, ``state.optimizer``."""

    name: str


Key = str | int | Turn | Member | tuple["Key", ...]
"""What an element is known by: the key of a dict, the position in a list or tuple, the attribute of a
namespace; of collections in a collection, these one after the other."""

ANY: Key = "*"
"""Stands for all elements of a collection that is not written out."""

Stored = tuple[Key, Definition]
"""What is put into a collection after it is made, and what it is known by."""

_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")


def path_of(key: Key | None) -> tuple[Key, ...]:
    """The keys by which an element is taken out, outermost first."""
    if key is None:
        return ()
    return key if isinstance(key, tuple) else (key,)


def key_along(*keys: Key) -> Key | None:
    """The key of what is taken out by some keys, one after the other."""
    return keys if len(keys) > 1 else next(iter(keys), None)


class Collections:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.points_to = program.noted(PointsTo)
        self.contents = program.noted(Contents)
        self._keys: dict[tuple[str, ir.Expr], tuple[Key, ...]] = {}
        self._stored: dict[Place, list[Stored]] = {}
        self._members: dict[tuple[Place, str], bool] = {}
        self._hidden: dict[tuple[str, str], bool] = {}

    # -- elements -----------------------------------------------------------------------------

    def keys(self, expr: ir.Expr, function: str) -> tuple[Key, ...]:
        """The keys of a collection's elements; `ANY` where it is not written out."""
        asked = function, expr
        if asked not in self._keys:
            found: dict[Key, None] = {}
            for one in self.points_to.trail(State(expr, function, None)):
                if one.fields:
                    continue
                if isinstance(one, State):
                    stored = self.stored(one.expr, one.function)
                    found.update((key, None) for key, _ in stored)
                elif isinstance(one.expr, ir.Comprehension):
                    found[ANY] = None
                else:
                    found.update(dict.fromkeys(self.elements(one.expr, one.function)))
            self._keys[asked] = tuple(found)
        return self._keys[asked]

    def elements(self, expr: ir.Expr, function: str) -> dict[Key, ir.Expr]:
        """The elements of a collection that is written out, by their keys."""
        found: dict[Key, ir.Expr] = {}
        match expr:
            case ir.Display(kind="dict", items=items, keys=keys):
                for key, value in zip(keys, items, strict=True):
                    if key is None:
                        # What `**more` brings may take the place of what stands before it.
                        found.clear()
                    elif isinstance(key, ir.Const) and isinstance(
                        key.value, (str, int)
                    ):
                        found[key.value] = value
            case ir.Display(kind="list" | "tuple", items=items):
                for position, value in enumerate(items):
                    if isinstance(value, ir.Operation) and value.op == "starred":
                        break
                    found[position] = value
            case ir.Call(func=func, args=args):
                if self.contents.makes_dict(func, function):
                    for arg in args:
                        if isinstance(arg.value, ir.Display) and arg.name is None:
                            found.update(self.elements(arg.value, function))
                    found.update((a.name, a.value) for a in args if a.name is not None)
                if self.makes_namespace(expr, function):
                    found.update((Member(a.name), a.value) for a in args if a.name)
                for ref in self.program.resolve(func, function):
                    if ref.kind == "class" and self.program.is_named_tuple(ref.name):
                        fields = self.program.written_fields(ref.name)
                        for place, name in enumerate(fields):
                            given = expr.argument(place, name)
                            if given is not None:
                                found[place] = found[Member(name)] = given
        return found

    def begins_empty(self, expr: ir.Expr, function: str) -> bool:
        """``dict()``, ``{}``: what it holds is put there later."""
        if isinstance(expr, ir.Call):
            return not expr.args and self.contents.makes_dict(expr.func, function)
        return isinstance(expr, ir.Display) and not expr.items

    def stored(self, expr: ir.Expr, function: str) -> list[Stored]:
        """What is put into a collection later, ``state["optimizer"] = ...``."""
        place = self.contents.place(expr, function)
        if place is None:
            return []
        if place not in self._stored:
            self._stored[place] = [*self._find_stored(place)]
        return self._stored[place]

    def _find_stored(self, place: Place) -> Iterator[Stored]:
        for put in self.contents.puts.get(place, ()):
            at, stmt = put.function, put.stmt
            if put.call is None and put.key is not None and not put.spread:
                key = key_of(ir.Item(put.holder, put.key))
                yield ANY if key is None else key, Definition(at, stmt, put.value)
            elif stmt.kind == "expr" and stmt.value is put.call and put.spread:
                if isinstance(put.value, ir.Display) and put.value.kind == "dict":
                    for key, value in self.elements(put.value, at).items():
                        yield key, Definition(at, stmt, value)
        yield from self._stored_members.get(place, ())
        calls, in_turn = self.appended.get(place, ([], False))
        functions = {put.function for put in calls}
        for position, put in enumerate(calls):
            by: Key = position
            if in_turn:
                by = ANY
            elif len(functions) > 1:
                # Each appends to the lists of some instances.
                by = f"at {ir.file_of(put.function)}:{put.stmt.line}"
            yield by, Definition(put.function, put.stmt, put.value)

    # -- lists that are filled ----------------------------------------------------------------

    @cached_property
    def appended(self) -> dict[Place, tuple[list[Put], bool]]:
        """What is appended to each list of which it is certain that it holds that and no more, in order,
        and whether a loop does it, each of whose turns appends one."""
        found: dict[Place, tuple[list[Put], bool]] = {}
        for place, puts in self.contents.puts.items():
            calls = [p for p in puts if p.call and ir.method_of(p.call) == "append"]
            if calls and all(map(self._is_certain, calls)):
                found[place] = calls, False
            elif calls and all(self._begins_empty(one, True) for one in calls):
                found[place] = calls, True
        return found

    def _begins_empty(self, one: Put, here: bool) -> Definition | None:
        """Where the list is made, empty, that a statement does nothing but append to; ``here``: before
        that, in its function."""
        begun = self.program.definitions_of(one.holder, one.function)
        made = begun[0] if len(begun) == 1 else None
        if made is None or made.value != ir.Display("list", ()):
            return None
        if one.stmt.kind != "expr" or one.stmt.value is not one.call:
            return None
        if here and (
            made.function != one.function
            or not _is_behind_or_inside(one.stmt.path, made.stmt.path)
        ):
            return None
        return made

    def _is_certain(self, one: Put) -> bool:
        """Whether a list begins empty, and gets an element for each optimizer that is made."""
        at, path = one.function, one.stmt.path
        made = self._begins_empty(one, False)
        if made is None:
            return False
        if made.function == at:
            beside = len(made.stmt.path) == len(path)
            if not beside or not _is_behind(path, made.stmt.path):
                return False
        elif not self._are_inits(made.function, at) or any(
            outer.kind not in ("if", "with")
            for outer in self.program.control(at).around(path)
        ):
            return False
        if isinstance(one.value, ir.Call):
            return True
        known = self.program.definitions_of(one.value, at)
        return bool(known) and all(
            d.function == at and d.index is None and _is_behind(path, d.stmt.path)
            for d in known
        )

    def _are_inits(self, *functions: str) -> bool:
        """Whether two methods run once for each instance, one after the other."""
        program = self.program
        one, other = (program.functions[function].class_name for function in functions)
        return all(ir.local_name(f).endswith(".__init__") for f in functions) and (
            one is not None and other is not None and other in program.family(one)
        )

    # -- namespaces ---------------------------------------------------------------------------

    def member(self, expr: ir.Expr, function: str) -> Member | None:
        """The attribute of a namespace that an expression names, where one place gives it its value."""
        if not isinstance(expr, ir.Attr):
            return None
        place = self.namespace(expr.value, function)
        if place is None:
            return None
        asked = place, expr.attr
        if asked not in self._members:
            self._members[asked] = self._is_given_once(place, expr.attr)
        return Member(expr.attr) if self._members[asked] else None

    def _is_given_once(self, place: Place, attr: str) -> bool:
        """Whether nothing but one expression, or ``None``, is given to an attribute of a namespace."""
        (begun,) = self.definitions(*place)
        assert isinstance(begun.value, ir.Call)
        (itself,) = begun.stmt.targets
        made = self.elements(begun.value, begun.function)
        given = [made[Member(attr)]] if Member(attr) in made else []
        for holder, one in self.program.attribute_targets.get(attr, ()):
            at = self.namespace(holder, one.function)
            own = self.program.self_class(one.function)
            of_self = own is not None and holder == ir.Name(own[0])
            if at != place and (at is not None or of_self):
                continue
            # What may be the same one under another name is given it as well.
            target = ir.Attr(itself, attr)
            plain = one.stmt.kind == "assign" and one.stmt.targets == (target,)
            if at is None or one.function != begun.function or not plain:
                return False
            if one.value is None:
                return False
            path = one.stmt.path
            if len(path) != len(begun.stmt.path) or not _is_behind(
                path, begun.stmt.path
            ):
                return False
            given.append(one.value)
        # `state.state = SGD(...)` looks like the attribute of some object that has that name.
        return attr != place[1] and len([v for v in given if v != ir.Const(None)]) == 1

    @cached_property
    def _stored_members(self) -> dict[Place, list[Stored]]:
        found: dict[Place, list[Stored]] = {}
        for attr, targets in self.program.attribute_targets.items():
            for holder, one in targets:
                place = self.namespace(holder, one.function)
                member = self.member(ir.Attr(holder, attr), one.function)
                if place is not None and member is not None:
                    found.setdefault(place, []).append((member, one))
        return found

    def definitions(self, owner: str, name: str) -> list[Definition]:
        """What gives a value to a variable, or to an attribute of a class."""
        if owner in self.program.classes:
            return self.program.attribute_definitions(owner, name)
        return self.program.definitions(owner, name)

    def namespace(self, expr: ir.Expr, function: str) -> Place | None:
        """The variable, or the attribute of its own, that a namespace is made for which an expression
        stands for: that one always."""
        program = self.program
        root = expr
        own = program.self_class(function)
        if isinstance(expr, ir.Attr) and own is not None:
            root = expr.value if expr.value == ir.Name(own[0]) else expr
        if not isinstance(root, ir.Name) or not self.has_namespaces:
            return None
        owner = program.owner(root.id, function)
        if owner is None or ir.file_of(owner) != ir.file_of(function):
            return None
        here = function, root.id
        if here not in self._hidden:
            self._hidden[here] = _hides(program.functions[function], root.id)
        if self._hidden[here] or program.elsewhere(expr, function) is not None:
            return None
        match self.points_to.whole(expr, function, closed=True):
            case [
                Object(
                    expr=ir.Call() as call,
                    context=(),
                    bound=Bound() as bound,
                ) as one
            ] if self.makes_namespace(call, one.function):
                place = bound.owner, bound.name
                if bound.kind == "attribute":
                    place = self.contents.holder(*place), bound.name
                match self.definitions(*place):
                    case [Definition(value=value, stmt=ir.Stmt(targets=(target,)))]:
                        named = isinstance(target, (ir.Name, ir.Attr))
                        return place if value is call and named else None
        return None

    def makes_namespace(self, call: ir.Call, function: str) -> bool:
        """``SimpleNamespace(optimizer=optimizer)``; a named tuple that gets no field of its own is one."""
        if self.program.origin(call.func, function) in _NAMESPACES:
            return all(arg.name is not None for arg in call.args)
        refs = self.program.resolve(call.func, function) if self._doubtful else ()
        return (
            bool(refs)
            and not any(arg.star for arg in call.args)
            and all(ref.kind == "class" and ref.name in self._doubtful for ref in refs)
        )

    @cached_property
    def _doubtful(self) -> frozenset[str]:
        """The named tuples of which several may be made."""
        program = self.program
        return frozenset(
            name
            for name in program.classes
            if program.is_named_tuple(name) and program.doubt_of(name) is not None
        )

    @cached_property
    def has_namespaces(self) -> bool:
        """Whether any is made, and no variable is come by under a name that is put together as the
        program runs."""
        program = self.program
        words = {program.classes[name].name for name in self._doubtful}
        return any(
            self.makes_namespace(call, function)
            for name in program.with_aliases({"SimpleNamespace", "Namespace"} | words)
            for function, _, call in program.calls_named(name)
        ) and not any(
            call.func == ir.Name(name)
            for name in ("exec", "eval", "globals", "locals")
            for _, _, call in program.calls_named(name)
        )

    # -- going through ------------------------------------------------------------------------

    def gone_through(
        self, target: ir.Expr, iterable: ir.Expr, name: str, function: str
    ) -> ir.Expr | None:
        """The collection whose elements a loop, or a comprehension, binds to a variable, one after the
        other."""
        found = [
            one
            for taken in positions(target, name)
            for one in self.points_to.given(
                State(iterable, function, None, (EACH, *taken))
            )
        ]
        match found:
            case [State(expr=expr, fields=(taken,))] if taken in (EACH, ANY_ITEM):
                is_key = taken == EACH and self.is_dict(expr, function)
                return None if is_key else expr
        return None

    def is_dict(self, expr: ir.Expr, function: str) -> bool:
        """Whether going through a collection gives its keys."""
        return any(
            not one.fields
            and (
                (isinstance(one.expr, ir.Display) and one.expr.kind == "dict")
                or (isinstance(one.expr, ir.Comprehension) and one.expr.elements[1:])
                or (
                    isinstance(one.expr, ir.Call)
                    and self.contents.makes_dict(one.expr.func, one.function)
                )
            )
            for one in self.points_to.of(expr, function)
        )

    def turn(self, expr: ir.Item, function: str) -> Turn | None:
        """The loop's variable by which an expression takes out each element of a collection."""
        if not isinstance(expr.key, ir.Name):
            return None
        name = expr.key.id
        owner = self.program.owner(name, function)
        place = self.contents.place(expr.value, function)
        if owner is None or place is None:
            return None
        found = self.program.definitions(owner, name)
        is_param = self.program.is_param(owner, name)
        if bool(found) == is_param:
            return None
        may_repeat = is_param
        for made in found:
            through = self._by_key(made.stmt, name, made.function)
            if place != (through and self.contents.place(through, made.function)):
                may_repeat = True
                if made.stmt.kind != "for" or made.stmt.targets != (expr.key,):
                    return None
        if may_repeat and self.keys(expr.value, function) != (ANY,):
            return None
        return Turn(owner, name, may_repeat)

    def _by_key(self, stmt: ir.Stmt, name: str, function: str) -> ir.Expr | None:
        """The collection whose keys a ``for`` binds to a variable, one after the other."""
        if stmt.kind != "for" or len(stmt.targets) != 1 or stmt.value is None:
            return None
        for taken in positions(stmt.targets[0], name):
            match stmt.value, taken:
                case ir.Call(args=(ir.Arg(value=counted, name=None),)) as call, _:
                    origin = self.program.origin(call.func, function)
                    if (origin, taken) == ("builtins.enumerate", (("item", 0),)):
                        return counted
                    if (origin, taken) == ("builtins.range", ()):
                        match counted:
                            case ir.Call(func, (ir.Arg(value=listed, name=None),)) if (
                                self.program.origin(func, function) == "builtins.len"
                            ):
                                return listed
            start = State(stmt.value, function, None, (EACH, *taken))
            for one in self.points_to.given(start):
                if isinstance(one, State) and one.fields == (EACH,):
                    return one.expr
        return None


def _is_behind(path: ir.Path, earlier: ir.Path) -> bool:
    """Whether a statement stands behind another, or behind one around it, in one block."""
    depth = len(path) - 1
    return len(earlier) > depth and _follows(path[depth:], earlier, path[:depth])


def _is_behind_or_inside(path: ir.Path, earlier: ir.Path) -> bool:
    """Whether a statement, or one around it, stands behind another in one block."""
    depth = len(earlier) - 1
    return len(path) > depth and _follows(path[depth:], earlier, path[:depth])


def _follows(path: ir.Path, earlier: ir.Path, around: ir.Path) -> bool:
    (field, index), (other, before) = path[0], earlier[len(around)]
    return earlier[: len(around)] == around and field == other and index > before


def _hides(function: ir.Function, name: str) -> bool:
    """Whether a comprehension or a lambda of a function has a variable of its own of that name."""
    return any(
        (isinstance(inner, ir.Deferred) and name in inner.params)
        or (
            isinstance(inner, ir.Comprehension)
            and any(ir.Name(name) in ir.walk(target) for target in inner.targets)
        )
        for stmt in ir.statements(function.body)
        for inner in parts_of(stmt)
    )


def key_of(expr: ir.Expr) -> Key | None:
    """The key by which an expression takes one element out of a collection."""
    match expr:
        case ir.Item(key=ir.Const(value=bool())):
            return None
        case ir.Item(key=ir.Const(value=str() | int() as key)):
            return key
    return None
