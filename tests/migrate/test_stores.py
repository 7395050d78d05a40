"""What is stored by a mask or by places is of its tensor's dtype, however that was made."""

from __future__ import annotations

import pytest
from half_support import check_runs

from amp_migrate.api import migrate_source

PROGRAM = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(6, 8), torch.randn(6, 8)) for _ in range(3)]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(1))
        self.parts.append(nn.Linear(8, 8))
    def part(self, x):
        return (self.fc(x) - x).abs()
    def forward(self, x):
        BODY
        return out
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
CAST = {
    "what is cast to a device, and no dtype": (
        "out = torch.zeros(6, 8, device=x.device)",
        "out[x > 0] = self.fc(x)[x > 0].to(out.device)",
    ),
    "a clone": ("out = x.clone()", "out[x > 0] = self.fc(x)[x > 0]"),
    "a sum": ("out = x * 1.0", "out[x > 0] = self.fc(x)[x > 0]"),
    "a choice": ("out = torch.where(x > 0, x, x)", "out[x > 0] = self.fc(x)[x > 0]"),
    "a stack": ("out = torch.stack([x, x]).sum(0)", "out[torch.arange(3)] = self.fc(x)[:3]"),
    "a mask that has a name": ("out, mask = x + 1, x > 0", "out[mask] = self.fc(x)[mask]"),
    "what a function gives": (
        "out = x.clone()",
        "rows = torch.arange(6)",
        "found = self.part(x)",
        "out[rows] = found",
    ),
    "what is cast to another's dtype": (
        "out, h = torch.zeros(6, 8, device=x.device), self.fc(x)",
        "out[torch.arange(6)] = x.tanh().to(h.dtype)",
        "out = out * h",
    ),
    "what may be a number": (
        "out = torch.zeros(6, 8, device=x.device)",
        "value = [0.0, self.fc(x)][x.dim() - 1]",
        "out[torch.arange(6)] = value",
    ),
    "what is a number": (
        "out = torch.zeros(6, 8, device=x.device)",
        "value = [0.5, self.fc(x)][x.dim() - 2]",
        "out[torch.arange(6)] = value",
        "out = self.fc(out)",
    ),
    "a weight that may be a number": (
        "out, weight = self.fc(x), [0.5, self.fc(x).sigmoid()][x.dim() - 1]",
        "out = out.lerp(x.tanh(), weight)",
    ),
    "of layers in a list": (
        "out, mask = torch.zeros(6, 8, device=x.device), x[:, 0] > 0",
        "for i, part in enumerate(self.parts): out[mask == i] = part(x[mask == i])",
        "for part, i in zip(self.parts, (0, 1)): out[mask == i] += part(x[mask == i])",
        "for i in range(2): out[mask == i] = out[mask == i] + 1.0",
        "for i in range(2): out[mask == i] = self.parts[i](x[mask == i])",
    ),
    "by places of a mask": (
        "out, rows = torch.zeros(6, 8, device=x.device), torch.arange(6, device=x.device)",
        "for h in [self.fc(x)]: out[x[:, 0] > 0] = h[rows[x[:, 0] > 0]]",
    ),
    "a method": (
        "out = torch.zeros(6, 8, device=x.device)",
        "out.index_put_((torch.arange(6),), self.fc(x), accumulate=True)",
    ),
    "a tensor that becomes another": (
        "out = torch.zeros(6, 8, device=x.device)",
        "out.set_(self.fc(x).detach())",
        "out = out * self.fc(x)",
    ),
}  # fmt: skip


def _program(lines: tuple[str, ...]) -> str:
    return PROGRAM.replace("BODY", "\n        ".join(lines))


@pytest.mark.parametrize(
    "store",
    [
        "out[torch.arange(6)] = value if x.dim() == 2 else x",
        "out[torch.arange(6)] = value[0]",
        "out[torch.arange(6)] = [value, x][len(value) - 6]",
        "out[torch.arange(6)] = value; cast_value = 1",
    ],
)
def test_a_perhaps_that_stays(store: str) -> None:
    source = _program((*CAST["what may be a number"][:2], store))
    assert migrate_source(source, path="train.py").output == source


IN_COLLECTIONS = {
    "an element of a dict": (
        'kept = {"out": torch.zeros(6, 8, device=x.device)}',
        "h = self.fc(x)",
        'kept["out"][x > 0] = h[x > 0]',
        'out = kept["out"]',
    ),
    "an element of a list in a dict": (
        'kept = {"outs": [None, torch.zeros(6, 8, device=x.device)]}',
        "rows = torch.arange(3)",
        "h = self.fc(x)",
        'kept["outs"][1][rows] = h[:3]',
        'out = kept["outs"][1]',
    ),
}


@pytest.mark.parametrize("name", IN_COLLECTIONS)
def test_what_is_in_a_collection_keeps_its_dtype(name: str) -> None:
    source = _program(IN_COLLECTIONS[name])
    result = migrate_source(source, path="train.py")
    assert ".dtype)\n" in result.output
    check_runs(source, result.output)


_ROWS = "kept, h = torch.zeros(2, 6, 8, device=x.device), self.fc(x)"
_LIST = "kept, h = [x * 1.0, x * 2.0], self.fc(x)"
OF_ANOTHER = {
    "a row": (_ROWS, "kept[0][x > 0] = h[x > 0]", "out = kept[0]"),
    "two rows": (
        _ROWS,
        "kept[0][x > 0] = h[x > 0]",
        "kept[1][~(x > 0)] = h[~(x > 0)]",
        "out = kept.sum(0)",
    ),
    "a row by a mask of a method": (
        _ROWS,
        "mask = x.gt(0)",
        "kept[0][mask] = h[mask]",
        "out = kept[0]",
    ),
    "a row by a mask of a function": (
        _ROWS,
        "mask = self.positive(x)",
        "kept[0][mask] = h[mask]",
        "out = kept[0]",
    ),
    "a row by a mask that is not followed": (
        _ROWS,
        'mask = {"positive": self.positive}["positive"](x)',
        "kept[0][mask] = h[mask]",
        "out = kept[0]",
    ),
    "a row by each of some masks": (
        _ROWS,
        "for mask in (x > 0, x < 0): kept[0][mask] = h[mask]",
        "out = kept[0]",
    ),
    "by each of some masks": (
        "out, h = x.clone(), self.fc(x)",
        "for mask in (x > 0, x < 0): out[mask] = h[mask]",
    ),
    "a row by places": (
        _ROWS,
        "rows = (x[:, 0] > 0).nonzero().squeeze(1)",
        "kept[0][rows] = h[rows]",
        "out = kept[0]",
    ),
    "a half row": (
        "kept = torch.stack([self.fc(x), self.fc(x)])",
        "kept[0][x > 0] = x[x > 0]",
        "out = kept[0]",
    ),
    "a view": (_ROWS, "kept.view(12, 8)[torch.arange(6)] = h", "out = kept[0]"),
    "a transposed view": (_ROWS, "kept[0].t()[(x > 0).t()] = h[x > 0]", "out = kept[0]"),
    "columns": (_ROWS, "kept[:, 0][torch.arange(2)] = h[:2]", "out = kept[0]"),
    "what a method gives": (_ROWS, "self.kept = kept", "self.get()[0][x > 0] = h[x > 0]", "out = kept[0]"),
    "each of a list": (_LIST, "for one in kept: one[x > 0] = h[x > 0]", "out = kept[0]"),
    "one of a list": (_LIST, "one = kept[0]", "one[x > 0] = h[x > 0]", "out = one"),
    "one taken out of a list": (_LIST, "one = kept.pop()", "one[x > 0] = h[x > 0]", "out = one"),
    "the rest of a list": (_LIST, "_, *rest = kept", "rest[0][x > 0] = h[x > 0]", "out = rest[0]"),
    "the next of an iterator": (_LIST, "one = next(iter(kept))", "one[x > 0] = h[x > 0]", "out = one"),
    "each of a dict": (
        'kept, h = {"a": x * 1.0}, self.fc(x)',
        "for _, one in kept.items(): one[x > 0] = h[x > 0]",
        'out = kept["a"]',
    ),
    "what an embedding gives": (
        "ids = torch.arange(6, device=x.device)",
        "out = self.rows(ids)",
        "out[ids == 0] = self.fc(x)[:1]",
    ),
    "what a norm gives": (
        "out, h = self.norm(x), self.fc(x)",
        "out[x > 0] = h[x > 0]",
    ),
    "from a field that was replaced": (
        "out, pair = x.clone(), dataclasses.replace(Pair(x, x), one=self.fc(x))",
        "out[x > 0] = pair.one[x > 0]",
    ),
    "from a dict of another": (
        'out, pair = x.clone(), dict({"one": self.fc(x)}, other=x)',
        'out[x > 0] = pair["one"][x > 0]',
    ),
    "each of a list of both": (
        "h = self.fc(x)",
        "kept = [x * 1.0, h * 1.0]",
        "for one in kept: one[x > 0] = h[x > 0]",
        "out = kept[0] * kept[1]",
    ),
}  # fmt: skip
NOT_FOLLOWED = {
    "by a key": (
        'kept, h = {"a": x * 1.0}, self.fc(x)',
        'kept.get("a")[x > 0] = h[x > 0]',
        'out = kept["a"]',
    ),
    "by a name": (
        "self.kept, h = x * 1.0, self.fc(x)",
        'getattr(self, "kept")[x > 0] = h[x > 0]',
        "out = self.kept",
    ),
    "as it gets its name": (
        "h = self.fc(x)",
        "(out := x * 1.0)[x > 0] = h[x > 0]",
    ),
    "an array": (
        'kept, h = {"a": np.zeros((1, 6, 8))}, self.fc(x)',
        'kept.get("a")[0][(x > 0).cpu()] = h[x > 0].detach().cpu()',
        "out = h",
    ),
    "an object of one's own": (
        "h, boxes = self.fc(x), [Box()]",
        "boxes[0][[0, 1]] = h",
        "out = boxes[0].kept",
    ),
}  # fmt: skip


def _with_helpers(lines: tuple[str, ...]) -> str:
    helpers = (
        "    def positive(self, x):\n"
        "        return x > 0\n"
        "    def get(self):\n"
        "        return self.kept\n"
    )
    pair = "@dataclasses.dataclass\nclass Pair:\n    one: object\n    other: object\n"
    box = "class Box:\n    def __setitem__(self, rows, value):\n        self.kept = value\n"
    layers = "        self.rows, self.norm = nn.Embedding(6, 8), nn.BatchNorm1d(8)\n"
    source = _program(lines).replace("    def part", f"{helpers}    def part")
    source = source.replace("        self.parts = ", f"{layers}        self.parts = ")
    if any("Box" in line for line in lines):
        source = source.replace("class Net", f"{box}class Net")
    if any("Pair" in line for line in lines):
        source = source.replace("class Net", f"{pair}class Net")
    return f"import dataclasses\nimport numpy as np\n{source}"


@pytest.mark.parametrize("name", OF_ANOTHER)
def test_what_is_stored_into_a_part_of_another_is_cast(name: str) -> None:
    source = _with_helpers(OF_ANOTHER[name])
    result = migrate_source(source, path="train.py")
    assert ".dtype)\n" in result.output or ".float()\n" in result.output
    check_runs(source, result.output)


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_what_is_stored_into_what_is_not_followed_is_left(name: str) -> None:
    source = _with_helpers(NOT_FOLLOWED[name])
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP020"]


@pytest.mark.parametrize("name", CAST)
def test_it_is_cast(name: str) -> None:
    source = _program(CAST[name])
    result = migrate_source(source, path="train.py")
    assert ".to(out.dtype)" in result.output
    check_runs(source, result.output)


@pytest.mark.parametrize(
    "lines",
    [
        ("kept = {}", "kept[x] = self.fc(x)", "out = kept[x]"),
        ("kept = [x, x]", "kept[int(x.shape[0] < 0)] = self.fc(x)", "out = kept[0]"),
        ("out = x.clone()", "out[:, 2:4] = self.fc(x)[:, 2:4]"),
        (
            "out = torch.zeros(2, 6, 8, device=x.device)",
            "for i in range(2): out[i][i] = self.fc(x)[i]",
            "out = out.sum(0)",
        ),
        (
            "kept = torch.zeros(2, 6, 8, dtype=torch.bool, device=x.device)",
            "kept[0][x > 0] = self.fc(x)[x > 0] > 0",
            "out = self.fc(x) * kept[0]",
        ),
        (
            "self.maps, rows = [None] * 6, x.sum(1).argsort().tolist()",
            "self.maps[rows[0]] = [self.fc(x), x]",
            "out = sum(self.maps[rows[0]])",
        ),
        (
            "self.register_buffer('next', torch.zeros(3, dtype=torch.long))",
            "row = self.fc(x)[0, :3].argmax()",
            "self.next[row] = x.shape[0] % self.fc.out_features",
            "out = self.fc(x) * self.next.sum()",
        ),
    ],
)
def test_what_takes_any_dtype_is_given_it(lines: tuple[str, ...]) -> None:
    source = _program(lines)
    result = migrate_source(source, path="train.py")
    assert result.changed and "dtype)" not in result.output
    check_runs(source, result.output)


@pytest.mark.parametrize(
    "cast", ["type_as(out)", "to(out)", "to(out.dtype)", "type(out.type())"]
)
def test_what_says_its_dtype_is_stored_as_it_is(cast: str) -> None:
    lines = (
        "out = self.fc(x).cumsum(0) if self.training else self.fc(x).clone()",
        "places = torch.arange(3)[:, None], torch.arange(4)",
        f"out[places] = self.fc(x)[:3, :4].{cast}",
    )
    source = _program(lines)
    result = migrate_source(source, path="train.py")
    assert result.changed and lines[2] in result.output
    check_runs(source, result.output)


def test_what_counts_is_stored_as_it_is() -> None:
    source = (
        _program(("self.seen[x.shape] = len(self.seen)", "out = self.fc(x)"))
        .replace("self):", "self, seen):\n        self.seen = seen", 1)
        .replace("Net()", "Net({})")
    )
    result = migrate_source(source, path="train.py")
    assert result.changed and "enabled=False" not in result.output
    check_runs(source, result.output)


def test_integers_go_into_integers() -> None:
    drawn = "torch.randint(8, (mask.sum(),), device=x.device)"
    lines = (
        "edges, mask = data.edges.clone(), x[:, 0] > 0",
        f"edges[0, mask] = {drawn}",
    )
    source = _program((*lines, "out = self.fc(x + self.fc.weight[edges[0]])"))
    source = f"from graphs import load\ndata = load()[0]\n{source}"
    result = migrate_source(source, path="train.py")
    assert result.changed and ".dtype" not in result.output


def _of_rows(*lines: str) -> str:
    number = "number = [2, self.fc(x)][x.dim() - 2]"
    made = "self.rows = nn.Embedding(8, 8)\n        self.fc = "
    return _program((number, *lines)).replace("self.fc = ", made)


def test_what_is_looked_up_behind_a_store_holds_integers() -> None:
    source = _of_rows(
        "ids = x.abs().long().clone()",
        "ids[x > 1.0] = number",
        "out = self.fc(self.rows(ids)).sum(1)",
    )
    result = migrate_source(source, path="train.py")
    assert result.changed and "ids.dtype" not in result.output
    check_runs(source, result.output)


def test_what_becomes_another_before_it_is_looked_up_may_hold_anything() -> None:
    source = _of_rows(
        "ids = x.abs().clone()",
        "ids[x > 1.0] = number",
        "ids = ids.long()",
        "out = self.fc(self.rows(ids)).sum(1)",
    )
    result = migrate_source(source, path="train.py")
    assert not result.changed or "ids.dtype" in result.output


def test_a_parameter_of_ones_own_stays_fp32() -> None:
    source = _program(("out = self.fc(x)", "bank.data = out.detach()")).replace(
        "class Net",
        "class Bank(nn.Parameter):\n    pass\nbank = Bank(torch.zeros(6, 8))\nclass Net",
    )
    result = migrate_source(source, path="train.py")
    assert "bank.data = out.detach().float()" in result.output
    check_runs(source, result.output)


OUT_OF_SIGHT = {
    "a property": (
        "out = self.fc(x) @ self.mixing",
        "return torch.matrix_exp(self.fc(torch.eye(8)))",
        "@property\n    def mixing(self):",
    ),
    "a function that a property gives": (
        "out = self.part(x)",
        "return lambda_free(self.fc)",
        "@property\n    def part(self):",
    ),
    "a method in a list": (
        "for part in [self.part]:\n            out = part(x)",
        "return torch.lerp(x, self.fc(x), 0.5)",
        "def part(self, x):",
    ),
}
GIVEN = """\
def lambda_free(layer):
    def run(value):
        return torch.lerp(value, layer(value), 0.5)
    return run
"""


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_what_runs_without_being_called_by_its_name(name: str) -> None:
    body, inside, head = OUT_OF_SIGHT[name]
    source = _program((body,)).replace(
        "        return out\n", f"        return out\n    {head}\n        {inside}\n"
    )
    source = source.replace("class Net", f"{GIVEN}class Net")
    result = migrate_source(source, path="train.py")
    if result.changed:
        check_runs(source, result.output)
    else:
        assert [found.code for found in result.diagnostics] == ["AMP020"]


def test_weights_of_an_embedding_bag() -> None:
    """They have to be of the dtype of the bag, which stays fp32."""
    call = "self.bag(torch.arange(8).expand(6, 8), per_sample_weights=WEIGHTS)"
    source = _program(("weights = torch.sigmoid(self.fc(x))", f"out = {call}"))
    source = source.replace(
        "        self.fc =",
        '        self.bag = nn.EmbeddingBag(8, 8, mode="sum")\n        self.fc =',
    )
    plain = source.replace("WEIGHTS", "weights")
    result = migrate_source(plain, path="train.py")
    assert "per_sample_weights=weights.float()" in result.output
    check_runs(plain, result.output)
    unknown = source.replace("WEIGHTS", "self.kept[-1]").replace(
        "        out =", "        self.kept = [weights]\n        out ="
    )
    result = migrate_source(unknown, path="train.py")
    if not result.changed:
        assert [found.code for found in result.diagnostics] == ["AMP020"]
    else:
        check_runs(unknown, result.output)


OUTSIDE = {
    "what a hook keeps under a name": (
        "kept = {}\ndef keep(name):\n    def hook(module, given, output):\n"
        "        kept[name] = output\n    return hook\n"
        "model.fc.register_forward_hook(keep('fc'))\n",
        "bank[torch.arange(6)] = kept['fc'].detach()",
    ),
    "what a hook keeps in an object": (
        "class Probe:\n    out = None\n    def keep(self, module, given, output):\n"
        "        self.out = output.detach()\n"
        "probe = Probe()\nmodel.fc.register_forward_hook(probe.keep)\n",
        "bank.index_add_(0, torch.arange(6), probe.out)",
    ),
    "a sum of what is kept": (
        "import collections\nrecent = collections.deque(maxlen=2)\n",
        "recent.append(out.detach())\n    "
        "bank.index_add_(0, torch.arange(6), sum(recent) / len(recent))",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_it_is_cast_outside_of_regions(name: str) -> None:
    setup, store = OUTSIDE[name]
    source = _program(("out = self.fc(x)",)).replace(
        "optimizer =", f"bank = torch.zeros(12, 8, device=device)\n{setup}optimizer ="
    )
    source = source.replace(
        "loss = F.mse_loss(model(x)", "out = model(x)\n    loss = F.mse_loss(out"
    )
    source += f"    {store}\n"
    result = migrate_source(source, path="train.py")
    widened = ".append(out.detach().float())" in result.output  # for the sum
    assert widened or ".to(bank.dtype)" in result.output
    check_runs(source, result.output)


def test_however_many_statements_make_a_value_it_is_seen_to_be_a_tensor() -> None:
    made = ["h = h * 0.5", "h = h + x"] * 200
    body = ("out, h = x.clone(), self.fc(x)", *made, "out[torch.arange(6)] = h")
    source = _program(body)
    result = migrate_source(source, path="train.py")
    assert "out[torch.arange(6)] = h.to(out.dtype)" in result.output
    check_runs(source, result.output)


def test_a_parameter_that_keeps_values() -> None:
    made = "self.fc = nn.Linear(8, 8)\n"
    kept = "        self.kept = nn.Parameter(torch.zeros(6, 8), requires_grad=False)\n"
    lines = ("out = self.fc(x)", "self.kept[torch.arange(6), :] = out.detach()")
    source = _program(lines).replace(made, made + kept)
    result = migrate_source(source, path="train.py")
    assert "= out.detach().to(self.kept.dtype)" in result.output
    check_runs(source, result.output)


POWER = """\
def normed(v):
    return v / (v.norm() + 1e-12)
class Bounded(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        w = module.weight
        del module._parameters["weight"]
        for name, value in (("bar", w), ("u", w.new_ones(8)), ("v", w.new_ones(8))):
            kept = nn.Parameter(normed(value.data), requires_grad=name == "bar")
            module.register_parameter("weight_" + name, kept)
    def forward(self, x):
        u, v, w = (getattr(self.module, "weight_" + name) for name in ("u", "v", "bar"))
        v.data = normed(torch.mv(torch.t(w.view(8, -1).data), u.data))
        u.data = normed(torch.mv(w.view(8, -1).data, v.data))
        self.module.weight = w / u.dot(w.view(8, -1).mv(v))
        return self.module(x)
"""


def test_a_tensor_that_lasts_keeps_its_dtype() -> None:
    """By spectral norm, written by hand, the vectors were half from then on: evaluation, without autocast,
    raised."""
    source = _program(("out = self.fc(x)",)).replace("class Net", f"{POWER}class Net")
    source = source.replace("nn.Linear(8, 8)\n", "Bounded(nn.Linear(8, 8))\n")
    source += "    with torch.no_grad():\n        print(model(x).mean().item())\n"
    result = migrate_source(source, path="train.py")
    cast = "v.data = v.data.float() if v.data.dtype is torch.float16 else v.data\n"
    assert cast in result.output and cast.replace("v", "u") in result.output
    check_runs(source, result.output)


def test_a_mean_of_parameters_is_as_wide_as_they_are() -> None:
    line = (
        "for p, q in zip(self.fc.parameters(), model.fc.parameters()):\n"
        "            p.data = p.data * 0.9 + q.data * 0.1"
    )
    source = _program((line, "out = self.fc(x)"))
    result = migrate_source(source, path="train.py")
    assert result.changed and ".dtype" not in result.output


@pytest.mark.parametrize(
    "line",
    ["self.fc.weight.data = self.fc.weight.data * 0.9", "self.data = self.fc(x)"],
)
def test_what_stays_fp32_by_itself_is_not_cast(line: str) -> None:
    source = _program((line, "out = self.fc(x)"))
    result = migrate_source(source, path="train.py")
    assert result.changed and ".dtype" not in result.output
    check_runs(source, result.output)


def test_a_tensor_of_what_is_given_out_of_sight() -> None:
    """A function that is called by another name takes the model as it comes."""
    given = (
        "def keep(net, h):\n"
        "    net.bank[torch.tensor([0, 2], device=h.device)] = net.fc(h)[:2].detach()\n"
        "    return h\n"
        "def run(net, h, part=keep):\n"
        "    return part(net, h)\n"
    )
    source = _program(("x = run(self, x)", "out = self.fc(x)"))
    source = source.replace("class Net", f"{given}class Net").replace(
        "nn.Linear(8, 8)\n",
        'nn.Linear(8, 8)\n        self.register_buffer("bank", torch.zeros(6, 8))\n',
    )
    result = migrate_source(source, path="train.py")
    assert "[:2].detach().to(net.bank.dtype)\n" in result.output
    check_runs(source, result.output)


def test_a_base_of_what_is_chosen_at_run_time_runs() -> None:
    """Nobody makes the base, and nothing in sight calls the class that is derived from it."""
    source = _program(("out = torch.zeros_like(x)", "out[x > 0] = self.fc(x)[x > 0]"))
    source = source.replace(
        "model = Net()",
        "class Wide(Net):\n    pass\nmodel = max([Wide], key=id)()",
    )
    result = migrate_source(source, path="train.py")
    assert "[x > 0].to(out.dtype)\n" in result.output
    check_runs(source, result.output)


_LOSSES = """\
class Masked:
    def loss(self, out, y):
        kept = torch.zeros_like(y)
        kept[y > 0] = out[y > 0]
        return (kept - y).pow(2).mean()
    __call__ = loss
class Squared(Masked):
    def loss(self, out, y):
        return (out - y).pow(2).mean()
    def __call__(self, out, y):
        return self.loss(out, y)
class Kept(Masked):
    def __call__(self, out, y):
        return self.loss(out, y)
def kept(out, y):
    return Kept()(out, y)
"""
_CHOSEN = {
    "methods in a list": (
        "losses = [Masked().loss, Squared().loss]",
        "sum(part(out, y) for part in losses)",
    ),
    "a class of a dict": (
        'losses = {"kept": Kept, "squared": Squared}\npart = losses[min(losses)]()',
        "part(out, y)",
    ),
    "a class by its name": (
        'part = globals()[min(["Kept", "Squared"])]()',
        "part(out, y)",
    ),
    "a method of a class by its name": (
        'part = globals()[min(["Masked", "Squared"])]().loss',
        "part(out, y)",
    ),
    "a function by its name": ('part = eval(min(["kept", "loss"]))', "part(out, y)"),
    "a method of a class of a list": (
        "part = [Masked, Squared][len(loader) - 3]().loss",
        "part(out, y)",
    ),
}


@pytest.mark.parametrize("name", _CHOSEN)
def test_a_loss_that_is_chosen_at_run_time_runs(name: str) -> None:
    made, run = _CHOSEN[name]
    source = _program(("out = self.fc(x)",)).replace("class Net", f"{_LOSSES}class Net")
    source = source.replace("optimizer =", f"{made}\noptimizer =")
    source = source.replace("F.mse_loss(model(x), y)", run)
    source = source.replace("    loss =", "    out = model(x)\n    loss =")
    result = migrate_source(source, path="train.py")
    if result.changed:
        check_runs(source, result.output)
    else:
        assert [found.code for found in result.diagnostics] == ["AMP020"]


@pytest.mark.parametrize(
    "loop", ["for x, y in data", "for i, (x, y) in enumerate(data)"]
)
def test_what_a_loader_gives_is_no_number_of_a_place(loop: str) -> None:
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        "torch.manual_seed(0)\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "data = [(torch.randn(4, 8, device=device), torch.tensor([0, 1, 2, 0], device=device))]\n"
        "kept = torch.zeros(9, 3, device=device)\n"
        "model = nn.Linear(8, 3).to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"{loop}:\n    optimizer.zero_grad()\n    h = model(x)\n    kept[y] = h.detach()\n"
        "    loss = F.cross_entropy(h, y)\n    loss.backward()\n    optimizer.step()\n"
    )
    output = migrate_source(source, path="train.py").output
    assert "scaler.step(optimizer)" in output
    check_runs(source, output)


_BOXES = """\
class Box:
    def __init__(self, k):
        self.k = k
    def get(self):
        return self.k
def get(x, plain):
    return torch.zeros(6, 8, device=x.device) if plain else model(x)
first = torch.tensor([0, 1])
model = Net()"""
OF_ONE_CLASS = {
    "a half value into an fp32 one": (
        "b.k[first] = a.k[:2]",
        "b.k[first] = a.k[:2].to(b.k.dtype)",
    ),
    "a mask": ("b.k[y > 0] = a.k[y > 0]", "b.k[y > 0] = a.k[y > 0].to(b.k.dtype)"),
    "an fp32 value into a half one": (
        "a.k[first] = b.k[:2]",
        "a.k[first] = b.k[:2].to(a.k.dtype)",
    ),
    "what is computed": (
        "b.k[first] = (a.k * 2)[:2].relu()",
        "b.k[first] = (a.k * 2)[:2].relu().to(b.k.dtype)",
    ),
    "variables": (
        "into, h = b.k, a.k; into[first] = h[:2]",
        "into[first] = h[:2].to(into.dtype)",
    ),
    "what methods give": (
        "into, h = b.get(), a.get(); into[first] = h[:2]",
        "into[first] = h[:2].to(into.dtype)",
    ),
    "what a function gives": (
        "into, h = get(x, True), get(x, False); into[first] = h[:2]",
        "into[first] = h[:2].to(into.dtype)",
    ),
}


@pytest.mark.parametrize("name", OF_ONE_CLASS)
@pytest.mark.parametrize("where", ["before the loss", "behind the step"])
def test_of_two_objects_of_one_class_one_may_keep_what_is_half(
    name: str, where: str
) -> None:
    store, cast = OF_ONE_CLASS[name]
    made = "a, b = Box(model(x)), Box(torch.zeros(6, 8, device=device))"
    source = _program(("out = self.fc(x)",)).replace("model = Net()", _BOXES)
    if where == "before the loss":
        loss = f"{made}; {store}\n    loss = F.mse_loss(a.k + b.k, y)"
        source = source.replace("loss = F.mse_loss(model(x), y)", loss)
    else:
        loss = f"{made}\n    loss = F.mse_loss(a.k, y)"
        source = source.replace("loss = F.mse_loss(model(x), y)", loss)
        source += f"    with torch.no_grad():\n        {store}\n"
    result = migrate_source(source, path="train.py")
    assert cast in result.output
    check_runs(source, result.output)


UNSEEN_LAYERS = {
    "a derived layer": "class Last(nn.Linear):\n    pass\nmodel = Last(8, 8)",
    "a layer that makes itself": "class Last(nn.Linear):\n    def __init__(self):\n"
    "        nn.Linear.__init__(self, 8, 8)\nclass Again(Last):\n    pass\nmodel = Again()",
    "derived layers in a row": "class Net(nn.Sequential):\n    def __init__(self):\n"
    "        super().__init__(nn.Linear(8, 8), nn.ReLU())\nmodel = Net()",
    "derived layers that are added": "class Net(nn.Sequential):\n    def __init__(self):\n"
    "        super().__init__()\n        for name in 'ab':\n"
    "            self.add_module(name, nn.Linear(8, 8))\nmodel = Net()",
    "a forward around that of a layer": "class Last(nn.Linear):\n    def forward(self, x):\n"
    "        return super().forward(x) * 2\nmodel = Last(8, 8)",
    "a forward around that of a named layer": "class Last(nn.Linear):\n    def forward(self, x):\n"
    "        return nn.Linear.forward(self, x) * 2\nmodel = Last(8, 8)",
    "layers that a function gives": "def made():\n    return [nn.Linear(8, 8), nn.ReLU()]\n"
    "model = nn.Sequential(*made())",
}


@pytest.mark.parametrize("name", UNSEEN_LAYERS)
def test_what_layers_out_of_sight_give_may_be_half(name: str) -> None:
    source = _program(("out = self.fc(x)",)).replace(
        "model = Net()", UNSEEN_LAYERS[name] + ".to(device)\nmodel = model"
    )
    source = source.replace(
        "optimizer =", "kept = torch.zeros(6, 8, device=device)\noptimizer ="
    )
    loss = "h = model(x)\n    loss = F.mse_loss(h, y)"
    source = source.replace("loss = F.mse_loss(model(x), y)", loss)
    source += "    kept[torch.arange(2)] = h.detach()[:2]\n"
    result = migrate_source(source, path="train.py")
    assert "= h.detach()[:2].to(kept.dtype)" in result.output
    check_runs(source, result.output)


ANY_DTYPE = {
    "an array, into one of a dict": (
        'kept = {"out": np.zeros((6, 8))}',
        'kept["out"][[0, 1]] = h.detach().cpu().numpy()[[0, 1]]',
    ),
    "a tensor, into an array of a dict": (
        'kept = {"out": np.zeros((6, 8)), "h": torch.zeros(1)}',
        'kept["out"][[0, 1]] = h.detach().cpu()[:2]',
    ),
    "a tensor, into an array of a list": (
        "kept = [np.zeros((6, 8))]",
        "kept[0][[0, 1]] = h.detach().cpu()[[0, 1]]",
    ),
    "a tensor, into an array that is put there": (
        'kept = {}; kept["out"] = np.zeros((6, 8)); kept["h"] = torch.zeros(1)',
        'kept["out"][[0, 1]] = h.detach().cpu()[:2]',
    ),
    "a tensor, into a dict of a dict": (
        'kept = {"out": {}}',
        'kept["out"][torch.is_tensor(y)] = h.detach()[:2]',
    ),
}


@pytest.mark.parametrize("name", ANY_DTYPE)
def test_what_takes_any_dtype_needs_no_cast(name: str) -> None:
    made, store = ANY_DTYPE[name]
    source = _program(("out = self.fc(x)",)).replace(
        "import torch\n", "import numpy as np\nimport torch\n", 1
    )
    source = source.replace("optimizer =", f"{made}\noptimizer =")
    source = source.replace(
        "loss = F.mse_loss(model(x), y)",
        f"h = model(x)\n    {store}\n    loss = F.mse_loss(h, y)",
    )
    result = migrate_source(source, path="train.py")
    assert result.changed and ".dtype" not in result.output
    check_runs(source, result.output)


REGISTRY = """\
class Registry:
    def __init__(self):
        self.kept = {}
    def add(self, what):
        self.kept[what.__name__] = what
        return what
    def __getitem__(self, name):
        return self.kept[name]
    def get(self, name):
        return self.kept[name]
LOSSES = Registry()
@LOSSES.add
def masked(out, y):
    kept = torch.zeros_like(y)
    kept[y > 0] = out[y > 0]
    return (kept - y).pow(2).mean()
"""


@pytest.mark.parametrize("loss", ['LOSSES["masked"]', 'LOSSES.get("masked")'])
def test_a_loss_out_of_a_registry_of_ones_own_runs(loss: str) -> None:
    source = _program(("out = self.fc(x)",)).replace(
        "class Net", f"{REGISTRY}class Net"
    )
    source = source.replace("F.mse_loss(model(x), y)", f"{loss}(model(x), y)")
    result = migrate_source(source, path="train.py")
    assert "= out[y > 0].to(kept.dtype)\n" in result.output
    check_runs(source, result.output)


@pytest.mark.parametrize(
    "field",
    [
        "dataclasses.field(default_factory=lambda: torch.zeros(6, 8))",
        "dataclasses.field(default=torch.zeros(6, 8), hash=False)",
    ],
)
def test_what_a_field_has_by_default_is_stored_into(field: str) -> None:
    made = (
        f"@dataclasses.dataclass(eq=False)\nclass State:\n    kept: object = {field}\n"
    )
    made += "    out: object = None\n"
    source = "import dataclasses\n" + _program(("out = self.fc(x)",))
    source = source.replace("class Net", f"{made}class Net")
    steps = "state = State(); state.out = model(x)\n    state.kept[[0, 1]] = state.out.detach()[:2]"
    source = source.replace(
        "    loss = F.mse_loss(model(x), y)",
        f"    {steps}\n    loss = F.mse_loss(state.out, y)",
    )
    result = migrate_source(source, path="train.py")
    assert "= state.out.detach()[:2].to(state.kept.dtype)\n" in result.output
    check_runs(source, result.output)


def test_what_an_object_keeps_that_a_forward_gives_may_be_half() -> None:
    out = "class Out:\n    def __init__(self, h):\n        self.h = h\nclass Net"
    source = _program(("out = Out(self.fc(x))",)).replace("class Net", out)
    source = source.replace(
        "optimizer =", "kept = torch.zeros(6, 8, device=device)\noptimizer ="
    )
    loss = "h = model(x).h\n    loss = F.mse_loss(h, y)"
    source = source.replace("loss = F.mse_loss(model(x), y)", loss)
    source += "    kept[torch.arange(2)] = h.detach()[:2]\n"
    result = migrate_source(source, path="train.py")
    assert "= h.detach()[:2].to(kept.dtype)" in result.output
    check_runs(source, result.output)


ALGO = """\
import numpy
import torch
import torch.nn as nn
class Algo:
    def __init__(self, model, device):
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def collect(self, x):
        given = Given()
        given.x, given.memory = x, torch.zeros(8, 4, device=x.device)
        return given
    def places(self):
        order = numpy.arange(0, 8, 2)
        order = numpy.random.permutation(order)
        if len(order) > 3:
            order = order[order % 8 != 0]
            order += 1
        return [order[i:i + 2] for i in range(0, len(order), 2)]
    def update(self, given):
        for places in self.places():
            memory = self.model(given.x[places] + given.memory[places])
            STORE
            loss = memory.square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
class Given:
    pass
"""


@pytest.mark.parametrize(
    "store",
    [
        "given.memory[places - 1] = memory.detach()",
        "given.memory[torch.arange(2)] = memory.detach()",
    ],
)
def test_what_is_stored_into_what_nobody_in_sight_gives(store: str) -> None:
    source = ALGO.replace("STORE", store)
    result = migrate_source(source, path="train.py")
    assert f"{store}.to(given.memory.dtype)\n" in result.output
    run = (
        "torch.manual_seed(0)\nnumpy.random.seed(0)\n"
        'algo = Algo(nn.Linear(4, 4), "cuda" if torch.cuda.is_available() else "cpu")\n'
        "x = torch.randn(8, 4, device=next(algo.model.parameters()).device)\n"
        'getattr(algo, "up" + "date")(algo.collect(x))\nprint(algo.model.weight.sum().item())\n'
    )
    check_runs(source + run, result.output + run)
    # It may be an array of NumPy, which takes any dtype, and has no such `dtype`.
    for other in ("numpy.zeros((8, 4))", "make()"):
        source = ALGO.replace("STORE", store).replace(
            "torch.zeros(8, 4, device=x.device)", other
        )
        assert migrate_source(source, path="train.py").output == source
