"""What goes into statements that are to run in fp32, and the casts for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from amp_migrate.analysis.objects.availability import root_of
from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.destinations import DEVICE, DTYPE, kind_of
from amp_migrate.analysis.values.dtypes import rebinds
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Recast, Upcast
from amp_migrate.migrate.precision.remedies import Found, Planner, changed_by, is_part
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, parts_of
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

SIMPLE = frozenset("expr assign annassign augassign return".split())
_OF_TENSORS = frozenset(
    """view reshape permute transpose squeeze unsqueeze contiguous sigmoid softmax log_softmax flatten
    view_as expand_as clamp numel masked_fill bmm matmul type_as size""".split()
)
"""Methods that tell that a value has a dtype."""
_ONLY_OF_TENSORS = operations("first", "turns", "fp32") - {
    name for kind in (list, dict, set, str) for name in dir(kind)
}
"""Methods that no collection has."""
_TAKES_TENSOR = (
    operations("first")
    | operations("fp32", "raises")
    | frozenset("inverse svd qr quantile stft istft".split())
) - {"pow"}
"""Functions that want a tensor first."""
_FACTORS = operations("product", "sparse") - {"einsum", "chain_matmul", "multi_dot"}
"""Functions that want two tensors first."""
SETTINGS = frozenset(
    "device dtype dim axis keepdim reduction n_fft hop_length win_length".split()
)
"""Arguments that are no values to compute with."""
_LENGTHS = {"stft": (1, 4), "istft": (1, 4)}
"""Where functions take some by their place."""
Use = tuple[ir.Stmt, ir.Expr]


@dataclass(frozen=True, slots=True)
class Span:
    """Statements ``first`` .. ``last`` of the block of ``path``, which run in fp32."""

    function: str
    path: ir.Path
    last: int
    is_called: bool = False
    """It runs in another span, from which it is called: nothing has to be written."""
    follows: bool = False
    """Functions of the program may be called in it."""

    def holds(self, function: str, path: ir.Path) -> bool:
        """Whether a statement is one of the span's, or inside one."""
        at = ir.distance(path, self.path) if function == self.function else None
        return at is not None and 0 <= at <= self.last - self.path[-1][1]

    def inside(self, program: Program) -> list[ir.Stmt]:
        """The statements that it holds."""
        return [
            stmt
            for stmt in program.statements(self.function)
            if self.holds(self.function, stmt.path)
        ]

    def covers(self, other: Span) -> bool:
        """Whether all statements of another span are this one's, too."""
        return self.holds(other.function, other.path) and (
            len(other.path) > len(self.path) or other.last <= self.last
        )

    def meets(self, other: Span) -> bool:
        """Whether some statement is of both."""
        return self.holds(other.function, other.path) or other.holds(
            self.function, self.path
        )


class Unfit(Exception):
    """Why statements cannot run in fp32."""


class Entering(Planner):
    """Finds it for one program."""

    _asked: frozenset[str] = frozenset()
    """The functions that are asked what they take: they may call themselves."""

    def uses(
        self, span: Span, inside: list[ir.Stmt], apart: set[int]
    ) -> list[list[Use]]:
        """What may be half and comes from outside, each with all its uses; ``apart``: what is not in the
        span (by `id`), though its statement is."""
        function = span.function
        found: dict[ir.Expr, list[Use]] = {}
        for stmt in inside:
            exprs = stmt.exprs
            if stmt.kind in ("assign", "annassign", "augassign", "for"):
                keys = [t.key for t in stmt.targets if isinstance(t, ir.Item)]
                exprs = (*([stmt.value] if stmt.value is not None else ()), *keys)
            if stmt.kind == "augassign":
                exprs += stmt.targets
            for expr in exprs:
                for leaf in leaves(expr, apart):
                    if isinstance(leaf, ir.Attr) and leaf.attr == "dtype":
                        # What is made of that dtype computes with what is cast.
                        leaf = leaf.value
                    if not self._comes_in(span, Made(leaf, function, stmt)):
                        continue
                    base = self._base(leaf, Made(leaf, function, stmt))
                    found.setdefault(base, []).append((stmt, base))
        for base in [one for one in found if isinstance(one, ir.Item)]:
            root = holder(base)
            if root in found:
                # What is cast as a whole has its elements cast.
                found[root] += ((s, holder(e)) for s, e in found.pop(base))
        return list(found.values())

    def _comes_in(self, span: Span, at: Made) -> bool:
        """Whether a variable or attribute may be half, and not only for what the span computes."""
        function, leaf = at.function, at.expr
        if self.program.origin(leaf, function) is not None:
            return False
        if self.program.class_of_self(leaf, function) is not None:
            return False
        root = root_of(leaf)
        if root is not None:
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
        if refs and all(
            ref.kind in ("class", "external")
            or (ref.kind == "function" and not self._is_property(ref.name))
            for ref in refs
        ):
            return False
        if self.halves.is_never_half(at) or self.dtypes.is_number(at):
            return False
        kind = kind_of(self.program, leaf, function)
        if kind == DTYPE and not self._is_named_dtype(at):
            raise Unfit
        return kind not in (DEVICE, DTYPE) and not self.is_setting(at)

    def _is_property(self, function: str) -> bool:
        """Whether a function runs where its name is read, and so stands for what it gives."""
        decorators = self.program.functions[function].decorators
        return any("property" in (ir.last_of(one) or "") for one in decorators)

    def _is_named_dtype(self, at: Made) -> bool:
        """Whether a dtype is written out, and is not that of some tensor."""
        made = self.flow.made(at) or ()
        return bool(made) and all(
            (self.program.origin(one.expr, one.function) or "").startswith("torch.")
            for one in made
        )

    def is_setting(self, at: Made) -> bool:
        """Whether a variable or attribute is given as a parameter that has a number for its default."""
        if isinstance(at.expr, ir.Name):
            made = self.flow.made(at) or ()
            return self._has_number(at.expr, at.function) and (
                not made or any(isinstance(one.expr, ir.Const) for one in made)
            )
        if not isinstance(at.expr, ir.Attr):
            return False
        classes = self.program.instance_classes(at.expr.value, at.function)
        found = [
            d
            for one in classes
            for d in self.program.attribute_definitions(one, at.expr.attr)
        ]
        return bool(found) and all(
            self.program.functions[d.function].name == "__init__"
            and (isinstance(d.value, ir.Const) or self._is_given(d))
            for d in found
        )

    def _is_given(self, definition: Definition) -> bool:
        """Whether what an attribute is set to is such a parameter, and a number where it is given one."""
        value, function = definition.value, definition.function
        if not isinstance(value, ir.Name):
            return False
        made = self.flow.made(Made(value, function, definition.stmt)) or ()
        return self._has_number(value, function) and all(
            map(self.dtypes.is_number, made)
        )

    def _has_number(self, name: ir.Name, function: str) -> bool:
        param = self.program.param(function, name.id)
        return (
            param is not None
            and isinstance(param.default, ir.Const)
            and isinstance(param.default.value, (int, float, str))
        )

    def _base(self, leaf: ir.Expr, at: Made) -> ir.Expr:
        """What of an access is cast: the tensor itself, or the element that a collection holds."""
        if isinstance(leaf, (ir.Attr, ir.Item)):
            if self.dtypes.is_fp32(at):
                return leaf
            if isinstance(leaf, ir.Item):
                return self._base(leaf.value, at.inner(leaf.value))
            view = dtype_table.view_of(leaf)
            if view is None and leaf.attr in ("shape", "device", "dtype", "is_cuda"):
                view = leaf.value
            if view is not None:
                return self._base(view, at.inner(view))
        return leaf

    def cast(self, span: Span, first: ir.Stmt, uses: list[Use]) -> list[Found]:
        """The casts of one value; raises `Unfit` where none is right."""
        function, expr = span.function, uses[0][1]
        is_own = (
            isinstance(expr, ir.Name)
            and self.program.owner(expr.id, function) == function
        )
        sure = is_own and self._has_dtype(span, expr)
        sure = sure or self.remedies.is_tensor(Made(expr, function, first))
        perhaps = sure or self._is_no_collection(span, expr)
        changed = any(
            holder(one) == expr
            for stmt in span.inside(self.program)
            for one in changed_by(stmt)
        )
        if len(uses) == 1 and not changed:
            stmt, expr = uses[0]
            if stmt.kind in SIMPLE:
                raised = self.remedies.raised(function, stmt, expr, sure, perhaps)
                if raised is not None:
                    return raised
        if (
            isinstance(expr, ir.Name)
            and is_own
            and (changed or not self._is_used_later(span, expr))
        ):
            at = Made(expr, function, first)
            if self.dtypes.is_fp32(at):
                return [(function, Recast(span.path, expr.id))]
            if perhaps and not self.remedies.has_halves:
                half = self.remedies.dtype
                return [(function, Recast(span.path, expr.id, half, asks=not sure))]
        if changed:
            raise Unfit
        edits: list[Found] = []
        for stmt, use in uses:
            if stmt.kind in SIMPLE:
                raised = self.remedies.raised(function, stmt, use, sure, perhaps)
                if raised is None:
                    raise Unfit
                edits += raised
                continue
            steps = steps_to(stmt, use)
            if steps is None or not self.dtypes.is_fp32(Made(use, function, stmt)):
                raise Unfit
            edits.append((function, Upcast(stmt.path, steps)))
        return edits

    def _is_no_collection(self, span: Span, wanted: ir.Expr) -> bool:
        """Whether a span computes with a variable or attribute as lists, dicts and modules are not: what is
        no tensor there is a number, or an array."""
        return any(
            self._is_operand(Made(inner, span.function, stmt), wanted)
            for stmt in span.inside(self.program)
            for inner in parts_of(stmt)
        )

    def _is_operand(self, at: Made, wanted: ir.Expr) -> bool:
        match at.expr:
            case ir.Operation(op="-" | "/" | "**" | "-x" | "@", operands=operands):
                return wanted in operands
            case ir.Operation(op="+", operands=operands):
                # A list is added to lists only.
                return wanted in operands and any(
                    self.dtypes.is_number(at.inner(one)) for one in operands
                )
            case ir.Operation(op="*", operands=operands):
                return wanted in operands and any(
                    isinstance(one, ir.Const) and isinstance(one.value, float)
                    for one in operands
                )
            case ir.Call(func=ir.Attr(value=value, attr=attr) as func):
                return (
                    value == wanted
                    and attr in _ONLY_OF_TENSORS
                    and not self.program.resolve(func, at.function)
                )
        return False

    def _has_dtype(self, span: Span, name: ir.Expr) -> bool:
        """Whether a variable holds a tensor, whenever the span is come to: what comes before any other
        use, or other binding, is a function or method of tensors."""
        function = span.function
        block = self.program.control(function).block(span.path)
        if self._is_declared(Made(name, function, block[span.path[-1][1]])):
            return True
        for stmt in block[span.path[-1][1] : span.last + 1]:
            if stmt.kind not in SIMPLE:
                return False
            if any(self._takes_tensor(expr, name, function) for expr in stmt.exprs):
                return True
            if any(bound == getattr(name, "id", "") for bound, _, _ in bindings(stmt)):
                return False
        return False

    def _is_declared(self, at: Made) -> bool:
        """Whether a variable is a parameter, as it was given, whose annotation says that it is a tensor."""
        if not isinstance(at.expr, ir.Name):
            return False
        name, (made, _) = at.expr.id, self.flow.reaching(at.expr.id, at)
        param = self.program.param(at.function, name)
        said = None if made or param is None else param.annotation
        return said is not None and (
            self.program.origin(said, at.function) == "torch.Tensor"
        )

    def _takes_tensor(self, expr: ir.Expr, name: ir.Expr, function: str) -> bool:
        if isinstance(expr, ir.Operation) and expr.op in ("if", "and", "or"):
            return self._takes_tensor(expr.operands[0], name, function)
        if isinstance(expr, ir.Comprehension):
            return False
        if isinstance(expr, ir.Item) and expr.value == name and is_part(expr):
            return True
        if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
            origin = self.program.origin(expr.func, function)
            word = expr.func.attr
            if origin is None and expr.func.value == name and word in _OF_TENSORS:
                return True
            if expr.args[:1] and expr.args[0].value == name and origin is not None:
                if origin.startswith(("torch.linalg.", "torch.fft.")):
                    return True
            if origin is not None and origin.startswith("torch."):
                if word in _FACTORS:
                    if any(arg.value == name for arg in expr.args[:2]):
                        return True
            if expr.args[:1] and expr.args[0].value == name and origin is not None:
                if origin in (f"torch.{word}", f"torch.nn.functional.{word}") and (
                    word in _TAKES_TENSOR
                ):
                    return True
        if isinstance(expr, ir.Call) and self._gives_tensor(expr, name, function):
            return True
        return any(
            self._takes_tensor(child, name, function) for child in ir.children(expr)
        )

    def _gives_tensor(self, call: ir.Call, name: ir.Expr, function: str) -> bool:
        """Whether a variable is given to a function of the program that takes a tensor there."""
        sites = list(self.program.call_sites_of(call, function))
        return bool(sites) and all(
            any(
                self.program.argument_at(site, param.name) == name
                and self._is_tensor_in(site.callee, param.name)
                for param in self.program.functions[site.callee].params
            )
            for site in sites
        )

    def _is_tensor_in(self, function: str, param: str) -> bool:
        asked = self._asked
        if function in asked:
            return False
        self._asked = asked | {function}
        try:
            return self._has_dtype(whole(self.program, function), ir.Name(param))
        finally:
            self._asked = asked

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


def whole(program: Program, function: str) -> Span:
    """The body of a function, which is called from another span."""
    body = program.functions[function].body
    return Span(function, body[0].path, body[-1].path[-1][1], True, True)


def leaves(expr: ir.Expr, apart: Collection[int] = ()) -> Iterator[ir.Expr]:
    """The variables, attributes and elements that an expression computes with; no methods."""
    if id(expr) in apart:
        return
    match expr:
        case ir.Call(func=func, args=args):
            if isinstance(func, ir.Attr):
                yield from leaves(func.value, apart)
            first, last = 0, 0
            if isinstance(func, ir.Attr) and func.value == ir.Name("torch"):
                first, last = _LENGTHS.get(func.attr, (0, 0))
            for place, arg in enumerate(args):
                at_length = first <= place < last and arg.name is None
                is_setting = arg.name in SETTINGS and ir.last_of(arg.value) != "dtype"
                if not (is_setting or at_length):
                    yield from leaves(arg.value, apart)
        case ir.Name():
            yield expr
        case ir.Attr() | ir.Item():
            root: ir.Expr = expr
            while isinstance(root, (ir.Attr, ir.Item)):
                if isinstance(root, ir.Item):
                    yield from leaves(root.key, apart)
                root = root.value
            if isinstance(root, ir.Name):
                yield expr
            else:
                yield from leaves(root, apart)
        case _:
            for child in ir.children(expr):
                yield from leaves(child, apart)


def holder(expr: ir.Expr) -> ir.Expr:
    """What an element, or an element of one, is taken out of."""
    while isinstance(expr, ir.Item):
        expr = expr.value
    return expr


def _within(path: ir.Path, outer: ir.Path) -> bool:
    return path[: len(outer)] == outer
