"""Methods of lists, dicts, texts, layers and containers, and the calls that make such things."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.facts import ir
from amp_migrate.findings import Confidence
from amp_migrate.sizes.arithmetic import MAX_ITEMS, MAX_TEXT, sure
from amp_migrate.sizes.calls import Calls
from amp_migrate.sizes.expressions import hashable
from amp_migrate.sizes.machine import Given
from amp_migrate.sizes.values import (
    ITEMS,
    OPEN,
    ORDER,
    Absent,
    External,
    Frame,
    Instance,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Unknown,
    Value,
    distinct,
    lifted,
    weakened,
)

Model = Callable[[Calls, External, Given, ir.Call, Frame], Value]
MODELS: dict[str, Model] = {}


def _model(*origins: str) -> Callable[[Model], Model]:
    def add(model: Model) -> Model:
        for origin in origins:
            MODELS[origin] = model
        return model

    return add


# -- lists and containers of modules ------------------------------------------------------------


@_model(
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


@_model("torch.nn.Sequential", "torch.nn.modules.container.Sequential")
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


@_model("list.append", "list.add")
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


@_model("list.add_module")
def _add_module(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    box, items = _items(f)
    if items is not None and len(given.positional) == 2:
        m.write(box, ITEMS, Tup((*items, given.positional[1])))
    elif items is not None:
        m.write(box, ITEMS, Unknown("list"))
    return Known(None)


@_model("list.extend")
def _extend(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    more = m.elements(given.positional[0]) if given.positional else None
    if items is not None:
        whole = more is not None and len(items) + len(more) <= MAX_ITEMS
        m.write(box, ITEMS, Tup((*items, *(more or ()))) if whole else Unknown("list"))
    return box


@_model("list.insert")
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


@_model("list.pop")
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


@_model("list.reverse")
def _reverse(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    box, items = _items(f)
    if items is not None:
        m.write(box, ITEMS, Tup(items[::-1]))
    return Known(None)


@_model(
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


@_model("list.copy")
def _list_copy(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    box, _ = _items(f)
    return Sequence(box.kind, box.state[ITEMS])


@_model("list.index", "tuple.index", "list.count", "tuple.count")
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


# -- dicts --------------------------------------------------------------------------------------


@_model(
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


@_model("collections.defaultdict")
def _defaultdict(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Mapping_()
    made.factory = given.positional[0] if given.positional else None
    if given.rest or given.keywords or len(given.positional) > 1:
        m.spoil([made], "arguments")
    return made


@_model("dict.get", "dict.pop", "dict.setdefault")
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


@_model("dict.items", "dict.keys", "dict.values")
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


@_model("dict.update")
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


@_model("dict.copy")
def _dict_copy(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Mapping_()
    if isinstance(f.of, Mapping_):
        made.state.update(f.of.state)
        made.factory = f.of.factory
        return made
    return Unknown("copy")


@_model("dict.clear", "dict.popitem", "dict.move_to_end", "dict.add_module")
def _dict_muddled(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    if isinstance(f.of, Mapping_):
        m.spoil([f.of])
    return Unknown("entry")


# -- bundles of attributes ------------------------------------------------------------------------


@_model(
    "types.SimpleNamespace",
    "argparse.Namespace",
    "easydict.EasyDict",
    "box.Box",
    "addict.Dict",
    "attrdict.AttrDict",
    "munch.Munch",
    "ml_collections.ConfigDict",
    "ml_collections.config_dict.ConfigDict",
)
def _namespace(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Instance(None, "namespace")
    if given.rest == "unknown" or len(given.positional) > 1:
        m.spoil([made], "arguments")
        return made
    if given.positional:
        source = given.positional[0]
        if isinstance(source, Mapping_) and OPEN not in source.state:
            for name, value in source.entries().items():
                if isinstance(value, Mapping_):
                    inner = _namespace(m, f, Given([value]), site, frame)
                    made.state[name] = inner
                else:
                    made.state[name] = value
        else:
            m.spoil([made], "arguments")
    if given.rest:
        made.state[OPEN] = Known(given.rest)
    made.state.update(given.keywords)
    return made


@_model("collections.namedtuple")
def _namedtuple(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    names = given.get(1, "field_names")
    held: list[str] = []
    if isinstance(names, Known) and isinstance(names.value, str):
        held = names.value.replace(",", " ").split()
    else:
        rows = None if names is None else m.elements(names)
        for row in rows or ():
            if isinstance(row, Known) and isinstance(row.value, str):
                held.append(row.value)
    if not held or len(given.positional) + len(given.keywords) > 2:
        return Unknown("namedtuple")
    made = Instance(None, "namedtuple")
    made.state["names"] = Tup(tuple(Known(name) for name in held))
    return External("namedtuple.make", made)


@_model("namedtuple.make")
def _make_tuple(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    if not isinstance(f.of, Instance):
        return Unknown("namedtuple")
    names = f.of.state["names"]
    assert isinstance(names, Tup)
    texts = tuple(str(one.value) for one in names.items if isinstance(one, Known))
    values = tuple(
        given.get(k, name) or Unknown("parameter") for k, name in enumerate(texts)
    )
    return Unknown("namedtuple") if given.rest else Tup(values, texts)


@_model("dataclasses.field", "attr.ib", "attrs.field", "pydantic.Field")
def _field(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    made = Instance(None, "field")
    made.state.update(given.keywords)
    if f.origin == "pydantic.Field" and given.positional:
        made.state["default"] = given.positional[0]
    return made


@_model("dataclasses.replace", "copy.replace")
def _replaced(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    source = given.positional[0] if given.positional else None
    if not isinstance(source, Instance) or given.rest:
        return Unknown("copy")
    made = Instance(source.cls, source.kind, source.layer)
    made.state.update(source.state)
    made.state.update(given.keywords)
    return made


@_model("dataclasses.asdict")
def _asdict(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    source = given.positional[0] if given.positional else None
    if not isinstance(source, Instance) or OPEN in source.state:
        return Unknown("copy")
    made = Mapping_()
    for name, value in source.state.items():
        made.state["key", name] = value
    return made


# -- modules --------------------------------------------------------------------------------------


@_model(
    "module.add_module",
    "module.register_module",
    "module.register_parameter",
    "module.register_buffer",
)
def _register(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    name, value = given.get(0, "name"), given.get(1, "module")
    if isinstance(f.of, Instance) and isinstance(name, Known) and value is not None:
        m.set_attribute(f.of, str(name.value), value)
    return Known(None)


def _itself(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    return f.of or Unknown("call")


for _kind in ("module", "list", "dict", "layer", "model"):
    for _name in (
        "to",
        "cuda",
        "cpu",
        "float",
        "half",
        "double",
        "train",
        "eval",
        "apply",
        "requires_grad_",
    ):
        MODELS[f"{_kind}.{_name}"] = _itself
MODELS["torch.nn.DataParallel"] = lambda m, f, given, site, frame: Unknown("data")


# -- texts ----------------------------------------------------------------------------------------

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


@_model("str.join")
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


@_model("str.format")
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
