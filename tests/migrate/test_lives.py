"""A scaler goes on where an optimizer is made anew for the same weights: a new one would skip steps until
it has found its scale, each time."""

from __future__ import annotations

import re

import pytest
from half_support import check_runs
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before

from amp_migrate.api import Options, migrate_source

SCALER = 'torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'


def steps(indent: int, optimizer: str = "optimizer") -> str:
    """A step, as a diff."""
    text = f"""\
 {optimizer}.zero_grad()
-loss = criterion(net(x), y)
-loss.backward()
-{optimizer}.step()
+with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+    loss = criterion(net(x), y)
+scaler.scale(loss).backward()
+scaler.step({optimizer})
+scaler.update()
"""
    lines = text.splitlines()
    return "\n".join(f"{line[0]}{' ' * indent}{line[1:]}" for line in lines)


HOISTED = {
    "each batch": f"""\
 net = model
+scaler = {SCALER}
 for x, y in data:
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{steps(4)}
 print(loss.item())
""",
    "each epoch": f"""\
 net = model
+scaler = {SCALER}
 for epoch in range(3):
     params = [p for p in net.parameters() if p.requires_grad]
     optimizer = torch.optim.SGD(params, lr=0.1 / (epoch + 1))
     for x, y in data:
{steps(8)}
 print(loss.item())
""",
    "another one later": f"""\
 net = model
 optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
+scaler = {SCALER}
 for epoch in range(3):
     if epoch == 2:
         optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
     for x, y in data:
{steps(8)}
 print(loss.item())
""",
    "one of two kinds": f"""\
 net, epoch = model, 0
+scaler = {SCALER}
 while epoch < 3:
     if epoch % 2:
         optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
     else:
         optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
     for x, y in data:
{steps(8)}
     epoch += 1
 print(loss.item())
""",
    "a copy each time": f"""\
 import copy
+scaler = {SCALER}
 for x, y in data:
     net = copy.deepcopy(model)
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
     for _ in range(3):
{steps(8)}
     model.load_state_dict(net.state_dict())
 print(loss.item())
""",
    "new weights have a new one": f"""\
 for fold in range(3):
     net = make().to(device)
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
+    scaler = {SCALER}
     for x, y in data:
{steps(8)}
 print(loss.item())
""",
    "epochs of new weights": f"""\
 for fold in range(2):
     net = make().to(device)
+    scaler = {SCALER}
     for x, y in data:
         optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{steps(8)}
 print(loss.item())
""",
    "a function of each batch": f"""\
-def step(net, x, y):
+def step(net, x, y, scaler):
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{steps(4)}
     return loss.item()
+scaler = {SCALER}
 for x, y in data:
-    print(step(model, x, y))
+    print(step(model, x, y, scaler=scaler))
""",
    "a function of each epoch": f"""\
-def epoch(net, lr):
+def epoch(net, lr, scaler):
     optimizer = torch.optim.SGD(net.parameters(), lr=lr)
     for x, y in data:
{steps(8)}
     return loss.item()
 def main():
+    scaler = {SCALER}
     for i in range(3):
-        print(epoch(model, 0.1 / (i + 1)))
+        print(epoch(model, 0.1 / (i + 1), scaler=scaler))
 main()
""",
    "a function that another one calls twice": f"""\
-def step(net, x, y):
+def step(net, x, y, scaler):
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{steps(4)}
     return loss.item()
-def both(net, x, y):
-    return step(net, x, y) + step(net, y=y, x=x)
+def both(net, x, y, scaler):
+    return step(net, x, y, scaler=scaler) + step(net, y=y, x=x, scaler=scaler)
+scaler = {SCALER}
-print([both(model, x, y) for x, y in data])
+print([both(model, x, y, scaler=scaler) for x, y in data])
""",
    "a function that goes on from a state": f"""\
-def update(net, state):
+def update(net, state, scaler):
     optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
     if state is not None:
         optimizer.load_state_dict(state)
     for x, y in data[:2]:
{steps(8)}
     print(loss.item())
     return optimizer.state_dict()
 state = None
+scaler = {SCALER}
 for _ in range(3):
-    state = update(model, state)
+    state = update(model, state, scaler=scaler)
""",
    "the function of a new model": f"""\
 def fit(net):
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
+    scaler = {SCALER}
     for x, y in data:
{steps(8)}
     return loss.item()
 for fold in range(3):
     found = make().to(device)
     print(fit(found))
""",
    "once": f"""\
 def step(net, x, y):
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
+    scaler = {SCALER}
{steps(4)}
     return loss.item()
 print(step(model, *data[0]))
""",
}


WHOLE_RUNS = f"""\
 def main(seed):
     net = make().to(device)
     net.load_state_dict(torch.load("pretrained.pt"))
     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
+    scaler = {SCALER}
     for x, y in data:
{steps(8)}
 for seed in range(3):
     main(seed)
"""


def test_runs_that_begin_with_weights_of_a_file() -> None:
    before, after = before_and_after(WHOLE_RUNS)
    assert migrated(before) == after


def test_two_switches_in_one_place() -> None:
    """What is lent to a caller has a name that the caller's own has not."""
    own, lent = HOISTED["each epoch"], HOISTED["a function of each batch"]
    before, _ = before_and_after(lent.replace("net = model", "") + own)
    output = migrated(before)
    made = re.findall(r"^(\w*scaler) = ", output, re.MULTILINE)
    assert len(set(made)) == len(made) == 2


@pytest.mark.parametrize("name", HOISTED)
def test_the_life_of_a_scaler(name: str) -> None:
    trains_as_before(HOISTED[name])
    before, after = before_and_after(HOISTED[name])
    assert migrated(before) == after


@pytest.mark.parametrize("dtype", ("bfloat16", "auto"))
def test_other_switches(dtype: str) -> None:
    """What carries the dtype is made where the scaler is."""
    for name in ("each batch", "another one later"):
        before, _ = before_and_after(HOISTED[name])
        output = migrated(before, Options(dtype=dtype))
        made = re.search(r"^(use_amp|amp_dtype) = .*\n", output, re.MULTILINE)
        assert made is not None and made.start() < output.index("for ")
    before, _ = before_and_after(HOISTED["a function of each batch"])
    if dtype == "auto":
        assert left_alone_as(before, dtype) == "AMP012"
    else:
        migrated(before, Options(dtype=dtype))


def left_alone_as(body: str, dtype: str) -> str:
    result = migrate_source(HEAD + body, path="train.py", options=Options(dtype=dtype))
    assert result.output == HEAD + body
    return result.diagnostics[0].code


_LATER = """\
net = nn.Linear(8, 3)
for run in range(2):
    place = torch.device("cuda" if torch.cuda.is_available() and run else "cpu")
    net.to(place)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in data:
        optimizer.zero_grad()
        criterion(net(x.to(place)), y.to(place)).backward()
        optimizer.step()
"""


@pytest.mark.parametrize("place", ("place", "run_of.place"))
def test_a_device_that_changes_in_the_loop(place: str) -> None:
    head = HEAD.replace("import torch\n", "import torch\nfrom run import run_of\n", 1)
    output = migrated(_LATER.replace("place", place), head=head)
    assert output.index("scaler = ") > output.index("optimizer = ")


STEP = """\
def step(net, x, y):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    criterion(net(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ALONE = {
    "called by who knows": STEP,
    "mapped": STEP + "list(map(step, [model] * 6, *zip(*data)))\n",
    "the device of each call": STEP.replace(
        "net, x, y)", "net, x, y, place)", 1
    ).replace("(x), y", "(x.to(place)), y.to(place)")
    + "net = nn.Linear(8, 3)\nfor x, y in data:\n"
    "    place = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
    "    net.to(place)\n    step(net, x, y, place)\n",
}


@pytest.mark.parametrize("name", ALONE)
def test_few_steps_each_time(name: str) -> None:
    """A scaler that begins at 65536 each time could skip all of them."""
    assert left_alone(ALONE[name]) == "AMP012"
    result = migrate_source(HEAD + ALONE[name], path="train.py")
    assert "each call of step() makes an optimizer" in result.diagnostics[0].message


_CLASS = """\
class Trainer:
    def __init__(self):
        self.net = make().to(device)
INIT
    def begin(self):
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.begin()
        self.optimizer.zero_grad()
        criterion(self.net(x), y).backward()
        self.optimizer.step()
trainer = Trainer()
for x, y in data:
    trainer.update(x, y)
"""
INITS = {
    "nothing": "",
    "one is made there": "        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)\n",
    "it begins there": "        self.begin()\n",
    "none yet": "        self.optimizer = None\n",
    "it trains there": "        self.update(*data[0])\n        self.ready = True\n",
}


@pytest.mark.parametrize("name", INITS)
def test_an_attribute_that_is_made_again(name: str) -> None:
    """Its scaler is made with the object, before anything needs it."""
    source = _CLASS.replace("INIT\n", INITS[name])
    output = migrated(source)
    assert output.count("self.scaler = ") == 1
    made = output.index(f"self.scaler = {SCALER}")
    assert output.index("__init__") < made < output.index("def begin")
    if "self.update(*" in source or "self.begin()\n    def" in source:
        called = re.search(r"self\.(begin\(\)|update\(\*)", output)
        assert called is not None and made < called.start()


def test_an_attribute_for_new_weights() -> None:
    source = _CLASS.replace("INIT\n", "").replace(
        "    def begin(self):\n",
        "    def begin(self):\n        self.net = make().to(device)\n",
    )
    output = migrated(source)
    assert output.index("self.scaler = ") > output.index("def begin")


def test_a_method_that_trains_and_builds_all_anew_to_evaluate() -> None:
    """A constructor has built it all before: what is trained first is in its region."""
    source = """\
class Solver:
    def __init__(self):
        self.optimizer = None
        self.build()
    def build(self):
        self.net = make().to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def train(self):
        for x, y in data:
            loss = criterion(self.net(x), y)
            self.net.zero_grad()
            loss.backward()
            self.optimizer.step()
        best = self.net.state_dict()
        del self.net
        self.build()
        self.net.load_state_dict(best)
        print(self.net(data[0][0]).mean().item())
solver = Solver()
solver.train()
"""
    output = migrated(source)
    assert "with torch.autocast(" in output
    check_runs(HEAD + source, HEAD + output)
    # Nothing has built it where it is first used.
    late = source.replace("        self.build()\n    def build", "    def build")
    late = late.replace(" None\n", " None\n        self.net = make().to(device)\n")
    assert left_alone(late) in ("AMP010", "AMP011", "AMP033")


@pytest.mark.parametrize("call", ("super().__init__()", "Trainer.__init__(self)", ""))
def test_a_subclass_that_begins_in_another_way(call: str) -> None:
    """Its objects have the scaler of the base only where they begin as that does."""
    other = f"""\
class Other(Trainer):
    def __init__(self):
        {call or "pass"}
        self.net = make().to(device)
trainer = Other()
"""
    source = _CLASS.replace("INIT\n", "").replace("trainer = Trainer()\n", other)
    output = migrated(source)
    assert (output.index("self.scaler = ") > output.index("def begin")) is not bool(
        call
    )


def test_a_scale_that_was_restored_is_not_begun_anew() -> None:
    """The optimizer is made under a condition, restored, and made again in the loop that first uses it."""
    body = """\
import sys
train = True
if train:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
if sys.argv[3:]:
    kept = torch.load(sys.argv[3])
    if train:
        optimizer.load_state_dict(kept["optimizer"])
def step_on(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
if train:
    for turn, (x, y) in enumerate(data):
        step_on(model, optimizer, x, y)
        if turn == 3:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        torch.save({"optimizer": optimizer.state_dict()}, "/dev/null")
"""
    output = migrate_source(HEAD + body, path="train.py").output
    assert output.count("GradScaler(") == 1
    assert 'scaler.load_state_dict(kept["scaler"])' in output
    check_runs(HEAD + body, output)
