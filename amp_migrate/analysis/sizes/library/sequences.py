"""Lists, tuples, sets and containers of modules."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_ITEMS, sure
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    ITEMS,
    OPEN,
    ORDER,
    External,
    Frame,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Unknown,
    Value,
    distinct,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import model
from amp_migrate.program import ir


@model(
    "builtins.list",
    "builtins.tuple",
    "builtins.set",
    "torch.nn.ModuleList",
    "torch.nn.ParameterList",
    "torch.Size",
    "builtins.iter",
    "builtins.frozenset",
)
def _list(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    name = f.origin.rpartition(".")[2]
    items: tuple[Value, ...] | None = ()
    if given.rest:
        items = None
    elif given.positional or given.keywords:
        source = given.get(0, "modules") or Unknown("")
        items = m.elements(source)
        if isinstance(source, Sequence) and source.kind == "set" and source.items:
            # As many, in an order that nobody knows.
            items = tuple(Unknown(ORDER) for _ in source.items)
    if name in ("tuple", "Size"):
        return Unknown("list") if items is None else Tup(items)
    if name == "iter":
        return Unknown("iterator")
    if name in ("set", "frozenset"):
        return Sequence("set", distinct(items))
    return Sequence(
        "list" if name == "list" else "modules",
        Unknown("list") if items is None else Tup(items),
    )


@model("torch.nn.Sequential", "torch.nn.modules.container.Sequential")
def _sequential(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    if given.rest:
        return Sequence("modules", Unknown("list"))
    items = tuple(given.positional)
    if len(items) == 1 and isinstance(items[0], Mapping_):
        if OPEN in items[0].state:
            return Sequence("modules", Unknown("list"))
        items = tuple(items[0].entries().values())
    return Sequence("modules", Tup(items))


def _items(f: External) -> tuple[Sequence, tuple[Value, ...] | None]:
    assert isinstance(f.of, Sequence)
    return f.of, f.of.items


@model("list.append", "list.add")
def _append(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    if items is not None:
        new = given.positional[0] if len(given.positional) == 1 else None
        known = new is not None and len(items) < MAX_ITEMS and box.kind != "set"
        m.write(
            box,
            ITEMS,
            Tup((*items, new)) if known and new is not None else Unknown("list"),
        )
    return box


@model("list.add_module")
def _add_module(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    box, items = _items(f)
    if items is not None and len(given.positional) == 2:
        m.write(box, ITEMS, Tup((*items, given.positional[1])))
    elif items is not None:
        m.write(box, ITEMS, Unknown("list"))
    return Known(None)


@model("list.extend")
def _extend(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    more = m.elements(given.positional[0]) if given.positional else None
    if items is not None:
        whole = more is not None and len(items) + len(more) <= MAX_ITEMS
        m.write(box, ITEMS, Tup((*items, *(more or ()))) if whole else Unknown("list"))
    return box


@model("list.insert")
def _insert(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    if items is not None:
        held: Value = Unknown("list")
        if len(given.positional) == 2:
            at, new = given.positional
            if isinstance(at, Known) and isinstance(at.value, int):
                changed = list(items)
                changed.insert(at.value, new)
                held = Tup(tuple(changed))
        m.write(box, ITEMS, held)
    return Known(None)


@model("list.pop")
def _pop(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    if items is None:
        return Unknown("list")
    at = given.positional[0] if given.positional else Known(-1)
    if isinstance(at, Known) and isinstance(at.value, int):
        changed = list(items)
        try:
            taken = changed.pop(at.value)
        except IndexError:
            return Unknown("index")
        m.write(box, ITEMS, Tup(tuple(changed)))
        return taken
    m.write(box, ITEMS, Unknown("list"))
    return Unknown("list")


@model("list.reverse")
def _reverse(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    if items is not None:
        m.write(box, ITEMS, Tup(items[::-1]))
    return Known(None)


@model(
    "list.clear",
    "list.sort",
    "list.remove",
    "list.update",
    "list.discard",
    "list.__setitem__",
)
def _muddled(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, _ = _items(f)
    m.write(box, ITEMS, Tup(()) if f.origin == "list.clear" else Unknown("list"))
    return Known(None)


@model("list.copy")
def _list_copy(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    box, _ = _items(f)
    return Sequence(box.kind, box.state[ITEMS])


@model("list.index", "tuple.index", "list.count", "tuple.count")
def _index(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    items = f.of.items if isinstance(f.of, (Sequence, Tup)) else None
    wanted = given.positional[0] if len(given.positional) == 1 else None
    if items is None or not isinstance(wanted, Known):
        return Unknown("index", whole=True)
    known = [one.value for one in items if isinstance(one, Known)]
    if len(known) < len(items) or (
        f.origin.endswith("index") and wanted.value not in known
    ):
        return Unknown("index", whole=True)
    result = (
        known.index(wanted.value)
        if f.origin.endswith("index")
        else known.count(wanted.value)
    )
    return sure(result, wanted)
