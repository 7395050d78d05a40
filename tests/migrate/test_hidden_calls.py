"""Gradients that are touched where no call names the function: callbacks, context managers, decorators."""

from __future__ import annotations

from pathlib import Path

import pytest
from exactness import MOVING_SCALES, check_off, check_scaled
from programs import HEAD, left_alone, migrated

from amp_migrate.api import migrate_paths, migrate_source

LOOP = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    CALL
    opt.step()
    print(loss.item())
"""
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
TRAINER = """\
class Clip:
    def before_step(self, trainer):
        nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.1)
class Quiet:
    def before_step(self, trainer):
        pass
class Trainer:
    def __init__(self, model, hooks):
        self.model, self.hooks = model, hooks
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def call(self, name):
        for hook in self.hooks:
            CALL
    def fit(self):
        for x, y in data:
            self.opt.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            self.call("before_step")
            self.opt.step()
            print(loss.item())
Trainer(model, [Quiet(), Clip()]).fit()
"""
MANAGED = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    with CALL:
        loss = criterion(model(x), y)
        loss.backward()
    opt.step()
    print(loss.item())
"""
MANAGER = """\
class Norms:
    def __init__(self, net):
        self.net = net
    def __enter__(self):
        return self
    def __exit__(self, *error):
        print(sum(p.grad.norm().item() for p in self.net.parameters()))
"""
METER = """\
class Meter:
    def __init__(self, net):
        self.net = net
    def norm(self):
        return sum(p.grad.norm().item() for p in self.net.parameters())
    def __iadd__(self, other):
        print(self.norm())
        return self
    def __rmul__(self, other):
        return other * self.norm()
    def __getitem__(self, key):
        return self.norm()
meter = Meter(model)
"""
EACH = """\
a = torch.optim.SGD(model[0].parameters(), lr=0.1)
b = torch.optim.Adam(model[2].parameters(), lr=0.01)
both = {"a": a, "b": b}
for i, (x, y) in enumerate(data):
    for opt in both.values():
        opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for name, opt in both.items():
        CALL
        opt.step()
    print(loss.item())
"""

MIGRATED = {
    "one of several by the type": "import functools\n@functools.singledispatch\n"
    "def clip(of):\n    pass\n@clip.register(nn.Module)\n"
    f"def _(of):\n    {CLIP}\n" + LOOP.replace("CALL", "clip(model)"),
    "one that is registered otherwise": "import functools\n@functools.singledispatch\n"
    f"def clip(of):\n    pass\ndef run(of):\n    {CLIP}\nclip.register(nn.Module, run)\n"
    + LOOP.replace("CALL", "clip(model)"),
    "a method of an unknown object": TRAINER.replace("CALL", "hook.before_step(self)"),
    "a method by its name": TRAINER.replace("CALL", "getattr(hook, name)(self)"),
    "a method that was asked for": TRAINER.replace(
        "CALL", "found = getattr(hook, name, None)\n            found and found(self)"
    ),
    "a method called as one of dicts": "class Meter:\n    def update(self, net):\n"
    "        print(sum(p.grad.norm().item() for p in net.parameters()))\n"
    'meters = {"norm": Meter()}\n'
    + LOOP.replace("CALL", 'meters["norm"].update(model)'),
    "a table of functions": f"def clip(limit):\n    {CLIP}\ndef none(limit):\n    pass\n"
    'ACTIONS = {"clip": clip, "none": none}\n'
    + LOOP.replace("CALL", 'ACTIONS["clip"](0.1)'),
    "a registry": "hooks = []\ndef hook(f):\n    hooks.append(f)\n    return f\n"
    f"@hook\ndef clip(limit):\n    {CLIP}\n"
    + LOOP.replace("CALL", "for one in hooks:\n        one(0.1)"),
    "a lambda that is kept": "class Hooks:\n    def __init__(self, after):\n"
    f"        self.after = after\nhooks = Hooks(lambda n: {CLIP})\n"
    + LOOP.replace("CALL", "hooks.after(1)"),
    "a generator that is entered": "import contextlib\n@contextlib.contextmanager\n"
    "def norms():\n    try:\n        yield\n    finally:\n"
    "        print(sum(p.grad.norm().item() for p in model.parameters()))\n"
    + MANAGED.replace("CALL", "norms()"),
    "an object that is made and entered": MANAGER
    + MANAGED.replace("CALL", "Norms(model)"),
    "an object that is entered": MANAGER
    + "norms = Norms(model)\n"
    + MANAGED.replace("CALL", "norms"),
    "a manager that clears and steps": "import contextlib\n@contextlib.contextmanager\n"
    f"def stepping(opt):\n    opt.zero_grad()\n    yield opt\n    {CLIP}\n    opt.step()\n"
    + MANAGED.replace("    opt.zero_grad()\n", "")
    .replace("    opt.step()\n", "")
    .replace("CALL", "stepping(opt) as o"),
    "a class of manager that steps": "class Stepping:\n    def __init__(self, opt):\n"
    "        self.opt = opt\n    def __enter__(self):\n        self.opt.zero_grad()\n"
    f"    def __exit__(self, *error):\n        {CLIP}\n        self.opt.step()\n"
    + MANAGED.replace("    opt.zero_grad()\n", "")
    .replace("    opt.step()\n", "")
    .replace("CALL", "Stepping(opt)"),
    "an operator in place": METER + LOOP.replace("CALL", "meter += 1"),
    "an operator, from the right": METER + LOOP.replace("CALL", "print(2 * meter)"),
    "an item": METER + LOOP.replace("CALL", 'print(meter["norm"])'),
    "each of some optimizers": EACH.replace(
        "CALL", 'nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 0.1)'
    ),
    "each group of each": EACH.replace(
        "CALL",
        "for group in opt.param_groups:\n"
        '            for p in group["params"]:\n                if p.grad is None:\n'
        "                    continue\n                p.grad.clamp_(-0.01, 0.01)",
    ),
    "each, sometimes": EACH.replace(
        "CALL",
        "if i > 1:\n"
        '            nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 0.1)',
    ),
    "a step in else, and one behind": "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for epoch in range(4):\n    opt.zero_grad()\n"
    "    for i, (x, y) in enumerate(data):\n        loss = criterion(model(x), y)\n"
    "        loss.backward()\n        if i == epoch and epoch > 1:\n            break\n"
    f"    else:\n        opt.step()\n        continue\n    {CLIP}\n    opt.step()\n"
    "    print(loss.item())\n",
    "a decorator that gives back another value": "def logged(f):\n    def inner(*args):\n"
    "        value = f(*args)\n        print(value)\n        return value\n    return inner\n"
    f"@logged\ndef limit():\n    return {CLIP}.item()\n"
    + LOOP.replace("CALL", "limit()"),
}

LEFT_ALONE = {
    "an operator whose operand has the gradients": (
        "AMP030",
        "class Meter:\n    def __iadd__(self, net):\n"
        "        print(sum(p.grad.norm().item() for p in net.parameters()))\n"
        "        return self\nmeter = Meter()\n"
        + LOOP.replace("CALL", "meter += model"),
    ),
    "a decorator that calls twice": (
        "AMP031",
        "def twice(f):\n    def inner():\n        f()\n        return f()\n    return inner\n"
        "@twice\ndef finish():\n    opt.step()\n"
        + LOOP.replace("opt.step()", "finish()").replace("    CALL\n", ""),
    ),
    "a decorator that clips": (
        "AMP034",
        "def clipped(f):\n    def inner(loss):\n        f(loss)\n"
        f"        {CLIP}\n    return inner\n@clipped\ndef back(loss):\n    loss.backward()\n"
        + LOOP.replace("loss.backward()", "back(loss)").replace("    CALL\n", ""),
    ),
    "each of optimizers without a name": (
        "AMP030",
        "nets = [nn.Linear(8, 3).to(device) for _ in range(2)]\n"
        "opts = [torch.optim.SGD(n.parameters(), lr=0.1) for n in nets]\n"
        "for x, y in data:\n    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = sum(criterion(n(x), y) for n in nets)\n    loss.backward()\n"
        "    for n, opt in zip(nets, opts):\n"
        "        nn.utils.clip_grad_norm_(n.parameters(), 0.1)\n        opt.step()\n",
    ),
    "a handler around finally": (
        "AMP034",
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for i, (x, y) in enumerate(data):\n    try:\n        opt.zero_grad()\n"
        "        try:\n            if i == 1:\n                raise ValueError\n"
        "            loss = criterion(model(x), y)\n            loss.backward()\n"
        "        finally:\n            opt.step()\n    except ValueError:\n        pass\n",
    ),
    "an attribute of the class and of an instance": (
        "AMP010",
        "class Trainer:\n    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    def restart(self):\n        self.opt = torch.optim.Adam(model.parameters())\n"
        "    def fit(self):\n        for x, y in data:\n            self.opt.zero_grad()\n"
        "            loss = criterion(model(x), y)\n            loss.backward()\n"
        "            self.opt.step()\nTrainer().fit()\n",
    ),
    "an attribute set on the class": (
        "AMP010",
        "class Trainer:\n    def fit(self):\n        for x, y in data:\n"
        "            self.opt.zero_grad()\n            loss = criterion(model(x), y)\n"
        "            loss.backward()\n            self.opt.step()\n"
        "Trainer.opt = torch.optim.SGD(model.parameters(), lr=0.1)\nTrainer().fit()\n"
        "other = Trainer()\nother.opt = torch.optim.Adam(model.parameters())\nother.fit()\n",
    ),
}

RETURN_IN_FINALLY = f"""\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def train(i, x, y):
    try:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        {CLIP}
        if i == 1:
            raise ValueError
        opt.step()
    finally:
        return loss.item()
for i, (x, y) in enumerate(data):
    print(train(i, x, y))
"""


@pytest.mark.parametrize("name", [*MIGRATED, "return in finally"])
def test_gradients_are_unscaled_first(name: str) -> None:
    body = MIGRATED.get(name, RETURN_IN_FINALLY)
    output = migrated(body)
    assert check_off(HEAD + body, HEAD + output) == []
    assert check_scaled(HEAD + body, HEAD + output, MOVING_SCALES[1]) == []


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name: str) -> None:
    code, body = LEFT_ALONE[name]
    assert left_alone(body) == code


KINDS = f"""\
class Meter:
    def __init__(self):
        self.seen = 0
class Norms:
    def __init__(self):
        print(sum(p.grad.norm().item() for p in model.parameters()))
def clip():
    {CLIP}
KINDS = {{"few": [Meter], "many": [Meter, Meter]}}
def started(name, kind):
    for key, kinds in KINDS.items():
        if key == name:
            made = [kind() for kind in kinds]
    return kind() if callable(kind) else kind
"""
CALLED = {
    "classes": ("", '"sum"', False),
    "classes, or a name that is none": ("", "Meter", False),
    "one that reads gradients": ('KINDS["many"] = [Norms]\n', '"sum"', True),
    "one that is added": ('KINDS["few"].append(Norms)\n', '"sum"', True),
    "a function": ("", "clip", True),
    "what is not in sight": ("from outside import KINDS\n", '"sum"', True),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_class_that_a_variable_holds_is_no_callback(name: str) -> None:
    changed, kind, unscaled = CALLED[name]
    call = f'started("few", {kind})'
    output = migrated(KINDS + changed + LOOP.replace("CALL", call))
    assert ("unscale_" in output) is unscaled


@pytest.mark.parametrize("called", ["layer = kind()", "kind()"])
def test_a_text_in_place_of_a_callback_may_be_one_elsewhere(
    tmp_path: Path, called: str
) -> None:
    """What other projects give a function of a library is not in sight."""
    loop = LOOP.replace("CALL", 'start("sum")')
    body = f"def start(kind):\n    if callable(kind):\n        {called}\n"
    body += "def main():\n" + "".join(f"    {line}\n" for line in loop.splitlines())
    package = tmp_path / "tool"
    package.mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'tool'\n")
    (package / "__init__.py").write_text("")
    (package / "training.py").write_text(HEAD + body)
    (found,) = (r.output for r in migrate_paths([tmp_path]).results if r.changed)
    assert ("unscale_" in found) is (called == "kind()")


def test_a_text_is_no_model_though_one_has_the_same_name() -> None:
    start = "import os\nimport remote\ndef launch():\n    target = PATH\n"
    start += "    remote.start(target=target)\ndef count(target):\n"
    start += "    return sum(p.numel() for p in target.parameters())\ncount(model)\n"
    for path, unscaled in (('os.path.join("a", "b")', False), ("model", True)):
        body = start.replace("PATH", path) + LOOP.replace("CALL", "launch()")
        assert ("unscale_" in migrated(body)) is unscaled


def test_a_function_that_becomes_an_attribute_by_its_name() -> None:
    source = """\
import torch
import torch.nn as nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Losses:
    pass


def risky(h):
    return torch.log(torch.sigmoid(h) + 1e-12).mean()


losses = Losses()
setattr(losses, "main", risky)
model = nn.Linear(6, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in [torch.ones(8, 6)]:
    optimizer.zero_grad()
    loss = losses.main(model(x.to(device)))
    loss.backward()
    optimizer.step()
"""
    output = migrate_source(source, path="train.py").output
    assert output == source or ".float()" in output or "enabled=False" in output


def test_a_lambda_that_computes_gradients_too() -> None:
    source = HEAD + LOOP.replace("CALL", "more[0](model(x))")
    hidden = "more = [lambda out: out.abs().mean().backward()]\n"
    assert left_alone(source.replace("opt =", hidden + "opt =", 1)) == "AMP016 AMP031"


ASKED = """\
class Agent:
    names = ["net", "opt"]
    def __init__(self):
        self.net = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def learn(self):
        for x, y in data:
            self.opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            self.opt.step()
            print(loss.item())
    def add(self, loss):
        loss.backward()
    def show(self):
        for name in self.names:
            SHOW
agent = Agent()
agent.learn()
agent.show()
"""
SHOWN = {
    "compared": ("assert getattr(self, name) is not None", ""),
    "shown": ("print(type(getattr(self, name)))", ""),
    "saved": ("torch.save(getattr(self, name), name)", ""),
    "called": ("self.names and getattr(self, name)(0)", "AMP031"),
    "kept": ("self.last = getattr(self, name) or None", "AMP031"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_name_gives_is_called_only_where_that_is_possible(name: str) -> None:
    shown, code = SHOWN[name]
    result = migrate_source(HEAD + ASKED.replace("SHOW", shown), path="train.py")
    found = [loop.diagnostic for loop in result.loops if loop.diagnostic]
    said = [one for one in found if "what calls it is not followed" in one.message]
    assert bool(said) == bool(code)


_OWN_OPTIMIZERS = """\
class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad.data, alpha=-group["lr"])
class Chain(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last = getattr(torch, "tanh")
    def forward(self, x):
        for f in self.layers:
            x = f(x)
        return self.last(x)
schedules = {"up": None}
critic = Chain([nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)]).to(device)
opt, other = Plain(model.parameters()), Plain(critic.parameters())
for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y) - critic(out).mean()
    loss.backward()
    opt.step()
    for name in schedules:
        if schedules[name] is not None:
            schedules[name].step()
    other.zero_grad()
    loss = critic(out.detach()).mean() - critic(torch.tanh(x[:, :3])).mean()
    loss.backward()
    other.step()
    print(loss.item())
"""


def test_what_is_called_is_not_the_step_of_an_own_optimizer() -> None:
    """Neither a layer, nor what a module of a library holds, nor a schedule."""
    output = migrated(_OWN_OPTIMIZERS)
    assert output.count(".step(opt)") == output.count(".step(other)") == 1
    source, output = HEAD + _OWN_OPTIMIZERS, HEAD + output
    assert check_off(source, output) == []
    for scales in MOVING_SCALES:
        assert check_scaled(source, output, scales) == []


RAISES = """\
import atexit
class Empty(RuntimeError):
    pass
def clip(text):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
atexit.register(clip, "")
def check(loss):
    if loss.item() < -1:
        raise Empty("nothing yet")
"""


def test_an_error_of_ones_own_runs_no_callback() -> None:
    source = RAISES + LOOP.replace("CALL", "check(loss)")
    assert "unscale_" not in migrated(source)


def test_a_method_that_was_asked_for_is_called_like_one_that_is_named() -> None:
    head = "import sys\nfrom reports import board\n"
    for call in ("board.flush()", "getattr(board, sys.argv[0])()"):
        assert "unscale_" not in migrated(head + LOOP.replace("CALL", call))
    asked = "done = getattr(board, sys.argv[0])\n    done()"
    assert "unscale_" not in migrated(head + LOOP.replace("CALL", asked))
    kept = asked.replace("getattr(board, sys.argv[0])", "board.hooks[0]")
    assert "unscale_" in migrated(head + LOOP.replace("CALL", kept))


def test_a_pipe_sends_parameters_without_their_gradients() -> None:
    sent = f"from multiprocessing import Pipe\nhere, there = Pipe()\n{LOOP}"
    box = (
        f"class Box:\n    def send(self, model):\n        {CLIP}\nhere = Box()\n{LOOP}"
    )
    for source, call, reads in (
        (sent, "here.send(model)", False),
        (sent, "here.watch(model)", True),
        (box, "here.send(model)", True),
    ):
        assert ("unscale_" in migrated(source.replace("CALL", call))) is reads


def test_a_generator_that_is_sent_what_it_computes_with() -> None:
    body = """\
def losses():
    found = None
    while True:
        out, y = yield found
        found = F.binary_cross_entropy(torch.sigmoid(out), (y > 0).float())
judge = losses()
next(judge)
""" + LOOP.replace("    CALL\n", "").replace(
        "criterion(model(x), y)", "judge.send((model(x), y[:, None].expand(4, 3)))"
    )
    output = migrated(body)
    assert 'torch.autocast("cuda", enabled=False)' in output
    assert check_off(HEAD + body, HEAD + output) == []


HANDED_OUT = {
    "a context variable": "import contextvars\nheld = contextvars.ContextVar('held')\n"
    "held.set(second)\nCALL = held.get()",
    "a weak reference": "import weakref\nheld = weakref.ref(second)\nCALL = held()",
    "a queue": "import queue\nheld = queue.Queue()\n[held.put(second) for _ in data]\nCALL = held.get()",
    "an object of one's own": "class Held:\n    def __getitem__(self, key):\n"
    "        return second\nCALL = Held()[0]",
    "its variables": "CALL = globals()['second']",
}


@pytest.mark.parametrize("name", HANDED_OUT)
def test_an_optimizer_that_is_stepped_out_of_sight(name: str) -> None:
    """The gradients on which it steps are scaled."""
    setup, _, call = HANDED_OUT[name].rpartition("CALL = ")
    setup = f"second = torch.optim.SGD(model[0].parameters(), lr=0.1)\n{setup}"
    body = LOOP.replace("for x", f"{setup}for x").replace("CALL", f"{call}.step()")
    assert left_alone(body) == "AMP010"
    assert "unscale_" not in migrated(body.replace(f"    {call}.step()\n", ""))
