"""What functions of Python and of libraries give, as far as sizes depend on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from math import gcd
from typing import Any

from amp_migrate.facts import ir
from amp_migrate.findings import Confidence
from amp_migrate.sizes.arithmetic import MAX_BITS, MAX_ITEMS, sure
from amp_migrate.sizes.calls import Calls
from amp_migrate.sizes.machine import Given
from amp_migrate.sizes.values import (
    ITEMS,
    OPEN,
    Choice,
    ClassValue,
    External,
    Frame,
    Func,
    Instance,
    Known,
    Lambda,
    Mapping_,
    Partial,
    Sequence,
    Tensor,
    Tup,
    Unknown,
    Value,
    is_whole,
    lifted,
    multiple_of,
    unknown_multiple,
    weakened,
)

Model = Callable[[Calls, External, Given, ir.Call, Frame], Value]

_MODELS: dict[str, Model] = {}


def model_of(origin: str) -> Model | None:
    """What a library's function is known to do."""
    from amp_migrate.sizes import boxes, command_line

    return (
        _MODELS.get(origin)
        or boxes.MODELS.get(origin)
        or command_line.MODELS.get(origin)
    )


def _model(*origins: str) -> Callable[[Model], Model]:
    def add(model: Model) -> Model:
        for origin in origins:
            _MODELS[origin] = model
        return model

    return add


def _plain(function: Callable[..., object], *values: Value) -> Value:
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
        return _plain(function, *given.positional)

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
        _MODELS[f"{_root}.{_name}"] = _number(_function)
for _root in ("math", "numpy"):
    _MODELS[f"{_root}.pow" if _root == "math" else "numpy.power"] = _number(math.pow)
_MODELS["builtins.pow"] = _number(_bounded_pow)
_MODELS["math.gcd"] = _number(math.gcd)
_MODELS["builtins.bool"] = _number(bool)


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
            return _plain(function, value)

        return lifted((given.positional[0],), compute)

    return run


_MODELS["builtins.int"] = _rounding(int)
_MODELS["math.ceil"] = _rounding(math.ceil)
_MODELS["math.floor"] = _rounding(math.floor)
_MODELS["math.trunc"] = _rounding(math.trunc)
_MODELS["numpy.ceil"] = _number(math.ceil)
_MODELS["numpy.floor"] = _number(math.floor)
_MODELS["numpy.int64"] = _rounding(int)
_MODELS["numpy.int32"] = _rounding(int)


@_model("builtins.round", "numpy.round")
def _round(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords:
        return Unknown("call")
    if len(given.positional) == 1:
        return _rounding(round)(m, f, given, site, frame)
    return _plain(round, *given.positional)


@_model(
    "builtins.float", "builtins.abs", "builtins.str", "builtins.ord", "builtins.chr"
)
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
    return _plain(functions[name], value)


@_model("builtins.min", "builtins.max")
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
            return _plain(function, *ready) if len(ready) > 1 else ready[0]
        if not all(isinstance(one, (Known, Unknown)) for one in ready):
            return Unknown("call")
        reason = next(one.reason for one in ready if isinstance(one, Unknown))
        multiple = gcd(*(multiple_of(one) for one in ready))
        return unknown_multiple(reason, multiple, all(map(is_whole, ready)))

    return lifted(values, compute)


@_model("builtins.sum", "math.prod", "numpy.prod", "numpy.sum")
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


@_model("builtins.len")
def _len(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 1:
        return Unknown("call", whole=True)

    def compute(value: Value) -> Value:
        if isinstance(value, Mapping_):
            return (
                Unknown("data", whole=True)
                if OPEN in value.state
                else Known(len(value.entries()))
            )
        if isinstance(value, Known) and isinstance(value.value, (str, range)):
            return _plain(len, value)
        if isinstance(value, Tup):
            return Known(len(value.items))
        if isinstance(value, Sequence) and value.items is not None:
            return Known(len(value.items))
        return Unknown("data", whole=True)

    return lifted((given.positional[0],), compute)


@_model("builtins.range")
def _range(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or given.keywords or not 1 <= len(given.positional) <= 3:
        return Unknown("range")
    if all(isinstance(v, Known) and type(v.value) is int for v in given.positional):
        return _plain(range, *given.positional)
    return Unknown("range")


@_model("builtins.enumerate")
def _enumerate(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    items = m.elements(given.positional[0]) if given.positional else None
    start = given.get(1, "start") or Known(0)
    if items is None or not isinstance(start, Known) or type(start.value) is not int:
        return Unknown("loop")
    return Tup(tuple(Tup((Known(k), one)) for k, one in enumerate(items, start.value)))


@_model("builtins.zip", "itertools.product")
def _zip(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    rows = [m.elements(one) for one in given.positional]
    if given.rest or given.keywords or any(row is None for row in rows):
        return Unknown("loop")
    whole = [row for row in rows if row is not None]
    if f.origin == "builtins.zip":
        return Tup(tuple(Tup(tuple(row)) for row in zip(*whole, strict=False)))
    import itertools

    if math.prod(map(len, whole)) > MAX_ITEMS:
        return Unknown("loop")
    return Tup(tuple(Tup(row) for row in itertools.product(*whole)))


@_model("itertools.chain")
def _chain(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    rows = [m.elements(one) for one in given.positional]
    if given.rest or any(row is None for row in rows):
        return Unknown("loop")
    return Tup(tuple(one for row in rows for one in row or ()))


@_model("itertools.repeat")
def _repeat(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    times = given.get(1, "times")
    if (
        isinstance(times, Known)
        and type(times.value) is int
        and times.value <= MAX_ITEMS
    ):
        return Tup((given.positional[0],) * times.value)
    return Unknown("loop")


@_model("builtins.reversed", "builtins.sorted")
def _reordered(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    source = given.positional[0] if given.positional else Unknown("loop")
    in_set = isinstance(source, Sequence) and source.kind == "set"
    items = (
        source.items if isinstance(source, Sequence) and in_set else m.elements(source)
    )
    if items is None or given.keywords or (in_set and f.origin.endswith("reversed")):
        return Unknown("loop")
    if f.origin == "builtins.reversed":
        return Tup(tuple(reversed(items)))
    known = [one for one in items if isinstance(one, Known)]
    if len(known) < len(items):
        return Unknown("loop")
    try:
        ordered = sorted(known, key=_content)
    except TypeError:
        return Unknown("loop")
    return Sequence("list", Tup(tuple(ordered)))


def _content(value: Known) -> Any:
    return value.value


@_model("builtins.map")
def _map(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 2 or given.rest or given.keywords:
        return Unknown("loop")
    items = m.elements(given.positional[1])
    if items is None or len(items) > 256:
        return Unknown("loop")
    return Tup(
        tuple(m.call(given.positional[0], Given([one]), site, frame) for one in items)
    )


@_model("builtins.filter")
def _filter(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 2 or given.rest:
        return Unknown("loop")
    test, source = given.positional
    items = m.elements(source)
    if items is None or len(items) > 256:
        return Unknown("loop")
    kept = []
    for one in items:
        is_none = isinstance(test, Known) and test.value is None
        known = m.truth(one if is_none else m.call(test, Given([one]), site, frame))
        if known is None:
            return Unknown("loop")
        if known.value:
            kept.append(one)
    return Tup(tuple(kept))


@_model("builtins.any", "builtins.all")
def _any(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    items = m.elements(given.positional[0]) if given.positional else None
    if items is None:
        return Unknown("condition", whole=True)
    decisive = f.origin.endswith("any")
    found = [m.truth(one) for one in items]
    for one in found:
        if one is not None and bool(one.value) is decisive:
            return sure(decisive, one)
    if any(one is None for one in found):
        return Unknown("condition", whole=True)
    return sure(not decisive, *(one for one in found if one is not None))


@_model("builtins.isinstance", "builtins.issubclass")
def _isinstance(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    if len(given.positional) != 2:
        return Unknown("type")
    value, kind = given.positional
    kinds = kind.items if isinstance(kind, Tup) else (kind,)

    def compute(one: Value) -> Value:
        answers = [_is_a(one, k) for k in kinds]
        if any(answers):
            return _said(True, one)
        return Unknown("type", whole=True) if None in answers else _said(False, one)

    return lifted((value,), compute)


def _said(answer: bool, value: Value) -> Value:
    return sure(answer, value) if isinstance(value, Known) else Known(answer)


_TYPES: dict[str, type] = {
    "builtins.int": int,
    "builtins.float": float,
    "builtins.str": str,
    "builtins.bool": bool,
    "numbers.Number": float,
    "numbers.Integral": int,
    "collections.abc.Iterable": list,
    "collections.Iterable": list,
    "collections.abc.Sequence": list,
    "typing.Iterable": list,
    "typing.Sequence": list,
    "builtins.tuple": tuple,
    "builtins.list": list,
    "builtins.dict": dict,
}
_ITERABLES = ("Iterable", "Sequence")


def _is_a(value: Value, kind: Value) -> bool | None:
    if isinstance(kind, ClassValue):
        if isinstance(value, Instance):
            if value.cls is not None:
                return kind in value.cls.mro
            return False if value.kind in ("layer", "namespace") else None
        if isinstance(value, ClassValue):
            return kind in value.mro
        return None if isinstance(value, Unknown) else False
    if not isinstance(kind, External):
        return None
    origin = kind.origin
    name = origin.rpartition(".")[2]
    if isinstance(value, Known):
        if origin == "numbers.Number":
            return isinstance(value.value, (int, float))
        if name in _ITERABLES:
            return isinstance(value.value, (str, range))
        wanted = _TYPES.get(origin)
        if wanted is None:
            return (
                False
                if value.value is None or isinstance(value.value, (int, str))
                else None
            )
        return isinstance(value.value, wanted)
    if isinstance(value, (Tup, Sequence, Mapping_)):
        if isinstance(value, Sequence) and value.kind not in ("list", "set"):
            return None
        made = (
            "tuple"
            if isinstance(value, Tup)
            else ("dict" if isinstance(value, Mapping_) else value.kind)
        )
        if name == "Iterable":
            return True
        if name == "Sequence":
            return made in ("tuple", "list")
        return made == name if origin.startswith("builtins.") else None
    if isinstance(value, Instance) and value.kind == "layer":
        layer = value.layer
        if origin.startswith("torch.nn."):
            return (
                True if name in (layer, "Module") else (None if "_" in name else False)
            )
        return False if origin in _TYPES else None
    if isinstance(value, Instance) and origin in _TYPES and value.cls is not None:
        return None if value.cls.bases else False
    if isinstance(value, (Func, Lambda)) and origin in _TYPES:
        return False
    return None


@_model("builtins.getattr")
def _getattr(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or not 2 <= len(given.positional) <= 3:
        return Unknown("attribute")
    value, name = given.positional[:2]
    default = given.positional[2] if len(given.positional) == 3 else None

    def compute(one: Value, called: Value) -> Value:
        if not isinstance(called, Known) or not isinstance(called.value, str):
            return Unknown("attribute")
        if isinstance(one, Instance) and default is not None:
            found = m.find(one, called.value)
            openness = one.state.get(OPEN)
            if found is None:
                return (
                    default
                    if openness is None
                    else weakened(default, Confidence.DEFAULT)
                )
            return found
        if isinstance(one, ClassValue) and default is not None:
            held = m.method(one, called.value)
            return (
                default
                if held is None and m.is_closed(one)
                else m.attribute(one, called.value)
            )
        return m.attribute(one, called.value)

    return lifted((value, name), compute)


@_model("builtins.hasattr")
def _hasattr(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) != 2:
        return Unknown("attribute", whole=True)
    value, name = given.positional
    if isinstance(value, Instance) and isinstance(name, Known):
        found = m.find(value, str(name.value))
        if found is None:
            sure_ = OPEN not in value.state
            return Known(
                False, None, Confidence.CERTAIN if sure_ else Confidence.DEFAULT
            )
        if not isinstance(found, (Unknown, External)):
            return Known(True)
    return Unknown("attribute", whole=True)


@_model("builtins.setattr")
def _setattr(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) == 3:
        value, name, new = given.positional
        if isinstance(name, Known) and isinstance(name.value, str):
            m.set_attribute(value, name.value, new)
            return Known(None)
    m.spoil(given.positional[:1], "setattr")
    return Known(None)


@_model("builtins.vars")
def _vars(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    value = given.positional[0] if given.positional else Unknown("vars")
    if isinstance(value, Instance) and value.cls is None and value.kind == "namespace":
        # A copy: what is written to it is not seen in the object, which is spoiled then.
        made = Mapping_()
        for key, one in value.state.items():
            if isinstance(key, str):
                made.state["key", key] = one
        if OPEN in value.state:
            made.state[OPEN] = value.state[OPEN]
        if any(
            isinstance(a, ir.Call) and a.func == ir.Name("vars") for a in _receivers(m)
        ):
            m.spoil([value], "vars")
        return made
    return Unknown("vars")


def _receivers(m: Calls) -> list[ir.Expr]:
    """What methods of the statement that runs are called on."""
    if m.at is None:
        return []
    found: list[ir.Expr] = [
        call.func.value
        for expr in m.at.exprs
        for call in ir.calls_in(expr)
        if isinstance(call.func, ir.Attr)
        and call.func.attr in ("update", "setdefault", "pop")
    ]
    found += [target.value for target in m.at.targets if isinstance(target, ir.Item)]
    return found


@_model("builtins.type")
def _type(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    value = given.positional[0] if len(given.positional) == 1 else None
    if isinstance(value, Instance) and value.cls is not None:
        return value.cls
    if isinstance(value, Known):
        return External(f"builtins.{type(value.value).__name__}")
    if isinstance(value, Sequence) and value.kind in ("list", "set"):
        return External(f"builtins.{value.kind}")
    if isinstance(value, (Tup, Mapping_)):
        return External("builtins.tuple" if isinstance(value, Tup) else "builtins.dict")
    return Unknown("type")


@_model("builtins.print", "builtins.exit", "builtins.super", "torch.manual_seed")
def _nothing(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    return Known(None)


@_model("builtins.exec", "builtins.globals", "builtins.execfile")
def _exec(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    """What code from elsewhere may set is known only where it does not."""
    current: Frame | None = frame
    while current is not None:
        for name, value in list(current.state.items()):
            m.heap.write(current, name, weakened(value, Confidence.DEFAULT))
        current = current.parent
    return Unknown("exec")


@_model("functools.partial")
def _partial(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or not given.positional:
        return Unknown("partial")
    return Partial(
        given.positional[0], tuple(given.positional[1:]), tuple(given.keywords.items())
    )


@_model("copy.copy", "copy.deepcopy")
def _copied(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    value = given.positional[0] if given.positional else Unknown("copy")
    return copied(value, f.origin == "copy.deepcopy")


def copied(value: Value, deep: bool = True, depth: int = 0) -> Value:
    """A new box with the same content; what cannot be copied is shared."""
    if depth > 8:
        return Unknown("copy")
    if isinstance(value, Tup) and deep:
        return Tup(tuple(copied(v, True, depth + 1) for v in value.items), value.names)
    made: Sequence | Mapping_ | Instance
    if isinstance(value, Sequence):
        made = Sequence(value.kind, value.state[ITEMS])
    elif isinstance(value, Mapping_):
        made = Mapping_()
        made.factory = value.factory
    elif isinstance(value, Instance):
        made = Instance(value.cls, value.kind, value.layer)
    elif isinstance(value, Choice):
        return Unknown("copy")
    else:
        return value
    for key, one in value.state.items():
        made.state[key] = copied(one, True, depth + 1) if deep else one
    return made


@_model(
    "torch.empty",
    "torch.zeros",
    "torch.ones",
    "torch.rand",
    "torch.randn",
    "torch.Tensor",
    "torch.FloatTensor",
    "torch.cuda.FloatTensor",
)
def _tensor(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest:
        return Tensor(None)
    dims = tuple(given.positional)
    if "size" in given.keywords:
        dims = (given.keywords["size"],)
    if len(dims) == 1 and not isinstance(dims[0], Known):
        if isinstance(dims[0], Unknown):
            return Tensor(None)
        held = m.elements(dims[0])
        if held is None or f.origin.endswith("Tensor"):
            return Tensor(None)
        dims = held
    return Tensor(dims)


@_model("torch.full")
def _full(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    size = given.get(0, "size")
    held = None if size is None else m.elements(size)
    return Tensor(held)


@_model("torch.nn.Parameter", "torch.nn.parameter.Parameter")
def _parameter(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    data = given.get(0, "data")
    if isinstance(data, Tensor):
        return replace(data, is_parameter=True)
    return Tensor(None, True)


def _of_tensor(name: str) -> Model:
    def run(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
        tensor = f.of
        if not isinstance(tensor, Tensor):
            return Unknown("tensor")
        shape = tensor.shape
        if name == "size":
            if shape is None:
                return Unknown("tensor")
            if given.positional:
                return m.item(Tup(shape), given.positional[0])
            return Tup(shape)
        if name == "dim":
            return Unknown("tensor") if shape is None else Known(len(shape))
        if name in ("t", "transpose") and shape is not None and len(shape) == 2:
            return Tensor(shape[::-1], tensor.is_parameter)
        return tensor

    return run


for _name in (
    "size",
    "dim",
    "t",
    "to",
    "cuda",
    "cpu",
    "float",
    "half",
    "contiguous",
    "normal_",
    "uniform_",
    "zero_",
    "fill_",
    "requires_grad_",
    "mul_",
    "div_",
    "clone",
    "type_as",
):
    _MODELS[f"tensor.{_name}"] = _of_tensor(_name)


@_model("torch.matmul", "torch.mm", "torch.bmm")
def _matmul(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    return Unknown("data")
