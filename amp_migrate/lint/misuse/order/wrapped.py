"""Functions of the user's own that decorate others: a call of the decorated one runs the function that
takes its place, and this calls the one whose place it has taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.lint.misuse.order.spelled import PARTIAL
from amp_migrate.program import ir
from amp_migrate.program.link import Program


class Wrapped:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._stands_in: dict[str, str] = {}
        """The function that is called for a decorated one."""
        self.points_to = program.noted(PointsTo)
        self._objects: dict[tuple[str, ir.Expr], tuple[str, ...]] = {}
        self._inside: dict[str, set[str]] = {}
        """The functions that each decorator is put on."""
        for name, function in program.functions.items():
            for decorator in function.decorators:
                for deco, inner in self._made(decorator, function.parent or name):
                    self._stands_in[name] = inner
                    self._inside.setdefault(deco, set()).add(name)

    def _made(self, decorator: ir.Expr, around: str) -> Iterator[tuple[str, str]]:
        """A function that decorates, and the one inside it that it gives back."""
        made = isinstance(decorator, ir.Call)
        func = decorator.func if isinstance(decorator, ir.Call) else decorator
        found = [
            ref.name
            for ref in self.program.resolve(func, around)
            if ref.kind == "function"
        ]
        deco = found[0] if len(found) == 1 else None
        if made and deco is not None:
            deco = self._given_back(deco)
        inner = None if deco is None else self._given_back(deco)
        if deco is not None and inner is not None:
            yield deco, inner

    def _given_back(self, function: str) -> str | None:
        """The function inside another one that this returns."""
        names = {
            stmt.value.id
            for stmt in self.program.statements(function)
            if stmt.kind == "return" and isinstance(stmt.value, ir.Name)
        }
        inside = [
            stmt.names[1]
            for stmt in self.program.statements(function)
            if stmt.kind == "functiondef" and stmt.names[0] in names
        ]
        return inside[0] if len(inside) == 1 else None

    def called(
        self, callees: tuple[str, ...], call: ir.Call, function: str
    ) -> tuple[str, ...]:
        """What a call runs, where it is known what it calls."""
        if not callees and isinstance(call.func, (ir.Name, ir.Attr, ir.Item)):
            callees = self._of_object(call.func, function)
        match call.func:
            case ir.Call(
                func=ir.Name("getattr"),
                args=(ir.Arg(value=held), ir.Arg(value=name), *_),
            ):
                said = {
                    str(one.expr.value)
                    for one in self.points_to.of(name, function)
                    if isinstance(one.expr, ir.Const)
                }
                for text in sorted(said):
                    callees += self._of_object(ir.Attr(held, text), function)
        if not callees and isinstance(call.func, ir.Name):
            owner = self.program.owner(call.func.id, function) or ""
            params = self.program.functions[owner].params if owner else ()
            if owner in self._inside and owner != function:
                if any(param.name == call.func.id for param in params[:1]):
                    return tuple(sorted(self._inside[owner]))
        taken = (self._stands_in.get(one, one) for one in callees)
        # What stands in a function's place calls that one itself.
        found = (
            t if t != function else one for one, t in zip(callees, taken, strict=True)
        )
        return tuple(dict.fromkeys(found))

    @cached_property
    def _methods(self) -> frozenset[str]:
        """The names of all methods of the program."""
        found = self.program.functions.values()
        return frozenset(one.name for one in found if one.class_name is not None)

    def _of_object(self, func: ir.Expr, function: str) -> tuple[str, ...]:
        """What the call of an object runs that no class says: one of ``LOSSES[name]()``, whose class was
        taken out of a table, or of modules that run one after the other."""
        if isinstance(func, ir.Attr) and func.attr not in self._methods:
            if self.program.class_of_self(func.value, function) is None:
                # A method of an object that nothing is known of.
                return ()
        key = function, func
        if key not in self._objects:
            found = dict.fromkeys(
                callee
                for one in self.points_to.of(func, function)
                if not one.fields
                for callee in self._of_one(one)
            )
            self._objects[key] = tuple(found)
        return self._objects[key]

    def _of_one(self, one: Object) -> Iterator[str]:
        """What the call of one object runs."""
        if one.kind == "function":
            yield one.name
        elif isinstance(one.expr, ir.Call):
            given = one.expr.args
            if self.program.origin(one.expr.func, one.function) == PARTIAL:
                if all(arg.name is not None for arg in given[1:]):
                    inner = ir.Call(given[0].value, (), one.expr.line)
                    yield from self.program.callees(inner, one.function)
            for name in self._classes(one.expr, one.function):
                yield from self._called_of(name)

    def _classes(self, made: ir.Call, function: str) -> Iterator[str]:
        if isinstance(made.func, ir.Item):
            for one in self.points_to.of(made.func, function):
                if one.kind == "class" and not one.fields:
                    yield one.name
        elif self.program.origin(made.func, function) == "torch.nn.Sequential":
            for arg in made.args:
                yield from self.program.instance_classes(arg.value, function)

    def _called_of(self, class_name: str) -> Iterator[str]:
        for name in ("__call__", "forward"):
            method = self.program.method(class_name, name)
            if method is not None:
                yield method
                return

    def in_turn(
        self, call: ir.Call, loop: ir.Stmt, function: str
    ) -> list[tuple[str, ...]] | None:
        """What a call of something that a loop goes through runs in each turn, where all that it goes
        through is objects and functions of the program; nothing where their order is not in sight.
        """
        parts = [call.func, *(arg.value for arg in call.args)]
        asked = {part for one in parts for part in ir.walk(one)}
        for target in ir.walk(loop.targets[0]):
            if not isinstance(target, ir.Name) or target not in asked:
                continue
            objects = self.points_to.of(target, function)
            if not objects or not all(map(self._runs, objects)):
                continue
            whole = self.points_to.of(loop.value, function) if loop.value else ()
            items = (
                whole[0].expr.items
                if len(whole) == 1 and isinstance(whole[0].expr, ir.Display)
                else ()
            )
            turns = []
            for item in items if target == loop.targets[0] else ():
                match call.func:
                    case ir.Attr(value=value, attr=attr) if value == target:
                        func: ir.Expr = ir.Attr(item, attr)
                    case ir.Name() as name if name == target:
                        func = item
                    case _:
                        return []
                turns.append(self._of_object(func, whole[0].function))
            told = [one for turn in turns for one in turn]
            return turns if len(told) == len(set(told)) == len(objects) else []
        return None

    def _runs(self, one: Object) -> bool:
        return not one.fields and (
            one.kind in ("function", "instance") or one.name in self.program.classes
        )

    def given_as(self, expr: ir.Expr, function: str) -> Iterator[tuple[ir.Expr, str]]:
        """The parameters of decorated functions in whose place a parameter of the one stands that is
        called for them."""
        params = [ir.Name(p.name) for p in self.program.functions[function].params]
        if not isinstance(expr, ir.Name) or expr not in params:
            return
        for decorated in self._in_whose_place.get(function, ()):
            given = self.program.functions[decorated].params
            if params.index(expr) < len(given):
                yield ir.Name(given[params.index(expr)].name), decorated

    @cached_property
    def _in_whose_place(self) -> dict[str, list[str]]:
        """By what is called for decorated functions, these."""
        found: dict[str, list[str]] = defaultdict(list)
        for decorated, inner in self._stands_in.items():
            found[inner].append(decorated)
        return found

    def stands_in(self, function: str) -> str | None:
        """What is called for a decorated function."""
        return self._stands_in.get(function)
