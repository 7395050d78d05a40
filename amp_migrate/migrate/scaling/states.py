"""Where the state of an optimizer goes: a copy that never leaves the memory needs none of the scaler's.

A scale fits gradients of whatever weights there are: a run that goes back to an older state of its
optimizer goes on with the scale that it has found by then. It is a new run, one that reads a file,
whose scaler knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.objects.points_to import COPIES, PointsTo
from amp_migrate.analysis.objects.read_only_uses import only_shows
from amp_migrate.analysis.objects.unfollowed import Mentions, Unfollowed
from amp_migrate.analysis.paths.escapes import Use, Uses
from amp_migrate.migrate.scaling.scaler_threading import Travel
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of, unpacked

_COMPARES = frozenset("is,is not,==,!=,in,not in,not,formattedvalue".split(","))


@dataclass(frozen=True)
class State:
    """A place that has a state. ``sure``: whenever the place is come to, and it is that state."""

    function: str
    stmt: ir.Stmt
    use: Use
    sure: bool = True


class States:
    """Answers for one program."""

    def __init__(self, travel: Travel, mentions: Mentions) -> None:
        self.travel = travel
        self._mentions = mentions
        self.program = travel.program
        self.optimizers = travel.optimizers
        self._uses = Uses(travel.program, travel.optimizers)

    def stays(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """Whether a state that a call takes, or loads, does not leave the memory."""
        if call.args:
            return self.is_kept(function, stmt, call)
        return not self.leaving(function, stmt, call)

    def leaving(self, function: str, stmt: ir.Stmt, call: ir.Call) -> list[State]:
        """Where what ``state_dict()`` gives is put that may leave the memory."""
        found: list[State] = []
        pending = [
            State(function, stmt, way)
            for expr in stmt.exprs
            for way in _ways_to(expr, call)
        ]
        pending = pending or [State(function, stmt, (call, call), False)]
        seen: set[object] = set()
        while pending:
            state = pending.pop(0)
            known = (state.function, state.stmt.path, state.use[-1], state.sure)
            if known not in seen:
                seen.add(known)
                found += self._follow(state, pending)
        return found

    def is_kept(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """Whether a call loads nothing but a state that this run has taken itself, and that no dict
        holds: with what is in one, the scaler's may be."""
        given = call.argument(0, "state_dict")
        if given is None or isinstance(given, ir.Item):
            return False
        points_to = self.program.noted(PointsTo)
        pending = list(points_to.of(given, function, stmt))
        seen = set()
        for one in pending:
            made = one.expr
            if one.key in seen or one.is_none:
                continue
            seen.add(one.key)
            if one.kind != "value" or one.fields or not isinstance(made, ir.Call):
                return False
            if self._copies(made, one.function):
                original = made.args[0].value
                pending += points_to.of(original, one.function, one.stmt, one.context)
            elif ir.method_of(made) != "state_dict":
                return False
        return bool(seen)

    def _copies(self, call: ir.Call, function: str) -> bool:
        return bool(call.args) and self.program.origin(call.func, function) in COPIES

    def _follow(self, at: State, pending: list[State]) -> Iterator[State]:
        """One that leaves there; the places that have it next become pending."""
        use, stmt = at.use, at.stmt
        while len(use) > 1:
            inner, outer = use[-1], use[-2]
            match outer:
                case ir.Call() if self._copies(outer, at.function):
                    pass
                case ir.Call(func=func):
                    params = self._uses.given_to(use, at.function)
                    for param in params:
                        self._read(param, None, replace(at, sure=False), pending)
                    loads = isinstance(func, ir.Attr) and func.attr == "load_state_dict"
                    origin = self.program.origin(func, at.function)
                    if not (params or loads or only_shows(outer, origin)):
                        yield replace(at, use=use)
                    return
                case ir.Operation(op="if" | "or" | "and", operands=operands):
                    if outer.op == "if" and inner is operands[0]:
                        return
                    at = replace(at, sure=False)
                case ir.Operation(op=op) if op in _COMPARES:
                    return
                case ir.Item(key=ir.Const(value="param_groups")):
                    return
                case ir.Item() if outer in stmt.targets:
                    return
                case ir.Display(kind="tuple") if outer is stmt.value:
                    break
                case _:
                    yield replace(at, use=use)
                    return
            use = use[:-1]
        yield from self._bound(replace(at, use=use), pending)

    def _bound(self, at: State, pending: list[State]) -> Iterator[State]:
        """The same of what a statement does with it as a whole."""
        if at.stmt.kind in ("expr", "if", "while", "assert", "delete"):
            return
        if at.stmt.kind == "return" and len(at.use) == 1:
            if self._has_callers_in_sight(at.function):
                for site in self.program.call_sites.get(at.function, ()):
                    pending += [
                        State(site.caller, site.stmt, way, False)
                        for expr in site.stmt.exprs
                        for way in _ways_to(expr, site.call)
                    ]
                return
        targets = [
            (target, index)
            for target, value, index in unpacked(at.stmt)
            if value is at.use[-1]
        ]
        slots = [
            self.optimizers.slot(target, at.function)
            for target, index in targets
            if index is None and isinstance(target, (ir.Name, ir.Attr))
        ]
        if not slots or len(slots) < len(targets) or not all(map(self._holds, slots)):
            yield at
            return
        for slot in slots:
            assert slot is not None
            self._read(slot, at.stmt, at, pending)

    def _has_callers_in_sight(self, function: str) -> bool:
        program = self.program
        facts = program.functions[function]
        return (
            not (facts.is_generator or facts.is_async)
            and function not in program.escaping
            and not program.is_public(function)
            and all(
                program.callees(call, at) or program.origin(call.func, at)
                for at, _, call in program.calls_named(facts.name)
            )
        )

    def _holds(self, slot: Slot | None) -> bool:
        """Whether all that reads a variable or attribute is in sight."""
        if slot is None or slot.key is not None:
            return False
        if slot.kind == "variable":
            return not any(map(self.program.calls_named, ("locals", "globals")))
        held = Unfollowed(
            self._mentions, self.optimizers, frozenset({slot}), frozenset()
        )
        return not (
            self.travel.reads_all(slot.owner)
            or any(held.saved_whole())
            or any(held.handed_to_save())
            or any(
                self._may_be_another_way(inner, slot, function)
                for function, stmt in self.program.mentioning(slot.name)
                for inner in parts_of(stmt)
            )
        )

    def _may_be_another_way(self, expr: ir.Expr, slot: Slot, function: str) -> bool:
        """Whether an attribute is taken by its name in quotes, or of what is one of several objects."""
        match expr:
            case ir.Attr(value=holder, attr=slot.name):
                known = self.optimizers.slot(expr, function)
                return known is None and bool(self.program.resolve(holder, function))
        return expr == ir.Const(slot.name)

    def _read(
        self, slot: Slot, given: ir.Stmt | None, at: State, pending: list[State]
    ) -> None:
        """The places that read what a statement gives a variable or an attribute."""
        for function, stmt, use in self._uses.of(slot):
            if use[0] in stmt.targets and not any(
                isinstance(one, ir.Item) for one in use
            ):
                continue
            sure = False
            if slot.kind == "variable" and function == slot.owner == at.function:
                control = self.program.control(function)
                seen, start = control.reaching(slot.name, stmt.path)
                if given is not None and given not in seen:
                    continue
                sure = at.sure and seen == [given] and not start
                sure = sure and ir.distance(stmt.path, at.stmt.path) is not None
            pending.append(State(function, stmt, use, sure))


def _ways_to(expr: ir.Expr, wanted: ir.Expr) -> Iterator[Use]:
    if expr is wanted:
        yield (expr,)
        return
    for child in ir.children(expr):
        for way in _ways_to(child, wanted):
            yield (expr, *way)
