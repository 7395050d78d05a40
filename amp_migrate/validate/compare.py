"""Whether two runs did the same, to the bit."""

from __future__ import annotations

import itertools

from amp_migrate.validate.order import Injection
from amp_migrate.validate.record import Line, Record, place


def difference(reference: Record, candidate: Record) -> str:
    """How two runs are not the same: the first difference, in one line; empty where there is none.

    Losses, parameters and buffers after each step, optimizer states and random streams at the end.
    """
    if reference.failure:
        return f"{reference.order.name} fails: {reference.failure}"
    if candidate.failure:
        return f"it fails: {candidate.failure}"
    ours, theirs = reference.events, candidate.events
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if _identity(a) != _identity(b):
            return f"event {position + 1}: {_told(a)} became {_told(b)}{_place(b)}"
    if len(ours) != len(theirs):
        counts = [
            f"{_count(events, 'loss')} losses and {_count(events, 'step')} steps"
            for events in (ours, theirs)
        ]
        return f"{counts[0]} became {counts[1]}"
    before, after = reference.last("end"), candidate.last("end")
    if before["state"] != after["state"]:
        return "parameters or optimizer states differ at the end"
    if before["randomness"] != after["randomness"]:
        return "the random streams differ at the end"
    return ""


def printed(reference: Record, candidate: Record) -> str:
    """The first line of their standard output that is not the same; empty where there is none."""
    ours, theirs = reference.stdout.splitlines(), candidate.stdout.splitlines()
    for a, b in itertools.zip_longest(ours, theirs, fillvalue=""):
        if a != b:
            return f"it printed {b[:80]!r} for {a[:80]!r}"
    return ""


def saved(reference: Record, candidate: Record) -> str:
    """The first checkpoint that is not the same, scalers apart; empty where there is none."""
    ours, theirs = reference.all("saved"), candidate.all("saved")
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a["bits"] != b["bits"]:
            return f"what it gives to torch.save differs, the {number}. time"
    if len(ours) != len(theirs):
        return f"it saves {len(theirs)} times, not {len(ours)} times"
    return ""


def new_warnings(reference: Record, candidate: Record) -> list[str]:
    """Warnings that only the second run gave."""
    known = {line["message"] for line in reference.all("warning")}
    found = {line["message"] for line in candidate.all("warning")}
    return sorted(found - known)


def injection(record: Record) -> Injection | None:
    """Where an inf has to appear to meet the middle one of the steps that scalers make, if any does."""
    found = []
    backwards = -1
    for event in record.events:
        if event["kind"] == "loss":
            backwards += 1
        elif event["scaled"]:
            found.append(Injection(backwards, event["optimizer"]))
    return found[len(found) // 2] if found else None


def _identity(event: Line) -> tuple[object, ...]:
    return event["kind"], event.get("optimizer"), event["bits"]


def _count(events: list[Line], kind: str) -> int:
    return sum(event["kind"] == kind for event in events)


def _told(event: Line) -> str:
    if event["kind"] == "loss":
        return f"a loss of {float(event['value']):.9g}"
    number = event["optimizer"] + 1
    norm = float(event["norm"])
    return f"a step of optimizer {number} on gradients of norm {norm:.9g}"


def _place(event: Line) -> str:
    return f" ({place(event)})" if "path" in event else ""
