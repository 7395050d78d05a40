"""Tensors and parameters, of which only the shape matters."""

from __future__ import annotations

from dataclasses import replace

from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    External,
    Frame,
    Known,
    Tensor,
    Tup,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import MODELS, Model, model
from amp_migrate.program import ir


@model(
    "torch.empty",
    "torch.zeros",
    "torch.ones",
    "torch.rand",
    "torch.randn",
    "torch.Tensor",
    "torch.FloatTensor",
    "torch.cuda.FloatTensor",
)
def _tensor(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if given.rest:
        return Tensor(None)
    dims = tuple(given.positional)
    if "size" in given.keywords:
        dims = (given.keywords["size"],)
    if len(dims) == 1 and not isinstance(dims[0], Known):
        if isinstance(dims[0], Unknown):
            return Tensor(None)
        held = m.elements(dims[0])
        if held is None or f.origin.endswith("Tensor"):
            return Tensor(None)
        dims = held
    return Tensor(dims)


@model("torch.full")
def _full(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    size = given.get(0, "size")
    held = None if size is None else m.elements(size)
    return Tensor(held)


@model("torch.nn.Parameter", "torch.nn.parameter.Parameter")
def _parameter(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    data = given.get(0, "data")
    if isinstance(data, Tensor):
        return replace(data, is_parameter=True)
    return Tensor(None, True)


def _of_tensor(name: str) -> Model:
    def run(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
        tensor = f.of
        if not isinstance(tensor, Tensor):
            return Unknown("tensor")
        shape = tensor.shape
        if name == "size":
            if shape is None:
                return Unknown("tensor")
            if given.positional:
                return m.item(Tup(shape), given.positional[0])
            return Tup(shape)
        if name == "dim":
            return Unknown("tensor") if shape is None else Known(len(shape))
        if name in ("t", "transpose") and shape is not None and len(shape) == 2:
            return Tensor(shape[::-1], tensor.is_parameter)
        return tensor

    return run


for _name in (
    "size dim t to cuda cpu float half contiguous normal_ uniform_ zero_ fill_ requires_grad_ mul_ "
    "div_ clone type_as"
).split():
    MODELS[f"tensor.{_name}"] = _of_tensor(_name)


@model("torch.matmul", "torch.mm", "torch.bmm")
def _matmul(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    return Unknown("data")
