"""The protocol of the scaler: pairs of a wrong script and the right one next to it."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from lint_support import lint, lint_files, told

from amp_migrate.api import Options, lint_source
from amp_migrate.core.options import LintOptions

HEAD = """\
import torch
from torch import nn
model, other = nn.Linear(4, 4), nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
data = [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(8)]
"""
LOOP = """\
for step, (x, y) in enumerate(data):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x), y)
"""
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def loop(body: str) -> str:
    return HEAD + LOOP + indent(body, "    ")


def codes(text: str) -> set[str]:
    return {finding.code for finding in lint(text, select=("AMP",))}


WRONG = {
    "clipped in the branch that scales": (
        "AMP101",
        f"""\
if use_amp:
    scaler.scale(loss).backward()
else:
    loss.backward()
{CLIP}
if use_amp:
    scaler.step(optimizer)
    scaler.update()
else:
    optimizer.step()
""",
    ),
    "clipped by value": (
        "AMP101",
        """\
scaler.scale(loss).backward()
nn.utils.clip_grad_value_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
""",
    ),
    "only the other optimizer is unscaled": (
        "AMP101",
        f"""\
scaler.scale(loss + other(x).mean()).backward()
scaler.unscale_(second)
{CLIP}
scaler.step(optimizer)
scaler.step(second)
scaler.update()
""",
    ),
    "noise": (
        "AMP102",
        """\
scaler.scale(loss).backward()
for p in model.parameters():
    p.grad.add_(torch.randn_like(p.grad))
scaler.step(optimizer)
scaler.update()
""",
    ),
    "weight decay by hand": (
        "AMP102",
        """\
scaler.scale(loss).backward()
for p in model.parameters():
    p.grad += 0.1 * p
scaler.step(optimizer)
scaler.update()
""",
    ),
    "an early continue": (
        "AMP108",
        f"""\
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
norm = {CLIP}
if not torch.isfinite(norm):
    continue
scaler.step(optimizer)
scaler.update()
""",
    ),
    "a step for each critic turn": (
        "AMP108",
        """\
for _ in range(5):
    scaler.scale(model(x).mean()).backward()
    scaler.step(optimizer)
scaler.update()
""",
    ),
    "the step of both branches": (
        "AMP112",
        """\
if use_amp:
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
else:
    loss.backward()
optimizer.step()
""",
    ),
    "update per optimizer": (
        "AMP110",
        """\
scaler.scale(loss + other(x).mean()).backward()
scaler.step(optimizer)
scaler.update()
scaler.step(second)
scaler.update()
""",
    ),
    "one of two losses": (
        "AMP114",
        """\
scaler.scale(loss).backward(retain_graph=True)
model(x).mean().backward()
scaler.step(optimizer)
scaler.update()
""",
    ),
}
"""By name: the code, and the rest of the loop."""

RIGHT = {
    "branches by one switch": f"""\
if use_amp:
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
else:
    loss.backward()
{CLIP}
if use_amp:
    scaler.step(optimizer)
    scaler.update()
else:
    optimizer.step()
""",
    "switches that are not read": f"""\
if use_amp:
    scaler.scale(loss).backward()
else:
    loss.backward()
if scaler.is_enabled():
    scaler.unscale_(optimizer)
{CLIP}
if use_amp:
    scaler.step(optimizer)
    scaler.update()
if not fp16:
    optimizer.step()
""",
    "a switch and its negation": """\
if not use_amp:
    loss.backward()
    optimizer.step()
    continue
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    "accumulation": f"""\
scaler.scale(loss / 4).backward()
if (step + 1) % 4 == 0 or step + 1 == len(data):
    scaler.unscale_(optimizer)
    {CLIP}
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
    "accumulation with continue": """\
scaler.scale(loss / 4).backward()
if (step + 1) % 4:
    continue
scaler.step(optimizer)
scaler.update()
""",
    "an early continue with update": f"""\
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
norm = {CLIP}
if not torch.isfinite(norm):
    scaler.update()
    continue
scaler.step(optimizer)
scaler.update()
""",
    "two optimizers in turn": """\
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
second.zero_grad()
scaler.scale(other(x).mean()).backward()
scaler.step(second)
scaler.update()
""",
    "two optimizers together": f"""\
scaler.scale(loss + other(x).mean()).backward()
for one in (optimizer, second):
    scaler.unscale_(one)
{CLIP}
for one in (optimizer, second):
    scaler.step(one)
scaler.update()
""",
    "one optimizer without the scaler": """\
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
second.zero_grad()
other(x).mean().backward()
nn.utils.clip_grad_norm_(other.parameters(), 1.0)
second.step()
""",
    "clipped by a scaled norm": """\
scaler.scale(loss).backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
scaler.step(optimizer)
scaler.update()
""",
    "unscaled by hand": f"""\
scaler.scale(loss).backward()
inverse = 1.0 / scaler.get_scale()
for p in model.parameters():
    p.grad.mul_(inverse)
{CLIP}
optimizer.step()
""",
    "averaged over processes": """\
scaler.scale(loss).backward()
for p in model.parameters():
    torch.distributed.all_reduce(p.grad)
    p.grad /= 4
scaler.step(optimizer)
scaler.update()
""",
    "a helper that is not read": """\
scaler.scale(loss).backward()
finish(scaler, optimizer)
""",
    "a backward of a framework": """\
fabric.backward(scaler.scale(loss))
scaler.step(optimizer)
scaler.update()
""",
    "a backward that is not known": """\
self.backward(compute(scaler, loss))
scaler.step(optimizer)
scaler.update()
""",
    "a scaled loss in a variable": """\
scaled = scaler.scale(loss)
scaled.backward()
scaler.step(optimizer)
scaler.update()
print(loss.item())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    code, body = WRONG[name]
    assert codes(loop(body)) == {code}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert codes(loop(RIGHT[name])) == set()


TRAINER = """\
import torch
class Trainer:
    def __init__(self, model, optimizer, use_amp):
        self.model, self.optimizer, self.use_amp = model, optimizer, use_amp
        self.scaler = torch.amp.GradScaler("cuda") if use_amp else None
    def backward(self, loss):
        if self.use_amp:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
    def clip(self):
        {unscale}torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
    def step(self):
        if self.use_amp:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
    def train(self, data):
        for x, y in data:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", enabled=self.use_amp):
                loss = (self.model(x) - y).pow(2).mean()
            self.backward(loss)
            self.clip()
            self.step()
"""


def test_methods_agree_on_a_switch() -> None:
    unscale = "if self.use_amp: self.scaler.unscale_(self.optimizer)\n        "
    assert codes(TRAINER.format(unscale=unscale)) == set()
    assert codes(TRAINER.format(unscale="")) == {"AMP101"}


FILES = {
    "main.py": """\
import torch
from engine import train_one_epoch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for epoch in range(3):
    train_one_epoch(model, optimizer, [torch.randn(2, 4)], scaler)
""",
    "engine.py": """\
import torch
def train_one_epoch(model, optimizer, data, scaler=None):
    for x in data:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=scaler is not None):
            loss = model(x).pow(2).mean()
        if scaler is None:
            loss.backward()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
""",
}


def test_a_scaler_that_is_passed_to_another_file(tmp_path: Path) -> None:
    assert lint_files(tmp_path, FILES, select=("AMP",)) == {
        "main.py": (),
        "engine.py": (),
    }


def test_what_is_wrong_is_told_in_the_file_where_it_stands(tmp_path: Path) -> None:
    engine = FILES["engine.py"].replace("            scaler.unscale_(optimizer)\n", "")
    found = lint_files(tmp_path, {**FILES, "engine.py": engine}, select=("AMP",))
    assert told(found["engine.py"]) == ["11 AMP101"]
    assert found["main.py"] == ()


def test_a_scaler_that_is_made_in_a_function_that_each_epoch_calls() -> None:
    text = HEAD + (
        "def train():\n    scaler = torch.amp.GradScaler('cuda')\n"
        + indent(LOOP, "    ")
        + "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n"
        "        scaler.update()\n"
        "for epoch in range(3):\n    {}train()\n"
    )
    assert codes(text.format("")) == {"AMP116"}
    fresh = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    "
    assert codes(text.format(fresh)) == set()


@pytest.mark.parametrize(
    "body",
    (
        "scaler.scale(loss).backward(",
        "with torch.autocast: pass",
        "scaler.step()\nscaler.unscale_()\nscaler.update()",
        "scaler.scale().backward()\nscaler.step(*optimizers)",
    ),
)
def test_odd_code_is_no_crash(body: str) -> None:
    try:
        lint(loop(body + "\n"), select=("AMP",))
    except Exception as error:
        assert type(error).__name__ == "SourceError"


def fixed(body: str) -> str:
    options = LintOptions(select=("AMP",), fix=True, unsafe_fixes=True)
    return lint_source(loop(body), options=Options(lint=options)).output


def test_what_is_missing_is_inserted() -> None:
    right = (
        "scaler.scale(loss).backward()\n"
        "scaler.unscale_(optimizer)\n"
        f"{CLIP}\n"
        "scaler.step(optimizer)\n"
        "scaler.update()\n"
    )
    for line in ("scaler.unscale_(optimizer)\n", "scaler.update()\n"):
        assert fixed(right.replace(line, "")) == loop(right)


def test_nothing_is_inserted_where_a_branch_decides() -> None:
    code, body = WRONG["clipped in the branch that scales"]
    assert code == "AMP101" and fixed(body) == loop(body)


def test_a_scaler_from_callers_that_are_not_in_sight() -> None:
    text = """\
        import torch
        def train(model, optimizer, data, use_amp, scaler=None):
            for x in data:
                optimizer.zero_grad()
                with torch.autocast("cuda", enabled=use_amp):
                    loss = model(x).pow(2).mean()
                if use_amp:
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    loss.backward()
                optimizer.step()
        """
    assert told(lint(text, select=("AMP",))) == ["13 AMP112"]
    right = text.replace("        optimizer.step()", "            optimizer.step()")
    assert lint(right, select=("AMP",)) == ()
