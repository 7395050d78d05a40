"""What a module of this program is made of, where all of its parameters are in sight."""

from __future__ import annotations

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
                if not isinstance(target, ir.Attr):
                    continue
                if not program.instance_classes(target.value, qualname) & family:
                    continue
                if index is not None or not _has_none(program, value, qualname):
                    parts.add(target.attr)
    return frozenset(parts)


def _adds(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call may put a parameter into a module by another way than an assignment."""
    if program.origin(call.func, function) == "builtins.setattr":
        return True
    return ir.method_of(call) in _ADDS


def _has_none(program: Program, value: ir.Expr | None, function: str) -> bool:
    """Whether what is assigned is a number, a text, or a module without parameters."""
    if isinstance(value, ir.Const):
        return True
    if isinstance(value, ir.Operation):
        # Arithmetic on a parameter makes a tensor that is none.
        return value.op not in ("if", "and", "or")
    if isinstance(value, ir.Name):
        return _is_given_numbers(program, value.id, function)
    if not isinstance(value, ir.Call):
        return False
    origin = program.origin(value.func, function) or ""
    return (
        origin.startswith("torch.nn.")
        and origin.rsplit(".", 1)[-1] in _WITHOUT_PARAMETERS
    )


def _is_given_numbers(program: Program, name: str, function: str) -> bool:
    """Whether every call of a function gives a parameter a number or a text, or leaves it out."""
    param = program.param(function, name)
    sites = program.call_sites.get(function, [])
    if param is None or not sites or program.definitions(function, name):
        return False
    default = param.default
    return all(
        not any(arg.star for arg in site.call.args)
        and isinstance(program.argument_at(site, name) or default, ir.Const)
        for site in sites
    )
