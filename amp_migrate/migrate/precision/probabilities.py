"""BCELoss under autocast: its island of fp32, and the sigmoids before it, which need fp32, too.

BCELoss raises under autocast. In fp16 the sigmoid of 9 is 1, and the loss of a wrong answer 100
instead of 9.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.paths.loops import Blocked
from amp_migrate.analysis.values.bce import BceCall, BceLosses
from amp_migrate.analysis.values.halves import Statements
from amp_migrate.migrate.precision.islands import TANGLED, Islands
from amp_migrate.migrate.precision.remedies import Planner, Remedies, Unclear
from amp_migrate.migrate.precision.sigmoids import Sigmoids
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now, parts_of

_LISTING = ("dir", "vars", "getmembers")
_WORD = re.compile(r"\w+")
_MOST = 200


class Probabilities(Planner):
    """Plans for one program."""

    def __init__(self, remedies: Remedies, sigmoids: Sigmoids) -> None:
        super().__init__(remedies)
        self.sigmoids = sigmoids
        self.losses = self.program.noted(BceLosses)
        self.islands = Islands(remedies, self.losses)

    def plan(self, functions: Collection[str], regions: Statements) -> None:
        """Plan for the losses in ``functions``; raises `Blocked` where that cannot be.

        ``regions``: those that stand in a region themselves, and are not only called from there.
        """
        refusal = self.losses.unclear(functions)
        if refusal is not None:
            raise Blocked(refusal)
        for found in self.losses.calls(functions):
            if self._matters(found, regions):
                self._plan_call(found)

    def _plan_call(self, found: BceCall) -> None:
        call, line = found.call, found.call.line
        probability, target = call.argument(0, "input"), call.argument(1, "target")
        if probability is None or target is None:
            raise Unclear("BCELoss is given arguments that are not followed", line)
        if not self.losses.is_certain(found):
            raise Unclear("what is called may be BCELoss, or another loss", line)
        self.sigmoids.squash(Made(probability, found.function, found.stmt))
        if (found.function, found.stmt.path) not in self.halves.under_autocast:
            if not any(one is call for one in calls_now(found.stmt)):
                raise Unclear(TANGLED, line)
            return
        self.islands.isolate(found)
        at = Made(target, found.function, found.stmt)
        if not self.halves.is_never_half(at):
            # BCELoss takes a target of its input's dtype only.
            given = Made(probability, found.function, found.stmt)
            if self.remedies.dtypes.is_fp32(given) and not (
                self.program.is_library(found.function)
            ):
                self.remedies.upcast(found.function, found.stmt, target)
                return
            if not self.remedies.raise_(at, True):
                message = "the target of BCELoss is not shown to be fp32"
                raise Unclear(message, line)

    def _matters(self, found: BceCall, regions: Statements) -> bool:
        """Whether a loss may run under autocast, or on what autocast made."""
        function = found.function
        now = any(call is found.call for call in calls_now(found.stmt))
        if self._is_given_elsewhere(found) or (
            not now and self._is_never_called(found)
        ):
            return False
        called_unseen = not ir.is_top(function) and (
            function in self.program.escaping or function not in self.program.call_sites
        )
        return (
            (function, found.stmt.path) in self.halves.under_autocast
            or not now
            or called_unseen
            or self._comes_from(regions, found)
        )

    def _is_given_elsewhere(self, found: BceCall) -> bool:
        """Whether a call computes BCELoss in other scripts only: what it may call here is in sight, and is
        another loss."""
        held = self.modules.points_to.of(found.call.func, found.function)
        here = [one for one in held if self.modules.can_run(one.function)]
        return len(here) < len(held) and all(
            one.kind == "open"
            or (
                one.kind != "lost"
                and not one.fields
                and not self.losses.is_loss(one.expr, one.function)
            )
            for one in here
        )

    def _is_never_called(self, found: BceCall) -> bool:
        """Whether a loss stands in a lambda that is kept in an attribute of its object, and which nothing
        in the program reads."""
        own = self.program.self_class(found.function)
        match found.stmt:
            case ir.Stmt(kind="assign", targets=(ir.Attr(attr=name),)) if own:
                family = set(self.program.family(own[1]))
                return not self._is_read_by_any_name(family, name) and all(
                    one.kind == "assign"
                    and isinstance(one.value, ir.Deferred)
                    and all(isinstance(t, ir.Attr) for t in one.targets)
                    and [*map(ir.last_of, parts_of(one))].count(name) == 1
                    for _, one in self.program.mentioning(name)
                )
        return False

    def _is_read_by_any_name(self, classes: set[str], name: str) -> bool:
        """Whether an attribute of such an object may be read under names that the program makes: of what
        is written there, or of a list of all that the object has."""
        program = self.program
        running = list(filter(self.modules.can_run, program.functions))
        is_said = any(
            name in _WORD.findall(text)
            for file in {ir.file_of(one) for one in running}
            for text in program.modules[file].strings
        )
        asked = [
            (function, call.args[0].value)
            for word in ("getattr", *_LISTING)
            for function, _, call in program.calls_named(word)
            if call.args
            and (word != "getattr" or is_said)
            and not isinstance(call.args[-1].value, ir.Const)
        ]
        asked += [
            (function, inner.value)
            for function, stmt in program.mentioning("__dict__")
            for inner in parts_of(stmt)
            if isinstance(inner, ir.Attr) and inner.attr == "__dict__"
        ]
        return any(
            self.modules.can_run(function)
            and program.origin(of, function) is None
            and program.module_file(of, function) is None
            and not classes.isdisjoint(
                program.instance_classes(of, function) or classes
            )
            for function, of in asked
        )

    def _comes_from(self, regions: Statements, found: BceCall) -> bool:
        """Whether a loss outside of autocast is given what a region computes."""
        pending = [Made(a.value, found.function, found.stmt) for a in found.call.args]
        seen: set[tuple[ir.Expr, str, ir.Path]] = set()
        while pending and len(seen) < _MOST:
            one = pending.pop()
            if (one.function, one.stmt.path) in regions:
                return True
            for inner in self._given(one.expr, one.function):
                at = one.inner(inner)
                key = (inner, one.function, one.stmt.path)
                if key not in seen and not self.halves.is_never_half(at):
                    seen.add(key)
                    pending += self.flow.made(at) or ()
        return bool(pending)

    def _given(self, expr: ir.Expr, function: str) -> Iterator[ir.Expr]:
        """The variables and attributes in an expression, but for the functions and modules that it calls."""
        if isinstance(expr, (ir.Name, ir.Attr)):
            yield expr
        for inner in ir.children(expr):
            called = isinstance(expr, ir.Call) and inner is expr.func
            if not (called and self.program.resolve(inner, function)):
                yield from self._given(inner, function)
