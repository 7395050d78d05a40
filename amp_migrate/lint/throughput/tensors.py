"""Which values in a function are tensors on the device, as far as this can be told for sure."""

from __future__ import annotations

from amp_migrate.analysis.objects.moves import is_literal_cuda
from amp_migrate.analysis.tables.destinations import DEVICE, kind_of
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import unpacked

_TO_HOST = frozenset(
    """item tolist cpu numpy size dim ndimension numel nelement element_size get_device is_contiguous
    stride data_ptr backward type storage keys values items append extend update __len__ register_hook
    requires_grad_ is_floating_point step zero_grad state_dict parameters named_parameters""".split()
)
"""Methods that do not give a tensor on the device, whatever they are called on."""
_FIELDS = frozenset(
    "data grad T mT real imag loss logits last_hidden_state pooler_output".split()
)
"""Attributes of a tensor, or of what a model gives, that are tensors on the same device."""
_NO_TENSOR = frozenset(
    "torch.is_tensor torch.numel torch.save torch.load torch.is_floating_point torch.typename".split()
)
_ARITHMETIC = frozenset("+ - * / // % ** @ << >> & | ^ -x ~ == != < <= > >=".split())

_State = dict[str, bool]


class Tensors:
    """The values of one function, followed in source order."""

    def __init__(self, training: Training, function: str) -> None:
        self.training = training
        self.program = training.program
        self.function = function
        self._before: dict[ir.Path, _State] = {}
        state: _State = {}
        for stmt in self.program.statements(function):
            self._before[stmt.path] = dict(state)
            self._bind(stmt, state)

    def is_tensor(self, expr: ir.Expr, stmt: ir.Stmt) -> bool:
        """Whether an expression of a statement is surely a tensor on the device."""
        return self._is(expr, self._before.get(stmt.path, {}))

    def _bind(self, stmt: ir.Stmt, state: _State) -> None:
        for target, value, index in unpacked(stmt):
            key = ir.key_of(target)
            if key is None:
                continue
            if stmt.kind == "augassign" and stmt.value is not None:
                state[key] = state.get(key, False) or self._is(stmt.value, state)
            elif stmt.kind == "for" and stmt.value is not None:
                parameter = _is_parameter(stmt.value, index)
                state[key] = parameter or self._is(stmt.value, state)
            else:
                state[key] = value is not None and self._is(value, state)

    def _is(self, expr: ir.Expr, state: _State) -> bool:
        key = ir.key_of(expr)
        if key is not None and key in state:
            return state[key]
        match expr:
            case ir.Attr(value=value, attr=attr):
                return attr in _FIELDS and self._is(value, state)
            case ir.Item(value=value):
                return self._is(value, state)
            case ir.Operation(op="if", operands=(_, body, orelse)):
                return self._is(body, state) or self._is(orelse, state)
            case ir.Operation(op=op, operands=operands):
                return op in _ARITHMETIC and any(self._is(o, state) for o in operands)
            case ir.Walrus(value=value):
                return self._is(value, state)
            case ir.Call():
                return self._is_call(expr, state)
        return False

    def _is_call(self, call: ir.Call, state: _State) -> bool:
        program, function = self.program, self.function
        given = any(self._is(arg.value, state) for arg in call.args)
        origin = program.origin(call.func, function)
        if origin is not None:
            if not given or not origin.startswith("torch.") or origin in _NO_TENSOR:
                return False
            last = origin.rsplit(".", 1)[-1]
            return last.islower() and not origin.startswith(
                ("torch.cuda.", "torch.distributed.")
            )
        if isinstance(call.func, ir.Attr):
            receiver, method = call.func.value, call.func.attr
            if method in ("cuda", "to") and self._is_module(receiver, state):
                return False
            if method == "cuda":
                return True
            if method == "to" and call.args:
                return self._moved(call, receiver, state)
            if self._is(receiver, state):
                return method not in _TO_HOST
        if not self.training.forward.is_forward(call, function):
            return False
        refs = program.resolve(call.func, function)
        modules = [r for r in refs if r.kind in ("instance", "made")]
        return bool(modules) or (given and not refs)

    def _is_module(self, expr: ir.Expr, state: _State) -> bool:
        """Whether it is a module that is moved, of which nothing has to be read."""
        forward = self.training.forward
        return not self._is(expr, state) and forward.is_module(expr, self.function)

    def _moved(self, call: ir.Call, receiver: ir.Expr, state: _State) -> bool:
        device = call.argument(0, "device")
        if device is None:
            return self._is(receiver, state)
        if isinstance(device, ir.Const) and isinstance(device.value, str):
            return is_literal_cuda(device)
        if kind_of(self.program, device, self.function) == DEVICE:
            return True
        return self._is(receiver, state)


def _is_parameter(expr: ir.Expr, index: int | None) -> bool:
    """Whether a target of a loop over ``parameters()`` or ``named_parameters()`` is the parameter."""
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        wanted = {"parameters": None, "named_parameters": 1}
        return expr.func.attr in wanted and wanted[expr.func.attr] == index
    return False
