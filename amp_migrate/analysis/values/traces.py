"""What of a value is in half precision when AMP is on, in and outside of regions.

A function that is called from a region as well as from outside of one is asked about twice: each
value is traced back in one of two contexts, with autocast on or off where its function was called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from amp_migrate.analysis.objects.contents import PUTS, Put, may_be_same
from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.forward import MODELS, Forward
from amp_migrate.analysis.objects.modules import Construction, Modules
from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.destinations import DEVICE, kind_of
from amp_migrate.analysis.tables.vocabulary import RUNS_FIRST
from amp_migrate.analysis.values.called import Called, at_once
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.analysis.values.overwritten import Overwritten
from amp_migrate.catalogue.operations import operations
from amp_migrate.core.fixpoint import Fixpoint
from amp_migrate.program import ir
from amp_migrate.program.bindings import (
    bindings,
    calls_of,
    each_part,
    parts_of,
    unpacked,
)
from amp_migrate.program.given import Given
from amp_migrate.program.link import NAMED_TUPLES, CallSite, Program, Ref
from amp_migrate.program.names import Definition

ANY = None
"""Any element of a container."""


class Trace(NamedTuple):
    """What is known about a value: ``full`` is for sure no tensor of half precision."""

    half: bool
    """It is seen to be, or to hold, what autocast makes half."""
    off: str
    """With AMP off: ``fp32`` for a tensor of that dtype, ``none``, ``optional`` for one of both,
    ``number``, ``integer`` for a mask or another tensor that is promoted to any float, ``data`` for what
    was loaded or is of another dtype, ``?`` where it may be anything."""
    scalar: bool = False
    """It may be a tensor without dimensions, to whose dtype no half tensor with some is promoted."""

    @property
    def used(self) -> Trace:
        """The same where it is used in such a way that None raises."""
        tensor = {"optional": "fp32", "none": ""}
        return self._replace(off=tensor.get(self.off, self.off))


_NOTHING = Trace(False, "")
"""The least: no value has been met yet."""
UNKNOWN = Trace(False, "?")
NONE = Trace(False, "none")
DATA = Trace(False, "data")
NUMBER = Trace(False, "number")
INTEGER = Trace(False, "integer")
FULL = Trace(False, "fp32")
_HOOKED = Trace(True, "?")
"""What a module is given or gives, and hands to a hook."""

_CASTS = operations("integers")
_REDUCTIONS = operations("reduces")
"""They give one number where no dimension is named."""
_PLACED = operations("chosen")
"""They give values and, behind them, places."""
_SAME_ELEMENTS = frozenset(
    f"builtins.{name}" for name in "list tuple set reversed sorted iter".split()
) | {"collections.deque", "random.sample", "random.choices", "tqdm.tqdm"}
_IN_ORDER = frozenset(f"builtins.{name}" for name in "list tuple iter".split())
_COPIES = frozenset("copy.copy copy.deepcopy".split())
_NO_TENSORS = frozenset("builtins math numpy os time json logging random re".split())
"""What gives no tensor,"""
_HANDS_ON = frozenset(("builtins.getattr",))
"""but for these."""
_COLLECTIONS = (
    frozenset(f"builtins.{name}" for name in "list dict set".split())
    | frozenset(
        f"collections.{name}" for name in "deque defaultdict OrderedDict".split()
    )
    | frozenset(f"queue.{name}" for name in "Queue LifoQueue SimpleQueue".split())
)
NAMED_PARTS = (
    "builtins.dict",
    "collections.OrderedDict",
    "types.SimpleNamespace",
    "argparse.Namespace",
    "dataclasses.replace",
)
"""What has a part for each keyword, and those of what it is given besides."""
_NEW = operations("new")
"""They make a tensor of their receiver's dtype, as what changes it in place gives one."""
_TAKES = frozenset("pop popleft get get_nowait".split())
_LOADS = {"torch.load": "save", "pickle.load": "dump", "pickle.loads": "dumps"}
"""What reads a file, and the name of what has written it."""
_OUTPUTS = frozenset("logits last_hidden_state pooler_output hidden_states".split())
_DEEPEST = 4
"""So deep in containers one element is told from another: ``x = x.next`` has no end. A name counts twice:
there are many of them."""
Selectors = tuple[int | str | None, ...]

_Key = tuple[int, str, ir.Path, bool | None, Selectors]


class At(NamedTuple):
    """An expression where it stands, in a context, and which part of its value is meant."""

    expr: ir.Expr
    function: str
    stmt: ir.Stmt
    on: bool
    """Whether its function was called under autocast."""
    part: Selectors = ()
    """Of a container, its element; of that one its element, and so on."""


class _Puts(NamedTuple):
    """What is put into a collection under some key."""

    all: list[Put]
    rest: list[Put]
    """What anybody may have made."""
    fresh: dict[str, list[Put]]
    """By function, what is put into what was made in the same call of it."""


class _Shared(NamedTuple):
    """What is found in a collection, whoever asks for it."""

    puts: list[Put]
    on: bool | None
    """Whether autocast is on in the only run that puts anything there, where it is one."""
    part: Selectors


def join(traces: Iterable[Trace]) -> Trace:
    """What holds of a value that is one of some."""
    half, off, scalar = _NOTHING
    for one in traces:
        half |= one.half
        scalar |= one.scalar
        if off in ("", one.off) or not one.off:
            off = off or one.off
        else:
            optional = {off, one.off} <= {"none", "fp32", "optional"}
            off = "optional" if optional else "?"
    return Trace(half, off, scalar)


def mixed(traces: Iterable[Trace]) -> Trace:
    """What holds of a result to whose dtype all operands are promoted."""
    traces = [one.used for one in traces]
    if _NOTHING in traces:
        return _NOTHING
    known = [t for t in traces if t.off != "number"]
    if not known:
        return NUMBER
    known = [t for t in known if t.off != "integer"] or known
    joined = join(known)
    scalar = all(t.scalar for t in known)
    full = any(
        not t.half and t.off in ("fp32", "data") and (scalar or not t.scalar)
        for t in known
    )
    return Trace(joined.half and not full, joined.off, scalar)


class Traces:
    """Answers for one program, some of whose statements are in regions."""

    _too_far = UNKNOWN
    """What is said of a value where it is not followed on."""

    def __init__(
        self,
        flow: Flow,
        modules: Modules,
        forward: Forward,
        inside: Statements,
        called: Collection[str],
        outside: Collection[str],
        hooks: Collection[str | tuple[str, ir.Path]],
        in_fp32: Statements = (),
    ) -> None:
        """``inside``: the statements of regions. ``called``: the functions that these call; ``outside``:
        those that run outside of every region. A function may be both. ``hooks``: functions that are
        hooked to modules, and the statements that do so. ``in_fp32``: the statements for which autocast
        is turned off, wherever they run.
        """
        self.program = flow.program
        self.flow = flow
        self.modules = modules
        self.forward = forward
        self.inside = inside
        self.called = called
        self.outside = outside
        self.hooks = hooks
        self.in_fp32 = in_fp32
        self._cast: set[int] = set()
        """The very expressions (by `id`) that are cast to fp32 by an edit."""
        self._fixpoint: Fixpoint[_Key, Trace] = Fixpoint(self._equation, _NOTHING, join)
        self._asked: dict[_Key, At | _Shared] = {}
        """With the expressions, whose identities are part of the keys."""
        self._bases: dict[int, tuple[ir.Expr, Construction | None]] = {}
        """By the identity of what is called, which is kept."""
        self._made_up: dict[tuple[int, ir.Expr], ir.Expr] = {}
        self._filled: dict[tuple[str, str], list[tuple[bool, At | None]]] = {}
        self._sorted: dict[tuple[int, Selectors], _Puts] = {}
        """By the identity of what is put into a collection, and the key that is meant."""
        self._points_to = self.program.noted(PointsTo)
        self._overwritten = Overwritten(self.program, inside, in_fp32, outside)

    def of(self, at: At) -> Trace:
        """What is known about a value."""
        if id(at.expr) in self._cast:
            return FULL
        told_apart = at.part and _told_apart(at.part)
        if told_apart != at.part:
            whole = at._replace(part=told_apart)
            return join((self.of(whole), self._too_far))
        key = (id(at.expr), at.function, at.stmt.path, at.on, at.part)
        self._asked.setdefault(key, at)
        return self._fixpoint.of(key)

    def cast(self, expr: ir.Expr) -> None:
        """From now on, an edit casts this very expression to fp32."""
        self._cast.add(id(expr))
        self._fixpoint.forget([key for key in self._asked if key[0] == id(expr)])

    def forget(self) -> None:
        """Answer anew."""
        self._fixpoint.forget(list(self._asked))

    def is_under(self, at: At) -> bool:
        """Whether autocast is on where a value is made."""
        site = (at.function, at.stmt.path)
        return (at.on or site in self.inside) and site not in self.in_fp32

    # -- expressions --------------------------------------------------------------------------

    def _equation(self, key: _Key) -> Trace:
        asked = self._asked[key]
        return self._made_by(asked) if isinstance(asked, At) else self._of_shared(asked)

    def _with(self, at: At, expr: ir.Expr, part: Selectors = ()) -> Trace:
        return self.of(At(expr, at.function, at.stmt, at.on, part))

    def _new(self, at: At, expr: ir.Expr) -> ir.Expr:
        """What stands nowhere, but is what an expression means: the same one each time."""
        return self._made_up.setdefault((id(at.expr), expr), expr)

    def _made_by(self, at: At) -> Trace:
        later = [*self._put_on(at)]
        found = self._of_expression(at)
        return join((found, *later)) if later else found

    def _put_on(self, at: At) -> Iterator[Trace]:
        """What is put into a collection that is made there, by whatever name."""
        puts = self._points_to.put_on(at.expr)
        named = map(_root, at.stmt.targets) if puts else ()
        of_one_run = any(self._is_of_one_run(at._replace(expr=one)) for one in named)
        for put, fields in puts:
            way = [f".{key}" if kind == "attribute" else key for kind, key in fields]
            if not all(map(may_be_same, at.part, way)):
                continue
            if put.may_be_under(next(iter(at.part[len(way) :]), ANY)):
                part = at.part[len(way) + (not put.spread) :]
                own = of_one_run or (
                    put.function == at.function and self._is_of_same_run(put, at)
                )
                # Who has called what made it is no more under autocast than that.
                outer = not at.on and self._is_fresh(put)
                for on in [at.on] if own else self.contexts(put.function):
                    if not (on and outer):
                        one = At(put.value, put.function, put.stmt, on, part)
                        yield from (self.of(one), *self._given_to_lambda(one))

    def _is_of_same_run(self, put: Put, at: At) -> bool:
        """Whether a function puts something into what the same run of it has made: by a variable of its own,
        or behind where it is made in any case."""
        holder = _root(put.holder)
        if isinstance(holder, ir.Name):
            return (
                self.program.owner(holder.id, put.function) == put.function
                and not self.program.is_param(put.function, holder.id)
                and not ir.is_top(put.function)
            )
        block = at.stmt.path[:-1]
        return holder in at.stmt.targets and (
            put.stmt.path[: len(block)] == block and at.stmt.path < put.stmt.path
        )

    def _of_expression(self, at: At) -> Trace:
        expr = at.expr
        match expr:
            case ir.Const(value=None):
                return NONE
            case ir.Const(value=value):
                return NUMBER if isinstance(value, (int, float)) else UNKNOWN
            case ir.Name(id=name):
                return self._variable(at, name)
            case ir.Attr():
                return self._attribute(at, expr)
            case ir.Display(items=items, keys=keys):
                if not at.part:
                    return _held(self._with(at, item) for item in items)
                first, rest = at.part[0], at.part[1:]
                if _is_field(first):
                    return UNKNOWN
                if isinstance(first, int) and not keys:
                    inner = (
                        items[first : first + 1] if first >= 0 else items[first:][:1]
                    )
                elif isinstance(first, str) and keys:
                    return join(
                        self._with(at, item, at.part if key is None else rest)
                        for key, item in zip(keys, items, strict=False)
                        if key in (None, ir.Const(first))
                    )
                else:
                    inner = items
                return join(self._with(at, item, rest) for item in inner)
            case ir.Item(value=value, key=key):
                chosen = (
                    key.value
                    if isinstance(key, ir.Const) and isinstance(key.value, (int, str))
                    else ANY
                )
                if isinstance(key, ir.Operation) and key.op == "slice":
                    return self._with(at, value, at.part)
                if isinstance(chosen, str) and self._are_variables(value, at.function):
                    return self._with(at, self._new(at, ir.Name(chosen)), at.part)
                owner = _with_attributes(value)
                if owner is not None and isinstance(chosen, str):
                    return self._with(
                        at, self._new(at, ir.Attr(owner, chosen)), at.part
                    )
                return self._with(at, value, (chosen, *at.part))
            case ir.Comprehension(elements=elements):
                inside = [self._with(at, one, at.part[1:]) for one in elements]
                return join(inside) if at.part else _held(inside)
            case ir.Walrus(value=value):
                return self._with(at, value, at.part)
            case ir.Operation(op=op, operands=operands):
                return self._operation(at, op, operands)
            case ir.Call():
                return self._call(at, expr)
        return UNKNOWN

    def _are_variables(self, expr: ir.Expr, function: str) -> bool:
        return isinstance(expr, ir.Call) and self.program.origin(
            expr.func, function
        ) in ("builtins.locals", "builtins.globals")

    def _operation(self, at: At, op: str, operands: tuple[ir.Expr, ...]) -> Trace:
        if op == "if":
            return join(self._with(at, one, at.part) for one in operands[1:])
        if op in ("and", "or"):
            return join(self._with(at, one, at.part) for one in operands)
        if op in dtype_table.COMPARISONS:
            return INTEGER
        if op == "starred":
            return self._with(at, operands[0], (ANY, *at.part))
        traces = [self._with(at, one, at.part) for one in operands]
        if op == "@":
            return self._product(at, traces)
        if op == "**" and self.is_under(at):
            return Trace(False, mixed(traces).off)
        if op == "+" and any(map(_is_listed, operands)):
            return join(traces)
        if op in (*dtype_table.ARITHMETIC, "-x", "+x", "//", "%", "**"):
            return mixed(traces)
        return _perhaps(traces)

    def _product(self, at: At, operands: list[Trace]) -> Trace:
        # Where one of them is fp32 without AMP, so are the others.
        known = {t.off for t in operands}
        off = next((one for one in ("fp32", "") if one in known), "?")
        return Trace(self.is_under(at) or any(t.half for t in operands), off)

    # -- variables ----------------------------------------------------------------------------

    def _variable(self, at: At, name: str) -> Trace:
        element = _element_of(at)
        if element is not None:
            iterable, part = element
            return self._with(at, iterable, (ANY, *part, *at.part))
        program = self.program
        owner = program.owner(name, at.function)
        if owner is None:
            return _HOOKED if self._is_hooked(at, name) else UNKNOWN
        found: list[Trace] = []
        if owner != at.function:
            found += self._of_definitions(program.definitions(owner, name), at)
            for on in self.contexts(owner):
                found += self._given(at._replace(function=owner, on=on), name)
        else:
            stmts, from_start = self.flow.reaching(
                name, Made(at.expr, at.function, at.stmt)
            )
            for stmt in stmts:
                found += self._of_binding(stmt, name, at)
            found += self._of_definitions(
                [
                    d
                    for d in program.definitions(owner, name)
                    if d.function != at.function
                ],
                at,
            )
            if from_start:
                found += self._given(at, name)
        return join([*found, *self._added(at)]) if found else UNKNOWN

    def _of_binding(self, stmt: ir.Stmt, name: str, at: At) -> Iterator[Trace]:
        if stmt.kind == "augassign" and stmt.value is not None:
            before = at._replace(stmt=stmt)
            both = self.of(before), self._with(before, stmt.value, at.part)
            yield join(both) if _is_listed(stmt.value) else mixed(both)
            return
        for bound, value, index in bindings(stmt):
            if bound == name and value is not None:
                part = at.part if index is None else (index, *at.part)
                yield self.of(At(value, at.function, stmt, at.on, part))
            elif bound == name:
                yield self._of_target(stmt, ir.Name(name), at.function, at.on, at.part)

    def _of_target(
        self, stmt: ir.Stmt, target: ir.Expr, function: str, on: bool, part: Selectors
    ) -> Trace:
        """What a loop hands out, and what is taken out of a value in another way."""
        if stmt.kind == "augassign" and stmt.value and _is_listed(stmt.value):
            return self.of(At(stmt.value, function, stmt, on, part))
        if stmt.kind in ("assign", "annassign", "with", "match"):
            targets = {id(inner) for one in stmt.targets for inner in ir.walk(one)}
            taken = (e for e in stmt.exprs if id(e) not in targets)
            return _held(self.of(At(e, function, stmt, on)) for e in taken)
        if stmt.kind != "for" or stmt.value is None:
            return UNKNOWN
        for whole in stmt.targets:
            place = _place_in(whole, target)
            if place is not None:
                return self.of(At(stmt.value, function, stmt, on, (ANY, *place, *part)))
        return UNKNOWN

    def _of_definitions(
        self,
        definitions: Iterable[Definition],
        at: At,
        classes: frozenset[str] = frozenset(),
    ) -> Iterator[Trace]:
        """What was given its value elsewhere, in each context in which that runs. ``classes``: of which
        an object may be whose attribute is given it."""
        for d in definitions:
            value, part = d.value, at.part if d.index is None else (d.index, *at.part)
            if value is None and d.call is not None and isinstance(at.expr, ir.Attr):
                # ``Out(*values)``
                value, part = d.call, (f".{at.expr.attr}", *at.part)
            for on in self.contexts(d.function):
                stored = At(at.expr, d.function, d.stmt, on)
                if self.is_under(stored) and self._is_overwritten(at, classes):
                    continue
                if value is not None:
                    yield self.of(At(value, d.function, d.stmt, on, part))
                else:
                    yield self._of_target(d.stmt, at.expr, d.function, on, at.part)

    def _is_overwritten(self, at: At, classes: frozenset[str]) -> bool:
        """Whether what a region has stored in an attribute is another value where that is read, outside of
        all."""
        return (
            bool(classes)
            and not at.on
            and (at.function, at.stmt.path) not in self.inside
            and self._overwritten.is_overwritten(at.expr, at.function, at.stmt, classes)
        )

    def contexts(self, function: str) -> list[bool]:
        """Whether autocast is on where a function is called: both where it is from here and there."""
        found = [True] if function in self.called else []
        return [*found, False] if function in self.outside or not found else found

    def _given(self, at: At, name: str) -> Iterator[Trace]:
        """What callers give to a parameter, those of the same context."""
        program = self.program
        params = program.functions[at.function].params
        if all(param.name != name for param in params):
            return
        if at.function in self.hooks and params[0].name != name:
            yield _HOOKED
        for under, given in self._fillings(at.function, name):
            if under == at.on:
                if given is None:
                    yield UNKNOWN
                else:
                    yield self.of(given._replace(part=(*given.part, *at.part)))
        for param in params:
            if param.name == name and param.default is not None:
                scope = program.functions[at.function]
                around = scope.parent or ir.top_of(at.function)
                stmt = program.control(around).statements.get(scope.path)
                if isinstance(param.default, ir.Const):
                    yield NUMBER
                elif stmt is None:
                    yield UNKNOWN
                else:
                    for on in self.contexts(around):
                        yield self.of(At(param.default, around, stmt, on, at.part))

    def _fillings(self, function: str, name: str) -> list[tuple[bool, At | None]]:
        """What each call gives for a parameter, None where that is not in sight, and whether autocast is
        on there."""
        asked = function, name
        if asked in self._filled:
            return self._filled[asked]
        program = self.program
        params = program.functions[function].params
        kind = next((p.kind for p in params if p.name == name and "*" in p.kind), "")
        found: list[tuple[bool, At | None]] = []
        hidden = program.noted(Called).sites_into(function)
        # Who is called by what holds it may have other callers, too.
        found += ((on, None) for on in self.contexts(function) if hidden)
        for site in (*program.call_sites.get(function, ()), *hidden):
            value = program.argument_at(site, name)
            if kind:
                value = _rest_of(site, params, kind)
            for on in self.contexts(site.caller):
                made = At(value or site.call, site.caller, site.stmt, on)
                found.append((self.is_under(made), made if value else None))
                for arg in site.call.args if not value else ():
                    if arg.star == "*" and not kind:
                        # Any of them, for all that is seen here.
                        made = made._replace(expr=arg.value, part=(ANY,))
                        found.append((self.is_under(made), made))
                    elif arg.star == "**" and not kind:
                        made = made._replace(expr=arg.value, part=(name,))
                        found.append((self.is_under(made), made))
        self._filled[asked] = found
        return found

    def _given_to_lambda(self, at: At) -> Iterator[Trace]:
        """What is given to the parameters of a lambda that are in an expression, by the calls of the variable
        that holds it."""
        made = at.stmt.value
        if not isinstance(made, ir.Deferred):
            return
        named = {one.id for one in ir.walk(at.expr) if isinstance(one, ir.Name)}
        for target in at.stmt.targets:
            for place, name in enumerate(made.params if named else ()):
                if name in named and isinstance(target, ir.Name):
                    for function, stmt, call in self.program.calls_named(target.id):
                        given = call.argument(place, name)
                        for on in self.contexts(function):
                            if given is not None:
                                yield self.of(At(given, function, stmt, on, at.part))

    def _is_hooked(self, at: At, name: str) -> bool:
        """Whether a variable is what a module gives to the lambda that is hooked to it."""
        return (at.function, at.stmt.path) in self.hooks and any(
            isinstance(inner, ir.Deferred) and name in inner.params[1:]
            for inner in parts_of(at.stmt)
        )

    def _added(
        self, at: At, anew: bool = False, classes: frozenset[str] = frozenset()
    ) -> Iterator[Trace]:
        """What is put into a collection, under the key that is meant; ``anew``: of one that the same call of
        the function has made. ``classes``: of which an object may be whose attribute it is.
        """
        contents = self.flow.contents
        known = contents.put_into(at.expr, at.function)
        if not known:
            return
        puts = self._puts(known, at.part[:1])
        of_one_run = self._is_of_one_run(at)
        anew = anew or contents.is_made_anew(at.expr, at.function)
        gone = self._is_overwritten(at, classes)
        each = [(put, anew) for put in puts.rest] if anew or gone else []
        if puts.rest and not each:
            # One equation for all names of a collection: there are many of both.
            on = at.on if of_one_run else None
            key = (id(puts.rest), "", (), on, at.part)
            self._asked.setdefault(key, _Shared(puts.rest, on, at.part))
            yield self._fixpoint.of(key)
        name = at.expr.id if isinstance(at.expr, ir.Name) else ""
        owner = self.program.owner(name, at.function)
        # What others have made, where it is this one, was given or returned, and is followed by that way.
        for one in dict.fromkeys((at.function, owner or "")):
            each += ((put, True) for put in puts.fresh.get(one, ()))
        for put, same in each:
            # What an earlier call put into a list of its own is not in this one.
            own = of_one_run or (same and put.function == at.function)
            for value in self._put(put, at.on if own else None, at.part):
                if not (gone and self.is_under(value)):
                    yield self.of(value)

    def _of_shared(self, asked: _Shared) -> Trace:
        found = (self._put(put, asked.on, asked.part) for put in asked.puts)
        return join(self.of(one) for some in found for one in some)

    def _put(self, put: Put, on: bool | None, part: Selectors) -> Iterator[At]:
        """A value that is put into a collection of which a part is meant."""
        part = part if put.spread else part[1:]
        for under in self.contexts(put.function) if on is None else (on,):
            yield At(put.value, put.function, put.stmt, under, part)

    def _puts(self, known: list[Put], under: Selectors) -> _Puts:
        asked = id(known), under
        if asked not in self._sorted:
            found = self._sorted[asked] = _Puts(known, [], {})
            for put in known:
                if put.may_be_under(under[0] if under else ANY):
                    fresh = self._is_fresh(put)
                    to = (
                        found.fresh.setdefault(put.function, [])
                        if fresh
                        else found.rest
                    )
                    to.append(put)
        return self._sorted[asked]

    def _is_of_one_run(self, at: At) -> bool:
        """Whether a collection is made in a run that is under autocast as a whole, or not at all: nothing in
        it comes from a run that is otherwise."""
        owners = self.flow.contents.owners(at.expr, at.function)
        return bool(owners) and not any(
            one in self._bounded or self.program.noted(Called).sites_into(one)
            for one in owners
        )

    @property
    def _bounded(self) -> frozenset[str]:
        """The functions in which a region begins or ends."""
        return frozenset(function for function, _ in (*self.inside, *self.in_fp32))

    def _is_fresh(self, put: Put) -> bool:
        """Whether what something is put into was made in the same call."""
        holders = [t.value for t in put.stmt.targets if isinstance(t, ir.Item)]
        holders += [
            call.func.value
            for call in calls_of(put.stmt)
            if isinstance(call.func, ir.Attr) and call.func.attr in PUTS
        ]
        if len(holders) != 1 or not isinstance(holders[0], ir.Name):
            return False
        known, site = self.program.noted(_known_fresh), (put.function, put.stmt.path)
        if site not in known:
            made = Made(holders[0], put.function, put.stmt)
            known[site] = self._is_made_here(made, set())
        return known[site]

    def _is_made_here(self, at: Made, seen: set[tuple[ir.Expr, ir.Path]]) -> bool:
        """Whether what a variable holds was made in the same call, whatever names it had since."""
        assert isinstance(at.expr, ir.Name)
        if (at.expr, at.stmt.path) in seen:
            return True
        seen.add((at.expr, at.stmt.path))
        made, from_start = self.flow.reaching(at.expr.id, at)
        return (
            not from_start
            and bool(made)
            and all(
                one.kind == "assign"
                and (
                    isinstance(one.value, (ir.Display, ir.Comprehension))
                    or (
                        isinstance(one.value, ir.Call)
                        and self._gives_fresh(one.value, at.function)
                    )
                    or (
                        isinstance(one.value, ir.Name)
                        and all(isinstance(t, ir.Name) for t in one.targets)
                        and self._is_made_here(Made(one.value, at.function, one), seen)
                    )
                )
                for one in made
            )
        )

    def _gives_fresh(self, call: ir.Call, function: str) -> bool:
        """Whether a call makes a collection anew: so does a module, where none hands out what it keeps."""
        origin = self.program.origin(call.func, function)
        callees = self.program.callees(call, function)
        if callees and all(map(self._returns_anew, callees)):
            return True
        return origin in _COLLECTIONS or (
            origin is None
            and self.forward.is_forward(call, function, MODELS)
            and all(
                self.program.functions[callee].name in ("forward", "__call__")
                for callee in callees
            )
            and not self.program.noted(_hand_out_what_they_keep)
            and not any(
                _is_kept(a.value, function, self.program, ()) for a in call.args
            )
        )

    def _returns_anew(self, function: str) -> bool:
        """Whether a function returns nothing but collections that it has written out."""
        facts = self.program.functions[function]
        returned = [
            stmt.value
            for stmt in self.program.statements(function)
            if stmt.kind == "return"
        ]
        return (
            bool(returned)
            and not (facts.decorators or facts.is_generator or facts.is_async)
            and all(self._is_written_out(one, function) for one in returned)
        )

    def _is_written_out(self, expr: ir.Expr | None, function: str) -> bool:
        """Whether it is a collection that is just written out, or a variable of nothing else."""
        if not isinstance(expr, ir.Name):
            return isinstance(expr, (ir.Display, ir.Comprehension))
        program = self.program
        return (
            program.owner(expr.id, function) == function
            and not program.is_param(function, expr.id)
            and all(
                one.index is None
                and one.stmt.kind == "assign"
                and isinstance(one.value, (ir.Display, ir.Comprehension))
                for one in program.definitions(function, expr.id)
            )
        )

    def _attribute(self, at: At, expr: ir.Attr) -> Trace:
        view = dtype_table.view_of(expr)
        if view is not None:
            return self._with(at, view, at.part)
        if expr.attr == "dtype":
            # It stands for the tensors that are made of it.
            return self._with(at, expr.value)
        if expr.attr in ("indices", "shape", "ndim", "device"):
            return NUMBER
        if expr.attr in ("weight", "bias"):
            return FULL
        if expr.attr in _OUTPUTS or (
            expr.attr == "values" and isinstance(expr.value, ir.Call)
        ):
            found = self._with(at, expr.value, at.part)
            return Trace(found.half, "?")
        stored = self._stored_before(at)
        if stored is not None:
            anew = isinstance(stored.expr, (ir.Display, ir.Comprehension))
            return join((self.of(stored), *self._added(at, anew)))
        known: list[Trace] = []
        classes = self._classes_of(expr, at)
        for class_name in classes:
            method = self.program.method(class_name, expr.attr)
            if method is not None and self.program.is_property(method):
                known.append(self._returned(method, self.is_under(at), at.part))
            definitions = self.program.attribute_definitions(class_name, expr.attr)
            given = self.program.noted(Given).to([class_name], expr.attr, [])
            definitions += (d for d in given if d.value is not None)
            known += self._of_definitions(definitions, at, classes)
        if not known and not self.program.instance_classes(expr.value, at.function):
            # head.register_buffer("mean", h)
            given = self.program.noted(Given).to([], expr.attr, [])
            known += self._of_definitions(given, at)
        known += self._of_definitions(self._set_on(expr, at, classes), at)
        known += self._of_bodies(expr, at, classes)
        known += self._added(at, classes=classes)
        if known:
            return join(known)
        return self._with(at, expr.value, (f".{expr.attr}", *at.part))

    def _of_bodies(
        self, expr: ir.Attr, at: At, classes: frozenset[str]
    ) -> Iterator[Trace]:
        """What the bodies of classes give an attribute, where it is one that they share."""
        refs = self.program.resolve(expr.value, at.function)
        named = {ref.name for ref in refs if ref.kind == "class"}
        bases = (self.program.bases(one) for one in sorted({*named, *classes}))
        for base in dict.fromkeys(b for some in bases for b in some):
            facts = self.program.classes[base]
            for stmt in facts.body:
                if ir.Name(expr.attr) in stmt.targets and stmt.value is not None:
                    yield self.of(At(stmt.value, facts.parent, stmt, False, at.part))

    def _classes_of(self, expr: ir.Attr, at: At) -> frozenset[str]:
        """The classes of which an object may be that an attribute is asked of: of one out of a list, too."""
        program, held = self.program, expr.value
        found = program.instance_classes(held, at.function)
        if found or not isinstance(held, (ir.Item, ir.Name)):
            return found
        if expr.attr not in program.attribute_targets or program.resolve(
            held, at.function
        ):
            return found
        known = program.noted(PointsTo).of(held, at.function, at.stmt)
        return frozenset(
            one.name
            for one in known
            if one.kind in ("value", "instance") and one.name in program.classes
        )

    def _set_on(
        self, expr: ir.Attr, at: At, classes: frozenset[str]
    ) -> Iterator[Definition]:
        """What a class, a function or a module of torch is given: ``step.last = h``. A hook gives it to any
        of the latter."""
        refs = self.program.resolve(expr.value, at.function)
        refs |= {Ref("class", name) for name in classes}
        for holder, made in self.program.attribute_targets.get(expr.attr, ()):
            to = self.program.resolve(holder, made.function)
            if not to:
                within = At(holder, made.function, made.stmt, at.on)
                inside = self._classes_of(ir.Attr(holder, expr.attr), within)
                to = frozenset(Ref("class", name) for name in inside)
            if any(ref.kind != "instance" for ref in refs & to) or (
                made.function in self.hooks
                and not to
                and all(ref.kind == "made" for ref in refs)
            ):
                yield made

    def _stored_before(self, at: At) -> At | None:
        """What the same block, or one around it, has just put into an attribute."""
        scope = self.program.functions[at.function]
        control = self.program.control(at.function)
        path = at.stmt.path
        while len(path) > len(scope.path):
            for stmt in reversed(control.block(path)[: path[-1][1]]):
                for target, value, index in unpacked(stmt):
                    if target == at.expr and value is not None:
                        part = at.part if index is None else (index, *at.part)
                        return At(value, at.function, stmt, at.on, part)
                if any(at.expr in one.targets for one in ir.statements((stmt,))):
                    return None
            path = path[:-1]
            if any(s.path == path and s.kind != "with" for s in scope.body):
                return None
        return None

    # -- calls --------------------------------------------------------------------------------

    def _call(self, at: At, call: ir.Call) -> Trace:
        func = call.func
        match func:
            case ir.Call(
                func=ir.Name(id="getattr"),
                args=(ir.Arg(value=value), ir.Arg(value=ir.Const(value=str(word)))),
            ):
                # getattr(h, "clone")()
                func = ir.Attr(value, word)
                return self._call(at, replace(call, func=func))
            case ir.Attr(value=value, attr="__call__"):
                return self._call(at, replace(call, func=value))
        inner = at_once(self.program, call, at.function)
        if inner is not None:
            return self._call(at, inner)
        base = self._base_called(func, at.function)
        if base is not None:
            given = self._with(at, call.args[-1].value) if call.args else UNKNOWN
            return self._module(base, given, self.is_under(at), at.part)
        fields = self._fields(func, at.function)
        if fields and at.part:
            return self._of_record(at, call, fields)
        origin = self.program.origin(func, at.function)
        if origin is not None:
            return self._function(at, call, origin)
        refs = self.program.resolve(func, at.function)
        if refs and all(ref.kind == "function" for ref in refs):
            return join(
                self._returned(ref.name, self.is_under(at), at.part) for ref in refs
            )
        if refs and all(
            ref.kind == "external" and dtype_table.FLOAT.fullmatch(ref.name)
            for ref in refs
        ):
            # Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
            return FULL
        modules = self.modules.of(func, at.function)
        if modules is not None:
            given = self._with(at, call.args[0].value) if call.args else UNKNOWN
            under = self.is_under(at)
            return join(self._module(m, given, under, at.part) for m in modules)
        held = self._held_in(at, call)
        if refs and all(ref.kind == "instance" for ref in refs):
            callees = self.program.callees(call, at.function)
            held += (self._returned(c, self.is_under(at), at.part) for c in callees)
        for ref in refs if at.part and not _is_field(at.part[0]) else ():
            # What is taken out of an object, and what a loop over it gives.
            taken = self.program.method(ref.name, "__getitem__")
            drawn = self.program.method(ref.name, "__iter__")
            if ref.kind == "class" and taken is not None:
                held.append(self._returned(taken, self.is_under(at), at.part[1:]))
            if ref.kind == "class" and drawn is not None:
                held.append(self._returned(drawn, self.is_under(at), at.part))
        if held:
            return join(held)
        if at.part and _is_field(at.part[0]) and ir.method_of(call) != "_replace":
            return self._kept_by(at, refs)
        if self.is_model(func, at.function):
            return Trace(self.is_under(at) or self._any_half(at, call), "?")
        if refs or not isinstance(func, ir.Attr):
            unknown = not refs and self._applied(at, func)
            return Trace(unknown or self._any_half(at, call), "?")
        return self._method(at, call, func)

    def _base_called(self, func: ir.Expr, function: str) -> Construction | None:
        """The layer of torch whose forward is called by a class that is derived from it:
        ``super().forward(x)``, ``nn.Linear.forward(self, x)``."""
        own = self.program.self_class(function)
        match func:
            case ir.Attr(value=ir.Call(func=ir.Name(id="super")), attr="forward"):
                if self.program.resolve(func, function):
                    return None
            case ir.Attr(value=value, attr="forward") if (
                self.program.origin(value, function) or ""
            ).startswith("torch.nn."):
                pass
            case _:
                return None
        at = id(func)
        if own is not None and at not in self._bases:
            made = Construction(ir.Call(func, ()), function)
            self._bases[at] = func, self.modules.base(own[1], made)
        return self._bases[at][1] if at in self._bases else None

    def _kept_by(self, at: At, refs: Collection[Ref]) -> Trace:
        """What an object that a call makes keeps as an attribute."""
        name = str(at.part[0])[1:]
        asked = at._replace(
            expr=self._new(at, ir.Attr(at.expr, name)), part=at.part[1:]
        )
        known = [
            one
            for ref in refs
            if ref.kind == "class"
            for one in self._of_definitions(
                self.program.attribute_definitions(ref.name, name), asked
            )
        ]
        return join(known) if known else UNKNOWN

    def _held_in(self, at: At, call: ir.Call) -> list[Trace]:
        """What functions give that are called by what holds them: ``make(h)()``, ``step = lambda: h``."""
        found = []
        called = self.program.noted(Called)
        for expr, function, stmt in called.held(call.func, at.function, at.stmt):
            if isinstance(expr, ir.Deferred) and stmt is not None:
                body = At(expr.body, function, stmt, self.is_under(at), at.part)
                given = self.of(body)
                if given == UNKNOWN:  # such as ``lambda h: h.detach()``
                    given = Trace(self._any_half(at, call), "?")
                found.append(given)
            for ref in self.program.resolve(expr, function):
                if ref.kind == "function":
                    found.append(self._returned(ref.name, self.is_under(at), at.part))
        return found

    def _fields(self, func: ir.Expr, function: str) -> tuple[str, ...]:
        """The fields of a dataclass or a named tuple."""
        program = self.program
        for ref in program.resolve(func, function):
            if ref.kind == "class":
                if program.external_bases(ref.name) & NAMED_TUPLES:
                    return program.annotated(ref.name)
                return program.fields(ref.name)
        return ()

    def _of_record(self, at: At, call: ir.Call, fields: tuple[str, ...]) -> Trace:
        first, rest = at.part[0], at.part[1:]
        if isinstance(first, str) and first[1:] in fields:
            first = fields.index(first[1:])
        if not isinstance(first, int) or first >= len(fields):
            return UNKNOWN
        if call.args and call.args[0].star == "*":
            return self._with(at, call.args[0].value, (first, *rest))
        value = call.argument(first, fields[first])
        known = [] if value is None else [self._with(at, value, rest)]
        field = ir.Attr(call, fields[first])
        classes = self.program.instance_classes(call, at.function)
        given = self.program.noted(Given).to(classes, fields[first], [])
        for definition in (*self.program.definitions_of(field, at.function), *given):
            if definition.call is None:
                known += self._of_definitions([definition], at._replace(part=rest))
        return join(known) if known else UNKNOWN

    def is_model(self, func: ir.Expr, function: str) -> bool:
        """Whether what is called must be taken for a module that is no loss, or for its ``forward``."""
        match func:
            case ir.Attr(value=module, attr="forward"):
                func = module
        if isinstance(func, ir.Item) and self._holds_modules(func.value, function):
            return True
        if isinstance(func, ir.Name) and any(
            self._holds_modules(inner, made.function)
            for made in self._rounds_of(func, function)
            if made.stmt.value is not None
            for inner in ir.walk(made.stmt.value)
            if isinstance(inner, (ir.Name, ir.Attr))
        ):
            return True
        return self.forward.is_module(func, function) and self.forward.is_forward(
            ir.Call(func, ()), function, MODELS
        )

    def _holds_modules(self, expr: ir.Expr, function: str) -> bool:
        return any(
            (self.program.origin(made.call.func, made.function) or "").endswith(
                (".ModuleList", ".ModuleDict", ".Sequential")
            )
            for made in self.modules.of(expr, function) or ()
        )

    def _rounds_of(self, name: ir.Name, function: str) -> list[Definition]:
        """The loops that go through something by a variable."""
        found = self.program.defined(name.id, function)
        return [made for made in found if made.stmt.kind == "for"]

    def _applied(self, at: At, func: ir.Expr) -> bool:
        """Whether what is called may give half values of its own: a layer, for all that is known."""
        if isinstance(func, ir.Deferred):
            return self._with(at, func.body).half
        known = self.program.origin(func, at.function) is not None
        return self.is_under(at) and not known

    def _any_half(self, at: At, call: ir.Call) -> bool:
        """Whether a call is given half values, what a ``partial`` binds beforehand included."""
        func = call.func
        return any(self._with(at, arg.value).half for arg in call.args) or (
            isinstance(func, ir.Call)
            and self.program.origin(func.func, at.function) == "functools.partial"
            and self._any_half(at, func)
        )

    def _returned(self, function: str, on: bool, part: Selectors) -> Trace:
        if self.program.functions[function].is_generator:
            return join(
                self.of(At(inner.value, function, stmt, on, part[1:]))
                for stmt, inner in each_part(self.program.functions[function].body)
                if isinstance(inner, ir.Suspend) and inner.value is not None
            )
        return join(
            self.of(At(stmt.value, one, stmt, on, part))
            for one in (function, *self.program.put_around.get(function, ()))
            for stmt in self.program.statements(one)
            if stmt.kind == "return" and stmt.value is not None
        )

    def _method(self, at: At, call: ir.Call, func: ir.Attr) -> Trace:
        name, value = func.attr, func.value
        if name in ("float", "double"):
            wide = FULL if name == "float" else DATA
            return wide._replace(scalar=self._with(at, value).scalar)
        if name in _CASTS:
            return INTEGER
        if name in ("item", "size", "numel", "dim", "tolist"):
            return NUMBER
        if name in _TAKES:
            chosen: int | str | None = ANY
            if name == "get" and call.args and isinstance(call.args[0].value, ir.Const):
                key = call.args[0].value.value
                chosen = key if isinstance(key, (int, str)) else ANY
            return self._with(at, value, (chosen, *at.part))
        if name == "_replace":
            given = [a.value for a in call.args if at.part[:1] in ((f".{a.name}",), ())]
            return join(self._with(at, v, at.part[1:]) for v in given or [value])
        if name == "_asdict":
            part = tuple(f".{p}" if isinstance(p, str) else p for p in at.part[:1])
            return self._with(at, value, (*part, *at.part[1:]))
        if name == "values" and at.part:
            return self._with(at, value, (ANY, *at.part[1:]))
        if name in ("values", "copy"):
            return self._with(at, value, at.part)
        if name == "items" and len(at.part) > 1:
            return self._with(at, value, (ANY, *at.part[2:])) if at.part[1] else NUMBER
        if name in ("to", "type", "type_as", "new_tensor"):
            return self._moved(at, call, value)
        for arg in call.args:
            if arg.name == "dtype":
                return self._of_dtype(at, arg.value)
        if name in _NEW:
            found = self._with(at, value)
            return Trace(found.half, found.used.off)
        if name.endswith("_") and not at.part:
            return self._with(at, value).used
        if name in _PLACED and at.part and at.part[0] in (1, -1):
            return INTEGER
        operands = [value, *(a.value for a in call.args)]
        return self._computed(at, name, operands, call)

    def _moved(self, at: At, call: ir.Call, value: ir.Expr) -> Trace:
        """``x.to(device)``, ``x.to(torch.float32)``."""
        moved = self._with(at, value, at.part).used
        for arg in call.args:
            if isinstance(arg.value, ir.Const) or arg.name in (
                "device",
                "non_blocking",
            ):
                continue
            if kind_of(self.program, arg.value, at.function) == DEVICE:
                continue
            like = self._of_dtype(at, arg.value)
            known = like if like != UNKNOWN else Trace(moved.half, "?")
            return known._replace(scalar=moved.scalar)
        return moved

    def _of_dtype(self, at: At, expr: ir.Expr) -> Trace:
        """What is made to be of a dtype, or to be like a tensor."""
        origin = self.program.origin(expr, at.function)
        if origin is None:
            return self._with(at, expr).used
        if dtype_table.FLOAT.fullmatch(origin):
            return FULL
        return INTEGER if dtype_table.INTEGERS.fullmatch(origin) else DATA

    def _computed(
        self, at: At, name: str, operands: list[ir.Expr], call: ir.Call
    ) -> Trace:
        """What a function or method of torch gives."""
        if name in operations("product"):
            return self._product(at, [self._with(at, one) for one in operands])
        if name in operations("joined"):
            items = operands[0]
            if isinstance(items, ir.Display):
                return mixed(self._with(at, one) for one in items.items)
            return self._with(at, items, (ANY,))
        if name == "where" or name in operations("promoted"):
            given = operands[1:] if name == "where" and len(operands) > 2 else operands
            return mixed(self._with(at, one) for one in given)
        full = name in operations("fp32", "raises") and self.is_under(at)
        scalar = "_loss" in name or "entropy" in name
        if name in _REDUCTIONS:
            named = {arg.name for arg in call.args}
            scalar = named.isdisjoint(("dim", "axis")) and (
                len(operands) <= 1 + (name == "norm")
            )
        if name in operations("first", "chosen"):
            found = self._with(at, operands[0])
            scalar = scalar or found.scalar
            return Trace(found.half and not full, found.used.off, scalar)
        if name in operations("fp32", "raises"):
            found = FULL if full else mixed([self._with(at, one) for one in operands])
            return found._replace(scalar=scalar or found.scalar)
        return _perhaps(self._with(at, one) for one in operands)

    def _function(self, at: At, call: ir.Call, origin: str) -> Trace:
        values = [arg.value for arg in call.args if arg.name is None]
        if origin in NAMED_PARTS and any(arg.name for arg in call.args):
            return self._of_named_parts(at, call)
        if not values:
            empty = origin in _COLLECTIONS and bool(at.part)
            return _NOTHING if empty else UNKNOWN
        name = origin.rsplit(".", 1)[-1]
        if origin in _LOADS:
            return Trace(self._has_saved(at, origin), "?")
        if origin == "collections.defaultdict" and at.part:
            if self.program.origin(values[0], at.function) in _COLLECTIONS:
                return _NOTHING
        if origin == "builtins.getattr":
            match values:
                case [of, ir.Const(value=str(word)), *default]:
                    asked = [self._new(at, ir.Attr(of, word)), *default]
                    return join(self._with(at, one, at.part) for one in asked)
        if origin in _SAME_ELEMENTS:
            part = at.part or (ANY,)
            if origin not in _IN_ORDER:
                part = (ANY, *part[1:])
            found = self._with(at, values[0], part)
            return found if at.part else _held([found])
        if origin == "builtins.dict.fromkeys" and len(values) > 1:
            return self._with(at, values[1], at.part[1:])
        if origin in _COPIES:
            return self._with(at, values[0], at.part)
        if origin in RUNS_FIRST:
            run = ir.Call(values[0], call.args[1:], call.line)
            return self._with(at, self._new(at, run), at.part)
        if origin == "builtins.dict":
            pairs = self._with(at, values[0], (ANY, 1, *at.part[1:]))
            return join((pairs, self._with(at, values[0], at.part)))
        if origin == "builtins.sum":
            return self._with(at, values[0], (ANY, *at.part)).used
        if origin in ("builtins.map", "builtins.filter"):
            return Trace(self._applied(at, values[0]) or self._any_half(at, call), "?")
        if origin in ("builtins.next", "random.choice", "heapq.heappop"):
            return self._with(at, values[0], (ANY, *at.part))
        if origin == "builtins.enumerate" and len(at.part) > 1:
            return (
                self._with(at, values[0], (ANY, *at.part[2:])) if at.part[1] else NUMBER
            )
        if origin == "builtins.zip" and len(at.part) > 1:
            place = at.part[1]
            if call.args[0].star:
                # The rows of `zip(*rows)` change places with what is in them.
                inner, rest = at.part[0], at.part[2:]
                return self._with(at, values[0], (ANY, inner, *rest))
            if isinstance(place, int) and place < len(values):
                return self._with(at, values[place], (ANY, *at.part[2:]))
            return UNKNOWN
        if origin in ("builtins.float", "builtins.int", "builtins.len"):
            return NUMBER
        if origin in dtype_table.OF_NUMBERS:
            return join(self._with(at, value) for value in values)
        if origin == "torch.autograd.Variable":
            return self._with(at, values[0], at.part)
        if at.part and _is_field(at.part[0]):
            return Trace(self._any_half(at, call), "?")
        if not origin.startswith("torch."):
            known = origin.split(".")[0] in _NO_TENSORS and origin not in _HANDS_ON
            return UNKNOWN if known else Trace(self._any_half(at, call), "?")
        for arg in call.args:
            if arg.name == "dtype":
                return self._of_dtype(at, arg.value)
        if dtype_table.FP32_ONLY.fullmatch(origin):
            return FULL
        if name in operations("made") or name == "FloatTensor":
            return FULL._replace(scalar=_is_empty(values[0]))
        if name in (*operations("counted"), "IntTensor", "LongTensor"):
            number = any(
                isinstance(one, ir.Const) and isinstance(one.value, float)
                for one in values
            )
            return FULL if number else INTEGER
        if name in operations("made", "counted", "given"):
            listed = isinstance(values[0], ir.Display) and bool(values[0].items)
            if name in ("tensor", "as_tensor") and self._with(at, values[0]).half:
                return Trace(True, "?", not listed)
            return DATA._replace(scalar=name != "from_numpy" and not listed)
        if name in _PLACED and at.part and at.part[0] in (1, -1):
            return INTEGER
        if name in _CASTS:
            return INTEGER
        return self._computed(at, name, values, call)

    def _of_named_parts(self, at: At, call: ir.Call) -> Trace:
        """``dict(loss=loss, out=out)``, and a namespace made like this."""
        wanted, rest = at.part[:1], at.part[1:]
        found = [
            self._with(at, arg.value, rest)
            for arg in call.args
            if wanted in ((), (ANY,), (arg.name,), (f".{arg.name}",))
        ]
        found += [
            self._with(at, arg.value, at.part)
            for arg in call.args
            if wanted and arg.name is None
        ]
        return join(found) if wanted else _held(found)

    def _has_saved(self, at: At, load: str) -> bool:
        """Whether half values may be in that part of what the program loads: it saves such."""
        home, saves = load.split(".")[0], _LOADS[load]
        return any(
            self.of(At(call.args[0].value, function, stmt, on, at.part)).half
            for function, stmt, call in self.program.calls_named(saves)
            if call.args
            and self.program.origin(call.func, function) == f"{home}.{saves}"
            for on in self.contexts(function)
        )

    # -- modules ------------------------------------------------------------------------------

    def _module(
        self, made: Construction, given: Trace, under: bool, part: Selectors
    ) -> Trace:
        made = self.modules.inherited(made)
        origin = self.program.origin(made.call.func, made.function)
        if origin is None:
            return self._of_forward(made, under, part)
        if dtype_table.FP32_LAYERS.fullmatch(origin):
            scalar = origin.endswith("Loss")
            return (FULL if under else given)._replace(scalar=scalar)
        layers = self.modules.layers(made)
        if layers is None and origin.endswith(".Sequential"):
            # What it is made of is not in sight.
            return Trace(under or given.half, "?")
        if layers is None:
            found = self._layer(origin, given, under)
            if dtype_table.RECURRENT.fullmatch(origin) and part[:1] != (0,):
                return Trace(found.half, "?")
            return found
        for expr, function in layers:
            inner = self.modules.of(expr, function)
            given = (
                Trace(under or given.half, "?")
                if inner is None
                else join(self._module(one, given, under, ()) for one in inner)
            )
        return given

    def _layer(self, origin: str, given: Trace, under: bool) -> Trace:
        if dtype_table.EMBEDDING.fullmatch(origin):
            return FULL
        if dtype_table.NORMS.fullmatch(origin):
            # Their parameters may be fp32 where what they are given is not.
            return Trace(given.half, "fp32")
        if dtype_table.PARAMETRIC.fullmatch(
            origin
        ) or dtype_table.IMAGE_MODELS.fullmatch(origin):
            return Trace(under or given.half, "fp32")
        if dtype_table.KEEPING.fullmatch(origin):
            return given
        return Trace(given.half, "?")

    def _of_forward(self, made: Construction, under: bool, part: Selectors) -> Trace:
        refs = self.program.resolve(made.call.func, made.function)
        forwards = [self.program.method(ref.name, "forward") for ref in refs]
        return join(
            UNKNOWN if one is None else self._returned(one, under, part)
            for one in forwards
        )


def _hand_out_what_they_keep(program: Program) -> bool:
    """Whether a module of the program may return what is its own, the same in each call."""
    return any(
        function.class_name is not None
        and function.name in ("forward", "__call__")
        and any(
            stmt.kind == "return"
            and stmt.value is not None
            and _is_kept(stmt.value, qualname, program, ())
            for stmt in program.statements(qualname)
        )
        for qualname, function in program.functions.items()
    )


def _is_kept(
    value: ir.Expr, function: str, program: Program, names: tuple[str, ...]
) -> bool:
    """Whether an expression may be more than a call makes; ``names``: the variables that it is made of."""
    match value:
        case ir.Attr():
            return dtype_table.view_of(value) is None
        case ir.Name(id=name):
            return name not in names and (
                program.owner(name, function) != function
                or any(
                    d.stmt.kind not in ("assign", "annassign")
                    or d.value is None
                    or _is_kept(d.value, function, program, (*names, name))
                    for d in program.definitions(function, name)
                    if d.stmt.kind != "augassign"
                )
            )
        case ir.Item(value=held, key=ir.Const()):
            return _is_kept(held, function, program, names)
        case ir.Display(items=items) | ir.Operation(op="if", operands=(_, *items)):
            return any(_is_kept(one, function, program, names) for one in items)
    return False


def _is_listed(expr: ir.Expr) -> bool:
    return isinstance(expr, (ir.Display, ir.Comprehension))


def _is_empty(size: ir.Expr) -> bool:
    """Whether a size says that there are no dimensions."""
    return isinstance(size, ir.Display) and not size.items


def _known_fresh(program: Program) -> dict[tuple[str, ir.Path], bool]:
    """By what puts something somewhere: whether that was made in the same call, as far as it was asked."""
    return {}


def _perhaps(operands: Iterable[Trace]) -> Trace:
    """What holds of a result of which nothing is known: a half operand may make it half."""
    return Trace(any(one.half for one in operands), "?")


def _held(elements: Iterable[Trace]) -> Trace:
    """What holds of a collection as a whole."""
    return Trace(any(one.half for one in elements), "?")


def _rest_of(site: CallSite, params: tuple[ir.Param, ...], kind: str) -> ir.Expr | None:
    """What a call gives to ``*args`` or ``**kwargs``, as it would be written out; None where more is spread
    there."""
    if kind == "**":
        known = {param.name for param in params}
        rest = [a for a in site.call.args if a.star == "**" or a.name not in known]
        rest = [arg for arg in rest if arg.star == "**" or arg.name]
        keys = tuple(None if arg.star else ir.Const(arg.name) for arg in rest)
        return ir.Display("dict", tuple(arg.value for arg in rest), keys)
    named = sum(param.kind == "positional" for param in params) - site.bound_self
    plain = [arg for arg in site.call.args if arg.name is None and arg.star != "**"]
    if any(arg.star for arg in plain):
        return plain[0].value if len(plain) == 1 and not named else None
    return ir.Display("tuple", tuple(arg.value for arg in plain[named:]))


def _with_attributes(expr: ir.Expr) -> ir.Expr | None:
    """The object whose attributes a dict has: ``x`` of ``vars(x)`` and ``x.__dict__``."""
    match expr:
        case ir.Attr(value=value, attr="__dict__"):
            return value
        case ir.Call(func=ir.Name(id="vars"), args=(ir.Arg(value=value),)):
            return value
    return None


def _told_apart(part: Selectors) -> Selectors:
    """What of a part is not too deep in containers to be told from what else is there."""
    left = _DEEPEST
    for place, one in enumerate(part):
        left -= 2 if isinstance(one, str) else 1
        if left < 0:
            return part[:place]
    return part


def _root(expr: ir.Expr) -> ir.Expr:
    """What the collections are in of which an element is meant."""
    while isinstance(expr, ir.Item):
        expr = expr.value
    return expr


def _is_field(part: int | str | None) -> bool:
    return isinstance(part, str) and part.startswith(".")


def _element_of(at: At) -> tuple[ir.Expr, Selectors] | None:
    """Of a variable of a comprehension: what it goes over, and which part of each element it is."""
    for expr in at.stmt.exprs:
        for inner in ir.walk(expr):
            if not isinstance(inner, ir.Comprehension):
                continue
            if all(one is not at.expr for e in inner.elements for one in ir.walk(e)):
                continue
            for target, iterable in zip(inner.targets, inner.iterables, strict=False):
                place = _place_in(target, at.expr)
                if place is not None:
                    return iterable, place
    return None


def _place_in(target: ir.Expr, wanted: ir.Expr) -> Selectors | None:
    """Where in a target a variable stands."""
    if target == wanted:
        return ()
    if isinstance(target, ir.Display):
        for position, item in enumerate(target.items):
            place = _place_in(item, wanted)
            if place is not None:
                return (position, *place)
    return None
