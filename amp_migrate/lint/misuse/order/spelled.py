"""Calls by another name, as they would be written out: of a partial, a lambda, a method that was given a
name, a function out of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.program import ir
from amp_migrate.program.link import Program

PARTIAL = "functools.partial"


class Spelled:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.points_to = program.noted(PointsTo)
        self._made: dict[tuple[ir.Expr, str], tuple[Object, ...]] = {}

    def out(self, call: ir.Call, function: str) -> tuple[ir.Call, str | None]:
        """The call that is made, and the dotted name of what is called, where it is a library's."""
        origin = self.program.origin(call.func, function)
        named = isinstance(call.func, (ir.Name, ir.Item))
        if origin is not None or not named or self.program.callees(call, function):
            return call, origin
        key = call.func, function
        if key not in self._made:
            self._made[key] = self.points_to.of(*key, enough=_Mixed())
        found = self._made[key]
        if found and all(one.kind == "external" and not one.fields for one in found):
            # Out of a table; that they all do the same is for who asks.
            return call, found[0].name
        if len(found) == 1 and found[0].function in (
            function,
            ir.top_of(function),
        ):
            written = self._written(call, found[0], function)
            if written is not None:
                return written, self.program.origin(written.func, function)
        return call, None

    def given_to(self, expr: ir.Expr, function: str) -> Iterator[tuple[ir.Expr, str]]:
        """What the partials of a function give to a parameter of it, and where."""
        params = [param.name for param in self.program.functions[function].params]
        if isinstance(expr, ir.Name) and expr.id in params:
            for args, there in self._partials.get(function, ()):
                if params.index(expr.id) < len(args):
                    yield args[params.index(expr.id)], there

    @cached_property
    def _partials(self) -> Mapping[str, list[tuple[list[ir.Expr], str]]]:
        found = defaultdict(list)
        for function, _, call in self.program.calls_named("partial"):
            if call.args:
                inner = ir.Call(call.args[0].value, (), call.line, call.column)
                values = [arg.value for arg in call.args[1:] if arg.name is None]
                for callee in self.program.callees(inner, function):
                    # The receiver stands first.
                    own = self.program.fills_self(inner, callee, function)
                    receiver = (
                        [inner.func.value]
                        if own and isinstance(inner.func, ir.Attr)
                        else []
                    )
                    found[callee].append(([*receiver, *values], function))
        return found

    def _written(self, call: ir.Call, made: Object, function: str) -> ir.Call | None:
        match made.expr:
            case ir.Call(func=func, args=(inner, *args)) if not made.fields:
                match self.program.origin(func, made.function), args:
                    case origin, _ if origin == PARTIAL:
                        given = (*args, *call.args)
                        return ir.Call(inner.value, given, call.line, call.column)
                    case "builtins.getattr", (ir.Arg(ir.Const(str(name))), *_):
                        method = ir.Attr(inner.value, name)
                        return ir.Call(method, call.args, call.line, call.column)
            case ir.Deferred(params=params, body=ir.Call() as body, plain=True):
                values = [arg.value for arg in call.args]
                if len(values) == len(params) and not any(a.name for a in call.args):
                    filled = _filled(body, dict(zip(params, values, strict=True)))
                    if isinstance(filled, ir.Call):
                        return ir.Call(filled.func, filled.args, call.line, call.column)
        if made.fields and isinstance(call.func, ir.Name):
            bound = [
                one.value
                for one in self.program.definitions(function, call.func.id)
                if isinstance(one.value, ir.Attr)
            ]
            if len(bound) == 1:
                return ir.Call(bound[0], call.args, call.line, call.column)
        return None


class _Mixed:
    """Whether there are several of which one is not a library's: no call could be written out then."""

    def __init__(self) -> None:
        self._seen = 0
        self._is_other = False

    def __call__(self, one: Object) -> bool:
        self._seen += 1
        self._is_other |= one.kind != "external" or bool(one.fields)
        return self._seen > 1 and self._is_other


def _filled(expr: ir.Expr, given: dict[str, ir.Expr]) -> ir.Expr | None:
    """The body of a lambda for what its parameters are given; None where it is more than calls."""
    match expr:
        case ir.Name(id=name):
            return given.get(name, expr)
        case ir.Const():
            return expr
        case ir.Attr(value=value, attr=attr):
            inner = _filled(value, given)
            return None if inner is None else ir.Attr(inner, attr)
        case ir.Call(func=func, args=args):
            called = _filled(func, given)
            filled = [_filled(arg.value, given) for arg in args]
            if called is not None and None not in filled:
                return ir.Call(
                    called,
                    tuple(
                        ir.Arg(value, arg.name, arg.star)
                        for arg, value in zip(args, filled, strict=True)
                        if value is not None
                    ),
                    expr.line,
                    expr.column,
                )
    return None
