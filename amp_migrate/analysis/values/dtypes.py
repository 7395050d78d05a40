"""Which values are tensors, and which of them are fp32, when AMP is off."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.modules import Construction, Modules
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.destinations import DEVICE, kind_of
from amp_migrate.catalogue.operations import operations
from amp_migrate.core.fixpoint import Fixpoint
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

_Key = tuple[object, ...]
_TORCH = ("torch", "torch.nn.functional")
_SEVERAL = operations("chosen").union(
    "chunk split tensor_split unbind hsplit vsplit dsplit".split()
)
"""They may give a tuple of tensors."""
_GIVES_TENSOR = operations(
    "first", "made", "counted", "given", "promoted", "joined", "product", "half", "fp32"
).union(operations("new", "compares", "integers"), _SEVERAL) - {"equal", "nonzero"}
ALSO_OF_MODULES = frozenset(
    "to float half bfloat16 double cuda cpu requires_grad_".split()
)
"""Methods of tensors that modules have, too."""


class Shown:
    """What is shown of a value: it holds of all that may have made it. Round a loop, what goes into the loop
    decides."""

    def __init__(self, flow: Flow, modules: Modules) -> None:
        self.program = flow.program
        self.flow = flow
        self.modules = modules
        self._equations: dict[_Key, Callable[[], bool]] = {}
        self._exprs: dict[_Key, ir.Expr] = {}
        self._proved: Fixpoint[_Key, bool] = Fixpoint(self._solve, False, any)
        self._begin()

    def _begin(self) -> None:
        """Nothing is shown yet."""
        self._shown: Fixpoint[_Key, bool] = Fixpoint(self._solve, True, all)

    def _solve(self, key: _Key) -> bool:
        return self._equations[key]()

    def _key(self, holds: Callable[[Made], bool], at: Made) -> _Key:
        key = (holds.__name__, id(at.expr), at.function, at.stmt.path, at.index)
        self._equations.setdefault(key, partial(holds, at))
        self._exprs[key] = at.expr
        return key

    def _is(self, at: Made) -> bool:
        return self._shown.of(self._key(self._holds, at))

    def _is_proved(self, holds: Callable[[Made], bool], at: Made) -> bool:
        """Whether something holds of a value; not of one that is made of itself."""
        return self._proved.of(self._key(holds, at))

    def _holds(self, at: Made) -> bool:
        """Whether it holds of a value, in terms of what that is made of."""
        raise NotImplementedError

    def _within(self, at: Made, expr: ir.Expr, index: int | None = None) -> bool:
        return self._is(at.inner(expr, index))

    def _returns(self, function: str, index: int | None = None) -> bool:
        """Whether it holds of what a function of the program gives."""
        returned = self.flow.returned(function, index)
        return bool(returned) and all(map(self._is, returned or ()))


class Tensors(Shown):
    """Says of one program's values whether they are tensors, of whatever dtype: no number, no module, no
    collection."""

    def is_tensor(self, at: Made) -> bool:
        """Whether a value is shown to be a tensor when AMP is off."""
        return not rebinds(at) and self._is(at)

    def _holds(self, at: Made) -> bool:
        expr = at.expr
        match expr:
            case ir.Attr() if (view := dtype_table.view_of(expr)) is not None and (
                self._within(at, view)
            ):
                return True
            case ir.Name() if rebinds(at):
                return False
            case ir.Name() | ir.Attr():
                made = self.flow.made(at)
                if at.index is None:
                    return bool(made) and all(map(self._is, made or ()))
                return bool(made) and all(
                    one.index is None and self._is(one.inner(one.expr, at.index))
                    for one in made or ()
                )
            case ir.Display(kind="list" | "tuple", items=items):
                index = at.index
                return index is not None and (
                    -len(items) <= index < len(items) and self._within(at, items[index])
                )
            case ir.Comprehension(elements=(element,)) if at.index is not None:
                return self._within(at, element)
            case ir.Item(value=value, key=key):
                if at.index is None and isinstance(value, (ir.Name, ir.Attr)):
                    elements = self.flow.elements(at.inner(value))
                    if elements and all(map(self._is, elements)):
                        return True
                if self._within(at, value):
                    return True
                return (
                    isinstance(key, ir.Const)
                    and isinstance(key.value, int)
                    and (self._within(at, value, key.value))
                )
            case ir.Operation(op="if", operands=(_, body, orelse)):
                return self._within(at, body, at.index) and (
                    self._within(at, orelse, at.index)
                )
            case ir.Operation(op=op, operands=operands) if op in (
                *dtype_table.ARITHMETIC,
                "-x",
                "**",
                "@",
            ):
                return any(self._within(at, one) for one in operands)
            case ir.Call():
                return self._is_called(at, expr)
        return False

    def _is_called(self, at: Made, call: ir.Call) -> bool:
        program, func = self.program, call.func
        origin = program.origin(func, at.function)
        if any(arg.name in ("return_indices", "out") for arg in call.args):
            return False
        if origin is not None:
            package, _, name = origin.rpartition(".")
            if origin == "torch.nn.Parameter":
                return True
            several = name in _SEVERAL and at.index is None and len(call.args) > 1
            return package in _TORCH and name in _GIVES_TENSOR and not several
        refs = program.resolve(func, at.function)
        if refs and all(ref.kind == "function" for ref in refs):
            return all(self._returns(ref.name, at.index) for ref in refs)
        modules = self.modules.of(func, at.function)
        if modules is None:
            modules = self.modules.in_list(func, at.function)
        if modules is not None:
            return all(self._gives_tensor(one, at.index) for one in modules)
        if refs or not isinstance(func, ir.Attr):
            return False
        if func.attr in ALSO_OF_MODULES:
            return self._within(at, func.value)
        return func.attr in _GIVES_TENSOR and not (
            func.attr in _SEVERAL and at.index is None and bool(call.args)
        )

    def _gives_tensor(self, made: Construction, index: int | None) -> bool:
        """Whether calling a module gives a tensor."""
        program = self.program
        made = self.modules.inherited(made)
        origin = program.origin(made.call.func, made.function)
        if origin is None:
            forwards = [
                program.method(ref.name, "forward")
                for ref in program.resolve(made.call.func, made.function)
            ]
            return bool(forwards) and all(
                one is not None and self._returns(one, index) for one in forwards
            )
        if dtype_table.RECURRENT.fullmatch(origin):
            return index == 0
        known = (dtype_table.PARAMETRIC, dtype_table.KEEPING, dtype_table.FP32_LAYERS)
        if any(one.fullmatch(origin) for one in known):
            return not any(arg.name == "return_indices" for arg in made.call.args)
        layers = self.modules.layers(made)
        last = self.modules.of(*layers[-1]) if layers else None
        return bool(last) and all(self._gives_tensor(one, index) for one in last or ())


class Dtypes(Shown):
    """Answers for one program."""

    def is_fp32(self, at: Made) -> bool:
        """Whether an expression is shown to be an fp32 tensor when AMP is off."""
        return not rebinds(at) and self._is(at)

    def is_fp32_through(self, layers: list[tuple[ir.Expr, str]], given: Made) -> bool:
        """Whether layers in a row give fp32 when AMP is off."""
        return self._fp32_layers(layers, given)

    def is_number(self, at: Made) -> bool:
        """Whether an expression is shown to be a Python number."""
        return self._is_number(at.expr, at)

    def has_squashed(self, at: Made, names: Collection[str]) -> bool:
        """Whether a value that is shown to be fp32 comes from one of these functions or layers."""
        return any(
            isinstance(inner, (ir.Name, ir.Attr))
            and (inner.attr if isinstance(inner, ir.Attr) else inner.id).lower()
            in names
            for key in self._shown.behind(self._key(self._holds, at))
            if key in self._exprs and self._shown.of(key)
            for inner in ir.walk(self._exprs[key])
        )

    def _holds(self, at: Made) -> bool:
        expr = at.expr
        match expr:
            case ir.Name() if rebinds(at):
                return False
            case ir.Name() | ir.Attr():
                return self._fp32_variable(at)
            case ir.Display(kind="list" | "tuple", items=items):
                index = at.index
                return index is not None and (
                    -len(items) <= index < len(items) and self._within(at, items[index])
                )
            case ir.Item(value=value, key=key):
                if isinstance(key, ir.Const) and isinstance(key.value, int):
                    # Of a tensor its rows, of a tuple that element.
                    return self._within(at, value, key.value) or (
                        self._within(at, value)
                    )
                return at.index is None and self._within(at, value)
            case ir.Operation(op="if", operands=(_, body, orelse)):
                return self._within(at, body, at.index) and (
                    self._within(at, orelse, at.index)
                )
            case ir.Operation(op="-x", operands=(operand,)):
                return self._within(at, operand)
            case ir.Operation(op="**", operands=(base, exponent)):
                return self._within(at, base) and self._is_number(exponent, at)
            case ir.Operation(op="@", operands=(left, right)):
                return self._within(at, left) or self._within(at, right)
            case ir.Operation(op=op, operands=(left, right)) if (
                op in dtype_table.ARITHMETIC
            ):
                return self._fp32_arithmetic(at, left, right)
            case ir.Call():
                places = dtype_table.tells_places(expr, at.index)
                return not places and self._fp32_call(at, expr)
        return False

    def _fp32_variable(self, at: Made) -> bool:
        if at.index is not None and self.flow.is_filled(at):
            # Which of its elements stands where is not known.
            elements = self.flow.elements(at)
            return bool(elements) and all(map(self._is, elements or ()))
        made = self.flow.made(at)
        if not made:
            view = dtype_table.view_of(at.expr)
            return view is not None and self._within(at, view, at.index)
        for one in made:
            if at.index is not None:
                if one.index is not None:
                    return False
                one = one.inner(one.expr, at.index)
            if not self._is(one):
                return False
        return True

    def _fp32_arithmetic(self, at: Made, left: ir.Expr, right: ir.Expr) -> bool:
        if self._is_number(left, at):
            return self._within(at, right)
        if self._is_number(right, at):
            return self._within(at, left)
        return self._within(at, left) and self._within(at, right)

    def _is_number(self, expr: ir.Expr, at: Made) -> bool:
        """Whether an expression is a Python number."""
        return self._is_proved(self._is_number_now, at.inner(expr))

    def _is_number_now(self, at: Made) -> bool:
        expr = at.expr
        match expr:
            case ir.Const(value=value):
                return isinstance(value, (int, float))
            case ir.Operation(op="-x", operands=(operand,)):
                return self._is_number(operand, at)
            case ir.Operation(op=op, operands=(left, right)) if op in (
                *dtype_table.ARITHMETIC,
                "//",
                "**",
                "%",
            ):
                return self._is_number(left, at) and self._is_number(right, at)
            case ir.Attr(value=ir.Call(func=func), attr="min" | "max" | "eps" | "tiny"):
                return self.program.origin(func, at.function) in dtype_table.LIMITS
            case ir.Call(func=func, args=args):
                origin = self.program.origin(func, at.function)
                if origin in dtype_table.OF_NUMBERS:
                    given = [one for arg in args for one in _elements(arg.value)]
                    return all(self._is_number(one, at) for one in given)
                if origin is not None:
                    return dtype_table.NUMBERS.fullmatch(origin) is not None
                name = ir.method_of(expr)
                return name in ("item", "numel") or (name == "size" and bool(args))
            case ir.Item(value=ir.Attr(attr="shape")):
                return True
            case ir.Name() | ir.Attr():
                if rebinds(at):
                    return False
                made = self.flow.made(at)
                if made is None and self._is_declared_number(at):
                    return True
                return bool(made) and all(
                    one.index is None and self._is_number(one.expr, one)
                    for one in made or ()
                )
        return False

    def _is_declared_number(self, at: Made) -> bool:
        """Whether a variable is a parameter with the annotation of a number, given out of sight."""
        if not isinstance(at.expr, ir.Name):
            return False
        name = at.expr.id
        stmts, from_start = self.flow.reaching(name, at)
        return (
            from_start
            and not stmts
            and any(
                param.name == name
                and param.annotation is not None
                and self.program.origin(param.annotation, at.function)
                in ("builtins.float", "builtins.int")
                for param in self.program.functions[at.function].params
            )
        )

    def is_never_given(self, at: Made) -> bool:
        """Whether a variable is a parameter that all calls leave its default, a number."""
        program, function = self.program, at.function
        return any(
            at.expr == ir.Name(param.name)
            and isinstance(param.default, ir.Const)
            and isinstance(param.default.value, (int, float))
            and program.functions[function].name not in ("forward", "__call__")
            and function not in program.escaping
            and not program.is_library(function)
            and not program.arguments(function, param.name)
            and not self.flow.made(at)
            for param in program.functions[function].params
        )

    def _fp32_call(self, at: Made, call: ir.Call) -> bool:
        program = self.program
        func = call.func
        origin = program.origin(func, at.function)
        first = call.args[0].value if call.args and not call.args[0].star else None
        if origin is not None:
            return self._fp32_function(at, call, origin, first)
        refs = program.resolve(func, at.function)
        if refs and all(ref.kind == "function" for ref in refs):
            return all(self._returns(ref.name, at.index) for ref in refs)
        modules = self.modules.of(func, at.function)
        if modules is not None:
            given = None if first is None else at.inner(first)
            return all(self._fp32_module(m, given, at.index) for m in modules)
        if refs and all(ref.kind == "instance" for ref in refs):
            # A module that calls itself: `mean, std = self(x)`.
            called = program.callees(call, at.function)
            return bool(called) and all(self._returns(one, at.index) for one in called)
        if refs or not isinstance(func, ir.Attr):
            return False
        method = func.attr
        if method == "float":
            return not call.args
        if method == "to":
            return self._fp32_moved(at, call, func.value)
        if method == "type":
            return first is not None and self._says_fp32(first, at)
        if method in operations("product"):
            return self._within(at, func.value) or (
                first is not None and self._within(at, first)
            )
        if _says_dtype(call):
            return False
        if method in ("sample", "rsample"):
            return self._fp32_drawn(at, func.value)
        if method in operations("first"):
            return self._within(at, func.value)
        operands = [func.value, *(arg.value for arg in call.args)]
        return self._fp32_promoted(at, method, operands)

    def _fp32_drawn(self, at: Made, distribution: ir.Expr) -> bool:
        """Whether what is drawn is fp32: ``Normal(mean, std).rsample()``."""
        of = at.inner(distribution)
        made = self.flow.made(of) or [of]
        return all(
            isinstance(one.expr, ir.Call)
            and bool(one.expr.args)
            and dtype_table.NORMAL.fullmatch(
                self.program.origin(one.expr.func, one.function) or ""
            )
            and all(
                self._is_number(arg.value, one) or self._within(one, arg.value)
                for arg in one.expr.args
            )
            for one in made
        )

    def _fp32_moved(self, at: Made, call: ir.Call, value: ir.Expr) -> bool:
        """``x.to(device)``, ``x.to(torch.float32)``."""
        if any(self._says_fp32(arg.value, at) for arg in call.args):
            return True
        devices = all(
            arg.name in ("device", "non_blocking", None)
            and (
                isinstance(arg.value, ir.Const)
                or kind_of(self.program, arg.value, at.function) == DEVICE
            )
            for arg in call.args
        )
        return devices and self._within(at, value)

    def _says_fp32(self, expr: ir.Expr, at: Made) -> bool:
        origin = self.program.origin(expr, at.function) or ""
        return bool(dtype_table.FLOAT.fullmatch(origin)) or (
            isinstance(expr, ir.Const) and expr.value == "torch.FloatTensor"
        )

    def _fp32_function(
        self, at: Made, call: ir.Call, origin: str, first: ir.Expr | None
    ) -> bool:
        if dtype_table.IMAGE_MODELS.fullmatch(origin):
            return False
        if dtype_table.EINOPS.fullmatch(origin) and first is not None:
            return self._within(at, first)
        name = origin.rsplit(".", 1)[-1]
        if not origin.startswith("torch."):
            return False
        for arg in call.args:
            if arg.name == "dtype":
                return self._says_fp32(arg.value, at) and (
                    name in operations("made", "counted", "given")
                    or name in operations("first")
                )
        if name in operations("made"):
            return True
        if name == "FloatTensor":
            return True
        if name == "tensor":
            return isinstance(first, ir.Const) and isinstance(first.value, float)
        if name == "full":
            value = call.argument(1, "fill_value")
            return isinstance(value, ir.Const) and isinstance(value.value, float)
        if name == "full_like":
            return first is not None and self._within(at, first)
        if name in operations("joined") and first is not None:
            return self._all_within(at, first)
        if name == "einsum":
            given = [
                operand
                for arg in call.args[1:]
                for operand in (
                    arg.value.items
                    if isinstance(arg.value, ir.Display)
                    else (arg.value,)
                )
            ]
            return bool(given) and all(self._within(at, one) for one in given)
        if name in operations("product"):
            return any(
                not arg.star and self._within(at, arg.value) for arg in call.args[:2]
            )
        if name == "Parameter":
            return first is not None and self._within(at, first)
        if name in ("data_parallel",) and first is not None:
            modules = self.modules.of(first, at.function)
            return modules is not None and all(
                self._fp32_module(m, None, at.index) for m in modules
            )
        if origin not in (f"torch.{name}", f"torch.nn.functional.{name}"):
            return False
        if first is not None and name in operations("first"):
            return self._within(at, first)
        return self._fp32_promoted(at, name, [arg.value for arg in call.args])

    def _all_within(self, at: Made, listed: ir.Expr) -> bool:
        """Whether it holds of all that a list has, which is written out, or filled in sight."""
        if isinstance(listed, ir.Item) and is_slice(listed.key):
            listed = listed.value
        elements = self.flow.elements(at.inner(listed))
        return bool(elements) and all(map(self._is, elements or ()))

    def _fp32_promoted(self, at: Made, name: str, operands: list[ir.Expr]) -> bool:
        """Whether what a function makes of several operands, ``torch.min(a, b)``, is fp32."""
        if name in operations("promoted"):
            tensors = [one for one in operands if not self._is_number(one, at)]
        else:
            # What chooses along a dimension gives indices, too.
            tensors = operands if name in operations("chosen") else []
        return bool(tensors) and all(self._within(at, one) for one in tensors)

    def _fp32_module(
        self, made: Construction, given: Made | None, index: int | None
    ) -> bool:
        """Whether calling a module gives fp32."""
        program = self.program
        made = self.modules.inherited(made)
        origin = program.origin(made.call.func, made.function)
        if origin is None:
            return self._fp32_forward(made, index)
        if _says_dtype(made.call):
            return False
        if dtype_table.PARAMETRIC.fullmatch(
            origin
        ) or dtype_table.IMAGE_MODELS.fullmatch(origin):
            return True
        if dtype_table.KEEPING.fullmatch(origin):
            return given is not None and self._is(given)
        layers = self.modules.layers(made)
        if layers is None:
            return False
        # `self.net = nn.Sequential(self.net, nn.Sigmoid())`: what else it holds decides.
        key = ("layers", id(made.call), given and self._key(self._holds, given))
        self._equations.setdefault(key, partial(self._fp32_layers, layers, given))
        return self._shown.of(key)

    def _fp32_layers(
        self, layers: list[tuple[ir.Expr, str]], given: Made | None
    ) -> bool:
        """Whether layers in a row give fp32: the last that does not keep what it is given decides."""
        for position in range(len(layers) - 1, -1, -1):
            expr, function = layers[position]
            if isinstance(expr, ir.Operation) and expr.op == "starred":
                return False
            modules = self.modules.of(expr, function)
            if modules is None:
                return False
            kinds = {
                bool(
                    dtype_table.KEEPING.fullmatch(
                        self.program.origin(m.call.func, m.function) or ""
                    )
                )
                for m in modules
            }
            if kinds == {True}:
                for m in modules:
                    self._shown.of(self._passed(m.call))
                continue
            return all(self._fp32_module(m, None, None) for m in modules)
        return given is not None and self._is(given)

    def _passed(self, layer: ir.Call) -> _Key:
        """A layer that gives the dtype that it is given: what stands on it comes from it, too."""
        key = ("passed", id(layer))
        self._equations.setdefault(key, lambda: True)
        self._exprs[key] = layer
        return key

    def _fp32_forward(self, made: Construction, index: int | None) -> bool:
        program = self.program
        refs = program.resolve(made.call.func, made.function)
        classes = [ref.name for ref in refs if ref.kind == "class"]
        if not classes or len(classes) != len(refs):
            return False
        for class_name in classes:
            forward = program.method(class_name, "forward")
            if forward is None or program.method(class_name, "__call__") is not None:
                return False
            if not self._returns(forward, index):
                return False
        return True


def rebinds(at: Made) -> bool:
    """Whether a name in an expression may be one that a lambda or comprehension around it binds."""
    bound: set[str] = set()
    for inner in parts_of(at.stmt):
        if isinstance(inner, ir.Deferred):
            bound.update(inner.params)
        elif isinstance(inner, ir.Comprehension):
            for target in inner.targets:
                bound |= {n.id for n in ir.walk(target) if isinstance(n, ir.Name)}
    return bool(bound) and any(
        isinstance(inner, ir.Name) and inner.id in bound for inner in ir.walk(at.expr)
    )


def is_slice(key: ir.Expr) -> bool:
    """Whether a key, or a part of one, is a slice."""
    return isinstance(key, ir.Operation) and key.op == "slice"


def _says_dtype(call: ir.Call) -> bool:
    return any(arg.name == "dtype" or arg.star == "**" for arg in call.args)


def _elements(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """What a list that is written out holds; of anything else, itself."""
    match expr:
        case ir.Comprehension(elements=(element,)):
            return (element,)
        case ir.Display(kind="list" | "tuple", items=items):
            return items
    return (expr,)
