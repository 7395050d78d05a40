"""What an expression is known to be worth, without running anything."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import TYPE_CHECKING, TypeGuard

from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir

if TYPE_CHECKING:
    from amp_migrate.analysis.sizes.domain.traces import Trace

MAX_MULTIPLE = 1 << 20

World = frozenset[tuple[int, int]]
"""Which way was gone at which fork: values of different ways never meet."""


class Value:
    """Anything that the evaluation of an expression may give. Only a `Box` changes; the others are not frozen
    because to make them, which is done all the time, would take three times as long."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Known(Value):
    """A number, a text, a truth value, None or a range."""

    value: object
    trace: Trace | None = None
    confidence: Confidence = Confidence.CERTAIN


def is_number(value: Value) -> TypeGuard[Known]:
    """Whether a value is a number that is known."""
    return isinstance(value, Known) and type(value.value) in (int, float)


@dataclass(slots=True, eq=False)
class Unknown(Value):
    """Nothing is known of it, or only that it is a multiple of something."""

    reason: str = ""
    multiple: int = 1
    """It is a multiple of this, if it is an integer at all."""
    whole: bool = False
    """It is an integer for sure."""
    trace: Trace | None = None


@dataclass(slots=True, eq=False)
class Absent(Value):
    """What a deleted variable, attribute or entry holds."""


@dataclass(slots=True, eq=False)
class Choice(Value):
    """One of several values, each with the forks that lead to it."""

    alternatives: tuple[tuple[World, Value], ...]


@dataclass(slots=True, eq=False)
class Tup(Value):
    """A tuple; ``names`` are those of a named tuple."""

    items: tuple[Value, ...]
    names: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class External(Value):
    """Something of a library, by its dotted name; ``of`` is the value it is a method of."""

    origin: str
    of: Value | None = None


@dataclass(slots=True, eq=False)
class Imported(Value):
    """A name that an import binds: what it is shows when it is used."""

    function: str
    name: str


@dataclass(slots=True, eq=False)
class Func(Value):
    """A function of the program, in the scope that it was made in."""

    function: ir.Function
    scope: Frame
    defaults: tuple[tuple[str, Value], ...] = ()
    receiver: Value | None = None
    owner: ClassValue | None = None
    """The class whose body holds it."""


@dataclass(slots=True, eq=False)
class Lambda(Value):
    body: ir.Deferred
    scope: Frame


@dataclass(slots=True, eq=False)
class Partial(Value):
    """``functools.partial``, with the arguments that it was given."""

    func: Value
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]


@dataclass(slots=True, eq=False)
class Super(Value):
    """``super()``: the search for attributes begins behind ``after``."""

    receiver: Value
    after: ClassValue


@dataclass(slots=True, eq=False)
class Tensor(Value):
    """A tensor of known shape; ``shape`` is None where only its kind is known."""

    shape: tuple[Value, ...] | None
    is_parameter: bool = False


class Box(Value):
    """A value that can change. ``state`` is written by `Heap` alone, which can undo it."""

    __slots__ = ("born", "state")
    _births = count()

    def __init__(self) -> None:
        self.state: dict[object, Value] = {}
        self.born = next(Box._births)
        """What was made later has a higher number."""

    @staticmethod
    def now() -> int:
        """A number between those of the boxes that exist and those that will be made."""
        return next(Box._births)


OPEN = ("open",)
"""The key under which a box says that it may hold more, or other things, than are known.

`Known` ("default"): only if somebody outside says so; `Unknown`: nothing that is read from it is sure.
"""
ORDER = "order of a set"
"""Why an element is unknown that is different from all others of its list."""
ITEMS = ("items",)
"""The key of a list's items, a `Tup`; or `Unknown`."""


class Frame(Box):
    """The variables of one call of a function, of a module, or of a class body while it runs."""

    __slots__ = ("captured", "function", "owner", "parent", "receiver")

    def __init__(
        self, function: str, parent: Frame | None, receiver: Value | None = None
    ) -> None:
        super().__init__()
        self.function = function
        self.parent = parent
        self.receiver = receiver
        self.owner: ClassValue | None = None
        self.captured = False
        """Something may read it when what it is the frame of has ended."""

    def capture(self) -> None:
        """Note that something was made which reads this frame, and those around it."""
        current: Frame | None = self
        while current is not None and not current.captured:
            current.captured = True
            current = current.parent

    def end(self) -> None:
        """Nothing runs in it any more. What nobody can read is no change that a way makes."""
        if not self.captured:
            self.state = {}


class ClassValue(Box):
    """A class of the program with what its body made."""

    __slots__ = ("bases", "facts", "metaclass", "mro", "scope")

    def __init__(self, facts: ir.Class, scope: Frame) -> None:
        super().__init__()
        self.facts = facts
        self.scope = scope
        self.mro: tuple[ClassValue, ...] = (self,)
        self.bases: tuple[Value, ...] = ()
        self.metaclass: ClassValue | None = None
        """A class of the program that makes its objects."""


class Instance(Box):
    """An object: of a class of the program, a made layer, or a bundle of attributes."""

    __slots__ = ("cls", "kind", "layer")

    def __init__(
        self, cls: ClassValue | None = None, kind: str = "", layer: str = ""
    ) -> None:
        super().__init__()
        self.cls = cls
        self.kind = kind
        """Of a library's object: ``namespace``, ``parser``, ``layer``, ``model`` or a dotted name."""
        self.layer = layer


class Sequence(Box):
    """A list, a set, or a container of modules; ``kind`` tells which."""

    __slots__ = ("kind",)

    def __init__(self, kind: str, items: Value) -> None:
        super().__init__()
        self.kind = kind
        self.state[ITEMS] = items

    @property
    def items(self) -> tuple[Value, ...] | None:
        """What it holds, where that is known."""
        held = self.state[ITEMS]
        return held.items if isinstance(held, Tup) else None


class Mapping_(Box):
    """A dict. Entries are held under ``("key", key)``."""

    __slots__ = ("factory",)

    def __init__(self) -> None:
        super().__init__()
        self.factory: Value | None = None

    @property
    def is_opaque(self) -> bool:
        """Whether some keys are not known, though how many there are is."""
        return any(isinstance(key, Unknown) for key in self.entries())

    def entries(self) -> dict[object, Value]:
        """What it is known to hold."""
        return {
            key[1]: value
            for key, value in self.state.items()
            if isinstance(key, tuple)
            and len(key) == 2
            and key[0] == "key"
            and not isinstance(value, Absent)
        }


_ORDER = {
    Confidence.CERTAIN: 0,
    Confidence.DEFAULT: 1,
    Confidence.CANDIDATE: 2,
}


def weakest(*confidences: Confidence) -> Confidence:
    """The least sure of several."""
    if Confidence.CANDIDATE in confidences:
        return Confidence.CANDIDATE
    return (
        Confidence.DEFAULT if Confidence.DEFAULT in confidences else Confidence.CERTAIN
    )


def weakened(value: Value, confidence: Confidence) -> Value:
    """A value with no more confidence than given; what it holds is not touched."""
    if confidence is Confidence.CERTAIN:
        return value
    if isinstance(value, Known):
        if _ORDER[value.confidence] < _ORDER[confidence]:
            return Known(value.value, value.trace, confidence)
        return value
    if isinstance(value, Tup):
        items = tuple(weakened(item, confidence) for item in value.items)
        return Tup(items, value.names)
    if isinstance(value, Choice):
        return Choice(
            tuple(
                (world, weakened(one, confidence)) for world, one in value.alternatives
            )
        )
    return value


def confidence_of(value: Value) -> Confidence:
    """How sure a value is."""
    if isinstance(value, Known):
        return value.confidence
    if isinstance(value, Choice):
        return weakest(*(confidence_of(one) for _, one in value.alternatives))
    return Confidence.CERTAIN


def multiple_of(value: Value) -> int:
    """What a value is a multiple of, for sure if it is an integer; 0 for zero."""
    match value:
        case Known(value=bool()):
            return 1
        case Known(value=int(number)):
            return abs(number)
        case Unknown(multiple=multiple):
            return multiple
        case Choice(alternatives=alternatives):
            return gcd(*(multiple_of(one) for _, one in alternatives))
        case _:
            return 1


def distinct(items: tuple[Value, ...] | None) -> Value:
    """What a set of some values holds."""
    if items is None or not all(isinstance(one, Known) for one in items):
        return Unknown("set")
    found = {one.value: one for one in items if isinstance(one, Known)}
    return Tup(tuple(found.values()))


def is_whole(value: Value) -> bool:
    """Whether a value is an integer for sure."""
    match value:
        case Known(value=number):
            return isinstance(number, int)
        case Unknown(whole=whole):
            return whole
        case Choice(alternatives=alternatives):
            return all(is_whole(one) for _, one in alternatives)
        case _:
            return False


def unknown_multiple(reason: str, multiple: int, whole: bool = False) -> Unknown:
    """An unknown multiple of a number."""
    if not 0 < multiple <= MAX_MULTIPLE:
        # Zero and what is too large to follow: the power of two in it is what matters.
        multiple = gcd(multiple, MAX_MULTIPLE) or MAX_MULTIPLE
    return Unknown(reason, multiple, whole)


def same(one: Value, other: Value) -> bool:
    """Whether two values are equal for sure, and one can stand for the other."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    # What most values are: to match patterns takes longer.
    if isinstance(one, Unknown) and isinstance(other, Unknown):
        return one.multiple == other.multiple and one.whole == other.whole
    if isinstance(one, Known) and isinstance(other, Known):
        return type(one.value) is type(other.value) and one.value == other.value
    match one, other:
        case Absent(), Absent():
            return True
        case Tup(items=a), Tup(items=b):
            return len(a) == len(b) and all(map(same, a, b))
        case External(origin=a, of=c), External(origin=b, of=d):
            return a == b and (c is d)
        case Imported(), Imported():
            return one.function == other.function and one.name == other.name
        case Func(), Func():
            return (
                one.function is other.function
                and one.scope is other.scope
                and one.receiver is other.receiver
            )
        case Lambda(), Lambda():
            return one.body is other.body and one.scope is other.scope
        case Choice(alternatives=a), Choice(alternatives=b):
            return len(a) == len(b) and all(
                v == w and same(x, y) for (v, x), (w, y) in zip(a, b, strict=True)
            )
        case Tensor(shape=tuple() as a), Tensor(shape=tuple() as b):
            return len(a) == len(b) and all(map(same, a, b))
        case _:
            return False
