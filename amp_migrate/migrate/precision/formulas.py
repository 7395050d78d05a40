"""Formulas written out by hand that lose their digits, or overflow, on half operands.

Autocast runs `var`, `norm` and `logsumexp` in fp32 by themselves; what is put together of products,
means and sigmoids it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.catalogue.operations import operations
from amp_migrate.migrate.precision.remedies import Planner, Remedies, Unclear
from amp_migrate.migrate.precision.sigmoids import Sigmoids
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

_LOGS = operations("log")
_REDUCES = frozenset("mean sum".split())
_MEANS = frozenset(("mean",))
_TURNS = frozenset("sin cos tan".split())
_PRODUCTS = frozenset("einsum matmul bmm mm".split())
_KEEP_PLACES = operations("view", "turns").union("to type_as float repeat".split())
_AREA = re.compile(r"(?i)area|iou|union|inter")
"""Names of what boxes have, and of what is computed from that."""
_SIDES = ((ir.Const(2),), (ir.Const(3),))
_BOUNDS = frozenset("clamp clip clamp_ relu abs".split())
_DEEPEST = 4


class Formulas(Planner):
    """Plans for one program."""

    def __init__(
        self,
        remedies: Remedies,
        sigmoids: Sigmoids,
        overflows: bool,
    ) -> None:
        """``overflows``: squares of half values may be infinite."""
        super().__init__(remedies)
        self.sigmoids = sigmoids
        self.overflows = overflows

    def refusal(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """The first formula of a statement for which there is no remedy."""
        for inner in parts_of(stmt):
            at = Made(inner, function, stmt)
            found = self.of_log(at) or self._of_reduced(at) or self._of_spread(at)
            found = found or self._of_angle(at) or self._of_places(at)
            self._of_area(at)
            if found is not None:
                return found
        return None

    # -- logarithms -----------------------------------------------------------------------------

    def of_log(self, at: Made) -> Refusal | None:
        """``log(sigmoid(x))``: in half precision the sigmoid is 0 or 1 soon."""
        operand = self._operand(at, _LOGS)
        if operand is None:
            return None
        of = at.inner(operand)
        planned = self.sigmoids.planned()
        try:
            self.sigmoids.squash(of)
        except Unclear:
            self.sigmoids.take_back(planned)
            if not self.sigmoids.may_be_one(of):
                return None
            message = (
                "the logarithm of what may be a sigmoid or softmax, soon 0 or 1 in half"
            )
            return Refusal("AMP020", message, at.stmt.line)
        return None

    # -- squares --------------------------------------------------------------------------------

    def _of_reduced(self, at: Made) -> Refusal | None:
        """``(x * x).mean()``: beyond 256 the square is infinite."""
        operand = self._operand(at, _REDUCES) if self.overflows else None
        if operand is None:
            return None
        for made in self._same(at.inner(operand), 0):
            factor = _factor(made.expr)
            if factor is not None:
                call = at.expr.func if isinstance(at.expr, ir.Call) else at.expr
                by_torch = self.program.origin(call, at.function) is not None
                of = made.inner(factor)
                found = self._raise(of, by_torch)
                if found is not None:
                    return found
        return None

    def _of_spread(self, at: Made) -> Refusal | None:
        """``(x ** 2).mean() - x.mean() ** 2``: what is left of two large numbers."""
        operands = difference(at.expr)
        if operands is None:
            return None
        left, right = (self._same(at.inner(operand), 0) for operand in operands)
        if not any(self._is_mean_of_squares(made) for made in left):
            return None
        for made in right:
            base = squared(made.expr)
            if base is None:
                continue
            for mean in self._same(made.inner(base), 0):
                # A sum is in fp32 by itself.
                operand = self._operand(mean, _MEANS)
                if operand is None:
                    continue
                of = mean.inner(operand)
                found = self._raise(of, False)
                if found is not None:
                    return found
        return None

    def _is_mean_of_squares(self, at: Made) -> bool:
        operand = self._operand(at, _REDUCES)
        return operand is not None and any(
            squared(made.expr) is not None for made in self._same(at.inner(operand), 0)
        )

    def _of_area(self, at: Made) -> None:
        """``(x2 - x1) * (y2 - y1)``: in pixels, the area of a box of 256 by 256 is infinite.

        Where nothing makes it fp32 it stays, as it does where people use autocast: boxes are often counted in
        smaller units.
        """
        names = [ir.last_of(target) or "" for target in at.stmt.targets]
        names.append(self.program.functions[at.function].name)
        match at.expr:
            case ir.Operation(op="*", operands=sides) if (
                self.overflows
                and any(map(_AREA.search, names))
                and all(self._is_side(at.inner(side), 0) for side in sides)
                and not self.halves.is_never_half(at)
            ):
                for side in sides:
                    ends = side.operands if isinstance(side, ir.Operation) else ()
                    for one in (side, *ends):
                        of = at.inner(one)
                        if self.remedies.raise_(of, self.remedies.is_tensor(of)):
                            self.halves.made_full.update((id(one), id(side)))
                            return

    def _is_side(self, at: Made, depth: int) -> bool:
        """Whether a value is the distance of two others, also one that is kept from being negative, or the
        width or the height in ``box[:, 2] * box[:, 3]``."""
        match at.expr:
            case ir.Item(value=value, key=key):
                last = key.items[-1:] if isinstance(key, ir.Display) else (key,)
                return last in _SIDES or self._is_side(at.inner(value), depth)
            case ir.Operation(op="+" | "-", operands=ends):
                return not any(isinstance(end, ir.Const) for end in ends)
            case ir.Call(func=ir.Attr(value=value, attr=attr) as func) if (
                attr in _BOUNDS
            ):
                if self.program.origin(func, at.function) is not None:
                    given = at.expr.argument(0, "input")
                    return given is not None and self._is_side(at.inner(given), depth)
                return self._is_side(at.inner(value), depth)
            case ir.Name() | ir.Attr() if depth <= _DEEPEST:
                made = [one for one in self._same(at, depth) if one != at]
                return bool(made) and all(self._is_side(m, depth + 1) for m in made)
        return False

    # -- angles ---------------------------------------------------------------------------------

    def _of_angle(self, at: Made) -> Refusal | None:
        """``torch.sin(angle.type_as(h))``: half precision has no digits behind the point from 1024 on; nor
        any number beyond 65504, ``counts.type_as(h).log()``."""
        operand, what = self._operand(at, _TURNS), "sine"
        if operand is None and self.overflows:
            operand, what = self._operand(at, _LOGS | {"sqrt"}), "logarithm, or root,"
        for method, like in (
            () if operand is None else self._cast_like(at.inner(operand), 0)
        ):
            if not self.halves.is_never_half(like) and not (
                (method == "type_as" or what != "sine")
                and self.remedies.raise_(like, True)
            ):
                message = f"the {what} of what is cast to half precision, which may be a large number"
                return Refusal("AMP020", message, at.stmt.line)
        return None

    def _cast_like(self, at: Made, depth: int) -> Iterator[tuple[str, Made]]:
        """What a value, or what it is computed from, takes its dtype from by a cast, and the cast."""
        match at.expr:
            case ir.Operation(operands=operands):
                for operand in operands:
                    yield from self._cast_like(at.inner(operand), depth)
            case ir.Item(value=value):
                yield from self._cast_like(at.inner(value), depth)
            case ir.Name() | ir.Attr():
                for made in self._same(at, depth):
                    if made != at:
                        yield from self._cast_like(made, depth + 1)
            case ir.Call(func=ir.Attr(value=value, attr=method), args=args):
                given = [arg.value for arg in args if arg.name in (None, "dtype")]
                if method in ("to", "type", "type_as") and len(given) == 1:
                    match given[0]:
                        case ir.Attr(value=like, attr="dtype"):
                            yield method, at.inner(like)
                        case like if method == "type_as" or (
                            method == "to" and self.remedies.is_tensor(at.inner(like))
                        ):
                            yield method, at.inner(like)
                elif not self.program.resolve(at.expr.func, at.function):
                    yield from self._cast_like(at.inner(value), depth)

    def _of_places(self, at: Made) -> Refusal | None:
        """``torch.einsum("i,j->ij", torch.arange(n), frequencies)``, for a sine: autocast multiplies places
        in half precision."""
        match at.expr:
            case ir.Operation(op="@", operands=operands):
                pass
            case ir.Call(func=ir.Attr(value=value, attr=name), args=args) if (
                name in _PRODUCTS
            ):
                operands = (value, *(arg.value for arg in args))
            case _:
                return None
        names = self.program.modules[ir.file_of(at.function)].identifiers
        if id(at.expr) in self.halves.made_full or names.isdisjoint(_TURNS):
            return None
        if not any(self._counts(at.inner(one), 0) for one in operands):
            return None
        message = "the angle of a sine is multiplied in half precision"
        return Refusal("AMP020", message, at.stmt.line)

    def _counts(self, at: Made, depth: int) -> bool:
        """Whether a value is a range of numbers, or computed from one."""
        match at.expr:
            case ir.Name() | ir.Attr():
                made = [one for one in self._same(at, depth) if one != at]
                return any(self._counts(one, depth + 1) for one in made)
            case ir.Item(value=value):
                return self._counts(at.inner(value), depth)
            case ir.Operation(op="+" | "-" | "*" | "/", operands=operands):
                return any(self._counts(at.inner(one), depth) for one in operands)
            case ir.Call(func=ir.Attr(value=value) as func):
                origin = self.program.origin(func, at.function)
                if origin is None and func.attr in _KEEP_PLACES:
                    return self._counts(at.inner(value), depth)
                return origin == "torch.arange"
        return False

    # -- what helps -----------------------------------------------------------------------------

    def _raise(self, at: Made, tensor: bool) -> Refusal | None:
        """``tensor``: it is one for sure."""
        if self.dtypes.is_number(at):
            return None
        if not self.remedies.raise_(at, tensor):
            message = "a square of large numbers loses its digits in half precision"
            return Refusal("AMP020", message, at.stmt.line)
        self.halves.made_full.add(id(at.expr))
        return None

    def _operand(self, at: Made, names: frozenset[str]) -> ir.Expr | None:
        """What one of some functions or methods of torch is applied to."""
        call = at.expr
        if not isinstance(call, ir.Call):
            return None
        origin = self.program.origin(call.func, at.function)
        if origin is not None:
            if not origin.startswith("torch.") or origin[6:] not in names:
                return None
            return call.argument(0, "input")
        func = call.func
        if not isinstance(func, ir.Attr) or func.attr not in names:
            return None
        if self.program.resolve(func, at.function):
            return None
        if names is _LOGS and call.args:
            # `wandb.log(...)`
            return None
        return func.value

    def _same(self, at: Made, depth: int) -> list[Made]:
        """An expression, or what made the variable that it is."""
        if not isinstance(at.expr, (ir.Name, ir.Attr)) or depth > _DEEPEST:
            return [at]
        return [
            same
            for made in self.remedies.flow.made(at) or ()
            if made.index is None and made.expr != at.expr
            for same in self._same(made, depth + 1)
        ]


def squared(expr: ir.Expr) -> ir.Expr | None:
    """``x`` of ``x ** 2``, ``x * x``, ``x.pow(2)``, ``torch.square(x)``."""
    factor = _factor(expr)
    if factor is not None:
        return factor
    match expr:
        case ir.Operation(op="**", operands=(base, ir.Const(value=2 | 2.0))):
            return base
        case ir.Call(func=ir.Attr(value=base, attr=attr), args=args):
            given = [arg.value for arg in args]
            if attr == "square":
                return given[0] if given else base
            if attr == "pow" and given and given[-1] in (ir.Const(2), ir.Const(2.0)):
                return given[0] if len(given) == 2 else base
    return None


def _factor(expr: ir.Expr) -> ir.Expr | None:
    """The first ``x`` of ``x * x``, ``torch.mul(x, x)``, ``x.mul(x)``."""
    match expr:
        case ir.Operation(op="*", operands=(left, right)):
            pass
        case ir.Call(
            func=ir.Attr(attr="mul" | "multiply"),
            args=(ir.Arg(value=left), ir.Arg(value=right)),
        ):
            pass
        case ir.Call(
            func=ir.Attr(value=left, attr="mul" | "multiply"),
            args=(ir.Arg(value=right),),
        ):
            pass
        case _:
            return None
    return left if left == right and not isinstance(left, ir.Const) else None


def difference(expr: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
    match expr:
        case ir.Operation(op="-", operands=(left, right)):
            return left, right
        case ir.Call(
            func=ir.Attr(value=base, attr="sub" | "subtract"), args=args
        ) if args:
            given = [arg.value for arg in args if arg.name is None]
            if len(given) == 2:
                return given[0], given[1]
            return (base, given[0]) if len(given) == 1 else None
    return None
