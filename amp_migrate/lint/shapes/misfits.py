"""The sizes of a layer that are not aligned, in numbers and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amp_migrate.analysis.sizes.domain.site import Instance, Size
from amp_migrate.catalogue.gpus.target import Target, tile_of, tile_waste
from amp_migrate.catalogue.layers import Layer
from amp_migrate.core.findings import Step


@dataclass(frozen=True, slots=True)
class Misfit:
    """One size that is not aligned."""

    width: str
    """By the names of ``rules/layers.toml``."""
    word: str
    """By that of the layer's own parameter, ``out_features``."""
    size: Size
    padded: int
    tiled: bool
    """It is a side of the result of a product, and so is cut into tiles."""

    @property
    def value(self) -> int:
        """The size."""
        assert self.size.value is not None
        return self.size.value

    @property
    def adds_percent(self) -> float:
        """What the padding adds to the work."""
        return 100 * (self.padded / self.value - 1) if self.value else 0.0

    @property
    def chain(self) -> tuple[Step, ...]:
        """Where it comes from."""
        return self.size.chain

    def as_data(self) -> dict[str, object]:
        """For machines: sizes in elements, the waste as a share of 1."""
        told: dict[str, object] = {
            "name": self.word,
            "size": self.value,
            "padded": self.padded,
            "adds_percent": round(self.adds_percent, 2),
        }
        if self.tiled:
            told["tile"] = tile_of(self.value)
            told["tile_waste"] = round(tile_waste(self.value), 4)
        return told


def word_of(width: str, layer: Layer) -> str:
    """What the layer calls one of its sizes."""
    return layer.sizes.get(width, width)


def head_of(layer: Layer, instance: Instance) -> str:
    """The layer with its sizes: ``Linear(768, 50257)``."""
    sizes = (instance.sizes.get(width) for width in layer.widths)
    if layer.same:
        sizes = (
            instance.sizes.get(width)
            for width in layer.widths
            if width not in layer.same
        )
    told = (
        "?" if one is None or one.value is None else str(one.value) for one in sizes
    )
    return f"{layer.name}({', '.join(told)})"


def fault(
    misfits: Sequence[Misfit], target: Target, required: bool, per: str = ""
) -> str:
    """``out_features 50257 is not divisible by 8``; several are joined."""
    sizes = " and ".join(
        dict.fromkeys(f"{one.word} {one.value}{per}" for one in misfits)
    )
    verb = "are" if " and " in sizes else "is"
    what = f"{sizes} {verb} not divisible by {target.unit}"
    if required:
        return f"{what}, which {target.type.name} products require"
    return what


def remedy(misfits: Sequence[Misfit]) -> str:
    """``50304 adds 0.1 %, 15 % of the last ... idle``: what padding costs, and what the size wastes."""
    return "; ".join(dict.fromkeys(map(_remedy, misfits)))


def _remedy(one: Misfit) -> str:
    costs = f"{one.padded} adds {_percent(one.adds_percent)}"
    if not one.tiled:
        return costs
    tile, waste = tile_of(one.value), 100 * tile_waste(one.value)
    return f"{costs}, tiles of {tile} waste {_percent(waste)} at {one.value}"


def _percent(number: float) -> str:
    return f"{number:.1f} %" if number < 10 else f"{number:.0f} %"
