"""Optimizers that are taken out of a dict by a variable key, or as an attribute of a dict."""

from __future__ import annotations

import re

import pytest
from programs import before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

MUNCH = """\
 class Munch(dict):
     def __getattr__(self, key):
         try:
             return self[key]
         except KeyError:
             raise AttributeError(key)
     def __setattr__(self, key, value):
         self[key] = value
"""
SHORT = """\
 class Munch(dict):
     __getattr__ = dict.get
     __setattr__ = dict.__setitem__
     __delattr__ = dict.__delitem__
"""
OWN_DICT = """\
 class Munch(dict):
     def __init__(self, *args, **kwargs):
         super().__init__(*args, **kwargs)
         self.__dict__ = self
"""
TRAINER = """\
 class Trainer:
     def __init__(self, net):
         self.net = net
         MADE
+        self.scaler = BORN
     def train(self):
         for x, y in data:
             STEPS net=self.net opt=self.optims.main scaler=self.scaler
         print(LOOK)
 Trainer(model).train()
"""
OPTIMIZER = "torch.optim.SGD(net.parameters(), lr=0.1)"
IN_CALL = f"self.optims = Munch(main={OPTIMIZER})"


def _trainer(munch: str = MUNCH, made: str = IN_CALL, look: str = "") -> str:
    return munch + TRAINER.replace("MADE", made).replace("LOOK", look)


LEAGUE = """\
 names = ["red", "blue"]
 agents = {}
 for name in names:
     net = make().to(device)
     agents[name] = {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}
+scaler = BORN
"""
APART = """\
 class League:
     def __init__(self):
         self.nets, self.opts = {}, {}
         for name in ("red", "blue"):
             self.nets[name] = make().to(device)
             self.opts[name] = torch.optim.SGD(self.nets[name].parameters(), lr=0.1)
+        self.scaler = BORN
"""
RUN = """\
 league = League()
 for x, y in data:
     for name in ("red", "blue"):
         league.update(name, x, y)
"""
TURN = """\
 for x, y in data:
     for name in names:
"""
BY_NAME = """\
         agents[name]["opt"].zero_grad()
-        loss = criterion(agents[name]["net"](x), y)
-        loss.backward()
-        agents[name]["opt"].step()
+        AUTOCAST
+            loss = criterion(agents[name]["net"](x), y)
+        scaler.scale(loss).backward()
+        scaler.step(agents[name]["opt"])
+        scaler.update()
"""
AGENT = """\
         agent["opt"].zero_grad()
-        loss = criterion(agent["net"](x), y)
-        loss.backward()
-        agent["opt"].step()
+        AUTOCAST
+            loss = criterion(agent["net"](x), y)
+        scaler.scale(loss).backward()
+        scaler.step(agent["opt"])
+        scaler.update()
"""
TAKEN = "        agent = agents[name]\n"
UPDATE = """\
     def update(self, name, x, y):
         self.opts[name].zero_grad()
-        loss = criterion(self.nets[name](x), y)
-        loss.backward()
-        self.opts[name].step()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(self.nets[name](x), y)
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opts[name])
+        self.scaler.update()
"""
OPTIONS = """\
-def train(net, opt, data):
+def train(net, opt, data, scaler):
     for x, y in data:
         STEPS net=net
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
"""
PROGRAMS = {
    "of a call of dict, spread over parameters": f"""\
{OPTIONS} options = dict(net=model, opt=opt)
-train(data=data, **options)
+train(data=data, **options, scaler=scaler)
""",
    "of a call of dict, under a key": f"""\
{OPTIONS} parts = dict(net=model, opt=opt)
-train(parts["net"], parts["opt"], data)
+train(parts["net"], parts["opt"], data, scaler=scaler)
""",
    "a name, given to the call of a dict": _trainer(
        made=f"opt = {OPTIMIZER}\n+        scaler = BORN\n         self.optims = Munch(main=opt)"
    ).replace("self.scaler = BORN", "self.scaler = scaler"),
    "given to the call of a dict": _trainer(),
    "a dict of methods of dict": _trainer(SHORT),
    "a dict that is its own attributes": _trainer(OWN_DICT),
    "set as an attribute": _trainer(
        made=f"self.optims = Munch()\n         self.optims.main = {OPTIMIZER}"
    ),
    "set as an item": _trainer(
        made=f"self.optims = Munch()\n         self.optims['main'] = {OPTIMIZER}"
    ),
    "given a dict": _trainer(made=f"self.optims = Munch({{'main': {OPTIMIZER}}})"),
    "of a variable": f"""\
{SHORT} optims = Munch(main=torch.optim.SGD(model.parameters(), lr=0.1))
+scaler = BORN
 for x, y in data:
     STEPS opt=optims.main
""",
    "its items are counted": _trainer(look="len(self.optims)"),
    "all are cleared": _trainer().replace(
        "STEPS",
        "for one in self.optims.values():\n                 one.zero_grad()\n             STEPS",
    ),
    "by name": f"{LEAGUE}{TURN}{BY_NAME}",
    "by the dict's own keys": f"{LEAGUE}{TURN}{BY_NAME}".replace(
        "     for name in names", "     for name in agents"
    ),
    "by another name": f"{LEAGUE}{TURN} {TAKEN}{AGENT}",
    "a name for the optimizer": LEAGUE.replace(
        'agents[name] = {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}',
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "+    scaler = BORN\n"
        "     agents[name] = {'net': net, 'opt': opt}",
    ).replace("+scaler = BORN\n", "")
    + TURN
    + BY_NAME,
    "by a parameter": f"{APART}{UPDATE}{RUN}",
    "by a parameter, and a name": (
        f"{APART}{UPDATE}{RUN}".replace(
            "         self.opts[name].zero_grad",
            "         opt = self.opts[name]\n         opt.zero_grad",
        )
        .replace("scaler.step(self.opts[name])", "scaler.step(opt)")
        .replace("self.opts[name].step", "opt.step")
    ),
    "clipped": f"{LEAGUE}{TURN}{BY_NAME}".replace(
        '-        agents[name]["opt"].step()\n', ""
    ).replace(
        "+        scaler.step",
        '+        scaler.unscale_(agents[name]["opt"])\n'
        '         nn.utils.clip_grad_norm_(agents[name]["net"].parameters(), 1.0)\n'
        '-        agents[name]["opt"].step()\n'
        "+        scaler.step",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_migrated(name: str) -> None:
    source, expected = before_and_after(written_out(PROGRAMS[name]))
    assert migrated(source) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_as_before(name: str) -> None:
    trains_as_before(written_out(PROGRAMS[name]))


def _plain(diff: str) -> str:
    return before_and_after(written_out(diff))[0]


NAMED = _plain(f"{LEAGUE}{TURN}{BY_NAME}")
ALIAS = _plain(f"{LEAGUE}{TURN} {TAKEN}{AGENT}")
METHOD = _plain(f"{APART}{UPDATE}{RUN}")
STEP = '        agents[name]["opt"].step()\n'
UNCLEAR = {
    # Where the original does nothing, since there are no gradients, a scaler would raise.
    "another one steps": NAMED.replace(
        STEP, f'        other = "red"\n{STEP.replace("name", "other")}'
    ),
    "the key is changed before the step": NAMED.replace(
        STEP, f'        name = "red"\n{STEP}'
    ),
    "it is taken anew before the step": ALIAS.replace(
        '        agent["opt"].step()',
        '        agent = agents["red"]\n        agent["opt"].step()',
    ),
    "another one's loss": NAMED.replace('agents[name]["net"]', 'agents["red"]["net"]'),
    "all step for each": NAMED.replace(
        STEP, f'        for one in names:\n    {STEP.replace("name", "one")}'
    ),
    "they step in a loop of their own": NAMED.replace(
        STEP, f"    for name in names:\n{STEP}"
    ),
    "behind the loop that made them": NAMED.replace(
        "    for name in names:\n", "    if x is not None:\n"
    ),
    "a parameter for each": METHOD.replace(
        "name, x, y):", 'name, x, y, other="red"):'
    ).replace("self.opts[name].step()", "self.opts[other].step()"),
    "another method steps": METHOD.replace(
        "        self.opts[name].step()\n",
        "        self.apply('red')\n    def apply(self, name):\n        self.opts[name].step()\n",
    ),
    "kept under two keys": LEAGUE
    and NAMED.replace(STEP, f"{STEP}        agents[name]['again'].step()\n").replace(
        '{"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}',
        "dict(net=net, opt=(one := torch.optim.SGD(net.parameters(), lr=0.1)), again=one)",
    ),
    "a call of dict that is handed out of sight": (
        "import elsewhere\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "elsewhere.train(dict(opt=opt))\nfor x, y in data:\n    "
        "opt.zero_grad()\n    criterion(model(x), y).backward()\n    opt.step()\n"
    ),
    # What is seen of a dict would be a scaler, too.
    "it is saved": _plain(_trainer(look="torch.save(self.optims, 'optims.pt')")),
    "it has items of its own": _plain(
        _trainer(SHORT + "     def values(self):\n         return []\n")
    ),
    "it changes what it is given": _plain(
        _trainer(MUNCH.replace("self[key] = value", "self[key] = [value]"))
    ),
    "its attributes are none of its items": _plain(
        _trainer(
            SHORT.replace("     __setattr__ = dict.__setitem__\n", ""),
            f"self.optims = Munch()\n         self.optims.main = {OPTIMIZER}",
            "len(self.optims)",
        )
    ),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_it_is_not_clear(name: str) -> None:
    assert left_alone(UNCLEAR[name]) in ("AMP010", "AMP012", "AMP031")


def test_an_attribute_of_a_dict_would_be_counted() -> None:
    """A dict that is written in another way keeps its attributes as items all the same."""
    counted = before(
        "class Bag(dict):\n    __getattr__ = dict.__getitem__\n    __setattr__ = dict.__setitem__\n"
        "    size = property(len)\nbag = Bag()\n"
        "bag.opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    STEPS opt=bag.opt\nprint(len(bag))\n"
    )
    assert left_alone(counted) == "AMP035"


PAIR = """\
 nets = {"g": make().to(device), "d": make().to(device)}
 opts = {}
 for k in ("g", "d"):
     opts[k] = torch.optim.SGD(nets[k].parameters(), lr=0.1)
+g_scaler = BORN
+d_scaler = BORN
 for x, y in data:
     STEPS net=nets.g opt=opts.g scaler=g_scaler
     STEPS net=nets.d opt=opts.d scaler=d_scaler
"""
PAIR_OF_OBJECT = """\
 class Gan:
     def __init__(self):
         self.nets = {"g": make().to(device), "d": make().to(device)}
         self.opts = {}
         for k in ["g", "d"]:
             self.opts[k] = torch.optim.SGD(self.nets[k].parameters(), lr=0.1)
+        self.g_scaler = BORN
+        self.d_scaler = BORN
     def train(self, x, y):
         STEPS net=self.nets.g opt=self.opts.g scaler=self.g_scaler
         STEPS net=self.nets.d opt=self.opts.d scaler=self.d_scaler
 gan = Gan()
 for x, y in data:
     gan.train(x, y)
"""


def by_key(text: str) -> str:
    """The diff, whose ``opts.g`` stands for ``opts["g"]``."""
    return re.sub(r"(nets|opts)\.([gd])\b", r'\1["\2"]', written_out(text))


@pytest.mark.parametrize("name", [PAIR, PAIR_OF_OBJECT])
def test_a_loop_over_written_keys(name: str) -> None:
    diff = by_key(name)
    old, new = before_and_after(diff)
    assert migrated(old) == new
    trains_as_before(diff)


TWO = before_and_after(by_key(PAIR))[0]
FILL = "    opts[k] = torch.optim.SGD(nets[k].parameters(), lr=0.1)\n"
OTHERWISE = {
    "whose variable is read later": f"{TWO}print(k)\n",
    "whose variable says which one steps": TWO.replace(
        'opts["d"].step()', "opts[k].step()"
    ),
    "that makes some of them": TWO.replace(FILL, f"    if k != x:\n    {FILL}"),
    "that has an end": TWO.replace(FILL, f"{FILL}else:\n    opts['g'] = opts['d']\n"),
    "over one key twice": TWO.replace('("g", "d")', '("g", "d", "g")'),
    "over keys that are computed": TWO.replace('("g", "d")', 'sorted("gd")'),
    "over numbers": TWO.replace('("g", "d")', "(0, 1)")
    .replace('"g"', "0")
    .replace('"d"', "1"),
    "into a dict of its own kind": TWO.replace(
        "opts = {}",
        "class Opts(dict):\n    def __setitem__(self, key, value):\n"
        "        super().__setitem__('g', value)\nopts = Opts()",
    ),
    "that leaves gradients": TWO.replace('    opts["d"].zero_grad()\n', ""),
    "of which all step": f"{TWO}    for opt in opts.values():\n        opt.step()\n",
    "of what is called later": TWO.replace("nets[k].p", "(lambda: nets[k])().p"),
    "of what makes more than an optimizer": TWO.replace(
        "torch.optim.SGD(nets[k].parameters(), lr=0.1)", "pick(nets[k].parameters())"
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_loop_over_keys_that_is_left_alone(name: str) -> None:
    assert OTHERWISE[name] != TWO
    assert left_alone(OTHERWISE[name]) in ("AMP010", "AMP012", "AMP031")
