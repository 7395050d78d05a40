"""The matrix products inside one call of an ATen operator, with their sizes.

A product is C[m, n] = A[m, k] B[k, n], `batch` times at once. A convolution is its implicit GEMM: m
counts positions, n and k channels and taps; per group, the groups being the batch. FLOPs count a
multiplication and an addition as two, as torch.utils.flop_counter does, and only useful ones. Bytes
are the least that must move: each operand read once, the result written once.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch


class Product(NamedTuple):
    """One matrix product. Hashable, so that equal ones can be counted."""

    form: str
    """``matmul``, ``vector`` (a matrix or vector times a vector), ``conv``, ``attention``,
    ``rnn_input``, ``rnn_recurrent`` or ``rnn_projection``."""
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    flops: int
    bytes: int
    rows: str = ""
    """Of a matmul: which of m, n, k lies contiguous in memory in A, in B and in C, such as ``kkn``.
    It is these that alignment is about."""
    lead: tuple[int, ...] = ()
    """Of a matmul: the leading dimensions of A and B, in elements."""
    layer: tuple[tuple[str, Any], ...] = ()
    """Of others: the sizes as their layer names them."""
    times: int = 1
    """How often in a row: the steps of a recurrent layer."""


if TYPE_CHECKING:
    Sizes = Callable[[dict[str, Any], Any], list[Product]]
    """From the arguments by their names, and the result, to the products."""


class NotDense(Exception):
    """A tensor is not a plain strided one: the products are not what their sizes say."""


def sizes_of(name: str) -> Sizes | None:
    """How an operator's products are found; None if it makes none. ``name`` as ``aten::addmm_``."""
    return _BY_NAME.get(name[:-1] if name.endswith("_") else name)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).replace("torch.", "")


def _bytes(*tensors: torch.Tensor | None) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def _frozen(**sizes: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(sizes.items())


# --- products of matrices and vectors -----------------------------------------------------------


def _contiguous(matrix: torch.Tensor, names: str) -> tuple[str, int]:
    """Which dimension is contiguous, and the leading dimension, as cuBLAS will be told.

    What is contiguous in neither is copied by torch first, row by row.
    """
    if matrix.layout is not torch.strided:
        raise NotDense(str(matrix.layout))
    rows, columns = matrix.shape[-2:]
    outer, inner = matrix.stride()[-2:]
    if (inner == 1 or columns == 1) and outer >= columns:
        return names[1], outer if rows > 1 else columns
    if (outer == 1 or rows == 1) and inner >= rows:
        return names[0], inner if columns > 1 else rows
    return names[1], columns


def _matmul(left: str, right: str) -> Sizes:
    def sizes(named: dict[str, Any], result: Any) -> list[Product]:
        a, b = named[left], named[right]
        m, k = a.shape[-2:]
        n = b.shape[-1]
        batch = a.shape[0] if a.dim() == 3 else 1
        a_row, a_lead = _contiguous(a, "mk")
        b_row, b_lead = _contiguous(b, "kn")
        added = named["self"] if left != "self" else None
        return [
            Product(
                "matmul",
                m,
                n,
                k,
                batch,
                _dtype(a),
                2 * m * n * k * batch,
                _bytes(a, b, result, added),
                a_row + b_row + "n",
                (a_lead, b_lead),
            )
        ]

    return sizes


def _vector(left: str, right: str) -> Sizes:
    def sizes(named: dict[str, Any], result: Any) -> list[Product]:
        a, b = named[left], named[right]
        if a.layout is not torch.strided:
            raise NotDense(str(a.layout))
        k = b.shape[0]
        m = a.numel() // k if k else 0
        moved = _bytes(a, b, result)
        return [Product("vector", m, 1, k, 1, _dtype(a), 2 * m * k, moved)]

    return sizes


# --- convolutions -------------------------------------------------------------------------------


def _convolution(named: dict[str, Any], result: Any) -> list[Product]:
    layer = _Conv(named, named["input"], result)
    moved = _bytes(named["input"], named["weight"], result, named["bias"])
    return [layer.product("forward", moved)]


def _convolution_backward(named: dict[str, Any], result: Any) -> list[Product]:
    grad, image, weight = named["grad_output"], named["input"], named["weight"]
    layer = _Conv(named, image, grad)
    moved = _bytes(grad, image, weight)  # of three tensors two are read, one is written
    to_input, to_weight = named["output_mask"][:2]
    roles = ["dgrad"] * to_input + ["wgrad"] * to_weight
    return [layer.product(role, moved) for role in roles]


class _Conv:
    def __init__(
        self, named: dict[str, Any], image: torch.Tensor, out: torch.Tensor
    ) -> None:
        weight = named["weight"]
        self.dtype = _dtype(image)
        self.transposed = bool(named["transposed"])
        self.groups = int(named["groups"])
        self.kernel = tuple(weight.shape[2:])
        self.image, self.out = image.shape, out.shape
        batch, c_in, c_out = image.shape[0], image.shape[1], out.shape[1]
        self.places_in = batch * math.prod(image.shape[2:])
        self.places_out = batch * math.prod(out.shape[2:])
        self.each_in, self.each_out = c_in // self.groups, c_out // self.groups
        self.sizes = {
            "dims": len(self.kernel),
            "batch": batch,
            "c_in": c_in,
            "size": tuple(image.shape[2:]),
            "c_out": c_out,
            "kernel": self.kernel,
            "stride": tuple(named["stride"]),
            "dilation": tuple(named["dilation"]),
            "groups": self.groups,
            "transposed": self.transposed,
            "channels_last": _channels_last(image),
        }

    def product(self, role: str, moved: int) -> Product:
        taps = math.prod(self.kernel)
        to_out = (self.places_out, self.each_out, self.each_in * taps)
        to_in = (self.places_in, self.each_in, self.each_out * taps)
        if role == "wgrad":
            # Of a transposed one the weight is [c_in, c_out, ...]: the input takes the gradient's part.
            m, n, k = (
                (self.each_in, self.each_out * taps, self.places_in)
                if self.transposed
                else (self.each_out, self.each_in * taps, self.places_out)
            )
        elif role == "forward":
            m, n, k = to_out
        else:
            m, n, k = to_in
        # Every tap of every channel meets each place of the smaller side once.
        places = self.places_in if self.transposed else self.places_out
        flops = 2 * places * taps * self.each_in * self.each_out * self.groups
        layer = _frozen(role=role, **self.sizes)
        return Product(
            "conv", m, n, k, self.groups, self.dtype, flops, moved, layer=layer
        )


def _channels_last(image: torch.Tensor) -> bool:
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(image.dim())
    return form is not None and image.is_contiguous(memory_format=form)


# --- attention ----------------------------------------------------------------------------------


def _attention(products: int, backward: bool) -> Sizes:
    """``products``: how many of the size of Q K^T a fused kernel makes.

    Forward two; backward five, since Q K^T is made again. Causal masks are not taken off.
    """

    def sizes(named: dict[str, Any], result: Any) -> list[Product]:
        query, key, value = named["query"], named["key"], named["value"]
        batch, heads, m, width = query.shape
        n, width_v = key.shape[2], value.shape[3]
        # Q K^T, and dQ, dK of it, sum over or make the width of Q; P V, and dP, dV, that of V.
        of_v = products // 2
        flops = 2 * batch * heads * m * n * ((products - of_v) * width + of_v * width_v)
        out = query.numel() // width * width_v * query.element_size()
        moved = _bytes(query, key, value) + out
        if (
            backward
        ):  # it reads the result and its gradient too, and writes three gradients
            moved = 2 * moved
        layer = _frozen(
            heads=heads,
            head_dim=width,
            head_dim_v=width_v,
            causal=bool(named.get("is_causal", False)),
        )
        dtype = _dtype(query)
        return [
            Product(
                "attention",
                m,
                n,
                width,
                batch * heads,
                dtype,
                flops,
                moved,
                layer=layer,
            )
        ]

    return sizes


# --- recurrent layers ---------------------------------------------------------------------------

_CUDNN_GATES = (1, 1, 4, 3)  # relu, tanh, LSTM, GRU


def _one_rnn_layer(backward: bool) -> Sizes:
    """oneDNN's call is one layer in one direction; the input is [time, batch, features]."""

    def sizes(named: dict[str, Any], result: Any) -> list[Product]:
        x = named["input"]
        hidden = int(named["hidden_size"])
        weight = named["weight1" if backward else "weight0"]
        steps = collections.Counter(named["batch_sizes"] or [x.shape[1]] * x.shape[0])
        gates = weight.shape[0] // hidden
        return _rnn(x, steps, x.shape[-1], hidden, gates, backward)

    return sizes


def _whole_rnn(backward: bool) -> Sizes:
    """cuDNN's and MIOpen's call is the whole stack."""

    def sizes(named: dict[str, Any], result: Any) -> list[Product]:
        x = named["input"]
        hidden = int(named["hidden_size"])
        projected = int(named.get("proj_size", 0))
        gates = _CUDNN_GATES[named["mode"]]
        ways = 2 if named["bidirectional"] else 1
        if named["batch_sizes"]:
            steps = collections.Counter(named["batch_sizes"])
        else:
            first = bool(named["batch_first"])
            steps = collections.Counter([x.shape[1 - first]] * x.shape[int(first)])
        found = []
        features = x.shape[-1]
        for layer in range(named["num_layers"]):
            no_dgrad = layer == 0 and backward and not named["output_mask"][0]
            for _ in range(ways):
                found += _rnn(
                    x, steps, features, hidden, gates, backward, projected, no_dgrad
                )
            features = ways * (projected or hidden)
        return found

    return sizes


def _rnn(
    x: torch.Tensor,
    steps: collections.Counter[int],
    features: int,
    hidden: int,
    gates: int,
    backward: bool,
    projected: int = 0,
    no_dgrad: bool = False,
) -> list[Product]:
    """``steps``: how many steps in time have each batch size."""
    tokens = sum(batch * times for batch, times in steps.items())
    state = projected or hidden
    wide = gates * hidden
    layer = _frozen(input=features, hidden=hidden, gates=gates, projection=projected)
    found: list[Product] = []

    def add(form: str, m: int, n: int, k: int, times: int = 1) -> None:
        moved = (m * k + k * n + m * n) * x.element_size()
        flops = 2 * m * n * k
        found.append(
            Product(form, m, n, k, 1, _dtype(x), flops, moved, "", (), layer, times)
        )

    if not backward:
        add("rnn_input", tokens, wide, features)
        for batch, times in steps.items():
            add("rnn_recurrent", batch, wide, state, times)
            if projected:
                add("rnn_projection", batch, projected, hidden, times)
        return found
    if not no_dgrad:
        add("rnn_input", tokens, features, wide)
    add("rnn_input", wide, features, tokens)
    for batch, times in steps.items():
        add("rnn_recurrent", batch, state, wide, times)
        if projected:
            add("rnn_projection", batch, hidden, projected, times)
    add("rnn_recurrent", wide, state, tokens)
    if projected:
        add("rnn_projection", projected, hidden, tokens)
    return found


_BY_NAME: dict[str, Sizes] = {
    "aten::mm": _matmul("self", "mat2"),
    "aten::addmm": _matmul("mat1", "mat2"),
    "aten::_addmm_activation": _matmul("mat1", "mat2"),
    "aten::bmm": _matmul("self", "mat2"),
    "aten::baddbmm": _matmul("batch1", "batch2"),
    "aten::addbmm": _matmul("batch1", "batch2"),
    "aten::_int_mm": _matmul("self", "mat2"),
    "aten::_scaled_mm": _matmul("self", "mat2"),
    "aten::mv": _vector("self", "vec"),
    "aten::addmv": _vector("mat", "vec"),
    "aten::dot": _vector("self", "tensor"),
    "aten::vdot": _vector("self", "other"),
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::mkldnn_rnn_layer": _one_rnn_layer(backward=False),
    "aten::mkldnn_rnn_layer_backward": _one_rnn_layer(backward=True),
    "aten::_cudnn_rnn": _whole_rnn(backward=False),
    "aten::_cudnn_rnn_backward": _whole_rnn(backward=True),
    "aten::miopen_rnn": _whole_rnn(backward=False),
    "aten::miopen_rnn_backward": _whole_rnn(backward=True),
}
for _backend in (
    "flash_attention",
    "flash_attention_for_cpu",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
):
    _name = "aten::_scaled_dot_product_" + _backend
    _BY_NAME[_name] = _attention(2, backward=False)
    _BY_NAME[_name + "_backward"] = _attention(5, backward=True)
