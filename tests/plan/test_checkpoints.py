"""The scaler's entry beside the optimizer's in a checkpoint: its key must be free."""

from __future__ import annotations

import re

import pytest

from amp_migrate.api import migrate_source

SCRIPT = """\
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 3).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
LOAD
for x, y in data:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    opt.step()
SAVE
"""

CASES = {
    "short": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'torch.save({"opt": opt.state_dict()}, "c.pt")',
        "scaler",
    ),
    "long": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["optimizer_state_dict"])',
        'torch.save({"optimizer_state_dict": opt.state_dict()}, "c.pt")',
        "scaler_state_dict",
    ),
    "another scaler's": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'torch.save({"scaler": 1.0, "opt": opt.state_dict()}, "c.pt")',
        "grad_scaler",
    ),
    "another scaler's, only read": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])\nmean = ckpt["scaler"]',
        'torch.save({"opt": opt.state_dict()}, "c.pt")',
        "grad_scaler",
    ),
    "two taken": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["optim_state"])',
        'torch.save({"scaler_state": 1, "grad_scaler_state": 2, "optim_state": opt.state_dict()}, "c.pt")',
        "amp_scaler_state",
    ),
    "keywords": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'torch.save(dict(scaler=1.0, opt=opt.state_dict()), "c.pt")',
        "grad_scaler",
    ),
    "assigned": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'state = {"scaler": 1.0}\nstate["opt"] = opt.state_dict()\ntorch.save(state, "c.pt")',
        "grad_scaler",
    ),
    "no word for the optimizer": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["scaler"])',
        'torch.save({"scaler": opt.state_dict()}, "c.pt")',
        "grad_scaler",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_key(name: str) -> None:
    load, save, key = CASES[name]
    source = SCRIPT.replace("LOAD", load).replace("SAVE", save)
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert f'scaler.load_state_dict(ckpt["{key}"])' in output
    assert f'ckpt.get("{key}")' in output
    saved = rf'("{key}": |\b{key}=|state\["{key}"\] = )\w*scaler\.state_dict\(\)'
    assert len(re.findall(saved, output)) == 1
    assert output.count("scaler.state_dict()") == 1
    again = migrate_source(output, path="train.py")
    assert again.output == output
