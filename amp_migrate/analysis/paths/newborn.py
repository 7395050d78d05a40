"""Optimizers that hold nothing but parameters of a model that is made right before: no gradients yet."""

from __future__ import annotations

import re
from collections.abc import Callable

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.analysis.objects.optimizers import Birth
from amp_migrate.analysis.objects.points_to import RETURNS_SELF, WRAPPERS
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Program

_MODULES = frozenset(("torch.nn.Module", "torch.nn.modules.Module"))
_ELSEWHERE = frozenset("__class__ __dict__ _modules modules children".split())
"""Attributes by which a constructor may come to what was there before."""
_KEEP = RETURNS_SELF | {"load_state_dict"}
_ADDS = frozenset(("add_module", "append"))
_LIKE = re.compile(r"torch\.\w+_like")
_MOST = 8


class Newborn:
    """Answers for one program."""

    def __init__(self, program: Program, trains: Callable[[str], bool]) -> None:
        """``trains``: whether a call of a function may bring a ``backward()`` about."""
        self.program = program
        self.flow = Flow(program)
        self.trains = trains
        self._scanned: dict[str, bool] = {}
        self._gets_more = bool(program.calls_named("add_param_group")) or any(
            isinstance(target, ir.Item) and target.key == ir.Const("params")
            for _, stmt in program.mentioning("params")
            for target in stmt.targets
        )
        """Whether some optimizer is given parameters when it is made already."""

    def holds_only_new(self, birth: Birth) -> bool:
        """Whether all parameters of an optimizer are made with it, and nothing else has it."""
        given = None if self._gets_more else parameters_of(birth.call)
        match given:
            case ir.Call(func=ir.Attr(value=ir.Name() as model, attr="parameters")):
                return birth.stmt.targets == (ir.Name(birth.slot.name),) and (
                    birth.stmt.value is birth.call
                    and self._is_new(model, birth.function, birth.stmt)
                )
        return False

    def _is_new(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        program = self.program
        if isinstance(expr, ir.Name):
            made = self._made_beside(expr, function, stmt)
            return (
                made is not None
                and made.value is not None
                and (self._is_new(made.value, function, made))
            )
        if not isinstance(expr, ir.Call):
            return False
        if any(arg.star for arg in expr.args):
            return False
        func, given = expr.func, [arg.value for arg in expr.args]
        origin = program.origin(func, function)
        if origin is not None:
            return origin.startswith("torch.nn.") and (
                all(
                    self._is_plain(value, function)
                    or (
                        (origin in WRAPPERS or isinstance(value, ir.Call))
                        and self._is_new(value, function, stmt)
                    )
                    for value in given
                )
            )
        if isinstance(func, ir.Attr) and func.attr in RETURNS_SELF:
            return self._is_new(func.value, function, stmt)
        refs = program.resolve(func, function)
        return (
            len(refs) == 1
            and all(
                (
                    self._makes_new(ref.name)
                    if ref.kind == "class"
                    else ref.kind == "function" and self._hands_out_new(ref.name)
                )
                for ref in refs
            )
            and all(self._is_plain(value, function) for value in given)
        )

    def _hands_out_new(self, name: str) -> bool:
        """Whether a function returns nothing but a model that it makes itself."""
        facts = self.program.functions[name]
        if name not in self._scanned:
            self._scanned[name] = False
            returned = [s for s in ir.statements(facts.body) if s.kind == "return"]
            self._scanned[name] = (
                bool(returned)
                and not facts.decorators
                and all(
                    stmt.value is not None and self._is_new(stmt.value, name, stmt)
                    for stmt in returned
                )
            )
        return self._scanned[name]

    def _made_beside(
        self, name: ir.Name, function: str, stmt: ir.Stmt
    ) -> ir.Stmt | None:
        """The statement that gives a variable its value, in the same block, with nothing between that
        might change the value or train."""
        program = self.program
        found, from_start = self.flow.reaching(name.id, Made(name, function, stmt))
        if (
            from_start
            or len(found) != 1
            or program.owner(name.id, function) != function
        ):
            return None
        (made,) = found
        if (
            made.targets != (name,)
            or len(made.path) != len(stmt.path)
            or ir.distance(made.path, stmt.path) is None
            or any(
                d.function != function for d in program.definitions(function, name.id)
            )
        ):
            return None
        between = (
            inner
            for inner in program.statements(function)
            if (ir.distance(inner.path, stmt.path) or 0) < 0
            and (ir.distance(inner.path, made.path) or 0) > 0
        )
        return made if all(self._passes(s, name, function) for s in between) else None

    def _passes(self, stmt: ir.Stmt, name: ir.Name, function: str) -> bool:
        program = self.program
        for call in calls_of(stmt):
            if ir.method_of(call) == "backward":
                return False
            if any(map(self.trains, program.callees(call, function))):
                return False
        if all(name not in ir.walk(expr) for expr in stmt.exprs):
            return True
        match stmt.kind, stmt.value:
            case "expr", ir.Call(func=ir.Attr(value=of, attr=attr), args=args) if (
                of == name
            ):
                return attr in _KEEP or (
                    attr in _ADDS
                    and all(
                        self._is_plain(arg.value, function)
                        or self._is_new(arg.value, function, stmt)
                        for arg in args
                    )
                )
            case "expr", ir.Call(func=func):
                return program.origin(func, function) == "builtins.print"
        return False

    def _is_plain(self, expr: ir.Expr, function: str, depth: int = 0) -> bool:
        """Whether an argument is a number, a text, or a function of a library: no module."""
        program = self.program
        if isinstance(expr, ir.Const):
            return True
        if depth > _MOST:
            return False
        if isinstance(expr, ir.Display) and depth and expr.kind != "tuple":
            # More may be put into it.
            return False
        if isinstance(expr, (ir.Operation, ir.Display)):
            parts = expr.operands if isinstance(expr, ir.Operation) else expr.items
            return all(self._is_plain(one, function, depth + 1) for one in parts)
        if isinstance(expr, ir.Call):
            return program.origin(expr.func, function) == "builtins.len"
        origin = program.origin(expr, function)
        if origin is not None:
            return not program.is_local(origin)
        found = program.set_to(expr, function)
        return bool(found) and all(
            d.value is not None and self._is_plain(d.value, d.function, depth + 1)
            for d in found
        )

    def _makes_new(self, class_name: str) -> bool:
        """Whether a module of a class has only parameters that are made with it."""
        program = self.program
        if class_name not in self._scanned:
            # A class that makes modules of itself decides nothing about itself.
            self._scanned[class_name] = True
            self._scanned[class_name] = (
                bool(program.external_bases(class_name))
                and program.external_bases(class_name) <= _MODULES
                and all(map(self._is_simple, program.bases(class_name)))
            )
        return self._scanned[class_name]

    def _is_simple(self, class_name: str) -> bool:
        found = self.program.classes[class_name]
        names = {name for name, _ in found.methods}
        return (
            not found.decorators
            and names.isdisjoint(("__new__", "__setattr__", "__getattr__"))
            and all(
                stmt.kind in ("functiondef", "pass")
                or (stmt.kind == "expr" and isinstance(stmt.value, ir.Const))
                for stmt in found.body
            )
            and all(
                self._adds_new(method)
                for name, method in found.methods
                if name == "__init__"
            )
        )

    def _adds_new(self, method: str) -> bool:
        """Whether what a method sets is made there."""
        program = self.program
        facts = program.functions[method]
        if method in self._scanned:
            return self._scanned[method]
        self._scanned[method] = False
        if any(not isinstance(p.default, (ir.Const, type(None))) for p in facts.params):
            return False
        for stmt in ir.statements(facts.body):
            if stmt.kind in (
                "functiondef",
                "classdef",
                "global",
                "import",
                "importfrom",
            ):
                return False
            made = set()
            for call in calls_of(stmt):
                if _LIKE.fullmatch(program.origin(call.func, method) or ""):
                    made |= {id(arg.value) for arg in call.args}
                for ref in program.resolve(call.func, method):
                    if ref.kind == "class" and self._makes_new(ref.name):
                        made.add(id(call.func))
                    elif ref.kind in ("class", "instance", "function") and not (
                        ref.kind == "function"
                        and self._is_own(call.func, method)
                        and self._adds_new(ref.name)
                    ):
                        return False
            for inner in parts_of(stmt):
                if isinstance(inner, ir.Deferred):
                    return False
                if isinstance(inner, ir.Attr) and inner.attr in _ELSEWHERE:
                    return False
                if isinstance(inner, ir.Name) and id(inner) not in made:
                    if program.owner(inner.id, method) in (None, method):
                        continue
                    origin = program.origin(inner, method)
                    own = inner.id in (program.self_class(method) or ())[:1]
                    named = stmt.value and _is_super(stmt.value, inner)
                    if (
                        not own
                        and not named
                        and (origin is None or program.is_local(origin))
                    ):
                        return False
        self._scanned[method] = True
        return True

    def _is_own(self, func: ir.Expr, method: str) -> bool:
        own = self.program.self_class(method)
        return isinstance(func, ir.Attr) and (
            func.value == ir.Name(own[0] if own else "")
            or (isinstance(func.value, ir.Call) and func.value.func == ir.Name("super"))
        )


def _is_super(expr: ir.Expr, name: ir.Name) -> bool:
    """Whether a name is only said in ``super(Name, self)``."""
    return any(
        isinstance(inner, ir.Call)
        and inner.func == ir.Name("super")
        and any(arg.value is name for arg in inner.args)
        for inner in ir.walk(expr)
    )
