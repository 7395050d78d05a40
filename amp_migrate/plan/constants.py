"""Constants that float16 cannot hold, in what runs under autocast."""

from __future__ import annotations

from amp_migrate.facts import ir
from amp_migrate.plan.loops import Refusal
from amp_migrate.project.link import Program

FP16_MAX = 65504.0
FP16_SMALLEST_SUBNORMAL = 5.97e-8

_FILLS = frozenset(
    "masked_fill masked_fill_ fill_ full_like new_full full pad clamp clamp_ clip where".split()
)
_FOLLOWED_FILLS = frozenset(
    "masked_fill masked_fill_ fill_ clamp clamp_ clip where".split()
)
"""Fills whose value is also looked for behind a variable."""
_FLOORS = frozenset("clamp clamp_ clip clamp_min clamp_min_ maximum".split())


class Constants:
    """Looks through names, parameters and attributes for numbers."""

    def refusal(
        self, program: Program, function: str, expr: ir.Expr, line: int
    ) -> Refusal | None:
        """The first constant of an expression that float16 cannot hold."""
        for inner in ir.walk(expr):
            found = None
            if isinstance(inner, ir.Call):
                found = self._of_call(program, function, inner)
            elif isinstance(inner, ir.Operation):
                found = self._of_operation(program, function, inner, line)
            if found is not None:
                return found
        return None

    def of_store(
        self, program: Program, function: str, stmt: ir.Stmt
    ) -> Refusal | None:
        """``scores[mask] = -1e9``."""
        if stmt.kind != "assign" or stmt.value is None:
            return None
        if not any(
            isinstance(target, ir.Item) and not isinstance(target.key, ir.Const)
            for target in stmt.targets
        ):
            return None
        for value in self._numbers(stmt.value, program, function):
            if FP16_MAX < abs(value) < float("inf"):
                return _overflow(value, stmt.line)
        return None

    def _of_call(
        self, program: Program, function: str, call: ir.Call
    ) -> Refusal | None:
        origin = program.origin(call.func, function) or ""
        method = call.func.attr if isinstance(call.func, ir.Attr) else ""
        if origin == "torch.finfo" and "float32" in str(call.args):
            message = "the limits of float32 overflow in float16"
            return Refusal("AMP021", message, call.line)
        if method not in _FILLS | _FLOORS:
            return None
        for arg in call.args:
            values = [arg.value.value] if isinstance(arg.value, ir.Const) else []
            numbers = [
                float(v)
                for v in values
                if isinstance(v, (int, float)) and not isinstance(v, bool)
            ]
            if not values and method in _FOLLOWED_FILLS:
                numbers = self._numbers(arg.value, program, function)
            for value in numbers:
                if FP16_MAX < abs(value) < float("inf") and method in _FILLS:
                    return _overflow(value, call.line)
                if 0 < abs(value) < FP16_SMALLEST_SUBNORMAL and method in _FLOORS:
                    return _underflow(value, call.line)
        return None

    def _of_operation(
        self, program: Program, function: str, operation: ir.Operation, line: int
    ) -> Refusal | None:
        op = operation.op
        if op not in ("+", "-", "*", "/", "+="):
            return None
        for operand in operation.operands:
            value = self._number(operand, program, function)
            if value is None:
                continue
            if op in ("+", "-") and 0 < abs(value) < FP16_SMALLEST_SUBNORMAL:
                return _underflow(value, line)
            if FP16_MAX < abs(value) < float("inf"):
                return _overflow(value, line)
        if op == "-" and operation.operands[0] == ir.Const(1):
            value = self._number(operation.operands[1], program, function)
            if value is not None and 0 < value < 2**-12:
                message = f"1 - {value:g} rounds to 1 in float16"
                return Refusal("AMP021", message, line)
        return None

    def _number(self, expr: ir.Expr, program: Program, function: str) -> float | None:
        """A literal number, also through a name, an attribute or a parameter's default."""
        return next(iter(self._numbers(expr, program, function, passed=False)), None)

    def _numbers(
        self,
        expr: ir.Expr,
        program: Program,
        function: str,
        passed: bool = True,
        depth: int = 0,
    ) -> list[float]:
        """The literal numbers that an expression may be; with ``passed``, through calls as well."""
        if isinstance(expr, ir.Const):
            value = expr.value
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return [float(value)] if is_number else []  # type: ignore[arg-type]
        if depth > 3:
            return []
        if isinstance(expr, ir.Operation) and expr.op == "-x":
            inner = self._numbers(
                expr.operands[0], program, function, passed, depth + 1
            )
            return [-value for value in inner]
        there = program.elsewhere(expr, function)
        if there is not None:
            return self._numbers(there[0], program, there[1], passed, depth + 1)
        values: list[tuple[str, ir.Expr | None]] = []
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
                found += self._numbers(item, program, at, passed, depth + 1)
        return found

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


def _overflow(value: float, line: int) -> Refusal:
    return Refusal(
        "AMP021", f"{value:g} is beyond float16's largest number, 65504", line
    )


def _underflow(value: float, line: int) -> Refusal:
    return Refusal(
        "AMP021", f"{value:g} is 0 in float16, whose smallest number is 6e-8", line
    )
