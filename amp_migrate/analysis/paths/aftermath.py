"""What becomes of gradients that are read after their step.

A scaler skips a step whose gradients are infinite, and goes on: such gradients may be shown, but what
comes back from them to the training spoils it for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amp_migrate.analysis.objects.availability import root_of
from amp_migrate.analysis.paths.gradients import averages, edited_by
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.link import Program

Site = tuple[str, ir.Path]
"""(function, path of a statement)."""

_LIKE = operations("like")
_PURE = ("torch.", "builtins.", "math.", "numpy.", "statistics.", "json.", "logging.")
_IMPURE = ("builtins.exec", "builtins.eval", "builtins.setattr", "torch.distributed.")
_FAILS_ON_INF = re.compile(
    r"builtins\.(int|round|range|divmod|hex|chr)|math\.(?!sqrt$|log\w*$|fabs$|is\w+$|hypot$|pow$)\w+"
    r"|(numpy|torch)\.(hist\w*|bincount|linalg\.(?!\w*norm$)\w+)|statistics\.\w*(stdev|variance)"
)
"""What raises where a gradient is infinite, as it is after a step that was skipped."""
_CHANGES_EACH = re.compile(r"torch\._foreach_\w+_")
"""Functions that change each of the tensors of a list."""
_INTEGER_FORMAT = re.compile(r"%[-+ #0]*\d*[dioxX]")
_MADE_HERE = ("builtins.", "collections.", "torch.zeros", "torch.tensor", "numpy.")
_COLLECTS = ("append", "extend", "update", "add", "insert", "setdefault")
_TELLS = re.compile(
    r"add_\w+|log\w*|print\w*|write\w*|info|debug|warn\w*|error|echo|set_(postfix|description)\w*"
    r"|push|record\w*|track|plot\w*|format|join|dump\w*|save\w*"
)
"""Methods and functions that show or keep numbers."""


class Aftermath:
    """Follows what some statements read from left over gradients through one program."""

    def __init__(
        self,
        program: Program,
        origins: Iterable[Site],
        variables: Iterable[tuple[str, str]] = (),
        known: Iterable[Site] = (),
    ) -> None:
        """``variables``: (owner, name) of those that hold such numbers besides. ``known``: statements
        that are known to do no harm."""
        self.program = program
        self.origins = frozenset(origins)
        self.known = frozenset(known)
        self._variables = set(variables)
        self._attributes: set[str] = set()
        self._functions: set[str] = set()
        self._decided: set[Site] = set()
        """Statements that run or not by what was read."""
        self._losses: list[int] = []
        """The lines of losses that are made of it."""
        self._edits: list[int] = []
        """Those that make gradients of it."""
        self.raising = ""
        """What is called, if that is the harm: it raises on infinite gradients."""

    def harm(self) -> int:
        """The line where it comes back to the training; 0: nowhere."""
        known = -1 if self.origins or self._variables else 0
        while known < self._count():
            known = self._count()
            for qualname, function in self.program.functions.items():
                for stmt in ir.statements(function.body):
                    if not self._tells(qualname, stmt):
                        return stmt.line
        return 0

    def reaches_loss(self) -> int:
        """The line where it comes back in a loss, whatever else becomes of it; 0: nowhere."""
        return self._reaches(self._losses)

    def gradients_made(self) -> list[int]:
        """The lines that make gradients of it."""
        self._reaches([])
        return self._edits

    def averages_reach_gradients(self) -> int:
        """The line where a running average of it, ``kept = 0.9 * kept + 0.1 * norm``, comes back in gradients
        of a later step; 0: nowhere."""
        averaging = self.program.noted(_averaging) if self.origins else []
        if not averaging:
            return 0
        self._reaches([])
        kept = Aftermath(self.program, ())
        for function, stmt in averaging:
            origin = (function, stmt.path) in self.origins
            if self._is_masked(stmt, function):
                continue
            if any(self._reads(expr, function, origin) for expr in stmt.exprs):
                for target in stmt.targets:
                    kept._keeps(target, stmt, function)
                for call in ir.all_calls_in(stmt.exprs):
                    kept._follow_changed(call, function)
        return kept._reaches(kept._edits)

    def _is_masked(self, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement masks a gradient of this step, ``kept = kept * mask``: the variable is only
        ever such a gradient, and goes into gradients only."""
        match stmt.targets:
            case (ir.Name(id=name) as kept,) if (
                self.program.owner(name, function) == function
                and not self.program.control(function).reaching(name, stmt.path)[1]
            ):
                return all(
                    self._is_of_this_step(one, kept, where)
                    for where, one in self.program.mentioning(name)
                    if self.program.owner(name, where) == function
                    and any(kept in self._taken(expr, where) for expr in one.exprs)
                )
        return False

    def _is_of_this_step(self, stmt: ir.Stmt, kept: ir.Name, function: str) -> bool:
        """Whether a statement takes a gradient as it is, masks it, or puts it back."""
        if stmt.kind != "assign" or stmt.value is None or len(stmt.targets) != 1:
            return False
        rest = [inner for inner in ir.walk(stmt.value) if inner != kept]
        if _is_of_gradient(stmt.targets[0]) or (
            stmt.targets == (kept,) and _is_product(stmt.value, kept)
        ):
            return not any(self._is_followed(one, function, True) for one in rest)
        calls = ir.calls_in(stmt.value)
        return (
            stmt.targets == (kept,)
            and _is_of_gradient(stmt.value)
            and not any(call.args for call in calls)
        )

    def _reaches(self, lines: list[int]) -> int:
        known = -1 if self.origins else 0
        while known < self._count() and not lines:
            known = self._count()
            for qualname, function in self.program.functions.items():
                for stmt in ir.statements(function.body):
                    self._tells(qualname, stmt)
        return min(lines, default=0)

    @property
    def variables(self) -> frozenset[tuple[str, str]]:
        """(owner, name) of all that have been followed so far."""
        return frozenset(self._variables)

    def _count(self) -> int:
        names = len(self._variables) + len(self._attributes) + len(self._functions)
        return names + len(self._decided)

    # -- reading ------------------------------------------------------------------------------

    def _reads(self, expr: ir.Expr | None, function: str, origin: bool) -> bool:
        return expr is not None and any(
            self._is_followed(inner, function, origin)
            for inner in self._taken(expr, function)
        )

    def _taken(self, expr: ir.Expr, function: str) -> Iterator[ir.Expr]:
        """An expression with all inside it, but for that of which only the shape is asked."""
        yield expr
        if isinstance(expr, ir.Attr) and expr.attr in ("shape", "dtype", "device"):
            return
        inside = ir.children(expr)
        if isinstance(expr, ir.Call):
            name = self.program.origin(expr.func, function) or ""
            asks = name.startswith(("torch.", "numpy.")) and ir.last_of(expr.func)
            inside = (
                inside
                if asks not in _LIKE
                else tuple(arg.value for arg in expr.args[1:])
            )
        for one in inside:
            yield from self._taken(one, function)

    def _is_followed(self, expr: ir.Expr, function: str, origin: bool) -> bool:
        program = self.program
        match expr:
            case ir.Name(id=name):
                return (program.owner(name, function) or "", name) in self._variables
            case ir.Attr(attr=attr):
                return attr in self._attributes or (origin and attr == "grad")
            case ir.Const(value="grad"):
                return origin
            case ir.Call():
                if origin and self._clips(expr, function):
                    return True
                return any(
                    c in self._functions for c in program.callees(expr, function)
                )
        return False

    def _clips(self, call: ir.Call, function: str) -> bool:
        name = self.program.origin(call.func, function) or ""
        return bool(vocabulary.GRADIENT_CLIPPERS.fullmatch(name))

    # -- statements ---------------------------------------------------------------------------

    def _tells(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement does no more than tell of what it reads; what it binds is followed."""
        if (function, stmt.path) in self.known:
            return True
        origin = (function, stmt.path) in self.origins
        decided = (function, stmt.path) in self._decided
        if not decided and not any(
            self._reads(e, function, origin) for e in stmt.exprs
        ):
            return True
        for expr in stmt.exprs:
            for call in ir.calls_in(expr):
                given = any(self._reads(a.value, function, origin) for a in call.args)
                if not self._call_tells(call, function, origin, given, decided):
                    return False
            for part in ir.walk(expr):
                match part:
                    case ir.Operation(
                        op="%", operands=(ir.Const(value=str(text)), shown)
                    ) if _INTEGER_FORMAT.search(text):
                        if self._reads(shown, function, origin):
                            return False
        if any(map(_is_of_gradient, stmt.targets)) and self._reads(
            stmt.value, function, False
        ):
            self._edits.append(stmt.line)
        read = decided or self._reads(stmt.value, function, origin)
        if decided and stmt.kind in ("break", "continue", "raise", "delete", "return"):
            return False
        if stmt.kind == "assert" and read:
            return _is_none_test(stmt.value)
        if stmt.kind == "return" and read:
            self._functions.add(function)
        if stmt.kind in ("if", "while") and read and not _is_none_test(stmt.value):
            for block in stmt.blocks:
                inner = ir.statements(block.body)
                self._decided |= {(function, s.path) for s in inner}
        return not read or all(
            self._keeps(target, stmt, function) for target in stmt.targets
        )

    def _call_tells(
        self, call: ir.Call, function: str, origin: bool, given: bool, decided: bool
    ) -> bool:
        receiver = call.func.value if isinstance(call.func, ir.Attr) else None
        of_it = self._reads(receiver, function, origin)
        if not (given or of_it or decided):
            return True
        callees = self.program.callees(call, function)
        if callees:
            self._follow_into(callees, call, function, origin)
            return not decided
        name = self.program.origin(call.func, function) or ""
        last = (ir.key_of(call.func) or name).rsplit(".", 1)[-1]
        if isinstance(call.func, ir.Attr):
            last = call.func.attr
        if _is_of_gradient(receiver) or self._clips(call, function):
            args = (arg.value for arg in call.args)
            if any(self._reads(one, function, False) for one in args):
                self._edits.append(call.line)
            return True
        if _CHANGES_EACH.fullmatch(name):
            if any(self._reads(one.value, function, False) for one in call.args[1:]):
                self._edits.append(call.line)
            return True
        if last == "backward" and of_it and self.origins:
            # Of gradients of earlier steps; a penalty on those of this one goes backward with them.
            self._losses.append(call.line)
            return False
        if last.endswith("_") and not last.endswith("__"):
            return False
        if given and _FAILS_ON_INF.fullmatch(name):
            # To some digits, infinity is rounded to itself.
            rounds = name == "builtins.round" and len(call.args) > 1
            self.raising = "" if rounds else last
            return rounds
        if _TELLS.fullmatch(last) or name.startswith(_PURE):
            return not name.startswith(_IMPURE)
        if last in _COLLECTS and receiver is not None:
            # A list of one's own is followed; somebody's meter shows what it is given.
            if isinstance(receiver, ir.Name) and self._is_account(
                receiver.id, function
            ):
                self._follow(receiver.id, function)
            return True
        return of_it and not decided

    def _follow_into(
        self, callees: tuple[str, ...], call: ir.Call, function: str, origin: bool
    ) -> None:
        for callee in callees:
            sites = self.program.call_sites.get(callee, [])
            for site in (s for s in sites if s.call is call):
                for param in self.program.functions[callee].params:
                    value = self.program.argument_at(site, param.name)
                    if self._reads(value, function, origin):
                        self._variables.add((callee, param.name))

    def _keeps(self, target: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        """Whether a target is one of the script's own accounts, and no part of the training."""
        if isinstance(target, ir.Display):
            return all(self._keeps(item, stmt, function) for item in target.items)
        if _is_of_gradient(target):
            return True
        root = root_of(target)
        if root is None:
            return False
        held = target.value if isinstance(target, ir.Item) else target
        if held == root:
            changes = stmt.kind == "augassign" or held is not target
            self._follow(root.id, function)
            return not changes or self._is_account(root.id, function)
        if not isinstance(held, ir.Attr):
            return False
        own = self.program.class_of_self(held.value, function)
        if own is not None:
            self._attributes.add(held.attr)
        return own is not None

    def _follow_changed(self, call: ir.Call, function: str) -> None:
        root = _changed_by(call)
        known = root is not None and self.program.owner(root.id, function)
        if root is not None and known and not self.program.origin(root, function):
            self._follow(root.id, function)

    def _follow(self, name: str, function: str) -> None:
        self._variables.add((self.program.owner(name, function) or "", name))

    def _is_account(self, name: str, function: str) -> bool:
        """Whether a variable holds numbers, lists and dicts that the script makes itself."""
        owner = self.program.owner(name, function)
        if owner is None:
            return True
        found = self.program.definitions(owner, name)
        return not self.program.is_param(owner, name) and all(
            d.stmt.kind == "augassign"
            or (d.value is not None and self._is_made_here(d.value, d.function))
            for d in found
        )

    def _is_made_here(self, value: ir.Expr, function: str) -> bool:
        if isinstance(value, ir.Call):
            return (self.program.origin(value.func, function) or "").startswith(
                _MADE_HERE
            )
        return isinstance(value, (ir.Const, ir.Display, ir.Operation, ir.Comprehension))


def _averaging(program: Program) -> list[tuple[str, ir.Stmt]]:
    """The statements that keep running averages, or something else that a later step finds."""
    return [
        (function, stmt)
        for function, stmt in program.all_statements()
        if averages(stmt) or _puts_back(program, function, stmt)
    ]


def _puts_back(program: Program, function: str, stmt: ir.Stmt) -> bool:
    """Whether something is put into what outlives a step, from which was taken before, what an earlier step
    has put there: ``p.grad.add_(kept[name]); kept[name] = p.grad.clone()``."""
    if stmt.kind != "assign" or id(stmt) in program.class_statements:
        return False
    for target in stmt.targets:
        if isinstance(target, ir.Name) or _is_of_gradient(target):
            continue
        holder = target.value if isinstance(target, ir.Item) else target
        match holder:
            case ir.Name(id=name) | ir.Attr(attr=name):
                places = program.mentioning(name)
            case _:
                continue
        if any(
            (
                one.path <= stmt.path and _takes_from(one, holder)
                if where == function
                else _is_edited_by(program, where, one, function, holder)
            )
            for where, one in places
        ) and _outlives_a_step(program, function, stmt, holder):
            return True
    return False


def _is_edited_by(
    program: Program, where: str, stmt: ir.Stmt, function: str, holder: ir.Expr
) -> bool:
    """Whether a statement elsewhere makes gradients of what a function puts into something, and may find what
    an earlier step has put there."""
    if isinstance(holder, ir.Name) and program.owner(holder.id, where) != program.owner(
        holder.id, function
    ):
        return False
    return (
        any(map(_is_of_gradient, edited_by(stmt)))
        and _takes_from(stmt, holder)
        and not all(
            any(
                put.caller == take.caller
                and program.control(put.caller).dominates(put.stmt.path, take.stmt.path)
                for put in program.call_sites.get(function, ())
            )
            for take in program.call_sites.get(where, ())
        )
    )


def _takes_from(stmt: ir.Stmt, holder: ir.Expr) -> bool:
    """Whether a statement does more with a container than to put something there, or to ask what is in it."""
    mentions = sum(inner == holder for expr in stmt.exprs for inner in ir.walk(expr))
    puts = sum(
        holder in (target, target.value if isinstance(target, ir.Item) else None)
        for target in stmt.targets
    )
    asks = sum(
        inner.op in ("in", "not in") and inner.operands[-1] == holder
        for expr in stmt.exprs
        for inner in ir.walk(expr)
        if isinstance(inner, ir.Operation)
    )
    return mentions > puts + asks


def _outlives_a_step(
    program: Program, function: str, stmt: ir.Stmt, holder: ir.Expr
) -> bool:
    """Whether a container is surely none that is made anew for each step."""
    if isinstance(holder, ir.Attr):
        own = program.class_of_self(holder.value, function)
        return own is not None and all(
            ir.local_name(d.function).endswith("__init__")
            for d in program.attribute_definitions(own, holder.attr)
        )
    assert isinstance(holder, ir.Name)
    owner = program.owner(holder.id, function)
    if owner is None or owner != function or program.is_param(owner, holder.id):
        return owner is not None
    loops = [
        outer.path
        for outer in program.control(function).around(stmt.path)
        if outer.kind in ("for", "while")
        and any(
            ir.method_of(call) == "backward"
            for inner in ir.statements((outer,))
            for call in calls_of(inner)
        )
    ]
    step = max(loops, key=len, default=None)
    return step is not None and all(
        d.stmt.path[: len(step)] != step
        for d in program.definitions(function, holder.id)
    )


def _is_product(value: ir.Expr, factor: ir.Expr) -> bool:
    return (
        isinstance(value, ir.Operation) and value.op == "*" and factor in value.operands
    )


def _is_none_test(test: ir.Expr | None) -> bool:
    """``p.grad is not None``: it is, whether the step was skipped or not."""
    match test:
        case ir.Operation(op="and" | "or" | "not", operands=operands):
            return all(map(_is_none_test, operands))
        case ir.Operation(op="is" | "is not", operands=operands):
            return ir.Const(None) in operands
    return isinstance(test, ir.Attr) and test.attr == "requires_grad"


def _changed_by(call: ir.Call) -> ir.Name | None:
    """The variable that ``kept.mul_(0.9).add_(p.grad)`` changes."""
    expr: ir.Expr = call
    while isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        if not expr.func.attr.endswith("_"):
            return None
        expr = expr.func.value
    return root_of(expr) if expr is not call and not _is_of_gradient(expr) else None


def _is_of_gradient(expr: ir.Expr | None) -> bool:
    """A gradient, or a part of one, which the next ``zero_grad`` drops."""
    while isinstance(expr, (ir.Attr, ir.Item, ir.Call)):
        if isinstance(expr, ir.Attr) and expr.attr == "grad":
            return True
        expr = expr.func if isinstance(expr, ir.Call) else expr.value
    return False
