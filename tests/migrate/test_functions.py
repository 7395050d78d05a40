"""Custom autograd Functions: which are decorated, how, and which stand in the way."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from programs import HEAD, left_alone

from amp_migrate.api import Options, migrate_paths, migrate_source

FUNCTION = """\
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w=None):
        ctx.save_for_backward(x, w)
{forward}
        return x * 2

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = gw = None
{backward}
"""
LOOP = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(Own.apply(model(x), model(x).sum()), y)
    loss.backward()
    opt.step()
"""
PLAIN = '@torch.amp.custom_fwd(device_type="cuda")'
CAST = '@torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)'


def function(forward: str = "pass", backward: str = "return g * 2, None") -> str:
    eight = " " * 8
    return FUNCTION.format(
        forward=indent(dedent(forward), eight), backward=indent(dedent(backward), eight)
    )


def decorators(source: str, options: Options | None = None) -> list[str]:
    result = migrate_source(source, options=options or Options())
    assert not result.diagnostics, result.diagnostics
    assert result.changed
    return [line.strip() for line in result.output.splitlines() if ".custom_" in line]


LINEAR = {
    "mask": "g = g.clone()\ng[x > 1] = 0\nreturn g, None",
    "straight through": "return g * (x.abs() <= 1).to(g.dtype), None",
    "reversed": "return -ctx.alpha * g, None",
    "product": """\
        if ctx.needs_input_grad[0]:
            gx = g.mm(w)
        if ctx.needs_input_grad[1]:
            gw = g.t().mm(x)
        return gx, gw""",
    "convolution": """\
        gx = torch.nn.grad.conv2d_input(x.shape, w, g)
        gw = torch.nn.grad.conv2d_weight(x, w.shape, g, stride=2, padding=1)
        return gx, gw""",
    "an if": "if x.dim() > 2:\n    g = g.sum(0)\nelse:\n    g = g / 3\nreturn g, None",
    "a loop": "total = 0\nfor i in range(3):\n    total = total + g[i] * x\nreturn total, None",
    "where": "return torch.where(x > 0, g, g * 0.1), None",
    "masked_fill": "return g.masked_fill(x < 0, 0.0), None",
    "in place": "gx = torch.zeros_like(x)\ngx.index_add_(0, w, g)\nreturn gx, None",
    "normalised twice": "return g / g.norm() * g.norm(), None",
    "rectified": "return (g > 0) * F.relu(g) * (x > 0), None",
    "clamped at zero": "return g.clamp(min=0), None",
    "softmax": "return x * (g - (g * x).sum(1, keepdim=True)), None",
    "list": "parts = []\nfor w in x:\n    parts.append(g * w)\nreturn torch.stack(parts), None",
    "own helper": "return scaled(g, x), None",
    "unused comparison": "same = g.size(0) == len(x)\nreturn (g if same else g * 2), None",
    "shown, but not its values": "print('back', g.shape, f'{g.dim()} {x.norm()}')\nreturn g, None",
    "looked up by its size": "return (g if g.dim() in (2, 3) else g * 2), None",
    "constant gradient": "return torch.zeros_like(g), None",
}  # fmt: skip
OWN = """\
def scaled(v, by):
    return v * by.abs()
def squashed(v):
    return v.tanh()
def clip_all():
    for p in model.parameters():
        p.grad.clamp_(-1, 1)
"""


@pytest.mark.parametrize("name", LINEAR)
def test_linear_backward(name: str) -> None:
    source = HEAD + OWN + function(backward=LINEAR[name]) + LOOP
    # What stores into a tensor wants equal dtypes.
    assert decorators(source)[0] == (CAST if name == "in place" else PLAIN)


NOT_LINEAR = {
    "clamp": "return g.clamp(-1, 1), None",
    "clamp in place": "g = g.clone()\ng.clamp_(-1, 1)\nreturn g, None",
    "clamp by a keyword": "return torch.clamp(g, max=1.0), None",
    "sign": "return g.sign() * x, None",
    "tanh": "return torch.tanh(g), None",
    "threshold": "return g * (g.abs() > 1e-3), None",
    "normalised": "return g / g.norm(), None",
    "normalised with eps": "return g / (g.norm() + 1e-8), None",
    "squared": "return g * g, None",
    "shifted": "return g + 1, None",
    "noise": "return g + torch.randn_like(g), None",
    "rounded": "return g.to(torch.int8).float(), None",
    "floor": "return torch.div(g, 2, rounding_mode='floor'), None",
    "own helper": "return squashed(g), None",
    "a constant": "return torch.ones_like(g), None",
    "filled with a constant": "gx = torch.empty_like(x)\ngx.fill_(1.0)\nreturn gx, None",
    "bias": "return F.linear(g, w, x), None",
    "an if": "if g.abs().max() > 1:\n    g = g / 2\nreturn g, None",
    "max with a bound": "return torch.max(g, x), None",
    "unknown method": "return g.quantize(), None",
    "unknown function": "return quantize_grad(g), None",
    "an item": "return x * g.sum().item(), None",
    "pow": "return g ** 3, None",
    "printed": "print('gradient', g)\nreturn g, None",
    "printed by format": "print('{}'.format(g.norm()))\nreturn g, None",
    "in an f-string": "seen = f'{g.norm():.3f}'\nlog(seen)\nreturn g, None",
    "as a string": "log(str(g.norm()))\nreturn g, None",
    "looked up": "return (g * 0 if g.norm() in [0.5, w] else g), None",
    "run from text": "exec('g.clamp_(-1, 1)')\nreturn g, None",
    "others' gradients": "if w.grad is not None:\n    w.grad.clamp_(-1, 1)\nreturn g, None",
    "others' gradients, in a helper": "clip_all()\nreturn g, None",
    "try": "try:\n    g = g * 2\nexcept ValueError:\n    pass\nreturn g, None",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_backward_that_is_not_linear(name: str) -> None:
    body = OWN + function(backward=NOT_LINEAR[name]) + LOOP
    assert left_alone(body) == "AMP022"
    # Without a scaler, gradients are what they were.
    assert decorators(HEAD + body, Options(dtype="bfloat16"))


FP32 = {
    "NumPy": "z = np.exp(x.numpy())",
    "an extension": "z = ext.forward(x)",
    "a compiled extension": "z = kernels.forward(x)",
    "an operator of one's own": "z = torch.ops.mine.forward(x)",
    "Triton": "kernel[(1,)](x)",
    "a function of the file that leaves torch": "z = through_numpy(x)",
    "inverse": "z = torch.inverse(x)",
    "mask beyond": "z = x.masked_fill(x > 0, -1e9)",
    "out": "torch.mul(x, 2, out=w)",
    "its bits": "z = (x.view(torch.int32) & -65536).view(torch.float32)",
    "its bits, by a name": "bits = torch.int32\nz = torch.Tensor.view(x, dtype=bits)",
    "a check of the dtype": "assert x.dtype == torch.float32",
    "a check of a kept dtype": "ctx.kind = x.dtype\nif ctx.kind not in (torch.float32,): raise TypeError",
    "a check of the type": "if not isinstance(x, torch.FloatTensor): raise TypeError",
    "a check of the type's name": "assert x.type() == 'torch.FloatTensor'",
    "a check of values": "assert torch.allclose(x, x + 1e-6)",
    "a table of dtypes": "z = {torch.float32: 4}[x.dtype]",
    "what a dtype holds": "z = x.clamp(min=torch.finfo(x.dtype).eps)",
    "a dtype handed on": "z = sized(x.dtype)",
}
HALF = {
    "a dtype taken along": "z = torch.zeros(3, dtype=x.dtype, device=x.device)\nz = z.to(x.dtype)",
    "a dtype for later": "ctx.kind = x.dtype\nz = x.double().to(ctx.kind)",
    "checks of shapes": "assert x.dim() == 2 and isinstance(x, torch.Tensor)\nz = x.view(x.size(0), -1)",
}
LEAVES = """\
import numpy as np
import ext
from torch.utils.cpp_extension import load
kernels = load("kernels", ["kernels.cu"])
from kernel_library import kernel
def sized(kind):
    return 4 if kind == torch.float32 else 2
def through_numpy(v):
    return np.abs(v)
"""


@pytest.mark.parametrize("name", FP32)
def test_what_is_not_known_runs_in_fp32(name: str) -> None:
    assert decorators(HEAD + LEAVES + function(forward=FP32[name]) + LOOP) == [
        CAST,
        '@torch.amp.custom_bwd(device_type="cuda")',
    ]


@pytest.mark.parametrize("name", HALF)
def test_a_dtype_that_decides_nothing(name: str) -> None:
    assert decorators(HEAD + function(forward=HALF[name]) + LOOP)[0] == PLAIN


def test_a_kernel_for_the_gradient() -> None:
    backward = "gx = torch.zeros_like(x)\next.own_backward(g, x, gx)\nreturn gx, None"
    source = HEAD + LEAVES + function(backward=backward) + LOOP
    assert decorators(source)[0] == CAST
    clamped = backward.replace("gx, None", "gx.clamp(-1, 1), None")
    assert left_alone(LEAVES + function(backward=clamped) + LOOP) == "AMP022"


DERIVED = """\
class OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g, x, scale):
        ctx.save_for_backward(x)
        dims = [0]
        if g.ndim > 2:
            dims += list(range(2, g.ndim))
        gx = {made}
        return gx, gx.sum(dims)

    @staticmethod
    def backward(ctx, gg, gs):
        (x,) = ctx.saved_tensors
        return gg * 2, None, None
"""


@pytest.mark.parametrize(
    ("made", "name", "is_linear"),
    [
        ("g * scale", "OwnBackward", True),
        ("g.clamp(-scale, scale)", "OwnBackward", False),
        ("ext.fused_act(g, x)", "OwnBackward", True),
        ("ext.fused_act(g, x)", "OwnSlope", False),
    ],
)
def test_a_backward_that_is_a_function_of_its_own(
    made: str, name: str, is_linear: bool
) -> None:
    """So that it can be differentiated again: its ``forward()`` is what has to be linear."""
    backward = f"gx, _ = {name}.apply(g, x, 2.0)\nreturn gx, None"
    derived = DERIVED.format(made=made).replace("OwnBackward", name)
    source = LEAVES + derived + function(backward=backward) + LOOP
    if is_linear:
        assert len(decorators(HEAD + source)) == 4
    else:
        assert left_alone(source) == "AMP022"


BUILT = """\
import os
if os.getenv("JIT"):
    from torch.utils.cpp_extension import load
    built = load("built", ["built.cpp"])
else:
    from somewhere import built
"""
LOOKS_BUILT = {
    "an object of one's own": ("built = load(", "built = choose("),
    "a part of what is loaded": ('["built.cpp"])', '["built.cpp"])[0]'),
    "bound once more": ("import built\n", "import built\nbuilt = getattr(built, 'python')\n"),
    "filled with what the gradient does not scale": ("", ""),
}  # fmt: skip


def test_a_kernel_of_an_extension_that_is_built_or_imported() -> None:
    backward = "gx = torch.zeros_like(x)\nbuilt.own_backward(g, x, gx)\nreturn gx, None"
    source = BUILT + function(backward=backward) + LOOP
    assert decorators(HEAD + source)[0] == CAST


@pytest.mark.parametrize("name", LOOKS_BUILT)
def test_what_looks_like_an_extension(name: str) -> None:
    backward = "gx = torch.zeros_like(x)\nbuilt.own_backward(g, x, gx)\nreturn gx, None"
    if name.startswith("filled"):
        backward = "gx = torch.zeros_like(x)\nbuilt.fill(x, gx)\nreturn g + gx, None"
    old, new = LOOKS_BUILT[name]
    source = BUILT.replace(old, new) + function(backward=backward) + LOOP
    assert left_alone(source) == "AMP022"


def test_a_module_of_the_project_is_no_extension(tmp_path: Path) -> None:
    clamps = "own_backward = lambda g, x, gx: gx.copy_(g.clamp(-1, 1))\n"
    (tmp_path / "built.py").write_text(clamps)
    backward = "gx = torch.zeros_like(x)\nbuilt.own_backward(g, x, gx)\nreturn gx, None"
    source = BUILT.replace("from somewhere ", "") + function(backward=backward)
    (tmp_path / "train.py").write_text(HEAD + source + LOOP)
    assert not migrate_paths([str(tmp_path)]).changed


def test_spelling_by_torch_version() -> None:
    source = HEAD + LEAVES + function(forward=FP32["NumPy"]) + LOOP
    assert decorators(source, Options(torch_version=(2, 3))) == [
        "@torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)",
        "@torch.cuda.amp.custom_bwd",
    ]
    source = HEAD + function() + LOOP
    assert decorators(source, Options(torch_version=(2, 3))) == [
        "@torch.cuda.amp.custom_fwd",
        "@torch.cuda.amp.custom_bwd",
    ]


def test_innermost_and_laid_out() -> None:
    source = function().replace(
        "    def backward",
        "    # Once only.\n    @once_differentiable  # so\n    def backward",
    )
    source = "from torch.autograd.function import once_differentiable\n" + source
    output = migrate_source(HEAD + source + LOOP).output
    assert (
        "    @staticmethod\n"
        "    # Once only.\n"
        "    @once_differentiable  # so\n"
        '    @torch.amp.custom_bwd(device_type="cuda")\n'
        "    def backward(ctx, g):\n"
    ) in output


USES = {
    "a variable": """\
        own = Own.apply
        class Net(nn.Module):
            def forward(self, x):
                return own(x)
        model = nn.Sequential(model, Net())
        """,
    "an attribute": """\
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.own = Own.apply
            def forward(self, x):
                return self.own(x)
        model = nn.Sequential(model, Net())
        """,
    "a table": 'own = {"own": Own}\ndef use(x):\n    return own["own"].apply(x)\n',
    "a factory": "def choose(name):\n    return Own.apply\nown = choose('own')\n",
    "a helper that is handed on": """\
        def use(x):
            return Own.apply(x)
        model = nn.Sequential(model, Lambda(use))
        """,
    "its name": "own = globals()['Own'].apply\n",
}  # fmt: skip
OPTION = """\
class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        if kind == "own":
            self.own = Own()
    def forward(self, x):
        return self.own(x) if self.kind == "own" else x
model = nn.Sequential(model, Net("plain"))
"""
NO_USE = LOOP.replace("Own.apply(model(x), model(x).sum())", "model(x)")


def test_made_under_an_option_that_is_not_taken() -> None:
    assert decorators(HEAD + function() + OPTION + NO_USE) == []


@pytest.mark.parametrize("name", USES)
def test_used_in_a_roundabout_way(name: str) -> None:
    assert len(decorators(HEAD + function() + dedent(USES[name]) + NO_USE)) == 2


UNUSED = {
    "nowhere": "",
    "behind the step": "    with torch.no_grad():\n        print(Own.apply(x))\n",
    "in a function that is called behind the step": "    report(x)\n",
}


@pytest.mark.parametrize("name", UNUSED)
def test_left_alone_where_it_is_not_under_autocast(name: str) -> None:
    helper = "def report(x):\n    print(Own.apply(x))\n"
    clamps = function(backward=NOT_LINEAR["clamp"])
    source = HEAD + clamps + helper + NO_USE + UNUSED[name]
    assert decorators(source) == []


def test_functions_that_use_one_another() -> None:
    inner = function().replace("Own", "Inner")
    outer = function(forward="x = Inner.apply(x)")
    assert len(decorators(HEAD + inner + outer + LOOP)) == 4


def test_inherited_methods() -> None:
    child = """\
    class Child(Own):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.abs()
    """
    found = decorators(HEAD + function() + dedent(child) + LOOP)
    assert len(found) == 3


OBSTACLES = {
    "setup_context": """\
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(x, w):
                return x * 2
            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)
            @staticmethod
            def backward(ctx, g):
                return g * 2, None
        """,
    "only partly decorated": function().replace(
        "    def forward", "    @torch.amp.custom_fwd(device_type='cuda')\n    def forward"
    ),
    "another decorator": function().replace("    def forward", "    @traced\n    def forward"),
    "runs a module": function(forward="x = w(x)"),
    "runs what the context keeps": function(backward="return ctx.run(g), None"),
    "goes backward": function(
        backward="with torch.enable_grad():\n    z = x.exp()\nreturn g * z, None"
    ),
    "called by itself": function() + """
class Other(Own):
    @staticmethod
    def backward(ctx, g):
        return Own.backward(ctx, g)
""",
    "a mixin": """\
        class Mixin:
            @staticmethod
            def forward(ctx, x, w):
                return x
        class Own(Mixin, torch.autograd.Function):
            @staticmethod
            def backward(ctx, g):
                return g, None
        """,
    "in place, in fp32": "import numpy as np\n" + function(forward="x.abs_()\nz = np.exp(x)"),
    "a lambda for backward": """\
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                return x.sign()
            backward = staticmethod(lambda ctx, g: (g.clamp(-1, 1), None))
        """,
    "vjp": """\
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                return x.sign()
            @staticmethod
            def vjp(ctx, g):
                return g.clamp(-1, 1), None
        """,
    "no forward": """\
        class Own(torch.autograd.Function):
            forward = staticmethod(lambda ctx, x, w: x)
            @staticmethod
            def backward(ctx, g):
                return g, None
        """,
}  # fmt: skip


@pytest.mark.parametrize("name", OBSTACLES)
def test_obstacles(name: str) -> None:
    assert left_alone(dedent(OBSTACLES[name]) + LOOP) == "AMP022"


def test_decorated_already() -> None:
    source = function().replace(
        "    def forward", f"    {CAST}\n    def forward"
    ).replace(
        "    def backward", "    @torch.amp.custom_bwd(device_type='cuda')\n    def backward"
    )  # fmt: skip
    assert len(decorators(HEAD + source + LOOP)) == 2


def test_in_another_file(tmp_path: Path) -> None:
    text = "from torch.autograd import Function\n\n\n" + function().replace(
        "torch.autograd.Function", "Function"
    )
    (tmp_path / "ops.py").write_text(text)
    (tmp_path / "train.py").write_text(
        HEAD + "from ops import Own as Mine\n" + LOOP.replace("Own", "Mine")
    )
    report = migrate_paths([str(tmp_path)])
    outputs = {Path(m.result.path).name: m.result.output for m in report.changed}
    assert outputs["ops.py"].startswith(
        "import torch\nfrom torch.autograd import Function\n"
    )
    assert outputs["ops.py"].count("@torch.amp.custom_") == 2
    (tmp_path / "ops.py").write_text(text.replace("g * 2", "g.sign()"))
    report = migrate_paths([str(tmp_path)])
    assert not report.changed
    (found,) = (d for result in report.results for d in result.diagnostics)
    assert found.code == "AMP022"
    assert found.blocker is not None
    assert found.blocker.path.endswith("ops.py")


def test_a_backward_that_is_replaced_or_only_called_one() -> None:
    function = (
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return {}\n"
    )
    loop = (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    opt.zero_grad()\n    loss = criterion(Twice.apply(model(x)), y)\n"
        "    loss.backward()\n    opt.step()\n"
    )
    replaced = (
        'setattr(Twice, "backward", staticmethod(lambda ctx, g: g.clamp(-1, 1)))\n'
    )
    called = "my_backward = lambda g: g.clamp(-1, 1)\n"
    for source in (
        HEAD + function.format("g * 2") + replaced + loop,
        HEAD + called + function.format("my_backward(g)") + loop,
    ):
        result = migrate_source(source)
        assert result.output == source
        assert [found.code for found in result.diagnostics] == ["AMP022"]


FILLED_UNSEEN = {
    "by a helper": "o = torch.zeros_like(g)\n        filled(o)",
    "under another name": "o = torch.zeros_like(g)\n        p = o\n        p += 0.01",
    "through a view": "o = torch.zeros_like(g)\n        v = o.view(-1)\n        v.add_(0.01)",
    "through a part": "o = torch.zeros_like(g)\n        o[0].fill_(0.01)",
    "row by row": "o = torch.zeros_like(g)\n        for r in o:\n            r += 0.01",
    "as the result of another": (
        "o = torch.zeros_like(g)\n        torch.add(o, 0.01, out=o)"
    ),
}


@pytest.mark.parametrize("name", FILLED_UNSEEN)
def test_zeros_that_are_filled_with_a_constant(name: str) -> None:
    source = HEAD + (
        "def filled(t):\n    t.fill_(0.01)\n\n\n"
        "class Shifted(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n"
        f"        {FILLED_UNSEEN[name]}\n        return g * 2 + o\n\n\n"
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    opt.zero_grad()\n"
        "    loss = criterion(Shifted.apply(model(x)), y)\n"
        "    loss.backward()\n    opt.step()\n"
    )
    result = migrate_source(source)
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP022"]


APART = f"""\
{HEAD}
class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-0.1, 0.1)


clamped = Clamp.apply


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        return clamped(self.layer(x))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        return self.layer(x)


def first():
    one = Clamped().to(device)
    opt = torch.optim.SGD(one.parameters(), lr=0.1)
    for x, y in data:
        opt.zero_grad()
        loss = criterion(one(x), y)
        loss.backward()
        opt.step()


def second():
    two = Plain().to(device)
    opt = torch.optim.SGD(two.parameters(), lr=0.1)
    for x, y in data:
        opt.zero_grad()
        loss = criterion(two(x), y)
        loss.backward()
        opt.step()


if __name__ == "__main__":
    first()
    second()
"""


@pytest.mark.parametrize(
    ("more", "codes"),
    [("", ["AMP022", None]), ("print(list(map(clamped, [data[0][0]])))\n", [])],
)
def test_a_function_that_another_loop_uses_by_a_name_of_its_own(
    more: str, codes: list[str | None]
) -> None:
    result = migrate_source(APART + more, path="train.py")
    found = [loop.diagnostic and loop.diagnostic.code for loop in result.loops]
    assert found == (codes or ["AMP022", "AMP022"])
