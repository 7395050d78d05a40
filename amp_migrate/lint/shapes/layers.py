"""Layers whose sizes are not aligned: TCU101 to TCU106, TCU109 and TCU112."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from amp_migrate.analysis.sizes.domain.site import Instance
from amp_migrate.catalogue.gpus.profiles import type_of
from amp_migrate.catalogue.gpus.target import Target
from amp_migrate.core.findings import Confidence, Finding, Severity, Step
from amp_migrate.lint.context import Context
from amp_migrate.lint.shapes import heads
from amp_migrate.lint.shapes.grades import CONVOLUTION, EXEMPT, FLOAT8, Grade, grade
from amp_migrate.lint.shapes.misfits import Misfit, fault, head_of, remedy, word_of
from amp_migrate.lint.shapes.scale import scale
from amp_migrate.lint.shapes.shape import Kind, Shape, shape_of
from amp_migrate.lint.shapes.sites import Site, sites_of
from amp_migrate.lint.shapes.surroundings import (
    Surroundings,
    surroundings,
    target_of,
    uses_float8,
)
from amp_migrate.lint.shapes.ties import tied

MOST_LISTED = 6
"""How many of the sizes that arrive at a layer are told."""

_ORDER = [Confidence.CERTAIN, Confidence.DEFAULT, Confidence.CANDIDATE]


@dataclass(frozen=True, slots=True)
class Fault:
    """A misaligned size of one instance, graded."""

    misfit: Misfit
    grade: Grade
    instance: Instance
    shape: Shape


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is misaligned in the layers of a file, one finding for each layer and rule."""
    judge = _Judge(context, file)
    for site in sites_of(context, file):
        yield from judge.findings(site)
        yield from heads.findings(context, site, judge.half, judge.around)


class _Judge:
    def __init__(self, context: Context, file: str) -> None:
        self.context = context
        self.around: Surroundings = surroundings(context, file)
        self.tied = tied(context, file)
        asked = target_of(context)
        self.float8 = asked.type.required or (
            context.options.lint.dtype is None and uses_float8(context)
        )
        """Whether linear layers are computed in a type that requires its alignment."""
        self.linear: Target = (
            replace(asked, type=type_of("float8")) if self.float8 else asked
        )
        self.half: Target = (
            replace(asked, type=type_of("float16")) if asked.type.required else asked
        )

    def _is_double(self, site: Site) -> bool:
        """Whether a layer says itself that it computes in float64, which autocast leaves alone."""
        for arg in site.found.call.args:
            if arg.name == "dtype":
                named = self.context.program.origin(arg.value, site.found.function)
                return named in ("torch.float64", "torch.double")
        return False

    def findings(self, site: Site) -> Iterator[Finding]:
        if self._is_double(site):
            return
        known, faults = 0, []
        for instance in site.found.instances:
            shape = shape_of(instance, site.layer.widths, site.layer.spatial)
            found = list(self._faults(site, instance, shape))
            unit = self._target(shape.kind).unit
            if found or any(
                one.is_aligned(unit) is not None for one in shape.widths.values()
            ):
                known += 1
                faults.append(found)
        by_code: dict[str, list[list[Fault]]] = {}
        for found in faults:
            for code in dict.fromkeys(one.grade.code for one in found):
                mine = [one for one in found if one.grade.code == code]
                by_code.setdefault(code, []).append(mine)
        said = {
            one.misfit.width
            for code, each in by_code.items()
            if code != EXEMPT
            for mine in each
            for one in mine
        }
        for code, each in by_code.items():
            if code == EXEMPT:
                each = [
                    [o for o in mine if o.misfit.width not in said] for mine in each
                ]
                each = [mine for mine in each if mine]
            if each:
                yield self._finding(site, code, each, known)

    def _target(self, kind: Kind) -> Target:
        return self.linear if kind in (Kind.LINEAR, Kind.ATTENTION) else self.half

    def _faults(self, site: Site, instance: Instance, shape: Shape) -> Iterator[Fault]:
        target = self._target(shape.kind)
        for width, size in shape.widths.items():
            if (size.value or 0) < 1 or size.is_aligned(target.unit):
                continue
            if width == "vocab" and site.found.name.rpartition(".")[2] in self.tied:
                continue
            if width in site.layer.same and size == shape.widths.get(
                site.layer.same[width]
            ):
                continue
            misfit = Misfit(
                width,
                word_of(width, site.layer),
                size,
                _padded(width, size.value or 0, instance, target),
                shape.is_tiled(width),
            )
            found = grade(
                width,
                shape,
                site.spoken(width, size),
                self.around,
                scale(),
                target,
            )
            yield Fault(misfit, found, instance, shape)

    def _finding(
        self, site: Site, code: str, each: list[list[Fault]], known: int
    ) -> Finding:
        each.sort(key=lambda mine: min(one.grade.severity.rank for one in mine))
        shown = sorted(each[0], key=lambda one: one.grade.severity.rank)
        shown = [one for one in shown if one.grade.severity is shown[0].grade.severity]
        reasons = list({o.grade.reason[:7]: o.grade.reason for o in shown}.values())
        reasons = [one for one in reasons if one]
        if not reasons:
            reasons = list(self._doubts(site, each, known))
        elif len(each) < known:
            reasons += _several(site, each)
        warned = not reasons
        misfits = [one.misfit for one in shown]
        target = self._target(shown[0].shape.kind)
        per = " a group" if shown[0].shape.groups > 1 else ""
        head = head_of(site.layer, shown[0].instance)
        what = fault(misfits, target, code == FLOAT8, per)
        if warned:
            words = f"{head}: {what}{_cost(code, target)}; {remedy(misfits)}"
        elif code == EXEMPT:
            # What padding would cost is of no interest where it would bring nothing.
            words = f"{head}: {what} for {target.type.name}; {'; '.join(reasons)}"
        else:
            kind = "" if code == FLOAT8 else f" for {target.type.name}"
            words = f"{head}: {what}{kind} ({remedy(misfits)}); {'; '.join(reasons)}"
        sizes = dict.fromkeys(one.misfit.value for mine in each for one in mine)
        data: list[tuple[str, object]] = [
            ("layer", site.layer.name),
            ("size", misfits[0].value),
            ("padded", misfits[0].padded),
            ("misfits", [one.as_data() for one in misfits]),
            ("multiple_of", target.unit),
            ("profile", target.profile.name),
            ("dtype", target.type.name),
        ]
        if len(sizes) > len(misfits):
            data.append(("sizes", list(sizes)))
        if reasons:
            data.append(("reason", "; ".join(reasons)))
        return self.context.finding(
            code,
            site.found.function,
            site.found.call,
            words,
            severity=Severity.WARNING if warned else Severity.INFO,
            chain=_chain(misfits),
            confidence=max((one.size.confidence for one in misfits), key=_ORDER.index),
            data=tuple(data),
        )

    def _doubts(self, site: Site, each: list[list[Fault]], known: int) -> Iterator[str]:
        """Why what is graded a warning for the first of several instances is none for the site."""
        all_bad = len(each) == known and all(
            any(one.grade.severity is Severity.WARNING for one in mine) for mine in each
        )
        guessed = not site.found.complete and any(
            one.misfit.size.confidence is Confidence.CANDIDATE
            for mine in each
            for one in mine
        )
        if all_bad and not guessed:
            return
        if all_bad:
            yield f"others may arrive than {', '.join(_arriving(site, each))}"
        else:
            yield from _several(site, each) or (
                "it matters for some of the layers that are made here",
            )


def _several(site: Site, each: list[list[Fault]]) -> list[str]:
    """That a size is one of several, where it is."""
    sizes = _arriving(site, each)
    told = f"one of several sizes that arrive here: {', '.join(sizes)}"
    return [told] if len(sizes) > 1 else []


def _arriving(site: Site, each: list[list[Fault]]) -> list[str]:
    """The sizes that are known to arrive where some are misaligned, aligned or not, as they are told."""
    widths = {one.misfit.width for mine in each for one in mine}
    found: dict[int, None] = {}
    for instance in site.found.instances:
        shape = shape_of(instance, site.layer.widths, site.layer.spatial)
        for width, size in shape.widths.items():
            if width in widths and size.value is not None:
                found[size.value] = None
    sizes = [str(one) for one in found]
    more = len(sizes) - MOST_LISTED
    return sizes if more < 2 else [*sizes[:MOST_LISTED], f"{more} more"]


def _padded(width: str, size: int, instance: Instance, target: Target) -> int:
    """The next size that is aligned; of attention, one whose heads are, too."""
    heads = instance.sizes.get("heads")
    if width == "embed" and heads is not None and (heads.value or 0) > 0:
        whole = target.unit * (heads.value or 1)
        return ceil(size / whole) * whole
    return target.padded(size)


def _cost(code: str, target: Target) -> str:
    """What happens, in the words that are true today."""
    if code == FLOAT8:
        return ": the layer raises or is left out"
    library = "cuDNN" if code == CONVOLUTION else "cuBLAS"
    return f": {library} takes a slower low-alignment kernel for {target.type.name}"


def _chain(misfits: Iterable[Misfit]) -> tuple[Step, ...]:
    return tuple(dict.fromkeys(step for one in misfits for step in one.chain))
