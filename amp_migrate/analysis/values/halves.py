"""Which values are never half when AMP is on."""

from __future__ import annotations

from collections.abc import Callable, Collection

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.modules import Construction, Modules
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.destinations import DEVICE, DTYPE, kind_of
from amp_migrate.analysis.tables.loaders import names_data
from amp_migrate.analysis.values.dtypes import Shown, is_slice, rebinds
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

_COLLECT = frozenset(
    f"builtins.{name}" for name in "enumerate zip reversed list tuple range".split()
)
"""What gives nothing but what it is given."""
_SHOWS = frozenset(("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm"))
"""What gives its first argument, and shows how far that is."""
_PASSING = operations("first").union(
    operations("joined"),
    operations("promoted"),
    operations("chosen"),
    "where full_like Variable Parameter ParameterList ParameterDict".split(),
)
"""Functions whose result is no half where nothing is that they are given."""
_ELEMENTWISE = (*dtype_table.ARITHMETIC, "-x")
_NO_HALVES = operations("integers").union(
    "float double item size dim numel stride tolist".split()
)
"""Methods that give full precision, integers, or sizes."""
_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_OF_SYSTEM = frozenset(
    "datetime os platform psutil pynvml resource scipy sys time tracemalloc".split()
)
"""Packages that give no tensors, and nothing to keep one in."""
_EACH = operations("each")
_JOINS = frozenset(f"torch.{name}" for name in operations("joined"))
_NEXT = ("next", "__next__")
_ENTRIES = "items values keys".split()
Statements = Collection[tuple[str, ir.Path]]
"""Statements by their function and path."""


class Halves(Shown):
    """Answers for one program, some of whose statements run under autocast."""

    def __init__(
        self, flow: Flow, modules: Modules, under_autocast: Statements
    ) -> None:
        super().__init__(flow, modules)
        self.under_autocast = under_autocast
        self.made_full: set[int] = set()
        """The very expressions (by `id`) that a planned edit makes fp32; others that say the same may
        stay half."""

    def is_never_half(self, at: Made) -> bool:
        """Whether a value is shown to be no half tensor when AMP is on."""
        self._begin()
        return self._is(at)

    def _gets_fp32(self, at: Made) -> bool:
        """Whether autocast is on where a value is made."""
        return (at.function, at.stmt.path) in self.under_autocast

    def _plainly(self, at: Made, *exprs: ir.Expr) -> bool:
        return all(self._within(at, expr) for expr in exprs)

    def _holds(self, at: Made) -> bool:
        expr = at.expr
        if id(expr) in self.made_full:
            return True
        match expr:
            case ir.Const():
                return True
            case ir.Call() if dtype_table.tells_places(expr, at.index):
                return True
            case ir.Name(id=name) if rebinds(at):
                return self._hands_no_half(at, name)
            case ir.Attr() | ir.Call() if self._is_shadowed(at):
                return False
            case ir.Name() | ir.Attr():
                if self._is_data(at):
                    return True
                made = self.flow.made(at)
                if not made:
                    view = dtype_table.view_of(expr)
                    return (
                        self._is_shape(at)
                        or (view is not None and self._plainly(at, view))
                        or self._is_weight(at)
                        or self.flow.is_option(at)
                        or self._is_of_system(at)
                    )
                return all(map(self._is, [*made, *self.flow.put_into(at)]))
            case ir.Item(value=value, key=ir.Const(value=1 | -1 as place)):
                return self._within(at, value, int(place))
            case ir.Item(value=value):
                return self._plainly(at, value)
            case ir.Display(items=items):
                index = at.index
                if index is not None and -len(items) <= index < len(items):
                    starred = (
                        isinstance(i, ir.Operation) and i.op == "starred" for i in items
                    )
                    if not any(starred):
                        return self._within(at, items[index])
                return self._plainly(at, *items)
            case ir.Comprehension(elements=elements):
                return self._plainly(at, *elements)
            case ir.Operation(op="**", operands=operands):
                return self._gets_fp32(at) or self._plainly(at, *operands)
            case ir.Operation(op="if", operands=(_, body, orelse)):
                return self._plainly(at, body, orelse)
            case ir.Operation(op="@"):
                return False
            case ir.Operation(op=op, operands=operands):
                return (
                    op in dtype_table.COMPARISONS
                    or (
                        op in (*dtype_table.ARITHMETIC, "-x", "~", "//", "%", "&", "|")
                        and self._plainly(at, *operands)
                    )
                    or self._is_wide(at)
                )
            case ir.Call(func=func, args=args):
                origin = self.program.origin(func, at.function)
                values = [arg.value for arg in args]
                if origin is not None:
                    name = origin.rsplit(".", 1)[-1]
                    if origin in ("builtins.next", "builtins.iter"):
                        return all(names_data(value) for value in values)
                    if origin in _COLLECT:
                        return not any(a.star for a in args) and (
                            self._plainly(at, *values)
                        )
                    if origin in _SHOWS or dtype_table.EINOPS.fullmatch(origin):
                        return self._plainly(at, *values[:1])
                    if origin in dtype_table.OF_NUMBERS:
                        return self._plainly(at, *values)
                    if dtype_table.NUMBERS.fullmatch(origin):
                        return True
                    if not origin.startswith("torch."):
                        return origin.startswith("numpy.") or self._is_of_system(at)
                    if dtype_table.FP32_ONLY.fullmatch(origin) or (origin in _LOADERS):
                        return True
                    if name in operations("integers") or name == "one_hot":
                        return True
                    if dtype_table.FLOAT.fullmatch(origin):
                        return True  # torch.Tensor(2, 3)
                    if name in operations("made", "counted", "given"):
                        return self._is_like_no_half(
                            at, *(arg.value for arg in args if arg.name == "dtype")
                        )
                    if name in operations("fp32", "raises") and self._gets_fp32(at):
                        return True
                    first = expr.argument(0, "input")
                    if name in operations("first") and first:
                        return self._plainly(at, first)
                    return (
                        name in _PASSING and self._plainly(at, *values)
                    ) or self._is_wide(at)
                refs = self.program.resolve(func, at.function)
                if refs and all(ref.kind == "external" for ref in refs):
                    # Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
                    return all(dtype_table.FLOAT.fullmatch(ref.name) for ref in refs)
                if refs and all(ref.kind == "function" for ref in refs):
                    return all(self._returns(ref.name, at.index) for ref in refs)
                lambdas = self._lambdas(func, at.function)
                if lambdas:
                    return all(map(self._is, lambdas))
                modules = self.modules.of(func, at.function)
                if modules is not None:
                    return all(self._gives_no_half(made, at) for made in modules)
                if self._is_of_system(at):
                    return True
                if refs or not isinstance(func, ir.Attr):
                    return False
                if func.attr in _ENTRIES and not args:
                    return self._plainly(at, func.value)
                if func.attr in _NEXT and not args and names_data(func.value):
                    return True
                if func.attr in _NO_HALVES:
                    return True
                if func.attr in ("to", "type") and any(
                    self._is_full_dtype(value, at.function) for value in values
                ):
                    return True
                if func.attr.endswith("_") and not func.attr.endswith("__"):
                    # What is changed in place keeps its dtype.
                    return self._plainly(at, func.value)
                if func.attr in operations("fp32", "raises") and self._gets_fp32(at):
                    return True
                if func.attr in operations("promoted", "chosen"):
                    return self._plainly(at, func.value, *values)
                return (
                    func.attr in dtype_table.MADE_LIKE
                    and self._plainly(at, func.value)
                    and (func.attr != "to" or self._is_like_no_half(at, *values))
                )
        return False

    def _is_full_dtype(self, expr: ir.Expr, function: str) -> bool:
        """``torch.float32``, ``torch.cuda.LongTensor``, ``"torch.FloatTensor"``"""
        named = self.program.origin(expr, function)
        if isinstance(expr, ir.Const):
            named = str(expr.value)
        return dtype_table.FULL.fullmatch(named or "") is not None

    def _is_wide(self, at: Made) -> bool:
        """Whether a value is an fp32 tensor with dimensions under autocast: halves are promoted to it."""
        match at.expr:
            case ir.Operation(op=op, operands=operands) if op in _ELEMENTWISE:
                return any(self._is_wide(at.inner(one)) for one in operands)
            case ir.Operation(op="**", operands=(base, _)):
                return self._gets_fp32(at) and self._has_dimensions(at.inner(base))
            case ir.Name() if not rebinds(at):
                return self._are(self._is_wide, at)
            case ir.Call(
                func=func, args=(ir.Arg(value=ir.Display(items=items)), *_)
            ) if (self.program.origin(func, at.function) or "") in _JOINS:
                return any(self._is_wide(at.inner(one)) for one in items)
            case ir.Call() as call:
                name, operand = self._applied(at, call)
                if operand is None:
                    return False
                of = at.inner(operand)
                if name in operations("turns"):
                    return self._is_wide(of)
                if name in ("expand", "unsqueeze") and call.args:
                    return self._is_computed_in_fp32(of)
                return self._is_computed_in_fp32(at) and (
                    self._has_dimensions(of)
                    if name in _EACH
                    else _leaves_some(name, call, operand)
                )
        return False

    def _is_computed_in_fp32(self, at: Made) -> bool:
        """Whether a value is what autocast computes in fp32."""
        if not (isinstance(at.expr, ir.Call) and self._gets_fp32(at)):
            return False
        return self._applied(at, at.expr)[0] in operations("fp32", "raises")

    def _has_dimensions(self, at: Made) -> bool:
        """Whether a tensor is shown to be no scalar: it is a slice, or computed from one."""
        match at.expr:
            case ir.Item(key=ir.Display(items=keys)):
                return any(map(is_slice, keys))
            case ir.Item(key=key):
                return is_slice(key)
            case ir.Operation(op=op, operands=operands) if op in _ELEMENTWISE:
                return any(self._has_dimensions(at.inner(one)) for one in operands)
            case ir.Name() if not rebinds(at):
                return self._are(self._has_dimensions, at)
            case ir.Call():
                name, operand = self._applied(at, at.expr)
                return (
                    operand is not None
                    and name in _EACH
                    and self._has_dimensions(at.inner(operand))
                )
        return False

    def _are(self, holds: Callable[[Made], bool], at: Made) -> bool:
        """Whether something holds of all that made a variable."""
        made = self.flow.made(at)
        return bool(made) and all(
            m.index is None and self._is_proved(holds, m) for m in made or ()
        )

    def _applied(self, at: Made, call: ir.Call) -> tuple[str, ir.Expr | None]:
        """A function or method of torch, and what it is applied to."""
        origin = self.program.origin(call.func, at.function)
        if origin is None and isinstance(call.func, ir.Attr):
            if not self.program.resolve(call.func, at.function):
                return call.func.attr, call.func.value
        if origin is not None and origin.startswith("torch."):
            return origin[6:], call.argument(0, "input")
        return "", None

    def _lambdas(self, func: ir.Expr, function: str) -> list[Made]:
        """What the lambdas give that are called by a name; nothing where it has others, too."""
        owner = (
            self.program.owner(func.id, function) if isinstance(func, ir.Name) else None
        )
        if owner is None or not isinstance(func, ir.Name):
            return []
        found = self.program.definitions(owner, func.id)
        if any(p.name == func.id for p in self.program.functions[owner].params):
            return []
        return [
            Made(d.value.body, d.function, d.stmt)
            for d in found
            if isinstance(d.value, ir.Deferred) and d.index is None
        ] * all(isinstance(d.value, ir.Deferred) for d in found)

    def _gives_no_half(self, made: Construction, at: Made) -> bool:
        """Whether calling an object gives no half values where a value is made."""
        refs = self.program.resolve(made.call.func, made.function)
        called = [self.program.method(ref.name, "__call__") for ref in refs]
        if any(called):
            return all(c is not None and self._returns(c) for c in called)
        inherited = self.modules.inherited(made)
        origin = self.program.origin(inherited.call.func, inherited.function) or ""
        if dtype_table.EMBEDDING.fullmatch(origin):
            return True
        if dtype_table.NORMS.fullmatch(origin) or dtype_table.KEEPING.fullmatch(origin):
            given = at.expr.args[:1] if isinstance(at.expr, ir.Call) else ()
            if given and self._plainly(at, given[0].value):
                return True
        return self._gets_fp32(at) and self._gives_fp32(made)

    def _gives_fp32(self, made: Construction) -> bool:
        """Whether a module gives no half values under autocast."""
        made = self.modules.inherited(made)
        origin = self.program.origin(made.call.func, made.function)
        if origin is not None and dtype_table.FP32_LAYERS.fullmatch(origin):
            return True
        layers = self.modules.layers(made)
        last = layers and self.modules.of(*layers[-1])
        if last:
            return all(map(self._gives_fp32, last))
        refs = self.program.resolve(made.call.func, made.function)
        forwards = [self.program.method(r.name, "forward") for r in refs]
        return origin is None and all(
            forward is not None and self._returns(forward)
            for forward in forwards or [None]
        )

    def _is_like_no_half(self, at: Made, *exprs: ir.Expr) -> bool:
        """Whether what a tensor is made like, ``x.to(y)``, ``dtype=y.dtype``, is no half tensor."""
        own = self.program.self_class(at.function)
        for like in (at.inner(expr) for expr in exprs):
            made = self.flow.made(like) if isinstance(like.expr, ir.Name) else None
            for one in made or [like]:
                match one.expr:
                    case ir.Attr(attr="dtype", value=ir.Name(id=name)) if own and (
                        name == own[0]
                    ):
                        continue
                    case ir.Attr(attr="dtype", value=ir.Call(func=ir.Name(id="next"))):
                        # That of parameters.
                        continue
                    case ir.Attr(attr="dtype", value=value):
                        if not self._plainly(one, value):
                            return False
                    case _:
                        kind = kind_of(self.program, one.expr, one.function)
                        if kind not in (DEVICE, DTYPE) and not self._is(one):
                            return False
        return True

    def _is_weight(self, at: Made) -> bool:
        """A parameter of a layer of torch."""
        match at.expr:
            case ir.Attr(value=layer, attr="weight" | "bias"):
                made = self.modules.of(layer, at.function) or []
                kinds = [self.program.origin(m.call.func, m.function) for m in made]
                return bool(kinds) and all(
                    (k or "").startswith("torch.nn.") for k in kinds
                )
        return False

    def _is_shape(self, at: Made) -> bool:
        """The integers of ``x.shape``, ``x.topk(3).indices``: of anything but the object itself, which may
        keep a tensor."""
        own = self.program.self_class(at.function)
        return (
            isinstance(at.expr, ir.Attr)
            and at.expr.attr in ("shape", "indices")
            and (own is None or at.expr.value != ir.Name(own[0]))
        )

    def _is_of_system(self, at: Made) -> bool:
        """``info.used`` of ``info = pynvml.nvmlDeviceGetMemoryInfo(handle)``: what tells of the machine."""
        match at.expr:
            case ir.Call(func=func):
                origin = self.program.origin(func, at.function)
                if origin is not None:
                    return origin.partition(".")[0] in _OF_SYSTEM
                return isinstance(func, ir.Attr) and self._is_of_system(at.inner(func))
            case ir.Attr(value=value):
                return self._is_of_system(at.inner(value))
            case ir.Name() if not rebinds(at):
                return self._are(self._is_of_system, at)
        return False

    def _hands_no_half(self, at: Made, name: str) -> bool:
        """Whether what binds a name inside of a statement are comprehensions over no half values."""
        for inner in parts_of(at.stmt):
            if isinstance(inner, ir.Deferred) and name in inner.params:
                return False
            if isinstance(inner, ir.Comprehension) and any(
                ir.Name(name) in ir.walk(target) for target in inner.targets
            ):
                if not self._plainly(at, *inner.iterables):
                    return False
        return not self._is_shadowed(at)

    def _is_shadowed(self, at: Made) -> bool:
        """Whether a name that is looked up may be a variable, or what the statement binds inside."""
        head = at.expr.func if isinstance(at.expr, ir.Call) else at.expr
        return rebinds(at.inner(head)) and any(
            self.program.owner(inner.id, at.function) is not None
            for inner in ir.walk(head)
            if isinstance(inner, ir.Name) and rebinds(at.inner(inner))
        )

    def _is_data(self, at: Made) -> bool:
        """What a loop over something that is no forward computation hands out: a batch."""
        program = self.program
        if not isinstance(at.expr, ir.Name):
            return False
        owner = program.owner(at.expr.id, at.function)
        if owner is None:
            return False
        found = program.bindings(owner, at.expr.id)
        loops = [d for d in found if d.stmt.kind == "for"]
        if not loops or any(
            d.stmt.kind not in ("for", "assign", "annassign") for d in found
        ):
            return False
        return (
            all(
                d.stmt.value is not None
                and (
                    names_data(d.stmt.value)
                    or self._is(Made(d.stmt.value, d.function, d.stmt))
                )
                for d in loops
            )
            and all(
                d.value is not None and self._is(Made(d.value, d.function, d.stmt))
                for d in found
                if d.stmt.kind != "for"
            )
            and all(map(self._is, self.flow.put_into(at)))
        )


def _leaves_some(name: str, call: ir.Call, operand: ir.Expr) -> bool:
    """Whether a reduction is along another dimension than the first, and so not along all."""
    is_method = isinstance(call.func, ir.Attr) and call.func.value is operand
    along = call.argument((name == "norm") + (not is_method), "dim")
    return (
        name in operations("reduces")
        and isinstance(along, ir.Const)
        and isinstance(along.value, int)
        and along.value > 0
    )
