"""What raises, or vanishes, where a region of autocast computes in half precision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.points_to import (
    DEEPEST,
    EACH,
    Fields,
    Object,
    PointsTo,
    State,
    attribute,
)
from amp_migrate.analysis.tables.vocabulary import HALVES
from amp_migrate.analysis.values.bce import BceLosses
from amp_migrate.analysis.values.numbers import Numbers
from amp_migrate.catalogue.operations import operations
from amp_migrate.lint.misuse.order.amp import Amp
from amp_migrate.lint.misuse.order.regions import Regions
from amp_migrate.lint.misuse.order.spelled import PARTIAL, Spelled
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_part
from amp_migrate.program.link import Program

BCE = "AMP204"
OVERFLOW = "AMP205"
VANISHING = "AMP206"
CUSTOM = "AMP207"

_FP16 = HALVES["float16"]
PRODUCTS = re.compile(
    r"torch\.(matmul|bmm|mm|einsum|addmm|baddbmm|addbmm)"
    r"|torch\.nn\.functional\.(linear|bilinear|conv[123]d|conv_transpose[123]d)"
)
"""Functions that autocast computes in half precision, whatever they are given."""
LAYERS = re.compile(
    r"torch\.nn\.(modules\.\w+\.)?(Linear|Conv[123]d|ConvTranspose[123]d)"
)
METHODS = frozenset("matmul bmm mm".split())
KEEPS = operations("first") - operations("fp32", "raises") - {"float_power_"}
"""Functions and methods whose result has the dtype of what they are given, under autocast, too."""
_VIEWS = operations("view", "turns")
_NUMBERS = frozenset(
    "math.sqrt numpy.sqrt builtins.float builtins.int builtins.len".split()
)
_DEEPEST = 3
_COUNTS = frozenset("** * / // + - -x".split())
_GIVEN = {
    "masked_fill": ((1, "value"),),
    "fill": ((0, "value"),),
    "new_full": ((1, "fill_value"),),
    "full_like": ((0, "fill_value"),),
    "pad": ((2, "value"),),
    "clamp": ((0, "min"), (1, "max")),
    "clip": ((0, "min"), (1, "max")),
    "clamp_min": ((0, "min"),),
    "clamp_max": ((0, "max"),),
}
"""The numbers that are made those of a tensor's dtype: the position after the tensor, and the name."""
_FAILS_AT_ZERO = {
    "log": "the logarithm of 0",
    "log2": "the logarithm of 0",
    "log10": "the logarithm of 0",
    "sqrt": "the square root of 0, whose gradient is infinite,",
    "rsqrt": "a division by 0",
    "reciprocal": "a division by 0",
}


_APPLY = attribute("apply")


@dataclass(frozen=True, slots=True)
class Numeric:
    """Something that matters where a region is open."""

    code: str
    call: ir.Call | None
    """What a finding points at; None for the statement."""
    message: str = ""


class Values(PointsTo):
    """Tensors: what ``x.to(...)`` gives is another one."""

    returns_self = frozenset()

    def _of_call(self, call: ir.Call, at: State) -> Iterator[State | Object]:
        """Of an object that is called, what its ``__call__`` gives back, too."""
        sites = list(self.program.call_sites_of(call, at.function))
        methods = {self.program.functions[one.callee].name for one in sites}
        refs = self.program.resolve(call.func, at.function) if sites else ()
        if methods != {"__call__"} or any(ref.kind != "instance" for ref in refs):
            yield from super()._of_call(call, at)
            return
        for site in sites:
            context = (*at.context, site)[-DEEPEST:]
            here = at._replace(function=site.callee, stmt=None, context=context)
            yield from self._returned(site.callee, here)

    def _returned(self, function: str, at: State) -> Iterator[State | Object]:
        """What a function gives back; of a generator, what it hands out to a loop."""
        facts = self.program.functions[function]
        if not facts.is_generator or facts.is_async or at.fields[:1] != (EACH,):
            yield from super()._returned(function, at)
            return
        for stmt in ir.statements(facts.body):
            for expr in stmt.exprs:
                for inner in ir.walk(expr):
                    if isinstance(inner, ir.Suspend) and inner.value is not None:
                        taken = at.fields[inner.kind == "yield" :]
                        yield at._replace(
                            expr=inner.value, function=function, stmt=stmt, fields=taken
                        )


class Numerics:
    """Finds them in the statements of one program."""

    def __init__(self, amp: Amp) -> None:
        self.amp = amp
        self.program = amp.program
        self._values = self.program.noted(Values)
        self._losses = BceLosses(self.program)
        self._numbers = Numbers(self.program, _FP16)
        self._spelled = Spelled(self.program)
        self._names_bce: dict[str, bool] = {}
        """Of a file, whether any word in it may name such a loss."""
        self._regions = Regions(amp)
        self._asked: set[tuple[object, ...]] = set()

    def of(self, stmt: ir.Stmt, function: str) -> Iterator[Numeric]:
        """What one statement does."""
        file = ir.file_of(function)
        if file not in self._names_bce:
            words = self.program.modules[file].identifiers
            self._names_bce[file] = any(
                "bce" in word.lower() or "entropy" in word for word in words
            )
        own_bce = self._names_bce[file]
        message = self._stored(stmt, function)
        if message:
            yield Numeric(OVERFLOW, None, message)
        for expr in stmt.exprs:
            for call in ir.calls_in(expr):
                if own_bce and (
                    (
                        self._losses.computes(call, function)
                        and not self._is_other_loss(call.func, function, stmt)
                    )
                    or self._is_kept_loss(call.func, function, stmt)
                ):
                    yield Numeric(BCE, call)
                message = self._overflow(call, function, stmt)
                if message:
                    yield Numeric(OVERFLOW, call, message)
                if self._is_custom(call, function):
                    yield Numeric(CUSTOM, call)
            for inner in ir.walk(expr):
                message = self._vanishing(inner, function, stmt)
                if message:
                    at = inner if isinstance(inner, ir.Call) else None
                    yield Numeric(VANISHING, at, message)

    def _is_other_loss(self, func: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether the loss is made under tests only that never let it be."""
        if isinstance(func, ir.Name) or not isinstance(func, ir.Attr):
            return False
        made = [
            one
            for one in self.amp.points_to.of(func, function, stmt)
            if isinstance(one.expr, ir.Call)
            and self._losses.makes(one.expr, one.function)
        ]
        return bool(made) and all(False in self.amp.tests_on(one) for one in made)

    def _is_kept_loss(self, func: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether what is called is the loss, out of a table, say, or by an argument."""
        known = self.program.origin(func, function) or self.program.resolve(
            func, function
        )
        made = () if known else self.amp.points_to.whole(func, function, stmt)
        return bool(made) and all(
            isinstance(one.expr, ir.Call)
            and any(
                isinstance(each, ir.Call) and self._makes_loss(each, one.function)
                for each in _turns(one.expr, one.fields)
            )
            for one in made
        )

    def _makes_loss(self, call: ir.Call, function: str) -> bool:
        if self.program.origin(call.func, function) == PARTIAL and call.args:
            inner = ir.Call(call.args[0].value, ())
            return self._losses.computes(inner, function)
        return self._losses.makes(call, function)

    # -- overflow -------------------------------------------------------------------------------

    def _overflow(self, call: ir.Call, function: str, stmt: ir.Stmt) -> str:
        held, name, first = self._applied(call, function)
        if held is None or name not in _GIVEN or call.argument(99, "dtype"):
            return ""
        for position, keyword in _GIVEN[name]:
            value = call.argument(first + position, keyword)
            # Whether it is half is told sooner: most of what a tensor is given leads far away.
            if value is None or not self.is_half(held, function, stmt):
                continue
            if self._is_too_large(value, function):
                return _beyond(value)
        return ""

    def _stored(self, stmt: ir.Stmt, function: str) -> str:
        """``scores[mask] = -1e9``."""
        match stmt:
            case ir.Stmt(kind="assign", targets=(ir.Item(value=held),), value=value):
                if value is not None and self.is_half(held, function, stmt):
                    if self._is_too_large(value, function):
                        return _beyond(value)
        return ""

    def _applied(self, call: ir.Call, function: str) -> tuple[ir.Expr | None, str, int]:
        """The tensor that a function of torch, or its method, is applied to, its name without the mark
        of what is done in place, and how many arguments stand before those of the method.
        """
        origin = self.program.origin(call.func, function)
        if origin is not None:
            package, _, name = origin.rpartition(".")
            known = package in ("torch", "torch.nn.functional")
            return call.argument(0, "input") if known else None, name.rstrip("_"), 1
        if isinstance(call.func, ir.Attr):
            return call.func.value, call.func.attr.rstrip("_"), 0
        return None, "", 0

    def _is_too_large(self, value: ir.Expr, function: str) -> bool:
        numbers = self._numbers.all(value, function)
        return bool(numbers) and all(map(_FP16.overflows, numbers))

    # -- epsilons -------------------------------------------------------------------------------

    def _vanishing(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> str:
        """``log(h + 1e-8)``, ``x / (h + 1e-8)``: the sum is ``h`` where that is half."""
        given: ir.Expr | None = None
        match expr:
            case ir.Operation(op="/", operands=(_, below)):
                given, harm = below, "a division by 0"
            case ir.Call():
                held, name, _ = self._applied(expr, function)
                if name in _FAILS_AT_ZERO:
                    given, harm = held, _FAILS_AT_ZERO[name]
        if given is None:
            return ""
        made: list[tuple[ir.Expr, str, ir.Stmt | None]] = [(given, function, stmt)]
        if isinstance(given, ir.Name):
            whole = self._values.whole(given, function, stmt)
            made = [(o.expr, o.function, o.stmt) for o in whole if not o.fields]
        if len(made) != 1:
            return ""
        made[0] = (self._without_views(made[0][0], function), *made[0][1:])
        kept = self._kept_from_zero(*made[0])
        if kept is None or not self.is_half(kept[0], *made[0][1:]):
            return ""
        return (
            f"{kept[1]:g} is zero in float16, whose smallest number is 6e-8: this is {harm} where"
            " it should help; compute it on .float()"
        )

    def _without_views(self, expr: ir.Expr, function: str) -> ir.Expr:
        """What is looked at in another shape: ``h`` of ``h.unsqueeze(1)``."""
        while isinstance(expr, ir.Call):
            held, name, _ = self._applied(expr, function)
            if held is None or name not in _VIEWS:
                break
            expr = held
        return expr

    def _kept_from_zero(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None
    ) -> tuple[ir.Expr, float] | None:
        """What is kept from being zero, and by which number that is too small."""
        pairs: list[tuple[ir.Expr, ir.Expr | None]] = []
        match expr:
            case ir.Operation(op="+", operands=(left, right)):
                pairs = [(left, right), (right, left)]
            case ir.Call():
                held, name, first = self._applied(expr, function)
                if held is not None and name in ("clamp", "clip", "clamp_min"):
                    pairs = [(held, expr.argument(first, "min"))]
                elif held is not None and name == "add":
                    pairs = [(held, expr.argument(first, "other"))]
        for held, number in pairs:
            eps = (number and self._numbers.one(number, function)) or 0
            # Half of the smallest number is rounded to nothing.
            if 0 < eps < _FP16.smallest / 2:
                return held, eps
        return None

    # -- dtypes ---------------------------------------------------------------------------------

    def is_half(self, expr: ir.Expr, function: str, stmt: ir.Stmt | None) -> bool:
        """Whether a tensor is float16 in a region of float16, for all that is seen here."""
        match expr:
            case ir.Operation(op="@"):
                return True
            case ir.Operation(op="+" | "-" | "*" | "/", operands=operands):
                tensors = [
                    one for one in operands if not self._is_number(one, function, stmt)
                ]
                return bool(tensors) and all(
                    self.is_half(one, function, stmt) for one in tensors
                )
            case ir.Operation(op="-x", operands=(inner,)):
                return self.is_half(inner, function, stmt)
            case ir.Call() if self._makes_half(expr, function, stmt):
                return True
        key = expr, function, None if stmt is None else stmt.path
        if key in self._asked:
            return True
        self._asked.add(key)
        made = self._values.whole(expr, function, stmt)
        found = bool(made) and all(
            one.expr != expr
            and not one.fields
            and self._is_where(one, function, stmt)
            and self.is_half(one.expr, one.function, one.stmt)
            for one in made
        )
        self._asked.discard(key)
        return found

    def _makes_half(self, call: ir.Call, function: str, stmt: ir.Stmt | None) -> bool:
        if is_product(self.program, call, function):
            return True
        origin = self.program.origin(call.func, function)
        if origin is not None:
            given = call.argument(0, "input")
            package, _, name = origin.rpartition(".")
            if origin == "torch.where":
                chosen = [arg.value for arg in call.args[1:]]
                tensors = [o for o in chosen if not self._is_number(o, function, stmt)]
                return bool(tensors) and all(
                    self.is_half(one, function, stmt) for one in tensors
                )
            return (
                package in ("torch", "torch.nn.functional")
                and name in KEEPS
                and given is not None
                and self.is_half(given, function, stmt)
            )
        return (
            isinstance(call.func, ir.Attr)
            and call.func.attr in KEEPS
            and not self.program.resolve(call.func, function)
            and self.is_half(call.func.value, function, stmt)
        )

    def _is_where(self, made: Object, function: str, stmt: ir.Stmt | None) -> bool:
        """Whether a value is made in a region wherever that is open that it is used in."""
        inside = self._is_inside(made.function, made.stmt)
        if inside is None and made.function != function:
            return not self._is_inside(function, stmt)
        return inside is not False

    def _is_inside(self, function: str, stmt: ir.Stmt | None) -> bool | None:
        """Whether a statement stands in a region; None where its function opens none."""
        found = [path for path, _ in self._regions.of(function) if path]
        if not found or stmt is None:
            return None
        return any(path == stmt.path[: len(path)] for path in found)

    def _is_number(self, expr: ir.Expr, function: str, stmt: ir.Stmt | None) -> bool:
        """Whether a factor is a plain number, which leaves the dtype of a tensor as it is."""
        made = self._values.of(expr, function, stmt)
        return bool(made) and all(map(self._counts, made))

    def _counts(self, one: Object) -> bool:
        if ("attribute", "shape") in one.fields:
            return True
        match one.expr:
            case ir.Const(value=int() | float()):
                return True
            case ir.Operation(op=op, operands=operands) if op in _COUNTS:
                return all(self._is_number(o, one.function, one.stmt) for o in operands)
            case ir.Call(func=func):
                origin = self.program.origin(func, one.function)
                return origin in _NUMBERS or (
                    isinstance(func, ir.Attr) and func.attr == "size"
                )
        return False

    # -- functions of the user's own ------------------------------------------------------------

    def _is_custom(self, call: ir.Call, function: str) -> bool:
        """Whether a call applies an autograd.Function whose backward would meet two dtypes."""
        call, _ = self._spelled.out(call, function)
        func, there = call.func, function
        own = isinstance(func, ir.Attr) and func.value == ir.Name("self")
        if own or isinstance(func, ir.Name):
            if not self._has_custom or self.program.callees(call, function):
                return False
            # By a name of its own: multiply = Multiply.apply.
            made = self.amp.points_to.of(func, function)
            if len(made) != 1 or made[0].fields != (_APPLY,):
                return False
            func, there = ir.Attr(made[0].expr, "apply"), made[0].function
        if not isinstance(func, ir.Attr) or func.attr != "apply":
            return False
        return any(
            ref.kind == "class" and self.meets_two_dtypes(ref.name)
            for ref in self.program.resolve(func.value, there)
        )

    @cached_property
    def _has_custom(self) -> bool:
        return any(map(self.meets_two_dtypes, self.program.classes))

    def meets_two_dtypes(self, class_name: str) -> bool:
        """Whether a class is an autograd.Function that multiplies matrices in both directions, with
        tensors that it has saved, and is not made for autocast."""
        bases = self.program.external_bases(class_name)
        if "torch.autograd.Function" not in bases:
            return False
        forward, backward = (
            self.program.method(class_name, name) for name in ("forward", "backward")
        )
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
            for _, inner in each_part(self.program.functions[one].body)
            if isinstance(inner, ir.Attr)
        }
        if words & casts or "saved_tensors" not in words:
            return False
        return self._multiplies(forward) and self._multiplies(backward)

    def _multiplies(self, function: str, depth: int = 0) -> bool:
        return any(
            (isinstance(inner, ir.Operation) and inner.op == "@")
            or (
                isinstance(inner, ir.Call)
                and (
                    self._is_product(inner, function)
                    or (
                        depth < _DEEPEST
                        and any(
                            self._multiplies(one, depth + 1)
                            for one in self.program.callees(inner, function)
                        )
                    )
                )
            )
            for _, inner in each_part(self.program.functions[function].body)
        )

    def _is_product(self, call: ir.Call, function: str) -> bool:
        origin = self.program.origin(call.func, function)
        if origin is not None:
            return PRODUCTS.fullmatch(origin) is not None
        return ir.method_of(call) in METHODS


def is_product(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call is computed in half precision, whatever it is given: a product, or a layer."""
    origin = program.origin(call.func, function)
    if origin is not None:
        return PRODUCTS.fullmatch(origin) is not None
    refs = program.resolve(call.func, function)
    if refs:
        return all(ref.kind == "made" and LAYERS.fullmatch(ref.name) for ref in refs)
    return ir.method_of(call) in METHODS


def _beyond(number: ir.Expr) -> str:
    return (
        f"{ir.render(number) or 'this number'} is beyond float16, whose largest number is 65504: it"
        " raises under autocast"
    )


def _turns(made: ir.Call, fields: Fields) -> tuple[ir.Expr, ...]:
    """What is called: each of the modules in a list has its turn where a loop goes through them."""
    if not fields:
        return (made,)
    inside = made.args[0].value if fields == (EACH,) and made.args else None
    return inside.items if isinstance(inside, ir.Display) else ()
