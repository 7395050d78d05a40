"""Where optimizers come from, however they are imported, made, named and kept."""

from __future__ import annotations

import pytest
from programs import HEAD, before_and_after, left_alone, migrated
from shorthand import before, written_out

from amp_migrate.api import migrate_source

LOOP = "for x, y in data:\n    STEPS\n"

ONE_LINE = {
    "a module of torch": "opt = torch.optim.SGD(model.parameters(), lr=0.1)",
    "from torch import optim": "from torch import optim\nopt = optim.SGD(model.parameters(), lr=0.1)",
    "import torch.optim as": "import torch.optim as o\nopt = o.SGD(model.parameters(), lr=0.1)",
    "a class by another name": "from torch.optim import SGD as S\nopt = S(model.parameters(), lr=0.1)",
    "a star": "from torch.optim import *\nopt = Adam(model.parameters())",
    "torch by another name": "import torch as T\nopt = T.optim.SGD(model.parameters(), lr=0.1)",
    "getattr": 'opt = getattr(torch.optim, "SGD")(model.parameters(), lr=0.1)',
    "a table": 'kinds = {"a": torch.optim.SGD, "b": torch.optim.Adam}\n'
    'opt = kinds["a"](model.parameters(), lr=0.1)',
    "a class in a variable": "kind = torch.optim.SGD\nopt = kind(model.parameters(), lr=0.1)",
    "a tuple": "opt, rate = torch.optim.SGD(model.parameters(), lr=0.1), 0.1",
    "an annotation": "opt: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "a factory": "def build(net):\n    return torch.optim.SGD(net.parameters(), lr=0.1)\nopt = build(model)",
    "a factory of two": "def build(net):\n"
    "    net = net.to(device)\n"
    "    return net, torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "model, opt = build(model)",
    "a factory that chooses": "def build(adam):\n"
    "    if adam:\n"
    "        return torch.optim.Adam(model.parameters())\n"
    "    return torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "opt = build(False)",
    "a conditional expression": "fast = True\n"
    "opt = torch.optim.Adam(model.parameters()) if fast else torch.optim.SGD(model.parameters(), lr=0.1)",
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_LINE)
def test_made_by(name: str) -> None:
    made = "".join(f" {line}\n" for line in ONE_LINE[name].splitlines())
    diff = f"{made}+scaler = BORN\n for x, y in data:\n     STEPS\n"
    source, expected = before_and_after(written_out(diff))
    assert migrated(source) == expected


PROGRAMS = {
    "branches": """\
 import sys
 if len(sys.argv) > 5:
     opt = torch.optim.SGD(model.parameters(), lr=0.1)
 elif sys.argv:
     opt = torch.optim.Adam(model.parameters())
 else:
     opt = torch.optim.Adagrad(model.parameters())
+scaler = BORN
 for x, y in data:
     STEPS
""",
    "made again now and then": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for epoch in range(3):
     if epoch == 1:
         opt = torch.optim.SGD(model.parameters(), lr=0.01)
     for x, y in data:
         STEPS
""",
    "two more names": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 a = b = opt
 for x, y in data:
     a.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
-    b.step()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(b)
+    scaler.update()
""",
    "a local beside a global": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+grad_scaler = BORN
 def train():
     opt = torch.optim.Adam(model.parameters())
+    scaler = BORN
     for x, y in data:
         STEPS
 def finish(x, y):
     STEPS scaler=grad_scaler
 train()
 finish(*data[0])
""",
    "a method of one's own": """\
 class T:
     def __init__(self):
         self.opt = self.configure()
+        self.scaler = BORN
     def configure(self):
         return torch.optim.SGD(model.parameters(), lr=0.1)
     def one(self, x, y):
         STEPS opt=self.opt scaler=self.scaler
 for x, y in data:
     T().one(x, y)
""",
    "a base class": """\
 class Base:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
 class T(Base):
     def one(self, x, y):
         STEPS opt=self.opt scaler=self.scaler
 for x, y in data:
     T().one(x, y)
""",
    "two classes of one family": """\
 class T:
     opt = None
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
     def one(self, x, y):
         STEPS opt=self.opt scaler=self.scaler
 class U(T):
     def __init__(self):
         self.opt = torch.optim.Adam(model.parameters())
+        self.scaler = BORN
 for x, y in data:
     T().one(x, y)
     U().one(x, y)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    source, expected = before_and_after(written_out(PROGRAMS[name]))
    assert migrated(source) == expected


UNKNOWN = {
    "an import": ("from builders import opt\n", "AMP010"),
    "an imported factory": (
        "from builders import make_optimizer\nopt = make_optimizer(model)\n",
        "AMP010",
    ),
    "a factory that may give LBFGS": (
        "def build(kind):\n"
        "    if kind:\n"
        "        return torch.optim.LBFGS(model.parameters())\n"
        "    return torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "opt = build(0)\n",
        "AMP013",
    ),
    "perhaps LBFGS": (
        "opt = torch.optim.LBFGS(model.parameters()) if data else torch.optim.Adam(model.parameters())\n",
        "AMP013",
    ),
    "setattr": (
        "class T:\n    pass\n"
        "t = T()\n"
        'setattr(t, "opt", torch.optim.SGD(model.parameters(), lr=0.1))\n'
        "opt = t.opt\n",
        "AMP010",
    ),
    "globals": (
        'globals()["opt"] = torch.optim.SGD(model.parameters(), lr=0.1)\n',
        "AMP010",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name: str) -> None:
    made, code = UNKNOWN[name]
    assert left_alone(before(made + LOOP)) == code


OF_SELF = {
    "a property": "    @property\n    def opt(self):\n        return the_one\n",
    "a class attribute of a metaclass": "    __getattr__ = object.__getattribute__\n",
}


@pytest.mark.parametrize("name", OF_SELF)
def test_unknown_attribute(name: str) -> None:
    body = f"class T:\n{OF_SELF[name]}    def one(self, x, y):\n        STEPS opt=self.opt\n"
    assert left_alone(before(body)) == "AMP010"


def test_torch_that_is_not_torch() -> None:
    source = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n" + LOOP
    inner = "".join(f"    {line}\n" for line in source.splitlines())
    source = before(f"def main(torch):\n{inner}")
    assert left_alone(source) == "AMP035"
    (found,) = migrate_source(HEAD + source).diagnostics
    assert "what it is given is not followed" in found.message


def test_a_name_that_a_later_star_import_may_hide() -> None:
    """The optimizer's own name is the file's; what a star brings in is not taken for it."""
    source = HEAD + before(
        f"opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfrom math import *\n{LOOP}"
    )
    assert migrate_source(source).changed
