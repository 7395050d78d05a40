"""Every way into a program that the program itself decides, and what layers are made on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.heap import Heap
from amp_migrate.analysis.sizes.domain.machine import STEP, Activation, OutOfSteps
from amp_migrate.analysis.sizes.domain.recording import Recorder
from amp_migrate.analysis.sizes.domain.values import (
    ClassValue,
    Frame,
    Func,
    Instance,
    Mapping_,
    Sequence,
    Unknown,
    Value,
)
from amp_migrate.analysis.sizes.interpreter.construction import Construction
from amp_migrate.analysis.sizes.library.command_line import click_option
from amp_migrate.analysis.sizes.library.registry import model_of
from amp_migrate.analysis.sizes.shared import (
    changed_globals,
    gives_back,
    set_from_outside,
)
from amp_migrate.catalogue.layers import LayerTable
from amp_migrate.core import phases
from amp_migrate.core.deep import bounded
from amp_migrate.core.effort import spend
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings
from amp_migrate.program.link import Program
from amp_migrate.program.testing import is_test

MODULE_STEPS = 40_000
STATEMENT_STEPS = 500
"""What each statement of a file still gets when those before it used up all."""
MAIN_STEPS = 60_000
ENTRY_STEPS = 20_000
PATIENCE = 8_000
"""With so many steps, an entry has to find another layer, or other sizes of one, to get as many again."""
LEAST_PATIENCE = 1_000
"""With so many, where a program has more entries than steps for each."""
PROGRAM_STEPS = 650_000
_SHARES = {
    "files": 0.25,
    "mains": 0.45,
    "functions": 0.7,
    "classes": 0.85,
    "again": 0.95,
}
"""How much of the steps of a program may be spent when each kind of entry is through."""
_RECURSION = 8_000

Entry = TypeVar("Entry")


class Explorer(Construction):
    """Runs a program from every entry it has."""

    def __init__(
        self, program: Program, table: LayerTable, steps: int = PROGRAM_STEPS
    ) -> None:
        super().__init__(program, table, Recorder(program, table))
        self.spent = 0
        self.most = steps
        self.allowed = steps
        self._entry_limit = 0
        """How many steps the present entry may get in all."""
        self._patience = PATIENCE
        """How many steps it gets without finding anything."""
        self._news = 0
        """What was found when it got the last of them."""
        self._shares: Mapping[str, float] = {}
        self._mains: list[tuple[str, tuple[ir.Stmt, ...]]] = []
        self._registers: dict[str, bool] = {}
        self._outside = set_from_outside(program)

    # -- files --------------------------------------------------------------------------------

    def module(self, file: str) -> Frame:
        """The variables of a file's top level, which is run if it was not."""
        frame = self.modules.get(file)
        if frame is None:
            top = self.program.modules[file].top
            frame = self.modules[file] = Frame(top.qualname, None)
            # Whatever runs now is no part of what is being tried where it was asked for.
            kept, self.heap = self.heap, Heap()
            try:
                self._guarded(lambda: self._top(top, frame), MODULE_STEPS)
            finally:
                self.heap = kept
            for name in self._outside.get(file, ()):
                frame.state[name] = Unknown("set by another file")
        return frame

    def _top(self, top: ir.Function, frame: Frame) -> None:
        for stmt in top.body:
            self.activation = Activation(frame, len(self.heap.log))
            try:
                self.statement(stmt, frame)
            except (OutOfSteps, RecursionError):
                # Where one statement takes too long, the others still count.
                self.exhausted = True
                self.quiet, self.path, self.calls = 0, Confidence.CERTAIN, []
                self._give_up(stmt, frame)
                self.limit = self.steps + STATEMENT_STEPS

    def _give_up(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Forget what a statement that was not run to its end may have changed."""
        for one in ir.statements((stmt,)):
            for name, _, _ in bindings(one):
                frame.state[name] = Unknown("too long")
            for expr in one.exprs:
                for inner in ir.walk(expr):
                    if isinstance(inner, ir.Name):
                        self.spoil([frame.state.get(inner.id, Unknown(""))], "too long")

    def main_block(self, body: tuple[ir.Stmt, ...], frame: Frame) -> str:
        """What stands under ``if __name__ == "__main__"``: run after all files are read."""
        self._mains.append((ir.file_of(frame.function), body))
        return "next"

    def _guarded(
        self, run: Callable[[], object], limit: int, patience: int | None = None
    ) -> bool:
        """Run something within bounds; whether it came to its end."""
        kept = (self.steps, self.limit, self.quiet, self.path, self.calls, self.at)
        bounds = self._entry_limit, self._news
        activation = getattr(self, "activation", None)
        self._entry_limit = min(limit, max(self.allowed - self.spent, 0))
        self._news = self.recorder.news
        self.steps, self.limit = 0, min(patience or limit, self._entry_limit)
        self.quiet, self.path, self.calls = 0, Confidence.CERTAIN, []
        try:
            run()
        except (OutOfSteps, RecursionError):
            self.exhausted = True
            return False
        finally:
            self.spent += self.steps
            spend(STEP * self.steps)
            self.steps, self.limit, self.quiet, self.path, self.calls, self.at = kept
            self._entry_limit, self._news = bounds
            if activation is not None:
                self.activation = activation
        return True

    def out_of_steps(self) -> None:
        """Give an entry more steps if it found something with those it had."""
        if self.limit >= self._entry_limit or self.recorder.news == self._news:
            super().out_of_steps()
        self._news = self.recorder.news
        self.limit = min(self.limit + self._patience, self._entry_limit)

    # -- entries ------------------------------------------------------------------------------

    def explore(self) -> None:
        """Run all that there is to run.

        Tests come last, and tell of themselves only: what they make is small, and made to be looked at.
        """
        tests = frozenset(filter(is_test, self.program.modules))
        self._explore(frozenset(self.program.modules) - tests, _SHARES)
        self.recorder.in_tests = True
        self._explore(tests, {})

    def _explore(self, files: frozenset[str], shares: Mapping[str, float]) -> None:
        """Run what the files hold; ``shares``: see `_SHARES`."""
        recorder = self.recorder
        recorder.closed = True
        self._shares = shares
        self._until("files")
        for file in self.program.modules:
            if file in files:
                self.module(file)
        for frame in list(self.modules.values()):
            self._forget_shared(frame)
        self.heap.log.clear()
        self._until("mains")
        for file, body in self._mains:
            if file in files:
                run = partial(self.run, body, self.modules[file])
                self._from(run, MAIN_STEPS)
        recorder.closed = False
        self._enter_all("functions", self._free_functions(files), self._enter)
        self._enter_all("classes", self._classes(files), self._construct)
        again = partial(self._construct, again=True)
        self._enter_all("again", self._undecided(files), again)
        self._enter_all("", self._methods(files), self._run_method)

    def _until(self, kind: str) -> None:
        self.allowed = int(self._shares.get(kind, 1.0) * self.most)

    def _enter_all(
        self, kind: str, entries: list[Entry], enter: Callable[[Entry], None]
    ) -> None:
        """Run entries of a kind. Where they are many, one that finds nothing gets its share of the steps."""
        self._until(kind)
        left = len(entries)
        for one in entries:
            share = (self.allowed - self.spent) // left
            self._patience = min(max(share, LEAST_PATIENCE), PATIENCE)
            enter(one)
            left -= 1
        self._patience = PATIENCE

    def _from(self, run: Callable[[], object], limit: int = ENTRY_STEPS) -> None:
        if self.spent >= self.allowed:
            self.exhausted = True
            return
        run_by_now = len(self.recorder.reached)
        phases.at("following layer sizes", run_by_now, len(self.program.functions))
        mark = len(self.heap.log)
        self._guarded(run, limit, self._patience)
        self.heap.undo(mark)

    def _free_functions(self, files: frozenset[str]) -> list[Func]:
        """Functions that lead to layers: of each file one in turn."""
        ranks: Counter[str] = Counter()
        found: list[tuple[int, Func]] = []
        for name, made in self.recorder.made.items():
            if not isinstance(made, Func) or made.function.class_name is not None:
                continue
            if made.function.name in self.recorder.words:
                file = ir.file_of(name)
                if file in files:
                    found.append((ranks[file], made))
                    ranks[file] += 1
        found.sort(key=lambda one: one[0])
        return [made for _, made in found]

    def _enter(self, made: Func) -> None:
        """Call a function with its defaults, if nothing has called it."""
        function = made.function
        if function.qualname in self.recorder.reached:
            return
        given = Given(rest="default", line=function.line)
        site = ir.Call(ir.Name(function.name), (), function.line)
        self._from(lambda: self.call_function(made, given, site))

    def _classes(self, files: frozenset[str]) -> list[str]:
        return [name for name in self.recorder.classes if ir.file_of(name) in files]

    def _undecided(self, files: frozenset[str]) -> list[str]:
        """Classes that are made with unknown sizes only, by what is read from a file for example."""
        ready: dict[str, bool] = {}
        for one in self.recorder.found.values():
            owner = self.program.functions[one.function].class_name
            if owner is not None and ir.file_of(owner) in files:
                whole = any(
                    all(not isinstance(row[w], Unknown) for w in one.layer.widths)
                    for row in one.rows
                )
                ready[owner] = ready.get(owner, False) or whole
        return [name for name, whole in ready.items() if not whole]

    def _construct(self, name: str, again: bool = False) -> None:
        """Make an object of a class with its defaults, if nothing makes one or ``again``."""
        cls = self.recorder.classes[name]
        init = self.method(cls, "__init__")
        if not isinstance(init, Func) or init.function.class_name != name:
            return
        if not again and init.function.qualname in self.recorder.reached:
            return
        if cls.facts.name not in self.recorder.words:
            return
        site = ir.Call(ir.Name(cls.facts.name), (), cls.facts.line)
        given = Given(rest="default", line=cls.facts.line)
        self._from(lambda: self.instantiate(cls, given, site, cls.scope))

    def _methods(self, files: frozenset[str]) -> list[tuple[ClassValue, Func]]:
        """Methods that lead to layers, with their classes."""
        found = []
        for function in self.program.functions.values():
            if (
                function.class_name is None
                or function.qualname in self.recorder.reached
            ):
                continue
            if ir.file_of(function.qualname) not in files:
                continue
            cls = self.recorder.classes.get(function.class_name)
            if cls is None or not any(self.recorder.mentions(s) for s in function.body):
                continue
            made = cls.state.get(function.name)
            if isinstance(made, Func) and made.function is function:
                found.append((cls, made))
        return found

    def _run_method(self, entry: tuple[ClassValue, Func]) -> None:
        """Run what no constructor runs: ``forward`` of a made object, with unknown arguments."""
        cls, method = entry
        if method.function.qualname not in self.recorder.reached:
            self._from(lambda: self._called(cls, method))

    def _called(self, cls: ClassValue, method: Func) -> None:
        outer, self.quiet = self.quiet, self.quiet + 1
        site = ir.Call(ir.Name(cls.facts.name), (), cls.facts.line)
        made = self.instantiate(cls, Given(rest="default"), site, cls.scope)
        self.quiet = outer
        if isinstance(made, Instance):
            found = self.find(made, method.function.name)
            if isinstance(found, Func):
                given = Given(rest="default", line=method.function.line)
                self.call_function(found, given, site)

    # -- what libraries do ----------------------------------------------------------------------

    def model_of(self, origin: str) -> Callable[..., Value] | None:
        """What is known to happen in a library's function."""
        return model_of(origin)

    def decorated(self, made: Value, decorator: ir.Expr, frame: Frame) -> None:
        """Note the defaults of a command line that click hands to a function."""
        click_option(self, made, decorator, frame)

    def gives_back(self, function: ir.Function) -> bool:
        """Whether a function returns its only parameter: a register, which is not followed."""
        known = self._registers.get(function.qualname)
        if known is None:
            known = self._registers[function.qualname] = gives_back(function)
            home = self.modules.get(ir.file_of(function.qualname))
            if known and home is not None:
                # What it notes elsewhere is not seen.
                self._forget_shared(home)
        return known

    # -- what changes out of sight --------------------------------------------------------------

    def _forget_shared(self, frame: Frame) -> None:
        """Variables of a file that some function changes are not known when another one reads them."""
        file = ir.file_of(frame.function)
        for name in self._changed.get(file, ()):
            held = frame.state.get(name)
            if held is None:
                continue
            if isinstance(held, (Mapping_, Sequence, Instance)):
                self.spoil([held])
            frame.state[name] = Unknown("global")

    @property
    def _changed(self) -> Mapping[str, set[str]]:
        if self._changed_names is None:
            self._changed_names = dict(changed_globals(self.program))
        return self._changed_names

    _changed_names: dict[str, set[str]] | None = None


def explored(
    program: Program, table: LayerTable, steps: int = PROGRAM_STEPS
) -> Explorer:
    """A program that was run from every entry, as far as so many steps go."""
    explorer = Explorer(program, table, steps)
    # Calls of the program within calls are many more within the interpreter.
    with bounded(_RECURSION):
        explorer.explore()
    return explorer
