"""Gradients that a penalty on the loss is made of, taken of what ran under autocast: as PyTorch's notes
have it.

The forward runs under autocast, so that these gradients need the scale, too; it is divided out before
anything is computed with them. Dividing by a power of two is exact, and with the scaler disabled the
factor is 1: what the penalty is made of stays the same to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.loops import Refusal, refused
from amp_migrate.analysis.paths.penalties import Penalty
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Edit, Insert, Scale
from amp_migrate.program import ir
from amp_migrate.program.link import Program

GRAD = "torch.autograd.grad"
_SAID = frozenset("outputs inputs create_graph retain_graph only_inputs".split())
_AROUND = ("if", "with")
_SCALES = "inv_scale inverse_scale inv_loss_scale inv_amp_scale".split()
_MOST = 4

Site = tuple[str, ir.Path]


@dataclass(frozen=True, slots=True)
class InnerGradients:
    """``grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)``."""

    function: str
    stmt: ir.Stmt
    outputs: ir.Expr
    names: tuple[str, ...]
    kind: str
    """``list`` or ``tuple``: the one name is bound to all gradients, and what these have to be in then;
    empty: each name is bound to one of them."""
    backward: Site
    """Where the loss goes backward that the penalty has joined."""

    def edits(self, switch: str, identifiers: frozenset[str]) -> list[Edit]:
        """What gives the gradients a scale and takes it from them again; ``identifiers``: the names of
        the file."""
        at = steps_to(self.stmt, self.outputs)
        inverse = next((n for n in _SCALES if n not in identifiers), None)
        if inverse is None:
            message = "no free name for the inverse of the scale"
            raise refused("AMP035", message, self.stmt.line)
        assert at is not None
        lines = [f"{inverse} = 1.0 / {switch}.get_scale()"]
        for name in self.names:
            one = "g" if name != "g" else "grad"
            value = f"{name} * {inverse}"
            if self.kind:
                each = f"{one} * {inverse} for {one} in {name}"
                value = f"[{each}]" if self.kind == "list" else f"tuple({each})"
            lines.append(f"{name} = {value}")
        path = self.stmt.path
        return [Scale(path, at, switch), Insert(path, "\n".join(lines))]


class InnerGradientsFinder:
    """Finds them in one program; what is none of the kind is left to `HigherOrder`."""

    def __init__(
        self, program: Program, events: Events, forward: Forward, is_scaled: bool
    ) -> None:
        self.program = program
        self.events = events
        self.forward = forward
        self.is_scaled = is_scaled
        self._shared: dict[Site, InnerGradients] = {}

    @cached_property
    def judged(self) -> dict[Site, InnerGradients | Refusal]:
        """Every call with respect to parameters, or the reason why it is not followed."""
        found: dict[Site, InnerGradients | Refusal] = {}
        for function, stmt, call in self.program.all_calls():
            if self.program.origin(call.func, function) == GRAD:
                inputs = call.argument(1, "inputs")
                if inputs is not None and self._are_parameters(inputs, function, 0):
                    judged = self._judge(function, stmt, call)
                    if isinstance(judged, str):
                        message = f"torch.autograd.grad() of parameters {judged}"
                        judged = Refusal("AMP023", message, call.line)
                    found[function, stmt.path] = judged
        return found

    @cached_property
    def _followed(self) -> dict[Site, InnerGradients]:
        return {
            site: one
            for site, one in self.judged.items()
            if isinstance(one, InnerGradients)
        }

    def follows(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement takes gradients that are given a scale."""
        site = (function, stmt.path)
        return site in self._followed or site in self._shared

    def before(self, backward: Site) -> Iterator[InnerGradients]:
        """Those whose penalty joins the loss of a backward."""
        for one in (*self._followed.values(), *self._shared.values()):
            if one.backward == backward:
                yield one

    def share(self, calls: Collection[tuple[str, ir.Stmt, ir.Call]]) -> bool:
        """Follow calls with respect to data in fp32, too, if that does for all of them.

        For a penalty on the one forward that the loss has: in fp32 as a whole, it would leave nothing
        to autocast.
        """
        found = {
            (function, stmt.path): self._judge(function, stmt, call)
            for function, stmt, call in calls
        }
        shared = {s: one for s, one in found.items() if isinstance(one, InnerGradients)}
        if not shared or len(shared) < len(found):
            return False
        self._shared |= shared
        return True

    # -- the call -----------------------------------------------------------------------------

    def _judge(
        self, function: str, stmt: ir.Stmt, call: ir.Call
    ) -> InnerGradients | Refusal | str:
        outputs = call.argument(0, "outputs")
        if any(arg.star for arg in call.args) or outputs is None:
            return "is given its arguments in an unknown way"
        if sum(arg.name is None for arg in call.args) > 2 or not _SAID.issuperset(
            arg.name for arg in call.args if arg.name is not None
        ):
            return "is given more than a loss and parameters"
        if call.argument(4, "create_graph") != ir.Const(True):
            return "is no penalty: it makes no graph"
        if not _is_scalar(outputs):
            return "does not differentiate a loss by its name"
        bound = _bound(stmt, call)
        if bound is None:
            return "is not bound to names of its own"
        names, is_sequence = bound
        if any(self.program.owner(name, function) != function for name in names):
            return "is kept in what is not the function's own"
        backwards = self._backwards_behind(stmt, function)
        penalty = Penalty(self.program, function, stmt, names)
        reason = penalty.reason(backwards)
        if reason is not None:
            return reason
        if self.is_scaled:
            line = penalty.decides()
            if line:
                message = (
                    "a penalty on gradients is infinite while the scale is too large for them, "
                    "and comes back to the training here"
                )
                return Refusal("AMP023", message, line)
        kind = ""
        if is_sequence:
            kind = "list" if penalty.is_gone_through(names[0]) else "tuple"
        backward = next(s for s in backwards if penalty.joins(s))
        return InnerGradients(
            function, stmt, outputs, names, kind, (function, backward.path)
        )

    def _backwards_behind(self, stmt: ir.Stmt, function: str) -> list[ir.Stmt]:
        """The backwards that a statement stands before in their block, or under a condition there."""
        body = self.program.functions[function].body
        loops = {s.path for s in ir.statements(body) if s.kind not in _AROUND}
        path = stmt.path
        return [
            backward
            for backward, event in self.events.direct(function)
            if event.kind == "backward"
            and (ir.distance(path, backward.path) or 0) < 0
            and not any(
                path[:length] in loops
                for length in range(len(backward.path), len(path))
            )
        ]

    # -- what it is with respect to ------------------------------------------------------------

    def _are_parameters(self, expr: ir.Expr, function: str, depth: int) -> bool:
        """Whether an expression lists the parameters of a module themselves, no copies of them."""
        program = self.program
        if depth > _MOST:
            return False

        def inner(one: ir.Expr) -> bool:
            return self._are_parameters(one, function, depth + 1)

        match expr:
            case ir.Call(func=ir.Attr(value=owner, attr="parameters")):
                return self.forward.is_module(owner, function)
            case ir.Call(func=func, args=args) if args:
                origin = program.origin(func, function)
                if origin in ("builtins.list", "builtins.tuple"):
                    return inner(args[0].value)
                return origin == "builtins.filter" and inner(args[-1].value)
            case ir.Comprehension(elements=(ir.Name(id=one),), targets=(target,)):
                return target == ir.Name(one) and inner(expr.iterables[0])
            case ir.Display(kind="list" | "tuple", items=items) if items:
                return all(map(inner, items))
            case ir.Operation(op="starred", operands=(listed,)):
                return inner(listed)
            case ir.Attr(value=owner, attr="weight" | "bias"):
                root = owner
                while isinstance(root, (ir.Attr, ir.Item)):
                    if self.forward.is_module(root, function):
                        return True
                    root = root.value
                return self.forward.is_module(root, function)
            case ir.Name():
                made = program.set_to(expr, function)
                return bool(made) and all(
                    d.value is not None
                    and d.index is None
                    and d.stmt.kind in ("assign", "annassign")
                    and self._are_parameters(d.value, d.function, depth + 1)
                    for d in made
                )
        return False


def _is_scalar(outputs: ir.Expr) -> bool:
    """``loss``, ``losses.mean()``: computed already, but for a sum."""
    if isinstance(outputs, ir.Call) and not outputs.args:
        func = outputs.func
        return (
            isinstance(func, ir.Attr)
            and func.attr in ("mean", "sum")
            and isinstance(func.value, ir.Name)
        )
    return isinstance(outputs, ir.Name)


def _bound(stmt: ir.Stmt, call: ir.Call) -> tuple[tuple[str, ...], bool] | None:
    """The names that a statement binds to gradients, and whether one is bound to all."""
    if stmt.kind != "assign" or len(stmt.targets) != 1:
        return None
    target = stmt.targets[0]
    if stmt.value is call:
        if isinstance(target, ir.Name):
            return (target.id,), True
        if isinstance(target, ir.Display):
            names = [item.id for item in target.items if isinstance(item, ir.Name)]
            if names and len(set(names)) == len(target.items):
                return tuple(names), False
    elif stmt.value == ir.Item(call, ir.Const(0)) and isinstance(target, ir.Name):
        return (target.id,), False
    return None
