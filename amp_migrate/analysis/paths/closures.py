"""``optimizer.step(closure)`` as what it is for most optimizers: a call of the closure, then a step.

Every optimizer of torch.optim but L-BFGS calls the closure once, with gradients on, before it changes
anything (``loss = closure()`` at the head of each ``step``). Where that holds and nothing else can tell
the difference, the statement is read as ``loss = closure()`` with a plain step behind it, by all that
plans; `edit.closures` writes it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from amp_migrate.analysis.objects.makers import IN_ITS_OWN_WAY
from amp_migrate.analysis.objects.optimizers import Birth, Optimizers
from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call, parts_of
from amp_migrate.program.link import Program

_CALL_ONCE = frozenset(
    f"torch.optim.{name}"
    for name in """Adadelta Adafactor Adagrad Adam AdamW Adamax ASGD Muon NAdam RAdam RMSprop Rprop
    SGD SparseAdam""".split()
)
"""What was read in torch/optim/*.py: one ``loss = closure()`` under ``enable_grad``, first of all."""
_STEP_HOOKS = frozenset(
    """register_step_pre_hook register_step_post_hook register_optimizer_step_pre_hook
    register_optimizer_step_post_hook""".split()
)
_GRADIENTS_OFF = frozenset("no_grad inference_mode set_grad_enabled".split())
_READS = frozenset("item detach cpu".split())


def called_first(program: Program) -> Program:
    """The program with its closures called before their steps, as far as that is the same."""
    closures = Closures(program, Optimizers(program))
    found: dict[str, dict[ir.Path, ir.Stmt]] = {}
    if closures.are_watched():
        return program
    for function, stmt, call in closures.steps(closures.may_be_called_first):
        if not closures.reason(function, stmt, call):
            found.setdefault(function, {})[stmt.path] = _called_first(stmt, call)
    if not found:
        return program
    modules = [
        replace(
            facts,
            functions={
                qualname: (
                    replace(one, body=_replaced(one.body, found[qualname]))
                    if qualname in found
                    else one
                )
                for qualname, one in facts.functions.items()
            },
        )
        for facts in program.modules.values()
    ]
    return Program(modules, program.layout)


class Closures:
    """Judges the closures that the optimizers of one program are given."""

    def __init__(self, program: Program, optimizers: Optimizers) -> None:
        self.program = program
        self.optimizers = optimizers

    def steps(
        self, fit: Callable[[ir.Stmt, ir.Call], bool] = lambda stmt, call: True
    ) -> Iterator[tuple[str, ir.Stmt, ir.Call]]:
        """(function, statement, call) of every step of an optimizer with an argument, of those that
        are ``fit``: that is asked first, for to know an optimizer takes long in a large program.
        """
        for function, stmt, call in self.program.calls_named("step"):
            if not call.args or not isinstance(call.func, ir.Attr):
                continue
            if fit(stmt, call) and self._is_optimizer(call.func, function):
                yield function, stmt, call

    def may_be_called_first(self, stmt: ir.Stmt, call: ir.Call) -> bool:
        """Whether nothing in the statement itself keeps its closure from being called first."""
        return _is_closure_alone(call) and not self._of_statement(stmt, call)

    def are_watched(self) -> bool:
        """Whether something in the program tells a closure that is called first from one that is not,
        whatever the closure."""
        return bool(self._of_all)

    def _is_optimizer(self, func: ir.Attr, function: str) -> bool:
        slot = self.optimizers.slot(func.value, function)
        if slot is None:
            return False
        if not self.optimizers.leads_nowhere(slot):
            if self.optimizers.trace(slot).births:
                return True
        return self.optimizers.makers.looks_like_one(func.value, function)

    def reason(self, function: str, stmt: ir.Stmt, call: ir.Call) -> str:
        """Why the closure cannot be called before the step; nothing where it can."""
        if not _is_closure_alone(call):
            return "step() is given other arguments than a closure"
        return (
            self._of_optimizer(function, call)
            or self._of_closure(function, call)
            or self._of_statement(stmt, call)
            or self._of_surroundings(function, stmt)
        )

    def _of_optimizer(self, function: str, call: ir.Call) -> str:
        slot = self.optimizers.slot(ir.receiver_of(call), function)
        trace = None if slot is None else self.optimizers.trace(slot)
        if trace is None or trace.problems or not trace.births:
            problems = [] if trace is None else [p.reason for p in trace.problems]
            return (*problems, "an optimizer of unknown origin has a closure")[0]
        for birth in trace.births:
            if not self._calls_once(birth.call, birth.function):
                name = ir.render(birth.call.func) or "this optimizer"
                if self._trains_itself(birth):
                    return f"{name} {IN_ITS_OWN_WAY}"
                return f"how often {name} calls its closure is not known"
        return ""

    def _trains_itself(self, birth: Birth) -> bool:
        """Whether an optimizer's own ``step`` goes backward, and not what it is given to call."""
        steps = (
            self.program.method(one.name, "step")
            for one in _classes(self.program, birth.call, birth.function)
            if one.kind == "class"
        )
        return any(step and _goes_backward(self.program, (step,)) for step in steps)

    def takes_none(self, function: str, call: ir.Call) -> bool:
        """Whether a step is given what is no closure: its optimizer's own ``step`` calls no argument."""
        slot = self.optimizers.slot(ir.receiver_of(call), function)
        trace = None if slot is None else self.optimizers.trace(slot)
        return (
            trace is not None
            and not trace.problems
            and bool(trace.births)
            and all(self._function(arg.value, function) is None for arg in call.args)
            and takes_no_closure(
                self.program, [(one.call, one.function) for one in trace.births], call
            )
        )

    def _calls_once(self, made: ir.Call, function: str) -> bool:
        """Whether a call makes optimizers of torch.optim that call a closure once."""
        found = _classes(self.program, made, function)
        return bool(found) and all(
            one.kind == "external" and one.name in _CALL_ONCE for one in found
        )

    def _of_closure(self, function: str, call: ir.Call) -> str:
        program = self.program
        closure = self._function(call.args[0].value, function)
        if closure is None:
            return "the closure of step() is not a function that is defined here"
        facts = program.functions[closure]
        name = facts.name
        params = facts.params[1:] if facts.self_name is not None else facts.params
        wanted = any(
            p.default is None and p.kind in ("positional", "keyword") for p in params
        )
        if facts.decorators or facts.is_async or facts.is_generator or wanted:
            return f"{name}() is not a plain function without parameters"
        reached = self.program.called_from((closure,))
        if any(
            ir.method_of(inner) == "step"
            for one in reached
            for _, inner in each_call(program.functions[one].body)
        ):
            return f"{name}() is a closure of step(), and steps something itself"
        slot = self.optimizers.slot(ir.receiver_of(call), function)
        births = () if slot is None else self.optimizers.trace(slot).births
        if any(birth.function in reached for birth in births):
            return f"{name}() is a closure of step(), and makes its optimizer again"
        return ""

    def _function(self, expr: ir.Expr, function: str) -> str | None:
        """The one function that a closure can only be."""
        found = self.program.noted(PointsTo).whole(expr, function, closed=True)
        names = {one.name if one.kind == "function" else None for one in found}
        return names.pop() if len(names) == 1 else None

    def _of_statement(self, stmt: ir.Stmt, call: ir.Call) -> str:
        receiver = ir.key_of(ir.receiver_of(call))
        fit = stmt.kind in ("expr", "assign", "augassign") and len(stmt.targets) < 2
        if not fit or receiver is None or not _only_reads(stmt.value, call):
            return "the result of step(closure) is part of a larger statement"
        for target in stmt.targets:
            items = target.items if isinstance(target, ir.Display) else (target,)
            for item in items:
                name = item.value if isinstance(item, ir.Attr) else item
                if not isinstance(name, ir.Name) or receiver.startswith(
                    ir.key_of(item) or ""
                ):
                    return "the result of step(closure) is not bound to plain names"
        return ""

    def _of_surroundings(self, function: str, stmt: ir.Stmt) -> str:
        if self._of_all:
            return self._of_all
        if self._is_without_gradients(function, stmt.path, set()):
            return "the step stands where gradients are off, which it undoes for its closure"
        return ""

    @cached_property
    def _of_all(self) -> str:
        """Why no closure of the program can be called before its step."""
        program = self.program
        for facts in program.modules.values():
            if _STEP_HOOKS & facts.identifiers:
                return "hooks of step() run before its closure, or are shown it"
        for other, one, call in program.all_calls():
            if one.kind == "expr" and _last(call.func) in _GRADIENTS_OFF:
                name = ir.local_name(other)
                return (
                    f"{name} turns gradients off, which step() undoes for its closure"
                )
        return ""

    def _is_without_gradients(
        self, function: str, path: ir.Path, seen: set[str]
    ) -> bool:
        """Whether something around a statement, or around a call that leads there, says so."""
        scope = self.program.functions[function]
        around = [
            call
            for outer in ir.statements(scope.body)
            if outer.kind == "with" and outer.path == path[: len(outer.path)]
            for call in calls_of(outer)
        ]
        heads = [call.func for call in around] + [
            one.func if isinstance(one, ir.Call) else one for one in scope.decorators
        ]
        if any(_last(head) in _GRADIENTS_OFF for head in heads):
            return True
        if function in seen:
            return False
        seen.add(function)
        return any(
            self._is_without_gradients(site.caller, site.stmt.path, seen)
            for site in self.program.call_sites.get(function, ())
        )


def _classes(program: Program, made: ir.Expr, function: str) -> tuple[Object, ...]:
    """What is called to make some optimizers; nothing where that is not wholly in sight."""
    points_to = program.noted(PointsTo)
    found = points_to.whole(made, function)
    if not all(isinstance(one.expr, ir.Call) for one in found):
        return ()
    return tuple(
        func
        for one in found
        if isinstance(one.expr, ir.Call)
        for func in points_to.of(one.expr.func, one.function, one.stmt, one.context)
    )


def takes_no_closure(
    program: Program, made: Iterable[tuple[ir.Expr, str]], step: ir.Call
) -> bool:
    """Whether optimizers are of classes whose own ``step`` calls nothing of what it is given, and computes
    no gradients: a scaler hands that on. ``step``: the call, without the optimizer itself.
    """
    classes = [
        one for expr, function in made for one in _classes(program, expr, function)
    ]
    names = {arg.name for arg in step.args}
    own = [
        one
        for one in classes
        # Those of torch take a closure at most: what is given more is no step of theirs.
        if one.name not in _CALL_ONCE or (len(step.args) < 2 and names <= {None})
    ]
    return (
        bool(own)
        and not names & {"closure", "optimizer"}
        and not any(arg.star for arg in step.args)
        and all(
            one.kind == "class"
            and (method := program.method(one.name, "step")) is not None
            and _calls_nothing_given(program, method)
            for one in own
        )
    )


def _goes_backward(program: Program, functions: Iterable[str]) -> bool:
    return any(
        ir.last_of(call.func) in ("backward", "grad")
        for one in functions
        for _, call in each_call(program.functions[one].body)
    )


def _calls_nothing_given(program: Program, function: str) -> bool:
    """Whether a method never calls a parameter, nor gives it to what might, and computes no gradients."""
    facts = program.functions[function]
    if _goes_backward(program, program.called_from((function,))):
        return False
    for decorator in facts.decorators:
        made = decorator.func if isinstance(decorator, ir.Call) else decorator
        if not (program.origin(made, function) or "").startswith("torch."):
            return False
    given = {ir.Name(param.name) for param in facts.params[1:]}
    if any(param.kind not in ("positional", "keyword") for param in facts.params):
        return False
    for stmt in program.statements(function):
        if stmt.value in given and stmt.kind != "for":
            return False  # It has another name from here on.
        for inner in parts_of(stmt):
            match inner:
                case ir.Deferred():
                    return False
                case ir.Call(func=func, args=args) if func in given or (
                    any(arg.value in given for arg in args)
                    and (ir.last_of(func) == "step" or program.callees(inner, function))
                ):
                    return False
    return True


def _last(func: ir.Expr) -> str:
    if isinstance(func, ir.Attr):
        return func.attr
    return func.id if isinstance(func, ir.Name) else ""


def _is_closure_alone(call: ir.Call) -> bool:
    """Whether a step is given one argument, which may be a closure."""
    arg, *more = call.args
    return not (more or arg.star or arg.name not in (None, "closure"))


def _only_reads(value: ir.Expr | None, call: ir.Call) -> bool:
    """Whether a value is the call, or no more than its result read: ``step(closure).item()``."""
    while isinstance(value, ir.Call) and value is not call:
        if isinstance(value.func, ir.Attr) and value.func.attr in _READS:
            if value.args:
                return False
            value = value.func.value
        elif value.func == ir.Name("float") and len(value.args) == 1:
            value = value.args[0].value
        else:
            return False
    return value is call


def _called_first(stmt: ir.Stmt, step: ir.Call) -> ir.Stmt:
    """The statement with its closure called where its step was, and the step behind it."""
    called = ir.Call(step.args[0].value, (), step.line, step.column)
    assert stmt.value is not None
    value = _with(stmt.value, step, called)
    plain = ir.Call(step.func, (), step.line, step.column)
    bound = stmt.exprs[1:]
    return replace(stmt, value=value, exprs=(value, *bound, plain), step=plain)


def _with(expr: ir.Expr, old: ir.Call, new: ir.Call) -> ir.Expr:
    if expr is old:
        return new
    assert isinstance(expr, ir.Call)
    if isinstance(expr.func, ir.Attr):
        return replace(
            expr, func=ir.Attr(_with(expr.func.value, old, new), expr.func.attr)
        )
    return replace(expr, args=(ir.Arg(_with(expr.args[0].value, old, new)),))


def _replaced(
    body: tuple[ir.Stmt, ...], new: dict[ir.Path, ir.Stmt]
) -> tuple[ir.Stmt, ...]:
    return tuple(
        new.get(stmt.path)
        or replace(
            stmt,
            blocks=tuple(
                replace(block, body=_replaced(block.body, new)) for block in stmt.blocks
            ),
        )
        for stmt in body
    )
