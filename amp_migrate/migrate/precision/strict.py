"""Programs that stop at a gradient that is not finite: a scaler makes such gradients on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.paths import gradients
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.analysis.tables.operators import ASKS, ATTRIBUTES
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, each_part
from amp_migrate.program.link import Program

_ANOMALY = re.compile(
    r"torch\.autograd\.(anomaly_mode\.)?(set_detect_anomaly|detect_anomaly)"
    r"|torch\._C\._set_anomaly_enabled"
)
_RAISES = re.compile(
    r"builtins\.int|math\.(floor|ceil|trunc)|numpy\.histogram|matplotlib\.pyplot\.hist|wandb\.Histogram"
    r"|torch\.(histc|histogram|multinomial)"
)
"""What takes no infinities, nor does `round` to an integer, or a method of the latter."""
_FINITE = frozenset("isfinite isnan isinf".split())
_NOWHERE: frozenset[str] = frozenset()
_EXITS = (("exit",), ("quit",), ("sys", "exit"), ("os", "_exit"), ("os", "abort"))


def of_call(program: Program, function: str, call: ir.Call) -> Refusal | None:
    """Calls that ask torch itself to raise."""
    origins = {
        ref.name
        for ref in program.resolve(call.func, function)
        if ref.kind == "external"
    }
    switched_off = call.args[:1] == (ir.Arg(ir.Const(False)),)
    if any(map(_ANOMALY.fullmatch, origins)) and not switched_off:
        message = "anomaly detection raises on the infinities that a scaler expects"
        return Refusal("AMP025", message, call.line)
    for arg in call.args:
        if arg.name == "error_if_nonfinite" and arg.value != ir.Const(False):
            message = (
                "error_if_nonfinite raises on the infinities that a scaler expects"
            )
            return Refusal("AMP025", message, call.line)
    return None


def of_aborts(
    program: Program, function: str, ends: frozenset[ir.Path]
) -> Refusal | None:
    """``assert torch.isfinite(norm)``, or an ``if`` of the kind that ends training; also ``norm < c``.
    ``ends``: the statements that leave training.
    """
    for stmt in program.statements(function):
        for call in calls_of(stmt):
            what = _raising(call, program, function)
            if what is not None and _is_of_gradients(what, program, function):
                message = f"{ir.last_of(call.func)}() raises on the infinities that a scaler expects"
                return Refusal("AMP025", message, stmt.line)
        aborting = _aborting(stmt, ends)
        if stmt.value is None or not aborting:
            continue
        judged = [
            *_judged(stmt.value, program, function, 0),
            *_compared(stmt.value, aborting, program, function, 0),
        ]
        if any(_is_of_gradients(expr, program, at) for expr, at in judged):
            message = (
                "stops at a gradient that is not finite, which a scaler expects to skip"
            )
            return Refusal("AMP025", message, stmt.line)
    return None


def _raising(call: ir.Call, program: Program, function: str) -> ir.Expr | None:
    """What a call takes that must be finite."""
    origin = program.origin(call.func, function) or ""
    taken = call.args[0].value if call.args else None
    if isinstance(call.func, ir.Attr) and not origin:
        if call.func.attr not in ("histc", "multinomial"):
            return None
        taken = call.func.value
    elif not _RAISES.fullmatch(origin) and (
        origin != "builtins.round" or len(call.args) > 1
    ):
        return None
    if taken is None or any(
        isinstance(inner, ir.Operation) and inner.op in _COMPARISONS
        for inner in ir.walk(taken)
    ):
        return None
    return taken


def ends_of_training(
    program: Program, function: str, trained: frozenset[str]
) -> frozenset[ir.Path]:
    """Where statements leave a loop that goes backward under a scale. ``trained``: the functions whose
    gradients a scaler scales."""
    found: set[ir.Path] = set()
    for loop in program.statements(function):
        if loop.kind not in ("for", "while"):
            continue
        inside = list(ir.statements((loop,)))
        if any(_goes_backward(program, function, stmt, trained) for stmt in inside):
            found |= {stmt.path for stmt in inside if stmt.kind == "return"}
            found |= {
                stmt.path
                for block in loop.blocks
                if block.field == "body"
                for stmt in _of_this_loop(block.body)
                if stmt.kind == "break"
            }
    return frozenset(found)


def _of_this_loop(block: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """The statements of a block, those of loops inside it left out."""
    for stmt in block:
        yield stmt
        if stmt.kind not in ("for", "while"):
            for inner in stmt.blocks:
                yield from _of_this_loop(inner.body)


def _goes_backward(
    program: Program, function: str, stmt: ir.Stmt, trained: frozenset[str]
) -> bool:
    """Whether a statement calls ``backward``, or a function that does, of those that are ``trained``."""
    return any(
        (function in trained and _is_backward(call))
        or any(
            _is_backward(inner)
            for callee in trained.intersection(program.callees(call, function))
            for _, inner in each_call(program.functions[callee].body)
        )
        for call in calls_of(stmt)
    )


def _is_backward(call: ir.Call) -> bool:
    return ir.method_of(call) == "backward"


def _aborting(stmt: ir.Stmt, ends: frozenset[ir.Path]) -> frozenset[bool]:
    """The outcomes of a statement's test at which the program stops."""
    if stmt.kind == "assert":
        return frozenset({False})
    if stmt.kind != "if":
        return frozenset()
    return frozenset(
        block.field == "body" for block in stmt.blocks if _aborts(block.body, ends)
    )


def _aborts(block: tuple[ir.Stmt, ...], ends: frozenset[ir.Path]) -> bool:
    return any(
        stmt.kind == "raise"
        or stmt.path in ends
        or (
            stmt.kind == "expr"
            and isinstance(stmt.value, ir.Call)
            and ir.dotted(stmt.value.func) in _EXITS
        )
        for stmt in ir.statements(block)
    )


def _judged(
    test: ir.Expr, program: Program, function: str, depth: int
) -> Iterator[tuple[ir.Expr, str]]:
    """What a test, also one kept in a variable, asks to be finite."""
    for inner in ir.walk(test):
        if isinstance(inner, ir.Call):
            if isinstance(inner.func, ir.Attr) and inner.func.attr in _FINITE:
                if inner.args:
                    yield inner.args[0].value, function
                else:
                    yield inner.func.value, function
            elif isinstance(inner.func, ir.Name) and inner.func.id in _FINITE:
                yield from ((arg.value, function) for arg in inner.args)
        elif isinstance(inner, ir.Operation) and any(map(_is_infinity, inner.operands)):
            yield from ((o, function) for o in inner.operands if not _is_infinity(o))
        elif isinstance(inner, ir.Name) and depth < 2:
            for value, at, _ in _values(inner, program, function):
                yield from _judged(value, program, at, depth + 1)


def _compared(
    test: ir.Expr,
    wanted: frozenset[bool],
    program: Program,
    function: str,
    depth: int,
) -> Iterator[tuple[ir.Expr, str]]:
    """What a test compares in such a way that inf or nan can give it one of the ``wanted`` outcomes."""
    if isinstance(test, ir.Name) and depth < 2:
        for value, at, _ in _values(test, program, function):
            yield from _compared(value, wanted, program, at, depth + 1)
        return
    inner = wanted
    if isinstance(test, ir.Operation):
        if test.op in ("not", "~"):
            inner = frozenset(not outcome for outcome in wanted)
        elif test.op in _COMPARISONS:
            inner = _BOTH
            same = len(set(test.operands)) < len(test.operands)
            for position, operand in enumerate(test.operands):
                if wanted & (_BOTH if same else _outcomes(test.op, position)):
                    yield operand, function
    for child in ir.children(test):
        yield from _compared(child, inner, program, function, depth)


_BOTH = frozenset({True, False})
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "compare")


def _outcomes(op: str, position: int) -> frozenset[bool]:
    """What a comparison may give where one of its operands is inf or nan."""
    if op == "==":
        return frozenset({False})
    if op == "!=":
        return frozenset({True})
    is_greater = op == "compare" or (op[0] == ">") == (position == 0)
    return _BOTH if is_greater else frozenset({False})


def _is_infinity(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Call) and expr.func == ir.Name("float"):
        return expr.args[:1] in (
            (ir.Arg(ir.Const("inf")),),
            (ir.Arg(ir.Const("nan")),),
        )
    return isinstance(expr, ir.Attr) and expr.attr in ("inf", "nan")


def _values(
    name: ir.Name, program: Program, function: str, entered: frozenset[str] = _NOWHERE
) -> Iterator[tuple[ir.Expr, str, int | None]]:
    """What a variable may have been given, and which element of that it is; ``entered``: functions
    whose arguments are judged where they are called."""
    owner = program.owner(name.id, function)
    if owner is None:
        return
    for d in program.definitions(owner, name.id):
        value = d.value if d.value is not None else d.stmt.value
        if value is not None and d.stmt.kind not in ("functiondef", "classdef"):
            yield value, d.function, d.index
    if owner not in entered:
        yield from (
            (value, at, None) for at, value in program.arguments(owner, name.id)
        )


def _is_of_gradients(
    expr: ir.Expr,
    program: Program,
    function: str,
    depth: int = 0,
    entered: frozenset[str] = _NOWHERE,
) -> bool:
    """Whether a value comes from gradients: ``p.grad``, a clip, a helper that reads them."""
    for inner in _numbers_in(expr):
        if isinstance(inner, ir.Attr) and inner.attr == "grad":
            if program.origin(inner, function) is None:
                return True
        elif isinstance(inner, ir.Call):
            if _reads_gradients(inner, program, function, depth, None):
                return True
        elif isinstance(inner, ir.Name) and depth < 3:
            for value, at, index in _values(inner, program, function, entered):
                if index is not None and isinstance(value, ir.Call):
                    if any(
                        _is_of_gradients(arg.value, program, at, depth + 1, entered)
                        for arg in value.args
                    ) or _reads_gradients(value, program, at, depth + 1, index):
                        return True
                elif value != expr and _is_of_gradients(
                    value, program, at, depth + 1, entered
                ):
                    return True
    return False


def _numbers_in(expr: ir.Expr) -> Iterator[ir.Expr]:
    """What a value is computed from: of ``grad.shape`` and ``grad.size(0)`` nothing, whatever is in it."""
    match expr:
        case ir.Attr(attr=asked) if asked in ATTRIBUTES:
            return
        case ir.Call(func=ir.Attr(attr=asked)) if asked in ASKS:
            return
        case ir.Call(func=ir.Name(id="len" | "isinstance" | "type")):
            return
    yield expr
    for child in ir.children(expr):
        yield from _numbers_in(child)


def _reads_gradients(
    call: ir.Call, program: Program, function: str, depth: int, index: int | None
) -> bool:
    """Whether what a call returns, or that element of it, is read from gradients that are not given to
    it as such."""
    if gradients.is_helper(program, call, function):
        return True
    return depth < 3 and any(
        _returns_gradients(callee, program, depth, index)
        for callee in program.callees(call, function)
    )


def _returns_gradients(
    callee: str, program: Program, depth: int, index: int | None
) -> bool:
    """Whether what a function returns, as a whole or that element of it, comes from gradients."""
    body = program.functions[callee].body
    returned = [
        stmt.value
        for stmt in ir.statements(body)
        if stmt.kind == "return" and stmt.value not in (None, ir.Const(None))
    ]
    calls = [call for _, call in each_call(body)]
    methods = {c.func.attr for c in calls if isinstance(c.func, ir.Attr)}
    if returned and not methods & {"backward", "step"}:
        # What it finds in gradients it returns by ways that are not all followed.
        if any(
            isinstance(inner, ir.Attr)
            and inner.attr == "grad"
            and program.origin(inner, callee) is None
            for _, inner in each_part(body)
        ):
            return True
    for value in returned:
        if isinstance(value, ir.Display):
            if index is None or index >= len(value.items):
                continue
            value = value.items[index]
        if value is not None and _is_of_gradients(
            value, program, callee, depth + 1, frozenset((callee,))
        ):
            return True
    return False
