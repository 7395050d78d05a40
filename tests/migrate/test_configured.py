"""What hydra makes, by what the project's configuration files name."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.api import Outcome, migrate_paths

RUN = """\
import hydra
import torch
from hydra.utils import instantiate

from trainer import Trainer


@hydra.main(config_path="conf", config_name="run")
def main(cfg):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = instantiate(cfg.model).to(device)
    loss_fn = instantiate(cfg.loss)
    optimizer = instantiate(cfg.optimizer, params=model.parameters())
    scheduler = instantiate(cfg.scheduler, optimizer)
    Trainer(model, loss_fn, optimizer, scheduler, device).train([(torch.randn(4, 8), torch.zeros(4, 3))])


main()
"""
TRAINER = """\
import torch


class Trainer:
    def __init__(self, model, loss_fn, optimizer: torch.optim.Optimizer, scheduler, device):
        self.model, self.loss_fn, self.device = model, loss_fn, device
        self.optimizer = optimizer
        self.scheduler = scheduler

    def train(self, data):
        for x, y in data:
            self.optimizer.zero_grad()
            loss = self.loss_fn(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        self.scheduler.step()
"""
LOSSES = """\
import torch
from torch import nn


class Own(nn.Module):
    def forward(self, p, y):
        return torch.BODY
"""
SGD = "_target_: torch.optim.SGD\nlr: 0.1\n"
STEP = "_target_: torch.optim.lr_scheduler.StepLR\nstep_size: 2\n"


def found(folder: Path, **configured: str) -> tuple[str, str, str]:
    """(run.py, trainer.py) as they become, and the code of what is left alone."""
    files = {
        "run.py": RUN,
        "trainer.py": TRAINER,
        "conf/run.yaml": "defaults:\n  - optimizer: sgd\n",
        "conf/optimizer/sgd.yaml": SGD,
        "conf/scheduler.yaml": STEP,
    }
    files |= {
        name.replace("__", "/").replace("_y", ".y"): t for name, t in configured.items()
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    report = migrate_paths([folder])
    loops = [loop for m in report.migrations for loop in m.result.loops]
    assert len(loops) == 1
    if loops[0].outcome is Outcome.MIGRATED:
        of = {Path(m.document.path).name: m.result.output for m in report.migrations}
        return of["run.py"], of["trainer.py"], ""
    assert loops[0].diagnostic is not None
    return "", "", loops[0].diagnostic.code


def test_an_optimizer_of_a_configuration(tmp_path: Path) -> None:
    run, trainer, code = found(tmp_path)
    assert code == ""
    born = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
    assert f"params=model.parameters())\n    {born}\n" in run
    assert "self.scaler.unscale_(self.optimizer)" in trainer
    assert "self.scaler.step(self.optimizer)" in trainer


@pytest.mark.parametrize(
    "target",
    [
        "torch.optim.LBFGS",  # needs a closure
        "project.optim.Own",  # not known
        "pytorch_optimizer.SAM",  # steps in its own way
    ],
)
def test_an_optimizer_that_may_be_another(target: str, tmp_path: Path) -> None:
    more = f"optimizer:\n  _target_: {target}\n"
    assert found(tmp_path, conf__other_yaml=more)[2] in ("AMP010", "AMP013", "AMP014")


def test_a_configuration_out_of_sight(tmp_path: Path) -> None:
    assert found(tmp_path, conf__optimizer__sgd_yaml="lr: 0.1\n")[2] == "AMP010"


def test_a_loss_that_raises_under_autocast(tmp_path: Path) -> None:
    more = 'loss:\n  "_target_": "torch.nn.BCELoss"\n'
    assert found(tmp_path, conf__loss_yaml=more)[2] == "AMP020"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("square(p - y).mean()", ""),
        ("nn.functional.binary_cross_entropy(p, y)", "AMP020"),
    ],
)
def test_a_class_that_only_a_configuration_names(
    body: str, code: str, tmp_path: Path
) -> None:
    (tmp_path / "losses.py").write_text(LOSSES.replace("BODY", body))
    more = "loss:\n  _target_: losses.Own\n"
    assert found(tmp_path, conf__loss_yaml=more)[2] == code
