"""Regions of autocast that are not entered, not left, or not where the forward runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Amp, amp_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call
from amp_migrate.program.link import Program

LEFT_ON = "AMP214"
REPLICAS = "AMP216"
NOT_ENTERED = "AMP217"

_REPLICATES = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file."""
    amp = amp_of(context)
    leaves = "__exit__" in context.program.modules[file].identifiers
    for function in context.functions(file):
        body = context.program.functions[function].body
        for stmt in ir.statements(body):
            if stmt.kind == "expr" and isinstance(stmt.value, ir.Call):
                made = (stmt.value, stmt.value.func)
                if any(amp.entered(one, function) is not None for one in made):
                    yield context.finding(NOT_ENTERED, function, stmt.value)
                elif not leaves and _enters(amp, stmt.value, function):
                    yield context.finding(LEFT_ON, function, stmt.value)
            if _is_forgotten(context.program, amp, stmt, function):
                yield context.finding(NOT_ENTERED, function, stmt)
            if stmt.kind == "with":
                yield from _replicas(context, amp, stmt, function)


def _is_own(program: Program, name: str, top: str) -> bool:
    """Whether a name at the top level of a file is one that trains, and no other file says it."""
    file = ir.file_of(top)
    return any(
        ir.file_of(function) == file for function, _, _ in program.calls_named("step")
    ) and not any(
        name in facts.identifiers or name in facts.strings
        for other, facts in program.modules.items()
        if other != file
    )


def _is_forgotten(program: Program, amp: Amp, stmt: ir.Stmt, function: str) -> bool:
    """Whether a region is given a name that nobody says again."""
    if stmt.kind != "assign" or not isinstance(stmt.value, ir.Call):
        return False
    if amp.entered(stmt.value, function) is None or len(stmt.targets) != 1:
        return False
    match stmt.targets[0]:
        case ir.Name(id=name) if not ir.is_top(function) or _is_own(
            program, name, function
        ):
            seen_in = ir.file_of(function) if ir.is_top(function) else function
            return not any(
                inner == ir.Name(name)
                for other, facts in program.functions.items()
                if other.startswith(seen_in)
                for one in ir.statements(facts.body)
                for expr in one.exprs
                if one is not stmt
                for inner in ir.walk(expr)
            )
        case ir.Attr(attr=name):
            # A module's attribute of the same name is another: torch.amp.
            return not any(
                name in one.strings for one in program.modules.values()
            ) and not any(
                isinstance(inner, (ir.Name, ir.Attr))
                and (inner.attr if isinstance(inner, ir.Attr) else inner.id) == name
                and program.origin(inner, there) is None
                for there, one in program.mentioning(name)
                for expr in one.exprs
                if one is not stmt
                for inner in ir.walk(expr)
            )
    return False


def _enters(amp: Amp, call: ir.Call, function: str) -> bool:
    return (
        isinstance(call.func, ir.Attr)
        and call.func.attr == "__enter__"
        and amp.entered(call.func.value, function) is not None
    )


def _replicas(
    context: Context, amp: Amp, stmt: ir.Stmt, function: str
) -> Iterator[Finding]:
    replicates = (
        call
        for _, call in each_call(stmt.blocks[0].body)
        for ref in context.program.resolve(call.func, function)
        if ref.kind == "made" and ref.name in _REPLICATES
    )
    call = next(replicates, None)
    if call is None:
        return
    regions = [amp.entered(expr, function) for expr in stmt.exprs]
    if any(one is not None and one.dtype == "bfloat16" for one in regions):
        yield context.finding(REPLICAS, function, call)
