"""Lists, dicts and comprehensions that are written out, and parts of them."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_ITEMS, sure
from amp_migrate.analysis.sizes.domain.choices import choice
from amp_migrate.analysis.sizes.domain.values import (
    ORDER,
    Choice,
    Frame,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Unknown,
    Value,
    distinct,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.expressions import Expressions, hashable
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir


class Displays(Expressions):
    """Displays, slices and comprehensions to values."""

    def display(self, expr: ir.Display, frame: Frame) -> Value:
        if expr.kind == "dict":
            made = Mapping_()
            if len(expr.items) > MAX_ITEMS:
                self.spoil([made], "entries")
                return made
            for key, item in zip(expr.keys, expr.items, strict=True):
                value = self.evaluate(item, frame)
                if key is None:
                    self.fill(made, value)
                    continue
                name = self.evaluate(key, frame)
                if isinstance(name, Known) and hashable(name.value):
                    made.state["key", name.value] = weakened(value, self.path)
                else:
                    self.spoil([made], "unknown key")
            return made
        items: list[Value] = []
        if len(expr.items) > MAX_ITEMS:
            return self._holding(expr.kind, Unknown("list"))
        for item in expr.items:
            if isinstance(item, ir.Operation) and item.op == "starred":
                more = self.elements(self.evaluate(item.operands[0], frame))
                if more is None or len(more) + len(items) > MAX_ITEMS:
                    return self._holding(expr.kind, Unknown("list"))
                items += more
            else:
                items.append(self.evaluate(item, frame))
        return self._holding(expr.kind, Tup(tuple(items)))

    def _holding(self, kind: str, items: Value) -> Value:
        if kind == "set" and isinstance(items, Tup):
            items = distinct(items.items)
        return items if kind == "tuple" else Sequence(kind, items)

    def subscript(self, value: ir.Expr, key: ir.Expr, frame: Frame) -> Value:
        held = self.evaluate(value, frame)
        if isinstance(key, ir.Operation) and key.op == "slice":
            bounds = [self.evaluate(operand, frame) for operand in key.operands]
            return self._slice(held, bounds)
        return self.item(held, self.evaluate(key, frame))

    def _slice(self, held: Value, bounds: list[Value]) -> Value:
        numbers = [
            b.value
            for b in bounds
            if isinstance(b, Known) and isinstance(b.value, int | None)
        ]
        if len(numbers) < len(bounds):
            return Unknown("slice")
        cut: slice[int | None, int | None, int | None] = slice(*numbers)
        if cut.step == 0:
            return Unknown("slice")
        if isinstance(held, Tup):
            return Tup(held.items[cut])
        if isinstance(held, Sequence):
            items = held.items
            return Sequence(
                held.kind, Unknown("list") if items is None else Tup(items[cut])
            )
        if isinstance(held, Known) and isinstance(held.value, (str, range)):
            try:
                return sure(held.value[cut], held)
            except (OverflowError, MemoryError):
                return Unknown("slice")
        return Unknown("slice")

    def comprehension(self, expr: ir.Comprehension, frame: Frame) -> Value:
        inner = Frame(frame.function, frame)
        inner.owner, inner.receiver = None, None
        rows: list[tuple[Value, ...]] = []
        complete = self._turns(expr, 0, inner, rows)
        inner.end()
        if len(expr.elements) == 2:
            made = Mapping_()
            for key, value in rows:
                if isinstance(key, Known) and hashable(key.value):
                    made.state["key", key.value] = weakened(value, self.path)
                elif isinstance(key, Unknown) and key.reason == ORDER:
                    made.state["key", key] = Unknown(ORDER)
                else:
                    complete = False
            if not complete:
                self.spoil([made], "unknown entries")
            return made
        items = Tup(tuple(row[0] for row in rows)) if complete else Unknown("list")
        if expr.is_set:
            return Sequence("set", Unknown("set"))
        return Sequence("list", items)

    def _turns(
        self,
        expr: ir.Comprehension,
        level: int,
        frame: Frame,
        rows: list[tuple[Value, ...]],
    ) -> bool:
        """Add what each turn gives; whether all turns are known."""
        if level == len(expr.iterables):
            complete = True
            for test in expr.conditions:
                known = self.condition(test, frame)
                if known is None:
                    complete = False
                elif not known.value:
                    return complete and known.confidence is Confidence.CERTAIN
            rows.append(tuple(self.evaluate(one, frame) for one in expr.elements))
            return complete and len(rows) <= MAX_ITEMS
        items = self.elements(self.evaluate(expr.iterables[level], frame))
        if items is None or len(items) > MAX_ITEMS:
            self._bind(expr.targets[level], Unknown("loop"), frame)
            self._turns(expr, level + 1, frame, rows)
            return False
        complete = True
        for item in items:
            self._bind(expr.targets[level], item, frame)
            complete = self._turns(expr, level + 1, frame, rows) and complete
            if len(rows) > MAX_ITEMS:
                return False
        return complete

    def _bind(self, target: ir.Expr, value: Value, frame: Frame) -> None:
        """A target of a comprehension, which lives in the comprehension."""
        if isinstance(target, ir.Name):
            self.heap.write(frame, target.id, value)
        elif isinstance(target, ir.Display):
            parts = self.unpacked(value, target)
            for item, part in zip(target.items, parts, strict=True):
                self._bind(item, part, frame)

    def unpacked(self, value: Value, target: ir.Display) -> list[Value]:
        """The values for the parts of a target."""
        wanted = len(target.items)
        starred = [
            position
            for position, item in enumerate(target.items)
            if isinstance(item, ir.Operation) and item.op == "starred"
        ]
        if isinstance(value, Choice) and not starred:
            rows = [(world, self.elements(one)) for world, one in value.alternatives]
            if all(row is not None and len(row) == wanted for _, row in rows):
                return [
                    choice([(world, row[k]) for world, row in rows if row is not None])
                    for k in range(wanted)
                ]
        items = self.elements(value)
        reason = value.reason if isinstance(value, Unknown) else "unpacking"
        if items is None or (not starred and len(items) != wanted):
            return [Unknown(reason) for _ in range(wanted)]
        if not starred:
            return list(items)
        before, after = starred[0], wanted - starred[0] - 1
        if len(items) < before + after:
            return [Unknown(reason) for _ in range(wanted)]
        middle = items[before : len(items) - after]
        return [
            *items[:before],
            Sequence("list", Tup(tuple(middle))),
            *items[len(items) - after :],
        ]
