"""A function that is used out of sight, too, takes its scaler as an option: callers go on as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.api import migrate_paths, migrate_source

FIT = """\
import torch
import torch.nn.functional as F


def fit(model, optimizer, data, device, epochs=1):
    \"\"\"Train.\"\"\"
    for x, y in data:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
RUN = """\
import torch
from tool.fit import fit

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(4, 8), torch.tensor([0, 1, 2, 0]))]
fit(model, optimizer, data, device)
"""
PLAIN = {"tool/__init__.py": "", "tool/fit.py": FIT, "run.py": RUN}
BEGINS = """\
    if scaler is None:
        scaler = torch.amp.GradScaler("cuda", enabled=False)
"""


def outputs(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """What becomes of a project, all of whose loops have to be migrated."""
    for name, text in (PLAIN | files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    report = migrate_paths([folder])
    assert not [d for m in report.migrations for d in m.result.diagnostics]
    return {
        Path(m.document.path)
        .resolve()
        .relative_to(folder.resolve())
        .as_posix(): (m.result.output)
        for m in report.migrations
    }


EXPORTED = {
    "handed on by the package": {"tool/__init__.py": "from .fit import fit\n"},
    "handed on by a star": {"tool/__init__.py": "from .fit import *\n"},
    "listed": {"tool/fit.py": '__all__ = ["fit"]\n' + FIT},
    "a version": {"tool/__init__.py": '__version__ = "1.0"\n'},
    "a version from a file": {
        "tool/__init__.py": "from .version import __version__\n",
        "tool/version.py": '__version__ = "1.0"\n',
    },
    "setup.py": {"setup.py": "from setuptools import setup\n\nsetup(name='tool')\n"},
    "setup.cfg": {"setup.cfg": "[options]\npackages = tool\n"},
    "pyproject.toml": {"pyproject.toml": "[project]\nname = 'tool'\n"},
    "the README": {"README.md": "Call `fit(model, optimizer, data, device)`.\n"},
    "the documentation": {"docs/index.rst": "    tool.fit(model, optimizer, data)\n"},
}


@pytest.mark.parametrize("name", EXPORTED)
def test_exported(name: str, tmp_path: Path) -> None:
    written = outputs(tmp_path, EXPORTED[name])
    assert "device, epochs=1, scaler=None):\n" in written["tool/fit.py"]
    assert f'    """Train."""\n{BEGINS}    for x, y' in written["tool/fit.py"]
    assert "device, scaler=scaler)\n" in written["run.py"]


OWN = {
    "a package of one's own": {},
    "a README that starts a script": {"README.md": "python run.py; torch.fit(x)\n"},
    "tools are configured": {
        "setup.cfg": "[flake8]\nignore = E1\n",
        "pyproject.toml": "[tool.black]\n",
    },
    "by name private": {
        "tool/__init__.py": '__version__ = "1.0"\n',
        "tool/fit.py": FIT.replace("def fit", "def _fit"),
        "run.py": RUN.replace("import fit", "import _fit as fit"),
    },
}


@pytest.mark.parametrize("name", OWN)
def test_own_helper(name: str, tmp_path: Path) -> None:
    written = outputs(tmp_path, OWN[name])
    assert "device, epochs=1, *, scaler):\n" in written["tool/fit.py"]
    assert "is None" not in written["tool/fit.py"]


SIGNATURES = {
    "epochs=1, *, log=None": "epochs=1, *, log=None, scaler=None",
    "epochs=1, *rest": "epochs=1, *rest, scaler=None",
    "epochs=1, **rest": "epochs=1, scaler=None, **rest",
    "*rest, log, **more": "*rest, log, scaler=None, **more",
    "/": "/, scaler=None",
    "/, *, log=None": "/, *, log=None, scaler=None",
    "epochs: int = 1": "epochs: int = 1, scaler=None",
}


@pytest.mark.parametrize("given", SIGNATURES)
def test_signature(given: str, tmp_path: Path) -> None:
    files = {
        "tool/__init__.py": "from .fit import fit\n",
        "tool/fit.py": FIT.replace("epochs=1", given),
    }
    if "log," in given:
        files["run.py"] = RUN.replace("device)\n", "device, log=1)\n")
    written = outputs(tmp_path, files)["tool/fit.py"]
    assert f"device, {SIGNATURES[given]}):\n" in written
    assert BEGINS in written


def test_methods(tmp_path: Path) -> None:
    trainer = """\
import torch
import torch.nn.functional as F


class Trainer:
    def __init__(self, model, optimizer, log=False):
        self.model = model
        self.optimizer = optimizer

    def fit(self, data, device):
        for x, y in data:
            x, y = x.to(device), y.to(device)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
"""
    run = RUN.replace("import fit", "import Trainer")
    run = run.replace("fit(model, optimizer, ", "Trainer(model, optimizer).fit(")
    files = {"tool/__init__.py": "from .fit import Trainer\n", "tool/fit.py": trainer}
    written = outputs(tmp_path, {**files, "run.py": run})["tool/fit.py"]
    assert "optimizer, log=False, scaler=None):\n" in written
    indented = "".join(f"    {line}\n" for line in BEGINS.splitlines())
    assert f"{indented}        self.model = model\n" in written
    assert "        self.scaler = scaler\n" in written


TRAINER = """\
import torch
import torch.nn.functional as F


class Trainer:
    def __init__(self, model, optimizer, device):
        self.model, self.device = model.to(device), device
        self.optimizer = optimizer

    def fit(self, data):
        for x, y in data:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        torch.save({"optimizer": self.optimizer.state_dict()}, "last.pt")
"""
DERIVED = """\


class Later(Trainer):
    def __init__(self, model, optimizer, rate):
        super().__init__(model, optimizer, "cuda")
        self.rate = rate
"""
UNCALLED = {
    "a function": ("fit", FIT, "device, epochs=1, scaler=None):\n"),
    "one that hands it on": (
        "fit",
        FIT.replace("def fit", "def _fit")
        + "\n\ndef fit(net, opt, data, device):\n    _fit(net, opt, data, device)\n",
        "(net, opt, data, device, scaler=scaler)\n",
    ),
    "a class": ("Trainer", TRAINER, '"scaler": self.scaler.state_dict()'),
    "one that derives from it": (
        "Later",
        TRAINER + DERIVED,
        'super().__init__(model, optimizer, "cuda", scaler=scaler)',
    ),
}


@pytest.mark.parametrize("name", UNCALLED)
def test_what_nothing_here_calls(name: str) -> None:
    called, source, words = UNCALLED[name]
    result = migrate_source(source)
    assert words in result.output
    assert BEGINS.lstrip().splitlines()[0] in result.output
    (note,) = result.notes
    assert note.message.startswith(f"{called}() trains without AMP until")


@pytest.mark.parametrize(
    "more",
    (
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "optimizer.step(lambda: loss)",
    ),
)
def test_of_an_optimizer_that_nothing_here_gives(more: str) -> None:
    source = FIT.replace("optimizer.step()", f"{more}\n        optimizer.step()")
    assert migrate_source(source).output == source


def test_gradients_that_nothing_here_clears() -> None:
    """Its callers may come again, to what was unscaled before."""
    source = """\
import torch
import torch.nn.functional as F


class Trainer:
    def __init__(self, model, device):
        self.model, self.device = model.to(device), device
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, x, y):
        loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
        loss.backward()
        self.optimizer.step()
"""
    (found,) = migrate_source(source).diagnostics
    assert (found.code, "no zero_grad()" in found.message) == ("AMP031", True)
    clears = "\n    def begin(self):\n        self.optimizer.zero_grad()\n"
    assert "self.scaler.step" in migrate_source(source + clears).output


def test_an_exported_dataclass_has_callers_out_of_sight(tmp_path: Path) -> None:
    state = """\
from dataclasses import dataclass


@dataclass
class State:
    model: object
    optimizer: object


"""
    fit = state + FIT.replace("model, optimizer,", "state,").replace(
        "model(", "state.model("
    )
    fit = fit.replace("        optimizer.", "        state.optimizer.")
    run = RUN.replace("import fit", "import State, fit")
    run = run.replace(
        "fit(model, optimizer,", "state = State(model, optimizer)\nfit(state,"
    )
    (tmp_path / "tool").mkdir()
    files = {"tool/__init__.py": "", "tool/fit.py": fit, "run.py": run}
    written = outputs(tmp_path, files)
    assert "scaler: " in written["tool/fit.py"]
    for name, text in (
        files | {"tool/__init__.py": "from .fit import State\n"}
    ).items():
        (tmp_path / name).write_text(text)
    report = migrate_paths([tmp_path])
    codes = [d.code for m in report.migrations for d in m.result.diagnostics]
    assert codes == ["AMP015"] and not report.changed


def test_an_option_of_layers_is_what_it_is_for_the_loops_in_sight(
    tmp_path: Path,
) -> None:
    net = """\
import torch.nn as nn


class Logit(nn.Module):
    def __init__(self, squash=True):
        super().__init__()
        layers = [nn.Linear(8, 1)]
        if squash:
            layers.append(nn.Sigmoid())
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)
"""
    fit = FIT.replace("cross_entropy", "binary_cross_entropy")
    run = RUN.replace("torch.nn.Linear(8, 3)", "Logit()").replace(
        "\ndevice", "from tool.net import Logit\n\ndevice", 1
    )
    files = {"tool/net.py": net, "tool/fit.py": fit, "run.py": run, "setup.py": ""}
    written = outputs(tmp_path, files)
    assert "self.layers[-1](self.layers[:-1](x).float())" in written["tool/net.py"]


def test_callers_out_of_sight_train_as_before(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def trained(text: str) -> list[object]:
        names: dict[str, object] = {}
        exec(text, names)
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 3)
        optimizer = torch.optim.Adam(model.parameters())
        data = [(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])) for _ in range(5)]
        names["fit"](model, optimizer, data, "cpu", 2)  # type: ignore[operator]
        return [p.tolist() for p in model.parameters()]

    written = outputs(tmp_path, EXPORTED["handed on by the package"])
    assert trained(written["tool/fit.py"]) == trained(FIT)
