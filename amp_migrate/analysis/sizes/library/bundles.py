"""Bundles of attributes: namespaces, named tuples, fields, and modules."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    OPEN,
    External,
    Frame,
    Instance,
    Known,
    Mapping_,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import MODELS, model
from amp_migrate.program import ir


@model(
    "types.SimpleNamespace",
    "argparse.Namespace",
    "easydict.EasyDict",
    "box.Box",
    "addict.Dict",
    "attrdict.AttrDict",
    "munch.Munch",
    "ml_collections.ConfigDict",
    "ml_collections.config_dict.ConfigDict",
)
def _namespace(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Instance(None, "namespace")
    if given.rest == "unknown" or len(given.positional) > 1:
        m.spoil([made], "arguments")
        return made
    if given.positional:
        source = given.positional[0]
        if isinstance(source, Mapping_) and OPEN not in source.state:
            for name, value in source.entries().items():
                if isinstance(value, Mapping_):
                    inner = _namespace(m, f, Given([value]), site, frame)
                    made.state[name] = inner
                else:
                    made.state[name] = value
        else:
            m.spoil([made], "arguments")
    if given.rest:
        made.state[OPEN] = Known(given.rest)
    made.state.update(given.keywords)
    return made


@model("dataclasses.field", "attr.ib", "attrs.field", "pydantic.Field")
def _field(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    made = Instance(None, "field")
    made.state.update(given.keywords)
    if f.origin == "pydantic.Field" and given.positional:
        made.state["default"] = given.positional[0]
    return made


@model("dataclasses.replace", "copy.replace")
def _replaced(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    source = given.positional[0] if given.positional else None
    if not isinstance(source, Instance) or given.rest:
        return Unknown("copy")
    made = Instance(source.cls, source.kind, source.layer)
    made.state.update(source.state)
    made.state.update(given.keywords)
    return made


@model("dataclasses.asdict")
def _asdict(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    source = given.positional[0] if given.positional else None
    if not isinstance(source, Instance) or OPEN in source.state:
        return Unknown("copy")
    made = Mapping_()
    for name, value in source.state.items():
        made.state["key", name] = value
    return made


@model(
    "module.add_module",
    "module.register_module",
    "module.register_parameter",
    "module.register_buffer",
)
def _register(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    name, value = given.get(0, "name"), given.get(1, "module")
    if isinstance(f.of, Instance) and isinstance(name, Known) and value is not None:
        m.set_attribute(f.of, str(name.value), value)
    return Known(None)


def _itself(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    return f.of or Unknown("call")


_RETURN_THEMSELVES = (
    "to cuda cpu float half double train eval apply requires_grad_".split()
)
for _kind in ("module", "list", "dict", "layer", "model"):
    for _name in _RETURN_THEMSELVES:
        MODELS[f"{_kind}.{_name}"] = _itself


MODELS["torch.nn.DataParallel"] = lambda m, f, given, site, frame: Unknown("data")
