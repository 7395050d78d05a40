"""Under which keys states are saved, and from which they are loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from glob import escape

from amp_migrate.analysis.objects.points_to import EACH, item
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
                self._write(target.key, stmt.value, function, stmt)
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                if isinstance(inner, ir.Display) and inner.kind == "dict":
                    for key, value in zip(inner.keys, inner.items, strict=True):
                        self._write(key, value, function, stmt)
                elif isinstance(inner, ir.Comprehension) and len(inner.elements) == 2:
                    self._write(*inner.elements, function, stmt)
                elif isinstance(inner, ir.Call):
                    for arg in inner.args:
                        if arg.name is not None:
                            self._write(ir.Const(arg.name), arg.value, function, stmt)

    def _write(
        self, key: ir.Expr | None, value: ir.Expr, function: str, stmt: ir.Stmt
    ) -> None:
        texts = [] if key is None else self._texts(key, function, stmt)
        self.written.update(texts)
        held = _state_of(value, "state_dict")
        if held is None:
            return
        if not texts:
            self.is_whole = False
            return
        for one in self._keys(held, function, stmt):
            self.saved[one].update(texts)

    def _texts(self, key: ir.Expr, function: str, stmt: ir.Stmt) -> list[str]:
        """The keys that an expression may be; nothing where that is not told. Of ``f"{name}_state"``, a
        pattern of them."""
        points_to = self.protocol.amp.points_to
        found = list(points_to.whole(key, function, stmt))
        for one in list(found):
            match one.expr:
                case ir.Call(func=ir.Attr(value=held, attr="items")) if one.fields:
                    # What a loop goes through of a dict that is written out.
                    tables = points_to.whole(held, *one.place)
                    keys = [k for t in tables for k in getattr(t.expr, "keys", ()) if k]
                    if keys and one.fields == (EACH, item(0)):
                        found.remove(one)
                        found += [one._replace(expr=each, fields=()) for each in keys]
        texts = []
        for one in found:
            match one.expr:
                case ir.Const(value=str(text)) if not one.fields:
                    texts.append(text)
                case ir.Operation(op="joinedstr", operands=parts) if not one.fields:
                    texts.append("".join(map(_part, parts)))
        return texts if len(texts) == len(found) else []

    def judged(self, call: ir.Call, function: str, stmt: ir.Stmt) -> tuple[str, str]:
        """What is wrong with a call that loads a state, and the key of the entry."""
        held = _state_of(call, "load_state_dict")
        entry = call.argument(0, "state_dict")
        if held is None or entry is None:
            return "", ""
        taken = self._taken(entry, function, stmt)
        if taken is None:
            return "", ""
        key, demanded = taken
        texts = self._texts(key, function, stmt)
        amp = self.protocol.amp
        is_scaler = self.events.is_scaler(held, function) or any(
            isinstance(one.expr, ir.Call) and amp.makes_scaler(one.expr, one.function)
            for one in amp.points_to.of(held, function, stmt)
        )
        keys = self._keys(held, function, stmt)
        if texts and (is_scaler or keys & self.protocol.stepping.keys()):
            saved = {text for one in keys for text in self.saved.get(one, ())}
            if saved and self.is_whole and not any(map(self._is_written, texts)):
                return NOT_SAVED, texts[0]
        if texts and is_scaler and demanded:
            said = {key, *map(ir.Const, texts)}
            if not self._is_asked_for(said, function, stmt):
                return DEMANDED, texts[0]
        return "", ""

    def _is_written(self, text: str) -> bool:
        written = self.written
        return text in written or any(fnmatchcase(text, one) for one in written)

    def _taken(
        self, entry: ir.Expr, function: str, stmt: ir.Stmt
    ) -> tuple[ir.Expr, bool] | None:
        """The key that a state is loaded from, and whether it has to be there."""
        match entry:
            case ir.Item(value=holder, key=key):
                demanded = True
            case ir.Call(
                func=ir.Attr(value=holder, attr="get" | "pop" as method),
                args=(ir.Arg(value=key), *more),
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
        return (key, demanded) if self._is_loaded(holder, function, stmt) else None

    def _is_loaded(self, holder: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether something comes from a file, for all that is seen."""
        found = self.protocol.amp.points_to.whole(holder, function, stmt)
        return bool(found) and all(
            isinstance(one.expr, ir.Call)
            and not one.fields
            and self.program.origin(one.expr.func, one.function) == "torch.load"
            for one in found
        )

    def _is_asked_for(self, said: set[ir.Expr], function: str, stmt: ir.Stmt) -> bool:
        """Whether a function looks if there is such an entry, or catches that there is none."""
        for outer in ir.statements(self.program.functions[function].body):
            if outer.kind in ("try", "trystar"):
                if outer.path == stmt.path[: len(outer.path)]:
                    return True
            elif outer.kind in ("if", "while", "assert") and outer.value is not None:
                if any(inner in said for inner in ir.walk(outer.value)):
                    return True
        return False

    def _keys(self, held: ir.Expr, function: str, stmt: ir.Stmt) -> frozenset[Key]:
        """Which objects an expression may name."""
        amp = self.protocol.amp
        key = amp.key(held, function)
        found = amp.keys(held, function, stmt) or ([] if key is None else [key])
        return frozenset(found)


def _part(expr: ir.Expr) -> str:
    """A part of a text, as a pattern of what it may be."""
    if isinstance(expr, ir.Const) and isinstance(expr.value, str):
        return escape(expr.value)
    return "*"


def _state_of(expr: ir.Expr, method: str) -> ir.Expr | None:
    """What a state is that of; also where a test stands before it: ``x.state_dict() if x else None``."""
    if isinstance(expr, ir.Operation) and expr.op == "if":
        found = (_state_of(one, method) for one in expr.operands[1:])
        return next((one for one in found if one is not None), None)
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        return expr.func.value if expr.func.attr == method else None
    return None
