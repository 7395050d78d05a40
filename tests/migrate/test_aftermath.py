"""Gradients used after their step: a scaler may have skipped it, because they are infinite."""

from __future__ import annotations

from textwrap import indent

import pytest
from programs import HEAD, left_alone, migrated

from amp_migrate.api import migrate_source

OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
STEP = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""


def training(after: str, setup: str = "") -> str:
    return OPT + setup + STEP + indent(after, "    ")


HARM = {
    "a weight": "for p in model.parameters():\n    p.data.mul_(1 - p.grad.norm())\n",
    "a weight, with an operator": "for p in model.parameters():\n    p.data -= p.grad\n",
    "the parameter itself": "with torch.no_grad():\n    for p in model.parameters():\n        p -= p.grad\n",
    "an item of a weight": "model[0].weight.data[0] = model[0].weight.grad[0]\n",
    "a variable that is a weight": (
        "for p in model.parameters():\n    w = p.data\n    w[:] = w - p.grad\n"
    ),
    "by way of a variable": (
        "norm = sum(p.grad.norm() for p in model.parameters())\n"
        "for p in model.parameters():\n    p.data.div_(1 + norm)\n"
    ),
    "a test": (
        "norm = model[0].weight.grad.norm()\n"
        "if norm > 10:\n    model[0].weight.data.zero_()\n"
    ),
    "the learning rate": (
        "norm = model[0].weight.grad.norm().item()\n"
        "for group in opt.param_groups:\n    group['lr'] = 0.1 / (1 + norm)\n"
    ),
    "the loss": (
        "total = torch.zeros(())\n"
        "for p in model.parameters():\n    total = total + p.grad.sum()\n"
        "schedule(opt, total)\n"
    ),
    "an integer": "print(int(model[0].weight.grad.norm()))\n",
    "a rounded number": "print(round(model[0].weight.grad.norm().item()))\n",
    "a format for integers": "print('%5d' % model[0].weight.grad.norm().item())\n",
    "the floor of a number": "print(math.floor(model[0].weight.grad.norm()))\n",
    "a histogram of NumPy": (
        "for p in model.parameters():\n    print(np.histogram(p.grad.cpu().numpy()))\n"
    ),
    "a histogram in a function": (
        "for p in model.parameters():\n    show(p.grad.cpu().numpy())\n"
    ),
    "singular values": "print(np.linalg.svd(model[0].weight.grad.cpu().numpy()))\n",
}
NUMPY = """\
import math
import numpy as np
def show(values):
    counts, edges = np.histogram(values)
    print(counts)
"""


RAISES = (
    "an integer",
    "a rounded number",
    "the floor of a number",
    "a histogram of NumPy",
    "a histogram in a function",
)


@pytest.mark.parametrize("name", HARM)
def test_what_reaches_the_training(name: str) -> None:
    code = "AMP025" if name in RAISES else "AMP030"
    assert left_alone(training(HARM[name], NUMPY)) == code


@pytest.mark.parametrize("name", ["a histogram in a function", "a weight"])
def test_what_raises_is_named(name: str) -> None:
    source = HEAD + training(HARM[name], NUMPY)
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert ("histogram() raises" in found.message) == name.startswith("a histogram")


ELASTIC = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
fisher = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    for n, p in model.named_parameters():
        PENALTY
    loss.backward()
    BEFORE
    opt.step()
    BEHIND
"""
COLLECTED = "for n, p in model.named_parameters():\n        fisher[n] += p.grad.pow(2)"


@pytest.mark.parametrize("place", ["BEFORE", "BEHIND"])
def test_a_loss_that_is_made_of_gradients(place: str) -> None:
    source = ELASTIC.replace(place, COLLECTED).replace("    BEFORE\n", "")
    source = source.replace("    BEHIND\n", "")
    elastic = source.replace("PENALTY", "loss = loss + (fisher[n] * p.pow(2)).sum()")
    assert left_alone(elastic) == "AMP030"
    shown = source.replace("PENALTY", "print(n, fisher[n].mean())")
    assert "scaler.step(opt)" in migrated(shown)


AVERAGED = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
kept = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for n, p in model.named_parameters():
        KEEP
        USE
    opt.step()
"""


@pytest.mark.parametrize(
    "keep",
    [
        "kept[n] = kept[n] * 0.9 + p.grad",
        "kept[n].mul_(0.9).add_(p.grad, alpha=0.1)",
        "kept[n].lerp_(p.grad, 0.1)",
    ],
)
@pytest.mark.parametrize(
    "use",
    ["p.grad.add_(kept[n])", "p.grad = p.grad + kept[n]", "p.grad.data = 2 * kept[n]"],
)
def test_gradients_that_are_made_of_those_of_earlier_steps(keep: str, use: str) -> None:
    source = AVERAGED.replace("KEEP", keep)
    assert left_alone(source.replace("USE", use)) == "AMP030"
    shown = source.replace("USE", "print(n, kept[n].mean())")
    assert "scaler.step(opt)" in migrated(shown)
    of_this_step = AVERAGED.replace("KEEP", "kept[n] = p.grad.clone()")
    assert "scaler.step(opt)" in migrated(of_this_step.replace("USE", use))


LIMITED = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
usual = 1.0
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 2 * usual)
    usual = 0.9 * usual + 0.1 * norm.item()
    opt.step()
"""


def test_a_limit_that_is_an_average_of_earlier_norms() -> None:
    assert left_alone(LIMITED) == "AMP030"
    shown = LIMITED.replace("2 * usual", "2.0").replace("opt.step()", "print(usual)")
    assert "scaler.unscale_(opt)" in migrated(f"{shown}    opt.step()\n")
    of_losses = LIMITED.replace("norm.item()", "loss.item()")
    assert "scaler.unscale_(opt)" in migrated(of_losses)


MEAN = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
class Mean:
    def __init__(self):
        self.kept = {}
    def __call__(self):
        for n, p in model.named_parameters():
            EDIT
mean = Mean()
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    mean()
    opt.step()
"""
IN_THE_LOOP = """\
kept = {}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for n, p in model.named_parameters():
        mean = 0.1 * p.grad + 0.9 * kept.get(n, 0.0)
        kept[n] = mean
        p.grad = mean.clone()
    opt.step()
"""
SMOOTHED = {
    "through a variable": "h = 0.1 * p.grad + 0.9 * self.kept.get(n, 0.0); self.kept[n] = h; p.grad = h",
    "by copies": "h = p.grad + self.kept.get(n, 0.0); self.kept[n] = h.clone(); p.grad.copy_(h)",
    "at once": "self.kept[n] = self.kept.get(n, 0.0) * 0.9 + p.grad; p.grad = self.kept[n].clone()",
    "before it is kept": "p.grad.add_(self.kept.get(n, 0.0)); self.kept[n] = p.grad.clone()",
    "that of the last step": "g = p.grad.clone(); p.grad.add_(self.kept.get(n, 0.0)); self.kept[n] = g",
    "of two steps": "old = self.kept.get(n); h = p.grad if old is None else p.grad + old;"
    " self.kept[n] = h; p.grad.data = h.clone()",
}


@pytest.mark.parametrize("name", SMOOTHED)
def test_averages_that_read_what_was_kept_in_another_form(name: str) -> None:
    edit = SMOOTHED[name].replace("; ", "\n            ")
    assert left_alone(MEAN.replace("EDIT", edit)) == "AMP030"


def test_an_average_in_the_loop() -> None:
    assert left_alone(IN_THE_LOOP) == "AMP030"


def test_what_is_kept_of_this_step_before_it_is_used_is_no_average() -> None:
    edit = """if n not in self.kept:
                self.kept[n] = torch.zeros_like(p)
            self.kept[n] = p.grad.clone()
            p.grad.data = 2 * self.kept[n]"""
    assert "scaler.unscale_(opt)" in migrated(MEAN.replace("EDIT", edit))


def test_what_is_made_anew_for_each_step_keeps_no_average() -> None:
    anew = IN_THE_LOOP.replace("kept = {}\n", "").replace(
        "    opt.zero", "    kept = {}\n    opt.zero"
    )
    assert "scaler.unscale_(opt)" in migrated(anew)
    edit = SMOOTHED["by copies"].replace("; ", "\n            ")
    anew = MEAN.replace("EDIT", edit).replace(
        "        for n,", "        self.kept = {}\n        for n,"
    )
    assert "scaler.unscale_(opt)" in migrated(anew)


MEASURED = """\
names = {}


def measured(tensor):
    assert isinstance(tensor, torch.Tensor)
    if tensor.is_sparse:
        return measured(tensor._indices()) + measured(tensor._values())
    return [(names.get(id(tensor)), tensor.numel(), tensor.storage().size(), tuple(tensor.size()))]


opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
for p in model.parameters():
    if p.grad is not None:
        names[id(p.grad)] = "{}.grad".format(type(p.grad).__name__)
        sizes = measured(p.grad)
        print(max(sizes))
"""


def test_what_has_nothing_to_do_with_the_values_of_gradients() -> None:
    assert "scaler.step(opt)" in migrated(MEASURED)


@pytest.mark.parametrize(
    "values", ["tensor.sum().item()", "tensor.data", "float(tensor[0])", "tensor"]
)
def test_what_takes_values_of_gradients(values: str) -> None:
    source = MEASURED.replace("tensor.numel()", values)
    assert left_alone(source) == "AMP030"


MASKED = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
masks = load_masks()
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for n, p in model.named_parameters():
        grad = p.grad.data.cpu().numpy()
        grad = grad * masks[n]
        p.grad.data = torch.from_numpy(grad).to(device)
    opt.step()
"""


def test_masked_gradients_of_this_step_are_no_average() -> None:
    assert "scaler.unscale_(opt)" in migrated(MASKED)


@pytest.mark.parametrize(
    "made", ["np.zeros_like(grad)", "np.ones(grad.shape)", "np.full_like(grad, 2)"]
)
def test_what_is_made_in_the_shape_of_a_gradient_is_none(made: str) -> None:
    masked = MASKED.replace("masks[n]\n", f"mask\n        grad = {made} * grad\n")
    built = (
        f"        mask = {made}\n        mask[:3] = masks[n][:3]\n        grad = grad *"
    )
    source = "import numpy as np\n" + masked.replace("        grad = grad *", built)
    assert "scaler.unscale_(opt)" in migrated(source)


@pytest.mark.parametrize(
    "changes",
    [
        # What is kept goes by another variable, a list, or what the mask is made of.
        {
            "numpy()": "numpy()\n        grad = old.get(n, grad)",
            "    opt.step": "        old[n] = grad\n    opt.step",
        },
        {
            "masks[n]\n": "0.1\n        grad = grad + 0.9 * old[n]\n        old[n] = grad\n"
        },
        {"masks[n]\n": "0.1 + 0.9 * old[n]\n        old[n] = grad\n"},
        {"masks[n]\n": "masks[n]\n        masks[n] = 0.9 * masks[n] + grad\n"},
        {
            "from_numpy(grad)": "from_numpy(grad + old[n])",
            "opt.step": "old[n] = grad\n    opt.step",
        },
    ],
)
def test_masked_gradients_that_are_kept_are_averages(changes: dict[str, str]) -> None:
    source = MASKED.replace("masks =", "old = {}\nmasks =")
    for one, other in changes.items():
        assert one in source
        source = source.replace(one, other)
    assert left_alone(source) == "AMP030"


def test_a_loop_that_ends_at_infinite_gradients_is_one_that_stops() -> None:
    end = "if not torch.isfinite(model[0].weight.grad).all():\n    break\n"
    assert left_alone(training(end)) == "AMP025"


HARMLESS = {
    "printing": "print(model[0].weight.grad.norm().item())\n",
    "a sum of norms": (
        "total = 0.0\n"
        "for p in model.parameters():\n"
        "    if p.grad is not None:\n"
        "        total += p.grad.detach().norm(2).item() ** 2\n"
        "norms.append(total ** 0.5)\n"
        "print(f'{total:.3f}', max(norms))\n"
    ),
    "a histogram": (
        "for name, p in model.named_parameters():\n"
        "    writer.add_histogram(name, p.grad, 1)\n"
        "    stats[name] = p.grad.abs().max()\n"
    ),
    "a test around a message": (
        "norm = model[0].weight.grad.norm()\nif norm > 100:\n    print('large', norm)\n"
    ),
    "clearing": "for p in model.parameters():\n    p.grad.zero_()\n",
    "a norm, by clipping": (
        "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "print(norm)\n"
    ),
    "a function": "print(norm_of(model))\n",
    "some digits": (
        "print(round(model[0].weight.grad.norm().item(), 2))\n"
        "print('%5.2f' % model[0].weight.grad.norm().item())\n"
        "print(np.linalg.norm(model[0].weight.grad.cpu().numpy()))\n"
    ),
}
SETUP = """\
import numpy as np
norms, stats, writer = [], {}, Writer()
def norm_of(net):
    total = 0
    for p in net.parameters():
        total += p.grad.norm().item()
    return total
"""


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_tells_of_them(name: str) -> None:
    output = migrated(training(HARMLESS[name], SETUP))
    assert "scaler.step(opt)" in output


def test_a_subclass_that_goes_on_after_the_step() -> None:
    source = """\
class Trainer:
    def __init__(self):
        self.model = make().to(device)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def train_step(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss
    def fit(self):
        for x, y in data:
            print(self.train_step(x, y).item())
class Decaying(Trainer):
    def train_step(self, x, y):
        loss = super().train_step(x, y)
        for p in self.model.parameters():
            p.data.mul_(1 - p.grad.norm())  # here
        return loss
Trainer().fit()
Decaying().fit()
"""
    (found,) = migrate_source(HEAD + source, path="train.py").diagnostics
    assert found.code == "AMP030"
    assert found.blocker is not None and found.blocker.text.endswith("# here")


PEERS = """\
class Learner:
    def __init__(self):
        self.net = make().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
class Follower(Learner):
    def __init__(self, other):
        super().__init__()
        self.other = other
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        for p, q in zip(self.net.parameters(), OTHER.parameters()):
            if q.grad is not None:
                EDIT
        self.opt.step()
one = Learner()
two = Follower(one)
for x, y in data:
    one.update(x, y)
    two.update(x, y)
"""


@pytest.mark.parametrize(
    "edit",
    ["p.grad.add_(q.grad)", "p.grad += 0.1 * q.grad", "p.grad = p.grad + q.grad.data"],
)
def test_gradients_of_another_object_whose_step_may_be_skipped(edit: str) -> None:
    source = PEERS.replace("OTHER", "self.other.net").replace("EDIT", edit)
    assert left_alone(source) == "AMP030"
    own = PEERS.replace("OTHER", "self.net").replace("EDIT", edit)
    assert "scaler.step(self.opt)" in migrated(own)


APART = """\
kept = {}
def keep(net):
    for n, p in net.named_parameters():
        kept[n] = p.grad.clone()
def smooth(net):
    for n, p in net.named_parameters():
        if n in kept:
            p.grad.add_(kept[n], alpha=0.5)
"""


def test_gradients_that_another_function_keeps_for_later() -> None:
    loop = f"{OPT}{APART}{STEP}"
    behind = "    loss.backward()\n"
    later = f"{behind}    smooth(model)\n    keep(model)\n"
    assert left_alone(loop.replace(behind, later)) == "AMP030"
    at_once = f"{behind}    keep(model)\n    smooth(model)\n"
    assert "scaler.step(opt)" in migrated(loop.replace(behind, at_once))
