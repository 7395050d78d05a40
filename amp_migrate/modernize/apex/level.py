"""What ``amp.initialize`` asks for, as far as torch.amp means the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from amp_migrate.modernize.apex.branches import code_of, is_pure

_DROPPED = ("models", "optimizers", "verbosity", "num_losses", "enabled", "opt_level")
_DEFAULTS = {
    "loss_scale": ("None", "'dynamic'", '"dynamic"'),
    "keep_batchnorm_fp32": ("None", "True", "'True'", '"True"'),
    "master_weights": ("None", "True"),
    "cast_model_type": ("None",),
    "cast_model_outputs": ("None",),
    "patch_torch_functions": ("None",),
    "min_loss_scale": ("None",),
    "max_loss_scale": ("None",),
}
"""What torch.amp does anyway."""


_MIXED = ("'O1'", "'O2'")


@dataclass(frozen=True, slots=True)
class Level:
    """``opt_level`` and what goes with it."""

    off: bool = False
    """Nothing but fp32."""
    enabled: tuple[str, ...] = ()
    """Conditions under which it is on."""


def level_of(given: Mapping[str, cst.BaseExpression]) -> Level | str:
    """What is asked for, or why torch.amp has nothing like it."""
    for name, value in given.items():
        if name in _DROPPED:
            continue
        if name not in _DEFAULTS:
            return f"amp.initialize() is given {name}"
        if code_of(value) not in _DEFAULTS[name]:
            return f"torch.amp has no {name}={code_of(value)}"
    enabled: list[str] = []
    on = given.get("enabled")
    if on is not None and code_of(on) != "True":
        if not is_pure(on):
            return "amp.initialize() is switched by more than names"
        enabled.append(code_of(on))
    level = given.get("opt_level")
    text = "'O1'" if level is None else code_of(level).replace('"', "'")
    if text == "'O0'":
        return Level(off=True)
    if text in _MIXED:
        if text == "'O2'" and "optimizers" not in given:
            return "torch.amp has no half model for inference"
        return Level(enabled=tuple(enabled))
    if isinstance(level, cst.SimpleString):
        return f"torch.amp has no opt_level={text}: nothing stays in fp32"
    assert level is not None
    match level:
        case cst.IfExp(
            test=test,
            body=cst.SimpleString(value=first),
            orelse=cst.SimpleString(value=second),
        ) if is_pure(test):
            levels = [one.replace('"', "'") for one in (first, second)]
            if levels[0] in _MIXED and levels[1] == "'O0'":
                return Level(enabled=(*enabled, code_of(test)))
            if levels[1] in _MIXED and levels[0] == "'O0'":
                return Level(enabled=(*enabled, f"not ({code_of(test)})"))
    if not is_pure(level):
        return "opt_level is more than a name"
    return Level(enabled=(*enabled, f'{text} != "O0"'))


def arguments_of(
    call: cst.Call, parameters: Sequence[str]
) -> dict[str, cst.BaseExpression] | None:
    """A call's arguments by name; None where they cannot be told."""
    given: dict[str, cst.BaseExpression] = {}
    for position, arg in enumerate(call.args):
        if arg.star:
            return None
        if arg.keyword is not None:
            given[arg.keyword.value] = arg.value
        elif position < len(parameters):
            given[parameters[position]] = arg.value
        else:
            return None
    return given
