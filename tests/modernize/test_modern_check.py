"""The check of a modern form: right ones pass, wrong ones are caught."""

from __future__ import annotations

import pytest

from amp_migrate.modernize.verify import difference

BEFORE = """\
import torch
from torch.cuda import amp, is_available
from torch.cuda.amp import GradScaler, autocast, custom_fwd

scaler = GradScaler(1024.0)  # small


@custom_fwd
def f(x):
    with autocast(True), torch.cuda.amp.autocast(), torch.cpu.amp.autocast(x):
        return amp.GradScaler(enabled=is_available())
"""
AFTER = """\
import torch
from torch import amp
from torch.cuda import is_available
from torch.amp import GradScaler, autocast, custom_fwd

scaler = GradScaler("cuda", init_scale=1024.0)  # small


@custom_fwd(device_type="cuda")
def f(x):
    with autocast("cuda", enabled=True), torch.amp.autocast("cuda"), torch.amp.autocast(
        "cpu", dtype=torch.bfloat16, enabled=x
    ):
        return amp.GradScaler("cuda", enabled=is_available())
"""


def test_a_right_rewrite_passes() -> None:
    assert difference(BEFORE, AFTER) is None
    assert difference(BEFORE, BEFORE) is None


WRONG = [
    ('autocast("cuda", enabled=True)', 'autocast("cuda", True)'),
    ('autocast("cuda", enabled=True)', 'autocast("cuda")'),
    ('autocast("cuda", enabled=True)', 'autocast("cpu", enabled=True)'),
    ('autocast("cuda", enabled=True)', "autocast(True)"),
    ('torch.amp.autocast("cuda")', 'torch.amp.autocast("cuda", dtype=torch.bfloat16)'),
    ('torch.amp.autocast("cuda")', 'torch.amp.autocast("cuda", cache_enabled=False)'),
    (
        '"cpu", dtype=torch.bfloat16, enabled=x',
        '"cuda", dtype=torch.bfloat16, enabled=x',
    ),
    ("init_scale=1024.0", "growth_factor=1024.0"),
    ('GradScaler("cuda", init_scale=1024.0)', 'GradScaler("cpu", init_scale=1024.0)'),
    ('@custom_fwd(device_type="cuda")', '@custom_fwd(device_type="cpu")'),
    ('@custom_fwd(device_type="cuda")', "@custom_fwd"),
    ("from torch.cuda import is_available\n", ""),
    ("from torch import amp\n", "from torch.cpu import amp\n"),
    ("# small", "# smaller"),
    ("  # small", ""),
    ("return", "print()\n        return"),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_a_wrong_rewrite_is_caught(right: str, wrong: str) -> None:
    assert right in AFTER
    assert difference(BEFORE, AFTER.replace(right, wrong, 1)) is not None


def test_not_python() -> None:
    assert difference(BEFORE, AFTER + "print 'x'\n") is not None
