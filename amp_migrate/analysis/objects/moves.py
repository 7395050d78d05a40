"""What a script puts on an accelerator, by which expression, and under which tests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.tables.destinations import DEVICE, UNKNOWN, kind_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.control_flow import is_main_guard
from amp_migrate.program.link import Program

_RANK = re.compile(r"(?i)(^|[._])(local_?rank|rank|gpus?|gpu_?ids?|device_?ids?)$")
_LOSS = re.compile(r"(?i)(criterion|loss)")
_LOOP_KINDS = ("for", "while")
_MOST_NAMES = 6

Guards = tuple[tuple[ir.Expr, bool], ...]
"""Tests around a place, each with the outcome that leads there."""

Thing = tuple[str, ...]
"""A variable, attribute, statement or class that holds a module on its way."""


@dataclass(frozen=True, slots=True)
class Move:
    """Something is put on an accelerator.

    ``device`` is None for ``.cuda()`` and for literal CUDA devices. ``kind``: ``module``, ``loss``,
    ``data``, ``setting`` (a default for all that follows), ``mention`` (a CUDA device is made).
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


class Moves:
    """The moves in some files of a program."""

    def __init__(
        self, program: Program, forward: Forward, files: Collection[str]
    ) -> None:
        self.program = program
        self.forward = forward
        self.all = [
            move
            for qualname, function in program.functions.items()
            if ir.file_of(qualname) in files
            for found in self._in_block(qualname, function.body, (), False)
            for move in self._alternatives(found)
        ]
        self.reaching = [m for m in self.all if not self.is_cpu(m.device, m.function)]

    # -- finding ------------------------------------------------------------------------------

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
            isinstance(inner, ir.Name) and inner.id in names
            for function in self.program.functions.values()
            for other in ir.statements(function.body)
            if other is not stmt
            for expr in other.exprs
            for inner in ir.walk(expr)
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
            if not (isinstance(given, ir.Const) and "cuda" not in str(given.value)):
                yield Move(function, stmt, None, guards, "setting")
        elif called == "torch.cuda.set_device":
            yield Move(function, stmt, None, guards, "data")
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
        elif func.attr == "to" and call.args:
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

    # -- devices ------------------------------------------------------------------------------

    def is_cpu(self, expr: ir.Expr | None, function: str, depth: int = 0) -> bool:
        """Whether a device expression can only be something else than CUDA."""
        if expr is None or depth > 4:
            return False
        if isinstance(expr, ir.Const):
            return isinstance(expr.value, str) and not is_literal_cuda(expr)
        if (
            isinstance(expr, ir.Call)
            and self.program.origin(expr.func, function) == "torch.device"
        ):
            given = expr.argument(0, "device")
            return given is not None and self.is_cpu(given, function, depth + 1)
        if isinstance(expr, ir.Operation) and expr.op == "if":
            return all(self.is_cpu(o, function, depth + 1) for o in expr.operands[1:])
        values = self._values(expr, function)
        return bool(values) and all(
            value is not None and self.is_cpu(value, at, depth + 1)
            for at, value in values
        )

    def is_always_cuda(self, expr: ir.Expr, function: str) -> bool:
        """Whether a variable holds nothing but literal CUDA devices, wherever it is bound at all."""
        values = self._values(expr, function)
        return bool(values) and all(is_literal_cuda(value) for _, value in values)

    def is_cuda_if_available(
        self, expr: ir.Expr, function: str, depth: int = 0
    ) -> bool:
        """Whether a device is CUDA where there is any, and the CPU else: nothing else decides it."""
        program = self.program
        if depth > _MOST_NAMES:
            return False
        match expr:
            case ir.Operation(op="if", operands=(ir.Call(func=func), chosen, other)):
                return (
                    program.origin(func, function) == "torch.cuda.is_available"
                    and self._names_device(chosen, function, "cuda")
                    and self._names_device(other, function, "cpu")
                )
            case ir.Call(func=func, args=(ir.Arg(value=given),)):
                return program.origin(
                    func, function
                ) == "torch.device" and self.is_cuda_if_available(
                    given, function, depth + 1
                )
            case ir.Name() | ir.Attr():
                values = self._values(expr, function)
                return bool(values) and all(
                    value is not None
                    and self.is_cuda_if_available(value, at, depth + 1)
                    for at, value in values
                )
        return False

    def _names_device(self, expr: ir.Expr, function: str, kind: str) -> bool:
        if isinstance(expr, ir.Call) and len(expr.args) == 1:
            if self.program.origin(expr.func, function) == "torch.device":
                expr = expr.args[0].value
        if not isinstance(expr, ir.Const) or not isinstance(expr.value, str):
            return False
        return expr.value.partition(":")[0] == kind

    def _values(self, expr: ir.Expr, function: str) -> list[tuple[str, ir.Expr | None]]:
        """(function, value) of all that a variable, or an attribute of one's own, is given."""
        program = self.program
        if isinstance(expr, ir.Name):
            owner = program.owner(expr.id, function)
            if owner is None:
                return []
            found = [(d.function, d.value) for d in program.definitions(owner, expr.id)]
            if any(p.name == expr.id for p in program.functions[owner].params):
                found += program.arguments(owner, expr.id)
            return found
        own = program.self_class(function)
        if isinstance(expr, ir.Attr) and own is not None:
            if expr.value == ir.Name(own[0]):
                made = program.attribute_definitions(own[1], expr.attr)
                return [(d.function, d.value) for d in made]
        return []

    # -- whose --------------------------------------------------------------------------------

    def own(self, function: str, birth: ir.Stmt) -> tuple[list[Move], bool]:
        """The moves of the modules that an optimizer trains; whether those modules are known."""
        things: set[Thing] = set()
        for stmt in ir.statements((birth,)):
            for call in calls_of(stmt):
                for trained, at in self._trained(call, function, 0):
                    things |= self._things(trained, at, True)
        modules = [m for m in self.all if m.kind == "module"]
        own = []
        for move in modules:
            here: set[Thing] = {("stmt", move.function, str(move.stmt.path))}
            if move.receiver is not None:
                here |= self._things(move.receiver, move.function, False)
            if here & things:
                own.append(move)
        return own, bool(things)

    def _trained(
        self, call: ir.Call, function: str, depth: int
    ) -> Iterator[tuple[ir.Expr, str]]:
        """The modules whose parameters a call is given, also through variables, and who names them so."""
        for arg in call.args:
            for inner in ir.walk(arg.value):
                if isinstance(inner, ir.Attr) and inner.attr in (
                    "parameters",
                    "named_parameters",
                ):
                    yield inner.value, function
                elif isinstance(inner, (ir.Name, ir.Attr)):
                    if self.forward.is_module(inner, function):
                        yield inner, function
                    elif isinstance(inner, ir.Name) and depth < 3:
                        for at, value in self._values(inner, function):
                            if value is not None and not isinstance(value, ir.Name):
                                wrapped = ir.Call(ir.Name("list"), (ir.Arg(value),))
                                yield from self._trained(wrapped, at, depth + 1)

    def _things(self, expr: ir.Expr, function: str, trained: bool) -> set[Thing]:
        """All that a module passes through on its way to an expression."""
        found: set[Thing] = set()
        pending = [(expr, function, 0)]
        own = self.program.self_class(function)
        if trained or (own is not None and expr == ir.Name(own[0])):
            for ref in self.program.resolve(expr, function):
                if ref.kind == "instance":
                    found.add(("inst", min(self.program.family(ref.name))))
        while pending:
            current, at, depth = pending.pop()
            if depth > 8:
                continue
            for thing, sources in self._sources(current, at, trained):
                if thing is not None:
                    if thing in found:
                        continue
                    found.add(thing)
                pending += [(source, where, depth + 1) for source, where in sources]
        return found

    def _sources(
        self, expr: ir.Expr, at: str, trained: bool
    ) -> Iterator[tuple[Thing | None, list[tuple[ir.Expr, str]]]]:
        program = self.program
        own = program.self_class(at)
        match expr:
            case ir.Name(id=name):
                owner = program.owner(name, at)
                if owner is None or (own is not None and name == own[0]):
                    return
                found = [(v, c) for c, v in program.arguments(owner, name)]
                for d in program.definitions(owner, name):
                    value = d.value if d.value is not None else d.stmt.value
                    if value is not None:
                        found.append((value, d.function))
                    yield ("stmt", d.function, str(d.stmt.path)), []
                yield ("var", owner, name), found
            case ir.Attr(value=value, attr=attr):
                for class_name in program.instance_classes(value, at):
                    found = []
                    for d in program.attribute_definitions(class_name, attr):
                        if d.value is not None:
                            found.append((d.value, d.function))
                        yield ("stmt", d.function, str(d.stmt.path)), []
                    yield ("attr", min(program.family(class_name)), attr), found
                if own is None or value != ir.Name(own[0]):
                    yield None, [(value, at)]
            case ir.Call(func=func, args=args):
                inner = [(arg.value, at) for arg in args]
                if isinstance(func, ir.Attr) and program.origin(func, at) is None:
                    inner.append((func.value, at))
                if not trained:
                    # Two models may come from one function: that does not make them one.
                    yield None, inner
                    return
                inner += [(value, c) for c, value in program.returns(expr, at)]
                yield None, inner
                for callee in program.callees(expr, at):
                    for stmt in ir.statements(program.functions[callee].body):
                        if stmt.kind == "return":
                            yield ("stmt", callee, str(stmt.path)), []
            case ir.Item(value=value) | ir.Walrus(value=value):
                yield None, [(value, at)]
            case ir.Display(items=items):
                yield None, [(item, at) for item in items]
            case ir.Operation(operands=operands):
                yield None, [(operand, at) for operand in operands]


def is_literal_cuda(expr: ir.Expr | None) -> bool:
    """``"cuda"``, ``torch.device("cuda:0")``, ``f"cuda:{rank}"``."""
    if isinstance(expr, ir.Call) and expr.args:
        return is_literal_cuda(expr.args[0].value)
    if isinstance(expr, ir.Operation) and expr.op in ("joinedstr", "%", "+"):
        return bool(expr.operands) and is_literal_cuda(expr.operands[0])
    return isinstance(expr, ir.Const) and str(expr.value).startswith(("cuda", "hip"))
