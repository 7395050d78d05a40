"""Whose gradients are meant: the optimizers that hold the parameters which a clip is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.lint.misuse.order.amp import Amp, Key
from amp_migrate.lint.misuse.order.events import AmpEvent, AmpEvents
from amp_migrate.lint.misuse.order.typestate import Ways
from amp_migrate.program import ir
from amp_migrate.program.bindings import unpacked

_GIVES_PARAMETERS = ("parameters", "named_parameters")


class Owners:
    """Answers for the optimizers of one program."""

    def __init__(self, amp: Amp, events: AmpEvents) -> None:
        self.amp = amp
        self.events = events

    @cached_property
    def modules(self) -> dict[Key, set[Key] | None]:
        """What each optimizer was made with, and what that is a part of; None where that is not read."""
        found: dict[Key, set[Key] | None] = {}
        for key, function, value in self._made():
            made = set(self._named(value, function, self.amp.key, whole=True))
            earlier = found.get(key, set())
            found[key] = earlier | made if made and earlier is not None else None
        return found

    def _made(self) -> Iterator[tuple[Key, str, ir.Expr | None]]:
        """Each optimizer that is made: what it is bound to, the function, and the value."""
        for function in self.events.read:
            for stmt, event in self.events.direct(function):
                if not isinstance(event, AmpEvent) or event.kind != "new optimizer":
                    continue
                if event.subject is None:
                    continue
                key = self.amp.key(event.subject, function)
                if key is None:
                    continue
                if stmt.kind == "for":
                    # What a loop goes through is each of several.
                    yield key, function, None
                    continue
                construction = self.events.optimizers.makers.construction
                elsewhere: list[tuple[Key, str, ir.Expr | None]] = [
                    (key, one.function, one.expr)
                    for one in self.amp.points_to.of(event.subject, function)
                    if isinstance(one.expr, ir.Call) and one.function != function
                    if construction(one.expr, one.function) is not None
                ]
                given = {target: value for target, value, _ in unpacked(stmt)}
                yield from elsewhere or [(key, function, given[event.subject])]

    def _named(
        self,
        expr: ir.Expr | None,
        function: str,
        key_of: Callable[[ir.Expr, str], Key | None],
        whole: bool = False,
    ) -> Iterator[Key]:
        """The modules whose ``parameters()`` stand in an expression, or in what is given there; with
        ``whole``, those as well that they are parts of.
        """
        said = [] if expr is None else [(expr, function)]
        args = [a.value for a in expr.args] if isinstance(expr, ir.Call) else [expr]
        said += [
            (one.expr, one.function)
            for arg in args
            if isinstance(arg, (ir.Name, ir.Attr))
            for one in self.amp.points_to.of(arg, function)
        ]
        for part, there in said:
            for inner in ir.walk(part):
                if isinstance(inner, ir.Call) and isinstance(inner.func, ir.Attr):
                    if inner.func.attr in _GIVES_PARAMETERS:
                        for held in self._kept_as(inner.func.value, there):
                            around: ir.Expr = held
                            while True:
                                key = key_of(around, there)
                                if key is not None:
                                    yield key
                                if not whole or not isinstance(around, ir.Attr):
                                    break
                                around = around.value

    def _kept_as(self, module: ir.Expr, function: str) -> Iterator[ir.Expr]:
        """A module by all names that a function gives it: ``self.net = net``."""
        yield module
        if isinstance(module, ir.Name):
            for stmt in self.amp.program.statements(function):
                for target, value, _ in unpacked(stmt):
                    if value == module and isinstance(target, ir.Attr):
                        yield target

    def of(
        self, given: ir.Expr | None, function: str, known: set[Key], ways: Ways
    ) -> set[Key]:
        """Those of some optimizers that hold what is given; empty where that is not told."""
        modules = set(self._named(given, function, ways.key))
        return {one for one in known if modules & (self.modules.get(one) or set())}

    def have_all_in_common(self, one: Key, other: Key) -> bool:
        """Whether two optimizers were both made with all parameters of one module."""
        return bool(
            self._whole.get(one) and self._whole.get(one) == self._whole.get(other)
        )

    @cached_property
    def _whole(self) -> dict[Key, Key | None]:
        """The module whose parameters an optimizer was given, all of them and no others."""
        found: dict[Key, Key | None] = {}
        for key, function, made in self._made():
            module = None
            if isinstance(made, ir.Call):
                match parameters_of(made):
                    case ir.Call(func=ir.Attr(value=value, attr="parameters"), args=()):
                        module = self.amp.key(value, function)
            found[key] = None if key in found else module
        return found
