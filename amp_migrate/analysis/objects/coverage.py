"""Which parameters an optimizer holds, and whether gradients that are touched are theirs.

``unscale_`` and ``step`` reach only what the optimizer holds. A clip over more than that would mix
scaled with unscaled gradients, and a ``zero_grad`` over less would leave some behind: both must be
shown not to happen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import combinations

from amp_migrate.analysis.objects.availability import Place, is_over
from amp_migrate.analysis.objects.concrete import Concrete, has_several, is_copied
from amp_migrate.analysis.objects.flow import PARSES, Flow, Made
from amp_migrate.analysis.objects.held import (
    ALWAYS,
    Held,
    Identity,
    Test,
    as_parts,
    chosen_by,
    either,
    holds_all,
    is_unsure,
    of_modules,
    one_of,
    receives,
    test_of,
    within,
)
from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.analysis.objects.points_to import (
    RETURNS_SELF,
    Bound,
    Context,
    Object,
    PointsTo,
    State,
)
from amp_migrate.analysis.objects.rebuilt import rebuilders
from amp_migrate.analysis.objects.unfollowed import contents
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of, unpacked
from amp_migrate.program.control_flow import is_main_guard
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

Way = Mapping[str, CallSite]
"""The calls that lead to a place: of each function on the way, the only one that counts."""

_AT = "@"
_BY = "#"
_PASSED_THROUGH = frozenset(
    f"builtins.{name}"
    for name in "list tuple iter sorted reversed enumerate zip set next".split()
) | {"itertools.chain", "itertools.chain.from_iterable"}
_CONTAINERS = frozenset(
    f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict")
)
_OWN_LISTS = frozenset(("parameters", "named_parameters", "zero_grad"))
"""Methods of a module that go through its parameters."""
_REMOVES = ("pop", "remove", "clear")
_SUPER = ir.Call(ir.Name("super"), ())
_MOST_STEPS = 12
_MOST_CALLS = 5
_MOST_WAYS = 64


def _changes_groups(program: Program) -> bool:
    """Whether a program changes the lists that optimizers have: ``group["params"].pop()``, ``del
    opt.param_groups[1]``."""

    def is_list(expr: ir.Expr, function: str) -> bool:
        root, keys = _taken_out(expr)
        if not isinstance(root, ir.Name):
            return is_groups(root) and (not keys or ir.Const("params") in keys)
        # What a statement takes out of such a list, or goes through it for.
        for one in program.defined(root.id, function):
            of, more = _taken_out(one.stmt.value or root)
            if is_groups(of) and ir.Const("params") in (*keys, *more):
                return True
        return False

    def is_groups(expr: ir.Expr) -> bool:
        return (
            isinstance(expr, ir.Attr)
            and expr.attr == "param_groups"
            and expr.value != ir.Name("self")
        )

    for method in (*_REMOVES, "append", "extend", "insert"):
        for function, _, call in program.calls_named(method):
            if isinstance(call.func, ir.Attr) and is_list(call.func.value, function):
                return True
    spoken_of = program.mentioning("param_groups", "params")
    for function, stmt in (*spoken_of, *program.deletions):
        changed = [*stmt.targets, *(stmt.exprs if stmt.kind == "delete" else ())]
        for target in changed:
            if isinstance(target, ir.Item) and (
                is_list(target.value, function)
                or (target.key == ir.Const("params") and is_list(target, function))
            ):
                return True
            if isinstance(target, ir.Attr) and is_list(target, function):
                return True
    return False


def _taken_out(expr: ir.Expr) -> tuple[ir.Expr, list[ir.Expr]]:
    """What an element is taken out of, and by which keys."""
    keys: list[ir.Expr] = []
    while isinstance(expr, ir.Item):
        keys.append(expr.key)
        expr = expr.value
    return expr, keys


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
        self._removals = [
            found for method in _REMOVES for found in program.calls_named(method)
        ]
        self.flow = Flow(program)
        self._busy: set[tuple[str, str, ir.Path]] = set()
        self.points_to = program.noted(PointsTo)
        self.away: frozenset[Slot] = frozenset()
        """Those slots that hold another optimizer on the way that is looked at."""
        self.names: dict[Identity, set[tuple[str, str, str]]] = {}
        """By object, the variables and attributes that it goes by."""
        self._unknown: set[tuple[object, ...]] = set()
        """Expressions in their calls that may be objects of which it cannot be told which they are."""
        self._some: dict[Identity, bool] = {}
        self._several: dict[str, bool] = {}
        self._given: dict[Identity, list[tuple[str, Identity]]] = {}
        self._taken: dict[tuple[object, ...], Collection[tuple[object, Context]]] = {}
        self._way: Way = {}
        self._asked: Way = {}
        """The part of the way that leads to the place which is asked about: what it leads into from there
        makes objects of its own."""
        self._held = {birth: self._of_birth(birth) for birth in self.births}
        if program.noted(_changes_groups):
            self._held = {b: as_parts(one, None) for b, one in self._held.items()}
        self.held = Held()
        for one in self._held.values():
            self.held.join(one)

    # -- questions ----------------------------------------------------------------------------

    def owns(
        self, targets: Iterable[ir.Expr], function: str, stmt: ir.Stmt, way: Way
    ) -> bool:
        """Whether the gradients of ``targets`` are all of parameters that the optimizers hold.

        Where several births take turns, each way to the function is looked at by itself: its callers
        hand over an optimizer and a model that belong together.
        """
        targets = list(targets)
        ways = [way] if len(self._held) < 2 else self._ways(function, way)
        for one in ways:
            with self._on(one):
                held = self.alive(function, stmt)
                if not all(self._owns(t, function, stmt, held) for t in targets):
                    return False
        return True

    @contextmanager
    def _on(self, way: Way) -> Iterator[None]:
        """Look at one way through the program."""
        self._way = self._asked = way
        try:
            yield
        finally:
            self._way = self._asked = {}

    def _owns(
        self,
        target: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        alternatives: Mapping[Birth, Held],
    ) -> bool:
        found = self._of(target, function, stmt, 0)
        if found.groups and not found.all:
            return True
        if self.is_given_again(target, function, alternatives) or (
            self._is_of_same(target, function, alternatives)
        ):
            return True
        several = len(alternatives) > 1
        return (
            found.complete
            and bool(found.all)
            and not any(is_unsure(held, found) for held in alternatives.values())
            and all(
                self._are_covered(
                    one,
                    function,
                    stmt,
                    {
                        birth: held
                        for birth, held in alternatives.items()
                        if not several
                        or not self._never_meet(birth, one, target, function, stmt)
                    },
                )
                for one in found.all
            )
        )

    def is_given_again(
        self, target: ir.Expr, function: str, births: Collection[Birth]
    ) -> bool:
        """Whether an object asks again for what it has given its optimizer: ``self.agent.parameters()``."""
        own = self.program.self_class(function)
        return (
            own is not None
            and bool(births)
            and not self.program.noted(_changes_groups)
            and all(
                birth.slot.kind == "attribute"
                and target in self._given_as(birth)
                and (maker := self.program.self_class(birth.function)) is not None
                and maker[0] == own[0]
                and maker[1] in self.program.family(own[1])
                for birth in births
            )
            and ir.Name(own[0]) in ir.walk(target)
            and self._is_always_same(target, function, set())
        )

    def _is_of_same(
        self, target: ir.Expr, function: str, births: Collection[Birth]
    ) -> bool:
        """Whether a function asks a parameter of its own again for what it has given its optimizer,
        ``net.parameters()``: whatever that is, it is one module all the time."""
        match target:
            case ir.Call(func=ir.Attr(value=ir.Name(id=name), attr=attr), args=()):
                program = self.program
                return (
                    attr == "parameters"
                    and program.is_param(function, name)
                    and not self._named_methods(attr, function)
                    and not program.noted(_changes_groups)
                    and bool(births)
                    and all(
                        birth.function == function
                        and birth.slot.kind == "variable"
                        and parameters_of(birth.call) == target
                        for birth in births
                    )
                    and all(
                        made.value is not None
                        and ir.before_calls(made.value, RETURNS_SELF) == ir.Name(name)
                        for made in program.definitions(function, name)
                    )
                    and not any(
                        ir.file_of(one) in program.around({ir.file_of(function)})
                        for one in program.noted(rebuilders)
                    )
                )
        return False

    def _given_as(self, birth: Birth) -> Iterator[ir.Expr | None]:
        """What an optimizer is given, by all names: ``agent.parameters()`` where ``self.agent = agent``."""
        given, program = parameters_of(birth.call), self.program
        yield given
        match given:
            case ir.Call(
                func=ir.Attr(value=ir.Name(id=name) as root, attr=attr)
            ) if program.is_param(birth.function, name) and not program.definitions(
                birth.function, name
            ):
                for stmt in program.statements(birth.function):
                    for target in stmt.targets if stmt.value == root else ():
                        yield ir.Call(ir.Attr(target, attr), given.args)

    def _is_always_same(self, expr: ir.Expr, function: str, seen: set[str]) -> bool:
        """Whether attributes alone decide which parameters an expression gives, and stay what they are."""
        program = self.program
        match expr:
            case ir.Call(func=ir.Attr(value=holder, attr=attr), args=()):
                while isinstance(holder, ir.Attr):
                    if self._named_methods(holder.attr, function):
                        return False  # A property, maybe.
                    if not self._is_set_first(holder, function):
                        return False
                    holder = holder.value
                # Of who knows what: it may be any method of that name.
                callees = program.callees(expr, function)
                callees = callees or self._named_methods(attr, function)
                return (
                    (isinstance(holder, ir.Name) or holder == _SUPER)
                    and (bool(callees) or attr in _PARAMETERS)
                    and all(self._gives_same(one, seen) for one in callees)
                )
            case ir.Call(args=args) if (
                program.origin(expr.func, function) in _PASSED_THROUGH
            ):
                given = [arg.value for arg in args]
                return all(self._is_always_same(one, function, seen) for one in given)
            case ir.Operation(op="+", operands=given):
                return all(self._is_always_same(one, function, seen) for one in given)
        return False

    def _is_set_first(self, expr: ir.Attr, function: str) -> bool:
        """Whether no loop sets an attribute anew: ``for task in tasks: agent.reset_head(task)``."""
        program = self.program
        own = program.class_of_self(expr.value, function)
        for on, made in program.attribute_targets.get(expr.attr, ()):
            its = program.class_of_self(on, made.function)
            if own is None or its is None or its in program.family(own):
                name = program.functions[made.function].name
                places = [(made.function, made.stmt)]
                if name != "__init__":
                    places += (
                        (function, stmt)
                        for function, stmt, call in program.calls_named(name)
                        if made.function in program.callees(call, function)
                        or not program.callees(call, function)
                    )
                if any(
                    outer.kind in ("for", "while")
                    for where, stmt in places
                    for outer in program.control(where).around(stmt.path)
                ):
                    return False
        return True

    def _named_methods(self, name: str, function: str) -> tuple[str, ...]:
        """The methods of a name that the file of a function comes by."""
        near = self.program.around({ir.file_of(function)})
        return tuple(
            qualname
            for qualname, facts in self.program.functions.items()
            if facts.name == name and facts.class_name is not None
            if ir.file_of(qualname) in near
        )

    def _gives_same(self, function: str, seen: set[str]) -> bool:
        """Whether a function does nothing but hand out such parameters; what it asks is set when an object is
        made, and never again."""
        facts = self.program.functions[function]
        if function in seen:
            return True
        seen.add(function)
        for stmt in ir.statements(facts.body):
            value = stmt.value
            if isinstance(value, ir.Suspend):
                value = value.value
            match stmt.kind:
                case "raise":
                    known = True
                case "if":
                    known = value is not None and self._is_setting(value, function)
                case "expr" | "return":
                    known = value is not None and (
                        isinstance(value, ir.Const)
                        or self._is_always_same(value, function, seen)
                    )
                case _:
                    known = False
            if not known:
                return False
        return not facts.decorators

    def _is_setting(self, test: ir.Expr, function: str) -> bool:
        """``self.frozen``, which constructors alone set."""
        program = self.program
        if isinstance(test, ir.Operation) and test.op == "not":
            (test,) = test.operands
        return (
            isinstance(test, ir.Attr)
            and program.class_of_self(test.value, function) is not None
            and all(
                program.functions[made.function].name == "__init__"
                for _, made in program.attribute_targets.get(test.attr, ())
            )
        )

    def _are_covered(
        self,
        one: Identity,
        function: str,
        stmt: ir.Stmt,
        alternatives: Mapping[Birth, Held],
    ) -> bool:
        """Whether each of some births, which take turns, holds all parameters of a module."""
        if self._is_of_several(one):
            return False
        return bool(alternatives) and all(
            holds_all(held, one)
            and not self._is_bound_since(birth, one, function, stmt)
            for birth, held in alternatives.items()
        )

    def _is_of_several(self, one: Identity) -> bool:
        """Whether an attribute is that of several objects, and the optimizer is none of theirs: it holds
        what one of them has."""
        if one[0] != "attribute":
            return False
        owner = one[1]
        if owner not in self._several:
            family = self.program.family(owner)
            births = [b.function for b in self.births]
            self._several[owner] = not all(
                birth.slot.kind == "attribute" and birth.slot.owner in family
                for birth in self.births
            ) and (
                has_several(self.program, owner)
                or is_copied(self.program, owner, births)
            )
        return self._several[owner]

    def _never_meet(
        self,
        birth: Birth,
        one: Identity,
        target: ir.Expr,
        function: str,
        stmt: ir.Stmt,
    ) -> bool:
        """Whether no way to a statement leads past a birth and the making of a module that ``target``
        names, so that both are what their names stand for there: each branch makes a model and its
        optimizer."""
        slot, where = birth.slot, birth.function
        made = definitions_of(self.program, one)
        if (one[0], one[1], slot.kind, slot.owner) != ("variable", where) * 2:
            return False
        at = self._position_in(where, function, stmt)
        if at is None or len(made) != 1 or self._is_kept_elsewhere(slot, where):
            return False
        name = one[2].partition(_AT)[0]
        if any(
            one in self.identities(inner, function, stmt)
            and self._named(inner, function) != (where, name)
            for inner in ir.walk(target)
            if isinstance(inner, (ir.Name, ir.Attr, ir.Item))
        ):
            return False
        pairs = self.program.control(where).together((slot.name, name), at.path)
        births, models = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        pair = birth.path, made[0].stmt.path
        return pair not in pairs and pair[0] in births and pair[1] in models

    def _named(self, expr: ir.Expr, function: str) -> tuple[str, str] | None:
        """The variable that an expression names, on this way: of a parameter, that of the caller."""
        seen: set[str] = set()
        while isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            if owner is None:
                return None
            site = self._way.get(owner)
            given = None if site is None else self.program.argument_at(site, expr.id)
            if owner in seen or site is None or given is None:
                return owner, expr.id
            seen.add(owner)
            expr, function = given, site.caller
        return None

    def _position_in(self, wanted: str, function: str, stmt: ir.Stmt) -> ir.Stmt | None:
        """Where the way to a statement stands in one of its functions."""
        positions = self._positions(function, stmt)
        return next((at for f, at, _ in positions if f == wanted), None)

    def of_target(
        self,
        target: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        way: Way,
    ) -> Held:
        """What one target stands for."""
        with self._on(way):
            return self._of(target, function, stmt, 0)

    def of_one(self, target: ir.Expr, function: str, stmt: ir.Stmt, way: Way) -> Held:
        """What a target stands for on a way on which that is one thing only; its names there are not kept
        in mind, for on others they are those of others."""
        names = {one: set(known) for one, known in self.names.items()}
        found = self.of_target(target, function, stmt, way)
        self.names = names
        return found if len(found.all) == 1 else Held(complete=False)

    def covers(
        self, one: Identity, function: str, stmt: ir.Stmt, way: Way | None = None
    ) -> bool:
        """Whether all parameters of a module are held, whichever birth has taken place."""
        with self._on(way or {}):
            alive = self.alive(function, stmt)
            return self._are_covered(one, function, stmt, alive)

    def may_hold(self, one: Identity) -> bool:
        """Whether some parameters of a module may be held."""
        return not self.held.complete or self.holds_some(one)

    def holds_some(self, one: Identity) -> bool:
        """Whether a module is one that is held, has one inside, or is inside of one."""
        if one not in self._some:
            parts = self._with_parts({one})
            self._some[one] = any(
                within(a, b) or within(b, a) for a in parts for b in self._all_held
            )
        return self._some[one]

    @cached_property
    def _all_held(self) -> set[Identity]:
        return self._with_parts(self.held.all)

    def holds_all(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether an expression is known to be something that is held as a whole: of an attribute, it is
        not told when it was what."""
        found = self.identities(expr, function, stmt)
        return bool(found) and all(
            one[0] == "variable" and holds_all(self.held, one) for one in found
        )

    def parts_of(self, one: Identity) -> set[str]:
        """The attributes of a module in which what is held of it stands."""
        inside = [held for held in self.held.all if within(held, one) and held != one]
        return {held[len(one)] for held in inside}

    def bindings(self, one: Identity) -> list[Definition]:
        """What gives the names that an object goes by a value at any time."""
        found: dict[tuple[str, ir.Path], Definition] = {}
        for kind, owner, name in sorted(self.names.get(one, {one[:3]})):
            for made in definitions_of(self.program, (kind, owner, name)):
                found.setdefault((made.function, made.stmt.path), made)
        return list(found.values())

    # -- time ---------------------------------------------------------------------------------

    def alive(self, function: str, stmt: ir.Stmt) -> Mapping[Birth, Held]:
        """The births that may have made the optimizer which is at hand at a statement, on this way."""
        alive = self._held
        for where, at, site in self._positions(function, stmt):
            if len(alive) < 2:
                break
            found = {b: h for b, h in alive.items() if self._reaches(b, where, at)}
            alive = found or alive
            if site is not None:
                born = self._born_at(site)
                found = {b: h for b, h in alive.items() if b in born}
                alive = found or alive
        return alive

    def _positions(
        self, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[str, ir.Stmt, CallSite | None]]:
        """Where a way stands in each of its functions, from the inside out, and the call that leads
        further out."""
        seen = {function}
        while True:
            site = self._way.get(function)
            yield function, stmt, site
            if site is None or site.caller in seen:
                return
            function, stmt = site.caller, site.stmt
            seen.add(function)

    def _reaches(self, birth: Birth, function: str, stmt: ir.Stmt) -> bool:
        """Whether the optimizer that a birth makes may still be the one of its name at a statement."""
        slot = birth.slot
        if slot.kind == "attribute" and not self._may_name(birth, function):
            return False
        if (slot.kind, slot.owner, birth.function) != ("variable", function, function):
            return True
        if self._is_kept_elsewhere(slot, function):
            return True
        found, _ = self.flow.reaching(
            slot.name, Made(ir.Name(slot.name), function, stmt)
        )
        return any(one.path == birth.path for one in found)

    def _may_name(self, birth: Birth, function: str) -> bool:
        """Whether a method has a name for an optimizer that some object has, but for by way of another
        object."""
        program, made = self.program, birth.slot.owner
        own = program.self_class(function)
        family = program.family(made)
        if own is None or own[1] in family:
            return own is None or not self._is_made_apart(birth, function)
        # What a base of both keeps of its subclass, another subclass does not see.
        return any(
            birth in self.optimizers.trace(slot).births
            for slot in self.slots
            if (
                program.encloses(slot.owner, function)
                if slot.kind == "variable"
                else slot.owner in program.family(own[1]) and slot.owner not in family
            )
        )

    def _is_made_apart(self, birth: Birth, function: str) -> bool:
        """Whether an object makes an optimizer for itself that has nothing to do with those that a method
        runs on."""
        program, slot = self.program, birth.slot
        concrete = (program.whole or program).noted(Concrete)
        classes, others = map(concrete.classes_of, (function, birth.function))
        if not classes or not others or not classes.isdisjoint(others):
            return False
        if not all(
            site.bound_self
            for one in (function, birth.function)
            for site in program.call_sites.get(one, ())
        ):
            return False  # `Other.update(self)`: another class's, on the same object
        births = {(one.function, one.path) for one in self.births}
        family = program.family(slot.owner)
        return all(
            (made.function, made.stmt.path) in births
            and (own := program.self_class(made.function)) is not None
            and ir.Attr(ir.Name(own[0]), slot.name) in made.stmt.targets
            for made in program.attribute_definitions(slot.owner, slot.name)
        ) and birth.function in concrete.apart(
            classes, family if concrete.is_alone(family) else classes
        )

    def _is_kept_elsewhere(self, slot: Slot, function: str) -> bool:
        """Whether an optimizer may go by another name than that of a function's variable."""
        return any(
            other.kind == "attribute" or other.owner == function
            for other in self.slots - {slot}
        )

    def _is_bound_since(
        self, birth: Birth, one: Identity, function: str, stmt: ir.Stmt
    ) -> bool:
        """Whether a loop binds a module's name anew between a birth and a statement: it is the same
        statement that did it before the birth, but another object."""
        if one[0] != "variable" or one[1] != birth.function:
            return False
        at = self._position_in(birth.function, function, stmt)
        if at is None or at.path == birth.path:
            return False
        scope = self.program.functions[birth.function]
        for made in definitions_of(self.program, one):
            for loop in ir.statements(scope.body):
                size = len(loop.path)
                paths = (birth.path, made.stmt.path, at.path)
                if loop.kind not in ("for", "while") or any(
                    path[:size] != loop.path or len(path) == size for path in paths
                ):
                    continue
                if _in_turn(birth.stmt.line, made.stmt.line, at.line) and not any(
                    other.function == birth.function
                    and other.path[:size] == loop.path
                    and _in_turn(made.stmt.line, other.stmt.line, at.line)
                    for other in self.births
                    if other != birth
                ):
                    return True
        return False

    def _ways(self, function: str, way: Way) -> list[Way]:
        """Every way to a function from where nothing calls; as it is where there are too many."""
        done: list[Way] = []
        pending: list[tuple[str, Way, frozenset[str]]] = [(function, {}, frozenset())]
        while pending:
            here, calls, seen = pending.pop()
            seen |= {here}
            sites = (
                [way[here]] if here in way else self.program.call_sites.get(here, ())
            )
            above = [site for site in sites if site.caller not in seen]
            pending += [(s.caller, {**calls, here: s}, seen) for s in above]
            if not above:
                done.append(calls)
            if len(pending) + len(done) > _MOST_WAYS:
                return [way]
        return done

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
        sites = self.program.call_sites.get(function, [])
        return [site for site in sites if self._runs_on_way(site.caller)] or sites

    def _runs_on_way(self, function: str) -> bool:
        """Whether a run that takes the way which is looked at may run a function, too."""
        return all(
            self.program.may_run_together(ir.file_of(function), ir.file_of(site.caller))
            for site in self._way.values()
        )

    def clears(self, targets: Iterable[ir.Expr], function: str, stmt: ir.Stmt) -> bool:
        """Whether dropping the gradients of ``targets`` drops all that the optimizers hold."""
        dropped = [self._of(t, function, stmt, 0) for t in targets]
        return self.are_cleared(dropped, function, stmt)

    def are_cleared(
        self,
        dropped: Iterable[Held],
        function: str,
        stmt: ir.Stmt,
        way: Way | None = None,
    ) -> bool:
        """The same, of what targets stand for."""
        cleared: set[Identity] = set()
        for found in dropped:
            if found.every:
                return True
            cleared |= {one for one in found.whole if not self._is_of_several(one)}
        with self._on(way or {}):
            alive = self.alive(function, stmt)
        alternatives: dict[tuple[str, ...], list[set[Identity]]] = defaultdict(list)
        for one in cleared:
            # One variable that holds one module or another.
            names = (re.split("[@#]", name)[0] for name in one[2:])
            variable = (*one[:2], *names)
            alternatives[variable].append(self._with_parts({one}))
        for parts in alternatives.values():
            cleared |= set.intersection(*parts)
        return bool(alive) and all(
            held.complete
            and held.all
            and all(any(within(one, c) for c in cleared) for one in held.all)
            for held in (*alive.values(), *self.added.values())
        )

    @cached_property
    def added(self) -> dict[int, Held]:
        """What the optimizers are given by each call of ``add_param_group()``."""
        return {
            id(call): self._of(call.args[0].value, function, stmt, 0)
            for function, stmt, call in self.program.calls_named("add_param_group")
            if call.args
            and isinstance(call.func, ir.Attr)
            and self._is_own(self.optimizers.slot(call.func.value, function))
        }

    @property
    def given(self) -> list[Held]:
        """What the optimizers are given, when they are made and later."""
        return [self.held, *self.added.values()]

    @cached_property
    def _has_one_group(self) -> bool:
        """Whether the optimizers are made with a list of parameters, not with one of groups."""
        return not self.program.calls_named("add_param_group") and all(
            isinstance(given := parameters_of(birth.call), ir.Call)
            and ir.last_of(given.func) in ("parameters", "filter")
            for birth in self.births
        )

    def _with_parts(self, some: set[Identity]) -> set[Identity]:
        """Some modules, with those that they are made of."""
        found, pending = set(some), list(some)
        for one in pending:
            more = {part for _, part in self.given_to(one)} - found
            found |= more
            pending += more
        return found

    def given_to(self, one: Identity) -> list[tuple[str, Identity]]:
        """The modules that a module is made of, and is given where it is made, by their attributes:
        ``Joint(encoder, decoder)``."""
        if one not in self._given:
            self._given[one] = []
            if len(one) > 3:
                self.given_to(one[:-1])
                return self._given[one]
            found = definitions_of(self.program, one)
            value = found[0].value if len(found) == 1 else None
            if value is not None and found[0].index is None:
                at = (value, found[0].function, found[0].stmt)
                objects = self.points_to.of(*at, same=True)
                if len(objects) == 1:
                    self._give(one, objects[0])
        return self._given[one]

    def _give(
        self, one: Identity, made: Object, wholes: tuple[object, ...] = ()
    ) -> None:
        wholes = (*wholes, (made.site, made.context))
        function, context, parts = self._values_given(made)
        if len(context) > _MOST_CALLS:
            return
        for name, value, stmt in parts:
            objects = self.points_to.of(value, function, stmt, context, same=True)
            found = {self._identity(o) for o in objects}
            if len(found) != 1 or any(o.kind != "value" for o in objects):
                continue
            if (objects[0].site, objects[0].context) in wholes:
                continue  # ``self.__dict__ = self``
            match objects[0].expr:
                case ir.Call() as call if ir.method_of(call) in PARSES:
                    continue  # Options are no module, whoever keeps them.
            (part,) = found
            here = context[len(made.context) :]
            if objects[0].bound is None or set(here) & set(objects[0].context):
                # What is made there is known by the way to it.
                part = (*one, name)
            if part is not None:
                self._given[one].append((name, part))
            if part == (*one, name):
                self._given[part] = []
                self._give(part, objects[0], wholes)

    def _values_given(
        self, made: Object
    ) -> tuple[str, Context, list[tuple[str, ir.Expr, ir.Stmt | None]]]:
        """What a module's attributes are given by whoever makes it, and where."""
        program, call, function = self.program, made.expr, made.function
        if not isinstance(call, ir.Call) or made.fields:
            return function, (), []
        if program.origin(call.func, function) in _CONTAINERS:
            values = contents(arg.value for arg in call.args if not arg.star)
            listed = [(f"[{i}]", value, made.stmt) for i, value in enumerate(values)]
            return function, made.context, listed
        sites = list(program.call_sites_of(call, function))
        if len(sites) != 1 or any(program.method(made.name, m) for m in _OWN_LISTS):
            return function, (), []
        init = program.functions[sites[0].callee]
        parts: list[tuple[str, ir.Expr, ir.Stmt | None]] = []
        for stmt in init.body:
            if any(inner.kind == "return" for inner in ir.statements((stmt,))):
                break
            parts += [
                (target.attr, value, stmt)
                for target, value, index in unpacked(stmt)
                if isinstance(target, ir.Attr) and value is not None and index is None
                if target.value == ir.Name(init.self_name or "")
                if not self._may_change(made.name, target.attr)
            ]
        return init.qualname, (*made.context, sites[0]), parts

    def _may_change(self, class_name: str, attr: str) -> bool:
        """Whether an attribute may be another one later, or be gone."""
        return len(self.program.attribute_definitions(class_name, attr)) != 1 or any(
            isinstance(inner, ir.Attr) and inner.attr == attr
            for _, stmt in self.program.deletions
            for inner in stmt.exprs
        )

    def _handed(self, slot: Slot | None) -> Slot | None:
        """What holds the optimizer that a parameter is given on this way, where nothing else steps that."""
        while slot is not None and slot not in self.slots and slot.kind == "variable":
            site = self._way.get(slot.owner)
            if site is None or self.program.definitions(slot.owner, slot.name):
                break
            given = self.program.argument_at(site, slot.name)
            if given is None:
                break
            slot = self.optimizers.slot(given, site.caller)
        return slot

    def _is_own(self, slot: Slot | None) -> bool:
        """Whether a slot holds one of the group's optimizers."""
        if slot is None:
            return False
        if slot in self.slots:
            return slot not in self.away
        trace = self.optimizers.trace(slot)
        return bool(trace.births) and trace.births <= self.births and not trace.problems

    # -- births -------------------------------------------------------------------------------

    def _of_birth(self, birth: Birth) -> Held:
        """What the optimizer of a birth is given where it is made."""
        found: list[Held] = []
        for made in self.optimizers.made(birth):
            assert isinstance(made.expr, ir.Call) and made.stmt is not None
            self._way = {site.callee: site for site in made.context}
            held = self._of_construction(made.expr, made.function, made.stmt)
            self._add_same(held, made.function, made.stmt)
            found.append(held)
        self._way = {}
        if not found:
            return Held(complete=False)
        held = one_of(found)
        if isinstance(birth.call.func, ir.Attr):
            receivers = self.identities(
                birth.call.func.value, birth.function, birth.stmt
            )
            held.whole = _as_seen_outside(held.whole, receivers)
            held.parts = {
                outside: choices
                for one, choices in held.parts.items()
                for outside in _as_seen_outside({one}, receivers)
            }
        return held

    def _add_same(self, held: Held, function: str, stmt: ir.Stmt) -> None:
        """Add what a test around a statement has found to be a module that is held: where
        ``actor is critic``, who holds the one holds the other."""
        for outer in self.program.control(function).around(stmt.path):
            match outer:
                case ir.Stmt(
                    kind="if", value=ir.Operation(op="is", operands=(one, other))
                ) if (stmt.path[len(outer.path)][0] == "body"):
                    first = self.identities(one, function, outer)
                    second = self.identities(other, function, outer)
                    for some, more in ((first, second), (second, first)):
                        if some and some <= held.whole:
                            held.whole |= more

    def _of_construction(
        self, call: ir.Call, function: str, stmt: ir.Stmt, around: tuple[int, ...] = ()
    ) -> Held:
        given = parameters_of(call)
        if given is None:
            return Held(complete=False)
        makers, around = self.optimizers.makers, (*around, id(call))
        inner = [
            self._of_construction(one.expr, one.function, one.stmt, around)
            for one in self.optimizers.points_to.of(given, function, stmt)
            if isinstance(one.expr, ir.Call) and one.stmt
            if id(one.expr) not in around
            if makers.construction(one.expr, one.function, one.context) == "plain"
        ]
        # What is wrapped around an optimizer holds what that does.
        return one_of(inner) if inner else self._of(given, function, stmt, 0)

    # -- parameter lists ----------------------------------------------------------------------

    def _of(self, expr: ir.Expr, function: str, stmt: ir.Stmt, depth: int) -> Held:
        """What a parameter list, a parameter or a module stands for."""
        if depth > _MOST_STEPS:
            return Held(complete=False)
        match expr:
            case ir.Attr(attr="param_groups", value=value):
                own = self._is_own(self._handed(self.optimizers.slot(value, function)))
                return Held(groups=own, every=own, complete=own)
            case ir.Attr() if listed := self._of_attribute(expr, function, depth):
                return listed
            case ir.Attr(attr="params", value=value) if self._is_self(value, function):
                pass
            case ir.Attr(attr="params" | "grad" | "data", value=value):
                return self._of(value, function, stmt, depth + 1)
            case ir.Item(value=value, key=key):
                inner = self._of(value, function, stmt, depth + 1)
                if inner.groups:
                    alone = isinstance(value, ir.Attr) and self._has_one_group
                    if key == ir.Const("params") or (alone and key == ir.Const(0)):
                        return inner
                    return as_parts(inner, None)
            case ir.Call():
                return self._of_call(expr, function, stmt, depth)
            case ir.Operation(op="if", operands=(_, *chosen)):
                return either(
                    [self._of(one, function, stmt, depth + 1) for one in chosen]
                )
            case ir.Operation(op="+" | "starred", operands=operands):
                held = self._joined(operands, function, stmt, depth)
                if expr.op == "+":
                    one, other = (self._of(o, function, stmt, depth) for o in operands)
                    apart = self._are_of_others(operands, function, stmt)
                    held.twice |= any(
                        within(a, b) or within(b, a)
                        for a in one.whole
                        for b in other.whole
                        if not (apart and a == b and self._is_own_part(a))
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
        objects = self._named_objects(expr, function, stmt)
        if isinstance(expr, ir.Item) and not isinstance(expr.key, ir.Const):
            return either([Held(whole={one}) for one in objects])
        return of_modules(objects)

    def _are_of_others(
        self, calls: Iterable[ir.Expr], function: str, stmt: ir.Stmt
    ) -> bool:
        """Whether methods are called on objects that are not the same: what is an attribute of one is none of
        another's."""
        objects = [
            (
                self.identities(call.func.value, function, stmt)
                if isinstance(call, ir.Call) and isinstance(call.func, ir.Attr)
                else frozenset()
            )
            for call in calls
        ]
        return all(objects) and not any(
            within(a, b) or within(b, a)
            for one, other in combinations(objects, 2)
            for a in one
            for b in other
        )

    def _is_own_part(self, one: Identity) -> bool:
        """Whether it is an attribute that objects are given what is made for them; or what a function makes
        in each call, and gives one object, or is one's own ``__init__``."""
        if len(one) != 3:
            return False
        program, (kind, owner, name) = self.program, one
        name = name.partition(_BY)[0].partition(_AT)[0]
        if kind == "attribute":
            family = program.family(owner)
            return all(
                isinstance(made.value, ir.Call)
                or (
                    isinstance(made.value, ir.Name)
                    and program.owner(made.value.id, made.function) == made.function
                    and self._is_own_part(("variable", made.function, made.value.id))
                )
                or family.isdisjoint(
                    program.instance_classes(holder, made.function) or family
                )
                for holder, made in program.attribute_targets.get(name, ())
            )
        if kind != "variable" or ir.is_top(owner) or program.is_param(owner, name):
            return False
        given = program.definitions(owner, name)
        if not all(isinstance(d.value, ir.Call) and d.function == owner for d in given):
            return False
        if program.functions[owner].name == "__init__":
            return True
        uses = [
            stmt
            for function, stmt in program.mentioning(name)
            if program.owner(name, function) == owner
            for inner in parts_of(stmt)
            if inner == ir.Name(name) and inner not in stmt.targets
        ]
        return (
            len(given) == len(uses) == 1
            and not any(
                isinstance(part, (ir.Comprehension, ir.Deferred))
                for part in parts_of(uses[0])
            )
            and not any(
                outer.kind in ("for", "while")
                for outer in program.control(owner).around(uses[0].path)
            )
        )

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
            given = self._of_calls(call, function, depth)
            if given is not None and given.complete and given.all:
                return given
            objects = self._named_objects(func.value, function, stmt)
            held = self._of_own(objects, func.attr, depth) or of_modules(objects)
            own = any(arg.name == "recurse" for arg in call.args) or (
                func.attr == "parameters" and call.args
            )
            return as_parts(held, None) if own else held
        if isinstance(func, ir.Attr) and func.attr in ("values", "items"):
            return self._of(func.value, function, stmt, depth + 1)
        group = call.argument(0, "params") if origin == "builtins.dict" else None
        if group is not None:
            return self._of(group, function, stmt, depth + 1)
        if origin == "builtins.filter" and len(call.args) == 2:
            held = self._of(call.args[1].value, function, stmt, depth + 1)
            test = call.args[0].value
            if isinstance(test, ir.Deferred):
                return chosen_by(held, [test_of(test.body)], (test.body,))
            return as_parts(held, None)
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
                if origin == "builtins.zip" and len(known) < len(lists):
                    # The other list may end before.
                    return as_parts(held, None)
                return held
            held = self._joined(values, function, stmt, depth)
            return as_parts(held, None) if origin == "builtins.next" else held
        given = self._of_calls(call, function, depth)
        if given is not None:
            return given
        held = Held(complete=False)
        if isinstance(func, ir.Attr) and origin is None:
            # Of who knows what: it may be any method of that name that its file comes by.
            held.twice = any(
                self._of(returned.value, caller, returned, depth + 1).twice
                for name in self._named_methods(func.attr, function)
                for caller, returned in self._returned(name)
                if returned.value is not None
            )
        return held

    def _of_calls(self, call: ir.Call, function: str, depth: int) -> Held | None:
        """What the functions of the program give that a call may come to; None where it comes to none."""
        if not self.program.callees(call, function):
            return None
        found: dict[str, list[Held]] = {}
        outer = self._way
        try:
            for site in self.program.call_sites_of(call, function):
                # What this call gives to the function, not what others do.
                self._way = {**outer, site.callee: site}
                given = self._given_by(site.callee, depth)
                found.setdefault(site.callee, []).append(given)
        finally:
            self._way = outer
        return self._of_either({c: one_of(several) for c, several in found.items()})

    def _of_own(
        self, identities: Collection[Identity], method: str, depth: int
    ) -> Held | None:
        """What a method gives that a plain class, or its subclasses, have."""
        program = self.program
        found: dict[str, Held] = {}
        for one in identities:
            if one[0] != "self" or len(one) > 2 or program.external_bases(one[1]):
                return None
            for name in program.methods(one[1], method, overridden=True):
                found[name] = self._given_by(name, depth)
        return self._of_either(found) if found else None

    def _given_by(self, function: str, depth: int) -> Held:
        """What a function gives."""
        if self.program.functions[function].is_generator:
            return self._of_generator(function, depth)
        found = [
            self._of(returned.value, caller, returned, depth + 1)
            for caller, returned in self._returned(function)
            if returned.value is not None
        ]
        return one_of([o for o in found if o.all or o.groups or not o.complete])

    def _of_either(self, found: Mapping[str, Held]) -> Held:
        """What one of some functions gives: of methods, each what objects of its class have."""
        program = self.program
        held = one_of(list(found.values()))
        for one in held.all - held.whole:
            if one[0] == "attribute" and all(
                holds_all(given, one)
                or (
                    (own := program.self_class(function)) is not None
                    and own[1] not in program.family(one[1])
                )
                for function, given in found.items()
            ):
                held.whole.add(one)
                del held.parts[one]
        return held

    def _of_generator(self, function: str, depth: int) -> Held:
        """What a generator hands out: all that it comes to."""
        held = Held()
        facts = self.program.functions[function]
        ended = ir.Stmt("return", (*facts.path, ("body", len(facts.body))), 0, 0, 0)
        for stmt in self.program.statements(function):
            for inner in parts_of(stmt):
                match inner:
                    case ir.Suspend(kind=kind, value=value) if (
                        kind != "await" and value
                    ):
                        one = self._of(value, function, stmt, depth + 1)
                        one = self._as_added(one, function, stmt, ended)
                        one.twice |= any(
                            within(a, b) or within(b, a)
                            for a in one.whole
                            for b in held.whole
                        )
                        held.join(one)
                        held.twice |= self._is_repeated(function, stmt)
        return held

    def _is_repeated(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement takes the parameters of each module that a loop goes through, where those of
        its parts are among them, and come again: ``for m in net.modules(): found += m.parameters()``.
        """
        around = list(self.program.control(function).around(stmt.path))
        taken = [stmt, *(outer for outer in around if outer.kind == "for")]
        for outer in around:
            if outer.kind != "for" or outer.value is None:
                continue
            if not _calls(outer.value, _EACH_MODULE, None):
                continue
            each = {name for one in outer.targets for name in ir.names_in(one)}
            if any(
                _calls(value, _PARAMETERS, each)
                for one in taken
                if one is not outer
                for value in one.exprs
            ) and not any(
                _tells_apart(s.value)
                for s in ir.statements((outer,))
                if s.kind == "if" and s.value is not None
            ):
                return True
        return False

    def _of_comprehension(
        self, expr: ir.Comprehension, function: str, stmt: ir.Stmt, depth: int
    ) -> Held:
        held = Held()
        targets = {name for target in expr.targets for name in ir.names_in(target)}
        element = expr.elements[-1]
        if isinstance(element, ir.Item) and not ir.names_in(element.value) & targets:
            # `[by_name[n] for n in names]`: what is chosen from, not what chooses.
            named = self._of(element.value, function, stmt, depth + 1)
            return as_parts(named, expr.iterables)
        for iterable in expr.iterables:
            own = any(
                isinstance(inner, ir.Name) and inner.id in targets
                for inner in ir.walk(iterable)
            )
            if not own:
                held.join(self._of(iterable, function, stmt, depth + 1))
        held = chosen_by(held, map(test_of, expr.conditions), expr.conditions)
        held.twice |= (
            any(_calls(one, _EACH_MODULE, None) for one in expr.iterables)
            and any(
                _calls(one, _PARAMETERS, targets)
                for one in (*expr.iterables, *expr.elements)
            )
            and not any(map(_tells_apart, expr.conditions))
        )
        return held

    def _of_name(self, expr: ir.Name, function: str, stmt: ir.Stmt, depth: int) -> Held:
        program = self.program
        for inner in parts_of(stmt):
            if isinstance(inner, ir.Comprehension) and any(
                name == expr for t in inner.targets for name in ir.walk(t)
            ):
                for target, iterable in zip(
                    inner.targets, inner.iterables, strict=True
                ):
                    # p for group in optimizer.param_groups for p in group["params"]
                    if target == expr:
                        drawn = self._of(iterable, function, stmt, depth + 1)
                        if drawn.groups:
                            tests = map(test_of, inner.conditions)
                            return chosen_by(drawn, tests, inner.conditions)
                return self._joined(inner.iterables, function, stmt, depth)
        owner = program.owner(expr.id, function)
        if owner is None:
            return Held(complete=False)
        busy = (owner, expr.id, stmt.path if owner == function else ())
        if busy in self._busy:
            return Held()
        self._busy.add(busy)
        try:
            return self._of_variable(expr, owner, function, stmt, depth)
        finally:
            self._busy.discard(busy)

    def _of_variable(
        self, expr: ir.Name, owner: str, function: str, at: ir.Stmt, depth: int
    ) -> Held:
        program = self.program
        held = Held()
        several: list[Held] = []
        known = False
        here = State(expr, function, at, (), self._context)
        definitions, given = self.points_to.visible(owner, expr.id, here)
        for definition in definitions:
            stmt = definition.stmt
            value = definition.value if definition.index is None else None
            listed = self._listed(definition, depth)
            if listed is not None:
                known = True
                several.append(listed)
                continue
            if stmt.kind in ("for", "augassign"):
                value = stmt.value
            if value is None or value == ir.Const(None):
                continue
            if self._is_wrapped(value, definition.function) and self._is_module(
                expr, definition.function
            ):
                continue
            known = True
            one = self._of(value, definition.function, stmt, depth + 1)
            if stmt.kind == "for" and at.path[: len(stmt.path)] != stmt.path:
                # The last one, behind its loop.
                one = as_parts(one, None)
            if stmt.kind == "augassign":
                held.join(self._as_added(one, definition.function, stmt, at))
                held.twice |= self._is_repeated(definition.function, stmt)
            elif one.all or one.groups or not one.complete:
                several.append(one)
        if given and self.program.is_param(owner, expr.id):
            args = Held()
            for site in self._sites(owner):
                value = program.argument_at(site, expr.id)
                if value is not None:
                    known = True
                    args.join(self._of(value, site.caller, site.stmt, depth + 1))
            if args.all or args.groups or not args.complete:
                several.append(args)
        held.join(either(several))
        for qualname, stmt, call in self._additions:
            if (
                isinstance(call.func, ir.Attr)
                and call.args
                and program.owner(expr.id, qualname) == owner
            ):
                for test in receives(call.func.value, expr, (qualname, stmt.path)):
                    known = True
                    one = self._of(call.args[-1].value, qualname, stmt, depth + 1)
                    held.join(self._as_added(one, qualname, stmt, at, test))
                    held.twice |= self._is_repeated(qualname, stmt)
        if self._loses_some(expr, owner):
            held = as_parts(held, None)
        if known and (held.all or held.groups):
            return held
        return of_modules(self._named_objects(expr, function, at))

    def _is_wrapped(self, value: ir.Expr, function: str) -> bool:
        """``net = DataParallel(net)``: a call that a library answers, or a class."""
        return isinstance(value, ir.Call) and not any(
            ref.kind == "function" for ref in self.program.resolve(value.func, function)
        )

    def _is_self(self, expr: ir.Expr, function: str) -> bool:
        own = self.program.self_class(function)
        return own is not None and expr == ir.Name(own[0])

    def _of_attribute(self, expr: ir.Attr, function: str, depth: int) -> Held | None:
        """What a list of parameters holds that is made once and kept as an attribute."""
        made = self.program.definitions_of(expr, function)
        if len(made) != 1 or made[0].index is not None or made[0].value is None:
            return None
        value, maker = made[0].value, made[0].function
        given: list[ir.Expr | None] = [value]
        sites, own = self._sites(maker), self.program.self_class(maker)
        if len(sites) == 1 and own and not is_copied(self.program, own[1]):
            given += (
                self.program.argument_at(sites[0], inner.id)
                for inner in ir.walk(value)
                if isinstance(inner, ir.Name)
            )
        is_list = isinstance(value, (ir.Display, ir.Comprehension)) or any(
            isinstance(inner, ir.Attr)
            and inner.attr in ("parameters", "named_parameters")
            for one in given
            if isinstance(one, (ir.Call, ir.Operation))
            for inner in ir.walk(one)
        )
        changed = any(
            isinstance(call.func, ir.Attr)
            and isinstance(call.func.value, ir.Attr)
            and call.func.value.attr == expr.attr
            for _, _, call in (*self._additions, *self._removals)
        )
        if not is_list or changed:
            return None
        held = self._of(value, made[0].function, made[0].stmt, depth + 1)
        return held if held.complete and held.all else None

    def _listed(self, definition: Definition, depth: int) -> Held | None:
        """What a call returns as one of several lists of parameters; None of anything else."""
        call, index, function = definition.value, definition.index, definition.function
        if index is None or not isinstance(call, ir.Call):
            return None
        several: list[Held] = []
        outer = self._way
        try:
            for site in self.program.call_sites_of(call, function):
                self._way = {**outer, site.callee: site}
                for callee, returned in self._returned(site.callee):
                    assert returned.value is not None
                    elements = self.optimizers.collections.elements
                    item = elements(returned.value, callee).get(index)
                    if item is None or not self._is_list(item, callee):
                        return None
                    several.append(self._of(item, callee, returned, depth + 1))
        finally:
            self._way = outer
        held = one_of(several)
        return held if held.all else None

    def _is_list(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is a list of parameters that its function makes."""
        if not isinstance(expr, ir.Name):
            return isinstance(expr, (ir.Display, ir.Comprehension)) or (
                isinstance(expr, ir.Call) and ir.last_of(expr.func) in _PARAMETERS
            )
        found = self.program.definitions(function, expr.id)
        return bool(found) and all(
            isinstance(d.value, (ir.Display, ir.Comprehension))
            and d.index is None
            and d.function == function
            for d in found
        )

    def _as_added(
        self,
        held: Held,
        function: str,
        stmt: ir.Stmt,
        at: ir.Stmt,
        test: Test = ALWAYS,
    ) -> Held:
        """What is added to a list by a statement that may not run, or not for all parameters."""
        tests, asked = [test], []
        for outer in self.program.statements(function):
            size = len(outer.path)
            inside = len(stmt.path) > size and stmt.path[:size] == outer.path
            if outer.kind == "if" and _skips(outer, stmt):
                inside = False
            elif (
                outer.kind not in ("if", "while", "try", "trystar", "match")
                or not inside
                or at.path[:size] == outer.path
            ):
                continue
            if outer.kind != "if" or outer.value is None:
                return as_parts(held, None)
            if inside and self._asks_whether_there(outer, stmt, held, function):
                continue
            asked.append(outer.value)
            # The same words ask something else in another statement, or another round.
            test = test_of(outer.value, (function, outer.path))
            runs = inside and stmt.path[size][0] == "body"
            tests.append(test if runs else Test("not", (test,)))
        return chosen_by(held, tests, asked)

    def _asks_whether_there(
        self, outer: ir.Stmt, stmt: ir.Stmt, held: Held, function: str
    ) -> bool:
        """Whether a statement is run where its object has what it adds, which it has got when the optimizer
        is made: ``if self.head is not None:``, or by the test under which ``self.head`` is made.
        """
        own = self.program.self_class(function)
        if own is None or stmt.path[len(outer.path)][0] != "body":
            return False
        return bool(held.all) and all(
            one[0] == "attribute"
            and len(one) == 3
            and self._is_made_by(outer.value, ir.Attr(ir.Name(own[0]), one[2]), own[1])
            for one in held.all
        )

    def _is_made_by(self, test: ir.Expr | None, made: ir.Attr, class_name: str) -> bool:
        program = self.program
        given = [
            d
            for d in program.attribute_definitions(class_name, made.attr)
            if d.value != ir.Const(None)
        ]
        if not given or not all(
            is_over(program, d.function, d.stmt, Place(birth.function, birth.stmt))
            for d in given
            for birth in self.births
        ):
            return False
        if test in (made, ir.Operation("is not", (made, ir.Const(None)))):
            return True
        if not isinstance(test, ir.Attr) or test.value != made.value:
            return False
        return all(
            program.functions[d.function].name == "__init__"
            for d in program.attribute_definitions(class_name, test.attr)
        ) and all(
            any(
                outer.value == test and d.stmt.path[len(outer.path)][0] == "body"
                for outer in program.control(d.function).around(d.stmt.path)
            )
            for d in given
        )

    def _loses_some(self, expr: ir.Name, owner: str) -> bool:
        """Whether something is taken out of a list."""
        program = self.program
        return any(
            isinstance(call.func, ir.Attr)
            and call.func.value == expr
            and program.owner(expr.id, function) == owner
            for function, _, call in self._removals
        ) or any(
            isinstance(inner, ir.Item)
            and inner.value == expr
            and program.owner(expr.id, function) == owner
            for function, stmt in self.program.deletions
            for inner in stmt.exprs
        )

    def _is_module(self, expr: ir.Expr, function: str) -> bool:
        return any(
            ref.kind == "instance" or ref.name.startswith(("torch.nn.", "torchvision."))
            for ref in self.program.resolve(expr, function)
        )

    # -- identities ---------------------------------------------------------------------------

    def identities(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> frozenset[Identity]:
        """The objects that an expression may be at a statement (None: anywhere in the function); empty
        where that cannot be told."""
        return frozenset(self._named_objects(expr, function, stmt))

    def _named_objects(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None
    ) -> dict[Identity, list[tuple[object, ...]]]:
        """The same, each with the names on the way there, where they are fewest, behind what is written."""
        found: dict[Identity, list[tuple[object, ...]]] = {}
        context = self._context
        path = None if stmt is None else stmt.path
        asked = (expr, function, path, *map(id, context))
        if asked in self._unknown:
            return {}
        for one in self.points_to.of(
            expr, function, stmt, context, same=True, enough=self._is_unknown_object
        ):
            if one.kind == "open" or one.is_none:
                continue
            identity = self._identity(one)
            if identity is None:
                self._unknown.add(asked)
                return {}
            by: list[tuple[object, ...]] = [(function, expr)]
            by += [(to.kind, to.owner, to.name) for to in one.names if not to.depth]
            found[identity] = min(found.get(identity, by), by, key=len)
            # A function that hands it out has names of its own for each that it makes.
            inner = {site.callee for site in one.context}
            names = [bound for bound in one.names if bound.depth == 0]
            outer = [bound for bound in names if bound.owner not in inner]
            self.names.setdefault(identity, set()).update(
                (bound.kind, bound.owner, bound.name) for bound in outer or names
            )
        return found

    def _is_unknown_object(self, one: Object) -> bool:
        return not (one.kind == "open" or one.is_none) and self._identity(one) is None

    @property
    def _context(self) -> Context:
        """The calls of the way that is looked at, outermost first."""
        found: list[CallSite] = []
        left = dict(self._way)
        while left:
            outer = [c for c, site in left.items() if site.caller not in left]
            for callee in outer or list(left):
                found.append(left.pop(callee))
        return tuple(found)

    def _identity(self, one: Object) -> Identity | None:
        """What an object is known by: the name that it is given where it is made, or that place."""
        way: list[str] = []
        for kind, name in one.fields:
            if kind in ("each", "inside"):
                way += ["*"] if kind == "inside" else []
                break
            if kind == "slice" or name is None:
                return None
            if kind == "item":
                way.append(f"[{name!r}]")
            elif name != "module":
                way.append(str(name))
        root = self._root(one)
        way = [*(f"[{key!r}]" for key in one.places), *way]
        return None if root is None else (*root, *way)

    def _root(self, one: Object) -> Identity | None:
        program = self.program
        if one.kind == "instance":
            return "self", one.name
        if one.kind == "external":
            return one.kind, one.name
        bound = one.bound
        if one.kind == "lost" and isinstance(one.expr, ir.Name) and bound is None:
            owner = program.owner(one.expr.id, one.function)
            if owner is None or not self.program.is_param(owner, one.expr.id):
                return None
            return "variable", owner, one.expr.id
        if one.kind not in ("value", "lost") or one.one_of_several:
            return None
        if one.context and (outer := self._result(one)) is not None:
            return self._root(outer)
        if bound is not None and bound.kind == "attribute":
            holder = self.optimizers.contents.holder(bound.owner, bound.name)
            return bound.kind, holder, bound.name
        if bound is None:
            if not isinstance(one.expr, ir.Call):
                return None
            name, at = "", f"{one.expr.line}:{one.expr.column}"
            return "made", one.function, name + _AT + at + self._calls(one)
        name = bound.name
        several = program.definitions(bound.owner, bound.name)
        if len({d.stmt.path for d in several}) > 1:
            name += _AT + _shown(bound.path)
        return bound.kind, bound.owner, name + self._calls(one)

    def _result(self, one: Object) -> Object | None:
        """What a call gives that gives one of several objects, all made by it: whichever it is, from there
        on they are the same."""
        for depth, site in enumerate(one.context):
            if any(
                isinstance(inner, ir.Comprehension) and site.call in ir.walk(inner)
                for inner in parts_of(site.stmt)
            ):
                continue  # It gives several.
            if (one.site, one.context) in self._alternatives(site, one.context[:depth]):
                return one._replace(
                    expr=site.call,
                    function=site.caller,
                    stmt=site.stmt,
                    name="",
                    context=one.context[:depth],
                    bound=self._bound_to(site),
                )
        return None

    def _alternatives(
        self, site: CallSite, context: Context
    ) -> Collection[tuple[object, Context]]:
        """What makes the objects of which a call gives one, whichever it is, with the calls that lead
        there; empty where it gives always the same, or what is not made by it."""
        asked = (site.call, site.caller, site.stmt.path, context)
        if asked not in self._taken:
            at = (site.call, site.caller, site.stmt, context)
            given = [o for o in self.points_to.of(*at, same=True) if not o.is_none]
            values = [o for o in given if o.kind == "value" and not o.fields]
            places = {(o.site, o.context) for o in values}
            is_one_of_them = (
                len(places) > 1
                and len({o.context[: len(context) + 1] for o in values}) == 1
                and all(o.kind == "open" for o in given if o not in values)
                and not any(isinstance(o.expr, ir.Display) for o in values)
            )
            self._taken[asked] = places if is_one_of_them else frozenset()
        return self._taken[asked]

    def _bound_to(self, site: CallSite) -> Bound | None:
        """The variable that is given what a call gives."""
        stmt = site.stmt
        match stmt.targets:
            case (ir.Name(id=name),) if stmt.value is site.call:
                owner = self.program.owner(name, site.caller)
                return (
                    None
                    if owner is None
                    else Bound("variable", owner, name, stmt.path, 0)
                )
        return None

    def _calls(self, one: Object) -> str:
        """The calls that tell an object from others that the same statement makes."""
        return "".join(
            f"{_BY}{site.call.line}:{site.call.column}"
            for site in one.context
            if self.program.functions[site.callee].name != "__init__"
            and self._asked.get(site.callee) is not site
            and any(
                other.call is not site.call and not self._is_of_another_run(other, site)
                for other in self.program.call_sites.get(site.callee, ())
            )
        )

    def _is_of_another_run(self, one: CallSite, beside: CallSite) -> bool:
        """Whether a call stands under the main guard of a script that does not import another one's file."""
        program, file = self.program, ir.file_of(beside.caller)
        return (
            ir.is_top(one.caller)
            and ir.file_of(one.caller)
            not in program.scripts_of((file,), program.around((file,)))
            and any(
                outer.kind == "if" and outer.value and is_main_guard(outer.value)
                for outer in program.control(one.caller).around(one.stmt.path)
            )
        )

    def _returned(self, callee: str) -> Iterator[tuple[str, ir.Stmt]]:
        for stmt in self.program.statements(callee):
            if stmt.kind == "return" and stmt.value not in (None, ir.Const(None)):
                yield callee, stmt


_EACH_MODULE = ("modules", "named_modules")
_PARAMETERS = ("parameters", "named_parameters")


def definitions_of(program: Program, one: Identity) -> list[Definition]:
    """What gives the name that an object goes by its value."""
    kind, owner, *rest = one
    name, _, at = rest[0].partition(_BY)[0].partition(_AT) if rest else ("", "", "")
    if kind == "attribute":
        return program.attribute_definitions(owner, name)
    if kind != "variable":
        return []
    found = program.definitions(owner, name)
    return [d for d in found if not at or _shown(d.stmt.path) == at]


def _in_turn(first: int, second: int, third: int) -> bool:
    """Whether a loop that goes on from the first line meets the second before the third."""
    if first <= third:
        return first < second < third
    return second > first or second < third


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


def _skips(stmt: ir.Stmt, other: ir.Stmt) -> bool:
    """Whether ``if ...: continue`` may skip a statement behind it in its block."""
    parent, (field, index) = stmt.path[:-1], stmt.path[-1]
    size = len(parent)
    return (
        any(inner.kind == "continue" for b in stmt.blocks for inner in b.body)
        and len(other.path) > size
        and other.path[:size] == parent
        and other.path[size][0] == field
        and other.path[size][1] > index
    )


def _shown(path: ir.Path) -> str:
    return ".".join(f"{field}{index}" for field, index in path)


def _calls(expr: ir.Expr, methods: Collection[str], of: Collection[str] | None) -> bool:
    """Whether an expression calls one of some methods, of a variable or what is taken out of it, and not
    for a module's own alone."""
    return any(
        isinstance(call.func, ir.Attr)
        and call.func.attr in methods
        and (of is None or bool(ir.names_in(call.func.value) & set(of)))
        and not any(arg.value == ir.Const(False) for arg in call.args)
        for call in ir.calls_in(expr)
    )


def _tells_apart(test: ir.Expr) -> bool:
    """Whether a test asks of what kind a module is, or whether something is there already."""
    return any(
        (isinstance(inner, ir.Operation) and inner.op in ("in", "not in"))
        or (isinstance(inner, ir.Call) and inner.func == ir.Name("isinstance"))
        for inner in ir.walk(test)
    )
