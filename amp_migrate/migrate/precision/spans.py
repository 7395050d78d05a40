"""Islands of whole statements: what is done for an operation that has no smaller remedy.

The fewest statements around the operation run with autocast off, and what goes into them in half
precision is cast up. They compute then what they compute with AMP off, and what they bind is fp32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from amp_migrate.analysis.objects.availability import root_of
from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import MODELS, MODULES, Forward
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.values.dtypes import rebinds
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import FullPrecision, Hoist, Island, Upcast
from amp_migrate.migrate.precision.constants import Constants
from amp_migrate.migrate.precision.entering import (
    SETTINGS,
    SIMPLE,
    Entering,
    Span,
    Unfit,
    holder,
    whole,
)
from amp_migrate.migrate.precision.formulas import Formulas
from amp_migrate.migrate.precision.islands import OUTPUTS
from amp_migrate.migrate.precision.remedies import Found, Planner, Remedies, makes_new
from amp_migrate.migrate.precision.sigmoids import SQUASHES, Planned, Sigmoids
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, calls_of, parts_of
from amp_migrate.program.link import CallSite

_KINDS = frozenset(
    "expr assign annassign augassign return if for pass raise continue break assert".split()
)
_UNFIT = operations("unfit")
"""The backward of the first goes by the size of its gradient, which a scaler changes; the others tell
by the last digits of their operand which directions it has, and half precision fills those in."""
_OF_THE_OBJECT = frozenset("backward step zero_grad retain_grad register_hook".split())
"""Methods that train, or are about the very tensor, and not about a copy."""
_CTC = ("torch.nn.CTCLoss", "warpctc_pytorch.CTCLoss")
_USE_UP = frozenset(f"builtins.{n}" for n in "sum max min all any list tuple".split())
"""What computes all that a generator gives before it returns."""
_MOST = 30
_LEAST = 1e-9
"""From here on, an epsilon hides what half precision has not next to 0."""


_State = tuple[Planned, set[int], dict[Span, list[Found]]]


class Spans(Planner):
    """Plans for one program."""

    def __init__(
        self,
        remedies: Remedies,
        sigmoids: Sigmoids,
        forward: Forward,
        constants: Constants,
        formulas: Formulas,
        under_autocast: Statements,
        known: Collection[Span],
    ) -> None:
        """``known``: those that other loops of the program have."""
        super().__init__(remedies)
        self.entering = Entering(remedies)
        self.sigmoids = sigmoids
        self.forward = forward
        self.constants = constants
        self.formulas = formulas
        self.under_autocast = under_autocast
        self.known = [span for span in known if not span.is_called]
        self.planned: dict[Span, list[Found]] = {}
        self.entered: set[str] = set()
        """The variables that the last one casts."""
        self._closed: dict[str, bool] = {}

    def around(self, function: str, stmt: ir.Stmt, follows: bool = False) -> bool:
        """Plan the smallest island around a statement; whether there is one. ``follows``: functions of the
        program may be called in it.

        Where a number is too small for half precision, so are the values that it is for: what they are
        computed with is part of it, as far as that stands right before.
        """
        small, _ = self.constants.unheld(function, stmt)
        start = self._state()
        best: Span | None = None
        entered: set[str] = set()
        for span in self._candidates(function, stmt, follows):
            if best is not None and (
                not small
                or best in self.known
                or (span.path[:-1], span.last) != (best.path[:-1], best.last)
            ):
                break
            if best is not None and self._multiplies(span, best):
                break
            self._restore(start)
            if self.plan(span):
                if best is None or not entered.isdisjoint(self._bound(span, best)):
                    best, entered = span, self.entered
            elif best is not None:
                break
        self._restore(start)
        if best is None:
            best = Span(function, stmt.path, stmt.path[-1][1], follows=follows)
        return self.plan(best)

    def around_calls(self, function: str) -> bool:
        """Plan islands around all calls of a function, so that all of it runs in fp32; whether there are
        such."""
        sites, start = self._calls_under_autocast(function), self._state()
        if not sites or not self._has_known_callers(function):
            return False
        for site in sites:
            if id(site.call) not in self.sigmoids.in_fp32:
                self.around(site.caller, site.stmt, follows=True)
        if self.plan(whole(self.program, function)):
            return True
        self._restore(start)
        return False

    def _calls_under_autocast(self, function: str) -> list[CallSite]:
        return [
            site
            for site in self.program.call_sites.get(function, ())
            if (site.caller, site.stmt.path) in self.under_autocast
        ]

    def _has_known_callers(self, function: str) -> bool:
        """Whether each call of a function is seen to be one, also of what is not known."""
        program, facts = self.program, self.program.functions[function]
        if function in program.escaping or facts.name == "forward":
            return False
        if facts.class_name is None:
            return True
        if facts.name.startswith("__"):
            return False
        for owner, stmt in program.mentioning(facts.name):
            called = {id(c.func) for c in calls_of(stmt) if program.callees(c, owner)}
            for inner in parts_of(stmt):
                said = getattr(inner, "attr", getattr(inner, "value", None))
                if said == facts.name and id(inner) not in called:
                    return False
        return True

    def plan(self, span: Span) -> bool:
        """Plan an island; whether that is exact with AMP off, and helps."""
        others = [o for o in (*self.planned, *self.known) if o.meets(span)]
        within = [o for o in others if o in self.planned and span.covers(o)]
        if any(other != span and other not in within for other in others):
            return False
        start = self._state()
        for other in within:
            # One island in place of two.
            for edit in self.planned.pop(other):
                self.remedies.edits.pop(edit, None)
        try:
            edits = self._edits(span)
        except Unfit:
            self._restore(start)
            return False
        self.planned[span] = edits
        self.remedies.edits.update(dict.fromkeys(edits))
        return True

    def _state(self) -> _State:
        return self.sigmoids.planned(), set(self.sigmoids.in_fp32), dict(self.planned)

    def _restore(self, state: _State) -> None:
        (full, edits), in_fp32, planned = state
        self.sigmoids.take_back((set(full), dict(edits)))
        self.sigmoids.in_fp32, self.planned = set(in_fp32), dict(planned)

    def _bound(self, span: Span, other: Span) -> set[str]:
        """What a span binds in statements that another, which ends where it does, has not."""
        block = self.program.control(span.function).block(span.path)
        added = block[span.path[-1][1] : other.path[-1][1]]
        return {name for one in ir.statements(added) for name, _, _ in bindings(one)}

    def _multiplies(self, span: Span, other: Span) -> bool:
        """Whether the first statement of a span, which another has not, has a product that autocast is
        for."""
        block = self.program.control(span.function).block(span.path)
        return any(
            self.forward.in_statement(stmt, span.function, MODELS)
            or any(map(_is_product, stmt.exprs))
            for stmt in block[span.path[-1][1] : other.path[-1][1]]
        )

    def _candidates(
        self, function: str, stmt: ir.Stmt, follows: bool
    ) -> Iterator[Span]:
        """Ever more statements up to one, then those up to the one that this stands in."""
        yield from (span for span in self.known if span.holds(function, stmt.path))
        control = self.program.control(function)
        left = _MOST
        for last in (stmt, *control.around(stmt.path)):
            block = control.block(last.path)
            end = last.path[-1][1]
            for first in reversed(block[: end + 1]):
                left -= 1
                is_text = first.kind == "expr" and isinstance(first.value, ir.Const)
                if (
                    left < 0
                    or is_text
                    or first.is_elif
                    or first.kind not in _KINDS
                    or (function, first.path) not in self.under_autocast
                ):
                    break
                yield Span(function, first.path, end, follows=follows)

    # -- one island -----------------------------------------------------------------------------

    def _edits(self, span: Span) -> list[Found]:
        """What makes all of a span fp32; raises `Unfit` where that cannot be shown."""
        function = span.function
        if span.is_called and not all(
            id(site.call) in self.sigmoids.in_fp32
            for site in self._calls_under_autocast(function)
        ):
            raise Unfit
        inside = span.inside(self.program)
        hoisted: list[ir.Call] = []
        if len(inside) == 1 and not span.is_called:
            hoisted = self._layers(span, inside[0])
        for stmt in inside:
            self._check(span, stmt, hoisted)
        small = [of for stmt in inside for of in self._small(function, stmt)]
        entering = self.entering.uses(span, inside, set(map(id, hoisted)))
        if span.is_called and entering:
            raise Unfit
        self.entered = {
            use.id for uses in entering for _, use in uses if isinstance(use, ir.Name)
        }
        edits = [
            e for uses in entering for e in self.entering.cast(span, inside[0], uses)
        ]
        self._check_behind(span, inside)
        outside = {id(e) for c in hoisted for e in ir.walk(c) if e is not c}
        for stmt in inside:
            for expr in (*stmt.exprs, *stmt.targets):
                everything = {id(one) for one in ir.walk(expr)} - outside
                self.halves.made_full |= everything
                self.sigmoids.in_fp32 |= everything - set(map(id, hoisted))
        for of in small:
            unseen = not self._is_far_from_one(of)
            if self.sigmoids.may_be_one(of, unseen, self.entering.is_setting):
                raise Unfit
        for stmt in inside:
            if self.formulas.refusal(function, stmt) is not None:
                raise Unfit
        if span.is_called:
            return []
        for number, call in enumerate(hoisted, 1):
            edits += self._hoist(function, inside[0], call, number)
        island = Island(span.path) if hoisted else FullPrecision(span.path, span.last)
        return [*edits, (function, island)]

    def _layers(self, span: Span, stmt: ir.Stmt) -> list[ir.Call]:
        """The layers that a statement calls before it computes anything else: they stay under autocast,
        in statements of their own."""
        found: list[ir.Call] = []
        if stmt.kind not in SIMPLE or stmt.value is None:
            return found
        computed = False

        def look(expr: ir.Expr) -> None:
            nonlocal computed
            if isinstance(expr, ir.Call) and expr is not stmt.value:
                try:
                    self._check_call(span, stmt, expr)
                except Unfit:
                    if computed or not self._is_layer(expr, span.function):
                        raise
                    found.append(expr)
                    return
            for child in ir.children(expr):
                look(child)
            computed |= isinstance(expr, ir.Call) or (
                isinstance(expr, ir.Operation) and expr.op != "slice"
            )

        look(stmt.value)
        inside = {id(inner) for call in found for inner in ir.walk(call)}
        if found and any(
            _is_product(inner) and id(inner) not in inside
            for inner in ir.walk(stmt.value)
        ):
            # Nothing would be left of it to autocast.
            raise Unfit
        return found

    def _is_layer(self, call: ir.Call, function: str) -> bool:
        """Whether a call is one of a module or function of the program, on what is there already."""
        return (
            self.program.origin(call.func, function) is None
            and all(
                isinstance(inner, (ir.Name, ir.Attr, ir.Item, ir.Const))
                for arg in call.args
                for inner in ir.walk(arg.value)
            )
            and not isinstance(call.func, ir.Call)
            and (
                bool(self.program.resolve(call.func, function))
                or self.forward.is_forward(call, function, MODULES)
            )
        )

    def _hoist(
        self, function: str, stmt: ir.Stmt, call: ir.Call, number: int
    ) -> Iterator[Found]:
        """Take a call out of a statement, with its result cast up."""
        steps = steps_to(stmt, call)
        name = self.remedies.free_name(function, OUTPUTS, number)
        if steps is None or name is None:
            raise Unfit
        at = Made(call, function, stmt)
        if not self.remedies.dtypes.is_fp32(at) or rebinds(at):
            raise Unfit
        yield function, Upcast(stmt.path, steps)
        yield function, Hoist(stmt.path, steps, name)

    def _small(self, function: str, stmt: ir.Stmt) -> list[Made]:
        """What may be half, and is computed with numbers that half precision does not have."""
        small, is_large = self.constants.unheld(function, stmt)
        if is_large and (
            self.constants.goes_into_half(function, stmt)
            or not any(
                isinstance(target, ir.Name)
                and self.constants.goes_into_softmax(Made(target, function, stmt))
                for target in stmt.targets
            )
        ):
            # Where it is cast down again, it is infinite.
            raise Unfit
        return small

    def _is_far_from_one(self, of: Made) -> bool:
        """Whether a value matters where it is near to 0 alone, and no nearer than half precision is: it
        divides, or its logarithm is taken, with an epsilon; and nothing in its function is taken from 1.
        """
        last = {
            id(one)
            for inner in parts_of(of.stmt)
            for one in (_logarithm_of(inner), _divisor(inner))
        }
        sums = [
            inner
            for inner in parts_of(of.stmt)
            if isinstance(inner, ir.Operation)
            and inner.op == "+"
            and any(one is of.expr for one in inner.operands)
        ]
        small = [
            abs(number)
            for one in sums
            for operand in one.operands
            for number in self.constants.numbers.all(operand, of.function)
        ]
        if not sums or not all(id(one) in last for one in sums):
            return False
        if self._squashes_and_takes_from_one:
            return False
        return min(small, default=0) >= _LEAST and not (
            self._taken_from_one(of.function).intersection(ir.walk(of.expr))
        )

    @cached_property
    def _squashes_and_takes_from_one(self) -> bool:
        """Whether a file of what can run speaks of a sigmoid, and takes something from 1: that may be what
        is not seen."""
        program, can_run = self.program, self.flow.can_run
        files = {
            ir.file_of(function)
            for word in SQUASHES
            for said in (word, word.title())
            for function, _ in program.mentioning(said)
            if can_run(function)
        }
        return any(
            ir.file_of(function) in files
            and can_run(function)
            and bool(self._taken_from_one(function))
            for function in program.functions
        )

    def _taken_from_one(self, function: str) -> set[ir.Expr]:
        """The variables that go into what a function takes from 1."""
        statements = list(self.program.statements(function))
        found = {
            name
            for stmt in statements
            for inner in parts_of(stmt)
            if isinstance(inner, ir.Operation)
            and inner.op == "-"
            and not isinstance(inner.operands[1], ir.Const)
            for name in ir.walk(inner.operands[1])
            if isinstance(inner.operands[0], ir.Const)
        }
        before = -1
        while before < len(found):
            before = len(found)
            for stmt in statements:
                if not found.isdisjoint(stmt.targets) and stmt.value is not None:
                    found.update(ir.walk(stmt.value))
        return {one for one in found if isinstance(one, (ir.Name, ir.Attr))}

    # -- what may stand in one ------------------------------------------------------------------

    def _check(self, span: Span, stmt: ir.Stmt, hoisted: list[ir.Call]) -> None:
        function = span.function
        if (
            stmt.kind not in _KINDS
            or (stmt.is_elif and stmt.path == span.path)
            or (function, stmt.path) not in self.under_autocast
        ):
            raise Unfit
        if stmt.kind == "assert" and any(
            ir.method_of(call) == "allclose" for call in calls_of(stmt)
        ):
            raise Unfit
        used_up = {
            id(arg.value)
            for call in calls_of(stmt)
            if self.program.origin(call.func, function) in _USE_UP
            for arg in call.args
        }
        for inner in parts_of(stmt):
            if isinstance(inner, (ir.Deferred, ir.Suspend, ir.Walrus)) or (
                isinstance(inner, ir.Comprehension)
                and inner.lazy
                and id(inner) not in used_up
            ):
                raise Unfit
        apart = {id(inner) for call in hoisted for inner in ir.walk(call)}
        for call in calls_of(stmt):
            if id(call) not in apart:
                self._check_call(span, stmt, call)
        for target in stmt.targets:
            if stmt.kind == "augassign" or isinstance(target, ir.Item):
                self._check_changed(span, stmt, target)

    def _check_call(self, span: Span, stmt: ir.Stmt, call: ir.Call) -> None:
        """Allow functions and methods of torch, and layers without parameters; and functions of the program
        where they are followed."""
        function, func = span.function, call.func
        if isinstance(func, ir.Attr) and func.attr in _UNFIT:
            raise Unfit
        if any(arg.star or arg.name in ("out", "inplace") for arg in call.args):
            raise Unfit
        origin = self.program.origin(func, function)
        if origin is not None:
            _check_function(origin)
            return
        refs = self.program.resolve(func, function)
        if refs and all(ref.kind == "external" for ref in refs):
            for ref in refs:
                _check_function(ref.name)
            return
        callees = self.program.callees(call, function) if span.follows else ()
        if callees and len(callees) == len(refs):
            for callee in callees:
                self._check_callee(callee)
            for arg in call.args:
                at = Made(arg.value, function, stmt)
                if arg.name in SETTINGS and not self.halves.is_never_half(at):
                    raise Unfit  # Elsewhere such a one is no tensor.
            return
        if refs:
            plain = all(
                ref.kind == "made"
                and (
                    dtype_table.KEEPING.fullmatch(ref.name)
                    or dtype_table.FP32_LAYERS.fullmatch(ref.name)
                    or ref.name in _CTC
                )
                for ref in refs
            )
            if not plain:
                raise Unfit
            return
        if (
            not isinstance(func, ir.Attr)
            or func.attr in _OF_THE_OBJECT
            or self.forward.is_forward(call, function, MODULES)
        ):
            raise Unfit
        if func.attr.endswith("_") and not func.attr.endswith("__"):
            self._check_changed(span, stmt, func.value)

    def _check_callee(self, function: str) -> None:
        """Allow functions that compute with nothing that may be half but what they are given."""
        if function not in self._closed:
            self._closed[function] = False  # It may call itself.
            self._check_body(function)
            self._closed[function] = True
        if not self._closed[function]:
            raise Unfit

    def _check_body(self, function: str) -> None:
        facts = self.program.functions[function]
        if facts.is_async or facts.is_generator or facts.decorators:
            raise Unfit
        body, inside = whole(self.program, function), list(ir.statements(facts.body))
        for stmt in inside:
            self._check(body, stmt, [])
            if any(isinstance(target, ir.Attr) for target in stmt.targets):
                raise Unfit
        given = {
            ir.Name(param.name)
            for param in facts.params
            if param.default is None or isinstance(param.default, ir.Const)
        }
        for uses in self.entering.uses(body, inside, set()):
            root = root_of(uses[0][1])
            if root not in given or self.program.class_of_self(root, function):
                raise Unfit

    def _check_changed(self, span: Span, stmt: ir.Stmt, target: ir.Expr) -> None:
        """What is changed in place must be the very value that it is without the island: no copy."""
        function = span.function
        # Where a tensor is stored, what it becomes a part of is not cast.
        takes_tensor = isinstance(target, ir.Item) and not (
            stmt.value is not None
            and self.remedies.dtypes.is_number(Made(stmt.value, function, stmt))
        )
        target = holder(target)
        if makes_new(self.program, function, target):
            return
        at = Made(target, function, stmt)
        if self.halves.is_never_half(at):
            return
        if not isinstance(target, ir.Name):
            raise Unfit
        made, from_start = self.flow.reaching(target.id, at)
        if from_start or not made:
            raise Unfit
        for one in made:
            if one.kind == "augassign" and span.holds(function, one.path):
                continue
            if (
                one.kind != "assign"
                or one.value is None
                or not isinstance(one.targets[0], ir.Name)
            ):
                raise Unfit
            if makes_new(self.program, function, one.value) and (
                span.holds(function, one.path)
                or (not takes_tensor and self._is_right_before(span, one))
            ):
                continue
            if not self.halves.is_never_half(Made(one.value, function, one)):
                raise Unfit

    def _is_right_before(self, span: Span, stmt: ir.Stmt) -> bool:
        """Whether nothing uses what a statement of the same block binds, before a span does."""
        first = span.path[-1][1]
        block = self.program.control(span.function).block(span.path)
        return stmt.path[:-1] == span.path[:-1] and not any(
            target in ir.walk(expr)
            for between in ir.statements(block[stmt.path[-1][1] + 1 : first])
            for expr in between.exprs
            for target in stmt.targets
        )

    def _check_behind(self, span: Span, inside: list[ir.Stmt]) -> None:
        """What the span makes as a view of what enters it must not be changed in place later, or compared
        by identity: that is a view of a copy."""
        views = {
            name
            for stmt in inside
            for name, value, _ in bindings(stmt)
            if stmt.kind != "augassign"
            and not makes_new(self.program, span.function, value)
        }
        if not views:
            return
        for stmt in self.program.statements(span.function):
            if span.holds(span.function, stmt.path):
                continue
            changed = [
                target
                for target in stmt.targets
                if stmt.kind == "augassign" or isinstance(target, ir.Item)
            ]
            changed += [
                call.func.value
                for call in calls_of(stmt)
                if isinstance(call.func, ir.Attr) and call.func.attr.endswith("_")
            ]
            changed += [
                one
                for inner in parts_of(stmt)
                if isinstance(inner, ir.Operation) and inner.op in ("is", "is not")
                for one in inner.operands
                if not any(isinstance(other, ir.Const) for other in inner.operands)
            ]
            for target in changed:
                target = holder(target)
                if isinstance(target, ir.Name) and target.id in self.entered:
                    if stmt.line > inside[-1].line:
                        raise Unfit
                if not isinstance(target, ir.Name) or target.id not in views:
                    continue
                made, _ = self.flow.reaching(
                    target.id, Made(target, span.function, stmt)
                )
                if any(span.holds(span.function, one.path) for one in made):
                    raise Unfit


def _logarithm_of(expr: ir.Expr) -> ir.Expr | None:
    match expr:
        case ir.Call(
            func=ir.Attr(value=value, attr=attr), args=args
        ) if attr in operations("log"):
            return args[0].value if args else value
    return None


def _divisor(expr: ir.Expr) -> ir.Expr | None:
    match expr:
        case ir.Operation(op="/", operands=(_, divisor)):
            return divisor
    return None


def _is_product(expr: ir.Expr) -> bool:
    return any(
        (isinstance(inner, ir.Operation) and inner.op == "@")
        or (
            isinstance(inner, ir.Call)
            and isinstance(inner.func, ir.Attr)
            and inner.func.attr in operations("product")
            and inner.func.value != ir.Attr(ir.Name("torch"), "sparse")
        )
        for inner in ir.walk(expr)
    )


def _check_function(origin: str) -> None:
    """Allow what computes with what it is given alone."""
    if dtype_table.EINOPS.fullmatch(origin):
        return
    name = origin.rsplit(".", 1)[-1]
    if name.endswith("_") or not origin.startswith(("torch.", "math.", "builtins.")):
        raise Unfit
    if origin.startswith(("torch.distributed.", "torch.utils.")):
        raise Unfit
