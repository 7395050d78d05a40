"""Whether optimizers that share a scaler may hold the same parameters, which it would unscale twice."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.analysis.objects.coverage import Coverage, definitions_of
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.held import Identity
from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.analysis.objects.optimizers import Birth
from amp_migrate.core.closure import reached
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition


class Disjoint:
    """Answers for the optimizers of one program."""

    def __init__(self, program: Program, forward: Forward) -> None:
        self.program = program
        self.forward = forward

    def doubt(
        self, optimizers: Iterable[Coverage], live: Live | None = None
    ) -> str | None:
        """Why some of the optimizers may hold the same parameters; None where none does. ``live``: what
        can run, where that is known."""
        several = list(optimizers)
        if len(several) < 2:
            return None
        given = [held for one in several for held in one.given]
        if any(not held.complete or not held.all for held in given):
            return "it cannot be seen which parameters the optimizers that share a scaler hold"
        for _, _, call in self.program.calls_named("add_param_group"):
            if all(id(call) not in one.added for one in several):
                return "parameters may be added to an optimizer that shares a scaler"
        made_of = [self._made_of(one) for one in several]
        for i, one in enumerate(made_of):
            for other in made_of[i + 1 :]:
                if any(_overlap(a, b) for a in one for b in other):
                    return "two optimizers step on the same parameters"
        line = self._tie(live)
        if line:
            return f"weights are tied (line {line}): two optimizers may step on them"
        return None

    def doubt_in(self, birth: Birth) -> str | None:
        """Why optimizers that one comprehension, or loop, makes may hold the same parameters."""
        around = self.program.control(birth.function).around(birth.path)
        loops = [stmt for stmt in around if stmt.kind in ("for", "while")]
        if len(loops) == 1 and loops[0].kind == "for" and loops[0].value is not None:
            target, iterable = loops[0].targets[0], loops[0].value
            names = {one for one in ir.walk(target) if isinstance(one, ir.Name)}
            is_rebound = any(
                one in names
                for stmt in ir.statements((loops[0],))
                for other in stmt.targets
                if stmt is not loops[0]
                for one in ir.walk(other)
            )
            if not is_rebound and _parts_from_each((target,), (iterable,), birth.call):
                return None
        for made in parts_of(birth.stmt):
            if isinstance(made, ir.Comprehension) and made.elements[-1] is birth.call:
                if _parts_from_each(made.targets, made.iterables, birth.call):
                    return None
        return (
            "it cannot be seen which parameters each of the optimizers in a list holds"
        )

    def _made_of(self, coverage: Coverage) -> set[Identity]:
        """The modules that an optimizer holds, with those that they were made from."""
        given = [one for held in coverage.given for one in held.all]
        return {*reached(given, lambda one: self._ingredients(one, coverage))}

    def _ingredients(self, one: Identity, coverage: Coverage) -> list[Identity]:
        found: list[Identity] = []
        for definition in definitions_of(self.program, one):
            for made in self._of_part(one, definition) or [definition]:
                if made.value is None:
                    continue
                calls = ir.calls_in(made.value)
                given = [made.value, *(a.value for call in calls for a in call.args)]
                for value in given[made is definition :]:
                    if isinstance(value, (ir.Name, ir.Attr)) and (
                        self.forward.is_module(value, made.function)
                    ):
                        found += coverage.identities(value, made.function, made.stmt)
        return found

    def _of_part(self, one: Identity, whole: Definition) -> list[Definition]:
        """What gives a part of a module its value, where that is in sight."""
        program = self.program
        value = whole.value if len(one) > 3 else None
        classes = (
            () if value is None else program.instance_classes(value, whole.function)
        )
        found = [d for c in classes for d in program.attribute_definitions(c, one[3])]
        known = len(classes) == 1 and all(d.value is not None for d in found)
        return found if known else []

    def _tie(self, live: Live | None) -> int:
        """The line where one module is given a parameter of another, or 0."""
        for name, function in self.program.functions.items():
            if live is not None and not live.runs(name):
                continue
            for stmt in ir.statements(function.body):
                if stmt.kind != "assign" or not isinstance(stmt.value, ir.Attr):
                    continue
                for target in stmt.targets:
                    if isinstance(target, ir.Attr) and target.attr == stmt.value.attr:
                        if target.attr in ("weight", "bias"):
                            return stmt.line
        return 0


def _parts_from_each(
    targets: tuple[ir.Expr, ...], iterables: tuple[ir.Expr, ...], construction: ir.Call
) -> bool:
    """Whether all parameters are of what is gone through, each by itself."""
    own = {inner for target in targets for inner in ir.walk(target)}
    listed = [i.items for i in iterables if isinstance(i, ir.Display)]
    given = parameters_of(construction)
    holders = [
        inner.value
        for inner in ir.walk(given or construction)
        if isinstance(inner, ir.Attr) and inner.attr in _PARAMETERS
    ]
    return (
        bool(holders)
        and len(targets) == 1
        and all(len(set(items)) == len(items) for items in listed)
        and all(any(inner in own for inner in ir.walk(h)) for h in holders)
    )


_PARAMETERS = ("parameters", "named_parameters")


def _overlap(one: Identity, other: Identity) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
