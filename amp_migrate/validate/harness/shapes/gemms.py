"""Records every matrix product and convolution that runs, with its sizes and the line it came from.

It stands below autograd and autocast, so it sees the types that really multiply, and the backward.
A product in the backward belongs to the line whose forward made the autograd node: nodes are numbered
in the order of their birth, per thread, and the number at each forward operator is kept with its line.
Torch 2.0 does not tell a node's number; there the lines of the backward stay unknown.

Cells of recurrent layers (`lstm_cell`, `_thnn_fused_lstm_cell`) are pointwise: their products pass
here by themselves. Causal attention counts as if it were not masked. Under torch.compile the products
are those of the plain code, since torch does not compile under a dispatch mode; what must compile
(`fullgraph=True`, flex attention) raises.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..log import Log
from ..where import Line, Where
from .products import NotDense, Product, sizes_of

if TYPE_CHECKING:
    from .products import Sizes

_current_node: Callable[[], Any] = torch._C._current_autograd_node
_next_number: Callable[[], int] | None = getattr(
    torch.autograd, "_get_sequence_nr", None
)

_PLAIN = torch.Tensor.__torch_dispatch__

_KNOWN_NAMESPACES = frozenset({"aten", "prim", "prims", "profiler", "_c10d_functional"})
_OPAQUE = frozenset(
    {
        "aten::_native_multi_head_attention",
        "aten::_transformer_encoder_layer_fwd",
        "aten::_trilinear",
        "aten::_flash_attention_forward",
        "aten::_flash_attention_backward",
        "aten::_efficient_attention_forward",
        "aten::_efficient_attention_backward",
        "aten::_grouped_mm",
        "aten::_scaled_grouped_mm",
        "aten::_sparse_addmm",
        "aten::quantized_lstm",
    }
)
"""Operators of torch's that multiply matrices whose sizes are not in their arguments."""


class _Operator(NamedTuple):
    """What is known of an operator before it runs."""

    name: str
    arguments: tuple[str, ...]
    sizes: Sizes | None
    is_opaque: bool
    is_composite: bool


class _Seen(NamedTuple):
    """What makes two products one line of the log."""

    line: Line | None
    operator: str
    phase: str
    tf32: bool
    product: Product


class GemmRecorder(TorchDispatchMode):
    """``with GemmRecorder(where) as gemms: ...; gemms.finish(log)``. One for a process."""

    supports_higher_order_operators = True

    def __init__(self, where: Where) -> None:
        super().__init__()
        self._where = where
        self._operators: dict[Any, _Operator] = {}
        self._products: dict[_Seen, int] = {}
        self._opaque: dict[tuple[Line | None, str, str, str], int] = {}
        self._calls = 0
        self._lock = threading.Lock()
        self._births = _Births()
        self._engine = _engine_entries()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(type_.__torch_dispatch__ is not _PLAIN for type_ in types):
            return (
                NotImplemented  # a tensor class of its own: what it does will come by
            )
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = _describe(func)
        if operator.is_composite:  # in inference mode: elsewhere its parts come by
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if self._births.is_new():
            self._births.note(self._line(_current_node()))
        result = func(*args, **kwargs)
        self._calls += 1
        if operator.sizes is not None or operator.is_opaque:
            self._record(operator, args, kwargs, result)
        return result

    def finish(self, log: Log) -> None:
        """Say what was recorded, the costliest first, and a line of totals.

        ``gemm``: one for each line, operator, phase, product. ``flops`` and ``bytes`` are those of
        all ``count`` together. ``opaque_op``: an operator that may multiply matrices unseen.
        """
        counted = sorted(
            self._products.items(), key=lambda item: -item[1] * item[0].product.flops
        )
        for seen, count in counted:
            fields = seen.product._asdict()
            del fields["times"]  # is in the count
            fields["layer"] = dict(seen.product.layer)
            for cost in ("flops", "bytes"):
                fields[cost] *= count
            log.say(
                "gemm",
                line=seen.line,
                op=seen.operator,
                phase=seen.phase,
                tf32=seen.tf32,
                count=count,
                **fields,
            )
        for (line, name, phase, why), count in self._opaque.items():
            log.say("opaque_op", line=line, op=name, phase=phase, why=why, count=count)
        flops = sum(count * seen.product.flops for seen, count in counted)
        log.say("gemm_total", ops=self._calls, flops=flops, distinct=len(counted))

    def _record(self, operator: _Operator, args: Any, kwargs: Any, result: Any) -> None:
        if any(isinstance(arg, torch.Tensor) and arg.is_meta for arg in args):
            return  # nothing runs there
        node = _current_node()
        line = self._line(node)
        phase = "forward" if node is None else "backward"
        why = "its products are not in its arguments"
        products: list[Product] = []
        if operator.sizes is not None:
            named = dict(kwargs)
            named.update((operator.arguments[i], arg) for i, arg in enumerate(args))
            try:
                products = operator.sizes(named, result)
                why = ""
            except NotDense as error:
                why = str(error)
            except Exception as error:  # a form of the operator that is not known here
                why = f"{type(error).__name__}: {error}"
        tf32 = _tf32(products)
        with self._lock:
            if why:
                key = (line, operator.name, phase, why)
                self._opaque[key] = self._opaque.get(key, 0) + 1
            for product in products:
                seen = _Seen(
                    line, operator.name, phase, tf32, product._replace(times=1)
                )
                self._products[seen] = self._products.get(seen, 0) + product.times

    def _line(self, node: Any) -> Line | None:
        """The user's line: of the running code, or of the forward that made the node."""
        if node is None:
            return self._where.line(2)
        line, is_callers = self._line_in_backward()
        return line if line is not None else self._births.line_of(node, is_callers)

    def _line_in_backward(self) -> tuple[Line | None, bool]:
        """The user's code that the engine called (a Function, a checkpoint), if there is any.

        And whether this thread called the engine: else it is one of the engine's own.
        """
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if code in self._engine:
                return None, True
            if self._where.is_users(code.co_filename):
                return Line(code.co_filename, frame.f_lineno, code.co_name), True
            frame = frame.f_back  # type: ignore[assignment]
        return None, False


class _Births:
    """At which line each autograd node was born, by the thread's own count of nodes."""

    def __init__(self) -> None:
        self._last = threading.local()
        self._lines: dict[int, dict[int, Line | None]] = {}
        self._caller = threading.get_ident()

    def is_new(self) -> bool:
        """Whether this thread has made a node since the last call."""
        if _next_number is None:
            return False
        number = _next_number()
        if number == getattr(self._last, "number", 0):
            return False
        self._last.number = number
        return True

    def note(self, line: Line | None) -> None:
        lines = self._lines.setdefault(threading.get_ident(), {})
        lines[self._last.number - 1] = line

    def line_of(self, node: Any, is_callers: bool) -> Line | None:
        """``is_callers``: the graph was built in this thread; else in the main one."""
        if _next_number is None:
            return None
        thread = threading.get_ident() if is_callers else self._caller
        return self._lines.get(thread, {}).get(node._sequence_nr())


def _describe(func: Any) -> _Operator:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return _Operator(str(func), (), None, True, False)
    name = str(schema.name)
    sizes = sizes_of(name)
    arguments = tuple(argument.name for argument in schema.arguments)
    is_opaque = name in _OPAQUE or name.partition("::")[0] not in _KNOWN_NAMESPACES
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return _Operator(name, arguments, sizes, is_opaque, composite and sizes is None)


def _engine_entries() -> frozenset[CodeType]:
    """The functions from which a backward is started: beyond them the line is not its own."""
    graph = getattr(torch.autograd, "graph", None)
    entries: list[Any] = [torch.autograd.backward, torch.autograd.grad]
    entries.append(getattr(graph, "_engine_run_backward", None))
    return frozenset(entry.__code__ for entry in entries if hasattr(entry, "__code__"))


def _tf32(products: list[Product]) -> bool:
    """Whether CUDA would multiply these in TF32, by the switches as they are now."""
    if not products or products[0].dtype != "float32":
        return False
    is_cudnn = products[0].form == "conv" or products[0].form.startswith("rnn")
    try:
        if is_cudnn:
            return bool(torch._C._get_cudnn_allow_tf32())
        return bool(torch._C._get_cublas_allow_tf32())
    except (AttributeError, RuntimeError):  # old and new switches were mixed
        return False
