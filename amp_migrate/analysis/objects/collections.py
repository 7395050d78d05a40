"""Lists, tuples, dicts and namespaces that a program keeps things in, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.appended import Appended, Place, appended
from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition


@dataclass(frozen=True, slots=True)
class Turn:
    """The variable of a ``for`` that has each key of a collection in turn, ``for k in opts``."""

    function: str
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """An attribute of a namespace, ``state.optimizer``."""

    name: str


Key = str | int | Turn | Member | tuple["Key", ...]
"""What an element is known by: the key of a dict, the position in a list or tuple, the attribute of a
namespace; of collections in a collection, these one after the other."""

ANY: Key = "*"
"""Stands for all elements of a collection that is not written out."""

_MOST_LEVELS = 6


def path_of(key: Key | None) -> tuple[Key, ...]:
    """The keys by which an element is taken out, outermost first."""
    if key is None:
        return ()
    return key if isinstance(key, tuple) else (key,)


def key_along(*keys: Key) -> Key | None:
    """The key of what is taken out by some keys, one after the other."""
    return keys if len(keys) > 1 else next(iter(keys), None)


_DICTS = ("builtins.dict", "collections.OrderedDict")
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")


class Collections:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._keys: dict[tuple[str, ir.Expr, int], tuple[Key, ...]] = {}
        self._holders: dict[tuple[str, str], str] = {}
        self._namespaces: dict[Place, Place | None] = {}
        self._members: dict[tuple[Place, str], bool] = {}
        self._hidden: dict[tuple[str, str], bool] = {}
        self._elements: dict[
            tuple[int, str], tuple[ir.Expr | None, dict[Key, ir.Expr]]
        ] = {}
        """By identity, of expressions that are kept alive here: those that are equal stand in different
        places."""

    def definitions(self, expr: ir.Expr, function: str) -> list[Definition]:
        """Where the variable or attribute that an expression names gets its values."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            return [] if owner is None else self.program.definitions(owner, expr.id)
        found: list[Definition] = []
        if isinstance(expr, ir.Attr):
            for class_name in self.program.instance_classes(expr.value, function):
                found += self.program.attribute_definitions(class_name, expr.attr)
        return found

    def stored(self, expr: ir.Expr, function: str) -> list[tuple[Key, Definition]]:
        """What is put into a collection later, ``state["optimizer"] = ...``."""
        place = self.place(expr, function)
        return [] if place is None else self._stored.get(place, [])

    @cached_property
    def _stored(self) -> dict[Place, list[tuple[Key, Definition]]]:
        found: dict[Place, list[tuple[Key, Definition]]] = {}
        for qualname, function in self.program.functions.items():
            for stmt in ir.statements(function.body):
                for put_at, name, value in self._updates(stmt, qualname):
                    definition = Definition(qualname, stmt, value)
                    found.setdefault(put_at, []).append((name, definition))
                if stmt.kind not in ("assign", "annassign"):
                    continue
                for target in stmt.targets:
                    member = self.member(target, qualname)
                    if member is not None and isinstance(target, ir.Attr):
                        place = self.namespace(target.value, qualname)
                        if place is not None:
                            definition = Definition(qualname, stmt, stmt.value)
                            found.setdefault(place, []).append((member, definition))
                    if not isinstance(target, ir.Item):
                        continue
                    key = ANY if (known := key_of(target)) is None else known
                    place = self.place(target.value, qualname)
                    if place is not None:
                        definition = Definition(qualname, stmt, stmt.value)
                        found.setdefault(place, []).append((key, definition))
        for place, calls in self.appended.items():
            functions = {one.definition.function for one in calls}
            for position, one in enumerate(calls):
                line = one.definition.stmt.line
                by: Key = position
                if one.in_turn:
                    by = ANY
                elif len(functions) > 1:
                    # Each appends to the lists of some instances.
                    by = f"at {ir.file_of(one.definition.function)}:{line}"
                found.setdefault(place, []).append((by, one.definition))
        return found

    def _updates(
        self, stmt: ir.Stmt, function: str
    ) -> Iterator[tuple[Place, Key, ir.Expr]]:
        """``state.update(optimizer=..., ...)``, ``state.update({"optimizer": ...})``."""
        call = stmt.value
        if stmt.kind != "expr" or not isinstance(call, ir.Call):
            return
        if not isinstance(call.func, ir.Attr) or call.func.attr != "update":
            return
        place = self.place(call.func.value, function)
        if place is None:
            return
        for arg in call.args:
            if arg.name is not None:
                yield place, arg.name, arg.value
            elif isinstance(arg.value, ir.Display):
                for key, value in self.elements(arg.value, function).items():
                    yield place, key, value

    @cached_property
    def appended(self) -> dict[Place, list[Appended]]:
        """The lists that are filled by ``append``, where it is certain what they hold."""
        return appended(self.program, self.place, self.definitions)

    def place(self, expr: ir.Expr, function: str) -> Place | None:
        """What a variable or attribute is known by, wherever it is named."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            return None if owner is None else (owner, expr.id)
        if isinstance(expr, ir.Attr):
            classes = self.program.instance_classes(expr.value, function)
            if len(classes) == 1:
                return self.holder(next(iter(classes)), expr.attr), expr.attr
        return None

    def holder(self, class_name: str, attr: str) -> str:
        """The topmost class here that sets an attribute, so that subclasses share it."""
        asked = (class_name, attr)
        if asked not in self._holders:
            self._holders[asked] = self._find_holder(class_name, attr)
        return self._holders[asked]

    def _find_holder(self, class_name: str, attr: str) -> str:
        bases = self.program.bases(class_name)
        for base in reversed(bases):
            if self._sets(base, attr):
                return base
        # A mixin knows what the classes set that it is mixed into: one, or the base of all.
        beside = {
            self.holder(other, attr)
            for other in self.program.family(class_name)
            if other not in bases and self._sets(other, attr)
        }
        return beside.pop() if len(beside) == 1 else class_name

    def _sets(self, class_name: str, attr: str) -> bool:
        """Whether a method of a class itself sets an attribute of its instance."""
        for _, method in self.program.classes[class_name].methods:
            function = self.program.functions[method]
            wanted = ir.Attr(ir.Name(function.self_name or "?"), attr)
            for stmt in ir.statements(function.body):
                if any(wanted in ir.walk(target) for target in stmt.targets):
                    return True
        return False

    def element(self, expr: ir.Expr, key: Key, function: str) -> ir.Expr | None:
        """What a collection that is written out holds under a key."""
        return self.elements(expr, function).get(key)

    def elements(self, expr: ir.Expr | None, function: str) -> dict[Key, ir.Expr]:
        """The elements of a collection that is written out, by their keys."""
        asked = (id(expr), function)
        if asked not in self._elements:
            found = dict(self._written_out(expr, function))
            self._elements[asked] = expr, found
        return self._elements[asked][1]

    def _written_out(
        self, expr: ir.Expr | None, function: str
    ) -> Iterator[tuple[Key, ir.Expr]]:
        match expr:
            case ir.Display(kind="dict", items=items, keys=keys):
                # What `**more` brings may take the place of what stands before it.
                known = 1 + max(
                    (i for i, k in enumerate(keys) if k is None), default=-1
                )
                for dict_key, item in zip(keys[known:], items[known:], strict=True):
                    if isinstance(dict_key, ir.Const) and isinstance(
                        dict_key.value, (str, int)
                    ):
                        yield dict_key.value, item
            case ir.Display(kind="list" | "tuple", items=items):
                for position, item in enumerate(items):
                    if isinstance(item, ir.Operation) and item.op == "starred":
                        break
                    yield position, item
            case ir.Call(func=func, args=args):
                if self.program.origin(func, function) in _DICTS:
                    for arg in args:
                        if arg.name is not None:
                            yield arg.name, arg.value
                for ref in self.program.resolve(func, function):
                    if ref.kind == "class" and self.program.is_named_tuple(ref.name):
                        fields = self.program.written_fields(ref.name)
                        for place, field in enumerate(fields):
                            value = expr.argument(place, field)
                            if value is not None:
                                yield place, value

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
        owner, name = place
        given: list[ir.Expr] = []
        begun: ir.Path = ()
        for made in self.program.definitions(owner, name):
            assert isinstance(made.value, ir.Call)
            begun = made.stmt.path
            given += [arg.value for arg in made.value.args if arg.name == attr]
        for holder, one in self.program.attribute_targets.get(attr, ()):
            at = self.namespace(holder, one.function)
            own = self.program.self_class(one.function)
            of_self = own is not None and holder == ir.Name(own[0])
            if at != place and (at is not None or of_self):
                continue
            # What may be the same one under another name is given it as well.
            target = ir.Attr(ir.Name(name), attr)
            plain = one.stmt.kind == "assign" and one.stmt.targets == (target,)
            if at is None or one.function != owner or not plain or one.value is None:
                return False
            if not _is_behind(one.stmt.path, begun):
                return False
            given.append(one.value)
        # `state.state = SGD(...)` looks like the attribute of some object that has that name.
        return attr != name and len([v for v in given if v != ir.Const(None)]) == 1

    def namespace(self, expr: ir.Expr, function: str) -> Place | None:
        """The variable that a namespace is made for which an expression stands for: that one always."""
        if not isinstance(expr, ir.Name):
            return None
        if self.program.elsewhere(expr, function) is not None:
            return None
        owner = self.program.owner(expr.id, function)
        if owner is None or ir.file_of(owner) != ir.file_of(function):
            return None
        asked = owner, expr.id
        if asked not in self._namespaces:
            self._namespaces[asked] = None  # A function that calls itself.
            self._namespaces[asked] = self._find_namespace(owner, expr.id)
        found = self._namespaces[asked]
        if found is None:
            return None
        here = function, expr.id
        if here not in self._hidden:
            self._hidden[here] = _hides(self.program.functions[function], expr.id)
        return None if self._hidden[here] else found

    def _find_namespace(self, owner: str, name: str) -> Place | None:
        program = self.program
        found = program.definitions(owner, name)
        if any(param.name == name for param in program.functions[owner].params):
            return None if found else self._handed_namespace(owner, name)
        match [(one.function, one.stmt, one.value) for one in found]:
            case [(at, stmt, ir.Call(func=func, args=args) as call)] if (
                (at, stmt.kind, stmt.targets) == (owner, "assign", (ir.Name(name),))
                and stmt.value is call
                and program.origin(func, owner) in _NAMESPACES
                and all(arg.name is not None for arg in args)
                and not self._finds_by_text
            ):
                return owner, name
        return None

    @cached_property
    def _finds_by_text(self) -> bool:
        """Whether the program may come by any variable under a name that is put together as it runs."""
        return any(
            call.func == ir.Name(name)
            for name in ("exec", "eval", "globals", "locals")
            for _, _, call in self.program.calls_named(name)
        )

    def _handed_namespace(self, function: str, name: str) -> Place | None:
        """The one that all calls of a function give it for a parameter."""
        program = self.program
        if function in program.escaping or program.is_public(function):
            return None
        places: set[Place | None] = set()
        for site in program.call_sites.get(function, ()):
            given = program.argument_at(site, name)
            starred = any(arg.star for arg in site.call.args)
            if given is None or starred:
                return None
            places.add(self.namespace(given, site.caller))
        return places.pop() if len(places) == 1 else None

    def begins_empty(self, expr: ir.Expr, function: str) -> bool:
        """``dict()``, ``{}``: what it holds is put there later."""
        if isinstance(expr, ir.Call):
            made = self.program.origin(expr.func, function)
            return made in _DICTS and not expr.args
        return isinstance(expr, ir.Display) and not expr.items

    def keys(self, expr: ir.Expr, function: str, depth: int = 0) -> tuple[Key, ...]:
        """The keys of a collection's elements; `ANY` where it is not written out."""
        if depth > _MOST_LEVELS:
            return ()
        # Functions that hand a parameter on to each other have very many ways to the same question.
        asked = (function, expr, depth)
        if asked not in self._keys:
            # For what is made of itself.
            self._keys[asked] = (ANY,)
            self._keys[asked] = self._find_keys(expr, function, depth)
        return self._keys[asked]

    def _find_keys(self, expr: ir.Expr, function: str, depth: int) -> tuple[Key, ...]:
        if isinstance(expr, ir.Comprehension):
            return (ANY,)
        found = dict.fromkeys(self.elements(expr, function))
        found.update({key: None for key, _ in self.stored(expr, function)})
        for definition in self.definitions(expr, function):
            if definition.value is not None and definition.index is None:
                inner = self.keys(definition.value, definition.function, depth + 1)
                found.update(dict.fromkeys(inner))
            elif definition.stmt.kind == "for" and isinstance(expr, ir.Name):
                stmt, at = definition.stmt, definition.function
                through = self.iterated(stmt, expr.id, at)
                for where, value in self._all_in(through, at, depth + 1):
                    found.update(dict.fromkeys(self.keys(value, where, depth + 1)))
        if isinstance(expr, ir.Item):
            for where, value in self._all_in(expr.value, function, depth + 1):
                found.update(dict.fromkeys(self.keys(value, where, depth + 1)))
        if isinstance(expr, ir.Call):
            for at, returned in self.program.returns(expr, function):
                found.update(dict.fromkeys(self.keys(returned, at, depth + 1)))
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            params = self.program.functions[owner].params if owner is not None else ()
            if owner is not None and any(param.name == expr.id for param in params):
                for caller, given in self.program.arguments(owner, expr.id):
                    found.update(dict.fromkeys(self.keys(given, caller, depth + 1)))
            for param in params:
                if param.name == expr.id and param.kind in ("*", "**"):
                    assert owner is not None
                    found.update(self._given_along(owner, param.kind, depth))
        return tuple(found)

    def _all_in(
        self, expr: ir.Expr | None, function: str, depth: int
    ) -> Iterator[tuple[str, ir.Expr]]:
        """What a collection holds, where it is written out or filled in sight."""
        if expr is None or depth > _MOST_LEVELS:
            return
        for value in self.elements(expr, function).values():
            yield function, value
        for _, one in self.stored(expr, function):
            if one.value is not None:
                yield one.function, one.value
        for one in self.definitions(expr, function):
            if one.index is None:
                yield from self._all_in(one.value, one.function, depth + 1)
        if isinstance(expr, ir.Comprehension):
            yield function, expr.elements[-1]
        if isinstance(expr, ir.Call):
            for at, returned in self.program.returns(expr, function):
                yield from self._all_in(returned, at, depth + 1)
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            for caller, given in (
                self.program.arguments(owner, expr.id) if owner else ()
            ):
                yield from self._all_in(given, caller, depth + 1)

    def _given_along(
        self, function: str, kind: str, depth: int
    ) -> Iterator[tuple[Key, None]]:
        """The keys of what calls give to ``*args`` or ``**options``, beside the other parameters."""
        params = self.program.functions[function].params
        own = [param.name for param in params if param.kind == "positional"]
        for site in self.program.call_sites.get(function, ()):
            beside = len(own) - site.bound_self
            plain = [arg for arg in site.call.args if arg.name is None]
            for position, arg in enumerate(plain[beside:] if kind == "*" else ()):
                if arg.star:
                    break
                yield position, None
            for arg in site.call.args if kind == "**" else ():
                if arg.star == "**":
                    for key in self.keys(arg.value, site.caller, depth + 1):
                        yield key, None
                elif arg.name is not None and arg.name not in own:
                    yield arg.name, None

    def iterated(self, stmt: ir.Stmt, name: str, function: str) -> ir.Expr | None:
        """The collection whose elements a ``for`` binds to a variable, one after the other."""
        if stmt.kind != "for" or len(stmt.targets) != 1 or stmt.value is None:
            return None
        return self.gone_through(stmt.targets[0], stmt.value, name, function)

    def turns(
        self, stmt: ir.Stmt, name: str, function: str
    ) -> tuple[ir.Expr, tuple[Key, ...]] | None:
        """The collection that a ``for`` goes through, and what it takes out of each element for a
        variable."""
        found = self.iterated(stmt, name, function)
        if found is not None:
            return found, ()
        if stmt.kind != "for" or len(stmt.targets) != 1:
            return None
        target, through = stmt.targets[0], stmt.value
        match target, through:
            case ir.Display(items=(_, ir.Display() as inner)), ir.Call(func, args):
                if self.program.origin(func, function) == "builtins.enumerate":
                    target, through = inner, args[0].value if args else None
                elif isinstance(func, ir.Attr) and func.attr == "items" and not args:
                    target, through = inner, func.value
        if not isinstance(target, ir.Display):
            return None
        if isinstance(through, (ir.Name, ir.Attr)) and ir.Name(name) in target.items:
            return through, (target.items.index(ir.Name(name)),)
        return None

    def _is_dict(self, expr: ir.Expr, function: str) -> bool:
        """Whether going through a collection gives its keys."""
        keys = self.keys(expr, function)
        if keys != (ANY,):
            return bool(keys) and all(isinstance(key, str) for key in keys)
        return any(
            isinstance(d.value, ir.Comprehension) and len(d.value.elements) == 2
            for d in self.definitions(expr, function)
        )

    def turn(self, expr: ir.Item, function: str) -> Turn | None:
        """The loop's variable by which an expression takes out each element of a collection."""
        if not isinstance(expr.key, ir.Name):
            return None
        name = expr.key.id
        owner = self.program.owner(name, function)
        if owner is None:
            return None
        found = self.program.definitions(owner, name)
        params = self.program.functions[owner].params
        if not found or any(param.name == name for param in params):
            return None
        place = self.place(expr.value, function)
        for definition in found:
            through = self._by_key(definition.stmt, name, definition.function)
            if through is None or place is None:
                return None
            if self.place(through, definition.function) != place:
                return None
        return Turn(owner, name)

    def _by_key(self, stmt: ir.Stmt, name: str, function: str) -> ir.Expr | None:
        """The collection whose keys a ``for`` binds to a variable, one after the other."""
        if stmt.kind != "for" or len(stmt.targets) != 1 or stmt.value is None:
            return None
        target, iterable = stmt.targets[0], stmt.value
        while isinstance(iterable, ir.Call) and len(iterable.args) == 1:
            origin = self.program.origin(iterable.func, function)
            if origin not in ("builtins.list", "builtins.sorted", "builtins.tuple"):
                break
            iterable = iterable.args[0].value
        method = ""
        if isinstance(iterable, ir.Call) and isinstance(iterable.func, ir.Attr):
            if not iterable.args:
                method = iterable.func.attr
        if isinstance(target, ir.Display):
            if len(target.items) != 2 or target.items[0] != ir.Name(name):
                return None
            if target.items[1] == ir.Name(name):
                return None
            if method == "items":
                assert isinstance(iterable, ir.Call)
                assert isinstance(iterable.func, ir.Attr)
                return iterable.func.value
            return self._counted(iterable, "builtins.enumerate", function)
        if target != ir.Name(name):
            return None
        if method == "keys":
            assert isinstance(iterable, ir.Call) and isinstance(iterable.func, ir.Attr)
            return iterable.func.value
        if isinstance(iterable, (ir.Name, ir.Attr)):
            return iterable
        length = self._counted(iterable, "builtins.range", function)
        return (
            None if length is None else self._counted(length, "builtins.len", function)
        )

    def _counted(self, expr: ir.Expr, origin: str, function: str) -> ir.Expr | None:
        """The only argument of a call of a function, where an expression is that."""
        if not isinstance(expr, ir.Call) or len(expr.args) != 1:
            return None
        if self.program.origin(expr.func, function) != origin or expr.args[0].name:
            return None
        return expr.args[0].value

    def gone_through(
        self, target: ir.Expr, iterable: ir.Expr, name: str, function: str
    ) -> ir.Expr | None:
        """The same, of what a loop or a comprehension binds and what it goes through."""
        if target == ir.Name(name):
            match iterable:
                case ir.Name() | ir.Attr():
                    return None if self._is_dict(iterable, function) else iterable
                case ir.Display(kind="list" | "tuple"):
                    return iterable
                case ir.Call(func=ir.Attr(value=holder, attr="values"), args=()):
                    return holder
            return None
        if not isinstance(target, ir.Display) or not isinstance(iterable, ir.Call):
            return None
        origin = self.program.origin(iterable.func, function)
        if origin == "builtins.enumerate" and len(target.items) == 2 and iterable.args:
            return self.gone_through(
                target.items[1], iterable.args[0].value, name, function
            )
        if origin == "builtins.zip" and len(target.items) == len(iterable.args):
            for item, arg in zip(target.items, iterable.args, strict=True):
                if item == ir.Name(name):
                    return self.gone_through(item, arg.value, name, function)
            return None
        of_items = isinstance(iterable.func, ir.Attr) and iterable.func.attr == "items"
        if of_items and len(target.items) == 2 and target.items[1] == ir.Name(name):
            assert isinstance(iterable.func, ir.Attr)
            return iterable.func.value
        return None


def _is_behind(path: ir.Path, other: ir.Path) -> bool:
    """Whether a statement stands in the block of another one, behind it."""
    (block, at), (other_block, other_at) = path[-1], other[-1]
    return path[:-1] == other[:-1] and block == other_block and at > other_at


def _hides(function: ir.Function, name: str) -> bool:
    """Whether a comprehension or a lambda of a function has a variable of its own of that name."""
    for stmt in ir.statements(function.body):
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Deferred) and name in inner.params:
                    return True
                if isinstance(inner, ir.Comprehension) and any(
                    ir.Name(name) in ir.walk(target) for target in inner.targets
                ):
                    return True
    return False


def key_of(expr: ir.Expr) -> Key | None:
    """The key by which an expression takes one element out of a collection."""
    match expr:
        case ir.Item(key=ir.Const(value=bool())):
            return None
        case ir.Item(key=ir.Const(value=str() | int() as key)):
            return key
    return None
