"""Which of several reasons a loop is left alone for: the one that says most about it."""

from __future__ import annotations

import pytest
from exactness import check_off, check_scaled
from half_support import check_runs
from programs import HEAD as SCRIPT

from amp_migrate.api import Outcome, migrate_source

HEAD = """\
import torch
import extension_cuda
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(3, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """\
for x in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    BACKWARD
    optimizer.step()
"""
UNUSUAL = (
    "out.backward(torch.ones_like(out))",
    "torch.autograd.backward(out.sum())",
    "print(out.sum().backward())",
)


@pytest.mark.parametrize("backward", UNUSUAL)
def test_without_a_step_the_form_of_backward_does_not_matter(backward: str) -> None:
    text = HEAD + LOOP.replace("BACKWARD", backward)
    [with_step] = migrate_source(text).diagnostics
    [without] = migrate_source(text.replace("    optimizer.step()\n", "")).diagnostics
    assert with_step.code in ("AMP016", "AMP032")
    assert without.code == "AMP011"


def test_a_function_that_is_called_backward_is_no_tensors() -> None:
    text = HEAD + LOOP.replace("BACKWARD", "extension_cuda.backward(out, device)")
    [diagnostic] = migrate_source(text).diagnostics
    assert diagnostic.code == "AMP004"
    assert (
        diagnostic.message == "extension_cuda.backward() is not a Tensor's backward()"
    )


MADE = """
class Value:
    def __init__(self, *args):
        pass
    def backward(self):
        pass
class Net(torch.nn.Module):
    def forward(self, x):
        return x
made = OTHER if input() else torch.nn.functional.mse_loss
"""
LOSS = "loss = made(out, torch.zeros_like(out))\n    loss.backward()"


@pytest.mark.parametrize(("other", "migrated"), [("Net", 1), ("Value", 0)])
def test_a_module_is_no_home_made_loss(other: str, migrated: int) -> None:
    text = HEAD + MADE.replace("OTHER", other) + LOOP.replace("BACKWARD", LOSS)
    outcomes = [one.outcome for one in migrate_source(text).loops]
    assert outcomes == [Outcome.MIGRATED] * migrated


FUNCTION = {
    # how it is written, and what becomes of it or the code of the refusal
    "one loss": ("torch.autograd.backward(loss)", "torch.autograd.backward(scaler.scale(loss))"),
    "by its name": (
        "torch.autograd.backward(tensors=loss, retain_graph=True)",
        "torch.autograd.backward(tensors=scaler.scale(loss), retain_graph=True)",
    ),
    "a list": ("torch.autograd.backward([loss])", "AMP016"),
    "a list under a name": ("loss = [loss]\n    torch.autograd.backward(loss)", "AMP016"),
    "lists that are joined": (
        "both = [loss] + [loss * 2]\n    torch.autograd.backward(both, [None, None])",
        "AMP016",
    ),
    "an expression": ("torch.autograd.backward(loss * 2)", "AMP016"),
    "a gradient": ("torch.autograd.backward(loss, torch.ones(()))", "AMP032"),
    "in an expression": ("print(torch.autograd.backward(loss))", "AMP016"),
    "of what is under AMP": ("torch.autograd.backward(scaler.scale(loss))", "AMP001"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTION)
def test_backward_as_a_function(name: str) -> None:
    backward, expected = FUNCTION[name]
    lines = f"loss = out.pow(2).mean()\n    {backward}"
    head = HEAD.replace("import extension_cuda\n", "")
    source = (
        f"{head}loader = [torch.randn(4, 3)] * 3\n{LOOP.replace('BACKWARD', lines)}"
    )
    result = migrate_source(source, path="train.py")
    if not expected.startswith("AMP"):
        assert expected in result.output
        assert check_off(source, result.output) == []
        assert check_scaled(source, result.output) == []
        again = migrate_source(result.output, path="train.py")
        assert not again.changed
        return
    assert not result.changed
    (loop,) = result.loops
    assert loop.diagnostic is None or loop.diagnostic.code == expected


def test_lines_that_only_python_can_read() -> None:
    """Tabs behind spaces: LibCST, which would write the new text, has another opinion of their depth."""
    source = SCRIPT + (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in data:\n"
        "    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n"
        "    loss.backward()\n    optimizer.step()\n"
    )
    assert migrate_source(source).changed
    odd = source + "for each in []:\n    \tif each:\n            print(each)\n"
    result = migrate_source(odd)
    assert result.output == odd
    (found,) = result.diagnostics
    assert found.code == "AMP090" and "LibCST cannot read how" in found.message


SEEDED = """\
import torch
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
one = torch.FloatTensor([1])
more = 2
MADE
if device.type == "cuda":
    one, more = one.cuda(), more
for x in [torch.randn(4, 3)] * 3:
    optimizer.zero_grad()
    loss = model(x.to(device)).mean(0)
    loss.backward(GIVEN)
    optimizer.step()
    print(loss.item())
"""
SEEDS = {
    "a number": ("", "one"),
    "times another": ("minus = one * -1\nminus = minus.to(device)", "minus"),
    "with a graph that is kept": ("", "gradient=one, retain_graph=True"),
    "with a dtype": (
        "one = torch.tensor([1], dtype=torch.float, device=device)\nminus = one * -1",
        "minus",
    ),
    "by torch.tensor": ("half = -torch.tensor([0.5]).to(device)", "half"),
}
NO_SEEDS = {
    "a gradient": "one.grad = x",
    "of another dtype": "one = torch.FloatTensor([1]).half()",
    "to another dtype": "one = one.to(torch.float16)",
    "a number that is not written out": "one = one * more",
    "one that half precision has not": "one = torch.FloatTensor([1e-7])",
    "one that overflows": "one = torch.FloatTensor([1e6])",
    "a size": "one = torch.FloatTensor(1)",
    "changed in place": "one.mul_(more)",
    "added to": "one += more",
    "an element": "one[0] = more",
    "by another name": "other = one\nother.mul_(more)",
    "in a function": "def change(some):\n    some.mul_(3)\nchange(one)",
    "in a list": "kept = [one]\nkept[0].mul_(more)",
    "out": "torch.add(one, 1, out=one)",
    "a view": "one.view(1).mul_(more)",
    "a loop": "for one in [torch.ones(1).half()]:\n    pass",
    "of a dtype": "one = torch.tensor([1], dtype=torch.half)",
    "another variable's": "one = torch.tensor(more)",
    "elsewhere": "def set_it():\n    global one\n    one = model.weight.grad",
}


@pytest.mark.parametrize("name", SEEDS)
def test_a_backward_from_numbers_that_are_written_out(name: str) -> None:
    made, given = SEEDS[name]
    source = SEEDED.replace("MADE", made).replace("GIVEN", given)
    result = migrate_source(source, path="train.py")
    assert f"    scaler.scale(loss).backward({given})\n" in result.output
    check_runs(source, result.output)


@pytest.mark.parametrize("name", NO_SEEDS)
def test_a_backward_from_other_numbers(name: str) -> None:
    source = SEEDED.replace("MADE", NO_SEEDS[name]).replace("GIVEN", "one")
    [diagnostic] = migrate_source(source, path="train.py").diagnostics
    assert diagnostic.code == "AMP032"


def test_a_backward_from_numbers_that_makes_another_gradient() -> None:
    source = SEEDED.replace("MADE", "").replace("GIVEN", "one, create_graph=True")
    [diagnostic] = migrate_source(source, path="train.py").diagnostics
    assert diagnostic.code == "AMP023"
