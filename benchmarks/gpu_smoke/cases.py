"""What is measured: four models as their users write them, at sizes that are published or usual."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parent / "models"

FP32 = "plain"
"""The original."""

DTYPES = {
    "fp16": ("migrated", "by_hand"),
    "bf16": ("migrated_bf16", "by_hand_bf16"),
}
"""For each type, what the tool made of the original and what the book says: file names."""


@dataclass(frozen=True)
class Case:
    """A model at one size."""

    title: str
    folder: str
    arguments: tuple[str, ...]
    tiny: tuple[str, ...]
    """Arguments at which a CPU needs a second for a few steps; they measure nothing."""
    published: str = ""
    """What others report of fp32 against AMP."""

    def file(self, form: str) -> Path:
        """Its script in one of the forms."""
        return MODELS / self.folder / f"{form}.py"


# fmt: off
# So small a ResNet-50 is chaotic: at a usual learning rate, rounding alone changes the fourth loss by a
# tenth, and nothing could be compared.
_TINY_RESNET = ("--batch-size", "4", "--width", "4", "--lr", "0.00001")
_TINY_LM = ("--batch-size", "2", "--dim", "16", "--heads", "2", "--layers", "1")

CASES = (
    Case(
        "ResNet-50, 32x32, batch 128", "resnet50",
        ("--steps", "100000"),
        _TINY_RESNET,
        "1.84 (V100: 47.1 s to 25.6 s an epoch of CIFAR-10)",
    ),
    Case(
        "BERT-base encoder, 32 x 128 tokens", "bert_base",
        ("--steps", "100000"),
        (*_TINY_LM, "--seq-len", "8", "--vocab-size", "40"),
        "2.1 (V100)",
    ),
    Case(
        "GPT-2 small, 4 x 1024 tokens, vocabulary 50257", "gpt2_small",
        ("--steps", "100000", "--vocab-size", "50257"),
        (*_TINY_LM, "--block-size", "8", "--vocab-size", "41"),
    ),
    Case(
        "GPT-2 small, 4 x 1024 tokens, vocabulary 50304", "gpt2_small",
        ("--steps", "100000", "--vocab-size", "50304"),
        (*_TINY_LM, "--block-size", "8", "--vocab-size", "48"),
    ),
    Case(
        "Tacotron-like, 32 x 160 frames", "tacotron",
        ("--steps", "100000"),
        ("--batch-size", "2", "--text-len", "6", "--frames", "4", "--mels", "8", "--dim", "16"),
    ),
)
# fmt: on
