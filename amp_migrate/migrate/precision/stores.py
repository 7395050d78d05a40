"""Stores by a mask or by indices, or into ``.data``, of values that are to be of their tensor's dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.analysis.tables import dtype_table
from amp_migrate.catalogue.operations import operations
from amp_migrate.core.closure import reached
from amp_migrate.core.fixpoint import Fixpoint
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Recast, Upcast
from amp_migrate.migrate.precision.casts import Casts
from amp_migrate.migrate.precision.remedies import Planner, Remedies
from amp_migrate.program import ir
from amp_migrate.program.given import is_object
from amp_migrate.program.names import Definition

_SHOWN_BY_OTHERS = (ir.Name, ir.Attr, ir.Const, ir.Operation)
"""What these are is what they are made of."""
_GIVE_PLACES = operations("compares", "integers") - {"int"}
"""Methods of tensors whose results are masks or places."""
_TO_CPU = frozenset(("cpu", "numpy", "tolist", "item", "to"))
_SAY_THEIR_DTYPE = operations("integers").union("float item tolist numpy size".split())
_PERMUTATIONS = frozenset(
    f"numpy.{n}" for n in "arange argsort random.permutation".split()
)
"""What gives NumPy's arrays of places: what has such a key may be an array, too."""


class Stores(Planner):
    """Plans the casts of what one program's statements store."""

    def __init__(self, remedies: Remedies, casts: Casts) -> None:
        super().__init__(remedies)
        self.casts = casts
        self._held: Fixpoint[Made, frozenset[Made]] = Fixpoint(
            self._find_held, frozenset(), lambda some: frozenset[Made]().union(*some)
        )

    def refusal(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """``buffer[mask] = half``: index_put wants equal dtypes."""
        into = [
            target
            for target in stmt.targets
            if (isinstance(target, ir.Attr) and target.attr == "data")
            or (isinstance(target, ir.Item) and not _is_text(target.key))
        ]
        if stmt.kind != "assign" or stmt.value is None or not into:
            return None
        stored = Made(stmt.value, function, stmt)
        # A tensor takes no list.
        if self.dtypes.is_number(stored) or isinstance(
            stmt.value, (ir.Const, ir.Display, ir.Comprehension)
        ):
            return None
        if any(map(self._is_array, self._held_in(stored))):
            return None
        for target in into:
            if isinstance(target, ir.Attr):
                if not self._keeps_dtype(function, stmt, target.value):
                    message = "a tensor that lasts would be half from here on"
                    return Refusal("AMP020", message, stmt.line)
                continue
            if _takes_dtype(stmt.value, target.value):
                continue
            at = Made(target.value, function, stmt)
            if isinstance(target.value, ir.Name):
                is_buffer = any(
                    self._is_made_by_torch(d)
                    and not self._holds_integers(d.value, d.function)
                    for d in self.program.defined(target.value.id, function)
                ) and not self._is_looked_up(function, stmt, target.value)
            elif isinstance(target.value, ir.Attr):
                is_buffer = self._may_be_buffer(target.value, function)
                registered = list(self._registered(target.value, function))
                if registered and all(
                    self._holds_integers(call.argument(1, "tensor"), caller)
                    for caller, call in registered
                ):
                    continue
            else:
                is_buffer = self.dtypes.is_fp32(at) and self._is_made_whole(at)
            is_buffer = is_buffer and not self._says_dtype(function, stmt, target)
            if not is_buffer and not isinstance(target.value, ir.Item):
                is_buffer = self.casts.differ(function, stmt, target.value, stmt.value)
            indexed = not is_buffer and self._has_tensor_key(function, stmt, target)
            if indexed or (is_buffer and not self._is_integer(target.key, function)):
                takes_any = {self._takes_any(one) for one in self._held_in(at)}
                if takes_any == {True}:
                    continue
                if True not in takes_any and (
                    (indexed and self._is_no_array(at, stored))
                    or self._is_surely_tensor(target.value, function)
                    or self.remedies.is_tensor(at)
                ):
                    value = stmt.value
                    number = not self._is_tensor(stmt.value, function, stmt)
                    if value is not None and (
                        self.casts.cast_like(
                            function, stmt, value, target.value, number
                        )
                        or self._raises_masked(at, target.key, value)
                    ):
                        continue
                message = "an indexed store of a half result into an fp32 buffer raises"
                return Refusal("AMP020", message, stmt.line)
        return None

    def _raises_masked(self, tensor: Made, key: ir.Expr, value: ir.Expr) -> bool:
        """``kept[mask == 0] = h[mask == 0]``: also where it is not shown that ``h`` is a tensor; a list takes
        no such key."""
        return (
            isinstance(value, ir.Item)
            and key in ir.walk(value.key)
            and self.dtypes.is_fp32(tensor)
            and self.halves.is_never_half(tensor)
            and self.remedies.raise_(tensor.inner(value.value), False, perhaps=True)
        )

    def _keeps_dtype(self, function: str, stmt: ir.Stmt, tensor: ir.Expr) -> bool:
        """``u.data = v`` gives a tensor that lasts another one: whether that is as wide as with AMP off,
        where need be by a cast."""
        if stmt.value is None or is_object(self.program, tensor, function):
            return True
        value = Made(stmt.value, function, stmt)
        if self._is_like(value, tensor):
            return True
        text, steps = ir.render(tensor), steps_to(stmt, stmt.value)
        if steps is not None and self.dtypes.is_fp32(value):
            self.remedies.edit(function, Upcast(stmt.path, steps))
        elif text is None or "(" in text or self.remedies.has_halves:
            return False
        else:
            half = self.remedies.dtype
            self.remedies.edit(function, Recast(stmt.path, f"{text}.data", half, True))
        return True

    def _is_like(self, value: Made, tensor: ir.Expr) -> bool:
        """Whether a value is no half one, but for what it takes from a tensor itself."""
        full = self.halves.made_full
        like = (tensor, *self._beside(value, tensor))
        own = {id(one) for one in ir.walk(value.expr) if one in like} - full
        full |= own
        try:
            return self.halves.is_never_half(value)
        finally:
            full -= own

    def _beside(self, value: Made, tensor: ir.Expr) -> Iterator[ir.Expr]:
        """The other parameters of a loop: ``for p, q in zip(one.parameters(), other.parameters())``."""
        for outer in self.program.control(value.function).around(value.stmt.path):
            match outer:
                case ir.Stmt(
                    kind="for",
                    targets=(ir.Display(items=items),),
                    value=ir.Call(func=func, args=args),
                ) if (
                    tensor in items
                    and self.program.origin(func, value.function) == "builtins.zip"
                    and all(
                        isinstance(arg.value, ir.Call)
                        and ir.last_of(arg.value.func) == "parameters"
                        for arg in args
                    )
                ):
                    yield from items

    def _is_looked_up(self, function: str, store: ir.Stmt, name: ir.Name) -> bool:
        """Whether a layer looks up what a variable holds behind a store: that takes integers only, and what
        those do not take in half they do not take in fp32."""
        control = self.program.control(function)
        held = control.reaching(name.id, store.path)
        for stmt in control.block(store.path)[store.path[-1][1] + 1 :]:
            if stmt.blocks or stmt.kind not in ("assign", "augassign", "expr"):
                return False
            if control.reaching(name.id, stmt.path) != held:
                return False
            for call in ir.calls_in(stmt.value) if stmt.value else ():
                made = self.modules.of(call.func, function)
                if made and ir.Arg(name) in call.args[:1]:
                    origins = (
                        self.program.origin(m.call.func, m.function) for m in made
                    )
                    if all(dtype_table.EMBEDDING.fullmatch(o or "") for o in origins):
                        return True
        return False

    def _says_dtype(self, function: str, stmt: ir.Stmt, target: ir.Item) -> bool:
        """Whether a value says its dtype itself, and that is right for what it goes into."""
        match stmt.value:
            case ir.Call(func=ir.Attr(attr="to" | "type" | "type_as")):
                # That of something else may be half.
                return self.halves.is_never_half(
                    Made(stmt.value, function, stmt)
                ) or not self.halves.is_never_half(Made(target.value, function, stmt))
            case ir.Call(func=ir.Attr(attr=method)):
                return method in _SAY_THEIR_DTYPE
        return False

    def _has_tensor_key(self, function: str, stmt: ir.Stmt, target: ir.Item) -> bool:
        """``h[x > 0] = half``: what has a mask or places for a key is a tensor, of its value's dtype."""
        if stmt.value is None or not self._is_of_places(target.key, function, stmt):
            return False
        value, at = (Made(e, function, stmt) for e in (stmt.value, target.value))
        full = self.halves.is_never_half(value) or self._is_promoted(value)
        differ = full != self._is_made_whole(at) or any(
            map(self.casts.may_be_either, (value, at))
        )
        return (not full and self._is_unseen(at)) or (
            differ and any(map(self.dtypes.is_fp32, (value, at)))
        )

    def _is_made_whole(self, at: Made) -> bool:
        """Whether a tensor is never half; what is stored there by places does not change its dtype."""
        full = self.halves.made_full
        stored = {
            id(put.expr)
            for one in reached([at], self.casts.handed_by)
            for put in self.flow.put_into(one)
            for target in put.stmt.targets
            if isinstance(target, ir.Item) and put.expr is put.stmt.value
            if self._is_of_places(target.key, put.function, put.stmt)
        } - full
        full |= stored
        try:
            return self.halves.is_never_half(at)
        finally:
            full -= stored

    def _is_unseen(self, at: Made) -> bool:
        """Whether a value may be one that is not followed, as what an unknown function gives."""
        return any(
            not self.casts.handed_by(one) and not self._is_shown(one)
            for one in reached([at], self.casts.handed_by)
        )

    def _is_no_array(self, at: Made, stored: Made) -> bool:
        """Whether what takes a value by places is a tensor; of an attribute of what nobody in sight gives,
        whether all that is given to one of its name is."""
        program = self.program
        match at.expr:
            case ir.Attr(value=ir.Name(id=name) as holder, attr=attr) if (
                program.is_param(at.function, name)
                and at.function not in program.escaping
                and not program.call_sites.get(at.function)
                and not program.resolve(holder, at.function)
            ):
                given = [
                    Made(d.value or holder, d.function, d.stmt, d.index)
                    for of, d in program.attribute_targets.get(attr, ())
                    if program.class_of_self(of, d.function) is None
                ]
                return bool(given) and all(map(self.remedies.is_tensor, given))
        return self._is_on_device(stored)

    def _is_on_device(self, stored: Made) -> bool:
        """Whether what takes a value by places is a tensor on the GPU: no array takes one from there."""
        return not self._has_own_items and not any(
            isinstance(one.expr, ir.Call) and ir.method_of(one.expr) in _TO_CPU
            for one in reached([stored], self.casts.handed_by)
        )

    @cached_property
    def _has_own_items(self) -> bool:
        """Whether a class says itself what becomes of what is stored in its objects."""
        return any(
            name == "__setitem__"
            for one in self.program.classes.values()
            for name, _ in one.methods
        )

    def _is_shown(self, at: Made) -> bool:
        """Whether it is told of what is made of nothing else whether it is half."""
        if self.halves.is_never_half(at) or self.remedies.is_tensor(at):
            return True
        match at.expr:
            case ir.Call(func=func):
                return self.modules.of(func, at.function) is not None
        return False

    def _is_promoted(self, at: Made) -> bool:
        """Whether a value is computed from a half one, and from what is fp32 for sure: ``h * self.scale``."""
        match at.expr:
            case ir.Operation(op=op, operands=operands) if op in dtype_table.ARITHMETIC:
                parts = [at.inner(one) for one in operands]
                return any(map(self._is_promoted, parts)) or any(
                    self.halves.is_never_half(one) and self.dtypes.is_fp32(one)
                    for one in parts
                )
        return False

    def _held_in(self, at: Made) -> frozenset[Made]:
        """What made a value, or an element of a dict or a list, as far as that is written out."""
        return self._held.of(at)

    def _find_held(self, at: Made) -> frozenset[Made]:
        match at.expr:
            case ir.Item(value=value, key=key):
                made = self._elements(at.inner(value), key)
            case _:
                made = self._made_of(at)
        found = frozenset[Made]().union(*map(self._held.of, made))
        if isinstance(at.expr, ir.Item):
            return found.union(filter(self._is_array, self._held.of(at.inner(value))))
        return found if isinstance(at.expr, _SHOWN_BY_OTHERS) else found | {at}

    def _elements(self, at: Made, key: ir.Expr) -> list[Made]:
        """What is found in a collection under a key."""
        wanted = key if isinstance(key, ir.Const) else None
        found: list[Made] = []
        for one in self._held.of(at):
            if isinstance(one.expr, ir.Display):
                keys = one.expr.keys or map(ir.Const, range(len(one.expr.items)))
                found += (
                    one.inner(item)
                    for key, item in zip(keys, one.expr.items, strict=False)
                    if wanted in (None, key) or not isinstance(key, ir.Const)
                )
        return found + [
            Made(put.value, put.function, put.stmt)
            for put in self.flow.contents.put_into(at.expr, at.function)
            if put.may_be_under(None if wanted is None else wanted.value)
        ]

    def _made_of(self, at: Made) -> list[Made]:
        match at.expr:
            case ir.Operation(op=op, operands=operands) if op in dtype_table.ARITHMETIC:
                return [at.inner(one) for one in operands]
        return self.casts.handed_by(at)

    def _takes_any(self, at: Made) -> bool:
        """Whether a value takes any dtype: it is a collection, an object that says itself what it does with
        what it is given, or an array of NumPy."""
        contents = self.flow.contents
        return contents.is_container(at.expr, at.function) or self._is_array(at)

    def _is_array(self, at: Made) -> bool:
        """Whether a value is NumPy's: it has no ``to()``, and what takes one takes any dtype."""
        match at.expr:
            case ir.Call(func=func):
                origin = self.program.origin(func, at.function) or ""
                return ir.method_of(at.expr) == "numpy" or origin.startswith("numpy.")
        return False

    def _is_tensor(self, value: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """What is taken by a mask or by places, and a parameter of a layer."""
        match value:
            case ir.Item(value=held, key=key):
                return self._is_of_places(key, function, stmt) or (
                    self._is_tensor(held, function, stmt)
                )
            case ir.Attr(attr="weight" | "bias"):
                return self.halves.is_never_half(Made(value, function, stmt))
        return False

    def _is_of_places(self, key: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        match key:
            case ir.Display(kind="list"):
                return True
            case ir.Item(value=whole, key=inner):
                return self._is_of_places(inner, function, stmt) or (
                    isinstance(inner, ir.Operation)
                    and self._is_of_places(whole, function, stmt)
                )
            case ir.Display(items=items):
                return any(self._is_of_places(one, function, stmt) for one in items)
            case ir.Operation(
                op="compare" | ">" | "<" | ">=" | "<=", operands=operands
            ):
                return any(
                    isinstance(one, (ir.Name, ir.Attr, ir.Item))
                    and not self.remedies.dtypes.is_number(Made(one, function, stmt))
                    for one in operands
                )
            case ir.Operation(op=op, operands=operands) if op in (
                *dtype_table.ARITHMETIC,
                *"&|~",
            ):
                return any(self._is_of_places(one, function, stmt) for one in operands)
            case ir.Call(func=func):
                origin = self.program.origin(func, function)
                if origin is not None:
                    return origin.startswith("torch.") or origin in _PERMUTATIONS
                if ir.method_of(key) in _GIVE_PLACES:
                    return not self.program.resolve(func, function)
        made = self.casts.handed_by(Made(key, function, stmt))
        if isinstance(key, ir.Name):
            made = made or list(self._taken_by_loops(key, function))
        return bool(made) and all(
            not isinstance(one.expr, ir.Name)
            and self._is_of_places(one.expr, one.function, one.stmt)
            for one in made
            # It was one before.
            if one.stmt.kind != "augassign"
        )

    def _taken_by_loops(self, name: ir.Name, function: str) -> Iterator[Made]:
        """What loops give a variable, by the lists that they go over."""
        flow = self.remedies.flow
        for loop in self.program.definitions(function, name.id):
            if loop.stmt.kind == "for" and loop.stmt.targets == (name,):
                whole = Made(loop.stmt.value or name, function, loop.stmt)
                for one in self.casts.handed_by(whole) or [whole]:
                    yield from flow.elements(one) or ()

    def _is_surely_tensor(self, expr: ir.Expr, function: str) -> bool:
        """Whether all that a variable may hold is made by torch, or it is a registered buffer."""
        if isinstance(expr, ir.Name):
            made = self.program.defined(expr.id, function)
            return bool(made) and all(map(self._is_made_by_torch, made))
        return isinstance(expr, ir.Attr) and any(self._registered(expr, function))

    def _registered(
        self, expr: ir.Attr, function: str
    ) -> Iterator[tuple[str, ir.Call]]:
        """Where an attribute of one's own is registered as a buffer."""
        own = self.program.class_of_self(expr.value, function)
        family = () if own is None else self.program.family(own)
        for caller, _, call in self.program.calls_named("register_buffer"):
            found = self.program.self_class(caller)
            if found is not None and found[1] in family:
                if call.argument(0, "name") == ir.Const(expr.attr):
                    yield caller, call

    def _is_made_by_torch(self, made: Definition) -> bool:
        """Whether a variable is given a tensor; NumPy's arrays take no tensor under autocast."""
        value, function = made.value, made.function
        return self._copies_buffer(value, function) or (
            _is_fresh_tensor(value)
            and isinstance(value, ir.Call)
            and not (self.program.origin(value.func, function) or "").startswith(
                "numpy."
            )
        )

    def _copies_buffer(self, value: ir.Expr | None, function: str) -> bool:
        """``self.memory.clone()``; what has a clone is a tensor."""
        if not isinstance(value, ir.Call) or not isinstance(value.func, ir.Attr):
            return False
        if value.func.attr == "clone":
            return not self.program.resolve(value.func, function)
        return value.func.attr in ("detach", "contiguous") and (
            self._is_surely_tensor(value.func.value, function)
            if isinstance(value.func.value, ir.Attr)
            else self._copies_buffer(value.func.value, function)
        )

    def _holds_integers(self, value: ir.Expr | None, function: str) -> bool:
        """``torch.full(..., dtype=torch.int64)``: nothing that autocast touches is stored there."""
        return value is not None and any(
            dtype_table.INTEGERS.fullmatch(
                self.program.origin(arg.value, function) or ""
            )
            for call in ir.calls_in(value)
            for arg in call.args
            if arg.name == "dtype"
        )

    def _may_be_buffer(self, expr: ir.Attr, function: str) -> bool:
        """Whether an attribute of one's own is not known to be a dict or a list."""
        if self.program.class_of_self(expr.value, function) is None:
            return False
        made = [
            d.value
            for class_name in self.program.instance_classes(expr.value, function)
            for d in self.program.attribute_definitions(class_name, expr.attr)
        ]
        return not made or not all(
            isinstance(value, (ir.Display, ir.Comprehension))
            or value == ir.Const(None)
            or (
                isinstance(value, ir.Call)
                and re.fullmatch(
                    r"builtins\.\w+|collections\.\w+|numpy\.\w+|torch\.nn\.Module(Dict|List)",
                    self.program.origin(value.func, function) or "",
                )
            )
            for value in made
        )

    def _is_integer(self, key: ir.Expr, function: str) -> bool:
        match key:
            case ir.Const():
                return True
            case ir.Display(items=items, kind=kind):
                one = all(self._is_integer(item, function) for item in items)
                return one and kind != "list"
            case ir.Operation(op="slice"):
                return True
            case ir.Operation(
                op="+" | "-" | "*" | "//" | "%" | "-x", operands=operands
            ):
                return all(self._is_integer(operand, function) for operand in operands)
            case ir.Name(id=name):
                found = self.program.defined(name, function)
                return bool(found) and all(
                    d.stmt.kind == "augassign"
                    or isinstance(d.value, ir.Const)
                    or (d.stmt.kind == "for" and _counts(d.stmt, key))
                    for d in found
                )
        return False


def _counts(loop: ir.Stmt, name: ir.Expr) -> bool:
    """Whether a loop's variable is a number: ``for i in range(n)``, not a mask of some."""
    first = loop.targets[:1]
    match loop.targets:
        case (ir.Display(items=(one, *_)),):
            first = (one,)
    return first == (name,) and any(
        ir.last_of(call.func) in ("enumerate", "range")
        for call in ir.calls_in(loop.value or name)
    )


def _is_text(key: ir.Expr) -> bool:
    """Whether a key is made of strings: what has such keys is no tensor."""
    return any(
        (isinstance(inner, ir.Const) and isinstance(inner.value, str))
        or (isinstance(inner, ir.Operation) and inner.op == "joinedstr")
        for inner in ir.walk(key)
    )


def _takes_dtype(value: ir.Expr | None, tensor: ir.Expr) -> bool:
    """``h.type_as(tensor)``, ``h.to(tensor.dtype)``: whether a value is cast to the dtype of a tensor."""
    match value:
        case ir.Call(func=ir.Attr(attr="to" | "type" | "type_as"), args=args):
            asked = ir.Attr(tensor, "dtype"), ir.Call(ir.Attr(tensor, "type"), ())
            return any(arg.value in (tensor, *asked) for arg in args)
    return False


def _is_fresh_tensor(value: ir.Expr | None) -> bool:
    """``torch.zeros(...)``, ``x.new_empty(...)``, also with ``.to(device)`` behind it."""
    if not isinstance(value, ir.Call):
        return False
    if isinstance(value.func, ir.Attr) and re.fullmatch(
        r"(new_)?(zeros|ones|empty|full)(_like)?", value.func.attr
    ):
        return True
    return any(
        isinstance(inner, ir.Attr) and inner.attr in ("zeros", "ones", "empty", "full")
        for inner in ir.walk(value)
    )
