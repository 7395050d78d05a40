"""TOML files of the catalogue and of users: how they are read, and what their values must be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Traversable


def read_table(path: Traversable | Path) -> dict[str, Any]:
    """What a file holds. Raises OSError, and ValueError where it is not UTF-8, or not TOML."""
    # Imported here: a run that needs no table reads none.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    return tomllib.loads(path.read_text(encoding="utf-8"))


def a_table(name: str, value: object) -> dict[str, Any]:
    """A value that is a table; raises ValueError where it is none."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a table")
    return value


def texts(name: str, value: object) -> tuple[str, ...]:
    """A value that is a list of strings; raises ValueError where it is none, or empty."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, str) for item in value)
    ):
        return tuple(value)
    raise ValueError(f"{name} must be a list of strings, and not an empty one")
