"""What is given to an object that is not followed, as one of a class out of a table, may run in its region;
so may what is imported by a name that is not in sight. All scripts that are migrated run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from half_support import check_runs

from amp_migrate.api import migrate_paths, migrate_source

_HEAD = """\
import functools
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
_LOSS = """\
def masked(out, y):
    hidden = out.masked_fill(y == 0, -1e10)
    return -torch.log_softmax(hidden, dim=-1).clamp(min=-9).mean()
"""
_OBJECT = """\
class Masked:
    def NAME(self, out, y):
        hidden = out.masked_fill(y == 0, -1e10)
        return -torch.log_softmax(hidden, dim=-1).clamp(min=-9).mean()
"""
_LEARNER = """\
class Learner:
    def __init__(self, model, loss):
        self.model = model
        self.loss = loss
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def cuda(self):
        self.model.cuda()
    def train(self, x, y):
        loss = CALL
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
LEARNERS = {}
LEARNERS["plain"] = Learner
def main(kind):
    model = nn.Linear(8, 4)
    learner = LEARNERS[kind](model, GIVEN)
    if torch.cuda.is_available():
        learner.cuda()
    for _ in range(4):
        x = torch.randn(16, 8, device=device)
        y = torch.randint(0, 2, (16, 4), device=device)
        print(learner.train(x, y))
main("plain")
"""
GIVEN = {
    "a function": (_LOSS, "self.loss(self.model(x), y)", "masked"),
    "a part of a function": (
        _LOSS,
        "self.loss(self.model(x), y=y)",
        "functools.partial(masked)",
    ),
    "a method of a class": (
        _OBJECT.replace("def NAME(self", "@classmethod\n    def of(cls"),
        "self.loss.of(self.model(x), y)",
        "Masked",
    ),
    "functions": (_LOSS, "sum(f(self.model(x), y) for f in self.loss)", "[masked]"),
    "functions by name": (
        _LOSS + 'LOSSES = {"a": masked}\n',
        'self.loss["a"](self.model(x), y)',
        "LOSSES",
    ),
    "what is called": (
        _OBJECT.replace("NAME", "__call__"),
        "self.loss(self.model(x), y)",
        "Masked()",
    ),
    "what has a method": (
        _OBJECT.replace("NAME", "of"),
        "self.loss.of(self.model(x), y)",
        "Masked()",
    ),
    "a method": (
        _OBJECT.replace("NAME", "of"),
        "self.loss(self.model(x), y)",
        "Masked().of",
    ),
    "what a function makes": (
        _OBJECT.replace("NAME", "__call__") + "def make():\n    return Masked()\n",
        "self.loss(self.model(x), y)",
        "make()",
    ),
    "a class": (
        _OBJECT.replace("NAME", "__call__"),
        "self.loss()(self.model(x), y)",
        "Masked",
    ),
}
GIVEN |= {
    "a field of what a table makes": (
        f"{_LOSS}import dataclasses\n@dataclasses.dataclass\nclass Parts:\n"
        '    of: object\nPARTS = {}\nPARTS["a"] = Parts\n',
        "self.loss.of(self.model(x), y)",
        'PARTS[kind.replace("plain", "a")](masked)',
    ),
    "an attribute by a name that is put together": (
        _LOSS + 'NAME = "".join(["lo", "ss"])\n',
        "getattr(self, NAME)(self.model(x), y)",
        "masked",
    ),
}
_ALONE = _LOSS.replace("(out, y)", "(out)").replace("y == 0", "out > 3")
_OF_ONE = _OBJECT.replace("(self, out, y)", "(self, out)").replace("y == 0", "out > 3")
_KEPT = """\
class Masked:
    def take(self, out):
        self.out = out
        return self
    def of(self):
        hidden = self.out.masked_fill(self.out > 3, -1e10)
        return -torch.log_softmax(hidden, dim=-1).clamp(min=-9).mean()
"""
GIVEN |= {
    "a function of one thing": (_ALONE, "self.loss(self.model(x))", "masked"),
    "its name said": (_ALONE, "self.loss(out=self.model(x))", "masked"),
    "a list unfolded": (_LOSS, "self.loss(*[self.model(x), y])", "masked"),
    "a dict unfolded": (_LOSS, 'self.loss(**{"out": self.model(x), "y": y})', "masked"),
    "a function of which all but one is filled": (
        _LOSS,
        "self.loss(self.model(x))",
        "functools.partial(masked, y=torch.zeros(1, device=device))",
    ),
    "a lambda around it": (
        _ALONE,
        "self.loss(self.model(x))",
        "lambda out: masked(out)",
    ),
    "a lambda that gives it": (_ALONE, "self.loss()(self.model(x))", "lambda: masked"),
    "functions of one thing": (
        _ALONE,
        "sum(f(self.model(x)) for f in self.loss)",
        "[masked]",
    ),
    "a function for map": (_ALONE, "sum(map(self.loss, [self.model(x)]))", "masked"),
    "a method of one thing": (
        _OF_ONE.replace("NAME", "of"),
        "self.loss(self.model(x))",
        "Masked().of",
    ),
    "a method, what it takes unfolded": (
        _OBJECT.replace("NAME", "of"),
        "self.loss.of(*[self.model(x), y])",
        "Masked()",
    ),
    "a method that takes nothing": (
        _KEPT,
        "self.loss.take(self.model(x)).of()",
        "Masked()",
    ),
    "a property": (
        _KEPT.replace("    def of", "    @property\n    def of"),
        "self.loss.take(self.model(x)).of",
        "Masked()",
    ),
    "an operator": (
        _OF_ONE.replace("NAME", "__matmul__"),
        "self.loss @ self.model(x)",
        "Masked()",
    ),
    "an operator from the other side": (
        _OF_ONE.replace("NAME", "__radd__"),
        "self.model(x) + self.loss",
        "Masked()",
    ),
}


def _script(name: str, learner: str = _LEARNER) -> str:
    setup, call, given = GIVEN[name]
    return _HEAD + setup + learner.replace("CALL", call).replace("GIVEN", given)


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_class_out_of_a_table_is_given(name: str) -> None:
    source = _script(name)
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


REGISTERED = """\
LEARNERS = {}
def register(name):
    def keep(cls):
        LEARNERS[name] = cls
        return cls
    return keep
@register("plain")
class Learner:
"""


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_registered_class_is_given(name: str) -> None:
    learner = _LEARNER.replace("class Learner:\n", REGISTERED)
    learner = learner.replace('LEARNERS = {}\nLEARNERS["plain"] = Learner\n', "")
    source = _script(name, learner)
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("a function", "None", "learner.loss = masked"),
        (
            "a function",
            "None",
            "setattr(learner, kind.replace('plain', 'loss'), masked)",
        ),
        ("functions", "[]", "learner.loss.append(masked)"),
        ("functions", "[None]", "learner.loss[0] = masked"),
    ],
)
def test_what_is_set_out_of_sight(name: str, given: str, line: str) -> None:
    loop = "    for _ in range(4):"
    learner = _LEARNER.replace(loop, f"    {line}\n{loop}")
    source = _script(name, learner.replace("GIVEN", given))
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


def test_what_is_given_through_a_function_out_of_a_table() -> None:
    build = """\
def build(model, criterion):
    return LEARNERS["plain"](model, loss=criterion)
BUILDS = {}
BUILDS["plain"] = build
def main"""
    learner = _LEARNER.replace("def main", build)
    made = "LEARNERS[kind](model, GIVEN)"
    learner = learner.replace(made, "BUILDS[kind](model, criterion=masked)")
    source = _script("a function", learner)
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


def test_a_method_of_a_class_that_stands_beside_another() -> None:
    body = _LOSS.replace("(out", "(self, out").replace("\n    ", "\n        ")
    setup = f"""\
class Soft:
    {body}
class Twice:
    def masked(self, out, y):
        return 2 * super().masked(out, y)
class Both(Twice, Soft):
    pass
"""
    setup += "both = Both()\n"
    call = "both.masked(self.model(x), y)"
    learner = _LEARNER.replace("CALL", call).replace("GIVEN", "None")
    source = _HEAD + setup + learner.replace("LEARNERS[kind]", "Learner")
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


def test_a_method_of_the_name_of_what_a_dict_has() -> None:
    shown = """\
class Shown:
    def update(self, count):
        self.count = count * 1000000 / 3
SHOWN = {}
def show(kind):
    SHOWN[kind] = functools.reduce(lambda one, other: one, [Shown()])
    return SHOWN
def counted(names):
    values = {name: 0 for name in names}
    values.update({"more": 1})
    return len(values)
"""
    call = "self.loss(self.model(x), y) + 0 * counted('ab')"
    learner = _LEARNER.replace("CALL", call).replace("GIVEN", "masked")
    source = _HEAD + _LOSS + shown + learner + 'print(len(show("a")))\n'
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


def test_what_is_given_is_changed_by_its_own_method() -> None:
    module = _OBJECT.replace("Masked:", "Masked(nn.Module):").replace("NAME", "forward")
    again = "self.loss = self.loss.type(torch.float32)\n        loss = CALL"
    learner = _LEARNER.replace("loss = CALL", again)
    learner = learner.replace("CALL", "self.loss(self.model(x), y)")
    source = _HEAD + module + learner.replace("GIVEN", "Masked()")
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


def test_a_lambda_that_is_given_out_of_sight() -> None:
    call = GIVEN["a function"][1]
    given = "lambda out, y: out.masked_fill(y == 0, -1e10).sigmoid().sum()"
    learner = _LEARNER.replace("CALL", call).replace("GIVEN", given)
    result = migrate_source(_HEAD + learner, path="train.py")
    assert [one.code for one in result.diagnostics] == ["AMP021"]


@pytest.mark.parametrize(
    "kept",
    [
        'LEARNERS["plain"] = Learner\nOTHERS = LEARNERS\nOTHERS["other"] = 3\n',
        'LEARNERS.update({"plain": Learner})\n',
        'for name in ("plain", "other"):\n    LEARNERS.setdefault(name, Learner)\n',
    ],
)
@pytest.mark.parametrize("name", ["what is called", "what has a method"])
def test_what_is_kept_out_of_sight_may_run(name: str, kept: str) -> None:
    learner = _LEARNER.replace('LEARNERS["plain"] = Learner\n', kept)
    source = _script(name, learner)
    output = migrate_source(source, path="train.py").output
    assert "self.scaler.step(self.optimizer)" in output
    check_runs(source, output)


def test_a_table_of_another_file_by_another_name(tmp_path: Path) -> None:
    setup, call, given = GIVEN["what is called"]
    learner, main = _LEARNER.replace("CALL", call).split("def main", 1)
    (tmp_path / "learners.py").write_text(_HEAD + learner)
    main = f"def main{main}".replace("LEARNERS", "KINDS").replace("GIVEN", given)
    taken = "from learners import LEARNERS as KINDS\n"
    (tmp_path / "train.py").write_text(_HEAD + taken + setup + main)
    report = migrate_paths([tmp_path])
    texts = {Path(m.document.path).name: m.result.output for m in report.migrations}
    assert "self.scaler.step(self.optimizer)" in texts["learners.py"]
    assert "torch.finfo(out.dtype).min" in texts["train.py"]


_IMPORTED = """\
import importlib
import torch.nn.functional as F
def pick(name):
    file, _, kind = name.rpartition(".")
    return getattr(importlib.import_module(file), kind)
def build(name):
    net = pick(name)(4)
    return net
class Wrap(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x)
class Trainer:
    def __init__(self, name):
        self.model = MODEL.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
def main(name):
    trainer = Trainer(name)
    for _ in range(4):
        x = torch.randn(4, 4, device=device)
        trainer.train(x, x)
"""


@pytest.mark.parametrize(
    "model",
    [
        "pick(name)(4)",
        "getattr(importlib.import_module(name), 'Net')(4)",
        "nn.DataParallel(pick(name)(4))",
        "nn.Sequential(nn.Linear(4, 4), pick(name)(4))",
        "build(name)",
        "Wrap(pick(name)(4))",
        "functools.partial(pick(name), 4)()",
        "vars(importlib.import_module(name))['Net'](4)",
    ],
)
def test_what_is_imported_by_a_name_out_of_sight(model: str) -> None:
    source = _HEAD + _IMPORTED.replace("MODEL", model)
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [one.code for one in result.diagnostics] == ["AMP033"]


@pytest.mark.parametrize(
    ("table", "model"),
    [
        (
            "MODELS[kind] = importlib.import_module('lib.' + kind).Net",
            "MODELS[name](4)",
        ),
        (
            "MODELS[kind] = importlib.import_module(f'lib.{kind}')",
            "MODELS[name].Net(4)",
        ),
        (
            "MODELS[kind] = getattr(importlib.import_module('lib.' + kind), 'Net')",
            "MODELS[name](4)",
        ),
        (
            "MODELS.update(vars(importlib.import_module('lib.' + kind)))",
            "MODELS[name](4)",
        ),
        ("pass", "importlib.import_module('lib.' + name).Net(4)"),
        ("pass", "__import__('lib.' + name, fromlist=['Net']).Net(4)"),
        ("pass", "importlib.util.module_from_spec(name).Net(4)"),
        ("pass", "sys.modules[name].Net(4)"),
        ("exec(f'from lib.{kind} import Net')", "Net(4)"),
        ("pass", "[importlib.import_module('lib.' + kind).Net for kind in name][0](4)"),
    ],
)
def test_what_a_table_holds_that_is_imported_by_a_name(table: str, model: str) -> None:
    filled = f"import sys\nMODELS = {{}}\nfor kind in ('a', 'b'):\n    {table}\n"
    source = _HEAD + _IMPORTED.replace("class Wrap", f"{filled}class Wrap")
    source = source.replace("MODEL.to", f"{model}.to")
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [one.code for one in result.diagnostics] == ["AMP033"]


def test_what_is_imported_out_of_a_folder_in_sight(tmp_path: Path) -> None:
    model = "importlib.import_module('lib.' + name).Net(4)"
    pick = f"def take(name):\n    return {model}\n"
    source = _HEAD + _IMPORTED.replace("class Wrap", f"{pick}class Wrap")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "plain.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, size):\n"
        "        super().__init__()\n        self.fc = nn.Linear(size, size)\n"
        "    def forward(self, x):\n        return self.fc(x)\n"
    )
    (tmp_path / "train.py").write_text(source.replace("MODEL.to", "take(name).to"))
    (found,) = migrate_paths([tmp_path]).migrations
    assert "self.scaler.step(self.optimizer)" in found.result.output
    (tmp_path / "lib" / "plain.py").unlink()
    assert not [m for m in migrate_paths([tmp_path]).migrations if m.result.changed]


def test_halves_of_another_framework_are_none_of_torch(tmp_path: Path) -> None:
    halves = (
        "import tensorflow as tf\ndef cast(x):\n    return tf.cast(x, tf.float16)\n"
    )
    (tmp_path / "numbers_of_tf.py").write_text(halves)
    setup = _HEAD + "import torch.nn.functional as F\nimport numbers_of_tf\n"
    loop = """\
from nets import Net
def spread(a):
    window = torch.ones(1, 1, 3, 3, device=a.device)
    mean = F.conv2d(a, window, padding=1)
    square = a * a
    return (F.conv2d(square, window, padding=1) - mean * mean).mean()
model = Net().to(device)
print(numbers_of_tf.cast)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = spread(model(torch.randn(4, 1, 8, 8, device=device)))
    loss.backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(setup + loop)
    report = migrate_paths([tmp_path])
    texts = {Path(m.document.path).name: m.result.output for m in report.migrations}
    assert "square = full_a * a" in texts["train.py"]


def test_what_is_in_sight_beside_such_an_import() -> None:
    source = _HEAD + _IMPORTED.replace("MODEL", "nn.Linear(4, 4)")
    result = migrate_source(source, path="train.py")
    assert "self.scaler.step(self.optimizer)" in result.output
