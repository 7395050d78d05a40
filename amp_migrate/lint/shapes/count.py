"""How many sizes lint would warn of, for those who did not ask for lint."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.core.findings import Severity
from amp_migrate.core.results import Unaligned
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import is_selected
from amp_migrate.lint.shapes.layers import check
from amp_migrate.lint.shapes.sites import sites_of
from amp_migrate.lint.shapes.surroundings import target_of

STEPS = 100_000
"""How far a program is followed: a fraction of a second. It is a hint, for which nobody shall wait."""


def unaligned(context: Context, files: Iterable[str]) -> Unaligned:
    """The sizes with a warning in some files of a program."""
    sizes = 0
    for file in files:
        if "torch" not in context.sources.texts[file]:
            continue
        if not sites_of(context, file, STEPS):
            continue
        for found in check(context, file):
            if found.severity is Severity.WARNING:
                if is_selected(found.code, context.options.lint):
                    misfits = dict(found.data).get("misfits")
                    sizes += len(misfits) if isinstance(misfits, list) else 1
    return Unaligned(sizes, target_of(context).unit)
