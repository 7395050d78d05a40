"""Numbers: arithmetic functions of Python, `math` and `numpy`."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import gcd
from typing import Any

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_BITS, sure
from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    External,
    Frame,
    Known,
    Unknown,
    Value,
    is_whole,
    multiple_of,
    unknown_multiple,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import MODELS, Model, model
from amp_migrate.program import ir


def plain(function: Callable[..., object], *values: Value) -> Value:
    """A function of numbers and texts, on values."""

    def compute(*ready: Value) -> Value:
        known = [one for one in ready if isinstance(one, Known)]
        if len(known) < len(ready):
            return Unknown(
                next((v.reason for v in ready if isinstance(v, Unknown)), "call")
            )
        try:
            return sure(function(*(one.value for one in known)), *known)
        except (ArithmeticError, TypeError, ValueError):
            return Unknown("call")

    return lifted(values, compute)


def _number(function: Callable[..., object]) -> Model:
    def run(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
        if given.rest or given.keywords or not given.positional:
            return Unknown("call")
        return plain(function, *given.positional)

    return run


def _bounded_pow(a: Any, b: Any) -> object:
    if isinstance(a, int) and isinstance(b, int):
        if abs(a).bit_length() * b > MAX_BITS:
            raise ValueError
    result: object = a**b
    return result


for _name in ("sqrt", "log", "log2", "log10", "exp", "fabs", "cos", "sin"):
    for _root in ("math", "numpy"):
        _function = getattr(math, _name)
        MODELS[f"{_root}.{_name}"] = _number(_function)


for _root in ("math", "numpy"):
    MODELS[f"{_root}.pow" if _root == "math" else "numpy.power"] = _number(math.pow)


MODELS["builtins.pow"] = _number(_bounded_pow)


MODELS["math.gcd"] = _number(math.gcd)


MODELS["builtins.bool"] = _number(bool)


def _rounding(function: Callable[[float], object]) -> Model:
    """What keeps an integer as it is, and makes one of any other number."""

    def run(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
        if len(given.positional) != 1 or given.rest or given.keywords:
            return Unknown("call", whole=True)

        def compute(value: Value) -> Value:
            if isinstance(value, Unknown):
                multiple = value.multiple if value.whole else 1
                return unknown_multiple(value.reason, multiple, True)
            if isinstance(value, Known) and isinstance(value.value, str):
                if len(value.value) > 20:
                    return Unknown("call")
            return plain(function, value)

        return lifted((given.positional[0],), compute)

    return run


MODELS["builtins.int"] = _rounding(int)


MODELS["math.ceil"] = _rounding(math.ceil)


MODELS["math.floor"] = _rounding(math.floor)


MODELS["math.trunc"] = _rounding(math.trunc)


MODELS["numpy.ceil"] = _number(math.ceil)


MODELS["numpy.floor"] = _number(math.floor)


MODELS["numpy.int64"] = _rounding(int)


MODELS["numpy.int32"] = _rounding(int)


@model("builtins.round", "numpy.round")
def _round(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords:
        return Unknown("call")
    if len(given.positional) == 1:
        return _rounding(round)(m, f, given, site, frame)
    return plain(round, *given.positional)


@model("builtins.float", "builtins.abs", "builtins.str", "builtins.ord", "builtins.chr")
def _builtin(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords or len(given.positional) != 1:
        return Unknown("call")
    value = given.positional[0]
    name = f.origin.rpartition(".")[2]
    if name == "abs" and isinstance(value, Unknown):
        return value
    if (
        name == "str"
        and isinstance(value, Known)
        and not isinstance(value.value, (str, int, float, type(None)))
    ):
        return Unknown("call")
    functions: dict[str, Callable[..., object]] = {
        "float": float,
        "abs": abs,
        "str": str,
        "ord": ord,
        "chr": chr,
    }
    return plain(functions[name], value)


@model("builtins.min", "builtins.max")
def _extreme(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords:
        return Unknown("call")
    values = tuple(given.positional)
    if len(values) == 1:
        held = m.elements(values[0])
        if not held:
            return Unknown("call")
        values = held
    function = min if f.origin.endswith("min") else max

    def compute(*ready: Value) -> Value:
        if all(isinstance(one, Known) for one in ready):
            return plain(function, *ready) if len(ready) > 1 else ready[0]
        if not all(isinstance(one, (Known, Unknown)) for one in ready):
            return Unknown("call")
        reason = next(one.reason for one in ready if isinstance(one, Unknown))
        multiple = gcd(*(multiple_of(one) for one in ready))
        return unknown_multiple(reason, multiple, all(map(is_whole, ready)))

    return lifted(values, compute)


@model("builtins.sum", "math.prod", "numpy.prod", "numpy.sum")
def _total(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords or not 1 <= len(given.positional) <= 2:
        return Unknown("call")
    items = m.elements(given.positional[0])
    op = "*" if f.origin.endswith("prod") else "+"
    if items is None:
        return Unknown("call")
    start: Value = Known(1 if op == "*" else 0)
    if len(given.positional) == 2:
        start = given.positional[1]
    for item in items:
        start = m.operate(op, start, item)
    return start
