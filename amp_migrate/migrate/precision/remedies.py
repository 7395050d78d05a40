"""What is known about the dtypes of a program's values, and what is planned for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from amp_migrate.analysis.objects.availability import root_of
from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.modules import Modules
from amp_migrate.analysis.paths.loops import Blocked, Refusal
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.destinations import DEVICE, kind_of
from amp_migrate.analysis.tables.vocabulary import is_of_another
from amp_migrate.analysis.values.dtypes import Dtypes, Tensors, is_slice, rebinds
from amp_migrate.analysis.values.halves import Halves, Statements
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Edit, Island, Recast, Steps, Upcast, Widen
from amp_migrate.edit.precision import HALVES
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Program

SHAPES = operations("still")
"""Functions and methods that leave a probability what it is, and its dtype."""

_OF_TENSORS = operations("first", "fp32", "product", "promoted", "turns", "view") | {
    *"dim is_floating_point numel size type".split()
}
"""Methods of tensors, which set no attributes of others."""

_PRODUCTS = frozenset("bmm matmul mm".split()) | operations("sparse")
_GOES_ON = operations("fp32", "first", "promoted") - operations("promote")
"""What autocast computes in fp32, or in what it is given."""

Found = tuple[str, Edit]
"""A function, and an edit of one of its statements."""

_WORDS = {
    "float16": frozenset("float16 HalfTensor half".split()),
    "bfloat16": frozenset("bfloat16 BFloat16Tensor".split()),
}


class Unclear(Blocked):
    """Why a loss cannot have its island."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(Refusal("AMP020", message, line))


class Remedies:
    """One program, some of whose statements run under autocast; and the edits that this calls for."""

    def __init__(
        self,
        program: Program,
        under_autocast: Statements,
        dtype: str,
        torch_version: tuple[int, int],
        can_run: Callable[[str], bool],
    ) -> None:
        self.program = program
        self.dtype = dtype
        self.torch_version = torch_version
        self.flow = Flow(program, can_run)
        self.modules = Modules(program, can_run)
        self.dtypes = Dtypes(self.flow, self.modules)
        self.tensors = Tensors(self.flow, self.modules)
        self.halves = Halves(self.flow, self.modules, under_autocast)
        self.edits: dict[Found, None] = {}

    def edit(self, function: str, edit: Edit) -> None:
        """Plan an edit; twice is once."""
        self.edits[function, edit] = None

    def upcast(self, function: str, stmt: ir.Stmt, expr: ir.Expr) -> None:
        """Plan a cast; raises `Unclear` where it cannot be written."""
        steps = steps_to(stmt, expr)
        if steps is None or self._is_changed(Made(expr, function, stmt)):
            raise Unclear(
                "an operand that has to be fp32 is not taken apart", stmt.line
            )
        self.edit(function, Upcast(stmt.path, steps))

    def raised(
        self,
        function: str,
        stmt: ir.Stmt,
        operand: ir.Expr,
        tensor: bool,
        perhaps: bool = False,
        hoists: bool = False,
    ) -> list[Found] | None:
        """What makes an operand fp32 where it may be half, and is exact with AMP off; None where nothing.

        What is for sure a ``tensor``, of whatever dtype, is cast where it turns out to be half; so is
        what is ``perhaps`` one, or else a number: it is asked. ``hoists``: what has no name is given one.
        """
        at = Made(operand, function, stmt)
        if self.halves.is_never_half(at):
            return []
        if self._is_changed(at):
            return None
        steps = steps_to(stmt, operand, in_test=True)
        if steps is None:
            return None
        guarded = stmt.kind == "if" and any(
            _may_be_skipped(test, operand) for test in stmt.exprs
        )
        if guarded:
            tensor, perhaps = False, True
        if self.dtypes.is_fp32(at):
            return [(function, Upcast(stmt.path, steps))]
        base = self._base(operand, function, tensor)
        if (
            base is None
            and perhaps
            and not tensor
            and self._is_plain(operand, function)
        ):
            assert isinstance(operand, ir.Attr)
            base = operand
        if base is None and tensor and hoists:
            return self._hoisted(at, steps)
        if base is None or not (tensor or perhaps) or rebinds(at):
            return None
        if self._is_chosen(stmt, base) or (guarded and _may_be_absent(stmt, base)):
            return None
        if not isinstance(base, ir.Name) and self._may_set(stmt, base, function):
            return None
        known = self.program.modules[ir.file_of(function)].identifiers
        held: ir.Expr = base
        while isinstance(held, ir.Item):
            held = held.value
        assert isinstance(held, (ir.Name, ir.Attr))
        name = f"full_{held.id if isinstance(held, ir.Name) else held.attr}"
        steps = steps_to(stmt, base, in_test=True)
        if steps is None or name in known or self.has_halves:
            return None
        widen = Widen(stmt.path, steps, name, self.dtype, asks=not tensor)
        return [(function, widen)]

    def _hoisted(self, at: Made, steps: Steps) -> list[Found] | None:
        """What gives an operand a name before its statement, and makes that fp32 where it is half: outside of
        every region, where nothing is computed before it, nor decides whether it is."""
        stmt, operand = at.stmt, at.expr
        if (
            self.has_halves
            or stmt.kind not in ("assign", "annassign", "expr", "return")
            or (at.function, stmt.path) in self.halves.under_autocast
            or not isinstance(operand, (ir.Call, ir.Operation))
            or any(one is operand for one in changed_by(stmt))
            or not self._comes_first(operand, stmt.value, at.function)
        ):
            return None
        name = self.free_name(at.function, ["full_value", "fp32_value"], 1)
        if name is None:
            return None
        return [(at.function, Widen(stmt.path, steps, name, self.dtype))]

    def _comes_first(
        self, wanted: ir.Expr, expr: ir.Expr | None, function: str
    ) -> bool:
        """Whether a part of an expression is always computed, and what stands before it only reads what that
        part does not change."""
        only_torch = all(
            ir.method_of(call) in _OF_TENSORS
            or (self.program.origin(call.func, function) or "").startswith("torch.")
            for call in ir.calls_in(wanted)
        )
        read = (
            (ir.Name, ir.Const, ir.Attr, ir.Item) if only_torch else (ir.Name, ir.Const)
        )
        while expr is not None and expr is not wanted:
            children = ir.children(expr)
            place = next(
                index
                for index, child in enumerate(children)
                if any(inner is wanted for inner in ir.walk(child))
            )
            may_be_left_out = isinstance(expr, ir.Operation) and (
                expr.op in ("if", "and", "or") and place > 0
            )
            if (
                isinstance(expr, (ir.Deferred, ir.Comprehension, ir.Walrus))
                or may_be_left_out
                or not all(
                    isinstance(inner, read) or self.program.origin(inner, function)
                    for before in children[:place]
                    for inner in ir.walk(before)
                )
            ):
                return False
            expr = children[place]
        return expr is wanted

    def _is_changed(self, at: Made) -> bool:
        """Whether a statement changes a value in place that something else may still see: the change would
        be made to a copy."""
        root = root_of(at.expr)
        if root is None or not any(one is at.expr for one in changed_by(at.stmt)):
            return False
        made, from_start = self.flow.reaching(root.id, at)
        is_gone = at.stmt.kind == "return" or root in at.stmt.targets
        return (
            not is_gone
            or from_start
            or not all(makes_new(self.program, at.function, one.value) for one in made)
        )

    def _is_plain(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is an attribute that is no property of the program."""
        match expr:
            case ir.Attr(value=ir.Name(id=name), attr=attr):
                return (
                    self.program.owner(name, function) == function
                    and self.program.origin(expr, function) is None
                    and attr not in self._functions
                )
        return False

    @cached_property
    def _functions(self) -> frozenset[str]:
        return frozenset(one.name for one in self.program.functions.values())

    def cast_if_tensor(self, at: Made, like: str) -> bool:
        """Plan a variable's cast to the dtype of another, where it turns out to be a tensor; whether that
        can be written."""
        name, steps = at.expr, steps_to(at.stmt, at.expr)
        if not isinstance(name, ir.Name) or steps is None or rebinds(at):
            return False
        cast = f"cast_{name.id}"
        known = self.program.modules[ir.file_of(at.function)].identifiers
        if (
            cast in known
            or self.program.owner(name.id, at.function) != at.function
            or self._is_chosen(at.stmt, name)
        ):
            return False
        edit = Widen(at.stmt.path, steps, cast, self.dtype, like)
        self.edit(at.function, edit)
        return True

    def is_tensor(self, at: Made) -> bool:
        """Whether a value is shown to be a tensor, of whatever dtype: it can be cast."""
        return self.dtypes.is_fp32(at) or self.tensors.is_tensor(at)

    def raise_(
        self, at: Made, tensor: bool, perhaps: bool = False, hoists: bool = False
    ) -> bool:
        """Plan what makes an operand fp32, as `raised` tells; whether there is that."""
        raised = self.raised(at.function, at.stmt, at.expr, tensor, perhaps, hoists)
        self.edits.update(dict.fromkeys(raised or ()))
        return raised is not None

    def replace(self, at: Made) -> bool:
        """Plan a variable's cast before a statement that changes in place what it holds, which nothing else
        holds yet; whether there is that."""
        name, stmt = at.expr, at.stmt
        if not isinstance(name, ir.Name) or rebinds(at):
            return False
        made, from_start = self.flow.reaching(name.id, at)
        if from_start or self.program.owner(name.id, at.function) != at.function:
            return False
        first = min((one.line for one in made), default=stmt.line)
        seen = [
            one
            for one in self.program.statements(at.function)
            if first <= one.line < stmt.line and one not in made
            if name in parts_of(one) or name in one.targets
        ]
        if seen or not all(
            one.line < stmt.line
            and one.targets == (name,)
            and makes_new(self.program, at.function, one.value)
            for one in made
        ):
            return False
        full = self.dtypes.is_fp32(at)
        if not full and (self.has_halves or not self.is_tensor(at)):
            return False
        self.edit(at.function, Recast(stmt.path, name.id, None if full else self.dtype))
        return True

    def isolate(
        self,
        forward: Forward,
        function: str,
        stmt: ir.Stmt,
        product: ir.Expr,
        factors: tuple[ir.Expr, ...],
    ) -> bool:
        """Put a statement into an island, and its product's factors into fp32, if that is exact with AMP off
        and takes nothing else out of autocast."""
        inside = {id(inner) for inner in ir.walk(product)}
        rest = [inner for inner in parts_of(stmt) if id(inner) not in inside]
        if (
            not (stmt.kind in ("assign", "annassign", "return") or _appends(stmt))
            or any(forward.in_expression(factor, function) for factor in factors)
            or any(factors_of(self.program, function, inner) for inner in rest)
            or not all(_is_same_in_island(inner, product) for inner in rest)
        ):
            return False
        edits: list[Found] = [(function, Island(stmt.path))]
        tensors = not isinstance(product, ir.Operation) or any(
            isinstance(inner, ir.Attr) and inner.attr in ("t", "permute", "transpose")
            for inner in ir.walk(product)
        )
        for factor in factors:
            raised = self.raised(function, stmt, factor, tensors)
            if raised is None:
                return False
            edits += raised
        steps = steps_to(stmt, product) or ()
        for count in range(len(steps) + 1):
            # What the product goes into is fp32 now.
            self.edits.pop((function, Upcast(stmt.path, steps[:count])), None)
        self.edits.update(dict.fromkeys(edits))
        self.halves.made_full.add(id(product))
        return True

    def free_name(self, function: str, names: list[str], number: int) -> str | None:
        """A name that the file does not have yet, for the ``number``-th such value of a statement."""
        known = self.program.modules[ir.file_of(function)].identifiers
        numbered = (f"{name}_{number}" if number > 1 else name for name in names)
        return next((name for name in numbered if name not in known), None)

    def _base(
        self, expr: ir.Expr, function: str, tensor: bool
    ) -> ir.Name | ir.Attr | ir.Item | None:
        """The local variable that an expression has its dtype from, or a numbered element of one, or an
        attribute that is set somewhere; ``tensor``: it is one, and so is what it is a slice of.
        """
        keeps = operations("first", "new", "turns")
        while not isinstance(expr, ir.Name):
            match expr:
                case ir.Attr() if (view := dtype_table.view_of(expr)) is not None:
                    expr = view
                case ir.Operation(
                    op=op, operands=(ir.Const(value=int() | float()), value)
                ) | ir.Operation(
                    op=op, operands=(value, ir.Const(value=int() | float()))
                ) if (
                    op in dtype_table.ARITHMETIC
                ):
                    expr = value
                case ir.Item(value=value, key=key) if is_part(expr) or (
                    tensor and is_slice(key)
                ):
                    expr = value
                case ir.Item() if held := _numbered(expr):
                    return (
                        expr if self.program.owner(held, function) == function else None
                    )
                case ir.Call(func=ir.Attr(value=value, attr="to"), args=args) if all(
                    kind_of(self.program, a.value, function) == DEVICE for a in args
                ):
                    expr = value
                case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr.endswith(
                    "_"
                ):
                    is_new = isinstance(value, ir.Call) and (
                        ir.method_of(value) in operations("new")
                    )
                    if not is_new and not makes_new(self.program, function, value):
                        # A copy would be changed in its place.
                        return None
                    expr = value
                case ir.Call(
                    func=ir.Attr(value=value, attr=attr) as func, args=args
                ) if attr in keeps and all(
                    a.name != "dtype" and not a.star for a in args
                ):
                    if self.program.origin(func, function) is not None:
                        if not args:
                            return None
                        value, tensor = args[0].value, False
                    elif self.program.resolve(func, function):
                        return None
                    expr = value
                case ir.Attr(value=ir.Name(id=held)) if self.program.definitions_of(
                    expr, function
                ):
                    return (
                        expr if self.program.owner(held, function) == function else None
                    )
                case _:
                    return None
        return expr if self.program.owner(expr.id, function) == function else None

    def _may_set(self, stmt: ir.Stmt, attribute: ir.Expr, function: str) -> bool:
        """Whether a statement may set an attribute before it reads that: it calls what is not of torch."""
        return any(
            all(one is not attribute for one in ir.walk(call))
            and not (self.program.origin(call.func, function) or "").startswith(
                "torch."
            )
            and (
                ir.method_of(call) not in _OF_TENSORS
                or bool(self.program.resolve(call.func, function))
            )
            for call in calls_of(stmt)
        )

    @staticmethod
    def _is_chosen(stmt: ir.Stmt, name: ir.Expr) -> bool:
        """Whether a variable is used under a condition within its statement, or may be bound there."""
        return any(
            isinstance(inner, ir.Walrus)
            or (
                isinstance(inner, ir.Operation)
                and inner.op == "if"
                and any(
                    one is name for branch in inner.operands for one in ir.walk(branch)
                )
            )
            for inner in parts_of(stmt)
        )

    @cached_property
    def has_halves(self) -> bool:
        """Whether what can run here has values of its own in the dtype of AMP, which are to stay so with AMP
        off."""
        program = self.program

        def can_run(function: str) -> bool:
            return self.flow.can_run(function) and not is_of_another(
                program.import_roots(function)
            )

        return any(
            can_run(function)
            and (
                self._makes_half(stmt, function)
                if word == "half"
                else not _only_compares(stmt, word)
            )
            and not self._goes_along(stmt, function)
            for word in self._words
            for function, stmt in program.mentioning(word)
        ) or any(
            can_run(qualname) and not self._words.isdisjoint(ir.words_in(expr))
            for qualname, function in program.functions.items()
            for expr in (*(p.default for p in function.params), *function.decorators)
            if expr is not None
        )

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset().union(*(_WORDS[name] for name in HALVES[self.dtype]))

    def _goes_along(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement runs where something is half already: ``if dtype == torch.float16:``."""
        for outer in self.program.control(function).around(stmt.path):
            match outer:
                case ir.Stmt(
                    kind="if",
                    value=ir.Operation(op="==" | "is", operands=operands),
                ) if (
                    stmt.path[len(outer.path)][0] == "body"
                ):
                    if any(ir.last_of(one) in self._words for one in operands):
                        return True
        return False

    def _makes_half(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement says ``x.half()`` or ``torch.half``."""
        return any(
            (isinstance(inner, ir.Call) and ir.method_of(inner) == "half")
            or (self.program.origin(inner, function) or "").endswith(".half")
            for inner in parts_of(stmt)
        )


def is_part(expr: ir.Expr) -> bool:
    """Whether it is a part of what can only be a tensor: ``x[:, 0]``."""
    match expr:
        case ir.Item(key=ir.Display(items=keys)):
            return any(map(is_slice, keys))
    return False


def _numbered(expr: ir.Expr) -> str | None:
    """The variable of whose elements an expression is one, or an element of one: ``x`` of ``x[i][j]``."""
    while isinstance(expr, ir.Item) and (
        isinstance(expr.key, ir.Name) or _is_number(expr.key)
    ):
        expr = expr.value
    return expr.id if isinstance(expr, ir.Name) else None


def _is_number(key: ir.Expr) -> bool:
    """Whether it is the number of an element, or of each dimension one."""
    match key:
        case ir.Display(items=items):
            return bool(items) and all(map(_is_number, items))
        case ir.Const(value=int()):
            return True
    return False


def _may_be_skipped(test: ir.Expr, operand: ir.Expr) -> bool:
    """Whether an operand is not always looked at where a test is: ``x is not None and x.dtype == ...``."""
    return any(
        isinstance(inner, ir.Operation)
        and inner.op in ("and", "or")
        and any(one is operand for late in inner.operands[1:] for one in ir.walk(late))
        for inner in ir.walk(test)
    )


def _may_be_absent(stmt: ir.Stmt, base: ir.Expr) -> bool:
    """Whether a guard may ask whether there is something: ``i < len(xs) and xs[i].dtype == ...``."""
    asked = any(
        ir.last_of(call.func) in ("hasattr", "getattr") for call in calls_of(stmt)
    )
    return isinstance(base, ir.Item) or (isinstance(base, ir.Attr) and asked)


def changed_by(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """What a statement changes in place."""
    for target in stmt.targets:
        if stmt.kind == "augassign" or isinstance(target, ir.Item):
            yield target
        if isinstance(target, ir.Item):
            yield target.value
    for call in calls_of(stmt):
        match call.func:
            case ir.Attr(value=value, attr=attr) if attr.endswith(
                "_"
            ) and not attr.endswith("__"):
                yield value
                yield from (arg.value for arg in call.args[:1])


def makes_new(program: Program, function: str, value: ir.Expr | None) -> bool:
    """Whether an expression makes a tensor of its own, changed in place or not."""
    match value:
        case ir.Operation(op=op):
            return op in (*dtype_table.ARITHMETIC, "**", "@", "-x")
        case ir.Call(func=ir.Attr(value=inner, attr=attr)):
            if attr == "detach" or attr.endswith("_"):
                if makes_new(program, function, inner):
                    return True
            return attr in operations("fresh") and not program.callees(value, function)
        case ir.Const():
            return True
    return False


def _only_compares(stmt: ir.Stmt, word: str) -> bool:
    """Whether a statement asks whether something is of a dtype, and says that nowhere else."""
    asked = {
        id(inner)
        for test in parts_of(stmt)
        if isinstance(test, ir.Operation)
        and test.op in ("==", "!=", "is", "is not", "in", "not in")
        for inner in ir.walk(test)
    }
    return all(
        id(inner) in asked for inner in parts_of(stmt) if ir.last_of(inner) == word
    )


class Planner:
    """What plans one kind of remedy for one program."""

    def __init__(self, remedies: Remedies) -> None:
        self.remedies = remedies
        self.program = remedies.program
        self.flow = remedies.flow
        self.modules = remedies.modules
        self.dtypes = remedies.dtypes
        self.halves = remedies.halves


def _appends(stmt: ir.Stmt) -> bool:
    """``parts.append(a @ b)``."""
    match stmt:
        case ir.Stmt(
            kind="expr",
            value=ir.Call(func=ir.Attr(value=ir.Name(), attr="append"), args=(_,)),
        ):
            return True
    return False


def _is_same_in_island(expr: ir.Expr, product: ir.Expr) -> bool:
    """Whether an island computes as autocast would what a product in fp32 goes into: what autocast would
    put into fp32 is there."""
    if isinstance(expr, ir.Call):
        name = ir.method_of(expr) or ir.key_of(expr.func)
        if name in ("size", "numel", "dim", "len", "append"):
            return True
        if name not in _GOES_ON or not isinstance(expr.func, ir.Attr):
            return False
    elif not isinstance(expr, ir.Operation) or expr.op != "**":
        return True
    return any(inner is product for inner in ir.walk(expr))


def factors_of(
    program: Program, function: str, expr: ir.Expr
) -> tuple[ir.Expr, ir.Expr] | None:
    """What a product of two matrices is one of."""
    if isinstance(expr, ir.Operation) and expr.op == "@":
        return expr.operands[0], expr.operands[1]
    if not isinstance(expr, ir.Call) or not isinstance(expr.func, (ir.Attr, ir.Name)):
        return None
    values = [arg.value for arg in expr.args]
    origin = program.origin(expr.func, function)
    if origin is not None:
        if origin.removeprefix("torch.") in _PRODUCTS:
            return (values[0], values[1]) if len(values) == 2 else None
        if origin == "torch.einsum" and len(values) == 3:
            return values[1], values[2]
        return None
    if isinstance(expr.func, ir.Attr) and expr.func.attr in _PRODUCTS:
        if len(values) == 1:
            return expr.func.value, values[0]
    return None
