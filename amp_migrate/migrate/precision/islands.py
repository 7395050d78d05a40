"""Islands of fp32 around losses that raise under autocast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.tables.dtype_table import ARITHMETIC
from amp_migrate.analysis.values.bce import BceCall, BceLosses
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Hoist, Island
from amp_migrate.migrate.precision.entering import leaves
from amp_migrate.migrate.precision.remedies import SHAPES, Planner, Remedies, Unclear
from amp_migrate.program import ir

_BOOKKEEPING = SHAPES.union(
    operations("new", "integers"), "size dim numel item type_as sum append".split()
)
_FACTORIES = operations("made", "counted", "given", "like")
TANGLED = "BCELoss stands in an expression that is not taken apart"
OUTPUTS = "output outputs prediction predictions predicted probabilities".split()
_LOSS_NAMES = "bce bce_loss binary_loss binary_cross_entropy_loss".split()


class Islands(Planner):
    """Plans for one program."""

    def __init__(self, remedies: Remedies, losses: BceLosses) -> None:
        super().__init__(remedies)
        self.losses = losses

    def isolate(self, found: BceCall) -> None:
        """Put a loss into an island, without the forward that its statement holds.

        What is taken out of a statement is computed before the rest of it. So nothing else may be
        computed before it there: the order in which operations are recorded decides about the order
        of sums in the backward, and so about their last bits.
        """
        stmt, function, line = found.stmt, found.function, found.call.line
        if steps_to(stmt, found.call) is None:
            raise Unclear(TANGLED, line)
        assert stmt.value is not None
        parts = list(self._parts(stmt.value, function, stmt))
        apart = any(part.kind == "other" for part in parts)
        taken = {True: 0, False: 0}
        computed = False
        for part in parts:
            if part.kind == "forward" or (part.kind == "loss" and apart):
                if computed:
                    raise Unclear("BCELoss stands behind other computations", line)
                steps = steps_to(stmt, part.expr)
                if steps is None:
                    raise Unclear(TANGLED, line)
                is_loss = part.kind == "loss"
                taken[is_loss] += 1
                name = self._free_name(function, line, is_loss, taken[is_loss])
                self.remedies.edit(function, Hoist(stmt.path, steps, name, is_loss))
            elif part.kind != "loss":
                computed = True
        if not apart:
            self.remedies.edit(function, Island(stmt.path))

    def _parts(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> Iterator[_Part]:
        """What an expression computes, in order, down to the losses and what they are given."""
        if isinstance(expr, ir.Call) and self.losses.computes(expr, function):
            if any(arg.star for arg in expr.args):
                raise Unclear(
                    "BCELoss is given a value that is not followed", expr.line
                )
            made = expr.func.args if isinstance(expr.func, ir.Call) else ()
            if not all(self._is_plain(arg.value, function) for arg in made):
                raise Unclear(TANGLED, expr.line)
            for arg in expr.args:
                if not self._is_plain(arg.value, function):
                    yield _Part("forward", arg.value)
            yield _Part("loss", expr)
            return
        if not any(
            isinstance(inner, ir.Call) and self.losses.computes(inner, function)
            for inner in ir.walk(expr)
        ):
            if self._is_plain(expr, function) or self._is_full(expr, function, stmt):
                if any(isinstance(inner, ir.Call) for inner in ir.walk(expr)):
                    yield _Part("plain", expr)
            else:
                yield _Part("other", expr)
            return
        for child in ir.children(expr):
            yield from self._parts(child, function, stmt)
        if isinstance(expr, ir.Call):
            # What is summed up has the loss, which is fp32 itself.
            plain = self._is_plain_call(expr, function) or (
                ir.last_of(expr.func) in ("sum", "mean")
                and not self.program.callees(expr, function)
            )
            yield _Part("plain" if plain else "other", expr)

    def _is_plain(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression computes nothing that autocast is for."""
        return all(
            isinstance(inner, (ir.Name, ir.Attr, ir.Const, ir.Item, ir.Display))
            or (
                isinstance(inner, ir.Operation)
                and (inner.op in (*ARITHMETIC, "-x") or inner.op == "slice")
            )
            or (isinstance(inner, ir.Call) and self._is_plain_call(inner, function))
            for inner in ir.walk(expr)
        )

    def _is_plain_call(self, call: ir.Call, function: str) -> bool:
        """Whether a call does the same under autocast and outside of it."""
        program = self.program
        origin = program.origin(call.func, function)
        if origin is not None:
            name = origin.rsplit(".", 1)[-1]
            if origin.startswith("torch."):
                return name in (SHAPES | _FACTORIES) - {"float"}
            return origin in ("builtins.len", "builtins.float", "builtins.int")
        if program.resolve(call.func, function):
            return False
        return ir.method_of(call) in _BOOKKEEPING

    def _is_full(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether an expression computes with fp32 values only, and runs no module."""
        for inner in ir.walk(expr):
            if isinstance(inner, ir.Call):
                origin = self.program.origin(inner.func, function)
                if origin is not None and not origin.startswith("torch."):
                    return False
                if origin is None and not isinstance(inner.func, ir.Attr):
                    return False
                if self.program.resolve(inner.func, function) and origin is None:
                    return False
                if self.modules.of(inner.func, function) is not None:
                    return False
        return all(
            self.halves.is_never_half(Made(leaf, function, stmt))
            for leaf in leaves(expr)
            if self.program.origin(leaf, function) is None
        )

    def _free_name(self, function: str, line: int, is_loss: bool, number: int) -> str:
        """A name that the file does not have yet, for the ``number``-th such value of a statement."""
        name = self.remedies.free_name(
            function, _LOSS_NAMES if is_loss else OUTPUTS, number
        )
        if name is None:
            raise Unclear("no free name for what BCELoss is given", line)
        return name


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that a statement computes.

    ``kind``: ``loss``, ``forward`` (what a loss is given, for autocast to run), ``plain`` (the same
    in an island), or ``other``.
    """

    kind: str
    expr: ir.Expr
