"""Functions of the program that a call may run though it does not name them: callbacks.

A hook that clips gradients is called as ``hook.before_step(self)``, ``getattr(hook, name)(self)`` or
``HOOKS["step"](0.1)``, on objects of which nothing is known. Of all that may be meant, only what reads or
edits gradients matters: it is taken to be called.
"""

from __future__ import annotations

from functools import cached_property

from amp_migrate.analysis.objects.makers import derives_from_optimizer
from amp_migrate.analysis.paths import gradients
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Program

_NEUTRAL = frozenset(
    """no_grad zero_grad requires_grad requires_grad_ set_grad_enabled enable_grad autograd
    is_grad_enabled""".split()
)


class Dispatch:
    """Callbacks that touch gradients; noted once for each program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._taking: dict[tuple[object, ...], tuple[str, ...]] = {}

    def callees(self, call: ir.Call, function: str) -> tuple[str, ...]:
        """The functions that touch gradients, and that a call of something unknown may run."""
        if not self._touching or self._is_known(call, function):
            return ()
        match call.func:
            case ir.Attr(attr=name) if name in self._methods:
                found = tuple(self._methods[name])
            case ir.Call(args=(_, ir.Arg(value=ir.Const(value=str() as name)), *_)):
                found = tuple(self._methods.get(name, ()))
            case ir.Call():
                found = tuple(one for name in self._methods.values() for one in name)
            case _ if vocabulary.MODEL_LIKE.search(gradients.called(call)):
                found = self._handed_around
            case _:
                found = self._values
        named = frozenset(arg.name for arg in call.args if arg.name)
        count = len(call.args) - len(named)
        if any(arg.star for arg in call.args):
            return found
        # There are fewer forms of calls than calls.
        form = (found, count, named)
        if form not in self._taking:
            takers = (one for one in found if self._takes(one, count, named))
            self._taking[form] = tuple(takers)
        return self._taking[form]

    def may_run_expression(self, call: ir.Call, function: str) -> bool:
        """Whether a call of something unknown may run a ``lambda`` or ``partial`` that touches gradients."""
        plain = isinstance(call.func, (ir.Name, ir.Attr, ir.Item))
        return (
            plain
            and bool(self.expressions)
            and not self._is_known(call, function)
            and not vocabulary.MODEL_LIKE.search(gradients.called(call))
        )

    def _is_known(self, call: ir.Call, function: str) -> bool:
        """Whether a call cannot run a callback: of a library, or of something that the program defines."""
        program = self.program
        if isinstance(call.func, ir.Call):
            return program.origin(call.func.func, function) != "builtins.getattr"
        if isinstance(call.func, ir.Attr):
            if call.func.attr in self._methods:
                return program.origin(call.func, function) is not None or any(
                    ref.kind in ("external", "made")
                    for ref in program.resolve(call.func.value, function)
                )
            # An attribute that nothing here sets is a method of a library.
            if call.func.attr not in self._stored:
                return True
        refs = program.resolve(call.func, function)
        if refs and all(ref.kind == "class" for ref in refs):
            # An exception of one's own, say: its constructor is a library's.
            return True
        return program.origin(call.func, function) is not None or gradients.is_harmless(
            program, call, function
        )

    def _takes(self, callee: str, count: int, named: frozenset[str]) -> bool:
        """Whether a function can be called with so many arguments, and those by name."""
        scope = self.program.functions[callee]
        params = scope.params[scope.self_name is not None :]
        plain = [p for p in params if p.kind in ("positional", "keyword")]
        open_ends = {p.kind for p in params} - {"positional", "keyword"}
        most = len([p for p in plain if p.kind == "positional" and p.name not in named])
        least = [p for p in plain if p.default is None and p.name not in named]
        return (count <= most or "*" in open_ends) and (
            len([p for p in least if p.kind == "positional"]) <= count
            and (named <= {p.name for p in plain} or "**" in open_ends)
        )

    # -- what touches gradients -----------------------------------------------------------------

    @cached_property
    def _touching(self) -> frozenset[str]:
        """The functions that touch gradients, by themselves or by what they call."""
        touching = (
            qualname
            for qualname, scope in self.program.functions.items()
            if self._mentions(qualname)
            and any(
                self._touches(expr, qualname)
                for stmt in ir.statements(scope.body)
                for expr in stmt.exprs
            )
        )
        return frozenset(self.program.calling(*touching))

    def _mentions(self, function: str) -> bool:
        """Whether the file of a function has words of gradients at all: most have not."""
        return ir.file_of(function) in self._speaking

    @cached_property
    def _speaking(self) -> frozenset[str]:
        return frozenset(
            file
            for file, facts in self.program.modules.items()
            if any(
                "grad" in word and "grad_checkpoint" not in word
                for word in facts.identifiers - _NEUTRAL
            )
        )

    def _touches(self, expr: ir.Expr, function: str) -> bool:
        for inner in ir.walk(expr):
            match inner:
                case ir.Attr(attr="grad") if (
                    self.program.origin(inner, function) is None
                ):
                    return True
                case ir.Call() if gradients.is_helper(self.program, inner, function):
                    return True
        return False

    @cached_property
    def _methods(self) -> dict[str, list[str]]:
        """Methods that touch gradients, by name; what may be an optimizer's own step is known by itself."""
        found: dict[str, list[str]] = {}
        for qualname in sorted(self._touching):
            scope = self.program.functions[qualname]
            if scope.class_name is None or scope.name.startswith("__"):
                continue
            bases = self.program.external_bases(scope.class_name)
            if scope.name != "step" or not derives_from_optimizer(bases):
                found.setdefault(scope.name, []).append(qualname)
        return found

    @cached_property
    def _values(self) -> tuple[str, ...]:
        """Functions that touch gradients and are handed around; methods, where they may be taken by name."""
        taken = set(self._handed_around)
        for function, _, call in self.program.calls_named("getattr"):
            taken |= self._taken_by_name(call, function)
        return tuple(sorted(taken))

    def _taken_by_name(self, call: ir.Call, function: str) -> set[str]:
        """The methods that touch gradients and that a ``getattr()`` may take: none of a module has any."""
        match call.args:
            case (ir.Arg(value=holder, star=""), ir.Arg(value=name, star=""), *_):
                if self.program.origin(holder, function) is not None:
                    return set()
            case _:
                name = ir.Name("")
        return {
            one
            for word, methods in self._methods.items()
            if not isinstance(name, ir.Const) or name.value == word
            for one in methods
        }

    @cached_property
    def _handed_around(self) -> tuple[str, ...]:
        """Functions that touch gradients and are handed around: a model is one of these at most."""
        return tuple(sorted(self._touching & self.program.escaping))

    @cached_property
    def _stored(self) -> frozenset[str]:
        """The names of attributes that the program sets, methods aside."""
        return frozenset(
            target.attr
            for _, stmt in self.program.all_statements()
            for target in stmt.targets
            if isinstance(target, ir.Attr)
        )

    @cached_property
    def expressions(self) -> frozenset[str]:
        """Where functions without a name that touch gradients stand, to be called by others."""
        program = self.program
        return frozenset(
            function
            for function, stmt in program.all_statements()
            if self._mentions(function)
            and (
                any(
                    isinstance(inner, ir.Deferred)
                    and self._touches(inner.body, function)
                    for inner in parts_of(stmt)
                )
                or any(
                    vocabulary.GRADIENT_CLIPPERS.fullmatch(
                        program.origin(arg.value, function) or ""
                    )
                    for call in calls_of(stmt)
                    for arg in call.args
                )
            )
        )
