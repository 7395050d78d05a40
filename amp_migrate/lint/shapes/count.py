"""How many sizes lint would warn of, for those who did not ask for lint."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.findings import Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import is_selected
from amp_migrate.lint.shapes.layers import check
from amp_migrate.lint.shapes.surroundings import target_of
from amp_migrate.results import Unaligned

MOST_TEXT = 200_000
"""Characters of a program beyond which it is not looked at: this is a hint, for which nobody shall wait."""


def unaligned(context: Context, files: Iterable[str]) -> Unaligned:
    """The sizes with a warning in some files of a program."""
    sizes = 0
    if sum(map(len, context.sources.texts.values())) > MOST_TEXT:
        return Unaligned()
    for file in files:
        if "torch" not in context.sources.texts[file]:
            continue
        for found in check(context, file):
            if found.severity is Severity.WARNING:
                if is_selected(found.code, context.options.lint):
                    misfits = dict(found.data).get("misfits")
                    sizes += len(misfits) if isinstance(misfits, list) else 1
    return Unaligned(sizes, target_of(context).unit)
