"""The protocol of the scaler on all ways through a program: backward, unscale_, step, update.

Something is told only where every way that comes there in the same manner is wrong: a way that a
condition which is not read may rule out is never the only witness.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from amp_migrate.analysis.paths.events import Event
from amp_migrate.analysis.paths.walk import Site, State
from amp_migrate.catalogue.protocol import (
    OTHER,
    PLAIN,
    READY,
    SCALED,
    STALE,
    STEPPED,
    UNSCALED,
    broken_by,
    broken_with,
)
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Key, amp_of
from amp_migrate.lint.misuse.order.events import AmpEvent, AmpEvents
from amp_migrate.lint.misuse.order.faults import (
    BACKWARD_IN_REGION,
    HALF_PARAMETERS,
    MISSING_UPDATE,
    NOT_SCALED,
    ONE_NORM,
    PARTLY_SCALED,
    REBORN,
    UNSCALED_BETWEEN,
    UPDATE_WITHOUT_STEP,
    UPDATED_BEFORE_STEP,
    UPDATED_BETWEEN,
    Fault,
    Here,
    Judged,
)
from amp_migrate.lint.misuse.order.owners import Owners
from amp_migrate.lint.misuse.order.state import (
    APPLIED,
    DUE,
    HALF,
    NOBODY,
    THREAD,
    UNKNOWN,
    Held,
    Mark,
    Open,
)
from amp_migrate.lint.misuse.order.typestate import SCALED_LOSS
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, unpacked

_OF_SCALERS = frozenset(("scaled", "unscale", "step", "update", "enter"))
_REGIONS = frozenset(("region", "open"))
_IN_REGIONS = frozenset(("plain", "plain step", "numeric"))
"""Kinds of event that make ways worth walking."""
_MOST_STEPS_OF_ALL = 300_000
"""Of the ways from all roots together: a program of a thousand tests has as many."""


class Protocol(Judged):
    """Judges what each event does to the gradients and scalers of a way."""

    # -- events ---------------------------------------------------------------------------------

    def _event(
        self, event: Event, state: State[Held], function: str, stmt: ir.Stmt
    ) -> State[Held]:
        assert isinstance(event, AmpEvent)
        here = Here(event, function, stmt)
        held = state.held
        scaler = self.key(event.scaler, function)
        subject = self.key(event.subject, function)
        match event.kind:
            case "scaled":
                self._in_region(BACKWARD_IN_REGION, here, held)
                held = self._scaled(held, scaler, here)
            case "plain" | "foreign" if subject and subject[0] == SCALED_LOSS:
                self._in_region(BACKWARD_IN_REGION, here, held)
                held = self._scaled(held, subject[1:], here)
            case "plain":
                self._in_region(BACKWARD_IN_REGION, here, held)
                if self._is_from_unseen(event.subject, subject, function):
                    held = held.after_backward((UNKNOWN, NOBODY))
                else:
                    held = held.after_backward((PLAIN, NOBODY))
                    held = held.marked(PLAIN, NOBODY, here.site)
            case "foreign":
                held = held.after_backward((UNKNOWN, NOBODY))
            case "unscale":
                held = self._unscale(held, scaler, subject, here)
            case "step":
                self._step_in_region(here, held)
                held = self._step(held, scaler, subject, here)
            case "update":
                held = self._update(held, scaler, here)
            case "plain step":
                self._step_in_region(here, held)
                held = self._plain_step(held, subject, here)
            case "zero":
                if subject is not None:
                    held = held.used(subject)
                else:
                    held = replace(held, grads=frozenset(), cleared=frozenset())
                held = held.without(APPLIED)
            case "clip" | "read" | "edit" | "descend":
                self._touched(held, here)
            case "rescale":
                held = replace(held, by_hand=True)
            case "opaque":
                held = self._opaque(held, here)
            case "numeric":
                self._numeric(here, held)
            case "open":
                site, depth = here.site, len(self.open)
                instance = THREAD if event.subject is None else subject
                if event.region is None:
                    held = held.leaving_region(instance)
                else:
                    held = held.entering(Open(event.region, site, instance, depth))
            case "close":
                held = held.leaving_region(subject)
            case "halve" | "widen":
                for module in self._modules(here):
                    held = held.without(HALF, module)
                    if event.kind == "halve":
                        self.halves[module].add(here.site)
                        held = held.marked(HALF, module, here.site)
            case "new scaler":
                held = self._new_scaler(held, scaler, here)
            case "new optimizer":
                given = {target: value for target, value, _ in unpacked(stmt)}
                made = given.get(event.subject) if event.subject else None
                # One more name of the same makes no other.
                if subject is not None and self.key(made, function) != subject:
                    held = self._new_optimizer(held, subject)
        return State(held, state.known)

    def _modules(self, here: Here) -> set[Key]:
        """The modules whose dtype a call changes: all that a loop goes through have their turn."""
        found = {self.key(here.event.subject, here.function)}
        held, sites = here.event.subject, self.program.call_sites.get(here.function, ())
        if held is not None and len(sites) < 2:
            found.update(self.amp.keys(held, here.function, here.stmt))
        return {one for one in found if one is not None}

    def _is_from_unseen(
        self, loss: ir.Expr | None, key: Key | None, function: str
    ) -> bool:
        """Whether somebody who is not in sight, or another function, may have scaled a loss."""
        if not isinstance(loss, ir.Name) or key is None or key[0] != "variable":
            return False
        owner, name = key[1].partition("\n")[0], key[2]
        if owner != function:
            return self.events.may_be_scaled(ir.Name(name), owner)
        return self.program.is_param(owner, name) and not (
            self.program.definitions(owner, name)
        )

    def _scaled(self, held: Held, scaler: Key | None, here: Here) -> Held:
        if not scaler:
            return held.after_backward((UNKNOWN, NOBODY))
        for optimizer, what, _ in held.status:
            mark = held.mark(UNSCALED, optimizer)
            if mark is None or (SCALED, scaler) not in held.of(optimizer):
                continue
            if self._in_each_turn(mark) and not mark.left:
                self._judge(
                    what == UNSCALED,
                    UNSCALED_BETWEEN,
                    here,
                    (mark.around, mark.site),
                    scaler=scaler,
                    told=mark.site,
                )
        held = self._due(held, scaler, here)
        mark = held.mark(SCALED, scaler)
        if mark is not None and not mark.left and self._in_each_turn(mark):
            updated = held.mark("update", scaler)
            if updated is not None:
                self._judge(
                    bool(self.optimizers)
                    and all((STALE, scaler) in held.of(o) for o in self.optimizers),
                    UPDATED_BETWEEN,
                    here,
                    (mark.around, mark.site),
                    scaler=scaler,
                    told=updated.site,
                )
        self.turns.note("scaled", scaler, self._around)
        held = held.after_backward((SCALED, scaler))
        return held.marked(SCALED, scaler, here.site)

    def _due(self, held: Held, scaler: Key, here: Here) -> Held:
        """Judge the steps of a turn before that no update has followed: it may stand in another branch."""
        for optimizer in self.optimizers:
            mark = held.mark(DUE, optimizer)
            if mark is None or not mark.around:
                continue
            if not mark.left and self._in_each_turn(mark):
                wrong = (optimizer, STEPPED, scaler) in held.status
                manner = (DUE, mark.site)
                self._judge(
                    wrong, MISSING_UPDATE, here, manner, scaler=scaler, told=mark.site
                )
            held = held.without(DUE, optimizer)
        return held

    def _unscale(
        self, held: Held, scaler: Key | None, optimizer: Key | None, here: Here
    ) -> Held:
        if scaler is None or optimizer is None:
            return self._lost(held)
        self.optimizers.add(optimizer)
        self._shared_parameters(held, optimizer, here)
        for what in (UNSCALED, STEPPED):
            self._repeated(held, optimizer, "unscale_", what, scaler, here)
        held = held.with_status(optimizer, UNSCALED, scaler)
        return held.marked(UNSCALED, optimizer, here.site)

    def _repeated(
        self,
        held: Held,
        optimizer: Key,
        call: str,
        before: str,
        scaler: Key,
        here: Here,
    ) -> None:
        """Judge what must not happen twice before an update."""
        mark = held.mark(before, optimizer)
        if mark is None:
            return
        wrong = held.state(optimizer) == before
        manner = (mark.around, mark.site, mark.left)
        if mark.left is not None:
            there = self._at(mark.left)
            self._judge(
                wrong,
                MISSING_UPDATE,
                here,
                manner,
                message=f"this {there.kind} skips the scaler.update() that has to follow"
                " unscale_() or step(): the next iteration raises",
                scaler=scaler,
                told=mark.left,
            )
        elif not mark.around:
            self._judge(wrong, broken_by(call, before), here, manner, scaler=scaler)
        elif self._in_each_turn(mark):
            around = broken_by(call, before, behind_backward=True)
            told = mark.site if around == MISSING_UPDATE else None
            self._judge(wrong, around, here, manner, scaler=scaler, told=told)

    def _in_each_turn(self, mark: Mark) -> bool:
        """Whether what comes of going around loops does come in each turn."""
        return not mark.around or self.steadily(mark.around)

    def _step(
        self, held: Held, scaler: Key | None, optimizer: Key | None, here: Here
    ) -> Held:
        if scaler is None or optimizer is None:
            return self._lost(held)
        self.optimizers.add(optimizer)
        self.stepping[optimizer].add((scaler, here.function))
        self.turns.note("step", scaler, self._around)
        self.step_roots.add((scaler, self._active[0]))
        self.steps.setdefault(
            scaler, Fault(MISSING_UPDATE, here.function, here.place, scaler=scaler)
        )
        self._repeated(held, optimizer, "step", STEPPED, scaler, here)
        for module in self.owners.modules.get(optimizer) or ():
            half = held.mark(HALF, module)
            for site in self.halves.get(module, ()):
                wrong = half is not None and half.site == site
                self._judge(wrong, HALF_PARAMETERS, here, site, told=site)
        if held.state(optimizer) != UNSCALED:
            self._shared_parameters(held, optimizer, here)
        waiting = held.of(optimizer)
        kinds = {kind for kind, _ in waiting}
        if waiting:
            plain = held.mark(PLAIN, NOBODY)
            mixed = kinds in ({PLAIN, SCALED}, {PLAIN, STALE})
            wrong = kinds == {PLAIN} or mixed
            code = PARTLY_SCALED if mixed else NOT_SCALED
            self._judge(wrong, code, here)
            self._judge(
                False, NOT_SCALED if mixed or not wrong else PARTLY_SCALED, here
            )
            if wrong and plain is not None:
                self.blamed[here.event.line, here.event.column, here.function] = (
                    plain.site
                )
            others = {by for kind, by in waiting if kind in (SCALED, STALE)} - {scaler}
            self._judge(
                kinds <= {SCALED, STALE}
                and bool(others)
                and len(waiting) == len(others)
                and all(self.events.are_two(one, scaler) for one in others),
                broken_with("step", OTHER),
                here,
            )
            self._judge(
                kinds == {STALE} and held.state(optimizer) == READY and not others,
                UPDATED_BEFORE_STEP,
                here,
            )
        held = self._reborn(held, scaler, optimizer)
        held = held.used(optimizer).with_status(optimizer, STEPPED, scaler)
        lived = {one for one in held.lived if one[:2] != (scaler, optimizer)}
        lived.add((scaler, optimizer, frozenset()))
        held = replace(held, lived=frozenset(lived))
        held = held.marked(APPLIED, optimizer, here.site)
        updated = held.mark("update", scaler)
        loops = {(function, stmt.path) for function, stmt in self._around}
        if updated is None or updated.around & loops:
            # An update in the same turn stands in the wrong place, and that is told.
            held = held.marked(DUE, optimizer, here.site)
        return held.marked(STEPPED, optimizer, here.site)

    def _shared_parameters(self, held: Held, optimizer: Key, here: Here) -> None:
        """Judge gradients that another optimizer over the same parameters has been divided for."""
        others = [
            one
            for one, _, _ in held.status
            if one != optimizer and self.owners.have_all_in_common(one, optimizer)
        ]
        if others:
            self._judge(
                True,
                broken_by("unscale_", UNSCALED),
                here,
                message="another optimizer over the same parameters has had them unscaled: the"
                " gradients are divided by the scale twice",
            )

    def _update(self, held: Held, scaler: Key | None, here: Here) -> Held:
        if scaler is None:
            return self._lost(held)
        self.updates.add(scaler)
        checked = dict(held.checked).get(scaler)
        if any(
            asked and one != scaler and not self.events.are_two(one, scaler)
            for one, asked in held.checked
        ):
            # It may be the other scaler by another name.
            return self._lost(held)
        given = here.event.call is not None and bool(here.event.call.args)
        if checked is not None and not given:
            mark = held.mark("update", scaler)
            manner = (mark.around if mark else frozenset(), mark.site if mark else None)
            if mark is None or self._in_each_turn(mark):
                self._judge(
                    not checked, UPDATE_WITHOUT_STEP, here, manner, scaler=scaler
                )
        self._update_in_turn(held, scaler, here)
        held = held.updated(scaler)
        return held.marked("update", scaler, here.site)

    def _update_in_turn(self, held: Held, scaler: Key, here: Here) -> None:
        """Judge an update by the loop that it is in."""
        if self.turns.note("update", scaler, self._around):
            message = (
                "the scale may change in each iteration of the loop, between backwards that accumulate:"
                " update() belongs where step() is"
            )
            self.each_update[scaler] = Fault(
                UPDATED_BETWEEN, here.function, here.place, message, scaler=scaler
            )
        loop = next(
            (one for one in reversed(self._around) if one[1].kind in ("for", "while")),
            None,
        )
        if loop is None or loop[1].kind != "for" or not self._goes_through(*loop):
            return
        stepped = any(what == STEPPED and by == scaler for _, what, by in held.status)
        fed = self.turns.is_fed_outside(scaler, (loop[0], loop[1].path))
        self._judge(
            stepped and fed,
            UPDATED_BEFORE_STEP,
            here,
            message="the scale may change here, while other optimizers of the loop still hold"
            " gradients of this backward: update() belongs after the loop",
        )

    # -- without the scaler ---------------------------------------------------------------------

    def _plain_step(self, held: Held, optimizer: Key | None, here: Here) -> Held:
        if optimizer is None:
            return held
        self.steps_plainly = True
        waiting = held.of(optimizer)
        mark = held.mark(APPLIED, optimizer)
        if not waiting and mark is not None and not mark.around:
            # Where this statement follows whatever branch the scaler steps in, no test keeps them apart.
            certain = _follows(here.site, mark.site)
            self._judge(
                True,
                broken_with("plain-step", SCALED, STEPPED),
                here,
                certain or None,
            )
        if waiting:
            scaled = {kind for kind, _ in waiting} <= {SCALED, STALE}
            state = held.state(optimizer)
            for one in (READY, UNSCALED):
                wrong = scaled and state == one and not (one == READY and held.by_hand)
                self._judge(wrong, broken_with("plain-step", SCALED, one), here)
        # They were computed for this optimizer: what they are to another one is not told by the calls.
        return replace(held.used(optimizer), grads=held.grads - {(PLAIN, NOBODY)})

    def _touched(self, held: Held, here: Here) -> None:
        code = broken_with(here.event.kind, SCALED)
        if not any(kind in (SCALED, STALE) for kind, _ in held.grads):
            return
        if here.event.kind == "descend":
            raw = {kind for kind, _ in held.grads} <= {SCALED, STALE}
            wrong = raw and not held.by_hand and not held.status
            self._judge(
                wrong,
                code,
                here,
                message="parameters are changed here by gradients that are scaled",
            )
            return
        known = self.optimizers
        told = self.owners.of(here.event.subject, here.function, known, self)
        if here.event.kind == "clip":
            unscaled_apart = [one for one in told if held.state(one) == UNSCALED]
            wrong = len(unscaled_apart) > 1 and self._spreads(here)
            self._judge(wrong, ONE_NORM, here)
        meant = told or known
        clean = held.by_hand or not all(
            {kind for kind, _ in held.of(one)} == {SCALED} for one in meant
        )
        if here.event.call is not None:
            clean = clean or any(
                isinstance(inner, ir.Attr) and inner.attr == "get_scale"
                for inner in ir.walk(here.event.call)
            )
        states = [held.state(one) != READY for one in meant]
        unscaled = all(states) if told else any(states)
        alone = {kind for kind, _ in held.grads} == {SCALED} and self._is_all_by_hand
        if not meant and (held.by_hand or not alone):
            return
        wrong = not clean and not unscaled
        self._judge(wrong, code, here)

    def _spreads(self, here: Here) -> bool:
        """Whether a clip is by one norm of all, of which its function never asks whether it is finite."""
        call = here.event.call
        return (
            call is not None
            and ir.last_of(call.func) in ("clip_grad_norm_", "clip_grad_norm")
            and not any(
                ir.last_of(asked.func) in ("isfinite", "isnan", "isinf")
                for stmt in self.program.statements(here.function)
                for asked in calls_of(stmt)
            )
        )

    @cached_property
    def _is_all_by_hand(self) -> bool:
        """Whether nothing in the program unscales, nor steps."""
        return not any(
            {"unscale_", "step"} & (facts.identifiers | facts.strings)
            for facts in self.program.modules.values()
        )

    def _new_scaler(self, held: Held, scaler: Key | None, here: Here) -> Held:
        if scaler is None:
            return held
        kept = frozenset(one for one in held.checked if one[0] != scaler)
        status = frozenset(one for one in held.status if one[2] != scaler)
        held = replace(held, checked=kept, status=status)
        loops = {loop for s, _, around in held.lived if s == scaler for loop in around}
        if not loops or not self._is_straight(frozenset(loops)):
            return held
        return held.marked("reborn", scaler, here.site)

    def _is_straight(self, loops: frozenset[Site]) -> bool:
        """Whether no condition stands between some loop and here."""
        sites = [(function, stmt.path) for function, stmt in self._around]
        inside = [index for index, site in enumerate(sites) if site in loops]
        return bool(inside) and not any(
            stmt.kind in ("if", "try", "match")
            for _, stmt in self._around[inside[0] + 1 :]
        )

    def _reborn(self, held: Held, scaler: Key, optimizer: Key) -> Held:
        mark = held.mark("reborn", scaler)
        if mark is None:
            return held
        if any(one[:2] == (scaler, optimizer) for one in held.lived):
            self._told(REBORN, mark.site[0], self._at(mark.site))
        return held

    @staticmethod
    def _new_optimizer(held: Held, optimizer: Key) -> Held:
        return replace(
            held.used(optimizer),
            status=frozenset(one for one in held.status if one[0] != optimizer),
            lived=frozenset(one for one in held.lived if one[1] != optimizer),
            marks=frozenset(one for one in held.marks if one[1] != optimizer),
        )

    def _opaque(self, held: Held, here: Here) -> Held:
        event = here.event
        given = [arg.value for arg in event.call.args] if event.call else []
        for expr in (*given, event.scaler):
            key = self.key(expr, here.function)
            if key is not None:
                self.handed_on.add(key)
        return self._lost(held)

    @staticmethod
    def _lost(held: Held) -> Held:
        """Somebody unseen may have done anything."""
        grads = frozenset({(UNKNOWN, NOBODY)})
        return Held(grads=grads, lived=held.lived, entered=held.entered)


def _follows(later: Site, earlier: Site) -> bool:
    """Whether a statement stands in a block that an earlier one, or one around that, stands in too."""
    at = ir.distance(earlier[1], later[1]) if later[0] == earlier[0] else None
    return at is not None and at < 0


def protocol_of(context: Context) -> Protocol:
    """What was met on all ways through the program of a context, walked once."""
    return context.noted(_walked)


def _walked(context: Context) -> Protocol:
    events = AmpEvents(amp_of(context))
    found = Protocol(Owners(events.amp, events), events)
    for root in _roots(events):
        if found.walked > _MOST_STEPS_OF_ALL:
            # What begins here may be a witness for what others do wrong.
            found.unseen |= events.called_from(root)
        else:
            found.judge_from(root)
    return found


def _roots(events: AmpEvents) -> Iterator[str]:
    """Functions that nothing here calls, and that do anything that counts."""
    for qualname in events.read:
        kinds = events.kinds(qualname)
        counts = kinds & _OF_SCALERS or (kinds & _REGIONS and kinds & _IN_REGIONS)
        if counts and qualname not in events.called:
            if events.is_of_scaler(qualname):
                continue
            yield qualname
