"""What a place in the program can see of a value that is used elsewhere, and whether it is bound there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from amp_migrate.analysis.objects.concrete import Concrete
from amp_migrate.analysis.objects.makers import is_of_text
from amp_migrate.analysis.objects.points_to import Fields, PointsTo, item
from amp_migrate.program import ir
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

_CASTS = frozenset("half float double bfloat16 type".split())
"""Methods of a module that return it, of another dtype."""
ON_CPU = ir.Const("cpu")
"""What a call says itself: there, nothing trains on an accelerator."""


@dataclass(frozen=True, slots=True)
class Seen:
    """``expr`` as the place writes it; what it must come after."""

    expr: ir.Expr
    after: ir.Stmt | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Right after ``stmt``, in ``function``."""

    function: str
    stmt: ir.Stmt


class Sight:
    """Answers for some files of a program."""

    def __init__(self, program: Program, files: Collection[str]) -> None:
        self.program = program
        self.files = files
        self._points_to = program.noted(PointsTo)

    def see(
        self, expr: ir.Expr, at: str, line: int, place: Place, depth: int = 0
    ) -> Seen | None:
        """A variable, or an attribute chain, that ``at`` uses in ``line``, as ``place`` can write it."""
        program = self.program
        root = root_of(expr)
        if root is None or depth > 6:
            return None
        own = program.self_class(at)
        if own is not None and root.id == own[0]:
            held = expr
            while isinstance(held, (ir.Attr, ir.Item)) and held.value != root:
                held = held.value
            if not isinstance(held, ir.Attr):
                return None
            return self._attribute(expr, held, own[1], at, line, place, depth)
        owner = program.owner(root.id, at)
        here = program.owner(root.id, place.function)
        origin = program.origin(root, at)
        if origin is not None:
            visible = origin == program.origin(root, place.function) and (
                here is None or self.is_bound(root.id, here, place)
            )
            return Seen(expr) if visible else None
        if owner is None:
            return None
        if here is not None and here != owner:
            if program.home(here, root.id) == program.home(owner, root.id):
                # Both files import the same variable.
                return self._variable(expr, root.id, here, at, line, place)
        if here != owner:
            held = _first_link(expr)
            for site in program.call_sites.get(owner, ()):
                if site.caller != place.function:
                    continue
                for link, taken in ((root, ()), (held, _taken(held))):
                    value = self._points_to.argument(site, root.id, taken)
                    if value == ON_CPU and expr == root:
                        return Seen(value) if self._are_all(site, root.id) else None
                    if value is not None and not isinstance(value, ir.Call):
                        given = replaced(expr, link, value)
                        line = place.stmt.line
                        return self.see(given, site.caller, line, place, depth + 1)
            return None
        return self._variable(expr, root.id, owner, at, line, place)

    def _are_all(self, site: CallSite, name: str) -> bool:
        """Whether all calls from where one call stands say the same of a parameter."""
        given = {
            self._points_to.argument(other, name)
            for other in self.program.call_sites.get(site.callee, ())
            if other.caller == site.caller
        }
        return len(given) == 1

    # -- variables ----------------------------------------------------------------------------

    def _variable(
        self, expr: ir.Expr, name: str, owner: str, at: str, line: int, place: Place
    ) -> Seen | None:
        program = self.program
        if self._may_be_deleted(name, owner, place):
            return None
        definitions = program.definitions(owner, name)
        params = [p for p in program.functions[owner].params if p.name == name]
        if not isinstance(expr, ir.Name):
            if not params and not self.is_bound(name, owner, place):
                return None
            return self._member(expr, at, line, place)
        split = self._split(definitions, at, line, place)
        if split is None or split[0] is not None:
            return split and Seen(expr, split[0])
        if any(self._dominates(d, place) for d in definitions):
            return Seen(expr)
        if params and params[0].default == ir.Const(None):
            return None
        bound = bool(params) or self.is_bound(name, owner, place)
        return Seen(expr) if bound else None

    def _may_be_deleted(self, name: str, owner: str, place: Place) -> bool:
        """Whether a ``del`` of a variable may have run before a place."""
        program = self.program
        return any(
            ir.Name(name) in stmt.exprs
            and program.owner(name, function) == owner
            and (
                function != place.function
                or program.control(function).leads(stmt.path, place.stmt.path)
            )
            for function, stmt in program.deletions
        )

    def _member(self, expr: ir.Expr, at: str, line: int, place: Place) -> Seen | None:
        """``args.device``, where ``args`` is in sight: not if it is assigned only afterwards."""
        assigned = [
            Definition(qualname, stmt, stmt.value)
            for qualname, function in self.program.functions.items()
            if ir.file_of(qualname) in self.files
            for stmt in ir.statements(function.body)
            if stmt.kind in ("assign", "annassign", "augassign")
            and expr in stmt.targets
        ]
        split = self._split(assigned, at, line, place)
        return split and Seen(expr, split[0])

    def _split(
        self, definitions: list[Definition], at: str, line: int, place: Place
    ) -> tuple[ir.Stmt | None] | None:
        """The last statement, if any, that a place must wait for, by which a value is given only behind
        it; None: there is no way."""
        late = _late(definitions, at, line, place)
        if not late:
            return (None,)
        last = late[-1].stmt
        siblings = (
            last.path[:-1] == place.stmt.path[:-1]
            and last.path[-1][0] == place.stmt.path[-1][0]
        )
        if not siblings or (at != place.function and len(late) < len(definitions)):
            return None
        return (last,)

    def _holding(
        self, late: list[Definition], place: Place
    ) -> tuple[ir.Stmt, ir.Stmt] | None:
        """The one statement of a place's block that gives a value, in its branches, say, and the next."""
        block = self.program.control(place.function).block(place.stmt.path)
        for stmt, following in pairwise(block):
            if stmt.line > place.stmt.line and all(
                made.function == place.function
                and made.stmt.path[: len(stmt.path)] == stmt.path
                for made in late
            ):
                return stmt, following
        return None

    def _dominates(self, definition: Definition, place: Place) -> bool:
        """Whether a definition is passed on every way to the place."""
        return definition.function == place.function and self.program.control(
            place.function
        ).dominates(definition.stmt.path, place.stmt.path)

    # -- attributes ---------------------------------------------------------------------------

    def _attribute(
        self,
        expr: ir.Expr,
        held: ir.Attr,
        class_name: str,
        at: str,
        line: int,
        place: Place,
        depth: int,
    ) -> Seen | None:
        """``expr`` is ``held`` (``self.device``) or something inside it (``self.args.device``)."""
        program = self.program
        own = program.self_class(place.function)
        definitions = program.attribute_definitions(class_name, held.attr)
        if own is not None and own[1] in program.family(class_name):
            local = replaced(expr, held, ir.Attr(ir.Name(own[0]), held.attr))
            late = _late(definitions, at, line, place)
            after = self._holding(late, place) if late else None
            if after is not None:
                # Behind it, it is set whatever came of it.
                place = Place(place.function, after[1])
            elif late:
                return None
            if not self._is_set(held.attr, own[1], place, frozenset()):
                return None
            return Seen(local, after and after[0])
        for definition in definitions:
            # The attribute is set from a parameter, which the place's function passes in.
            if isinstance(definition.value, (ir.Name, ir.Item)):
                given = replaced(expr, held, definition.value)
                at_line = definition.stmt.line
                found = self.see(given, definition.function, at_line, place, depth + 1)
                if found is not None:
                    return found
        return None

    def has(self, attr: str, class_name: str, place: Place) -> bool:
        """Whether an instance has an attribute whenever a method of its class comes to a place."""
        return self._is_set(attr, class_name, place, frozenset())

    def _is_set(
        self, attr: str, class_name: str, place: Place, asked: frozenset[str]
    ) -> bool:
        """Whether ``self.attr`` is set on every way to a place in a method of a class."""
        program = self.program
        function = place.function
        if function in asked or len(asked) > 5:
            return False
        asked |= {function}
        binds = self._binds_attribute(attr, class_name, asked)
        here = program.control(function)
        if here.is_passed(lambda s: binds(s, function), place.stmt.path):
            return True
        if program.functions[function].name == "__init__":
            return False
        made = program.method(class_name, "__init__")
        complete = made is not None and program.control(made).is_passed(
            lambda s: binds(s, made)
        )
        family = program.family(class_name)
        for site in program.call_sites.get(function, []):
            caller = program.self_class(site.caller)
            within = caller is not None and caller[1] in family
            if within and isinstance(site.call.func, ir.Attr):
                if root_of(site.call.func) == ir.Name(caller[0] if caller else ""):
                    where = Place(site.caller, site.stmt)
                    if self._is_set(attr, class_name, where, asked):
                        continue
                    return False
            if not complete:
                return False
        inside = function in program.call_sites and not complete
        return complete or inside

    def _binds_attribute(
        self, attr: str, class_name: str, asked: frozenset[str]
    ) -> Callable[[ir.Stmt, str], bool]:
        """Whether one statement of a method sets ``self.attr``, also by calling another method."""
        program = self.program
        places = {
            (d.function, d.stmt.path)
            for d in program.attribute_definitions(class_name, attr)
        }

        def binds(stmt: ir.Stmt, function: str, depth: int = 0) -> bool:
            if (function, stmt.path) in places:
                return True
            if depth > 3 or stmt.kind not in ("expr", "assign"):
                return False
            call = stmt.value
            own = program.self_class(function)
            if not isinstance(call, ir.Call) or own is None:
                return False
            if not isinstance(call.func, ir.Attr):
                return False
            holder = call.func.value
            # `Base.__init__(self)`
            by_class = call.argument(0, "self") == ir.Name(own[0]) and any(
                ref.kind == "class" for ref in program.resolve(holder, function)
            )
            if (
                holder != ir.Name(own[0])
                and not by_class
                and not (
                    isinstance(holder, ir.Call) and holder.func == ir.Name("super")
                )
            ):
                return False
            callees = program.callees(call, function)
            return bool(callees) and all(sets(callee, depth + 1) for callee in callees)

        def sets(method: str, depth: int) -> bool:
            return program.control(method).is_passed(lambda s: binds(s, method, depth))

        return binds

    # -- binding ------------------------------------------------------------------------------

    def is_bound(
        self, name: str, owner: str, place: Place, asked: frozenset[str] = frozenset()
    ) -> bool:
        """Whether a variable of ``owner`` is bound on every way to the place."""
        program = self.program
        if program.is_param(owner, name):
            return True
        found = program.bindings(owner, name)
        places = {(d.function, d.stmt.path) for d in found}
        function = place.function

        def is_passed(within: str, path: ir.Path | None = None) -> bool:
            return program.control(within).is_passed(
                lambda s: (within, s.path) in places, path
            )

        if (function, place.stmt.path) in places or is_passed(
            function, place.stmt.path
        ):
            return True
        if owner == function or function in asked:
            return False
        sites = program.call_sites.get(function, [])
        if is_passed(owner):
            return all(
                s.caller != owner or is_passed(owner, s.stmt.path) for s in sites
            )
        asked |= {function}
        return bool(sites) and all(
            self.is_bound(name, owner, Place(site.caller, site.stmt), asked)
            for site in sites
        )


def leading_to(program: Program, place: Place) -> set[tuple[str, ir.Path]]:
    """A place, and the calls that come to it in the end: each a function, and a statement in it."""
    return {(place.function, place.stmt.path)} | {
        (site.caller, site.stmt.path)
        for one in program.calling(place.function)
        for site in program.call_sites.get(one, ())
    }


def is_over(
    program: Program,
    function: str,
    stmt: ir.Stmt,
    place: Place,
    asked: tuple[str, ...] = (),
) -> bool:
    """Whether a statement is not run any more once a place is come to."""
    own = [path for caller, path in leading_to(program, place) if caller == function]
    if own:
        control = program.control(function)
        # Of what one statement calls, the order is not followed.
        beside = stmt.path in own and (asked or function != place.function)
        return not beside and not any(control.leads(path, stmt.path) for path in own)
    sites = program.call_sites.get(function, ())
    return (
        bool(sites)
        and function not in (*program.escaping, *asked)
        and all(
            is_over(program, s.caller, s.stmt, place, (*asked, function))
            or _is_of_none(program, s)
            for s in sites
        )
    )


def _is_of_none(program: Program, site: CallSite) -> bool:
    """Whether a call is that of the constructor of a class to its base's, and nothing makes an object of
    the class: one that is made elsewhere is another."""
    names = {program.functions[one].name for one in (site.caller, site.callee)}
    own, base = map(program.self_class, (site.caller, site.callee))
    return (
        names == {"__init__"}
        and own is not None
        and base is not None
        and base[1] in program.bases(own[1])
        and not program.noted(Concrete).may_make(own[1])
    )


def is_come_to_before(program: Program, function: str, place: Place) -> bool:
    """Whether a place is surely come to before a function is run, which comes to it again: an optimizer is
    made there, and a constructor and a method build it, say."""
    passing: dict[str, set[ir.Path]] = {place.function: {place.stmt.path}}
    pending = [place.function]

    def is_passed(one: str) -> bool:
        return program.control(one).is_passed(lambda stmt: stmt.path in passing[one])

    while pending:
        one = pending.pop()
        if one != function and is_passed(one):
            for site in program.call_sites.get(one, ()):
                known = passing.setdefault(site.caller, set())
                if site.stmt.path not in known:
                    known.add(site.stmt.path)
                    pending.append(site.caller)

    behind: dict[str, bool] = {}

    def is_behind(one: str) -> bool:
        if one not in behind:
            behind[one] = False  # of one that calls itself
            sites = program.call_sites.get(one, ())
            behind[one] = bool(sites) and all(
                any(
                    path != s.stmt.path
                    and program.control(s.caller).dominates(path, s.stmt.path)
                    for path in passing.get(s.caller, ())
                )
                or is_behind(s.caller)
                for s in sites
            )
        return behind[one]

    return is_behind(function)


def _late(
    definitions: list[Definition], at: str, line: int, place: Place
) -> list[Definition]:
    """Those behind a place that a line of a function may see."""
    return [
        d
        for d in definitions
        if d.function == place.function
        and d.stmt.line > place.stmt.end_line
        and (at != place.function or d.stmt.line < line)
    ]


def root_of(expr: ir.Expr) -> ir.Name | None:
    """The variable at the root of an attribute or item chain."""
    while isinstance(expr, (ir.Attr, ir.Item)):
        expr = expr.value
    return expr if isinstance(expr, ir.Name) else None


def replaced(expr: ir.Expr, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    """An attribute or item chain with one of its links replaced."""
    if expr == old:
        return new
    if isinstance(expr, ir.Attr):
        return ir.Attr(replaced(expr.value, old, new), expr.attr)
    if isinstance(expr, ir.Item):
        return ir.Item(replaced(expr.value, old, new), expr.key)
    return expr


def _first_link(expr: ir.Expr) -> ir.Expr:
    """What is taken first out of the variable at the root."""
    while isinstance(expr, (ir.Attr, ir.Item)) and not isinstance(expr.value, ir.Name):
        expr = expr.value
    return expr


def _taken(expr: ir.Expr) -> Fields:
    match expr:
        case ir.Item(key=ir.Const(value=key)):
            return (item(key),)
    return ()


def where_lost(
    program: Program, expr: ir.Expr, function: str, stmt: ir.Stmt | None
) -> tuple[str, int] | None:
    """Why it cannot be seen what an expression stands for, in words, and in which line that is; None
    where all is in sight.
    """
    found = program.noted(PointsTo).of(expr, function, stmt)
    wanted = (one for one in found if not is_of_text(one))
    for one in sorted(wanted, key=lambda one: (one.kind != "lost", one.kind == "open")):
        place = program.functions[one.function]
        line = place.line if one.stmt is None else one.stmt.line
        if one.kind in ("lost", "open"):
            return one.name, line
        if one.fields and isinstance(one.expr, ir.Call):
            origin = program.origin(one.expr.func, one.function) or ""
            made = ir.render(one.expr.func)
            cast = ir.method_of(one.expr) in _CASTS
            if made is not None and not cast and not origin.startswith("torch."):
                return f"what {made}() holds is not followed", line
    return None
