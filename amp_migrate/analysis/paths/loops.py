"""Training loops: every ``backward()``, the loop around it, and the optimizer that steps on it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from amp_migrate.analysis.objects import optimizers as opt
from amp_migrate.analysis.objects.availability import where_lost
from amp_migrate.analysis.objects.collections import key_of
from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.makers import CLOSURE, IN_ITS_OWN_WAY, WRAPPED
from amp_migrate.analysis.objects.optimizers import Optimizers, Slot
from amp_migrate.analysis.paths import gradients
from amp_migrate.analysis.paths.closures import Closures
from amp_migrate.analysis.paths.events import UNKNOWN, Event, Events, innermost_loop
from amp_migrate.analysis.paths.identity import order
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.core import phases
from amp_migrate.core.closure import reached
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, calls_of, each_call, parts_of
from amp_migrate.program.link import CallSite, Program

_STEPPERS = ("torch_xla.core.xla_model.optimizer_step",)
"""Functions that step the optimizer that they are given."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is left alone, and the line that blocked it (0: none but the loop's own)."""

    code: str
    """Empty where it is what is better done otherwise, and no reason to leave a loop alone."""
    message: str
    line: int = 0
    by_hand: tuple[str, ...] = ()
    """What to write by hand here; nothing: what the rule says."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a plan leaves to be done by hand, at a line."""

    line: int
    message: str


class Blocked(Exception):
    """A plan cannot be made; carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refused(code: str, message: str, line: int = 0) -> Blocked:
    """A refusal, to be raised."""
    return Blocked(Refusal(code, message, line))


@dataclass(slots=True)
class Backward:
    function: str
    stmt: ir.Stmt
    event: Event
    given: ir.Expr | None = None
    """What ``torch.autograd.backward(loss)`` is given."""

    @property
    def receiver(self) -> ir.Expr:
        """The expression whose ``backward`` is called."""
        call = self.event.call
        if self.given is not None:
            return self.given
        assert call is not None and isinstance(call.func, ir.Attr)
        return call.func.value


@dataclass(slots=True)
class TrainingLoop:
    """The ``backward()`` calls that share one innermost loop, or one function without a loop."""

    function: str
    path: ir.Path
    backwards: list[Backward] = field(default_factory=list)
    slots: frozenset[Slot] = frozenset()
    refusal: Refusal | None = None
    off: bool = False

    def refuse(self, refusal: Refusal) -> None:
        """The first reason found is the one that is told."""
        if self.refusal is None:
            self.refusal = refusal


_LOOPS = ("for", "while")
_FUNCTION = "torch.autograd.backward"
_PROBLEM_CODES = {
    CLOSURE: "AMP013",
    WRAPPED: "AMP014",
    opt.NOT_FOUND: "AMP010",
    opt.ENDLESS: "AMP010",
    opt.LOADED: "AMP040",
    opt.SEVERAL: "AMP012",
    opt.APEX: "AMP002",
    opt.FRAMEWORK: "AMP003",
}


_MAKES_TENSORS = re.compile(
    r"torch\.(nn\.functional\.|autograd\.Variable$|Tensor$|FloatTensor$|(?!load$)[a-z_0-9]+$)\w*"
)
_NAMES_STEP = re.compile(
    r"(?i)(opt|optim\w*|optimi[sz]er)_?step|step_?(opt\w*)|apply_grad\w*"
)
_STEPS_OTHERWISE = re.compile(
    r"(?i)sched|prof|timer|meter|progress|logger|writer|counter"
    r"|(^|[_.])(envs?|ema|sim|lr|p?bar|scaler|warmup|clock)(_|\d|\.|$)"
)
"""Names of things whose ``step()`` steps no optimizer."""


class Finder:
    """Finds the loops of a program and says for each which optimizer steps on it."""

    def __init__(
        self, program: Program, optimizers: Optimizers, events: Events
    ) -> None:
        self.program = program
        self.optimizers = optimizers
        self.events = events
        self.closures = Closures(program, optimizers)
        self.flow = Flow(program)
        self._amp_functions: dict[str, bool] = {}

    def find(self) -> list[TrainingLoop]:
        """Every training loop in source order, each with its optimizer's slots or a refusal."""
        loops: dict[tuple[str, ir.Path], TrainingLoop] = {}
        for qualname, stmt, event in self.events.calls_of("backward"):
            path = innermost_loop(self.program.functions[qualname], stmt.path)
            loop = loops.setdefault((qualname, path), TrainingLoop(qualname, path))
            given = self._given(event.call, qualname)
            loop.backwards.append(Backward(qualname, stmt, event, given))
        in_classes = self._in_class_bodies()
        found = sorted(loops.values(), key=lambda loop: loop.backwards[0].event.line)
        for loop in phases.each("judging training loops", found):
            loop.off = self.is_off(loop)
            for backward in loop.backwards:
                refusal = self._judge(backward)
                if refusal is not None:
                    loop.refuse(refusal)
            if loop.refusal is None:
                self._associate(loop)
        found += in_classes
        return sorted(found, key=lambda loop: loop.backwards[0].event.line)

    def _given(self, call: ir.Call | None, function: str) -> ir.Expr | None:
        """The variable that a call of torch.autograd.backward() is given."""
        if call is None or self.program.origin(call.func, function) != _FUNCTION:
            return None
        given = call.argument(0, "tensors")
        return given if isinstance(given, ir.Name) else None

    def _in_class_bodies(self) -> list[TrainingLoop]:
        """Loops that run while a class is made: no switch can stand among a class's attributes."""
        found: list[TrainingLoop] = []
        for owner in self.program.classes.values():
            loops: dict[ir.Path, TrainingLoop] = {}
            inside = tuple(ir.statements(owner.body))
            bound = {name for stmt in inside for name, _, _ in bindings(stmt)}
            for stmt in inside:
                for call in calls_of(stmt):
                    if not isinstance(call.func, ir.Attr):
                        continue
                    if call.func.attr != "backward":
                        continue
                    around = [
                        outer
                        for outer in inside
                        if outer.path == stmt.path[: len(outer.path)]
                    ]
                    loop_path = next(
                        (o.path for o in reversed(around) if o.kind in _LOOPS),
                        owner.path,
                    )
                    loop = loops.setdefault(
                        loop_path, TrainingLoop(owner.parent, loop_path)
                    )
                    event = Event("backward", call.line, call.column, call)
                    backward = Backward(owner.parent, stmt, event)
                    loop.backwards.append(backward)
                    marks = self.program.modules[ir.file_of(owner.parent)].off_lines
                    lines = {owner.line, *(outer.line for outer in around)}
                    loop.off = loop.off or self.is_off(loop) or bool(marks & lines)
                    loop.refuse(
                        self._judge(backward)
                        or self._judge_form(backward)
                        or Refusal(
                            "AMP016",
                            "this loop stands in the body of a class",
                            call.line,
                        )
                    )
            for loop in loops.values():
                loop.slots = self._slots_from_outside(inside, bound, loop.function)
                found.append(loop)
        return found

    def _slots_from_outside(
        self, inside: tuple[ir.Stmt, ...], bound: set[str], function: str
    ) -> frozenset[Slot]:
        """The optimizers around a class on which its body steps."""
        found = set()
        for stmt in inside:
            for call in calls_of(stmt):
                if isinstance(call.func, ir.Attr) and call.func.attr == "step":
                    root = (ir.dotted(call.func) or ("",))[0]
                    slot = self.optimizers.slot(call.func.value, function)
                    if slot is not None and root not in bound:
                        if self.optimizers.trace(slot).births:
                            found.add(slot)
        return frozenset(found)

    def is_off(self, loop: TrainingLoop) -> bool:
        """Whether a mark on the loop, around it or on its file leaves it alone."""
        facts = self.program.modules[ir.file_of(loop.function)]
        if facts.off:
            return True
        if not facts.off_lines:
            return False
        function: str | None = loop.function
        inner_path = loop.backwards[0].stmt.path
        while function is not None:
            scope = self.program.functions[function]
            control = self.program.control(function)
            for size in range(len(inner_path), len(scope.path), -1):
                stmt = control.statements.get(inner_path[:size])
                if stmt is not None and stmt.line in facts.off_lines:
                    return True
            if scope.line in facts.off_lines and not ir.is_top(function):
                return True
            inner_path = scope.path
            function = scope.parent
        return False

    # -- one backward -------------------------------------------------------------------------

    def _judge(self, backward: Backward) -> Refusal | None:
        """Why one ``backward()`` cannot be rewritten, judged by itself."""
        program, function = self.program, backward.function
        call, receiver = backward.event.call, backward.receiver
        assert call is not None
        line = call.line
        framework = self._framework(backward)
        scaled = _is_scaled(receiver)
        sites = list(self._amp_in_callers(function))
        if sites and not self._amp_around(function) and self._looks_by_itself(backward):
            if not any(map(self._is_under_autocast, sites)):
                message = "no optimizer steps on this backward()"
                return Refusal("AMP011", message, line)
        if sites or self._amp_around(function):
            # apex has nothing like `scaler.scale(loss).backward()`, also where its file has both.
            if "apex" in program.import_roots(function) and not scaled:
                return Refusal("AMP002", "apex.amp drives this loop", line)
            scaled = True
        if scaled:
            return Refusal("AMP001", "this loop is under AMP already", line)
        if framework is not None:
            return Refusal("AMP003", f"{framework} drives this loop", line)
        for _, other in each_call(program.functions[function].body):
            if (program.origin(other.func, function) or "") in _STEPPERS:
                message = f"{ir.render(other.func)}() {IN_ITS_OWN_WAY}"
                return Refusal("AMP014", message, other.line)
        written_as_function = program.origin(call.func, function)
        if written_as_function not in (None, _FUNCTION):
            message = f"{written_as_function}() is not a Tensor's backward()"
            if written_as_function == "torch.Tensor.backward":
                message = "backward() is called on the class, not on the loss"
            return Refusal("AMP004", message, line)
        if not self._may_have_tensors(function) and not self._is_stepped(backward):
            message = (
                "torch is not imported here, and nothing else shows this to be a Tensor"
            )
            return Refusal("AMP004", message, line)
        if _is_home_made(receiver, program, function):
            name = ir.key_of(receiver) or "the receiver"
            return Refusal(
                "AMP004",
                f"{name} is not a Tensor: its backward() is self-written",
                line,
            )
        rebound = self._torch_rebound(function)
        if rebound:
            line, message = rebound
            return Refusal("AMP035", message, line)
        return None

    def _may_have_tensors(self, function: str) -> bool:
        """Whether a file imports torch, or is called by files that do and hand it their tensors."""
        program = self.program

        def callers(one: str) -> Iterator[str]:
            if not program.import_roots(one) & {"torch", *vocabulary.OTHER_FRAMEWORKS}:
                yield from (site.caller for site in program.call_sites.get(one, ()))

        return any(
            "torch" in program.import_roots(one)
            for one in reached((function,), callers)
        )

    def _is_stepped(self, backward: Backward) -> bool:
        """Whether an optimizer of torch that is made in sight steps near a ``backward()``."""
        steps = self._steps_for(backward.function, backward.stmt.path, set())
        return any(self.optimizers.trace(slot).births for slot in steps)

    def _torch_rebound(self, function: str) -> tuple[int, str] | None:
        """The line of a function around that may give ``torch`` another meaning, and how."""
        current: str | None = function
        while current is not None and not ir.is_top(current):
            scope = self.program.functions[current]
            if "torch" in scope.bound and "torch" not in {
                name for name, _ in scope.imports
            }:
                message = "the name torch is bound to something else here"
                if self.program.is_param(current, "torch"):
                    message = "torch is a parameter here, and what it is given is not followed"
                return scope.line, message
            current = scope.parent
        return None

    def _framework(self, backward: Backward) -> str | None:
        program, function = self.program, backward.function
        call, receiver = backward.event.call, backward.receiver
        key = ir.key_of(receiver) or ""
        last = key.rsplit(".", 1)[-1]
        for ref in program.resolve(receiver, function):
            root = ref.name.split(".")[0]
            if ref.kind == "made" and root in vocabulary.FRAMEWORK_ROOTS:
                return vocabulary.FRAMEWORK_ROOTS[root]
        if last in vocabulary.FRAMEWORK_RECEIVERS and call is not None and call.args:
            return f"{key}.backward(loss)"
        own = program.self_class(function)
        bases = program.external_bases(own[1]) if own is not None else frozenset()
        for base in bases:
            if base.split(".")[0] in ("lightning", "pytorch_lightning"):
                return "Lightning"
        if call is not None and call.args and _names_optimizer(last):
            return f"{key}.backward(loss)"
        return None

    def _judge_form(self, backward: Backward) -> Refusal | None:
        """Why the way in which one ``backward()`` is written cannot be rewritten."""
        call = backward.event.call
        assert call is not None
        given = backward.given
        if given is None:
            if self.program.origin(call.func, backward.function) is not None:
                message = f"{_FUNCTION}() is a function, not a method"
                return Refusal("AMP016", message, call.line)
        elif self._may_be_several(given, backward):
            message = f"{_FUNCTION}() may be given several losses"
            return Refusal("AMP016", message, call.line)
        if backward.stmt.kind != "expr" or backward.stmt.value is not call:
            message = "backward() is part of a larger statement"
            return Refusal("AMP016", message, call.line)
        first = 0 if given is None else 1
        for position, arg in enumerate(call.args):
            name = arg.name or (
                "gradient" if position == first and not arg.star else "?"
            )
            if name == "retain_graph" or (given is not None and arg.value is given):
                continue
            if name == "create_graph":
                if arg.value == ir.Const(False):
                    continue
                message = "backward(create_graph=...) makes second derivatives"
                return Refusal("AMP023", message, call.line)
            if name == "gradient" and arg.value == ir.Const(None):
                continue
            at = Made(arg.value, backward.function, backward.stmt)
            if (
                name == "gradient"
                and given is None
                and gradients.is_of_numbers(self.flow, at)
            ):
                continue
            message = "what this backward(gradient) starts from is not followed"
            if name != "gradient":
                message = f"backward({name}=...) is no argument that is followed"
            return Refusal("AMP032", message, call.line)
        return None

    def _may_be_several(self, given: ir.Expr, backward: Backward) -> bool:
        """Whether a variable need not be one loss: all that it may be is made of calls and sums."""
        made = self.flow.made(Made(given, backward.function, backward.stmt))
        return not made or any(
            not isinstance(one.expr, (ir.Call, ir.Operation, ir.Name))
            or (
                isinstance(one.expr, ir.Operation)
                and any(
                    isinstance(inner, (ir.Display, ir.Comprehension))
                    for inner in one.expr.operands
                )
            )
            for one in made
        )

    def _amp_around(self, function: str) -> bool:
        """Whether the function, or one that encloses it, already speaks of autocast or a scaler."""
        current: str | None = function
        while current is not None:
            if self._speaks_amp(current):
                return True
            current = self.program.functions[current].parent
            if current is not None and ir.is_top(current):
                break
        return False

    def _amp_in_callers(self, function: str) -> Iterator[CallSite]:
        """The calls of a function from those that speak of autocast or a scaler."""
        for site in self.program.call_sites.get(function, ()):
            if not ir.is_top(site.caller) and self._speaks_amp(site.caller):
                yield site

    def _speaks_amp(self, function: str) -> bool:
        if function not in self._amp_functions:
            found = speaks_amp(self.program.functions[function], self.program)
            self._amp_functions[function] = found
        return self._amp_functions[function]

    def _is_under_autocast(self, site: CallSite) -> bool:
        around = self.program.control(site.caller).around(site.stmt.path)
        return any(stmt.kind == "with" and opens_autocast(stmt) for stmt in around)

    def _looks_by_itself(self, backward: Backward) -> bool:
        """Whether a function makes its own loss, and reads gradients that it names: an attack on the
        inputs, which a step of the caller does not use."""
        function, receiver = backward.function, backward.receiver

        def is_assigned(expr: ir.Expr, stmt: ir.Stmt) -> bool:
            if not isinstance(expr, ir.Name):
                return False
            stmts, _ = self.flow.reaching(expr.id, Made(expr, function, stmt))
            return bool(stmts) and all(one.kind == "assign" for one in stmts)

        made = isinstance(receiver, ir.Call) or is_assigned(receiver, backward.stmt)
        return made and any(
            event.kind == "access"
            and event.targets
            and all(is_assigned(one, stmt) for one in event.targets)
            for stmt, event in self.events.direct(function)
        )

    # -- whose step ---------------------------------------------------------------------------

    def _associate(self, loop: TrainingLoop) -> None:
        slots: set[Slot] = set()
        for backward in loop.backwards:
            reached = self._steps_for(backward.function, backward.stmt.path, set())
            if self._is_of_other_tensors(backward, reached):
                message = "this loss is made of tensors that no optimizer holds"
                loop.refuse(Refusal("AMP011", message))
                return
            # Where nothing steps, AMP is not for this loop, however it is written.
            refusal = self._judge_form(backward) if reached else self._no_step(backward)
            if refusal is not None:
                loop.refuse(refusal)
                return
            slots |= reached
        in_order = sorted(slots, key=order)
        unknown = [slot for slot in in_order if slot.kind == "unknown"]
        if unknown:
            loop.refuse(self._why_unknown(unknown[0]))
            return
        loop.slots = frozenset(slots)
        near = {
            event.slot
            for _, event in self.events.direct(loop.function)
            if event.kind == "step"
        }
        if slots <= near:
            self.judge_optimizers(loop)

    def judge_optimizers(self, loop: TrainingLoop) -> None:
        """Refuse a loop with an optimizer that a scaler cannot step, or that is not followed."""
        in_order = sorted(loop.slots, key=order)
        for slot in in_order if loop.refusal is None else ():
            if self.optimizers.any_step:
                continue
            if slot.kind == "attribute" and self.optimizers.makers.wraps(slot.owner):
                line = self.program.classes[slot.owner].line
                message = f"{ir.local_name(slot.owner)} {IN_ITS_OWN_WAY}"
                loop.refuse(Refusal("AMP014", message, line))
        for slot in in_order if loop.refusal is None else ():
            for problem in self.optimizers.trace(slot).problems:
                loop.refuse(
                    Refusal(_PROBLEM_CODES[problem.kind], problem.reason, problem.line)
                )
            if not self.optimizers.trace(slot).births:
                loop.refuse(
                    Refusal("AMP010", f"{slot.name} is never made in this file")
                )

    def _steps_for(self, function: str, path: ir.Path, seen: set[str]) -> set[Slot]:
        """The optimizers that step nearest to a statement: in its block, further out, in callers."""
        blocks = [
            tuple(inner for block in outer.blocks for inner in block.body)
            for outer in self.program.control(function).around(path)
        ]
        for block in (*blocks, self.program.functions[function].body):
            steps = self.events.steps_within(function, block)
            if steps:
                return steps
        if function in seen:
            return set()
        seen.add(function)
        found: set[Slot] = set()
        for site in self.program.call_sites.get(function, []):
            found |= self._steps_for(site.caller, site.stmt.path, seen)
        if not found and self.optimizers.any_step:
            found = {
                slot
                for caller, _, call in self._steps_with(function)
                if isinstance(call.func, ir.Attr)
                if (slot := self.optimizers.slot(call.func.value, caller)) is not None
            }
        return found

    def _steps_with(self, closure: str) -> Iterator[tuple[str, ir.Stmt, ir.Call]]:
        """The steps that are given a function to call."""
        for caller, stmt, call in self.program.calls_named("step"):
            given = (self.program.resolve(arg.value, caller) for arg in call.args)
            if any(
                ref.kind == "function" and ref.name == closure
                for refs in given
                for ref in refs
            ):
                yield caller, stmt, call

    def _bound_steps(self) -> Iterator[tuple[str, ir.Stmt, ir.Expr]]:
        """What the steps that are given ``partial(closure, ...)`` call: ``closure``, where it stands."""
        program = self.program
        for caller, stmt, call in program.calls_named("step"):
            for arg in call.args:
                found = program.definitions_of(arg.value, caller)
                given = [(one.function, one.value) for one in found]
                for at, value in ((caller, arg.value), *given):
                    if isinstance(value, ir.Call) and value.args:
                        if program.origin(value.func, at) == "functools.partial":
                            yield at, stmt, value.args[0].value

    def _no_step(self, backward: Backward) -> Refusal:
        function = backward.function
        for caller, stmt, call in self._steps_with(function):
            reason = self.closures.reason(caller, stmt, call)
            message = f"{ir.local_name(function)}() is a closure of step()"
            return Refusal("AMP013", reason or message, stmt.line)
        for _, call in each_call(self.program.functions[function].body):
            if isinstance(call.func, ir.Attr) and "step" in call.func.attr:
                receiver = call.func.value
                if self.optimizers.makers.looks_like_one(receiver, function):
                    name = ir.render(call.func) or "the optimizer"
                    message = f"{name}() {IN_ITS_OWN_WAY}"
                    return Refusal("AMP014", message, call.line)
        callers = self._callers(function)
        for caller, stmt, value in self._bound_steps():
            for ref in self.program.resolve(value, caller):
                if ref.kind == "function" and ref.name in callers:
                    name = ir.local_name(ref.name)
                    message = f"{name}() is part of the closure of step()"
                    return Refusal("AMP013", message, stmt.line)
        for caller in callers:
            for stmt in self.program.statements(caller):
                for call in calls_of(stmt):
                    if may_step(self.program, call, caller):
                        name = ir.render(call.func) or gradients.called(call)
                        message = f"{name}() may step an optimizer, but is not followed"
                        return Refusal("AMP010", message, call.line)
                kept = self._kept_step(stmt, caller)
                if kept is not None:
                    message = f"{kept} is kept under another name"
                    return Refusal("AMP016", message, stmt.line)
        for stmt, event in self.events.direct(function):
            if event.kind == "access" and event.targets not in ((), (UNKNOWN,)):
                message = (
                    "no optimizer steps on this backward(): its gradients are used here"
                )
                return Refusal("AMP011", message, stmt.line)
        message = "no optimizer that is followed steps on this backward()"
        if not self.program.call_sites.get(callers[-1]) and not ir.is_top(callers[-1]):
            name = self.program.functions[callers[-1]].name
            message += f", and no call of {name}() was found"
        return Refusal("AMP011", message)

    def _callers(self, function: str) -> list[str]:
        """A function with all that lead to it, nearest first."""
        return [*self.program.calling(function)]

    def _kept_step(self, stmt: ir.Stmt, function: str) -> str | None:
        """The ``step`` of an optimizer that a statement mentions other than to call it, as written."""
        for expr in stmt.exprs:
            called = {
                id(inner.func) for inner in ir.walk(expr) if isinstance(inner, ir.Call)
            }
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Attr) and inner.attr == "step":
                    slot = self.optimizers.slot(inner.value, function)
                    if (
                        id(inner) not in called
                        and slot is not None
                        and self.optimizers.trace(slot).births
                    ):
                        return ir.render(inner)
        return None

    def _is_of_other_tensors(self, backward: Backward, steps: set[Slot]) -> bool:
        """Whether a script shows a ``backward()`` on tensors that it has just made, of which the
        optimizers that step further on know nothing."""
        function = backward.function
        if not ir.is_top(function) or len(backward.stmt.path) > 1:
            return False
        made = self._made_by_hand(backward)
        given = (
            name
            for slot in steps
            if slot.kind != "unknown"
            for birth in self.optimizers.trace(slot).births
            for name in ir.names_in(birth.call)
        )
        held = reached(
            given,
            lambda name: (
                inner
                for d in self.program.definitions(function, name)
                if d.value is not None
                for inner in ir.names_in(d.value)
            ),
        )
        return bool(made) and not (
            made.keys() & held.keys()
            or any(
                self._keeps(stmt, made, function)
                for stmt in self.program.statements(function)
            )
            or any(
                self.program.owner(name, other) == function
                for other, stmt in self.program.all_statements()
                if other != function
                for expr in stmt.exprs
                for name in ir.names_in(expr) & made.keys()
            )
        )

    def _keeps(
        self, stmt: ir.Stmt, made: dict[str, set[ir.Path]], function: str
    ) -> bool:
        """Whether a statement puts a tensor where an optimizer may come by it: into a list, say."""

        def is_made(expr: ir.Expr) -> bool:
            if not isinstance(expr, ir.Name) or expr.id not in made:
                return False
            at = Made(expr, function, stmt)
            reaching, _ = self.flow.reaching(expr.id, at)
            return any(one.path in made[expr.id] for one in reaching)

        bound = {id(target) for target in stmt.targets}
        for inner in parts_of(stmt):
            kept: tuple[ir.Expr, ...] = ()
            if isinstance(inner, ir.Display) and id(inner) not in bound:
                kept = inner.items
            elif isinstance(inner, ir.Call):
                origin = self.program.origin(inner.func, function) or ""
                if not origin.startswith(("torch.", "builtins.print")):
                    kept = tuple(arg.value for arg in inner.args)
            if any(map(is_made, kept)):
                return True
        return any(not isinstance(t, (ir.Name, ir.Display)) for t in stmt.targets) and (
            stmt.value is not None and is_made(stmt.value)
        )

    def _made_by_hand(self, backward: Backward) -> dict[str, set[ir.Path]]:
        """The variables that a loss is made of, and where, if functions of torch make them all."""
        function = backward.function
        found: dict[str, set[ir.Path]] = {}
        pending = [(backward.receiver, backward.stmt)]
        while pending:
            expr, at = pending.pop()
            for call in ir.calls_in(expr):
                origin = self.program.origin(call.func, function)
                method = isinstance(call.func, ir.Attr) and origin is None
                if not method and not _MAKES_TENSORS.fullmatch(origin or ""):
                    return {}
            for name in sorted(ir.names_in(expr)):
                if self.program.origin(ir.Name(name), function) is not None:
                    continue
                stmts, from_start = self.flow.reaching(
                    name, Made(ir.Name(name), function, at)
                )
                if from_start or not stmts:
                    return {}
                paths = found.setdefault(name, set())
                for stmt in stmts:
                    if stmt.kind != "assign" or stmt.targets != (ir.Name(name),):
                        return {}
                    if stmt.path not in paths and stmt.value is not None:
                        paths.add(stmt.path)
                        pending.append((stmt.value, stmt))
        return found

    def _why_unknown(self, slot: Slot) -> Refusal:
        """Why what is stepped under a name is not followed."""
        function, stmt, event = next(
            one for one in self.events.calls_of("step") if one[2].slot == slot
        )
        call = event.call
        assert call is not None and isinstance(call.func, ir.Attr)
        expr = call.func.value
        name = ir.render(expr) or slot.name
        if isinstance(expr, ir.Item) and key_of(expr) is None:
            message = f"{name}: optimizers in a collection"
            return Refusal("AMP012", message, call.line)
        if isinstance(expr, ir.Item):
            holder = self.optimizers.slot(expr.value, slot.owner)
            if holder is not None and holder.key is None:
                one = replace(holder, key=key_of(expr))
                for problem in self.optimizers.trace(one).problems:
                    code = _PROBLEM_CODES[problem.kind]
                    return Refusal(code, problem.reason, problem.line)
        message, line = f"{name}: not followed to its origin", call.line
        lost = where_lost(self.program, expr, function, stmt)
        if lost is not None:
            message, line = f"{message}: {lost[0]}", lost[1]
        return Refusal("AMP010", message, line)

    def together(self) -> list[set[Slot]]:
        """The optimizers that take turns in one loop or one object."""
        found: list[set[Slot]] = []
        for qualname, function in self.program.functions.items():
            for stmt in ir.statements(function.body):
                if stmt.kind in _LOOPS:
                    found.append(self.events.steps_within(qualname, (stmt,)))
        by_class: dict[str, set[Slot]] = defaultdict(set)
        for _, _, event in self.events.calls_of("step"):
            slot = event.slot
            if slot is not None and slot.kind == "attribute":
                by_class[slot.owner].add(slot)
        found += by_class.values()
        return [slots for slots in found if len(slots) > 1]


def _names_optimizer(name: str) -> bool:
    return name in ("optimizer", "optim", "opt")


def _is_scaled(receiver: ir.Expr) -> bool:
    return isinstance(receiver, ir.Call) and ir.method_of(receiver) in (
        "scale",
        "scale_loss",
    )


def _is_home_made(receiver: ir.Expr, program: Program, function: str) -> bool:
    """Whether the receiver is ``self``, a class, or an instance of one with its own ``backward``."""
    if program.class_of_self(receiver, function) is not None:
        return True
    if isinstance(receiver, ir.Call) and receiver.func == ir.Name("super"):
        return True
    return any(
        ref.kind == "class"
        or (ref.kind == "instance" and _has_backward(ref.name, program))
        for ref in program.resolve(receiver, function)
    )


def _has_backward(class_name: str, program: Program) -> bool:
    """Whether instances may have one: a module has none, and is what a loss is mistaken for."""
    return program.method(class_name, "backward") is not None or any(
        not base.startswith("torch.nn.") for base in program.external_bases(class_name)
    )


def speaks_amp(function: ir.Function, program: Program) -> bool:
    """Whether a function mentions autocast or a scaler."""
    for _, call in each_call(function.body):
        key = ir.key_of(call.func) or (ir.method_of(call))
        last = key.rsplit(".", 1)[-1]
        if last in vocabulary.AMP_WORDS or (
            last == "scale" and call.args and "scaler" in key.lower()
        ):
            return True
        if last == "autocast" or (
            program.origin(call.func, function.qualname) or ""
        ).startswith(("torch.amp.", "torch.cuda.amp.")):
            return True
    return False


def opens_autocast(stmt: ir.Stmt) -> bool:
    """Whether a ``with`` turns autocast on."""
    return any(
        (ir.key_of(call.func) or "").rsplit(".", 1)[-1] == "autocast"
        and all(arg.value != ir.Const(False) for arg in call.args)
        for call in calls_of(stmt)
    )


def may_step(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call of something out of sight is a step by its name: ``manager.step()``."""
    if program.callees(call, function):
        return False
    name = gradients.called(call)
    if not isinstance(call.func, ir.Attr) or name != "step":
        return bool(_NAMES_STEP.fullmatch(name))
    holder = ir.key_of(call.func.value) or ir.render(call.func.value) or ""
    return not call.args and not _STEPS_OTHERWISE.search(holder)
