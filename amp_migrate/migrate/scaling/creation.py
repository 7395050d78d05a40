"""Where a switch is born: right behind the optimizer, or the first of those that share it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from amp_migrate.analysis.objects.optimizers import Birth, Slot
from amp_migrate.analysis.paths.association import Scalers
from amp_migrate.analysis.paths.identity import order
from amp_migrate.analysis.paths.loops import Blocked, refused
from amp_migrate.analysis.values.device import Decision, Devices, Undecided
from amp_migrate.edit.edits import Edit, Insert
from amp_migrate.migrate.scaling.lives import Lives
from amp_migrate.migrate.scaling.switch_kinds import Carried
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, calls_of, each_call, unpacked
from amp_migrate.program.each import HIDDEN
from amp_migrate.program.link import CallSite, Program

_CHOICES = ("if", "match", "try", "trystar")
"""Statements of which not each branch runs."""


class Traveller(Protocol):
    """What is known of the way of one group's switch, and where its edits go: see `travel.Travel`."""

    program: Program
    devices: Devices
    carried: Carried
    scalers: Scalers
    births: frozenset[Birth]
    born: list[Born]
    names: dict[Slot, str]
    taken: set[str]
    attributes: set[tuple[str, str]]

    @property
    def chosen(self) -> Traveller | None:
        """What carries the dtype that a scaler depends on."""

    def begin_off(self, init: str, slot: Slot) -> None:
        """Give each object a switch that is off, before anything else of it is made."""

    def place(self, function: str, edit: Edit) -> None:
        """Plan an edit of the file that a function stands in."""

    def is_own(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression names one of the group's optimizers, or what holds one."""

    def lend(self, function: str, name: str) -> None:
        """Give a function a switch that all who call it have by a name."""

    def attempt(self) -> AbstractContextManager[None]:
        """Undo what is planned inside where the switch turns out not to reach a place."""

    def refuse_slots(self, slot: Slot) -> None:
        """A class with ``__slots__`` has no room for another attribute."""

    def refuse_variables(self, function: str, birth: ir.Path | None = None) -> None:
        """Where all variables of a function are taken together, no other one may be among them."""


@dataclass(frozen=True, slots=True)
class Born:
    """A birth of the switch, for the explanation of a plan."""

    function: str
    line: int
    code: str


def decided(travel: Traveller, function: str, stmt: ir.Stmt) -> Decision:
    """The condition under which a switch is on that is made behind a statement."""
    decision = travel.devices.decide(function, stmt)
    if isinstance(decision, Undecided) and decision.cpu_only:
        # Not all of the group are: those that are train as before.
        return Decision(decision.beside)
    if isinstance(decision, Undecided):
        raise refused("AMP041", decision.reason, decision.line or stmt.line)
    return decision


def made_inside(travel: Traveller, site: CallSite, given: ir.Expr | None) -> str | None:
    """The switch that a call is given with the optimizer that is made in its argument list, as an
    expression; None where none is."""
    born = [birth for birth in travel.births if birth.given and birth.call is given]
    if not born:
        return None
    line = site.call.line
    decision = decided(travel, site.caller, site.stmt)
    if decision.after is not None:
        reason = "the device is decided after the call that makes the optimizer"
        raise refused("AMP041", reason, line)
    bound = {name for name, _, _ in bindings(site.stmt)}
    if bound & set(re.findall(r"\w+", decision.enabled)):
        reason = "the device is known only after the call that makes the optimizer"
        raise refused("AMP041", reason, line)
    enabled, torch = decision.enabled, travel.devices.torch_names.of(site.caller)
    if travel.chosen is not None:
        enabled = f"{travel.chosen.names[born[0].slot]} is {torch}.float16"
    if travel.carried.makes is not None:
        code = travel.carried.makes(enabled, torch)
        travel.born.append(Born(site.caller, line, code))
        return code
    if site.stmt.kind not in ("expr", "assign", "return"):
        reason = "the optimizer is made in a place where no dtype can be chosen"
        raise refused("AMP010", reason, line)
    # What takes several statements stands before the call.
    name = travel.names[born[0].slot]
    code = travel.carried.made(name, enabled, torch)
    travel.place(site.caller, Insert(site.stmt.path, code, after=False))
    travel.born.append(Born(site.caller, line, code))
    return name


class Births:
    """Plans the births of one group's switches."""

    def __init__(
        self,
        travel: Traveller,
        bare: Collection[tuple[str, ir.Path]] = (),
        optional: Collection[Slot] = (),
        used: Collection[str] = (),
    ) -> None:
        """``bare``: what asks for a switch, and may run without a step behind it. ``optional``: the slots
        of which a test before their step asks whether they hold an optimizer. ``used``: the names
        of other switches in the same files."""
        self.travel = travel
        self.used = used
        self.bare = bare
        self.optional = optional
        self.lives = Lives(travel.program, travel.scalers.ways)
        self._from_the_start: set[Slot] = set()
        """Attributes whose switches the objects get when they are made."""

    def give(self) -> None:
        """Insert the births, each right behind the optimizer's own, or the first of those that share it."""
        by_scope: dict[tuple[str, str, str, str], list[Birth]] = {}
        for birth in sorted(self.travel.births, key=place_of):
            if birth.is_given:
                # With its optimizer, by callers out of sight.
                continue
            if birth.given is not None:
                # With its optimizer's, when the function is given its switch.
                self._refuse_apart(birth)
                continue
            slot = birth.slot
            key = (slot.kind, slot.owner, self.travel.names[slot], birth.function)
            by_scope.setdefault(key, []).append(birth)
        for scope, births in by_scope.items():
            if len({birth.slot for birth in births}) > 1 or not self._is_whole(births):
                beside = [k for k in by_scope if k[:3] == scope[:3]]
                inits = scope[0] == "attribute" and any(_is_init(k[3]) for k in beside)
                everywhere = [b for k in beside for b in by_scope[k]]
                if inits and not _is_init(scope[3]) and self._is_whole(everywhere):
                    # The instance has had it from the start.
                    continue
                whole = self._is_whole(everywhere if inits else births)
                if self.travel.carried.is_scaler and not whole:
                    self._scattered(births[-1].stmt.line)
                self._give_birth_first(births)
                continue
            function, slot = births[0].function, births[0].slot
            self._insert_births(
                function, [(s, slot) for s in self._anchors(function, births)]
            )
        self._give_none()

    def _refuse_apart(self, birth: Birth) -> None:
        """A switch that is made in the argument list of a call is one for what is made there."""
        travel = self.travel
        identities = travel.scalers.identities
        beside = {
            identities.of_birth(other)
            for other in travel.births
            if other.given is not None
            and birth.given is not None
            and other.given.call is birth.given.call
        }
        if not travel.scalers.of_optimizer(identities.of_birth(birth)) <= beside:
            self._scattered(birth.stmt.line)

    def _is_whole(self, births: list[Birth]) -> bool:
        """Whether all optimizers that share a switch are made among some births."""
        identities = self.travel.scalers.identities
        here = {one for birth in births for one in identities.of_slot(birth.slot)}
        return all(
            scaler <= here
            for birth in births
            for scaler in self.travel.scalers.of_slot(birth.slot)
        )

    def _give_birth_first(self, births: list[Birth]) -> None:
        """Make what several optimizers of a scope have in common behind the first of them."""
        function = births[0].function
        for birth in births:
            if birth.is_read and self.travel.carried.is_scaler:
                message = "optimizers that share a scaler come out of a file themselves"
                raise refused("AMP040", message, birth.stmt.line)
        anchors: dict[ir.Path, tuple[ir.Stmt, Slot]] = {}
        for slot in dict.fromkeys(birth.slot for birth in births):
            for stmt in self._anchors(function, [b for b in births if b.slot == slot]):
                anchors.setdefault(stmt.path, (stmt, slot))
        turns: list[list[tuple[ir.Stmt, Slot]]] = []
        for stmt, slot in sorted(anchors.values(), key=lambda found: found[0].line):
            again = bool(turns) and slot in {other for _, other in turns[-1]}
            if turns and not again and _comes_after(stmt.path, turns[-1][0][0].path):
                turns[-1].append((stmt, slot))
                continue
            if self.travel.carried.is_scaler and turns and not again:
                self._scattered(stmt.line)
            turns.append([(stmt, slot)])
        neighbours = self.travel.carried.is_scaler
        self._insert_births(
            function,
            [
                turn[-1 if neighbours and self._are_neighbours(function, turn) else 0]
                for turn in turns
            ],
        )

    def _are_neighbours(self, function: str, turn: list[tuple[ir.Stmt, Slot]]) -> bool:
        """Whether nothing between the first and the last of some births may want the switch."""
        first, last = turn[0][0].path, turn[-1][0].path
        if first[:-1] != last[:-1] or first[-1][0] != last[-1][0]:
            return False
        return not any(
            (ir.method_of(call).endswith(("state_dict", "backward", "step")))
            or self.travel.program.callees(call, function)
            for stmt in ir.statements(self.travel.program.functions[function].body)
            if first < stmt.path < last and stmt.path[: len(first) - 1] == first[:-1]
            if stmt.path not in {made.path for made, _ in turn}
            for call in calls_of(stmt)
        )

    def _scattered(self, line: int) -> None:
        reason = "optimizers that need one scaler are made in different places"
        raise refused("AMP012", reason, line)

    def _anchors(self, function: str, births: list[Birth]) -> list[ir.Stmt]:
        """The statements that births follow: alternatives of one ``if`` share one birth."""
        births = [
            self._behind_branch(function, self._behind_loop(function, birth))
            for birth in births
        ]
        births = sorted(births, key=lambda birth: birth.stmt.line)
        if len(births) == 1:
            return [births[0].stmt]
        scope = self.travel.program.functions[function]
        anchors: dict[ir.Path, ir.Stmt] = {}
        paths = [birth.path for birth in births]
        for birth in births:
            chosen = birth.stmt
            for stmt in ir.statements(scope.body):
                around = stmt.path == birth.path[: len(stmt.path)]
                if not around or stmt.kind not in ("if", "try", "match"):
                    continue
                if stmt.is_elif or stmt.path == birth.path:
                    continue
                inside = [path for path in paths if path[: len(stmt.path)] == stmt.path]
                branches = {path[len(stmt.path)][0] for path in inside}
                if len(inside) > 1 and len(branches) > 1:
                    if self._asks_within(function, stmt):
                        continue
                    chosen = stmt
                    break
            anchors[chosen.path] = chosen
        return list(anchors.values())

    def _behind_loop(self, function: str, birth: Birth) -> Birth:
        """The birth of many, one in each turn of a loop, as one that the loop is."""
        around = self.travel.program.control(function).around(birth.path)
        loops = [stmt for stmt in around if stmt.kind in ("for", "while")]
        if not birth.slot.is_many or not loops:
            return birth
        loop = min(loops, key=lambda stmt: len(stmt.path))
        if self._asks_within(function, loop):
            reason = "the optimizers of a collection are made where they are used"
            raise refused("AMP012", reason, birth.stmt.line)
        return replace(birth, stmt=loop, path=loop.path)

    def _asks_within(self, function: str, outer: ir.Stmt) -> bool:
        """Whether something in a statement trains, or needs the switch otherwise."""
        trains = any(
            (at, path[: len(outer.path)]) == (function, outer.path)
            for way in self.travel.scalers.ways
            for at, path in way
        )
        reads = any(
            (b.function, b.path[: len(outer.path)]) == (function, outer.path)
            for b in self.travel.births
            if b.is_read
        )
        return (
            trains
            or reads
            or any(
                self._needs_switch(call, function) for _, call in each_call((outer,))
            )
        )

    def _behind_branch(self, function: str, birth: Birth) -> Birth:
        """A birth in one branch as one that the whole statement is, where the switch is asked for behind
        it although the branch may not have run."""
        for outer in self.travel.program.control(function).around(birth.path):
            if outer.kind in ("for", "while"):
                break
            branch = birth.path[: len(outer.path)], birth.path[len(outer.path)][0]
            asked = [
                path
                for path in self._asked_for(function, birth, outer)
                if not _is_within(path, *branch)
            ]
            if outer.kind in _CHOICES and asked:
                if not any(asked) and self._is_alone_in_init(function, birth):
                    # Without an optimizer, other methods compute as before.
                    self.travel.begin_off(function, birth.slot)
                    return birth
                if self._asks_within(function, outer):
                    self._begin_off(function, birth)
                    return birth
                birth = replace(birth, stmt=outer, path=outer.path)
        return birth

    def _is_alone_in_init(self, function: str, birth: Birth) -> bool:
        """Whether an object gets an optimizer there when it is made, and nowhere else."""
        made = [other for other in self.travel.births if other.slot == birth.slot]
        return _is_init(function) and len(made) == 1 and not birth.slot.is_many

    def _begin_off(self, function: str, birth: Birth) -> None:
        """A switch that is made in a branch, used there, and asked for behind it, is off before."""
        travel = self.travel
        none = self._none(function, birth.slot)
        if not none or birth.slot.kind != "variable":
            reason = f"{birth.slot.shown} is made in a branch, and its scaler is needed outside, too"
            raise refused("AMP012", reason, birth.stmt.line)
        off = travel.carried.off(travel.devices.torch_names.of(function))
        for stmt in none:
            code = f"{travel.names[birth.slot]} = {off}"
            travel.place(function, Insert(stmt.path, code))

    def _none(self, function: str, slot: Slot) -> list[ir.Stmt]:
        """The statements of a function by which a slot is None."""
        program = self.travel.program
        if slot.kind == "attribute":
            known = program.attribute_definitions(slot.owner, slot.name)
        else:
            known = program.definitions(slot.owner, slot.name)
        return [
            d.stmt
            for d in known
            if d.function == function and d.value == ir.Const(None)
        ]

    def _asked_for(
        self, function: str, birth: Birth, branches: ir.Stmt
    ) -> Iterator[ir.Path]:
        """Where a function asks for a switch, be there an optimizer or none."""
        slot, program = birth.slot, self.travel.program
        for at, path in self.bare:
            if at == function:
                # What is computed before any optimizer is made stays as it is.
                if program.control(at).statements[path].line >= birth.stmt.line:
                    yield path
            elif slot.kind == "attribute":
                own = program.self_class(at)
                if own is not None and own[1] in program.family(slot.owner):
                    yield ()
        none = self._none(function, slot)
        if slot in self.optional:
            # Other methods ask.
            yield from (stmt.path for stmt in none)
        for stmt in program.statements(function) if none else ():
            if stmt.line > branches.end_line and any(
                self.travel.is_own(arg.value, function)
                for call in calls_of(stmt)
                if program.callees(call, function)
                for arg in call.args
            ):
                yield stmt.path

    def _give_none(self) -> None:
        """An attribute that is None at first has a switch that is off."""
        travel = self.travel
        born = {(birth.function, birth.path) for birth in travel.births}
        for slot in self.optional:
            if slot.kind != "attribute" or slot not in travel.names:
                continue
            if slot in self._from_the_start:
                continue
            known = travel.program.attribute_definitions(slot.owner, slot.name)
            made = {birth.function for birth in travel.births if birth.slot == slot}
            for definition in known:
                function, stmt = definition.function, definition.stmt
                own = travel.program.self_class(function)
                if definition.value != ir.Const(None) or own is None:
                    continue
                if function in made or (function, stmt.path) in born:
                    continue
                off = travel.carried.off(travel.devices.torch_names.of(function))
                code = f"{own[0]}.{travel.names[slot]} = {off}"
                travel.place(function, Insert(stmt.path, code))

    def _needs_switch(self, call: ir.Call, function: str) -> bool:
        """Whether a call saves or loads a state, or hands one of the optimizers to a function here."""
        if ir.method_of(call).endswith("state_dict"):
            return True
        return bool(self.travel.program.callees(call, function)) and any(
            self.travel.is_own(arg.value, function) for arg in call.args
        )

    def _insert_births(self, function: str, places: list[tuple[ir.Stmt, Slot]]) -> None:
        """Insert births behind some statements, or before the loops that would only repeat them."""
        given: list[ir.Path] = []
        for stmt, slot in places:
            birth = replace(self._birth_of(slot, function), stmt=stmt, path=stmt.path)
            loop = self._loop_outside(birth)
            if loop is not None:
                if not any(_comes_after(loop.path, path) for path in given) and not (
                    given and self._is_read_before(loop, birth)
                ):
                    self._insert_birth(slot, function, stmt, (function, loop, True))
                    given.append(loop.path)
                # One that is there already goes on.
                continue
            if not self._is_from_the_start(birth) and not self._is_lent(birth):
                self._insert_birth(slot, function, stmt)
            given.append(stmt.path)

    def _is_read_before(self, loop: ir.Stmt, birth: Birth) -> bool:
        """Whether a loop uses what a variable holds before it makes another one: that was made before the
        loop, and so was its switch."""
        return any(
            stmt.value is not None and ir.Name(birth.slot.name) in ir.walk(stmt.value)
            for stmt in ir.statements(loop.blocks[0].body)
            if stmt.line < birth.stmt.line
        )

    def _is_lent(self, birth: Birth) -> bool:
        """Whether a function that makes an optimizer is given the switch by its callers, who call it again
        and again; raises `Blocked` where it has to be and cannot."""
        travel, slot = self.travel, birth.slot
        if (
            not travel.carried.is_scaler
            or (slot.kind, slot.owner, slot.key) != ("variable", birth.function, None)
            or not self.lives.is_made_again(birth)
        ):
            return False
        lent, born, old = False, len(travel.born), travel.names[slot]
        short, name = self.lives.is_short(birth), old
        if old in self.used:
            # Of which one may be at hand where this one is made.
            name = travel.carried.free_name({*travel.taken, *self.used})
        with travel.attempt():
            if travel.chosen is None:
                decision = decided(travel, birth.function, birth.stmt)
                files = None if short else ir.file_of(birth.function)
                self._lend(birth.function, name, decision, frozenset(), files)
                lent = True
                travel.taken.add(name)
                for other, known in travel.names.items():
                    if (other.owner, known) == (slot.owner, old):
                        travel.names[other] = name
        if not lent:
            del travel.born[born:]
            if short:
                name = ir.local_name(birth.function)
                reason = (
                    f"each call of {name}() makes an optimizer for few steps, and its scaler "
                    "would begin anew each time"
                )
                raise refused("AMP012", reason, birth.stmt.line)
        return lent

    def _lend(
        self,
        function: str,
        name: str,
        decision: Decision,
        seen: frozenset[str],
        file: str | None,
    ) -> None:
        """Make a switch where a function is called again and again, before that begins; ``file``: who
        else is called stays as it is."""
        program, lives = self.travel.program, self.lives
        made: dict[str, ir.Stmt | None] = {}
        sites = program.call_sites.get(function, [])
        if function in seen or program.functions[function].is_async or decision.after:
            raise refused("AMP012", "", program.functions[function].line)
        if file and (program.is_public(function) or ir.file_of(function) != file):
            raise refused("AMP012", "", program.functions[function].line)
        for site in sorted(sites, key=lambda site: (site.caller, site.stmt.line)):
            at, loop = site.caller, lives.loop_of_calls(site)
            first = loop or site.stmt
            if at in made:
                # It has one, if it comes to that first.
                known = made[at]
                if known is not None and not _comes_after(first.path, known.path):
                    raise refused("AMP012", "", first.line)
                continue
            there = replace(decision, enabled=self._said_by(site, decision.enabled))
            if loop is None and lives.runs_again(at):
                self._lend(at, name, there, seen | {function}, file)
                made[at] = None
            elif file and ir.file_of(at) != file:
                raise refused("AMP012", "", first.line)
            else:
                made[at] = first
                self._make_before(at, first, name, there)
        self.travel.lend(function, name)

    def _said_by(self, site: CallSite, enabled: str) -> str:
        """A condition as the caller of a function says it; raises `Blocked` where it cannot."""
        program, function = self.travel.program, site.callee
        own = program.functions[function].self_name
        func = site.call.func

        def said(found: re.Match[str]) -> str:
            name = found[0]
            given: ir.Expr | None = None
            if name == own and isinstance(func, ir.Attr):
                given = func.value
            elif program.is_param(function, name):
                given = program.argument_at(site, name)
            elif not program.definitions(function, name) and (
                name == self.travel.devices.torch_names.of(site.caller)
                or ir.file_of(function) == ir.file_of(site.caller)
            ):
                return name
            text = ir.render(given) if isinstance(given, (ir.Name, ir.Attr)) else None
            if text is None:
                raise refused("AMP041", "", site.call.line)
            return text

        return re.sub(r"(?<![\w.\"'])[^\W\d]\w*(?![\"'])", said, enabled)

    def _make_before(
        self, function: str, stmt: ir.Stmt, name: str, decision: Decision
    ) -> None:
        travel = self.travel
        others = [n for n in travel.names.values() if n == name]
        if len(others) > 1 or not self._is_known(decision, function, stmt):
            raise refused("AMP012", "", stmt.line)
        travel.refuse_variables(function, stmt.path)
        torch = travel.devices.torch_names.of(function)
        code = travel.carried.made(name, decision.enabled, torch)
        travel.place(function, Insert(stmt.path, code, after=False))
        travel.born.append(Born(function, stmt.line, code))

    def _is_from_the_start(self, birth: Birth) -> bool:
        """Whether an object has the switch from its start on, whose method may make the optimizer again."""
        slot, program = birth.slot, self.travel.program
        if slot in self._from_the_start:
            return True
        init = program.functions.get(f"{slot.owner}.__init__")
        if slot.kind != "attribute" or slot.key is not None or init is None:
            return False
        if program.is_property(birth.function):
            return False
        if init.qualname == birth.function or not self.lives.is_made_again(birth):
            return False
        makes = program.functions[birth.function].class_name
        for one in program.family(slot.owner):
            begins = program.method(one, "__init__")
            if begins != init.qualname and makes in program.bases(one):
                body = () if begins is None else program.functions[begins].body
                if not any(
                    init.qualname in program.callees(call, begins or "")
                    for stmt in body
                    for call in calls_of(stmt)
                ):
                    # An object that does not begin there.
                    return False
        there = [
            other.stmt
            for other in self.travel.births
            if (other.slot, other.function) == (slot, init.qualname)
        ]
        if there:
            return any(stmt in init.body for stmt in there)
        if init.self_name is None or any(
            stmt.kind == "return" for stmt in ir.statements(init.body)
        ):
            return False
        first = next(
            (s for s in init.body if self._leads_to(init.qualname, s, birth)), None
        )
        place = init.qualname, first or init.body[-1], first is not None
        try:
            self._insert_birth(slot, birth.function, birth.stmt, place)
        except Blocked:
            return False
        self._from_the_start.add(slot)
        return True

    def _refuse_another(self, birth: Birth, decision: Decision) -> None:
        """Raise `Blocked` where the condition beside an optimizer is another one than elsewhere."""
        said = decided(self.travel, birth.function, birth.stmt).enabled
        names = re.findall(r"[^\W\d]\w*", said)
        function = self.travel.program.functions[birth.function]
        if said != decision.enabled and not {*names} & {*function.bound}:
            raise refused("AMP041", "", birth.stmt.line)

    def _leads_to(self, function: str, stmt: ir.Stmt, birth: Birth) -> bool:
        """Whether a statement calls the function that makes an optimizer, or what calls that."""
        program = self.travel.program
        called = (
            c for _, call in each_call((stmt,)) for c in program.callees(call, function)
        )
        return birth.function in program.called_from(called)

    def _loop_outside(self, birth: Birth) -> ir.Stmt | None:
        """The loop before which a switch can be made, where it only would make one again and again."""
        if birth.slot.kind != "variable" or birth.slot.key is not None:
            return None
        loop = self.lives.loop_outside(birth)
        if loop is None:
            return None
        decision = decided(self.travel, birth.function, birth.stmt)
        return loop if self._is_known(decision, birth.function, loop) else None

    def _is_known(self, decision: Decision, function: str, later: ir.Stmt) -> bool:
        """Whether a condition is known before a statement, and the same in all of it."""
        program, control = self.travel.program, self.travel.program.control(function)
        after, size = decision.after, len(later.path)
        if after is not None and after.line >= later.line:
            return False
        bound = (
            ir.render(target)
            for path, stmt in control.statements.items()
            if path[:size] == later.path
            for target, _, _ in unpacked(stmt)
        )
        if any(
            re.search(rf"(?<![\w.]){re.escape(one)}(?!\w)", decision.enabled)
            for one in bound
            if one is not None
        ):
            return False
        for name in re.findall(r"[^\W\d]\w*", decision.enabled):
            before, from_start = control.reaching(name, later.path)
            if program.definitions(function, name) and (not before or from_start):
                return ir.is_top(function) or program.is_param(function, name)
        return True

    def _birth_of(self, slot: Slot, function: str) -> Birth:
        return next(
            b
            for b in sorted(self.travel.births, key=lambda b: b.stmt.line)
            if b.slot == slot and b.function == function
        )

    def _insert_birth(
        self,
        slot: Slot,
        function: str,
        stmt: ir.Stmt,
        place: tuple[str, ir.Stmt, bool] | None = None,
    ) -> None:
        """Insert a birth behind a statement, or in another ``place``: function, statement, whether before
        that."""
        birth = self._birth_of(slot, function)
        if HIDDEN in slot.name:
            reason = "the optimizer is made inside the call of partial()"
            raise refused("AMP010", reason, stmt.line)
        if slot.key is not None and slot.kind == "variable" and slot.owner != function:
            reason = (
                f"the optimizer is made here, and {slot.name}, which holds it, elsewhere: "
                "its scaler has no place there"
            )
            raise refused("AMP012", reason, stmt.line)
        targets = [target for target, _, _ in unpacked(birth.stmt)]
        if slot.kind == "attribute" and self.travel.program.is_property(function):
            function, stmt, itself = self._made_first(slot, function, stmt)
            targets = [ir.Attr(itself, slot.name)]
        home, anchor, before = place or (function, stmt, False)
        if home != function:
            self._refuse_another(birth, decided(self.travel, home, anchor))
            function, stmt = home, anchor
            itself = ir.Name(self.travel.program.functions[home].self_name or "self")
            targets = [ir.Attr(itself, slot.name)]
        call = birth.stmt.value
        if birth.stmt.kind == "expr" and isinstance(call, ir.Call):
            # `opts.append(SGD(...))`
            targets.append(ir.receiver_of(call))
        receiver = next(
            (found for t in targets if (found := _receiver(t, slot)) is not None), None
        )
        decision = decided(self.travel, function, stmt)
        name = self.travel.names[slot]
        holder = None
        if slot.kind == "attribute" or receiver is not None:
            holder = ir.render(receiver) if receiver is not None else None
            if holder is None:
                raise refused(
                    "AMP010",
                    "the object that holds the optimizer is not a plain one",
                    stmt.line,
                )
            if slot.kind == "attribute":
                self.travel.attributes.add((slot.owner, name))
                self.travel.refuse_slots(slot)
            name = f"{holder}.{name}"
        else:
            self.travel.refuse_variables(function, anchor.path)
        enabled, torch = decision.enabled, self.travel.devices.torch_names.of(function)
        if self.travel.chosen is not None:
            dtype = self.travel.chosen.names[slot]
            if holder is not None:
                dtype = f"{holder}.{dtype}"
            enabled = f"{dtype} is {torch}.float16"
        code = self.travel.carried.made(name, enabled, torch)
        if decision.after is not None:
            between = (
                one
                for one in self.travel.program.statements(function)
                if anchor.path < one.path < decision.after.path
                and self._asks_within(function, one)
            )
            asks = anchor if before or birth.is_read else next(between, None)
            if asks is not None and decision.after.line >= asks.line:
                raise refused("AMP041", "the device is decided later", asks.line)
            anchor, before = decision.after, False
        self._declare_global(slot, function)
        self.travel.place(function, Insert(anchor.path, code, not before))
        self.travel.born.append(Born(function, anchor.line, code))

    def _made_first(
        self, slot: Slot, function: str, stmt: ir.Stmt
    ) -> tuple[str, ir.Stmt, ir.Expr]:
        """Where objects are made whose optimizer a property makes when it is asked for first: others may
        ask for the switch before."""
        program = self.travel.program
        family = sorted(program.family(slot.owner))
        own = [
            m for c in family for n, m in program.classes[c].methods if n == "__init__"
        ]
        trains = {at for way in self.travel.scalers.ways for at, _ in way}
        init = program.functions[own[0]] if len(own) == 1 else None
        leaves = init and any(s.kind == "return" for s in ir.statements(init.body))
        if not (init and init.self_name) or leaves or init.qualname in trains:
            reason = f"{slot.shown} is made when it is asked for first"
            raise refused("AMP010", reason, stmt.line)
        none = [s for s in init.body if s in self._none(init.qualname, slot)]
        return init.qualname, (none or init.body)[-1], ir.Name(init.self_name)

    def _declare_global(self, slot: Slot, function: str) -> None:
        """A switch born beside a ``global`` optimizer is global too."""
        if slot.kind != "variable" or slot.owner == function:
            return
        for stmt in ir.statements(self.travel.program.functions[function].body):
            if stmt.kind in ("global", "nonlocal") and slot.name in stmt.names:
                if stmt.kind == "nonlocal":
                    raise refused("AMP035", "a nonlocal optimizer", stmt.line)
                self.travel.place(
                    function, Insert(stmt.path, f"global {self.travel.names[slot]}")
                )
                return


def _receiver(target: ir.Expr, slot: Slot) -> ir.Expr | None:
    """The object whose attribute is given a value, or of whose attribute an element is."""
    found = None
    while isinstance(target, (ir.Item, ir.Attr)):
        if isinstance(target, ir.Attr) and target.attr == slot.name:
            found = target.value
        elif isinstance(target, ir.Attr) and slot.key is None:
            return None
        target = target.value
    # `state.state`: an attribute of what the variable holds.
    own = slot.kind == "variable" and slot.key is not None
    return None if own and target == ir.Name(slot.name) else found


def _is_init(function: str) -> bool:
    return ir.local_name(function).endswith(".__init__")


def place_of(birth: Birth) -> tuple[int | str, ...]:
    """Where an optimizer is made, to put several in order."""
    call = birth.call
    return birth.stmt.line, call.line, call.column, *order(birth.slot)


def _comes_after(path: ir.Path, earlier: ir.Path) -> bool:
    """Whether a statement, or one around it, stands behind another in the same block."""
    at = ir.distance(path, earlier)
    return at is not None and at >= 0


def _is_within(path: ir.Path, outer: ir.Path, branch: str) -> bool:
    """Whether a statement stands in a branch of another one."""
    size = len(outer)
    return len(path) > size and path[:size] == outer and path[size][0] == branch
