"""One run takes one arm of an ``if`` that it meets once: what only the other brings to life does not meet
what this one does. All scripts really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from half_support import check_runs

from amp_migrate.api import Outcome, migrate_paths, migrate_source

HEAD = """\
import sys
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randn(4, 3)) for _ in range(4)]
class Own(torch.optim.Optimizer):
    def __init__(self, params):
        params = list(params)
        super().__init__(params, {})
        self.inner = torch.optim.SGD(params, lr=0.1)
    def step(self):
        self.inner.step()
class Natural:
    def __init__(self, net):
        self.net, self.optimizer = net, Own(net.parameters())
    def update(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()
class Plain:
    def __init__(self, net):
        self.net, self.optimizer = net, torch.optim.Adam(net.parameters())
    def update(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()
net = nn.Linear(8, 3).to(device)
mode = "natural" if len(sys.argv) > 4 else "plain"
"""
WATCH = """\
def watch():
    model = nn.Linear(8, 3).to(device)
    model.register_full_backward_hook(lambda module, given, out: print(out[0].norm()))
    model(data[0][0].to(device)).sum().backward()
"""
STEPS = """\
for x, y in data:
    print(agent.update(x.to(device), y.to(device)))
"""
CHOSEN = """\
if mode == "natural":
    agent = Natural(net)
else:
    agent = Plain(net)
"""
TRAINING = """\
    agent = Plain(net)
    for x, y in data:
        print(agent.update(x.to(device), y.to(device)))
"""


def _inside(head: str, text: str) -> str:
    """A block."""
    return head + "".join(f"    {line}\n" for line in text.splitlines())


_LINE = HEAD.splitlines().index("class Plain:") + 7
"""Of its backward()."""

APART = {
    "an optimizer": CHOSEN + STEPS,
    "an optimizer, of an elif": """\
if mode == "other":
    raise SystemExit
elif mode != "plain":
    agent = Natural(net)
else:
    agent = Plain(net)
"""
    + STEPS,
    "an optimizer, in a function that is called once": _inside(
        "def main():\n", CHOSEN + STEPS
    )
    + 'if __name__ == "__main__":\n    main()\n',
    "hooks": f"{WATCH}if mode == 'natural':\n    watch()\nelse:\n{TRAINING}",
    "hooks, and the end of the run behind them": f"""\
{WATCH}def main():
    if mode == "natural":
        watch()
        return
{TRAINING}
main()
""",
    "hooks, behind an arm that ends the run": f"""\
{WATCH}if mode == "plain":
{TRAINING}    sys.exit()
watch()
""",
}
MEETING = {
    "the arms take turns": (
        "AMP014",
        _inside("for mode in (mode, 'plain'):\n", CHOSEN + STEPS),
    ),
    "its function is called twice": (
        "AMP014",
        _inside("def main(mode):\n", CHOSEN + STEPS) + "main(mode)\nmain('plain')\n",
    ),
    "its function is called twice, once by its name": (
        "AMP014",
        _inside("def main(mode):\n", CHOSEN + STEPS)
        + "main(mode)\ngetattr(sys.modules[__name__], 'main')('plain')\n",
    ),
    "both arms make it": (
        "AMP014",
        """\
if mode == "natural":
    agent = Natural(net)
    others = [Plain(net)]
else:
    agent = Plain(net)
    others = []
for other in others:
    for x, y in data:
        other.update(x.to(device), y.to(device))
""" + STEPS,
    ),
    "the optimizer of all runs": (
        "AMP014",
        f"agent = Natural(net)\n{STEPS}if mode == 'plain':\n    agent = Plain(net)\n{STEPS}",
    ),
}


def _of_plain(source: str) -> tuple[str, str | None]:
    """What becomes of the script, and why not of the loop of `Plain`."""
    result = migrate_source(source, path="train.py")
    (loop,) = [one for one in result.loops if one.place.line == _LINE]
    assert (loop.outcome is Outcome.MIGRATED) is (loop.diagnostic is None)
    return result.output, None if loop.diagnostic is None else loop.diagnostic.code


@pytest.mark.parametrize("name", APART)
def test_what_another_arm_brings_to_life_is_no_reason(name: str) -> None:
    source = HEAD + APART[name]
    output, code = _of_plain(source)
    assert code is None
    check_runs(source, output)


@pytest.mark.parametrize("name", MEETING)
def test_what_may_meet_the_loop_is(name: str) -> None:
    code, text = MEETING[name]
    source = HEAD + text
    assert _of_plain(source) == (source, code)


def test_weights_that_another_script_ties_are_not_tied(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Linear(8, 8)\n"
    )
    tie = "other.weight = net.weight\n"
    train = tmp_path / "train.py"
    text = """\
import torch
from torch import nn
from net import make
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net, other = make().to(device), make().to(device)
TIEone = torch.optim.SGD(net.parameters(), lr=0.1)
two = torch.optim.Adam(other.parameters())
for x in torch.randn(4, 2, 8, device=device):
    one.zero_grad()
    two.zero_grad()
    loss = other(net(x)).pow(2).mean()
    loss.backward()
    one.step()
    two.step()
"""
    checks = (
        "from net import make\n\ndef test_make():\n    net, other = make(), make()\n"
    )
    (tmp_path / "test_net.py").write_text(checks + f"    {tie}")
    for said, outcome in (("", Outcome.MIGRATED), (tie, Outcome.LEFT_ALONE)):
        train.write_text(text.replace("TIE", said))
        (found,) = [
            loop.outcome
            for one in migrate_paths([tmp_path]).migrations
            for loop in one.result.loops
        ]
        assert found is outcome


MASKED = """\
import copy, functools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.q = nn.Linear(n, n)
    def forward(self, x, mask=None):
        scores = self.q(x)
        if mask is not None:
            lowest = torch.finfo(torch.float32).min
            scores = torch.where(mask, scores, scores.new_tensor(lowest))
        return scores.softmax(-1)
class Sub(Attention):
    pass
def apply(layer, x, mask):
    return layer(x, mask)
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.first = Attention(n)
        MADE
    def forward(self, x, m):
        x = self.first(x)
        CALLED
        return x
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net(8).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    x = torch.randn(4, 8).to(device)
    opt.zero_grad()
    loss = net(x, x < 1).pow(2).mean()
    loss.backward()
    opt.step()
    print(loss.item())
"""
UNMASKED = {
    "a method": ("self.attn = Attention(n)", "x = self.attn(x)"),
    "layers of layers": (
        "self.layers = nn.ModuleList([nn.ModuleList([nn.LayerNorm(n), Attention(n)])])",
        "for norm, attn in self.layers: x = attn(norm(x)) + x",
    ),
    "a sequence": (
        "self.attn = nn.Sequential(nn.Linear(n, n), Attention(n))",
        "x = self.attn(x)",
    ),
}
GIVEN_A_MASK = {
    "a helper": ("self.attn = Attention(n)", "x = apply(self.attn, x, m)"),
    "layers": (
        "self.layers = nn.ModuleList([Attention(n)])",
        "for attn in self.layers: x = attn(x, m)",
    ),
    "a name": ("self.attn = Attention(n)", "x = getattr(self, 'attn')(x, m)"),
    "a library": (
        "self.attn = Attention(n)",
        "x = checkpoint(self.attn, x, m, use_reentrant=False)",
    ),
    "a partial": (
        "self.attn = Attention(n)",
        "x = functools.partial(self.attn, mask=m)(x)",
    ),
    "a wrapper": ("self.attn = nn.DataParallel(Attention(n))", "x = self.attn(x, m)"),
    "children": (
        "self.attn = Attention(n)",
        "for child in self.children(): x = child(x, m)",
    ),
    "a table of classes": (
        "self.attn = {'a': Attention}['a'](n)",
        "for attn in [self.attn]: x = attn(x, m)",
    ),
    "a copy": (
        "self.attn = copy.deepcopy(self.first)",
        "for attn in [self.attn]: x = attn(x, m)",
    ),
    "a subclass": ("self.attn = Sub(n)", "for attn in [self.attn]: x = attn(x, m)"),
    "its type": (
        "self.attn = type(self.first)(n)",
        "for attn in [self.attn]: x = attn(x, m)",
    ),
    "arguments in a dict": (
        "self.attns = [Attention(n)]",
        "x = self.attns[0](x, **{'mask': m})",
    ),
    "map": ("self.attn = Attention(n)", "x = [*map(self.attn, [x], [m])][0]"),
    "a hook": (
        "self.first.register_forward_pre_hook(lambda module, given: (*given, given[0] < 1))",
        "pass",
    ),
}


def _masked(made: str, called: str) -> str:
    return MASKED.replace("MADE", made).replace("CALLED", called)


@pytest.mark.parametrize("way", UNMASKED)
def test_an_arm_for_what_no_call_gives_is_not_run(way: str) -> None:
    """By a parameter that is None in each call that there is, also where the object is not followed."""
    source = _masked(*UNMASKED[way])
    result = migrate_source(source, path="train.py")
    assert [loop.outcome for loop in result.loops] == [Outcome.MIGRATED]
    check_runs(source, result.output)


@pytest.mark.parametrize("way", GIVEN_A_MASK)
def test_an_arm_may_run_by_a_call_that_is_not_followed(way: str) -> None:
    (loop,) = migrate_source(_masked(*GIVEN_A_MASK[way]), path="train.py").loops
    assert loop.diagnostic is not None and loop.diagnostic.code == "AMP021"


KEEPS = """\
KINDS = {}
def keep(kind):
    KINDS[kind.__name__] = kind
    return kind
"""
REGISTERED = {
    "a decorator": f"{KEEPS}@keep\nATTENTION",
    "a decorator that is made": """\
KINDS = {}
def keep(name):
    def add(kind):
        KINDS[name] = kind
        return kind
    return add
@keep("Attention")
ATTENTION""",
    "a method that decorates": """\
class Kinds:
    def __init__(self):
        self.found = {}
    def keep(self, kind):
        self.found[kind.__name__] = kind
        return kind
    def __getitem__(self, name):
        return self.found[name]
KINDS = Kinds()
@KINDS.keep
ATTENTION""",
    "a base that is told": f"""\
{KEEPS}class Module(nn.Module):
    def __init_subclass__(cls):
        keep(cls)
ATTENTION""",
    "a metaclass": f"""\
{KEEPS}class Kind(type):
    def __new__(mcs, *given):
        return keep(super().__new__(mcs, *given))
class Module(nn.Module, metaclass=Kind):
    pass
ATTENTION""",
    "a function": f"""\
{KEEPS}ATTENTION@keep
def attention(n):
    return Attention(n)
KINDS["Attention"] = KINDS["attention"]
""",
    "a method of a class": f"""\
{KEEPS}ATTENTIONclass Makers:
    @staticmethod
    @keep
    def attention(n):
        return Attention(n)
KINDS["Attention"] = KINDS["attention"]
""",
    "a table of functions": """\
ATTENTIONdef attention(n):
    return Attention(n)
KINDS = {"Attention": attention}
""",
}


@pytest.mark.parametrize("way", REGISTERED)
def test_an_arm_may_run_on_an_object_of_a_class_that_is_kept(way: str) -> None:
    begin, rest = MASKED.split("class Attention")
    own, end = rest.split("class Sub")
    kept = REGISTERED[way]
    if "class Module" in kept:
        own = own.replace("nn.Module", "Module")
    text = (
        begin + kept.replace("ATTENTION", f"class Attention{own}") + f"class Sub{end}"
    )
    text = text.replace("MADE", "self.attn = KINDS['Attention'](n)")
    called = "for attn in [self.attn]: x = attn(x, m)"
    source, unmasked = (
        text.replace("CALLED", c) for c in (called, called.replace(", m", ""))
    )
    (loop,) = migrate_source(source, path="train.py").loops
    assert loop.diagnostic is not None and loop.diagnostic.code == "AMP021"
    result = migrate_source(unmasked, path="train.py")
    if "metaclass" in source or "self.found" in source:
        assert not result.changed  # by what is not followed
    else:
        check_runs(unmasked, result.output)
