"""TCU309: what nearly every project could try, told once."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir

_FUSED = ("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.SGD")


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for a program, at its first training loop."""
    training = context.noted(Training)
    steps = training.steps_in(file)
    told = context.noted(_told)
    if not steps or told:
        return
    hints = []
    if _unfused(training, file):
        hints.append("the optimizer can be fused (fused=True)")
    if not _is_compiled(training, file):
        hints.append("the model can be compiled (torch.compile)")
    if hints:
        told.append(file)
        message = "to be tried and measured: " + "; ".join(hints)
        yield context.finding("TCU309", steps[0].function, steps[0].at, message)


def _told(context: Context) -> list[str]:
    """The file that was told, once one was."""
    return []


def _unfused(training: Training, file: str) -> bool:
    """Whether an optimizer that could be fused is made with its defaults."""
    return any(
        training.program.origin(call.func, function) in _FUSED
        and not any(
            a.star or a.name in ("fused", "foreach", "capturable") for a in call.args
        )
        for function, call in training.calls_around(file)
    )


def _is_compiled(training: Training, file: str) -> bool:
    return any(
        training.program.origin(call.func, function) == "torch.compile"
        or (ir.method_of(call) == "compile")
        for function, call in training.calls_around(file)
    )
