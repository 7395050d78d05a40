"""Which values may be half, or were: gradients back through those are half as well."""

from __future__ import annotations

from collections.abc import Iterator

from amp_migrate.analysis.values.traces import At, Trace, Traces
from amp_migrate.program import ir

_PERHAPS = Trace(True, "?")


class MayBeHalf(Traces):
    """As `Traces`, but where callers are out of sight they give half values, and a class of the program's
    may give what it is given."""

    _asked_in = ""
    _too_far = _PERHAPS

    def may_be(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        """Whether a value is half in one of the contexts in which a statement runs."""
        if function != self._asked_in:
            self._asked_in = function
            self.forget()
        return any(
            self.of(At(expr, function, stmt, on)).half for on in self.contexts(function)
        )

    def _given(self, at: At, name: str) -> Iterator[Trace]:
        program, function = self.program, at.function
        own = program.self_class(function)
        is_forward = (
            function == self._asked_in
            and program.functions[function].name == "forward"
            and own is not None
            and self.forward.is_module_class(own[1])
        )
        if is_forward:
            yield _PERHAPS
        elif function in program.escaping:
            calls = program.handed_calls(function)
            if calls is None and function not in program.call_sites:
                yield _PERHAPS
            for site in calls or ():
                value = program.argument_at(site, name)
                if value is not None:
                    for on in self.contexts(site.caller):
                        yield self.of(At(value, site.caller, site.stmt, on))
                elif any(arg.star for arg in site.call.args):
                    yield _PERHAPS
        yield from super()._given(at, name)

    def _call(self, at: At, call: ir.Call) -> Trace:
        found = super()._call(at, call)
        made = self.modules.of(call.func, at.function) or ()
        if any(self.program.origin(m.call.func, m.function) is None for m in made):
            return found._replace(half=found.half or self._any_half(at, call))
        return found


class MayHavePassed(MayBeHalf):
    """Whatever dtype a value is now: is it made of half ones?"""

    _heard: dict[int, bool] | None = None
    """The expressions (by `id`) that the current question led to, and whether they are half."""

    def of(self, at: At) -> Trace:
        found = super().of(at)
        if self._heard is not None:
            self._heard[id(at.expr)] = found.half
        return found

    def _made_by(self, at: At) -> Trace:
        outer, self._heard = self._heard, {}
        found = super()._made_by(at)
        if not found.half and found.off != "number":
            match at.expr:
                case ir.Call() as call if self._is_of_torch(call, at.function):
                    half = self._passes(at, call)
                case ir.Call():
                    half = False
                case _:
                    half = any(self._heard.values())
            found = found._replace(half=half)
        self._heard = outer
        return found

    def _passes(self, at: At, call: ir.Call) -> bool:
        assert self._heard is not None
        if self.is_under(at) and self.forward.is_forward(call, at.function):
            return True
        operands = [arg.value for arg in call.args]
        if isinstance(call.func, ir.Attr):
            operands.append(call.func.value)
        return any(self._heard.values()) or any(
            id(one) not in self._heard and self._with(at, one).half for one in operands
        )

    def _is_of_torch(self, call: ir.Call, function: str) -> bool:
        """Whether a call is no function of the program's, which is followed inside, and none of another
        library's."""
        origin = self.program.origin(call.func, function)
        if origin is not None:
            return origin.startswith("torch.")
        refs = self.program.resolve(call.func, function)
        return not any(ref.kind == "function" for ref in refs)
