"""Autocast regions: the smallest runs of whole statements that hold the forward of a loss.

A run lies in one block, statements keep their order, and nothing that steps, goes backward, changes
parameters or suspends the function is ever inside one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from amp_migrate.analysis.objects.forward import (
    ANY,
    DETACHES,
    LEAVES_TORCH,
    MODELS,
    MODULES,
    Forward,
    names_no_grad,
)
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.generators import Lazy
from amp_migrate.analysis.paths.loops import Backward, Refusal
from amp_migrate.analysis.paths.walk import Site
from amp_migrate.analysis.values.called import Called
from amp_migrate.migrate.regions.inner_gradients import InnerGradientsFinder
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of, unpacked
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition
from amp_migrate.sources.cells import cell_number


@dataclass(frozen=True, slots=True)
class Run:
    """Statements ``path`` .. index ``last`` of one block of ``function``."""

    function: str
    path: ir.Path
    last: int
    hoists: bool = False

    def holds(self, path: ir.Path) -> bool:
        """Whether a statement of its function is one of these, or inside one."""
        at = ir.distance(path, self.path)
        return at is not None and 0 <= at <= self.last - self.path[-1][1]


@dataclass(slots=True)
class _Slice:
    """The statements that a loss depends on."""

    function: str
    forward: set[ir.Path]
    members: set[ir.Path]
    """Paths of whole statements in the slice, the forward ones included."""
    needed: set[str] = field(default_factory=set)
    """Variables that the slice reads and does not make."""
    read: set[str] = field(default_factory=set)
    """Variables that the slice reads."""
    inside: set[str] = field(default_factory=set)
    """Variables that the functions read which it calls."""
    earlier: bool = False
    """It is what an earlier turn leaves for this one: without gradients, that is no part of a loss."""


_PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


class Regions:
    """Plans the regions of one program."""

    def __init__(
        self,
        program: Program,
        events: Events,
        forward: Forward,
        inner: InnerGradientsFinder,
    ) -> None:
        self.program = program
        self.events = events
        self.forward = forward
        self.inner = inner
        self._mutating: dict[str, bool] = {}
        self._lazy = Lazy(program, forward)
        self._slices: list[_Slice] = []
        """What the plan that is being made has followed so far."""
        self._kept_out: dict[Site, Backward] = {}
        """What must stand in no region, and what differentiates it."""
        self._holding: dict[str, Backward] = {}
        """The functions that it stands in."""
        self._kept_out_of: dict[str, Backward] = {}
        """The functions that this calls: no region may begin there."""
        self._withheld: Backward | None = None
        """What kept a statement out of the plan that is being made, if anything did."""
        self._cuts: tuple[str, ...] = LEAVES_TORCH
        """The methods behind which nothing is taken for a part of a loss."""

    def plan(self, backward: Backward) -> tuple[list[Run], bool] | Refusal:
        """The runs that hold the forward of a ``backward()``, and whether its loss is hoisted."""
        function, stmt = backward.function, backward.stmt
        receiver = backward.receiver
        hoists = self._must_hoist(receiver, function)
        self._slices, self._withheld = [], None
        needed = self.forward.reads_of(receiver, function, self._cuts)
        found = self._slice(function, stmt, needed, hoists)
        runs = self._runs_of(found, stmt.path if hoists else None)
        whole = any(self._computes(run) for run in runs)
        # What only calls read has most often nothing to do with the loss.
        hidden = found.inside - found.read - needed
        for left in (hidden, set[str]()) if hidden else (hidden,):
            needed |= found.needed - left
            elsewhere = self._runs_elsewhere(function, needed, runs, whole)
            if isinstance(elsewhere, Refusal):
                return elsewhere
            runs += elsewhere
            if any(map(self._computes, runs)):
                break
        runs = [one for run in runs for one in self._entered(run)]
        unfit = self._trains_inside(runs) or self._is_lazy(runs)
        if unfit is not None and self._cuts is LEAVES_TORCH:
            # What cannot run in a region may run outside, where the loss gives it no gradients.
            self._cuts = DETACHES
            without = self.plan(backward)
            self._cuts = LEAVES_TORCH
            return unfit if isinstance(without, Refusal) else without
        if unfit is not None:
            return unfit
        if not runs and not hoists and self._is_of_parameters(found):
            return [], False
        if not any(self._computes(run) for run in runs):
            return self._not_visible(receiver, function)
        return runs, hoists

    def keep_out(self, backwards: Iterable[Backward]) -> None:
        """Plan no region from now on that holds what one of some ``backward()`` differentiates."""
        for backward in backwards:
            control = self.program.control(backward.function)
            if backward.stmt.path not in control.statements:
                continue  # in the body of a class
            self.plan(backward)
            pending = list(self._slices)
            seen: set[str] = set()
            while pending:
                found = pending.pop()
                body = self.program.functions[found.function].body
                for stmt in ir.statements(body):
                    if any(stmt.path[: len(p)] == p for p in found.forward):
                        self._kept_out[found.function, stmt.path] = backward
                        self._holding[found.function] = backward
                        pending += self._keep_out_of(
                            stmt, found.function, backward, seen
                        )

    def _keep_out_of(
        self, stmt: ir.Stmt, function: str, backward: Backward, seen: set[str]
    ) -> Iterator[_Slice]:
        """Of the functions that a statement calls nothing is to be in a region; of those that train, what
        they give back is not."""
        for call in calls_of(stmt):
            for callee in self.program.callees(call, function):
                if callee in seen:
                    continue
                seen.add(callee)
                if "backward" in self.events.kinds(callee):
                    yield from self._slices_returned(callee)
                    continue
                self._kept_out_of[callee] = backward
                for inner in self.program.statements(callee):
                    yield from self._keep_out_of(inner, callee, backward, seen)

    def _slices_returned(self, function: str) -> list[_Slice]:
        """What the values depend on that a function returns."""
        forward = self.forward
        return [
            self._slice(
                function,
                stmt,
                forward.reads_of(stmt.value, function),
                forward.in_expression(stmt.value, function),
            )
            for stmt in self.program.statements(function)
            if stmt.kind == "return" and stmt.value is not None
        ]

    def keep_out_of(self, other: Regions) -> None:
        """The same as another plan of the program does."""
        self._kept_out, self._holding = other._kept_out, other._holding
        self._kept_out_of = other._kept_out_of

    def hold_kept_out(self, runs: Collection[Run]) -> bool:
        """Whether runs, or what these call, hold what none should."""
        return any(
            self._kept_out_in(stmt, run.function)
            for run in runs
            for stmt in self.statements_in(run)
        )

    def _kept_out_in(self, stmt: ir.Stmt, function: str) -> Backward | None:
        if not self._kept_out:
            return None
        here = self._kept_out.get((function, stmt.path))
        if here is None and function in self._kept_out_of:
            here = self._kept_out_of[function]
        if here is not None:
            return here
        called = self._called_by(stmt, function) & self._holding.keys()
        return self._holding[min(called)] if called else None

    def _not_visible(self, loss: ir.Expr, function: str) -> Refusal:
        """Says where an attribute is given the loss, if that is another function."""
        held = loss.value if isinstance(loss, ir.Attr) else None
        own, found = self.program.class_of_self(held, function), []
        if own is not None and isinstance(loss, ir.Attr):
            found = [
                made
                for made in self.program.attribute_definitions(own, loss.attr)
                if not isinstance(made.value, ir.Const)
            ]
        if found and all(made.function != function for made in found):
            name = self.program.functions[found[0].function].name
            shown = ir.render(loss)
            message = (
                f"{shown} is set by {name}(), and how it is made there is not followed"
            )
            return Refusal("AMP033", message, found[0].stmt.line)
        if self._withheld is not None:
            message = "a backward() that is left alone differentiates this forward, too"
            return Refusal("AMP033", message, self._withheld.event.line)
        message = "the forward computation of this loss is not visible here"
        return Refusal("AMP033", message)

    def _computes(self, run: Run) -> bool:
        """Whether a run holds more than a loss: a module, or a product of matrices."""
        return any(
            self.forward.in_statement(stmt, run.function, MODELS)
            for stmt in self.program.statements(run.function)
            if len(stmt.path) == len(run.path) and run.holds(stmt.path)
        )

    def _is_of_parameters(self, found: _Slice) -> bool:
        """Whether a loss is made of a parameter by itself, as a temperature's is: there is nothing in
        it that a region would run in half precision."""
        return any(
            isinstance(d.value, ir.Call)
            and (
                self.program.origin(d.value.func, d.function) in _PARAMETERS
                or any(
                    arg.name == "requires_grad" and arg.value == ir.Const(True)
                    for arg in d.value.args
                )
            )
            for variable in found.read
            for d in self._definitions(variable, found.function)
        )

    def _must_hoist(self, receiver: ir.Expr, function: str) -> bool:
        """Whether the receiver computes something that belongs into the region.

        Arithmetic and ``mean`` give the same inside and outside; every other call is moved inside.
        """
        for call in ir.calls_in(receiver):
            func = call.func
            plain = (
                isinstance(func, ir.Attr)
                and func.attr in ("mean", "squeeze")
                and not call.args
            )
            if not plain:
                return True
        return False

    # -- what no region may hold, or would not reach ----------------------------------------------

    def _entered(self, run: Run) -> list[Run]:
        """A run that is one call of a function which trains before it makes the loss (an attack on the
        inputs, say): the runs in there."""
        stmts = self.statements_in(run)
        call = stmts[0].value if len(stmts) == 1 else None
        if not isinstance(call, ir.Call) or not self._trains(run.function, stmts[0]):
            return [run]
        callees = self.program.callees(call, run.function)
        if len(callees) != 1 or any(
            self.forward.in_expression(arg.value, run.function) for arg in call.args
        ):
            return [run]
        inside = [
            inner
            for found in self._slices_returned(min(callees))
            for inner in self._runs_of(found, None)
        ]
        return inside or [run]

    def _trains_inside(self, runs: list[Run]) -> Refusal | None:
        """A loss that a call makes which trains as well."""
        for run in runs:
            for stmt in self.statements_in(run):
                if self._trains(run.function, stmt):
                    message = (
                        "the forward computation stands in a call that trains, too"
                    )
                    return Refusal("AMP033", message, stmt.line)
        return None

    def _trains(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether what a statement calls trains."""
        return any(
            {"backward", "step"} & self.events.kinds(callee)
            for event in self.events.of(function, stmt)
            for callee in self.events.brought(event)
        )

    def _is_lazy(self, runs: list[Run]) -> Refusal | None:
        """A forward that runs whenever a generator is advanced, not where the generator is made."""
        for found in self._slices:
            for variable in sorted(found.read):
                for definition in self._definitions(variable, found.function):
                    line = self._lazy.line_of(definition)
                    if line and not self._ends_inside(definition, variable, runs):
                        message = (
                            "a generator computes the forward whenever it is advanced"
                        )
                        return Refusal("AMP033", message, line)
        return None

    def _definitions(self, variable: str, function: str) -> list[Definition]:
        own = self.program.self_class(function)
        if "." not in variable:
            return self.program.defined(variable, function)
        if own is None:
            return []
        name, attr = variable.split(".", 1)
        read = ir.Attr(ir.Name(name), attr)
        return self.program.attribute_definitions(own[1], attr) + [
            made
            for getter, _, value in self.program.behind_property(read, function)
            for inner in ir.walk(value)
            if isinstance(inner, ir.Attr)
            for made in self.program.definitions_of(inner, getter)
        ]

    def _ends_inside(
        self, definition: Definition, variable: str, runs: list[Run]
    ) -> bool:
        """Whether the run that makes a generator uses it up."""
        function = definition.function
        body = self.program.functions[function].body
        if "." in variable:
            return False
        for run in runs:
            inside = {stmt.path for stmt in self.statements_in(run)}
            if run.function == function and definition.stmt.path in inside:
                return all(
                    stmt.path in inside
                    for stmt in ir.statements(body)
                    for expr in stmt.exprs
                    if variable in self.forward.reads_of(expr, function)
                )
        return False

    def statements_in(self, run: Run) -> list[ir.Stmt]:
        """The statements of a run, nested ones included, without a backward that is taken apart."""
        kept = replace(run, last=run.last - run.hoists)
        statements = self.program.statements(run.function)
        return [stmt for stmt in statements if kept.holds(stmt.path)]

    # -- slicing ------------------------------------------------------------------------------

    def _runs_before(
        self, function: str, stmt: ir.Stmt, needed: set[str], modules_only: bool
    ) -> list[Run]:
        found = self._slice(function, stmt, needed, False)
        # What the call itself computes, a turn before, is in regions of its own.
        found.forward.discard(stmt.path)
        found.members.discard(stmt.path)
        if modules_only and not self._reaches_modules(found):
            return []
        return self._runs_of(found, None)

    def _reaches_modules(self, found: _Slice) -> bool:
        body = self.program.functions[found.function].body
        return any(
            self.forward.in_statement(stmt, found.function, MODULES)
            for stmt in ir.statements(body)
            if stmt.path in found.forward
        )

    def _runs_of(self, found: _Slice, hoisted: ir.Path | None) -> list[Run]:
        if not found.forward:
            return []
        scope = self.program.functions[found.function]
        return self._assemble(scope, scope.body, found, hoisted)

    def _slice(
        self, function: str, stmt: ir.Stmt, needed: set[str], hoists: bool
    ) -> _Slice:
        """What ``needed`` depends on, back from a statement to the start of its loop or function."""
        scope = self.program.functions[function]
        needed = set(needed)
        found = _Slice(function, set(), set(), needed, set(needed))
        if hoists:
            found.forward.add(stmt.path)
            found.members.add(stmt.path)
            found.inside |= self.forward.reads_inside(stmt, function)
            needed |= found.inside
        self._slices.append(found)
        path = stmt.path
        carried: set[str] = set()
        while True:
            siblings, index = self._siblings(scope, path)
            for earlier in reversed(siblings[:index]):
                self._visit(earlier, needed, found)
            parent = path[:-1]
            if carried and not carried & needed:
                break
            if parent == scope.path:
                outside = {v for v in needed if self._outlives(v, function)}
                self._carry(scope.body, outside, found)
                break
            outer = self._statement(scope, parent)
            if outer.kind in ("for", "while"):
                bound = {
                    self.forward.variable(target, function)
                    for target, _, _ in unpacked(outer)
                }
                over = self._carry(outer.blocks[0].body, needed - bound, found)
                if over and over != carried:
                    # For the first turn it is made before the loop.
                    found.needed |= needed
                    carried = needed = over
                elif found.forward and not carried:
                    # What stands before the loop is not computed anew for each step.
                    break
            if outer.kind == "for" and outer.value is not None and not carried:
                needed |= self.forward.reads_of(outer.value, function)
            path = parent
        found.needed |= needed
        found.read |= found.needed - found.inside
        return found

    def _carry(
        self, body: tuple[ir.Stmt, ...], needed: set[str], found: _Slice
    ) -> set[str]:
        """Add what a loop's body makes for its next turn; the variables that carry it over, if any."""
        function = found.function
        changed = {
            variable
            for stmt in ir.statements(body)
            for variable in self._changed(stmt, function)
        }
        carried = {one for one in needed & changed if not self._is_module(one)}
        trial = _Slice(function, set(found.forward), set(found.members), earlier=True)
        wanted = set(carried)
        for _ in range(_MOST_TURNS):
            for stmt in reversed(body):
                self._visit(stmt, wanted, trial)
            wanted &= changed
        if trial.forward == found.forward:
            return set()
        if carried <= wanted and self._goes_backward_in(body, function):
            # Made of what it was before: a second backward() would go through the graph of the first.
            return set()
        found.forward |= trial.forward
        found.members |= trial.members
        found.read |= trial.read
        return carried

    def _is_module(self, variable: str) -> bool:
        """Whether what has a variable's name is a module somewhere."""
        return variable.split(".", 1)[-1] in self.forward.module_keys

    def _goes_backward_in(self, body: tuple[ir.Stmt, ...], function: str) -> bool:
        """Whether each turn of a loop goes backward, and keeps no graph for another time."""
        return any(
            "backward" in kinds
            for stmt in body
            if not stmt.blocks
            for event in self.events.of(function, stmt)
            for kinds in ({event.kind}, *map(self.events.kinds, event.callees))
        ) and not any(
            call.argument(1, "retain_graph") or call.argument(2, "create_graph")
            for _, _, call in self.program.calls_named("backward")
        )

    def _changed(self, stmt: ir.Stmt, function: str) -> set[str]:
        """Variables that a statement assigns, or lists to which it adds something."""
        changed: list[ir.Expr] = []
        if stmt.kind in ("assign", "annassign", "augassign"):
            changed += [target for target, _, _ in unpacked(stmt)]
        call = stmt.value
        if stmt.kind == "expr" and isinstance(call, ir.Call):
            if isinstance(call.func, ir.Attr) and call.func.attr in _ADDS:
                changed.append(call.func.value)
        found = {self.forward.variable(target, function) for target in changed}
        return {variable for variable in found if variable is not None}

    def _outlives(self, variable: str, function: str) -> bool:
        """Whether a variable keeps its value from one call of a function to the next."""
        if ir.is_top(function):
            return False
        return "." in variable or self.program.owner(variable, function) != function

    def _visit(self, stmt: ir.Stmt, needed: set[str], found: _Slice) -> None:
        function = found.function
        if stmt.kind in ("functiondef", "classdef"):
            return
        writes = self.forward.writes(stmt, function)
        if not writes & needed:
            return
        if found.earlier and stmt.kind == "with" and self._turns_gradients_off(stmt):
            return
        if stmt.blocks and self._must_open(stmt, function):
            self._open(stmt, needed, found)
            return
        if self._only_trains(stmt, function, needed):
            return
        kept_out = self._kept_out_in(stmt, function)
        self._withheld = self._withheld or kept_out
        if kept_out is None:
            found.members.add(stmt.path)
        if stmt.blocks:
            inside = self._inside(stmt, function, needed)
            computes, hidden = bool(inside.forward), inside.needed & inside.inside
            reads = inside.needed & inside.read
        else:
            computes = self._gives_gradients(stmt, function)
            reads = self.forward.uses(stmt, function, self._cuts)
            hidden = self.forward.reads_inside(stmt, function)
        if computes and kept_out is None:
            found.forward.add(stmt.path)
        needed -= self.forward.kills(stmt, function)
        needed |= reads | hidden
        found.read |= reads
        found.inside |= hidden

    def _open(self, stmt: ir.Stmt, needed: set[str], found: _Slice) -> None:
        """Visit what a compound statement holds."""
        wanted = set(needed)
        for block in reversed(stmt.blocks):
            inner = set(wanted)
            for child in reversed(block.body):
                self._visit(child, inner, found)
            needed |= inner

    def _inside(self, stmt: ir.Stmt, function: str, needed: set[str]) -> _Slice:
        """What a compound statement does for some variables."""
        found = _Slice(function, set(), set(), set(needed))
        for _ in range(_MOST_TURNS if stmt.kind in ("for", "while") else 1):
            self._open(stmt, found.needed, found)
        if self._gives_gradients(stmt, function):
            found.forward.add(stmt.path)
        # What a test reads decides what is computed, and gets no gradient from it.
        tested = stmt.kind in ("if", "while")
        if stmt.value is not None and (not tested or _binds(stmt.value)):
            reads = self.forward.reads_of(stmt.value, function, self._cuts)
            found.needed |= reads
            found.read |= reads
        return found

    def _gives_gradients(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a plain statement computes a part of a loss; what an optimizer of the program computes in
        its step, by a closure that it may be given, is none."""
        return self.forward.gives_gradients(stmt, function, self._cuts) and all(
            event.kind != "step" for event in self.events.of(function, stmt)
        )

    def _only_trains(self, stmt: ir.Stmt, function: str, needed: set[str]) -> bool:
        """Whether a call for its effect, or for the module that it gives back, has trained, and left behind
        what it no longer needs."""
        bound = {self.forward.variable(target, function) for target in stmt.targets}
        return all(map(self._is_module, needed & bound)) and any(
            {"backward", "step"} <= self.events.kinds(callee)
            for event in self.events.of(function, stmt)
            for callee in event.callees
        )

    def _must_open(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a compound statement cannot be wrapped as one piece, or need not be."""
        if stmt.kind == "with":
            return True
        return any(self.is_barrier(inner, function) for inner in ir.statements((stmt,)))

    def is_barrier(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether one statement's own line must stay outside every region."""
        if isinstance(stmt.value, ir.Const) and cell_number(stmt.value.value):
            # No region can begin in one cell of a notebook and end in another.
            return True
        if self.inner.follows(function, stmt) or self._kept_out_in(stmt, function):
            return True
        for event in self.events.of(function, stmt):
            if event.kind in ("backward", "step"):
                return True
            if any({"backward", "step"} & self.events.kinds(c) for c in event.callees):
                return True
        for inner in parts_of(stmt):
            if isinstance(inner, ir.Suspend):
                return True
        if stmt.kind == "with" and self._turns_gradients_off(stmt):
            return True
        return self._changes_parameters(stmt, function)

    def _turns_gradients_off(self, stmt: ir.Stmt) -> bool:
        names = {
            call.func.attr if isinstance(call.func, ir.Attr) else ir.key_of(call.func)
            for call in calls_of(stmt)
        }
        return bool(names & {"no_grad", "inference_mode"})

    def _changes_parameters(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether casts of weights made before a statement would be stale after it.

        ``p.data.clamp_()``, ``p.data = ...``, ``load_state_dict``, ``model.apply(f)``, and functions
        of the program that do such things.
        """
        for target in stmt.targets:
            if _mentions_data(target):
                return True
        for call in calls_of(stmt):
            if isinstance(call.func, ir.Attr):
                method = call.func.attr
                if method == "load_state_dict":
                    return True
                if method == "apply" and self.forward.is_module(
                    call.func.value, function
                ):
                    return True
                if method == "requires_grad_":
                    continue
                if method.endswith("_") and not method.startswith("_"):
                    if _mentions_data(call.func.value):
                        return True
            if any(
                self._mutates(callee) for callee in self.program.callees(call, function)
            ):
                return True
        return False

    def _mutates(self, function: str) -> bool:
        """Whether a function of the program changes parameters in place."""
        if function not in self._mutating:
            self._mutating[function] = False
            body = self.program.functions[function].body
            self._mutating[function] = any(
                self._changes_parameters(stmt, function) for stmt in ir.statements(body)
            )
        return self._mutating[function]

    # -- assembling ---------------------------------------------------------------------------

    def _assemble(
        self,
        scope: ir.Function,
        body: tuple[ir.Stmt, ...],
        found: _Slice,
        hoisted: ir.Path | None,
    ) -> list[Run]:
        """Runs over a block: consecutive members, from a forward statement on, between barriers."""
        runs: list[Run] = []
        first: int | None = None
        last = -1
        function = scope.qualname

        def close() -> None:
            nonlocal first
            if first is not None:
                end = self._last_needed(function, body, first, last)
                start = self._first_needed(body, first, end, found)
                runs.extend(self._tighten(function, body, start, end))
            first = None

        for index, stmt in enumerate(body):
            if stmt.path == hoisted:
                start = index if first is None else first
                runs.append(Run(function, body[start].path, index, hoists=True))
                first = None
            elif stmt.path in found.members and not (
                stmt.path not in found.forward and self.is_barrier(stmt, function)
            ):
                if first is None and stmt.path in found.forward:
                    first = index
                last = index
            elif any(_is_inside(path, stmt.path) for path in found.forward):
                close()
                for block in stmt.blocks:
                    runs += self._assemble(scope, block.body, found, hoisted)
            elif any(
                self.is_barrier(inner, function) for inner in ir.statements((stmt,))
            ):
                close()
        close()
        return runs

    def _first_needed(
        self, body: tuple[ir.Stmt, ...], first: int, last: int, found: _Slice
    ) -> int:
        """``first``, or the first statement behind it that runs a module, where what stands before only
        prepares data for that, with products (rays out of poses, say) that half precision would round.
        """
        function = found.function
        for index in range(first, last + 1):
            stmt = body[index]
            if self.forward.in_statement(stmt, function, MODULES):
                return index
            prepares = self.forward.in_statement(stmt, function, MODELS)
            if stmt.path in found.forward and not prepares:
                break
            if self._mentions_trained(stmt, function):
                break
        return first

    def _mentions_trained(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement, or what it calls, mentions what is trained but for modules."""
        program = self.program
        callees = program.called_from(
            callee
            for inner in ir.statements((stmt,))
            for call in calls_of(inner)
            for callee in program.callees(call, function)
        )
        within = [*ir.statements((stmt,))]
        within += [inner for callee in callees for inner in program.statements(callee)]
        return any(
            isinstance(part, (ir.Name, ir.Attr)) and ir.last_of(part) in self._trained
            for inner in within
            for part in parts_of(inner)
        )

    @cached_property
    def _trained(self) -> frozenset[str]:
        """The names of what is trained, but for modules: parameters, and other tensors with gradients."""
        found: set[str | None] = set()
        words = ("Parameter", "requires_grad", "requires_grad_")
        for _, stmt in self.program.mentioning(*words):
            found |= {ir.last_of(target) for target in stmt.targets}
            for part in parts_of(stmt):
                if isinstance(part, ir.Attr) and part.attr in words[1:]:
                    found.add(ir.last_of(part.value))
        return frozenset(name for name in found if name is not None)

    def _last_needed(
        self, function: str, body: tuple[ir.Stmt, ...], first: int, last: int
    ) -> int:
        """``last``, without trailing statements that use nothing computed in the run."""
        while last > first:
            made = {
                variable
                for stmt in body[first:last]
                for variable in self.forward.writes(stmt, function)
            }
            stmt = body[last]
            if self.forward.in_statement(stmt, function):
                break
            if made & self.forward.reads(stmt, function):
                break
            last -= 1
        return last

    def _tighten(
        self, function: str, body: tuple[ir.Stmt, ...], first: int, last: int
    ) -> list[Run]:
        """Go into a lone ``if`` or ``try`` all of whose forward stands in one of its blocks."""
        stmt = body[first]
        if first == last and stmt.kind in ("if", "try"):
            holding = [
                block
                for block in stmt.blocks
                if any(
                    self.forward.in_statement(child, function) for child in block.body
                )
            ]
            tested = stmt.value is not None and self.forward.in_expression(
                stmt.value, function
            )
            if len(holding) == 1 and not tested and not holding[0].body[0].is_elif:
                inner = holding[0].body
                indices = [
                    i
                    for i, child in enumerate(inner)
                    if self.forward.in_statement(child, function)
                ]
                return self._tighten(function, inner, indices[0], indices[-1])
        if stmt.is_elif:
            return []
        return [Run(function, stmt.path, last)]

    # -- losses that come from elsewhere --------------------------------------------------------

    def _runs_elsewhere(
        self, function: str, needed: set[str], before: list[Run], whole: bool
    ) -> list[Run] | Refusal:
        """Forward computations behind parameters, attributes and globals that a loss depends on.

        ``before``: those of the function itself; if there are some, only modules count elsewhere, since
        a functional on the way there is as likely to prepare data. ``whole``: whether some is of
        modules, so that what is kept from earlier is no part of the loss.
        """
        found = bool(before)
        runs: list[Run] = []
        scope = self.program.functions[function]
        own = self.program.self_class(function)
        for param in scope.params:
            if param.name not in needed or param.name == scope.self_name:
                continue
            for site in self.program.call_sites.get(function, []):
                value = self.program.argument_at(site, param.name)
                if value is None or self.forward.is_module(value, site.caller):
                    continue
                if self.forward.in_expression(
                    value, site.caller, MODULES if found else ANY
                ):
                    message = (
                        "a forward computation stands inside the call that passes it on"
                    )
                    return Refusal("AMP033", message, site.call.line)
                reads = self.forward.reads_of(value, site.caller)
                if whole and len(self._attributes(site.caller, reads)) == len(reads):
                    continue  # data that the caller's instance keeps
                runs += self._runs_before(site.caller, site.stmt, reads, found)
        inside = self._called_in(before)
        runs += self._runs_to_attributes(function, needed, found, inside, set())
        if not whole:
            kept = {(own[1], a) for a in self._attributes(function, needed) if own}
            more = [
                run
                for class_name, attr in sorted(kept | self._kept_by_others(function))
                for run in self._runs_to_kept(attr, class_name, function)
            ]
            runs += (run for run in more if not self._only_calls(run, more))
        outer = {
            v
            for v in needed
            if "." not in v and self.program.owner(v, function) != function
        }
        if not runs and not whole and not ir.is_top(function):
            # What a global holds was computed by somebody called before.
            for site in self.program.call_sites.get(function, []):
                runs += self._runs_before(site.caller, site.stmt, outer, found)
        if found:
            runs += self._runs_before_step(function, outer)
        return runs

    def _only_calls(self, run: Run, others: list[Run]) -> bool:
        """Whether what a run computes is in other runs, of functions that it calls."""
        inside = {other.function for other in others} - {run.function}
        return all(
            not inside.isdisjoint(self._called_by(stmt, run.function))
            for stmt in self.statements_in(run)
            if self.forward.in_statement(stmt, run.function, MODELS)
        )

    def _called_in(self, runs: list[Run]) -> set[str]:
        """The functions that the statements of some runs call, directly or through others."""
        return {
            one
            for run in runs
            for stmt in self.statements_in(run)
            for one in self._called_by(stmt, run.function)
        }

    def _called_by(self, stmt: ir.Stmt, function: str) -> set[str]:
        return {
            one
            for call in calls_of(stmt)
            for callee in self.program.callees(call, function)
            for one in self.events.called_from(callee)
        }

    def _attributes(self, function: str, needed: set[str]) -> list[str]:
        """The attributes of its instance that a function needs."""
        own = self.program.self_class(function)
        begin = "?" if own is None else f"{own[0]}."
        return [v.removeprefix(begin) for v in sorted(needed) if v.startswith(begin)]

    def _runs_to_attributes(
        self,
        function: str,
        needed: set[str],
        found: bool,
        inside: set[str],
        seen: set[Site],
    ) -> list[Run]:
        """Runs that end with what other methods give to attributes, and where these hold no module,
        those to the attributes that they are made of. ``inside``: functions that run in a region as it is.
        """
        own = self.program.self_class(function)
        runs: list[Run] = []
        for attr in self._attributes(function, needed):
            assert own is not None
            if self._is_called(attr, own[1]):
                continue  # a module: what makes it computes nothing
            for definition in self.program.attribute_definitions(own[1], attr):
                at, stmt = definition.function, definition.stmt
                elsewhere = self.program.functions[at]
                if at == function or elsewhere.name == "__init__":
                    continue
                if self.is_without_gradients(at, stmt):
                    continue
                if isinstance(definition.value, ir.Const) or (at, stmt.path) in seen:
                    continue
                if self._is_loop_over_data(definition):
                    continue
                seen.add((at, stmt.path))
                reads = self.forward.reads(stmt, at)
                made = []
                if at not in inside:
                    made = self._runs_to(at, stmt, set(reads), found)
                runs += made
                if not any(self._computes(run) for run in made):
                    runs += self._runs_to_attributes(at, reads, True, inside, seen)
        return runs

    def _is_called(self, attr: str, class_name: str) -> bool:
        """Whether instances call what an attribute holds."""
        family = self.program.family(class_name)
        for name in (attr, "forward"):
            for caller, _, call in self.program.calls_named(name):
                own = self.program.self_class(caller)
                if own is not None and own[1] in family:
                    held = ir.Attr(ir.Name(own[0]), attr)
                    if call.func in (held, ir.Attr(held, "forward")):
                        return True
        return False

    def is_without_gradients(
        self, function: str, stmt: ir.Stmt, called: tuple[str, ...] = ()
    ) -> bool:
        """Whether gradients are off where a statement stands, or wherever its function is ``called``: what it
        makes is data."""
        program = self.program
        if any(map(names_no_grad, program.functions[function].decorators)) or any(
            outer.kind == "with" and self._turns_gradients_off(outer)
            for outer in program.control(function).around(stmt.path)
        ):
            return True
        sites = program.call_sites.get(function, ())
        return (
            bool(sites)
            and function not in (*called, *program.escaping)
            and not program.noted(Called).sites_into(function)
            and all(
                self.is_without_gradients(site.caller, site.stmt, (*called, function))
                for site in sites
            )
        )

    def _kept_by_others(self, function: str) -> set[tuple[str, str]]:
        """The attributes of other instances that a loss is made of, by what was followed of it, each with
        its class: ``policy.log_probs``."""
        read = {
            variable
            for found in self._slices
            if found.function == function
            for variable in found.read | found.needed
        }
        return {
            (class_name, inner.attr)
            for stmt in self.program.statements(function)
            for inner in parts_of(stmt)
            if isinstance(inner, ir.Attr)
            and self.program.class_of_self(inner.value, function) is None
            and self.forward.variable(inner, function) in read
            for class_name in self.program.instance_classes(inner.value, function)
        }

    def _runs_to_kept(self, attr: str, class_name: str, function: str) -> list[Run]:
        """Runs that end with what other functions add to a list of an instance: ``self.log_probs``."""
        runs: list[Run] = []
        family = self.program.family(class_name)
        for adds in _ADDS:
            for other, stmt, call in self.program.calls_named(adds):
                match call.func:
                    case ir.Attr(value=ir.Attr(value=whose, attr=named)) if (
                        named == attr and other != function
                    ):
                        classes = self.program.instance_classes(whose, other)
                        if not family.isdisjoint(classes):
                            needed = {
                                variable
                                for arg in call.args
                                for variable in self.forward.reads_of(arg.value, other)
                            }
                            runs += self._runs_to(other, stmt, needed, True)
        return runs

    def _runs_before_step(self, function: str, outer: set[str]) -> list[Run]:
        """Modules whose results the closure of a step takes from the scope in which it is made."""
        runs: list[Run] = []
        for site in self.program.call_sites.get(function, []):
            if site.stmt.step is not None:
                own = {
                    v for v in outer if self.program.owner(v, function) == site.caller
                }
                runs += self._runs_before(site.caller, site.stmt, own, True)
        return runs

    def _is_loop_over_data(self, definition: Definition) -> bool:
        """``for self.x, self.y in loader``: what its body computes does not make them."""
        stmt = definition.stmt
        if stmt.kind != "for" or stmt.value is None:
            return False
        return not self.forward.in_expression(stmt.value, definition.function)

    def _runs_to(
        self, function: str, stmt: ir.Stmt, needed: set[str], modules_only: bool
    ) -> list[Run]:
        """Runs that end with a statement which makes a loss of some variables."""
        scope = self.program.functions[function]
        found = _Slice(function, set(), {stmt.path})
        if self.forward.in_statement(stmt, function) and not self._kept_out_in(
            stmt, function
        ):
            found.forward.add(stmt.path)
        found.read |= needed
        self._slices.append(found)
        siblings, index = self._siblings(scope, stmt.path)
        for earlier in reversed(siblings[:index]):
            self._visit(earlier, needed, found)
        if modules_only and not self._reaches_modules(found):
            return []
        return self._runs_of(found, None)

    # -- places -------------------------------------------------------------------------------

    def _siblings(
        self, scope: ir.Function, path: ir.Path
    ) -> tuple[tuple[ir.Stmt, ...], int]:
        field, index = path[-1]
        parent = path[:-1]
        if parent == scope.path:
            return scope.body, index
        outer = self._statement(scope, parent)
        return next(block.body for block in outer.blocks if block.field == field), index

    def _statement(self, scope: ir.Function, path: ir.Path) -> ir.Stmt:
        return next(stmt for stmt in ir.statements(scope.body) if stmt.path == path)


_MOST_TURNS = 3
_ADDS = ("append", "extend")


def _is_inside(path: ir.Path, outer: ir.Path) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


def _binds(expr: ir.Expr) -> bool:
    return any(isinstance(e, ir.Walrus) for e in ir.walk(expr))


def _mentions_data(expr: ir.Expr) -> bool:
    return any(isinstance(e, ir.Attr) and e.attr == "data" for e in ir.walk(expr))
