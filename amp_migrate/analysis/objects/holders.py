"""Objects that hold an optimizer and step it themselves: ``ScheduledOptim(Adam(...), ...)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from amp_migrate.analysis.objects.optimizers import Optimizers, Slot
from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call
from amp_migrate.program.link import Program


class Holders:
    """Answers for the optimizers of one group."""

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        steps: Mapping[str, Sequence[ir.Expr]],
    ) -> None:
        """``steps``: for each function that steps, the optimizers as it names them there."""
        self.program = program
        self.optimizers = optimizers
        self.points_to = program.noted(PointsTo)
        self.steps = steps
        self.mixed: tuple[str, int] | None = None
        """Why, and where, such an object is of no use: it may also be another one."""

    def of(self, slot: Slot, function: str) -> ir.Expr | None:
        """The optimizer in an object that a function has, as it can name it there."""
        return next(
            (
                ir.Attr(holder, slot.name)
                for holder, other in self.stepped(function)
                if other == slot
            ),
            None,
        )

    def stepped(self, function: str) -> Iterator[tuple[ir.Expr, Slot]]:
        """(object, attribute) of the optimizers that are stepped by a method of what holds them, which
        a function has before its loops: ``wrapper.step_and_update_lr()``."""
        scope = self.program.functions[function]
        for stmt, call in each_call(scope.body):
            holder = call.func.value if isinstance(call.func, ir.Attr) else None
            if not isinstance(holder, (ir.Name, ir.Attr)):
                continue
            if self.program.class_of_self(holder, function) is not None:
                continue
            callees = self.program.callees(call, function)
            if len(callees) != 1 or not self._is_there(holder, function, stmt):
                continue
            for receiver in self.steps.get(callees[0], ()):
                slot = self.optimizers.slot(receiver, callees[0])
                itself = self.program.functions[callees[0]].self_name
                if slot is None or receiver != ir.Attr(
                    ir.Name(itself or "?"), slot.name
                ):
                    continue
                if self.is_always(holder, function, slot.owner):
                    yield holder, slot
                else:
                    name = ir.local_name(slot.owner)
                    reason = f"{ir.render(holder)} is not always a {name}"
                    self.mixed = reason, stmt.line

    def _is_there(self, holder: ir.Expr, function: str, at: ir.Stmt) -> bool:
        """Whether a variable or an attribute has its one value before a loop around a statement."""
        program = self.program
        found = program.definitions_of(holder, function)
        if isinstance(holder, ir.Attr):
            return len(found) == 1 and (
                program.functions[found[0].function].name == "__init__"
            )
        assert isinstance(holder, ir.Name)
        owner = program.owner(holder.id, function)
        if owner is None or not found:
            return owner is not None
        made = found[0].stmt
        if len(found) != 1 or found[0].function != owner:
            return False
        depth = len(made.path)
        around = at.path[:depth]
        beside = made.path[:-1] == around[:-1] and made.path[-1][0] == around[-1][0]
        return owner != function or any(
            loop.path == at.path[: len(loop.path)]
            and beside
            and len(loop.path) >= depth
            and made.line < loop.line
            for loop in program.statements(function)
            if loop.kind in ("for", "while")
        )

    def is_always(self, expr: ir.Expr, function: str, class_name: str) -> bool:
        """Whether an expression is an instance of a class, whoever calls its function."""
        found = self.points_to.whole(expr, function, closed=True)
        return bool(found) and all(
            not one.fields
            and one.kind in ("value", "instance")
            and class_name in self.program.bases(one.name)
            for one in found
        )
