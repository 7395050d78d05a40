"""Which optimizers step on the gradients of which loops, and so have to be planned together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.optimizers import Optimizers, Slot
from amp_migrate.analysis.paths.association import Association
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.identity import Identities, order
from amp_migrate.analysis.paths.loops import Refusal, TrainingLoop
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call
from amp_migrate.program.link import Program


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """What runs where one script does."""

    files: frozenset[str]
    roots: tuple[str, ...]
    """The functions with which its ways begin."""
    live: Live | None
    """What of them can run, where that is known."""


class Usage:
    """Answers for all loops of a program."""

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        events: Events,
        loops: list[TrainingLoop],
        live_with: Callable[[TrainingLoop], Live | None],
        runs_of: Callable[[TrainingLoop], list[ScriptRun]],
    ) -> None:
        """``live_with``: what can run where a loop does. ``runs_of``: the runs that may come to it."""
        self.live_with = live_with
        self.runs_of = runs_of
        self.program = program
        self.optimizers = optimizers
        self.events = events
        self.loops = loops
        self._walked: dict[ScriptRun, Association] = {}
        self._slots = frozenset(
            event.slot
            for _, _, event in events.calls_of("step")
            if event.slot is not None and event.slot.kind != "unknown"
        )

    def _settle_alone(self, loop: TrainingLoop) -> None:
        """Let a loop go whose gradients its only optimizer never meets: they are another model's,
        trained by hand, dropped before, or made to take the time of a backward()."""
        beside = [
            stmt.path
            for stmt, event in self.events.direct(loop.function)
            if event.kind == "step" and event.slot in loop.slots
        ]
        if any(p[: len(loop.path)] == loop.path for p in beside):
            return
        if not beside and not self.program.call_sites.get(loop.function):
            # Who calls it may step.
            return
        if not self._used(loop) and self._is_met(loop) and not self._is_cut(loop):
            loop.slots = frozenset()
            message = "no optimizer steps on this backward()"
            loop.refuse(Refusal("AMP011", message))

    @cached_property
    def _identities(self) -> Identities:
        traced = (self.optimizers.trace(slot).slots for slot in self._slots)
        slots = self._slots.union(*traced)
        return Identities(self.program, self.optimizers, slots, unborn=True)

    @cached_property
    def _ownership(self) -> Ownership:
        births = {b for slot in self._slots for b in self.optimizers.trace(slot).births}
        return Ownership(
            self.program,
            self.optimizers,
            self.events,
            self._identities,
            self._slots,
            births,
        )

    def _is_local(self, loop: TrainingLoop) -> bool:
        """Whether a loop has one optimizer, which is made in its function with all that it holds, and no
        other holds any of that."""
        function = loop.function
        slots = {(slot.kind, slot.owner) for slot in loop.slots}
        used = {one for slot in loop.slots for one in self._identities.of_slot(slot)}
        births = {b for slot in loop.slots for b in self.optimizers.trace(slot).births}
        if slots != {("variable", function)} or len(used) != 1 or ir.is_top(function):
            return False
        (own,) = self._ownership.coverages(used)
        others = self._ownership.coverages(set(self._identities.all) - used)
        return (
            own.held.complete
            and all(birth.function == function for birth in births)
            and all(one[:2] == ("variable", function) for one in own.held.all)
            and not any(o.may_hold(one) for o in others for one in own.held.all)
            and all(
                (self.program.origin(call.func, function) or "").startswith("torch.")
                or (
                    (found := own.identities(call.func, function, stmt))
                    and all(one[:2] == ("variable", function) for one in found)
                )
                for stmt, call in each_call(self.program.functions[function].body)
                if self.events.forward.is_forward(call, function)
            )
        )

    def _walks(self, loop: TrainingLoop) -> Iterator[Association]:
        """All ways through each of the runs that may come to a loop: scripts that share a trainer run
        apart."""
        for run in self.runs_of(loop):
            if run not in self._walked:
                sites = (
                    (b.function, b.stmt.path)
                    for one in self.loops
                    for b in one.backwards
                )
                walk = self._walked[run] = Association(
                    self.program,
                    self.events,
                    self._identities,
                    self._ownership,
                    frozenset(s for s in sites if ir.file_of(s[0]) in run.files),
                    by_site=True,
                    live=run.live,
                    files=run.files,
                )
                walk.run_all(run.roots)
            yield self._walked[run]

    def _used(self, loop: TrainingLoop) -> set[Slot]:
        """The optimizers that step on what a loop's backwards leave."""
        sites = {(b.function, b.stmt.path) for b in loop.backwards}
        return {
            one
            for walk in self._walks(loop)
            for one, ways in walk.uses.items()
            if any(way[-1] in sites for way in ways)
        }

    def _is_cut(self, loop: TrainingLoop) -> bool:
        """Whether more ways lead to a loop than are followed."""
        return any(
            self.events.leads_to(root, (loop.function,))
            for walk in self._walks(loop)
            for root in walk.exhausted
        )

    def _is_met(self, loop: TrainingLoop) -> bool:
        """Whether a way that is followed comes to a loop."""
        return any(
            function == loop.function
            for walk in self._walks(loop)
            for function, _ in walk.visited
        )

    def _made_beside(self, loop: TrainingLoop, used: set[Slot]) -> set[Slot]:
        """Those of some optimizers that a run makes in which a loop runs."""
        live = self.live_with(loop) if used - loop.slots else None
        if live is None:
            return used
        made = {
            (self._identities.of_birth(birth), birth.function)
            for slot in self._slots
            for birth in self.optimizers.trace(slot).births
        }
        apart = used - {one for one, function in made if live.runs(function)}
        return used - {one for one, _ in made if one in apart}

    def settle(self, loop: TrainingLoop) -> None:
        """Make a loop's optimizers those that step on its gradients, near or far."""
        if loop.refusal is not None or not self._identities.all:
            return
        if len(self._identities.all) < 2:
            self._settle_alone(loop)
            return
        used = self._made_beside(loop, self._used(loop))
        if self._is_cut(loop):
            if self._is_local(loop):
                return
            message = (
                "more paths lead through these loops and optimizers than are followed"
            )
            loop.refuse(Refusal("AMP012", message))
            return
        if not used:
            if len(loop.slots) > 1:
                # Those that stand near go on without it.
                loop.slots = frozenset()
                message = "no optimizer steps on this backward()"
                loop.refuse(Refusal("AMP011", message))
            else:
                self._settle_alone(loop)
            return
        near = loop.slots
        loop.slots = frozenset(
            slot
            for slot in self._slots
            if (self._identities.of_slot(slot) | {slot}) & used
        )
        for slot in sorted(loop.slots - near, key=order):
            if slot.kind == "attribute" and self.optimizers.makers.wraps(slot.owner):
                line = self.program.classes[slot.owner].line
                name = ir.local_name(slot.owner)
                message = f"{name} may step on these gradients, too, in its own way: no scaler would see it"
                loop.refuse(Refusal("AMP014", message, line))
                loop.slots = near  # the reason is this loop's alone
        for slot in sorted(loop.slots - near, key=order):
            trace = self.optimizers.trace(slot)
            if trace.problems or not trace.births:
                message = f"{slot.shown}, which steps on these gradients, is not followed to its origin"
                why = trace.problems[:1]
                message = ": ".join((message, *(one.reason for one in why)))
                line = why[0].line if why else 0
                loop.refuse(Refusal("AMP010", message, line))
