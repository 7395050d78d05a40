"""Widths that are computed by a fraction and not rounded: TCU107."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.shapes.shape import Kind, shape_of
from amp_migrate.lint.shapes.sites import Site, sites_of
from amp_migrate.lint.shapes.surroundings import target_of
from amp_migrate.program import ir
from amp_migrate.program.link import Program

CODE = "TCU107"
_MOST = 1000
"""The largest denominator that a written number is read as: 2.6667 as 8/3."""


def check(context: Context, file: str) -> Iterable[Finding]:
    """One finding for each width, at the first layer that has it."""
    said: set[tuple[str, ir.Expr]] = set()
    unit = target_of(context).unit
    for site in sites_of(context, file):
        for width in site.layer.widths:
            if not _is_open(site, width, unit):
                continue
            given = site.argument(width)
            if given is None:
                continue
            function = site.found.function
            if _is_given(given, function, context.program):
                continue
            formula = _formula(given, function, context.program)
            ratio = _ratio(formula)
            if formula is None or ratio is None or (function, formula) in said:
                continue
            said.add((function, formula))
            yield context.finding(
                CODE,
                function,
                site.found.call,
                f"{site.layer.name}: a width times {ratio} is not rounded: "
                f"round it to a multiple of {max(unit, 64)}",
                data=(("layer", site.layer.name), ("ratio", str(ratio))),
            )


def _is_open(site: Site, width: str, unit: int) -> bool:
    """Whether nothing is known of a size of a linear layer, in none of its instances."""
    shapes = [
        shape_of(one, site.layer.widths, site.layer.spatial)
        for one in site.found.instances
    ]
    return bool(shapes) and all(
        shape.kind is Kind.LINEAR
        and width in shape.widths
        and shape.widths[width].is_aligned(unit) is None
        for shape in shapes
    )


def _is_given(width: ir.Expr, function: str, program: Program) -> bool:
    """Whether code out of sight may give a width: then it is not one formula, whoever else does."""
    width = _whole(width)
    own = program.self_class(function)
    match width:
        case ir.Name(id=name):
            known = own is not None and own[0] == name
            return (
                not known
                and program.owner(name, function) == function
                and program.is_param(function, name)
                and program.is_public(function)
            )
        case ir.Attr(value=ir.Name(id=name), attr=attr) if own and own[0] == name:
            return any(
                isinstance(one, ir.Name)
                and program.functions[made.function].class_name == own[1]
                and not program.bindings(made.function, one.id)
                and _is_given(one, made.function, program)
                for made in program.attribute_definitions(own[1], attr)
                if made.index is None
                for one in map(
                    _whole,
                    (
                        made.value.operands
                        if isinstance(made.value, ir.Operation)
                        and made.value.op == "or"
                        else (made.value,) if made.value is not None else ()
                    ),
                )
            )
    return False


def _whole(width: ir.Expr) -> ir.Expr:
    """What an element is taken out of."""
    while isinstance(width, ir.Item):
        width = width.value
    return width


def _formula(given: ir.Expr, function: str, program: Program) -> ir.Expr | None:
    """What a width is computed by: what is given, or the one thing that the given name is bound to."""

    def is_rounded(one: Object) -> bool:
        # Whatever else there is: it is not the one formula.
        return bool(one.fields) or _ratio(one.expr) is None

    found = program.noted(PointsTo).of(given, function, enough=is_rounded, closed=True)
    return found[0].expr if len(found) == 1 and not found[0].fields else None


def _ratio(formula: ir.Expr | None) -> Fraction | None:
    """The number that something is multiplied by before it is cut to an integer, if its denominator is no
    power of two: half of an aligned width may well be aligned, a third of it is not."""
    match formula:
        case ir.Call(func=ir.Name(id="int" | "round"), args=(ir.Arg(value=inner),)):
            found = _factor(inner)
        case ir.Operation(op="//", operands=(_, ir.Const())):
            found = _factor(formula)
        case _:
            return None
    if found is None or not found[1]:
        return None
    ratio = found[0].limit_denominator(_MOST)
    denominator = ratio.denominator
    return None if denominator & (denominator - 1) == 0 else ratio


def _factor(expr: ir.Expr) -> tuple[Fraction, bool] | None:
    """(the product of the numbers, whether there is anything else) of a product or quotient."""
    match expr:
        case ir.Const(value=bool()):
            return None
        case ir.Const(value=int() | float() as number):
            return Fraction(number), False
        case ir.Operation(op="*" | "/" | "//" as op, operands=(left, right)):
            one, other = _factor(left), _factor(right)
            if one is None or other is None:
                return None
            if op == "*":
                return one[0] * other[0], one[1] or other[1]
            if other[1] or not other[0]:
                return None
            return one[0] / other[0], one[1]
        case ir.Name() | ir.Attr() | ir.Item():
            return Fraction(1), True
        case _:
            return None
