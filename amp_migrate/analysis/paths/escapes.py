"""Collections that hold optimizers: every use of one must be of a form that planning follows.

What goes through a whole collection (saves it, copies it, hands it to somebody else) may step its
optimizers where no scaler sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from amp_migrate.analysis.objects.collections import Turn, path_of
from amp_migrate.analysis.objects.optimizers import SHOWN, Optimizers, Slot
from amp_migrate.analysis.objects.read_only_uses import Looked, saved_by
from amp_migrate.analysis.paths.identity import order
from amp_migrate.analysis.paths.loops import refused
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of, unpacked
from amp_migrate.program.link import Program

Use = tuple[ir.Expr, ...]
"""A mention, with the expressions around it, outermost first."""


class Uses:
    """The mentions of what variables and attributes hold."""

    def __init__(self, program: Program, optimizers: Optimizers) -> None:
        self.program = program
        self.optimizers = optimizers

    def of(self, holder: Slot) -> Iterator[tuple[str, ir.Stmt, Use]]:
        """(function, statement, mention) for each place that says what may be it."""
        for qualname, stmt in self._mentions(holder):
            for expr in stmt.exprs:
                for use in self._uses(expr, holder, qualname, ()):
                    yield qualname, stmt, use
        for qualname, stmt in self.program.mentioning(holder.name):
            if id(stmt) in self.program.class_statements:
                # Of a class's body it is not told what it does with it.
                for inner in parts_of(stmt):
                    if self.optimizers.slot(inner, qualname) == holder:
                        yield qualname, stmt, (ir.Const(None), inner)

    def _mentions(self, holder: Slot) -> list[tuple[str, ir.Stmt]]:
        """An attribute is mentioned also as one of who knows what."""
        if holder.kind == "attribute":
            return self.program.mentioning(holder.name)
        return self.optimizers.mentions.of((holder,))

    def _may_be(self, expr: ir.Expr, holder: Slot, function: str) -> bool:
        slot = self.optimizers.slot(expr, function)
        if slot is not None or not isinstance(expr, ir.Attr):
            return slot == holder
        return (
            (holder.kind, holder.name) == ("attribute", expr.attr)
            and not self.program.resolve(expr.value, function)
            and self.program.origin(expr.value, function) is None
        )

    def _uses(
        self,
        expr: ir.Expr,
        holder: Slot,
        function: str,
        way: Use,
    ) -> Iterator[Use]:
        way = (*way, expr)
        if isinstance(expr, (ir.Name, ir.Attr)):
            if self._may_be(expr, holder, function):
                yield way
                return
        for child in ir.children(expr):
            yield from self._uses(child, holder, function, way)

    def given_to(self, use: Use, function: str) -> set[Slot]:
        """The parameters by which functions of this program are given it."""
        call = use[-2] if len(use) > 1 else None
        if not isinstance(call, ir.Call):
            return set()
        found = set()
        for site in self.program.call_sites_of(call, function):
            spread = any(a.star == "**" and a.value is use[-1] for a in call.args)
            for param in self.program.functions[site.callee].params:
                if (spread and param.kind == "**") or (
                    self.program.argument_at(site, param.name) is use[-1]
                ):
                    found.add(Slot("variable", site.callee, param.name))
        return found


class Kept:
    """Judges the uses of the collections that hold one group's optimizers."""

    def __init__(
        self, program: Program, optimizers: Optimizers, slots: Collection[Slot]
    ) -> None:
        self.program = program
        self.optimizers = optimizers
        self.slots = slots
        self.uses = Uses(program, optimizers)
        self.looked = Looked(program, optimizers.collections)
        self.holders = {
            slot.holder
            for slot in slots
            if slot.key is not None and not self._holds_none(slot)
        }
        self._appended: set[int] = set()
        """The calls by which an optimizer comes into a list, or a namespace, that is followed."""
        self._find_appended()
        stepped = self._stepped()
        self._bags = {one for one in self.holders if one.key is None} - stepped
        """Those by which nobody steps: what else is in them does not matter."""
        self._judged: set[Slot] = set()
        self._each = {slot for slot in slots if slot in optimizers.trace(slot).each}

    def _holds_none(self, slot: Slot) -> bool:
        """Whether nothing that shows an optimizer leads to a slot."""
        trace = self.optimizers.trace(slot)
        return not trace.births and not any(p.kind in SHOWN for p in trace.problems)

    def _stepped(self) -> set[Slot]:
        """The collections by which something steps, or clears gradients."""
        found = set()
        for name in ("step", "zero_grad"):
            for function, _, call in self.program.calls_named(name):
                if isinstance(call.func, ir.Attr):
                    slot = self.optimizers.slot(call.func.value, function)
                    if slot is not None:
                        slots = {slot, *self.optimizers.trace(slot).slots}
                        found |= {one.holder for one in slots if one.key is not None}
        return found

    def _find_appended(self) -> None:
        slot_of = self.optimizers.slot
        for calls, _ in self.optimizers.collections.appended.values():
            for one in calls:
                holder = slot_of(one.holder, one.function)
                given = slot_of(one.value, one.function)
                if holder is not None and (
                    holder in self.holders or given in self.slots
                ):
                    self.holders.add(holder)
                    self._appended |= {id(other.call) for other in calls}

    def is_appended(self, call: ir.Call) -> bool:
        """Whether a call puts an optimizer into a list, or a namespace, that is followed."""
        return id(call) in self._appended

    def holds(self, target: ir.Expr, function: str) -> bool:
        """Whether an assignment's target keeps optimizers in a collection that is followed."""
        slot = self.optimizers.slot(target, function)
        return slot is not None and (
            slot in self.holders
            or slot in self.slots
            or (isinstance(target, ir.Item) and slot.holder in self.holders)
        )

    def keep(self, target: ir.Expr, function: str) -> bool:
        """Take a collection for one that holds an optimizer by which nobody steps: `find` judges its
        uses, too. Whether it has a name."""
        slot = self.optimizers.slot(target, function)
        if slot is None or slot.key is not None:
            return False
        if slot not in self.holders:
            self.holders.add(slot)
            self._bags.add(slot)
        return True

    def hands_out(self, display: ir.Expr, function: str) -> bool:
        """Whether a collection that a function returns is one whose optimizers are followed."""
        keys = set(self.optimizers.collections.elements(display, function))
        return any(slot.key in keys for slot in self.slots if slot.key is not None)

    def judge(self) -> None:
        """Raise `Blocked` at a use that is not followed, of the collections that were not judged before."""
        seen = self._judged
        pending = sorted(self.holders - seen, key=order)
        seen |= self.holders
        while pending:
            holder = pending.pop(0)
            for qualname, stmt, use in self.uses.of(holder):
                given = self.uses.given_to(use, qualname)
                pending += sorted(given - seen, key=order)
                seen |= given
                followed = bool(given) or self._is_followed(use, stmt, qualname)
                if not followed:
                    name = ir.render(use[-1]) or holder.name
                    message = f"{name}, which holds the optimizer, is used as a whole"
                    raise refused("AMP012", message, stmt.line)

    def _is_followed(self, use: Use, stmt: ir.Stmt, function: str) -> bool:
        mention = use[-1]
        around = use[-2] if len(use) > 1 else None
        match around:
            case None:
                return self._is_bound(mention, stmt, function)
            case ir.Item(key=ir.Const(value=key)):
                # `optimizers[-1]` is one of them under a key that is not known.
                counted = isinstance(key, int) and key < 0
                plain = not counted and not _is_loops_target(around, use, stmt)
                return around.value is mention and plain
            case ir.Item():
                return (
                    around in stmt.targets
                    or self._takes_turns(around, use, function)
                    or self.looked.takes_to_look(use)
                )
            case ir.Attr() if self.optimizers.contents.item_of(around, function):
                return not _is_loops_target(around, use, stmt)
            case ir.Operation(op="in" | "not in"):
                return around.operands[-1] is mention
            case ir.Call(func=ir.Name(id="len")):
                return True
            case ir.Display(kind="tuple") if around is use[0]:
                if stmt.kind == "return":
                    return self._is_unpacked(around.items.index(mention), function)
                return stmt.kind in ("assign", "for") and around in stmt.targets
            case ir.Attr(attr="append"):
                call = use[-3] if len(use) > 2 else None
                return isinstance(call, ir.Call) and (
                    self.is_appended(call)
                    or (
                        stmt.value is call
                        and self.optimizers.slot(mention, function) in self._bags
                    )
                )
            case ir.Attr(attr="get" | "pop" as method):
                return self._takes_one(use, method, function)
            case ir.Attr(attr="update"):
                return stmt.kind == "expr" and _puts_under_keys(stmt.value)
        if isinstance(around, ir.Call) and any(
            arg.star and arg.value is mention for arg in around.args
        ):
            # Each of the parameters is followed.
            return self._fills_parameters(around, mention, function)
        if self.looked.only_looks(use, function):
            return True
        if isinstance(around, ir.Call) and mention in [
            a.value for a in around.args[:1]
        ]:
            entries = saved_by(self.program, around, function, stmt)
            if entries:
                # The scaler's state is put beside an optimizer that has a name.
                made = self.optimizers.makers.construction
                return not any(
                    isinstance(one, ir.Call) and made(one, function)
                    for _, one in entries
                )
        return (
            stmt.kind == "for"
            and stmt.value in use
            and self._is_each(stmt, mention, function)
        )

    def _takes_turns(self, around: ir.Item, use: Use, function: str) -> bool:
        """Whether what is taken out by a loop's variable is, or holds, one of the optimizers in turn, or
        another part is taken out of that."""
        slot = self.optimizers.slot(around, function)
        if slot is None or not slot.takes_turns:
            return False
        path = path_of(slot.key)
        if any(
            one.holder == slot.holder and path_of(one.key)[: len(path)] == path
            for one in self._each
        ):
            return True
        match use[-3:-2]:
            case (ir.Item(value, ir.Const(key)),) if value is around:
                return all(
                    one.holder != slot.holder
                    or path_of(one.key)[len(path) :][:1] != (key,)
                    for one in self.slots
                )
        return False

    def _takes_one(self, use: Use, method: str, function: str) -> bool:
        """Whether ``state.get("optimizer")`` takes out what is under a key that is written there, as an item
        would; ``pop`` takes it away, too."""
        match use[-3:-2]:
            case (
                ir.Call(func=func, args=(ir.Arg(ir.Const(key), None, ""), *_)),
            ) if func is use[-2] and isinstance(key, (str, int)):
                holder = self.optimizers.slot(use[-1], function)
                return holder is not None and (
                    method == "get" or self._holds_none(replace(holder, key=key))
                )
        return False

    def _fills_parameters(self, call: ir.Call, mention: ir.Expr, function: str) -> bool:
        """Whether a call spreads a collection out, ``train(*parts)``, over parameters that have names."""
        callees = self.program.callees(call, function)
        starred = [arg.value for arg in call.args if arg.star == "*"]
        return bool(callees) and (
            all(value is not mention for value in starred)
            or (
                len(starred) == 1
                and not any(
                    param.kind == "*"
                    for callee in callees
                    for param in self.program.functions[callee].params
                )
            )
        )

    def _is_unpacked(self, place: int, function: str) -> bool:
        """Whether all calls of a function bind what it returns there to a collection that is followed."""
        return function not in self.program.escaping and all(
            any(
                index == place and self.holds(target, site.caller)
                for target, value, index in unpacked(site.stmt)
                if value is site.call
            )
            for site in self.program.call_sites.get(function, ())
        )

    def _is_bound(self, mention: ir.Expr, stmt: ir.Stmt, function: str) -> bool:
        """Whether a statement makes a collection, takes it over, returns it, or goes through it."""
        if stmt.kind == "return":
            return True
        if stmt.kind == "for" and mention in stmt.targets:
            return True
        if stmt.kind == "for" and mention is stmt.value:
            return self._is_each(stmt, mention, function)
        if stmt.kind not in ("assign", "annassign"):
            return False
        return all(
            target is mention
            or value is not mention
            or self.holds(target, function)
            or (index is not None and self._is_beside(index, mention, function))
            or (index is not None and self._only_looks(target, function))
            for target, value, index in unpacked(stmt)
        )

    def _is_beside(self, index: int, mention: ir.Expr, function: str) -> bool:
        """Whether what a collection holds at a place is none of the optimizers."""
        holder = self.optimizers.slot(mention, function)
        places = {s.key for s in self.slots if s.key is not None and s.holder == holder}
        if holder is not None and holder.key is None and not places:
            # Nobody steps what is taken out of it here.
            return self._holds_none(replace(holder, key=index))
        return (
            bool(places)
            and index not in places
            and all(isinstance(place, int) for place in places)
        )

    def _only_looks(self, target: ir.Expr, function: str) -> bool:
        """Whether what is bound to one of the optimizers is only looked at."""
        return isinstance(target, ir.Name) and self.looked.each_only_looks(
            target.id, function
        )

    def _is_each(self, stmt: ir.Stmt, mention: ir.Expr, function: str) -> bool:
        bound = {
            Turn(function, name.id)
            for target in stmt.targets
            for name in ir.walk(target)
            if isinstance(name, ir.Name)
        }
        if any(slot.turn in bound for slot in self._each):
            return True
        through = self.optimizers.collections.gone_through
        names = [
            turn.name
            for turn in bound
            for target in stmt.targets
            if stmt.value is not None
            if through(target, stmt.value, turn.name, function) is mention
        ]
        return bool(names) and all(
            self.looked.each_only_looks(name, function) for name in names
        )


def _is_loops_target(element: ir.Expr, use: Use, stmt: ir.Stmt) -> bool:
    """Whether a loop, or a comprehension, gives an element of a collection its value."""
    targets = stmt.targets if stmt.kind == "for" else ()
    inner = (t for one in use if isinstance(one, ir.Comprehension) for t in one.targets)
    return any(element in ir.walk(target) for target in (*targets, *inner))


def _puts_under_keys(call: ir.Expr | None) -> bool:
    """``state.update(optimizer=opt)``, ``state.update({"optimizer": opt})``: what it puts is in sight."""
    return isinstance(call, ir.Call) and all(
        arg.name is not None
        or (
            not arg.star
            and isinstance(arg.value, ir.Display)
            and bool(arg.value.keys)
            and all(isinstance(key, ir.Const) for key in arg.value.keys)
        )
        for arg in call.args
    )
