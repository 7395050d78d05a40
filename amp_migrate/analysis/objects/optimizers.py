"""Where optimizers are born, and the way from a ``step()`` back to the birth.

An optimizer is followed through *slots*: variables (of the scope that owns them) and attributes (of
the class that has them). A trace that reaches anything it cannot read ends in a problem, never in a
guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from amp_migrate.analysis.objects.availability import where_lost
from amp_migrate.analysis.objects.carriers import Carriers, Place
from amp_migrate.analysis.objects.collections import (
    ANY,
    Collections,
    Key,
    Turn,
    key_along,
    key_of,
    path_of,
)
from amp_migrate.analysis.objects.contents import Contents
from amp_migrate.analysis.objects.makers import CLOSURE, IN_ITS_OWN_WAY, WRAPPED, Makers
from amp_migrate.analysis.objects.points_to import ANY as ANY_ITEM
from amp_migrate.analysis.objects.points_to import (
    EACH,
    Field,
    Fields,
    Object,
    PointsTo,
    State,
    attribute_positions,
    expr_of,
    item,
    positions,
)
from amp_migrate.core.effort import spend
from amp_migrate.program import ir
from amp_migrate.program.bindings import IMPORTS, calls_of, each_call, parts_of
from amp_migrate.program.each import HIDDEN
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

NOT_FOUND = "not found"
SEVERAL = "several"
APEX = "apex"
FRAMEWORK = "framework"
ENDLESS = "endless"
LOADED = "loaded"
SHOWN = frozenset((CLOSURE, WRAPPED, APEX, ENDLESS))
"""Problems of what is an optimizer all the same, or may be."""

_Next = State | Object
_LOADS = frozenset(("torch.load", "pickle.load", "joblib.load"))
_FACTORIES_ELSEWHERE = re.compile(r"create_optimizer(_v2)?$")


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable (``owner`` is a function) or an attribute (``owner`` is a class), or with a ``key``
    an element of the collection that is kept there."""

    kind: str
    owner: str
    name: str
    key: Key | None = None

    @property
    def holder(self) -> Slot:
        """The variable or attribute itself."""
        return self if self.key is None else Slot(self.kind, self.owner, self.name)

    @property
    def fields(self) -> Fields:
        """What is taken out of the variable or attribute."""
        return tuple(map(_field, path_of(self.key)))

    @property
    def is_many(self) -> bool:
        """Whether it stands for all optimizers in a collection that is not written out."""
        return ANY in path_of(self.key)

    @property
    def turn(self) -> Turn:
        """The loop's variable that a slot which stands for several optimizers goes by."""
        for key in path_of(self.key):
            if isinstance(key, Turn):
                return key
        return Turn(self.owner, self.name)

    @property
    def takes_turns(self) -> bool:
        """Whether a loop's variable says which element of a collection it is."""
        return any(isinstance(key, Turn) for key in path_of(self.key))

    @property
    def shown(self) -> str:
        """What messages call it."""
        # Of a list's own variable, its name as it is written.
        name = self.name.partition(HIDDEN)[0]
        for key in path_of(self.key):
            inside = key.name if isinstance(key, Turn) else repr(key)
            name += f"[{inside if key != ANY else '...'}]"
        return name

    def expr(self, instance: str | None) -> ir.Expr:
        """How a function that sees it names it; an attribute by the name of its instance."""
        found: ir.Expr = ir.Name(self.name)
        if self.kind == "attribute":
            assert instance is not None
            found = ir.Attr(ir.Name(instance), self.name)
        for key in path_of(self.key):
            taken = ir.Name(key.name) if isinstance(key, Turn) else ir.Const(key)
            found = ir.Item(found, taken)
        return found


def _field(key: Key) -> Field:
    return ANY_ITEM if key == ANY else item(key)


@dataclass(frozen=True, slots=True)
class Birth:
    """The statement that binds a new optimizer to a slot for the first time."""

    function: str
    path: ir.Path
    slot: Slot
    stmt: ir.Stmt = field(compare=False)
    call: ir.Call
    source: State = field(compare=False)
    """What the statement, or the call that it is given to, binds to the slot."""
    given: CallSite | None = field(compare=False, default=None)
    """The call that it is an argument of: ``Trainer(model, SGD(model.parameters()))``."""
    is_read: bool = field(compare=False, default=False)
    """Whether it comes out of a file: the call has made it in a run before."""
    is_given: bool = field(compare=False, default=False)
    """Whether it is a parameter that only callers out of sight give: the statement defines its function."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a trace ended: one of the kinds above, with the place and the reason in words."""

    kind: str
    function: str
    line: int
    reason: str


@dataclass(slots=True)
class Trace:
    """All that a search back from one slot has met."""

    births: set[Birth] = field(default_factory=set)
    slots: set[Slot] = field(default_factory=set)
    depths: dict[Slot, int] = field(default_factory=dict)
    """How many keys the first slot of each variable and attribute has."""
    problems: list[Problem] = field(default_factory=list)
    parameters: set[Slot] = field(default_factory=set)
    """Slots that are parameters, filled by callers."""
    aliases: dict[Slot, Slot] = field(default_factory=dict)
    """Slots that another slot's value was assigned to, with that other slot."""
    values: dict[Slot, list[tuple[ir.Expr, str]]] = field(default_factory=dict)
    """The expressions, each with its function, that name what a slot is another name for."""
    each: dict[Slot, tuple[Slot, ...]] = field(default_factory=dict)
    """Variables of ``for`` loops with the slots whose optimizers they stand for in turn."""


@dataclass(slots=True)
class Step:
    """What a trace learns of one slot, before it goes on to others."""

    onward: list[Slot | Problem] = field(default_factory=list)
    """The slots from which its value may come, and what keeps it from being followed, in order."""
    births: set[Birth] = field(default_factory=set)
    is_parameter: bool = False
    alias: Slot | None = None
    values: list[tuple[ir.Expr, str]] = field(default_factory=list)
    each: tuple[Slot, ...] | None = None


def _carriers(program: Program) -> Carriers:
    """What may hold optimizers, or what makes them."""
    makers = program.noted(Makers)
    return Carriers(program, makers.words(), makers.classes(), makers.is_source)


class SlotMentions:
    """The statements of a program by what they mention: of those that matter to optimizers."""

    def __init__(self, program: Program, optimizers: Optimizers) -> None:
        self.program = program
        self.optimizers = optimizers
        self._slots: dict[int, frozenset[Slot]] = {}

    def of(self, slots: Iterable[Slot]) -> list[Place]:
        """(function, statement) of all functions' statements that mention one of some slots, in order."""
        wanted = frozenset(slots)
        names = {slot.name for slot in wanted}
        others = (other for name in names for other in self._shown_as(name))
        return [
            (function, stmt)
            for function, stmt in self.program.mentioning(*names, *others)
            if not wanted.isdisjoint(self._mentioned(function, stmt))
        ]

    def holding(self, birth: Birth) -> set[Slot]:
        """The slots that are mentioned, and may hold what is born there."""
        return self._by_birth.get(birth, set())

    def _mentioned(self, function: str, stmt: ir.Stmt) -> frozenset[Slot]:
        """The slots that a statement of a function mentions."""
        if id(stmt) in self.program.class_statements:
            return frozenset()
        if id(stmt) not in self._slots:
            found = {
                self.optimizers.slot(inner, function)
                for inner in parts_of(stmt)
                if isinstance(inner, (ir.Name, ir.Attr, ir.Item))
            }
            self._slots[id(stmt)] = frozenset(slot for slot in found if slot)
        return self._slots[id(stmt)]

    def _shown_as(self, name: str) -> Iterable[str]:
        """The properties that hand out an attribute of some name."""
        return self._properties.get(name, ())

    @cached_property
    def _properties(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, function in self.program.functions.items():
            kept = _kept_by(self.program, name)
            if kept is not None:
                found.setdefault(kept, set()).add(function.name)
        return found

    @cached_property
    def _by_birth(self) -> dict[Birth, set[Slot]]:
        places = self.optimizers.carriers.mentions(self._shown_as)
        found: dict[Birth, set[Slot]] = {}
        for slot in frozenset().union(*(self._mentioned(*place) for place in places)):
            if self.optimizers.leads_nowhere(slot):
                continue
            for birth in self.optimizers.trace(slot).births:
                found.setdefault(birth, set()).add(slot)
        return found


def _kept_by(program: Program, name: str) -> str | None:
    """The attribute that a property does nothing but hand out; one that is made when it is asked for
    first, too."""
    function = program.functions[name]
    if len(function.decorators) != 1 or not program.is_property(name):
        return None
    if function.class_name is None:
        return None
    match [s for s in function.body if not isinstance(s.value, ir.Const)]:
        case [
            *made,
            ir.Stmt(kind="return", value=ir.Attr(ir.Name(function.self_name), kept)),
        ]:
            given = ir.Attr(ir.Name(function.self_name or ""), kept)
            test = ir.Operation("is", (given, ir.Const(None)))
            if not made or (
                [(s.kind, s.value, len(s.blocks)) for s in made] == [("if", test, 1)]
                and all(
                    d.function == name or ir.local_name(d.function).endswith("__init__")
                    for d in program.attribute_definitions(function.class_name, kept)
                )
            ):
                return kept
    return None


def _cached(program: Program, class_name: str, name: str) -> tuple[str, ir.Stmt] | None:
    """The ``return`` of a ``cached_property``, whose value is the attribute from then on."""
    methods = program.methods(class_name, name, True)
    for method in methods if len(methods) == 1 else ():
        function = program.functions[method]
        body = [s for s in function.body if not isinstance(s.value, ir.Const)]
        if [s.kind for s in body] == ["return"] and len(function.decorators) == 1:
            cached = program.origin(function.decorators[0], function.parent or method)
            if cached == "functools.cached_property":
                return method, body[0]
    return None


class Optimizers:
    """Finds and follows the optimizers of a program."""

    def __init__(self, program: Program, any_step: bool = False) -> None:
        """``any_step``: follow also those that step in a way that a scaler would not see."""
        self.program = program
        self.any_step = any_step
        self.makers = program.noted(Makers)
        self.points_to = program.noted(PointsTo)
        self.collections = program.noted(Collections)
        self.contents = program.noted(Contents)
        self.mentions = SlotMentions(program, self)
        self._traces: dict[Slot, Trace] = {}
        self._nowhere: set[Slot] = set()
        self._steps: dict[Slot, Step] = {}

    @property
    def carriers(self) -> Carriers:
        """What may hold an optimizer, or what makes one."""
        return self.program.noted(_carriers)

    # -- following ----------------------------------------------------------------------------

    def slot(self, expr: ir.Expr, function: str) -> Slot | None:
        """The slot that an expression names, or None where it names none."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        expr = self.contents.item_of(expr, function) or expr
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            return None if owner is None else Slot("variable", owner, expr.id)
        if isinstance(expr, ir.Item):
            key, holder = key_of(expr), self.slot(expr.value, function)
            outer = () if holder is None else path_of(holder.key)
            if holder is None or not all(
                isinstance(k, (str, int, Turn)) for k in outer
            ):
                return None
            if key is None:
                if outer:
                    return None
                turn = self.collections.turn(expr, function)
                return None if turn is None else replace(holder, key=turn)
            known = self.collections.keys(expr.value, function)
            if key not in known or (ANY in known and key != ANY):
                return None
            return replace(holder, key=key_along(*outer, key))
        if isinstance(expr, ir.Attr):
            classes = self.program.instance_classes(expr.value, function)
            if len(classes) == 1:
                (owner,) = classes
                attr = self._kept_behind(owner, expr.attr)
                return Slot("attribute", self.contents.holder(owner, attr), attr)
        return None

    def _kept_behind(self, class_name: str, attr: str) -> str:
        """The attribute that a property hands out; of what is no property, itself."""
        methods = self.program.methods(class_name, attr, True)
        if len(methods) == 1:
            return _kept_by(self.program, methods[0]) or attr
        return attr

    def given(self, site: CallSite, slot: Slot) -> ir.Expr | None:
        """What a call gives for the parameter that a slot is, or is kept in; None where it leaves that to
        its default, or gives it in a way that is not followed."""
        return self.points_to.argument(site, slot.name, slot.fields)

    def trace(self, slot: Slot) -> Trace:
        """Follow a slot back to the births of what it holds."""
        if slot not in self._traces:
            trace = Trace()
            self._follow(slot, trace)
            self._traces[slot] = trace
        return self._traces[slot]

    def leads_nowhere(self, slot: Slot) -> bool:
        """Whether a trace meets no birth, nor anything else that shows an optimizer.

        Then the same holds of every slot that it has met: it has followed them, too.
        """
        if slot not in self._nowhere and not self._may_hold(slot):
            self._nowhere.add(slot)
        if slot not in self._nowhere:
            trace = self.trace(slot)
            if not trace.births and not any(p.kind in SHOWN for p in trace.problems):
                self._nowhere |= trace.slots
        return slot in self._nowhere

    def may_make(self, call: ir.Call, function: str) -> bool:
        """Whether a call may make an optimizer: `makers` knows whether it does."""
        return self.carriers.may_be(call.func, function)

    def _may_hold(self, slot: Slot) -> bool:
        """Whether any optimizer may get into a slot, as far as can be told without a search."""
        return self.carriers.may_hold(slot.kind, slot.owner, slot.name)

    def made(self, birth: Birth) -> list[Object]:
        """The constructions of the optimizer that is born, each with the calls that lead to it."""
        return [
            one
            for one in self.points_to.given(birth.source)
            if isinstance(one, Object)
            and (one.context[0].call if one.context else one.expr) is birth.call
            and isinstance(one.expr, ir.Call)
            and self.makers.construction(one.expr, one.function, one.context) == "plain"
        ]

    def origins(self, slot: Slot) -> frozenset[Slot]:
        """The slots into which the optimizers that a slot may hold are born."""
        return frozenset(birth.slot for birth in self.trace(slot).births)

    def _follow(self, slot: Slot, trace: Trace) -> None:
        spend(40)
        if slot in trace.slots:
            return
        path = path_of(slot.key)
        # A function that calls itself for the parts of a tree takes ever more out of it.
        if len(path) > trace.depths.setdefault(slot.holder, len(path)):
            place = slot.owner if slot.kind == "variable" else ir.top_of(slot.owner)
            line = self.program.functions[place].line
            reason = f"{slot.name} is taken out of itself again and again"
            trace.problems.append(Problem(ENDLESS, place, line, reason))
            return
        trace.slots.add(slot)
        step = self._first_step(slot)
        trace.births |= step.births
        if step.is_parameter:
            trace.parameters.add(slot)
        if step.alias is not None:
            trace.aliases[slot] = step.alias
        if step.values:
            trace.values[slot] = step.values
        if step.each is not None:
            trace.each[slot] = step.each
        for one in step.onward:
            if isinstance(one, Problem):
                trace.problems.append(one)
            else:
                self._follow(one, trace)

    def _first_step(self, slot: Slot) -> Step:
        """What is known of a slot without following others: the same in all traces."""
        if slot not in self._steps:
            self._steps[slot] = found = Step()
            self._look(slot, found)
        return self._steps[slot]

    def _look(self, slot: Slot, trace: Step) -> None:
        program = self.program
        if slot.takes_turns:
            self._follow_keys(slot, trace)
            return
        if slot.kind == "attribute":
            definitions = program.attribute_definitions(slot.owner, slot.name)
            cached = _cached(program, slot.owner, slot.name)
            if cached is not None and not definitions:
                at, stmt = cached
                assert stmt.value is not None
                made = State(stmt.value, at, stmt, slot.fields)
                self._follow_value(slot, made, None, trace)
            elif not definitions:
                found = program.classes[slot.owner]
                reason = f"no assignment of self.{slot.name} was found"
                method = program.method(slot.owner, slot.name)
                fields = [one.targets or one.exprs for one in found.body]
                line = found.line
                if method is not None:
                    line = program.functions[method].line
                    reason = (
                        f"{slot.name} is a property or a method of {found.name}, "
                        "which is not followed"
                    )
                elif any(ir.Name(slot.name) in names[:1] for names in fields):
                    reason = (
                        f"{slot.name} is a field of {found.name}, "
                        "which is filled in a way that is not followed"
                    )
                trace.onward.append(
                    Problem(NOT_FOUND, ir.top_of(slot.owner), line, reason)
                )
            elif program.is_named_tuple(slot.owner):
                found = program.classes[slot.owner]
                reason = (
                    f"{found.name} is a named tuple, and gets no field for a scaler"
                )
                trace.onward.append(
                    Problem(NOT_FOUND, found.parent, found.line, reason)
                )
                return
            trace.onward += self._on_the_class(slot)
        else:
            definitions = program.definitions(slot.owner, slot.name)
            function = program.functions[slot.owner]
            if program.is_param(slot.owner, slot.name):
                self._follow_parameter(slot, trace)
            elif not definitions:
                reason = f"no value of {slot.name} was found"
                trace.onward.append(
                    Problem(NOT_FOUND, slot.owner, function.line, reason)
                )
        for definition in definitions:
            call = self._made_beside(slot, definition, definitions)
            if call is None:
                self._follow_definition(slot, definition, trace)
                continue
            at, stmt = definition.function, definition.stmt
            given = State(call, at, stmt, ())
            birth = Birth(at, stmt.path, slot, stmt, call, given, is_read=True)
            trace.births.add(birth)
        if slot.key is not None:
            holder, function_name = self._named(slot.holder)
            for key, definition in self.collections.stored(holder, function_name):
                if key == ANY and not slot.is_many:
                    reason = f"{slot.name} is filled under keys that cannot be seen"
                    line = definition.stmt.line
                    trace.onward.append(
                        Problem(NOT_FOUND, definition.function, line, reason)
                    )
                if key == path_of(slot.key)[0] and definition.value is not None:
                    at, stmt = definition.function, definition.stmt
                    put = State(definition.value, at, stmt, slot.fields[1:])
                    self._follow_value(slot, put, None, trace)

    def _on_the_class(self, slot: Slot) -> Iterator[Problem]:
        """Where an attribute of instances is given to their class as well: those that have none of their
        own would find no scaler."""
        program = self.program
        family = program.family(slot.owner)
        places = [
            (ir.top_of(name), stmt.line)
            for name in sorted(family)
            if slot.name not in program.written_fields(name)
            for stmt in ir.statements(program.classes[name].body)
            if stmt.value is not None and not isinstance(stmt.value, ir.Const)
            if ir.Name(slot.name) in stmt.targets
        ]
        places += [
            (definition.function, definition.stmt.line)
            for holder, definition in program.attribute_targets.get(slot.name, ())
            if not isinstance(definition.value, ir.Const)
            if program.set_on_class(holder, definition.function) & family
        ]
        for function, line in places[:1]:
            name = program.classes[slot.owner].name
            reason = (
                f"{slot.name} is an attribute of {name} itself and of its instances"
            )
            yield Problem(NOT_FOUND, function, line, reason)

    def _named(self, slot: Slot) -> tuple[ir.Expr, str]:
        """An expression for a slot, and a function in which it means that."""
        if slot.kind != "attribute":
            return slot.expr(None), slot.owner
        instance, function = self._a_method(slot.owner)
        return slot.expr(instance), function

    def _follow_keys(self, slot: Slot, trace: Step) -> None:
        """Follow what a loop's variable takes out of a collection to all elements of that."""
        holder, function = self._named(slot.holder)
        keys = self.collections.keys(holder, function)
        path = path_of(slot.key)
        turn = path.index(slot.turn)
        members = [
            replace(slot, key=key_along(*path[:turn], key, *path[turn + 1 :]))
            for key in keys
        ]
        for member in members:
            trace.onward.append(member)
        if members:
            trace.each = tuple(members)
            return
        reason = f"what {slot.shown} takes out of its collection is not visible"
        line = self.program.functions[function].line
        trace.onward.append(Problem(NOT_FOUND, function, line, reason))

    def _a_method(self, class_name: str) -> tuple[str, str]:
        """(name of the instance, method) of some method of a class."""
        for one in self.program.bases(class_name):
            for _, method in self.program.classes[one].methods:
                name = self.program.functions[method].self_name
                if name is not None:
                    return name, method
        return "self", ir.top_of(class_name)

    def _follow_each(self, slot: Slot, definition: Definition, trace: Step) -> bool:
        """Follow a loop's variable to all elements of the collection that the loop goes through."""
        stmt, function = definition.stmt, definition.function
        members: list[Slot] = []
        for taken in (f for t in stmt.targets for f in positions(t, slot.name)):
            assert stmt.value is not None
            start = State(stmt.value, function, stmt, (EACH, *taken, *slot.fields))
            for one in self.points_to.given(start):
                found = self._elements(one) if isinstance(one, State) else []
                if not found:
                    return False
                members += found
        trace.onward += members
        trace.each = tuple(members)
        return bool(members)

    def _elements(self, at: State) -> list[Slot]:
        """The slots of what a loop takes out of a collection, or of what one holds that is written out."""
        if not at.fields:
            one = self.slot(at.expr, at.function)
            return [] if one is None else [one]
        taken, *inside = at.fields
        holder = self.slot(at.expr, at.function)
        if holder is None or holder.key is not None or taken not in (EACH, ANY_ITEM):
            return []
        if taken == EACH and self.collections.is_dict(at.expr, at.function):
            return []
        along: list[Key] = []
        for _, key in inside:
            if not isinstance(key, (str, int)):
                return []
            along.append(key)
        keys = self.collections.keys(at.expr, at.function)
        return [replace(holder, key=key_along(key, *along)) for key in keys]

    def _follow_parameter(self, slot: Slot, trace: Step) -> None:
        program = self.program
        function = program.functions[slot.owner]
        trace.is_parameter = True
        sites = program.call_sites.get(slot.owner, [])
        unseen = None if sites else self._given_out_of_sight(slot)
        if unseen is not None:
            trace.births.add(unseen)
        elif not sites and function.name == "__init__" and function.class_name:
            name = program.called_as(slot.owner)
            reason = f"{slot.name} is a parameter of {name}(), and nothing that was read makes one"
            if slot.owner in program.escaping:
                reason += ": the class is used as a value"
            trace.onward.append(Problem(NOT_FOUND, slot.owner, function.line, reason))
        elif not sites:
            reason = f"{slot.name} is a parameter of {function.name}(), which nothing calls here"
            if function.self_name is not None and program.calls_named(function.name):
                reason = f"{slot.name} is a parameter of {function.name}(), and who calls it is not known"
            if slot.owner in program.escaping:
                reason = f"{slot.name} is a parameter of {function.name}(), which is used as a value"
            trace.onward.append(Problem(NOT_FOUND, slot.owner, function.line, reason))
        param = next(p for p in function.params if p.name == slot.name)
        start = State(ir.Name(slot.name), slot.owner, None, slot.fields)
        for site in sites:
            value = program.argument_at(site, slot.name)
            starred = any(arg.star for arg in site.call.args)
            if param.kind == "positional" and value is None and not starred:
                if param.default is None:
                    reason = f"this call gives no value to {slot.name}"
                    trace.onward.append(
                        Problem(NOT_FOUND, site.caller, site.call.line, reason)
                    )
                continue
            for given in self.points_to.given_by(site, param, (), start):
                if given.stmt is not None:  # not the parameter's default
                    self._follow_value(slot, given, site, trace)

    def _given_out_of_sight(self, slot: Slot) -> Birth | None:
        """The birth of what only callers out of sight give to a function; None where some are in sight that
        cannot be told apart from others."""
        program, owner = self.program, slot.owner
        function, expr = program.functions[owner], ir.Name(slot.name)
        name, bases = program.called_as(owner), frozenset[str]()
        is_init = function.name == "__init__" and function.class_name is not None
        if is_init and function.class_name is not None:
            bases = frozenset(program.bases(function.class_name))
        is_method = function.self_name is not None and not is_init
        if (
            slot.key is not None
            or owner in program.escaping
            or function.parent is None
            or not self.makers.looks_like_one(expr, owner)
            or any(
                (is_method or isinstance(call.func, ir.Name))
                and not program.callees(call, where)
                for where, _, call in program.calls_named(name)
            )
            or any(
                program.functions[callee].name == "__init__"
                and program.functions[callee].class_name not in bases
                for _, call in each_call(function.body)
                if any(arg.value == expr for arg in call.args)
                for callee in program.callees(call, owner)
            )
        ):
            return None
        known = program.control(function.parent).statements
        outer = (function.path[:n] for n in range(len(function.path), 0, -1))
        stmt = next(known[path] for path in outer if path in known)
        given = State(expr, owner, None)
        birth = function.parent, stmt.path, slot, stmt, ir.Call(expr, ()), given
        return Birth(*birth, is_given=True)

    def _is_module(self, name: str, imported: Definition) -> bool:
        """Whether an import gives a name a module, which is no optimizer, as far as that can be told."""
        scope = self.program.functions[imported.function]
        return imported.stmt.kind == "import" or any(
            target.startswith("torch.")
            for local, target in scope.imports
            if local == name
        )

    def _follow_definition(
        self, slot: Slot, definition: Definition, trace: Step
    ) -> None:
        stmt = definition.stmt
        function, value = definition.function, definition.value
        if definition.call is not None and value is not None:
            site = CallSite(function, stmt, definition.call, slot.owner, True)
            given = State(value, function, stmt, slot.fields)
            self._follow_value(slot, given, site, trace)
            return
        if stmt.kind == "for" and self._follow_each(slot, definition, trace):
            return
        if stmt.kind in IMPORTS and self._is_module(slot.name, definition):
            return
        if stmt.kind not in ("assign", "annassign") or stmt.value is None:
            kind = SEVERAL if stmt.kind == "for" else NOT_FOUND
            reason = f"{slot.shown} is given its value in a way that is not followed"
            if kind == SEVERAL:
                reason = "optimizers are kept in a collection"
            elif stmt.kind == "with":
                manager = next((ir.render(call.func) for call in calls_of(stmt)), None)
                if manager is not None:
                    reason = f"{slot.shown} is what `with {manager}()` hands out"
            trace.onward.append(Problem(kind, function, stmt.line, reason))
            return
        places: list[Fields] = [()]
        if value is not None and definition.index is not None:
            places = [(item(definition.index),)]
        elif value is None:  # unpacked, perhaps within an unpacked value
            where = positions if slot.kind == "variable" else attribute_positions
            value = stmt.value
            places = [found for t in stmt.targets for found in where(t, slot.name)]
        for taken in places:
            given = State(value, function, stmt, (*taken, *slot.fields))
            self._follow_value(slot, given, None, trace)

    def _made_beside(
        self, slot: Slot, read: Definition, definitions: Iterable[Definition]
    ) -> ir.Call | None:
        """The call that makes an optimizer where no file has one, in the function that reads it out of a
        file: in a run before, it has made that, too."""
        program, function = self.program, read.function
        if slot.key or slot.fields:
            return None
        match read.value:
            case ir.Item(value=ir.Name() as file, key=ir.Const()) if (
                read.stmt.value is read.value
            ):
                held = self.points_to.whole(file, function)
                # The variable may have held the file's name.
                loaded = [one for one in held if not isinstance(one.expr, ir.Const)]
                if not loaded or not all(
                    isinstance(one.expr, ir.Call)
                    and program.origin(one.expr.func, one.function) in _LOADS
                    for one in loaded
                ):
                    return None
            case _:
                return None
        made = {
            one.value
            for one in definitions
            if isinstance(one.value, ir.Call)
            and one.function == function
            and self.makers.construction(one.value, function) == "plain"
        }
        return made.pop() if len(made) == 1 else None

    def _follow_value(
        self, slot: Slot, given: _Next, site: CallSite | None, trace: Step
    ) -> None:
        """Follow what a statement, or a call, gives to a slot."""
        if isinstance(given, State) and isinstance(given.expr, ir.Operation):
            if given.expr.op == "if":
                for branch in given.expr.operands[1:]:
                    self._follow_value(slot, given._replace(expr=branch), site, trace)
                return
        found = Step()
        results: Iterable[_Next] = [given]
        if isinstance(given, State):
            known = isinstance(given.expr, ir.Item)
            taken = self.slot(given.expr, given.function) if known else None
            if taken is None or (given.fields and not taken.takes_turns):
                results = self.points_to.given(given)
        for one in results:
            if isinstance(one, State):
                self._follow_name(slot, one, given, found)
            elif not one.is_none:
                self._follow_object(slot, one, given, site, found)
        if found.births and any(isinstance(one, Slot) for one in found.onward):
            reason = "the optimizer is made here, or is another one"
            found = Step([self._problem(given, reason)])
        trace.births |= found.births
        trace.onward += found.onward
        trace.alias = trace.alias or found.alias
        trace.values += found.values

    def _follow_name(self, slot: Slot, named: State, given: _Next, trace: Step) -> None:
        """Follow a slot to the variable or attribute whose value it is given."""
        expr = expr_of(named)
        source = None if expr is None else self.slot(expr, named.function)
        if source is None:
            keys: list[Key | None] = []
            base = expr
            while isinstance(base, ir.Item):
                keys.insert(0, key_of(base))
                base = base.value
            holder = None if base is None else self.slot(base, named.function)
            known = [key for key in keys if key is not None]
            if holder is not None and holder.key is None and known == keys:
                source = replace(holder, key=key_along(*known))
        if source is None or named.function != given.function:
            reason = "the optimizer comes from an expression that is not followed"
            if named.fields:
                reason = "the optimizer comes out of a collection"
            trace.onward.append(self._problem(given, reason))
            return
        if source != slot:
            assert expr is not None
            trace.alias = trace.alias or source
            trace.values.append((expr, named.function))
        trace.onward.append(source)

    def _follow_object(
        self,
        slot: Slot,
        made: Object,
        given: _Next,
        site: CallSite | None,
        trace: Step,
    ) -> None:
        """What a slot is given that no variable or attribute holds: an optimizer that is born."""
        stmt = given.stmt
        assert stmt is not None
        outer = made.context[0] if made.context else None
        call = outer.call if outer is not None else made.expr
        at = made.function if outer is None else outer.caller
        if not isinstance(call, ir.Call) or at != given.function:
            reason = "the optimizer comes from an expression that is not followed"
            ended = NOT_FOUND
            if made.fields:
                reason = (
                    "the optimizer comes out of a collection that is not written out"
                )
            elif isinstance(made.expr, (ir.Display, ir.Comprehension)):
                ended, reason = SEVERAL, "optimizers are kept in a collection"
            trace.onward.append(Problem(ended, given.function, stmt.line, reason))
            return
        kind = None
        if made.kind == "value" and not made.fields and isinstance(made.expr, ir.Call):
            kind = self.makers.construction(made.expr, made.function, made.context)
        if self.any_step and kind in (CLOSURE, WRAPPED):
            kind = "plain"
        if kind == "plain":
            born = site if slot.key is None else None
            if born is not None and (
                call is not given.expr or not self._may_be_made_in(born)
            ):
                name = ir.render(born.call.func)
                reason = f"the optimizer is made inside the call of {name}()"
                trace.onward.append(self._problem(given, reason))
                return
            assert isinstance(given, State)
            birth = Birth(given.function, stmt.path, slot, stmt, call, given, born)
            trace.births.add(birth)
        elif kind is not None:
            assert isinstance(made.expr, ir.Call)
            name = ir.render(made.expr.func) or "the optimizer"
            reason = (
                f"{name} needs a closure"
                if kind == CLOSURE
                else f"{name} {IN_ITS_OWN_WAY}"
            )
            trace.onward.append(Problem(kind, given.function, stmt.line, reason))
        else:
            own = bool(self.program.callees(call, given.function))
            trace.onward.append(self._unknown_maker(call, given.function, stmt, own))

    def _may_be_made_in(self, site: CallSite) -> bool:
        """Whether a call may be given a switch with the optimizer that is made in its argument list."""
        program = self.program
        return site.callee in program.functions or site.callee in program.classes

    @staticmethod
    def _problem(given: _Next, reason: str) -> Problem:
        line = given.stmt.line if given.stmt is not None else 0
        return Problem(NOT_FOUND, given.function, line, reason)

    def _unknown_maker(
        self, call: ir.Call, function: str, stmt: ir.Stmt, own: bool
    ) -> Problem:
        origin = self.program.origin(call.func, function) or ""
        text = ir.render(call.func) or "this call"
        if isinstance(call.func, ir.Call):
            text = f"{ir.render(call.func.func) or 'this call'}(...)"
        method = ir.method_of(call)
        if origin.startswith("apex.amp") or (
            method == "initialize" and text.startswith("amp.")
        ):
            return Problem(APEX, function, stmt.line, "apex.amp wraps the optimizer")
        if method in ("prepare", "setup", "setup_optimizers") or origin.startswith(
            "deepspeed."
        ):
            return Problem(
                FRAMEWORK,
                function,
                stmt.line,
                f"{text}() hands the optimizer to a framework",
            )
        if origin in _LOADS:
            reason = "the optimizer itself comes out of a file, and no scaler with it"
            return Problem(LOADED, function, stmt.line, reason)
        if self.program.is_local(origin):
            reason = f"{text}() makes the optimizer in another file"
        elif own:
            reason = f"what {text}() returns is not followed to an optimizer"
        elif _FACTORIES_ELSEWHERE.search(origin):
            reason = f"{text}() may make a wrapped optimizer"
        else:
            reason = f"{text}() is not known to make an optimizer"
            lost = where_lost(self.program, call.func, function, stmt)
            if lost is not None:
                return Problem(NOT_FOUND, function, lost[1], f"{reason}: {lost[0]}")
        return Problem(NOT_FOUND, function, stmt.line, reason)
