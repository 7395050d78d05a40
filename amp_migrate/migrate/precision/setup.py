"""What breaks half precision, or a scaled gradient, wherever it stands in a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cached_property

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.modules import Construction, Modules
from amp_migrate.analysis.paths import hooks
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.destinations import DTYPE, TENSOR, kind_of
from amp_migrate.analysis.values.dtypes import ALSO_OF_MODULES, Tensors
from amp_migrate.catalogue.operations import operations
from amp_migrate.migrate.precision import strict
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

_HIGHER_ORDER = re.compile(
    r"torch\.autograd\.functional\.\w+|higher\.\w+"
    r"|(torch\.func|functorch)\.(?!vmap|functional_call|stack_module_state)\w+"
)
_HALF_DTYPES = re.compile(r"torch\.(half|float16|bfloat16|double|float64)")
_COMPLEX = re.compile(
    r"torch\.(complex(32|64|128)?|c?half|cfloat|cdouble|view_as_complex|polar)"
)
_REAL = frozenset("view_as_real real imag abs angle".split())
_DOUBLES = frozenset(("torch.double", "torch.float64"))
_FALSE = ir.Const(False)
_REPLACES_DATA = frozenset(
    """Parameter register_parameter set_ __setattr__ vars vector_to_parameters
    swap_tensors""".split()
)
_MODEL = re.compile(r"(?i)(model|net|network|\w+_(model|net))")


_Hazard = tuple[str, ir.Stmt, Refusal, frozenset[str] | None]
"""The function it stands in, its statement, and the functions of which one has to run besides."""


class _Data(Tensors):
    """What layers give is no data: to cast that is to decide on precision by hand."""

    def _gives_tensor(self, made: Construction, index: int | None) -> bool:
        return False


class Setup:
    """Answers for one program, whose calls it looks at once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.forward = program.noted(Forward)
        self._flow = Flow(program)
        self._data = _Data(self._flow, Modules(program))
        self._found: dict[bool, list[_Hazard]] = {}
        self._aborts: dict[tuple[str, frozenset[ir.Path]], Refusal | None] = {}

    def first(
        self,
        functions: Collection[str],
        running: Collection[str],
        scaled: bool,
        trained: frozenset[str],
        is_off: Callable[[str, ir.Stmt], bool],
    ) -> Refusal | None:
        """The first hazard in some functions, of which some are known to be ``running``; ``scaled``: of those
        too that a scaler brings to what is ``trained``. ``is_off``: whether AMP is off where a statement
        runs."""
        for function, stmt, refusal, beside in self._all(scaled):
            if function not in functions:
                continue
            if beside is None or not beside.isdisjoint(running):
                if refusal.code != "AMP006" or not is_off(function, stmt):
                    return refusal
        if not scaled:
            return None
        for function, seen, line in self._kept:
            if function in functions:
                return Refusal("AMP024", f"{seen} scaled gradients", line)
        aborts = (self._abort(function, trained) for function in functions)
        return next((refusal for refusal in aborts if refusal is not None), None)

    @cached_property
    def _kept(self) -> list[tuple[str, str, int]]:
        return [*hooks.kept(self.program)]

    def _all(self, scaled: bool) -> list[_Hazard]:
        """The hazards of all calls."""
        if scaled not in self._found:
            found = self._found[scaled] = []
            for function, stmt, call in self.program.all_calls():
                if self._differentiates_here(function, stmt, call):
                    continue
                refusal = self.of_call(function, call, scaled)
                if refusal is not None:
                    copies = self._copies_data(function, stmt, call)
                    beside = self._replacing if copies else None
                    if refusal.code == "AMP024":
                        beside = hooks.readers(self.program, function, call)
                    found.append((function, stmt, refusal, beside))
                if scaled and (refusal is None or copies):
                    strictly = strict.of_call(
                        self.program, function, call
                    ) or self._of_complex(function, stmt, call)
                    if strictly is not None:
                        found.append((function, stmt, strictly, None))
        return self._found[scaled]

    def _abort(self, function: str, trained: frozenset[str]) -> Refusal | None:
        asked = function, strict.ends_of_training(self.program, function, trained)
        if asked not in self._aborts:
            self._aborts[asked] = strict.of_aborts(self.program, *asked)
        return self._aborts[asked]

    def of_call(self, function: str, call: ir.Call, scaled: bool) -> Refusal | None:
        """The hazard that a call is wherever it stands."""
        program = self.program
        origin = program.origin(call.func, function) or ""
        method = ir.method_of(call)
        line = call.line
        if (
            "FullyShardedDataParallel" in origin
            or origin == "torch.distributed.fsdp.FSDP"
        ):
            return Refusal(
                "AMP007",
                "FSDP shards the gradients: a plain scaler would diverge",
                line,
            )
        if origin.endswith(".MixedPrecisionPolicy"):
            message = "MixedPrecisionPolicy sets another precision by hand"
            return Refusal("AMP006", message, line)
        if _HIGHER_ORDER.fullmatch(origin):
            return Refusal(
                "AMP023", f"{origin}() differentiates outside of backward()", line
            )
        seen = hooks.seen_by(program, function, call) if scaled else None
        if seen is not None:
            return Refusal("AMP024", f"{seen} scaled gradients", line)
        if (
            origin == "torch.set_default_dtype"
            and not any(self._is_fp32_dtype(arg.value, function) for arg in call.args)
        ) or (
            origin == "torch.set_default_tensor_type" and "Float" not in str(call.args)
        ):
            return Refusal("AMP006", "the default dtype is changed", line)
        if origin == "" and method in ("half", "bfloat16", "double") and not call.args:
            # x.double() of a tensor is no matter of AMP; of a module it is.
            made = ir.receiver_of(call)
            if method != "double" or self.forward.is_module(made, function):
                return Refusal(
                    "AMP006", f".{method}() sets another precision by hand", line
                )
        if method == "apply" and any(map(_casts, call.args)):
            return Refusal("AMP006", "apply() sets another precision by hand", line)
        if origin == "" and method == "to":
            assert isinstance(call.func, ir.Attr)
            dtypes = {
                ref.name
                for arg in call.args
                for ref in program.resolve(arg.value, function)
                if ref.kind == "external" and _HALF_DTYPES.fullmatch(ref.name)
            }
            if dtypes - _DOUBLES or (
                dtypes and self.forward.is_module(call.func.value, function)
            ):
                message = ".to(dtype) sets another precision by hand"
                return Refusal("AMP006", message, line)
        if origin == "" and method == "to" and self._takes_over(function, call):
            message = "a module takes over a dtype that need not be fp32"
            return Refusal("AMP006", message, line)
        return None

    def _of_complex(
        self, function: str, stmt: ir.Stmt, call: ir.Call
    ) -> Refusal | None:
        """A parameter, or a layer, of complex numbers."""
        origin = self.program.origin(call.func, function) or ""
        values = [arg.value for arg in call.args]
        match last_word(call.func, self.program, function), call.func:
            case "Parameter" | "register_parameter", _:
                pass
            case "to", ir.Attr(value=module):
                if not self.forward.is_module(module, function):
                    return None
            case _:
                wanted = call.argument(99, "requires_grad")
                if not origin.startswith("torch.nn.") and wanted in (None, _FALSE):
                    return None
                values = [arg.value for arg in call.args if arg.name == "dtype"]
        if any(self._is_complex(Made(one, function, stmt)) for one in values):
            message = "a scaler cannot unscale the gradients of complex parameters"
            return Refusal("AMP006", message, call.line)
        return None

    def _is_complex(self, at: Made, deep: int = 3) -> bool:
        """Whether an expression is of complex numbers, as far as is said here."""
        expr = at.expr
        name = self.program.origin(expr, at.function) or ""
        if _COMPLEX.fullmatch(name):
            return True
        if isinstance(expr, ir.Call):
            name = last_word(expr.func, self.program, at.function)
            if name in _REAL | {"cfloat"}:
                return name == "cfloat"
        if isinstance(expr, ir.Name) and deep:
            made = self._flow.made(at) or ()
            return any(self._is_complex(one, deep - 1) for one in made)
        return any(self._is_complex(at.inner(i), deep) for i in ir.children(expr))

    @cached_property
    def inner(self) -> list[tuple[str, ir.Stmt, Refusal]]:
        """Calls that differentiate where they stand: they concern the loops that run them."""
        found = []
        for function, stmt, call in self.program.all_calls():
            if self._differentiates_here(function, stmt, call):
                refusal = self.of_call(function, call, False)
                assert refusal is not None
                found.append((function, stmt, refusal))
        return found

    def _differentiates_here(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """``with higher.innerloop_ctx(...):``, ``torch.func.grad(f)(x)``: nothing is kept for later."""
        origin = self.program.origin(call.func, function) or ""
        if not _HIGHER_ORDER.fullmatch(origin) or ir.is_top(function):
            return False
        if stmt.kind == "with" and any(expr is call for expr in stmt.exprs):
            return not self.program.functions[function].is_generator
        return any(outer.func is call for outer in calls_of(stmt))

    def _copies_data(self, function: str, stmt: ir.Stmt, call: ir.Call) -> bool:
        """``kept = p.data.half()``, ``torch.from_numpy(image).half()``: a tensor of its own, where
        nothing makes tensors parameters. Layers of fp32 raise on it, with AMP off, until it is cast
        back."""
        return isinstance(call.func, ir.Attr) and (
            (isinstance(call.func.value, ir.Attr) and call.func.value.attr == "data")
            or (
                call.func.attr in ("half", "bfloat16", "to")
                and self._data.is_tensor(Made(call.func.value, function, stmt))
            )
        )

    @cached_property
    def _replacing(self) -> frozenset[str]:
        """The functions that give parameters other tensors: ``p.data = low``, ``Parameter(low)``, or make
        some of their own: ``low.requires_grad_()``."""
        return frozenset(
            function
            for function, stmt in self.program.all_statements()
            if any(
                self._gives_tensor(function, stmt, target) for target in stmt.targets
            )
            or any(self._makes_parameters(function, call) for call in calls_of(stmt))
        )

    def _gives_tensor(self, function: str, stmt: ir.Stmt, target: ir.Expr) -> bool:
        """``p.data = low``, or ``low.requires_grad = True``."""
        return any(
            inner.attr == "_parameters"
            or (inner.attr == "data" and not self._is_plain_self(inner.value, function))
            or (inner.attr == "requires_grad" and stmt.value != _FALSE)
            for inner in ir.walk(target)
            if isinstance(inner, ir.Attr)
        )

    def _is_plain_self(self, expr: ir.Expr, function: str) -> bool:
        """Whether it is the ``self`` of a class of the program that is no kind of tensor."""
        own = self.program.class_of_self(expr, function)
        return own is not None and not any(
            base == "?" or base.endswith(("Parameter", "Tensor", "Buffer"))
            for base in self.program.external_bases(own)
        )

    def _makes_parameters(self, function: str, call: ir.Call) -> bool:
        """Whether a call may make a parameter of a tensor of any dtype."""
        func, first = call.func, call.args[0].value if call.args else None
        wants = call.argument(99, "requires_grad")
        if wants not in (None, _FALSE) and not _is_fresh(call):
            return True
        method = func.attr if isinstance(func, ir.Attr) else ""
        match last_word(func, self.program, function) or method:
            case "requires_grad_":
                return first != _FALSE
            case "load_state_dict":
                return call.argument(99, "assign") is not None
            case "from_pretrained":
                return (self.program.origin(func, function) or "").startswith("torch.")
            case "setattr":
                name = call.argument(1, "name")
                named = isinstance(name, ir.Const) and name.value != "data"
                return not named and (
                    first is None or not self._is_plain_self(first, function)
                )
            case name:
                return name in _REPLACES_DATA and (
                    first is None or not _is_fresh(first)
                )

    def _takes_over(self, function: str, call: ir.Call) -> bool:
        """``model.to(x)``, ``model.to(x.dtype)``."""
        moved = ir.receiver_of(call)
        last = (ir.key_of(moved) or "").rsplit(".", 1)[-1]
        if not self.forward.is_module(moved, function) or not (
            self.program.resolve(moved, function) or _MODEL.fullmatch(last)
        ):
            return False
        return any(
            kind_of(self.program, arg.value, function) in (DTYPE, TENSOR)
            and not self._is_fp32_dtype(arg.value, function)
            for arg in call.args
        )

    def _is_fp32_dtype(self, expr: ir.Expr, function: str) -> bool:
        names = {self.program.origin(expr, function) or ""}
        names |= {
            r.name for r in self.program.resolve(expr, function) if r.kind == "external"
        }
        return any(names) and all(
            dtype_table.FLOAT.fullmatch(name) for name in names if name
        )


def _casts(arg: ir.Arg) -> bool:
    """Whether a function that is given casts what it is called with: ``lambda m: m.double()``."""
    return isinstance(arg.value, ir.Deferred) and any(
        isinstance(inner, ir.Attr) and inner.attr in ("half", "bfloat16", "double")
        for inner in ir.walk(arg.value)
    )


def _is_fresh(expr: ir.Expr) -> bool:
    """Whether a tensor is made of nothing but a shape: ``torch.zeros(3)``."""
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        name = expr.func.attr
        if name in operations("made") or name.endswith(("_window", "FloatTensor")):
            return True
        if name in ALSO_OF_MODULES - {"cuda", "cpu"}:
            return False
        expr = expr.func.value
    return False


def last_word(func: ir.Expr, program: Program, function: str) -> str:
    """The last word of what is called, by its own name where it was imported under another."""
    name = program.origin(func, function) or ir.key_of(func) or ""
    return name.rsplit(".", 1)[-1]
