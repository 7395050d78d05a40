"""What is put into lists and dicts after they are made, by whatever name they go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.program import ir
from amp_migrate.program.bindings import unpacked
from amp_migrate.program.link import Program, Ref

Place = tuple[str, str]
"""What a variable or attribute is known by, wherever it is named: its owner and its name."""

_POSITIONS = {
    "append": 0,
    "appendleft": 0,
    "put": 0,
    "put_nowait": 0,
    "insert": 1,
    "setdefault": 1,
    "__setitem__": 1,
}
"""Methods that put an element into a collection, and which argument that is."""
_INTO_FIRST = ("heappush", "heappushpop", "insort")
"""Functions that put their second argument into the list that is their first."""
_SPREAD = ("extend", "extendleft")
"""Methods that put all elements of another collection there."""
PUTS = frozenset((*_POSITIONS, *_SPREAD, "update"))
"""Methods that put something into a collection."""
_DICTS = frozenset(("builtins.dict", "collections.OrderedDict"))
_CONTAINERS = frozenset(
    """builtins.list builtins.set collections.deque collections.defaultdict
    torch.nn.ParameterDict torch.nn.ParameterList""".split()
)
_CLASSES = frozenset(f"builtins.{name}" for name in "list dict set".split()) | {
    "collections.deque"
}
_COLLECTIONS = _DICTS | _CONTAINERS
_ATTRIBUTE_DICTS = frozenset(("munch.Munch", "easydict.EasyDict", "addict.Dict"))
"""Dicts of libraries whose items are attributes, too."""
_NAMESPACES = frozenset(("types.SimpleNamespace", "argparse.Namespace"))
"""What has attributes, and nothing else."""
_OF_DICTS = frozenset(dir(dict))


@dataclass(frozen=True, slots=True)
class Put:
    """A value that goes into a collection, under a ``key`` where it is given one, or (``spread``) all of
    whose elements do."""

    value: ir.Expr
    function: str
    stmt: ir.Stmt
    holder: ir.Expr
    spread: bool = False
    key: ir.Expr | None = None
    call: ir.Call | None = None
    """The call that puts it there, where that is none of ``holder[key] = value``."""

    def may_be_under(self, key: object) -> bool:
        """Whether it may be what is found under a key; None: under one that is not in sight."""
        return (
            self.spread
            or not isinstance(self.key, ir.Const)
            or may_be_same(self.key.value, key)
        )


def may_be_same(key: object, other: object) -> bool:
    """Whether two keys may lead to one element; None: one that is not in sight."""
    if isinstance(key, int) and isinstance(other, int) and (key < 0) != (other < 0):
        return True  # One is counted from the end.
    return key == other or key is None or other is None


class Contents:
    """Answers for one program, all of whose names for one object are taken together."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._tops: dict[Place, str] = {}
        self._owners: dict[Place | None, frozenset[str]] = {}
        self._put_into: dict[tuple[Place, bool], list[Put]] = {}

    def place(self, expr: ir.Expr, function: str) -> Place | None:
        """What a variable or attribute is known by."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            if _is_module(self.program.origin(expr, function)):
                return None
            owner = self.program.owner(expr.id, function)
            return None if owner is None else (owner, expr.id)
        if isinstance(expr, ir.Attr):
            classes = self.program.instance_classes(expr.value, function)
            if len(classes) == 1:
                return self.holder(next(iter(classes)), expr.attr), expr.attr
            match [*self.program.resolve(expr.value, function)]:
                case [Ref("class", name)]:
                    return self.holder(name, expr.attr), expr.attr
                case [Ref("function", name)]:
                    return name, f".{expr.attr}"
        return None

    def holder(self, class_name: str, attr: str) -> str:
        """The topmost class here that sets an attribute, so that subclasses share it."""
        asked = (class_name, attr)
        if asked not in self._tops:
            self._tops[asked] = self._find_holder(class_name, attr)
        return self._tops[asked]

    def _find_holder(self, class_name: str, attr: str) -> str:
        setting: set[str] = self._setting.get(attr, set())
        bases = self.program.bases(class_name)
        for base in reversed(bases):
            if base in setting:
                return base
        # A mixin knows what the classes set that it is mixed into: one, or the base of all.
        beside = {
            self.holder(other, attr)
            for other in setting & self.program.family(class_name)
        }
        return beside.pop() if len(beside) == 1 else class_name

    @cached_property
    def _setting(self) -> dict[str, set[str]]:
        """By attribute, the classes of which a method itself sets it on its instance."""
        found: dict[str, set[str]] = defaultdict(set)
        for class_name, facts in self.program.classes.items():
            for _, method in facts.methods:
                itself = ir.Name(self.program.functions[method].self_name or "?")
                for stmt in self.program.statements(method):
                    for target in stmt.targets:
                        for inner in ir.walk(target):
                            if isinstance(inner, ir.Attr) and inner.value == itself:
                                found[inner.attr].add(class_name)
        return found

    # -- what has items that are attributes ----------------------------------------------------

    def makes_dict(self, func: ir.Expr, function: str) -> bool:
        """Whether what is called makes a dict, or a namespace, of what the call gives it."""
        return self.program.origin(func, function) in _DICTS or any(
            ref.kind != "class" or not self.program.is_named_tuple(ref.name)
            for ref in self._with_attributes_of(func, function)
        )

    def makes_items(self, func: ir.Expr, function: str) -> bool:
        """The same, or a named tuple."""
        return self.makes_dict(func, function) or bool(
            self._with_attributes_of(func, function)
        )

    def _with_attributes_of(self, func: ir.Expr, function: str) -> list[Ref]:
        if not self._with_attributes:
            return []
        return [*filter(self._has_attributes, self.program.resolve(func, function))]

    def item_of(self, expr: ir.Expr, function: str) -> ir.Item | None:
        """``parts["optimizer"]`` for ``parts.optimizer``, where that is the same."""
        if not isinstance(expr, ir.Attr) or not self._with_attributes:
            return None
        refs = self.program.resolve(expr.value, function)
        if expr.attr in _OF_DICTS or expr.attr.startswith("_") or not refs:
            return None
        if not all(map(self._has_attributes, refs)):
            return None
        return ir.Item(expr.value, ir.Const(expr.attr))

    def _has_attributes(self, ref: Ref) -> bool:
        """Whether it is such a class, or an object of one."""
        return ref.name in self._with_attributes

    @cached_property
    def _with_attributes(self) -> frozenset[str]:
        """The classes that are used of which each object has attributes for items: dicts, namespaces and
        named tuples."""
        program = self.program
        named = {
            one: name for name in _ATTRIBUTE_DICTS for one in (name, name.split(".")[0])
        }
        found = program.attribute_dicts | {
            named[target]
            for function in program.functions.values()
            for _, target in function.imports
            if target in named
        }
        if any(
            call.func == ir.Name(name)
            for name in ("exec", "eval", "globals", "locals")
            for _, _, call in program.calls_named(name)
        ):
            return found  # A variable may be set under a name that is put together.
        tuples = {*filter(program.is_named_tuple, program.classes)}
        made = {
            origin
            for name in program.with_aliases({"SimpleNamespace", "Namespace"})
            for function, _, call in program.calls_named(name)
            if (origin := program.origin(call.func, function)) in _NAMESPACES
        }
        return found | tuples | made

    # -- what is put there --------------------------------------------------------------------

    @cached_property
    def puts(self) -> dict[Place, list[Put]]:
        """What is put into what a variable or attribute holds by that name, and no other."""
        found: dict[Place, list[Put]] = defaultdict(list)
        for places in (self._items, self._methods):
            for place, puts in places.items():
                found[place] += [
                    p for p in puts if not isinstance(p.holder, (ir.Item, ir.Call))
                ]
        return found

    def put_into(
        self, expr: ir.Expr, function: str, of_dict: bool = False
    ) -> list[Put]:
        """What is put into what a variable or attribute holds, the same list each time; ``of_dict``: that is
        known to be a dict, be it seen to be made or not."""
        place = self.place(expr, function)
        group = None if place is None else self._groups.get(place)
        if group is None:
            return []
        asked = group, of_dict or group in self._containers
        if asked not in self._put_into:
            stores = self._stores.get(group, []) if asked[1] else []
            self._put_into[asked] = self._puts.get(group, []) + stores
        return self._put_into[asked]

    def together(self, place: Place | None) -> frozenset[Place]:
        """All places that may hold the same collection as one of them."""
        return frozenset(
            self._members.get(self._groups.get(place), ()) if place else ()
        )

    @cached_property
    def _members(self) -> dict[Place | None, list[Place]]:
        found: dict[Place | None, list[Place]] = defaultdict(list)
        for place, group in self._groups.items():
            found[group].append(place)
        return found

    def owners(self, expr: ir.Expr, function: str) -> frozenset[str]:
        """The functions that know a collection under a name, where each run of the outermost of them makes it
        anew and hands it only to the others; none where it may be another run's, or anybody else's.
        """
        place = self.place(expr, function)
        group = None if place is None else self._groups.get(place, place)
        if group not in self._owners:
            places = self.together(place) or frozenset({place} if place else ())
            owners = frozenset(owner for owner, _ in places)
            local = all(self._is_local(*one, places, owners) for one in places)
            self._owners[group] = owners if local else frozenset()
        return self._owners[group]

    def _is_local(
        self, owner: str, name: str, places: frozenset[Place], owners: frozenset[str]
    ) -> bool:
        """Whether a variable of a function holds nothing but a collection that it, or one of its callers,
        has made in the same run."""
        program = self.program
        scope = program.functions.get(owner)
        if (
            scope is None
            or ir.is_top(owner)
            or scope.is_generator
            or any(
                where != owner
                for where, _ in program.mentioning(name)
                if program.owner(name, where) == owner
            )
        ):
            return False

        def is_given(value: ir.Expr | None, where: str) -> bool:
            match value:
                case ir.Display() | ir.Comprehension():
                    return True
                case ir.Name():
                    return self.place(value, where) in places
                case ir.Call():
                    callees = program.callees(value, where)
                    return program.origin(value.func, where) in _CONTAINERS or (
                        bool(callees)
                        and owners.issuperset(callees)
                        and all(
                            isinstance(given, ir.Name)
                            and self.place(given, callee) in places
                            for callee, given in program.returns(value, where)
                        )
                    )
            return False

        sites = program.call_sites.get(owner, [])
        param = next((p for p in scope.params if p.name == name), None)
        # A method is not got at by the name of its file.
        by_name = program.escaping if scope.class_name is None else program.taken
        if param is not None and not (
            sites
            and owner not in by_name
            and param.kind == "positional"
            and all(is_given(program.argument_at(s, name), s.caller) for s in sites)
        ):
            return False
        return all(
            made.stmt.kind == "assign"
            and made.index is None
            and is_given(made.value, made.function)
            for made in program.definitions(owner, name)
        )

    def is_made_anew(self, expr: ir.Expr, function: str) -> bool:
        """Whether each call of a function has a collection of its own, which nothing else names."""
        place = self.place(expr, function)
        return (
            isinstance(expr, ir.Name)
            and place == (function, expr.id)
            and not ir.is_top(function)
            and not self.program.is_param(function, expr.id)
            and self._names_of_one[self._groups.get(place, place)] < 2
        )

    @cached_property
    def _names_of_one(self) -> Counter[Place]:
        """For each group, how many places may hold its object."""
        return Counter(self._groups.values())

    @cached_property
    def _groups(self) -> dict[Place, Place]:
        """For each place one that stands for all that may hold the same object."""
        above: dict[Place, Place] = {}

        def top(place: Place) -> Place:
            while above.setdefault(place, place) != place:
                # On the way, what is passed is put nearer to the top.
                above[place] = place = above[above[place]]
            return place

        for one, value, function in self._named:
            other = self.place(value, function)
            if other is not None:
                above[top(one)] = top(other)
        for place in (*self._methods, *self._items):
            top(place)
        for one, outer, function in self._elements:
            other = self.place(outer, function)
            if other is not None and (one in self._methods or one in self._items):
                # What is put into an element is in the whole.
                above[top(one)] = top(other)
        return {place: top(place) for place in list(above)}

    @cached_property
    def _named(self) -> list[tuple[Place, ir.Expr, str]]:
        """Places that are given what another variable or attribute holds."""
        found: list[tuple[Place, ir.Expr, str]] = []
        for function, stmt in self._statements():
            for target, value, index in unpacked(stmt):
                if index is None and isinstance(value, (ir.Name, ir.Attr)):
                    place = self.place(target, function)
                    if place is not None:
                        found.append((place, value, function))
        for callee, sites in self.program.call_sites.items():
            for param in self.program.functions[callee].params:
                for site in sites:
                    value = self.program.argument_at(site, param.name)
                    if isinstance(value, (ir.Name, ir.Attr)):
                        found.append(((callee, param.name), value, site.caller))
        return found

    @cached_property
    def _elements(self) -> list[tuple[Place, ir.Expr, str]]:
        """Places that are given an element of what another variable or attribute holds."""
        found: list[tuple[Place, ir.Expr, str]] = []
        for function, stmt in self._statements():
            for target, value, _ in unpacked(stmt):
                whole = stmt.value if stmt.kind == "for" else value
                if not isinstance(whole, (ir.Item, ir.Call, ir.Name)):
                    continue
                if stmt.kind != "for" and not isinstance(whole, ir.Item):
                    continue
                place = self.place(target, function)
                if place is None:
                    continue
                for inner in ir.walk(whole):
                    if isinstance(inner, (ir.Name, ir.Attr)):
                        found.append((place, inner, function))
        return found

    def _statements(self) -> Iterator[tuple[str, ir.Stmt]]:
        for qualname in self.program.functions:
            for stmt in self.program.statements(qualname):
                yield qualname, stmt

    def _grouped(self, found: dict[Place, list[Put]]) -> dict[Place, list[Put]]:
        grouped: dict[Place, list[Put]] = defaultdict(list)
        for place, puts in found.items():
            grouped[self._groups[place]] += puts
        return grouped

    @cached_property
    def _puts(self) -> dict[Place, list[Put]]:
        return self._grouped(self._methods)

    @cached_property
    def _stores(self) -> dict[Place, list[Put]]:
        return self._grouped(self._items)

    @cached_property
    def _methods(self) -> dict[Place, list[Put]]:
        return self._by_place(self._by_method)

    def _by_place(self, puts: Iterable[Put]) -> dict[Place, list[Put]]:
        found: dict[Place, list[Put]] = defaultdict(list)
        for put in puts:
            place = self._holder(put.holder, put.function)
            if place is not None:
                found[place].append(put)
        return found

    @cached_property
    def _by_method(self) -> list[Put]:
        found: list[Put] = []
        for function, stmt in self._statements():
            if stmt.kind == "augassign" and isinstance(stmt.value, ir.Display):
                # log["h"] += [h]
                for target in stmt.targets:
                    if isinstance(target, ir.Item):
                        found.append(
                            Put(stmt.value, function, stmt, target.value, True)
                        )
        for name in _INTO_FIRST:
            for function, stmt, call in self.program.calls_named(name):
                if len(call.args) > 1:
                    into, value = (arg.value for arg in call.args[:2])
                    found.append(Put(value, function, stmt, into, call=call))
        for name, function, stmt, call, holder, args in self._put_calls():
            position = _POSITIONS.get(name, 0)
            if len(args) > position:
                value, spread = args[position].value, name in _SPREAD
                key = args[0].value if position and name != "insert" else None
                found.append(Put(value, function, stmt, holder, spread, key, call))
        return found

    def _put_calls(
        self,
    ) -> Iterator[tuple[str, str, ir.Stmt, ir.Call, ir.Expr, tuple[ir.Arg, ...]]]:
        """What puts something into a collection by a method, the collection, and what the method is given:
        ``kept.append(h)``, ``list.append(kept, h)``, ``add(h)`` after ``add = kept.append``.
        """
        program, names = self.program, (*_POSITIONS, *_SPREAD)
        for name in names:
            for function, stmt, call in program.calls_named(name):
                match call:
                    case ir.Call(
                        func=ir.Attr(value=kind), args=(ir.Arg(value=held), *rest)
                    ) if (program.origin(kind, function) in _CLASSES):
                        yield name, function, stmt, call, held, tuple(rest)
                    case ir.Call(func=ir.Attr(value=held)):
                        yield name, function, stmt, call, held, call.args
        for function, stmt, call in program.calls_named("map"):
            match call.args:
                case (ir.Arg(value=ir.Attr(value=held, attr=name)), ir.Arg() as each):
                    if name in names:  # map(kept.append, halves)
                        yield "extend", function, stmt, call, held, (each,)
        for where, made in program.mentioning(*names):
            match made:
                case ir.Stmt(
                    kind="assign",
                    targets=(ir.Name(id=alias),),
                    value=ir.Attr(value=held, attr=name),
                ) if (
                    name in names
                ):
                    for function, stmt, call in program.calls_named(alias):
                        owners = (program.owner(alias, f) for f in (function, where))
                        if call.func == ir.Name(alias) and len({*owners}) == 1:
                            yield name, function, stmt, call, held, call.args

    @cached_property
    def _items(self) -> dict[Place, list[Put]]:
        return self._by_place(self._by_item)

    @cached_property
    def _by_item(self) -> list[Put]:
        """``cache["h"] = h``, ``cache.update(h=h)``: of a tensor, it stays what it is."""
        found: list[Put] = []
        for function, stmt in self._statements():
            for target, value, index in unpacked(stmt):
                target = self.item_of(target, function) or target
                if isinstance(target, ir.Item) and value is not None:
                    spread = index is not None
                    found.append(
                        Put(value, function, stmt, target.value, spread, target.key)
                    )
        for function, stmt, call in self.program.calls_named("update"):
            if isinstance(call.func, ir.Attr):
                holder = call.func.value
                found += (
                    Put(value, function, stmt, holder, True, None, call)
                    for value in _merged(call)
                )
        return found

    @cached_property
    def all(self) -> list[Put]:
        """Whatever is put into what, by a name for it or none: by ``rows += [h]``, too, which else makes
        another list for all that is known."""
        added = [
            Put(stmt.value, function, stmt, target, True)
            for function, stmt in self._statements()
            if stmt.kind == "augassign"
            and isinstance(stmt.value, (ir.Display, ir.Comprehension))
            for target in stmt.targets
            if isinstance(target, (ir.Name, ir.Attr))
        ]
        return [*self._by_method, *self._by_item, *added]

    def _holder(self, expr: ir.Expr, function: str) -> Place | None:
        """What holds a collection, or the collections in it."""
        while True:
            match expr:
                case ir.Item(value=value):
                    expr = value
                case ir.Call(func=ir.Attr(value=value, attr="setdefault")):
                    expr = value
                case _:
                    return self.place(expr, function)

    @cached_property
    def _containers(self) -> set[Place]:
        """The groups that are seen to be collections somewhere."""
        found = set()
        for function, stmt in self._statements():
            for target, value, _ in unpacked(stmt):
                if value is not None and self.is_container(value, function):
                    place = self.place(target, function)
                    if place in self._groups:
                        found.add(self._groups[place])
        for name, one in self.program.classes.items():
            for stmt in one.body:
                for target in stmt.targets if stmt.value else ():
                    if isinstance(target, ir.Name) and stmt.value is not None:
                        place = self.holder(name, target.id), target.id
                        if place in self._groups and self.is_container(
                            stmt.value, ir.top_of(name)
                        ):
                            found.add(self._groups[place])
        # ``**parts`` is a dict of each call's own.
        rest = {
            (name, param.name)
            for name, function in self.program.functions.items()
            for param in function.params
            if param.kind == "**"
        }
        return found | {self._groups[one] for one in rest & self._groups.keys()}

    def is_container(self, value: ir.Expr, function: str) -> bool:
        """Whether an expression makes a collection."""
        match value:
            case ir.Display() | ir.Comprehension():
                return True
            case ir.Operation(op="*", operands=operands):
                return any(isinstance(one, ir.Display) for one in operands)
            case ir.Call(func=func):
                return (
                    self.makes_dict(func, function)
                    or self.program.origin(func, function) in _CONTAINERS
                    or any(
                        self.program.method(ref.name, "__setitem__") is not None
                        or not _COLLECTIONS.isdisjoint(
                            self.program.external_bases(ref.name)
                        )
                        for ref in self.program.resolve(func, function)
                        if ref.kind == "class"
                    )
                )
        return False


def _is_module(origin: str | None) -> bool:
    """Whether what goes by such a name holds nothing that a program puts there: ``np`` and ``torch.nn``."""
    return origin is not None and (
        "." not in origin or origin.startswith(("torch.", "numpy."))
    )


def _merged(call: ir.Call) -> Iterator[ir.Expr]:
    """The mappings that ``update()`` is given; its keywords are one of them."""
    named = [arg for arg in call.args if arg.name is not None]
    yield from (arg.value for arg in call.args if arg.name is None)
    if named:
        keys = tuple(ir.Const(arg.name) for arg in named)
        yield ir.Display("dict", tuple(arg.value for arg in named), keys)
