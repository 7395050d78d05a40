"""TCU204: double precision in a model, and products that a region without autocast takes out of it."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.catalogue.operations import operations
from amp_migrate.core.findings import Finding, Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import amp_of
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Ref

_DOUBLE = ("torch.double", "torch.float64")
_DEFAULTS = ("torch.set_default_dtype", "torch.set_default_tensor_type")
_PRODUCTS = operations("product")
_LAYERS = ("torch.nn.Linear", "torch.nn.Conv", "torch.nn.MultiheadAttention")


def check(context: Context, file: str) -> Iterator[Finding]:
    """What is found in the functions of a file that takes part in training on a GPU."""
    training = context.noted(Training)
    for name in context.functions(file):
        function = context.program.functions[name]
        owner = function.class_name
        forward = function.name == "forward" and (
            owner is not None and training.forward.is_module_class(owner)
        )
        for stmt in ir.statements(function.body):
            for found in _doubled(context, training, name, stmt):
                if training.trains(file):
                    yield found
            rest = [*_off(context, name, stmt)]
            if forward:
                rest += _in_forward(context, name, stmt)
            if rest and training.reaches_gpu(file):
                yield from rest


def _doubled(
    context: Context, training: Training, function: str, stmt: ir.Stmt
) -> Iterator[Finding]:
    """A model, or everything, that is made double."""
    program = context.program
    for call in calls_of(stmt):
        if program.origin(call.func, function) in _DEFAULTS:
            given = call.args[0].value if call.args else ir.Const(None)
            text = program.origin(given, function) or str(getattr(given, "value", ""))
            if text in _DOUBLE or text.endswith("DoubleTensor"):
                message = "everything is made in double precision: no Tensor Cores on most GPUs"
                yield context.finding("TCU204", function, call, message)
        elif isinstance(call.func, ir.Attr) and _doubles(context, function, call):
            refs = program.resolve(call.func.value, function)
            if any(_is_model(training, ref) for ref in refs):
                message = (
                    "the model is in double precision: no Tensor Cores on most GPUs"
                )
                yield context.finding("TCU204", function, call, message)


def _is_model(training: Training, ref: Ref) -> bool:
    if ref.kind == "instance":
        return training.forward.is_module_class(ref.name)
    maker = ref.name.rpartition(".")[2]
    layer = ref.name.startswith("torch.nn.") and maker[:1].isupper()
    return ref.kind == "made" and (layer or ref.name.startswith("torchvision.models."))


def _doubles(context: Context, function: str, call: ir.Call) -> bool:
    if not isinstance(call.func, ir.Attr):
        return False
    if call.func.attr == "double" and not call.args:
        return True
    return call.func.attr == "to" and any(
        context.program.origin(arg.value, function) in _DOUBLE for arg in call.args
    )


def _in_forward(context: Context, function: str, stmt: ir.Stmt) -> Iterator[Finding]:
    """A product of matrices in a forward, of a value that is made double right there."""
    program = context.program
    for expr in stmt.exprs:
        for inner in ir.walk(expr):
            match inner:
                case ir.Operation(op="@", operands=operands):
                    given = list(operands)
                case ir.Call(func=func, args=args):
                    origin = program.origin(func, function) or ""
                    name = origin.rpartition(".")[2]
                    refs = program.resolve(func, function)
                    layer = any(
                        r.kind == "made" and r.name.startswith(_LAYERS) for r in refs
                    )
                    if not layer and not (
                        origin.startswith("torch.") and name in _PRODUCTS
                    ):
                        continue
                    given = [arg.value for arg in args]
                case _:
                    continue
            for one in given:
                if isinstance(one, ir.Call) and _doubles(context, function, one):
                    message = (
                        "a product in double precision: no Tensor Cores on most GPUs"
                    )
                    yield context.finding("TCU204", function, one, message)


def _off(context: Context, function: str, stmt: ir.Stmt) -> Iterator[Finding]:
    """A region without autocast that holds a product of matrices or a convolution."""
    inside = ir.statements(stmt.blocks[0].body if stmt.kind == "with" else ())
    products = (_product(context, function, inner) for inner in inside)
    call = next((one for one in products if one is not None), None)
    if call is None:
        return
    regions = [amp_of(context).entered(expr, function) for expr in stmt.exprs]
    if any(one is not None and one.enabled is False for one in regions):
        message = "a product where autocast is off: in float32 it runs on Tensor Cores only as TF32"
        yield context.finding("TCU204", function, call, message, severity=Severity.INFO)


def _product(
    context: Context, function: str, stmt: ir.Stmt
) -> ir.Call | ir.Stmt | None:
    program = context.program
    for call in calls_of(stmt):
        origin = program.origin(call.func, function) or ""
        if origin.startswith("torch.") and origin.rpartition(".")[2] in _PRODUCTS:
            return call
        refs = program.resolve(call.func, function)
        if any(ref.kind == "made" and ref.name.startswith(_LAYERS) for ref in refs):
            return call
    multiplies = any(
        isinstance(inner, ir.Operation) and inner.op == "@" for inner in parts_of(stmt)
    )
    return stmt if multiplies else None
