"""What in a program is AMP: its regions, its scalers, and which object an expression names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from amp_migrate.analysis.objects.carriers import Carriers
from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.analysis.paths.walk import suspends
from amp_migrate.lint.context import Context
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call, outcome, parts_of
from amp_migrate.program.link import CallSite, Program

AUTOCAST = re.compile(
    r"torch\.((?P<device>cuda|cpu|xpu)\.)?amp\.(autocast_mode\.)?autocast|torch\.autocast"
)
GRAD_SCALER = re.compile(
    r"torch\.((?P<device>cuda|cpu)\.)?amp\.(grad_scaler\.)?GradScaler|torch\.GradScaler"
    r"|torch\.distributed\.fsdp\.sharded_grad_scaler\.ShardedGradScaler"
)
_SCALERS = ("GradScaler", "ShardedGradScaler")
_DEFAULTS = {"cuda": "float16", "cpu": "bfloat16", "xpu": "float16", "mps": "float16"}
"""The dtype of a region that does not tell (torch.get_autocast_dtype)."""
DTYPES = {
    "torch.float16": "float16",
    "torch.half": "float16",
    "torch.bfloat16": "bfloat16",
    "torch.float32": "float32",
    "torch.float": "float32",
}
_SETS_DEFAULT = (
    "set_autocast_gpu_dtype",
    "set_autocast_dtype",
    "set_autocast_cpu_dtype",
)

ENTERS = ("enter_context", "__enter__")

_Answer = TypeVar("_Answer")

Key = tuple[str, ...]
"""One object: a variable of a scope, an attribute of a class, or an element of one of these. Behind the
scope, each on a line of its own, stand the calls that an object is handed out by."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of autocast, as far as it is known; ``""`` and None stand for what is not."""

    device: str
    dtype: str
    enabled: bool | None
    caches: bool = True
    """It keeps the half copies of weights until it ends."""


class Amp:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.points_to = program.noted(PointsTo)
        self._always: dict[tuple[ir.Expr, str], bool] = {}
        self._objects: dict[
            tuple[ir.Expr, str, ir.Path | None], frozenset[Key | None]
        ] = {}

    # -- what is called -------------------------------------------------------------------------

    def names(self, func: ir.Expr, function: str) -> frozenset[str]:
        """The dotted names from imports that an expression stands for; several where imports are tried."""
        origin = self.program.origin(func, function)
        if origin is not None:
            return frozenset((origin,))
        if not isinstance(func, ir.Name):
            return frozenset()
        current: str | None = function
        while current is not None:
            scope = self.program.functions[current]
            found = [target for local, target in scope.imports if local == func.id]
            if found:
                bound = self.program.bindings(current, func.id)
                imported = all(d.stmt.kind in ("import", "importfrom") for d in bound)
                return frozenset(found) if imported else frozenset()
            current = scope.parent
        return frozenset()

    def matched(
        self, pattern: re.Pattern[str], call: ir.Call, function: str
    ) -> re.Match[str] | None:
        """How a pattern fits what is called; where several imports are tried, it has to fit all."""
        found = [pattern.fullmatch(name) for name in self.names(call.func, function)]
        return found[0] if found and all(found) else None

    # -- regions --------------------------------------------------------------------------------

    @cached_property
    def _default_is_set(self) -> bool:
        return any(
            not facts.identifiers.isdisjoint(_SETS_DEFAULT)
            for facts in self.program.modules.values()
        )

    def autocast(self, call: ir.Call, function: str) -> Region | None:
        """The region that a call makes."""
        found = self.matched(AUTOCAST, call, function)
        if found is None:
            return None
        own = found["device"]
        if any(arg.star for arg in call.args):
            return Region(own or "", "", None)
        if own:
            device: str = own
            enabled = call.argument(0, "enabled")
            dtype = call.argument(1, "dtype")
        else:
            given = call.argument(0, "device_type")
            device = (given and self.text(given, function)) or ""
            dtype = call.argument(1, "dtype")
            enabled = call.argument(2, "enabled")
        kind = device.partition(":")[0]
        default = "" if self._default_is_set else _DEFAULTS.get(kind, "")
        told = dtype != ir.Const(None)
        return Region(
            kind,
            self.dtype(dtype, function) if dtype and told else default,
            self.truth(enabled, function) if enabled is not None else True,
            call.argument(99, "cache_enabled") != ir.Const(False),
        )

    @cached_property
    def speaks_of_regions(self) -> bool:
        """Whether anything in the program may be a region at all."""
        # In decorators, too, which no statement holds.
        modules = self.program.modules.values()
        return any("autocast" in facts.identifiers for facts in modules)

    @cached_property
    def _may_hold_regions(self) -> Carriers:
        """What may hold regions, or what makes them."""
        return Carriers(self.program, ("autocast",), (), self._makes_regions)

    def _makes_regions(self, expr: ir.Expr, function: str) -> bool:
        return any(map(AUTOCAST.fullmatch, self.names(expr, function)))

    def _regions(self, expr: ir.Expr, function: str) -> list[tuple[Object, Region]]:
        """The regions that entering an expression may open, each with what makes it."""
        return [
            (one, region)
            for one in self._made_regions(expr, function)
            if isinstance(one.expr, ir.Call)
            and (region := self.autocast(one.expr, one.function)) is not None
        ]

    def _made_regions(self, expr: ir.Expr, function: str) -> list[Object]:
        if not self.speaks_of_regions:
            return []
        may_be = self._may_hold_regions.may_be(expr, function)
        found = [
            one
            for one in (self.points_to.of(expr, function) if may_be else ())
            if isinstance(one.expr, ir.Call) and not one.fields
            if self.matched(AUTOCAST, one.expr, one.function) is not None
        ]
        if not found and isinstance(expr, ir.Call) and self._managers:
            for callee in self.program.callees(expr, function):
                for inner in self._managers.get(callee, ()):
                    found += self._made_regions(inner, callee)
        return found

    @cached_property
    def _managers(self) -> dict[str, list[ir.Expr]]:
        """What functions that make context managers enter around their ``yield``."""
        found = {
            name: [
                inner
                for stmt in self._around_yield(name)
                if stmt.kind == "with"
                for inner in stmt.exprs
            ]
            for name, facts in self.program.functions.items()
            if facts.is_generator
        }
        return {name: entered for name, entered in found.items() if entered}

    def may_open(self, expr: ir.Expr, function: str) -> bool:
        """Whether entering an expression may open a region that does not say itself that it is off."""
        said = expr.argument(99, "enabled") if isinstance(expr, ir.Call) else None
        return said != ir.Const(False) and any(
            one.expr.argument(99, "enabled") != ir.Const(False)
            for one in self._made_regions(expr, function)
            if isinstance(one.expr, ir.Call)
        )

    @cached_property
    def opening_files(self) -> frozenset[str]:
        """The files in which a region may be opened that does not say itself that it is off."""
        program = self.program
        entered = [
            (expr, function)
            for function, stmt in program.all_statements()
            if stmt.kind == "with"
            for expr in stmt.exprs
        ]
        entered += [
            (expr, one.parent or name)
            for name, one in program.functions.items()
            for expr in one.decorators
        ]
        entered += [
            (expr, function)
            for name in ENTERS
            for function, _, call in program.calls_named(name)
            for expr in (entered_by(call),)
            if expr is not None
        ]
        opening = {
            function for expr, function in entered if self.may_open(expr, function)
        }
        opening |= {one for one, _, _ in program.calls_named("set_autocast_enabled")}
        return frozenset(map(ir.file_of, opening))

    def _around_yield(self, function: str) -> Iterator[ir.Stmt]:
        """The statements around the ``yield`` of a function that makes a context manager."""
        facts = self.program.functions[function]
        around = facts.parent or function
        if facts.is_generator and any(
            self.program.origin(one, around) == "contextlib.contextmanager"
            for one in facts.decorators
        ):
            inside = next(filter(suspends, ir.statements(facts.body)))
            yield from (*self.program.control(function).around(inside.path), inside)

    def entered(self, expr: ir.Expr, function: str) -> Region | None:
        """The region that a context manager is, if it is one in any case but for a null context."""
        found = [region for _, region in self._regions(expr, function)]
        if not found:
            return None
        first = found[0]
        return Region(
            first.device if all(one.device == first.device for one in found) else "",
            first.dtype if all(one.dtype == first.dtype for one in found) else "",
            first.enabled if all(o.enabled == first.enabled for o in found) else None,
            all(one.caches for one in found),
        )

    def is_shared(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression names one instance of autocast, made before."""
        return isinstance(expr, (ir.Name, ir.Attr)) and any(
            not one.context and not self.program.is_property(one.function)
            for one, _ in self._regions(expr, function)
        )

    # -- constants ------------------------------------------------------------------------------

    def _only(
        self, expr: ir.Expr, function: str, read: Callable[[Object], _Answer | None]
    ) -> _Answer | None:
        """What all that an expression may stand for is read as; None where that is not one answer."""
        found = self.points_to.whole(expr, function, closed=True)
        answers = {None if one.fields else read(one) for one in found}
        return answers.pop() if len(answers) == 1 else None

    def dtype(self, expr: ir.Expr, function: str) -> str:
        """The name of a dtype where it is the only one that can be meant."""
        return self._only(expr, function, lambda one: DTYPES.get(one.name)) or ""

    def text(self, expr: ir.Expr, function: str) -> str | None:
        """A string where it is the only one that can be meant."""
        if isinstance(expr, ir.Const):
            return expr.value if isinstance(expr.value, str) else None
        if self.is_type_of_device(expr):
            return None

        def read(one: Object) -> str | None:
            value = one.expr.value if isinstance(one.expr, ir.Const) else None
            return value if isinstance(value, str) else None

        return self._only(expr, function, read)

    def is_type_of_device(self, expr: ir.Expr) -> bool:
        """``x.device.type``, which the program writes down nowhere."""
        match expr:
            case ir.Attr(value=ir.Name("device") | ir.Attr(attr="device"), attr="type"):
                return not self.program.attribute_targets.get("type")
        return False

    def truth(self, expr: ir.Expr, function: str) -> bool | None:
        """True or False where it is certain."""

        def read(one: Object) -> bool | None:
            return bool(one.expr.value) if isinstance(one.expr, ir.Const) else None

        return self._only(expr, function, read)

    def outcome(
        self, test: ir.Expr, function: str, context: tuple[CallSite, ...] = ()
    ) -> bool | None:
        """What a test comes to by way of some calls, where all that decides it is in sight."""
        return outcome(
            test,
            lambda one: self._constants(one, function, context),
            lambda one: bool(one.value) if isinstance(one, ir.Const) else None,
        )

    def _constants(
        self,
        expr: ir.Expr,
        function: str,
        context: tuple[CallSite, ...],
        stmt: ir.Stmt | None = None,
    ) -> list[object]:
        found = self.points_to.whole(expr, function, stmt, context)
        values = [
            one.expr.value
            for one in found
            if isinstance(one.expr, ir.Const) and not one.fields
        ]
        return values if len(values) == len(found) else []

    def named(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> list[ir.Expr]:
        """An expression; the attributes that ``getattr()`` may take, where their names are in sight."""
        match expr:
            case ir.Call(
                func=ir.Name("getattr"),
                args=(ir.Arg(value=held), ir.Arg(value=name), *_),
            ):
                names = [n for n in self._constants(name, function, (), stmt) if n]
                return [ir.Attr(held, str(one)) for one in names] or [expr]
        return [expr]

    def tests_on(self, one: Object) -> set[bool | None]:
        """Whether the tests around the statement that makes an object let it run, each."""
        if one.stmt is None:
            return set()
        path, found = one.stmt.path, set[bool | None]()
        for stmt in self.program.control(one.function).around(path):
            if stmt.kind == "if" and stmt.value is not None:
                outcome = self.outcome(stmt.value, one.function, one.context)
                taken = path[len(stmt.path)][0] == "body"
                found.add(None if outcome is None else outcome is taken)
        return found

    # -- dtypes of modules ----------------------------------------------------------------------

    def makes_half(self, call: ir.Call, function: str) -> bool:
        """``half()``, ``to(torch.float16)``; a layer, or a pretrained model, that is made so."""
        method = ir.method_of(call)
        if method == "half":
            return not call.args
        names = (None, "dtype") if method == "to" else ("dtype", "torch_dtype")
        made = method in ("to", "from_pretrained") or (
            self.program.origin(call.func, function) or ""
        ).startswith("torch.nn.")
        return made and any(
            arg.name in names and self.dtype(arg.value, function) == "float16"
            for arg in call.args
        )

    # -- scalers --------------------------------------------------------------------------------

    def makes_scaler(self, call: ir.Call, function: str) -> bool:
        """Whether a call makes a scaler, or one of a class derived from it."""
        if self.matched(GRAD_SCALER, call, function) is not None:
            return True
        return bool(self._scaler_classes) and any(
            ref.kind == "class" and ref.name in self._scaler_classes
            for ref in self.program.resolve(call.func, function)
        )

    @cached_property
    def _scaler_classes(self) -> frozenset[str]:
        """The program's own classes that derive from one of a scaler."""
        return frozenset(
            name
            for name in self.program.classes
            if any(map(GRAD_SCALER.fullmatch, self.program.external_bases(name)))
        )

    def scalers(self, expr: ir.Expr, function: str) -> list[Object]:
        """What makes the scalers that an expression may stand for."""
        if not self._may_hold_scalers.may_be(expr, function):
            return []
        return [
            one
            for one in self.points_to.of(expr, function)
            if isinstance(one.expr, ir.Call) and not one.fields
            if self.makes_scaler(one.expr, one.function)
        ]

    @cached_property
    def _may_hold_scalers(self) -> Carriers:
        """What may hold scalers, or what makes them."""
        classes = [
            name
            for name in self.program.classes
            if any(map(GRAD_SCALER.fullmatch, self.program.external_bases(name)))
        ]
        return Carriers(self.program, _SCALERS, classes, self._is_class_of_scalers)

    def _is_class_of_scalers(self, expr: ir.Expr, function: str) -> bool:
        return any(map(GRAD_SCALER.fullmatch, self.names(expr, function)))

    def is_always_scaler(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is a scaler, and never None."""
        key = expr, function
        if key not in self._always:
            made = self.scalers(*key)
            every = bool(made) and len(made) == len(self.points_to.of(*key))
            self._always[key] = every
        return self._always[key]

    def is_off(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is a scaler that is made switched off for good, or none."""
        found = self.points_to.whole(expr, function)
        return bool(found) and all(
            one.is_none or self._is_made_off(one.expr, one.function) for one in found
        )

    def _is_made_off(self, made: ir.Expr, function: str) -> bool:
        given = made.argument(99, "enabled") if isinstance(made, ir.Call) else None
        return given is not None and self.truth(given, function) is False

    # -- identity -------------------------------------------------------------------------------

    def key(
        self,
        expr: ir.Expr,
        function: str,
        bound: Mapping[tuple[str, str], Key | None] | None = None,
    ) -> Key | None:
        """Which object an expression names; ``bound`` tells what the parameters on the way were given."""
        program = self.program
        if isinstance(expr, ir.Name):
            given = (program.owner(expr.id, function) or "", expr.id)
            if bound is not None and given in bound:
                return bound[given]
        if not isinstance(expr, (ir.Name, ir.Attr, ir.Item)):
            return None
        found = self._objects_of(expr, function)
        if isinstance(expr, ir.Attr) and self.is_one_of_several(expr.value, function):
            if self._is_of_each(expr, function):
                found = frozenset()
        alone = next(iter(found)) if len(found) == 1 else None
        return alone or self._written(expr, function, bound)

    def _is_of_each(self, expr: ir.Attr, function: str) -> bool:
        """Whether each object of a class makes its own of what an attribute holds, or it may."""
        return any(
            self.program.functions[site.callee].name == "__init__"
            for one in self.points_to.of(expr, function)
            for site in one.context
        ) or any(
            one.kind != "value" or self.program.self_class(one.function) is not None
            for one in self.points_to.of(expr, function)
        )

    def keys(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> list[Key]:
        """The objects that an expression may name, those that have names of their own."""
        found = self._objects_of(expr, function, stmt)
        return [key for key in found if key is not None]

    def may_be(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> frozenset[Key]:
        """Which objects an expression may name, by whatever name they have."""
        found: set[Key] = set()
        for one in self.named(expr, function, stmt):
            key = self.key(one, function)
            several = self.keys(one, function, stmt)
            found.update(several or (() if key is None else (key,)))
        return frozenset(found)

    def is_one_of_several(self, expr: ir.Expr, function: str) -> bool:
        """Whether an object is of a class of which somebody makes several."""
        for class_name in self.program.instance_classes(expr, function):
            init = self.program.method(class_name, "__init__")
            sites = self.program.call_sites.get(init or "", [])
            if len(sites) > len({site.caller for site in sites}):
                return True
        return False

    def _objects_of(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> frozenset[Key | None]:
        key = expr, function, None if stmt is None else stmt.path
        if key not in self._objects:
            self._objects[key] = frozenset(
                self._named(one)
                for one in self.points_to.of(expr, function, stmt)
                if one.kind != "open" and not one.is_none
            )
        return self._objects[key]

    def _named(self, one: Object) -> Key | None:
        """An object by the name that it is first given; None where it may be one of several."""
        outside = max(
            (
                depth + 1
                for depth, site in enumerate(one.context)
                if self.program.functions[site.callee].name == "__init__"
            ),
            default=0,
        )
        # An object is the same in all methods of its class.
        calls = one.context[outside:]
        places = [
            (one.function, one.stmt, one.expr),
            *((site.caller, site.stmt, site.call) for site in calls),
        ]
        # What a loop hands on of its function's own parameters is the same in each turn.
        given = (
            one.kind == "lost"
            and isinstance(one.expr, ir.Name)
            and self.program.is_param(one.function, one.expr.id)
        )
        if one.fields or any(self._is_repeated(*place) for place in places[given:]):
            return None
        where = "".join(f"\n{site.call.line}:{site.call.column}" for site in calls)
        if one.bound and one.stmt and not calls and one.bound.path == one.stmt.path:
            # Of several names that one statement gives it, the first.
            first, *others = one.stmt.targets or (None,)
            if others and isinstance(first, (ir.Name, ir.Attr)):
                return self._written(first, one.function, None)
        if one.bound is not None and one.bound.kind == "attribute":
            owner = one.bound.owner
            family = min(self.program.family(owner), default=owner)
            return ("attribute", family + where, one.bound.name)
        if one.bound is not None:
            return ("variable", one.bound.owner + where, one.bound.name)
        if isinstance(one.expr, ir.Call):
            place = f"{one.expr.line}:{one.expr.column}"
            return ("made", one.function + where, place)
        if one.kind == "lost" and isinstance(one.expr, ir.Name):
            return self._written(one.expr, one.function, None)
        return None

    def _is_repeated(self, function: str, stmt: ir.Stmt | None, made: ir.Expr) -> bool:
        """Whether a loop or comprehension makes several objects in one place."""
        return stmt is not None and (
            any(
                outer.kind in ("for", "while")
                for outer in (
                    stmt,
                    *self.program.control(function).around(stmt.path),
                )
            )
            or any(
                isinstance(inner, ir.Comprehension)
                and any(part is made for part in ir.walk(inner))
                for inner in parts_of(stmt)
            )
        )

    def _written(
        self,
        expr: ir.Expr,
        function: str,
        bound: Mapping[tuple[str, str], Key | None] | None,
    ) -> Key | None:
        """An object by the variable, attribute or element that an expression says."""
        program = self.program
        base, last = None, ""
        match expr:
            case ir.Name(id=name):
                owner = program.owner(name, function)
                if owner is not None:
                    return ("variable", *program.home(owner, name))
            case ir.Attr(value=value, attr=last):
                classes = program.instance_classes(value, function)
                if self.is_one_of_several(value, function):
                    base = self.key(value, function, bound)
                own = program.self_class(function)
                if own and base == ("variable", function, own[0]):
                    base = None
                if classes and base is None:
                    family = min(program.family(min(classes)), default=min(classes))
                    return ("attribute", family, last)
                base = base or self.key(value, function, bound)
            case ir.Item(value=value, key=ir.Const(value=key)):
                base, last = self.key(value, function, bound), repr(key)
            case ir.Item(value=value, key=ir.Name(id=name)):
                base, last = self.key(value, function, bound), f"[{name}]"
        if base is None:
            return None
        kind, owner, *names = base
        if isinstance(expr, ir.Attr) and kind == "variable" and len(names) == 1:
            if owner != function and owner in program.functions:
                # What a parameter was given is named where that stands.
                return self.key(ir.Attr(ir.Name(names[0]), last), owner)
        return (*base, last)


def amp_of(context: Context) -> Amp:
    """The answers for the program of a context, made once."""
    return context.program.noted(Amp)


def entered_by(call: ir.Call) -> ir.Expr | None:
    """What a call enters: a stack's argument, or the receiver of ``__enter__()``."""
    match call:
        case ir.Call(func=ir.Attr(attr="enter_context"), args=(ir.Arg(value=entered),)):
            return entered
        case ir.Call(func=ir.Attr(value=entered, attr="__enter__")):
            return entered
    return None


def all_calls(program: Program, function: str) -> Iterator[tuple[ir.Stmt, ir.Call]]:
    """The calls of one function with their statements, decorators and defaults left out."""
    yield from each_call(program.functions[function].body)
