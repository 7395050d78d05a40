"""One group's plan: training loops that share an optimizer are migrated wholly or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import PurePath
from typing import NoReturn

from amp_migrate.analysis.objects.availability import (
    Place,
    Sight,
    is_come_to_before,
    is_over,
)
from amp_migrate.analysis.objects.concrete import Concrete, without
from amp_migrate.analysis.objects.disjoint import Disjoint
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.holders import Holders
from amp_migrate.analysis.objects.live import Arms, Live
from amp_migrate.analysis.objects.makers import IN_ITS_OWN_WAY, parameters_of
from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.analysis.objects.read_only_uses import is_only_looked_at, saved
from amp_migrate.analysis.objects.unfollowed import Mentions, Unfollowed
from amp_migrate.analysis.paths.association import Association, Scalers
from amp_migrate.analysis.paths.closures import Closures
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.identity import Identities, order
from amp_migrate.analysis.paths.loops import (
    Backward,
    Blocked,
    Finder,
    Note,
    Refusal,
    TrainingLoop,
    may_step,
    opens_autocast,
    refused,
    speaks_amp,
)
from amp_migrate.analysis.paths.newborn import Newborn
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.paths.protocol import Placed, Placement
from amp_migrate.analysis.paths.walk import Frames, Site
from amp_migrate.analysis.tables.torch_names import TorchNames
from amp_migrate.analysis.values.device import (
    Devices,
    Told,
    Undecided,
    is_moved_to_cpu,
    stays_on_cpu,
)
from amp_migrate.core import phases
from amp_migrate.core.options import Options
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import (
    AddParameter,
    Autocast,
    Edit,
    Hoist,
    Insert,
    Protect,
    Recast,
    Scale,
    ScaleBackward,
    ScalerStep,
    SplitLast,
    Upcast,
    Widen,
    none_without_all,
    where_gradients,
)
from amp_migrate.migrate.compiled import Compiled
from amp_migrate.migrate.escaping import Handover
from amp_migrate.migrate.functions import CustomFunctions
from amp_migrate.migrate.higher_order import HigherOrder, Shared
from amp_migrate.migrate.precision.entering import Span
from amp_migrate.migrate.precision.hazards import Hazards
from amp_migrate.migrate.regions.evaluation import plan_evaluation
from amp_migrate.migrate.regions.inner_gradients import InnerGradientsFinder
from amp_migrate.migrate.regions.overlaps import without_overlaps
from amp_migrate.migrate.regions.reach import Reach
from amp_migrate.migrate.regions.regions import Regions, Run
from amp_migrate.migrate.scaling import switch_kinds
from amp_migrate.migrate.scaling.checkpoints import plan_checkpoints, unsaved
from amp_migrate.migrate.scaling.comprehensions import check_room
from amp_migrate.migrate.scaling.creation import Births, place_of
from amp_migrate.migrate.scaling.groups import Group, joined
from amp_migrate.migrate.scaling.guards import Guards, LossForward
from amp_migrate.migrate.scaling.instances import (
    receiver_of,
    refuse_instances,
    refuse_twins,
)
from amp_migrate.migrate.scaling.placement import Placer, Steps, roots
from amp_migrate.migrate.scaling.scaler_threading import NO_WAYS, Travel, Ways
from amp_migrate.migrate.scaling.states import States
from amp_migrate.migrate.scaling.switch_kinds import Carried
from amp_migrate.migrate.scaling.usage import ScriptRun, Usage
from amp_migrate.migrate.stale import Stale
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program
from amp_migrate.sources.requirements import CHOOSES_DTYPE

_TOUCHES = ("step", "zero_grad", "state_dict", "load_state_dict")
_MOST_SCRIPTS = 8
_LOSSES = ("loss", "total_loss", "batch_loss", "scaled_loss", "amp_loss")
_NORMS = ("norm", "grad_norm", "total_norm", "gradient_norm", "norm_of_all")


class Planner:
    """Plans the groups of one program; what it finds out of the program serves all of them."""

    def __init__(
        self,
        program: Program,
        options: Options,
        mentioned_elsewhere: Callable[[str, str], str | None],
        told: Told = lambda function, birth: None,
    ) -> None:
        """``mentioned_elsewhere``: which file that could not be read, if any, speaks of a file's
        function of that name. ``told``: the condition of a switch that is known from elsewhere.
        """
        self.told = told
        self.program = program
        self.options = options
        self.mentioned_elsewhere = mentioned_elsewhere
        self.optimizers = Optimizers(program, any_step=not options.scaled)
        self.closures = Closures(program, self.optimizers)
        self.events = Events(program, self.optimizers)
        self.forward = program.noted(Forward)
        self.inner = InnerGradientsFinder(
            program, self.events, self.forward, options.scaled
        )
        self.regions = Regions(program, self.events, self.forward, self.inner)
        self.disjoint = Disjoint(program, self.forward)
        self.torch_names = TorchNames(program)
        self.mentions = Mentions(program)
        self._devices: dict[frozenset[str], Devices] = {}
        self._live: dict[tuple[frozenset[str], frozenset[str], Arms], Live] = {}
        self._near: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        self._unfollowed: list[TrainingLoop] = []
        self.given: list[tuple[Group, set[str]]] = []
        """The groups that are planned, with the names that their switches have."""
        self.spans: dict[Span, None] = {}
        """The islands of statements that they have."""

    def groups(
        self, wanted: Callable[[TrainingLoop], bool] = lambda loop: True
    ) -> list[Group]:
        """The program's loops, as far as ``wanted``, those with a common optimizer together."""
        finder = Finder(self.program, self.optimizers, self.events)
        groups: list[Group] = []
        loops = finder.find()
        self._unfollowed = [
            loop for loop in loops if not loop.slots and self._is_called_unseen(loop)
        ]
        usage = Usage(
            self.program,
            self.optimizers,
            self.events,
            loops,
            self.live_around,
            self._runs_of,
        )
        chosen = [loop for loop in loops if wanted(loop)]
        for loop in phases.each("following optimizers", chosen):
            usage.settle(loop)
            finder.judge_optimizers(loop)
            if self.options.torch_too_old and loop.refusal is not None:
                # To follow its optimizer would not help it.
                loop.refusal = None if loop.refusal.code == "AMP010" else loop.refusal
            traces = [
                self.optimizers.trace(s) for s in loop.slots if s.kind != "unknown"
            ]
            slots = {slot for trace in traces for slot in trace.slots} | set(loop.slots)
            births = {birth for trace in traces for birth in trace.births}
            group = Group([loop], slots, births)
            groups = _with(groups, group)
        for slots in finder.together():
            touching = [group for group in groups if group.slots & slots]
            if len(touching) > 1:
                groups = [group for group in groups if group not in touching]
                while touching:
                    first = touching.pop(0)
                    beside = [one for one in touching if self._run_together(first, one)]
                    touching = [one for one in touching if one not in beside]
                    groups.append(joined(first, *beside) if beside else first)
        for group in groups:
            self._follow_onwards(group)
        return groups

    def live_around(self, loop: TrainingLoop) -> Live | None:
        """What can run with a loop, where all that runs it is in sight."""
        return self._live_with(
            [loop], self.program.around((ir.file_of(loop.function),))
        )

    def _runs_of(self, loop: TrainingLoop) -> list[ScriptRun]:
        """The runs that may come to a loop, one of each script."""
        program, file = self.program, ir.file_of(loop.function)
        around = program.around((file,))
        scripts = program.scripts_of((file,), around)
        found = []
        for script in sorted(scripts):
            files = self._beside(around, frozenset((script,)))
            own = roots(program, self.events, files)
            live: Live | None = self._live_from(around, frozenset((script,)))
            assert live is not None
            if len(scripts) == 1:
                live = self.live_around(loop)
            elif live.is_open or not all(
                map(live.runs, (one for one in own if ir.file_of(one) == script))
            ):
                # Somebody unseen may call more than the script does: a runner of tests, say.
                live = None
            elif live.runs(loop.function):
                own = [one for one in own if live.runs(one)]
            else:
                continue
            found.append(ScriptRun(files, tuple(own), live))
        return found

    def _run_together(self, one: Group, other: Group) -> bool:
        """Whether one run may come to the loops of both."""
        files = self.program.around(one.files | other.files)

        def may_meet(one: Group, other: Group) -> bool:
            live = self._live_with(one.loops, files)
            return live is None or any(
                live.reaches(loop.function, loop.backwards[0].stmt.path)
                for loop in other.loops
            )

        return may_meet(one, other) and may_meet(other, one)

    def _is_called_unseen(self, loop: TrainingLoop) -> bool:
        """Whether what computes gradients is handed on as a value, or got by a name that is put
        together: it may add to the gradients of any step."""
        program = self.program
        is_closure = loop.refusal is not None and loop.refusal.code == "AMP013"
        if is_closure:
            return False  # its gradients are those of the step that calls it
        if _is_in_lambda(loop):
            return True
        if program.call_sites.get(loop.function):
            return False
        name = program.functions[loop.function].name
        file = PurePath(ir.file_of(loop.function)).stem
        if name.startswith("test") and re.match(r"test_|.*_test$", file):
            return False  # a run of its own, whoever decorates it
        if loop.function in program.escaping:
            return True
        own = program.self_class(loop.function)
        return own is not None and any(
            len(call.args) > 1
            and not isinstance(call.args[1].value, ir.Const)
            and own[1] in program.instance_classes(call.args[0].value, caller)
            and not is_only_looked_at(program, caller, stmt, call)
            for caller, stmt, call in program.calls_named("getattr")
        )

    def parts(self, group: Group) -> list[Group]:
        """The loops of a group that train no object in common: those of one class, and those of another
        that derives from the same base and overrides the method. None where it is one part.
        """
        concrete = self.program.noted(Concrete)
        parts: list[tuple[frozenset[str], list[TrainingLoop]]] = []
        acting = [(concrete.classes_of(loop.function), [loop]) for loop in group.loops]
        # What steps for several of them is of one part with each.
        acting += (
            (concrete.called_on(function), [])
            for function, _, event in self.events.calls_of("step")
            if event.slot in group.slots
        )
        for classes, loops in acting:
            if not classes:
                return []
            for part in [part for part in parts if part[0] & classes]:
                parts.remove(part)
                classes, loops = classes | part[0], [*part[1], *loops]
            parts.append((classes, loops))
        every = frozenset().union(*(its for its, _ in parts))
        alone = concrete.is_alone(every)
        found = [
            Group(
                loops,
                group.slots,
                group.births,
                concrete.apart(classes, every if alone else classes),
            )
            for classes, loops in parts
            if loops
        ]
        involved = {f for f, _ in self.optimizers.mentions.of(group.slots)}
        if group.refusal is not None:
            involved |= self._standing_at(group.refusal.line)
        if all(involved.isdisjoint(part.apart) for part in found):
            return []
        if not alone and (
            any(map(self._holds_shared, group.births)) or not self._clears_first(group)
        ):
            return []
        return found

    def _standing_at(self, line: int) -> set[str]:
        """The functions that a line stands in."""
        return {
            function.qualname
            for function in self.program.functions.values()
            if isinstance(line, ir.Line)
            and ir.file_of(function.qualname) == line.file
            and any(
                stmt.line <= line <= stmt.end_line
                for stmt in ir.statements(function.body)
            )
        }

    def never_meet(self, groups: Sequence[Group]) -> bool:
        """Whether groups are those of one class each, of which a run has objects of one only."""
        concrete = self.program.noted(Concrete)
        classes = [
            [concrete.classes_of(loop.function) for loop in group.loops]
            for group in groups
        ]
        each = [frozenset().union(*its) for its in classes]
        return (
            all(its and all(its) for its in classes)
            and all(one.isdisjoint(other) for one, other in combinations(each, 2))
            and concrete.is_alone(frozenset().union(*each))
        )

    def _clears_first(self, group: Group) -> bool:
        """Whether each step uses no gradients but those of its own function, and nothing touches these that
        runs on another object: scaled ones flow into every object that a forward goes through.
        """
        concrete = self.program.noted(Concrete)

        def trains(function: str, stmt: ir.Stmt) -> bool:
            return concrete.runs_others(
                stmt, function, lambda callee: bool(self.events.kinds(callee))
            ) or any(
                "backward" in self.events.kinds(callee)
                for event in self.events.of(function, stmt)
                for callee in event.callees
            )

        return all(
            self.program.control(function).is_on(
                stmt.path,
                [
                    before.path
                    for before, cleared in self.events.direct(function)
                    if cleared.kind == "zero" and cleared.slot == event.slot
                ],
                partial(trains, function),
            )
            for function, stmt, event in self.events.calls_of("step")
            if event.slot in group.slots
        )

    def _holds_shared(self, birth: Birth) -> bool:
        """Whether an optimizer may be given a module that comes from outside of its object."""
        program = self.program
        given = parameters_of(birth.call)
        pending = [] if given is None else [(given, birth.function)]
        seen: set[tuple[ir.Expr, str]] = set()
        while pending:
            expr, function = pending.pop()
            own = program.self_class(function)
            copied = {
                part
                for call in ir.calls_in(expr)
                if program.origin(call.func, function) == "copy.deepcopy"
                and len(call.args) == 1
                for part in ir.walk(call)
            }
            for inner in ir.walk(expr):
                if inner in copied or inner == ir.Name(own[0] if own else ""):
                    continue
                if (inner, function) in seen:
                    continue
                seen.add((inner, function))
                if isinstance(inner, ir.Name) and self.forward.is_module(
                    inner, function
                ):
                    owner = program.owner(inner.id, function)
                    if owner is not None and (
                        owner != function or program.is_param(owner, inner.id)
                    ):
                        return True
                if isinstance(inner, (ir.Name, ir.Attr)):
                    pending += (
                        (made.value, made.function)
                        for made in program.definitions_of(inner, function)
                        if made.value is not None
                    )
        return given is None

    def _plan_apart(self, group: Group) -> None:
        """Plan a group without what runs on objects of other classes."""
        view = Planner(
            without(self.program, group.apart),
            self.options,
            self.mentioned_elsewhere,
            self.told,
        )
        view.given, view.spans = list(self.given), self.spans
        view.regions.keep_out_of(self.regions)
        wanted = {(loop.function, loop.path) for loop in group.loops}
        found = joined(*view.groups(lambda loop: (loop.function, loop.path) in wanted))
        view.plan(found)
        added = {(f, e.path) for f, e in found.edits if isinstance(e, AddParameter)}

        def is_apart(function: str | None) -> bool:
            while function is not None and function not in group.apart:
                function = self.program.functions[function].parent
            return function is not None

        unseen = {
            *self.program.escaping,
            *(
                site.callee
                for sites in self.program.call_sites.values()
                for site in sites
                if is_apart(site.caller)
            ),
        }
        for function in map(self.program.functions.__getitem__, sorted(unseen)):
            if (ir.file_of(function.qualname), function.path) in added:
                message = f"{function.name}() is called by what is left alone, too"
                found.refusal = Refusal("AMP015", message, function.line)
        group.take(found)
        self.given += ((group, names) for one, names in view.given if one is found)

    def plan(self, group: Group) -> None:
        """Fill a group with its edits, or with the reason why there are none."""
        if group.apart:
            self._plan_apart(group)
            return
        for loop in self._unfollowed if group.slots else ():
            if ir.file_of(loop.function) in self.program.around(group.files):
                name = f"{self.program.functions[loop.function].name}()"
                if _is_in_lambda(loop):
                    name = "a lambda"
                message = (
                    f"{name} computes gradients, too, and what calls it is not followed"
                )
                line = loop.backwards[0].event.line
                group.refusal = Refusal("AMP031", message, line)
                return
        for loop in group.loops:
            if loop.off:
                line = loop.backwards[0].event.line
                group.refusal = Refusal(
                    "AMP031", "a loop with the same optimizer is marked off", line
                )
                return
            if loop.refusal is not None:
                line = loop.refusal.line or loop.backwards[0].event.line
                group.refusal = Refusal(loop.refusal.code, loop.refusal.message, line)
                return
        if self.options.torch_too_old:
            message = (
                f"the project asks for {self.options.torch_too_old}: it has no autocast"
            )
            group.refusal = Refusal("AMP009", message)
            return
        if (
            self.options.torch_version < CHOOSES_DTYPE
            and self.options.dtype != "float16"
        ):
            message = "before torch 1.10, autocast casts to float16 only"
            group.refusal = Refusal("AMP009", message)
            return
        names = self._names_of(group)
        taken = names | self._names_in_scope(group)
        try:
            self._fill_group(group, taken)
        except Blocked as blocked:
            group.refusal = blocked.refusal
            return
        self.given.append((group, taken - names))

    def forget(self, groups: Collection[Group]) -> None:
        """Take the names of planned groups back."""
        self.given = [
            (group, names) for group, names in self.given if group not in groups
        ]

    def _names_of(self, group: Group) -> set[str]:
        """Every name that the files of a group mention, and those that they import."""
        names: set[str] = set()
        for file in self.program.importing(group.files):
            facts = self.program.modules[file]
            names |= facts.identifiers
            if file in group.files:
                names |= facts.strings
        return names

    def _names_in_scope(self, group: Group) -> set[str]:
        """Names that other groups' switches have taken where this group's would be seen too."""
        names: set[str] = set()
        for other, given in self.given:
            both = group.scopes | other.scopes
            beside = group.files & other.files and any(map(ir.is_top, both))
            shared = any(self.program.related(s) & other.scopes for s in group.scopes)
            if shared or beside:
                names |= given
        return names

    def _fill_group(self, group: Group, taken: set[str]) -> None:
        around = self.program.around(group.files)
        live = self._live_with(group.loops, around)
        self._refuse_cpu_only(group, around)
        # What keeps the optimizer, a helper that saves it, say, may take part in other runs, too.
        near = self.program.around({ir.file_of(loop.function) for loop in group.loops})

        def may_start(file: str) -> bool:
            found = self._live_from(around, frozenset({file}))
            return found.is_open or any(
                loop.function in found.functions for loop in group.loops
            )

        hazards = Hazards(
            self.program,
            self.forward,
            self.options,
            near,
            live,
            self.spans,
            may_start,
        )
        devices = self._devices_in(around)
        chosen: dict[tuple[ir.Expr, bool], tuple[str, ir.Stmt]] = {}

        def is_off(function: str, stmt: ir.Stmt) -> bool:
            tests = devices.options_against(function, stmt)
            for test, where in tests.items():
                chosen.setdefault(test, where)
            return bool(tests)

        trained = frozenset(loop.function for loop in group.loops)
        hazards.judge_setup(trained, is_off)
        devices = devices.only_where(chosen)
        if self.options.scaled:
            each = self._refuse_handover(group)
        slots = frozenset(group.slots)
        unfollowed = Unfollowed(
            self.mentions, self.optimizers, slots, frozenset(group.births)
        )
        if self.options.scaled:
            self._refuse_unfollowed(unfollowed)
            self._refuse_twin_out_of_sight(group, live)
        steps = [one for one in self._steps(slots) if not self._is_first(one, group)]
        backwards = [backward for loop in group.loops for backward in loop.backwards]
        sites = frozenset((b.function, b.stmt.path) for b in backwards)
        identities = Identities(self.program, self.optimizers, slots)
        ownership = Ownership(
            self.program, self.optimizers, self.events, identities, slots, group.births
        )
        scalers, together = self._scalers(identities, ownership, sites, around, live)
        anew: Blocked | None = None
        if self.options.scaled:
            line = min(b.event.line for b in backwards)
            if any(c.held.twice for c in ownership.coverages(identities.all)):
                message = "an optimizer may be given some parameters twice: a scaler would unscale them twice"
                raise refused("AMP012", message, line)
            for sharing in sorted(scalers.all, key=lambda s: sorted(map(order, s))):
                doubt = self.disjoint.doubt(ownership.coverages(sharing), live)
                if doubt is not None:
                    raise refused("AMP012", doubt, line)
            refuse_instances(self.program, self.events, group, steps)
            stale = Stale(
                self.program,
                self.events,
                self.forward,
                identities,
                ownership,
                live,
                around,
            )
            try:
                stale.judge(roots(self.program, self.events, around))
            except Blocked as blocked:
                anew = blocked
        functions = frozenset(
            {b.function for b in backwards} | {f for f, _, _ in steps}
        )
        higher_order = HigherOrder(
            self.program,
            self.events,
            self.forward,
            hazards,
            self.inner,
            self.regions,
        )
        higher_order.judge_training(functions)
        forwards, runs, hoisted, sources = self._plan_regions(backwards, live)
        # Where there are none, what else is in the way is told first.
        runs = self._born(group, runs) or runs
        self._refuse_strangers(group, ownership, forwards)
        guarded = self._guarded(ownership, scalers, steps, forwards, group.births)
        evaluated = self._evaluation(group)
        higher_order.judge(runs)
        if anew is not None:
            # The copies that an inner loop trains are made again by itself.
            raise anew
        hazards.find(functions, [*runs, *evaluated], self.regions)
        runs = without_overlaps([*runs, *hazards.more])
        try:
            islands = higher_order.plan(runs)
        except Shared:
            self._fill_group(group, taken)
            return
        if hazards.given_up and any(
            span.meets(other) for span in hazards.spans for other in higher_order.spans
        ):
            raise Blocked(hazards.given_up)
        settings = Compiled(
            self.program,
            self.events,
            self.forward,
            hazards,
            self.options,
            self.torch_names,
        ).plan(runs)
        decorators = CustomFunctions(
            self.program,
            hazards,
            self.options,
            self.torch_names,
            around,
        ).plan([*runs, *evaluated])
        if chosen and any(
            isinstance(edit, (Upcast, Widen, Recast, SplitLast))
            for _, edit in (*hazards.edits, *islands)
        ):
            hazards.judge_setup(trained)  # with AMP off, they would change what is half
        births: dict[Site, frozenset[Slot]] = {}
        for birth in group.births:
            if self.program.is_property(birth.function):
                continue  # It is made once, before all that is done with it.
            site = (birth.function, birth.path)
            born = identities.of_slot(birth.slot)
            births[site] = births.get(site, frozenset()) | born
        placement: Placement | Refusal = Placement()
        holders = Holders(self.program, self.optimizers, _receivers(steps))
        if self.options.scaled:
            placement = Placer(
                self.program,
                self.events,
                slots,
                sites,
                steps,
                births,
                ownership,
                scalers,
                guarded,
                around,
                holders,
                self._newborn(group),
                live,
            ).place()
        if isinstance(placement, Refusal):
            raise Blocked(placement)
        if self.options.scaled:
            self._refuse_never_cleared(backwards)

        bare = [
            (run.function, run.path)
            for run in runs
            for loss in (sources.get((run.function, run.path)),)
            if (loss is not None and self._is_tested(run, loss))
            or not self._is_stepped(run.function, run.path, steps)
        ]

        def travel_with(
            kind: Carried, belonging: Scalers, chosen: Travel | None = None
        ) -> Travel:
            made = Travel(
                self.program,
                self.optimizers,
                devices,
                kind,
                slots,
                frozenset(group.births),
                belonging,
                kind.free_name(taken),
                taken,
                holders,
                self.mentioned_elsewhere,
                chosen,
            )
            used = {
                n for one, names in self.given if one.files & group.files for n in names
            }
            Births(made, bare, self._optional(steps), used).give()
            return made

        match self.options.dtype:
            case "bfloat16":
                group.travel = group.regional = travel_with(
                    switch_kinds.flag(), together
                )
            case "float16":
                scaler = switch_kinds.scaler(self.options)
                group.travel = group.regional = travel_with(scaler, scalers)
            case _:
                group.regional = travel_with(switch_kinds.dtype(self.options), together)
                scaler = switch_kinds.scaler(self.options)
                group.travel = travel_with(scaler, scalers, group.regional)
        travel = group.travel
        begun = self._born(group, runs)
        if runs and not begun:
            self._refuse_early(runs[0])
        runs = begun
        group.placement, group.runs = placement, runs
        full = [*hazards.spans, *higher_order.spans]
        self._place_regions(group, runs, sources, ownership, full)
        self._place_backwards(group, backwards, hoisted)
        if self.options.scaled:
            self._place_steps(group, steps, placement)
            states = States(travel, self.mentions)
            kept, notes = plan_checkpoints(
                self.program, self.optimizers, travel, slots, states
            )
            group.edits += kept
            group.notes = notes + unsaved(unfollowed, states, each)
        group.notes += _to_be_given(self.program, group.regional, travel)
        for run in evaluated:
            with group.regional.attempt():
                self._place_regions(group, [run], {}, ownership, full)
        for function, edit in hazards.edits:
            group.place(function, edit)
        self.spans.update(hazards.spans)
        before = [] if group.regional is travel else group.regional.edits
        group.edits = (
            before + travel.edits + group.edits + decorators + islands + settings
        )
        check_room(self.program, group.edits)
        for file in {file for file, _ in group.edits}:
            torch = self.torch_names.of_file(file)
            line = torch.lost([edit.path for at, edit in group.edits if at == file])
            if line:
                message = f"{torch.name} is bound to something else here"
                raise refused("AMP035", message, line)

    def _scalers(
        self,
        identities: Identities,
        ownership: Ownership,
        backwards: frozenset[Site],
        files: frozenset[str],
        live: Live | None,
    ) -> tuple[Scalers, Scalers]:
        """The scalers of a group's optimizers, by what these step on; and what they have in common."""
        walk = Association(
            self.program,
            self.events,
            identities,
            ownership,
            backwards,
            live=live,
            files=files,
        )
        walk.run_all(roots(self.program, self.events, files))
        if walk.exhausted:
            message = (
                "more paths lead through these loops and optimizers than are followed"
            )
            raise refused("AMP012", message)
        together = Scalers.together(identities, walk.ways)
        if not self.options.scaled:
            return together, together
        if len(identities.all) == 1:
            (one,) = identities.all
            return Scalers.of_one(identities, one, walk.ways), together
        return Scalers(identities, walk.uses, walk.ways, walk.sure), together

    def _is_first(self, step: tuple[str, ir.Stmt, Slot], group: Group) -> bool:
        """Whether an optimizer that is made in the same function, and cleared, steps before any backward: for
        its scheduler's sake. Without gradients it does nothing, and stays."""
        function, stmt, slot = step
        control, first = self.program.control(function), False
        births = [b for b in group.births if (b.function, b.slot) == (function, slot)]
        for at, event in self.events.direct(function):
            first |= (
                (event.kind, event.slot) == ("zero", slot)
                and control.dominates(at.path, stmt.path)
                and any(control.dominates(b.path, at.path) for b in births)
            )
            goes_back = "backward" in (
                event.kind,
                *(kind for one in event.callees for kind in self.events.kinds(one)),
            )
            if goes_back and control.leads(at.path, stmt.path):
                return False
        return first

    def _guarded(
        self,
        ownership: Ownership,
        scalers: Scalers,
        steps: Steps,
        forwards: list[LossForward],
        births: Collection[Birth],
    ) -> frozenset[Site]:
        """The steps that may find no gradients; raises `Blocked` where that cannot be told."""
        if not self.options.scaled:
            return frozenset()
        reach = Reach(self.program, self.regions, self.forward, ownership)
        concrete = self.program.noted(Concrete)
        shares = any(map(self._holds_shared, births))

        def is_apart(method: str, other: str) -> bool:
            classes = concrete.classes_of(method)
            return not shares and other in concrete.apart(classes, classes)

        guards = Guards(self.program, self.events, reach, ownership, scalers, is_apart)
        several = len(scalers.identities.all) > 1
        found = guards.inherited(steps, forwards)
        if several:
            found |= guards.find(steps, forwards)
        listed = guards.listed(steps)
        for birth in sorted(births, key=lambda b: b.stmt.line) if listed else ():
            doubt = self.disjoint.doubt_in(birth) if birth.slot.is_many else None
            if doubt is not None:
                raise refused("AMP012", doubt, birth.stmt.line)
        return found | listed

    def _newborn(self, group: Group) -> frozenset[Site]:
        """The births that make all their parameters as well, and whose optimizers have one name that
        outlives a call."""
        trace = self.optimizers.trace
        newborn = Newborn(self.program, lambda f: "backward" in self.events.kinds(f))
        return frozenset(
            (birth.function, birth.path)
            for birth in group.births
            if all(
                slot == birth.slot or slot in trace(slot).parameters
                for slot in self.optimizers.mentions.holding(birth)
            )
            and newborn.holds_only_new(birth)
        )

    def _live_with(
        self, loops: Sequence[TrainingLoop], around: frozenset[str]
    ) -> Live | None:
        """What can run with some loops, where all that runs them is in sight."""
        files = {ir.file_of(loop.function) for loop in loops}
        started = self.program.scripts_of(files, around)
        live = self._live_from(around, started)
        if 1 < len(started) <= _MOST_SCRIPTS and not live.is_open:
            # A script that never comes to these loops gives them no model.
            run = frozenset(
                file
                for file in started
                if any(
                    loop.function
                    in self._live_from(around, frozenset({file})).functions
                    for loop in loops
                )
            )
            live = self._live_from(around, run or started)
            started = run or started
        is_run = all(loop.function in live.functions for loop in loops)
        if live.is_open or not is_run:
            return None
        taken = frozenset.intersection(
            *(
                live.required(backward.function, backward.stmt.path)
                for loop in loops
                for backward in loop.backwards
            )
        )
        return self._live_from(around, started, taken)

    def _live_from(
        self,
        around: frozenset[str],
        started: frozenset[str],
        taken: Arms = frozenset(),
    ) -> Live:
        around = self._beside(around, started)
        key = (around, started, taken)
        if key not in self._live:
            self._live[key] = Live(self.program, around, started, taken)
        return self._live[key]

    def _beside(
        self, around: frozenset[str], started: frozenset[str]
    ) -> frozenset[str]:
        """Those of some files that run where one of a few does: tests of a package, say, are none of a
        script's that imports it."""
        key = around, started
        if key not in self._near:
            self._near[key] = frozenset(
                file
                for file in around
                if file in started or self.program.scripts_of((file,), started)
            )
        return self._near[key]

    def _evaluation(self, group: Group) -> list[Run]:
        if not self.options.evaluation:
            return []
        return plan_evaluation(self.program, self.events, self.forward, group.files)

    def _devices_in(self, files: frozenset[str]) -> Devices:
        if files not in self._devices:
            self._devices[files] = Devices(
                self.program, self.torch_names, files, self.told
            )
        return self._devices[files]

    def _refuse_cpu_only(self, group: Group, around: frozenset[str]) -> None:
        """Raise `Blocked` where all optimizers train on the CPU: that comes before all that half
        precision would do to them."""
        devices = self._devices_in(around)
        reasons = []
        for birth in group.births:
            place = birth.given
            found = (
                devices.decide(birth.function, birth.stmt)
                if place is None
                else devices.decide(place.caller, place.stmt)
            )
            if not isinstance(found, Undecided) or not found.cpu_only:
                return
            reasons.append((birth.stmt.line, found.reason))
        if reasons:
            raise refused("AMP005", min(reasons)[1])

    def _follow_onwards(self, group: Group) -> None:
        """Add the slots to which a group's optimizers are handed on (a checkpoint helper's parameter)."""
        pending = set(self._touched)
        while True:
            reached = {
                slot
                for slot in pending - group.slots
                if self.optimizers.trace(slot).births & group.births
            }
            if not reached:
                return
            for slot in reached:
                group.slots |= {
                    other
                    for other in self.optimizers.trace(slot).slots
                    if self.optimizers.trace(other).births & group.births
                }

    @cached_property
    def _touched(self) -> frozenset[Slot]:
        """What may be an optimizer, by the methods that are called on it, or because it is saved."""
        touched = [(one, function) for function, _, one in saved(self.program)]
        for function, _, call in self.program.all_calls():
            if isinstance(call.func, ir.Attr) and call.func.attr in _TOUCHES:
                touched.append((call.func.value, function))
        found = {self.optimizers.slot(*one) for one in touched}
        return frozenset(one for one in found if one is not None)

    def _refuse_handover(self, group: Group) -> list[ir.Call]:
        """Raise `Blocked` where a group's optimizers are handed to something that is not followed; the
        calls that take or load the states of all that collections hold."""
        handover = Handover(
            self.program,
            self.optimizers,
            frozenset(group.slots),
            frozenset(group.births),
        )
        handover.judge()
        for function in {loop.function for loop in group.loops}:
            line = _keeps_backward(self.program.functions[function])
            if line:
                message = "backward() is kept under another name"
                raise refused("AMP016", message, line)
        return list(handover.kept.looked.states.values())

    def _refuse_never_cleared(self, backwards: Iterable[Backward]) -> None:
        """Raise `Blocked` where callers out of sight may come again, and nothing clears gradients."""
        program = self.program
        for backward in backwards:
            function = backward.function
            if ir.is_top(function) or program.call_sites.get(function):
                continue
            own = program.self_class(function)
            beside = [
                method
                for one in (() if own is None else program.family(own[1]))
                for _, method in program.classes[one].methods
            ]
            if not any("zero" in self.events.kinds(f) for f in (function, *beside)):
                message = "gradients of an earlier step may still be there: no zero_grad() is in sight"
                raise refused("AMP031", message, backward.event.line)

    def _refuse_unfollowed(self, unfollowed: Unfollowed) -> None:
        """Raise `Blocked` where a group's optimizer may be stepped by a way that is not followed."""
        for function, _, call in unfollowed.calls("step"):
            own = self.program.self_class(function)
            if own is not None and self.optimizers.makers.is_class_of_one(own[1]):
                # It steps with the optimizer that this is a part of.
                continue
            # An optimizer's step takes a closure at most.
            if len(call.args) < 2 and "backward" not in self.events.kinds(function):
                assert isinstance(call.func, ir.Attr)
                name = ir.render(call.func.value) or "what is stepped here"
                message = f"{name} may be this optimizer, in a way that is not followed"
                raise refused("AMP010", message, call.line)

    def _refuse_twin_out_of_sight(self, group: Group, live: Live | None) -> None:
        """Raise `Blocked` where another optimizer is given what one of the group is, no step is known to be
        its own, and something steps that is not followed."""
        own = {word for b in group.births for word in _given_words(b.call)}
        for function, stmt, call in self._unstepped:
            if ir.file_of(function) not in group.files or own.isdisjoint(
                _given_words(call)
            ):
                continue
            for at, where, step in self.program.calls_named("step"):
                ends = ((at, where), (function, stmt))
                if (
                    (live is None or all(live.executes(a, s.path) for a, s in ends))
                    and may_step(self.program, step, at)
                    and not self._is_step_of_one(step, at)
                ):
                    name = ir.render(step.func) or "step"
                    message = f"{name}() may step the optimizer of line {stmt.line}, which is not followed"
                    raise refused("AMP010", message, step.line)

    def _is_step_of_one(self, call: ir.Call, function: str) -> bool:
        """Whether it is seen which optimizer steps there, or that none does."""
        assert isinstance(call.func, ir.Attr)
        receiver = call.func.value
        slot = self.optimizers.slot(receiver, function)
        if slot is not None and self.optimizers.trace(slot).births:
            return True
        refs = self.program.resolve(receiver, function)
        return any(ref.kind == "made" and "lr_scheduler" in ref.name for ref in refs)

    @cached_property
    def _unstepped(self) -> list[tuple[str, ir.Stmt, ir.Call]]:
        """The optimizers that are made, of which no step is known."""
        known = {
            id(birth.call)
            for _, _, event in self.events.calls_of("step")
            if event.slot is not None and event.slot.kind != "unknown"
            for birth in self.optimizers.trace(event.slot).births
        }
        return [
            (function, stmt, call)
            for function, stmt, call in self.program.all_calls()
            if id(call) not in known
            and parameters_of(call) is not None
            and self.optimizers.makers.construction(call, function) == "plain"
        ]

    def _steps(self, slots: frozenset[Slot]) -> Steps:
        """Every step on a group's optimizers; raises `Blocked` on odd forms."""
        found = []
        for qualname, stmt, event in self.events.calls_of("step"):
            if event.slot is None or event.slot not in slots:
                continue
            call = event.call
            assert call is not None
            plain = stmt.kind == "expr" and stmt.value is call
            if not self.options.scaled:
                # Any form of a step is as good as another.
                found += [(qualname, stmt, event.slot)] if plain else []
                continue
            if call.args and not self.closures.takes_none(qualname, call):
                reason = self.closures.reason(qualname, stmt, call)
                message = reason or "step() is given an argument"
                code = "AMP014" if IN_ITS_OWN_WAY in message else "AMP013"
                raise refused(code, message, call.line)
            if stmt.step is call or (
                (stmt.kind, stmt.value) == ("assign", call)
                and self._is_of_torch(event.slot)
            ):
                stmt = replace(stmt, kind="expr", value=call)
            elif not plain:
                message = "step() is part of a larger statement"
                raise refused("AMP016", message, call.line)
            found.append((qualname, stmt, event.slot))
        refuse_twins(found)
        return found

    def _is_of_torch(self, slot: Slot) -> bool:
        """Whether all optimizers of a slot are torch's own, whose steps give None, a scaler's too."""
        made = [
            one
            for birth in self.optimizers.trace(slot).births
            for one in self.optimizers.points_to.given(birth.source)
        ]
        return bool(made) and all(
            isinstance(one.expr, ir.Call)
            and (self.program.origin(one.expr.func, one.function) or "").startswith(
                "torch.optim."
            )
            for one in made
        )

    def _is_stepped(
        self,
        function: str,
        path: ir.Path,
        steps: Steps,
        asked: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether an optimizer surely steps behind a place, there or in whoever calls its function."""
        control = self.program.control(function)
        start = control.statements[path].line
        for at, stmt, _ in steps:
            if at != function or stmt.line < start:
                continue
            tested = [o for o in control.around(stmt.path) if o.kind == "if"]
            leaves = (
                one.kind in ("continue", "break", "return")
                and start < one.line < stmt.line
                for one in control.statements.values()
            )
            if not any(leaves) and all(
                o.path == path[: len(o.path)]
                and stmt.path[len(o.path)][0] == path[len(o.path)][0]
                for o in tested
            ):
                return True
        sites = self.program.call_sites.get(function, ())
        return (
            bool(sites)
            and function not in asked
            and all(
                self._is_stepped(s.caller, s.stmt.path, steps, asked | {function})
                for s in sites
            )
        )

    def _optional(self, steps: Steps) -> frozenset[Slot]:
        """The attributes of which a test before a step asks whether they hold an optimizer."""
        return frozenset(
            slot
            for function, stmt, slot in steps
            for outer in self.program.control(function).around(stmt.path)
            if slot.kind == "attribute" and outer.kind == "if"
            for inner in ir.walk(outer.value or ir.Const(None))
            if isinstance(inner, ir.Attr) and inner.attr == slot.name
        )

    def _plan_regions(
        self, backwards: list[Backward], live: Live | None
    ) -> tuple[list[LossForward], list[Run], dict[Site, str], dict[Site, Backward]]:
        """The forward of each loss, the regions, the names of losses that have none, and whose loss a
        region begins for."""
        forwards: list[LossForward] = []
        runs: list[Run] = []
        hoisted: dict[Site, str] = {}
        sources: dict[Site, Backward] = {}
        for backward in backwards:
            planned = self.regions.plan(backward)
            if isinstance(planned, Refusal):
                line = backward.event.line
                raise refused(planned.code, planned.message, planned.line or line)
            found, hoists = planned
            if self._is_called(backward.function, live):
                # What a method would keep that nobody calls is no part of the loss.
                found = [r for r in found if self._is_called(r.function, live)] or found
            for run in found:
                if self._is_under_amp(run, backward):
                    message = "the forward of this loop is under AMP already"
                    raise refused("AMP001", message, backward.event.line)
            runs += found
            forwards.append((backward, found))
            for run in found:
                site = (run.function, run.path)
                if site not in sources or (
                    self._is_tested(run, sources[site])
                    and not self._is_tested(run, backward)
                ):
                    sources[site] = backward
            if hoists:
                site = (backward.function, backward.stmt.path)
                hoisted[site] = self._free_name(site[0], "loss", _LOSSES)
        return forwards, without_overlaps(runs), hoisted, sources

    def _is_called(self, function: str, live: Live | None) -> bool:
        """Whether a function may be called, for all that is in sight: a method by its name."""
        facts = self.program.functions[function]
        return (live is None or live.runs(function)) and (
            facts.class_name is None
            or bool(facts.decorators)
            or facts.name == "forward"
            or facts.name.startswith("__")
            or bool(self.program.call_sites.get(function))
            or bool(self.program.mentioning(facts.name))
        )

    def _is_tested(self, run: Run, backward: Backward) -> bool:
        """Whether a test behind a run decides if a backward in its function is come to."""
        if run.function != backward.function:
            return False
        return any(
            outer.kind == "if" and run.path[: len(outer.path)] != outer.path
            for outer in self.program.control(run.function).around(backward.stmt.path)
        )

    def _is_under_amp(self, run: Run, backward: Backward) -> bool:
        """Whether a forward is computed under autocast as it is; a backward was judged by itself."""
        function = self.program.functions[run.function]
        if not ir.is_top(run.function):
            elsewhere = run.function != backward.function
            return elsewhere and speaks_amp(function, self.program)
        inside = {stmt.path for stmt in self.regions.statements_in(run)}
        return any(
            stmt.kind == "with"
            and (stmt.path == run.path[: len(stmt.path)] or stmt.path in inside)
            and opens_autocast(stmt)
            for stmt in ir.statements(function.body)
        )

    def _refuse_strangers(
        self, group: Group, ownership: Ownership, forwards: list[LossForward]
    ) -> None:
        """A loss without a region has to be of a parameter that an optimizer holds, beside others that
        gain from half precision; one with a region has to be of a module that may be held.
        """
        reach = Reach(self.program, self.regions, self.forward, ownership)
        for backward, found in forwards:
            line = backward.event.line
            if self.options.scaled and stays_on_cpu(
                self.program, backward.receiver, backward.function
            ):
                message = "the loss is computed on the CPU, where a scaler would keep its scale"
                raise refused("AMP041", message, line)
            if (
                self.options.scaled
                and self.options.torch_version < (2, 3)
                and is_moved_to_cpu(self.program, backward.receiver, backward.function)
            ):
                message = "before torch 2.3, a scaler takes no loss that is on the CPU"
                raise refused("AMP009", message, line)
            if not found and not reach.reached(backward, found):
                message = "no optimizer that was found holds what this loss is made of"
                raise refused("AMP011", message, line)
            if (
                self.options.scaled
                and len(ownership.seen) == 1
                and reach.only_strangers(backward, found, group.births)
            ):
                message = (
                    "the optimizer is given other modules than this loss is made with"
                )
                raise refused("AMP011", message, line)
            if not found and not any(runs for _, runs in forwards):
                message = "this loss is made without a module: nothing gains from AMP"
                raise refused("AMP033", message, line)

    def _free_name(self, function: str, what: str, names: Iterable[str]) -> str:
        """A name for what had none, unused in the file."""
        taken = self.program.modules[ir.file_of(function)].identifiers
        for name in names:
            if name not in taken:
                return name
        raise refused("AMP035", f"no free name for the {what}")

    # -- edits --------------------------------------------------------------------------------

    def _place_regions(
        self,
        group: Group,
        runs: list[Run],
        sources: dict[Site, Backward],
        ownership: Ownership,
        full: Collection[Span],
    ) -> None:
        """``full``: what runs in fp32 inside of them."""
        regional = group.regional
        assert regional is not None
        switches = {}
        for run in self._born(group, runs):
            backward = sources.get((run.function, run.path))
            ways = NO_WAYS if backward is None else self._ways_to(group, backward)
            switch = regional.near(run.function, self._next_ways(run, ways), run.path)
            if self._is_bound(switch, run):
                switches[run] = switch
                self._begin_switched_off(group, run, switch, ways)
        if runs and not switches:
            self._refuse_early(runs[0])
        reach = Reach(self.program, self.regions, self.forward, ownership)

        def is_full(function: str, stmt: ir.Stmt) -> bool:
            return any(span.holds(function, stmt.path) for span in full)

        for run, switch in switches.items():
            torch = self.torch_names.of(run.function)
            dtype = f"{torch}.{self.options.dtype}"
            match self.options.dtype:
                case "float16":
                    enabled = f"{switch}.is_enabled()"
                case "bfloat16":
                    enabled = switch
                case _:
                    dtype, enabled = switch, f"{switch} is not None"
            caches = not reach.casts_without_gradients(run, is_full)
            if not caches and self.options.torch_version < CHOOSES_DTYPE:
                message = "before torch 1.10, weights that run without gradients get none later in a region"
                raise refused("AMP009", message)
            region = Autocast(run.path, run.last, enabled, dtype, run.hoists, caches)
            group.place(run.function, region)

    def _is_bound(self, switch: str, run: Run) -> bool:
        """Whether the variable by which a run names its switch is bound there, if the program binds it in
        that function."""
        name, function = switch.partition(".")[0], run.function
        if not self.program.definitions(function, name) or any(
            param.name == name for param in self.program.functions[function].params
        ):
            return True
        control = self.program.control(function)
        binding, from_start = control.reaching(name, run.path)
        line = control.statements[run.path].line
        return any(not from_start or stmt.line < line for stmt in binding)

    def _begin_switched_off(
        self, group: Group, run: Run, switch: str, ways: Ways
    ) -> None:
        """A method that no way to the step leads through may run for an object that makes its optimizer
        under a condition only: such an object has a switch that is off."""
        program, function = self.program, run.function
        own = program.self_class(function)
        init = None if own is None else program.method(own[1], "__init__")
        if (
            own is None
            or init is None
            or any(f == function for w in ways for f, _ in w)
        ):
            return
        travel = group.regional
        assert travel is not None
        place = Place(function, program.control(function).statements[run.path])
        sight = Sight(program, group.files)
        for birth in sorted(group.births, key=place_of):
            if (
                birth.slot.kind == "attribute"
                and switch == f"{own[0]}.{travel.names.get(birth.slot)}"
                and own[1] in program.related(birth.slot.owner)
                and self.events.leads_to(init, {birth.function})
                and not sight.has(birth.slot.name, own[1], place)
            ):
                travel.begin_off(init, birth.slot)

    def _refuse_early(self, run: Run) -> NoReturn:
        line = self.program.control(run.function).statements[run.path].line
        message = "a forward computation stands before the optimizer is made"
        raise refused("AMP033", message, line)

    def _next_ways(self, run: Run, ways: Ways) -> Ways:
        """Of the ways to a backward, those that go on right behind a run, if they pass there at all."""
        body = self.program.functions[run.function].body
        lines = {stmt.path: stmt.line for stmt in ir.statements(body)}
        behind: dict[int, set[Frames]] = {}
        for way in ways:
            here = [path for function, path in way if function == run.function]
            if here and lines[here[-1]] >= lines[run.path]:
                behind.setdefault(lines[here[-1]], set()).add(way)
        return frozenset(behind[min(behind)]) if behind else ways

    def _is_early(self, group: Group, run: Run, stmt: ir.Stmt) -> bool:
        """Whether a run is over when an optimizer is made in a function that its own calls."""
        places = [Place(birth.function, birth.stmt) for birth in group.births]
        return all(
            is_over(self.program, run.function, stmt, place)
            and not is_come_to_before(self.program, run.function, place)
            for place in places
        )

    @staticmethod
    def _ways_to(group: Group, backward: Backward) -> Ways:
        """The ways on which a backward is met."""
        assert group.travel is not None
        site = (backward.function, backward.stmt.path)
        return frozenset(w for w in group.travel.scalers.ways if w[-1] == site)

    def _born(self, group: Group, runs: list[Run]) -> list[Run]:
        """The runs that their switch is made before.

        What is computed earlier, while a script is still setting up, stays as it is.
        """
        kept = []
        for run in runs:
            stmt = self.program.control(run.function).statements[run.path]
            births = [b for b in group.births if b.function == run.function]
            place = Place(run.function, stmt)
            if (
                stmt.line >= min(b.stmt.line for b in births)
                or all(self._is_set_before(b, place, group) for b in births)
                if births
                else not self._is_early(group, run, stmt)
            ):
                kept.append(run)
        return kept

    def _is_set_before(self, birth: Birth, place: Place, group: Group) -> bool:
        """Whether an optimizer that is made here takes the place of an earlier one."""
        own, slot = self.program.self_class(place.function), birth.slot
        return (
            own is not None
            and slot.kind == "attribute"
            and own[1] in self.program.related(slot.owner)
            and Sight(self.program, group.files).has(slot.name, own[1], place)
        )

    def _place_backwards(
        self, group: Group, backwards: list[Backward], hoisted: dict[Site, str]
    ) -> None:
        assert group.travel is not None
        for backward in backwards:
            site = (backward.function, backward.stmt.path)
            name = hoisted.get(site)
            if not self.options.scaled:
                if name is not None:
                    group.place(
                        backward.function, ScaleBackward(backward.stmt.path, None, name)
                    )
                continue
            ways = self._ways_to(group, backward)
            switch = group.travel.visible_in(backward.function, ways)
            path = backward.stmt.path
            edit: Edit = ScaleBackward(path, switch, name)
            if backward.given is not None:
                steps = steps_to(backward.stmt, backward.given)
                assert steps is not None
                edit = Scale(path, steps, switch)
            group.place(backward.function, edit)
            names = self.program.modules[ir.file_of(backward.function)].identifiers
            for inner in self.inner.before(site):
                for edit in inner.edits(switch, names):
                    group.place(backward.function, edit)

    def _named_before(
        self, named: ir.Expr, slot: Slot, function: str, path: ir.Path
    ) -> ir.Expr:
        """How a place names an optimizer that its function steps: not by a name that it only gets later."""
        if not isinstance(named, ir.Name) or self.program.is_param(function, named.id):
            return named
        line = self.program.control(function).statements[path].line
        given = self.program.definitions(function, named.id)
        if not given or any(one.stmt.line < line for one in given):
            return named
        values = self.optimizers.trace(slot).values.get(slot, [])
        if len(values) == 1 and values[0][1] == function:
            return values[0][0]
        message = f"{named.id} is not bound yet where its gradients must be unscaled"
        raise refused("AMP031", message, line)

    def _place_steps(self, group: Group, steps: Steps, placement: Placement) -> None:
        travel = group.travel
        assert travel is not None
        own_updates = set()
        identities = travel.scalers.identities
        doubtful = {
            one
            for function, stmt, slot in steps
            if (function, stmt.path) in placement.guarded
            for one in identities.of_slot(slot)
        }

        def is_doubtful(slot: Slot) -> bool:
            return not identities.of_slot(slot).isdisjoint(doubtful)

        for function, stmt, slot in steps:
            switch = travel.of_receiver(receiver_of(stmt), function)
            placed = (function, stmt.path, slot)
            guarded = (function, stmt.path) in placement.guarded
            update = placed in placement.update_after
            if guarded and stmt.targets and stmt.step is None:
                message = (
                    "step() may find no gradients, and something is given its result"
                )
                raise refused("AMP016", message, stmt.line)
            if guarded and any(len(s) > 1 for s in travel.scalers.of_slot(slot)):
                # Another optimizer of this scaler has stepped in any case.
                update = False
            else:
                own_updates.add(placed)
            closure = stmt.step is not None
            step = ScalerStep(stmt.path, switch, update, guarded, closure)
            group.place(function, step)
        named = {(function, slot): receiver_of(stmt) for function, stmt, slot in steps}

        def switch_of(slot: Slot, function: str) -> str:
            if (function, slot) in named:
                return travel.of_receiver(named[function, slot], function)
            return travel.of_named(slot, function)

        def optimizer_of(slot: Slot, function: str) -> ir.Expr:
            known = named.get((function, slot))
            return travel.named(slot, function) if known is None else known

        def updated(function: str, path: ir.Path, slot: Slot) -> str:
            code = f"{switch_of(slot, function)}.update()"
            several = any(one.is_many for one in identities.of_slot(slot)) or any(
                len(scaler) > 1 for scaler in travel.scalers.of_slot(slot)
            )
            if several or not is_doubtful(slot):
                return code
            for stmt, event in self.events.direct(function):
                if event.kind == "zero" and stmt.path[: len(path)] == path:
                    message = "gradients go where a step may find none"
                    raise refused("AMP031", message, event.line)
            text = ir.render(optimizer_of(slot, function)) or ""
            return where_gradients(text, code)

        for function, path, slot in _in_order(placement.update_after - own_updates):
            group.place(function, Insert(path, updated(function, path, slot)))
        for function, path, slot in _in_order(placement.update_before):
            code = updated(function, path, slot)
            group.place(function, Insert(path, code, after=False))
        for (function, path, slot), last in placement.protected.items():
            group.place(function, Protect(path, last, switch_of(slot, function)))

        def named_at(slot: Slot, function: str, path: ir.Path) -> str:
            known = optimizer_of(slot, function)
            if (function, slot) in named:
                known = self._named_before(known, slot, function, path)
            return ir.render(known) or ""

        for function, path, slot in _in_order(placement.unscale_before):
            optimizer = named_at(slot, function, path)
            code = f"{switch_of(slot, function)}.unscale_({optimizer})"
            if is_doubtful(slot):
                code = where_gradients(optimizer, code)
            group.place(function, Insert(path, code, after=False))
        for (function, path), (call, slots) in placement.none_without_all.items():
            stmt = self.program.control(function).statements[path]
            match stmt:
                case ir.Stmt(
                    kind="assign" | "annassign",
                    targets=(ir.Name() | ir.Attr() as target,),
                ) if (
                    stmt.value is call
                ):
                    norm = ir.render(target)
                case _:
                    norm = None
            if norm is None:
                norm = self._free_name(function, "norm", _NORMS)
                steps_in = steps_to(stmt, call)
                assert steps_in is not None
                group.place(function, Hoist(path, steps_in, norm))
            optimizers = [named_at(slot, function, path) for slot in slots]
            enabled = f"{switch_of(slots[0], function)}.is_enabled()"
            version = self.options.torch_version
            code = none_without_all(norm, optimizers, enabled, version)
            group.place(function, Insert(path, code))


def _is_in_lambda(loop: TrainingLoop) -> bool:
    """Whether what computes gradients is a part of a lambda."""
    backward = loop.backwards[0]
    return any(
        isinstance(inner, ir.Deferred)
        and any(part is backward.event.call for part in ir.walk(inner.body))
        for inner in parts_of(backward.stmt)
    )


def _with(groups: list[Group], group: Group) -> list[Group]:
    """Groups with one more, joined with those that have optimizers in common with it."""
    apart = []
    for other in groups:
        if other.births & group.births or other.slots & group.slots:
            group = joined(other, group)
        else:
            apart.append(other)
    return [*apart, group]


def _receivers(steps: Steps) -> dict[str, list[ir.Expr]]:
    """The optimizers that each function steps, as it names them."""
    found: dict[str, list[ir.Expr]] = {}
    for function, stmt, _ in steps:
        found.setdefault(function, []).append(receiver_of(stmt))
    return found


def _in_order(placed: set[Placed]) -> list[Placed]:
    return sorted(placed, key=lambda p: (p[0], p[1], order(p[2])))


def _keeps_backward(function: ir.Function) -> int:
    """The line where a ``backward`` is mentioned without being called, or 0."""
    for stmt in ir.statements(function.body):
        for expr in stmt.exprs:
            called = {id(e.func) for e in ir.walk(expr) if isinstance(e, ir.Call)}
            for inner in ir.walk(expr):
                bound = isinstance(inner, ir.Attr) and inner.attr == "backward"
                if bound and id(inner) not in called:
                    return stmt.line
    return 0


def _given_words(call: ir.Call) -> set[str]:
    """What an optimizer's parameters are said to be of: ``net`` of ``SGD(self.net.parameters())``."""
    given = parameters_of(call)
    words = set() if given is None else {*ir.words_in(given)}
    return words - {"self", "parameters", "params", "lr", "filter", "p"}


def _to_be_given(program: Program, *travels: Travel) -> list[Note]:
    """What callers out of sight have to give before anything runs under AMP."""
    given: dict[str, dict[str, None]] = {}
    for travel in dict.fromkeys(travels):
        for birth in sorted(travel.births, key=place_of):
            if birth.is_given:
                names = given.setdefault(birth.slot.owner, {})
                names[f"{travel.names[birth.slot]}="] = None
    notes = []
    for owner, names in given.items():
        name, given_names = program.called_as(owner), " and ".join(names)
        message = f"{name}() trains without AMP until its caller gives it {given_names}"
        notes.append(Note(program.functions[owner].line, message))
    return notes
