"""Attention that is written out, and what only looks like it."""

from __future__ import annotations

import pytest
from lint_support import lint


def found(*lines: str, head: str = "", args: str = "q, k, v") -> bool:
    body = "\n".join(f"    {line}" for line in lines)
    text = f"import torch\nimport torch.nn.functional as F\n{head}\n\ndef attend({args}):\n{body}\n"
    return bool(lint(text, select=("TCU108",)))


@pytest.mark.parametrize(
    "lines",
    [
        ("return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v",),
        (
            "scores = torch.matmul(q, k.mT) / 8",
            "scores = scores.masked_fill(mask == 0, -1e9)",
            "weights = F.softmax(scores, dim=-1)",
            "weights = F.dropout(weights, 0.1)",
            "return torch.matmul(weights, v)",
        ),
        (
            "scores = torch.einsum('bid,bjd->bij', q, k) * 0.1",
            "return torch.einsum('bij,bjd->bid', scores.softmax(dim=-1), v)",
        ),
    ],
)
def test_written_out(lines: tuple[str, ...]) -> None:
    assert found(*lines, args="q, k, v, mask")


@pytest.mark.parametrize(
    "lines",
    [
        # Whoever returns or keeps the weights needs them.
        (
            "weights = torch.softmax(q @ k.mT, dim=-1)",
            "return weights @ v, weights",
        ),
        ("return torch.softmax(q, dim=-1) @ v",),
        ("return torch.softmax(q @ k.mT, dim=-1)",),
        ("return F.scaled_dot_product_attention(q, k, v)",),
        (
            "if fused:",
            "    return F.scaled_dot_product_attention(q, k, v)",
            "return torch.softmax(q @ k.mT, dim=-1) @ v",
        ),
        ("return torch.log_softmax(q @ k.mT, dim=-1) @ v",),
    ],
)
def test_something_else(lines: tuple[str, ...]) -> None:
    assert not found(*lines, args="q, k, v, fused=True")


def test_a_class_with_a_fused_way_knows_of_it() -> None:
    text = """
        import torch
        import torch.nn.functional as F
        from torch import nn

        class Attention(nn.Module):
            def fused(self, q, k, v):
                return F.scaled_dot_product_attention(q, k, v)

            def slow(self, q, k, v):
                return torch.softmax(q @ k.mT, dim=-1) @ v
    """
    assert not lint(text, select=("TCU108",))
