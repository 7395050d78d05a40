"""What ``.to(...)`` is given: a device, a dtype, or a tensor to be like."""

from __future__ import annotations

import re

from amp_migrate.analysis.tables.loaders import names_data
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

DEVICE, DTYPE, TENSOR, UNKNOWN = "device", "dtype", "tensor", "unknown"

_NAMES_DEVICE = re.compile(
    r"(?i)(^|[._])(\w*device\w*|\w*dev|\w*cuda\w*|\w*gpu\w*|\w*cpu|\w*rank|ctx|where|place)(\[.*\])?$"
)
_MAKES_DEVICE = re.compile(
    r"torch\.(device|accelerator\.\w+|cuda\.\w+|get_default_device)"
)
_DTYPE = re.compile(
    r"torch\.(b?float\w*|double|half|u?int\w*|long|short|bool|complex\w*|c(half|float|double))"
)
_TENSOR_METHODS = operations("first") | frozenset(
    "float double half bfloat16 long int bool new_ones new_zeros new_full".split()
)
_DEEPEST = 4


def kind_of(program: Program, expr: ir.Expr, function: str, depth: int = 0) -> str:
    """Which of them an expression is; what it is called decides where no value of it is in sight."""
    if depth > _DEEPEST:
        return UNKNOWN
    origin = program.origin(expr, function)
    if origin is not None:
        return DTYPE if _DTYPE.fullmatch(origin) else UNKNOWN
    match expr:
        case ir.Const(value=value):
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                return DEVICE
            return UNKNOWN
        case ir.Attr(attr="dtype"):
            return DTYPE
        case ir.Attr(attr="device"):
            return DEVICE
        case ir.Operation(op="joinedstr"):
            return DEVICE
        case ir.Operation(op="if" | "or" | "and" as op, operands=operands):
            values = operands[1:] if op == "if" else operands
            return _common([kind_of(program, o, function, depth + 1) for o in values])
        case ir.Operation(op="+" | "-" | "*" | "/" | "@", operands=operands):
            kinds = {kind_of(program, o, function, depth + 1) for o in operands}
            return TENSOR if TENSOR in kinds else UNKNOWN
        case ir.Call():
            return _of_call(program, expr, function, depth)
        case ir.Item(value=value):
            found = kind_of(program, value, function, depth + 1)
            return TENSOR if found == TENSOR else _by_name(expr)
    found = _common(_of_values(program, expr, function, depth))
    return found if found != UNKNOWN else _by_name(expr)


def _common(kinds: list[str]) -> str:
    known = {kind for kind in kinds if kind != UNKNOWN}
    return known.pop() if len(known) == 1 else UNKNOWN


def _by_name(expr: ir.Expr) -> str:
    return DEVICE if _NAMES_DEVICE.search(ir.key_of(expr) or "") else UNKNOWN


def _of_call(program: Program, call: ir.Call, function: str, depth: int) -> str:
    origin = program.origin(call.func, function)
    if origin is not None:
        if _MAKES_DEVICE.fullmatch(origin):
            return DEVICE
        return TENSOR if origin.startswith("torch.") else UNKNOWN
    returned = [
        kind_of(program, value, at, depth + 1)
        for at, value in program.returns(call, function)
    ]
    if returned:
        return _common(returned)
    if not isinstance(call.func, ir.Attr):
        return UNKNOWN
    if call.func.attr in _TENSOR_METHODS:
        return TENSOR
    return _by_name(call.func)


def _of_values(program: Program, expr: ir.Expr, function: str, depth: int) -> list[str]:
    """Of all that a variable or an attribute is given."""
    definitions: list[Definition] = []
    given: list[tuple[str, ir.Expr]] = []
    if isinstance(expr, ir.Attr):
        for class_name in program.instance_classes(expr.value, function):
            definitions += program.attribute_definitions(class_name, expr.attr)
    elif isinstance(expr, ir.Name):
        owner = program.owner(expr.id, function)
        if owner is not None:
            definitions += program.definitions(owner, expr.id)
            given += program.arguments(owner, expr.id)
    found = []
    for d in definitions:
        if d.value is not None and d.index is None:
            given.append((d.function, d.value))
        elif d.stmt.kind == "for" and d.stmt.value is not None:
            if names_data(d.stmt.value) and _by_name(expr) == UNKNOWN:
                found.append(TENSOR)
    return found + [kind_of(program, value, at, depth + 1) for at, value in given]
