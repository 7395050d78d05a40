"""What is done with a scaler, or beside one, that cannot be right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.analysis.objects.points_to import RETURNS_SELF
from amp_migrate.analysis.paths.closures import takes_no_closure
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Amp, all_calls, amp_of
from amp_migrate.lint.misuse.order.events import AmpEvent, AmpEvents
from amp_migrate.lint.misuse.order.faults import HALF_PARAMETERS
from amp_migrate.lint.misuse.order.numerics import Values
from amp_migrate.lint.misuse.order.owners import Owners
from amp_migrate.lint.misuse.order.protocol import Protocol, protocol_of
from amp_migrate.lint.misuse.order.spelled import Spelled
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of

CLOSURE = "AMP117"
BFLOAT16 = "AMP119"
NONFINITE = "AMP121"
UNSHARDED = "AMP124"

_LBFGS = re.compile(r"(optim|lbfgs)\.LBFGS$")
_FSDP = re.compile(
    r"torch\.distributed\.fsdp(\.fully_sharded_data_parallel)?\.FullyShardedDataParallel"
)
_DEEPEST = 6


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file."""
    protocol = protocol_of(context)
    events, amp = protocol.events, protocol.amp
    yield from _bfloat16(context, amp, events, file)
    found = dict(context.noted(_everywhere))
    for fault in protocol.faults():
        if fault.code == HALF_PARAMETERS:
            place = fault.function, fault.at
            found[fault.function, fault.at.line] = fault.code, *place
    for function in context.functions(file):
        if function not in events.read:
            continue
        kinds = {event.kind for _, event in events.direct(function)}
        for stmt, event in events.direct(function):
            if isinstance(event, AmpEvent) and event.kind == "step":
                yield from _closure(context, events, function, stmt, event)
        if "unscale" in kinds:
            yield from _nonfinite(context, function)
    for (function, _), told in found.items():
        if ir.file_of(function) == file:
            yield context.finding(*told)


_Found = dict[tuple[str, int], tuple[str, str, ir.Call | ir.Stmt]]


def _everywhere(context: Context) -> _Found:
    """What is wrong in any file, found once."""
    protocol = protocol_of(context)
    found: _Found = {
        (function, call.line): (code, function, call)
        for code, made in (
            (
                HALF_PARAMETERS,
                _made_half(context, protocol.owners, protocol.all_optimizers),
            ),
            (UNSHARDED, _unsharded(context, protocol)),
        )
        for function, call in made
    }
    return found


def _closure(
    context: Context,
    events: AmpEvents,
    function: str,
    stmt: ir.Stmt,
    event: AmpEvent,
) -> Iterator[Finding]:
    if event.call is None or event.subject is None:
        return
    closure = event.call.argument(1, "closure")
    name = closure.id if isinstance(closure, ir.Name) else ""
    param = context.program.param(function, name)
    passed_on = param is not None and param.default == ir.Const(None)
    if closure is not None and closure != ir.Const(None) and not passed_on:
        step = replace(event.call, args=event.call.args[1:])
        if not takes_no_closure(context.program, [(event.subject, function)], step):
            yield context.finding(CLOSURE, function, event.call)
        return
    made = events.amp.points_to.whole(event.subject, function, stmt)
    origins = [
        context.program.origin(one.expr.func, one.function) or ""
        for one in made
        if isinstance(one.expr, ir.Call) and not one.fields
    ]
    if origins and len(origins) == len(made) and all(map(_LBFGS.search, origins)):
        message = "LBFGS.step() needs a closure, which scaler.step() does not support"
        yield context.finding(CLOSURE, function, event.call, message)


def _nonfinite(context: Context, function: str) -> Iterator[Finding]:
    caught = {
        inner.path
        for stmt in context.program.statements(function)
        if any(block.field.startswith("handlers") for block in stmt.blocks)
        for inner in ir.statements(stmt.blocks[0].body)
    }
    for stmt, call in all_calls(context.program, function):
        origin = context.program.origin(call.func, function) or ""
        if origin.startswith("torch.nn.utils.clip_grad") and stmt.path not in caught:
            if call.argument(99, "error_if_nonfinite") == ir.Const(True):
                yield context.finding(NONFINITE, function, call)


# -- dtypes -------------------------------------------------------------------------------------


def _bfloat16(
    context: Context, amp: Amp, events: AmpEvents, file: str
) -> Iterator[Finding]:
    """A scaler that is always on, in a file whose regions are all of bfloat16."""
    scalers = []
    regions = []
    for function in context.functions(file):
        for _, call in all_calls(context.program, function):
            region = amp.autocast(call, function)
            if region is not None and region.enabled is not False:
                regions.append(region)
            if amp.makes_scaler(call, function):
                scalers.append((function, call))
    if not regions or any(region.dtype != "bfloat16" for region in regions):
        return
    for function, call in scalers:
        given = call.argument(99, "enabled")
        if given is None or amp.truth(given, function) is True:
            yield context.finding(BFLOAT16, function, call)


def _made_half(
    context: Context, owners: Owners, stepped: set[tuple[str, ...]]
) -> Iterator[tuple[str, ir.Call]]:
    """Calls that make half whatever an optimizer is given, wherever that comes from."""
    for module, function, stmt in _trained(context, owners, stepped):
        halves = _halves_of(context, module, function, stmt, 0)
        if halves and len(set(halves)) == 1 and halves[0] is not None:
            yield halves[0]


def _halves_of(
    context: Context,
    module: ir.Expr,
    function: str,
    stmt: ir.Stmt | None,
    depth: int,
) -> list[tuple[str, ir.Call] | None]:
    """For each object that a module may be the call that made it half; None for another."""
    found: list[tuple[str, ir.Call] | None] = []
    objects = context.program.noted(Values).of(module, function, stmt)
    # What a test that always holds makes of a module takes the place of what it was.
    sure = [o for o in objects if amp_of(context).tests_on(o) == {True}]
    for one in sure or objects:
        call = one.expr
        if one.fields or not isinstance(call, ir.Call) or depth > _DEEPEST:
            found.append(None)
        elif amp_of(context).makes_half(call, one.function):
            found.append((one.function, call))
        elif own := _halves_itself(context, call, one.function):
            found += own
        elif isinstance(call.func, ir.Attr) and call.func.attr in RETURNS_SELF:
            place = one.function, one.stmt
            found += _halves_of(context, call.func.value, *place, depth + 1)
        else:
            found.append(None)
    return found


def _halves_itself(
    context: Context, call: ir.Call, function: str
) -> list[tuple[str, ir.Call] | None]:
    """The call by which a module makes itself half when it is made."""
    return [
        (init, inner)
        for init in context.program.callees(call, function)
        for stmt in context.program.functions[init].body
        for inner in calls_of(stmt)
        if stmt.kind == "expr"
        and isinstance(inner.func, ir.Attr)
        and inner.func.value == ir.Name("self")
        and amp_of(context).makes_half(inner, init)
    ]


def _trained(
    context: Context, owners: Owners, stepped: set[tuple[str, ...]]
) -> Iterator[tuple[ir.Expr, str, ir.Stmt]]:
    """The modules whose parameters optimizers of scalers are given."""
    for function, stmt, call in context.program.calls_named("parameters"):
        if isinstance(call.func, ir.Attr) and function in owners.events.read:
            key = owners.amp.key(call.func.value, function)
            if any(key in (owners.modules.get(one) or ()) for one in stepped):
                yield call.func.value, function, stmt


# -- shards -------------------------------------------------------------------------------------


def _unsharded(context: Context, protocol: Protocol) -> Iterator[tuple[str, ir.Call]]:
    """Plain scalers that step an optimizer of a module in shards: each rank looks at its own for infs."""
    amp, owners = protocol.amp, protocol.owners
    spelled = Spelled(context.program)
    for optimizer, steps in protocol.stepping.items():
        wrapped = [
            one
            for place in _trained(context, owners, {optimizer})
            for one in context.program.noted(Values).of(*place)
        ]
        shards = [
            isinstance(one.expr, ir.Call)
            and not one.fields
            and _FSDP.fullmatch(spelled.out(one.expr, one.function)[1] or "")
            for one in wrapped
        ]
        if not any(shards):
            continue
        for _, function in steps:
            for _, event in protocol.events.direct(function):
                if not isinstance(event, AmpEvent) or event.kind != "step":
                    continue
                if event.scaler is None:
                    continue
                made = amp.scalers(event.scaler, function)
                plain = [
                    (one.function, one.expr)
                    for one in made
                    if isinstance(one.expr, ir.Call)
                    and _is_plain(amp, one.expr, one.function)
                ]
                # Where not all are in shards, the same test may choose the scaler, or switch it off.
                if all(shards) or (
                    len(plain) == len(made)
                    and amp.is_always_scaler(event.scaler, function)
                    and all(c.argument(99, "enabled") is None for _, c in plain)
                ):
                    yield from plain


def _is_plain(amp: Amp, call: ir.Call, function: str) -> bool:
    names = amp.names(call.func, function)
    return bool(names) and not any("Sharded" in name for name in names)
