"""Where a program trains on a GPU, and what runs in each step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.moves import Moves
from amp_migrate.analysis.objects.optimizers import Optimizers
from amp_migrate.analysis.paths.events import Events, innermost_loop
from amp_migrate.analysis.paths.loops import Finder, TrainingLoop
from amp_migrate.lint.context import Context
from amp_migrate.program import ir
from amp_migrate.program.control_flow import is_main_guard

_NO_TRAINING = ("AMP004", "AMP011")
"""A backward() that is not torch's, or on which no optimizer steps."""
_STEP_NAME = re.compile(
    r"(?i)step|batch|update|iter|optimi[sz]e|learn|train|closure|fit"
)
GAMES = frozenset("gym gymnasium pettingzoo atari_py ale_py dm_control".split())
"""Where the next input depends on what the model said, waiting is part of the method."""
_DATA = re.compile(r"(?i)load|valid|test|eval|(^|_)dl($|_)")


@dataclass(frozen=True, slots=True)
class Step:
    """Statements that run once for each step of training, on a GPU."""

    function: str
    path: ir.Path
    """Of the loop around them, or of the function that makes one step."""
    block: tuple[ir.Stmt, ...]
    at: ir.Stmt
    """The loop; where the function makes one step, its ``backward()``."""


@dataclass(frozen=True, slots=True)
class Always:
    """A statement that runs in each step, whatever is tested there."""

    stmt: ir.Stmt
    inner: ir.Stmt | None
    """The loop inside the step that it runs several times in."""


class Training:
    """Answers for one program; made once for all checks."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.program = context.program
        self.forward = self.program.noted(Forward)
        self._around: dict[str, frozenset[str]] = {}
        self._on_gpu: dict[str, bool] = {}

    # -- files --------------------------------------------------------------------------------

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """The files that each file of the program imports."""
        return {file: self.program.imports(file) for file in self.program.modules}

    def around(self, file: str) -> frozenset[str]:
        """The files that can take part where a file runs."""
        if file not in self._around:
            self._around[file] = self.program.around({file})
        return self._around[file]

    def calls_around(self, file: str) -> Iterator[tuple[str, ir.Call]]:
        """(function, call) of those files."""
        files = self.around(file)
        for function, _, call in self.program.all_calls():
            if ir.file_of(function) in files:
                yield function, call

    def reaches_gpu(self, file: str) -> bool:
        """Whether something in those files is put on a GPU."""
        if self.context.is_test(file):
            return False
        if self.speaks_of(file, "xla_device") and not self.speaks_of(file, "cuda"):
            return False  # a TPU
        return any(self._moves_there(one) for one in self.around(file))

    def is_demo(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement only tries out what its file is for, where the file is run itself."""
        file = ir.file_of(function)
        if not ir.is_top(function) or any(
            ir.file_of(step.function) == file for step in self.steps
        ):
            return False
        return any(
            outer.kind == "if"
            and outer.value is not None
            and is_main_guard(outer.value)
            and stmt.path[:1] == outer.path
            for outer in self.program.functions[function].body
        )

    def _moves_there(self, file: str) -> bool:
        if file not in self._on_gpu:
            moves = Moves(self.program, {file})
            self._on_gpu[file] = not all(map(moves.is_cpu, moves.all))
        return self._on_gpu[file]

    def trains(self, file: str) -> bool:
        """Whether a file takes part in training on a GPU."""
        files = self.around(file)
        there = any(ir.file_of(step.function) in files for step in self.steps)
        return there and self.reaches_gpu(file)

    def speaks_of(self, file: str, *names: str) -> bool:
        """Whether a name is mentioned in the files that take part, or in the texts of those unread."""
        modules = self.program.modules
        return any(
            not modules[one].identifiers.isdisjoint(names) for one in self.around(file)
        ) or any(
            name in text
            for text in self.context.sources.unread.values()
            for name in names
        )

    # -- steps --------------------------------------------------------------------------------

    @cached_property
    def events(self) -> Events:
        """What each statement does to training."""
        return Events(self.program, Optimizers(self.program))

    @cached_property
    def loops(self) -> list[TrainingLoop]:
        """The training loops of the program."""
        modules = self.program.modules.values()
        if not any("backward" in facts.identifiers for facts in modules):
            return []
        return Finder(self.program, self.events.optimizers, self.events).find()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """What runs in each step of the loops that torch trains in, in source order."""
        found: dict[tuple[str, ir.Path], Step] = {}
        for loop in self.loops:
            if loop.refusal is not None and loop.refusal.code in _NO_TRAINING:
                continue
            for step in self._steps_of(loop):
                found.setdefault((step.function, step.path), step)
        return tuple(found.values())

    def steps_in(self, file: str) -> tuple[Step, ...]:
        """The steps of a file that trains on a GPU."""
        own = tuple(step for step in self.steps if ir.file_of(step.function) == file)
        return own if own and self.reaches_gpu(file) else ()

    def _steps_of(self, loop: TrainingLoop) -> Iterator[Step]:
        scope = self.program.functions[loop.function]
        around = _statement(scope, loop.path)
        if around is not None:
            yield Step(loop.function, loop.path, _body(around), around)
            return
        if loop.path != scope.path or ir.is_top(loop.function):
            # One backward at the top level, or in the body of a class: no step of many.
            return
        sites = self.program.call_sites.get(loop.function, ())
        callers = [
            (site.caller, outer)
            for site in sites
            if (outer := self._loop_around(site.caller, site.stmt.path)) is not None
        ]
        if not callers:
            # Whoever calls it out of sight does so in a loop if it is a step by its name.
            named = _STEP_NAME.search(scope.name)
            if sites or not named or "step" not in self.events.kinds(loop.function):
                return
        yield Step(loop.function, loop.path, scope.body, loop.backwards[0].stmt)
        for caller, outer in callers:
            yield Step(caller, outer.path, _body(outer), outer)

    def _loop_around(self, function: str, path: ir.Path) -> ir.Stmt | None:
        scope = self.program.functions[function]
        return _statement(scope, innermost_loop(scope, path))


def always(
    block: tuple[ir.Stmt, ...], inner: ir.Stmt | None = None
) -> Iterator[Always]:
    """The statements of a step that run each time; of an ``if``, only its test does."""
    for stmt in block:
        yield Always(stmt, inner)
        match stmt.kind:
            case "with":
                for nested in stmt.blocks:
                    yield from always(nested.body, inner)
            case "try" | "trystar":
                for nested in stmt.blocks:
                    if nested.field in ("body", "finalbody"):
                        yield from always(nested.body, inner)
            case "for" | "while" if not _evaluates(stmt):
                yield from always(_body(stmt), stmt)


def _evaluates(stmt: ir.Stmt) -> bool:
    """Whether a loop goes over data of its own, as an evaluation between steps does."""
    return (
        stmt.kind == "for"
        and stmt.value is not None
        and any(_DATA.search(ir.last_of(inner) or "") for inner in ir.walk(stmt.value))
    )


def _body(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return next((one.body for one in stmt.blocks if one.field == "body"), ())


def _statement(scope: ir.Function, path: ir.Path) -> ir.Stmt | None:
    """The statement at a path; None for the function's own."""
    if path == scope.path:
        return None
    return next((s for s in ir.statements(scope.body) if s.path == path), None)
