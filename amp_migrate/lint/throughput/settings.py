"""TCU201, TCU202 and TCU203: switches of torch that are left where Tensor Cores get less to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import amp_of
from amp_migrate.lint.throughput.layers import layers_near
from amp_migrate.lint.throughput.training import GAMES, Step, Training
from amp_migrate.program import ir

_AMP = ("autocast", "GradScaler", "amp", "bfloat16", "half", "accelerate", "deepspeed")
_TF32 = ("set_float32_matmul_precision", "allow_tf32", "fp32_precision")
_TUNED = (
    "benchmark",
    "deterministic",
    "use_deterministic_algorithms",
    "set_deterministic",
)
_SIZED = re.compile(
    r"torchvision\.transforms\.(\w+\.)*(RandomCrop|RandomResizedCrop|CenterCrop)"
    r"|torchvision\.datasets\.(\w+\.)*(CIFAR10|CIFAR100|SVHN|STL10)"
)
_MULTISCALE = re.compile(
    r"(?i)multi_?scale|scale_?range|random_?scale|randomscale|bucket"
)
_NCHW_NORMS = ("InstanceNorm2d", "instance_norm")
"""Their results are in NCHW whatever they are given, so that each would cost a copy."""


def check(context: Context, file: str) -> Iterator[Finding]:
    """At most one finding of each code, at the first training loop of a file."""
    training = context.noted(Training)
    steps = training.steps_in(file)
    if not steps:
        return
    layers = layers_near(training, file)
    first = steps[0]
    if (
        layers.is_of_products
        and not context.program.import_roots(first.function) & GAMES
    ):
        if not training.speaks_of(file, *_AMP, *_TF32):
            yield context.finding("TCU201", first.function, first.at)
    if not layers.is_convolutional:
        return
    region = next((r for step in steps if (r := _region(context, step))), None)
    if region is not None and not training.speaks_of(
        file, "channels_last", *_NCHW_NORMS
    ):
        yield context.finding("TCU202", region[0], region[1])
    if _is_sized(context, training, file) and not training.speaks_of(file, *_TUNED):
        yield context.finding("TCU203", first.function, first.at)


def _region(context: Context, step: Step) -> tuple[str, ir.Stmt] | None:
    """The first autocast in a step."""
    for stmt in ir.statements(step.block):
        if stmt.kind == "with":
            for expr in stmt.exprs:
                region = amp_of(context).entered(expr, step.function)
                if region is not None and region.enabled is not False:
                    return step.function, stmt
    return None


def _is_sized(context: Context, training: Training, file: str) -> bool:
    """Whether images are brought to one size, and to no other now and then."""
    program, files = context.program, training.around(file)
    if any(
        _MULTISCALE.search(name)
        for one in files
        for name in program.modules[one].identifiers
    ):
        return False
    return any(
        _SIZED.fullmatch(program.origin(call.func, function) or "")
        for function, call in training.calls_around(file)
    )
