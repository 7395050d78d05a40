"""What is known of one place that makes a layer, or multiplies by a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amp_migrate.core.findings import Confidence, Step
from amp_migrate.program import ir


@dataclass(frozen=True, slots=True)
class Size:
    """What is known of one dimension in one instance."""

    value: int | None = None
    multiple: int = 1
    """It is a multiple of this, whatever its value is."""
    chain: tuple[Step, ...] = ()
    """Where the value comes from, the origin first."""
    confidence: Confidence = Confidence.CERTAIN
    reason: str = ""
    """Why the value is not known, in a word or two; empty where it is."""

    def is_aligned(self, unit: int) -> bool | None:
        """Whether it is a multiple of ``unit`` elements; None where that is not known."""
        if self.value is not None:
            return self.value % unit == 0
        return True if self.multiple % unit == 0 else None


@dataclass(frozen=True, slots=True)
class Instance:
    """The sizes that belong together: those of one way to come to the layer."""

    sizes: Mapping[str, Size]
    """By the names of ``rules/layers.toml``."""


@dataclass(frozen=True, slots=True)
class LayerSite:
    """One call that makes a layer, or uses one in functional form."""

    layer: str
    """A layer of ``rules/layers.toml``."""
    function: str
    """The function that the call stands in."""
    call: ir.Call
    instances: tuple[Instance, ...]
    """One for each different set of sizes that arrives there."""
    complete: bool
    """No other sizes arrive there than those of the instances."""
    name: str = ""
    """What it is bound to, ``lm_head``; empty where it is bound to nothing."""
