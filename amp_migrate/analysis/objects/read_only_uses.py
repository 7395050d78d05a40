"""Code that only looks at what it is given: at the optimizers of a collection, one by one,
``[StepLR(o, 2) for o in opts]``, or at what it reads out of an object, ``count(model.net)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.objects.collections import Collections
from amp_migrate.analysis.objects.makers import INSTANTIATE
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
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
SAVES = frozenset(("torch.save", "pickle.dump"))
_COMPARES = frozenset(("==", "!=", "is", "is not", "in", "not in", "compare"))
_READ = frozenset({"param_groups", "defaults", "state"})
_STATES = frozenset({"state_dict", "load_state_dict"})
_OF_MODULES = frozenset({"eval", "train"})
"""Methods that no optimizer has: what else a collection of parts holds."""
_MOST_CALLS = 5


def saved(program: Program) -> Iterator[tuple[str, ir.Stmt, ir.Expr]]:
    """All that is saved under keys: function, statement that has the dict, and what is in it."""
    for name in {origin.rpartition(".")[2] for origin in SAVES}:
        for function, stmt, call in program.calls_named(name):
            for where, one in saved_by(program, call, function, stmt):
                yield function, where, one


def saved_by(
    program: Program, call: ir.Call, function: str, stmt: ir.Stmt
) -> list[tuple[ir.Stmt, ir.Expr]]:
    """What a call writes into a file under keys that are written out, in the dict that it is given or that a
    variable holds, and where that is made."""
    given = call.args[0].value if call.args else None
    if program.origin(call.func, function) not in SAVES or given is None:
        return []
    made: list[tuple[ir.Stmt, ir.Expr | None]] = [(stmt, given)]
    if isinstance(given, ir.Name):
        found = program.definitions(function, given.id)
        made = [(one.stmt, one.value) for one in found if one.function == function]
        if len(made) != len(found):
            return []
    entries: list[tuple[ir.Stmt, ir.Expr]] = []
    for where, value in made:
        match value:
            case ir.Display(kind="dict", items=items, keys=keys) if all(
                isinstance(key, ir.Const) for key in keys
            ):
                entries += [(where, item) for item in items]
            case _:
                return []
    return entries


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
    return ir.method_of(call) in _LOOKING_METHODS


def is_only_looked_at(
    program: Program, function: str, stmt: ir.Stmt, value: ir.Expr
) -> bool:
    """Whether a statement does no more with an expression than to compare, show or save it."""
    for inner in parts_of(stmt):
        match inner:
            case ir.Operation(op=op, operands=operands) if op in _COMPARES:
                if any(one is value for one in operands):
                    return True
            case ir.Call(args=args) if any(arg.value is value for arg in args):
                origin = program.origin(inner.func, function)
                return origin in SAVES or only_shows(inner, origin)
    return False


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


_COMPARE = frozenset("== != < <= > >= is in not formattedvalue /".split()) | {
    "is not",
    "not in",
}
_REMAIN = frozenset("and or if + - * ** // %".split())
_MEASURES = frozenset("shape device dtype ndim requires_grad training".split())
_COUNTS = frozenset("numel nelement item size dim element_size".split())
PARTS = frozenset(
    "parameters named_parameters buffers modules children keys values items".split()
)
_HOLD = frozenset(
    "sum max min abs list tuple set sorted reversed enumerate zip next iter".split()
)
_NUMBERS = frozenset("int float bool round range".split()) | _LOOKS_ONLY - {"vars"}
_MOST_MENTIONS = 60


class GoesNoFurther:
    """Tells of one program whether what is read out of an object is only compared, counted or shown: it gets
    into no other object, and nothing is done to it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names = frozenset(f.name for f in program.functions.values())
        self._taken = {
            function
            for function, _ in program.mentioning("locals", "vars", "eval", "exec")
        }
        self._seen: set[tuple[str, str]] = set()

    def of(self, mention: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        """Whether this is so of what a statement mentions."""
        self._seen = set()
        return self._all(mention, stmt, function)

    def _all(self, mention: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        if id(stmt) in self.program.class_statements:
            return False
        ways = [way for expr in stmt.exprs for way in ir.ways_to(expr, mention)]
        return bool(ways) and all(
            way[0] not in stmt.targets and self._ends(way, stmt, function)
            for way in ways
        )

    def _ends(self, way: tuple[ir.Expr, ...], stmt: ir.Stmt, function: str) -> bool:
        """The same of the innermost of some expressions, outermost first."""
        value = way[-1]
        if len(way) == 1:
            return self._is_dropped(value, stmt, function)
        outer, rest = way[-2], way[:-1]
        match outer:
            case ir.Operation(op="if", operands=(test, *_)) if test is value:
                return True
            case ir.Operation(op=op) if op in _COMPARE:
                return True
            case ir.Operation(op=op) if op in _REMAIN:
                return self._ends(rest, stmt, function)
            case ir.Item(value=inner) if inner is value:
                return self._ends(rest, stmt, function)
            case ir.Item():
                return self._is_looked_up
            case ir.Display(kind="tuple" | "list"):
                return self._ends(rest, stmt, function)
            case ir.Attr(attr=attr) if attr not in self._names:
                called = way[-3] if len(way) > 2 else None
                if not isinstance(called, ir.Call) or called.func is not outer:
                    return attr in _MEASURES
                if attr == "append":
                    return isinstance(value, ir.Attr) and self._is_unused(value.attr)
                return attr in _COUNTS or (
                    attr in PARTS and self._ends(way[:-2], stmt, function)
                )
            case ir.Call():
                return self._is_given(way, stmt, function)
            case ir.Comprehension():
                return self._is_gone_through(way, stmt, function)
        return False

    @property
    def _is_looked_up(self) -> bool:
        """Whether a key by which something is taken out of a container is not kept there."""
        return "__getitem__" not in self._names and not self.program.mentioning(
            "defaultdict", "__missing__"
        )

    def _is_dropped(self, value: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement does no more with its whole value."""
        facts = self.program.functions[function]
        match stmt.kind:
            case "expr" | "if" | "while" | "assert":
                return True
            case "return":
                return self._is_asked(facts)
            case "assign" | "for" if stmt.value is value and value not in stmt.targets:
                names = [n for target in stmt.targets for n in ir.walk(target)]
                return all(
                    (isinstance(n, ir.Name) and self._variable(n.id, function))
                    or (isinstance(n, ir.Display) and n.kind in ("tuple", "list"))
                    for n in names
                )
        return False

    def _variable(self, name: str, function: str) -> bool:
        """Whether all that is done with a variable of a function ends there."""
        program = self.program
        if (function, name) in self._seen:
            return True
        self._seen.add((function, name))
        if (
            len(self._seen) > _MOST_MENTIONS
            or ir.is_top(function)
            or program.owner(name, function) != function
            or any(program.encloses(function, one) for one in self._taken)
        ):
            return False
        for where, stmt in program.mentioning(name):
            if program.owner(name, where) != function:
                continue
            if stmt.op or stmt.kind in ("delete", "global", "nonlocal"):
                return False
            for expr in stmt.exprs:
                for way in ir.ways_to(expr, ir.Name(name)):
                    if expr in stmt.targets:
                        if all(isinstance(one, ir.Display) for one in way[:-1]):
                            continue
                        return False
                    if not self._ends(way, stmt, where):
                        return False
        return True

    def _is_asked(self, facts: ir.Function) -> bool:
        """The same of what a function returns, where all that call it are in sight: a method's, by its
        name."""
        program, function = self.program, facts.qualname
        asked = program.is_property(function)
        if (function, "return") in self._seen:
            return True
        self._seen.add((function, "return"))
        if facts.is_generator or facts.is_async or len(self._seen) > _MOST_MENTIONS:
            return False
        if facts.class_name is None:
            return function not in program.escaping and all(
                self._all(site.call, site.stmt, site.caller)
                for site in program.call_sites.get(function, ())
            )
        if facts.name.startswith("__") or (facts.decorators and not asked):
            return False
        for where, stmt in program.mentioning(facts.name):
            parts = parts_of(stmt)
            called = {id(one.func): one for one in parts if isinstance(one, ir.Call)}
            for inner in parts:
                if inner == ir.Const(facts.name):
                    return False
                if isinstance(inner, ir.Attr) and inner.attr == facts.name:
                    given = inner if asked else called.get(id(inner))
                    if given is None or not self._all(given, stmt, where):
                        return False
        return True

    def _is_unused(self, attr: str) -> bool:
        """Whether nothing that any object has in an attribute goes further."""
        if ("", attr) in self._seen:
            return True
        self._seen.add(("", attr))
        return all(
            inner != ir.Const(attr)
            and (
                inner in stmt.targets
                or not isinstance(inner, ir.Attr)
                or inner.attr != attr
                or self._all(inner, stmt, where)
            )
            for where, stmt in self.program.mentioning(attr)
            for inner in parts_of(stmt)
        )

    def _is_given(self, way: tuple[ir.Expr, ...], stmt: ir.Stmt, function: str) -> bool:
        value, call = way[-1], way[-2]
        assert isinstance(call, ir.Call)
        given = [arg for arg in call.args if arg.value is value]
        if len(given) != 1 or given[0].star or call.func is value:
            return False
        program = self.program
        sites = list(program.call_sites_of(call, function))
        if sites and not self._is_plain(call, {s.callee for s in sites}, function):
            return False
        for site in sites:
            names = [
                param.name
                for param in program.functions[site.callee].params
                if program.argument_at(site, param.name) is value
            ]
            if len(names) != 1 or not self._variable(names[0], site.callee):
                return False
        if sites:
            return True
        origin = program.origin(call.func, function)
        if origin is None:
            # Of a string or a logger.
            return ir.method_of(call) in _LOOKING_METHODS - self._names
        library, _, last = origin.rpartition(".")
        if library == "builtins" and last in _HOLD:
            return self._ends(way[:-1], stmt, function)
        return last in (_NUMBERS if library == "builtins" else _LOOKING_METHODS) and (
            library in ("builtins", "logging")
        )

    def _is_plain(self, call: ir.Call, callees: set[str], function: str) -> bool:
        """Whether a call runs all functions of the name that it says, and can run nothing else."""
        program = self.program
        match call.func:
            case ir.Name(id=name):
                made = program.definitions_of(call.func, function)
                if any(one.stmt.kind != "functiondef" for one in made):
                    return False
            case ir.Attr(attr=name):
                if program.attribute_targets.get(name):
                    return False
            case _:
                return False
        named = {q for q, one in program.functions.items() if one.name == name}
        return named == callees and not any(
            program.functions[one].decorators for one in callees
        )

    def _is_gone_through(
        self, way: tuple[ir.Expr, ...], stmt: ir.Stmt, function: str
    ) -> bool:
        value, made = way[-1], way[-2]
        assert isinstance(made, ir.Comprehension)
        if any(one is value for one in made.conditions):
            return True
        if any(one is value for one in made.elements):
            return self._ends(way[:-1], stmt, function)
        inside = (*made.iterables, *made.conditions, *made.elements)
        return all(
            self._ends((*way[:-1], *inner), stmt, function)
            for target, iterable in zip(made.targets, made.iterables, strict=True)
            if iterable is value
            for name in ir.walk(target)
            if isinstance(name, ir.Name)
            for expr in inside
            for inner in ir.ways_to(expr, name)
        )
