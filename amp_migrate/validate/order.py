"""What the harness is told of one run, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Task(str, Enum):
    """What a run is made for."""

    RECORD = "record"
    """Losses, steps and digests."""
    PRODUCTS = "products"
    """The same, and the precision of the matrix products in backward passes."""
    MONITOR = "monitor"
    """The same, and the protocol monitor."""
    SHAPES = "shapes"
    """The sizes of all matrix products and convolutions."""
    KERNELS = "kernels"
    """The time of each kernel on the GPU."""
    CLOCK = "clock"
    """Time and memory, with nothing else patched."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is run: a script by its path, or a module by its name; and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    def __str__(self) -> str:
        words = ("-m", self.name) if self.module else (self.name,)
        return " ".join((*words, *self.arguments))


@dataclass(frozen=True, slots=True)
class Switches:
    """What is forced on a script: see `harness.switches`. None leaves the script its way."""

    scaler: bool | None = None
    autocast: bool | None = None
    init_scale: float | None = None
    growth_interval: int | None = None


AS_WRITTEN = Switches()
OFF = Switches(scaler=False, autocast=False)


@dataclass(frozen=True, slots=True)
class Injection:
    """An inf among the gradients of one optimizer after one backward, both counted from 0."""

    backward: int
    optimizer: int
    skip: bool = False
    """Leave out the step that meets it, and nothing else: what a scaler would do."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run."""

    name: str
    """What a person is told of it."""
    rewritten: bool = False
    """Whether the rewrite is run, or the original."""
    task: Task = Task.RECORD
    switches: Switches = OFF
    seed: int = 0
    perturbation: float = 0.0
    """Relative change of the parameters, when an optimizer is made for them."""
    injection: Injection | None = None
    longer: int = 1
    """Times as many steps as the limits allow."""
    delay: float = 0.0
    """Seconds that are slept after each step: what tells of time, or memory, tells something else then."""

    def as_fields(self) -> dict[str, Any]:
        """The part of the harness's orders that says what is to be seen and forced."""
        wanted = self.injection
        return {
            "task": self.task.value,
            "switches": asdict(self.switches),
            "seed": self.seed,
            "perturbation": self.perturbation,
            "delay": self.delay,
            "injection": (
                None
                if wanted is None
                else [wanted.backward, wanted.optimizer, wanted.skip]
            ),
        }
