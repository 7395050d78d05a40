"""Products of a value with its own transpose: sums of squares, the first to overflow in float16. So are
sums over a batch that statistics are kept of, where one infinite value stays for good. And products of
sparse matrices, which half precision does not have.

Such a product runs in an island of fp32 with its factors cast up, where its statement has nothing else
that autocast is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.catalogue.operations import operations
from amp_migrate.migrate.precision.formulas import difference, squared
from amp_migrate.migrate.precision.remedies import Remedies, factors_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of, unpacked
from amp_migrate.program.link import Program

_SPARSE = operations("sparse")
_KEEPS = frozenset("contiguous clone detach".split())
_CHANGES = frozenset("add_ copy_ lerp_ mul_ sub_".split())
_MATRIX_PRODUCTS = frozenset("spmm bspmm spspmm matmul".split())
_MAKES_SPARSE = re.compile(r"sparse_\w+_tensor|sparse\.\w*Tensor|to_sparse\w*")
_KEEPS_SPARSE = _KEEPS | frozenset(
    "coalesce cpu cuda float requires_grad_ t to".split()
)
_IS_SPARSE = "a product of a sparse matrix is not implemented in half precision"
_OF_DGL = ("dgl.sparse", "torch.ops.dgl_sparse")
_NO_DIGITS = (
    "a distance is what is left of large products: half precision has too few digits"
)
NO_ISLAND = (
    "a matrix of dgl.sparse and what it is multiplied with have to be of one dtype"
)
_CONVOLVES = re.compile(r"torch\.nn\.functional\.conv[123]d|torch\.conv[123]d")
_Product = tuple[ir.Expr, tuple[ir.Expr, ...] | None, str]
"""A product, its factors if those are followed, and what is to be said of it."""


def of_products(
    remedies: Remedies, forward: Forward, function: str, stmt: ir.Stmt
) -> Refusal | None:
    """A Gram matrix of values that are not normalized, or another such product, that cannot have an
    island."""
    program = remedies.program
    found = [p for e in stmt.exprs for p in _overflowing(program, function, e)]
    found = found or [*_traced(program, function, stmt)]
    found = found or [*_of_sparse(remedies, function, stmt)]
    found = found or [*_kept(program, function, stmt)]
    found = found or [*_in_distances(program, function, stmt)]
    found = found or [*_in_moments(program, function, stmt)]
    _raise_moments(remedies, function, stmt)
    found = found or [*_with_matrices_of_dgl(remedies, function, stmt)]
    for product, factors, message in found or _in_sines(program, function, stmt):
        if factors is None or not remedies.isolate(
            forward, function, stmt, product, factors
        ):
            code = "" if message is _NO_DIGITS else "AMP020"
            return Refusal(code, message, stmt.line)
    return None


def _traced(program: Program, function: str, stmt: ir.Stmt) -> Iterator[_Product]:
    """``torch.trace(a @ b.t())``: what is summed is left of many products, added up in half precision."""
    for call in calls_of(stmt):
        if ir.method_of(call) == "trace":
            for product in ir.walk(call):
                factors = factors_of(program, function, product)
                if factors is not None:
                    yield product, factors, "the trace of a product may overflow in float16"


def _of_sparse(remedies: Remedies, function: str, stmt: ir.Stmt) -> Iterator[_Product]:
    """``adj @ x``, where ``adj`` is made sparse."""
    for product in parts_of(stmt):
        factors = factors_of(remedies.program, function, product)
        if factors and any(
            _is_sparse(remedies, Made(factor, function, stmt)) for factor in factors
        ):
            yield product, factors, _IS_SPARSE


def _is_sparse(remedies: Remedies, at: Made) -> bool:
    program = remedies.program
    pending, seen = [at], set()
    while pending:
        at = pending.pop()
        if (id(at.expr), at.index) in seen:
            continue
        seen.add((id(at.expr), at.index))
        match at.expr:
            case ir.Call(func=func) as call:
                if _MAKES_SPARSE.fullmatch(_name(program, at.function, call)):
                    return True
                for callee in program.callees(call, at.function):
                    pending += remedies.flow.returned(callee, at.index) or ()
                if isinstance(func, ir.Attr) and func.attr in _KEEPS_SPARSE:
                    pending.append(at.inner(func.value))
            case ir.Display(items=items) if at.index is not None:
                pending += map(at.inner, items[at.index : at.index + 1])
            case _:
                pending += remedies.flow.made(at) or ()
    return False


def _kept(program: Program, function: str, stmt: ir.Stmt) -> Iterator[_Product]:
    """``sums = x.t() @ chosen``, where an attribute is updated by ``sums``."""
    value = stmt.value
    if stmt.kind != "assign" or value is None or len(stmt.targets) != 1:
        return
    factors = factors_of(program, function, value)
    if factors is None or not (
        "einsum" in set(ir.words_in(value)) or _turn(program, function, factors[0])
    ):
        return
    if any(_updates(s, stmt.targets[0]) for s in program.statements(function)):
        yield value, factors, "a sum that is kept may overflow in float16"


def _updates(stmt: ir.Stmt, name: ir.Expr) -> bool:
    """Whether a statement changes an attribute, of which something stays, by what a variable holds."""
    match stmt:
        case ir.Stmt(
            kind="assign" | "augassign" as kind,
            targets=(ir.Attr() as kept,),
            value=ir.Operation() | ir.Call() as value,
        ):
            parts = [*ir.walk(value)]
            return name in parts and (kind == "augassign" or kept in parts)
    for call in calls_of(stmt):
        changed = ir.before_calls(call, _CHANGES)
        if changed is not call and isinstance(changed, ir.Attr):
            if any(name in ir.walk(arg.value) for arg in call.args):
                return True
    return False


def _in_distances(program: Program, function: str, stmt: ir.Stmt) -> Iterator[_Product]:
    """``2 * x @ y.t()``, which is taken from the sums of the squares of ``x`` and ``y``: of a small distance
    between large values, half precision leaves no digits, or a negative number."""
    for product in (inner for expr in stmt.exprs for inner in ir.walk(expr)):
        factors = factors_of(program, function, product)
        if factors is None:
            continue
        bases = [_base(program, function, _undoubled(one))[0] for one in factors]
        doubled = any(map(_is_doubled, factors))
        squared = False
        for inner in (i for s in program.statements(function) for i in parts_of(s)):
            doubled |= _is_doubled(inner) and (
                any(one is product for one in ir.walk(inner))
                or (stmt.value is product and _undoubled(inner) in stmt.targets)
            )
            squared |= _square_in_sum(inner) in bases
        if doubled and squared:
            yield product, factors, _NO_DIGITS


def _in_moments(program: Program, function: str, stmt: ir.Stmt) -> Iterator[_Product]:
    """``F.conv2d(x * y, window) - mean_x * mean_y``, the covariance in a window, and the means: autocast
    convolves in half precision, and of what is left of such products that has no digits.
    """
    for call in calls_of(stmt):
        value, window = _convolved(program, function, call)
        if value is None or not any(
            window == of_product and _multiplied(_named(program, function, product))
            for other in program.statements(function)
            for inner in parts_of(other)
            for left, _ in (difference(inner) or (None, None),)
            for product, of_product in (
                _convolved(program, function, _named(program, function, left)),
            )
        ):
            continue
        parts = _multiplied(value) or (value,)
        plain = window is not None and all(isinstance(one, ir.Name) for one in parts)
        yield call, (*parts, window) if plain and window else None, _NO_DIGITS


def _raise_moments(remedies: Remedies, function: str, stmt: ir.Stmt) -> None:
    """``square = x * x``, which is convolved so: half precision has too few digits for it."""
    program = remedies.program
    for target, value, _ in unpacked(stmt):
        factors = _multiplied(value)
        if len(factors) == 2 and any(
            _convolved(program, function, call)[0] == target
            and any(_in_moments(program, function, other))
            for other in program.statements(function)
            for call in calls_of(other)
        ):
            raised = remedies.raised(function, stmt, factors[0], True)
            if raised is not None and value is not None:
                remedies.edits.update(dict.fromkeys(raised))
                remedies.halves.made_full.add(id(value))


def _named(program: Program, function: str, expr: ir.Expr | None) -> ir.Expr | None:
    """What a variable is given, if that is one thing; another expression itself."""
    value = _only_value(program, function, expr) if isinstance(expr, ir.Name) else None
    return expr if value is None else value


def _convolved(
    program: Program, function: str, expr: ir.Expr | None
) -> tuple[ir.Expr | None, ir.Expr | None]:
    """What a call convolves, and with what."""
    if not isinstance(expr, ir.Call):
        return None, None
    match _named(program, function, expr.func):
        case ir.Call(func=ir.Name(id="getattr"), args=(of, name)) if (
            program.origin(of.value, function) == "torch.nn.functional"
        ):
            # getattr(F, f"conv{dimensions}d")
            known = any("conv" in word for word in ir.words_in(name.value))
        case func:
            origin = func and program.origin(func, function)
            known = _CONVOLVES.fullmatch(origin or "") is not None
    if not known:
        return None, None
    return expr.argument(0, "input"), expr.argument(1, "weight")


def _multiplied(expr: ir.Expr | None) -> tuple[ir.Expr, ...]:
    """``x`` and ``y`` of ``x * y``, ``x`` of ``x ** 2``"""
    match expr:
        case ir.Operation(op="*", operands=(ir.Name(), ir.Name()) as operands):
            return operands
    base = None if expr is None else squared(expr)
    return () if base is None else (base,)


def _in_sines(program: Program, function: str, stmt: ir.Stmt) -> Iterator[_Product]:
    """``cosine = F.linear(F.normalize(x), F.normalize(w))``, from which ``sqrt(1 - cosine ** 2)`` follows: in
    half precision a cosine near 1 is 1, where the root has no finite gradient, or more, where it has none.
    """
    value = stmt.value
    if stmt.kind != "assign" or value is None or len(stmt.targets) != 1:
        return
    factors = factors_of(program, function, value)
    if factors is None and isinstance(value, ir.Call) and len(value.args) == 2:
        if program.origin(value.func, function) == "torch.nn.functional.linear":
            factors = value.args[0].value, value.args[1].value
    if factors is not None and any(
        _is_sine(program, function, call, stmt.targets[0])
        for other in program.statements(function)
        for call in calls_of(other)
    ):
        yield value, (_lengthened(factors[0]), _lengthened(factors[1])), _NO_DIGITS


def _with_matrices_of_dgl(
    remedies: Remedies, function: str, stmt: ir.Stmt
) -> Iterator[_Product]:
    """``A @ layer(x)``, ``dglsp.spmm(A, x)``, in a file that imports ``dgl.sparse``: autocast does not know
    these matrices, which are half where their values are; no island can tell."""
    program = remedies.program
    scopes = (program.modules[ir.file_of(function)].top, program.functions[function])
    imported = [target for scope in scopes for _, target in scope.imports]
    for inner in parts_of(stmt):
        match inner:
            case ir.Operation(op="@", operands=factors) if any(
                target.startswith(_OF_DGL) for target in imported
            ):
                pass
            case ir.Call(func=func, args=args) if (
                program.origin(func, function) or ""
            ).startswith(_OF_DGL) and ir.last_of(func) in _MATRIX_PRODUCTS:
                factors = tuple(arg.value for arg in args)
            case _:
                continue
        made = [Made(factor, function, stmt) for factor in factors]
        if not all(map(remedies.halves.is_never_half, made)):
            yield inner, None, NO_ISLAND


def _is_sine(program: Program, function: str, call: ir.Call, cosine: ir.Expr) -> bool:
    """``torch.sqrt(1.0 - cosine ** 2)``, clamped or not, or step by step."""
    return ir.method_of(call) == "sqrt" and any(
        isinstance(inner, ir.Operation)
        and inner.op == "-"
        and inner.operands[0] == ir.Const(1)
        and any(
            squared(part) == cosine
            for part in _spelled(program, function, inner.operands[1])
        )
        for inner in _spelled(program, function, call)
    )


def _spelled(program: Program, function: str, expr: ir.Expr) -> Iterator[ir.Expr]:
    """The parts of an expression, and of what variables in it are given once."""
    pending, names = [expr], set()
    while pending:
        for inner in ir.walk(pending.pop()):
            yield inner
            if isinstance(inner, ir.Name) and inner.id not in names:
                names.add(inner.id)
                value = _only_value(program, function, inner)
                pending += [] if value is None else [value]


def _lengthened(factor: ir.Expr) -> ir.Expr:
    """``x`` of ``F.normalize(x)``, which has to be fp32 before it is made short."""
    match factor:
        case ir.Call(func=ir.Attr(attr="normalize"), args=(given, *_)):
            return given.value
    return factor


def _is_doubled(expr: ir.Expr) -> bool:
    return _undoubled(expr) is not expr


def _undoubled(expr: ir.Expr) -> ir.Expr:
    """``x`` of ``2 * x``, ``-2.0 * x``."""
    match expr:
        case ir.Operation(op="*", operands=(ir.Const(value=2 | -2), other)):
            return other
    return expr


def _square_in_sum(expr: ir.Expr) -> ir.Expr | None:
    """``x`` of ``(x ** 2).sum(1)``, ``torch.sum(x * x, -1)``, ``x.pow(2).sum(1)``."""
    if not isinstance(expr, ir.Call) or not isinstance(expr.func, ir.Attr):
        return None
    if expr.func.attr != "sum":
        return None
    of_torch = expr.func.value == ir.Name("torch") and expr.args
    return squared(expr.args[0].value if of_torch else expr.func.value)


def _overflowing(program: Program, function: str, expr: ir.Expr) -> Iterator[_Product]:
    for inner in ir.walk(expr):
        factors = factors_of(program, function, inner)
        if isinstance(inner, ir.Call) and _name(program, function, inner) in _SPARSE:
            yield inner, factors, _IS_SPARSE
            continue
        areas = _summed_over_areas(program, function, inner)
        if areas:
            message = "a sum over two dimensions or more may overflow in float16"
            yield inner, areas, message
            continue
        if factors is None:
            continue
        same = _with_itself(inner, factors)
        if same is not None and not _is_normalized(program, function, same):
            message = "a product of a value with itself may overflow in float16"
            yield inner, factors, message
            continue
        (one, turned), (other, turned_too) = (
            _base(program, function, factor) for factor in factors
        )
        if turned is turned_too or one != other or _is_number(one):
            continue
        if not _is_normalized(program, function, one):
            message = (
                "a product of a value with its own transpose may overflow in float16"
            )
            yield inner, factors, message


def _with_itself(expr: ir.Expr, factors: tuple[ir.Expr, ir.Expr]) -> ir.Expr | None:
    """``x`` of ``einsum("bi,bi->b", x, x)``, ``bmm(x.unsqueeze(1), x.unsqueeze(2))``."""
    one, other = factors
    if isinstance(expr, ir.Call) and ir.method_of(expr) == "einsum":
        return one if one == other else None
    if all(isinstance(f, ir.Call) and ir.method_of(f) == "unsqueeze" for f in factors):
        values = [
            f.func.value
            for f in factors
            if isinstance(f, ir.Call) and isinstance(f.func, ir.Attr)
        ]
        if len(values) == 2 and values[0] == values[1] and one != other:
            return values[0]
    return None


def _summed_over_areas(
    program: Program, function: str, expr: ir.Expr
) -> tuple[ir.Expr, ...]:
    """What an `einsum` multiplies element by element, and sums over an image, say: ``p`` and ``t`` of
    ``einsum("bcwh,bcwh->bc", p, t)``."""
    match expr:
        case ir.Call(func=func, args=(ir.Arg(value=ir.Const(value=str(text))), *given)):
            taken, _, kept = text.replace(" ", "").partition("->")
            letters = {frozenset(one) for one in taken.split(",")}
            if len(letters) == 1 and len(letters.pop() - {*kept}) > 1:
                if program.origin(func, function) == "torch.einsum":
                    return tuple(arg.value for arg in given)
    return ()


def _name(program: Program, function: str, call: ir.Call) -> str:
    """What of torch is called, or which method."""
    origin = program.origin(call.func, function)
    return ir.method_of(call) if origin is None else origin.removeprefix("torch.")


def _base(program: Program, function: str, expr: ir.Expr) -> tuple[ir.Expr, bool]:
    """What is turned, and whether it is; also through a variable that is assigned once."""
    current: ir.Expr | None = expr
    turned = False
    for _ in range(8):
        if current is None:
            break
        expr = current
        turn = _turn(program, function, expr)
        if turn is not None:
            current = turn
            turned = not turned
        elif isinstance(expr, ir.Name):
            value = _only_value(program, function, expr)
            current = None
            if value is not None and (
                _turn(program, function, value) is not None
                or (isinstance(value, ir.Call) and ir.method_of(value) in _KEEPS)
            ):
                current = value
        elif isinstance(expr, ir.Call) and ir.method_of(expr) in _KEEPS:
            current = ir.receiver_of(expr)
        else:
            break
    return expr, turned


def _turn(program: Program, function: str, expr: ir.Expr) -> ir.Expr | None:
    """What is transposed, where an expression transposes."""
    if isinstance(expr, ir.Attr) and expr.attr in ("T", "mT", "H", "mH"):
        return expr.value
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        origin = program.origin(expr.func, function)
        if origin in ("torch.t", "torch.transpose", "torch.permute") and expr.args:
            return expr.args[0].value
        if origin is None and expr.func.attr in operations("turns"):
            return expr.func.value
    return None


def _only_value(program: Program, function: str, name: ir.Name) -> ir.Expr | None:
    found = program.set_to(name, function)
    return found[0].value if [one.index for one in found] == [None] else None


def _is_number(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const)


def _is_normalized(program: Program, function: str, expr: ir.Expr) -> bool:
    """Whether rows have length 1: their products are at most 1."""
    values = [expr]
    if isinstance(expr, ir.Name):
        owner = program.owner(expr.id, function)
        if owner is not None:
            values += [d.value for d in program.definitions(owner, expr.id) if d.value]
            values += [value for _, value in program.arguments(owner, expr.id)]
    for value in values:
        for inner in ir.walk(value):
            if isinstance(inner, ir.Call):
                name = (ir.key_of(inner.func) or "").rsplit(".", 1)[-1]
                if "normalize" in name:
                    return True
            if isinstance(inner, ir.Operation) and inner.op == "/":
                if "norm" in str(inner.operands[1]):
                    return True
    return False
