"""Custom autograd Functions under autocast: ``custom_fwd`` and ``custom_bwd`` for those that are reached.

Outside of autocast neither does anything. Under it, they give ``backward`` the autocast state of
``forward``; ``cast_inputs=torch.float32`` turns it off for both, which is right for any Function that
was written for fp32, and is said wherever not all that its methods compute is known to work in half
precision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from amp_migrate.analysis.paths.loops import Blocked, Refusal
from amp_migrate.analysis.tables.dtype_questions import asks_for_dtype
from amp_migrate.analysis.tables.torch_names import TorchNames
from amp_migrate.analysis.values.homogeneity import FUNCTIONS, inhomogeneous_line
from amp_migrate.core.options import Options
from amp_migrate.edit.edits import AddDecorator, Placed
from amp_migrate.edit.spelling import spelled
from amp_migrate.migrate.precision.hazards import Hazards
from amp_migrate.migrate.regions.inner_gradients import GRAD
from amp_migrate.migrate.regions.regions import Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, parts_of
from amp_migrate.program.link import Program

_DECORATORS = {"forward": "custom_fwd", "backward": "custom_bwd"}
_HARMLESS = frozenset(
    "staticmethod once_differentiable override no_grad ignore unused".split()
)
_IN_TORCH = ("torch.", "math.", "builtins.", "typing.", "warnings.")
_OUT_OF_SIGHT = ("torch.ops.", "torch.utils.")
_GIVEN = (*_DECORATORS, "setup_context", "vjp")
_OF_CONTEXT = frozenset(
    """save_for_backward save_for_forward mark_dirty mark_non_differentiable mark_shared_storage
    set_materialize_grads""".split()
)
_CHANGES_A_CONTAINER = frozenset("append extend update pop insert setdefault".split())


@dataclass(slots=True)
class _Family:
    """Classes that inherit ``forward`` or ``backward`` from one another: all are decorated, or none."""

    classes: list[str]
    line: int
    name: str
    methods: dict[str, list[str]] = field(default_factory=dict)
    """Qualified names of the methods by their name."""

    @property
    def all_methods(self) -> list[str]:
        return [qualname for found in self.methods.values() for qualname in found]


class CustomFunctions:
    """Plans the decorators of one group's loops."""

    def __init__(
        self,
        program: Program,
        hazards: Hazards,
        options: Options,
        torch_names: TorchNames,
        files: Collection[str],
    ) -> None:
        """``files``: those in which a Function may be reached."""
        self.program = program
        self.hazards = hazards
        self.options = options
        self.torch_names = torch_names
        self.files = files

    def plan(self, runs: Collection[Run]) -> list[Placed]:
        """The decorators for the Functions that regions reach; raises `Blocked` where they would not do."""
        families = list(self._families())
        if not families:
            return []
        reached = self._reached_families(families, runs)
        edits: list[Placed] = []
        for family in reached:
            if not self._is_decorated(family):
                self._judge(family)
                edits += self._decorators(family)
        return edits

    # -- which there are ----------------------------------------------------------------------

    def _families(self) -> Iterator[_Family]:
        program = self.program
        seen: set[str] = set()
        for name, found in program.classes.items():
            if name in seen or ir.file_of(name) not in self.files:
                continue
            if not FUNCTIONS & program.external_bases(name):
                continue
            related = sorted(program.family(name))
            seen.update(related)
            live = self.hazards.live
            if live is not None and live.classes.keys().isdisjoint(related):
                continue
            family = _Family(related, found.line, found.name)
            for one in related:
                for method, qualname in program.classes[one].methods:
                    family.methods.setdefault(method, []).append(qualname)
            yield family

    def _reached_families(
        self, families: list[_Family], runs: Collection[Run]
    ) -> list[_Family]:
        """Those of which some use is, or may be, under autocast; with the ones that these use."""
        reached: dict[str, _Family] = {}
        statements = self.hazards.sites(runs)
        pending = [f for f in families if self._is_used(f, statements)]
        while pending:
            family = pending.pop(0)
            if family.classes[0] in reached:
                continue
            reached[family.classes[0]] = family
            inside = {
                (function, stmt.path)
                for function in self.hazards.called_from(family.all_methods)
                for stmt in self.program.statements(function)
            }
            pending += [f for f in families if self._is_used(f, inside)]
        return list(reached.values())

    def _is_used(
        self, family: _Family, statements: Collection[tuple[str, ir.Path]]
    ) -> bool:
        """Whether one of some statements uses a Function, or it is handed around as a value."""
        for function, stmt, is_call in self._mentions(family):
            if function in family.all_methods:
                continue
            if not is_call or (function, stmt.path) in statements:
                return True
            if function in self.program.escaping:
                # Who calls it is not known.
                return True
        return False

    def _mentions(self, family: _Family) -> Iterator[tuple[str, ir.Stmt, bool]]:
        """(function, statement, whether it only calls it there) wherever a Function may be meant."""
        program = self.program
        names = {program.classes[one].name for one in family.classes}
        aliases = program.with_aliases(names)
        renaming = [s for _, s in program.mentioning(*names) if _renames(s, aliases)]
        renamed = {ir.last_of(one) or "" for stmt in renaming for one in stmt.targets}
        names |= renamed
        aliases |= (applied := program.with_aliases(renamed))
        for function, stmt, in_class in self._statements(names):
            if any(stmt is one for one in renaming):
                continue
            for expr in stmt.exprs:
                called = set(_called_here(expr))
                called |= {
                    id(call.func)
                    for call in ir.calls_in(expr)
                    if ir.last_of(call.func) in applied
                }
                for inner in ir.walk(expr):
                    if isinstance(inner, ir.Const):
                        meant = isinstance(inner.value, str) and inner.value in names
                    else:
                        meant = ir.last_of(inner) in aliases and self._may_be(
                            inner, function, family
                        )
                    if meant and stmt.kind != "classdef":
                        yield function, stmt, id(inner) in called and not in_class

    def _statements(self, names: set[str]) -> Iterator[tuple[str, ir.Stmt, bool]]:
        """(function, statement, whether it stands in the body of a class): those that say one of some
        names, and, once more, those of the bodies of classes."""
        program = self.program
        for function, stmt in program.mentioning(*names):
            yield function, stmt, False
        for found in program.classes.values():
            for stmt in ir.statements(found.body):
                yield found.parent, stmt, True

    def _may_be(self, expr: ir.Expr, function: str, family: _Family) -> bool:
        refs = self.program.resolve(expr, function)
        return not refs or any(
            ref.kind == "class" and ref.name in family.classes for ref in refs
        )

    # -- what stands in the way ---------------------------------------------------------------

    def _is_decorated(self, family: _Family) -> bool:
        return all(
            _names_of(self.program.functions[qualname]) & set(_DECORATORS.values())
            for method in _DECORATORS
            for qualname in family.methods.get(method, ())
        )

    def _judge(self, family: _Family) -> None:
        program = self.program

        def refused(reason: str, line: int = 0) -> Blocked:
            message = f"{family.name} is a custom autograd Function {reason}"
            return Blocked(Refusal("AMP022", message, line or family.line))

        if not family.methods.get("forward"):
            raise refused("whose forward() is not visible")
        if "vjp" in family.methods:
            raise refused("with vjp() in the place of backward()")
        if "setup_context" in family.methods:
            line = program.functions[family.methods["setup_context"][0]].line
            raise refused(
                "with setup_context(), for which custom_fwd is not made", line
            )
        for _, _, call in program.calls_named("setattr"):
            if any(
                ir.Const(name) in [arg.value for arg in call.args] for name in _GIVEN
            ):
                raise refused("with a method that may be assigned", call.line)
        for one in family.classes:
            for stmt in ir.statements(program.classes[one].body):
                if any(ir.last_of(target) in _GIVEN for target in stmt.targets):
                    raise refused("with a method that is assigned", stmt.line)
            bases = program.external_bases(one)
            if not FUNCTIONS & bases or any(base == "?" for base in bases):
                reason = f"that shares methods with {program.classes[one].name}, which is not one"
                raise refused(reason, program.classes[one].line)
        for method in _DECORATORS:
            for qualname in family.methods.get(method, ()):
                function = program.functions[qualname]
                unknown = _names_of(function) - _HARMLESS
                if unknown & set(_DECORATORS.values()):
                    raise refused("that is only partly decorated", function.line)
                if unknown:
                    raise refused(f"whose {method}() has decorators", function.line)
                if not function.params or function.is_async or function.is_generator:
                    raise refused(f"with an unusual {method}()", function.line)
                if program.call_sites.get(qualname):
                    line = program.call_sites[qualname][0].call.line
                    raise refused(f"whose {method}() is called by itself", line)
        setup = self.hazards.setup
        for qualname in self.hazards.called_from(family.all_methods):
            for stmt in program.statements(qualname):
                for call in calls_of(stmt):
                    found = setup.of_call(qualname, call, self.options.scaled)
                    if found is not None:
                        raise Blocked(found)
                if self.options.scaled and self._mentions_gradients(qualname, stmt):
                    raise refused("that computes gradients itself", stmt.line)
        for method in _DECORATORS:
            for qualname in family.methods.get(method, ()):
                line = self._runs_what_it_is_given(qualname)
                if line:
                    raise refused("that runs a function or module it is given", line)
        if self._wants_fp32(family):
            for qualname in family.methods["forward"]:
                line = self._changes_its_inputs(qualname)
                if line:
                    raise refused("that changes its inputs in place", line)
        if self.options.scaled:
            for qualname in family.methods.get("backward", ()):
                line = inhomogeneous_line(program, qualname)
                if line:
                    reason = (
                        "whose backward() is not shown to be linear in the gradient"
                    )
                    raise refused(f"{reason}, which a scaler multiplies", line)

    def _runs_what_it_is_given(self, method: str) -> int:
        """The line that runs, or differentiates, code which is not the Function's own."""
        function = self.program.functions[method]
        context, *others = (param.name for param in function.params)
        for _, call in each_call(function.body):
            func = call.func
            if ir.last_of(func) in ("enable_grad", "set_grad_enabled") or (
                self.program.origin(func, method) == GRAD
            ):
                return call.line
            while isinstance(func, ir.Item):
                func = func.value
            if isinstance(func, ir.Name) and func.id in others:
                return call.line
            if isinstance(func, ir.Attr) and func.value == ir.Name(context):
                if func.attr not in _OF_CONTEXT:
                    return call.line
        return 0

    def _mentions_gradients(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement mentions ``p.grad``: in the middle of backward it is scaled, or not yet."""
        return any(
            isinstance(inner, ir.Attr)
            and inner.attr == "grad"
            and self.program.origin(inner, function) is None
            and ir.dotted(inner) is not None
            for inner in parts_of(stmt)
        )

    def _changes_its_inputs(self, forward: str) -> int:
        """The line that changes an argument in place: casts would be changed instead."""
        function = self.program.functions[forward]
        params = {param.name for param in function.params[1:]}
        for stmt in ir.statements(function.body):
            if stmt.kind == "augassign" or any(
                isinstance(target, ir.Item) for target in stmt.targets
            ):
                if {_root(target) for target in stmt.targets} & params:
                    return stmt.line
            for call in calls_of(stmt):
                func = call.func
                if not isinstance(func, ir.Attr):
                    continue
                if func.attr == "mark_dirty":
                    return call.line
                changes = func.attr in _CHANGES_A_CONTAINER or (
                    func.attr.endswith("_") and not func.attr.endswith("__")
                )
                if changes and _root(func.value) in params:
                    return call.line
        return 0

    # -- what is written ----------------------------------------------------------------------

    def _decorators(self, family: _Family) -> list[Placed]:
        cast = self._wants_fp32(family)
        edits: list[Placed] = []
        methods = ["forward", "backward"]
        if not family.methods.get("backward"):
            # Nothing goes backward: only the precision of what is computed counts.
            methods = ["forward"] if cast else []
        for method in methods:
            for qualname in family.methods[method]:
                file = ir.file_of(qualname)
                torch = self.torch_names.of_file(file).name
                form = "forward in fp32" if cast and method == "forward" else method
                code = spelled(form, self.options.torch_version, torch)
                path = self.program.functions[qualname].path
                edits.append((file, AddDecorator(path, code)))
        return edits

    def _wants_fp32(self, family: _Family) -> bool:
        """Whether not all that a Function computes is known to work in half precision."""
        for qualname in self.hazards.called_from(
            [q for method in _DECORATORS for q in family.methods.get(method, ())]
        ):
            function = self.program.functions[qualname]
            if asks_for_dtype(self.program, qualname):
                return True
            for stmt in ir.statements(function.body):
                if self.hazards.of_statement(qualname, stmt) is not None:
                    return True
                if any(self._is_foreign(call, function) for call in calls_of(stmt)):
                    return True
        return False

    def _is_foreign(self, call: ir.Call, function: ir.Function) -> bool:
        """Whether a call leaves torch: NumPy, an extension, a kernel."""
        program, func = self.program, call.func
        if any(arg.name == "out" for arg in call.args):
            return True
        origin = program.origin(func, function.qualname)
        if origin is not None:
            return not origin.startswith(_IN_TORCH) or origin.startswith(_OUT_OF_SIGHT)
        if program.callees(call, function.qualname):
            return False
        if isinstance(func, ir.Attr):
            if func.attr in ("numpy", "data_ptr", "apply"):
                return func.attr != "apply"
            root = _root(func.value)
            if root is None:
                return False
            # A method of something that the function did not make and was not given.
            return program.owner(root, function.qualname) != function.qualname
        refs = program.resolve(func, function.qualname)
        return not any(ref.kind in ("class", "function") for ref in refs)


def _renames(stmt: ir.Stmt, names: Collection[str]) -> bool:
    """``multiply = Multiply.apply``: only where that is called, or handed on, the Function is used."""
    match stmt:
        case ir.Stmt(kind="assign", value=ir.Attr(value=held, attr="apply")):
            return ir.last_of(held) in names and all(
                isinstance(target, ir.Name) for target in stmt.targets
            )
    return False


def _called_here(expr: ir.Expr) -> Iterator[int]:
    """The ids of what is run in an expression: ``F.apply(x)``, ``F()(x)``, ``F().forward(x)``."""
    for inner in ir.walk(expr):
        match inner:
            case ir.Call(func=ir.Call(func=made)):
                yield id(made)
            case ir.Call(func=ir.Attr(value=ir.Call(func=made), attr="forward")):
                yield id(made)
            case ir.Call(func=ir.Attr(value=made, attr="apply")):
                yield id(made)


def _root(expr: ir.Expr) -> str | None:
    """The variable at the root of a chain of attributes, items and method calls."""
    while isinstance(expr, (ir.Attr, ir.Item, ir.Call)):
        expr = expr.func if isinstance(expr, ir.Call) else expr.value
    return expr.id if isinstance(expr, ir.Name) else None


def _names_of(function: ir.Function) -> set[str]:
    """The last words of a function's decorators."""
    found = set()
    for decorator in function.decorators:
        named = decorator.func if isinstance(decorator, ir.Call) else decorator
        found.add(ir.last_of(named) or "?")
    return found
