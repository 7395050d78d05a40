"""TCU308: several GPUs that wait for each other more than they have to."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.paths.events import Event
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.throughput.training import Step, Training, always
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call, parts_of

_DP = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
_DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
_HANDLED = (
    "no_sync",
    "require_backward_grad_sync",
    "deepspeed",
    "accelerate",
    "fabric",
)


def check(context: Context, file: str) -> Iterator[Finding]:
    """Each DataParallel, and each step that accumulates under DDP without no_sync()."""
    training = context.noted(Training)
    program = context.program
    for name in context.functions(file):
        made = [
            (stmt, call, program.origin(call.func, name))
            for stmt, call in each_call(program.functions[name].body)
        ]
        if any(origin in _DDP for _, _, origin in made):
            continue  # the other way is for those who start one process
        for stmt, call, origin in made:
            if origin in _DP and training.trains(file):
                if not training.is_demo(name, stmt):
                    yield context.finding("TCU308", name, call)
                    break
    steps = training.steps_in(file)
    if not steps or training.speaks_of(file, *_HANDLED) or not _is_ddp(training, file):
        return
    for step in steps:
        backward = _accumulates(training, step)
        if backward is not None and backward.call is not None:
            message = "gradients are averaged over all GPUs in every backward, but not used in every one"
            yield context.finding("TCU308", step.function, backward.call, message)


def _is_ddp(training: Training, file: str) -> bool:
    return any(
        training.program.origin(call.func, function) in _DDP
        for function, call in training.calls_around(file)
    )


def _accumulates(training: Training, step: Step) -> Event | None:
    """The backward of a step whose optimizer steps only every n-th time."""
    backward = None
    for one in always(step.block):
        for event in training.events.of(step.function, one.stmt):
            if event.kind == "backward" and one.inner is None:
                backward = event
            if event.kind == "step":
                return None
    if backward is None:
        return None
    for stmt in step.block:
        counted = stmt.kind == "if" and any(
            isinstance(e, ir.Operation) and e.op == "%" for e in parts_of(stmt)
        )
        if counted and any(
            event.kind == "step"
            for inner in ir.statements(stmt.blocks[0].body)
            for event in training.events.of(step.function, inner)
        ):
            return backward
    return None
