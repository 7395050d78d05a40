"""Where a script decides its device, told as the condition under which AMP is on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.facts import ir
from amp_migrate.project.link import Definition, Program

_RANK = re.compile(r"(?i)(^|[._])(local_?rank|rank|gpus?|gpu_?ids?|device_?ids?)$")
_CUDA_WORD = re.compile(r"(?i)cuda|gpu")


@dataclass(frozen=True, slots=True)
class Decision:
    """``enabled``: an expression for the switch; ``after``: a statement it must not be before."""

    enabled: str
    after: ir.Stmt | None = None


@dataclass(frozen=True, slots=True)
class Undecided:
    """``cpu_only``: nothing in the file reaches an accelerator; else the decision is out of sight."""

    cpu_only: bool
    reason: str


@dataclass(frozen=True, slots=True)
class _Move:
    """Something is put on an accelerator: by a device expression, or by ``.cuda()`` under tests."""

    function: str
    device: ir.Expr | None
    tests: tuple[ir.Expr, ...]
    line: int


class Devices:
    """The device decisions of one program."""

    def __init__(self, program: Program, torch_name: str) -> None:
        self.program = program
        self.torch = torch_name
        self.moves = list(self._moves())

    def decide(self, function: str, birth: ir.Stmt) -> Decision | Undecided:
        """The condition for a switch that is born right after ``birth`` in ``function``."""
        reaching = [
            move for move in self.moves if not self._is_cpu(move.device, move.function)
        ]
        if not reaching:
            return Undecided(True, "nothing here is moved to an accelerator")
        unseen = False
        for expr, at in self._device_expressions(reaching):
            found = self._visible_device(expr, at, function, birth)
            if found is not None:
                return found
            unseen = True
        plain = [move for move in reaching if move.device is None]
        available = f"{self.torch}.cuda.is_available()"
        flags: list[Decision] = []
        for move in plain:
            for test in move.tests:
                flag = self._flag(test, move.function, function, birth)
                if flag is not None:
                    flags.append(flag)
        if flags:
            return flags[0]
        if any(not move.tests for move in plain) or any(
            self._is_literal_cuda(move.device) for move in reaching
        ):
            if not unseen or plain:
                return Decision(available)
        return Undecided(
            False, "where the device is decided cannot be seen from the optimizer"
        )

    # -- moves --------------------------------------------------------------------------------

    def _moves(self) -> Iterator[_Move]:
        for qualname, function in self.program.functions.items():
            yield from self._moves_in(qualname, function.body, ())

    def _moves_in(
        self, function: str, body: tuple[ir.Stmt, ...], tests: tuple[ir.Expr, ...]
    ) -> Iterator[_Move]:
        for stmt in body:
            for expr in stmt.exprs:
                yield from self._moves_of(expr, function, stmt.line, tests)
            for block in stmt.blocks:
                inner = tests
                if (
                    stmt.kind == "if"
                    and stmt.value is not None
                    and block.field == "body"
                ):
                    if self._is_about_cuda(stmt.value, function):
                        inner = (*tests, stmt.value)
                yield from self._moves_in(function, block.body, inner)

    def _moves_of(
        self, expr: ir.Expr, function: str, line: int, tests: tuple[ir.Expr, ...]
    ) -> Iterator[_Move]:
        if isinstance(expr, ir.Operation) and expr.op == "if":
            test, body, orelse = expr.operands
            about = self._is_about_cuda(test, function)
            yield from self._moves_of(
                body, function, line, (*tests, test) if about else tests
            )
            yield from self._moves_of(orelse, function, line, tests)
            return
        for child in ir.children(expr):
            yield from self._moves_of(child, function, line, tests)
        origin = (
            self.program.origin(expr, function) if isinstance(expr, ir.Attr) else None
        )
        if (
            origin is not None
            and origin.startswith("torch.cuda.")
            and origin.endswith("Tensor")
        ):
            yield _Move(function, None, tests, line)
        if not isinstance(expr, ir.Call):
            return
        called = self.program.origin(expr.func, function)
        if called == "torch.set_default_device":
            yield _Move(function, expr.argument(0, "device"), tests, line)
        elif called in ("torch.set_default_tensor_type", "torch.cuda.set_device"):
            given = expr.argument(0, "t")
            if isinstance(given, ir.Const) and "cuda" not in str(given.value):
                return
            yield _Move(function, None, tests, line)
        elif called == "torch.device":
            given = expr.argument(0, "device")
            if given is not None and self._is_literal_cuda(given) and not tests:
                yield _Move(function, expr, tests, line)
        elif isinstance(expr.func, ir.Attr) and called is None:
            if expr.func.attr == "cuda":
                yield _Move(function, None, tests, line)
            elif expr.func.attr == "to" and expr.args:
                given = expr.argument(0, "device")
                if given is not None and not self._is_dtype(given, function):
                    ranked = _RANK.search(ir.key_of(given) or "") or (
                        isinstance(given, ir.Const) and isinstance(given.value, int)
                    )
                    # A rank is the number of an accelerator: there is no CPU of that name.
                    yield _Move(function, None if ranked else given, tests, line)
        device = next((arg.value for arg in expr.args if arg.name == "device"), None)
        if device is not None and called is not None and called.startswith("torch."):
            yield _Move(function, device, tests, line)

    def _is_dtype(self, expr: ir.Expr, function: str) -> bool:
        origin = self.program.origin(expr, function) or ""
        if re.fullmatch(
            r"torch\.(b?float\w*|double|half|u?int\w*|long|short|bool|complex\w*)",
            origin,
        ):
            return True
        if isinstance(expr, ir.Const):
            return not isinstance(expr.value, (str, int)) or isinstance(
                expr.value, bool
            )
        return isinstance(expr, ir.Attr) and expr.attr == "dtype"

    def _is_literal_cuda(self, expr: ir.Expr | None) -> bool:
        if isinstance(expr, ir.Call) and expr.args:
            expr = expr.args[0].value
        return isinstance(expr, ir.Const) and str(expr.value).startswith(
            ("cuda", "hip")
        )

    def _is_cpu(self, expr: ir.Expr | None, function: str, depth: int = 0) -> bool:
        """Whether a device expression can only be the CPU."""
        if expr is None or depth > 4:
            return False
        if isinstance(expr, ir.Const):
            return expr.value == "cpu"
        if (
            isinstance(expr, ir.Call)
            and self.program.origin(expr.func, function) == "torch.device"
        ):
            given = expr.argument(0, "device")
            return given is not None and self._is_cpu(given, function, depth + 1)
        if isinstance(expr, ir.Operation) and expr.op == "if":
            return all(self._is_cpu(o, function, depth + 1) for o in expr.operands[1:])
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            if owner is None or any(
                p.name == expr.id for p in self.program.functions[owner].params
            ):
                return owner is not None and self._parameter_is_cpu(
                    owner, expr.id, depth
                )
            found = self.program.definitions(owner, expr.id)
            return bool(found) and all(
                d.value is not None and self._is_cpu(d.value, d.function, depth + 1)
                for d in found
            )
        return False

    def _parameter_is_cpu(self, owner: str, name: str, depth: int) -> bool:
        values = self.program.arguments(owner, name)
        return bool(values) and all(
            self._is_cpu(v, caller, depth + 1) for caller, v in values
        )

    # -- a device variable --------------------------------------------------------------------

    def _device_expressions(self, moves: list[_Move]) -> list[tuple[ir.Expr, str]]:
        """Device expressions by how much they say: ``.to(device)`` first, names called device first."""
        found: dict[tuple[str | None, str], tuple[ir.Expr, str]] = {}
        for move in moves:
            if move.device is None or isinstance(move.device, (ir.Const, ir.Call)):
                continue
            key = ir.key_of(move.device)
            if key is not None:
                found.setdefault((key, move.function), (move.device, move.function))
        ranked = sorted(
            found.items(), key=lambda item: "device" not in (item[0][0] or "")
        )
        return [value for _, value in ranked]

    def _visible_device(
        self, expr: ir.Expr, at: str, function: str, birth: ir.Stmt
    ) -> Decision | None:
        """The decision by a device expression used in ``at``, as ``function`` can see it."""
        program = self.program
        root = expr
        while isinstance(root, (ir.Attr, ir.Item)):
            root = root.value
        if not isinstance(root, ir.Name):
            return None
        own = program.self_class(at)
        if own is not None and root.id == own[0]:
            held = expr
            while isinstance(held, (ir.Attr, ir.Item)) and held.value != root:
                held = held.value
            if not isinstance(held, ir.Attr):
                return None
            return self._visible_attribute(expr, held, own[1], function, birth)
        owner = program.owner(root.id, at)
        here = program.owner(root.id, function)
        if owner is None:
            return None
        if here != owner:
            return self._through_caller(expr, root, owner, function, birth)
        return self._as_decision(expr, root.id, owner, function, birth)

    def _visible_attribute(
        self,
        expr: ir.Expr,
        held: ir.Attr,
        class_name: str,
        function: str,
        birth: ir.Stmt,
    ) -> Decision | None:
        """``expr`` is ``held`` (``self.device``) or something inside it (``self.args.device``)."""
        program = self.program
        own = program.self_class(function)
        definitions = program.attribute_definitions(class_name, held.attr)
        if own is not None and own[1] in program.family(class_name):
            local = _replaced(expr, held, ir.Attr(ir.Name(own[0]), held.attr))
            before = [
                d
                for d in definitions
                if d.function != function or d.stmt.line < birth.line
            ]
            if not before:
                return None
            inner = [] if expr is not held else before
            return self._by_definitions(local, inner, None)
        for definition in definitions:
            # The attribute is set from a parameter, which the birth's function passes in.
            if isinstance(definition.value, ir.Name):
                given = _replaced(expr, held, definition.value)
                found = self._visible_device(
                    given, definition.function, function, birth
                )
                if found is not None:
                    return found
        return None

    def _through_caller(
        self, expr: ir.Expr, root: ir.Name, owner: str, function: str, birth: ir.Stmt
    ) -> Decision | None:
        """A parameter that the birth's function fills: what it passes decides."""
        for caller, value in self.program.arguments(owner, root.id):
            if caller == function and not isinstance(value, ir.Call):
                given = _replaced(expr, root, value)
                return self._visible_device(given, caller, function, birth)
        return None

    def _as_decision(
        self, expr: ir.Expr, name: str, owner: str, function: str, birth: ir.Stmt
    ) -> Decision | None:
        program = self.program
        is_param = any(p.name == name for p in program.functions[owner].params)
        definitions = program.definitions(owner, name)
        depth = len(program.functions[function].path) + 1
        certain = [
            d
            for d in definitions
            if d.function == function
            and d.stmt.line < birth.line
            and len(d.stmt.path) == depth
        ]
        if certain and isinstance(expr, ir.Name):
            # Set on every way to the birth: earlier values no longer count.
            return self._by_definitions(expr, certain[-1:], None)
        if isinstance(expr, ir.Name):
            if is_param:
                param = next(
                    p for p in program.functions[owner].params if p.name == name
                )
                if param.default == ir.Const(None):
                    return None
                values = [
                    Definition(c, birth, v) for c, v in program.arguments(owner, name)
                ]
                return self._by_definitions(expr, values, None)
            if owner == function:
                late = [d for d in definitions if d.stmt.line > birth.line]
                if late and len(late) == len(definitions):
                    after = late[-1].stmt
                    if (
                        after.path[:-1] != birth.path[:-1]
                        or after.path[-1][0] != birth.path[-1][0]
                    ):
                        return None
                    return self._by_definitions(expr, definitions, after)
            return self._by_definitions(expr, definitions, None)
        if owner == function and not is_param:
            if not any(d.stmt.line < birth.line for d in definitions):
                return None
        return self._by_definitions(expr, self._member_definitions(expr, owner), None)

    def _member_definitions(self, expr: ir.Expr, owner: str) -> list[Definition]:
        """``args.device = ...`` wherever it is assigned."""
        return [
            Definition(qualname, stmt, stmt.value)
            for qualname, function in self.program.functions.items()
            for stmt in ir.statements(function.body)
            if stmt.kind == "assign" and expr in stmt.targets
        ]

    def _by_definitions(
        self, expr: ir.Expr, definitions: list[Definition], after: ir.Stmt | None
    ) -> Decision | None:
        text = ir.render(expr)
        values = [d.value for d in definitions if d.value is not None]
        if text is None or any(value == ir.Const(None) for value in values):
            return None
        kinds = {
            self._is_device_object(d.value, d.function)
            for d in definitions
            if d.value is not None and d.index is None
        }
        if kinds == {True} and len(values) == len(definitions):
            return Decision(f'{text}.type == "cuda"', after)
        return Decision(f'{self.torch}.device({text}).type == "cuda"', after)

    def _is_device_object(self, expr: ir.Expr, function: str, depth: int = 0) -> bool:
        if depth > 4:
            return False
        if isinstance(expr, ir.Operation) and expr.op == "if":
            return all(
                self._is_device_object(o, function, depth + 1)
                for o in expr.operands[1:]
            )
        if isinstance(expr, ir.Name):
            owner = self.program.owner(expr.id, function)
            if owner is None:
                return False
            if any(p.name == expr.id for p in self.program.functions[owner].params):
                given = self.program.arguments(owner, expr.id)
                return bool(given) and all(
                    self._is_device_object(v, caller, depth + 1) for caller, v in given
                )
            found = self.program.definitions(owner, expr.id)
            return bool(found) and all(
                d.value is not None
                and d.index is None
                and self._is_device_object(d.value, d.function, depth + 1)
                for d in found
            )
        if isinstance(expr, ir.Call):
            origin = self.program.origin(expr.func, function)
            return origin in ("torch.device", "torch.accelerator.current_accelerator")
        return False

    # -- a flag -------------------------------------------------------------------------------

    def _is_about_cuda(self, test: ir.Expr, function: str, depth: int = 0) -> bool:
        for inner in ir.walk(test):
            if isinstance(inner, ir.Attr) and _CUDA_WORD.search(inner.attr):
                return True
            if isinstance(inner, ir.Name):
                if _CUDA_WORD.search(inner.id):
                    return True
                owner = self.program.owner(inner.id, function)
                if owner is not None and depth < 3:
                    for d in self.program.definitions(owner, inner.id):
                        if d.value is not None and isinstance(
                            d.value, (ir.Call, ir.Operation)
                        ):
                            if self._is_about_cuda(d.value, d.function, depth + 1):
                                return True
        return False

    def _flag(
        self, test: ir.Expr, at: str, function: str, birth: ir.Stmt
    ) -> Decision | None:
        program = self.program
        if (
            isinstance(test, ir.Call)
            and program.origin(test.func, at) == "torch.cuda.is_available"
        ):
            return Decision(f"{self.torch}.cuda.is_available()")
        text = ir.render(test)
        for inner in ir.walk(test):
            if isinstance(inner, ir.Name) and program.origin(inner, at) is None:
                owner = program.owner(inner.id, at)
                if owner is None or owner != program.owner(inner.id, function):
                    return self._flag_elsewhere(test, at, function, birth)
                defined = program.definitions(owner, inner.id)
                is_param = any(
                    p.name == inner.id for p in program.functions[owner].params
                )
                if owner == function and not is_param:
                    if not any(d.stmt.line < birth.line for d in defined):
                        return None
        if text is None:
            return None
        return Decision(text if self._is_boolean(test, at) else f"bool({text})")

    def _flag_elsewhere(
        self, test: ir.Expr, at: str, function: str, birth: ir.Stmt
    ) -> Decision | None:
        """A flag that the birth cannot see, but whose one value it can repeat."""
        program = self.program
        if isinstance(test, ir.Name):
            owner = program.owner(test.id, at)
            if owner is None:
                return None
            if any(p.name == test.id for p in program.functions[owner].params):
                for caller, value in program.arguments(owner, test.id):
                    if caller == function:
                        return self._flag(value, caller, function, birth)
                return None
            found = program.definitions(owner, test.id)
            if len(found) == 1 and found[0].value is not None:
                return self._flag(found[0].value, found[0].function, function, birth)
        return None

    def _is_boolean(self, expr: ir.Expr, function: str, depth: int = 0) -> bool:
        if depth > 4:
            return False
        match expr:
            case ir.Const(value=bool()):
                return True
            case ir.Operation(
                op="not" | "is" | "is not" | "==" | "!=" | ">" | ">=" | "<" | "<="
            ):
                return True
            case ir.Operation(op="and" | "or", operands=operands):
                return all(
                    self._is_boolean(operand, function, depth + 1)
                    for operand in operands
                )
            case ir.Call(func=func):
                origin = self.program.origin(func, function)
                return origin in ("torch.cuda.is_available", "builtins.bool")
            case ir.Name(id=name):
                owner = self.program.owner(name, function)
                if owner is None or any(
                    p.name == name for p in self.program.functions[owner].params
                ):
                    return False
                found = self.program.definitions(owner, name)
                return bool(found) and all(
                    d.value is not None
                    and self._is_boolean(d.value, d.function, depth + 1)
                    for d in found
                )
            case ir.Attr(attr=attr):
                assigned = self._member_definitions(expr, function)
                if assigned:
                    return all(
                        d.value is not None
                        and self._is_boolean(d.value, d.function, depth + 1)
                        for d in assigned
                    )
                return self._is_store_true(attr)
        return False

    def _is_store_true(self, attr: str) -> bool:
        """Whether the program's argparse makes ``args.attr`` a bool."""
        for _, _, call in self.program.all_calls():
            if isinstance(call.func, ir.Attr) and call.func.attr == "add_argument":
                given = {
                    a.value.value for a in call.args if isinstance(a.value, ir.Const)
                }
                spelled = {
                    str(g).lstrip("-").replace("-", "_")
                    for g in given
                    if isinstance(g, str)
                }
                if attr in spelled and {"store_true", "store_false"} & given:
                    return True
        return False


def _replaced(expr: ir.Expr, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    """An attribute or item chain with one of its links replaced."""
    if expr == old:
        return new
    if isinstance(expr, ir.Attr):
        return ir.Attr(_replaced(expr.value, old, new), expr.attr)
    if isinstance(expr, ir.Item):
        return ir.Item(_replaced(expr.value, old, new), expr.key)
    return expr
