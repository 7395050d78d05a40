"""Loops that could be migrated, and are refused for a reason that does not hold, or need not hold.

Each test fails today, and says so when it does not any more.
"""

from __future__ import annotations

import pytest
from exactness import check_off

from amp_migrate.api import migrate_source

HEAD = """\
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randn(4, 3))]
"""
LOOPS = {
    "a store of a hook that is filled before each reading": (
        "in what order methods run is not followed",
        """\
class Wrapper(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.hidden = {}
        self.projector = nn.Linear(4, 2)
        net[0].register_forward_hook(self._hook)
    def _hook(self, _, given, output):
        self.hidden[0] = output.flatten(1)
    def forward(self, x):
        self.hidden.clear()
        _ = self.net(x)
        embed = self.hidden[0]
        return self.projector(embed)
class Learner(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.encoder = Wrapper(net).to(device)
        self.forward(torch.randn(2, 8, device=device))
    def forward(self, x):
        return self.encoder(x).pow(2).mean()
learner = Learner(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4)).to(device)).to(device)
optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
images = torch.randn(8, 8, device=device)
loss = learner(images)
optimizer.zero_grad()
loss.backward()
optimizer.step()
""",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=why, strict=True))
        for name, (why, _) in LOOPS.items()
    ],
)
def test_a_loop_that_could_be_migrated(name: str) -> None:
    source = HEAD + LOOPS[name][1]
    result = migrate_source(source)
    assert result.changed, result.diagnostics
    check_off(source, result.output, f"{name}.py")
