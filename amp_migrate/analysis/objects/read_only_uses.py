"""Code that only looks at the optimizers of a collection, one by one: ``[StepLR(o, 2) for o in opts]``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.objects.collections import Collections
from amp_migrate.analysis.objects.makers import INSTANTIATE
from amp_migrate.program import ir
from amp_migrate.program.link import Program

SCHEDULER = re.compile(
    r"(?i)sched|(^|_)lr|lr(_|$)|LR$|warm_?up|anneal|decay|adjust|broadcast"
)
"""Names of functions and classes that change an optimizer's learning rate and nothing else."""

_LOOKS_ONLY = frozenset(
    "print len type isinstance id str repr hasattr vars bool".split()
)
_LOOKING_METHODS = frozenset("format debug info warning error critical log".split())
"""Of a string or a logger: what they are given is written out."""
_READ = frozenset({"param_groups", "defaults", "state"})
_STATES = frozenset({"state_dict", "load_state_dict"})
_OF_MODULES = frozenset({"eval", "train"})
"""Methods that no optimizer has: what else a collection of parts holds."""
_MOST_CALLS = 5


class Looked:
    """Answers for one program."""

    def __init__(self, program: Program, collections: Collections) -> None:
        self.program = program
        self.collections = collections
        self.states: dict[int, ir.Call] = {}
        """The calls by which the states of all that is in a collection are taken, or loaded."""

    def only_looks(self, use: tuple[ir.Expr, ...], function: str) -> bool:
        """Whether a mention of a collection, with the expressions around it, outermost first, is what
        such a comprehension goes through."""
        found = around(use)
        if found is None:
            return False
        made, name = found[0], self.variable(*found, use[-1], function)
        inside = (*made.elements, *made.conditions)
        return name is not None and all(
            self._only_looks(expr, name, function, 0) for expr in inside
        )

    def takes_to_look(self, use: tuple[ir.Expr, ...]) -> bool:
        """Whether what is taken out of a collection is only looked at there: ``opts[name].param_groups``."""
        match use[-4:-2]:
            case (*_, ir.Attr(attr=attr)) if attr in _READ:
                return True
            case (ir.Call(func=func) as call, ir.Attr(attr=attr)) if func is use[-3]:
                if attr in _STATES:
                    self.states[id(call)] = call
                    return True
        return False

    def variable(
        self,
        made: ir.Comprehension,
        position: int,
        mention: ir.Expr,
        function: str,
    ) -> str | None:
        """The variable that has each element of a collection in turn."""
        if len(made.iterables) != 1:
            return None
        target, iterable = made.targets[position], made.iterables[position]
        names = [i.id for i in ir.walk(target) if isinstance(i, ir.Name)]
        for name in names:
            through = self.collections.gone_through(target, iterable, name, function)
            if through is mention and names.count(name) == 1:
                return name
        return None

    def each_only_looks(self, name: str, function: str, depth: int = 0) -> bool:
        """Whether nothing but that is done with a variable that statements bind to such elements."""
        owner = self.program.owner(name, function)
        return owner is not None and all(
            self.program.owner(name, where) == owner
            and self._only_looks(expr, name, where, depth)
            for where, stmt in self.program.mentioning(name)
            if self.collections.contents.place(ir.Name(name), where) == (owner, name)
            for expr in stmt.exprs
            if expr not in stmt.targets
            and not (stmt.kind == "if" and expr == ir.Name(name))
        )

    def _only_looks(self, expr: ir.Expr, name: str, function: str, depth: int) -> bool:
        """Whether all mentions of a variable in an expression are of a kind that leaves the optimizer
        as it is, but for its learning rate."""
        if expr == ir.Name(name):
            return False
        if isinstance(expr, (ir.Deferred, ir.Walrus, ir.Suspend)):
            return ir.Name(name) not in ir.walk(expr)
        if isinstance(expr, ir.Attr) and expr.value == ir.Name(name):
            return expr.attr in _READ
        match expr:
            case ir.Operation(op="formattedvalue"):
                return True
            case ir.Operation(
                op="is" | "is not", operands=(ir.Name(id=one), ir.Const())
            ):
                if one == name:
                    return True
            case ir.Operation(op="if", operands=(test, taken, ir.Name(id=one))):
                # `part.state_dict() if hasattr(part, "state_dict") else part`
                if one == name and _has_states(test, name):
                    return self._only_looks(taken, name, function, depth)
        if not isinstance(expr, ir.Call):
            return all(
                self._only_looks(child, name, function, depth)
                for child in ir.children(expr)
            )
        match expr.func:
            case ir.Attr(value=ir.Name(id=one), attr=attr) if one == name:
                if attr in _OF_MODULES:
                    return not expr.args
                if attr not in _STATES:
                    return False
                self.states[id(expr)] = expr
            case func if not self._only_looks(func, name, function, depth):
                return False
        return all(
            (
                self._may_be_given(expr, arg, function, depth)
                if arg.value == ir.Name(name)
                else self._only_looks(arg.value, name, function, depth)
            )
            for arg in expr.args
        )

    def _may_be_given(
        self, call: ir.Call, arg: ir.Arg, function: str, depth: int
    ) -> bool:
        """Whether a call may have an optimizer for an argument: it makes a scheduler of it."""
        origin = self.program.origin(call.func, function)
        if arg.star or depth > _MOST_CALLS:
            return False
        sites = list(self.program.call_sites_of(call, function))
        if not sites:
            local = origin is not None and self.program.is_local(origin)
            return is_base_of_scheduler(self.program, call, function) or (
                not local and only_looks_at(call, origin)
            )
        for site in sites:
            facts = self.program.functions[site.callee]
            given = [
                param.name
                for param in facts.params
                if self.program.argument_at(site, param.name) is arg.value
            ]
            if len(given) != 1 or facts.is_generator:
                return False
            if not self.each_only_looks(given[0], site.callee, depth + 1):
                return False
        return True


def _has_states(test: ir.Expr, name: str) -> bool:
    """``hasattr(part, "state_dict")``, which is true of an optimizer."""
    match test:
        case ir.Call(
            ir.Name("hasattr"), (ir.Arg(ir.Name(one)), ir.Arg(ir.Const(attr)))
        ):
            return one == name and attr in _STATES
    return False


def is_base_of_scheduler(program: Program, call: ir.Call, function: str) -> bool:
    """``super().__init__(optimizer)`` in a class of one's own that is a scheduler."""
    own = program.self_class(function)
    match call.func:
        case ir.Attr(value=ir.Call(), attr="__init__") if own is not None:
            bases = program.external_bases(own[1])
            return any(base.startswith("torch.optim.lr_scheduler.") for base in bases)
    return False


def only_looks_at(call: ir.Call, origin: str | None) -> bool:
    """Whether a function out of sight leaves an optimizer that it is given as it is, by its name."""
    made = call.argument(0, "config") if origin == INSTANTIATE else call.func
    last = (ir.render(made or call.func) or "").rsplit(".", 1)[-1]
    if origin is not None and origin.startswith("torch.optim."):
        return True
    return only_shows(call, origin) or bool(SCHEDULER.search(last))


def only_shows(call: ir.Call, origin: str | None) -> bool:
    """Whether nothing but a text, or a number, comes of what a function is given."""
    if origin is not None and origin.startswith("builtins."):
        return origin.rpartition(".")[2] in _LOOKS_ONLY
    return isinstance(call.func, ir.Attr) and call.func.attr in _LOOKING_METHODS


def around(use: tuple[ir.Expr, ...]) -> tuple[ir.Comprehension, int] | None:
    """The comprehension that goes through a collection, and which of its loops does."""
    for made, inner in _pairs(use):
        if isinstance(made, ir.Comprehension):
            places = [i for i, e in enumerate(made.iterables) if e is inner]
            return (made, places[0]) if places else None
    return None


def _pairs(use: tuple[ir.Expr, ...]) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    """Each expression and the one inside it, innermost first."""
    yield from zip(reversed(use[:-1]), reversed(use[1:]), strict=True)
