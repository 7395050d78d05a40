"""What befalls gradients and scalers outside the scaler's own calls: births, plain steps, hands laid on."""

from __future__ import annotations

from dataclasses import replace

from amp_migrate.analysis.paths.walk import Site
from amp_migrate.catalogue.protocol import (
    PLAIN,
    READY,
    SCALED,
    STALE,
    STEPPED,
    UNSCALED,
    broken_with,
)
from amp_migrate.lint.misuse.order.amp import Key
from amp_migrate.lint.misuse.order.faults import REBORN, Here, Judged
from amp_migrate.lint.misuse.order.state import (
    APPLIED,
    NOBODY,
    Held,
)
from amp_migrate.program import ir


class Outside(Judged):
    """Judges what is done without asking the scaler."""

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
        if not meant:
            return
        wrong = not clean and not unscaled
        self._judge(wrong, code, here)

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


def _follows(later: Site, earlier: Site) -> bool:
    """Whether a statement stands in a block that an earlier one, or one around that, stands in too."""
    path, depth = later[1], len(later[1]) - 1
    return (
        later[0] == earlier[0]
        and earlier[1][:depth] == path[:depth]
        and earlier[1][depth][0] == path[depth][0]
        and earlier[1][depth][1] < path[depth][1]
    )
