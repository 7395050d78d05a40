"""Whose gradients are touched or cleared: the optimizer's own, all of them, or somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from exactness import check_off, check_scaled
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import written_out

from amp_migrate.api import migrate_paths, migrate_source

LOOP = """\
for i, (x, y) in enumerate(data):
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    TOUCH
    opt.step()
"""
SGD = "opt = torch.optim.SGD(model.parameters(), lr=0.1)"
GROUPS = """\
opt = torch.optim.SGD(
    [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.05}],
    lr=0.1,
)"""
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def program(birth: str, touch: str) -> str:
    return f"{birth}\n{LOOP.replace('TOUCH', touch)}"


BOX = """\
class Box:
    def __init__(self, net):
        self.net = net.to(device)
        self.net = nn.DataParallel(self.net)
box = Box(model)
"""
FURTHER = """\
def adam(net, lr=0.1):
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    return opt
def objects(net):
    opt = adam(net)
    return net, opt, 3
net, opt, _ = objects(model)"""
JOINT = """\
class Joint(nn.Module):
    def __init__(self, one, two):
        super().__init__()
        self.one, self.two = one, two
head = nn.Linear(3, 3).to(device)
BOTH
opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)"""


def joint(both: str = "Joint(model, head)", old: str = "", new: str = "") -> str:
    return JOINT.replace("BOTH", f"both = {both}").replace(old, new)


OWN = {
    "a module that is made of them": (
        joint(),
        "nn.utils.clip_grad_norm_(both.parameters(), 1.0)",
    ),
    "wrapped where it is kept": (
        BOX + SGD,
        "nn.utils.clip_grad_norm_(box.net.parameters(), 1.0)",
    ),
    "made by a function that another calls": (FURTHER, CLIP),
    "one of two kinds": (
        "def build(net, adam=False):\n    if adam:\n"
        "        opt = torch.optim.Adam(net.parameters())\n    else:\n"
        "        opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    return opt\n"
        "opt = build(model, len(data) > 9)",
        CLIP,
    ),
    "all parameters": (SGD, CLIP),
    "named parameters": (
        SGD,
        "for name, p in model.named_parameters():\n        p.grad *= 2",
    ),
    "one layer": (SGD, "nn.utils.clip_grad_norm_(model[2].parameters(), 1.0)"),
    "one parameter": (SGD, "print(model[0].weight.grad.norm())"),
    "a list made before": (
        f"{SGD}\nparams = list(model.parameters())",
        "nn.utils.clip_grad_norm_(params, 1.0)",
    ),
    "the same list": (
        "params = list(model.parameters())\nopt = torch.optim.SGD(params, lr=0.1)",
        CLIP,
    ),
    "another name of the model": (
        f"net = model\n{SGD}",
        "nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
    ),
    "a helper's two lists": (
        "def split(net):\n    one, other = [], []\n    for name, p in net.named_parameters():\n"
        "        if not p.requires_grad:\n            continue\n"
        "        if name.startswith('0'):\n            one.append(p)\n"
        "        else:\n            other.append(p)\n    return one, other\n"
        "one, other = split(model)\n"
        'opt = torch.optim.SGD([{"params": one, "lr": 0.2}, {"params": other}], lr=0.1)',
        "nn.utils.clip_grad_norm_(filter(lambda p: p.requires_grad, model.parameters()), 1.0)",
    ),
    "a list in an object": (
        "class Lists:\n    def __init__(self, net):\n        self.net = net\n"
        "        self.all = list(net.parameters())\n"
        "lists = Lists(model)\nopt = torch.optim.SGD(lists.all, lr=0.1)",
        "nn.utils.clip_grad_norm_(lists.net.parameters(), 1.0)",
    ),
    "the optimizer's groups": (
        SGD,
        'for g in opt.param_groups:\n        nn.utils.clip_grad_norm_(g["params"], 1.0)',
    ),
    "the optimizer's groups, in one expression": (
        SGD,
        "print(sum(p.grad.norm().item() for g in opt.param_groups for p in g['params']))",
    ),
    "groups with and without decay": (
        "decay = [p for p in model.parameters() if p.dim() > 1]\n"
        "rest = [p for p in model.parameters() if p.dim() <= 1]\n"
        'opt = torch.optim.AdamW([{"params": decay}, {"params": rest, "lr": 0.1}])',
        CLIP,
    ),
    "groups by what a name has in it": (
        "named = list(model.named_parameters())\nskip = ['bias']\n"
        "decay = [p for n, p in named if p.requires_grad and not any(s in n for s in skip)]\n"
        "rest = [p for n, p in named if any(s in n for s in skip)]\n"
        'opt = torch.optim.AdamW([{"params": decay}, {"params": rest, "lr": 0.1}])',
        CLIP,
    ),
    "groups by a loop that goes on": (
        "decay, rest = [], []\n"
        "for n, p in model.named_parameters():\n    if n.endswith('bias'):\n"
        "        rest.append(p)\n        continue\n    decay.append(p)\n"
        'opt = torch.optim.AdamW([{"params": decay}, {"params": rest, "lr": 0.1}])',
        CLIP,
    ),
    "groups by a conditional expression": (
        "decay, rest = [], []\n"
        "for n, p in model.named_parameters():\n    if not p.requires_grad:\n        continue\n"
        "    (rest if p.ndim <= 1 or n.endswith('bias') else decay).append(p)\n"
        'opt = torch.optim.AdamW([{"params": decay}, {"params": rest, "lr": 0.1}])',
        CLIP,
    ),
    "three groups": (
        "one, two, rest = [], [], []\n"
        "for n, p in model.named_parameters():\n    if n.startswith('0'):\n"
        "        if p.requires_grad and p.ndim > 1:\n            one.append(p)\n"
        "        elif p.requires_grad:\n            two.append(p)\n"
        "    else:\n        rest.append(p)\n"
        'opt = torch.optim.AdamW([{"params": one}, {"params": two}, {"params": rest, "lr": 0.1}])',
        CLIP,
    ),
    "three groups by comprehensions": (
        "named = list(model.named_parameters())\n"
        "one = [p for n, p in named if p.ndim > 1 and '0' in n]\n"
        "two = [p for n, p in named if p.ndim > 1 and not '0' in n]\n"
        "rest = [p for n, p in named if not (p.ndim > 1 and p.requires_grad)]\n"
        'opt = torch.optim.AdamW([{"params": one}, {"params": two}, {"params": rest, "lr": 0.1}])',
        CLIP,
    ),
    "what requires gradients": (
        "opt = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)",
        CLIP,
    ),
    "what requires gradients, by a comprehension": (
        "opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)",
        CLIP,
    ),
    "one of two models": (
        "head = nn.Linear(3, 3).to(device)\n"
        "opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)",
        CLIP,
    ),
    "a helper that is given the optimizer": (
        "def limit(o):\n"
        "    for g in o.param_groups:\n"
        '        for p in g["params"]:\n'
        f"            p.grad.clamp_(-1, 1)\n{SGD}",
        "limit(opt)",
    ),
    "a factory that asks another": (
        "def make_opt(net):\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    return opt\n"
        "def get():\n    net = make().to(device)\n    opt = make_opt(net)\n"
        "    return net, opt\n"
        "model, opt = get()",
        CLIP,
    ),
    "behind DataParallel": (
        f"net = nn.DataParallel(model)\n{SGD}",
        "nn.utils.clip_grad_norm_(net.module.parameters(), 1.0)",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_own_gradients_are_unscaled(name: str) -> None:
    output = migrated(program(*OWN[name]))
    touch = OWN[name][1].splitlines()[0]
    assert f"    scaler.unscale_(opt)\n    {touch}\n" in output


OTHERS = {
    "a module that is made of them and more": (
        joint(
            "Joint(model, head)", "= one, two", "= one, two\n        self.more = make()"
        ),
        "nn.utils.clip_grad_norm_(both.parameters(), 1.0)",
    ),
    "a module that is made of one and another": (
        joint("Joint(model, make().to(device))"),
        "nn.utils.clip_grad_norm_(both.parameters(), 1.0)",
    ),
    "another one that is wrapped where it is kept": (
        BOX.replace("(self.net)", "(make().to(device))") + SGD,
        "nn.utils.clip_grad_norm_(box.net.parameters(), 1.0)",
    ),
    "made by a function that another calls, of another model": (
        FURTHER.replace("opt = adam(net)", "opt = adam(make().to(device))"),
        CLIP,
    ),
    "made by one of two functions that another calls": (
        FURTHER.replace(
            "    opt = adam(net)\n",
            "    opt = adam(make().to(device))\n    if lr > 1:\n        opt = adam(net)\n",
        ).replace("def objects(net", "def objects(net, lr=2"),
        CLIP,
    ),
    "another model": (
        f"other = make().to(device)\n{SGD}",
        "nn.utils.clip_grad_norm_(other.parameters(), 1.0)",
    ),
    "more than the optimizer holds": (
        "opt = torch.optim.SGD(model[2].parameters(), lr=0.1)",
        CLIP,
    ),
    "a layer that is not trained": (
        "opt = torch.optim.SGD(model[2].parameters(), lr=0.1)",
        "print(model[0].weight.grad.norm())",
    ),
    "one selection out of it": (
        "big = [p for p in model.parameters() if p.dim() > 1]\n"
        "opt = torch.optim.SGD(big, lr=0.1)",
        CLIP,
    ),
    "two branches of three": (
        "one, two = [], []\n"
        "for n, p in model.named_parameters():\n    if n.startswith('0'):\n        one.append(p)\n"
        "    elif n.endswith('bias'):\n        two.append(p)\n"
        'opt = torch.optim.SGD([{"params": one}, {"params": two, "lr": 0.2}], lr=0.1)',
        CLIP,
    ),
    "the frozen ones": (
        "model[0].requires_grad_(False)\n"
        "frozen = [p for p in model.parameters() if not p.requires_grad]\n"
        "opt = torch.optim.SGD(frozen, lr=0.1)",
        CLIP,
    ),
    "tests that differ": (
        "one, two = [], []\n"
        "for n, p in model.named_parameters():\n    (one if p.ndim > 1 else []).append(p)\n"
        "    ([] if p.ndim > 1 and n else two).append(p)\n"
        'opt = torch.optim.SGD([{"params": one}, {"params": two, "lr": 0.2}], lr=0.1)',
        CLIP,
    ),
    "two selections that leave some out": (
        "one = [p for n, p in model.named_parameters() if n.startswith('0')]\n"
        "two = [p for n, p in model.named_parameters() if n.endswith('bias')]\n"
        'opt = torch.optim.SGD([{"params": one}, {"params": two, "lr": 0.2}], lr=0.1)',
        CLIP,
    ),
    "selections out of a selection": (
        "some = [(n, p) for n, p in model.named_parameters() if n.startswith('0')]\n"
        "one = [p for n, p in some if n.endswith('bias')]\n"
        "two = [p for n, p in some if not n.endswith('bias')]\n"
        'opt = torch.optim.SGD([{"params": one}, {"params": two, "lr": 0.2}], lr=0.1)',
        CLIP,
    ),
    "selections in branches of two tests": (
        "one, two = [], []\n"
        "for n, p in model.named_parameters():\n"
        "    if n.startswith('0'):\n        one.append(p)\n"
        "    if n.endswith('weight'):\n        two.append(p)\n"
        'opt = torch.optim.SGD([{"params": one}, {"params": two, "lr": 0.2}], lr=0.1)',
        CLIP,
    ),
    "a factory that asks another, of another model": (
        "def make_opt(net):\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    return opt\n"
        "def get():\n    net, other = make().to(device), make().to(device)\n"
        "    opt = make_opt(other)\n    return net, opt\n"
        "model, opt = get()",
        CLIP,
    ),
    "what one of two branches of a function holds": (
        "def build(net, head=False):\n    if head:\n"
        "        opt = torch.optim.SGD(net[2].parameters(), lr=0.1)\n    else:\n"
        "        opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    return opt\n"
        "opt = build(model, len(data) > 9)",
        CLIP,
    ),
    "the input": (SGD, "print(x.grad)"),
    "a parameter stepped by hand": (
        f"extra = torch.zeros(3, requires_grad=True)\n{SGD}",
        "extra.data -= 0.1 * extra.grad",
    ),
    "the groups of another optimizer": (
        f"other = make().to(device)\nadam = torch.optim.Adam(other.parameters())\n{SGD}",
        'for g in adam.param_groups:\n        nn.utils.clip_grad_norm_(g["params"], 1.0)',
    ),
    "the groups of another optimizer, in one expression": (
        f"other = make().to(device)\nadam = torch.optim.Adam(other.parameters())\n{SGD}",
        "print([p.grad for g in adam.param_groups for p in g['params']])",
    ),
    "what a helper is given elsewhere": (
        "def chosen(net):\n    return [p for p in net.parameters() if p.requires_grad]\n"
        "other = make().to(device)\nprint(len(chosen(other)))\n"
        "opt = torch.optim.SGD(chosen(model), lr=0.1)",
        "nn.utils.clip_grad_norm_(list(model.parameters()) + list(other.parameters()), 1.0)",
    ),
    "the rest of a helper's two lists": (
        "def split(net):\n    one, other = [], []\n    for name, p in net.named_parameters():\n"
        "        if name.startswith('0'):\n            one.append(p)\n"
        "        else:\n            other.append(p)\n    return one, other\n"
        "one, other = split(model)\nopt = torch.optim.SGD(one, lr=0.1)",
        CLIP,
    ),
    "whatever apply() visits": (
        f"def limit(m):\n    for p in m.parameters():\n        p.grad.clamp_(-1, 1)\n{SGD}",
        "model.apply(limit)",
    ),
    "an unknown list": (
        f"from helpers import trained\n{SGD}",
        "nn.utils.clip_grad_norm_(trained, 1.0)",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_that_may_be_somebody_elses(name: str) -> None:
    assert left_alone(program(*OTHERS[name])) == "AMP030"


BOTH = "both.zero_grad()"
SET = "self.one, self.two = one, two"
WRAPPED = """\
class Wrapped(nn.DataParallel):
    def __init__(self, net, **options):
        super().__init__(net, **options)
        self.calls = 0
"""
WRAPS = f"{WRAPPED}wrapped = Wrapped(model)\n"
HAS_LIST = """\
class Opt:
    def __init__(self, params):
        self.params = list(params)
        self.inner = torch.optim.SGD(self.params, lr=0.1)
    def step(self):
        self.inner.step()
"""
CLEARED = {
    "a module that is made of them": (joint(), BOTH),
    "that is moved": (joint("Joint(model, head).to(device)"), BOTH),
    "made of them in either case": (
        joint("Joint(model, head)\nif not data:\n    both = Joint(model, head)"),
        BOTH,
    ),
    "in another one": (joint("nn.Sequential(Joint(model, head), nn.ReLU())"), BOTH),
    "of a class that holds itself": (
        joint(
            old=SET,
            new=f"{SET}\n        self.part = Part(self)\n"
            "class Part:\n    def __init__(self, whole):\n        self.whole = whole\n"
            "        self.__dict__ = self",
        ),
        BOTH,
    ),
    "a sequence": (joint("nn.Sequential(model, head)"), BOTH),
    "a list of modules": (joint("nn.ModuleList([model, head])"), BOTH),
    "a dict of modules": (joint("nn.ModuleDict({'a': model, 'b': head})"), BOTH),
    "a list of its own": (
        joint(old=SET, new="self.parts = nn.ModuleList([one, two])"),
        "for p in both.parameters():\n        p.grad = None",
    ),
    "by a wrapper of one's own": (f"{WRAPS}{SGD}", "wrapped.zero_grad()"),
    "held through a wrapper of one's own": (
        f"{WRAPS}opt = torch.optim.SGD(wrapped.parameters(), lr=0.1)",
        "model.zero_grad()",
    ),
    "the model": (SGD, "model.zero_grad()"),
    "each of its parameters": (
        SGD,
        "for p in model.parameters():\n        p.grad = None",
    ),
    "what has a gradient, deleted": (
        SGD,
        "for p in model.parameters():\n        if p.grad is not None:\n            del p.grad",
    ),
    "its only group": (
        SGD,
        'for p in opt.param_groups[0]["params"]:\n        p.grad = None',
    ),
    "each of its groups": (
        GROUPS,
        'for g in opt.param_groups:\n        for p in g["params"]:\n'
        "            p.grad = None",
    ),
    "its other name": (f"net = model\n{SGD}", "net.zero_grad()"),
    "two models, one by one": (
        "head = nn.Linear(3, 3).to(device)\n"
        "opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)",
        "model.zero_grad()\n    head.zero_grad()",
    ),
    "more than the optimizer holds": (
        "opt = torch.optim.SGD(model[2].parameters(), lr=0.1)",
        "model.zero_grad()",
    ),
    "a list of its parameters that an object has": (
        f"{HAS_LIST}opt = Opt(model.parameters())",
        "model.zero_grad()",
    ),
}
NOT_CLEARED = {
    "another than that of whose parameters an object has a list": (
        f"{HAS_LIST}def give(net):\n    return Opt(net.parameters())\n"
        "other = nn.Linear(3, 3).to(device)\ngive(other)\nopt = give(model)",
        "other.zero_grad()",
    ),
    "a module that is made of one": (joint("Joint(model, make())"), BOTH),
    "made of them in one of two cases": (
        joint("Joint(model, head)\nif not data:\n    both = Joint(model, make())"),
        BOTH,
    ),
    "of one twice": (joint("Joint(model, model)"), BOTH),
    "of a copy": (f"import copy\n{joint('Joint(copy.deepcopy(model), head)')}", BOTH),
    "of one or another": (
        joint(
            "Joint(part, head)", "both =", "part = model if data else make()\nboth ="
        ),
        BOTH,
    ),
    "one that is another one later": (
        joint("Joint(model, head)\nboth.two = make()"),
        BOTH,
    ),
    "one that is gone later": (joint("Joint(model, head)\ndel both.two"), BOTH),
    "one that is made anew": (
        joint("Joint(model, head)\nhead = nn.Linear(3, 3).to(device)"),
        BOTH,
    ),
    "one that is set under a test": (
        joint(
            old=SET,
            new="self.one = one\n        if one is two:\n            self.two = two",
        ),
        BOTH,
    ),
    "one that may not be set": (
        joint(
            old=SET,
            new="self.one = one\n        if two is None:\n            return\n"
            "        self.two = two",
        ),
        BOTH,
    ),
    "a list that is no module": (joint(old=SET, new="self.parts = [one, two]"), BOTH),
    "parameters of its own choice": (
        joint(
            old=SET,
            new=f"{SET}\n    def parameters(self):\n        return self.one.parameters()",
        ),
        "for p in both.parameters():\n        p.grad = None",
    ),
    "another model": (f"other = make()\n{SGD}", "other.zero_grad()"),
    "one layer": (SGD, "model[0].zero_grad()"),
    "some of its parameters": (
        SGD,
        "for p in [p for p in model.parameters() if p.dim() > 1]:\n        p.grad = None",
    ),
    "those that pass a test": (
        SGD,
        "for p in model.parameters():\n        if p.dim() > 1:\n            del p.grad",
    ),
    "those that are not passed over": (
        SGD,
        "for p in model.parameters():\n        if p.dim() > 1:\n            continue\n"
        "        p.grad = None",
    ),
    "one of its groups": (
        GROUPS,
        'for p in opt.param_groups[0]["params"]:\n        p.grad = None',
    ),
    "one of its groups, by name": (
        f"{GROUPS}\ngroup = opt.param_groups[1]",
        'for p in group["params"]:\n        p.grad = None',
    ),
    "some of its groups": (
        GROUPS,
        'for g in opt.param_groups[1:]:\n        for p in g["params"]:\n'
        "            p.grad = None",
    ),
    "some of each group": (
        GROUPS,
        'for g in opt.param_groups:\n        for p in g["params"][1:]:\n'
        "            p.grad = None",
    ),
    "one of a group": (SGD, 'opt.param_groups[0]["params"][0].grad = None'),
    "what was there before a group came": (
        "opt = torch.optim.SGD(model[0].parameters(), lr=0.1)\n"
        'opt.add_param_group({"params": model[2].parameters()})',
        "model[0].zero_grad()",
    ),
    "as many as there are numbers": (
        SGD,
        "for p, _ in zip(model.parameters(), range(2)):\n        p.grad = None",
    ),
    "those of no part": (
        SGD,
        "for p in model.parameters(recurse=False):\n        p.grad = None",
    ),
    "the last of a loop": (
        f"{SGD}\nfor p in model.parameters():\n    pass",
        "p.grad = None",
    ),
    "the first": (SGD, "p = next(model.parameters())\n    p.grad = None"),
    "one of two models": (
        "head = nn.Linear(3, 3).to(device)\n"
        "opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)",
        "model.zero_grad()",
    ),
    "a model and one parameter too few": (
        "extra = nn.Parameter(torch.zeros(3))\n"
        "opt = torch.optim.SGD([*model.parameters(), extra], lr=0.1)",
        "model.zero_grad()",
    ),
}


def with_zeroing(birth: str, zeroing: str) -> str:
    return program(birth, "pass").replace("opt.zero_grad()", zeroing)


def test_some_gradients_that_are_dropped_behind_a_clip() -> None:
    touch = f"""{CLIP}
    for name, p in model.named_parameters():
        if i < 2 and "2" in name:
            p.grad = None"""
    output = migrated(program(SGD, touch))
    assert "    scaler.unscale_(opt)" in output
    assert "\n    scaler.step(opt)\n    scaler.update()\n" in output


def test_a_clip_over_a_module_that_is_made_of_those_of_two_optimizers() -> None:
    head = joint().rpartition("\n")[0]
    source = f"""\
{head}
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(head.parameters(), lr=0.1)
for x, y in data:
    both.zero_grad()
    loss = criterion(head(model(x)), y)
    loss.backward()
    nn.utils.clip_grad_norm_(both.parameters(), 1.0)
    first.step()
    second.step()
"""
    clip = "    norm = nn.utils.clip_grad_norm_(both.parameters(), 1.0)\n"
    both = "    scaler.unscale_(first)\n    scaler.unscale_(second)\n"
    assert both + clip in migrated(source)


PARTS = """\
import argparse
class Net(nn.Module):
    def __init__(self, one, two, args):
        super().__init__()
        self.one, self.two = one, two
        self.args = args
        self.size = args.size
        self.prior = torch.distributions.Normal(torch.zeros(self.size), 1.0)
    def loss(self, x, y):
        return criterion(self.two(self.one(x)), y)
def main(args):
    one, two = make(), nn.Linear(3, 3)
    net = Net(one, two, args).to(device)
    first = torch.optim.SGD(net.one.parameters(), lr=0.1)
    second = torch.optim.SGD(net.two.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in data:
            for _ in range(3 if epoch < 1 else 0):
                first.zero_grad()
                second.zero_grad()
                loss = net.loss(x, y)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                first.step()
            first.zero_grad()
            second.zero_grad()
            loss = net.loss(x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if epoch >= 1:
                first.step()
            second.step()
main(argparse.Namespace(size=3, **{"depth": 2}))
"""


def test_a_clip_over_a_module_whose_parts_are_held_by_its_names() -> None:
    pytest.importorskip("torch")
    output = migrated(PARTS)
    assert check_off(HEAD + PARTS, HEAD + output) == []
    assert check_scaled(HEAD + PARTS, HEAD + output) == []
    for part in output.split("scaler.update()")[:2]:
        assert part.count("scaler.unscale_(") == 2
        assert part.index("scaler.unscale_(second)") < part.index("nn.utils.clip")


@pytest.mark.parametrize(
    ("was", "made"),
    [
        ("self.size = args.size", "self.size, self.more = args.size, args.more"),
        ("self.args = args", "self.args = args\n        self.more = make()"),
        (
            "main(argp",
            "more = argparse.Namespace()\nvars(more)['size'] = make()\nmain(argp",
        ),
        ("first.zero_grad()\n                second.zero", "first.zero"),
    ],
)
def test_a_clip_over_more_than_is_held(was: str, made: str) -> None:
    assert left_alone(PARTS.replace(was, made)) in ("AMP030", "AMP031")


def test_a_wrapper_of_ones_own_that_has_more() -> None:
    more = WRAPPED.replace("self.calls = 0", "self.more = make()")
    source = program(
        f"{more}wrapped = Wrapped(model)\n{SGD}",
        "nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)",
    )
    assert left_alone(source) == "AMP030"


@pytest.mark.parametrize("name", CLEARED)
def test_all_gradients_are_cleared(name: str) -> None:
    assert migrated(with_zeroing(*CLEARED[name]))


def test_a_base_class_that_clears_its_own() -> None:
    classes = (
        "class Base(nn.Module):\n    def zero_grad(self):\n"
        "        for p in self.parameters():\n            p.grad = None\n"
        "class Net(Base):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = make()\n    def forward(self, x):\n        return self.layer(x)\n"
        "model = Net().to(device)\n"
    )
    assert migrated(with_zeroing(f"{classes}{SGD}", "model.zero_grad()"))
    source = with_zeroing(f"{classes}other = Net()\n{SGD}", "other.zero_grad()")
    assert left_alone(source) == "AMP031"


OF_ITSELF = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = make()
    def forward(self, x):
        return self.layer(x)
    def update(self, x, y, opt):
        self.zero_grad()
        loss = criterion(self(x), y)
        loss.backward()
        opt.step()
class Trainer:
    def __init__(self, net, opt):
        self.net, self.opt = net, opt
    def train(self, batches):
        for x, y in batches:
            self.net.update(x, y, self.opt)
net, other = Net().to(device), Net().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
RUN
"""
BY_ITSELF = {
    "by its name": ("for x, y in data:\n    net.update(x, y, opt)", True),
    "in an object": ("Trainer(net, opt).train(data)", True),
    "in an object that is kept": ("t = Trainer(net, opt)\nt.train(data)", True),
    "another": ("Trainer(other, opt).train(data)", False),
    "one or another": (
        "some = net if len(data) > 3 else other\nTrainer(some, opt).train(data)",
        False,
    ),
    "in turn": (
        "for i, (x, y) in enumerate(data):\n"
        "    one = net if i % 2 else other\n    one.update(x, y, opt)",
        False,
    ),
    "another from the second step on": (
        "t = Trainer(net, opt)\nfor batch in data:\n    t.train([batch])\n    t.net = other",
        False,
    ),
    "by another name, too": (
        "some = net if len(data) > 3 else other\n"
        "for x, y in data:\n    some(x)\n    net.update(x, y, opt)",
        True,
    ),
}


@pytest.mark.parametrize("name", BY_ITSELF)
def test_a_module_that_clears_itself(name: str) -> None:
    """Which one it is, the calls tell that lead there."""
    run, is_cleared = BY_ITSELF[name]
    source = OF_ITSELF.replace("RUN", run)
    if is_cleared:
        assert migrated(source)
    else:
        assert left_alone(source) == "AMP031"


SEVERAL = """\
import copy
class Box:
    def __init__(self):
        self.net = make().to(device)
    def update(self, x, y, opt):
        CLEAR
        loss = criterion(self.net(x), y)
        loss.backward()
        CLIP
        opt.step()
def boxed():
    return Box()
MADE
opt = torch.optim.SGD(one.net.parameters(), lr=0.1)
for x, y in data:
    one.update(x, y, opt)
    RUN
"""
BESIDE = {
    "no other": ("one = Box()", "pass", ""),
    "no other, of a function": ("one = boxed()", "pass", ""),
    "two": ("one, two = Box(), Box()", "two.update(x, y, opt)", "left"),
    "two of a function": (
        "one = boxed()\ntwo = boxed()",
        "two.update(x, y, opt)",
        "left",
    ),
    "a copy": (
        "one = Box()\ntwo = copy.deepcopy(one)",
        "two.update(x, y, opt)",
        "left",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize(
    ("clear", "clip", "code"),
    [
        ("self.net.zero_grad()", "pass", "AMP031"),
        ("opt.zero_grad()", CLIP.replace("model", "self.net"), "AMP030"),
    ],
)
def test_what_one_of_several_objects_has(
    clear: str, clip: str, code: str, name: str
) -> None:
    """An attribute's name says nothing of whose it is."""
    made, run, left = BESIDE[name]
    source = SEVERAL.replace("MADE", made).replace("RUN", run)
    source = source.replace("CLEAR", clear).replace("CLIP", clip)
    if left:
        assert left_alone(source) == code
    else:
        assert migrated(source)


@pytest.mark.parametrize("name", NOT_CLEARED)
def test_gradients_of_an_earlier_step_are_left(name: str) -> None:
    assert left_alone(with_zeroing(*NOT_CLEARED[name])) == "AMP031"


REBOUND = {
    # name: (what a parameter is bound to anew, whether all that is trained is cleared)
    "one of its layers": ("net[0]", False),
    "one of its layers, by a function": ("first(net)", False),
    "what is wrapped": ("net.module", True),
}


@pytest.mark.parametrize("name", REBOUND)
def test_a_parameter_that_is_bound_to(name: str) -> None:
    value, clears_all = REBOUND[name]
    source = f"""\
def first(layers):
    return layers[0]
def train(net, opt):
    whole = net
    if len(data) > 100:
        net = {value}
    for x, y in data:
        x, y = x.to(device), y.to(device)
        net.zero_grad()
        loss = criterion(whole(x), y)
        loss.backward()
        opt.step()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)).to(device)
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""
    if clears_all:
        assert "scaler.step(opt)" in migrated(source)
    else:
        assert left_alone(source) == "AMP031"


def test_all_of_a_module_that_keeps_some_in_a_list() -> None:
    """``self.params`` is a list like others, not the parameters of all that ``self`` is."""
    source = """\
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = make(), make()
        self.params = list(self.a.parameters())
        self.opt = torch.optim.SGD(self.params, lr=0.1)

    def forward(self, x):
        return self.a(x) + self.b(x)

    def step(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(CLIPPED, 1.0)
        self.opt.step()


both = Both().to(device)
for x, y in data:
    both.step(x, y)
"""
    assert left_alone(source.replace("CLIPPED", "self.parameters()")) == "AMP030"
    grown = source.replace("list(self.a.parameters())", "[]").replace(
        "        self.opt =",
        "        self.params += list(self.a.parameters())\n        self.opt =",
    )
    assert left_alone(grown.replace("CLIPPED", "self.parameters()")) == "AMP030"
    assert "self.scaler.unscale_(self.opt)" in migrated(
        source.replace("CLIPPED", "self.a.parameters()")
    )


WRAPPED = """\
class Trainer:
    def __init__(self, net, opt):
        self.net = net.to(device)
        self.net = nn.DataParallel(AROUND)
        self.opt = opt
    def fit(self):
        for x, y in data:
            self.opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.opt.step()
Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1)).fit()
"""


def test_a_model_that_is_wrapped_where_it_is_kept() -> None:
    assert "unscale_(self.opt)" in migrated(WRAPPED.replace("AROUND", "self.net"))
    other = WRAPPED.replace("AROUND", "make().to(device)")
    assert left_alone(other) in ("AMP011", "AMP030")


PARTS_OF_ONE = """\
class Both(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first = first
        self.second = second
    def forward(self, x):
        return self.second(self.first(x))

def build(kind):
    if kind == 1:
        net = nn.Linear(8, 16)
    elif kind == 2:
        net = nn.Sequential(nn.Linear(8, 16))
    else:
        raise ValueError(kind)
    return net.to(device)

def optimizers(first, second):
    return (torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters()))

def train(both, each):
    for x, y in data:
        both.zero_grad()
        criterion(both(x), y).backward()
        for optimizer in each:
            optimizer.step()

def main():
    second = nn.Linear(16, 3).to(device)
    MADE
    both = Both(CLEARED, second)
    each = optimizers(HELD, second)
    train(both, each)
main()
"""  # what is cleared is a whole, what is held are its parts
IN_ROUNDS = 'for key in "ab":\n        first = build(1)\n        '


@pytest.mark.parametrize(
    ("made", "cleared", "held", "same"),
    [
        ("first = build(len(data) // 3)", "first", "first", True),
        ("first = build(1)\n    other = build(2)", "first", "other", False),
        ("first = [build(1) for _ in range(2)]", "first[0]", "first[1]", False),
        (f"made = []\n    {IN_ROUNDS}made.append(first)", "made[0]", "made[1]", False),
        (f"made = []\n    {IN_ROUNDS}made.append(first)", "made[0]", "first", False),
        (f"made = {{}}\n    {IN_ROUNDS}made[key] = first", "made['a']", "first", False),
        (f"{IN_ROUNDS}if key == 'a':\n            old = first", "old", "first", False),
        (f"{IN_ROUNDS}print(key)", "first", "first", True),
    ],
)
def test_one_of_several_that_one_place_makes(
    made: str, cleared: str, held: str, same: bool
) -> None:
    source = PARTS_OF_ONE.replace("MADE", made)
    source = source.replace("CLEARED", cleared).replace("HELD", held)
    for text in (source, source.replace("build(1)", "nn.Linear(8, 16).to(device)")):
        if same:
            assert migrated(text)
        else:
            assert left_alone(text) in ("AMP012", "AMP031")


CHOSEN = """\
NETS
opt = torch.optim.SGD([*nets[0].parameters(), *nets[1].parameters()], lr=0.1)
def train(net, x, y):
    CLEARED
    criterion(net(x), y).backward()
    opt.step()
for i, (x, y) in enumerate(data):
    train(nets[i % 2], x, y)
"""
LISTED = "nets = [nn.Linear(8, 3).to(device) for _ in range(2)]"
NAMED = "nets = {0: nn.Linear(8, 3).to(device), 1: nn.Linear(8, 3).to(device)}"


@pytest.mark.parametrize("nets", [LISTED, NAMED])
@pytest.mark.parametrize(
    ("cleared", "same"),
    [
        ("nets[0].zero_grad(); nets[1].zero_grad()", True),
        ("nets[0].zero_grad()", False),
        ("nets[i % 3 // 2].zero_grad()", False),
        ("nets[i % 2].zero_grad(); nets[1 - i % 2].zero_grad()", False),
    ],
)
def test_one_of_several_that_is_chosen_by_a_key(
    nets: str, cleared: str, same: bool
) -> None:
    source = CHOSEN.replace("NETS", nets).replace("CLEARED", cleared)
    if same:
        assert migrated(source)
    else:
        assert left_alone(source) == "AMP031"


def test_what_a_size_is_called_makes_it_no_module() -> None:
    """``m`` is a module elsewhere; what is computed of tensors touches no gradients."""
    assert "unscale_" not in migrated("""\
for m in [nn.Linear(3, 3)]:
    m.eval()
def squares(a):
    m, n = a.size(0), a.size(1)
    return torch.pow(a, 2).sum(1, keepdim=True).expand(m, n)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    criterion(model(x), y).backward()
    print(squares(x).shape)
    opt.step()
""")


PAIR = """\
class Pair:
    def __init__(self, one, two):
        self.one, self.two = one, two
    def parameters(self):
        HANDS
    def named(self):
        for name, p in self.one.named_parameters():
            yield name, p
        for name, p in self.two.named_parameters():
            yield name, p
pair = Pair(model, nn.Linear(3, 3).to(device))
opt = torch.optim.SGD(GIVEN, lr=0.1)
for x, y in data:
    opt.zero_grad()
    criterion(pair.two(pair.one(x)), y).backward()
    nn.utils.clip_grad_norm_(CLIPPED, 1.0)
    opt.step()
"""
BOTH = "yield from self.one.parameters(); yield from self.two.parameters()"


@pytest.mark.parametrize(
    ("hands", "given", "clipped", "code"),
    [
        (BOTH, "pair.parameters()", "pair.parameters()", ""),
        (BOTH, "[p for _, p in pair.named()]", "pair.parameters()", ""),
        (BOTH, "pair.parameters()", "pair.one.parameters()", ""),
        (BOTH, "pair.one.parameters()", "pair.parameters()", "AMP030"),
        (
            "for p in self.one.parameters():\n            if p.ndim > 1:\n                yield p",
            "pair.parameters()",
            "pair.one.parameters()",
            "AMP030",
        ),
        (
            f"{BOTH}; yield from self.one.parameters()",
            "pair.parameters()",
            "pair.parameters()",
            "AMP012",
        ),
    ],
)
def test_parameters_that_a_generator_hands_out(
    hands: str, given: str, clipped: str, code: str
) -> None:
    source = PAIR.replace("HANDS", hands).replace("GIVEN", given)
    source = source.replace("CLIPPED", clipped)
    if code:
        assert left_alone(source) == code
    else:
        assert "scaler.unscale_(opt)" in migrated(source)


ONE_OF = """\
import sys
def chosen(full):
    if full:
        RETURN
    rest = list(model[0].parameters())
    return REST
GIVEN = chosen(len(sys.argv) > 1)
opt = torch.optim.SGD(given, lr=0.1)
"""


@pytest.mark.parametrize(
    ("returned", "rest", "given"),
    [
        ("return model.parameters()", "rest", "given"),
        ("return model.parameters(), 1", "[p for p in rest], 2", "given, n"),
        (
            "found = [p for p in model.parameters()]; return found, 1",
            "[p for p in rest], 2",
            "given, n",
        ),
    ],
)
def test_one_of_several_lists(returned: str, rest: str, given: str) -> None:
    """What only one of them has is not known to be held."""
    source = ONE_OF.replace("RETURN", returned).replace("REST", rest)
    source = source.replace("GIVEN", given) + LOOP.replace("TOUCH", CLIP)
    assert left_alone(source) == "AMP030"
    both = source.replace("model[0]", "model")
    assert "scaler.unscale_(opt)" in migrated(both)


OWN_LISTS = """\
class Base:
    def start(self, decay):
        found, decay = split(self, decay)
        self.opt = torch.optim.SGD(found, lr=0.1, weight_decay=decay)
def split(whole, decay):
    if decay == 0:
        return whole.HELD(), decay
    flat, deep = [], []
    for p in whole.HELD():
        (flat if p.ndim == 1 else deep).append(p)
    return [{"params": flat, "weight_decay": 0.0}, {"params": deep}], decay
class One(Base):
    def __init__(self):
        self.net = make().to(device)
    def run(self, x):
        return self.net(x)
    def parameters(self):
        return self.net.parameters()
    def some(self):
        return self.parameters()
UPDATE
class Two(Base):
    def __init__(self):
        self.enc = nn.Linear(8, 8).to(device)
        self.dec = nn.Linear(8, 3).to(device)
    def run(self, x):
        return self.dec(self.enc(x))
    def parameters(self):
        yield from self.enc.parameters()
        yield from self.dec.parameters()
    def some(self):
        return self.enc.parameters()
UPDATE
one, two = One(), Two()
one.start(0.1)
two.start(0)
for x, y in data:
    one.update(x, y)
    two.update(x, y)
"""
UPDATE = """\
    def update(self, x, y):
        self.opt.zero_grad()
        criterion(self.run(x), y).backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.opt.step()
"""


@pytest.mark.parametrize("held", ("parameters", "some"))
def test_parameters_by_a_method_of_each_subclass(held: str) -> None:
    source = OWN_LISTS.replace("HELD", held).replace("UPDATE\n", UPDATE)
    if held == "parameters":
        assert migrated(source).count("self.scaler.unscale_(self.opt)") == 2
    else:
        assert "AMP030" in left_alone(source)


PARALLEL = """\
 class Net(nn.Module):
     def __init__(self):
         super().__init__()
         self.layer = nn.Linear(8, 3)
         self.gain = torch.ones(3, device=device, requires_grad=True)
         self.gains = [self.gain]
     def own_gains(self):
         return self.gains
     def forward(self, x):
         return self.layer(x) * self.gain
 def main():
     model = Net()
     model = nn.DataParallel(model)
     model = model.to(device)
     opt = torch.optim.SGD(model.module.own_gains(), lr=0.1)
+    scaler = BORN
     for epoch in range(2):
-        train(model, opt)
+        train(model, opt, scaler=scaler)
-def train(model, opt):
+def train(model, opt, scaler):
     for x, y in data:
         opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST
+            loss = criterion(model(x), y)
+        scaler.scale(loss).backward()
+        scaler.unscale_(opt)
         torch.nn.utils.clip_grad_norm_(model.module.own_gains(), 1.0)
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
 main()
"""


def test_a_method_of_what_a_wrapper_runs() -> None:
    diff = written_out(PARALLEL)
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)


TWINS = """\
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(8, 3), nn.Linear(3, 3)
    def groups(self):
        return [{"params": self.layer.parameters()}, {"params": self.head.parameters()}]
    def forward(self, x):
        return self.head(self.layer(x))
one, two = Part().to(device), Part().to(device)
opt = torch.optim.SGD(one.groups() + two.groups(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(one(x) + two(x), y)
    loss.backward()
    opt.step()
"""
WRAPS = "".join(f"{one} = nn.DataParallel({one})\n" for one in ("one", "two"))


@pytest.mark.parametrize("wraps", ("", WRAPS))
def test_parts_of_two_objects_of_one_class(wraps: str) -> None:
    source = TWINS.replace("opt = ", f"{wraps}opt = ", 1)
    if wraps:
        source = source.replace(".groups()", ".module.groups()")
    assert "scaler.step(opt)" in migrated(source)
    assert left_alone(source.replace("two.", "one.")) == "AMP012"
    shared = source.replace("opt = ", "two.layer = one.layer\nopt = ", 1)
    assert left_alone(shared) == "AMP012"


_PUT_IN = """\
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Linear(8, 3).to(device)
kept = nn.ModuleList()
kept.append(net)
opt = torch.optim.SGD(kept.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(4, 8, device=device), torch.randn(4, 3, device=device)
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
"""


def test_what_is_put_into_a_list_of_modules_is_no_stranger() -> None:
    result = migrate_source(_PUT_IN)
    assert result.changed, result.diagnostics
    strange = _PUT_IN.replace("kept = nn.ModuleList()\nkept.append(net)\n", "")
    (found,) = migrate_source(strange.replace("kept", "nn.Linear(8, 3)")).diagnostics
    assert found.code == "AMP011"


MADE_FOR = """\
def build():
    layer = nn.Linear(8, 3)
    return Part(layer).to(device)
one, two = build(), build()
"""


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (MADE_FOR, True),
        (
            "layer = nn.Linear(8, 3)\n"
            + MADE_FOR.replace("    layer = nn.Linear(8, 3)\n", ""),
            False,
        ),
        ("layer = nn.Linear(8, 3)\none, two = Part(layer), Part(layer)\n", False),
    ],
)
def test_parts_that_two_objects_are_given(made: str, known: bool) -> None:
    source = TWINS.replace("__init__(self)", "__init__(self, layer)")
    source = source.replace(
        "self.layer, self.head = nn.Linear(8, 3), ", "self.layer, self.head = layer, "
    )
    source = source.replace("one, two = Part().to(device), Part().to(device)\n", made)
    assert (left_alone(source) == "AMP012") if not known else migrated(source)


def test_a_variable_that_is_asked_for_by_its_name() -> None:
    seen = "for key in ('x', 'loss'):\n        print(eval(key).sum().item())"
    output = migrated(program(SGD, seen))
    assert "unscale_" not in output
    grads = seen.replace("'loss'", "'model[0].weight.grad'")
    assert left_alone(program(SGD, grads)) == "AMP030"
    given = seen.replace("('x', 'loss')", "input().split()")
    assert left_alone(program(SGD, given)) == "AMP030"
    attribute = given.replace(":\n", ":\n        hasattr(data, key)\n", 1)
    assert migrated(program(SGD, attribute)) == output.replace(seen, attribute)


@pytest.mark.parametrize(
    "change",
    [
        'opt.param_groups[0]["params"].pop()',
        'group = opt.param_groups[0]["params"]\ndel group[2:]',
        'for group in opt.param_groups:\n    group["params"] = group["params"][:2]',
        "opt.param_groups = opt.param_groups[:0]",
    ],
)
def test_what_is_taken_out_of_an_optimizer_is_not_unscaled(change: str) -> None:
    assert left_alone(program(f"{SGD}\n{change}", CLIP)) == "AMP030"
    assert "unscale_" not in migrated(program(f"{SGD}\n{change}", "pass"))
    kept = 'for group in opt.param_groups:\n    group["lr"] = group["params"][0].mean().item()'
    assert "unscale_(opt)" in migrated(program(f"{SGD}\n{kept}", CLIP))


KEEPS_OPTIONS = """\
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--which", default="one")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args([])
    return args
class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.body = nn.Linear(4, 8)
    def forward(self, x):
        return self.body(x)
class One:
    def __init__(self, args):
        self.net = Net(args).to(device)
        self.weights = list(self.net.parameters())
        self.optimizer = torch.optim.SGD(self.weights, lr=args.lr)
    def learn(self, x, y):
        loss = F.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
TWO
class Agents:
    def __init__(self, args):
        if args.which == "one":
            self.policy = One(args)
        else:
            self.policy = Two(args)
    def train(self, x, y):
        self.policy.learn(x, y)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(16, 4), torch.randn(16, 8)) for _ in range(3)]
for i in range(2):
    args = get_args()
    agents = Agents(args)
    for x, y in loader:
        agents.train(x.to(device), y.to(device))
"""


def test_options_that_modules_keep_are_no_part_of_them() -> None:
    one = KEEPS_OPTIONS.partition("class One:")[2].partition("TWO\n")[0]
    source = KEEPS_OPTIONS.replace("TWO\n", f"class Two:{one}")
    output = migrate_source(source, path="train.py").output
    assert output.count("self.scaler.unscale_(self.optimizer)") == 2
    assert check_off(source, output) == []
    assert check_scaled(source, output) == []
    shared = source.replace("parser.parse_args([])", "nn.Linear(4, 8)")
    shared = shared.replace("args.lr", "0.1").replace("args.which", '"one"')
    (found,) = migrate_source(shared, path="train.py").diagnostics
    assert found.code == "AMP030"


PERHAPS_MORE = """\
class Algorithm:
    def __init__(self, more=True):
        self.more = more
        self.one = model
        self.two = None
        MADE
        self.opt = torch.optim.SGD(self.parameters(), lr=0.1)
        LATER
    def parameters(self):
        yield from self.one.parameters()
        TEST
            yield from self.two.parameters()
    def fit(self, x, y):
        self.opt.zero_grad()
        out = self.one(x)
        if self.two is not None:
            out = self.two(out)
        criterion(out, y).backward()
        nn.utils.clip_grad_norm_(self.parameters(), 0.1)
        self.opt.step()
algorithm = Algorithm()
for x, y in data:
    algorithm.fit(x, y)
CHANGED
"""
_MORE = "if self.more:\n            self.two = nn.Linear(3, 3).to(device)"
_ALWAYS = "self.two = nn.Linear(3, 3).to(device)"


@pytest.mark.parametrize(
    ("made", "test", "later", "changed", "code"),
    [
        (_MORE, "if self.more:", "", "", ""),
        (_MORE, "if self.two is not None:", "", "", ""),
        (_ALWAYS, "if self.two:", "", "", ""),
        (_ALWAYS, "if self.more:", "", "", ""),
        (_MORE, "if len(data) > 3:", "", "", "AMP030"),
        (_MORE, "if self.more:", "", "algorithm.more = False", "AMP030"),
        ("", "if self.two is not None:", _ALWAYS, "", "AMP011"),
    ],
)
def test_parameters_of_what_is_perhaps_there(
    made: str, test: str, later: str, changed: str, code: str
) -> None:
    source = PERHAPS_MORE.replace("MADE", made).replace("TEST", test)
    source = source.replace("LATER", later).replace("CHANGED", changed)
    if code:
        assert left_alone(source) == code
    else:
        output = migrated(source)
        assert "self.scaler.unscale_(self.opt)" in output
        trained = HEAD + source, HEAD + output
        assert check_off(*trained) == check_scaled(*trained) == []


ASKED_AGAIN = """\
import sys
class Agent:
    def parameters(self):
        raise NotImplementedError
class One(Agent):
    def build(self):
        self.net = nn.Linear(8, 3).to(device)
    def run(self, x):
        return self.net(x)
    def parameters(self):
        return self.net.parameters()
class Two(Agent):
    def build(self):
        self.net = nn.Linear(8, 8).to(device)
        self.head = nn.Linear(8, 3).to(device)
    def run(self, x):
        return self.head(self.net(x))
    def parameters(self):
        BOTH
class Algorithm:
    def build(self, agent):
        self.agent = agent
        self.opt = torch.optim.SGD(HELD, lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        criterion(self.agent.run(x), y).backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 1.0)
        self.opt.step()
class Other(Algorithm):
    def update(self, x, y):
        self.opt.zero_grad()
        criterion(self.agent.run(x), y).backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 0.1)
        self.opt.step()
class Runner:
    def __init__(self, algorithm, agent):
        self.algorithm, self.agent = algorithm, agent
    def train(self):
        self.agent.build()
        self.algorithm.build(self.agent)
        for x, y in data:
            self.algorithm.update(x, y)
def train(algorithm, options):
    Runner(algorithm, **options).train()
if len(sys.argv) > 9:
    train(*sys.argv[1:])
train(Algorithm(), {"agent": One()})
train(Algorithm(), {"agent": Two()})
train(Other(), {"agent": One()})
"""
_BOTH = "yield from self.net.parameters(); yield from self.head.parameters()"
_TESTS = "yield from self.net.parameters()\n        if len(data) > 3: yield from self.head.parameters()"


@pytest.mark.parametrize(
    ("both", "held", "is_same"),
    [
        (_BOTH, "self.agent.parameters()", True),
        (_BOTH, "agent.parameters()", True),
        (_BOTH, "self.agent.net.parameters()", False),
        (_TESTS, "self.agent.parameters()", False),
    ],
)
def test_what_an_optimizer_was_given_is_asked_for_again(
    both: str, held: str, is_same: bool
) -> None:
    """Whichever object it is that is asked, if nothing but its attributes decides what it gives."""
    source = ASKED_AGAIN.replace("BOTH", both).replace("HELD", held)
    if not is_same:
        assert "AMP030" in left_alone(source)
        return
    output = migrated(source)
    assert output.count("self.scaler.unscale_(self.opt)") == 2
    assert check_scaled(HEAD + source, HEAD + output) == []
    changed = source.replace("self.agent = agent", "self.agents = [agent]")
    last = "@property\n    def agent(self):\n        return self.agents[-1]\n"
    changed = changed.replace("class Algorithm:\n", f"class Algorithm:\n    {last}")
    if held.startswith("self"):
        assert left_alone(changed)


@pytest.mark.parametrize(
    "again",
    [
        "self.agent.reset()",
        "self.agent.head = nn.Linear(8, 3).to(device)",
        "self.algorithm.agent = self.agent",
    ],
)
def test_what_a_loop_sets_anew_is_no_longer_what_was_given(again: str) -> None:
    """Gradients of a new head are none of the optimizer, and stay scaled."""
    source = ASKED_AGAIN.replace("BOTH", _BOTH).replace("HELD", "agent.parameters()")
    reset = "    def reset(self):\n        self.head = nn.Linear(8, 3).to(device)\n"
    source = source.replace("class Algorithm:\n", f"{reset}class Algorithm:\n")
    assert "self.scaler.unscale_(self.opt)" in migrated(source)
    update = "            self.algorithm.update(x, y)\n"
    changed = source.replace(update, f"            {again}\n{update}")
    assert "AMP030" in left_alone(changed)


ONE_OF_TWO = """\
one, two = make().to(device), make().to(device)
net = one if len(data) > 9 else two
opt = torch.optim.SGD(GIVEN.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    criterion(one(x) + two(x), y).backward()
    nn.utils.clip_grad_norm_(CLIPPED, 1.0)
    opt.step()
"""


@pytest.mark.parametrize("given", ("net", "(one if len(data) > 9 else two)"))
def test_one_of_two_is_held(given: str) -> None:
    """The gradients of the other stay scaled, and their norm is none that counts."""
    source = ONE_OF_TWO.replace("GIVEN", given)
    both = "[*one.parameters(), *two.parameters()]"
    assert left_alone(source.replace("CLIPPED", both)) == "AMP030"
    assert "scaler.unscale_(opt)" in migrated(
        source.replace("CLIPPED", f"{given}.parameters()")
    )


OF_WHOEVER = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(8, 3), nn.Linear(3, 3)
    def forward(self, x):
        return self.head(self.fc(x))
    def renew(self):
        RENEW
def train(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net.train(); net = MOVED
    for x, y in data:
        opt.zero_grad()
        criterion(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
    return net
def rounds(make):
    nets = list(range(2))
    for i in range(2):
        nets[i] = make().to(device)
        nets[i] = train(nets[i])
rounds(MAKE)
"""


@pytest.mark.parametrize("make", ("Net", "lambda: Net()"))
def test_a_parameter_of_a_function_is_one_module_all_the_time(make: str) -> None:
    source = OF_WHOEVER.replace("MAKE", make)
    kept = source.replace("RENEW", "return self.head")
    same, other = "net.to(device)", "make_another(net)"
    output = migrated(kept.replace("MOVED", same))
    assert output.count("scaler.unscale_(opt)") == 1
    assert output.count("autocast") == 1
    assert check_scaled(HEAD + kept.replace("MOVED", same), HEAD + output) == []
    assert left_alone(kept.replace("MOVED", other))
    renewed = source.replace("RENEW", "self.head = nn.Linear(3, 3)")
    assert left_alone(renewed.replace("MOVED", same)) == "AMP030"


_PAIR = "one, two = make().to(device), make().to(device)\n"
_IN_ITS_DICT = 'nets = {"one": make().to(device), "two": make().to(device)}\n'
CHANGED_PLACES = {
    "swapped": (f"{_PAIR}if first:\n    one, two = two, one\n", "one", "two"),
    "by a third name": (
        f"{_PAIR}if first:\n    old = one\n    one = two\n    two = old\n",
        "one",
        "two",
    ),
    "both chosen at once": (
        f"{_PAIR}a, b = (one, two) if first else (two, one)\n",
        "a",
        "b",
    ),
    "both chosen in turn": (
        f"{_PAIR}a = one if first else two\nb = two if first else one\n",
        "a",
        "b",
    ),
    "in branches": (
        f"{_PAIR}if first:\n    a, b = one, two\nelse:\n    a, b = two, one\n",
        "a",
        "b",
    ),
    "by a function": (
        "def order(a, b):\n    return (a, b) if first else (b, a)\n"
        f"{_PAIR}one, two = order(one, two)\n",
        "one",
        "two",
    ),
    "by a function that makes neither": (
        "def order(a, b):\n    if first:\n        a, b = b, a\n    return a, b\n"
        "one, two = order(make().to(device), make().to(device))\n",
        "one",
        "two",
    ),
    "in each turn of a loop": (
        f"{_PAIR}for _ in range(len(data) + first):\n    one, two = two, one\n",
        "one",
        "two",
    ),
    "elements that a method hands out": (
        "class Pair:\n    def __init__(self):\n"
        "        self.nets = [make().to(device), make().to(device)]\n"
        "    def get(self, number):\n        return self.nets[number]\n"
        "pair = Pair()\n",
        "pair.get(0)",
        "pair.get(1)",
    ),
    "attributes": (
        "class Pair:\n    def __init__(self):\n"
        "        self.one, self.two = make().to(device), make().to(device)\n"
        "pair = Pair()\nif first:\n    pair.one, pair.two = pair.two, pair.one\n",
        "pair.one",
        "pair.two",
    ),
    "elements of a list": (
        "nets = [make().to(device), make().to(device)]\n"
        "if first:\n    nets[0], nets[1] = nets[1], nets[0]\n",
        "nets[0]",
        "nets[1]",
    ),
    "under keys of which one is another": (
        f'{_IN_ITS_DICT}a, b = ("one", "two") if first else ("two", "one")\n',
        "nets[a]",
        "nets[b]",
    ),
    "one by itself, and one of both": (
        f"{_PAIR}a = one if first else two\n",
        "a",
        "one",
    ),
}


@pytest.mark.parametrize("name", CHANGED_PLACES)
def test_one_of_two_that_changed_places_is_held(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    made, held, other = CHANGED_PLACES[name]
    source = (
        f"first = len(data) > 9\n{made}"
        f"opt = torch.optim.SGD({held}.parameters(), lr=0.1)\n"
        "for x, y in data:\n    opt.zero_grad()\n"
        f"    criterion({held}(x) + {other}(x), y).backward()\n"
        "    nn.utils.clip_grad_norm_(CLIPPED, 1.0)\n    opt.step()\n"
    )
    alone = source.replace("CLIPPED", f"{held}.parameters()")
    output = migrated(alone)
    assert "scaler.unscale_(opt)" in output
    assert check_scaled(HEAD + alone, HEAD + output) == []
    both = f"[*{held}.parameters(), *{other}.parameters()]"
    assert left_alone(source.replace("CLIPPED", both)) == "AMP030"
    assert left_alone(source.replace("CLIPPED", f"{other}.parameters()")) == "AMP030"
    two = alone.replace(f"SGD({held}.parameters()", f"SGD({both}")
    if name != "one by itself, and one of both":
        assert "scaler.unscale_(opt)" in migrated(two)


@pytest.mark.parametrize(
    "change",
    [
        'nets["one"], nets["two"] = nets["two"], nets["one"]',
        'key = "two"',
        "nets[key] = make().to(device)",
    ],
)
def test_what_lies_under_a_key_is_another_behind_the_birth(change: str) -> None:
    source = (
        f'{_IN_ITS_DICT}key = "one"\n'
        "opt = torch.optim.SGD(nets[key].parameters(), lr=0.1)\nCHANGE\n"
        "for x, y in data:\n    opt.zero_grad()\n"
        "    criterion(nets[key](x), y).backward()\n"
        "    nn.utils.clip_grad_norm_(nets[key].parameters(), 1.0)\n    opt.step()\n"
    )
    assert left_alone(source.replace("CHANGE", change)) == "AMP011"
    moved = source.replace("CHANGE", "nets[key] = nets[key].to(device)")
    assert "scaler.unscale_(opt)" in migrated(moved)


@pytest.mark.parametrize(
    ("chosen", "given"),
    [
        ("net = self.one if first else self.two", "net"),
        ("self.net = self.one if first else self.two", "self.net"),
    ],
)
def test_one_of_two_attributes_is_held(chosen: str, given: str) -> None:
    source = f"""\
class Pair:
    def __init__(self, first):
        self.one, self.two = make().to(device), make().to(device)
        {chosen}
        self.opt = torch.optim.SGD({given}.parameters(), lr=0.1)
    def train(self):
        for x, y in data:
            self.opt.zero_grad()
            criterion(self.one(x) + self.two(x), y).backward()
            both = [*self.one.parameters(), *self.two.parameters()]
            nn.utils.clip_grad_norm_(both, 1.0)
            self.opt.step()
Pair(len(data) > 9).train()
"""
    assert left_alone(source) == "AMP030"


BUILDS = f"""\
{HEAD}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = make()
    def forward(self, x):
        return self.layers(x)
class Scheduled:
    def __init__(self, net):
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
    def advance(self):
        self.opt.step()
    def zero_grad(self):
        self.opt.zero_grad()
def build(train):
    net = Net().to(device)
    if train:
        scheduled = Scheduled(net)
        return net, scheduled
    return net
"""
TRAINS = """\
import torch
import torch.nn as nn
from builds import build, criterion, data
def main(args):
    model, opt = build(True)
    for x, y in data:
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.advance()
if __name__ == "__main__":
    main(3)
"""


@pytest.mark.parametrize(("imports", "known"), [("builds", True), ("train", False)])
def test_a_maker_that_another_script_calls_too(
    tmp_path: Path, imports: str, known: bool
) -> None:
    (tmp_path / "builds.py").write_text(BUILDS)
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "shows.py").write_text(
        f"import {imports}\nfrom builds import build, data\n"
        'if __name__ == "__main__":\n    net = build(False)\n    print(net(data[0][0]))\n'
    )
    changed = migrate_paths([tmp_path]).changed
    assert bool(changed) == known
    texts = [str(one.output, "utf-8") for one in changed]
    assert any("unscale_(opt.opt)" in text for text in texts) == known
