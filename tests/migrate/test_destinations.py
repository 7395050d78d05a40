"""What ``.to(...)`` is given, and what is looked up by its name: neither is guessed."""

from __future__ import annotations

import pytest

from amp_migrate.api import migrate_source

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X = torch.randn(8, 4)
data = [(torch.randn(4, 8), torch.rand(4, 3)) for _ in range(2)]
criterion = nn.MSELoss()
"""
LOOP = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    x, y = x.to(device), y.to(device)
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""
MODEL = "model = nn.Linear(8, 3).to(device)\n"
MOVES = {
    "a tensor": ("model = nn.Linear(8, 3).to(X)\n", "AMP006"),
    "the dtype of a tensor": (
        "model = nn.Linear(8, 3).to(device).to(X.dtype)\n",
        "AMP006",
    ),
    "both of a tensor": (
        "model = nn.Linear(8, 3).to(X.device, X.dtype)\n",
        "AMP006",
    ),
    "a dtype in a variable": (
        "kind = X.dtype\nmodel = nn.Linear(8, 3).to(device)\nmodel.to(kind)\n",
        "AMP006",
    ),
    "a batch": (
        "model = nn.Linear(8, 3).to(device)\nfor batch, _ in data:\n    model.to(batch)\n",
        "AMP006",
    ),
    "fp32 in a variable": (
        "kind = torch.float32\nmodel = nn.Linear(8, 3).to(device, kind)\n",
        "",
    ),
    "fp32": ("model = nn.Linear(8, 3).to(device, torch.float32)\n", ""),
    "a device under any name": (
        'd = "cuda" if torch.cuda.is_available() else "cpu"\nmodel = nn.Linear(8, 3).to(d)\n',
        "",
    ),
    "the device of a tensor": (
        "X = X.to(device)\n" + MODEL + "model.to(X.device)\n",
        "",
    ),
    "data like data": (MODEL + "w = torch.ones(3).to(X)\n", ""),
}
LOOKED_UP = {
    "put together": ('criterion = getattr(F, "binary_" + "cross_entropy")\n', "AMP020"),
    "formatted": ('criterion = getattr(nn, "%sLoss" % "BCE")()\n', "AMP020"),
    "from an argument": (
        "import sys\nkind = sys.argv[-1]\ncriterion = getattr(nn, kind)()\n",
        "AMP020",
    ),
    "in a dict": ('criterion = vars(nn)["BCE" + "Loss"]()\n', "AMP020"),
    "in __dict__": ('criterion = nn.__dict__["BCE" + "Loss"]()\n', "AMP020"),
    "evaluated": ('criterion = eval("nn.BCELoss()")\n', "AMP020"),
    "a function of torch itself": (
        "import sys\nwindow = getattr(torch, sys.argv[-1])(8)\n",
        "",
    ),
    "another loss": ('criterion = getattr(nn, "MSELoss")()\n', ""),
    "an activation": (
        'name = "Re" + "LU"\nact = getattr(nn, name)()\n',
        "",
    ),
}


def outcome(source: str) -> str:
    """The code of the refusal, or "" where the script migrates."""
    result = migrate_source(source, path="train.py")
    if result.output != source:
        assert "GradScaler(\n" not in result.output
        assert "enabled=torch.device(X)" not in result.output
        return ""
    (found,) = result.diagnostics
    return found.code


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    setup, expected = MOVES[name]
    assert outcome(HEAD + setup + LOOP) == expected


@pytest.mark.parametrize("name", LOOKED_UP)
def test_lookups(name: str) -> None:
    setup, expected = LOOKED_UP[name]
    assert outcome(HEAD + MODEL + setup + LOOP) == expected
