"""Functions of the user's own that decorate others: a call of the decorated one runs the function that
takes its place, and this calls the one whose place it has taken."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.objects.points_to import PointsTo
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
            for stmt in ir.statements(self.program.functions[function].body)
            if stmt.kind == "return" and isinstance(stmt.value, ir.Name)
        }
        inside = [
            stmt.names[1]
            for stmt in ir.statements(self.program.functions[function].body)
            if stmt.kind == "functiondef" and stmt.names[0] in names
        ]
        return inside[0] if len(inside) == 1 else None

    def called(
        self, callees: tuple[str, ...], call: ir.Call, function: str
    ) -> tuple[str, ...]:
        """What a call runs, where it is known what it calls."""
        if not callees and isinstance(call.func, (ir.Name, ir.Attr)):
            callees = self._of_object(call.func, function)
        if not callees and isinstance(call.func, ir.Name):
            owner = self.program.owner(call.func.id, function) or ""
            params = self.program.functions[owner].params if owner else ()
            if owner in self._inside and owner != function:
                if any(param.name == call.func.id for param in params[:1]):
                    return tuple(sorted(self._inside[owner]))
        return tuple(dict.fromkeys(self._stands_in.get(one, one) for one in callees))

    def _of_object(self, func: ir.Name | ir.Attr, function: str) -> tuple[str, ...]:
        """What the call of an object runs that no class says: one of ``LOSSES[name]()``, whose class was
        taken out of a table, or of modules that run one after the other."""
        own = self.program.self_class(function)
        if isinstance(func, ir.Attr) and (own is None or func.value != ir.Name(own[0])):
            # A method of an object that nothing is known of.
            return ()
        key = function, func
        if key not in self._objects:
            classes = [
                name
                for one in self.points_to.of(func, function)
                if isinstance(one.expr, ir.Call) and not one.fields
                for name in self._classes(one.expr, one.function)
            ]
            found = dict.fromkeys(m for c in classes for m in self._called_of(c))
            self._objects[key] = tuple(found)
        return self._objects[key]

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

    def given_as(self, expr: ir.Expr, function: str) -> Iterator[tuple[ir.Expr, str]]:
        """The parameters of decorated functions in whose place a parameter of the one stands that is
        called for them."""
        params = [ir.Name(p.name) for p in self.program.functions[function].params]
        if expr in params:
            for decorated, inner in self._stands_in.items():
                given = self.program.functions[decorated].params
                if inner == function and params.index(expr) < len(given):
                    yield ir.Name(given[params.index(expr)].name), decorated

    def stands_in(self, function: str) -> str | None:
        """What is called for a decorated function."""
        return self._stands_in.get(function)
