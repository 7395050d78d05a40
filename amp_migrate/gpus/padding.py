"""The sizes that are aligned, next to one that is not."""

from __future__ import annotations

from math import ceil

from amp_migrate.gpus.profiles import Profile

CHEAP_PADDING = 2.0
"""Percent that a larger multiple than necessary may add to a size."""


def padded_size(size: int, item_bytes: int, profile: Profile) -> int:
    """The next size that is aligned: to the best multiple where that adds little, else to less."""
    for unit in (profile.best_bytes, 32, profile.advised_bytes):
        multiple = unit // item_bytes
        padded = ceil(size / multiple) * multiple
        if 100 * (padded - size) <= CHEAP_PADDING * size:
            return padded
    return padded
