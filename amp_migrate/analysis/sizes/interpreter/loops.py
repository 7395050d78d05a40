"""Loops: turn by turn where the turns are known, else what is left of what they change."""

from __future__ import annotations

from amp_migrate.analysis.sizes.domain.choices import joined
from amp_migrate.analysis.sizes.domain.heap import Changes
from amp_migrate.analysis.sizes.domain.machine import Activation, Exit, Loop, OutOfSteps
from amp_migrate.analysis.sizes.domain.values import (
    Box,
    Choice,
    Frame,
    Known,
    Unknown,
    Value,
    is_whole,
    multiple_of,
    same,
    unknown_multiple,
)
from amp_migrate.analysis.sizes.interpreter.statements import (
    BREAK,
    CONTINUE,
    NEXT,
    RAISE,
    RETURN,
    Run,
    Statements,
)
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir

MAX_TURNS = 256
"""A loop over more items than these is one over an unknown number of them."""


MAX_IDLE_TURNS = 24
"""The same, where nothing in the loop leads to a layer: epochs, mostly."""


MAX_PASSES = 12


_MISSING = Known("missing")
_EITHER = "either"
"""How a loop ends that may have been broken out of, or not."""


class Loops(Statements):
    """Runs loops."""

    def for_loop(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        blocks = self.blocks_of(stmt)
        body, orelse = blocks.get("body", ()), blocks.get("orelse", ())
        target = stmt.targets[0]
        over = self.evaluate(stmt.value, frame)
        items = self.elements(over)

        def turn(value: Value) -> Run:
            def run() -> str:
                self.assign(target, value, frame)
                return self.block(body, frame)

            return run

        worth = self.recorder.mentions(stmt)
        if items is None or len(items) > (MAX_TURNS if worth else MAX_IDLE_TURNS):
            reason = over.reason if isinstance(over, Unknown) else "loop"
            flow = self.unknown_turns(turn(self._any_of(over, items, reason)))
        else:
            flow = self._known_turns([turn(item) for item in items])
        return self._behind(flow, orelse, frame)

    def _any_of(
        self, over: Value, items: tuple[Value, ...] | None, reason: str
    ) -> Value:
        if isinstance(over, Known) and isinstance(over.value, range):
            return Unknown(reason, whole=True)
        return Unknown(reason)

    def _behind(self, flow: str, orelse: tuple[ir.Stmt, ...], frame: Frame) -> str:
        if flow is NEXT and orelse:
            return self.block(orelse, frame)
        if flow is _EITHER and orelse:
            return self.fork([lambda: self.block(orelse, frame), lambda: NEXT])
        return NEXT if flow in (BREAK, _EITHER) else flow

    def _known_turns(self, turns: list[Run]) -> str:
        loop = Loop(len(self.heap.log), 0)
        self.activation.loops.append(loop)
        ended = NEXT
        try:
            for turn in turns:
                loop.turn, loop.continues = len(self.heap.log), []
                flow = turn()
                if flow not in (NEXT, CONTINUE):
                    if not loop.continues:
                        ended = flow
                        break
                    # Some ways left the loop, others go on with the next turn.
                    if flow is RETURN:
                        self.note_return()
                    elif flow is BREAK:
                        self.leave(BREAK)
                    self.heap.undo(loop.turn)
                    self.heap.apply(loop.continues.pop().changes)
                self._join(loop.turn, loop.continues)
        finally:
            self.activation.loops.pop()
        return self._ended(loop, ended)

    def _ended(self, loop: Loop, ended: str) -> str:
        if not loop.breaks:
            return RAISE if ended == "noted" else ended
        if ended in (RETURN, RAISE, "noted"):
            if ended is RETURN:
                self.note_return()
            self.heap.undo(loop.start)
            self.heap.apply(loop.breaks.pop().changes)
        self._join(loop.start, loop.breaks)
        if ended is BREAK:
            return BREAK
        return _EITHER if ended is NEXT else BREAK

    def _join(self, start: int, exits: list[Exit]) -> None:
        for one in exits:
            now = self.heap.changes(start)
            self.heap.undo(start)
            self.heap.join(one.changes, now, self.new_fork())

    def while_loop(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        blocks = self.blocks_of(stmt)
        body, orelse = blocks.get("body", ()), blocks.get("orelse", ())
        test = stmt.value
        mark = len(self.heap.log)
        turns = 0
        # Only a loop that counts to an end for sure is followed turn by turn.
        self.quiet += 1
        try:
            countable = self._counts(test, body, frame)
        finally:
            self.quiet -= 1
            self.heap.undo(mark)
        if countable is not None:
            turns = countable
            flow = self._known_turns([lambda: self._tested(test, body, frame)] * turns)
        else:

            def turn() -> str:
                self.condition(test, frame)
                return self.block(body, frame)

            flow = self.unknown_turns(turn)
        return self._behind(flow, orelse, frame)

    def _tested(self, test: ir.Expr, body: tuple[ir.Stmt, ...], frame: Frame) -> str:
        self.condition(test, frame)
        return self.block(body, frame)

    def _counts(
        self, test: ir.Expr, body: tuple[ir.Stmt, ...], frame: Frame
    ) -> int | None:
        """How many turns a ``while`` takes, where its test is known each time; None where it is not."""
        if _leaves(body):
            return None
        kept, self.activation = self.activation, Activation(frame, len(self.heap.log))
        try:
            for turns in range(33):
                known = self.condition(test, frame)
                if known is None or known.confidence is not Confidence.CERTAIN:
                    return None
                if not known.value:
                    return turns
                if self.block(body, frame) is not NEXT:
                    return None
        finally:
            self.activation = kept
        return None

    def unknown_turns(self, turn: Run) -> str:
        """A loop that runs any number of times: what it changes is no longer known when it runs."""
        start = len(self.heap.log)
        loop = Loop(start, start)
        before: dict[tuple[int, object], Value | None] = {}
        self.activation.loops.append(loop)
        exits = len(self.activation.exits)
        begun = Box.now()
        try:
            for attempt in range(MAX_PASSES + 1):
                taken = self.steps
                self.quiet += 1
                flow, changes = self._one_turn(loop, turn)
                self.quiet -= 1
                # What a turn makes for itself, it makes anew each time.
                old = {
                    place: one for place, one in changes.items() if one[0].born < begun
                }
                fresh = self._widen(old, before, attempt)
                if not fresh:
                    break
                del self.activation.exits[exits:]
            else:
                raise OutOfSteps
            if self.quiet:
                # Nobody listens: to take this turn again would change nothing.
                self.steps += self.steps - taken
                if self.steps > self.limit:
                    self.out_of_steps()
            else:
                del self.activation.exits[exits:]
                flow, changes = self._one_turn(loop, turn)
            broken = flow is BREAK or bool(loop.breaks)
            # What did not exist before was made by a turn, or nobody will ask for it.
            for (box_id, key), (box, name, value) in changes.items():
                if before.get((box_id, key), _MISSING) is None or name not in box.state:
                    self.heap.write(box, name, value)
        finally:
            self.activation.loops.pop()
        return _EITHER if broken else NEXT

    def _one_turn(self, loop: Loop, turn: Run) -> tuple[str, Changes]:
        """How a turn is left, and what it changes, which is undone."""
        mark = len(self.heap.log)
        loop.turn, loop.continues, loop.breaks = mark, [], []
        flow = turn()
        if flow is RETURN:
            self.note_return()
        changes = self.heap.changes(mark)
        for one in (*loop.continues, *loop.breaks):
            changes = {**one.changes, **changes}
        self.heap.undo(mark)
        return flow, changes

    def _widen(
        self,
        changes: Changes,
        before: dict[tuple[int, object], Value | None],
        attempt: int,
    ) -> bool:
        """Forget what a turn changes; whether there was anything to forget."""
        fresh = False
        for place, (box, key, value) in changes.items():
            now = box.state.get(key)
            if now is not None and same(now, value):
                continue
            if isinstance(now, Unknown) and not _narrower(now, value):
                continue
            before.setdefault(place, now)
            wide: Value = Unknown("loop")
            if (
                now is not None
                and attempt < 2
                and _is_number(now)
                and _is_number(value)
            ):
                both = joined(now, value, self.new_fork())
                whole = is_whole(now) and is_whole(value)
                wide = unknown_multiple("loop", multiple_of(both), whole)
            if isinstance(box, Box):
                self.heap.write(box, key, wide)
            fresh = True
        return fresh


def _leaves(body: tuple[ir.Stmt, ...]) -> bool:
    return any(
        stmt.kind in ("break", "continue", "return", "raise")
        for stmt in ir.statements(body)
    )


def _is_number(value: Value) -> bool:
    if isinstance(value, Known):
        return isinstance(value.value, (int, float))
    if isinstance(value, Choice):
        return all(_is_number(one) for _, one in value.alternatives)
    return isinstance(value, Unknown)


def _narrower(wide: Unknown, value: Value) -> bool:
    """Whether a value need not be what an unknown one is said to be."""
    if not _is_number(value):
        return wide.multiple != 1 or wide.whole
    return multiple_of(value) % wide.multiple != 0 or (
        wide.whole and not is_whole(value)
    )
