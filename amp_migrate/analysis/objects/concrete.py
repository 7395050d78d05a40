"""On objects of which classes a method may run: one that a subclass overrides runs on none of its objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import combinations

from amp_migrate.analysis.objects.carriers import Carriers
from amp_migrate.analysis.objects.contents import PUTS
from amp_migrate.analysis.objects.flow import PARSES
from amp_migrate.analysis.objects.live import runs_once
from amp_migrate.analysis.objects.read_only_uses import GoesNoFurther
from amp_migrate.core.closure import reached
from amp_migrate.program import ir
from amp_migrate.program.bindings import IMPORTS, calls_of, parts_of
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

_LOOKUPS = (
    "__mro__ mro __base__ __bases__ MethodType __get__ __func__ new_class".split()
)
_NAMES = "__name__ __qualname__ __module__".split()
_TAKE = ("builtins.getattr", "builtins.vars")
_TAKERS = "getattr setattr vars __dict__".split()
_ASKS = "super isinstance issubclass type".split()
_REACHES = "exec __import__ __subclasses__ locate instantiate".split()
"""By what a class can be got at that is not named."""
_Place = tuple[str, ir.Stmt, ir.Expr]


class Concrete:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._methods: dict[str, frozenset[str]] = {}
        self._apart: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        self._alone: dict[frozenset[str], bool] = {}
        self._choices: dict[frozenset[str], list[tuple[_Place, str | None]]] = {}
        """Of those, where the class is chosen, and which it is, where it is named there."""
        self._ends = GoesNoFurther(program)
        self._carriers: dict[frozenset[str], Carriers] = {}

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
        if scope is None or (
            scope in program.escaping
            and (program.functions[scope].name != "__init__" or self._takes_init)
        ):
            return frozenset()
        return frozenset(
            one for one in self._family((own[1],)) if scope in self._run_on(one)
        )

    @cached_property
    def _takes_init(self) -> bool:
        """Whether something takes the method that makes an object ready, which else is called for a class."""
        return any(
            isinstance(inner, ir.Attr)
            and inner.attr == "__init__"
            and all(call.func is not inner for call in calls_of(stmt))
            for _, stmt in self.program.mentioning("__init__")
            for inner in parts_of(stmt)
        )

    def may_make(self, class_name: str) -> bool:
        """Whether something here may make an object of a class, or of one that derives from it."""
        program = self.program
        derived = [
            one
            for one in program.family(class_name)
            if class_name in program.bases(one)
        ]
        return self._takes_variables or self._made_by(derived) != {}

    def called_on(self, function: str) -> frozenset[str]:
        """The same, less those on whose objects nothing that calls it runs."""
        found = self.classes_of(function)
        callers = [
            self.classes_of(site.caller)
            for site in self.program.call_sites.get(function, ())
        ]
        if not callers or not all(callers):
            return found
        return found.intersection(frozenset().union(*callers))

    def runs_others(
        self, stmt: ir.Stmt, function: str, matters: Callable[[str], bool]
    ) -> bool:
        """Whether a statement of a method may run another that ``matters``, on an object of a class of the
        same family that is not the method's own."""
        program, classes = self.program, self.classes_of(function)
        family = self._family(classes)
        methods = {m for one in family for _, m in program.classes[one].methods}
        names = {program.functions[m].name for m in methods if matters(m)}
        pending = [(function, stmt)]
        seen: set[str] = set()
        while pending:
            where, one = pending.pop()
            for call in calls_of(one):
                called = set(program.callees(call, where))
                match call.func:
                    case ir.Attr(value=ir.Call(func=ir.Name(id="super"))):
                        pass
                    case ir.Attr(value=value, attr=attr) if (
                        attr in names
                        and program.class_of_self(value, where) is None
                        and self._is_of(value, where, family, True)
                    ):
                        return True
                called = {c for c in called - seen if self._may_run_on(c, classes)}
                seen |= called
                pending += ((c, s) for c in called for s in program.statements(c))
        return False

    def _may_run_on(self, function: str, classes: Collection[str]) -> bool:
        found = self.classes_of(function)
        return not found or not found.isdisjoint(classes)

    def apart(
        self, class_names: frozenset[str], among: frozenset[str]
    ) -> frozenset[str]:
        """The methods of the families of many classes that run on no objects of some, and do nothing with
        them; where a run makes objects of one class alone, all that runs in other runs only.
        """
        asked = class_names, among
        if asked not in self._apart:
            self._apart[asked] = self._find_apart(*asked)
        return self._apart[asked]

    def _find_apart(
        self, class_names: frozenset[str], among: frozenset[str]
    ) -> frozenset[str]:
        program, family = self.program, self._family(among)
        found = self._run_on_others(class_names, family)
        if not found or self._is_dynamic:
            return frozenset()
        # Where all variables are taken together, a parameter would be one.
        taken = {function for function, _ in program.mentioning("locals", "vars")}
        if not taken.isdisjoint(found):
            return frozenset()
        if self.is_alone(among):
            return found | self._run_elsewhere(found, class_names, family) - taken
        return frozenset() if self._are_tied(family, found) else found

    def _run_elsewhere(
        self,
        found: frozenset[str],
        class_names: frozenset[str],
        family: frozenset[str],
    ) -> frozenset[str]:
        """What a run that makes objects of some classes does not come to, beside the methods of others: what
        another class does than the one that makes them, where of these a run has one, too; and what
        nothing but all that names."""
        makers = [
            self.classes_of(function)
            for (function, _, _), one in self._choices[family]
            if one is None or one in class_names
        ]
        every = frozenset().union(*makers)
        if makers and all(makers) and self.is_alone(every):
            found |= self._run_on_others(every, self._family(every))
        return found | self._named_only_by(found)

    def _run_on_others(
        self, class_names: frozenset[str], family: Collection[str]
    ) -> frozenset[str]:
        """The methods of a family that run on no objects of some classes."""
        return frozenset(
            method
            for one in family
            for _, method in self.program.classes[one].methods
            if (run_on := self.classes_of(method)) and run_on.isdisjoint(class_names)
        )

    def _named_only_by(self, found: Collection[str]) -> frozenset[str]:
        """The functions, and methods of classes, that nothing names but some functions, and one another."""
        gone = self._with_inner(found)
        named = self._namers
        left = dict(self._nameable)
        while True:
            gone_with = gone.union(left, *left.values())
            live = [one for one in left if not named[one] <= gone_with]
            if not live:
                return frozenset().union(*left.values())
            for one in live:
                del left[one]

    @cached_property
    def _nameable(self) -> dict[str, frozenset[str]]:
        """The functions, and the classes, that run by their name alone, each with all that runs with it."""
        program = self.program
        if program.imported_by_name or self._gets_any or self._takes_variables:
            return {}
        metaclasses = {
            stmt.names[1]
            for _, stmt in program.all_statements()
            if stmt.kind == "classdef"
            and not set(stmt.exprs) <= {*program.classes[stmt.names[1]].bases}
        }
        loads = any(
            "load" in (program.origin(call.func, function) or "").split(".")
            for function, _, call in program.calls_named("load")
        )
        found: dict[str, tuple[str, ...]] = {
            name: (name,)
            for name, one in program.functions.items()
            if one.class_name is None
            and one.parent
            and ir.is_top(one.parent)
            and not one.decorators
        }
        for name, made in program.classes.items():
            bases = program.bases(name)
            hidden = {m for b in bases for m, _ in program.classes[b].methods}
            if (
                ir.is_top(made.parent)
                and not made.decorators
                and not (loads and program.external_bases(name))
                and metaclasses.isdisjoint(bases)
                and hidden.isdisjoint(("__init_subclass__", "__new__"))
            ):
                found[name] = tuple(method for _, method in made.methods)
        return {
            name: self._with_inner(its)
            for name, its in found.items()
            if not program.is_public(name)
        }

    @cached_property
    def _takes_variables(self) -> bool:
        """Whether something takes all variables of a file, or of a function, together."""
        return any(
            isinstance(inner, ir.Name) and inner.id in ("globals", "locals")
            for _, stmt in self.program.mentioning("globals", "locals")
            for inner in parts_of(stmt)
        )

    @cached_property
    def _namers(self) -> dict[str, set[str]]:
        """Of each of them, the functions that say its name, and the classes that derive from it."""
        program = self.program
        found: dict[str, set[str]] = {}
        said = [d for made in program.classes.values() for d in made.decorators]
        for function in program.functions.values():
            said += function.decorators
            said += (p.default for p in function.params if p.default is not None)
        words = {word for expr in said for word in ir.words_in(expr)}
        for one, its in self._nameable.items():
            name = ir.local_name(one).rpartition(".")[2]
            if not words.isdisjoint(program.with_aliases({name})):
                found[one] = {""}
                continue
            namers = {
                stmt.names[1] if stmt.kind == "classdef" else function
                for function, stmt in program.mentioning(name)
                if stmt.kind not in IMPORTS
            }
            # Whoever may call what nothing names is not seen.
            found[one] = namers - its - {one} or {""}
        return found

    def _family(self, class_names: Collection[str]) -> frozenset[str]:
        bases = {base for one in class_names for base in self.program.bases(one)}
        return frozenset(one for base in bases for one in self.program.family(base))

    def is_alone(self, class_names: Collection[str]) -> bool:
        """Whether all objects that a run makes of the families of some classes are of one class, whichever:
        it comes to one of the calls that make them, or to one of the statements that choose the class, and
        to one that may choose several, once.
        """
        family = self._family(class_names)
        if family not in self._alone:
            self._alone[family] = False  # of one whose objects make others of it
            made = (self._made_by(family) or {}).values()
            chosen = {
                id(c): (f, s, c) for place in made for f, s, c in self._chosen(place)
            }
            places = [(place, self._named(place)) for place in chosen.values()]
            self._alone[family] = (
                bool(places)
                and all(one or runs_once(self.program, *place) for place, one in places)
                and not any(
                    self._may_both_run(place, other)
                    for (place, one), (other, another) in combinations(places, 2)
                    if one is None or one != another
                )
            )
            self._choices[family] = places
        return self._alone[family]

    def _chosen(self, place: _Place) -> list[_Place]:
        """Where the class is chosen of which a call makes an object: where its variable is given one, or a
        call fills its parameter with one, else where the call stands."""
        function, _, call = place
        if isinstance(call, ir.Call):
            program, func = self.program, call.func
            if isinstance(func, ir.Name) and program.is_param(function, func.id):
                sites = program.call_sites.get(function, ())
                given = [(s, program.argument_at(s, func.id)) for s in sites]
                if (
                    given
                    and function not in program.escaping
                    and not program.definitions(function, func.id)
                    and all(value is not None for _, value in given)
                ):
                    return [(s.caller, s.stmt, v) for s, v in given if v is not None]
                return [place]
            made = program.set_to(func, function)
            chosen = [
                (one.function, one.stmt, one.value)
                for one in made
                if one.stmt.kind == "assign" and one.index is None and one.value
            ]
            if len(chosen) == len(made):
                return chosen or [place]
        return [place]

    def _named(self, place: _Place) -> str | None:
        """The class that is named at a place that chooses one, if no other can be meant."""
        function, _, expr = place
        expr = expr.func if isinstance(expr, ir.Call) else expr
        expr, function = self.program.elsewhere(expr, function) or (expr, function)
        owner = (
            self.program.owner(expr.id, function) if isinstance(expr, ir.Name) else None
        )
        if owner is None or not isinstance(expr, ir.Name):
            return None
        made = [d.stmt for d in self.program.definitions(owner, expr.id)]
        return made[0].names[1] if [s.kind for s in made] == ["classdef"] else None

    def _may_both_run(self, one: _Place, other: _Place) -> bool:
        """Whether a run may come to two calls: not where they stand in two arms, or in two scripts, or in
        methods of two classes of which a run makes one."""
        (caller, stmt, _), (also, there, _) = one, other
        if caller != also:
            files = ir.file_of(caller), ir.file_of(also)
            its, others = map(self.classes_of, (caller, also))
            apart = its and others and its.isdisjoint(others)
            return self.program.may_run_together(*files) and not (
                apart and self.is_alone(its | others)
            )
        if stmt is there or not runs_once(self.program, caller):
            return True
        places = [(caller, stmt.path), (also, there.path)]
        return _run_together(self.program, places) and not (
            self._are_two_ways(caller, stmt.path, there.path)
        )

    def _are_two_ways(self, function: str, one: ir.Path, other: ir.Path) -> bool:
        """Whether two statements of a function that runs once stand in two arms of an ``if`` that goes the
        same way each time."""
        around = [*self.program.control(function).around(one)]
        loops = [outer.path for outer in around if outer.kind in ("for", "while")]
        return any(
            outer.kind == "if"
            and outer.path == other[: len(outer.path)]
            and one[len(outer.path)][0] != other[len(outer.path)][0]
            and outer.value is not None
            and self._stays(outer.value, function, loops[-1:])
            for outer in around
        )

    def _stays(self, test: ir.Expr, function: str, loops: list[ir.Path]) -> bool:
        """Whether a test that a function comes to in some loops goes one way for all of a run."""
        match test:
            case ir.Operation(op="and" | "or" | "not", operands=parts):
                return all(self._stays(part, function, loops) for part in parts)
            # Another object may be changed in place, and then be equal, or true.
            case ir.Operation(
                op="==" | "!=" | "is" | "is not",
                operands=(one, ir.Const(value=str() | None)),
            ):
                return self._is_set_once(one, function, loops)
            case ir.Operation(
                op="in" | "not in", operands=(one, ir.Display(items=items, keys=()))
            ) if all(isinstance(item, ir.Const) for item in items):
                return self._is_set_once(one, function, loops)
        return False

    def _is_set_once(self, expr: ir.Expr, function: str, loops: list[ir.Path]) -> bool:
        """Whether nothing sets a variable of a function, or an option of the command line, from some loops
        on."""
        program = self.program

        def is_again(made: Definition) -> bool:
            return made.function != function or any(
                made.stmt.path[: len(loop)] == loop for loop in loops
            )

        match expr:
            case ir.Name(id=name):
                return (
                    program.owner(name, function) == function
                    and (function, name) not in program.set_from_outside
                    and not any(map(is_again, program.definitions(function, name)))
                )
            case ir.Attr(value=ir.Name() as holder, attr=attr):
                return (
                    self._is_set_once(holder, function, loops)
                    and self._are_options(holder, function)
                    and not program.mentioning("__dict__", "__setattr__")
                    and all(
                        program.class_of_self(on, made.function) is not None
                        or (on == holder and not is_again(made))
                        for on, made in program.attribute_targets.get(attr, ())
                    )
                    and all(
                        program.class_of_self(call.args[0].value, where) is not None
                        or (stmt.kind == "for" and stmt.value is call)
                        or not _may_say(call.argument(1, "name"), attr)
                        for name in ("setattr", "vars")
                        for where, stmt, call in program.calls_named(name)
                        if call.args
                    )
                )
        return False

    def _are_options(
        self, expr: ir.Expr, function: str, asked: frozenset[str] = frozenset()
    ) -> bool:
        """Whether an expression is what argparse makes of a command line."""
        program = self.program
        if not isinstance(expr, ir.Name) or function in asked:
            return False
        owner = program.owner(expr.id, function)
        if owner is None:
            return False
        made = program.definitions(owner, expr.id)
        if program.is_param(owner, expr.id):
            given = program.arguments(owner, expr.id)
            return (
                not made
                and bool(given)
                and owner not in program.escaping
                and all(
                    self._are_options(value, caller, asked | {function})
                    for caller, value in given
                )
            )
        return (
            bool(made)
            and all(
                isinstance(one.value, ir.Call)
                and ir.method_of(one.value) in PARSES
                and not program.callees(one.value, one.function)
                for one in made
            )
            and all(
                call.argument(1, "namespace") is None
                for name in PARSES
                for _, _, call in program.calls_named(name)
            )
        )

    def _made_by(self, family: Collection[str]) -> dict[int, _Place] | None:
        """The calls that make an object of a family; None where one of its classes gets to where it is not
        followed."""
        program = self.program
        methods = {m for one in family for _, m in program.classes[one].methods}
        names = {program.functions[method].name for method in methods}
        if any(program.classes[one].decorators for one in family) or (
            self._gets_any
            or not program.imported_by_name.isdisjoint(map(ir.file_of, family))
        ):
            return None
        made: dict[int, _Place] = {}
        said: set[str] = set()
        words = {program.classes[one].name for one in family} | {"globals"}
        while words - said:
            said |= words
            for function, stmt in program.mentioning(*words):
                held = {
                    id(inner): inner
                    for inner in parts_of(stmt)
                    if self._is_class_of(inner, function, family)
                }
                for inner in parts_of(stmt):
                    match inner:
                        case ir.Call(func=func) if id(func) in held:
                            made[id(inner)] = function, stmt, inner
                            del held[id(func)]
                        case ir.Call(func=ir.Name(id=name)) if name in _ASKS:
                            for arg in inner.args:
                                held.pop(id(arg.value), None)
                        case ir.Call(args=args) if any(
                            id(a.value) in held for a in args
                        ):
                            words |= self._given_on(inner, function, held, family)
                        case ir.Attr(value=value, attr=attr) if function in methods or (
                            attr in _NAMES
                            or (attr not in names and not attr.startswith("__"))
                        ):
                            held.pop(id(value), None)
                words |= self._gone_on(stmt, function, held)
                if held:
                    return None
        return made

    def _given_on(
        self,
        call: ir.Call,
        function: str,
        held: dict[int, ir.Expr],
        family: Collection[str],
    ) -> set[str]:
        """The names of the parameters that a call fills with classes that its statement holds."""
        program = self.program
        found: set[str] = set()
        refs = program.resolve(call.func, function)
        sites = [*program.call_sites_of(call, function)]
        if not refs or len(refs) != len({site.callee for site in sites}):
            return found
        for arg in call.args:
            names = {
                p.name
                for site in sites
                for p in program.functions[site.callee].params
                if program.argument_at(site, p.name) is arg.value
                and site.callee not in program.escaping
                and self._is_class_of(ir.Name(p.name), site.callee, family)
            }
            if id(arg.value) in held and not arg.star and names:
                del held[id(arg.value)]
                found |= names
        return found

    @cached_property
    def _gets_any(self) -> bool:
        """Whether something may get at a class of any file that it does not name."""
        program = self.program
        return (
            bool(program.mentioning(*_REACHES))
            or self._takes_by_name
            or any(
                inner == ir.Name("eval")
                or program.origin(inner, function) == "sys.modules"
                for function, stmt in program.mentioning("eval", "modules")
                for inner in parts_of(stmt)
                if isinstance(inner, (ir.Name, ir.Attr))
            )
            or not all(
                _begins(call.argument(0, "name"))
                for function, stmt in program.mentioning("import_module")
                for call in calls_of(stmt)
                if program.origin(call.func, function) == "importlib.import_module"
            )
        )

    @cached_property
    def _takes_by_name(self) -> bool:
        """Whether something is taken by a name that is put together, out of what may be a file."""
        program = self.program
        for function, _, call in program.calls_named("getattr"):
            match call.args:
                case (_, ir.Arg(value=ir.Const()), *_):
                    continue
                case (ir.Arg(value=holder), *_):
                    known = program.resolve(holder, function)
                    if not known and program.origin(holder, function) is None:
                        if not self._are_options(holder, function):
                            return True
        return any(
            isinstance(inner, ir.Name)
            and any(
                there is None
                for scope in (program.owner(inner.id, function),)
                if scope is not None
                for _, there in program.targets(inner.id, scope)
            )
            for function, stmt in program.mentioning("vars", "__dict__")
            for inner in parts_of(stmt)
        )

    def _gone_on(
        self, stmt: ir.Stmt, function: str, held: dict[int, ir.Expr]
    ) -> set[str]:
        """The names of what a statement gives one of the classes that it holds, which are followed then."""
        in_class = id(stmt) in self.program.class_statements
        match stmt:
            case ir.Stmt(kind="classdef"):
                held.clear()
            case ir.Stmt(kind="return", value=value) if (
                id(value) in held and function not in self.program.escaping
            ):
                del held[id(value)]
                return {self.program.functions[function].name}
            case ir.Stmt(kind="assign", targets=(ir.Name(id=name) as target,)) if (
                held and not in_class
            ):
                value = stmt.value
                given: tuple[ir.Expr | None, ...] = (value,)
                if isinstance(value, ir.Display) and self.program.entries(
                    target, function
                ):
                    given = value.items
                for one in (target, *given):
                    held.pop(id(one), None)
                return {name}
        return set()

    @cached_property
    def _is_dynamic(self) -> bool:
        """Whether something may look a method up by another class than that of the object."""
        if self.program.mentioning(*_LOOKUPS) or any(
            self._may_derive(call, function)
            for function, _, call in self.program.calls_named("type")
        ):
            return True
        for _, stmt in self.program.mentioning("super", "__class__"):
            taken = [inner for inner in parts_of(stmt) if isinstance(inner, ir.Attr)]
            plain = {id(inner.value) for inner in taken}
            if any(
                inner.func == ir.Name("super") and id(inner) not in plain
                for inner in parts_of(stmt)
                if isinstance(inner, ir.Call)
            ):
                return True
            for inner in (*taken, *stmt.targets):
                if inner in stmt.targets:
                    whose: ir.Expr | None = inner
                elif isinstance(inner, ir.Attr) and inner.attr not in _NAMES:
                    whose = inner.value
                else:
                    continue
                if isinstance(whose, ir.Attr) and whose.attr == "__class__":
                    return True
        return False

    def _may_derive(self, call: ir.Call, function: str) -> bool:
        """Whether ``type(name, bases, members)`` may make a class that derives from one of this program."""
        bases = call.argument(1, "bases")
        if isinstance(bases, ir.Display):
            found = [self.program.resolve(one, function) for one in bases.items]
            return not all(found) or any(
                ref.kind == "class" for ref in set().union(*found)
            )
        return bases is not None

    def _are_tied(self, family: frozenset[str], apart: Collection[str]) -> bool:
        """Whether something gives objects of a family what others have, or a method of one class to others;
        or one of some methods uses what another object has."""
        program = self.program
        methods = {m for one in family for _, m in program.classes[one].methods}
        names = {program.functions[method].name for method in methods}
        apart = {inner for one in apart for inner in (one, *self._inside.get(one, ()))}
        attributes, read = self._attributes(family, apart)
        for function, stmt in program.mentioning(*names, *attributes, *read, *_TAKERS):
            in_class = id(stmt) in program.class_statements
            filled = [
                call.func for call in calls_of(stmt) if ir.method_of(call) in PUTS
            ]
            written = {id(e) for one in (*stmt.targets, *filled) for e in _written(one)}
            outside = written if function not in apart else ()
            called = {id(call.func) for call in calls_of(stmt)}
            for inner in parts_of(stmt):
                match inner:
                    case ir.Attr(
                        value=value, attr=attr
                    ) if attr in names and self._is_class_of(value, function, family):
                        if in_class or function not in methods:
                            return True
                    case ir.Attr(value=value, attr=attr) if (
                        attr in (read if id(inner) in outside else attributes)
                        or attr == "__dict__"
                    ) and program.class_of_self(value, function) is None:
                        unknown = id(inner) in written or function in apart
                        if (
                            self._is_of(value, function, family, unknown)
                            and not self._ends.of(inner, stmt, function)
                            and (id(inner) not in called or self._is_called(attr))
                        ):
                            return True
                    case ir.Call(func=ir.Name(id="vars"), args=(first,)):
                        unknown = id(inner) in written
                        if self._is_of(first.value, function, family, unknown):
                            return True
                    case ir.Call(
                        func=ir.Name(id="setattr"), args=(first, _, given)
                    ) if not self._is_made(given.value, function):
                        if self._is_class_of(first.value, function, family) or (
                            self._is_of(first.value, function, family, True)
                        ):
                            return True
                    case ir.Call(func=ir.Name(id="getattr"), args=(first, *more)):
                        if self._is_class_of(first.value, function, family):
                            return True
                        taken = more[0].value if more else None
                        if (
                            program.class_of_self(first.value, function) is None
                            and not (
                                isinstance(taken, ir.Const)
                                and taken.value not in attributes
                            )
                            and self._is_of(first.value, function, family, False)
                            and not self._ends.of(inner, stmt, function)
                        ):
                            return True
        return False

    def _attributes(
        self, family: Collection[str], apart: Collection[str]
    ) -> tuple[set[str], set[str]]:
        """The attributes that methods of a family give their objects, and those that what is not ``apart``
        reads; but for numbers."""
        program = self.program
        given: set[str] = set()
        read: set[str] = set()
        takes_any = False
        for function in program.functions:
            own = program.self_class(function)
            if own is None or own[1] not in family:
                continue
            itself = ir.Name(own[0])
            for stmt in program.statements(function):
                stores = set() if stmt.op else {id(target) for target in stmt.targets}
                for inner in parts_of(stmt):
                    match inner:
                        case ir.Attr(value=value, attr=attr) if value == itself:
                            if id(inner) in stores:
                                given.add(attr)
                            elif function not in apart:
                                read.add(attr)
                                takes_any |= attr == "__dict__"
                        case ir.Call(func=ir.Name(id="getattr" | "vars"), args=args):
                            match args[1:]:
                                case (ir.Arg(ir.Const(str(attr))), *_):
                                    read.add(attr)
                                case _:
                                    takes_any = True
        read |= given if takes_any else set()
        return (
            {attr for attr in given if not self._is_number(attr)},
            {attr for attr in read if not self._is_number(attr)},
        )

    def _is_called(self, attr: str) -> bool:
        """Whether an attribute may hold what can be called."""
        return not self._holds_only(attr, (ir.Display, ir.Comprehension, ir.Const))

    def _is_number(self, attr: str) -> bool:
        """Whether an attribute holds nothing but numbers, and texts, that are written here."""
        return self._holds_only(attr, (ir.Const,))

    def _holds_only(self, attr: str, kinds: tuple[type, ...]) -> bool:
        """Whether whatever has such an attribute is given it by assignments of some kinds of values."""
        program = self.program
        targets = program.attribute_targets.get(attr, ())
        return (
            bool(targets)
            and all(
                made.index is None
                and made.value is not None
                and made.stmt.kind in ("assign", "annassign")
                and isinstance(_unsigned(made.value), kinds)
                for _, made in targets
                if not isinstance(made.stmt.value, ir.Const)
                or made.stmt.kind != "augassign"
            )
            and not program.mentioning("__setattr__")
            and all(
                isinstance(call.args[1].value, ir.Const)
                and call.args[1].value.value != attr
                for _, _, call in program.calls_named("setattr")
                if len(call.args) > 1
            )
            and not any(
                id(stmt) in program.class_statements
                for _, stmt in program.mentioning(attr)
            )
        )

    def _is_class_of(
        self, expr: ir.Expr, function: str, family: Collection[str]
    ) -> bool:
        return any(
            ref.kind == "class" and ref.name in family
            for ref in self.program.resolve(expr, function)
        )

    def _is_made(self, expr: ir.Expr, function: str) -> bool:
        """Whether a call makes a new object."""
        if not isinstance(expr, ir.Call):
            return False
        refs = self.program.resolve(expr.func, function)
        return bool(refs) and all(
            ref.kind in ("external", "class") and ref.name not in _TAKE for ref in refs
        )

    def _is_of(
        self, expr: ir.Expr, function: str, family: Collection[str], unknown: bool
    ) -> bool:
        """Whether an expression is an object of a family; ``unknown``: or may be, for all that is known."""
        if self.program.origin(expr, function) is not None:
            return False
        known = any(
            ref.kind == "instance" and ref.name in family
            for ref in self.program.resolve(expr, function)
        )
        return known or (unknown and self._may_be(expr, function, family))

    def _may_be(self, expr: ir.Expr, function: str, family: Collection[str]) -> bool:
        """Whether an object of a family, or what makes one, may come to an expression."""
        key = frozenset(family)
        if key not in self._carriers:
            self._carriers[key] = Carriers(
                self.program, (), key, lambda expr, function: False, whatever=True
            )
        return self._carriers[key].may_be(expr, function)

    def _run_on(self, class_name: str) -> frozenset[str]:
        """The methods that may run on an object whose class is this one."""
        if class_name not in self._methods:
            program = self.program
            own = [
                method
                for base in program.bases(class_name)
                for name, _ in program.classes[base].methods
                if (method := program.method(class_name, name)) is not None
            ]
            self._methods[class_name] = frozenset(
                reached(own, lambda method: self._handed_up(method, class_name))
            )
        return self._methods[class_name]

    def _handed_up(self, method: str, class_name: str) -> Iterator[str]:
        """The methods that one names by a class: ``super().update``, ``Base.update``, ``Sibling.update``."""
        program = self.program
        for function in self._with_inner((method,)):
            for stmt in program.statements(function):
                for inner in parts_of(stmt):
                    if isinstance(inner, ir.Attr):
                        for one in self._named_classes(inner, function, class_name):
                            for name, qualname in program.classes[one].methods:
                                if name == inner.attr:
                                    yield qualname

    def _named_classes(
        self, expr: ir.Attr, function: str, class_name: str
    ) -> Iterator[str]:
        """The classes, with their bases, by which a method of one class names another."""
        match expr.value:
            case ir.Call(func=ir.Name(id="super")):
                yield from self.program.bases(class_name)
        for ref in self.program.resolve(expr.value, function):
            if ref.kind == "class":
                yield from self.program.bases(ref.name)
                yield from self.program.bases(class_name)

    def _with_inner(self, functions: Iterable[str]) -> frozenset[str]:
        """Some functions, with those that are defined in them."""
        inside = self._inside
        return frozenset(
            inner for one in functions for inner in (one, *inside.get(one, ()))
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


def _written(target: ir.Expr) -> Iterator[ir.Expr]:
    """What is written to, or into, by a store: not the key of an item."""
    yield target
    inner = (target.value,) if isinstance(target, ir.Item) else ir.children(target)
    for one in inner:
        yield from _written(one)


def _unsigned(value: ir.Expr) -> ir.Expr:
    match value:
        case ir.Operation(op="-", operands=(number,)):
            return number
    return value


def _may_say(name: ir.Expr | None, attr: str) -> bool:
    """Whether a name that is put together may be that of an attribute."""
    if isinstance(name, ir.Const):
        return name.value == attr
    return attr.startswith(_begins(name))


def _begins(name: ir.Expr | None) -> str:
    """How a name that is put together begins, as far as that is written."""
    match name:
        case ir.Const(value=str(begins)) | ir.Operation(
            op="joinedstr" | "+", operands=(ir.Const(value=str(begins)), *_)
        ):
            return begins
    return ""


def has_several(program: Program, class_name: str) -> bool:
    """Whether one run of a function may make more than one instance of a class, in two places."""
    return _run_together(
        program,
        [(site.caller, site.stmt.path) for site in _made(program, class_name)],
    )


def is_copied(
    program: Program, class_name: str, functions: Collection[str] = ()
) -> bool:
    """Whether there may be several instances of a class that is made in one place: where that is a function
    that is called several times, or one is a copy; of what is made by each run of some ``functions``,
    there is one."""
    family = program.family(class_name)
    if any(
        call.args
        and not family.isdisjoint(
            program.instance_classes(call.args[0].value, function)
        )
        for name in ("deepcopy", "copy")
        for function, _, call in program.calls_named(name)
        if program.origin(call.func, function) == f"copy.{name}"
    ):
        return True
    pending = [site.caller for site in _made(program, class_name)]
    seen = set(functions)
    while pending:
        maker = pending.pop()
        if maker not in seen:
            seen.add(maker)
            sites = program.call_sites.get(maker, ())
            if _run_together(program, [(one.caller, one.stmt.path) for one in sites]):
                return True
            pending += [one.caller for one in sites]
    return False


def _made(program: Program, class_name: str) -> list[CallSite]:
    """The calls that make an instance of a class."""
    init = program.method(class_name, "__init__")
    return [
        site
        for site in program.call_sites.get(init or "", ())
        if any(
            ref.kind == "class" and class_name in program.bases(ref.name)
            for ref in program.resolve(site.call.func, site.caller)
        )
    ]


def _run_together(program: Program, places: list[tuple[str, ir.Path]]) -> bool:
    """Whether one run of a function may come to two of some places."""
    return any(
        caller == other and (at == there or program.control(caller).leads(at, there))
        for i, (caller, at) in enumerate(places)
        for j, (other, there) in enumerate(places)
        if i != j
    )


def without(program: Program, methods: Collection[str]) -> Program:
    """A program in which some methods do nothing."""
    modules = [
        replace(
            facts,
            functions={
                qualname: (
                    replace(one, body=(_nothing(one),))
                    if qualname in methods or one.parent in methods
                    else one
                )
                for qualname, one in facts.functions.items()
            },
        )
        for facts in program.modules.values()
    ]
    found = Program(modules, program.layout)
    found.whole = program
    return found


def _nothing(function: ir.Function) -> ir.Stmt:
    """A body that does nothing, and is no promise of subclasses."""
    path, line = (*function.path, ("body", 0)), function.line
    return ir.Stmt("return", path, line, 0, line)
