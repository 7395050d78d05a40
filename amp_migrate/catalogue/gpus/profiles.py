"""What a GPU can do, as far as the shapes of matrix products care: `rules/gpus.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from amp_migrate.catalogue.rules import CatalogueError, rules_folder
from amp_migrate.catalogue.tables import read_table


@dataclass(frozen=True, slots=True)
class Profile:
    """One architecture of NVIDIA's, by a chip that stands for it."""

    name: str
    chip: str
    capabilities: tuple[str, ...]
    """The compute capabilities that are judged by it, such as ``8.0``."""
    tflops: dict[str, float]
    """Dense peak by type, in 10^12 a second: ``float8``, ``float16``, ``bfloat16`` and ``tf32`` on Tensor
    Cores where they have the type, ``float32`` without them."""
    bandwidth_gbs: float
    sms: int
    align_bytes: int
    advised_bytes: int
    best_bytes: int
    tiles: tuple[tuple[int, int], ...]
    launch_us: float
    sources: tuple[str, ...]

    def ridge(self, kind: str) -> float:
        """The FLOPs a byte above which compute is the limit, for a type of `tflops`."""
        return self.tflops[kind] * 1000 / self.bandwidth_gbs


@dataclass(frozen=True, slots=True)
class Type:
    """What products can be computed in."""

    name: str
    bytes: int
    """Of an element."""
    required: bool = False
    """Sizes that are not aligned are refused; else they get a slower kernel."""


def names() -> tuple[str, ...]:
    """The profiles there are, the oldest first."""
    return tuple(_profiles())


def profile(name: str) -> Profile:
    """By the name of the architecture. Raises KeyError."""
    return _profiles()[name]


def profile_of_device(capability: str) -> Profile | None:
    """For a device's compute capability, such as ``8.6``; None if none is near."""
    for found in _profiles().values():
        if capability in found.capabilities:
            return found
    return None


def type_of(name: str) -> Type:
    """What products can be computed in, by its name: ``float16``. Raises KeyError."""
    return _read()[1][name]


def types() -> tuple[str, ...]:
    """The names of what products can be computed in."""
    return tuple(_read()[1])


def _profiles() -> dict[str, Profile]:
    return _read()[0]


@cache
def _read() -> tuple[dict[str, Profile], dict[str, Type]]:
    path = rules_folder() / "gpus.toml"
    try:
        data = read_table(path)
        kinds = {name: Type(name, **values) for name, values in data["types"].items()}
        return {
            name: _profile(name, data["common"], values)
            for name, values in data["gpus"].items()
        }, kinds
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CatalogueError(f"gpus.toml: {error}") from error


def _profile(name: str, common: dict[str, Any], values: dict[str, Any]) -> Profile:
    return Profile(
        name=name,
        tiles=tuple((rows, columns) for rows, columns in common["tiles"]),
        launch_us=common["launch_us"],
        capabilities=tuple(values["capabilities"]),
        sources=(*common["sources"], *values["sources"]),
        **{
            key: value
            for key, value in values.items()
            if key not in ("capabilities", "sources")
        },
    )
