"""An optimizer in a named tuple: as that of a dict, its scaler stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import migrate_paths

STATE = """\
 from typing import NamedTuple
 class State(NamedTuple):
     net: nn.Module
     opt: torch.optim.Optimizer
"""
BUILD = f"""\
{STATE} def build():
     net = make().to(device)
     opt = torch.optim.SGD(net.parameters(), lr=0.1)
     return State(net, opt)
"""
MADE_BY = " state = build()\n+scaler = BORN\n"
LOOP = """\
 for x, y in data:
     STEPS net=state.net opt=state.opt
"""

OF_OBJECT = f"""\
{STATE} class Trainer:
     def __init__(self, net):
         opt = torch.optim.SGD(net.parameters(), lr=0.1)
+        scaler = BORN
         self.state = State(net, opt=opt)
+        self.scaler = scaler
     def train(self):
         for x, y in data:
             STEPS net=self.state.net opt=self.state.opt scaler=self.scaler
"""

TUPLES = {
    "one of two, by a name of its own": f"""\
{STATE} state = State(model, torch.optim.SGD(model.parameters(), lr=0.1))
+scaler = BORN
 net = make().to(device)
 other = State(net, torch.optim.SGD(net.parameters(), lr=0.1))
 for x, y in data:
     STEPS net=state.net opt=state.opt
""",
    "one of each object": f"""\
{OF_OBJECT} Trainer(model).train()
 Trainer(make().to(device)).train()
""",
    "one of each object, made at once": OF_OBJECT.replace(
        "         opt = torch.optim.SGD(net.parameters(), lr=0.1)\n+        scaler = BORN\n",
        "",
    )
    .replace("opt=opt)", "opt=torch.optim.SGD(net.parameters(), lr=0.1))")
    .replace("self.scaler = scaler", "self.scaler = BORN")
    + " for _ in range(2):\n     Trainer(model).train()\n",
    "made in a function": f"{BUILD}{MADE_BY}{LOOP}",
    "made with its optimizer": f"""\
{STATE} def build():
     net = make().to(device)
     return State(net, torch.optim.SGD(net.parameters(), lr=0.1))
{MADE_BY}{LOOP}""",
    "made by name at the top": f"""\
{STATE} opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 state = State(opt=opt, net=model)
{LOOP}""",
    "handed to the function that trains": f"""\
{BUILD}-def train(state):
+def train(state, scaler):
     state.net.train()
     for x, y in data:
         STEPS net=state.net opt=state.opt
 def main():
     state = build()
+    scaler = BORN
     for epoch in range(2):
-        train(state)
+        train(state, scaler=scaler)
 main()
""",
    "with a field that has a default": f"""\
 from typing import NamedTuple
 class State(NamedTuple):
     \"\"\"What is trained.\"\"\"
     net: nn.Module
     opt: torch.optim.Optimizer
     epoch: int = 0
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 state = State(model, opt)
 print(state.epoch)
{LOOP}""",
    "of two optimizers": """\
 from typing import NamedTuple
 class Pair(NamedTuple):
     first: torch.optim.Optimizer
     second: torch.optim.Optimizer
 other = make().to(device)
 first = torch.optim.SGD(model.parameters(), lr=0.1)
+first_scaler = BORN
 second = torch.optim.SGD(other.parameters(), lr=0.1)
+second_scaler = BORN
 pair = Pair(first, second)
 for x, y in data:
     STEPS opt=pair.first scaler=first_scaler
     STEPS net=other opt=pair.second scaler=second_scaler
""",
}


CLASS = before_and_after(STATE)[0]
FUNCTIONS = (
    'namedtuple("State", "net opt")',
    'collections.namedtuple("State", ["net", "opt"])',
    'namedtuple("S", ("net", "opt"))',
    'namedtuple("State", "net, opt")',
)
"""What makes the same class as ``State``."""


def by_function(text: str, mark: str = "", function: str = FUNCTIONS[0]) -> str:
    """A program whose named tuple a function makes; ``mark``: what stands before each line of it."""
    lines = (
        "import collections",
        "from collections import namedtuple",
        f"State = {function}",
    )
    made = "".join(f"{mark}{line}\n" for line in lines)
    written = STATE if mark else CLASS
    return text if f"{written}    " in text else text.replace(written, made)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", [n for n in TUPLES if STATE in TUPLES[n]])
def test_one_that_a_function_makes_is_migrated(name: str, function: str) -> None:
    diff = written_out(by_function(TUPLES[name], " ", function))
    old, new = before_and_after(diff)
    assert migrated(old) == new
    trains_as_before(diff)


@pytest.mark.parametrize("name", TUPLES)
def test_it_is_migrated(name: str) -> None:
    diff = written_out(TUPLES[name])
    old, new = before_and_after(diff)
    assert migrated(old) == new
    trains_as_before(diff)


MADE = before_and_after(written_out(BUILD))[0]
STEP = before("for x, y in data:\n    STEPS net=state.net opt=state.opt\n")
ONE = f"{MADE}state = build()\n"

OPEN = {
    "replaced": f"{ONE}state = state._replace(opt=torch.optim.Adam(state.net.parameters()))\n{STEP}",
    "replaced elsewhere": f"{ONE}def renew(s):\n    return s._replace(net=make())\n{STEP}",
    "made of a list": f"{ONE}more = State._make([model, None])\n{STEP}",
    "unpacked": f"{ONE}net, opt = state\n{STEP}",
    "unpacked where it is made": f"{MADE}net, opt = state = build()\n{STEP}",
    "unpacked in part": f"{ONE}net, *rest = state\n{STEP}",
    "unpacked in a function": f"""\
{ONE}def show(state):
    net, opt = state
show(state)
{STEP}""",
    "unpacked in another function": f"""\
{ONE}def show():
    net, opt = state
show()
{STEP}""",
    "taken by position": f"{ONE}last = state[-1]\n{STEP}",
    "stepped by position": STEP.join((ONE, "")).replace("state.opt", "state[1]"),
    "stepped both ways": f"{ONE}{STEP}    state[1].step()\n",
    "stepped under its first name": before(f"""\
{CLASS}opt = torch.optim.SGD(model.parameters(), lr=0.1)
state = State(model, opt)
_, again = state
for x, y in data:
    STEPS
    again.step()
"""),
    "gone through": f"{ONE}for part in state:\n    print(type(part))\n{STEP}",
    "gone through in a comprehension": f"{ONE}kinds = [type(p) for p in state]\n{STEP}",
    "counted": f"{ONE}print(len(state))\n{STEP}",
    "compared": f"{ONE}same = state == (model, None)\n{STEP}",
    "added to": f"{ONE}more = state + (1,)\n{STEP}",
    "printed": f"{ONE}print(state)\n{STEP}",
    "formatted": f"{ONE}text = f'{{state}}'\n{STEP}",
    "taken as a dict": f"{ONE}print(list(state._asdict()))\n{STEP}",
    "its fields": f"{ONE}print(State._fields)\n{STEP}",
    "matched": f"{ONE}match state:\n    case (net, opt):\n        pass\n{STEP}",
    "handed to code out of sight": f"{ONE}from elsewhere import fit\nfit(state)\n{STEP}",
    "saved": f"{ONE}torch.save(state, 'state.pt')\n{STEP}",
    "an argument by keyword, out of sight": f"{ONE}from elsewhere import fit\nfit(s=state)\n{STEP}",
    "handed to a method": f"""\
{ONE}class Logger:
    def log(self, state):
        net, opt = state
Logger().log(state)
{STEP}""",
    "handed to a lambda": f"{ONE}(lambda s: s[0])(state)\n{STEP}",
    "kept in a list": f"{ONE}states = [state]\n{STEP}",
    "kept in a list of new ones": f"{MADE}states = [build()]\nstate = states[0]\n{STEP}",
    "kept by an object": f"""\
{ONE}class Holder:
    pass
holder = Holder()
holder.state = state
net, opt = holder.state
{STEP}""",
    "kept by a class": f"""\
{MADE}class Holder:
    state = build()
net, opt = Holder.state
state = Holder.state
{STEP}""",
    "a default of a method": f"""\
{ONE}class Holder:
    def show(self, s=state):
        net, opt = s
{STEP}""",
    "a default of a function": f"{ONE}def show(s=state):\n    net, opt = s\n{STEP}",
    "one of two": f"{MADE}state, count = build(), 1\n{STEP}",
    "one or another": f"kind = None\n{ONE}state = state if kind else build()\n{STEP}",
    "returned beside something": f"""\
{MADE}def start():
    state = build()
    return state, 1
state, one = start()
{STEP}""",
    "yielded": f"{ONE}def each():\n    yield state\n{STEP}",
    "made by what is used as a value": f"{MADE}maker = build\nstate = maker()\n{STEP}",
    "made by a method": f"""\
{CLASS}class Maker:
    def build(self):
        return State(model, torch.optim.SGD(model.parameters(), lr=0.1))
state = Maker().build()
{STEP}""",
    "made by what is decorated": f"""\
import functools
{MADE.replace("def build", "@functools.lru_cache" + chr(10) + "def build")}state = build()
{STEP}""",
    "filled by a star": f"""\
{MADE}parts = [model, torch.optim.SGD(model.parameters(), lr=0.1)]
state = State(*parts)
{STEP}""",
    "its class under another name": f"{MADE}Other = State\nstate = build()\n{STEP}",
    "its class made in part": f"""\
from functools import partial
{MADE}of = partial(State, model)
state = build()
{STEP}""",
    "derived from": f"{MADE}class More(State):\n    pass\nstate = build()\n{STEP}",
    "with a method": f"""\
from typing import NamedTuple
class State(NamedTuple):
    net: nn.Module
    opt: torch.optim.Optimizer
    def parts(self):
        return list(self)
state = State(model, torch.optim.SGD(model.parameters(), lr=0.1))
{STEP}""",
    "two with different optimizers": f"""\
{MADE}one, two = build(), build()
state = one
{STEP}""",
    "two, one after the other": f"{MADE}state = build()\nother = build()\n{STEP}",
    "two that share a step": before(f"""\
{MADE}def advance(s):
    s.opt.step()
    s.opt.zero_grad()
one = build()
two = build()
for x, y in data:
    loss = criterion(one.net(x), y) + criterion(two.net(x), y)
    loss.backward()
    advance(one)
    advance(two)
"""),
    "one in each turn": f"""\
{MADE}for fold in range(2):
    state = build()
{"".join("    " + line for line in STEP.splitlines(True))}""",
    "one in each call": f"""\
{MADE}def run():
    state = build()
{"".join("    " + line for line in STEP.splitlines(True))}
run()
run()
""",
    "a function of its own": f"""\
def namedtuple(name, fields):
    return type(name, (), {{"__init__": lambda self, *parts: None, "net": model, "opt": None}})
State = namedtuple("State", "net opt")
state = State(model, torch.optim.SGD(model.parameters(), lr=0.1))
{STEP}""",
    "with defaults": f"""\
from collections import namedtuple
State = namedtuple("State", "net opt", defaults=(torch.optim.SGD(model.parameters(), lr=0.1),))
state = State(model)
{STEP}""",
    "of fields that are computed": f"""\
from collections import namedtuple
FIELDS = ["net", "opt"]
State = namedtuple("State", FIELDS)
state = State(model, torch.optim.SGD(model.parameters(), lr=0.1))
{STEP}""",
    "of fields that are renamed": f"""\
from collections import namedtuple
State = namedtuple("State", "net opt opt", rename=True)
state = State(model, torch.optim.SGD(model.parameters(), lr=0.1), None)
{STEP}""",
    "made once more": f"""\
from collections import namedtuple
State = namedtuple("State", "net opt")
state = State(model, torch.optim.SGD(model.parameters(), lr=0.1))
State = namedtuple("State", "opt net")
state = State(torch.optim.Adam(model.parameters(), lr=0.1), model)
{STEP}""",
    "with defaults that it is given later": f"""\
from collections import namedtuple
State = namedtuple("State", "net opt")
State.__new__.__defaults__ = (torch.optim.SGD(model.parameters(), lr=0.1),)
state = State(model)
{STEP}""",
    "of a wrapped optimizer": f"""\
from torch_optimizer import Lookahead
{CLASS}state = State(model, Lookahead(torch.optim.SGD(model.parameters(), lr=0.1)))
{STEP}""",
}


EACH = before_and_after(written_out(OF_OBJECT))[0]
OF_EACH = {
    "unpacked": "        net, opt = self.state\n        opt.step()\n",
    "by its place": "        self.state[1].step()\n",
    "as a dict": "        self.state._asdict()['opt'].step()\n",
    "another name": "        state = self.state\n        state.opt.step()\n",
    "made anew": "        self.state = State(self.state.net, torch.optim.Adam(model.parameters()))\n",
    "gone through": "        for part in self.state:\n            part.step()\n",
    "by its last place": "        self.state[-1].step()\n",
    "saved": "        torch.save(self.state, 'state.pt')\n",
    "compared": "        print(self.state == (1, 2))\n",
}


@pytest.mark.parametrize("name", OF_EACH)
def test_one_of_each_object_is_taken_otherwise(name: str) -> None:
    text = f"{EACH}    def other(self):\n{OF_EACH[name]}for _ in range(2):\n    Trainer(model).train()\n"
    assert left_alone(text) in ("AMP010", "AMP012", "AMP014", "AMP031")


BESIDE = frozenset(
    (
        "unpacked where it is made",
        "unpacked in a function",
        "unpacked in another function",
        "stepped by position",
        "gone through",
        "gone through in a comprehension",
        "counted",
        "its fields",
        "handed to a method",
        "a default of a method",
        "one of two",
        "returned beside something",
        "made by what is used as a value",
        "made by a method",
        "its class under another name",
        "its class made in part",
        "derived from",
        "two with different optimizers",
        "two, one after the other",
        "one in each turn",
        "one in each call",
    )
)


@pytest.mark.parametrize("name", sorted(BESIDE))
def test_the_scaler_stands_beside_it(name: str) -> None:
    output = migrated(OPEN[name])
    source = "".join(f"-{line}" for line in OPEN[name].splitlines(keepends=True))
    trains_as_before(
        source + "".join(f"+{x}" for x in output.splitlines(keepends=True))
    )


@pytest.mark.parametrize("name", sorted(OPEN.keys() - BESIDE))
def test_a_tuple_that_is_taken_otherwise(name: str) -> None:
    codes = ("AMP010", "AMP012", "AMP013", "AMP014", "AMP031")
    for text in {OPEN[name], by_function(OPEN[name])}:
        compile(HEAD + text, "train.py", "exec")
        assert left_alone(text) in codes


def test_what_another_file_unpacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(f"{HEAD}{ONE}{STEP}")
    for use in (
        "import train\nnet, opt = train.state\n",
        "from train import State as S\nS(1, 2)\n",
    ):
        Path("other.py").write_text(use)
        assert len(migrate_paths(["."]).changed) == 1


def test_a_named_tuple_without_fields() -> None:
    body = """\
from collections import namedtuple
Info = namedtuple("Info", [])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def learn(x, y):
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
    return Info()
for x, y in data:
    learn(x, y)
"""
    assert "scaler.step(opt)" in migrated(body)
