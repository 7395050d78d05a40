"""Code that no region reaches is no reason to leave a loop alone. All scripts really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from half_support import Case, cases, check_lines, check_runs
from programs import HEAD

from amp_migrate.api import Outcome, migrate_paths, migrate_source

_SPARSE = """\
class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.register_buffer("eye", torch.eye(8).to_sparse())
    def forward(self, x):
        return torch.sparse.mm(self.eye, self.l(x))
"""
_PLAIN = """\
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(nn.Linear(2, 2).weight)
        start = torch.linalg.qr(torch.randn(6, 6))[0]
        self.l = nn.Linear(6, 1)
        self.l.weight.data.copy_(start[:1])
    def forward(self, x):
        return self.l(x)
"""
_DICE = """\
class Dice(nn.Module):
    def forward(self, out, y):
        kept = torch.zeros(8, 1)
        kept[y > 0] = torch.sigmoid(out)[y > 0]
        return torch.linalg.det(product := kept.t() @ kept)
"""


_OPTION = """\
class Net(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.sparse = sparse
        self.l = nn.Linear(6, 1)
        self.register_buffer("eye", torch.eye(8).to_sparse())
    def forward(self, x):
        h = self.l(x)
        if self.sparse:
            h = torch.sparse.mm(self.eye, h)
        return h
"""


def _written(text: str) -> dict[str, Case]:
    words = {"SPARSE": _SPARSE, "PLAIN": _PLAIN, "DICE": _DICE, "OPTION": _OPTION}
    for word, code in words.items():
        text = text.replace(f"{word}\n", code)
    return cases(text)


MIGRATED = _written("""\
=== an option that only what nothing calls sets
OPTION
def build(kind, **options):
    return Net(**options)
def rename(net, name):
    setattr(net, name, True)
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== a class that nothing makes
SPARSE
PLAIN
model = Plain().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== a function that nothing calls
LINEAR
def unused(x):
    torch.autograd.set_detect_anomaly(True)
    return model(x).detach().numpy(), torch.linalg.det(model(x))
---
loss = F.mse_loss(model(x), y)
---

=== a table asked for one key
SPARSE
PLAIN
NETS = {"plain": Plain, "sparse": Sparse}
model = NETS["plain"]().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== classes for which an object is tested alone
SPARSE
PLAIN
NETS = (Sparse, Plain)
model = Plain().to(device)
assert isinstance(model, NETS)
---
loss = F.mse_loss(model(x), y)
---

=== a name that is always the same
SPARSE
PLAIN
NAME = "plain"
def make(name, width=3):
    if name == "sparse":
        return Sparse()
    elif name == "plain":
        return Plain()
    raise ValueError(name)
model = make(NAME).to(device)
---
loss = F.mse_loss(model(x), y)
---

=== an option that nobody takes
SPARSE
PLAIN
class Chosen(nn.Module):
    def __init__(self, sparse=False, kind="plain"):
        super().__init__()
        self.sparse, self.kind = sparse, kind
        self.build()
    def build(self):
        if self.sparse and self.kind is not None:
            self.net = Sparse()
        elif not self.sparse:
            self.net = Plain()
    def forward(self, x):
        return self.net(x)
model = Chosen().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== a default that nobody changes
SPARSE
PLAIN
def make(name="plain"):
    if name != "plain":
        return Sparse()
    else:
        return Plain()
model = make().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== a Function whose forward() the evaluation calls
class Overlap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out, y):
        return (out * y).sum() / (out.abs().sum() + y.sum())
    @staticmethod
    def backward(ctx, grad):
        return grad, None
LINEAR
def evaluate(model, x, y):
    with torch.no_grad():
        out = model(x)
    return Overlap().forward(None, out, y).item()
---
loss = F.mse_loss(model(x), y)
print(evaluate(model, x, y))
---

=== a loss of the evaluation
DICE
LINEAR
criterion, dice = nn.MSELoss(), Dice()
score = Dice().to(device)
def evaluate(model, x, y):
    with torch.no_grad():
        out = model(x)
        return dice(out, y).item(), score(out, y).item()
---
loss = criterion(model(x), y)
print(evaluate(model, x, y))
---

=== a loss of the evaluation, kept on the trainer
DICE
LINEAR
class Trainer:
    def __init__(self, model):
        self.model = model
        self.dice = Dice().to(device)
    def evaluate(self, x, y):
        with torch.no_grad():
            return self.dice(self.model(x), y).item()
    def loss(self, x, y):
        return F.mse_loss(self.model(x), y)
trainer = Trainer(model)
---
loss = trainer.loss(x, y)
print(trainer.evaluate(x, y))
---

=== a method that no region calls
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
    def volume(self):
        return torch.linalg.det(self.l.weight.t() @ self.l.weight)
    def forward(self, x):
        return self.l(x)
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
print(model.volume().item() < 2)
---

=== a hook that only an option sets which nobody takes
class Net(nn.Module):
    def __init__(self, watched=False):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.watched = watched
        if hasattr(self, "watched") and self.watched:
            self.watch()
    def watch(self):
        self.l.register_full_backward_hook(lambda module, given, got: print(got))
    def forward(self, x):
        return self.l(x)
model = Net(False).to(device)
---
loss = F.mse_loss(model(x), y)
---

=== a method of a module that nothing calls
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
    def predict(self, x):
        return self._predict(x)
    def _predict(self, x):
        return self.half()(x.half())
    def forward(self, x):
        return self.l(x)
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== the command line as a table
import argparse
SPARSE
PLAIN
options = argparse.ArgumentParser().parse_known_args()[0].__dict__
model = Plain().to(device)
---
loss = F.mse_loss(model(x), y)
---

=== a method by its name
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
    def volume(self, x):
        return torch.linalg.det(self.l.weight.t() @ self.l.weight)
    def forward(self, x):
        return self.l(x) + getattr(self, "volume")(x)
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
    return torch.linalg.det(self.l.weight.t() @ self.l.weight)
""")
REFUSED = _written("""\
=== classes of which one is made, too
SPARSE
PLAIN
NETS = (Sparse, Plain)
model = NETS[0]().to(device)
assert isinstance(model, NETS)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a method under another name
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.register_buffer("eye", torch.eye(8).to_sparse())
    def mix(self, h):
        return torch.sparse.mm(self.eye, h)
    blend = mix
    def forward(self, x):
        return self.blend(self.l(x))
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a method of a protocol that calls the one above it
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
    def _apply(self, change):
        super()._apply(change)
        self.eye = torch.sparse.mm(torch.eye(8).to_sparse(), torch.eye(8))
        return self
    def forward(self, x):
        return torch.sparse.mm(self.eye.to_sparse(), self.l(x))
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a forward that is called by its name where nothing runs
SPARSE
model = Sparse().to(device)
def unused(net, x):
    return net.forward(x)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a method that is called by a name that is put together
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.register_buffer("eye", torch.eye(8).to_sparse())
    def mix_sparse(self, h):
        return torch.sparse.mm(self.eye, h)
    def forward(self, x):
        return getattr(self, "mix" + "_sparse")(self.l(x))
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== an option among others
OPTION
def build(kind, **options):
    return Net(**options)
model = build("net", sparse=True).to(device)
---
loss = F.mse_loss(model(x), y)
---
h = torch.sparse.mm

=== an option that is set by its name
OPTION
def build(kind, **options):
    return Net(**options)
model = Net().to(device)
for key in ("sparse",):
    setattr(model, key, True)
---
loss = F.mse_loss(model(x), y)
---
h = torch.sparse.mm

=== one of the table's, by a key from outside
import sys
SPARSE
PLAIN
NETS = {"plain": Plain, "sparse": Sparse}
model = NETS[sys.argv[-1] if len(sys.argv) > 4 else "plain"]().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== an option that somebody takes
SPARSE
PLAIN
class Chosen(nn.Module):
    def __init__(self, sparse=False, kind="plain"):
        super().__init__()
        self.sparse, self.kind = sparse, kind
        self.build()
    def build(self):
        if self.sparse and self.kind is not None:
            self.net = Sparse()
        elif not self.sparse:
            self.net = Plain()
    def forward(self, x):
        return self.net(x)
model = Chosen(True).to(device)
Chosen()
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== an option that is set from outside
SPARSE
PLAIN
class Chosen(nn.Module):
    def __init__(self, sparse=False, kind="plain"):
        super().__init__()
        self.sparse, self.kind = sparse, kind
        self.build()
    def build(self):
        if self.sparse and self.kind is not None:
            self.net = Sparse()
        elif not self.sparse:
            self.net = Plain()
    def forward(self, x):
        return self.net(x)
model = Chosen()
model.sparse = True
model.build()
model = model.to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== an option of a class
SPARSE
PLAIN
class Chosen(nn.Module):
    def __init__(self, sparse=False, kind="plain"):
        super().__init__()
        self.sparse, self.kind = sparse, kind
        self.build()
    def build(self):
        if self.sparse and self.kind is not None:
            self.net = Sparse()
        elif not self.sparse:
            self.net = Plain()
    def forward(self, x):
        return self.net(x)
class Late(Chosen):
    sparse = True
    def build(self):
        del self.sparse
        super().build()
model = Late().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== in a list of layers
SPARSE
model = nn.Sequential(Sparse(), nn.ReLU()).to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== by a lookup
SPARSE
PLAIN
model = globals()["Sp" + "arse"]().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== by a registry
NETS = {}
def register(cls):
    NETS[cls.__name__.lower()] = cls
    return cls
@register
SPARSE
model = NETS["sparse"]().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== by the base class
class Base(nn.Module):
    made = []
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Base.made.append(cls)
class Sparse(Base):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.register_buffer("eye", torch.eye(8).to_sparse())
    def forward(self, x):
        return torch.sparse.mm(self.eye, self.l(x))
model = Base.made[0]().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a loss of evaluation and training
DICE
LINEAR
dice = Dice()
def evaluate(model, x, y):
    with torch.no_grad():
        return dice(model(x), y).item()
---
loss = F.mse_loss(model(x), y) + 0 * dice(model(x), y)
print(evaluate(model, x, y))
---
return torch.linalg.det

=== a loss among others
DICE
LINEAR
dice = Dice()
losses = [nn.MSELoss(), dice]
---
loss = losses[0](model(x), y) + 0 * losses[1](model(x), y)
---
return torch.linalg.det

=== one of the table's, a class attribute
SPARSE
PLAIN
class Zoo:
    NETS = {"plain": Plain, "sparse": Sparse}
    first = NETS["plain"]
model = Zoo.NETS["sparse"]().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== an argument in a dict
SPARSE
PLAIN
def make(name="plain"):
    if name == "sparse":
        return Sparse()
    return Plain()
options = {"name": "sparse"}
model = make(**options).to(device)
---
loss = F.mse_loss(make()(x) * 0 + model(x), y)
---
return torch.sparse.mm

=== a name that a pattern binds
SPARSE
PLAIN
def make(name):
    if name == "sparse":
        return Sparse()
    return Plain()
name = "plain"
match ["sparse"]:
    case [name]:
        pass
model = make(name).to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a layer by a name that is put together
SPARSE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer0 = nn.Identity()
        self.layer1 = Sparse()
    def forward(self, x):
        for i in range(2):
            x = getattr(self, f"layer{i}")(x)
        return x
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a layer among the children
SPARSE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Sparse()
    def forward(self, x):
        for layer in self.children():
            x = layer(x)
        return x
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a layer of a library's container
SPARSE
class Net(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.layer = Sparse()
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a layer put into a library's model
SPARSE
model = nn.Sequential()
model.layer = Sparse()
model = model.to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a name that is its module's attribute
import sys
SPARSE
PLAIN
NAME = "plain"
def make():
    if NAME == "sparse":
        return Sparse()
    return Plain()
sys.modules[__name__].NAME = "sparse"
model = make().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a name that is an attribute set by a function
import sys
SPARSE
PLAIN
NAME = "plain"
def make():
    if NAME == "sparse":
        return Sparse()
    return Plain()
setattr(sys.modules[__name__], "NAME", "sparse")
model = make().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm

=== a name that is an attribute set by a name from elsewhere
import sys
SPARSE
PLAIN
NAME = "plain"
def make():
    if NAME == "sparse":
        return Sparse()
    return Plain()
for key in ("NAME",):
    setattr(sys.modules[__name__], key, "sparse")
model = make().to(device)
---
loss = F.mse_loss(model(x), y)
---
return torch.sparse.mm
""")


@pytest.mark.parametrize("name", MIGRATED)
def test_migrated(name: str) -> None:
    case = MIGRATED[name]
    result = migrate_source(case.source)
    assert result.changed, result.diagnostics
    check_lines(result.output, case.lines)
    check_runs(case.source, result.output)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case = REFUSED[name]
    compile(case.source, "script.py", "exec")
    result = migrate_source(case.source)
    assert result.output == case.source
    (found,) = result.diagnostics
    assert found.code == "AMP020"
    assert found.blocker is not None
    assert found.blocker.text.startswith(case.lines[0])


_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
_TRAIN = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nets.MAKE().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(8, 6, device=device), torch.randn(8, 1, device=device)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_each_script_has_its_own_nets(tmp_path: Path) -> None:
    """Two scripts share a file of networks, and one of them makes the unsafe one."""
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN)
    for name in ("Plain", "Sparse"):
        text = _HEAD + "import nets\n" + _TRAIN.replace("MAKE", name)
        (tmp_path / f"{name.lower()}.py").write_text(text)
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["plain.py"].changed, found["plain.py"].diagnostics
    assert not found["sparse.py"].changed


MAIN_BLOCK = """\
import torch
from nets import make

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if __name__ == "__main__":
    model = make().to(device)
    kept = torch.zeros(8, 1, device=device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in range(3):
        out = model(torch.randn(8, 6, device=device))
        torch.mul(out.detach(), 2, out=kept)
        loss = (out * kept).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
"""What stands there is in the way in the script that is run, and nowhere else."""


def test_the_main_block_of_the_script(tmp_path: Path) -> None:
    made = f"{_HEAD}def make():\n    return nn.Linear(6, 1)\n"
    text, path = MAIN_BLOCK, tmp_path / "train.py"
    (tmp_path / "nets.py").write_text(made)
    path.write_text(text)
    (found,) = migrate_paths([path]).results
    assert [one.code for one in found.diagnostics] == ["AMP020"]
    path.write_text(
        text.replace("torch.mul(", "torch.mul(torch.empty_like(kept), 2) #")
    )
    used = 'if __name__ == "__main__":\n    net, x = make(), torch.randn(8, 6)\n'
    used += "    kept = torch.zeros(8, 1)\n    torch.mul(net(x), 2, out=kept)\n"
    (tmp_path / "nets.py").write_text(made + used)
    (found,) = migrate_paths([path]).results
    assert not found.diagnostics


@pytest.mark.parametrize("comes", [False, True])
def test_a_main_block_beside_what_is_looked_up(tmp_path: Path, comes: bool) -> None:
    """Where any class may be trained: a script that comes to no loop is another run."""
    block = (
        'if __name__ == "__main__":\n    points = {}\n    kept = torch.zeros(8, 1)\n'
    )
    block += "    Net()(torch.zeros(8, 6), points)\n    torch.mul(points['y'], 2, out=kept)\n"
    block += "    import train\n" if comes else ""
    net = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
    def forward(self, x, points):
        points["y"] = self.fc(x)
        return points
"""
    (tmp_path / "nets.py").write_text(_HEAD + net + block)
    asked = "importlib.import_module(sys.argv[1]).Net()"
    text = _HEAD + "import importlib\nimport sys\nimport nets\n"
    text += _TRAIN.replace("nets.MAKE()", asked).replace(
        "model(x)", "model(x, {})['y']"
    )
    (tmp_path / "train.py").write_text(text)
    found = migrate_paths([tmp_path]).results
    assert any(one.changed for one in found) is not comes


def test_each_script_has_its_own_options(tmp_path: Path) -> None:
    """And `import *` brings the nets to it by way of a package."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "kinds.py").write_text(_HEAD + _SPARSE + _PLAIN)
    names = "from .kinds import Plain, Sparse\n"
    (tmp_path / "nets" / "inner.py").write_text(names)
    (tmp_path / "nets" / "__init__.py").write_text("from .inner import *\n")
    made = """\
class Net(nn.Module):
    def __init__(self, phase):
        super().__init__()
        self.phase = phase
        if self.phase == "test":
            self.net = Sparse()
        else:
            self.net = Plain()
    def forward(self, x):
        return self.net(x)
"""
    (tmp_path / "net.py").write_text(_HEAD + "from nets import *\n" + made)
    for phase in ("train", "test"):
        text = (
            _HEAD + "import net as nets\n" + _TRAIN.replace("MAKE()", f"Net({phase!r})")
        )
        (tmp_path / f"{phase}.py").write_text(text)
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["train.py"].changed, found["train.py"].diagnostics
    assert not found["test.py"].changed


@pytest.mark.parametrize("made", ["nets.Plain()", "(nets.Sparse(), nets.Plain())[1]"])
def test_a_module_whose_name_goes_to_what_it_makes(tmp_path: Path, made: str) -> None:
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN)
    train = _TRAIN.replace("nets.MAKE()", "nets")
    text = f"{_HEAD}import nets\nnets = {made}\n{train}"
    (tmp_path / "train.py").write_text(text)
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["train.py"].changed is (made == "nets.Plain()")


def test_what_is_of_another_framework_computes_with_no_tensor(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(_HEAD + _PLAIN)
    (tmp_path / "keras_nets.py").write_text(
        "import tensorflow.keras.backend as K\nclass Plain(K.Module):\n"
        "    def forward(self, x):\n        return K.log(K.clip(x, 1e-36, 1.0))\n"
    )
    either = (
        "import sys\nif len(sys.argv) > 1:\n    import keras_nets as nets\n"
        "else:\n    import nets\n"
    )
    text = _HEAD + either + _TRAIN.replace("MAKE", "Plain")
    (tmp_path / "train.py").write_text(text)
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["train.py"].changed, found["train.py"].diagnostics


@pytest.mark.parametrize("names", ["nets.__dict__", "vars(nets)"])
@pytest.mark.parametrize("unsafe", [False, True])
def test_nets_that_a_package_has_by_their_names(
    tmp_path: Path, unsafe: bool, names: str
) -> None:
    """`nets.__dict__[name]` may be all that the package has, and nothing else of the program."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "plain.py").write_text(_HEAD + _PLAIN)
    (tmp_path / "sparse.py").write_text(_HEAD + _SPARSE)
    star = "from sparse import *\n" if unsafe else ""
    (tmp_path / "nets" / "__init__.py").write_text(f"from .plain import *\n{star}")
    text = (
        _HEAD
        + "import sys\nimport nets\nfrom sparse import Sparse\nname = sys.argv[-1]\n"
        + _TRAIN.replace("nets.MAKE()", f"{names}[name]()")
    )
    (tmp_path / "train.py").write_text(text)
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["train.py"].changed is not unsafe, found["train.py"].diagnostics


def test_a_library_is_called_with_any_of_its_nets(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN)
    lines = _TRAIN.replace("MAKE", "Plain").splitlines(keepends=True)
    body = "".join("    " + line for line in lines if "model = " not in line)
    (tmp_path / "lib.py").write_text(
        _HEAD + "import nets\ndef fit(model):\n" + body + "    return model\n"
    )
    (found,) = (
        r for r in migrate_paths([tmp_path]).results if r.path.endswith("lib.py")
    )
    assert not found.changed


_IMPORTS = {
    # how the module is named: (the function that imports it, whether all may be imported)
    "whole": ("importlib.import_module('zoo.more').Plain", False),
    "put together": ("importlib.import_module(f'zoo.{name}').Plain", False),
    "put together by +": ("importlib.import_module('zoo.' + name).Plain", False),
    "formatted": ("importlib.import_module('zoo.{}'.format(name)).Plain", False),
    "in a variable": ("getattr(importlib.import_module(where), 'Pl' + 'ain')", False),
    "the one with it": ("importlib.import_module(f'nets{name}').Plain", True),
    "from outside": ("importlib.import_module(sys.argv[1]).Plain", True),
    "relative": ("importlib.import_module('.more', 'zoo').Plain", False),
    "relative to any": ("importlib.import_module('.more', name).Plain", True),
    "one that imports it": (
        "getattr(importlib.import_module(f'lib.{name}'), name)",
        True,
    ),
}


@pytest.mark.parametrize("name", _IMPORTS)
def test_a_module_that_is_imported_by_name(name: str, tmp_path: Path) -> None:
    """Only what that package has can run then."""
    imported, is_open = _IMPORTS[name]
    for package, text in (
        ("zoo", _HEAD + _PLAIN),
        ("lib", "from nets import Sparse\n"),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "more.py").write_text(text)
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN)
    find = f"def find(name):\n    where = 'zoo.' + name\n    return {imported}\n"
    check = "if sys.argv[2:]:\n    print(find(sys.argv[1])())\n"
    text = f"{_HEAD}import importlib\nimport sys\nimport nets\nimport zoo.more\nimport lib.more\n"
    (tmp_path / "train.py").write_text(
        text + find + check + _TRAIN.replace("MAKE", "Plain")
    )
    (found,) = (
        r for r in migrate_paths([tmp_path]).results if r.path.endswith("train.py")
    )
    assert found.changed is not is_open, found.diagnostics


_REGISTERS = """\
import importlib
import os
files = [f[:-3] for f in os.listdir(os.path.dirname(__file__)) if f.startswith("net_")]
"""


@pytest.mark.parametrize(
    ("taken", "is_open"),
    [
        ("[importlib.import_module(f'zoo.{f}') for f in files]", False),
        ("modules = [importlib.import_module(f'zoo.{f}') for f in files]", False),
        ("for f in files:\n    importlib.import_module(f'zoo.{f}')", False),
        (
            "modules = [importlib.import_module(f'zoo.{f}') for f in files]\n"
            "def made(name):\n"
            "    return next(getattr(m, name) for m in modules if hasattr(m, name))()",
            True,
        ),
    ],
)
def test_modules_that_are_imported_to_register_what_they_define(
    taken: str, is_open: bool, tmp_path: Path
) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "__init__.py").write_text(f"{_REGISTERS}{taken}\n")
    (tmp_path / "zoo" / "net_more.py").write_text(_HEAD + _SPARSE)
    (tmp_path / "nets.py").write_text(_HEAD + _PLAIN)
    text = f"{_HEAD}import zoo\nimport nets\n"
    (tmp_path / "train.py").write_text(text + _TRAIN.replace("MAKE", "Plain"))
    (found,) = (
        r for r in migrate_paths([tmp_path]).results if r.path.endswith("train.py")
    )
    assert found.changed is not is_open, found.diagnostics


@pytest.mark.parametrize("exported", ["Plain", "Plain, Sparse", "*"])
def test_a_net_that_a_module_is_asked_for_by_name(
    exported: str, tmp_path: Path
) -> None:
    """It is one of those that the module knows, wherever these are written."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "parts.py").write_text(_HEAD + _SPARSE + _PLAIN)
    (tmp_path / "nets" / "__init__.py").write_text(f"from .parts import {exported}\n")
    asked = _TRAIN.replace("nets.MAKE()", "getattr(nets, (sys.argv[1:] or names)[0])()")
    text = f"{_HEAD}import sys\nimport nets\nnames = ['Plain']\n{asked}"
    (tmp_path / "train.py").write_text(text)
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["train.py"].changed is (exported == "Plain")


_LOOKS_UP = 'if __name__ == "__main__":\n    print(globals()["Sp" + "arse"]()(torch.ones(8, 6)))\n'


def test_a_file_that_is_imported_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN + _LOOKS_UP)
    text = _HEAD + "import nets\n" + _TRAIN.replace("MAKE", "Plain")
    (tmp_path / "train.py").write_text(text)
    (found,) = (
        r for r in migrate_paths([tmp_path]).results if r.path.endswith("train.py")
    )
    assert found.changed, found.diagnostics


def test_a_file_that_has_the_loop_is_started(tmp_path: Path) -> None:
    """Started by itself, it trains what it looks up."""
    body = _TRAIN.replace("model = nets.MAKE()", "model = make()")
    body = "".join("    " + line for line in body.splitlines(keepends=True))
    start = 'if __name__ == "__main__":\n    fit(globals()["Sp" + "arse"])\n'
    (tmp_path / "nets.py").write_text(
        f"{_HEAD}{_SPARSE}{_PLAIN}def fit(make):\n{body}{start}"
    )
    (tmp_path / "train.py").write_text("import nets\nnets.fit(nets.Plain)\n")
    assert not any(r.changed for r in migrate_paths([tmp_path]).results)


def test_a_command_that_nothing_calls_is_started(tmp_path: Path) -> None:
    """``[project.scripts]`` names functions, which are called without arguments."""
    body = _TRAIN.replace("model = nets.MAKE()", "model = make()")
    body = "".join("    " + line for line in body.splitlines(keepends=True))
    body = body.replace("make()", "make[0]()")
    commands = "def main():\n    fit([Plain])\ndef other(folds=2):\n    fit([Sparse])\n"
    (tmp_path / "train.py").write_text(
        f"{_HEAD}{_SPARSE}{_PLAIN}def fit(make):\n{body}{commands}"
        'if __name__ == "__main__":\n    main()\n'
    )
    assert not any(r.changed for r in migrate_paths([tmp_path]).results)


@pytest.mark.parametrize(
    "called", ['{"fit": lib.fit}[input()](', 'getattr(lib, "fit")(', "lib.fit("]
)
def test_a_file_that_runs_the_loop_gives_it_its_net(
    called: str, tmp_path: Path
) -> None:
    build = 'def build(name):\n    return {"sparse": Sparse}[name]\n'
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + build)
    body = _TRAIN.replace("model = nets.MAKE()", "model = make()")
    body = "".join("    " + line for line in body.splitlines(keepends=True))
    (tmp_path / "lib.py").write_text(f"{_HEAD}def fit(make):\n{body}")
    (tmp_path / "train.py").write_text(
        f'import lib\nimport nets\n{called}nets.build("sparse"))\n'
    )
    assert not any(r.changed for r in migrate_paths([tmp_path]).results)


_SCRIPT = """\
import sys
import lib
import nets


def main():
    FIT


if __name__ == "__main__":
    main()
"""
_OTHER_SCRIPTS = {
    # name: (what the other script does, whether it comes to the loop with its net)
    "another loop": ("lib.other([nets.Sparse][0])", False),
    "by an alias": ("run = lib.fit\n    run([nets.Sparse][0])", True),
    "by its name": ("getattr(lib, sys.argv[1])([nets.Sparse][0])", True),
    "through the other": ("lib.both([nets.Sparse][0])", True),
}


@pytest.mark.parametrize("name", _OTHER_SCRIPTS)
def test_a_script_that_never_comes_to_the_loop_gives_it_no_net(
    name: str, tmp_path: Path
) -> None:
    does, comes = _OTHER_SCRIPTS[name]
    body = _TRAIN.replace("model = nets.MAKE()", "model = make()")
    body = "".join("    " + line for line in body.splitlines(keepends=True))
    both = "def both(make):\n    fit(make)\n"
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN)
    (tmp_path / "lib.py").write_text(
        f"{_HEAD}def fit(make):\n{body}def other(make):\n{body}{both}"
    )
    (tmp_path / "plain.py").write_text(
        _SCRIPT.replace("FIT", "lib.fit({'plain': nets.Plain}[sys.argv[1]])")
    )
    (tmp_path / "sparse.py").write_text(_SCRIPT.replace("FIT", does))
    found = migrate_paths([tmp_path]).results
    changed = {Path(r.path).name for r in found if r.changed}
    assert ("lib.py" in changed) is not comes
    if not comes:
        text = next(r.output for r in found if Path(r.path).name == "lib.py")
        assert "scaler" in text.split("def other")[0]
        assert "scaler" not in text.split("def other")[1]


_CALLBACKS = """\
import torch
import torch.nn as nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
from limits import limit
class Callback:
    def ended(self):
        self._ended()
    def _ended(self):
        pass
class Each(Callback):
    def __init__(self, callbacks):
        self.callbacks = callbacks
    def _ended(self):
        for callback in self.callbacks:
            callback.ended()
class Calls(Callback):
    def __init__(self, function):
        self.function = function
    def _ended(self):
        self.function(model)
class Trainer:
    def train(self, model, opt, callback):
        self.callback = callback
        try:
            for _ in range(3):
                opt.zero_grad()
                loss = model(torch.randn(4, 8).to(device)).pow(2).mean()
                loss.backward()
                opt.step()
        except KeyboardInterrupt:
            print("stopped")
        finally:
            self.callback.ended()
model = nn.Linear(8, 1).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer().train(model, opt, MADE)
"""


@pytest.mark.parametrize(
    ("made", "code"),
    (
        ("Each([Callback()])", ""),
        ("Each([Calls(limit)])", "AMP031"),
    ),
)
def test_a_callback_that_nothing_makes_does_nothing(made: str, code: str) -> None:
    result = migrate_source(_CALLBACKS.replace("MADE", made), path="train.py")
    assert [found.code for found in result.diagnostics] == ([code] if code else [])


STEPPED = (
    "def fit(model):\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "    for x, y in data:\n        optimizer.zero_grad()\n"
    "        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    "fit(model)\n"
)
ALONE = (
    "@each('x', [x for x, _ in data])\ndef test_gradients(x):\n"
    "    make().to(device)(x).sum().backward()\n"
)


@pytest.mark.parametrize("name", ["test_fit.py", "fit_test.py"])
def test_a_test_that_computes_gradients_is_a_run_of_its_own(name: str) -> None:
    found = migrate_source(
        f"from pytest.mark import parametrize as each\n{HEAD}{ALONE}{STEPPED}",
        path=name,
    )
    assert Outcome.MIGRATED in {loop.outcome for loop in found.loops}


def test_what_a_decorator_may_keep_may_compute_gradients_at_any_time() -> None:
    text = f"from registry import each\n{HEAD}{ALONE}{STEPPED}"
    found = migrate_source(text, path="fit.py")
    assert found.output == text
    assert "AMP031" in {one.code for one in found.diagnostics}
    # This one only turns gradients on.
    plain = text.replace("@each('x', [x for x, _ in data])", "@torch.enable_grad()")
    assert migrate_source(plain, path="fit.py").changed


_CHOICES = {
    "one or the other": (
        "if len(sys.argv) > 1:\n    from nets import NAME as Net\n"
        "else:\n    from nets import Plain as Net\n"
    ),
    "what there is": "try:\n    from nets import NAME as Net\nexcept ImportError:\n    Net = None\n",
    "a file or the other": (
        "if len(sys.argv) > 1:\n    import nets\n"
        "else:\n    import more as nets\nNet = nets.NAME\n"
    ),
}


@pytest.mark.parametrize("name", ("Plain", "Sparse"))
@pytest.mark.parametrize("choice", _CHOICES)
def test_a_name_that_is_imported_in_several_ways(
    choice: str, name: str, tmp_path: Path
) -> None:
    for file, net in (("nets", _SPARSE + _PLAIN), ("more", _PLAIN + _SPARSE)):
        (tmp_path / f"{file}.py").write_text(_HEAD + net)
    text = "import sys\n" + _HEAD + _CHOICES[choice].replace("NAME", name)
    made = _TRAIN.replace("nets.MAKE()", "Net()")
    (tmp_path / "train.py").write_text(text + made)
    (found,) = (
        r for r in migrate_paths([tmp_path]).results if r.path.endswith("train.py")
    )
    if name == "Sparse":
        assert not found.changed
    elif choice != "a file or the other":
        assert found.changed, found.diagnostics


_EVALUATES = {
    # what is looked up: whether the unused net in another file can be meant
    "def kind(text):\n    return eval(text)\n": False,
    "def kind(name):\n    return globals()[name]\n": False,
    "import nets\ndef kind(text):\n    return eval(text)\n": True,
    "from nets import Sparse\ndef kind(name):\n    return globals()[name]\n": True,
    "from nets import *\ndef kind(name):\n    return globals()[name]\n": True,
}


@pytest.mark.parametrize("looks_up", _EVALUATES)
def test_a_name_is_looked_up_in_its_own_file(looks_up: str, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(_HEAD + _SPARSE + _PLAIN)
    (tmp_path / "kinds.py").write_text(_HEAD + looks_up)
    text = f"import nets\nimport kinds\n{_HEAD}kinds.kind('int')\n"
    (tmp_path / "train.py").write_text(text + _TRAIN.replace("MAKE", "Plain"))
    (found,) = (
        r for r in migrate_paths([tmp_path]).results if r.path.endswith("train.py")
    )
    assert found.changed is not _EVALUATES[looks_up]


_ENGINE = """\
class Engine:
    def __init__(self, process):
        self.process = process
        self.handlers = []
    def run(self, data):
        for batch in data:
            self.process(self, batch)
            for handler in self.handlers:
                handler(self)
def make(model, optimizer):
    def update(engine, batch):
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
    return Engine(update)
"""
_BY_ENGINE = """\
import engine
import nets
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nets.Plain().to(device)
optimizer = MAKE
def process(engine, batch):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
engine.Engine(process).run([torch.randn(8, 6, device=device)] * 3)
"""


def test_scripts_that_share_an_engine_run_apart(tmp_path: Path) -> None:
    """Each hands its own step to it, and one has an optimizer that no scaler can step."""
    (tmp_path / "nets.py").write_text(_HEAD + _PLAIN)
    (tmp_path / "engine.py").write_text(_ENGINE)
    for name, made in (
        ("plain", "torch.optim.SGD(model.parameters(), lr=0.1)"),
        ("own", "torch.optim.LBFGS(model.parameters())"),
    ):
        text = _BY_ENGINE.replace("MAKE", made)
        (tmp_path / f"{name}.py").write_text(_HEAD + text)
    (tmp_path / "made.py").write_text(
        f"{_HEAD}import engine\nmodel = nn.Linear(6, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "engine.make(model, optimizer).run([torch.randn(8, 6)] * 3)\n"
    )
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["plain.py"].changed, found["plain.py"].diagnostics
    assert not found["own.py"].changed
    assert not found["engine.py"].changed


def test_a_step_of_xla_is_one_that_no_scaler_sees() -> None:
    text = (
        f"{_HEAD}import torch_xla.core.xla_model as xm\n"
        f"{_PLAIN}{_TRAIN.replace('nets.MAKE', 'Plain')}"
    )
    text = text.replace("optimizer.step()", "xm.optimizer_step(optimizer)")
    (said,) = migrate_source(text, path="train.py").diagnostics
    assert said.code == "AMP014"
    assert "xm.optimizer_step()" in said.message


_WATCHED = """\
class Net(nn.Module):
    def __init__(self, watch=False):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.watch = watch
        self.seen = []
        if self.watch:
            self.begin()
    def begin(self):
        self.l.register_full_backward_hook(self.see)
    @property
    def begun(self):
        self.begin()
        return self.l
    def see(self, module, inner, outer):
        self.seen.append(outer[0])
    def forward(self, x):
        return self.l(x)
"""
_SAYS = {
    "a call": "model.begin()",
    "its name": "getattr(model, 'begin')()",
    "a name that is put together": "getattr(model, 'be' + 'gin')()",
    "what is got is called": "got = getattr(model, 'be' + 'gin')\ngot()",
    "what is got is handed on": "got = getattr(model, 'be' + 'gin')\nprint([got][0]())",
    "what is got goes into another variable": "got = getattr(model, 'be' + 'gin')\nit = got\nit()",
    "what is got is computed": "got = getattr(model, 'be' + 'gun')\nprint(got.weight)",
    "the class's own table": "vars(Net)['be' + 'gin'](model)",
    "a function that gets it": "[*map(getattr, [model], ['be' + 'gin'])][0]()",
    "code in a text": "eval('model.' + 'be' + 'gin()')",
    "an option": "Net(True)",
    "a class that is derived": "type('Sub', (Net,), {'watch': True})().begin()",
}


def _trained(said: str) -> str:
    train = _TRAIN.replace("nets.MAKE", "Net")
    return f"{_HEAD}{_WATCHED}{train}".replace("optimizer =", f"{said}\noptimizer =", 1)


def test_what_nothing_calls_by_its_name_does_not_run() -> None:
    result = migrate_source(_trained(""), path="train.py")
    assert result.changed, result.diagnostics
    read = """\
def read(model, path):
    for words, array in torch.load(path).items():
        part = model
        for word in words.split("/"):
            part = getattr(part, word)
            if word.isdigit():
                part = part[int(word)]
        assert part.shape == array.shape
        part.data = array
if input():
    read(model, input())"""
    plain = _trained(read).replace("    @property\n", "")
    result = migrate_source(plain, path="train.py")
    assert result.changed, result.diagnostics


@pytest.mark.parametrize("name", _SAYS)
def test_what_may_be_called_under_some_name_runs(name: str) -> None:
    (said,) = migrate_source(_trained(_SAYS[name]), path="train.py").diagnostics
    assert said.code == "AMP024"


_LOADED = """\
class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.l.register_full_backward_hook(print)
    def forward(self, x):
        return self.l(x)
def test(net):
    print(net(torch.zeros(1, 6)))
if len(sys.argv) > 1:
    test(torch.load("net.pt", weights_only=False))
"""


def test_what_nobody_makes_is_in_no_file() -> None:
    text = f"import sys\n{_HEAD}{_PLAIN}{_LOADED}{_TRAIN}".replace("nets.MAKE", "Plain")
    result = migrate_source(text, path="train.py")
    assert result.changed, result.diagnostics
    made = f"{text}torch.save(Watched(), 'net.pt')\n"
    (said,) = migrate_source(made, path="train.py").diagnostics
    assert said.code == "AMP024"
