"""Checkpoints that have the state of an optimizer, and not that of its scaler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amp_migrate.analysis.objects.points_to import Object
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Key
from amp_migrate.lint.misuse.order.protocol import Protocol, protocol_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of

NOT_SAVED = "AMP122"
NOT_LOADED = "AMP123"

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
    states = context.shared.get("misuse.states")
    if not isinstance(states, _States):
        states = context.shared["misuse.states"] = _States(context, protocol)
    for function in context.functions(file):
        for stmt in ir.statements(context.program.functions[function].body):
            for call in calls_of(stmt):
                code = states.lacking(call, function, stmt)
                if code is not None:
                    yield context.finding(code, function, call)


@dataclass(frozen=True, slots=True)
class _Handled:
    """The state of something that is a scaler, or may be one, is saved or loaded."""

    file: str
    keys: frozenset[Key] = frozenset()
    """The scalers; empty where it may be any."""
    certain: bool = False
    """It is a scaler, whose state goes into a dict."""


class _States:
    """Whose states a program saves and loads."""

    def __init__(self, context: Context, protocol: Protocol) -> None:
        self.program = context.program
        self.events = protocol.events
        self.stepping = protocol.stepping
        self._idle: set[tuple[str, object]] = set()
        """By file, the keys under which nothing is saved, since no call gives it."""
        self.saved = [*self._handled("state_dict"), *self._whole()]
        self.loaded = list(self._handled("load_state_dict"))
        self._reported: set[int] = set()

    def lacking(self, call: ir.Call, function: str, stmt: ir.Stmt) -> str | None:
        """What is wrong with a call that saves or loads the state of an optimizer."""
        name = (
            call.func.attr if isinstance(call.func, ir.Attr) else ir.key_of(call.func)
        )
        loaded = _state_of(call, "load_state_dict")
        if loaded is not None:
            for optimizer in self._keys(loaded, function, stmt) & self.stepping.keys():
                saved = [one for one in self.saved if one.certain]
                if self._any(saved, optimizer, function) and not self._any(
                    self.loaded, optimizer, function
                ):
                    return NOT_LOADED
        elif _SAVES.search(name or ""):
            for arg in call.args:
                for held, there, at in self._states_in(arg.value, function, stmt):
                    for optimizer in self._keys(held, there, at) & self.stepping.keys():
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
                said = (part for expr in stmt.exprs for part in ir.walk(expr))
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
                    for expr in stmt.exprs
                    for inner in ir.walk(expr)
                )
                known = function in self.events.read or bool(made)
                certain = is_scaler and kept and known
                yield _Handled(file, self._keys(held, function, stmt), certain)
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
                        keys = self._keys(inner, function)
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
        words = " ".join(
            str(
                inner.id
                if isinstance(inner, ir.Name)
                else inner.attr if isinstance(inner, ir.Attr) else inner.value
            )
            for inner in ir.walk(held)
            if isinstance(inner, (ir.Name, ir.Attr, ir.Const))
        )
        known = isinstance(held, ir.Attr) or ir.key_of(held) is not None
        return not known and not _OTHERS.search(words)

    def _turns(self, function: str) -> frozenset[str]:
        """The variables of the loops and comprehensions of a function."""
        return frozenset(
            name.id
            for stmt in ir.statements(self.program.functions[function].body)
            for target in (
                *(stmt.targets if stmt.kind == "for" else ()),
                *(
                    target
                    for expr in stmt.exprs
                    for inner in ir.walk(expr)
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
        if self._is_param(expr, function):
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
                    computed = origin.startswith(("torch.", "numpy."))
                    parts = [] if computed else [arg.value for arg in one.expr.args]
                pending += [(part, one.function, one.stmt, True) for part in parts]

    def _is_param(self, expr: ir.Expr, function: str) -> bool:
        params = self.program.functions[function].params
        return any(ir.Name(param.name) == expr for param in params)

    def _keys(
        self, held: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> frozenset[Key]:
        """Which objects an expression may name."""
        amp = self.events.amp
        found: set[Key] = set()
        for one in amp.named(held, function, stmt):
            key = amp.key(one, function)
            several = amp.keys(one, function, stmt)
            found.update(several or (() if key is None else (key,)))
        return frozenset(found)


def _state_of(expr: ir.Expr, method: str) -> ir.Expr | None:
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        return expr.func.value if expr.func.attr == method else None
    return None
