"""What is wrong on the way from a loss to a step: the order of a scaler's calls, and what is computed of
values that carry its scale."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse import scaled
from amp_migrate.lint.misuse.order.faults import HALF_PARAMETERS
from amp_migrate.lint.misuse.order.protocol import protocol_of
from amp_migrate.lint.misuse.order.remedies import remedy
from amp_migrate.program import ir


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    protocol = protocol_of(context)
    for fault in protocol.faults():
        # What is half is the business of what looks at modules, too.
        if ir.file_of(fault.function) == file and fault.code != HALF_PARAMETERS:
            yield context.finding(
                fault.code,
                fault.function,
                fault.at,
                fault.message,
                severity=fault.severity,
                fix=remedy(fault, protocol.events),
            )
    yield from scaled.findings(context, protocol, file)
