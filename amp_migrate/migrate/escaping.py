"""Every mention of an optimizer outside the forms that planning follows is a reason to refuse.

An optimizer that is put into a collection, handed to a function that cannot be read, or whose
``step`` is kept under another name may be stepped where no scaler sees it.
"""

from __future__ import annotations

from amp_migrate.analysis.objects.carriers import PLAIN_BASES
from amp_migrate.analysis.objects.optimizers import Birth, Optimizers, Slot
from amp_migrate.analysis.objects.points_to import AROUND_OPTIMIZERS
from amp_migrate.analysis.objects.read_only_uses import (
    SAVES,
    SCHEDULER,
    is_base_of_scheduler,
    only_looks_at,
    saved_by,
)
from amp_migrate.analysis.objects.unfollowed import contents as written
from amp_migrate.analysis.paths.escapes import Kept
from amp_migrate.analysis.paths.loops import Blocked, refused
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_part, parts_of, unpacked
from amp_migrate.program.link import Program

_FRAMEWORK_METHODS = frozenset({"prepare", "setup", "initialize"})
_SAVED = "the optimizer itself is saved, without the scaler"


class Handover:
    """Judges the mentions of one group's optimizers."""

    def __init__(
        self,
        program: Program,
        optimizers: Optimizers,
        slots: frozenset[Slot],
        births: frozenset[Birth],
    ) -> None:
        self.program = program
        self.optimizers = optimizers
        self.slots = slots
        self.births = births
        self.kept = Kept(program, optimizers, slots)
        self._hidden: frozenset[ir.Expr] = frozenset()
        """What a comprehension binds: other variables than those of the function around it."""

    def judge(self) -> None:
        """Raise `Blocked` at a mention that is not followed."""
        self.kept.judge()
        own = set(self.slots)
        for birth in self.births:
            own |= self.optimizers.mentions.holding(birth)
        for qualname, stmt in self.optimizers.mentions.of(own):
            if stmt.kind == "delete":
                continue
            puts = any(self._item(target, qualname) for target in stmt.targets)
            binds = (not puts and _binds(stmt)) or any(
                self.kept.holds(target, qualname)
                or self._is_put_by(stmt, target, qualname)
                for target in stmt.targets
            )
            for expr in stmt.exprs:
                if stmt.kind == "for" and expr in stmt.targets:
                    # The collection that a loop goes through is judged by itself.
                    continue
                self._visit(expr, qualname, stmt, allowed=binds)
        self.kept.judge()

    def _is_put_by(self, stmt: ir.Stmt, target: ir.Expr, function: str) -> bool:
        """``optimizers[name] = optimizer``"""
        item = self._item(target, function)
        return (
            item is not None
            and stmt.value is not None
            and self._is_own(stmt.value, function)
            and self.kept.keep(item.value, function)
        )

    def _item(self, target: ir.Expr, function: str) -> ir.Item | None:
        """The element of a collection that a target is, also as an attribute: `state.optimizer`."""
        if isinstance(target, ir.Item):
            return target
        return self.optimizers.contents.item_of(target, function)

    def _is_own(self, expr: ir.Expr, function: str) -> bool:
        if not isinstance(expr, (ir.Name, ir.Attr, ir.Item)):
            return False
        if any(inner in self._hidden for inner in ir.walk(expr)):
            return False
        slot = self.optimizers.slot(expr, function)
        if slot is None:
            return False
        if slot in self.slots:
            return True
        return not self.optimizers.leads_nowhere(slot) and bool(
            self.optimizers.trace(slot).births & self.births
        )

    def _visit(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt, allowed: bool
    ) -> None:
        """Walk an expression; ``allowed``: whether the optimizer itself may stand here."""
        if self._is_own(expr, function):
            if not allowed:
                message = "a collection that is not followed holds the optimizer"
                raise refused("AMP012", message, stmt.line)
            return
        match expr:
            case ir.Call():
                self._visit_call(expr, function, stmt)
                return
            case ir.Attr(value=value, attr="step") if self._is_own(value, function):
                if self._is_wrapped(expr, function, stmt):
                    return
                raise refused("AMP016", "step() is kept under another name", stmt.line)
            case ir.Comprehension():
                self._visit_comprehension(expr, function, stmt)
                return
            case ir.Attr():
                inner_allowed = True
            case ir.Display(kind="tuple") if allowed and _binds(stmt):
                inner_allowed = True
            case ir.Display() if self._is_kept(expr, function, stmt):
                inner_allowed = True
            case ir.Display() | ir.Item():
                inner_allowed = isinstance(expr, ir.Item)
            case _:
                inner_allowed = allowed or isinstance(expr, ir.Operation)
        for child in ir.children(expr):
            self._visit(child, function, stmt, inner_allowed)

    def _is_wrapped(self, step: ir.Attr, function: str, stmt: ir.Stmt) -> bool:
        """``optimizer.step = with_counter(optimizer.step)``, as in the schedulers of torch: a scaler calls
        what stands under that name, and nothing in the wrapper looks at gradients."""
        match stmt:
            case ir.Stmt(
                kind="assign",
                targets=(target,),
                value=ir.Call(args=(ir.Arg(value=given, star=""),)) as call,
            ) if (
                target == given == step
            ):
                inside = dict.fromkeys(self.program.callees(call, function))
                for name, facts in self.program.functions.items():
                    # What stands in a function follows it.
                    if facts.parent in inside:
                        inside[name] = None
                return bool(inside) and not any(
                    isinstance(part, ir.Attr)
                    and part.attr in ("grad", "backward", "param_groups", "zero_grad")
                    for name in inside
                    for _, part in each_part(self.program.functions[name].body)
                )
        return False

    def _visit_comprehension(
        self, expr: ir.Comprehension, function: str, stmt: ir.Stmt
    ) -> None:
        """What a comprehension binds is judged with the collection that it goes through."""
        outer = self._hidden
        for iterable in expr.iterables:
            self._visit(iterable, function, stmt, allowed=False)
        self._hidden |= {inner for t in expr.targets for inner in ir.walk(t)}
        try:
            for inner in (*expr.conditions, *expr.elements):
                self._visit(inner, function, stmt, allowed=False)
        finally:
            self._hidden = outer

    def _is_kept(
        self, display: ir.Display | ir.Call, function: str, stmt: ir.Stmt
    ) -> bool:
        """Whether a statement makes a collection whose optimizers are followed."""
        if stmt.kind == "return":
            return stmt.value is display and (
                self.kept.hands_out(display, function) or self._is_never_read(function)
            )
        if stmt.kind == "for":
            return display is stmt.value or display in stmt.targets
        items = (
            [arg.value for arg in display.args]
            if isinstance(display, ir.Call)
            else display.items
        )
        inside = any(self._is_own(item, function) for item in items)
        return any(
            self.kept.holds(target, function)
            or (inside and self.kept.keep(target, function))
            for target, value, _ in unpacked(stmt)
            if value is display
        )

    def _is_never_read(self, function: str) -> bool:
        """Whether a method is one that nothing in sight calls, nor takes: a property ``optimizers``. As one
        that hands out a single optimizer, it is for others to read."""
        program, facts = self.program, self.program.functions[function]
        if facts.class_name is None or not (
            program.external_bases(facts.class_name) <= PLAIN_BASES | {"abc.ABC"}
        ):
            return False
        family = program.family(facts.class_name)
        return not any(
            (isinstance(inner, ir.Name) and inner.id == facts.name)
            or inner == ir.Const(facts.name)
            or (
                isinstance(inner, ir.Attr)
                and inner.attr == facts.name
                and not family.isdisjoint(
                    program.instance_classes(inner.value, where) or family
                )
            )
            for where, stmt in program.mentioning(facts.name)
            for inner in parts_of(stmt)
        )

    def _visit_call(self, call: ir.Call, function: str, stmt: ir.Stmt) -> None:
        program = self.program
        if program.origin(call.func, function) == "builtins.hasattr":
            match call.args[0].value:
                case ir.Attr(value=value) if self._is_own(value, function):
                    return
        called = call.func.value if isinstance(call.func, ir.Attr) else call.func
        self._visit(called, function, stmt, allowed=True)
        origin = program.origin(call.func, function)
        followed = bool(program.callees(call, function)) or any(
            ref.kind == "class" and program.fields(ref.name)
            for ref in program.resolve(call.func, function)
        )
        for arg in call.args:
            contents = self.optimizers.contents
            named = arg.name or not contents.makes_dict(call.func, function)
            if self.kept.is_appended(call) or (
                named
                and self._is_own(arg.value, function)
                and contents.makes_items(call.func, function)
                and self._is_kept(call, function, stmt)
            ):
                continue
            if self._is_own(arg.value, function):
                if (followed and not arg.star) or (
                    is_base_of_scheduler(self.program, call, function)
                    or self._chooses_scheduler(call, function)
                ):
                    self._judge_swallowed(arg, call, function)
                elif not self._is_kept_by(call, function):
                    self._judge_handed(call, origin)
                continue
            if self._is_taken_in(arg, call, function):
                continue
            parts = [arg.value]
            if arg is call.args[0] and isinstance(arg.value, ir.Display):
                # What has a key of its own is saved with its scaler beside.
                entries = [one for _, one in saved_by(program, call, function, stmt)]
                parts = [o for o in entries if not self._is_own(o, function)] or parts
            try:
                for one in parts:
                    self._visit(one, function, stmt, allowed=False)
            except Blocked as blocked:
                if (
                    blocked.refusal.code == "AMP012"
                    and origin in SAVES
                    and any(self._is_own(one, function) for one in written([arg.value]))
                ):
                    raise refused("AMP040", _SAVED, blocked.refusal.line) from None
                raise

    def _is_taken_in(self, arg: ir.Arg, call: ir.Call, function: str) -> bool:
        """``train(model, [optimizer_d, optimizer_g])``, where what is made of the list is followed."""
        if not (isinstance(arg.value, ir.Display) and arg.value.kind != "dict"):
            return False
        if arg.star or not all(self._is_own(one, function) for one in arg.value.items):
            return False
        sites = list(self.program.call_sites_of(call, function))
        given = [
            (site.callee, param.name)
            for site in sites
            for param in self.program.functions[site.callee].params
            if self.program.argument_at(site, param.name) is arg.value
        ]
        return len(given) == len(sites) > 0 and all(
            self.kept.keep(ir.Name(name), callee) for callee, name in given
        )

    def _is_kept_by(self, call: ir.Call, function: str) -> bool:
        """``optimizers.append(optimizer)``"""
        return (
            isinstance(call.func, ir.Attr)
            and call.func.attr == "append"
            and not call.args[0].star
            and self.kept.keep(call.func.value, function)
        )

    def _judge_swallowed(self, optimizer: ir.Arg, call: ir.Call, function: str) -> None:
        """An argument that a function of this program takes in with ``*args`` or ``**kwargs``."""
        program = self.program
        said = (ir.render(part) for part in (call.func, *(a.value for a in call.args)))
        schedules = any(SCHEDULER.search(text) for text in said if text is not None)
        for site in program.call_sites_of(call, function):
            facts = program.functions[site.callee]
            given = (program.argument_at(site, param.name) for param in facts.params)
            if any(value is optimizer.value for value in given):
                continue
            star = "**" if optimizer.name else "*"
            if any(
                slot.owner == site.callee
                and slot.key is not None
                and self.optimizers.given(site, slot) == optimizer.value
                for slot in self.slots
            ):
                # `options["optimizer"]`, which is followed.
                continue
            if schedules and self._only_forwards(facts, star):
                # `config.make("lr_scheduler", torch.optim.lr_scheduler, optimizer)`
                continue
            name = ir.render(call.func) or facts.name
            around = (
                (facts.qualname,)
                if facts.class_name is None
                else (m for _, m in program.classes[facts.class_name].methods)
            )
            if any(
                isinstance(inner, ir.Attr) and inner.attr.endswith("state_dict")
                for inside in around
                for _, inner in each_part(program.functions[inside].body)
            ):
                message = (
                    f"{name}() takes the optimizer in with *args or **kwargs, and its state "
                    "is saved or loaded from there"
                )
                raise refused("AMP040", message, call.line)
            message = f"{name}() takes the optimizer in with *args or **kwargs"
            raise refused("AMP012", message, call.line)

    @staticmethod
    def _only_forwards(function: ir.Function, star: str) -> bool:
        """Whether a function hands its ``*args`` or ``**kwargs`` on as they are, and nothing else."""
        starred = {ir.Name(p.name) for p in function.params if p.kind == star}
        exprs = [e for stmt in ir.statements(function.body) for e in stmt.exprs]
        inside = [inner for expr in exprs for inner in ir.walk(expr)]
        handed = [
            arg.value
            for call in inside
            if isinstance(call, ir.Call)
            for arg in call.args
            if arg.star and arg.value in starred
        ]
        return len(handed) == sum(inner in starred for inner in inside)

    def _chooses_scheduler(self, call: ir.Call, function: str) -> bool:
        """``getattr(lr_scheduler, name)(optimizer)``: a class out of a module of schedulers."""
        func = call.func
        if not isinstance(func, ir.Call) or not func.args:
            return False
        if self.program.origin(func.func, function) != "builtins.getattr":
            return False
        holder = ir.key_of(func.args[0].value) or ""
        origin = self.program.origin(func.args[0].value, function) or ""
        return origin == "torch.optim.lr_scheduler" or bool(
            SCHEDULER.search(holder.rsplit(".", 1)[-1])
        )

    def _judge_handed(self, call: ir.Call, origin: str | None) -> None:
        written = ir.render(call.func)
        name = f"{written}()" if written else "a function that is looked up"
        last = (written or "").rsplit(".", 1)[-1]
        if origin is not None and self.program.is_local(origin):
            message = f"the optimizer is handed to {name}, in a file that is not read"
            raise refused("AMP010", message, call.line)
        if origin in SAVES:
            raise refused("AMP040", _SAVED, call.line)
        if only_looks_at(call, origin) or origin in AROUND_OPTIMIZERS:
            return
        if last in ("step", "unscale_", "minimize"):
            raise refused("AMP001", f"{name} steps this optimizer already", call.line)
        if last in _FRAMEWORK_METHODS:
            raise refused(
                "AMP003", f"{name} hands the optimizer to a framework", call.line
            )
        message = f"the optimizer is handed to {name}, which is not followed"
        raise refused("AMP010", message, call.line)


def _binds(stmt: ir.Stmt) -> bool:
    """Whether the optimizer itself may be what a statement binds or returns."""
    if stmt.kind in ("return", "assert", "if", "while", "expr"):
        return True
    if stmt.kind not in ("assign", "annassign"):
        return False
    # state["optimizer"] = optimizer keeps it in a collection.
    return not any(isinstance(target, ir.Item) for target in stmt.targets)
