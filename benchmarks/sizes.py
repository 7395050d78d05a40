"""How many layer sizes are known, of those that a package decides itself.

    python benchmarks/sizes.py FOLDER...

Each folder is one package. A *site* is a call whose name is, by its imports, a layer of
``rules/layers.toml``. The package *decides* a site if each of its widths can be traced, by name alone
and without computing anything, to constants of the package: a width is decided if it is a constant;
if it is an operation, or a call of a function of Python's own, of `math` or of `numpy`, on decided
values; if it is a variable, attribute or dictionary key that something in the package of that name
gives a decided value; if it is a parameter with a default, or one that some call in the package of
that name may fill (unless the call is known to mean another of that name), or of a class or function
that is handed around as a value. What is read from data, a
checkpoint or a file, and a parameter without default of something that nothing in the package
mentions, is not. This asks only where a number comes from, never what it is: it knows nothing of what
`amp_migrate.analysis.sizes` can follow, and where it is in doubt it says that the package decides.

A site is *resolved* if for some way to come to it each of its widths is known, or proved to be a
multiple of 8.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from amp_migrate.analysis.sizes import Layers, LayerSite
from amp_migrate.catalogue.layers import layer_table
from amp_migrate.core.results import SourceError
from amp_migrate.program import ir
from amp_migrate.program.imports import scan_imports
from amp_migrate.program.layout import Layout
from amp_migrate.program.link import Program
from amp_migrate.program.reader import read_module

UNIT = 8
_PURE = (
    "builtins.",
    "math.",
    "numpy.",
    "functools.",
    "itertools.",
    "operator.",
    "torch.nn.",
)
_NOT_PURE = {"builtins.open", "builtins.input", "builtins.exec", "builtins.eval"}


def read(folder: Path) -> Program:
    """The program in a folder; files that are no Python of today are left out."""
    modules = []
    scans = {}
    for path in sorted(folder.resolve().rglob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
            modules.append(read_module(text, path.as_posix()))
            scans[path.as_posix()] = scan_imports(text)
        except (SourceError, UnicodeDecodeError):
            continue
    layout = Layout(scans, folder.resolve().as_posix())
    return Program(modules, layout)


class Decided:
    """Which values a package decides, by names alone."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls: dict[str, list[tuple[ir.Call, str]]] = defaultdict(list)
        self.values: dict[str, list[tuple[ir.Expr, str]]] = defaultdict(list)
        """What is given to an attribute or key of a name, and where."""
        self.mentioned: Counter[str] = Counter()
        self.parameters = {
            (name, param.name): param
            for name, function in program.functions.items()
            for param in function.params
        }
        for expr, function in _expressions(program):
            self._gather(expr, function)
        self._attributes()
        self.known: set[object] = set()
        self.asked: set[tuple[str, str]] = set()
        """Variables that something asked for; whether they are decided is found in rounds."""
        wanted = [
            (width, function)
            for call, function, layer in layer_calls(program)
            for width in widths(call, layer)
        ]
        size = -1
        while size != len(self.known) + len(self.asked):
            size = len(self.known) + len(self.asked)
            for width, function in wanted:
                self.of(width, function)
            self._round()

    def _gather(self, expr: ir.Expr, function: str) -> None:
        called: set[int] = set()
        for one in ir.walk(expr):
            if isinstance(one, ir.Call):
                name = _last(one.func)
                called.add(id(one.func))
                if name:
                    self.calls[name].append((one, function))
                for arg in one.args:
                    if arg.name:
                        self.values[arg.name].append((arg.value, function))
                if name == "add_argument":
                    self._option(one, function)
            elif isinstance(one, ir.Display) and one.kind == "dict":
                for key, item in zip(one.keys, one.items, strict=True):
                    if isinstance(key, ir.Const):
                        self.values[str(key.value)].append((item, function))
            elif isinstance(one, (ir.Name, ir.Attr)) and id(one) not in called:
                self.mentioned[_last(one)] += 1

    def _option(self, call: ir.Call, function: str) -> None:
        names = [
            str(arg.value.value)
            for arg in call.args
            if arg.name is None and isinstance(arg.value, ir.Const)
        ]
        names += [
            str(arg.value.value)
            for arg in call.args
            if arg.name == "dest" and isinstance(arg.value, ir.Const)
        ]
        for arg in call.args:
            if arg.name == "default" and arg.value != ir.Const(None):
                for name in names:
                    key = name.lstrip("-").replace("-", "_")
                    self.values[key].append((arg.value, function))

    def _attributes(self) -> None:
        program = self.program
        for name, stmt in _statements(program):
            if (
                stmt.kind not in ("assign", "annassign", "augassign")
                or stmt.value is None
            ):
                continue
            for target in stmt.targets:
                if isinstance(target, ir.Attr):
                    self.values[target.attr].append((stmt.value, name))
                elif isinstance(target, ir.Item) and isinstance(target.key, ir.Const):
                    self.values[str(target.key.value)].append((stmt.value, name))
        for cls in program.classes.values():
            for stmt in cls.body:
                for target in stmt.targets:
                    if isinstance(target, ir.Name) and stmt.value is not None:
                        self.values[target.id].append((stmt.value, cls.parent))

    def _round(self) -> None:
        for owner, name in list(self.asked):
            if ("name", owner, name) not in self.known and self._defined(owner, name):
                self.known.add(("name", owner, name))
        for attr, given in self.values.items():
            if ("attr", attr) not in self.known and any(self.of(*one) for one in given):
                self.known.add(("attr", attr))
        for (function, name), param in self.parameters.items():
            if ("param", function, name) not in self.known and self._param(
                function, param
            ):
                self.known.add(("param", function, name))

    def _param(self, function: str, param: ir.Param) -> bool:
        facts = self.program.functions[function]
        if param.default is not None and self.of(
            param.default, facts.parent or function
        ):
            return True
        called = facts.name
        if called == "__init__" and facts.class_name is not None:
            called = self.program.classes[facts.class_name].name
        names = [one.name for one in facts.params]
        position = names.index(param.name) - (1 if facts.self_name else 0)
        callee = facts.class_name if facts.name == "__init__" else function
        for call, caller in self.calls.get(called, ()):
            meant = {ref.name for ref in self.program.resolve(call.func, caller)}
            if meant and callee not in meant:
                continue  # another of that name
            value = call.argument(max(position, 0), param.name)
            if value is None:
                if any(arg.star for arg in call.args):
                    return True
            elif self.of(value, caller):
                return True
        # Handed around as a value: something may call it with anything.
        return self.mentioned[called] > 0 and called not in self.calls

    def of(self, expr: ir.Expr, function: str) -> bool:
        """Whether the package decides what an expression is worth."""
        match expr:
            case ir.Const(value=value):
                return value is not None  # nobody's size
            case ir.Name(id=name):
                return self._name(name, function)
            case ir.Attr(value=value, attr=attr):
                if ("attr", attr) in self.known or attr in _OF_LAYERS:
                    return True
                origin = self.program.origin(expr, function)
                if origin is not None:
                    return origin.startswith(_PURE)
                there = self.program.elsewhere(expr, function)
                return there is not None and there[0] != expr and self.of(*there)
            case ir.Item(value=value, key=key):
                if isinstance(key, ir.Const) and ("attr", str(key.value)) in self.known:
                    return True
                return self.of(value, function)
            case ir.Call():
                return self._call(expr, function)
            case ir.Display(items=items):
                return all(self.of(item, function) for item in items)
            case ir.Operation(op="if" | "or" | "and", operands=operands):
                chosen = operands[1:] if expr.op == "if" else operands
                return any(self.of(one, function) for one in chosen)
            case ir.Operation(operands=operands):
                return all(self.of(one, function) for one in operands)
            case ir.Comprehension(iterables=iterables):
                return all(self.of(one, function) for one in iterables)
            case ir.Walrus(value=value):
                return self.of(value, function)
            case _:
                return False

    def _name(self, name: str, function: str) -> bool:
        program = self.program
        owner = program.owner(name, function)
        if owner is None:
            return True  # a builtin, a target of a comprehension, or a mistake
        if ("param", owner, name) in self.known:
            return True
        key = ("name", owner, name)
        if key in self.known:
            return True
        self.asked.add((owner, name))
        origin = program.origin(ir.Name(name), function)
        return origin is not None and origin.startswith(_PURE)

    def _defined(self, owner: str, name: str) -> bool:
        for one in self.program.definitions(owner, name):
            if one.stmt.kind in ("functiondef", "classdef"):
                return True
            value = one.value if one.value is not None else one.stmt.value
            if value is not None and self.of(value, one.function):
                return True
        return False

    def _call(self, call: ir.Call, function: str) -> bool:
        given = [arg.value for arg in call.args]
        origin = self.program.origin(call.func, function)
        if origin is not None:
            pure = origin.startswith(_PURE) and origin not in _NOT_PURE
            return pure and all(self.of(one, function) for one in given)
        if isinstance(call.func, ir.Attr):
            named = _last(call.func)
            if named in ("parse_args", "parse_known_args"):
                return True
            if not any(f.name == named for f in self.program.functions.values()):
                # A method of something: of a text, list or dict of the package, or of data.
                return self.of(call.func.value, function) and all(
                    self.of(one, function) for one in given
                )
        return True  # a function of the package


_OF_LAYERS = frozenset(
    """in_features out_features in_channels out_channels embedding_dim num_embeddings hidden_size
    input_size""".split()
)


def _last(expr: ir.Expr) -> str:
    if isinstance(expr, ir.Attr):
        return expr.attr
    return expr.id if isinstance(expr, ir.Name) else ""


def _statements(program: Program) -> Iterator[tuple[str, ir.Stmt]]:
    for name, function in program.functions.items():
        for stmt in ir.statements(function.body):
            yield name, stmt
    for cls in program.classes.values():
        for stmt in ir.statements(cls.body):
            yield cls.parent, stmt


def _expressions(program: Program) -> Iterator[tuple[ir.Expr, str]]:
    for name, stmt in _statements(program):
        for expr in stmt.exprs:
            yield expr, name


def layer_calls(program: Program) -> Iterator[tuple[ir.Call, str, str]]:
    """(call, function, layer) of each call that makes a layer, by the imports of its file."""
    table = layer_table()
    for expr, function in _expressions(program):
        for call in ir.walk(expr):
            if isinstance(call, ir.Call):
                origin = program.origin(call.func, function)
                layer = None if origin is None else table.at(origin)
                if layer is not None and not layer.weight:
                    yield call, function, layer.name


def widths(call: ir.Call, layer: str) -> list[ir.Expr]:
    """How the widths of a call are written, as far as they are given plainly."""
    table = layer_table().layers[layer]
    found = []
    for width in table.widths:
        parameter = table.sizes.get(width)
        if parameter is not None:
            position = table.positional.index(parameter)
            value = call.argument(position, parameter)
            if value is not None and not (
                width in table.same and value == ir.Const(None)
            ):
                found.append(value)
    found += [arg.value for arg in call.args if arg.star]
    return found


def is_resolved(site: LayerSite) -> bool:
    """Whether on some way each width is known, or proved to be a multiple of `UNIT`."""
    table = layer_table().layers[site.layer]
    return any(
        all(
            (size := one.sizes.get(width)) is not None
            and size.is_aligned(UNIT) is not None
            for width in table.widths
        )
        for one in site.instances
    )


def measure(folder: Path) -> tuple[int, int, int, float, list[str]]:
    """(sites, decided, resolved of those, seconds, the unresolved ones in words)."""
    program = read(folder)
    decided = Decided(program)
    begun = time.perf_counter()
    known: dict[tuple[str, int, int], LayerSite] = {}
    layers = Layers(program)
    for file in program.modules:
        for site in layers.of(file):
            known[file, int(site.call.line), site.call.column] = site
    seconds = time.perf_counter() - begun
    count = ours = resolved = 0
    open_: list[str] = []
    for call, function, layer in layer_calls(program):
        count += 1
        if not all(decided.of(one, function) for one in widths(call, layer)):
            continue
        ours += 1
        file = ir.file_of(function)
        site = known.get((file, int(call.line), call.column))
        if site is not None and is_resolved(site):
            resolved += 1
        else:
            where = f"{Path(file).relative_to(folder.resolve())}:{int(call.line)}"
            why = "not reached" if site is None else _why(site)
            open_.append(f"{where} {layer}: {why}")
    return count, ours, resolved, seconds, open_


def _why(site: LayerSite) -> str:
    table = layer_table().layers[site.layer]
    reasons = {
        f"{width}: {size.reason or 'unknown'}"
        for one in site.instances
        for width in table.widths
        if (size := one.sizes.get(width)) is not None and size.is_aligned(UNIT) is None
    }
    return ", ".join(sorted(reasons))


def main() -> None:
    """Print a row for each package, and with ``--open`` what is not resolved."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--open", action="store_true", help="list what is not resolved")
    given = parser.parse_args()
    print(
        f"{'package':44} {'sites':>6} {'decided':>8} {'resolved':>9} {'share':>7} {'s':>6}"
    )
    shares = []
    reasons: Counter[str] = Counter()
    for folder in given.folders:
        count, ours, resolved, seconds, open_ = measure(folder)
        share = resolved / ours if ours else 1.0
        if ours:
            shares.append(share)
        name = folder.name.replace("+", "/")
        print(f"{name:44} {count:6} {ours:8} {resolved:9} {share:7.1%} {seconds:6.1f}")
        for line in open_:
            reasons[line.partition(": ")[2]] += 1
            if given.open:
                print("    ", line)
    if shares:
        print(
            f"{'average of packages':44} {'':6} {'':8} {'':9} {sum(shares) / len(shares):7.1%}"
        )
    for why, times in reasons.most_common(25):
        print(f"  {times:5}  {why}")


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
