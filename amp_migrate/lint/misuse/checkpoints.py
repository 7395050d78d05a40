"""Checkpoints that have the state of an optimizer, and not that of its scaler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_migrate.facts import ir
from amp_migrate.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.amp import Key
from amp_migrate.lint.misuse.events import AmpEvents
from amp_migrate.lint.misuse.protocol import protocol_of
from amp_migrate.project.bindings import calls_of

NOT_SAVED = "AMP122"
NOT_LOADED = "AMP123"


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    protocol = protocol_of(context)
    events = protocol.events
    stepped = protocol.all_optimizers
    if not stepped:
        return
    may_save = _of_scalers(context, events, "state_dict")
    saves = _saves_one(context, events)
    loads = _of_scalers(context, events, "load_state_dict")
    for function in context.functions(file):
        if function not in events.read:
            continue
        for stmt in ir.statements(context.program.functions[function].body):
            if not may_save:
                yield from _saved(context, events, stepped, stmt, function)
            elif saves and not loads:
                for call in calls_of(stmt):
                    held = _state_of(call, "load_state_dict")
                    if held is not None and _is_stepped(
                        events, stepped, held, function
                    ):
                        yield context.finding(NOT_LOADED, function, call)


def _saves_one(context: Context, events: AmpEvents) -> bool:
    """Whether the state of a scaler certainly goes into a dict."""
    for qualname, stmt, call in context.program.calls_named("state_dict"):
        if isinstance(call.func, ir.Attr) and qualname in events.read:
            kept = any(isinstance(target, ir.Item) for target in stmt.targets) or any(
                isinstance(inner, ir.Display) and inner.kind == "dict"
                for expr in stmt.exprs
                for inner in ir.walk(expr)
            )
            if kept and events.is_scaler(call.func.value, qualname):
                return True
    return False


def _of_scalers(context: Context, events: AmpEvents, method: str) -> bool:
    """Whether the state of anything that may be a scaler is saved, or loaded, anywhere."""
    for qualname, _, call in context.program.calls_named(method):
        held = call.func.value if isinstance(call.func, ir.Attr) else None
        while isinstance(held, ir.Item):
            held = held.value
        name = "" if held is None else (ir.key_of(held) or "?")
        if held is not None and ("scal" in name.lower() or "amp" in name.lower()):
            return True
        if held is not None and events.is_scaler(held, qualname):
            return True
        if name == "?" or _is_any(held):
            return True
    return any(
        "scaler" in text.lower() and "load" not in method
        for facts in context.program.modules.values()
        for text in facts.strings
    ) or any(
        # Whole objects that are saved: who knows what is in them.
        isinstance(arg.value, (ir.Name, ir.Attr))
        and events.is_scaler(arg.value, qualname)
        for qualname, _, call in (
            *context.program.calls_named("save"),
            *context.program.calls_named("dump"),
        )
        for arg in call.args
    )


def _is_any(held: ir.Expr | None) -> bool:
    """Names under which a loop goes through everything that has a state."""
    return isinstance(held, ir.Name) and held.id in ("v", "obj", "value", "item", "x")


def _saved(
    context: Context,
    events: AmpEvents,
    stepped: set[Key],
    stmt: ir.Stmt,
    function: str,
) -> Iterator[Finding]:
    for call in calls_of(stmt):
        name = (
            call.func.attr if isinstance(call.func, ir.Attr) else ir.key_of(call.func)
        )
        if name is None or "save" not in name.lower():
            continue
        if any(
            _is_stepped(events, stepped, held, function)
            for arg in call.args
            for held in _optimizer_states(context, arg.value, function)
        ):
            yield context.finding(NOT_SAVED, function, call)
            return


def _optimizer_states(
    context: Context, expr: ir.Expr, function: str, depth: int = 0
) -> Iterator[ir.Expr]:
    """What has its ``state_dict()`` in a dict, written out here or given to a variable."""
    if depth > 2:
        return
    if isinstance(expr, ir.Display) and expr.kind == "dict":
        for item in expr.items:
            held = _state_of(item, "state_dict")
            if held is not None:
                yield held
            else:
                yield from _optimizer_states(context, item, function, depth + 1)
    elif isinstance(expr, ir.Name):
        owner = context.program.owner(expr.id, function)
        if owner != function:
            return
        for definition in context.program.definitions(owner, expr.id):
            if isinstance(definition.value, ir.Display) and definition.index is None:
                yield from _optimizer_states(
                    context, definition.value, function, depth + 1
                )


def _state_of(expr: ir.Expr, method: str) -> ir.Expr | None:
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        return expr.func.value if expr.func.attr == method else None
    return None


def _is_stepped(
    events: AmpEvents, stepped: set[Key], held: ir.Expr, function: str
) -> bool:
    """Whether an optimizer is one that a scaler steps; of a parameter, what callers give."""
    key = events.amp.key(held, function)
    if key in stepped:
        return True
    if isinstance(held, ir.Name):
        return any(
            events.amp.key(value, caller) in stepped
            for caller, value in events.program.arguments(function, held.id)
        )
    return False
