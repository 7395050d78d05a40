"""Points-to analysis: which objects an expression may stand for.

An abstract object is an allocation site in a calling context. The answer is found on demand, by a search
back along the flow of values that ends when it meets nothing new: its least fixpoint. What is still to be
taken out of an object (attributes, elements) is one stack, the calls that the search has come into are
another, so that a return goes back to its own call (Sridharan and Bodik, "Refinement-Based
Context-Sensitive Points-To Analysis for Java", PLDI 2006). Where a value leaves sight the answer says
where, and why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from amp_migrate.analysis.objects.contents import Contents, Put, may_be_same
from amp_migrate.core.effort import spend
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, parts_of
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import Definition

Field = tuple[str, object]
"""What is taken out of an object: an attribute, an element by its key, or any element."""

Fields = tuple[Field, ...]
"""The same one after the other, the first that is taken first."""

Context = tuple[CallSite, ...]
"""The calls by which a search has come into functions, outermost first."""

Place = tuple[str, ir.Stmt | None, Context]
"""Where an expression is read: a function, a statement in it or any, and the calls that led there."""

EACH: Field = ("each", None)
"""What a loop goes through: the elements of a list, the keys of a dict."""
ANY: Field = ("item", None)
"""An element under a key that is not in sight."""
INSIDE: Field = ("inside", None)
"""A module that is a part of another one."""
_SECOND = (EACH, ("item", 1))
"""Of the pairs that ``enumerate()`` and ``items()`` give, what is counted, or kept."""

RETURNS_SELF = frozenset(
    "to cuda cpu train eval requires_grad_ apply share_memory".split()
)
"""Methods of a module that return it."""
WRAPPERS = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
    }
)
"""Modules that run the one that they are given."""

_WRAPPER_NAMES = frozenset(
    "DataParallel DistributedDataParallel DDP convert_sync_batchnorm".split()
)
_WRAPPING_FUNCTIONS = frozenset(("torch.compile", "torch.jit.script"))
_INNER = frozenset("children modules named_children named_modules".split())
COPIES = frozenset(("copy.copy", "copy.deepcopy"))
AROUND_OPTIMIZERS = frozenset(("apex.parallel.LARC", "apex.parallel.LARC.LARC"))
"""Optimizers around another one: they hold its parameters, and step it once, on what gradients there are."""
_LISTS = frozenset(
    f"builtins.{name}" for name in "list tuple iter sorted reversed set".split()
)
_IN_TURN = frozenset(("builtins.enumerate", "builtins.zip"))
_HOLDERS = frozenset(("types.SimpleNamespace", "argparse.Namespace"))
_GIVES_ELEMENT = frozenset(("get", "pop", "setdefault"))
_WITHOUT_ELEMENTS = frozenset(
    "torch.nn.Module torch.nn.modules.Module abc.ABC torch.optim.Optimizer".split()
)
HANDS_BACK = (
    RETURNS_SELF | _INNER | _GIVES_ELEMENT | {"float", "values", "items", "copy"}
)
"""Methods of whatever object that may give it itself, or what is in it."""
TOO_MANY = "it takes too many paths"
IN_PLACE = "it is computed in place"
DEEPEST = 6
"""Of both stacks; a longer one loses what is outermost."""
_LEVELS = 2
"""Whose attributes are set is asked in terms of whose attributes are set, and so on: so far."""
MOST_STATES = 600
_MOST_OF_PUT = 200
"""So far it is looked what something is put into."""


def attribute(name: str) -> Field:
    """The attribute of that name."""
    return "attribute", name


def item(key: object) -> Field:
    """The element under a key."""
    return "item", key


def _may_lead(fields: Fields, others: Fields) -> bool:
    """Whether some fields may lead to what others do, as far as there are both."""
    return all(
        kind != as_kind or may_be_same(key, other)
        for (kind, key), (as_kind, other) in zip(fields, others, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement that gives a variable of ``owner``, a function, or an attribute of it, a class, a
    value; ``depth``: how much is still to be taken out of that value."""

    kind: str
    owner: str
    name: str
    path: ir.Path
    depth: int


_Round = tuple[str, ir.Path, ir.Path | None]
"""A loop, by its function and path, and the statement that gives the variable it leaves behind its value."""


class Object(NamedTuple):
    """What an expression may stand for.

    ``kind``: ``value`` (made by ``expr``: a call that makes an object, a constant, a table that is
    written out, an operation), ``function`` or ``class`` of the program and ``external``, each with its
    ``name``, ``instance`` of the class ``name`` (a method's own). ``lost``: it is not in sight;
    ``open``: beside the others, there may be what is not in sight; both with the reason as ``name``.
    With ``fields``, it is what these lead to in such an object.
    """

    kind: str
    expr: ir.Expr
    function: str
    stmt: ir.Stmt | None
    name: str = ""
    fields: Fields = ()
    wrapped: bool = False
    """It is reached through a wrapper such as DDP."""
    context: Context = ()
    bound: Bound | None = None
    """The statement nearest to where it is made that gives it, and nothing around it, a name."""
    names: tuple[Bound, ...] = ()
    """Those by which the search came to it."""
    one_of_several: bool = False
    """A loop made it in one of its rounds, and what keeps it was left behind: another round makes another."""
    places: tuple[object, ...] = ()
    """Under which keys it was taken out of what comprehensions make."""

    @property
    def site(self) -> tuple[ir.Expr, str, ir.Path | None]:
        """What it is made by, in whatever context."""
        return self.expr, self.function, None if self.stmt is None else self.stmt.path

    @property
    def place(self) -> Place:
        """Where its parts are to be read."""
        return self.function, self.stmt, self.context

    @property
    def is_none(self) -> bool:
        """Whether it is the constant ``None``."""
        return self.expr == ir.Const(None) and not self.fields

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it another object."""
        named = isinstance(self.expr, (ir.Name, ir.Attr, ir.Item, ir.Const))
        return (
            self.kind,
            self.expr if named else id(self.expr),
            self.function,
            None if self.stmt is None else self.stmt.path,
            self.name,
            self.fields,
            self.wrapped,
            tuple(map(id, self.context)),
            self.bound,
            self.one_of_several,
            self.places,
        )


class State(NamedTuple):
    """An expression where it stands, what is taken out of it, and the calls that led there."""

    expr: ir.Expr
    function: str
    stmt: ir.Stmt | None
    fields: Fields = ()
    context: Context = ()
    wrapped: bool = False
    same: bool = False
    bound: Bound | None = None
    names: tuple[Bound, ...] = ()
    rounds: frozenset[_Round] = frozenset()
    """Where the search went into a loop in which it was not before, by what a round of it left behind."""
    places: tuple[object, ...] = ()
    """As of the object that is found."""

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it another state: two calls of one statement may say the same."""
        named = isinstance(self.expr, (ir.Name, ir.Attr, ir.Item, ir.Const))
        return (
            self.expr if named else id(self.expr),
            self.function,
            None if self.stmt is None else self.stmt.path,
            self.fields,
            tuple(map(id, self.context)),
            self.wrapped,
            self.bound if self.same else None,
            self.rounds if self.same else None,
            self.places if self.same else None,
            self.same,
        )

    def given(self, expr: ir.Expr, site: CallSite, context: Context) -> State:
        """It as what a call gives."""
        # As `_replace`, which takes longer; most steps are of this kind.
        kept = self.names, self.rounds, self.places
        place = expr, site.caller, site.stmt, self.fields, context
        return State(*place, self.wrapped, self.same, None, *kept)

    def named(self, kind: str, owner: str, name: str, stmt: ir.Stmt) -> State:
        """It as the value that a statement gives a name."""
        bound = Bound(kind, owner, name, stmt.path, len(self.fields))
        return self._replace(bound=bound, names=(*self.names, bound))


replace = State._replace
"""The same, but for some of its parts."""


class _Named(NamedTuple):
    """What a name means in a function."""

    owner: str | None
    """Where the variable lives."""
    self_of: str | None = None
    """The class whose methods call their own object by this name, and mean it here."""
    class_of: str | None = None
    """The same of class methods, and their class."""
    param: ir.Param | None = None
    """The parameter that it is of its owner."""


_Next = State | Object
_Stores = dict[tuple[object, Fields], list[Definition]]


class PointsTo:
    """Answers for one program."""

    wrappers: frozenset[str] = frozenset()
    """Functions of libraries whose result stands for their first argument."""
    returns_self: frozenset[str] = RETURNS_SELF
    """Methods that return what they are called on."""
    keeps_choices = False
    """``a if test else b`` is a value of its own."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.contents = program.noted(Contents)
        self._known: dict[tuple[object, ...], tuple[State, tuple[Object, ...]]] = {}
        """With the question: its key has identities of what would be gone else, and those come again."""
        self._unseen: dict[tuple[object, ...], State] = {}
        """Of what not all is in sight: a search for that ends before it has found the rest."""
        self._stores: dict[tuple[int, str], _Stores] = {}
        self._rests: dict[tuple[int, str, str], tuple[CallSite, ir.Display]] = {}
        self._puts: dict[int, dict[int, list[tuple[Put, Fields]]]] = {}
        """By how deep it is asked, and by what a collection is made by (its `id`)."""
        self._names: dict[tuple[str, str], _Named] = {}
        self._tables: dict[tuple[str, ir.Item], tuple[str, ...]] = {}
        self._replaced: dict[tuple[str, str, ir.Path], bool] = {}
        self._level = 0

    def of(
        self,
        expr: ir.Expr,
        function: str,
        stmt: ir.Stmt | None = None,
        context: Context = (),
        same: bool = False,
        enough: Callable[[Object], bool] = lambda one: False,
        closed: bool = False,
        most: int = MOST_STATES,
    ) -> tuple[Object, ...]:
        """The objects that an expression may stand for, where it is read by a statement; without one,
        at any time.

        ``same``: the very objects. A part of a module is known by the module and the way to it, and a
        part of a copy is none of the original. ``enough``: behind such an object no others are asked for.
        ``closed``: nor behind one that code out of sight may give. ``most``: so far the search goes.
        """
        start = State(expr, function, stmt, (), context, same=same)
        key = (self._level, most, *start.key)
        if key in self._known:
            return self._known[key][1]
        found: list[Object] = []
        for one in self._search(start, most=most, closed=closed):
            found.append(one)
            if enough(one) or (closed and one.kind == "open"):
                return tuple(found)
        self._known[key] = start, tuple(found)
        return tuple(found)

    def whole(
        self,
        expr: ir.Expr,
        function: str,
        stmt: ir.Stmt | None = None,
        context: Context = (),
        closed: bool = False,
    ) -> tuple[Object, ...]:
        """The same where none of them is lost, else nothing; ``closed``: nor may there be others."""
        start = State(expr, function, stmt, (), context)
        key = (closed, self._level, *start.key)
        if key in self._unseen:
            return ()
        unseen = ("lost", "open") if closed else ("lost",)

        def is_unseen(one: Object) -> bool:
            return one.kind in unseen

        found = self.of(expr, function, stmt, context, enough=is_unseen, closed=closed)
        if any(map(is_unseen, found)):
            self._unseen[key] = start
            return ()
        return tuple(one for one in found if one.kind != "open")

    def constants(
        self, expr: ir.Expr, function: str, closed: bool = True
    ) -> tuple[Object, ...]:
        """The constants that an expression may be, where there is nothing else that it may be; ``closed``:
        nor where callers out of sight give it something else."""
        found = self.whole(expr, function, closed=closed)
        known = all(isinstance(one.expr, ir.Const) and not one.fields for one in found)
        return found if known else ()

    def given(self, start: State) -> Iterator[State | Object]:
        """Where a value comes from in terms of the function that reads it: the variables and attributes
        outside of the calls that lead to it, and the objects that it makes or these calls make.
        """
        pending = [start]
        seen = {start.key: start}
        while pending:
            at = pending.pop()
            spend(40)
            if not at.context and isinstance(at.expr, (ir.Name, ir.Attr)):
                if self.program.origin(at.expr, at.function) is None:
                    yield at
                    continue
            for one in self._step(at):
                if isinstance(one, Object):
                    yield one
                    continue
                key = one.key
                if key not in seen:
                    seen[key] = one
                    pending.append(one)
            if len(seen) > MOST_STATES:
                yield self._lost(start, TOO_MANY)
                return

    def argument(
        self, site: CallSite, name: str, fields: Fields = ()
    ) -> ir.Expr | None:
        """What a call gives for a parameter, or for what is taken out of it; None where it leaves that
        to its default, or gives it in a way that is not followed."""
        params = self.program.functions[site.callee].params
        param = next((p for p in params if p.name == name), None)
        if param is None or (param.kind in ("*", "**") and not fields):
            return None
        starred = any(arg.star for arg in site.call.args)
        if param.kind == "positional" and not starred:
            if self.program.argument_at(site, name) is None:
                return None
        start = State(ir.Name(name), site.callee, None, fields)
        found = [*self.given_by(site, param, (), start)]
        if len(found) > 1:
            # Of `*parts` and `**options` one has it.
            found = [s for s in found if isinstance(s, State) and any(self._search(s))]
        while True:
            match found:
                case [State(expr=ir.Name() | ir.Attr() | ir.Item()) as at]:
                    return expr_of(at)
                case [State(fields=()) as at]:
                    return at.expr
                case [State() as at]:
                    found = [*self.given(at)]
                case _:
                    return None

    def trail(self, start: State, most: int = MOST_STATES) -> Iterator[State | Object]:
        """All that a search comes by, what it begins with first, and the objects that it finds."""
        passed = [start]
        for one in self._search(start, passed, most):
            yield from passed
            passed.clear()
            yield one
        yield from passed

    def _search(
        self,
        start: State,
        passed: list[State] | None = None,
        most: int = MOST_STATES,
        closed: bool = False,
    ) -> Iterator[Object]:
        pending = [start]
        seen = {start.key: start}
        given: dict[tuple[object, ...], Object] = {}
        while pending:
            state = pending.pop()
            spend(40)
            if closed and self._comes_from_outside(state):
                # Told before all calls of the program are looked through for those of one function.
                yield self._object("open", state, "it may be given by unseen code")
                return
            found: list[State] = []
            for one in self._step(state):
                if isinstance(one, State):
                    found.append(one)
                    continue
                asked = one.key
                if asked not in given:
                    given[asked] = one
                    # Told first: it may be enough.
                    yield one
                    found += [
                        replace(
                            made,
                            same=state.same,
                            rounds=state.rounds,
                            places=state.places,
                        )
                        for made in self._set_on(one)
                    ]
            for more in found:
                if more.same:
                    more = self._into_loops(state, more)
                key = more.key
                if key not in seen:
                    seen[key] = more
                    pending.append(more)
                    if passed is not None:
                        passed.append(more)
            if len(seen) > most:
                yield self._lost(start, TOO_MANY)
                return

    def _into_loops(self, at: State, to: State) -> State:
        """A state with the loops into which a step goes from outside, other than from what is called in
        them to its arguments, or from a call to what it gives."""
        program = self.program
        if to.stmt is None or to.stmt is at.stmt or len(to.context) > len(at.context):
            return to
        if at.fields[:1] in ((EACH,), (ANY,)):
            return to  # Whoever takes it from there takes what was put there with it.
        loops = [
            stmt.path
            for stmt in program.control(to.function).around(to.stmt.path)
            if stmt.kind in ("for", "while") and stmt is not to.stmt
        ]
        here = () if at.stmt is None or at.function != to.function else at.stmt.path
        entered = [loop for loop in loops if here[: len(loop)] != loop]
        if not entered or any(
            site.stmt is to.stmt for site in program.call_sites.get(at.function, ())
        ):
            return to
        own = to.bound is not None and to.bound.path == to.stmt.path
        is_last = own and isinstance(at.expr, ir.Name)
        way = (to.function, min(entered, key=len), to.stmt.path if is_last else None)
        return to._replace(rounds=to.rounds | {way})

    def _is_one_of_several(self, at: State) -> bool:
        """Whether what is made there is made by a loop, another round of which makes another."""
        places = [(at.function, at.stmt), *((s.caller, s.stmt) for s in at.context)]
        return any(
            function == f and path[: len(loop)] == loop and last != path
            for f, stmt in places
            if stmt is not None
            for path in (stmt.path,)
            for function, loop, last in at.rounds
        )

    # -- transfer functions -------------------------------------------------------------------

    def _step(self, at: State) -> Iterator[_Next]:
        """What an expression is, or the expressions whose value it has."""
        if len(at.fields) > DEEPEST:
            yield self._lost(at, "it is kept too deep inside of other objects")
            return
        if isinstance(at.expr, (ir.Name, ir.Attr)):
            there = self.program.elsewhere(at.expr, at.function)
            if there is not None:
                yield replace(at, expr=there[0], function=there[1], stmt=None)
                return
            origin = self.program.origin(at.expr, at.function)
            if origin is not None:
                yield self._object("external", at, origin)
                return
        match at.expr:
            case ir.Name(id=name):
                several = self.program.alternatives(at.expr, at.function)
                for expr, top in several:
                    yield replace(at, expr=expr, function=top, stmt=None)
                if not several:
                    yield from self._of_name(name, at)
            case ir.Attr(value=value, attr=attr):
                if at.fields:
                    yield from self._put_there(at)
                taken = attribute(attr)
                if self.contents.item_of(at.expr, at.function) is not None:
                    taken = item(attr)
                yield from self._set_before(at) or [self._inside(at, value, taken)]
            case ir.Item(value=value) if taking := self._taken_by(value, at):
                for method in taking:
                    yield from self._returned(method, replace(at, stmt=None))
            case ir.Item(value=value, key=key):
                taken = item(key.value) if isinstance(key, ir.Const) else ANY
                if isinstance(key, ir.Operation):
                    taken = ANY if key.op != "slice" else ("slice", None)
                yield self._inside(at, value, taken)
            case ir.Call():
                yield from self._of_call(at.expr, at)
                if at.fields:
                    yield from self._put_on(at)
            case ir.Operation(op="if", operands=(_, *chosen)) if (
                at.fields or not self.keeps_choices
            ):
                yield from (replace(at, expr=one) for one in chosen)
            case ir.Operation(op="or" | "and", operands=operands):
                yield from (replace(at, expr=one) for one in operands)
            case ir.Walrus(value=value) | ir.Suspend(kind="await", value=value):
                assert value is not None
                yield replace(at, expr=value)
            case ir.Suspend():
                yield self._lost(at, "a generator is sent it")
            case _ if at.fields:
                yield from self._of_element(at)
                yield from self._put_on(at)
            case _:
                yield self._object("value", at)

    def _taken_by(self, holder: ir.Expr, at: State) -> list[str]:
        """The methods that hand out the elements of an object of an own class."""
        program = self.program
        methods = (
            program.method(class_name, "__getitem__")
            for class_name in sorted(program.instance_classes(holder, at.function))
        )
        return [method for method in methods if method is not None]

    def _inside(self, at: State, holder: ir.Expr, taken: Field) -> State:
        return replace(at, expr=holder, fields=(taken, *at.fields))

    def _object(self, kind: str, at: State, name: str = "") -> Object:
        return Object(
            kind,
            at.expr,
            at.function,
            at.stmt,
            name,
            at.fields,
            at.wrapped,
            at.context,
            at.bound if at.bound and at.bound.depth == len(at.fields) else None,
            at.names,
            self._is_one_of_several(at),
            at.places,
        )

    def _set_on(self, one: Object) -> Iterator[State]:
        """What attributes of an object of no class in sight are given: ``args.device = ...``."""
        if one.kind not in ("value", "lost") or self._level == _LEVELS:
            return
        for depth, (kind, attr) in enumerate(one.fields):
            stores = self._stores_of(str(attr)) if kind == "attribute" else {}
            for made in stores.get((one.site, one.fields[:depth]), ()):
                assert made.value is not None
                fields = one.fields[depth + 1 :]
                if made.index is not None:
                    fields = item(made.index), *fields
                yield State(made.value, made.function, made.stmt, fields)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        """While it is asked what answers are asked in terms of, be it to the end or not."""
        self._level += 1
        try:
            yield
        finally:
            self._level -= 1

    def _stores_of(self, attr: str) -> _Stores:
        """The statements that set an attribute, by the objects that these set it of."""
        if (self._level, attr) not in self._stores:
            found: _Stores = {}
            with self._deeper():
                for holder, made in self.program.attribute_targets.get(attr, ()):
                    own = self.program.self_class(made.function)
                    if own is not None and holder == ir.Name(own[0]):
                        continue  # Of a class in sight, which is known by that.
                    if made.value is not None:
                        for one in self.of(holder, made.function, made.stmt):
                            held = found.setdefault((one.site, one.fields), [])
                            if held[-1:] != [made]:
                                held.append(made)
            self._stores[self._level, attr] = found
        return self._stores[self._level, attr]

    def _set_before(self, at: State) -> list[State]:
        """What an attribute of a variable is given by the statements before, where nothing else gives
        any object such an attribute."""
        match at.expr:
            case ir.Attr(value=ir.Name(id=root), attr=attr) if at.stmt and not at.same:
                stores = self.program.attribute_targets.get(attr, ())
                if not stores or any(d.function != at.function for _, d in stores):
                    return []
                control = self.program.control(at.function)
                found, from_start = control.reaching(f"{root}.{attr}", at.stmt.path)
                if not from_start and all(
                    s.kind == "assign" and at.expr in s.targets for s in found
                ):
                    return [replace(at, expr=s.value, stmt=s) for s in found if s.value]
        return []

    def _lost(self, at: State, why: str) -> Object:
        return self._object("lost", at, why)

    # -- names --------------------------------------------------------------------------------

    def _of_name(self, name: str, at: State) -> Iterator[_Next]:
        named = self._named(name, at.function)
        owner = named.owner
        if named.self_of is not None:
            assert owner is not None
            yield from self._of_self(named.self_of, owner, at)
            return
        bound = self._of_comprehension_target(name, at)
        if bound:
            yield from bound
            return
        if owner is None:
            yield self._lost(at, f"no value of {name} was found")
            return
        if named.class_of is not None:
            yield from self._of_class(named.class_of, at)
            return
        if at.fields:
            yield from self._put_there(at)
        definitions, from_start = self.visible(owner, name, at)
        for one in definitions:
            yield from self._of_definition(owner, name, one, at)
        if named.param is not None:
            if from_start:
                yield from self._of_parameter(owner, named.param, at)
        elif not definitions:
            yield self._lost(at, f"no value of {name} was found")

    def _named(self, name: str, function: str) -> _Named:
        known = self._names.get((name, function))
        if known is None:
            known = self._names[name, function] = self._find_named(name, function)
        return known

    def _find_named(self, name: str, function: str) -> _Named:
        program = self.program
        own = program.self_class(function)
        owner = program.owner(name, function)
        if owner is None:
            return _Named(None)
        scope = program.functions[owner]
        if own is not None and name == own[0] == scope.self_name:
            return _Named(owner, self_of=own[1])
        if ir.Name("classmethod") in scope.decorators and scope.class_name is not None:
            if scope.params and scope.params[0].name == name:
                return _Named(owner, class_of=scope.class_name)
        param = next((p for p in scope.params if p.name == name), None)
        return _Named(owner, param=param)

    def _of_comprehension_target(self, name: str, at: State) -> list[State]:
        """The iterables of the comprehension, on the statement's own line, that binds a variable."""
        if at.stmt is None:
            return []
        for inner in parts_of(at.stmt):
            if isinstance(inner, ir.Comprehension):
                for target, iterable in zip(
                    inner.targets, inner.iterables, strict=True
                ):
                    for taken in positions(target, name):
                        fields = (EACH, *taken, *at.fields)
                        return [replace(at, expr=iterable, fields=fields)]
        return []

    def visible(
        self, owner: str, name: str, at: State
    ) -> tuple[list[Definition], bool]:
        """The definitions whose value a variable may have, and whether it may be what its function was
        called with."""
        program = self.program
        found = program.definitions(owner, name)
        is_param = program.is_param(owner, name)
        if len(found) < 2 and not is_param:
            return found, True
        if owner != at.function and at.stmt is not None:
            # By a `global` statement it may be set here.
            stmts, outside = program.control(at.function).reaching(name, at.stmt.path)
            if stmts and not outside:
                own = {one.path for one in stmts}
                return [
                    d for d in found if d.function == at.function and d.stmt.path in own
                ], False
        paths: set[ir.Path] = set()
        from_start = False
        pending = [(at.function, at.stmt, at.context)]
        seen = {at.function}
        while pending:
            here, stmt, context = pending.pop()
            if stmt is None:
                return found, True
            if here == owner:
                stmts, start = program.control(owner).reaching(name, stmt.path)
                paths |= {one.path for one in stmts}
                from_start |= start
                continue
            sites = [site for site in context if site.callee == here][-1:]
            if not sites:
                sites = program.call_sites.get(here, [])
                sites = [s for s in sites if self._may_run(s.caller, context)] or sites
            if not sites or here in program.escaping:
                return found, True
            for site in sites:
                if site.caller == owner or site.caller not in seen:
                    seen.add(site.caller)
                    pending.append((site.caller, site.stmt, context))
        if not paths and from_start and not is_param:
            return found, True
        return [
            d for d in found if d.function != owner or d.stmt.path in paths
        ], from_start

    def _of_definition(
        self, owner: str, name: str, one: Definition, at: State
    ) -> Iterator[_Next]:
        stmt, context = one.stmt, at.context
        if owner != at.function:
            # The calls that lead to where the variable lives, not those that lead on from there.
            context = _calls_into(owner, context)
        here = replace(at, function=one.function, stmt=stmt, context=context)
        if stmt.kind == "functiondef":
            made = ir.Name(stmt.names[0])
            yield self._object("function", replace(here, expr=made), stmt.names[1])
            return
        if stmt.kind == "classdef":
            yield from self._of_class(stmt.names[1], here)
            return
        if stmt.kind == "augassign" and stmt.value is not None:
            yield from self._of_augmented(here, stmt.value)
            return
        places = [
            fields for target in stmt.targets for fields in positions(target, name)
        ]
        if stmt.kind == "for" and places and stmt.value is not None:
            for fields in places:
                taken = (EACH, *_with_rest(fields, at.fields))
                yield replace(here, expr=stmt.value, fields=taken, bound=None)
            return
        here = here.named("variable", owner, name, stmt)
        if stmt.kind in ("assign", "annassign") and places and stmt.value is not None:
            for fields in places:
                taken = _with_rest(fields, at.fields)
                yield replace(here, expr=stmt.value, fields=taken)
            return
        if one.value is not None and one.index is None:
            yield replace(here, expr=one.value)
            return
        here = replace(here, expr=ir.Name(name))
        yield self._lost(
            here, f"{name} is given its value in a way that is not followed"
        )

    def _of_augmented(self, at: State, value: ir.Expr) -> Iterator[_Next]:
        """``more += [...]``, beside what it was before."""
        if at.fields and at.fields[0] in (EACH, ANY):
            yield replace(at, expr=value)
        elif at.fields and at.fields[0][0] == "item":
            yield self._lost(at, "it is put into a list, behind others")
        else:
            yield self._lost(at, IN_PLACE)

    # -- parameters ---------------------------------------------------------------------------

    def _of_parameter(self, owner: str, param: ir.Param, at: State) -> Iterator[_Next]:
        program = self.program
        name = program.called_as(owner)
        for depth in range(len(at.context) - 1, -1, -1):
            if at.context[depth].callee == owner:
                yield from self.given_by(
                    at.context[depth], param, at.context[:depth], at
                )
                return
        sites = program.call_sites.get(owner, [])
        # What a method that has been come into calls in its turn.
        inner = [
            (site, at.context[: depth + 1])
            for site in sites
            for depth, outer in enumerate(at.context)
            if outer.callee == site.caller
        ]
        for site, context in inner:
            yield from self.given_by(site, param, context, at)
        if inner:
            return
        beside = [s for s in sites if self._may_run(s.caller, at.context)]
        for site in beside or sites:
            yield from self.given_by(site, param, (), at)
        if not sites and param.default is not None:
            yield from self._default(owner, param, at)
        if not sites:
            unseen = "lost" if param.default is None else "open"
            yield self._object(unseen, at, f"no call of {name}() was found")
        elif owner in program.escaping:
            yield self._object("open", at, f"{name}() is used as a value")
        elif program.is_public(owner):
            why = f"{name}() may be called by code that cannot be seen"
            yield self._object("open", at, why)

    def _comes_from_outside(self, at: State) -> bool:
        """Whether code that cannot be seen may give a variable its value, by a call."""
        if not isinstance(at.expr, ir.Name) or at.context:
            return False
        named = self._named(at.expr.id, at.function)
        return (
            named.param is not None
            and named.owner is not None
            and named.self_of is named.class_of is None
            and self.program.is_public(named.owner)
            and not self._of_comprehension_target(at.expr.id, at)
            and self.visible(named.owner, at.expr.id, at)[1]
        )

    def _may_run(self, function: str, context: Context) -> bool:
        """Whether a run that makes some calls may run a function, too."""
        return all(
            self.program.may_run_together(ir.file_of(function), ir.file_of(site.caller))
            for site in context
        )

    def _default(self, owner: str, param: ir.Param, at: State) -> Iterator[State]:
        assert param.default is not None
        outer = self.program.functions[owner].parent or owner
        if param.default != ir.Const(None) or not self._is_replaced(owner, param, at):
            yield replace(at, expr=param.default, function=outer, stmt=None, context=())

    def _is_replaced(self, owner: str, param: ir.Param, at: State) -> bool:
        """Whether a place is behind ``if device is None: device = ...``."""
        if at.stmt is None or at.function != owner:
            return False
        place = at.stmt.path
        known = self._replaced.get((owner, param.name, place))
        if known is None:
            name = ir.Name(param.name)
            test = ir.Operation("is", (name, ir.Const(None)))
            known = self._replaced[owner, param.name, place] = self.program.control(
                owner
            ).is_passed(
                lambda stmt: stmt.kind == "if"
                and stmt.value == test
                and place[: len(stmt.path)] != stmt.path
                and any(one.targets == (name,) for one in stmt.blocks[0].body),
                place,
            )
        return known

    def given_by(
        self, site: CallSite, param: ir.Param, context: Context, at: State
    ) -> Iterator[_Next]:
        """What a call gives to a parameter."""
        program = self.program
        value = None
        if param.kind == "positional":
            value = program.argument_at(site, param.name)
        here = at.given(at.expr if value is None else value, site, context)
        if value is not None:
            yield here
            return
        positional = [
            p.name
            for p in program.functions[site.callee].params
            if p.kind == "positional"
        ][site.bound_self :]
        if param.kind in ("*", "**"):
            yield replace(here, expr=self._rest(site, param, positional))
            return
        named = next((arg for arg in site.call.args if arg.name == param.name), None)
        if named is not None:
            yield replace(here, expr=named.value)
            return
        spread = counted = False
        for position, arg in enumerate(site.call.args):
            if arg.star == "**":
                spread = True
                yield self._inside(here, arg.value, item(param.name))
            elif arg.star == "*" and param.name in positional[position:]:
                spread = True
                index = positional.index(param.name) - position
                # Behind another one it is not known at which place.
                yield self._inside(here, arg.value, ANY if counted else item(index))
                counted = True
        if param.default is not None and not (
            spread and param.default == ir.Const(None)
        ):
            # Whether it is among what is spread out is not known.
            yield from self._default(site.callee, param, at)
        elif not spread:
            yield self._lost(here, f"the call gives no value to {param.name}")

    def _rest(
        self, site: CallSite, param: ir.Param, positional: list[str]
    ) -> ir.Display:
        """What a call gives to ``*args``, or ``**options``, as it would be written out."""
        key = id(site.call), site.callee, param.kind
        if key not in self._rests:
            args = site.call.args
            if param.kind == "*":
                plain = [arg for arg in args if arg.name is None and arg.star != "**"]
                rest = [
                    ir.Operation("starred", (arg.value,)) if arg.star else arg.value
                    for arg in plain[len(positional) :]
                ]
                made = ir.Display("tuple", tuple(rest))
            else:
                named = {
                    p.name
                    for p in self.program.functions[site.callee].params
                    if not p.kind.startswith("*")
                }
                given = [
                    (None if arg.star else ir.Const(arg.name), arg.value)
                    for arg in args
                    if arg.star == "**"
                    or (arg.name is not None and arg.name not in named)
                ]
                keys = tuple(key for key, _ in given)
                made = ir.Display("dict", tuple(value for _, value in given), keys)
            self._rests[key] = site, made
        return self._rests[key][1]

    # -- objects and their attributes ---------------------------------------------------------

    def _of_self(self, class_name: str, method: str, at: State) -> Iterator[_Next]:
        """A method's own object: what it was called on, where that is known."""
        if at.same and at.fields and self._is_module(class_name):
            yield from self._of_instance(class_name, at, at.context)
            return
        for depth in range(len(at.context) - 1, -1, -1):
            site = at.context[depth]
            if site.callee == method and site.bound_self:
                outer = replace(
                    at,
                    function=site.caller,
                    stmt=site.stmt,
                    context=at.context[:depth],
                )
                match site.call.func:
                    case ir.Attr(value=ir.Call(func=ir.Name(id="super"))):
                        own = self.program.self_class(site.caller)
                        if own is not None:
                            yield replace(outer, expr=ir.Name(own[0]))
                            return
                    case ir.Attr(value=value, attr=attr) if (
                        self.program.functions[method].name != "__init__"
                    ):
                        of = self.program.instance_classes(value, site.caller)
                        if not self._is_module(class_name) and any(
                            self.program.method(c, attr) != method for c in of
                        ):
                            break  # Of others, another method runs.
                        yield replace(outer, expr=value)
                        return
                    case _ if self.program.functions[method].name == "__init__":
                        yield from self._of_instance(
                            class_name, replace(outer, expr=site.call), at.context
                        )
                        return
                break
        yield from self._of_instance(class_name, at, at.context)

    def _of_class(self, class_name: str, at: State) -> Iterator[_Next]:
        if not at.fields or at.fields[0][0] != "attribute":
            yield self._object("class", at, class_name)
            return
        yield from self._of_attribute(class_name, at, None)

    def _of_instance(
        self, class_name: str, at: State, inside: Context
    ) -> Iterator[_Next]:
        """An object of a class; ``inside``: the calls that lead into its methods."""
        if at.fields and at.fields[0][0] == "attribute":
            yield from self._of_attribute(class_name, at, inside)
        elif at.fields and self.program.is_named_tuple(class_name):
            for taken in self._unpacked(class_name, at.fields[0]):
                here = replace(at, fields=(taken, *at.fields[1:]))
                yield from self._of_attribute(class_name, here, inside)
        elif at.fields and at.fields[0] != INSIDE and self._has_no_elements(class_name):
            # To unpack it raises: a factory that returns one object or several.
            return
        elif isinstance(at.expr, ir.Call):
            yield self._object("value", at, class_name)
        else:
            yield self._object("instance", at, class_name)

    def _unpacked(self, class_name: str, taken: Field) -> list[Field]:
        """The fields of a named tuple that are taken out of it by their place, or by name as an item."""
        fields = [*map(attribute, self.program.written_fields(class_name))]
        kind, place = taken
        if kind == "item" and isinstance(place, int):
            return [fields[place]] if -len(fields) <= place < len(fields) else []
        return [attribute(place)] if isinstance(place, str) else fields

    def _of_attribute(
        self, class_name: str, at: State, inside: Context | None
    ) -> Iterator[_Next]:
        """The first attribute that is taken out of an object of a class, or of the class itself."""
        program = self.program
        attr, left = str(at.fields[0][1]), at.fields[1:]
        own = isinstance(at.expr, ir.Name)
        if at.same and not own and self._is_module(class_name):
            yield self._object("value", at, class_name)
            return
        exact = isinstance(at.expr, ir.Call) or inside is None
        found = always = left_out = False
        for one in program.attribute_definitions(class_name, attr):
            if one.call is not None and exact and one.call is not at.expr:
                continue
            if one.call is not None and one.value is None:
                if not any(arg.star for arg in one.call.args):
                    # A field of a dataclass that has a default.
                    left_out = True
                    continue
            if exact and self._is_of_another(one.function, class_name):
                continue
            if not self._may_run(one.function, at.context):
                continue
            found = True
            always |= one.call is not None
            always |= program.functions[one.function].name == "__init__"
            here = replace(
                at, function=one.function, stmt=one.stmt, fields=left, bound=None
            )
            calls = inside if inside is not None else ()
            if one.call is not None:
                calls = at.context if exact else ()
            else:
                calls = self._by_super(class_name, one.function, calls)
            here = replace(here, context=calls)
            places = [
                fields
                for target in one.stmt.targets
                for fields in attribute_positions(target, attr)
            ]
            if one.call is not None and one.value is not None:
                yield replace(here, expr=one.value)
            elif places and one.stmt.value is not None and one.stmt.kind != "with":
                step = () if one.stmt.kind != "for" else (EACH,)
                if not step:
                    holder = program.self_class(one.function) or ("", class_name)
                    here = here.named("attribute", holder[1], attr, one.stmt)
                if one.stmt.kind == "augassign":
                    yield from self._of_augmented(here, one.stmt.value)
                    continue
                for fields in places:
                    taken = (*step, *fields, *left)
                    yield replace(here, expr=one.stmt.value, fields=taken)
            else:
                yield self._lost(
                    here, f"{attr} is given its value in a way that is not followed"
                )
        if always and not left_out:
            return
        methods = [] if found else program.methods(class_name, attr, not exact)
        for method in methods:
            here = replace(at, function=method, stmt=None, fields=left)
            if program.is_property(method):
                here = replace(here, context=inside or ())
                yield from self._returned(method, here)
            else:
                yield self._object("function", here, method)
        if methods:
            return
        for base in program.bases(class_name):
            facts = program.classes[base]
            for stmt in facts.body:
                if ir.Name(attr) in stmt.targets and stmt.value is not None:
                    if found and stmt.value == ir.Const(None):
                        continue  # It is set before it is used.
                    found = True
                    yield replace(
                        at,
                        expr=stmt.value,
                        function=facts.parent,
                        stmt=None,
                        fields=left,
                        context=(),
                        bound=None,
                    )
        if not found:
            yield self._lost(at, f"no value of {attr} was found")

    def _by_super(self, class_name: str, method: str, context: Context) -> Context:
        """The calls that lead into a method of a base class, where its subclasses down to that of an
        object each call it once: ``super().__init__(models)``."""
        program = self.program
        line = program.bases(class_name)
        chain: list[CallSite] = []
        while all(site.callee != method for site in (*context, *chain)):
            own = program.self_class(method)
            if own is None or own[1] == class_name or own[1] not in line:
                break
            below = [
                (site, caller[1])
                for site in program.call_sites.get(method, ())
                if (caller := program.self_class(site.caller)) is not None
                and (caller[1] in line or class_name in program.bases(caller[1]))
            ]
            match below:
                case [(site, sub)] if site.bound_self and sub in line:
                    chain.append(site)
                    method = site.caller
                case _:
                    break
        return (*context, *reversed(chain))[-DEEPEST:]

    def _is_module(self, class_name: str) -> bool:
        bases = self.program.external_bases(class_name)
        return any(base.startswith("torch.nn.") for base in bases)

    def _has_no_elements(self, class_name: str) -> bool:
        program = self.program
        return program.external_bases(class_name) <= _WITHOUT_ELEMENTS and not any(
            program.method(class_name, name) for name in ("__getitem__", "__iter__")
        )

    def _is_of_another(self, function: str, class_name: str) -> bool:
        """Whether a function is a method of a class that an object does not have."""
        own = self.program.self_class(function)
        return own is not None and (
            own[1] not in self.program.bases(class_name)
            and own[1] in self.program.family(class_name)
        )

    # -- calls --------------------------------------------------------------------------------

    def _of_call(self, call: ir.Call, at: State) -> Iterator[_Next]:
        program = self.program
        func = call.func
        origin = program.origin(func, at.function)
        wraps = origin in WRAPPERS or (at.same and _wraps(origin, func))
        if wraps and call.args and (at.same or not at.fields):
            left = at.fields[at.fields[:1] == (attribute("module"),) :]
            yield replace(at, expr=call.args[0].value, fields=left, wrapped=not at.same)
            return
        if origin in self.wrappers and call.args and not at.fields:
            yield replace(at, expr=call.args[0].value)
            return
        inner = call.argument(0, "optimizer") if origin in AROUND_OPTIMIZERS else None
        if inner is not None and at.stmt is not None and at.stmt.targets == (inner,):
            # Nothing but its own name goes on to lead to it.
            yield replace(at, expr=inner)
            return
        if at.fields and self.contents.makes_dict(func, at.function):
            yield from self._of_library(origin or "", call, at)
            return
        refs = program.resolve(func, at.function)
        called = {ref.kind for ref in refs}
        if called == {"class"}:
            for ref in refs:
                init = program.method(ref.name, "__init__")
                sites = [
                    site
                    for site in program.call_sites_of(call, at.function)
                    if site.callee == init
                ]
                inside = (*at.context, *sites[:1])[-DEEPEST:]
                if at.same and program.external_bases(ref.name) & WRAPPERS:
                    yield from self._of_own_wrapper(call, init, at, inside)
                else:
                    yield from self._of_instance(ref.name, at, inside)
            return
        if called == {"function"}:
            for site in program.call_sites_of(call, at.function):
                context = (*at.context, site)[-DEEPEST:]
                here = replace(at, function=site.callee, stmt=None, context=context)
                yield from self._returned(site.callee, here)
            return
        if origin is not None and at.fields:
            yield from self._of_library(origin, call, at)
            return
        if isinstance(func, ir.Item) and at.stmt is not None:
            # ``BUILDERS[name](model)``
            table = self._functions_in(func, at.function)
            for callee in table:
                site = CallSite(at.function, at.stmt, call, callee, False)
                context = (*at.context, site)[-DEEPEST:]
                here = replace(at, function=callee, stmt=None, context=context)
                yield from self._returned(callee, here)
            if table:
                return
        through = None
        if isinstance(func, ir.Attr) and not refs:
            through = self._through(func, call, at)
        yield through or self._object("value", at)

    def _functions_in(self, table: ir.Item, function: str) -> tuple[str, ...]:
        """The functions of a table that holds nothing else."""
        asked = function, table
        if asked not in self._tables:
            self._tables[asked] = ()  # while it is asked what is in it
            found = self.of(
                table,
                function,
                enough=lambda one: one.kind not in ("function", "open")
                or bool(one.fields),
            )
            made = [one for one in found if one.kind != "open"]
            functions = self.program.functions
            if made and all(
                one.kind == "function"
                and not one.fields
                and functions[one.name].self_name is None
                for one in made
            ):
                self._tables[asked] = tuple(one.name for one in made)
        return self._tables[asked]

    def _of_own_wrapper(
        self, call: ir.Call, init: str | None, at: State, inside: Context
    ) -> Iterator[_Next]:
        """The module that a class of the program which is a DDP, say, hands on to it."""
        left = at.fields[at.fields[:1] == (attribute("module"),) :]
        if init is None:
            given = [replace(at, expr=arg.value) for arg in call.args[:1]]
            adds = False
        else:
            here = replace(at, function=init, context=inside)
            body = list(self.program.statements(init))
            given = [
                replace(here, expr=inner.args[0].value, stmt=stmt)
                for stmt in body
                for inner in calls_of(stmt)
                if isinstance(inner.func, ir.Attr) and inner.func.attr == "__init__"
                if inner.args
            ]
            # A part of its own would be one more.
            adds = any(s.targets and not isinstance(s.value, ir.Const) for s in body)
        if len(given) == 1 and not adds:
            yield replace(given[0], fields=left)
        else:
            yield self._lost(at, "what it is around is not followed")

    def _through(self, func: ir.Attr, call: ir.Call, at: State) -> State | None:
        """What a method that is not of this program hands back of what it is called on."""
        taken, left = at.fields[:1], at.fields[1:]
        if func.attr in self.returns_self or (at.same and self._goes_on(func, at)):
            return replace(at, expr=func.value)
        if func.attr in _GIVES_ELEMENT and call.args:
            first = call.args[0].value
            key = item(first.value) if isinstance(first, ir.Const) else ANY
            return self._inside(at, func.value, key)
        if taken == (EACH,) and func.attr == "values":
            return replace(at, expr=func.value, fields=(ANY, *left))
        if at.fields[:2] == _SECOND and func.attr == "items":
            return replace(at, expr=func.value, fields=(ANY, *left[1:]))
        if taken == (EACH,) and func.attr == "keys":
            return replace(at, expr=func.value)
        if at.fields[:2] == (EACH, item(0)) and func.attr == "items":
            return replace(at, expr=func.value, fields=(EACH, *left[1:]))
        if taken == (EACH,) and func.attr in _INNER:
            left = left[func.attr.startswith("named_") :]
            # What is inside of a part is inside.
            return replace(
                at,
                expr=func.value,
                fields=left if left[:1] == (INSIDE,) else (INSIDE, *left),
            )
        if at.fields and func.attr == "copy":
            return replace(at, expr=func.value)
        return None

    def _goes_on(self, func: ir.Attr, at: State) -> bool:
        """``net = net.float()``: a method of who knows what that goes by the name of what it is called
        on is taken to return that."""
        root: ir.Expr = func
        while isinstance(root, (ir.Attr, ir.Call)):
            root = root.func if isinstance(root, ir.Call) else root.value
            if at.stmt is not None and root in at.stmt.targets:
                return True
        return func.attr == "float"

    def _returned(self, function: str, at: State) -> Iterator[_Next]:
        """What a function gives back."""
        facts = self.program.functions[function]
        if facts.is_generator or facts.is_async:
            yield self._lost(at, f"{facts.name}() hands it out later")
            return
        for outer, made, call in self.program.decorating.get(function, ()):
            # What only enters it in a table gives it back.
            if {one.name for one in self.of(call, outer, made)} != {function}:
                yield self._object("open", at, f"{facts.name}() is decorated")
        control = self.program.control(function)
        for stmt in ir.statements(facts.body):
            if stmt.kind == "return":
                value = stmt.value or ir.Const(None)
                if at.fields and value == ir.Const(None):
                    continue  # To take something out of it raises.
                if (
                    at.fields[:1]
                    and at.fields[0][0] == "item"
                    and self._has_state(value, facts)
                ):
                    # A module, say, that another call is given alone: it is not unpacked.
                    continue
                yield replace(at, expr=value, function=function, stmt=stmt)
        if not control.is_passed(lambda stmt: stmt.kind in ("return", "raise")):
            yield self._object("value", replace(at, expr=ir.Const(None)))

    @staticmethod
    def _has_state(value: ir.Expr, function: ir.Function) -> bool:
        """Whether a variable is given a state in a function, and so is no tuple, nor a dict."""
        return isinstance(value, ir.Name) and any(
            isinstance(call.func, ir.Attr)
            and call.func.attr == "load_state_dict"
            and call.func.value == value
            for _, call in each_call(function.body)
        )

    def _of_library(self, origin: str, call: ir.Call, at: State) -> Iterator[_Next]:
        """What is taken out of what a library's function returns."""
        taken, left = at.fields[0], at.fields[1:]
        args = [arg.value for arg in call.args if arg.name is None and not arg.star]
        in_order = origin in ("builtins.list", "builtins.tuple")
        if origin in COPIES and args and not at.same:
            # Its parts are what those of the original are, each a copy.
            yield replace(at, expr=args[0])
        elif len(args) == 1 and (
            in_order or (origin in _LISTS and taken in (EACH, ANY))
        ):
            yield replace(at, expr=args[0])
        elif origin == "builtins.enumerate" and args and at.fields[:2] == _SECOND:
            yield replace(at, expr=args[0], fields=(EACH, *at.fields[2:]))
        elif origin == "builtins.zip" and taken == EACH and left[:1]:
            position = left[0][1]
            if isinstance(position, int) and 0 <= position < len(args):
                fields = (EACH, *at.fields[2:])
                yield replace(at, expr=args[position], fields=fields)
        elif origin in _HOLDERS or self.contents.makes_dict(call.func, at.function):
            for arg in call.args:
                if arg.star == "**" or arg.name is None:
                    fields = (
                        (item(taken[1]), *left)
                        if taken[0] == "attribute"
                        else at.fields
                    )
                    yield replace(at, expr=arg.value, fields=fields)
                elif taken in (item(arg.name), attribute(arg.name), ANY):
                    yield replace(at, expr=arg.value, fields=left)
        else:
            yield self._object("value", at)

    # -- elements -----------------------------------------------------------------------------

    def put_on(self, made: ir.Expr) -> list[tuple[Put, Fields]]:
        """What is put into a collection that an expression makes, or (after fields) into one in it, by
        whatever name for it."""
        if self._level == _LEVELS:
            return []
        if self._level not in self._puts:
            puts: dict[int, list[tuple[Put, Fields]]] = defaultdict(list)
            with self._deeper():
                for put in self.contents.all:
                    for one in self.of(
                        put.holder, put.function, put.stmt, most=_MOST_OF_PUT
                    ):
                        if self._is_collection(one):
                            puts[id(one.expr)].append((put, one.fields))
            self._puts[self._level] = puts
        return self._puts[self._level].get(id(made), [])

    def put_into(self, expr: ir.Expr, function: str, stmt: ir.Stmt | None) -> list[Put]:
        """What is put into the collections that an expression may stand for, and into those in them."""
        found: dict[int, Put] = {}
        for one in self.of(expr, function, stmt):
            if self._is_collection(one):
                for put, fields in self.put_on(one.expr):
                    if _may_lead(one.fields, fields[: len(one.fields)]):
                        found[id(put)] = put
        return [*found.values()]

    def _is_collection(self, one: Object) -> bool:
        return one.kind == "value" and self.contents.is_container(
            one.expr, one.function
        )

    def _put_on(self, at: State) -> Iterator[State]:
        """What is put into what is made there, by whatever name, where that is asked of what others are put
        into: of an object itself it is to be known by which name and in which call."""
        for put, fields in self.put_on(at.expr) if self._level else ():
            taken, left = at.fields[len(fields) :], at.fields[len(fields) + 1 :]
            if taken and _may_lead(at.fields, fields):
                if taken[0][0] != "item" or put.may_be_under(taken[0][1]):
                    here = State(put.value, put.function, put.stmt)
                    yield replace(here, fields=taken if put.spread else left)

    def _put_there(self, at: State) -> Iterator[State]:
        """What is put later into the collection that a variable or an attribute holds."""
        if not at.fields or at.fields[0][0] not in ("item", "each"):
            return
        if not isinstance(at.expr, (ir.Name, ir.Attr)):
            return
        taken, left = at.fields[0], at.fields[1:]
        for put in self.contents.put_into(at.expr, at.function):
            if not put.may_be_under(taken[1]):
                continue
            calls: Context = ()
            if isinstance(at.expr, ir.Name):
                # A collection of each call's own.
                if self.program.owner(at.expr.id, at.function) == put.function:
                    calls = _calls_into(put.function, at.context)
            here = replace(
                at,
                expr=put.value,
                function=put.function,
                stmt=put.stmt,
                fields=left,
                context=calls,
                bound=None,
            )
            if put.spread:
                yield replace(here, fields=at.fields)
                continue
            yield here
            if taken == EACH and put.key is not None:
                yield replace(here, expr=put.key)

    def _of_element(self, at: State) -> Iterator[_Next]:
        """What is taken out of what is written out."""
        taken, left = at.fields[0], at.fields[1:]
        match at.expr:
            case ir.Display(kind="dict", items=items, keys=keys):
                if taken == EACH:
                    yield from (
                        replace(at, expr=key, fields=left)
                        for key in keys
                        if key is not None
                    )
                    return
                for key, value in zip(keys, items, strict=True):
                    if key is None:
                        yield replace(at, expr=value)
                    elif taken == ANY or (
                        isinstance(key, ir.Const) and taken == item(key.value)
                    ):
                        yield replace(at, expr=value, fields=left)
            case ir.Display(items=items):
                starred = False
                for position, value in enumerate(items):
                    index = taken[1]
                    if isinstance(index, int) and index < 0:
                        index += len(items)
                    if isinstance(value, ir.Operation) and value.op == "starred":
                        step = ANY
                        if isinstance(index, int) and index >= position and not starred:
                            step = item(index - position)
                        starred = True
                        yield replace(at, expr=value.operands[0], fields=(step, *left))
                    elif starred or taken in (EACH, ANY) or index == position:
                        yield replace(at, expr=value, fields=left)
            case ir.Comprehension(elements=elements):
                if taken == EACH and len(elements) == 2:
                    yield replace(at, expr=elements[0], fields=left)
                else:
                    made = replace(at, expr=elements[-1], fields=left)
                    yield self._made_for(taken, made) if at.same else made
            case ir.Operation(op="+" | "|", operands=operands):
                known = taken in (EACH, ANY) or at.expr.op == "|"
                fields = at.fields if known else (ANY, *left)
                yield from (replace(at, expr=o, fields=fields) for o in operands)
            case ir.Operation(op="*", operands=(ir.Display() as listed, _)):
                fields = (ANY, *left)
                yield replace(at, expr=listed, fields=fields)
            case _:
                yield self._object("value", at)

    @staticmethod
    def _made_for(taken: Field, made: State) -> State:
        """An element of a comprehension, each of which is another object."""
        kind, key = taken
        if kind != "item":
            return made
        if isinstance(key, str) or (isinstance(key, int) and key >= 0):
            return replace(made, places=(key, *made.places))
        if made.stmt is None:
            return made
        way = (made.function, made.stmt.path, None)
        return replace(made, rounds=made.rounds | {way})


def hands_on(origin: str | None, func: ir.Expr) -> bool:
    """Whether a library's function may give what it is given, or a collection of it: a dict aside."""
    known = WRAPPERS | COPIES | _LISTS | _HOLDERS | _IN_TURN | AROUND_OPTIMIZERS
    return origin in known or _wraps(origin, func)


def _wraps(origin: str | None, func: ir.Expr) -> bool:
    """Whether a function hands back the module that it is given, or one around it."""
    last = (ir.key_of(func) or "").rpartition(".")[2]
    return origin in _WRAPPING_FUNCTIONS or last in _WRAPPER_NAMES


def _calls_into(function: str, context: Context) -> Context:
    """Of some calls, those that lead into a function."""
    depths = [depth for depth, site in enumerate(context) if site.callee == function]
    return context[: depths[-1] + 1] if depths else ()


def positions(target: ir.Expr, name: str) -> Iterator[Fields]:
    """Where a variable stands in what is unpacked."""
    if target == ir.Name(name):
        yield ()
    elif isinstance(target, ir.Display):
        for index, inner in enumerate(target.items):
            if isinstance(inner, ir.Operation) and inner.op == "starred":
                # A list of the rest: `first, *others = ...`
                for fields in positions(inner.operands[0], name):
                    yield (("rest", index), *fields)
                continue
            for fields in positions(inner, name):
                yield (item(index), *fields)


def _with_rest(fields: Fields, inner: Fields) -> Fields:
    """Fields, and then others: what is taken out of a list of the rest is taken out of the whole."""
    if fields[-1:] and fields[-1][0] == "rest" and inner:
        begin, (kind, key) = fields[-1][1], inner[0]
        if isinstance(begin, int) and isinstance(key, int) and key >= 0:
            key = begin + key
        fields, inner = fields[:-1], ((kind, key), *inner[1:])
    return *fields, *inner


def attribute_positions(target: ir.Expr, attr: str) -> Iterator[Fields]:
    """The same of an attribute, whatever it is one of."""
    if isinstance(target, ir.Attr) and target.attr == attr:
        yield ()
    elif isinstance(target, ir.Display):
        for index, inner in enumerate(target.items):
            for fields in attribute_positions(inner, attr):
                yield (item(index), *fields)


def expr_of(at: State) -> ir.Expr | None:
    """A variable or attribute with what is taken out of it, as an expression."""
    expr: ir.Expr = at.expr
    for kind, key in at.fields:
        if kind == "attribute":
            expr = ir.Attr(expr, str(key))
        elif kind == "item":
            expr = ir.Item(expr, ir.Const("*" if key is None else key))
        else:
            return None
    return expr
