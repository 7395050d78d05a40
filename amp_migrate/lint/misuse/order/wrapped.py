"""Functions of the user's own that decorate others: a call of the decorated one runs the function that
takes its place, and this calls the one whose place it has taken."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.program import ir
from amp_migrate.program.link import Program


class Wrapped:
    """Answers for one program."""

    def __init__(self, program: Program, points_to: PointsTo) -> None:
        self.program = program
        self.points_to = points_to
        self._stands_in: dict[str, str] = {}
        """The function that is called for a decorated one."""
        self._inside: dict[str, set[str]] = {}
        """The functions that each decorator is put on."""
        for name, function in program.functions.items():
            for decorator in function.decorators:
                for deco, inner in self._made(decorator, function.parent or name):
                    self._stands_in[name] = inner
                    self._inside.setdefault(deco, set()).add(name)

    def _made(self, decorator: ir.Expr, around: str) -> Iterator[tuple[str, str]]:
        """A function that decorates, and the one that it gives back."""
        found = [*self._functions(self.points_to.of(decorator, around))]
        if len(found) != 1:
            return
        returned = {
            name
            for stmt in ir.statements(self.program.functions[found[0]].body)
            if stmt.kind == "return" and stmt.value is not None
            for name in self._functions(self.points_to.of(stmt.value, found[0], stmt))
            if self.program.functions[name].parent == found[0]
        }
        if len(returned) == 1:
            yield found[0], returned.pop()

    @staticmethod
    def _functions(found: tuple[Object, ...]) -> Iterator[str]:
        return (one.name for one in found if one.kind == "function" and not one.fields)

    def called(
        self, callees: tuple[str, ...], call: ir.Call, function: str
    ) -> tuple[str, ...]:
        """What a call runs, where it is known what it calls."""
        if not callees and isinstance(call.func, ir.Name):
            owner = self.program.owner(call.func.id, function) or ""
            params = self.program.functions[owner].params if owner else ()
            if owner in self._inside and owner != function:
                if any(param.name == call.func.id for param in params[:1]):
                    return tuple(sorted(self._inside[owner]))
        return tuple(dict.fromkeys(self._stands_in.get(one, one) for one in callees))

    def stands_in(self, function: str) -> str | None:
        """What is called for a decorated function."""
        return self._stands_in.get(function)
