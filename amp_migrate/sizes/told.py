"""What was found, as plain data: sites, instances and sizes."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.facts import ir
from amp_migrate.findings import Confidence
from amp_migrate.sizes.choices import alternatives, compatible
from amp_migrate.sizes.explore import Explorer
from amp_migrate.sizes.recording import Found
from amp_migrate.sizes.site import Instance as Sizes
from amp_migrate.sizes.site import LayerSite, Size
from amp_migrate.sizes.traces import chain
from amp_migrate.sizes.values import (
    Choice,
    Known,
    Unknown,
    Value,
    World,
    weakest,
)


def sites_of(explorer: Explorer) -> dict[str, list[LayerSite]]:
    """The layers that were found, by file."""
    found: dict[str, list[LayerSite]] = {file: [] for file in explorer.program.modules}
    for one in explorer.recorder.found.values():
        found[ir.file_of(one.function)].append(_site(one, explorer))
    for sites in found.values():
        sites.sort(key=lambda site: (int(site.call.line), site.call.column))
    return found


def _site(found: Found, explorer: Explorer) -> LayerSite:
    instances: list[Sizes] = []
    seen = set()
    for row in found.rows:
        for ready in _worlds(row):
            sizes = {name: _size(value) for name, value in ready.items()}
            key = tuple(
                (n, s.value, s.multiple, s.confidence) for n, s in sizes.items()
            )
            if key not in seen:
                seen.add(key)
                instances.append(Sizes(sizes))
    sure = all(
        size.confidence is not Confidence.DEFAULT and size.value is not None
        for instance in instances
        for size in instance.sizes.values()
    )
    complete = found.complete and sure and not explorer.exhausted
    return LayerSite(
        layer=found.layer.name,
        function=found.function,
        call=found.call,
        instances=tuple(instances),
        complete=complete,
        name=name_of(found.call, explorer.program.functions[found.function]),
    )


def _worlds(row: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """The sizes that can meet, where some are one of several."""
    rows: list[tuple[World, dict[str, Value]]] = [(frozenset(), {})]
    for name, value in row.items():
        several = isinstance(value, Choice)
        grown = []
        for world, done in rows:
            for other, one in alternatives(value):
                if compatible(world, other):
                    if several and isinstance(one, Known):
                        confidence = weakest(one.confidence, Confidence.CANDIDATE)
                        one = Known(one.value, one.trace, confidence)
                    grown.append((world | other, {**done, name: one}))
        rows = grown[:64]
    for _, done in rows:
        yield done


def _size(value: Value) -> Size:
    if isinstance(value, Known):
        number = value.value
        if isinstance(number, int) and -(1 << 62) < number < 1 << 62:
            return Size(
                int(number), abs(int(number)) or 1, chain(value.trace), value.confidence
            )
    if isinstance(value, Unknown):
        return Size(
            None, value.multiple, chain(value.trace), reason=value.reason or "unknown"
        )
    return Size(reason="no number")


def name_of(call: ir.Call, function: ir.Function) -> str:
    """What a call's result is bound to: ``lm_head``; empty where it is bound to nothing."""
    for stmt in ir.statements(function.body):
        if stmt.value is None or not any(
            call is one for e in stmt.exprs for one in ir.walk(e)
        ):
            continue
        if stmt.value is call and len(stmt.targets) == 1:
            target = stmt.targets[0]
            if isinstance(target, ir.Attr):
                return target.attr
            return target.id if isinstance(target, ir.Name) else ""
        return _key_of(stmt.value, call)
    return ""


def _key_of(expr: ir.Expr, call: ir.Call) -> str:
    for inner in ir.walk(expr):
        if isinstance(inner, ir.Call):
            for arg in inner.args:
                if arg.value is call and arg.name:
                    return arg.name
        if isinstance(inner, ir.Display) and inner.kind == "dict":
            for key, item in zip(inner.keys, inner.items, strict=False):
                if item is call and isinstance(key, ir.Const):
                    return str(key.value)
        if (
            isinstance(inner, ir.Display)
            and inner.kind == "tuple"
            and len(inner.items) == 2
        ):
            if inner.items[1] is call and isinstance(inner.items[0], ir.Const):
                return str(inner.items[0].value)
    return ""
