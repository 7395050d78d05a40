"""The choices of one run that change what is written. Where they come from is `config`'s business."""

from __future__ import annotations

from dataclasses import dataclass, field

DTYPES = ("float16", "bfloat16", "auto")
"""``auto``: chosen when the program runs, by what the device can do."""

LINT_DTYPES = ("float16", "bfloat16", "tf32", "float8")
"""What products may be computed in."""


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A file of ``extend-rules`` that was read where it lies, for who cannot."""

    name: str
    text: str

    def read_text(self, encoding: str) -> str:
        """As that of a path."""
        return self.text


@dataclass(frozen=True, slots=True)
class LintOptions:
    """What to look for, and for which GPU.

    ``select``, ``extend_select`` and ``ignore`` hold prefixes of codes; an empty ``select`` stands for
    the rules that are on by default. The longest prefix that fits a code decides.
    """

    profile: str = "ampere"
    """A GPU architecture of ``rules/gpus.toml``."""
    dtype: str | None = None
    """What products are computed in; None: what the code's autocast says, else float16."""
    align: int | None = None
    """Elements that sizes are to be a multiple of; None: what the profile and the dtype need."""
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(pattern as in .gitignore, prefixes of codes)."""
    extend_rules: tuple[str | LayerFile, ...] = ()
    """Files with layers of the user's own, as in ``rules/layers.toml``."""
    probed: tuple[object, ...] = ()
    """The layers that were seen to be made, as `amp_migrate.lint.probe.build` tells them."""
    fix: bool = False
    """Mend what can be mended without a change in what is computed."""
    unsafe_fixes: bool = False
    """With ``fix``: mend also where that changes what is computed."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to write.

    ``torch_version`` is the oldest torch the user supports, (major, minor): ``torch.amp.GradScaler``
    exists from (2, 3), ``torch.amp.custom_fwd`` from (2, 4); before, those of ``torch.cuda.amp`` are
    written.
    """

    dtype: str = "float16"
    torch_version: tuple[int, int] = (2, 4)
    torch_too_old: str = ""
    """A requirement of the project that admits no torch which has ``torch.autocast``."""
    torch_below: str = ""
    """A requirement of the project that admits such torches among others."""
    evaluation: bool = False
    """Put ``no_grad`` evaluation under autocast too."""
    lightning_1: bool = False
    """The project asks for Lightning before its version 2, which has other values of precision."""
    lint: LintOptions = field(default_factory=LintOptions)

    @property
    def scaled(self) -> bool:
        """Whether gradients are scaled: float16 needs it, or may turn out to be what is used."""
        return self.dtype != "bfloat16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(
                f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}"
            )
