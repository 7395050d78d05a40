"""Lambdas, whose parameters may be what they are by default."""

from __future__ import annotations

import pytest
from exactness import check_mixed, check_off, check_scaled
from half_support import check_runs
from programs import HEAD, left_alone, migrated

from amp_migrate.api import migrate_source

LOOP = """\
weight = torch.eye(3, device=device)
SETUP
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = LOSS
    loss.backward()
    opt.step()
    LOG
"""
CROSS = "criterion(out, y)"
BINARY = "(y[:, None] > 0).float().expand(4, 3)"
LEFT_ALONE = {
    "a loss": (
        "judge = lambda p, y, loss=nn.BCELoss(): loss(p, y)",
        f"judge(torch.sigmoid(out), {BINARY})",
        "AMP020",
    ),
    "a loss by its name": (
        "judge = lambda p, y, *, loss=F.binary_cross_entropy: loss(p, y)",
        f"judge(torch.sigmoid(out), {BINARY})",
        "AMP020",
    ),
    "a number": (
        "masked = lambda h, least=-1e9: h.masked_fill(h > 0, least)",
        "criterion(masked(out).clamp(-9), y)",
        "AMP021",
    ),
    "a number that is given": (
        "masked = lambda h, least: h.masked_fill(h > 0, least)",
        "criterion(masked(out, -1e9).clamp(-9), y)",
        "AMP021",
    ),
    "a number that is given to what a table holds": (
        'masks = {"m": lambda h, least: h.masked_fill(h > 0, least)}',
        'criterion(masks["m"](out, least=-1e9).clamp(-9), y)',
        "AMP021",
    ),
    "a number in a partial": (
        "import functools\n"
        "masked = functools.partial(lambda h, n: h.masked_fill(h > 0, n), n=-1e9)",
        "criterion(masked(out).clamp(-9), y)",
        "AMP021",
    ),
}
MIGRATED = {
    "a model": (
        "run = lambda x, net=model: net(x)",
        "criterion(run(x), y)",
        "print(loss.item())",
    ),
    "a model by its own name": (
        "run = lambda x, model=model: model(x)",
        "criterion(run(x), y)",
        "print(loss.item())",
    ),
    "a factor": (
        "turned = lambda h, by=weight: h @ by",
        CROSS,
        "print(turned(out.detach()).shape)",
    ),
    "a factor that is given": (
        "turned = lambda h, by: torch.mm(h, by)",
        CROSS,
        "print(turned(out.detach(), weight).shape)",
    ),
    "clipping": (
        "clip = lambda net, how=nn.utils.clip_grad_norm_: how(net.parameters(), 0.1)",
        CROSS,
        "print(loss.item())",
    ),
}


def _filled(setup: str, loss: str, log: str) -> str:
    body = LOOP.replace("SETUP", setup).replace("LOSS", loss).replace("LOG", log)
    if "clip" in setup:
        body = body.replace("    opt.step", "    clip(model)\n    opt.step")
    return body


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_half_precision_does_not_suit(name: str) -> None:
    setup, loss, code = LEFT_ALONE[name]
    assert left_alone(_filled(setup, loss, "print(loss.item())")) == code


@pytest.mark.parametrize("name", MIGRATED)
def test_it_trains_as_before(name: str) -> None:
    body = _filled(*MIGRATED[name])
    after = migrated(body)
    assert ("unscale_" in after) == (name == "clipping")
    assert check_off(HEAD + body, HEAD + after) == []
    assert check_scaled(HEAD + body, HEAD + after) == []
    assert check_mixed(HEAD + body, HEAD + after) == []


def test_what_a_lambda_wraps_is_told_by_its_calls() -> None:
    """What one call gives it is none of what another hands on."""
    source = """\
import torch
import torch.nn as nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
wrap = lambda *args: torch.autograd.Variable(*args)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 2)
    def forward(self, x):
        return self.fc(x)
    def act(self, state):
        return self.forward(wrap(state)).argmax(1)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(8, 6).to(device)
    print(model.act(x).sum().item())
    q = model(wrap(x))
    loss = (q - wrap(q.detach() * 0.5)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    output = migrate_source(source, path="train.py").output
    assert "scaler.step(optimizer)" in output
    assert "return self.forward(wrap(state)).argmax(1)" in output
    check_runs(source, output)
