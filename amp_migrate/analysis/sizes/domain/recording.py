"""What was found on the way: the calls that make layers, with the sizes that came there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Protocol

from amp_migrate.analysis.sizes.domain.arithmetic import binary, sure
from amp_migrate.analysis.sizes.domain.choices import lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import (
    ClassValue,
    Frame,
    Instance,
    Known,
    Sequence,
    Tensor,
    Tup,
    Unknown,
    Value,
    weakened,
)
from amp_migrate.catalogue.layers import Layer, LayerTable
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of, unpacked
from amp_migrate.program.link import Program
from amp_migrate.program.testing import is_test

Key = tuple[str, int, int]
"""A call by its function, line and column."""
MAX_INSTANCES = 256


class Running(Protocol):
    """What is asked of the machine that runs the program."""

    path: Confidence
    quiet: int
    at: ir.Stmt | None


class Found:
    """One call that makes a layer."""

    def __init__(self, layer: Layer, function: str, call: ir.Call) -> None:
        self.layer = layer
        self.function = function
        self.call = call
        self.rows: list[dict[str, Value]] = []
        self.prints: set[object] = set()
        """What tells the rows apart."""
        self.complete = True


class Recorder:
    """Gathers the layers of one program."""

    def __init__(self, program: Program, table: LayerTable) -> None:
        self.program = program
        self.table = table
        self.found: dict[Key, Found] = {}
        self.made: dict[str, Value] = {}
        """Functions by their qualified name, as they were made last."""
        self.classes: dict[str, ClassValue] = {}
        self.reached: set[str] = set()
        self.options: dict[str, dict[str, Value]] = {}
        """What click gives a function's parameters where the user does not."""
        self.instances: dict[str, list[Instance]] = {}
        self.in_tests = False
        """Only what tests make is noted: what they ask of others is small."""
        self.closed = False
        """What runs now was started by the program itself, with nothing left open."""
        self.replaced, self.overwritten = _written(program)
        """What of libraries the program replaces; the attributes that it sets from outside of objects."""
        self.news = 0
        """Grows with each layer that is found, and with other sizes of one."""
        self._mentions: dict[int, tuple[object, bool]] = {}
        self.words = self._interesting()

    # -- what is worth a look -----------------------------------------------------------------

    def _interesting(self) -> frozenset[str]:
        """Names that lead to a layer: of layers, and of what mentions such a name."""
        words = set(self.table.short_names) | {"@"}
        used: dict[str, set[str]] = {}
        program = self.program
        said: dict[str, set[str]] = {}
        for name, function in program.functions.items():
            if not ir.is_top(name):
                parts = map(parts_of, program.statements(name))
                said[name] = set().union(*map(_words_in, parts))
                used.setdefault(function.name, set()).update(said[name])
        for cls in program.classes.values():
            inner = used.setdefault(cls.name, set())
            inner.update(*(_words(stmt) for stmt in cls.body))
            for base in cls.bases:
                inner.update(_words_in(ir.walk(base)))
            for _, method in cls.methods:
                inner.update(said[method])
        grown = True
        while grown:
            more = {name for name, inside in used.items() if inside & words} - words
            words |= more
            grown = bool(more)
        return frozenset(words)

    def mentions(self, node: ir.Stmt | ir.Expr) -> bool:
        """Whether a statement or expression may lead to a layer."""
        kept = self._mentions.get(id(node))
        if kept is None or kept[0] is not node:
            found = (
                _words(node)
                if isinstance(node, ir.Stmt)
                else set(_words_in(ir.walk(node)))
            )
            kept = (node, bool(found & self.words))
            self._mentions[id(node)] = kept
        return kept[1]

    def is_main_test(self, test: ir.Expr) -> bool:
        """``__name__ == "__main__"``."""
        return (
            isinstance(test, ir.Operation)
            and test.op == "=="
            and ir.Name("__name__") in test.operands
            and ir.Const("__main__") in test.operands
        )

    # -- layers -------------------------------------------------------------------------------

    def layer(
        self,
        machine: Running,
        layer: Layer,
        given: Given,
        site: ir.Call,
        frame: Frame,
    ) -> Value:
        """Note a call that makes a layer, or uses one in functional form."""
        values: dict[str, Value] = {}
        positional = layer.positional
        for name in layer.parameters:
            position = positional.index(name) if name in positional else -1
            value = given.get(position, name)
            if value is None:
                if name in layer.defaults:
                    value = Known(layer.defaults[name])
                elif given.rest != "default":
                    continue
                else:
                    value = Unknown("parameter")
            values[name] = value
        row = self._row(machine, layer, values)
        if row is not None:
            self._note(machine, layer, row, site, frame)
        if layer.weight:
            return Unknown("data")
        made = Instance(None, "layer", layer.name)
        for name, value in values.items():
            made.state[name] = value
        return made

    def _row(
        self, machine: Running, layer: Layer, values: dict[str, Value]
    ) -> dict[str, Value] | None:
        """Sizes by name; None for a function whose weight is no parameter of known sizes."""
        row: dict[str, Value] = {}
        for size, parameter in layer.sizes.items():
            value = values.get(parameter)
            if value is None or (isinstance(value, Known) and value.value is None):
                other = layer.same.get(size)
                value = Unknown("arguments") if other is None else row.get(other)
            row[size] = Unknown("arguments") if value is None else value
        if layer.spatial and "kernel" in row:
            row["kernel"] = lifted((row["kernel"],), lambda k: _taps(k, layer.spatial))
        if layer.weight:
            return self._weighed(machine, layer, values, row)
        return row

    def _weighed(
        self,
        machine: Running,
        layer: Layer,
        values: dict[str, Value],
        row: dict[str, Value],
    ) -> dict[str, Value] | None:
        for parameter, dimensions in layer.weight.items():
            weight = values.get(parameter)
            if not isinstance(weight, Tensor) or not weight.is_parameter:
                continue
            if weight.shape is None:
                return row | {name: Unknown("tensor") for name in layer.widths}
            shape = list(weight.shape)
            names = list(dimensions)
            if names[0] == "...":
                names = names[1:]
                if len(shape) < len(names):
                    return None
                shape = shape[-len(names) :]
            if len(shape) != len(names) and not names[-1].startswith("*"):
                return None
            for name, value in zip(names, shape, strict=False):
                if name.startswith("*"):
                    rest = shape[names.index(name) :]
                    row[name[1:]] = _product(rest)
                    break
                plain, _, shared = name.partition(" / ")
                if shared:
                    value = binary("*", value, row.get(shared, Known(1)))
                row[plain] = value
            return row
        return None

    def product(
        self,
        machine: Running,
        values: list[Value],
        operands: tuple[ir.Expr, ...],
        frame: Frame,
    ) -> None:
        """``x @ y``, told as ``torch.matmul(x, y)`` at its statement's place."""
        layer = self.table.layers.get("matmul")
        if layer is None or machine.at is None:
            return
        given = dict(zip(layer.parameters, values, strict=True))
        row = self._row(machine, layer, given)
        if row is not None:
            func = ir.Attr(ir.Name("torch"), "matmul")
            args = tuple(ir.Arg(operand) for operand in operands)
            site = ir.Call(func, args, machine.at.line, machine.at.column)
            self._note(machine, layer, row, site, frame)

    def _note(
        self,
        machine: Running,
        layer: Layer,
        row: dict[str, Value],
        site: ir.Call,
        frame: Frame,
    ) -> None:
        if machine.quiet or not isinstance(site.line, ir.Line):
            return
        function = frame.function
        if self.in_tests and not is_test(ir.file_of(function)):
            return
        key = (function, int(site.line), site.column)
        found = self.found.get(key)
        if found is None or found.layer is not layer:
            if found is not None:
                # One call that makes different layers: told apart by a place of its own.
                key = (f"{function} {layer.name}", int(site.line), site.column)
            found = self.found.setdefault(key, Found(layer, function, site))
        weak = {name: weakened(value, machine.path) for name, value in row.items()}
        fingerprint = tuple(_print(value) for value in weak.values())
        if fingerprint not in found.prints:
            if len(found.rows) < MAX_INSTANCES:
                found.prints.add(fingerprint)
                found.rows.append(weak)
                self.news += 1
            else:
                found.complete = False
        found.complete = found.complete and self.closed


def _taps(kernel: Value, spatial: int) -> Value:
    if isinstance(kernel, Known) and type(kernel.value) is int:
        return (
            sure(kernel.value**spatial, kernel) if abs(kernel.value) < 10**6 else kernel
        )
    if isinstance(kernel, Sequence) and kernel.items is not None:
        kernel = Tup(kernel.items)
    return (
        _product(list(kernel.items)) if isinstance(kernel, Tup) else Unknown("kernel")
    )


def _product(values: list[Value]) -> Value:
    numbers = [v for v in values if isinstance(v, Known) and type(v.value) is int]
    if len(numbers) < len(values) or any(abs(_int(v)) > 10**6 for v in numbers[:8]):
        return Unknown("kernel")
    return sure(prod(_int(v) for v in numbers), *numbers)


def _int(value: Known) -> int:
    return value.value if isinstance(value.value, int) else 0


def _print(value: Value) -> object:
    match value:
        case Known(value=int() as number, confidence=confidence):
            return number, confidence
        case Unknown(multiple=multiple, reason=reason):
            return "?", multiple, reason
        case _:
            return id(value)


def _words(stmt: ir.Stmt) -> set[str]:
    found: set[str] = set()
    for one in ir.statements((stmt,)):
        found.update(_words_in(parts_of(one)))
    return found


def _words_in(parts: Iterable[ir.Expr]) -> Iterator[str]:
    for inner in parts:
        if isinstance(inner, ir.Name):
            yield inner.id
        elif isinstance(inner, ir.Attr):
            yield inner.attr
        elif isinstance(inner, ir.Operation) and inner.op == "@":
            yield "@"


def _written(program: Program) -> tuple[frozenset[str], frozenset[str]]:
    """What is assigned to: of libraries (``torch.nn.Linear = Mine``), and of objects (``cfg.vocab = 5``)."""
    found: set[str] = set()
    attributes: set[str] = set()
    for name in program.functions:
        for stmt in program.statements(name):
            if stmt.kind not in ("assign", "augassign", "annassign", "for", "with"):
                continue
            for target, _, _ in unpacked(stmt):
                if isinstance(target, ir.Attr):
                    origin = program.origin(target, name)
                    if origin is not None:
                        found.add(origin)
                    elif target.value != ir.Name("self"):
                        attributes.add(target.attr)
    return frozenset(found), frozenset(attributes)
