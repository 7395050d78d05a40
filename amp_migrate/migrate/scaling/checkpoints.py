"""Checkpoints: where the optimizer's state is saved or loaded, the scaler's goes along."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, count

from amp_migrate.analysis.objects.optimizers import Optimizers, Slot
from amp_migrate.analysis.objects.points_to import COPIES, PointsTo
from amp_migrate.analysis.objects.read_only_uses import saved
from amp_migrate.analysis.objects.unfollowed import Unfollowed
from amp_migrate.analysis.paths.association import Scaler
from amp_migrate.analysis.paths.escapes import Use
from amp_migrate.analysis.paths.loops import Note, refused
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import AddEntry, Edit, Hoist, Insert, Placed
from amp_migrate.migrate.scaling.scaler_threading import OPTIMIZER_WORD, Travel
from amp_migrate.migrate.scaling.states import States
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program

_WORDS = ("scaler", "grad_scaler", "amp_scaler", "loss_scaler")
_LOOKS = frozenset("len set list tuple sorted next iter zip enumerate".split())
_READS = ("torch.load", "pickle.load")
_SAME = COPIES | {f"builtins.{name}" for name in "dict list set sorted tuple".split()}
_DEEPEST = 4
_MOST_STATES = 200
_OWN_STATES = ("state_dict", "load_state_dict", "__setstate__")


def plan_checkpoints(
    program: Program,
    optimizers: Optimizers,
    travel: Travel,
    slots: frozenset[Slot],
    states: States,
) -> tuple[list[Placed], list[Note]]:
    """The edits that save and load the scaler's state with the optimizer's: beside it in the same dict,
    or else, wherever it goes, as an entry of it. The notes tell where it is not.

    Raises `Blocked` where neither can be.
    """
    calls: list[_StateCall] = []
    notes: list[Note] = []
    for one in chain(
        _state_calls(program, optimizers, travel, slots, states),
        _object_calls(program, optimizers, slots),
    ):
        function, stmt, call, held, slot = one
        lacking = travel.lacking(slot, held, function)
        if lacking is None:
            calls.append(one)
            continue
        name, done = program.functions[function].name, (
            "loaded" if _loads(call) else "saved"
        )
        message = (
            f"the scaler's state is not {done} here: {name}() runs on {lacking}, too, which "
            "gets no scaler"
        )
        notes.append(Note(stmt.line, message))
    edits = _beside(program, travel, states, calls)
    itself = next((one for one in calls if not isinstance(one[2], ir.Call)), None)
    if edits is None and itself is not None:
        message = (
            "the optimizer itself is saved, or loaded, and the scaler cannot join it"
        )
        raise refused("AMP040", message, itself[1].line)
    if edits is None:
        edits = _Inside(program, optimizers, travel, states).edits(calls)
    return edits, notes


def _beside(
    program: Program, travel: Travel, states: States, calls: list[_StateCall]
) -> list[Placed] | None:
    """The edits for entries beside the optimizer's; None where something else than a dict holds that, or all
    that the dict has is looked at."""
    places: list[_StateCall] = []
    for function, stmt, call, held, slot in calls:
        if _loads(call) or not isinstance(call, ir.Call):
            places.append((function, stmt, call, held, slot))
            continue
        for one in states.leaving(function, stmt, call):
            if not one.sure:
                return None
            places.append((function, one.stmt, one.use[-1], held, slot))
    looked = [(function, stmt, state) for function, stmt, state, *_ in places]
    # Also `parts[key].load_state_dict(checkpoint[key])`, of which it is not known what it loads.
    looked += (
        (function, stmt, call)
        for function, stmt, call in program.calls_named("load_state_dict")
        if not program.callees(call, function)
    )
    if any(_is_looked_through(program, *one) for one in looked):
        return None
    if places and _Counted(program, places).is_any():
        return None
    keys = _Keys(program, travel, places)
    edits: dict[Placed, None] = {}
    for function, stmt, state, held, slot in places:
        switch = travel.of_held(slot, held, function)
        edit: Edit | None
        if _loads(state):
            edit = _load(stmt, state, switch, keys.of(slot))
        else:
            edit = _save(program, function, stmt, state, switch, keys.of(slot))
        if edit is None:
            return None
        if not any(_is_same(edit, function, *other) for other in edits):
            edits[ir.file_of(function), edit] = None
    return list(edits)


def _is_looked_through(
    program: Program, function: str, stmt: ir.Stmt, state: ir.Expr
) -> bool:
    """Whether a function asks the dict for all that it has, or how much: ``assert len(checkpoint) == 2``,
    ``for key in checkpoint``."""
    given: ir.Expr | None = state
    if isinstance(state, ir.Call):
        given = state.argument(0, "state_dict")
    dicts = [
        one.value if isinstance(one, ir.Item) else one
        for one in (given, *stmt.targets)
        if isinstance(one, ir.Item) or (one is not None and one is not given)
    ]
    for other in program.statements(function) if dicts else ():
        for inner in parts_of(other):
            match inner:
                case ir.Comprehension(iterables=asked):
                    pass
                case ir.Operation(op="==" | "!=", operands=asked):
                    pass
                case ir.Call(func=ir.Name(id=name), args=args) if name in _LOOKS:
                    asked = tuple(arg.value for arg in args)
                case _:
                    asked = ()
            if not {*asked, *map(_whole, asked)}.isdisjoint(dicts):
                return True
        if other.kind == "for" and other.value is not None:
            if other.value in dicts or _whole(other.value) in dicts:
                return True
    return False


class _Counted:
    """Whether a program asks how much a dict has that is read or written, under whatever name."""

    def __init__(self, program: Program, places: list[_StateCall]) -> None:
        self.program = program
        self.points_to = program.noted(PointsTo)
        self._kept: set[int] = set()
        """The dicts, by what makes them."""
        self._read = False
        for function, stmt, state, *_ in places:
            given: ir.Expr | None = state
            if isinstance(state, ir.Call) and _loads(state):
                given = state.argument(0, "state_dict")
            self._read |= _loads(state)
            self._kept.update(
                id(inner)
                for inner in parts_of(stmt)
                if any(one is state for one in ir.children(inner))
            )
            for item in (given, *stmt.targets):
                if isinstance(item, ir.Item):
                    objects = self.points_to.of(item.value, function, stmt)
                    self._kept.update(id(one.expr) for one in objects)

    def is_any(self) -> bool:
        """``assert len(state) == 2``, ``weights, moments = state.values()``"""
        for function, stmt, call in self.program.calls_named("len"):
            if call.args and self._is_kept(call.args[0].value, function, stmt):
                return True
        names = ("values", "items", "keys", *(n.rpartition(".")[2] for n in _READS))
        return any(
            stmt.value is call
            and isinstance(stmt.targets[0], ir.Display)
            and self._is_kept(_whole(call) or call, function, stmt)
            for name in dict.fromkeys(names)
            for function, stmt, call in self.program.calls_named(name)
            if stmt.kind == "assign"
        )

    def _is_kept(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None, depth: int = 0
    ) -> bool:
        if depth > _DEEPEST:
            return False
        if isinstance(expr, ir.Name):
            for at, other, call in self.program.calls_named("update"):
                if at == function and call.func == ir.Attr(expr, "update"):
                    if any(
                        self._is_kept(a.value, at, other, depth + 1) for a in call.args
                    ):
                        return True
        found = [(expr, function, stmt)]
        if isinstance(expr, (ir.Name, ir.Attr, ir.Call)):
            objects = self.points_to.of(expr, function, stmt, most=_MOST_STATES)
            found += [(o.expr, o.function, o.stmt) for o in objects if not o.fields]
        return any(self._is_made_of_it(*one, depth) for one in found)

    def _is_made_of_it(
        self, made: ir.Expr, function: str, stmt: ir.Stmt | None, depth: int
    ) -> bool:
        if id(made) in self._kept:
            return True
        parts: Iterable[ir.Expr | None] = ()
        match made:
            case ir.Display(kind="dict", items=items, keys=keys):
                parts = (i for k, i in zip(keys, items, strict=True) if k is None)
            case ir.Operation(op="|", operands=parts):
                pass
            case ir.Call(func=func, args=args):
                origin = self.program.origin(func, function)
                if origin in _READS and not self._read:
                    return True
                if origin in _SAME and args:
                    parts = (args[0].value,)
                elif isinstance(func, ir.Attr) and func.attr == "copy":
                    parts = (func.value,)
                else:
                    parts = (_whole(made),)
        return any(
            part is not None and self._is_kept(part, function, stmt, depth + 1)
            for part in parts
        )


def _whole(expr: ir.Expr) -> ir.Expr | None:
    """``state`` of ``state.items()``"""
    match expr:
        case ir.Call(func=ir.Attr(value=value, attr="items" | "keys" | "values")):
            return value
    return None


def unsaved(
    unfollowed: Unfollowed, states: States, each: Collection[ir.Call]
) -> list[Note]:
    """Where an optimizer's state may be saved or loaded, and its scaler's is not; ``each``: the calls
    that do so with all that a collection holds.

    Raises `Blocked` where what was saved before could not be loaded any more.
    """
    for line, name in unfollowed.taken_otherwise():
        message = (
            f"the optimizer's {name} is kept or saved in a form that the scaler's state "
            "cannot join"
        )
        raise refused("AMP040", message, line)
    notes: dict[Note, None] = {}
    for method, done in (("state_dict", "saved"), ("load_state_dict", "loaded")):
        for function, stmt, call in unfollowed.calls(method):
            if states.stays(function, stmt, call):
                continue
            name = ir.render(ir.receiver_of(call)) or "this"
            message = (
                f"the scaler's state is not {done} here: whether {name} is the optimizer "
                "of a migrated loop is not followed"
            )
            notes[Note(call.line, message)] = None
        optimizers = unfollowed.optimizers
        for function, _, call in unfollowed.program.calls_named(method):
            if not isinstance(call.func, ir.Attr):
                continue
            slot = optimizers.slot(call.func.value, function)
            known, mixed = slot in unfollowed.slots, _is_mixed(optimizers, slot)
            if (mixed and known) or (not known and any(call is one for one in each)):
                name = ir.render(call.func.value) or "this"
                message = (
                    f"the scaler's state is not {done} here: {name} is one after another of "
                    "what is kept with the optimizer, and the scaler is not kept there"
                )
                notes[Note(call.line, message)] = None
    for holder, call in unfollowed.handed_to_save():
        message = (
            f"the scaler's state is not saved here: {ir.render(call.func)}() is given "
            f"{ir.render(holder)}, which holds the optimizer, and is not followed"
        )
        notes[Note(call.line, message)] = None
    for call in unfollowed.restored_by_attribute():
        message = (
            "the states of all attributes are loaded here; the scaler's would be one of "
            "them, which older checkpoints do not have"
        )
        raise refused("AMP040", message, call.line)
    for holder, call in unfollowed.saved_whole():
        name = ir.render(holder) or "what holds the optimizer"
        message = (
            f"{name} is saved as a whole here: what was saved before has no scaler"
        )
        if unfollowed.loads_objects():
            raise refused("AMP040", message, call.line)
        notes[Note(call.line, message)] = None
    return list(notes)


def _loads(call: ir.Expr) -> bool:
    """Whether it gives an optimizer its state, or is the optimizer as a file has it."""
    return isinstance(call, ir.Item) or (
        isinstance(call, ir.Call) and ir.method_of(call) == "load_state_dict"
    )


def _is_same(edit: Edit, function: str, file: str, other: Edit) -> bool:
    """Whether a scaler's state is there already: that of another optimizer's scaler is the same one."""
    if file != ir.file_of(function):
        return False
    match edit, other:
        case AddEntry(), AddEntry():
            return (edit.path, edit.key) == (other.path, other.key)
        case Insert(), Insert():
            return edit.code == other.code and edit.path[:-1] == other.path[:-1]
    return False


_StateCall = tuple[str, ir.Stmt, ir.Expr, ir.Expr, Slot]
"""Where an optimizer's state is saved or loaded: function, statement, the state or the call that loads
it, the optimizer as it is named there."""


def _state_calls(
    program: Program,
    optimizers: Optimizers,
    travel: Travel,
    slots: frozenset[Slot],
    states: States,
) -> Iterator[_StateCall]:
    for method in ("state_dict", "load_state_dict"):
        for function, stmt, call in program.calls_named(method):
            if not isinstance(call.func, ir.Attr):
                continue
            receiver = call.func.value
            slot = optimizers.slot(receiver, function)
            if slot is None or slot not in slots or _is_mixed(optimizers, slot):
                continue
            outer = list(_passed_on(program, travel, function, stmt, call, slot))
            for place in outer or [(function, stmt, call, receiver, slot)]:
                at, line, state, *_ = place
                assert isinstance(state, ir.Call)
                if method == "load_state_dict":
                    if not states.is_kept(at, line, state):
                        yield place
                    elif _is_of_an_earlier_one(program, travel, at, state):
                        message = (
                            "a new optimizer goes on from the state of an earlier one here, "
                            "and its scaler would begin anew each time"
                        )
                        raise refused("AMP040", message, line.line)
                    continue
                yield place


def _object_calls(
    program: Program, optimizers: Optimizers, slots: frozenset[Slot]
) -> Iterator[_StateCall]:
    """Where an optimizer is itself what a dict is saved with, or is taken out of a file."""
    for function, stmt, one in saved(program):
        slot = optimizers.slot(one, function)
        if slot is not None and slot in slots:
            yield function, stmt, one, one, slot
    births = {one for slot in slots for one in optimizers.trace(slot).births}
    for birth in births:
        if birth.is_read:
            assert birth.stmt.value is not None
            held = birth.stmt.targets[0]
            yield birth.function, birth.stmt, birth.stmt.value, held, birth.slot


def _is_of_an_earlier_one(
    program: Program, travel: Travel, function: str, load: ir.Call
) -> bool:
    """Whether a function makes an optimizer with its scaler, and loads a state that it has not taken
    itself."""
    made = any(born.function == function for born in travel.born)
    return made and any(
        isinstance(arg.value, ir.Attr)
        and not any(arg.value in stmt.targets for stmt in program.statements(function))
        for arg in load.args
    )


def _is_mixed(optimizers: Optimizers, slot: Slot | None) -> bool:
    """Whether a slot stands for each of what a collection holds, and not all of that is optimizers;
    a function may be given one after another."""
    if slot is None:
        return False
    trace = optimizers.trace(slot)
    given = trace.each if slot in trace.parameters else (slot,)
    members = [member for one in given for member in trace.each.get(one, ())]
    return not all(optimizers.trace(member).births for member in members)


def _passed_on(
    program: Program,
    travel: Travel,
    function: str,
    stmt: ir.Stmt,
    call: ir.Call,
    slot: Slot,
) -> Iterator[_StateCall]:
    """The calls of a method of the same name, which does nothing else: that of a wrapper."""
    facts = program.functions[function]
    own = facts.self_name
    given = tuple(ir.Arg(ir.Name(param.name)) for param in facts.params[1:])
    body = [one for one in facts.body if not isinstance(one.value, ir.Const)]
    if (
        own is None
        or stmt.value is not call
        or call.func != ir.Attr(ir.Attr(ir.Name(own), slot.name), facts.name)
        or (call.args, [one.path for one in body]) != (given, [stmt.path])
        or stmt.kind != ("return" if facts.name == "state_dict" else "expr")
        or function in program.escaping
        or program.is_public(function)
    ):
        return
    sites = program.call_sites.get(function, [])
    for site in sites:
        func = site.call.func
        if not isinstance(func, ir.Attr) or not travel.holders.is_always(
            func.value, site.caller, slot.owner
        ):
            return
    for site in sites:
        held = ir.Attr(ir.receiver_of(site.call), slot.name)
        yield site.caller, site.stmt, site.call, held, slot


class _Keys:
    """The keys under which scalers' states are kept, from those of their optimizers."""

    def __init__(
        self,
        program: Program,
        travel: Travel,
        calls: Iterable[_StateCall],
    ) -> None:
        self.program = program
        self.travel = travel
        self._scalers: dict[str, dict[frozenset[Scaler], set[str]]] = {}
        """Of which scalers the states would be kept under one name, going by the optimizers' keys, and
        in which files."""
        for function, stmt, state, _, slot in calls:
            for key in _keys_at(program, function, stmt, state):
                known = self._scalers.setdefault(_sibling(program, key), {})
                files = known.setdefault(travel.scalers.of_slot(slot), set())
                files.add(ir.file_of(function))

    def of(self, slot: Slot) -> Callable[[str], str]:
        """Gives the key for a scaler beside the key of one of its optimizers."""
        scalers = self.travel.scalers.of_slot(slot)

        def name(key: str) -> str:
            if any(len(scaler) > 1 for scaler in scalers):
                return _sibling(self.program, "optimizer")
            found = _sibling(self.program, key)
            known = self._scalers.get(found, {})
            if any(
                self.program.may_run_together(file, other)
                for file in known.get(scalers, ())
                for more, files in known.items()
                for other in files
                if more != scalers
            ):
                return f"{key}_{_WORDS[0]}"
            return found

        return name


def _keys_at(
    program: Program, function: str, stmt: ir.Stmt, state: ir.Expr
) -> Iterator[str]:
    """The key under which a state is kept, or from which a call loads it."""
    for inner in parts_of(stmt):
        key = _key_of(program, function, inner, state)
        if key is not None:
            yield key
    given = state.argument(0, "state_dict") if isinstance(state, ir.Call) else None
    targets = stmt.targets if stmt.value is state else ()
    for item in (given, *targets):
        if isinstance(item, ir.Item) and isinstance(item.key, ir.Const):
            if isinstance(item.key.value, str):
                yield item.key.value


def _save(
    program: Program,
    function: str,
    stmt: ir.Stmt,
    state: ir.Expr,
    switch: str,
    sibling: Callable[[str], str],
) -> Edit | None:
    beside = ir.render(state)
    if isinstance(state, ir.Call) and state.args:
        copied = (state.func, state.args[0].value)
        beside = "{}({})".format(*map(ir.render, copied))
    value = f"{switch}.state_dict()"
    if beside is not None:
        for inner in parts_of(stmt):
            key = _key_of(program, function, inner, state)
            if key is not None:
                return AddEntry(stmt.path, beside, sibling(key), value)
        if stmt.kind == "assign" and stmt.value is state and len(stmt.targets) == 1:
            target = stmt.targets[0]
            if isinstance(target, ir.Item) and isinstance(target.key, ir.Const):
                holder = ir.render(target.value)
                if holder is not None and isinstance(target.key.value, str):
                    name = sibling(target.key.value)
                    return Insert(stmt.path, f'{holder}["{name}"] = {value}')
    return None


def _key_of(
    program: Program, function: str, expr: ir.Expr, state: ir.Expr
) -> str | None:
    """The key under which a dict, written out or made by ``dict()``, holds a state."""
    if isinstance(expr, ir.Display) and expr.kind == "dict":
        # Keys and values are parallel.
        for key, item in zip(expr.keys, expr.items, strict=True):
            if (
                item is state
                and isinstance(key, ir.Const)
                and isinstance(key.value, str)
            ):
                return key.value
    if (
        isinstance(expr, ir.Call)
        and program.origin(expr.func, function) == "builtins.dict"
    ):
        for arg in expr.args:
            if arg.value is state and arg.name is not None:
                return arg.name
    return None


def _load(
    stmt: ir.Stmt, call: ir.Expr, switch: str, sibling: Callable[[str], str]
) -> Edit | None:
    given: ir.Expr | None = call
    if isinstance(call, ir.Call):
        given = call.args[0].value if len(call.args) == 1 else None
    if stmt.value is call and isinstance(given, ir.Item):
        holder = ir.render(given.value)
        if (
            holder is not None
            and isinstance(given.key, ir.Const)
            and isinstance(given.key.value, str)
        ):
            return _loaded(stmt, switch, holder, sibling(given.key.value))
    return None


def _loaded(stmt: ir.Stmt, switch: str, holder: str, key: str) -> Insert:
    """What loads a scaler's state, where there is one."""
    code = (
        f'if {switch}.is_enabled() and {holder}.get("{key}"):\n'
        f'    {switch}.load_state_dict({holder}["{key}"])'
    )
    return Insert(stmt.path, code)


class _Inside:
    """The scaler's state as an entry of its optimizer's: ``{**optimizer.state_dict(), "scaler": ...}``.

    It goes wherever that goes, whatever the form of the checkpoint. ``load_state_dict()`` of torch takes
    the entries that it knows, so that the program as it was can load such a state, too.
    """

    def __init__(
        self, program: Program, optimizers: Optimizers, travel: Travel, states: States
    ) -> None:
        self.program = program
        self.optimizers = optimizers
        self.travel = travel
        self.states = states
        self.key = _sibling(program, "optimizer")

    def edits(self, calls: Iterable[_StateCall]) -> list[Placed]:
        """The edits for all places; raises `Blocked` where one of them has no such form."""
        edits: dict[Placed, None] = {}
        for function, stmt, call, held, slot in calls:
            self._refuse_own_states(slot, stmt)
            switch = self.travel.of_held(slot, held, function)
            find = self._loaded if _loads(call) else self._saved
            found = find(function, stmt, call, switch)
            if found is None:
                done = "loaded" if _loads(call) else "saved"
                message = (
                    f"the optimizer's state is {done} in a form that the scaler's cannot "
                    "join"
                )
                raise refused("AMP040", message, stmt.line)
            edits |= dict.fromkeys((ir.file_of(function), one) for one in found)
        return list(edits)

    def _refuse_own_states(self, slot: Slot, stmt: ir.Stmt) -> None:
        """An optimizer whose class makes or loads its state itself need not take one more entry."""
        program = self.program
        for birth in self.optimizers.trace(slot).births:
            for ref in program.resolve(birth.call.func, birth.function):
                for name in _OWN_STATES if ref.name in program.classes else ():
                    if program.method(ref.name, name) is not None:
                        message = (
                            "the optimizer's state is no dict with room for the scaler's, and "
                            f"{ir.local_name(ref.name)} has a {name}() of its own"
                        )
                        raise refused("AMP040", message, stmt.line)

    def _saved(
        self, function: str, stmt: ir.Stmt, call: ir.Expr, switch: str
    ) -> list[Edit] | None:
        assert isinstance(call, ir.Call)
        leaving = self.states.leaving(function, stmt, call)
        state = ir.render(call)
        if leaving and state is None:
            return None
        if not all(
            _holds_as_it_is(self.program, one.function, one.use) for one in leaving
        ):
            return None
        value = f"{switch}.state_dict()"
        return [
            AddEntry(stmt.path, state, self.key, value, inside=True)
            for _ in leaving[:1]
            if state is not None
        ]

    def _loaded(
        self, function: str, stmt: ir.Stmt, call: ir.Expr, switch: str
    ) -> list[Edit] | None:
        assert isinstance(call, ir.Call)
        if stmt.kind != "expr" or stmt.value is not call or len(call.args) != 1:
            return None
        (given,) = call.args
        state = ir.render(given.value)
        if given.star or given.name is not None:
            return None
        if state is not None and _is_plain(given.value):
            if self._is_looked_through(given.value, function):
                return None
            return [_loaded(stmt, switch, state, self.key)]
        steps = steps_to(stmt, given.value)
        if steps is None:
            return None
        known = self.program.modules[ir.file_of(function)].identifiers
        state = _free("optimizer_state", known)
        return [
            Hoist(stmt.path, steps, state),
            _loaded(stmt, switch, state, self.key),
        ]

    def _is_looked_through(self, state: ir.Expr, function: str) -> bool:
        """Whether a function does more with a state than to load it, or to take entries by their keys."""
        return any(
            not (
                expr in stmt.targets
                or any(
                    isinstance(outer, ir.Item)
                    and outer.value is inner
                    and isinstance(outer.key, ir.Const)
                    for outer in inside
                )
                or any(
                    (_loads(outer) or _asks_for_none(outer))
                    and inner in ir.children(outer)
                    for outer in inside
                )
                or (stmt.kind == "if" and expr == inner)
            )
            for stmt in self.program.statements(function)
            for expr in stmt.exprs
            for inside in [list(ir.walk(expr))]
            for inner in inside
            if inner == state
        )


def _asks_for_none(expr: ir.Expr) -> bool:
    """``state is not None``"""
    return isinstance(expr, ir.Operation) and expr.op in ("is", "is not")


def _is_plain(expr: ir.Expr) -> bool:
    """Whether an expression is a variable, or what is in one under known keys."""
    match expr:
        case ir.Name():
            return True
        case ir.Attr(value=value) | ir.Item(value=value, key=ir.Const()):
            return _is_plain(value)
    return False


def _holds_as_it_is(program: Program, function: str, use: Use) -> bool:
    """Whether what has a state only holds it, or hands it on."""
    for inner, outer in zip(use[::-1], use[-2::-1], strict=False):
        match outer:
            case ir.Display(kind="list" | "tuple"):
                pass
            case ir.Display(kind="dict", items=items, keys=keys):
                if any(
                    k is None and i is inner for k, i in zip(keys, items, strict=True)
                ):
                    return False
            case ir.Operation(op="if" | "or" | "and"):
                pass
            case ir.Comprehension(elements=elements, lazy=False, is_set=False):
                if not any(inner is one for one in elements):
                    return False
            case ir.Call(func=func, args=args):
                origin = program.origin(func, function) or ""
                if origin == "builtins.dict" and any(
                    arg.name and arg.value is inner for arg in args
                ):
                    continue
                return not origin.startswith("builtins.") and not any(
                    arg.star and arg.value is inner for arg in args
                )
            case _:
                return False
    return True


def _free(name: str, known: Collection[str]) -> str:
    """A name that is not known yet."""
    return next(
        one for n in count(1) if (one := f"{name}_{n}" if n > 1 else name) not in known
    )


def _sibling(program: Program, key: str) -> str:
    """``scaler_state_dict`` for ``optimizer_state_dict``: the file's own way to name its keys.

    Not a name that the file may already use as a key, for something else.
    """
    taken = program.strings | program.noted(_keyword_keys) | {key}
    for word in _WORDS:
        name = OPTIMIZER_WORD.sub(word, key, count=1)
        if name == key:
            name = word
        if name not in taken:
            return name
    return next(name for n in count(2) if (name := f"{_WORDS[0]}_{n}") not in taken)


def _keyword_keys(program: Program) -> set[str]:
    """The keys of the dicts that are made by ``dict()`` or ``update()``."""
    return {
        arg.name
        for function, _, call in program.all_calls()
        if program.origin(call.func, function) == "builtins.dict"
        or (ir.method_of(call) == "update")
        for arg in call.args
        if arg.name is not None
    }
