"""Wrong use of AMP that is spread over helpers, classes, tables and files, each beside one that is right."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from lint_support import lint_files

HEAD = """\
import contextlib
import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_

"""
LOOP = """
    for x in data:
        opt.zero_grad()
        {0}.scale(model(x).sum()).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        {0}.step(opt)
        {0}.update()
"""
UNSCALED = ("        clip", "        {0}.unscale_(opt)\n        clip")


def loop(scaler: str, head: str) -> tuple[str, tuple[str, str]]:
    right = (UNSCALED[0], UNSCALED[1].format(scaler))
    return dedent(head).strip() + LOOP.format(scaler), right


CLIPPED = {
    "in a dict": loop(
        'kit["gs"]',
        """
        def build():
            return {"lr": 0.1, "gs": GradScaler("cuda")}

        def train(model, opt, data):
            kit = build()
        """,
    ),
    "in a tuple": loop(
        "gs",
        """
        def build():
            return 0.1, GradScaler("cuda")

        def train(model, opt, data):
            lr, gs = build()
        """,
    ),
    "behind a property": loop(
        "precision.gs",
        """
        class Precision:
            def __init__(self):
                self._gs = GradScaler("cuda")

            @property
            def gs(self):
                return self._gs

        def train(model, opt, data):
            precision = Precision()
        """,
    ),
    "by keywords": loop(
        "gs",
        """
        def main(model, opt, data):
            options = {"gs": GradScaler("cuda")}
            train(model, opt, data, **options)

        def train(model, opt, data, gs):
        """,
    ),
    "switched on by a table": loop(
        "gs",
        """
        CONFIG = {"amp": True}

        def train(model, opt, data):
            gs = GradScaler("cuda", enabled=CONFIG["amp"])
        """,
    ),
}


def codes(folder: Path, text: str) -> set[str]:
    files: dict[str, str] = {"main.py": HEAD}
    name = "main.py"
    for line in dedent(text).strip().splitlines(keepends=True):
        if line.startswith("# file "):
            name = line.split()[2]
            files[name] = ""
        else:
            files[name] += line
    found = lint_files(folder, files, select=("AMP",))
    return {f"{one.code} {file}" for file, told in found.items() for one in told}


@pytest.mark.parametrize("name", CLIPPED)
def test_clipped_by_whatever_name(name: str, tmp_path: Path) -> None:
    text, (old, new) = CLIPPED[name]
    assert codes(tmp_path, text) == {"AMP101 main.py"}
    assert codes(tmp_path, text.replace(old, new)) == set()
    off = text.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=False)')
    assert codes(tmp_path, off.replace("True}", "False}")) == set()


SPREAD = {
    "a scaler of another file": (
        "AMP101 main.py",
        """
        # file kit.py
        from torch.amp import GradScaler
        gs = GradScaler("cuda")
        # file main.py
        import torch, kit
        def train(model, opt, data):
            for x in data:
                opt.zero_grad()
                kit.gs.scale(model(x).sum()).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                kit.gs.step(opt)
                kit.gs.update()
        """,
        ('GradScaler("cuda")', 'GradScaler("cuda", enabled=False)'),
    ),
    "a clip of another file": (
        "AMP101 clips.py",
        """
        # file clips.py
        import torch
        def bound(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # file train.py
        import torch
        from clips import bound
        def train(model, opt, data):
            scaler = torch.amp.GradScaler("cuda")
            for x in data:
                opt.zero_grad()
                scaler.scale(model(x).sum()).backward()
                bound(model)
                scaler.step(opt)
                scaler.update()
        """,
        ("        bound(", "        scaler.unscale_(opt)\n        bound("),
    ),
    "one scaler in two objects": (
        "AMP104 main.py",
        """
        class Clipper:
            def __init__(self, kit, opt, model):
                self.grad, self.opt, self.model = kit["gs"], opt, model

            def __call__(self):
                self.grad.unscale_(self.opt)
                clip_grad_norm_(self.model.parameters(), 1.0)

        def train(model, data):
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            kit = {"gs": GradScaler("cuda")}
            clip = Clipper(kit, opt, model)
            for x in data:
                opt.zero_grad()
                kit["gs"].scale(model(x).sum()).backward()
                kit["gs"].unscale_(opt)
                clip()
                kit["gs"].step(opt)
                kit["gs"].update()
        """,
        ('        kit["gs"].unscale_(opt)\n', ""),
    ),
    "one scaler by two names": (
        "AMP104 main.py",
        """
        class Clipper:
            def __init__(self, grad, opt):
                self.grad, self.opt = grad, opt

            def clip(self):
                self.grad.unscale_(self.opt)

        class Trainer:
            def __init__(self, model):
                self.model = model
                self.opt = opt = torch.optim.SGD(model.parameters(), lr=0.1)
                self.gs = gs = GradScaler("cuda")
                self.clipper = Clipper(gs, opt)

            def step(self, x):
                self.opt.zero_grad()
                self.gs.scale(self.model(x).sum()).backward()
                self.gs.unscale_(self.opt)
                self.clipper.clip()
                self.gs.step(self.opt)
                self.gs.update()
        """,
        (
            "        self.gs.unscale_(self.opt)\n        self.clipper",
            "        self.clipper",
        ),
    ),
    "two scalers in one table": (
        "AMP115 main.py",
        """
        def back(loss, s):
            s.scale(loss).backward()

        def train(model, opt, data):
            a, b = GradScaler("cuda"), GradScaler("cuda")
            kit = {"back": a, "step": b}
            for x in data:
                opt.zero_grad()
                back(model(x).sum(), kit["back"])
                kit["step"].step(opt)
                kit["step"].update()
        """,
        ('"step": b', '"step": a'),
    ),
    "a region that is handed on": (
        "AMP201 main.py",
        """
        def forward(model, x, region, s, opt):
            with region:
                loss = model(x).sum()
                s.scale(loss).backward()
            s.step(opt)
            s.update()

        def train(model, opt, data):
            s = GradScaler("cuda")
            for x in data:
                opt.zero_grad()
                forward(model, x, torch.autocast("cuda"), s, opt)
        """,
        ('torch.autocast("cuda")', "contextlib.nullcontext()"),
    ),
    "a region in a table on self": (
        "AMP201 main.py",
        """
        class Trainer:
            def __init__(self, model, opt):
                self.model, self.opt = model, opt
                self.kit = {"region": torch.autocast("cuda"), "gs": GradScaler("cuda")}

            def step(self, x):
                self.opt.zero_grad()
                with self.kit["region"]:
                    loss = self.model(x).sum()
                    self.kit["gs"].scale(loss).backward()
                self.kit["gs"].step(self.opt)
                self.kit["gs"].update()
        """,
        ('        self.kit["gs"].scale', '    self.kit["gs"].scale'),
    ),
    "a dtype out of a table": (
        "AMP119 main.py",
        """
        DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

        def train(model, opt, data, name):
            gs = GradScaler("cuda")
            for x in data:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=DTYPES["bf16"]):
                    loss = model(x).sum()
                gs.scale(loss).backward()
                gs.step(opt)
                gs.update()
        """,
        ('DTYPES["bf16"]', "DTYPES[name]"),
    ),
    "a device's index by an argument": (
        "AMP209 main.py",
        """
        def run(model, x, device):
            with torch.autocast(device):
                return model(x)

        def main(model, x):
            return run(model, x, "cuda:0")
        """,
        (":0", ""),
    ),
    "a mask in a model of another file": (
        "AMP205 net.py",
        """
        # file net.py
        import torch
        from torch import nn
        LOWEST = -1e9
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = nn.Linear(4, 4)
            def forward(self, x, mask):
                return self.hide(self.q(x) @ x.transpose(0, 1), mask)
            def hide(self, scores, mask):
                return scores.masked_fill(mask, LOWEST)
        # file train.py
        import torch
        from net import Net
        def train(data):
            model = Net()
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            for x, mask in data:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x, mask).sum()
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
        """,
        ("x.transpose(0, 1), mask", "x.transpose(0, 1) + x.double(), mask"),
    ),
    "scores in fp32 are masked": (
        "AMP205 main.py",
        """
        def hide(scores, mask):
            return scores.masked_fill(mask, -1e9)

        def attend(q, k, mask):
            with torch.autocast("cuda", dtype=torch.float16):
                scores = q @ k
                return hide(scores, mask)
        """,
        ("q @ k", "(q @ k).to(torch.float32)"),
    ),
    "what is computed before the region": (
        "AMP205 main.py",
        """
        def attend(q, k, mask):
            with torch.autocast("cuda", dtype=torch.float16):
                scores = q @ k
                return scores.masked_fill(mask, -1e9)
        """,
        (
            '    with torch.autocast("cuda", dtype=torch.float16):\n        scores = q @ k\n',
            '    scores = q @ k\n    with torch.autocast("cuda", dtype=torch.float16):\n',
        ),
    ),
    "a loss out of a table": (
        "AMP204 main.py",
        """
        LOSSES = {"bce": nn.BCELoss(), "logits": nn.BCEWithLogitsLoss()}

        class Task:
            def __init__(self):
                self.loss = LOSSES["bce"]

            def compute(self, model, x, y):
                with torch.autocast("cuda"):
                    return self.loss(model(x), y)
        """,
        ('LOSSES["bce"]', 'LOSSES["logits"]'),
    ),
    "an epsilon behind a name, in a helper": (
        "AMP206 main.py",
        """
        EPS = 1e-8

        def entropy(p):
            return -torch.log(p + EPS).sum()

        def compute(q, k):
            with torch.autocast("cuda", dtype=torch.float16):
                return entropy(torch.sigmoid(q @ k))
        """,
        ("q @ k", "(q @ k).float()"),
    ),
    "an optimizer that wants closures, out of a factory": (
        "AMP117 main.py",
        """
        def make(model):
            return {"opt": torch.optim.LBFGS(model.parameters())}

        def train(model, data):
            kit = make(model)
            scaler = GradScaler("cuda")
            for x in data:
                kit["opt"].zero_grad()
                scaler.scale(model(x).sum()).backward()
                scaler.step(kit["opt"])
                scaler.update()
        """,
        ("LBFGS", "Adam"),
    ),
    "a clip of another optimizer's parameters": (
        "AMP101 main.py",
        """
        def train(model, other, data):
            params = [p for p in model.parameters() if p.requires_grad]
            opt = torch.optim.Adam(params)
            second = torch.optim.Adam(other.parameters())
            scaler = GradScaler("cuda")
            for x in data:
                opt.zero_grad()
                second.zero_grad()
                scaler.scale(model(x).sum() + other(x).sum()).backward()
                scaler.unscale_(second)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.step(second)
                scaler.update()
        """,
        ("clip_grad_norm_(model", "clip_grad_norm_(other"),
    ),
    "the states of a manager": (
        "AMP122 ck.py",
        """
        # file ck.py
        import torch
        class Manager:
            def __init__(self, **parts):
                self.parts = parts
            def save(self, path):
                parts = self.parts
                torch.save({"net": parts["net"].state_dict(), "opt": parts["opt"].state_dict()}, path)
        # file main.py
        import torch
        from ck import Manager
        def train(model, data):
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            manager = Manager(net=model, opt=opt, s=scaler)
            for x in data:
                scaler.scale(model(x).sum()).backward()
                scaler.step(opt)
                scaler.update()
            manager.save("last.pt")
        """,
        ('"net": parts', '"s": parts["s"].state_dict(), "net": parts'),
    ),
}


@pytest.mark.parametrize("name", SPREAD)
def test_spread(name: str, tmp_path: Path) -> None:
    wanted, text, (old, new) = SPREAD[name]
    text = dedent(text)
    assert codes(tmp_path, text) == {wanted}
    assert old in text
    assert codes(tmp_path, text.replace(old, new)) == set()


QUIET = {
    "a loss of a helper, in a branch": """
        def compute(model, x):
            total = model(x).sum()
            return total

        def back(loss):
            loss.backward()

        def train(model, opt, data, amp):
            scaler = GradScaler("cuda")
            for x in data:
                opt.zero_grad()
                loss = compute(model, x)
                if amp:
                    scaler.scale(loss).backward()
                    scaler.step(opt)
                    scaler.update()
                else:
                    back(loss)
                    opt.step()
        """,
    "two scalers of one factory": """
        def make():
            return GradScaler("cuda")

        def train(g, d, first, second, data):
            a, b = make(), make()
            for x in data:
                first.zero_grad()
                a.scale(g(x).sum()).backward()
                second.zero_grad()
                b.scale(d(x).sum()).backward()
                a.step(first)
                b.step(second)
                a.update()
                b.update()
        """,
    "a scaler for each of several models": """
        def train(models, data):
            kits = [(torch.optim.SGD(m.parameters(), lr=0.1), GradScaler("cuda")) for m in models]
            for x in data:
                for kit in kits:
                    kit[0].zero_grad()
                kits[0][1].scale(models[0](x).sum()).backward()
                kits[1][1].scale(models[1](x).sum()).backward()
                kits[0][1].step(kits[0][0])
                kits[1][1].step(kits[1][0])
                kits[0][1].update()
                kits[1][1].update()
        """,
    "two trainers": """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
                self.gs = GradScaler("cuda")

            def back(self, loss):
                self.opt.zero_grad()
                self.gs.scale(loss).backward()

        def train(g, d, data):
            a, b = Trainer(g), Trainer(d)
            for x in data:
                a.back(g(x).sum())
                b.back(d(x).sum())
                a.gs.unscale_(a.opt)
                b.gs.unscale_(b.opt)
                a.gs.step(a.opt)
                b.gs.step(b.opt)
                a.gs.update()
                b.gs.update()
        """,
}


@pytest.mark.parametrize("name", QUIET)
def test_several_objects_of_one_place(name: str, tmp_path: Path) -> None:
    assert codes(tmp_path, QUIET[name]) == set()
