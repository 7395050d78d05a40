"""TCU108: attention that is written out, where one fused call does the same."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.shapes.surroundings import surroundings
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program

_FUSED = frozenset(
    "scaled_dot_product_attention flash_attn_func memory_efficient_attention flex_attention".split()
)
_PRODUCTS = frozenset("matmul bmm baddbmm einsum".split())
_KEEPS = frozenset(
    """masked_fill masked_fill_ dropout view reshape to type_as float half mul mul_ div div_ add add_ sub
    contiguous where clamp softmax tril triu unsqueeze squeeze type""".split()
)
"""What may stand between the products: scaling, masks, dropout, shapes and dtypes."""


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each function with ``softmax(q @ k.T) @ v``."""
    around = surroundings(context, file)
    if around.on_cpu or around.tested:
        return
    functions, fused = context.program.functions, context.noted(_fused_classes)
    for name in context.functions(file):
        # A line of a notebook's top level shows how it works, and trains nothing.
        if ir.is_top(name) or functions[name].class_name in fused:
            continue
        found = _Function(context.program, name).attention()
        if found is not None:
            yield context.finding("TCU108", name, found)


def _fused_classes(context: Context) -> frozenset[str]:
    """The classes that have a fused way, too, perhaps in another method: they know of it."""
    program = context.program
    return frozenset(
        owner
        for called in _FUSED
        for function, _, _ in program.calls_named(called)
        if (owner := program.functions[function].class_name) is not None
    )


class _Function:
    """One function whose values are followed back, in source order."""

    def __init__(self, program: Program, function: str) -> None:
        self.program = program
        self.function = function
        self.body = list(program.statements(function))

    def attention(self) -> ir.Call | ir.Stmt | None:
        """The softmax's product with the values, if there is one and nothing else uses the weights."""
        names = {ir.last_of(inner) for stmt in self.body for inner in parts_of(stmt)}
        if names & _FUSED:
            return None
        for index, stmt in enumerate(self.body):
            for inner in parts_of(stmt):
                operands = self._product(inner)
                if operands and self._is_weights(operands[0], index, set()):
                    return inner if isinstance(inner, ir.Call) else stmt
        return None

    def _product(self, expr: ir.Expr) -> list[ir.Expr]:
        """The operands of a batched product of matrices."""
        match expr:
            case ir.Operation(op="@", operands=operands):
                return list(operands)
            case ir.Call(func=func, args=args):
                origin = self.program.origin(func, self.function)
                given = [arg.value for arg in args if not arg.name and not arg.star]
                if origin is not None:
                    package, _, name = origin.rpartition(".")
                    if package != "torch" or name not in _PRODUCTS:
                        return []
                    if name == "einsum":
                        return given[1:] if _is_matmul(given) else []
                    return given[-2:] if len(given) >= 2 else []
                if isinstance(func, ir.Attr) and func.attr in ("matmul", "bmm"):
                    return [func.value, *given] if len(given) == 1 else []
        return []

    def _is_weights(self, expr: ir.Expr, index: int, used: set[str]) -> bool:
        """Whether an expression is a softmax of a product, with nothing but dropout behind it."""
        inner, index, names = self._through(expr, index)
        if inner is None:
            return False
        scores = self._softmax(inner)
        if scores is None or self._is_shared(names):
            return False
        product, _, _ = self._through(scores, index)
        operands = [] if product is None else self._product(product)
        # What is transposed by .T is a matrix, and the fused kernels take none.
        return len(operands) == 2 and not any(
            isinstance(one, ir.Attr) and one.attr == "T" for one in operands
        )

    def _is_shared(self, names: set[str]) -> bool:
        """Whether the weights are returned, kept or handed on, so that they have to exist."""
        for stmt in self.body:
            for expr in (stmt.value,) if stmt.kind in ("return", "assign") else ():
                if expr is None:
                    continue
                items = expr.items if isinstance(expr, ir.Display) else (expr,)
                kept = any(isinstance(target, ir.Attr) for target in stmt.targets)
                if stmt.kind == "return" or kept:
                    if any(isinstance(i, ir.Name) and i.id in names for i in items):
                        return True
        return False

    def _through(
        self, expr: ir.Expr, index: int
    ) -> tuple[ir.Expr | None, int, set[str]]:
        """The product or softmax that a value comes from, by way of scaling, masks and dropout."""
        names: set[str] = set()
        for _ in range(24):
            if self._product(expr) or self._softmax(expr) is not None:
                return expr, index, names
            match expr:
                case ir.Name(id=name):
                    names.add(name)
                    found = self._last(name, index)
                    if found is None:
                        return None, index, names
                    expr, index = found
                case ir.Operation(op="*" | "/" | "+" | "-", operands=(left, right)):
                    expr = right if isinstance(left, ir.Const) else left
                case ir.Call(func=ir.Attr(value=value, attr=attr)) if (
                    attr in _KEEPS
                    and (self.program.origin(expr.func, self.function) is None)
                    and not self._is_own(value)
                ):
                    expr = value
                case ir.Call(func=func, args=args) if args and not args[0].star:
                    if not self._passes(func):
                        return None, index, names
                    expr = args[0].value
                case _:
                    return None, index, names
        return None, index, names

    def _is_own(self, expr: ir.Expr) -> bool:
        """Whether it is the instance: ``self.dropout(x)`` is given its value."""
        return self.program.class_of_self(expr, self.function) is not None

    def _passes(self, func: ir.Expr) -> bool:
        """Whether a function or layer is a dropout, or keeps the values where they are."""
        origin = self.program.origin(func, self.function) or ""
        if origin.startswith("torch."):
            return origin.rpartition(".")[2] in _KEEPS
        refs = self.program.resolve(func, self.function)
        return any(
            ref.kind == "made" and ref.name in ("torch.nn.Dropout", "torch.nn.Identity")
            for ref in refs
        )

    def _softmax(self, expr: ir.Expr) -> ir.Expr | None:
        """What a softmax is taken of."""
        if not isinstance(expr, ir.Call):
            return None
        origin = self.program.origin(expr.func, self.function)
        if origin in ("torch.softmax", "torch.nn.functional.softmax"):
            return expr.args[0].value if expr.args else None
        if origin is not None:
            return None
        refs = self.program.resolve(expr.func, self.function)
        if any(r.kind == "made" and r.name == "torch.nn.Softmax" for r in refs):
            return expr.args[0].value if expr.args else None
        if isinstance(expr.func, ir.Attr) and expr.func.attr == "softmax":
            return None if self._is_own(expr.func.value) else expr.func.value
        return None

    def _last(self, name: str, index: int) -> tuple[ir.Expr, int] | None:
        """The last value that a variable was given before a statement."""
        for position in reversed(range(index)):
            stmt = self.body[position]
            if stmt.kind == "augassign" and stmt.targets == (ir.Name(name),):
                continue
            if stmt.kind in ("assign", "annassign") and stmt.targets == (
                ir.Name(name),
            ):
                return None if stmt.value is None else (stmt.value, position)
            if any(
                isinstance(inner, ir.Name) and inner.id == name
                for target in stmt.targets
                for inner in ir.walk(target)
                if isinstance(target, (ir.Name, ir.Display))
            ):
                return None
        return None


def _is_matmul(given: list[ir.Expr]) -> bool:
    """Whether einsum's arguments are those of a product over the last index of the first operand.

    ``"b h i j, h g -> b g i j"`` is none: it mixes the heads, which no fused kernel does.
    """
    match given:
        case [ir.Const(value=str(subscripts)), _, _]:
            first, _, rest = subscripts.partition(",")
            output = rest.partition("->")[2]
            spaced = " " in subscripts.strip().replace(", ", ",").replace(" -> ", "->")
            labels = first.split() if spaced else list(first.strip())
            outputs = output.split() if spaced else list(output.strip())
            return bool(labels and outputs) and labels[-1] not in outputs
    return False
