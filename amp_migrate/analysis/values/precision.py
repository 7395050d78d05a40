"""Which values may be in half precision: those that come out of what runs under autocast."""

from __future__ import annotations

import re
from collections.abc import Collection

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.modules import Modules
from amp_migrate.analysis.values.dtypes import Shown, rebinds
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

_MAKES_FP32 = re.compile(
    r"torch\.(rand|randn|zeros|ones|empty|Tensor|FloatTensor|linspace|normal)"
    r"|torch\.cuda\.FloatTensor"
)
_LIKE = re.compile(r"torch\.(rand|randn|zeros|ones|empty|full)_like")
_KEEPS_DTYPE = operations("first", "new") - operations("reduces", "fp32")
_KEEPS_DTYPE -= {"select", "unbind", "take"}
_RUNS_A_MODULE = ("forward", "__call__", "__init__")
_ARITHMETIC = ("+", "-", "*", "/", "-x")
_DEEPEST = 40
_MOST = 3000

Statements = Collection[tuple[str, ir.Path]]


class Precision:
    """Answers for one group's regions."""

    def __init__(
        self,
        program: Program,
        forward: Forward,
        under_autocast: Statements,
        in_fp32: Statements,
    ) -> None:
        """``in_fp32``: the statements among those under autocast for which it is turned off again."""
        self.program = program
        self._full = _Full(Flow(program), Modules(program))
        self.forward = forward
        self.under_autocast = under_autocast
        self.in_fp32 = in_fp32
        self._busy: set[tuple[str, str]] = set()
        self._left = 0
        """How many questions may still be asked."""

    def may_be_half(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether autocast may give (part of) a value another dtype than it has without.

        ``stmt``: the one that the expression stands in.
        """
        self._left = _MOST
        return self._may_be_half(expr, function, stmt, 0)

    def _is_under(self, function: str, stmt: ir.Stmt) -> bool:
        site = (function, stmt.path)
        return site in self.under_autocast and site not in self.in_fp32

    def _may_be_half(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt, depth: int
    ) -> bool:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return True
        if self._full.are(Made(expr, function, stmt)):
            return False
        own = self.program.self_class(function)
        match expr:
            case ir.Call():
                callees = self.program.callees(expr, function)
                plain = [
                    callee
                    for callee in callees
                    if self.program.functions[callee].name not in _RUNS_A_MODULE
                ]
                if plain and len(plain) == len(callees):
                    return any(self._returns_half(callee, depth) for callee in plain)
                if self._is_under(function, stmt):
                    if self.forward.is_forward(expr, function):
                        return True
                elif self.forward.is_module(expr.func, function):
                    # The module itself is no value.
                    return any(
                        self._may_be_half(arg.value, function, stmt, depth)
                        for arg in expr.args
                    )
            case ir.Operation(op="@") if self._is_under(function, stmt):
                return True
            case ir.Name(id=name):
                return self._variable_may_be_half(name, function, stmt, depth)
            case ir.Attr(value=value, attr=attr) if own and value == ir.Name(own[0]):
                definitions = self.program.attribute_definitions(own[1], attr)
                return any(self._comes_out_half(d, depth) for d in definitions)
        return any(
            self._may_be_half(child, function, stmt, depth)
            for child in ir.children(expr)
        )

    def _returns_half(self, function: str, depth: int) -> bool:
        if (function, "return") in self._busy:
            return False
        self._busy.add((function, "return"))
        try:
            return any(
                self._may_be_half(stmt.value, function, stmt, depth + 1)
                for stmt in self.program.statements(function)
                if stmt.kind == "return"
                and stmt.value is not None
                and (function, stmt.path) not in self.in_fp32
            )
        finally:
            self._busy.discard((function, "return"))

    def _variable_may_be_half(
        self, name: str, function: str, stmt: ir.Stmt, depth: int
    ) -> bool:
        program = self.program
        own = program.self_class(function)
        owner = program.owner(name, function)
        if owner is None or (own is not None and name == own[0]):
            return False
        if program.resolve(ir.Name(name), function) and self.forward.is_module(
            ir.Name(name), function
        ):
            return False
        definitions = program.definitions(owner, name)
        last = self._last_definition(definitions, name, function, stmt)
        if last is not None:
            if (function, f"{name}@{last.stmt.line}") in self._busy:
                return False
            self._busy.add((function, f"{name}@{last.stmt.line}"))
            try:
                return self._comes_out_half(last, depth)
            finally:
                self._busy.discard((function, f"{name}@{last.stmt.line}"))
        if (owner, name) in self._busy:
            return False
        self._busy.add((owner, name))
        try:
            if any(self._comes_out_half(d, depth) for d in definitions):
                return True
            scope = program.functions[owner]
            if all(param.name != name for param in scope.params):
                return False
            sites = program.call_sites.get(owner, [])
            own = program.self_class(owner)
            is_module = own is not None and self.forward.is_module_class(own[1])
            if scope.name == "forward" and is_module:
                # Who calls it is not known.
                return True
            if not sites:
                # What calls it is not in sight, and gives it data, unless it is handed on to be called.
                return owner in program.escaping
            return any(
                self._may_be_half(value, site.caller, site.stmt, depth + 1)
                for site in sites
                if (value := program.argument_at(site, name)) is not None
            )
        finally:
            self._busy.discard((owner, name))

    def _last_definition(
        self,
        definitions: list[Definition],
        name: str,
        function: str,
        stmt: ir.Stmt,
    ) -> Definition | None:
        """The only one that a statement can see, where that is an assignment of its own function."""
        found, started = self.program.control(function).reaching(name, stmt.path)
        if started or len(found) != 1 or found[0].kind not in ("assign", "annassign"):
            return None
        return next(
            (
                d
                for d in definitions
                if d.function == function and d.stmt.path == found[0].path
            ),
            None,
        )

    def _comes_out_half(self, definition: Definition, depth: int) -> bool:
        stmt, function = definition.stmt, definition.function
        if stmt.kind in ("functiondef", "classdef", "import", "importfrom"):
            return False
        if (function, stmt.path) in self.in_fp32:
            return False
        value = definition.value if definition.value is not None else stmt.value
        if value is None:
            return stmt.kind == "with"
        return self._may_be_half(value, function, stmt, depth + 1)


class _Full(Shown):
    """Which values are tensors of fp32, with dimensions, with AMP and without."""

    def are(self, at: Made) -> bool:
        self._begin()
        return not rebinds(at) and self._is(at)

    def _holds(self, at: Made) -> bool:
        match at.expr:
            case ir.Operation(op=op, operands=operands) if op in _ARITHMETIC:
                # Half with fp32 gives fp32.
                return any(self._within(at, one) for one in operands)
            case ir.Attr(value=value, attr="data" | "T"):
                return self._within(at, value)
            case ir.Name():
                made = self.flow.made(at) or []
                return bool(made) and all(
                    one.index is None
                    and one.stmt.kind in ("assign", "annassign")
                    and self._is(one)
                    for one in made
                )
            case ir.Call():
                return self._of_call(at, at.expr)
        return False

    def _of_call(self, at: Made, call: ir.Call) -> bool:
        program, function = self.program, at.function
        if any(arg.name == "dtype" for arg in call.args):
            return False
        origins = {program.origin(call.func, function) or ""} | {
            ref.name
            for ref in program.resolve(call.func, function)
            if ref.kind == "external"
        }
        first = call.args[0].value if call.args else None
        if any(_MAKES_FP32.fullmatch(origin) for origin in origins):
            return first is not None and first != ir.Display("tuple", ())
        if any(_LIKE.fullmatch(origin) for origin in origins) or (
            "torch.autograd.Variable" in origins
        ):
            return first is not None and self._within(at, first)
        if isinstance(call.func, ir.Attr) and "" in origins:
            method = call.func.attr
            if method == "float" and not call.args:
                return True
            moves = method == "to" and not any(
                (program.origin(arg.value, function) or "").startswith("torch.")
                for arg in call.args
            )
            if method in _KEEPS_DTYPE or moves:
                return self._within(at, call.func.value)
        return False
