"""TCU309: what nearly every project could try, told once."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir

_FUSED = ("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.SGD")
_TOLD = "hints"


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for a program, at its first training loop."""
    training = Training.of(context)
    steps = training.steps_in(file)
    if not steps or _TOLD in context.shared:
        return
    hints = []
    if _unfused(training, file):
        hints.append("the optimizer can be fused (fused=True)")
    if not _is_compiled(training, file):
        hints.append("the model can be compiled (torch.compile)")
    if hints:
        context.shared[_TOLD] = True
        message = "to be tried and measured: " + "; ".join(hints)
        yield context.finding("TCU309", steps[0].function, steps[0].at, message)


def _unfused(training: Training, file: str) -> bool:
    """Whether an optimizer that could be fused is made with its defaults."""
    files = training.around(file)
    return any(
        training.program.origin(call.func, function) in _FUSED
        and not any(
            a.star or a.name in ("fused", "foreach", "capturable") for a in call.args
        )
        for function, _, call in training.program.all_calls()
        if ir.file_of(function) in files
    )


def _is_compiled(training: Training, file: str) -> bool:
    files = training.around(file)
    return any(
        training.program.origin(call.func, function) == "torch.compile"
        or (isinstance(call.func, ir.Attr) and call.func.attr == "compile")
        for function, _, call in training.program.all_calls()
        if ir.file_of(function) in files
    )
