"""Which calls make a module, and which layers it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Program


@dataclass(frozen=True, slots=True)
class Construction:
    """The call that makes a module. ``wrapped``: it is reached through a wrapper such as DDP."""

    call: ir.Call
    function: str
    wrapped: bool = False


def is_saved(program: Program, expr: ir.Expr, function: str) -> bool:
    """Whether a file writes what a variable or attribute stands for."""
    return any(
        call.argument(0, "obj") == expr
        and ir.file_of(other) == ir.file_of(function)
        and program.origin(call.func, other) == "torch.save"
        for other, _, call in program.calls_named("save")
    )


class Modules:
    """Answers for one program."""

    def __init__(
        self, program: Program, can_run: Callable[[str], bool] = lambda function: True
    ) -> None:
        """``can_run``: whether a function can run where modules are asked for: what others make is none of
        them."""
        self.program = program
        self.can_run = can_run
        self.points_to = program.noted(PointsTo)
        self._inherited: dict[int, tuple[ir.Call, Construction]] = {}
        """By the identity of a call, which is kept, that makes a module."""

    def of(
        self, expr: ir.Expr, function: str, called: bool = False
    ) -> list[Construction] | None:
        """The calls that make the module that an expression stands for; None where unknown. ``called``: it
        is called, and so no list, as ``self.net`` is at first in ``self.net = Sequential(*self.net)``, nor,
        of a variable, None.
        """
        found: dict[Construction, None] = {}
        for one in self.points_to.whole(expr, function):
            if not self.can_run(one.function):
                continue
            is_list = isinstance(one.expr, ir.Display) and not one.fields
            if called and (is_list or (one.is_none and isinstance(expr, ir.Name))):
                continue
            if not isinstance(one.expr, ir.Call) or one.fields:
                return None
            origin = self.program.origin(one.expr.func, one.function)
            if origin is None and not one.name:
                return None
            if origin == "torch.load" and is_saved(self.program, expr, function):
                # What is read is what was written: it is made by what that was made by.
                continue
            found[Construction(one.expr, one.function, one.wrapped)] = None
        return list(found) or None

    def inherited(self, made: Construction) -> Construction:
        """The layer of torch whose forward an object of an own class has, as its class makes it; of what has
        a forward of its own, that itself."""
        if id(made.call) not in self._inherited:
            self._inherited[id(made.call)] = made.call, self._base_of(made) or made
        return self._inherited[id(made.call)][1]

    def _base_of(self, made: Construction) -> Construction | None:
        program = self.program
        for ref in program.resolve(made.call.func, made.function):
            if ref.kind == "class" and not any(
                program.method(ref.name, name) for name in ("forward", "__call__")
            ):
                return self.base(ref.name, made)
        return None

    def base(self, class_name: str, made: Construction) -> Construction | None:
        """The layer of torch from which a class is derived, as its objects make it."""
        program = self.program
        for owner in program.bases(class_name):
            facts = program.classes[owner]
            for base in facts.bases:
                origin = program.origin(base, facts.parent) or ""
                if origin.startswith("torch.nn.") and not origin.endswith(".Module"):
                    return self._as_base(made, base, facts)
        return None

    def _as_base(
        self, made: Construction, base: ir.Expr, facts: ir.Class
    ) -> Construction:
        """What ``super().__init__(...)`` makes of an object, or what its class is given."""
        init = dict(facts.methods).get("__init__")
        if init is None:
            return Construction(ir.Call(base, made.call.args), facts.parent)
        calls = [
            call
            for stmt in self.program.statements(init)
            for call in calls_of(stmt)
            if ir.last_of(call.func) == "__init__"
        ]
        args = calls[0].args if len(calls) == 1 else (ir.Arg(base, None, "*"),)
        if any(arg.value == ir.Name("self") for arg in args):
            args = args[1:]
        return Construction(ir.Call(base, args), init)

    def layers(self, made: Construction) -> list[tuple[ir.Expr, str]] | None:
        """The layers that a plain ``nn.Sequential`` is made of, in order; the last is in sight.

        Those that are not in sight before it are one expression with a star; what an option adds or does not
        is one that says ``perhaps``.
        """
        program = self.program
        if program.origin(made.call.func, made.function) not in (
            "torch.nn.Sequential",
            "torch.nn.modules.container.Sequential",
        ):
            return None
        args = made.call.args
        if not args:
            return self._added_by_name(made)
        if any(arg.star == "**" or arg.name for arg in args):
            return None
        first = args[0].value
        if len(args) == 1 and isinstance(first, ir.Call):
            origin = program.origin(first.func, made.function)
            if origin == "collections.OrderedDict":
                return self._named_layers(first, made.function)
        found = []
        for arg in args:
            found += self._listed(arg.value, made) if arg.star else [arg.value]
        if not found or ir.is_starred(found[-1]):
            return None
        return [(layer, made.function) for layer in found]

    def in_list(self, expr: ir.Expr, function: str) -> list[Construction] | None:
        """The calls that make the modules of an `nn.ModuleList`, of which an expression is one: an element,
        or the variable of a loop over them; None where others may be in it."""
        holders: list[ir.Expr | None] = []
        if isinstance(expr, ir.Item):
            holders.append(expr.value)
        elif isinstance(expr, ir.Name):
            for made in self.program.defined(expr.id, function):
                holders.append(
                    _gone_through(made.stmt, made.index, self.program, function)
                )
        found: list[Construction] = []
        for holder in holders:
            if not isinstance(holder, ir.Attr):
                return None
            if self.program.class_of_self(holder.value, function) is None:
                return None
            lists = self.of(holder, function)
            layers = self._listed_in(holder.attr)
            if lists is None or layers is None:
                return None
            for one in lists:
                if (
                    self.program.origin(one.call.func, one.function)
                    != "torch.nn.ModuleList"
                ):
                    return None
                for arg in one.call.args:
                    match arg.value:
                        case ir.Display(items=items) | ir.Comprehension(elements=items):
                            layers += ((item, one.function) for item in items)
                        case _:
                            return None
            for layer, where in layers:
                made_by = self.of(layer, where)
                if made_by is None:
                    return None
                found += made_by
        return found or None

    def _listed_in(self, attr: str) -> list[tuple[ir.Expr, str]] | None:
        """What is added to an attribute of that name, of whatever object; None where that is not in sight."""
        found: list[tuple[ir.Expr, str]] = []
        for method in ("append", "extend", "insert"):
            for function, _, call in self.program.calls_named(method):
                if (
                    isinstance(call.func, ir.Attr)
                    and ir.last_of(call.func.value) == attr
                ):
                    if method != "append" or len(call.args) != 1:
                        return None
                    found.append((call.args[0].value, function))
        for _, stmt in self.program.mentioning(attr):
            for target in stmt.targets:
                if isinstance(target, ir.Item) and ir.last_of(target.value) == attr:
                    return None
        return found

    def adds_of(self, made: Construction) -> list[tuple[ir.Stmt, ir.Call]]:
        """What fills an empty ``nn.Sequential``, in order: calls of ``net.add_module()`` behind it, of which
        the last is in the block that makes it; nothing where there may be others."""
        program, at = self.program, made.function
        start = next((s for s in program.statements(at) if s.value is made.call), None)
        if made.call.args or start is None or not isinstance(start.targets[0], ir.Name):
            return []
        net, (*block, (field, first)) = start.targets[0], start.path
        depth, adds = len(block), list[tuple[ir.Stmt, ir.Call]]()
        for method in ("add_module", "register_module", "append", "extend", "insert"):
            for function, stmt, call in program.calls_named(method):
                of = call.func.value if isinstance(call.func, ir.Attr) else None
                if of == net and program.owner(net.id, function) == at:
                    if function != at or method != "add_module":
                        return []
                    adds.append((stmt, call))
                elif of is not None and method in ("add_module", "register_module"):
                    if any(
                        o.expr is made.call for o in self.points_to.of(of, function)
                    ):
                        return []
        adds.sort(key=lambda one: one[0].path)
        if not adds or adds[-1][0].value is not adds[-1][1]:
            return []
        end = adds[-1][0].path
        binds = [d.stmt.path for d in program.definitions(at, net.id)]
        inside = [
            path
            for path in (*(stmt.path for stmt, _ in adds), *binds)
            if path[:depth] == tuple(block)
            and path[depth][0] == field
            and first <= path[depth][1] <= end[depth][1]
        ]
        whole = len(inside) == len(adds) + 1 and end[:-1] == tuple(block)
        name, *names = (call.argument(0, "name") for _, call in adds[::-1])
        return adds if whole and all(_is_other(name, one) for one in names) else []

    def _added_by_name(self, made: Construction) -> list[tuple[ir.Expr, str]] | None:
        adds, found = self.adds_of(made), list[ir.Expr]()
        for stmt, call in adds:
            layer = call.argument(1, "module")
            if layer is None or len(stmt.path) > len(adds[-1][0].path):
                layer = ir.Operation("starred", (ir.receiver_of(call),))
            found.append(layer)
        return [(layer, made.function) for layer in found] or None

    def _listed(self, value: ir.Expr, made: Construction) -> list[ir.Expr]:
        """What ``*value`` gives to the call that makes a module."""
        written = _written(value)
        if written is not None:
            return written
        unknown: list[ir.Expr] = [ir.Operation("starred", (value,))]
        found: list[ir.Expr] | None = None
        added: list[ir.Expr] | None
        filling = self._fills_of(made, value)
        for stmt in filling[:1]:
            found = _written(stmt.value)
        for stmt in filling[1:]:
            depth = len(filling[0].path)
            if len(stmt.path) > depth:
                added = self._chosen(stmt, value, made.function, depth)
                added = unknown if added is None else added
            else:
                added = _added(stmt, value)
            if found is None or added is None or _lends_self(stmt, value):
                return unknown
            found += added
        return unknown if found is None else found

    @cached_property
    def filling(self) -> set[int]:
        """Expressions (by `id`) in the statements that fill a list of which layers in a row are made."""
        return {
            id(part)
            for function, _, call in self.program.calls_named("Sequential")
            for arg in call.args
            if arg.star == "*"
            for stmt in self._fills_of(Construction(call, function), arg.value)
            for part in parts_of(stmt)
        }

    def _fills_of(self, made: Construction, value: ir.Expr) -> list[ir.Stmt]:
        """The statements of which the first makes the list that a call makes a module of, ``*value``, and
        the others speak of it before that call; nothing where it is not made so."""
        at, program = made.function, self.program
        if isinstance(value, ir.Name) and program.owner(value.id, at) == at:
            said = [
                (function, stmt)
                for function, stmt in program.mentioning(value.id)
                if program.owner(value.id, function) == at
                and any(value in ir.walk(expr) for expr in stmt.exprs)
            ]
        elif isinstance(value, ir.Attr) and program.class_of_self(value.value, at):
            # Others see it once it is made, unless they are called before.
            said = [(at, stmt) for stmt in program.statements(at)]
        else:
            return []
        # Calls that say the same are equal.
        end = next(
            (
                stmt
                for _, stmt in said
                for expr in stmt.exprs
                if any(inner is made.call for inner in ir.walk(expr))
            ),
            None,
        )
        if end is None or ir.is_top(at) or any(f != at for f, _ in said):
            return []
        # From where the list is made to the call, in one block.
        depth = len(end.path)
        found: list[ir.Stmt] = []
        for _, stmt in said:
            place = stmt.path[:depth]
            if place[:-1] != end.path[:-1] or place[-1][0] != end.path[-1][0]:
                continue
            if place[-1][1] >= end.path[-1][1]:
                break
            if (
                len(stmt.path) == depth
                and stmt.kind in ("assign", "annassign")
                and stmt.targets == (value,)
            ):
                found = [stmt]
            elif found:
                found.append(stmt)
        return found

    def _chosen(
        self, stmt: ir.Stmt, name: ir.Expr, function: str, depth: int
    ) -> list[ir.Expr] | None:
        """What a statement under an option adds to a list, ``if use_sigmoid: ...``: perhaps, where that may
        be on or off; None where it stands elsewhere."""
        for outer in self.program.statements(function):
            if outer.path == stmt.path[:-1] and len(outer.path) == depth:
                if outer.kind == "if" and outer.value is not None:
                    # Others may choose otherwise for their own runs; those in sight are asked about.
                    known = self.points_to.constants(
                        outer.value, function, closed=False
                    )
                    values = [
                        o.expr.value for o in known if isinstance(o.expr, ir.Const)
                    ]
                    truths = set(map(bool, values))
                    if len(truths) == 1:
                        runs = truths == {stmt.path[-1][0] == "body"}
                        return _added(stmt, name) if runs else []
                    added = _added(stmt, name)
                    return added and [ir.Operation("perhaps", (e,)) for e in added]
        return None

    @staticmethod
    def _named_layers(
        table: ir.Call, function: str
    ) -> list[tuple[ir.Expr, str]] | None:
        if len(table.args) != 1 or not isinstance(table.args[0].value, ir.Display):
            return None
        pairs = table.args[0].value.items
        if not all(isinstance(p, ir.Display) and len(p.items) == 2 for p in pairs):
            return None
        return [(p.items[1], function) for p in pairs if isinstance(p, ir.Display)]


def _gone_through(
    stmt: ir.Stmt, index: int | None, program: Program, function: str
) -> ir.Expr | None:
    """What a loop goes through by the variable that is at a place of its targets."""
    match stmt:
        case ir.Stmt(kind="for", value=ir.Call(func=func, args=args)):
            origin = program.origin(func, function)
            if origin == "builtins.enumerate" and index == 1 and len(args) == 1:
                return args[0].value
            if origin == "builtins.zip" and index is not None and index < len(args):
                return args[index].value
        case ir.Stmt(kind="for", value=value) if index is None:
            return value
    return None


def _is_other(name: ir.Expr | None, other: ir.Expr | None) -> bool:
    """Whether a text that is written is another than a second one is, or begins with."""
    match name, other:
        case ir.Const(value=str(text)), ir.Const(value=str(second)):
            return text != second
        case ir.Const(value=str(text)), ir.Operation(
            op="joinedstr", operands=(ir.Const(value=str(begin)), *_)
        ):
            return not text.startswith(begin)
    return False


def _written(value: ir.Expr | None) -> list[ir.Expr] | None:
    """The elements of a list that is written out."""
    if isinstance(value, ir.Display) and value.kind in ("list", "tuple"):
        return list(value.items)
    return None


def _lends_self(stmt: ir.Stmt, attribute: ir.Expr) -> bool:
    """Whether a statement gives others the object of an attribute, or calls what may change that."""
    if not isinstance(attribute, ir.Attr):
        return False
    own = attribute.value
    read = [
        part.value
        for part in parts_of(stmt)
        if isinstance(part, ir.Attr) and part.value == own
    ]
    called = [call.func for call in calls_of(stmt)]
    return len(read) < sum(part == own for part in parts_of(stmt)) or any(
        isinstance(func, ir.Attr) and func.value == own for func in called
    )


def _added(stmt: ir.Stmt, name: ir.Expr) -> list[ir.Expr] | None:
    """What a statement adds to a list; None where it may do something else with it."""
    match stmt.kind, stmt.value:
        case "augassign", value if stmt.targets == (name,) and value is not None:
            more: ir.Expr = value
        case "expr", ir.Call(
            func=ir.Attr(value=of, attr="append"), args=(ir.Arg(star="", value=layer),)
        ) if (of == name):
            more = ir.Display("list", (layer,))
        case "expr", ir.Call(
            func=ir.Attr(value=of, attr="extend"), args=(ir.Arg(star="", value=value),)
        ) if (of == name):
            more = value
        case _:
            starred = [
                arg.value
                for expr in stmt.exprs
                for call in ir.all_calls_in((expr,))
                for arg in call.args
                if arg.star == "*"
            ]
            said = [i for i in parts_of(stmt) if i == name]
            # To give all that is in a list to a call leaves it as it is.
            return [] if starred.count(name) == len(said) else None
    if name in ir.walk(more):
        return None
    return _written(more) or [ir.Operation("starred", (more,))]
