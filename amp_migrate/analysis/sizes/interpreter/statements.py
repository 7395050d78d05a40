"""Statements: what they change, which ways they take, and what is left of it where that is not known."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.analysis.sizes.domain.heap import Changes
from amp_migrate.analysis.sizes.domain.machine import Activation, Exit, Loop
from amp_migrate.analysis.sizes.domain.values import (
    External,
    Frame,
    Imported,
    Known,
    Unknown,
    Value,
    weakened,
    weakest,
)
from amp_migrate.analysis.sizes.interpreter.assignments import Assignments
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir
from amp_migrate.program.bindings import IMPORTS

NEXT, RETURN, BREAK, CONTINUE, RAISE = "next", "return", "break", "continue", "raise"


Run = Callable[[], str]


class Statements(Assignments):
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
                self.assignment(stmt, frame)
            case "expr":
                if stmt.value is not None:
                    self.evaluate(stmt.value, frame)
                    if self._exits(stmt.value, frame):
                        return RAISE
            case "augassign":
                self.augmented(stmt, frame)
            case "return":
                result: Value = Known(None)
                if stmt.value is not None:
                    result = self.evaluate(stmt.value, frame)
                self.activation.value = weakened(result, self.path)
                return RETURN
            case "if":
                return self._if(stmt, frame)
            case "for":
                return self.for_loop(stmt, frame)
            case "while":
                return self.while_loop(stmt, frame)
            case "functiondef":
                self.define_function(stmt, frame)
            case "classdef":
                self.define_class(stmt, frame)
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
                    self.delete(target, frame)
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

    # -- ways ---------------------------------------------------------------------------------

    def blocks_of(self, stmt: ir.Stmt) -> dict[str, tuple[ir.Stmt, ...]]:
        return {block.field: block.body for block in stmt.blocks}

    def _if(self, stmt: ir.Stmt, frame: Frame) -> str:
        assert stmt.value is not None
        blocks = self.blocks_of(stmt)
        body, orelse = blocks.get("body", ()), blocks.get("orelse", ())
        if ir.is_top(frame.function) and self.recorder.is_main_test(stmt.value):
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
                self.leave(flow)
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

    def note_return(self) -> None:
        whole = self.heap.changes(self.activation.start)
        self.activation.exits.append(Exit(self.activation.value, whole))

    def leave(self, flow: str) -> None:
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
        body = self.blocks_of(stmt).get("body", ())
        if any(self._suppresses(expr, frame) for expr in stmt.exprs):
            return self._tried(body, (), [()], frame)
        return self.block(body, frame)

    def _suppresses(self, expr: ir.Expr, frame: Frame) -> bool:
        """Whether a ``with`` ends where its body raises, and the program goes on behind it."""
        if not isinstance(expr, ir.Call):
            return False
        origin = self.program.origin(expr.func, frame.function)
        return origin in ("contextlib.suppress", "pytest.raises")

    def _try(self, stmt: ir.Stmt, frame: Frame) -> str:
        blocks = self.blocks_of(stmt)
        handlers = [
            body for name, body in blocks.items() if name.startswith("handlers")
        ]
        body, orelse = blocks.get("body", ()), blocks.get("orelse", ())
        flow = self._tried(body, orelse, handlers, frame)
        after = self.block(blocks.get("finalbody", ()), frame)
        return flow if after is NEXT else after

    def _tried(
        self,
        body: tuple[ir.Stmt, ...],
        orelse: tuple[ir.Stmt, ...],
        handlers: list[tuple[ir.Stmt, ...]],
        frame: Frame,
    ) -> str:
        """Run what may raise, and what then runs."""

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
        return self.fork(ways) if handlers else whole()

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

    # -- what the next parts provide ------------------------------------------------------------

    def for_loop(self, stmt: ir.Stmt, frame: Frame) -> str:
        """Run a ``for``; how it is left."""
        raise NotImplementedError

    def while_loop(self, stmt: ir.Stmt, frame: Frame) -> str:
        """Run a ``while``; how it is left."""
        raise NotImplementedError

    def define_function(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Make the function of a ``def``."""
        raise NotImplementedError

    def define_class(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Make the class of a ``class``."""
        raise NotImplementedError


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
