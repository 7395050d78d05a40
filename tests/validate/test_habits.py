"""Habits of training scripts: `amp-migrate validate` has to hold on each."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from validated import PLAIN

LOOP = PLAIN[PLAIN.index("for step") :].replace("range(6)", "range(50)")
HEAD = PLAIN[: PLAIN.index("for step")]
IN_FUNCTION = "def main():\n" + textwrap.indent(LOOP, "    ")

HABITS = {
    "a bare except around the training": HEAD
    + "try:\n"
    + textwrap.indent(LOOP, "    ")
    + "except:\n    print('interrupted', missing)\n",
    "a bare except around each step": HEAD
    + LOOP.replace("range(50)", "range(10**9)").replace(
        "    optimizer.step()",
        "    try:\n        optimizer.step()\n    except:\n        pass",
    ),
    "an exit in finally": "import sys\n"
    + HEAD
    + "try:\n"
    + textwrap.indent(LOOP, "    ")
    + "finally:\n    sys.exit(1)\n",
    "one process that is spawned for each GPU": "import torch.multiprocessing as mp\n"
    + HEAD
    + "def main(rank, epochs):\n    assert (rank, epochs) == (0, 2)\n"
    + textwrap.indent(LOOP, "    ")
    + "\nif __name__ == '__main__':\n"
    "    mp.spawn(main, args=(2,), nprocs=torch.cuda.device_count())\n",
    "what a launcher says": "import os\n"
    "rank = int(os.environ['LOCAL_RANK'])\n"
    + HEAD
    + "torch.distributed.init_process_group('nccl')\n"
    "model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])\n" + LOOP,
    "Windows newlines": PLAIN.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_is_proven(validate: Any, habit: str) -> None:
    said = validate({"train.py": HABITS[habit]}, "train.py", "--json", "--steps", "4")
    assert (said.code, said.only["steps"]) == (0, 4), said.out


def test_a_package_that_is_not_installed(validate: Any) -> None:
    model = "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))"
    files = {
        "nets/__init__.py": "",
        "nets/plain.py": f"from torch import nn\ndef make():\n    return {model}\n",
        "scripts/first/train.py": "from nets.plain import make\n"
        + PLAIN.replace(model, "make()"),
    }
    said = validate(files, "scripts/first/train.py", "--json")
    assert said.code == 0, said.out
    assert any("PYTHONPATH" in note for note in said.only["notes"])
    files["scripts/first/train.py"] = "import nets.missing\n" + PLAIN
    said = validate(files, "scripts/first/train.py", "--json")
    assert said.code == 2
    assert "No module named 'nets.missing'" in said.only["reason"]


def test_why_a_script_stopped_itself(validate: Any) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\np.parse_args()\n" + PLAIN
    said = validate({"train.py": text}, "train.py", "--json", "--", "--epochs", "3")
    assert said.code == 2
    assert "unrecognized arguments: --epochs 3" in said.only["reason"]
    assert "RuntimeError" not in said.only["reason"]


def test_training_in_other_processes_is_told(validate: Any) -> None:
    text = (
        "import torch.multiprocessing as mp\n"
        + HEAD
        + IN_FUNCTION
        + "\nif __name__ == '__main__':\n"
        "    process = mp.get_context('spawn').Process(target=main)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    said = validate({"train.py": text}, "train.py", "--json")
    assert said.code == 2
    assert "processes of its own" in said.only["reason"]
