"""Assignments: to variables, attributes and entries."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.labels import labelled, unpacked
from amp_migrate.analysis.sizes.domain.traces import link, source
from amp_migrate.analysis.sizes.domain.values import (
    ITEMS,
    Absent,
    Frame,
    Instance,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Unknown,
    Value,
    is_number,
)
from amp_migrate.analysis.sizes.interpreter.entries import Entries
from amp_migrate.program import ir

_LABELLED = (Known, Tup, Sequence, Mapping_)
"""What is, or holds, numbers that are told where they come from."""


class Assignments(Entries):
    """Runs statements that assign, and those that delete."""

    def assignment(self, stmt: ir.Stmt, frame: Frame) -> None:
        if stmt.value is None:
            return
        value = self.evaluate(stmt.value, frame)
        for target in stmt.targets:
            named = value
            if isinstance(target, ir.Display):
                named = unpacked(self.heap, value, target, stmt.value, stmt.line)
            elif isinstance(value, _LABELLED) and ir.key_of(target) is not None:
                name = source(target)
                named = labelled(self.heap, value, name, stmt.value, stmt.line)
            self.assign(target, named, frame)

    def assign(self, target: ir.Expr, value: Value, frame: Frame) -> None:
        """Give a variable, attribute or entry a value."""
        match target:
            case ir.Name(id=name):
                self.write(self.home(name, frame), name, value)
            case ir.Display():
                parts = self.unpacked(value, target)
                for item, part in zip(target.items, parts, strict=True):
                    if isinstance(item, ir.Operation) and item.op == "starred":
                        item = item.operands[0]
                    self.assign(item, part, frame)
            case ir.Attr(value=base, attr=attr):
                self.set_attribute(self.evaluate(base, frame), attr, value)
            case ir.Item(value=base, key=key):
                held = self.evaluate(base, frame)
                if isinstance(key, ir.Operation) and key.op == "slice":
                    self.spoil([held], "slice")
                else:
                    self.set_item(held, self.evaluate(key, frame), value)

    def augmented(self, stmt: ir.Stmt, frame: Frame) -> None:
        assert stmt.value is not None
        target = stmt.targets[0]
        before = self.evaluate(target, frame)
        value = self.evaluate(stmt.value, frame)
        if isinstance(before, Sequence) and stmt.op in ("+", "*"):
            result = self.operate(stmt.op, before, value)
            if stmt.op == "+" and not isinstance(value, Sequence):
                more = self.elements(value)
                result = self.operate(
                    "+", before, Unknown("list") if more is None else Tup(more)
                )
            held = result.state[ITEMS] if isinstance(result, Sequence) else None
            self.write(before, ITEMS, held or Unknown("list"))
            return
        if isinstance(before, Mapping_) and stmt.op == "|":
            self.fill(before, value)
            return
        result = self.operate(stmt.op, before, value)
        if is_number(result):
            shown = ir.Operation(stmt.op, (target, stmt.value))
            trace = link(source(target), shown, stmt.line, result.trace)
            result = Known(result.value, trace, result.confidence)
        self.assign(target, result, frame)

    def delete(self, target: ir.Expr, frame: Frame) -> None:
        match target:
            case ir.Name(id=name):
                self.write(self.home(name, frame), name, Absent())
            case ir.Attr(value=base, attr=attr):
                held = self.evaluate(base, frame)
                if isinstance(held, Instance):
                    self.write(held, attr, Absent())
            case ir.Item(value=base, key=key):
                held = self.evaluate(base, frame)
                if isinstance(held, Mapping_):
                    entry = self.evaluate(key, frame)
                    if isinstance(entry, Known) and ("key", entry.value) in held.state:
                        self.write(held, ("key", entry.value), Absent())
                    elif not isinstance(entry, Known):
                        self.spoil([held], "deleted")
                elif isinstance(held, Sequence):
                    self.write(held, ITEMS, Unknown("list"))
