"""What long work is doing at the moment: announced where it is done, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

Watcher = Callable[[str, int, int], None]
"""Called with what is being done, in words, how many steps of it are done, and how many there are."""

_Thing = TypeVar("_Thing")
_watchers: list[Watcher] = []
"""Of this process. Most of the work is done by another thread than the one that watches."""


def are_shown() -> bool:
    """Whether anybody watches."""
    return bool(_watchers)


def show_to(watcher: Watcher) -> None:
    """Call ``watcher`` from now on."""
    _watchers.append(watcher)


def hide() -> None:
    """Call nobody from now on."""
    _watchers.clear()


@contextmanager
def shown_to(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher`` for what is done inside."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def at(phase: str, done: int, total: int) -> None:
    """Announce that so many steps of a phase are done."""
    for watcher in tuple(_watchers):
        watcher(phase, done, total)


def each(phase: str, things: Collection[_Thing]) -> Iterator[_Thing]:
    """The things, one after the other, each a step of ``phase``."""
    for done, thing in enumerate(things):
        at(phase, done, len(things))
        yield thing
