"""What is computed of values that carry the scale: of scaled losses, of gradients that are asked for, and by
hooks on gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from amp_migrate.analysis.objects.points_to import Object
from amp_migrate.analysis.tables.degrees import Unclear, flat
from amp_migrate.analysis.values.scales import (
    ASKED,
    GRADIENT,
    LOSS,
    SCALE,
    Environment,
    Mixed,
    Value,
)
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.events import AmpEvents
from amp_migrate.lint.misuse.order.faults import EDITED, READ
from amp_migrate.lint.misuse.order.protocol import Protocol
from amp_migrate.lint.misuse.order.spelled import PARTIAL
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of

SCALED_LOSS = "AMP120"

_MAKES_NUMBERS = frozenset("item tolist numpy cpu detach float".split())
_SHOWS = frozenset(
    "print format add_scalar add_scalars set_postfix set_description write info debug log_metric"
    " log_metrics log_dict".split()
)
_LOOKS = frozenset("isnan isinf isfinite backward scale len".split())
"""What may be asked of a scaled loss, or done with it."""
_HOOKS = frozenset(
    (
        "register_hook",
        "register_post_accumulate_grad_hook",
        "register_full_backward_hook",
    )
)
_CHANGES = frozenset(("edit", "clip", "descend"))


def findings(context: Context, protocol: Protocol, file: str) -> Iterator[Finding]:
    """What is wrong in one file of a program."""
    if not protocol.stepping:
        return
    scaled = _Scaled(context, protocol.events)
    steps = {ir.file_of(there) for by in protocol.stepping.values() for _, there in by}
    trains = file in context.program.around(steps)
    for function in context.functions(file):
        for stmt in context.program.statements(function):
            if function in protocol.events.read:
                if scaled.keeps_losses:
                    yield from scaled.told(stmt, function)
                if scaled.asking:
                    yield from scaled.penalties(stmt, function)
            if trains:
                yield from scaled.hooks(stmt, function)


class _Scaled:
    def __init__(self, context: Context, events: AmpEvents) -> None:
        self.context = context
        self.program = context.program
        self.events = events
        self.scales = events.scales
        self._tells: dict[str, frozenset[str]] = {}
        scales = {
            id(stmt.value): stmt.value
            for _, stmt, call in self.program.calls_named("scale")
            if stmt.value is not None
        }
        self.keeps_losses = any(
            not isinstance(value, ir.Call)
            or _last(value.func) != "backward"
            or any(isinstance(inner, ir.Walrus) for inner in ir.walk(value))
            for value in scales.values()
        )
        """A scaled loss is more than gone backward from at once."""
        self.asking = {
            ir.file_of(function)
            for function, _, call in self.program.calls_named("grad")
            if self.program.origin(call.func, function) == "torch.autograd.grad"
        }
        """The files in which gradients are asked for."""

    # -- the scaled loss --------------------------------------------------------------------------

    def told(self, stmt: ir.Stmt, function: str) -> Iterator[Finding]:
        """Scaled losses that are shown to somebody, or added up to be shown."""
        for expr, at in self._sinks(stmt, function):
            if not self._is_scaled_loss(expr, function, stmt):
                continue
            name = ir.render(_number_of(expr) or expr)
            message = (
                f"{name} is the loss times the scale here: keep the loss itself for what is reported"
                if name and name.isidentifier()
                else ""
            )
            yield self.context.finding(SCALED_LOSS, function, at, message)
            return

    def _sinks(
        self, stmt: ir.Stmt, function: str
    ) -> Iterator[tuple[ir.Expr, ir.Call | ir.Stmt]]:
        """What a statement tells, and where."""
        for call in calls_of(stmt):
            name = _last(call.func)
            if name in _LOOKS or name in _MAKES_NUMBERS:
                continue
            for arg in call.args:
                shows = name in _SHOWS or (
                    name == "log" and isinstance(arg.value, ir.Display)
                )
                for part in _parts(arg.value):
                    if shows or self._is_number(part, function, stmt):
                        if not self._is_told_before(part, function, stmt):
                            yield part, call
            for site in self.program.call_sites_of(call, function):
                for param in self._told_by(site.callee):
                    given = self.program.argument_at(site, param)
                    if given is not None:
                        yield given, call
        keeps = stmt.kind == "augassign" or any(
            not isinstance(target, ir.Name) or _adds_to(target, stmt.value)
            for target in stmt.targets
        )
        given = stmt.value if keeps or stmt.kind == "return" else None
        if isinstance(stmt.value, ir.Suspend):
            given = stmt.value.value
        if given is not None:
            for part in _parts(given):
                if self._is_number(part, function, stmt):
                    yield part, stmt

    def _is_number(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether a value is made a number, or cut from the graph: it is for showing."""
        if any(_makes_number(inner) for inner in ir.walk(expr)):
            return True
        if not isinstance(expr, ir.Name):
            return False
        made = self.scales.values.of(expr, function, stmt)
        return bool(made) and all(_makes_number(one.expr) for one in made)

    def _is_told_before(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether a function that is called has made a number of it."""
        made = self.scales.values.of(expr, function, stmt)
        return any(one.function != function and _makes_number(one.expr) for one in made)

    def _told_by(self, callee: str) -> frozenset[str]:
        """The parameters that a function shows, where nothing says so in the function itself: its file has
        nothing to do with AMP, or other callers give something else."""
        if callee not in self._tells:
            self._tells[callee] = frozenset()
            params = {ir.Name(p.name) for p in self.program.functions[callee].params}
            self._tells[callee] = frozenset(
                shown.id
                for stmt in self.program.statements(callee)
                for expr, _ in self._sinks(stmt, callee)
                for shown in (_number_of(expr) or expr,)
                if isinstance(shown, ir.Name)
                and shown in params
                and (
                    callee not in self.events.read
                    or not self._is_scaled_loss(expr, callee, stmt)
                )
            )
        return self._tells[callee]

    def _is_scaled_loss(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        try:
            values = [self.scales.of(expr, function, stmt)]
        except Unclear:
            values = [*self._values_of(_number_of(expr) or expr, function, stmt)]
        return any(
            LOSS in value.sources
            and not value.sources & {ASKED, SCALE}
            and any(one == 1.0 for one in flat(value.degree))
            for value in values
        )

    def _values_of(
        self,
        expr: ir.Expr,
        function: str,
        stmt: ir.Stmt,
        given: Environment | None = None,
    ) -> Iterator[Value]:
        """What a name may stand for here, each by itself: what callers give is for them to know."""
        if isinstance(expr, ir.Name):
            for one in self.scales.values.of(expr, function, stmt):
                if one.kind == "value" and not one.fields:
                    if one.function == function or one.context:
                        with suppress(Unclear):
                            yield self.scales.of(one.expr, *one.place[:2], given)

    # -- penalties --------------------------------------------------------------------------------

    def penalties(self, stmt: ir.Stmt, function: str) -> Iterator[Finding]:
        """What is computed of scaled gradients as if they were not scaled."""
        asks = ir.file_of(function) in self.asking and stmt.value is not None
        for expr in stmt.exprs if asks else ():
            try:
                self.scales.of(expr, function, stmt)
            except Mixed as mixed:
                if ASKED in mixed.sources and mixed.stmt is stmt:
                    yield self._penalty(function, stmt)
                    return
            except Unclear:
                pass
        for call in calls_of(stmt):
            if _last(call.func) != "scale" or not isinstance(call.func, ir.Attr):
                continue
            if self.events.is_scaler(call.func.value, function) and any(
                self._has_scaled_part(arg.value, function, stmt) for arg in call.args
            ):
                yield self._penalty(function, call)

    def _has_scaled_part(
        self, loss: ir.Expr, function: str, stmt: ir.Stmt | None, depth: int = 0
    ) -> bool:
        """Whether something is added to a loss that is made of gradients of a scaled one."""
        if isinstance(loss, ir.Operation) and loss.op in ("+", "-"):
            return any(
                self._has_scaled_part(one, function, stmt, depth)
                for one in loss.operands
            )
        if isinstance(loss, ir.Name) and depth < 4:
            return any(
                self._has_scaled_part(one.expr, one.function, one.stmt, depth + 1)
                for one in self.scales.values.of(loss, function, stmt)
                if one.kind == "value" and not one.fields
            )
        try:
            value = self.scales.of(loss, function, stmt)
        except Unclear:
            return False
        return ASKED in value.sources and value.is_scaled

    def _penalty(self, function: str, at: ir.Call | ir.Stmt) -> Finding:
        message = (
            "the gradients in this penalty are those of a scaled loss: divide them by"
            " scaler.get_scale() first"
        )
        return self.context.finding(READ, function, at, message)

    # -- hooks ------------------------------------------------------------------------------------

    def hooks(self, stmt: ir.Stmt, function: str) -> Iterator[Finding]:
        """Hooks whose result is another one where the gradient is scaled."""
        for call in calls_of(stmt):
            hook = call.argument(0, "hook")
            if _last(call.func) in _HOOKS and hook is not None:
                if self._is_uneven(hook, _last(call.func), function, stmt):
                    message = (
                        "this hook sees scaled gradients, and what it makes of them is not their"
                        " multiple: change them after scaler.unscale_(optimizer) instead"
                    )
                    yield self.context.finding(EDITED, function, call, message)

    def _is_uneven(
        self, hook: ir.Expr, registers: str, function: str, stmt: ir.Stmt
    ) -> bool:
        gradient = Value(1.0, frozenset((GRADIENT,)))
        # Hooks of modules are given the module, and the gradients of its inputs.
        place = -1 if registers == "register_hook" else 1
        plain = registers != "register_post_accumulate_grad_hook"
        for made in self.scales.values.of(hook, function, stmt):
            if isinstance(made.expr, ir.Deferred):
                params = made.expr.params
                if plain and len(params) == (3 if place == 1 else 1):
                    given: Environment = {(made.function, params[place]): gradient}
                    at = made.stmt or stmt
                    if self._is_another(made.expr.body, made.function, at, given):
                        return True
            for function, before in self._called(made):
                facts = self.program.functions[function]
                index = place + len(before) if place > 0 else place
                if not plain:
                    direct = self.events.direct(function)
                    if any(event.kind in _CHANGES for _, event in direct):
                        return True
                elif len(facts.params) > max(index, 0):
                    given = {(function, facts.params[index].name): gradient}
                    for param, value in zip(facts.params, before, strict=False):
                        if value is not None:
                            with suppress(Unclear):
                                carried = self.scales.of(value, *made.place[:2])
                                given[function, param.name] = carried
                    if any(
                        one.kind == "return"
                        and one.value is not None
                        and self._is_another(one.value, function, one, given)
                        for one in ir.statements(facts.body)
                    ):
                        return True
        return False

    def _called(self, hook: Object) -> Iterator[tuple[str, list[ir.Expr | None]]]:
        """The functions that a hook runs, and what they are given before what the hook is."""
        program = self.program
        if hook.kind == "function":
            yield hook.name, []
        elif isinstance(hook.expr, ir.Call):
            if program.origin(hook.expr.func, hook.function) == PARTIAL:
                inner = ir.Call(hook.expr.args[0].value, ())
                given = [a.value for a in hook.expr.args[1:] if a.name is None]
                for callee in program.callees(inner, hook.function):
                    yield callee, [*given]
            for name in program.instance_classes(hook.expr, hook.function):
                method = program.method(name, "__call__")
                if method is not None:
                    yield method, [None]

    def _is_another(
        self, made: ir.Expr, function: str, stmt: ir.Stmt, given: Environment
    ) -> bool:
        try:
            values = [self.scales.of(made, function, stmt, given)]
        except Mixed:
            return True
        except Unclear:
            values = [*self._values_of(made, function, stmt, given)]
        return any(GRADIENT in one.sources and one.degree == 0.0 for one in values)


def _parts(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The values in what is shown: of a text with values in it, of a dict or a tuple."""
    match expr:
        case ir.Operation(op="joinedstr", operands=parts):
            for part in parts:
                yield from _parts(part)
        case ir.Operation(op="formattedvalue", operands=(shown, *_)):
            yield shown
        case ir.Operation(op="%", operands=(ir.Const(value=str()), shown)):
            yield from _parts(shown)
        case ir.Display(items=items) | ir.Operation(op="+", operands=items):
            for item in items:
                yield from _parts(item)
        case ir.Const():
            return
        case _:
            yield expr


def _adds_to(target: ir.Expr, value: ir.Expr | None) -> bool:
    return (
        isinstance(value, ir.Operation) and value.op == "+" and target in value.operands
    )


def _makes_number(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Attr):
        return expr.attr == "data"
    return isinstance(expr, ir.Call) and _last(expr.func) in _MAKES_NUMBERS


def _number_of(expr: ir.Expr) -> ir.Expr | None:
    """What a number is made of."""
    for inner in ir.walk(expr):
        match inner:
            case ir.Call(func=ir.Attr(value=value)) | ir.Attr(
                value=value
            ) if _makes_number(inner):
                return _number_of(value) or value
    return None


def _last(func: ir.Expr) -> str:
    return func.attr if isinstance(func, ir.Attr) else ir.key_of(func) or ""
