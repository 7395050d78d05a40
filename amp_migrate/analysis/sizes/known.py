"""What was found, as plain data: sites, instances and sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from amp_migrate.analysis.sizes.domain.choices import alternatives, compatible
from amp_migrate.analysis.sizes.domain.recording import Found
from amp_migrate.analysis.sizes.domain.site import Instance as Sizes
from amp_migrate.analysis.sizes.domain.site import LayerSite, Size
from amp_migrate.analysis.sizes.domain.traces import chain
from amp_migrate.analysis.sizes.domain.values import (
    Choice,
    Known,
    Unknown,
    Value,
    World,
    weakest,
)
from amp_migrate.analysis.sizes.explore import Explorer
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of


class Told:
    """The layers that were found, by file; those of a file that nobody asks for are not put together."""

    def __init__(self, explorer: Explorer, *, silent: bool = False) -> None:
        self._explorer = explorer
        self._sites: dict[str, list[LayerSite]] = {}
        self._found: dict[str, list[Found]] = defaultdict(list)
        if not silent:
            for one in explorer.recorder.found.values():
                self._found[ir.file_of(one.function)].append(one)

    def of(self, file: str) -> list[LayerSite]:
        """Those of one file, in source order."""
        if file not in self._sites:
            around: dict[str, Mapping[int, ir.Stmt]] = {}
            sites = self._sites[file] = []
            for one in self._found.get(file, ()):
                if one.function not in around:
                    function = self._explorer.program.functions[one.function]
                    around[one.function] = _around(function)
                stmt = around[one.function].get(id(one.call))
                sites.append(_site(one, stmt, self._explorer))
            sites.sort(key=lambda site: (int(site.call.line), site.call.column))
        return self._sites[file]


def _around(function: ir.Function) -> Mapping[int, ir.Stmt]:
    """The statements with a value that calls stand in, by the identity of the call."""
    return {
        id(call): stmt
        for stmt in ir.statements(function.body)
        if stmt.value is not None
        for call in parts_of(stmt)
        if isinstance(call, ir.Call)
    }


def _site(found: Found, stmt: ir.Stmt | None, explorer: Explorer) -> LayerSite:
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
        name=_name_of(found.call, stmt),
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


def _name_of(call: ir.Call, stmt: ir.Stmt | None) -> str:
    """What a call's result is bound to: ``lm_head``; empty where it is bound to nothing."""
    if stmt is None or stmt.value is None:
        return ""
    if stmt.value is call and len(stmt.targets) == 1:
        target = stmt.targets[0]
        while isinstance(target, ir.Item):
            target = target.value
        if isinstance(target, ir.Attr):
            return target.attr
        return target.id if isinstance(target, ir.Name) else ""
    return _key_of(stmt.value, call)


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
