"""Whether a ``backward()`` of one's own scales with the gradient that it is given.

A scaler multiplies the loss, and with it every gradient, by a power of two, and divides it out again
at the end. That is exact for each function f on the way with f(s g) = s f(g) for s > 0: of degree 1 in
the gradient. A clamp to [-1, 1], a sign, a threshold are not. Each value of a ``backward()`` has a
degree: 1 for the gradient, 0 for what does not depend on it, sums want equal degrees, products add
them. What cannot be followed is taken for unclear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from amp_migrate.analysis.tables import operators
from amp_migrate.analysis.tables.degrees import (
    Degree,
    Unclear,
    element,
    fixed,
    flat,
    joined,
    power,
    product,
    quotient,
)
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.link import Program

_Environment = dict[str, Degree]

FUNCTIONS = frozenset(
    f"torch.autograd.{name}"
    for name in (
        "Function",
        "function.Function",
        "function.InplaceFunction",
        "function.NestedIOFunction",
    )
)
"""What custom functions with a ``backward()`` derive from."""

_VIEWING = operations("view")
"""Methods whose result may be a part of the tensor itself."""

_UNREAD = frozenset(
    f"builtins.{name}" for name in "exec eval locals globals vars setattr".split()
)
_KERNEL = re.compile(r"(?i)backward|bwd")
_BUILDS = re.compile(r"torch\.utils\.cpp_extension\.load(_inline)?")
_TORCH_LIKE = ("torch.", "numpy.", "scipy.", "builtins.")
_DEEPEST = 4


def inhomogeneous_line(program: Program, backward: str) -> int:
    """The line at which a ``backward(ctx, *gradients)`` stops being of degree 1 in them, or 0."""
    function = program.functions[backward]
    context, *gradients = function.params
    environment: _Environment = {context.name: 0.0}
    environment |= {param.name: 1.0 for param in gradients}
    walk = _Walk(program, backward, environment, 0)
    try:
        for degree, line in walk.returned():
            if not all(one in (None, 1.0) for one in flat(degree)):
                return line
    except Unclear as unclear:
        return unclear.line or walk.line
    return 0


class _Walk:
    """Goes through one function, statement by statement."""

    def __init__(
        self, program: Program, function: str, environment: _Environment, depth: int
    ) -> None:
        self.program = program
        self.function = function
        self.environment = environment
        self.depth = depth
        self.line = program.functions[function].line
        self._returned: list[tuple[Degree, int]] = []

    def returned(self) -> list[tuple[Degree, int]]:
        """(degree, line) of everything that the function returns."""
        self._block(self.program.functions[self.function].body)
        return self._returned

    # -- statements ---------------------------------------------------------------------------

    def _block(self, block: Iterable[ir.Stmt]) -> None:
        for stmt in block:
            self.line = stmt.line
            self._statement(stmt)

    def _statement(self, stmt: ir.Stmt) -> None:
        match stmt.kind:
            case "assign" | "annassign":
                if stmt.value is not None:
                    degree = self._of(stmt.value)
                    shared = len(stmt.targets) > 1 and degree is None
                    if self._is_part(stmt.value, shared):
                        raise Unclear(self.line)
                    for target in stmt.targets:
                        self._bind(target, degree)
            case "augassign":
                assert stmt.value is not None
                (target,) = stmt.targets
                whole = ir.Operation(stmt.op, (target, stmt.value))
                self._bind(target, self._of(whole))
            case "expr":
                if stmt.value is not None:
                    self._of(stmt.value)
            case "return":
                degree = None if stmt.value is None else self._of(stmt.value)
                self._returned.append((degree, stmt.line))
            case "if" | "while" | "assert":
                if stmt.value is not None:
                    fixed(self._of(stmt.value))
                self._branches(stmt, turns=2 if stmt.kind == "while" else 1)
            case "for":
                assert stmt.value is not None
                if self._is_part(stmt.value, False):
                    raise Unclear(self.line)
                self._bind(stmt.targets[0], element(self._of(stmt.value)))
                self._branches(stmt, turns=2)
            case "with":
                for expr in stmt.exprs:
                    self._of(expr)
                self._block(stmt.blocks[0].body)
            case "pass" | "raise" | "break" | "continue" | "import" | "importfrom":
                pass
            case _:
                raise Unclear(stmt.line)

    def _branches(self, stmt: ir.Stmt, turns: int) -> None:
        """Each block may run or not (and again): what a variable then is must be one and the same."""
        for _ in range(turns):
            before = dict(self.environment)
            for block in stmt.blocks:
                self.environment, others = dict(before), self.environment
                self._block(block.body)
                self.line = stmt.line
                for name, degree in others.items():
                    own = self.environment.get(name, degree)
                    self.environment[name] = joined(own, degree)

    def _bind(self, target: ir.Expr, degree: Degree) -> None:
        match target:
            case ir.Name(id=name):
                self.environment[name] = degree
            case ir.Display(items=items):
                parts = (
                    degree
                    if isinstance(degree, tuple) and len(degree) == len(items)
                    else [element(degree)] * len(items)
                )
                for item, part in zip(items, parts, strict=True):
                    self._bind(item, part)
            case ir.Operation(op="starred", operands=(inner,)):
                self._bind(inner, degree)
            case ir.Item(value=value, key=key):
                fixed(self._of(key))
                self._store(value, degree)
            case _:
                if self._holds_zeros(target):
                    raise Unclear(self.line)
                fixed(degree)

    def _is_part(self, expr: ir.Expr, shared: bool) -> bool:
        """Whether zeros get another name, under which they may be filled unseen."""
        if isinstance(expr, ir.Call):
            method = ir.method_of(expr)
            return shared or (method in _VIEWING and self._holds_zeros(expr.func))

        part = isinstance(expr, (ir.Name, ir.Attr, ir.Item))
        return part and self._holds_zeros(expr)

    def _holds_zeros(self, expr: ir.Expr) -> bool:
        """Whether an expression mentions a variable that was made zero, or empty."""
        return any(
            isinstance(inner, ir.Name)
            and inner.id in self.environment
            and self.environment[inner.id] is None
            for inner in ir.walk(expr)
        )

    def _store(self, holder: ir.Expr, degree: Degree) -> None:
        """Something is put into a tensor, or a list, that keeps the rest of what it has."""
        while isinstance(holder, (ir.Attr, ir.Item)):
            holder = holder.value
        if isinstance(holder, ir.Name) and holder.id in self.environment:
            old = self.environment[holder.id]
            self.environment[holder.id] = joined(
                element(old) if isinstance(old, tuple) else old, degree
            )
        else:
            if self._holds_zeros(holder):
                raise Unclear(self.line)
            fixed(degree)

    # -- expressions --------------------------------------------------------------------------

    def _of(self, expr: ir.Expr) -> Degree:
        match expr:
            case ir.Const(value=value):
                is_zero = value is None or (
                    isinstance(value, (int, float))
                    and not isinstance(value, bool)
                    and value == 0
                )
                return None if is_zero else 0.0
            case ir.Name(id=name):
                return self.environment.get(name, 0.0)
            case ir.Attr(value=value, attr=attr):
                degree = self._of(value)
                if attr in operators.ATTRIBUTES:
                    return 0.0
                return degree if attr in operators.VIEWS else fixed(degree)
            case ir.Item(value=value, key=key):
                degree = self._of(value)
                fixed(self._of(key))
                if isinstance(degree, tuple) and isinstance(key, ir.Const):
                    if isinstance(key.value, int) and abs(key.value) < len(degree):
                        return degree[key.value]
                return element(degree)
            case ir.Display(kind="dict", items=items):
                for item in items:
                    fixed(self._of(item))
                return 0.0
            case ir.Display(items=items):
                return tuple(self._of(item) for item in items) if items else None
            case ir.Operation():
                return self._of_operation(expr)
            case ir.Call():
                return self._of_call(expr)
            case ir.Comprehension():
                for target, iterable in zip(expr.targets, expr.iterables, strict=True):
                    self._bind(target, element(self._of(iterable)))
                for condition in expr.conditions:
                    fixed(self._of(condition))
                return self._of(expr.elements[-1])
            case ir.Walrus(target=target, value=value):
                degree = self._of(value)
                self._bind(target, degree)
                return degree
            case ir.Deferred(body=body):
                return fixed(self._of(body))
            case _:
                raise Unclear(self.line)

    def _of_operation(self, expr: ir.Operation) -> Degree:
        op = expr.op
        if op in ("is", "is not"):
            return 0.0
        degrees = [self._of(operand) for operand in expr.operands]
        match op:
            case "+" | "-":
                return joined(*degrees)
            case "*" | "@":
                return product(*degrees)
            case "/":
                return quotient(*degrees)
            case "**":
                return self._power(degrees[0], degrees[1], expr.operands[1])
            case "-x" | "+x" | "starred":
                return degrees[0]
            case "if":
                fixed(degrees[0])
                return joined(degrees[1], degrees[2])
            case "<" | "<=" | ">" | ">=" | "==" | "!=" | "compare":
                joined(*degrees)
                return 0.0
            case "in" | "not in":
                joined(element(degrees[0]), element(degrees[1]))
                return 0.0
            case _:
                for degree in degrees:
                    fixed(degree)
                return 0.0

    def _of_call(self, call: ir.Call) -> Degree:
        func = call.func
        origin = self.program.origin(func, self.function)
        given = [(arg.name, self._of(arg.value)) for arg in call.args]
        plain = [degree for name, degree in given if name is None]
        name = (origin or ir.key_of(func) or "").rsplit(".", 1)[-1]
        receiver: ir.Expr | None = None
        if origin is None and isinstance(func, ir.Attr):
            name, receiver = func.attr, func.value
            plain.insert(0, self._of(receiver))
        elif origin is None and not isinstance(func, ir.Name):
            self._of(func)
        degrees = plain + [degree for keyword, degree in given if keyword]
        if origin in _UNREAD:
            raise Unclear(call.line)
        if name in operators.ASKS:
            return 0.0
        if name in operators.SHOWS:
            for degree in degrees:
                fixed(degree)
            return 0.0
        if name in operators.ZEROS:
            return None
        if name in operators.ONES:
            return 0.0
        if all(one in (None, 0.0) for degree in degrees for one in flat(degree)):
            through = receiver is not None and not isinstance(receiver, ir.Name)
            if (
                self.program.callees(call, self.function)
                or any(arg.name == "out" for arg in call.args)
                or (name.endswith("_") and through)
            ) and self._holds_zeros(call):
                raise Unclear(call.line)
            self._filled(call, 0.0, in_place=name.endswith("_") and name != "zero_")
            return 0.0
        callees = self.program.callees(call, self.function) or self._applied(call)
        if len(callees) == 1:
            return self._of_own(callees[0], call)
        if name in ("append", "extend") and receiver is not None:
            self._store(receiver, element(plain[1]))
            return None
        if not self._is_operator(name, origin, receiver):
            return self._of_kernel(name, call, degrees)
        is_in_place = name.endswith("_") and not name.startswith("_")
        if is_in_place and receiver is None:
            raise Unclear(call.line)
        degree = operators.degree_of(
            operators.Applied(
                name,
                receiver is not None,
                (origin or "").startswith("builtins."),
                tuple(plain),
                {keyword: degree for keyword, degree in given if keyword},
                tuple(map(operators.said, call.args)),
            )
        )
        if is_in_place and isinstance(receiver, ir.Name):
            self.environment[receiver.id] = degree
        elif is_in_place and receiver is not None:
            self._store(receiver, degree)
        return degree

    def _applied(self, call: ir.Call) -> tuple[str, ...]:
        """``forward()`` of a Function of the program's own, of which this is ``apply()``."""
        func, program = call.func, self.program
        if not isinstance(func, ir.Attr) or func.attr != "apply":
            return ()
        forwards = (
            program.method(ref.name, "forward")
            for ref in program.resolve(func.value, self.function)
            if ref.kind == "class" and FUNCTIONS & program.external_bases(ref.name)
        )
        return tuple(one for one in forwards if one is not None)

    def _is_operator(
        self, name: str, origin: str | None, receiver: ir.Expr | None
    ) -> bool:
        """Whether a call is of torch's own: a function, or a method of a tensor."""
        if not operators.is_known(name):
            return False
        if receiver is None:
            return origin is not None and origin.startswith(_TORCH_LIKE)
        return any(
            isinstance(inner, ir.Name) and inner.id in self.environment
            for inner in ir.walk(receiver)
        )

    def _filled(self, call: ir.Call, degree: float, *, in_place: bool) -> None:
        """Tensors that were made empty, or zero, and are now given to something that may fill them."""
        exprs = [arg.value for arg in call.args]
        if in_place and isinstance(call.func, ir.Attr):
            exprs.append(call.func.value)
        elif not self._is_compiled(call.func):
            return
        for expr in exprs:
            if isinstance(expr, ir.Name) and expr.id in self.environment:
                if self.environment[expr.id] is None:
                    self.environment[expr.id] = degree

    def _of_own(self, callee: str, call: ir.Call) -> Degree:
        """A function of the program: what it returns for such arguments."""
        found = self.program.functions[callee]
        plain = all(arg.name is None and not arg.star for arg in call.args)
        params = found.params
        if found.self_name is not None:
            params = params[1:]
        fits = plain and all(param.kind == "positional" for param in params)
        if self.depth >= _DEEPEST or not fits or len(call.args) > len(params):
            raise Unclear(call.line)
        environment: _Environment = {}
        if ir.last_of(call.func) == "apply" and params:
            # Of a Function.
            environment[params[0].name], params = 0.0, params[1:]
        for param, arg in zip(params, call.args, strict=False):
            environment[param.name] = self._of(arg.value)
        walk = _Walk(self.program, callee, environment, self.depth + 1)
        return joined(*(degree for degree, _ in walk.returned()))

    def _of_kernel(self, name: str, call: ir.Call, degrees: list[Degree]) -> Degree:
        """Compiled code called by the name of a backward, or in a Function of such a name: the derivative
        that its name says it is.

        Derivatives are linear. It may fill tensors that it is given.
        """
        own = {one for degree in degrees for one in flat(degree)}
        around = self.program.functions[self.function].class_name or ""
        named = _KERNEL.search(name) or _KERNEL.search(ir.local_name(around))
        if not named or not own <= {None, 0.0, 1.0}:
            raise Unclear(call.line)
        if self.program.origin(call.func, self.function) is None and (
            not self._is_compiled(call.func)
        ):
            raise Unclear(call.line)
        for arg in call.args:
            if isinstance(arg.value, ir.Name):
                if self.environment.get(arg.value.id, 0.0) is None:
                    self.environment[arg.value.id] = 1.0
        return 1.0

    def _is_compiled(self, func: ir.Expr) -> bool:
        """Whether a function is imported from out of sight, or of an extension that the program builds:
        no method of a value."""
        program, called = self.program, ir.dotted(func)
        if called is None or called[0] in self.environment:
            return False
        origin = program.origin(func, self.function)
        if origin is not None:
            return not origin.startswith(_TORCH_LIKE)
        owner = program.owner(called[0], self.function)
        bindings = [] if owner is None else program.bindings(owner, called[0])
        return bool(bindings) and all(
            (
                not any(program.targets(called[0], one.function))
                if one.stmt.kind in ("import", "importfrom")
                else isinstance(one.value, ir.Call)
                and one.index is None
                and _BUILDS.fullmatch(
                    program.origin(one.value.func, one.function) or ""
                )
            )
            for one in bindings
        )

    @staticmethod
    def _power(base: Degree, exponent: Degree, written: ir.Expr) -> Degree:
        if isinstance(written, ir.Const) and isinstance(written.value, (int, float)):
            return power(base, written.value)
        fixed(exponent)
        return fixed(base)
