"""Lambdas, whose parameters may be what they are by default."""

from __future__ import annotations

import pytest
from exactness import check_mixed, check_off, check_scaled
from programs import HEAD, left_alone, migrated

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
