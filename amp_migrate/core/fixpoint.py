"""The least fixpoint of equations over a lattice, as far as it is asked for.

An equation asks for what it needs while it is computed, so that only what an answer depends on is ever
looked at; it is computed again only when something that it has asked for is another (the local worklist
algorithms of Fecht and Seidl, "A faster solver for general systems of equations", Science of Computer
Programming 35, 1999). An answer is the same whatever was asked before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from amp_migrate.core.closure import reached
from amp_migrate.core.effort import spend

_DEEPEST = 1000
"""How many equations may be computed inside of each other; what is deeper waits until these are done."""
_CHANGES = 8
"""So often an answer may be replaced; from there on, it only grows."""
_STEPS = 100
"""What an equation takes, in steps."""

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Fixpoint(Generic[_Key, _Value]):
    """Answers to equations, each known by its key."""

    def __init__(
        self,
        equation: Callable[[_Key], _Value],
        least: _Value,
        join: Callable[[Iterable[_Value]], _Value],
        *,
        lasting: bool = False,
    ) -> None:
        """``equation``: the right side, which asks `of` for others. ``least``: what is known of one that no
        value has reached. ``join``: the least value that is none below those given. ``lasting``: no answer
        is ever forgotten, and what answers stand on need not be known for long."""
        self._equation = equation
        self._least = least
        self._join = join
        self._values: dict[_Key, _Value] = {}
        self._readers: defaultdict[_Key, dict[_Key, None]] = defaultdict(dict)
        self._changes: defaultdict[_Key, int] = defaultdict(int)
        self._computed: list[_Key] = []
        """Those that are just being computed, outermost first."""
        self._places: dict[_Key, int] = {}
        self._order: list[_Key] = []
        """All, as they were first computed to their ends: what an answer stands on comes before it, where
        there is no cycle."""
        self._pending: set[_Key] = set()
        """Those of which something that they have asked for has changed."""
        self._queue: list[int] = []
        """Their places in that order, in which they are computed: an answer waits for those that it stands
        on."""
        self._lasting = lasting
        self.settled: dict[_Key, _Value] = {}
        """Lasting answers that are whole."""

    @property
    def is_asked(self) -> bool:
        """Whether an equation is being computed: an answer need not be whole."""
        return bool(self._computed)

    def of(self, key: _Key) -> _Value:
        """The answer; inside of an equation, the one that is known so far."""
        if key in self.settled:
            return self.settled[key]
        if key not in self._values:
            self._values[key] = self._least
            if len(self._computed) < _DEEPEST:
                self._compute(key)
            else:
                self._wait(key)
        if self._computed:
            self._readers[key][self._computed[-1]] = None
        else:
            while self._queue:
                waiting = self._order[heappop(self._queue)]
                if waiting in self._pending:
                    self._compute(waiting)
            if self._lasting:
                self.settled |= self._values
                for kept in (self._values, self._readers, self._changes, self._places):
                    kept.clear()
                self._order.clear()
                return self.settled[key]
        return self._values[key]

    def _wait(self, key: _Key) -> None:
        if key not in self._pending:
            self._pending.add(key)
            heappush(self._queue, self._place(key))

    def _place(self, key: _Key) -> int:
        if key not in self._places:
            self._places[key] = len(self._order)
            self._order.append(key)
        return self._places[key]

    def _compute(self, key: _Key) -> None:
        spend(_STEPS)
        self._pending.discard(key)
        self._computed.append(key)
        try:
            found = self._equation(key)
        except BaseException:
            self._wait(key)
            raise
        finally:
            self._computed.pop()
            self._place(key)
        before = self._values[key]
        if found == before:
            return
        self._changes[key] += 1
        if self._changes[key] > _CHANGES:
            found = self._join((before, found))
        if found != before:
            self._values[key] = found
            for reader in self._readers.pop(key, ()):
                self._wait(reader)

    def behind(self, key: _Key) -> Iterable[_Key]:
        """All that an answer stands on, itself included."""
        asked: defaultdict[_Key, list[_Key]] = defaultdict(list)
        for one, readers in self._readers.items():
            for reader in readers:
                asked[reader].append(one)
        return reached([key], lambda one: asked.get(one, ()))

    def forget(self, keys: Iterable[_Key]) -> None:
        """Compute these anew, and all that depends on them: what they say has changed."""
        pending = list(keys)
        for key in pending:
            if self._values.pop(key, None) is not None:
                pending += self._readers.pop(key, ())
        self._changes.clear()
