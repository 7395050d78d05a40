"""Whose gradients a statement touches or drops, told for each of a group's optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import cached_property
from itertools import pairwise

from amp_migrate.analysis.objects.coverage import Coverage, Way
from amp_migrate.analysis.objects.held import Identity, is_unsure
from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.analysis.objects.points_to import RETURNS_SELF, PointsTo
from amp_migrate.analysis.paths.events import Event, Events
from amp_migrate.analysis.paths.identity import Identities
from amp_migrate.analysis.paths.parts import parts_of
from amp_migrate.analysis.paths.walk import Frames, Site
from amp_migrate.program import ir
from amp_migrate.program.link import CallSite, Program

_MAKERS = ("torch.", "torchvision.", "timm.", "transformers.")
"""Libraries whose functions make a module anew each time."""


class Ownership:
    """Answers for the optimizers of one group."""

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        events: Events,
        identities: Identities,
        slots: frozenset[Slot],
        births: Iterable[Birth],
    ) -> None:
        self.program = program
        self.events = events
        self.identities = identities
        self.slots = slots
        births = list(births)
        self._cleared: dict[tuple[Site, Frames], frozenset[Slot]] = {}
        self._coverages = {
            one: Coverage(
                program,
                optimizers,
                frozenset(s for s in slots if one in identities.of_slot(s)),
                [b for b in births if one in identities.of_slot(b.slot)],
            )
            for one in identities.all
        }

    @cached_property
    def in_calls(self) -> dict[Slot, str]:
        """The optimizers that are in a variable of one function, and those that it gives that to, alone."""
        # A function inside may be called when the call around it is over.
        inside = {
            event.slot
            for function, _, event in self.events.calls_of("step")
            if event.slot is not None and event.slot.owner != function
        }
        found: dict[Slot, str] = {}
        for one, coverage in self._coverages.items():
            made = {birth.function for birth in coverage.births}
            own = {slot.owner for slot in coverage.slots if not self._is_given(slot)}
            if own == made and len(own) == 1 and coverage.slots.isdisjoint(inside):
                found[one] = own.pop()
        return found

    def _is_given(self, slot: Slot) -> bool:
        return slot.kind == "variable" and self.program.is_param(slot.owner, slot.name)

    def of_birth(self, one: Slot, birth: Birth) -> Ownership:
        """The same, for one optimizer alone, where a certain birth has made it."""
        found, known = copy(self), self._coverages[one]
        coverage = Coverage(self.program, known.optimizers, known.slots, (birth,))
        found._coverages, found._cleared = {one: coverage}, {}
        return found

    def touched(
        self,
        targets: Iterable[ir.Expr],
        function: str,
        stmt: ir.Stmt,
        frames: Frames,
    ) -> frozenset[Slot] | None:
        """The optimizers that hold what ``targets`` are; None where others may hold some of it."""
        targets = list(targets)
        everybody = frozenset(self._coverages)
        if not targets:
            return everybody
        way = self._calls_on(frames)
        if len(everybody) == 1:
            (coverage,) = self._coverages.values()
            if coverage.owns(targets, function, stmt, way):
                return everybody
            if len(coverage.births) > 1:
                return None
        for one, coverage in self._coverages.items():
            coverage.away = self._away(one, coverage.slots, frames)
        try:
            # What another call has made, and left to nobody, is there no more, or not yet.
            on_way = {at for at, _ in frames}
            present = {
                one: coverage
                for one, coverage in self._coverages.items()
                if not frames or self.in_calls.get(one, function) in on_way
            }
            for those in filter(None, (present, self._coverages)):
                found = [
                    self._owners(one, function, stmt, way, those) for one in targets
                ]
                if None not in found:
                    break
        finally:
            for coverage in self._coverages.values():
                coverage.away = frozenset()
        owners = [one for one in found if one is not None]
        return frozenset().union(*owners) if len(owners) == len(found) else None

    def _away(
        self, one: Slot, slots: frozenset[Slot], frames: Frames
    ) -> frozenset[Slot]:
        """Those slots that hold an optimizer on other ways than this, on which they hold others."""
        return frozenset(
            slot
            for slot in slots
            if len(self.identities.of_slot(slot)) > 1
            and self.identities.on_way(slot, frames).isdisjoint((one, slot))
        )

    def _owners(
        self,
        target: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        way: Way,
        coverages: dict[Slot, Coverage],
    ) -> set[Slot] | None:
        owners: set[Slot] = set()
        several = [
            (one, coverage, coverage.of_target(target, function, stmt, way))
            for one, coverage in coverages.items()
        ]
        # Where none has it as its own groups, it is the same for all.
        _, coverage, found = several[-1]
        for one, its, held in several:
            if held.groups:
                owners.add(one)
                coverage, found = its, held
        if owners and not found.all:
            return owners
        again = {
            one: c.held
            for one, c in coverages.items()
            if c.is_given_again(target, function, c.births)
        }
        if again and all(held.complete and held.all for held in again.values()):
            return {
                one
                for one, c in coverages.items()
                for held in again.values()
                if one in again or any(map(c.may_hold, held.all))
            }
        if not found.complete or not found.all:
            return None
        if any(is_unsure(c.held, found) for c in coverages.values()):
            return None
        for identity in found.all:
            if not _is_covered(coverages, identity, function, stmt, way):
                parts = self._parts(target, function) if len(found.all) == 1 else None
                given = dict(coverage.given_to(identity))
                # A part has the name of what it was given, too.
                inside = [
                    {(*identity, part), given.get(part, (*identity, part))}
                    for part in parts or ()
                ]
                if not inside or not all(
                    any(_is_covered(coverages, one, function, stmt, way) for one in its)
                    for its in inside
                ):
                    return None
            owners |= {one for one, c in coverages.items() if c.may_hold(identity)}
        return owners

    def _parts(self, target: ir.Expr, function: str) -> frozenset[str] | None:
        """The parts of the module whose parameters a target stands for, if all are in sight."""
        match target:
            case ir.Call(func=ir.Attr(value=module, attr="parameters"), args=()):
                classes = self.program.instance_classes(module, function)
                if len(classes) == 1:
                    return parts_of(self.program, next(iter(classes)))
        return None

    def _calls_on(self, frames: Frames) -> dict[str, CallSite]:
        """The call by which a way came into each of its functions."""
        found: dict[str, CallSite] = {}
        for (caller, path), (function, _) in pairwise(frames):
            if function == caller:
                continue
            is_method = self.program.functions[function].self_name is not None
            sites = [
                site
                for site in self.program.call_sites.get(function, ())
                if site.caller == caller and site.stmt.path == path
            ] or [
                CallSite(caller, stmt, event.call, function, is_method)
                for stmt, event in self.events.direct(caller)
                if stmt.path == path and event.maybe and function in event.callees
                if event.call is not None
            ]
            if len(sites) == 1:
                found[function] = sites[0]
        return found

    def cleared(
        self, event: Event, function: str, stmt: ir.Stmt, frames: Frames
    ) -> frozenset[Slot]:
        """The optimizers that a ``zero_grad``, or a loop of that kind, leaves without gradients."""
        if event.slot is not None:
            if event.slot not in self.slots:
                return frozenset()
            found = self.identities.on_way(event.slot, frames)
            several = len(found) > 1 and not self.identities.is_each(event.slot)
            return frozenset() if several else found
        # ``self`` may be a model that an optimizer holds: that is known by the way to the method.
        for known in ((), frames):
            way = (function, stmt.path), known
            if way not in self._cleared:
                targets = self._zeroed_with(event, function, stmt)
                calls = self._calls_on(known)
                self._cleared[way] = self._cleared_by(targets, function, stmt, calls)
            if self._cleared[way]:
                break
        return self._cleared[way]

    def _cleared_by(
        self, targets: tuple[ir.Expr, ...], function: str, stmt: ir.Stmt, way: Way
    ) -> frozenset[Slot]:
        if any(
            isinstance(inner, ir.Attr) and inner.attr == "param_groups"
            for target in targets
            for inner in ir.walk(target)
        ):
            return frozenset(
                one
                for one, coverage in self._coverages.items()
                if coverage.clears(targets, function, stmt)
            )
        # What modules they are is the same for all.
        dropped = [
            (coverage.of_one if way else coverage.of_target)(
                target, function, stmt, way
            )
            for coverage in list(self._coverages.values())[:1]
            for target in targets
        ]
        return frozenset(
            one
            for one, coverage in self._coverages.items()
            if coverage.are_cleared(dropped, function, stmt, way)
        )

    def _zeroed_with(
        self, event: Event, function: str, stmt: ir.Stmt
    ) -> tuple[ir.Expr, ...]:
        """What this statement and its neighbours in the block clear, taken together."""
        targets = list(event.targets)
        for other, found in self.events.direct(function):
            if found.kind == "zero" and found.slot is None:
                if len(other.path) == len(stmt.path):
                    if ir.distance(other.path, stmt.path) is not None:
                        targets += found.targets
        return tuple(targets)

    @property
    def all(self) -> frozenset[Slot]:
        """The optimizers of the group."""
        return frozenset(self._coverages)

    def holders(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> set[Slot]:
        """The optimizers that are known to hold parameters of what an expression stands for."""
        # What objects they are is the same for all.
        first = next(iter(self._coverages.values()), None)
        found = first.identities(expr, function, stmt) if first else ()
        return {
            one
            for one, coverage in self._coverages.items()
            if any(map(coverage.holds_some, found))
        }

    def may_hold(self, target: ir.Expr, function: str, stmt: ir.Stmt) -> set[Slot]:
        """The optimizers that may hold some of what a target stands for."""
        found: set[Slot] = set()
        unsure: set[Slot] = set()
        for one, coverage in self._coverages.items():
            held = coverage.of_target(target, function, stmt, {})
            if not held.complete or not held.all:
                return set(self._coverages)
            if any(map(coverage.may_hold, held.all)):
                found.add(one)
            elif not self._are_apart(coverage, held.all):
                unsure.add(one)
        # What nobody is known to hold may be known to somebody by another name.
        return found or unsure

    def _are_apart(self, coverage: Coverage, others: Iterable[Identity]) -> bool:
        """Whether an optimizer holds what is made elsewhere than some modules; neither makes the other."""
        mine = self._makers(coverage, coverage.held.all)
        theirs = self._makers(coverage, others)
        return (
            bool(mine and theirs and coverage.held.complete)
            and mine.keys().isdisjoint(theirs)
            # A function out of sight may give the same twice.
            and not ("" in mine.values() and "" in theirs.values())
            and not any(
                function in self.events.called_from(init)
                for outer, inner in ((mine, theirs), (theirs, mine))
                for init in filter(None, outer.values())
                for function, _ in inner
            )
        )

    def _makers(
        self, coverage: Coverage, ones: Iterable[Identity]
    ) -> dict[tuple[str, int], str | None]:
        """(function, call) of all that makes some modules, and what they are given, with the ``__init__``
        that is called ("" of a function out of sight); nothing where that is not all in sight.
        """
        program, points_to = self.program, self.program.noted(PointsTo)
        pending: list[tuple[ir.Expr | None, str, ir.Stmt | None]] = []
        for identity in ones:
            bound = coverage.bindings(identity)
            if not bound:
                return {}
            pending += ((b.value, b.function, b.stmt) for b in bound)
        found: dict[tuple[str, int], str | None] = {}
        while pending:
            value, function, stmt = pending.pop()
            copied = value and ir.before_calls(value, RETURNS_SELF)
            if isinstance(copied, ir.Call) and (
                program.origin(copied.func, function) == "copy.deepcopy"
            ):
                found[function, id(copied)] = None
                continue
            made = value and points_to.whole(value, function, stmt, closed=True)
            for one in made or (None,):
                if one is None or not isinstance(one.expr, ir.Call) or one.fields:
                    return {}
                if (one.function, id(one.expr)) in found:
                    continue
                origin = program.origin(one.expr.func, one.function) or ""
                init: str | None = None
                if one.name in program.classes:
                    init = program.method(one.name, "__init__")
                elif not origin.startswith(_MAKERS):
                    init = ""
                found[one.function, id(one.expr)] = init
                pending += (
                    (inner, one.function, one.stmt)
                    for arg in one.expr.args
                    for inner in ir.walk(arg.value)
                    if isinstance(inner, (ir.Name, ir.Attr, ir.Item))
                    and self.events.forward.is_module(inner, one.function)
                )
        return found

    def runs(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> set[Slot]:
        """The optimizers all of whose part in what an expression stands for gets gradients with it:
        they hold it, or a part that its own forward always runs."""
        found: set[Slot] = set()
        for one, coverage in self._coverages.items():
            identities = coverage.identities(expr, function, stmt)
            if len(identities) == 1:
                (identity,) = identities
                if coverage.covers(identity, function, stmt):
                    found.add(one)
                elif coverage.holds_some(identity):
                    parts = coverage.parts_of(identity)
                    if parts and all(
                        self._always_run(expr, function, p) for p in parts
                    ):
                        found.add(one)
        if not found and isinstance(expr, ir.Name):
            for part, at, where in self._in_row(expr, function, stmt):
                found |= self.runs(part, at, where)
        return found

    def _in_row(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt
    ) -> list[tuple[ir.Expr, str, ir.Stmt]]:
        """The modules of which ``nn.Sequential(a, b)`` is made, and where that is: it runs all of them."""
        points_to = self.program.noted(PointsTo)
        made = points_to.whole(expr, function, stmt, closed=True)
        return [
            (arg.value, one.function, one.stmt)
            for one in made[:1]
            if len(made) == 1 and one.stmt is not None and not one.fields
            if isinstance(one.expr, ir.Call)
            and self.program.origin(one.expr.func, one.function)
            == "torch.nn.Sequential"
            for arg in one.expr.args
            if not arg.star
        ]

    def _always_run(self, expr: ir.Expr, function: str, part: str) -> bool:
        """Whether the forward of a module of this program runs a part of it in any case."""
        program = self.program
        for class_name in program.instance_classes(expr, function):
            forward = program.method(class_name, "forward")
            if forward is None:
                return False
            scope = program.functions[forward]
            mentioned = ir.Attr(ir.Name(scope.self_name or "?"), part)
            if not any(
                mentioned in ir.walk(inner)
                for stmt in scope.body
                if not stmt.blocks
                for inner in stmt.exprs
            ):
                return False
        return bool(program.instance_classes(expr, function))

    @property
    def seen(self) -> frozenset[Slot]:
        """The optimizers all of whose parameters are in sight."""
        return frozenset(
            one for one, c in self._coverages.items() if c.held.complete and c.held.all
        )

    def coverages(self, optimizers: Iterable[Slot]) -> list[Coverage]:
        """What each of some optimizers holds."""
        return [self._coverages[one] for one in optimizers if one in self._coverages]


def _is_covered(
    coverages: dict[Slot, Coverage],
    identity: Identity,
    function: str,
    stmt: ir.Stmt,
    way: Way,
) -> bool:
    """Whether one optimizer holds all of a module."""
    return any(c.covers(identity, function, stmt, way) for c in coverages.values())
