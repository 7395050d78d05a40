"""What each statement does to scaled gradients: the events that the protocol of the scaler is made of."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.analysis.objects.optimizers import Optimizers
from amp_migrate.analysis.objects.points_to import RETURNS_SELF
from amp_migrate.analysis.paths.events import Event, Events
from amp_migrate.analysis.tables.degrees import Unclear
from amp_migrate.analysis.tables.vocabulary import (
    FRAMEWORK_RECEIVERS,
    GRADIENT_CLIPPERS,
)
from amp_migrate.analysis.values.scales import LOSS, Scales
from amp_migrate.lint.misuse.order.amp import (
    ENTERS,
    GRAD_SCALER,
    Amp,
    Key,
    Region,
    all_calls,
    entered_by,
)
from amp_migrate.lint.misuse.order.gradients import Gradients
from amp_migrate.lint.misuse.order.numerics import Numerics, Values
from amp_migrate.lint.misuse.order.spelled import Spelled
from amp_migrate.lint.misuse.order.wrapped import Wrapped
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now, each_call, unpacked
from amp_migrate.program.link import Program

_CLIPPERS_ELSEWHERE = re.compile(
    r"timm\.utils(\.\w+)*\.(dispatch_clip_grad|adaptive_clip_grad)"
)
_LOOKS_LIKE_SCALER = re.compile(r"(?i)(^|_)(grad_?|amp_?|loss_?)?scaler(s|_\w+)?$")
_LOOKS_AT = re.compile(
    r"builtins\.(print|isinstance|str|repr|type|id|bool|len|hasattr|getattr|dict|list|tuple)$"
    r"|torch\.|numpy\."
)
_OF_SCALERS = frozenset(("scale", "unscale_", "step", "update", "get_scale"))
_ON_SCALERS = frozenset(("scaled", "unscale", "step", "update"))
_MOST_VALUES = 200
"""That a loss may be made of, as far as they are read."""
_CASTS = frozenset(("half", "float", "double", "bfloat16", "to"))
_BY_HAND = frozenset((*ENTERS, "__exit__", "close", "pop_all"))
_ADDS_TO = frozenset(("append", "extend", "insert", "update", "setdefault"))
_SCALER = re.compile(r"unscale_|(?i:scaler)")
_AMP = re.compile(rf"autocast|{_SCALER.pattern}")
_SCALES = frozenset(("scale", "backward"))
_AMP_WORDS = frozenset(("GradScaler", "unscale_"))
_AMP_TOGETHER = frozenset(("autocast", "scale", "backward", "update"))
"""What a file speaks of whose ``scaler`` is one of gradients."""


@dataclass(frozen=True, slots=True)
class AmpEvent(Event):
    """``kind``: ``scaled`` and ``plain`` (a backward), ``foreign`` (one that is not understood),
    ``unscale``, ``step``, ``update`` (of a scaler), ``plain step``, ``zero``, ``clip``, ``read`` and
    ``edit`` (of gradients), ``descend`` (they change parameters by hand), ``rescale`` (the scale is
    asked for), ``opaque`` (a scaler is handed to somebody unseen), ``new scaler``, ``new optimizer``,
    ``numeric`` (see `Numerics`), ``region``, ``enter`` (a region by an instance that was made before),
    ``open`` and ``close`` (a region is entered and left by calls), ``halve`` and ``widen`` (what may be a
    module is made half, or another), ``call``."""

    scaler: ir.Expr | None = field(default=None, compare=False)
    subject: ir.Expr | None = field(default=None, compare=False)
    """The optimizer, what gradients are touched, or what leaves the region that is entered."""
    region: Region | None = None
    code: str = ""
    message: str = ""
    """Of a ``numeric`` event."""


class AmpEvents(Events):
    """The events of every statement of a program under AMP."""

    def __init__(self, amp: Amp) -> None:
        self.amp = amp
        self.program = amp.program
        self._scalers: dict[tuple[str, ir.Expr], bool] = {}
        self._may_be_scaled: dict[tuple[ir.Expr, str], bool] = {}
        self._kept: dict[str, dict[ir.Expr, ir.Expr]] = {}
        self._stepping: dict[str, bool] = {}
        self._numerics = Numerics(amp)
        self.wrapped = Wrapped(amp.program)
        self._spelled = Spelled(amp.program)
        self.scales = Scales(amp.program, amp.program.noted(Values), self.is_scaler)
        self._gradients = Gradients(amp.program, self.scales)
        self.optimizers = Optimizers(amp.program, any_step=True)
        self._of, self._shown, self._direct = {}, {}, {}
        self._kinds, self._steps = {}, {}
        self._around, self._called = {}, {}
        self._settle(self._with_amp())
        self._settle_callers()

    def _ensure(self, function: str) -> None:
        """What has nothing to do with AMP does not matter."""
        self._kinds.setdefault(function, frozenset())

    def direct(self, function: str) -> list[tuple[ir.Stmt, Event]]:
        return self._direct.get(function, [])

    def _with_amp(self) -> list[str]:
        """The functions of files that have something to do with AMP."""
        words = _Words(self.program)
        modules = self.program.modules.values()
        found = [one for one in modules if words.says(one, _AMP)]
        if found:
            # One that only looks at, or switches off, what others have switched on has nothing of its own.
            opening = self.amp.opening_files
            scalers = bool(opening) or self._has_scalers()
            found = [
                one
                for one in found
                if one.path in opening or (scalers and words.says(one, _SCALER))
            ]
        # A scaler that comes from one of these may go by any name.
        more = [one for one in modules if found and one.identifiers >= _SCALES]
        return [name for facts in (*found, *more) for name in facts.functions]

    def _has_scalers(self) -> bool:
        """Whether anything may be a scaler (see `is_scaler`)."""
        words = self.program.with_aliases({*_AMP_WORDS, "ShardedGradScaler"})
        return any(
            not words.isdisjoint(facts.identifiers | facts.strings)
            or facts.identifiers >= _AMP_TOGETHER
            for facts in self.program.modules.values()
        )

    def _settle_callers(self) -> None:
        """Have those read, too, that call functions of scalers and say no word of AMP themselves."""
        pending = [one for one in self._direct if self._kinds[one] & _ON_SCALERS]
        while pending:
            sites = self.program.call_sites.get(pending.pop(), ())
            fresh = {site.caller for site in sites} - self._direct.keys()
            self._settle(sorted(fresh))
            pending += fresh

    @property
    def read(self) -> Iterable[str]:
        """The functions that were read."""
        return self._direct

    @cached_property
    def called(self) -> frozenset[str]:
        """The functions that one of those that were read calls."""
        return frozenset(
            callee
            for direct in self._direct.values()
            for _, event in direct
            for callee in event.callees
        )

    # -- reading --------------------------------------------------------------------------------

    def _read(self, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        if stmt.kind in ("functiondef", "classdef"):
            return
        for call in calls_now(stmt):
            yield from self._of_amp_call(call, stmt, function)
        for method in self._properties_in(stmt, function):
            yield AmpEvent("call", stmt.line, stmt.column, callees=(method,))
        facts = self.program.functions[function]
        if stmt is facts.body[0]:
            around = facts.parent or function
            yield from self._regions(facts.decorators, stmt, around)
        if stmt.kind == "with":
            yield from self._regions(stmt.exprs, stmt, function)
        yield from self._managers(stmt, function)
        for found in self._numerics.of(stmt, function):
            at = found.call or stmt
            where = (at.line, at.column, found.call)
            yield AmpEvent("numeric", *where, code=found.code, message=found.message)
        kind = self._gradients.touch(stmt, function)
        if kind:
            yield AmpEvent(kind, stmt.line, stmt.column)
        yield from self._births(stmt, function)

    def _regions(
        self, entered: tuple[ir.Expr, ...], stmt: ir.Stmt, function: str
    ) -> Iterator[AmpEvent]:
        for expr in entered:
            region = self.amp.entered(expr, function)
            if region is not None and region.enabled is not False:
                shared = self.amp.is_shared(expr, function)
                kind = "enter" if shared else "region"
                yield AmpEvent(kind, stmt.line, stmt.column)

    def _births(self, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        if stmt.kind not in ("assign", "annassign", "for", "with"):
            return
        for target, value, _ in unpacked(stmt):
            if not isinstance(target, (ir.Name, ir.Attr)):
                continue
            where = (stmt.line, stmt.column)
            if isinstance(value, ir.Call) and self._makes_new_scaler(value, function):
                if not self.amp.is_off(value, function):
                    yield AmpEvent("new scaler", *where, call=value, scaler=target)
            else:
                if re.search(r"(?i)opt", ir.last_of(target) or "") or (
                    isinstance(value, ir.Call)
                    and self.optimizers.may_make(value, function)
                    and self.optimizers.makers.construction(value, function) is not None
                ):
                    yield AmpEvent("new optimizer", *where, subject=target)

    def _makes_new_scaler(self, call: ir.Call, function: str) -> bool:
        """Whether a call makes a scaler, by its own or by a function that keeps none."""
        if self.amp.makes_scaler(call, function):
            return True
        if not any(
            self.program.modules[ir.file_of(callee)].identifiers & _AMP_WORDS
            for callee in self.program.callees(call, function)
        ):
            return False
        made = self.amp.scalers(call, function)
        return bool(made) and all(
            one.function != function
            and not self.program.functions[one.function].decorators
            and not ir.is_top(one.function)
            and (one.bound is None or one.bound.owner == one.function)
            for one in made
        )

    def _of_amp_call(
        self, call: ir.Call, stmt: ir.Stmt, function: str
    ) -> Iterator[Event]:
        program = self.program
        call, origin = self._spelled.out(call, function)
        where = (call.line, call.column, call)
        by_hand = self._by_hand(call, origin, function)
        if by_hand is not None:
            yield by_hand
            return
        if isinstance(call.func, ir.Attr) and origin is None:
            receiver, method = call.func.value, call.func.attr
            if method in _CASTS:
                yield from self._cast(call, receiver, stmt, function)
                return
            if method == "backward" and not program.callees(call, function):
                yield self._backward(call, receiver, stmt, function)
                return
            callees = program.callees(call, function)
            scaler = self._own_scaler(receiver, function)
            if method in _OF_SCALERS and self.is_scaler(scaler, function):
                if callees and all(self._hands_on(c, method) for c in callees):
                    yield AmpEvent("call", *where, callees=callees)
                    return
                found = self._of_scaler(method, scaler, call)
                if found is not None:
                    yield found
                return
            kept = None if callees else self._kept_by(receiver, function)
            if kept is not None and method != "zero_grad":
                yield AmpEvent("opaque", *where, scaler=kept)
                return
            if not any(map(self._steps_something, callees)):
                own_rule = any("descend" in self._touches(c) for c in callees)
                if method == "step" and not call.args and not own_rule:
                    if self._is_optimizer_like(receiver, function):
                        yield AmpEvent("plain step", *where, subject=receiver)
                        return
                if method == "zero_grad" or method.endswith("_step"):
                    own = call.argument(99, "zero_grad") is not None
                    own = own or self._is_optimizer_like(receiver, function)
                    # Whatever else of its own an optimizer steps with has used the gradients.
                    if own or method == "zero_grad":
                        subject = receiver if own else None
                        yield AmpEvent("zero", *where, subject=subject)
                        return
        if origin == "torch.autograd.backward":
            yield self._backward(call, call.argument(0, "tensors"), stmt, function)
            return
        clips = origin is not None and (
            GRADIENT_CLIPPERS.fullmatch(origin) or _CLIPPERS_ELSEWHERE.fullmatch(origin)
        )
        if clips:
            reads = origin is not None and origin.endswith("get_total_norm")
            yield AmpEvent(
                "read" if reads else "clip",
                *where,
                subject=call.argument(0, "parameters"),
            )
            return
        callees = self.wrapped.called(program.callees(call, function), call, function)
        if callees:
            generators = all(program.functions[c].is_generator for c in callees)
            entered = generators and stmt.kind == "with" and call in stmt.exprs
            for kind in ("prologue", "epilogue") if entered else ("call",):
                yield AmpEvent(kind, *where, callees=callees)
            return
        makers = [
            r.name for r in program.resolve(call.func, function) if r.kind == "made"
        ]
        if any(map(_LOOKS_AT.match, (origin or "", *makers))):
            return
        if any(
            self.is_scaler(arg.value, function)
            for arg in call.args
            if _is_name(arg.value)
        ):
            yield AmpEvent("opaque", *where)

    def _cast(
        self, call: ir.Call, held: ir.Expr, stmt: ir.Stmt, function: str
    ) -> Iterator[AmpEvent]:
        """What may be a module is given another dtype, in place."""
        held = ir.before_calls(held, RETURNS_SELF)
        name = (ir.key_of(held) or "").rpartition(".")[2]
        # A tensor is not changed in place: a statement of its own is for a module.
        alone = stmt.kind == "expr" and stmt.value is call
        if name in self._modules or (alone and self._modules):
            where = (call.line, call.column, call)
            if self.amp.makes_half(call, function):
                yield AmpEvent("halve", *where, subject=held)
            elif ir.method_of(call) != "to" or _casts(call):
                yield AmpEvent("widen", *where, subject=held)

    @cached_property
    def _modules(self) -> frozenset[str]:
        """The last names of what is asked for its parameters, where anything is made half at all."""
        words = {"half", "float16"}
        if all(words.isdisjoint(m.identifiers) for m in self.program.modules.values()):
            return frozenset()
        return frozenset(
            (ir.key_of(call.func.value) or "").rpartition(".")[2]
            for _, _, call in self.program.calls_named("parameters")
            if isinstance(call.func, ir.Attr)
        )

    def _by_hand(
        self, call: ir.Call, origin: str | None, function: str
    ) -> AmpEvent | None:
        """A region that a call enters, or leaves."""
        where = (call.line, call.column, call)
        if origin == "torch.set_autocast_enabled":
            *device, enabled = [arg.value for arg in call.args] or [ir.Const(None)]
            kind = self.amp.text(device[0], function) if device else "cuda"
            on = self.amp.truth(enabled, function)
            region = None if on is None else Region(kind or "", "", on)
            return AmpEvent("open", *where, region=region)
        if not isinstance(call.func, ir.Attr) or call.func.attr not in _BY_HAND:
            return None
        receiver, entered = call.func.value, entered_by(call)
        if entered is not None:
            region = self.amp.entered(entered, function)
            if region is None or region.enabled is False:
                return None
            return AmpEvent("open", *where, subject=receiver, region=region)
        words = self.program.modules[ir.file_of(function)].identifiers
        if call.func.attr in ("close", "pop_all") and "ExitStack" not in words:
            return None
        return AmpEvent("close", *where, subject=receiver)

    def _backward(
        self, call: ir.Call, loss: ir.Expr | None, stmt: ir.Stmt, function: str
    ) -> AmpEvent:
        where = (call.line, call.column, call)
        scaled = self.scaled_by(loss, stmt, function)
        if scaled is not None:
            return AmpEvent("scaled", *where, scaler=scaled, subject=loss)
        if loss is None or self._carries_scale(loss, stmt, function):
            return AmpEvent("foreign", *where, subject=loss)
        name = ir.key_of(loss) or ""
        if name.rpartition(".")[2] in FRAMEWORK_RECEIVERS:
            return AmpEvent("foreign", *where)
        given = next((arg.value for arg in call.args if arg.name is None), None)
        if (
            given is not None
            and isinstance(call.func, ir.Attr)
            and call.func.value is loss
        ):
            # backward(loss) is a framework's, backward(torch.ones_like(out)) and backward(-1) torch's.
            scaled = self.scaled_by(given, stmt, function)
            if scaled is not None:
                return AmpEvent("scaled", *where, scaler=scaled, subject=given)
            made = (
                self.program.origin(given.func, function)
                if isinstance(given, ir.Call)
                else ""
            )
            if not isinstance(given, ir.Const) and not (made or "").startswith(
                "torch."
            ):
                return AmpEvent("foreign", *where)
        return AmpEvent("plain", *where, subject=loss)

    def scaled_by(
        self, loss: ir.Expr | None, stmt: ir.Stmt, function: str, depth: int = 0
    ) -> ir.Expr | None:
        """The scaler whose ``scale()`` a loss comes from."""
        if isinstance(loss, ir.Call) and isinstance(loss.func, ir.Attr):
            scaler = self._own_scaler(loss.func.value, function)
            scales = loss.func.attr == "scale" and self.is_scaler(scaler, function)
            return scaler if scales else None
        if isinstance(loss, ir.Name) and depth == 0:
            seen, started = self.program.control(function).reaching(loss.id, stmt.path)
            made = seen[0] if len(seen) == 1 and not started else stmt
            if made.kind == "assign" and loss in made.targets:
                return self.scaled_by(made.value, made, function, 1)
        return None

    def _carries_scale(self, loss: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        if self.may_be_scaled(loss, function):
            return True
        try:
            return LOSS in self.scales.of(loss, function, stmt).sources
        except Unclear:
            return False

    def may_be_scaled(self, loss: ir.Expr, function: str) -> bool:
        """Whether a loss has something to do with ``scale()`` that is not read."""
        key = loss, function
        if key not in self._may_be_scaled:
            self._may_be_scaled[key] = self._leads_to_scale(*key)
        return self._may_be_scaled[key]

    def _leads_to_scale(self, loss: ir.Expr, function: str) -> bool:
        seen: set[tuple[ir.Expr, str]] = set()
        pending = deque([(loss, function)])
        while pending:
            current = pending.popleft()
            if current in seen:
                continue
            if len(seen) == _MOST_VALUES:
                return True
            seen.add(current)
            there = current[1]
            for inner in ir.walk(current[0]):
                match inner:
                    case ir.Attr(attr=name) | ir.Name(id=name):
                        if re.search(r"(?i)scale", name):
                            return True
                        pending += self._given(inner, there)
                    case ir.Call():
                        pending += [
                            (value, callee)
                            for callee, value in self.program.returns(inner, there)
                        ]
        return False

    def _given(
        self, expr: ir.Name | ir.Attr, function: str
    ) -> Iterator[tuple[ir.Expr, str]]:
        """What a local variable or an attribute is given, whole or in parts, with the functions."""
        if isinstance(expr, ir.Attr):
            for class_name in self.program.instance_classes(expr.value, function):
                for found in self.program.attribute_definitions(class_name, expr.attr):
                    if found.value is not None:
                        yield found.value, found.function
            return
        if self.program.owner(expr.id, function) != function:
            return
        for found in self.program.definitions(function, expr.id):
            if isinstance(found.value, (ir.Name, ir.Call, ir.Operation)):
                yield found.value, function
        for stmt in self.program.statements(function):
            for target in stmt.targets:
                into = target.value if isinstance(target, ir.Item) else None
                if stmt.value and (stmt.kind == "for" or into):
                    if expr in (target, into):
                        yield stmt.value, function
            match stmt.value:
                case ir.Call(func=ir.Attr(value=holder, attr=attr), args=args):
                    if holder == expr and attr in _ADDS_TO:
                        yield from ((arg.value, function) for arg in args)

    def _of_scaler(
        self, method: str, receiver: ir.Expr, call: ir.Call
    ) -> AmpEvent | None:
        where = (call.line, call.column, call)
        subject = call.argument(0, "optimizer")
        match method:
            case "unscale_" if subject is not None:
                return AmpEvent("unscale", *where, scaler=receiver, subject=subject)
            case "step" if subject is not None:
                return AmpEvent("step", *where, scaler=receiver, subject=subject)
            case "update":
                return AmpEvent("update", *where, scaler=receiver)
            case "get_scale":
                return AmpEvent("rescale", *where, scaler=receiver)
            case "step" | "unscale_":
                return AmpEvent("opaque", *where, scaler=receiver)
        return None

    # -- what is what ---------------------------------------------------------------------------

    def _own_scaler(self, receiver: ir.Expr, function: str) -> ir.Expr:
        """``self`` where a method of a scaler says ``super()``; all others as they are."""
        own = self.program.self_class(function)
        if own is not None and isinstance(receiver, ir.Call):
            if receiver.func == ir.Name("super"):
                return ir.Name(own[0])
        return receiver

    def _kept_by(self, receiver: ir.Expr, function: str) -> ir.Expr | None:
        """The scaler that an object keeps whose class is not in sight, nor what its methods do with it."""
        if function not in self._kept:
            self._kept[function] = {
                scaler.value: scaler
                for stmt, call in all_calls(self.program, function)
                if isinstance(call.func, ir.Attr) and call.func.attr in _OF_SCALERS
                for scaler in (call.func.value,)
                if isinstance(scaler, ir.Attr) and self.is_scaler(scaler, function)
            }
        kept = self._kept[function].get(receiver)
        if kept is None or self.program.instance_classes(receiver, function):
            return None
        return kept

    def _hands_on(self, function: str, method: str) -> bool:
        """Whether a method of a scaler of the user's own calls that of its base."""
        return any(
            isinstance(call.func, ir.Attr)
            and call.func.attr == method
            and isinstance(call.func.value, ir.Call)
            and call.func.value.func == ir.Name("super")
            for stmt, call in all_calls(self.program, function)
        )

    def is_of_scaler(self, function: str) -> bool:
        """Whether a function is a method of a scaler of the user's own."""
        own = self.program.self_class(function)
        return own is not None and self.is_scaler(ir.Name(own[0]), function)

    @cached_property
    def made_scalers(self) -> frozenset[Key]:
        """What the program binds to scalers, or to collections of them, where it makes them."""
        found = set()
        for function in self.read:
            for stmt in self.program.statements(function):
                for target, value, _ in unpacked(stmt):
                    calls = () if value is None else ir.calls_in(value)
                    if any(self.amp.makes_scaler(call, function) for call in calls):
                        found.add(self.amp.key(target, function))
        return frozenset(key for key in found if key is not None)

    def are_two(self, one: Key, other: Key) -> bool:
        """Whether two names are certainly not those of one scaler."""

        def made(key: Key) -> bool:
            return any(key[:end] in self.made_scalers for end in (3, len(key)))

        return one != other and made(one) and made(other)

    def is_scaler(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is a GradScaler, or called like one where nothing says what it is."""
        key = (function, expr)
        if key not in self._scalers:
            self._scalers[key] = self._is_scaler(expr, function)
        return self._scalers[key]

    def _is_scaler(self, expr: ir.Expr, function: str) -> bool:
        if not _is_name(expr):
            return False
        program = self.program
        refs = program.resolve(expr, function)
        if any(
            ref.kind == "instance"
            and any(map(GRAD_SCALER.fullmatch, program.external_bases(ref.name)))
            for ref in refs
        ):
            return True
        made = any(
            ref.kind == "made" and GRAD_SCALER.fullmatch(ref.name) for ref in refs
        )
        told = any(ref.kind in ("made", "instance") for ref in refs)
        if made or (not told and self.amp.scalers(expr, function)):
            return not self.amp.is_off(expr, function)
        if refs:
            return False
        if self._is_said_to_be_one(expr, function):
            return True
        given = [
            *self.wrapped.given_as(expr, function),
            *self._spelled.given_to(expr, function),
        ]
        if any(self.is_scaler(one, there) for one, there in given):
            return True
        while isinstance(expr, ir.Item):
            expr = expr.value
        name = (ir.key_of(expr) or "").rpartition(".")[2]
        words = program.modules[ir.file_of(function)].identifiers
        under_amp = bool(words & _AMP_WORDS) or words >= _AMP_TOGETHER
        return bool(_LOOKS_LIKE_SCALER.search(name)) and under_amp

    def _touches(self, function: str) -> set[str]:
        """What a method of an object that is no optimizer of torch does to gradients itself."""
        own = self.program.self_class(function)
        if own is None or self.program.external_bases(own[1]):
            return set()
        body = self.program.functions[function].body
        return {self._gradients.touch(stmt, function) for stmt in ir.statements(body)}

    def _is_said_to_be_one(self, expr: ir.Expr, function: str) -> bool:
        """Whether an annotation says that a field, or a parameter, is a scaler."""
        program = self.program
        said: list[tuple[ir.Expr, str]] = []
        if isinstance(expr, ir.Attr):
            for name in program.instance_classes(expr.value, function):
                for stmt in program.classes[name].body:
                    if stmt.kind == "annassign" and ir.Name(expr.attr) in stmt.targets:
                        around = f"{ir.file_of(name)}::{ir.MODULE}"
                        said += [(one, around) for one in stmt.exprs]
        elif isinstance(expr, ir.Name):
            said = [
                (one.annotation, program.functions[function].parent or function)
                for one in program.functions[function].params
                if one.name == expr.id and one.annotation is not None
            ]
        return any(
            GRAD_SCALER.fullmatch(program.origin(inner, there) or "")
            for one, there in said
            for inner in ir.walk(one)
        )

    def _steps_something(self, function: str) -> bool:
        """Whether a function does more than what an optimizer does itself."""
        if function not in self._stepping:
            body = self.program.functions[function].body
            self._stepping[function] = any(
                ir.method_of(call)
                in ("step", "backward", "unscale_", "update", "zero_grad")
                for _, call in each_call(body)
            )
        return self._stepping[function]

    def _is_optimizer_like(self, receiver: ir.Expr, function: str) -> bool:
        slot = self.optimizers.slot(receiver, function)
        if slot is not None and self.optimizers.trace(slot).births:
            return True
        return self.optimizers.makers.looks_like_one(receiver, function)


class _Words:
    """The words of a program, each looked at once."""

    def __init__(self, program: Program) -> None:
        every = (facts.identifiers for facts in program.modules.values())
        self._words = frozenset().union(*every)
        self._found: dict[re.Pattern[str], frozenset[str]] = {}

    def says(self, facts: ir.ModuleFacts, word: re.Pattern[str]) -> bool:
        """Whether a file has an identifier with a word in it."""
        if word not in self._found:
            self._found[word] = frozenset(filter(word.search, self._words))
        return not self._found[word].isdisjoint(facts.identifiers)


def _casts(call: ir.Call) -> bool:
    """Whether what ``to()`` is given may be a dtype."""
    return any(
        arg.name == "dtype" or isinstance(arg.value, ir.Attr) for arg in call.args
    )


def _is_name(expr: ir.Expr) -> bool:
    return isinstance(expr, (ir.Name, ir.Attr, ir.Item))
