"""TCU205: what is meant for finding mistakes, left on in training."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.facts import ir
from amp_migrate.findings import Finding, Fix
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.throughput.training import Training
from amp_migrate.plan.moves import is_main_guard
from amp_migrate.project.bindings import calls_of

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
    training = Training.of(context)
    if not training.trains(file):
        return
    for name in context.functions(file):
        function = context.program.functions[name]
        for stmt in _unconditional(function.body):
            for call in calls_of(stmt):
                origin = context.program.origin(call.func, name) or ""
                if origin in _SWITCHES and _is_on(call, origin):
                    fix = None
                    if stmt.kind == "expr" and stmt.value is call:
                        fix = Fix(True, "remove it", (edits.removed(stmt),))
                    message = f"{_SWITCHES[origin]} is left on in training"
                    yield context.finding("TCU205", name, call, message, fix=fix)
    for step in training.steps_in(file):
        for stmt in _unconditional(step.block):
            for call in calls_of(stmt):
                if context.program.origin(call.func, step.function) in _CHECKS:
                    message = (
                        "gradcheck() computes every gradient numerically in every step"
                    )
                    yield context.finding("TCU205", step.function, call, message)


def _is_on(call: ir.Call, origin: str) -> bool:
    """Whether it is switched on by a literal, or by default."""
    if any(arg.star for arg in call.args):
        return False
    by_name = "enabled" if origin.endswith("emit_nvtx") else "mode"
    given = call.argument(0, by_name)
    if origin.endswith("detect_anomaly") and not origin.endswith("set_detect_anomaly"):
        return True
    if given is None:
        return not origin.endswith("set_detect_anomaly")
    return given == ir.Const(True)


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
