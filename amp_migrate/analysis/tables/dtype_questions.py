"""Whether code asks for the dtype of its tensors, or looks at their bits: in half it would go astray.

To take a dtype along is no question: ``torch.zeros(3, dtype=x.dtype)``, ``y.to(x.dtype)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from amp_migrate.analysis.tables import dtype_table
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of, unpacked
from amp_migrate.program.link import Program

_SAYS = frozenset("dtype itemsize nbytes".split())
_ASKS = frozenset(
    "type element_size storage untyped_storage typed_storage tolist".split()
)
_CASTS = frozenset("to type astype".split())
_DTYPE = re.compile(r"torch\.(u?int\d*|b?float\d*|double|half|long|short|u?char|bool)")
_TYPED = re.compile(r"torch\.(cuda\.)?[A-Z]\w+Tensor")
_CUDA_FLOATS = "torch.cuda.FloatTensor"
_ON_DEVICES = ("torch.nn.parallel.data_parallel",)
_HALVES = frozenset(("torch.float16", "torch.half", "torch.bfloat16"))
_RANGES = frozenset(("torch.finfo", "torch.iinfo"))
_ABOUT_SHAPES = frozenset(
    """shape ndim is_cuda device requires_grad size dim numel is_contiguous isinstance len stride
    is_floating_point is_tensor""".split()
)


_TESTS = ("==", "!=", "is", "is not", "in", "not in", "compare")
"""The last is a chain of them."""


def tested(
    program: Program, function: str, stmt: ir.Stmt, half: str
) -> Iterator[ir.Expr]:
    """The tensors whose dtype a statement compares, ``h.dtype == torch.float32``, where it makes a
    difference whether they are ``half``, the dtype of autocast, and that is not what it is for: to choose
    a number, ``eps = 1e-6 if h.dtype == torch.float16 else 1e-12``."""
    meant = {
        id(test)
        for one in parts_of(stmt)
        if isinstance(one, ir.Operation) and one.op == "if"
        for test, *numbers in (one.operands,)
        if _tells_half(program, test, function) and all(map(_is_number, numbers))
    }
    for inner in parts_of(stmt):
        if id(inner) in meant:
            continue
        if isinstance(inner, ir.Call) and len(inner.args) == 2:
            if program.origin(inner.func, function) == "builtins.isinstance":
                # No tensor of half precision is one.
                kinds = ir.walk(inner.args[1].value)
                if _CUDA_FLOATS in {program.origin(one, function) for one in kinds}:
                    yield inner.args[0].value
        match inner:
            case ir.Item(
                value=table, key=ir.Attr(value=tensor, attr="dtype")
            ) if not _has_halves(program, table, function):
                yield tensor
            case ir.Call(
                func=ir.Attr(value=tensor, attr="view"), args=(_,)
            ) if _asks_by_call(program, function, inner, "view"):
                yield tensor
        if not isinstance(inner, ir.Operation) or inner.op not in _TESTS:
            continue
        # Of what is compared with the name of another type it does not matter.
        is_name = any(isinstance(one, ir.Const) for one in inner.operands)
        for operand in inner.operands:
            match operand:
                case ir.Call(
                    func=ir.Attr(value=tensor, attr="type" | "element_size" as attr),
                    args=(),
                ) if (
                    attr == "element_size"
                    or not is_name
                    or ir.Const(_CUDA_FLOATS) in inner.operands
                ):
                    yield tensor
                case ir.Call(
                    func=ir.Name(id="str"),
                    args=(ir.Arg(value=ir.Attr(value=tensor, attr="dtype")),),
                ) if (
                    ir.Const("torch.float32") in inner.operands
                ):
                    yield tensor
        if any(
            _is_integer_dtype(program, one, function)
            or _is_no_dtype_of_torch(program, one, function)
            or _are_both_precisions(program, one, function, half)
            for one in inner.operands
        ) or (_casts_up(program, function, stmt) or _rescues(program, function, stmt)):
            continue
        for operand in inner.operands:
            match operand:
                case ir.Attr(value=ir.Attr(attr="weight" | "bias")):
                    continue
                case ir.Attr(value=tensor, attr="dtype"):
                    yield tensor
                case ir.Name(id=name) if not any(
                    program.origin(one, function) in _HALVES for one in inner.operands
                ):
                    # What asks whether it is half is made for that.
                    for made in program.defined(name, function):
                        match made.value:
                            case ir.Attr(value=tensor, attr="dtype") if (
                                made.function == function and made.index is None
                            ):
                                yield tensor


def _all_of(test: ir.Expr | None) -> Sequence[ir.Expr]:
    """What must hold for a test to hold."""
    match test:
        case ir.Operation(op="and", operands=operands):
            return operands
    return () if test is None else (test,)


def suits_fp32(program: Program, function: str, stmt: ir.Stmt, tensor: ir.Expr) -> bool:
    """Whether a test of a half tensor may be answered as for the fp32 one that it is without AMP: it asks
    for the device, to move something or to compute there, or whether two tensors are of one type.
    """
    if stmt.kind != "if":
        return False
    for test in _all_of(stmt.value):
        match test:
            case ir.Call(func=func, args=(ir.Arg(value=asked), _)) if asked is tensor:
                return program.origin(func, function) == "builtins.isinstance" and all(
                    one.kind in ("assign", "return")
                    and isinstance(one.value, ir.Call)
                    and (
                        ir.method_of(one.value) == "cuda"
                        or program.origin(one.value.func, function) in _ON_DEVICES
                    )
                    for one in stmt.blocks[0].body
                )
    return any(
        isinstance(test, ir.Operation)
        and test.op in ("==", "!=")
        and all(
            isinstance(one, ir.Call) and ir.method_of(one) == "type" and not one.args
            for one in test.operands
        )
        and any(tensor is inner for inner in ir.walk(test))
        for test in parts_of(stmt)
    )


def _is_no_dtype_of_torch(program: Program, expr: ir.Expr, function: str) -> bool:
    """``np.float32``, ``"float32"``: what is equal to these belongs to an array or a space."""
    if isinstance(expr, ir.Display):
        return bool(expr.items) and all(
            _is_no_dtype_of_torch(program, item, function) for item in expr.items
        )
    if isinstance(expr, ir.Call):
        expr = expr.func
    return isinstance(expr, ir.Const) or (
        program.origin(expr, function) or ""
    ).startswith("numpy.")


def _are_both_precisions(
    program: Program, expr: ir.Expr, function: str, half: str
) -> bool:
    """``(torch.float16, torch.float32)``, where a test of either comes to the same."""
    if not isinstance(expr, ir.Display):
        return False
    names = {program.origin(one, function) for one in expr.items}
    halves = {f"torch.{half}"}
    if half == "float16":
        halves.add("torch.half")
    return bool(names & halves) and not names.isdisjoint(
        ("torch.float", "torch.float32")
    )


def _casts_up(program: Program, function: str, stmt: ir.Stmt) -> bool:
    """``if x.dtype == torch.float16: x = x.float()``, which is as it should be."""
    match stmt:
        case ir.Stmt(
            kind="if",
            value=ir.Operation(
                op="==", operands=(ir.Attr(value=tensor, attr="dtype"), named)
            ),
            blocks=(
                ir.Block(
                    body=(ir.Stmt(kind="assign", targets=(target,), value=value),)
                ),
                *others,
            ),
        ) if target == tensor and not any(block.body for block in others):
            half = program.origin(named, function) in ("torch.float16", "torch.half")
            match value:
                case ir.Call(func=ir.Attr(value=cast, attr="float"), args=()):
                    return half and cast == tensor
                case ir.Call(
                    func=ir.Attr(value=cast, attr="to" | "type"), args=(dtype,)
                ):
                    origin = program.origin(dtype.value, function) or ""
                    return (
                        half
                        and cast == tensor
                        and bool(dtype_table.FLOAT.fullmatch(origin))
                    )
    return False


def _rescues(program: Program, function: str, stmt: ir.Stmt) -> bool:
    """``if x.isnan() and x.dtype == torch.float16: x = ...``: there for half precision, and where nothing
    is lost that is not lost already."""
    match stmt:
        case ir.Stmt(
            kind="if", value=ir.Operation(op="and", operands=tests), blocks=blocks
        ):
            return (
                any(_tells_half(program, one, function) for one in tests)
                and any(map(_is_of_overflow, tests))
                and all(_goes_on(program, s, function) for s in blocks[0].body)
                and not any(block.body for block in blocks[1:])
            )
    return False


def _is_number(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and isinstance(expr.value, (int, float))


def _has_halves(program: Program, table: ir.Expr, function: str) -> bool:
    """Whether a table by dtypes is made for half precision, too."""
    made = (table, *(d.value for d in program.definitions_of(table, function)))
    keys = (key for one in made if isinstance(one, ir.Display) for key in one.keys)
    return any(key and program.origin(key, function) in _HALVES for key in keys)


def _tells_half(program: Program, test: ir.Expr, function: str) -> bool:
    match test:
        case ir.Operation(op="==" | "is", operands=(ir.Attr(attr="dtype"), named)):
            return program.origin(named, function) in _HALVES
    return False


def _is_of_overflow(test: ir.Expr) -> bool:
    """``torch.isnan(x)``, ``x.isinf().any()``, ``not torch.isfinite(x).all()``"""
    match test:
        case ir.Operation(op="not", operands=(operand,)):
            return _asks_of(operand, "all", "isfinite")
    return any(_asks_of(test, "any", name) for name in ("isnan", "isinf"))


def _asks_of(test: ir.Expr, join: str, name: str) -> bool:
    match test:
        case ir.Call(func=ir.Attr(value=ir.Call() as inner, attr=attr), args=()):
            if attr in (join, "item"):
                return _asks_of(inner, join, name)
    return isinstance(test, ir.Call) and ir.method_of(test) == name


def _goes_on(program: Program, stmt: ir.Stmt, function: str) -> bool:
    """Whether a statement gives a variable another value, and stops nothing."""
    return (
        stmt.kind == "assign"
        and all(isinstance(target, ir.Name) for target in stmt.targets)
        and not any(
            inner.kind in ("raise", "assert")
            for call in calls_of(stmt)
            for callee in program.callees(call, function)
            for inner in program.statements(callee)
        )
    )


def _is_integer_dtype(program: Program, expr: ir.Expr, function: str) -> bool:
    """``torch.bool``, or a choice of such."""
    inside = expr.items if isinstance(expr, ir.Display) else (expr,)
    return bool(inside) and all(
        dtype_table.INTEGERS.fullmatch(program.origin(one, function) or "")
        for one in inside
    )


def asks_for_dtype(program: Program, function: str) -> bool:
    """Whether what a function does may depend on the dtype that its tensors have."""
    body = list(program.statements(function))
    kept = set(_kept(body))
    return any(_asks(program, function, stmt, kept) for stmt in body)


def _kept(body: list[ir.Stmt]) -> Iterator[str]:
    """The variables and attributes that hold a dtype."""
    for stmt in body:
        for target, value, _ in unpacked(stmt):
            key = ir.key_of(target)
            if key is not None and isinstance(value, ir.Attr) and value.attr in _SAYS:
                yield key


def _asks(program: Program, function: str, stmt: ir.Stmt, kept: set[str]) -> bool:
    if stmt.kind == "assert" and any(_is_of_values(expr) for expr in stmt.exprs):
        return True
    taken = {id(value) for target, value, _ in unpacked(stmt) if ir.key_of(target)}
    for call in calls_of(stmt):
        name = ir.last_of(call.func)
        if _asks_by_call(program, function, call, name):
            return True
        for arg in call.args:
            if arg.name == "dtype" or (arg.name is None and name in _CASTS):
                taken.add(id(arg.value))
    held = {id(target) for target, _, _ in unpacked(stmt)}
    for inner in parts_of(stmt):
        says = isinstance(inner, ir.Attr) and inner.attr in _SAYS
        if (says or ir.key_of(inner) in kept) and id(inner) not in taken | held:
            return True
        origin = program.origin(inner, function) or ""
        if _TYPED.fullmatch(origin) or origin in _RANGES:
            return True
    return False


def _asks_by_call(
    program: Program, function: str, call: ir.Call, name: str | None
) -> bool:
    if name in _ASKS and isinstance(call.func, ir.Attr) and not call.args:
        return True
    return name == "view" and any(
        arg.name == "dtype"
        or (
            ir.key_of(arg.value) is not None
            and (
                ir.last_of(arg.value) in _SAYS
                or any(
                    ref.kind == "external" and _DTYPE.fullmatch(ref.name)
                    for ref in program.resolve(arg.value, function)
                )
            )
        )
        for arg in call.args
    )


def _is_of_values(expr: ir.Expr) -> bool:
    """Whether an asserted condition may be about more than shapes."""
    return any(
        isinstance(inner, ir.Call) and ir.last_of(inner.func) not in _ABOUT_SHAPES
        for inner in ir.walk(expr)
    )
