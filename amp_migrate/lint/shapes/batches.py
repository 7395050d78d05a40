"""Batch sizes, for those who run what is old enough to care: TCU113."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.shapes.surroundings import target_of
from amp_migrate.program import ir

CODE = "TCU113"
_LOADERS = frozenset(
    {"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"}
)


def check(context: Context, file: str) -> Iterable[Finding]:
    """One finding for each loader whose batch size is written there."""
    unit = target_of(context).unit
    for function, _, call in context.program.calls_named("DataLoader"):
        if ir.file_of(function) != file:
            continue
        if context.program.origin(call.func, function) not in _LOADERS:
            continue
        match call.argument(1, "batch_size"):
            case ir.Const(value=int() as size) if size > 1 and size % unit:
                yield context.finding(
                    CODE,
                    function,
                    call,
                    f"a batch of {size} is not divisible by {unit}: this mattered before cuBLAS 11",
                    data=(("size", size), ("multiple_of", unit)),
                )
