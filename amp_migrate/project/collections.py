"""Lists, tuples and dicts that a program keeps things in, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from amp_migrate.facts import ir
from amp_migrate.project.link import Program
from amp_migrate.project.names import Definition

Key = str | int
"""What an element is known by: the key of a dict, the position in a list or tuple."""

ANY: Key = "*"
"""Stands for all elements of a collection that is not written out."""

_MOST_LEVELS = 6


class Collections:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def definitions(self, expr: ir.Expr, function: str) -> list[Definition]:
        """Where the variable or attribute that an expression names gets its values."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            return [] if owner is None else self.program.definitions(owner, expr.id)
        found: list[Definition] = []
        if isinstance(expr, ir.Attr):
            for class_name in self.program.instance_classes(expr.value, function):
                found += self.program.attribute_definitions(class_name, expr.attr)
        return found

    def stored(self, expr: ir.Expr, function: str) -> list[tuple[Key, Definition]]:
        """What is put into a collection later, ``state["optimizer"] = ...``."""
        place = self._place(expr, function)
        return [] if place is None else self._stored.get(place, [])

    @cached_property
    def _stored(self) -> dict[tuple[str, str], list[tuple[Key, Definition]]]:
        found: dict[tuple[str, str], list[tuple[Key, Definition]]] = {}
        for qualname, function in self.program.functions.items():
            for stmt in ir.statements(function.body):
                if stmt.kind not in ("assign", "annassign"):
                    continue
                for target in stmt.targets:
                    key = key_of(target)
                    if key is None or not isinstance(target, ir.Item):
                        continue
                    place = self._place(target.value, qualname)
                    if place is not None:
                        definition = Definition(qualname, stmt, stmt.value)
                        found.setdefault(place, []).append((key, definition))
        return found

    def _place(self, expr: ir.Expr, function: str) -> tuple[str, str] | None:
        """What a variable or attribute is known by, wherever it is named."""
        there = self.program.elsewhere(expr, function)
        if there is not None:
            expr, function = there
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            return None if owner is None else (owner, expr.id)
        if isinstance(expr, ir.Attr):
            classes = self.program.instance_classes(expr.value, function)
            if len(classes) == 1:
                family = self.program.family(next(iter(classes)))
                return min(family), expr.attr
        return None

    def element(self, expr: ir.Expr, key: Key, function: str) -> ir.Expr | None:
        """What a collection that is written out holds under a key."""
        return dict(self.elements(expr, function)).get(key)

    def elements(
        self, expr: ir.Expr | None, function: str
    ) -> Iterator[tuple[Key, ir.Expr]]:
        """(key, value) of the elements of a collection that is written out."""
        match expr:
            case ir.Display(kind="dict", items=items, keys=keys):
                # What `**more` brings may take the place of what stands before it.
                known = 1 + max(
                    (i for i, k in enumerate(keys) if k is None), default=-1
                )
                for dict_key, item in zip(keys[known:], items[known:], strict=True):
                    if isinstance(dict_key, ir.Const) and isinstance(
                        dict_key.value, (str, int)
                    ):
                        yield dict_key.value, item
            case ir.Display(kind="list" | "tuple", items=items):
                for position, item in enumerate(items):
                    if isinstance(item, ir.Operation) and item.op == "starred":
                        break
                    yield position, item
            case ir.Call(func=func, args=args):
                if self.program.origin(func, function) == "builtins.dict":
                    for arg in args:
                        if arg.name is not None:
                            yield arg.name, arg.value

    def keys(self, expr: ir.Expr, function: str, depth: int = 0) -> tuple[Key, ...]:
        """The keys of a collection's elements; `ANY` where it is not written out."""
        if depth > _MOST_LEVELS:
            return ()
        if isinstance(expr, ir.Comprehension):
            return (ANY,)
        found = {key: None for key, _ in self.elements(expr, function)}
        found.update({key: None for key, _ in self.stored(expr, function)})
        for definition in self.definitions(expr, function):
            if definition.value is not None and definition.index is None:
                inner = self.keys(definition.value, definition.function, depth + 1)
                found.update(dict.fromkeys(inner))
        if isinstance(expr, ir.Call):
            for at, returned in self.program.returns(expr, function):
                found.update(dict.fromkeys(self.keys(returned, at, depth + 1)))
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            params = self.program.functions[owner].params if owner is not None else ()
            if owner is not None and any(param.name == expr.id for param in params):
                for caller, given in self.program.arguments(owner, expr.id):
                    found.update(dict.fromkeys(self.keys(given, caller, depth + 1)))
        return tuple(found)

    def iterated(self, stmt: ir.Stmt, name: str, function: str) -> ir.Expr | None:
        """The collection whose elements a ``for`` binds to a variable, one after the other."""
        if stmt.kind != "for" or len(stmt.targets) != 1 or stmt.value is None:
            return None
        return self._iterated(stmt.targets[0], stmt.value, name, function)

    def _iterated(
        self, target: ir.Expr, iterable: ir.Expr, name: str, function: str
    ) -> ir.Expr | None:
        if target == ir.Name(name):
            match iterable:
                case ir.Name() | ir.Attr() | ir.Display(kind="list" | "tuple"):
                    return iterable
                case ir.Call(func=ir.Attr(value=holder, attr="values"), args=()):
                    return holder
            return None
        if not isinstance(target, ir.Display) or not isinstance(iterable, ir.Call):
            return None
        origin = self.program.origin(iterable.func, function)
        if origin == "builtins.enumerate" and len(target.items) == 2 and iterable.args:
            return self._iterated(
                target.items[1], iterable.args[0].value, name, function
            )
        if origin == "builtins.zip" and len(target.items) == len(iterable.args):
            for item, arg in zip(target.items, iterable.args, strict=True):
                if item == ir.Name(name):
                    return self._iterated(item, arg.value, name, function)
            return None
        of_items = isinstance(iterable.func, ir.Attr) and iterable.func.attr == "items"
        if of_items and len(target.items) == 2 and target.items[1] == ir.Name(name):
            assert isinstance(iterable.func, ir.Attr)
            return iterable.func.value
        return None


def key_of(expr: ir.Expr) -> Key | None:
    """The key by which an expression takes one element out of a collection."""
    match expr:
        case ir.Item(key=ir.Const(value=bool())):
            return None
        case ir.Item(key=ir.Const(value=str() | int() as key)):
            return key
    return None
