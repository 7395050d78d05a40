"""The state machine of a gradient scaler, run over all paths of a program before anything is written.

The states are those of ``torch.amp.GradScaler`` (ready, unscaled, stepped; torch/amp/grad_scaler.py,
``OptState``), together with what the gradients hold at that moment. A path on which a scaler would
raise, or on which scaled and unscaled gradients would mix, is a fault, and a program with a fault is
left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from amp_migrate.facts import ir
from amp_migrate.plan.coverage import Coverage
from amp_migrate.plan.events import Event, Events, innermost_loop
from amp_migrate.project.bindings import bindings
from amp_migrate.project.link import Program
from amp_migrate.project.optimizers import Slot

Site = tuple[str, ir.Path]
"""(function, path of a statement)."""

READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


class Gradients(Enum):
    """What the parameters' gradients hold."""

    NONE = "none"
    SCALED = "scaled"
    UNSCALED = "unscaled"
    LEFTOVER = "left over from an earlier step"


@dataclass(frozen=True, slots=True)
class State:
    scaler: str = READY
    gradients: Gradients = Gradients.NONE
    known: frozenset[tuple[str, ir.Expr, bool]] = frozenset()
    """Conditions whose outcome is known on this path: (function, test, outcome)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a scaler would raise or compute something else."""

    code: str
    function: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Access:
    """Gradients are read or edited while scaled; ``frames`` lead there from the root."""

    frames: tuple[tuple[str, ir.Path], ...]
    line: int


@dataclass(slots=True)
class Placement:
    """The calls of the scaler that a plan inserts."""

    unscale_before: set[Site] = field(default_factory=set)
    update_after: set[Site] = field(default_factory=set)
    update_before: set[Site] = field(default_factory=set)
    guarded: set[Site] = field(default_factory=set)


@dataclass(slots=True)
class _Flow:
    after: set[State] = field(default_factory=set)
    breaks: set[State] = field(default_factory=set)
    continues: set[State] = field(default_factory=set)
    returns: set[State] = field(default_factory=set)


class Protocol:
    """One run over a program's paths for the optimizer that lives in ``slots``."""

    def __init__(
        self,
        program: Program,
        events: Events,
        slots: frozenset[Slot],
        backwards: frozenset[Site],
        births: frozenset[Site],
        coverage: Coverage,
        placement: Placement,
        handlers: bool = True,
    ) -> None:
        """``handlers``: whether exceptions may take a way through their handlers."""
        self.handlers = handlers
        self.program = program
        self.events = events
        self.slots = slots
        self.backwards = backwards
        self.births = births
        self.coverage = coverage
        self.placement = placement
        self.faults: dict[Fault, None] = {}
        self.accesses: dict[Access, None] = {}
        self.leftovers: set[Site] = set()
        """Where gradients are read that a step has used."""
        self.unguarded: set[Site] = set()
        """Steps that may find no gradients."""
        self.exits: dict[Site, set[str]] = {}
        """Scaler states at ``continue``, ``break`` and ``return``."""
        self.visited: set[Site] = set()
        self._memo: dict[tuple[object, ...], frozenset[State]] = {}
        self._frames: list[tuple[str, ir.Path]] = []
        self._active: list[str] = []
        self._observers: list[set[State]] = []
        self._correlated: dict[str, frozenset[ir.Expr]] = {}
        self._counting: dict[str, dict[ir.Expr, str]] = {}

    def run(self, root: str) -> set[State]:
        """Simulate a call of ``root`` with no gradients around; returns the states at its end."""
        return self._function(root, {State()})

    def _fault(self, code: str, function: str, line: int, reason: str) -> None:
        self.faults.setdefault(Fault(code, function, line, reason))

    # -- functions and blocks -----------------------------------------------------------------

    def _function(self, qualname: str, states: Iterable[State]) -> set[State]:
        if qualname in self._active:
            line = self.program.functions[qualname].line
            self._fault("AMP031", qualname, line, "the training step calls itself")
            return set(states)
        self._active.append(qualname)
        flow = self._block(qualname, self.program.functions[qualname].body, set(states))
        self._active.pop()
        return {
            State(
                s.scaler, s.gradients, frozenset(k for k in s.known if k[0] != qualname)
            )
            for s in flow.after | flow.returns
        }

    def _block(
        self, function: str, body: tuple[ir.Stmt, ...], states: set[State]
    ) -> _Flow:
        flow = _Flow(after=states)
        for stmt in body:
            if not flow.after:
                break
            inner = self._stmt(function, stmt, flow.after)
            flow.after = inner.after
            flow.breaks |= inner.breaks
            flow.continues |= inner.continues
            flow.returns |= inner.returns
            for observed in self._observers:
                observed |= flow.after
        return flow

    def _stmt(self, function: str, stmt: ir.Stmt, states: set[State]) -> _Flow:
        site = (function, stmt.path)
        self._frames.append(site)
        if site in self.placement.unscale_before:
            states = {self._unscale(state, function, stmt.line) for state in states}
        if site in self.placement.update_before:
            states = {self._update(state, function, stmt.line) for state in states}
        flow = self._inner(function, stmt, states)
        if site in self.placement.update_after:
            guarded = site in self.placement.guarded
            flow.after = {
                (
                    s
                    if guarded and s.gradients is Gradients.NONE
                    else self._update(s, function, stmt.line)
                )
                for s in flow.after
            }
        self._frames.pop()
        return flow

    def _inner(self, function: str, stmt: ir.Stmt, states: set[State]) -> _Flow:
        match stmt.kind:
            case "if":
                return self._if(function, stmt, self._line(function, stmt, states))
            case "for" | "while":
                return self._loop(function, stmt, states)
            case "try" | "trystar":
                return self._try(function, stmt, states)
            case "with":
                states = self._line(function, stmt, states)
                observed = set(states)
                self._observers.append(observed)
                flow = self._block(function, stmt.blocks[0].body, states)
                self._observers.pop()
                if _suppresses(stmt) and self.handlers:
                    flow.after |= observed
                return flow
            case "match":
                states = self._line(function, stmt, states)
                flow = _Flow(after=set(states))
                for case in stmt.blocks:
                    self._join(flow, self._block(function, case.body, set(states)))
                return flow
        states = self._line(function, stmt, states)
        if stmt.kind in ("continue", "break", "return"):
            seen = self.exits.setdefault((function, stmt.path), set())
            seen |= {state.scaler for state in states}
        match stmt.kind:
            case "return":
                return _Flow(returns=states)
            case "break":
                return _Flow(breaks=states)
            case "continue":
                return _Flow(continues=states)
            case "raise":
                return _Flow()
            case _:
                return _Flow(after=states)

    @staticmethod
    def _join(flow: _Flow, other: _Flow) -> None:
        flow.after |= other.after
        flow.breaks |= other.breaks
        flow.continues |= other.continues
        flow.returns |= other.returns

    def _if(self, function: str, stmt: ir.Stmt, states: set[State]) -> _Flow:
        test, outcome = _plain_test(stmt.value)
        tracked = test is not None and test in self._tests(function)
        flow = _Flow()
        for branch, taken in (("body", True), ("orelse", False)):
            entering = set()
            for state in states:
                if not tracked or test is None:
                    entering.add(state)
                    continue
                value = taken if outcome else not taken
                if (function, test, not value) in state.known:
                    continue
                known = state.known | {(function, test, value)}
                entering.add(State(state.scaler, state.gradients, known))
            body = next((b.body for b in stmt.blocks if b.field == branch), ())
            self._join(flow, self._block(function, body, entering))
        return flow

    def _tests(self, function: str) -> frozenset[ir.Expr]:
        """The tests that a function makes more than once: they decide together."""
        if function not in self._correlated:
            seen: set[ir.Expr] = set()
            twice: set[ir.Expr] = set()
            for stmt in ir.statements(self.program.functions[function].body):
                if stmt.kind == "if":
                    test, _ = _plain_test(stmt.value)
                    if test is not None:
                        (twice if test in seen else seen).add(test)
            self._correlated[function] = frozenset(twice) | set(self._counts(function))
        return self._correlated[function]

    def _counts(self, function: str) -> dict[ir.Expr, str]:
        """The tests of a function that ask if a counter is above zero, and its name."""
        if function not in self._counting:
            found: dict[ir.Expr, str] = {}
            for stmt in ir.statements(self.program.functions[function].body):
                test, _ = _plain_test(stmt.value) if stmt.kind == "if" else (None, True)
                name = _counted(test)
                if test is not None and name and self._is_counter(name, function):
                    found[test] = name
            self._counting[function] = found
        return self._counting[function]

    def _is_counter(self, name: str, function: str) -> bool:
        """Whether a local variable is only ever set to constants and counted up."""
        found = self.program.definitions(function, name)
        params = self.program.functions[function].params
        return (
            bool(found)
            and not any(param.name == name for param in params)
            and all(
                d.function == function and (_is_count(d.value) or _counts_up(d.stmt))
                for d in found
            )
        )

    def _loop(self, function: str, stmt: ir.Stmt, states: set[State]) -> _Flow:
        endless = stmt.kind == "while" and stmt.value in (ir.Const(True), ir.Const(1))
        at_least_once = stmt.kind == "for" and self._never_empty(stmt.value, function)
        if stmt.kind == "for":
            states = self._line(function, stmt, states)
        body = next((b.body for b in stmt.blocks if b.field == "body"), ())
        head: set[State] = set(states)
        flow = _Flow()
        ended: set[State] = set()
        while True:
            entering = (
                self._line(function, stmt, head) if stmt.kind == "while" else head
            )
            entering = {self._forget(state, function, stmt) for state in entering}
            inner = self._block(function, body, entering)
            flow.breaks |= inner.breaks
            flow.returns |= inner.returns
            ended |= inner.after | inner.continues
            if ended <= head:
                break
            head = head | ended
        leaving = set() if endless else (ended if at_least_once else head)
        if stmt.kind == "while" and not endless:
            leaving = self._line(function, stmt, leaving)
        orelse = next((b.body for b in stmt.blocks if b.field == "orelse"), None)
        if orelse is not None:
            after = self._block(function, orelse, leaving)
            leaving = after.after
            flow.returns |= after.returns
        return _Flow(after=leaving | flow.breaks, returns=flow.returns)

    def _try(self, function: str, stmt: ir.Stmt, states: set[State]) -> _Flow:
        blocks = {block.field: block.body for block in stmt.blocks}
        observed = set(states)
        self._observers.append(observed)
        flow = self._block(function, blocks["body"], set(states))
        self._observers.pop()
        if "orelse" in blocks:
            after = self._block(function, blocks["orelse"], flow.after)
            flow.after = set()
            self._join(flow, after)
        for name, body in blocks.items():
            if name.startswith("handlers") and self.handlers:
                self._join(flow, self._block(function, body, set(observed)))
        final = blocks.get("finalbody")
        if final is not None:
            for name in ("after", "breaks", "continues", "returns"):
                entering = getattr(flow, name)
                if entering:
                    setattr(
                        flow, name, self._block(function, final, set(entering)).after
                    )
        return flow

    def _never_empty(self, iterable: ir.Expr | None, function: str) -> bool:
        """Whether a ``for`` provably runs its body: ``range`` of a positive number, a display."""
        if isinstance(iterable, ir.Display):
            return bool(iterable.items)
        if not isinstance(iterable, ir.Call) or len(iterable.args) != 1:
            return False
        if self.program.origin(iterable.func, function) != "builtins.range":
            return False
        count = iterable.args[0].value
        values: list[ir.Expr | None] = [count]
        if isinstance(count, ir.Name):
            owner = self.program.owner(count.id, function)
            if owner is None:
                return False
            params = self.program.functions[owner].params
            if any(param.name == count.id for param in params):
                return False
            values = [d.value for d in self.program.definitions(owner, count.id)]
        return bool(values) and all(
            isinstance(value, ir.Const)
            and isinstance(value.value, int)
            and value.value > 0
            for value in values
        )

    # -- one line -----------------------------------------------------------------------------

    def _line(self, function: str, stmt: ir.Stmt, states: set[State]) -> set[State]:
        self.visited.add((function, stmt.path))
        live = (Gradients.SCALED, Gradients.UNSCALED)
        if any(state.gradients in live for state in states):
            if (function, stmt.path) in self.births:
                # What the new optimizer steps on must not be what the old one left.
                states = {
                    (
                        State(READY, Gradients.LEFTOVER, s.known)
                        if s.gradients in live
                        else s
                    )
                    for s in states
                }
            if _suspends(stmt):
                reason = "the function is suspended between backward() and step()"
                self._fault("AMP034", function, stmt.line, reason)
        for event in self.events.of(function, stmt):
            after: set[State] = set()
            for state in states:
                after |= self._event(event, state, function, stmt)
            states = after
        return {
            self._learn(self._forget(state, function, stmt), function, stmt)
            for state in states
        }

    def _learn(self, state: State, function: str, stmt: ir.Stmt) -> State:
        """Note what an assignment to a counter decides."""
        if stmt.kind not in ("assign", "augassign"):
            return state
        known = set(state.known)
        for test, counter in self._counts(function).items():
            for name, value, _ in bindings(stmt):
                if name == counter:
                    above = value is None or value not in (ir.Const(0), ir.Const(False))
                    known.add((function, test, above))
        return State(state.scaler, state.gradients, frozenset(known))

    def _forget(self, state: State, function: str, stmt: ir.Stmt) -> State:
        """Drop what was known of conditions that a statement's bindings may change."""
        if not state.known or not stmt.targets:
            return state
        keys = {
            ir.key_of(inner) for target in stmt.targets for inner in ir.walk(target)
        } - {None}
        kept = frozenset(
            known
            for known in state.known
            if known[0] != function
            or not keys & {ir.key_of(e) for e in ir.walk(known[1])}
        )
        return (
            state if kept == state.known else State(state.scaler, state.gradients, kept)
        )

    def _event(
        self, event: Event, state: State, function: str, stmt: ir.Stmt
    ) -> set[State]:
        match event.kind:
            case "call":
                return self._call(event, state)
            case "backward":
                if (function, stmt.path) in self.backwards:
                    return {self._backward(event, state, function)}
                if state.gradients is not Gradients.NONE and self._inside_loop():
                    reason = "another backward() in this loop is left alone"
                    self._fault("AMP031", function, event.line, reason)
                elif state.gradients is Gradients.NONE:
                    # Another program's backward may reach the same parameters.
                    return {State(state.scaler, Gradients.LEFTOVER, state.known)}
            case "step" if event.slot in self.slots:
                return {self._step(event, state, function, stmt)}
            case "zero" if self._clears(event, function, stmt):
                return {State(state.scaler, Gradients.NONE, state.known)}
            case "access" if state.gradients is not Gradients.NONE:
                leftover = state.gradients is Gradients.LEFTOVER
                if leftover and event.targets:
                    self.leftovers.add((function, stmt.path))
                if self.coverage.owns(event.targets, function, stmt):
                    if state.gradients is Gradients.SCALED:
                        self.accesses.setdefault(
                            Access(tuple(self._frames), event.line)
                        )
                elif not leftover or self._inside_loop():
                    reason = "gradients that the optimizer is not known to hold are touched here"
                    self._fault("AMP030", function, event.line, reason)
        return {state}

    def _inside_loop(self) -> bool:
        """Whether the present statement belongs to one of the optimizer's own training loops."""
        for function, path in self.backwards:
            loop = innermost_loop(self.program.functions[function], path)
            for frame, at in self._frames:
                if frame == function and at[: len(loop)] == loop:
                    return True
        return False

    def _clears(self, event: Event, function: str, stmt: ir.Stmt) -> bool:
        if event.slot is not None:
            return event.slot in self.slots
        return self.coverage.clears(
            self._zeroed_with(event, function, stmt), function, stmt
        )

    def _zeroed_with(
        self, event: Event, function: str, stmt: ir.Stmt
    ) -> tuple[ir.Expr, ...]:
        """What this statement and its neighbours in the block clear, taken together."""
        targets = list(event.targets)
        parent, (field, _) = stmt.path[:-1], stmt.path[-1]
        for other, found in self.events.direct(function):
            beside = other.path[:-1] == parent and other.path[-1][0] == field
            if beside and found.kind == "zero" and found.slot is None:
                targets += found.targets
        return tuple(targets)

    def _call(self, event: Event, state: State) -> set[State]:
        after: set[State] = set()
        for callee in event.callees:
            if not self.events.kinds(callee):
                after.add(state)
                continue
            # The way here is part of the key: where an access is answered depends on its callers.
            key = (callee, state.scaler, state.gradients, tuple(self._frames))
            if key not in self._memo or self._observers:
                entering = State(state.scaler, state.gradients)
                self._memo[key] = frozenset(self._function(callee, {entering}))
            after |= {
                State(s.scaler, s.gradients, state.known) for s in self._memo[key]
            }
        return after

    def _backward(self, event: Event, state: State, function: str) -> State:
        if state.gradients is Gradients.LEFTOVER:
            reason = (
                "gradients of an earlier step are still there: "
                "no zero_grad() on a way to this backward()"
            )
            self._fault("AMP031", function, event.line, reason)
        elif state.gradients is Gradients.UNSCALED or state.scaler == UNSCALED:
            reason = (
                "gradients were read or edited before the last backward() of their step"
            )
            self._fault("AMP030", function, event.line, reason)
        elif state.scaler == STEPPED:
            self._fault(
                "AMP031",
                function,
                event.line,
                "backward() between a step and its update()",
            )
        return State(state.scaler, Gradients.SCALED, state.known)

    def _unscale(self, state: State, function: str, line: int) -> State:
        if state.scaler != READY or state.gradients is Gradients.UNSCALED:
            reason = "gradients would be unscaled twice for one step"
            self._fault("AMP030", function, line, reason)
        elif state.gradients is Gradients.NONE:
            reason = "gradients are read or edited on a way without a backward() before"
            self._fault("AMP031", function, line, reason)
        elif state.gradients is Gradients.LEFTOVER:
            reason = "gradients of an earlier step may be read or edited again"
            self._fault("AMP031", function, line, reason)
        return State(UNSCALED, Gradients.UNSCALED, state.known)

    def _step(self, event: Event, state: State, function: str, stmt: ir.Stmt) -> State:
        site = (function, stmt.path)
        if state.gradients is Gradients.NONE:
            if state.scaler == UNSCALED:
                reason = "gradients are dropped between their editing and the step"
                self._fault("AMP031", function, event.line, reason)
            self.unguarded.add(site)
            if site in self.placement.guarded:
                return state
        elif state.gradients is Gradients.UNSCALED and state.scaler == READY:
            reason = "a step on gradients whose unscaling the scaler has forgotten"
            self._fault("AMP031", function, event.line, reason)
        elif state.gradients is Gradients.LEFTOVER or state.scaler == STEPPED:
            reason = "a second step on the gradients of an earlier one"
            self._fault("AMP031", function, event.line, reason)
        return State(STEPPED, Gradients.LEFTOVER, state.known)

    def _update(self, state: State, function: str, line: int) -> State:
        if state.scaler == READY:
            reason = "a way to the end of the step meets neither the step nor an edit of gradients"
            self._fault("AMP031", function, line, reason)
        return State(READY, state.gradients, state.known)


def _counted(test: ir.Expr | None) -> str:
    """The variable that a test compares with zero: ``n``, ``n > 0``, ``n != 0``, ``n >= 1``."""
    match test:
        case ir.Name(id=name):
            return name
        case ir.Operation(
            op=">" | "!=" | ">=" as op,
            operands=(ir.Name(id=name), ir.Const(value=int() as limit)),
        ) if limit == (op == ">="):
            return name
    return ""


def _is_count(value: ir.Expr | None) -> bool:
    return (
        isinstance(value, ir.Const)
        and isinstance(value.value, int)
        and value.value >= 0
    )


def _counts_up(stmt: ir.Stmt) -> bool:
    positive = _is_count(stmt.value) and stmt.value != ir.Const(0)
    return stmt.kind == "augassign" and stmt.op == "+" and positive


def _suspends(stmt: ir.Stmt) -> bool:
    return any(
        isinstance(inner, ir.Suspend) for expr in stmt.exprs for inner in ir.walk(expr)
    )


def _suppresses(stmt: ir.Stmt) -> bool:
    """Whether a ``with`` statement may swallow an exception of its body."""
    return any(
        (ir.key_of(call.func) or "").rsplit(".", 1)[-1]
        in ("suppress", "raises", "ignored")
        for expr in stmt.exprs
        for call in ir.calls_in(expr)
    )


def _plain_test(test: ir.Expr | None) -> tuple[ir.Expr | None, bool]:
    """The test without its negations, and whether it is meant as it stands."""
    outcome = True
    while isinstance(test, ir.Operation) and test.op == "not":
        test, outcome = test.operands[0], not outcome
    if test is None or any(isinstance(e, ir.Call) for e in ir.walk(test)):
        # A call may answer differently the next time.
        return None, True
    return test, outcome
