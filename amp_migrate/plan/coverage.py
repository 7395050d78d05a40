"""Which parameters an optimizer holds, and whether gradients that are touched are theirs.

``unscale_`` and ``step`` reach only what the optimizer holds. A clip over more than that would mix
scaled with unscaled gradients, and a ``zero_grad`` over less would leave some behind: both must be
shown not to happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from amp_migrate.facts import ir
from amp_migrate.project.bindings import unpacked
from amp_migrate.project.link import CallSite, Program
from amp_migrate.project.names import Definition
from amp_migrate.project.optimizers import Birth, Optimizers, Slot

Identity = tuple[str, ...]
"""A module or tensor wherever it goes: kind and owner of the slot it was first put into, its name,
then the attributes that lead on from there."""

_SAME_OBJECT = frozenset(
    "to cuda cpu float train eval requires_grad_ share_memory apply".split()
)
_INNER = frozenset("children modules named_children named_modules".split())
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "DDP", "SyncBatchNorm")
_PASSED_THROUGH = frozenset(
    f"builtins.{name}"
    for name in "list tuple iter sorted reversed enumerate zip set next".split()
) | {"itertools.chain", "itertools.chain.from_iterable"}
_MOST_STEPS = 12


@dataclass(slots=True)
class Held:
    """What a parameter list was made of."""

    whole: set[Identity] = field(default_factory=set)
    """Modules all of whose parameters are in it."""
    parts: Counter[Identity] = field(default_factory=Counter)
    """Modules some of whose parameters are in it, by how many selections were made of them."""
    complete: bool = True
    """Whether nothing else is in it."""
    groups: bool = False
    """It is read from an optimizer's own ``param_groups``."""
    twice: bool = False
    """Some parameters are in it more than once."""

    def join(self, other: Held) -> None:
        """Add what another list holds."""
        self.whole |= other.whole
        self.parts += other.parts
        self.complete &= other.complete
        self.groups |= other.groups
        self.twice |= other.twice

    @property
    def all(self) -> set[Identity]:
        """Every module that has parameters in it."""
        return self.whole | set(self.parts)


class Coverage:
    """Answers for one group of optimizers."""

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        slots: frozenset[Slot],
        births: Iterable[Birth],
    ) -> None:
        self.program = program
        self.optimizers = optimizers
        self.slots = slots
        self.births = frozenset(births)
        self._additions = [
            found
            for method in ("append", "extend", "add_param_group")
            for found in program.calls_named(method)
        ]
        self._busy: set[tuple[str, str]] = set()
        self._naming: set[Slot] = set()
        self._way: Mapping[str, CallSite] = {}
        """The only call that counts of a function, where it is on a way that is looked at."""
        self._held = {birth: self._of_birth(birth) for birth in self.births}
        self.held = Held()
        for one in self._held.values():
            self.held.join(one)

    # -- questions ----------------------------------------------------------------------------

    def owns(self, targets: Iterable[ir.Expr], function: str, stmt: ir.Stmt) -> bool:
        """Whether the gradients of ``targets`` are all of parameters that the optimizers hold."""
        targets = list(targets)
        sites = self.program.call_sites.get(function, [])
        if len(self._held) < 2 or len(sites) < 2:
            return self._owns(targets, function, stmt, self._held.values())
        # Each caller hands over an optimizer and a model that belong together.
        try:
            for site in sites:
                self._way = {site.callee: site}
                born = self._born_at(site)
                held = [h for birth, h in self._held.items() if birth in born]
                if not self._owns(targets, function, stmt, held or self._held.values()):
                    return False
            return True
        finally:
            self._way = {}

    def _owns(
        self,
        targets: Iterable[ir.Expr],
        function: str,
        stmt: ir.Stmt,
        alternatives: Collection[Held],
    ) -> bool:
        for target in targets:
            found = self._of(target, function, stmt, 0)
            if found.groups and not found.all:
                continue
            if not found.complete or not found.all:
                return False
            # Several births take turns: what is covered must be covered by each of them.
            if not all(
                self._covers(held, one) for held in alternatives for one in found.all
            ):
                return False
        return True

    def of_target(
        self,
        target: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        way: Mapping[str, CallSite],
    ) -> Held:
        """What one target stands for; ``way``: the only calls that count of some functions."""
        try:
            self._way = way
            return self._of(target, function, stmt, 0)
        finally:
            self._way = {}

    def covers(self, one: Identity) -> bool:
        """Whether all parameters of a module are held, whichever birth has taken place."""
        return bool(self._held) and all(
            self._covers(held, one) for held in self._held.values()
        )

    def may_hold(self, one: Identity) -> bool:
        """Whether some parameters of a module may be held."""
        return not self.held.complete or self.holds_some(one)

    def holds_some(self, one: Identity) -> bool:
        """Whether a module is one that is held, has one inside, or is inside of one."""
        return any(
            _within(one, other) or _within(other, one) for other in self.held.all
        )

    def parts_of(self, one: Identity) -> set[str]:
        """The attributes of a module in which what is held of it stands."""
        inside = [held for held in self.held.all if _within(held, one) and held != one]
        return {held[len(one)] for held in inside}

    def _born_at(self, site: CallSite) -> set[Birth]:
        """The births of the optimizers that a call hands over."""
        born: set[Birth] = set()
        for arg in site.call.args:
            born |= {birth for birth in self.births if birth.call is arg.value}
            slot = self.optimizers.slot(arg.value, site.caller)
            if slot is not None:
                born |= self.optimizers.trace(slot).births
        return born & self.births

    def _sites(self, function: str) -> list[CallSite]:
        """The calls of a function: all, or the one that is being looked at."""
        if function in self._way:
            return [self._way[function]]
        return self.program.call_sites.get(function, [])

    def clears(self, targets: Iterable[ir.Expr], function: str, stmt: ir.Stmt) -> bool:
        """Whether dropping the gradients of ``targets`` drops all that the optimizers hold."""
        return self.are_cleared(self._of(t, function, stmt, 0) for t in targets)

    def are_cleared(self, dropped: Iterable[Held]) -> bool:
        """The same, of what targets stand for."""
        cleared: set[Identity] = set()
        for found in dropped:
            if found.groups:
                return True
            cleared |= found.whole
        return (
            self.held.complete
            and bool(self.held.all)
            and all(any(_within(one, c) for c in cleared) for one in self.held.all)
        )

    def _is_own(self, slot: Slot | None) -> bool:
        """Whether a slot holds one of the group's optimizers."""
        if slot is None:
            return False
        if slot in self.slots:
            return True
        trace = self.optimizers.trace(slot)
        return bool(trace.births) and trace.births <= self.births and not trace.problems

    @staticmethod
    def _covers(held: Held, one: Identity) -> bool:
        # Two selections out of one module are its weights with and without decay, all in all.
        return any(_within(one, w) for w in held.whole) or any(
            _within(one, module) and count > 1 for module, count in held.parts.items()
        )

    # -- births -------------------------------------------------------------------------------

    def _of_birth(self, birth: Birth) -> Held:
        if self.optimizers.makers.construction(birth.call, birth.function) == "plain":
            return self._of_construction(birth.call, birth.function, birth.stmt)
        held = Held()
        found = False
        for site in self.program.call_sites_of(birth.call, birth.function):
            callee = site.callee
            wanted = self._handed_out(birth, callee)
            outer, self._way = self._way, {**self._way, callee: site}
            for stmt in ir.statements(self.program.functions[callee].body):
                for expr in stmt.exprs:
                    for call in ir.calls_in(expr):
                        kind = self.optimizers.makers.construction(call, callee)
                        if kind != "plain" or not (
                            wanted is None or call in wanted or stmt.value in wanted
                        ):
                            continue
                        found = True
                        held.join(self._of_construction(call, callee, stmt))
            self._way = outer
        held.complete &= found
        if isinstance(birth.call.func, ir.Attr):
            receivers = self.identities(birth.call.func.value, birth.function)
            held.whole = _as_seen_outside(held.whole, receivers)
            held.parts = Counter(
                {
                    outside: count
                    for one, count in held.parts.items()
                    for outside in _as_seen_outside({one}, receivers)
                }
            )
        return held

    def _handed_out(self, birth: Birth, callee: str) -> list[ir.Expr] | None:
        """Of several optimizers that a function makes, the expressions for the one that a birth is of;
        None where there is but one."""
        position = next(
            (
                index
                for target, _, index in unpacked(birth.stmt)
                if self.optimizers.slot(target, birth.function) == birth.slot
            ),
            None,
        )
        key = birth.slot.key if position is None else position
        if key is None:
            return None
        found: list[ir.Expr] = []
        for stmt in ir.statements(self.program.functions[callee].body):
            if stmt.kind != "return" or stmt.value is None:
                continue
            item = self.optimizers.collections.element(stmt.value, key, callee)
            if isinstance(item, ir.Name):
                found += [
                    d.value
                    for d in self.program.definitions(callee, item.id)
                    if d.value is not None
                ]
            elif item is not None:
                found.append(item)
        return found or None

    def _of_construction(self, call: ir.Call, function: str, stmt: ir.Stmt) -> Held:
        given = call.argument(0, "params")
        if given is None:
            return Held(complete=False)
        return self._of(given, function, stmt, 0)

    # -- parameter lists ----------------------------------------------------------------------

    def _of(self, expr: ir.Expr, function: str, stmt: ir.Stmt, depth: int) -> Held:
        """What a parameter list, a parameter or a module stands for."""
        if depth > _MOST_STEPS:
            return Held(complete=False)
        match expr:
            case ir.Attr(attr="param_groups", value=value):
                own = self._is_own(self.optimizers.slot(value, function))
                return Held(groups=own, complete=own)
            case ir.Attr(attr="params" | "grad" | "data", value=value):
                return self._of(value, function, stmt, depth + 1)
            case ir.Item(value=value):
                inner = self._of(value, function, stmt, depth + 1)
                if inner.groups:
                    return inner
            case ir.Call():
                return self._of_call(expr, function, stmt, depth)
            case ir.Operation(op="+" | "starred" | "if", operands=operands):
                chosen = operands[1:] if expr.op == "if" else operands
                held = self._joined(chosen, function, stmt, depth)
                if expr.op == "+":
                    one, other = (self._of(o, function, stmt, depth) for o in operands)
                    held.twice |= any(
                        _within(a, b) or _within(b, a)
                        for a in one.whole
                        for b in other.whole
                    )
                return held
            case ir.Display(kind="dict"):
                values = [
                    item
                    for key, item in zip(expr.keys, expr.items, strict=True)
                    if key == ir.Const("params")
                ]
                if not values:
                    return Held(complete=False)
                return self._joined(values, function, stmt, depth)
            case ir.Display(items=items):
                return self._joined(items, function, stmt, depth)
            case ir.Comprehension():
                return self._of_comprehension(expr, function, stmt, depth)
            case ir.Name():
                return self._of_name(expr, function, stmt, depth)
        identities = self.identities(expr, function)
        return Held(whole=set(identities), complete=bool(identities))

    def _joined(
        self, exprs: Iterable[ir.Expr], function: str, stmt: ir.Stmt, depth: int
    ) -> Held:
        held = Held()
        for expr in exprs:
            held.join(self._of(expr, function, stmt, depth + 1))
        return held

    def _of_call(self, call: ir.Call, function: str, stmt: ir.Stmt, depth: int) -> Held:
        func = call.func
        origin = self.program.origin(func, function)
        if isinstance(func, ir.Attr) and func.attr in (
            "parameters",
            "named_parameters",
        ):
            identities = self.identities(func.value, function)
            return Held(whole=set(identities), complete=bool(identities))
        if isinstance(func, ir.Attr) and func.attr in ("values", "items"):
            return self._of(func.value, function, stmt, depth + 1)
        if origin == "builtins.filter" and len(call.args) == 2:
            held = self._of(call.args[1].value, function, stmt, depth + 1)
            test = call.args[0].value
            if isinstance(test, ir.Deferred) and _asks_requires_grad(test.body):
                return held
            return _as_parts(held)
        if origin in _PASSED_THROUGH:
            values = [
                arg.value for arg in call.args if not isinstance(arg.value, ir.Const)
            ]
            counters = ("builtins.enumerate", "builtins.zip")
            if origin in counters:
                lists = [self._of(v, function, stmt, depth + 1) for v in values]
                known = [held for held in lists if held.all or held.groups]
                held = Held()
                for one in known or lists:
                    held.join(one)
                return held
            return self._joined(values, function, stmt, depth)
        callees = self.program.callees(call, function)
        held = Held(complete=bool(callees))
        for caller, returned in self.program.returns(call, function):
            held.join(self._of(returned, caller, stmt, depth + 1))
        return held

    def _of_comprehension(
        self, expr: ir.Comprehension, function: str, stmt: ir.Stmt, depth: int
    ) -> Held:
        held = Held()
        targets = {
            inner.id
            for target in expr.targets
            for inner in ir.walk(target)
            if isinstance(inner, ir.Name)
        }
        element = expr.elements[-1]
        if isinstance(element, ir.Item) and not _names_in(element.value) & targets:
            # `[by_name[n] for n in names]`: what is chosen from, not what chooses.
            return _as_parts(self._of(element.value, function, stmt, depth + 1))
        for iterable in expr.iterables:
            own = any(
                isinstance(inner, ir.Name) and inner.id in targets
                for inner in ir.walk(iterable)
            )
            if not own:
                held.join(self._of(iterable, function, stmt, depth + 1))
        if all(_asks_requires_grad(test) for test in expr.conditions):
            return held
        return _as_parts(held)

    def _of_name(self, expr: ir.Name, function: str, stmt: ir.Stmt, depth: int) -> Held:
        program = self.program
        for outer in stmt.exprs:
            for inner in ir.walk(outer):
                if isinstance(inner, ir.Comprehension) and any(
                    name == expr for t in inner.targets for name in ir.walk(t)
                ):
                    return self._joined(inner.iterables, function, stmt, depth)
        owner = program.owner(expr.id, function)
        if owner is None:
            return Held(complete=False)
        if (owner, expr.id) in self._busy:
            return Held()
        self._busy.add((owner, expr.id))
        try:
            return self._of_variable(expr, owner, depth)
        finally:
            self._busy.discard((owner, expr.id))

    def _of_variable(self, expr: ir.Name, owner: str, depth: int) -> Held:
        program = self.program
        held = Held()
        known = False
        for definition in program.definitions(owner, expr.id):
            stmt = definition.stmt
            value = definition.value if definition.index is None else None
            if stmt.kind in ("for", "augassign"):
                value = stmt.value
            if value is None or value == ir.Const(None):
                continue
            if isinstance(value, ir.Call) and self._is_module(
                expr, definition.function
            ):
                continue
            known = True
            held.join(self._of(value, definition.function, stmt, depth + 1))
        if any(param.name == expr.id for param in program.functions[owner].params):
            for site in self._sites(owner):
                value = program.argument_at(site, expr.id)
                if value is not None:
                    known = True
                    held.join(self._of(value, site.caller, site.stmt, depth + 1))
        for qualname, stmt, call in self._additions:
            if (
                isinstance(call.func, ir.Attr)
                and call.func.value == expr
                and program.owner(expr.id, qualname) == owner
                and call.args
            ):
                known = True
                held.join(self._of(call.args[0].value, qualname, stmt, depth + 1))
        if known and (held.all or held.groups):
            return held
        identities = self.identities(expr, owner)
        return Held(whole=set(identities), complete=bool(identities))

    def _is_module(self, expr: ir.Expr, function: str) -> bool:
        return any(
            ref.kind == "instance" or ref.name.startswith(("torch.nn.", "torchvision."))
            for ref in self.program.resolve(expr, function)
        )

    # -- identities ---------------------------------------------------------------------------

    def identities(
        self, expr: ir.Expr, function: str, depth: int = 0
    ) -> frozenset[Identity]:
        """The objects that an expression may be; empty where that cannot be told."""
        if depth > _MOST_STEPS:
            return frozenset()
        program = self.program
        slot = None
        if not isinstance(expr, ir.Item):
            slot = self.optimizers.slot(expr, function)
        if slot is not None and not self._is_submodule(expr, slot, function):
            return self._of_slot(slot, depth)
        match expr:
            case ir.Attr(value=value, attr="module"):
                return self.identities(value, function, depth + 1)
            case ir.Attr(value=value, attr=attr):
                own = program.self_class(function)
                if own is not None and value == ir.Name(own[0]):
                    return frozenset({("attribute", own[1], attr)})
                inner = self.identities(value, function, depth + 1)
                return frozenset((*one, attr) for one in inner)
            case ir.Item(value=value, key=ir.Const(value=key)):
                inner = self.identities(value, function, depth + 1)
                return frozenset((*one, f"[{key!r}]") for one in inner)
            case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _INNER:
                inner = self.identities(value, function, depth + 1)
                return frozenset((*one, "*") for one in inner)
            case ir.Call(func=ir.Name(id="list"), args=(ir.Arg(value=value),)):
                return self.identities(value, function, depth + 1)
            case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _SAME_OBJECT:
                return self.identities(value, function, depth + 1)
            case ir.Call(func=func, args=args) if args:
                name = ir.key_of(func) or ""
                if name.rsplit(".", 1)[-1] in _WRAPPERS:
                    return self.identities(args[0].value, function, depth + 1)
        return frozenset()

    def _is_submodule(self, expr: ir.Expr, slot: Slot, function: str) -> bool:
        """Whether an attribute is part of a module, which is known by the way to it."""
        own = self.program.self_class(function)
        if slot.kind != "attribute" or not isinstance(expr, ir.Attr):
            return False
        if own is not None and expr.value == ir.Name(own[0]):
            return False
        bases = self.program.external_bases(slot.owner)
        return any(base.startswith("torch.nn.") for base in bases)

    def _of_slot(self, slot: Slot, depth: int) -> frozenset[Identity]:
        program = self.program
        if slot in self._naming:
            return frozenset()
        self._naming.add(slot)
        try:
            found: set[Identity] = set()
            if slot.kind == "attribute":
                definitions = program.attribute_definitions(slot.owner, slot.name)
            else:
                definitions = program.definitions(slot.owner, slot.name)
                params = program.functions[slot.owner].params
                own = program.functions[slot.owner].self_name
                if slot.name == own:
                    return frozenset(
                        {("self", program.functions[slot.owner].class_name or "")}
                    )
                if any(param.name == slot.name for param in params):
                    given = [
                        (site.caller, argument)
                        for site in self._sites(slot.owner)
                        if (argument := program.argument_at(site, slot.name))
                        is not None
                    ]
                    for caller, argument in given:
                        found |= self.identities(argument, caller, depth + 1)
                    if not given:
                        found.add((slot.kind, slot.owner, slot.name))
            for definition in definitions:
                value = definition.value
                elements = self._elements(definition, slot, depth)
                if elements:
                    found |= elements
                    continue
                if value is None or definition.index is not None:
                    found.add((slot.kind, slot.owner, slot.name))
                    continue
                if value == ir.Const(None):
                    continue
                options: tuple[ir.Expr, ...] = (value,)
                if isinstance(value, ir.Operation) and value.op == "if":
                    options = value.operands[1:]
                for option in options:
                    inner = self.identities(option, definition.function, depth + 1)
                    found |= inner or self._fresh(option, slot, definition.function)
            return frozenset(found)
        finally:
            self._naming.discard(slot)

    def _elements(
        self, definition: Definition, slot: Slot, depth: int
    ) -> frozenset[Identity]:
        """What a loop's variable stands for in turn, where the loop goes through a list in sight."""
        collections = self.optimizers.collections
        through = collections.iterated(definition.stmt, slot.name, definition.function)
        if through is None:
            return frozenset()
        lists = [(definition.function, through)]
        if isinstance(through, ir.Name):
            owner = self.program.owner(through.id, definition.function)
            if owner is not None:
                lists = [
                    (site.caller, given)
                    for site in self._sites(owner)
                    if (given := self.program.argument_at(site, through.id)) is not None
                ]
        found: set[Identity] = set()
        for function, expr in lists:
            if not isinstance(expr, ir.Display) or expr.kind == "dict":
                inner = self.identities(expr, function, depth + 1)
                found |= inner
                continue
            for item in expr.items:
                found |= self.identities(item, function, depth + 1)
        return frozenset(found)

    def _fresh(self, value: ir.Expr, slot: Slot, function: str) -> set[Identity]:
        """A value that is no other object under a new name gets the slot's own identity.

        ``model = model.to(device)`` inside a cycle adds nothing.
        """
        root = value
        while isinstance(root, (ir.Call, ir.Attr)):
            root = root.func if isinstance(root, ir.Call) else root.value
        if isinstance(root, ir.Name) and self.optimizers.slot(root, function) == slot:
            return set()
        return {(slot.kind, slot.owner, slot.name)}


def _as_seen_outside(
    found: Iterable[Identity], receivers: Iterable[Identity]
) -> set[Identity]:
    """A method's ``self`` as the object that the method was called on."""
    seen: set[Identity] = set()
    for one in found:
        if one[0] == "self":
            seen |= {(*receiver, *one[2:]) for receiver in receivers}
        else:
            seen.add(one)
    return seen


def _within(inner: Identity, outer: Identity) -> bool:
    return inner[: len(outer)] == outer


def _names_in(expr: ir.Expr) -> set[str]:
    return {inner.id for inner in ir.walk(expr) if isinstance(inner, ir.Name)}


def _as_parts(held: Held) -> Held:
    return Held(parts=Counter(held.all), complete=held.complete, groups=held.groups)


def _asks_requires_grad(test: ir.Expr) -> bool:
    return isinstance(test, ir.Attr) and test.attr == "requires_grad"
