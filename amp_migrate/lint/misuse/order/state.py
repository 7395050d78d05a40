"""What is known of gradients and scalers at one point of a way through a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from amp_migrate.analysis.paths.walk import Site
from amp_migrate.catalogue.protocol import READY, SCALED, STALE
from amp_migrate.lint.misuse.order.amp import Key, Region

UNKNOWN = "unknown"
"""Gradients of which nothing is known."""
APPLIED = "applied"
"""A scaler has stepped with gradients that are still there."""
HALF = "half"
"""A module was made half."""
DUE = "due"
"""A scaler has stepped, and the next turn has not begun."""

NOBODY: Key = ()
THREAD: Key = ("thread",)
"""What autocast is switched on for by a call of torch."""

Grads = tuple[str, Key]
"""(one of the kinds above, the scaler)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The last time that something was done: where, what loops were gone around since, and by which
    ``continue``, ``break`` or ``return`` the rest of a turn was left while an update was due.
    """

    site: Site
    around: frozenset[Site] = frozenset()
    left: Site | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """A region, or a loop (``region`` is None), that is around what happens."""

    region: Region | None
    site: Site
    instance: Key | None = None
    """Of one that is entered by a call: the region, the stack that leaves it, or `THREAD`."""
    depth: int = 0
    """How many of those that statements open are around where a call enters it."""


@dataclass(frozen=True, slots=True)
class Held:
    """Everything that one way has done, as far as the protocol cares."""

    grads: frozenset[Grads] = frozenset()
    """What backwards have left since somebody dropped all gradients."""
    cleared: frozenset[tuple[Key, Grads]] = frozenset()
    """Of these, what an optimizer has used up or dropped."""
    status: frozenset[tuple[Key, str, Key]] = frozenset()
    """(optimizer, `UNSCALED` or `STEPPED`, scaler) since the scaler's last update."""
    marks: frozenset[tuple[str, Key, Mark]] = frozenset()
    """(what was done, to which object, when)."""
    checked: frozenset[tuple[Key, bool]] = frozenset()
    """Scalers, and whether they have looked for infs since their last update; absent: not known."""
    lived: frozenset[tuple[Key, Key, frozenset[Site]]] = frozenset()
    """(scaler, optimizer that it has stepped, loops gone around since)."""
    by_hand: bool = False
    """The scale was asked for since the last backward: gradients may be divided by hand."""
    entered: tuple[Open, ...] = ()
    """The regions that calls have entered and not left."""

    def of(self, optimizer: Key) -> set[Grads]:
        """The gradients that wait for an optimizer."""
        return {g for g in self.grads if (optimizer, g) not in self.cleared}

    def state(self, optimizer: Key) -> str:
        """Where it stands with its scaler."""
        return next((what for one, what, _ in self.status if one == optimizer), READY)

    def mark(self, what: str, key: Key) -> Mark | None:
        """When something was last done to an object."""
        return next((m for w, k, m in self.marks if w == what and k == key), None)

    def marked(self, what: str, key: Key, site: Site) -> Held:
        """The same, with something done now."""
        kept = (m for m in self.marks if m[:2] != (what, key))
        return replace(self, marks=frozenset((*kept, (what, key, Mark(site)))))

    def without(self, what: str, key: Key | None = None) -> Held:
        """The same, where something that was done, to one object or to any, no longer counts."""
        kept = (m for m in self.marks if m[0] != what or key not in (None, m[1]))
        return replace(self, marks=frozenset(kept))

    def with_status(self, optimizer: Key, what: str, scaler: Key) -> Held:
        """The same, after ``unscale_`` or ``step``."""
        kept = (one for one in self.status if one[0] != optimizer)
        return replace(
            self,
            status=frozenset((*kept, (optimizer, what, scaler))),
            checked=_set(self.checked, scaler, True),
        )

    def entering(self, region: Open) -> Held:
        """The same, in a region that a call enters."""
        others = (one for one in self.entered if one.site != region.site)
        if region.instance == THREAD:
            others = (one for one in others if one.instance != THREAD)
        return replace(self, entered=(*others, region))

    def leaving_region(self, instance: Key | None) -> Held:
        """The same, where a call has left a region; all of them, where it may have been any."""
        kept = tuple(one for one in self.entered if one.instance != instance)
        return replace(self, entered=kept if len(kept) < len(self.entered) else ())

    def outside(self, depth: int, restores: bool) -> Held:
        """The same behind a statement; what was switched within a region, its end restores."""
        kept = (one for one in self.entered if not restores or one.depth <= depth)
        entered = tuple(replace(one, depth=min(one.depth, depth)) for one in kept)
        return replace(self, entered=entered)

    def after_backward(self, grads: Grads) -> Held:
        """The same, with new gradients."""
        replaced = (SCALED, STALE) if grads[0] == SCALED else grads[:1]
        kept = frozenset(
            g for g in self.grads if not (g[0] in replaced and g[1] == grads[1])
        )
        cleared = frozenset(c for c in self.cleared if c[1] in kept and c[1] != grads)
        return replace(self, grads=kept | {grads}, cleared=cleared, by_hand=False)

    def used(self, optimizer: Key) -> Held:
        """The same, when an optimizer has used its gradients or dropped them."""
        gone = frozenset((optimizer, g) for g in self.grads)
        return replace(self, cleared=self.cleared | gone)

    def updated(self, scaler: Key) -> Held:
        """The same, after the update of a scaler."""

        def aged(grads: Grads) -> Grads:
            return (STALE, scaler) if grads == (SCALED, scaler) else grads

        return replace(
            self,
            grads=frozenset(map(aged, self.grads)),
            cleared=frozenset((one, aged(g)) for one, g in self.cleared),
            status=frozenset(one for one in self.status if one[2] != scaler),
            checked=_set(self.checked, scaler, False),
        )

    def around(self, loop: Site) -> Held:
        """The same, after one more turn of a loop."""
        return replace(
            self,
            marks=frozenset(
                (what, key, replace(mark, around=mark.around | {loop}))
                for what, key, mark in self.marks
            ),
            lived=frozenset((s, o, since | {loop}) for s, o, since in self.lived),
        )

    def leaving(self, site: Site) -> Held:
        """The same, when the rest of a turn is left."""
        due = {one for one, _, _ in self.status}
        return replace(
            self,
            marks=frozenset(
                (
                    what,
                    key,
                    (
                        replace(mark, left=site)
                        if key in due and mark.left is None
                        else mark
                    ),
                )
                for what, key, mark in self.marks
            ),
        )


def _set(
    items: Iterable[tuple[Key, bool]], key: Key, value: bool
) -> frozenset[tuple[Key, bool]]:
    return frozenset((*_without(items, key), (key, value)))


def _without(items: Iterable[tuple[Key, bool]], key: Key) -> Iterator[tuple[Key, bool]]:
    return (item for item in items if item[0] != key)
