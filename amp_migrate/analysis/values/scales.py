"""The power of a scaler's scale that a value carries: 1 for a scaled loss and its gradients, 0 for what does
not depend on the scale, -1 for what is divided by it.

Values are followed through names, attributes and calls by `PointsTo`, and through operators by their
degrees. What adds or compares values of two powers depends on the scale in a way that no division mends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from amp_migrate.analysis.objects.points_to import IN_PLACE, Context, Object, PointsTo
from amp_migrate.analysis.tables import operators
from amp_migrate.analysis.tables.degrees import (
    Degree,
    Unclear,
    element,
    flat,
    joined,
    power,
    product,
    quotient,
)
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.link import Program

GRADIENT = "gradient"
"""Kept in ``.grad``: divided by the scale where the scaler has unscaled it."""
ASKED = "asked"
"""Given by ``torch.autograd.grad``: nobody divides it by the scale but who asked."""
LOSS = "loss"
SCALE = "scale"
"""The scale itself, as ``get_scale()`` tells it."""

_GRADS = "torch.autograd.grad"
_RANDOM = operations("random")
_PARAMETERS = frozenset("parameters named_parameters".split())
_MAY_CARRY = re.compile(r"(?i)scal|inv|grad")
"""In the name of a value that is not in sight, and may carry a power of the scale."""
_NUMBERS = frozenset("item tolist float".split())
_NORMS = frozenset("vector_norm matrix_norm _foreach_norm get_total_norm".split())
_FACTORS = frozenset(("alpha", "weight"))
_TINY = 1e-3
"""What is added to a value so that a division by it never fails."""
_DEEPEST = 24
_MOST_VALUES = 500
"""That are looked at for one question."""


class Mixed(Unclear):
    """Values of two powers are added, or compared: the result depends on the scale."""

    def __init__(self, sources: frozenset[str], stmt: ir.Stmt | None) -> None:
        super().__init__()
        self.sources = sources
        self.stmt = stmt

    @property
    def of_gradients(self) -> bool:
        """Whether it is for the gradients that a scaler unscales, and not for others."""
        return GRADIENT in self.sources and not self.sources & {ASKED, LOSS}


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value: its power of the scale, what gave it that, and whether a power of 0 is
    certain: of a constant, of noise, of a parameter, and not of what is out of sight.
    """

    degree: Degree
    sources: frozenset[str] = frozenset()
    certain: bool = False

    @property
    def is_scaled(self) -> bool:
        """Whether all of it carries some power of the scale."""
        return all(one not in (None, 0.0) for one in flat(self.degree))


PLAIN = Value(0.0, certain=True)
_UNSEEN = Value(0.0)
_NOTHING = Value(None, certain=True)
Environment = Mapping[tuple[str, str], Value]
Place = tuple[str, ir.Stmt | None, Context]


class Scales:
    """Answers for one program."""

    def __init__(
        self,
        program: Program,
        values: PointsTo,
        is_scaler: Callable[[ir.Expr, str], bool],
    ) -> None:
        self.program = program
        self.values = values
        self.is_scaler = is_scaler
        self._asked: set[tuple[object, ...]] = set()
        self._known: dict[tuple[object, ...], tuple[Context, Value | Unclear]] = {}
        """With the calls whose identities are in the key."""
        self._cut = False
        """An answer within the present question is not the last word."""
        self._left = 0

    def of(
        self,
        expr: ir.Expr,
        function: str,
        stmt: ir.Stmt | None,
        given: Environment | None = None,
    ) -> Value:
        """What a value carries where a statement reads it; raises `Unclear`, or `Mixed`. ``given``: what
        parameters carry that somebody out of sight gives."""
        self._left, self._cut = _MOST_VALUES, False
        found = self._of(expr, (function, stmt, ()), given or {})
        if self._left < 0:
            raise Unclear
        return found

    def is_parameter(self, expr: ir.Expr, function: str, stmt: ir.Stmt | None) -> bool:
        """Whether a value is a parameter of a module, or several."""
        found = self.values.of(without_data(expr), function, stmt)
        return bool(found) and all(map(self._holds_parameters, found))

    def _holds_parameters(self, one: Object) -> bool:
        if isinstance(one.expr, ir.Call) and one.expr.args:
            origin = self.program.origin(one.expr.func, one.function)
            if origin in ("builtins.list", "builtins.tuple"):
                return self.is_parameter(one.expr.args[0].value, one.function, one.stmt)
        if isinstance(one.expr, ir.Comprehension) and len(one.expr.elements) == 1:
            return self.is_parameter(one.expr.elements[0], one.function, one.stmt)
        return _is_parameter(one)

    # -- expressions ------------------------------------------------------------------------------

    def _of(self, expr: ir.Expr, at: Place, given: Environment) -> Value:
        match expr:
            case ir.Const(value=value):
                is_zero = value is None or (type(value) in (int, float) and value == 0)
                return _NOTHING if is_zero else PLAIN
            case ir.Attr(value=value, attr=attr) if attr in operators.VIEWS:
                return self._of(value, at, given)
            case ir.Attr(attr=attr) if attr in operators.ATTRIBUTES:
                return PLAIN
            case ir.Attr(attr="grad"):
                return Value(1.0, frozenset((GRADIENT,)))
            case ir.Name(id=name) if (at[0], name) in given and all(
                one.stmt.kind == "augassign"
                for one in self.program.definitions(at[0], name)
            ):
                return given[at[0], name]
            case ir.Name() | ir.Attr() | ir.Item():
                return self._of_objects(expr, at, given)
            case ir.Display(kind="list" | "tuple", items=items):
                parts = [self._of(one, at, given) for one in items]
                return _gathered(tuple(part.degree for part in parts), parts)
            case ir.Operation():
                return self._of_operation(expr, at, given)
            case ir.Comprehension(elements=elements):
                return self._of(elements[-1], at, given)
            case ir.Call():
                return self._of_call(expr, at, given)
            case ir.Walrus(value=value):
                return self._of(value, at, given)
        raise Unclear

    def _of_objects(self, expr: ir.Expr, at: Place, given: Environment) -> Value:
        function, stmt, context = at
        path = None if stmt is None else stmt.path
        key = (expr, function, path, tuple(map(id, context)), id(given) if given else 0)
        if key in self._known:
            _, known = self._known[key]
            if isinstance(known, Unclear):
                raise known
            return known
        self._left -= 1
        if key in self._asked or len(self._asked) > _DEEPEST or self._left < 0:
            # What is computed of itself carries what it began with.
            self._cut = True
            return _NOTHING
        self._asked.add(key)
        before, self._cut = self._cut, False
        answer: Value | Unclear
        try:
            objects = self.values.of(expr, function, stmt, context)
            seen = [one for one in objects if one.kind != "open"]
            found = [self._of_object(one, expr, at, given) for one in seen or objects]
            if not found:
                raise Unclear
            answer = _gathered(joined(*(one.degree for one in found)), found)
        except Unclear as unclear:
            answer = unclear
        self._asked.discard(key)
        if not self._cut and not given:
            self._known[key] = context, answer
        self._cut = self._cut or before
        if isinstance(answer, Unclear):
            raise answer
        return answer

    def _of_object(
        self, one: Object, expr: ir.Expr, at: Place, given: Environment
    ) -> Value:
        if ("attribute", "grad") in one.fields:
            return Value(1.0, frozenset((GRADIENT,)))
        if _is_parameter(one):
            return PLAIN
        if one.name == IN_PLACE and one.stmt and one.stmt.value and not one.fields:
            # x += y: beside what it was before, which is another of the objects.
            if one.stmt.op not in ("+", "-"):
                raise Unclear
            return self._of(one.stmt.value, one.place, given)
        if one.kind in ("lost", "open"):
            name = one.expr.id if isinstance(one.expr, ir.Name) else ""
            if (one.function, name) in given:
                return given[one.function, name]
            if _MAY_CARRY.search(ir.key_of(one.expr) or ir.key_of(expr) or ""):
                raise Unclear
            return _UNSEEN
        if one.kind != "value":
            return _UNSEEN
        if isinstance(one.expr, (ir.Name, ir.Attr, ir.Item)) and one.expr == expr:
            return _UNSEEN
        inner = self._made(one.expr, (one.function, one.stmt, one.context), given)
        if not one.fields:
            return inner
        taken = {
            name for kind, name in one.fields if kind == "attribute"
        } - operators.VIEWS
        if taken & operators.ATTRIBUTES:
            return PLAIN
        if taken and inner.is_scaled:
            raise Unclear
        return Value(element(inner.degree), inner.sources, inner.certain)

    def _made(self, expr: ir.Expr, at: Place, given: Environment) -> Value:
        """What an object carries where it is made."""
        if isinstance(expr, ir.Call):
            return self._of_made_call(expr, at, given)
        return self._of(expr, at, given)

    def _of_operation(self, expr: ir.Operation, at: Place, given: Environment) -> Value:
        op = expr.op
        if op in ("is", "is not", "in", "not in", "joinedstr", "not"):
            return PLAIN
        operands = [self._of(one, at, given) for one in expr.operands]
        degrees = [one.degree for one in operands]
        match op:
            case "+" | "-" | "if":
                chosen = operands[1:] if op == "if" else operands
                return _added(expr.operands, chosen, at[1])
            case "*" | "@":
                return _gathered(product(*degrees), operands)
            case "/":
                return _gathered(quotient(*degrees), operands)
            case "**" if isinstance(expr.operands[1], ir.Const):
                exponent = expr.operands[1].value
                if isinstance(exponent, (int, float)):
                    return _gathered(power(degrees[0], exponent), operands)
            case "-x" | "+x" | "starred":
                return operands[0]
            case "<" | "<=" | ">" | ">=" | "==" | "!=" | "compare":
                _added(expr.operands, operands, at[1])
                return Value(0.0, _sources(operands))
        if any(one.is_scaled for one in operands):
            raise Unclear
        return _gathered(0.0, operands)

    # -- calls ------------------------------------------------------------------------------------

    def _of_call(self, call: ir.Call, at: Place, given: Environment) -> Value:
        if self.program.callees(call, at[0]):
            return self._of_objects(call, at, given)
        return self._of_made_call(call, at, given)

    def _of_made_call(self, call: ir.Call, at: Place, given: Environment) -> Value:
        origin = self.program.origin(call.func, at[0])
        name = (origin or ir.key_of(call.func) or "").rsplit(".", 1)[-1]
        receiver: ir.Expr | None = None
        if origin is None and isinstance(call.func, ir.Attr):
            name, receiver = call.func.attr, call.func.value
            if name in ("scale", "get_scale") and self.is_scaler(receiver, at[0]):
                return self._of_scaler(name, call, at, given)
        if origin == _GRADS:
            outputs = call.argument(0, "outputs")
            weights = call.argument(2, "grad_outputs")
            if outputs is None:
                raise Unclear
            parts = [self._of(outputs, at, given)]
            parts += [] if weights is None else [self._of(weights, at, given)]
            found = _gathered(product(*(one.degree for one in parts)), parts)
            return Value(found.degree, found.sources - {LOSS} | {ASKED})
        if name in operators.ASKS or name in _PARAMETERS:
            return PLAIN
        if name in _RANDOM or name in operators.ONES:
            return PLAIN
        if name in operators.ZEROS:
            return _NOTHING
        plain = [self._of(a.value, at, given) for a in call.args if a.name is None]
        named = {a.name: self._of(a.value, at, given) for a in call.args if a.name}
        if receiver is not None:
            plain.insert(0, self._of(receiver, at, given))
        everything = [*plain, *named.values()]
        if not any(one.is_scaled for one in everything):
            return Value(0.0, certain=all(one.certain for one in everything))
        if name in _NUMBERS | _NORMS:
            name = "norm" if name in _NORMS else "clone"
        if not operators.is_known(name):
            raise Unclear
        said = tuple(map(operators.said, call.args))
        written = [] if receiver is None else [receiver]
        written += [arg.value for arg in call.args]

        def degree(expr: ir.Expr, one: Value) -> Degree:
            return None if _is_tiny(expr) else one.degree

        applied = operators.Applied(
            name,
            receiver is not None,
            (origin or "").startswith("builtins."),
            tuple(map(degree, written, plain)),
            {
                k: degree(call.argument(99, k) or ir.Name(""), v)
                for k, v in named.items()
            },
            said,
        )
        try:
            return _gathered(operators.degree_of(applied), everything)
        except Unclear:
            summed = [one for k, one in named.items() if k not in _FACTORS]
            if _are_told([*plain, *summed]) and not _is_rounded(said):
                raise Mixed(_sources(everything), at[1]) from None
            raise

    def _of_scaler(
        self, name: str, call: ir.Call, at: Place, given: Environment
    ) -> Value:
        if name == "get_scale":
            return Value(1.0, frozenset((SCALE,)))
        loss = call.argument(0, "outputs")
        if loss is None:
            raise Unclear
        try:
            inner = self._of(loss, at, given)
        except Unclear:
            inner = _UNSEEN
        degree = product(inner.degree, 1.0) if inner.degree is not None else 1.0
        return Value(degree, inner.sources | {LOSS})


def _sources(parts: list[Value]) -> frozenset[str]:
    return frozenset(source for one in parts for source in one.sources)


def _gathered(degree: Degree, parts: list[Value]) -> Value:
    return Value(degree, _sources(parts), all(one.certain for one in parts))


def _added(
    exprs: tuple[ir.Expr, ...], parts: list[Value], stmt: ir.Stmt | None
) -> Value:
    """The sum of some values, which have to be of one power."""
    kept = [
        one
        for expr, one in zip(exprs[-len(parts) :], parts, strict=True)
        if not _is_tiny(expr)
    ]
    try:
        degree = joined(*(one.degree for one in kept))
    except Unclear:
        if _are_told(kept):
            raise Mixed(_sources(kept), stmt) from None
        raise
    return _gathered(degree, parts)


def _are_told(parts: list[Value]) -> bool:
    """Whether nothing that is out of sight may make some values those of one power."""
    return all(one.certain or one.is_scaled or one.sources for one in parts)


def _is_tiny(expr: ir.Expr) -> bool:
    return (
        isinstance(expr, ir.Const)
        and isinstance(expr.value, float)
        and 0 < abs(expr.value) < _TINY
    )


def _is_rounded(said: tuple[object, ...]) -> bool:
    return any(isinstance(one, str) and "int" in one for one in said)


def without_data(expr: ir.Expr) -> ir.Expr:
    """A parameter by whose ``.data``, or ``detach()``, it is changed."""
    while True:
        match expr:
            case ir.Attr(value=inner, attr="data"):
                expr = inner
            case ir.Call(func=ir.Attr(value=inner, attr="detach")):
                expr = inner
            case _:
                return expr


def _is_parameter(one: Object) -> bool:
    return (
        isinstance(one.expr, ir.Call)
        and ir.method_of(one.expr) in _PARAMETERS
        and ("attribute", "grad") not in one.fields
    )
