"""Several instances of one class, each with an optimizer, which look like one from outside."""

from __future__ import annotations

from amp_migrate.analysis.objects.concrete import has_several
from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.loops import refused
from amp_migrate.migrate.scaling.groups import Group
from amp_migrate.migrate.scaling.placement import Steps
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.link import Program


def refuse_instances(
    program: Program, events: Events, group: Group, steps: Steps
) -> None:
    """Several instances of a class at once have an optimizer each: only where one method of theirs
    does all of a step are they never mistaken for one another."""
    for birth in group.births:
        slot = birth.slot
        if slot.kind != "attribute":
            continue
        if not has_several(program, slot.owner):
            continue
        touching = {f for f, _, other in steps if other == slot}
        touching |= {
            b.function
            for loop in group.loops
            if slot in loop.slots
            for b in loop.backwards
        }
        for function in program.functions:
            for _, event in events.direct(function):
                if event.kind == "zero" and event.slot == slot:
                    touching.add(function)
        own = [program.self_class(function) for function in touching]
        if (
            len(touching) != 1
            or own[0] is None
            or own[0][1] not in program.family(slot.owner)
        ):
            name = ir.local_name(slot.owner)
            message = f"several instances of {name} have an optimizer each, and are stepped from outside"
            raise refused("AMP012", message, birth.stmt.line)
        for function, stmt, other in steps:
            if other == slot:
                _refuse_others(program, events, function, receiver_of(stmt), slot)


def _refuse_others(
    program: Program, events: Events, function: str, stepped: ir.Expr, slot: Slot
) -> None:
    """Gradients of one object are touched where another's optimizer steps: they look like its own."""
    if not isinstance(stepped, ir.Attr):
        return
    family = program.family(slot.owner)
    for stmt, event in events.direct(function):
        if event.kind != "access":
            continue
        over = [
            (one.targets, iterable)
            for one in parts_of(stmt)
            if isinstance(one, ir.Comprehension)
            for iterable in one.iterables
        ]
        for outer in program.control(function).around(stmt.path):
            if outer.kind == "for" and outer.value is not None:
                over.append((outer.targets, outer.value))
        touched = [
            iterable
            for targets, iterable in over
            if any(one in event.targets for t in targets for one in ir.walk(t))
        ]
        for inner in (o for t in (*event.targets, *touched) for o in ir.walk(t)):
            if (
                isinstance(inner, (ir.Name, ir.Attr))
                and inner != stepped.value
                and program.instance_classes(inner, function) & family
            ):
                message = f"gradients of {ir.render(inner)} are touched here, and {ir.render(stepped)} steps"
                raise refused("AMP012", message, stmt.line)


def refuse_twins(steps: Steps) -> None:
    """Two instances of one class have an optimizer each, which look like one from here."""
    receivers: dict[tuple[str, Slot], ir.Expr] = {}
    for function, stmt, slot in steps:
        receiver = receiver_of(stmt)
        other = receivers.setdefault((function, slot), receiver)
        if slot.kind == "attribute" and other != receiver:
            names = f"{ir.render(other)} and {ir.render(receiver)}"
            message = f"{names} are optimizers of two instances of one class"
            raise refused("AMP012", message, stmt.line)


def receiver_of(stmt: ir.Stmt) -> ir.Expr:
    """The optimizer of a statement ``optimizer.step()``."""
    assert isinstance(stmt.value, ir.Call) and isinstance(stmt.value.func, ir.Attr)
    return stmt.value.func.value
