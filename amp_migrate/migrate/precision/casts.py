"""Operations that fail on half operands, or on operands of two dtypes, and the casts that help them."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import CastLike, Upcast
from amp_migrate.migrate.precision.remedies import Found, Planner
from amp_migrate.program import ir

_WEIGHTS = "per_sample_weights"


class Casts(Planner):
    """Plans the casts of one program's operands."""

    # -- fp32 operands --------------------------------------------------------------------------

    def raise_operands(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """Cast the operands of a call up that is not implemented in half precision, if that is one."""
        operands = list(self._operands(function, call))
        if not operands:
            return False
        edits: list[Found] = []
        by_torch = self.program.origin(call.func, function) is not None
        for operand in operands:
            raised = self.remedies.raised(function, stmt, operand, by_torch)
            if raised is None:
                return False
            edits += raised
        self.remedies.edits.update(dict.fromkeys(edits))
        return True

    def _operands(self, function: str, call: ir.Call) -> Iterator[ir.Expr]:
        origin = self.program.origin(call.func, function)
        if origin is not None:
            if dtype_table.FP32_ONLY.fullmatch(origin):
                count = 2 if origin.endswith(("solve", "MultivariateNormal")) else 1
                yield from (arg.value for arg in call.args[:count] if not arg.star)
        elif isinstance(call.func, ir.Attr) and call.func.attr in operations("wide"):
            yield call.func.value
        # Of an embedding bag: they want to be of the dtype of its weights.
        yield from (a.value for a in call.args if a.name == _WEIGHTS)

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
        if method not in operations("source") or not isinstance(call.func, ir.Attr):
            return None
        position = 1 if method.startswith(("masked", "put", "index_put")) else 2
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

    def blend(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """Give the operands of ``lerp`` one dtype, if a call is one and some may be half: fp32, or where
        that is not shown, the dtype of the first."""
        name = ir.method_of(call)
        if name not in ("lerp", "lerp_"):
            return True
        if self.program.origin(call.func, function) is not None:
            tensor, first = call.argument(0, "input"), 1
        elif isinstance(call.func, ir.Attr) and not (
            self.program.resolve(call.func, function)
        ):
            tensor, first = call.func.value, 0
        else:
            return True
        end, weight = call.argument(first, "end"), call.argument(first + 1, "weight")
        if tensor is None or end is None or weight is None:
            return False
        made = [Made(one, function, stmt) for one in (tensor, end, weight)]
        if self.dtypes.is_number(made[2]):
            made.pop()
        halves = [one for one in made if not self.halves.is_never_half(one)]
        if name == "lerp" and all(map(self.dtypes.is_fp32, made)):
            steps = [steps_to(stmt, one.expr) for one in halves]
            if None not in steps:
                for way in steps:
                    self.remedies.edit(function, Upcast(stmt.path, way or ()))
                self.halves.made_full.update(id(one.expr) for one in halves)
                return True
        return not halves or all(
            self.cast_like(function, stmt, one.expr, tensor, one.expr is weight)
            for one in made[1:]
        )

    def differ(
        self, function: str, stmt: ir.Stmt, one: ir.Expr, other: ir.Expr
    ) -> bool:
        """Whether of two values that are of one dtype without AMP only one is half with it."""
        left, right = Made(one, function, stmt), Made(other, function, stmt)
        if self.dtypes.is_number(right) or not self.dtypes.is_fp32(left):
            return False
        return self.halves.is_never_half(left) != self.halves.is_never_half(right)

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
        if number and not self.remedies.is_tensor(given):
            return self.remedies.cast_if_tensor(given, text)
        self.remedies.edit(function, CastLike(stmt.path, steps, text))
        return True
