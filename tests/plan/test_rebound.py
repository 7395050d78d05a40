"""Which model and which optimizer is meant is told by object, not by name: names are bound anew."""

from __future__ import annotations

import pytest
from programs import HEAD, left_alone, migrated

TRAIN = """\
def train(net, opt, x, y):
    opt.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()


"""
EPOCH = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
"""
ZERO_OF_MODEL = EPOCH.replace("opt.zero_grad", "model.zero_grad")
SGD = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
ADAM = "opt = torch.optim.Adam(model.parameters(), lr=0.01)\n"
NEW = "model = make().to(device)\n"


def inside(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


RIGHT = {
    "a model moved behind the birth": f"{SGD}model = model.to(device)\n{EPOCH}",
    "a model wrapped behind the birth": f"{SGD}model = nn.DataParallel(model)\n{EPOCH}",
    "a second phase with the same model": f"{SGD}{EPOCH}{ADAM}{EPOCH}",
    "a second phase with another model": f"{SGD}{EPOCH}{NEW}{ADAM}{EPOCH}",
    "a second phase, gradients dropped by the model": (
        f"{SGD}{ZERO_OF_MODEL}{NEW}{ADAM}{ZERO_OF_MODEL}"
    ),
    "the old model deleted": f"{SGD}{EPOCH}del model, opt\n{NEW}{ADAM}{EPOCH}",
    "a model for each fold": (
        f"for fold in range(2):\n{inside(NEW)}{inside(SGD)}{inside(EPOCH)}"
    ),
    "a model for each fold, one before": (
        f"{SGD}{EPOCH}for fold in range(2):\n{inside(NEW)}{inside(SGD)}{inside(EPOCH)}"
    ),
    "an optimizer of its own for the second half": (
        f"{SGD}for epoch in range(4):\n    if epoch == 2:\n        {ADAM}{inside(EPOCH)}"
    ),
    "two pairs for one function": (
        f"{TRAIN}other = make().to(device)\n{SGD}"
        "adam = torch.optim.Adam(other.parameters(), lr=0.01)\n"
        "for x, y in data:\n    train(model, opt, x, y)\n    train(other, adam, x, y)\n"
    ),
    "two pairs of the same names": (
        f"{TRAIN}{SGD}for x, y in data:\n    train(model, opt, x, y)\n"
        f"{NEW}{ADAM}for x, y in data:\n    train(model, opt, x, y)\n"
    ),
    "two pairs of the same names, deeper down": (
        f"{TRAIN}def fit(net, opt):\n    for x, y in data:\n        train(net, opt, x, y)\n\n\n"
        f"{SGD}fit(model, opt)\n{NEW}{ADAM}fit(model, opt)\n"
    ),
    "a function that sees them from outside": (
        f"def fit():\n{inside(EPOCH)}\n\n{SGD}fit()\n{NEW}{ADAM}fit()\n"
    ),
    "a list of parameters for each phase": (
        f"params = list(model.parameters())\nopt = torch.optim.SGD(params, lr=0.1)\n"
        f"{EPOCH.replace('model.parameters()', 'params')}"
        f"{NEW}params = list(model.parameters())\nopt = torch.optim.Adam(params, lr=0.01)\n"
        f"{EPOCH.replace('model.parameters()', 'params')}"
    ),
    "one that is loaded, if there is one": (
        f"import os\n{SGD}if os.path.exists('best.pt'):\n    model = model.to(device)\n{EPOCH}"
    ),
    "two models, swapped with their optimizers in sight": (
        "other = make().to(device)\n"
        "both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)\n"
        f"model, other = other, model\n{EPOCH.replace('opt.', 'both.')}"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_pairs_that_belong_together(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    before = HEAD + RIGHT[name]
    after = HEAD + migrated(RIGHT[name])
    assert after.count("scaler.unscale_(") == before.count("clip_grad_norm_")
    assert check_scaled(before, after) == []


STALE = {
    "a new model behind the birth": f"{SGD}{NEW}{EPOCH}",
    "a new model that takes its turn": f"{SGD}{EPOCH}{NEW}{EPOCH}",
    "gradients of a new model are read": (
        f"{SGD}{EPOCH}{NEW}loss = criterion(model(x), y)\nloss.backward()\n"
        "print(max(p.grad.max() for p in model.parameters()))\n"
        f"{NEW}{SGD}{EPOCH}"
    ),
    "a new model under a condition": (
        f"import sys\n{SGD}if len(sys.argv) > 1:\n    {NEW}{EPOCH}"
    ),
    "a copy of the model": f"import copy\n{SGD}model = copy.deepcopy(model)\n{EPOCH}",
    "a layer put on top": (
        f"{SGD}model = nn.Sequential(model, nn.Linear(3, 3)).to(device)\n{EPOCH}"
    ),
    "a model of a class of one's own around it": (
        "class Around(nn.Module):\n    def __init__(self, body):\n        super().__init__()\n"
        "        self.body, self.head = body, nn.Linear(3, 3)\n\n"
        "    def forward(self, x):\n        return self.head(self.body(x))\n\n\n"
        f"{SGD}model = Around(model).to(device)\n{EPOCH}"
    ),
    "a new model in each turn of a loop": (
        f"{SGD}for fold in range(2):\n{inside(NEW)}{inside(EPOCH)}"
    ),
    "the optimizer of the fold before": (
        f"opt = None\nfor fold in range(2):\n{inside(NEW)}"
        f"    if opt is not None:\n{inside(inside(EPOCH))}{inside(SGD)}"
    ),
    "an optimizer that is born before its turn's model": (
        f"for fold in range(2):\n{inside(SGD)}{inside(NEW)}{inside(EPOCH)}"
    ),
    "models swapped, the optimizer of one": (
        f"other = make().to(device)\n{SGD}model, other = other, model\n{EPOCH}"
    ),
    "a pair that does not belong together": (
        f"{TRAIN}other = make().to(device)\n{SGD}"
        "for x, y in data:\n    train(model, opt, x, y)\n    train(other, opt, x, y)\n"
    ),
    "a new model for the old optimizer of a function": (
        f"{TRAIN}{SGD}for x, y in data:\n    train(model, opt, x, y)\n"
        f"{NEW}for x, y in data:\n    train(model, opt, x, y)\n"
    ),
    "a new model for a function that sees it from outside": (
        f"def fit():\n{inside(EPOCH)}\n\n{SGD}fit()\n{NEW}fit()\n"
    ),
    "a list of parameters bound anew": (
        f"params = list(model.parameters())\nopt = torch.optim.SGD(params, lr=0.1)\n"
        f"{NEW}params = list(model.parameters())\n"
        f"{EPOCH.replace('model.parameters()', 'params')}"
    ),
    "gradients of the new model dropped, those of the old step": (
        f"{SGD}old = model\n{NEW}for x, y in data:\n    model.zero_grad()\n"
        "    loss = criterion(old(x), y)\n    loss.backward()\n    opt.step()\n"
    ),
}


@pytest.mark.parametrize("name", STALE)
def test_what_the_optimizer_does_not_hold(name: str) -> None:
    assert left_alone(STALE[name]) in ("AMP030", "AMP031")
