"""The size of attention heads: TCU105."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.sizes.domain.site import Instance
from amp_migrate.catalogue.gpus.target import Target
from amp_migrate.core.findings import Confidence, Finding, Severity, Step
from amp_migrate.lint.context import Context
from amp_migrate.lint.shapes.misfits import head_of
from amp_migrate.lint.shapes.scale import scale
from amp_migrate.lint.shapes.shape import Shape, shape_of
from amp_migrate.lint.shapes.sites import Site
from amp_migrate.lint.shapes.surroundings import Surroundings

CODE = "TCU105"


def findings(
    context: Context, site: Site, target: Target, around: Surroundings
) -> Iterator[Finding]:
    """One where the heads of an attention layer have a size that fused kernels refuse."""
    if "heads" not in site.layer.sizes:
        return
    shapes = [
        (one, shape_of(one, site.layer.widths, site.layer.spatial))
        for one in site.found.instances
    ]
    known = [(one, shape) for one, shape in shapes if shape.head and shape.head.value]
    bad = [(one, shape) for one, shape in known if _fault(shape, target)]
    if not bad:
        return
    instance, shape = bad[0]
    assert shape.head is not None and shape.head.value is not None
    reason = _reason(site, shape, around)
    if not reason and len(bad) < len(known):
        reason = "one of several sizes that arrive here"
    words = f"{head_of(site.layer, instance)}: {_fault(shape, target)}"
    yield context.finding(
        CODE,
        site.found.function,
        site.found.call,
        f"{words}; {reason}" if reason else words,
        severity=Severity.INFO if reason else Severity.WARNING,
        chain=tuple(dict.fromkeys((*shape.head.chain, *_heads_chain(instance)))),
        confidence=shape.head.confidence,
        data=(
            ("layer", site.layer.name),
            ("size", shape.head.value),
            ("padded", target.padded(shape.head.value)),
            ("multiple_of", target.unit),
            ("profile", target.profile.name),
            ("dtype", target.type.name),
            *((("reason", reason),) if reason else ()),
        ),
    )


def _fault(shape: Shape, target: Target) -> str:
    assert shape.head is not None
    size = shape.head.value
    if size is None:
        return ""
    if size % target.unit:
        return (
            f"heads of {size} are not divisible by {target.unit}: cuDNN's and the memory-efficient kernel of "
            f"scaled_dot_product_attention refuse them, flash attention copies into {target.padded(size)}"
        )
    if size > scale().head:
        return (
            f"heads of {size} are larger than {scale().head}: no flash attention, which "
            "scaled_dot_product_attention would choose"
        )
    return ""


def _reason(site: Site, shape: Shape, around: Surroundings) -> str:
    head = shape.head
    if around.tested:
        return "in a test"
    if around.on_cpu:
        return "the program names no GPU"
    if around.untrained:
        return "nothing here trains it"
    if around.from_checkpoint:
        return "published weights are loaded, which have this size"
    if shape.weights < scale().weights:
        return f"{shape.weights} weights: too small to matter"
    if (
        head is not None
        and head.confidence is Confidence.CANDIDATE
        and not site.found.complete
    ):
        return "other sizes may arrive"
    return ""


def _heads_chain(instance: Instance) -> tuple[Step, ...]:
    heads = instance.sizes.get("heads")
    return () if heads is None else heads.chain
