"""TCU205: what is meant for finding mistakes, left on in training."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Finding, Fix
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call
from amp_migrate.program.control_flow import is_main_guard

_SWITCHES = {
    "torch.autograd.set_detect_anomaly": "set_detect_anomaly(True)",
    "torch.autograd.anomaly_mode.set_detect_anomaly": "set_detect_anomaly(True)",
    "torch.autograd.detect_anomaly": "detect_anomaly()",
    "torch.autograd.anomaly_mode.detect_anomaly": "detect_anomaly()",
    "torch.autograd.profiler.emit_nvtx": "emit_nvtx()",
}
_CHECKS = (
    "torch.autograd.gradcheck",
    "torch.autograd.gradgradcheck",
    "torch.autograd.gradcheck.gradcheck",
)


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each that is on whatever is tested there."""
    training = context.noted(Training)
    for name in context.functions(file):
        function = context.program.functions[name]
        for stmt in _unconditional(function.body):
            for call in calls_of(stmt):
                origin = context.program.origin(call.func, name) or ""
                if origin in _SWITCHES and _is_on(call, origin):
                    if training.trains(file):
                        yield _left_on(context, name, stmt, call, _SWITCHES[origin])
                elif origin in _CHECKS and _in_a_step(training, file, call):
                    message = (
                        "gradcheck() computes every gradient numerically in every step"
                    )
                    yield context.finding("TCU205", name, call, message)


def _left_on(
    context: Context, function: str, stmt: ir.Stmt, call: ir.Call, what: str
) -> Finding:
    fix = None
    if stmt.kind == "expr" and stmt.value is call:
        fix = Fix(True, "remove it", (edits.removed(stmt),))
    message = f"{what} is left on in training"
    return context.finding("TCU205", function, call, message, fix=fix)


def _in_a_step(training: Training, file: str, call: ir.Call) -> bool:
    return any(
        inner is call
        for step in training.steps_in(file)
        for _, inner in each_call(step.block)
    )


def _is_on(call: ir.Call, origin: str) -> bool:
    """Whether it is switched on by a literal, or by default."""
    if any(arg.star for arg in call.args):
        return False
    switch = origin.rpartition(".")[2]
    if switch == "detect_anomaly":
        return True
    given = call.argument(0, "enabled" if switch == "emit_nvtx" else "mode")
    return (
        given in (None, ir.Const(True))
        if switch == "emit_nvtx"
        else (given == ir.Const(True))
    )


def _unconditional(block: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """Statements under no test but the one of a script's own start."""
    for stmt in block:
        yield stmt
        if stmt.kind in ("functiondef", "classdef", "match"):
            continue
        if stmt.kind == "if" and not (
            stmt.value is not None and is_main_guard(stmt.value)
        ):
            continue
        for inner in stmt.blocks:
            if not inner.field.startswith("handlers"):
                yield from _unconditional(inner.body)
