"""Generators that compute a forward pass: it runs where they are advanced, not where they are made."""

from __future__ import annotations

from amp_migrate.analysis.objects.forward import MODELS, MODULES, Forward, names_no_grad
from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

_MOST_STEPS = 6
_USES_UP = frozenset(
    f"builtins.{name}"
    for name in "all any dict frozenset len list max min next print set sorted sum tuple".split()
)


class Lazy:
    """Answers for one program."""

    def __init__(self, program: Program, forward: Forward) -> None:
        self.program = program
        self.forward = forward
        self.points_to = program.noted(PointsTo)
        self._known: dict[tuple[int, str, int], tuple[ir.Expr, bool]] = {}
        """With the expression, so that nothing else comes by its identity."""

    def line_of(self, definition: Definition) -> int:
        """The line that makes the generator which a variable holds, or comes from; 0: there is none."""
        value, stmt = definition.value, definition.stmt
        if stmt.kind in ("for", "asyncfor"):
            value = stmt.value
        elif definition.index is not None:
            return 0
        if value is not None and self._is_lazy(value, definition.function):
            return stmt.line
        return 0

    def _is_lazy(self, expr: ir.Expr, function: str, depth: int = 0) -> bool:
        """Whether a value is a generator that computes a forward pass, or is fed by one."""
        if depth > _MOST_STEPS:
            return False
        key = (id(expr), function, depth)
        if key not in self._known:
            found = any(
                self._hands_out(one, depth + 1)
                for one in self.points_to.of(expr, function)
                if not one.fields
            )
            self._known[key] = expr, found
        return self._known[key][1]

    def _hands_out(self, made: Object, depth: int) -> bool:
        program, at = self.program, made.function
        if isinstance(made.expr, ir.Comprehension) and made.expr.lazy:
            sources = made.expr.iterables
            if any(self._runs_model(one, at) for one in made.expr.elements):
                return True
        elif isinstance(made.expr, ir.Call):
            sources = tuple(arg.value for arg in made.expr.args if not arg.star)
            if made.kind == "lost" and program.functions[at].is_generator:
                if self._computes(at):
                    return True
                at = made.context[-1].caller
            else:
                origin = program.origin(made.expr.func, at) or ""
                if made.name or origin in _USES_UP or origin.startswith("torch."):
                    return False
        else:
            return False
        return any(self._is_lazy(one, at, depth) for one in sources)

    def _computes(self, generator: str) -> bool:
        """Whether a generator computes a forward pass that gradients may flow through."""
        found = self.program.functions[generator]
        if any(map(names_no_grad, found.decorators)):
            return False
        return self._block_computes(found.body, generator)

    def _block_computes(self, block: tuple[ir.Stmt, ...], function: str) -> bool:
        for stmt in block:
            if stmt.kind == "with" and any(map(names_no_grad, stmt.exprs)):
                continue
            if any(self._runs_model(expr, function) for expr in stmt.exprs):
                return True
            if any(self._block_computes(inner.body, function) for inner in stmt.blocks):
                return True
        return False

    def _runs_model(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression runs a module that is no loss: products of what is loaded are data."""
        return all(
            self.forward.in_expression(expr, function, level)
            for level in (MODELS, MODULES)
        )
