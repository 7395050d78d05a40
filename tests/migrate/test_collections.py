"""What is put into a collection comes out of it again, by whatever name either is done."""

from __future__ import annotations

import pytest
from half_support import check_runs

from amp_migrate.api import migrate_source

PROGRAM = """\
import torch
import torch.nn as nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(8, 6), torch.randn(8, 6)) for _ in range(3)]
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh()).to(device)
eye = torch.eye(6).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    h = model(x)
    loss = (h - y).pow(2).mean()
    loss.backward()
    optimizer.step()
    PUT
    print((TAKEN @ eye).sum().item())
"""
BY_ANOTHER_NAME = {
    "chained": ("a = b = []", "a.append(h)", "b[-1]"),
    "conditional": (
        "one, two = [], []\nkept = one if len(loader) > 2 else two",
        "kept.append(h)",
        "one[-1]",
    ),
    "a choice of one": (
        "one = []\nkept = one if one is not None else None",
        "kept.append(h)",
        "one[-1]",
    ),
    "each of two": (
        "one, two = [], []",
        "for kept in (one, two):\n        kept.append(h)",
        "one[-1]",
    ),
    "each of a list": (
        "one, two = [], []\nboth = [one, two]",
        "for kept in both:\n        kept.append(h)",
        "two[-1]",
    ),
    "zip": (
        "one, two = [], []",
        "for kept, v in zip([one, two], [h, h]):\n        kept.append(v)",
        "two[-1]",
    ),
    "nested item": ("outer = [{}]\nrow = outer[0]", "outer[0]['h'] = h", "row['h']"),
    "nested item 2": ("outer = [{}]\nrow = outer[0]", "row['h'] = h", "outer[0]['h']"),
    "nested each": (
        "outer = [{}, {}]",
        "for row in outer:\n        row['h'] = h",
        "outer[0]['h']",
    ),
    "nested dict": ("outer = {'a': {}}", "outer['a']['h'] = h", "outer['a']['h']"),
    "nested get": ("outer = {'a': {}}", "outer.get('a')['h'] = h", "outer['a']['h']"),
    "nested values": (
        "outer = {'a': []}",
        "for v in outer.values():\n        v.append(h)",
        "outer['a'][-1]",
    ),
    "nested items": (
        "outer = {'a': []}",
        "for k, v in outer.items():\n        v.append(h)",
        "outer['a'][-1]",
    ),
    "returned": (
        "def give(c):\n    return c\none = []\ntwo = give(one)",
        "two.append(h)",
        "one[-1]",
    ),
    "returned 2": (
        "def give(c):\n    return c\none = []\ntwo = give(one)",
        "one.append(h)",
        "two[-1]",
    ),
    "returned method": (
        "class K:\n"
        "    def __init__(self):\n"
        "        self.kept = []\n"
        "    def all(self):\n"
        "        return self.kept\n"
        "k = K()",
        "k.all().append(h)",
        "k.kept[-1]",
    ),
    "returned method 2": (
        "class K:\n"
        "    def __init__(self):\n"
        "        self.kept = []\n"
        "    def all(self):\n"
        "        return self.kept\n"
        "k = K()\n"
        "mine = k.all()",
        "mine.append(h)",
        "k.kept[-1]",
    ),
    "property": (
        "class K:\n"
        "    def __init__(self):\n"
        "        self.kept = []\n"
        "    @property\n"
        "    def all(self):\n"
        "        return self.kept\n"
        "k = K()",
        "k.all.append(h)",
        "k.kept[-1]",
    ),
    "tuple unpack": (
        "one, two = [], []\npair = (one, two)\na, b = pair",
        "a.append(h)",
        "one[-1]",
    ),
    "star": (
        "one, two = [], []\na, *rest = (one, two)",
        "rest[0].append(h)",
        "two[-1]",
    ),
    "given to a helper": (
        "def put(c, v):\n    c.append(v)\none, two = [], []",
        "put(one, h)\n    put(two, x)",
        "one[-1]",
    ),
    "given by name": (
        "def put(c, v):\n    c.append(v)\none, two = [], []",
        "put(c=one, v=h)\n    put(v=x, c=two)",
        "one[-1]",
    ),
    "given with a star": (
        "def put(c, v):\n    c.append(v)\none = []",
        "put(*(one, h))",
        "one[-1]",
    ),
    "given out of a dict": (
        "def put(c, v):\n    c.append(v)\none = []",
        "put(**{'c': one, 'v': h})",
        "one[-1]",
    ),
    "lambda": ("one = []\nadd = lambda v: one.append(v)", "add(h)", "one[-1]"),
    "lambda default": (
        "one = []\nadd = lambda v, c=one: c.append(v)",
        "add(h)",
        "one[-1]",
    ),
    "default": ("one = []\ndef put(v, c=one):\n    c.append(v)", "put(h)", "one[-1]"),
    "mutable default": (
        "def put(v, c=[]):\n    c.append(v)\n    return c",
        "one = put(h)",
        "one[-1]",
    ),
    "attribute of object": (
        "class K:\n    pass\nk = K()\nk.kept = []\none = k.kept",
        "k.kept.append(h)",
        "one[-1]",
    ),
    "given to init": (
        "class K:\n"
        "    def __init__(self, kept):\n"
        "        self.kept = kept\n"
        "    def put(self, v):\n"
        "        self.kept.append(v)\n"
        "one = []\n"
        "k = K(one)",
        "k.put(h)",
        "one[-1]",
    ),
    "class attribute": (
        "class K:\n    kept = []\nk = K()",
        "k.kept.append(h)",
        "K.kept[-1]",
    ),
    "subclass": (
        "class B:\n    kept = []\nclass K(B):\n    pass",
        "K.kept.append(h)",
        "B.kept[-1]",
    ),
    "global in function": (
        "one = []\ndef put(v):\n    global one\n    one = one + [v]",
        "put(h)",
        "one[-1]",
    ),
    "closure": (
        "def make():\n"
        "    kept = []\n"
        "    def put(v):\n"
        "        kept.append(v)\n"
        "    def last():\n"
        "        return kept[-1]\n"
        "    return put, last\n"
        "put, last = make()",
        "put(h)",
        "last()",
    ),
    "slice": ("one = [x for x in range(3)]", "one[0:1] = [h]", "one[0]"),
    "added in place": ("one = []\ntwo = one", "two += [h]", "one[-1]"),
    "named within an expression": (
        "print(len(one := []))\ntwo = one",
        "two.append(h)",
        "one[-1]",
    ),
    "update": ("one = {}\ntwo = one", "two.update({'h': h})", "one['h']"),
    "merged in place": ("one = {}\ntwo = one", "two |= {'h': h}", "one['h']"),
    "setdefault": ("one = {}", "one.setdefault('h', []).append(h)", "one['h'][-1]"),
    "setdefault alias": (
        "one = {}\nrow = one.setdefault('h', [])",
        "row.append(h)",
        "one['h'][-1]",
    ),
    "map": ("one = []", "list(map(one.append, [h]))", "one[-1]"),
    "comprehension": ("one = []", "[one.append(v) for v in (h,)]", "one[-1]"),
    "deque": (
        "import collections\none = collections.deque(maxlen=3)\ntwo = one",
        "two.appendleft(h)",
        "one[0]",
    ),
    "queue": (
        "import queue\none = queue.Queue()\ntwo = one",
        "two.put(h)",
        "one.get()",
    ),
    "namedtuple": (
        "import collections\nP = collections.namedtuple('P', 'kept')\np = P([])",
        "p.kept.append(h)",
        "p.kept[-1]",
    ),
    "dataclass field": (
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class D:\n"
        "    kept: list = dataclasses.field(default_factory=list)\n"
        "d = D()\n"
        "kept = d.kept",
        "kept.append(h)",
        "d.kept[-1]",
    ),
    "enumerate": (
        "rows = [[], []]",
        "for i, row in enumerate(rows):\n        row.append(h)",
        "rows[0][-1]",
    ),
    "one list twice": ("rows = [[]] * 2", "rows[1].append(h)", "rows[0][-1]"),
    "generator": (
        "def each(c):\n    for one in c:\n        yield one\nrows = [[], []]",
        "for row in each(rows):\n        row.append(h)",
        "rows[0][-1]",
    ),
    "names that change places": (
        "one, two = [], []\none, two = two, one",
        "one.append(h)\n    two.append(x)",
        "one[-1]",
    ),
    "three deep": (
        "s = {'a': {'b': {}}}\nb = s['a']['b']",
        "b['h'] = h",
        "s['a']['b']['h']",
    ),
    "three deep 3": (
        "s = {'a': {'b': {}}}\nb = s['a']\nc = b['b']",
        "s['a']['b']['h'] = h",
        "c['h']",
    ),
    "in attribute": (
        "class K:\n"
        "    def __init__(self, owner):\n"
        "        self.owner = owner\n"
        "class O:\n"
        "    def __init__(self):\n"
        "        self.kept = []\n"
        "o = O()\n"
        "k = K(o)",
        "k.owner.kept.append(h)",
        "o.kept[-1]",
    ),
    "a method that is kept": ("one = []\nadd = one.append", "add(h)", "one[-1]"),
    "an object's method that is kept": (
        "class K:\n"
        "    def __init__(self):\n"
        "        self.kept = []\n"
        "    def put(self, v):\n"
        "        self.kept.append(v)\n"
        "k = K()\n"
        "add = k.put",
        "add(h)",
        "k.kept[-1]",
    ),
    "insert": ("one = []\ntwo = one", "two.insert(0, h)", "one[0]"),
    "extend": ("one = []\ntwo = one", "two.extend([h])", "one[-1]"),
    "reversed": (
        "rows = [[], []]",
        "for row in reversed(rows):\n        row.append(h)",
        "rows[0][-1]",
    ),
    "filter": (
        "rows = [[], []]",
        "for row in filter(lambda r: r is not None, rows):\n        row.append(h)",
        "rows[0][-1]",
    ),
    "dict()": (
        "inner = {}\nouter = dict(a=inner)",
        "inner['h'] = h",
        "outer['a']['h']",
    ),
    "dict() 2": (
        "inner = {}\nouter = dict(a=inner)",
        "outer['a']['h'] = h",
        "inner['h']",
    ),
    "named in a try": (
        "one = []\ntry:\n    two = one\nexcept Exception:\n    two = []",
        "two.append(h)",
        "one[-1]",
    ),
    "from the end": ("rows = [[], []]", "rows[-1].append(h)", "rows[1][-1]"),
    "in a namespace": (
        "import types\nns = types.SimpleNamespace()\nns.kept = []\nmine = ns",
        "mine.kept.append(h)",
        "ns.kept[-1]",
    ),
    "a dict of one's own": (
        "class K(dict):\n    pass\nkept = K()",
        "kept['a'] = h",
        "kept['a']",
    ),
    "what a function keeps": (
        "KEPT = {}\ndef into(name):\n    return KEPT.setdefault(name, [])",
        "into('a').append(h)",
        "KEPT['a'][-1]",
    ),
}


@pytest.mark.parametrize("case", BY_ANOTHER_NAME)
def test_half_values_are_met_by_another_name(case: str) -> None:
    setup, put, taken = BY_ANOTHER_NAME[case]
    source = PROGRAM.replace("SETUP", setup).replace("PUT", put)
    source = source.replace("TAKEN", f"({taken})")
    output = migrate_source(source, path="train.py").output
    assert output != source
    check_runs(source, output)


BY_KEYS = """\
import torch
import torch.nn as nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(8, 6), torch.randn(8, 1)) for _ in range(3)]
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 1) for _ in range(2)])
    def forward(self, x):
        outputs = {}
        for i, layer in enumerate(self.layers):
            outputs["disp", i] = layer(x)
        return outputs
def loss_of(outputs, y):
    total = 0
    for i in range(2):
        total = total + torch.lerp(outputs["disp", i], y, 0.5).pow(2).mean()
    return total
model = Decoder().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    outputs = model(x)
    loss = loss_of(outputs, y)
    loss = loss + torch.lerp(outputs[("disp", 0)], y, 0.5).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize("key", ['"disp"', "None"])
def test_a_dict_with_tuples_for_keys_is_no_tensor(key: str) -> None:
    source = BY_KEYS.replace('"disp"', key)
    output = migrate_source(source, path="train.py").output
    assert output != source
    check_runs(source, output)


def test_a_key_with_none_tells_no_tensor() -> None:
    setup = """\
def loss_of(parts):
    return torch.inverse(parts[None, 0].t() @ parts[None, 0] + 3 * eye).mean()"""
    source = PROGRAM.replace("SETUP", setup).replace("PUT", "print(loss.item())")
    source = source.replace("    print((TAKEN @ eye).sum().item())\n", "")
    source = source.replace("(h - y).pow(2).mean()", "loss_of({(None, 0): h})")
    output = migrate_source(source, path="train.py").output
    assert output != source
    check_runs(source, output)
