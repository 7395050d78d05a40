"""Several instances of one class, each with an optimizer, which look like one from outside."""

from __future__ import annotations

from amp_migrate.analysis.objects.concrete import has_several
from amp_migrate.analysis.objects.optimizers import Slot
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.loops import refused
from amp_migrate.migrate.scaling.groups import Group
from amp_migrate.migrate.scaling.placement import Steps
from amp_migrate.program import ir
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
            len(touching) > 1
            or own[0] is None
            or own[0][1] not in program.family(slot.owner)
        ):
            name = ir.local_name(slot.owner)
            message = f"several instances of {name} have an optimizer each, and are stepped from outside"
            raise refused("AMP012", message, birth.stmt.line)


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
