"""`amp-migrate lint` in tests, as it is typed, and programs in which it finds something."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

from click.testing import CliRunner, Result

from amp_migrate.cli.main import main

CLIP = """\
import torch

model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")

for batch in [torch.randn(8, 512).cuda()]:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(batch).square().mean()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
"""One error, AMP101 in line 12."""

OLD = """\
import torch

model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in [torch.randn(8, 512).cuda()]:
    optimizer.zero_grad(set_to_none=False)
    model(batch).square().mean().backward()
    optimizer.step()
"""
"""One warning, TCU304 in line 6, among infos; --unsafe-fixes mends it."""

WIDE = """\
import torch
from torch import nn

hidden = 1501


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(hidden, 4096)
"""
"""One finding about a size, TCU102 in line 10, with a chain that begins in line 4."""


def lint(*arguments: str, stdin: bytes | None = None) -> Result:
    """Run ``amp-migrate lint``."""
    return CliRunner().invoke(
        main, ["lint", *arguments], input=stdin, prog_name="amp-migrate"
    )


def write(**texts: str) -> None:
    """Python files in the current folder, by their names."""
    for name, text in texts.items():
        Path(f"{name}.py").write_text(dedent(text), encoding="utf-8")


def findings(*arguments: str) -> list[dict[str, Any]]:
    """What is found, read from JSON."""
    result = lint(*arguments, "--output-format", "json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return found


def codes(*arguments: str) -> list[str]:
    """``a.py:12 AMP101`` for each finding."""
    return [f"{f['path']}:{f['line']} {f['code']}" for f in findings(*arguments)]
