"""TCU302: the GPU is waited for, or its memory given back, in every step."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Finding, Fix, Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.throughput.training import Step, Training, always
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call

_WAIT = "torch.cuda.synchronize"
_FREE = "torch.cuda.empty_cache"
_CLOCKS = frozenset(
    """time.time time.perf_counter time.monotonic time.process_time timeit.default_timer
    time.perf_counter_ns time.time_ns""".split()
)

_ORDERED = frozenset(
    "Stream ExternalStream current_stream CUDAGraph make_graphed_callables".split()
)
"""Where these are used, somebody orders the work of the GPU by hand, and has to wait for it."""


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each such call that runs whatever is tested there."""
    training = context.noted(Training)
    if not context.program.modules[file].identifiers.isdisjoint(_ORDERED):
        return
    told: set[int] = set()
    for step in training.steps_in(file):
        for one in always(step.block):
            for call in calls_of(one.stmt):
                origin = context.program.origin(call.func, step.function)
                if origin in (_WAIT, _FREE) and id(call) not in told:
                    told.add(id(call))
                    yield _finding(context, step, one.stmt, call, origin)


def _finding(
    context: Context, step: Step, stmt: ir.Stmt, call: ir.Call, origin: str
) -> Finding:
    name = origin.rpartition(".")[2]
    fix = None
    severity = Severity.WARNING
    alone = stmt.kind == "expr" and stmt.value is call
    if origin == _FREE:
        message = f"{name}() in every step gives memory back that the next step has to ask for again"
        if alone:
            fix = Fix(False, f"remove {name}()", (edits.removed(stmt),))
    elif _is_timed(context, step):
        severity = Severity.INFO
        message = f"{name}() in every step lets the GPU run empty, perhaps for the clock that is read"
    else:
        message = f"{name}() in every step lets the GPU run empty"
        if alone:
            safe = not _reads_later(step)
            fix = Fix(safe, f"remove {name}()", (edits.removed(stmt),))
    return context.finding(
        "TCU302", step.function, call, message, severity=severity, fix=fix
    )


def _reads_later(step: Step) -> bool:
    """Whether something is copied to the host, which is there only after a wait."""
    return any(
        isinstance(call.func, ir.Attr)
        and (
            call.func.attr == "copy_" or ir.Const("cpu") in [a.value for a in call.args]
        )
        and ir.Arg(ir.Const(True), "non_blocking") in call.args
        for _, call in each_call(step.block)
    )


def _is_timed(context: Context, step: Step) -> bool:
    """Whether a clock is read in the step, by the generator that drives its loop, or an event is timed."""
    program = context.program
    blocks = [(step.function, step.block)]
    if step.at.kind == "for" and step.at.value is not None:
        for made in ir.calls_in(step.at.value):
            for driver in program.callees(made, step.function):
                blocks.append((driver, program.functions[driver].body))
    return any(
        program.origin(call.func, function) in _CLOCKS
        or (ir.method_of(call) == "elapsed_time")
        for function, block in blocks
        for _, call in each_call(block)
    )
