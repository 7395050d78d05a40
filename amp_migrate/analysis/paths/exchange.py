"""Gradients that processes exchange by hand: ``dist.all_reduce(p.grad)``, then a division; also all in one
piece, ``flat = torch.cat(grads)``, from which each is copied back.

Each process has a scaler of its own, and all of them must skip the same steps. So the infinities have
to be looked for after the exchange, when all processes see the same ones: gradients are exchanged as
they are, scaled. Sums and multiples do not mind the scale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

_COLLECTIVE = re.compile(
    r"torch\.distributed\.(distributed_c10d\.)?(all_reduce|reduce|broadcast|all_gather|gather|scatter"
    r"|reduce_scatter|all_to_all|send|recv|isend|irecv)\w*"
    r"|torch\.distributed\.nn\.\w+"
)
_SOUNDS_LIKE_ONE = re.compile(
    r"(?i)((average|avg|sync|synchronize|reduce|gather|share|broadcast)\w*grad|grad\w*_?"
    r"(average|avg|sync|all_?reduce|exchange))"
)
_LINEAR = ("SUM", "AVG")
_MULTIPLIES = ("div_", "mul_", "true_divide_")
_JUMPS = ("break", "continue", "return")
_SHAPES = ("view", "view_as", "reshape", "reshape_as", "flatten", "clone", "detach")


class Exchange:
    """Tells which statements of a program exchange gradients."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._communicating: dict[str, bool] = {}
        self._speaking: dict[str, bool] = {}
        self._pieces: dict[str, dict[ir.Path, str]] = {}

    def kind(self, stmt: ir.Stmt, function: str) -> str | None:
        """``exchange`` (gradients as they are), ``rescale`` (beside an exchange: a multiple of them, or
        the question whether there are any), ``mixture`` (an exchange in any other form), or None.
        """
        if not self._speaks_of_gradients(function):
            return None
        found = self._in_one_piece(function).get(stmt.path)
        if found is not None:
            return found
        mentions = any(_mentions_gradient(expr) for expr in stmt.exprs)
        collectives = [c for c in calls_of(stmt) if self._is_collective(c, function)]
        if collectives:
            call = collectives[0]
            plain = stmt.kind in ("expr", "assign") and self._is_plain(call, function)
            return "exchange" if plain else "mixture"
        if mentions and any(
            self._communicates(callee)
            for call in calls_of(stmt)
            for callee in self.program.callees(call, function)
        ):
            return "mixture"
        if mentions and self._communicates(function):
            return "rescale" if _is_multiple(stmt) or _asks_if_any(stmt) else None
        return None

    # -- all in one piece ---------------------------------------------------------------------

    def _in_one_piece(self, function: str) -> dict[ir.Path, str]:
        """The statements that lay gradients side by side, exchange what that is, and copy each back."""
        if function not in self._pieces:
            body = [*self.program.statements(function)]
            found = self._pieces[function] = {}
            for stmt in body:
                for call in calls_of(stmt):
                    flat = call.argument(0, "tensor")
                    is_one = self._is_collective(call, function)
                    if isinstance(flat, ir.Name) and is_one and stmt.value is call:
                        found |= self._pieces_of(flat, function, body)
        return self._pieces[function]

    def _pieces_of(
        self, flat: ir.Name, function: str, body: list[ir.Stmt]
    ) -> dict[ir.Path, str]:
        """The same for one variable; nothing where any use of it is of another form."""
        found: dict[ir.Path, str] = {}
        taken: list[ir.Expr | None] = []
        given: list[ir.Expr | None] = []
        if not self._is_own(flat, function):
            return {}
        for stmt in _mentioning(body, flat):
            value = stmt.value
            match value:
                case ir.Call() if self._is_collective(value, function):
                    found[stmt.path] = "exchange"
                    if not self._is_sum(value, function):
                        return {}
                case ir.Call() if (stmt.kind, stmt.targets) == ("assign", (flat,)):
                    if self.program.origin(value.func, function) != "torch.cat":
                        return {}
                    parts = self._parts(value.argument(0, "tensors"), function, body)
                    if not parts:
                        return {}
                    taken += parts.values()
                    found |= dict.fromkeys({stmt.path, *parts}, "rescale")
                case _ if _back(stmt, flat) is not None:
                    given.append(self._each_of(_back(stmt, flat), stmt, function))
                    found[stmt.path] = "rescale"
                case _ if not _is_multiple(stmt, lambda expr: expr == flat):
                    return {}
        # Those that stay as they are would differ between processes.
        whole = bool(given) and None not in (*taken, *given)
        return found if whole and len({*taken, *given}) == 1 else {}

    def _parts(
        self, listed: ir.Expr | None, function: str, body: list[ir.Stmt]
    ) -> dict[ir.Path, ir.Expr | None]:
        """The statements that put gradients into a list, each with what it goes through."""
        found: dict[ir.Path, ir.Expr | None] = {}
        if isinstance(listed, ir.Comprehension):
            inside = (s for s in body if any(listed in ir.walk(e) for e in s.exprs))
            return {stmt.path: _gone_through(listed) for stmt in inside}
        if not isinstance(listed, ir.Name) or not self._is_own(listed, function):
            return {}
        for stmt in _mentioning(body, listed):
            match stmt.value:
                case ir.Display(kind="list", items=()) if stmt.targets == (listed,):
                    pass
                case ir.Comprehension() as made if stmt.targets == (listed,):
                    found[stmt.path] = _gone_through(made)
                case ir.Call(
                    func=ir.Attr(value=holder, attr="append"),
                    args=(ir.Arg(value=part),),
                ) if (
                    holder == listed
                ):
                    found[stmt.path] = self._each_of(_whole(part), stmt, function)
                case ir.Call() as call if call.argument(0, "tensors") == listed:
                    if self.program.origin(call.func, function) != "torch.cat":
                        return {}
                case _:
                    return {}
        return found

    def _each_of(
        self, owner: ir.Expr | None, stmt: ir.Stmt, function: str
    ) -> ir.Expr | None:
        """The parameters of a loop that does the same with each of them that has a gradient."""
        around = self.program.control(function).around
        loop = next((one for one in around(stmt.path) if one.kind == "for"), None)
        if loop is None or owner is None or loop.targets != (owner,):
            return None
        for one in (stmt, *(s for s in ir.statements((loop,)) if s.kind in _JUMPS)):
            for outer in around(one.path):
                if outer is loop:
                    break
                if not _asks_if_any(outer):
                    return None
        return _parameters(loop.value)

    def _is_own(self, name: ir.Name, function: str) -> bool:
        """Whether a variable is a function's own, and no other function sees it."""
        program = self.program
        return program.owner(name.id, function) == function and all(
            other == function or program.owner(name.id, other) != function
            for other, _ in program.mentioning(name.id)
        )

    def _is_sum(self, call: ir.Call, function: str) -> bool:
        origin = self.program.origin(call.func, function) or ""
        operation = call.argument(1, "op")
        return origin.endswith(".all_reduce") and (
            operation is None
            or (isinstance(operation, ir.Attr) and operation.attr in _LINEAR)
        )

    def sounds_like_one(self, name: str) -> bool:
        """Whether somebody else's function exchanges gradients, by its name."""
        return bool(_SOUNDS_LIKE_ONE.search(name))

    def _is_collective(self, call: ir.Call, function: str) -> bool:
        origin = self.program.origin(call.func, function) or ""
        return bool(_COLLECTIVE.fullmatch(origin))

    def _is_plain(self, call: ir.Call, function: str) -> bool:
        """``all_reduce(p.grad)``, ``broadcast(p.grad.data, 0)``: a sum, or the same for all."""
        origin = self.program.origin(call.func, function) or ""
        if not _is_gradient(call.argument(0, "tensor")):
            return False
        return origin.endswith(".broadcast") or self._is_sum(call, function)

    def _communicates(self, function: str) -> bool:
        """Whether a function, or one that it calls, runs a collective."""
        if function not in self._communicating:
            self._communicating[function] = False
            self._communicating[function] = any(
                self._is_collective(call, function)
                or any(map(self._communicates, self.program.callees(call, function)))
                for call in self._calls(function)
            )
        return self._communicating[function]

    def _speaks_of_gradients(self, function: str) -> bool:
        if function not in self._speaking:
            body = self.program.functions[function].body
            self._speaking[function] = any(
                _mentions_gradient(expr)
                for stmt in ir.statements(body)
                for expr in stmt.exprs
            )
        return self._speaking[function]

    def _calls(self, function: str) -> Iterator[ir.Call]:
        for stmt in self.program.statements(function):
            yield from calls_of(stmt)


def _mentions_gradient(expr: ir.Expr) -> bool:
    return any(isinstance(e, ir.Attr) and e.attr == "grad" for e in ir.walk(expr))


def _is_gradient(expr: ir.Expr | None) -> bool:
    """``p.grad`` or ``p.grad.data``."""
    if isinstance(expr, ir.Attr) and expr.attr == "data":
        expr = expr.value
    return isinstance(expr, ir.Attr) and expr.attr == "grad"


def _asks_if_any(stmt: ir.Stmt) -> bool:
    """``if p.grad is not None``."""
    return stmt.kind == "if" and _asks_for_one(stmt.value)


def _asks_for_one(test: ir.Expr | None) -> bool:
    return (
        isinstance(test, ir.Operation)
        and test.op in ("is", "is not")
        and _is_gradient(test.operands[0])
        and test.operands[1] == ir.Const(None)
    )


def _mentioning(body: list[ir.Stmt], name: ir.Name) -> list[ir.Stmt]:
    return [s for s in body if any(name in ir.walk(expr) for expr in s.exprs)]


def _owner(gradient: ir.Expr) -> ir.Expr | None:
    """``p`` of ``p.grad`` or ``p.grad.data``."""
    while isinstance(gradient, ir.Attr) and gradient.attr == "data":
        gradient = gradient.value
    is_one = isinstance(gradient, ir.Attr) and gradient.attr == "grad"
    return gradient.value if is_one and isinstance(gradient, ir.Attr) else None


def _unshaped(expr: ir.Expr) -> ir.Expr:
    """What a tensor of another shape, or a part of it, is made of."""
    while True:
        match expr:
            case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _SHAPES:
                expr = value
            case ir.Item(value=value):
                expr = value
            case _:
                return expr


def _whole(part: ir.Expr) -> ir.Expr | None:
    """``p`` of ``p.grad.view(-1)``."""
    is_part = any(isinstance(inner, ir.Item) for inner in ir.walk(part))
    return None if is_part else _owner(_unshaped(part))


def _parameters(iterable: ir.Expr | None) -> ir.Expr | None:
    """``model.parameters()``, which can be gone through again and again."""
    match iterable:
        case ir.Call(func=ir.Attr(attr="parameters"), args=()):
            return iterable
    return None


def _gone_through(made: ir.Comprehension) -> ir.Expr | None:
    """``parameters`` of ``[p.grad.view(-1) for p in parameters if p.grad is not None]``."""
    match made:
        case ir.Comprehension(
            elements=(part,), targets=(target,), iterables=(each,), conditions=asked
        ) if _whole(part) == target and all(map(_asks_for_one, asked)):
            return _parameters(each)
    return None


def _back(stmt: ir.Stmt, flat: ir.Name) -> ir.Expr | None:
    """``p`` of ``p.grad.copy_(flat[a:b].view_as(p) / n)`` or ``p.grad = flat[a:b].view_as(p)``."""
    match stmt:
        case ir.Stmt(
            kind="expr",
            value=ir.Call(
                func=ir.Attr(value=gradient, attr="copy_"), args=(ir.Arg(value=part),)
            ),
        ):
            pass
        case ir.Stmt(kind="assign", targets=(gradient,), value=part):
            pass
        case _:
            return None
    if part is None:
        return None
    if isinstance(part, ir.Operation) and part.op in ("*", "/"):
        part, *factors = part.operands
        if any(flat in ir.walk(f) or _mentions_gradient(f) for f in factors):
            return None
    return _owner(gradient) if _unshaped(part) == flat else None


def _is_multiple(
    stmt: ir.Stmt, is_one: Callable[[ir.Expr], bool] = _is_gradient
) -> bool:
    """``p.grad /= n``, ``p.grad.data.div_(n)``, ``p.grad = p.grad / n``."""
    value = stmt.value
    if stmt.kind == "augassign":
        factor = value is None or _mentions_gradient(value)
        return stmt.op in "*/" and is_one(stmt.targets[0]) and not factor
    if stmt.kind == "expr" and isinstance(value, ir.Call):
        func = value.func
        return (
            isinstance(func, ir.Attr)
            and func.attr in _MULTIPLIES
            and is_one(func.value)
            and not any(_mentions_gradient(arg.value) for arg in value.args)
        )
    if stmt.kind == "assign" and isinstance(value, ir.Operation) and value.op in "*/":
        if len(stmt.targets) != 1 or len(value.operands) != 2:
            return False
        left, right = value.operands
        return (
            left == stmt.targets[0] and is_one(left) and not (_mentions_gradient(right))
        )
    return False
