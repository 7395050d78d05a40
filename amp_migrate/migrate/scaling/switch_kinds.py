"""What travels with the optimizer: a scaler, the bool that stands for one, or the chosen dtype."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count

from amp_migrate.core.options import Options
from amp_migrate.edit.spelling import spelled


@dataclass(frozen=True, slots=True)
class Carried:
    """How one kind of switch is called, made and read.

    ``made``: the statements that bind a name to a switch, from the name, the condition under which
    AMP is on, and what the file calls torch. ``off``: the expression for one that is always off.
    """

    names: tuple[str, ...]
    made: Callable[[str, str, str], str]
    off: Callable[[str], str]
    annotation: str
    absent: str
    """The default of a dataclass field of the kind, and what a field without a switch holds."""
    is_scaler: bool = False
    makes: Callable[[str, str], str] | None = None
    """A switch as an expression, from the condition and what the file calls torch, if it is one."""

    def free_name(self, taken: Collection[str]) -> str:
        """A name for the switch that nothing in sight uses yet."""
        for name in self.names:
            if name not in taken:
                return name
        first = self.names[0]
        return next(name for n in count(2) if (name := f"{first}{n}") not in taken)


def scaler(options: Options) -> Carried:
    """A gradient scaler."""
    version = options.torch_version

    def new(enabled: str, torch: str) -> str:
        return spelled("GradScaler", version, torch, enabled=enabled)

    return Carried(
        ("scaler", "grad_scaler", "amp_scaler", "loss_scaler"),
        lambda name, enabled, torch: f"{name} = {new(enabled, torch)}",
        lambda torch: new("False", torch),
        spelled("type of a scaler", version, "torch"),
        "None",
        is_scaler=True,
        makes=new,
    )


def flag() -> Carried:
    """A bool, where there is nothing to scale."""
    return Carried(
        ("use_amp", "amp_enabled", "with_amp", "amp_on"),
        lambda name, enabled, torch: f"{name} = {enabled}",
        lambda torch: "False",
        "bool",
        "False",
        makes=lambda enabled, torch: enabled,
    )


def dtype(options: Options) -> Carried:
    """The dtype that autocast casts to, chosen when the program runs; None where AMP is off."""
    version = options.torch_version
    return Carried(
        ("amp_dtype", "autocast_dtype", "half_dtype"),
        lambda name, enabled, torch: (
            f"{name} = None\n"
            f"if {enabled}:\n"
            f"    {name} = {torch}.float16\n"
            f"    if {spelled('bfloat16', version, torch)}:\n"
            f"        {name} = {torch}.bfloat16"
        ),
        lambda torch: "None",
        "torch.dtype",
        "None",
    )
