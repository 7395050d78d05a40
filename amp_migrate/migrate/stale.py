"""Models that are made anew behind the birth of their optimizer, which goes on holding the old ones.

A plain optimizer skips parameters without gradients. A scaler that finds none at all raises, and one
that finds some leaves those of the new layers scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.paths.events import Event, Events
from amp_migrate.analysis.paths.identity import Identities
from amp_migrate.analysis.paths.loops import refused
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.paths.walk import Frames, Known, Site, State, Walk
from amp_migrate.core.closure import reached
from amp_migrate.migrate.made_anew import changes, made_anew, thaws
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, unpacked
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

_SUPER = ir.Call(ir.Name("super"), ())
_READING = frozenset("access exchange rescale mixture".split())
_Held = tuple[frozenset[Slot], frozenset[Slot]]
"""The optimizers that are born, and those of which a model was made anew since."""


class Stale(Walk[_Held]):
    """Walks a program and finds a step of an optimizer whose model was made anew."""

    def __init__(
        self,
        program: Program,
        events: Events,
        forward: Forward,
        identities: Identities,
        ownership: Ownership,
        live: Live | None,
        files: frozenset[str],
    ) -> None:
        super().__init__(program, events, handlers=False, live=live, files=files)
        self.forward = forward
        self.identities = identities
        self.found: tuple[ir.Stmt, str, str] | None = None
        self._made: dict[Site, dict[Slot, Definition]] = {}
        """The statements that make a model anew, or a part of one, and whose it is."""
        self._last: dict[Slot, Definition] = {}
        """What was made anew last on the way."""
        self._births: dict[Site, set[Slot]] = {}
        # What thaws beside the optimizer's own takes nothing from these: it matters where gradients are read.
        reads = any(
            event.kind in _READING
            for function in program.functions
            if ir.file_of(function) in files
            for _, event in events.direct(function)
        )
        for one in identities.all:
            for coverage in ownership.coverages((one,)):
                for birth in coverage.births:
                    self._births.setdefault((birth.function, birth.path), set()).add(
                        one
                    )
                for made in made_anew(program, forward, coverage, reads):
                    if self._is_frozen(made):
                        continue
                    site = made.function, made.stmt.path
                    self._made.setdefault(site, {})[one] = made
        self._within = self._quietly_called()
        self._local = ownership.in_calls if self._made else {}
        self._sites: dict[Site, set[Site]] = {}

    def _is_frozen(self, made: Definition) -> bool:
        """Whether what is made gets no gradients: its block says so behind it, and nothing takes it back."""
        if any(
            self.live is None or self.live.runs(function)
            for function, _, _, thawed in self.program.noted(changes)
            if thawed
        ):
            return False
        block = self.program.control(made.function).block(made.stmt.path)
        later = (stmt for stmt in block if stmt.path > made.stmt.path)
        behind = list(takewhile(_leads_on, later))
        targets = [target for target, _, _ in unpacked(made.stmt)]
        return bool(targets) and all(
            any(self._freezes(stmt, target, made.function) for stmt in behind)
            for target in targets
        )

    def _freezes(self, stmt: ir.Stmt, model: ir.Expr, function: str) -> bool:
        """Whether a statement takes the gradients of a model, itself or by the function that it calls."""
        match stmt:
            case ir.Stmt(
                kind="for",
                targets=(ir.Name() as each,),
                value=ir.Call(func=ir.Attr(value=whose, attr="parameters"), args=()),
                blocks=(ir.Block(body=(inner,)),),
            ) if (
                whose == model
            ):
                return self._takes(inner, each)
            case ir.Stmt(kind="expr", value=ir.Call(args=args) as call):
                return self._takes(stmt, model) or (
                    [arg.value for arg in args] == [model]
                    and bool(called := self.program.callees(call, function))
                    and all(map(self._is_freezing, called))
                )
        return False

    def _is_freezing(self, function: str) -> bool:
        """Whether a function takes the gradients of what it is given, whatever that is."""
        facts = self.program.functions[function]
        given = ir.Name(facts.params[0].name if facts.params else "")
        return facts.self_name is None and any(
            self._freezes(stmt, given, function)
            for stmt in takewhile(_leads_on, facts.body)
        )

    @staticmethod
    def _takes(stmt: ir.Stmt, whose: ir.Expr) -> bool:
        """``whose.requires_grad = False``, or ``whose.requires_grad_(False)``."""
        wanted = ir.Attr(whose, "requires_grad"), ir.Attr(whose, "requires_grad_")
        match stmt:
            case ir.Stmt(kind="assign", targets=(target,), value=ir.Const(value=False)):
                return target == wanted[0]
            case ir.Stmt(
                kind="expr",
                value=ir.Call(func=func, args=(ir.Arg(value=ir.Const(value=False)),)),
            ):
                return func == wanted[1]
        return False

    def judge(self, roots: Iterable[str]) -> None:
        """Raise `Blocked` where a step may be one of an optimizer that does not hold what is trained."""
        for root in roots if self._made else ():
            if self._can_run(root):
                self.run(root)
        if self.found is not None:
            stmt, function, name = self.found
            message = f"{name} is made again here, and the optimizer of the old one goes on stepping"
            if any(thaws(stmt)):
                message = "parameters get gradients again here that the optimizer may not hold"
            raise refused("AMP011", message, ir.Line(stmt.line, ir.file_of(function)))

    def _start(self, root: str) -> _Held:
        return frozenset(), frozenset()

    def _once(self, qualname: str, states: Iterable[State[_Held]]) -> set[State[_Held]]:
        """A call has variables of its own: what an earlier one had there is gone."""
        gone = {one for one, function in self._local.items() if function == qualname}
        if not gone or ir.is_top(qualname) or qualname in self._active:
            return super()._once(qualname, set(states))
        return super()._once(
            qualname,
            {State((s.held[0] - gone, s.held[1] - gone), s.known) for s in states},
        )

    def _on_line(
        self, function: str, stmt: ir.Stmt, states: set[State[_Held]]
    ) -> set[State[_Held]]:
        here = function, stmt.path
        if not stmt.targets and here in self._births:  # `train(model, SGD(..))`
            is_param = self.program.is_param
            given = {o for o in self._births[here] if is_param(o.owner, o.name)}
            states = {self._born(s, given) for s in states}
        if here not in self._sites:
            self._sites[here] = self._sites_on(function, stmt)
        sites = self._sites[here]
        touched = {one for site in sites for one in self._made.get(site, ())}
        # What is put into a collection is born without an event; not before what a call makes it of.
        kept = {
            o
            for o in self._births.get(here, ())
            if o.key is not None and not o.is_many
            if not self._is_made_within(o, function, stmt)
        }
        if not touched:
            return {self._born(s, kept) for s in states} if kept else states
        if any(touched & s.held[0] for s in states):
            for site in sorted(sites, reverse=True):  # The first is told.
                self._last |= self._made.get(site, {})
        return {
            self._born(State((born, stale | (touched & born)), s.known), kept)
            for s in states
            for born, stale in (s.held,)
        }

    def _is_made_within(self, one: Slot, function: str, stmt: ir.Stmt) -> bool:
        """Whether what a statement calls makes the model that an optimizer is given."""
        makers = {site[0] for site, made in self._made.items() if one in made}
        return any(
            not makers.isdisjoint(self.events.called_from(callee))
            for call in calls_of(stmt)
            for callee in self.program.callees(call, function)
        )

    def _joined(self, states: set[State[_Held]]) -> set[State[_Held]]:
        """What becomes of one optimizer does not depend on the others: one state tells it of all ways."""
        if len(states) < 2:
            return states
        met: dict[frozenset[Known], _Held] = {}
        for state in states:
            born, stale = met.get(state.known, (frozenset(), frozenset()))
            met[state.known] = (born | state.held[0], stale | state.held[1])
        return {State(held, known) for known, held in met.items()}

    def _sites_on(self, function: str, stmt: ir.Stmt) -> set[Site]:
        """A statement, with those that run when it is left to functions that a walk does not enter."""
        sites = {(function, stmt.path)}
        for call in calls_of(stmt):
            callees = self.program.callees(call, function)
            for callee in callees or self._named(call):
                if not self.events.kinds(callee):
                    sites |= self._within.get(callee, set())
        return sites & self._made.keys()

    def _named(self, call: ir.Call) -> Iterator[str]:
        """The methods that a call on what is not followed may run: ``nets[0].grow()``."""
        match call.func:
            case ir.Attr(attr=name):
                pass
            case ir.Call(ir.Name("getattr"), (_, ir.Arg(ir.Const(str(name))), *_)):
                pass
            case _:
                return
        for function in (
            () if hasattr(list, name) or hasattr(dict, name) else self._within
        ):
            facts = self.program.functions[function]
            if facts.name == name and facts.class_name is not None:
                yield function

    def _event(
        self, event: Event, state: State[_Held], function: str, stmt: ir.Stmt
    ) -> State[_Held]:
        if event.kind == "birth":
            return self._born(state, self._births.get((function, stmt.path), set()))
        _, stale = state.held
        if event.kind != "step" or event.slot is None:
            return state
        found = self.identities.on_way(event.slot, self._way)
        if found & stale and self.found is None:
            made = next(self._last[one] for one in self._last if one in found & stale)
            self.found = made.stmt, made.function, _name(made)
        return state

    @staticmethod
    def _born(state: State[_Held], new: set[Slot]) -> State[_Held]:
        born, stale = state.held
        return State((born | new, stale - new), state.known)

    def _way_to(self, callee: str) -> Frames:
        asked = callee in self._within or "step" in self.events.kinds(callee)
        return tuple(self._frames) if asked and len(self.identities.all) > 1 else ()

    def _quietly_called(self) -> dict[str, set[Site]]:
        """What the functions that a walk does not enter make anew, those that they call included."""
        found: dict[str, set[Site]] = {}
        for site, made in self._made.items():
            own = all(self._is_own(one) for one in made.values())
            for function, _ in reached(((site[0], own),), self._quiet_callers):
                found.setdefault(function, set()).add(site)
        return found

    def _is_own(self, made: Definition) -> bool:
        """Whether what changes is the object whose method does it."""
        me = self.program.functions[made.function].self_name
        match made.stmt:
            case ir.Stmt(targets=(), value=ir.Call(ir.Attr(value=changed))):
                roots = {_root(changed)}
            case ir.Stmt(targets=(), value=ir.Call(args=(changed, *_))):
                roots = {_root(changed.value)}
            case stmt:
                roots = {_root(target) for target, _, _ in unpacked(stmt)}
        return me is not None and roots == {ir.Name(me)}

    def _quiet_callers(self, called: tuple[str, bool]) -> Iterator[tuple[str, bool]]:
        """Who calls a function; ``own``: on the object that changes all along. What a constructor changes of
        its object changes nothing that was there."""
        function, own = called
        for site in self.program.call_sites.get(function, ()):
            caller = self.program.functions[site.caller]
            by = _root(site.call.func)
            same = own and by in (ir.Name(caller.self_name or "?"), _SUPER)
            if not (same and caller.name == "__init__"):
                yield site.caller, same


def _root(expr: ir.Expr) -> ir.Expr:
    """What attributes and elements are taken out of."""
    while isinstance(expr, (ir.Attr, ir.Item)):
        expr = expr.value
    return expr


def _leads_on(stmt: ir.Stmt) -> bool:
    """Whether what stands behind a statement is run after it."""
    kinds = {inner.kind for inner in ir.statements((stmt,))}
    return stmt.kind in ("assign", "expr", "for") and not kinds & {"return", "raise"}


def _name(made: Definition) -> str:
    for target, _, _ in unpacked(made.stmt):
        if isinstance(target, (ir.Name, ir.Attr, ir.Item)):
            return ir.render(target) or "a layer"
    return "a layer"
