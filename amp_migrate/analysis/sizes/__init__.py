"""The sizes of layers, by constant propagation over the facts of a whole program.

Nothing is run. What is not known for sure is not known.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.analysis.sizes.domain.site import Instance, LayerSite, Size
from amp_migrate.core.options import LayerFile

if TYPE_CHECKING:
    from amp_migrate.analysis.sizes.known import Told
    from amp_migrate.program.link import Program

__all__ = ["Instance", "LayerSite", "Layers", "Size"]


class Layers:
    """The layers of a program, which is followed when the first file is asked for.

    ``extended``: files with layers of the user's own, as in ``rules/layers.toml``. The places of a chain
    are in the program's own files and lines, `Telling.place` shows them as the user knows them.

    ``steps``: how far the program may be followed; where it takes more, no layers are told at all.
    """

    def __init__(
        self,
        program: Program,
        extended: tuple[str | LayerFile, ...] = (),
        steps: int | None = None,
    ) -> None:
        self.program = program
        self.extended = extended
        self.steps = steps

    def of(self, file: str) -> list[LayerSite]:
        """The calls in a file that make layers, or multiply by a parameter, in source order."""
        return self._told.of(file)

    @cached_property
    def _told(self) -> Told:
        from amp_migrate.analysis.sizes.explore import explored
        from amp_migrate.analysis.sizes.known import Told
        from amp_migrate.catalogue.layers import layer_table

        table = layer_table(self.extended)
        if self.steps is None:
            return Told(explored(self.program, table))
        explorer = explored(self.program, table, self.steps)
        return Told(explorer, silent=explorer.exhausted)
