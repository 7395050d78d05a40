"""Numbers in words."""

from __future__ import annotations


def number(count: int, noun: str, plural: str = "") -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
