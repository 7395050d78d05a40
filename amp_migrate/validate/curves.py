"""The series of two runs that a person compares by eye."""

from __future__ import annotations

from amp_migrate.validate.record import Line, Record
from amp_migrate.validate.verdict import Curve


def losses(plain: Record, mixed: Record | None) -> tuple[Curve, ...]:
    """The losses of the original, and those of a mixed run over them: one curve for each place.

    Places are matched by the order in which they come up: line numbers differ between the two.
    """
    before = _by_place(plain)
    after = _by_place(mixed) if mixed is not None else []
    if after and len(after) != len(before):
        before, after = [("", _losses(plain))], [("", _losses(mixed))]
    places = [place if len(before) > 1 else "" for place, _ in before]
    curves = [
        _curve("fp32", place, lines)
        for place, (_, lines) in zip(places, before, strict=True)
    ]
    if mixed is not None and after:
        curves += [
            _curve(mixed.order.name, place, lines)
            for place, (_, lines) in zip(places, after, strict=True)
        ]
    return tuple(curves)


def scales(record: Record) -> tuple[Curve, ...]:
    """The loss scale at each try of a step, those that were skipped among them."""
    tries = [line for line in record.lines if line["kind"] in ("step", "skip")]
    return (
        Curve(record.order.name, tuple(float(line["scale"] or 0) for line in tries)),
    )


Placed = tuple[int, Line]
"""A loss, and the number of steps that were made before it."""


def _losses(record: Record | None) -> list[Placed]:
    found = []
    steps = 0
    for line in record.events if record is not None else ():
        if line["kind"] == "step":
            steps += 1
        else:
            found.append((steps, line))
    return found


def _by_place(record: Record) -> list[tuple[str, list[Placed]]]:
    found: dict[str, list[Placed]] = {}
    for step, line in _losses(record):
        place = f"{line['path']}:{line['line']}" if "path" in line else ""
        found.setdefault(place, []).append((step, line))
    return list(found.items())


def _curve(name: str, place: str, lines: list[Placed]) -> Curve:
    return Curve(
        name,
        tuple(float(line["value"]) for _, line in lines),
        place,
        tuple(step for step, _ in lines),
    )
