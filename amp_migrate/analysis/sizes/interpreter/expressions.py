"""Expressions to values."""

from __future__ import annotations

from dataclasses import replace

from amp_migrate.analysis.sizes.domain.arithmetic import (
    MAX_TEXT,
    binary,
    sure,
    truth,
    unary,
)
from amp_migrate.analysis.sizes.domain.choices import joined, lifted
from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.lookup import Lookup
from amp_migrate.analysis.sizes.domain.values import (
    ITEMS,
    OPEN,
    Choice,
    Frame,
    Known,
    Lambda,
    Mapping_,
    Sequence,
    Super,
    Tensor,
    Tup,
    Unknown,
    Value,
    confidence_of,
    weakened,
    weakest,
)
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir


class Expressions(Lookup):
    """What an expression is worth."""

    def evaluate(self, expr: ir.Expr, frame: Frame) -> Value:
        """What an expression is worth; nothing is raised but for the bounds."""
        self.steps += 1
        if self.steps > self.limit:
            self.out_of_steps()
        # What most expressions are: to match patterns takes longer.
        if isinstance(expr, ir.Name):
            return self.name(expr.id, frame)
        if isinstance(expr, ir.Const):
            return Known(expr.value)
        if isinstance(expr, ir.Attr):
            found = self.dotted(expr, frame)
            if found is not None:
                return found
            return self.attribute(self.evaluate(expr.value, frame), expr.attr)
        if isinstance(expr, ir.Call):
            return self._call(expr, frame)
        match expr:
            case ir.Operation():
                return self._operation(expr, frame)
            case ir.Item(value=value, key=key):
                return self.subscript(value, key, frame)
            case ir.Display():
                return self.display(expr, frame)
            case ir.Deferred():
                frame.capture()
                return Lambda(expr, frame)
            case ir.Comprehension():
                return self.comprehension(expr, frame)
            case ir.Walrus(target=target, value=value):
                got = self.evaluate(value, frame)
                self.assign(target, got, frame)
                return got
            case ir.Suspend(value=inner):
                if inner is not None:
                    self.evaluate(inner, frame)
                return Unknown("await or yield")

    # -- calls --------------------------------------------------------------------------------

    def _call(self, expr: ir.Call, frame: Frame) -> Value:
        if isinstance(expr.func, ir.Name) and expr.func.id == "super":
            return self._super(frame)
        func = self.evaluate(expr.func, frame)
        given = self.given(expr, frame)
        return self.call(func, given, expr, frame)

    def _super(self, frame: Frame) -> Value:
        current: Frame | None = frame
        while current is not None and current.owner is None:
            current = current.parent
        if current is None or current.owner is None or current.receiver is None:
            return Unknown("super")
        return Super(current.receiver, current.owner)

    def given(self, expr: ir.Call, frame: Frame) -> Given:
        """The arguments of a call, evaluated."""
        given = Given(line=expr.line)
        for arg in expr.args:
            value = self.evaluate(arg.value, frame)
            if arg.star == "*":
                items = self.elements(value)
                if items is None:
                    given.rest = "unknown"
                else:
                    given.positional += items
            elif arg.star == "**":
                self._splat(value, given)
            elif arg.name is not None:
                given.keywords[arg.name] = value
                given.exprs[arg.name] = arg.value
            else:
                if given.rest == "unknown":
                    # Behind an unknown number of others: which parameter it is for is not known.
                    continue
                given.exprs[len(given.positional)] = arg.value
                given.positional.append(value)
        return given

    def _splat(self, value: Value, given: Given) -> None:
        if not isinstance(value, Mapping_):
            if not (isinstance(value, Known) and value.value is None):
                given.rest = "unknown"
            return
        entries = value.entries()
        openness = value.state.get(OPEN)
        if isinstance(openness, Unknown) or not all(
            isinstance(k, str) for k in entries
        ):
            given.rest = "unknown"
            return
        if openness is not None and given.rest != "unknown":
            given.rest = "default"
            given.keywords = {
                name: weakened(one, Confidence.DEFAULT)
                for name, one in given.keywords.items()
            }
        given.keywords |= {str(name): one for name, one in entries.items()}

    # -- operators ----------------------------------------------------------------------------

    def _operation(self, expr: ir.Operation, frame: Frame) -> Value:
        op, operands = expr.op, expr.operands
        if op in ("and", "or"):
            return self._either(op, operands, frame)
        if op == "if":
            return self._conditional(operands, frame)
        if op == "not":
            known = self.condition(operands[0], frame)
            if known is None:
                return Unknown("condition", whole=True)
            return sure(not known.value, known)
        if op == "joinedstr":
            return self._text(operands, frame)
        values = [self.evaluate(operand, frame) for operand in operands]
        if op in ("-x", "+x", "~"):
            return unary(op, values[0])
        if op in ("in", "not in"):
            return self._contains(op, values[0], values[1])
        if op == "@":
            self.recorder.product(self, values, operands, frame)
            return Unknown("data")
        if op == "starred" or len(values) != 2 or op in ("slice", "compare"):
            return Unknown("operator")
        return self.operate(op, values[0], values[1])

    def operate(self, op: str, left: Value, right: Value) -> Value:
        """``left op right``; lists give a new list."""
        if isinstance(left, Sequence) or isinstance(right, Sequence):
            return self._lists(op, left, right)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return _scaled(op, left, right)
        if isinstance(left, Mapping_) and isinstance(right, Mapping_) and op == "|":
            made = Mapping_()
            self.fill(made, left)
            self.fill(made, right)
            return made
        return binary(op, left, right)

    def _lists(self, op: str, left: Value, right: Value) -> Value:
        if op in ("==", "!=", "is", "is not", "<", ">", "<=", ">="):
            if isinstance(left, Sequence) and isinstance(right, Sequence):
                one, other = left.state[ITEMS], right.state[ITEMS]
                if left.kind == right.kind == "list" and op in ("==", "!="):
                    return binary(op, one, other)
                return Unknown("comparison")
            return binary(op, left, right)
        contents = [
            one.state[ITEMS] if isinstance(one, Sequence) else one
            for one in (left, right)
        ]
        kind = left.kind if isinstance(left, Sequence) else "list"
        if op in ("+", "*"):
            result = binary(op, contents[0], contents[1])
            held = result if isinstance(result, Tup) else Unknown("list")
            return Sequence(kind, held)
        return Unknown("operator")

    def fill(self, made: Mapping_, source: Value) -> None:
        """Put what a dict holds into another one."""
        if not isinstance(source, Mapping_):
            self.spoil([made], "unknown entries")
            return
        openness = source.state.get(OPEN)
        if isinstance(openness, Unknown):
            self.spoil([made], openness.reason)
            return
        if openness is not None:
            for key, value in list(made.state.items()):
                if key != OPEN:
                    self.write(made, key, weakened(value, Confidence.DEFAULT))
            if OPEN not in made.state:
                self.write(made, OPEN, openness)
        for name, value in source.entries().items():
            self.write(made, ("key", name), value)

    def _either(self, op: str, operands: tuple[ir.Expr, ...], frame: Frame) -> Value:
        value = self.evaluate(operands[0], frame)
        for operand in operands[1:]:
            known = self.truth(value)
            if known is not None:
                if bool(known.value) == (op == "or"):
                    return value
                outer, self.path = self.path, weakest(self.path, known.confidence)
                value = weakened(self.evaluate(operand, frame), known.confidence)
                self.path = outer
            else:
                value = joined(value, self.evaluate(operand, frame), self.new_fork())
        return value

    def _conditional(self, operands: tuple[ir.Expr, ...], frame: Frame) -> Value:
        test, body, orelse = operands
        known = self.condition(test, frame)
        if known is not None:
            if known.confidence is not Confidence.CERTAIN:
                self.look_at(orelse if known.value else body, frame)
            outer, self.path = self.path, weakest(self.path, known.confidence)
            value = self.evaluate(body if known.value else orelse, frame)
            self.path = outer
            return weakened(value, known.confidence)
        mark = len(self.heap.log)
        one = self.evaluate(body, frame)
        changes = self.heap.changes(mark)
        self.heap.undo(mark)
        other = self.evaluate(orelse, frame)
        rest = self.heap.changes(mark)
        self.heap.undo(mark)
        fork = self.new_fork()
        self.heap.join(changes, rest, fork)
        return joined(one, other, fork)

    def look_at(self, expr: ir.Expr, frame: Frame) -> None:
        """Find what an expression makes that is not evaluated unless a default is overridden."""
        if self.quiet or not self.recorder.mentions(expr):
            return
        mark = len(self.heap.log)
        outer, self.path = self.path, weakest(self.path, Confidence.DEFAULT)
        self.evaluate(expr, frame)
        self.path = outer
        self.heap.undo(mark)

    def condition(self, expr: ir.Expr, frame: Frame) -> Known | None:
        """Whether a test holds; None where that is not known."""
        if isinstance(expr, ir.Operation) and expr.op in ("and", "or"):
            return self._conditions(expr, frame)
        return self.truth(self.evaluate(expr, frame))

    def _conditions(self, expr: ir.Operation, frame: Frame) -> Known | None:
        blind = False
        passed: list[Known] = []
        decisive = expr.op == "or"
        for operand in expr.operands:
            known = self.condition(operand, frame)
            if known is None:
                blind = True
            elif bool(known.value) is decisive:
                return sure(decisive, known, *passed)
            else:
                passed.append(known)
        return None if blind else sure(not decisive, *passed)

    def truth(self, value: Value) -> Known | None:
        """Whether a value is true in a test; None where that is not known."""
        if isinstance(value, Choice):
            found = [self.truth(one) for _, one in value.alternatives]
            first = found[0]
            if first is None or any(
                one is None or one.value != first.value for one in found
            ):
                return None
            return replace(first, confidence=confidence_of(value))
        if isinstance(value, Sequence):
            return None if value.items is None else Known(bool(value.items))
        if isinstance(value, Mapping_):
            if value.entries():
                return Known(True)
            openness = value.state.get(OPEN)
            if openness is None:
                return Known(False)
            return (
                openness if isinstance(openness, Known) and not openness.value else None
            )
        if isinstance(value, (Known, Tup)):
            return truth(value)
        if self.is_plain_object(value):
            return Known(True)
        return None

    def is_plain_object(self, value: Value) -> bool:
        """Whether a value is an object that is true whatever it holds."""
        raise NotImplementedError

    def _contains(self, op: str, one: Value, inside: Value) -> Value:
        if isinstance(inside, Mapping_):
            if isinstance(one, Known):
                openness = inside.state.get(OPEN)
                if isinstance(openness, Unknown) or inside.is_opaque:
                    return Unknown("entries", whole=True)
                found = one.value in inside.entries()
                result = sure(found == (op == "in"), one)
                return (
                    result if openness is None else weakened(result, Confidence.DEFAULT)
                )
            return Unknown("entries", whole=True)
        if isinstance(one, Known) and isinstance(inside, Known):
            if isinstance(inside.value, range) and type(one.value) is int:
                return sure((one.value in inside.value) == (op == "in"), one, inside)
            return binary(op, one, inside)
        items = inside.items if isinstance(inside, (Tup, Sequence)) else None
        if items is None or not isinstance(one, Known):
            return Unknown("entries", whole=True)
        results = [binary("==", one, item) for item in items]
        known = [result for result in results if isinstance(result, Known)]
        if any(result.value for result in known):
            return sure(op == "in", one)
        if len(known) == len(results):
            return sure(op != "in", one)
        return Unknown("entries", whole=True)

    def _text(self, operands: tuple[ir.Expr, ...], frame: Frame) -> Value:
        parts: list[Value] = []
        for operand in operands:
            if isinstance(operand, ir.Operation) and operand.op == "formattedvalue":
                value = self.evaluate(operand.operands[0], frame)
                if len(operand.operands) > 1 or not isinstance(value, (Known, Choice)):
                    return Unknown("text")
                parts.append(value)
            else:
                parts.append(self.evaluate(operand, frame))
        return lifted(tuple(parts), _concatenated)

    # -- what the next part provides ------------------------------------------------------------

    def display(self, expr: ir.Display, frame: Frame) -> Value:
        """A tuple, list, set or dict that is written out."""
        raise NotImplementedError

    def subscript(self, value: ir.Expr, key: ir.Expr, frame: Frame) -> Value:
        """``value[key]``, which may be a slice."""
        raise NotImplementedError

    def comprehension(self, expr: ir.Comprehension, frame: Frame) -> Value:
        """What a comprehension or generator holds."""
        raise NotImplementedError


def _scaled(op: str, left: Value, right: Value) -> Value:
    """A tensor times a number is a tensor of the same shape, but no parameter any more."""
    tensor, other = (left, right) if isinstance(left, Tensor) else (right, left)
    if (
        op in ("*", "/", "+", "-")
        and isinstance(other, Known)
        and isinstance(tensor, Tensor)
    ):
        return Tensor(tensor.shape)
    return Unknown("tensor")


def hashable(value: object) -> bool:
    """Whether a constant can be a key of a dict."""
    return isinstance(value, (str, int, float, bool, type(None), bytes))


def _concatenated(*parts: Value) -> Value:
    texts = []
    for part in parts:
        if not isinstance(part, Known) or not isinstance(
            part.value, (str, int, float, bool)
        ):
            return Unknown("text")
        if isinstance(part.value, int) and part.value.bit_length() > 512:
            return Unknown("text")
        texts.append(str(part.value))
    text = "".join(texts)
    return sure(text, *parts) if len(text) <= MAX_TEXT else Unknown("text")
