"""What may be wrong on the ways through a program under AMP, and when it is told."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amp_migrate.analysis.paths.walk import Site
from amp_migrate.catalogue.protocol import (
    PLAIN,
    READY,
    SCALED,
    STALE,
    STEPPED,
    UNSCALED,
    broken_by,
    broken_with,
)
from amp_migrate.core.findings import Severity
from amp_migrate.lint.misuse.order import conditions
from amp_migrate.lint.misuse.order.amp import Key
from amp_migrate.lint.misuse.order.events import AmpEvent, AmpEvents
from amp_migrate.lint.misuse.order.numerics import BCE, CUSTOM
from amp_migrate.lint.misuse.order.owners import Owners
from amp_migrate.lint.misuse.order.state import NOBODY, Held, Open
from amp_migrate.lint.misuse.order.turns import Turns
from amp_migrate.lint.misuse.order.typestate import Ways
from amp_migrate.program import ir

CLIPPED = broken_with("clip", SCALED)
EDITED = broken_with("edit", SCALED)
READ = broken_with("read", SCALED)
UNSCALED_BETWEEN = broken_with("backward", SCALED, UNSCALED)
MISSING_UPDATE = broken_by("step", STEPPED, behind_backward=True)
UPDATE_WITHOUT_STEP = broken_by("update", READY)
UPDATED_BEFORE_STEP = broken_with("step", STALE)
UPDATED_BETWEEN = broken_with("backward", STALE)
NOT_SCALED = broken_with("step", PLAIN)
REBORN = "AMP116"
HALF_PARAMETERS = "AMP118"
ONE_NORM = "AMP128"
BACKWARD_IN_REGION = "AMP201"
STEP_IN_REGION = "AMP202"
REENTERED = "AMP203"

PARTLY_SCALED = "AMP114 of some"
"""`NOT_SCALED` where other gradients of the step were: known only when all optimizers are."""

_SWITCH = re.compile(r"(?i)(^|_)(use)?amp(_|$)|fp16|half|mixed|autocast|scaler")
"""Names of what decides if AMP is on."""

_OF_ONE = frozenset((UNSCALED_BETWEEN, UPDATED_BETWEEN))
"""What is known to be wrong only where there is one optimizer: with two, either may be meant."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in one place, for those that come there in one manner."""

    code: str
    function: str
    at: ir.Call | ir.Stmt
    message: str = ""
    severity: Severity | None = None
    scaler: Key = NOBODY
    again: bool = False
    """It comes of going around a loop."""
    root: str = ""
    """Where the way begins on which it was met."""


@dataclass(frozen=True, slots=True)
class Here:
    """An event, and the statement on whose line it happens."""

    event: AmpEvent
    function: str
    stmt: ir.Stmt

    @property
    def site(self) -> Site:
        return self.function, self.stmt.path

    @property
    def place(self) -> ir.Call | ir.Stmt:
        """What a finding points at."""
        return self.event.call or self.stmt


class Judged(Ways):
    """Gathers what is wrong, and with it those who came to the same place in the same manner and were
    right: a way that a condition which is not read may rule out is never the only witness.
    """

    def __init__(self, owners: Owners, events: AmpEvents) -> None:
        super().__init__(events.amp, events)
        self.owners = owners
        self.bad: dict[tuple[object, ...], Fault] = {}
        self.good: set[tuple[object, ...]] = set()
        self.optimizers: set[Key] = set()
        """Those of one root that a scaler steps."""
        self.all_optimizers: set[Key] = set()
        self.stepping: dict[Key, set[tuple[Key, str]]] = defaultdict(set)
        """The scalers that step each optimizer, and the functions in which they do."""
        self.updates: set[Key] = set()
        self.handed_on: set[Key] = set()
        self.unseen: set[str] = set()
        """The functions that ways run, too, which were not walked."""
        self.halves: dict[Key, set[Site]] = defaultdict(set)
        """Where each module is made half."""
        self.steps: dict[Key, Fault] = {}
        self.step_roots: set[tuple[Key, str]] = set()
        """The scalers that step, and where the ways begin on which they do."""
        self.steps_plainly = False
        self.turns = Turns(events.amp.points_to)
        self.each_update: dict[Key, Fault] = {}
        """An update of each scaler that no test of a count is around."""
        self.blamed: dict[tuple[int, int, str], Site] = {}
        """The plain backward that a step is wrong for."""

    def judge_from(self, root: str) -> None:
        """Judge all ways that begin at a function."""
        before, good, steps = dict(self.bad), set(self.good), dict(self.steps)
        self.optimizers, self.steps_plainly = set(), False
        # The first walk tells which optimizers there are, the second judges.
        self.walk_from(root)
        if not self.is_exhausted:
            self.bad, self.good = dict(before), good
            self.walk_from(root)
        self.all_optimizers |= self.optimizers
        if self.is_exhausted:
            # The update that belongs to a step may lie behind where the walk ended.
            self.bad, self.steps = before, steps
            return
        alone = len(self.optimizers) == 1
        # Where all optimizers are the scaler's, no loss may do without it.
        unsure = set() if alone else _OF_ONE
        if not alone and self.steps_plainly:
            unsure |= {PARTLY_SCALED}
        for key, fault in list(self.bad.items()):
            if fault.code in unsure and key not in before:
                del self.bad[key]

    # -- telling --------------------------------------------------------------------------------

    def _judge(
        self,
        wrong: bool,
        code: str,
        here: Here,
        manner: object = None,
        *,
        message: str = "",
        scaler: Key = NOBODY,
        told: Site | None = None,
    ) -> None:
        """``told``: the statement that is to blame, where it is not where it is noticed."""
        place = here.place
        # By another call it is another manner.
        calls = tuple(site for site in self._frames if site[0] != here.function)
        key = (code, here.function, place.line, place.column, manner, told, calls)
        if not wrong:
            self.good.add(key)
            return
        again = isinstance(manner, tuple) and bool(manner[0])
        blamed = (here.function, place) if told is None else (told[0], self._at(told))
        root = self._active[0]
        self.bad[key] = Fault(code, *blamed, message, None, scaler, again, root)

    def _told(
        self, code: str, function: str, at: ir.Call | ir.Stmt, **more: str
    ) -> None:
        severity = Severity(more["severity"]) if "severity" in more else None
        key = (code, function, at.line, at.column, None)
        self.bad[key] = Fault(code, function, at, more.get("message", ""), severity)

    def faults(self) -> Iterator[Fault]:
        """What is wrong on every way."""
        strays = self.updates - self.steps.keys()
        silent = {
            scaler
            for scaler in self.steps
            if scaler not in self.updates
            and scaler not in self.handed_on
            and all(self.events.are_two(scaler, stray) for stray in strays)
        }
        for scaler in silent:
            yield self.steps[scaler]
        places = set()
        for scaler, fault in self.each_update.items():
            if self.turns.updates_in_each(scaler):
                places.add((fault.code, fault.function, fault.at.line, fault.at.column))
                yield fault
        for key, fault in self.bad.items():
            if key in self.good or (fault.again and fault.scaler in silent):
                continue
            if key[1] in self.unseen:
                continue
            if fault.code == UPDATE_WITHOUT_STEP and self._steps_elsewhere(fault):
                continue
            if fault.code in (NOT_SCALED, PARTLY_SCALED):
                step = (fault.at.line, fault.at.column, fault.function)
                site = self.blamed[step]
                fault = replace(
                    fault, code=NOT_SCALED, function=site[0], at=self._at(site)
                )
            place = (fault.code, fault.function, fault.at.line, fault.at.column)
            if place not in places:
                places.add(place)
                yield fault

    def _steps_elsewhere(self, fault: Fault) -> bool:
        """Whether something may step with a scaler that is not in sight where it is updated."""
        return any(
            (
                root != fault.root
                if scaler == fault.scaler
                else not self.events.are_two(scaler, fault.scaler)
            )
            for scaler, root in self.step_roots
        )

    # -- regions --------------------------------------------------------------------------------

    def entering(self, function: str, stmt: ir.Stmt, instance: Key | None) -> None:
        if instance is None or not any(one.instance == instance for one in self.open):
            return
        self._told(REENTERED, function, stmt)

    def _in_region(self, code: str, here: Here, held: Held) -> None:
        if self._region_at(here.stmt, held) is not None:
            self._told(code, here.function, here.place)

    def _region_at(self, stmt: ir.Stmt, held: Held) -> Open | None:
        """The region that is on where a statement runs, as far as its branch does not switch it off."""
        found = self.region(held)
        if found is None or found.region is None:
            return None
        off = found.region.enabled is None and self._is_switched_off(stmt)
        return None if off else found

    def _numeric(self, here: Here, held: Held) -> None:
        found = self.region(held)
        if found is None or found.region is None or self._is_switched_off(here.stmt):
            return
        if here.event.code == BCE:
            # Only the policies of CUDA and its like forbid it.
            told = found.region.device not in ("cpu", "mps")
        elif here.event.code == CUSTOM:
            told = True
        else:
            told = found.region.dtype == "float16"
        if told:
            event = here.event
            self._told(event.code, here.function, here.place, message=event.message)

    def _is_switched_off(self, stmt: ir.Stmt) -> bool:
        """Whether the code itself says that this is its branch without AMP."""
        for _, around in self._around:
            depth = len(around.path)
            if around.kind != "if" or around.value is None or around is stmt:
                continue
            if stmt.path[:depth] != around.path:
                continue
            test, outcome = conditions.plain(around.value)
            taken = (stmt.path[depth][0] == "body") is outcome
            named = filter(None, map(ir.last_of, ir.walk(test)))
            if not taken and any(map(_SWITCH.search, named)):
                return True
        return False

    def _step_in_region(self, here: Here, held: Held) -> None:
        found = self._region_at(here.stmt, held)
        if found is None or found.region is None:
            return
        around = [i for i, one in enumerate(self.open) if one.region]
        outermost = min((*around, *(one.depth - 1 for one in held.entered)))
        loops = [one for one in self.open[outermost + 1 :] if one.region is None]
        if loops and found.region.caches:
            self._told(STEP_IN_REGION, here.function, here.place)
        else:
            self._told(
                STEP_IN_REGION,
                here.function,
                here.place,
                severity="warning",
                message="the optimizer steps inside an autocast region; end the region before"
                " backward()",
            )

    def _at(self, site: Site) -> ir.Stmt:
        function, path = site
        return self.program.control(function).statements[path]
