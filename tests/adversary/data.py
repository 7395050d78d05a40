"""What a program trains on, and how a batch comes to be ``x``, ``y``, ``b``, ``c``."""

from __future__ import annotations

HEAD = """\
import collections
import copy
import dataclasses
import functools
import types

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

torch.manual_seed(SEED)
np.random.seed(SEED)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_batch():
    x = torch.randn(6, 8)
    return x, torch.tanh(x.flip(1)), torch.arange(6) % 4

""".splitlines()

_REST = ["x, y, c = x.to(device), y.to(device), c.to(device)", "b = (y > 0).float()"]
_MOVED = ["b = (y > 0).to(torch.float32)"]

LOADERS = (
    # what comes first, the targets of the loop, the loader, and what begins its body
    *[(("~loader = [make_batch() for _ in range(3)]",), "x, y, c", "~loader", _REST)]
    * 4,
    (
        (
            "~loader = [tuple(t.to(device) for t in make_batch()) for _ in range(3)]",
        ),
        "batch",
        "~loader",
        ["x, y, c = batch", *_MOVED],
    ),
    (
        (
            "~loader = [dict(zip(('x', 'y', 'c'), make_batch())) for _ in range(3)]",
        ),
        "batch",
        "~loader",
        [
            "batch = {k: v.to(device) for k, v in batch.items()}",
            'x, y, c = batch["x"], batch["y"], batch["c"]',
            *_MOVED,
        ],
    ),
    (
        (
            "~loader = torch.utils.data.DataLoader(",
            "    torch.utils.data.TensorDataset(*map(torch.cat, zip(*[make_batch() for _ in range(3)]))),",
            "    batch_size=6,",
            "    shuffle=True,",
            ")",
        ),
        "x, y, c",
        "~loader",
        _REST,
    ),
    (
        (
            "~inputs = np.random.randn(18, 8)",
            "~loader = [0, 6, 12]",
        ),
        "start",
        "~loader",
        [
            "x = torch.from_numpy(~inputs[start : start + 6]).float().to(device)",
            "y, c = torch.tanh(x.flip(1)), torch.arange(6, device=device) % 4",
            *_MOVED,
        ],
    ),
    (
        (
            "~inputs = torch.randn(18, 8, device=device)",
            "~loader = torch.randperm(18).split(6)",
        ),
        "index",
        "~loader",
        [
            "x = ~inputs[index]",
            "y, c = x.flip(1).tanh(), index.to(device) % 4",
            *_MOVED,
        ],
    ),
    (
        ("~loader = range(3)",),
        "_",
        "~loader",
        ["x, y, c = make_batch()", *_REST],
    ),
    (
        ("~loader = [make_batch() for _ in range(3)]",),
        "x, *rest",
        "~loader",
        ["y, c = rest", *_REST],
    ),
    (
        ("~loader = [make_batch() for _ in range(3)]",),
        "x, y, c",
        "~loader",
        ["x, y, c = (t.to(device, non_blocking=True) for t in (x, y, c))", *_MOVED],
    ),
)  # fmt: skip
