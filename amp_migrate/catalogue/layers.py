"""The table of layers: which calls make one, and which of their parameters are which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from amp_migrate.catalogue.rules import CatalogueError, rules_folder
from amp_migrate.catalogue.tables import a_table, read_table, texts
from amp_migrate.core.options import LayerFile

TABLE = "layers.toml"


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of layer, or one function that multiplies by a weight it is given."""

    name: str
    origins: tuple[str, ...]
    """Dotted names of the class or function."""
    parameters: tuple[str, ...]
    """In order, without the instance; what follows ``*`` is given by keyword only."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    """The parameter that holds a size, by our name of the size."""
    widths: tuple[str, ...] = ()
    """The sizes that a matrix product gets to see."""
    spatial: int = 0
    """How many sizes a kernel has; the size ``kernel`` is their product."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Sizes that are equal to another one where they are not given."""
    weight: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a function: the parameters that may be a weight, and what the dimensions of it are."""
    shape: tuple[str, ...] = ()
    """The dimensions of the layer's own ``weight``."""

    @property
    def positional(self) -> tuple[str, ...]:
        """The parameters that may be given by position."""
        if "*" not in self.parameters:
            return self.parameters
        return self.parameters[: self.parameters.index("*")]


@dataclass(frozen=True)
class LayerTable:
    """The layers that are known, and what models of libraries are known to have."""

    layers: Mapping[str, Layer]
    attributes: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        by_origin = {o: one for one in self.layers.values() for o in one.origins}
        object.__setattr__(self, "_by_origin", by_origin)

    def at(self, origin: str) -> Layer | None:
        """The layer that a dotted name means."""
        found: Mapping[str, Layer] = self.__dict__["_by_origin"]
        return found.get(origin)

    @property
    def short_names(self) -> frozenset[str]:
        """The last parts of all dotted names: a text without any of them has no layer of this table."""
        return frozenset(origin.rpartition(".")[2] for origin in self._origins)

    @property
    def _origins(self) -> Mapping[str, Layer]:
        found: Mapping[str, Layer] = self.__dict__["_by_origin"]
        return found


@cache
def layer_table(extended: tuple[str | LayerFile, ...] = ()) -> LayerTable:
    """The layers of torch, and those of the files that a user adds; a later file goes first.

    Raises `CatalogueError`, which names the file, where one is missing or malformed.
    """
    layers: dict[str, Layer] = {}
    entries: dict[str, dict[str, Any]] = {}
    attributes: dict[str, Mapping[str, int]] = {}
    added = (Path(one) if isinstance(one, str) else one for one in extended)
    for path in (rules_folder() / TABLE, *added):
        data = _load(path)
        try:
            _only(data, ("layers", "attributes"))
            for name, entry in a_table("layers", data.get("layers", {})).items():
                entries[name] = _whole(name, a_table(f"layers.{name}", entry), entries)
                layers[name] = _layer(name, entries[name])
            for name, entry in a_table(
                "attributes", data.get("attributes", {})
            ).items():
                attributes[name] = _numbers(name, entry)
        except ValueError as error:
            raise CatalogueError(f"{path.name}: {error}") from None
    return LayerTable(layers, attributes)


def _whole(
    name: str, entry: dict[str, Any], known: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """An entry with what it takes over from the layer that it is ``like``."""
    if "like" not in entry:
        return entry
    like = entry["like"]
    if not isinstance(like, str) or like not in known:
        raise ValueError(
            f"layers.{name}: like must be a layer of the table, not {like!r}"
        )
    own = {key: value for key, value in entry.items() if key != "like"}
    return {**known[like], "origins": None, **own}


def _load(path: Any) -> dict[str, Any]:
    try:
        return read_table(path)
    except OSError as error:
        raise CatalogueError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise CatalogueError(f"{path}: {error}") from None


_KEYS = (
    "origins",
    "parameters",
    "defaults",
    "sizes",
    "widths",
    "spatial",
    "from",
    "weight",
    "shape",
)


def _layer(name: str, entry: dict[str, Any]) -> Layer:
    try:
        _only(entry, _KEYS)
        parameters = texts("parameters", entry.get("parameters"))
        sizes = _words("sizes", entry.get("sizes", {}))
        weight = {
            parameter: texts("weight", dimensions)
            for parameter, dimensions in a_table(
                "weight", entry.get("weight", {})
            ).items()
        }
        for parameter in (*sizes.values(), *weight):
            if parameter not in parameters or parameter == "*":
                raise ValueError(f"{parameter!r} is none of the parameters")
        widths = texts("widths", entry.get("widths"))
        known = {*sizes, *_dimensions(weight)}
        if missing := [one for one in widths if one not in known]:
            raise ValueError(f"width {missing[0]!r} is none of the sizes")
        spatial = entry.get("spatial", 0)
        if not isinstance(spatial, int) or isinstance(spatial, bool):
            raise ValueError("spatial must be a number")
        return Layer(
            name=name,
            origins=texts("origins", entry.get("origins")),
            parameters=parameters,
            defaults=a_table("defaults", entry.get("defaults", {})),
            sizes=sizes,
            widths=widths,
            spatial=spatial,
            same=_words("from", entry.get("from", {})),
            weight=weight,
            shape=texts("shape", entry["shape"]) if "shape" in entry else (),
        )
    except ValueError as error:
        raise ValueError(f"layers.{name}: {error}") from None


def _dimensions(weight: Mapping[str, tuple[str, ...]]) -> set[str]:
    return {
        dimension.split(" ")[0].lstrip("*")
        for dimensions in weight.values()
        for dimension in dimensions
    }


def _only(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if unknown := data.keys() - set(known):
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")


def _words(name: str, value: object) -> dict[str, str]:
    found = a_table(name, value)
    if not all(isinstance(one, str) for one in found.values()):
        raise ValueError(f"{name} must hold strings")
    return found


def _numbers(name: str, value: object) -> dict[str, int]:
    found = a_table(name, value)
    if not all(type(one) is int for one in found.values()):
        raise ValueError(f"{name} must hold numbers")
    return found
