"""Objects of classes of the program, and the configurations that annotate parameters."""

from __future__ import annotations

from dataclasses import replace

from amp_migrate.analysis.sizes.domain.arithmetic import MAX_ITEMS
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.traces import link
from amp_migrate.analysis.sizes.domain.values import (
    ClassValue,
    External,
    Frame,
    Func,
    Instance,
    Known,
    Tup,
    Unknown,
    Value,
    is_number,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.attributes import MODULE_BASES
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir

_VALUES = ("builtins.", "collections.")
"""Where bases come from whose keywords are no attributes of the object."""
_FIELDS = frozenset({"typing.NamedTuple", "pydantic.BaseModel"})


_DATACLASSES = frozenset(
    (
        "dataclasses.dataclass attr.s attr.dataclass attr.define attrs.define attrs.frozen "
        "pydantic.dataclasses.dataclass"
    ).split()
)


class Construction(Calls):
    """Makes objects."""

    def annotated(self, func: Func, param: ir.Param) -> Value:
        """A parameter that nobody in the program gives: what its annotation makes of it."""
        made = self.configuration(func, param.annotation)
        return Unknown("parameter") if made is None else made

    def configuration(self, func: Func, annotation: ir.Expr | None) -> Value | None:
        """The defaults of a configuration class that annotates a parameter."""
        if isinstance(annotation, ir.Operation) and annotation.op == "|":
            annotation = annotation.operands[0]
        if isinstance(annotation, ir.Item):
            annotation = annotation.key
        if isinstance(annotation, ir.Const) and isinstance(annotation.value, str):
            if not annotation.value.isidentifier():
                return None
            annotation = ir.Name(annotation.value)
        if not isinstance(annotation, (ir.Name, ir.Attr)):
            return None
        cls = self.evaluate(annotation, func.scope)
        if not isinstance(cls, ClassValue) or not self.is_configuration(cls):
            return None
        site = ir.Call(annotation, (), func.function.line)
        outer, self.path = self.path, Confidence.DEFAULT
        try:
            return self.instantiate(cls, Given(rest="default"), site, func.scope)
        finally:
            self.path = outer

    def is_configuration(self, cls: ClassValue) -> bool:
        """Whether a class holds settings, all with defaults: a dataclass, or one named like it."""
        named = cls.facts.name.lower().endswith(("config", "args", "params", "options"))
        if not (named or self._fields(cls)):
            return False
        origins = {
            base.origin
            for one in cls.mro
            for base in one.bases
            if isinstance(base, External)
        }
        return not any(origin.endswith("nn.Module") for origin in origins)

    def instantiate(
        self, cls: ClassValue, given: Given, site: ir.Call, frame: Frame
    ) -> Value:
        """A new object of a class of the program."""
        outside = [
            base.origin if isinstance(base, External) else "?"
            for one in cls.mro
            for base in one.bases
            if not isinstance(base, ClassValue)
        ]
        if any(origin.startswith("enum.") for origin in outside):
            self.spoil(given.values())
            return Unknown("class")
        if cls.metaclass is not None and self.method(cls.metaclass, "__call__"):
            self.spoil(given.values())
            self._made(cls, Given(rest="unknown"), outside, site, frame)
            return Unknown("class")
        made = self._made(cls, given, outside, site, frame)
        # What ``__new__`` gives may be another object, or one that was there before.
        return made if self.method(cls, "__new__") is None else Unknown("class")

    def _made(
        self,
        cls: ClassValue,
        given: Given,
        outside: list[str],
        site: ir.Call,
        frame: Frame,
    ) -> Value:
        """An object with what its constructor does to it."""
        made = Instance(cls)
        if outside == ["collections.namedtuple"] and len(cls.mro) == 1:
            names = self.program.annotated(cls.facts.qualname)
            values = (given.get(k, name) for k, name in enumerate(names))
            parts = tuple(one or Unknown("parameter") for one in values)
            return Unknown("namedtuple") if given.rest else Tup(parts, names)
        if any(
            origin in ("builtins.dict", "collections.OrderedDict") for origin in outside
        ):
            self.spoil([made], "entries")
        init = self.method(cls, "__init__")
        if isinstance(init, Func):
            bound = replace(init, receiver=made)
            self.call_function(bound, given, site)
        elif fields := self._fields(cls):
            self._fill_fields(cls, made, fields, given)
            after = self.method(cls, "__post_init__")
            if isinstance(after, Func):
                self.call_function(replace(after, receiver=made), Given(), site)
        elif outside:
            for origin in outside:
                layer = self.table.at(origin)
                if layer is not None:
                    inner = self.recorder.layer(self, layer, given, site, frame)
                    if isinstance(inner, Instance):
                        made.state.update(inner.state)
                    break
                if origin not in MODULE_BASES and not origin.startswith(_VALUES):
                    for name, value in given.keywords.items():
                        made.state[name] = value
        return made

    def _fields(self, cls: ClassValue) -> list[tuple[str, ir.Stmt, ClassValue]]:
        """The fields of a dataclass, those of its bases first."""
        found: dict[str, tuple[str, ir.Stmt, ClassValue]] = {}
        is_one = False
        for one in reversed(cls.mro):
            facts = one.facts
            named = [
                self.program.origin(
                    d.func if isinstance(d, ir.Call) else d, facts.parent
                )
                for d in facts.decorators
            ]
            kinds = {base.origin for base in one.bases if isinstance(base, External)}
            if not (
                any(name in _DATACLASSES for name in named) or kinds & _FIELDS or is_one
            ):
                continue
            is_one = True
            for stmt in facts.body:
                if stmt.kind != "annassign" or stmt.op == "no field":
                    continue
                target = (*stmt.targets, *stmt.exprs)[0]
                if isinstance(target, ir.Name):
                    found[target.id] = (target.id, stmt, one)
        return list(found.values())

    def _fill_fields(
        self,
        cls: ClassValue,
        made: Instance,
        fields: list[tuple[str, ir.Stmt, ClassValue]],
        given: Given,
    ) -> None:
        for position, (name, stmt, _) in enumerate(fields[:MAX_ITEMS]):
            value = given.get(position, name)
            if value is not None:
                expr = given.exprs.get(name) or given.exprs.get(position)
                value = self.passed(name, value, expr, given.line)
            elif stmt.value is None:
                value = Unknown("parameter")
            else:
                value = self._field_default(cls, name, stmt)
                if given.rest and name in self.recorder.overwritten:
                    value = self._overwritten(value)
                elif given.rest:
                    value = weakened(value, Confidence.DEFAULT)
            self.write(made, name, value)

    def _overwritten(self, value: Value) -> Value:
        """A default that the program does not leave as it is, on the way to whoever is seen here."""
        if isinstance(value, Known) and value.trace is not None:
            value = replace(value, trace=replace(value.trace, kind="overwritten"))
        return weakened(value, Confidence.CANDIDATE)

    def _field_default(self, cls: ClassValue, name: str, stmt: ir.Stmt) -> Value:
        value = self.method(cls, name)
        if value is None:
            return Unknown("parameter")
        if isinstance(value, Instance) and value.kind == "field":
            if "default_factory" in value.state:
                site = ir.Call(ir.Name("default_factory"), (), stmt.line)
                return self.call(
                    value.state["default_factory"], Given(), site, cls.scope
                )
            value = value.state.get("default", Unknown("parameter"))
        if is_number(value):
            label = f"{cls.facts.name}.{name}"
            return replace(
                value, trace=link(label, stmt.value, stmt.line, None, "default")
            )
        return value
