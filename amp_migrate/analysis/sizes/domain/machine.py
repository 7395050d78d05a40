"""What all parts of the evaluation share: the program, the heap, the bounds, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from amp_migrate.analysis.sizes.domain.choices import choice
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.heap import Changes, Heap, boxes_in
from amp_migrate.analysis.sizes.domain.recording import Recorder
from amp_migrate.analysis.sizes.domain.values import (
    OPEN,
    Box,
    Choice,
    ClassValue,
    External,
    Frame,
    Known,
    Unknown,
    Value,
    World,
    confidence_of,
    weakened,
    weakest,
)
from amp_migrate.catalogue.layers import LayerTable
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir
from amp_migrate.program.link import Program

STEP = 60
"""What a step here takes of the effort that may go into a program."""
MAX_DEPTH = 40
"""Calls within calls."""
MAX_SAME = 12
"""Calls of one function within each other."""


class OutOfSteps(Exception):
    """One way into the program takes longer than it may; what it found so far holds."""


@dataclass(slots=True)
class Exit:
    """A way that left a function or loop on some condition, with what it had changed since it began."""

    value: Value
    changes: Changes


@dataclass(slots=True)
class Loop:
    """A loop that is being run: the ways that broke out of it, or went on to the next turn."""

    start: int
    turn: int
    breaks: list[Exit] = field(default_factory=list)
    continues: list[Exit] = field(default_factory=list)


@dataclass(slots=True)
class Activation:
    """One run of a function's body."""

    frame: Frame
    start: int
    value: Value = field(default_factory=lambda: Known(None))
    exits: list[Exit] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    doubtful: bool = False
    """It was left because of a test that says something else where somebody overrides a default."""


class Machine:
    """Runs code without values: base of the parts that know expressions, statements and calls."""

    def __init__(self, program: Program, table: LayerTable, recorder: Recorder) -> None:
        self.program = program
        self.table = table
        self.recorder = recorder
        self.heap = Heap()
        self.steps = 0
        self.limit = 0
        self.exhausted = False
        """Some way was not followed to its end."""
        self.path = Confidence.CERTAIN
        """How sure it is that what runs now runs at all."""
        self.quiet = 0
        """What is found now is not told: the values are not final."""
        self.calls: list[tuple[str, Given]] = []
        """The functions that run, with what they were called with."""
        self.forks = 0
        self.modules: dict[str, Frame] = {}
        self._of_libraries: dict[tuple[str, str], External] = {}
        """What a name in a function stands for that only imports, or nothing, bind."""
        self.at: ir.Stmt | None = None
        """The statement that runs."""

    # -- bounds -------------------------------------------------------------------------------

    def step(self) -> None:
        """Count one step; raises `OutOfSteps` behind the last."""
        self.steps += 1
        if self.steps > self.limit:
            self.out_of_steps()

    def out_of_steps(self) -> None:
        """End this way into the program, unless it gets more steps."""
        self.exhausted = True
        raise OutOfSteps

    def new_fork(self) -> int:
        """A number for a fork that no other has."""
        self.forks += 1
        return self.forks

    # -- boxes --------------------------------------------------------------------------------

    def write(self, box: Box, key: object, value: Value) -> None:
        """Change a box; what is written where only a default leads is no surer than that."""
        self.heap.write(box, key, weakened(value, self.path))

    def spoil(self, values: Iterable[Value], reason: str = "changed elsewhere") -> None:
        """Nothing that is read from these boxes is sure any more: something unseen gets hold of them."""
        for value in values:
            for box in boxes_in(value):
                if not isinstance(box, (Frame, ClassValue)):
                    self.heap.write(box, OPEN, Unknown(reason))
                    for key in list(box.state):
                        if key != OPEN:
                            self.heap.write(box, key, Unknown(reason))

    # -- ways ---------------------------------------------------------------------------------

    def each_way(self, value: Value, run: Callable[[Value], Value]) -> Value:
        """``run`` on each of several possible values, from the same state; the states are joined."""
        if not isinstance(value, Choice):
            return run(value)
        mark = len(self.heap.log)
        found: list[tuple[World, Value]] = []
        total: Changes | None = None
        confidence = weakest(self.path, confidence_of(value))
        for world, one in value.alternatives:
            outer, self.path = self.path, confidence
            try:
                found.append((world, run(one)))
            finally:
                self.path = outer
            changes = self.heap.changes(mark)
            self.heap.undo(mark)
            if total is None:
                total = changes
            else:
                self.heap.join(total, changes, self.new_fork())
                total = self.heap.changes(mark)
                self.heap.undo(mark)
        self.heap.apply(total or {})
        return choice(found)

    # -- what the parts provide -----------------------------------------------------------------

    def evaluate(self, expr: ir.Expr, frame: Frame) -> Value:
        """What an expression is worth."""
        raise NotImplementedError

    def call(self, func: Value, given: Given, site: ir.Call, frame: Frame) -> Value:
        """What a call gives."""
        raise NotImplementedError

    def attribute(self, value: Value, name: str) -> Value:
        """What ``value.name`` is worth."""
        raise NotImplementedError

    def item(self, value: Value, key: Value) -> Value:
        """What ``value[key]`` is worth."""
        raise NotImplementedError

    def elements(self, value: Value) -> tuple[Value, ...] | None:
        """What a loop over a value gets, in order; None where that is not known."""
        raise NotImplementedError

    def assign(self, target: ir.Expr, value: Value, frame: Frame) -> None:
        """Give a variable, attribute or entry a value."""
        raise NotImplementedError

    def module(self, file: str) -> Frame:
        """The variables of a file's top level, which is run if it was not."""
        raise NotImplementedError

    def decorated(self, made: Value, decorator: ir.Expr, frame: Frame) -> None:
        """Note what a library's decorator says of a function."""
        raise NotImplementedError
