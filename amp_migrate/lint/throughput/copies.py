"""TCU303: a tensor that is filled on the CPU and then copied, where the GPU could have filled it."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.tables.destinations import DEVICE, kind_of
from amp_migrate.core.findings import Finding, Fix, Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call

_EXACT = frozenset("zeros ones full empty eye arange".split())
"""What they fill a tensor with is the same on every device; `linspace` is not, to the last bit."""
_RANDOM = frozenset("rand randn randint randperm normal".split())


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each such tensor in a step, or in a forward."""
    found = [
        (name, call)
        for name in context.functions(file)
        for _, call in each_call(context.program.functions[name].body)
        if _made(context, name, call)
    ]
    if not found:
        return
    training = context.noted(Training)
    told: set[int] = set()
    for step in training.steps_in(file):
        for _, call in each_call(step.block):
            if id(call) not in told:
                told.add(id(call))
                yield from _judge(context, step.function, call, Severity.WARNING)
    for name, call in found:
        function = context.program.functions[name]
        owner = function.class_name
        if function.name != "forward" or owner is None:
            continue
        if not training.forward.is_module_class(owner):
            continue
        for one in _judge(context, name, call, Severity.INFO):
            # Asked last: it looks through all callers of the program.
            if training.reaches_gpu(file):
                yield one


def _judge(
    context: Context, function: str, move: ir.Call, severity: Severity
) -> Iterator[Finding]:
    made = _made(context, function, move)
    if made is None:
        return
    name = (context.program.origin(made.func, function) or "").rpartition(".")[2]
    given = {arg.name for arg in made.args}
    if given & {"device", "out", "pin_memory", "generator"}:
        return
    device = _device(context, function, move)
    if device is None:
        return
    title = f"make it there: device={device}"
    changes = (
        edits.SetKeyword(edits.at(made), "device", device),
        edits.DropMethod(edits.at(move)),
    )
    fix = None
    # normal() takes a device only where it is told a size.
    if "requires_grad" not in given and (name != "normal" or "size" in given):
        fix = Fix(_is_exact(name, made), title, changes)
    message = (
        f"torch.{name}() fills a tensor on the CPU, which is then copied to the GPU"
    )
    if severity is Severity.WARNING:
        message += " in every step"
    yield context.finding("TCU303", function, move, message, severity=severity, fix=fix)


def _made(context: Context, function: str, move: ir.Call) -> ir.Call | None:
    """The call that fills a tensor, whose method is called then."""
    made = move.func.value if isinstance(move.func, ir.Attr) else None
    if not isinstance(made, ir.Call) or any(arg.star for arg in made.args):
        return None
    origin = context.program.origin(made.func, function) or ""
    package, _, name = origin.rpartition(".")
    return made if package == "torch" and name in _EXACT | _RANDOM else None


def _is_exact(name: str, made: ir.Call) -> bool:
    if name != "arange":
        return name in _EXACT
    # Of fractions, the devices may round differently.
    return all(
        isinstance(arg.value, ir.Const) and isinstance(arg.value.value, int)
        for arg in made.args
        if arg.name in (None, "start", "end", "step")
    )


def _device(context: Context, function: str, move: ir.Call) -> str | None:
    """The device that a tensor is moved to, as it is written; None where more is done to it."""
    assert isinstance(move.func, ir.Attr)
    args = [arg for arg in move.args if arg.name != "non_blocking"]
    if move.func.attr == "cuda" and not args:
        return '"cuda"'
    if move.func.attr not in ("cuda", "to") or len(args) != 1:
        return None
    device = args[0]
    if device.star or device.name not in (None, "device"):
        return None
    if (
        move.func.attr == "to"
        and kind_of(context.program, device.value, function) != DEVICE
    ):
        return None
    if isinstance(device.value, ir.Const) and str(device.value.value) == "cpu":
        return None
    text = ir.render(device.value)
    return None if text is None else text.replace("'", '"')
