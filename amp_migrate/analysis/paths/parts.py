"""What a module of this program is made of, where all of its parameters are in sight."""

from __future__ import annotations

from amp_migrate.analysis.objects.flow import PARSES
from amp_migrate.analysis.objects.makers import is_of_text
from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, unpacked
from amp_migrate.program.link import Program

_WITHOUT_PARAMETERS = frozenset(
    """ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Tanh Sigmoid Softplus Softmax LogSoftmax
    Hardtanh Dropout Dropout1d Dropout2d Dropout3d AlphaDropout MaxPool1d MaxPool2d MaxPool3d AvgPool1d
    AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d Flatten
    Unflatten Identity Upsample PixelShuffle ZeroPad2d ReflectionPad2d""".split()
)
_REGISTERS = frozenset({"_parameters", "_modules", "__dict__"})
_ADDS = frozenset("register_parameter add_module register_module __setattr__".split())


def parts_of(program: Program, class_name: str) -> frozenset[str] | None:
    """The attributes that hold the parameters of a module; None where there may be others."""
    if program.external_bases(class_name) != {"torch.nn.Module"}:
        return None
    for one in program.bases(class_name):
        found = program.classes[one]
        if found.decorators or any(stmt.targets for stmt in found.body):
            return None
    family = program.family(class_name)
    parts: set[str] = set()
    for qualname, function in program.functions.items():
        for stmt in ir.statements(function.body):
            if any(_adds(program, call, qualname) for call in calls_of(stmt)):
                return None
            if any(
                isinstance(inner, ir.Attr) and inner.attr in _REGISTERS
                for expr in stmt.exprs
                for inner in ir.walk(expr)
            ):
                return None
            for target, value, index in unpacked(stmt):
                if isinstance(target, ir.Item) and _is_vars(program, target, qualname):
                    return None
                if not isinstance(target, ir.Attr):
                    continue
                if not program.instance_classes(target.value, qualname) & family:
                    continue
                if index is not None or not (
                    _has_none(program, value, qualname)
                    or _is_size(program, target, qualname)
                ):
                    parts.add(target.attr)
    return frozenset(parts)


def _adds(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call may put a parameter into a module by another way than an assignment."""
    if program.origin(call.func, function) == "builtins.setattr":
        return True
    return ir.method_of(call) in _ADDS or (
        isinstance(call.func, ir.Attr) and _is_vars(program, call.func, function)
    )


def _is_vars(program: Program, part: ir.Attr | ir.Item, function: str) -> bool:
    """``vars(args)["size"]``, ``vars(args).update``"""
    return (
        isinstance(part.value, ir.Call)
        and program.origin(part.value.func, function) == "builtins.vars"
    )


def _has_none(program: Program, value: ir.Expr | None, function: str) -> bool:
    """Whether what is assigned is a number, a text, or a module without parameters."""
    if isinstance(value, ir.Const):
        return True
    if isinstance(value, ir.Operation):
        # Arithmetic on a parameter makes a tensor that is none.
        return value.op not in ("if", "and", "or")
    if value is not None and not isinstance(value, ir.Call):
        found = program.noted(PointsTo).whole(value, function)
        return bool(found) and all(_is_setting(program, one) for one in found)
    if not isinstance(value, ir.Call):
        return False
    origin = program.origin(value.func, function) or ""
    return origin.startswith("torch.distributions.") or (
        origin.startswith("torch.nn.")
        and origin.rsplit(".", 1)[-1] in _WITHOUT_PARAMETERS
    )


def _is_setting(program: Program, one: Object) -> bool:
    """Whether it is a number, a text, or what holds the options of a program."""
    match one.expr:
        case ir.Const():
            return not one.fields
        case ir.Call(func=func) as call if not one.fields:
            parses = ir.method_of(call) in PARSES and call.func != ir.Name("parse_args")
            return parses or (
                program.origin(func, one.function) == "argparse.Namespace"
            )
    return is_of_text(one)


def _is_size(program: Program, attribute: ir.Attr, function: str) -> bool:
    """Whether a function makes a tensor of so many elements in any case: ``torch.zeros(self.size)``."""
    return any(
        len(stmt.path) == len(program.functions[function].path) + 1
        and call.args
        and call.args[0] == ir.Arg(attribute)
        and ir.method_of(call) in operations("made")
        and (program.origin(call.func, function) or "").startswith("torch.")
        for stmt in program.statements(function)
        for call in calls_of(stmt)
    )
