"""The sigmoids that a value comes from, and what makes them run in fp32.

In fp16 the sigmoid of 9 is 1: what goes into one is cast up, and its result is fp32 from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import MODELS, MODULES, Forward
from amp_migrate.analysis.objects.modules import Construction
from amp_migrate.analysis.objects.points_to import WRAPPERS
from amp_migrate.analysis.objects.rebuilt import has_module_hooks, may_be_rebuilt
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.analysis.tables.dtype_table import ARITHMETIC
from amp_migrate.analysis.values.dtypes import rebinds
from amp_migrate.catalogue.operations import operations
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Island, SplitLast
from amp_migrate.migrate.precision.remedies import (
    Found,
    Planner,
    Remedies,
    Unclear,
    factors_of,
)
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of

SQUASHES = operations("squashes")
_SQUASHES_OUTSIDE = operations("vanishes")
"""Autocast runs them in fp32, outside of it they are in the dtype of their operand."""
_SQUASHING = frozenset(f"torch.nn.{name}" for name in ("Sigmoid", "Tanh"))
_SEVERAL = operations("promoted", "chosen", "adds", "multiplies", "divides") | {"pow"}
"""Functions and methods all of whose operands are in what they give."""
_PARALLEL = frozenset(
    f"torch.nn.parallel.{name}"
    for name in ("data_parallel", "data_parallel.data_parallel")
)
_PACKS = frozenset(
    f"torch.nn.utils.rnn.{name}"
    for name in ("pack_padded_sequence", "pad_packed_sequence")
)
"""What they give has the values of its first operand, whose dtype it keeps."""
_ENDS = operations("forgets")
"""What keeps nothing of how near to 0 or 1 its operand was."""
_KEEPS = operations("first", "promoted", "chosen", "joined", "still") | {"where"}
_KEEPS -= _ENDS
"""Functions and methods whose result is as near to 0 or 1 as their operands, for all that is known."""
_PLACING = operations("source")
_OF_FIRST = operations("shaped") | operations("first").difference(
    _SEVERAL,
    *map(
        operations, "alike bounds fills holds multiplies-and-adds source stores".split()
    ),
)
"""Functions and methods that take their values from their first operand alone."""
_HANDS_OUT = frozenset(
    "enumerate get items iter list next pop reversed sorted tuple values zip".split()
)
"""Those that give what is in a collection."""
_PROMOTES = operations("promote")
_MOST = 200
_FARTHEST = 400
_DEEPEST = 4


Planned = tuple[set[int], dict[Found, None]]


class Sigmoids(Planner):
    """Plans for one program."""

    def __init__(self, remedies: Remedies, forward: Forward) -> None:
        super().__init__(remedies)
        self.forward = forward
        self._asked: set[tuple[int, str, ir.Path, int | None]] = set()
        self.in_fp32: set[int] = set()
        """Expressions (by `id`) that are computed in fp32, from the operands on."""

    def squash(self, at: Made) -> None:
        """Make all sigmoids that a value comes from run in fp32.

        Raises `Unclear` where they are not all in sight.
        """
        if rebinds(at):
            raise self._lost(at)
        self._asked = set()
        self._squash(at)

    def raise_operand(self, at: Made) -> None:
        """Make an operand fp32, with the sigmoids that it comes from.

        Raises `Unclear` where there are none.
        """
        planned = self.planned()
        try:
            self.squash(at)
        except Unclear:
            self.take_back(planned)
            if not self.dtypes.is_fp32(at) or self.dtypes.has_squashed(at, SQUASHES):
                raise
            self.remedies.upcast(at.function, at.stmt, at.expr)

    def may_be_one(
        self,
        at: Made,
        unseen: bool = False,
        is_setting: Callable[[Made], bool] = lambda at: False,
    ) -> bool:
        """Whether a value is computed from a sigmoid, or from calls that are not in sight.

        ``unseen``: or from variables that are not, but for those that are a setting.
        """
        pending, seen = [at], set[tuple[int, str]]()
        while pending and len(seen) < _FARTHEST:
            one = pending.pop()
            if (id(one.expr), one.function) in seen:
                continue
            seen.add((id(one.expr), one.function))
            match one.expr:
                case ir.Attr() if (view := dtype_table.view_of(one.expr)) is not None:
                    pending.append(one.inner(view))
                    continue
                case ir.Name(id=name) if drawn := _drawn(name, one.stmt):
                    pending += map(one.inner, drawn)
                    pending += self.flow.made(one) or ()
                    continue
                case ir.Name() | ir.Attr():
                    made = self.flow.made(one)
                    if unseen and (rebinds(one) or not made):
                        if not (self._is_harmless(one) or is_setting(one)):
                            return True
                    pending += (
                        m.inner(m.expr, one.index if m.index is None else m.index)
                        for m in made or ()
                    )
                    continue
                case ir.Call() as call if self._is_fp32_layer(
                    call, one
                ) or self._runs_in_fp32(call, one):
                    continue
                case ir.Call(func=ir.Name(id=word) | ir.Attr(attr=word)) as call:
                    if self._squashes(word, one):
                        if id(call) in self.in_fp32 or self._is_of_no_half(one, call):
                            continue
                        return True
                    if word not in _KEEPS | _HANDS_OUT:
                        if self.forward.is_forward(call, one.function, MODULES):
                            returned = self._returned(call, one)
                            if returned:
                                pending += returned
                            elif not self.dtypes.is_fp32(
                                one
                            ) or self.dtypes.has_squashed(one, SQUASHES):
                                return True
                        continue
                case ir.Display(items=items) if one.index is not None:
                    meant = items[one.index :][:1]
                    pending += [one.inner(i) for i in meant or items]
                    continue
                case ir.Operation(op="@"):
                    continue
                case ir.Operation(op="if", operands=(test, *arms)):
                    bound = rebinds(one.inner(test))
                    pending += map(one.inner, arms) if bound else self.flow.arms(one)
                    continue
                case ir.Item(value=value):
                    pending.append(one.inner(value))
                    continue
            inside = list(ir.children(one.expr))
            if isinstance(one.expr, ir.Call):
                # What is called is no value, but a method is one of a value.
                func = inside.pop(0)
                if self.program.origin(func, one.function) is None:
                    inside[:0] = [func.value] if isinstance(func, ir.Attr) else []
                if ir.last_of(func) in _OF_FIRST:
                    inside = inside[:1]
            pending += [one.inner(child) for child in inside]
        return bool(pending)

    def _squashes(self, word: str, at: Made) -> bool:
        """Whether a function or method of torch is in half precision 0 or 1 where it is only near to it."""
        return word in SQUASHES or (
            word in _SQUASHES_OUTSIDE and not self._is_under(at)
        )

    def _is_fp32_layer(self, call: ir.Call, at: Made) -> bool:
        """Whether a layer runs that autocast computes in fp32, ``nn.Softmax(1)(x)``, and in a region or of
        what is no half value: it is as exact as with AMP off."""
        made = self.modules.of(call.func, at.function)
        if not made or not all(
            dtype_table.FP32_LAYERS.fullmatch(
                self.program.origin(one.call.func, one.function) or ""
            )
            for one in made
        ):
            return False
        return self._is_under(at) or self._is_given_no_half(call, at)

    def _runs_in_fp32(self, call: ir.Call, at: Made) -> bool:
        """Whether a module runs outside of every region, and of no half values: what it gives is as exact as
        with AMP off, unless a module keeps what it gave in one."""
        return (
            not self._is_under(at)
            and self.forward.is_forward(call, at.function, MODULES)
            and self._is_given_no_half(call, at)
            and not self._keep
        )

    def _is_under(self, at: Made) -> bool:
        return (at.function, at.stmt.path) in self.halves.under_autocast

    def _is_given_no_half(self, call: ir.Call, at: Made) -> bool:
        return all(self.halves.is_never_half(at.inner(arg.value)) for arg in call.args)

    @cached_property
    def _keep(self) -> bool:
        """Whether what may be half is put into an attribute that a module reads, once it is made."""
        program = self.program
        by_name = bool(program.mentioning("setattr", "register_buffer"))
        return (
            by_name
            or has_module_hooks(self.modules)
            or any(
                self._is_kept(inner, method)
                for one in program.classes
                if self.forward.is_module_class(one)
                for name, method in program.classes[one].methods
                if name != "__init__"
                for stmt in program.statements(method)
                for inner in parts_of(stmt)
                if isinstance(inner, ir.Attr)
                and inner.value == ir.Name(program.functions[method].self_name or "")
            )
        )

    def _is_kept(self, attribute: ir.Attr, method: str) -> bool:
        made = [
            (one, one.stmt.value if one.stmt.kind == "augassign" else one.value)
            for _, one in self.program.attribute_targets.get(attribute.attr, ())
            if self.program.functions[one.function].name != "__init__"
        ]
        return (
            attribute.attr == "__dict__"
            or bool(self.flow.contents.put_into(attribute, method))
            or any(
                value is None
                or not self.halves.is_never_half(
                    Made(value, one.function, one.stmt, one.index)
                )
                for one, value in made
            )
        )

    def _is_of_no_half(self, at: Made, call: ir.Call) -> bool:
        """Whether a sigmoid is applied to what is never half: it is as exact as with AMP off."""
        of = call.argument(0, "input")
        if self.program.origin(call.func, at.function) is None:
            of = call.func.value if isinstance(call.func, ir.Attr) else None
        return of is not None and self.halves.is_never_half(
            Made(of, at.function, at.stmt)
        )

    def _is_harmless(self, at: Made) -> bool:
        """Whether what nothing in sight has made is no half value, or no value at all."""
        return self.halves.is_never_half(at) or (
            self.program.origin(at.expr, at.function) is not None
        )

    def _returned(self, call: ir.Call, at: Made) -> list[Made]:
        """What the functions and modules of the program that a call runs return; nothing where one of
        them is not in sight."""
        program = self.program
        refs = program.resolve(call.func, at.function)
        found: list[Made] = []
        for ref in refs:
            name: str | None = ref.name
            if ref.kind == "instance":
                name = program.method(ref.name, "forward")
                if not name and program.external_bases(ref.name) & WRAPPERS:
                    continue
            elif ref.name in WRAPPERS:
                continue
            elif ref.kind != "function":
                return []
            returned = self.flow.returned(name, at.index) if name else None
            if returned is None:
                return []
            found += returned
        return found

    def planned(self) -> Planned:
        """What is planned so far, for `take_back`."""
        return set(self.halves.made_full), dict(self.remedies.edits)

    def take_back(self, planned: Planned) -> None:
        """Forget what was planned since."""
        self.halves.made_full, self.remedies.edits = planned

    def _squash(self, at: Made) -> None:
        key = (id(at.expr), at.function, at.stmt.path, at.index)
        if key in self._asked:
            return
        self._asked.add(key)
        if len(self._asked) > _MOST:
            raise Unclear(
                "BCELoss is given a value that is computed too far away", at.stmt.line
            )
        expr = at.expr
        match expr:
            case ir.Const(value=None):
                return  # This BCELoss does not take, with AMP or without.
            case ir.Attr() if (view := dtype_table.view_of(expr)) is not None:
                self._squash(at.inner(view))
            case ir.Name() | ir.Attr():
                made = self.flow.made(at) or self._handed_out(at)
                if not made or rebinds(at):
                    raise self._lost(at)
                for put in self.flow.put_into(at) if at.index is None else ():
                    self._squash(put)
                for one in made:
                    if at.index is not None and one.index is not None:
                        raise self._lost(at)
                    index = at.index if one.index is None else one.index
                    self._squash(one.inner(one.expr, index))
            case ir.Display(items=items) if at.index is not None:
                if at.index >= len(items):
                    raise self._lost(at)
                self._squash(Made(items[at.index], at.function, at.stmt))
            case ir.Display(kind="list" | "tuple" | "dict", items=items):
                for item in items:
                    self._squash(at.inner(item))
            case ir.Item(value=value, key=ir.Const(value=str(word))):
                entries = self._entries(at.inner(value), word, 0)
                if not entries:
                    raise self._lost(at)
                for entry in entries:
                    self._squash(entry)
            case ir.Item(value=value, key=key_):
                if self._gives_several(value, at):
                    element = key_.value if isinstance(key_, ir.Const) else None
                    if not isinstance(element, int) or element < 0:
                        raise self._lost(at)
                    self._squash(at.inner(value, element))
                else:
                    self._squash(at.inner(value))
            case ir.Operation(op="if", operands=(_, body, orelse)):
                for branch in (body, orelse):
                    self._squash(at.inner(branch, at.index))
            case ir.Operation() | ir.Call() if factors := factors_of(
                self.program, at.function, expr
            ):
                # What probabilities are multiplied to is one again.
                self._squash_terms(at, factors)
                if not self.halves.is_never_half(at) and not self.remedies.isolate(
                    self.forward, at.function, at.stmt, expr, factors
                ):
                    raise self._lost(at)
            case ir.Operation(op=op, operands=operands) if op in (
                *ARITHMETIC,
                "-x",
                "**",
            ):
                self._squash_terms(at, operands)
            case ir.Call():
                self._squash_call(at, expr)
            case _:
                raise self._lost(at)

    def _handed_out(self, at: Made) -> list[Made]:
        """What a loop takes a variable out of: its elements are what is asked for."""
        if not isinstance(at.expr, ir.Name):
            return []
        stmts, from_start = self.flow.reaching(at.expr.id, at)
        if from_start or any(
            stmt.kind != "for" or stmt.targets != (at.expr,) for stmt in stmts
        ):
            return []
        return [Made(s.value, at.function, s) for s in stmts if s.value is not None]

    def _entries(self, at: Made, word: str, depth: int) -> list[Made]:
        """What may stand in a dict under a word; raises `Unclear` where not all of it is in sight."""
        if depth > _DEEPEST or rebinds(at):
            raise self._lost(at)
        match at.expr:
            case ir.Display(kind="dict", items=items, keys=keys):
                pairs = list(zip(keys, items, strict=True))
                if not all(isinstance(key, ir.Const) for key, _ in pairs):
                    raise self._lost(at)
                found = [item for key, item in pairs if key == ir.Const(word)]
                return [at.inner(item) for item in found]
            case ir.Name() | ir.Attr():
                made = self.flow.made(at)
                if not made or any(one.index is not None for one in made):
                    raise self._lost(at)
                entries = [e for m in made for e in self._entries(m, word, depth + 1)]
                contents = self.flow.contents
                for put in contents.put_into(at.expr, at.function, of_dict=True):
                    value = Made(put.value, put.function, put.stmt)
                    if put.spread:
                        entries += self._entries(value, word, depth + 1)
                    elif put.key == ir.Const(word):
                        entries.append(value)
                    elif not _is_another(put.key, word):
                        raise self._lost(at)
                return entries
            case ir.Call(func=func, args=args):
                if self.program.origin(func, at.function) == "builtins.dict":
                    if any(arg.name is None for arg in args):
                        raise self._lost(at)
                    given = [arg.value for arg in args if arg.name == word]
                    return [at.inner(value) for value in given]
                callees = list(self.program.callees(at.expr, at.function))
                for module in self.modules.of(func, at.function) or ():
                    for ref in self.program.resolve(module.call.func, module.function):
                        callees.append(self.program.method(ref.name, "forward") or "")
                if "" in callees:
                    raise self._lost(at)
                returned = [self.flow.returned(callee, None) for callee in callees]
                if returned and all(returned):
                    return [
                        entry
                        for ones in returned
                        for one in ones or ()
                        for entry in self._entries(one, word, depth + 1)
                    ]
        raise self._lost(at)

    def _gives_several(self, value: ir.Expr, at: Made) -> bool:
        """Whether an expression gives a tuple, as far as can be seen."""
        pending = [at.inner(value)]
        for _ in range(_MOST):
            if not pending:
                return False
            one = pending.pop()
            if isinstance(one.expr, ir.Display):
                meant = () if one.index is None else one.expr.items[one.index :][:1]
                if not meant:
                    return True
                pending += map(one.inner, meant)
            elif isinstance(one.expr, (ir.Name, ir.Attr)):
                pending += (
                    m.inner(m.expr, one.index if m.index is None else m.index)
                    for m in self.flow.made(one) or ()
                )
            elif isinstance(one.expr, ir.Call):
                for callee in self.program.callees(one.expr, one.function):
                    pending += self.flow.returned(callee, one.index) or ()
        return True

    def _squash_call(self, at: Made, call: ir.Call) -> None:
        """The sigmoids that a call ends in; where a module's are not found, all of it runs in fp32."""
        planned = self.planned()
        try:
            self._squash_within(at, call)
        except Unclear:
            self.take_back(planned)
            if not self._isolate(at, call):
                raise

    def _isolate(self, at: Made, call: ir.Call) -> bool:
        """Run a module on features in fp32, which is exact whatever it holds; whether that can be.

        Not where it is the first that the data comes to: nothing would be left to autocast.
        """
        stmt, function = at.stmt, at.function
        if (
            stmt.kind != "assign"
            or stmt.value is not call
            or (function, stmt.path) not in self.halves.under_autocast
            or not self.forward.is_forward(call, function, MODULES)
            or len(call.args) != 1
            or call.args[0].star
            or self.program.origin(call.func, function) is not None
        ):
            return False
        given = at.inner(call.args[0].value)
        if not isinstance(given.expr, ir.Name) or not self._is_of_models(given):
            return False
        if not self.remedies.raise_(given, True):
            return False
        self.remedies.edit(function, Island(stmt.path))
        self.halves.made_full.add(id(call))
        return True

    def _is_of_models(self, at: Made) -> bool:
        """Whether all that a value may be made of in sight is computed by modules in a region."""
        pending, seen = [at], set[tuple[int, str]]()
        while pending and len(seen) < _MOST:
            one = pending.pop()
            if (id(one.expr), one.function) in seen:
                continue
            seen.add((id(one.expr), one.function))
            match one.expr:
                case ir.Call() as call if self._is_model(one, call):
                    continue
                case ir.Call(func=func, args=args):
                    inside = [arg.value for arg in args if arg.name is None]
                    if self.program.origin(func, one.function) is None:
                        if not isinstance(func, ir.Attr):
                            return False
                        inside = [func.value]
                    if not inside:
                        return False
                    pending.append(one.inner(inside[0]))
                case ir.Name():
                    made = self.flow.made(one)
                    if not made:
                        return False
                    pending += made
                case ir.Display(items=items) if items:
                    pending += [one.inner(item) for item in items]
                case ir.Item(value=value):
                    pending.append(one.inner(value))
                case _:
                    return False
        return not pending

    def _is_model(self, at: Made, call: ir.Call) -> bool:
        """Whether a call under autocast is one of a module that has parameters, for all that is seen."""
        return (
            at.function,
            at.stmt.path,
        ) in self.halves.under_autocast and self.forward.is_forward(
            call, at.function, MODELS
        )

    def _squash_within(self, at: Made, call: ir.Call) -> None:
        program = self.program
        func = call.func
        first = call.args[0].value if call.args and not call.args[0].star else None
        origin = program.origin(func, at.function)
        if origin is not None:
            name = origin.rsplit(".", 1)[-1]
            plain = origin in (f"torch.{name}", f"torch.nn.functional.{name}")
            if plain and self._squashes(name, at) and first is not None:
                self._squash_operand(at, first)
            elif origin in _PARALLEL:
                self._squash_parallel(at, call)
            elif origin in _PACKS and first is not None:
                self._squash(at.inner(first))
            elif plain and self._keeps(name, at) and first is not None:
                self._squash_terms(at, _kept(name, [arg.value for arg in call.args]))
            else:
                self._expect_no_half(at)
            return
        refs = program.resolve(func, at.function)
        if refs and all(ref.kind == "function" for ref in refs):
            for ref in refs:
                self._squash_returned(ref.name, at)
            return
        if first is not None and self._is_function(func, at.function):
            self._squash_operand(at, first)
            return
        modules = self.modules.of(_layers(call), at.function, called=True)
        if modules is not None:
            kinds = {program.origin(m.call.func, m.function) for m in modules}
            if len(kinds) > 1:
                if not all(map(dtype_table.KEEPING.fullmatch, map(str, kinds))):
                    raise self._lost(at)
                if first is None or any(module.wrapped for module in modules):
                    raise self._lost(at)
                # One of several activations: all of them are in fp32 on fp32.
                self._squash_operand(at, first)
                return
            for module in modules:
                self._squash_module(at, call, module)
            return
        if not refs and isinstance(func, ir.Attr):
            if self._squashes(func.attr, at) and (
                not call.args or func.attr not in SQUASHES
            ):
                self._squash_operand(at, func.value)
                return
            if self._keeps(func.attr, at):
                operands = [func.value, *(arg.value for arg in call.args)]
                if func.attr == "where":
                    operands[:2] = reversed(operands[:2])
                self._squash_terms(at, _kept(func.attr, operands))
                return
        self._expect_no_half(at)

    def _keeps(self, name: str, at: Made) -> bool:
        """Whether the operands of a function of torch can be cast one by one: where it wants them alike,
        autocast has to see to that."""
        return name in _KEEPS and (
            name not in _PLACING
            or (
                name in _PROMOTES
                and (at.function, at.stmt.path) in self.halves.under_autocast
            )
        )

    def _is_function(self, func: ir.Expr, function: str) -> bool:
        """Whether a variable or attribute holds a sigmoid, ``Net(activation=torch.sigmoid)``, or nothing."""
        held = [
            one
            for one in self.modules.points_to.whole(func, function)
            if self.modules.can_run(one.function) and one.expr != ir.Const(None)
        ]
        return bool(held) and all(
            one.name.rpartition(".")[2] in SQUASHES
            and one.name.rpartition(".")[0] in ("torch", "torch.nn.functional")
            for one in held
        )

    def _squash_terms(self, at: Made, terms: Sequence[ir.Expr]) -> None:
        for term in terms:
            of = at.inner(term)
            if self.dtypes.is_number(of) or self.dtypes.is_never_given(of):
                continue
            if self.modules.points_to.constants(term, at.function):
                continue
            if not self.halves.is_never_half(of) or self.may_be_one(of, unseen=True):
                self._squash(of)

    def _squash_operand(self, at: Made, operand: ir.Expr) -> None:
        """Cast up what goes into a sigmoid, unless it is fp32 already."""
        if isinstance(operand, ir.Call) and isinstance(operand.func, ir.Attr):
            if operand.func.attr == "float" and not operand.args:
                return
        of = at.inner(operand)
        self.halves.made_full.add(id(at.expr))
        if self.dtypes.is_fp32(of):
            self.remedies.upcast(at.function, at.stmt, operand)
            return
        factors = factors_of(self.program, at.function, operand)
        if not self.remedies.raise_(of, True) and not (
            factors
            and self.remedies.isolate(
                self.forward, at.function, at.stmt, operand, factors
            )
        ):
            message = (
                "what goes into the sigmoid before BCELoss is not shown to be fp32"
            )
            raise Unclear(message, at.stmt.line)

    def _squash_returned(self, function: str, at: Made) -> None:
        returned = self.flow.returned(function, at.index)
        if not returned:
            raise self._lost(at)
        for one in returned:
            self._squash(one)

    def _squash_module(self, at: Made, call: ir.Call, module: Construction) -> None:
        """The sigmoid that a module ends in."""
        program = self.program
        origin = program.origin(module.call.func, module.function)
        if origin is None:
            refs = program.resolve(module.call.func, module.function)
            for ref in refs:
                forward = program.method(ref.name, "forward")
                if ref.kind != "class" or forward is None:
                    raise self._lost(at)
                self._squash_returned(forward, at)
            return
        if module.wrapped or len(call.args) != 1 or call.args[0].star:
            raise self._lost(at)
        given = call.args[0].value
        if origin in _SQUASHING:
            self._squash_operand(at, given)
            return
        self._split(at, call, _layers(call), given, module)

    def _squash_parallel(self, at: Made, call: ir.Call) -> None:
        """The sigmoid at the end of what ``data_parallel(layers, x)`` runs."""
        if len(call.args) < 2 or any(arg.star or arg.name for arg in call.args[:2]):
            raise self._lost(at)
        layers, given = (arg.value for arg in call.args[:2])
        modules = self.modules.of(layers, at.function)
        if modules is None or len(modules) != 1:
            raise self._lost(at)
        self._split(at, call, layers, given, modules[0])

    def _split(
        self,
        at: Made,
        call: ir.Call,
        named: ir.Expr,
        given: ir.Expr,
        module: Construction,
    ) -> None:
        """Take the last layer, a sigmoid, out of a call of layers in a row."""
        layers = self.modules.layers(module)
        if layers is None or module.wrapped:
            raise self._lost(at)
        given_first = named is not _layers(call)
        optional: list[tuple[ir.Expr, str]] = []
        while layers[-1:] and _is_optional(layers[-1][0]):
            optionally, function = layers.pop()
            (last,) = ir.children(optionally)
            optional.insert(0, (last, function))
        if not layers:
            raise self._lost(at)
        *others, (last, function) = layers
        ends = self.modules.of(last, function)
        depth = 1
        while (
            ends
            and len(ends) == 1
            and not (given_first or optional)
            and depth < _DEEPEST
        ):
            (end,) = ends
            inner = self.modules.layers(end)
            if inner is None or end.wrapped or may_be_rebuilt(self.modules, last, end):
                break
            *more, (last, function) = inner
            others += more
            ends = self.modules.of(last, function)
            depth += 1
        if ends and any(map(self.modules.layers, ends)):
            message = "the layers before BCELoss end in layers of their own, which are not taken apart"
            raise Unclear(message, at.stmt.line)
        added = [self.modules.of(*one) for one in optional]
        for each in added or [ends]:
            if not each or any(
                self.program.origin(end.call.func, end.function) not in _SQUASHING
                for end in each
            ):
                raise self._lost(at)
        start = at.inner(given)
        rows = [[*layers, *optional[:n]] for n in range(len(optional))]
        if not optional or not all(map(self._takes_own_dtype, ends or ())):
            rows.append(others)
        if (
            has_module_hooks(self.modules)
            or may_be_rebuilt(self.modules, named, module)
            or not all(self.dtypes.is_fp32_through(row, start) for row in rows)
        ):
            raise self._lost(at)
        steps = steps_to(at.stmt, call)
        if steps is None or ir.key_of(named) is None:
            raise self._lost(at)
        self.halves.made_full.add(id(at.expr))
        edit = SplitLast(at.stmt.path, steps, given_first, depth, bool(optional))
        self.remedies.edit(at.function, edit)

    def _takes_own_dtype(self, layer: Construction) -> bool:
        """Whether what a layer is given has the dtype of its parameters, or it raises."""
        origin = self.program.origin(layer.call.func, layer.function) or ""
        return bool(
            dtype_table.PARAMETRIC.fullmatch(origin)
            and not dtype_table.EMBEDDING.fullmatch(origin)
            and not dtype_table.NORMS.fullmatch(origin)
        )

    def _expect_no_half(self, at: Made) -> None:
        """What is no sigmoid must not be half by itself."""
        if not self.halves.is_never_half(at):
            raise self._lost(at)

    @staticmethod
    def _lost(at: Made) -> Unclear:
        message = "the sigmoid before BCELoss, which must run in fp32, was not found"
        return Unclear(message, at.stmt.line)


def _drawn(name: str, stmt: ir.Stmt) -> list[ir.Expr]:
    """What the comprehensions of a statement draw a variable from; nothing where a lambda has it, too."""
    found: list[ir.Expr] = []
    for inner in parts_of(stmt):
        if isinstance(inner, ir.Deferred) and name in inner.params:
            return []
        if isinstance(inner, ir.Comprehension):
            for target, iterable in zip(inner.targets, inner.iterables, strict=True):
                if ir.Name(name) in ir.walk(target):
                    found.append(iterable)
    return found


def _is_another(key: ir.Expr | None, word: str) -> bool:
    """Whether a key is never the one that is asked for: another constant, several, ``("disp", 0)``, or a
    text that begins otherwise, ``f"loss/{i}"``."""
    match key:
        case ir.Const(value=value):
            return value != word
        case ir.Display(kind="tuple"):
            return True
        case ir.Operation(
            op="joinedstr" | "+", operands=(ir.Const(value=str(begin)), *_)
        ):
            return not word.startswith(begin)
        case ir.Call(func=ir.Attr(value=ir.Const(value=str(text)), attr="format")):
            return not word.startswith(text.partition("{")[0])
    return False


def _is_optional(layer: ir.Expr) -> bool:
    """Whether layers in a row have it where an option says so."""
    return isinstance(layer, ir.Operation) and layer.op == "perhaps"


def _layers(call: ir.Call) -> ir.Expr:
    """What runs in ``layers(x)``, or ``layers.forward(x)``."""
    match call.func:
        case ir.Attr(value=layers, attr="forward"):
            return layers
    return call.func


def _kept(name: str, operands: list[ir.Expr]) -> list[ir.Expr]:
    """Those operands of a function of torch that are in what it gives."""
    if name == "where":
        return operands[1:]
    if name in operations("joined"):
        match operands[0]:
            case ir.Display(items=items):
                return list(items)
            case ir.Comprehension(elements=elements):
                return list(elements)
    if name in _PLACING:
        return [operands[0], operands[-1]]
    return operands if name in _SEVERAL else operands[:1]
