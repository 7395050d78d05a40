"""Training loops that share an optimizer: the unit that is migrated wholly or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from amp_migrate.analysis.objects.optimizers import Birth, Slot
from amp_migrate.analysis.paths.loops import Note, Refusal, TrainingLoop
from amp_migrate.analysis.paths.protocol import Placement
from amp_migrate.edit.edits import Edit, Placed
from amp_migrate.migrate.regions.regions import Run
from amp_migrate.migrate.scaling.scaler_threading import Travel
from amp_migrate.program import ir


@dataclass(slots=True)
class Group:
    """Loops that share an optimizer, and with it a scaler."""

    loops: list[TrainingLoop] = field(default_factory=list)
    slots: set[Slot] = field(default_factory=set)
    births: set[Birth] = field(default_factory=set)
    apart: frozenset[str] = frozenset()
    """Methods that run on none of the objects that these loops train, those of other subclasses, and what
    does not run in such a run at all."""
    refusal: Refusal | None = None
    edits: list[Placed] = field(default_factory=list)
    travel: Travel | None = None
    """What carries the scalers, or what stands for them."""
    regional: Travel | None = None
    """What carries the switch of the regions: mostly the same."""
    placement: Placement | None = None
    runs: list[Run] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """What is left to be done by hand."""

    def place(self, function: str, edit: Edit) -> None:
        """Add an edit to the file that a function stands in."""
        self.edits.append((ir.file_of(function), edit))

    def take(self, other: Group) -> None:
        """What another plan of the same loops came to."""
        self.slots, self.births = other.slots, other.births
        self.refusal, self.edits, self.notes = other.refusal, other.edits, other.notes
        self.travel, self.regional = other.travel, other.regional
        self.placement, self.runs = other.placement, other.runs

    @property
    def scopes(self) -> set[str]:
        """The functions and classes in which the group's loops and optimizers live."""
        loops = {
            backward.function for loop in self.loops for backward in loop.backwards
        }
        owners = {slot.owner for slot in self.slots if slot.kind != "unknown"}
        lent = set() if self.travel is None else self.travel.lent
        return loops | owners | lent | {birth.function for birth in self.births}

    @property
    def files(self) -> frozenset[str]:
        """The files that the group's loops and optimizers stand in."""
        return frozenset(map(ir.file_of, self.scopes))

    @property
    def first_line(self) -> int:
        """The line of the group's first backward."""
        return self.loops[0].backwards[0].event.line


def joined(*groups: Group) -> Group:
    """Groups as one that is yet to be planned."""
    return Group(
        [loop for group in groups for loop in group.loops],
        {slot for group in groups for slot in group.slots},
        {birth for group in groups for birth in group.births},
        frozenset.intersection(*(group.apart for group in groups)),
    )
