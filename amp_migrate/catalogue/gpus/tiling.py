"""How the result of a matrix product is cut over a GPU, and what is idle at the edges."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from amp_migrate.catalogue.gpus.profiles import Profile

MIN_SPLIT_K = 256
"""How short a slice of k is assumed to be worth a thread block of its own."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a result is cut into thread blocks, under the tile that is assumed."""

    tile: tuple[int, int]
    blocks: int
    split_k: int
    tile_waste: float
    """Share of the work that lies outside the result, at its edges."""
    wave_waste: float
    """Share of the multiprocessors' time that is idle in the last wave."""

    @property
    def waste(self) -> float:
        return 1 - (1 - self.tile_waste) * (1 - self.wave_waste)


def tiling(m: int, n: int, k: int, batch: int, profile: Profile) -> Tiling:
    """The largest of the profile's tiles that gives every multiprocessor a block; else the smallest,
    with k split over the idle ones. One block a multiprocessor at a time.

    tiles = ceil(m / tile_m) * ceil(n / tile_n), waves = ceil(blocks / multiprocessors): NVIDIA's
    matrix multiplication guide, "Dimension quantization effects". Which tile cuBLAS takes is not
    known, nor is how it splits k: this is an assumption, and the report names the tile.
    """

    def cut(tile: tuple[int, int]) -> int:
        return batch * ceil(m / tile[0]) * ceil(n / tile[1])

    filling = [tile for tile in profile.tiles if cut(tile) >= profile.sms]
    largest = max((prod(tile) for tile in filling), default=0)
    equal = [tile for tile in filling if prod(tile) == largest]
    tile = min(equal or profile.tiles[-1:], key=lambda tile: cut(tile) * prod(tile))
    tiles = cut(tile)
    split = 1 if equal else max(1, min(profile.sms // tiles, k // MIN_SPLIT_K))
    blocks = tiles * split
    waves = ceil(blocks / profile.sms)
    return Tiling(
        tile=tile,
        blocks=blocks,
        split_k=split,
        tile_waste=1 - batch * m * n / (tiles * prod(tile)),
        wave_waste=1 - blocks / (waves * profile.sms),
    )
