"""What raises, or vanishes, where a region of autocast computes in half precision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.analysis.tables.vocabulary import HALVES
from amp_migrate.analysis.values.bce import BceLosses
from amp_migrate.program import ir
from amp_migrate.program.link import Program

BCE = "AMP204"
OVERFLOW = "AMP205"
VANISHING = "AMP206"
CUSTOM = "AMP207"

_FP16 = HALVES["float16"]
_PRODUCTS = re.compile(
    r"torch\.(matmul|bmm|mm|einsum|addmm|baddbmm|addbmm)"
    r"|torch\.nn\.functional\.(linear|bilinear|conv[123]d|conv_transpose[123]d)"
)
"""Functions that autocast computes in half precision, whatever they are given."""
_LAYERS = re.compile(
    r"torch\.nn\.(modules\.\w+\.)?(Linear|Conv[123]d|ConvTranspose[123]d)"
)
_METHODS = frozenset("matmul bmm mm".split())
_KEEPS = frozenset(
    """view reshape permute transpose contiguous unsqueeze squeeze flatten repeat expand masked_fill
    masked_fill_ sigmoid tanh relu abs clone t""".split()
)
"""Methods whose result has the dtype of what they are called on."""
_KEEPING = re.compile(
    r"torch\.(sigmoid|tanh|relu|abs|squeeze|unsqueeze|transpose|permute|reshape|flatten)"
    r"|torch\.nn\.functional\.(relu|leaky_relu|gelu|silu|dropout)"
)
_FILLS = {"masked_fill": 1, "masked_fill_": 1, "fill_": 0, "new_full": 1}
_FULL_LIKE = "torch.full_like"
_LARGEST = re.compile(r"torch\.(float32|float|float64|double)")


@dataclass(frozen=True, slots=True)
class Numeric:
    """Something that matters where a region is open."""

    code: str
    call: ir.Call
    message: str = ""


class Numerics:
    """Finds them in the statements of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._losses = BceLosses(program)
        self._names_bce: dict[str, bool] = {}
        """Of a file, whether any word in it may name such a loss."""

    def of(self, stmt: ir.Stmt, function: str) -> Iterator[Numeric]:
        """What one statement does."""
        file = ir.file_of(function)
        if file not in self._names_bce:
            words = self.program.modules[file].identifiers
            self._names_bce[file] = any(
                "bce" in word.lower() or "entropy" in word for word in words
            )
        own_bce = self._names_bce[file]
        for expr in stmt.exprs:
            for call in ir.calls_in(expr):
                if own_bce and self._losses.computes(call, function):
                    yield Numeric(BCE, call)
                message = self._overflow(call, function)
                if message:
                    yield Numeric(OVERFLOW, call, message)
                message = self._vanishing(call, function)
                if message:
                    yield Numeric(VANISHING, call, message)
                if self._is_custom(call, function):
                    yield Numeric(CUSTOM, call)

    # -- overflow -------------------------------------------------------------------------------

    def _overflow(self, call: ir.Call, function: str) -> str:
        value: ir.Expr | None = None
        held: ir.Expr | None = None
        if self.program.origin(call.func, function) == _FULL_LIKE:
            held, value = call.argument(0, "input"), call.argument(1, "fill_value")
            if call.argument(99, "dtype") is not None:
                return ""
        elif isinstance(call.func, ir.Attr) and call.func.attr in _FILLS:
            held = call.func.value
            position = _FILLS[call.func.attr]
            name = "fill_value" if call.func.attr == "new_full" else "value"
            value = call.argument(position, name)
            if call.argument(99, "dtype") is not None:
                return ""
        if value is None or held is None or not self._is_too_large(value, function):
            return ""
        if not self.is_half(held, function):
            return ""
        return (
            f"{ir.render(value) or 'this number'} is beyond float16, whose largest number is 65504:"
            " it raises under autocast"
        )

    def _is_too_large(self, value: ir.Expr, function: str) -> bool:
        match value:
            case ir.Const(value=int() | float() as number):
                return _FP16.largest < abs(number) < float("inf")
            case ir.Attr(value=ir.Call(args=(arg,)) as call, attr="min" | "max"):
                if self.program.origin(call.func, function) == "torch.finfo":
                    dtype = self.program.origin(arg.value, function) or ""
                    return bool(_LARGEST.fullmatch(dtype))
            case ir.Call(args=(arg,)):
                if self.program.origin(value.func, function) == "builtins.float":
                    return self._is_too_large(_number(arg.value), function)
        return False

    # -- epsilons -------------------------------------------------------------------------------

    def _vanishing(self, call: ir.Call, function: str) -> str:
        """``log(h + 1e-8)``: the sum is ``h`` where that is half."""
        given: ir.Expr | None = None
        if self.program.origin(call.func, function) == "torch.log":
            given = call.argument(0, "input")
        elif isinstance(call.func, ir.Attr) and call.func.attr == "log":
            given = call.func.value
        match given:
            case ir.Operation(op="+", operands=(left, ir.Const(value=float() as eps))):
                # Half of the smallest number is rounded to nothing.
                if 0 < eps < _FP16.smallest / 2 and self.is_half(left, function):
                    return (
                        f"{eps:g} is nothing in float16, whose smallest number is 6e-8: this is the"
                        " logarithm of 0 where it should help; compute it on .float()"
                    )
        return ""

    # -- dtypes ---------------------------------------------------------------------------------

    def is_half(
        self, expr: ir.Expr, function: str, seen: frozenset[str] = frozenset()
    ) -> bool:
        """Whether a tensor is float16 in a region of float16, for all that is seen here."""
        match expr:
            case ir.Operation(op="@"):
                return True
            case ir.Operation(op="*" | "/", operands=(left, right)):
                if self._is_number(right, function):
                    return self.is_half(left, function, seen)
                return self._is_number(left, function) and self.is_half(
                    right, function, seen
                )
            case ir.Operation(op="-x", operands=(inner,)):
                return self.is_half(inner, function, seen)
            case ir.Call():
                return self._makes_half(expr, function, seen)
            case ir.Name(id=name):
                if name in seen:
                    return True
                owner = self.program.owner(name, function)
                if owner != function or any(
                    p.name == name for p in self.program.functions[function].params
                ):
                    return False
                found = self.program.definitions(function, name)
                return bool(found) and all(
                    d.value is not None
                    and d.index is None
                    and d.stmt.kind == "assign"
                    and self.is_half(d.value, function, seen | {name})
                    for d in found
                )
        return False

    def _makes_half(self, call: ir.Call, function: str, seen: frozenset[str]) -> bool:
        origin = self.program.origin(call.func, function)
        if origin is not None:
            if _PRODUCTS.fullmatch(origin):
                return True
            given = call.argument(0, "input")
            return (
                bool(_KEEPING.fullmatch(origin))
                and given is not None
                and self.is_half(given, function, seen)
            )
        refs = self.program.resolve(call.func, function)
        if refs:
            return all(
                ref.kind == "made" and _LAYERS.fullmatch(ref.name) for ref in refs
            )
        if isinstance(call.func, ir.Attr):
            if call.func.attr in _METHODS:
                return True
            if call.func.attr in _KEEPS:
                return self.is_half(call.func.value, function, seen)
        return False

    def _is_number(self, expr: ir.Expr, function: str, depth: int = 0) -> bool:
        """Whether a factor is a plain number, which leaves the dtype of a tensor as it is."""
        if depth > 3:
            return False
        match expr:
            case ir.Const(value=int() | float()):
                return True
            case ir.Operation(op="**", operands=(_, ir.Const(value=float()))):
                # d ** 0.5: a tensor is seldom raised to a power for a factor, a dimension is.
                return self._is_dimension(expr.operands[0], function, depth)
            case ir.Operation(op="/" | "*", operands=(left, right)):
                return self._is_number(left, function, depth + 1) and self._is_number(
                    right, function, depth + 1
                )
            case ir.Call():
                origin = self.program.origin(expr.func, function) or ""
                return origin in ("math.sqrt", "numpy.sqrt", "builtins.float")
        return False

    def _is_dimension(self, expr: ir.Expr, function: str, depth: int) -> bool:
        match expr:
            case ir.Const(value=int() | float()):
                return True
            case ir.Call(func=ir.Attr(attr="size"), args=(_,)):
                return True
            case ir.Item(value=ir.Attr(attr="shape")):
                return True
            case ir.Name(id=name):
                found = self.program.definitions(function, name)
                return len(found) == 1 and (
                    found[0].value is not None
                    and self._is_dimension(found[0].value, function, depth + 1)
                )
        return False

    # -- functions of the user's own ------------------------------------------------------------

    def _is_custom(self, call: ir.Call, function: str) -> bool:
        """Whether a call applies an autograd.Function whose backward would meet two dtypes."""
        if not isinstance(call.func, ir.Attr) or call.func.attr != "apply":
            return False
        return any(
            ref.kind == "class" and self.meets_two_dtypes(ref.name)
            for ref in self.program.resolve(call.func.value, function)
        )

    def meets_two_dtypes(self, class_name: str) -> bool:
        """Whether a class is an autograd.Function that multiplies matrices in both directions, with
        tensors that it has saved, and is not made for autocast."""
        bases = self.program.external_bases(class_name)
        if "torch.autograd.Function" not in bases:
            return False
        methods = dict(self.program.classes[class_name].methods)
        forward, backward = methods.get("forward"), methods.get("backward")
        if forward is None or backward is None:
            return False
        if any(
            not (isinstance(d, ir.Name) and d.id == "staticmethod")
            for one in (forward, backward)
            for d in self.program.functions[one].decorators
        ):
            return False
        casts = {"to", "float", "half", "type_as", "autocast", "custom_fwd"}
        words = {
            inner.attr
            for one in (forward, backward)
            for stmt in ir.statements(self.program.functions[one].body)
            for expr in stmt.exprs
            for inner in ir.walk(expr)
            if isinstance(inner, ir.Attr)
        }
        if words & casts or "saved_tensors" not in words:
            return False
        return self._multiplies(forward) and self._multiplies(backward)

    def _multiplies(self, function: str) -> bool:
        return any(
            (isinstance(inner, ir.Operation) and inner.op == "@")
            or (
                isinstance(inner, ir.Call)
                and isinstance(inner.func, ir.Attr)
                and inner.func.attr in _METHODS
            )
            for stmt in ir.statements(self.program.functions[function].body)
            for expr in stmt.exprs
            for inner in ir.walk(expr)
        )


def _number(expr: ir.Expr) -> ir.Expr:
    """``float("-1e9")`` as the number that it is."""
    if isinstance(expr, ir.Const) and isinstance(expr.value, str):
        try:
            return ir.Const(float(expr.value))
        except ValueError:
            return expr
    return expr
