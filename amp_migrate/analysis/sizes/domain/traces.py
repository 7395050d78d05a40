"""Where a number comes from: kept as a list while it travels, and told as a short chain."""

from __future__ import annotations

from dataclasses import dataclass

from amp_migrate.core.findings import Step
from amp_migrate.core.results import Place
from amp_migrate.program import ir

MAX_STEPS = 5
_MAX_DEPTH = 24
_MAX_WIDTH = 60


@dataclass(slots=True, eq=False)
class Trace:
    """One link: a name that was given a value."""

    name: str
    value: ir.Expr | None
    line: ir.Line
    kind: str = ""
    """``default`` of a parameter or field, ``overwritten`` where the program also assigns to it, ``option``
    of a command line; empty for an assignment."""
    before: tuple[Trace, ...] = ()
    depth: int = 0

    @property
    def text(self) -> str:
        """``hidden = args.hidden``."""
        if self.value is None:
            return self.name
        told = f"{self.name} = {source(self.value)}"
        if self.kind == "default":
            return f"{told} (default)"
        if self.kind == "overwritten":
            return f"{told} (default; the program also sets {self.name.rpartition('.')[2]})"
        if self.kind == "option":
            return f"{self.name} (default {source(self.value)})"
        return told


def link(
    name: str,
    value: ir.Expr | None,
    line: int,
    before: Trace | None,
    kind: str = "",
) -> Trace | None:
    """A trace with one more link; what stands in no line of a file makes none."""
    if not isinstance(line, ir.Line):
        return before
    if before is not None and before.depth >= _MAX_DEPTH:
        before = origin_of(before)
    depth = 0 if before is None else before.depth + 1
    return Trace(name, value, line, kind, () if before is None else (before,), depth)


def merged(*traces: Trace | None) -> Trace | None:
    """The trace of a value that was computed from several."""
    found = [one for one in dict.fromkeys(traces) if one is not None]
    if len(found) < 2:
        return found[0] if found else None
    first, second = found[:2]
    depth = max(first.depth, second.depth)
    if depth >= _MAX_DEPTH:
        return origin_of(first)
    return Trace("", None, first.line, "both", (first, second), depth)


def origin_of(trace: Trace) -> Trace:
    """The first link of a trace."""
    while trace.before:
        trace = trace.before[0]
    return trace


def chain(trace: Trace | None) -> tuple[Step, ...]:
    """The links to tell, the origin first; what lies between is left out where they are too many."""
    links: list[Trace] = []
    _gather(trace, links, set())
    if len(links) > MAX_STEPS:
        links = [links[0], *links[-(MAX_STEPS - 1) :]]
    return tuple(
        Step(one.text, Place(one.line.file, int(one.line), 1)) for one in links
    )


def _gather(
    trace: Trace | None, links: list[Trace], seen: set[tuple[str, int, str]]
) -> None:
    if trace is None:
        return
    for before in trace.before:
        _gather(before, links, seen)
    key = (trace.text, int(trace.line), trace.line.file)
    if trace.kind != "both" and key not in seen:
        seen.add(key)
        links.append(trace)


_BINDING = {"**": 9, "*": 7, "/": 7, "//": 7, "%": 7, "@": 7, "+": 6, "-": 6}


def source(expr: ir.Expr) -> str:
    """An expression as a person would write it, cut where it is long."""
    told = _source(expr, 0)
    return told if len(told) <= _MAX_WIDTH else told[: _MAX_WIDTH - 3] + "..."


def _source(expr: ir.Expr, depth: int) -> str:
    if depth > 12:
        return "..."
    inner = depth + 1
    match expr:
        case ir.Name(id=name):
            return name
        case ir.Const(value=value):
            return "..." if value is ... else repr(value)[:_MAX_WIDTH]
        case ir.Attr(value=value, attr=attr):
            return f"{_source(value, inner)}.{attr}"
        case ir.Item(value=value, key=key):
            return f"{_source(value, inner)}[{_source(key, inner)}]"
        case ir.Call(func=func, args=args):
            given = ", ".join(
                (f"{arg.name}=" if arg.name else arg.star) + _source(arg.value, inner)
                for arg in args[:8]
            )
            return f"{_source(func, inner)}({given})"
        case ir.Display(kind="dict", items=items, keys=keys):
            pairs = ", ".join(
                (
                    f"**{_source(item, inner)}"
                    if key is None
                    else f"{_source(key, inner)}: {_source(item, inner)}"
                )
                for key, item in list(zip(keys, items, strict=False))[:6]
            )
            return f"{{{pairs}}}"
        case ir.Display(kind=kind, items=items):
            shown = ", ".join(_source(item, inner) for item in items[:12])
            if kind == "tuple":
                return f"({shown},)" if len(items) == 1 else f"({shown})"
            return f"[{shown}]" if kind == "list" else f"{{{shown}}}"
        case ir.Operation(op="if", operands=(test, body, orelse)):
            return (
                f"{_source(body, inner)} if {_source(test, inner)}"
                f" else {_source(orelse, inner)}"
            )
        case ir.Operation(op="-x" | "+x" | "~" as op, operands=(operand,)):
            return f"{op[0]}{_source(operand, inner)}"
        case ir.Operation(op="not", operands=(operand,)):
            return f"not {_source(operand, inner)}"
        case ir.Operation(op="starred", operands=(operand,)):
            return f"*{_source(operand, inner)}"
        case ir.Operation(op="slice", operands=operands):
            return ":".join(
                "" if part == ir.Const(None) else _source(part, inner)
                for part in operands
            ).removesuffix(":")
        case ir.Operation(op=op, operands=operands) if len(operands) == 2:
            # The right side of what is read from the left binds more loosely than it looks.
            looser = (0, 1) if op != "**" else (1, 0)
            sides = [
                (
                    f"({_source(side, inner)})"
                    if isinstance(side, ir.Operation)
                    and _BINDING.get(side.op, 0) < _BINDING.get(op, 0) + at_right
                    else _source(side, inner)
                )
                for side, at_right in zip(operands, looser, strict=True)
            ]
            return f" {op} ".join(sides)
        case _:
            return "..."
