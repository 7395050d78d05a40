"""Where ``unscale_`` and ``update`` go, found by running the protocol until nothing is left to place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from amp_migrate.analysis.objects.holders import Holders
from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.paths.aftermath import Aftermath
from amp_migrate.analysis.paths.association import Scalers, goes_through
from amp_migrate.analysis.paths.events import (
    Event,
    Events,
    innermost_loop,
    is_none_test,
)
from amp_migrate.analysis.paths.identity import order
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.paths.protocol import (
    Access,
    Fault,
    Placed,
    Placement,
    Protocol,
)
from amp_migrate.analysis.paths.walk import Frames, Site
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.catalogue.protocol import READY
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.each import HIDDEN
from amp_migrate.program.link import Program

_ROUNDS = 6

Steps = list[tuple[str, ir.Stmt, Slot]]
"""(function, statement, optimizer as it is named there) of every step."""


class Placer:
    """Places the scalers' calls for the optimizers of one group."""

    def __init__(
        self,
        program: Program,
        events: Events,
        slots: frozenset[Slot],
        backwards: frozenset[Site],
        steps: Steps,
        births: dict[Site, frozenset[Slot]],
        ownership: Ownership,
        scalers: Scalers,
        guarded: frozenset[Site],
        files: Collection[str],
        holders: Holders,
        newborn: frozenset[Site],
        live: Live | None,
    ) -> None:
        """``guarded``: steps that may find no gradients. ``files``: where the ways to the optimizers'
        steps may begin. ``newborn``: births of which no parameter has gradients. ``live``: what can
        run, where that is known."""
        self.live = live
        self.guarded = guarded
        self.files = files
        self.holders = holders
        self.program = program
        self.events = events
        self.slots = slots
        self.backwards = backwards
        self.steps = steps
        self.births = births
        self.newborn = newborn
        self.ownership = ownership
        self.scalers = scalers
        self.identities = scalers.identities
        self._known: dict[tuple[object, ...], Protocol] = {}

    def place(self) -> Placement | Refusal:
        """A placement that no way faults, or the reason why there is none."""
        refusals: list[Refusal] = []
        for placed in map(self._place, self._updates()):
            if isinstance(placed, Placement):
                return placed
            refusals.append(placed)
        return refusals[0]

    def _updates(self) -> Iterator[set[Placed]]:
        """Where the updates may go, best first: behind the last step of a scaler in its block, or in
        the block that holds all its steps, or all those of a loop."""
        turns: dict[tuple[object, ...], list[list[Placed]]] = {}
        outer: dict[tuple[object, ...], list[Placed]] = {}
        looped: dict[tuple[object, ...], list[Placed]] = {}
        for function, stmt, slot in sorted(
            self.steps, key=lambda step: (step[0], step[1].line)
        ):
            scaler = self.scalers.of_slot(slot)
            path = self._end_of_turn(function, stmt.path)
            block = (function, path[:-1], path[-1][0])
            placed = (function, path, slot)
            loop = innermost_loop(self.program.functions[function], path)
            outer.setdefault((scaler, function), []).append(placed)
            looped.setdefault((scaler, function, loop), []).append(placed)
            in_block = turns.setdefault((scaler, block), [])
            if not in_block or slot in {other for _, _, other in in_block[-1]}:
                # An optimizer that steps again has begun another turn.
                in_block.append([])
            in_block[-1].append(placed)
        yield {turn[-1] for in_block in turns.values() for turn in in_block}
        if any(len(steps) > 1 for steps in outer.values()):
            yield {_behind_all(steps) for steps in outer.values()}
        if len(looped) > len(outer):
            yield {_behind_all(steps) for steps in looped.values()}

    def _end_of_turn(self, function: str, path: ir.Path) -> ir.Path:
        """A statement, or the loop around it that steps each of some optimizers."""
        for stmt in self.program.statements(function):
            around = stmt.kind == "for" and stmt.path == path[: len(stmt.path)]
            if around and goes_through(self.events, self.identities, function, stmt):
                return stmt.path
        return path

    def _place(self, updates: set[Placed]) -> Placement | Refusal:
        placement = Placement(update_after=updates, guarded=set(self.guarded))
        for _ in range(_ROUNDS):
            protocol = self._run(placement)
            if not protocol.accesses:
                break
            for access in sorted(protocol.accesses, key=_by_place):
                self._answer(access, placement)
        pending: dict[tuple[Site, frozenset[Slot]], Placed] = {}
        for (frames, one), states in protocol.exits.items():
            function, path = frames[-1]
            slot = None if READY in states else self._named_in(function, one, frames)
            if slot is not None:
                # Optimizers that share a scaler are updated at once.
                scaler = self.scalers.of_optimizer(one)
                pending.setdefault((frames[-1], scaler), (function, path, slot))
        if pending:
            placement.update_before |= set(pending.values())
            protocol = self._run(placement)
        if protocol.unguarded:
            placement.guarded |= protocol.unguarded
            protocol = self._run(placement)
        if protocol.idle:
            guarded = replace(placement, guarded=placement.guarded | protocol.idle)
            again = self._run(guarded)
            if not again.faults and not again.accesses:
                placement, protocol = guarded, again
        if protocol.faults and not self._run(placement, handlers=False).faults:
            protected = self._protected(placement)
            again = protocol if protected is None else self._run(protected)
            if protected is not None and not again.faults:
                placement, protocol = protected, again
        return self._judge(protocol, placement)

    def _protected(self, placement: Placement) -> Placement | None:
        """The placement with each step unscaled by itself, and updated however it ends.

        An exception between ``unscale_`` and ``update`` that somebody handles would leave the scaler
        in the middle of a step: the next one would be taken on gradients that are still scaled.
        None where steps share a scaler, lie inside one another, may find no gradients, or bind their
        optimizer's name themselves.
        """
        changed = Placement(
            set(placement.unscale_before), set(), set(), set(placement.guarded)
        )
        for function, path, slot in sorted(placement.update_after, key=str):
            if any(len(scaler) > 1 for scaler in self.scalers.of_slot(slot)):
                return None
            ones = self.identities.of_slot(slot)
            if any(
                (at, stmt.path) in placement.guarded
                and not ones.isdisjoint(self.identities.of_slot(stepped))
                for at, stmt, stepped in self.steps
            ):
                return None
            parent, (field, index) = path[:-1], path[-1]
            starts = [
                other[-1][1]
                for at, other, named in placement.unscale_before
                if (at, other[:-1], other[-1][0], named)
                == (function, parent, field, slot)
                and other[-1][1] <= index
            ]
            first = max(starts, default=index)
            start = (function, (*parent, (field, first)), slot)
            if not all(
                self._is_bound_alike(slot, function, start[1], stmt.path)
                for at, stmt, stepped in self.steps
                if (at, stepped) == (function, slot) and stmt.path[: len(path)] == path
            ):
                return None
            beside = [
                last
                for (at, other, _), last in changed.protected.items()
                if (at, other[:-1], other[-1][0]) == (function, parent, field)
                and other[-1][1] <= index
            ]
            if any(last >= first for last in beside) or _is_within(
                function, path, changed
            ):
                return None
            changed.unscale_before.add(start)
            changed.protected[start] = index
        changed.update_before = {
            (function, path, slot)
            for function, path, slot in placement.update_before
            if not _is_within(function, path, changed)
        }
        return changed

    def _run(self, placement: Placement, handlers: bool = True) -> Protocol:
        """What is met on all ways, which are walked once for each placement."""
        asked = (
            handlers,
            frozenset(placement.unscale_before),
            frozenset(placement.update_after),
            frozenset(placement.update_before),
            frozenset(placement.guarded),
            frozenset(placement.protected.items()),
        )
        if asked in self._known:
            return self._known[asked]
        protocol = self._known[asked] = Protocol(
            self.program,
            self.events,
            self.slots,
            self.backwards,
            self.births,
            self.ownership,
            self.scalers,
            placement,
            handlers,
            self.newborn,
            self.live,
            self.files,
        )
        for root in roots(self.program, self.events, self.files):
            protocol.run(root)
        return protocol

    def _judge(self, protocol: Protocol, placement: Placement) -> Placement | Refusal:
        faults = sorted(protocol.faults, key=_by_weight)
        if faults:
            plain = sorted(self._run(placement, handlers=False).faults, key=_by_weight)
            if not plain:
                reason = "an exception handler may leave a step halfway done"
                return Refusal("AMP034", reason, faults[0].line)
            # What an exception leaves behind is told as what it is, or not at all.
            return Refusal(plain[0].code, plain[0].reason, plain[0].line)
        if protocol.accesses:
            access = min(protocol.accesses, key=_by_place)
            reason = "scaled gradients are read or edited where they cannot be unscaled first"
            return Refusal("AMP030", reason, access.line)
        aftermath = Aftermath(self.program, protocol.leftovers)
        line = aftermath.harm()
        if line:
            reason = "gradients still count after their step, which a scaler may skip"
            if aftermath.raising:
                reason = (
                    f"{aftermath.raising}() raises where gradients are infinite, as they are "
                    "behind a step that a scaler skips"
                )
            return Refusal("AMP030", reason, line)
        line = Aftermath(self.program, protocol.collected).reaches_loss()
        if line:
            reason = (
                "a loss is made of gradients of earlier steps, which are infinite where "
                "a scaler skips one"
            )
            return Refusal("AMP030", reason, line)
        line = Aftermath(self.program, protocol.used).averages_reach_gradients()
        if line:
            reason = (
                "gradients are made of those of earlier steps, which are infinite where "
                "a scaler skips one"
            )
            return Refusal("AMP030", reason, line)
        steps = {(function, stmt.path) for function, stmt, _ in self.steps}
        missed = (self.backwards | steps) - protocol.visited
        if missed:
            line = min(self._line_of(site) for site in missed)
            return Refusal("AMP031", "no path that leads here was found", line)
        for site in placement.guarded & steps:
            if not self._backward_before(site):
                reason = "a step whose backward() is not on a path that is seen here"
                return Refusal("AMP031", reason, self._line_of(site))
        return self._all_or_none(protocol, placement)

    def _all_or_none(
        self, protocol: Protocol, placement: Placement
    ) -> Placement | Refusal:
        """The placement in which optimizers step together or not at all where one norm is of all their
        gradients: those that ``unscale_`` found finite get from it what is not."""
        line = self._spread_by_hand(protocol.by_hand)
        if line:
            reason = (
                "gradients of one optimizer go into those of another here, whose step a scaler does "
                "not skip where they are infinite"
            )
            return Refusal("AMP030", reason, line)
        for (way, optimizers), call in protocol.clips.items():
            function, path = way[-1]
            slots = [
                self._named_in(function, one, way)
                for one in sorted(optimizers, key=order)
            ]
            named = tuple(slot for slot in slots if slot is not None)
            known = placement.none_without_all.get(way[-1], (call, named))
            stmt = self.program.control(function).statements[path]
            if (
                call is None
                or not vocabulary.NORM_CLIPPERS.fullmatch(
                    self.program.origin(call.func, function) or ""
                )
                or stmt.kind not in ("expr", "assign", "annassign", "augassign")
                or len(named) < len(slots)
                or known != (call, named)
                or any(self._waits_for_update(one, placement) for one in optimizers)
            ):
                reason = (
                    "gradients of several optimizers are touched at once here: where those of one are "
                    "infinite, all of these must stand still, which cannot be seen to here"
                )
                return Refusal("AMP030", reason, self._line_of(way[-1]))
            placement.none_without_all[way[-1]] = call, named
            read = {
                site
                for site, sets in protocol.by_hand.items()
                if any(not one.isdisjoint(optimizers) for one in sets)
            }
            for site in sorted(read | protocol.leftovers):
                if not self._asks_for_none(*site):
                    reason = (
                        "gradients are read here that are dropped where those of another optimizer "
                        "are infinite: both are clipped together"
                    )
                    return Refusal("AMP030", reason, self._line_of(site))
        return placement

    def _spread_by_hand(self, touched: Mapping[Site, set[frozenset[Slot]]]) -> int:
        """The line that makes gradients of an optimizer of those of another; 0: none."""
        everybody = frozenset[Slot]().union(
            *(one for s in touched.values() for one in s)
        )
        lines = {self._line_of(site): sets for site, sets in touched.items()}
        for one in everybody if len(everybody) > 1 else ():
            origins = [s for s, sets in touched.items() if any(one in t for t in sets)]
            kept = [t for site in origins for t in touched[site]]
            # What is kept of gradients may be edited there where nothing says that it is any.
            beside = {
                stmt.line
                for function in {function for function, _ in origins}
                for stmt in self.program.statements(function)
            }
            for line in Aftermath(self.program, origins).gradients_made():
                if line in lines or line in beside:
                    own = [those for those in lines.get(line, kept) if one in those]
                    if not own or max(map(len, own)) > 1:
                        return line
        return 0

    def _waits_for_update(self, one: Slot, placement: Placement) -> bool:
        """Whether a scaler of its own is only updated where an optimizer has gradients."""
        return len(self.scalers.of_optimizer(one)) == 1 and any(
            (function, stmt.path) in placement.guarded
            and one in self.identities.of_slot(slot)
            for function, stmt, slot in self.steps
        )

    def _asks_for_none(self, function: str, path: ir.Path) -> bool:
        """Whether the loop around a statement asks of each gradient if there is one."""
        loop = innermost_loop(self.program.functions[function], path)
        return any(
            is_none_test(part) and any(map(_is_gradient, ir.children(part)))
            for stmt in self.program.statements(function)
            if stmt.path[: len(loop)] == loop
            for part in parts_of(stmt)
        )

    def _backward_before(self, site: Site) -> bool:
        """Whether some root that leads to a step also goes backward."""
        return any(
            {"backward", "step"} <= self.events.kinds(root)
            for root in roots(self.program, self.events, self.files)
            if root == site[0] or self._reaches(root, site[0], set())
        )

    def _reaches(self, function: str, target: str, seen: set[str]) -> bool:
        if function in seen:
            return False
        seen.add(function)
        for _, event in self.events.direct(function):
            for callee in event.callees:
                if callee == target or self._reaches(callee, target, seen):
                    return True
        return False

    def _line_of(self, site: Site) -> int:
        function, path = site
        return self.program.control(function).statements[path].line

    # -- answering an access --------------------------------------------------------------------

    def _answer(self, access: Access, placement: Placement) -> None:
        """Place an ``unscale_`` before an access, in the block where its step is."""
        frames = self._anchor(access)
        function, path = frames[-1]
        # Not in the turn of one of several optimizers: what is touched there may be another's.
        outer = self._end_of_turn(function, path)
        frames = (*frames[:-1], (function, outer))
        slot = self._named_in(function, access.optimizer, frames)
        if slot is None or (outer != path and self.identities.is_each(slot)):
            return
        path = outer
        step = self._nearest_step(function, path, access.optimizer)
        if step is None or self._is_for_another(function, path, step):
            placement.unscale_before.add((function, path, slot))
            return
        common = 0
        while common < min(len(path), len(step)) - 1 and path[common] == step[common]:
            common += 1
        if path[common][0] != step[common][0]:
            # Different branches of one statement: each for itself.
            placement.unscale_before.add((function, path, slot))
            return
        own = self._same_test(function, path, step, common)
        if own is not None:
            # Where there is no optimizer, there is nothing to unscale.
            common = own
        block = path[:common]
        child = (*block, path[common])
        for other, existing, same_slot in list(placement.unscale_before):
            same = (
                other == function and same_slot == slot and existing[:-1] == child[:-1]
            )
            if same and existing[-1][0] == child[-1][0]:
                if existing[-1][1] <= child[-1][1]:
                    return
                placement.unscale_before.discard((other, existing, same_slot))
        placement.unscale_before.add((function, child, slot))
        if own is not None:
            return
        holder = (*block, step[common])
        for placed in list(placement.update_after):
            if placed[:2] == (function, step) and holder != step:
                # The step stands under a condition of its own: every way on meets one update behind it.
                placement.update_after.discard(placed)
                placement.update_after.add((function, holder, placed[2]))

    def _is_for_another(self, function: str, path: ir.Path, step: ir.Path) -> bool:
        """Whether gradients are made and read in a loop that steps some other optimizer on them, not this
        one: it clears them for its next round."""
        loop = innermost_loop(self.program.functions[function], path)

        def inside(at: str, other: ir.Path) -> bool:
            return at == function and other[: len(loop)] == loop

        return (
            not inside(function, step)
            and any(inside(*site) for site in self.backwards)
            and any(inside(at, stmt.path) for at, stmt, _ in self.steps)
        )

    def _same_test(
        self, function: str, path: ir.Path, step: ir.Path, common: int
    ) -> int | None:
        """How far a path leads into the branch of a test that a step is in, too, in another statement."""
        statements = self.program.control(function).statements

        def branches(of: ir.Path) -> list[tuple[int, tuple[ir.Expr | None, str]]]:
            return [
                (size, (statements[of[:size]].value, of[size][0]))
                for size in range(common + 1, len(of))
                if statements[of[:size]].kind == "if"
            ]

        of_step = [branch for _, branch in branches(step)]
        return next((size for size, one in branches(path) if one in of_step), None)

    def _named_in(self, function: str, one: Slot, frames: Frames) -> Slot | None:
        """A slot by which a function can name an optimizer on a way to it: its step's, or one in sight."""
        path = frames[-1][1] if frames else ()
        steps = [
            slot
            for at, stmt, slot in self.steps
            if at == function and self._is_bound_alike(slot, function, path, stmt.path)
        ]
        own = self.program.self_class(function)
        in_sight = [
            slot
            for slot in sorted(self.slots, key=order)
            if (
                slot.kind == "variable"
                and HIDDEN not in slot.name
                and self.program.encloses(slot.owner, function)
            )
            or (
                slot.kind == "attribute"
                and own is not None
                and own[1] in self.program.family(slot.owner)
            )
        ]
        held = [slot for _, slot in self.holders.stepped(function)]
        in_sight.sort(key=lambda slot: not self._is_bound(slot, function, path))
        return next(
            (
                slot
                for slot in (*steps, *in_sight, *held)
                if not slot.is_many and self.identities.on_way(slot, frames) == {one}
            ),
            None,
        )

    def _is_bound_alike(
        self, slot: Slot, function: str, path: ir.Path, step: ir.Path
    ) -> bool:
        """Whether a step's variable is at a place what it is where the step is: it may be an alias that
        is bound in between, or that of a comprehension."""
        if HIDDEN in slot.name:
            return False
        if slot.kind != "variable" or slot.owner != function:
            return True
        control = self.program.control(function)
        return control.reaching(slot.name, path) == control.reaching(slot.name, step)

    def _is_bound(self, slot: Slot, function: str, path: ir.Path) -> bool:
        """Whether a variable has a value at a place, whatever way leads there."""
        if slot.kind != "variable" or slot.owner != function:
            return True
        if self.program.is_param(function, slot.name):
            return True
        return not self.program.control(function).reaching(slot.name, path)[1]

    def _steps_one(self, event: Event, one: Slot) -> bool:
        """Whether an event may be a step of an optimizer, or a call that leads to one."""
        slots = set() if event.slot is None else {event.slot}
        if event.kind == "call":
            slots = {s for callee in event.callees for s in self.events.steps(callee)}
        elif event.kind != "step":
            return False
        return any(s in self.slots and one in self._may_be(s) for s in slots)

    def _may_be(self, slot: Slot) -> frozenset[Slot]:
        return self.identities.of_slot(slot) | {slot}

    def _anchor(self, access: Access) -> Frames:
        """The way to the statement, in the function where the step is, that leads to an access."""
        for index in range(len(access.frames) - 1, -1, -1):
            function, path = access.frames[index]
            steps_elsewhere = any(
                stmt.path[: len(path)] != path
                and self._steps_one(event, access.optimizer)
                for stmt, event in self.events.direct(function)
            )
            inside = any(
                "backward" in self.events.kinds(callee)
                for stmt, event in self.events.direct(function)
                if stmt.path[: len(path)] == path
                for callee in event.callees
            )
            if inside or self._is_managed(access.frames[index : index + 2]):
                # The backward happens in the callee: only there can anything come between.
                return access.frames[: min(index + 2, len(access.frames))]
            if steps_elsewhere:
                return access.frames[: index + 1]
        return access.frames

    def _is_managed(self, frames: Frames) -> bool:
        """Whether a way leads from a ``with`` into what it enters."""
        (function, path), *inner = frames
        return any(
            stmt.path == path and event.kind in ("prologue", "epilogue")
            for stmt, event in self.events.direct(function)
            if inner and inner[0][0] in event.callees
        )

    def _nearest_step(self, function: str, path: ir.Path, one: Slot) -> ir.Path | None:
        """The step (or the call that steps) with the deepest block in common, at or after a path."""
        best: ir.Path | None = None
        nearest = (-1, False)
        for stmt, event in self.events.direct(function):
            if not self._steps_one(event, one):
                continue
            common = 0
            while (
                common < min(len(path), len(stmt.path))
                and path[common] == stmt.path[common]
            ):
                common += 1
            near = (common, stmt.path[common:] >= path[common:])
            if near > nearest:
                best, nearest = stmt.path, near
        return best


def roots(program: Program, events: Events, files: Collection[str]) -> list[str]:
    """Functions that somebody unseen may call first: those that nothing here calls."""
    involved = [
        qualname
        for qualname in program.functions
        if ir.file_of(qualname) in files
        and {"backward", "step"} & events.kinds(qualname)
    ]
    found = [
        qualname
        for qualname in involved
        if not program.call_sites.get(qualname) or qualname in program.escaping
    ]
    if any(program.functions[one].name in _MANAGERS for one in found):
        entered = {
            callee
            for function, stmt in program.all_statements()
            if stmt.kind == "with" and id(stmt) not in program.class_statements
            for event in events.of(function, stmt)
            for callee in event.callees
        }
        found = [one for one in found if one not in entered]
    return found


_MANAGERS = ("__enter__", "__exit__")


def _behind_all(steps: list[Placed]) -> Placed:
    """Behind the last of some steps of one function, in the block that holds all of them."""
    function, path, slot = steps[-1]
    common = min(len(path) for _, path, _ in steps) - 1
    while any(other[:common] != path[:common] for _, other, _ in steps):
        common -= 1
    if any(other[common][0] != path[common][0] for _, other, _ in steps):
        common -= 1
    return function, path[: common + 1], slot


def _is_within(function: str, path: ir.Path, placement: Placement) -> bool:
    """Whether a statement belongs to a step that is protected."""
    for (at, start, _), last in placement.protected.items():
        found = ir.distance(path, start) if at == function else None
        if found is not None and 0 <= found <= last - start[-1][1]:
            return True
    return False


def _is_gradient(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Attr) and expr.attr == "grad"


def _by_weight(fault: Fault) -> tuple[int, int, str]:
    return (0 if fault.code == "AMP030" else 1, fault.line, fault.reason)


def _by_place(access: Access) -> tuple[Frames, tuple[str, ...]]:
    return access.frames, order(access.optimizer)
