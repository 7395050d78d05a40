"""Classes, values and calls of a program: who calls whom, and what an expression stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, TypeVar
from zlib import crc32

from amp_migrate.core.closure import reached
from amp_migrate.core.effort import spend
from amp_migrate.core.fixpoint import Fixpoint
from amp_migrate.core.records import quickly_made
from amp_migrate.program import ir
from amp_migrate.program.attribute_dicts import attribute_dicts
from amp_migrate.program.bindings import (
    bindings,
    calls_of,
    each_call,
    parts_of,
    unpacked,
)
from amp_migrate.program.control_flow import ControlFlow
from amp_migrate.program.decorators import KEEPING, only_calls, wrappers
from amp_migrate.program.layout import Layout
from amp_migrate.program.names import Definition, Names


@lru_cache(1 << 16)
def _steady(name: str) -> int:
    """A hash that is the same in each run, and wherever the files lie."""
    return crc32(name.rpartition("/")[2].encode("utf-8", "surrogatepass"))


@quickly_made
@dataclass(frozen=True, slots=True)
class Ref:
    """What an expression is known to stand for.

    ``kind``: ``external`` (a dotted name from an import), ``function`` or ``class`` of this program,
    ``instance`` of such a class, or ``made`` (the result of calling a dotted external name).
    """

    kind: str
    name: str

    def __hash__(self) -> int:
        # Sets of these are gone through, which is to be the same in each run.
        return _steady(self.name) + len(self.kind)


@quickly_made
@dataclass(frozen=True, slots=True)
class CallSite:
    caller: str
    stmt: ir.Stmt
    call: ir.Call
    callee: str
    bound_self: bool
    """Whether the first parameter is filled by the receiver."""


_Answer = TypeVar("_Answer")

_PROPERTIES = frozenset(("builtins.property", "functools.cached_property"))
NAMED_TUPLES = frozenset(("typing.NamedTuple", "collections.namedtuple"))
_MAKES_ANOTHER = ("_replace", "_make")
"""What makes a named tuple otherwise than by a call of its class."""


_READERS = frozenset(
    f"inspect.{name}"
    for name in "getfile getsourcefile getsource getdoc getmodule signature getfullargspec".split()
)
"""They read what is written of a function, and do not call it."""


class Program(Names):
    """The linked facts of some files: scopes, imports, classes and calls among them."""

    def __init__(
        self, modules: Iterable[ir.ModuleFacts], layout: Layout | None = None
    ) -> None:
        """``layout`` tells which of the files an import means; without it each stands alone."""
        super().__init__(modules, layout)
        self.whole: Program | None = None
        """The program of which this one lacks what some methods do."""
        self._answers: Fixpoint[tuple[Any, ...], Any] = Fixpoint(
            lambda key: key[0](self, *key[1:]), (), _joined, lasting=True
        )
        """What some methods find, by the method and what it is asked: each may ask for any other, and for
        itself. ``()``: nothing yet."""
        self._externals: dict[str, frozenset[Ref]] = {}
        self._self_classes: dict[str, tuple[str, str] | None] = {}
        self._named_targets: dict[str, list[tuple[ir.Expr, Definition]]] = {}
        self._sites: dict[int, dict[str, list[CallSite]]] = {}
        """By the identity of a call, and the function that it runs."""
        self._only_read: dict[tuple[str, str], bool] = {}
        self._followed: dict[tuple[str, str], bool] = {}
        self._own_methods: dict[str, dict[str, str]] = {}
        """By class, its methods by their names; of several of one name, the last."""
        self._positionals: dict[str, tuple[str, ...]] = {}
        self._noted: dict[Callable[[Program], object], object] = {}
        self._control: dict[str, ControlFlow] = {}
        self._said: dict[str, bool] = {}

    def noted(self, look: Callable[[Program], _Answer]) -> _Answer:
        """What one look at all of the program finds, which is taken once."""
        if look not in self._noted:
            self._noted[look] = look(self)
        return self._noted[look]  # type: ignore[return-value]

    def control(self, function: str) -> ControlFlow:
        """The control flow of a function."""
        if function not in self._control:
            self._control[function] = ControlFlow(self.functions[function])
        return self._control[function]

    # -- attributes ---------------------------------------------------------------------------

    def definitions_of(self, expr: ir.Expr, function: str) -> list[Definition]:
        """Every statement that gives the variable or attribute that an expression names a value."""
        expr, function = self.elsewhere(expr, function) or (expr, function)
        if isinstance(expr, ir.Name):
            return self.defined(expr.id, function)
        found: list[Definition] = []
        if isinstance(expr, ir.Attr):
            for class_name in self.instance_classes(expr.value, function):
                found += self.attribute_definitions(class_name, expr.attr)
        return found

    def attribute_definitions(self, class_name: str, attr: str) -> list[Definition]:
        """Every ``self.attr = ...`` in the methods of a class, its bases and its subclasses here."""
        family = self.family(class_name)
        known = self._answers.of((Program._set_attributes, attr)) or {}
        owners = family & known.keys()
        spend(sum(len(known[owner]) for owner in owners))
        found = [one for owner in owners for one in known[owner]]
        if len(owners) > 1:
            found.sort(key=itemgetter(0))
        definitions = [definition for _, definition in found]
        for related in sorted(family & self._with_fields.keys()):
            fields = self._with_fields[related]
            if attr in fields:
                definitions += self._given_to_field(related, fields.index(attr), attr)
        return definitions

    @cached_property
    def _with_fields(self) -> dict[str, tuple[str, ...]]:
        """Of the classes that have such: see `written_fields`."""
        found = {name: self.written_fields(name) for name in self.classes}
        return {name: fields for name, fields in found.items() if fields}

    def fields(self, class_name: str) -> tuple[str, ...]:
        """The fields of a dataclass without bases, which has room for more; none of any other class."""
        if self.is_named_tuple(class_name):
            return ()
        return self.written_fields(class_name)

    def written_fields(self, class_name: str) -> tuple[str, ...]:
        """The fields of a dataclass without bases, or of a named tuple that is nothing else, in order;
        none of any other class."""
        found = self.classes[class_name]
        made = any(
            self.origin(d.func if isinstance(d, ir.Call) else d, found.parent)
            == "dataclasses.dataclass"
            for d in found.decorators
        )
        if not self.is_named_tuple(class_name) and (not made or found.bases):
            return ()
        return self.annotated(class_name)

    def is_named_tuple(self, class_name: str) -> bool:
        """Whether a class is a named tuple that has fields, and nothing else, and is only made
        by calling it."""
        found = self.classes[class_name]
        return (
            len(found.bases) == 1
            and self.origin(found.bases[0], found.parent) in NAMED_TUPLES
            and not found.decorators
            and not any(self._says_attribute(name) for name in _MAKES_ANOTHER)
            and all(
                stmt.kind in ("annassign", "pass")
                or (stmt.kind == "expr" and isinstance(stmt.value, ir.Const))
                for stmt in found.body
            )
        )

    def _says_attribute(self, name: str) -> bool:
        """Whether any file speaks of an attribute, or in quotes of its name."""
        if name not in self._said:
            self._said[name] = any(
                name in facts.identifiers or name in facts.strings
                for facts in self.modules.values()
            )
        return self._said[name]

    def _given_to_field(
        self, class_name: str, position: int, name: str
    ) -> Iterator[Definition]:
        for function, stmt, call in self._calls_by_name.get(
            self.classes[class_name].name, []
        ):
            if Ref("class", class_name) in self.resolve(call.func, function):
                value = call.argument(position, name)
                default = None
                if value is None and not any(arg.star for arg in call.args):
                    default = self._field_default(class_name, name)
                yield default or Definition(function, stmt, value, None, call)
        for function, stmt, call in self._calls_by_name.get("replace", []):
            if self.origin(call.func, function) == "dataclasses.replace":
                for arg in call.args:
                    if arg.name == name:
                        yield Definition(function, stmt, arg.value, None, call)

    def _field_default(self, class_name: str, name: str) -> Definition | None:
        """What a field has that is given nothing: ``k: Tensor = field(default_factory=lambda: zeros(3))``."""
        facts = self.classes[class_name]
        for stmt in facts.body:
            value = stmt.value
            if stmt.kind != "annassign" or stmt.targets != (ir.Name(name),):
                continue
            if isinstance(value, ir.Call) and (
                self.origin(value.func, facts.parent) == "dataclasses.field"
            ):
                given = {arg.name: arg.value for arg in value.args}
                factory = given.get("default_factory")
                value = given.get("default")
                if isinstance(factory, ir.Deferred):
                    value = factory.body
            if value is not None:
                return Definition(facts.parent, stmt, value)
        return None

    def _set_attributes(
        self, attr: str
    ) -> dict[str, tuple[tuple[int, Definition], ...]]:
        """By class: each of what sets an attribute of that name, behind its place among all that do."""
        targets = self.attribute_targets.get(attr, ())
        spend(4 * len(targets))
        found: dict[str, list[tuple[int, Definition]]] = defaultdict(list)
        for place, (holder, definition) in enumerate(targets):
            for class_name in self._set_on(holder, definition.function):
                found[class_name].append((place, definition))
        return {owner: tuple(set_here) for owner, set_here in found.items()}

    def _set_on(self, holder: ir.Expr, function: str) -> frozenset[str]:
        """The classes of which an object, or all, is given an attribute."""
        found = self.instance_classes(holder, function)
        return found or self.set_on_class(holder, function)

    def set_on_class(self, holder: ir.Expr, function: str) -> frozenset[str]:
        """The classes that are given an attribute for all of their objects: ``Trainer.criterion = ...``,
        ``type(self).criterion = ...``."""
        match holder:
            case ir.Attr(value=of, attr="__class__"):
                return self.instance_classes(of, function)
            case ir.Call(func=ir.Name(id="type"), args=(ir.Arg(value=of),)):
                return self.instance_classes(of, function)
        refs = self.resolve(holder, function)
        return frozenset(ref.name for ref in refs if ref.kind == "class")

    def _set_by_name(self, attr: str) -> list[Definition]:
        """The variables that become an attribute of an object of which nothing is known."""
        known = self._named_targets.get(attr)
        if known is None:
            # Asked for again and again.
            targets = self.attribute_targets.get(attr, ())
            known = [one for one in targets if isinstance(one[1].value, ir.Name)]
            self._named_targets[attr] = known
        spend(4 * len(known))
        return [d for holder, d in known if not self.resolve(holder, d.function)]

    @cached_property
    def deletions(self) -> list[tuple[str, ir.Stmt]]:
        """The ``del`` statements, each with its function."""
        return [one for one in self.all_statements() if one[1].kind == "delete"]

    @cached_property
    def attribute_targets(self) -> dict[str, list[tuple[ir.Expr, Definition]]]:
        """By attribute: what it is set on, whatever that may be."""
        found = defaultdict(list, {a: [*d] for a, d in self._written_targets.items()})
        for qualname, stmt, given in self.calls_named("locals"):
            function = self.functions[qualname]
            if function.params and self.keeps_locals(stmt, given, qualname):
                itself = ir.Name(function.params[0].name)
                for name in sorted(function.bound - {itself.id}):
                    value, target = ir.Name(name), ir.Attr(itself, name)
                    read = replace(stmt, kind="assign", targets=(target,), value=value)
                    found[name].append((itself, Definition(qualname, read, value)))
        return found

    def keeps_locals(self, stmt: ir.Stmt, given: ir.Call, function: str) -> bool:
        """Whether a statement makes attributes of ``locals()``: ``self.__dict__.update(locals())``, a loop
        over its items, a call of what does so with its first argument."""
        done = [*ir.statements((stmt,))] if stmt.kind == "for" else []
        for call in calls_of(stmt):
            if call.args and call.args[0].value is given:
                if _sets_attributes(call):
                    return True
                done += (
                    inner
                    for ref in self.resolve(call.func, function)
                    if isinstance(call.func, ir.Name) and ref.kind == "function"
                    for inner in self.statements(ref.name)
                )
        return any(_sets_attributes(call) for inner in done for call in calls_of(inner))

    # -- classes ------------------------------------------------------------------------------

    def self_class(self, function: str) -> tuple[str, str] | None:
        """(name of the instance, class) as a method, or a function nested in one, sees it."""
        if function not in self._self_classes:
            self._self_classes[function] = self._find_self_class(function)
        return self._self_classes[function]

    def class_of_self(self, expr: ir.Expr | None, function: str) -> str | None:
        """The class whose method has its own object by an expression: ``self``; None of any other."""
        own = self.self_class(function)
        return own[1] if own is not None and expr == ir.Name(own[0]) else None

    def _find_self_class(self, function: str) -> tuple[str, str] | None:
        current: str | None = function
        while current is not None:
            scope = self.functions[current]
            if scope.self_name is not None and scope.class_name is not None:
                return scope.self_name, scope.class_name
            current = scope.parent
        return None

    def instance_classes(self, expr: ir.Expr, function: str) -> frozenset[str]:
        """Classes of this program that ``expr`` may be an instance of."""
        own = self.self_class(function)
        if own is not None and isinstance(expr, ir.Name) and expr.id == own[0]:
            return frozenset((own[1],))
        return frozenset(
            r.name for r in self.resolve(expr, function) if r.kind == "instance"
        )

    def bases(self, class_name: str) -> tuple[str, ...]:
        """The classes of this program that a class derives from, itself first."""
        found: tuple[str, ...] = self._answers.of((Program._find_bases, class_name))
        return found

    def _find_bases(self, class_name: str) -> tuple[str, ...]:
        seen: dict[str, None] = {}
        pending = [class_name]
        while pending:
            current = pending.pop(0)
            if current in seen or current not in self.classes:
                continue
            seen[current] = None
            found = self.classes[current]
            for base in found.bases:
                pending += [
                    r.name
                    for r in self.resolve(base, found.parent)
                    if r.kind == "class"
                ]
        return tuple(seen)

    def external_bases(self, class_name: str) -> frozenset[str]:
        """Dotted names of the bases that are not of this program; ``?`` for unreadable ones."""
        return (
            self._answers.of((Program._find_external_bases, class_name)) or frozenset()
        )

    def _find_external_bases(self, class_name: str) -> frozenset[str]:
        found: set[str] = set()
        for current in self.bases(class_name):
            facts = self.classes[current]
            for base in facts.bases:
                if any(ref.kind == "class" for ref in self.resolve(base, facts.parent)):
                    continue
                found.add(self.origin(base, facts.parent) or "?")
        return frozenset(found - {"builtins.object"})

    def family(self, class_name: str) -> frozenset[str]:
        """A class with its bases, its subclasses here, and what else these derive from."""
        return self._answers.of((Program._find_family, class_name)) or frozenset()

    def _find_family(self, class_name: str) -> frozenset[str]:
        related = set(self.bases(class_name))
        for other in self._descendants.get(class_name, ()):
            related |= set(self.bases(other))
        return frozenset(related)

    def related(self, scope: str) -> frozenset[str]:
        """The family of a class; of a function, that alone."""
        return self.family(scope) if scope in self.classes else frozenset((scope,))

    @property
    def _descendants(self) -> dict[str, tuple[str, ...]]:
        """By class: itself and those that derive from it, in the order of the program."""
        return self._answers.of((Program._find_descendants,)) or {}

    def _find_descendants(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.classes:
            for one in self.bases(name):
                found[one].append(name)
        return {name: tuple(derived) for name, derived in found.items()}

    def method(self, class_name: str, name: str) -> str | None:
        """Qualified name of the method that ``instance.name`` finds in this program."""
        for current in self.bases(class_name):
            if current not in self._own_methods:
                self._own_methods[current] = dict(self.classes[current].methods)
            if name in self._own_methods[current]:
                return self._own_methods[current][name]
        return None

    def is_property(self, method: str) -> bool:
        """Whether to take a method out of an object is to call it."""
        return any(
            self.origin(decorator, method) in _PROPERTIES
            for decorator in self.functions[method].decorators
        )

    def behind_property(
        self, expr: ir.Attr, function: str
    ) -> list[tuple[str, ir.Stmt, ir.Expr]]:
        """What the properties return that an attribute may be, each with its function and statement."""
        getters = {
            method: None
            for class_name in sorted(self.instance_classes(expr.value, function))
            for method in self.methods(class_name, expr.attr, True)
            if self.is_property(method)
        }
        return [
            (getter, stmt, stmt.value)
            for getter in getters
            for stmt in self.statements(getter)
            if stmt.kind == "return" and stmt.value is not None
        ]

    def methods(self, class_name: str, name: str, overridden: bool) -> list[str]:
        """The methods that a lookup may find: with ``overridden``, those of subclasses too.

        What a method calls on its own instance may be a subclass's; a method that has no body of its
        own is only a promise of those.
        """
        found = [self.method(class_name, name)]
        if overridden:
            found += [
                self.method(other, name)
                for other in self._descendants.get(class_name, ())
            ]
        methods = list(dict.fromkeys(method for method in found if method is not None))
        real = [
            method for method in methods if not _is_abstract(self.functions[method])
        ]
        return real or methods

    # -- values -------------------------------------------------------------------------------

    def resolve(self, expr: ir.Expr, function: str) -> frozenset[Ref]:
        """What an expression is known to stand for; empty where nothing is known."""
        if isinstance(expr, ir.Item):
            if (ir.key_of(expr.value) or "").rpartition(".")[2] not in self._tables:
                if not isinstance(expr.value, ir.Call):
                    return _NOTHING
        elif not isinstance(expr, _RESOLVED):
            return _NOTHING
        key = (Program._resolved, expr, function)
        known: frozenset[Ref] | None = self._answers.settled.get(key)
        if known is not None:
            return known
        if isinstance(expr, (ir.Name, ir.Attr)):
            there = self._import(expr, function)
            if isinstance(there, str):
                several = self.alternatives(expr, function)
                if several:
                    return frozenset().union(*(self.resolve(*one) for one in several))
                known = self._answers.settled[key] = self._external(there)
                return known
            if there is not None:
                return self.resolve(*there)
        return self._answers.of(key) or _NOTHING

    def _resolved(self, expr: ir.Expr, function: str) -> frozenset[Ref]:
        spend(300)
        # To join sets takes none of the time that it takes to put what they hold into another.
        return _NOTHING.union(*self._resolve(expr, function))

    def _external(self, origin: str) -> frozenset[Ref]:
        if origin not in self._externals:
            self._externals[origin] = frozenset((Ref("external", origin),))
        return self._externals[origin]

    def _resolve(self, expr: ir.Expr, function: str) -> Iterator[frozenset[Ref]]:
        match expr:
            case ir.Name(id=name):
                own = self.self_class(function)
                if own is not None and name == own[0]:
                    yield _one("instance", own[1])
                    return
                made = self._class_of_method(name, function)
                if made is not None:
                    yield _one("class", made)
                    return
                owner = self.owner(name, function)
                if owner is not None:
                    yield from self._resolve_variable(owner, name)
            case ir.Attr(value=value, attr=attr):
                own = self.self_class(function)
                if own is not None and _is_super_call(value):
                    for derived in self._descendants.get(own[1], (own[1],)):
                        # What a class is mixed into may have another one behind it.
                        order = self.bases(derived)
                        for base in order[order.index(own[1]) + 1 :]:
                            above = self.method(base, attr)
                            if above is not None:
                                yield _one("function", above)
                                break
                    return
                if attr == "module":
                    yield from self._wrapped(value, function)
                if attr not in self._attribute_names:
                    return
                definitions: dict[int, Definition] = {}
                unset = False
                for ref in self.resolve(value, function):
                    if ref.kind in ("instance", "class"):
                        through_self = own is not None and value == ir.Name(own[0])
                        for method in self.methods(ref.name, attr, through_self):
                            found = Ref("function", method)
                            yield frozenset((found,))
                            if ref.kind == "instance" and self.is_property(method):
                                yield from self._result_of(found)
                        if ref.name in self.attribute_dicts:
                            continue
                        set_here = self.attribute_definitions(ref.name, attr)
                        definitions |= {id(one): one for one in set_here}
                        unset |= not set_here
                        for one in self._class_variables.get(attr, ()):
                            if one[0] in self.family(ref.name):
                                yield self.resolve(one[1], self.classes[one[0]].parent)
                # `for callback in callbacks: callback.learner = self`
                for definition in (
                    *definitions.values(),
                    *(self._set_by_name(attr) if unset else ()),
                ):
                    yield from self._resolve_definition(definition)
            case ir.Item(value=table, key=key):
                yield from self._resolve_entry(table, key, function)
            case ir.Call(
                func=ir.Attr(value=table, attr="get"), args=(first,)
            ) if self.entries(table, function):
                yield from self._resolve_entry(table, first.value, function)
            case ir.Call(func=func):
                called = self.resolve(func, function)
                if Ref("external", "copy.deepcopy") in called:
                    copied = expr.argument(0, "x")
                    if copied is not None:
                        yield self.resolve(copied, function)
                        return
                if isinstance(func, ir.Attr) and func.attr in _RETURNS_SELF:
                    if all(map(self._gives_itself, called)):
                        yield self.resolve(func.value, function)
                        return
                for ref in called:
                    yield from self._result_of(ref)
            case ir.Operation(op="if", operands=(_, body, orelse)):
                yield self.resolve(body, function)
                yield self.resolve(orelse, function)
            case ir.Operation(op="or" | "and", operands=operands):
                for operand in operands:
                    yield self.resolve(operand, function)
            case ir.Walrus(value=value):
                yield self.resolve(value, function)

    @cached_property
    def _class_variables(self) -> dict[str, list[tuple[str, ir.Expr]]]:
        """What bodies of classes give names: ``criterion = nn.BCELoss()``, by name."""
        found: dict[str, list[tuple[str, ir.Expr]]] = defaultdict(list)
        for class_name, facts in self.classes.items():
            for stmt in facts.body:
                if stmt.kind == "assign" and stmt.value is not None:
                    for target in stmt.targets:
                        if isinstance(target, ir.Name):
                            found[target.id].append((class_name, stmt.value))
        return found

    def _wrapped(self, expr: ir.Expr, function: str) -> Iterator[frozenset[Ref]]:
        """What else has the name of a module that runs another: ``net = DataParallel(net)``."""
        refs = self.resolve(expr, function)
        if any(r.kind == "made" and r.name.endswith("DataParallel") for r in refs):
            yield frozenset(ref for ref in refs if ref.kind == "instance")

    def _resolve_entry(
        self, table: ir.Expr, key: ir.Expr, function: str
    ) -> Iterator[frozenset[Ref]]:
        """What is taken out of a table of classes and functions, where each of them is known."""
        entries = self.entries(table, function)
        if isinstance(key, ir.Const):
            entries = [one for one in entries if one[0] == key]
        found = [self.resolve(value, at) for _, value, at in entries]
        if all(found):
            refs = _NOTHING.union(*found)
            if all(ref.kind in ("class", "function", "external") for ref in refs):
                yield refs

    def entries(
        self, table: ir.Expr, function: str
    ) -> list[tuple[ir.Expr, ir.Expr, str]]:
        """(key, value, function) of all that a dict holds that is written out, and has one name by which it
        is only read; or of what is defined or imported in a file that asks for its ``globals()``.
        """
        if isinstance(table, ir.Call):
            is_own = self.origin(table.func, function) == "builtins.globals"
            return self._global_entries(function) if is_own else []
        home = self._home_of(table, function)
        if home is None or self.is_param(*home):
            return []
        match self.definitions(*home):
            case [
                Definition(at, _, ir.Display(kind="dict") as written, None)
            ] if self._is_only_read(*home):
                pairs = zip(written.keys, written.items, strict=True)
                found = [(key, value, at) for key, value in pairs if key is not None]
                return found if len(found) == len(written.keys) else []
        return []

    @cached_property
    def _tables(self) -> frozenset[str]:
        """The names of variables that are given a dict that is written out."""
        return frozenset(
            name
            for (_, name), found in self._definitions.items()
            if any(
                isinstance(one.value, ir.Display) and one.value.kind == "dict"
                for one in found
            )
        )

    def _is_only_read(self, owner: str, name: str) -> bool:
        """Whether a variable holds a table to which no other name leads, and that nothing is put into."""
        if (owner, name) not in self._only_read:
            self._only_read[owner, name] = all(
                self._only_reads(stmt, function, (owner, name))
                for function, stmt in self.mentioning(name)
            )
        return self._only_read[owner, name]

    def _only_reads(self, stmt: ir.Stmt, function: str, home: tuple[str, str]) -> bool:
        """Whether a statement does nothing with a table but bind it, or look into it."""
        written = {id(part) for one in stmt.targets for part in ir.walk(one)}
        fine = {id(stmt.value)} if stmt.kind == "for" else set()
        fine |= {id(one) for one in stmt.targets if isinstance(one, ir.Name)}
        for inner in parts_of(stmt):
            match inner:
                case ir.Item(value=value) if id(inner) not in written:
                    fine.add(id(value))
                case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _LOOKS:
                    fine.add(id(value))
                case ir.Call(func=ir.Name(id=name), args=args) if name in _LOOKS:
                    fine |= {id(arg.value) for arg in args}
                case ir.Operation(op="in" | "not in", operands=(_, value)):
                    fine.add(id(value))
        return all(
            id(inner) in fine or self._home_of(inner, function) != home
            for inner in parts_of(stmt)
        )

    def _is_followed(self, home: tuple[str, str]) -> bool:
        """Whether all that is taken out of a table is called, there or by the one name that it is given."""
        if home not in self._followed:
            self._followed[home] = all(
                self._only_calls(stmt, function, home)
                for function, stmt in self.mentioning(home[1])
            )
        return self._followed[home]

    def _only_calls(self, stmt: ir.Stmt, function: str, home: tuple[str, str]) -> bool:
        """Whether a statement calls what it takes out of a table, or what a variable holds."""
        fine = {id(one) for one in stmt.targets if isinstance(one, ir.Name)}
        for inner in parts_of(stmt):
            taken: ir.Expr | None = None
            match inner:
                case ir.Call(func=func):
                    fine.add(id(func))
                    if isinstance(func, ir.Attr):
                        fine |= {id(func.value)} if func.attr == "keys" else set()
                        taken = func.value if func.attr == "get" else None
                    elif isinstance(func, ir.Name) and func.id in _LOOKS:
                        fine |= {id(arg.value) for arg in inner.args}
                case ir.Operation(op="in" | "not in", operands=(_, value)):
                    fine.add(id(value))
                case ir.Item(value=taken):
                    pass
            if taken is not None and self._home_of(taken, function) == home:
                fine.add(id(taken))
                if id(inner) not in fine and not self._is_called_by_name(
                    stmt, inner, function
                ):
                    return False
        return all(
            id(inner) in fine or self._home_of(inner, function) != home
            for inner in parts_of(stmt)
        )

    def _is_called_by_name(self, stmt: ir.Stmt, taken: ir.Expr, function: str) -> bool:
        """``Trainer = TRAINERS[name]``, and nothing else with it than ``Trainer(model)``."""
        match stmt:
            case ir.Stmt(
                kind="assign", targets=(ir.Name() as target,), value=value
            ) if (
                value is taken and (home := self._home_of(target, function)) is not None
            ):
                return self._is_followed(home)
        return False

    def _home_of(self, expr: ir.Expr, function: str) -> tuple[str, str] | None:
        """The scope of the variable that an expression names, and its name there."""
        there = self.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            owner = self.owner(expr.id, function)
            return None if owner is None else (owner, expr.id)
        return None

    def _global_entries(self, function: str) -> list[tuple[ir.Expr, ir.Expr, str]]:
        """What the names of a function's file stand for, but for modules, plain values and itself."""
        facts = self.modules[ir.file_of(function)]
        if facts.star_imports:
            return []
        top = facts.top.qualname
        names = {
            name
            for name, target in facts.top.imports
            if target not in facts.plain_imports
            and all(inner is not None for _, inner in self.targets(name, top))
        }
        for stmt in ir.statements(facts.top.body):
            if stmt.kind in ("functiondef", "classdef"):
                names |= {*stmt.names[:1]} if stmt.names[1] != function else set()
            elif not isinstance(stmt.value, (ir.Const, ir.Display)):
                names |= {name for name, _, _ in bindings(stmt)}
        return [(ir.Const(name), ir.Name(name), top) for name in sorted(names)]

    def _gives_itself(self, ref: Ref) -> bool:
        """Whether a method returns what it is called on, as ``Module.to`` does, which it overrides."""
        if ref.kind != "function":
            return False
        returned = [
            stmt.value for stmt in self.statements(ref.name) if stmt.kind == "return"
        ]
        return bool(returned) and all(
            isinstance(value, ir.Call)
            and isinstance(value.func, ir.Attr)
            and value.func.attr in _RETURNS_SELF
            and _is_super_call(value.func.value)
            and not self.callees(value, ref.name)
            for value in returned
        )

    def _class_of_method(self, name: str, function: str) -> str | None:
        """The class that ``cls`` stands for in a classmethod."""
        scope = self.functions[function]
        if scope.class_name is None or not scope.params or scope.params[0].name != name:
            return None
        of_class = ir.Name("classmethod") in scope.decorators
        return scope.class_name if of_class else None

    def _resolve_variable(self, owner: str, name: str) -> Iterator[frozenset[Ref]]:
        for definition in self.definitions(owner, name):
            yield from self._resolve_definition(definition)
        scope = self.functions[owner]
        for param in scope.params:
            if param.name != name:
                continue
            given = self.arguments(owner, name) or self._given_by_name(owner, name)
            for caller, value in given:
                yield self.resolve(value, caller)
            if isinstance(param.default, (ir.Name, ir.Attr)) and (
                not given or self._leaves_out(owner, name)
            ):
                yield self.resolve(param.default, scope.parent or owner)

    def _leaves_out(self, function: str, param: str) -> bool:
        """Whether a call gives nothing to a parameter, which is its default then."""
        sites = self._call_sites_by_name(function)
        return any(self.argument_at(site, param) is None for site in sites)

    def _given_by_name(self, method: str, param: str) -> list[tuple[str, ir.Expr]]:
        """The same as `arguments`, of a method that is called only on objects of which nothing is
        known (``for callback in callbacks: callback.attach(self)``): by its name."""
        scope = self.functions[method]
        if scope.self_name in (None, param) or _is_special(scope.name):
            return []
        found: list[tuple[str, ir.Expr]] = []
        spend(4 * len(self._calls_by_name.get(scope.name, ())))
        for caller, stmt, call in self._calls_by_name.get(scope.name, ()):
            if not isinstance(call.func, ir.Attr):
                continue
            if not self.resolve(call.func.value, caller):
                site = CallSite(caller, stmt, call, method, True)
                value = self.argument_at(site, param)
                if isinstance(value, ir.Name):
                    found.append((caller, value))
        return found

    def _resolve_definition(self, definition: Definition) -> Iterator[frozenset[Ref]]:
        stmt = definition.stmt
        if stmt.kind == "functiondef":
            yield _one("function", stmt.names[1])
        elif stmt.kind == "classdef":
            yield _one("class", stmt.names[1])
        elif definition.value is not None and definition.call is not None:
            yield self.resolve(definition.value, definition.function)
        elif definition.value is not None and stmt.kind in ("assign", "annassign"):
            if definition.index is None:
                yield self.resolve(definition.value, definition.function)
            else:
                yield from self._resolve_item(definition)
        elif stmt.kind == "with" and len(stmt.exprs) == 2 and not definition.index:
            yield from self._entered(stmt.exprs[0], definition.function)

    def _entered(self, manager: ir.Expr, function: str) -> Iterator[frozenset[Ref]]:
        """What ``with Engine() as engine`` gives a name: what ``__enter__`` returns."""
        for ref in self.resolve(manager, function):
            enter = self.method(ref.name, "__enter__")
            if ref.kind != "instance" or enter is None:
                continue
            for stmt in self.statements(enter):
                if stmt.kind == "return" and stmt.value is not None:
                    own = self.class_of_self(stmt.value, enter) is not None
                    yield frozenset((ref,)) if own else self.resolve(stmt.value, enter)

    def _resolve_item(self, definition: Definition) -> Iterator[frozenset[Ref]]:
        value, index = definition.value, definition.index
        if (
            isinstance(value, ir.Display)
            and index is not None
            and index < len(value.items)
        ):
            yield self.resolve(value.items[index], definition.function)
        elif isinstance(value, ir.Call) and index is not None:
            for caller, returned in self.returns(value, definition.function):
                if isinstance(returned, ir.Display) and index < len(returned.items):
                    yield self.resolve(returned.items[index], caller)

    def returns(self, call: ir.Call, function: str) -> Iterator[tuple[str, ir.Expr]]:
        """(function, returned expression) of the functions of this program that a call may run."""
        for callee in self.callees(call, function):
            for stmt in self.statements(callee):
                if stmt.kind == "return" and stmt.value is not None:
                    yield callee, stmt.value

    def _result_of(self, ref: Ref) -> Iterator[frozenset[Ref]]:
        if ref.kind == "class":
            yield _one("instance", ref.name)
        elif ref.kind == "external":
            yield _one("made", ref.name)
        elif ref.kind == "function":
            for stmt in self.statements(ref.name):
                if stmt.kind == "return" and stmt.value is not None:
                    yield self.resolve(stmt.value, ref.name)

    # -- calls --------------------------------------------------------------------------------

    def callees(self, call: ir.Call, function: str) -> tuple[str, ...]:
        """Functions of this program that a call may run: functions, methods, constructors."""
        key = (Program._find_callees, call.func, function)
        found: tuple[str, ...] = self._answers.of(key)
        return found

    @cached_property
    def attribute_dicts(self) -> frozenset[str]:
        """The classes of dicts whose items are attributes: these are each object's own."""
        return attribute_dicts(self)

    def _find_callees(self, func: ir.Expr, function: str) -> tuple[str, ...]:
        found: list[str] = []
        for ref in sorted(
            self.resolve(func, function), key=lambda ref: (ref.kind, ref.name)
        ):
            if ref.kind == "function":
                found.append(ref.name)
            elif ref.kind == "class":
                init = self.method(ref.name, "__init__")
                if init is not None:
                    found.append(init)
            elif ref.kind == "instance":
                for name in ("__call__", "forward"):
                    method = self.method(ref.name, name)
                    if method is not None:
                        found.append(method)
                        break
        for one in [*found] if self._dispatched else ():
            found += self._dispatched.get(self.functions[one].name, ())
        return tuple(dict.fromkeys(found))

    @cached_property
    def _dispatched(self) -> dict[str, list[str]]:
        """By the name of a function of ``functools.singledispatch``, those that are registered for it."""
        kinds = {f"functools.singledispatch{kind}" for kind in ("", "method")}
        names = {
            function.name
            for function in self.functions.values()
            for decorator in function.decorators
            if self.origin(decorator, function.parent or function.qualname) in kinds
        }
        found: dict[str, list[str]] = defaultdict(list)
        for function in self.functions.values() if names else ():
            for decorator in function.decorators:
                func = decorator.func if isinstance(decorator, ir.Call) else decorator
                match func:
                    case ir.Attr(value=value, attr="register"):
                        found[ir.last_of(value) or ""].append(function.qualname)
        for qualname, _, call in self.calls_named("register") if names else ():
            for arg in call.args[1:]:
                if isinstance(call.func, ir.Attr):
                    found[ir.last_of(call.func.value) or ""] += (
                        ref.name
                        for ref in self.resolve(arg.value, qualname)
                        if ref.kind == "function"
                    )
        return {name: found[name] for name in names}

    @cached_property
    def call_sites(self) -> dict[str, list[CallSite]]:
        """Calls by the function they run."""
        sites: dict[str, list[CallSite]] = defaultdict(list)
        for qualname, stmt, call in self.all_calls():
            for site in self._sites_at(qualname, stmt, call):
                sites[site.callee].append(site)
        for one in (one for calls in self.decorating.values() for one in calls):
            for site in self._sites_at(*one):
                sites[site.callee].append(site)
        return sites

    def calling(self, *functions: str) -> Collection[str]:
        """Some functions with all that lead to a call of them."""
        sites = self.call_sites
        return reached(functions, lambda one: (s.caller for s in sites.get(one, ())))

    def called_from(self, functions: Iterable[str]) -> Collection[str]:
        """Some functions with all that they may call."""
        return reached(
            functions,
            lambda one: (
                callee
                for _, call in each_call(self.functions[one].body)
                for callee in self.callees(call, one)
            ),
        )

    @cached_property
    def decorating(self) -> dict[str, list[tuple[str, ir.Stmt, ir.Call]]]:
        """By function, the calls of decorators that may keep it, or give another one in its place."""
        return {
            stmt.names[1]: [
                (function, stmt, ir.Call(decorator, (ir.Arg(ir.Name(stmt.names[0])),)))
                for decorator in self.functions[stmt.names[1]].decorators
                if not self.keeps_function(decorator, stmt.names[1])
            ]
            for function, stmt in self.all_statements()
            if stmt.kind == "functiondef"
        }

    @cached_property
    def put_around(self) -> dict[str, list[str]]:
        """By function or class, the functions that its decorators put around it, or may, as far as they are
        written here."""
        found: dict[str, list[str]] = {}
        for name, one in (self.functions | self.classes).items():
            for decorator in one.decorators:
                if name in self.functions and self.keeps_function(decorator, name):
                    continue
                made = decorator.func if isinstance(decorator, ir.Call) else decorator
                for ref in self.resolve(made, one.parent or name):
                    around: list[str] = []
                    if ref.kind == "function":
                        around = wrappers(self.functions, ref.name)[0]
                    elif ref.kind == "class":
                        around = self.methods(ref.name, "__call__", False)
                    if around:
                        found[name] = found.get(name, []) + around
        return found

    def call_sites_of(self, call: ir.Call, function: str) -> Iterator[CallSite]:
        """One call, for each function of this program that it may run."""
        sites = self._sites.get(id(call))
        if sites is None:
            sites = self._find_sites(call)
            # Another that is made up may come to have the identity of one that was.
            if not self._answers.is_asked and id(call) in self._places_of_calls:
                self._sites[id(call)] = sites
        for callee in self.callees(call, function) if sites else ():
            yield from sites.get(callee, ())

    def _find_sites(self, call: ir.Call) -> dict[str, list[CallSite]]:
        at = id(call)
        places = self._places_of_calls.get(at) or self._places_of_decorating.get(at)
        found: dict[str, list[CallSite]] = defaultdict(list)
        for place in places or ():
            for site in self._sites_at(*place, call):
                found[site.callee].append(site)
        return found

    def statement_of(self, call: ir.Call, function: str) -> ir.Stmt | None:
        """The statement of a function in which a call stands."""
        places = self._places_of_calls.get(id(call), ())
        return next((stmt for where, stmt in places if where == function), None)

    @cached_property
    def _places_of_calls(self) -> dict[int, list[tuple[str, ir.Stmt]]]:
        """By the identity of a call, the function and the statement in which it stands."""
        found: dict[int, list[tuple[str, ir.Stmt]]] = defaultdict(list)
        for function, stmt, call in self.all_calls():
            found[id(call)].append((function, stmt))
        return found

    @cached_property
    def _places_of_decorating(self) -> dict[int, list[tuple[str, ir.Stmt]]]:
        """The same of the calls that decorators are, which no statement holds."""
        return {
            id(call): [(function, stmt)]
            for calls in self.decorating.values()
            for function, stmt, call in calls
        }

    def fills_self(self, call: ir.Call, callee: str, function: str) -> bool:
        """Whether the callee's first parameter is the receiver, not an argument."""
        if self.functions[callee].self_name is None:
            return any(
                isinstance(d, ir.Name) and d.id == "classmethod"
                for d in self.functions[callee].decorators
            )
        if isinstance(call.func, ir.Attr):
            refs = self.resolve(call.func.value, function)
            # `Base.__init__(self, ...)` names its receiver itself.
            return not any(ref.kind == "class" for ref in refs)
        return True

    def all_calls(self) -> tuple[tuple[str, ir.Stmt, ir.Call], ...]:
        """Every call of the program with the function and the statement it stands in."""
        return self._all_calls

    @cached_property
    def _all_calls(self) -> tuple[tuple[str, ir.Stmt, ir.Call], ...]:
        return tuple(self._find_calls())

    def _find_calls(self) -> Iterator[tuple[str, ir.Stmt, ir.Call]]:
        for function, stmt in self.all_statements():
            for call in calls_of(stmt):
                yield function, stmt, call

    def all_statements(self) -> tuple[tuple[str, ir.Stmt], ...]:
        """Every statement of the program with the function it stands in, class bodies included."""
        return self._all_statements

    @cached_property
    def _all_statements(self) -> tuple[tuple[str, ir.Stmt], ...]:
        return tuple(self._find_statements())

    def _find_statements(self) -> Iterator[tuple[str, ir.Stmt]]:
        for qualname in self.functions:
            for stmt in self.statements(qualname):
                yield qualname, stmt
        for found in self.classes.values():
            for stmt in ir.statements(found.body):
                if stmt.kind not in ("functiondef", "classdef"):
                    yield found.parent, stmt

    @cached_property
    def class_statements(self) -> frozenset[int]:
        """The identities of the statements in bodies of classes."""
        return frozenset(
            id(stmt)
            for found in self.classes.values()
            for stmt in ir.statements(found.body)
        )

    def mentioning(self, *said: str) -> list[tuple[str, ir.Stmt]]:
        """The statements, in order, that say one of some names, or one under which it is imported
        somewhere: as a variable, as an attribute, or in quotes."""
        names, pending = {*said}, [*said]
        while pending:
            more = self._import_aliases.get(pending.pop(), set()) - names
            names |= more
            pending += more
        places, by_word = self._words
        numbers = {number for one in names for number in by_word.get(one, ())}
        return [places[number] for number in sorted(numbers)]

    @property
    def words(self) -> Collection[str]:
        """All that statements say: names, attributes, and texts as a whole."""
        return self._words[1].keys()

    @cached_property
    def _words(self) -> tuple[tuple[tuple[str, ir.Stmt], ...], dict[str, list[int]]]:
        """All statements, and by word those that say it."""
        places = self.all_statements()
        found: dict[str, list[int]] = {}
        for number, (_, stmt) in enumerate(places):
            words: set[str] = set()
            for inner in parts_of(stmt):
                if isinstance(inner, ir.Name):
                    words.add(inner.id)
                elif isinstance(inner, ir.Attr):
                    words.add(inner.attr)
                elif isinstance(inner, ir.Const) and isinstance(inner.value, str):
                    words.add(inner.value)
            for word in words:
                found.setdefault(word, []).append(number)
        return places, found

    def arguments(self, function: str, param: str) -> list[tuple[str, ir.Expr]]:
        """(caller, expression) of every value that calls in this program give to a parameter."""
        found = []
        for site in self._call_sites_by_name(function):
            value = self.argument_at(site, param)
            if value is not None:
                found.append((site.caller, value))
        return found

    def _call_sites_by_name(self, function: str) -> list[CallSite]:
        """Call sites of a function without resolving all of the program's calls first.

        Resolving a parameter needs the callers, and finding all callers needs resolving: taking only
        the calls that mention the function's name breaks that circle.
        """
        wanted = self.functions[function]
        names = {wanted.name}
        if wanted.name == "__init__" and wanted.class_name is not None:
            names = {self.classes[c].name for c in self.family(wanted.class_name)} | {
                "__init__"
            }
        elif wanted.name in ("forward", "__call__"):
            return []
        return [
            site
            for name in (*self.with_aliases(names), _TAKEN)
            for site in self._answers.of((Program._sites_named, name, function))
        ]

    def _sites_named(self, name: str, function: str) -> tuple[CallSite, ...]:
        """The calls of a name that run a function, in the order of the program."""
        found: dict[str, tuple[CallSite, ...]]
        found = self._answers.of((Program._sites_of, name)) or {}
        return found.get(function, ())

    def _sites_of(self, name: str) -> dict[str, tuple[CallSite, ...]]:
        """The calls of a name, by the function that they run."""
        is_taken = name == _TAKEN
        calls = self._calls_out_of_tables if is_taken else self.calls_named(name)
        spend(20 * len(calls))
        found: dict[str, list[CallSite]] = defaultdict(list)
        for one in calls:
            for site in self._sites_at(*one):
                found[site.callee].append(site)
        return {callee: tuple(sites) for callee, sites in found.items()}

    def _sites_at(self, caller: str, stmt: ir.Stmt, call: ir.Call) -> list[CallSite]:
        return [
            CallSite(caller, stmt, call, callee, self.fills_self(call, callee, caller))
            for callee in self.callees(call, caller)
        ]

    def called_as(self, function: str) -> str:
        """The name by which a function is called: a constructor by that of its class."""
        facts = self.functions[function]
        if facts.name == "__init__" and facts.class_name is not None:
            return self.classes[facts.class_name].name
        return facts.name

    def calls_named(self, name: str) -> list[tuple[str, ir.Stmt, ir.Call]]:
        """Every call of a function or method of some name, with its function and statement."""
        return self._calls_by_name.get(name, [])

    def with_aliases(self, names: set[str]) -> set[str]:
        """Names with those under which some file imports them."""
        return names.union(*(self._import_aliases.get(name, ()) for name in names))

    @cached_property
    def _import_aliases(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for function in self.functions.values():
            for local, target in function.imports:
                found[target.rpartition(".")[2]].add(local)
        return found

    @cached_property
    def _calls_by_name(self) -> dict[str, list[tuple[str, ir.Stmt, ir.Call]]]:
        found: dict[str, list[tuple[str, ir.Stmt, ir.Call]]] = defaultdict(list)
        for qualname, stmt, call in self.all_calls():
            if isinstance(call.func, ir.Name):
                found[call.func.id].append((qualname, stmt, call))
            elif isinstance(call.func, ir.Attr):
                found[call.func.attr].append((qualname, stmt, call))
        return found

    @cached_property
    def _calls_out_of_tables(self) -> list[tuple[str, ir.Stmt, ir.Call]]:
        return [one for one in self.all_calls() if self._is_taken(one[2].func, one[0])]

    def _is_taken(self, func: ir.Expr, function: str) -> bool:
        """Whether what is called is written as something that is taken out of a table."""
        if isinstance(func, ir.Name):
            return func.id in self._given_results and any(
                self._is_taken(one.value, one.function)
                for one in self.defined(func.id, function)
                if isinstance(one.value, (ir.Item, ir.Call))
            )
        if isinstance(func, ir.Call):
            name = (ir.key_of(func.func) or "").rpartition(".")[2]
            return name == "get" or name in self._take_out
        return isinstance(func, ir.Item)

    @cached_property
    def _given_results(self) -> set[str]:
        """The names of variables that are given what is called, or taken out of something."""
        given = {
            name
            for found in (self._definitions, self.set_from_outside)
            for (_, name), defined in found.items()
            if any(isinstance(one.value, (ir.Item, ir.Call)) for one in defined)
        }
        # One name leads to another by any number of imports.
        aliases = self._import_aliases.items()
        return given.union(*(also - {name} for name, also in aliases))

    @cached_property
    def _take_out(self) -> frozenset[str]:
        """The names of functions that return something out of a table."""
        return frozenset(
            function.name
            for qualname, function in self.functions.items()
            if any(
                stmt.kind == "return" and isinstance(stmt.value, ir.Item)
                for stmt in self.statements(qualname)
            )
        )

    def argument_at(self, site: CallSite, param: str) -> ir.Expr | None:
        """The expression that a call gives to a parameter of its callee, if it gives one plainly."""
        names = self._positional(site.callee)
        if site.bound_self:
            names = names[1:]
        position = names.index(param) if param in names else len(site.call.args) + 1
        return site.call.argument(position, param)

    def _positional(self, function: str) -> tuple[str, ...]:
        """The parameters of a function that can be given by their place."""
        known = self._positionals.get(function)
        if known is None:
            params = self.functions[function].params
            known = tuple(p.name for p in params if p.kind == "positional")
            self._positionals[function] = known
        return known

    @cached_property
    def escaping(self) -> frozenset[str]:
        """Functions that are mentioned other than as the callee of a call, and so have unseen callers."""
        by_name = (f for f in self.functions if ir.file_of(f) in self.imported_by_name)
        return self.taken.union(by_name)

    @cached_property
    def taken(self) -> frozenset[str]:
        """The same, less those that only are in a file that is imported under a name out of sight."""
        found: set[str] = set()
        handed_out: dict[str, set[str]] = defaultdict(set)
        for qualname, stmt in self.mentioning(*self._runnable_names):
            for expr, is_followed in self._apart(stmt, qualname):
                escaping = self._escapes(expr, stmt, qualname)
                (handed_out[qualname] if is_followed else found).update(escaping)
        for one in self.classes.values():
            for stmt in one.body:
                if stmt.kind == "functiondef":
                    for default in self._defaults(stmt):
                        found |= self._escapes(default, stmt, one.parent)
        for qualname, function in self.functions.items():
            if self.is_property(qualname) or not all(
                self.keeps_function(d, qualname) for d in function.decorators
            ):
                found.add(qualname)
        return frozenset(reached(found, lambda one: handed_out[one]))

    def _apart(self, stmt: ir.Stmt, function: str) -> Iterator[tuple[ir.Expr, bool]]:
        """The expressions of a statement, and whether nothing but the calls of its function gets one: what
        it returns under a name, also beside others, and they only call."""
        facts, sites = self.functions[function], self.call_sites.get(function)
        value = stmt.value if stmt.kind == "return" else None
        if isinstance(value, ir.Display) and value.kind == "tuple":
            parts: list[tuple[int | None, ir.Expr]] = [*enumerate(value.items)]
        else:
            parts = [(None, expr) for expr in stmt.exprs]
        for place, expr in parts:
            yield expr, (
                value is not None
                and isinstance(expr, ir.Name)
                and expr.id in self._runnable_names
                and bool(sites)
                and not (facts.decorators or facts.is_generator or facts.is_async)
                and all(self._is_given_to_call(one, place) for one in sites or ())
            )

    def _is_given_to_call(self, site: CallSite, place: int | None) -> bool:
        """Whether what a call returns, or has at a place of that, is only called: at once, or by
        a variable."""
        return any(
            value is site.call
            and index == place
            and isinstance(target, ir.Name)
            and self._is_only_called(target.id, site.caller)
            for target, value, index in unpacked(site.stmt)
        ) or (
            place is None
            and any(outer.func is site.call for outer in calls_of(site.stmt))
        )

    def _is_only_called(self, variable: str, function: str) -> bool:
        """Whether a variable is a function's own, and is bound and called alone."""
        return (
            self.owner(variable, function) == function
            and self._only_called(variable, function) is not None
            # A module's variable may be that of others, too.
            and (
                not ir.is_top(function)
                or {ir.file_of(function)}
                == {ir.file_of(other) for other, _ in self.mentioning(variable)}
            )
        )

    def _defaults(self, stmt: ir.Stmt) -> list[ir.Expr]:
        """The defaults of the parameters of a ``def``."""
        params = self.functions[stmt.names[1]].params
        return [one.default for one in params if one.default is not None]

    def handed_calls(self, function: str) -> list[CallSite] | None:
        """The calls of a function by those to which it is handed, where they do nothing else with it; None
        where it may go elsewhere, too."""
        facts = self.functions[function]
        if facts.decorators or ir.file_of(function) in self.imported_by_name:
            return None
        found: list[CallSite] = []
        for caller, stmt in self.mentioning(*self.with_aliases({facts.name})):
            for expr in stmt.exprs:
                if function in self._escapes(expr, stmt, caller):
                    calls = self._handed_in(expr, caller, function)
                    if calls is None:
                        return None
                    found += calls
        return found

    def _handed_in(
        self, expr: ir.Expr, caller: str, function: str
    ) -> list[CallSite] | None:
        """The same, of what an expression hands on."""
        found: list[CallSite] = []
        calls = list(ir.calls_in(expr))
        apart = {id(call.func) for call in calls}
        for mention in ir.walk(expr):
            if (
                not isinstance(mention, (ir.Name, ir.Attr))
                or id(mention) in apart
                or Ref("function", function) not in self.resolve(mention, caller)
            ):
                continue
            sites = [
                site
                for call in calls
                if any(arg.value is mention and not arg.star for arg in call.args)
                and len(self.callees(call, caller))
                == len(self.resolve(call.func, caller))
                for site in self.call_sites_of(call, caller)
            ]
            if not sites:
                return None
            for site in sites:
                to = self.functions[site.callee]
                given = [
                    p.name
                    for p in to.params
                    if self.argument_at(site, p.name) is mention
                ]
                if (
                    len(given) != 1
                    or self.definitions(site.callee, given[0])
                    or to.is_generator
                    or not all(
                        self.keeps_function(d, site.callee) for d in to.decorators
                    )
                ):
                    return None
                bound = self.fills_self(ir.Call(mention, ()), function, caller)
                called = self._only_called(given[0], site.callee)
                if called is None:
                    return None
                found += (CallSite(*one, function, bound) for one in called)
        return found

    def _only_called(
        self, variable: str, owner: str
    ) -> list[tuple[str, ir.Stmt, ir.Call]] | None:
        """(function, statement, call) of the calls of a function's variable; None where it is more than
        bound and called."""
        name = ir.Name(variable)
        found: list[tuple[str, ir.Stmt, ir.Call]] = []
        for function, stmt in self.mentioning(variable):
            if self.owner(variable, function) == owner:
                called = [call for call in calls_of(stmt) if call.func == name]
                bound = [target for target, _, _ in unpacked(stmt)]
                read = [*parts_of(stmt)].count(name) - bound.count(name)
                if len(called) < read:
                    return None
                found += ((function, stmt, call) for call in called)
        return found

    def keeps_function(self, decorator: ir.Expr, function: str) -> bool:
        """Whether a decorator is known to keep a function nowhere else, and to call it as it is called."""
        made = isinstance(decorator, ir.Call)
        func = decorator.func if isinstance(decorator, ir.Call) else decorator
        if self.origin(func, function) in KEEPING:
            return True
        found = self.resolve(func, self.functions[function].parent or function)
        return len(found) == 1 and all(
            ref.kind == "function" and only_calls(self.functions, ref.name, made)
            for ref in found
        )

    @cached_property
    def _runnable_names(self) -> set[str]:
        """The names of functions and classes, also those under which a file imports them: by another,
        a value goes only after it was mentioned by one of these."""
        functions = {function.name for function in self.functions.values()}
        classes = {found.name for found in self.classes.values()}
        return self.with_aliases(functions | classes)

    def _escapes(self, expr: ir.Expr, stmt: ir.Stmt, function: str) -> set[str]:
        found: set[str] = set()
        called: set[int] = set()
        runnable = self._runnable_names
        if isinstance(expr, ir.Attr) and not expr.attr.startswith("__"):
            if any(expr is target for target in stmt.targets):
                # `train.args = args`: nobody calls it for that.
                called.add(id(expr.value))
        if stmt.kind == "assign" and expr is stmt.value:
            if all(self._stands_for_functions(t, function) for t in stmt.targets):
                called.update(map(id, _arms(expr)))
        for inner in ir.walk(expr):
            # A call comes before what it calls.
            if isinstance(inner, ir.Call):
                called.add(id(inner.func))
                given = [a.value for a in inner.args if ir.last_of(a.value) in runnable]
                if given and self.origin(inner.func, function) in _READERS:
                    called.update(map(id, given))
                continue
            if not isinstance(inner, (ir.Name, ir.Attr)) or id(inner) in called:
                continue
            name = inner.id if isinstance(inner, ir.Name) else inner.attr
            if name not in runnable:
                continue
            for ref in self.resolve(inner, function):
                if ref.kind == "function":
                    if not self._is_another(inner, ref.name, stmt, function):
                        found.add(ref.name)
                elif ref.kind == "class" and isinstance(inner, ir.Name):
                    init = self.method(ref.name, "__init__")
                    if init is not None and self._gives_class(expr, stmt, function):
                        found.add(init)
        if found and isinstance(expr, ir.Display) and len(stmt.targets) == 1:
            home = self._home_of(stmt.targets[0], function)
            if home and self.entries(stmt.targets[0], function):
                if self._is_followed(home):
                    return set()
        return found

    def _gives_class(self, expr: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        """Whether an expression that mentions a class may give it to those who make instances of it out of
        sight."""
        if not isinstance(expr, ir.Name):
            # `super(Trainer, self)` and `isinstance(x, Trainer)` mention it without making instances.
            return not any(
                isinstance(inner, ir.Call)
                and isinstance(inner.func, ir.Name)
                and inner.func.id in ("super", "isinstance", "issubclass")
                for inner in ir.walk(expr)
            )
        if stmt.kind == "functiondef":
            params = self.functions[stmt.names[1]].params
            return not all(
                self._is_only_called(param.name, stmt.names[1])
                for param in params
                if param.default is expr
            )
        if stmt.kind in ("assign", "annassign") and expr is stmt.value:
            return not all(
                self._is_only_called_of(target, stmt, function)
                for target in stmt.targets
            )
        return stmt.kind == "return"

    def _is_only_called_of(self, target: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        """Whether a variable, or an attribute of this program's classes, is bound and called alone."""
        if id(stmt) in self.class_statements:
            owners = {name for name, one in self.classes.items() if stmt in one.body}
            attr = target.id if isinstance(target, ir.Name) else None
        elif isinstance(target, ir.Attr):
            owners = set(self.instance_classes(target.value, function))
            attr = target.attr
        else:
            return isinstance(target, ir.Name) and (
                self._is_only_called(target.id, function)
            )
        return (
            attr is not None
            and bool(owners)
            and not any(map(self.external_bases, owners))
            and all(_only_calls_it(attr, one) for _, one in self.mentioning(attr))
        )

    def _stands_for_functions(self, target: ir.Expr, function: str) -> bool:
        """Whether a local variable is another name of functions, ``run = fast if quick else slow``, and only
        called: its calls are calls of these."""
        return (
            isinstance(target, ir.Name)
            and not ir.is_top(function)
            and self.owner(target.id, function) == function
            and not self.is_param(function, target.id)
            and all(
                made.stmt.kind == "assign"
                and made.value is not None
                and made.value is made.stmt.value
                and all(
                    {ref.kind for ref in self.resolve(arm, made.function)}
                    == {"function"}
                    for arm in _arms(made.value)
                )
                for made in self.definitions(function, target.id)
            )
            and self._only_called(target.id, function) is not None
        )

    def _is_another(
        self, mention: ir.Expr, meant: str, stmt: ir.Stmt, function: str
    ) -> bool:
        """Whether a name means something else than a function where a statement mentions it: the
        ``def`` comes later, or the name has been bound anew since."""
        if not isinstance(mention, ir.Name) or self.owner(mention.id, function) != (
            function
        ):
            return False
        if any(mention is target for target in stmt.targets):
            return True
        bound = self.bindings(function, mention.id)
        made = [d for d in bound if d.stmt.names[1:] == (meant,)]
        if len(made) in (0, len(bound)) or any(d.function != function for d in bound):
            return False
        found, _ = self.control(function).reaching(mention.id, stmt.path)
        return bool(found) and all(one.names[1:] != (meant,) for one in found)


def _sets_attributes(call: ir.Call) -> bool:
    match call.func:
        case ir.Name("setattr"):
            return True
        case ir.Attr(ir.Attr(attr="__dict__") | ir.Call(ir.Name("vars")), "update"):
            return True
    return False


_NOTHING: frozenset[Ref] = frozenset()


def _one(kind: str, name: str) -> frozenset[Ref]:
    return frozenset((Ref(kind, name),))


def _joined(answers: Iterable[Any]) -> Any:
    """Of two answers of one method: what either holds."""
    one, other = answers
    if not one:
        return other
    if isinstance(one, dict):
        return {
            key: _joined((one.get(key, ()), other.get(key, ())))
            for key in {**one, **other}
        }
    return (
        one | other if isinstance(one, frozenset) else tuple(dict.fromkeys(one + other))
    )


_RESOLVED = (ir.Name, ir.Attr, ir.Call, ir.Operation, ir.Walrus)

_TAKEN = "[]"
"""In place of the name of what is called, where it is taken out of a table."""
_LOOKS = frozenset(
    "get keys values items copy len list sorted tuple set iter print".split()
)
"""What looks into a dict, and neither changes it nor keeps it."""

_RETURNS_SELF = frozenset("to cuda cpu train eval requires_grad_".split())
"""Methods of a module that return it; of other objects, what they are called on is near enough."""


def _arms(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The values that ``a if test else b`` chooses from."""
    match expr:
        case ir.Operation(op="if", operands=(_, *arms)):
            return tuple(arms)
    return (expr,)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_abstract(function: ir.Function) -> bool:
    """Whether a body is only a docstring, ``...``, ``pass`` or ``raise NotImplementedError``."""
    return all(
        stmt.kind in ("pass", "raise")
        or (stmt.kind == "expr" and isinstance(stmt.value, ir.Const))
        for stmt in function.body
    )


def _is_super_call(expr: ir.Expr) -> bool:
    return (
        isinstance(expr, ir.Call)
        and isinstance(expr.func, ir.Name)
        and expr.func.id == "super"
    )


def _only_calls_it(attr: str, stmt: ir.Stmt) -> bool:
    """Whether a statement does nothing with what goes by a name but bind it, or call it as an attribute."""
    calls = [one.func for one in calls_of(stmt) if isinstance(one.func, ir.Attr)]
    bound = [target for target, _, _ in unpacked(stmt)]
    return all(
        any(part is one for one in (*calls, *bound))
        for part in parts_of(stmt)
        if part in (ir.Name(attr), ir.Const(attr))
        or (isinstance(part, ir.Attr) and part.attr == attr)
    )
