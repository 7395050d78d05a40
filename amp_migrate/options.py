"""The choices of one run that change what is written. Where they come from is `config`'s business."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("float16", "bfloat16", "auto")
"""``auto``: chosen when the program runs, by what the device can do."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to write.

    ``torch_version`` is the oldest torch the user supports, (major, minor): ``torch.amp.GradScaler``
    exists from (2, 3), ``torch.amp.custom_fwd`` from (2, 4); before, those of ``torch.cuda.amp`` are
    written.
    """

    dtype: str = "float16"
    torch_version: tuple[int, int] = (2, 4)
    evaluation: bool = False
    """Put ``no_grad`` evaluation under autocast too."""
    lightning_1: bool = False
    """The project asks for Lightning before its version 2, which has other values of precision."""

    @property
    def scaled(self) -> bool:
        """Whether gradients are scaled: float16 needs it, or may turn out to be what is used."""
        return self.dtype != "bfloat16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(
                f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}"
            )
