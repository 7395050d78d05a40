"""Functions and classes as they are made."""

from __future__ import annotations

from dataclasses import replace

from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    ClassValue,
    External,
    Frame,
    Func,
    Known,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.loops import Loops
from amp_migrate.program import ir

_BODY = Known("class body")
"""What marks the frame of a class body as such: functions in it do not see its names."""
_ACCESSORS = ("setter", "deleter")


class Definitions(Loops):
    """Makes functions and classes."""

    def define_function(self, stmt: ir.Stmt, frame: Frame) -> None:
        function = self.program.functions[stmt.names[1]]
        scope = frame.parent if frame.receiver is _BODY else frame
        assert scope is not None
        defaults = tuple(
            (param.name, self.evaluate(param.default, frame))
            for param in function.params
            if param.default is not None
        )
        scope.capture()
        made: Value = Func(function, scope, defaults, None, frame.owner)
        self.recorder.made[function.qualname] = made
        for decorator in reversed(function.decorators):
            made = self._decorated(made, decorator, frame)
        self.write(self.home(stmt.names[0], frame), stmt.names[0], made)

    def _decorated(self, made: Value, decorator: ir.Expr, frame: Frame) -> Value:
        """What a decorator makes of a function; most keep what it does with its arguments."""
        if isinstance(decorator, ir.Attr) and decorator.attr in _ACCESSORS:
            # The property stays what reads it; whatever is assigned to it is not followed.
            return self.evaluate(decorator.value, frame)
        maker = self.evaluate(decorator, frame)
        if isinstance(maker, External) or isinstance(decorator, ir.Call):
            self.decorated(made, decorator, frame)
            if isinstance(maker, (Unknown, External)):
                return made
        if isinstance(maker, Func) and self.gives_back(maker.function):
            return made
        if isinstance(maker, Func):
            site = ir.Call(decorator, (), maker.function.line)
            result = self.call(maker, Given([made]), site, frame)
            return result if isinstance(result, Func) else Unknown("decorator")
        return made if isinstance(maker, Unknown) else Unknown("decorator")

    def gives_back(self, function: ir.Function) -> bool:
        """Whether a function returns its only parameter: a register, which is not followed."""
        raise NotImplementedError

    def define_class(self, stmt: ir.Stmt, frame: Frame) -> None:
        facts = self.program.classes[stmt.names[1]]
        scope = frame.parent if frame.receiver is _BODY else frame
        assert scope is not None
        scope.capture()
        cls = ClassValue(facts, scope)
        cls.bases = tuple(self._base(base, frame) for base in facts.bases)
        cls.mro = _linear(cls)
        cls.metaclass = self._metaclass(cls, stmt, frame)
        body = Frame(frame.function, scope, _BODY)
        body.owner = cls
        self.block(facts.body, body)
        for name, value in body.state.items():
            if isinstance(name, str):
                cls.state[name] = value
        self.recorder.classes.setdefault(facts.qualname, cls)
        for above in cls.mro[1:]:
            begun = above.state.get("__init_subclass__")
            if isinstance(begun, Func):
                # Its keywords stand where no facts are.
                site = ir.Call(ir.Name(facts.name), (), facts.line)
                bound = replace(begun, receiver=cls)
                self.call(bound, Given(rest="unknown"), site, frame)
                break
        held: Value = cls
        for decorator in reversed(facts.decorators):
            held = self._wrapped(held, decorator, frame)
        self.write(self.home(stmt.names[0], frame), stmt.names[0], held)

    def _metaclass(
        self, cls: ClassValue, stmt: ir.Stmt, frame: Frame
    ) -> ClassValue | None:
        known = (*cls.facts.bases, *cls.facts.decorators)
        for expr in stmt.exprs:
            if isinstance(expr, (ir.Name, ir.Attr)) and expr not in known:
                given = self.evaluate(expr, frame)
                if isinstance(given, ClassValue):
                    return given
        return next((one.metaclass for one in cls.mro[1:] if one.metaclass), None)

    def _wrapped(self, cls: Value, decorator: ir.Expr, frame: Frame) -> Value:
        """What a decorator of the program makes of a class; one of a library is known to leave it."""
        maker = self.evaluate(decorator, frame)
        if not isinstance(maker, Func) or self.gives_back(maker.function):
            return cls
        site = ir.Call(decorator, (), maker.function.line)
        made = self.call(maker, Given([cls]), site, frame)
        return made if isinstance(made, ClassValue) else Unknown("decorator")

    def _base(self, base: ir.Expr, frame: Frame) -> Value:
        if isinstance(base, ir.Item):
            base = base.value  # Generic[T]
        return self.evaluate(base, frame)


def _linear(cls: ClassValue) -> tuple[ClassValue, ...]:
    """The order in which a class and its bases are searched: C3, or one behind the other."""
    lists = [list(b.mro) for b in cls.bases if isinstance(b, ClassValue)]
    lists.append([b for b in cls.bases if isinstance(b, ClassValue)])
    found = [cls]
    while any(lists):
        lists = [one for one in lists if one]
        for one in lists:
            head = one[0]
            if not any(head in other[1:] for other in lists):
                break
        else:
            head = lists[0][0]
        found.append(head)
        lists = [[c for c in one if c is not head] for one in lists]
    return tuple(found)
