"""What leaves a region in half precision and is used outside of it by what wants fp32.

Where the value is shown to be fp32 with AMP off, it is cast where it is used. Else the use gets a
region of its own, in a function that has regions. Arithmetic promotes, and needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.modules import Construction
from amp_migrate.analysis.paths.loops import Blocked, refused
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.dtype_questions import tested
from amp_migrate.analysis.values.called import Called, at_once, handed
from amp_migrate.analysis.values.traces import ANY, FULL, At, Trace, Traces
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import CastLike, Edit, Upcast, Widen
from amp_migrate.migrate.precision.casts import Casts
from amp_migrate.migrate.precision.constants import Constants
from amp_migrate.migrate.precision.contexts import Contexts
from amp_migrate.migrate.precision.formulas import Formulas
from amp_migrate.migrate.precision.remedies import Found, Remedies
from amp_migrate.migrate.regions.regions import Regions, Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, parts_of, unpacked

_SUMS = {
    **dict.fromkeys(("builtins.sum", "itertools.accumulate", "math.fsum"), 0),
    "functools.reduce": 1,
}
"""What adds up elements, and where these are given."""
LEAVES = "a value that leaves a region in half precision is used outside of it by"

_PARAMETERS = (
    "torch.nn.Parameter",
    "torch.nn.Embedding.from_pretrained",
    "torch.nn.utils.vector_to_parameters",
)
_RUN_WITH = ("torch.func.functional_call", "torch.nn.utils.stateless.functional_call")
"""What runs a module with other parameters than its own."""
_KEEPERS = (*_PARAMETERS, "torch.utils.data.TensorDataset", "torch.save")
"""What keeps a tensor, in its dtype, for uses that are not followed."""

_WEAK = ("weakref.ref", "weakref.proxy")
_SPACES = frozenset(f"builtins.{name}" for name in "globals locals vars".split())

_WEIGHTED = ("cross_entropy", "nll_loss")
"""Losses that raise outside of autocast where weights are fp32, and what they are for is not;"""
_WEIGHTED_LOSSES = ("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss")
"""and modules that compute these."""
_ADDS = frozenset("add add_ iadd sub sub_ subtract".split())
_MOST_MADE = 60
_RANKS = ("argmax", "argmin", "argsort")
_BOUND = operations("product", "wide", "no-half", "lacks-half")
"""Methods that may be kept, and called later."""
_AT_ONCE = frozenset("list tuple set dict sum sorted max min all any stack cat".split())
"""What takes all that a generator gives."""
_DEEPEST = 4
_SIZES = {"numpy.random.choice": 1, "numpy.random.randint": 2}
"""What gives an array where it is told a size, and where that is given;"""
_PLACES = frozenset(
    (
        *("builtins.list", "builtins.sorted", "random.sample", "random.choices"),
        *(
            f"numpy.{name}"
            for name in """arange argpartition argsort argwhere array asarray concatenate flatnonzero nonzero
            random.permutation unique where""".split()
        ),
    )
)
"""and what gives a list, or an array, in any case."""
_TAKE_TENSORS = frozenset(
    "index_add index_add_ index_copy index_copy_ put put_".split()
)
"""What takes no number in the place of a tensor."""


class Leaving:
    """Plans what becomes of one group's half values outside of its regions."""

    def __init__(
        self,
        remedies: Remedies,
        forward: Forward,
        casts: Casts,
        formulas: Formulas,
        regions: Regions,
        runs: list[Run],
        called: Collection[str],
        files: Collection[str],
        can_run: Callable[[str], bool],
        executes: Callable[[str, ir.Stmt], bool],
    ) -> None:
        """``called``: the functions that regions call. ``files``: where to look, at what can run, and which
        statements of it that ``executes``."""
        self.program = remedies.program
        self.remedies = remedies
        self.forward = forward
        self.casts = casts
        self.formulas = formulas
        self.constants = Constants(remedies, formulas.sigmoids, self._is_never_half)
        self.regions = regions
        self.runs = runs
        self.more: list[Run] = []
        """The regions that uses need."""
        self._in_region = self._called = False
        """Whether what a region keeps for later is looked at, and so is called from one."""
        self.contexts = Contexts(
            self.program, regions, runs, called, files, can_run, executes=executes
        )
        self.traces = self.contexts.traces(
            Traces, remedies.flow, remedies.modules, forward
        )
        self._note(remedies.edits)

    def _note(self, edits: Iterable[Found]) -> None:
        for function, edit in edits:
            if isinstance(edit, (Upcast, Widen)):
                self.traces.cast(self._addressed(function, edit))

    def _addressed(self, function: str, edit: Upcast | Widen) -> ir.Expr:
        expr = self.program.control(function).statements[edit.path].value
        for step in edit.at:
            assert expr is not None
            each = expr.elements if isinstance(expr, ir.Comprehension) else None
            expr = (each or ir.children(expr))[step]
        assert expr is not None
        return expr

    # -- uses ---------------------------------------------------------------------------------

    def judge(self) -> None:
        """Raise `Blocked` at a use for which there is no remedy; those for others are planned."""
        self._in_region = True
        for function, stmt in self._inside():
            self._called = function in self.contexts.called
            sums = not self._called or self._is_meter(function, stmt)
            if sums and self._leaves(function, stmt):
                self._judge_sum(function, stmt)
            kept = [(function, stmt, one) for one in _kept(stmt)]
            kept += self._generated(function, stmt)
            if kept and self._leaves(function, stmt):
                for one in kept:
                    self._called = one[0] in self.contexts.called
                    self._judge_parts(*one)
        self._in_region = self._called = False
        for function in self.contexts.outside:
            for stmt in self.contexts.outside_in(function):
                self._judge(function, stmt)

    def _is_meter(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement that a region calls changes what an object keeps that is no module."""
        held = [t.value if isinstance(t, ir.Item) else t for t in stmt.targets]
        return any(
            isinstance(one, ir.Attr)
            and self.program.class_of_self(one.value, function) is not None
            for one in held
        ) and not self.forward.is_in_module(function)

    def _generated(
        self, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[str, ir.Stmt, ir.Expr]]:
        """What a generator computes that a statement keeps."""
        if isinstance(stmt.value, ir.Call):
            for callee in self.program.callees(stmt.value, function):
                if self.program.functions[callee].is_generator:
                    for inner in self.program.statements(callee):
                        yield from ((callee, inner, expr) for expr in inner.exprs)

    def _inside(self) -> Iterator[tuple[str, ir.Stmt]]:
        """What runs in regions."""
        for function, path in sorted(self.contexts.inside):
            if function not in self.contexts.called:
                yield function, self.program.control(function).statements[path]
        for function in sorted(self.contexts.called):
            for stmt in self.program.statements(function):
                yield function, stmt

    def _leaves(self, function: str, stmt: ir.Stmt, depth: int = 0) -> bool:
        """Whether what a statement in a region binds, or returns, is spoken of outside."""
        if stmt.kind == "return":
            sites = self.program.call_sites.get(function, ())
            return depth < _DEEPEST and any(
                self._leaves(site.caller, site.stmt, depth + 1) for site in sites
            )
        held = [
            target.value if isinstance(target, ir.Item) else target
            for target in stmt.targets
        ]
        match stmt.value:
            case ir.Call(func=ir.Attr(value=value)) if not held:
                held = [value]
        return any(
            where in self.contexts.outside
            and (where, other.path) not in self.contexts.inside
            and (where == function or isinstance(one, ir.Attr) or ir.is_top(function))
            for one in held
            for where, other in self.program.mentioning(ir.last_of(one) or "")
        )

    def _judge(self, function: str, stmt: ir.Stmt) -> None:
        self._judge_limits(function, stmt)
        for expr in stmt.exprs:
            self._judge_parts(function, stmt, expr)
        self._judge_sum(function, stmt)
        for tensor in tested(self.program, function, stmt, self.remedies.dtype):
            if self._trace(function, stmt, tensor).half:
                raise refused("AMP020", f"{LEAVES} a test of its dtype", stmt.line)
        self._judge_store(function, stmt)
        for value in self._hidden(function, stmt):
            self._widened(function, stmt, value)

    def _hidden(self, function: str, stmt: ir.Stmt) -> Iterator[ir.Expr]:
        """What goes where nobody follows it: ``globals()["h"] = h``, ``g.send(h)``, ``c.update(h=h)``."""
        given: list[ir.Expr] = []
        if any(self._hides(target, function) for target in stmt.targets):
            given += [] if stmt.value is None else [stmt.value]
        for call in calls_of(stmt):
            origin = self.program.origin(call.func, function)
            if origin in _WEAK and any(
                self._trace(function, stmt, arg.value).half for arg in call.args[:1]
            ):
                # A cast makes what nothing else holds.
                raise refused("AMP020", f"{LEAVES} a weak reference", stmt.line)
            match call.func:
                case ir.Attr(value=holder, attr="send" | "update") if origin is None:
                    sums = call.func.attr == "send" or any(
                        isinstance(one.expr, ir.Call)
                        and ir.last_of(one.expr.func) == "Counter"
                        for one in self.remedies.flow.made(Made(holder, function, stmt))
                        or ()
                    )
                    if sums or self._is_space(holder, function):
                        given += (arg.value for arg in call.args)
        for one in given:
            yield from one.items if isinstance(one, ir.Display) else (one,)

    def _hides(self, target: ir.Expr, function: str) -> bool:
        match target:
            case ir.Attr(attr="__defaults__" | "__kwdefaults__" | "__dict__"):
                return True
            case ir.Item(value=space):
                return self._is_space(space, function)
        return False

    def _is_space(self, expr: ir.Expr, function: str) -> bool:
        """``globals()``, ``vars(self)``, ``self.__dict__``."""
        match expr:
            case ir.Call(func=func):
                return self.program.origin(func, function) in _SPACES
            case ir.Attr(attr=attr):
                return attr == "__dict__"
        return False

    def _judge_parts(self, function: str, stmt: ir.Stmt, expr: ir.Expr) -> None:
        """What an expression computes, or what it keeps is going to."""
        called = {id(call.func) for call in ir.calls_in(expr)}
        for inner in _now(expr):
            found = None
            if isinstance(inner, ir.Call):
                found = self._of_call(function, stmt, inner)
            elif isinstance(inner, ir.Operation) and inner.op == "@":
                operands = list(inner.operands)
                found = self._of_alike(function, stmt, operands, True, "a product")
            elif isinstance(inner, ir.Operation) and inner.op == "**":
                self._widened(function, stmt, inner.operands[0])
            elif isinstance(inner, ir.Attr) and id(inner) not in called:
                if inner.attr in _BOUND:
                    self._widened(function, stmt, inner.value)
            if found is not None:
                raise refused("AMP020", found, stmt.line)

    def _judge_sum(self, function: str, stmt: ir.Stmt) -> None:
        """A running sum of half values, which would end where half precision does, is one of fp32."""
        for inner in parts_of(stmt):
            operands = self._added(inner, function)
            if not any(self._trace(function, stmt, one).half for one in operands):
                continue
            so_far = [
                one
                for one in operands
                if self._is_so_far(Made(one, function, stmt), inner)
            ]
            if all(self._trace(function, stmt, one) == FULL for one in so_far):
                continue  # There is none, or it is wide enough.
            for one in operands:
                if not any(one is other for other in so_far):
                    self._widened(function, stmt, one)
        match stmt:
            case ir.Stmt(kind="augassign", op="+" | "-", value=added) if added:
                (target,) = stmt.targets
                trace = self._trace(function, stmt, target)
                if trace.off in ("number", "none"):
                    self._widened(function, stmt, added)
                elif self._trace(function, stmt, added).half and self._comes_again(
                    function, stmt, target
                ):
                    held = target.value if isinstance(target, ir.Item) else target
                    flow, at = self.remedies.flow, Made(held, function, stmt)
                    begun = [
                        made
                        for made in (*(flow.made(at) or ()), *flow.put_into(at))
                        if made.stmt.kind == "assign" and made.index is None
                    ]
                    if any(_is_zero(made.expr) for made in begun):
                        self._widened(function, stmt, added)
                    for made in begun if trace.half else ():
                        # It keeps the dtype with which it began.
                        self._widened(*_place(made))

    def _added(self, expr: ir.Expr, function: str) -> tuple[ir.Expr, ...]:
        """What a sum or a difference is made of."""
        match expr:
            case ir.Operation(op="+" | "-", operands=operands):
                return operands
            case ir.Call(func=ir.Attr(value=value), args=args) if (
                ir.method_of(expr) in _ADDS
            ):
                given = tuple(arg.value for arg in args if arg.name is None)
                origin = self.program.origin(expr.func, function)
                return given[:2] if origin is not None else (value, *given[:1])
        return ()

    def _is_so_far(self, at: Made, total: ir.Expr) -> bool:
        """Whether a sum goes into what it is made of: that holds it the next time."""
        flow = self.remedies.flow
        if self._comes_again(at.function, at.stmt, *at.stmt.targets[:1]) and any(
            at.expr == target
            or (isinstance(target, ir.Item) and target.value in ir.walk(at.expr))
            for target in at.stmt.targets
        ):
            return True
        for call in calls_of(at.stmt):
            match call, at.expr:
                case (
                    ir.Call(func=ir.Name(id="setattr"), args=(to, name, made)),
                    ir.Call(func=ir.Name(id="getattr"), args=(of, known, *_)),
                ) if (to, name) == (of, known):
                    return any(part is total for part in ir.walk(made.value))
        pending = [at]
        seen: set[tuple[int, ir.Path, str]] = set()
        while pending and len(seen) < _MOST_MADE:
            one = pending.pop(0)
            for inner in ir.walk(one.expr):
                part = one.inner(inner)
                key = (id(inner), one.stmt.path, one.function)
                if key in seen:
                    continue
                seen.add(key)
                found: list[Made] = []
                match inner:
                    case ir.Name() | ir.Attr():
                        found += flow.made(part) or ()
                        found += flow.put_into(part)
                    case ir.Call(func=func):
                        for ref in self.program.resolve(func, one.function):
                            if ref.kind == "function":
                                found += flow.returned(ref.name, None) or ()
                if any(total is e for other in found for e in ir.walk(other.expr)):
                    return True
                pending += found
        return False

    def _comes_again(
        self, function: str, stmt: ir.Stmt, target: ir.Expr | None = None
    ) -> bool:
        """Whether a statement runs again with what it gave a variable, or an attribute."""
        return self._is_in_loop(function, stmt) or not (
            isinstance(target, ir.Name)
            and self.program.owner(target.id, function) == function
        )

    def _is_in_loop(self, function: str, stmt: ir.Stmt) -> bool:
        around = self.program.control(function).around(stmt.path)
        return any(outer.kind in ("for", "while") for outer in around)

    def _judge_limits(self, function: str, stmt: ir.Stmt) -> None:
        """Numbers that half precision does not have, and logarithms of what is 0 or 1 in it."""
        known = set(self.remedies.edits)
        found = None
        if self.constants.mentions(stmt, function) and any(
            self._trace(function, stmt, inner).half for inner in parts_of(stmt)
        ):
            found = self.constants.refusal(function, stmt)
        for call in calls_of(stmt):
            if ir.method_of(call) not in operations("log"):
                continue
            values = [arg.value for arg in call.args[:1]]
            if isinstance(call.func, ir.Attr):
                values.append(call.func.value)
            if any(self._trace(function, stmt, value).half for value in values):
                found = found or self.formulas.of_log(Made(call, function, stmt))
        self._note(self.remedies.edits.keys() - known)
        if found is not None:
            raise Blocked(found)

    def _is_never_half(self, at: Made) -> bool:
        part = () if at.index is None else (at.index,)
        return not self.traces.of(At(at.expr, at.function, at.stmt, False, part)).half

    def _widened(self, function: str, stmt: ir.Stmt, value: ir.Expr) -> None:
        """Compute with a half value in fp32 what fp32 is wanted for, if it can be cast."""
        if any(
            self.program.origin(call.func, function) == "torch.autograd.grad"
            for call in calls_of(stmt)
        ):
            return  # only its gradient counts
        if self._trace(function, stmt, value).half:
            # Not all calls need be in sight.
            given = isinstance(value, ir.Name) and (
                self.program.is_param(function, value.id)
            )
            self._helped(function, stmt, [value], [value], False, "", perhaps=given)

    def _trace(self, function: str, stmt: ir.Stmt, expr: ir.Expr) -> Trace:
        return self.traces.of(At(expr, function, stmt, self._called))

    def _element(self, function: str, stmt: ir.Stmt, held: ir.Expr) -> Trace:
        return self.traces.of(At(held, function, stmt, self._called, (ANY,)))

    def _of_call(self, function: str, stmt: ir.Stmt, call: ir.Call) -> str | None:
        inner = at_once(self.program, call, function)
        call = inner or handed(self.program, call, function) or call
        func = call.func
        origin = self.program.origin(func, function)
        values = [arg.value for arg in call.args if not arg.star]
        spread = [
            arg.value
            for arg in call.args
            if arg.star
            # Of what comes out of sight it is not known which element is meant.
            and not (
                isinstance(arg.value, ir.Name)
                and self.program.is_param(function, arg.value.id)
            )
        ]
        if (
            spread
            and origin is None
            and self._wants_fp32(func, function)
            and any(self._element(function, stmt, one).half for one in spread)
        ):
            if not self._own_region(function, stmt):
                return f"{LEAVES} a module"
            return None
        held = self._functions_held(call, function, stmt) if origin is None else ()
        for known in held:
            name = known.rsplit(".", 1)[-1]
            found = self._of_torch(function, stmt, name, values, known, call)
            if found is not None:
                return found
        if lambdas := self._lambdas(func, function, stmt):
            halves = [v for v in values if self._trace(function, stmt, v).half]
            plain = any(self._trace(function, stmt, v) == FULL for v in values)
            met = [self._multiplied(*one, plain) for one in lambdas]
            wants = any(self._wants_in_lambda(one, where) for one, where, _ in lambdas)
            if any("half" in kinds and len(kinds) > 1 for kinds in met) or (
                (wants or any("fp32" in kinds for kinds in met))
                and any(self._element(function, stmt, one).half for one in spread)
            ):
                return f"{LEAVES} a lambda"
            if wants or any("fp32" in kinds for kinds in met):
                return self._helped(function, stmt, halves, [], False, "a lambda")
        if origin is None and self._wants_fp32(func, function):
            halves = [v for v in values if self._trace(function, stmt, v).half]
            sure = self._takes_tensor(func, function)
            return self._helped(
                function, stmt, halves, values[:1], True, "a module", sure
            )
        if origin is None and _is_array(call):
            assert isinstance(func, ir.Attr)
            values = [func.value]
        if origin == "functools.partial":
            halves = [v for v in values[1:] if self._trace(function, stmt, v).half]
            return self._helped(function, stmt, halves, [], False, "a partial")
        if origin in _SUMS and len(values) > (at := _SUMS[origin]):
            match values[at]:
                case ir.Comprehension(elements=(element,)):
                    self._widened(function, stmt, element)
                    self._widen_elements(function, stmt, element)
                case _:
                    self._widen_elements(function, stmt, values[at])
            return None
        if (origin or "").startswith("numpy.") or _is_array(call):
            return self._of_arrays(function, stmt, call, values)
        if origin is not None and not origin.startswith(("torch.", "operator.setitem")):
            return None
        if origin in _RUN_WITH and any(
            self._trace(function, stmt, value).half for value in values
        ):
            return None if self._own_region(function, stmt) else f"{LEAVES} a module"
        if origin in _KEEPERS:
            halves = [v for v in values if self._trace(function, stmt, v).half]
            refused = self._helped(function, stmt, halves, [], False, "a parameter")
            return refused if origin in _PARAMETERS else None
        if origin is None:
            if not isinstance(func, ir.Attr) or self.program.resolve(func, function):
                return None
            name, operands = func.attr, [func.value, *values]
        else:
            name, operands = origin.rsplit(".", 1)[-1], values
        if any(self._element(function, stmt, one).half for one in spread):
            multiplies = not self._in_region and name in operations("product")
            if self._lacks_half(name, origin) or (
                multiplies and not self._own_region(function, stmt)
            ):
                return f"{LEAVES} {name}()"
        if not operands:
            return None
        return self._of_torch(function, stmt, name, operands, origin, call)

    def _of_torch(
        self,
        function: str,
        stmt: ir.Stmt,
        name: str,
        operands: list[ir.Expr],
        origin: str | None,
        call: ir.Call,
    ) -> str | None:
        """What a function or a method of torch does with its operands."""
        put = self.casts.source_of(function, stmt, call)
        if name == "index_put" and len(operands) > 2:
            put = operands[2], operands[0]
        if put is not None:
            source, tensor = put
            return self._stored(function, stmt, source, tensor, f"{name}()", name)
        into = [arg.value for arg in call.args if arg.name == "out"]
        if (
            into
            and name not in operations("joined")
            and not self._trace(function, stmt, into[0]).half
        ):
            operands = [one for one in operands if one not in into]
            halves = [v for v in operands if self._trace(function, stmt, v).half]
            return self._helped(function, stmt, halves, [], False, f"{name}(out=...)")
        if name in _WEIGHTED and call.argument(2, "weight") is not None:
            halves = [v for v in operands[:1] if self._trace(function, stmt, v).half]
            return self._helped(function, stmt, halves, halves, True, f"{name}()")
        if self._lacks_half(name, origin):
            halves = [v for v in operands if self._trace(function, stmt, v).half]
            at = Made(operands[0], function, stmt)
            sure = origin is not None or self.remedies.is_tensor(at)
            return self._helped(
                function, stmt, halves, operands[:1], False, f"{name}()", sure
            )
        for like in self.casts.counted_like(Made(call, function, stmt)):
            self._widened(like.function, like.stmt, like.expr)
        if name in operations("grows"):
            self._widened(function, stmt, operands[0])
        if name in operations("product"):
            return self._of_alike(function, stmt, operands, True, f"{name}()")
        if name in operations("alike"):
            return self._of_alike(function, stmt, operands, False, f"{name}()")
        return None

    def _functions_held(
        self, call: ir.Call, function: str, stmt: ir.Stmt
    ) -> Iterator[str]:
        """The functions of torch that are called by what holds them: ``measure = torch.linalg.svdvals``."""
        called = self.program.noted(Called).held(call.func, function, stmt)
        names = {self.program.origin(expr, where) or "" for expr, where, _ in called}
        for ref in self.program.resolve(call.func, function):
            if ref.kind == "external":
                names.add(ref.name)
        names = {name for name in names if name.startswith("torch.")}
        if names and any(
            self._trace(function, stmt, arg.value).half for arg in call.args
        ):
            yield from sorted(names)

    def _of_arrays(
        self, function: str, stmt: ir.Stmt, call: ir.Call, values: list[ir.Expr]
    ) -> str | None:
        """What becomes an array: a tensor, or what a function of NumPy is given that is one for sure."""
        for value in values:
            if not self._trace(function, stmt, value).half:
                continue
            # np.concatenate(kept), after kept.append(h.cpu())
            self._widen_elements(function, stmt, value)
            sure = _is_array(call) or _is_on_device(value)
            made = any(_is_array(one) for one in ir.calls_in(value))
            if made or not sure or self._is_ranked(function, stmt, value):
                continue
            found = self._helped(
                function, stmt, [value], [value], False, "an array", True
            )
            if found is not None:
                return found
        return None

    def _widen_elements(self, function: str, stmt: ir.Stmt, held: ir.Expr) -> None:
        """Put into a list, or all of which it is one, in fp32 what is a half tensor for sure."""
        for whole in self._wholes(function, stmt, held):
            for put in self.remedies.flow.contents.put_into(whole, function):
                self._widened(put.function, put.stmt, put.value)

    def _wholes(self, function: str, stmt: ir.Stmt, held: ir.Expr) -> Iterator[ir.Expr]:
        """A collection, and those of which it is a part: ``v`` and ``rows`` of ``for k, v in
        rows.items()``."""
        pending = [held]
        for one in pending:
            match one:
                case ir.Item(value=whole):
                    pending.append(whole)
                case ir.Call(func=ir.Attr(value=whole, attr="items" | "values")):
                    pending.append(whole)
                case ir.Name(id=name):
                    drawn = [
                        (part.targets, part.iterables)
                        for part in parts_of(stmt)
                        if isinstance(part, ir.Comprehension)
                    ] + [
                        (made.stmt.targets, (made.stmt.value,))
                        for made in self.program.defined(name, function)
                        if made.stmt.kind == "for" and made.stmt.value is not None
                    ]
                    for targets, iterables in drawn:
                        if any(one in ir.walk(target) for target in targets):
                            pending += (i for i in iterables if i not in pending)
                    yield one
                case _:
                    yield one

    def _is_ranked(self, function: str, stmt: ir.Stmt, value: ir.Expr) -> bool:
        """Whether a statement asks for places in it, such as that of the largest."""
        return any(
            ir.method_of(call) in _RANKS and any(one is value for one in ir.walk(call))
            for call in calls_of(stmt)
        )

    def _lambdas(
        self, func: ir.Expr, function: str, stmt: ir.Stmt
    ) -> list[tuple[ir.Deferred, str, ir.Stmt]]:
        """The lambdas that are called, and where they stand."""
        called = self.program.noted(Called).held(func, function, stmt)
        return [
            (one, where, made or stmt)
            for one, where, made in [*called, (func, function, stmt)]
            if isinstance(one, ir.Deferred)
        ]

    def _wants_in_lambda(self, one: ir.Deferred, where: str) -> bool:
        """Whether a lambda makes an array, keeps a sum, or computes what wants fp32."""
        keeps = any(ir.method_of(c) == "__setitem__" for c in ir.calls_in(one.body))
        if keeps and any(self._added(part, where) for part in ir.walk(one.body)):
            return True
        return any(
            _is_array(call)
            or self._lacks_half(
                ir.method_of(call) or "", self.program.origin(call.func, where)
            )
            for call in ir.calls_in(one.body)
        )

    def _multiplied(
        self, one: ir.Deferred, where: str, stmt: ir.Stmt, plain: bool
    ) -> set[str]:
        """What a lambda multiplies, as far as it is no half value that it is given: "fp32", or "half" that it
        finds: ``lambda h: h @ weight``. ``plain``: it is given some that is fp32."""
        found = set()
        for part in ir.walk(one.body):
            match part:
                case ir.Operation(op="@", operands=operands):
                    pass
                case ir.Call() if ir.method_of(part) in operations("product"):
                    operands = ir.children(part)
                case _:
                    continue
            for inner in chain.from_iterable(map(_choices, operands)):
                if isinstance(inner, ir.Name) and inner.id in one.params:
                    found |= {"fp32"} if plain else set()
                    continue
                trace = self._trace(where, stmt, inner)
                if trace.half:
                    found.add("half")
                elif trace._replace(scalar=False) == FULL:
                    found.add("fp32")
        return found

    @staticmethod
    def _lacks_half(name: str, origin: str | None) -> bool:
        """Whether an operation raises in half precision, or loses its meaning there."""
        return name in operations("wide", "lacks-half") or (
            origin is not None
            and (
                name in operations("no-half")
                or dtype_table.FP32_ONLY.fullmatch(origin) is not None
                or dtype_table.RAISES.fullmatch(origin) is not None
            )
        )

    def _of_alike(
        self,
        function: str,
        stmt: ir.Stmt,
        operands: list[ir.Expr],
        product: bool,
        what: str,
    ) -> str | None:
        """Operands that have to be of one dtype."""
        items = [
            item
            for one in operands
            for item in (one.items if isinstance(one, ir.Display) else (one,))
        ]
        traces = [self._trace(function, stmt, item) for item in items]
        halves = [i for i, t in zip(items, traces, strict=True) if t.half]
        full = any(not t.half and t.off in ("fp32", "data") for t in traces) or (
            self._may_be_either(function, stmt, *halves)
        )
        open_ = any(not t.half and t.off == "?" for t in traces)
        if full or (self._in_region and open_):
            return self._helped(function, stmt, halves, items[:2], product, what)
        if halves and open_ and product:
            # What is not followed may be half as well: only a region is right for both.
            self._own_region(function, stmt)
        return None

    def _judge_store(self, function: str, stmt: ir.Stmt) -> None:
        """``buffer[mask] = half``."""
        for target, value, index in unpacked(stmt) if stmt.kind == "assign" else ():
            if value is None or index is not None:
                continue
            found = None
            if (
                isinstance(target, ir.Attr)
                and target.attr in ("data", "grad")
                and not self._is_of_plain_class(target.value, function)
            ):
                halves = [value] if self._trace(function, stmt, value).half else []
                found = self._helped(function, stmt, halves, [], False, "a parameter")
            elif (
                isinstance(target, ir.Item)
                and self._differ(function, stmt, value, target.value, "")
                and self._is_tensor_key(target.key, function, stmt)
            ):
                held, what = target.value, "an indexed store"
                found = self._stored(function, stmt, value, held, what)
            if found is not None:
                raise refused("AMP020", found, stmt.line)

    def _is_of_plain_class(self, expr: ir.Expr, function: str) -> bool:
        """Whether it is an object of a class of the program that is no kind of tensor: what is kept in its
        ``data`` is anything."""
        classes = self.program.instance_classes(expr, function)
        return bool(classes) and not any(map(self.program.external_bases, classes))

    def _is_tensor_key(self, key: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        if isinstance(key, ir.Display) and key.kind == "list":
            return True
        keys = key.items if isinstance(key, ir.Display) else (key,)
        return any(
            isinstance(one, (ir.Call, ir.Name, ir.Attr, ir.Operation, ir.Item))
            and (
                self._trace(function, stmt, one).off in ("data", "integer")
                or self._are_places(Made(one, function, stmt))
            )
            for one in keys
        )

    def _are_places(self, key: Made, depth: int = 0) -> bool:
        """Whether a key may be a list, or an array of NumPy, at which a store wants equal dtypes."""
        if depth > _DEEPEST:
            return False
        for one in self.remedies.flow.made(key) or [key]:
            match one.expr:
                case _ if one.index is not None or one.stmt.kind == "for":
                    continue
                case ir.Display(kind="list"):
                    return True
                case ir.Comprehension(elements=(_,), lazy=False, is_set=False):
                    return True
                case ir.Item(value=whole, key=ir.Operation(op="slice")):
                    if self._are_places(one.inner(whole), depth + 1):
                        return True
                case ir.Operation(op="if", operands=(_, *either)):
                    if any(self._are_places(one.inner(e), depth + 1) for e in either):
                        return True
                case ir.Call(func=func) as call:
                    origin = self.program.origin(func, one.function) or ""
                    place = _SIZES.get(origin)
                    if (
                        origin in _PLACES
                        or (place is not None and call.argument(place, "size"))
                        or any(
                            self._are_places(Made(stmt.value, callee, stmt), depth + 1)
                            for callee in self.program.callees(call, one.function)
                            for stmt in self.program.statements(callee)
                            if stmt.kind == "return" and stmt.value is not None
                        )
                    ):
                        return True
        return False

    def _differ(
        self,
        function: str,
        stmt: ir.Stmt,
        source: ir.Expr,
        tensor: ir.Expr,
        name: str,
    ) -> bool:
        """Whether one of two tensors, and only one, is half."""
        put = self._trace(function, stmt, source)
        if put.off == "number" or (
            # What is put there is of the other's dtype with AMP off, or it would raise.
            put.off == "?"
            and not (
                put.half
                and (
                    name in _TAKE_TENSORS
                    or self.remedies.is_tensor(Made(source, function, stmt))
                )
            )
        ):
            return False
        held = self._trace(function, stmt, tensor)
        return held.off not in ("?", "number") and (
            put.half != held.half or self._may_be_either(function, stmt, source, tensor)
        )

    def _may_be_either(self, function: str, stmt: ir.Stmt, *values: ir.Expr) -> bool:
        made = (Made(value, function, stmt) for value in values)
        return any(map(self.casts.may_be_either, made))

    def _stored(
        self,
        function: str,
        stmt: ir.Stmt,
        source: ir.Expr,
        tensor: ir.Expr,
        what: str,
        name: str = "",
    ) -> str | None:
        if not self._differ(function, stmt, source, tensor, name):
            return None
        if self._trace(function, stmt, source).off in ("fp32", "?"):
            text, steps = ir.render(tensor), steps_to(stmt, source)
            if text is not None and "(" not in text and steps is not None:
                self.remedies.edit(function, CastLike(stmt.path, steps, text))
                return None
        return f"{LEAVES} {what}"

    # -- modules ------------------------------------------------------------------------------

    def _wants_fp32(self, func: ir.Expr, function: str) -> bool:
        """Whether a module is called that has parameters."""
        match func:
            case ir.Attr(value=module, attr="forward" | "__call__"):
                func = module
            case ir.Deferred(body=body):
                calls = ir.calls_in(body)
                return any(self._wants_fp32(call.func, function) for call in calls)
        made = self.remedies.modules.of(func, function, called=True)
        if made is None and isinstance(func, ir.Name):
            found = self.program.defined(func.id, function)
            lambdas = [d.value for d in found if isinstance(d.value, ir.Deferred)]
            if lambdas:
                return any(self._wants_fp32(one, function) for one in lambdas)
        if made is None:
            return not self.program.resolve(func, function) and self.traces.is_model(
                func, function
            )
        return any(self._has_parameters(one, ()) for one in made)

    def _takes_tensor(self, func: ir.Expr, function: str) -> bool:
        """Whether all that is called are layers of torch that take nothing else."""
        modules = self.remedies.modules
        kinds = [
            self.program.origin(made.call.func, made.function) or ""
            for made in map(modules.inherited, modules.of(func, function) or ())
        ]
        return bool(kinds) and all(
            dtype_table.PARAMETRIC.fullmatch(kind)
            and not dtype_table.RECURRENT.fullmatch(kind)
            for kind in kinds
        )

    def _has_parameters(self, made: Construction, around: tuple[str, ...]) -> bool:
        program = self.program
        made = self.remedies.modules.inherited(made)
        origin = program.origin(made.call.func, made.function)
        if origin is not None:
            if dtype_table.IMAGE_MODELS.fullmatch(origin):
                return True
            if origin in _WEIGHTED_LOSSES:
                return made.call.argument(0, "weight") is not None
            if dtype_table.PARAMETRIC.fullmatch(origin):
                return not (
                    dtype_table.NORMS.fullmatch(origin)
                    or dtype_table.EMBEDDING.fullmatch(origin)
                )
            layers = self.remedies.modules.layers(made) or []
            if origin.startswith("torch.nn.utils.") and made.call.args:
                # ``weight_norm(nn.Conv1d(...))`` is that layer.
                layers = [(made.call.args[0].value, made.function)]
            inner = [
                part
                for expr, where in layers
                for part in self.remedies.modules.of(expr, where) or ()
            ]
            return any(self._has_parameters(one, around) for one in inner)
        for ref in program.resolve(made.call.func, made.function):
            if ref.kind != "class" or ref.name in around:
                continue
            for name, method in program.classes[ref.name].methods:
                if name != "__init__":
                    continue
                for _, call in each_call(program.functions[method].body):
                    one = Construction(call, method)
                    known = program.origin(call.func, method)
                    if (known or "").endswith((".Parameter", ".Sequential")):
                        return True
                    if self._has_parameters(one, (*around, ref.name)):
                        return True
        return False

    # -- remedies -----------------------------------------------------------------------------

    def _helped(
        self,
        function: str,
        stmt: ir.Stmt,
        halves: list[ir.Expr],
        firm: list[ir.Expr],
        product: bool,
        what: str,
        tensor: bool = False,
        perhaps: bool = False,
    ) -> str | None:
        """Cast values up, or put their use into a region; else say what they are used by.

        ``what``: nothing where it is no must. ``firm``: values that are not None, or the program raises.
        ``tensor``: and no other than tensors; ``perhaps``: tensors, or numbers.
        """
        found: list[tuple[ir.Expr, Edit]] = []
        for value in halves:
            at = Made(value, function, stmt)
            steps = steps_to(stmt, value, each=True)
            trace = self._trace(function, stmt, value)
            off = trace.used.off if value in firm else trace.off
            if steps is None or not (off == "fp32" or self.remedies.dtypes.is_fp32(at)):
                if product and self._own_region(function, stmt):
                    return None
                sure = (
                    (tensor and value in firm)
                    or _is_on_device(value)
                    or (bool(what) and self.remedies.is_tensor(at))
                )
                widened = self.remedies.raised(
                    function, stmt, value, sure, perhaps, hoists=bool(what)
                )
                if widened:
                    found += [(value, edit) for _, edit in widened]
                    continue
                return f"{LEAVES} {what}"
            found.append((value, Upcast(stmt.path, steps)))
        for value, edit in found:
            self.remedies.edit(function, edit)
            self.traces.cast(value)
        return None

    def _own_region(self, function: str, stmt: ir.Stmt) -> bool:
        """Put a statement into a region of its own, if there can be one."""
        if self._in_region:
            return False
        if stmt.blocks or stmt.is_elif or self.regions.is_barrier(stmt, function):
            return False
        if all(run.function != function for run in self.runs):
            return False
        run = Run(function, stmt.path, stmt.path[-1][1])
        if run not in self.more:
            self.more.append(run)
        return True


def _is_on_device(value: ir.Expr) -> bool:
    """Whether nothing but a tensor is what a value is made of: it is on a device, or part of a graph."""
    return any(
        isinstance(inner, ir.Attr) and inner.attr in ("cpu", "detach", "data")
        for inner in ir.walk(value)
    )


def _is_array(call: ir.Call) -> bool:
    return isinstance(call.func, ir.Attr) and call.func.attr == "numpy"


def _is_zero(expr: ir.Expr) -> bool:
    """Whether a sum begins with it, or what it is a part of: ``0``, ``defaultdict(float)``."""
    return isinstance(expr, ir.Const) or (
        isinstance(expr, ir.Call)
        and ir.last_of(expr.func) in ("defaultdict", "Counter")
    )


def _place(made: Made) -> tuple[str, ir.Stmt, ir.Expr]:
    return made.function, made.stmt, made.expr


def _choices(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """What an expression may be: either arm of a conditional."""
    if isinstance(expr, ir.Operation) and expr.op == "if":
        return expr.operands[1:]
    return (expr,)


def _kept(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """What a statement keeps of which something is computed later: the bodies of lambdas, what generators
    give."""
    exprs = [stmt.value] if stmt.value is not None else []
    for expr in exprs:
        match expr:
            case ir.Deferred(body=body):
                yield body
            case ir.Comprehension(lazy=True) | ir.Attr():
                yield expr
            case ir.Display(items=items):
                exprs += items
            case ir.Operation(op="if", operands=(_, *arms)):
                exprs += arms
            case ir.Call(func=func, args=args):
                if ir.last_of(func) in ("partial", "map", "filter", "starmap"):
                    yield expr
                if ir.last_of(func) not in _AT_ONCE:
                    exprs += (arg.value for arg in args)


def _now(expr: ir.Expr) -> Iterator[ir.Expr]:
    """An expression and what is computed with it; bodies of lambdas are not."""
    if isinstance(expr, ir.Deferred):
        return
    for child in ir.children(expr):
        yield from _now(child)
    yield expr
