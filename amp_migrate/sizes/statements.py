"""Statements: what they change, which ways they take, and what is left of it where that is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amp_migrate.facts import ir
from amp_migrate.findings import Confidence
from amp_migrate.project.bindings import IMPORTS
from amp_migrate.sizes.attributes import Attributes
from amp_migrate.sizes.machine import Activation, Exit, Loop, OutOfSteps
from amp_migrate.sizes.traces import link, source
from amp_migrate.sizes.values import (
    ITEMS,
    Absent,
    Box,
    Changes,
    Choice,
    ClassValue,
    External,
    Frame,
    Func,
    Imported,
    Instance,
    Known,
    Mapping_,
    Sequence,
    Tup,
    Unknown,
    Value,
    is_whole,
    joined,
    multiple_of,
    same,
    unknown_multiple,
    weakened,
    weakest,
)

NEXT, RETURN, BREAK, CONTINUE, RAISE = "next", "return", "break", "continue", "raise"

MAX_TURNS = 256
"""A loop over more items than these is one over an unknown number of them."""
MAX_IDLE_TURNS = 24
"""The same, where nothing in the loop leads to a layer: epochs, mostly."""
MAX_PASSES = 12

Run = Callable[[], str]


class Statements(Attributes):
    """Runs statements."""

    activation: Activation

    def block(self, body: tuple[ir.Stmt, ...], frame: Frame) -> str:
        """Run statements; how they are left."""
        for index, stmt in enumerate(body):
            flow = self.statement(stmt, frame)
            if flow is not NEXT:
                if self.activation.doubtful and flow is not RAISE:
                    self.activation.doubtful = False
                    self.speculate(body[index + 1 :], frame)
                    self.activation.doubtful = True
                return flow
        return NEXT

    def speculate(self, body: tuple[ir.Stmt, ...], frame: Frame) -> None:
        """Find what statements make that do not run unless a default is overridden."""
        if self.quiet or not any(self.recorder.mentions(stmt) for stmt in body):
            return
        mark = len(self.heap.log)
        kept = self.activation
        trial = Activation(frame, kept.start)
        trial.loops = [Loop(loop.start, loop.turn) for loop in kept.loops]
        self.activation = trial
        outer, self.path = self.path, weakest(self.path, Confidence.DEFAULT)
        try:
            self.block(body, frame)
        finally:
            self.activation, self.path = kept, outer
            self.heap.undo(mark)

    def statement(self, stmt: ir.Stmt, frame: Frame) -> str:
        """Run one statement; how it is left."""
        self.step()
        self.at = stmt
        match stmt.kind:
            case "assign" | "annassign":
                self._assign(stmt, frame)
            case "expr":
                if stmt.value is not None:
                    self.evaluate(stmt.value, frame)
                    if self._exits(stmt.value, frame):
                        return RAISE
            case "augassign":
                self._augmented(stmt, frame)
            case "return":
                result: Value = Known(None)
                if stmt.value is not None:
                    result = self.evaluate(stmt.value, frame)
                self.activation.value = weakened(result, self.path)
                return RETURN
            case "if":
                return self._if(stmt, frame)
            case "for":
                return self._for(stmt, frame)
            case "while":
                return self._while(stmt, frame)
            case "functiondef":
                self._function(stmt, frame)
            case "classdef":
                self._class(stmt, frame)
            case "with":
                return self._with(stmt, frame)
            case "try" | "trystar":
                return self._try(stmt, frame)
            case "match":
                return self._match(stmt, frame)
            case "raise":
                return RAISE
            case "break":
                return BREAK
            case "continue":
                return CONTINUE
            case "delete":
                for target in stmt.targets:
                    self._delete(target, frame)
            case kind if kind in IMPORTS:
                for name in stmt.names:
                    if name != "*":
                        self.write(frame, name, Imported(frame.function, name))
        return NEXT

    def _exits(self, expr: ir.Expr, frame: Frame) -> bool:
        """Whether a statement ends the program."""
        if not isinstance(expr, ir.Call) or _last(expr.func) not in _EXITS:
            return False
        func = self.evaluate(expr.func, frame)
        return isinstance(func, External) and func.origin in _EXITS.values()

    # -- assignments --------------------------------------------------------------------------

    def _assign(self, stmt: ir.Stmt, frame: Frame) -> None:
        if stmt.value is None:
            return
        value = self.evaluate(stmt.value, frame)
        for target in stmt.targets:
            named = value
            if isinstance(target, (ir.Name, ir.Attr)):
                named = self.traced(target, value, stmt)
            self.assign(target, named, frame)

    def traced(self, target: ir.Expr, value: Value, stmt: ir.Stmt) -> Value:
        """A number with the link of its chain that this statement is."""
        if isinstance(value, Known) and type(value.value) in (int, float):
            if target == stmt.value:
                return value
            trace = link(source(target), stmt.value, stmt.line, value.trace)
            return replace(value, trace=trace)
        return value

    def assign(self, target: ir.Expr, value: Value, frame: Frame) -> None:
        """Give a variable, attribute or entry a value."""
        match target:
            case ir.Name(id=name):
                self.write(self.home(name, frame), name, value)
            case ir.Display():
                parts = self.unpacked(value, target)
                for item, part in zip(target.items, parts, strict=True):
                    if isinstance(item, ir.Operation) and item.op == "starred":
                        item = item.operands[0]
                    self.assign(item, part, frame)
            case ir.Attr(value=base, attr=attr):
                self.set_attribute(self.evaluate(base, frame), attr, value)
            case ir.Item(value=base, key=key):
                held = self.evaluate(base, frame)
                if isinstance(key, ir.Operation) and key.op == "slice":
                    self.spoil([held], "slice")
                else:
                    self.set_item(held, self.evaluate(key, frame), value)

    def _augmented(self, stmt: ir.Stmt, frame: Frame) -> None:
        assert stmt.value is not None
        target = stmt.targets[0]
        before = self.evaluate(target, frame)
        value = self.evaluate(stmt.value, frame)
        if isinstance(before, Sequence) and stmt.op in ("+", "*"):
            result = self.operate(stmt.op, before, value)
            if stmt.op == "+" and not isinstance(value, Sequence):
                more = self.elements(value)
                result = self.operate(
                    "+", before, Unknown("list") if more is None else Tup(more)
                )
            held = result.state[ITEMS] if isinstance(result, Sequence) else None
            self.write(before, ITEMS, held or Unknown("list"))
            return
        if isinstance(before, Mapping_) and stmt.op == "|":
            self.fill(before, value)
            return
        result = self.operate(stmt.op, before, value)
        if isinstance(result, Known) and type(result.value) in (int, float):
            shown = ir.Operation(stmt.op, (target, stmt.value))
            trace = link(source(target), shown, stmt.line, result.trace)
            result = replace(result, trace=trace)
        self.assign(target, result, frame)

    def _delete(self, target: ir.Expr, frame: Frame) -> None:
        match target:
            case ir.Name(id=name):
                self.write(self.home(name, frame), name, Absent())
            case ir.Attr(value=base, attr=attr):
                held = self.evaluate(base, frame)
                if isinstance(held, Instance):
                    self.write(held, attr, Absent())
            case ir.Item(value=base, key=key):
                held = self.evaluate(base, frame)
                if isinstance(held, Mapping_):
                    entry = self.evaluate(key, frame)
                    if isinstance(entry, Known) and ("key", entry.value) in held.state:
                        self.write(held, ("key", entry.value), Absent())
                    elif not isinstance(entry, Known):
                        self.spoil([held], "deleted")
                elif isinstance(held, Sequence):
                    self.write(held, ITEMS, Unknown("list"))

    # -- ways ---------------------------------------------------------------------------------

    def _blocks(self, stmt: ir.Stmt) -> dict[str, tuple[ir.Stmt, ...]]:
        return {block.field: block.body for block in stmt.blocks}

    def _if(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        blocks = self._blocks(stmt)
        body, orelse = blocks.get("body", ()), blocks.get("orelse", ())
        if self.recorder.is_main_test(stmt.value) and ir.is_top(frame.function):
            return self.main_block(body, frame)
        test = self.condition(stmt.value, frame)
        if test is None:
            return self.fork(
                [lambda: self.block(body, frame), lambda: self.block(orelse, frame)]
            )
        taken, other = (body, orelse) if test.value else (orelse, body)
        if test.confidence is Confidence.CERTAIN:
            return self.block(taken, frame)
        self.speculate(other, frame)
        mark = len(self.heap.log)
        outer, self.path = self.path, weakest(self.path, test.confidence)
        try:
            flow = self.block(taken, frame)
            if flow is RAISE:
                # Nobody leaves the default as it is: the program refuses it.
                self.heap.undo(mark)
                return self.block(other, frame)
        finally:
            self.path = outer
        if flow is not NEXT:
            self.activation.doubtful = True
        return flow

    def main_block(self, body: tuple[ir.Stmt, ...], frame: Frame) -> str:
        """What stands under ``if __name__ == "__main__"``: run only where the file is the script."""
        raise NotImplementedError

    def fork(self, ways: list[Run]) -> str:
        """Run several ways from one state, of which one is taken; behind them stands either's result."""
        mark = len(self.heap.log)
        ends: list[Changes] = []
        returns: list[Exit] = []
        left: set[str] = set()
        for way in ways:
            flow = way()
            if flow is NEXT:
                ends.append(self.heap.changes(mark))
            elif flow is RETURN:
                whole = self.heap.changes(self.activation.start)
                returns.append(Exit(self.activation.value, whole))
            elif flow in (BREAK, CONTINUE) and self.activation.loops:
                self._leave(flow)
            left.add(flow)
            self.heap.undo(mark)
        if not ends:
            return self._all_left(returns, left)
        self.activation.exits += returns
        total = ends[0]
        for changes in ends[1:]:
            self.heap.join(total, changes, self.new_fork())
            total = self.heap.changes(mark)
            self.heap.undo(mark)
        self.heap.apply(total)
        return NEXT

    def _note_return(self) -> None:
        whole = self.heap.changes(self.activation.start)
        self.activation.exits.append(Exit(self.activation.value, whole))

    def _leave(self, flow: str) -> None:
        loop = self.activation.loops[-1]
        if flow is BREAK:
            loop.breaks.append(Exit(Known(None), self.heap.changes(loop.start)))
        else:
            loop.continues.append(Exit(Known(None), self.heap.changes(loop.turn)))

    def _all_left(self, returns: list[Exit], left: set[str]) -> str:
        """No way goes on behind the fork."""
        if BREAK in left or CONTINUE in left:
            self.activation.exits += returns
            # The loop takes up the ways that were noted.
            return "noted"
        if returns:
            last = returns.pop()
            self.activation.exits += returns
            self.heap.apply(last.changes)
            self.activation.value = last.value
            return RETURN
        return RAISE

    def _with(self, stmt: ir.Stmt, frame: Frame) -> str:
        for expr in stmt.exprs:
            if expr not in stmt.targets:
                self.evaluate(expr, frame)
        for target in stmt.targets:
            self.assign(target, Unknown("with"), frame)
        return self.block(self._blocks(stmt).get("body", ()), frame)

    def _try(self, stmt: ir.Stmt, frame: Frame) -> str:
        blocks = self._blocks(stmt)
        handlers = [
            body for name, body in blocks.items() if name.startswith("handlers")
        ]
        body, orelse = blocks.get("body", ()), blocks.get("orelse", ())

        def whole() -> str:
            flow = self.block(body, frame)
            return self.block(orelse, frame) if flow is NEXT else flow

        def broken(handler: tuple[ir.Stmt, ...]) -> str:
            # Anything that the body changes may have been changed already, or not.
            mark = len(self.heap.log)
            self.quiet += 1
            kept, self.activation = self.activation, Activation(frame, mark)
            self.activation.loops = [Loop(mark, mark)] if kept.loops else []
            try:
                self.block(body, frame)
            finally:
                self.activation = kept
                self.quiet -= 1
            passed = self.heap.passed(mark)
            self.heap.undo(mark)
            for changes in passed:
                self.heap.join(changes, {}, self.new_fork())
            return self.block(handler, frame)

        ways: list[Run] = [whole]
        ways += [lambda one=handler: broken(one) for handler in handlers]  # type: ignore[misc]
        flow = self.fork(ways) if handlers else whole()
        after = self.block(blocks.get("finalbody", ()), frame)
        return flow if after is NEXT else after

    def _match(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        self.evaluate(stmt.value, frame)
        for name in stmt.names:
            self.write(frame, name, Unknown("match"))
        ways: list[Run] = [
            lambda one=block.body: self.block(one, frame)  # type: ignore[misc]
            for block in stmt.blocks
        ]
        return self.fork([*ways, lambda: NEXT])

    # -- loops --------------------------------------------------------------------------------

    def _for(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        blocks = self._blocks(stmt)
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
        return NEXT if flow is BREAK else flow

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
                        self._note_return()
                    elif flow is BREAK:
                        self._leave(BREAK)
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
                self._note_return()
            self.heap.undo(loop.start)
            self.heap.apply(loop.breaks.pop().changes)
        self._join(loop.start, loop.breaks)
        return BREAK if ended is BREAK else NEXT

    def _join(self, start: int, exits: list[Exit]) -> None:
        for one in exits:
            now = self.heap.changes(start)
            self.heap.undo(start)
            self.heap.join(one.changes, now, self.new_fork())

    def _while(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        blocks = self._blocks(stmt)
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
                self.quiet += 1
                changes = self._one_turn(loop, turn, exits)
                self.quiet -= 1
                # What a turn makes for itself, it makes anew each time.
                changes = {
                    place: one for place, one in changes.items() if one[0].born < begun
                }
                fresh = self._widen(changes, before, attempt)
                if not fresh:
                    break
            else:
                raise OutOfSteps
            mark = len(self.heap.log)
            loop.turn, loop.continues, loop.breaks = mark, [], []
            flow = turn()
            if flow is RETURN:
                self._note_return()
            changes = self.heap.changes(mark)
            for one in (*loop.continues, *loop.breaks):
                changes = {**one.changes, **changes}
            self.heap.undo(mark)
            # What did not exist before was made by a turn, or nobody will ask for it.
            for (box_id, key), (box, name, value) in changes.items():
                if before.get((box_id, key), _MISSING) is None or name not in box.state:
                    self.heap.write(box, name, value)
        finally:
            self.activation.loops.pop()
        return NEXT

    def _one_turn(self, loop: Loop, turn: Run, exits: int) -> Changes:
        mark = len(self.heap.log)
        loop.turn, loop.continues, loop.breaks = mark, [], []
        turn()
        del self.activation.exits[exits:]
        changes = self.heap.changes(mark)
        for one in (*loop.continues, *loop.breaks):
            changes = {**one.changes, **changes}
        self.heap.undo(mark)
        return changes

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

    # -- definitions --------------------------------------------------------------------------

    def _function(self, stmt: ir.Stmt, frame: Frame) -> None:
        function = self.program.functions[stmt.names[1]]
        scope = frame.parent if frame.receiver is _BODY else frame
        assert scope is not None
        defaults = tuple(
            (param.name, self.evaluate(param.default, frame))
            for param in function.params
            if param.default is not None
        )
        made: Value = Func(function, scope, defaults, None, frame.owner)
        self.recorder.made[function.qualname] = made
        for decorator in reversed(function.decorators):
            made = self._decorated(made, decorator, frame)
        self.write(self.home(stmt.names[0], frame), stmt.names[0], made)

    def _decorated(self, made: Value, decorator: ir.Expr, frame: Frame) -> Value:
        """What a decorator makes of a function; most keep what it does with its arguments."""
        maker = self.evaluate(decorator, frame)
        if isinstance(maker, External) or isinstance(decorator, ir.Call):
            self.recorder.decorated(self, made, decorator, frame)
            if isinstance(maker, (Unknown, External)):
                return made
        if isinstance(maker, Func) and self.gives_back(maker.function):
            return made
        if isinstance(maker, Func):
            from amp_migrate.sizes.machine import Given

            site = ir.Call(decorator, (), maker.function.line)
            result = self.call(maker, Given([made]), site, frame)
            return result if isinstance(result, Func) else Unknown("decorator")
        return made if isinstance(maker, Unknown) else Unknown("decorator")

    def gives_back(self, function: ir.Function) -> bool:
        """Whether a function returns its only parameter: a register, which is not followed."""
        raise NotImplementedError

    def _class(self, stmt: ir.Stmt, frame: Frame) -> None:
        facts = self.program.classes[stmt.names[1]]
        scope = frame.parent if frame.receiver is _BODY else frame
        assert scope is not None
        cls = ClassValue(facts, scope)
        cls.bases = tuple(self._base(base, frame) for base in facts.bases)
        cls.mro = _linear(cls)
        body = Frame(frame.function, scope, _BODY)
        body.owner = cls
        self.block(facts.body, body)
        for name, value in body.state.items():
            if isinstance(name, str):
                cls.state[name] = value
        self.recorder.classes.setdefault(facts.qualname, cls)
        held: Value = cls
        self.write(self.home(stmt.names[0], frame), stmt.names[0], held)

    def _base(self, base: ir.Expr, frame: Frame) -> Value:
        if isinstance(base, ir.Item):
            base = base.value  # Generic[T]
        return self.evaluate(base, frame)


_BODY = Known("class body")
"""What marks the frame of a class body as such: functions in it do not see its names."""
_MISSING = Known("missing")


_EXITS = {
    "exit": "sys.exit",
    "_exit": "os._exit",
    "quit": "builtins.quit",
    "": "builtins.exit",
}


def _last(expr: ir.Expr) -> str:
    if isinstance(expr, ir.Attr):
        return expr.attr
    return expr.id if isinstance(expr, ir.Name) else "?"


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


def _linear(cls: ClassValue) -> tuple[ClassValue, ...]:
    """The order in which a class and its bases are searched: C3, or one behind the other."""
    lists = [list(b.mro) for b in cls.bases if isinstance(b, ClassValue)]
    lists.append([b for b in cls.bases if isinstance(b, ClassValue)])
    found = [cls]
    while any(lists):
        lists = [one for one in lists if one]
        for one in lists:
            head = one[0]
            if not any(head in other[1:] for other in lists):
                break
        else:
            head = lists[0][0]
        found.append(head)
        lists = [[c for c in one if c is not head] for one in lists]
    return tuple(found)
