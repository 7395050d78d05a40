"""What a function may call by what it holds, or by a name that is put together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.given import Given
from amp_migrate.program.link import Program

_AROUND_FUNCTIONS = frozenset(
    ("functools.partial", "builtins.staticmethod", "builtins.classmethod")
)


class Called:
    """The functions of a program that its functions may call."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[str, tuple[str, ...]] = {}
        self._names = frozenset(f.name for f in program.functions.values())

    def of(self, function: str) -> tuple[str, ...]:
        """Those that a function calls, in order."""
        if function not in self._known:
            body = self.program.functions[function].body
            found = (q for s in ir.statements(body) for q in self.by(function, s))
            self._known[function] = tuple(dict.fromkeys(found))
        return self._known[function]

    def by(self, function: str, stmt: ir.Stmt) -> Iterator[str]:
        """Those that a statement calls, or mentions: what is given to `checkpoint(run, x)`, kept in a list or
        returned is called by somebody, and a property where it is read."""
        program = self.program
        for call in calls_of(stmt):
            yield from program.callees(call, function)
            for expr, where, _ in self.held(call.func, function, stmt):
                for ref in program.resolve(expr, where):
                    if ref.kind == "function":
                        yield ref.name
            yield from self._by_name(call.func, function)
            for arg in call.args:
                for ref in program.resolve(arg.value, function):
                    if ref.kind == "function":
                        yield ref.name
        for inner in parts_of(stmt):
            match inner:
                case ir.Name(id=name) | ir.Attr(attr=name) if name in self._names:
                    for ref in program.resolve(inner, function):
                        if ref.kind == "function":
                            yield ref.name

    def held(
        self, func: ir.Expr, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[ir.Expr, str, ir.Stmt | None]]:
        """What a variable, a field or an element holds that is called: where that is written."""
        program = self.program
        if isinstance(func, ir.Attr):
            classes = program.instance_classes(func.value, function)
            for made in program.noted(Given).to(classes, func.attr, []):
                if made.value is not None:
                    yield made.value, made.function, made.stmt
        if not isinstance(func, (ir.Name, ir.Attr, ir.Item)) or (
            isinstance(func, ir.Attr) and func.attr not in self._fields
        ):
            return
        refs = program.resolve(func, function)
        if program.origin(func, function) is not None or any(
            ref.kind != "made" or ref.name not in _AROUND_FUNCTIONS for ref in refs
        ):
            return
        for one in program.noted(PointsTo).of(func, function, stmt):
            expr = one.expr
            while isinstance(expr, ir.Call) and expr.args:
                if program.origin(expr.func, one.function) not in _AROUND_FUNCTIONS:
                    break
                expr = expr.args[0].value
            yield expr, one.function, one.stmt

    @cached_property
    def _fields(self) -> frozenset[str]:
        """The names of attributes that the program gives values, methods aside."""
        program = self.program
        own = (
            target.id
            for one in program.classes.values()
            for stmt in one.body
            for target in stmt.targets
            if isinstance(target, ir.Name)
        )
        return frozenset(program.attribute_targets).union(own)

    def _by_name(self, func: ir.Expr, function: str) -> Iterator[str]:
        """What ``getattr(self, "loss_" + kind)`` may be."""
        program = self.program
        if not isinstance(func, ir.Call) or len(func.args) < 2:
            return
        name = func.args[1].value
        if isinstance(name, ir.Const) or (
            program.origin(func.func, function) != "builtins.getattr"
        ):
            return
        begin = ""
        if isinstance(name, ir.Operation) and isinstance(name.operands[0], ir.Const):
            begin = str(name.operands[0].value).partition("%")[0]
        for one in program.instance_classes(func.args[0].value, function):
            for other in program.family(one):
                for method, qualname in program.classes[other].methods:
                    if method.startswith(begin) and not method.startswith("__"):
                        yield qualname
