"""Every matrix product that runs is recorded, with its sizes, its cost and its line."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from amp_migrate.validate.harness.log import Log  # noqa: E402
from amp_migrate.validate.harness.shapes.gemms import GemmRecorder  # noqa: E402
from amp_migrate.validate.harness.shapes.products import sizes_of  # noqa: E402
from amp_migrate.validate.harness.where import Where  # noqa: E402

Row = dict[str, Any]
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"


@pytest.fixture
def record(tmp_path: Path) -> Any:
    """Runs a script under the recorder; its log, each line with the text of the source line."""

    def run(script: str) -> list[Row]:
        path = tmp_path / "script.py"
        path.write_text(HEAD + script, encoding="utf-8")
        log = tmp_path / "log.jsonl"
        log.unlink(missing_ok=True)
        torch.manual_seed(0)
        with GemmRecorder(Where([str(path)])) as gemms:
            runpy.run_path(str(path), run_name="__main__")
        gemms.finish(Log(str(log)))
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        lines = (HEAD + script).splitlines()
        for row in rows:
            row["text"] = ""
            if row.get("line"):
                file, number, _ = row["line"]
                assert file == str(path)
                row["text"] = lines[number - 1].strip()
        return rows

    return run


def gemms(rows: list[Row], **wanted: Any) -> list[Row]:
    return [
        row
        for row in rows
        if row["kind"] == "gemm"
        and all(row[key] == value for key, value in wanted.items())
    ]


def mnk(row: Row) -> tuple[int, int, int]:
    return row["m"], row["n"], row["k"]


def flops(rows: list[Row]) -> int:
    return sum(row["flops"] for row in gemms(rows))


def test_linear_forward_and_backward(record: Any) -> None:
    rows = record(
        "net = nn.Linear(20, 33)\n"
        "x = torch.randn(4, 5, 20, requires_grad=True)\n"
        "for _ in range(3):\n"
        "    y = net(x)\n"
        "    y.sum().backward()\n"
    )
    assert {row["text"] for row in gemms(rows)} == {"y = net(x)"}
    (forward,) = gemms(rows, phase="forward")
    assert mnk(forward) == (20, 33, 20) and forward["batch"] == 1
    assert forward["op"] == "aten::addmm" and forward["count"] == 3
    assert forward["flops"] == 3 * 2 * 20 * 33 * 20
    # The weight as it lies (33 x 20) and the bias, both operands and the result, 4 bytes each.
    assert forward["bytes"] == 3 * 4 * (20 * 20 + 33 * 20 + 33 + 20 * 33)
    assert forward["rows"] == "kkn"
    backward = gemms(rows, phase="backward")
    assert sorted(map(mnk, backward)) == [(20, 20, 33), (33, 20, 20)]
    assert {row["rows"] for row in backward} <= {"knn", "mnn"}
    assert flops(rows) == 3 * forward["flops"]
    assert rows[-1]["kind"] == "gemm_total" and rows[-1]["flops"] == flops(rows)


@pytest.mark.parametrize(
    ("layer", "size", "positions"),
    [
        ("nn.Conv2d(6, 8, 3)", (2, 6, 10, 12), 2 * 8 * 10),
        ("nn.Conv2d(6, 8, 3, stride=2, padding=1)", (2, 6, 10, 12), 2 * 5 * 6),
        ("nn.Conv2d(6, 8, 3, groups=2)", (2, 6, 10, 12), 2 * 8 * 10),
        ("nn.Conv1d(6, 8, 5, dilation=2)", (2, 6, 20), 2 * 12),
        ("nn.Conv3d(6, 8, 2)", (2, 6, 4, 5, 6), 2 * 3 * 4 * 5),
    ],
)
def test_convolution(record: Any, layer: str, size: Any, positions: int) -> None:
    rows = record(
        f"net = {layer}\n"
        f"x = torch.randn({size}, requires_grad=True)\n"
        "y = net(x)\n"
        "y.square().mean().backward()\n"
    )
    groups = 2 if "groups" in layer else 1
    taps = {"1": 5, "3": 8}.get(layer[7], 9)
    each = 2 * positions * (6 // groups) * 8 * taps
    forward, *backward = gemms(rows, text="y = net(x)", form="conv")
    assert mnk(forward) == (positions, 8 // groups, 6 // groups * taps)
    assert forward["batch"] == groups and forward["layer"]["role"] == "forward"
    assert [row["flops"] for row in (forward, *backward)] == [each] * 3
    by_role = {row["layer"]["role"]: row for row in backward}
    places = torch.zeros(size).numel() // 6
    assert mnk(by_role["dgrad"]) == (places, 6 // groups, 8 // groups * taps)
    assert mnk(by_role["wgrad"]) == (8 // groups, 6 // groups * taps, positions)


def test_first_layer_has_no_gradient_of_its_input(record: Any) -> None:
    rows = record("nn.Conv2d(3, 8, 3)(torch.randn(1, 3, 8, 8)).sum().backward()\n")
    assert [row["layer"]["role"] for row in gemms(rows)] == ["forward", "wgrad"]


def test_transposed_convolution(record: Any) -> None:
    rows = record(
        "net = nn.ConvTranspose2d(6, 8, 4, stride=2)\n"
        "x = torch.randn(2, 6, 5, 5, requires_grad=True)\n"
        "net(x).square().mean().backward()\n"
    )
    each = 2 * (2 * 5 * 5) * 6 * 8 * 16  # each tap once per place of the input
    assert [row["flops"] for row in gemms(rows)] == [each] * 3
    forward = gemms(rows, phase="forward")[0]
    assert forward["layer"]["transposed"] and forward["layer"]["c_out"] == 8
    assert forward["layer"]["size"] == [5, 5]


def test_fused_attention(record: Any) -> None:
    rows = record(
        "q, k, v = (torch.randn(2, 3, n, 16, requires_grad=True) for n in (7, 9, 9))\n"
        "y = F.scaled_dot_product_attention(q, k, v)\n"
        "y.square().sum().backward()\n"
    )
    one = 2 * (2 * 3) * 7 * 9 * 16
    forward, backward = sorted(gemms(rows), key=lambda row: row["flops"])
    assert forward["text"] == backward["text"] and "attention" in forward["text"]
    assert forward["flops"] == 2 * one and backward["flops"] == 5 * one
    assert forward["phase"] == "forward" and backward["phase"] == "backward"
    assert forward["form"] == "attention" and forward["layer"]["head_dim"] == 16
    assert (forward["batch"], *mnk(forward)) == (6, 7, 9, 16)


def test_unfused_attention(record: Any) -> None:
    rows = record(
        "q, k, v = (torch.randn(2, 3, 7, 16, requires_grad=True) for _ in range(3))\n"
        "scores = q @ k.transpose(-1, -2)\n"
        "y = scores.softmax(-1) @ v\n"
        "y.square().sum().backward()\n"
    )
    assert flops(rows) == 3 * 2 * (2 * 6 * 7 * 7 * 16)
    by_line = {row["text"] for row in gemms(rows, phase="backward")}
    assert by_line == {
        "scores = q @ k.transpose(-1, -2)",
        "y = scores.softmax(-1) @ v",
    }
    (scores,) = gemms(rows, phase="forward", n=7, k=16)
    assert scores["batch"] == 6 and scores["rows"] == "kkn"


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layer(record: Any, kind: str) -> None:
    rows = record(
        f"net = nn.{kind}(10, 12, num_layers=2, bidirectional=True)\n"
        "x = torch.randn(5, 3, 10, requires_grad=True)\n"
        "y, _ = net(x)\n"
        "y.square().sum().backward()\n"
    )
    wide = {"LSTM": 4, "GRU": 3}[kind] * 12
    # Two directions, two layers; the second sees both directions of the first.
    inputs = 2 * (10 + 24)
    each = 2 * (5 * 3) * wide * (inputs + 4 * 12)
    assert {row["text"] for row in gemms(rows)} == {"y, _ = net(x)"}
    assert sum(row["flops"] for row in gemms(rows, phase="forward")) == each
    # Both gradients, save that of the first state, which nobody asked for.
    backward = sum(row["flops"] for row in gemms(rows, phase="backward"))
    first_state = 4 * 2 * 3 * wide * 12
    assert backward in (2 * each, 2 * each - first_state)
    if kind == "LSTM":
        steps = gemms(rows, form="rnn_recurrent", phase="forward")
        assert {row["layer"]["input"] for row in steps} == {10, 24}
        assert sum(row["count"] for row in steps) == 4 * 5


def test_cudnn_lstm_by_its_arguments() -> None:
    """cuDNN is not here: its operator is asked for by hand, with the arguments it gets there."""
    sizes = sizes_of("aten::_cudnn_rnn")
    backward = sizes_of("aten::_cudnn_rnn_backward")
    assert sizes is not None and backward is not None
    named = {
        "input": torch.randn(3, 5, 10, dtype=torch.float16),
        "mode": 2,
        "hidden_size": 12,
        "proj_size": 0,
        "num_layers": 2,
        "batch_first": True,
        "bidirectional": True,
        "batch_sizes": [],
        "output_mask": [False, True, True, True],
    }
    each = 2 * (5 * 3) * 48 * (2 * (10 + 24) + 4 * 12)
    found = sizes(named, None)
    assert sum(product.flops * product.times for product in found) == each
    assert {product.dtype for product in found} == {"float16"}
    steps = [product for product in found if product.form == "rnn_recurrent"]
    assert [(p.m, p.n, p.k, p.times) for p in steps] == [(3, 48, 12, 5)] * 4
    found = backward(named, None)
    no_dgrad = 2 * 2 * (5 * 3) * 48 * 10
    assert sum(p.flops * p.times for p in found) == 2 * each - no_dgrad


def test_packed_sequence_counts_the_tokens_that_there_are(record: Any) -> None:
    rows = record(
        "net = nn.LSTM(10, 12)\n"
        "x = nn.utils.rnn.pack_sequence([torch.randn(n, 10) for n in (5, 3, 1)])\n"
        "net(x)\n"
    )
    assert flops(rows) == 2 * 9 * 48 * (10 + 12)


def test_matrix_and_vector_forms(record: Any) -> None:
    rows = record(
        "a, b, v = torch.randn(3, 4), torch.randn(4, 5), torch.randn(4)\n"
        "torch.mm(a, b, out=torch.empty(3, 5))\n"
        "torch.mv(a, v)\n"
        "torch.dot(v, v)\n"
        "torch.zeros(3, 5).addmm_(a, b)\n"
        "torch.addbmm(torch.zeros(3, 5), a.expand(2, 3, 4), b.expand(2, 4, 5))\n"
        "torch.baddbmm(torch.zeros(1, 3, 5), a[None], b[None])\n"
        "torch.einsum('ij,jk->ik', a, b)\n"
    )
    one = 2 * 3 * 4 * 5
    assert [row["flops"] for row in gemms(rows, text="torch.mv(a, v)")] == [24]
    assert [row["flops"] for row in gemms(rows, text="torch.dot(v, v)")] == [8]
    assert sum(row["flops"] for row in gemms(rows, form="matmul")) == 6 * one


def test_which_dimension_lies_contiguous(record: Any) -> None:
    rows = record(
        "a, b = torch.randn(6, 7), torch.randn(7, 5)\n"
        "a @ b\n"
        "torch.randn(7, 6).t() @ torch.randn(5, 7).t()\n"
        "torch.randn(6, 14)[:, ::2] @ b\n"
        "torch.randn(6, 9)[:, :7] @ b\n"
    )
    assert [(row["rows"], row["lead"]) for row in gemms(rows)] == [
        ("knn", [7, 5]),
        ("mkn", [6, 7]),
        ("knn", [7, 5]),  # copied first
        ("knn", [9, 5]),
    ]


def test_types_are_those_under_autocast(record: Any) -> None:
    rows = record(
        "net = nn.Linear(8, 8)\n"
        "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "    inside = net(torch.randn(4, 8))\n"
        "outside = net(torch.randn(4, 8))\n"
        "(inside.float() + outside).sum().backward()\n"
    )
    of_line = {(row["text"], row["dtype"]) for row in gemms(rows)}
    assert of_line == {
        ("inside = net(torch.randn(4, 8))", "bfloat16"),
        ("outside = net(torch.randn(4, 8))", "float32"),
    }
    assert {row["phase"] for row in gemms(rows, dtype="bfloat16")} == {
        "forward",
        "backward",
    }


def test_inference_mode(record: Any) -> None:
    rows = record(
        "with torch.inference_mode():\n"
        "    nn.Linear(8, 6)(torch.randn(4, 8))\n"
        "    F.conv2d(torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3))\n"
    )
    assert [row["flops"] for row in gemms(rows)] == [2 * 9 * 4 * 2 * 9, 2 * 4 * 8 * 6]


def test_lines_of_the_backward(record: Any) -> None:
    rows = record(
        "from torch.utils.checkpoint import checkpoint\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x, w):\n"
        "        ctx.save_for_backward(x, w)\n"
        "        return x @ w\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        x, w = ctx.saved_tensors\n"
        "        return g @ w.t(), x.t() @ g\n"
        "def block(x):\n"
        "    return b(x)\n"
        "a, b, c = (nn.Linear(8, 8, bias=False) for _ in range(3))\n"
        "x = torch.randn(4, 8)\n"
        "with torch.no_grad():\n"
        "    unused = c(x)\n"
        "x = a(x)\n"
        "x = checkpoint(block, x, use_reentrant=False)\n"
        "x = Twice.apply(x, c.weight)\n"
        "x.sum().backward()\n"
    )
    seen = {(row["text"], row["phase"]): row["count"] for row in gemms(rows)}
    assert seen == {
        ("unused = c(x)", "forward"): 1,
        ("x = a(x)", "forward"): 1,
        ("x = a(x)", "backward"): 1,  # its input wants no gradient
        ("return b(x)", "forward"): 1,
        ("return b(x)", "backward"): 1,
        ("return x @ w", "forward"): 1,
        ("return g @ w.t(), x.t() @ g", "backward"): 1,
    }


def test_reentrant_checkpoint_and_double_backward(record: Any) -> None:
    rows = record(
        "from torch.utils.checkpoint import checkpoint\n"
        "w = torch.randn(8, 8, requires_grad=True)\n"
        "def block(x):\n"
        "    return (x @ w).tanh()\n"
        "x = torch.randn(4, 8, requires_grad=True)\n"
        "checkpoint(block, x, use_reentrant=True).sum().backward()\n"
        "y = (x @ w).tanh()\n"
        "(g,) = torch.autograd.grad(y.sum(), x, create_graph=True)\n"
        "g.square().sum().backward()\n"
    )
    lines = {row["text"] for row in gemms(rows)}
    assert lines == {"return (x @ w).tanh()", "y = (x @ w).tanh()"}


NET = """
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
    nn.Conv2d(8, 12, 3), nn.ConvTranspose2d(12, 6, 2, stride=2),
    nn.Flatten(2), nn.TransformerEncoderLayer(484, 11, 40, batch_first=True), nn.Linear(484, 5),
)
net(torch.randn(2, 3, 27, 27)).sum().backward()
"""


def test_flops_are_those_that_torch_counts(record: Any) -> None:
    """Without groups: torch 2.13 forgets them where it counts the gradient of the weight."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        exec(HEAD + NET, {})
    rows = record(NET)
    counted = flops(rows)
    assert counted == counter.get_total_flops()


def test_values_are_not_touched(record: Any) -> None:
    script = (
        "torch.manual_seed(3)\n"
        "net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))\n"
        "net(torch.randn(4, 8)).sum().backward()\n"
        "kept.append([p.grad.clone() for p in net.parameters()])\n"
    )
    kept: list[Any] = []
    for _ in range(2):
        rows = record(
            "import builtins; kept = builtins.kept = getattr(builtins, 'kept', [])\n"
            + script
        )
        assert rows
    import builtins

    kept = builtins.__dict__.pop("kept")
    exec(HEAD + script, {"kept": kept})
    assert all(map(torch.equal, kept[0], kept[2]))


def test_meta_tensors_do_not_run(record: Any) -> None:
    rows = record(
        "torch.randn(4, 8, device='meta') @ torch.randn(8, 3, device='meta')\n"
    )
    assert gemms(rows) == [] and rows[-1]["ops"] > 0


def test_tensor_classes_are_seen_through(record: Any) -> None:
    rows = record(
        "x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)\n"
        "y = nn.Linear(8, 6)(x)\n"
    )
    assert [row["flops"] for row in gemms(rows)] == [2 * 8 * 8 * 6]


def test_what_cannot_be_seen_is_said(record: Any) -> None:
    rows = record(
        "x = torch.randn(3, 3)\n"
        "x.to_sparse() @ x\n"
        "nn.Bilinear(3, 4, 5)(torch.randn(2, 3), torch.randn(2, 4))\n"
    )
    opaque = {row["op"]: row["text"] for row in rows if row["kind"] == "opaque_op"}
    assert opaque["aten::_trilinear"].startswith("nn.Bilinear")
    assert any(text == "x.to_sparse() @ x" for text in opaque.values())
