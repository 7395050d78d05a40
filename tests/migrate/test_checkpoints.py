"""The scaler's entry, or file, beside the optimizer's in a checkpoint: its name must be free."""

from __future__ import annotations

import re

import pytest
from programs import before_and_after, left_alone, migrated

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


# --- a file of its own --------------------------------------------------------------------------

OPENING = """\
import os
from os.path import join
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
 torch.save(opt.state_dict(), OLD)
+if scaler.is_enabled():
+    torch.save(scaler.state_dict(), NEW)"""
LOAD = """\
 opt.load_state_dict(torch.load(OLD))
+if scaler.is_enabled() and os.path.exists(NEW):
+    scaler.load_state_dict(torch.load(NEW))"""

PATHS = {
    '"optimizer.pt"': '"scaler.pt"',
    '"a/b/optim_last.pth"': '"a/b/scaler_last.pth"',
    r'r"C:\runs\opt.pt"': r'r"C:\runs\scaler.pt"',
    r'"C:\\runs\\opt.pt"': r'"C:\\runs\\scaler.pt"',
    "'options_Optimizer.pt'": "'options_scaler.pt'",
    'os.path.join(out, "optim_last.pth")': 'os.path.join(out, "scaler_last.pth")',
    'join(args.out, f"opt-{n}.pt")': 'join(args.out, f"scaler-{n}.pt")',
    'f"{out}/optimizer_{epoch:03d}.pt"': 'f"{out}/scaler_{epoch:03d}.pt"',
    'f"{out}/{name}_optimizer" + ".pt"': 'f"{out}/{name}_scaler" + ".pt"',
    'out / "optimizer.pt"': 'out / "scaler.pt"',
    'Path(out) / str(n) / "optimizer.pt"': 'Path(out) / str(n) / "scaler.pt"',
    'Path(out, "optimizer.pt")': 'Path(out, "scaler.pt")',
    'str(out / f"optimisers_{epoch}.pt")': 'str(out / f"scaler_{epoch}.pt")',
    'args.out + "/opt.pt"': 'args.out + "/scaler.pt"',
    'p["out"] + "/" + str(n) + ".opt"': 'p["out"] + "/" + str(n) + ".scaler"',
    '"%s/optimizer_%d.pt" % (out, n)': '"%s/scaler_%d.pt" % (out, n)',
    '"{}/optimizer_{}.pt".format(out, n)': '"{}/scaler_{}.pt".format(out, n)',
    'f"""a/opt_{epoch}.pt"""': 'f"""a/scaler_{epoch}.pt"""',
}


def training(load: str, save: str) -> tuple[str, str]:
    """A script before and after, with what it loads and saves, each as a diff."""
    return before_and_after(TRAINING.replace("LOAD\n", load).replace("SAVE\n", save))


def checked(load: str, save: str) -> None:
    before, after = training(load, save)
    assert migrated(before, head=OPENING) == after
    again = migrate_source(OPENING + after, path="train.py")
    assert again.output == OPENING + after


@pytest.mark.parametrize("path", PATHS)
def test_file(path: str) -> None:
    load, save = (
        f"{text}\n".replace("OLD", path).replace("NEW", PATHS[path])
        for text in (LOAD, SAVE)
    )
    checked(load, save)


FORMS = {
    "options are those of the other": (
        """\
 opt.load_state_dict(torch.load("opt.pt", map_location=lambda s, _: s, weights_only=True))
+if scaler.is_enabled() and os.path.exists("scaler.pt"):
+    scaler.load_state_dict(
+        torch.load("scaler.pt", map_location=lambda s, _: s, weights_only=True)
+    )
""",
        """\
 torch.save(opt.state_dict(), f="opt.pt", _use_new_zipfile_serialization=True, pickle_protocol=2)
+if scaler.is_enabled():
+    torch.save(
+        scaler.state_dict(),
+        f="scaler.pt",
+        _use_new_zipfile_serialization=True,
+        pickle_protocol=2,
+    )
""",
    ),
    "a device that is made": (
        """\
 opt.load_state_dict(torch.load("opt.pt", torch.device("cpu")))
+if scaler.is_enabled() and os.path.exists("scaler.pt"):
+    scaler.load_state_dict(torch.load("scaler.pt", torch.device("cpu")))
""",
        "",
    ),
    "comments stay with the optimizer": (
        "",
        """\
 torch.save(  # the state
     opt.state_dict(),  # moments
     "opt.pt",
 )  # saved
+if scaler.is_enabled():
+    torch.save(
+        scaler.state_dict(),
+        "scaler.pt",
+    )
 # done
""",
    ),
    "in a branch": (
        """\
 if os.path.exists("opt.pt"):
     opt.load_state_dict(torch.load("opt.pt"))
+    if scaler.is_enabled() and os.path.exists("scaler.pt"):
+        scaler.load_state_dict(torch.load("scaler.pt"))
 else:
     print("new")
""",
        "",
    ),
    "in one line": (
        "",
        """\
-if device: torch.save(opt.state_dict(), "opt.pt")
+if device:
+    torch.save(opt.state_dict(), "opt.pt")
+    if scaler.is_enabled():
+        torch.save(scaler.state_dict(), "scaler.pt")
""",
    ),
    "another file has the name": (
        """\
 opt.load_state_dict(torch.load("opt.pt"))
+if scaler.is_enabled() and os.path.exists("amp_scaler.pt"):
+    scaler.load_state_dict(torch.load("amp_scaler.pt"))
 mean = torch.load("standard/grad_scaler.bin")
""",
        """\
 torch.save(opt.state_dict(), "opt.pt")
+if scaler.is_enabled():
+    torch.save(scaler.state_dict(), "amp_scaler.pt")
""",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str) -> None:
    checked(*FORMS[name])


IMPORTS = {
    "alone": ("-import torch\n+import os\n+\n+import torch\n", "os"),
    "first": ("-import sys\n+import os\n+import sys\n import torch\n", "os"),
    "last": (" import argparse\n+import os\n\n import torch\n", "os"),
    "between": (" import io\n+import os\n from sys import argv\n import torch\n", "os"),
    "before from": (
        "-from sys import argv\n+import os\n+from sys import argv\n import torch\n",
        "os",
    ),
    "below the docstring": (
        ' """Train."""\n\n-import torch\n+import os\n+\n+import torch\n',
        "os",
    ),
    "below the future": (
        " from __future__ import annotations\n\n import io\n+import os\n import torch\n",
        "os",
    ),
    "by another name": (" import torch, os as system\n", "system"),
    "only its path": (
        "-import os.path as osp\n+import os\n+import os.path as osp\n import torch\n",
        "os",
    ),
    "with its path": (" import os.path\n import torch\n", "os"),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_import(name: str) -> None:
    imports, known = IMPORTS[name]
    rest = "".join(f" {line}\n" for line in OPENING.splitlines()[4:])
    load = LOAD.replace("OLD", '"opt.pt"').replace("NEW", '"scaler.pt"')
    load = load.replace("os.path", f"{known}.path")
    body = TRAINING.replace("LOAD", load).replace("SAVE\n", "")
    before, after = before_and_after(imports + rest + body)
    assert migrated(before, head="") == after


REFUSED = {
    "the name of a folder": 'torch.save(opt.state_dict(), "opt/last.pt")',
    "a joined folder": 'torch.save(opt.state_dict(), os.path.join("opt", "last.pt"))',
    "a folder by division": 'torch.save(opt.state_dict(), out / "opt" / "last.pt")',
    "a folder, maybe": 'torch.save(opt.state_dict(), f"{out}/opt{rest}")',
    "a folder with a number": 'torch.save(opt.state_dict(), f"opt_{n}/{m}.pt")',
    "a name elsewhere": "torch.save(opt.state_dict(), path)",
    "no name for the optimizer": 'torch.save(opt.state_dict(), "options.pt")',
    "two names": 'torch.save(opt.state_dict(), "opt_optimizer.pt")',
    "a key": 'torch.save(opt.state_dict(), paths["opt"])',
    "a field": 'torch.save(opt.state_dict(), "{opt}.pt".format(opt=1))',
    "a field, %": 'torch.save(opt.state_dict(), "%(opt)s.pt" % names)',
    "a value": 'torch.save(opt.state_dict(), "%s.pt" % "opt")',
    "a call": 'torch.save(opt.state_dict(), open("opt.pt", "wb"))',
    "a call in a path": 'torch.save(opt.state_dict(), f"opt_{next(numbers)}.pt")',
    "a call among the options": 'torch.save(opt.state_dict(), "opt.pt", protocol())',
    "options out of sight": 'torch.save(opt.state_dict(), "opt.pt", **options)',
    "in another statement": 'saved = torch.save(opt.state_dict(), "opt.pt")',
    "not torch's": 'keep.save(opt.state_dict(), "opt.pt")',
    "two optimizers": """\
torch.save(opt.state_dict(), "opt.pt")
torch.save(best.state_dict(), "optim.pt")""",
    "no name is free": """\
torch.save(opt.state_dict(), "opt.pt")
known = ["scaler.pt", "grad_scaler", "a/AMP_SCALER_1", "loss_scaler.bin"]""",
    "folders are looked through": """\
torch.save(opt.state_dict(), "opt.pt")
print(os.listdir())""",
    "files are moved": """\
torch.save(opt.state_dict(), "opt.pt")
os.rename("opt.pt", "old.pt")""",
    "loaded into a variable": """\
state = torch.load("opt.pt")
opt.load_state_dict(state)""",
    "loaded by others": 'opt.load_state_dict(pickle.load("opt.pt"))',
    "loaded and used": 'print(opt.load_state_dict(torch.load("opt.pt")))',
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_stays_alone(name: str) -> None:
    before, _ = training("", "".join(f" {s}\n" for s in REFUSED[name].splitlines()))
    assert left_alone(before, head=OPENING) == "AMP040"


def test_os_is_something_else() -> None:
    load = ' opt.load_state_dict(torch.load("opt.pt"))\n'
    before, _ = training(load, " def use(os):\n     return os\n")
    assert left_alone(before, head=OPENING) == "AMP035"
    before, _ = training(load, " import os\n")
    head = OPENING.replace("import os\n", "")
    assert left_alone(before, head=head) == "AMP040"


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
    result = migrate_source(WRAPPER.replace(*PASSED_ON[name]))
    assert [found.code for found in result.diagnostics] == ["AMP040"]


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
    """Its scaler would start at 65536 in each update, and could skip all of its few steps."""
    load = "        if self.state is not None:\n            self.opt.load_state_dict(self.state)"
    assert left_alone(_ANEW.replace("LOAD", load)) == "AMP040"
    own = "        self.state = self.opt.state_dict()\n        self.opt.load_state_dict(self.state)"
    assert "scaler" in migrated(_ANEW.replace("LOAD", own))
