"""What each statement does to training: the events that the protocol is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.optimizers import Optimizers, Slot
from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.analysis.paths import gradients
from amp_migrate.analysis.paths.dispatch import Dispatch
from amp_migrate.analysis.paths.exchange import Exchange
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.core import phases
from amp_migrate.core.closure import reached
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.decorators import times, wrappers
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a statement does.

    ``kind``: ``backward``, ``step``, ``zero`` (gradients dropped), ``access`` (gradients read or
    edited), ``exchange``, ``rescale`` and ``mixture`` (see `Exchange`), ``birth`` (an optimizer is
    made), ``call`` (of functions of this program that hold events themselves), ``prologue`` and
    ``epilogue`` (of what a ``with`` enters, likewise: before and behind its block).
    """

    kind: str
    line: int
    column: int
    call: ir.Call | None = field(default=None, compare=False)
    slot: Slot | None = None
    callees: tuple[str, ...] = ()
    targets: tuple[ir.Expr, ...] = ()
    """Whose gradients are touched: modules, parameters, lists of them. Empty for an ``access`` by
    somebody else's function, which is taken to touch what the optimizer holds."""
    handed_on: bool = False
    """The callees are only given to somebody else's function, which may call them."""
    maybe: bool = False
    """The callees may be called, or nothing is: they count for how they touch gradients."""


class Events:
    """The events of the statements of a program, read once, function by function when they are asked for."""

    def __init__(self, program: Program, optimizers: Optimizers) -> None:
        self.program = program
        self.optimizers = optimizers
        self.forward = program.noted(Forward)
        self.objects = program.noted(PointsTo)
        self.exchange = Exchange(program)
        self.dispatch = program.noted(Dispatch)
        special = frozenset[str]().union(*_OPERATORS.values())
        self._operators = special.intersection(
            function.name for function in program.functions.values()
        )
        self._of: dict[tuple[str, ir.Path], tuple[Event, ...]] = {}
        self._shown: dict[tuple[str, ir.Path], tuple[Event, ...]] = {}
        """Of these, what `of` gives."""
        self._kinds: dict[str, frozenset[str]] = {}
        self._direct: dict[str, list[tuple[ir.Stmt, Event]]] = {}
        self._steps: dict[str, set[Slot]] = {}
        self._around: dict[str, tuple[bool, bool, str]] = {}
        self._called: dict[str, frozenset[str]] = {}

    def _settle(self, functions: Iterable[str]) -> None:
        """Read some functions with all that they call: what those bring about, these do, too."""
        fresh: list[str] = []
        pending = list(functions)
        while pending:
            qualname = pending.pop()
            if qualname in self._direct:
                continue
            fresh.append(qualname)
            phases.at("reading calls", len(self._direct), len(self.program.functions))
            self._direct[qualname] = direct = []
            for stmt in self.program.statements(qualname):
                found = tuple(self._read(stmt, qualname))
                self._of[qualname, stmt.path] = found
                direct += [(stmt, event) for event in found]
                pending += [callee for event in found for callee in event.callees]
        self._spread(fresh)

    def _ensure(self, function: str) -> None:
        """Have a function read, if it was not: of a large program, most never matter."""
        if function not in self._kinds:
            self._settle((function,))

    def of(self, function: str, stmt: ir.Stmt) -> tuple[Event, ...]:
        """The events on a statement's own line, in the order in which they happen."""
        site = function, stmt.path
        if site not in self._shown:
            self._ensure(function)
            self._shown[site] = tuple(
                event
                for event in self._of[site]
                if event.kind not in CALLS or any(self.brought(event))
            )
        return self._shown[site]

    def brought(self, event: Event) -> Iterator[str]:
        """Those of an event's callees that bring events about."""
        for callee in event.callees:
            kinds = self.kinds(callee)
            # A callback that trains is a root of its own.
            if kinds and (not event.maybe or kinds <= {"access", "zero"}):
                yield callee

    def around(self, function: str) -> tuple[bool, bool, str]:
        """What the decorators of a function do that are written here: whether they may leave it out,
        whether they may call it again, and the name of one that has a part in training itself.
        """
        if function not in self._around:
            functions = self.program.functions
            scope = functions[function]
            skips = again = False
            trains = ""
            for decorator in scope.decorators:
                if self.program.keeps_function(decorator, function):
                    continue
                made = (isinstance(decorator, ir.Call) and decorator.func) or decorator
                for ref in self.program.resolve(made, scope.parent or function):
                    if ref.kind != "function":
                        continue
                    skip, repeat = times(functions, ref.name)
                    skips, again = skips or skip, again or repeat
                    inside, given = wrappers(functions, ref.name)
                    for one in inside:
                        for _, event in self.direct(one):
                            func = None if event.call is None else event.call.func
                            if not (isinstance(func, ir.Name) and func.id in given):
                                # ``setattr(wrapper, "name", 1)``: what the wrapper does is seen.
                                brought = set(self.brought(event)).difference(inside)
                                if event.kind not in CALLS or brought:
                                    trains = functions[ref.name].name
            self._around[function] = skips, again, trains
        return self._around[function]

    def direct(self, function: str) -> list[tuple[ir.Stmt, Event]]:
        """(statement, event) of one function, callees not looked into."""
        self._ensure(function)
        return self._direct[function]

    def kinds(self, function: str) -> frozenset[str]:
        """The kinds of event that a call of the function may bring about."""
        self._ensure(function)
        return self._kinds[function]

    def leads_to(self, function: str, wanted: Collection[str]) -> bool:
        """Whether a call of a function may bring about a call of one of those that are wanted."""
        return not self.called_from(function).isdisjoint(wanted)

    @cached_property
    def of_gradients(self) -> list[tuple[str, Event]]:
        """(function, event) of all that has to do with an optimizer, or drops all gradients."""
        return [
            (function, event)
            for function in self.program.functions
            for _, event in self.direct(function)
            if event.slot is not None or event.kind == "zero"
        ]

    def calls_of(self, method: str) -> Iterator[tuple[str, ir.Stmt, Event]]:
        """(function, statement, event) of each ``backward``, or each ``step``, as the program has them."""
        calling = {
            function
            for name in self.program.with_aliases({method})
            for function, _, _ in self.program.calls_named(name)
        }
        for function in self.program.functions:
            for stmt, event in self.direct(function) if function in calling else ():
                if event.kind == method:
                    yield function, stmt, event

    def called_from(self, function: str) -> frozenset[str]:
        """A function with all that a call of it may call."""
        if function not in self._called:
            self._called[function] = frozenset(reached((function,), self._calls))
        return self._called[function]

    def _calls(self, function: str) -> Iterator[str]:
        for _, event in self.direct(function):
            yield from self.brought(event) if event.maybe else event.callees

    def steps(self, function: str) -> frozenset[Slot]:
        """Slots whose optimizers step when a function is called."""
        self._ensure(function)
        return frozenset(self._steps[function])

    def steps_within(
        self, function: str, block: Iterator[ir.Stmt] | tuple[ir.Stmt, ...]
    ) -> set[Slot]:
        """Slots whose optimizers step when the statements run, calls included."""
        found: set[Slot] = set()
        self._ensure(function)
        for stmt in ir.statements(tuple(block)):
            for event in self._of[function, stmt.path]:
                if event.kind == "step" and event.slot is not None:
                    found.add(event.slot)
                for callee in (() if event.handed_on or event.maybe else event.callees):
                    found |= self._steps[callee]
        return found

    def _spread(self, fresh: Collection[str]) -> None:
        """Let kinds and stepping slots flow from callees to callers until nothing changes."""
        kinds: dict[str, set[str]] = {}
        steps: dict[str, set[Slot]] = {}
        callers: dict[str, set[str]] = {}
        for qualname in fresh:
            kinds[qualname], steps[qualname] = set(), set()
            for _, event in self._direct[qualname]:
                if event.kind not in CALLS:
                    kinds[qualname].add(event.kind)
                if event.kind == "step" and event.slot is not None:
                    steps[qualname].add(event.slot)
                if event.maybe and event.callees:
                    kinds[qualname].add("access")
                for callee in (() if event.handed_on or event.maybe else event.callees):
                    callers.setdefault(callee, set()).add(qualname)
                    kinds[qualname] |= self._kinds.get(callee, frozenset())
                    steps[qualname] |= self._steps.get(callee, set())
        pending = [q for q in fresh if kinds[q]]
        while pending:
            callee = pending.pop()
            for caller in callers.get(callee, ()):
                more = kinds[callee] - kinds[caller], steps[callee] - steps[caller]
                if more[0] or more[1]:
                    kinds[caller] |= more[0]
                    steps[caller] |= more[1]
                    pending.append(caller)
        self._kinds |= {q: frozenset(k) for q, k in kinds.items()}
        self._shown.clear()
        self._steps |= steps

    # -- reading ------------------------------------------------------------------------------

    def _read(self, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        if stmt.kind in ("functiondef", "classdef"):
            return
        if self._mentions_grad(function):
            if _zeroes_by_hand(stmt):
                dropped = (stmt.value,) if stmt.kind == "for" and stmt.value else ()
                holders = dropped or self._gradient_holders(stmt, function)
                if not _takes_all(stmt):
                    holders = (UNKNOWN,)
                yield Event("zero", stmt.line, stmt.column, targets=holders)
                return
            if _inside_zeroing(self.program.functions[function], stmt):
                return
        if isinstance(stmt.value, ir.Call) and stmt.targets:
            made = self.optimizers.may_make(stmt.value, function)
            if made and self.optimizers.makers.construction(stmt.value, function):
                yield Event("birth", stmt.line, stmt.column)
        holders = self._gradient_holders(stmt, function)
        exchange = self.exchange.kind(stmt, function)
        if exchange is not None:
            # What is exchanged in one piece may be of any.
            targets = holders or (UNKNOWN,)
            yield Event(exchange, stmt.line, stmt.column, targets=targets)
        elif holders:
            yield Event("access", stmt.line, stmt.column, targets=holders)
        unseen = self._properties_in(stmt, function) + self._operators_in(
            stmt, function
        )
        if unseen:
            yield Event("call", stmt.line, stmt.column, callees=unseen)
        managers = () if stmt.kind != "with" else stmt.exprs
        for call in calls_of(stmt):
            entered = self._entered(call, function) if call in managers else ()
            if entered:
                where = (stmt.line, stmt.column)
                yield Event("prologue", *where, call, callees=entered)
                yield Event("epilogue", *where, call, callees=entered)
            else:
                yield from self._of_call(call, stmt, function)
        yield from self._managers(stmt, function)

    def _managers(self, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        """What objects of this program that a ``with`` enters do before its block, and behind it."""
        for expr in stmt.exprs if stmt.kind == "with" else ():
            for kind, name in (("prologue", "__enter__"), ("epilogue", "__exit__")):
                methods = tuple(
                    method
                    for one in self.program.instance_classes(expr, function)
                    if (method := self.program.method(one, name))
                )
                if methods:
                    yield Event(kind, stmt.line, stmt.column, callees=methods)

    def _entered(self, call: ir.Call, function: str) -> tuple[str, ...]:
        """The generators that a ``with`` runs one part of before its block, and one behind it."""
        callees = self.program.callees(call, function)
        generators = all(self.program.functions[one].is_generator for one in callees)
        return callees if generators else ()

    def _of_call(self, call: ir.Call, stmt: ir.Stmt, function: str) -> Iterator[Event]:
        program = self.program
        callees = program.callees(call, function)
        steps = self._is_own_step(call, function)
        if callees and not steps:
            yield Event("call", call.line, call.column, call, callees=callees)
            return
        where = (call.line, call.column, call)
        made = self._made_of_variable(call, stmt, function)
        if made is not None:
            yield Event("call", *where, callees=made)
            return
        origin = program.origin(call.func, function)
        handed_on = self._handed_on(call, function)
        if handed_on:
            yield Event("call", *where, callees=handed_on, handed_on=True)
        if origin is not None and vocabulary.GRADIENT_CLIPPERS.fullmatch(origin):
            given = call.argument(0, "parameters")
            yield Event("access", *where, targets=(given or UNKNOWN,))
            return
        perhaps = () if steps else self.dispatch.callees(call, function)
        if perhaps:
            yield Event("call", *where, callees=perhaps, maybe=True)
        elif not callees and self.dispatch.may_run_expression(call, function):
            yield Event("access", *where, maybe=True)
            return
        if origin in ("builtins.exec", "builtins.eval"):
            if not self._only_names(call, function):
                yield Event("access", *where, targets=(UNKNOWN,))
            return
        if not isinstance(call.func, ir.Attr):
            if self._may_touch_gradients(call, function, origin):
                yield Event(self._touch(call), *where)
            return
        receiver, method = call.func.value, call.func.attr
        if method == "backward":
            yield Event("backward", *where)
        elif method == "step":
            slot = self.optimizers.slot(receiver, function)
            if (
                slot is not None and not self.optimizers.leads_nowhere(slot)
            ) or self.optimizers.makers.is_one(receiver, function):
                name = ir.key_of(receiver) or "?"
                unknown = Slot("unknown", function, name)
                yield Event("step", *where, slot=slot or unknown)
        elif method == "zero_grad":
            slot = self.optimizers.slot(receiver, function)
            known = slot is not None and self._is_optimizer(slot, receiver, function)
            targets = () if known else (receiver,)
            yield Event("zero", *where, slot=slot if known else None, targets=targets)
        elif self._may_touch_gradients(call, function, origin):
            yield Event(self._touch(call), *where)

    def _made_of_variable(
        self, call: ir.Call, stmt: ir.Stmt, function: str
    ) -> tuple[str, ...] | None:
        """The constructors that ``[kind() for kind in kinds]`` runs; None where a variable that is called may
        hold anything else but classes of this program, or texts (``if callable(kind): ...``).
        """
        if call.args or not isinstance(call.func, ir.Name):
            return None
        # What is called for what it does, not for what it gives, may be a callback of callers out of sight.
        closed = stmt.kind == "expr" and stmt.value is call
        found = self.objects.whole(call.func, function, stmt, closed=closed)
        if not all(
            not one.fields and (one.kind == "class" or _is_text(one.expr))
            for one in found
        ):
            return None
        inits = (
            self.program.method(one.name, "__init__")
            for one in found
            if one.kind == "class"
        )
        return tuple(dict.fromkeys(filter(None, inits))) if found else None

    def _only_names(self, call: ir.Call, function: str) -> bool:
        """Whether what is evaluated can only be a variable: ``for key in ["loss", "score"]: eval(key)``, or
        each key is the name of an attribute, too: ``setattr(self, key, ...)``."""
        asked = call.args[0].value if call.args else None
        given = self.program.set_to(asked, function)
        return bool(given) and all(
            one.stmt.kind == "for"
            and one.stmt.targets == (asked,)
            and (_are_names(one.stmt.value) or self._are_attributes(one, asked))
            for one in given
        )

    def _are_attributes(self, loop: Definition, key: ir.Expr | None) -> bool:
        return any(
            call.func in _BY_NAME and [arg.value for arg in call.args[1:2]] == [key]
            for stmt in self.program.statements(loop.function)
            if stmt.path[: len(loop.stmt.path)] == loop.stmt.path
            for call in calls_of(stmt)
        )

    def _touch(self, call: ir.Call) -> str:
        """What somebody else's function does to gradients, as its name has it."""
        name = gradients.called(call)
        return "mixture" if self.exchange.sounds_like_one(name) else "access"

    def _is_own_step(self, call: ir.Call, function: str) -> bool:
        """A step of an optimizer whose class is in sight: what it does is its own business."""
        if not isinstance(call.func, ir.Attr) or call.func.attr != "step":
            return False
        slot = self.optimizers.slot(call.func.value, function)
        if slot is None or self.optimizers.leads_nowhere(slot):
            return False
        trace = self.optimizers.trace(slot)
        return bool(trace.births) and not trace.problems

    def _is_optimizer(self, slot: Slot, receiver: ir.Expr, function: str) -> bool:
        return not self.optimizers.leads_nowhere(
            slot
        ) or self.optimizers.makers.looks_like_one(receiver, function)

    def _mentions_grad(self, function: str) -> bool:
        """Whether the file of a function says ``grad`` at all: most do not."""
        facts = self.program.modules[ir.file_of(function)]
        return "grad" in facts.identifiers or "grad" in facts.strings

    def _gradient_holders(self, stmt: ir.Stmt, function: str) -> tuple[ir.Expr, ...]:
        """The expressions whose ``.grad`` a statement's own line mentions, other than to ask if there is
        one."""
        found: list[ir.Expr] = []
        for expr in stmt.exprs if self._mentions_grad(function) else ():
            asked = {
                id(operand)
                for inner in ir.walk(expr)
                if isinstance(inner, ir.Operation) and is_none_test(inner)
                for operand in inner.operands
            }
            for inner in ir.walk(expr):
                if (
                    isinstance(inner, ir.Attr)
                    and inner.attr == "grad"
                    and id(inner) not in asked
                    and self.program.origin(inner, function) is None
                    and not gradients.is_measured(self.program, inner, stmt, function)
                ):
                    found.append(inner.value)
                elif isinstance(inner, ir.Call) and ir.Const("grad") in (
                    arg.value for arg in inner.args
                ):
                    # getattr(p, "grad") and its like
                    found.append(UNKNOWN)
        return tuple(dict.fromkeys(found))

    def _is_method(self, expr: ir.Expr, function: str) -> bool:
        """Whether a variable is ``getattr(callback, name)``: calling it is calling a method of that."""
        made = self.program.definitions_of(expr, function)
        return bool(made) and all(
            isinstance(one.value, ir.Call)
            and one.index is None
            and self.program.origin(one.value.func, one.function) == "builtins.getattr"
            for one in made
        )

    def _may_touch_gradients(
        self, call: ir.Call, function: str, origin: str | None
    ) -> bool:
        """Whether somebody else's function is handed what it needs to read or edit gradients."""
        if gradients.is_helper(self.program, call, function):
            return True
        if gradients.is_harmless(self.program, call, function):
            return False
        if not call.args:
            # on_backward_end(), hooks["end"](): somebody's callback, but no class of this program.
            refs = self.program.resolve(call.func, function)
            is_made = bool(refs) and all(ref.kind == "class" for ref in refs)
            is_callback = isinstance(call.func, (ir.Name, ir.Item)) and origin is None
            return is_callback and not (is_made or self._is_method(call.func, function))
        # compute_loss(model, batch) runs the model; anything else may do what it likes.
        return not vocabulary.MODEL_LIKE.search(gradients.called(call)) and any(
            self._leads_to_gradients(arg.value, function) for arg in call.args
        )

    def _leads_to_gradients(self, expr: ir.Expr, function: str) -> bool:
        """Whether an argument is a module, an optimizer or a list of parameters."""
        for inner in ir.walk(expr):
            if isinstance(inner, ir.Attr) and inner.attr in (
                "parameters",
                "named_parameters",
            ):
                return True
        key = ir.key_of(expr)
        if key is None:
            return False
        if key.rsplit(".", 1)[-1] in self.forward.module_keys:
            return not self._names_text(expr, function)
        slot = self.optimizers.slot(expr, function)
        return slot is not None and self._is_optimizer(slot, expr, function)

    def _names_text(self, expr: ir.Expr, function: str) -> bool:
        """Whether a name can only stand for texts, as paths are: elsewhere, a module has the same name."""
        found = self.objects.whole(expr, function, closed=True)
        return bool(found) and all(
            not one.fields
            and (
                _is_text(one.expr)
                or (
                    isinstance(one.expr, ir.Call)
                    and (
                        self.program.origin(one.expr.func, one.function) or ""
                    ).startswith("os.path.")
                )
            )
            for one in found
        )

    def _handed_on(self, call: ir.Call, function: str) -> tuple[str, ...]:
        """Functions of this program that a call is given as arguments, to call them itself."""
        return tuple(
            ref.name
            for arg in call.args
            if isinstance(arg.value, (ir.Name, ir.Attr))
            for ref in self.program.resolve(arg.value, function)
            if ref.kind == "function"
        )

    @cached_property
    def _properties(self) -> frozenset[str]:
        return frozenset(
            function.name
            for qualname, function in self.program.functions.items()
            if self.program.is_property(qualname)
        )

    def _properties_in(self, stmt: ir.Stmt, function: str) -> tuple[str, ...]:
        """Properties of this program's classes that a statement reads."""
        facts = self.program.modules[ir.file_of(function)]
        if self._properties.isdisjoint(facts.identifiers):
            return ()
        return tuple(
            ref.name
            for inner in parts_of(stmt)
            if isinstance(inner, ir.Attr) and inner.attr in self._properties
            for ref in self.program.resolve(inner, function)
            if ref.kind == "function"
        )

    def _operators_in(self, stmt: ir.Stmt, function: str) -> tuple[str, ...]:
        """Methods of this program's classes that operators and items of a statement run: ``meter += model``
        runs ``__iadd__``."""
        if not self._operators:
            return ()
        return tuple(
            method
            for operand, words in operators_of(stmt)
            for one in self.program.instance_classes(operand, function)
            for word in words & self._operators
            if (method := self.program.method(one, word))
        )


def operators_of(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr, frozenset[str]]]:
    """What operators and items of a statement are of, each with the methods of it that they may run."""
    held = [(stmt.op, target) for target in stmt.targets if stmt.op]
    held += [("[]=", t.value) for t in stmt.targets if isinstance(t, ir.Item)]
    for expr in stmt.exprs:
        for inner in ir.walk(expr):
            if isinstance(inner, ir.Operation):
                held += ((inner.op, operand) for operand in inner.operands)
            elif isinstance(inner, ir.Item):
                held.append(("[]", inner.value))
    for op, operand in held:
        if op in _OPERATORS and isinstance(operand, (ir.Name, ir.Attr, ir.Call)):
            yield operand, _OPERATORS[op]


_BY_NAME = tuple(ir.Name(f"{verb}attr") for verb in ("get", "has", "set"))
_OPERATORS = {
    op: frozenset(f"__{name}__" for word in words.split() for name in (word, f"r{word}", f"i{word}"))
    for op, words in {
        "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
        "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
        "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "in": "contains",
        "compare": "eq ne lt le gt ge contains", "[]": "getitem", "[]=": "setitem",
        "-x": "neg", "~": "invert",
    }.items()
}  # fmt: skip
"""The methods that an operator may run."""

CALLS = ("call", "prologue", "epilogue")
"""The kinds of event that run functions of the program."""

UNKNOWN = ir.Const("?")
"""Stands for an object that cannot be told."""


def _is_text(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and isinstance(expr.value, str)


def _are_names(keys: ir.Expr | None) -> bool:
    return isinstance(keys, ir.Display) and all(
        isinstance(item, ir.Const)
        and isinstance(item.value, str)
        and item.value.isidentifier()
        for item in keys.items
    )


def _grad_uses(stmt: ir.Stmt) -> Iterator[tuple[ir.Stmt, str]]:
    """How a statement and all inside it use ``.grad``: ``zero``, ``test`` or ``other``."""
    for inner in ir.statements((stmt,)):
        mentions = sum(
            isinstance(e, ir.Attr) and e.attr == "grad" for e in parts_of(inner)
        )
        if not mentions:
            continue
        if (
            mentions == 1
            and (inner.kind, inner.value)
            in (("assign", ir.Const(None)), ("delete", None))
        ) or (inner.kind == "expr" and _is_zeroing_call(inner.value)):
            yield inner, "zero"
        elif inner.kind == "if" and is_none_test(inner.value):
            yield inner, "test"
        else:
            yield inner, "other"


def _is_zeroing_call(expr: ir.Expr | None) -> bool:
    # p.grad.zero_(), p.grad.data.zero_(), p.grad.detach_(), p.grad.detach_().zero_()
    while isinstance(expr, (ir.Call, ir.Attr)):
        if isinstance(expr, ir.Call):
            if expr.args or not isinstance(expr.func, ir.Attr):
                return False
            expr = expr.func
        elif expr.attr == "grad":
            return True
        elif expr.attr in ("zero_", "detach_", "data", "detach", "requires_grad_"):
            expr = expr.value
        else:
            return False
    return False


def is_none_test(expr: ir.Expr | None) -> bool:
    return (
        isinstance(expr, ir.Operation)
        and expr.op in ("is", "is not")
        and ir.Const(None) in expr.operands
    )


def _zeroes_by_hand(stmt: ir.Stmt) -> bool:
    """A loop over parameters (or a single statement) that does nothing to ``.grad`` but drop it."""
    if stmt.kind not in ("for", "expr", "assign", "delete"):
        return False
    uses = {inner.path: use for inner, use in _grad_uses(stmt)}
    does = [
        uses.get(inner.path)
        for inner in ir.statements((stmt,))
        if not inner.blocks and inner.kind not in ("pass", "continue")
    ]
    return set(does) == {"zero"} and "other" not in uses.values()


def _takes_all(stmt: ir.Stmt) -> bool:
    """Whether such a loop leaves none out but those that have no gradient."""
    inside = [s for s in ir.statements((stmt,)) if s is not stmt and s.kind == "for"]
    if any(
        isinstance(one, ir.Item) and one.key != ir.Const("params")
        for inner in inside
        for one in parts_of(inner)
    ):
        return False
    return all(
        is_none_test(inner.value)
        or (isinstance(inner.value, ir.Attr) and inner.value.attr == "requires_grad")
        for inner in ir.statements((stmt,))
        if inner.kind in ("if", "while")
    )


def _inside_zeroing(function: ir.Function, stmt: ir.Stmt) -> bool:
    """Whether the statement is part of a loop that `_zeroes_by_hand` has already counted."""
    depth = len(function.path)
    if len(stmt.path) - depth < 2:
        return False
    return any(
        outer.kind == "for"
        and outer.path == stmt.path[: len(outer.path)]
        and _zeroes_by_hand(outer)
        for outer in ir.statements(function.body)
        if len(outer.path) < len(stmt.path)
    )


def innermost_loop(function: ir.Function, path: ir.Path) -> ir.Path:
    """The path of the innermost loop around a statement; the function's own where there is none."""
    best: ir.Path = function.path
    for outer in ir.statements(function.body):
        inside = outer.path == path[: len(outer.path)] and outer.path != path
        if inside and outer.kind in ("for", "while") and len(outer.path) > len(best):
            best = outer.path
    return best
