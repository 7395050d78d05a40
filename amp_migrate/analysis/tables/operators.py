"""Operators of torch (and NumPy): of which degree in the gradient their results are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from amp_migrate.analysis.tables.degrees import (
    Degree,
    Unclear,
    element,
    fixed,
    joined,
    power,
    product,
    quotient,
)
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ATTRIBUTES = _words(
    "shape dtype device ndim is_cuda requires_grad layout is_sparse is_leaf itemsize names"
)
"""Attributes of a tensor that do not depend on the scale."""

VIEWS = _words("T mT H mH data real imag")
"""Attributes that are of the degree of their tensor."""

ASKS = _words(
    """size dim ndimension numel type get_device is_contiguous stride element_size nelement len
    isinstance hasattr range is_floating_point is_tensor synchronize"""
)
"""Functions and methods whose answers do not depend on the scale."""

SHOWS = _words("print str repr format")
"""Functions that show what they are given: nothing that is scaled."""

ZEROS = operations("zeros")
ONES = operations("ones")

_SAME = operations("scales")
"""Of the degree of their first operand; what else they are given says only how."""
_SHAPED_LIKE = operations("shaped")
_BOUNDED = operations("bounds")
_PRODUCTS = operations("multiplies")
_BIASED = re.compile(r"linear|conv(_transpose)?\dd")
_QUOTIENTS = operations("divides")
_SUMS = operations("adds")
_STORES = operations("stores")
_JOINED = operations("joined")
_SUM_AND_PRODUCT = operations("multiplies-and-adds")
_INTEGER = re.compile(r"u?int\d*|long|short|bool|byte|char|q\w*int\d*")


@dataclass(frozen=True, slots=True)
class Applied:
    """One application of an operator.

    ``plain``: the degrees of its operands, that of a method's receiver first. ``said``: for each
    argument the last word of its name, or the value of a constant.
    """

    name: str
    is_method: bool
    is_builtin: bool
    plain: tuple[Degree, ...]
    keywords: dict[str, Degree]
    said: tuple[object, ...]


def said(arg: ir.Arg) -> object:
    """The last word of an argument's name, or the value of a constant."""
    if isinstance(arg.value, ir.Const):
        return arg.value.value
    return (ir.key_of(arg.value) or "").rsplit(".", 1)[-1]


def is_known(name: str) -> bool:
    """Whether `degree_of` can tell."""
    return (
        name in _SAME
        or name in _BOUNDED
        or name in _PRODUCTS
        or name in _QUOTIENTS
        or name in _SUMS
        or name in _STORES
        or name in _JOINED
        or name in _SUM_AND_PRODUCT
        or name in ("where", "sign", "sgn", "square", "sqrt", "pow", "full_like")
        or _BIASED.fullmatch(name) is not None
    )


def degree_of(applied: Applied) -> Degree:
    """The degree of the result of a known operator; raises `Unclear` where it has none."""
    name, plain = applied.name, applied.plain
    keywords = dict(applied.keywords)
    values = [keywords.pop(key) for key in _VALUES if key in keywords]
    for degree in keywords.values():
        fixed(degree)
    if not plain or "rounding_mode" in keywords or "out" in keywords:
        raise Unclear
    first, *others = plain
    if name == "where":
        # `torch.where(mask, a, b)`, but `a.where(mask, b)`.
        mask, *chosen = (others[0], first, *others[1:]) if applied.is_method else plain
        fixed(mask)
        return joined(*chosen, *values)
    if name in _STORES:
        given = [*others, *values]
        for degree in given[:-1]:
            fixed(degree)
        return joined(first, *map(element, given[-1:]))
    if name in _SUMS:
        return joined(*plain, *values)
    if name in _JOINED:
        return element(first)
    if name in _PRODUCTS:
        return product(*plain, *values)
    if _BIASED.fullmatch(name):
        for degree in plain[3:]:
            fixed(degree)
        return joined(product(*plain[:2]), *plain[2:3], *values)
    if name in _SUM_AND_PRODUCT:
        return joined(first, product(*plain[1:3]))
    if name in _QUOTIENTS:
        return quotient(*[*plain, *values][:2])
    if name in _BOUNDED:
        return joined(*plain, *values)
    if name in ("sign", "sgn"):
        return 0.0
    if name == "full_like":
        return joined(*others, *values)
    if name in ("square", "sqrt", "pow"):
        return _power(applied)
    return _of_same(applied, values)


_VALUES = ("value", "src", "other", "bias", "min", "max", "fill_value")


def _power(applied: Applied) -> Degree:
    exponents = {"square": 2, "sqrt": 0.5}
    exponent = exponents.get(applied.name, applied.said[-1] if applied.said else None)
    if not isinstance(exponent, (int, float)):
        raise Unclear
    return power(applied.plain[0], exponent)


def _of_same(applied: Applied, values: list[Degree]) -> Degree:
    name, (first, *others) = applied.name, applied.plain
    if any(isinstance(one, str) and _INTEGER.fullmatch(one) for one in applied.said):
        # Rounded.
        raise Unclear
    if name in ("max", "min") and others:
        # A dimension, or what it is compared with.
        if applied.is_builtin or not isinstance(applied.said[-1], int):
            return joined(first, *others)
    if name == "pad":
        return joined(first, *others[2:], *values)
    if name == "all_reduce" and "PRODUCT" in applied.said:
        raise Unclear
    if name not in _SHAPED_LIKE:
        for degree in (*others, *values):
            fixed(degree)
    return first
