"""Which optimizers are sure to find gradients of a loss: a scaler raises where one finds none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from amp_migrate.analysis.objects.forward import MODULES, Forward
from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.analysis.objects.modules import Modules
from amp_migrate.analysis.objects.optimizers import Birth, Slot
from amp_migrate.analysis.paths.loops import Backward
from amp_migrate.analysis.paths.ownership import Ownership
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.migrate.regions.regions import Regions, Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.control_flow import ends
from amp_migrate.program.link import Program

_CUTS_OFF = frozenset(
    """detach detach_ data no_grad inference_mode set_grad_enabled argmax argmin item numpy tolist
    round sign long int bool multinomial sample topk bernoulli where""".split()
)
"""What gradients do not pass, or not all of them."""

_NUMBERS = frozenset("shape size dim ndim numel nelement dtype device".split())
"""What of a tensor is a number, of which it gets no gradients."""

_CONTAINERS = ("torch.nn.ModuleList", "torch.nn.ModuleDict")
_MAY_BE_LEFT_OUT = frozenset("if for while try trystar match".split())
_LEAVES = ("raise", "return", "continue", "break")
_SEVERAL_VALUES = frozenset({"if", "and", "or"})

Place = tuple[str, int, int]
"""Where a call stands: its function, line and column."""


class Reach:
    """Answers for the losses of one group."""

    def __init__(
        self,
        program: Program,
        regions: Regions,
        forward: Forward,
        ownership: Ownership,
    ) -> None:
        self.program = program
        self.regions = regions
        self.forward = forward
        self.ownership = ownership

    def of_birth(self, one: Slot, birth: Birth) -> Reach:
        """The same, asked of an optimizer where a certain birth has made it."""
        ownership = self.ownership.of_birth(one, birth)
        return Reach(self.program, self.regions, self.forward, ownership)

    def reached(self, backward: Backward, runs: Sequence[Run]) -> frozenset[Slot]:
        """The optimizers that hold a module which the forward of a loss mentions."""
        found = self._holders_of_terms(backward)
        # What stands beside the backward is most likely to name them all.
        for function, stmt, _ in sorted(
            self._statements(backward, runs),
            key=lambda place: place[0] != backward.function,
        ):
            if found >= self.ownership.all:
                break
            found |= self._mentioned(function, stmt)
        return frozenset(found)

    def casts_without_gradients(
        self, run: Run, is_full: Callable[[str, ir.Stmt], bool]
    ) -> bool:
        """Whether what a region calls runs, with gradients off, weights that may get gradients in the same
        region: before torch 2.13, the casts that are kept of them lead nowhere. ``is_full``: what casts none.
        """
        inside = self.regions.statements_in(run)
        if any(
            self.regions.is_without_gradients(run.function, stmt) for stmt in inside
        ):
            return False  # Nothing gets gradients here.
        held: dict[bool, set[Slot]] = {False: set(), True: set()}
        parts: dict[bool, set[str]] = {False: set(), True: set()}
        pending = [(run.function, stmt, False, "") for stmt in inside]
        seen: set[tuple[str, bool, str]] = set()
        while pending:
            function, stmt, off, since = pending.pop()
            if is_full(function, stmt):
                continue
            own = self.program.self_class(function)
            if not off and self.regions.is_without_gradients(function, stmt):
                off = True
                if own is not None and self.forward.is_in_module(function):
                    since = own[1]
            if self.forward.in_statement(stmt, function, MODULES):
                held[off] |= self._mentioned(function, stmt)
                if own is not None and (not off or self._is_kin(own[1], since)):
                    parts[off] |= {
                        inner.attr
                        for inner in parts_of(stmt)
                        if isinstance(inner, ir.Attr)
                        and inner.value == ir.Name(own[0])
                        and self.forward.is_module(inner, function)
                    }
            for call in calls_of(stmt):
                for callee in self.program.callees(call, function):
                    if (callee, off, since) not in seen:
                        seen.add((callee, off, since))
                        body = self.program.statements(callee)
                        pending += ((callee, one, off, since) for one in body)
        return bool(held[False] & held[True] or parts[False] & parts[True])

    def _is_kin(self, class_name: str, other: str) -> bool:
        return bool(other) and class_name in self.program.family(other)

    def _holders_of_terms(self, backward: Backward) -> set[Slot]:
        """The optimizers of parameters that are terms of a loss by themselves, above its backward and
        in no region: ``-(self.log_alpha * entropy.detach()).mean()``."""
        function = backward.function
        needed = self.forward.reads_of(backward.receiver, function)
        found: set[Slot] = set()
        for stmt in reversed(self._before(backward)):
            if stmt.kind not in ("assign", "annassign", "augassign") or not (
                self.forward.writes(stmt, function) & needed
            ):
                continue
            for inner in () if stmt.value is None else _uncut(stmt.value):
                if isinstance(inner, (ir.Name, ir.Attr)):
                    found |= self.ownership.holders(inner, function, stmt)
                    found |= self._holders_behind(inner, function)
                    needed.add(self.forward.variable(inner, function) or "")
        return found

    def _holders_behind(self, expr: ir.Expr, function: str) -> set[Slot]:
        """The optimizers of all that a property returns: ``self.alpha`` is ``self.log_alpha.exp()``."""
        if not isinstance(expr, ir.Attr):
            return set()
        returned = [
            {
                slot
                for inner in _uncut(value)
                if isinstance(inner, (ir.Name, ir.Attr))
                for slot in self.ownership.holders(inner, getter, stmt)
            }
            for getter, stmt, value in self.program.behind_property(expr, function)
        ]
        return set.intersection(*returned) if returned else set()

    def surely(self, backward: Backward, runs: Sequence[Run]) -> frozenset[Slot]:
        """Those among them that get gradients whenever the loss goes backward."""
        statements = list(self._statements(backward, runs))
        found: set[Slot] = set()
        if any(_cuts_off(stmt) for _, stmt, _ in statements):
            function = backward.function
            needed = self.forward.reads_of(backward.receiver, function)
            return frozenset(self._fed(self._before(backward), function, needed)[0])
        for function, stmt, always in statements:
            if always:
                found |= self._mentioned(function, stmt, alone=True)
        return frozenset(found)

    def _fed(
        self, body: Sequence[ir.Stmt], function: str, needed: set[str]
    ) -> tuple[set[Slot], set[str], bool]:
        """The optimizers that get gradients by statements of which a loss is made in any case, and by nothing
        that cuts gradients off: what is added to it later takes none away. And what it is made of above
        them, and whether all of them could be followed.
        """
        found: set[Slot] = set()
        for stmt in reversed(body):
            written = self.forward.writes(stmt, function) & needed
            if not written or all(
                _adds(inner)
                for inner in ir.statements((stmt,))
                if self.forward.writes(replace(inner, blocks=()), function) & needed
            ):
                continue
            if stmt.kind == "if":
                arms = [
                    self._fed(block, function, needed)
                    for block in _arms(stmt)
                    if not block or block[-1].kind not in _LEAVES
                ]
                if arms:
                    found |= set.intersection(*(slots for slots, _, _ in arms))
                    needed = set.intersection(*(above for _, above, _ in arms))
                if not arms or not all(goes_on for _, _, goes_on in arms):
                    return found, needed, False
                continue
            if stmt.kind not in ("assign", "annassign"):
                return found, needed, False
            needed = needed - written
            called = self._called(function, stmt, set(), True)
            if not _chooses(stmt) and not any(_cuts_off(one) for _, one, _ in called):
                needed |= self._read_by(stmt, function, _CUTS_OFF | _NUMBERS)
                for inner in () if stmt.value is None else _uncut(stmt.value):
                    if isinstance(inner, (ir.Name, ir.Attr, ir.Item)):
                        found |= self.ownership.runs(inner, function, stmt)
        return found, needed, True

    def _read_by(
        self, stmt: ir.Stmt, function: str, cuts: Collection[str] = _NUMBERS
    ) -> set[str]:
        """The variables that a statement mentions, but for ``cuts`` of theirs."""
        if stmt.kind not in ("assign", "annassign") or stmt.value is None:
            return self.forward.uses(stmt, function)
        return {
            variable
            for inner in _uncut(stmt.value, cuts)
            if isinstance(inner, (ir.Name, ir.Attr))
            if (variable := self.forward.variable(inner, function)) is not None
        }

    def only(self, backward: Backward, runs: Sequence[Run]) -> bool:
        """Whether all modules of a forward belong to the optimizers, so that one of them, at least,
        gets gradients."""
        for function, stmt, _ in self._statements(backward, runs):
            if self.forward.is_in_module(function):
                # A part of a module that is held as a whole.
                continue
            for call in calls_of(stmt):
                if not self.forward.is_forward(call, function, MODULES):
                    continue
                if self.program.callees(call, function):
                    # What it runs is looked at as well.
                    continue
                if self.program.origin(call.func, function) is not None:
                    continue
                if self._is_plain_loss(call.func, function):
                    continue
                if not self.ownership.holders(call.func, function, stmt):
                    key = ir.key_of(call.func) or ""
                    if "loss" not in key.lower() and "crit" not in key.lower():
                        return False
        return True

    def _is_plain_loss(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is a loss of torch, which has no parameters."""
        kinds = [
            self.program.origin(one.call.func, one.function) or ""
            for one in self._modules.of(expr, function) or ()
        ]
        return bool(kinds) and all(
            kind.startswith("torch.nn.")
            and kind.endswith("Loss")
            and not kind.endswith("SoftmaxWithLoss")
            for kind in kinds
        )

    def only_strangers(
        self, backward: Backward, runs: Sequence[Run], births: Iterable[Birth]
    ) -> bool:
        """Whether a loss comes from modules alone that are made where no optimizer gets their
        parameters. Asked of optimizers that are given what methods of models give and nothing else.
        """
        held: set[Place] = set()
        for birth in births:
            for model in self._asked(parameters_of(birth.call), birth.function):
                made = set() if model is None else self._made(model, birth.function)
                if not made:
                    return False
                held |= made
        run: set[Place] = set()
        for function, stmt, _ in self._statements(backward, runs):
            if self.forward.is_in_module(function):
                # Its parts have one name in all objects of the class.
                continue
            if self._mentioned(function, stmt):
                return False
            for call in calls_of(stmt):
                if self.forward.is_forward(call, function, MODULES):
                    made = self._made(call.func, function)
                    if not made:
                        return False
                    run |= made
        return bool(run) and not (held & run or self._holders_of_terms(backward))

    def _asked(self, given: ir.Expr | None, function: str) -> Iterator[ir.Expr | None]:
        """The models whose methods give a list of parameters, None for what else may be in it."""
        match given:
            case ir.Operation(op="+", operands=operands):
                for one in operands:
                    yield from self._asked(one, function)
            case ir.Call(func=ir.Attr(value=model, attr="parameters"), args=()):
                yield model
            case ir.Call(func=ir.Attr(value=model)) if self.program.callees(
                given, function
            ):
                yield model
            case _:
                yield None

    def _made(self, expr: ir.Expr, function: str) -> set[Place]:
        """Where a module is made that neither is part of another nor is given one; none if unknown."""
        made = self._modules.of(expr, function) or []
        for one in made:
            if self.program.origin(one.call.func, one.function) in _CONTAINERS:
                return set()  # Others may be put into it.
            given = (inner for arg in one.call.args for inner in ir.walk(arg.value))
            if self.forward.is_in_module(one.function) or any(
                isinstance(inner, (ir.Name, ir.Attr, ir.Item))
                and (
                    self._modules.of(inner, one.function)
                    or self.program.instance_classes(inner, one.function)
                )
                for inner in given
            ):
                return set()
        return {(one.function, one.call.line, one.call.column) for one in made}

    @cached_property
    def _modules(self) -> Modules:
        return Modules(self.program)

    def _statements(
        self, backward: Backward, runs: Sequence[Run]
    ) -> Iterator[tuple[str, ir.Stmt, bool]]:
        """The statements of a forward, and whether each runs whenever the loss is made."""
        yield backward.function, backward.stmt, True
        seen: set[str] = set()
        needed = self.forward.reads_of(backward.receiver, backward.function)
        sure = set(needed)
        for run in reversed(runs):
            always = True
            for outer in self.program.statements(run.function):
                if outer.path == run.path[: len(outer.path)] and outer.path != run.path:
                    if outer.kind == "with":
                        yield run.function, outer, True
                    elif outer.kind in _MAY_BE_LEFT_OUT:
                        own = run.function == backward.function
                        both = outer.path == backward.stmt.path[: len(outer.path)]
                        always = always and own and both
            inside = self.regions.statements_in(run)
            perhaps = set[int]()
            if run.function == backward.function:
                inside = self._that_matter(run.function, inside, needed, sure, perhaps)
            for function, stmt, here in self._in_block(
                run.function, inside, len(run.path), seen, always
            ):
                yield function, stmt, here and id(stmt) not in perhaps
        yield from self._called(backward.function, backward.stmt, seen, True)

    def _before(self, backward: Backward) -> list[ir.Stmt]:
        """The statements above a backward in its block."""
        path = backward.stmt.path
        return [
            stmt
            for stmt in self.program.statements(backward.function)
            if len(stmt.path) == len(path) and (ir.distance(stmt.path, path) or 0) < 0
        ]

    def _that_matter(
        self,
        function: str,
        body: list[ir.Stmt],
        needed: set[str],
        sure: set[str],
        perhaps: set[int],
    ) -> list[ir.Stmt]:
        """Those of some statements, in order, from which a loss is made; ``perhaps``: of what only one arm
        of an ``if`` reads, not what is ``sure`` to be read."""
        kept = []
        chosen = [stmt.path for stmt in body if stmt.kind == "if"]
        for stmt in reversed(body):
            written = self.forward.writes(stmt, function)
            if stmt.blocks or written & needed:
                needed |= self._read_by(stmt, function)
                kept.append(stmt)
                if not stmt.blocks and not written & sure:
                    perhaps.add(id(stmt))
                elif not any(stmt.path[: len(p)] == p != stmt.path for p in chosen):
                    sure |= self._surely_read(stmt, function)
            elif stmt.kind not in ("assign", "annassign", "augassign"):
                kept.append(stmt)
        return kept[::-1]

    def _surely_read(self, stmt: ir.Stmt, function: str) -> set[str]:
        """The variables that a statement reads whichever arms of its own it takes."""
        arms = [
            set[str]().union(*(self._surely_read(s, function) for s in block.body))
            for block in stmt.blocks
            if stmt.kind != "if" or not ends(block.body)
        ]
        if stmt.kind == "if":
            both = len(stmt.blocks) > 1 and arms
            return set.intersection(*arms) if both else set()
        return self._read_by(replace(stmt, blocks=()), function).union(*arms)

    def _in_block(
        self,
        function: str,
        body: Sequence[ir.Stmt],
        depth: int,
        seen: set[str],
        always: bool,
    ) -> Iterator[tuple[str, ir.Stmt, bool]]:
        outer = {s.path for s in body if s.kind in _MAY_BE_LEFT_OUT}
        for stmt in body:
            inside = any(
                stmt.path[:size] in outer for size in range(depth, len(stmt.path))
            )
            here = always and not inside and not _chooses(stmt)
            yield function, stmt, here
            yield from self._called(function, stmt, seen, here)

    def _called(
        self, function: str, stmt: ir.Stmt, seen: set[str], always: bool
    ) -> Iterator[tuple[str, ir.Stmt, bool]]:
        for call in calls_of(stmt):
            for callee in self.program.callees(call, function):
                if callee not in seen:
                    seen.add(callee)
                    found = self.program.functions[callee]
                    body = list(ir.statements(found.body))
                    depth = len(found.path) + 1
                    yield from self._in_block(callee, body, depth, seen, always)

    def _mentioned(
        self, function: str, stmt: ir.Stmt, alone: bool = False
    ) -> set[Slot]:
        """``alone``: only by names that stand for one module, which runs as a whole."""
        found: set[Slot] = set()
        for inner in parts_of(stmt):
            if isinstance(inner, (ir.Name, ir.Attr, ir.Item)):
                if alone:
                    found |= self.ownership.runs(inner, function, stmt)
                else:
                    found |= self.ownership.holders(inner, function, stmt)
        return found

    @property
    def switched(self) -> frozenset[Slot]:
        """The optimizers some of whose parameters may be kept from getting gradients for a while."""
        return frozenset(self._switched)

    @cached_property
    def _switched(self) -> dict[Slot, set[str]]:
        """Each with the functions that do so."""
        found: dict[Slot, set[str]] = {}
        for function, stmt, holder in self.program.noted(_all_switches):
            for one in self.ownership.may_hold(holder, function, stmt):
                # Where it is made by the same, another script's is not this one.
                files = ir.file_of(function), ir.file_of(one.owner)
                if self.program.may_run_together(*files):
                    found.setdefault(one, set()).add(function)
        return found

    def switched_on(
        self,
        function: str,
        step: ir.Stmt,
        optimizer: Slot,
        is_apart: Callable[[str, str], bool],
    ) -> bool:
        """Whether an optimizer is let have gradients again before a step: by what comes before that in its
        function, or before this returns, where nothing else keeps it from them. ``is_apart``: of the step's
        function, what never runs on its objects."""
        switching = {f for f in self._switched[optimizer] if not is_apart(function, f)}
        if not switching:
            return True
        control = self.program.control(function)
        known = {
            path: state
            for path, stmt in control.statements.items()
            if (state := self._switch(function, stmt, optimizer)) is not None
        }
        on = {path for path, state in known.items() if state}

        def is_on(path: ir.Path | None, at_first: bool) -> bool:
            return control.is_on(
                path, on, lambda s: known.get(s.path) is False, at_first
            )

        if is_on(step.path, False):
            return True
        alone = switching == {function}
        return (
            alone
            and is_on(step.path, True)
            and (ir.is_top(function) or is_on(None, True))
        )

    def _switch(self, function: str, stmt: ir.Stmt, optimizer: Slot) -> bool | None:
        """Whether a statement switches gradients of what an optimizer holds on, for all of a module, or
        some of them off; None where it does neither."""
        for call in calls_of(stmt):
            if not any(map(self._is_switch, self.program.callees(call, function))):
                continue
            given = [inner for arg in call.args for inner in ir.walk(arg.value)]
            if any(
                optimizer in self.ownership.holders(inner, function, stmt)
                for inner in given
                if isinstance(inner, (ir.Name, ir.Attr, ir.Item))
            ):
                return ir.Const(True) in given
        for holder in _switches(stmt):
            if optimizer in self.ownership.may_hold(holder, function, stmt):
                return False
        if any(
            optimizer in self.ownership.holders(module, function, stmt)
            for module in _switches_on(stmt)
        ):
            return True
        return None

    def _is_switch(self, function: str) -> bool:
        body = self.program.statements(function)
        return any(any(_switches(stmt)) for stmt in body)


def _all_switches(program: Program) -> list[tuple[str, ir.Stmt, ir.Expr]]:
    """Each statement that does so, with its function, and whose."""
    return [
        (function, stmt, holder)
        for function in program.functions
        for stmt in program.statements(function)
        for holder in _switches(stmt)
    ]


def _switches(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """Whose ``requires_grad`` a statement sets to anything but True."""
    if stmt.kind == "assign" and stmt.value != ir.Const(True):
        for target in stmt.targets:
            if isinstance(target, ir.Attr) and target.attr == "requires_grad":
                yield target.value
    for call in calls_of(stmt):
        if isinstance(call.func, ir.Attr) and call.func.attr == "requires_grad_":
            if call.args and call.args[0].value != ir.Const(True):
                yield call.func.value


def _switches_on(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """The modules all of whose parameters a statement lets have gradients, by a loop or at once."""
    match stmt:
        case ir.Stmt(
            kind="for",
            targets=(ir.Name() as turn,),
            value=ir.Call(func=ir.Attr(value=module, attr="parameters")),
            blocks=(ir.Block(body=(inner,)),),
        ):
            asked = ir.Attr(turn, "requires_grad")
            if (
                inner.targets == (asked,) and inner.value == ir.Const(True)
            ) or turn in _switches_on(inner):
                yield module
    for call in calls_of(stmt):
        if isinstance(call.func, ir.Attr) and call.func.attr == "requires_grad_":
            if all(arg.value == ir.Const(True) for arg in call.args):
                yield call.func.value


def _cuts_off(stmt: ir.Stmt) -> bool:
    return any(ir.says(expr, _CUTS_OFF) for expr in stmt.exprs)


def _arms(stmt: ir.Stmt) -> list[tuple[ir.Stmt, ...]]:
    """The ways through an ``if``, that past it included."""
    bodies = {block.field: block.body for block in stmt.blocks}
    return [bodies.get("body", ()), bodies.get("orelse", ())]


def _adds(stmt: ir.Stmt) -> bool:
    """``loss += more``, ``loss = loss + more``."""
    match stmt:
        case ir.Stmt(
            kind="assign",
            targets=(target,),
            value=ir.Operation(op="+", operands=(first, _)),
        ):
            return first == target
    return stmt.kind == "augassign" and stmt.op in ("+", "-")


def _chooses(stmt: ir.Stmt) -> bool:
    return any(
        isinstance(inner, ir.Operation) and inner.op in _SEVERAL_VALUES
        for inner in parts_of(stmt)
    )


def _uncut(
    expr: ir.Expr, cuts: Collection[str] = _CUTS_OFF | _NUMBERS
) -> Iterator[ir.Expr]:
    """What is inside an expression, but for what gradients do not pass."""
    match expr:
        case ir.Attr(attr=attr) if attr in cuts:
            return
        case ir.Call(func=ir.Name("len")):
            return
        case ir.Call(func=ir.Attr(attr=attr)) if attr in cuts:
            return
        case ir.Operation(op=op) if op in dtype_table.COMPARISONS:
            return
    yield expr
    inside = (expr.value,) if isinstance(expr, ir.Item) else ir.children(expr)
    for child in inside:
        yield from _uncut(child, cuts)
