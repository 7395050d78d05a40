"""How long a switch lives: an optimizer that is made anew for the same weights goes on with its scale.

A new scaler begins at 65536, and skips steps until it has found its scale: of an optimizer that lives for a
few steps it could skip all. Only new weights call for a new one.
"""

from __future__ import annotations

from amp_migrate.analysis.objects.availability import root_of
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.analysis.objects.optimizers import Birth
from amp_migrate.analysis.objects.points_to import COPIES
from amp_migrate.analysis.paths.walk import Frames
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of, unpacked
from amp_migrate.program.link import CallSite, Program

_LOOPS = ("for", "while")
_FEW = 20
"""Rounds of a loop that a scaler may need to find its scale."""
_MOST_PARTS = 100


class Lives:
    """Answers for one program."""

    def __init__(self, program: Program, ways: tuple[Frames, ...]) -> None:
        """``ways``: those that lead to a backward."""
        self.program = program
        self._ways = ways

    def loop_outside(self, birth: Birth) -> ir.Stmt | None:
        """The outermost loop around a birth that makes no weights."""
        return self._outermost(birth.function, birth.path, parameters_of(birth.call))

    def loop_of_calls(self, site: CallSite) -> ir.Stmt | None:
        """The outermost loop around a call that makes no weights which the call is given."""
        return self._outermost(site.caller, site.stmt.path, site.call)

    def _outermost(
        self, function: str, path: ir.Path, given: ir.Expr | None
    ) -> ir.Stmt | None:
        found = None
        for outer in self.program.control(function).around(path):
            if outer.kind in _LOOPS:
                if self._makes_weights(given, function, outer.path):
                    break
                found = outer
        return found

    def is_made_again(self, birth: Birth) -> bool:
        """Whether a function may make an optimizer again, each time for the same weights or copies."""
        function = self.program.functions[birth.function]
        return self.runs_again(birth.function) and not self._makes_weights(
            parameters_of(birth.call), birth.function, function.path
        )

    def is_short(self, birth: Birth) -> bool:
        """Whether an optimizer has few steps each time that it is made, or goes on where one was."""
        return self._goes_on(birth) or any(
            self._is_brief(birth, way) for way in self._ways
        )

    def _goes_on(self, birth: Birth) -> bool:
        """Whether a function gives its optimizer a state that it has been given."""
        function = birth.function
        return any(
            call.func == ir.Attr(ir.Name(birth.slot.name), "load_state_dict")
            and isinstance(arg.value, ir.Name)
            and self.program.is_param(function, arg.value.id)
            for stmt in self.program.statements(function)
            for call in calls_of(stmt)
            for arg in call.args
        )

    def runs_again(self, function: str) -> bool:
        """Whether a function may run more than once for the same weights: what trains, and is called out of
        sight, does."""
        program, pending = self.program, [function]
        for one in pending:
            sites = program.call_sites.get(one, [])
            if ir.is_top(one):
                continue
            if not sites or one in program.escaping:
                if any(at == one for way in self._ways for at, _ in way):
                    return True
            for site in sites:
                if self.loop_of_calls(site) is not None or any(
                    isinstance(part, ir.Comprehension) and site.call in ir.walk(part)
                    for part in parts_of(site.stmt)
                ):
                    return True
                whole = program.functions[site.caller].path
                if site.caller not in pending and not self._makes_weights(
                    site.call, site.caller, whole
                ):
                    pending.append(site.caller)
        return False

    def _is_brief(self, birth: Birth, way: Frames) -> bool:
        """Whether few steps of an optimizer lie on a way."""
        inside = [i for i, (at, _) in enumerate(way) if at == birth.function]
        return bool(inside) and all(
            _is_brief(loop)
            for at, path in way[inside[-1] :]
            for loop in self.program.control(at).around(path)
            if loop.kind in _LOOPS
            if at != birth.function or birth.path[: len(loop.path)] != loop.path
        )

    # -- weights ------------------------------------------------------------------------------------

    def _makes_weights(
        self, given: ir.Expr | None, function: str, inside: ir.Path
    ) -> bool:
        """Whether a model that is given is made in the same round of a loop, or the same run of a function,
        and is no copy of one that was there."""
        program, forward = self.program, self.program.noted(Forward)
        stmts = [
            stmt
            for stmt in program.statements(function)
            if stmt.path[: len(inside)] == inside
        ]
        pending = [] if given is None else list(ir.walk(given))
        holder = root_of(given.func) if isinstance(given, ir.Call) else None
        seen: set[ir.Expr] = set()
        made = False
        while pending:
            name = pending.pop()
            if name in seen or not isinstance(name, (ir.Name, ir.Attr)):
                continue
            seen.add(name)
            if any(
                call.func == ir.Attr(name, "load_state_dict")
                and not self._is_from_file(call, function)
                for stmt in stmts
                for call in calls_of(stmt)
            ):
                return False
            for stmt in stmts:
                for target, value, _ in unpacked(stmt):
                    if target != name or value is None:
                        continue
                    parts = list(ir.walk(value))
                    if any(self._copies(one, function) for one in parts):
                        return False
                    pending += parts
                    called = [one.func for one in parts if isinstance(one, ir.Call)]
                    made |= (
                        bool(called)
                        and (name == holder or forward.is_module(name, function))
                        and not any(
                            forward.is_module(one, function)
                            for one in parts
                            if isinstance(one, (ir.Name, ir.Attr)) and one not in called
                        )
                    )
        return made

    def _is_from_file(self, load: ir.Call, function: str) -> bool:
        """Whether a state is loaded that some file has."""
        parts = [part for arg in load.args for part in ir.walk(arg.value)]
        for part in parts:
            if isinstance(part, ir.Name) and len(parts) < _MOST_PARTS:
                parts += (
                    inner
                    for known in self.program.definitions(function, part.id)
                    if known.value is not None
                    for inner in ir.walk(known.value)
                    if inner not in parts
                )
        return any(
            isinstance(part, ir.Call)
            and self.program.origin(part.func, function) == "torch.load"
            for part in parts
        )

    def _copies(self, expr: ir.Expr, function: str) -> bool:
        match expr:
            case ir.Attr(attr="state_dict"):
                return True
            case ir.Call(func=func):
                return self.program.origin(func, function) in COPIES
        return False


def _is_brief(loop: ir.Stmt) -> bool:
    """Whether a loop has few rounds, as it is written: ``for _ in range(5):``."""
    match loop.value:
        case ir.Display(items=items):
            return loop.kind == "for" and len(items) <= _FEW
        case ir.Call(
            func=ir.Name(id="range"), args=(ir.Arg(value=ir.Const(value=int(n))),)
        ):
            return n <= _FEW
    return False
