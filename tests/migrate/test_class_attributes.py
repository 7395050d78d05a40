"""What a class is given for all of its objects, elsewhere than in its body."""

from __future__ import annotations

import pytest
from exactness import check_mixed, check_off
from programs import HEAD, left_alone, migrated

from amp_migrate.api import migrate_source

SCRIPT = """\
class Judge:
    loss, least = None, 0
    def __call__(self, out, y):
        return self.loss(torch.sigmoid(out), y)
    def masked(self, out):
        return out.masked_fill(out > 0, self.least)
    @classmethod
    def put(cls, loss):
        cls.loss = loss
class Derived(Judge):
    pass
judge = Judge()
GIVEN
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = judge(out, (y[:, None] > 0).float().expand(4, 3))
    loss.backward()
    opt.step()
    print(loss.item())
"""
GIVEN = {
    "by its name": "Judge.loss = nn.BCELoss()",
    "a base class": "judge = Derived()\nJudge.loss = nn.BCELoss()",
    "by its object": "type(judge).loss = nn.BCELoss()",
    "by another way to it": "judge.__class__.loss = nn.BCELoss()",
    "by a method": "Judge.put(nn.BCELoss())",
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_a_loss(given: str) -> None:
    body = SCRIPT.replace("GIVEN", given)
    after = migrated(body)
    assert check_off(HEAD + body, HEAD + after) == []
    assert check_mixed(HEAD + body, HEAD + after) == []


def test_a_number() -> None:
    body = SCRIPT.replace("GIVEN", "Judge.least = -1e9")
    body = body.replace("judge(out, (y[:, None] > 0).float().expand(4, 3))", "LOSS")
    body = body.replace("LOSS", "criterion(judge.masked(out).clamp(-9), y)")
    assert "finfo" in migrated(body)


@pytest.mark.parametrize("given", ["Judge.opt = opt", "type(judge).opt = opt"])
def test_an_optimizer(given: str) -> None:
    body = SCRIPT.replace("GIVEN\n", "").replace("self.loss", "nn.MSELoss()")
    body = body.replace("for x", f"{given}\nfor x").replace(
        "    opt.step", "    judge.opt.step"
    )
    assert left_alone(body) == "AMP010"
    found = migrate_source(HEAD + body).diagnostics[0]
    assert "is an attribute of Judge itself" in found.message
