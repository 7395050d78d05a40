"""Which optimizers step on the gradients of which ``backward()``, and which of them share a scaler.

Gradients of a loss may reach the parameters of every optimizer, and stay there until they are dropped:
an optimizer steps on those that are left. One ``backward()`` can be scaled by one scaler only, so
optimizers that step on the same one share theirs; all others have one each, and are never in each
other's way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from amp_migrate.facts import ir
from amp_migrate.plan.events import Event, Events
from amp_migrate.plan.identity import Identities, order
from amp_migrate.plan.ownership import Ownership
from amp_migrate.plan.walk import Frames, Site, State, Walk
from amp_migrate.project.link import Program
from amp_migrate.project.optimizers import Slot

Scaler = frozenset[Slot]
"""A scaler is known by the optimizers that it steps."""

_Held = frozenset[tuple[Slot, Frames]]
"""(optimizer, way to a backward) of the gradients that wait for a step."""


class Association(Walk[_Held]):
    """Walks a program and notes what its optimizers step on."""

    def __init__(
        self,
        program: Program,
        events: Events,
        identities: Identities,
        ownership: Ownership,
        backwards: Collection[Site],
    ) -> None:
        super().__init__(program, events)
        self.identities = identities
        self.ownership = ownership
        self.backwards = backwards
        self.uses: dict[Slot, set[Frames]] = {}
        self.ways: dict[Frames, None] = {}
        """The ways to a backward that were met."""
        self._optimizers: tuple[Slot, ...] = ()

    def _start(self, root: str) -> _Held:
        steps = self.events.steps(root)
        own = {one for slot in steps for one in self.identities.of_slot(slot)}
        found = optimizers_in(self.identities, root)
        # Gradients that nothing steps on here are no matter here.
        self._optimizers = tuple(
            one for one in found if one in own or one.owner == root
        )
        return frozenset()

    def _joined(self, states: set[State[_Held]]) -> set[State[_Held]]:
        merged: dict[frozenset[tuple[str, ir.Expr, bool]], _Held] = {}
        for state in states:
            merged[state.known] = merged.get(state.known, frozenset()) | state.held
        return {State(held, known) for known, held in merged.items()}

    def _goes_through(self, function: str, stmt: ir.Stmt) -> bool:
        return goes_through(self.events, self.identities, function, stmt)

    def _event(
        self, event: Event, state: State[_Held], function: str, stmt: ir.Stmt
    ) -> State[_Held]:
        held = state.held
        if event.kind == "backward" and (function, stmt.path) in self.backwards:
            way = tuple(self._frames)
            self.ways[way] = None
            held |= {(one, way) for one in self._optimizers}
        elif event.kind == "step" and event.slot is not None:
            stepping = self.identities.on_way(event.slot, tuple(self._frames))
            for one, way in held:
                if one in stepping:
                    self.uses.setdefault(one, set()).add(way)
            held = frozenset(pair for pair in held if pair[0] not in stepping)
        elif event.kind == "zero":
            dropped = self.ownership.cleared(event, function, stmt, tuple(self._frames))
            held = frozenset(pair for pair in held if pair[0] not in dropped)
        return State(held, state.known)


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
    return (
        any(map(identities.is_each, slots))
        and is_straight(stmt)
        and not any(
            event.kind == "backward"
            or any("backward" in events.kinds(callee) for callee in event.callees)
            for inner in ir.statements((stmt,))
            for event in events.of(function, inner)
        )
    )


def is_straight(loop: ir.Stmt) -> bool:
    """Whether every turn of a loop does all that stands in its body."""
    return len(loop.blocks) == 1 and not any(
        inner.kind in _TURNS_OFF
        for block in loop.blocks
        for inner in ir.statements(block.body)
    )


_TURNS_OFF = frozenset(
    "if for while try trystar match continue break return raise functiondef".split()
)


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
    ) -> None:
        self.identities = identities
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
