"""Operations that fail on half operands, or on operands of two dtypes, and the casts that help them."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.vocabulary import HALVES
from amp_migrate.analysis.values.dtypes import rebinds
from amp_migrate.analysis.values.numbers import Numbers
from amp_migrate.catalogue.operations import operations, since
from amp_migrate.core.closure import reached
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import CastLike, Upcast
from amp_migrate.migrate.precision.remedies import Found, Planner, is_part
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call, parts_of
from amp_migrate.sources.requirements import CHOOSES_DTYPE

_WEIGHTS = "per_sample_weights"
_OF_ONE_DTYPE = {
    "lerp": ((0, "input"), (1, "end"), (2, "weight")),
    "lerp_": ((0, "input"), (1, "end"), (2, "weight")),
    "complex": ((0, "real"), (1, "imag")),
    "heaviside": ((0, "input"), (1, "values")),
    "allclose": ((0, "input"), (1, "other")),
    "isclose": ((0, "input"), (1, "other")),
    "max": ((0, "input"), (1, "other")),
    "min": ((0, "input"), (1, "other")),
    "where": ((1, "input"), (2, "other")),
}
"""The operands that want to be of one dtype, by functions; methods have the first before them. Not in the
newest torch where that is said in ``rules/ops.toml``."""
_IN_ANY_TORCH = frozenset("complex heaviside allclose isclose".split())
_GATHERS = ("torch.distributed.all_gather", "torch.distributed.all_gather_into_tensor")
_MAY_BE_NUMBERS = ("weight", "other")
_NEVER = (10**6, 0)
_CUTS = frozenset("data detach item numpy tolist".split())
_RANGES = frozenset("arange linspace range".split())
_COUNTERS = frozenset("bincount histc count_nonzero".split())
_INTEGERS = operations("integers") | {"randint", "randperm"}
_HOLD = {
    **dict.fromkeys(("tensor", "as_tensor", "new_tensor"), (0, "data")),
    **dict.fromkeys(("full", "full_like", "new_full"), (1, "fill_value")),
}
"""What makes a tensor of numbers, and where these are given."""


def is_matrix_norm(origin: str, call: ir.Call) -> bool:
    """Whether `torch.linalg.norm` is asked for a norm of all of a tensor, which that of a matrix refuses half
    operands for; of a vector it does not."""
    asked = call.argument(1, "ord")
    return (
        origin == "torch.linalg.norm"
        and asked not in (None, ir.Const(None))
        and call.argument(2, "dim") in (None, ir.Const(None))
    )


def _is_cut(expr: ir.Expr) -> bool:
    """``h.detach()``, ``h.data``, ``h.cpu().numpy``: no gradient goes back through that."""
    match expr:
        case ir.Attr(value=value, attr=attr):
            return attr in _CUTS or _is_cut(value)
        case ir.Call(func=func):
            return _is_cut(func)
    return False


class Casts(Planner):
    """Plans the casts of one program's operands."""

    # -- fp32 operands --------------------------------------------------------------------------

    def raise_operands(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """Cast the operands of a call up that is not implemented in half precision, if that is one."""
        operands = list(self._operands(function, stmt, call))
        if not operands:
            return False
        edits: list[Found] = []
        by_torch = self.program.origin(call.func, function) is not None
        sure = by_torch or ir.method_of(call) in _HOLD
        for at in operands:
            raised = self.remedies.raised(at.function, at.stmt, at.expr, sure)
            if raised is None:
                return False
            edits += raised
        self.remedies.edits.update(dict.fromkeys(edits))
        return True

    def counted_like(self, at: Made) -> Iterator[Made]:
        """``h`` of ``torch.arange(n, dtype=h.dtype)``, ``positions.type_as(h)``, ``h.new_tensor([4097])``:
        what gets integers that half precision may not have."""
        assert isinstance(at.expr, ir.Call)
        call, function = at.expr, at.function
        name, receiver = self._named(function, call)
        held = call.argument(*_HOLD[name]) if name in _HOLD else None
        if receiver is not None and name in ("to", "type", "type_as"):
            held = receiver
        elif name not in (*_RANGES, *_HOLD):
            return
        counting = [at, *(self._parts(at.inner(held)) if held is not None else ())]
        if any(map(self._is_range, counting)):
            # Those of one grid are to be of one dtype.
            body = self.program.functions[function].body
            counting += [Made(one, function, stmt) for stmt, one in each_call(body)]
        if not any(map(self._counts_far, counting)):
            return
        kinds = [kind for arg in call.args for kind in self._dtypes_of(at, arg)]
        if kinds:
            yield from kinds
        elif name in ("type_as", "full_like") and call.args:
            yield at.inner(call.args[0].value)
        elif name == "to" and call.args:
            like = at.inner(call.args[0].value)
            if self.remedies.is_tensor(like):
                yield like
        elif name.startswith("new_"):
            assert receiver is not None
            yield at.inner(receiver)

    def _dtypes_of(self, at: Made, arg: ir.Arg) -> Iterator[Made]:
        """``h`` of ``h.dtype``, ``kind`` after ``kind = h.dtype``, ``**{"dtype": h.dtype}``."""
        given = [arg.value]
        if isinstance(arg.value, ir.Display) and arg.star:
            given = list(arg.value.items)
        for one in map(at.inner, given):
            for kind in (one, *(self.flow.made(one) or ())):
                if isinstance(kind.expr, ir.Attr) and kind.expr.attr == "dtype":
                    yield kind.inner(kind.expr.value)

    def _parts(self, at: Made) -> list[Made]:
        """All that stands in an expression, or in what it is given."""
        made = [at, *(self.flow.made(at) or ())]
        return [one.inner(part) for one in made for part in ir.walk(one.expr)]

    def _is_range(self, at: Made) -> bool:
        match at.expr:
            case ir.Call() as call:
                return self._named(at.function, call)[0] in _RANGES
        return False

    def _counts_far(self, at: Made) -> bool:
        """Whether it makes a tensor of integers that may go beyond where half precision has each, or of
        numbers beyond its largest: what is filled with those is another matter."""
        if not isinstance(at.expr, ir.Call):
            return False
        name, _ = self._named(at.function, at.expr)
        half = HALVES[self.remedies.dtype]
        if name in _COUNTERS:
            return True
        if name in _RANGES:
            ends = ("start", "end", None)
            given = [arg.value for arg in at.expr.args if arg.name in ends]
            given = given[:2] if name == "linspace" else given
            return not all(
                isinstance(end, ir.Const)
                and isinstance(end.value, (int, float))
                and abs(end.value) <= half.counted
                for end in given
            )
        held = at.expr.argument(*_HOLD[name]) if name in _HOLD else None
        numbers = Numbers(self.program, half)
        return held is not None and any(
            half.skips(number)
            or (name in _HOLD and _HOLD[name][0] == 0 and half.overflows(number))
            for part in self._parts(at.inner(held))
            for number in numbers.all(part.expr, part.function)
        )

    def _operands(self, function: str, stmt: ir.Stmt, call: ir.Call) -> Iterator[Made]:
        at = Made(call, function, stmt)
        yield from map(at.inner, self._narrow(function, call))
        # Of a range it is seldom known how far it goes.
        yield from (
            like
            for like in self.counted_like(at)
            if ir.method_of(call) in _HOLD or self.dtypes.is_fp32(like)
        )
        if self._goes_on_at_cpu(stmt, call):
            assert isinstance(call.func, ir.Attr)
            yield at.inner(call.func.value)
        # Of an embedding bag: they want to be of the dtype of its weights.
        yield from (at.inner(a.value) for a in call.args if a.name == _WEIGHTS)

    def _goes_on_at_cpu(self, stmt: ir.Stmt, call: ir.Call) -> bool:
        """``h.cpu()``, ``h.to("cpu")``, if that stays part of the graph: CUDA's autocast does nothing
        for what is computed there, so it stays half in a sum, say."""
        match call:
            case ir.Call(func=ir.Attr(value=value, attr="cpu"), args=()):
                pass
            case ir.Call(
                func=ir.Attr(value=value, attr="to"),
                args=(
                    ir.Arg(
                        value=ir.Const(value="cpu")
                        | ir.Call(args=(ir.Arg(value=ir.Const(value="cpu")),))
                    ),
                    *_,
                ),
            ):
                pass
            case _:
                return False
        return not _is_cut(value) and not any(
            isinstance(outer, ir.Attr) and _is_cut(outer) and call in ir.walk(outer)
            for outer in parts_of(stmt)
        )

    def _narrow(self, function: str, call: ir.Call) -> Iterator[ir.Expr]:
        """The operands of what is not there in half precision."""
        origin = self.program.origin(call.func, function)
        if origin is not None:
            if dtype_table.FP32_ONLY.fullmatch(origin) or is_matrix_norm(origin, call):
                count = 2 if origin.endswith(("solve", "MultivariateNormal")) else 1
                yield from (arg.value for arg in call.args[:count] if not arg.star)
        elif isinstance(call.func, ir.Attr) and call.func.attr in operations("wide"):
            yield call.func.value
        if name := self.left_half(function, call):
            given = (call.argument(0, "input"), call.argument(1, "grid"))
            if origin is None:
                assert isinstance(call.func, ir.Attr)
                given = (call.func.value, None)
            yield from (one for one in given[: 1 + (name == "grid_sample")] if one)

    # -- losses -----------------------------------------------------------------------------------

    def raise_mean(self, function: str, stmt: ir.Stmt, call: ir.Call) -> None:
        """Cast up what a loss is the mean of.

        The gradient of a half loss is the scale, cast to half: at the first scale it is inf, which
        costs the first step, and holds the scale down for good. Where nothing can be shown, that is
        all that it costs, and so no reason to leave a loop alone.
        """
        origin = self.program.origin(call.func, function)
        if origin == "torch.mean" and len(call.args) == 1:
            operand = call.args[0].value
        elif origin is None and isinstance(call.func, ir.Attr):
            if call.func.attr != "mean" or call.args:
                return
            operand = call.func.value
        else:
            return
        at = Made(operand, function, stmt)
        if self.halves.is_never_half(at) or not self.dtypes.is_fp32(at):
            return
        steps = steps_to(stmt, operand)
        if steps is not None:
            self.remedies.edit(function, Upcast(stmt.path, steps))
            self.halves.made_full.add(id(call))

    # -- one dtype ------------------------------------------------------------------------------

    def source_of(
        self, function: str, stmt: ir.Stmt, call: ir.Call
    ) -> tuple[ir.Expr, ir.Expr] | None:
        """What a function or method puts into a tensor of whose dtype it has to be, and the tensor."""
        method = ir.method_of(call)
        match call:
            case ir.Call(
                func=ir.Attr(value=into, attr="__setitem__"),
                args=(_, ir.Arg(value=put)),
            ) if self.remedies.is_tensor(Made(into, function, stmt)):
                return put, into
            case ir.Call(
                args=(ir.Arg(value=into), _, ir.Arg(value=put))
            ) if self.program.origin(
                call.func, function
            ) == "operator.setitem" and self.remedies.is_tensor(
                Made(into, function, stmt)
            ):
                return put, into
            case ir.Call(
                args=(ir.Arg(value=into), ir.Arg(value=put), *_)
            ) if self.program.origin(
                call.func, function
            ) in _GATHERS and self.halves.is_never_half(
                Made(into, function, stmt)
            ):
                one = ir.Item(into, ir.Const(0))
                return put, one if method == "all_gather" else into
        if method not in operations("source") or not isinstance(call.func, ir.Attr):
            return None
        position = 1 if method.startswith(("masked", "put", "index_put")) else 2
        position = 0 if method == "set_" else position
        name = "src" if method.startswith("scatter") else "source"
        tensor: ir.Expr | None = call.func.value
        if self.program.origin(call.func, function) is not None:
            tensor = call.argument(0, "input")
            position += 1
        elif self.program.instance_classes(call.func.value, function):
            return None  # An object of the program's own is no tensor.
        source = call.argument(position, "values" if method == "index_put_" else name)
        if tensor is None or source is None or isinstance(source, ir.Const):
            return None
        return source, tensor

    def blend(self, function: str, stmt: ir.Stmt, call: ir.Call) -> str | None:
        """Give the operands of ``lerp`` one dtype, if a call is one and some may be half: fp32, or where
        that is not shown, the dtype of the first. In older versions of torch, others want it, too.

        What raises where that cannot be; None where nothing does.
        """
        name, receiver = self._named(function, call)
        wanted = _OF_ONE_DTYPE.get(name, ())
        if not wanted or self.remedies.torch_version >= since().get(name, _NEVER):
            return None
        given = [call.argument(at, word) for at, word in wanted]
        if receiver is not None:
            given = [call.argument(at - 1, word) for at, word in wanted[1:]]
            given.insert(0, receiver)
        operands = [one for one in given if one is not None]
        if len(operands) < len(wanted):
            # Other forms of the others choose in one tensor.
            return name if name.startswith("lerp") else None
        made = [Made(one, function, stmt) for one in operands]
        if self.dtypes.is_number(made[-1]):
            made.pop()
        if self.dtypes.is_number(made[0]):
            return None
        halves = [one for one in made if not self.halves.is_never_half(one)]
        # Others are seldom given an operand that is not as half as the first.
        some = 0 < len(halves) < len(made) or any(map(self.may_be_either, halves))
        if name in _IN_ANY_TORCH and not some:
            return None
        wide = name == "lerp" or (some and not name.endswith("_"))
        if wide and all(map(self.dtypes.is_fp32, made)):
            steps = [steps_to(stmt, one.expr) for one in halves]
            if None not in steps:
                for way in steps:
                    self.remedies.edit(function, Upcast(stmt.path, way or ()))
                self.halves.made_full.update(id(one.expr) for one in halves)
                return None
        if name in _IN_ANY_TORCH:
            whole = next((one.expr for one in made if one not in halves), made[0].expr)
            alike = all(
                self.cast_like(function, stmt, one.expr, whole, False) for one in halves
            )
            return None if alike else name
        first, *others = (one.expr for one in made)
        if name in since() and any(self._are_alike(function, first, x) for x in others):
            return None
        alike = not halves or all(
            self.cast_like(function, stmt, one, first, wanted[at][1] in _MAY_BE_NUMBERS)
            for at, one in enumerate(others, 1)
        )
        if not alike and name in since():
            alike = self.cast_like(function, stmt, first, others[0])
        return None if alike else name

    def _are_alike(self, function: str, *pair: ir.Expr) -> bool:
        """``h`` and ``torch.zeros_like(h)``, or ``h.new_zeros(1)``; ``h[:, 0]`` and ``h[:, 1]``."""
        match pair:
            case (
                ir.Item(value=one, key=ir.Display()),
                ir.Item(value=other, key=ir.Display()),
            ) if (
                one == other
            ):
                return True
        for made, tensor in (pair, pair[::-1]):
            if isinstance(made, ir.Call):
                said = [arg.value for arg in made.args if arg.name == "dtype"]
                if said == [ir.Attr(tensor, "dtype")]:
                    return True
                name, receiver = self._named(function, made)
                if name in operations("like") and made.args:
                    receiver = receiver or made.args[0].value
                if name in operations("like", "new") and receiver == tensor:
                    return not said
        return False

    def left_half(self, function: str, call: ir.Call) -> str:
        """What a call is that autocast computes in fp32, but not that of the oldest torch; else nothing."""
        name, _ = self._named(function, call)
        version = self.remedies.torch_version
        # What is seldom so where it matters is not asked of all that allow a version with `torch.autocast`.
        newer = version < CHOOSES_DTYPE and version < since().get(name, version)
        known = operations("fp32", "promote")
        return name if newer and name.rpartition(".")[2] in known else ""

    def _named(self, function: str, call: ir.Call) -> tuple[str, ir.Expr | None]:
        """What a function of torch is called, or a method and the tensor whose it may be."""
        origin = self.program.origin(call.func, function)
        if origin is not None:
            module, _, name = origin.rpartition(".")
            if module == "torch.linalg":
                name = f"linalg.{name}"
            return (name if module.startswith("torch") else ""), None
        if isinstance(call.func, ir.Attr):
            if not self.program.resolve(call.func, function):
                return call.func.attr, call.func.value
        return "", None

    def differ(
        self, function: str, stmt: ir.Stmt, one: ir.Expr, other: ir.Expr
    ) -> bool:
        """Whether of two values that are of one dtype without AMP only one is half with it."""
        left, right = Made(one, function, stmt), Made(other, function, stmt)
        if self.dtypes.is_number(right) or not self.dtypes.is_fp32(left):
            return False
        return self.halves.is_never_half(left) != self.halves.is_never_half(
            right
        ) or any(map(self.may_be_either, (left, right)))

    def may_be_either(self, at: Made) -> bool:
        """Whether a value may be half, and of another object, or at another time, is for sure no half tensor:
        two of which that holds need not be of one dtype."""
        return not self.halves.is_never_half(at) and any(
            not isinstance(one.expr, (ir.Const, ir.Display))
            and not self.dtypes.is_number(one)
            and self.halves.is_never_half(one)
            for one in reached([at], self.handed_by)
        )

    def handed_by(self, at: Made) -> list[Made]:
        """The values of whose dtype one is, or may be."""
        match at.expr:
            case ir.Name() | ir.Attr():
                view = dtype_table.view_of(at.expr)
                made = None if rebinds(at) else self.flow.made(at)
                return made or ([] if view is None else [at.inner(view)])
            case ir.Item(value=value):
                return [at.inner(value)]
            case ir.Operation(op="if", operands=(_, *arms)):
                return [at.inner(one, at.index) for one in arms]
            case ir.Operation(op=op, operands=operands) if op in dtype_table.ARITHMETIC:
                return [
                    one for one in map(at.inner, operands) if self.dtypes.is_fp32(one)
                ]
            case ir.Call() as call:
                run = self._run_by(call, at.function)
                if run:
                    returned = (self.flow.returned(one, at.index) for one in run)
                    return [one for some in returned for one in some or ()]
                name, receiver = self._named(at.function, call)
                if name in operations("first") and receiver is not None:
                    return [at.inner(receiver)]
        return []

    def _run_by(self, call: ir.Call, function: str) -> list[str]:
        """The functions whose results a call may give, and the forwards of modules."""
        program, modules = self.program, self.modules
        made = modules.of(call.func, function) or modules.in_list(call.func, function)
        forwards = [
            program.method(ref.name, "forward")
            for one in made or ()
            for ref in program.resolve(one.call.func, one.function)
        ]
        return [*program.callees(call, function), *(f for f in forwards if f)]

    def cast_like(
        self,
        function: str,
        stmt: ir.Stmt,
        source: ir.Expr,
        tensor: ir.Expr,
        number: bool = True,
    ) -> bool:
        """Cast what goes into a tensor to that tensor's dtype, if that can be another.

        Without AMP nothing changes: where the dtypes differ, the operation raises. ``number``: so may be
        what it takes instead of a tensor.
        """
        given = Made(source, function, stmt)
        if self.dtypes.is_number(given):
            return True
        if self._are_alike(function, source, tensor):
            return True
        if isinstance(source, ir.Call) and source.argument(99, "dtype") is None:
            if self._named(function, source)[0] in _INTEGERS:
                return True  # then the tensor has integers, too
        whole = self.halves.is_never_half(Made(tensor, function, stmt))
        if whole and self.halves.is_never_half(given):
            return True
        text, steps = ir.render(tensor), steps_to(stmt, source)
        if steps is None:
            return False
        if text is None or "(" in text:
            if whole and self.dtypes.is_fp32(given):
                self.remedies.edit(function, Upcast(stmt.path, steps))
                return True
            return False
        if number and not (is_part(source) or self.remedies.is_tensor(given)):
            return self.remedies.cast_if_tensor(given, text)
        self.remedies.edit(function, CastLike(stmt.path, steps, text))
        return True
