"""Lists, tuples, dicts and namespaces that a program keeps things in, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.analysis.objects.contents import Contents, Place, Put
from amp_migrate.analysis.objects.points_to import ANY as ANY_ITEM
from amp_migrate.analysis.objects.points_to import (
    EACH,
    PointsTo,
    State,
    positions,
)
from amp_migrate.program import ir
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


Key = str | int | Turn | tuple["Key", ...]
"""What an element is known by: the key of a dict, the position in a list or tuple, the attribute of a
namespace; of collections in a collection, these one after the other."""

ANY: Key = "*"
"""Stands for all elements of a collection that is not written out."""

Stored = tuple[Key, Definition]
"""What is put into a collection after it is made, and what it is known by."""


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
                for ref in self.program.resolve(func, function):
                    if ref.kind == "class" and self.program.is_named_tuple(ref.name):
                        fields = self.program.written_fields(ref.name)
                        for place, name in enumerate(fields):
                            given = expr.argument(place, name)
                            if given is not None:
                                found[place] = found[name] = given
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
    return (ir.distance(earlier, path) or 0) < 0


def _is_behind_or_inside(path: ir.Path, earlier: ir.Path) -> bool:
    """Whether a statement, or one around it, stands behind another in one block."""
    return (ir.distance(path, earlier) or 0) > 0


def key_of(expr: ir.Expr) -> Key | None:
    """The key by which an expression takes one element out of a collection."""
    match expr:
        case ir.Item(key=ir.Const(value=bool())):
            return None
        case ir.Item(key=ir.Const(value=str() | int() as key)):
            return key
    return None
