"""Dicts and their methods."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    OPEN,
    Absent,
    External,
    Frame,
    Instance,
    Known,
    Mapping_,
    Tup,
    Unknown,
    Value,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.expressions import hashable
from amp_migrate.analysis.sizes.interpreter.models import model
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir


@model(
    "builtins.dict",
    "collections.OrderedDict",
    "torch.nn.ModuleDict",
    "torch.nn.ParameterDict",
)
def _dict(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    made = Mapping_()
    if given.rest == "unknown" or len(given.positional) > 1:
        m.spoil([made], "arguments")
        return made
    if given.positional:
        _pour(m, made, given.positional[0])
    if given.rest:
        # `**kwargs` of a function that others may call: they may say something else.
        for key, value in list(made.state.items()):
            made.state[key] = weakened(value, Confidence.DEFAULT)
        made.state[OPEN] = Known(given.rest)
    for name, value in given.keywords.items():
        m.write(made, ("key", name), value)
    return made


def _pour(m: Calls, made: Mapping_, source: Value) -> None:
    if isinstance(source, Mapping_):
        m.fill(made, source)
        return
    rows = m.elements(source)
    pairs = [m.elements(row) for row in rows or ()]
    if rows is None or any(pair is None or len(pair) != 2 for pair in pairs):
        m.spoil([made], "unknown entries")
        return
    for pair in pairs:
        if pair is not None and isinstance(pair[0], Known) and hashable(pair[0].value):
            m.write(made, ("key", pair[0].value), pair[1])
        else:
            m.spoil([made], "unknown entries")


@model("collections.defaultdict")
def _defaultdict(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Mapping_()
    made.factory = given.positional[0] if given.positional else None
    if given.rest or given.keywords or len(given.positional) > 1:
        m.spoil([made], "arguments")
    return made


@model("dict.get", "dict.pop", "dict.setdefault")
def _get(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, name = f.of, f.origin.rpartition(".")[2]
    if not isinstance(box, Mapping_) or given.rest or not given.positional:
        return Unknown("entry")
    default = given.get(1, "default") or Known(None)

    def read(key: Value) -> Value:
        openness = box.state.get(OPEN)
        if not isinstance(key, Known) or isinstance(openness, Unknown):
            return Unknown("entry")
        if box.is_opaque:
            return Unknown("entry")
        entries = box.entries()
        if hashable(key.value) and key.value in entries:
            return entries[key.value]
        return default if openness is None else weakened(default, Confidence.DEFAULT)

    key = given.positional[0]
    value = lifted((key,), read)
    if name == "get":
        return value
    if not isinstance(key, Known):
        m.spoil([box], "unknown key")
    elif name == "pop" and ("key", key.value) in box.state:
        m.write(box, ("key", key.value), Absent())
    elif name == "setdefault" and hashable(key.value):
        m.write(box, ("key", key.value), value)
    return value


@model("dict.items", "dict.keys", "dict.values")
def _views(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box = f.of
    if not isinstance(box, Mapping_) or OPEN in box.state or box.is_opaque:
        return Unknown("entries")
    entries = box.entries()
    if f.origin.endswith("items"):
        return Tup(tuple(Tup((Known(key), value)) for key, value in entries.items()))
    if f.origin.endswith("keys"):
        return Tup(tuple(Known(key) for key in entries))
    return Tup(tuple(entries.values()))


@model("dict.update")
def _update(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box = f.of
    if isinstance(box, Mapping_):
        if given.positional:
            _pour(m, box, given.positional[0])
        if given.rest == "unknown":
            m.spoil([box], "arguments")
        elif given.rest:
            m.fill(box, _open_dict(given.rest))
        for name, value in given.keywords.items():
            m.write(box, ("key", name), value)
    elif isinstance(box, Instance):
        _update_attributes(m, box, given)
    return Known(None)


def _open_dict(rest: str) -> Mapping_:
    made = Mapping_()
    made.state[OPEN] = Known(rest)
    return made


def _update_attributes(m: Calls, box: Instance, given: Given) -> None:
    """``self.__dict__.update(...)``."""
    source = given.positional[0] if given.positional else None
    entries: dict[object, Value] = dict(given.keywords.items())
    if isinstance(source, Mapping_) and not isinstance(source.state.get(OPEN), Unknown):
        entries |= source.entries()
        if OPEN in source.state:
            m.write(box, OPEN, Known("default"))
    elif source is not None or given.rest:
        m.spoil([box], "update")
        return
    for key, value in entries.items():
        m.write(box, key, value)


@model("dict.copy")
def _dict_copy(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Mapping_()
    if isinstance(f.of, Mapping_):
        made.state.update(f.of.state)
        made.factory = f.of.factory
        return made
    return Unknown("copy")


@model("dict.clear", "dict.popitem", "dict.move_to_end", "dict.add_module")
def _dict_muddled(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    if isinstance(f.of, Mapping_):
        m.spoil([f.of])
    return Unknown("entry")
