"""What a misaligned size of one layer costs: a rule, how much it matters, and why it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from amp_migrate.catalogue.gpus.padding import FEW_CHANNELS
from amp_migrate.catalogue.gpus.target import Target
from amp_migrate.core.findings import Severity
from amp_migrate.lint.shapes.scale import Scale
from amp_migrate.lint.shapes.shape import Kind, Shape
from amp_migrate.lint.shapes.surroundings import Surroundings

EXEMPT = "TCU112"
VOCABULARY = "TCU101"
LINEAR = "TCU102"
CONVOLUTION = "TCU103"
GROUPED = "TCU104"
RECURRENT = "TCU106"
FLOAT8 = "TCU109"

_USUAL = {
    Kind.LINEAR: LINEAR,
    Kind.ATTENTION: LINEAR,
    Kind.CONVOLUTION: CONVOLUTION,
    Kind.GROUPED: GROUPED,
    Kind.RECURRENT: RECURRENT,
}


@dataclass(frozen=True, slots=True)
class Grade:
    """How much one size of one layer matters."""

    code: str
    severity: Severity
    reason: str = ""
    """Why it is no warning."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What the code calls a size, and the layer."""

    texts: tuple[str, ...]
    """The argument, and the chain that led to it."""
    name: str
    """What the layer is bound to, its last part."""


def grade(
    width: str,
    shape: Shape,
    spoken: Spoken,
    around: Surroundings,
    scale: Scale,
    target: Target,
) -> Grade:
    """The grade of one misaligned width, for the GPU and the type that the layer is computed in."""
    size = shape.widths[width].value
    assert size is not None
    if reason := next(_structural(width, size, shape, spoken, scale), ""):
        return Grade(EXEMPT, Severity.INFO, reason)
    code = _USUAL[shape.kind]
    if code == LINEAR and width == "out" and is_vocabulary(size, spoken, scale):
        code = VOCABULARY
    if code != GROUPED:
        if reason := next(_too_small(width, shape, scale), ""):
            return Grade(EXEMPT, Severity.INFO, reason)
    if code in (LINEAR, VOCABULARY) and target.type.required:
        code = FLOAT8
    if reason := next(_uncertain(width, code, shape, around, target, scale), ""):
        return Grade(code, Severity.INFO, reason)
    if code == GROUPED:
        reason = "a product for each group: to be measured"
    elif code == RECURRENT:
        reason = "whether it matters depends on the batch and on cuDNN's algorithm"
    return Grade(code, Severity.INFO if reason else Severity.WARNING, reason)


def is_vocabulary(size: int, spoken: Spoken, scale: Scale) -> bool:
    """Whether a size is that of a vocabulary, by its name or because nothing else is so large."""
    return (
        size >= scale.vocabulary
        or scale.says("vocabulary", spoken.texts)
        or (spoken.name in scale.names["vocabulary"] and size > scale.classes)
    )


def _structural(
    width: str, size: int, shape: Shape, spoken: Spoken, scale: Scale
) -> Iterator[str]:
    """What kind of layer it is that a misaligned size does not slow."""
    if shape.kind is Kind.TABLE:
        yield "a table is looked up, not multiplied"
    if shape.kind is Kind.DEPTHWISE:
        yield "depthwise: no matrix product"
    if shape.kind in (Kind.CONVOLUTION, Kind.GROUPED):
        yield from _channels(shape, scale)
    if shape.kind in (Kind.LINEAR, Kind.CONVOLUTION):
        if width == "out" and _is_class_head(size, spoken, scale):
            yield "the outputs of a head: as many as the task has"
        if width != "out" and scale.says("latent", spoken.texts):
            yield "the input of a generator: one short row a sample"
    if width in ("in", "in2") and scale.says("data", spoken.texts):
        yield "as large as the data is"


def _channels(shape: Shape, scale: Scale) -> Iterator[str]:
    into, out = (
        found.value if (found := shape.widths.get(name)) is not None else None
        for name in ("in", "out")
    )
    if shape.groups == 1 and shape.taps > 1:
        if into is not None and into <= FEW_CHANNELS:
            yield f"few channels come in ({into}), as of an image: cuDNN has kernels for that"
        if out is not None and out <= FEW_CHANNELS:
            yield f"an image, a mask or a score comes out: {out} wide"
    if shape.kind is Kind.CONVOLUTION:
        narrow = [
            one for one in (into, out) if one is not None and one < scale.channels
        ]
        if narrow:
            yield f"{min(narrow)} channels wide: most of each tile is idle in any case"


def _is_class_head(size: int, spoken: Spoken, scale: Scale) -> bool:
    if scale.says("vocabulary", spoken.texts):
        return False
    if scale.says("classes", spoken.texts):
        return True
    return spoken.name in scale.names["classes"] and size <= scale.classes


def _too_small(width: str, shape: Shape, scale: Scale) -> Iterator[str]:
    if shape.kind is Kind.RECURRENT:
        hidden = shape.widths["hidden"].value
        if hidden is not None and hidden < scale.hidden:
            yield f"{hidden} hidden units: bound by launches, step by step"
        return
    most = shape.most(width)
    if most is not None and most < scale.intensity:
        yield f"at most {ceil(most)} FLOPs a byte at any batch size: memory-bound"
    if shape.kind is not Kind.CONVOLUTION and (weights := _few(width, shape, scale)):
        yield f"{weights} weights: too small to matter"


def _few(width: str, shape: Shape, scale: Scale) -> int | None:
    """How many weights there are, if that is few."""
    weights = max((weights for _, weights in shape.bounds(width)), default=None)
    return weights if weights is not None and weights < scale.weights else None


def _uncertain(
    width: str,
    code: str,
    shape: Shape,
    around: Surroundings,
    target: Target,
    scale: Scale,
) -> Iterator[str]:
    """Why what would be a warning is none."""
    if code == CONVOLUTION and (weights := _few(width, shape, scale)):
        yield f"{weights} weights: what it costs depends on how large its images are"
    if around.tested:
        yield "in a test"
    if around.on_cpu:
        yield "the program names no GPU"
    if around.untrained:
        yield "nothing here trains it"
    if around.from_checkpoint:
        yield "published weights are loaded, which have this size"
    if code not in (VOCABULARY, FLOAT8):
        if around.compiled:
            yield "torch.compile pads where that is faster"
    if code not in (VOCABULARY, RECURRENT) and not any(shape.bounds(width)):
        yield "the other size is not known"
    if code not in (RECURRENT, FLOAT8, GROUPED):
        most, needed = shape.most(width), target.ridge * target.type.bytes / 2
        if most is not None and most < needed:
            yield (
                f"at most {ceil(most)} FLOPs a byte at any batch size: "
                f"memory-bound below {needed:.0f} on {target.profile.name}"
            )
        elif around.rows is not None and shape.kind is Kind.LINEAR:
            most = shape.most(width, around.rows)
            if most is not None and most < needed:
                yield (
                    f"at most {ceil(most)} FLOPs a byte in batches of {around.rows}: "
                    f"memory-bound below {needed:.0f} on {target.profile.name}"
                )
