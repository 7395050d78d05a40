"""Recorded products are judged by published figures; what is computed here is computed by hand."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.catalogue.gpus.profiles import names, profile, profile_of_device
from amp_migrate.catalogue.gpus.tiling import tiling
from amp_migrate.catalogue.rules import rules
from amp_migrate.validate.shapes import Gemm, judge, room_for_batch
from amp_migrate.validate.shapes_table import as_dict, lines_of

A100 = profile("ampere")


def matmul(m: int, n: int, k: int, **changes: Any) -> dict[str, Any]:
    """A line of the log: one product of a linear layer's forward in fp16."""
    row = {
        "kind": "gemm",
        "line": ["/home/me/net.py", 7, "forward"],
        "op": "aten::mm",
        "phase": "forward",
        "tf32": False,
        "count": 1,
        "form": "matmul",
        "m": m,
        "n": n,
        "k": k,
        "batch": 1,
        "dtype": "float16",
        "flops": 2 * m * n * k,
        "bytes": 2 * (m * k + k * n + m * n),
        "rows": "kkn",
        "lead": [k, k],
        "layer": {},
    }
    return {**row, **changes}


def layer(form: str, dtype: str = "float16", **sizes: Any) -> dict[str, Any]:
    return matmul(
        4096, 4096, 4096, form=form, rows="", lead=[], dtype=dtype, layer=sizes
    )


def conv(c_in: int, c_out: int, groups: int = 1) -> dict[str, Any]:
    return layer(
        "conv",
        role="forward",
        c_in=c_in,
        c_out=c_out,
        groups=groups,
        kernel=[3, 3],
        transposed=False,
    )


def only(row: dict[str, Any], gpu: str = "ampere") -> Gemm:
    (gemm,) = judge([row], profile(gpu)).gemms
    return gemm


def mends(row: dict[str, Any], gpu: str = "ampere") -> list[tuple[str, int, int]]:
    return [(each.what, each.size, each.padded) for each in only(row, gpu).misfits]


def test_profiles() -> None:
    assert names() == ("volta", "turing", "ampere", "ada", "hopper", "blackwell")
    assert A100.ridge("float16") == pytest.approx(312e12 / 2039e9)
    found = profile_of_device("8.6")
    assert found is not None and found.name == "ampere"
    assert profile_of_device("6.1") is None
    capabilities = [
        capability for name in names() for capability in profile(name).capabilities
    ]
    assert len(capabilities) == len(set(capabilities))
    for name in names():
        assert all(source.startswith("https://") for source in profile(name).sources)
    assert all(rule.code.startswith(("AMP", "TCU")) for rule in rules())


def test_vocabulary() -> None:
    gemm = only(matmul(8192, 50257, 768))
    (misfit,) = gemm.misfits
    assert (misfit.what, misfit.size, misfit.padded) == ("n", 50257, 50304)
    assert misfit.adds_percent == pytest.approx(100 * 47 / 50257)
    assert gemm.worth_mending


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (matmul(127, 768, 768), []),  # the number of tokens makes no rows
        (matmul(127, 768, 768, rows="mkn", lead=[127, 768]), [("m", 127, 128)]),
        (matmul(4096, 1152, 588), [("k", 588, 592)]),
        (matmul(4096, 1034, 512), [("n", 1034, 1040)]),
        (matmul(4096, 512, 512, lead=[513, 512]), [("row length of A", 513, 520)]),
        (matmul(4096, 1, 511), []),
        (matmul(4096, 4096, 4095, dtype="float32"), []),
        (matmul(4096, 4096, 4094, dtype="float32", tf32=True), [("k", 4094, 4096)]),
        (matmul(4096, 4096, 4092, dtype="float32", tf32=True), []),
        (layer("vector"), []),
        (conv(58, 116), [("in channels", 58, 64), ("out channels", 116, 120)]),
        (conv(3, 64), []),
        (conv(64, 64, groups=64), []),
        (
            conv(120, 240, groups=10),
            [("in channels a group", 12, 16)],
        ),
        (
            layer("attention", head_dim=125, head_dim_v=125),
            [("head_dim", 125, 128)],
        ),
        (
            layer("rnn_input", input=80, hidden=100, gates=4, projection=0),
            [("hidden size", 100, 104)],
        ),
    ],
)
def test_what_is_misaligned(row: dict[str, Any], expected: Any) -> None:
    assert mends(row) == expected


def test_hidden_size_is_twice_a_factor() -> None:
    row = layer("rnn_recurrent", input=80, hidden=100, gates=4, projection=0)
    (misfit,) = only(row).misfits
    assert misfit.adds_percent == pytest.approx(100 * (1.04**2 - 1))


def test_ada_wants_more_than_the_least_multiple() -> None:
    assert mends(matmul(4096, 100, 512)) == [("n", 100, 104)]
    assert mends(matmul(4096, 100, 512), "ada") == [("n", 100, 112)]


def test_types_without_tensor_cores() -> None:
    row = matmul(8192, 50257, 768, dtype="bfloat16")
    gemm = only(row, "volta")
    assert not gemm.misfits and not gemm.on_tensor_cores
    assert gemm.seconds == pytest.approx(row["flops"] / 15.7e12)
    report = judge([row], profile("volta"))
    assert report.tensor_core_share == 0 and report.half_share == 1
    unknown = only(matmul(4096, 4096, 4096, dtype="float64"))
    assert unknown.bound == "unknown" and not unknown.misfits


def test_limits() -> None:
    square = only(matmul(4096, 4096, 4096))
    assert square.bound == "compute"
    assert square.seconds == pytest.approx(2 * 4096**3 / 312e12)
    assert square.intensity == pytest.approx(4096 / 3)
    thin = only(matmul(65536, 16, 4096))
    assert thin.bound == "memory" and not thin.worth_mending
    assert thin.seconds == pytest.approx(thin.bytes / 2039e9)
    tiny = only(matmul(64, 64, 64, count=10, flops=10 * 2 * 64**3, bytes=10 * 24576))
    assert tiny.bound == "latency"
    assert tiny.seconds == pytest.approx(10 * 5e-6)


def test_waves_and_tiles() -> None:
    # 16 x 32 tiles of 256 x 128, in 5 waves of 108.
    square = tiling(4096, 4096, 4096, 1, A100)
    assert square.blocks == 512 and square.split_k == 1
    assert square.tile_waste == 0
    assert square.wave_waste == pytest.approx(1 - 512 / 540)
    # One tile more than there are multiprocessors.
    over = tiling(109 * 256, 128, 1024, 1, A100)
    assert over.tile == (256, 128) and over.blocks == 109
    assert over.wave_waste == pytest.approx(1 - 109 / 216)
    # A ninth of the last of three tiles: 257 of 384 columns.
    edge = tiling(108 * 256, 257, 1024, 1, A100)
    assert edge.tile == (256, 128)
    assert edge.tile_waste == pytest.approx(1 - 257 / 384)
    assert edge.waste == pytest.approx(1 - 257 / 384)


def test_a_long_sum_is_split_over_idle_multiprocessors() -> None:
    # The gradient of a small weight: 3 x 3 tiles, 12 slices of k fill 108.
    wgrad = tiling(192, 192, 65536, 1, A100)
    assert (wgrad.tile, wgrad.split_k, wgrad.blocks) == ((64, 64), 12, 108)
    assert wgrad.wave_waste == 0
    short = tiling(192, 192, 512, 1, A100)
    assert (short.split_k, short.blocks) == (2, 18)


def test_totals() -> None:
    head = matmul(8192, 50257, 768, line=["/home/me/net.py", 9, "forward"])
    body = matmul(8192, 768, 768, count=2)
    back = matmul(8192, 768, 768, phase="backward", dtype="float32")
    seen = {"kind": "opaque_op", "op": "mine::gemm", "count": 3}
    total = {"kind": "gemm_total", "ops": 9}
    report = judge([body, seen, head, total, back, seen], A100)
    assert [line.number for line in report.lines] == [9, 7]
    assert len(report.lines[1].gemms) == 2
    assert report.flops == head["flops"] + body["flops"] + back["flops"]
    assert report.half_share == pytest.approx(1 - back["flops"] / report.flops)
    assert report.misaligned_share == pytest.approx(head["flops"] / report.flops)
    assert report.opaque == (("mine::gemm", 6),)
    assert sum(report.seconds_by_bound.values()) == pytest.approx(
        sum(line.seconds for line in report.lines)
    )


def test_room_for_a_larger_batch() -> None:
    room = room_for_batch(10 << 30, 6 << 30, 12)
    assert room is not None
    assert (room.allowed, room.freed_bytes, room.at_least) == (20, 4 << 30, True)
    exact = room_for_batch(10 << 30, 6 << 30, 12, fixed=2 << 30)
    assert exact is not None and (exact.allowed, exact.at_least) == (24, False)
    for unknown in [(None, 6, 12), (10, None, 12), (10, 6, None)]:
        assert room_for_batch(*unknown) is None
    assert room_for_batch(10, 6, 12, fixed=6) is None


def test_lines_for_the_terminal() -> None:
    rows = [
        matmul(4096, 4096 + 8 * i, 4096, line=["/home/me/net.py", i, "forward"])
        for i in range(1, 15)
    ]
    rows.append(matmul(8192, 50257, 768, line=None))
    report = judge(rows, A100, room_for_batch(10 << 30, 6 << 30, 12))
    text = lines_of(report, Path("/home"))
    table = text[text.index("") + 1 :]
    table = table[: table.index("")]
    assert len(table) == 1 + 12 + 1
    assert table[1].startswith("unknown line")
    assert table[1].endswith("n 50257 -> 50304 (+0.1 %)")
    assert table[2].startswith("me/net.py:14")
    assert table[-1].startswith("3 more lines")
    limit = table[0].index("limit")
    assert all(line[limit:].startswith("compute") for line in table[1:-1])
    assert all(len(line) <= 110 for line in text)
    assert any("slower low-alignment kernels" in line for line in text)
    assert any("at least 20" in line for line in text)
    assert text[1].startswith("Types: 100.0 % in half precision, 100.0 % of a kind")


def test_nothing_ran() -> None:
    report = judge([{"kind": "opaque_op", "op": "mine::gemm", "count": 1}], A100)
    first, second = lines_of(report)
    assert "no matrix product ran" in first and "mine::gemm (1)" in second
    assert report.misaligned_share == 0


def test_mending_that_would_not_show_is_said_so() -> None:
    report = judge([matmul(64, 10, 64)], A100)
    assert any(
        "(n 10 -> 16" in line and "would not matter" in line
        for line in lines_of(report)
    )


def test_plain_data() -> None:
    report = judge([matmul(8192, 50257, 768), conv(58, 116)], A100)
    data = json.loads(json.dumps(as_dict(report)))
    assert data["profile"]["name"] == "ampere"
    assert math.isclose(data["flops"], report.flops)
    misfits = [each for line in data["lines"] for each in line["misfits"]]
    assert {each["size"] for each in misfits} == {50257, 58, 116}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_what_ran_is_judged(tmp_path: Path) -> None:
    import torch

    from amp_migrate.validate.harness.log import Log
    from amp_migrate.validate.harness.shapes.gemms import GemmRecorder
    from amp_migrate.validate.harness.where import Where

    net = torch.nn.Linear(512, 1001)
    attention = torch.nn.MultiheadAttention(250, 2, batch_first=True)
    x = torch.randn(2, 33, 250)
    with GemmRecorder(Where()) as gemms, torch.autocast("cpu", dtype=torch.bfloat16):
        # amp: ignore[AMP201] it is the recorder that is to see the products of backward
        net(torch.randn(127, 512, requires_grad=True)).square().sum().backward()
        # amp: ignore[AMP201]
        attention(x, x, x, need_weights=False)[0].square().sum().backward()
        with torch.autocast("cpu", enabled=False):
            torch.nn.LSTM(64, 100)(torch.randn(5, 3, 64))
    gemms.finish(Log(str(tmp_path / "log")))
    # CPUs without AVX-512 have no recurrent layer in bfloat16: what its sizes are is the same.
    text = (tmp_path / "log").read_text().replace("float32", "bfloat16")
    rows = [json.loads(line) for line in text.splitlines()]
    report = judge(rows, A100)
    found = [
        {(misfit.what, misfit.size) for misfit in line.misfits}
        for line in sorted(report.lines, key=lambda line: line.number)
    ]
    assert {size for _, size in found[0]} == {1001}
    assert {size for _, size in found[1]} == {125, 250, 750}
    assert {size for _, size in found[2]} == {100}
    assert {what for what, _ in found[2]} == {"hidden size"}
