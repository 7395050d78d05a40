"""On objects of which classes a method may run: one that a subclass overrides runs on none of its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property

from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program


class Concrete:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._methods: dict[str, frozenset[str]] = {}

    def classes_of(self, function: str) -> frozenset[str]:
        """The classes whose objects a method, or a function in one, may run on; none where it is no method,
        or anybody may call it with anything."""
        program = self.program
        own = program.self_class(function)
        if own is None:
            return frozenset()
        scope: str | None = function
        while scope is not None and program.functions[scope].class_name is None:
            scope = program.functions[scope].parent
        if scope is None or scope in program.escaping:
            return frozenset()
        return frozenset(
            one for one in program.family(own[1]) if scope in self._run_on(one)
        )

    def apart(self, class_names: Collection[str]) -> frozenset[str]:
        """The methods of their families that run on no objects of some classes."""
        program = self.program
        bases = {base for one in class_names for base in program.bases(one)}
        family = {one for base in bases for one in program.family(base)}
        return frozenset(
            method
            for one in family
            for _, method in program.classes[one].methods
            if (run_on := self.classes_of(method)) and run_on.isdisjoint(class_names)
        )

    def _run_on(self, class_name: str) -> frozenset[str]:
        """The methods that may run on an object whose class is this one."""
        if class_name not in self._methods:
            program = self.program
            found: set[str] = set()
            pending = [
                method
                for base in program.bases(class_name)
                for name, _ in program.classes[base].methods
                if (method := program.method(class_name, name)) is not None
            ]
            while pending:
                method = pending.pop()
                if method not in found:
                    found.add(method)
                    pending += self._handed_up(method, class_name)
            self._methods[class_name] = frozenset(found)
        return self._methods[class_name]

    def _handed_up(self, method: str, class_name: str) -> Iterator[str]:
        """The methods of bases that one names: ``super().update``, ``Base.update``."""
        program = self.program
        for function in (method, *self._inside.get(method, ())):
            for stmt in program.statements(function):
                for inner in parts_of(stmt):
                    if isinstance(inner, ir.Attr) and self._is_base(inner, function):
                        for base in program.bases(class_name):
                            for name, qualname in program.classes[base].methods:
                                if name == inner.attr:
                                    yield qualname

    def _is_base(self, expr: ir.Attr, function: str) -> bool:
        match expr.value:
            case ir.Call(func=ir.Name(id="super")):
                return True
        return any(
            ref.kind == "class" for ref in self.program.resolve(expr.value, function)
        )

    @cached_property
    def _inside(self) -> dict[str, list[str]]:
        """The functions that stand in a method, at whatever depth."""
        found: dict[str, list[str]] = {}
        for function in self.program.functions:
            outer = self.program.functions[function].parent
            while outer is not None:
                found.setdefault(outer, []).append(function)
                outer = self.program.functions[outer].parent
        return found


def without(program: Program, methods: Collection[str]) -> Program:
    """A program in which some methods do nothing."""
    modules = [
        replace(
            facts,
            functions={
                qualname: (
                    replace(one, body=())
                    if qualname in methods or one.parent in methods
                    else one
                )
                for qualname, one in facts.functions.items()
            },
        )
        for facts in program.modules.values()
    ]
    return Program(modules, program.layout)
