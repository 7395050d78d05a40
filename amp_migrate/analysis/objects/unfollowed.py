"""Objects that may be a group's optimizer, reached through what is not followed.

An optimizer that nobody hands on can still be reached through the object that holds it:
``callback(self)``, and then ``trainer.optimizer.state_dict()`` where nothing is known of ``trainer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program

_ATTRIBUTES = frozenset({"builtins.getattr", "operator.attrgetter"})
_SCOPES = frozenset({"builtins.globals", "builtins.locals"})
_OPTIMIZER = re.compile(r"(?i)(?:\w*_)?(?:optim(?:i[sz]er)?s?|opts?)(?:_\w*)?")
"""A parameter's name that says what it is for."""


_WRITERS = {
    "save": frozenset({"torch.save"}),
    "dump": frozenset({"pickle.dump", "joblib.dump", "dill.dump", "cloudpickle.dump"}),
    "dumps": frozenset({"pickle.dumps", "dill.dumps", "cloudpickle.dumps"}),
}
_READERS = frozenset(
    f"{module}.{name}"
    for module in ("torch", "pickle", "joblib", "dill", "cloudpickle")
    for name in ("load", "loads")
)
_SAVES = re.compile(r"(?i)save|dump|checkpoint|pickle")
_METHODS = frozenset({"state_dict", "load_state_dict"})
_STATE = _METHODS | {"__getstate__", "__setstate__"}


class Mentions:
    """What a program says that may concern any of its optimizers: looked for once."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def taken(self) -> list[tuple[str, int, ir.Attr]]:
        """A state that is taken otherwise than by calling ``state_dict()``."""
        found = []
        for function, stmt in self.program.all_statements():
            for expr in stmt.exprs:
                inside = list(ir.walk(expr))
                called = {id(e.func) for e in inside if isinstance(e, ir.Call)}
                found += [
                    (function, stmt.line, one)
                    for one in inside
                    if isinstance(one, ir.Attr) and one.attr in _STATE
                    if one.attr not in _METHODS or id(one) not in called
                ]
                found += [
                    (function, stmt.line, one)
                    for call in inside
                    if isinstance(call, ir.Call) and self._writes(call, function)
                    for one in contents(arg.value for arg in call.args)
                    if isinstance(one, ir.Attr)
                    if one.attr in ("state", "param_groups")
                ]
        return found

    def _writes(self, call: ir.Call, function: str) -> bool:
        name = (ir.render(call.func) or "").rpartition(".")[2]
        origins = _WRITERS.get(name, frozenset())
        return bool(origins) and self.program.origin(call.func, function) in origins

    @cached_property
    def savers(self) -> list[tuple[str, ir.Call]]:
        """The calls of functions out of sight that save something, going by their names."""
        return [
            (function, call)
            for function, _, call in self.program.all_calls()
            if _SAVES.search(name := (ir.render(call.func) or "").rpartition(".")[2])
            if name not in _WRITERS and not self.program.callees(call, function)
        ]

    @cached_property
    def handed_out(self) -> list[tuple[ir.Function, ir.Attr]]:
        """The attributes that methods return."""
        return [
            (function, stmt.value)
            for function in self.program.functions.values()
            if function.class_name is not None
            for stmt in ir.statements(function.body)
            if stmt.kind == "return" and isinstance(stmt.value, ir.Attr)
        ]


class Unfollowed:
    """Answers for one group's optimizers."""

    def __init__(
        self,
        mentions: Mentions,
        optimizers: Optimizers,
        slots: frozenset[Slot],
        births: frozenset[Birth],
    ) -> None:
        self.mentions = mentions
        self.program = mentions.program
        self.optimizers = optimizers
        self.slots = slots
        self._born = {(birth.function, birth.path) for birth in births}
        self._files = {ir.file_of(birth.function) for birth in births}
        self._factories = {
            callee
            for birth in births
            for callee in self.program.callees(birth.call, birth.function)
        }

    def calls(self, *methods: str) -> Iterator[tuple[str, ir.Stmt, ir.Call]]:
        """The calls of some methods on what may be one of the optimizers, and is not known to be."""
        for method in methods:
            for function, stmt, call in self.program.calls_named(method):
                if isinstance(call.func, ir.Attr) and self._may_run_in(function):
                    if self._may_be(call.func.value, function, stmt):
                        yield function, stmt, call

    def _may_run_in(self, function: str) -> bool:
        """Whether one run may make an optimizer of the group, and come to a function."""
        file = ir.file_of(function)
        return any(self.program.may_run_together(file, one) for one in self._files)

    def saved_whole(self) -> Iterator[tuple[ir.Expr, ir.Call]]:
        """The objects that hold one of the optimizers, and are written to a file as they are."""
        for method, origins in _WRITERS.items():
            for function, _, call in self.program.calls_named(method):
                if self.program.origin(call.func, function) in origins:
                    for expr in contents(arg.value for arg in call.args):
                        if self._is_holder(expr, function):
                            yield expr, call

    def handed_to_save(self) -> Iterator[tuple[ir.Expr, ir.Call]]:
        """The same, where they are given to a library's function that saves by its name."""
        for function, call in self.mentions.savers:
            for expr in contents(arg.value for arg in call.args):
                if self._is_holder(expr, function):
                    yield expr, call

    def taken_otherwise(self) -> Iterator[tuple[int, str]]:
        """(line, attribute) where a state is taken otherwise than by ``state_dict()``."""
        for function, line, found in self.mentions.taken:
            if self.optimizers.slot(found.value, function) in self.slots:
                yield line, found.attr

    def loads_objects(self) -> bool:
        """Whether the program reads whole objects from files."""
        return any(
            self.program.origin(call.func, function) in _READERS
            for name in ("load", "loads")
            for function, _, call in self.program.calls_named(name)
        )

    def restored_by_attribute(self) -> Iterator[ir.Call]:
        """The loads of the state of each attribute of an object, of which a scaler becomes one."""
        for function, stmt, call in self.program.calls_named("load_state_dict"):
            if isinstance(call.func, ir.Attr) and isinstance(call.func.value, ir.Name):
                for at, value in self._values(call.func.value.id, function, stmt):
                    if any(self._is_all_of_one(e, at) for e in ir.walk(value)):
                        yield call

    def _is_all_of_one(self, expr: ir.Expr, function: str) -> bool:
        match expr:
            case ir.Attr(value=holder, attr="__dict__"):
                return self._is_holder(holder, function)
            case ir.Call(func=func, args=(ir.Arg(value=holder), *_)):
                found = self.program.origin(func, function) == "builtins.vars"
                return found and self._is_holder(holder, function)
        return False

    def _is_holder(self, expr: ir.Expr, function: str) -> bool:
        refs = self.program.resolve(expr, function)
        return any(ref.kind == "instance" and self._holds(ref.name) for ref in refs)

    def _may_be(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        slot = self.optimizers.slot(expr, function)
        if slot is not None and slot in self.slots:
            return False
        if slot is not None and self._factories:
            # What a function makes that hands out one of the optimizers.
            found = self.optimizers.trace(slot).births
            if any(birth.function in self._factories for birth in found):
                return True
        match expr:
            case ir.Attr(value=holder, attr=name):
                if slot is not None:
                    found = self.optimizers.trace(slot).births
                    return any((b.function, b.path) in self._born for b in found)
                return name in self._names and self._may_hold(holder, name, function)
            case ir.Call(func=ir.Attr(value=holder, attr=name), args=()):
                return name in self._names and self._may_hold(holder, name, function)
            case ir.Name(id=name):
                return self._is_unseen(name, function) or any(
                    self._looks_up(value, at)
                    for at, value in self._values(name, function, stmt)
                )
        return self._looks_up(expr, function)

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names by which what holds an optimizer gives it away: attributes, and methods that
        return it. A scheduler calls it by its usual name."""
        held = {slot for slot in self.slots if slot.kind == "attribute"}
        names = {slot.name for slot in held} | {"optimizer"}
        names |= {
            function.name
            for function, value in self.mentions.handed_out
            if self.optimizers.slot(value, function.qualname) in held
        }
        return frozenset(names)

    def _may_hold(self, holder: ir.Expr, name: str, function: str) -> bool:
        """Whether an object may be one that holds an optimizer under a name."""
        refs = self.program.resolve(holder, function)
        if not refs:
            return self.program.origin(holder, function) is None
        return any(
            (ref.kind == "instance" and name != "optimizer" and len(refs) > 1)
            or (ref.kind == "instance" and self._holds(ref.name))
            or (ref.kind == "made" and ".lr_scheduler." in ref.name)
            for ref in refs
        )

    def _holds(self, class_name: str) -> bool:
        family = self.program.family(class_name)
        return any(s.kind == "attribute" and s.owner in family for s in self.slots)

    def _is_unseen(self, name: str, function: str) -> bool:
        """Whether a name is a parameter for an optimizer that nothing in sight gives a value."""
        owner = self.program.owner(name, function)
        if owner is None or not _OPTIMIZER.fullmatch(name):
            return False
        named = self.program.is_param(owner, name)
        return named and not self.program.call_sites.get(owner)

    def _values(
        self, name: str, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[str, ir.Expr]]:
        """What a variable is given, or what is gone through to give it its values."""
        for inner in parts_of(stmt):
            if isinstance(inner, ir.Comprehension):
                for target, iterable in zip(
                    inner.targets, inner.iterables, strict=True
                ):
                    if ir.Name(name) in ir.walk(target):
                        yield function, iterable
        owner = self.program.owner(name, function)
        for found in self.program.definitions(owner, name) if owner else ():
            value = found.stmt.value if found.value is None else found.value
            if value is not None:
                yield found.function, value

    def _looks_up(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression finds objects by names that are put together at run time."""
        for inner in ir.walk(expr):
            if isinstance(inner, ir.Call):
                origin = self.program.origin(inner.func, function)
                if origin in _SCOPES:
                    return True
                if origin == "builtins.eval" and not _is_plain(inner):
                    return True
                if origin in _ATTRIBUTES and not _is_plain(inner):
                    if self._may_find(inner, origin, function):
                        return True
        return False

    def _may_find(self, call: ir.Call, origin: str, function: str) -> bool:
        """Whether a look for an attribute can find one: a function's own variable it cannot."""
        names = [arg.value for arg in call.args][origin == "builtins.getattr" :]
        begin = ""
        match names:
            case [ir.Operation("joinedstr", (ir.Const(value=str(begin)), *_)), *_]:
                pass
        holder = call.argument(0, "") if origin == "builtins.getattr" else None
        refs = () if holder is None else self.program.resolve(holder, function)
        is_known = bool(refs) and all(ref.kind == "instance" for ref in refs)
        family = {one for r in refs for one in self.program.family(r.name) if is_known}
        return any(
            slot.name.startswith(begin)
            and (
                slot.owner in family or not is_known
                if slot.kind == "attribute"
                else not is_known
                and self.program.functions[slot.owner].name == ir.MODULE
            )
            for slot in self.slots
        )


def contents(exprs: Iterable[ir.Expr]) -> Iterator[ir.Expr]:
    """Some objects, and what stands in those that are written out."""
    for expr in exprs:
        if isinstance(expr, ir.Display):
            yield from contents(expr.items)
        else:
            yield expr


def _is_plain(call: ir.Call) -> bool:
    """``getattr(self, "model")``"""
    return len(call.args) > 1 and isinstance(call.args[1].value, ir.Const)
