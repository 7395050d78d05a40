"""What leaves torch for NumPy: bfloat16 raises there, float16 goes on as float16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import MODULES, Forward
from amp_migrate.analysis.paths.loops import refused
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.analysis.values.traces import NAMED_PARTS
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.edits import Island
from amp_migrate.migrate.precision.remedies import Planner, Remedies
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of

_KEEPS = operations("first", "joined") | {"to", "data"}
_LEAVES = ("asarray", "array", "ascontiguousarray")
_MOST = 200

_Parts = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Caller:
    """The call without autocast by which the function at hand is run."""

    call: ir.Call
    at: Made
    caller: _Caller | None


class Arrays(Planner):
    """Plans the casts of what becomes an array."""

    def __init__(
        self,
        remedies: Remedies,
        forward: Forward,
        regions: Statements,
        in_regions: Statements,
    ) -> None:
        """``regions``: the statements of regions; ``in_regions``: and of what these call."""
        super().__init__(remedies)
        self.forward = forward
        islands = {
            (function, edit.path)
            for function, edit in remedies.edits
            if isinstance(edit, Island)
        }
        self.regions = frozenset(regions) - islands
        self.autocast = frozenset(in_regions) - islands
        self._asked: set[tuple[object, ...]] = set()

    def judge(self, functions: Iterable[str]) -> None:
        """Raise `Blocked` at an array that may be made of half values, and cannot be helped."""
        for function in functions:
            if self._is_custom(function):
                continue
            for stmt in self.program.statements(function):
                if stmt.kind in ("functiondef", "classdef"):
                    continue
                for call in calls_of(stmt):
                    for tensor in self._leaving(call, function):
                        self._judge(Made(tensor, function, stmt), call.line)

    def _is_custom(self, function: str) -> bool:
        """Whether a function is a method of an autograd function, which is run in fp32 if need be."""
        owner = self.program.functions[function].class_name
        return owner is not None and (
            "torch.autograd.Function" in self.program.external_bases(owner)
        )

    def _leaving(self, call: ir.Call, function: str) -> Iterator[ir.Expr]:
        func = call.func
        origin = self.program.origin(func, function)
        if origin is None:
            if isinstance(func, ir.Attr) and func.attr == "numpy":
                yield func.value
        elif origin.startswith("numpy.") and origin.rsplit(".", 1)[-1] in _LEAVES:
            yield from (arg.value for arg in call.args[:1] if not arg.star)

    def _judge(self, at: Made, line: int) -> None:
        self._asked = set()
        if not self._is_half(at) or self.remedies.halves.is_never_half(at):
            return
        # Nothing but a tensor is on a device, or part of a graph.
        sure = self.remedies.is_tensor(at) or any(
            isinstance(inner, ir.Attr) and inner.attr in ("cpu", "to", "detach", "data")
            for inner in ir.walk(at.expr)
        )
        if not self.remedies.raise_(at, sure, hoists=True):
            raise refused(
                "AMP020", "an array is made of what may be in half precision", line
            )

    def _is_half(
        self, at: Made, caller: _Caller | None = None, rest: _Parts = ()
    ) -> bool:
        """Whether a value is seen to come out of a forward computation under autocast.

        ``caller``: of a function that is looked into because it is called without autocast. ``rest``:
        which element of the element is meant, and so on, or which field.
        """
        key = (id(at.expr), at.function, at.stmt.path, at.index, caller, rest)
        if key in self._asked or len(self._asked) > _MOST:
            return False
        self._asked.add(key)
        expr = at.expr
        view = dtype_table.view_of(expr)
        if view is not None:
            expr = view
        match expr:
            case ir.Attr(value=holder, attr=attr) if not self.remedies.flow.made(
                replace(at, expr=expr)
            ):
                return at.index is None and self._is_half(
                    at.inner(holder), caller, (attr, *rest)
                )
            case ir.Name() | ir.Attr():
                return any(
                    self._is_half(*found)
                    for found in self._made(replace(at, expr=expr), caller, rest)
                )
            case ir.Operation(op="if", operands=(_, body, orelse)):
                return any(
                    self._is_half(replace(at, expr=branch), caller, rest)
                    for branch in (body, orelse)
                )
            case ir.Operation(op=op, operands=operands):
                return op in (*dtype_table.ARITHMETIC, "-x", "**") and any(
                    self._within(at, operand, caller) for operand in operands
                )
            case ir.Item(value=value, key=ir.Const(value=int() as index)):
                rest = rest if at.index is None else (at.index, *rest)
                of = at.inner(value, index)
                return self._is_half(of, caller, rest)
            case ir.Item(value=value):
                return self._within(at, value, caller)
            case ir.Display():
                element, *others = rest or (None,)
                if isinstance(element, str):
                    return False
                return any(
                    self._is_half(at.inner(item, element), caller, tuple(others))
                    for item in _meant(expr, at.index)
                )
            case ir.Call():
                return self._call_is_half(at, expr, caller, rest)
        return False

    def _made(
        self, at: Made, caller: _Caller | None, rest: _Parts
    ) -> Iterator[tuple[Made, _Caller | None, _Parts]]:
        """What made a variable or attribute, and the call by which that is run if it is known."""
        sites = self.program.call_sites.get(at.function, ()) if caller else ()
        for one in self.remedies.flow.made(at) or ():
            inside = rest
            if one.index is None:
                one = replace(one, index=at.index)
            elif at.index is not None:
                inside = (at.index, *rest)
            local = isinstance(at.expr, ir.Name) and one.function == at.function
            inner = caller if local else None
            if caller and any(
                site.caller == one.function and site.stmt is one.stmt for site in sites
            ):
                # What other callers give to a parameter is not given here.
                if one.stmt is not caller.at.stmt:
                    continue
                inner = caller.caller
            yield one, inner, inside

    def _within(self, at: Made, expr: ir.Expr, caller: _Caller | None) -> bool:
        return self._is_half(at.inner(expr), caller)

    def _call_is_half(
        self, at: Made, call: ir.Call, caller: _Caller | None, rest: _Parts
    ) -> bool:
        func, name = call.func, _last(call)
        origin = self.program.origin(func, at.function)
        keeps = name in _KEEPS
        if rest and isinstance(rest[0], str) and origin in NAMED_PARTS:
            field = call.argument(len(call.args), rest[0])
            if field is not None:
                return self._is_half(at.inner(field), caller, rest[1:])
            return any(
                self._is_half(at.inner(arg.value), caller, rest)
                for arg in call.args
                if arg.name is None
            )
        if origin is not None and origin.startswith("torch."):
            return keeps and any(
                self._within(at, arg.value, caller) for arg in call.args
            )
        autocast = self._is_under_autocast(at, caller)
        refs = self.program.resolve(func, at.function)
        if refs and all(ref.kind == "function" for ref in refs):
            inner = None if autocast else _Caller(call, at, caller)
            return any(
                self._is_half(made, inner, rest)
                for ref in refs
                for made in self.remedies.flow.returned(ref.name, at.index) or ()
            )
        if self.forward.is_forward(call, at.function, MODULES):
            return autocast
        return (
            keeps and isinstance(func, ir.Attr) and self._within(at, func.value, caller)
        )

    def _is_under_autocast(self, at: Made, caller: _Caller | None) -> bool:
        where = self.autocast if caller is None else self.regions
        return (at.function, at.stmt.path) in where


def _last(call: ir.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ir.Attr)
        else (ir.key_of(call.func) or "")
    )


def _meant(display: ir.Display, index: int | None) -> tuple[ir.Expr, ...]:
    """The element that an index means, or all where that cannot be told."""
    items = display.items
    starred = any(map(ir.is_starred, items))
    if index is None or starred or display.kind not in ("tuple", "list"):
        return items
    return items[index:][:1]
