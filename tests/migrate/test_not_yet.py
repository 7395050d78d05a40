"""Loops that could be migrated, and are refused for a reason that does not hold for them.

Each test fails today, and says so when it does not any more.
"""

from __future__ import annotations

import pytest
from exactness import check_off

from amp_migrate.api import migrate_source

HEAD = """\
import sys
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randn(4, 3))]
"""
LOOPS = {
    "a BCELoss that this program never makes": (
        "which objects one run makes together is not followed",
        """\
class Task:
    def __init__(self, is_train):
        self.model = nn.Linear(8, 3).to(device)
        self.criterion = nn.MSELoss()
        if is_train:
            self.criterion = nn.BCELoss()
    def project(self):
        code = torch.randn(4, 8, device=device, requires_grad=True)
        optimizer = torch.optim.Adam([code], lr=0.1)
        for x, y in data:
            optimizer.zero_grad()
            loss = self.criterion(self.model(code), y.to(device))
            loss.backward()
            optimizer.step()
Task(False).project()
""",
    ),
    "inner gradients under a flag that this loop leaves alone": (
        "a call's own arguments do not decide what of its function runs",
        """\
def step(net, x, y, lr, graph=False):
    loss = nn.functional.mse_loss(net(x), y)
    if graph:
        grads = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
        return [p - lr * g for p, g in zip(net.parameters(), grads)]
    return loss
def look(net):
    new = step(net, data[0][0].to(device), data[0][1].to(device), 0.1, graph=True)
    print(new[0].sum().item())
net = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if sys.argv[-1] == "look":
    look(net)
else:
    for x, y in data:
        optimizer.zero_grad()
        loss = step(net, x.to(device), y.to(device), 0.1)
        loss.backward()
        optimizer.step()
""",
    ),
    "an older net and optimizer of the same names": (
        "gradients belong to names where an optimizer is given a list",
        """\
net = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD([{"params": net.parameters()}], lr=0.1)
loss = nn.functional.mse_loss(net(data[0][0].to(device)), data[0][1].to(device))
loss.backward(torch.ones_like(loss))
optimizer.step()
net = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in data:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
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
    result = migrate_source(source, path="train.py")
    assert result.changed, result.diagnostics
    assert check_off(source, result.output, f"{name}.py") == []
