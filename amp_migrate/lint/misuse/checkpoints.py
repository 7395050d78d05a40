"""Checkpoints: that have the state of an optimizer, and not that of its scaler; under which keys states are
saved, and from which they are loaded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from glob import escape

from amp_migrate.analysis.objects.points_to import EACH, Object, item
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Key, all_calls
from amp_migrate.lint.misuse.order.protocol import protocol_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

NOT_SAVED = "AMP122"
NOT_LOADED = "AMP123"
DEMANDED = "AMP125"
UNSAVED_KEY = "AMP126"

_NAMES_SCALER = re.compile(r"(?i)(?!.*(standard|min_?max|robust|max_?abs))\w*scaler\w*")
_OTHERS = re.compile(
    r"(?i)model|net|module|optim|sched|ema|encoder|decoder|backbone|head|critic|actor|policy|agent"
    r"|disc|gen|student|teacher|loss|criterion|embed|(^|_)(opt|lr|d|g|enc|dec|ae|vae)(_|\d|$)"
)
"""What the names of other things that have a state have in them."""
_ANYTHING = frozenset(("v", "obj", "value", "item", "x"))
_SAVES = re.compile(r"(?i)^(?!.*(im(ages?|gs?)|fig|plot|png|video|audio|wav))\w*save")
_ANY = ir.Name("?")
"""The key of any entry."""


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    protocol = protocol_of(context)
    if not protocol.stepping:
        return
    states = context.noted(_States)
    entries = context.noted(_Entries)
    for function in context.functions(file):
        for stmt, call in all_calls(context.program, function):
            code = states.lacking(call, function, stmt)
            if code is not None:
                yield context.finding(code, function, call)
            code, key = entries.judged(call, function, stmt)
            message = (
                f'nothing saves it under "{key}": the state of training is not loaded'
            )
            if code:
                said = message if code == UNSAVED_KEY else ""
                yield context.finding(code, function, call, said)


@dataclass(frozen=True, slots=True)
class _Handled:
    """The state of something that is a scaler, or may be one, is saved or loaded."""

    file: str
    keys: frozenset[Key] = frozenset()
    """The scalers; empty where it may be any."""
    certain: bool = False
    """It is a scaler, whose state goes into a dict."""


_COMPUTES = ("torch.", "numpy.", "os.", "pathlib.", "builtins.str")
"""Whose calls give tensors and texts, that hold no state: the path of a checkpoint says from how far its name
comes, and to find that out took a quarter of the lint of skrl."""


class _States:
    """Whose states a program saves and loads."""

    def __init__(self, context: Context) -> None:
        protocol, self.program = protocol_of(context), context.program
        self.events = protocol.events
        self.stepping = protocol.stepping
        self._idle: set[tuple[str, object]] = set()
        """By file, the keys under which nothing is saved, since no call gives it."""
        self.saved = [*self._handled("state_dict"), *self._whole()]
        self.loaded = list(self._handled("load_state_dict"))
        self._reported: set[int] = set()

    def lacking(self, call: ir.Call, function: str, stmt: ir.Stmt) -> str | None:
        """What is wrong with a call that saves or loads the state of an optimizer."""
        name = ir.last_of(call.func)
        loaded = _state_of(call, "load_state_dict")
        if loaded is not None:
            for optimizer in (
                self.events.amp.may_be(loaded, function, stmt) & self.stepping.keys()
            ):
                saved = [one for one in self.saved if one.certain]
                if self._any(saved, optimizer, function) and not self._any(
                    self.loaded, optimizer, function
                ):
                    return NOT_LOADED
        elif _SAVES.search(name or ""):
            for arg in call.args:
                for held, there, at in self._states_in(arg.value, function, stmt):
                    for optimizer in (
                        self.events.amp.may_be(held, there, at) & self.stepping.keys()
                    ):
                        if self._any(self.saved, optimizer, function):
                            continue
                        if id(held) not in self._reported:
                            # One dict may go into several files.
                            self._reported.add(id(held))
                            return NOT_SAVED
        return None

    def _any(self, handled: list[_Handled], optimizer: Key, function: str) -> bool:
        """Whether one of these may be the scaler of an optimizer, where a function runs."""
        steps = self.stepping[optimizer]
        files = {ir.file_of(there) for _, there in steps} | {ir.file_of(function)}
        around = self.program.around(files)
        scalers = {scaler for scaler, _ in steps}
        return any(
            one.file in around
            and not (
                one.keys
                and all(self.events.are_two(k, s) for k in one.keys for s in scalers)
            )
            for one in handled
        )

    # -- the states of scalers ----------------------------------------------------------------------

    def _handled(self, method: str) -> Iterator[_Handled]:
        for function, stmt, call in self.program.calls_named(method):
            held = call.func.value if isinstance(call.func, ir.Attr) else None
            if held is None:
                continue
            file = ir.file_of(function)
            made = self._told(held, function, stmt)
            if made and all(one.is_none for one in made):
                said = (part for part in parts_of(stmt))
                self._idle |= {
                    (file, one.value) for one in said if isinstance(one, ir.Const)
                }
                continue
            is_scaler = self.events.is_scaler(held, function)
            is_scaler |= any(map(self._is_made_scaler, made))
            name = ir.key_of(held) or ""
            if is_scaler or "scal" in name.lower() or "amp" in name.lower():
                kept = any(isinstance(target, ir.Item) for target in stmt.targets)
                kept |= any(
                    (isinstance(inner, ir.Display) and inner.kind == "dict")
                    or (isinstance(inner, ir.Comprehension) and len(inner.elements) > 1)
                    for inner in parts_of(stmt)
                )
                known = function in self.events.read or bool(made)
                certain = is_scaler and kept and known
                yield _Handled(
                    file, self.events.amp.may_be(held, function, stmt), certain
                )
            elif not made and self._may_be_anything(held, function):
                yield _Handled(file)

    def _told(self, held: ir.Expr, function: str, stmt: ir.Stmt) -> list[Object]:
        """All that an expression may stand for; nothing where some of it is told by no name either."""
        amp = self.events.amp
        found = [
            made
            for one in amp.named(held, function, stmt)
            for made in amp.points_to.of(one, function, stmt)
            if made.kind != "open"
        ]
        unseen = [ir.key_of(one.expr) or "" for one in found if one.kind == "lost"]
        return found if all(map(_OTHERS.search, unseen)) else []

    def _is_made_scaler(self, one: Object) -> bool:
        return isinstance(one.expr, ir.Call) and self.events.amp.makes_scaler(
            one.expr, one.function
        )

    def _whole(self) -> Iterator[_Handled]:
        """Scalers that are saved whole, and names that say that something is a scaler's."""
        for name in ("save", "dump"):
            for function, _, call in self.program.calls_named(name):
                for inner in self._said(call, function):
                    if self.events.is_scaler(inner, function):
                        keys = self.events.amp.may_be(inner, function)
                        yield _Handled(ir.file_of(function), keys)
        for file, facts in self.program.modules.items():
            said = (s for s in facts.strings if (file, s) not in self._idle)
            if any(map(_NAMES_SCALER.fullmatch, said)):
                yield _Handled(file)

    def _said(self, expr: ir.Expr, function: str) -> Iterator[ir.Expr]:
        """An expression and its parts, but for what a function of the program is given: what that saves
        of it, it says itself."""
        yield expr
        if not isinstance(expr, ir.Call) or not self.program.callees(expr, function):
            for child in ir.children(expr):
                yield from self._said(child, function)

    def _may_be_anything(self, held: ir.Expr, function: str) -> bool:
        """Whether something that has a state is told neither by its name nor by what it is made of."""
        if isinstance(held, ir.Name):
            return held.id in _ANYTHING or (
                held.id in self._turns(function) and not _OTHERS.search(held.id)
            )
        words = " ".join(ir.words_in(held))
        known = isinstance(held, ir.Attr) or ir.key_of(held) is not None
        return not known and not _OTHERS.search(words)

    def _turns(self, function: str) -> frozenset[str]:
        """The variables of the loops and comprehensions of a function."""
        return frozenset(
            name.id
            for stmt in self.program.statements(function)
            for target in (
                *(stmt.targets if stmt.kind == "for" else ()),
                *(
                    target
                    for inner in parts_of(stmt)
                    if isinstance(inner, ir.Comprehension)
                    for target in inner.targets
                ),
            )
            for name in ir.walk(target)
            if isinstance(name, ir.Name)
        )

    # -- the states of optimizers -------------------------------------------------------------------

    def _states_in(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None
    ) -> Iterator[tuple[ir.Expr, str, ir.Stmt | None]]:
        """What has its ``state_dict()`` in a dict that is saved, with the function that says so."""
        if self.program.is_param(function, ir.key_of(expr) or ""):
            # Who gives it says what is in it.
            return
        points_to = self.events.amp.points_to
        pending = [(expr, function, stmt, False)]
        seen: set[int] = set()
        while pending:
            whole, there, at, inside = pending.pop()
            for one, within in (
                *((one, inside) for one in points_to.of(whole, there, at)),
                *((one, True) for one in points_to.of(ir.Item(whole, _ANY), there, at)),
            ):
                if one.fields or id(one.expr) in seen:
                    continue
                seen.add(id(one.expr))
                held = _state_of(one.expr, "state_dict")
                if held is not None and within:
                    # What is no dict is one of several files that make a checkpoint.
                    yield held, one.function, one.stmt
                parts = [one.expr] if held is None else []
                if held is None and isinstance(one.expr, ir.Call):
                    origin = self.program.origin(one.expr.func, one.function) or ""
                    computed = origin.startswith(_COMPUTES)
                    parts = [] if computed else [arg.value for arg in one.expr.args]
                pending += [(part, one.function, one.stmt, True) for part in parts]


class _Entries:
    """The entries of checkpoints in one program."""

    def __init__(self, context: Context) -> None:
        self.protocol = protocol = protocol_of(context)
        self.events = protocol.events
        self.program = protocol.amp.program
        self.saved: dict[Key, set[str]] = defaultdict(set)
        """By object, the keys under which its state is saved."""
        self.is_whole = True
        """Every state that is saved goes under a key that is in sight."""
        for function, stmt in self.program.mentioning("state_dict"):
            for key, value in _entries_of(stmt):
                held = _state_of(value, "state_dict")
                if held is not None:
                    texts = self._texts(key, function, stmt)
                    self.is_whole &= bool(texts)
                    for one in self.protocol.amp.may_be(held, function, stmt):
                        self.saved[one].update(texts)

    @cached_property
    def written(self) -> frozenset[str]:
        """All keys that are written into any dict."""
        return frozenset(
            text
            for function, stmt in self.program.all_statements()
            for key, _ in _entries_of(stmt)
            for text in self._texts(key, function, stmt)
        )

    def _texts(self, key: ir.Expr | None, function: str, stmt: ir.Stmt) -> list[str]:
        """The keys that an expression may be; nothing where that is not told. Of ``f"{name}_state"``, a
        pattern of them."""
        if key is None:
            return []
        if isinstance(key, ir.Const):
            return [key.value] if isinstance(key.value, str) else []
        points_to = self.protocol.amp.points_to
        found = list(points_to.whole(key, function, stmt))
        for one in list(found):
            match one.expr:
                case ir.Call(func=ir.Attr(value=held, attr="items")) if one.fields:
                    # What a loop goes through of a dict that is written out.
                    tables = points_to.whole(held, *one.place)
                    keys = [k for t in tables for k in getattr(t.expr, "keys", ()) if k]
                    if keys and one.fields == (EACH, item(0)):
                        found.remove(one)
                        found += [one._replace(expr=each, fields=()) for each in keys]
        texts = []
        for one in found:
            match one.expr:
                case ir.Const(value=str(text)) if not one.fields:
                    texts.append(text)
                case ir.Operation(op="joinedstr", operands=parts) if not one.fields:
                    texts.append("".join(map(_part, parts)))
        return texts if len(texts) == len(found) else []

    def judged(self, call: ir.Call, function: str, stmt: ir.Stmt) -> tuple[str, str]:
        """What is wrong with a call that loads a state, and the key of the entry."""
        held = _state_of(call, "load_state_dict")
        entry = call.argument(0, "state_dict")
        if held is None or entry is None:
            return "", ""
        taken = self._taken(entry, function, stmt)
        if taken is None:
            return "", ""
        key, demanded = taken
        texts = self._texts(key, function, stmt)
        amp = self.protocol.amp
        is_scaler = self.events.is_scaler(held, function) or any(
            isinstance(one.expr, ir.Call) and amp.makes_scaler(one.expr, one.function)
            for one in amp.points_to.of(held, function, stmt)
        )
        keys = self.protocol.amp.may_be(held, function, stmt)
        if texts and (is_scaler or keys & self.protocol.stepping.keys()):
            saved = {text for one in keys for text in self.saved.get(one, ())}
            if saved and self.is_whole and not any(map(self._is_written, texts)):
                return UNSAVED_KEY, texts[0]
        if texts and is_scaler and demanded:
            said = {key, *map(ir.Const, texts)}
            if not self._is_asked_for(said, function, stmt):
                return DEMANDED, texts[0]
        return "", ""

    def _is_written(self, text: str) -> bool:
        written = self.written
        return text in written or any(fnmatchcase(text, one) for one in written)

    def _taken(
        self, entry: ir.Expr, function: str, stmt: ir.Stmt
    ) -> tuple[ir.Expr, bool] | None:
        """The key that a state is loaded from, and whether it has to be there."""
        match entry:
            case ir.Item(value=holder, key=key):
                demanded = True
            case ir.Call(
                func=ir.Attr(value=holder, attr="get" | "pop" as method),
                args=(ir.Arg(value=key), *more),
            ):
                demanded = method == "pop" and not more
            case ir.Name(id=name):
                found, started = self.program.control(function).reaching(
                    name, stmt.path
                )
                made = found[0] if len(found) == 1 and not started else None
                if made is None or made.kind != "assign" or made.value is None:
                    return None
                if isinstance(made.value, ir.Name):
                    return None
                return self._taken(made.value, function, made)
            case _:
                return None
        return (key, demanded) if self._is_loaded(holder, function, stmt) else None

    def _is_loaded(self, holder: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether something comes from a file, for all that is seen."""
        found = self.protocol.amp.points_to.whole(holder, function, stmt)
        return bool(found) and all(
            isinstance(one.expr, ir.Call)
            and not one.fields
            and self.program.origin(one.expr.func, one.function) == "torch.load"
            for one in found
        )

    def _is_asked_for(self, said: set[ir.Expr], function: str, stmt: ir.Stmt) -> bool:
        """Whether a function looks if there is such an entry, or catches that there is none."""
        control = self.program.control(function)
        if any(one.kind in ("try", "trystar") for one in control.around(stmt.path)):
            return True
        for outer in self.program.statements(function):
            if outer.kind in ("if", "while", "assert") and outer.value is not None:
                if any(inner in said for inner in ir.walk(outer.value)):
                    return True
        return False


def _part(expr: ir.Expr) -> str:
    """A part of a text, as a pattern of what it may be."""
    if isinstance(expr, ir.Const) and isinstance(expr.value, str):
        return escape(expr.value)
    return "*"


def _entries_of(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr | None, ir.Expr]]:
    """The keys and values that a statement writes into dicts."""
    for target in stmt.targets:
        if isinstance(target, ir.Item) and stmt.value is not None:
            yield target.key, stmt.value
    for inner in parts_of(stmt):
        if isinstance(inner, ir.Display) and inner.kind == "dict":
            yield from zip(inner.keys, inner.items, strict=True)
        elif isinstance(inner, ir.Comprehension) and len(inner.elements) == 2:
            yield inner.elements[0], inner.elements[1]
        elif isinstance(inner, ir.Call):
            for arg in inner.args:
                if arg.name is not None:
                    yield ir.Const(arg.name), arg.value


def _state_of(expr: ir.Expr, method: str) -> ir.Expr | None:
    """What a state is that of; also where a test stands before it: ``x.state_dict() if x else None``."""
    if isinstance(expr, ir.Operation) and expr.op == "if":
        found = (_state_of(one, method) for one in expr.operands[1:])
        return next((one for one in found if one is not None), None)
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        return expr.func.value if expr.func.attr == method else None
    return None
