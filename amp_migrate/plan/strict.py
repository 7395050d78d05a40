"""Programs that stop at a gradient that is not finite: a scaler makes such gradients on purpose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from amp_migrate.facts import ir
from amp_migrate.plan import vocabulary
from amp_migrate.plan.loops import Refusal
from amp_migrate.project.bindings import calls_of
from amp_migrate.project.link import Program

_ANOMALY = re.compile(
    r"torch\.autograd\.(anomaly_mode\.)?(set_detect_anomaly|detect_anomaly)"
    r"|torch\._C\._set_anomaly_enabled"
)
_FINITE = frozenset("isfinite isnan isinf".split())
_GRADIENT_WORD = re.compile(r"(?i)grad|(^|_)clip")
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


def of_aborts(program: Program, functions: Collection[str]) -> Refusal | None:
    """``assert torch.isfinite(norm)``, or an ``if`` of the kind that ends training; also ``norm < c``."""
    for qualname in functions:
        body = program.functions[qualname].body
        ends = _ends_of_training(program, qualname)
        for stmt in ir.statements(body):
            aborting = _aborting(stmt, ends)
            if stmt.value is None or not aborting:
                continue
            judged = [
                *_judged(stmt.value, program, qualname, 0),
                *_compared(stmt.value, aborting, program, qualname, 0),
            ]
            if any(_is_of_gradients(expr, program, at) for expr, at in judged):
                message = "stops at a gradient that is not finite, which a scaler expects to skip"
                return Refusal("AMP025", message, stmt.line)
    return None


def _ends_of_training(program: Program, function: str) -> frozenset[ir.Path]:
    """Where statements leave a loop that goes backward."""
    found: set[ir.Path] = set()
    for loop in ir.statements(program.functions[function].body):
        if loop.kind not in ("for", "while"):
            continue
        inside = list(ir.statements((loop,)))
        if any(_goes_backward(program, function, stmt) for stmt in inside):
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


def _goes_backward(program: Program, function: str, stmt: ir.Stmt) -> bool:
    """Whether a statement calls ``backward``, or a function that does."""
    return any(
        _is_backward(call)
        or any(
            _is_backward(inner)
            for callee in program.callees(call, function)
            for other in ir.statements(program.functions[callee].body)
            for inner in calls_of(other)
        )
        for call in calls_of(stmt)
    )


def _is_backward(call: ir.Call) -> bool:
    return isinstance(call.func, ir.Attr) and call.func.attr == "backward"


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
            for value, at in _values(inner, program, function):
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
        for value, at in _values(test, program, function):
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
    expr: ir.Expr, program: Program, function: str
) -> Iterator[tuple[ir.Expr, str]]:
    if isinstance(expr, ir.Name):
        owner = program.owner(expr.id, function)
        for d in program.definitions(owner, expr.id) if owner is not None else ():
            value = d.value if d.value is not None else d.stmt.value
            if value is not None and d.stmt.kind not in ("functiondef", "classdef"):
                yield value, d.function
        if owner is not None and expr.id in {
            param.name for param in program.functions[owner].params
        }:
            yield from ((value, at) for at, value in program.arguments(owner, expr.id))


def _is_of_gradients(
    expr: ir.Expr, program: Program, function: str, depth: int = 0
) -> bool:
    """Whether a value comes from gradients: ``p.grad``, a clip, a helper that reads them."""
    for inner in ir.walk(expr):
        if isinstance(inner, ir.Attr) and inner.attr == "grad":
            if program.origin(inner, function) is None:
                return True
        elif isinstance(inner, ir.Call):
            origin = program.origin(inner.func, function) or ""
            name = (ir.key_of(inner.func) or "").rsplit(".", 1)[-1]
            if vocabulary.GRADIENT_CLIPPERS.fullmatch(origin):
                return True
            if not origin.startswith("torch.") and _GRADIENT_WORD.search(name):
                return True
            callees = program.callees(inner, function)
            if depth < 2 and (
                _reads_gradients(callees, program)
                or any(_returns_gradients(callee, program, depth) for callee in callees)
            ):
                return True
        elif isinstance(inner, ir.Name) and depth < 3:
            if any(
                _is_of_gradients(value, program, at, depth + 1)
                for value, at in _values(inner, program, function)
                if value != expr
            ):
                return True
    return False


def _returns_gradients(callee: str, program: Program, depth: int) -> bool:
    """Whether what a function returns, as a whole, comes from gradients."""
    return any(
        stmt.kind == "return"
        and stmt.value is not None
        and not isinstance(stmt.value, ir.Display)
        and _is_of_gradients(stmt.value, program, callee, depth + 1)
        for stmt in ir.statements(program.functions[callee].body)
    )


def _reads_gradients(callees: tuple[str, ...], program: Program) -> bool:
    """Whether functions return what they found in gradients, not what they trained on."""
    for callee in callees:
        body = program.functions[callee].body
        calls = [call for stmt in ir.statements(body) for call in calls_of(stmt)]
        methods = {c.func.attr for c in calls if isinstance(c.func, ir.Attr)}
        if methods & {"backward", "step"}:
            continue
        for stmt in ir.statements(body):
            for expr in stmt.exprs:
                for inner in ir.walk(expr):
                    if isinstance(inner, ir.Attr) and inner.attr == "grad":
                        if program.origin(inner, callee) is None:
                            return True
    return False
