"""Functions that a decorator of one's own stands around: one that only calls them changes nothing."""

from __future__ import annotations

import pytest
from exactness import check_off, check_scaled
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
