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

ZEROS = _words("zeros_like new_zeros zeros empty_like new_empty empty")
ONES = _words("ones_like new_ones ones rand_like randn_like")

_SAME = _words(
    """clone contiguous view reshape view_as reshape_as expand expand_as repeat repeat_interleave
    to type_as astype float half double bfloat16 cpu cuda detach detach_ requires_grad_ numpy
    from_numpy as_tensor permute transpose t swapaxes unsqueeze squeeze squeeze_ unsqueeze_ flatten
    unflatten ravel movedim flip roll rot90 narrow select index_select gather take take_along_dim
    chunk split unbind diagonal diag diag_embed tril triu unfold fold pad masked_select resize_
    broadcast_to sum_to_size pin_memory to_dense coalesce
    sum mean nansum nanmean cumsum neg neg_ abs abs_ relu relu_ leaky_relu norm amax amin max min std
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d adaptive_avg_pool2d interpolate upsample
    pixel_shuffle pixel_unshuffle dropout fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn
    all_reduce broadcast tuple list reversed next iter sort"""
)
"""Of the degree of their first operand; what else they are given says only how."""
_SHAPED_LIKE = _words("type_as view_as reshape_as expand_as to")
_BOUNDED = _words("clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ clip clip_")
_PRODUCTS = _words(
    """mul mul_ multiply mm bmm matmul mv dot vdot outer ger inner einsum tensordot kron cross
    conv1d_input conv2d_input conv3d_input conv1d_weight conv2d_weight conv3d_weight
    convolve convolve2d correlate2d"""
)
_BIASED = re.compile(r"linear|conv(_transpose)?\dd")
_QUOTIENTS = _words("div div_ true_divide divide")
_SUMS = _words("""add add_ sub sub_ subtract rsub maximum minimum copy_ fill_""")
_STORES = _words(
    """index_add index_add_ index_copy index_copy_ index_put index_put_ index_fill index_fill_
    scatter scatter_ scatter_add scatter_add_ masked_scatter masked_scatter_ masked_fill
    masked_fill_"""
)
_JOINED = _words("cat concat stack hstack vstack")
_SUM_AND_PRODUCT = _words("addcmul addmm addmv baddbmm addbmm addr")
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
