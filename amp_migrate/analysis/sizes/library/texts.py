"""Methods of texts."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_ITEMS, MAX_TEXT, sure
from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    External,
    Frame,
    Known,
    Sequence,
    Tup,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import MODELS, model
from amp_migrate.program import ir

_TEXT_METHODS = frozenset(
    """lower upper strip lstrip rstrip split rsplit startswith endswith isdigit capitalize title
    find rfind index count partition rpartition splitlines removeprefix removesuffix isalpha
    isnumeric replace""".split()
)


def _text(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    name = f.origin.rpartition(".")[2]
    if given.rest or given.keywords or not isinstance(f.of, Known):
        return Unknown("text")
    args = list(given.positional)
    if any(isinstance(a, Tup) for a in args) and name in ("startswith", "endswith"):
        args = [_flat(a) for a in args]

    def compute(*ready: Value) -> Value:
        known = [one for one in ready if isinstance(one, Known)]
        if len(known) < len(ready) or not isinstance(known[0].value, str):
            return Unknown("text")
        try:
            result = getattr(known[0].value, name)(*(one.value for one in known[1:]))
        except (TypeError, ValueError, OverflowError, MemoryError):
            return Unknown("text")
        if isinstance(result, (list, tuple)):
            parts = Tup(tuple(sure(part, *known) for part in result[:MAX_ITEMS]))
            return parts if isinstance(result, tuple) else Sequence("list", parts)
        if isinstance(result, str) and len(result) > MAX_TEXT:
            return Unknown("text")
        return sure(result, *known)

    if name == "replace" and len(args) == 2:
        lengths = [len(str(a.value)) for a in (f.of, *args) if isinstance(a, Known)]
        if len(lengths) == 3 and (lengths[0] + 1) * (lengths[2] + 1) > MAX_TEXT:
            return Unknown("text")
    return lifted((f.of, *args), compute)


def _flat(value: Value) -> Value:
    if isinstance(value, Tup):
        known = [one.value for one in value.items if isinstance(one, Known)]
        if len(known) == len(value.items):
            return Known(tuple(known))
    return value


for _name in _TEXT_METHODS:
    MODELS[f"str.{_name}"] = _text


@model("str.join")
def _join(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    items = m.elements(given.positional[0]) if given.positional else None
    known = [
        one
        for one in items or ()
        if isinstance(one, Known) and isinstance(one.value, str)
    ]
    if items is None or len(known) < len(items) or not isinstance(f.of, Known):
        return Unknown("text")
    text = str(f.of.value).join(str(one.value) for one in known)
    return sure(text, f.of, *known) if len(text) <= MAX_TEXT else Unknown("text")


@model("str.format")
def _format(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    template = f.of.value if isinstance(f.of, Known) else ""
    if (
        given.rest
        or not isinstance(template, str)
        or any(c in template for c in ":![.")
    ):
        return Unknown("text")
    named = {k: v for k, v in given.keywords.items() if isinstance(v, Known)}
    plain = [v for v in given.positional if isinstance(v, Known)]
    if len(named) < len(given.keywords) or len(plain) < len(given.positional):
        return Unknown("text")
    values = [*plain, *named.values()]
    if any(not isinstance(v.value, (str, int, float, type(None))) for v in values):
        return Unknown("text")
    try:
        text = template.format(
            *(v.value for v in plain), **{k: v.value for k, v in named.items()}
        )
    except (IndexError, KeyError, ValueError):
        return Unknown("text")
    return sure(text, *values) if len(text) <= MAX_TEXT else Unknown("text")
