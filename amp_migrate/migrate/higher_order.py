"""``torch.autograd.grad`` in a training step: gradient penalties, and attacks on the inputs.

The gradients that it gives carry no scale, so that in half precision they would underflow. They are
computed in fp32: autocast is turned off from the forward that they are taken of to the call itself.
With AMP off that changes nothing, and the loss that a penalty is added to is scaled once, as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.forward import MODELS, Forward
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.loops import Blocked, Refusal
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.analysis.values.passed import MayBeHalf, MayHavePassed
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Edit, FullPrecision, Placed, Recast, Upcast
from amp_migrate.migrate.precision.contexts import Contexts
from amp_migrate.migrate.precision.entering import Entering, Span, Unfit
from amp_migrate.migrate.precision.hazards import Hazards
from amp_migrate.migrate.regions.inner_gradients import GRAD, InnerGradientsFinder
from amp_migrate.migrate.regions.regions import Regions, Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, parts_of
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition
from amp_migrate.sources.cells import cell_number

_MOST_CALLERS = 3


class _Refused(Blocked):
    def __init__(self, reason: str, line: int) -> None:
        super().__init__(Refusal("AMP023", f"torch.autograd.grad() {reason}", line))


class Shared(Exception):
    """A plan comes to nothing, but the gradients are followed now: plan again."""


class HigherOrder:
    """Plans the spans of one group's loops."""

    def __init__(
        self,
        program: Program,
        events: Events,
        forward: Forward,
        hazards: Hazards,
        inner: InnerGradientsFinder,
        regions: Regions,
    ) -> None:
        self.program = program
        self.events = events
        self.forward = forward
        self.hazards = hazards
        self.inner = inner
        self.regions = regions
        self.spans: list[Span] = []
        self.casts: list[Placed] = []
        """What is made fp32 so that a forward can be differentiated to it."""

    def plan(self, runs: Collection[Run]) -> list[Placed]:
        """Where autocast is to be off; raises `Blocked` where that would not do, or `Shared`."""
        calls = self._calls()
        if not calls:
            return []
        reached = self.hazards.sites(runs)
        self.casts = []
        spans = self._spans(calls, reached)
        self._check(spans, calls, runs, reached)
        self.spans = [span for span in spans if not span.is_called]
        return [
            *self.casts,
            *(
                (ir.file_of(span.function), FullPrecision(span.path, span.last))
                for span in self.spans
            ),
        ]

    def judge(self, runs: Collection[Run]) -> None:
        """Raise `Blocked` where gradients that a forward takes are none that can be planned, wherever
        autocast is."""
        reached = self.hazards.sites(runs)
        for function, stmt, inner in self.hazards.setup.inner:
            if (function, stmt.path) in reached or (
                function in self.hazards.functions
                and self._may_be_called_there(function, reached)
            ):
                raise Blocked(inner)
        self._spans(self._calls(), reached)

    def _may_be_called_there(
        self, function: str, reached: Statements, around: frozenset[str] = frozenset()
    ) -> bool:
        """Whether a function that is handed around may be called under autocast."""
        if function not in self.program.escaping or function in around:
            return False
        around |= {function}
        calls = self.program.handed_calls(function)
        return calls is None or any(
            (c.caller, c.stmt.path) in reached
            or self._may_be_called_there(c.caller, reached, around)
            for c in calls
        )

    def judge_training(self, functions: Collection[str]) -> None:
        """The same of what cannot be planned wherever the regions will be: a call that is none, and, in
        the functions that train, an inner loop."""
        line = self._kept()
        if line:
            raise _Refused("is kept under another name", line)
        for function, _, inner in self.hazards.setup.inner:
            if function in self.hazards.functions and (
                self.events.leads_to(function, functions)
            ):
                raise Blocked(inner)
        for function, stmt, call in self._calls():
            if function in functions:
                judged = self.inner.judged.get((function, stmt.path))
                if isinstance(judged, Refusal):
                    raise Blocked(judged)
                self._check_inputs(call, function)

    def _kept(self) -> int:
        """The line where the function is mentioned without being called, or 0."""
        program = self.program
        lines: dict[str, int] = {}
        for function, stmt in program.mentioning("grad"):
            called = {id(call.func) for call in calls_of(stmt)}
            for inner in parts_of(stmt):
                if isinstance(inner, (ir.Name, ir.Attr)) and (
                    id(inner) not in called and program.origin(inner, function) == GRAD
                ):
                    lines.setdefault(function, stmt.line)
        return next((lines[f] for f in self.hazards.functions if f in lines), 0)

    def _calls(self) -> list[tuple[str, ir.Stmt, ir.Call]]:
        return [
            (function, stmt, call)
            for function, stmt in self.program.mentioning("grad")
            if function in self.hazards.functions
            for call in calls_of(stmt)
            if self.program.origin(call.func, function) == GRAD
            and not self.inner.follows(function, stmt)
        ]

    # -- spans --------------------------------------------------------------------------------

    def _spans(
        self,
        calls: list[tuple[str, ir.Stmt, ir.Call]],
        reached: Statements,
    ) -> list[Span]:
        found: dict[Span, None] = {}
        for function, stmt, call in calls:
            if (function, stmt.path) not in reached and (
                not self._may_be_called_there(function, reached)
            ):
                continue
            outputs, inputs = self._check_inputs(call, function)
            for span in self._span(function, stmt, outputs, inputs, call.line, 0):
                found[span] = None
        return _merged(found)

    def _check_inputs(self, call: ir.Call, function: str) -> tuple[ir.Expr, ir.Expr]:
        """(outputs, inputs) of a call; raises `_Refused` where it is not about the data."""
        outputs = call.argument(0, "outputs")
        inputs = call.argument(1, "inputs")
        if outputs is None or inputs is None:
            raise _Refused("is given its arguments in an unknown way", call.line)
        if not self._are_data(inputs, function, 0):
            reason = (
                "may be with respect to parameters: an inner loop, or a penalty on them"
            )
            raise _Refused(reason, call.line)
        return outputs, inputs

    def _are_data(self, inputs: ir.Expr, function: str, depth: int) -> bool:
        """Whether what is differentiated to are tensors that were made to require gradients."""
        if isinstance(inputs, ir.Display) and inputs.items:
            return all(self._are_data(one, function, depth) for one in inputs.items)
        if self._is_own_leaf(inputs, function):
            return True
        if isinstance(inputs, ir.Attr):
            return self._is_fed(inputs, function) and self._is_asked(inputs, function)
        if not isinstance(inputs, ir.Name) or depth > _MOST_CALLERS:
            return False
        program = self.program
        owner = program.owner(inputs.id, function)
        if owner is None:
            return False
        found = program.definitions(owner, inputs.id)
        for definition in found:
            if definition.value is not None and _asks_gradients(definition.value):
                return True
        if found and all(self._is_output(d) for d in found):
            return True
        if found and all(_is_computed(d.value) for d in found):
            # What alone a module is given is data, were it made of what another one gives.
            for stmt in program.statements(owner):
                for call in calls_of(stmt):
                    if [arg.value for arg in call.args] == [inputs] and (
                        self.forward.is_forward(call, owner, MODELS)
                    ):
                        return True
        if self._is_asked(inputs, owner):
            return True
        if all(p.name != inputs.id for p in program.functions[owner].params):
            return False
        sites = program.call_sites.get(owner, [])
        given = program.arguments(owner, inputs.id)
        return len(given) == len(sites) > 0 and all(
            self._are_data(value, at, depth + 1) for at, value in given
        )

    def _is_asked(self, tensor: ir.Name | ir.Attr, function: str) -> bool:
        """Whether a function sets a tensor to require gradients."""
        wanted = ir.Attr(tensor, "requires_grad")
        return any(
            (wanted in stmt.targets and stmt.value == ir.Const(True))
            or any(
                call.func == ir.Attr(tensor, "requires_grad_")
                for call in calls_of(stmt)
            )
            for stmt in self.program.statements(function)
        )

    def _is_fed(self, expr: ir.Attr, function: str) -> bool:
        """Whether an attribute is only ever given a part of a batch: ``self.x = batch["x"].to(device)``."""
        own = self.program.class_of_self(expr.value, function)
        made = self.program.attribute_definitions(own, expr.attr) if own else []
        return bool(made) and all(
            isinstance(d.value, ir.Call)
            and isinstance(d.value.func, ir.Attr)
            and d.value.func.attr in ("to", "cuda")
            and isinstance(part := d.value.func.value, ir.Item)
            and isinstance(part.value, ir.Name)
            and self.program.is_param(d.function, part.value.id)
            for d in made
        )

    def _is_own_leaf(self, expr: ir.Expr, function: str) -> bool:
        """``self.scale``, a tensor that asks for gradients and is no parameter of its module: nothing that
        is given to a method is made of it. The same of one that a function makes of a number.
        """
        if isinstance(expr, ir.Name):
            if self.program.owner(expr.id, function) != function:
                return False
            match self.program.definitions(function, expr.id):
                case [Definition(value=value, index=None)] if value is not None:
                    return _asks_gradients(value) and self._is_of_numbers(
                        value, function
                    )
            return False
        if not isinstance(expr, ir.Attr):
            return False
        own = self.program.class_of_self(expr.value, function)
        made = self.program.attribute_definitions(own, expr.attr) if own else []
        return bool(made) and all(
            d.value is not None
            and _asks_gradients(d.value)
            and self.program.functions[d.function].name == "__init__"
            and not any(
                (self.program.origin(c.func, d.function) or "").endswith("Parameter")
                for c in ir.calls_in(d.value)
            )
            for d in made
        )

    def _is_of_numbers(self, made: ir.Expr, function: str) -> bool:
        """``torch.tensor(1.).to(device).requires_grad_()``."""
        while isinstance(made, ir.Call) and isinstance(made.func, ir.Attr):
            if self.program.origin(made.func, function) == "torch.tensor":
                data = made.argument(0, "data")
                return data is not None and isinstance(data, ir.Const)
            if made.func.attr not in ("to", "cuda", "requires_grad_"):
                return False
            made = made.func.value
        return False

    def _is_output(self, definition: Definition) -> bool:
        """Whether a variable is what a module gives, which is no parameter."""
        made, function = definition.value, definition.function
        if not isinstance(made, ir.Call):
            return False
        callees = self.program.callees(made, function)
        flow = Flow(self.program)
        return self.forward.is_module(made.func, function) and all(
            self.program.functions[callee].name in ("forward", "__call__")
            and not any(
                isinstance(item, ir.Attr)
                for one in flow.returned(callee, None) or ()
                for item in _items(one.expr)
            )
            for callee in callees
        )

    def _span(
        self,
        function: str,
        stmt: ir.Stmt,
        outputs: ir.Expr,
        inputs: ir.Expr | None,
        line: int,
        depth: int,
    ) -> Iterator[Span]:
        """From the forward that makes ``outputs`` to ``stmt``; in the callers too, where it stands there."""
        forward, program = self.forward, self.program
        block = program.control(function).block(stmt.path)
        index = stmt.path[-1][1]
        if not block:
            raise _Refused("stands in the body of a class", line)
        bounds = set() if inputs is None else forward.reads_of(inputs, function)
        needed = forward.reads_of(outputs, function) - bounds
        first = index if forward.in_expression(outputs, function) else -1
        around = next(iter(program.control(function).around(stmt.path)), None)
        if first < 0 and around is not None and around.kind in ("if", "with"):
            if not any(forward.writes(one, function) & needed for one in block[:index]):
                # Both arms of an `if` may differentiate what is computed before it.
                yield from self._span(function, around, outputs, inputs, line, depth)
                return
        for earlier in reversed(block[:index]):
            if earlier.kind in ("functiondef", "classdef"):
                continue
            if not forward.writes(earlier, function) & needed:
                continue
            if self._takes_gradients(earlier, function):
                raise _Refused("differentiates gradients: second derivatives", line)
            if forward.in_statement(earlier, function):
                first = earlier.path[-1][1]
            needed = needed - forward.kills(earlier, function)
            needed |= forward.uses(earlier, function) - bounds
        if first >= 0:
            path = block[first].path
            if any(one.is_elif for one in block[first : index + 1]):
                raise _Refused("stands in an elif", line)
            yield Span(function, path, index)
            return
        params = {param.name for param in program.functions[function].params} & needed
        sites = program.call_sites.get(function, [])
        if not params or not sites or depth >= _MOST_CALLERS:
            raise _Refused(
                "differentiates something whose forward is not defined here", line
            )
        yield Span(function, stmt.path, index, is_called=True)
        for site in sites:
            given = [program.argument_at(site, param) for param in sorted(params)]
            if any(value is None for value in given):
                reason = "differentiates something whose forward is not defined here"
                raise _Refused(reason, line)
            values = ir.Display("tuple", tuple(v for v in given if v is not None))
            at_site = None
            if isinstance(inputs, ir.Name):
                at_site = program.argument_at(site, inputs.id)
            yield from self._span(
                site.caller, site.stmt, values, at_site, line, depth + 1
            )

    def _takes_gradients(self, stmt: ir.Stmt, function: str) -> bool:
        return any(
            self.program.origin(call.func, function) == GRAD
            for _, call in each_call((stmt,))
        )

    # -- what must hold -----------------------------------------------------------------------

    def _check(
        self,
        spans: list[Span],
        calls: list[tuple[str, ir.Stmt, ir.Call]],
        runs: Collection[Run],
        reached: Statements,
    ) -> None:
        program = self.program
        inside = {
            (span.function, stmt.path)
            for span in spans
            for stmt in program.statements(span.function)
            if span.holds(span.function, stmt.path)
        }
        passed = self._halves(MayHavePassed, runs, reached, inside)
        halves = self._halves(MayBeHalf, runs, reached, inside)
        for function, stmt, call in calls:
            if (function, stmt.path) in inside:
                continue
            for arg in call.args:
                if passed.may_be(arg.value, function, stmt):
                    reason = "differentiates what may be in half precision"
                    raise _Refused(reason, call.line)
        for span in spans:
            self._check_span(span, runs, halves, passed)
        if spans and not self._computes_elsewhere(runs, inside):
            taken = [(f, s, c) for f, s, c in calls if (f, s.path) in inside]
            line = taken[0][2].line
            if self._share(taken, self._halves(MayBeHalf, runs, reached)):
                raise Shared
            reason = "differentiates the whole forward computation, which leaves nothing to autocast"
            raise _Refused(reason, line)

    def _halves(
        self,
        kind: type[MayBeHalf],
        runs: Collection[Run],
        reached: Statements,
        in_fp32: Statements = (),
    ) -> MayBeHalf:
        hazards, remedies = self.hazards, self.hazards.remedies
        called = {f for f, _ in reached} - {run.function for run in runs}
        contexts = Contexts(
            self.program,
            self.regions,
            runs,
            called,
            hazards.files,
            hazards.can_run,
            in_fp32,
        )
        return contexts.traces(kind, remedies.flow, remedies.modules, self.forward)

    def _share(
        self,
        calls: Collection[tuple[str, ir.Stmt, ir.Call]],
        halves: MayBeHalf,
    ) -> bool:
        """Whether gradients with respect to fp32 can have a scale, so that their forward stays under
        autocast."""
        for function, stmt, call in calls:
            inputs = call.argument(1, "inputs")
            if inputs is None or halves.may_be(inputs, function, stmt):
                return False
        return self.inner.share(calls)

    def _check_span(
        self, span: Span, runs: Collection[Run], halves: MayBeHalf, passed: MayBeHalf
    ) -> None:
        function, forward = span.function, self.forward
        body = self.program.functions[function].body
        statements = [s for s in ir.statements(body) if span.holds(function, s.path)]
        line = statements[0].line
        written: set[str] = set()
        leaves = self._own_leaves(statements, function)
        tensors = self._differentiated_to(statements, function)
        for stmt in statements:
            if isinstance(stmt.value, ir.Const) and cell_number(stmt.value.value):
                raise _Refused("and what it differentiates are in two cells", line)
            for event in self.events.of(function, stmt):
                if event.kind in ("backward", "step") or any(
                    {"backward", "step"} & self.events.kinds(callee)
                    for callee in event.callees
                ):
                    raise _Refused("stands in a statement that trains", stmt.line)
            if any(isinstance(inner, ir.Suspend) for inner in parts_of(stmt)):
                raise _Refused("stands in a generator", stmt.line)
            for expr in self._goes_in(stmt, function):
                variables = forward.reads_of(expr, function) - written
                # What a net out of sight gives may be half as well.
                nets = variables.intersection(self._from_nets(tensors, function, stmt))
                self._raised(nets, tensors, function, stmt, passed)
                if variables and halves.may_be(expr, function, stmt):
                    given = variables.difference(leaves)
                    if self._raised(given, tensors, function, stmt, halves):
                        continue
                    if leaves and self._cast_where_used(span, halves):
                        continue
                    names = ", ".join(sorted(variables))
                    reason = f"differentiates a forward on {names}, which may be in half precision"
                    raise _Refused(reason, stmt.line)
            if len(stmt.path) == len(span.path):
                written |= forward.writes(stmt, function)
        for run in runs:
            region = Span(run.function, run.path, run.last)
            begins = region.holds(function, span.path)
            ends = region.holds(function, (*span.path[:-1], _end(span)))
            if begins != ends or (not begins and span.holds(run.function, run.path)):
                raise _Refused("stands across the edge of a region", line)

    def _own_leaves(
        self, statements: Collection[ir.Stmt], function: str
    ) -> frozenset[str]:
        """The attributes that all gradients in some statements are taken to; none where they are not of
        the module's own leaves only."""
        found: frozenset[str] = frozenset()
        for one in self._differentiated_to(statements, function):
            if not self._is_own_leaf(one, function):
                return frozenset()
            found |= self.forward.reads_of(one, function)
        return found

    def _from_nets(
        self, exprs: Iterable[ir.Expr], function: str, stmt: ir.Stmt
    ) -> Iterator[str]:
        """Those variables among some expressions that hold just what a module gives."""
        for one in exprs:
            if isinstance(one, ir.Name):
                at = Made(one, function, stmt)
                made, from_start = self.hazards.remedies.flow.reaching(one.id, at)
                if not from_start and all(
                    isinstance(each.value, ir.Call)
                    and self.forward.is_forward(each.value, function, MODELS)
                    for each in made
                ):
                    yield one.id

    def _differentiated_to(
        self, statements: Iterable[ir.Stmt], function: str
    ) -> list[ir.Expr]:
        """All that gradients are taken to in some statements."""
        return [
            one
            for stmt in statements
            for call in calls_of(stmt)
            if self.program.origin(call.func, function) == GRAD
            for inputs in (call.argument(1, "inputs"),)
            if inputs is not None
            for one in _items(inputs)
        ]

    def _cast_where_used(self, span: Span, halves: MayBeHalf) -> bool:
        """Plan to make variables fp32 that come into a span, which is right where nothing of them leads to
        what is differentiated to."""
        entering = Entering(self.hazards.remedies)
        body = self.program.functions[span.function].body
        inside = [s for s in ir.statements(body) if span.holds(span.function, s.path)]
        try:
            for uses in entering.uses(span, inside, set()):
                stmt, used = uses[0]
                if halves.may_be(used, span.function, stmt):
                    edits = entering.cast(span, inside[0], uses)
                    self.casts += (
                        placed
                        for function, edit in edits
                        if (placed := (ir.file_of(function), edit)) not in self.casts
                    )
        except Unfit:
            return False
        return True

    def _raised(
        self,
        names: Collection[str],
        tensors: Collection[ir.Expr],
        function: str,
        stmt: ir.Stmt,
        halves: MayBeHalf,
    ) -> bool:
        """Plan to make variables fp32 where they are given their values; False where one cannot be.

        So the forward is given the very tensor that its gradients are taken to. ``tensors``: those of
        which it is known that they are no collections of several.
        """
        remedies = self.hazards.remedies
        edits: list[Placed] = []
        for name in map(ir.Name, sorted(names)):
            if not halves.may_be(name, function, stmt):
                continue
            made, from_start = remedies.flow.reaching(
                name.id, Made(name, function, stmt)
            )
            for one in made:
                value = one.value
                if one.kind != "assign" or one.targets != (name,) or value is None:
                    return False
                match value:
                    case ir.Call(func=ir.Attr(attr="requires_grad_", value=leaf)):
                        value = leaf
                if _asks_gradients(value):
                    return False
                steps = steps_to(one, value)
                at = Made(value, function, one)
                if steps is not None and remedies.dtypes.is_fp32(at):
                    edit: Edit = Upcast(one.path, steps)
                elif name in tensors:
                    edit = Recast(one.path, name.id, remedies.dtype, after=True)
                else:
                    return False
                edits.append((ir.file_of(function), edit))
            if from_start or not made:
                return False
        self.casts += (one for one in edits if one not in self.casts)
        return True

    def _goes_in(self, stmt: ir.Stmt, function: str) -> Iterator[ir.Expr]:
        """What the forward computations on a statement's own line are given."""
        for call in calls_of(stmt):
            if self.program.origin(call.func, function) == GRAD or (
                self.forward.is_forward(call, function)
            ):
                yield from (arg.value for arg in call.args)
        for inner in parts_of(stmt):
            if isinstance(inner, ir.Operation) and inner.op == "@":
                yield inner

    def _computes_elsewhere(
        self, runs: Collection[Run], inside: Collection[tuple[str, ir.Path]]
    ) -> bool:
        """Whether a region computes anything but losses outside of the spans."""
        program = self.program
        pending = [
            (run.function, stmt)
            for run in runs
            for stmt in program.statements(run.function)
            if run.holds(stmt.path)
        ]
        seen: set[str] = set()
        while pending:
            function, stmt = pending.pop()
            if (function, stmt.path) in inside:
                continue
            for call in calls_of(stmt):
                if not self.forward.is_forward(call, function, MODELS):
                    continue
                callees = program.callees(call, function)
                own = [
                    callee
                    for callee in callees
                    if program.functions[callee].name not in ("forward", "__call__")
                ]
                if not own:
                    return True
                for callee in own:
                    if callee not in seen:
                        seen.add(callee)
                        body = program.functions[callee].body
                        pending += [(callee, one) for one in ir.statements(body)]
        return False


def _asks_gradients(value: ir.Expr) -> bool:
    """``torch.zeros(3, requires_grad=True)``, ``x.clone().requires_grad_()``."""
    for inner in ir.walk(value):
        if isinstance(inner, ir.Comprehension):
            # Copies of parameters, of which there are several.
            return False
        if isinstance(inner, ir.Call):
            if ir.method_of(inner) == "requires_grad_":
                return not any(arg.value == ir.Const(False) for arg in inner.args)
            for arg in inner.args:
                if arg.name == "requires_grad" and arg.value == ir.Const(True):
                    return True
    return False


def _is_computed(value: ir.Expr | None) -> bool:
    """``alpha * real + (1 - alpha) * fake``, which is no parameter itself."""
    return isinstance(value, ir.Operation) and value.op in ("+", "-", "*", "/")


def _items(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    return expr.items if isinstance(expr, ir.Display) else (expr,)


def _end(span: Span) -> tuple[str, int]:
    return span.path[-1][0], span.last


def _merged(spans: Collection[Span]) -> list[Span]:
    """Spans that overlap as one; those inside another are part of it."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.function, len(s.path), s.path)):
        for at, other in enumerate(merged):
            if other.holds(span.function, span.path):
                if len(span.path) == len(other.path):
                    last = max(span.last, other.last)
                    called = span.is_called and other.is_called
                    merged[at] = Span(other.function, other.path, last, called)
                break
        else:
            merged.append(span)
    return merged
