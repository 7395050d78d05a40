"""A key of a table in pyproject.toml: the check of its value, and what the documentation says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

    check: Callable[[object], Any]
    """What its value means. Raises ValueError for one that means nothing."""
    values: str
    """Which values it takes, in Markdown."""
    default: str
    """What holds where it is not given, in Markdown."""
    meaning: str
    """Sentences, in Markdown."""
    example: str
    """A value, in TOML."""


def quoted(words: tuple[str, ...]) -> str:
    """Words as the values of a key: each as TOML has it."""
    return ", ".join(f'`"{word}"`' for word in words)


def a_bool(value: object) -> bool:
    """A value that is true or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A value that is a string or a list of strings."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("must be a string or a list of strings")
