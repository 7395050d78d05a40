"""The ways through a program under AMP: who is who on each, which tests agree, what region is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from amp_migrate.analysis.paths.events import Event
from amp_migrate.analysis.paths.walk import Flow, Site, State, Walk, suspends
from amp_migrate.lint.misuse.order import conditions
from amp_migrate.lint.misuse.order.amp import Amp, Key
from amp_migrate.lint.misuse.order.events import AmpEvent, AmpEvents
from amp_migrate.lint.misuse.order.state import Held, Open
from amp_migrate.program import ir
from amp_migrate.program.link import CallSite

_MOST_STEPS = 20_000
_MOST_STATES = 48
_MOST_TESTS = 4
"""On one line; the events of a line that makes more of them are taken to happen all."""
_JUMPS = frozenset(("continue", "break", "return", "raise"))
SCALED_LOSS = "scaled loss"
"""What the key of a parameter begins with that is given a scaled loss; the key of the scaler follows."""
_TEXT = "text"
"""What the key of a parameter begins with that is given a text, which follows."""
_COUNTS = "builtins.enumerate"
_EVERYWHERE = "@"
"""The scope of tests whose names mean the same in every function."""

_TOUCHES = frozenset(
    ("clip", "read", "edit", "descend", "rescale", "numeric", "halve", "widen")
)


@dataclass(frozen=True, slots=True)
class _Fed:
    """A loop over what a generator hands out: its body runs at each ``yield``."""

    generator: str
    function: str
    loop: ir.Stmt
    flow: Flow[Held] = field(default_factory=Flow)


class Ways(Walk[Held]):
    """Walks the ways; what is wrong on them is for `Protocol` to say."""

    events: AmpEvents

    def __init__(self, amp: Amp, events: AmpEvents) -> None:
        super().__init__(amp.program, events, handlers=False)
        self.amp = amp
        self.open: list[Open] = []
        self._bound: list[dict[tuple[str, str], Key | None]] = [{}]
        self._around: list[tuple[str, ir.Stmt]] = []
        self._memo: dict[tuple[object, ...], frozenset[State[Held]]] = {}
        self._steps = 0
        self.walked = 0
        """The statements on all ways from all roots."""
        self._too_many = False
        self._idle: dict[Site, bool] = {}
        self._marking: dict[Site, bool] = {}
        """Whether a loop does more than to look at gradients, or to edit them."""
        self._asked: dict[str, frozenset[str]] = {}
        self._decorated: dict[str, str | None] = {}
        """What functions that decorators have made stand for, on the present way."""
        self._endless: set[tuple[object, ...]] = set()
        """Calls, with what holds when they are made, that were found to have too many ways; functions by
        themselves, a call of which took most of the steps."""
        self._fed: list[_Fed] = []
        """The loops that go through what a generator hands out, innermost last."""
        self._turn: dict[int, tuple[str, ...]] = {}
        """What calls run in the present turn of a loop that goes through objects."""
        self._turns: dict[Site, list[dict[int, tuple[str, ...]]] | None] = {}

    @property
    def is_exhausted(self) -> bool:
        """Whether there are more ways than are followed."""
        return self._too_many or self._steps > _MOST_STEPS

    def walk_from(self, root: str) -> None:
        """Walk a call of a function."""
        self._steps = 0
        self._too_many = False
        self._memo.clear()
        self.run(root)
        self.walked += self._steps

    # -- for subclasses -------------------------------------------------------------------------

    def entering(self, function: str, stmt: ir.Stmt, instance: Key | None) -> None:
        """Told before a region is opened that is an instance made elsewhere."""

    # -- identity -------------------------------------------------------------------------------

    def key(self, expr: ir.Expr | None, function: str) -> Key | None:
        """Which object an expression names on the present way."""
        return None if expr is None else self.amp.key(expr, function, self._bound[-1])

    def _start(self, root: str) -> Held:
        return Held()

    def _goes_into(self, qualname: str) -> bool:
        # What is open stays so around the call: it is not told apart by depth.
        return False

    # -- calls ----------------------------------------------------------------------------------

    def _call(self, event: Event, state: State[Held]) -> set[State[Held]]:
        caller = self._frames[-1][0]
        after: set[State[Held]] = set()
        for callee in self._chosen(event, caller):
            if not self.events.kinds(callee):
                after.add(state)
                continue
            bound, known = self._given(event, callee, caller, state)
            decorated = self._decorated_by(event, callee, caller)
            if decorated is not None:
                inside, told = self._given(event, decorated, caller, state)
                bound, known = {**inside, **bound}, known | told
            tests = self._tests_below(callee)
            shared = frozenset(
                k for k in state.known if k[0] == _EVERYWHERE and _raw(k[1]) in tests
            )
            way = self._way_to(callee)
            key = (callee, state.held, shared | known, way)
            # The loop that a generator feeds tells more than what it comes to.
            fed = bool(self._fed) and self._fed[-1].generator == callee
            if fed or key not in self._memo:
                below = self.events.called_from(callee)
                given = frozenset(b for b in bound.items() if b[0][0] in below)
                again = (callee, state.held, shared | known, given)
                if self._too_many or not self._endless.isdisjoint((again, (callee,))):
                    # The engine that all roots of a program hand their steps to is given up once.
                    self._too_many = True
                    return {state}
                self._bound.append(bound)
                outer = self._decorated.get(callee)
                if decorated is not None:
                    self._decorated[callee] = decorated
                entered = State(state.held, shared | known)
                before = self._steps
                self._memo[key] = frozenset(self._function(callee, {entered}))
                self._bound.pop()
                self._decorated[callee] = outer
                if self._too_many:
                    self._endless.add(again)
                if self._steps - before > _MOST_STEPS // 2:
                    self._endless.add((callee,))
            own = state.known - shared
            after |= {
                State(s.held, own | {k for k in s.known if k[0] == _EVERYWHERE})
                for s in self._memo[key]
            }
        return after

    def _chosen(self, event: Event, caller: str) -> tuple[str, ...]:
        """What a call runs on this way: a decorator's function calls the one that it stands for."""
        if id(event.call) in self._turn:
            return self._turn[id(event.call)]
        match event.call:
            case ir.Call(func=ir.Call(args=(_, ir.Arg(value=ir.Name(id=name)), *_))):
                # getattr(hook, name)(): by the name that the present way gives.
                given = self._bound[-1].get((caller, name)) or ("",)
                if given[0] == _TEXT:
                    functions = self.program.functions
                    return tuple(
                        c for c in event.callees if functions[c].name == given[1]
                    )
        decorated = self._decorated.get(caller)
        return (decorated,) if decorated in event.callees else event.callees

    def _decorated_by(self, event: Event, callee: str, caller: str) -> str | None:
        """The function that a decorator's stands for in a call."""
        if event.call is None:
            return None
        said = self.program.callees(event.call, caller)
        found = [one for one in said if self.events.wrapped.stands_in(one) == callee]
        return found[0] if len(found) == 1 else None

    def _tests_below(self, function: str) -> frozenset[str]:
        """The tests that a function makes, or one that it calls."""
        if function not in self._asked:
            self._asked[function] = frozenset(
                test
                for one in self.events.called_from(function)
                if self.events.kinds(one)
                for test in self._tests_of(one)
            )
        return self._asked[function]

    def _tests_of(self, function: str) -> set[str]:
        return {
            test
            for stmt in self.program.statements(function)
            for test in self._tests_in(function, stmt)
        }

    def _tests_in(self, function: str, stmt: ir.Stmt) -> set[str]:
        """The tests that a statement makes, or that decide between the events on its line."""
        made = [stmt.value] if stmt.kind == "if" and stmt.value else []
        made += {test for _, tests in self._guards(function, stmt) for test, _ in tests}
        return {
            _raw(test)
            for one in made
            for outcome in (True, False)
            for test, _ in conditions.facts(one, outcome)
        }

    def _guards(
        self, function: str, stmt: ir.Stmt
    ) -> list[tuple[Event, tuple[conditions.Fact, ...]]]:
        """The events on a statement's line, each with the tests on that line that let it happen."""
        events = self.events.of(function, stmt)
        tests = {
            id(call): found
            for expr in (stmt.exprs if events else ())
            for call, found in conditions.guarded(expr)
        }
        return [(event, tests.get(id(event.call), ())) for event in events]

    def _given(
        self, event: Event, callee: str, caller: str, state: State[Held]
    ) -> tuple[dict[tuple[str, str], Key | None], frozenset[tuple[str, ir.Expr, bool]]]:
        """What a call gives to parameters: which objects, and what is known of their truth."""
        bound = dict(self._bound[-1])
        known = set()
        if event.call is None or event.handed_on:
            return bound, frozenset()
        site = CallSite(
            caller,
            self._around[-1][1],
            event.call,
            callee,
            self.program.fills_self(event.call, callee, caller),
        )
        starred = any(arg.star for arg in event.call.args)
        for index, param in enumerate(self.program.functions[callee].params):
            if site.bound_self and index == 0:
                own = ir.Name(param.name)
                if isinstance(event.call.func, ir.Attr) and (
                    self.events.is_scaler(own, callee)
                    or self.amp.is_one_of_several(own, callee)
                ):
                    bound[callee, param.name] = self.key(event.call.func.value, caller)
                continue
            value = self.program.argument_at(site, param.name)
            if value is None and not starred:
                value = param.default
            if starred and value is None and self._decorated.get(caller) == callee:
                # What a decorator's function was given, it hands on.
                continue
            if value is None:
                bound.pop((callee, param.name), None)
                continue
            if not self.program.definitions(callee, param.name):
                bound[callee, param.name] = self._key_given(value, caller)
            truth = self._truth(value, caller, state)
            if truth is not None and not self.program.definitions(callee, param.name):
                key = bound[callee, param.name]
                known.add(
                    (callee, ir.Name(param.name), truth)
                    if key is None
                    else (_EVERYWHERE, _named(key), truth)
                )
        return bound, frozenset(known)

    def _key_given(self, value: ir.Expr, function: str) -> Key | None:
        """What an argument names; a loss that a scaler has scaled is named by the scaler."""
        scaler = self.events.scaled_by(value, self._around[-1][1], function)
        if scaler is not None:
            return (SCALED_LOSS, *(self.key(scaler, function) or ()))
        if isinstance(value, ir.Const) and isinstance(value.value, str):
            return (_TEXT, value.value)
        found = self.key(value, function)
        if found is None and self.events.may_be_scaled(value, function):
            return (SCALED_LOSS,)
        return found

    def _truth(self, value: ir.Expr, function: str, state: State[Held]) -> bool | None:
        if isinstance(value, ir.Const):
            return bool(value.value)
        if self.amp.is_always_scaler(value, function):
            return True
        here = self._known(function, state)
        test, holds = conditions.plain(self._shared(value, function)[1])
        for outcome in (True, False):
            if (test, outcome is holds) in here:
                return outcome
        return None

    def _function(
        self, qualname: str, states: Iterable[State[Held]]
    ) -> set[State[Held]]:
        scope = self.program.functions[qualname]
        # What a call of these makes is something that runs later.
        fed = bool(self._fed) and self._fed[-1].generator == qualname
        if (scope.is_generator and not fed) or scope.is_async:
            return set(states)
        depth = len(self.open)
        for decorator in scope.decorators:
            region = self.amp.entered(decorator, scope.parent or qualname)
            if region is not None:
                self.open.append(Open(region, (qualname, scope.path)))
        found = super()._function(qualname, states)
        return self._outside(depth, found, len(self.open) > depth)

    def _outside(
        self, depth: int, states: set[State[Held]], restores: bool, *stacks: Key | None
    ) -> set[State[Held]]:
        """End what was opened above a depth, with what calls have entered in there, or in these stacks."""
        del self.open[depth:]
        left = set()
        for state in states:
            if state.held.entered:
                held = state.held.outside(depth, restores)
                for stack in stacks:
                    if any(one.instance == stack for one in held.entered):
                        held = held.leaving_region(stack)
                state = State(held, state.known)
            left.add(state)
        return left

    # -- statements -----------------------------------------------------------------------------

    def _stmt(
        self,
        function: str,
        stmt: ir.Stmt,
        states: set[State[Held]],
        entered: bool = False,
    ) -> Flow[Held]:
        self._steps += 1
        if self.is_exhausted:
            return Flow(after=states)
        if self._does_nothing(function, stmt):
            after = states
            for inner in ir.statements((stmt,)):
                if inner.targets:
                    after = {self._forget(state, function, inner) for state in after}
            if not stmt.blocks:
                after = {self._learn(state, function, stmt) for state in after}
            return Flow(after=after)
        self._around.append((function, stmt))
        flow = super()._stmt(function, stmt, states, entered)
        self._around.pop()
        return flow

    def _does_nothing(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement, with all inside it, has nothing to do with the protocol."""
        site = (function, stmt.path)
        if site not in self._idle:
            yields = self.program.functions[function].is_generator
            self._idle[site] = not any(
                inner.kind in _JUMPS
                or self.events.of(function, inner)
                or (yields and suspends(inner))
                for inner in ir.statements((stmt,))
            )
        return self._idle[site]

    def _inner(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Flow[Held]:
        if stmt.kind == "with" and any(map(_expects_failure, stmt.exprs)):
            return Flow(after=states)
        depth = len(self.open)
        site = (function, stmt.path)
        if stmt.kind in ("for", "while"):
            self.open.append(Open(None, site))
        elif stmt.kind == "with":
            for expr in stmt.exprs[: len(stmt.exprs) - len(stmt.targets)]:
                region = self.amp.entered(expr, function)
                if region is None:
                    continue
                instance = None
                if self.amp.is_shared(expr, function):
                    instance = self.key(expr, function)
                    self.entering(function, stmt, instance)
                self.open.append(Open(region, site, instance))
        restores = stmt.kind == "with" and len(self.open) > depth
        flow = super()._inner(function, stmt, states)
        if self._fed and self._fed[-1].generator == function and suspends(stmt):
            flow.after = self._handed_out(stmt, flow.after)
        managers = (*stmt.targets, *stmt.exprs) if stmt.kind == "with" else ()
        stacks = [self.key(one, function) for one in managers]
        for name in ("after", "breaks", "continues", "returns"):
            left = self._outside(depth, getattr(flow, name), restores, *stacks)
            setattr(flow, name, left)
        # A function that has no update of its own leaves none out.
        skips = stmt.kind == "return" and "update" in self.events.kinds(function)
        if stmt.kind in ("continue", "break") or skips:
            for name in ("continues", "breaks", "returns"):
                setattr(flow, name, self._left(site, getattr(flow, name)))
        return flow

    def _managed(
        self, function: str, stmt: ir.Stmt, kind: str, states: set[State[Held]]
    ) -> set[State[Held]]:
        if not states:
            return states
        bound, known = self._bound[-1], frozenset[tuple[str, ir.Expr, bool]]()
        for event in self.events.of(function, stmt):
            for callee in event.callees if event.kind == kind else ():
                given = self._given(event, callee, function, next(iter(states)))
                bound, known = {**bound, **given[0]}, known | given[1]
        self._bound.append(bound)
        entered = {State(one.held, one.known | known) for one in states}
        after = super()._managed(function, stmt, kind, entered)
        self._bound.pop()
        return {State(one.held, one.known - known) for one in after}

    def _left(self, site: Site, states: set[State[Held]]) -> set[State[Held]]:
        # Where only some are waiting for an update here, a condition that is not read may decide.
        if not all(state.held.status for state in states):
            return states
        return {State(s.held.leaving(site), s.known) for s in states}

    def _again(
        self, function: str, loop: ir.Stmt, states: set[State[Held]]
    ) -> set[State[Held]]:
        site = (function, loop.path)
        if site not in self._marking:
            self._marking[site] = any(
                not self._brings(event) <= _TOUCHES
                for inner in ir.statements((loop,))
                for event in self.events.of(function, inner)
            )
        if not self._marking[site]:
            # What was done before it was not done in an earlier turn of it.
            return states
        return {State(s.held.around(site), s.known) for s in states}

    def _brings(self, event: Event) -> frozenset[str]:
        """The kinds of event that come with one: what a call does."""
        called = frozenset[str]().union(*map(self.events.kinds, event.callees))
        return called if event.callees else frozenset((event.kind,))

    def _never_empty(self, iterable: ir.Expr | None, function: str) -> bool:
        # A loop that has nothing to do is no witness of anything.
        return True

    def _handed_out(self, stmt: ir.Stmt, states: set[State[Held]]) -> set[State[Held]]:
        """What the loop that a generator feeds does with what it hands out at a statement."""
        fed = self._fed.pop()
        given = stmt.value if stmt.kind == "expr" else None
        target = fed.loop.targets[0]
        if isinstance(fed.loop.value, ir.Call) and isinstance(target, ir.Display):
            if self.program.origin(fed.loop.value.func, fed.function) == _COUNTS:
                target = target.items[-1]
        if isinstance(target, ir.Name) and isinstance(given, ir.Suspend):
            if given.value is not None:
                value = self._key_given(given.value, fed.generator)
                self._bound[-1][fed.function, target.id] = value
        flow = self._block(fed.function, fed.loop.blocks[0].body, states)
        fed.flow.breaks |= flow.breaks
        fed.flow.returns |= flow.returns
        self._fed.append(fed)
        return flow.after | flow.continues

    def _loop(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Flow[Held]:
        for event in self.events.of(function, stmt) if stmt.kind == "for" else ():
            generator = event.callees[0] if len(event.callees) == 1 else ""
            if generator and self.program.functions[generator].is_generator:
                fed = _Fed(generator, function, stmt)
                self._fed.append(fed)
                ended = self._line(function, stmt, states)
                self._fed.pop()
                left = self._block(function, _orelse(stmt), ended)
                left.after |= fed.flow.breaks
                left.returns |= fed.flow.returns
                return left
        turns = self._turns_of(function, stmt)
        if turns is None:
            return super()._loop(function, stmt, states)
        outer = self._turn
        whole: Flow[Held] = Flow(after=self._line(function, stmt, states))
        for turn in turns:
            self._turn = outer | turn
            flow = self._block(function, stmt.blocks[0].body, whole.after)
            whole.after = flow.after | flow.continues
            whole.breaks |= flow.breaks
            whole.returns |= flow.returns
        self._turn = outer
        return Flow(after=whole.after | whole.breaks, returns=whole.returns)

    def _turns_of(
        self, function: str, loop: ir.Stmt
    ) -> list[dict[int, tuple[str, ...]]] | None:
        """What the calls of objects that a loop goes through run, turn by turn; one turn for all where
        their order is not in sight. None for any other loop."""
        if loop.kind != "for":
            return None
        site = function, loop.path
        if site not in self._turns:
            found = {
                id(event.call): turns
                for inner in ir.statements(loop.blocks[0].body)
                for event in self.events.of(function, inner)
                if event.kind == "call" and event.call is not None
                if any(map(self.events.kinds, event.callees))
                for turns in (self.events.wrapped.in_turn(event.call, loop, function),)
                if turns is not None
            }
            lengths = {len(turns) for turns in found.values()}
            count = lengths.pop() if len(lengths) == 1 else 0
            self._turns[site] = (
                [
                    {call: turns[i] for call, turns in found.items()}
                    for i in range(count)
                ]
                or [{}]
                if found
                else None
            )
        return self._turns[site]

    def _goes_through(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a ``for`` goes through optimizers, each of which has its turn once."""
        names = {name for target in stmt.targets for name in ir.names_in(target)}
        return any(
            isinstance(event, AmpEvent)
            and event.subject is not None
            and event.kind in ("step", "unscale", "plain step", "zero")
            and any(
                isinstance(part, ir.Name) and part.id in names
                for part in ir.walk(event.subject)
            )
            for inner in ir.statements(stmt.blocks[0].body)
            for event in self.events.of(function, inner)
        )

    def _joined(self, states: set[State[Held]]) -> set[State[Held]]:
        if len(states) <= _MOST_STATES:
            return states
        self._too_many = True
        return set(sorted(states, key=repr)[:1])

    def region(self, held: Held) -> Open | None:
        """The region that is on here."""
        around = [i for i, one in enumerate(self.open) if one.region is not None]
        innermost = self.open[around[-1]] if around else None
        if held.entered and held.entered[-1].depth > (around or [-1])[-1]:
            innermost = held.entered[-1]
        if innermost is None or innermost.region is None:
            return None
        return None if innermost.region.enabled is False else innermost

    def steadily(self, loops: frozenset[Site]) -> bool:
        """Whether the present statement is met in each turn of some loops, as far as tests go that
        have to do with what the loops change."""
        sites = [(function, stmt.path) for function, stmt in self._around]
        inside = [index for index, site in enumerate(sites) if site in loops]
        if not inside:
            return False
        bound = {
            name.id
            for index in inside
            for inner in ir.statements((self._around[index][1],))
            for target in inner.targets
            for name in ir.walk(target)
            if isinstance(name, ir.Name)
        }
        home = self._around[inside[0]][0]
        for function, stmt in self._around[inside[0] + 1 : -1]:
            if stmt.kind in ("try", "trystar", "match"):
                return False
            if stmt.kind != "if" or stmt.value is None:
                continue
            if self.events.is_scaler(conditions.plain(stmt.value)[0], function):
                continue
            for part in ir.walk(stmt.value):
                if isinstance(part, ir.Call):
                    return False
                if isinstance(part, ir.Name) and (function != home or part.id in bound):
                    return False
        return True

    # -- tests ----------------------------------------------------------------------------------

    def _where(
        self, test: ir.Expr, outcome: bool, states: set[State[Held]], function: str
    ) -> set[State[Held]]:
        scoped = self._shared(test, function)[1]
        learnt = frozenset(
            (self._scope(fact, function), fact, holds)
            for fact, holds in conditions.facts(scoped, outcome)
            if self._matters[_raw(fact)] > 1
        )
        return {
            replace(state, known=state.known | learnt)
            for state in states
            if conditions.may_be(scoped, outcome, self._known(function, state))
        }

    def _alternatives(
        self, function: str, stmt: ir.Stmt, states: set[State[Held]]
    ) -> Iterator[tuple[set[State[Held]], tuple[Event, ...]]]:
        guards = self._guards(function, stmt)
        tests = list(dict.fromkeys(test for _, tests in guards for test, _ in tests))
        if len(tests) > _MOST_TESTS:
            tests = []
        for outcomes in product((True, False), repeat=len(tests)):
            chosen = dict(zip(tests, outcomes, strict=True))
            entering = states
            for test, outcome in chosen.items():
                entering = self._where(test, outcome, entering, function)
            yield entering, tuple(
                event
                for event, found in guards
                if all(chosen.get(test, outcome) is outcome for test, outcome in found)
            )

    def _learn(self, state: State[Held], function: str, stmt: ir.Stmt) -> State[Held]:
        """Note what an assignment to a flag decides."""
        if stmt.kind != "assign" or not isinstance(stmt.value, ir.Const):
            return state
        flags = [self._shared(target, function)[1] for target in stmt.targets]
        facts = {
            (self._scope(flag, function), flag, bool(stmt.value.value))
            for flag in flags
            if self._matters[_raw(flag)]
        }
        return replace(state, known=state.known | facts)

    def _forget(self, state: State[Held], function: str, stmt: ir.Stmt) -> State[Held]:
        if not state.known or not stmt.targets:
            return state
        bound = {
            self._shared(inner, function)[1]
            for target in stmt.targets
            for inner in _changed(target)
        }
        kept = frozenset(
            known
            for known in state.known
            if known[0] not in (function, _EVERYWHERE)
            or bound.isdisjoint(ir.walk(known[1]))
        )
        return state if kept == state.known else replace(state, known=kept)

    def _known(self, function: str, state: State[Held]) -> frozenset[conditions.Fact]:
        return frozenset(
            (test, outcome)
            for scope, test, outcome in state.known
            if scope in (function, _EVERYWHERE)
        )

    @cached_property
    def _matters(self) -> Mapping[str, int]:
        """In how many places each test is made by functions that do anything."""
        count: Counter[str] = Counter()
        for qualname in self.events.read:
            if not self.events.kinds(qualname):
                continue
            body = self.program.functions[qualname].body
            for stmt in ir.statements(body):
                if not self._does_nothing(qualname, stmt):
                    count.update(self._tests_in(qualname, stmt))
        return count

    def _scope(self, test: ir.Expr, function: str) -> str:
        names = [inner.id for inner in ir.walk(test) if isinstance(inner, ir.Name)]
        shared = bool(names) and all(name.startswith(_EVERYWHERE) for name in names)
        return _EVERYWHERE if shared else function

    def _shared(self, expr: ir.Expr, function: str) -> tuple[bool, ir.Expr]:
        """A test in the words of all functions: names that come from elsewhere are told by what they
        stand for."""
        match expr:
            case ir.Name(id=name):
                own = self.program.self_class(function)
                if own is not None and name == own[0]:
                    family = min(self.program.family(own[1]), default=own[1])
                    return True, ir.Name(f"{_EVERYWHERE}{family}")
                owner = self.program.owner(name, function)
                key = self._bound[-1].get((owner or "", name))
                if key is None and owner is not None and ir.is_top(owner):
                    if function != owner:
                        key = ("variable", owner, name)
                if key is not None:
                    return True, _named(key)
                return False, expr
            case ir.Attr(value=value, attr=attr):
                return True, ir.Attr(self._shared(value, function)[1], attr)
            case ir.Operation(op=op, operands=operands):
                parts = tuple(self._shared(o, function)[1] for o in operands)
                return True, ir.Operation(op, parts)
        return False, expr


def _orelse(loop: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return next((b.body for b in loop.blocks if b.field == "orelse"), ())


def _changed(target: ir.Expr) -> Iterator[ir.Expr]:
    """The variables and attributes whose values a target changes."""
    match target:
        case ir.Name() | ir.Attr():
            yield target
        case ir.Item(value=value):
            yield from _changed(value)
        case _:
            for child in ir.children(target):
                yield from _changed(child)


def _expects_failure(context: ir.Expr) -> bool:
    """Whether what stands inside is a test's example of what must raise."""
    return isinstance(context, ir.Call) and (
        (ir.key_of(context.func) or "").rpartition(".")[2]
        in ("raises", "assertRaises", "assertRaisesRegex")
    )


def _named(key: Key) -> ir.Name:
    """What an object is called in the tests of every function."""
    return ir.Name(_EVERYWHERE + "/".join(key))


def _raw(test: ir.Expr) -> str:
    """What a test looks like in every function: the last name of each part."""
    match test:
        case ir.Name(id=name):
            return name.rpartition("/")[2] if name.startswith(_EVERYWHERE) else name
        case ir.Attr(attr=attr):
            return attr
        case ir.Operation(op=op, operands=operands):
            return f"{op}({','.join(map(_raw, operands))})"
    return repr(test)
