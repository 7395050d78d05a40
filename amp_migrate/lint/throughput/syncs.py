"""TCU301: what makes the host wait for the GPU in every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.core.findings import Finding, Severity
from amp_migrate.core.findings import Step as FindingStep
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.conditions import operands
from amp_migrate.lint.throughput.tensors import Tensors
from amp_migrate.lint.throughput.training import GAMES, Always, Step, Training, always
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call

_READS = frozenset("item tolist cpu nonzero".split())
_CASTS = frozenset(f"builtins.{name}" for name in "float int bool print str".split())


@dataclass(frozen=True, slots=True)
class Sync:
    """One place where the host waits."""

    at: ir.Stmt | ir.Call
    words: str


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each step that waits."""
    training = context.noted(Training)
    for step in training.steps_in(file):
        if not training.program.import_roots(step.function) & GAMES:
            found = _judge(context, training, step)
            if found is not None:
                yield found


def _judge(context: Context, training: Training, step: Step) -> Finding | None:
    tensors = Tensors(training, step.function)
    if _plays(step):
        return None
    syncs: list[Sync] = []
    inner: Sync | None = None
    waits: list[bool] = []
    """What happens in a step, in order: the host waits, or the GPU is given work."""
    for one in always(step.block):
        found = _syncs(tensors, one.stmt)
        if found and one.inner is not None and _works(training, step, one):
            inner = inner or found[0]
        syncs += found
        if _works(training, step, one):
            waits.append(False)
        waits += [True] * bool(found)
    if not syncs:
        return None
    groups = _groups(waits)
    first = inner or syncs[0]
    severity = Severity.INFO
    message = f"{first.words} makes the host wait for the GPU in every step"
    if inner is not None:
        severity = Severity.WARNING
        message = (
            f"{first.words} makes the host wait for the GPU several times in every step"
        )
    elif groups > 1:
        severity = Severity.WARNING
        message = f"every step makes the host wait for the GPU {groups} times, with work in between"
    place = context.telling.place
    file = ir.file_of(step.function)
    return context.finding(
        "TCU301",
        step.function,
        first.at,
        message,
        severity=severity,
        chain=tuple(
            FindingStep(one.words, place(file, one.at.line, one.at.column))
            for one in syncs
            if len(syncs) > 1
        ),
        data=(("waits", groups),),
    )


def _plays(step: Step) -> bool:
    """Whether an environment is stepped here."""
    return any(
        isinstance(call.func, ir.Attr)
        and call.func.attr in ("step", "reset")
        and (ir.key_of(call.func.value) or "").rsplit(".", 1)[-1] in ("env", "envs")
        for _, call in each_call(step.block)
    )


def _groups(waits: list[bool]) -> int:
    """How often the host waits while the GPU has work: one wait behind another costs nothing."""
    runs = [
        wait
        for index, wait in enumerate(waits)
        if index == 0 or waits[index - 1] != wait
    ]
    count = sum(runs)
    # The end of one step is next to the beginning of the following one.
    return count - 1 if len(runs) > 2 and runs[0] and runs[-1] else count


def _works(training: Training, step: Step, one: Always) -> bool:
    """Whether a statement gives the GPU work that takes time."""
    stmt = one.stmt
    if one.inner is not None:
        # Whatever is computed again and again in a loop of the step.
        return True
    if any(
        e.kind in ("backward", "step", "call")
        for e in training.events.of(step.function, stmt)
    ):
        return True
    return any(
        training.forward.is_forward(call, step.function) for call in calls_of(stmt)
    )


def _syncs(tensors: Tensors, stmt: ir.Stmt) -> list[Sync]:
    found: list[Sync] = []
    if stmt.kind in ("if", "while", "assert") and stmt.value is not None:
        if any(tensors.is_tensor(test, stmt) for test in operands(stmt.value)):
            found.append(Sync(stmt, f"a test of a tensor's value (`{stmt.kind}`)"))
    for expr in stmt.exprs:
        found += _in(expr, tensors, stmt)
    return found


def _in(expr: ir.Expr, tensors: Tensors, stmt: ir.Stmt) -> Iterator[Sync]:
    if isinstance(expr, ir.Deferred):
        return
    # What is computed only under a condition is no business of every step.
    short = isinstance(expr, ir.Operation) and expr.op in ("if", "and", "or")
    for child in ir.children(expr)[: 1 if short else None]:
        yield from _in(child, tensors, stmt)
    match expr:
        case ir.Call(func=ir.Attr(value=receiver, attr=method)):
            if method in _READS and tensors.is_tensor(receiver, stmt):
                yield Sync(expr, f"`.{method}()`")
            elif method == "to" and ir.Const("cpu") in (a.value for a in expr.args[:1]):
                if tensors.is_tensor(receiver, stmt):
                    yield Sync(expr, '`.to("cpu")`')
            elif method == "format" and isinstance(receiver, ir.Const):
                if any(tensors.is_tensor(arg.value, stmt) for arg in expr.args):
                    yield Sync(expr, "writing a tensor's value")
        case ir.Call(func=ir.Name() as func) if (
            tensors.program.origin(func, tensors.function) in _CASTS
        ):
            if any(tensors.is_tensor(arg.value, stmt) for arg in expr.args):
                yield Sync(expr, f"`{func.id}()` of a tensor")
        case ir.Operation(op="formattedvalue", operands=operands):
            if any(tensors.is_tensor(one, stmt) for one in operands):
                yield Sync(stmt, "writing a tensor's value")
        case ir.Operation(op="%", operands=(ir.Const(value=str()), value)):
            values = value.items if isinstance(value, ir.Display) else (value,)
            if any(tensors.is_tensor(one, stmt) for one in values):
                yield Sync(stmt, "writing a tensor's value")
