"""Numbers that half precision cannot hold, in forms that have no remedy but an island, or none."""

from __future__ import annotations

import pytest
from half_support import check_runs
from programs import HEAD
from shorthand import before

from amp_migrate.api import migrate_source

MODEL = """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        s = self.q(x) @ self.k(x).t()
        mask = torch.ones(4, 4, device=x.device).tril() == 0
        {}
        return self.out(F.softmax(s, dim=-1) @ self.k(x))


class Config:
    fill = -1e9


LIMITS = {{"fill": -1e9}}
model = Attention().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    STEPS
"""

LEFT = {
    "a place": "s[-1] = -1e9",
    "a method in place": "s.sub_(1e9 * mask)",
    "a diagonal": "s.fill_diagonal_(-1e9)",
    "limits of NumPy": "import numpy\n        s = s.masked_fill(mask, numpy.finfo('f').min)",
}  # fmt: skip
ISLANDS = {
    "limits of a parameter": "s = s.masked_fill(mask, torch.finfo(self.q.weight.dtype).min)",
    "a small number stored": "s[s == 0] = 1e-8",
    "a difference in place": "s -= 1e9 * mask",
    "by index": "s = s.index_fill(1, torch.tensor([0], device=x.device), -1e9)",
    "a new tensor": "s = torch.where(mask, s.new_tensor(-1e9), s)",
    "a mask that is half": "s = s + (1.0 - mask.to(s.dtype)) * -1e9",
    "a mask of a dtype that was asked for before": "kind = s.dtype\n"
    "        s = s + (1.0 - mask.to(kind)) * -1e9",
    "a mask that was made half": "m = mask.to(s.dtype)\n        s = s + m * -1e9",
    "limits of another": "r = torch.rand(4, 4)\n        s = s.masked_fill(mask, torch.finfo(r.dtype).min)",
    "a small number filled in": "s = s.masked_fill(s == 0, 1e-8)",
    "into what is multiplied by its own transpose": "s = (s @ s.t()).masked_fill(mask, -1e9)",
}  # fmt: skip
CASTS = {
    "an attribute": "s = s.masked_fill(mask, Config.fill)",
    "a sum with a small number": "s = s / s.abs().mul(1).add(1e-8)",
    "a number of NumPy": "import numpy\n        s = s.masked_fill(mask, numpy.float32(-1e9))",
    "an element of a dict": 's = s.masked_fill(mask, LIMITS["fill"])',
    "the resolution of a dtype": "import numpy\n"
    "        s = s / (s.amax(1, keepdim=True) + numpy.finfo(float).eps)",
    "the smallest number": "import numpy\n        s = s + numpy.finfo(numpy.float32).tiny.item()",
    "made of itself": "low = -1e9\n        for j in range(3):\n"
    "            low = max(low, s[:, j].max().item())\n        s = s.clamp(max=low)",
    "what a call gives": "s = torch.matmul(s, self.k(x).t()[:4]).masked_fill(mask, -1e9)",
    "in the call of a softmax": "s = F.softmax((s @ self.k(x)[:, :4]).masked_fill(mask, -1e9), dim=-1)",
}  # fmt: skip
MULTIPLIED = {
    "at once": "s = (s * 2).masked_fill(mask, -1e5) @ s * 1e-5",
    "by name": "s = (s * 2).masked_fill(mask, LIMITS['fill'])\n"
    "        s = torch.matmul(s, s) * 1e-9",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name: str) -> None:
    source = HEAD + before(MODEL.format(LEFT[name]))
    result = migrate_source(source)
    assert result.output == source
    assert {found.code for found in result.diagnostics} == {"AMP021"}


@pytest.mark.parametrize("name", ISLANDS)
def test_in_fp32(name: str) -> None:
    source = HEAD + before(MODEL.format(ISLANDS[name]))
    output = migrate_source(source).output
    assert 'with torch.autocast("cuda", enabled=False):' in output
    check_runs(source, output)


@pytest.mark.parametrize("name", CASTS)
def test_cast_where_it_is_used(name: str) -> None:
    source = HEAD + before(MODEL.format(CASTS[name]))
    output = migrate_source(source).output
    assert ".float()" in output and "enabled=False)" not in output
    check_runs(source, output)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_what_a_product_casts_to_half_again(name: str) -> None:
    source = HEAD + before(MODEL.format(MULTIPLIED[name]))
    output = migrate_source(source).output
    assert ".float().masked_fill" not in output


NUMBERS = {
    "an option": "ARGS.fill",
    "the attributes of the options": 'vars(ARGS)["fill"]',
    "an option by its name": 'getattr(ARGS, "fill")',
    "what is missing": 'getattr(ARGS, "none", -1e9)',
    "what a dict does not have": 'LIMITS.get("none", -1e9)',
    "of the environment": 'float(os.environ.get("NONE", "-1e9"))',
    "the smaller one": "min(-1e9, 0.0)",
    "a power": "-math.pow(10, 9)",
    "a member": "Kind.LOW.value",
    "of a lambda": "low()",
    "of a tensor": "torch.tensor(-1e9, device=x.device)",
    "of a buffer": "self.low",
    "changed in place": "turned",
    "one of two": "(0.5 if s is None else -1e9)",
}
WHERE = """\
import argparse, enum, math, os
parser = argparse.ArgumentParser()
parser.add_argument("--fill", type=float, default=-1e9)
ARGS = parser.parse_args([])
low = lambda: -1e9
class Kind(enum.Enum):
    LOW = -1e9
turned = 1.0
turned *= -1e9
"""


@pytest.mark.parametrize("name", NUMBERS)
def test_where_a_number_may_come_from(name: str) -> None:
    buffered = MODEL.replace(
        "super().__init__()",
        'super().__init__()\n        self.register_buffer("low", torch.tensor(-1e9))',
    )
    body = before(buffered.format(f"s = s.masked_fill(mask, {NUMBERS[name]})"))
    output = migrate_source(HEAD + WHERE + body).output
    assert "finfo(s.dtype).min" in output or "s.float().masked_fill" in output
    check_runs(HEAD + WHERE + body, output)


def test_what_a_partial_gives() -> None:
    body = MODEL.replace(
        "class Attention",
        "import functools\ndef hidden(s, mask, fill):\n    return s.masked_fill(mask, fill)\n"
        "hide = functools.partial(hidden, fill=-1e9)\nclass Attention",
    )
    source = HEAD + before(body.format("s = hide(s, mask)"))
    result = migrate_source(source)
    assert result.output == source
    assert {found.code for found in result.diagnostics} == {"AMP021"}


OWN_LIMITS = {
    "put into it": "r[0] = -torch.finfo(r.dtype).max",
    "filled in": "r = r.masked_fill(mask[0], -torch.finfo(r.dtype).max)",
}


@pytest.mark.parametrize("name", OWN_LIMITS)
def test_a_tensor_holds_its_own_limits(name: str) -> None:
    text = (
        f"r = torch.rand(4, device=x.device)\n        {OWN_LIMITS[name]}\n"
        "        s = s.masked_fill(r.argsort() == 0, 0.0)"
    )
    source = HEAD + before(MODEL.format(text))
    result = migrate_source(source)
    assert result.changed and OWN_LIMITS[name] in result.output


FLOAT_BIAS = "bias = torch.zeros(4, 4, device=x.device)\n        "
LARGE_IN_FP32 = {
    # name: (how the bias is filled, and used; whether that is in fp32, too)
    "added": ("bias = bias.masked_fill(mask, -1e9)", "s = s + bias", True),
    "added in place": ("bias = bias.masked_fill(mask, -1e9)", "s += bias", False),
    "added by a method": ("bias[mask] = -1e9", "s = s.add_(bias)", False),
    "filled in place": ("bias.masked_fill_(mask, -1e9)", "s += bias", False),
    "its own limits": ("bias[mask] = torch.finfo(bias.dtype).min", "s += bias", False),
    "for attention": (
        "bias = bias.masked_fill(mask, -1e9)",
        "s = F.scaled_dot_product_attention(s[None], s[None], s[None], attn_mask=bias)[0]",
        False,
    ),
}


@pytest.mark.parametrize("name", LARGE_IN_FP32)
def test_a_large_number_stays_in_fp32(name: str) -> None:
    filled, used, stays = LARGE_IN_FP32[name]
    source = HEAD + before(MODEL.format(f"{FLOAT_BIAS}{filled}\n        {used}"))
    result = migrate_source(source)
    assert result.changed == stays
    assert {found.code for found in result.diagnostics} == (
        set() if stays else {"AMP021"}
    )


BOUND = {
    "a power": "-(10**9)",
    "a shift": "-(1 << 31)",
    "a number in a string": 'float("-1e9")',
    "a limit by another name": "-torch.finfo(torch.float).max",
}


@pytest.mark.parametrize("name", BOUND)
def test_kept_within_limits(name: str) -> None:
    text = f"s = s.masked_fill(mask, {BOUND[name]})"
    result = migrate_source(HEAD + before(MODEL.format(text)))
    assert f"max({BOUND[name]}, torch.finfo(s.dtype).min)" in result.output


PRECISIONS = {
    "a dtype by a name": "DT = torch.float64\nmodel.to(DT)\n",
    "a cast of every part": "model.apply(lambda m: m.double())\n",
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_another_precision(name: str) -> None:
    opt = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    source = HEAD + before(PRECISIONS[name] + opt + "for x, y in data:\n    STEPS\n")
    (found,) = migrate_source(source).diagnostics
    assert found.code == "AMP006"


DIVIDED_BY = {
    # name: (what the square is divided by, whether it is migrated)
    "integers of a shape": ("b, n = out.shape\n    total += square / (b * n)", True),
    "one of them": ("total += square / out.shape[0]", True),
    "a half value": ("total += (square / out.exp2())[0, 0]", False),
    "what is made fp32": ("total += square / out.exp2().mean()", True),
    "a buffer of that name": ("total += square / model.shape", False),
}


@pytest.mark.parametrize("name", DIVIDED_BY)
def test_a_large_weight_of_a_square(name: str) -> None:
    """A square is fp32, and so is what is left of it by integers."""
    divided, is_migrated = DIVIDED_BY[name]
    source = (
        "import torch\nfrom torch import nn\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(8, 3)\n        self.shape = self.fc(torch.ones(8)).mean()\n"
        "    def forward(self, x):\n        return self.fc(x)\n"
        "model = Net().to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in [(torch.randn(4, 8), torch.randn(4, 3))]:\n"
        "    optimizer.zero_grad()\n    out = model(x.to(device))\n    total = 0\n"
        "    square = torch.mean((out - y.to(device)) ** 2)\n"
        f"    {divided}\n    loss = 1e6 * total\n    loss.backward()\n    optimizer.step()\n"
    )
    result = migrate_source(source, path="train.py")
    assert (result.output != source) is is_migrated
    assert is_migrated or result.diagnostics[0].code == "AMP021"


ASKED = {
    "a table by dtypes": "s = s * {torch.float32: 1.0}[s.dtype]",
    "its bits": "print(s.detach().view(torch.int32).shape)",
}


@pytest.mark.parametrize("name", ASKED)
def test_the_dtype_of_a_half_tensor_is_asked_for(name: str) -> None:
    result = migrate_source(HEAD + before(MODEL.format(ASKED[name])))
    assert [found.code for found in result.diagnostics] == ["AMP020"]


def test_a_table_by_dtypes_that_knows_half_precision() -> None:
    table = "s = s + {torch.float32: 1e-6, torch.float16: 1e-4}[s.dtype]"
    source = HEAD + before(MODEL.format(table))
    output = migrate_source(source).output
    assert "scaler.step(opt)" in output
    check_runs(source, output)
