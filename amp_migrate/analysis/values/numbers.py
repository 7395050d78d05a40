"""Numbers that are written in a program: as literals, by arithmetic, behind names and parameters."""

from __future__ import annotations

import operator
import sys

from amp_migrate.analysis.tables.vocabulary import Half
from amp_migrate.program import ir
from amp_migrate.program.link import Program

FP32_NEXT_TO_ONE = 2**-25
_FP32_LIMITS = {
    "min": -3.4028234663852886e38,
    "max": 3.4028234663852886e38,
    "tiny": 1.1754943508222875e-38,
    "smallest_normal": 1.1754943508222875e-38,
}
_PYTHON_LIMITS = {
    "sys.maxsize": float(sys.maxsize),
    "sys.float_info.max": sys.float_info.max,
    "sys.float_info.min": sys.float_info.min,
    "sys.float_info.epsilon": sys.float_info.epsilon,
}


class Numbers:
    """Answers for one program, and one dtype."""

    def __init__(self, program: Program, half: Half) -> None:
        self.program = program
        self.half = half

    def one(self, expr: ir.Expr, function: str) -> float | None:
        """A literal number, also through a name, an attribute or a parameter's default."""
        return next(iter(self.all(expr, function, passed=False)), None)

    def all(
        self,
        expr: ir.Expr,
        function: str,
        passed: bool = True,
        depth: int = 0,
        followed: bool = True,
    ) -> list[float]:
        """The literal numbers that an expression may be; with ``passed``, through calls as well."""
        if isinstance(expr, ir.Const):
            value = expr.value
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return [float(value)] if is_number else []  # type: ignore[arg-type]
        folded = _folded(expr)
        if folded is not None:
            return [folded]
        limit = self._fp32_limit(expr, function)
        if limit is not None:
            return [limit]
        if isinstance(expr, ir.Operation) and expr.op == "-":
            if self.is_nearly_one(expr, function):
                return [1.0]
        program = self.program
        if depth > 3:
            return []
        if not followed and not isinstance(expr, ir.Operation):
            return []
        if isinstance(expr, ir.Operation) and expr.op == "-x":
            inner = self.all(expr.operands[0], function, passed, depth + 1)
            return [-value for value in inner]
        there = program.elsewhere(expr, function)
        if there is not None:
            return self.all(there[0], there[1], passed, depth + 1)
        values: list[tuple[str, ir.Expr | None]] = []
        if isinstance(expr, ir.Item) and isinstance(expr.value, ir.Name):
            values += self._of_entry(expr, program, function)
        if isinstance(expr, ir.Attr):
            values += self._of_class(expr, program, function)
        if isinstance(expr, ir.Name):
            values += self._of_name(expr, program, function, passed)
        elif isinstance(expr, ir.Attr):
            for class_name in program.instance_classes(expr.value, function):
                for d in program.attribute_definitions(class_name, expr.attr):
                    if isinstance(d.value, ir.Name):
                        params = program.functions[d.function].params
                        values += [
                            (d.function, p.default)
                            for p in params
                            if p.name == d.value.id
                        ]
                        if passed:
                            values.append((d.function, d.value))
                    else:
                        values.append((d.function, d.value))
        found: list[float] = []
        for at, item in values:
            if isinstance(item, ir.Const) or (passed and item is not None):
                found += self.all(item, at, passed, depth + 1)
        return found

    def _fp32_limit(self, expr: ir.Expr, function: str) -> float | None:
        """``torch.finfo(torch.float32).min``, ``sys.maxsize``."""
        known = _PYTHON_LIMITS.get(self.program.origin(expr, function) or "")
        if known is not None:
            return known
        if not isinstance(expr, ir.Attr) or not isinstance(expr.value, ir.Call):
            return None
        if self.program.origin(expr.value.func, function) != "torch.finfo":
            return None
        if not all(
            _says_fp32(self.program, a.value, function) for a in expr.value.args
        ):
            return None
        return _FP32_LIMITS.get(expr.attr)

    @staticmethod
    def _of_entry(
        item: ir.Item, program: Program, function: str
    ) -> list[tuple[str, ir.Expr | None]]:
        """``CONFIG["fill"]``."""
        assert isinstance(item.value, ir.Name)
        owner = program.owner(item.value.id, function)
        return [
            (d.function, value)
            for d in (program.definitions(owner, item.value.id) if owner else ())
            if isinstance(d.value, ir.Display) and d.value.kind == "dict"
            for key, value in zip(d.value.keys, d.value.items, strict=True)
            if key == item.key
        ]

    @staticmethod
    def _of_class(
        attribute: ir.Attr, program: Program, function: str
    ) -> list[tuple[str, ir.Expr | None]]:
        """``Config.fill``, of the class itself."""
        return [
            (program.classes[ref.name].parent, stmt.value)
            for ref in program.resolve(attribute.value, function)
            if ref.kind in ("class", "instance")
            for stmt in program.classes[ref.name].body
            if stmt.kind in ("assign", "annassign")
            and ir.Name(attribute.attr) in stmt.targets
        ]

    def _of_name(
        self, name: ir.Name, program: Program, function: str, passed: bool
    ) -> list[tuple[str, ir.Expr | None]]:
        owner = program.owner(name.id, function)
        if owner is None:
            return []
        values: list[tuple[str, ir.Expr | None]] = [
            (d.function, d.value)
            for d in program.definitions(owner, name.id)
            if d.index is None and d.stmt.kind != "augassign"
        ]
        params = [p for p in program.functions[owner].params if p.name == name.id]
        values += [(owner, p.default) for p in params]
        if params and passed:
            values += program.arguments(owner, name.id)
        return values

    def is_nearly_one(self, expr: ir.Expr, function: str) -> bool:
        """``1 - 1e-6``, or ``0.999999``."""
        if isinstance(expr, ir.Operation) and expr.op == "-":
            if expr.operands[0] in (ir.Const(1), ir.Const(1.0)):
                value = self.one(expr.operands[1], function)
                return (
                    value is not None
                    and FP32_NEXT_TO_ONE < value < self.half.next_to_one
                )
        if isinstance(expr, ir.Const) and isinstance(expr.value, float):
            return FP32_NEXT_TO_ONE < 1 - expr.value < self.half.next_to_one
        return False


def _says_fp32(program: Program, expr: ir.Expr, function: str) -> bool:
    if isinstance(expr, ir.Call):
        called = program.origin(expr.func, function)
        return called == "torch.get_default_dtype" and not expr.args
    return program.origin(expr, function) in ("torch.float", "torch.float32")


def _folded(expr: ir.Expr) -> float | None:
    """What arithmetic on literal numbers comes to: ``-10 ** 9``, ``float("-1e9")``."""
    match expr:
        case ir.Const(value=bool()):
            return None
        case ir.Const(value=int() | float() as value):
            return float(value)
        case ir.Call(func=ir.Name(id="float"), args=(ir.Arg(value=inner),)):
            if isinstance(inner, ir.Const) and isinstance(inner.value, str):
                try:
                    return float(inner.value)
                except ValueError:
                    return None
            return _folded(inner)
        case ir.Operation(op="-x", operands=(inner,)):
            negated = _folded(inner)
            return None if negated is None else -negated
        case ir.Operation(op="+" | "-" | "*" | "/" | "**" as op, operands=(one, other)):
            left, right = _folded(one), _folded(other)
            if left is None or right is None:
                return None
            try:
                return float(_ARITHMETIC[op](left, right))
            except (ArithmeticError, ValueError, TypeError):
                return None
    return None


_ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
