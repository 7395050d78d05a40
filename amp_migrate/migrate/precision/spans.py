"""Islands of whole statements: what is done for an operation that has no smaller remedy.

The fewest statements around the operation run with autocast off, and what goes into them in half
precision is cast up. They compute then what they compute with AMP off, and what they bind is fp32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import MODULES, Forward
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.values.dtypes import rebinds
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import FullPrecision, Recast, Upcast
from amp_migrate.migrate.precision.constants import Constants
from amp_migrate.migrate.precision.formulas import Formulas
from amp_migrate.migrate.precision.remedies import Found, Remedies
from amp_migrate.migrate.precision.sigmoids import Planned, Sigmoids
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, calls_of

_KINDS = frozenset(
    "expr assign annassign augassign return if for pass raise continue break".split()
)
_SIMPLE = frozenset("expr assign annassign augassign return".split())
_TRAINS = frozenset("backward step zero_grad".split())
_OF_TENSORS = frozenset(
    """view reshape permute transpose squeeze unsqueeze contiguous sigmoid softmax log_softmax flatten
    view_as expand_as clamp numel masked_fill bmm matmul type_as size""".split()
)
"""Methods that tell that a value has a dtype."""
_TAKES_TENSOR = (
    dtype_table.SAME
    | dtype_table.FP32_FUNCTIONS
    | frozenset("matrix_exp pinverse inverse svd qr quantile stft istft".split())
) - {"pow"}
"""Functions that want a tensor first."""
_FRESH = frozenset(
    """clone zeros_like ones_like full_like zeros ones full exp log sigmoid softmax log_softmax relu
    softplus sum mean pow sqrt abs matmul mm bmm""".split()
)
"""Functions and methods whose result is a tensor of its own, no view."""
_MOST = 30


@dataclass(frozen=True, slots=True)
class Span:
    """Statements ``first`` .. ``last`` of the block of ``path``, which run in fp32."""

    function: str
    path: ir.Path
    last: int
    is_called: bool = False
    """It runs in another span, from which it is called: nothing has to be written."""

    def holds(self, function: str, path: ir.Path) -> bool:
        """Whether a statement is one of the span's, or inside one."""
        depth = len(self.path) - 1
        return (
            function == self.function
            and len(path) > depth
            and path[:depth] == self.path[:depth]
            and path[depth][0] == self.path[depth][0]
            and self.path[depth][1] <= path[depth][1] <= self.last
        )

    def meets(self, other: Span) -> bool:
        """Whether some statement is of both."""
        return self.holds(other.function, other.path) or other.holds(
            self.function, self.path
        )


_State = tuple[Planned, set[int], dict[Span, None]]


class _Unfit(Exception):
    """Why statements cannot be put into an island."""


class Spans:
    """Plans for one program."""

    def __init__(
        self,
        remedies: Remedies,
        sigmoids: Sigmoids,
        forward: Forward,
        constants: Constants,
        formulas: Formulas,
        under_autocast: Statements,
        known: Collection[Span],
    ) -> None:
        """``known``: those that other loops of the program have."""
        self.remedies = remedies
        self.program = remedies.program
        self.flow = remedies.flow
        self.dtypes = remedies.dtypes
        self.halves = remedies.halves
        self.sigmoids = sigmoids
        self.forward = forward
        self.constants = constants
        self.formulas = formulas
        self.under_autocast = under_autocast
        self.known = known
        self.planned: dict[Span, None] = {}
        self.entered: set[str] = set()
        """The variables that the last one casts."""

    def around(self, function: str, stmt: ir.Stmt) -> bool:
        """Plan the smallest island around a statement; whether there is one.

        Where a number is too small for half precision, so are the values that it is for: what they are
        computed with is part of it, as far as that stands right before.
        """
        small, _ = self.constants.unheld(function, stmt)
        start = self._state()
        best: Span | None = None
        entered: set[str] = set()
        for span in self._candidates(function, stmt):
            if best is not None and (
                not small
                or best in self.known
                or (span.path[:-1], span.last) != (best.path[:-1], best.last)
            ):
                break
            self._restore(start)
            if self.plan(span):
                if best is None or not entered.isdisjoint(self._bound(span, best)):
                    best, entered = span, self.entered
            elif best is not None:
                break
        self._restore(start)
        return best is not None and self.plan(best)

    def plan(self, span: Span) -> bool:
        """Plan an island; whether that is exact with AMP off, and helps."""
        others = [o for o in (*self.planned, *self.known) if o.meets(span)]
        if any(other != span for other in others):
            return False
        start = self._state()
        try:
            edits = self._edits(span)
        except _Unfit:
            self._restore(start)
            return False
        self.planned[span] = None
        self.remedies.edit(span.function, FullPrecision(span.path, span.last))
        self.remedies.edits.update(dict.fromkeys(edits))
        return True

    def _state(self) -> _State:
        return self.sigmoids.planned(), set(self.sigmoids.in_fp32), dict(self.planned)

    def _restore(self, state: _State) -> None:
        (full, edits), in_fp32, planned = state
        self.sigmoids.take_back((set(full), dict(edits)))
        self.sigmoids.in_fp32, self.planned = set(in_fp32), dict(planned)

    def _bound(self, span: Span, other: Span) -> set[str]:
        """What a span binds in statements that another, which ends where it does, has not."""
        block = self.program.control(span.function).block(span.path)
        added = block[span.path[-1][1] : other.path[-1][1]]
        return {name for one in ir.statements(added) for name, _, _ in bindings(one)}

    def _candidates(self, function: str, stmt: ir.Stmt) -> Iterator[Span]:
        """Ever more statements up to one, then those up to the one that this stands in."""
        yield from (span for span in self.known if span.holds(function, stmt.path))
        control = self.program.control(function)
        left = _MOST
        for last in (stmt, *control.around(stmt.path)):
            block = control.block(last.path)
            end = last.path[-1][1]
            for first in reversed(block[: end + 1]):
                left -= 1
                is_text = first.kind == "expr" and isinstance(first.value, ir.Const)
                if (
                    left < 0
                    or is_text
                    or first.is_elif
                    or first.kind not in _KINDS
                    or (function, first.path) not in self.under_autocast
                ):
                    break
                yield Span(function, first.path, end)

    # -- one island -----------------------------------------------------------------------------

    def _edits(self, span: Span) -> list[Found]:
        """What makes all of a span fp32; raises `_Unfit` where that cannot be shown."""
        function = span.function
        inside = [
            one
            for one in ir.statements(self.program.functions[function].body)
            if span.holds(function, one.path)
        ]
        for stmt in inside:
            self._check(span, stmt)
        small = [of for stmt in inside for of in self._small(function, stmt)]
        entering = self._entering(span, inside)
        self.entered = {
            use.id for uses in entering for _, use in uses if isinstance(use, ir.Name)
        }
        edits = [e for uses in entering for e in self._cast(span, inside[0], uses)]
        for stmt in inside:
            for expr in (*stmt.exprs, *stmt.targets):
                everything = {id(one) for one in ir.walk(expr)}
                self.halves.made_full |= everything
                self.sigmoids.in_fp32 |= everything
        for of in small:
            if self.sigmoids.may_be_one(of, unseen=True):
                raise _Unfit
        for stmt in inside:
            if self.formulas.refusal(function, stmt) is not None:
                raise _Unfit
        return edits

    def _small(self, function: str, stmt: ir.Stmt) -> list[Made]:
        """What may be half, and is computed with numbers that half precision does not have."""
        small, is_large = self.constants.unheld(function, stmt)
        if is_large and not any(
            isinstance(target, ir.Name)
            and self.constants.goes_into_softmax(Made(target, function, stmt))
            for target in stmt.targets
        ):
            # Where it is cast down again, it is infinite.
            raise _Unfit
        return small

    # -- what may stand in one ------------------------------------------------------------------

    def _check(self, span: Span, stmt: ir.Stmt) -> None:
        function = span.function
        if (
            stmt.kind not in _KINDS
            or (stmt.is_elif and stmt.path == span.path)
            or (function, stmt.path) not in self.under_autocast
        ):
            raise _Unfit
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                if isinstance(inner, (ir.Deferred, ir.Suspend, ir.Walrus)) or (
                    isinstance(inner, ir.Comprehension) and inner.lazy
                ):
                    raise _Unfit
        for call in calls_of(stmt):
            self._check_call(span, stmt, call)
        for target in stmt.targets:
            if stmt.kind == "augassign" or isinstance(target, ir.Item):
                self._check_changed(span, stmt, target)

    def _check_call(self, span: Span, stmt: ir.Stmt, call: ir.Call) -> None:
        """Allow functions and methods of torch, and layers without parameters."""
        function, func = span.function, call.func
        if any(arg.star or arg.name in ("out", "inplace") for arg in call.args):
            raise _Unfit
        origin = self.program.origin(func, function)
        if origin is not None:
            name = origin.rsplit(".", 1)[-1]
            if name.endswith("_") or not origin.startswith(
                ("torch.", "math.", "builtins.")
            ):
                raise _Unfit
            if origin.startswith(("torch.distributed.", "torch.utils.")):
                raise _Unfit
            return
        refs = self.program.resolve(func, function)
        if refs:
            plain = all(
                ref.kind == "made"
                and (
                    dtype_table.KEEPING.fullmatch(ref.name)
                    or dtype_table.FP32_LAYERS.fullmatch(ref.name)
                )
                for ref in refs
            )
            if not plain:
                raise _Unfit
            return
        if (
            not isinstance(func, ir.Attr)
            or func.attr in _TRAINS
            or self.forward.is_forward(call, function, MODULES)
        ):
            raise _Unfit
        if func.attr.endswith("_") and not func.attr.endswith("__"):
            self._check_changed(span, stmt, func.value)

    def _check_changed(self, span: Span, stmt: ir.Stmt, target: ir.Expr) -> None:
        """What is changed in place must be the very value that it is without the island: no copy."""
        function = span.function
        while isinstance(target, ir.Item):
            target = target.value
        at = Made(target, function, stmt)
        if self.halves.is_never_half(at):
            return
        if not isinstance(target, ir.Name):
            raise _Unfit
        made, from_start = self.flow.reaching(target.id, at)
        if from_start or not made:
            raise _Unfit
        for one in made:
            if one.kind == "augassign" and span.holds(function, one.path):
                continue
            if (
                one.kind != "assign"
                or one.value is None
                or not isinstance(one.targets[0], ir.Name)
            ):
                raise _Unfit
            if not (span.holds(function, one.path) and _is_fresh(one.value)):
                if not self.halves.is_never_half(Made(one.value, function, one)):
                    raise _Unfit

    # -- what goes in ---------------------------------------------------------------------------

    def _entering(
        self, span: Span, inside: list[ir.Stmt]
    ) -> list[list[tuple[ir.Stmt, ir.Expr]]]:
        """What may be half and comes from outside, each with all its uses."""
        function = span.function
        found: dict[ir.Expr, list[tuple[ir.Stmt, ir.Expr]]] = {}
        for stmt in inside:
            exprs = stmt.exprs
            if stmt.kind in ("assign", "annassign", "augassign", "for"):
                keys = [t.key for t in stmt.targets if isinstance(t, ir.Item)]
                exprs = (*([stmt.value] if stmt.value is not None else ()), *keys)
            for expr in exprs:
                for leaf in _leaves(expr):
                    if not self._comes_in(span, Made(leaf, function, stmt)):
                        continue
                    base = self._base(leaf, Made(leaf, function, stmt))
                    found.setdefault(base, []).append((stmt, base))
        return list(found.values())

    def _comes_in(self, span: Span, at: Made) -> bool:
        """Whether a variable or attribute may be half, and not only for what the span computes."""
        function, leaf = at.function, at.expr
        own = self.program.self_class(function)
        if self.program.origin(leaf, function) is not None or (
            own is not None and leaf == ir.Name(own[0])
        ):
            return False
        root = leaf
        while isinstance(root, (ir.Attr, ir.Item)):
            root = root.value
        if isinstance(root, ir.Name):
            if rebinds(Made(root, function, at.stmt)):
                # A comprehension hands it out, of what is looked at by itself.
                return False
            made, from_start = self.flow.reaching(root.id, at)
            if (
                made
                and not from_start
                and all(span.holds(function, one.path) for one in made)
            ):
                return False
        refs = self.program.resolve(leaf, function)
        if refs and all(ref.kind in ("function", "class", "external") for ref in refs):
            return False
        return not (
            self.halves.is_never_half(at)
            or self.dtypes.is_number(at)
            or self._is_setting(at)
        )

    def _is_setting(self, at: Made) -> bool:
        """Whether a variable or attribute is given as a parameter that has a number for its default."""
        function = at.function
        if isinstance(at.expr, ir.Name):
            return (
                any(
                    param.name == at.expr.id and _is_plain_default(param)
                    for param in self.program.functions[function].params
                )
                and not self.flow.reaching(at.expr.id, at)[0]
            )
        if not isinstance(at.expr, ir.Attr):
            return False
        classes = self.program.instance_classes(at.expr.value, function)
        found = [
            d
            for one in classes
            for d in self.program.attribute_definitions(one, at.expr.attr)
        ]
        return bool(found) and all(
            self.program.functions[d.function].name == "__init__"
            and isinstance(d.value, (ir.Name, ir.Const))
            and (
                isinstance(d.value, ir.Const)
                or any(
                    param.name == d.value.id and _is_plain_default(param)
                    for param in self.program.functions[d.function].params
                )
            )
            for d in found
        )

    def _base(self, leaf: ir.Expr, at: Made) -> ir.Expr:
        """What of an access is cast: the tensor itself, or the element that a collection holds."""
        if isinstance(leaf, (ir.Attr, ir.Item)):
            if self.dtypes.is_fp32(at):
                return leaf
            if isinstance(leaf, ir.Item):
                return self._base(leaf.value, Made(leaf.value, at.function, at.stmt))
            view = dtype_table.view_of(leaf)
            if view is None and leaf.attr in ("shape", "device", "dtype", "is_cuda"):
                view = leaf.value
            if view is not None:
                return self._base(view, Made(view, at.function, at.stmt))
        return leaf

    def _cast(
        self, span: Span, first: ir.Stmt, uses: list[tuple[ir.Stmt, ir.Expr]]
    ) -> list[Found]:
        """The casts of one value; raises `_Unfit` where none is right."""
        function, expr = span.function, uses[0][1]
        is_own = (
            isinstance(expr, ir.Name)
            and self.program.owner(expr.id, function) == function
        )
        if len(uses) == 1:
            stmt, expr = uses[0]
            if stmt.kind in _SIMPLE:
                sure = is_own and self._has_dtype(span, expr)
                raised = self.remedies.raised(function, stmt, expr, sure)
                if raised is not None:
                    return raised
        if isinstance(expr, ir.Name) and is_own and not self._is_used_later(span, expr):
            at = Made(expr, function, first)
            if self.dtypes.is_fp32(at):
                return [(function, Recast(span.path, expr.id))]
            if self._has_dtype(span, expr) and not self.remedies.has_halves:
                recast = Recast(span.path, expr.id, self.remedies.dtype)
                return [(function, recast)]
        edits: list[Found] = []
        for stmt, use in uses:
            steps = steps_to(stmt, use)
            if steps is None or not self.dtypes.is_fp32(Made(use, function, stmt)):
                raise _Unfit
            edits.append((function, Upcast(stmt.path, steps)))
        return edits

    def _has_dtype(self, span: Span, name: ir.Expr) -> bool:
        """Whether a variable holds a tensor, whenever the span is come to: what comes before any other
        use, or other binding, is a function or method of tensors."""
        function = span.function
        block = self.program.control(function).block(span.path)
        for stmt in block[span.path[-1][1] : span.last + 1]:
            if stmt.kind not in _SIMPLE:
                return False
            if any(self._takes_tensor(expr, name, function) for expr in stmt.exprs):
                return True
            if any(bound == getattr(name, "id", "") for bound, _, _ in bindings(stmt)):
                return False
        return False

    def _takes_tensor(self, expr: ir.Expr, name: ir.Expr, function: str) -> bool:
        if isinstance(expr, ir.Operation) and expr.op in ("if", "and", "or"):
            return self._takes_tensor(expr.operands[0], name, function)
        if isinstance(expr, ir.Comprehension):
            return False
        if isinstance(expr, ir.Item) and expr.value == name:
            key = expr.key
            if isinstance(key, ir.Display) and key.kind == "tuple":
                return True
        if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
            origin = self.program.origin(expr.func, function)
            word = expr.func.attr
            if origin is None and expr.func.value == name and word in _OF_TENSORS:
                return True
            if expr.args[:1] and expr.args[0].value == name and origin is not None:
                if origin.startswith(("torch.linalg.", "torch.fft.")):
                    return True
                if origin in (f"torch.{word}", f"torch.nn.functional.{word}") and (
                    word in _TAKES_TENSOR
                ):
                    return True
        return any(
            self._takes_tensor(child, name, function) for child in ir.children(expr)
        )

    def _is_used_later(self, span: Span, name: ir.Name) -> bool:
        """Whether what a variable holds may be read behind a span, or by another function."""
        function = span.function
        block = self.program.control(function).block(span.path)
        rebound = any(
            stmt.kind == "assign" and name in stmt.targets
            for stmt in block[span.path[-1][1] : span.last + 1]
        )
        begin = self.program.control(function).statements[span.path].line
        loops = [
            outer
            for outer in self.program.control(function).around(span.path)
            if outer.kind in ("for", "while")
        ]
        for other, facts in self.program.functions.items():
            if other != function and (
                ir.file_of(other) != ir.file_of(function)
                or self.program.owner(name.id, other) != function
            ):
                continue
            for stmt in ir.statements(facts.body):
                if other == function and (
                    rebound
                    or span.holds(function, stmt.path)
                    or (
                        stmt.line < begin
                        and not any(_within(stmt.path, loop.path) for loop in loops)
                    )
                ):
                    continue
                bound = [id(t) for t in stmt.targets if stmt.kind != "augassign"]
                if any(
                    name in ir.walk(expr)
                    for expr in stmt.exprs
                    if not (id(expr) in bound and isinstance(expr, ir.Name))
                ):
                    at = Made(name, function, stmt)
                    made, from_start = self.flow.reaching(name.id, at)
                    if (
                        other != function
                        or from_start
                        or not all(span.holds(function, one.path) for one in made)
                    ):
                        return True
        return False


def _leaves(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The variables, attributes and elements that an expression computes with; no methods."""
    match expr:
        case ir.Call(func=func, args=args):
            if isinstance(func, ir.Attr):
                yield from _leaves(func.value)
            for arg in args:
                yield from _leaves(arg.value)
        case ir.Name():
            yield expr
        case ir.Attr() | ir.Item():
            root: ir.Expr = expr
            while isinstance(root, (ir.Attr, ir.Item)):
                if isinstance(root, ir.Item):
                    yield from _leaves(root.key)
                root = root.value
            if isinstance(root, ir.Name):
                yield expr
            else:
                yield from _leaves(root)
        case _:
            for child in ir.children(expr):
                yield from _leaves(child)


def _is_fresh(value: ir.Expr | None) -> bool:
    """Whether an expression makes a tensor of its own."""
    match value:
        case ir.Operation(op=op):
            return op in (*dtype_table.ARITHMETIC, "**", "@", "-x")
        case ir.Call(func=ir.Attr(attr=attr)):
            return attr in _FRESH
        case ir.Const():
            return True
    return False


def _is_plain_default(param: ir.Param) -> bool:
    return isinstance(param.default, ir.Const) and isinstance(
        param.default.value, (int, float, str)
    )


def _within(path: ir.Path, outer: ir.Path) -> bool:
    return path[: len(outer)] == outer
