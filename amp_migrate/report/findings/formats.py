"""Which format is whose work."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from amp_migrate.report.findings.listing import Listing

_MACHINES = {
    "json": ("as_json", "document"),
    "jsonl": ("as_json", "lines"),
    "github": ("github", "commands"),
    "gitlab": ("gitlab", "code_quality"),
    "sarif": ("sarif", "log"),
    "junit": ("junit", "suites"),
}
"""Of each format for machines, the module and the function in it that writes it."""


def is_for_people(name: str) -> bool:
    """Whether people read a format, so that it is coloured and shortened."""
    return name not in _MACHINES


def written(name: str, listing: Listing) -> str:
    """All that was found, in a format for machines."""
    module, function = _MACHINES[name]
    write: Callable[[Listing], str] = getattr(
        import_module(f"amp_migrate.report.findings.{module}"), function
    )
    return write(listing)
