"""Right and wrong use of a scaler in the styles that people write it in: helpers, conditional
expressions, classes of their own, several files."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from lint_support import lint, lint_files

HEAD = """\
import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_

"""


def codes(text: str) -> list[str]:
    found = lint(HEAD + dedent(text), select=("AMP",))
    return sorted(f"{one.code} {one.place.text.strip()}" for one in found)


RIGHT = {
    "a backward chosen by an expression": """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda", enabled=fp16)
            for x in data:
                optimizer.zero_grad()
                loss = model(x).sum()
                scaler.scale(loss).backward() if fp16 else loss.backward()
                scaler.step(optimizer)
                scaler.update()
        """,
    "a step chosen by an expression": """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda") if fp16 else None
            for x in data:
                optimizer.zero_grad()
                loss = model(x).sum()
                (scaler.scale(loss) if scaler else loss).backward()
                scaler.step(optimizer) if scaler else optimizer.step()
                if scaler:
                    scaler.update()
        """,
    "and, or": """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda")
            for x in data:
                loss = model(x).sum()
                fp16 and scaler.scale(loss).backward()
                fp16 or loss.backward()
                fp16 and (scaler.step(optimizer), scaler.update())
                fp16 or optimizer.step()
                optimizer.zero_grad()
        """,
    "an expression and a statement": """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                loss = model(x).sum()
                loss.backward() if not fp16 else scaler.scale(loss).backward()
                if fp16:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
        """,
    "a helper is given the scaled loss": """
        def backprop(loss, retain_graph=False):
            loss.backward(retain_graph=retain_graph)

        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                backprop(scaler.scale(model(x).sum()), retain_graph=True)
                loss = scaler.scale(model(x).mean())
                backprop(loss)
                scaler.step(optimizer)
                scaler.update()
        """,
    "through two helpers": """
        def deeper(loss):
            loss.backward()

        def backprop(objective):
            deeper(objective)

        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                backprop(scaler.scale(model(x).sum()))
                scaler.step(optimizer)
                scaler.update()
        """,
    "a helper scales": """
        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer
                self.scaler = GradScaler("cuda")

            def loss(self, x):
                return self.scaler.scale(self.model(x).sum())

            def keep(self, x):
                self.total = self.scaler.scale(self.model(x).sum())

            def train(self, data):
                for x in data:
                    self.optimizer.zero_grad()
                    loss = self.loss(x)
                    loss.backward()
                    self.keep(x)
                    self.total.backward()
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
        """,
    "a list of scaled losses": """
        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                losses, parts = [], {}
                for part in x:
                    losses.append(scaler.scale(model(part).sum()))
                parts["mean"] = scaler.scale(model(x).mean())
                sum(losses).backward()
                parts["mean"].backward()
                scaler.step(optimizer)
                scaler.update()
        """,
    "callers that are not in sight may have scaled": """
        class Engine:
            def __init__(self, optimizer):
                self.optimizer, self.scaler = optimizer, GradScaler("cuda")

            def optimize(self, loss):
                loss.backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """,
    "a return, and the caller updates": """
        def step(scaler, optimizer, model):
            scaler.unscale_(optimizer)
            norm = clip_grad_norm_(model.parameters(), 1.0)
            if not torch.isfinite(norm):
                return False
            scaler.step(optimizer)
            return True

        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                step(scaler, optimizer, model)
                scaler.update()
        """,
    "a return, and the caller updates by a name of its own": """
        class Stepper:
            def __init__(self, optimizer, scaler):
                self.optimizer, self.scaler = optimizer, scaler

            def step(self, model):
                self.scaler.unscale_(self.optimizer)
                norm = clip_grad_norm_(model.parameters(), 1.0)
                if not torch.isfinite(norm):
                    return
                self.scaler.step(self.optimizer)

        def train(model, optimizer, other, data):
            scaler = GradScaler("cuda")
            steppers = [Stepper(optimizer, scaler), Stepper(other, scaler)]
            first = steppers[0]
            for x in data:
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                first.step(model)
                scaler.update()
        """,
    "a helper that may do without a scaler is given one": """
        def step(optimizer, scaler=None):
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()

        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                step(optimizer, scaler)
        """,
    "failures that a test expects": """
        import pytest, unittest

        class Test(unittest.TestCase):
            def test(self):
                model = nn.Linear(4, 4)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                scaler = GradScaler("cuda")
                scaler.scale(model(torch.randn(2, 4)).sum()).backward()
                scaler.unscale_(optimizer)
                with self.assertRaises(RuntimeError):
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                with pytest.raises(RuntimeError, match="already"):
                    scaler.step(optimizer)
                scaler.update()
        """,
    "another optimizer has stepped before, without the scaler": """
        def train(model, data):
            first = torch.optim.SGD(model.head.parameters(), lr=0.1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = GradScaler("cuda")
            for x in data:
                model.head(x).sum().backward()
                first.step()
                first.zero_grad()
            for x in data:
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        """,
    "a switch of the loss's own": """
        class Loss(nn.Module):
            def __init__(self, fp16):
                super().__init__()
                self.fp16 = fp16

            def forward(self, x, y):
                if not self.fp16:
                    return nn.functional.binary_cross_entropy(x.sigmoid(), y)
                with torch.autocast("cuda", enabled=False):
                    return nn.functional.binary_cross_entropy(x.float().sigmoid(), y)

        def train(model, optimizer, data, fp16):
            scaler, compute = GradScaler("cuda"), Loss(fp16)
            for x, y in data:
                optimizer.zero_grad()
                if fp16:
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = compute(model(x), y)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    compute(model(x), y).backward()
                    optimizer.step()
        """,
    "a flag says that gradients are unscaled": """
        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer
                self.scaler = GradScaler("cuda")
                self.is_unscaled = False

            def unscale(self):
                if not self.is_unscaled:
                    self.scaler.unscale_(self.optimizer)
                self.is_unscaled = True

            def train(self, data):
                for step, x in enumerate(data):
                    self.is_unscaled = False
                    self.optimizer.zero_grad()
                    self.scaler.scale(self.model(x).sum()).backward()
                    if step % 50 == 0:
                        self.unscale()
                        print(sum(p.grad.norm() for p in self.model.parameters()))
                    self.unscale()
                    clip_grad_norm_(self.model.parameters(), 1.0)
                    self.scaler.step(self.optimizer)
                    self.scaler.update()

        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for step, x in enumerate(data):
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                unscaled = False
                if step % 50 == 0:
                    scaler.unscale_(optimizer)
                    unscaled = True
                    print(sum(p.grad.norm() for p in model.parameters()))
                if not unscaled:
                    scaler.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
        """,
    "an optimizer of two steps": """
        def train(model, optimizer, data):
            first, second = GradScaler("cuda"), GradScaler("cuda")
            for x in data:
                first.scale(model(x).sum()).backward()
                first.unscale_(optimizer)
                optimizer.first_step(zero_grad=True)
                first.update()
                second.scale(model(x).sum()).backward()
                second.unscale_(optimizer)
                optimizer.second_step(zero_grad=True)
                second.update()
        """,
    "losses that are scaled together": """
        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaled = scaler.scale(model(x))
                for loss in scaled:
                    loss.backward(retain_graph=True)
                [loss.backward() for loss in scaler.scale(model(x))]
                scaler.step(optimizer)
                scaler.update()
        """,
    "an overflow that is caught": """
        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                scaler.unscale_(optimizer)
                try:
                    clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
                    scaler.step(optimizer)
                except RuntimeError:
                    print("skipped")
                scaler.update()
        """,
    "a scaler of one's own": """
        class LoudScaler(GradScaler):
            def scale(self, outputs):
                return super().scale(outputs)

            def unscale_(self, optimizer):
                print("unscale")
                super().unscale_(optimizer)

            def step(self, optimizer, *args, **kwargs):
                return super().step(optimizer, *args, **kwargs)

            def update(self, new_scale=None):
                super().update(new_scale)

            def step_all(self, optimizers):
                for optimizer in optimizers:
                    self.unscale_(optimizer)
                    self.step(optimizer)

            def finish(self):
                self.update()

            def backward(self, loss):
                self.scale(loss).backward()
        """,
    "a scaler of one's own, used": """
        class Scaler(GradScaler):
            def optimize(self, loss, optimizer):
                self.scale(loss).backward()
                self.step(optimizer)

            def finish(self):
                self.update()

        def train(model, optimizer, data):
            scaler = Scaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.optimize(model(x).sum(), optimizer)
                scaler.finish()
        """,
    "a scaler that updates in step()": """
        class Scaler(GradScaler):
            def step(self, optimizer):
                super().step(optimizer)
                self.update()

        def train(model, optimizer, data):
            scaler = Scaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
        """,
    "a scaler that does all by itself": """
        class Scaler(GradScaler):
            def unscale_(self, optimizer):
                for group in optimizer.param_groups:
                    for p in group["params"]:
                        p.grad.div_(self.get_scale())

            def step(self, optimizer):
                return optimizer.step()

            def update(self):
                self._scale *= 1.0

        def train(model, optimizer, data):
            scaler = Scaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.scale(model(x).sum()).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
        """,
}

WRONG = {
    "a backward that no branch of the expression scales": (
        """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                loss = model(x).sum()
                loss.backward() if fp16 else (2 * loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
        "AMP114 loss.backward() if fp16 else (2 * loss).backward()",
    ),
    "a plain step in the branch that scales": (
        """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                loss = model(x).sum()
                scaler.scale(loss).backward() if fp16 else loss.backward()
                optimizer.step() if fp16 else scaler.step(optimizer)
                scaler.update()
        """,
        "AMP112 optimizer.step() if fp16 else scaler.step(optimizer)",
        "AMP114 scaler.scale(loss).backward() if fp16 else loss.backward()",
    ),
    "a helper is given the loss as it is": (
        """
        def backprop(loss):
            loss.backward()

        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                backprop(model(x).sum())
                scaler.step(optimizer)
                scaler.update()
        """,
        "AMP114 loss.backward()",
    ),
    "a step in front of an unscale_ without update()": (
        """
        def train(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                for part in x:
                    scaler.scale(model(part).sum()).backward()
                    scaler.unscale_(optimizer)
                    clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                scaler.update()
        """,
        "AMP108 scaler.step(optimizer)",
    ),
    "helpers that may do without, and no update()": (
        """
        class Amp:
            def __init__(self, enabled):
                self.scaler = GradScaler("cuda") if enabled else None

            def backward(self, loss):
                self.scaler.scale(loss).backward() if self.scaler else loss.backward()

            def step(self, optimizer):
                if self.scaler is not None:
                    self.scaler.step(optimizer)
                else:
                    optimizer.step()

            def update(self):
                self.scaler.update()

        def train(model, optimizer, data, enabled):
            amp = Amp(enabled)
            for x in data:
                optimizer.zero_grad()
                amp.backward(model(x).sum())
                amp.step(optimizer)
        """,
        "AMP108 self.scaler.step(optimizer)",
    ),
    "a scaler of one's own, used wrongly": (
        """
        class Scaler(GradScaler):
            def optimize(self, loss, optimizer):
                self.scale(loss).backward()
                self.step(optimizer)

        def train(model, optimizer, data):
            scaler = Scaler("cuda")
            for x in data:
                optimizer.zero_grad()
                scaler.optimize(model(x).sum(), optimizer)
        """,
        "AMP108 self.step(optimizer)",
    ),
}
"""By name: the program, and what is found: the code and the line."""


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert codes(RIGHT[name]) == []


def test_a_branch_in_which_the_region_is_off() -> None:
    text = """
        def train(model, optimizer, data, args):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
                    loss = model(x).sum()
                    if args.amp:
                        scaler.scale(loss).backward()
                        scaler.step(optimizer)
                        scaler.update()
                    else:
                        loss.backward()
                        optimizer.step()
        """
    assert codes(text) == [
        "AMP201 scaler.scale(loss).backward()",
        "AMP202 scaler.step(optimizer)",
    ]
    always = text.replace(", enabled=args.amp", "")
    assert "AMP201 loss.backward()" in codes(always)


def test_a_loss_of_many_calls() -> None:
    helpers = "".join(
        f"def f{n}(x):\n    return f{n + 1}(x + {n})\n" for n in range(60)
    )
    text = """
        def train(model, optimizer, data, fp16):
            scaler = GradScaler("cuda")
            for x in data:
                optimizer.zero_grad()
                if fp16:
                    loss = scaler.scale(model(x).sum())
                else:
                    loss = f0(x)
                loss = loss.mean()
                loss.backward()
                scaler.step(optimizer)
                scaler.update()
        """
    assert codes(helpers + dedent(text)) == []


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    text, *found = WRONG[name]
    assert codes(text) == found


TRAINED = """
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler("cuda")
for x in [torch.randn(2, 4)]:
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""
NOT_SAVED = {
    "unless it is the last": """
        state = {"model": model.state_dict(), "opt": None if final else optimizer.state_dict()}
        torch.save(state, "last.pt")
        """,
    "entry by entry": """
        state = {"epoch": 3}
        state["model"] = model.state_dict()
        state["optimizer"] = optimizer.state_dict()
        torch.save(state, "last.pt")
        """,
    "nested, and added": """
        state = dict(epoch=3)
        state.update({"states": {"optimizer": optimizer and optimizer.state_dict()}})
        torch.save(state, "last.pt")
        """,
    "called dict": """
        torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict()), "last.pt")
        """,
    "a method makes it": """
        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer

            def state_dict(self):
                state = {"model": self.model.state_dict()}
                state["optimizer"] = optimizer.state_dict()
                return state

        torch.save(Trainer(model, optimizer).state_dict(), "last.pt")
        """,
    "a helper makes it": """
        def state():
            return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state(), "last.pt")
        """,
    "beside the state of a wrapped model": """
        state = {"ema": unwrap(model).float().state_dict(), "opt": optimizer.state_dict()}
        torch.save(state, "last.pt")
        for net in nets:
            torch.save(net.state_dict(), "net.pt")
        """,
}


def test_an_optimizer_that_gets_its_name_inside_an_expression() -> None:
    named = "if optimizer := torch.optim.SGD(model.parameters(), lr=0.1):\n    pass\n"
    assignment = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    saved = 'torch.save([model.state_dict(), optimizer.state_dict(), scaler.state_dict()], "last.pt")\n'
    assert codes(TRAINED.replace(assignment, named) + saved) == []


@pytest.mark.parametrize("name", NOT_SAVED)
def test_a_checkpoint_without_the_scaler(name: str) -> None:
    text = dedent(NOT_SAVED[name])
    found = codes(TRAINED + text)
    assert [one.partition(" ")[0] for one in found] == ["AMP122"]
    whole = text.replace(
        "optimizer.state_dict()", "[optimizer.state_dict(), scaler.state_dict()]"
    )
    assert codes(TRAINED + whole) == []


@pytest.mark.parametrize(
    "text",
    (
        "for thing in things: state[thing] = things[thing].state_dict()",
        "state.update({k: thing.state_dict() for k, thing in things.items()})",
        "state['it'] = getattr(trainer, 'it').state_dict()",
        "state['grad_scaler'] = other()",
        "pickle.dump([model, scaler], open('x', 'wb'))",
    ),
)
def test_a_checkpoint_that_may_have_the_scaler(text: str) -> None:
    save = "state = {'o': optimizer.state_dict()}\n{}\ntorch.save(state, 'last.pt')\n"
    assert codes(TRAINED + save.replace("{}", text)) == []


TRAINS = """\
import torch
from torch import nn
from net import Net
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in [torch.randn(2, 4)]:
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(){}}, "last.pt")
"""
NET = """\
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        return x
"""


def test_the_scaler_of_another_script_is_no_excuse(tmp_path: Path) -> None:
    texts = {
        "lacks.py": TRAINS.replace("{}", ""),
        "saves.py": TRAINS.replace("{}", ', "scaler": scaler.state_dict()'),
        "net.py": NET,
    }
    found = lint_files(tmp_path, texts, select=("AMP",))
    assert [one.code for one in found["lacks.py"]] == ["AMP122"]
    assert found["saves.py"] == ()


def test_two_trainers_in_one_file() -> None:
    function = """
        def {name}(model, optimizer, data):
            scaler = GradScaler("cuda")
            for x in data:
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
            torch.save({{"optimizer": optimizer.state_dict(){more}}}, "{name}.pt")
        """
    lacks = dedent(function.format(name="one", more=""))
    saves = dedent(function.format(name="two", more=', "s": scaler.state_dict()'))
    assert codes(lacks + saves) == [
        'AMP122 torch.save({"optimizer": optimizer.state_dict()}, "one.pt")'
    ]
