"""Runs with and without a cache, and programs to run over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from amp_migrate.cli.main import main
from amp_migrate.edit.program_work import ProgramWork

MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1501, 512)

    def forward(self, inputs):
        return self.layer(inputs)
"""
TRAIN = """\
import torch

from model import Model

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for inputs, targets in [(torch.randn(8, 1501, device=device), torch.randn(8, 512, device=device))]:
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
"""
ALONE = """\
import torch

model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.LBFGS(model.parameters())


def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(8, 512).cuda()).square().mean()
    loss.backward()
    return loss


optimizer.step(closure)
"""
OLD = """\
import torch

scaler = torch.cuda.amp.GradScaler()
with torch.cuda.amp.autocast():
    print(torch.ones(2, device="cuda") * 2)
"""
PROGRAM = {"model.py": MODEL, "train.py": TRAIN, "alone.py": ALONE, "old.py": OLD}


@dataclass(frozen=True)
class Told:
    """What a run says and makes of files."""

    code: int
    out: bytes
    err: bytes


def write(texts: Mapping[str, str]) -> None:
    """Files in the current folder."""
    for name, text in texts.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def amp(*arguments: str, stdin: bytes | None = None) -> Told:
    """The command line, as it is typed."""
    done = CliRunner().invoke(main, list(arguments), input=stdin, prog_name="amp")
    return Told(done.exit_code, done.stdout_bytes, done.stderr_bytes)


def process(*arguments: str) -> Told:
    """The same in a process of its own, which knows of no run before."""
    command = [sys.executable, "-m", "amp_migrate", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    return Told(done.returncode, done.stdout, done.stderr)


def remembered(*arguments: str, stdin: bytes | None = None) -> Told:
    """The same, where nothing can be found out: all has to come out of the cache."""

    def work(*_: object, **__: object) -> None:
        raise AssertionError("worked once more")

    with mock.patch.object(ProgramWork, "__init__", work):
        return amp(*arguments, stdin=stdin)


def worked_on(*arguments: str) -> set[str]:
    """The names of the files of all programs that a run works on."""
    seen: set[str] = set()
    really = ProgramWork.__init__

    def work(
        self: ProgramWork, sources: object, *rest: object, **named: object
    ) -> None:
        really(self, sources, *rest, **named)  # type: ignore[arg-type]
        seen.update(Path(file).name for file in self.sources.texts)

    with mock.patch.object(ProgramWork, "__init__", work):
        amp(*arguments)
    return seen


def entries() -> list[Path]:
    """The files of the cache."""
    return sorted(Path("../cache/entries").glob("*/*"))
