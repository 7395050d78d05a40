"""Training loops that share an optimizer: the unit that is migrated wholly or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from amp_migrate.plan.edits import Edit
from amp_migrate.plan.loops import Refusal, TrainingLoop
from amp_migrate.plan.protocol import Placement
from amp_migrate.plan.regions import Run
from amp_migrate.plan.travel import Travel
from amp_migrate.project.optimizers import Birth, Slot


@dataclass(slots=True)
class Group:
    """Loops that share an optimizer, and with it a scaler."""

    loops: list[TrainingLoop] = field(default_factory=list)
    slots: set[Slot] = field(default_factory=set)
    births: set[Birth] = field(default_factory=set)
    refusal: Refusal | None = None
    edits: list[Edit] = field(default_factory=list)
    travel: Travel | None = None
    placement: Placement | None = None
    runs: list[Run] = field(default_factory=list)
