"""Where optimizers are born, and the way from a ``step()`` back to the birth.

An optimizer is followed through *slots*: variables (of the scope that owns them) and attributes (of
the class that has them). A trace that reaches anything it cannot read ends in a problem, never in a
guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from amp_migrate.analysis.objects.collections import ANY, Collections, Key, Turn, key_of
from amp_migrate.analysis.objects.makers import CLOSURE, WRAPPED, Makers
from amp_migrate.core.effort import spend
from amp_migrate.program import ir
from amp_migrate.program.each import HIDDEN
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

NOT_FOUND = "not found"
SEVERAL = "several"
APEX = "apex"
FRAMEWORK = "framework"
SHOWN = frozenset((CLOSURE, WRAPPED, APEX))
"""Problems of what is an optimizer all the same."""

_MOST_RETURNS = 6
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
    def turn(self) -> Turn:
        """The loop's variable that a slot which stands for several optimizers goes by."""
        return self.key if isinstance(self.key, Turn) else Turn(self.owner, self.name)

    @property
    def shown(self) -> str:
        """What messages call it."""
        # Of a list's own variable, its name as it is written.
        name = self.name.partition(HIDDEN)[0]
        if self.key is None:
            return name
        if isinstance(self.key, Turn):
            return f"{name}[{self.key.name}]"
        return f"{name}[{self.key!r}]" if self.key != ANY else f"{name}[...]"

    def expr(self, instance: str | None) -> ir.Expr:
        """How a function that sees it names it; an attribute by the name of its instance."""
        found: ir.Expr = ir.Name(self.name)
        if self.kind == "attribute":
            assert instance is not None
            found = ir.Attr(ir.Name(instance), self.name)
        if self.key is None:
            return found
        if isinstance(self.key, Turn):
            return ir.Item(found, ir.Name(self.key.name))
        return ir.Item(found, ir.Const(self.key))


@dataclass(frozen=True, slots=True)
class Birth:
    """The statement that binds a new optimizer to a slot for the first time."""

    function: str
    path: ir.Path
    slot: Slot
    stmt: ir.Stmt = field(compare=False)
    call: ir.Call
    given: CallSite | None = field(compare=False, default=None)
    """The call that it is an argument of: ``Trainer(model, SGD(model.parameters()))``."""


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
    problems: list[Problem] = field(default_factory=list)
    parameters: set[Slot] = field(default_factory=set)
    """Slots that are parameters, filled by callers."""
    aliases: dict[Slot, Slot] = field(default_factory=dict)
    """Slots that another slot's value was assigned to, with that other slot."""
    values: dict[Slot, list[tuple[ir.Expr, str]]] = field(default_factory=dict)
    """The expressions, each with its function, that name what a slot is another name for."""
    each: dict[Slot, tuple[Slot, ...]] = field(default_factory=dict)
    """Variables of ``for`` loops with the slots whose optimizers they stand for in turn."""
    brief: bool = False
    """It is only asked whether all is born in sight, without parameters: what shows that it is not
    ends it, since functions that call each other have very many ways to follow."""

    @property
    def is_over(self) -> bool:
        """Whether no more of a brief one needs to be followed."""
        return self.brief and bool(self.problems or self.parameters)


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


class SlotMentions:
    """The statements of a program by what they mention: looked for once, for all optimizers."""

    def __init__(self, program: Program, optimizers: Optimizers) -> None:
        self.program = program
        self.optimizers = optimizers

    def of(self, slots: Iterable[Slot]) -> list[tuple[str, ir.Stmt]]:
        """(function, statement) of all functions' statements that mention one of some slots, in order."""
        places, by_slot = self._found
        numbers = {number for slot in slots for number in by_slot.get(slot, ())}
        return [places[number] for number in sorted(numbers)]

    def holding(self, birth: Birth) -> set[Slot]:
        """The slots that are mentioned, and may hold what is born there."""
        return self._by_birth.get(birth, set())

    @cached_property
    def _found(self) -> tuple[list[tuple[str, ir.Stmt]], dict[Slot, list[int]]]:
        places: list[tuple[str, ir.Stmt]] = []
        by_slot: dict[Slot, list[int]] = {}
        for qualname, function in self.program.functions.items():
            for stmt in ir.statements(function.body):
                slots = {
                    self.optimizers.slot(inner, qualname)
                    for expr in stmt.exprs
                    for inner in ir.walk(expr)
                    if isinstance(inner, (ir.Name, ir.Attr, ir.Item))
                }
                for slot in slots:
                    if slot is not None:
                        by_slot.setdefault(slot, []).append(len(places))
                places.append((qualname, stmt))
        return places, by_slot

    @cached_property
    def _by_birth(self) -> dict[Birth, set[Slot]]:
        found: dict[Birth, set[Slot]] = {}
        for slot in self._found[1]:
            if self.optimizers.leads_nowhere(slot):
                continue
            for birth in self.optimizers.trace(slot).births:
                found.setdefault(birth, set()).add(slot)
        return found


class Optimizers:
    """Finds and follows the optimizers of a program."""

    def __init__(self, program: Program, any_step: bool = False) -> None:
        """``any_step``: follow also those that step in a way that a scaler would not see."""
        self.program = program
        self.any_step = any_step
        self.makers = program.noted(Makers)
        self.collections = program.noted(Collections)
        self.mentions = SlotMentions(program, self)
        self._traces: dict[Slot, Trace] = {}
        self._nowhere: set[Slot] = set()
        self._steps: dict[Slot, Step] = {}
        self._asking: set[tuple[str, Key | None]] = set()
        self._cuts = 0
        """How often a question was met that was being asked already."""

    # -- following ----------------------------------------------------------------------------

    def slot(self, expr: ir.Expr, function: str) -> Slot | None:
        """The slot that an expression names, or None where it names none."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            return None if owner is None else Slot("variable", owner, expr.id)
        if isinstance(expr, ir.Item):
            key, holder = key_of(expr), self.slot(expr.value, function)
            if holder is None or holder.key is not None:
                return None
            if key is None:
                turn = self.collections.turn(expr, function)
                return None if turn is None else replace(holder, key=turn)
            if key not in self.collections.keys(expr.value, function):
                return None
            return replace(holder, key=key)
        if isinstance(expr, ir.Attr):
            classes = self.program.instance_classes(expr.value, function)
            if len(classes) == 1:
                owner = self.collections.holder(next(iter(classes)), expr.attr)
                return Slot("attribute", owner, expr.attr)
        return None

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
        if slot not in self._nowhere:
            trace = self.trace(slot)
            if not trace.births and all(p.kind not in SHOWN for p in trace.problems):
                self._nowhere |= trace.slots
        return slot in self._nowhere

    def origins(self, slot: Slot) -> frozenset[Slot]:
        """The slots into which the optimizers that a slot may hold are born."""
        return frozenset(birth.slot for birth in self.trace(slot).births)

    def _follow(self, slot: Slot, trace: Trace) -> None:
        spend(40)
        if slot in trace.slots or trace.is_over:
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
            if trace.is_over:
                return
            if isinstance(one, Problem):
                trace.problems.append(one)
            else:
                self._follow(one, trace)

    def _first_step(self, slot: Slot) -> Step:
        """What is known of a slot without following others: the same in all traces."""
        if slot not in self._steps:
            cuts = self._cuts
            found = Step()
            self._look(slot, found)
            if cuts != self._cuts:
                # Something was not asked, since it is being asked already: not so the next time.
                return found
            self._steps[slot] = found
        return self._steps[slot]

    def _look(self, slot: Slot, trace: Step) -> None:
        program = self.program
        if isinstance(slot.key, Turn):
            self._follow_keys(slot, trace)
            return
        if slot.kind == "attribute":
            definitions = program.attribute_definitions(slot.owner, slot.name)
            if not definitions:
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
                doubt = program.doubt_of(slot.owner)
                if doubt is not None:
                    trace.onward.append(Problem(NOT_FOUND, *doubt))
                    return
        else:
            definitions = program.definitions(slot.owner, slot.name)
            function = program.functions[slot.owner]
            if any(param.name == slot.name for param in function.params):
                self._follow_parameter(slot, trace)
            elif not definitions:
                reason = f"no value of {slot.name} was found"
                trace.onward.append(
                    Problem(NOT_FOUND, slot.owner, function.line, reason)
                )
        for definition in definitions:
            self._follow_definition(slot, definition, trace)
        if slot.key is not None:
            holder, function_name = self._named(slot.holder)
            for key, definition in self.collections.stored(holder, function_name):
                if key == slot.key and definition.value is not None:
                    self._follow_value(
                        slot,
                        definition.value,
                        definition.function,
                        definition.stmt,
                        None,
                        trace,
                    )

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
        members = [replace(slot, key=key) for key in keys]
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

    def _follow_given(
        self,
        slot: Slot,
        value: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        index: int | None,
        trace: Step,
    ) -> None:
        """Follow what is assigned to a slot, or to the collection whose element a slot is."""
        if slot.key is None:
            self._follow_value(slot, value, function, stmt, index, trace)
            return
        match value:
            case ir.Const(value=None):
                return
            case ir.Name() | ir.Attr() if index is None:
                source = self.slot(value, function)
                if source is not None and source.key is None:
                    there = replace(source, key=slot.key)
                    if there != slot:
                        trace.alias = trace.alias or there
                        named = ir.Item(value, ir.Const(slot.key))
                        trace.values.append((named, function))
                    trace.onward.append(there)
                    return
            case ir.Comprehension(elements=(*_, ir.Call() as call)) if slot.key == ANY:
                if self.makers.construction(call, function) == "plain":
                    trace.births.add(Birth(function, stmt.path, slot, stmt, call))
                    return
            case ir.Call() if given := self._given_back(value, function, index):
                for one in given:
                    self._follow_given(slot, one, function, stmt, None, trace)
                return
            case ir.Display() | ir.Call() if index is None:
                elements = self.collections.elements(value, function)
                if slot.key in elements:
                    element = elements[slot.key]
                    self._follow_value(slot, element, function, stmt, None, trace)
                    return
                if (
                    isinstance(value, ir.Display)
                    or elements
                    or self.collections.begins_empty(value, function)
                ):
                    # It is put there later.
                    return
                self._follow_call(slot, value, function, stmt, slot.key, trace)
                return
        reason = "the optimizer comes out of a collection that is not written out"
        trace.onward.append(Problem(NOT_FOUND, function, stmt.line, reason))

    def _follow_each(self, slot: Slot, definition: Definition, trace: Step) -> bool:
        """Follow a loop's variable to all elements of the collection that the loop goes through."""
        function = definition.function
        found = self.collections.iterated(definition.stmt, slot.name, function)
        if found is None:
            return False
        members: list[Slot] = []
        if isinstance(found, ir.Display):
            for item in found.items:
                member = self.slot(item, function)
                if member is None:
                    return False
                members.append(member)
        else:
            holder = self.slot(found, function)
            if holder is None or holder.key is not None:
                return False
            keys = self.collections.keys(found, function)
            members = [replace(holder, key=key) for key in keys]
        for member in members:
            trace.onward.append(member)
        trace.each = tuple(members)
        return bool(members)

    def _follow_parameter(self, slot: Slot, trace: Step) -> None:
        program = self.program
        function = program.functions[slot.owner]
        trace.is_parameter = True
        sites = program.call_sites.get(slot.owner, [])
        if not sites and function.name == "__init__" and function.class_name:
            name = program.classes[function.class_name].name
            reason = f"{slot.name} is a parameter of {name}(), and nothing in sight makes one"
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
        for site in sites:
            value = program.argument_at(site, slot.name)
            if value is None:
                param = next(p for p in function.params if p.name == slot.name)
                if param.default is None or any(arg.star for arg in site.call.args):
                    reason = f"the value of {slot.name} in this call of {function.name}() is not plain"
                    trace.onward.append(
                        Problem(NOT_FOUND, site.caller, site.call.line, reason)
                    )
            elif slot.key is not None:
                self._follow_given(slot, value, site.caller, site.stmt, None, trace)
            elif isinstance(value, ir.Call):
                kind = self.makers.construction(value, site.caller)
                name = ir.render(site.call.func) or function.name
                reason = f"the optimizer is made inside the call of {name}()"
                if kind in (CLOSURE, WRAPPED):
                    reason = f"{ir.render(value.func)} is stepped"
                elif kind == "plain" or self._is_made_by(value, site.caller, site.stmt):
                    born = Birth(
                        site.caller, site.stmt.path, slot, site.stmt, value, site
                    )
                    trace.births.add(born)
                    continue
                else:
                    kind = NOT_FOUND
                trace.onward.append(Problem(kind, site.caller, site.call.line, reason))
            else:
                self._follow_value(slot, value, site.caller, site.stmt, None, trace)

    def _follow_definition(
        self, slot: Slot, definition: Definition, trace: Step
    ) -> None:
        stmt = definition.stmt
        if definition.call is not None and definition.value is not None:
            if not isinstance(definition.value, ir.Call):
                self._follow_value(
                    slot, definition.value, definition.function, stmt, None, trace
                )
                return
            if slot.key is None and self._is_born_in(definition, slot, trace):
                return
            reason = f"the optimizer is made inside the call of {ir.render(definition.call.func)}()"
            trace.onward.append(
                Problem(NOT_FOUND, definition.function, stmt.line, reason)
            )
            return
        if stmt.kind == "for" and self._follow_each(slot, definition, trace):
            return
        if definition.value is None or stmt.kind not in ("assign", "annassign"):
            kind = SEVERAL if stmt.kind == "for" else NOT_FOUND
            reason = (
                "optimizers are kept in a collection"
                if kind == SEVERAL
                else f"{slot.shown} is given its value in a way that is not followed"
            )
            trace.onward.append(Problem(kind, definition.function, stmt.line, reason))
            return
        self._follow_given(
            slot, definition.value, definition.function, stmt, definition.index, trace
        )

    def _is_born_in(self, definition: Definition, slot: Slot, trace: Step) -> bool:
        """Whether an optimizer is made in the call that fills a named tuple, of which there is one."""
        made, call, function = definition.value, definition.call, definition.function
        if call is None or not isinstance(made, ir.Call):
            return False
        if not self.program.is_named_tuple(slot.owner):
            return False
        stmt = definition.stmt
        kind = self.makers.construction(made, function)
        if kind != "plain" and not (
            kind is None and self._is_made_by(made, function, stmt)
        ):
            return False
        site = CallSite(function, stmt, call, slot.owner, True)
        trace.births.add(Birth(function, stmt.path, slot, stmt, made, site))
        return True

    def _follow_value(
        self,
        slot: Slot,
        value: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        index: int | None,
        trace: Step,
    ) -> None:
        match value:
            case ir.Const(value=None):
                return
            case ir.Operation(op="if", operands=(_, body, orelse)):
                for branch in (body, orelse):
                    self._follow_value(slot, branch, function, stmt, index, trace)
                return
            case ir.Item(value=ir.Display(kind="dict", items=items)) if index is None:
                for item in items:
                    self._follow_value(slot, item, function, stmt, None, trace)
                return
            case ir.Call():
                self._follow_call(slot, value, function, stmt, index, trace)
                return
            case ir.Name() | ir.Attr() | ir.Item() if index is None:
                source = self.slot(value, function)
                if source is not None:
                    if source != slot:
                        trace.alias = trace.alias or source
                        trace.values.append((value, function))
                    trace.onward.append(source)
                    return
        reason = "the optimizer comes from an expression that is not followed"
        kind = NOT_FOUND
        if isinstance(value, (ir.Display, ir.Comprehension)):
            kind, reason = SEVERAL, "optimizers are kept in a collection"
        elif isinstance(value, ir.Item):
            reason = "the optimizer comes out of a collection"
        trace.onward.append(Problem(kind, function, stmt.line, reason))

    def _follow_call(
        self,
        slot: Slot,
        call: ir.Call,
        function: str,
        stmt: ir.Stmt,
        index: Key | None,
        trace: Step,
    ) -> None:
        kind = self.makers.construction(call, function)
        if self.any_step and kind in (CLOSURE, WRAPPED):
            kind = "plain"
        if kind == "plain" and index is None:
            trace.births.add(Birth(function, stmt.path, slot, stmt, call))
            return
        if kind in (CLOSURE, WRAPPED):
            name = ir.render(call.func) or "the optimizer"
            reason = (
                f"{name} needs a closure"
                if kind == CLOSURE
                else f"{name} steps in its own way, which a scaler would not see"
            )
            trace.onward.append(Problem(kind, function, stmt.line, reason))
            return
        sites = self._sites_at(call, function, stmt)
        handed = [self._handed_back(site, index) for site in sites]
        if handed and all(handed):
            for site, values in zip(sites, handed, strict=True):
                for value in values:
                    self._follow_value(slot, value, function, site.stmt, None, trace)
            return
        if sites and all(self._makes(site, index) for site in sites):
            trace.births.add(Birth(function, stmt.path, slot, stmt, call))
            return
        trace.onward.append(self._unknown_maker(call, function, stmt, bool(sites)))

    def _sites_at(self, call: ir.Call, function: str, stmt: ir.Stmt) -> list[CallSite]:
        """A call, for each function that it may run."""
        return [
            CallSite(
                function,
                stmt,
                call,
                callee,
                self.program.fills_self(call, callee, function),
            )
            for callee in self.program.callees(call, function)
        ]

    def _is_made_by(self, call: ir.Call, function: str, stmt: ir.Stmt) -> bool:
        """Whether a call returns an optimizer that is born inside it."""
        sites = self._sites_at(call, function, stmt)
        return bool(sites) and all(self._makes(site, None) for site in sites)

    def _given_back(
        self, call: ir.Call, function: str, index: Key | None
    ) -> list[ir.Expr]:
        """The collections that a call is given and returns (at ``index``), if it returns nothing else."""
        sites = list(self.program.call_sites_of(call, function))
        handed = [self._handed_back(site, index) for site in sites]
        return [one for values in handed for one in values] if all(handed) else []

    def _handed_back(self, site: CallSite, index: Key | None) -> list[ir.Expr]:
        """The arguments that a call returns (at ``index``), if it returns nothing else there."""
        found: list[ir.Expr] = []
        for name in self._parameters_returned(site, index, 0):
            given = self.program.argument_at(site, name)
            if not isinstance(given, (ir.Name, ir.Attr)):
                return []
            found.append(given)
        return found

    def _parameters_returned(
        self, site: CallSite, index: Key | None, depth: int
    ) -> set[str]:
        """The parameters that a call returns (at ``index``); none where it may return anything else."""
        callee = site.callee
        names = {param.name for param in self.program.functions[callee].params}
        found: set[str] = set()
        if depth > _MOST_RETURNS:
            return found
        for stmt in ir.statements(self.program.functions[callee].body):
            if stmt.kind != "return" or stmt.value is None:
                continue
            value: ir.Expr | None = stmt.value
            if index is not None:
                if self.cannot_be_unpacked(stmt.value, index, callee):
                    continue
                value = self.collections.element(stmt.value, index, callee)
            if not isinstance(value, ir.Name) or value.id not in names:
                return set()
            for definition in self.program.definitions(callee, value.id):
                if not self._gets_itself(value.id, definition, depth):
                    return set()
            found.add(value.id)
        return found

    def _gets_itself(self, name: str, definition: Definition, depth: int) -> bool:
        """Whether a parameter is only bound to what it is: ``model, opt = load(path, model, opt)``."""
        function, call = definition.function, definition.value
        if not isinstance(call, ir.Call) or definition.stmt.kind != "assign":
            return False
        sites = list(self.program.call_sites_of(call, function))
        for site in sites:
            returned = self._parameters_returned(site, definition.index, depth + 1)
            given = {self.program.argument_at(site, one) for one in returned}
            if given != {ir.Name(name)}:
                return False
        return bool(sites)

    def cannot_be_unpacked(
        self, value: ir.Expr, index: Key | None, function: str
    ) -> bool:
        """Whether a call that returns this would raise where its results are unpacked."""
        if not isinstance(index, int):
            return False
        if isinstance(value, ir.Display) and value.kind == "tuple":
            starred = any(
                isinstance(item, ir.Operation) and item.op == "starred"
                for item in value.items
            )
            return not starred and index >= len(value.items)
        # A module, say: what has a state to load is no tuple.
        return isinstance(value, ir.Name) and any(
            isinstance(call.func, ir.Attr)
            and call.func.attr == "load_state_dict"
            and call.func.value == value
            for stmt in ir.statements(self.program.functions[function].body)
            for expr in stmt.exprs
            for call in ir.calls_in(expr)
        )

    def _makes(self, site: CallSite, index: Key | None) -> bool:
        """`_makes_one`, where a function that is being asked already gives no answer."""
        asked = (site.callee, index)
        if asked in self._asking:
            self._cuts += 1
            return False
        self._asking.add(asked)
        try:
            return self._makes_one(site, index)
        finally:
            self._asking.discard(asked)

    def _makes_one(self, site: CallSite, index: Key | None) -> bool:
        """Whether a call returns (at ``index``) an optimizer that is born inside it."""
        callee = site.callee
        if self._is_wrapped(callee):
            # A cache, say, would hand out one optimizer again and again.
            return False
        returned = [
            stmt.value
            for stmt in ir.statements(self.program.functions[callee].body)
            if stmt.kind == "return" and stmt.value is not None
        ]
        if not returned:
            return False
        for value in returned:
            if index is not None:
                element = self.collections.element(value, index, callee)
                if element is None and isinstance(value, ir.Name):
                    element = ir.Item(value, ir.Const(index))
                if element is None:
                    return False
                value = element
            if isinstance(value, ir.Call):
                if self.makers.construction(value, callee) == "plain":
                    continue
                if self.makers.reflects_argument(value, callee, site):
                    continue
                return False
            source = self.slot(value, callee)
            if source is None or source.owner != callee:
                return False
            trace = Trace(brief=True)
            self._follow(source, trace)
            if trace.problems or trace.parameters or not trace.births:
                return False
        return True

    def _is_wrapped(self, function: str) -> bool:
        plain = {f"builtins.{n}" for n in ("staticmethod", "classmethod", "property")}
        return any(
            self.program.origin(d, function) not in plain
            for d in self.program.functions[function].decorators
        )

    def _unknown_maker(
        self, call: ir.Call, function: str, stmt: ir.Stmt, own: bool
    ) -> Problem:
        origin = self.program.origin(call.func, function) or ""
        text = ir.render(call.func) or "this call"
        method = call.func.attr if isinstance(call.func, ir.Attr) else ""
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
        if self.program.is_local(origin):
            reason = f"{text}() makes the optimizer in another file"
        elif own:
            reason = f"what {text}() returns is not followed to an optimizer"
        elif _FACTORIES_ELSEWHERE.search(origin):
            reason = f"{text}() may make a wrapped optimizer"
        else:
            reason = f"{text}() is not known to make an optimizer"
        return Problem(NOT_FOUND, function, stmt.line, reason)
