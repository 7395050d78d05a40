"""The sizes of layers, by constant propagation over the facts of a whole program.

Nothing is run. What is not known for sure is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from amp_migrate.analysis.sizes.domain.site import Instance, LayerSite, Size

if TYPE_CHECKING:
    from amp_migrate.program.link import Program

__all__ = ["Instance", "LayerSite", "Size", "layer_sites"]

_Sites = dict[str, list[LayerSite]]
_known: WeakKeyDictionary[Program, dict[tuple[tuple[str, ...], int | None], _Sites]]
_known = WeakKeyDictionary()


def layer_sites(
    program: Program,
    file: str,
    extended: tuple[str, ...] = (),
    steps: int | None = None,
) -> list[LayerSite]:
    """The calls in a file that make layers, or multiply by a parameter, in source order.

    ``extended``: files with layers of the user's own, as in ``rules/layers.toml``. All files of a
    program are looked at when the first is asked for; the places of a chain are in the program's own
    files and lines, `Telling.place` shows them as the user knows them.

    ``steps``: how far the program may be followed; where it takes more, no layers are told at all.
    """
    from amp_migrate.analysis.sizes.explore import explored
    from amp_migrate.analysis.sizes.told import sites_of
    from amp_migrate.catalogue.layers import layer_table

    kept = _known.setdefault(program, {})
    key = extended, steps
    if key not in kept:
        table = layer_table(extended)
        if steps is None:
            kept[key] = sites_of(explored(program, table))
        else:
            explorer = explored(program, table, steps)
            kept[key] = {} if explorer.exhausted else sites_of(explorer)
    return kept[key].get(file, [])
