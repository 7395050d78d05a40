# ruff: noqa: E501
"""Programs of several small files: which file an import means, and what changes together."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from amp_migrate.api import lint_paths, migrate_paths
from amp_migrate.core import effort
from amp_migrate.run.outcome import Report

NET = """\
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def make_net():
    return nn.Linear(4, 2).to(device)
batches = [(torch.randn(3, 4, device=device), torch.tensor([0, 1, 0], device=device))]
"""
CLAMPED = """\
class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()
    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)
class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
    def forward(self, x):
        return Clamped.apply(super().forward(x))
def make"""
ENGINE = """\
from torch import nn
def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
MAIN = """\
import torch
from net import make_net, batches, device
from engine import train
model = make_net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, batches, optimizer)
"""

ALONE = (
    NET
    + ENGINE
    + MAIN.replace(
        "from net import make_net, batches, device\nfrom engine import train\n", ""
    )
)


def run(
    folder: Path, files: dict[str, str], *given: str
) -> tuple[list[str], dict[str, str]]:
    """(codes of what is left alone, the files after a run that writes)"""
    for name, text in {
        "net.py": NET,
        "engine.py": ENGINE,
        "main.py": MAIN,
        **files,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    (folder / "pyproject.toml").touch()
    report = migrate_paths([folder / name for name in given or (".",)], write=True)
    assert report.errors == ()
    codes = [found.code for result in report.results for found in result.diagnostics]
    after = {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*.py")
    }
    for name, text in after.items():
        compile(text, name, "exec")
    return codes, after


MIGRATED = {
    "by its name": ({}, {"engine.py": "def train(model, loader, optimizer, scaler):"}),
    "under another name": (
        {"main.py": MAIN.replace("import train", "import train as fit").replace("\ntrain(", "\nfit(")},
        {"main.py": "fit(model, batches, optimizer, scaler=scaler)"},
    ),
    "by its module": (
        {"main.py": MAIN.replace("from engine import train", "import engine").replace("\ntrain(", "\nengine.train(")},
        {"main.py": "engine.train(model, batches, optimizer, scaler=scaler)"},
    ),
    "by the package that hands it on": (
        {
            "lib/__init__.py": "from .loop import train as fit\n",
            "lib/loop.py": ENGINE,
            "engine.py": "",
            "main.py": MAIN.replace("from engine import train", "from lib import fit").replace("\ntrain(", "\nfit("),
        },
        {"lib/loop.py": "optimizer, scaler=None):", "main.py": "fit(model, batches, optimizer, scaler=scaler)"},
    ),
    "by a package's variable before its module of that name": (
        {
            "lib/__init__.py": "from .train import train\n",
            "lib/train.py": ENGINE,
            "engine.py": "",
            "main.py": MAIN.replace("from engine", "from lib"),
        },
        {"lib/train.py": "optimizer, scaler=None):"},
    ),
    "by a path that another file makes": (
        {
            "paths.py": "import sys\nsys.path.insert(0, 'deep/lib')\n",
            "deep/lib/core/loop.py": ENGINE,
            "engine.py": "",
            "main.py": "import paths\n" + MAIN.replace("from engine", "from core.loop"),
        },
        {"deep/lib/core/loop.py": "optimizer, scaler):"},
    ),
    "as another module's attribute": (
        {
            "state.py": "optimizer = None\n",
            "engine.py": ENGINE.replace("from torch import nn", "from torch import nn\nimport state")
            .replace("loader, optimizer", "loader")
            .replace("optimizer.", "state.optimizer."),
            "main.py": MAIN.replace("\noptimizer =", "\nimport state\nstate.optimizer =").replace(
                "batches, optimizer", "batches"
            ),
        },
        {"main.py": "state.scaler = torch.amp", "engine.py": "state.scaler.step(state.optimizer)"},
    ),
    "where torch is imported for types only": (
        {
            "engine.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import torch\n" + ENGINE
        },
        {"engine.py": "\nimport torch\nfrom torch import nn\n"},
    ),
    "beside a program that is left alone, through a helper of both": (
        {
            "keep.py": "import torch\n"
            "def load(path, optimizer):\n"
            "    saved = torch.load(path)\n"
            '    optimizer.load_state_dict(saved["optimizer"])\n',
            "main.py": MAIN.replace("\ntrain(", '\nfrom keep import load\nload("a.pt", optimizer)\ntrain('),
            "other.py": MAIN.replace("from engine import train", "from keep import load").replace(
                "torch.optim.SGD", "torch.optim.LBFGS"
            ).replace("\ntrain(model, batches, optimizer)", '\nload("b.pt", optimizer)\n'
            "def closure():\n    optimizer.zero_grad()\n    loss = model(batches[0][0]).sum()\n"
            "    loss.backward()\n    return loss\noptimizer.step(closure)"),
        },
        {"keep.py": "optimizer, scaler=None):", "other.py": 'load("b.pt", optimizer)\n'},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIGRATED)
def test_a_function_is_reached(name: str, tmp_path: Path) -> None:
    files, expected = MIGRATED[name]
    codes, after = run(tmp_path, files)
    assert set(codes) <= {"AMP013"}
    for file, text in expected.items():
        assert text in after[file]


def importing(statements: str) -> dict[str, str]:
    main = MAIN.replace("from engine import train\n", textwrap.dedent(statements))
    return {"main.py": main, "other.py": ENGINE}


EITHER = {
    "by try": "try:\n    from engine import train\nexcept ImportError:\n    from other import train\n",
    "by if": "if 1:\n    from engine import train\nelse:\n    from other import train\n",
}


@pytest.mark.parametrize("how", EITHER)
def test_both_files_that_a_name_may_come_from_get_the_scaler(
    how: str, tmp_path: Path
) -> None:
    codes, after = run(tmp_path, importing(EITHER[how]))
    assert codes == []
    for file in ("engine.py", "other.py"):
        assert "def train(model, loader, optimizer, scaler):\n" in after[file]
        assert "scaler.step(optimizer)\n" in after[file]
    assert "train(model, batches, optimizer, scaler=scaler)\n" in after["main.py"]


LEFT = {
    "asked for by its module's name": (
        {"more.py": 'import importlib\nimportlib.import_module("engine").train(1, 2, 3)\n'},
        {"AMP015"},
    ),
    "called in a string": (
        {"main.py": MAIN + 'exec("train(model, batches, optimizer)")\n'},
        {"AMP015"},
    ),
    "given one optimizer or another": (
        {"main.py": MAIN.replace("\ntrain(", "\nwarm = torch.optim.Adam(model.parameters())\n"
         "optimizer = warm if device else optimizer\ntrain(")},
        {"AMP012"},
    ),
    "a custom Function in a file of the project": (
        {"net.py": NET.replace("def make", CLAMPED) + "make_net = lambda: Net().to(device)\n"},
        {"AMP022"},
    ),
}  # fmt: skip


def test_a_star_import_may_not_bring_the_device(tmp_path: Path) -> None:
    net = NET.replace("torch.cuda.is_available()", '"GPU" in os.environ')
    main = MAIN.replace(
        "from net import make_net, batches, device", "from net import *\nimport net"
    )
    listed = '__all__ = ["make_net", "batches"]\nimport os\n'
    _, after = run(tmp_path, {"net.py": listed + net, "main.py": main})
    assert 'enabled=next(model.parameters()).device.type == "cuda"' in after["main.py"]


@pytest.mark.parametrize("name", LEFT)
def test_a_program_is_left_alone(name: str, tmp_path: Path) -> None:
    files, expected = LEFT[name]
    codes, after = run(tmp_path, files)
    assert set(codes) == expected
    assert "scaler" not in "".join(after.values())


def test_given_paths_may_be_written_and_the_others_are_read(tmp_path: Path) -> None:
    codes, after = run(tmp_path, {}, "engine.py")
    assert codes == ["AMP017"]
    assert after["engine.py"] == ENGINE and after["main.py"] == MAIN
    codes, both = run(tmp_path, {}, "engine.py", "main.py")
    assert codes == []
    codes, whole = run(tmp_path, {})
    assert both == whole != after


def passed_on(times: int) -> dict[str, str]:
    """A training step at the end of a chain of calls."""
    chain = ENGINE.replace("def train(", "def train0(") + "".join(
        f"def train{n}(model, loader, optimizer):\n    train{n - 1}(model, loader, optimizer)\n"
        for n in range(1, times)
    )
    main = MAIN.replace("import train", f"import train{times - 1} as train")
    return {"engine.py": chain, "main.py": main}


def test_a_long_chain_of_calls_is_followed(tmp_path: Path) -> None:
    codes, after = run(tmp_path, passed_on(150))
    assert codes == []
    assert after["engine.py"].count("optimizer, scaler):") == 150


def test_a_name_that_a_star_brings_from_a_package_ends(tmp_path: Path) -> None:
    """Its relative import, read where the star stands, leads to that place again, one name longer."""
    codes, after = run(
        tmp_path,
        {
            "pkg/__init__.py": "from .pool import *\n",
            "pkg/pool/__init__.py": "from .clamp import clamp\n",
            "pkg/pool/clamp.py": "def clamp(x):\n    return x\n",
            "main.py": "from pkg import clamp\n"
            + MAIN.replace("train(model", "clamp(3)\ntrain(model"),
        },
    )
    assert codes == []
    assert "scaler" in after["main.py"]


def test_an_optimizer_that_a_package_gets_by_a_star_is_one(tmp_path: Path) -> None:
    files = {
        "opts/__init__.py": "from torch.optim import *\nfrom .plain import *\n",
        "opts/plain.py": """\
            import torch


            class Plain(torch.optim.Optimizer):
                def step(self):
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.data.add_(p.grad, alpha=-group["lr"])
            """,
        "main.py": "from opts import Plain\n"
        + MAIN.replace("torch.optim.SGD", "Plain"),
    }
    codes, after = run(tmp_path, files)
    assert codes == []
    assert "scaler.step(optimizer)" in after["engine.py"]


def test_what_a_module_found_by_its_name_makes_and_moves_is_asked(
    tmp_path: Path,
) -> None:
    """Neither its class nor its device can be seen: its parameters tell."""
    engine = ENGINE.replace(
        "optimizer):", "config):\n    optimizer = SGD(model.parameters(), lr=0.1)"
    )
    files = {
        "models/one.py": NET,
        "engine.py": "from torch.optim import SGD\n" + engine,
        "main.py": """\
            import sys
            from importlib import import_module
            from engine import train
            from net import batches
            found = import_module("models." + sys.argv[1])
            config = found.Config()
            model = found.Net(config).to(config.device)
            train(model, batches, config)
            """,
    }
    codes, after = run(tmp_path, files)
    assert codes == []
    assert 'enabled=next(model.parameters()).device.type == "cuda"' in " ".join(
        after["engine.py"].split()
    )


@pytest.mark.parametrize(
    "found",
    (
        "import_module(options.model)",
        "import_module('nets.' + options.model)",
        "import_module(f'nets.{options.model}')",
        "__import__(options.model)",
        "import_module(options.net or os.listdir('nets')[0])",
        "import_module(sorted(os.listdir(folder))[0])",
    ),
)
def test_what_may_be_imported_by_an_option_is_part_of_the_program(
    found: str, tmp_path: Path
) -> None:
    """Nothing was seen of it: here, a product that may overflow."""
    layer = """\
        import torch
        import torch.nn as nn
        class Weigh(nn.Module):
            def forward(self, h):
                return torch.matmul(h, h.t())[:, :3]
        """
    net = """\
        import torch.nn as nn
        from nets.layers import Weigh
        def get_model():
            return nn.Sequential(nn.Linear(8, 3), Weigh())
        """
    files = {
        "engine.py": "",
        "nets/layers.py": layer,
        "nets/plain.py": "import torch.nn as nn\ndef get_model():\n    return nn.Linear(8, 3)\n",
        "nets/weighed.py": net,
        "main.py": f"""\
            import argparse
            import os
            import sys
            from importlib import import_module
            import torch
            import torch.nn as nn
            sys.path.append(os.path.join(os.path.dirname(__file__), "nets"))
            parser = argparse.ArgumentParser()
            parser.add_argument("--{'net' if 'listdir' in found else 'model'}", default="plain")
            options = parser.parse_args()
            folder = "nets/"
            model = {found}.get_model().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in [(torch.randn(4, 8).cuda(), torch.tensor([0, 1, 2, 0]).cuda())]:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            """,
    }
    codes, after = run(tmp_path, files)
    assert codes == []
    assert "scaler.step(optimizer)" in after["main.py"]
    assert "torch.matmul(full_h, full_h.t())" in after["nets/layers.py"]


TRAINER = """\
import torch
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def train(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
"""
WRAPPED = NET.replace(
    "def make_net():\n    return nn.Linear(4, 2).to(device)\n",
    """\
class Model(nn.Module):
    def __init__(self, cpu):
        super().__init__()
        self.device = torch.device("cpu" if cpu else "cuda")
        self.inner = nn.Linear(4, 2).to(self.device)
    def forward(self, x):
        return self.inner(x.to(self.device)).to(device)
""",
)


@pytest.mark.parametrize(
    "made",
    (
        "module.Model(not torch.cuda.is_available())",
        # The variable takes the module's name.
        "net.Model(not torch.cuda.is_available())",
    ),
)
def test_a_part_is_moved_as_soon_as_it_is_made(made: str, tmp_path: Path) -> None:
    name = made.partition(".")[0]
    main = f"""\
    import torch
    import net{"" if name == "net" else " as module"}
    from engine import Trainer
    batches = {name}.batches
    net = {made}
    Trainer(net).train(batches)
    """
    if name == "net":
        main = main.replace("batches = net.batches", "from net import batches")
    codes, after = run(
        tmp_path, {"net.py": WRAPPED, "engine.py": TRAINER, "main.py": main}
    )
    assert codes == []
    switch = 'enabled=next(self.model.parameters()).device.type == "cuda"'
    assert switch in after["engine.py"]


@pytest.mark.parametrize(
    ("look", "steps"), ((migrate_paths, 150_000), (lint_paths, 50_000))
)
def test_a_program_that_is_too_large_is_named_and_the_others_are_done(
    look: Callable[[list[Path]], Report],
    steps: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in {"net.py": NET, "alone.py": ALONE, **passed_on(80)}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").touch()
    assert not look([tmp_path]).errors
    monkeypatch.setattr(effort, "MOST_STEPS", steps)
    report = look([tmp_path])
    (error,) = map(str, report.errors)
    assert error.endswith(
        "engine.py: too large to be analysed, with the 2 files that imports connect with it"
    )
    assert [Path(one.path).name for one in report.results] == ["alone.py"]
    assert {Path(path).name for path in report.unread} >= {"engine.py", "main.py"}


def test_scripts_that_share_a_loop_keep_their_checkpoints_alike(tmp_path: Path) -> None:
    """A name apart is only for scalers that one run may save."""
    state = '{"model": model.state_dict(), "optimizer": optimizer.state_dict()}'
    script = f"{MAIN}torch.save({state}, 'c.pt')\n"
    left, written = run(tmp_path, {"main.py": script, "more.py": script})
    assert left == []
    for name in ("main.py", "more.py"):
        assert '"scaler": scaler.state_dict()' in written[name]


def test_a_file_that_cannot_be_read_may_call_what_it_speaks_of(tmp_path: Path) -> None:
    """To import it alone calls nothing."""
    broken = "from engine import train{}\ny = y.cuda(async=True)\n"
    for number, (more, is_left) in enumerate(
        (("", False), ("\ntrain(1, 2, 3)", True), (" as fit\nfit(1, 2, 3)", True))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in (("net.py", NET), ("engine.py", ENGINE), ("main.py", MAIN)):
            (folder / name).write_text(text)
        (folder / "old.py").write_text(broken.format(more))
        (folder / "pyproject.toml").touch()
        report = migrate_paths([folder], write=True)
        found = [one.message for r in report.results for one in r.diagnostics]
        assert bool(found) is is_left
        assert all("train() is also used in old.py" in message for message in found)
        assert ("scaler" in (folder / "engine.py").read_text()) is not is_left
