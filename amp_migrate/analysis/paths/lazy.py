"""Generators that compute a forward pass: it runs where they are advanced, not where they are made."""

from __future__ import annotations

from amp_migrate.analysis.objects.forward import MODELS, MODULES, Forward, names_no_grad
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

    def line_of(self, definition: Definition) -> int:
        """The line that makes the generator which a variable holds, or comes from; 0: there is none."""
        value, stmt = definition.value, definition.stmt
        if stmt.kind in ("for", "asyncfor"):
            value = stmt.value
        elif definition.index is not None:
            return 0
        if value is not None and self._is_lazy(value, definition.function, 0):
            return stmt.line
        return 0

    def _is_lazy(self, expr: ir.Expr, function: str, depth: int) -> bool:
        """Whether a value is a generator that computes a forward pass, or is fed by one."""
        if depth > _MOST_STEPS:
            return False
        match expr:
            case ir.Comprehension(lazy=True):
                if any(
                    self._runs_model(element, function) for element in expr.elements
                ):
                    return True
                return any(
                    self._is_lazy(source, function, depth + 1)
                    for source in expr.iterables
                )
            case ir.Operation(op="if", operands=(_, first, second)):
                return self._is_lazy(first, function, depth + 1) or self._is_lazy(
                    second, function, depth + 1
                )
            case ir.Name(id=name):
                owner = self.program.owner(name, function)
                definitions = (
                    [] if owner is None else self.program.definitions(owner, name)
                )
                return any(
                    one.value is not None
                    and one.index is None
                    and self._is_lazy(one.value, one.function, depth + 1)
                    for one in definitions
                )
            case ir.Call():
                return self._is_lazy_call(expr, function, depth)
        return False

    def _is_lazy_call(self, call: ir.Call, function: str, depth: int) -> bool:
        program = self.program
        callees = program.callees(call, function)
        generators = [c for c in callees if program.functions[c].is_generator]
        if any(map(self._computes, generators)):
            return True
        returned = program.returns(call, function)
        if any(self._is_lazy(value, at, depth + 1) for at, value in returned):
            return True
        origin = program.origin(call.func, function) or ""
        passes_on = bool(generators) or (not callees and origin not in _USES_UP)
        if origin.startswith("torch."):
            passes_on = False
        return passes_on and any(
            self._is_lazy(arg.value, function, depth + 1)
            for arg in call.args
            if not arg.star
        )

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
