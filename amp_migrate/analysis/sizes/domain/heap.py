"""What variables and objects hold, and how a way that was tried is undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from amp_migrate.analysis.sizes.domain.choices import joined
from amp_migrate.analysis.sizes.domain.values import Absent, Box, Choice, Tup, Value

Changes = dict[tuple[int, object], tuple[Box, object, Value]]


_ABSENT = Absent()


@dataclass
class Heap:
    """Every change of every box, so that a way that was tried can be undone."""

    log: list[tuple[Box, object, Value | None]] = field(default_factory=list)

    def write(self, box: Box, key: object, value: Value) -> None:
        """Change one entry of a box."""
        state = box.state
        old = state.get(key)
        self.log.append((box, key, old))
        if isinstance(old, Absent):
            # What was deleted and comes back is the last of its dict.
            del state[key]
        state[key] = value

    def undo(self, mark: int) -> None:
        """Take back all that was changed since the log was ``mark`` long."""
        log = self.log
        while len(log) > mark:
            box, key, old = log.pop()
            if old is None:
                box.state.pop(key, None)
            else:
                box.state[key] = old

    def changes(self, mark: int) -> Changes:
        """What was changed since ``mark``, as it is now."""
        return {
            (id(box), key): (box, key, box.state[key])
            for box, key, _ in self.log[mark:]
            if key in box.state
        }

    def passed(self, mark: int) -> list[Changes]:
        """What was changed since ``mark``: as it is now, and all that it was in between."""
        found = [self.changes(mark)]
        first: set[tuple[int, object]] = set()
        for box, key, old in self.log[mark:]:
            place = (id(box), key)
            if place in first and old is not None and key in box.state:
                found.append({place: (box, key, old)})
            first.add(place)
        return found

    def apply(self, changes: Changes) -> None:
        """Make changes again that were undone."""
        for box, key, value in list(changes.values()):
            self.write(box, key, value)

    def join(self, one: Changes, other: Changes, fork: int) -> None:
        """Make the changes of two ways that begin here, so that each entry holds either's value."""
        for key, (box, name, _) in {**one, **other}.items():
            now = box.state.get(name, _ABSENT)
            left = one[key][2] if key in one else now
            right = other[key][2] if key in other else now
            # What one of the ways made is what it made; to ask further is for what both know.
            if right is not _ABSENT and (left is not right or isinstance(left, Choice)):
                left = joined(left, right, fork)
            self.write(box, name, left)


def boxes_in(value: Value) -> Iterator[Box]:
    """The boxes that a value is, or is a tuple or choice of."""
    match value:
        case Box():
            yield value
        case Tup(items=items):
            for item in items:
                yield from boxes_in(item)
        case Choice(alternatives=found):
            for _, one in found:
                yield from boxes_in(one)
