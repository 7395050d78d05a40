"""Where BCELoss and ``F.binary_cross_entropy`` are called, and whether all such places are in sight."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.makers import INSTANTIATE
from amp_migrate.analysis.objects.points_to import RETURNS_SELF
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

_CLASS = re.compile(r"torch\.nn\.(modules\.(loss\.)?)?BCELoss")
_FUNCTION = re.compile(r"torch\.(nn\.functional\.)?binary_cross_entropy")
_WORDS = frozenset(("BCELoss", "binary_cross_entropy"))
_ONLY_LOOK = frozenset(
    f"builtins.{name}"
    for name in "print isinstance issubclass type str repr id".split()
)
_COMPARISONS = ("is", "is not", "==", "!=", "not")
_HOMES = re.compile(r"torch\.nn(\.(functional|modules(\.loss)?))?")
"""Where the loss can be looked up by its name."""
_OTHER_KIND = re.compile(
    r"(?i)act|norm|pool|conv|layer|non_?lin|rnn|lstm|gru|cell|drop|init|opt|sched|pad|dtype|device|block"
)
"""Names of what is looked up that say it is no loss."""
_KEEPS = RETURNS_SELF | {"parameters", "state_dict", "zero_grad", "__class__"}


@dataclass(frozen=True, slots=True)
class BceCall:
    """A call that computes the loss."""

    function: str
    stmt: ir.Stmt
    call: ir.Call


class BceLosses:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._unclear: dict[tuple[str, bool], list[tuple[str, Refusal]]] = {}

    @cached_property
    def _is_said(self) -> bool:
        """Whether some file speaks of the loss at all."""
        return any(
            not _WORDS.isdisjoint(facts.identifiers | facts.strings)
            for facts in self.program.modules.values()
        ) or any(
            target.rpartition(".")[2] in _WORDS
            for function in self.program.functions.values()
            for _, target in function.imports
        )

    def calls(self, functions: Iterable[str]) -> list[BceCall]:
        """The calls in some functions that compute the loss."""
        if not self._is_said:
            return []
        return [
            BceCall(function, stmt, call)
            for function in functions
            for stmt in self.program.statements(function)
            if stmt.kind not in ("functiondef", "classdef")
            for call in calls_of(stmt)
            if self.computes(call, function)
        ]

    def computes(self, call: ir.Call, function: str) -> bool:
        """Whether a call computes the loss (or may: then `unclear` refuses)."""
        program = self.program
        if _is_super_forward(call):
            own = program.self_class(function)
            return own is not None and self._is_plain_class(own[1], skip_own=True)
        for ref in program.resolve(call.func, function):
            if ref.kind == "external" and _FUNCTION.fullmatch(ref.name):
                return True
            if ref.kind == "made" and _CLASS.fullmatch(ref.name):
                return True
            if ref.kind == "instance" and self._is_plain_class(ref.name):
                return True
        return False

    def makes(self, call: ir.Call, function: str) -> bool:
        """Whether a call makes an object that computes the loss."""
        return bool(_CLASS.fullmatch(self.program.origin(call.func, function) or ""))

    def _is_plain_class(self, class_name: str, skip_own: bool = False) -> bool:
        """Whether a class derives from BCELoss, and takes its ``forward`` from there."""
        program = self.program
        bases = program.external_bases(class_name)
        if not any(map(_CLASS.fullmatch, bases)):
            return False
        line = list(program.bases(class_name))[1 if skip_own else 0 :]
        return not any(
            method in ("forward", "__call__")
            for base in line
            for method, _ in program.classes[base].methods
        )

    # -- what is not followed -----------------------------------------------------------------

    def unclear(self, functions: Iterable[str]) -> Refusal | None:
        """The first mention of the loss that may lead to a call which `calls` does not find."""
        wanted = set(functions)
        bodies: list[ir.Function | ir.Class] = [
            *(self.program.functions[one] for one in functions),
            *(one for one in self.program.classes.values() if one.parent in wanted),
        ]
        return next(
            (
                refusal
                for body in bodies
                for run, refusal in self._unclear_of(body)
                if not run or run in wanted
            ),
            None,
        )

    def _unclear_of(self, place: ir.Function | ir.Class) -> list[tuple[str, Refusal]]:
        """Those in the body of a function, or of a class, and the function that has to run, too."""
        asked = place.qualname, isinstance(place, ir.Class)
        if asked not in self._unclear:
            function = place.parent if isinstance(place, ir.Class) else place.qualname
            found = (self._unclear_in(s, function) for s in ir.statements(place.body))
            self._unclear[asked] = list(filter(None, found))
        return self._unclear[asked]

    def _unclear_in(self, stmt: ir.Stmt, function: str) -> tuple[str, Refusal] | None:
        unused = self._unused_defaults(stmt)
        run = stmt.names[1] if stmt.kind == "functiondef" else ""
        for expr in stmt.exprs:
            if any(expr is one for one in unused):
                continue
            kept = self._is_kept(stmt, expr)
            for inner in self._stray(expr, function, kept, stmt):
                message = f"{_word(inner)} is not followed from here, and raises under autocast"
                if isinstance(inner, ir.Call) and not self.makes(inner, function):
                    message = (
                        "the loss that is chosen by its name here may be BCELoss,"
                        " which raises under autocast"
                    )
                return run, Refusal("AMP020", message, stmt.line)
        return None

    def _unused_defaults(self, stmt: ir.Stmt) -> list[ir.Expr]:
        """The defaults of a ``def`` that no call leaves to its parameters."""
        if stmt.kind != "functiondef":
            return []
        program = self.program
        function = stmt.names[1]
        sites = program.call_sites.get(function, [])
        if not sites or function in program.escaping or program.is_library(function):
            return []
        return [
            param.default
            for param in program.functions[function].params
            if param.default is not None
            and all(program.argument_at(site, param.name) for site in sites)
        ]

    @staticmethod
    def _is_kept(stmt: ir.Stmt, expr: ir.Expr) -> bool:
        """Whether a statement only gives a value another name."""
        if stmt.kind in ("assign", "annassign"):
            return expr is not stmt.value or all(
                isinstance(target, (ir.Name, ir.Attr)) for target in stmt.targets
            )
        return stmt.kind in ("return", "expr", "classdef", "importfrom", "import")

    def _stray(
        self, expr: ir.Expr, function: str, kept: bool, stmt: ir.Stmt
    ) -> Iterator[ir.Expr]:
        """Mentions of the loss in an expression from where they are not followed."""
        if isinstance(expr, ir.Const):
            if isinstance(expr.value, str) and expr.value in _WORDS:
                yield expr
            return
        if self.is_loss(expr, function) and not kept:
            yield expr
            return
        if isinstance(expr, ir.Attr):
            if not self.is_loss(expr, function) and expr.attr in _WORDS:
                if not self._is_attribute(expr, function):
                    yield expr
                    return
            yield from self._stray(expr.value, function, expr.attr in _KEEPS, stmt)
            return
        if isinstance(expr, ir.Name):
            if (
                expr.id in _WORDS
                and not self.is_loss(expr, function)
                and not self._is_result(expr, function)
            ):
                yield expr
            return
        if self._looks_up(expr, function, stmt):
            yield expr
            return
        if isinstance(expr, ir.Call):
            yield from self._stray_in_call(expr, function, stmt)
            return
        if isinstance(expr, ir.Operation) and expr.op == "if":
            test, *branches = expr.operands
            yield from self._stray(test, function, False, stmt)
            for branch in branches:
                yield from self._stray(branch, function, kept, stmt)
            return
        if isinstance(expr, ir.Display) and stmt.kind == "return":
            unpacked = self._is_unpacked(function)
            for item in expr.items:
                yield from self._stray(item, function, unpacked, stmt)
            return
        if isinstance(expr, ir.Display) and expr is stmt.value:
            pairs = all(
                isinstance(target, ir.Display) and len(target.items) == len(expr.items)
                for target in stmt.targets
            )
            for item in expr.items:
                yield from self._stray(
                    item, function, pairs and bool(stmt.targets), stmt
                )
            for key in expr.keys:
                if isinstance(key, ir.Call):
                    yield from self._stray(key, function, False, stmt)
            return
        bound = any(expr is target for target in stmt.targets)
        compares = isinstance(expr, ir.Operation) and expr.op in _COMPARISONS
        for child in ir.children(expr):
            yield from self._stray(child, function, bound or compares, stmt)

    def _stray_in_call(
        self, call: ir.Call, function: str, stmt: ir.Stmt
    ) -> Iterator[ir.Expr]:
        program = self.program
        # A loss that is called is either made thereby, or computed: both are followed.
        yield from self._stray(call.func, function, True, stmt)
        looks = (program.origin(call.func, function) or "") in _ONLY_LOOK
        callees = program.callees(call, function)
        for arg in call.args:
            passed = looks
            if self.is_loss(arg.value, function) and callees and not arg.star:
                passed = all(self._receives(c, call, function, arg) for c in callees)
            yield from self._stray(arg.value, function, passed, stmt)

    def _looks_up(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """``getattr(nn, name)()``, ``vars(nn)[name]``, ``eval(name)``: what may be the loss."""
        origin = self.program.origin
        home: ir.Expr | None = None
        name: ir.Expr | None = None
        match expr:
            case ir.Call(func=func) if origin(func, function) == INSTANTIATE:
                layout = self.program.layout
                named = () if layout is None else layout.configured
                return any(map(_CLASS.fullmatch, named))
            case ir.Call(func=func, args=(ir.Arg(value=text), *_)) if origin(
                func, function
            ) in ("builtins.eval", "builtins.exec"):
                return isinstance(text, ir.Const) and any(
                    word in str(text.value) for word in _WORDS
                )
            case ir.Call(func=func, args=(home_arg, name_arg, *_)) if (
                origin(func, function) == "builtins.getattr"
            ):
                home, name = home_arg.value, name_arg.value
            case ir.Item(value=ir.Attr(value=owner, attr="__dict__"), key=key):
                home, name = owner, key
            case ir.Item(value=ir.Call(func=func, args=(home_arg,)), key=key) if (
                origin(func, function) == "builtins.vars"
            ):
                home, name = home_arg.value, key
        if home is None or name is None or isinstance(name, ir.Const):
            return False
        if not _HOMES.fullmatch(origin(home, function) or ""):
            return False
        told = [name, *stmt.targets]
        return not any(
            isinstance(inner, (ir.Name, ir.Attr, ir.Const))
            and _OTHER_KIND.search(_last_word(inner))
            for one in told
            for inner in ir.walk(one)
        )

    def _receives(self, callee: str, call: ir.Call, function: str, arg: ir.Arg) -> bool:
        """Whether the parameter that an argument is given to is followed in turn."""
        program = self.program
        params = [p for p in program.functions[callee].params if p.kind != "**"]
        for site in program.call_sites.get(callee, []):
            if site.caller != function or site.call is not call:
                continue
            for param in params:
                if program.argument_at(site, param.name) is arg.value:
                    return self.is_loss(ir.Name(param.name), callee)
        return False

    def is_loss(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression may be the loss's class, one of its instances, or its function."""
        program = self.program
        kinds = (ir.Name, ir.Attr, ir.Call, ir.Operation, ir.Item)
        if not self._is_said or not isinstance(expr, kinds):
            return False
        for ref in program.resolve(expr, function):
            if ref.kind == "external":
                if _CLASS.fullmatch(ref.name) or _FUNCTION.fullmatch(ref.name):
                    return True
            elif ref.kind == "made":
                if _CLASS.fullmatch(ref.name):
                    return True
            elif ref.kind in ("class", "instance"):
                if any(map(_CLASS.fullmatch, program.external_bases(ref.name))):
                    return True
        return False

    def _is_attribute(self, expr: ir.Attr, function: str) -> bool:
        """Whether an attribute of that name is one of the program's own values, functions or classes."""
        return any(
            self.program.attribute_definitions(c, expr.attr)
            for c in self.program.instance_classes(expr.value, function)
        ) or any(
            ref.kind in ("function", "class")
            for ref in self.program.resolve(expr, function)
        )

    def _is_result(self, expr: ir.Name, function: str) -> bool:
        """Whether a variable of that name is one of the program's own values."""
        return (
            self.program.origin(expr, function) is None
            and self.program.owner(expr.id, function) is not None
        )

    def _is_unpacked(self, function: str) -> bool:
        """Whether all that a function returns is taken apart where it is called."""
        sites = self.program.call_sites.get(function, [])
        return bool(sites) and all(
            site.stmt.value is site.call
            and site.stmt.kind == "assign"
            and all(isinstance(target, ir.Display) for target in site.stmt.targets)
            for site in sites
        )

    def is_certain(self, found: BceCall) -> bool:
        """Whether a call that computes the loss never computes anything else but one that autocast puts into
        fp32, too."""
        refs = self.program.resolve(found.call.func, found.function)
        return _is_super_forward(found.call) or all(
            (ref.kind == "external" and _FUNCTION.fullmatch(ref.name))
            or (ref.kind == "made" and _CLASS.fullmatch(ref.name))
            or (ref.kind == "made" and ref.name in _IN_FP32)
            or (ref.kind == "instance" and self._is_plain_class(ref.name))
            for ref in refs
        )


_IN_FP32 = frozenset(
    f"torch.nn.{name}Loss" for name in "MSE L1 SmoothL1 Huber BCEWithLogits".split()
)


def _last_word(expr: ir.Expr) -> str:
    if isinstance(expr, ir.Const):
        return str(expr.value)
    return expr.attr if isinstance(expr, ir.Attr) else getattr(expr, "id", "")


def _word(expr: ir.Expr) -> str:
    """What to call a mention in a message."""
    if isinstance(expr, ir.Const):
        return str(expr.value)
    key = (ir.key_of(expr) or "").rsplit(".", 1)[-1]
    return key if key in _WORDS else "BCELoss"


def _is_super_forward(call: ir.Call) -> bool:
    func = call.func
    return (
        isinstance(func, ir.Attr)
        and func.attr in ("forward", "__call__")
        and isinstance(func.value, ir.Call)
        and func.value.func == ir.Name("super")
    )
