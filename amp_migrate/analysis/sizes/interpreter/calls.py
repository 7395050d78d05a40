"""Calls: of functions and classes of the program, and of what libraries are known to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amp_migrate.analysis.sizes.domain.choices import joined
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.labels import labelled
from amp_migrate.analysis.sizes.domain.machine import MAX_DEPTH, MAX_SAME, Activation
from amp_migrate.analysis.sizes.domain.traces import link
from amp_migrate.analysis.sizes.domain.values import (
    OPEN,
    Choice,
    ClassValue,
    External,
    Frame,
    Func,
    Instance,
    Known,
    Lambda,
    Mapping_,
    Partial,
    Sequence,
    Tup,
    Unknown,
    Value,
    is_number,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.attributes import MODULE_BASES
from amp_migrate.analysis.sizes.interpreter.definitions import Definitions
from amp_migrate.analysis.sizes.interpreter.statements import RETURN
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir

_MUTATORS = ("update", "merge", "override", "setattr", "load", "set_", "add_")


class Calls(Definitions):
    """What calls give, and what they make."""

    def call(self, func: Value, given: Given, site: ir.Call, frame: Frame) -> Value:
        """What a call gives."""
        self.step()
        match func:
            case Choice():
                return self.each_way(
                    func, lambda one: self.call(one, given, site, frame)
                )
            case Func():
                return self.call_function(func, given, site)
            case Lambda():
                return self._call_lambda(func, given)
            case Partial():
                whole = Given(
                    [*func.args, *given.positional],
                    dict(func.keywords) | given.keywords,
                    given.rest,
                    {},
                    given.line,
                )
                return self.call(func.func, whole, site, frame)
            case ClassValue():
                return self.instantiate(func, given, site, frame)
            case External():
                return self._call_external(func, given, site, frame)
            case Instance(cls=cls) if cls is not None and self.is_closed(cls):
                called = self.method(cls, "__call__")
                if isinstance(called, Func):
                    bound = replace(called, receiver=func)
                    return self.call_function(bound, given, site)
                return Unknown("data")
            case Instance() | Sequence():
                return Unknown("data")
            case _:
                self._unseen(site, given)
                reason = func.reason if isinstance(func, Unknown) else ""
                return Unknown(reason or "call")

    def _unseen(self, site: ir.Call, given: Given) -> None:
        """Something that is not known is called: it may change what it is given."""
        func = site.func
        named = func.attr if isinstance(func, ir.Attr) else ""
        if not named or any(word in named for word in _MUTATORS):
            self.spoil(given.values())

    def _call_external(
        self, func: External, given: Given, site: ir.Call, frame: Frame
    ) -> Value:
        layer = self.table.at(func.origin)
        if layer is not None and func.of is None:
            return self.recorder.layer(self, layer, given, site, frame)
        if func.of is not None and func.origin.endswith(".__init__"):
            return self._initialised(func, given, site, frame)
        of_layer = self.table.at(func.origin.removesuffix(".__init__"))
        if of_layer is not None and given.positional:
            # ``nn.Linear.__init__(self, ...)``: as ``super().__init__(...)``.
            bound = External(func.origin, given.positional[0])
            rest = replace(given, positional=given.positional[1:], exprs={})
            return self._initialised(bound, rest, site, frame)
        model = self.model_of(func.origin)
        if model is not None:
            return model(self, func, given, site, frame)
        if func.origin in self.table.attributes:
            return Instance(None, "model", func.origin)
        if func.origin.endswith(".shuffle"):
            self.spoil(given.values())
        return Unknown(f"call of {func.origin}")

    def _initialised(
        self, func: External, given: Given, site: ir.Call, frame: Frame
    ) -> Value:
        """``super().__init__(...)`` of a library's class."""
        base = func.origin.removesuffix(".__init__")
        layer = self.table.at(base)
        if layer is not None:
            made = self.recorder.layer(self, layer, given, site, frame)
            if isinstance(func.of, Instance) and isinstance(made, Instance):
                for name, value in made.state.items():
                    self.write(func.of, name, value)
        elif isinstance(func.of, Instance) and base not in MODULE_BASES:
            for name, value in given.keywords.items():
                self.write(func.of, name, value)
        return Known(None)

    # -- functions ----------------------------------------------------------------------------

    def call_function(self, func: Func, given: Given, site: ir.Call) -> Value:
        """What a function of the program gives."""
        function = func.function
        runs = [given for name, given in self.calls if name == function.qualname]
        if (
            function.is_generator
            or function.is_async
            or len(self.calls) >= MAX_DEPTH
            or len(runs) >= MAX_SAME
        ):
            self.spoil(given.values())
            if func.receiver is not None:
                self.spoil([func.receiver])
            bounded = not (function.is_generator or function.is_async)
            self.exhausted = self.exhausted or bounded
            return Unknown("recursion" if bounded else "generator")
        if func.receiver is None and any(map(given.says_no_more_than, runs)):
            # Further in, it finds what it finds here, as for each child of a module that is not known.
            return Unknown("recursion")
        frame = Frame(function.qualname, func.scope, func.receiver)
        frame.owner = func.owner
        self._bind_parameters(func, given, frame)
        self.calls.append((function.qualname, given))
        self.recorder.reached.add(function.qualname)
        at = self.at
        try:
            return self.run(function.body, frame)
        finally:
            self.calls.pop()
            self.at = at
            frame.end()

    def run(self, body: tuple[ir.Stmt, ...], frame: Frame) -> Value:
        outer = self.activation
        activation = self.activation = Activation(frame, len(self.heap.log))
        try:
            flow = self.block(body, frame)
        finally:
            self.activation = outer
        value = activation.value if flow is RETURN else Known(None)
        if flow not in (RETURN, None) and activation.exits:
            # It raises but for the ways that left before.
            self.heap.undo(activation.start)
            last = activation.exits.pop()
            self.heap.apply(last.changes)
            value = last.value
        return self.join_exits(activation.start, activation.exits, value)

    def _bind_parameters(self, func: Func, given: Given, frame: Frame) -> None:
        function = func.function
        params = list(function.params)
        state = frame.state
        positional = list(given.positional)
        exprs = given.exprs
        if func.receiver is not None:
            positional.insert(0, func.receiver)
            exprs = {
                key + 1 if isinstance(key, int) else key: expr
                for key, expr in exprs.items()
            }
        keywords = dict(given.keywords)
        defaults = dict(func.defaults)
        position = 0
        for param in params:
            name = param.name
            if param.kind == "*":
                state[name] = (
                    Unknown("arguments")
                    if given.rest == "unknown"
                    else Tup(tuple(positional[position:]))
                )
                position = len(positional)
                continue
            if param.kind == "**":
                more = Mapping_()
                for key, value in keywords.items():
                    more.state["key", key] = value
                if given.rest == "unknown":
                    self.spoil([more], "arguments")
                elif given.rest:
                    more.state[OPEN] = Known(given.rest)
                state[name] = more
                continue
            if param.kind == "positional" and position < len(positional):
                state[name] = self.passed(
                    name, positional[position], exprs.get(position), given.line
                )
                position += 1
            elif name in keywords:
                value = keywords.pop(name)
                state[name] = self.passed(name, value, exprs.get(name), given.line)
            elif given.rest == "unknown":
                state[name] = Unknown("arguments")
            else:
                state[name] = self._default(func, param, defaults.get(name), given.rest)

    def passed(self, name: str, value: Value, expr: ir.Expr | None, line: int) -> Value:
        return value if expr is None else labelled(self.heap, value, name, expr, line)

    def _default(
        self, func: Func, param: ir.Param, value: Value | None, rest: str
    ) -> Value:
        options = self.recorder.options.get(func.function.qualname, {})
        if param.name in options:
            return options[param.name]
        if value is None:
            return self.annotated(func, param) if rest else Unknown("parameter")
        if is_number(value) and param.default is not None:
            trace = link(param.name, param.default, func.function.line, None, "default")
            value = Known(value.value, trace, value.confidence)
        return weakened(value, Confidence.DEFAULT) if rest else value

    def _call_lambda(self, func: Lambda, given: Given) -> Value:
        body = func.body
        if (
            not body.plain
            or given.rest == "unknown"
            or len(given.positional) + len(given.keywords) != len(body.params)
            or len(self.calls) >= MAX_DEPTH
        ):
            return Unknown("lambda")
        frame = Frame(func.scope.function, func.scope)
        frame.state.update(zip(body.params, given.positional, strict=False))
        for name, value in given.keywords.items():
            frame.state[name] = value
        self.calls.append(("<lambda>", given))
        try:
            return self.evaluate(body.body, frame)
        finally:
            self.calls.pop()

    def join_exits(self, start: int, exits: list, value: Value) -> Value:  # type: ignore[type-arg]
        """The state and the value behind a function that some ways left before its end."""
        for one in exits:
            now = self.heap.changes(start)
            self.heap.undo(start)
            fork = self.new_fork()
            self.heap.join(one.changes, now, fork)
            value = joined(one.value, value, fork)
        return value

    # -- what the next part provides ------------------------------------------------------------

    def model_of(self, origin: str) -> Callable[..., Value] | None:
        """What is known to happen in a library's function."""
        raise NotImplementedError

    def instantiate(
        self, cls: ClassValue, given: Given, site: ir.Call, frame: Frame
    ) -> Value:
        """A new object of a class of the program."""
        raise NotImplementedError

    def annotated(self, func: Func, param: ir.Param) -> Value:
        """A parameter that nobody in the program gives: what its annotation makes of it."""
        raise NotImplementedError
