"""Questions about values, and attributes by name."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.arithmetic import sure
from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
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
    Tup,
    Unknown,
    Value,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import model
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now


@model("builtins.isinstance", "builtins.issubclass")
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


@model("builtins.getattr")
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


@model("builtins.hasattr")
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


@model("builtins.setattr")
def _setattr(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if len(given.positional) == 3:
        value, name, new = given.positional
        if isinstance(name, Known) and isinstance(name.value, str):
            m.set_attribute(value, name.value, new)
            return Known(None)
    m.spoil(given.positional[:1], "setattr")
    return Known(None)


@model("builtins.vars")
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
    if isinstance(value, Instance) and value.cls is not None:
        return External("dict.of", value)
    return Unknown("vars")


def _receivers(m: Calls) -> list[ir.Expr]:
    """What methods of the statement that runs are called on."""
    if m.at is None:
        return []
    found: list[ir.Expr] = [
        call.func.value
        for call in calls_now(m.at)
        if isinstance(call.func, ir.Attr)
        and call.func.attr in ("update", "setdefault", "pop")
    ]
    found += [target.value for target in m.at.targets if isinstance(target, ir.Item)]
    return found


@model("builtins.type")
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


@model("builtins.print", "builtins.exit", "builtins.super", "torch.manual_seed")
def _nothing(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    return Known(None)


@model("builtins.exec", "builtins.globals", "builtins.execfile")
def _exec(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    """What code from elsewhere may set is known only where it does not."""
    current: Frame | None = frame
    while current is not None:
        for name, value in list(current.state.items()):
            m.heap.write(current, name, weakened(value, Confidence.DEFAULT))
        current = current.parent
    return Unknown("exec")


@model("functools.partial")
def _partial(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest or not given.positional:
        return Unknown("partial")
    return Partial(
        given.positional[0], tuple(given.positional[1:]), tuple(given.keywords.items())
    )


@model("copy.copy", "copy.deepcopy")
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
