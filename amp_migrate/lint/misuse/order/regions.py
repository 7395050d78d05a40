"""Which region of autocast a statement runs in, as its function and those that call it say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.lint.misuse.order.amp import Amp, Region
from amp_migrate.program import ir
from amp_migrate.program.link import CallSite

_MOST_CALLERS = 8
_DEEPEST = 3
_NO_GRAD = re.compile(r"torch\.(autograd\.(grad_mode\.)?)?(no_grad|inference_mode)")


class Regions:
    """Answers for one program."""

    def __init__(self, amp: Amp) -> None:
        self.amp = amp
        self.program = amp.program
        self._entered: dict[str, list[tuple[ir.Path, Region]]] = {}
        self._open_around: dict[str, Region | None] = {}
        """Of functions, what is open where they are called."""

    def around(self, function: str, stmt: ir.Stmt | None) -> Region | None:
        """The innermost region that a function opens around one of its statements."""
        found = [
            region
            for path, region in self.of(function)
            if not path or (stmt is not None and path == stmt.path[: len(path)])
        ]
        return found[-1] if found else None

    def of(self, function: str) -> list[tuple[ir.Path, Region]]:
        """The regions that a function opens, with the paths of their statements; none for a decorator's."""
        if function not in self._entered:
            facts = self.program.functions[function]
            around = facts.parent or function
            whole = ((d, (), around) for d in facts.decorators)
            parts = (
                (expr, stmt.path, function)
                for stmt in ir.statements(facts.body)
                if stmt.kind == "with"
                for expr in stmt.exprs
            )
            self._entered[function] = [
                (path, region)
                for expr, path, there in (*whole, *parts)
                if (region := self.amp.entered(expr, there)) is not None
            ]
        return self._entered[function]

    def open_at(
        self,
        function: str,
        stmt: ir.Stmt | None,
        calls: tuple[CallSite, ...] = (),
    ) -> Region | None:
        """The region that is open here by a way of calls; of calls that no way tells, in one of them."""
        places = [(function, stmt)]
        places += [(site.caller, site.stmt) for site in reversed(calls)]
        for place in places:
            found = self.around(*place)
            if found is not None:
                return None if found.enabled is False else found
        outermost = places[-1][0]
        if outermost not in self._open_around:
            self._open_around[outermost] = next(self._of_callers(outermost), None)
        return self._open_around[outermost]

    def _of_callers(self, function: str) -> Iterator[Region]:
        pending = [function]
        for callee in pending:
            for site in self.program.call_sites.get(callee, ()):
                found = self.around(site.caller, site.stmt)
                if found is not None and found.enabled is not False:
                    yield found
                elif found is None and site.caller not in pending:
                    if len(pending) < _MOST_CALLERS:
                        pending.append(site.caller)

    def is_without_gradients(
        self, function: str, stmt: ir.Stmt, depth: int = 0
    ) -> bool:
        """Whether a statement stands in ``no_grad``, by its function, one around it, or all callers."""
        facts = self.program.functions[function]
        around = facts.parent or function
        held = [(expr, around) for expr in facts.decorators]
        held += [
            (expr, function)
            for outer in (stmt, *self.program.control(function).around(stmt.path))
            if outer.kind == "with"
            for expr in outer.exprs
        ]
        callers = self.program.call_sites.get(function, ()) if depth < _DEEPEST else ()
        return any(
            _NO_GRAD.fullmatch(
                self.program.origin(
                    expr.func if isinstance(expr, ir.Call) else expr, there
                )
                or ""
            )
            for expr, there in held
        ) or (
            bool(callers)
            and all(
                self.is_without_gradients(one.caller, one.stmt, depth + 1)
                for one in callers
            )
        )
