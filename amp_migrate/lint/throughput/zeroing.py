"""TCU304: gradients are filled with zeros where they could be dropped."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Finding, Fix
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each ``zero_grad(set_to_none=False)``."""
    training = context.noted(Training)
    if "grad" in context.program.modules[file].identifiers:
        # Somebody reads p.grad, and may count on finding numbers there.
        return
    for name in context.functions(file):
        for _, call in each_call(context.program.functions[name].body):
            index = _given(call)
            if index is None or not training.reaches_gpu(file):
                continue
            yield context.finding(
                "TCU304",
                name,
                call,
                # With zeros, weight decay and momentum go on moving what had no gradient.
                fix=Fix(
                    False,
                    "drop gradients instead of zeroing them",
                    (edits.RemoveArgument(edits.at(call), index),),
                ),
            )


def _given(call: ir.Call) -> int | None:
    """Where a call of zero_grad() is told to keep the gradients."""
    if ir.method_of(call) != "zero_grad":
        return None
    for index, arg in enumerate(call.args):
        if arg.name == "set_to_none" or (index == 0 and not arg.name and not arg.star):
            return index if arg.value == ir.Const(False) else None
    return None
