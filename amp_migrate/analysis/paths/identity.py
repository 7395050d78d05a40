"""Which optimizer a name stands for on a way through the program."""

from __future__ import annotations

from collections.abc import Collection

from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.analysis.paths.walk import Frames
from amp_migrate.program import ir
from amp_migrate.program.link import CallSite, Program


class Identities:
    """Tells the optimizers of some slots apart.

    An optimizer is known by the slot that it is born into. Where an attribute may hold one or another,
    from instance to instance, these count as one.
    """

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        slots: Collection[Slot],
        unborn: bool = False,
    ) -> None:
        """``unborn``: optimizers whose birth is not in sight count, too, each by its own name."""
        self.program = program
        self.optimizers = optimizers
        self._same: dict[Slot, Slot] = {}
        self._unborn = frozenset(
            slot for slot in slots if unborn and not optimizers.origins(slot)
        )
        for slot in sorted(slots, key=order):
            origins = sorted(optimizers.origins(slot), key=order)
            if slot in optimizers.trace(slot).each:
                continue
            if len(origins) > 1 and not self._is_told_by_calls(slot):
                for other in origins[1:]:
                    self._same[self._one_of(other)] = self._one_of(origins[0])
        self.all = sorted(
            {self._one_of(o) for slot in slots for o in optimizers.origins(slot)}
            | self._unborn,
            key=order,
        )

    def _one_of(self, origin: Slot) -> Slot:
        while origin in self._same and self._same[origin] != origin:
            origin = self._same[origin]
        return origin

    def of_birth(self, birth: Birth) -> Slot:
        """The optimizer that is born there."""
        return self._one_of(birth.slot)

    def _is_told_by_calls(self, slot: Slot) -> bool:
        """Whether a slot is filled by a call that is on the way, be it under another name."""
        trace = self.optimizers.trace(slot)
        seen = {slot}
        while slot not in trace.parameters:
            source = trace.aliases.get(slot)
            if source is None or source in seen:
                return False
            seen.add(source)
            slot, trace = source, self.optimizers.trace(source)
        return slot in trace.parameters and not self.program.definitions(
            slot.owner, slot.name
        )

    def of_slot(self, slot: Slot) -> frozenset[Slot]:
        """All optimizers that a slot may hold, whatever the way."""
        if slot in self._unborn:
            return frozenset((slot,))
        return frozenset(map(self._one_of, self.optimizers.origins(slot)))

    def is_each(self, slot: Slot) -> bool:
        """Whether a slot is a loop's variable that stands for several optimizers in turn."""
        return slot in self.optimizers.trace(slot).each

    def turn_of(self, slot: Slot) -> tuple[Slot, list[ir.Path]]:
        """The loop's variable that a slot is another name for, or itself, and where it gets its value."""
        at: list[ir.Path] = []
        while not self.is_each(slot) and slot.kind == "variable":
            source = self.optimizers.trace(slot).aliases.get(slot)
            found = self.program.definitions(slot.owner, slot.name)
            if source is None or len(found) != 1:
                break
            here = source.turn.function if source.takes_turns else source.owner
            if here != slot.owner:
                break
            at.append(found[0].stmt.path)
            slot = source
        return slot, at

    def is_given(self, slot: Slot) -> bool:
        """Whether a slot is what its function is called with, and nothing else."""
        own = self.program.definitions(slot.owner, slot.name)
        return slot in self.optimizers.trace(slot).parameters and not own

    def given(self, site: CallSite, slot: Slot) -> Slot | None:
        """The slot of the optimizer that a call gives to a parameter."""
        value = self.optimizers.given(site, slot)
        return None if value is None else self.optimizers.slot(value, site.caller)

    def has_each_once(self, slot: Slot, frames: Frames) -> bool:
        """Whether none of the optimizers that a loop's variable stands for has more than one turn."""
        members = self.optimizers.trace(slot).each.get(slot, ())
        found = [one for member in members for one in self.on_way(member, frames)]
        return len(found) == len(set(found)) == len(members)

    def on_way(self, slot: Slot, frames: Frames) -> frozenset[Slot]:
        """The optimizers that a slot may hold on one way.

        A parameter of the function that the way begins with stands for itself.
        """
        trace = self.optimizers.trace(slot)
        if slot in trace.each:
            return frozenset(
                one
                for member in trace.each[slot]
                for one in self.on_way(member, frames)
            )
        found = self.of_slot(slot)
        if len(found) < 2:
            return found
        source = trace.aliases.get(slot)
        if slot not in trace.parameters:
            if source is None or not self._is_told_by_calls(slot):
                return self._in_one_run(found, frames)
            return self.on_way(source, frames)
        entered = next(
            (i for i, (function, _) in enumerate(frames) if function == slot.owner), 0
        )
        if entered == 0:
            if frames and frames[0][0] == slot.owner:
                return frozenset((slot,))
            return self._in_one_run(found, frames)
        caller, path = frames[entered - 1]
        given: set[Slot] = set()
        for site in self.program.call_sites.get(slot.owner, ()):
            if site.caller == caller and site.stmt.path == path:
                value = self.optimizers.given(site, slot)
                if any(born.call is value for born in trace.births):
                    # Made in the call.
                    given.add(self._one_of(slot))
                    continue
                there = (
                    None if value is None else self.optimizers.slot(value, site.caller)
                )
                if there is not None:
                    given |= self.on_way(there, frames[:entered])
        return frozenset(given)

    def _in_one_run(self, found: frozenset[Slot], frames: Frames) -> frozenset[Slot]:
        """Those that may be born in a run that takes a way: scripts that share a trainer run apart."""
        if not frames:
            return found
        root = ir.file_of(frames[0][0])
        return (
            frozenset(
                one
                for one in found
                if self.program.may_run_together(root, ir.file_of(one.owner))
            )
            or found
        )


def order(slot: Slot) -> tuple[str, str, str, str]:
    """Slots in an order that is the same in every run."""
    return slot.kind, slot.owner, slot.name, repr(slot.key)
