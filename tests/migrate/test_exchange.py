"""Gradients that are exchanged between processes by hand, or seen by hooks, while they are scaled."""

from __future__ import annotations

from textwrap import indent

import pytest
from half_support import check_runs
from programs import HEAD, left_alone, migrated

from amp_migrate.api import migrate_source

START = (
    "import torch.distributed as dist\n"
    "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
)
LOOP = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
"""
AVERAGE = """\
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad = p.grad / dist.get_world_size()
"""
CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
STEP = "    opt.step()\n"


def test_averages_are_taken_of_scaled_gradients() -> None:
    found = migrated(START + LOOP + AVERAGE + CLIP + STEP)
    assert found.endswith(
        "    scaler.scale(loss).backward()\n"
        + AVERAGE
        + "    scaler.unscale_(opt)\n"
        + CLIP
        + "    scaler.step(opt)\n    scaler.update()\n"
    )


LISTED = """\
    grads = []
    for p in model.parameters():
        if p.grad is not None:
            grads.append(p.grad.view(-1))
    flat = torch.cat(grads)
"""
COMPREHENDED = """\
    grads = [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]
    flat = torch.cat(grads)
"""
REDUCED = """\
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
"""
BACK = """\
    offset = 0
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.copy_(flat[offset : offset + p.numel()].view_as(p.grad.data) / dist.get_world_size())
            offset += p.numel()
"""
DIVIDED = "    flat /= dist.get_world_size()\n"
IN_ONE_PIECE = {
    "listed": LISTED + REDUCED + BACK,
    "in a comprehension": COMPREHENDED
    + REDUCED
    + DIVIDED
    + BACK.replace(" / dist.get_world_size()", ""),
    "in the call": REDUCED.join(
        ("    flat = torch.cat([p.grad.view(-1) for p in model.parameters()])\n", BACK)
    ),
    "where there are several processes": "    if dist.get_world_size() > 0:\n"
    + indent(LISTED + REDUCED + BACK, "    "),
}


@pytest.mark.parametrize("name", IN_ONE_PIECE)
def test_all_are_exchanged_in_one_piece(name: str) -> None:
    start = (
        START
        + 'dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)\n'
    )
    source = (
        start + LOOP + IN_ONE_PIECE[name] + CLIP + STEP + "    print(loss.item())\n"
    )
    output = migrated(source)
    assert output.endswith(
        "    scaler.scale(loss).backward()\n"
        + IN_ONE_PIECE[name]
        + "    scaler.unscale_(opt)\n"
        + CLIP
        + "    scaler.step(opt)\n    scaler.update()\n    print(loss.item())\n"
    )
    check_runs(HEAD + source, HEAD + output)


def test_a_loss_is_exchanged_as_ever() -> None:
    assert migrated(START + LOOP + CLIP + "    dist.all_reduce(loss)\n" + STEP)


EXCHANGES = {
    "after a clip": CLIP + AVERAGE,
    "the largest": "    for p in model.parameters():\n"
    "        dist.all_reduce(p.grad, op=dist.ReduceOp.PRODUCT)\n",
    "in one piece": "    flat = torch.cat([p.grad.view(-1) for p in model.parameters()])\n"
    "    dist.all_reduce(flat)\n"
    "    model[0].weight.grad.copy_(flat[:128].view(16, 8))\n",
    "some of them are copied back": LISTED
    + REDUCED
    + BACK.replace("if p.grad is not None", "if p.ndim > 1"),
    "some of them are left out by a jump": LISTED
    + REDUCED
    + BACK.replace(
        "        if p.grad",
        "        if p.ndim > 1:\n            continue\n        if p.grad",
    ),
    "others than were laid side by side": LISTED
    + REDUCED
    + BACK.replace("model.", "model[0]."),
    "looked at while in one piece": LISTED
    + "    print(flat.norm())\n"
    + REDUCED
    + BACK,
    "clipped while in one piece": LISTED + REDUCED + "    flat.clamp_(-1, 1)\n" + BACK,
    "the largest, in one piece": LISTED + REDUCED.replace("SUM", "MAX") + BACK,
    "from parameters that are gone through once": "    params = model.parameters()\n"
    + (LISTED + REDUCED + BACK).replace("model.parameters()", "params"),
    "after a clip, in one piece": CLIP + LISTED + REDUCED + BACK,
    "by a function that knows tensors": "    for p in model.parameters():\n"
    "        p.grad = mean(p.grad)\n",
    "by somebody else's function": "    average_gradients(model)\n",
}
HELPERS = """\
from elsewhere import average_gradients
def mean(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()
"""


@pytest.mark.parametrize("name", EXCHANGES)
def test_other_exchanges_are_left_alone(name: str) -> None:
    body = START + HELPERS + LOOP + EXCHANGES[name] + STEP
    assert left_alone(body) == "AMP030"
    (found,) = migrate_source(HEAD + body).diagnostics
    assert "exchanged between processes" in found.message


HOOKS = {
    "lambda grad: grad * 0.5": True,
    "lambda grad: 2 * grad": True,
    "lambda grad: grad / factor": True,
    "lambda grad: -grad": True,
    "lambda grad: grad.mul(0.1)": True,
    "lambda grad: -factor * grad.clone()": True,
    "lambda grad: grad * rate(7)": True,
    "half_of": True,
    "masked": True,
    "chosen": False,
    "set_to_one": False,
    "reverse(float(np.exp(-factor)))": True,
    "reverse(mask)": False,
    "reverse(grown)": False,
    "clipped": False,
    "lambda grad: grad * mask": False,
    "lambda grad: grad + 0.5": False,
    "lambda grad: grad * grad": False,
    "lambda grad: grad.clamp(-1, 1)": False,
    "lambda grad: 1 / grad": False,
    "print": False,
}


_MAKERS = """\
import numpy as np
grown = 2
grown *= mask
def rate(n, top=1.0):
    return float(2.0 * top / (1.0 + np.exp(-n / 10)) - top)
def reverse(rate):
    def turned(grad):
        return -rate * grad.clone()
    return turned
def half_of(grad):
    return grad.mul(0.5)
def masked(grad, first=factor):
    'Some get none.'
    grad = grad.clone()
    grad[first:] = 0
    return grad * 0.5
def chosen(grad):
    grad[grad > 1] = 0
    return grad
def set_to_one(grad):
    grad[0] = 1
    return grad
def clipped(grad):
    grad = grad.clamp(-1, 1)
    return grad * 0.5
"""


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks(hook: str) -> None:
    body = (
        f"{START}factor = 4\nmask = torch.ones(16, 8)\n{_MAKERS}"
        f"model[0].weight.register_hook({hook})\n{LOOP}{STEP}"
    )
    if HOOKS[hook]:
        assert f"model[0].weight.register_hook({hook})\n" in migrated(body)
    else:
        assert left_alone(body) == "AMP024"


BLIND = {
    "self.kept = None": True,
    "self.kept, self.turns = None, self.turns + 1": True,
    "self.kept = None\n        return None": True,
    "self.kept = given": True,
    "self.kept = given + self.kept": False,
    "return None if self.kept is None else given[0]": False,
    "self.kept = self.layer.weight.grad": False,
    "self.look()": False,
    "yield self.kept": False,
}


@pytest.mark.parametrize("does", BLIND)
def test_a_hook_that_does_not_look_at_gradients(does: str) -> None:
    holder = f"""\
class Holder:
    def __init__(self, layer):
        self.layer, self.kept, self.turns = layer, None, 0
        layer.register_full_backward_hook(self.clear)
    def look(self):
        print(self.layer.weight.grad)
    def clear(self, *given):
        {does}
"""
    body = f"{START}{holder}holder = Holder(model[0])\n{LOOP}{STEP}"
    if BLIND[does]:
        assert holder in migrated(body)
    else:
        assert left_alone(body) == "AMP024"


@pytest.mark.parametrize(
    ("watch", "sees"),
    [
        ("wandb.watch(model)", True),
        ('wandb.watch(model, log="all")', True),
        ('wandb.watch(model, criterion, "gradients")', True),
        ('wandb.watch(model, log="parameters")', False),
        ("wandb.watch(model, log=None)", False),
    ],
)
def test_a_logger_of_gradients(watch: str, sees: bool) -> None:
    body = f"import wandb\n{START}{watch}\n{LOOP}{STEP}"
    if sees:
        assert left_alone(body) == "AMP024"
    else:
        assert migrated(body)
