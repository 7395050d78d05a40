"""What becomes of gradients that a function has asked for: a penalty on the loss, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from amp_migrate.analysis.paths.aftermath import Aftermath
from amp_migrate.analysis.paths.events import innermost_loop
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_part, parts_of
from amp_migrate.program.link import Program

_BUILTINS = frozenset("sum len zip enumerate range list tuple abs pow".split())
_TORCH = frozenset(
    """sum norm sqrt square pow abs mean stack cat concat add mul div sub dot flatten zeros zeros_like
    ones ones_like tensor exp log var std linalg.norm linalg.vector_norm
    nn.utils.parameters_to_vector nn.utils.convert_parameters.parameters_to_vector""".split()
)
_METHODS = frozenset(
    """sum pow norm sqrt square mean abs view reshape flatten add mul div sub contiguous exp log var std
    dot detach clone size numel dim""".split()
)
"""Smooth functions, none of which runs in half precision: where one is given an infinite gradient, it
comes out infinite or nan, and so do the gradients of the loss. The scaler then skips the step."""

_ARITHMETIC = frozenset("+ - * / ** -x +x".split())
_GOES_THROUGH = frozenset(
    f"builtins.{name}" for name in "sum len zip enumerate list tuple".split()
)
_GRAD = "torch.autograd.grad"


class Penalty:
    """Follows the gradients that one statement binds to ``names``."""

    def __init__(
        self, program: Program, function: str, stmt: ir.Stmt, names: Collection[str]
    ) -> None:
        self.program = program
        self.function = function
        self.stmt = stmt
        self._body = program.functions[function].body
        self._made = set(names)
        """Variables that hold what is computed of gradients, losses left out."""
        self._losses: set[str] = set()
        """Variables that go backward and have a penalty in them."""
        self._followed: set[ir.Path] = {stmt.path}

    def reason(self, backwards: Collection[ir.Stmt]) -> str | None:
        """Why it is no penalty, or one that joins none of the ``backwards``."""
        received = {
            inner.id
            for stmt in backwards
            for call in calls_of(stmt)
            if isinstance(call.func, ir.Attr) and call.func.attr == "backward"
            for inner in ir.walk(call.func.value)
            if isinstance(inner, ir.Name)
        }
        received -= self._made
        known = -1
        while known < len(self._made) + len(self._losses):
            known = len(self._made) + len(self._losses)
            for stmt in ir.statements(self._body):
                if stmt.path != self.stmt.path and self._is_read(stmt):
                    if not self._is_part(stmt, received):
                        return (
                            f"is used for more than a penalty (line {int(stmt.line)})"
                        )
                    self._followed.add(stmt.path)
        if self._is_seen_elsewhere():
            return "is seen from another function"
        if any(self._takes_gradients(stmt) for stmt in ir.statements(self._body)):
            return "is differentiated again"
        if not any(map(self.joins, backwards)):
            return "is not part of a loss whose backward() follows"
        return None

    def joins(self, backward: ir.Stmt) -> bool:
        """Whether the loss of a backward has the penalty in it."""
        known = self._made | self._losses
        return any(self._reads(expr, known) for expr in backward.exprs)

    def is_gone_through(self, name: str) -> bool:
        """Whether nothing is done with a sequence for which it matters that it is a tuple."""
        for stmt in ir.statements(self._body):
            if stmt.path == self.stmt.path or stmt.kind == "delete":
                continue
            plain = [stmt.value] if stmt.kind == "for" else []
            inside = [inner for expr in _evaluated(stmt) for inner in ir.walk(expr)]
            for inner in inside:
                match inner:
                    case ir.Comprehension(iterables=iterables):
                        plain += iterables
                    case ir.Call(func=func, args=args):
                        if self.program.origin(func, self.function) in _GOES_THROUGH:
                            plain += [arg.value for arg in args]
                    case ir.Item(value=value, key=ir.Const(value=int())):
                        plain.append(value)
            if any(
                inner == ir.Name(name) and not any(inner is one for one in plain)
                for inner in inside
            ):
                return False
        return True

    def decides(self) -> int:
        """The line where the value of the loss comes back to the training, or 0.

        It is infinite in a step that the scaler skips since the gradients asked for have overflown.
        """
        owner = self.function
        names = self._made | self._losses
        line = next(filter(None, map(self._carried, sorted(names))), 0)
        if line:
            return line
        variables = {(owner, name) for name in names}
        known = {(owner, path) for path in self._followed}
        aftermath = Aftermath(self.program, (), variables, known)
        return aftermath.harm() or self._comes_back(aftermath.variables - variables)

    def _carried(self, name: str) -> int:
        """The line where a turn of the loop may find what an earlier one left in a variable, or 0."""
        loop = innermost_loop(self.program.functions[self.function], self.stmt.path)
        depth = len(loop)
        mentions = [
            stmt
            for stmt in ir.statements(self._body)
            if len(stmt.path) > depth and stmt.path[:depth] == loop
            if ir.Name(name) in parts_of(stmt)
        ]
        if not mentions:
            return 0
        first = mentions[0]
        bound = [
            target
            for whole in first.targets
            for target in (whole.items if isinstance(whole, ir.Display) else (whole,))
        ]
        is_new = (
            first.kind in ("assign", "annassign", "for")
            and ir.Name(name) in bound
            and first.value is not None
            and (ir.Name(name) not in ir.walk(first.value) or first is self.stmt)
        )
        inside = all(
            ir.distance(stmt.path, first.path) is not None for stmt in mentions
        )
        return 0 if is_new and inside else first.line

    def _comes_back(self, numbers: Collection[tuple[str, str]]) -> int:
        """The line where numbers that were read off a penalty are part of a loss again, or 0."""
        made = self._made | self._losses

        def at(name: ir.Name, function: str) -> tuple[str, str]:
            return self.program.owner(name.id, function) or "", name.id

        for function, facts in self.program.functions.items():
            for stmt in ir.statements(facts.body):
                binds = function == self.function and any(
                    isinstance(inner, ir.Name) and inner.id in made
                    for target in stmt.targets
                    for inner in ir.walk(target)
                )
                backward = any(
                    ir.method_of(call) == "backward" for call in calls_of(stmt)
                )
                if (binds or backward) and any(
                    (isinstance(inner, ir.Name) and at(inner, function) in numbers)
                    or (function == self.function and self._reads_off(inner, made))
                    for inner in parts_of(stmt)
                ):
                    return stmt.line
        return 0

    # -- statements ---------------------------------------------------------------------------

    def _is_read(self, stmt: ir.Stmt) -> bool:
        return any(self._reads(e, self._made) for e in _evaluated(stmt))

    def _is_part(self, stmt: ir.Stmt, received: Collection[str]) -> bool:
        """Whether a statement computes the penalty, or a loss with it; what it binds is followed."""
        if stmt.kind == "delete":
            return True
        if stmt.value is None or not self._is_smooth(stmt.value, self._made):
            return stmt.kind == "expr" and self._is_effect(stmt.value)
        targets = [
            item
            for target in stmt.targets
            for item in (target.items if isinstance(target, ir.Display) else (target,))
        ]
        names = {target.id for target in targets if isinstance(target, ir.Name)}
        if stmt.kind not in ("assign", "annassign", "augassign", "for"):
            return False
        if len(targets) != sum(isinstance(t, ir.Name) for t in targets):
            return False
        if any(
            self.program.owner(name, self.function) != self.function for name in names
        ):
            return False
        self._losses |= names & set(received)
        self._made |= names - set(received)
        return True

    def _is_effect(self, value: ir.Expr | None) -> bool:
        """``(loss + penalty).backward()``, ``norms.append(g.norm())``."""
        if not isinstance(value, ir.Call) or not isinstance(value.func, ir.Attr):
            return False
        receiver = value.func.value
        if value.func.attr == "backward":
            return not value.args and self._is_smooth(receiver, self._made)
        if value.func.attr == "append" and isinstance(receiver, ir.Name):
            if self.program.owner(receiver.id, self.function) != self.function:
                return False
            self._made.add(receiver.id)
            return all(
                not a.star and self._is_smooth(a.value, self._made) for a in value.args
            )
        return False

    def _takes_gradients(self, stmt: ir.Stmt) -> bool:
        """Whether another call differentiates what the gradients are part of."""
        known = self._made | self._losses
        return stmt.path != self.stmt.path and any(
            self._reads(arg.value, known)
            for call in calls_of(stmt)
            if self.program.origin(call.func, self.function) == _GRAD
            for arg in call.args
        )

    def _is_seen_elsewhere(self) -> bool:
        """Whether a function inside this one, or one beside it where this is the top level, uses the
        gradients."""
        program = self.program
        return any(
            isinstance(inner, ir.Name)
            and inner.id in self._made
            and program.owner(inner.id, other) == self.function
            for other, facts in program.functions.items()
            if other != self.function
            for _, inner in each_part(facts.body)
        )

    # -- expressions --------------------------------------------------------------------------

    def _reads(self, expr: ir.Expr, known: Collection[str]) -> bool:
        """Whether an expression holds more of some variables than numbers: ``norm.item()`` is shown, and
        is no part of a loss."""
        if isinstance(expr, ir.Name):
            return expr.id in known
        if isinstance(expr, ir.Call):
            origin = self.program.origin(expr.func, self.function)
            if origin == "builtins.len" or self._makes_number(expr):
                return False
        return any(self._reads(child, known) for child in ir.children(expr))

    def _makes_number(self, expr: ir.Expr) -> bool:
        if not isinstance(expr, ir.Call):
            return False
        if ir.method_of(expr) == "item":
            return True
        return self.program.origin(expr.func, self.function) == "builtins.float"

    def _reads_off(self, expr: ir.Expr, known: Collection[str]) -> bool:
        """Whether an expression is a number that was read off one of some variables."""
        return self._makes_number(expr) and any(
            self._reads(child, known) for child in ir.children(expr)
        )

    def _is_smooth(self, expr: ir.Expr, known: Collection[str]) -> bool:
        """Whether an expression computes smooth functions of gradients, if anything."""
        if not self._reads(expr, known):
            return True

        def inner(one: ir.Expr) -> bool:
            return self._is_smooth(one, known)

        match expr:
            case ir.Name():
                return True
            case ir.Attr(value=value, attr="shape" | "T"):
                return inner(value)
            case ir.Item(value=value, key=key):
                return inner(value) and not self._reads(key, known)
            case ir.Display(kind="list" | "tuple", items=items):
                return all(map(inner, items))
            case ir.Operation(op=op, operands=operands):
                return op in _ARITHMETIC and all(map(inner, operands))
            case ir.Comprehension():
                return self._is_smooth_each(expr, known)
            case ir.Call(args=args):
                if any(arg.star for arg in args):
                    return False
                return self._is_known(expr) and all(
                    map(inner, (*_receiver(expr), *(arg.value for arg in args)))
                )
        return False

    def _is_smooth_each(self, expr: ir.Comprehension, known: Collection[str]) -> bool:
        bound = set(known)
        for target, iterable in zip(expr.targets, expr.iterables, strict=True):
            if not self._is_smooth(iterable, bound):
                return False
            if self._reads(iterable, bound):
                bound |= ir.names_in(target)
        return not any(self._reads(test, bound) for test in expr.conditions) and all(
            self._is_smooth(element, bound) for element in expr.elements
        )

    def _is_known(self, call: ir.Call) -> bool:
        """Whether a call is one of the functions, or methods of tensors, that are smooth."""
        origin = self.program.origin(call.func, self.function)
        if origin is not None:
            module, _, name = origin.partition(".")
            return name in {"torch": _TORCH, "builtins": _BUILTINS}.get(module, ())
        if ir.method_of(call) not in _METHODS:
            return False
        return not self.program.resolve(call.func, self.function)


def _receiver(call: ir.Call) -> Iterator[ir.Expr]:
    if isinstance(call.func, ir.Attr):
        yield call.func.value


def _evaluated(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """The expressions of a statement but for the variables that it binds."""
    for expr in stmt.exprs:
        plain = expr.items if isinstance(expr, ir.Display) else (expr,)
        bound = any(expr is target for target in stmt.targets)
        if not (bound and all(isinstance(one, ir.Name) for one in plain)):
            yield expr
