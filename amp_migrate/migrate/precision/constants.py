"""Constants that half precision cannot hold, in what runs under autocast: replaced, or refused.

A mask of -1e9 becomes the smallest number that the tensor's own dtype holds, which in fp32 is still
-1e9. An epsilon needs its operand in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.vocabulary import HALVES, Half
from amp_migrate.analysis.values.dtypes import is_slice
from amp_migrate.analysis.values.numbers import FP32_NEXT_TO_ONE, Numbers
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Bound
from amp_migrate.migrate.precision.remedies import (
    Planner,
    Remedies,
    Unclear,
    changed_by,
)
from amp_migrate.migrate.precision.sigmoids import Sigmoids
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now, calls_of, parts_of

_FILLS = operations("fills")
_FLOORS = operations("floors")
_ODD_FILLS = operations("holds")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "compare")
_COMPARING = operations("compares")
_SUMS = operations("adds")
_AS_OPERATORS = {
    **dict.fromkeys(("add",), "+"),
    **dict.fromkeys(("sub", "subtract"), "-"),
    **dict.fromkeys(("mul", "multiply"), "*"),
    **dict.fromkeys(("div", "divide", "true_divide"), "/"),
}
_HELD = _FILLS | _FLOORS | _AS_OPERATORS.keys()
"""What puts numbers beside a tensor's."""
_HAVE_OPERATIONS = (None, "torch", "torch.Tensor", "torch.nn.functional")
"""A tensor, as far as it is known, and the modules of such operations."""
_PRODUCTS = operations("product")
_CAST_DOWN = frozenset(
    ("torch.nn.functional.scaled_dot_product_attention", "torch.baddbmm")
)
"""What autocast gives half operands, masks too."""
_LIKE = operations("like")
_CASTS = frozenset("to type type_as".split())
_SOFTMAX = frozenset("softmax log_softmax Softmax LogSoftmax".split())
_MOST_NAMES = 4
_SENTINEL = 1e8
"""From here on, a number stands for "never", and any other that is large enough does as well; a smaller
one is a factor that has to be what it is."""


class Constants(Planner):
    """Looks through names, parameters and attributes for numbers."""

    def __init__(
        self,
        remedies: Remedies,
        sigmoids: Sigmoids,
        is_never_half: Callable[[Made], bool] | None = None,
    ) -> None:
        """``is_never_half``: tells that outside of autocast, for what runs there."""
        super().__init__(remedies)
        self.under_autocast = is_never_half is None
        self.is_never_half = is_never_half or remedies.halves.is_never_half
        self.sigmoids = sigmoids
        self.half: Half = HALVES[remedies.dtype]
        self.numbers = Numbers(self.program, self.half)
        self._settled: list[ir.Expr] = []
        """Expressions that are found harmless where they stand."""
        self._small: list[Made] | None = None
        """What is computed with numbers that are too small, where that is only asked."""

    def refusal(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """The first constant of a statement for which there is no remedy."""
        self._settled = []
        found = self._of_store(function, stmt)
        if self._small is None:
            found = found or self._of_odd_form(function, stmt)
        if found is not None:
            return found
        for inner in parts_of(stmt):
            at = Made(inner, function, stmt)
            if isinstance(inner, ir.Attr) and isinstance(inner.value, ir.Call):
                if self.numbers.all(inner, function):
                    # A number like another.
                    self._settled.append(inner.value)
            elif isinstance(inner, ir.Call):
                found = self._of_call(at, inner)
            elif isinstance(inner, ir.Operation):
                found = self._of_operation(at, inner)
            if self._small is None:
                found = found or self._of_comparison(at, inner)
            if found is not None:
                return found
        return None

    def unheld(self, function: str, stmt: ir.Stmt) -> tuple[list[Made], bool]:
        """What may be half and is computed with numbers that are too small for that; and whether some
        number is too large."""
        small = self._small = []
        try:
            self.refusal(function, stmt)
        finally:
            self._small = None
        inside = list(parts_of(stmt))
        if self._of_odd_form(function, stmt) is not None:
            names = (Made(e, function, stmt) for e in inside if isinstance(e, ir.Name))
            small += (at for at in names if not self.is_never_half(at))
        is_large = any(
            self.program.origin(inner, function) in dtype_table.LIMITS
            or any(map(self.half.overflows, self.numbers.all(inner, function)))
            for inner in inside
        )
        return small, is_large

    def mentions(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement has a number that half precision does not have, or divides by one that makes
        such."""
        called = {id(call.func) for call in calls_of(stmt)}
        return any(
            self.numbers.are_unheld(inner, function)
            for inner in parts_of(stmt)
            if isinstance(inner, (ir.Const, ir.Name, ir.Attr))
            and id(inner) not in called
        ) or any(
            self._enlarges_beyond(value)
            for by in _divisors(stmt)
            for value in self.numbers.all(by, function)
        )

    # -- where they stand -----------------------------------------------------------------------

    def _of_store(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """``scores[mask] = -1e9``."""
        if stmt.kind != "assign" or stmt.value is None:
            return None
        for target in stmt.targets:
            if not isinstance(target, ir.Item) or isinstance(target.key, ir.Const):
                continue
            for value in self.numbers.all(stmt.value, function):
                if self.half.overflows(value):
                    at = Made(stmt.value, function, stmt)
                    return self._bound(at, value, target.value, stmt.line)
        return None

    def _of_odd_form(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """Forms in which a number meets a tensor, and for which there is no remedy."""
        for expr, small, large, line in self._odd_forms(function, stmt):
            for value in self.numbers.all(expr, function):
                if (small and self.half.underflows(value)) or (
                    large and self.half.overflows(value)
                ):
                    return self._unfit(value, line)
        return None

    def _odd_forms(
        self, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[ir.Expr, bool, bool, int]]:
        """What may be a number there, whether it must not be too small, or too large, and its line."""
        value, line = stmt.value, stmt.line
        at = Made(ir.Const(None), function, stmt)
        if stmt.kind == "assign" and value is not None:
            for target in stmt.targets:
                if isinstance(target, ir.Item):
                    yield value, True, isinstance(target.key, ir.Const), line
        for target, op, by in _scaled_in_place(stmt):
            for one in self.numbers.all(by, function):
                factor = 1 / (one or 1) if op == "/" else one
                if self.half.overflows(factor) and not self._is_full(target, at):
                    yield ir.Const(factor), False, True, line
        if stmt.kind == "augassign" and stmt.op in ("+", "-") and value is not None:
            full = any(self._is_full(target, at) for target in stmt.targets)
            if not (full and self._is_full(value, at)):
                yield from ((inner, False, True, line) for inner in ir.walk(value))
            if not full:
                yield value, True, False, line
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Operation) and inner.op == "*":
                    if self._is_of_cast(function, inner):
                        yield from ((one, False, True, line) for one in inner.operands)
            for call in ir.calls_in(expr):
                method = ir.method_of(call)
                if self._is_full_list(function, stmt, call) or self._sum(call, at):
                    continue
                if method in _ODD_FILLS | _SUMS | _FILLS:
                    small, large = method not in _FLOORS, method not in _FILLS
                    if method in _SUMS and isinstance(call.func, ir.Attr):
                        small = small and not self._is_full(call.func.value, at)
                    for arg in call.args:
                        for inner in _unbounded(arg.value):
                            yield inner, small, large, call.line

    def _is_full_list(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """``torch.tensor([1e10], dtype=rays.dtype)``: fp32, and what it meets becomes that, too."""
        dtype = call.argument(1, "dtype")
        if self.program.origin(call.func, function) != "torch.tensor":
            return False
        match call.args[0].value, dtype:
            case ir.Display(items=[_, *_]), None:
                return True
            case ir.Display(items=[_, *_]), ir.Attr(value=like, attr="dtype"):
                of = Made(like, function, stmt)
                unheld = any(
                    self.half.lacks(value)
                    for inner in ir.walk(call.args[0].value)
                    for value in self.numbers.all(inner, function)
                )
                if unheld and self._small is None:
                    # What says its dtype to torch is a tensor.
                    return self.remedies.raise_(of, True)
                return self.is_never_half(of)
        return False

    def _is_of_cast(self, function: str, product: ir.Operation) -> bool:
        """``mask.to(scores.dtype) * -1e9``: half already where it is multiplied."""
        made: list[ir.Expr] = [product]
        for inner in ir.walk(product):
            if isinstance(inner, ir.Name):
                found = self.program.defined(inner.id, function)
                made += [d.value for d in found if d.value is not None]
        return any(
            isinstance(inner, ir.Call)
            and ir.method_of(inner) in _CASTS
            and any(
                _is_dtype_of(arg.value) and "device" not in (ir.key_of(arg.value) or "")
                for arg in inner.args
            )
            for one in made
            for inner in ir.walk(one)
        )

    @staticmethod
    def _unfit(value: float, line: int) -> Refusal:
        message = f"{value:g} cannot be represented in half precision"
        return Refusal("AMP021", message, line)

    def _of_call(self, at: Made, call: ir.Call) -> Refusal | None:
        program = self.program
        origin = program.origin(call.func, at.function) or ""
        method = self._method(at, call)
        if origin in ("torch.finfo", "numpy.finfo"):
            if any(one is call for one in self._settled) or self._is_of_half(at, call):
                return None
            message = "the limits of float32 overflow in half precision"
            return Refusal("AMP021", message, call.line)
        large = None if self._small is not None else self._cast_down(at, call)
        if large is not None and not self._bounded_before(at, call):
            message = f"{large:g} is beyond half precision's largest number"
            return Refusal("AMP021", message, call.line)
        total = self._sum(call, at)
        if total is not None:
            return self._of_operation(at, total)
        hidden = self._of_hidden_call(at, call)
        if hidden is not None or method not in _FILLS | _FLOORS:
            return hidden
        tensor = self._filled(call, origin, method)
        for arg in call.args:
            if arg.value is tensor or any(arg.value is one for one in self._settled):
                continue
            numbers = self.numbers.all(arg.value, at.function)
            given = at.inner(arg.value)
            for value in numbers:
                found = None
                if self.half.overflows(value) and method in _FILLS:
                    found = self._bound(given, value, tensor, call.line)
                elif (self.half.underflows(value) and method in _FLOORS) or (
                    self.numbers.is_nearly_one(arg.value, at.function)
                    and method in _FLOORS
                ):
                    found = self._raise_operand(at, tensor, value, call.line)
                if found is not None:
                    return found
                self._settled += ir.walk(arg.value)
        return None

    def _method(self, at: Made, call: ir.Call) -> str:
        """The name of the operation that a call names, by whatever name it has been imported."""
        origin = self.program.origin(call.func, at.function) or ""
        if origin.startswith("torch."):
            return origin.rpartition(".")[2]
        return ir.method_of(call)

    def _of_hidden_call(self, at: Made, call: ir.Call) -> Refusal | None:
        """A number that a call gives to what it does not name: nothing can be put in its place here."""
        starred = [arg.value for arg in call.args if arg.star]
        given = [(arg.value, at.function) for arg in call.args]
        spread = [
            (part, made.function)
            for star in starred
            for made in self.remedies.flow.made(at.inner(star)) or ()
            for part in ir.walk(made.expr)
        ]
        runs = [*self._run_by_other_names(at, call, given)]
        if spread:
            runs.append((self._method(at, call), spread, self._receiver(at, call)))
        for method, numbers, tensor in runs:
            if tensor is not None and self.is_never_half(tensor):
                continue
            for expr, where in numbers:
                for value in self.numbers.all(expr, where):
                    if (method in _HELD and self.half.overflows(value)) or (
                        method in _FLOORS and self.half.underflows(value)
                    ):
                        return self._unfit(value, call.line)
        return None

    def _run_by_other_names(
        self, at: Made, call: ir.Call, given: list[tuple[ir.Expr, str]]
    ) -> Iterator[tuple[str, list[tuple[ir.Expr, str]], Made | None]]:
        """The operations that a call may be one of where it does not name them, with all that they are given,
        each with its function, and the tensor of whose dtype they are."""
        program, func = self.program, call.func
        first = at.inner(call.args[0].value) if call.args else None
        match func:
            case ir.Call(func=get, args=[of, name, *_]):
                # getattr(scores, name)(mask, -1e9)
                if (
                    program.origin(get, at.function) == "builtins.getattr"
                    and not isinstance(name.value, ir.Const)
                    and program.origin(of.value, at.function) in _HAVE_OPERATIONS
                ):
                    # It may fill in numbers, and be a floor.
                    yield "clamp", given, at.inner(of.value)
                return
        if self._method(at, call) in _HELD or program.callees(call, at.function):
            return
        for made in program.definitions_of(func, at.function):
            match made.value:
                case ir.Attr(value=tensor, attr=method) if method in _HELD:
                    if program.origin(made.value, made.function) is not None:
                        yield method, given, first
                    else:
                        yield method, given, Made(tensor, made.function, made.stmt)
                case ir.Call(func=maker, args=[run, *bound]):
                    bound_to = [(arg.value, made.function) for arg in bound]
                    match program.origin(maker, made.function), run.value:
                        case "functools.partial", ir.Attr(attr=method):
                            yield method, [*bound_to, *given], first
                        case "operator.methodcaller", ir.Const(value=str(method)):
                            yield method, [*bound_to, *given], first

    def _receiver(self, at: Made, call: ir.Call) -> Made | None:
        """The tensor that a method is one of."""
        if self.program.origin(call.func, at.function) is None and isinstance(
            call.func, ir.Attr
        ):
            return at.inner(call.func.value)
        return None

    def _sum(self, call: ir.Call, at: Made) -> ir.Operation | None:
        """``x.add(1e-8)``, ``torch.sub(x, y)``: the operator that a call stands for."""
        origin = self.program.origin(call.func, at.function) or ""
        operands = [arg.value for arg in call.args if not (arg.name or arg.star)]
        if not origin and isinstance(call.func, ir.Attr):
            operands.insert(0, call.func.value)
        op = _AS_OPERATORS.get(ir.method_of(call))
        if op is None or not (len(operands) == len(call.args) + (not origin) == 2):
            return None
        return ir.Operation(op, tuple(operands))

    def _cast_down(self, at: Made, call: ir.Call) -> float | None:
        """The large number that ``mask`` was made with, in ``mask.type_as(scores)`` of what may be half."""
        if ir.method_of(call) not in _CASTS or not call.args:
            return None
        assert isinstance(call.func, ir.Attr)
        like, is_dtype = _cast_like(call)
        of = at.inner(like)
        if not (is_dtype or call.func.attr == "type_as" or self.remedies.is_tensor(of)):
            return None
        large = self._large_in(at.inner(call.func.value))
        return None if large is None or self.is_never_half(of) else large

    def _bounded_before(self, at: Made, cast: ir.Call) -> bool:
        """``scores.float().masked_fill(mask, -1e30).type_as(scores)``: whether what is filled in can be kept
        within what the cast is to."""
        like, _ = _cast_like(cast)
        filled = [
            (arg.value, value)
            for call in ir.calls_in(cast.func)
            if ir.method_of(call) in _FILLS
            for arg in call.args
            for value in self.numbers.all(arg.value, at.function)
            if self.half.overflows(value)
        ]
        inside = {id(inner) for arg, _ in filled for inner in ir.walk(arg)}
        edits = [self._bounded(at.inner(arg), value, like) for arg, value in filled]
        rest = any(
            self.half.overflows(value)
            for inner in ir.walk(cast.func)
            if id(inner) not in inside and isinstance(inner, (ir.Const, ir.Operation))
            for value in self.numbers.all(inner, at.function)
        )
        if rest or not edits or None in edits:
            return False
        for edit in filter(None, edits):
            self.remedies.edit(at.function, edit)
        self._settled += (one for arg, _ in filled for one in ir.walk(arg))
        return True

    def _large_in(self, at: Made, depth: int = 0) -> float | None:
        """A number beyond half precision that a tensor was made with."""
        inside = list(ir.walk(at.expr))
        for inner in inside:
            if isinstance(inner, (ir.Const, ir.Operation)):
                for value in self.numbers.all(inner, at.function):
                    if self.half.overflows(value):
                        return value
        if depth < _MOST_NAMES:
            for inner in inside:
                if isinstance(inner, (ir.Name, ir.Attr)):
                    for one in self.remedies.flow.made(at.inner(inner)) or ():
                        found = self._large_in(one, depth + 1)
                        if found is not None:
                            return found
        return None

    def _is_of_half(self, at: Made, call: ir.Call) -> bool:
        """Whether limits are asked of a tensor that may be half, and so are half's own then, or of the
        very tensor that they are put into."""
        if len(call.args) != 1:
            return False
        match call.args[0].value:
            case ir.Attr(value=tensor, attr="dtype") if self._is_put_into(
                at, call, tensor
            ):
                of = at.inner(tensor)
                return not (
                    self.is_never_half(of) and self.goes_into_half(at.function, at.stmt)
                )
            case ir.Attr(value=ir.Attr(attr="weight" | "bias"), attr="dtype"):
                # Parameters stay as they are.
                return False
            case ir.Attr(value=tensor, attr="dtype"):
                return not self.is_never_half(at.inner(tensor))
        return False

    def _is_put_into(self, at: Made, call: ir.Call, tensor: ir.Expr) -> bool:
        """``x[0] = torch.finfo(x.dtype).min``, ``x.masked_fill(mask, -torch.finfo(x.dtype).max)``"""
        if any(isinstance(t, ir.Item) and t.value == tensor for t in at.stmt.targets):
            return True
        for filling in calls_of(at.stmt):
            method = ir.method_of(filling)
            origin = self.program.origin(filling.func, at.function) or ""
            if method in _FILLS and self._filled(filling, origin, method) == tensor:
                given = (e for arg in filling.args for e in ir.walk(arg.value))
                if any(one is call for one in given):
                    return all(arg.name != "dtype" for arg in filling.args)
        return False

    @staticmethod
    def _filled(call: ir.Call, origin: str, method: str) -> ir.Expr | None:
        """The tensor whose dtype has to hold what a call fills in."""
        plain = [arg.value for arg in call.args if arg.name is None and not arg.star]
        if not origin:
            if method == "where" and isinstance(call.func, ir.Attr):
                return call.func.value
            return call.func.value if isinstance(call.func, ir.Attr) else None
        if method == "where":
            tensors = [value for value in plain[1:] if not isinstance(value, ir.Const)]
            return tensors[0] if len(tensors) == 1 else None
        return plain[0] if plain else None

    def _of_operation(self, at: Made, operation: ir.Operation) -> Refusal | None:
        op, line = operation.op, at.stmt.line
        if op not in ("+", "-", "*", "/", "+=") or len(operation.operands) != 2:
            return None
        if any(one is operation for one in self._settled):
            return None
        for position, operand in enumerate(operation.operands):
            value = self.numbers.one(operand, at.function)
            if value is None:
                continue
            other = operation.operands[1 - position]
            found = None
            if (op in ("+", "-") and self.half.underflows(value)) or (
                op == "/" and position and self._enlarges_beyond(value)
            ):
                found = self._raise_operand(at, other, value, line)
            elif self.half.overflows(value) and op == "/" and position:
                # What becomes of it may be small, as it may be of a product.
                if self.dtypes.is_fp32(at.inner(other)):
                    self._raise_operand(at, other, value, line)
            elif self.half.overflows(value):
                given = at.inner(operand)
                masks = op != "/" and (abs(value) >= _SENTINEL or _is_mask(other))
                if masks or not self._is_full(other, at):
                    found = self._bound(given, value, other, line, masks)
            if found is not None:
                return found
        if op == "-" and operation.operands[0] == ir.Const(1):
            value = self.numbers.one(operation.operands[1], at.function)
            if value is not None and FP32_NEXT_TO_ONE < value < self.half.next_to_one:
                message = f"1 - {value:g} rounds to 1 in half precision"
                return Refusal("AMP021", message, line)
        return None

    def _enlarges_beyond(self, divisor: float) -> bool:
        """Whether what is 1, divided by it, is more than half precision has."""
        return divisor != 0 and self.half.overflows(1 / divisor)

    def _is_full(self, expr: ir.Expr, at: Made) -> bool:
        of = at.inner(expr)
        return self._is_number(expr, at) or self.is_never_half(of)

    def _of_comparison(self, at: Made, expr: ir.Expr) -> Refusal | None:
        """``scores == -1e9``: what was filled with that is -65504 in half precision."""
        operands = _compared(expr)
        for operand in operands:
            others = [other for other in operands if other is not operand]
            if not any(self._may_be_half_tensor(other, at) for other in others):
                continue
            for inner in ir.walk(operand):
                value = self.numbers.one(inner, at.function)
                if value is None:
                    continue
                if self.half.overflows(value):
                    return self._unfit(value, at.stmt.line)
                if self.half.underflows(value) and inner is operand:
                    other, *_ = others
                    return self._raise_operand(at, other, value, at.stmt.line)
        return None

    def _may_be_half_tensor(self, expr: ir.Expr, at: Made) -> bool:
        """Whether something compared may be half: of a name in a test, where that is shown only."""
        of = at.inner(expr)
        if at.stmt.kind in ("if", "while", "assert"):
            return self._shows_half_tensor(of)
        return not (self._is_number(expr, at) or self.is_never_half(of))

    def _shows_half_tensor(self, at: Made) -> bool:
        if self._is_number(at.expr, at) or self.is_never_half(at):
            return False
        calls = (e for e in ir.walk(at.expr) if isinstance(e, ir.Call))
        return any(not self._is_foreign(at.inner(call)) for call in calls) or (
            self.dtypes.is_fp32(at)
        )

    def _is_foreign(self, at: Made) -> bool:
        """Whether a call is one of what is put into a file when that runs, as the functions of a library in
        C are, or of a function that gives nothing else; and no tensor is seen to go in.
        """
        program = self.program
        assert isinstance(at.expr, ir.Call)
        refs = program.resolve(at.expr.func, at.function)
        made = [at]
        if refs and all(ref.kind == "function" for ref in refs):
            found = (self.remedies.flow.returned(ref.name, None) for ref in refs)
            made = [one for returned in found for one in returned or (at,)]
        return all(map(self._is_of_nothing_here, made))

    def _is_of_nothing_here(self, at: Made) -> bool:
        match at.expr:
            case ir.Call(func=ir.Name(id=name) as func, args=args):
                return not (
                    self.program.resolve(func, at.function)
                    or self.program.origin(func, at.function)
                    or self.program.owner(name, at.function)
                    or self.program.modules[ir.file_of(at.function)].star_imports
                    or any(self._shows_half_tensor(at.inner(a.value)) for a in args)
                )
        return False

    # -- what helps -----------------------------------------------------------------------------

    def _bound(
        self,
        at: Made,
        value: float,
        tensor: ir.Expr | None,
        line: int,
        masks: bool = True,
    ) -> Refusal | None:
        """Keep a large number within what a tensor's dtype holds, if it ``masks``; or cast the tensor up."""
        refusal = Refusal(
            "AMP021", f"{value:g} is beyond half precision's largest number", line
        )
        if self._small is not None:
            return None
        if tensor is None:
            return refusal
        of = at.inner(tensor)
        if self._is_number(tensor, at) or self.is_never_half(of):
            if self.goes_into_half(at.function, at.stmt):
                return refusal
            self._settled += ir.walk(at.expr)
            return None
        edit = self._bounded(at, value, tensor) if masks else None
        if edit is not None:
            self.remedies.edit(at.function, edit)
        elif (
            self.under_autocast
            and (self.goes_into_half(at.function, at.stmt) or self._is_multiplied(at))
        ) or not (
            self.remedies.raise_(of, self._is_tensor(of, tensor))
            or self.remedies.replace(of)
        ):
            return refusal
        self._settled += ir.walk(at.expr)
        return None

    def _bounded(self, at: Made, value: float, tensor: ir.Expr) -> Bound | None:
        """What makes a large number the largest of a tensor's dtype, where that is as good."""
        holder = _holder(tensor)
        text = None if holder is None else ir.render(holder)
        steps = steps_to(at.stmt, at.expr)
        name = "max" if value < 0 else "min"
        if (
            holder is None
            or text is None
            or "(" in text
            or steps is None
            or not self._is_floating(at.inner(holder))
            or self.program.origin(ir.Name(name), at.function) != f"builtins.{name}"
            or not self._is_always_number(at)
            or self._is_enlarged(at.function, at.stmt, at.expr)
        ):
            return None
        return Bound(at.stmt.path, steps, text, value < 0)

    def goes_into_half(self, function: str, filling: ir.Stmt) -> bool:
        """Whether what a statement fills is put into a half tensor later, or cast to half by autocast: a
        large number is infinite there, and a softmax of nothing else is not a number.
        """
        filled = list(filling.targets)
        match filling:
            case ir.Stmt(kind="expr", value=ir.Call(func=ir.Attr(value=tensor))):
                # bias.masked_fill_(mask, -1e9)
                filled = [tensor]
        roots = [_holder(t.value if isinstance(t, ir.Item) else t) for t in filled]
        for stmt in self.program.statements(function):
            if stmt.line <= filling.line:
                continue
            into: list[ir.Expr] = []
            if stmt.kind == "augassign" and stmt.value is not None:
                if any(one in roots for one in _values(stmt.value)):
                    into += stmt.targets
            for call in calls_of(stmt):
                if ir.method_of(call) in _CASTS and any(
                    one in roots for one in ir.walk(call.func)
                ):
                    for arg in call.args:
                        match arg.value:
                            case ir.Attr(value=tensor, attr="dtype"):
                                into.append(tensor)
                            case tensor if ir.method_of(call) == "type_as":
                                into.append(tensor)
                if not any(one in roots for a in call.args for one in ir.walk(a.value)):
                    continue
                origin = self.program.origin(call.func, function)
                if origin in _CAST_DOWN:
                    return True
                if origin is None and isinstance(call.func, ir.Attr):
                    if call.func.attr in _SUMS and call.func.attr.endswith("_"):
                        into.append(call.func.value)
            if not all(self.is_never_half(Made(t, function, stmt)) for t in into):
                return True
        return False

    def _is_multiplied(self, at: Made) -> bool:
        """Whether a product takes what a number is filled into, before any softmax: autocast casts that to
        half, where the number is infinite."""

        def takes(stmt: ir.Stmt, held: Callable[[ir.Expr], bool]) -> bool:
            return any(
                any(map(held, _unsquashed(operand)))
                for product in parts_of(stmt)
                if self._is_product(product, at.function)
                for operand in ir.children(product)
            )

        if takes(at.stmt, lambda inner: inner is at.expr):
            return True
        names = [t for t in at.stmt.targets if isinstance(t, ir.Name)]
        if not any(one is at.expr for e in at.stmt.exprs for one in _unsquashed(e)):
            return False
        for stmt in self.program.statements(at.function):
            if stmt.line <= at.stmt.line:
                continue
            if takes(stmt, names.__contains__):
                return True
            if stmt.value is None or not any(
                map(names.__contains__, _unsquashed(stmt.value))
            ):
                for target in stmt.targets:
                    if target in names:
                        names.remove(target)
        return False

    def _is_product(self, expr: ir.Expr, function: str) -> bool:
        match expr:
            case ir.Operation(op=op):
                return op == "@"
            case ir.Call(func=func):
                return ir.method_of(expr) in _PRODUCTS or (
                    bool(self.remedies.modules.of(func, function))
                    and not self._is_softmax(expr, function)
                )
        return False

    def _is_enlarged(self, function: str, filling: ir.Stmt, fill: ir.Expr) -> bool:
        """Whether what is filled in is multiplied later: beyond the bound it is infinite, and a
        softmax of nothing else is not a number."""
        names = {
            t.id
            for t in (*filling.targets, *changed_by(filling))
            if isinstance(t, ir.Name)
        }
        for stmt in self.program.statements(function):
            if stmt.line < filling.line:
                continue
            scaled = [
                ir.Operation(op, (of, by)) for of, op, by in _scaled_in_place(stmt)
            ]
            for inner in (*parts_of(stmt), *scaled):
                if not isinstance(inner, ir.Operation) or inner.op not in "*/":
                    continue
                for operand in inner.operands:
                    filled = (
                        any(e is fill for e in ir.walk(operand))
                        and operand is not fill
                        and isinstance(operand, ir.Call)
                        if stmt is filling
                        else isinstance(operand, ir.Name) and operand.id in names
                    )
                    if filled and self._enlarges(inner, operand, function):
                        return True
        return False

    def _enlarges(
        self, operation: ir.Operation, filled: ir.Expr, function: str
    ) -> bool:
        left, right = operation.operands
        other = right if filled is left else left
        value = self.numbers.one(other, function)
        if value is not None:
            return abs(value) > 1 if operation.op == "*" else abs(value) < 1
        return False

    def _raise_operand(
        self, at: Made, tensor: ir.Expr | None, value: float, line: int
    ) -> Refusal | None:
        """Compute with a small number, or one next to 1, in fp32."""
        if self.half.underflows(value):
            message = f"{value:g} is 0 in half precision"
        elif self._enlarges_beyond(value):
            message = f"what is divided by {value:g} overflows in half precision"
        else:
            message = "a number next to 1 rounds to 1 in half precision"
        refusal = Refusal("AMP021", message, line)
        if tensor is None:
            return refusal
        of = at.inner(tensor)
        if self._is_number(tensor, at):
            return None
        if self.is_never_half(of):
            if self._small is None and self.sigmoids.may_be_one(of):
                # Joined with what is fp32, it may have been half.
                planned = self.sigmoids.planned()
                try:
                    self.sigmoids.squash(of)
                except Unclear:
                    self.sigmoids.take_back(planned)
            return None
        if self._small is not None:
            self._small.append(of)
            return None
        try:
            self.sigmoids.raise_operand(of)
        except Unclear:
            if self.sigmoids.may_be_one(of, unseen=True):
                more = "what it is added to or bounds may be a probability made in half"
                return Refusal("AMP021", f"{message}, and {more}", line)
            if not self.remedies.raise_(of, self._is_tensor(at, tensor), perhaps=True):
                return refusal
        return None

    def _is_tensor(self, at: Made, operand: ir.Expr) -> bool:
        """Whether an operand of an expression is for sure a tensor: it is shown, or torch takes no other."""
        takers = [at.expr] + [
            call
            for call in calls_now(at.stmt)
            if any(arg.value is at.expr for arg in call.args[:1])
        ]
        return self.remedies.is_tensor(at.inner(operand)) or any(
            isinstance(call, ir.Call)
            and any(arg.value in (operand, at.expr) for arg in call.args[:1])
            and (self.program.origin(call.func, at.function) or "").startswith("torch.")
            for call in takers
        )

    def _is_number(self, expr: ir.Expr, at: Made) -> bool:
        return self.dtypes.is_number(at.inner(expr))

    def _is_always_number(self, at: Made, depth: int = 0) -> bool:
        """Whether a constant, also behind a name, is a number and nothing else."""
        if depth > _MOST_NAMES:
            return False
        expr = at.expr
        if isinstance(expr, (ir.Const, ir.Operation)) or self._is_number(expr, at):
            return True
        if isinstance(expr, ir.Attr) and isinstance(expr.value, ir.Call):
            return True
        if (self.program.origin(expr, at.function) or "").startswith("sys."):
            return True
        if self.dtypes.is_never_given(at):
            return True
        made = self.remedies.flow.made(at)
        return bool(made) and all(
            self._is_always_number(one, depth + 1)
            for one in made or ()
            if one.expr != expr
        )

    def _is_floating(self, at: Made) -> bool:
        """Whether a tensor is shown to hold no integers, of whatever remedies."""
        if self.dtypes.is_fp32(at):
            return True
        made = self.remedies.flow.made(at)
        if made and all(_divides(one.expr) for one in made):
            return True
        return self.goes_into_softmax(at)

    def goes_into_softmax(self, at: Made) -> bool:
        """Whether a function takes the softmax of a variable, which integers do not have."""
        if not isinstance(at.expr, ir.Name):
            return False
        names = {at.expr.id} | {
            target.id for target in at.stmt.targets if isinstance(target, ir.Name)
        }
        body = self.program.functions[at.function].body
        for stmt in ir.statements(body):
            for call in calls_now(stmt):
                given = [_reshaped(arg.value) for arg in call.args[:1]]
                if isinstance(call.func, ir.Attr):
                    given.append(_reshaped(call.func.value))
                if self._is_softmax(call, at.function) and any(
                    isinstance(value, ir.Name) and value.id in names for value in given
                ):
                    return True
        return False

    def _is_softmax(self, call: ir.Call, function: str) -> bool:
        if (ir.key_of(call.func) or "").rsplit(".", 1)[-1] in _SOFTMAX:
            return True
        modules = self.remedies.modules.of(call.func, function) or []
        return bool(modules) and all(
            (self.program.origin(m.call.func, m.function) or "").rsplit(".", 1)[-1]
            in _SOFTMAX
            for m in modules
        )


def _unbounded(expr: ir.Expr) -> Iterator[ir.Expr]:
    """An expression with what is inside it, but for what bounds a value there: that is judged by itself."""
    yield expr
    for child in ir.children(expr):
        if not (isinstance(child, ir.Call) and ir.method_of(child) in _FLOORS):
            yield from _unbounded(child)


def _scaled_in_place(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr, str, ir.Expr]]:
    """``h *= 2``, ``h.div_(tau)``: what is changed, the operator, and by what."""
    if stmt.kind == "augassign" and stmt.op in ("*", "/") and stmt.value is not None:
        for target in stmt.targets:
            yield target, stmt.op, stmt.value
    for call in calls_of(stmt):
        match call:
            case ir.Call(func=ir.Attr(value=target, attr=attr), args=[by]):
                op = _AS_OPERATORS.get(attr.removesuffix("_"), "")
                if attr.endswith("_") and op in ("*", "/"):
                    yield target, op, by.value


def _divisors(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """What a statement divides by."""
    for inner in parts_of(stmt):
        match inner:
            case ir.Operation(op="/", operands=(_, by)):
                yield by
            case ir.Call(args=[*_, by]) if (
                _AS_OPERATORS.get(ir.method_of(inner)) == "/"
            ):
                yield by.value
    yield from (by for _, op, by in _scaled_in_place(stmt) if op == "/")


def _cast_like(call: ir.Call) -> tuple[ir.Expr, bool]:
    """What a cast takes its dtype from, and whether it says so: ``.to(x.dtype)``."""
    like = call.argument(0, "dtype") or call.args[-1].value
    for arg in call.args:
        if isinstance(arg.value, ir.Attr) and arg.value.attr == "dtype":
            like = arg.value
    if isinstance(like, ir.Attr) and like.attr == "dtype":
        return like.value, True
    return like, False


def _compared(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """What an expression compares with each other."""
    match expr:
        case ir.Operation(op=op, operands=operands) if op in _COMPARISONS:
            return operands
        case ir.Call(func=ir.Attr(value=value, attr=attr), args=args) if (
            attr in _COMPARING
        ):
            given = tuple(arg.value for arg in args[:2])
            return given if len(given) == 2 else (value, *given)
    return ()


def _unsquashed(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The parts of an expression, but for what it takes the softmax of."""
    yield expr
    if not isinstance(expr, ir.Call) or ir.last_of(expr.func) not in _SOFTMAX:
        for child in ir.children(expr):
            yield from _unsquashed(child)


def _values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """What an expression computes with: of ``h.shape``, that is not ``h``."""
    if not (isinstance(expr, ir.Attr) and expr.attr in ("shape", "device", "size")):
        yield expr
        for inner in ir.children(expr):
            yield from _values(inner)


def _is_mask(expr: ir.Expr) -> bool:
    """Whether a factor is written as zeros and ones: ``1 - mask``, ``(x > 0).float()``."""
    match expr:
        case ir.Operation(op="-", operands=(ir.Const(value=1), _)):
            return True
        case ir.Operation(op=op):
            return op in (*_COMPARISONS, "~", "&", "|")
        case ir.Call(func=ir.Attr(value=value, attr=attr)):
            return attr in _COMPARING or _is_mask(value)
    return False


def _is_dtype_of(expr: ir.Expr) -> bool:
    """``scores.dtype``, or the tensor itself."""
    return isinstance(expr, ir.Name) or (
        isinstance(expr, ir.Attr) and expr.attr == "dtype"
    )


def _reshaped(expr: ir.Expr) -> ir.Expr:
    """What has another shape only, ``x`` of ``x.view(2, -1)``."""
    while (
        isinstance(expr, ir.Call)
        and isinstance(expr.func, ir.Attr)
        and expr.func.attr in ("view", "reshape", "squeeze", "unsqueeze", "transpose")
    ):
        expr = expr.func.value
    return expr


def _holder(expr: ir.Expr) -> ir.Expr | None:
    """The variable that gives an expression its dtype."""
    match expr:
        case ir.Attr(value=ir.Item() as value, attr="data"):
            return _holder(value)
        case ir.Item(value=ir.Name() as value, key=ir.Display(items=keys)) if any(
            map(is_slice, keys)
        ):
            # Nothing else than a tensor has such elements: x[:, 0].
            return value
        case ir.Name() | ir.Attr():
            return expr
        case ir.Operation(op="+" | "-" | "*" | "/", operands=operands):
            held = [o for o in operands if not isinstance(o, ir.Const)]
            return _holder(held[0]) if len(held) == 1 else None
        case ir.Call(func=ir.Attr(attr=attr), args=args) if attr in _LIKE and args:
            return _holder(args[0].value)
    return None


def _divides(expr: ir.Expr) -> bool:
    """Whether an expression is a quotient, or has a part that is cast, which is never of integers."""
    match expr:
        case ir.Operation(op="/") | ir.Call(
            func=ir.Attr(attr="float" | "double"), args=()
        ):
            return True
        case ir.Operation(op="+" | "-" | "*", operands=operands):
            return any(map(_divides, operands))
    return False
