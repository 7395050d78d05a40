"""What a list of parameters was made of, and what is left of it where some of them are chosen.

A list that is split by tests (weights with decay and without, say) is whole again where its parts are
together and the tests leave nothing out, which a truth table of them shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress, product, takewhile

from amp_migrate.program import ir

Identity = tuple[str, ...]
"""A module or tensor wherever it goes: kind and owner of the slot it was first put into, its name,
with the statement where several give the name a value, then the attributes that lead on from there."""


@dataclass(frozen=True, slots=True)
class Test:
    """Of which parameters something holds: ``op`` of other tests, or an ``atom``, of which nothing is known
    but that it is the same where its operands are."""

    op: str
    operands: tuple[object, ...] = ()

    def atoms(self) -> Iterator[Test]:
        """What it is made of."""
        if self.op == "atom":
            yield self
        for one in self.operands:
            if isinstance(one, Test):
                yield from one.atoms()

    def holds(self, which: Collection[Test]) -> bool:
        """Whether it does where ``which`` of its atoms hold."""
        inner = (one.holds(which) for one in self.operands if isinstance(one, Test))
        match self.op:
            case "atom":
                return self in which
            case "not":
                return not next(inner)
            case "or":
                return any(inner)
        return all(inner)


Choice = Test | tuple[ir.Expr, ...] | None
"""How parameters are chosen out of a module: by a test; by names that are looked up, of which two lists are
taken to be all; or nobody knows."""

OneOf = tuple[frozenset[Identity], frozenset[tuple[object, ...]]]
"""Modules of which an expression is one; that, and the variable or attribute by which it may be any."""

ALWAYS = Test("and")
_MOST_ATOMS = 8
_NO_CHOICE: frozenset[Choice] = frozenset()
_SOME: frozenset[Choice] = frozenset((None,))
_OPPOSITES = {"not in": "in", "!=": "==", "is not": "is", "<": ">=", ">": "<="}


@dataclass(slots=True)
class Held:
    """What a parameter list was made of."""

    whole: set[Identity] = field(default_factory=set)
    """Modules all of whose parameters are in it."""
    parts: dict[Identity, frozenset[Choice]] = field(default_factory=dict)
    """Modules some of whose parameters are in it, and how those were chosen."""
    complete: bool = True
    """Whether nothing else is in it."""
    groups: bool = False
    """It is read from an optimizer's own ``param_groups``."""
    every: bool = False
    """None of those is left out."""
    twice: bool = False
    """Some parameters are in it more than once."""
    thawed: bool = False
    """Only those are in it that had gradients when it was made."""
    choices: set[OneOf] = field(default_factory=set)
    """Variables, or attributes, of which one alone is in it: ``(one if first else two).parameters()``."""
    besides: set[Identity] = field(default_factory=set)
    """Those of them that are in it whatever is chosen."""

    def join(self, other: Held) -> None:
        """Add what another list holds."""
        if self.choices or other.choices:
            self.besides = self.sure | other.sure
        self.whole |= other.whole
        for one, choices in other.parts.items():
            self.parts[one] = self.parts.get(one, _NO_CHOICE) | choices
        self.complete &= other.complete
        self.groups |= other.groups
        self.every |= other.every
        self.twice |= other.twice
        self.thawed |= other.thawed
        self.choices |= other.choices

    @property
    def all(self) -> set[Identity]:
        """Every module that has parameters in it."""
        return self.whole | set(self.parts)

    @property
    def sure(self) -> set[Identity]:
        """The same but for those that are there by a choice alone."""
        return self.all.difference(*(those for those, _ in self.choices)) | self.besides


def of_modules(found: Mapping[Identity, list[tuple[object, ...]]]) -> Held:
    """What the module holds that an expression is; empty where that cannot be told. Of one of several, the
    last name on the way to all of them is where it is chosen.
    """
    owners = {one[:2] for one in found}
    names = {re.split("[@#]", one[2])[0] for one in found if len(one) > 2}
    kinds = {kind for kind, *_ in owners}
    chosen = len(owners) == 1 and len(names) > 1 and kinds <= {"variable", "attribute"}
    chosen |= len(found) > 1 and kinds == {"made"}
    same = takewhile(
        lambda names: len(set(names)) == 1, zip(*found.values(), strict=False)
    )
    way = [names[0] for names in same] if chosen else []
    choices = {(frozenset(found), frozenset((way[0], way[-1])))} if chosen else set()
    return Held(whole=set(found), complete=bool(found), choices=choices)


def is_unsure(held: Held, target: Held) -> bool:
    """Whether a list may have something of ``target`` that it has or has not, as a choice was made for it."""
    unsure = {one for those, _ in held.choices for one in those} - held.sure
    asked = set(target.sure) if unsure else set()
    for those, by in target.choices if unsure else ():
        if not any(those == mine and by & names for mine, names in held.choices):
            asked |= those
    return any(within(a, b) or within(b, a) for a in unsure for b in asked)


def within(inner: Identity, outer: Identity) -> bool:
    return inner[: len(outer)] == outer


def as_parts(held: Held, choice: Choice) -> Held:
    parts = {one: frozenset((choice,)) for one in held.whole}
    # Of a part, it is a part again.
    parts.update(dict.fromkeys(held.parts, _SOME))
    return replace(held, whole=set(), parts=parts, every=False, twice=False)


def chosen_by(held: Held, tests: Iterable[Test], asked: Iterable[ir.Expr]) -> Held:
    """What of a list passes some tests; that gradients are wanted leaves out nothing that has any."""
    test = Test("and", tuple(tests))
    if any(_wants_gradients(one) for one in asked):
        held = replace(held, thawed=True)
    return held if _is_all(frozenset((test,))) else as_parts(held, test)


def one_of(several: list[Held]) -> Held:
    """What a list holds that is one of several: as a whole, only what each of them does."""
    held = Held()
    for one in several:
        held.join(one)
    if len(several) > 1:
        whole = held.whole | {
            o for o, choices in held.parts.items() if _is_all(choices)
        }
        sure = {o for o in whole if all(holds_all(one, o) for one in several)}
        held.parts = dict.fromkeys(held.all - sure, _SOME)
        held.whole = sure
    held.every = bool(several) and all(one.every for one in several)
    return held


def holds_all(held: Held, one: Identity) -> bool:
    return any(within(one, w) for w in held.whole) or any(
        within(one, module) and _is_all(choices)
        for module, choices in held.parts.items()
    )


def test_of(expr: ir.Expr, place: object = None) -> Test:
    """What an expression asks of a parameter, where it reads the same at the same ``place`` only."""
    match expr:
        case ir.Operation(op="and" | "or" | "not" as op, operands=operands):
            return Test(op, tuple(test_of(one, place) for one in operands))
        case ir.Operation(op=op, operands=operands) if op in _OPPOSITES:
            opposite = ir.Operation(_OPPOSITES[op], operands)
            return Test("not", (test_of(opposite, place),))
        case ir.Attr(attr="requires_grad"):
            return ALWAYS
    return Test("atom", (expr, place))


def receives(expr: ir.Expr, name: ir.Name, place: object) -> Iterator[Test]:
    """For which parameters an expression is a variable: ``(decay if p.ndim > 1 else rest)``."""
    match expr:
        case ir.Name() if expr == name:
            yield ALWAYS
        case ir.Operation(op="if", operands=(asked, then, other)):
            test = test_of(asked, place)
            for inner in receives(then, name, place):
                yield Test("and", (test, inner))
            for inner in receives(other, name, place):
                yield Test("and", (Test("not", (test,)), inner))


def _is_all(choices: frozenset[Choice]) -> bool:
    """Whether some choices together leave nothing out: weights with decay and without, say."""
    names = [one for one in choices if isinstance(one, tuple)]
    if len(names) > 1:
        return True
    tests = [one for one in choices if isinstance(one, Test)]
    atoms = sorted({atom for one in tests for atom in one.atoms()}, key=repr)
    return len(atoms) <= _MOST_ATOMS and all(
        any(one.holds(set(compress(atoms, outcomes))) for one in tests)
        for outcomes in product((False, True), repeat=len(atoms))
    )


def either(several: list[Held]) -> Held:
    """What one of some lists holds, whichever it is."""
    held = Held()
    for one in several:
        held.join(one)
    sure = {
        one
        for one in held.whole
        if all(any(within(one, w) for w in other.whole) for other in several)
    }
    for unsure in held.whole - sure:
        held.parts[unsure] = held.parts.get(unsure, _NO_CHOICE) | _SOME
    held.whole = sure
    held.every = bool(several) and all(one.every for one in several)
    return held


def _wants_gradients(test: ir.Expr) -> bool:
    return any(
        isinstance(inner, ir.Attr) and inner.attr == "requires_grad"
        for inner in ir.walk(test)
    )
