"""Where objects of some kind may get to: followed from what makes them, outward.

Most names of a program never hold an optimizer, or a scaler, and to find that out name by name is a search
for each. This looks from the other end, once: what is made there may come to these variables, attributes
and results of functions, and to no others. It tells neither calls, nor objects, nor their parts apart, and
so is wider than whatever `PointsTo` follows: who is told no needs no search.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from amp_migrate.analysis.objects.contents import PUTS, Contents
from amp_migrate.analysis.objects.points_to import HANDS_BACK, hands_on
from amp_migrate.analysis.objects.read_only_uses import PARTS, only_shows
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of, unpacked
from amp_migrate.program.link import CallSite, Program

_Node = tuple[str, str, str]
"""``("variable", owner, name)``, ``("attribute", "", name)`` of whatever object, or ``("result", function,
"")``."""

Place = tuple[str, ir.Stmt]
"""A function, and a statement in it."""

_Origins = frozenset[str | None]
"""How it may have come into a function: by a parameter of that name; None: in any other way."""

_Bound = dict[str, _Origins]

_NOWHERE: _Origins = frozenset()
_SOMEHOW: _Origins = frozenset((None,))
CHOICES = frozenset(("if", "or", "and", "+", "|", "*", "starred"))
"""Operations that give one of their operands, or what is in them."""
_OF_CLASSES = frozenset(("functools.partial", "builtins.getattr"))
"""What gives a class that it is given, or out of a library that it is given."""
_ANYTHING = frozenset(
    "__dict__ __subclasses__ __import__ import_module locate instantiate".split()
)
_ANY_BUILTIN = frozenset("getattr globals vars locals eval".split())
"""What gives whatever there is, by a name that is put together."""
_SAVES = frozenset("save dump dumps".split())
UNFOLDED = frozenset(
    """children named_children _modules get_submodule __dict__ __getattr__ __getattribute__""".split()
)
"""What gives what an object holds without its name."""
_METACLASS = frozenset(("builtins.type", "abc.ABCMeta", "enum.EnumMeta"))
"""What metaclasses derive from."""
PLAIN_BASES = frozenset(("torch.nn.Module", "torch.nn.modules.Module"))
_CALLS = ("forward", "__call__")
"""Methods that run where an object is called."""
_HOLD = frozenset(
    f"torch.nn.{name}" for name in "Sequential ModuleList ModuleDict".split()
)
"""What calls the modules that it holds with one argument, or not at all."""


class Carriers:
    """What may hold objects of one kind, or what makes them: classes, and functions of libraries."""

    def __init__(
        self,
        program: Program,
        words: Iterable[str],
        classes: Iterable[str],
        is_one: Callable[[ir.Expr, str], bool],
        whatever: bool = False,
        objects: bool = True,
        makers: Carriers | None = None,
        giving: Iterable[str] = (),
    ) -> None:
        """``is_one``: whether an imported name makes such an object, or holds what does; it says one of
        ``words``. ``classes``: those of the program. ``whatever``: what is not in sight may do anything
        with such an object, which is of no kind that libraries know. ``objects``: whether these are followed,
        or the classes alone, and functions ``giving`` such objects. ``makers``: where these are, and objects
        alone are followed.
        """
        self.program = program
        self.contents = program.noted(Contents)
        self.is_one = is_one
        self._found: dict[_Node, _Origins] = {}
        """A result that a parameter leads to is one of the calls that fill this parameter so, alone."""
        self._pending: list[_Node] = []
        self._mentions: dict[str, dict[_Node, list[Place]]] = {}
        self.is_anywhere = False
        """It got to where it is not followed from."""
        self._whatever = whatever
        self._objects = objects
        self._makers = makers
        self._gives_them = False
        """What gives such a class may be called under any name."""
        self._calls: list[str] = []
        """The methods that run where such an object is called."""
        self._named: dict[str, list[ir.Function]] = defaultdict(list)
        for one in program.functions.values() if whatever else ():
            self._named[one.name].append(one)
        for name in classes:
            made = program.classes[name]
            if makers is None:
                self._add("variable", made.parent, made.name, _SOMEHOW)
                self._add("attribute", "", made.name, _SOMEHOW)
                self._hand_to_those_told(made)
            for called, method in made.methods if whatever and objects else ():
                own = program.functions[method].self_name
                if own:
                    self._add("variable", method, own, _SOMEHOW)
                if called in _CALLS:
                    self._calls.append(method)
        for giver in giving:
            self._add_function(program.functions[giver])
        self._by_name = (
            program.mentioning(*_ANYTHING, *_ANY_BUILTIN) if whatever else ()
        )
        made_in = () if makers is None else makers.mentions(lambda name: ())
        for function, stmt in (*program.mentioning(*words), *self._by_name, *made_in):
            self._flow(function, stmt)
        self._spread()

    def may_be(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression may stand for such an object."""
        return self.is_anywhere or bool(self._origins(expr, function, {}))

    def may_hold(self, kind: str, owner: str, name: str) -> bool:
        """Whether a variable of ``owner``, or an attribute, may hold one."""
        if kind == "variable":
            owner, name = self.program.home(owner, name)
        else:
            owner = ""
        return self.is_anywhere or (kind, owner, name) in self._found

    def mentions(self, others: Callable[[str], Iterable[str]]) -> Sequence[Place]:
        """The statements that may mention a carrier, in order; ``others``: by what other names an
        attribute is mentioned."""
        if self.is_anywhere:
            return self.program.all_statements()
        words = {name for kind, _, name in self._found if kind != "result"}
        return self.program.mentioning(*words, *(o for w in words for o in others(w)))

    # -- spreading ----------------------------------------------------------------------------

    def _add(self, kind: str, owner: str, name: str, origins: _Origins) -> bool:
        """Let a node be a carrier; whether it was none in that way."""
        if kind == "variable":
            home = self.program.home(owner, name)
            if home != (owner, name):
                (owner, name), origins = home, _SOMEHOW
        elif kind == "attribute":
            owner, origins = "", _SOMEHOW
        elif self._whatever:
            facts = self.program.functions[owner]
            # By an operator, or an attribute that is computed.
            self.is_anywhere |= facts.name.startswith("__")
            if None in origins and facts.parent is not None:
                self._add_function(facts)
                if not self._objects and owner in self.program.escaping:
                    self._pending += () if self._gives_them else self._found
                    self._gives_them = True
        node = kind, owner, name
        known = self._found.get(node, _NOWHERE)
        if not origins <= known:
            self._found[node] = known | origins
            self._pending.append(node)
            return True
        return False

    def _add_function(self, facts: ir.Function) -> None:
        assert facts.parent is not None
        kind = "variable" if facts.class_name is None else "attribute"
        if self._add(kind, facts.parent, facts.name, _SOMEHOW):
            self._decorate(facts)

    def giving(self) -> frozenset[str]:
        """The functions that give one, and may be called under any name."""
        escaping = self.program.escaping
        return frozenset(
            owner
            for (kind, owner, _), origins in self._found.items()
            if kind == "result" and None in origins and owner in escaping
        )

    def _spread(self) -> None:
        defaults = [
            (qualname, function.parent or qualname, param)
            for qualname, function in self.program.functions.items()
            for param in function.params
            if param.default is not None and not isinstance(param.default, ir.Const)
        ]
        # Once it is anywhere, nothing more is to be found.
        while self._pending and not self.is_anywhere:
            while self._pending and not self.is_anywhere:
                for function, stmt in self._uses(self._pending.pop()):
                    self._flow(function, stmt)
            for function, stmt in self._by_name:
                self._flow(function, stmt)
            for qualname, outer, param in defaults:
                assert param.default is not None
                if self._origins(param.default, outer, {}):
                    self._add("variable", qualname, param.name, _SOMEHOW)

    def _uses(self, node: _Node) -> Iterable[Place]:
        """The statements that mention a variable or an attribute, or call a function."""
        kind, owner, name = node
        if kind == "result":
            if self._whatever:  # also what is called on an object that is not in sight
                return self.program.mentioning(ir.local_name(owner).rpartition(".")[2])
            sites = self.program.call_sites.get(owner, ())
            return [(site.caller, site.stmt) for site in sites]
        if name not in self._mentions:
            self._mentions[name] = self._mentioning(name)
        return self._mentions[name].get(node, ())

    def _mentioning(self, name: str) -> dict[_Node, list[Place]]:
        """The statements that say a name, or an alias of it, by what they mean by that."""
        found: dict[_Node, list[Place]] = defaultdict(list)
        for function, stmt in self.program.mentioning(name):
            nodes = {
                node for part in parts_of(stmt) for node in self._nodes(part, function)
            }
            for node in nodes:
                if node[2] == name:
                    found[node].append((function, stmt))
        return found

    def _nodes(self, expr: ir.Expr, function: str) -> Iterator[_Node]:
        """What a name, or an attribute, stands for."""
        program = self.program
        if isinstance(expr, ir.Name):
            owner = program.owner(expr.id, function)
            if owner is not None:
                yield ("variable", *program.home(owner, expr.id))
        elif isinstance(expr, ir.Attr):
            yield "attribute", "", expr.attr
            there = program.elsewhere(expr, function)
            if there is not None:
                yield from self._nodes(*there)

    def _origins(self, expr: ir.Expr, function: str, bound: _Bound) -> _Origins:
        """How such an object, or what holds one, may have come to be the value of an expression.
        ``bound``: the same of the variables of comprehensions."""
        match expr:
            case ir.Name() | ir.Attr():
                return self._of_name(expr, function, bound)
            case ir.Item(value=value) | ir.Walrus(value=value):
                return self._origins(value, function, bound)
            case ir.Deferred(params=params, body=value):
                inside = bound | dict.fromkeys(params, _NOWHERE)
                return self._origins(value, function, inside)
            case ir.Suspend(value=kept):
                return self._origins(kept, function, bound) if kept else _NOWHERE
            case ir.Operation(op=op) if op not in CHOICES:
                return _NOWHERE
            case ir.Call():
                return self._of_call(expr, function, bound)
            case ir.Comprehension():
                inside = self._inside(expr, function, bound)
                return self._any(expr.elements, function, inside)
        return self._any(ir.children(expr), function, bound)

    def _any(self, exprs: Iterable[ir.Expr], function: str, bound: _Bound) -> _Origins:
        return _NOWHERE.union(*(self._origins(e, function, bound) for e in exprs))

    def _of_name(
        self, expr: ir.Name | ir.Attr, function: str, bound: _Bound
    ) -> _Origins:
        found = _NOWHERE
        if isinstance(expr, ir.Name):
            found = bound.get(expr.id, found)
        elif (self._whatever and expr.attr in _ANYTHING) or (
            not self._objects and expr.attr == "__class__"
        ):
            return _SOMEHOW
        elif self.contents.item_of(expr, function):
            found = self._origins(expr.value, function, bound)
        for node in self._nodes(expr, function):
            known = self._found.get(node)
            if known is not None:
                found |= known if node[1] == function else _SOMEHOW
        if self._whatever and isinstance(expr, ir.Name) and expr.id not in bound:
            if self.program.owner(expr.id, function) is None:
                # It comes by globals(), say.
                return _NOWHERE if hasattr(builtins, expr.id) else _SOMEHOW
        return found or (_SOMEHOW if self.is_one(expr, function) else _NOWHERE)

    def _of_call(self, call: ir.Call, function: str, bound: _Bound) -> _Origins:
        program, func = self.program, call.func
        if self._whatever and isinstance(func, ir.Name):
            if func.id in _ANYTHING | _ANY_BUILTIN:
                return self._by_any_name(call, function, bound)
        found = self._of_called(func, function, bound)
        callees = program.callees(call, function)
        if callees:
            # Most give none; to ask for the calls of all functions takes long.
            given_by = any(("result", one, "") in self._found for one in callees)
            sites = program.call_sites_of(call, function) if given_by else ()
            for site in sites:
                for by in self._found.get(("result", site.callee, ""), ()):
                    if by is None:
                        found |= _SOMEHOW
                        continue
                    given = [arg.value for arg in self._filling(site, by)]
                    found |= self._any(given, function, bound)
            return found
        if isinstance(func, ir.Attr) and func.attr in HANDS_BACK:
            found |= self._origins(func.value, function, bound)
        origin = program.origin(func, function)
        if self._whatever and (func == ir.Name("type") or not only_shows(call, origin)):
            found |= self._any([arg.value for arg in call.args], function, bound)
            if isinstance(func, ir.Attr):
                found |= self._of_method(func, function, bound)
        if (
            origin in _OF_CLASSES
            or hands_on(origin, func)
            or self.contents.makes_dict(func, function)
            or any(
                ref.kind == "class" and program.is_named_tuple(ref.name)
                for ref in program.resolve(func, function)
            )
        ):
            given = [arg.value for arg in call.args]
            found |= self._any(given, function, bound)
        return found

    def _of_called(self, func: ir.Expr, function: str, bound: _Bound) -> _Origins:
        """The same of what a call of an expression makes, or returns."""
        if self._objects and self._makers is None:
            return self._origins(func, function, bound)
        if self._makers is None:
            gives = self._gives_them
            if func == ir.Name("type"):
                return _SOMEHOW
        elif self._makers.may_be(func, function):
            return _SOMEHOW
        else:
            gives = any(("result", one, "") in self._found for one in self._calls)
        return self._origins(func, function, bound) if gives else _NOWHERE

    def _of_method(self, func: ir.Attr, function: str, bound: _Bound) -> _Origins:
        """The same of what a method gives that is not in sight, but for its name."""
        program, name = self.program, func.attr
        if name in program.attribute_targets or name in PARTS:
            return _NOWHERE
        if name not in self._named:
            return self._origins(func.value, function, bound)
        gives = any(
            ("result", one.qualname, "") in self._found for one in self._named[name]
        )
        return _SOMEHOW if gives else _NOWHERE

    def _by_any_name(self, call: ir.Call, function: str, bound: _Bound) -> _Origins:
        """The same of a call that gives whatever is there, by a name."""
        program = self.program
        match call.args:
            case (_, ir.Arg(ir.Const(str(name))), *_):
                return self._found.get(("attribute", "", name), _NOWHERE)
            case (ir.Arg(holder), *_):
                if self._origins(holder, function, bound):
                    return _SOMEHOW
                classes = program.instance_classes(holder, function)
                known = len(classes) == len(program.resolve(holder, function))
                of_file = program.origin(holder, function) is not None
                if classes and known:
                    return self._of_attributes(classes)
                if call.func == ir.Name("vars") and not of_file:
                    return self._of_attributes(())
        return _SOMEHOW

    def _of_attributes(self, classes: Collection[str]) -> _Origins:
        """The same of what any attribute of an object holds: one of some classes, where these are known."""
        program = self.program
        names = [name for kind, _, name in self._found if kind == "attribute"]
        if classes:
            here = any(
                program.attribute_definitions(c, n) for c in classes for n in names
            )
        else:
            here = not program.attribute_targets.keys().isdisjoint(names)
        return _SOMEHOW if here else _NOWHERE

    def _inside(self, expr: ir.Comprehension, function: str, bound: _Bound) -> _Bound:
        """The same with the variables of a comprehension."""
        bound = dict(bound)
        for target, iterable in zip(expr.targets, expr.iterables, strict=True):
            origins = self._origins(iterable, function, bound)
            for part in ir.walk(target):
                if isinstance(part, ir.Name):
                    bound[part.id] = origins
        return bound

    def _filling(self, site: CallSite, name: str) -> Iterator[ir.Arg]:
        """The arguments of a call that may come into a parameter."""
        params = self.program.functions[site.callee].params
        param = next(one for one in params if one.name == name)
        value = self.program.argument_at(site, name)
        spread = param.kind in ("*", "**") or any(a.star for a in site.call.args)
        for arg in site.call.args:
            if spread or arg.value is value or arg.name == name:
                yield arg

    def _flow(self, function: str, stmt: ir.Stmt) -> None:
        """Let what a statement mentions go on to where it puts that."""
        bound: _Bound = {}
        for part in parts_of(stmt):
            if isinstance(part, ir.Comprehension):
                bound |= self._inside(part, function, bound)
        given = [
            (target, value if value is not None else stmt.value)
            for target, value, index in unpacked(stmt)
            if index != 0 or not _counts(stmt)
        ]
        for part in parts_of(stmt):
            if isinstance(part, ir.Walrus):
                given.append((part.target, part.value))
        for target, put in given:
            origins = self._origins(put, function, bound) if put else _NOWHERE
            if origins:
                self._give(target, function, stmt, origins)
        if stmt.kind == "return" and stmt.value is not None:
            origins = self._origins(stmt.value, function, bound)
            if origins:
                self._add("result", function, "", origins)
                facts = self.program.functions[function]
                if facts.decorators:  # a property
                    self._add("attribute", "", facts.name, origins)
        if self._whatever and stmt.kind == "match":
            if origins := self._any(stmt.exprs, function, bound):
                for name in stmt.names:
                    self._give(ir.Name(name), function, stmt, origins)
        if self._whatever and stmt.kind == "raise":
            self.is_anywhere |= bool(self._any(stmt.exprs, function, bound))
        for part in parts_of(stmt) if self._whatever else ():
            if isinstance(part, ir.Suspend) and part.value is not None:
                origins = self._origins(part.value, function, bound)
                if origins and part.kind != "await":
                    self._add("result", function, "", origins)
        for call in calls_of(stmt):
            taken = [(a, self._origins(a.value, function, bound)) for a in call.args]
            taken = [(arg, origins) for arg, origins in taken if origins]
            if taken:
                origins = _NOWHERE.union(*(origins for _, origins in taken))
                self._hand(call, [arg for arg, _ in taken], function, stmt, origins)

    def _give(
        self, target: ir.Expr, function: str, stmt: ir.Stmt, origins: _Origins
    ) -> None:
        """Let it be what a statement gives a target."""
        if isinstance(target, ir.Item) or self.contents.item_of(target, function):
            assert isinstance(target, (ir.Item, ir.Attr))
            self._put(target.value, function, origins)
            return
        for kind, owner, name in self._nodes(target, function):
            own = origins if owner == function else _SOMEHOW
            self._add(kind, owner, name, own)
        if isinstance(target, ir.Name) and id(stmt) in self.program.class_statements:
            self._add("attribute", "", target.id, _SOMEHOW)

    def _put(self, holder: ir.Expr, function: str, origins: _Origins) -> None:
        """Let it be in a collection, under all names that this goes by."""
        program = self.program
        while isinstance(holder, ir.Item):
            holder = holder.value
        if program.class_of_self(holder, function) is not None:
            # Whoever has such an object may take it out.
            self.is_anywhere = True
        for kind, owner, name in self._nodes(holder, function):
            self._add(kind, owner, name, origins if owner == function else _SOMEHOW)
        place = self.contents.place(holder, function)
        for owner, name in self.contents.together(place):
            kind = "variable" if owner in program.functions else "attribute"
            self._add(kind, owner, name, origins if owner == function else _SOMEHOW)

    def _hand(
        self,
        call: ir.Call,
        given: list[ir.Arg],
        function: str,
        stmt: ir.Stmt,
        origins: _Origins,
    ) -> None:
        """Let it be what a call takes in."""
        program = self.program
        if isinstance(call.func, ir.Attr) and call.func.attr in PUTS:
            self._put(call.func.value, function, origins)
        for ref in program.resolve(call.func, function):
            if ref.kind == "class":
                for name in program.written_fields(ref.name):
                    self._add("attribute", "", name, _SOMEHOW)
        sites = list(program.call_sites_of(call, function))
        if self._whatever and not sites and isinstance(call.func, ir.Attr):
            # On an object that is not in sight: whatever has that name.
            named = self._named.get(call.func.attr, ())
            sites = [
                CallSite(function, stmt, call, f.qualname, bool(f.self_name))
                for f in named
            ]
        for site in sites:
            for param in program.functions[site.callee].params:
                filling = self._filling(site, param.name)
                if any(arg is one for arg in filling for one in given):
                    by = frozenset((param.name,))
                    self._add("variable", site.callee, param.name, by)
        if not sites and (
            hands_on(program.origin(call.func, function), call.func)
            or self.contents.makes_dict(call.func, function)
        ):
            # `SimpleNamespace(optimizer=optimizer)`
            for arg in given:
                if arg.name is not None:
                    self._add("attribute", "", arg.name, _SOMEHOW)
                elif arg.star == "**":
                    self.is_anywhere = True
        if not sites and self._whatever:
            self._hand_anywhere(call, function, origins)

    def _hand_to_those_told(self, made: ir.Class) -> None:
        """Let a class be what its decorators get, and what its bases are told of a new subclass."""
        program = self.program
        self._decorate(made)
        for base in map(program.classes.__getitem__, program.bases(made.qualname)):
            for name, method in base.methods if self._whatever else ():
                told = program.functions[method].params[:1]
                if name == "__init_subclass__" and told:
                    self._add("variable", method, told[0].name, _SOMEHOW)
            self.is_anywhere |= self._whatever and any(
                ref.kind == "class" and _METACLASS & program.external_bases(ref.name)
                for stmt in program.statements(base.parent)
                if stmt.kind == "classdef" and stmt.path == base.path
                for expr in stmt.exprs
                for ref in program.resolve(expr, base.parent)
            )

    def _decorate(self, made: ir.Class | ir.Function) -> None:
        """Let a function or a class be what its decorators get."""
        program, scope = self.program, made.parent
        assert scope is not None
        stmt = ir.Stmt("expr", made.path, made.line, 0, made.line)
        for decorator in made.decorators:
            if isinstance(made, ir.Function) and (
                program.keeps_function(decorator, made.qualname)
            ):
                continue
            func = decorator.func if isinstance(decorator, ir.Call) else decorator
            origin, arg = program.origin(func, scope), ir.Arg(ir.Name(made.name))
            call = ir.Call(decorator, (arg,))
            for callee in program.callees(call, scope):
                bound = program.fills_self(call, callee, scope)
                site = CallSite(scope, stmt, call, callee, bound)
                for param in program.functions[callee].params:
                    if any(one is arg for one in self._filling(site, param.name)):
                        by = frozenset((param.name,))
                        self._add("variable", callee, param.name, by)
            if not program.callees(call, scope) and self._whatever:
                # A library's decorators hand on what they get, but for a registry.
                if origin is None or "regist" in origin.lower():
                    self.is_anywhere = True

    def _hand_anywhere(self, call: ir.Call, function: str, origins: _Origins) -> None:
        """Let it be what a call takes in that nobody follows."""
        program, func = self.program, call.func
        origin = program.origin(func, function)
        match call:
            case ir.Call(ir.Name("setattr"), (_, ir.Arg(ir.Const(str(name))), _)):
                self._add("attribute", "", name, _SOMEHOW)
                return
        if only_shows(call, origin) or any(
            ref.kind == "class" for ref in program.resolve(func, function)
        ):
            return
        given = [arg.value for arg in call.args]
        if (
            (ir.key_of(func) or "").rpartition(".")[2] in _SAVES
            or origin == "builtins.setattr"
            or any(isinstance(one, ir.Deferred) for one in given)
            or any(
                ref.kind == "function"
                for one in given
                for ref in program.resolve(one, function)
            )
        ):
            self.is_anywhere = True
        elif origin is None:
            if isinstance(func, ir.Attr):
                self._put(func.value, function, origins)
            else:
                self.is_anywhere = True


class UnseenCalls:
    """Calls that may run a method, and are not seen to: on objects that are not followed, by libraries."""

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
                if expr is None or self.may_be(expr, function, own):
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

    def may_be(self, expr: ir.Expr, function: str, class_name: str) -> bool:
        """Whether an expression may be an object of a class, or of one that derives from it."""
        family = frozenset(
            one
            for one in self.program.family(class_name)
            if class_name in self.program.bases(one)
        )
        if family not in self._carriers:

            def is_one(expr: ir.Expr, function: str) -> bool:
                return False

            program = self.program
            giving: frozenset[str] = frozenset()
            while True:
                found = makers = Carriers(
                    program, (), family, is_one, True, objects=False, giving=giving
                )
                if not makers.is_anywhere:
                    found = Carriers(program, (), family, is_one, True, makers=makers)
                if found.is_anywhere or found.giving() <= giving:
                    break
                giving |= found.giving()
            self._carriers[family] = found
        return self._carriers[family].may_be(expr, function)


def _counts(stmt: ir.Stmt) -> bool:
    """``for i, one in enumerate(...)``"""
    match stmt:
        case ir.Stmt(kind="for", value=ir.Call(func=ir.Name(id="enumerate"))):
            return True
    return False
