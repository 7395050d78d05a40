"""Runs of several losses that touch, or lie inside one another, become one."""

from __future__ import annotations

from amp_migrate.migrate.regions.regions import Run
from amp_migrate.program import ir


def without_overlaps(runs: list[Run]) -> list[Run]:
    """Merge runs that several losses of one step share."""
    merged: list[Run] = []
    for run in sorted(
        runs, key=lambda r: (r.function, r.path[:-1], r.path[-1][0], r.path[-1][1])
    ):
        for index, other in enumerate(merged):
            if other.function != run.function:
                continue
            beside = len(run.path) == len(other.path)
            if beside and ir.distance(run.path, other.path) is not None:
                # Nothing comes between two that touch, but for a backward that is hoisted from.
                if run.path[-1][1] <= other.last + (not other.hoists):
                    last = max(other.last, run.last)
                    hoists = run.hoists if run.last == last else other.hoists
                    merged[index] = Run(other.function, other.path, last, hoists)
                    break
            if _holds(other, run.path):
                break
        else:
            merged.append(run)
    return [
        run
        for run in merged
        if not any(
            o is not run and o.function == run.function and _holds(o, run.path)
            for o in merged
        )
    ]


def _holds(run: Run, path: ir.Path) -> bool:
    """Whether a statement lies inside one of a run's statements."""
    return len(path) > len(run.path) and run.holds(path)
