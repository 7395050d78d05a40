"""What a run draws is the same in half precision and in fp32."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
from amp_migrate.validate.harness import seeds
seeds.draw_alike()
device = "cuda" if torch.cuda.is_available() else "cpu"
functional = torch.nn.functional
dropped, passed, attended = [], [], []
for dtype in torch.float32, torch.float16:
    torch.manual_seed(0)
    x = torch.ones(64, 40, device=device, dtype=dtype, requires_grad=True)
    y = torch.ops.aten.native_dropout(x, 0.25, True)[0]
    y.sum().backward()
    dropped.append(y.detach().float()); passed.append(x.grad.float())
    x = torch.ones(2, 2, 16, 8, device=device, dtype=dtype)
    attended.append(functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5).float())
assert torch.equal(dropped[0] == 0, dropped[1] == 0) and torch.equal(passed[0] == 0, dropped[0] == 0)
assert abs(dropped[0].mean() - 1) < 0.1 and torch.allclose(*dropped, rtol=1e-3)
assert torch.allclose(*attended, rtol=1e-2) and attended[0].unique().numel() > 2
assert torch.equal(torch.ops.aten.native_dropout(x, 0.25, False)[0], x)
"""


def test_dropout_drops_the_same_elements() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
