"""The least fixpoint of equations over a lattice, as far as it is asked for.

An equation asks for what it needs while it is computed, so that only what an answer depends on is ever
looked at; it is computed again only when something that it has asked for is another (the local worklist
algorithms of Fecht and Seidl, "A faster solver for general systems of equations", Science of Computer
Programming 35, 1999). An answer is the same whatever was asked before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False)
class _Answer(Generic[_Key, _Value]):
    """What is known of one equation. Told from others by its identity: keys take long to hash."""

    key: _Key
    value: _Value
    known: bool = False
    """Whether it was asked for since it was forgotten."""
    readers: dict[_Answer[_Key, _Value], None] = field(default_factory=dict)
    """Those that have asked for it."""
    place: int = -1
    is_pending: bool = False
    """Whether something that it has asked for has changed."""


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
        self._answers: dict[_Key, _Answer[_Key, _Value]] = {}
        self._changes: defaultdict[_Answer[_Key, _Value], int] = defaultdict(int)
        self._computed: list[_Answer[_Key, _Value]] = []
        """Those that are just being computed, outermost first."""
        self._order: list[_Answer[_Key, _Value]] = []
        """All, as they were first computed to their ends: what an answer stands on comes before it, where
        there is no cycle."""
        self._queue: list[int] = []
        """The places in that order of those that are pending, in which they are computed: an answer waits for
        those that it stands on."""
        self._lasting = lasting
        self.settled: dict[_Key, _Value] = {}
        """Lasting answers that are whole."""

    @property
    def is_asked(self) -> bool:
        """Whether an equation is being computed: an answer need not be whole."""
        return bool(self._computed)

    def of(self, key: _Key) -> _Value:
        """The answer; inside of an equation, the one that is known so far."""
        if self._lasting:
            try:
                return self.settled[key]
            except KeyError:
                pass
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = _Answer(key, self._least)
        if not answer.known:
            answer.known, answer.value = True, self._least
            if len(self._computed) < _DEEPEST:
                self._compute(answer)
            else:
                self._wait(answer)
        if self._computed:
            answer.readers[self._computed[-1]] = None
            return answer.value
        while self._queue:
            waiting = self._order[heappop(self._queue)]
            if waiting.is_pending:
                self._compute(waiting)
        if self._lasting:
            self.settled.update((one.key, one.value) for one in self._answers.values())
            self._answers.clear()
            self._changes.clear()
            self._order.clear()
        return answer.value

    def _wait(self, answer: _Answer[_Key, _Value]) -> None:
        if not answer.is_pending:
            answer.is_pending = True
            self._put_in_order(answer)
            heappush(self._queue, answer.place)

    def _put_in_order(self, answer: _Answer[_Key, _Value]) -> None:
        if answer.place < 0:
            answer.place = len(self._order)
            self._order.append(answer)

    def _compute(self, answer: _Answer[_Key, _Value]) -> None:
        spend(_STEPS)
        answer.is_pending = False
        self._computed.append(answer)
        try:
            found = self._equation(answer.key)
        except BaseException:
            self._wait(answer)
            raise
        finally:
            self._computed.pop()
            self._put_in_order(answer)
        before = answer.value
        if found == before:
            return
        self._changes[answer] += 1
        if self._changes[answer] > _CHANGES:
            found = self._join((before, found))
        if found != before:
            answer.value = found
            readers, answer.readers = answer.readers, {}
            for reader in readers:
                self._wait(reader)

    def behind(self, key: _Key) -> Iterable[_Key]:
        """All that an answer stands on, itself included."""
        asked: defaultdict[_Key, list[_Key]] = defaultdict(list)
        for one in self._answers.values():
            for reader in one.readers:
                asked[reader.key].append(one.key)
        return reached([key], lambda one: asked.get(one, ()))

    def forget(self, keys: Iterable[_Key]) -> None:
        """Compute these anew, and all that depends on them: what they say has changed."""
        pending = [self._answers[key] for key in keys if key in self._answers]
        for answer in pending:
            if answer.known:
                answer.known = False
                pending += answer.readers
                answer.readers = {}
        self._changes.clear()
