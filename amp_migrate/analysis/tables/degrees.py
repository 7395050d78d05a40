"""Degrees of homogeneity: the power of the scale that a value carries."""

from __future__ import annotations

from collections.abc import Iterator

Degree = float | tuple["Degree", ...] | None
"""A power of the scale; None for zeros and for nothing at all, which are of every degree. What is made
of several values, as a tuple is, has one for each."""


class Unclear(Exception):
    """The degree of a value cannot be told, or it has none; carries the line, or 0."""

    def __init__(self, line: int = 0) -> None:
        super().__init__(line)
        self.line = line


def flat(degree: Degree) -> Iterator[float | None]:
    """The degrees of all parts of a value."""
    if isinstance(degree, tuple):
        for part in degree:
            yield from flat(part)
    else:
        yield degree


def element(degree: Degree) -> float | None:
    """The degree of each element of a sequence."""
    if not isinstance(degree, tuple):
        return degree
    known = {one for one in flat(degree) if one is not None}
    if len(known) > 1:
        raise Unclear
    return known.pop() if known else None


def fixed(degree: Degree) -> float:
    """The degree of what must not depend on the gradient."""
    if any(one not in (None, 0.0) for one in flat(degree)):
        raise Unclear
    return 0.0


def joined(*degrees: Degree) -> Degree:
    """The common degree of things that are added or compared, or of which one is taken."""
    found: Degree = None
    for degree in degrees:
        if found is None or degree is None:
            found = degree if found is None else found
        elif (
            isinstance(found, tuple)
            and isinstance(degree, tuple)
            and len(found) == len(degree)
        ):
            found = tuple(joined(*pair) for pair in zip(found, degree, strict=True))
        elif found != degree:
            # A list of numbers that another list is added to.
            found = fixed((found, degree))
    return found


def product(*degrees: Degree) -> float | None:
    """The degree of a product."""
    total = 0.0
    for degree in map(element, degrees):
        if degree is None:
            return None
        total += degree
    return total


def quotient(above: Degree, below: Degree) -> float | None:
    """The degree of a quotient."""
    numerator, denominator = element(above), element(below)
    if numerator is None:
        return None
    if denominator is None:
        raise Unclear
    return numerator - denominator


def power(base: Degree, exponent: float) -> float | None:
    """The degree of a power with a known exponent."""
    own = element(base)
    return None if own is None else own * exponent
