"""Projects whose torch is older than ``torch.autocast``. What is written for them runs today, too."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from exactness import check_mixed, check_off, check_scaled

from amp_migrate.api import Options, Outcome, migrate_source
from amp_migrate.edit.verify import difference
from amp_migrate.run.config import load

OLD = Options(torch_version=(1, 7))
_HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(8, 6), torch.randint(0, 2, (8, 1)).float()) for _ in range(6)]
"""
_LOOP = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = LOSS
    loss.backward()
    optimizer.step()
"""


def script(head: str, loss: str) -> str:
    return _HEAD + head + _LOOP.replace("LOSS", loss)


def net(body: str, layers: str = "") -> str:
    return (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.fc = nn.Linear(6, 1)\n        {layers or 'pass'}\n"
        f"    def forward(self, x):\n        {body}\nmodel = Net().to(device)\n"
    )


SQUARE = """\
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g
"""
BCE = script(
    net("return torch.sigmoid(self.fc(x))"), "F.binary_cross_entropy(model(x), y)"
)
WRITTEN = {
    "island": (
        BCE,
        "scaler = torch.cuda.amp.GradScaler(enabled=",
        "    with torch.cuda.amp.autocast(enabled=scaler.is_enabled()):",
        "        with torch.cuda.amp.autocast(enabled=False):",
    ),
    "custom": (
        script(SQUARE + net("return Square.apply(self.fc(x))"), "F.mse_loss(model(x), y)"),
        "    @torch.cuda.amp.custom_fwd\n    def forward(ctx",
        "    @torch.cuda.amp.custom_bwd\n    def backward(ctx",
    ),
    "interpolate": (
        script(
            net("return F.interpolate(self.fc(x)[None], scale_factor=2)[0].mean(1)"),
            "F.mse_loss(model(x), y[:, 0])",
        ),
        "F.interpolate(self.fc(x)[None].float(), scale_factor=2)",
    ),
    "where": (
        script(
            net(
                "h = self.fc(x)\n        k = torch.where(h > 0, h, torch.zeros_like(h))\n"
                "        k = torch.where(k < 0, k.new_zeros(()), k)\n"
                "        k = torch.where(k[..., :1] < 0, k[..., :1], k[..., :1])\n"
                "        return torch.where(k > 0, k, torch.zeros(1, device=device)) + h"
            ),
            "F.mse_loss(model(x), y)",
        ),
        "k = torch.where(h > 0, h, torch.zeros_like(h))\n",
        "k = torch.where(k < 0, k.new_zeros(()), k)\n",
        "k[..., :1], k[..., :1])\n",
        "torch.where(k > 0, k, torch.zeros(1, device=device).to(k.dtype)) + h",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_for_an_old_torch(name: str) -> None:
    source, *lines = WRITTEN[name]
    result = migrate_source(source, path="train.py", options=OLD)
    assert all(loop.outcome is Outcome.MIGRATED for loop in result.loops)
    for line in lines:
        assert line in result.output
    assert "torch.autocast(" not in result.output
    assert "torch.amp." not in result.output
    with warnings.catch_warnings():
        # It is deprecated by now.
        warnings.simplefilter("ignore", FutureWarning)
        off = check_off(source, result.output)
        assert [said for said in off if "FutureWarning" not in said] == []
        assert check_scaled(source, result.output) == []
        assert check_mixed(source, result.output) == []
    again = migrate_source(result.output, path="train.py", options=OLD)
    assert again.output == result.output
    # Under today's autocast, the operands of neither are cast.
    today = migrate_source(source, path="train.py").output
    cast = today.count("float()") > source.count("float()")
    assert cast == (name == "island")
    assert difference(source, result.output) is None
    lost = result.output.replace("autocast(enabled=False)", "autocast(enabled=True)")
    assert (difference(source, lost) is None) == (name != "island")


LEFT = {
    "lstm": (1, 6, net("return self.fc(self.rnn(x[None])[0][0])", "self.rnn = nn.LSTM(6, 6)")),
    "chosen": (1, 6, net("return self.fc(self.rnn(x[None])[0][0])", "self.rnn = getattr(nn, 'GRU')(6, 6)")),
    "replicas": (1, 6, "model = nn.DataParallel(nn.Linear(6, 1).to(device))\n"),
    "sparse": (1, 6, "table = nn.Embedding(8, 6, sparse=True)\n" + net("return self.fc(x)")),
    "checkpoint": (1, 7, net("return torch.utils.checkpoint.checkpoint(self.fc, x)")),
    "interpolate": (1, 7, net("h = self.fc(x)\n        return F.interpolate(*[h[None]], scale_factor=1)[0]")),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_old_versions_lack(name: str) -> None:
    major, minor, head = LEFT[name]
    source = script(head, "F.mse_loss(model(x), y)")
    old = Options(torch_version=(major, minor))
    result = migrate_source(source, path="train.py", options=old)
    assert [found.code for found in result.diagnostics] == ["AMP009"]
    newer = Options(torch_version=(1, 10))
    (loop,) = migrate_source(source, path="train.py", options=newer).loops
    assert loop.outcome is Outcome.MIGRATED


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
def test_only_float16_is_old(dtype: str) -> None:
    options = Options(dtype=dtype, torch_version=(1, 9))
    (found,) = migrate_source(BCE, path="train.py", options=options).diagnostics
    assert found.code == "AMP009"
    assert "before torch 1.10, autocast casts to float16 only" in found.message


PINS = {
    "torch==1.9.0": (1, 9),
    "torch>=1.6,<1.8": (1, 6),
    "torch<=1.8": (1, 6),
    "torch>=1.7": (1, 10),
    "torch>=1.7,<2": (1, 10),
}


@pytest.mark.parametrize("pin", PINS)
def test_a_pin_decides(
    pin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text(f"{pin}\n")
    Path("train.py").write_text(BCE)
    assert load(["train.py"]).options.torch_version == PINS[pin]


@pytest.mark.parametrize(
    "loss",
    [
        "F.mse_loss(model(x).cpu(), y.cpu())",
        "F.mse_loss(model(x), y).cpu()",
        'nn.MSELoss()(model(x).to("cpu"), y.to("cpu"))',
        'F.mse_loss(model(x).to(torch.device("cpu")), y.cpu()) * 2',
        "(model(x) - y).cpu().abs().mean()",
    ],
)
def test_a_scaler_takes_losses_on_the_cpu_from_torch_2_3_on(loss: str) -> None:
    source = script("model = nn.Linear(6, 1).to(device)\n", loss)
    result = migrate_source(source, options=Options(torch_version=(2, 2)))
    assert result.output == source
    assert [one.code for one in result.diagnostics] == ["AMP009"]
    newer = migrate_source(source, options=Options(torch_version=(2, 3)))
    assert "scaler.scale(loss).backward()" in newer.output
    begin, end = source.split("    loss = ")
    moved = end.replace(".cpu()", ".to(device)").replace(
        'torch.device("cpu")', "device"
    )
    on_device = f"{begin}    loss = {moved}".replace('to("cpu")', "to(device)")
    kept = migrate_source(on_device, options=Options(torch_version=(2, 2)))
    assert "scaler.scale(loss).backward()" in kept.output
