"""Calls of torch's AMP interface that are wrong as they are written: devices, dtypes, older names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amp_migrate.analysis.objects.points_to import Object
from amp_migrate.core.findings import Finding, Fix
from amp_migrate.edit.names.edits import Recall
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.misuse.order.amp import (
    AUTOCAST,
    GRAD_SCALER,
    Amp,
    all_calls,
    amp_of,
)
from amp_migrate.program import ir

DEVICE_OBJECT = "AMP208"
DEVICE_INDEX = "AMP209"
DEPRECATED = "AMP210"
ON_GENERATOR = "AMP211"
NO_DEVICE = "AMP212"
ENABLED_AS_DTYPE = "AMP213"
EMULATED = "AMP215"

_OLD = re.compile(
    r"torch\.(?P<device>cuda|cpu)\.amp\.(?:autocast_mode\.|grad_scaler\.)?"
    r"(?P<name>autocast|GradScaler|custom_fwd|custom_bwd)"
)
_CUSTOM = re.compile(r"torch\.amp\.(autocast_mode\.)?custom_(fwd|bwd)")
_INDEXED = re.compile(r"(cuda|xpu|hpu|npu):\d+")
_BEGUN = re.compile(r"(cuda|xpu|hpu|npu):")
_SINCE = {"autocast": (1, 12), "GradScaler": (2, 3)}
"""The first torch that has the newer name; (2, 4) for the others, which also warns of the older ones."""


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file."""
    amp = amp_of(context)
    for function in context.functions(file):
        yield from _decorated(context, amp, function)
        for stmt, call in all_calls(context.program, function):
            yield from _of_call(context, amp, function, stmt, call)


def _of_call(
    context: Context, amp: Amp, function: str, stmt: ir.Stmt, call: ir.Call
) -> Iterator[Finding]:
    region = amp.matched(AUTOCAST, call, function)
    scaler = amp.matched(GRAD_SCALER, call, function)
    if region is not None and not region["device"]:
        yield from _device(context, amp, function, call)
        given = _positional(call, 1)
        if isinstance(given, ir.Const) and isinstance(given.value, bool):
            yield context.finding(ENABLED_AS_DTYPE, function, call)
    if scaler is not None and scaler.group() == "torch.amp.GradScaler":
        given = _positional(call, 0)
        if isinstance(given, ir.Const) and isinstance(given.value, (bool, int, float)):
            message = (
                "the first parameter of torch.amp.GradScaler is device: write init_scale= or"
                " enabled="
            )
            yield context.finding(ENABLED_AS_DTYPE, function, call, message)
    yield from _deprecated(context, amp, function, stmt, call)
    names = amp.names(call.func, function)
    if names == {"torch.cuda.is_bf16_supported"} and not call.args:
        yield context.finding(EMULATED, function, call)


def _device(
    context: Context, amp: Amp, function: str, call: ir.Call
) -> Iterator[Finding]:
    given = call.argument(0, "device_type")
    if given is None or amp.is_type_of_device(given):
        return
    found = amp.points_to.whole(given, function)
    if found and all(
        isinstance(one.expr, ir.Call)
        and not one.fields
        and context.program.origin(one.expr.func, one.function) == "torch.device"
        for one in found
    ):
        name = ir.render(given)
        fix = None
        if name is not None and isinstance(given, (ir.Name, ir.Attr)):
            fix = Fix(
                True,
                f"write {name}.type",
                (edits.ReplaceArgument(edits.at(call), _index(call), f"{name}.type"),),
            )
        yield context.finding(DEVICE_OBJECT, function, call, fix=fix)
        return
    text = _text_with_index(context, amp.points_to.whole(given, function))
    if text:
        kind = text.partition(":")[0]
        fix = None
        if isinstance(given, ir.Const):
            edit = edits.ReplaceArgument(edits.at(call), _index(call), f'"{kind}"')
            fix = Fix(True, f'write "{kind}"', (edit,))
        message = f'device_type is "{text}"; it has to be "{kind}", without an index'
        yield context.finding(DEVICE_INDEX, function, call, message, fix=fix)


def _text_with_index(context: Context, made: tuple[Object, ...]) -> str:
    """The text of a device with an index, where all is that, or a plain ``cpu``."""
    texts = {
        _indexed(context, one)
        for one in made
        if one.expr != ir.Const("cpu") or one.fields
    }
    return texts.pop() if len(texts) == 1 else ""


def _indexed(context: Context, one: Object) -> str:
    """A device with its index, where an object is the text of one: ``cuda:0``, ``cuda:...``."""
    if one.fields:
        return ""
    match one.expr:
        case ir.Const(value=str(text)):
            return text if _INDEXED.fullmatch(text) else ""
        case ir.Operation(
            op="joinedstr" | "+" | "%", operands=(ir.Const(value=str(text)), *_)
        ) | ir.Call(func=ir.Attr(value=ir.Const(value=str(text)), attr="format")):
            kind = text.partition(":")[0]
            return f"{kind}:..." if _BEGUN.match(text) else ""
        case ir.Call(func=ir.Name(id="str"), args=(ir.Arg(value=device),)):
            amp = amp_of(context)
            made = amp.points_to.whole(device, one.function, one.stmt)
            texts = {_index_of_device(context, other) for other in made}
            return texts.pop() if len(texts) == 1 else ""
    return ""


def _index_of_device(context: Context, one: Object) -> str:
    """The text of ``torch.device("cuda", 0)``."""
    if one.fields or not isinstance(one.expr, ir.Call):
        return ""
    if context.program.origin(one.expr.func, one.function) != "torch.device":
        return ""
    given = one.expr.argument(0, "type")
    if given is None:
        return ""
    amp = amp_of(context)
    text = amp.text(given, one.function) or ""
    if one.expr.argument(1, "index") is not None:
        return f"{text}:..." if _BEGUN.match(f"{text}:") else ""
    return _text_with_index(context, amp.points_to.whole(given, one.function))


def _index(call: ir.Call) -> int:
    return next(
        (i for i, arg in enumerate(call.args) if arg.name == "device_type"),
        0,
    )


def _positional(call: ir.Call, index: int) -> ir.Expr | None:
    plain = [arg for arg in call.args if arg.name is None]
    if len(plain) <= index or any(arg.star for arg in plain):
        return None
    return plain[index].value


# -- older names --------------------------------------------------------------------------------


def _deprecated(
    context: Context, amp: Amp, function: str, stmt: ir.Stmt, call: ir.Call
) -> Iterator[Finding]:
    old = amp.matched(_OLD, call, function)
    if old is None or not _is_told(context, function, stmt.path, old["name"]):
        return
    yield _old_name(context, function, call, old, _new_call(call, old))


def _old_name(
    context: Context,
    function: str,
    at: ir.Call | ir.Stmt,
    old: re.Match[str],
    fix: Fix | None = None,
) -> Finding:
    device, name = old["device"], old["name"]
    if name == "autocast":
        new = f'torch.autocast("{device}")'
    elif name == "GradScaler":
        new = f'torch.amp.GradScaler("{device}")'
    else:
        new = f'torch.amp.{name}(device_type="{device}")'
    message = f"torch.{device}.amp.{name} is deprecated since torch 2.4: write {new}"
    return context.finding(DEPRECATED, function, at, message, fix=fix)


def _new_call(call: ir.Call, old: re.Match[str]) -> Fix | None:
    """The newer name in its place, where the older is written out and has only keywords."""
    written = ".".join(ir.dotted(call.func) or ())
    if written != old.group() or old["name"].startswith("custom"):
        return None
    if any(arg.name is None for arg in call.args):
        return None
    new = f"torch.amp.{old['name']}"
    where, device = edits.at(call), f'"{old["device"]}"'
    kept = (None,) * len(call.args)
    recall = Recall((where.line, where.column - 1), written, new, device, kept)
    return Fix(True, f"write {new}", (recall,))


def _is_told(context: Context, function: str, path: ir.Path, name: str) -> bool:
    """Whether the newer name can be used: by the user's torch, and not in a branch for an older one."""
    if context.options.torch_version < _SINCE.get(name, (2, 4)):
        return False
    for outer in context.program.control(function).around(path):
        if outer.kind in ("try", "trystar"):
            return False
        if outer.kind == "if" and outer.value is not None:
            words = {
                part
                for inner in ir.walk(outer.value)
                for part in (ir.dotted(inner) or ())
            }
            if any("hasattr" in word or "version" in word.lower() for word in words):
                return False
    return True


# -- decorators ---------------------------------------------------------------------------------


def _decorated(context: Context, amp: Amp, function: str) -> Iterator[Finding]:
    scope = context.program.functions[function]
    around = scope.parent or function
    stmt = _definition(context, function)
    if stmt is None:
        return
    for decorator in scope.decorators:
        called = decorator.func if isinstance(decorator, ir.Call) else decorator
        names = amp.names(called, around)
        at: ir.Call | ir.Stmt = decorator if isinstance(decorator, ir.Call) else stmt
        if names and all(map(_CUSTOM.fullmatch, names)):
            given = isinstance(decorator, ir.Call) and any(
                arg.name == "device_type" or arg.star == "**" for arg in decorator.args
            )
            if not given:
                yield context.finding(NO_DEVICE, function, at)
        old = [_OLD.fullmatch(name) for name in names]
        if (
            old
            and old[0] is not None
            and all(old)
            and not isinstance(decorator, ir.Call)
        ):
            if _is_told(context, around, stmt.path, old[0]["name"]):
                yield _old_name(context, function, at, old[0])
        if isinstance(decorator, ir.Call) and (scope.is_generator or scope.is_async):
            if amp.autocast(decorator, around) is not None:
                yield context.finding(ON_GENERATOR, function, decorator)


def _definition(context: Context, function: str) -> ir.Stmt | None:
    """The ``def`` statement of a function."""
    program = context.program
    scope = program.functions[function]
    holders: list[tuple[ir.Stmt, ...]] = []
    if scope.class_name is not None:
        holders.append(program.classes[scope.class_name].body)
    elif scope.parent is not None:
        holders.append(program.functions[scope.parent].body)
    for body in holders:
        for stmt in ir.statements(body):
            if stmt.kind == "functiondef" and stmt.names[1] == function:
                return stmt
    return None
