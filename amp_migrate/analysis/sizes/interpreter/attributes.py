"""Attributes, entries and elements of values."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.analysis.sizes.domain.choices import choice
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    OPEN,
    Absent,
    Choice,
    ClassValue,
    External,
    Func,
    Instance,
    Known,
    Lambda,
    Mapping_,
    Partial,
    Sequence,
    Super,
    Tensor,
    Tup,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.displays import Displays
from amp_migrate.program import ir

MODULE_BASES = frozenset(
    (
        "torch.nn.Module torch.nn.modules.Module torch.nn.modules.module.Module builtins.object "
        "abc.ABC typing.Generic typing.Protocol"
    ).split()
)
"""Bases that bring no attribute that a size is read from."""
_MATH = {
    "math.pi": 3.141592653589793,
    "math.e": 2.718281828459045,
    "math.inf": float("inf"),
    "numpy.pi": 3.141592653589793,
    "numpy.inf": float("inf"),
}
_MODULE_OWN = frozenset({"training", "forward", "weight", "bias", "device", "dtype"})


class Attributes(Displays):
    """``value.name``, ``value[key]``, and what a loop gets."""

    def is_plain_object(self, value: Value) -> bool:
        """Whether a value is an object that is true whatever it holds."""
        if isinstance(value, Instance):
            return value.cls is None or (
                self.method(value.cls, "__bool__") is None
                and self.method(value.cls, "__len__") is None
                and self.is_closed(value.cls)
            )
        return isinstance(value, (Func, Lambda, ClassValue, External, Partial))

    def method(self, cls: ClassValue, name: str) -> Value | None:
        """What a class, or the first of its bases that has it, holds under a name."""
        for one in cls.mro:
            found = one.state.get(name)
            if found is not None and not isinstance(found, Absent):
                return found
        return None

    def is_closed(self, cls: ClassValue) -> bool:
        """Whether all that instances of a class hold is written in the program."""
        return all(
            isinstance(base, ClassValue)
            or (isinstance(base, External) and base.origin in MODULE_BASES)
            for one in cls.mro
            for base in one.bases
        )

    def attribute(self, value: Value, name: str) -> Value:
        """What ``value.name`` is worth."""
        self.step()
        match value:
            case Unknown(reason=reason):
                return Unknown(reason or "attribute")
            case Choice():
                return self._each(value, lambda one: self.attribute(one, name))
            case Instance():
                found = self.find(value, name)
                return Unknown("attribute") if found is None else found
            case ClassValue():
                if name == "__name__":
                    return Known(value.facts.name)
                found = self.method(value, name)
                if found is None:
                    return Unknown("attribute")
                return self._of_class(found, value)
            case Super(receiver=receiver, after=after):
                return self._of_super(receiver, after, name)
            case External(origin="dict.of", of=held) if held is not None:
                return External(f"dict.{name}", held)
            case External(origin=origin, of=None):
                dotted = f"{origin}.{name}"
                if dotted in _MATH:
                    return Known(_MATH[dotted])
                return self.external(dotted)
            case Mapping_():
                return External(f"dict.{name}", value)
            case Sequence():
                return External(f"list.{name}", value)
            case Tensor(shape=shape):
                if name == "shape":
                    return Unknown("tensor") if shape is None else Tup(shape)
                if name in ("data", "detach", "T"):
                    return value if name == "data" else Unknown("tensor")
                return External(f"tensor.{name}", value)
            case Known(value=str()):
                return External(f"str.{name}", value)
            case Tup(names=names, items=items):
                if name in names:
                    return items[names.index(name)]
                return External(f"tuple.{name}", value)
            case Func(function=function):
                return (
                    Known(function.name) if name == "__name__" else Unknown("attribute")
                )
            case _:
                return Unknown("attribute")

    def _each(self, value: Choice, read: Callable[[Value], Value]) -> Value:
        return choice([(world, read(one)) for world, one in value.alternatives])

    def find(self, value: Instance, name: str) -> Value | None:
        """An attribute of an object; None where it has none of this name for sure."""
        found = value.state.get(name)
        if found is not None and not isinstance(found, Absent):
            return found
        if OPEN in value.state:
            openness = value.state[OPEN]
            if isinstance(openness, Unknown):
                return Unknown(openness.reason)
        if name == "__class__" and value.cls is not None:
            return value.cls
        if name == "__dict__":
            return External("dict.of", value)
        if value.kind == "layer":
            return self._of_layer(value, name)
        if value.kind == "model":
            return self._of_model(value, name)
        if value.cls is None:
            if value.kind == "namespace":
                return None
            return External(f"{value.kind}.{name}", value)
        held = self.method(value.cls, name)
        if held is not None:
            return self._bound(held, value, value.cls)
        if not self.is_closed(value.cls) or self.method(value.cls, "__getattr__"):
            return Unknown("attribute of a library's class")
        if name in _MODULE_OWN or name.startswith("__"):
            return Unknown("attribute")
        return self._module_method(value, name)

    def _module_method(self, value: Instance, name: str) -> Value | None:
        if name in _MODULE_METHODS:
            return External(f"module.{name}", value)
        return None

    def _bound(self, held: Value, receiver: Instance, cls: ClassValue) -> Value:
        if self.is_descriptor(held):
            return Unknown("descriptor")
        if not isinstance(held, Func):
            return held
        kinds = decorations(held.function)
        if kinds & {"property", "cached_property"}:
            bound = Func(held.function, held.scope, held.defaults, receiver, held.owner)
            site = ir.Call(ir.Name(held.function.name), (), held.function.line)
            found = self.call(bound, Given(), site, held.scope)
            if "cached_property" in kinds:
                self.write(receiver, held.function.name, found)
            return found
        if "staticmethod" in kinds:
            return held
        target: Value = cls if "classmethod" in kinds else receiver
        return Func(held.function, held.scope, held.defaults, target, held.owner)

    def _of_class(self, held: Value, cls: ClassValue) -> Value:
        if isinstance(held, Func):
            kinds = decorations(held.function)
            if "classmethod" in kinds:
                return Func(held.function, held.scope, held.defaults, cls, held.owner)
            if "property" in kinds:
                return Unknown("property")
        return Unknown("descriptor") if self.is_descriptor(held) else held

    def is_descriptor(self, held: Value) -> bool:
        """Whether what a class holds is asked for the value each time, and told what is assigned."""
        if not isinstance(held, Instance) or held.cls is None:
            return False
        return any(self.method(held.cls, name) for name in ("__get__", "__set__"))

    def _of_super(self, receiver: Value, after: ClassValue, name: str) -> Value:
        cls = receiver.cls if isinstance(receiver, Instance) else receiver
        if not isinstance(cls, ClassValue) or after not in cls.mro:
            return Unknown("super")
        for one in cls.mro[cls.mro.index(after) + 1 :]:
            found = one.state.get(name)
            if found is not None and not isinstance(found, Absent):
                if isinstance(receiver, Instance):
                    return self._bound(found, receiver, cls)
                return self._of_class(found, cls)
        outside = [
            base
            for one in cls.mro[cls.mro.index(after) :]
            for base in one.bases
            if not isinstance(base, ClassValue)
        ]
        if outside and isinstance(outside[0], External):
            return External(f"{outside[0].origin}.{name}", receiver)
        return (
            External(f"builtins.object.{name}", receiver)
            if not outside
            else Unknown("super")
        )

    def _of_layer(self, value: Instance, name: str) -> Value:
        layer = self.table.layers[value.layer]
        if name == "weight" and layer.shape:
            shape = tuple(
                value.state.get(layer.sizes[one], Unknown("tensor"))
                for one in layer.shape
            )
            return Tensor(shape, True)
        if name == "weight" and layer.spatial and "in" in layer.sizes:
            return self._kernel(value)
        return External(f"layer.{name}", value)

    def _kernel(self, value: Instance) -> Value:
        # The first two sizes; those of the kernel are nobody's width.
        layer = self.table.layers[value.layer]
        one, other = (
            value.state.get(layer.sizes[name], Unknown("tensor"))
            for name in ("in", "out")
        )
        groups = value.state.get("groups", Known(1))
        if "Transpose" in layer.name:
            one, other = other, one
        shared = self.operate("//", one, groups)
        return Tensor(
            (other, shared, *(Unknown("tensor") for _ in range(layer.spatial)))
        )

    def _of_model(self, value: Instance, name: str) -> Value:
        known = self.table.attributes.get(value.layer, {})
        before = value.state.get("path")
        path = before.value if isinstance(before, Known) else ""
        whole = f"{path}.{name}" if path else name
        if whole in known:
            return Known(known[whole])
        if any(one.startswith(whole + ".") for one in known):
            part = Instance(None, "model", value.layer)
            part.state["path"] = Known(whole)
            return part
        return External(f"model.{name}", value)


_MODULE_METHODS = frozenset(
    """add_module register_buffer register_parameter register_module apply parameters modules
    named_modules named_parameters children named_children to cuda cpu float half double train eval
    state_dict load_state_dict zero_grad requires_grad_ type register_forward_hook buffers
    register_forward_pre_hook""".split()
)


def decorations(function: ir.Function) -> set[str]:
    """The last parts of the names of a function's decorators."""
    found = set()
    for decorator in function.decorators:
        expr = decorator.func if isinstance(decorator, ir.Call) else decorator
        if isinstance(expr, ir.Attr):
            found.add(expr.attr)
        elif isinstance(expr, ir.Name):
            found.add(expr.id)
    return found
