"""All ways through a program: blocks, branches, loops, handlers and calls, with what holds on each.

What is carried along a way is the business of those who walk: here it is one immutable value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Generic, TypeVar

from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.paths.events import CALLS, Event, Events
from amp_migrate.analysis.paths.suppressed_exceptions import is_guarded, swallows
from amp_migrate.core.effort import spend
from amp_migrate.core.records import quickly_made
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, parts_of
from amp_migrate.program.link import Program

Site = tuple[str, ir.Path]
"""(function, path of a statement)."""

Frames = tuple[Site, ...]
"""The statements, and the calls among them, that lead from a root to a place."""

_MOST_LEVELS = 6
_GROWING = frozenset("append extend insert sort reverse index count copy".split())
_READERS = frozenset(
    """builtins.len builtins.range builtins.print builtins.str builtins.sum builtins.min builtins.max
    builtins.any builtins.all random.shuffle numpy.random.shuffle""".split()
)
_TESTS = ("not", "in", "not in", "==", "!=", "+", "formattedvalue")
_AS_LONG = {
    "builtins.enumerate": 1,
    "builtins.reversed": 1,
    "builtins.sorted": 1,
    "builtins.list": 1,
    "builtins.tuple": 1,
    "builtins.zip": None,
    "tqdm.tqdm": 1,
    "tqdm.auto.tqdm": 1,
}
"""Functions whose result is as long as what they are given first, or (None) the shortest of all."""

Known = tuple[str, ir.Expr, bool]
"""A condition whose outcome is known: (function, test, outcome)."""

Held = TypeVar("Held", bound=Hashable)


@quickly_made
@dataclass(frozen=True, slots=True)
class State(Generic[Held]):
    held: Held
    known: frozenset[Known] = frozenset()
    """What is known on this way."""


@dataclass(slots=True)
class Flow(Generic[Held]):
    """Where a statement or block leads to."""

    after: set[State[Held]] = field(default_factory=set)
    breaks: set[State[Held]] = field(default_factory=set)
    continues: set[State[Held]] = field(default_factory=set)
    returns: set[State[Held]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Walked(Generic[Held]):
    """What came of walking a call."""

    after: frozenset[State[Held]]
    observed: frozenset[State[Held]]
    """The states from which an exception may lead out of it."""
    entered: frozenset[str]
    by_way: bool
    """Whether the way there was asked for: by another, something else may come of it."""
    round: int | None
    """What was known of recursions then; None where nothing in it is one that goes on."""


@dataclass(slots=True)
class _Recursion(Generic[Held]):
    """What is known so far of a function that is called again before it is done: of all these calls
    together, the first one among them."""

    entering: set[State[Held]] = field(default_factory=set)
    after: set[State[Held]] = field(default_factory=set)
    observed: set[State[Held]] = field(default_factory=set)


class Walk(ABC, Generic[Held]):
    """Walks the ways that begin at a function; what is met on them is for a subclass to judge."""

    def __init__(
        self,
        program: Program,
        events: Events,
        handlers: bool = True,
        live: Live | None = None,
        files: Collection[str] | None = None,
    ) -> None:
        """``handlers``: whether exceptions may take a way through their handlers. ``live``: what can
        run, where that is known. ``files``: those that can run together; None for all.
        """
        self.live = live
        self.files = files
        self.program = program
        self.events = events
        self.handlers = handlers
        self.visited: set[Site] = set()
        self._walked: dict[tuple[object, ...], _Walked[Held]] = {}
        self._entered: set[str] = set()
        """The functions that were walked, or met while they were, since the present call began."""
        self._by_way = False
        """Whether the way was asked for since then."""
        self._recursions: dict[str, _Recursion[Held]] = {}
        self._rounds = 0
        self._frames: list[Site] = []
        self._active: list[str] = []
        self._observers: list[set[State[Held]]] = []
        self._correlated: dict[str, frozenset[ir.Expr]] = {}
        self._counting: dict[str, dict[ir.Expr, str]] = {}
        self._params_tested: dict[
            str, tuple[tuple[ir.Expr, ir.Param, bool | None], ...]
        ] = {}

    def run(self, root: str) -> set[State[Held]]:
        """Walk a call of ``root``; returns the states at its end."""
        return self._function(root, {State(self._start(root))})

    # -- for subclasses -------------------------------------------------------------------------

    @abstractmethod
    def _start(self, root: str) -> Held:
        """What holds when ``root`` is called."""

    @abstractmethod
    def _event(
        self, event: Event, state: State[Held], function: str, stmt: ir.Stmt
    ) -> State[Held]:
        """What an event that is no call makes of a state."""

    def _before(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        """What happens before a statement."""
        return states

    def _after(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        """What happens behind a statement that is left at its end."""
        return states

    def _on_line(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        """What a statement's own line does before its events."""
        return states

    def _last_together(self, function: str, stmt: ir.Stmt) -> int | None:
        """The index of the last statement of a run that begins here and is walked as one, if any."""
        return None

    def _together(
        self, function: str, body: tuple[ir.Stmt, ...], states: set[State[Held]]
    ) -> Flow[Held]:
        """Walk such a run."""
        return self._block(function, body, states, entered=True)

    def _leaving(self, function: str, stmt: ir.Stmt, states: set[State[Held]]) -> None:
        """Told of the states at ``continue``, ``break`` and ``return``."""

    def _again(
        self, function: str, loop: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        """What the end of a loop's turn makes of the states there."""
        return states

    def _goes_into(self, qualname: str) -> bool:
        """Whether a function that is called before it is done is followed; else that call does nothing."""
        return True

    def _is_wrapped(self, qualname: str, decorator: str) -> None:
        """Told of a function whose decorator has a part in training itself, which is not walked."""

    def _can_run(self, callee: str) -> bool:
        """Whether a called function is one that can run at all, where the way begins."""
        for root, _ in self._frames[:1]:
            file, program = ir.file_of(callee), self.program
            if program.is_imported(file) and not program.may_run_together(
                file, ir.file_of(root)
            ):
                self._by_way = True
                return False
        return self._is_near(callee) and (self.live is None or self.live.runs(callee))

    def _is_near(self, name: str) -> bool:
        """Whether a function or class is of the files that can run together."""
        return self.files is None or ir.file_of(name) in self.files

    def _can_take(self, function: str, stmt: ir.Stmt, branch: str) -> bool:
        """Whether a branch of an ``if`` is one that can run at all."""
        return self.live is None or self.live.takes(function, stmt.path, branch)

    def _goes_through(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a ``for`` does the same with each of a few optimizers: one turn shows it all."""
        return False

    @property
    def _way(self) -> Frames:
        """The present way, for whoever does something else by another one."""
        self._by_way = True
        return tuple(self._frames)

    def _way_to(self, callee: str) -> Frames:
        """What of the present way makes a difference to what a called function does, if it asks for it."""
        return tuple(self._frames)

    def _joined(self, states: set[State[Held]]) -> set[State[Held]]:
        """States that meet, where they may be thrown together."""
        return states

    @contextmanager
    def _observed(
        self, states: Iterable[State[Held]] = ()
    ) -> Iterator[set[State[Held]]]:
        """Gathers all states inside, some to begin with, where an exception may lead from any of them."""
        observed = set(states)
        if not self.handlers:
            # Nobody asks, and a call that was walked before need not be walked again to be observed.
            yield observed
            return
        self._observers.append(observed)
        yield observed
        self._observers.pop()

    # -- functions and blocks -----------------------------------------------------------------

    def _function(
        self, qualname: str, states: Iterable[State[Held]]
    ) -> set[State[Held]]:
        states = set(states)
        skips, again, trains = self.events.around(qualname)
        if trains:
            self._is_wrapped(qualname, trains)
        after = self._once(qualname, states)
        while again:
            more = after | self._once(qualname, after)
            again, after = more != after, more
        return after | states if skips else after

    def _once(self, qualname: str, states: Iterable[State[Held]]) -> set[State[Held]]:
        self._entered.add(qualname)
        if qualname in self._active:
            if not self._goes_into(qualname):
                return set(states)
            inner = self._recursions.setdefault(qualname, _Recursion())
            self._grow(inner.entering, states)
            for observed in self._observers:
                observed |= inner.observed
            return set(inner.after)
        within = len(self._active)
        self._active.append(qualname)
        while True:
            before, known = self._rounds, self._recursions.get(qualname)
            entering = set(states) if known is None else known.entering | set(states)
            after, observed = self._body(qualname, entering)
            again = self._recursions.get(qualname)
            if again is not None:
                self._grow(again.entering, states)
                self._grow(again.after, after)
                self._grow(again.observed, observed)
                after = set(again.after)
            # The outermost of those that call each other goes on until nothing comes of it any more.
            is_inner = not self._recursions.keys().isdisjoint(self._active[:within])
            if again is None or is_inner or before == self._rounds:
                break
        self._active.pop()
        if self._recursions and not is_inner:
            self._recursions.clear()
            self._rounds += 1
        return after

    def _grow(self, known: set[State[Held]], more: Iterable[State[Held]]) -> None:
        """Add to what is known of recursions."""
        grown = self._joined(known.union(more))
        if grown != known:
            known.clear()
            known |= grown
            self._rounds += 1

    def _body(
        self, qualname: str, states: set[State[Held]]
    ) -> tuple[set[State[Held]], set[State[Held]]]:
        """Walk a function's body once; the states at its end, and those that were observed."""
        body = self.program.functions[qualname].body
        guarded = self.handlers and is_guarded(self.program, qualname)
        observed: set[State[Held]] = set()
        if guarded or qualname in self._recursions:
            with self._observed() as observed:
                flow = self._block(qualname, body, set(states))
        else:
            flow = self._block(qualname, body, set(states))
        ended = flow.after | flow.returns | (observed if guarded else set())
        after = {
            State(s.held, frozenset(k for k in s.known if k[0] != qualname))
            for s in ended
        }
        return after, observed

    def _block(
        self,
        function: str,
        body: tuple[ir.Stmt, ...],
        states: set[State[Held]],
        entered: bool = False,
    ) -> Flow[Held]:
        """``entered``: what happens before the first statement has happened."""
        flow = Flow(after=states)
        until = 0
        for index, stmt in enumerate(body):
            if not flow.after:
                break
            if index < until:
                continue
            within = entered and not index
            last = None if within else self._last_together(function, stmt)
            if last is None:
                inner = self._stmt(function, stmt, flow.after, within)
            else:
                until = index + last - stmt.path[-1][1] + 1
                inner = self._together(function, body[index:until], flow.after)
            flow.after = inner.after
            flow.breaks |= inner.breaks
            flow.continues |= inner.continues
            flow.returns |= inner.returns
            for observed in self._observers:
                observed |= flow.after
        return flow

    def _stmt(
        self,
        function: str,
        stmt: ir.Stmt,
        states: set[State[Held]],
        entered: bool = False,
    ) -> Flow[Held]:
        spend(50 * (1 + len(states)))
        self._frames.append((function, stmt.path))
        if not entered:
            states = self._before(function, stmt, states)
        flow = self._inner(function, stmt, states)
        flow.after = self._joined(self._after(function, stmt, flow.after))
        self._frames.pop()
        return flow

    def _inner(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Flow[Held]:
        match stmt.kind:
            case "if":
                return self._if(function, stmt, self._line(function, stmt, states))
            case "for" | "while":
                return self._loop(function, stmt, states)
            case "try" | "trystar":
                return self._try(function, stmt, states)
            case "with":
                states = self._line(function, stmt, states)
                states = self._managed(function, stmt, "prologue", states)
                with self._observed(states) as observed:
                    flow = self._block(function, stmt.blocks[0].body, states)
                if self.handlers and swallows(self.program, function, stmt):
                    flow.after |= observed
                for name in ("after", "breaks", "continues", "returns"):
                    left = self._managed(
                        function, stmt, "epilogue", getattr(flow, name)
                    )
                    setattr(flow, name, left)
                return flow
            case "match":
                states = self._line(function, stmt, states)
                flow = Flow(after=set(states))
                for case in stmt.blocks:
                    self._join(flow, self._block(function, case.body, set(states)))
                return flow
        states = self._line(function, stmt, states)
        if stmt.kind in ("continue", "break", "return"):
            self._leaving(function, stmt, states)
        match stmt.kind:
            case "return":
                return Flow(returns=states)
            case "break":
                return Flow(breaks=states)
            case "continue":
                return Flow(continues=states)
            case "raise":
                return Flow()
            case _:
                return Flow(after=states)

    def _managed(
        self, function: str, stmt: ir.Stmt, kind: str, states: set[State[Held]]
    ) -> set[State[Held]]:
        """What the managers of a ``with`` do before its block, or behind it."""
        for event in self.events.of(function, stmt):
            if event.kind != kind or not states:
                continue
            for callee in self.events.brought(event):
                scope = self.program.functions[callee]
                body = scope.body
                if scope.is_generator:
                    body = _around_yield(body, kind == "epilogue")
                self._entered.add(callee)
                if callee not in self._active:
                    self._active.append(callee)
                    flow = self._block(callee, body, set(states))
                    self._active.pop()
                    states = flow.after | flow.returns
        return states

    @staticmethod
    def _join(flow: Flow[Held], other: Flow[Held]) -> None:
        flow.after |= other.after
        flow.breaks |= other.breaks
        flow.continues |= other.continues
        flow.returns |= other.returns

    def _if(self, function: str, stmt: ir.Stmt, states: set[State[Held]]) -> Flow[Held]:
        assert stmt.value is not None
        flow: Flow[Held] = Flow()
        for branch, taken in (("body", True), ("orelse", False)):
            if not self._can_take(function, stmt, branch):
                continue
            entering = self._where(stmt.value, taken, states, function)
            body = next((b.body for b in stmt.blocks if b.field == branch), ())
            self._join(flow, self._block(function, body, entering))
        return flow

    def _where(
        self, test: ir.Expr, outcome: bool, states: set[State[Held]], function: str
    ) -> set[State[Held]]:
        """The states in which a test may come out in one way, with what is learnt from it."""
        plain, meant = _plain_test(test)
        if plain is None:
            return set(states)
        value = outcome is meant
        entering = {s for s in states if (function, plain, not value) not in s.known}
        if plain not in self._tests(function):
            return entering
        learnt = {(function, plain, value)}
        return {replace(state, known=state.known | learnt) for state in entering}

    def _tests(self, function: str) -> frozenset[ir.Expr]:
        """The tests that a function makes more than once: they decide together."""
        if function not in self._correlated:
            seen: set[ir.Expr] = set()
            twice: set[ir.Expr] = set()
            for stmt in self.program.statements(function):
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
            for stmt in self.program.statements(function):
                test, _ = _plain_test(stmt.value) if stmt.kind == "if" else (None, True)
                name = _counted(test)
                if test is not None and name and self._is_counter(name, function):
                    found[test] = name
            self._counting[function] = found
        return self._counting[function]

    def _is_counter(self, name: str, function: str) -> bool:
        """Whether a local variable is only ever set to constants and counted up."""
        found = self.program.definitions(function, name)
        return (
            bool(found)
            and not self.program.is_param(function, name)
            and all(
                d.function == function and (_is_count(d.value) or _counts_up(d.stmt))
                for d in found
            )
        )

    def _loop(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Flow[Held]:
        endless = stmt.kind == "while" and stmt.value in (ir.Const(True), ir.Const(1))
        at_least_once = stmt.kind == "for" and self._never_empty(stmt.value, function)
        if stmt.kind == "for":
            states = self._line(function, stmt, states)
        body = next((b.body for b in stmt.blocks if b.field == "body"), ())
        if stmt.kind == "for" and self._goes_through(function, stmt):
            return self._block(function, body, states)
        head = set(states)
        flow: Flow[Held] = Flow()
        ended: set[State[Held]] = set()
        while True:
            entering = (
                self._line(function, stmt, head) if stmt.kind == "while" else head
            )
            entering = {self._forget(state, function, stmt) for state in entering}
            inner = self._block(function, body, entering)
            flow.breaks |= inner.breaks
            flow.returns |= inner.returns
            ended |= self._again(function, stmt, inner.after | inner.continues)
            if self._joined(head | ended) == head:
                break
            head = self._joined(head | ended)
        leaving = set() if endless else (ended if at_least_once else head)
        if stmt.kind == "while" and not endless:
            leaving = self._line(function, stmt, leaving)
        orelse = next((b.body for b in stmt.blocks if b.field == "orelse"), ())
        # A jump in there belongs to a loop further out.
        left = self._block(function, orelse, leaving)
        left.after |= flow.breaks
        left.returns |= flow.returns
        return left

    def _try(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Flow[Held]:
        blocks = {block.field: block.body for block in stmt.blocks}
        final = blocks.get("finalbody")
        if final is None:
            return self._handled(function, blocks, states)
        # Exceptions get out by way of the last block alone.
        outer, raised = self._observers, set(states)
        self._observers = [raised] if self.handlers else []
        flow = self._handled(function, blocks, states)
        self._observers = outer
        left: Flow[Held] = Flow()
        for name in ("after", "breaks", "continues", "returns"):
            entering = getattr(flow, name)
            if entering:
                inner = self._block(function, final, set(entering))
                getattr(left, name).update(inner.after)
                self._join(left, replace(inner, after=set()))
        if self.handlers and (outer or _jumps(final)):
            inner = self._block(function, final, raised)
            self._join(left, replace(inner, after=set()))
        return left

    def _handled(
        self,
        function: str,
        blocks: dict[str, tuple[ir.Stmt, ...]],
        states: set[State[Held]],
    ) -> Flow[Held]:
        """A ``try`` without its last block."""
        with self._observed(states) as observed:
            flow = self._block(function, blocks["body"], set(states))
        if "orelse" in blocks:
            after = self._block(function, blocks["orelse"], flow.after)
            flow.after = set()
            self._join(flow, after)
        for name, body in blocks.items():
            if name.startswith("handlers") and self.handlers:
                self._join(flow, self._block(function, body, set(observed)))
        return flow

    def _never_empty(self, iterable: ir.Expr | None, function: str) -> bool:
        """Whether a ``for`` provably runs its body: ``range`` of a positive number, a display, what is
        made of such."""
        return self._is_full(iterable, function, 0)

    def _is_full(self, iterable: ir.Expr | None, function: str, depth: int) -> bool:
        if depth > _MOST_LEVELS:
            return False

        def full(inner: ir.Expr) -> bool:
            return self._is_full(inner, function, depth + 1)

        match iterable:
            case ir.Display(items=items, keys=keys):
                return any(e and not ir.is_starred(e) for e in keys or items)
            case ir.Comprehension(iterables=iterables, conditions=conditions):
                return not conditions and all(map(full, iterables))
            case ir.Name():
                values = self._only_values(iterable, function)
                return (
                    bool(values)
                    and all(_is_list(value) and full(value) for value in values)
                    and (
                        all(map(_is_tuple, values))
                        or not self._may_shrink(iterable, function)
                    )
                )
            case ir.Call(func=func, args=args):
                origin = self.program.origin(func, function)
                given = [arg.value for arg in args if arg.name is None]
                if origin == "builtins.range":
                    return len(args) == 1 and self._is_positive(given[0], function)
                if origin in _AS_LONG:
                    return bool(given) and all(map(full, given[: _AS_LONG[origin]]))
                if isinstance(func, ir.Attr) and func.attr in ("chunk", "split"):
                    # One piece at least, be it an empty one.
                    return bool(args) and self._is_tensors(iterable)
        return False

    def _is_tensors(self, call: ir.Call) -> bool:
        """Whether a method is one of tensors: nothing here has another, no string is asked."""
        assert isinstance(call.func, ir.Attr)
        name = call.func.attr
        return not any(
            f.name == name for f in self.program.functions.values()
        ) and not any(
            isinstance(arg.value, ir.Const) and not isinstance(arg.value.value, int)
            for arg in call.args
        )

    def _is_positive(self, count: ir.Expr, function: str) -> bool:
        values = [count]
        if isinstance(count, ir.Name):
            values = self._only_values(count, function)
        return bool(values) and all(
            isinstance(value, ir.Const)
            and isinstance(value.value, int)
            and value.value > 0
            for value in values
        )

    def _only_values(self, name: ir.Name, function: str) -> list[ir.Expr]:
        """All that a variable is given; nothing where callers or loops give it something."""
        owner = self.program.owner(name.id, function)
        if owner is None:
            return []
        if self.program.is_param(owner, name.id):
            return []
        found = self.program.definitions(owner, name.id)
        values = [d.value for d in found if d.value is not None and d.index is None]
        return values if len(values) == len(found) else []

    def _may_shrink(self, name: ir.Name, function: str) -> bool:
        owner = self.program.owner(name.id, function)
        return owner is None or self.program.home(owner, name.id) in self.program.noted(
            _handed_on
        )

    # -- one line -----------------------------------------------------------------------------

    def _line(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        self.visited.add((function, stmt.path))
        states = self._on_line(function, stmt, states)
        ended: set[State[Held]] = set()
        for entering, events in self._alternatives(function, stmt, states):
            for event in events:
                after: set[State[Held]] = set()
                for state in entering:
                    if event.kind == "call":
                        after |= self._call(event, state)
                    elif event.kind in CALLS:
                        after.add(state)
                    else:
                        after.add(self._event(event, state, function, stmt))
                entering = after
            ended |= entering
        if not stmt.targets:
            return ended
        return {
            self._learn(self._forget(state, function, stmt), function, stmt)
            for state in ended
        }

    def _alternatives(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Iterator[tuple[set[State[Held]], tuple[Event, ...]]]:
        """What may happen on a statement's own line: to which states, and which events."""
        yield states, self.events.of(function, stmt)

    def _call(self, event: Event, state: State[Held]) -> set[State[Held]]:
        called = [c for c in self.events.brought(event) if self._can_run(c)]
        after: set[State[Held]] = set()
        if event.maybe or len(called) < len(event.callees):
            after.add(state)
        for callee in called:
            entered = State(state.held, self._decided(event, callee))
            found = self._called(callee, entered)
            after |= {State(s.held, state.known) for s in found}
        return after

    def _decided(self, event: Event, callee: str) -> frozenset[Known]:
        """The tests of a function that a call decides by the constants it gives: ``run(model, None)``."""
        tests = self._tests_of_params(callee)
        if not tests or event.handed_on:
            return frozenset()
        sites = self.program.call_sites.get(callee, ())
        site = next((s for s in sites if s.call is event.call), None)
        if site is None:
            return frozenset()
        starred = any(arg.star for arg in site.call.args)
        found = set()
        for test, param, asks_none in tests:
            value = self.program.argument_at(site, param.name)
            if value is None and not starred:
                value = param.default
            if isinstance(value, ir.Const) and value.value in (None, True, False):
                is_none = value.value is None
                holds = is_none if asks_none is True else not is_none
                found.add(
                    (
                        callee,
                        test,
                        holds if asks_none is not None else bool(value.value),
                    )
                )
        return frozenset(found)

    def _tests_of_params(
        self, function: str
    ) -> tuple[tuple[ir.Expr, ir.Param, bool | None], ...]:
        """The tests of what a parameter is given, and whether they ask if it is None, if it is not, or
        (None) if it is true."""
        if function not in self._params_tested:
            scope = self.program.functions[function]
            params = {
                param.name: param
                # A decorator may give others.
                for param in scope.params
                if not scope.decorators
                and not self.program.definitions(function, param.name)
            }
            found: dict[ir.Expr, tuple[ir.Param, bool | None]] = {}
            settings: set[ir.Expr | None] = set()
            for stmt in self.program.statements(function):
                test, _ = _plain_test(stmt.value) if stmt.kind == "if" else (None, True)
                if test is not None and self._touches_gradients(stmt, function):
                    settings.add(test)
                match test:
                    case ir.Name(id=name) if name in params:
                        found[test] = (params[name], None)
                    case ir.Operation(
                        op="is" | "is not" | "==" | "!=" as op,
                        operands=(ir.Name(id=name), ir.Const(value=None)),
                    ) if (
                        name in params
                    ):
                        found[test] = (params[name], op in ("is", "=="))
            self._params_tested[function] = tuple(
                (test, param, asks)
                for test, (param, asks) in found.items()
                if test not in settings
            )
        return self._params_tested[function]

    def _touches_gradients(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement touches gradients that are there before it: ``if clip is not None:``. Who gives
        ``clip`` later is to find that right, though today nobody does."""
        kinds = {
            kind
            for one in ir.statements((stmt,))
            for event in self.events.of(function, one)
            for kind in (event.kind, *chain(*map(self.events.kinds, event.callees)))
        }
        return "access" in kinds and "backward" not in kinds

    def _called(self, callee: str, entered: State[Held]) -> frozenset[State[Held]]:
        """Walk a call, or show the observers again what they saw when it was walked before."""
        anywhere = (callee, entered, bool(self._observers))
        # What is met may be answered by its callers.
        here = (*anywhere, self._way_to(callee))
        for key in (anywhere, here):
            known = self._walked.get(key)
            if known is None:
                continue
            # What is called again before it is done is walked otherwise, but for the same way.
            again = not known.entered.isdisjoint(self._active)
            if again and (key is anywhere or self._observers):
                continue
            if known.round not in (None, self._rounds):
                continue
            self._entered |= known.entered
            self._by_way |= known.by_way
            for observed in self._observers:
                observed |= known.observed
            return known.after
        # A way that is kept takes memory.
        spend(100 * len(self._frames))
        entered_before, self._entered = self._entered, set()
        by_way_before, self._by_way = self._by_way, False
        seen: set[State[Held]] = set()
        if self._observers:
            with self._observed() as seen:
                after = frozenset(self._function(callee, {entered}))
        else:
            after = frozenset(self._function(callee, {entered}))
        apart = self._entered.isdisjoint(self._active)
        if apart or not self._observers:
            self._walked[here if self._by_way or not apart else anywhere] = _Walked(
                after,
                frozenset(seen),
                frozenset(self._entered),
                self._by_way,
                None if apart else self._rounds,
            )
        self._entered |= entered_before
        self._by_way |= by_way_before
        return after

    def _learn(self, state: State[Held], function: str, stmt: ir.Stmt) -> State[Held]:
        """Note what an assignment to a counter decides."""
        counts = self._counts(function)
        if not counts or stmt.kind not in ("assign", "augassign"):
            return state
        known = set(state.known)
        for test, counter in counts.items():
            for name, value, _ in bindings(stmt):
                if name == counter:
                    above = value is None or value not in (ir.Const(0), ir.Const(False))
                    known.add((function, test, above))
        return replace(state, known=frozenset(known))

    def _forget(self, state: State[Held], function: str, stmt: ir.Stmt) -> State[Held]:
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
        return state if kept == state.known else replace(state, known=kept)


def _handed_on(program: Program) -> set[tuple[str, str]]:
    """(scope, name) of variables whose values are more than read and added to: something may be
    taken out, if by another name."""
    found = set()
    for function, stmt in program.all_statements():
        read = {id(target) for target in stmt.targets}
        if stmt.kind == "for":
            read.add(id(stmt.value))
        elif stmt.kind == "delete":
            read.clear()
        for inner in (part for part in parts_of(stmt)):
            match inner:
                case ir.Item(value=value, key=key):
                    is_slice = isinstance(key, ir.Operation) and key.op == "slice"
                    bound = stmt.kind == "delete" or id(inner) in read
                    if not bound or not (is_slice or stmt.kind == "delete"):
                        read.add(id(value))
                case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _GROWING:
                    read.add(id(value))
                case ir.Call(func=func, args=args):
                    origin = program.origin(func, function)
                    if origin in _AS_LONG or origin in _READERS:
                        read.update(id(arg.value) for arg in args)
                case ir.Comprehension(iterables=iterables):
                    read.update(map(id, iterables))
                case ir.Operation(op=op, operands=operands) if op in _TESTS:
                    read.update(map(id, operands))
                case ir.Name() | ir.Attr() if id(inner) not in read:
                    there = program.elsewhere(inner, function)
                    expr, at = there or (inner, function)
                    owner = isinstance(expr, ir.Name) and program.owner(expr.id, at)
                    if isinstance(expr, ir.Name) and owner:
                        found.add((owner, expr.id))
    return found


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


def _plain_test(test: ir.Expr | None) -> tuple[ir.Expr | None, bool]:
    """The test without its negations, and whether it is meant as it stands."""
    outcome = True
    while isinstance(test, ir.Operation) and test.op == "not":
        test, outcome = test.operands[0], not outcome
    if test is None or any(isinstance(e, ir.Call) for e in ir.walk(test)):
        # A call may answer differently the next time.
        return None, True
    return test, outcome


def _around_yield(body: tuple[ir.Stmt, ...], behind: bool) -> tuple[ir.Stmt, ...]:
    """The part of a generator before its ``yield``, or the one behind it."""
    for index, stmt in enumerate(body):
        if not any(map(suspends, ir.statements((stmt,)))):
            continue
        before, after = body[:index], body[index + 1 :]
        for block in reversed(stmt.blocks):
            if any(map(suspends, ir.statements(block.body))):
                before += _around_yield(block.body, False)
                after = _around_yield(block.body, True) + after
            elif block.field in ("orelse", "finalbody"):
                after = block.body + after
        return after if behind else before
    return () if behind else body


def suspends(stmt: ir.Stmt) -> bool:
    """Whether a statement leaves a generator, or a coroutine, for a while."""
    return any(isinstance(inner, ir.Suspend) for inner in parts_of(stmt))


def _jumps(block: tuple[ir.Stmt, ...]) -> bool:
    """Whether a block may be left otherwise than at its end: an exception that waits is dropped there."""
    kinds = {stmt.kind for stmt in ir.statements(block)}
    return not kinds.isdisjoint(("break", "continue", "return"))


def _is_tuple(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Display) and expr.kind == "tuple"


def _is_list(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Comprehension):
        return not expr.lazy
    return isinstance(expr, ir.Display)
