"""The layers of a file, with all that is known of them: by reading, and by a probe if there was one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_migrate.analysis.sizes import Layers
from amp_migrate.analysis.sizes.domain.site import LayerSite, Size
from amp_migrate.catalogue.layers import Layer, layer_table
from amp_migrate.lint.context import Context
from amp_migrate.lint.shapes.grades import Spoken
from amp_migrate.program import ir


@dataclass(frozen=True, slots=True)
class Site:
    """One place that makes a layer, with what is known of such layers."""

    found: LayerSite
    layer: Layer
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By size, the words of the chains that reading found, which a probe does not have."""

    def spoken(self, width: str, size: Size) -> Spoken:
        """What the code calls one of the sizes."""
        given = self.argument(width)
        texts = [step.text for step in size.chain]
        if any(text.startswith("probe ") for text in texts):
            texts += self.hints.get(width, ())
        if given is not None:
            texts += _names(given)
        return Spoken(tuple(texts), self.found.name.rpartition(".")[2])

    def argument(self, width: str) -> ir.Expr | None:
        """What the call gives for one of the sizes, if it gives it plainly."""
        layer = self.layer
        parameter = layer.sizes.get(width) or next(iter(layer.weight), None)
        if parameter is None:
            return None
        order = layer.positional
        position = order.index(parameter) if parameter in order else len(order)
        return self.found.call.argument(position, parameter)


def sites_of(context: Context, file: str, steps: int | None = None) -> tuple[Site, ...]:
    """The layers that a file makes, in the order of the source; ``steps``: see `Layers`."""
    return context.noted(_sites, file, steps)


def _layers(context: Context, steps: int | None) -> Layers:
    return Layers(context.program, context.options.lint.extend_rules, steps)


def _sites(context: Context, file: str, steps: int | None) -> tuple[Site, ...]:
    options = context.options.lint
    table = layer_table(options.extend_rules)
    read = tuple(context.noted(_layers, steps).of(file))
    hints = {id(site.call): _hints(site) for site in read}
    if options.probed:
        from amp_migrate.lint.shapes.probed import merged

        read = merged(context, file, read)
    return tuple(
        Site(site, table.layers[site.layer], hints.get(id(site.call), {}))
        for site in read
    )


def _names(expr: ir.Expr) -> list[str]:
    found = []
    for inner in ir.walk(expr):
        match inner:
            case ir.Name(id=name) | ir.Attr(attr=name) | ir.Const(value=str(name)):
                found.append(name)
    return found


def _hints(site: LayerSite) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for instance in site.instances:
        for width, size in instance.sizes.items():
            texts = tuple(step.text for step in size.chain)
            found[width] = (*found.get(width, ()), *texts)
    return found
