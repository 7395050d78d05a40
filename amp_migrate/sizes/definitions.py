"""Functions and classes as they are made."""

from __future__ import annotations

from amp_migrate.facts import ir
from amp_migrate.sizes.given import Given
from amp_migrate.sizes.loops import Loops
from amp_migrate.sizes.values import (
    ClassValue,
    External,
    Frame,
    Func,
    Known,
    Unknown,
    Value,
)

_BODY = Known("class body")
"""What marks the frame of a class body as such: functions in it do not see its names."""


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
        made: Value = Func(function, scope, defaults, None, frame.owner)
        self.recorder.made[function.qualname] = made
        for decorator in reversed(function.decorators):
            made = self._decorated(made, decorator, frame)
        self.write(self.home(stmt.names[0], frame), stmt.names[0], made)

    def _decorated(self, made: Value, decorator: ir.Expr, frame: Frame) -> Value:
        """What a decorator makes of a function; most keep what it does with its arguments."""
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
        cls = ClassValue(facts, scope)
        cls.bases = tuple(self._base(base, frame) for base in facts.bases)
        cls.mro = _linear(cls)
        body = Frame(frame.function, scope, _BODY)
        body.owner = cls
        self.block(facts.body, body)
        for name, value in body.state.items():
            if isinstance(name, str):
                cls.state[name] = value
        self.recorder.classes.setdefault(facts.qualname, cls)
        held: Value = cls
        self.write(self.home(stmt.names[0], frame), stmt.names[0], held)

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
