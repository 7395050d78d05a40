"""The scaler's entry, or file, beside the optimizer's in a checkpoint: its name must be free."""

from __future__ import annotations

import re

import pytest
from exactness import check_mixed, check_off, check_scaled
from programs import HEAD, before_and_after, left_alone, migrated

from amp_migrate.api import Options, migrate_source

SCRIPT = """\
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 3).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
LOAD
for x, y in data:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    opt.step()
SAVE
"""

CASES = {
    "short": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'torch.save({"opt": opt.state_dict()}, "c.pt")',
        "scaler",
    ),
    "long": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["optimizer_state_dict"])',
        'torch.save({"optimizer_state_dict": opt.state_dict()}, "c.pt")',
        "scaler_state_dict",
    ),
    "another scaler's": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'torch.save({"scaler": 1.0, "opt": opt.state_dict()}, "c.pt")',
        "grad_scaler",
    ),
    "another scaler's, only read": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])\nmean = ckpt["scaler"]',
        'torch.save({"opt": opt.state_dict()}, "c.pt")',
        "grad_scaler",
    ),
    "two taken": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["optim_state"])',
        'torch.save({"scaler_state": 1, "grad_scaler_state": 2, "optim_state": opt.state_dict()}, "c.pt")',
        "amp_scaler_state",
    ),
    "keywords": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'torch.save(dict(scaler=1.0, opt=opt.state_dict()), "c.pt")',
        "grad_scaler",
    ),
    "assigned": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["opt"])',
        'state = {"scaler": 1.0}\nstate["opt"] = opt.state_dict()\ntorch.save(state, "c.pt")',
        "grad_scaler",
    ),
    "no word for the optimizer": (
        'ckpt = torch.load("c.pt")\nopt.load_state_dict(ckpt["scaler"])',
        'torch.save({"scaler": opt.state_dict()}, "c.pt")',
        "grad_scaler",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_key(name: str) -> None:
    load, save, key = CASES[name]
    source = SCRIPT.replace("LOAD", load).replace("SAVE", save)
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert f'scaler.load_state_dict(ckpt["{key}"])' in output
    assert f'ckpt.get("{key}")' in output
    saved = rf'("{key}": |\b{key}=|state\["{key}"\] = )\w*scaler\.state_dict\(\)'
    assert len(re.findall(saved, output)) == 1
    assert output.count("scaler.state_dict()") == 1
    again = migrate_source(output, path="train.py")
    assert again.output == output


# --- an entry of the optimizer's state itself -----------------------------------------------------

OPENING = """\
import os
from pathlib import Path
import torch
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 3).to(device)
"""
TRAINING = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
LOAD
 for x, y in data:
     opt.zero_grad()
-    loss = F.cross_entropy(model(x.to(device)), y.to(device))
-    loss.backward()
-    opt.step()
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        loss = F.cross_entropy(model(x.to(device)), y.to(device))
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
SAVE
"""
SAVE = """\
-torch.save(opt.state_dict(), "opt.pt")
+torch.save({**opt.state_dict(), "scaler": scaler.state_dict()}, "opt.pt")
"""
LOAD = """\
-opt.load_state_dict(torch.load("opt.pt"))
+optimizer_state = torch.load("opt.pt")
+opt.load_state_dict(optimizer_state)
+if scaler.is_enabled() and optimizer_state.get("scaler"):
+    scaler.load_state_dict(optimizer_state["scaler"])
"""


def training(load: str, save: str) -> tuple[str, str]:
    """A script before and after, with what it loads and saves, each as a diff."""
    return before_and_after(TRAINING.replace("LOAD\n", load).replace("SAVE\n", save))


def checked(load: str, save: str) -> None:
    before, after = training(load, save)
    assert migrated(before, head=OPENING) == after
    again = migrate_source(OPENING + after, path="train.py")
    assert again.output == OPENING + after


COUNTED = (
    """\
 states = torch.load("c.pt")
 ASKED
 opt.load_state_dict(states["opt"])
+if scaler.is_enabled() and states["opt"].get("scaler"):
+    scaler.load_state_dict(states["opt"]["scaler"])
""",
    """\
 both = {
-    "opt": opt.state_dict(),
+    "opt": {**opt.state_dict(), "scaler": scaler.state_dict()},
     "net": model.state_dict(),
 }
 torch.save(both, "c.pt")
""",
)
ASKED = {
    "by another name": "each = states\nassert len(each) == 2",
    "in a copy": 'each = {"epoch": 1, **states}\nassert len(each) == 3',
    "with others": 'each = {"epoch": 1}\neach.update(states)\nassert len(each) == 3',
    "in a function": "def ask(each):\n    assert len(each) == 2\nask(states)",
    "one by one": "first, second = states.values()",
}
INSIDE = {
    "a dict that is counted": (
        COUNTED[0].replace("ASKED", "assert len(states) == 2"),
        COUNTED[1],
    ),
    "a dict of keywords that is counted": (
        COUNTED[0].replace("ASKED", "assert len(states) == 2"),
        """\
 both = dict(
-    opt=opt.state_dict(),
+    opt={**opt.state_dict(), "scaler": scaler.state_dict()},
     net=model.state_dict(),
 )
 torch.save(both, "c.pt")
""",
    ),
    "a dict that is compared": (
        COUNTED[0].replace("ASKED", 'assert set(states) == {"net", "opt"}'),
        COUNTED[1],
    ),
    "a dict that is gone through": (
        COUNTED[0].replace("ASKED", "for key in states: print(parts[key])"),
        COUNTED[1],
    ),
    **{
        f"a dict that is counted, {name}": (
            COUNTED[0].replace("ASKED", asked.replace("\n", "\n ")),
            COUNTED[1],
        )
        for name, asked in ASKED.items()
    },
    "a dict that a file gives, and nobody loads": (
        "",
        COUNTED[1] + ' net, opt_states = torch.load("c.pt").values()\n',
    ),
    "a state that may be none": (
        """\
 kept = None
 if model.training:
     states = torch.load("c.pt")
     kept = states["opt"]
 if kept is not None:
     opt.load_state_dict(kept)
+    if scaler.is_enabled() and kept.get("scaler"):
+        scaler.load_state_dict(kept["scaler"])
 if kept:
     print("goes on")
""",
        """\
-torch.save({"opt": opt.state_dict()}, "c.pt")
+torch.save({"opt": {**opt.state_dict(), "scaler": scaler.state_dict()}}, "c.pt")
""",
    ),
    "a file of its own": (LOAD, SAVE),
    "its name is found elsewhere": (
        LOAD.replace('"opt.pt"', 'paths["o"]'),
        SAVE.replace('"opt.pt"', 'paths["o"]'),
    ),
    "options": (
        LOAD.replace('"opt.pt"', '"opt.pt", map_location=lambda s, _: s'),
        SAVE.replace('"opt.pt"', '"opt.pt", **options'),
    ),
    "an open file": (
        LOAD.replace('"opt.pt"', "file"),
        SAVE.replace('"opt.pt"', 'open("opt.pt", "wb")'),
    ),
    "a list": (
        """\
 states = torch.load("c.pt")
 states[1]["param_groups"][0]["eps"] = 1e-4
 opt.load_state_dict(states[1])
+if scaler.is_enabled() and states[1].get("scaler"):
+    scaler.load_state_dict(states[1]["scaler"])
 other.load_state_dict(states[-1])
""",
        """\
 states = [
     model.state_dict(),
-    opt.state_dict(),
+    {**opt.state_dict(), "scaler": scaler.state_dict()},
     epoch,
 ]
 if other:
     states.append(other.state_dict())
 torch.save(states, "c.pt")
""",
    ),
    "a tuple": (
        """\
 weights, kept = torch.load("c.pt")
 opt.load_state_dict(kept)
+if scaler.is_enabled() and kept.get("scaler"):
+    scaler.load_state_dict(kept["scaler"])
""",
        """\
-torch.save((model.state_dict(), opt.state_dict()), "c.pt")
+torch.save((model.state_dict(), {**opt.state_dict(), "scaler": scaler.state_dict()}), "c.pt")
""",
    ),
    "what is taken out": (
        """\
 saved = torch.load("c.pt")
-opt.load_state_dict(saved.pop("opt"))
+optimizer_state = saved.pop("opt")
+opt.load_state_dict(optimizer_state)
+if scaler.is_enabled() and optimizer_state.get("scaler"):
+    scaler.load_state_dict(optimizer_state["scaler"])
""",
        """\
-torch.save({"opt": opt.state_dict()}, "c.pt")
+torch.save({"opt": {**opt.state_dict(), "scaler": scaler.state_dict()}}, "c.pt")
""",
    ),
    "a name that is taken": (
        LOAD.replace("optimizer_state", "optimizer_state_2") + " optimizer_state = 1\n",
        SAVE,
    ),
    "in a branch": (
        """\
-if device: opt.load_state_dict(torch.load("opt.pt"))
+if device:
+    optimizer_state = torch.load("opt.pt")
+    opt.load_state_dict(optimizer_state)
+    if scaler.is_enabled() and optimizer_state.get("scaler"):
+        scaler.load_state_dict(optimizer_state["scaler"])
""",
        """\
-if device: torch.save(opt.state_dict(), "opt.pt")
+if device:
+    torch.save({**opt.state_dict(), "scaler": scaler.state_dict()}, "opt.pt")
""",
    ),
    "one of many ways": (
        "",
        """\
-kept = opt.state_dict()
+kept = {**opt.state_dict(), "scaler": scaler.state_dict()}
 for path in ("last.pt", "best.pt"):
     torch.save(kept if epoch else None, path)
""",
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside(name: str) -> None:
    checked(*INSIDE[name])


def test_beside_though_another_dict_is_gone_through() -> None:
    """What an object of the program's own is given to load holds no optimizer's state as it is."""
    before, after = training(
        """\
 class Agent:
     def load_state_dict(self, state):
         self.weights = state
 agent, kept = Agent(), torch.load("agent.pt")
 for name in kept:
     print(name)
 agent.load_state_dict(kept["agent"])
 states = torch.load("c.pt")
 opt.load_state_dict(states["opt"])
+if scaler.is_enabled() and states.get("scaler"):
+    scaler.load_state_dict(states["scaler"])
""",
        """\
-torch.save(dict(opt=opt.state_dict()), "c.pt")
+torch.save(dict(opt=opt.state_dict(), scaler=scaler.state_dict()), "c.pt")
""",
    )
    assert migrated(before, head=OPENING) == after


_OWN = """\
class Own(torch.optim.SGD):
    def METHOD(self, state):
        assert len(state) == 2
"""
NO_ROOM = {
    "entry by entry": "torch.save([v for v in opt.state_dict().values()], 'c.pt')",
    "some of it": "torch.save(opt.state_dict()['state'], 'c.pt')",
    "one more of a dict": "torch.save({**opt.state_dict(), 'epoch': 1}, 'c.pt')",
    "keyword arguments": "keep(**opt.state_dict())",
    "gone through": "kept = torch.load('c.pt')\n"
    "opt.load_state_dict(kept)\nfor name in kept:\n    print(name)",
    "counted behind": "saved = torch.load('c.pt')\n"
    "opt.load_state_dict(saved[0])\nassert len(saved[0]) == 2",
    "what is loaded is used": "print(opt.load_state_dict(torch.load('opt.pt')))",
}


@pytest.mark.parametrize("name", NO_ROOM)
def test_no_room_inside(name: str) -> None:
    before, _ = training("", "".join(f" {s}\n" for s in NO_ROOM[name].splitlines()))
    assert left_alone(before, head=OPENING) == "AMP040"


@pytest.mark.parametrize("method", ("load_state_dict", "__setstate__"))
def test_an_optimizer_that_loads_in_its_own_way(method: str) -> None:
    before, _ = training(*map(before_of, INSIDE["a tuple"]))
    head = OPENING + _OWN.replace("METHOD", method)
    before = before.replace("torch.optim.SGD(", "Own(")
    assert left_alone(before, head=head) == "AMP040"
    assert migrated(before, head=head.replace(method, "other"))


def before_of(lines: str) -> str:
    """A diff without what it adds, as a text that stays."""
    before, _ = before_and_after(lines)
    return "".join(f" {line}\n" for line in before.splitlines())


def test_bfloat16_has_no_state() -> None:
    before, _ = training(' opt.load_state_dict(torch.load("opt.pt"))\n', "")
    output = migrated(before, Options(dtype="bfloat16"), head=OPENING)
    assert output.count("load_state_dict") == 1


WRAPPER = """\
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 3).to(device)
class Warm:
    def __init__(self, inner):
        self.inner = inner
        self.steps = 0
    def zero_grad(self):
        self.inner.zero_grad()
    def step(self):
        self.steps += 1
        self.inner.step()
    def state_dict(self):
        return self.inner.state_dict()
    def load_state_dict(self, state):
        self.inner.load_state_dict(state)
opt = Warm(torch.optim.SGD(model.parameters(), lr=0.1))
ckpt = torch.load("c.pt")
opt.load_state_dict(ckpt["optimizer"])
for x, y in data:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    opt.step()
torch.save({"optimizer": opt.state_dict()}, "c.pt")
"""


def test_a_wrapper_hands_the_states_on() -> None:
    """They are kept where its own are: the wrapper's methods stay as they are."""
    lines = migrate_source(WRAPPER).output.splitlines()
    added = [line for line in lines if line not in WRAPPER.splitlines()]
    state = "opt.scaler.state_dict()"
    assert 'if opt.scaler.is_enabled() and ckpt.get("scaler"):' in added
    assert '    opt.scaler.load_state_dict(ckpt["scaler"])' in added
    saved = f'torch.save({{"optimizer": opt.state_dict(), "scaler": {state}}}, "c.pt")'
    assert saved in added


def test_a_wrapper_with_a_state_of_its_own() -> None:
    """The scaler's is an entry beside the optimizer's in there."""
    source = WRAPPER.replace(
        "return self.inner.state_dict()",
        'return {"inner": self.inner.state_dict(), "steps": self.steps}',
    ).replace("load_state_dict(state)", 'load_state_dict(state["inner"])')
    output = migrate_source(source).output
    assert '"scaler": self.scaler.state_dict()' in output
    assert 'if self.scaler.is_enabled() and state.get("scaler"):' in output
    assert "opt.scaler.state_dict()" not in output


PASSED_ON = {
    "from elsewhere": (
        'opt.load_state_dict(ckpt["optimizer"])',
        "opt.load_state_dict(ckpt)",
    ),
    "by what may be another": (
        "ckpt = ",
        "def restore(one, state):\n    one.load_state_dict(state)\n"
        "restore(model, {})\nrestore(opt, {})\nckpt = ",
    ),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_a_wrapper_is_loaded(name: str) -> None:
    """What is saved of the wrapper is loaded by what it wraps."""
    output = migrate_source(WRAPPER.replace(*PASSED_ON[name])).output
    state = '{**opt.state_dict(), "scaler": opt.scaler.state_dict()}'
    assert f'torch.save({{"optimizer": {state}}}, "c.pt")' in output
    assert output.count("scaler.load_state_dict(") == 1


_ANEW = """\
class Inner:
    state = None
    def __init__(self):
        self.net = make().to(device)
    def begin(self):
        self.opt = torch.optim.Adam(self.net.parameters(), lr=0.1)
LOAD
    def update(self, batches):
        self.begin()
        for x, y in batches:
            self.opt.zero_grad()
            criterion(self.net(x), y).backward()
            self.opt.step()
        self.state = self.opt.state_dict()
inner = Inner()
for i in range(3):
    inner.update(data[2 * i : 2 * i + 2])
"""


def test_a_new_optimizer_that_goes_on_from_an_earlier_one() -> None:
    """A scaler of its own would start at 65536 in each update, and could skip all of its few steps."""
    load = "        if self.state is not None:\n            self.opt.load_state_dict(self.state)"
    goes_on = _ANEW.replace("LOAD", load)
    output = migrated(goes_on)
    made = output.index("self.scaler = ")
    assert output.index("__init__") < made < output.index("def begin")
    # Its objects have no beginning in which there could be one.
    bare = goes_on.replace("def __init__(self)", "def start(self)")
    bare = bare.replace("Inner()\n", "Inner()\ninner.start()\n")
    assert left_alone(bare) == "AMP040"
    own = "        self.state = self.opt.state_dict()\n        self.opt.load_state_dict(self.state)"
    assert "scaler" in migrated(_ANEW.replace("LOAD", own))


_PAIR = """\
nets = [make().to(device), nn.Linear(3, 3).to(device)]
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
for one, state in zip(optimizers, torch.load("c.pt")):
    one.load_state_dict(state)
for x, y in data:
    for one in optimizers:
        one.zero_grad()
    loss = criterion(nets[1](nets[0](x)), y)
    loss.backward()
    for one in optimizers:
        one.step()
torch.save(SAVED, "c.pt")
"""


def test_the_states_of_each() -> None:
    """One after another, each with the scaler that they share."""
    saved = "[one.state_dict() for one in optimizers]"
    result = migrate_source(HEAD + _PAIR.replace("SAVED", saved), path="train.py")
    entry = (
        '[{**one.state_dict(), "scaler": scaler.state_dict()} for one in optimizers]'
    )
    assert entry in result.output
    assert result.output.count('scaler.load_state_dict(state["scaler"])') == 1
    assert result.notes == ()
    lazy = "list(one.state_dict() for one in optimizers)"
    assert left_alone(_PAIR.replace("SAVED", lazy)) == "AMP040"


def test_objects_are_not_states() -> None:
    """What a reason says of what is saved is true."""
    for saved, code in {
        "[model, opt]": "AMP040",
        "[o.state_dict() for o in (opt,)]": "AMP012",
    }.items():
        before, _ = training("", f' torch.save({saved}, "c.pt")\n')
        assert left_alone(before, head=OPENING) == code


ENGINES = """\
class Engine:
    def __init__(self):
        self.optimizer = None
        self.nets, self.opts = {}, {}
    def register(self, name, net, opt):
        self.nets[name] = net
        self.opts[name] = opt
    def run(self):
        for x, y in data:
            self.step(x, y)
        for name in list(self.nets):
            torch.save({"opt": self.opts[name].state_dict()}, name)
class Plain(Engine):
    def __init__(self, net, optimizer):
        super().__init__()
        self.net, self.optimizer = net, optimizer
        self.register("net", net, optimizer)
    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.optimizer.step()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Plain(model, optimizer).run()
"""
WITHOUT = """\
class Other(Engine):
    def __init__(self, net, opt):
        super().__init__()
        self.register("other", net, opt)
def later(net, opt):
    Other(net, opt).run()
"""


def test_what_saves_for_objects_that_get_no_scaler() -> None:
    assert "self.scaler.state_dict()" in migrated(ENGINES)
    result = migrate_source(f"{HEAD}{ENGINES}{WITHOUT}")
    assert "self.scaler.step" in result.output
    assert "self.scaler.state_dict()" not in result.output
    (note,) = result.notes
    assert "run() runs on Other, too, which gets no scaler" in note.message


OBJECTS = """\
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PATH = "last.pt"


def save_checkpoint(epoch, model, optimizer):
    state = {"epoch": epoch, "model": model, "optimizer": optimizer}
    torch.save(state, PATH)


def clip(optimizer, most):
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                param.grad.data.clamp_(-most, most)


def train(model, optimizer):
    for _ in range(4):
        x = torch.randn(8, 6, device=device)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        clip(optimizer, 0.1)
        optimizer.step()
        print(loss.item())


def main(checkpoint):
    if checkpoint is None:
        epoch = 0
        model = nn.Linear(6, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    else:
        checkpoint = torch.load(checkpoint, weights_only=False)
        epoch = checkpoint["epoch"] + 1
        model = checkpoint["model"]
        optimizer = checkpoint["optimizer"]
    model = model.to(device)
    train(model, optimizer)
    SAVE


main(None)
main(PATH)
"""


@pytest.mark.parametrize(
    "save",
    [
        "save_checkpoint(epoch, model, optimizer)",
        'torch.save({"epoch": epoch, "model": model, "optimizer": optimizer}, PATH)',
    ],
)
def test_an_optimizer_that_is_saved_itself(save: str) -> None:
    source = OBJECTS.replace("SAVE", save)
    output = migrated(source, head="")
    assert output.count("scaler = torch.amp.GradScaler(") == 2
    assert '"scaler": scaler.state_dict()' in output
    loads = 'if scaler.is_enabled() and checkpoint.get("scaler"):'
    assert output.index('checkpoint["optimizer"]') < output.index(loads)
    assert check_off(source, output) == []
    assert check_scaled(source, output) == []
    assert check_mixed(source, output) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # What it holds, nobody says.
        ("        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)\n", "        optimizer = None\n"),
        # All that is in the file is asked for.
        ("        epoch = checkpoint", "        assert len(checkpoint) == 3\n        epoch = checkpoint"),
        # Under no key.
        ('{"epoch": epoch, "model": model, "optimizer": optimizer}', "[epoch, model, optimizer]"),
    ],
)  # fmt: skip
def test_an_optimizer_out_of_a_file_of_which_less_is_known(old: str, new: str) -> None:
    source = OBJECTS.replace("SAVE", "save_checkpoint(epoch, model, optimizer)")
    left_alone(source.replace(old, new), head="")


def test_an_optimizer_of_an_object_that_is_saved_itself() -> None:
    head, _, _ = OBJECTS.partition("def main")
    source = head + """\
class Run:
    def __init__(self, path):
        if path is None:
            self.model = nn.Linear(6, 3).to(device)
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        else:
            read = torch.load(path, weights_only=False)
            self.model = read["model"]
            self.optimizer = read["optimizer"]
    def go(self):
        train(self.model, self.optimizer)
        save_checkpoint(0, self.model, self.optimizer)
for path in (None, PATH):
    run = Run(path)
    run.go()
"""
    output = migrated(source, head="")
    assert 'if self.scaler.is_enabled() and read.get("scaler"):' in output
    assert check_off(source, output) == []
    assert check_scaled(source, output) == []
    assert check_mixed(source, output) == []


def test_optimizers_that_share_a_scaler_and_are_saved_themselves() -> None:
    source = OBJECTS.replace("SAVE", "save_checkpoint(epoch, model, optimizer)")
    source = source.replace("model, optimizer)", "model, optimizer, second)")
    source = source.replace(": optimizer}", ': optimizer, "second": second}')
    of_it = r"\.step\(\)|\.zero_grad\(\)| = checkpoint.*| = torch.*"
    twice = r"\1optimizer\2\n\1second\2\n"
    source = re.sub(rf"(?m)^( +)optimizer({of_it})\n", twice, source)
    source = source.replace("model.parameters()", "[model.weight]", 1)
    source = source.replace("model.parameters()", "[model.bias]", 1)
    assert source.count("second") == 10
    assert left_alone(source, head="") == "AMP040"
