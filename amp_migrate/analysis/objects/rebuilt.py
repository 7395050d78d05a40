"""Whether the layers of an ``nn.Sequential`` may change after it is made, or be called by other code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from amp_migrate.analysis.objects.modules import Construction, Modules
from amp_migrate.analysis.objects.points_to import IN_PLACE
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, unpacked
from amp_migrate.program.link import Program

_HOOK = re.compile(
    r"register_(module_)?(full_)?(forward|backward)_(pre_)?hook"
    r"|_(global_)?(forward|backward)_(pre_)?hooks"
)
_ADDS = frozenset("append extend insert pop __setitem__ __delitem__".split())
_SETS_CHILDREN = frozenset("add_module register_module set_submodule".split())
_SETS = frozenset("builtins.setattr builtins.delattr".split())
_LISTS = frozenset(
    """builtins.list builtins.dict collections.OrderedDict collections.deque
    torch.nn.ModuleList torch.nn.ModuleDict""".split()
)
_TABLE = "_modules"
_RUNS = frozenset((_TABLE, "forward", "__call__"))


@dataclass(frozen=True, slots=True)
class _Change:
    """Something is put into, or taken from, a container, which may be a module."""

    container: ir.Expr
    values: tuple[ir.Expr, ...]
    only_modules: bool = False
    """No list or dict is changed in this way."""
    wraps: bool = False
    """An attribute is replaced by what is made of it: ``model.features = DataParallel(model.features)``."""


def has_module_hooks(modules: Modules) -> bool:
    """Whether modules have hooks, which layers that are called one by one would pass by."""
    program = modules.program
    running = list(filter(modules.can_run, program.functions))
    words = (
        word
        for file in {ir.file_of(function) for function in running}
        for word in program.modules[file].identifiers | program.modules[file].strings
    )
    imported = (
        target.rpartition(".")[2]
        for function in running
        for _, target in program.functions[function].imports
    )
    return any(map(_HOOK.fullmatch, chain(words, imported))) or any(
        program.origin(call.func, function) == "wandb.watch"
        for function, _, call in program.all_calls()
        if modules.can_run(function)
    )


def may_be_rebuilt(modules: Modules, named: ir.Expr, made: Construction) -> bool:
    """Whether some statement may change the layers of ``made``, which ``named`` stands for."""
    word = (ir.key_of(named) or "").rsplit(".", 1)[-1]
    # What it is filled by is no change.
    own = {id(one) for _, call in modules.adds_of(made) for one in ir.walk(call.func)}
    own |= modules.filling
    return any(
        id(change.container) not in own
        and _may_be(modules, change, function, word, made)
        for function, scope in modules.program.functions.items()
        if modules.can_run(function)
        for stmt in ir.statements(scope.body)
        for change in _changes(modules, stmt, function)
    )


def rebuilders(program: Program) -> frozenset[str]:
    """Functions that may give a module other layers while another one runs: no constructors."""
    modules = program.noted(Modules)
    return frozenset(
        function
        for function, stmt in program.all_statements()
        if program.functions[function].name != "__init__" and not ir.is_top(function)
        for change in _changes(modules, stmt, function)
        if change.only_modules
        or (
            any(_is_module(modules, one, function) for one in change.values)
            and not _is_list(modules, change.container, function)
        )
    )


def _changes(modules: Modules, stmt: ir.Stmt, function: str) -> Iterator[_Change]:
    targets = unpacked(stmt) if stmt.kind != "delete" else _deleted(stmt)
    for target, value, _ in targets:
        given = value or stmt.value
        values: tuple[ir.Expr, ...] = () if given is None else (given,)
        if stmt.kind == "augassign" and not isinstance(target, ir.Item):
            yield _Change(target, values)
        if isinstance(target, ir.Item):
            yield _change(target.value, (target.key, *values))
        elif isinstance(target, ir.Attr) and (
            target.attr in _RUNS
            or any(_is_module(modules, one, function) for one in values)
        ):
            wraps = target.attr not in _RUNS and any(
                inner == target for one in values for inner in ir.walk(one)
            )
            yield _Change(target.value, values, target.attr == _TABLE, wraps)
    for call in calls_of(stmt):
        values = tuple(arg.value for arg in call.args)
        func = call.func
        if modules.program.origin(func, function) in _SETS and values:
            yield _Change(
                values[0], values[1:], _sets_unknown(modules, values, function)
            )
        elif not isinstance(func, ir.Attr):
            continue
        elif func.attr in _SETS_CHILDREN or func.attr in ("__setattr__", "__delattr__"):
            yield _Change(func.value, values, True)
        elif func.attr in _ADDS:
            yield _change(func.value, values)
        elif isinstance(func.value, ir.Attr) and func.value.attr == _TABLE:
            yield _Change(func.value.value, values, True)


def _deleted(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr, None, None]]:
    for target in stmt.targets:
        yield target, None, None


def _change(container: ir.Expr, values: tuple[ir.Expr, ...]) -> _Change:
    if isinstance(container, ir.Attr) and container.attr == _TABLE:
        return _Change(container.value, values, True)
    return _Change(container, values)


def _sets_unknown(modules: Modules, values: tuple[ir.Expr, ...], function: str) -> bool:
    """Whether ``setattr`` sets what may be a module: neither its name nor its value tells."""
    if len(values) != 3 or _is_module(modules, values[2], function):
        return True
    return not any(isinstance(value, ir.Const) for value in values[1:])


def _may_be(
    modules: Modules, change: _Change, function: str, word: str, made: Construction
) -> bool:
    if (modules.program.origin(change.container, function) or "").startswith(
        "torch.nn"
    ):
        # `nn.Sequential.forward = ...`
        return True
    if _is_list(modules, change.container, function):
        return False
    if change.wraps and (
        len(made.call.args) > 1 or any(a.star for a in made.call.args)
    ):
        # Layers in a row have no names to be found by.
        return False
    if change.only_modules and ir.Const(word) in change.values:
        # A child of that name is replaced.
        return True
    found = modules.of(change.container, function)
    if found is not None and all(_makes_module(modules, one) for one in found):
        return any(one.call is made.call for one in found)
    key = ir.key_of(change.container)
    if key is not None and key.rsplit(".", 1)[-1] == word:
        return True
    if modules.program.instance_classes(change.container, function):
        # An instance of a class of the program, which a plain nn.Sequential is not.
        return False
    return change.only_modules or any(
        _is_module(modules, value, function) for value in change.values
    )


def _is_list(modules: Modules, expr: ir.Expr, function: str) -> bool:
    """Whether a variable or an attribute is only ever made as a list, or a dict, or a number or tensor."""
    if not isinstance(expr, (ir.Name, ir.Attr)):
        return False
    found = [
        one
        for one in modules.points_to.of(expr, function)
        if one.kind != "lost" or one.name != IN_PLACE
    ]
    return bool(found) and all(
        not one.fields
        and (
            isinstance(one.expr, (ir.Display, ir.Comprehension))
            or (
                isinstance(one.expr, ir.Operation)
                and one.expr.op in dtype_table.ARITHMETIC
            )
            or (
                isinstance(one.expr, ir.Call)
                and modules.program.origin(one.expr.func, one.function) in _LISTS
            )
        )
        for one in found
    )


def _makes_module(modules: Modules, made: Construction) -> bool:
    """Whether a call makes a module, as far as can be seen, and does not just find one."""
    program = modules.program
    origin = program.origin(made.call.func, made.function)
    return origin is None or origin.startswith("torch.nn.")


def _is_module(modules: Modules, value: ir.Expr, function: str) -> bool:
    """Whether a value is known for a module."""
    program = modules.program
    for ref in program.resolve(value, function):
        if ref.kind == "made" and ref.name.startswith("torch.nn."):
            return True
        if ref.kind == "instance" and any(
            base.startswith("torch.nn.") for base in program.external_bases(ref.name)
        ):
            return True
    return False
