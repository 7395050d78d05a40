"""Under which keys states are saved, and from which they are loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import Key
from amp_migrate.lint.misuse.order.protocol import Protocol, protocol_of
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of

DEMANDED = "AMP125"
NOT_SAVED = "AMP126"


def check(context: Context, file: str) -> Iterable[Finding]:
    """What is wrong in one file of a program."""
    protocol = protocol_of(context)
    if not protocol.stepping:
        return
    entries = context.shared.get("misuse.entries")
    if not isinstance(entries, _Entries):
        entries = context.shared["misuse.entries"] = _Entries(protocol)
    for function in context.functions(file):
        for stmt in ir.statements(context.program.functions[function].body):
            for call in calls_of(stmt):
                code, key = entries.judged(call, function, stmt)
                if code == NOT_SAVED:
                    message = f'nothing saves it under "{key}": the state of training is not loaded'
                    yield context.finding(code, function, call, message)
                elif code:
                    yield context.finding(code, function, call)


class _Entries:
    """The entries of checkpoints in one program."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.events = protocol.events
        self.program = protocol.amp.program
        self.saved: dict[Key, set[str]] = defaultdict(set)
        """By object, the keys under which its state is saved."""
        self.written: set[str] = set()
        """All keys that are written into any dict."""
        self.is_whole = True
        """Every state that is saved goes under a key that is in sight."""
        for function, stmt in self.program.all_statements():
            self._note(function, stmt)

    def _note(self, function: str, stmt: ir.Stmt) -> None:
        for target in stmt.targets:
            if isinstance(target, ir.Item) and stmt.value is not None:
                self._write(target.key, stmt.value, function)
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Display) and inner.kind == "dict":
                    for key, value in zip(inner.keys, inner.items, strict=True):
                        self._write(key, value, function)
                elif isinstance(inner, ir.Comprehension) and len(inner.elements) == 2:
                    self._write(*inner.elements, function)
                elif isinstance(inner, ir.Call):
                    for arg in inner.args:
                        if arg.name is not None:
                            self._write(ir.Const(arg.name), arg.value, function)

    def _write(self, key: ir.Expr | None, value: ir.Expr, function: str) -> None:
        text = None if key is None else self.protocol.amp.text(key, function)
        if text is not None:
            self.written.add(text)
        held = _state_of(value, "state_dict")
        if held is None:
            return
        if text is None:
            self.is_whole = False
            return
        for one in self._keys(held, function):
            self.saved[one].add(text)

    def judged(self, call: ir.Call, function: str, stmt: ir.Stmt) -> tuple[str, str]:
        """What is wrong with a call that loads a state, and the key of the entry."""
        held = _state_of(call, "load_state_dict")
        entry = call.argument(0, "state_dict")
        if held is None or entry is None:
            return "", ""
        taken = self._taken(entry, function, stmt)
        if taken is None:
            return "", ""
        text, demanded = taken
        is_scaler = self.events.is_scaler(held, function)
        keys = self._keys(held, function)
        if is_scaler or keys & self.protocol.stepping.keys():
            saved = {text for one in keys for text in self.saved.get(one, ())}
            if saved and self.is_whole and text not in self.written:
                return NOT_SAVED, text
        if is_scaler and demanded and not self._is_asked_for(text, function, stmt):
            return DEMANDED, text
        return "", ""

    def _taken(
        self, entry: ir.Expr, function: str, stmt: ir.Stmt
    ) -> tuple[str, bool] | None:
        """The key that a state is loaded from, and whether it has to be there."""
        match entry:
            case ir.Item(value=holder, key=ir.Const(value=str(text))):
                demanded = True
            case ir.Call(
                func=ir.Attr(value=holder, attr="get" | "pop" as method),
                args=(ir.Arg(value=ir.Const(value=str(text))), *more),
            ):
                demanded = method == "pop" and not more
            case ir.Name(id=name):
                found, started = self.program.control(function).reaching(
                    name, stmt.path
                )
                made = found[0] if len(found) == 1 and not started else None
                if made is None or made.kind != "assign" or made.value is None:
                    return None
                if isinstance(made.value, ir.Name):
                    return None
                return self._taken(made.value, function, made)
            case _:
                return None
        return (text, demanded) if self._is_loaded(holder, function, stmt) else None

    def _is_loaded(self, holder: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether something comes from a file, for all that is seen."""
        found = self.protocol.amp.points_to.whole(holder, function, stmt)
        return bool(found) and all(
            isinstance(one.expr, ir.Call)
            and not one.fields
            and self.program.origin(one.expr.func, one.function) == "torch.load"
            for one in found
        )

    def _is_asked_for(self, text: str, function: str, stmt: ir.Stmt) -> bool:
        """Whether a function looks if there is such an entry, or catches that there is none."""
        for outer in ir.statements(self.program.functions[function].body):
            if outer.kind in ("try", "trystar"):
                if outer.path == stmt.path[: len(outer.path)]:
                    return True
            elif outer.kind in ("if", "while", "assert") and outer.value is not None:
                if any(inner == ir.Const(text) for inner in ir.walk(outer.value)):
                    return True
        return False

    def _keys(self, held: ir.Expr, function: str) -> frozenset[Key]:
        """Which objects an expression may name."""
        amp = self.protocol.amp
        key = amp.key(held, function)
        return frozenset(amp.keys(held, function) or ([] if key is None else [key]))


def _state_of(expr: ir.Expr, method: str) -> ir.Expr | None:
    """What a state is that of; also where a test stands before it: ``x.state_dict() if x else None``."""
    if isinstance(expr, ir.Operation) and expr.op == "if":
        found = (_state_of(one, method) for one in expr.operands[1:])
        return next((one for one in found if one is not None), None)
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        return expr.func.value if expr.func.attr == method else None
    return None
