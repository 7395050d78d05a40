"""What a layer multiplies: its products, and the widths of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from amp_migrate.analysis.sizes.domain.site import Instance, Size
from amp_migrate.catalogue.gpus.padding import FEW_CHANNELS


class Kind(Enum):
    """How a layer computes, as far as its sizes are concerned."""

    LINEAR = "linear"
    CONVOLUTION = "convolution"
    GROUPED = "grouped"
    DEPTHWISE = "depthwise"
    TABLE = "table"
    RECURRENT = "recurrent"
    ATTENTION = "attention"


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product, by the names of the sizes that it goes from and to."""

    inner: str
    outer: str
    times: int = 1
    """How often ``outer`` stands side by side: three times in the queries, keys and values of attention."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One way in which a layer is made."""

    kind: Kind
    widths: Mapping[str, Size]
    """The sizes that are rows, by the names of ``rules/layers.toml``; those of one group."""
    products: tuple[Product, ...]
    taps: int = 1
    """How many positions the kernel of a convolution has; a usual number where that is not known."""
    groups: int = 1
    head: Size | None = None
    """The size of one attention head."""

    def bounds(self, width: str) -> Iterator[tuple[float, int]]:
        """(FLOPs a byte, weights) of each product that a width is a row of, where both its sizes are known.

        The FLOPs a byte of 2-byte elements, for as many samples as there may be: M * N * K over M * K + K * N
        + M * N without end in M.
        """
        for product in self.products:
            if width not in (product.inner, product.outer):
                continue
            inner = self.widths[product.inner].value
            outer = self.widths[product.outer].value
            if inner and outer:
                outer *= product.times
                most = inner * outer * self.taps / (inner + outer)
                yield most, inner * outer * self.taps * self.groups

    def most(self, width: str, rows: int | None = None) -> float | None:
        """The FLOPs a byte of the best of a width's products, at most; None where nothing is known.

        The smaller of two sizes bounds them whatever the larger is. ``rows``: how many there are, at most;
        None where that is not known.
        """
        found = []
        for product in self.products:
            if width in (product.inner, product.outer):
                inner = self.widths[product.inner].value
                outer = self.widths[product.outer].value
                if inner and outer:
                    outer *= product.times
                    share = 0.0 if rows is None else 1 / rows
                    found.append(1 / (1 / inner + 1 / outer + share))
                elif one := inner or outer:
                    found.append(float(one))
        if not found and len(self.widths) == 1:
            found = [float(size.value) for size in self.widths.values() if size.value]
        return max(found) * self.taps if found else None

    def is_tiled(self, width: str) -> bool:
        """Whether a width is a side of some product's result, which is cut into tiles.

        The channels of an image are none in a first convolution: its input has no gradient. A table is
        looked up, and a depthwise convolution is no product.
        """
        if self.kind in (Kind.TABLE, Kind.DEPTHWISE):
            return False
        size = self.widths[width].value
        first = width == "in" and size is not None and size <= FEW_CHANNELS
        return not (first and self.kind in (Kind.CONVOLUTION, Kind.GROUPED))

    @property
    def weights(self) -> int:
        """Those of the largest product whose sizes are known."""
        return max(
            (found for name in self.widths for _, found in self.bounds(name)), default=0
        )


USUAL_TAPS = 9
"""Of a convolution whose kernel is not known: 3 by 3."""

_ROWS = {
    Kind.RECURRENT: (Product("in", "hidden", 3), Product("hidden", "hidden", 3)),
    Kind.ATTENTION: (
        Product("embed", "embed", 3),
        Product("embed", "feedforward"),
        Product("kdim", "embed"),
        Product("vdim", "embed"),
    ),
    Kind.LINEAR: (
        Product("in", "out"),
        Product("in2", "out"),
        Product("in", "in2"),
    ),
}


def shape_of(instance: Instance, widths: tuple[str, ...], spatial: int) -> Shape:
    """The shape of one instance; ``widths`` and ``spatial`` as in ``rules/layers.toml``."""
    sizes = instance.sizes
    known = {name: sizes[name] for name in widths if name in sizes}
    if spatial:
        return _convolution(sizes, known)
    if "vocab" in known:
        return Shape(Kind.TABLE, known, ())
    if "hidden" in known:
        kind = Kind.RECURRENT
    elif "embed" in known:
        kind = Kind.ATTENTION
    else:
        kind = Kind.LINEAR
    products = tuple(
        one for one in _ROWS[kind] if one.inner in known and one.outer in known
    )
    head = _divided(sizes.get("embed"), sizes.get("heads"))
    return Shape(kind, known, products, head=head)


def _convolution(sizes: Mapping[str, Size], known: dict[str, Size]) -> Shape:
    kernel = sizes["kernel"].value if "kernel" in sizes else None
    taps = kernel or USUAL_TAPS
    by = sizes.get("groups")
    groups = 1 if by is None else by.value
    products = (Product("in", "out"),) if {"in", "out"} <= known.keys() else ()
    if groups == 1:
        return Shape(Kind.CONVOLUTION, known, products, taps)
    into = sizes.get("in")
    if by is not None and into is not None and _same(by, into):
        return Shape(Kind.DEPTHWISE, known, products, taps)
    if groups is None:
        # As many channels a group as nobody knows.
        return Shape(Kind.GROUPED, {}, ())
    each = {
        name: found
        for name, size in known.items()
        if (found := _divided(size, by)) is not None
    }
    if len(each) < 2:
        products = ()
    return Shape(Kind.GROUPED, each, products, taps, groups)


def _same(one: Size, other: Size) -> bool:
    return one.value is not None and one.value == other.value


def _divided(size: Size | None, by: Size | None) -> Size | None:
    """One part of a size; None where it does not divide, or is not known to."""
    if size is None or by is None or not by.value:
        return None
    if size.value is not None:
        if size.value % by.value:
            return None
        return replace(size, value=size.value // by.value)
    multiple = size.multiple // by.value if size.multiple % by.value == 0 else 1
    return replace(size, multiple=multiple)
