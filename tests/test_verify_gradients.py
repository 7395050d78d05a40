"""The last check before writing, on gradients that are given a scale and lose it again."""

from __future__ import annotations

import pytest

from amp_migrate.edit.verify import difference

BEFORE = """\
import torch
from torch.autograd import grad as take
from net import criterion, data, model, used

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    grads = torch.autograd.grad(outputs=loss, inputs=model.parameters(), create_graph=True)
    a, b = take(loss, used, create_graph=True)
    if len(y) > 2:
        c = take(loss, used, create_graph=True)[0]
    loss = loss + sum(g.pow(2).sum() for g in grads) + a.norm() + b.norm()
    loss.backward()
    optimizer.step()
"""
AFTER = """\
import torch
from torch.autograd import grad as take
from net import criterion, data, model, used

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())
for x, y in data:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = criterion(model(x), y)
    grads = torch.autograd.grad(outputs=scaler.scale(loss), inputs=model.parameters(), create_graph=True)
    inv_scale = 1.0 / scaler.get_scale()
    grads = [g * inv_scale for g in grads]
    a, b = take(scaler.scale(loss), used, create_graph=True)
    inv_scale = 1.0 / scaler.get_scale()
    a = a * inv_scale
    b = b * inv_scale
    if len(y) > 2:
        c = take(scaler.scale(loss), used, create_graph=True)[0]
        inv_scale = 1.0 / scaler.get_scale()
        c = c * inv_scale
    loss = loss + sum(g.pow(2).sum() for g in grads) + a.norm() + b.norm()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
DIVIDED = "    grads = [g * inv_scale for g in grads]\n"
INVERSE = "    inv_scale = 1.0 / scaler.get_scale()\n"


def test_a_right_rewrite_passes() -> None:
    assert difference(BEFORE, AFTER) is None
    assert difference(AFTER, AFTER) is None


def test_a_tuple_stays_one() -> None:
    tuples = "    grads = tuple(g * inv_scale for g in grads)\n"
    assert difference(BEFORE, AFTER.replace(DIVIDED, tuples)) is None


WRONG = {
    "the scale stays": (INVERSE + DIVIDED, ""),
    "the scale stays in one": ("    b = b * inv_scale\n", ""),
    "the scale stays under a condition": ("        c = c * inv_scale\n", ""),
    "no scale": ("outputs=scaler.scale(loss)", "outputs=loss"),
    "not divided": ("[g * inv_scale for", "[g for"),
    "divided again": ("[g * inv_scale for", "[g / inv_scale for"),
    "divided by another": ("    grads = [g * inv_scale", "    grads = [g * inv_scale2"),
    "some are left out": ("for g in grads]\n", "for g in grads if g is not None]\n"),
    "a set": (DIVIDED, "    grads = {g * inv_scale for g in grads}\n"),
    "a generator": (DIVIDED, "    grads = (g * inv_scale for g in grads)\n"),
    "another inverse": (INVERSE + DIVIDED, INVERSE.replace("1.0", "2.0") + DIVIDED),
    "no inverse": (INVERSE + DIVIDED, "    inv_scale = scaler.get_scale()\n" + DIVIDED),
    "the scale of another": (INVERSE + DIVIDED, INVERSE.replace("scaler", "other") + DIVIDED),
    "too late": (INVERSE + DIVIDED, "    print(grads)\n" + INVERSE + DIVIDED),
    "twice": (DIVIDED, DIVIDED + DIVIDED),
    "a name that is used": ("inv_scale", "used"),
    "another variable": (DIVIDED, "    others = [g * inv_scale for g in grads]\n"),
    "the wrong kind": (DIVIDED, "    grads = grads * inv_scale\n"),
    "something else scaled": ("used, create_graph=True)[0]", "scaler.scale(used), create_graph=True)[0]"),
    "a loss that is shown": ("criterion(model(x), y)", "scaler.scale(criterion(model(x), y))"),
    "a penalty of its own": ("+ a.norm()", "+ scaler.scale(a.norm())"),
    "another function": ("torch.autograd.grad(", "torch.autograd.grads("),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_caught(name: str) -> None:
    old, new = WRONG[name]
    assert old in AFTER
    before, after = BEFORE, AFTER.replace(old, new)
    if name == "another function":
        before = BEFORE.replace(old, new)
    assert difference(before, after) is not None


def test_gradients_that_were_scaled_stay_so() -> None:
    """What the input does by hand is none of what is taken out of it."""
    lost = AFTER.replace(INVERSE + DIVIDED, "")
    assert difference(AFTER, lost) is not None
