"""The choices of one run that change what is written. Where they come from is `config`'s business."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Options:
    """What to write.

    ``torch_version`` is the oldest torch the user supports, (major, minor): ``torch.amp.GradScaler``
    exists from (2, 3), before that ``torch.cuda.amp.GradScaler`` is written.
    """

    dtype: str = "float16"
    torch_version: tuple[int, int] = (2, 3)
    evaluation: bool = False
    """Put ``no_grad`` evaluation under autocast too."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(
                f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}"
            )
