"""What is aligned and could be better, for those who ask: TCU110, TCU111 and TCU114."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from amp_migrate.analysis.sizes.domain.site import Size
from amp_migrate.catalogue.gpus.target import Target, tile_of, tile_waste
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import is_selected
from amp_migrate.lint.shapes.misfits import head_of, word_of
from amp_migrate.lint.shapes.scale import scale
from amp_migrate.lint.shapes.shape import Shape, shape_of
from amp_migrate.lint.shapes.sites import Site, sites_of
from amp_migrate.lint.shapes.surroundings import target_of

BEST, ODD, WASTE = "TCU110", "TCU111", "TCU114"


def check(context: Context, file: str) -> Iterable[Finding]:
    """One finding for each layer and rule."""
    target = target_of(context)
    codes = [
        code for code in (BEST, ODD, WASTE) if is_selected(code, context.options.lint)
    ]
    for site in sites_of(context, file):
        for code in codes:
            yield from _first(context, site, code, target)


def _first(
    context: Context, site: Site, code: str, target: Target
) -> Iterator[Finding]:
    for instance in site.found.instances:
        shape = shape_of(instance, site.layer.widths, site.layer.spatial)
        for width, size in shape.widths.items():
            words, padded = _fault(code, width, size, shape, target)
            if words:
                name = word_of(width, site.layer)
                yield context.finding(
                    code,
                    site.found.function,
                    site.found.call,
                    f"{head_of(site.layer, instance)}: {name} {size.value} {words}",
                    chain=size.chain,
                    confidence=size.confidence,
                    data=(
                        ("layer", site.layer.name),
                        ("size", size.value),
                        ("padded", padded),
                        ("profile", target.profile.name),
                        ("dtype", target.type.name),
                    ),
                )
                return


def _fault(
    code: str, width: str, size: Size, shape: Shape, target: Target
) -> tuple[str, int]:
    value, limits = size.value, scale()
    if value is None or value < 1:
        return "", 0
    bounds = list(shape.bounds(width))
    worth = any(
        most >= limits.intensity and weights >= limits.weights
        for most, weights in bounds
    )
    large = worth and any(weights >= limits.large for _, weights in bounds)
    item, profile = target.type.bytes, target.profile
    best, advised = profile.best_bytes // item, profile.advised_bytes // item
    if code == BEST and large and value % target.unit == 0 and value % best:
        padded = ceil(value / best) * best
        return (
            f"is not a multiple of {best}, the best for {profile.name}: {padded} adds {_more(value, padded)}",
            padded,
        )
    if (
        code == ODD
        and large
        and advised > target.unit
        and value % target.unit == 0
        and value % advised
    ):
        padded = ceil(value / advised) * advised
        return (
            f"is an odd multiple of {target.unit}: cuBLAS can choose a worse kernel on {profile.name}; "
            f"{padded} adds {_more(value, padded)}"
        ), padded
    waste = tile_waste(value)
    if code == WASTE and worth and value < limits.tiled and waste > limits.tile_waste:
        tile = tile_of(value)
        padded = ceil(value / tile) * tile
        return (
            f"leaves {100 * waste:.0f} % of its tiles idle, if they are {tile} wide: {padded} costs as much",
            padded,
        )
    return "", 0


def _more(size: int, padded: int) -> str:
    return f"{100 * (padded / size - 1):.1f} %"
