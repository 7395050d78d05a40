"""What is left alone because half precision, or a scaled gradient, would break it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from amp_migrate.api import Options, migrate_source

HEAD = """\
import math
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randint(0, 3, (4,)))]
criterion = nn.CrossEntropyLoss()
"""
LOOP = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 3)
        self.register_buffer("mem", torch.zeros(6, 3))
        self.seen = {}
    def forward(self, x, i=0):
        o = self.l(x)
        BODY
        return o
model = Net().to(device)
"""
MODEL = "model = nn.Linear(8, 3).to(device)\n"


def outcome(source: str, path: Path | None = None) -> tuple[str, int]:
    """(code, blocking line) of the refusal, or ("", 0) where the script migrates."""
    if path is None:
        result = migrate_source(source)
    else:
        result = migrate_source(source, path=str(path), root=path.parent)
    if result.output != source:
        assert not result.diagnostics
        compile(result.output, "train.py", "exec")
        return "", 0
    (found,) = result.diagnostics
    return found.code, found.blocker.line if found.blocker else 0


@pytest.mark.parametrize(
    ("product", "migrates"),
    [
        ("A @ o", False),
        ("dglsp.spmm(A, o)", False),
        ("dglsp.spmm(A, torch.ones(4, 8))", True),
        ("torch.relu(o)", True),
    ],
)
def test_a_product_with_a_matrix_of_dgl(product: str, migrates: bool) -> None:
    """A library in C++, not installed here: ``TORCH_CHECK(sparse_val.dtype() == dense_mat.dtype())``"""
    net = NET.replace("x, i=0", "x, A=None").replace("BODY", f"o = {product}")
    source = f"import dgl.sparse as dglsp\n{HEAD}{net}{LOOP}"
    code, line = outcome(source)
    assert code == ("" if migrates else "AMP020")
    assert migrates or product in source.splitlines()[line - 1]


def line_of(source: str, text: str) -> int:
    return source[: source.index(text)].count("\n") + 1


BCE = {
    "subclass": "class L(nn.BCELoss):\n    pass\ncriterion = L()\n",
    "getattr": 'criterion = getattr(nn, "BCELoss")()\n',
    "table": 'criterion = {"a": nn.BCELoss(), "b": nn.MSELoss()}["a"]\n',
    "keys": "terms = {nn.BCELoss(): 1.0}\n(criterion,) = terms\n",
    "import": "from torch.nn import BCELoss as L\ncriterion = L()\n",
    "functional": "criterion = F.binary_cross_entropy\n",
    "functional by name": 'criterion = getattr(F, "binary_cross_entropy")\n',
    "default": "def make(kind=nn.BCELoss):\n    return kind()\ncriterion = make()\n",
}


@pytest.mark.parametrize("name", BCE)
def test_bce_however_it_is_named(name: str) -> None:
    source = HEAD + MODEL + BCE[name] + LOOP
    word = "binary_cross_entropy" if "functional" in name else "BCELoss"
    # It is followed to where it is called, and no sigmoid is found there, or else not followed at all.
    followed = name in ("subclass", "import", "functional")
    word = "criterion(model" if followed else word
    assert outcome(source) == ("AMP020", line_of(source, word))


@pytest.mark.parametrize(
    "setup",
    [
        "criterion = nn.BCEWithLogitsLoss()\n",
        "criterion = F.binary_cross_entropy_with_logits\n",
        "class Own(nn.Module):\n"
        "    def BCELoss(self, p, y):\n        return (p.flatten() - y) ** 2\n"
        "    def forward(self, p, y):\n        return self.BCELoss(p, y.float().repeat(3)).mean()\n"
        "criterion = Own()\n",
        "# not nn.BCELoss: that one raises\n",
    ],
)
def test_safe_relatives_of_bce(setup: str) -> None:
    assert outcome(HEAD + MODEL + setup + LOOP) == ("", 0)


def test_a_subclass_in_another_file(tmp_path: Path) -> None:
    text = "import torch.nn as nn\nclass Soft(nn.BCELoss):\n    pass\n"
    (tmp_path / "losses.py").write_text(text)
    source = HEAD + "from losses import Soft\n" + MODEL + "criterion = Soft()\n" + LOOP
    path = tmp_path / "train.py"
    path.write_text(source)
    assert outcome(source, path)[0] == "AMP020"


FORWARD = {
    "buffer": ("self.mem[torch.tensor([i])] = o.detach()[:1]", ""),
    "buffer, dtype said": ("self.mem[torch.tensor([i])] = o.detach()[:1].float()", ""),
    "row of a buffer": ("self.mem[0] = o.detach()[0]", ""),
    "text for a key": ("self.log[f\"o{i}\"] = o.detach()", ""),
    "dict": ("self.seen[x.shape] = o.detach()", ""),
    "mask": ("o = o.masked_fill(o > 0, -1e4)", ""),
    "mask beyond": ("o = o.masked_fill(o > 0, -1e9)", ""),
    "mask beyond, by a constant": ("o = o.masked_fill(o > 0, NEG)", ""),
    "mask beyond, by a parameter": ("o = fill(o, NEG)", ""),
    "mask beyond, by a keyword": ("o = fill(o, value=-1e9)", ""),
    "mask beyond, stored": ("o[o > 0] = NEG", ""),
    "mask by a small parameter": ("o = fill(o, -100.0)", ""),
    "gram": ("o = o + torch.mm(x.t(), x).sum()", ""),
    "gram beside a layer": ("o = self.l(x) + torch.mm(x.t(), x).sum()", "AMP020"),
    "gram by operator": ("o = o + (x @ x.T).mean()", ""),
    "gram by a variable": ("t = x.transpose(0, 1)\n        o = o + x.mm(t).sum()", ""),
    "gram in a helper": ("o = o + gram(x[None]).sum()", ""),
    "gram of unit rows": ("u = F.normalize(x, dim=1)\n        o = o + (u @ u.t()).sum()", ""),
    "another factor": ("o = o + (o @ o.new_ones(4, 3).t()).sum()", ""),
    "sparse": ("o = torch.spmm(self.mem, o)", ""),
    "sparse, reduced otherwise": ("o = torch.sparse.mm(self.mem, o, 'mean')", ""),
    "sparse, its module": ("o = torch.sparse.mm(self.mem, o)", ""),
    "sparse, beside a layer": ("o = torch.sparse.mm(self.mem, self.l(x))", ""),
    "sparse, its method": ("o = self.mem.spmm(o)", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    body, expected = FORWARD[name]
    helpers = """\
    NEG = -1e9
    def fill(s, value):
        return s.masked_fill(s > 0, value)
    def gram(f):
        b, c, h = f.shape
        f = f.view(b, c, h)
        return f.bmm(f.transpose(1, 2)) / (c * h)
    """
    source = HEAD + dedent(helpers) + NET.replace("BODY", body) + LOOP
    assert outcome(source)[0] == expected


CLIP = "    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
ABORTS = {
    "assert": (CLIP + "    assert torch.isfinite(norm)\n", "AMP025"),
    "raise": (
        CLIP + "    if not torch.isfinite(norm):\n        raise ValueError(norm)\n",
        "AMP025",
    ),
    "exit": (CLIP + "    if math.isnan(norm):\n        sys.exit(1)\n", "AMP025"),
    "else": (
        CLIP
        + "    if norm.isfinite():\n        pass\n    else:\n        raise ValueError(norm)\n",
        "AMP025",
    ),
    "kept in a variable": (
        CLIP
        + "    bad = torch.isnan(norm)\n    if bad:\n        raise ValueError(norm)\n",
        "AMP025",
    ),
    "gradients": (
        "    for p in model.parameters():\n        assert torch.isfinite(p.grad).all()\n",
        "AMP025",
    ),
    "own helper": (
        "    total = size_of(model)\n    if math.isinf(total):\n        raise ValueError(total)\n",
        "AMP025",
    ),
    "a large norm, exit": (
        CLIP + "    if norm > 1e9:\n        sys.exit(1)\n",
        "AMP025",
    ),
    "a large norm, raise": (
        CLIP + "    if 1e9 <= norm.item():\n        raise ValueError(norm)\n",
        "AMP025",
    ),
    "an integer": (CLIP + "    print(int(norm))\n", "AMP025"),
    "a histogram": (CLIP + "    print(norm.reshape(1).histc(4))\n", "AMP025"),
    "a large norm, assert": (CLIP + "    assert norm < 1e9, norm\n", "AMP025"),
    "a large norm, else": (
        CLIP
        + "    if norm < 1e9:\n        pass\n    else:\n        raise ValueError(norm)\n",
        "AMP025",
    ),
    "a large norm, not small": (
        CLIP + "    if x.isnan().any() or not norm < 1e9:\n        sys.exit(1)\n",
        "AMP025",
    ),
    "a large norm, kept in a variable": (
        CLIP + "    bad = norm > 1e9\n    if bad:\n        sys.exit(1)\n",
        "AMP025",
    ),
    "a large norm, given to a function": (CLIP + "    stop_at(norm)\n", "AMP025"),
    "between two bounds": (CLIP + "    assert 0 <= norm < 1e9\n", "AMP025"),
    "unequal to itself": (
        CLIP + "    if norm != norm:\n        sys.exit(1)\n",
        "AMP025",
    ),
    "large gradients": (
        "    for p in model.parameters():\n        assert p.grad.abs().max() < 1e9\n",
        "AMP025",
    ),
    "a large norm, the end of the loop": (
        CLIP + "    if norm > 1e9:\n        print(norm)\n        break\n",
        "AMP025",
    ),
    "too many of them": (
        CLIP
        + "    if not torch.isfinite(norm):\n        bad = i = 1\n"
        + "        if bad > 3:\n            sys.exit(1)\n",
        "AMP025",
    ),
    # Neither inf nor nan is small.
    "a small norm, the end of the loop": (
        CLIP + "    if norm < 1e-12:\n        break\n",
        "",
    ),
    "a small norm": (
        CLIP + "    if norm < 1e-12 or norm == 0:\n        raise ValueError(norm)\n",
        "",
    ),
    "a norm that is not zero": (CLIP + "    assert norm != 0\n", ""),
    "a large norm is told": (CLIP + "    if norm > 1e9:\n        print(norm)\n", ""),
    "the shape of a gradient": (
        "    for p in model.parameters():\n        g = p.grad.clone()\n"
        "        assert g.shape[0] > 1 and g.size(-1) == p.grad.ndim * 4, g.dtype\n",
        "",
    ),
    "the length of a gradient": (
        "    for p in model.parameters():\n        rows = len(p.grad)\n"
        "        assert rows < 1000, type(p.grad)\n",
        "",
    ),
    "a number out of a gradient's elements": (
        "    for p in model.parameters():\n"
        "        assert sum(p.grad.flatten()[: p.grad.shape[0]]) < 1e9\n",
        "AMP025",
    ),
    "a large loss": ("    if loss.item() > 1e9:\n        sys.exit(1)\n", ""),
    "a large number": ("    if len(data) > 1e9:\n        sys.exit(1)\n", ""),
    "only told": (CLIP + "    if not torch.isfinite(norm):\n        print(norm)\n", ""),
    "the loss": ("    if not math.isfinite(loss.item()):\n        sys.exit(1)\n", ""),
    "the loss, asserted": ("    assert torch.isfinite(loss)\n", ""),
}


@pytest.mark.parametrize("name", ABORTS)
def test_aborts(name: str) -> None:
    lines, expected = ABORTS[name]
    helper = """\
    def size_of(model):
        return sum(p.grad.sum() for p in model.parameters())
    def stop_at(value):
        if value > 1e9:
            raise ValueError(value)
    """
    before, after = LOOP.split("    optimizer.step()")
    source = (
        HEAD + dedent(helper) + MODEL + before + lines + "    optimizer.step()" + after
    )
    assert outcome(source)[0] == expected


def test_a_loop_that_ends_at_what_a_function_finds() -> None:
    source = HEAD + MODEL + """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return norm
for x, y in data:
    norm = train(x.to(device), y.to(device))
    if norm > 100:
        break
"""
    assert outcome(source)[0] == "AMP025"
    assert outcome(source.replace("break", "print(norm)"))[0] == ""


def test_a_loop_that_ends_at_gradients_of_its_own_inputs() -> None:
    """No scaler scales those, and what they say is what they said."""
    attack = """\
def attack(x, y):
    moved = nn.Parameter(x)
    for _ in range(9):
        criterion(model(moved), y).backward()
        if moved.grad.norm() > 100:
            break
"""
    source = HEAD + MODEL + attack + LOOP + "attack(x, y)\n"
    result = migrate_source(source)
    assert "scaler.scale(loss)" in result.output
    assert [one.code for one in result.diagnostics] == ["AMP011"]


ANOMALY = {
    "under another name": "watch = torch.autograd.set_detect_anomaly\nwatch(True)\n",
    "by the engine's own name": "torch._C._set_anomaly_enabled(True)\n",
    "switched off": "watch = torch.autograd.set_detect_anomaly\nwatch(False)\n",
}


@pytest.mark.parametrize("name", ANOMALY)
def test_anomaly_detection(name: str) -> None:
    expected = "" if name == "switched off" else "AMP025"
    assert outcome(HEAD + MODEL + ANOMALY[name] + LOOP)[0] == expected


def test_precision_set_by_fsdp() -> None:
    setup = """\
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    """
    assert outcome(HEAD + MODEL + dedent(setup) + LOOP)[0] == "AMP006"


UNSEEN_HOOKS = {
    "of a node": "    loss.grad_fn.register_prehook(lambda gs: tuple(g.clamp(-1, 1) for g in gs))\n",
    "of all modules": "    nn.modules.module.register_module_full_backward_hook(print)\n",
    "of several tensors": (
        "    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), print)\n"
    ),
    "by its name": "    getattr(x, 'register_hook')(print)\n",
    "by a part of its name": "    getattr(x, 'register_' + 'hook')(print)\n",
    "by a computed name": "    getattr(x, f'{y}_hook')(print)\n",
    "kept under another name": "    register = x.register_hook\n    register(print)\n",
    "handed on": "    list(map(torch.Tensor.register_hook, model.parameters(), [print]))\n",
    "in the table": "    x._backward_hooks = {0: print}\n",
}


@pytest.mark.parametrize("name", UNSEEN_HOOKS)
def test_hooks_by_whatever_way(name: str) -> None:
    source = HEAD + (
        "model.to('cuda')\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    opt.zero_grad()\n    loss = criterion(model(x), y)\n"
        f"{UNSEEN_HOOKS[name]}    loss.backward()\n    opt.step()\n"
    )
    result = migrate_source(source)
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP024"]


@pytest.mark.parametrize(
    ("does", "words"),
    (
        (
            "if torch.isnan(grad).any():\n        raise ValueError",
            "raises on inf or NaN",
        ),
        ("print(grad.norm())", "register_hook() sees"),
    ),
)
def test_a_hook_that_raises_where_a_scaler_skips(does: str, words: str) -> None:
    source = HEAD + (
        f"def check(grad):\n    {does}\n\n"
        "model.to('cuda')\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    opt.zero_grad()\n    loss = criterion(model(x), y)\n"
        "    loss.register_hook(check)\n    loss.backward()\n    opt.step()\n"
    )
    (found,) = migrate_source(source).diagnostics
    assert found.code == "AMP024"
    assert words in found.message


KEEPS = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.grad_out = nn.Linear(8, 3), None
    def keep(self, grad):
        self.grad_out = grad
    def forward(self, x, look=False):
        out = self.body(x)
        if look:
            out.register_hook(self.keep)
        return out
    def seen(self):
        return self.grad_out
model = Net().to("cuda")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(data):
    opt.zero_grad()
    loss = criterion(model(x, number > 1), y)
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("look", ("", "    print(model.seen())\n"))
def test_a_hook_that_keeps_what_nobody_reads(look: str) -> None:
    source = HEAD + KEEPS + look
    result = migrate_source(source)
    assert [found.code for found in result.diagnostics] == ["AMP024"] * bool(look)
    assert (result.output == source) == bool(look)


QUANTILE = "out.detach().quantile(0.5)"
ATTACHED = {
    "a lambda": f"model.register_forward_hook(lambda m, i, out: {QUANTILE})\n",
    "a function": "model.register_forward_hook(middle)\n",
    "a pre-hook": "model.register_forward_pre_hook(middle)\n",
    "a function with arguments": (
        "import functools\n"
        "model.register_forward_hook(hook=functools.partial(middle))\n"
    ),
    "what a function makes": "model.register_forward_hook(made())\n",
    "an object": "model.register_forward_hook(Middle())\n",
    "a method": "middles = Middle()\nmodel.register_forward_hook(middles.take)\n",
    "a hook on all modules": "nn.modules.module.register_module_forward_hook(middle)\n",
    "another forward": "model.forward = middle\n",
    "another forward, by name": "setattr(model, 'forward', middle)\n",
    "another forward of a class": "nn.Linear.forward = middle\n",
}


@pytest.mark.parametrize("name", ATTACHED)
def test_what_is_attached_to_modules_runs_under_autocast(name: str) -> None:
    source = (
        HEAD
        + MODEL
        + (
            f"def middle(m, i, out=None):\n    print({QUANTILE})\n"
            f"def made():\n    def hook(m, i, out):\n        print({QUANTILE})\n    return hook\n"
            f"class Middle:\n    def __call__(self, m, i, out):\n        print({QUANTILE})\n"
            f"    def take(self, m, i, out):\n        print({QUANTILE})\n"
            "{}" + LOOP
        )
    )
    result = migrate_source(source.format(ATTACHED[name]))
    codes = [found.code for found in result.diagnostics]
    assert codes == ["AMP020"] or "full_out.detach().quantile" in result.output
    assert outcome(source.format(""))[0] == ""


def test_numpy_in_a_hook_under_bfloat16() -> None:
    hook = "def keep(m, i, out):\n    seen.append(out.detach().cpu(){}.numpy())\n"
    source = HEAD + MODEL + "seen = []\n" + hook
    source += "model.register_forward_hook(keep)\n" + LOOP
    for text, dtype, changes in (
        (".float()", "bfloat16", True),
        ("", "bfloat16", False),
        ("", "float16", True),
    ):
        given = source.format(text)
        result = migrate_source(given, options=Options(dtype=dtype))
        assert (result.output != given) == changes


COMPLEX = {
    "a parameter": "nn.Parameter(torch.randn(3, dtype=torch.cfloat))",
    "of a variable": "nn.Parameter(0.1 * made)",
    "a tensor that is trained": "torch.randn(3, dtype=torch.cfloat, requires_grad=True)",
    "a layer": "nn.Linear(3, 3, dtype=torch.complex64)",
}
REAL = {
    "its parts": "nn.Parameter(torch.view_as_real(made).to(device))",
    "a buffer": "made.to(device)",
}


@pytest.mark.parametrize("name", {**COMPLEX, **REAL})
def test_complex_parameters(name: str) -> None:
    """A scaler cannot unscale their gradients; bfloat16 has none."""
    setup = "made = torch.randn(3, dtype=torch.cfloat)\n"
    setup += f"turn = {(COMPLEX | REAL)[name]}\n"
    source = HEAD + MODEL + setup + LOOP
    assert outcome(source) == (("AMP006", 11) if name in COMPLEX else ("", 0))
    result = migrate_source(source, options=Options(dtype="bfloat16"))
    assert result.output != source
