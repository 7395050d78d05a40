"""Optimizers that are kept in a namespace: ``state.optimizer``, where ``state`` is a `SimpleNamespace`."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_paths, migrate_source

SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"
ADAM = "torch.optim.Adam(model.parameters())"
IMPORTS = """\
 import argparse
 import types
 from types import SimpleNamespace
"""
MADE = f"""\
 state = SimpleNamespace(model=model, optimizer={SGD})
+scaler = BORN
"""
LOOP = """\
 for x, y in data:
     STEPS net=state.model opt=state.optimizer
"""
TRAIN = """\
-def train(state, data):
+def train(state, data, scaler):
     for x, y in data:
         STEPS net=state.model opt=state.optimizer
"""
RUN = """\
-train(state, data)
+train(state, data, scaler=scaler)
"""
SAVED = """\
 saved = {
     "model": state.model.state_dict(),
     "optimizer": state.optimizer.state_dict(),
+    "scaler": scaler.state_dict(),
 }
"""

TRAINER = f"""\
 class Trainer:
     def __init__(self):
         self.state = SimpleNamespace(model=model, optimizer={SGD})
+        self.scaler = BORN
     def train(self):
         for x, y in data:
             STEPS net=self.state.model opt=self.state.optimizer scaler=self.scaler
"""
FIT = " Trainer().train()\n"

PROGRAMS = {
    "of an object": TRAINER + FIT,
    "of an object, set later": TRAINER.replace(
        f", optimizer={SGD})", f")\n         self.state.optimizer = {SGD}"
    )
    + FIT,
    "of an object, made before": TRAINER.replace(
        f"        self.state = SimpleNamespace(model=model, optimizer={SGD})",
        f"        opt = {SGD}\n+        scaler = BORN\n"
        "         self.state = SimpleNamespace(model=model, optimizer=opt, epoch=0)",
    ).replace("self.scaler = BORN", "self.scaler = scaler")
    + FIT,
    "of two objects": TRAINER.replace("model", "net")
    .replace("state.net", "state.model")
    .replace("SimpleNamespace(net", "SimpleNamespace(model")
    .replace("self)", "self, net)", 1)
    + " Trainer(model).train()\n Trainer(make().to(device)).train()\n",
    "that a subclass asks for": f"""\
{TRAINER} class Other(Trainer):
     def rate(self):
         return self.state.optimizer.param_groups[0]["lr"]
 print(Other().rate())
 Other().train()
""",
    "made with it": MADE + LOOP,
    "of the module types": MADE.replace("Simple", "types.Simple") + LOOP,
    "of argparse": MADE.replace("SimpleNamespace", "argparse.Namespace") + LOOP,
    "set later": f"""\
 state = SimpleNamespace()
 state.model = model
 state.optimizer = {SGD}
+scaler = BORN
{LOOP}""",
    "at first there is none": f"""\
 state = SimpleNamespace(model=model, optimizer=None)
 state.optimizer = {SGD}
+scaler = BORN
{LOOP}""",
    "handed to a function": TRAIN + MADE + RUN,
    "handed on, under another name": f"""\
{TRAIN}-def epochs(s, n):
+def epochs(s, n, scaler):
     for _ in range(n):
-        train(s, data)
+        train(s, data, scaler=scaler)
{MADE}-epochs(state, 2)
+epochs(state, 2, scaler=scaler)
""",
    "set later, and handed to a method": f"""\
 class Trainer:
-    def train(self, s):
+    def train(self, s, scaler):
         for x, y in data:
             STEPS net=s.model opt=s.optimizer
 state = SimpleNamespace(model=model)
 state.optimizer = {SGD}
+scaler = BORN
-Trainer().train(state)
+Trainer().train(state, scaler=scaler)
""",
    "a function that sees it": f"""\
{MADE} def train():
     for x, y in data:
         STEPS net=state.model opt=state.optimizer
 train()
""",
    "of a function": f"""\
{TRAIN} def main():
     state = SimpleNamespace(model=model, optimizer={SGD})
+    scaler = BORN
-    train(state, data)
+    train(state, data, scaler=scaler)
 main()
""",
    "an optimizer that has a name, too": f"""\
 opt = {SGD}
+scaler = BORN
 state = SimpleNamespace(model=model, optimizer=opt)
 for x, y in data:
     STEPS net=state.model opt=state.optimizer
 print(opt.param_groups[0]["lr"])
""",
    "taken out of it": f"""\
{MADE} opt = state.optimizer
 for x, y in data:
     STEPS net=state.model
""",
    "with a schedule and a count": f"""\
{MADE} state.epoch = 0
 state.schedule = torch.optim.lr_scheduler.StepLR(state.optimizer, 2)
{LOOP}     state.schedule.step()
     state.epoch += 1
""",
    "clipped": f"""\
{MADE} for x, y in data:
     state.optimizer.zero_grad()
-    loss = criterion(state.model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(state.model(x), y)
+    scaler.scale(loss).backward()
+    scaler.unscale_(state.optimizer)
     nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
-    state.optimizer.step()
+    scaler.step(state.optimizer)
+    scaler.update()
""",
    "saved": MADE + LOOP + SAVED,
    "that nobody steps by": f"""\
 opt = {SGD}
+scaler = BORN
 state = SimpleNamespace(model=model)
 state.optimizer = opt
 for x, y in data:
     STEPS net=state.model
""",
    "an attribute of that name in a class": f"""\
 class Other:
     def __init__(self):
         self.optimizer = "none"
 other = Other()
{MADE}{LOOP}""",
    "another one, perhaps": f"""\
{MADE} if len(data) > 9:
     state.optimizer = {ADAM}
+    scaler = BORN
{LOOP}""",
    "there may be none": f"""\
 state = SimpleNamespace(model=model, optimizer=None)
 if len(data) > 0:
     state.optimizer = {SGD}
+    scaler = BORN
{LOOP}""",
    "a new one in each round": f"""\
 state = SimpleNamespace(model=model)
 for _ in range(2):
     state.optimizer = {SGD}
+    scaler = BORN
     for x, y in data:
         STEPS net=state.model opt=state.optimizer
""",
    "unpacked": f"""\
{MADE} state.model, state.optimizer = model, {ADAM}
+scaler = BORN
{LOOP}""",
    "made in two ways": f"""\
 if len(data) > 9:
     state = SimpleNamespace(model=model, optimizer={ADAM})
 else:
     state = SimpleNamespace(model=model, optimizer={SGD})
+scaler = BORN
{LOOP}""",
    "two, handed to one function": f"""\
{TRAIN} first = SimpleNamespace(model=model, optimizer={SGD})
+scaler = BORN
 last = SimpleNamespace(model=model, optimizer={ADAM})
+grad_scaler = BORN
-train(first, data)
-train(last, data)
+train(first, data, scaler=scaler)
+train(last, data, scaler=grad_scaler)
""",
    "that a function hands out": f"""\
 def build():
     return SimpleNamespace(model=model, optimizer={SGD})
 state = build()
+scaler = BORN
{LOOP}""",
    "of its own name": f"""\
 state = SimpleNamespace(model=model)
 state.state = {SGD}
+scaler = BORN
 for x, y in data:
     STEPS net=state.model opt=state.state
""",
    "of an object, set by another method": f"""\
{TRAINER}     def again(self):
         self.state.optimizer = {ADAM}
+        self.scaler = BORN
 trainer = Trainer()
 trainer.train()
 trainer.again()
 trainer.train()
""",
    "of an object, set from outside": f"""\
{TRAINER} trainer = Trainer()
 trainer.state.optimizer = {ADAM}
+trainer.scaler = BORN
 trainer.train()
""",
    "of an object, a subclass makes another": f"""\
{TRAINER} class Other(Trainer):
     def __init__(self):
         super().__init__()
         self.state = SimpleNamespace(model=model, optimizer={ADAM})
+        self.scaler = BORN
 Other().train()
""",
    "two namespaces, each with a loop": f"""\
 other = make().to(device)
 first = SimpleNamespace(optimizer={SGD})
+scaler = BORN
 last = SimpleNamespace(optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
+grad_scaler = BORN
 for x, y in data:
     STEPS opt=first.optimizer scaler=scaler
 for x, y in data:
     STEPS net=other opt=last.optimizer scaler=grad_scaler
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_migrated(name: str) -> None:
    source, expected = before_and_after(written_out(IMPORTS + PROGRAMS[name]))
    assert migrated(source) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_as_before(name: str) -> None:
    trains_as_before(written_out(IMPORTS + PROGRAMS[name]))


def test_without_a_scaler() -> None:
    source, _ = before_and_after(written_out(IMPORTS + TRAIN + MADE + RUN))
    output = migrated(source, Options(dtype="bfloat16"))
    assert "train(state, data, use_amp=use_amp)\n" in output
    assert "scaler" not in output


OF_OBJECT = before_and_after(written_out(TRAINER))[0]
ANOTHER = "another = SimpleNamespace(model=model, optimizer=None)\n"
LATER = {
    "under another name": (
        f"    def again(self):\n        state = self.state\n        state.optimizer = {ADAM}\n"
    ),
    "its dict": f"    def again(self):\n        vars(self.state)['optimizer'] = {ADAM}\n",
    "setattr": f"    def again(self):\n        setattr(self.state, 'optimizer', {ADAM})\n",
    "saved": "    def save(self):\n        torch.save(self.state, 'state.pt')\n",
    "the class has one": f"Trainer.state = SimpleNamespace(model=model, optimizer={ADAM})\n",
}


@pytest.mark.parametrize("name", LATER)
def test_of_an_object_it_is_not_known(name: str) -> None:
    text = f"{OF_OBJECT}{LATER[name]}Trainer().train()\n"
    assert left_alone(_given(text)) in ("AMP010", "AMP012")


NAMESPACE = f"state = SimpleNamespace(model=model, optimizer={SGD})\n"
STEPS = "for x, y in data:\n    STEPS net=state.model opt=state.optimizer\n"
INDENTED = STEPS.replace("\n", "\n    ").rstrip(" ")
FUNCTION = f"def train(state, data):\n    {INDENTED}"
OVER = "    state = state or data\n"
UNKNOWN = {
    "another one, by a function": (
        f"def change(s):\n    s.optimizer = {ADAM}\n{NAMESPACE}change(state)\n{STEPS}"
    ),
    "another one, by a function that sees it": (
        f"{NAMESPACE}def change():\n    state.optimizer = {ADAM}\nchange()\n{STEPS}"
    ),
    "another one, by a function's arguments": (
        f"def change(*s):\n    s[0].optimizer = {ADAM}\n{NAMESPACE}change(state)\n{STEPS}"
    ),
    "another one, by another name": (
        f"{NAMESPACE}other = state\nother.optimizer = {ADAM}\n{STEPS}"
    ),
    "a loop's target": (
        f"{NAMESPACE}for state.optimizer in [{ADAM}]:\n    pass\n{STEPS}"
    ),
    "a comprehension's target": (
        f"{NAMESPACE}[0 for state.optimizer in [{ADAM}]]\n{STEPS}"
    ),
    "one of two": (
        f"{NAMESPACE.replace('state', 'a', 1)}{NAMESPACE.replace('state', 'b', 1)}"
        f"state = a if len(data) > 9 else b\n{STEPS}"
    ),
    "made again": (
        f"{NAMESPACE}def again():\n    global state\n    {NAMESPACE}again()\n{STEPS}"
    ),
    "something else, perhaps": (
        f"{NAMESPACE}if len(data) > 9:\n    state = data\n{STEPS}"
    ),
    "another value of the parameter": (
        f"def train(state, data):\n{OVER}    {INDENTED}{NAMESPACE}train(state, data)\n"
    ),
    "a function that others call, too": (
        f"import runner\n{FUNCTION}{NAMESPACE}runner.run(train)\ntrain(state, data)\n"
    ),
    "what a dict may bring": (
        f"more = {{'optimizer': {ADAM}}}\n"
        f"state = SimpleNamespace(model=model, **more)\n{STEPS}"
    ),
    "nobody sets it": f"state = SimpleNamespace(model=model)\n{STEPS}",
    "one of a list": (
        f"for state in [SimpleNamespace(model=model, optimizer={SGD})]:\n    {INDENTED}"
    ),
    "one in another": (
        f"state = SimpleNamespace(inner=SimpleNamespace(model=model, optimizer={SGD}))\n"
        + STEPS.replace("state.", "state.inner.")
    ),
    "a variable of a lambda": (
        f"{NAMESPACE}{STEPS}    (lambda state: state.optimizer.step())(data)\n"
    ),
    "all that the module has": (
        f"{NAMESPACE}setattr(globals()['state'], 'optimizer', {ADAM})\n{STEPS}"
    ),
    "text that is run": f"{NAMESPACE}exec('state.optimizer = None')\n{STEPS}",
    "a class elsewhere of that name": (
        f"from elsewhere import SimpleNamespace\n{NAMESPACE}{STEPS}"
    ),
}
WHOLE = {
    "vars": f"vars(state)['optimizer'] = {ADAM}",
    "vars and update": f"vars(state).update(optimizer={ADAM})",
    "its dict": f"state.__dict__['optimizer'] = {ADAM}",
    "setattr": f"setattr(state, 'optim' + 'izer', {ADAM})",
    "getattr": "getattr(state, 'optimizer').step()",
    "made anew": f"state.__init__(optimizer={ADAM})",
    "code out of sight": "import elsewhere\nelsewhere.change(state)",
    "an object out of sight": "import elsewhere\nelsewhere.state = state",
    "keywords out of sight": "import elsewhere\nelsewhere.change(**{'state': state})",
    "a function that hands it out of sight": (
        "import elsewhere\ndef change(*all):\n    elsewhere.change(all)\nchange(state)"
    ),
    "a function that is given others, too": (
        "def log(s):\n    s.epoch = 1\nlog(state)\nlog(argparse)"
    ),
    "a method that is called on it": (
        f"class Other:\n    def set(self):\n        self.optimizer = {ADAM}\nOther.set(state)"
    ),
    "a method that is called on it, and on others": (
        "class Other:\n    def set(self):\n        self.optimizer = None\n"
        "Other.set(state)\nOther().set()"
    ),
    "a default": "def show(s=state):\n    return s",
    "a decorator": "import elsewhere\n@elsewhere.change(state)\ndef show():\n    pass",
    "a class": "import elsewhere\nclass Other:\n    shared = state\nelsewhere.change(Other)",
    "a class that hands it on": (
        "import elsewhere\nclass Other:\n    elsewhere.change(state)"
    ),
    "a class that sets it": "class Other:\n    state.optimizer = None",
    "another name": "other = state",
    "a list": "others = [state]",
    "a copy": "import copy\nother = copy.copy(state)",
    "a file": "torch.save(state, 'state.pt')",
    "a comparison": "print(state == argparse)",
}


def _given(text: str) -> str:
    return before("".join(f"{line[1:]}\n" for line in IMPORTS.splitlines()) + text)


@pytest.mark.parametrize("name", UNKNOWN)
def test_it_is_not_known(name: str) -> None:
    codes = ("AMP010", "AMP012", "AMP015", "AMP016")
    assert left_alone(_given(UNKNOWN[name])) in codes


@pytest.mark.parametrize("name", WHOLE)
def test_it_is_used_as_a_whole(name: str) -> None:
    assert left_alone(_given(f"{NAMESPACE}{WHOLE[name]}\n{STEPS}")) == "AMP012"


def test_a_namespace_by_which_nobody_steps_is_used_as_a_whole() -> None:
    made = f"import elsewhere\nopt = {SGD}\nstate = SimpleNamespace()\n"
    text = f"{made}state.optimizer = opt\nelsewhere.change(state)\n{STEPS}"
    text = text.replace("STEPS net=state.model opt=state.optimizer", "STEPS")
    assert left_alone(_given(text)) == "AMP012"


def test_it_is_handed_on_as_it_is_made() -> None:
    text = (
        f"import elsewhere\nopt = {SGD}\n"
        f"state = SimpleNamespace(model=model, optimizer=opt, hook=elsewhere.hook(opt))\n{STEPS}"
    )
    assert left_alone(_given(text)) == "AMP010"


ELSEWHERE = {
    "from state import state, train, model, torch": "state.optimizer = SAM(model)\ntrain()\n",
    "import state": "setattr(state.state, 'optimizer', None)\nstate.train()\n",
    "from state import *": "state.optimizer = SAM(model)\ntrain()\n",
}


@pytest.mark.parametrize("imported", ELSEWHERE)
def test_another_file_has_it(imported: str, tmp_path: Path) -> None:
    seen = f"{NAMESPACE}def train():\n    {INDENTED}"
    (tmp_path / "state.py").write_text(HEAD + _given(seen))
    own = (
        "class SAM(torch.optim.Optimizer):\n    def __init__(self, net):\n"
        "        self.base = torch.optim.SGD(net.parameters())\n"
        "    def step(self):\n        self.base.step()\n"
    )
    (tmp_path / "main.py").write_text(f"{imported}\n{own}{ELSEWHERE[imported]}")
    report = migrate_paths([tmp_path], options=Options())
    assert not any(result.changed for result in report.results)


def test_a_function_of_another_file_trains(tmp_path: Path) -> None:
    source = (
        f"import torch\nimport torch.nn as nn\ncriterion = nn.MSELoss()\n{FUNCTION}"
    )
    (tmp_path / "engine.py").write_text(before(source))
    program = f"from engine import train\n{NAMESPACE}train(state, data)\n"
    (tmp_path / "main.py").write_text(HEAD + _given(program))
    report = migrate_paths([tmp_path], options=Options())
    outputs = "".join(result.output for result in report.results)
    assert "def train(state, data, scaler):\n" in outputs
    assert "\ntrain(state, data, scaler=scaler)\n" in outputs
    assert "scaler.step(state.optimizer)\n" in outputs


@pytest.mark.parametrize(
    "before_edit", ("self.run.optimizer.zero_grad()", "self.clear()")
)
def test_what_it_holds_is_unscaled_by_its_own_name(before_edit: str) -> None:
    body = f"""\
from types import SimpleNamespace
class Trainer:
    def __init__(self):
        self.net = make().to(device)
        made = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.run = SimpleNamespace(optimizer=made, epoch=0)
    def clear(self):
        self.run.optimizer.zero_grad()
    def fit(self):
        for x, y in data:
            {before_edit}
            criterion(self.net(x), y).backward()
            for p in self.net.parameters():
                p.grad.add_(p, alpha=1e-3)
            used = self.run.optimizer
            used.step()
Trainer().fit()
"""
    output = migrate_source(HEAD + body, path="train.py").output
    assert "self.scaler.unscale_(self.run.optimizer)\n" in output


@pytest.mark.parametrize(
    "held, taken",
    [
        ("holder = SimpleNamespace(optimizer=made)", "holder.optimizer"),
        ("kept = {'optimizer': made}", "kept['optimizer']"),
        ("pass", "made"),
    ],
)
def test_it_is_unscaled_before_it_gets_another_name(held: str, taken: str) -> None:
    body = f"""\
from types import SimpleNamespace
model = make().to(device)
made = {SGD}
{held}
for x, y in data:
    {taken}.zero_grad()
    criterion(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    used = {taken}
    used.step()
"""
    output = migrate_source(HEAD + body, path="train.py").output
    assert f"scaler.unscale_({taken})\n" in output
    assert "scaler.step(used)\n" in output
