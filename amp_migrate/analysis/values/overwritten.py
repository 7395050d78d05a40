"""Whether what regions left in an attribute is gone where it is read: a state that begins anew.

Reaching definitions across calls: back from a read to what surely gives the attribute of the same object
another value, with nothing between them that leads into a region.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property, partial

from amp_migrate.analysis.values.called import Called
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.core.closure import reached
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, unpacked
from amp_migrate.program.link import CallSite, Program

_DEEPEST = 4
"""How far into calls a store is looked for."""
_LONGEST = 8
"""Of ``self.next.next``, which a function hands to itself, there is no end."""


class Overwritten:
    """Answers for one program, some of whose statements are in regions."""

    def __init__(
        self,
        program: Program,
        inside: Statements,
        in_fp32: Statements,
        outside: Collection[str],
    ) -> None:
        """``outside``: the functions that run outside of every region. ``in_fp32``: the statements for which
        autocast is turned off."""
        self.program = program
        self.inside = inside
        self.in_fp32 = in_fp32
        self.outside = outside
        self._known: dict[tuple[ir.Expr, str, ir.Path, frozenset[str]], bool] = {}

    def is_overwritten(
        self, read: ir.Expr, function: str, stmt: ir.Stmt, classes: frozenset[str]
    ) -> bool:
        """Whether an attribute of an object of some ``classes`` surely gets another value between the last
        region and a statement that runs outside of all."""
        key = (read, function, stmt.path, classes)
        if key not in self._known:
            self._known[key] = self._is_wherever(read, function, stmt, classes)
        return self._known[key]

    def _is_wherever(
        self, read: ir.Expr, function: str, stmt: ir.Stmt, classes: frozenset[str]
    ) -> bool:
        """The same, whoever has called the function, and whoever has called that."""
        pending = {(read, function, stmt.path): stmt}
        for one in (asked := [*pending]):
            before = self._before(one[0], one[1], pending[one], classes)
            if before is None:
                return False
            for there, caller, call in before:
                if (there, caller, call.path) not in pending:
                    pending[there, caller, call.path] = call
                    asked.append((there, caller, call.path))
        return True

    def _before(
        self, read: ir.Expr, function: str, stmt: ir.Stmt, classes: frozenset[str]
    ) -> list[tuple[ir.Expr, str, ir.Stmt]] | None:
        """Where a read is to be looked for that is not stored in the same function, as it is written there;
        None where a region may come before it."""
        program, root = self.program, _root_of(read)
        facts, control = program.functions[function], program.control(function)
        if facts.is_generator or facts.is_async or self._leads(stmt, function):
            return None
        if not self._is_fixed(read):
            return None
        for around in (stmt, *control.around(stmt.path)):
            if around is not stmt and self._spoils(around, root, function):
                return None
            before = control.block(around.path)[: around.path[-1][1]]
            for one in _last_first(before):
                if self._spoils(one, root, function):
                    return None
                if self._stores(one, read, function, classes):
                    return [] if control.dominates(one.path, stmt.path) else None
        sites = program.call_sites.get(function, ())
        if (
            not sites
            or function in program.escaping
            or program.noted(Called).sites_into(function)
        ):
            return None
        found = []
        for site in filter(self._is_outside, sites):
            there = self._at_call(read, site)
            if there is None:
                return None
            found.append((there, site.caller, site.stmt))
        return found

    def _is_outside(self, site: CallSite) -> bool:
        place = site.caller, site.stmt.path
        return site.caller in self.outside and (
            place not in self.inside or place in self.in_fp32
        )

    @cached_property
    def _leading(self) -> frozenset[str]:
        """The functions with regions, and those that lead to a call of one."""
        called, sites = self.program.noted(Called), self.program.call_sites
        return frozenset(
            reached(
                {function for function, _ in self.inside},
                lambda one: [
                    site.caller
                    for site in (*sites.get(one, ()), *called.sites_into(one))
                ],
            )
        )

    @cached_property
    def _is_hidden(self) -> bool:
        """Whether regions are led to by what somebody out of sight may call at any time."""
        return not self._leading.isdisjoint(self.program.taken)

    def _leads(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement leads into a region."""
        called = self.program.noted(Called)
        return any(
            (function, one.path) in self.inside
            or not self._leading.isdisjoint(called.by(function, one))
            for one in ir.statements((stmt,))
        )

    def _spoils(self, stmt: ir.Stmt, root: str, function: str) -> bool:
        return self._leads(stmt, function) or any(
            name == root for one in ir.statements((stmt,)) for name, *_ in bindings(one)
        )

    def _is_fixed(self, read: ir.Expr) -> bool:
        """Whether what a read goes through, ``self.agents.policy`` of ``self.agents.policy.hidden``, is the
        same object as long as there is the one before."""
        through = [one.attr for one in ir.walk(read) if isinstance(one, ir.Attr)][1:]
        program = self.program
        return (
            bool(_root_of(read))
            and len(through) < _LONGEST
            and not self._is_hidden
            and not any(
                program.functions[made.function].name != "__init__"
                for attr in through
                for _, made in program.attribute_targets.get(attr, ())
            )
            and self._properties.isdisjoint(through)
        )

    @cached_property
    def _properties(self) -> frozenset[str]:
        functions = self.program.functions
        return frozenset(f.name for f in functions.values() if f.decorators)

    # -- what stores ---------------------------------------------------------------------------

    def _stores(
        self,
        stmt: ir.Stmt,
        read: ir.Expr,
        function: str,
        classes: frozenset[str],
        depth: int = 0,
    ) -> bool:
        """Whether a statement surely gives an attribute something that is made there."""
        if stmt.kind in ("assign", "annassign"):
            for target, value, _ in unpacked(stmt):
                if target == read:
                    return value is not None and self._is_new(value, function)
        call = stmt.value
        if not isinstance(call, ir.Call) or depth > _DEEPEST:
            return False
        program, callees = self.program, [*self.program.callees(call, function)]
        match call.func, read:
            case ir.Attr(value=value, attr=name), ir.Attr(value=held) if value == held:
                # Of all that the object may be, though less may be known of it here.
                found = [program.methods(one, name, True) for one in classes]
                callees = [one for methods in found for one in methods]
                if not all(found):
                    return False
        return bool(callees) and all(
            self._surely_stores(site, read, classes, depth)
            for one in callees
            for filled in [program.fills_self(call, one, function)]
            for site in [CallSite(function, stmt, call, one, filled)]
        )

    def _surely_stores(
        self, site: CallSite, read: ir.Expr, classes: frozenset[str], depth: int
    ) -> bool:
        program, callee = self.program, site.callee
        facts = program.functions[callee]
        if facts.is_generator or facts.is_async:
            return False
        inner = [
            _with(read, given, ir.Name(name))
            for name, given in self._given(site)
            if not program.definitions(callee, name)
        ]
        if self._is_shared(read, callee, site.caller):
            inner.append(read)
        return any(
            program.control(callee).is_passed(
                partial(
                    self._stores,
                    read=one,
                    function=callee,
                    classes=classes,
                    depth=depth + 1,
                )
            )
            for one in inner
            if one is not None
        )

    def _is_new(self, value: ir.Expr, function: str, depth: int = 0) -> bool:
        """Whether a value is none that is kept elsewhere."""
        program = self.program
        match value:
            case ir.Call() if callees := program.callees(value, function):
                given = [*program.returns(value, function)]
                return (
                    depth < _DEEPEST
                    and not any(program.functions[one].decorators for one in callees)
                    and {*callees} == {callee for callee, _ in given}
                    and all(self._is_new(one, f, depth + 1) for f, one in given)
                )
            case ir.Call() | ir.Display() | ir.Comprehension() | ir.Const():
                return True
            case ir.Name(id=name) if not program.is_param(function, name):
                made = program.definitions(function, name)
                return (
                    bool(made)
                    and depth < _DEEPEST
                    and all(
                        one.index is None
                        and one.function == function
                        and one.value is not None
                        and self._is_new(one.value, function, depth + 1)
                        for one in made
                    )
                )
        return False

    # -- calls ---------------------------------------------------------------------------------

    def _given(self, site: CallSite) -> Iterator[tuple[str, ir.Expr]]:
        """What a call gives to parameters, its receiver to the first."""
        facts, func = self.program.functions[site.callee], site.call.func
        params = [param.name for param in facts.params]
        if site.bound_self and params and facts.name != "__init__":
            is_called = isinstance(func, ir.Attr) and func.attr == facts.name
            yield params[0], ir.receiver_of(site.call) if is_called else func
        for name in params[site.bound_self :]:
            given = self.program.argument_at(site, name)
            if given is not None:
                yield name, given

    def _at_call(self, read: ir.Expr, site: CallSite) -> ir.Expr | None:
        """What a function reads, as its caller would write it."""
        if self._is_shared(read, site.callee, site.caller):
            return read
        root = ir.Name(_root_of(read))
        found = (_with(read, root, e) for n, e in self._given(site) if n == root.id)
        return next(found, None)

    def _is_shared(self, read: ir.Expr, function: str, other: str) -> bool:
        """Whether a read begins with a variable that is the same one in two functions, and never another."""
        program, root = self.program, _root_of(read)
        owner = program.owner(root, function)
        return (
            owner is not None
            and ir.is_top(owner)
            and owner == program.owner(root, other)
            and len(program.definitions(owner, root)) == 1
        )


def _root_of(read: ir.Expr) -> str:
    """The variable that attributes of attributes begin with."""
    while isinstance(read, ir.Attr):
        read = read.value
    return read.id if isinstance(read, ir.Name) else ""


def _with(read: ir.Expr, part: ir.Expr, other: ir.Expr) -> ir.Expr | None:
    """The same with another beginning."""
    if read == part:
        return other
    if isinstance(read, ir.Attr):
        inner = _with(read.value, part, other)
        return None if inner is None else ir.Attr(inner, read.attr)
    return None


def _last_first(block: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """The statements of a block from the end, those of a ``with`` among them."""
    for stmt in reversed(block):
        for inner in stmt.blocks if stmt.kind == "with" else ():
            yield from _last_first(inner.body)
        yield stmt
