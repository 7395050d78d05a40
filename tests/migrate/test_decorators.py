"""Functions that a decorator of one's own stands around: one that only calls them changes nothing."""

from __future__ import annotations

import pytest
from exactness import check_off, check_scaled
from half_support import check_runs
from programs import HEAD

from amp_migrate.api import migrate_source

BODY = """\
import functools

{decorator}

@{name}
def make_optimizer(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)


@{name}
def epoch(net, opt):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
    return loss.item()


opt = make_optimizer(model)
for _ in range(3):
    print(epoch(model, opt))
"""


def wrapper(inside: str, before: str = "", after: str = "") -> str:
    lines = "".join(f"        {line}\n" for line in inside.splitlines())
    return (
        f"def around(fn):\n{before}    def inner(*args, **kwargs):\n{lines}"
        f"{after}    return inner\n"
    )


CALL = "fn(*args, **kwargs)"
PLAIN = {
    "a call": wrapper(f"return {CALL}"),
    "wraps": wrapper(
        f"print(fn.__name__)\nreturn {CALL}", "    @functools.wraps(fn)\n"
    ),
    "a result": wrapper(f"result = {CALL}\nprint('done')\nreturn result"),
    "finally": wrapper(
        f"try:\n    return {CALL}\nfinally:\n    inner.calls += 1",
        after="    inner.calls = 0\n",
    ),
    "made": "def named(name):\n    print(name)\n"
    + "".join(f"    {line}\n" for line in wrapper(f"return {CALL}").splitlines())
    + "    return around\n",
}
OTHERS = {
    "again": wrapper(f"for _ in range(2):\n    result = {CALL}\nreturn result"),
    "twice": wrapper(f"{CALL}\nreturn {CALL}"),
    "perhaps": wrapper(f"if len(data) > 3:\n    return {CALL}"),
    "a handler": wrapper(
        f"try:\n    return {CALL}\nexcept RuntimeError:\n    return None"
    ),
    "other arguments": wrapper("return fn(*args[:2], **kwargs)"),
    "more arguments": wrapper(f"kwargs.pop('scaler', 0)\nreturn {CALL}"),
    "another result": wrapper(f"return [{CALL}][0]"),
    "a changed result": wrapper(f"result = {CALL}\nprint(result)\nreturn result"),
    "a context": wrapper(f"with torch.enable_grad():\n    return {CALL}"),
    "no gradients": wrapper(
        f"torch.set_grad_enabled(True)\nresult = {CALL}\nreturn result"
    ),
    "kept": "kept = []\n" + wrapper(f"return {CALL}", "    kept.append(fn)\n"),
    "fewer parameters": "def around(fn):\n    def inner(*args):\n"
    "        return fn(*args)\n    return inner\n",
    "a choice": "def around(fn):\n    def inner(*args, **kwargs):\n        return fn(*args, **kwargs)\n"
    "    return inner if len(data) else fn\n",
}


def written(decorator: str) -> str:
    name = "named('n')" if decorator.startswith("def named") else "around"
    return HEAD + BODY.format(decorator=decorator, name=name)


@pytest.mark.parametrize("name", PLAIN)
def test_one_that_only_calls(name: str) -> None:
    source = written(PLAIN[name])
    result = migrate_source(source)
    assert result.diagnostics == ()
    assert "print(epoch(model, opt, scaler=scaler))" in result.output
    assert check_off(source, result.output) == []
    assert check_scaled(source, result.output) == []


@pytest.mark.parametrize("name", OTHERS)
def test_one_that_does_more(name: str) -> None:
    source = written(OTHERS[name])
    result = migrate_source(source)
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP010"]


MARKED = """\
def marked(fn):
    def inner(*args):
        {inside}
    setattr(inner, "marked", True)
    return inner


@marked
def clip():
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    clip()
    opt.step()
"""


def test_what_is_handed_its_own_function() -> None:
    source = HEAD + MARKED.format(inside="return fn(*args)")
    result = migrate_source(source, path="train.py")
    assert not result.diagnostics
    assert "    scaler.unscale_(opt)\n    clip()" in result.output
    touching = MARKED.format(inside="print(model[0].weight.grad)\n        fn(*args)")
    (found,) = migrate_source(HEAD + touching, path="train.py").diagnostics
    assert found.code == "AMP034"


_HIDE = "masked_fill(x > 0, -1e9).clamp(min=-9)"
_RUN = f"def {{name}}(self, x):\n        return {{inner}}.{_HIDE}"
_PLAIN_NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def BODY
"""
_FORWARD = "forward(self, x):\n        return self.fc(x)"
_MASKED = f"def masked(f):\n    {_RUN.format(name='run', inner='f(self, x)')}\n    return run\n"
AROUND_FORWARD = {
    "a decorator": _MASKED
    + _PLAIN_NET.replace("def BODY", f"@masked\n    def {_FORWARD}"),
    "a decorator that is made": "def made(low):\n"
    + "".join(f"    {line}\n" for line in _MASKED.splitlines())
    + "    return masked\n"
    + _PLAIN_NET.replace("def BODY", f"@made(-1e9)\n    def {_FORWARD}"),
    "a decorator of the class": "def masked(cls):\n    plain = cls.forward\n    "
    + _RUN.format(name="forward", inner="plain(self, x)")
    + "\n    cls.forward = forward\n    return cls\n@masked\n"
    + _PLAIN_NET.replace("BODY", _FORWARD),
    "a class that it derives": "def masked(cls):\n    class Masked(cls):\n        "
    + _RUN.format(name="forward", inner="super().forward(x)").replace("\n", "\n    ")
    + "\n    return Masked\n@masked\n"
    + _PLAIN_NET.replace("BODY", _FORWARD),
    "a function for a method": f"def run(self, x):\n    return self.fc(x).{_HIDE}\n"
    + _PLAIN_NET.replace("def BODY", "forward = run"),
    "a method of another class": f"class Base:\n    def run(self, x):\n        return self.fc(x).{_HIDE}\n"
    + _PLAIN_NET.replace("def BODY", "forward = Base.run"),
    "a function that is wrapped": _MASKED
    + _PLAIN_NET.replace("BODY", _FORWARD.replace("forward", "run"))
    + "    forward = masked(run)\n",
}
_LOOP = """\
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.randn(4, 8), torch.randn(4, 8)) for _ in range(3)]:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
_TOP = (
    "import torch\nimport torch.nn as nn\ntorch.manual_seed(0)\n"
    'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
)


@pytest.mark.parametrize("name", AROUND_FORWARD)
def test_what_is_put_around_a_forward_runs_in_half_precision(name: str) -> None:
    source = _TOP + AROUND_FORWARD[name] + _LOOP
    result = migrate_source(source, path="train.py")
    if result.changed:
        check_runs(source, result.output)
    else:
        assert [found.code for found in result.diagnostics] == ["AMP021"]


@pytest.mark.parametrize("where", ["    KEEP\n    loss =", "    loss ="])
def test_what_a_decorator_makes_of_a_result_may_be_half(where: str) -> None:
    made = (
        "def headed(f):\n    def run(x):\n        return model(f(x))\n    return run\n"
        "@headed\ndef features(x):\n    return norm(x)\nclass Net(nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(8, 8)\nnorm = nn.LayerNorm(8).to(device)\n"
        "kept = torch.zeros(4, 8).to(device)\n"
    )
    keep = "kept[torch.tensor([0, 1])] = h.detach()[:2]"
    loop = _LOOP.replace("    loss =", f"    h = features(x)\n{where}", 1)
    loop = loop.replace("KEEP", keep).replace("(model(x) - y)", "(h - y)")
    source = _TOP + made + loop + (f"    {keep}\n" if "KEEP" not in where else "")
    result = migrate_source(source, path="train.py")
    assert "= h.detach()[:2].to(kept.dtype)" in result.output
    check_runs(source, result.output)
