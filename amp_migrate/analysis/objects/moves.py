"""What a script puts on an accelerator, by which expression, and under which tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.points_to import Object, Place, PointsTo
from amp_migrate.analysis.tables.destinations import DEVICE, UNKNOWN, kind_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call, parts_of
from amp_migrate.program.control_flow import is_main_guard
from amp_migrate.program.link import Program

_RANK = re.compile(r"(?i)(^|[._])(local_?rank|rank|gpus?|gpu_?ids?|device_?ids?)$")
_LOSS = re.compile(r"(?i)(criterion|loss)")
_LOOP_KINDS = ("for", "while")
_KEEPS_DEVICE = frozenset("train eval zero_grad state_dict".split())
"""What a module has that moves nothing."""
_GIVES_PARAMETERS = ("parameters", "named_parameters")
_IS_AVAILABLE = "torch.cuda.is_available"

Guards = tuple[tuple[ir.Expr, bool], ...]
"""Tests around a place, each with the outcome that leads there."""


class DeviceNames(PointsTo):
    """Devices by their names: ``torch.device(name)`` is what ``name`` may be."""

    wrappers = frozenset(("torch.device",))


class _Choices(DeviceNames):
    """The same, where a choice is one thing."""

    keeps_choices = True


@dataclass(frozen=True, slots=True)
class Move:
    """Something is put on an accelerator.

    ``device`` is None for ``.cuda()`` and for literal CUDA devices. ``kind``: ``module``, ``loss``,
    ``data``, ``setting`` (a default for all that follows), ``mention`` (a CUDA device is made), ``current``
    (one of several is chosen, and nothing is put there).
    """

    function: str
    stmt: ir.Stmt
    device: ir.Expr | None
    guards: Guards
    kind: str
    receiver: ir.Expr | None = None

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.stmt.line


class _Finder:
    """Finds the moves of a program: once, whatever files are asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.forward = program.noted(Forward)
        self._by_file: dict[str, list[str]] = {}
        for qualname in program.functions:
            self._by_file.setdefault(ir.file_of(qualname), []).append(qualname)
        self._known: dict[str, list[Move]] = {}
        self._parts: dict[tuple[object, ...], tuple[Object, list[Object]]] = {}

    def of(self, files: Collection[str]) -> list[Move]:
        """Those in some files, in order."""
        return [
            move for file in self._by_file if file in files for move in self._in(file)
        ]

    def parts(self, one: Object, key: tuple[object, ...]) -> list[Object]:
        """What an object of some ``key`` is given that may be a module."""
        if key not in self._parts:
            points_to = self.program.noted(PointsTo)
            self._parts[key] = one, [
                inner
                for part in (ir.children(one.expr) if one.kind == "value" else ())
                if isinstance(part, (ir.Call, ir.Display))
                or self.forward.is_module(part, one.function)
                for inner in points_to.of(part, *one.place)
            ]
        return self._parts[key][1]

    def _in(self, file: str) -> list[Move]:
        if file not in self._known:
            self._known[file] = [
                move
                for qualname in self._by_file[file]
                for found in self._in_block(
                    qualname, self.program.functions[qualname].body, (), False
                )
                for move in self._alternatives(found)
            ]
        return self._known[file]

    def _in_block(
        self, function: str, body: tuple[ir.Stmt, ...], guards: Guards, looped: bool
    ) -> Iterator[Move]:
        for stmt in body:
            for expr in stmt.exprs:
                for move in self._of(expr, function, stmt, guards):
                    if looped or not self._is_probe(move):
                        yield move
            for block in stmt.blocks:
                inner = guards
                if (
                    stmt.kind == "if"
                    and stmt.value is not None
                    and not is_main_guard(stmt.value)
                ):
                    inner = (*guards, (stmt.value, block.field == "body"))
                again = looped or stmt.kind in _LOOP_KINDS
                yield from self._in_block(function, block.body, inner, again)

    def _is_probe(self, move: Move) -> bool:
        """``print(torch.zeros(1).cuda())``: a fresh tensor that nothing keeps."""
        if move.kind != "data" or move.receiver is None:
            return False
        receiver = move.receiver
        if not isinstance(receiver, ir.Call):
            return False
        origin = self.program.origin(receiver.func, move.function) or ""
        if not origin.startswith("torch."):
            return False
        stmt = move.stmt
        if stmt.kind == "expr":
            return True
        names = {t.id for t in stmt.targets if isinstance(t, ir.Name)}
        if stmt.kind != "assign" or len(names) != len(stmt.targets):
            return False
        return not any(
            isinstance(inner, ir.Name) and inner.id == name
            for name in names
            for _, other in self.program.mentioning(name)
            if other is not stmt
            for inner in parts_of(other)
        )

    def _of(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt, guards: Guards
    ) -> Iterator[Move]:
        program = self.program
        if isinstance(expr, ir.Operation) and expr.op == "if":
            test, body, orelse = expr.operands
            yield from self._of(body, function, stmt, (*guards, (test, True)))
            yield from self._of(orelse, function, stmt, (*guards, (test, False)))
            return
        for child in ir.children(expr):
            yield from self._of(child, function, stmt, guards)
        origin = program.origin(expr, function) if isinstance(expr, ir.Attr) else None
        if origin is not None and re.fullmatch(r"torch\.cuda\.\w*Tensor", origin):
            yield Move(function, stmt, None, guards, "data")
        if not isinstance(expr, ir.Call):
            return
        called = program.origin(expr.func, function)
        if called == "torch.set_default_device":
            given = expr.argument(0, "device")
            yield Move(function, stmt, given, guards, "setting")
        elif called == "torch.set_default_tensor_type":
            given = expr.argument(0, "t")
            named = program.origin(given, function) if given is not None else None
            if isinstance(given, ir.Const):
                named = str(given.value)
            if named is None or "cuda" in named:
                yield Move(function, stmt, None, guards, "setting")
        elif called == "torch.cuda.set_device":
            yield Move(function, stmt, None, guards, "current")
        elif called == "torch.device":
            given = expr.argument(0, "device")
            if is_literal_cuda(given) and not guards:
                yield Move(function, stmt, None, guards, "mention")
        elif isinstance(expr.func, ir.Attr) and called is None:
            yield from self._of_method(expr, expr.func, function, stmt, guards)
        device = next((arg.value for arg in expr.args if arg.name == "device"), None)
        if device is not None and called is not None and called.startswith("torch."):
            made = re.fullmatch(r"torch\.nn\.[A-Z]\w+", called)
            kind = "module" if made else "data"
            yield Move(function, stmt, device, guards, kind, expr if made else None)

    def _of_method(
        self,
        call: ir.Call,
        func: ir.Attr,
        function: str,
        stmt: ir.Stmt,
        guards: Guards,
    ) -> Iterator[Move]:
        receiver = func.value
        if func.attr == "cuda":
            kind = self._kind(receiver, function)
            yield Move(function, stmt, None, guards, kind, receiver)
        elif func.attr in ("to", "to_empty") and call.args:
            given = call.argument(0, "device")
            if given is not None and kind_of(self.program, given, function) in (
                DEVICE,
                UNKNOWN,
            ):
                # A rank is the number of an accelerator: there is no CPU of that name.
                ranked = _RANK.search(ir.key_of(given) or "") or (
                    isinstance(given, ir.Const) and isinstance(given.value, int)
                )
                kind = self._kind(receiver, function)
                device = None if ranked else given
                yield Move(function, stmt, device, guards, kind, receiver)

    def _kind(self, receiver: ir.Expr, function: str) -> str:
        if not self.forward.is_module(receiver, function):
            return "data"
        made = {r.name for r in self.program.resolve(receiver, function)}
        named = (ir.key_of(receiver) or "").rsplit(".", 1)[-1]
        if _LOSS.search(named) or any(
            _LOSS.search(ir.local_name(m).rsplit(".", 1)[-1]) for m in made
        ):
            return "loss"
        return "module"

    def _alternatives(self, move: Move) -> Iterator[Move]:
        """``.to("cuda" if test else "cpu")`` as a plain move under a test."""
        device = move.device
        if isinstance(device, ir.Call) and device.args:
            if self.program.origin(device.func, move.function) == "torch.device":
                device = device.argument(0, "device")
        if isinstance(device, ir.Operation) and device.op == "if":
            test, body, orelse = device.operands
            for value, outcome in ((body, True), (orelse, False)):
                guards = (*move.guards, (test, outcome))
                yield from self._alternatives(
                    replace(move, device=value, guards=guards)
                )
        elif is_literal_cuda(device):
            yield replace(move, device=None)
        else:
            yield move


class _Sites:
    """Objects by what makes them."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._made: dict[object, list[Object]] = {}
        self._named: list[Object] = []
        self._instances: list[Object] = []
        for one in objects:
            self._made.setdefault(one.site, []).append(one)
            if one.name:
                self._named.append(one)
                if one.kind == "instance":
                    self._instances.append(one)

    def near(self, one: Object) -> Iterable[Object]:
        """Those that may be the same as another one: made there, or told apart by their classes alone."""
        classes = self._named if one.kind == "instance" else self._instances
        return [*self._made.get(one.site, ()), *(classes if one.name else ())]


class Moves:
    """The moves in some files of a program."""

    def __init__(self, program: Program, files: Collection[str]) -> None:
        self.program = program
        self.forward = program.noted(Forward)
        self.points_to = program.noted(PointsTo)
        self.names = program.noted(DeviceNames)
        self._finder = program.noted(_Finder)
        self.all = self._finder.of(files)

    @cached_property
    def reaching(self) -> list[Move]:
        """Those that may reach an accelerator."""
        return [move for move in self.all if not self.is_cpu(move)]

    # -- devices ------------------------------------------------------------------------------

    def is_cpu(self, move: Move) -> bool:
        """Whether something is only ever put on something else than CUDA."""
        return self._are(
            self._names(move),
            lambda one: (
                is_text(one)
                and not is_literal_cuda(one.expr)
                # What begins with a variable may be any.
                and not (
                    isinstance(one.expr, ir.Operation)
                    and not isinstance(one.expr.operands[0], ir.Const)
                )
            ),
        )

    def is_always_cuda(self, move: Move) -> bool:
        """Whether a device is only ever a CUDA device that is written out, where it is one at all."""
        return self._are(self._names(move), lambda one: is_literal_cuda(one.expr))

    def is_cuda_if_available(self, move: Move) -> bool:
        """Whether a device is CUDA where there is any, and the CPU else: nothing else decides it."""
        return self._are(
            self._names(move, self.program.noted(_Choices)), self._asks_what_is_there
        )

    def _asks_what_is_there(self, one: Object) -> bool:
        if not isinstance(one.expr, ir.Operation) or one.expr.op != "if":
            return False
        tests, chosen, others = (
            self.names.whole(o, *one.place, closed=True) for o in one.expr.operands
        )
        return (
            self._are(tests, lambda test: self.is_call_of(test, _IS_AVAILABLE))
            and self._are(chosen, lambda name: is_literal_cuda(name.expr))
            and self._are(others, lambda name: name.expr == ir.Const("cpu"))
        )

    def _names(self, move: Move, names: PointsTo | None = None) -> tuple[Object, ...]:
        if move.device is None:
            return ()
        search = names or self.names
        return search.whole(move.device, move.function, move.stmt, closed=True)

    def _are(self, found: Collection[Object], rule: Callable[[Object], bool]) -> bool:
        """Whether texts, choices or calls are known, and all of a kind."""
        return bool(found) and all(
            one.kind == "value" and not one.fields and rule(one) for one in found
        )

    def is_call_of(self, one: Object, *names: str) -> bool:
        """Whether an object is what one of some functions of libraries gives."""
        return (
            isinstance(one.expr, ir.Call)
            and self.program.origin(one.expr.func, one.function) in names
        )

    # -- whose --------------------------------------------------------------------------------

    def own(self, function: str, birth: ir.Stmt) -> tuple[list[Move], bool]:
        """The moves of the modules that an optimizer trains; whether those modules are known."""
        trained = [*self._trained(function, birth)]
        held, trains = self._held(trained)
        own = []
        for move, moved, beside in self._moved if trained else ():
            if self._meet(moved, held) or self._meet(beside, trains):
                own.append(move)
        return own, bool(trained)

    def stays(self, function: str, birth: ir.Stmt) -> bool:
        """Whether all modules that an optimizer trains are variables for layers of torch, as these are made,
        and nothing that could move one is done with them."""
        trained = [*self._trained(function, birth)]
        return bool(trained) and all(
            isinstance(expr, ir.Name) and self._is_never_moved(expr, place[0], birth)
            for expr, place in trained
        )

    def _is_never_moved(self, name: ir.Name, function: str, birth: ir.Stmt) -> bool:
        program, owner = self.program, self.program.owner(name.id, function)
        made = [] if owner is None else program.definitions(owner, name.id)
        if len(made) != 1 or not self._makes_layers(made[0].value, made[0].function):
            return False
        around = program.control(made[0].function).around(made[0].stmt.path)
        if any(outer.kind == "with" for outer in around):
            return False  # with torch.device("cuda"):
        for where, stmt in program.mentioning(name.id):
            if program.owner(name.id, where) not in (owner, None):
                continue
            used = sum(one == name for one in parts_of(stmt))
            known = sum(
                (isinstance(one, ir.Call) and one.func == name)
                or (
                    isinstance(one, ir.Attr)
                    and one.value == name
                    and (one.attr in _KEEPS_DEVICE or stmt is birth)
                )
                for one in parts_of(stmt)
            )
            if used != known + (stmt is made[0].stmt):
                return False
        return True

    def _makes_layers(self, made: ir.Expr | None, function: str) -> bool:
        """``nn.Sequential(nn.Linear(2, 3), nn.ReLU())``: where nothing says so, on the CPU."""

        def is_made_there(given: ir.Expr) -> bool:
            # What has a name may be a module that is moved elsewhere.
            match given:
                case ir.Display(items=items):
                    return all(map(is_made_there, items))
                case ir.Name(id=name):
                    values = self.program.defined(name, function)
                    return bool(values) and all(
                        isinstance(one.value, ir.Const) for one in values
                    )
            return isinstance(given, (ir.Const, ir.Call))

        return isinstance(made, ir.Call) and all(
            (self.program.origin(call.func, function) or "").startswith("torch.nn.")
            and not any(arg.star or arg.name == "device" for arg in call.args)
            and all(is_made_there(arg.value) for arg in call.args)
            for call in ir.calls_in(made)
        )

    def may_be_trained(
        self, expr: ir.Expr, place: Place, function: str, birth: ir.Stmt
    ) -> bool:
        """Whether an expression may stand for a module, or a part of one, that an optimizer trains."""
        held, _ = self._held([*self._trained(function, birth)])
        return self._meet(self._modules([(expr, place)]), held)

    def _held(self, trained: list[tuple[ir.Expr, Place]]) -> tuple[_Sites, _Sites]:
        """What is trained and what holds that, and the former alone."""
        whole = self._modules(trained)
        around = [one for expr, place in trained for one in self._around(expr, place)]
        return _Sites(whole + around), _Sites(whole)

    @cached_property
    def _moved(self) -> list[tuple[Move, list[Object], list[Object]]]:
        """The moves of modules, and of what out of sight makes, each with what it moves, and what holds
        that."""
        return [
            (move, self._modules([(receiver, place)]), self._around(receiver, place))
            for move in self.all
            if move.receiver is not None
            and (move.kind == "module" or isinstance(move.receiver, ir.Call))
            for receiver, place in ((move.receiver, (move.function, move.stmt, ())),)
        ]

    def _trained(
        self, function: str, birth: ir.Stmt
    ) -> Iterator[tuple[ir.Expr, Place]]:
        """The modules whose parameters an optimizer is given, also through variables, and where they
        are named so."""
        pending: list[tuple[ir.Expr, Place]] = [
            (arg.value, (function, stmt, ()))
            for stmt, call in each_call((birth,))
            for arg in call.args
        ]
        seen: set[tuple[ir.Expr, str]] = set()
        while pending:
            expr, place = pending.pop()
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Attr) and inner.attr in _GIVES_PARAMETERS:
                    yield inner.value, place
                elif not isinstance(inner, (ir.Name, ir.Attr)):
                    continue
                elif self.forward.is_module(inner, place[0]):
                    yield inner, place
                elif isinstance(inner, ir.Name) and (inner, place[0]) not in seen:
                    seen.add((inner, place[0]))
                    found = self.points_to.of(inner, *place)
                    pending += ((o.expr, o.place) for o in found if o.kind == "value")

    def _modules(self, named: Iterable[tuple[ir.Expr, Place]]) -> list[Object]:
        """The modules that expressions may stand for, with those that they are given."""
        found: dict[tuple[object, ...], Object] = {}
        pending = [
            one for expr, place in named for one in self.points_to.of(expr, *place)
        ]
        while pending:
            one = pending.pop()
            if one.kind == "open" or one.is_none:
                continue
            if self._is_as_given(one):
                # The same in each statement.
                one = one._replace(stmt=None)
            key = one.key
            if key not in found:
                found[key] = one
                pending += self._finder.parts(one, key)
        return list(found.values())

    def _is_as_given(self, one: Object) -> bool:
        """Whether it is what callers that are not known give to a parameter, never to get another value."""
        name = one.expr.id if isinstance(one.expr, ir.Name) else ""
        return (
            one.kind == "lost"
            and not one.fields
            and self.program.is_param(one.function, name)
            and not self.program.definitions(one.function, name)
        )

    def _around(self, expr: ir.Expr, place: Place) -> list[Object]:
        """What holds a module."""
        found: list[Object] = []
        while isinstance(expr, (ir.Attr, ir.Item)):
            expr = expr.value
            if self.program.class_of_self(expr, place[0]) is None:
                found += self.points_to.of(expr, *place)
        return found

    def _meet(self, some: list[Object], others: _Sites) -> bool:
        return any(
            self._may_be_one(one, other) for one in some for other in others.near(one)
        )

    def _may_be_one(self, one: Object, other: Object) -> bool:
        """Whether two may be one object, or one of them a part of the other that is not followed."""
        calls = min(len(one.context), len(other.context))
        if calls and one.context[-calls:] != other.context[-calls:]:
            # Two that come from one function need not be one.
            return False
        if any(a != b for a, b in zip(one.fields, other.fields, strict=False)):
            return False
        if "instance" in (one.kind, other.kind) and one.name and other.name:
            return one.name in self.program.family(other.name)
        return one.site == other.site


def is_text(one: Object) -> bool:
    """Whether an object is a text that is written out."""
    formatted = isinstance(one.expr, ir.Operation) and one.expr.op == "joinedstr"
    return formatted or (
        isinstance(one.expr, ir.Const) and isinstance(one.expr.value, str)
    )


def is_literal_cuda(expr: ir.Expr | None) -> bool:
    """``"cuda"``, ``torch.device("cuda:0")``, ``f"cuda:{rank}"``."""
    if isinstance(expr, ir.Call) and expr.args:
        if isinstance(expr.func, ir.Attr) and isinstance(expr.func.value, ir.Const):
            return is_literal_cuda(expr.func.value)
        if (ir.dotted(expr.func) or ("",))[-1] != "device":
            return False
        return is_literal_cuda(expr.args[0].value)
    if isinstance(expr, ir.Operation) and expr.op in ("joinedstr", "%", "+"):
        return bool(expr.operands) and is_literal_cuda(expr.operands[0])
    return isinstance(expr, ir.Const) and str(expr.value).startswith(("cuda", "hip"))
