"""What in a program is AMP: its regions, its scalers, and which object an expression names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.makers import Makers
from amp_migrate.lint.context import Context
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

AUTOCAST = re.compile(
    r"torch\.((?P<device>cuda|cpu|xpu)\.)?amp\.(autocast_mode\.)?autocast|torch\.autocast"
)
GRAD_SCALER = re.compile(
    r"torch\.((?P<device>cuda|cpu)\.)?amp\.(grad_scaler\.)?GradScaler|torch\.GradScaler"
    r"|torch\.distributed\.fsdp\.sharded_grad_scaler\.ShardedGradScaler"
)
_DEFAULTS = {"cuda": "float16", "cpu": "bfloat16", "xpu": "float16", "mps": "float16"}
"""The dtype of a region that does not tell (torch.get_autocast_dtype)."""
_DTYPES = {
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

Key = tuple[str, ...]
"""One object: a variable of a scope, an attribute of a class, or an element of one of these."""


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
        self.makers = program.noted(Makers)

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
            device = self.text(given, function) or ""
            dtype = call.argument(1, "dtype")
            enabled = call.argument(2, "enabled")
        kind = device.partition(":")[0]
        default = "" if self._default_is_set else _DEFAULTS.get(kind, "")
        told = dtype is not None and dtype != ir.Const(None)
        return Region(
            kind,
            self.dtype(dtype, function) if told and dtype is not None else default,
            self.truth(enabled, function) if enabled is not None else True,
            call.argument(99, "cache_enabled") != ir.Const(False),
        )

    def regions(
        self, expr: ir.Expr, function: str, depth: int = 0
    ) -> Iterator[Region | None]:
        """What entering an expression may switch on; None for a context that is not one."""
        if isinstance(expr, ir.Call):
            made = self.autocast(expr, function)
            if made is None and depth < 3:
                returned = list(self.program.returns(expr, function))
                if returned:
                    for there, value in returned:
                        yield from self.regions(value, there, depth + 1)
                    return
            yield made
        elif isinstance(expr, ir.Operation) and expr.op == "if":
            for operand in expr.operands[1:]:
                yield from self.regions(operand, function, depth)
        elif depth < 3:
            for value, there in self.values(expr, function):
                yield from self.regions(value, there, depth + 1)

    def entered(self, expr: ir.Expr, function: str) -> Region | None:
        """The region that a context manager is, if it is one in any case but for a null context."""
        found = [one for one in self.regions(expr, function) if one is not None]
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
        values = self.values(expr, function)
        return bool(values) and any(
            isinstance(inner, ir.Call) and self.autocast(inner, there) is not None
            for value, there in values
            for inner in _branches(value)
        )

    # -- constants ------------------------------------------------------------------------------

    def values(self, expr: ir.Expr, function: str) -> list[tuple[ir.Expr, str]]:
        """All expressions that a variable or attribute is given, each with its function.

        Empty where one of them is not in sight (a parameter, an unpacked value).
        """
        program = self.program
        found = []
        if isinstance(expr, ir.Name):
            owner = program.owner(expr.id, function)
            if owner is None:
                return []
            if any(p.name == expr.id for p in program.functions[owner].params):
                return []
            found = program.definitions(owner, expr.id)
        elif isinstance(expr, ir.Attr):
            for class_name in program.instance_classes(expr.value, function):
                found += program.attribute_definitions(class_name, expr.attr)
            there = program.elsewhere(expr, function)
            if there is not None and there[0] != expr:
                return self.values(*there)
        if any(d.value is None or d.index is not None for d in found):
            return []
        return [(d.value, d.function) for d in found if d.value is not None]

    def dtype(self, expr: ir.Expr | None, function: str, depth: int = 0) -> str:
        """The name of a dtype where it is the only one that can be meant."""
        if expr is None or depth > 4:
            return ""
        origin = self.program.origin(expr, function)
        if origin is not None:
            return _DTYPES.get(origin, "")
        found = {
            self.dtype(value, there, depth + 1)
            for value, there in self.values(expr, function)
        }
        return found.pop() if len(found) == 1 else ""

    def text(self, expr: ir.Expr | None, function: str, depth: int = 0) -> str | None:
        """A string where it is the only one that can be meant."""
        if isinstance(expr, ir.Const):
            return expr.value if isinstance(expr.value, str) else None
        if expr is None or depth > 4:
            return None
        found = {
            self.text(value, there, depth + 1)
            for value, there in self.values(expr, function)
        }
        return found.pop() if len(found) == 1 else None

    def truth(self, expr: ir.Expr, function: str, depth: int = 0) -> bool | None:
        """True or False where it is certain."""
        if isinstance(expr, ir.Const):
            return bool(expr.value)
        if depth > 4:
            return None
        found = {
            self.truth(value, there, depth + 1)
            for value, there in self.values(expr, function)
        }
        return found.pop() if len(found) == 1 else None

    # -- scalers --------------------------------------------------------------------------------

    def makes_scaler(self, call: ir.Call, function: str) -> bool:
        """Whether a call makes a scaler, or one of a class derived from it."""
        if self.matched(GRAD_SCALER, call, function) is not None:
            return True
        return any(
            ref.kind == "class"
            and any(map(GRAD_SCALER.fullmatch, self.program.external_bases(ref.name)))
            for ref in self.program.resolve(call.func, function)
        )

    def is_off(self, call: ir.Call, function: str) -> bool:
        """Whether a scaler is made switched off for good."""
        given = call.argument(99, "enabled")
        return given is not None and self.truth(given, function) is False

    # -- identity -------------------------------------------------------------------------------

    def key(
        self,
        expr: ir.Expr,
        function: str,
        bound: Mapping[tuple[str, str], Key | None] | None = None,
        depth: int = 0,
    ) -> Key | None:
        """Which object an expression names; ``bound`` tells what the parameters on the way were given."""
        program = self.program
        if depth > 6:
            return None
        match expr:
            case ir.Name(id=name):
                owner = program.owner(name, function)
                if owner is None:
                    return None
                if bound is not None and (owner, name) in bound:
                    return bound[owner, name]
                given = program.definitions(owner, name)
                params = program.functions[owner].params
                if any(param.name == name for param in params):
                    return ("variable", owner, name)
                if len(given) == 1 and given[0].index is None:
                    value, there = given[0].value, given[0].function
                    if isinstance(value, (ir.Name, ir.Attr)):
                        found = self.key(value, there, bound, depth + 1)
                        if found is not None:
                            return found
                owner, name = program.home(owner, name)
                return ("variable", owner, name)
            case ir.Attr(value=value, attr=attr):
                there_ = program.elsewhere(expr, function)
                if there_ is not None:
                    return self.key(*there_, bound, depth + 1)
                classes = program.instance_classes(value, function)
                if classes:
                    family = min(program.family(min(classes)), default=min(classes))
                    return self._of_attribute(family, attr, bound, depth)
                base = self.key(value, function, bound, depth + 1)
                return None if base is None else (*base, attr)
            case ir.Item(value=value, key=ir.Const(value=key)):
                base = self.key(value, function, bound, depth + 1)
                return None if base is None else (*base, repr(key))
            case ir.Item(value=value, key=ir.Name(id=name)):
                base = self.key(value, function, bound, depth + 1)
                return None if base is None else (*base, f"[{name}]")
        return None

    def _of_attribute(
        self,
        class_name: str,
        attr: str,
        bound: Mapping[tuple[str, str], Key | None] | None,
        depth: int,
    ) -> Key | None:
        """``self.scaler = scaler`` in the only instance's ``__init__`` is the caller's scaler."""
        program = self.program
        plain = ("attribute", class_name, attr)
        given = [
            d
            for d in program.attribute_definitions(class_name, attr)
            if d.value != ir.Const(None)
        ]
        if len(given) != 1 or not isinstance(given[0].value, ir.Name):
            return plain
        value, there = given[0].value, given[0].function
        params = program.functions[there].params
        if not any(param.name == value.id for param in params):
            return plain
        callers = program.arguments(there, value.id)
        if len(callers) != 1:
            return plain
        expr, caller = callers[0][1], callers[0][0]
        if not isinstance(expr, (ir.Name, ir.Attr)):
            return plain
        return self.key(expr, caller, bound, depth + 1) or plain


def amp_of(context: Context) -> Amp:
    """The answers for the program of a context, made once."""
    found = context.shared.get("amp")
    if not isinstance(found, Amp):
        found = context.shared["amp"] = Amp(context.program)
    return found


def all_calls(program: Program, function: str) -> Iterator[tuple[ir.Stmt, ir.Call]]:
    """The calls of one function with their statements, decorators and defaults left out."""
    for stmt in ir.statements(program.functions[function].body):
        for call in calls_of(stmt):
            yield stmt, call


def _branches(expr: ir.Expr) -> Iterator[ir.Expr]:
    if isinstance(expr, ir.Operation) and expr.op == "if":
        for operand in expr.operands[1:]:
            yield from _branches(operand)
    else:
        yield expr
