"""Which sizes of a matrix product are misaligned in memory, and what would mend them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amp_migrate.catalogue.gpus.padding import FEW_CHANNELS, padded_size
from amp_migrate.catalogue.gpus.profiles import Profile

_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A size whose rows are not a multiple of the alignment."""

    what: str
    """What the size is: ``m``, ``n``, ``k`` of the product, ``in channels``, ``head_dim`` ..."""
    size: int
    padded: int
    adds_percent: float
    """What the padding adds to the FLOPs of this product."""


def misfits(row: dict[str, Any], profile: Profile) -> tuple[Misfit, ...]:
    """The sizes whose rows in memory are no multiple of the alignment.

    cuBLAS from 11.0 and cuDNN from 7.6.3 on use Tensor Cores for any size, but a slower kernel where
    rows are not a multiple of 16 bytes (cuBLAS, "Tensor Core Usage"; NVIDIA's matrix multiplication
    guide, table 1). Of a product only dimensions that lie contiguous make rows: the number of
    samples or tokens does not, in a linear layer, forward or backward. Of a convolution they are the
    channels, per group; of fused attention the width of a head, to which flash attention pads, and
    without which the other fused kernels refuse; of a recurrent layer its sizes.
    """
    item = _ITEM_BYTES[row["dtype"]]
    found = []
    for what, size, power in _sizes(row):
        if size * item % profile.align_bytes:
            padded = padded_size(size, item, profile)
            adds = 100 * ((padded / size) ** power - 1)
            found.append(Misfit(what, size, padded, adds))
    return tuple(found)


def _sizes(row: dict[str, Any]) -> list[tuple[str, int, int]]:
    """What must be aligned: what it is, the size, how often it is a factor of the FLOPs."""
    form, layer = row["form"], row["layer"]
    if form == "matmul":
        return _sizes_of_matmul(row)
    if form == "conv":
        groups = layer["groups"]
        sides = [("in channels", layer["c_in"]), ("out channels", layer["c_out"])]
        per = " a group" if groups > 1 else ""
        return [
            (what + per, channels // groups, 1)
            for what, channels in sides
            if channels > FEW_CHANNELS
        ]
    if form == "attention":
        widths = dict.fromkeys((layer["head_dim"], layer["head_dim_v"]))
        return [("head_dim", width, 1) for width in widths]
    if form == "rnn_input":
        return [("input size", layer["input"], 1), ("hidden size", layer["hidden"], 1)]
    if form == "rnn_recurrent" and not layer["projection"]:
        return [("hidden size", layer["hidden"], 2)]
    if form in ("rnn_recurrent", "rnn_projection"):
        both = "hidden", "projection"
        return [(f"{what} size", layer[what], 1) for what in both]
    return []


def _sizes_of_matmul(row: dict[str, Any]) -> list[tuple[str, int, int]]:
    if min(row["m"], row["n"]) == 1:  # a vector: no matrix kernel runs
        return []
    found = [(name, row[name], 1) for name in dict.fromkeys(row["rows"])]
    # A slice has rows as far apart as those of the whole matrix.
    for side, name, lead in zip("AB", row["rows"], row["lead"], strict=False):
        if lead != row[name]:
            found.append((f"row length of {side}", lead, 0))
    return found


def is_depthwise(layer: dict[str, Any]) -> bool:
    """Whether a convolution has one input channel in each of several groups."""
    groups = layer.get("groups", 1)
    return bool(groups > 1 and layer["c_in"] == groups)
