"""Which calls of functions out of sight read or edit gradients; and what a backward may begin with."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.analysis.tables.destinations import DEVICE, kind_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of, unpacked
from amp_migrate.program.link import Program

_GRADIENTS = re.compile(r"(?i)grad(?!e|at|u|io|cam)")
"""The word in a name, but not ``upgrade``, ``degradation``, ``gradual``."""
_BOUNDS = re.compile(r"(?i)clip|clamp|norm")
_OF_DATA = re.compile(r"(?i)normali[sz]e")
"""Mostly of observations and images."""
_HARMLESS = ("torch.", "torchvision.", "numpy.", "builtins.", "tqdm.")
_FUNCTION = re.compile(r"torch\.(nn\.functional\.)?[a-z]\w*")
_BOOKKEEPING = vocabulary.TENSOR_BOOKKEEPING | vocabulary.MODULE_BOOKKEEPING
_SENDS = frozenset("put put_nowait send".split())
"""Methods of queues and pipes, which pickle what they are given: a parameter goes without its gradient."""
_PARAMETERS = ("parameters", "named_parameters", "param_groups")
_MEASURES = frozenset("shape dtype device ndim is_sparse is_cuda is_leaf".split())
_MEASURING_METHODS = frozenset(
    "size dim numel nelement element_size stride data_ptr is_contiguous".split()
)
_PARTS = frozenset("storage untyped_storage _indices _values".split())
_ASKS_OBJECT = ("builtins.id", "builtins.type", "builtins.isinstance")
_MOST_NAMES = 3
_OF_NUMBERS = frozenset(f"torch.{name}" for name in "FloatTensor Tensor tensor".split())
_COPIES = frozenset("clone cuda detach float to".split())
_SMALLEST, _LARGEST = 1e-4, 1e4
"""Such a number is one of half precision, too, to its last digits: the loss may be half."""


def step_by_hand(
    scope: ir.Function, stmt: ir.Stmt, holders: Collection[ir.Expr]
) -> int:
    """The line that changes a parameter by the gradient that a statement reads, or by what it keeps of it:
    ``p.data.add_(p.grad, alpha=-lr)``; 0: none."""
    kept = {target for target in stmt.targets if isinstance(target, ir.Name)}
    for other in ir.statements(scope.body) if kept else (stmt,):
        if other is not stmt and not any(
            inner in kept for expr in other.exprs for inner in ir.walk(expr)
        ):
            continue
        written = [] if other.kind == "for" else list(other.targets)
        written += (
            call.func.value
            for call in calls_of(other)
            if isinstance(call.func, ir.Attr)
            and call.func.attr.endswith("_")
            and not call.func.attr.endswith("__")
        )
        for one in written:
            if isinstance(one, ir.Attr) and one.attr == "data":
                one = one.value
            if one in holders:
                return other.line
    return 0


def edited_by(stmt: ir.Stmt) -> list[ir.Expr]:
    """What a statement assigns to, and what it changes in place by a method: ``p.grad.add_(q)``."""
    return [
        *stmt.targets,
        *(
            ir.receiver_of(call)
            for call in calls_of(stmt)
            if ir.method_of(call).endswith("_")
        ),
    ]


def taken_from_another(stmt: ir.Stmt, around: Iterable[ir.Stmt]) -> bool:
    """Whether a statement, in some loops, makes gradients of those of another object:
    ``for p, q in zip(self.net.parameters(), self.other.net.parameters()): p.grad.add_(q.grad)``.
    """
    whose = {
        target: _holder(each)
        for loop in around
        if loop.kind == "for"
        for targets, each in _pairs(loop)
        for target in targets
    }
    made = edited_by(stmt)
    own = {id(inner) for one in made for inner in ir.walk(one)}
    edited = [whose.get(p) for one in made for p in _with_gradients(one)]
    taken = [
        whose.get(q)
        for expr in stmt.exprs
        for inner in ir.walk(expr)
        if id(inner) not in own
        for q in _with_gradients(inner)
    ]
    return any(
        isinstance(one, ir.Attr)
        and isinstance(other, ir.Attr)
        and one.attr == other.attr
        and one != other
        for one in edited
        for other in taken
    )


def _with_gradients(expr: ir.Expr) -> list[ir.Expr]:
    """``p`` of ``p.grad``, ``p.grad.data``."""
    if isinstance(expr, ir.Attr) and expr.attr == "data":
        expr = expr.value
    is_gradient = isinstance(expr, ir.Attr) and expr.attr == "grad"
    return [expr.value] if isinstance(expr, ir.Attr) and is_gradient else []


def _pairs(loop: ir.Stmt) -> Iterator[tuple[tuple[ir.Expr, ...], ir.Expr]]:
    """The variables of a loop, with what each of them goes through."""
    match loop:
        case ir.Stmt(
            targets=(ir.Display(items=names),),
            value=ir.Call(func=ir.Name(id="zip"), args=args),
        ):
            for name, arg in zip(names, args, strict=False):
                one = name.items if isinstance(name, ir.Display) else (name,)
                yield one, arg.value
        case ir.Stmt(targets=(one,), value=each) if each is not None:
            yield one.items if isinstance(one, ir.Display) else (one,), each


def _holder(each: ir.Expr) -> ir.Expr | None:
    """``self.net`` of ``self.net.parameters()``."""
    match each:
        case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _PARAMETERS:
            return value
    return None


def averages(stmt: ir.Stmt) -> bool:
    """Whether a statement adds to a multiple of what something was before:
    ``kept[n] = 0.9 * kept[n] + p.grad``, ``kept.mul_(0.9).add_(p.grad)``."""
    for part in parts_of(stmt):
        match part:
            case ir.Operation(op="*", operands=operands) if any(
                one in stmt.targets for one in operands
            ):
                return True
            case ir.Call(func=ir.Attr(value=held, attr="add_" | "lerp_" as attr)):
                if attr == "lerp_" or "mul_" in _methods_of(held):
                    return True
    return False


def _methods_of(expr: ir.Expr) -> list[str]:
    """The names of the methods of a chain of calls."""
    found = []
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        found.append(expr.func.attr)
        expr = expr.func.value
    return found


def is_harmless(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call is known to leave gradients alone: of a library, or for bookkeeping."""
    if called(call) in _BOOKKEEPING or _is_of_tensor(program, call, function):
        return True
    if called(call) in _SENDS and not program.resolve(call.func, function):
        return True
    origins = _origins(program, call, function)
    return bool(origins) and all(
        one.startswith(_HARMLESS) or one.split(".")[0] in sys.stdlib_module_names
        for one in origins
    )


def _is_of_tensor(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call is a method of what a function of torch computes: ``torch.pow(x, 2).expand(m, n)``."""
    value: ir.Expr = call.func
    while isinstance(value, ir.Attr) and isinstance(value.value, ir.Call):
        value = value.value.func
        if _FUNCTION.fullmatch(program.origin(value, function) or ""):
            return True
    return False


def _origins(program: Program, call: ir.Call, function: str) -> set[str]:
    """What of a library a call may run, a layer of torch's included."""
    origin = program.origin(call.func, function)
    if origin is not None:
        return {origin}
    refs = program.resolve(call.func, function)
    return {
        (
            ref.name
            if ref.kind == "external"
            or (ref.kind == "made" and ref.name.startswith("torch.nn."))
            else ""
        )
        for ref in refs
    }


def is_helper(program: Program, call: ir.Call, function: str) -> bool:
    """Whether a call is torch's own clip, or of a function out of sight whose name says that it reads
    or edits gradients. A clip of rewards, arrays or ranges is not given parameters."""
    origins = _origins(program, call, function)
    if any(vocabulary.GRADIENT_CLIPPERS.fullmatch(one) for one in origins):
        return True
    if is_harmless(program, call, function) or program.callees(call, function):
        return False
    name = called(call)
    given = [arg.value for arg in call.args if not isinstance(arg.value, ir.Const)]
    if _GRADIENTS.search(name):
        return bool(given or _BOUNDS.search(name))
    parameters = program.noted(_Parameters)
    most = 0 if _OF_DATA.search(name) else _MOST_NAMES
    return bool(_BOUNDS.search(name)) and any(
        parameters.lead_from(value, function, most) for value in given
    )


def called(call: ir.Call) -> str:
    """The last word of what is called."""
    if isinstance(call.func, ir.Attr):
        return call.func.attr
    return ir.key_of(call.func) or ""


def is_measured(
    program: Program,
    gradient: ir.Expr,
    stmt: ir.Stmt,
    function: str,
    asked: frozenset[tuple[str, str]] = frozenset(),
) -> bool:
    """Whether a statement asks of a gradient only what has nothing to do with its values: its shape, its
    place in memory. ``asked``: (function, parameter) of those that are looked into already.
    """
    return all(
        _is_measured(program, way, function, asked)
        for expr in stmt.exprs
        for way in ir.ways_to(expr, gradient)
    )


def _is_measured(
    program: Program,
    way: tuple[ir.Expr, ...],
    function: str,
    asked: frozenset[tuple[str, str]],
) -> bool:
    match way:
        case (*_, ir.Call(func=func), ir.Attr(attr=attr) as method, _) if (
            func is method and attr in _MEASURING_METHODS | _PARTS
        ):
            return attr in _MEASURING_METHODS or _is_measured(
                program, way[:-2], function, asked
            )
        case (*_, ir.Attr(attr=attr), _):
            return attr in _MEASURES
        case (*_, ir.Call() as call, value) if value is not call.func:
            origin = program.origin(call.func, function) or ""
            if origin in _ASKS_OBJECT:
                return True
            sites = list(program.call_sites_of(call, function))
            given = {
                (site.callee, param.name)
                for site in sites
                for param in program.functions[site.callee].params
                if program.argument_at(site, param.name) is value
            }
            return {callee for callee, _ in given} == {s.callee for s in sites} and (
                bool(sites)
                and all(
                    is_measured(program, ir.Name(name), one, where, asked | given)
                    for callee, name in given - asked
                    for where, one in program.mentioning(name)
                    if program.owner(name, where) == callee
                )
            )
    return False


_Place = tuple[ir.Expr, str]
"""An expression, and its function."""


class _Parameters:
    """What leads to parameters; noted once for each program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.objects = program.noted(PointsTo)
        self._barren: dict[_Place, int] = {}
        """Expressions that lead to none, and how many variables were followed to know that."""
        self._near: dict[_Place, int] = {}
        """Expressions that lead to some, and how many variables have to be followed."""
        self._made: dict[_Place, list[_Place] | None] = {}

    def lead_from(self, expr: ir.Expr, function: str, most: int) -> bool:
        """Whether an expression is a module, or made of parameters, also by way of variables: so many
        beside the first."""
        reached: list[tuple[_Place, _Place | None]] = [((expr, function), None)]
        seen: dict[_Place, int] = {}
        came: dict[_Place, _Place | None] = {}
        for left in range(most + 1, -1, -1):
            pending, reached = reached, []
            while pending:
                at, by = pending.pop()
                if at in seen or self._barren.get(at, -1) >= left:
                    continue
                seen[at], came[at] = left, by
                made: list[_Place] | None = []
                if left and isinstance(at[0], (ir.Name, ir.Attr, ir.Call)):
                    made = self._made_by(at)
                needed = 1 if made is None else self._near.get(at, left + 1)
                needed = 0 if self._is_one(at[0]) else needed
                if made is None or needed <= left:
                    way: _Place | None = at
                    while way is not None:
                        self._near[way] = seen[way] - left + needed
                        way = came[way]
                    return True
                reached += [(one, at) for one in made]
                pending += [((part, at[1]), at) for part in self._parts(*at)]
        self._barren |= seen
        return False

    def _made_by(self, at: _Place) -> list[_Place] | None:
        """What makes the objects that an expression may stand for; None where one may be a module."""
        if at not in self._made:
            found = self.objects.of(*at, enough=self._is_module)
            is_module = bool(found) and self._is_module(found[-1])
            made = [(o.expr, o.function) for o in found if o.expr != at[0]]
            self._made[at] = None if is_module else made
        return self._made[at]

    def _is_one(self, expr: ir.Expr) -> bool:
        named = expr.func if isinstance(expr, ir.Call) else expr
        return isinstance(named, ir.Attr) and named.attr in _PARAMETERS

    def _parts(self, expr: ir.Expr, function: str) -> tuple[ir.Expr, ...]:
        """Those that an expression gives on."""
        if isinstance(expr, (ir.Attr, ir.Operation)):
            return ()
        if isinstance(expr, ir.Item):
            # By which key it is taken is another matter.
            return (expr.value,)
        if isinstance(expr, ir.Call):
            origin = self.program.origin(expr.func, function) or ""
            if not origin.startswith(("builtins.", "itertools.")):
                return ()
        return ir.children(expr)

    def _is_module(self, one: Object) -> bool:
        program = self.program
        if one.kind in ("class", "external") and "attribute" not in dict(one.fields):
            # What makes modules is none itself, nor has any elements.
            return False
        bases = {one.name}
        if one.name in program.classes:
            bases = set(program.external_bases(one.name))
        elif isinstance(one.expr, ir.Call):
            bases = {program.origin(one.expr.func, one.function) or ""}
        return any(base.startswith("torch.nn.") for base in bases)


def is_of_numbers(
    flow: Flow, at: Made, asked: frozenset[ir.Expr] = frozenset()
) -> bool:
    """Whether a variable holds a tensor of numbers that are written out, and nothing changes it in place."""
    program = flow.program
    match at.expr:
        case ir.Name(id=name):
            if at.expr in asked:
                return True
            made, own = flow.made(at), program.owner(name, at.function)
            return (
                bool(made)
                and own is not None
                and not program.is_param(own, name)
                and {d.stmt.kind for d in program.bindings(own, name)} == {"assign"}
                and not any(
                    _may_change_it(stmt, at.expr)
                    for function, stmt in program.mentioning(name)
                    if program.owner(name, function) == own
                )
                and all(
                    one.index is None and is_of_numbers(flow, one, asked | {at.expr})
                    for one in made or ()
                )
            )
        case ir.Operation(op="-x", operands=(one,)):
            return bool(asked) and is_of_numbers(flow, at.inner(one), asked)
        case ir.Operation(op="*", operands=(one, other)):
            return (
                bool(asked)
                and is_of_numbers(flow, at.inner(one), asked)
                and _is_number(other)
            )
        case ir.Call(func=func, args=args) if (
            program.origin(func, at.function) in _OF_NUMBERS
        ):
            return bool(asked) and _are_numbers(flow, at, args)
        case ir.Call(func=ir.Attr(value=one, attr=attr), args=args) if attr in _COPIES:
            return (
                bool(asked)
                and all(kind_of(program, a.value, at.function) == DEVICE for a in args)
                and is_of_numbers(flow, at.inner(one), asked)
            )
    return False


def _are_numbers(flow: Flow, at: Made, args: tuple[ir.Arg, ...]) -> bool:
    """Whether a tensor is made of numbers that are written out: a lone one may be a size, else."""
    assert isinstance(at.expr, ir.Call)
    name = ir.method_of(at.expr)
    match args:
        case (
            ir.Arg(name=None, star="", value=ir.Display(items=items, keys=())),
            *more,
        ):
            pass
        case (ir.Arg(name=None, star="", value=one), *more) if name == "tensor":
            items = (one,)
        case _:
            return False
    full = [
        flow.program.origin(arg.value, at.function)
        for arg in more
        if arg.name == "dtype"
    ]
    return (
        all(map(_is_number, items))
        and all(arg.name in ("device", "dtype") for arg in more)
        and set(full) <= {"torch.float", "torch.float32"}
    )


def _is_number(expr: ir.Expr) -> bool:
    match expr:
        case ir.Operation(op="-x", operands=(one,)):
            return _is_number(one)
        case ir.Const(value=int() | float() as value):
            return not value or _SMALLEST <= abs(value) <= _LARGEST
    return False


def _may_change_it(stmt: ir.Stmt, name: ir.Name) -> bool:
    """Whether a statement may do more with a variable than to compute, or to begin a backward, with what it
    holds, or to give it another tensor: it may be changed by another name, then."""
    if stmt.kind == "augassign" and name in stmt.targets:
        return True
    parts = parts_of(stmt)
    known = sum(target == name for target, _, _ in unpacked(stmt))
    for part in parts:
        match part:
            case ir.Call(func=ir.Attr(attr="backward"), args=args):
                known += sum(arg.value == name for arg in args)
            case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _COPIES:
                known += value == name
            case ir.Operation(op="*" | "-x", operands=operands):
                known += operands.count(name)
    return known < parts.count(name)
