"""The engine that solves equations over a lattice: here, of sets that grow."""

import itertools
from collections import Counter

import pytest

from amp_migrate.core.deep import with_room
from amp_migrate.core.fixpoint import Fixpoint

EDGES = {"a": "b", "b": "cx", "c": "ad", "d": "e", "e": "dy", "f": "f", "g": "ce"}


def union(sets):
    return frozenset().union(*sets)


class Reached:
    """The letters that each one leads to: ``abc`` and ``de`` lead round in circles."""

    def __init__(self, edges=EDGES):
        self.edges = dict(edges)
        self.computed = Counter()
        self.solver = Fixpoint(self.equation, frozenset(), union)

    def equation(self, key):
        self.computed[key] += 1
        onward = self.edges.get(key, ())
        return union([frozenset(onward), *map(self.solver.of, onward)])

    def of(self, key):
        return "".join(sorted(self.solver.of(key)))


def test_an_answer_is_the_same_whatever_was_asked_before():
    each = {"a": "abcdexy", "b": "abcdexy", "c": "abcdexy", "e": "dey", "g": "abcdexy"}
    for order in itertools.permutations(each):
        reached = Reached()
        assert {key: reached.of(key) for key in order} == each


def test_what_was_computed_is_known():
    reached = Reached()
    reached.of("a")
    before = reached.computed.total()
    assert reached.of("c") == "abcdexy"
    assert reached.computed.total() == before


def test_nothing_is_computed_that_was_not_asked_for():
    reached = Reached()
    reached.of("e")
    assert set(reached.computed) == set("dey")


def test_only_what_depends_on_a_change_is_computed_anew():
    reached = Reached()
    reached.of("a")
    reached.computed.clear()
    reached.edges["b"] = "d"
    reached.solver.forget(["b"])
    assert reached.of("a") == "bdey"
    assert reached.of("c") == "abdey"
    assert set(reached.computed) == set("abc")


def test_a_chain_may_be_longer_than_calls_can_be_nested():
    length = 5000
    edges = {n: (n + 1,) for n in range(length)} | {length: (length // 2,)}
    reached = Reached(edges)
    assert len(with_room(lambda: reached.solver.of(0))) == length
    assert len(reached.solver.of(length - 1)) == length // 2 + 1


def test_an_error_leaves_nothing_half_known():
    reached = Reached()
    fails = [True]

    def equation(key):
        if key == "d" and fails:
            raise ValueError
        return reached.equation(key)

    reached.solver = Fixpoint(equation, frozenset(), union)
    with pytest.raises(ValueError):
        reached.of("a")
    fails.clear()
    assert reached.of("a") == "abcdexy"


def test_what_never_comes_to_rest_grows_to_an_end():
    solver = Fixpoint(
        lambda key: frozenset("tock" if "tick" in solver.of(key) else ("tick",)),
        frozenset(),
        union,
    )
    assert solver.of("clock") >= {"tick"}
