"""Which optimizers step on the gradients of which ``backward()``, and which of them share a scaler.

Gradients of a loss may reach the parameters of every optimizer, and stay there until they are dropped:
an optimizer steps on those that are left. One ``backward()`` can be scaled by one scaler only, so
optimizers that step on the same one share theirs; all others have one each, and are never in each
other's way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from amp_migrate.analysis.objects.collections import Turn
from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.paths.events import Event, Events
from amp_migrate.analysis.paths.identity import Identities, order
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.paths.walk import Frames, Site, State, Walk
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

Scaler = frozenset[Slot]
"""A scaler is known by the optimizers that it steps."""

_MOST_CONDITIONS = 16

_MOST_CALLS, _MOST_CALLS_OF_ONE = 20_000, 5_000
_MOST_PAIRS = 4_000
"""Of ways and optimizers: at each step all of them are looked through."""

_Held = tuple[int, int]
"""Two sets of (optimizer, way to a backward), a bit each: the gradients that may wait for a step, and
those that wait in any case."""


class Association(Walk[_Held]):
    """Walks a program and notes what its optimizers step on."""

    def __init__(
        self,
        program: Program,
        events: Events,
        identities: Identities,
        ownership: Ownership,
        backwards: Collection[Site],
        by_site: bool = False,
        live: Live | None = None,
        files: Collection[str] | None = None,
    ) -> None:
        """``by_site``: a backward is known by its place, whatever the way to it."""
        super().__init__(program, events, live=live, files=files)
        self.by_site = by_site
        self._told: dict[str, bool] = {}
        self._walked_for: dict[tuple[Slot, ...], dict[tuple[object, ...], Any]] = {}
        self._bits: dict[Slot, dict[Frames, int]] = {}
        self._calls = self._pairs = 0
        self.exhausted: dict[str, None] = {}
        """The roots whose ways are not all followed: there are too many of them, or of those before."""
        self._root = ""
        self._of_one: dict[Slot, int] = {}
        self.sure: dict[tuple[Site, Slot], set[Frames]] = {}
        """The backwards whose gradients a step finds in any case: each the end of its ways."""
        self.identities = identities
        self.ownership = ownership
        self.backwards = backwards
        self.uses: dict[Slot, set[Frames]] = {}
        self.ways: dict[Frames, None] = {}
        """The ways to a backward that were met."""
        self._hungry: dict[Slot, set[str]] = {}
        """The functions in which an optimizer may step on what was there before the way began."""
        self._optimizers: tuple[Slot, ...] = ()

    def _start(self, root: str) -> _Held:
        steps = self.events.steps(root)
        own = {one for slot in steps for one in self.identities.of_slot(slot)}
        found = optimizers_in(self.identities, root)
        # Gradients that nothing steps on here are no matter here.
        self._optimizers = tuple(
            one for one in found if one in own or one.owner == root
        )
        self._walked = self._walked_for.setdefault(self._optimizers, {})
        self._root = root
        return sum(self._bit(one, ()) for one in self._optimizers), 0

    def run_all(self, roots: Collection[str]) -> None:
        """Walk calls of all roots, which somebody unseen may make in any order."""
        for root in roots:
            self.run(root)
        for one, functions in self._hungry.items():
            leading = {
                f: self._leading(roots, f) for f in functions if not self._fills(f)
            }
            for way in self.ways:
                before = self._leading(roots, way[-1][0])
                if any(
                    _may_follow(self.program, first, second)
                    for second in set().union(*leading.values())
                    for first in before
                ):
                    self.uses.setdefault(one, set()).add(way)

    def _leading(self, roots: Collection[str], function: str) -> list[str]:
        return [root for root in roots if self.events.leads_to(root, {function})]

    def _is_exhausted(self) -> bool:
        # A lone optimizer steps on all there is.
        most = _MOST_CALLS if len(self.identities.all) > 1 else _MOST_CALLS_OF_ONE
        if self._calls > most or self._pairs > _MOST_PAIRS:
            self.exhausted[self._root] = None
        return self._root in self.exhausted

    @cached_property
    def _concerned(self) -> frozenset[str]:
        """The functions that have a part in what these optimizers step on."""
        own = {function for function, _ in self.backwards}
        return frozenset(own) | {
            function
            for function, event in self.events.of_gradients
            if event.slot is None
            or self.identities.of_slot(event.slot) & set(self.identities.all)
        }

    def _call(self, event: Event, state: State[_Held]) -> set[State[_Held]]:
        if not any(self.events.leads_to(c, self._concerned) for c in event.callees):
            return {state}
        self._calls += 1
        return {state} if self._is_exhausted() else super()._call(event, state)

    def _bit(self, one: Slot, way: Frames) -> int:
        bits = self._bits.setdefault(one, {})
        if way not in bits:
            bits[way] = 1 << self._pairs
            self._pairs += 1
            self._of_one[one] = self._of_one.get(one, 0) | bits[way]
        return bits[way]

    def _joined(self, states: set[State[_Held]]) -> set[State[_Held]]:
        merged: dict[frozenset[tuple[str, ir.Expr, bool]], _Held] = {}
        several = len({state.known for state in states}) > _MOST_CONDITIONS
        for state in states:
            # What is known rules ways out: to know less is safe.
            known = frozenset() if several else state.known
            may, must = merged.get(known, (0, -1))
            merged[known] = (may | state.held[0], must & state.held[1])
        return {State(held, known) for known, held in merged.items()}

    def _way_to(self, callee: str) -> Frames:
        if self.by_site and not self._is_told_by_calls(callee):
            return ()
        return tuple(self._frames)

    def _is_told_by_calls(self, function: str) -> bool:
        """Whether which optimizers a function steps or clears depends on the way to it."""
        if function not in self._told:
            called = self.events.called_from(function)
            self._told[function] = any(
                event.slot is not None and len(self._may_be(event.slot)) > 1
                for one in called
                if self._can_run(one)
                for _, event in self.events.direct(one)
            )
        return self._told[function]

    def _may_be(self, slot: Slot) -> list[Slot]:
        """The optimizers that a slot may hold where these files run."""
        return [
            one for one in self.identities.of_slot(slot) if self._is_near(one.owner)
        ]

    def _goes_through(self, function: str, stmt: ir.Stmt) -> bool:
        return goes_through(self.events, self.identities, function, stmt)

    @cached_property
    def _own(self) -> dict[Site, list[Slot]]:
        """Where a function makes an optimizer of nothing but what it makes itself: no gradients yet."""
        found: dict[Site, list[Slot]] = {}
        for one in self.identities.all:
            for coverage in self.ownership.coverages((one,)):
                for birth in coverage.births:
                    inside = not ir.is_top(birth.function) and all(
                        kind in ("variable", "made") and owner == birth.function
                        for kind, owner, *_ in coverage.held.all
                    )
                    if inside and coverage.held.complete and coverage.held.all:
                        found.setdefault((birth.function, birth.path), []).append(one)
        return found

    def _event(
        self, event: Event, state: State[_Held], function: str, stmt: ir.Stmt
    ) -> State[_Held]:
        may, must = state.held
        if event.kind == "birth":
            for one in self._own.get((function, stmt.path), ()):
                may &= ~self._bit(one, ())
        elif event.kind == "backward" and (function, stmt.path) in self.backwards:
            way = tuple(self._frames[-1:]) if self.by_site else self._way
            self.ways[way] = None
            for one in self._optimizers:
                may |= self._bit(one, way)
                must |= self._bit(one, way)
        elif event.kind == "step" and event.slot is not None:
            for one in self.identities.on_way(event.slot, self._way):
                found = set(self._ways_in(may, one))
                if () in found:
                    self._hungry.setdefault(one, set()).add(function)
                self.uses.setdefault(one, set()).update(found - {()})
                sure = {way[-1:] for way in self._ways_in(must, one)}
                step = (function, stmt.path), one
                self.sure[step] = self.sure.get(step, sure) & sure
                may &= ~self._of_one.get(one, 0)
                must &= ~self._of_one.get(one, 0)
        elif event.kind == "zero":
            for one in self.ownership.cleared(event, function, stmt, self._way):
                may &= ~self._of_one.get(one, 0)
                must &= ~self._of_one.get(one, 0)
        return State((may, must), state.known)

    def _fills(self, function: str) -> bool:
        """Whether a function gives each parameter in turn a gradient of its own: ``p.grad = g``."""
        control = self.program.control(function)
        return any(
            stmt.kind == "assign"
            and any(isinstance(t, ir.Attr) and t.attr == "grad" for t in stmt.targets)
            and any(
                ir.method_of(call) == "parameters"
                for around in control.around(stmt.path)
                if around.kind == "for" and around.path == stmt.path[:-1]
                for call in calls_of(around)
            )
            for stmt in self.program.statements(function)
        )

    def _ways_in(self, held: int, one: Slot) -> Iterator[Frames]:
        if held & self._of_one.get(one, 0):
            for way, bit in self._bits[one].items():
                if held & bit:
                    yield way


def _may_follow(program: Program, root: str, other: str) -> bool:
    """Whether one run may call a root, and another, or the same again, later."""
    if root == other:
        return not ir.is_top(root)
    return program.may_run_together(ir.file_of(root), ir.file_of(other))


def goes_through(
    events: Events, identities: Identities, function: str, stmt: ir.Stmt
) -> bool:
    """Whether a ``for`` only steps, clears or looks at each of some optimizers.

    It does not compute anything for them: all are in the same state before and behind it.
    """
    slots = [
        Slot("variable", function, name.id)
        for target in stmt.targets
        for name in ir.walk(target)
        if isinstance(name, ir.Name)
    ]
    turns = {Turn(slot.owner, slot.name) for slot in slots}
    by_key = any(
        event.slot is not None and event.slot.takes_turns and event.slot.turn in turns
        for inner in ir.statements((stmt,))
        for event in events.of(function, inner)
    )
    return (
        (by_key or any(map(identities.is_each, slots)))
        and is_straight(events, function, stmt)
        and not _looks_back(events, function, stmt)
        and not any(
            event.kind == "backward"
            or any("backward" in events.kinds(callee) for callee in event.callees)
            for inner in ir.statements((stmt,))
            for event in events.of(function, inner)
        )
    )


def is_straight(events: Events, function: str, loop: ir.Stmt) -> bool:
    """Whether every turn of a loop does all that the loop does with optimizers."""
    return len(loop.blocks) == 1 and all(
        _is_plain(events, function, stmt) for stmt in loop.blocks[0].body
    )


def _is_plain(events: Events, function: str, stmt: ir.Stmt) -> bool:
    """Whether a statement goes on to the next one, and does nothing with optimizers under a condition."""
    inside = [one for block in stmt.blocks for one in ir.statements(block.body)]
    jumps = {one.kind for one in (stmt, *inside)} & _JUMPS
    if stmt.kind in ("for", "while"):
        jumps -= {"continue", "break"}
    return not jumps and not any(
        _does(events, event) & {"step", "zero"}
        for one in inside
        for event in events.of(function, one)
    )


def _looks_back(events: Events, function: str, loop: ir.Stmt) -> bool:
    """Whether gradients are touched behind the step of a turn: those may be of the turns to come."""
    stepped = False
    for stmt in ir.statements(loop.blocks[0].body):
        for event in events.of(function, stmt):
            does = _does(events, event)
            if stepped and "access" in does:
                return True
            stepped = stepped or "step" in does
    return False


def _does(events: Events, event: Event) -> frozenset[str]:
    if not event.callees:
        return frozenset((event.kind,))
    return frozenset().union(*map(events.kinds, event.callees))


_JUMPS = frozenset("match continue break return raise functiondef".split())


def optimizers_in(identities: Identities, root: str) -> tuple[Slot, ...]:
    """The optimizers that a walk from ``root`` may meet: all, and those that it is given."""
    params = identities.program.functions[root].params
    given = (Slot("variable", root, param.name) for param in params)
    own = [slot for slot in given if len(identities.of_slot(slot)) > 1]
    return (*identities.all, *own)


class Scalers:
    """The scalers of some training loops."""

    def __init__(
        self,
        identities: Identities,
        uses: dict[Slot, set[Frames]],
        ways: Iterable[Frames],
        sure: Mapping[tuple[Site, Slot], set[Frames]] | None = None,
    ) -> None:
        """``sure``: the ends of the ways to the backwards whose gradients a step finds in any case."""
        self.identities = identities
        self.sure = sure or {}
        self._of: dict[Slot, Scaler] = {}
        for one in sorted(uses, key=order):
            self._of[one] = frozenset((one,))
        for one in self._of:
            for other in self._of:
                if uses[one] & uses[other]:
                    both = self._of[one] | self._of[other]
                    for member in both:
                        self._of[member] = both
        self._of_way: dict[Frames, Scaler] = {
            way: self._of[one] for one in self._of for way in uses[one]
        }
        self.ways = tuple(ways)
        self._common: Scaler | None = None

    @classmethod
    def of_one(
        cls, identities: Identities, one: Slot, ways: Iterable[Frames]
    ) -> Scalers:
        """The scaler of a lone optimizer, which is the one for all there is."""
        ways = tuple(ways)
        return cls(identities, {one: set(ways)}, ways)

    @classmethod
    def together(cls, identities: Identities, ways: Iterable[Frames]) -> Scalers:
        """No scalers, but what all optimizers have in common in the place of one."""
        made = cls(identities, {}, ways)
        made._common = frozenset(identities.all)
        return made

    @property
    def all(self) -> frozenset[Scaler]:
        """Every scaler."""
        return frozenset(self._of.values())

    def of_optimizer(self, one: Slot) -> Scaler:
        """The scaler that steps an optimizer."""
        return self._common or self._of.get(one, frozenset((one,)))

    def of_way(self, way: Frames) -> Scaler | None:
        """The scaler that a backward is scaled by; None where no optimizer steps on it."""
        if self._common is not None:
            return self._common
        if way in self._of_way:
            return self._of_way[way]
        # On another way to the same place somebody does.
        others = {s for w, s in self._of_way.items() if w[-1] == way[-1]}
        return others.pop() if len(others) == 1 else None

    def of_slot(self, slot: Slot) -> frozenset[Scaler]:
        """The scalers that may belong to what a slot holds."""
        return frozenset(map(self.of_optimizer, self.identities.of_slot(slot)))
