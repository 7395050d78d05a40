"""What the processes of a run are doing, shown where the run was started."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from amp_migrate.core import phases

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

_ROOM = 200
"""Bytes for one announcement."""
_PAUSE = 0.1
"""Seconds between two looks."""


def slot(context: BaseContext) -> Any:
    """Memory that all processes share, for the last announcement; None where nobody watches.

    There is no lock, which a process that is killed would keep: one announcement in a thousand may be a
    mixture of two, and is passed over or gone at the next look.
    """
    return context.Array("c", _ROOM, lock=False) if phases.are_shown() else None


def leave_in(place: Any) -> None:
    """In a process that works: leave there what it does from now on."""

    def leave(phase: str, done: int, total: int) -> None:
        place.value = f"{done} {total} {phase}".encode()[: _ROOM - 1]

    if place is not None:
        phases.show_to(leave)


@contextmanager
def shown_from(place: Any) -> Iterator[None]:
    """Announce here what the others leave there."""
    if place is None:
        yield
        return
    stop = threading.Event()

    def look() -> None:
        last = b""
        ended = False
        while not ended:
            ended = stop.wait(_PAUSE)
            found = place.value
            done, _, rest = found.partition(b" ")
            total, _, phase = rest.partition(b" ")
            if found != last and phase and done.isdigit() and total.isdigit():
                phases.at(phase.decode("utf-8", "replace"), int(done), int(total))
            last = found

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
