"""The last check before writing, on pairs of texts: right rewrites pass, wrong ones are caught."""

from __future__ import annotations

import pytest

from amp_migrate.edit.verify import difference

BEFORE = """\
import torch
from net import criterion, data, model

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # plain


def train(optimizer, epochs=2):
    # every epoch
    for x, y in data * epochs:
        optimizer.zero_grad()
        with torch.no_grad():
            x = x * 2
        criterion(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # go
    optimizer.step()
    torch.save({"optimizer": optimizer.state_dict()}, "c.pt")


def load(saved, optimizer):
    optimizer.load_state_dict(saved["optimizer"])


train(optimizer)
"""
AFTER = """\
import torch
from net import criterion, data, model

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # plain
scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())


def train(optimizer, epochs=2, scaler=None):
    if scaler is None:
        scaler = torch.amp.GradScaler("cuda", enabled=False)
    # every epoch
    for x, y in data * epochs:
        optimizer.zero_grad()
        with torch.no_grad():
            x = x * 2
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # go
        scaler.update()
    if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
        scaler.step(optimizer)
        scaler.update()
    torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, "c.pt")


def load(saved, optimizer, scaler):
    optimizer.load_state_dict(saved["optimizer"])
    if scaler.is_enabled() and saved.get("scaler"):
        scaler.load_state_dict(saved["scaler"])


train(optimizer, scaler=scaler)
"""


def test_a_right_rewrite_passes() -> None:
    assert difference(BEFORE, AFTER) is None


def test_what_python_warns_of_passes_in_silence(
    recwarn: pytest.WarningsRecorder,
) -> None:
    odd = "\nif model is 'none':\n    pass\n"
    assert difference(BEFORE + odd, AFTER + odd) is None
    assert not recwarn.list


def test_no_rewrite_passes() -> None:
    assert difference(BEFORE, BEFORE) is None


PROGRAM = "another program"
WRONG = {
    "a statement is lost": ("        optimizer.zero_grad()\n", "", PROGRAM),
    "a statement is added": ("x = x * 2\n", "x = x * 2\n            y = y\n", PROGRAM),
    "a call is repeated": (
        "        optimizer.zero_grad()\n",
        "        optimizer.zero_grad()\n        optimizer.zero_grad()\n",
        PROGRAM,
    ),
    "a step is lost": ("        scaler.step(optimizer)  # go\n", "        # go\n", PROGRAM),
    "a step is repeated": (
        "        scaler.update()\n    if",
        "        scaler.update()\n        scaler.step(optimizer)\n    if",
        PROGRAM,
    ),
    "another optimizer steps": ("scaler.step(optimizer)  # go", "scaler.step(model)  # go", PROGRAM),
    "another loss goes backward": ("scaler.scale(loss)", "scaler.scale(loss * 2)", PROGRAM),
    "the loss is computed otherwise": ("criterion(model(x), y)", "criterion(y, model(x))", PROGRAM),
    "an argument of backward": (".backward()", ".backward(retain_graph=True)", PROGRAM),
    "a keyword is added": ("lr=0.1", "lr=0.1, foreach=True", PROGRAM),
    "a value is changed": ("1.0)", "2.0)", PROGRAM),
    "an integer becomes a float": ("x * 2", "x * 2.0", PROGRAM),
    "a string is changed": ('"c.pt"', '"d.pt"', PROGRAM),
    "an entry is renamed": ('"optimizer":', '"opt":', PROGRAM),
    "a default is changed": ("epochs=2", "epochs=3", PROGRAM),
    "a parameter is added": ("scaler=None):", "scaler=None, other=None):", PROGRAM),
    "an argument is lost": ("train(optimizer, scaler", "train(scaler", PROGRAM),
    "another region is lost": ("with torch.no_grad():\n            x = x * 2\n", "x = x * 2\n", PROGRAM),
    "a region that nothing turns off": ("enabled=scaler.is_enabled()", "enabled=True", PROGRAM),
    "statements change places": (
        "        optimizer.zero_grad()\n        with torch.no_grad():\n            x = x * 2\n",
        "        with torch.no_grad():\n            x = x * 2\n        optimizer.zero_grad()\n",
        PROGRAM,
    ),
    "a statement moves into a block": (
        "        optimizer.zero_grad()\n        with torch.no_grad():\n",
        "        with torch.no_grad():\n            optimizer.zero_grad()\n",
        PROGRAM,
    ),
    "an if of one's own": ("    if any(p.grad is not None", "    if any(p.grad is None", PROGRAM),
    "a statement is added under the guard": (
        "        scaler.step(optimizer)\n        scaler.update()\n    torch",
        "        optimizer.zero_grad()\n        scaler.step(optimizer)\n        scaler.update()\n    torch",
        PROGRAM,
    ),
    "a statement of one's own moves under the guard": (
        "        scaler.step(optimizer)\n        scaler.update()\n    torch.save(",
        "        scaler.step(optimizer)\n        scaler.update()\n        torch.save(",
        PROGRAM,
    ),
    "a step of one's own moves under the guard": (
        "        scaler.update()\n    torch",
        "        scaler.update()\n        scaler.step(model)\n    torch",
        PROGRAM,
    ),
    "a guard for another optimizer": ("in optimizer.param_groups", "in other.param_groups", PROGRAM),
    "a guard that looks at other parameters": ('group["params"])', 'group["params"] if y)', PROGRAM),
    "a guard with an else": (
        "        scaler.update()\n    torch",
        "        scaler.update()\n    else:\n        print(x)\n    torch",
        PROGRAM,
    ),
    "more where the switch is missing": (
        'enabled=False)\n',
        'enabled=False)\n        print(epochs)\n',
        PROGRAM,
    ),
    "something else where the switch is missing": (
        '        scaler = torch.amp.GradScaler("cuda", enabled=False)\n',
        "        scaler = epochs.pop()\n",
        PROGRAM,
    ),
    "a branch for the switch that is given": (
        'enabled=False)\n',
        'enabled=False)\n    else:\n        epochs = 1\n',
        PROGRAM,
    ),
    "another test for a missing switch": ("if scaler is None", "if scaler == None", PROGRAM),
    "more where the switch is loaded": (
        'scaler.load_state_dict(saved["scaler"])\n',
        'scaler.load_state_dict(saved["scaler"])\n        saved.clear()\n',
        PROGRAM,
    ),
    "something else where the switch is loaded": (
        'scaler.load_state_dict(saved["scaler"])\n',
        "saved.clear()\n",
        PROGRAM,
    ),
    "more is asked before the switch is loaded": ('saved.get("scaler")', 'saved.pop("scaler")', PROGRAM),
    "a branch where nothing is loaded": (
        'scaler.load_state_dict(saved["scaler"])\n',
        'scaler.load_state_dict(saved["scaler"])\n    else:\n        saved.clear()\n',
        PROGRAM,
    ),
    "a comment is lost": ("  # plain", "", "comment"),
    "a comment is changed": ("# plain", "# Plain", "comment"),
    "a comment is added": ("scaler.unscale_(optimizer)", "scaler.unscale_(optimizer)  # first", "comment"),
    "comments change places": ("# every epoch", "# go", "comment"),
    "no Python": ("for x, y in", "for x, y on", "not valid"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_caught(name: str) -> None:
    old, new, reason = WRONG[name]
    wrong = AFTER.replace(old, new, 1)
    assert wrong != AFTER
    found = difference(BEFORE, wrong)
    assert found is not None
    assert reason in found


def test_only_amp_is_taken_out() -> None:
    """A scaler of another kind is the user's own."""
    before = "scaler = StandardScaler()\nx = scaler.update(x)\nscaler.update()\n"
    after = "scaler = StandardScaler()\nx = scaler.update(x)\n"
    assert difference(before, after) is not None


def test_amp_that_was_there_stays() -> None:
    made = "scaler = torch.amp.GradScaler()\nscaler.step(optimizer)\n"
    assert difference(f"{made}scaler.update()\n", f"{made}scaler.update()\n") is None
    assert difference(f"{made}scaler.update()\n", made) is not None


BFLOAT = 'with torch.autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):\n'


def test_a_bool_is_a_switch_too() -> None:
    before = "loss = model(x)\nloss.backward()\n"
    after = f"use_amp = is_cuda\n{BFLOAT}    loss = model(x)\nloss.backward()\n"
    assert difference(before, after) is None
    assert difference(before, after.replace("model(x)", "model(y)")) is not None


WITHIN = """\
import torch
from net import optimizer

optimizer.load_state_dict(torch.load("opt.pt", map_location="cpu"))
torch.save([optimizer.state_dict()], "opt.pt")
"""
ENTRY = """\
import torch
from net import optimizer
scaler = torch.amp.GradScaler("cuda")

state = torch.load("opt.pt", map_location="cpu")
optimizer.load_state_dict(state)
if scaler.is_enabled() and state.get("scaler"):
    scaler.load_state_dict(state["scaler"])
torch.save([{**optimizer.state_dict(), "scaler": scaler.state_dict()}], "opt.pt")
"""
WRONG_ENTRIES = {
    "the state is lost": ("**optimizer.state_dict(), ", ""),
    "another state": ("**optimizer.state_dict()", "**scaler.state_dict()"),
    "more is saved": ("optimizer.state_dict(), ", 'optimizer.state_dict(), "a": 1, '),
    "another entry": ("scaler.state_dict()}", "optimizer.state_dict()}"),
    "two states": ("optimizer.state_dict(), ", "optimizer.state_dict(), **{}, "),
    "the load is lost": ("optimizer.load_state_dict(state)\n", ""),
    "another load": ("optimizer.load_state_dict(state)", "scaler.load_state_dict(state)"),
    "another key is asked for": ('get("scaler")', 'get("other")'),
    "an entry that must be there": (' and state.get("scaler")', ""),
}  # fmt: skip


def test_an_entry_of_the_optimizers_state_passes() -> None:
    assert difference(WITHIN, ENTRY) is None
    assert difference(ENTRY, WITHIN) is not None
    assert difference("x = f({**a})\n", "x = f(a)\n") is not None
    assert difference("x = f(a)\n", "x = f({**a})\n") is not None


@pytest.mark.parametrize("name", WRONG_ENTRIES)
def test_wrong_entries_are_caught(name: str) -> None:
    old, new = WRONG_ENTRIES[name]
    wrong = ENTRY.replace(old, new, 1)
    assert wrong != ENTRY
    assert difference(WITHIN, wrong) is not None


def test_an_import_stays() -> None:
    assert difference("import os\nprint(os)\n", "print(os)\n") is not None
    inner = "def f():\n    import torch\n    f()\n"
    assert difference(inner, inner.replace("    import torch\n", "")) is not None


FUNCTION = """\
import torch
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    @once
    def backward(ctx, g):
        return g
"""
FWD = '@torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)'
BWD = '@torch.amp.custom_bwd(device_type="cuda")'
DECORATED = FUNCTION.replace("    def f", f"    {FWD}\n    def f").replace(
    "    def b", f"    {BWD}\n    def b"
)
OLD = DECORATED.replace(
    BWD, "@torch.cuda.amp.custom_bwd"
).replace(FWD, "@torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)")  # fmt: skip
LOST = "a part of AMP that was there is lost"
WRONG_DECORATORS = {
    "another dtype": ("cast_inputs=torch.float32", "cast_inputs=torch.float16"),
    "another device": ('(device_type="cuda")', '(device_type="cpu")'),
    "the wrong method": (BWD, FWD),
    "not the innermost": (f"    @once\n    {BWD}\n", f"    {BWD}\n    @once\n"),
    "twice": (BWD, f"{BWD}\n    {BWD}"),
    "another is lost": ("    @once\n", ""),
    "another is added": ("    @once\n", "    @once\n    @twice\n"),
}


def test_decorators_pass() -> None:
    assert difference(FUNCTION, DECORATED) is None
    assert difference(FUNCTION, OLD) is None


@pytest.mark.parametrize("name", WRONG_DECORATORS)
def test_wrong_decorators_are_caught(name: str) -> None:
    old, new = WRONG_DECORATORS[name]
    wrong = DECORATED.replace(old, new)
    assert wrong != DECORATED
    assert difference(FUNCTION, wrong) is not None


def test_decorators_that_were_there_stay() -> None:
    assert difference(DECORATED, FUNCTION) == LOST


PENALTY = """\
import torch
def penalty(net, x):
    # In one.
    out = net(x)
    return torch.autograd.grad(out, x)[0]
"""
ISLAND = """\
import torch
def penalty(net, x):
    # In one.
    with torch.autocast("cuda", enabled=False):
        out = net(x)
        return torch.autograd.grad(out, x)[0]
"""


def test_autocast_that_is_off_passes() -> None:
    assert difference(PENALTY, ISLAND) is None
    assert difference(ISLAND, ISLAND) is None


@pytest.mark.parametrize(
    "header",
    [
        'torch.autocast("cuda", enabled=True)',
        'torch.autocast("cuda")',
        'torch.autocast("cpu", enabled=False)',
        'torch.autocast("cuda", enabled=False) as region',
        'torch.autocast("cuda", enabled=False), torch.no_grad()',
        "torch.no_grad()",
    ],
)
def test_other_regions_are_caught(header: str) -> None:
    wrong = ISLAND.replace('torch.autocast("cuda", enabled=False)', header)
    assert difference(PENALTY, wrong) is not None


def test_autocast_that_was_off_stays_off() -> None:
    assert difference(ISLAND, PENALTY) == LOST


COMPILE = "import torch\nmodel = torch.compile(model)\n"
SETTING = 'torch._functorch.config.backward_pass_autocast = "off"\n'
SET = f"import torch\nimport torch._functorch.config\n{SETTING}model = torch.compile(model)\n"
WRONG_SETTINGS = {
    "on": ('"off"', '"same_as_forward"'),
    "another": ("backward_pass_autocast", "donated_buffer"),
    "of something else": ("torch._functorch.config.backward", "model.config.backward"),
    "another import": ("_functorch.config\n", "_functorch.compilers\n"),
}


def test_a_setting_passes() -> None:
    assert difference(COMPILE, SET) is None


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_wrong_settings_are_caught(name: str) -> None:
    wrong = SET.replace(*WRONG_SETTINGS[name])
    assert wrong != SET
    assert difference(COMPILE, wrong) is not None


def test_a_setting_that_was_there_stays() -> None:
    assert difference(SET, SET.replace(SETTING, "")) == LOST


def test_an_argument_given_twice() -> None:
    before = "f(a=opt.state_dict())\n"
    after = "f(a=opt.state_dict(), s=scaler.state_dict(), s=scaler.state_dict())\n"
    head = "scaler = torch.amp.GradScaler()\n"
    assert difference(before, head + after) == "the output does not compile"


def test_a_switch_that_is_made_too_late() -> None:
    before = """\
import torch

def train(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
"""
    made = (
        '    scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())\n'
    )
    first, rest = before.split("    for x")
    region = '        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n    '
    rest = rest.replace("        loss =", region + "        loss =")
    rest = rest.replace("loss.backward()", "scaler.scale(loss).backward()")
    rest = rest.replace(
        "optimizer.step()", "scaler.step(optimizer)\n        scaler.update()"
    )
    assert difference(before, first + made + "    for x" + rest) is None
    assert difference(before, first + "    for x" + rest + made) == (
        "line 6: scaler is not defined here"
    )
    unreached = first + "    return\n" + "    for x" + rest + made
    assert (
        difference(
            first + "    return\n    for x" + before.split("    for x")[1], unreached
        )
        is None
    )
