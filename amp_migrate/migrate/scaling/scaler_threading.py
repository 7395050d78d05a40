"""The switch travels with the optimizer: where it is born, and how every function gets to see it.

For float16 the switch is the scaler, for bfloat16 a bool; both travel the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from amp_migrate.analysis.objects.availability import root_of
from amp_migrate.analysis.objects.collections import path_of
from amp_migrate.analysis.objects.concrete import Concrete
from amp_migrate.analysis.objects.holders import Holders
from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.analysis.paths.association import Scaler, Scalers
from amp_migrate.analysis.paths.identity import order
from amp_migrate.analysis.paths.loops import Blocked, refused
from amp_migrate.analysis.paths.walk import Frames
from amp_migrate.analysis.values.device import Devices
from amp_migrate.edit.addresses import occurrence_of
from amp_migrate.edit.edits import (
    AddArgument,
    AddImport,
    AddParameter,
    Edit,
    Insert,
    Placed,
)
from amp_migrate.migrate.scaling.creation import Born, made_inside, place_of
from amp_migrate.migrate.scaling.switch_kinds import Carried
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_part, parts_of
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

Ways = frozenset[Frames]
"""The ways to a backward; what scales it is the switch that is meant."""

NO_WAYS: Ways = frozenset()

_ONE_BY_ONE = ("update", "get", "setdefault", "pop")
"""Methods of ``__dict__`` that leave the other attributes where they are."""
_ABOUT_ONESELF = ("__init__", "__repr__", "__str__")
_LOOKS_UP = ("getattr", "operator.methodcaller", "methodcaller")
_RUNS_CODE = ("exec", "eval")
_NAMESPACES = ("globals", "locals", "vars", "dir")
OPTIMIZER_WORD = re.compile(r"(?i)optimi[sz]ers?|optim|opt")


class Travel:
    """Plans births, parameters, arguments and attributes of one group's switch."""

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        devices: Devices,
        carried: Carried,
        slots: frozenset[Slot],
        births: frozenset[Birth],
        scalers: Scalers,
        base: str,
        taken: set[str],
        holders: Holders,
        mentioned_elsewhere: Callable[[str, str], str | None],
        chosen: Travel | None = None,
    ) -> None:
        """``chosen``: what carries the dtype that a scaler depends on."""
        self.holders = holders
        self.scalers = scalers
        self.program = program
        self.optimizers = optimizers
        self.devices = devices
        self.carried = carried
        self.chosen = chosen
        self.slots = slots
        self.births = births
        self.base = base
        self.taken = taken
        self.mentioned_elsewhere = mentioned_elsewhere
        self.edits: list[Placed] = []
        self.born: list[Born] = []
        self.names: dict[Slot, str] = {}
        self._parameters: set[tuple[str, str]] = set()
        """(function, name of a switch that it is given)."""
        self._handed: dict[tuple[str, Ways], str] = {}
        """The switches that a function is given which has no optimizer of its own."""
        self.attributes: set[tuple[str, str]] = set()
        """(class, name of a switch that its instances have)."""
        self.lent: set[str] = set()
        """The functions that make a switch for others, or are given it by those."""
        self._name_slots()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo what is planned inside where the switch turns out not to reach a place."""
        before = (
            list(self.edits),
            set(self._parameters),
            dict(self._handed),
            set(self.attributes),
        )
        try:
            yield
        except Blocked:
            self.edits, self._parameters, self._handed, self.attributes = before

    def place(self, function: str, edit: Edit) -> None:
        """Plan an edit of the file that a function stands in."""
        self.edits.append((ir.file_of(function), edit))

    def begin_off(self, init: str, slot: Slot) -> None:
        """Give each object a switch that is off, before anything else of it is made."""
        scope = self.program.functions[init]
        first, *others = scope.body
        if others and isinstance(first.value, ir.Const):
            first = others[0]  # behind the docstring
        off = self.carried.off(self.devices.torch_names.of(init))
        code = f"{scope.params[0].name}.{self.names[slot]} = {off}"
        edit = Insert(first.path, code, after=False)
        if (ir.file_of(init), edit) not in self.edits:
            self.place(init, edit)

    # -- names --------------------------------------------------------------------------------

    def _name_slots(self) -> None:
        """One name for all, except for optimizers that live side by side in one scope."""
        births = sorted(self.births, key=place_of)
        first = {birth.slot: n for n, birth in reversed([*enumerate(births)])}
        for slot, n in first.items():
            trace = self.optimizers.trace(slot)
            if slot in trace.parameters and all(
                birth.given is not None or birth.is_given or self._is_default(birth)
                for birth in births
                if birth.slot == slot
            ):
                # Where the optimizer is given, its switch comes with it.
                continue
            if trace.slots & first.keys() - {slot}:
                reason = f"{slot.name} may be one of several optimizers"
                raise refused("AMP012", reason, births[n].stmt.line)
        ordered = sorted(
            (
                slot
                for slot in self.slots - self._aliased().keys()
                if slot not in self.optimizers.trace(slot).each
                and self.scalers.identities.of_slot(slot)
            ),
            key=lambda s: (first.get(s, len(births)), *order(s)),
        )
        together: dict[tuple[str, str], dict[frozenset[Scaler], list[Slot]]] = {}
        owners = {slot.owner for slot in ordered}
        for slot in ordered:
            homes = [slot.owner]
            for one in homes:
                # An object has the attributes of its class and of what that derives from.
                related = self.program.related(one) & owners
                homes += sorted(related.difference(homes))
            beside = together.setdefault((slot.kind, min(homes)), {})
            beside.setdefault(self.scalers.of_slot(slot), []).append(slot)
        foreign = frozenset(self.taken)
        for beside in together.values():
            given: set[str] = set()
            for slots in beside.values():
                name = self.base
                if len(beside) > 1:
                    name = self._derived(slots, foreign | given)
                self.names.update(dict.fromkeys(slots, name))
                given.add(name)
            self.taken |= given

    def _is_default(self, birth: Birth) -> bool:
        """Whether an optimizer is made for a parameter that is None: ``if opt is None: opt = SGD(...)``."""
        name = ir.Name(birth.slot.name)
        absent = (
            ir.Operation("is", (name, ir.Const(None))),
            ir.Operation("not", (name,)),
        )
        if birth.function != birth.slot.owner or birth.slot.key is not None:
            return False
        around = self.program.control(birth.function).around(birth.path)
        return any(
            stmt.kind == "if"
            and stmt.value in absent
            and birth.path[len(stmt.path)][0] == "body"
            for stmt in around
        )

    def _derived(self, slots: list[Slot], taken: frozenset[str]) -> str:
        """A name for one of several switches side by side: ``scaler_g`` for ``optimizer_g``."""
        derived = _common(self.base, dict.fromkeys(map(self._derived_from, slots)))
        if derived not in taken:
            return derived
        return self.carried.free_name(taken)

    def _derived_from(self, slot: Slot) -> str:
        name, keys = slot.name, path_of(slot.key)
        if keys and isinstance(keys[-1], int):
            return f"{self.base}_{keys[-1]}"
        words = [k for k in keys if isinstance(k, str) and k.isidentifier()]
        if words and words[-1] == keys[-1]:
            name = "_".join(words)
        derived = OPTIMIZER_WORD.sub(self.base, name, count=1)
        return f"{name}_{self.base}" if derived == name else derived

    def _aliased(self) -> dict[Slot, Slot]:
        """Variables that are only another name for a slot seen from the same scope."""
        found: dict[Slot, Slot] = {}
        for slot in self.slots:
            trace = self.optimizers.trace(slot)
            source = trace.aliases.get(slot)
            if source is None or slot in trace.parameters:
                continue
            if slot.kind != "variable" and (
                slot.key is None or source.kind == "variable"
            ):
                continue
            if any(birth.slot == slot for birth in self.births):
                continue
            found[slot] = source
        return found

    # -- what a function sees -----------------------------------------------------------------

    def of_receiver(self, receiver: ir.Expr, function: str) -> str:
        """The switch that belongs to an optimizer expression, as text for ``function``."""
        slot = self.optimizers.slot(receiver, function)
        if slot is None:
            raise refused("AMP010", "an optimizer that is not followed to its origin")
        return self._of_slot(slot, receiver, function)

    def of_held(self, slot: Slot, receiver: ir.Expr, function: str) -> str:
        """The same, of a slot that may be the attribute of any object."""
        return self._of_slot(slot, receiver, function)

    def _of_slot(self, slot: Slot, expr: ir.Expr, function: str) -> str:
        aliases = self._aliased()
        trace = self.optimizers.trace(slot)
        if slot in trace.each:
            return self._of_each(slot, trace.each[slot], function)
        if slot in aliases:
            source = aliases[slot]
            values = trace.values.get(slot, [])
            definitions = []
            if slot.kind == "variable":
                definitions = self.program.definitions(slot.owner, slot.name)
            if len(values) != 1 or (slot.key is None and len(definitions) != 1):
                reason = f"{slot.shown} may be one of several optimizers"
                line = definitions[0].stmt.line if definitions else 0
                raise refused("AMP012", reason, line)
            value, there = values[0]
            own = self.program.self_class(function)
            if source.kind == "attribute" and own is not None:
                if own[1] in self.program.family(source.owner):
                    return self._of_slot(source, source.expr(own[0]), function)
            if there != function and not self.program.encloses(there, function):
                reason = f"{slot.shown} is put together in another function"
                raise refused("AMP012", reason)
            return self._of_slot(source, value, there)
        while slot.key is not None and self._takes_out(expr, function):
            assert isinstance(expr, (ir.Item, ir.Attr))
            expr = expr.value
        if slot not in self.names:
            # `take(self, optimizer)`, where only what overrides it is called.
            scope = self.program.functions[function]
            reason = f"{slot.shown} in {scope.name}() is not known to be this optimizer"
            raise refused("AMP010", reason, scope.line)
        if slot.kind == "attribute":
            self._carry_attribute(slot)
            if not isinstance(expr, ir.Attr):
                raise refused("AMP010", "an optimizer attribute under another name")
            holder = ir.render(expr.value)
            if holder is None:
                raise refused("AMP010", "an optimizer held by an expression")
            return f"{holder}.{self.names[slot]}"
        name = self.names[slot]
        if slot in self.optimizers.trace(slot).parameters:
            self._pass_parameter(slot.owner, name, slot, NO_WAYS)
        if ir.file_of(slot.owner) != ir.file_of(function):
            return self._imported(expr, function, name)
        return name

    def lacking(self, slot: Slot, receiver: ir.Expr, function: str) -> str | None:
        """The name of a class on whose objects a method runs, too, and which gives them no such optimizer,
        and so no switch as an attribute, but others; None where there is none."""
        program, own = self.program, self.program.self_class(function)
        if slot.key is None or own is None:
            return None
        switch = self.of_held(slot, receiver, function).removeprefix(f"{own[0]}.")
        givers = {
            giver[1]
            for other, name in self.names.items()
            if (other.kind, other.key, name) == ("attribute", None, switch)
            for made in program.attribute_definitions(other.owner, other.name)
            if made.value != ir.Const(None)
            if (giver := program.self_class(made.function)) is not None
        }
        for class_name in sorted(program.noted(Concrete).classes_of(function)):
            name = program.classes[class_name].name
            made_by = [
                stmt
                for _, stmt in program.mentioning(name)
                if stmt.kind not in ("classdef", "import", "importfrom")
            ]
            if givers and made_by and givers.isdisjoint(program.bases(class_name)):
                return name
        return None

    def _takes_out(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is an element of a collection, or an attribute of a namespace."""
        item_of = self.optimizers.contents.item_of
        return isinstance(expr, ir.Item) or item_of(expr, function) is not None

    def _of_each(self, slot: Slot, members: tuple[Slot, ...], function: str) -> str:
        """The switch that all optimizers have which a loop goes through."""
        if not self.slots.issuperset(members):
            reason = f"{slot.shown} stands for an optimizer and for other things"
            raise refused("AMP012", reason)
        if not all(self._is_named(member, function) for member in members):
            reason = (
                f"{slot.shown} stands for attributes of an object that has no name here"
            )
            raise refused("AMP012", reason)
        found = {self.of_named(member, function) for member in members}
        if len(found) != 1:
            reason = (
                f"the optimizers that {slot.shown} stands for have scalers of their own"
            )
            raise refused("AMP012", reason)
        return found.pop()

    def _imported(self, expr: ir.Expr, function: str, name: str) -> str:
        """A switch of another file's top level, where ``expr`` is the optimizer that it belongs to."""
        if isinstance(expr, ir.Attr):
            # `settings.optimizer`: the module is in sight, and with it the switch.
            holder = ir.render(expr.value)
            assert holder is not None
            return f"{holder}.{name}"
        assert isinstance(expr, ir.Name)
        owner = self.program.owner(expr.id, function)
        assert owner is not None
        statements = self.program.bindings(owner, expr.id)
        if ir.file_of(owner) != ir.file_of(function):
            for definition in self.program.definitions(owner, "__all__"):
                reason = "the switch would have to join __all__"
                raise refused("AMP035", reason, definition.stmt.line)
        for definition in statements:
            if definition.stmt.kind == "importfrom":
                self.place(owner, AddImport(definition.stmt.path, name))
                there = self.program.imported_from(expr, owner)
                if there is not None:
                    self._imported(there[0], there[1], name)
        return name

    def _imported_as(self, slot: Slot, function: str) -> ir.Expr | None:
        """The expression by which a function's file knows another file's variable, if it does."""
        top = ir.top_of(function)
        for local, _ in self.program.functions[top].imports:
            for expr in (ir.Name(local), ir.Attr(ir.Name(local), slot.name)):
                if self.program.elsewhere(expr, top) == (
                    ir.Name(slot.name),
                    slot.owner,
                ):
                    return expr
        return None

    def named(self, slot: Slot, function: str) -> ir.Expr:
        """An optimizer as a function names it that need not step it itself."""
        own = self.program.self_class(function)
        held = None
        if not self._is_own(slot, function):
            held = self._held(slot, function)
        return held or self._as_said(slot, function, own[0] if own else None)

    def _as_said(self, slot: Slot, function: str, instance: str | None) -> ir.Expr:
        """A variable, an attribute, or what a collection or a namespace holds: ``opts["net"]``,
        ``self.run.optimizer``."""
        named = slot.expr(instance)
        if not isinstance(named, ir.Item):
            return named
        shown = [
            (at, inner)
            for at, stmt in self.optimizers.mentions.of([slot])
            for inner in parts_of(stmt)
            if isinstance(inner, (ir.Attr, ir.Item))
            and self.optimizers.slot(inner, at) == slot
        ]
        for at, inner in shown:
            if at == function and root_of(inner) == root_of(named):
                return inner
        for _, inner in shown:
            if isinstance(inner, ir.Attr):
                if isinstance(named.value, ir.Item):
                    message = f"{ir.render(inner)} has no name here"
                    raise refused("AMP010", message)
                return ir.Attr(named.value, inner.attr)
        return named

    def _held(self, slot: Slot, function: str) -> ir.Expr | None:
        """An attribute of another object, as a function can name it: its steps, or all that it says of
        it, are of one object."""
        held = self.holders.of(slot, function)
        if held is not None:
            return held
        said = {
            inner
            for _, inner in each_part(self.program.functions[function].body)
            if isinstance(inner, ir.Attr)
            and inner.attr == slot.name
            and self.optimizers.slot(inner, function) == slot
        }
        return said.pop() if len(said) == 1 else None

    def _is_own(self, slot: Slot, function: str) -> bool:
        """Whether a slot is a variable, or an attribute of the object whose method a function is."""
        own = self.program.self_class(function)
        return slot.kind != "attribute" or (
            own is not None and own[1] in self.program.family(slot.owner)
        )

    def _is_named(self, slot: Slot, function: str) -> bool:
        return self._is_own(slot, function) or (self._held(slot, function) is not None)

    def of_named(self, slot: Slot, function: str) -> str:
        """The switch of an optimizer that a function knows under a name of its own."""
        return self._of_slot(slot, self.named(slot, function), function)

    def near(self, function: str, ways: Ways, path: ir.Path) -> str:
        """A switch for a region: the one that belongs to its loss, or any that is in sight, and made
        whenever the region is come to.

        All of a program's switches are on or off together.
        """
        for wanted in (ways, None):
            for texts in self._in_sight(function, wanted):
                if texts and (
                    wanted is not None or self._is_made(texts[0], function, path)
                ):
                    return texts[0]
        return self.visible_in(function, ways)

    def _is_made(self, name: str, function: str, path: ir.Path) -> bool:
        """Whether a switch, if a function makes it itself, is made before one of its statements."""
        made = [
            birth.path
            for birth in self.births
            if birth.function == function and self.names.get(birth.slot) == name
        ]
        control = self.program.control(function)
        return not made or control.is_on(path, made, lambda stmt: False)

    def visible_in(self, function: str, ways: Ways) -> str:
        """The switch of what some ways lead to, as a function on them gets it, passed along where it
        must be."""
        if (function, ways) in self._handed:
            return self._handed[function, ways]
        for texts in self._in_sight(function, ways):
            distinct = list(dict.fromkeys(texts))
            if len(distinct) == 1:
                return distinct[0]
            if distinct:
                name = ir.local_name(function)
                reason = f"several optimizers are in scope of {name}()"
                raise refused("AMP012", reason)
        parent = self.program.functions[function].parent
        if (
            parent is not None
            and not ir.is_top(parent)
            and not self._is_method(function)
        ):
            return self.visible_in(parent, ways)
        given = [name for (at, _), name in self._handed.items() if at == function]
        name = self.base if not given else self.carried.free_name(self.taken)
        self.taken.add(name)
        self._handed[function, ways] = name
        self._pass_parameter(function, name, None, ways)
        return name

    def _belongs(self, slot: Slot, function: str, ways: Ways | None) -> bool:
        """Whether a slot's switch is the one that scales what all of the ways lead to."""
        for way in ways or ():
            inside = [i for i, frame in enumerate(way) if frame[0] == function]
            here = way[: inside[-1] + 1] if inside else ()
            found = self.scalers.identities.on_way(slot, here)
            scalers = {self.scalers.of_optimizer(one) for one in found}
            if scalers != {self.scalers.of_way(way)}:
                return False
        return True

    def _in_sight(self, function: str, ways: Ways | None) -> Iterator[list[str]]:
        """The switches that a function can name, nearest first: by its own steps, its own variables
        and those around it, its instance, the module. ``ways``: only those that scale what these lead
        to."""
        stepped = []
        for receiver in self.holders.steps.get(function, ()):
            slot = self.optimizers.slot(receiver, function)
            if slot is not None and self._belongs(slot, function, ways):
                stepped.append(self.of_receiver(receiver, function))
        yield stepped[:1]
        own = self.program.self_class(function)
        ordered = sorted(
            (slot for slot in self.names if self._belongs(slot, function, ways)),
            key=order,
        )
        variables = [slot for slot in ordered if slot.kind == "variable"]
        near = [s for s in variables if not ir.is_top(s.owner) or ir.is_top(function)]
        yield [
            self._of_slot(slot, slot.expr(None), function)
            for slot in near
            if self.program.encloses(slot.owner, function)
        ]
        attributes = []
        for slot in ordered:
            if slot.kind == "attribute" and own is not None:
                if own[1] in self.program.family(slot.owner):
                    self._carry_attribute(slot)
                    attributes.append(f"{own[0]}.{self.names[slot]}")
        yield attributes
        yield [
            self._of_slot(slot, slot.expr(None), function)
            for slot in variables
            if slot.owner == ir.top_of(function)
        ]
        yield [
            self._of_slot(slot, known, function)
            for slot in variables
            if ir.is_top(slot.owner)
            and (known := self._imported_as(slot, function)) is not None
        ]
        yield [
            self._of_slot(slot, ir.Attr(holder, slot.name), function)
            for holder, slot in self.holders.stepped(function)
            if slot in self.names and self._belongs(slot, function, ways)
        ]

    def _is_method(self, function: str) -> bool:
        return self.program.functions[function].class_name is not None

    # -- carrying -----------------------------------------------------------------------------

    def _carry_attribute(self, slot: Slot) -> None:
        """``self.scaler = scaler`` wherever ``self.optimizer = optimizer`` takes one over."""
        carried = (slot.owner, self.names[slot])
        if carried in self.attributes:
            return
        self.attributes.add(carried)
        self.refuse_slots(slot)
        born = {(b.function, b.path) for b in self.births}
        for definition in self.program.attribute_definitions(slot.owner, slot.name):
            given = definition.call is not None
            if not given and (definition.function, definition.stmt.path) in born:
                continue
            if definition.value == ir.Const(None):
                continue
            if definition.call is not None and definition.value is not None:
                self._carry_field(slot, definition, definition.call, definition.value)
                continue
            value = definition.value
            for key in path_of(slot.key):
                collections, at = self.optimizers.collections, definition.function
                found = {} if value is None else collections.elements(value, at)
                if value is None or collections.begins_empty(value, at):
                    # It is put there later, with a switch of its own.
                    value = None
                    break
                value = found.get(key) or ir.Item(value, ir.Const(key))
            if value is None and slot.key is not None:
                made = self.optimizers.trace(slot).births
                if any(birth.slot.kind != "attribute" for birth in made):
                    reason = f"{slot.shown} is put there by a function that is given no scaler for it"
                    raise refused("AMP010", reason, definition.stmt.line)
                continue
            value = self._handed_out(value, definition.function) or value
            if not isinstance(value, (ir.Name, ir.Attr, ir.Item)):
                reason = f"{slot.shown} is taken over in a form that is not followed"
                raise refused("AMP010", reason, definition.stmt.line)
            source = self.of_receiver(value, definition.function)
            own = self.program.self_class(definition.function)
            holder = own[0] if own is not None else "self"
            code = f"{holder}.{self.names[slot]} = {source}"
            self.place(definition.function, Insert(definition.stmt.path, code))

    def _handed_out(self, value: ir.Expr | None, function: str) -> ir.Expr | None:
        """``model.optimizer`` of ``model.make_optimizer()``, which keeps what it returns in an attribute."""
        if not isinstance(value, ir.Call) or not isinstance(value.func, ir.Attr):
            return None
        program, receiver = self.program, value.func.value
        functions = program.functions
        found = {
            (
                returned.attr
                if isinstance(returned, ir.Attr)
                and returned.value == ir.Name(functions[callee].self_name or "")
                and program.control(callee).is_passed(
                    lambda stmt: stmt.kind == "return" and stmt.value is not None
                )
                else None
            )
            for callee, returned in program.returns(value, function)
        }
        attr = found.pop() if len(found) == 1 else None
        plain = ir.key_of(receiver) is not None
        return ir.Attr(receiver, attr) if attr and plain else None

    def _carry_field(
        self, slot: Slot, definition: Definition, call: ir.Call, optimizer: ir.Expr
    ) -> None:
        """A dataclass gets one more field, and each call of it the argument."""
        found = self.program.classes[slot.owner]
        elsewhere = self.mentioned_elsewhere(found.name, ir.file_of(slot.owner))
        if elsewhere is not None:
            reason = f"{found.name} is also used in {elsewhere}, which a new field would break"
            raise refused("AMP015", reason, found.line)
        if self.program.is_public(slot.owner):
            reason = f"{found.name} is also created by code that cannot be seen, without a new field"
            raise refused("AMP015", reason, found.line)
        if any(arg.star for arg in call.args):
            reason = f"the fields of {found.name} are not written out"
            raise refused("AMP010", reason, call.line)
        name = self.names[slot]
        fields = [stmt for stmt in found.body if stmt.kind == "annassign"]
        kind, default = self.carried.annotation, ""
        if any(stmt.value is not None for stmt in fields):
            default = f" = {self.carried.absent}"
            if self.carried.absent == "None":
                kind += " | None"
        if kind != "bool":
            # The file need not know torch by its name.
            kind = f'"{kind}"'
        field = Insert(fields[-1].path, f"{name}: {kind}{default}")
        self.place(found.parent, field)
        function, stmt = definition.function, definition.stmt
        site = next(
            (birth.given for birth in self.births if birth.call is optimizer), None
        )
        source = None if site is None else made_inside(self, site, optimizer)
        source = source or self.of_receiver(optimizer, function)
        self._add_argument(function, stmt, call, name, source)

    def _add_argument(
        self, caller: str, stmt: ir.Stmt, call: ir.Call, name: str, value: str
    ) -> None:
        callee = call.called or ir.render(call.func)
        if callee is None:
            reason = "a call that is not written plainly"
            raise refused("AMP015", reason, call.line)
        occurrence = occurrence_of(stmt, call)
        self.place(caller, AddArgument(stmt.path, callee, occurrence, name, value))

    def is_own(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression names one of the group's optimizers, or what holds one."""
        slot = self.optimizers.slot(expr, function)
        holders = {other.holder for other in self.slots}
        return slot is not None and (slot in self.slots or slot.holder in holders)

    def refuse_slots(self, slot: Slot) -> None:
        """A class with ``__slots__`` has no room for another attribute."""
        for class_name in self.program.family(slot.owner):
            found = self.program.classes[class_name]
            name = ir.local_name(class_name)
            setters = [
                found.line for method, _ in found.methods if method == "__setattr__"
            ]
            for stmt in found.body:
                if ir.Name("__slots__") in stmt.targets:
                    reason = f"{name} has __slots__, which a new attribute would have to join"
                    raise refused("AMP035", reason, stmt.line)
                if ir.Name("__setattr__") in stmt.targets:
                    setters.insert(0, stmt.line)
            if setters:
                reason = f"{name} has a __setattr__ of its own"
                raise refused("AMP035", reason, setters[0])

        line = self.reads_all(slot.owner)
        if line:
            name = ir.local_name(slot.owner)
            reason = (
                f"all attributes of {name} are taken here, and the scaler would be one"
            )
            raise refused("AMP040", reason, line)

    def refuse_variables(self, function: str, birth: ir.Path | None = None) -> None:
        """Where all variables of a function are taken together (behind a ``birth``) no other one may be
        among them."""
        words = _NAMESPACES if ir.is_top(function) else _NAMESPACES[1:]
        calls = (found for word in words for found in self.program.calls_named(word))
        for where, stmt, call in calls:
            if where != function or call.args or not isinstance(call.func, ir.Name):
                continue
            inner = parts_of(stmt)
            asked = [*_taken_singly(inner), *_looked_into(inner)]
            singly = any(one is call for one in asked)
            if singly or self.program.keeps_locals(stmt, call, function):
                continue
            if birth is None or self.program.control(function).leads(birth, stmt.path):
                reason = "all variables are taken here, and the scaler would be one"
                raise refused("AMP035", reason, stmt.line)

    def reads_all(self, class_name: str) -> int:
        """Where all attributes of an instance are taken together, to be saved, say; or 0."""
        family = self.program.family(class_name)
        for word in ("__dict__", "vars"):
            for function, stmt in self.program.mentioning(word):
                if self.program.functions[function].name in _ABOUT_ONESELF:
                    continue
                inner = parts_of(stmt)
                if any(map(_takes_states, inner)):
                    continue
                singly = _taken_singly(inner)
                for one in inner:
                    match one:
                        case ir.Attr(value=holder, attr="__dict__"):
                            pass
                        case ir.Call(func=ir.Name(id="vars"), args=(ir.Arg(holder),)):
                            pass
                        case _:
                            continue
                    if one not in singly and (
                        self.program.instance_classes(holder, function) & family
                    ):
                        return stmt.line
        return 0

    def _pass_parameter(
        self, function: str, name: str, optimizer: Slot | None, ways: Ways
    ) -> None:
        """Give a function a switch as its last parameter, and every call of it the argument: that of
        the ``optimizer`` that it is given, or the one that belongs to what the ``ways`` lead to.
        """
        if (function, name) in self._parameters:
            return
        program = self.program
        facts = program.functions[function]
        sites = program.call_sites.get(function, [])
        if ir.is_top(function):
            reason = "the optimizer is not available to the module's own code"
            if self.holders.mixed is not None:
                raise refused("AMP014", *self.holders.mixed)
            raise refused("AMP010", reason)
        given_out_of_sight = any(
            birth.is_given and birth.slot == optimizer for birth in self.births
        )
        self._refuse_unseen_calls(function, none=given_out_of_sight)
        for site in sites:
            several = len(program.callees(site.call, site.caller)) > 1
            if several and (optimizer is None or not self._runs_known(site)):
                reason = f"a call may run {facts.name}() or another function"
                raise refused("AMP015", reason, site.call.line)
        self._parameters.add((function, name))
        optional = optimizer is not None and any(
            self._gives_none(given) or self._is_foreign(given, site.caller)
            for site in sites
            for given in (self.optimizers.given(site, optimizer),)
        )
        optional = optional or given_out_of_sight or program.is_public(function)
        torch = self.devices.torch_names.of(function)
        off = self.carried.off(torch) if optional else None
        self.place(function, AddParameter(facts.path, name, off))
        if optimizer is not None:
            self._pass_to_others(sites, name, optimizer, optional)
        for site in sites:
            if optimizer is not None:
                given = self.optimizers.given(site, optimizer)
                if given is None and any(arg.star for arg in site.call.args):
                    reason = f"this call may give {optimizer.name} in several ways"
                    raise refused("AMP012", reason, site.call.line)
                if given is None or self._gives_none(given):
                    self._need_none_default(function, optimizer.name, site.call.line)
                    # A call that leaves the optimizer out has no switch to pass either.
                    continue
                if self._is_foreign(given, site.caller):
                    # Another program's, which stays as it is.
                    continue
                value = made_inside(self, site, given) or self.of_receiver(
                    given, site.caller
                )
            else:
                value = self.visible_in(site.caller, _through(ways, site))
            self._add_argument(site.caller, site.stmt, site.call, name, value)

    def lend(self, function: str, name: str) -> None:
        """Give a function a switch that all who call it have by a name."""
        ways = frozenset(
            way for way in self.scalers.ways if any(at == function for at, _ in way)
        )
        for site in self.program.call_sites.get(function, []):
            self._handed[site.caller, _through(ways, site)] = name
        self.lent |= {
            function,
            *(site.caller for site in self.program.call_sites[function]),
        }
        self._pass_parameter(function, name, None, ways)

    def _refuse_unseen_calls(self, function: str, none: bool = False) -> None:
        """Raise `Blocked` where a function may be called by what is not seen to call it: a new parameter
        would break that; ``none``: that nothing in sight calls it is known."""
        program = self.program
        facts = program.functions[function]
        if function in program.escaping or facts.name in ("forward", "__call__"):
            reason = f"{facts.name}() is also used as a value or is decorated: who calls it is not visible"
            raise refused("AMP015", reason, facts.line)
        if not none and not program.call_sites.get(function):
            reason = f"no call of {facts.name}() was found, so the scaler cannot be passed to it"
            raise refused("AMP015", reason, facts.line)
        public = program.called_as(function)
        by_name = self._called_by_name(facts.name)
        if by_name:
            reason = f"{facts.name}() is looked up by its name here"
            raise refused("AMP015", reason, by_name)
        elsewhere = self.mentioned_elsewhere(public, ir.file_of(function))
        if elsewhere is not None:
            reason = f"{public}() is also used in {elsewhere}, which its new parameter would break"
            raise refused("AMP015", reason, facts.line)
        self.refuse_variables(function)

    def _pass_to_others(
        self, sites: Sequence[CallSite], name: str, optimizer: Slot, optional: bool
    ) -> None:
        """Give what some calls may run in place of a function the same parameter, whether it needs it or
        not: another class of a table, a method that overrides it."""
        program = self.program
        calls = {id(site.call) for site in sites}
        for site in sites:
            given = self.optimizers.given(site, optimizer)
            if given is None and not any(arg.star for arg in site.call.args):
                continue  # A call that leaves the optimizer out passes nothing.
            for other in program.call_sites_of(site.call, site.caller):
                if (other.callee, name) in self._parameters:
                    continue
                facts = program.functions[other.callee]
                own = [
                    slot
                    for param in facts.params
                    if (slot := Slot("variable", other.callee, param.name))
                    in self.slots
                    and self.optimizers.given(other, slot) is given
                ]
                around = program.call_sites[other.callee]
                said = program.modules[ir.file_of(other.callee)].identifiers
                if given is None or (
                    any(self.names[slot] != name for slot in own)
                    if own
                    else name in said or any(id(c.call) not in calls for c in around)
                ):
                    reason = f"a call may run {facts.name}() or another function"
                    raise refused("AMP015", reason, site.call.line)
                if own:
                    self._pass_parameter(other.callee, name, own[0], NO_WAYS)
                    continue
                self._refuse_unseen_calls(other.callee)
                self._parameters.add((other.callee, name))
                off = None
                if optional or program.is_public(other.callee):
                    off = self.carried.off(self.devices.torch_names.of(other.callee))
                self.place(other.callee, AddParameter(facts.path, name, off))

    def _runs_known(self, site: CallSite) -> bool:
        """Whether all that a call may run can get a parameter."""
        return all(
            ref.kind == "function"
            or (
                ref.kind == "class"
                and self.program.method(ref.name, "__init__") is not None
            )
            for ref in self.program.resolve(site.call.func, site.caller)
        )

    def _is_foreign(self, given: ir.Expr | None, function: str) -> bool:
        """Whether an argument is an optimizer that this switch does not belong to."""
        slot = None if given is None else self.optimizers.slot(given, function)
        return slot is not None and slot not in self.slots

    def _need_none_default(self, function: str, optimizer: str, line: int) -> None:
        """A call without an optimizer is plain only where that means None."""
        for param in self.program.functions[function].params:
            if param.name == optimizer and param.default not in (None, ir.Const(None)):
                reason = (
                    f"this call leaves {optimizer} to a default that is an optimizer"
                )
                raise refused("AMP015", reason, line)

    def _called_by_name(self, name: str) -> int:
        """The line where a function may be looked up by its name as a string, or 0."""
        for line, text, is_code in self.program.noted(_looked_up):
            if text == name or (is_code and name in text):
                return line
        return 0

    @staticmethod
    def _gives_none(value: ir.Expr | None) -> bool:
        return value is None or value == ir.Const(None)


def _looked_up(program: Program) -> list[tuple[int, str, bool]]:
    """(line, text, whether it is code that says a name, and not the name) of all that is looked up by
    name: what is called first, then what is taken out of a namespace."""
    called, taken = [], []
    for _, stmt in program.all_statements():
        for inner in parts_of(stmt):
            match inner:
                case ir.Call(func=func, args=args):
                    key = ir.key_of(func)
                    if key in _LOOKS_UP or key in _RUNS_CODE:
                        called += [
                            (stmt.line, str(arg.value.value), key in _RUNS_CODE)
                            for arg in args
                            if isinstance(arg.value, ir.Const)
                        ]
                case ir.Item(value=ir.Call(func=func), key=ir.Const(value=str(name))):
                    if ir.key_of(func) in _NAMESPACES:
                        taken.append((stmt.line, name, False))
    return called + taken


def _taken_singly(inner: Iterable[ir.Expr]) -> list[ir.Expr]:
    """That of which one element is taken, or given: ``vars(self)[name]``, ``self.__dict__.get(name)``."""
    return [
        one.value
        for one in inner
        if isinstance(one, ir.Item)
        or (isinstance(one, ir.Attr) and one.attr in _ONE_BY_ONE)
    ]


def _looked_into(inner: Iterable[ir.Expr]) -> list[ir.Expr]:
    """That of which it is only asked whether it has an element: ``"x" in vars()``."""
    return [
        one.operands[-1]
        for one in inner
        if isinstance(one, ir.Operation) and one.op in ("in", "not in")
    ]


def _takes_states(expr: ir.Expr) -> bool:
    """``{name: part.state_dict() for name, part in vars(self).items()}``."""
    if not isinstance(expr, ir.Comprehension):
        return False
    kept = expr.elements[-1]
    return isinstance(kept, ir.Call) and ir.method_of(kept) == "state_dict"


def _through(ways: Ways, site: CallSite) -> Ways:
    """The ways that pass through a call."""
    return frozenset(way for way in ways if (site.caller, site.stmt.path) in way)


def _common(base: str, names: Collection[str]) -> str:
    """One name for several: ``scaler_D`` of ``scaler_D_A`` and ``scaler_D_B``, ``scaler_E_G`` of
    ``scaler_E`` and ``scaler_G``."""
    if len(names) == 1:
        return next(iter(names))
    rests = [name.removeprefix(base) for name in names]
    if any(
        rest == name or rest[-1:].isdigit()
        for rest, name in zip(rests, names, strict=True)
    ):
        return base
    words = [rest.split("_") for rest in rests]
    shared = takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))
    return base + ("_".join(same[0] for same in shared) or "".join(rests))
