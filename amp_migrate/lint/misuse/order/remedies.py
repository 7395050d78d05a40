"""How faults of the protocol are mended, where one statement does it."""

from __future__ import annotations

from amp_migrate.core.findings import Fix
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.misuse.order.events import AmpEvent, AmpEvents
from amp_migrate.lint.misuse.order.faults import CLIPPED, MISSING_UPDATE, Fault
from amp_migrate.program import ir


def remedy(fault: Fault, events: AmpEvents) -> Fix | None:
    """An edit that changes what is computed, rightly; None where more than one statement is to be known."""
    if fault.code not in (CLIPPED, MISSING_UPDATE):
        return None
    stmt = _statement(fault, events)
    if stmt is None or stmt.blocks:
        return None
    steps = {
        (other.path, ir.render(event.scaler), ir.render(event.subject))
        for other, event in events.direct(fault.function)
        if isinstance(event, AmpEvent)
        and event.kind == "step"
        and event.scaler is not None
        and event.subject is not None
    }
    if len(steps) != 1:
        return None
    path, scaler, optimizer = steps.pop()
    # In one block: no condition stands between the two.
    if scaler is None or optimizer is None or path[:-1] != stmt.path[:-1]:
        return None
    if fault.code == CLIPPED:
        code = f"{scaler}.unscale_({optimizer})"
        return Fix(False, f"insert {code}", (edits.before(stmt, code),))
    if path != stmt.path:
        return None
    code = f"{scaler}.update()"
    return Fix(False, f"insert {code}", (edits.after(stmt, code),))


def _statement(fault: Fault, events: AmpEvents) -> ir.Stmt | None:
    """The statement of a clip or a step; None of any other, such as a ``continue``."""
    if isinstance(fault.at, ir.Stmt):
        return None
    return next(
        (
            stmt
            for stmt, event in events.direct(fault.function)
            if event.kind in ("clip", "step")
            and (event.line, event.column) == (fault.at.line, fault.at.column)
        ),
        None,
    )
