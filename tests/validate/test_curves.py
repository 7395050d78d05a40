"""The series that are drawn of two runs."""

from __future__ import annotations

from typing import Any

from amp_migrate.validate import curves
from amp_migrate.validate.order import Order
from amp_migrate.validate.record import Record


def loss(value: float, line: int | None = None) -> dict[str, Any]:
    where = {} if line is None else {"path": "train.py", "line": line}
    return {"kind": "loss", "value": value, **where}


def tried(kind: str, scale: float | None) -> dict[str, Any]:
    return {"kind": kind, "scale": scale}


STEP = tried("step", None)


def record(name: str, *lines: dict[str, Any]) -> Record:
    return Record(Order(name), lines)


def test_losses_of_two_places_are_two_curves_of_each_run() -> None:
    plain = record("plain", *[loss(1, 5), loss(2, 9), STEP, loss(3, 5), loss(4, 9)])
    mixed = record("mixed", *[loss(1.5, 8), loss(2.5, 14), STEP, loss(3.5, 8)])
    found = curves.losses(plain, mixed)
    assert [(one.name, one.place, one.values, one.steps) for one in found] == [
        ("fp32", "train.py:5", (1, 3), (0, 1)),
        ("fp32", "train.py:9", (2, 4), (0, 1)),
        ("mixed", "train.py:5", (1.5, 3.5), (0, 1)),
        ("mixed", "train.py:9", (2.5,), (0,)),
    ]


def test_one_place_has_no_name() -> None:
    plain = record("plain", loss(1, 5), STEP, loss(2, 5))
    found = curves.losses(plain, record("mixed", loss(1, 6), STEP, loss(2, 6)))
    assert [one.place for one in found] == ["", ""]


def test_places_that_cannot_be_matched_are_one_curve() -> None:
    plain = record("plain", loss(1, 5), loss(2, 9), STEP)
    found = curves.losses(plain, record("mixed", loss(1.5, 8), loss(2.5, 8), STEP))
    assert [(one.name, one.place, one.values) for one in found] == [
        ("fp32", "", (1, 2)),
        ("mixed", "", (1.5, 2.5)),
    ]


def test_without_a_mixed_run_there_is_the_original() -> None:
    found = curves.losses(record("plain", loss(1)), None)
    assert [(one.name, one.values) for one in found] == [("fp32", (1,))]


def test_scales_are_those_of_skipped_steps_too() -> None:
    found = curves.scales(
        record("mixed", tried("skip", 64.0), loss(1), tried("step", 32.0))
    )
    assert [one.values for one in found] == [(64.0, 32.0)]
