"""What half values, made in a region, cannot be used for: as NumPy arrays of bfloat16, or beside fp32."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amp_migrate.analysis.objects.points_to import Context as Calls
from amp_migrate.analysis.objects.points_to import Object
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Amp, amp_of
from amp_migrate.lint.misuse.order.numerics import KEEPS, Values, is_product
from amp_migrate.lint.misuse.order.regions import Regions
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.given import Given

TO_NUMPY = "AMP218"
STORED = "AMP219"

_MADE_FP32 = re.compile(r"torch\.(zeros|ones|empty|full|rand|randn)")
_INDICES = re.compile(
    r"torch\.(where|nonzero|randperm|arange|tensor|isnan|isfinite|logical_\w+)"
)
_INDEXED = {
    "index_add": 2,
    "index_add_": 2,
    "index_copy": 2,
    "index_copy_": 2,
    "scatter_add_": 2,
    "scatter_reduce": 2,
    "scatter_reduce_": 2,
    "masked_scatter_": 1,
}
"""Methods that want both tensors of one dtype, which autocast does not see to; where the other stands."""
_MOVES = frozenset("cuda cpu clone detach contiguous".split())
_RESHAPES = _MOVES | {"squeeze", "flatten", "view", "reshape", "long"}
_COMPARISONS = frozenset("< <= > >= == !=".split())
_MOST = 40
"""Values that are looked at for one question."""


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file."""
    tensors = _Tensors(context)
    if not tensors.amp.opening_files:
        return
    for function in context.functions(file):
        for stmt in context.program.statements(function):
            for call in calls_of(stmt):
                if tensors.is_bfloat16_array(call, function, stmt):
                    yield context.finding(TO_NUMPY, function, call)
                elif tensors.mixes(call, function, stmt):
                    yield context.finding(STORED, function, call)
            if tensors.is_stored(stmt, function):
                yield context.finding(STORED, function, stmt)


class _Tensors:
    def __init__(self, context: Context) -> None:
        self.program = context.program
        self.amp: Amp = amp_of(context)
        self.regions = Regions(self.amp)
        self.values = context.program.noted(Values)

    def is_bfloat16_array(self, call: ir.Call, function: str, stmt: ir.Stmt) -> bool:
        """``h.numpy()`` of what a region of bfloat16 has made: NumPy has no such dtype."""
        match call.func:
            case ir.Attr(value=value, attr="numpy") if not call.args:
                made: ir.Expr | None = value
            case _:
                origin = self.program.origin(call.func, function)
                arrays = origin in ("numpy.array", "numpy.asarray")
                made = call.argument(0, "object") if arrays else None
        return made is not None and self._dtypes(made, function, stmt) == {"bfloat16"}

    def mixes(self, call: ir.Call, function: str, stmt: ir.Stmt) -> bool:
        """``total.index_add_(0, index, h)``, where only one of the two is half."""
        if not isinstance(call.func, ir.Attr) or call.func.attr not in _INDEXED:
            return False
        given = call.argument(_INDEXED[call.func.attr], "source")
        given = given or call.argument(99, "src")
        return given is not None and self._are_two(
            call.func.value, given, function, stmt
        )

    def is_stored(self, stmt: ir.Stmt, function: str) -> bool:
        """``table[index] = h``, where the index is a tensor."""
        if stmt.kind != "assign" or stmt.value is None or len(stmt.targets) != 1:
            return False
        match stmt.targets[0]:
            case ir.Item(value=table, key=key) if not isinstance(key, ir.Const):
                return self._are_two(
                    table, stmt.value, function, stmt
                ) and self._is_index(key, function, stmt)
        return False

    def _are_two(
        self, table: ir.Expr, stored: ir.Expr, function: str, stmt: ir.Stmt
    ) -> bool:
        whole = self.values.whole(table, function, stmt)
        made = [(None if one.fields else one.expr, one.function) for one in whole]
        if isinstance(table, ir.Attr) and not made:
            # A buffer of a module.
            classes = self.program.instance_classes(table.value, function)
            given = self.program.noted(Given).to(classes, table.attr, [])
            buffers = [(one.value, one.function) for one in given]
            assigned = [
                one
                for owner in classes
                for one in self.program.attribute_definitions(owner, table.attr)
            ]
            made = [] if assigned else buffers
        return (
            bool(made)
            and all(self._is_fp32(*one) for one in made)
            and bool(self._dtypes(stored, function, stmt))
        )

    def _is_fp32(self, made: ir.Expr | None, function: str) -> bool:
        made = made and ir.before_calls(made, _MOVES)
        if not isinstance(made, ir.Call):
            return False
        origin = self.program.origin(made.func, function) or ""
        return (
            _MADE_FP32.fullmatch(origin) is not None
            and made.argument(99, "dtype") is None
            and not any(arg.star for arg in made.args)
        )

    def _is_index(self, key: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether a key is a tensor, or a list: slices and numbers take values of any dtype."""
        if isinstance(key, ir.Display):
            return key.kind == "list"
        made = self.values.whole(key, function, stmt)
        return bool(made) and all(
            not one.fields and self._is_made_index(one.expr, one.function)
            for one in made
        )

    def _is_made_index(self, made: ir.Expr, function: str) -> bool:
        match made:
            case ir.Operation(op=op):
                return op in _COMPARISONS
            case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _RESHAPES:
                return self._is_made_index(value, function)
            case ir.Call(func=func):
                origin = self.program.origin(func, function) or ""
                return _INDICES.fullmatch(origin) is not None
        return False

    # -- dtypes -----------------------------------------------------------------------------------

    def _dtypes(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> set[str]:
        """The half dtypes that a tensor may have; empty where it may be another, or is not in sight."""
        found = set()
        for dtype in self._made(expr, function, stmt, (), set()):
            if dtype not in ("float16", "bfloat16"):
                return set()
            found.add(dtype)
        return found

    def _made(
        self,
        expr: ir.Expr,
        function: str,
        stmt: ir.Stmt | None,
        calls: Calls,
        seen: set[object],
    ) -> Iterator[str]:
        found = self.values.of(expr, function, stmt, calls)
        if not found or len(seen) > _MOST:
            yield ""
            return
        for one in found:
            key = one.site, one.context
            if key in seen:
                continue
            seen.add(key)
            if one.kind != "value" or one.fields:
                yield ""
            elif self._is_half_made(one):
                region = self.regions.open_at(*one.place)
                yield "" if region is None else region.dtype
            else:
                kept = self._kept(one)
                parts = [(kept, *one.place)] if kept else [*self._returned(one)]
                for part in parts:
                    yield from self._made(*part, seen)
                if not parts:
                    yield ""

    def _returned(self, one: Object) -> Iterator[tuple[ir.Expr, str, ir.Stmt, Calls]]:
        """What the forward of a module of the program returns, for this call of it."""
        if not isinstance(one.expr, ir.Call):
            return
        for site in self.program.call_sites_of(one.expr, one.function):
            for stmt in self.program.statements(site.callee):
                if stmt.kind == "return" and stmt.value is not None:
                    yield stmt.value, site.callee, stmt, (*one.context, site)

    def _is_half_made(self, one: Object) -> bool:
        if isinstance(one.expr, ir.Operation):
            return one.expr.op == "@"
        return isinstance(one.expr, ir.Call) and is_product(
            self.program, one.expr, one.function
        )

    def _kept(self, one: Object) -> ir.Expr | None:
        """What an operation is applied to that keeps its dtype."""
        if not isinstance(one.expr, ir.Call):
            return None
        origin = self.program.origin(one.expr.func, one.function)
        if origin is not None:
            package, _, name = origin.rpartition(".")
            known = package in ("torch", "torch.nn.functional") and name in KEEPS
            if origin in ("torch.cat", "torch.stack") and one.expr.args:
                return ir.Item(one.expr.args[0].value, ir.Name("?"))
            return one.expr.argument(0, "input") if known else None
        func = one.expr.func
        if isinstance(func, ir.Attr) and func.attr in KEEPS:
            return func.value
        return None
