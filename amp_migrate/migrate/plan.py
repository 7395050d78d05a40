"""A program's plan: which loops go together, and what becomes of each file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from amp_migrate.analysis.paths.closures import called_first
from amp_migrate.analysis.paths.loops import Note, Refusal, TrainingLoop
from amp_migrate.analysis.values.device import Told
from amp_migrate.core import effort, phases
from amp_migrate.core.beside import shared
from amp_migrate.core.options import Options
from amp_migrate.edit.edits import (
    AddDecorator,
    AddParameter,
    Autocast,
    Bound,
    Edit,
    FilePlan,
    FullPrecision,
    Insert,
    Island,
    Placed,
    Recast,
    SetArgument,
    Widen,
)
from amp_migrate.migrate.compiled import CONFIG
from amp_migrate.migrate.explain import Spot, explain_group, explain_notes
from amp_migrate.migrate.framework_loops import Neighbours
from amp_migrate.migrate.planner import Planner
from amp_migrate.migrate.precision.leaving import LEAVES
from amp_migrate.migrate.regions.regions import Run
from amp_migrate.migrate.scaling.groups import Group, joined
from amp_migrate.program import ir
from amp_migrate.program.link import Program

_Mentions = Callable[[str, str], str | None]
_UNHURT = ("AMP001", "AMP005")
"""Loops under AMP already, and those on the CPU: a region changes nothing for them."""
_ENOUGH = 1.5
"""How many times what the parts of a group took one more plan of them may take."""
_OUTSIDE = "needs edits in files that are not among the given ones: "


@dataclass(slots=True)
class Planned:
    """What is to be done with a program."""

    loops: list[TrainingLoop] = field(default_factory=list)
    groups: list[list[TrainingLoop]] = field(default_factory=list)
    """The same loops: those that are migrated together, or not at all."""
    file_plans: dict[str, FilePlan] = field(default_factory=dict)
    """The edits of each file that has any."""
    explanation: dict[str, list[str]] = field(default_factory=dict)
    """For each file with loops, what ``--explain-plan`` prints."""
    notes: dict[str, list[Note]] = field(default_factory=dict)
    """For each file with loops, what is left to be done by hand, in whatever file."""


def plan_program(
    program: Program,
    options: Options,
    *,
    writable: Collection[str] | None = None,
    mentioned_elsewhere: _Mentions = lambda name, file: None,
    shown: Callable[[str], str] = str,
    spot: Spot = lambda line, file: f"line {line}",
    told: Told = lambda function, birth: None,
    wanted: Callable[[TrainingLoop], bool] = lambda loop: True,
    settled: Callable[[TrainingLoop], bool] = lambda loop: False,
) -> Planned:
    """Plan all loops of some linked files, but for those that are ``settled``.

    ``writable``: the files that may be changed (None: all). A group of loops that needs an edit in
    another one is left alone as a whole. ``mentioned_elsewhere`` tells which file that could not be
    read, if any, speaks of a file's function of that name; ``shown`` what messages call a file,
    ``spot`` what they call a line of it. ``told`` knows the conditions of some switches; loops that
    are not ``wanted`` are treated as marked off.
    """
    planned = Planned()
    program = called_first(program)
    edits: dict[str, dict[Edit, None]] = defaultdict(dict)
    planner = Planner(program, options, mentioned_elsewhere, told)
    groups = planner.groups(lambda loop: not settled(loop))
    for loop in (loop for group in groups for loop in group.loops):
        loop.off = loop.off or not wanted(loop)
    for loops, one in _plan_all(planner, _clusters(groups), writable, shown, spot):
        members = [loops[number] for number in one.loops]
        file = ir.file_of(members[0].function)
        if one.refusal is None:
            if options.torch_below and not edits:
                line = members[0].backwards[0].event.line
                oldest = ".".join(map(str, options.torch_version))
                said = (
                    f"the rewrite needs torch {oldest} at least, and the project allows older"
                    f" ones: {options.torch_below}"
                )
                one.notes.append(Note(ir.Line(line, file), said))
            for place, edit in one.edits:
                edits[place][edit] = None
            own = planned.notes.setdefault(file, [])
            own += (note for note in one.notes if note not in own)
        else:
            for loop in members:
                line = one.refusal.line or loop.backwards[0].event.line
                loop.refuse(Refusal(one.refusal.code, one.refusal.message, line))
        planned.loops += members
        planned.groups.append(members)
        for place in {ir.file_of(loop.function) for loop in members}:
            lines = planned.explanation.setdefault(place, [])
            lines += one.explanation
            if one.refusal is None:
                lines += explain_notes(one.notes, file, shown, spot)
    for loop, driven in _driven(planner, planned, wanted):
        files = {file for file, _ in driven}
        outside = set() if writable is None else files.difference(writable)
        if outside:
            loop.refuse(Refusal("AMP017", _OUTSIDE + shown(min(outside))))
            continue
        for file, edit in driven:
            edits[file][edit] = None
    for file, found in edits.items():
        torch = planner.torch_names.of_file(file)
        imports = []
        if any(_sets(edit) for edit in found):
            imports.append(CONFIG)
        if torch.missing and any(_says(edit, torch.name) for edit in found):
            imports.append("torch")
        planned.file_plans[file] = FilePlan(
            tuple(found), torch.name, tuple(imports), options.torch_version
        )
    return planned


def _says(edit: Edit, torch: str) -> bool:
    """Whether the code that an edit writes names torch."""
    match edit:
        case Autocast() | Bound() | FullPrecision() | Island() | Recast() | Widen():
            return True
        case (
            Insert(code=code)
            | AddParameter(off=str(code))
            | SetArgument(value=code)
            | AddDecorator(code=code)
        ):
            return f"{torch}." in code
        case _:
            return False


def _sets(edit: Edit) -> bool:
    return isinstance(edit, Insert) and "._functorch.config." in edit.code


def _clusters(groups: list[Group]) -> list[list[Group]]:
    """Groups that hand their optimizers to the same function: they must agree about it."""
    clusters: list[list[Group]] = []
    for group in groups:
        touching = [c for c in clusters if any(o.slots & group.slots for o in c)]
        apart = [c for c in clusters if c not in touching]
        clusters = [*apart, [*(g for c in touching for g in c), group]]

    return sorted(clusters, key=_first)


def _first(cluster: list[Group]) -> tuple[str, int]:
    loop = cluster[0].loops[0]
    return ir.file_of(loop.function), cluster[0].first_line


@dataclass(frozen=True, slots=True)
class _PlannedGroup:
    """What came of a group: plain data, which another process can hand over."""

    loops: tuple[int, ...]
    """Which of its cluster's loops are its."""
    refusal: Refusal | None
    edits: list[Placed]
    runs: list[Run]
    notes: list[Note]
    explanation: list[str]


def _plan_all(
    planner: Planner,
    clusters: list[list[Group]],
    writable: Collection[str] | None,
    shown: Callable[[str], str],
    spot: Spot,
) -> Iterator[tuple[list[TrainingLoop], _PlannedGroup]]:
    """The groups that the clusters come to, each after the loops of its cluster."""
    left: dict[int, Refusal] = {}
    """The loops (by `id`) that are left alone."""

    def plan(part: _Part) -> list[list[_PlannedGroup]]:
        planner.given.clear()
        return [
            [
                _outcome(group, _loops(one), planner.program, writable, shown, spot)
                for group in _plan_cluster(planner, one, left)
            ]
            for one in part
        ]

    # Names that one cluster takes are not free for another in the same file.
    parts = _parts(clusters)

    def numbered(number: int) -> list[list[_PlannedGroup]]:
        phases.at("planning training loops", number, len(parts))
        return plan(parts[number])

    planned = list(zip(parts, shared(numbered, len(parts)), strict=True))
    planned = _without_leaving(planned, plan)
    regions = planner.regions
    while True:
        # A region that holds what another backward() differentiates without a scale would take its
        # gradients to half precision.
        for loop, refusal in _left_alone(planned):
            left[id(loop)] = refusal
            if refusal.code not in _UNHURT:
                regions.keep_out(loop.backwards)
        wrong = [
            any(regions.hold_kept_out(one.runs) for groups in found for one in groups)
            for _, found in planned
        ]
        if not any(wrong):
            break
        planned = [
            (part, plan(part) if is_wrong else found)
            for is_wrong, (part, found) in zip(wrong, planned, strict=True)
        ]
    each = [pair for part, found in planned for pair in zip(part, found, strict=True)]
    for cluster, groups in sorted(each, key=lambda pair: _first(pair[0])):
        yield from ((_loops(cluster), group) for group in groups)


_Part = list[list[Group]]
"""Clusters that have files in common."""
_Plan = tuple[_Part, list[list[_PlannedGroup]]]


def _loops(cluster: list[Group]) -> list[TrainingLoop]:
    return [loop for group in cluster for loop in group.loops]


def _left_alone(planned: list[_Plan]) -> Iterator[tuple[TrainingLoop, Refusal]]:
    for part, found in planned:
        for cluster, groups in zip(part, found, strict=True):
            loops = _loops(cluster)
            for group in groups:
                if group.refusal is not None:
                    yield from ((loops[n], group.refusal) for n in group.loops)


def _without_leaving(
    planned: list[_Plan], plan: Callable[[_Part], list[list[_PlannedGroup]]]
) -> list[_Plan]:
    """The same, where groups that are left alone for what leaves their regions are planned as one, if that
    can be migrated: what one uses outside of its regions, as far as is seen, is used in those of others.
    Not where much of what a program may take is spent."""
    leaving: list[list[Group]] = []
    near: list[_Plan] = []
    others: list[_Plan] = []
    rest: _Part = []
    for part, found in planned:
        leave = [all(map(_leaves, groups)) for groups in found]
        (near if any(leave) else others).append((part, found))
        for cluster, it_leaves in zip(part, leave, strict=True):
            if it_leaves:
                leaving.append(cluster)
            elif any(leave):
                rest.append(cluster)
    if len(leaving) < 2 or effort.left() < effort.MOST_STEPS / 2:
        return planned
    together = joined(*(group for cluster in leaving for group in cluster))
    again = [[together], *rest]
    anew = [(again, plan(again))]
    is_better = len([*_left_alone(anew)]) < len([*_left_alone(near)])
    return [*others, *(anew if is_better else near)]


def _leaves(group: _PlannedGroup) -> bool:
    return group.refusal is not None and group.refusal.message.startswith(LEAVES)


def _parts(clusters: list[list[Group]]) -> list[_Part]:
    """Clusters, those together that have files in common."""
    parts: list[tuple[set[str], _Part]] = []
    for cluster in clusters:
        files = {file for group in cluster for file in group.files}
        touching = [part for part in parts if part[0] & files]
        parts = [part for part in parts if part not in touching]
        members = [one for _, those in touching for one in those]
        parts.append((files.union(*(its for its, _ in touching)), [*members, cluster]))
    return [sorted(part, key=_first) for _, part in parts]


def _plan_cluster(
    planner: Planner, cluster: list[Group], left: Mapping[int, Refusal]
) -> list[Group]:
    """Plan groups that share functions: those that can be migrated, as one. ``left``: the loops (by `id`)
    that are left alone, as an earlier plan has found."""
    groups: list[Group] = []
    before = effort.left()
    # Each by itself first: one that must be left alone is no reason to leave the others.
    for group in map(joined, cluster):
        known = [left.get(id(loop)) for loop in group.loops]
        if known.count(known[0]) == len(known):
            group.refusal = known[0]
            if group.refusal is None:
                planner.plan(group)
        if group.refusal is None and not any(known):
            groups.append(group)
            continue
        parts = planner.parts(group)
        refusals = _refusals(planner, parts, left)
        for part, refusal in zip(parts, refusals, strict=False):
            part.refusal = refusal
        groups += parts if refusals else [group]
    good = [group for group in groups if group.refusal is None]
    if not good or (len(good) == 1 and good[0].placement is not None):
        return groups
    planner.forget(good)
    left_alone = [group for group in groups if group.refusal is not None]
    took = (before - effort.left()) * _ENOUGH
    is_little = effort.left() > took + before - effort.left()
    ways = [_planned_as_one]
    if (len(cluster) == 1 and is_little) or planner.never_meet(good):
        # The ways of one are none of another; what they share, they may have to agree about.
        files = [{ir.file_of(loop.function) for loop in one.loops} for one in good]
        shares = any(one & other for one, other in combinations(files, 2))
        ways.insert(1 if shares or not is_little else 0, _planned_apart)
    return [*_with_least_refused(planner, good, ways, took), *left_alone]


_Way = Callable[[Planner, Sequence[Group]], list[Group]]


def _with_least_refused(
    planner: Planner, groups: Sequence[Group], ways: Sequence[_Way], steps: float
) -> list[Group]:
    """What comes of groups that are planned in one of some ways: the first in which least is refused. Another
    one is tried where so many steps are left."""
    best: tuple[int, list[Group]] | None = None
    before = given = list(planner.given)
    for way in ways:
        if best is not None and effort.left() < steps:
            break
        planner.given = list(before)
        found = way(planner, groups)
        refused = sum(len(one.loops) for one in found if one.refusal is not None)
        if best is None or refused < best[0]:
            best, given = (refused, found), planner.given
        if not refused:
            break
    assert best is not None
    planner.given = given
    return best[1]


def _planned_as_one(planner: Planner, groups: Sequence[Group]) -> list[Group]:
    together = joined(*groups)
    planner.plan(together)
    return [together]


def _planned_apart(planner: Planner, groups: Sequence[Group]) -> list[Group]:
    """Plan groups of which none trains what another does; those that are changed in the same statements of a
    file's own, as one."""
    apart = [joined(group) for group in groups]
    for group in apart:
        planner.plan(group)
    meeting = _joined_where_they_meet(apart)
    if len(meeting) == len(apart):
        return apart
    planner.forget(apart)
    for group in meeting:
        planner.plan(group)
    if len(_joined_where_they_meet(meeting)) == len(meeting):
        return meeting
    planner.forget(meeting)
    return _planned_as_one(planner, groups)


def _joined_where_they_meet(groups: Sequence[Group]) -> list[Group]:
    found: list[tuple[set[tuple[str, ir.Path]], list[Group]]] = []
    for group in groups:
        places = {(file, edit.path[:1]) for file, edit in group.edits}
        members = [group]
        for other in [other for other in found if other[0] & places]:
            found.remove(other)
            places |= other[0]
            members = [*other[1], *members]
        found.append((places, members))
    return [joined(*members) for _, members in found]


def _refusals(
    planner: Planner, parts: list[Group], left: Mapping[int, Refusal]
) -> list[Refusal | None]:
    """Why each of some parts of a group cannot be migrated by itself, if it cannot; nothing where to find out
    would be too much for a program. They stay unplanned: what can be migrated is planned together.
    """

    def tried(number: int) -> Refusal | None:
        part = joined(parts[number])
        part.refusal = left.get(id(part.loops[0]))
        if part.refusal is None:
            planner.plan(part)
            planner.forget([part])
        return part.refusal

    first: list[Refusal | None] = []
    before = effort.left()
    for number in range(min(2, len(parts))):
        # What is found for all of them is found with the first.
        before = effort.left()
        first.append(tried(number))
    if effort.left() < (before - effort.left()) * (len(parts) - len(first)):
        return []
    begun = len(first)
    return first + shared(lambda number: tried(number + begun), len(parts) - begun)


def _outcome(
    group: Group,
    loops: list[TrainingLoop],
    program: Program,
    writable: Collection[str] | None,
    shown: Callable[[str], str],
    spot: Spot,
) -> _PlannedGroup:
    """A planned group in words that mean something outside of the planner."""
    if group.refusal is None and writable is not None:
        group.refusal = _out_of_reach(group, writable, shown)
    numbers = {id(loop): number for number, loop in enumerate(loops)}
    return _PlannedGroup(
        tuple(numbers[id(loop)] for loop in group.loops),
        group.refusal,
        group.edits,
        group.runs if group.refusal is None else [],
        group.notes,
        explain_group(group, program, shown, spot),
    )


def _out_of_reach(
    group: Group, writable: Collection[str], shown: Callable[[str], str]
) -> Refusal | None:
    """Why a group's edits cannot be written, if they cannot."""
    files = {file for file, _ in group.edits}
    missing = sorted(files - set(writable))
    if not missing:
        return None
    names = ", ".join(map(shown, missing))
    return Refusal("AMP017", _OUTSIDE + names)


def _driven(
    planner: Planner,
    planned: Planned,
    wanted: Callable[[TrainingLoop], bool],
) -> list[tuple[TrainingLoop, list[Placed]]]:
    """The loops that a framework drives, with the edits that switch them; new ones join ``planned``."""
    neighbours = Neighbours(
        planner.program,
        planner.options,
        planner.torch_names,
        planner.events,
        planner.live_around,
        planner.spans,
    )
    driven = list(neighbours.loops())
    for loop in driven:
        loop.off = loop.off or not wanted(loop)
    planned.loops += driven
    planned.groups += ([loop] for loop in driven)
    found: list[tuple[TrainingLoop, list[Placed]]] = []
    for loop in planned.loops:
        if loop.refusal is not None and loop.refusal.code == "AMP003" and not loop.off:
            neighbours.tell(loop)
            found.append((loop, neighbours.edit(loop)))
    return found
