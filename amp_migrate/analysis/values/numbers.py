"""Numbers that are written in a program: as literals, by arithmetic, behind names and parameters."""

from __future__ import annotations

import math
import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, product

from amp_migrate.analysis.objects.points_to import MOST_STATES, TOO_MANY, PointsTo
from amp_migrate.analysis.tables.vocabulary import Half
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

FP32_NEXT_TO_ONE = 2**-25
_FP32_LIMITS = {
    "eps": 2**-23,
    "min": -3.4028234663852886e38,
    "max": 3.4028234663852886e38,
    "tiny": 1.1754943508222875e-38,
    "smallest_normal": 1.1754943508222875e-38,
}
_FP64_LIMITS = {
    "eps": sys.float_info.epsilon,
    "min": -sys.float_info.max,
    "max": sys.float_info.max,
    "tiny": sys.float_info.min,
}
_PYTHON_LIMITS = {
    "sys.maxsize": float(sys.maxsize),
    "sys.float_info.max": sys.float_info.max,
    "sys.float_info.min": sys.float_info.min,
    "sys.float_info.epsilon": sys.float_info.epsilon,
}


_LAMBDA = "lambda"
_SCALARS = ("torch.tensor", "torch.as_tensor", "torch.scalar_tensor")
_MOST_CHANGES = 4
_MOST_OF_WHOLE = 1_500
"""States of a search of a whole program, where one of fewer is cut: its answer saves one of each part."""
_FOLDS: dict[str, Callable[..., float]] = {
    "builtins.float": float,
    "builtins.int": float,
    "builtins.abs": abs,
    "builtins.min": min,
    "builtins.max": max,
    "math.pow": math.pow,
}


class _Answers:
    def __init__(self) -> None:
        self.found: dict[tuple[ir.Expr, str], list[float]] = {}
        self.cut: set[tuple[ir.Expr, str]] = set()
        """Whose search ended before it had found all."""


class _Known(defaultdict[tuple[Half, int], _Answers]):
    """The answers for one program, which all share who ask for one dtype, and search as far."""

    def __init__(self, program: Program) -> None:
        super().__init__(_Answers)


class _Bound(defaultdict[tuple[str, str], list[tuple[ir.Expr, str]]]):
    """What parameters of functions are bound to by ``partial``, what those of lambdas are given, and what
    buffers are made with: the latter under their names alone."""

    def __init__(self, program: Program) -> None:
        super().__init__(list)
        for function, _, call in program.calls_named("partial"):
            if program.origin(call.func, function) != "functools.partial":
                continue
            match call.args:
                case [ir.Arg(value=ir.Deferred(params=params)), *given]:
                    for param, arg in zip(params, given, strict=False):
                        self[_LAMBDA, arg.name or param].append((arg.value, function))
            for ref in (
                program.resolve(call.args[0].value, function) if call.args else ()
            ):
                if ref.kind == "function":
                    for arg in call.args[1:]:
                        if arg.name is not None:
                            self[ref.name, arg.name].append((arg.value, function))
        for _, stmt in program.all_statements():
            match stmt.targets, stmt.value:
                case (ir.Name(id=name),), ir.Deferred(params=params):
                    for function, _, call in program.calls_named(name):
                        for param, arg in zip(params, call.args, strict=False):
                            self[_LAMBDA, arg.name or param].append(
                                (arg.value, function)
                            )
        self._of_held_lambdas(program)
        for function, _, call in program.calls_named("register_buffer"):
            match call.argument(0, "name"), call.argument(1, "tensor"):
                case ir.Const(value=str(name)), made if made is not None:
                    self["", name].append((made, function))

    def _of_held_lambdas(self, program: Program) -> None:
        """``masks["m"](scores, -1e9)``: what those are given that a table or an object holds."""
        named: dict[str, list[ir.Deferred]] = defaultdict(list)
        tables: list[ir.Deferred] = []
        for _, stmt in program.all_statements():
            for inner in parts_of(stmt):
                match inner:
                    case ir.Display(items=items):
                        tables += (i for i in items if isinstance(i, ir.Deferred))
                    case ir.Call(args=args):
                        for arg in args:
                            if arg.name and isinstance(arg.value, ir.Deferred):
                                named[arg.name].append(arg.value)
            match stmt.targets, stmt.value:
                case (ir.Attr(attr=name),), ir.Deferred() as held:
                    named[name].append(held)
                case (ir.Item(),), ir.Deferred() as held:
                    tables.append(held)
        for function, _, call in program.all_calls() if tables or named else ():
            match call.func:
                case ir.Item():
                    lambdas = tables
                case ir.Attr(attr=name):
                    lambdas = named.get(name, [])
                case _:
                    continue
            for held in lambdas:
                if len(call.args) <= len(held.params):
                    for param, arg in zip(held.params, call.args, strict=False):
                        self[_LAMBDA, arg.name or param].append((arg.value, function))


class _Options(defaultdict[str, list[tuple[ir.Expr, str]]]):
    """The defaults of a program's command line options, by the names of what they set."""

    def __init__(self, program: Program) -> None:
        super().__init__(list)
        for function, _, call in program.calls_named("add_argument"):
            given = {arg.name: arg.value for arg in call.args}
            flags = [arg.value for arg in call.args if arg.name is None]
            for flag in [given["dest"]] if "dest" in given else flags:
                if "default" in given and isinstance(flag, ir.Const):
                    name = str(flag.value).lstrip("-").replace("-", "_")
                    self[name].append((given["default"], function))


class Numbers:
    """Answers for one program, and one dtype."""

    def __init__(self, program: Program, half: Half, most: int = MOST_STATES) -> None:
        """``most``: how far values are followed."""
        self.program = program
        self.half = half
        self.points_to = program.noted(PointsTo)
        self._most = most
        self._known = program.noted(_Known)[half, most]
        self._options = program.noted(_Options)
        whole = program.whole
        self._of_whole = [
            Numbers(whole, half, most)
            for most in (MOST_STATES, _MOST_OF_WHOLE)
            if whole is not None
        ]

    def one(self, expr: ir.Expr, function: str) -> float | None:
        """A number that an expression may be, one that half precision does not have rather than another."""
        found = self.all(expr, function)
        return next(filter(self.half.lacks, found), next(iter(found), None))

    def all(self, expr: ir.Expr, function: str) -> list[float]:
        """The numbers that an expression may be, of those that are written somewhere."""
        if isinstance(expr, ir.Const):
            return [one for one in (_folded(expr),) if one is not None]
        key = expr, function
        found = self._known.found
        if key not in found:
            # For what is computed of itself.
            found[key] = []
            try:
                found[key] = list(self._find(expr, function))
            except BaseException:
                del found[key]
                raise
        return found[key]

    def are_unheld(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression may be a number that half precision does not have."""
        for whole in self._of_whole:
            if whole.are_unheld(expr, function):
                break
            if (expr, function) not in whole._known.cut:
                # Where less is done, it is none, either.
                return False
        return any(map(self.half.lacks, self.all(expr, function)))

    def _find(self, expr: ir.Expr, function: str) -> Iterator[float]:
        if isinstance(expr, ir.Call):
            # Points-to looks into what it is called on instead.
            yield from self._of_call(expr, function)
        yield from self._given_otherwise(expr, function)
        for one in self.points_to.of(expr, function, most=self._most):
            value, at = one.expr, one.function
            if one.name == TOO_MANY:
                self._known.cut.add((expr, function))
            if one.fields:
                yield from self._of_part(value, one.fields[-1][1], at)
                # A limit, of the result of a call.
                value = ir.Attr(value, str(one.fields[0][1]))
            number = _folded(value)
            if number is None:
                number = self._fp32_limit(value, at)
            if number is not None:
                yield number
            elif isinstance(value, ir.Operation):
                if value.op == "-x":
                    yield from (-n for n in self.all(value.operands[0], at))
                elif self.is_nearly_one(value, at):
                    yield 1.0
                elif value.op in _ARITHMETIC and len(value.operands) == 2:
                    yield from self._of_large(value, at)
            elif isinstance(value, ir.Call) and value is not expr:
                yield from self._of_call(value, at)

    def _of_large(self, expr: ir.Operation, function: str) -> Iterator[float]:
        """``torch.finfo(torch.float32).min / 2``, ``scale * limit``."""
        several = [self.all(one, function) for one in expr.operands]
        for left, right in islice(product(*several), _MOST_CHANGES):
            if self.half.overflows(left) or self.half.overflows(right):
                with suppress(ArithmeticError, ValueError, TypeError):
                    yield float(_ARITHMETIC[expr.op](left, right))

    def _given_otherwise(self, expr: ir.Expr, function: str) -> Iterator[float]:
        """What a ``partial`` gives a parameter, ``fill *= -1e9`` a variable, and what a buffer is made
        with."""
        program = self.program
        match expr:
            case ir.Name(id=name):
                owner = program.owner(name, function)
                for value, at in program.noted(_Bound).get(
                    (owner or _LAMBDA, name), ()
                ):
                    yield from self.all(value, at)
                changed = [
                    found
                    for found in program.defined(name, function)
                    if found.stmt.kind == "augassign" and found.stmt.op in _ARITHMETIC
                ]
                if changed and len(changed) <= _MOST_CHANGES:
                    yield from self._changed(name, changed)
            case ir.Attr(attr=name):
                for value, at in program.noted(_Bound).get(("", name), ()):
                    yield from self.all(value, at)

    def _changed(self, name: str, changed: list[Definition]) -> Iterator[float]:
        for one in changed:
            assert one.stmt.value is not None and one.stmt.op is not None
            begun = [
                _folded(other.value)
                for other in self.program.defined(name, one.function)
                if other.stmt.kind == "assign" and other.value is not None
            ]
            for number in self.all(one.stmt.value, one.function):
                for before in begun:
                    if before is not None:
                        with suppress(ArithmeticError, ValueError, TypeError):
                            yield float(_ARITHMETIC[one.stmt.op](before, number))

    def _of_part(self, of: ir.Expr, name: object, function: str) -> Iterator[float]:
        """What is under a name in what an expression makes: an option of the command line, a member of an
        ``Enum``, an entry that a ``defaultdict`` makes."""
        match of:
            case ir.Call(
                func=ir.Attr(attr="parse_args" | "parse_known_args")
                | ir.Name(id="vars")
            ):
                for default, at in self._options.get(str(name), ()):
                    yield from self.all(default, at)
            case ir.Call(func=func, args=(ir.Arg(value=ir.Deferred(body=body)), *_)):
                if self.program.origin(func, function) == "collections.defaultdict":
                    yield from self.all(body, function)
            case ir.Call():
                return
            case _ if name == "value":
                yield from self.all(of, function)

    def _of_call(self, call: ir.Call, function: str) -> list[float]:
        """What arithmetic comes to, or a call gives in place of what is missing."""
        origin = self.program.origin(call.func, function)
        values = [arg.value for arg in call.args]
        if isinstance(call.func, ir.Attr) and call.func.attr == "item" and not values:
            return self.all(call.func.value, function)
        if origin in _SCALARS and values:
            # Of no dimensions, it promotes no more than a number does.
            return self.all(values[0], function)
        fold = _FOLDS.get(origin or "")
        if fold is not None:
            match values:
                case [ir.Call() as inner] if origin == "builtins.float":
                    # A text, perhaps, as that of an environment is.
                    text = ir.Arg(self._default(inner) or inner)
                    number = _folded(ir.Call(call.func, (text,)))
                    if number is not None:
                        return [number]
            known = [self.all(value, function)[:1] for value in values]
            # `max(*pair)`, and powers that are no numbers
            with suppress(TypeError, ValueError, OverflowError):
                if known and all(known):
                    return [fold(*(number for (number,) in known))]
        elif (default := self._default(call)) is not None:
            return self.all(default, function)
        elif origin == "builtins.getattr" and len(values) == 2:
            of, name = values
            if isinstance(name, ir.Const):
                return self.all(ir.Attr(of, str(name.value)), function)
        elif isinstance(call.func, ir.Name) and not call.args:
            return [
                number
                for one in self.points_to.of(call.func, function)
                if isinstance(one.expr, ir.Deferred)
                for number in self.all(one.expr.body, one.function)
            ]
        return []

    @staticmethod
    def _default(call: ir.Call) -> ir.Expr | None:
        """``-1e9`` of ``getattr(args, "fill", -1e9)`` and ``options.get("fill", -1e9)``"""
        count = {"getattr": 3, "get": 2, "getenv": 2}.get(ir.last_of(call.func) or "")
        return call.args[-1].value if len(call.args) == count else None

    def _fp32_limit(self, expr: ir.Expr, function: str) -> float | None:
        """``torch.finfo(torch.float32).min``, ``numpy.finfo(float).eps``, ``sys.maxsize``."""
        known = _PYTHON_LIMITS.get(self.program.origin(expr, function) or "")
        if known is not None:
            return known
        if not isinstance(expr, ir.Attr) or not isinstance(expr.value, ir.Call):
            return None
        origin = self.program.origin(expr.value.func, function)
        args = [arg.value for arg in expr.value.args]
        if origin == "numpy.finfo" and len(args) == 1:
            said = args[0].value if isinstance(args[0], ir.Const) else None
            dtype = said or self.program.origin(args[0], function)
            if dtype in ("builtins.float", "numpy.float64", "float64"):
                return _FP64_LIMITS.get(expr.attr)
            known = dtype in ("numpy.float32", "float32")
            return _FP32_LIMITS.get(expr.attr) if known else None
        if origin == "torch.finfo":
            if all(_says_fp32(self.program, arg, function) for arg in args):
                return _FP32_LIMITS.get(expr.attr)
        return None

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
        case ir.Call(
            func=ir.Attr(attr="float32" | "float64"), args=(ir.Arg(value=inner),)
        ):
            return _folded(inner)  # of numpy
        case ir.Operation(op="-x", operands=(inner,)):
            negated = _folded(inner)
            return None if negated is None else -negated
        case ir.Operation(op=op, operands=(one, other)) if op in _ARITHMETIC:
            left, right = _folded(one), _folded(other)
            if left is None or right is None:
                return None
            try:
                return float(_ARITHMETIC[op](left, right))
            except (ArithmeticError, ValueError, TypeError):
                return None
    return None


def _shifted(number: float, places: float) -> float:
    return float(number * 2**places)


_ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "<<": _shifted,
}
