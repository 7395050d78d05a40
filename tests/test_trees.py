"""Projects in the harness: run in a copy, with modules and arguments of their own."""

from __future__ import annotations

import json
from pathlib import Path

from exactness import check_mixed, check_off, check_scaled, execute
from trees import Tree, files, notebook_code

STEP = """\
import torch.nn.functional as F


def update(model, optimizer, x{parameter}):
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""

STEP_MIGRATED = """\
import torch
import torch.nn.functional as F


def update(model, optimizer, x, scaler):
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()
"""

MAIN = """\
import sys
import torch
from lib.step import update

torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(int(sys.argv[1])):
    print(update(model, optimizer, torch.randn(6, 4)))
"""

MAIN_MIGRATED = MAIN.replace(
    "lr=0.1)\n",
    'lr=0.1)\nscaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())\n',
).replace("(6, 4))", "(6, 4), scaler)")


def tree(folder: Path, texts: dict[str, str], *commands: tuple[str, ...]) -> Tree:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return Tree(folder, commands)


def project(folder: Path, main: str, step: str) -> Tree:
    texts = {"main.py": main, "lib/__init__.py": "", "lib/step.py": step}
    return tree(folder, texts, ("main.py", "5"))


def test_right_and_wrong_migrations(tmp_path: Path) -> None:
    plain = project(tmp_path / "plain", MAIN, STEP.format(parameter=""))
    right = project(tmp_path / "right", MAIN_MIGRATED, STEP_MIGRATED)
    assert check_off(plain, right) == []
    assert check_scaled(plain, right) == []
    assert check_mixed(plain, right) == []
    half = project(
        tmp_path / "half", MAIN_MIGRATED, STEP.format(parameter=", scaler=None")
    )
    assert check_off(plain, half) == []
    assert check_scaled(plain, half) == ["5 backwards were not scaled"]
    forgotten = project(
        tmp_path / "forgotten",
        MAIN_MIGRATED,
        STEP_MIGRATED.replace("    scaler.update()\n", ""),
    )
    assert check_scaled(plain, forgotten) != []


def test_an_error_says_where(tmp_path: Path) -> None:
    wrong = project(tmp_path, MAIN, STEP.format(parameter=", scaler"))
    assert execute(wrong).error.endswith("(main.py, line 9)")
    (tmp_path / "lib" / "step.py").write_text("def update(*_):\n    1 / 0\n")
    said = "ZeroDivisionError: division by zero (lib/step.py, line 2)"
    assert execute(wrong).error == said


def test_modules_are_the_projects_own(tmp_path: Path) -> None:
    texts = {
        "exactness.py": "WHO = 'mine'\n",
        "sub/run.py": "import trees\nprint(trees.WHO)\ntrees.WHO = 'changed'\n",
        "sub/trees.py": "WHO = 'of sub'\n",
        "run.py": "import exactness\nprint(exactness.WHO, __name__, __file__[-7:])\n",
    }
    both = tree(tmp_path, texts, ("run.py",), ("sub/run.py",), ("sub/run.py",))
    run = execute(both)
    assert run.error == ""
    assert run.stdout.splitlines() == ["mine __main__ /run.py", "of sub", "of sub"]


def test_commands_share_a_copy_and_leave_nothing_behind(tmp_path: Path) -> None:
    write = "import sys, pathlib\npathlib.Path('x').write_text(sys.argv[1])\n"
    read = "import pathlib, lib\nprint(pathlib.Path('x').read_text(), lib.VERSION)\n"
    texts = {"write.py": write, "read.py": read, "lib.py": "VERSION = 1\n"}
    commands = (("write.py", "hello"), ("read.py",))
    before = tree(tmp_path / "before", texts, *commands)
    after = tmp_path / "after"
    tree(after, {**texts, "lib.py": "VERSION = 2\n"})
    assert execute(before).stdout == "hello 1\n"
    assert execute(Tree(before.folder, commands, then=after)).stdout == "hello 2\n"
    assert list(files(tmp_path / "before")) == ["lib.py", "read.py", "write.py"]


def test_notebooks_without_what_is_not_python(tmp_path: Path) -> None:
    sources = [
        ("code", ["%matplotlib inline\n", "x = 1\n", "if x:\n", "    !ls"]),
        ("markdown", ["# Title"]),
        ("code", "%%time\nprint(x)"),
        ("code", ["%%bash\n", "exit 1"]),
        ("code", []),
    ]
    cells = [{"cell_type": kind, "source": source} for kind, source in sources]
    text = json.dumps({"cells": cells})
    assert notebook_code(text).split() == "pass x = 1 if x: pass print(x)".split()
    run = execute(tree(tmp_path, {"a.ipynb": text}, ("a.ipynb",)))
    assert (run.error, run.stdout) == ("", "1\n")
