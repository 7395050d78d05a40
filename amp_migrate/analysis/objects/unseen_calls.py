"""Calls that may run a method, and are not seen to: on objects that are not followed there, by libraries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from amp_migrate.analysis.objects.carriers import Carriers
from amp_migrate.program import ir
from amp_migrate.program.link import Program

UNFOLDED = frozenset(
    """children named_children _modules get_submodule __dict__ __getattr__ __getattribute__""".split()
)
"""What gives what an object holds without its name."""
PLAIN_BASES = frozenset(("torch.nn.Module", "torch.nn.modules.Module"))
_CALLS = ("forward", "__call__")
"""Methods that run where an object is called."""
_HOLD = frozenset(
    f"torch.nn.{name}" for name in "Sequential ModuleList ModuleDict".split()
)
"""What calls the modules that it holds with one argument, or not at all."""


class UnseenCalls:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._carriers: dict[frozenset[str], Carriers] = {}
        self._giving: dict[tuple[str, str], frozenset[str]] = {}

    def giving(self, method: str, param: str) -> frozenset[str]:
        """The functions that may give a method's parameter something by such a call."""
        asked = method, param
        if asked not in self._giving:
            self._giving[asked] = frozenset(self._find(method, param))
        return self._giving[asked]

    def _find(self, method: str, param: str) -> Iterator[str]:
        program, facts = self.program, self.program.functions[method]
        own = facts.class_name
        assert own is not None
        family = frozenset(
            one for one in program.family(own) if own in program.bases(one)
        )
        if not program.external_bases(own) <= PLAIN_BASES:
            yield method
        names = [p.name for p in facts.params if p.kind == "positional"]
        names = names[ir.Name("staticmethod") not in facts.decorators :]
        place = names.index(param) if param in names else len(names)
        seen = {id(site.call) for site in program.call_sites.get(method, ())}
        for function, _, call in program.all_calls():
            callees = program.callees(call, function)
            if id(call) in seen or not all(map(program.is_property, callees)):
                continue
            for expr in self._may_call(call, function, facts.name, param, place):
                if expr is None or self._may_be(expr, function, family):
                    yield function
                    break

    def _may_call(
        self, call: ir.Call, function: str, method: str, param: str, place: int
    ) -> Iterator[ir.Expr | None]:
        """What a call may give the parameter of a method of, where it is one of the objects that have it;
        None: of whatever object."""
        program, args = self.program, call.args
        origin = program.origin(call.func, function)
        named = any(arg.star or arg.name == param for arg in args)
        plain = [arg for arg in args if not (arg.star or arg.name)]
        called = call.func if method in _CALLS else None
        if ir.method_of(call) == method:
            called = ir.receiver_of(call)
        if called is not None and origin is None and (named or len(plain) > place):
            yield called
            if function in self._unfolding:
                yield None
        if method in _CALLS and "forward_pre_hook" in (ir.last_of(call.func) or ""):
            # It may give what it likes in place of what is given.
            yield None if origin else ir.before_calls(call, (ir.method_of(call),))
        if origin in _HOLD:
            return
        of_layers = (origin or "").startswith("torch.nn.")
        for number, arg in enumerate(plain):
            if named or of_layers or len(plain) - number - 1 > place:
                yield arg.value

    @cached_property
    def _unfolding(self) -> frozenset[str]:
        """The functions that may get at what an object holds without its name: by a method that tells it, or
        where the object is a library's container itself."""
        program = self.program
        containers = (
            method
            for name, one in program.classes.items()
            if not program.external_bases(name) <= PLAIN_BASES
            for _, method in one.methods
        )
        return frozenset(
            {f for f, _ in program.mentioning(*UNFOLDED)}.union(containers)
        )

    def _may_be(self, expr: ir.Expr, function: str, family: frozenset[str]) -> bool:
        if family not in self._carriers:

            def is_one(expr: ir.Expr, function: str) -> bool:
                return False

            program = self.program
            classes = Carriers(program, (), family, is_one, True, objects=False)
            self._carriers[family] = (
                classes
                if classes.is_anywhere
                else Carriers(program, (), family, is_one, True, makers=classes)
            )
        return self._carriers[family].may_be(expr, function)
