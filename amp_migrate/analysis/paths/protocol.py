"""The state machine of gradient scalers, run over all ways through a program before anything is written.

The states are those of `catalogue.protocol`, for each optimizer, together with what its gradients hold at
that moment. A way on which a scaler would raise, or on which scaled and unscaled gradients would mix, is a
fault, and a program with a fault is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.paths.association import (
    Scalers,
    goes_through,
    is_straight,
    optimizers_in,
)
from amp_migrate.analysis.paths.events import Event, Events, innermost_loop
from amp_migrate.analysis.paths.gradients import step_by_hand, taken_from_another
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.paths.walk import Flow, Frames, Site, State, Walk, suspends
from amp_migrate.catalogue.protocol import READY, STEPPED, UNSCALED, after
from amp_migrate.program import ir
from amp_migrate.program.link import Program


class Gradients(Enum):
    """What the parameters' gradients hold."""

    NONE = "none"
    SCALED = "scaled"
    UNSCALED = "unscaled"
    LEFTOVER = "left over from an earlier step"
    OTHER = "of a backward that is left alone"
    FOREIGN = "of no use: another scale is among them"


@dataclass(frozen=True, slots=True)
class Holding:
    """Where one optimizer stands."""

    scaler: str = READY
    gradients: Gradients = Gradients.NONE


Held = tuple[Holding, ...]
"""Where all of a group's optimizers stand, in one order."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a scaler would raise or compute something else."""

    code: str
    function: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Access:
    """Gradients of an optimizer are read or edited while scaled; ``frames`` lead there from the root."""

    frames: Frames
    line: int
    optimizer: Slot


Placed = tuple[str, ir.Path, Slot]
"""A call of a scaler: beside which statement of which function, and for which optimizer there."""


@dataclass(slots=True)
class Placement:
    """The calls of the scalers that a plan inserts."""

    unscale_before: set[Placed] = field(default_factory=set)
    update_after: set[Placed] = field(default_factory=set)
    update_before: set[Placed] = field(default_factory=set)
    guarded: set[Site] = field(default_factory=set)
    none_without_all: dict[Site, tuple[ir.Call, tuple[Slot, ...]]] = field(
        default_factory=dict
    )
    """The clips by one norm of what several optimizers hold, and how those are called there: where it is
    not finite, none keeps gradients."""
    protected: dict[Placed, int] = field(default_factory=dict)
    """The first statement behind an ``unscale_`` and the index of the last one that belongs to the
    step: however they end, ``update`` follows."""


class Protocol(Walk[Held]):
    """One run over a program's ways for the optimizers of a group."""

    def __init__(
        self,
        program: Program,
        events: Events,
        slots: frozenset[Slot],
        backwards: frozenset[Site],
        births: dict[Site, frozenset[Slot]],
        ownership: Ownership,
        scalers: Scalers,
        placement: Placement,
        handlers: bool = True,
        newborn: frozenset[Site] = frozenset(),
        live: Live | None = None,
        files: Collection[str] | None = None,
    ) -> None:
        """``births``: the optimizers that a statement makes anew; ``newborn``: those of the statements
        that make all their parameters anew as well.
        """
        super().__init__(program, events, handlers, live, files)
        self.slots = slots
        self.backwards = backwards
        self.births = births
        self.newborn = newborn
        self.ownership = ownership
        self.scalers = scalers
        self.identities = scalers.identities
        self.placement = placement
        self.faults: dict[Fault, None] = {}
        self.accesses: dict[Access, None] = {}
        self.clips: dict[tuple[Frames, frozenset[Slot]], ir.Call | None] = {}
        """The ways to what touches, before their steps, gradients of several optimizers at once other than
        by hand, and the call that does: what is not finite in those of one may come into those of the
        others."""
        self.by_hand: dict[Site, set[frozenset[Slot]]] = {}
        """Whose gradients a statement reads or edits by itself before their step, each time that it runs."""
        self.leftovers: set[Site] = set()
        """Where gradients are read that a step has used."""
        self.collected: set[Site] = set()
        """Where something is kept of those that a step is about to use."""
        self.used: set[Site] = set()
        """Where something is made of those that a step is about to use."""
        self.unguarded: set[Site] = set()
        """Steps that may find no gradients."""
        self.idle: set[Site] = set()
        """Steps of optimizers whose gradients may be unscaled where they have none."""
        self._vain_zeros: dict[str, int] = {}
        """Lines that clear what no optimizer is known to hold all of, by the functions on the way."""
        self.exits: dict[tuple[Frames, Slot], set[str]] = {}
        """The scaler's states at those ``continue``, ``break`` and ``return`` that leave a step."""
        self._optimizers: tuple[Slot, ...] = ()
        self._training: dict[Site, bool] = {}

    def _fault(self, code: str, function: str, line: int, reason: str) -> None:
        self.faults.setdefault(Fault(code, function, line, reason))

    def _goes_through(self, function: str, stmt: ir.Stmt) -> bool:
        return goes_through(self.events, self.identities, function, stmt)

    def _goes_into(self, qualname: str) -> bool:
        called = self.events.called_from(qualname)
        # A call in a call may step another optimizer than the one around it.
        if any(site[0] in called for site in self.births) or any(
            event.slot in self.slots and len(self.identities.of_slot(event.slot)) > 1
            for one in filter(self._can_run, called)
            for _, event in self.events.direct(one)
            if event.slot is not None
        ):
            reason = (
                "the training step calls itself, which may be for another optimizer"
            )
            self._fault(
                "AMP031", qualname, self.program.functions[qualname].line, reason
            )
        return True

    def _is_wrapped(self, qualname: str, decorator: str) -> None:
        scope = self.program.functions[qualname]
        reason = (
            f"{scope.name}() is decorated with {decorator}(), "
            "which has a part in the training step itself"
        )
        self._fault("AMP034", qualname, scope.line, reason)

    def _start(self, root: str) -> Held:
        self._optimizers = optimizers_in(self.identities, root)
        self._walked.clear()
        return (Holding(),) * len(self._optimizers)

    # -- what a plan inserts --------------------------------------------------------------------

    def _before(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        for slot in _at(self.placement.unscale_before, function, stmt):
            one = self._one(slot, function, stmt)
            for state in states:
                self._may_stop(state, one, READY, READY)
            states = self._each(
                states,
                one,
                partial(self._unscale, one=one, function=function, stmt=stmt),
            )
        for slot in _at(self.placement.update_before, function, stmt):
            states = {self._update(s, slot, function, stmt) for s in states}
        return states

    def _after(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        for slot in _at(self.placement.update_after, function, stmt):
            guarded = (function, stmt.path) in self.placement.guarded
            stepped = self._one(slot, function, stmt)
            alone = all(len(s) == 1 for s in map(self.scalers.of_optimizer, stepped))
            states = {
                (
                    state
                    if guarded
                    and alone
                    and self._gradients(state, stepped) is Gradients.NONE
                    else self._update(state, slot, function, stmt)
                )
                for state in states
            }
        return states

    def _last_together(self, function: str, stmt: ir.Stmt) -> int | None:
        found = self._protection(function, stmt)
        return None if found is None else found[1]

    def _protection(self, function: str, stmt: ir.Stmt) -> tuple[Slot, int] | None:
        for (other, path, slot), last in self.placement.protected.items():
            if other == function and path == stmt.path:
                return slot, last
        return None

    def _together(
        self, function: str, body: tuple[ir.Stmt, ...], states: set[State[Held]]
    ) -> Flow[Held]:
        """The statements of a step with ``update`` behind them, whether they end or are left."""
        first, last = body[0], body[-1]
        found = self._protection(function, first)
        assert found is not None
        self._frames.append((function, first.path))
        states = self._before(function, first, states)
        self._frames.pop()
        outer, inside = self._observers, set(states)
        self._observers = [inside]
        flow = self._block(function, body, states, entered=True)
        self._observers = outer
        self._frames.append((function, last.path))
        for ended in (flow.after, flow.breaks, flow.continues, flow.returns, inside):
            updated = {self._update(s, found[0], function, last) for s in ended}
            ended.clear()
            ended |= updated
        self._frames.pop()
        for observed in outer:
            observed |= inside
        return flow

    def _may_stop(
        self, state: State[Held], one: frozenset[Slot], before: str, scaler: str
    ) -> None:
        """Note where an exception in the middle of a call may leave an optimizer."""

        def stopped(holding: Holding) -> Holding:
            if holding.scaler != before or holding.gradients is Gradients.NONE:
                return holding
            return Holding(scaler, Gradients.UNSCALED)

        for observed in self._observers:
            observed.add(self._changed(state, one, stopped))

    # -- optimizers -----------------------------------------------------------------------------

    def _one(self, slot: Slot, function: str, stmt: ir.Stmt) -> frozenset[Slot]:
        """The optimizer that a slot stands for here; none, and a fault, where that may be several."""
        found = self.identities.on_way(slot, self._way)
        if self.identities.is_each(slot) and not slot.turn.may_repeat:
            once = self.identities.has_each_once(slot, self._way)
            if once and self._is_in_straight_loop(slot):
                return found
            reason = f"whether each of the optimizers in {slot.shown} has its turn is not visible"
            self._fault("AMP012", function, stmt.line, reason)
            return frozenset()
        if len(found) == 1:
            return found
        reason = f"{slot.shown} may be one of several optimizers"
        self._fault("AMP012", function, stmt.line, reason)
        return frozenset()

    def _is_in_straight_loop(self, slot: Slot) -> bool:
        """Whether the way is in the loop that binds a slot, and the loop leaves no optimizer out."""
        turn = slot.turn
        around = {path for function, path in self._frames if function == turn.function}
        return any(
            is_straight(self.events, turn.function, stmt)
            for stmt in self.program.statements(turn.function)
            if stmt.kind == "for"
            and stmt.path in around
            and any(ir.Name(turn.name) in ir.walk(t) for t in stmt.targets)
        )

    def _gradients(self, state: State[Held], one: frozenset[Slot]) -> Gradients | None:
        for optimizer, holding in zip(self._optimizers, state.held, strict=True):
            if optimizer in one:
                return holding.gradients
        return None

    def _each(
        self,
        states: set[State[Held]],
        concerned: frozenset[Slot],
        change: Callable[[Holding], Holding],
    ) -> set[State[Held]]:
        return {self._changed(state, concerned, change) for state in states}

    def _changed(
        self,
        state: State[Held],
        concerned: frozenset[Slot],
        change: Callable[[Holding], Holding],
    ) -> State[Held]:
        held = tuple(
            change(holding) if optimizer in concerned else holding
            for optimizer, holding in zip(self._optimizers, state.held, strict=True)
        )
        return State(held, state.known)

    # -- one line -------------------------------------------------------------------------------

    def _on_line(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        born = self.births.get((function, stmt.path))
        if (function, stmt.path) in self.newborn and born is not None:
            return self._each(states, born, lambda h: Holding(h.scaler))
        if not any(h.gradients in _LIVE for state in states for h in state.held):
            return states
        if born is not None:
            # What the new optimizer steps on must not be what the old one left.
            states = self._each(
                states,
                born,
                lambda h: (
                    Holding(READY, Gradients.LEFTOVER) if h.gradients in _LIVE else h
                ),
            )
        if suspends(stmt):
            reason = "the function is suspended between backward() and step()"
            self._fault("AMP034", function, stmt.line, reason)
        return states

    def _event(
        self, event: Event, state: State[Held], function: str, stmt: ir.Stmt
    ) -> State[Held]:
        match event.kind:
            case "backward":
                if (function, stmt.path) in self.backwards:
                    return self._own_backward(event, state, function)
                return self._other_backward(event, state, function)
            case "step" if event.slot in self.slots:
                assert event.slot is not None
                stepped = self._one(event.slot, function, stmt)
                # An optimizer may run out of memory when it makes its state.
                for before, scaler in (
                    (READY, READY),
                    (READY, UNSCALED),
                    (UNSCALED, UNSCALED),
                ):
                    self._may_stop(state, stepped, before, scaler)
                return self._changed(
                    state, stepped, lambda h: self._step(event, h, function, stmt)
                )
            case "zero":
                dropped: frozenset[Slot] = frozenset()
                if event.slot is None or event.slot in self.slots:
                    dropped = self.ownership.cleared(event, function, stmt, self._way)
                if event.slot is not None and self.identities.is_each(event.slot):
                    dropped = self._one(event.slot, function, stmt)
                if event.slot is None and not dropped:
                    for frame, _ in self._way:
                        self._vain_zeros.setdefault(frame, event.line)
                return self._changed(
                    state, dropped, lambda h: Holding(h.scaler, Gradients.NONE)
                )
            case "exchange" | "mixture":
                self._exchange(event, state, function, stmt)
            case "access":
                expressions = self.events.dispatch.expressions
                if not event.maybe or any(map(self._can_run, expressions)):
                    self._access(event, state, function, stmt)
        return state

    def _inside_loop(self) -> bool:
        """Whether the present statement belongs to one of the group's own training loops."""
        for function, path in self.backwards:
            loop = innermost_loop(self.program.functions[function], path)
            for frame, at in self._way:
                if frame == function and at[: len(loop)] == loop:
                    return True
        return any(self._trains_around(frame, at) for frame, at in self._way)

    def _trains_around(self, function: str, path: ir.Path) -> bool:
        """Whether a loop around a statement calls what goes backward for this group."""
        if (function, path) not in self._training:
            trained = {function for function, _ in self.backwards}
            self._training[function, path] = any(
                stmt.kind in ("for", "while")
                and any(
                    self.events.leads_to(callee, trained)
                    for inner in ir.statements((stmt,))
                    for event in self.events.of(function, inner)
                    for callee in event.callees
                )
                for stmt in self.program.control(function).around(path)
            )
        return self._training[function, path]

    def _leaving(self, function: str, stmt: ir.Stmt, states: set[State[Held]]) -> None:
        if not self._leaves_step(function, stmt):
            return
        frames = self._way
        for state in states:
            for optimizer, holding in zip(self._optimizers, state.held, strict=True):
                seen = self.exits.setdefault((frames, optimizer), set())
                seen.add(holding.scaler)

    def _leaves_step(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether an exit leads out of the block in which gradients were unscaled."""
        if stmt.kind == "return" and "step" not in self.events.kinds(function):
            # The step is the caller's.
            return False
        around = self.program.control(function).around(stmt.path)
        loop = next((s.path for s in around if s.kind in ("for", "while")), ())
        return any(
            other == function and (stmt.kind == "return" or path[: len(loop)] == loop)
            for other, path, _ in self.placement.unscale_before
        )

    # -- gradients ------------------------------------------------------------------------------

    def _access(
        self, event: Event, state: State[Held], function: str, stmt: ir.Stmt
    ) -> None:
        held = dict(zip(self._optimizers, state.held, strict=True))
        if all(h.gradients is Gradients.NONE for h in held.values()):
            return
        # What touches all there is does so by any way.
        way = self._way if event.targets else ()
        touched = self.ownership.touched(event.targets, function, stmt, way)
        if touched is None:
            touched, known = frozenset(held), False
        else:
            known = True
        self._note_touched(event, {one: held[one] for one in touched}, function, stmt)
        for one, holding in held.items():
            if one not in touched or holding.gradients is Gradients.NONE:
                continue
            leftover = holding.gradients in _LEFT
            by_hand = 0
            if known and holding.gradients in _LIVE:
                scope = self.program.functions[function]
                by_hand = step_by_hand(scope, stmt, event.targets)
            if by_hand:
                reason = (
                    "a parameter is changed here by its gradient, which may be infinite: "
                    "a scaler skips its own steps only"
                )
                self._fault("AMP030", function, by_hand, reason)
                continue
            if holding.gradients in _LIVE:
                around = self.program.control(function).around(stmt.path)
                if taken_from_another(stmt, around):
                    reason = (
                        "gradients of another object are taken here: where a scaler skips that "
                        "one's step, they are infinite"
                    )
                    self._fault("AMP030", function, event.line, reason)
                self.used.add((function, stmt.path))
                if any(map(_outlives, stmt.targets)):
                    self.collected.add((function, stmt.path))
            if holding.gradients is Gradients.LEFTOVER and event.targets:
                self.leftovers.add((function, stmt.path))
            if not known:
                if not leftover or self._inside_loop():
                    reason = "gradients that the optimizer is not known to hold are touched here"
                    self._fault("AMP030", function, event.line, reason)
            elif holding.gradients is Gradients.SCALED:
                self.accesses.setdefault(Access(self._way, event.line, one))
            elif holding.gradients is Gradients.FOREIGN and self._inside_loop():
                reason = "gradients are touched here that hold those of another optimizer's loss"
                self._fault("AMP030", function, event.line, reason)

    def _note_touched(
        self,
        event: Event,
        touched: dict[Slot, Holding],
        function: str,
        stmt: ir.Stmt,
    ) -> None:
        live = frozenset(o for o, h in touched.items() if h.gradients in _LIVE)
        if event.targets and event.call is None:
            self.by_hand.setdefault((function, stmt.path), set()).add(live)
        elif len(live) > 1 and not _is_each_by_itself(event.call):
            self.clips.setdefault((self._way, live), event.call)

    def _exchange(
        self, event: Event, state: State[Held], function: str, stmt: ir.Stmt
    ) -> None:
        """Infinities are looked for behind an exchange, or processes would differ about them."""
        frames = self._way
        touched = self.ownership.touched(event.targets, function, stmt, frames)
        for one, holding in zip(self._optimizers, state.held, strict=True):
            if touched is not None and one not in touched:
                continue
            if holding.gradients is Gradients.UNSCALED and event.kind == "exchange":
                reason = "gradients are exchanged between processes after they were read or edited"
                self._fault("AMP030", function, event.line, reason)
            elif holding.gradients in _LIVE and event.kind == "mixture":
                reason = "gradients are exchanged between processes in a form that is not followed"
                self._fault("AMP030", function, event.line, reason)

    def _own_backward(
        self, event: Event, state: State[Held], function: str
    ) -> State[Held]:
        scaler = self.scalers.of_way(self._way)
        if scaler is None:
            reason = "no optimizer steps on this backward()"
            self._fault("AMP011", function, event.line, reason)
            return state
        for optimizer, holding in zip(self._optimizers, state.held, strict=True):
            if optimizer in scaler:
                self._check_backward(event, holding, function, len(scaler) == 1)
        state = self._changed(
            state, scaler, lambda h: Holding(h.scaler, _after_backward(h.gradients))
        )
        others = frozenset(self._optimizers) - scaler
        return self._changed(
            state, others, lambda h: Holding(h.scaler, Gradients.FOREIGN)
        )

    def _check_backward(
        self, event: Event, holding: Holding, function: str, alone: bool
    ) -> None:
        if holding.gradients in _LEFT and alone:
            line = event.line
            reason = (
                "gradients of an earlier step are still there: "
                "no zero_grad() on a path to this backward()"
            )
            if function in self._vain_zeros:
                line = self._vain_zeros[function]
                reason = (
                    "what is cleared here is not known to be what the optimizer holds"
                )
            self._fault("AMP031", function, line, reason)
            return
        if holding.gradients in (*_LEFT, Gradients.FOREIGN):
            # The loss may not reach these at all: a step without zero_grad() before is what counts.
            return
        if holding.gradients is Gradients.UNSCALED or holding.scaler == UNSCALED:
            reason = (
                "gradients were read or edited before the last backward() of their step"
            )
            self._fault("AMP030", function, event.line, reason)
        elif holding.scaler == STEPPED:
            reason = "backward() between a step and its update()"
            self._fault("AMP031", function, event.line, reason)

    def _other_backward(
        self, event: Event, state: State[Held], function: str
    ) -> State[Held]:
        """A backward that is left alone may reach the same parameters."""
        idle = (Gradients.NONE, *_LEFT)
        # What is of no use stays so, and no step is on it.
        waits = (*idle, Gradients.FOREIGN)
        if any(h.gradients not in waits for h in state.held) and self._inside_loop():
            reason = "another backward() in this loop is left alone"
            self._fault("AMP031", function, event.line, reason)
        return self._changed(
            state,
            frozenset(self._optimizers),
            lambda h: (
                Holding(h.scaler, Gradients.OTHER) if h.gradients in idle else h
            ),
        )

    def _unscale(
        self, holding: Holding, one: frozenset[Slot], function: str, stmt: ir.Stmt
    ) -> Holding:
        line = stmt.line
        if holding.gradients is Gradients.NONE and holding.scaler == READY:
            steps = {
                (at, other.path)
                for at, other, event in self.events.calls_of("step")
                if event.slot in self.slots
                if not one.isdisjoint(self.identities.of_slot(event.slot))
            }
            if not steps.isdisjoint(self.placement.guarded):
                return holding  # It is under a guard, like such a step.
            behind = {
                (at, path)
                for at, path in steps
                if at == function
                if (found := ir.distance(path, stmt.path)) is not None and found >= 0
            }
            self.idle |= behind or steps
        moved = after("unscale_", holding.scaler)
        if moved is None or holding.gradients is Gradients.UNSCALED:
            reason = "gradients would be unscaled twice for one step"
            self._fault("AMP030", function, line, reason)
        elif holding.gradients is Gradients.NONE:
            reason = (
                "gradients are read or edited on a path without a backward() before"
            )
            self._fault("AMP031", function, line, reason)
        elif holding.gradients in (*_LEFT, Gradients.FOREIGN):
            reason = "gradients of an earlier step may be read or edited again"
            self._fault("AMP031", function, line, reason)
        return Holding(moved or UNSCALED, Gradients.UNSCALED)

    def _step(
        self, event: Event, holding: Holding, function: str, stmt: ir.Stmt
    ) -> Holding:
        site = (function, stmt.path)
        moved = after("step", holding.scaler)
        if holding.gradients is Gradients.NONE:
            if holding.scaler != UNSCALED:
                self.unguarded.add(site)
            # Behind `unscale_`, which has looked at some, a step without any is one.
            if site in self.placement.guarded:
                return holding
        elif holding.gradients is Gradients.UNSCALED and holding.scaler == READY:
            reason = "a step on gradients whose unscaling the scaler has forgotten"
            self._fault("AMP031", function, event.line, reason)
        elif holding.gradients is Gradients.FOREIGN:
            reason = (
                "gradients of an earlier step are still there: "
                "no zero_grad() on a path to this step"
            )
            self._fault("AMP031", function, event.line, reason)
        elif holding.gradients is Gradients.OTHER and moved is not None:
            reason = "a step on the gradients of a backward() that is left alone"
            self._fault("AMP031", function, event.line, reason)
        elif holding.gradients in _LEFT or moved is None:
            reason = "a second step on the gradients of an earlier one"
            self._fault("AMP031", function, event.line, reason)
        return Holding(moved or STEPPED, Gradients.LEFTOVER)

    def _update(
        self, state: State[Held], slot: Slot, function: str, stmt: ir.Stmt
    ) -> State[Held]:
        scaler: frozenset[Slot] = frozenset()
        for one in self._one(slot, function, stmt):
            scaler = self.scalers.of_optimizer(one)
        stands = [
            holding
            for optimizer, holding in zip(self._optimizers, state.held, strict=True)
            if optimizer in scaler
        ]
        if stands and all(after("update", one.scaler) is None for one in stands):
            reason = "a path to the end of the step has neither the step nor an edit of gradients"
            self._fault("AMP031", function, stmt.line, reason)
        several = len(stands) > 1
        return self._changed(
            state,
            scaler,
            lambda h: Holding(
                READY,
                # What waits for its step has the scale of before.
                (
                    Gradients.FOREIGN
                    if several and h.gradients is Gradients.SCALED
                    else h.gradients
                ),
            ),
        )


def _is_each_by_itself(call: ir.Call | None) -> bool:
    """Whether a clip of torch bounds each number by itself."""
    return call is not None and ir.last_of(call.func) == "clip_grad_value_"


def _outlives(target: ir.Expr) -> bool:
    """Whether what is assigned is an item or an attribute that is no gradient."""
    return isinstance(target, (ir.Item, ir.Attr)) and not any(
        isinstance(inner, ir.Attr) and inner.attr == "grad" for inner in ir.walk(target)
    )


_LEFT = (Gradients.LEFTOVER, Gradients.OTHER)
_LIVE = (Gradients.SCALED, Gradients.UNSCALED)


def _at(placed: set[Placed], function: str, stmt: ir.Stmt) -> list[Slot]:
    return [slot for f, path, slot in placed if f == function and path == stmt.path]


def _after_backward(gradients: Gradients) -> Gradients:
    mixed = (*_LEFT, Gradients.FOREIGN)
    return Gradients.FOREIGN if gradients in mixed else Gradients.SCALED
