"""A plain training script, and what validating it through the command line comes to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

PLAIN = """\
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(12, 8, device=device)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(loss.item())
"""


@dataclass(frozen=True)
class Said:
    """What a run of the command line came to."""

    code: int
    out: str
    err: str

    @property
    def only(self) -> dict[str, Any]:
        """The verdict on the one script, of a run with ``--json``."""
        (verdict,) = json.loads(self.out)["scripts"]
        return dict(verdict)
