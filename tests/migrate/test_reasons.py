"""What only looks like a reason to leave a loop alone: it is migrated, or the true reason is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from exactness import check_mixed, check_off, check_scaled

from amp_migrate.api import migrate_source

HEAD = """\
import itertools
import math
import sys
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randint(0, 3, (4,)))]
criterion = nn.CrossEntropyLoss()
"""
MODEL = """\
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def script(
    before: str = "", after: str = "", *, setup: str = "", model: str = MODEL
) -> str:
    """A loop with lines of its own between backward and step, and behind the step."""
    return (
        f"{HEAD}{setup}{model}"
        "for x, y in data:\n"
        "    x, y = x.to(device), y.to(device)\n"
        "    optimizer.zero_grad()\n"
        "    loss = criterion(model(x), y)\n"
        "    loss.backward()\n"
        f"{indent(before, '    ')}    optimizer.step()\n{indent(after, '    ')}"
    )


def judged(source: str) -> str:
    """The code of the refusal; of what migrates ``unscaled`` or ``plain``."""
    result = migrate_source(source)
    if result.output == source:
        (found,) = result.diagnostics
        return found.code
    assert not result.diagnostics
    compile(result.output, "train.py", "exec")
    return "unscaled" if ".unscale_(" in result.output else "plain"


STOP = "if value > 5:\n    raise ValueError(value)\n"
BOUNDS = {
    # name: (script, what becomes of it)
    "an array": (script("a = np.clip(np.zeros(3), low, high)\n"), "plain"),
    "an array's method": (script("a = a.clip(low, high)\n"), "plain"),
    "rewards": (
        script(
            "env = ClipRewardEnv(env, low)\n", setup="from wrappers import ClipRewardEnv\n"
        ),
        "plain",
    ),
    "a range": (
        script("c = clip_range(rest)\n", setup="from ranges import clip_range\n"),
        "plain",
    ),
    "a norm of what is no parameter": (
        script("n = norm(x, y)\n", setup="from sums import norm\n"),
        "plain",
    ),
    "a picture": (
        script("x = degrade(x, y)\n", setup="from pictures import degrade\n"),
        "plain",
    ),
    "gradients": (
        script("clip_gradient(model, 1.0)\n", setup="from bounds import clip_gradient\n"),
        "unscaled",
    ),
    "gradients of an object out of sight": (
        script("tools.clip_grad_norm_()\n", setup="from bounds import tools\n"),
        "unscaled",
    ),
    "a module by a short name": (
        script("clip(model, 1.0)\n", setup="from bounds import clip\n"),
        "unscaled",
    ),
    "parameters": (
        script("clip(model.parameters(), 1.0)\n", setup="from bounds import clip\n"),
        "unscaled",
    ),
    "parameters in a variable": (
        script(
            "clamp(params, 1.0)\n",
            setup="from bounds import clamp\n",
            model=MODEL + "params = list(model.parameters())\n",
        ),
        "unscaled",
    ),
    "one parameter after another": (
        script(
            "for p in model.parameters():\n    clip(p, 1.0)\n",
            setup="from bounds import clip\n",
        ),
        "unscaled",
    ),
    "torch's own by another name": (
        script(
            "bound(model.parameters(), 1.0)\n",
            setup="bound = nn.utils.clip_grad_norm_\n",
        ),
        "unscaled",
    ),
    "one of torch's": (
        script(
            "bound(model.parameters(), 1.0)\n",
            setup="bound = nn.utils.clip_grad_norm_\n"
            "if len(data) > 3:\n    bound = nn.utils.clip_grad_value_\n",
        ),
        "unscaled",
    ),
    "torch's own with its bound given": (
        script(
            "clip(model.parameters())\n",
            setup="import functools\n"
            "clip = functools.partial(nn.utils.clip_grad_norm_, max_norm=1.0)\n",
        ),
        "unscaled",
    ),
    "a layer that is a norm": (
        script("n = norm(model(x))\n", setup="norm = nn.LayerNorm(3).to(device)\n"),
        "plain",
    ),
    # A program that stops at what it finds in gradients.
    "stops at an array": (script(after=f"value = np.clip(a, 0, 9)\n{STOP}"), "plain"),
    "stops at an array's own": (script(after=f"value = a.clip(0, 9)\n{STOP}"), "plain"),
    "stops at a wrapped environment": (
        script(
            setup="from wrappers import ClipRewardEnv\nenv = ClipRewardEnv(env)\n"
            "assert env.meanings() == 'NOOP'\n"
        ),
        "plain",
    ),
    "stops at a picture": (
        script(
            after=f"value = degrade(x)\n{STOP}", setup="from pictures import degrade\n"
        ),
        "plain",
    ),
    "stops at what another call reads from gradients": (
        script(
            "value = average(loss.item())\n"
            f"told = average(model.weight.grad)\nprint(told)\n{STOP}",
            setup="def average(value):\n    return value / 2\n",
        ),
        "unscaled",
    ),
    "stops at what this call reads from gradients": (
        script(
            after=f"value = average(model.weight.grad.sum())\n{STOP}",
            setup="def average(value):\n    return value / 2\n",
        ),
        "AMP025",
    ),
    "stops at the loss of a pair": (
        script(
            f"value, norm = sizes(loss, model)\n{STOP}",
            setup="def sizes(loss, model):\n    return loss.item(), norm_of(model)\n"
            "def norm_of(model):\n    return sum(p.grad.sum() for p in model.parameters())\n",
        ),
        "unscaled",
    ),
    "stops at the norm of a pair": (
        script(
            after=f"loss, value = sizes(loss, model)\n{STOP}",
            setup="def sizes(loss, model):\n    return loss.item(), norm_of(model)\n"
            "def norm_of(model):\n    return sum(p.grad.sum() for p in model.parameters())\n",
        ),
        "AMP025",
    ),
    "stops at a clip out of sight": (
        script(
            f"value = clip(model.parameters(), 9)\n{STOP}",
            setup="from bounds import clip\n",
        ),
        "AMP025",
    ),
    "stops at a norm out of sight": (
        script(
            f"value = grad_norm(model)\n{STOP}", setup="from bounds import grad_norm\n"
        ),
        "AMP025",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_of_gradients_and_of_other_things(name: str) -> None:
    source, expected = BOUNDS[name]
    assert judged(source) == expected


STEPPED = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
LAYERS = """\
class Net(nn.Module):
    def __init__(self, env=None):
        super().__init__()
        self.env = env
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)
        self.net = nn.Parameter(torch.zeros(3))
    def forward(self, x):
        h = self.head(x)
        BODY
        return h
model = Net().to(device)
"""


def around(setup: str = "", body: str = "pass") -> str:
    """A plain loop with lines before the model, and lines in its ``forward``."""
    layers = LAYERS.replace("BODY", body.replace("\n", "\n        "))
    return HEAD + setup + layers + STEPPED


DATA = """\
def read(values, half=True):
    kept = torch.tensor(values)
    kept = kept.reshape(-1)
    kept = kept.half()
    return kept
weights = read([1.0, 2.0]).float()
"""
PRECISION = {
    "a parameter as its input is": (around(body="h = h + self.net.to(x.dtype)"), "plain"),
    "a tensor as another is": (
        around(body="h = h + torch.ones(3, device=x.device).to(x.dtype)"),
        "plain",
    ),
    "a tensor in float64": (
        around("weights = torch.ones(4)\nweights = weights.to(torch.float64)\n"),
        "plain",
    ),
    "a module as its input is": (around(body="h = self.head.to(x.dtype)(x)"), "AMP006"),
    "a module in float64": (around("tail = nn.Linear(3, 3)\ntail.to(torch.float64)\n"), "AMP006"),
    "copies of the parameters": (
        around(
            "def kept(model):\n"
            "    return {n: p.data.to(torch.float16) for n, p in model.named_parameters()}\n"
            "kept(nn.Linear(3, 3))\n"
        ),
        "plain",
    ),
    "the parameters themselves": (
        around(
            "def cast(model):\n    for p in model.parameters():\n"
            "        p.data = p.data.to(torch.float16)\n"
            "cast(nn.Linear(3, 3))\n"
        ),
        "AMP006",
    ),
    "parameters made of copies": (
        around(
            "tail = nn.Linear(3, 3)\n"
            "tail.weight = nn.Parameter(tail.weight.data.half())\n"
        ),
        "AMP006",
    ),
    "copies that become the parameters": (
        around(
            "for p in nn.Linear(3, 3).parameters():\n"
            "    low = p.data.half()\n    p.data = low\n"
        ),
        "AMP006",
    ),
    "copies that are set": (
        around(
            "for p in nn.Linear(3, 3).parameters():\n"
            "    p.set_(p.data.to(torch.float16))\n"
        ),
        "AMP006",
    ),
    "copies that are loaded as they are": (
        around(
            "tail = nn.Linear(3, 3)\n"
            "low = {n: p.data.half() for n, p in tail.named_parameters()}\n"
            "tail.load_state_dict(low, assign=True)\n"
        ),
        "AMP006",
    ),
    "data that is kept in half precision": (around(DATA), "plain"),
    "data, by an option": (
        around(DATA.replace("kept = kept.half()", "if half:\n        kept = kept.half()")),
        "plain",
    ),
    "data that becomes a parameter": (
        around(DATA + "tail = nn.Parameter(read([1.0]))\n"),
        "AMP006",
    ),
    "data that is put among parameters": (
        around(DATA + "nn.Linear(1, 1)._parameters['bias'] = read([1.0])\n"),
        "AMP006",
    ),
    "data that is trained": (around(DATA + "read([1.0]).requires_grad_()\n"), "AMP006"),
    "data that parameters are set to": (
        around(DATA + "tail = nn.Linear(3, 3)\ntail.bias.data = read([1.0, 2.0, 3.0])\n"),
        "AMP006",
    ),
    "data that is a parameter at once": (
        around("tail = nn.Parameter(torch.zeros(3).to(torch.half))\n"),
        "AMP006",
    ),
    "data, beside a parameter of its own": (
        around(DATA + "window = nn.Parameter(torch.hann_window(3).cuda())\n"),
        "plain",
    ),
    "data, or a module": (
        around(
            DATA.replace(
                "    kept = kept.h", "    if half:\n        kept = nn.Linear(3, 3)\n    kept = kept.h"
            )
        ),
        "AMP006",
    ),
    "what a function is given": (
        around("def read(kept):\n    return kept.half()\nread(nn.Linear(3, 3))\n"),
        "AMP006",
    ),
    "what is computed in half precision": (around(body="h = self.k(h).half().float()"), "AMP006"),
    "the default, as it is anyway": (
        around("torch.set_default_dtype(torch.float32)\n"),
        "plain",
    ),
    "the default, by its other name": (
        around("torch.set_default_dtype(d=torch.float)\n"),
        "plain",
    ),
    "the default, by a variable": (
        around("DTYPE = torch.float32\ntorch.set_default_dtype(DTYPE)\n"),
        "plain",
    ),
    "another default": (around("torch.set_default_dtype(torch.float64)\n"), "AMP006"),
    "a default out of sight": (
        around("from settings import dtype\ntorch.set_default_dtype(dtype)\n"),
        "AMP006",
    ),
    "the dtype of a space": (
        around(body="assert self.env.space.dtype == np.float32"),
        "plain",
    ),
    "the dtype of a space, by a call": (
        around(body="assert self.env.space.dtype == np.dtype('float32')"),
        "plain",
    ),
    "the dtype of an array, by its name": (
        around(body="assert self.env.space.dtype in ('float32',)"),
        "plain",
    ),
    "the dtype of a tensor": (around(body="assert h.dtype == torch.float32"), "AMP020"),
    "the dtype of a tensor, one of several": (
        around(body="assert h.dtype in (torch.float32, torch.float64)"),
        "AMP020",
    ),
    "more digits than half precision has": (
        around(body="assert torch.allclose(h, h + 0.0, atol=1e-5)"),
        "AMP020",
    ),
    "more digits, by the assert of torch": (
        around(body="torch.testing.assert_close(h, h + 0.0 * x)"),
        "AMP020",
    ),
    "what is written to a tensor that is given": (
        around(body="torch.abs(h.detach(), out=torch.zeros_like(x))"),
        "AMP020",
    ),
    "what fp32 is written to a tensor that is given": (
        around(body="torch.abs(x, out=torch.zeros_like(x))"),
        "plain",
    ),
    "what raises, out of a list": (
        around(body="h = [f(h) for f in [torch.linalg.pinv]][0]"),
        "AMP020",
    ),
    "digits of what is fp32": (
        around(body="assert torch.allclose(x, x + 0.0, atol=1e-5)"),
        "plain",
    ),
    "what rescues half precision from its infinities": (
        around(
            body="if h.dtype == torch.float16 and torch.isinf(h).any():\n"
            "    h = torch.clamp(h, -60000, 60000)"
        ),
        "plain",
    ),
    "what rescues half precision where not all is finite": (
        around(
            body="if not torch.isfinite(h).all().item() and h.dtype is torch.half:\n"
            "    h = torch.nan_to_num(h)"
        ),
        "plain",
    ),
    "what does otherwise in half precision": (
        around(body="if h.dtype == torch.float16 and self.training:\n    h = h * 128"),
        "AMP020",
    ),
    "what does otherwise where half precision is finite": (
        around(
            body="if h.dtype == torch.float16 and torch.isfinite(h).all():\n    h = h * 128"
        ),
        "AMP020",
    ),
    "what does otherwise where it is not rescued": (
        around(
            body="if h.dtype == torch.float16 and torch.isinf(h).any():\n"
            "    h = torch.clamp(h, -60000, 60000)\n"
            "else:\n    h = h + 1"
        ),
        "AMP020",
    ),
    "what stops at the infinities of half precision": (
        around(
            body="if h.dtype == torch.float16 and torch.isinf(h).any():\n"
            "    raise ValueError('overflow')"
        ),
        "AMP020",
    ),
    "what stops at them in a helper": (
        around(
            "def stop(h):\n    assert h.dtype != torch.float16\n    return h\n",
            "if torch.isnan(h).any() and h.dtype == torch.float16:\n    h = stop(h)",
        ),
        "AMP020",
    ),
    "the type of a tensor": (
        around(body="if isinstance(h, torch.cuda.FloatTensor):\n    h = h + torch.ones(3).cuda()"),
        "AMP020",
    ),
    "the type of a tensor, one of several": (
        around(body="assert isinstance(h, (torch.FloatTensor, torch.cuda.FloatTensor))"),
        "AMP020",
    ),
    "the type of a tensor, by its name": (
        around(body="if h.type() == 'torch.cuda.FloatTensor':\n    h = h + torch.ones(3).cuda()"),
        "AMP020",
    ),
    "the type of an element that may not be there": (
        around(
            body="kept = [h]\nfor i in range(2):\n"
            "    if i < len(kept) and kept[i].type() == h.type():\n        h = h + 1"
        ),
        "AMP020",
    ),
    "the type of an attribute that may not be there": (
        around(
            "from elsewhere import make\n",
            "if hasattr(self, 'kept') and self.kept.type() == h.type():\n    h = h + 1\n"
            "self.kept = make(h)",
        ),
        "AMP020",
    ),
    "the type of what is fp32": (
        around(body="if isinstance(x, torch.cuda.FloatTensor):\n    x = x + torch.ones(3).cuda()"),
        "plain",
    ),
    "the type of a tensor, on the CPU": (
        around(body="if isinstance(h, torch.FloatTensor):\n    h = h + torch.ones(3)"),
        "plain",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRECISION)
def test_another_precision(name: str) -> None:
    source, expected = PRECISION[name]
    assert judged(source) == expected


@pytest.mark.parametrize(
    "number",
    ('float("-1e20")', "-1e20", 'float("-1e9")', "float(-1e20)", "-(10 ** 20)"),
)
@pytest.mark.parametrize(
    "scores", ("h", 'torch.einsum("qd,kd->qk", [self.q(x), self.k(x)])')
)
def test_numbers_of_a_mask(number: str, scores: str) -> None:
    body = (
        f"scores = {scores}\nscores = scores.masked_fill(scores > 0, {number})\n"
        "h = h + torch.softmax(scores / (8 ** (1 / 2)), dim=1)[:, :3]"
    )
    result = migrate_source(around(body=body), path="train.py")
    bound = f"max({number}, torch.finfo(scores.dtype).min)"
    assert f"masked_fill(scores > 0, {bound})" in result.output


@pytest.mark.parametrize(
    "number", ('float("-inf")', 'float("inf")', "-math.inf", "-np.inf", "torch.inf")
)
def test_infinity_is_the_same_in_half_precision(number: str) -> None:
    body = f"h = h.masked_fill(h > 0, {number})"
    result = migrate_source(around(body=body), path="train.py")
    assert ".scale(loss)" in result.output and f" {number})" in result.output


TRAIN = """\
def train(model, optimizer, loader):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""
MAIN = """\
def main():
    model = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, loader)
main()
"""
REBOUND = {
    "a variable before": (f"train = data\nloader = iter(train)\n{TRAIN}{MAIN}", True),
    "an import before": (
        f"from sets import train\nloader = iter(train)\n{TRAIN}{MAIN}",
        True,
    ),
    "a variable behind": (
        f"loader = data\n{TRAIN}{MAIN}train = [1, 2]\nprint(train)\n",
        True,
    ),
    "a variable in a branch": (
        f"loader = data\n{TRAIN}{MAIN}if device:\n    train = None\nprint(train)\n",
        False,
    ),
    "round a loop": (
        f"loader, train = data, print\nfor _ in range(2):\n    kept = train\n"
        f"{indent(TRAIN, '    ')}{MAIN}",
        False,
    ),
    "the function itself": (f"loader = data\n{TRAIN}hooks = [train]\n{MAIN}", False),
}


@pytest.mark.parametrize("name", REBOUND)
def test_a_name_that_a_def_binds_anew(name: str) -> None:
    body, migrates = REBOUND[name]
    result = migrate_source(HEAD + body, path="train.py")
    codes = [found.code for found in result.diagnostics]
    assert codes == ([] if migrates else ["AMP015"])
    assert ("scaler=scaler" in result.output) is migrates


CLIP = "    torch.nn.utils.clip_grad_norm_({}.parameters(), 1.0)\n"
MADE = """\
def make(width=8):
    net = nn.Linear(width, 3).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    return RETURNED
"""
TOGETHER = {
    # name: (what is returned, how it is taken, the model, the optimizer, migrates)
    "a tuple": ("net, opt", "model, optimizer = make()", "model", "optimizer", True),
    "moved on": (
        "net, opt",
        "model, optimizer = make()\nmodel = model.to(device)",
        "model",
        "optimizer",
        True,
    ),
    "wrapped": (
        "net, opt",
        "model, optimizer = make()\nmodel = nn.DataParallel(model)",
        "model",
        "optimizer",
        True,
    ),
    "a dict": ('{"net": net, "opt": opt}', "made = make()", 'made["net"]', 'made["opt"]', True),
    "another model": (
        "net, opt",
        "model, optimizer = make()\nmodel = nn.Linear(8, 3).to(device)",
        "model",
        "optimizer",
        False,
    ),
    "made twice": (
        "net, opt",
        "model, _ = make()\n_, optimizer = make()",
        "model",
        "optimizer",
        False,
    ),
    "a copy": (
        "copy.deepcopy(net), opt",
        "import copy\nmodel, optimizer = make()",
        "model",
        "optimizer",
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("zeroed", (False, True))
@pytest.mark.parametrize("name", TOGETHER)
def test_a_model_and_an_optimizer_that_one_call_hands_out(
    name: str, zeroed: bool
) -> None:
    returned, taken, model, optimizer, migrates = TOGETHER[name]
    source = (
        f"{HEAD}{MADE.replace('RETURNED', returned)}{taken}\nfor x, y in data:\n"
        f"    x, y = x.to(device), y.to(device)\n"
        f"    {model if zeroed else optimizer}.zero_grad()\n"
        f"    loss = criterion({model}(x), y)\n    loss.backward()\n"
        f"{'' if zeroed else CLIP.format(model)}    {optimizer}.step()\n"
    )
    result = migrate_source(source, path="train.py")
    if migrates:
        assert not result.diagnostics
        assert (f".unscale_({optimizer})" in result.output) is not zeroed
    else:
        (found,) = result.diagnostics
        assert found.code == ("AMP031" if zeroed else "AMP030")
        assert found.blocker is not None
        line = source.splitlines()[found.blocker.line - 1]
        # What is cleared is pointed at, not the backward() behind it.
        assert (".zero_grad()" if zeroed else ".clip_grad_norm_(") in line


PLACE = "loss.backward()"
UNFOLLOWED = {
    # name: (setup, step, code, part of the message)
    "an object out of sight": (
        "from lib import manager\n",
        "manager.step()",
        "AMP010",
        "manager.step()",
    ),
    "one of a dict": (
        "from lib import opts, key\n",
        "opts[key].step()",
        "AMP010",
        "opts[key].step()",
    ),
    "each of what a loop puts together": (
        "pairs = {}\nfor n in input():\n    pairs[n] = torch.optim.SGD(model.parameters(), 0.1)\n",
        "for o in pairs.values():\n        o.step()",
        "AMP012",
        "which parameters each of the optimizers",
    ),
    "a function out of sight": (
        "from lib import optim_step\n",
        "optim_step(model)",
        "AMP010",
        "optim_step()",
    ),
    "under another name": (
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nstep = optimizer.step\n",
        "step()",
        "AMP016",
        "optimizer.step",
    ),
    "a scheduler": (
        "from lib import scheduler\n",
        "scheduler.step()",
        "AMP011",
        "no optimizer that is followed steps",
    ),
    "an environment": (
        "from lib import env\n",
        "env.step(loss)",
        "AMP011",
        "no optimizer that is followed steps",
    ),
    "by hand": (
        "",
        "for p in model.parameters():\n        p.data -= 0.1 * p.grad",
        "AMP011",
        "its gradients are used here",
    ),
    "a helper that is given the model": (
        "from lib import show\n",
        "show(model)",
        "AMP011",
        "no optimizer that is followed steps",
    ),
}


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_a_step_that_is_not_followed(name: str) -> None:
    setup, step, code, words = UNFOLLOWED[name]
    source = (
        f"{HEAD}model = nn.Linear(8, 3).to(device)\n{setup}for x, y in data:\n"
        "    x, y = x.to(device), y.to(device)\n    model.zero_grad()\n"
        f"    loss = criterion(model(x), y)\n    loss.backward()\n    {step}\n"
    )
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == code
    assert words in found.message


ADVICE = {
    # name: (script, a line of what is told to write by hand, a word that has no place there)
    "a clip of what nobody is known to hold": (
        script("torch.nn.utils.clip_grad_norm_(other.parameters(), 2.5)\n"),
        "torch.nn.utils.clip_grad_norm_(other.parameters(), 2.5)",
        "i + 1",
    ),
    "a clip that is a block": (
        script(
            "for p in other.parameters():\n    p.grad.data.clamp_(-1, 1)\n",
            setup="from lib import other\n",
        ),
        "scaler.step(optimizer)",
        "i + 1",
    ),
    "an error at what is not finite": (
        script(
            "torch.nn.utils.clip_grad_norm_(\n"
            "    model.parameters(), 1.0, error_if_nonfinite=True\n)\n"
        ),
        "    model.parameters(), 1.0, error_if_nonfinite=not scaler.is_enabled()",
        "anomaly",
    ),
    "anomaly detection": (
        script(setup="torch.autograd.set_detect_anomaly(True)\n"),
        "with torch.autograd.detect_anomaly(check_nan=not scaler.is_enabled()):",
        "clip",
    ),
    "the default dtype": (
        around("torch.set_default_dtype(torch.float64)\n"),
        "torch.set_default_dtype(torch.float32)  # or leave the call out",
        "half()",
    ),
    "L-BFGS": (
        script(model=MODEL.replace("SGD", "LBFGS")),
        "# Stay in fp32, or train with an optimizer that takes no closure:",
        "update()",
    ),
    "no zero_grad": (
        script().replace("    optimizer.zero_grad()\n", ""),
        "optimizer.zero_grad()  # before the backward() of each step",
        "clip",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVICE)
def test_what_to_write_by_hand_fits_the_case(name: str) -> None:
    source, wanted, unwanted = ADVICE[name]
    diagnostics = migrate_source(source, path="train.py").diagnostics
    for found in diagnostics:
        assert wanted in found.by_hand
        assert unwanted not in "\n".join(found.by_hand)
    assert diagnostics


OTHERS = {
    # name: (setup, lines behind the step, code)
    "a function that calls itself": (
        "import json\ndef plain(v):\n    json.dumps(v)\n"
        "    return [plain(x) for x in v] if v else str(v)\n"
        "v = nn.Linear(3, 3)\nv.eval()\n",
        "plain([loss.item()])",
        "",
    ),
    "a function that clears modules one by one": (
        "def clear(module):\n    for child in module.children():\n"
        "        clear(child)\n    module.zero_grad()\n",
        "clear(model)",
        "",
    ),
    "a model's size, counted by NumPy": (
        "class Net(nn.Linear):\n    def size(self):\n"
        "        found = filter(lambda p: p.requires_grad, self.parameters())\n"
        "        found = sum([np.prod(p.size()) for p in found]) / 1_000_000\n"
        "        return found\nhead = Net(3, 3)\n",
        "print(head.size())",
        "",
    ),
    "a model's size, counted by itself": (
        "class Net(nn.Linear):\n    def size(self):\n"
        "        return sum(p.numel() for p in self.parameters()) / 1_000_000\n"
        "head = Net(3, 3)\n",
        "print(head.size())",
        "",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_part_in_the_step(name: str) -> None:
    setup, behind, code = OTHERS[name]
    source = script(after=behind + "\n", setup=setup)
    codes = {
        found.code for found in migrate_source(source, path="train.py").diagnostics
    }
    assert codes == ({code} if code else set())


AGENT = """\
import torch
import torch.nn as nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(4)]
class Agent:
    def __init__(self):
        self.policy = nn.Linear(8, 1).to(device)
        self.optim = torch.optim.Adam(self.policy.parameters(), lr=0.1)
        self.log_alpha = MADE
        self.alpha_optim = torch.optim.Adam([self.log_alpha], lr=0.1)
    def update(self, x, y):
        out = self.policy(x)
        loss = (self.log_alpha.exp().item() * out - y).pow(2).mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        entropy = torch.tensor(out.mean().item() + 1.0, device=device)
        alpha_loss = LOSS
        self.alpha_optim.zero_grad()
        alpha_loss.backward()
        self.alpha_optim.step()
        return loss.item(), alpha_loss.item()
agent = Agent()
for x, y in data:
    print(agent.update(x.to(device), y.to(device)))
"""


@pytest.mark.parametrize(
    "made",
    (
        "torch.zeros(1, requires_grad=True, device=device)",
        "nn.Parameter(torch.zeros(1, device=device))",
    ),
)
def test_a_loss_of_a_parameter_by_itself_needs_no_region(made: str) -> None:
    source = AGENT.replace("MADE", made)
    source = source.replace("LOSS", "-(self.log_alpha * entropy).mean()")
    result = migrate_source(source, path="train.py")
    assert not result.diagnostics
    assert result.output.count("torch.autocast(") == 1
    # Its gradients are sure to be there: the step is not guarded.
    assert "p.grad is not None" not in result.output
    assert check_off(source, result.output) == []
    assert check_scaled(source, result.output) == []
    assert check_mixed(source, result.output) == []


def test_a_loss_of_a_parameter_behind_a_property() -> None:
    source = AGENT.replace("MADE", "nn.Parameter(torch.zeros(1, device=device))")
    source = source.replace("LOSS", "-(self.alpha * entropy).mean()").replace(
        "    def update(",
        "    fixed = False\n    @property\n    def alpha(self):\n"
        "        return self.log_alpha.exp()\n    def update(",
    )
    result = migrate_source(source, path="train.py")
    assert "p.grad is not None" not in result.output
    assert "self.alpha_scaler.step(self.alpha_optim)" in result.output
    assert check_off(source, result.output) == []
    assert check_scaled(source, result.output) == []
    given = "        return self.log_alpha.exp()"
    perhaps = f"        if self.fixed:\n            return torch.ones(1)\n{given}"
    source = source.replace(given, perhaps)
    assert "alpha_scaler" not in migrate_source(source, path="train.py").output


def test_a_loss_out_of_sight_is_no_loss_of_a_parameter() -> None:
    source = AGENT.replace("MADE", "torch.zeros(1, requires_grad=True, device=device)")
    source = "from lib import kept\n" + source.replace("LOSS", "kept.pop()")
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP033"


def test_a_loss_of_a_parameter_that_nobody_holds() -> None:
    toy = "w = torch.ones(1, requires_grad=True)\ny = 2 * w\ny.backward()\n"
    source = HEAD + toy + MODEL + STEPPED.split("\n", 1)[1]
    found = migrate_source(source, path="train.py").diagnostics[0]
    assert (found.code, found.place.text) == ("AMP011", "y.backward()")


def test_nothing_gains_from_a_loss_of_a_parameter_alone() -> None:
    source = (
        f"{HEAD}w = torch.ones(1, requires_grad=True, device=device)\n"
        "optimizer = torch.optim.SGD([w], lr=0.1)\nfor x, y in data:\n"
        "    x = x.to(device)\n    optimizer.zero_grad()\n    loss = (w * x).mean()\n"
        "    loss.backward()\n    optimizer.step()\n"
    )
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP033"


def test_a_scheduler_beside_an_optimizer_is_none() -> None:
    source = (
        f"{HEAD}{MODEL}from lib import optimizer_state\n"
        + STEPPED.split("\n", 1)[1]
        + "    optimizer_state['scheduler'].step()\n"
    )
    assert judged(source) == "plain"


def test_an_optimizer_that_is_given_to_what_is_looked_up() -> None:
    source = (
        f"{HEAD}{MODEL}import lib\nwarm = getattr(lib, 'warm')(optimizer)\n"
        + STEPPED.split("\n", 1)[1]
    )
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert "handed to a function that is looked up, which" in found.message


UNDER_A_KEY = {
    # name: (how the state is made, what becomes of it)
    "written out": ('state = {"model": model, "opt": OPT}\n', "unscaled"),
    "by a keyword": ("state = dict(model=model, opt=OPT)\n", "unscaled"),
    "put there later": (
        'state = OrderedDict()\nstate["model"] = model\nstate["opt"] = OPT\n',
        "unscaled",
    ),
    "by an update": (
        "state = {}\nstate.update(model=model)\nstate.update({'opt': OPT})\n",
        "unscaled",
    ),
    "handed through": (
        "def same(state, n):\n    print(n)\n    return state, n\n"
        'state = {"model": model, "opt": OPT}\nstate, _ = same(state, 3)\n',
        "unscaled",
    ),
    "handed through a name of its own": (
        "def same(state, n):\n    print(n)\n    return state, n\n"
        'state = {"model": model, "opt": OPT}\nboth = same(state, 3)\n',
        "AMP012",
    ),
    # Another optimizer, or another model, may take its place.
    "by an update with something else": (
        'other = {"opt": torch.optim.SGD([torch.ones(1)], 1.0)}\n'
        'state = {"model": model, "opt": OPT}\nstate.update(other)\n',
        "AMP012",
    ),
    "another model under its key": (
        'state = {"model": model, "opt": OPT}\n'
        'state["model"] = nn.Linear(8, 3).to(device)\n',
        "AMP030",
    ),
    "handed through, or made anew": (
        "def same(state, n):\n    return state if n else {}\n"
        'state = {"model": model, "opt": OPT}\nstate = same(state, 3)\n',
        "AMP012",
    ),
    "by a key that is put together": (
        'state = {"model": model}\nkey = "opt" + str(len(data))\nstate[key] = OPT\n'
        "state['opt'] = state[key]\n",
        "AMP010",
    ),
    "in somebody else's": ("from lib import state\n", "AMP010"),
}


@pytest.mark.parametrize("name", UNDER_A_KEY)
def test_one_optimizer_under_a_key(name: str) -> None:
    setup, expected = UNDER_A_KEY[name]
    opt = "torch.optim.SGD(model.parameters(), lr=0.1)"
    clipped = "model" if name == "handed through" else "state['model']"
    source = (
        f"from collections import OrderedDict\n{HEAD}model = nn.Linear(8, 3).to(device)\n"
        f"{setup.replace('OPT', opt)}for x, y in data:\n"
        "    x, y = x.to(device), y.to(device)\n    state['opt'].zero_grad()\n"
        "    loss = criterion(state['model'](x), y)\n    loss.backward()\n"
        f"    torch.nn.utils.clip_grad_norm_({clipped}.parameters(), 1.0)\n"
        "    state['opt'].step()\n"
    )
    assert judged(source) == expected
    if expected == "unscaled":
        output = migrate_source(source).output
        assert check_off(source, output) == []
        assert check_scaled(source, output) == []


NOT_FOLLOWED = {
    "a key of a parameter that nothing gives": (
        "def update(state, model, x, y):\n    x, y = x.to(device), y.to(device)\n"
        "    state['opt'].zero_grad()\n    loss = criterion(model(x), y)\n"
        "    loss.backward()\n    state['opt'].step()\n",
        "state is a parameter of update(), which nothing calls",
    ),
    "put into the collection that it comes out of": (
        "def train(held):\n    for opt, name in held:\n        held[name, opt] = opt\n"
        "    for x, y in data:\n        opt.zero_grad()\n"
        "        criterion(model(x.to(device)), y.to(device)).backward()\n"
        "        opt.step()\n\n\nmodel = nn.Linear(8, 3).to(device)\ntrain(sys.path)\n",
        "the optimizer comes out of a collection that is not written out",
    ),
}


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_why_what_is_kept_in_a_collection_is_not_followed(name: str) -> None:
    text, reason = NOT_FOLLOWED[name]
    (found,) = migrate_source(HEAD + text, path="train.py").diagnostics
    assert found.code == "AMP010"
    assert reason in found.message


ON_THE_CPU = {
    # name: (lines before the model, lines that make the loss, code)
    "an array": ("", "loss = criterion(model(x), y)\nprint(model(x).detach().numpy())", "AMP005"),
    "a hazard": ("", "loss = torch.linalg.det(model(x)[:3]) + 0 * y.sum()", "AMP005"),
    "another default": (
        "torch.set_default_dtype(torch.float64)\n",
        "loss = criterion(model(x), y)",
        "AMP005",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_on_the_cpu_that_is_the_reason(name: str) -> None:
    setup, loss, code = ON_THE_CPU[name]
    source = (
        "import torch\nimport torch.nn as nn\n"
        "data = [(torch.randn(4, 8), torch.randint(0, 3, (4,)))]\n"
        f"criterion = nn.CrossEntropyLoss()\n{setup}model = nn.Linear(8, 3)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in data:\n"
        f"    optimizer.zero_grad()\n{indent(loss, '    ')}\n    loss.backward()\n"
        "    optimizer.step()\n"
    )
    assert judged(source) == code


TOY = """\
w = torch.tensor([2.0], requires_grad=True)
out = torch.sigmoid(w * torch.ones(1))
loss = F.binary_cross_entropy(out, torch.ones(1))
loss.backward()
print(w.grad)
"""
BESIDE_A_TOY = {
    # name: (the toy, the model and the optimizer, migrates)
    "of its own tensors": (TOY, MODEL, True),
    "held by the optimizer": (
        TOY,
        MODEL.replace("model.parameters()", "[*model.parameters(), w]"),
        False,
    ),
    "held by the optimizer, in a list": (
        TOY + "held = []\nheld.append(w)\n",
        MODEL.replace("model.parameters()", "held"),
        False,
    ),
    "a part of the model": (
        MODEL + TOY.replace("torch.tensor([2.0], requires_grad=True)", "model.weight[0, 0]"),
        MODEL.split("\n", 1)[1],
        False,
    ),
    "the model's": (
        MODEL + TOY.replace("torch.sigmoid(w * torch.ones(1))", "model(torch.ones(8))[:1] ** 2 * 0"),
        MODEL.split("\n", 1)[1],
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE_A_TOY)
def test_a_toy_beside_a_loop(name: str) -> None:
    toy, model, migrates = BESIDE_A_TOY[name]
    source = HEAD + toy + model + STEPPED.split("\n", 1)[1]
    result = migrate_source(source, path="train.py")
    codes = [found.code for found in result.diagnostics]
    assert result.changed is migrates
    assert not migrates or codes == ["AMP011"]
    if migrates:
        assert check_off(source, result.output) == []


def test_beside_apex_a_scaler_of_torch_is_no_apex() -> None:
    """A file may offer both, one class for each."""
    source = """\
import torch
try:
    from apex import amp
except ImportError:
    amp = None

class Apex:
    def __call__(self, loss, optimizer):
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

class Native:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer):
        self._scaler.scale(loss).backward()
        self._scaler.step(optimizer)
        self._scaler.update()
"""
    found = migrate_source(source, path="train.py").loops
    assert [loop.diagnostic.code for loop in found if loop.diagnostic] == [
        "AMP002",
        "AMP001",
    ]


ATTACK = """\
def attack(model, x):
    x = x.clone().requires_grad_()
    loss = model(x).pow(2).mean()
    loss.backward()
    return (x + x.grad.sign()).detach()

def train(model, optimizer, scaler, x):
    x = attack(model, x)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
BESIDE_A_SCALER = {
    "an attack on the inputs": (ATTACK, "AMP011"),
    "an attack under autocast": (
        ATTACK.replace("    x = attack(model, x)\n", "").replace(
            "        loss = model(x).", "        x = attack(model, x)\n        loss = model(x)."
        ),
        "AMP001",
    ),
    "gradients of the parameters": (
        ATTACK.replace(
            "    return (x + x.grad.sign()).detach()",
            "    for p in model.parameters():\n        p.grad.clamp_(-1, 1)",
        ),
        "AMP001",
    ),
    "a loss of the caller's": (
        ATTACK.replace("model(x).pow(2).mean()\n    loss.b", "x.sum()\n    model.b"),
        "AMP001",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE_A_SCALER)
def test_what_a_function_with_a_scaler_calls(name: str) -> None:
    source, code = BESIDE_A_SCALER[name]
    source = HEAD + source + MODEL
    source += (
        "train(model, optimizer, torch.amp.GradScaler('cuda'), data[0][0].to(device))\n"
    )
    result = migrate_source(source, path="train.py")
    codes = [loop.diagnostic.code for loop in result.loops if loop.diagnostic]
    assert not result.changed
    assert codes[0] == code


CALLED_BY_NAME = {
    # name: (what is called, what is said)
    "one of several": (
        "ALGORITHMS[sys.argv[1]]().update(x, y, optimizer)",
        "not known",
    ),
}


@pytest.mark.parametrize("name", CALLED_BY_NAME)
def test_a_method_that_is_called_by_its_name_alone(name: str) -> None:
    call, words = CALLED_BY_NAME[name]
    source = (
        f"{HEAD}class Plain:\n    def __init__(self):\n"
        "        self.model = nn.Linear(8, 3).to(device)\n\n"
        "    def update(self, x, y, opt):\n        opt.zero_grad()\n"
        "        loss = criterion(self.model(x.to(device)), y.to(device))\n"
        "        loss.backward()\n        opt.step()\n\n"
        "from lib import ALGORITHMS\n"
        f"{MODEL}for x, y in data:\n    {call}\n"
    )
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP010"
    assert words in found.message


KEPT = HEAD + """\
class Trainer:
    def __init__(self, net, optimizer):
        self.net, self.optimizer, self.loss = net, optimizer, None
    def judge(self, y):
        self.loss = criterion(self.out, y)
    def train(self, x, y):
        self.optimizer.zero_grad()
        self.out = self.net(x)
        self.judge(y)
        self.loss.backward()
        self.optimizer.step()
"""
MADE_OUT_OF_SIGHT = {
    "a loss that a method sets": (
        KEPT.replace("self.out = self.net(x)", "fill(self, x)")
        + "from helpers import fill\n"
        + MODEL
        + "Trainer(model, optimizer).train(*data[0])\n",
        "AMP033",
        "self.loss is set by judge()",
    ),
    "a trainer of a class that is handed on": (
        KEPT.replace("self.judge(y)", "self.loss = criterion(self.out, y)")
        + "from helpers import run\nrun(Trainer)\n",
        "AMP010",
        "a parameter of Trainer(), and nothing that was read makes one: the class is used",
    ),
}


@pytest.mark.parametrize("name", MADE_OUT_OF_SIGHT)
def test_what_is_made_out_of_sight_is_named(name: str) -> None:
    source, code, words = MADE_OUT_OF_SIGHT[name]
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == code
    assert words in found.message


STRANGERS = {
    "another": ("teacher = nn.Linear(8, 3).to(device)", "teacher(x)", False),
    "a part of it": ("inner = model.body", "inner(x)", True),
    "a whole around it": ("outer = nn.Sequential(model)", "outer(x)", True),
    "wrapped": ("wrapped = nn.DataParallel(model)", "wrapped(x)", True),
    "handed back": (
        "def same(net):\n    return net\nsame_model = same(model)",
        "same_model(x)",
        True,
    ),
    "in a function": ("def run(x):\n    return model(x)", "run(x)", True),
    "both": ("teacher = nn.Linear(8, 3).to(device)", "model(x) + teacher(x)", True),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_lone_optimizer_of_another_model(name: str) -> None:
    """The original trains nothing; a scaler would raise, since it sees no gradients."""
    setup, forward, migrates = STRANGERS[name]
    source = (
        f"{HEAD}class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(8, 3)\n"
        "    def forward(self, x):\n        return self.body(x)\n"
        f"model = Net().to(device)\n{setup}\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nfor x, y in data:\n"
        "    x, y = x.to(device), y.to(device)\n    optimizer.zero_grad()\n"
        f"    loss = criterion({forward}, y)\n    loss.backward()\n    optimizer.step()\n"
    )
    found = [
        (d.code, d.message) for d in migrate_source(source, path="t.py").diagnostics
    ]
    message = "the optimizer is given other modules than this loss is made with"
    assert bool(found) != migrates
    assert migrates or (found[0][0] == "AMP011" and message in found[0][1])


def test_the_same_reason_in_each_run(tmp_path: Path) -> None:
    """Of several optimizers that are not followed, it is always the same that is told."""
    names = ("opt_c", "opt_a", "opt_b")
    births = "".join(f"{n} = config.{n}(model.parameters())\n" for n in names)
    zeros, steps = (
        "".join(f"{n}.{does}()\n" for n in names) for does in ("zero_grad", "step")
    )
    turn = f"{zeros}loss = criterion(model(x), y)\nloss.backward()\n{steps}"
    body = f"{births}for x, y in data:\n{indent(turn, '    ')}"
    (tmp_path / "train.py").write_text(
        f"{HEAD}model = nn.Linear(8, 3).to(device)\n"
        f"def train(config):\n{indent(body, '    ')}"
    )
    assert "AMP010" in _told_in_each_run(tmp_path)


def test_the_same_function_in_each_run(tmp_path: Path) -> None:
    """Of several functions that a call may run, it is always the same whose hazard is told."""
    runs = "".join(
        f"if args.run == {n}:\n    def run(x):\n        return x + 1e3{n}\n"
        for n in range(4)
    )
    turn = (
        "optimizer.zero_grad()\nloss = criterion(checkpoint(run, model(x)), y)\n"
        "loss.backward()\noptimizer.step()\n"
    )
    (tmp_path / "train.py").write_text(
        f"{HEAD}from torch.utils.checkpoint import checkpoint\n{runs}"
        "model = nn.Linear(8, 3).to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"for x, y in data:\n{indent(turn, '    ')}"
    )
    assert "AMP021" in _told_in_each_run(tmp_path)


def _told_in_each_run(path: Path) -> str:
    told = {
        subprocess.run(
            [sys.executable, "-m", "amp_migrate", "--check", str(path)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
        ).stderr
        for seed in range(4)
    }
    assert len(told) == 1
    return told.pop()


def test_what_runs_the_step_may_be_run_by_it() -> None:
    engine = """\
class Engine:
    def __init__(self, step):
        self.step = step
    def run(self, batches, again=True):
        for batch in batches:
            self.step(batch)
        if again:
            self.run(batches, False)
def train(batch):
    optimizer.zero_grad()
    criterion(model(batch[0]), batch[1]).backward()
    optimizer.step()
engine = Engine(train)
"""
    source = script(after="engine.run([(x, y)])\n", setup=engine)
    assert migrate_source(source, path="t.py").diagnostics == ()


def test_what_wraps_the_step_is_not_what_it_wraps() -> None:
    """Though one variable stands for both, one after the other."""
    wrapped = """\
class Plain:
    def run(self, batch):
        optimizer.zero_grad()
        criterion(model(batch[0]), batch[1]).backward()
        optimizer.step()
class Doubling:
    def __init__(self, inner):
        self.inner = inner
    def run(self, batch):
        self.inner.run((batch[0] * 2, batch[1]))
runner = Plain()
runner = Doubling(runner)
"""
    source = script(after="runner.run((x, y))\n", setup=wrapped)
    result = migrate_source(source, path="train.py")
    assert result.diagnostics == ()
    assert result.output.count("scaler.step(optimizer)") == 2
    # One in another: which of them an inner one is, is not told apart.
    twice = source.replace(
        "runner = Doubling(runner)\n", "runner = Doubling(runner)\n" * 2
    )
    assert migrate_source(twice, path="t.py").diagnostics == ()
