"""Steps that may find no gradients: a scaler raises there, where the optimizer alone does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from amp_migrate.analysis.objects.collections import path_of
from amp_migrate.analysis.objects.optimizers import Birth, Slot
from amp_migrate.analysis.paths.association import Scalers, goes_through
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.loops import Backward, refused
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.paths.walk import Site
from amp_migrate.migrate.regions.reach import Reach
from amp_migrate.migrate.regions.regions import Run
from amp_migrate.migrate.scaling.placement import Steps
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program

LossForward = tuple[Backward, Sequence[Run]]
"""A backward, and where the forward of its loss is computed."""


class Guards:
    """Judges the steps of several optimizers; a lone one is taken to get what its loss gives."""

    def __init__(
        self,
        program: Program,
        events: Events,
        reach: Reach,
        ownership: Ownership,
        scalers: Scalers,
        is_apart: Callable[[str, str], bool],
    ) -> None:
        """``is_apart``: of a method, another that never runs on its objects, nor does anything with them."""
        self.is_apart = is_apart
        self.program = program
        self.events = events
        self.reach = reach
        self.ownership = ownership
        self.scalers = scalers
        self.identities = scalers.identities

    def find(self, steps: Steps, forwards: Sequence[LossForward]) -> frozenset[Site]:
        """The steps of optimizers that are not seen to get gradients in any case."""
        reached_by = {
            (backward.function, backward.stmt.path): self.reach.reached(backward, runs)
            for backward, runs in forwards
        }
        reached = frozenset[Slot]().union(*reached_by.values())
        unsure = self.reach.switched | (self.ownership.seen - reached)
        # Nothing of a loss may be an optimizer's that steps on it.
        missed = {
            (site, one)
            for (site, one), ways in self.scalers.sure.items()
            if one in self.ownership.seen
            and not any(one in reached_by[way[-1]] for way in ways)
        }
        shared = self._shared(steps)
        if shared:
            surely = {o for f in forwards for o in self.reach.surely(*f)} - unsure
            only = all(self.reach.only(*forward) for forward in forwards)
            for scaler in self.scalers.all:
                if scaler & shared and not scaler & surely:
                    if not only or not scaler & reached:
                        message = "it cannot be seen which optimizers get gradients of this loss"
                        raise refused("AMP012", message, forwards[0][0].event.line)
            unsure |= shared - surely
        # Of these it is all a matter of when they are switched on again.
        switched = (self.reach.switched & reached) - shared
        return frozenset(
            (function, stmt.path)
            for function, stmt, slot in steps
            for one in self.identities.of_slot(slot)
            if ((function, stmt.path), one) in missed
            or one in unsure - switched
            or (
                one in switched
                and not self.reach.switched_on(function, stmt, one, self.is_apart)
            )
        )

    def inherited(
        self, steps: Steps, forwards: Sequence[LossForward]
    ) -> frozenset[Site]:
        """The steps of a method that on objects of a subclass find an optimizer of other parts, of which the
        method's loss runs none."""
        return frozenset(
            (function, stmt.path)
            for function, stmt, slot in steps
            for one in self.identities.of_slot(slot)
            if one in self.ownership.seen
            for own in ([f for f in forwards if f[0].function == function],)
            for birth in self._of_subclasses(function, stmt, one)
            if own and not any(self.reach.of_birth(one, birth).reached(*f) for f in own)
        )

    def _of_subclasses(
        self, function: str, stmt: ir.Stmt, one: Slot
    ) -> Iterator[Birth]:
        """Where subclasses of a method's own make an optimizer anew that it may find."""
        own = self.program.self_class(function)
        for coverage in self.ownership.coverages((one,)) if own else ():
            alive = coverage.alive(function, stmt)
            for birth in alive if len(alive) > 1 else ():
                made = self.program.self_class(birth.function)
                if made and own and made[1] != own[1]:
                    if own[1] in self.program.bases(made[1]):
                        yield birth

    def listed(self, steps: Steps) -> frozenset[Site]:
        """The steps of optimizers that a comprehension makes: how many there are, and which of them a
        loss reaches, nobody sees."""
        return frozenset(
            (function, stmt.path)
            for function, stmt, slot in steps
            if any(one.is_many for one in self.identities.of_slot(slot))
            and not self._has_its_turn(function, stmt, slot)
        )

    def _shared(self, steps: Steps) -> set[Slot]:
        """The optimizers with one scaler, but for those that a loop trains one after the other."""
        scalers = (scaler for scaler in self.scalers.all if len(scaler) > 1)
        shared = {one for scaler in scalers for one in scaler}
        for function, stmt, slot in steps:
            if self._has_its_turn(function, stmt, slot):
                shared -= self.identities.of_slot(slot)
        return shared

    def _has_its_turn(
        self,
        function: str,
        step: ir.Stmt,
        slot: Slot,
        asked: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether a step stands in a loop over optimizers that goes backward for each, or in a function
        that such loops call with each."""
        if slot.owner == function and self.identities.is_given(slot):
            sites = self.program.call_sites.get(function, ())
            given = [(site, self.identities.given(site, slot)) for site in sites]
            return (
                bool(sites)
                and function not in asked
                and all(
                    one is not None
                    and self._has_its_turn(
                        site.caller, site.stmt, one, asked | {function}
                    )
                    for site, one in given
                )
            )
        turn, at = self.identities.turn_of(slot)
        if turn.takes_turns and self.program.is_param(
            turn.turn.function, turn.turn.name
        ):
            body = self.program.functions[function].body
            return self._is_of_one(turn, function, body)
        return self.identities.is_each(turn) and any(
            stmt.kind == "for"
            and all(path[: len(stmt.path)] == stmt.path for path in (step.path, *at))
            and any(
                ir.Name(turn.turn.name) in ir.walk(target) for target in stmt.targets
            )
            and not goes_through(self.events, self.identities, function, stmt)
            and self._computes_with(stmt, function)
            and (
                not turn.turn.may_repeat
                or self._is_of_one(turn, function, stmt.blocks[0].body)
            )
            for stmt in self.program.statements(function)
        )

    def _computes_with(self, loop: ir.Stmt, function: str) -> bool:
        """Whether a loop over optimizers does more with what it goes through than to train with these."""
        turns = {inner for target in loop.targets for inner in ir.walk(target)}
        return any(
            not turns.isdisjoint(parts_of(stmt))
            and not any(
                event.kind in ("step", "zero", "access")
                for event in self.events.of(function, stmt)
            )
            for stmt in ir.statements(loop.blocks[0].body)
        )

    def _is_of_one(self, slot: Slot, function: str, body: tuple[ir.Stmt, ...]) -> bool:
        """Whether statements go backward through what is taken out by the variable that says which of
        several optimizers is meant, and by no other variable take one of these."""
        optimizers, key = self.identities.optimizers, ir.Name(slot.turn.name)
        statements = [*ir.statements(body)]
        items: list[ir.Item] = []
        parts: set[ir.Expr] = set()
        for stmt in statements:
            found = [one for one in parts_of(stmt) if isinstance(one, ir.Item)]
            items += found
            parts |= {one for one in found if one.key == key}
            if stmt.value in parts:
                parts |= {t for t in stmt.targets if isinstance(t, ir.Name)}
        held = {
            one
            for one in items
            if (s := optimizers.slot(one, function)) and s.holder == slot.holder
        }
        inside = [ir.Const(part) for part in path_of(slot.key)[1:]]
        return (
            all(one.key == key for one in held if isinstance(one.key, ir.Name))
            and any(
                (
                    one.key == key and one not in held
                    if not inside
                    else one.value in parts and one.key not in inside
                )
                for one in items
            )
            and any(
                event.kind == "backward"
                for stmt in statements
                for event in self.events.of(function, stmt)
            )
        )
