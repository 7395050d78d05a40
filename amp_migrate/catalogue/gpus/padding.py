"""The sizes that are aligned, next to one that is not."""

from __future__ import annotations

from math import ceil

from amp_migrate.catalogue.gpus.profiles import Profile

CHEAP_PADDING = 2.0
"""Percent that a larger multiple than necessary may add to a size."""
FEW_CHANNELS = 4
"""cuDNN has kernels of its own for images of up to four channels, and pads NCHW by itself (cuDNN
developer guide, 2.8.4.3; NVIDIA's convolution guide: 4 channels suffice in a first layer)."""


def padded_size(size: int, item_bytes: int, profile: Profile) -> int:
    """The next size that is aligned: to the best multiple where that adds little, else to less."""
    for unit in (profile.best_bytes, 32, profile.advised_bytes):
        multiple = unit // item_bytes
        padded = ceil(size / multiple) * multiple
        if 100 * (padded - size) <= CHEAP_PADDING * size:
            return padded
    return padded
