"""What sizes are to be aligned to, for one GPU and one type of element."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from amp_migrate.catalogue.gpus.padding import padded_size
from amp_migrate.catalogue.gpus.profiles import Profile, Type, profile, type_of

TILE = 128
"""The edge of a tile that is assumed of large results: it is in half of those of ``rules/gpus.toml``."""

SMALL_TILE = 64
"""And of results that are no wider."""


@dataclass(frozen=True, slots=True)
class Target:
    """What sizes are judged for."""

    profile: Profile
    type: Type
    align: int | None = None
    """Elements that sizes are to be a multiple of; None: what the profile and the type need."""

    @property
    def unit(self) -> int:
        """Sizes that are no multiple of so many elements are misaligned."""
        return self.align or max(1, self.profile.align_bytes // self.type.bytes)

    def padded(self, size: int) -> int:
        """The next size that is aligned, and little larger if that can be."""
        if self.align:
            return ceil(size / self.align) * self.align
        return padded_size(size, self.type.bytes, self.profile)

    @property
    def ridge(self) -> float:
        """The FLOPs a byte above which compute is the limit."""
        return self.profile.ridge(self.type.name)


def target(
    profile_name: str, type_name: str | None = None, align: int | None = None
) -> Target:
    """Raises ValueError, with one line, where there is no such profile or it has no such type."""
    try:
        found = profile(profile_name)
        kind = type_of(type_name or "float16")
    except KeyError as error:
        raise ValueError(f"unknown profile or dtype: {error.args[0]}") from None
    if kind.name not in found.tflops:
        raise ValueError(
            f"{profile_name} has no Tensor Cores for {kind.name}: choose another profile or dtype"
        )
    if align is not None and align < 1:
        raise ValueError(f"align must be at least 1, not {align}")
    return Target(found, kind, align)


def tile_of(size: int) -> int:
    """The edge of the tile that is assumed for a dimension of a result."""
    return SMALL_TILE if size <= SMALL_TILE else TILE


def tile_waste(size: int) -> float:
    """Share of the last tiles that lies outside the result: NVIDIA's matrix multiplication guide, "Tile
    quantization"."""
    tile = tile_of(size)
    return 1 - size / (ceil(size / tile) * tile)
