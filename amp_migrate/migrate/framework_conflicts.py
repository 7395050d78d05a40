"""What goes past a training framework's own switch, so that turning it on would break the program.

A framework scales what goes through its backward, and unscales what goes through its optimizer. Where
the program does one of them by itself, or decides on precision once more, the line is only told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.analysis.tables.frameworks import BFLOAT16, Framework, Setting
from amp_migrate.program import ir
from amp_migrate.program.bindings import unpacked
from amp_migrate.program.link import Program

_DRIVEN_BY_HAND = ("Accelerate", "Lightning Fabric")
"""Frameworks that only lend a backward and an optimizer to a loop of the program's own."""
_PREPARES = frozenset("prepare prepare_optimizer setup setup_optimizers".split())
_NO_OPTIMIZER = re.compile(r"(?i)sched|prof|warm|ema|metric|bar$")
_ENVIRONMENT = re.compile(r"ACCELERATE_(MIXED_PRECISION|USE_\w+)")
_HOOKS_OF_1 = frozenset(
    """training_epoch_end validation_epoch_end test_epoch_end on_epoch_start on_epoch_end
    training_step_end validation_step_end test_step_end""".split()
)


@dataclass(frozen=True, slots=True)
class Bypass:
    reason: str
    line: int
    old: bool = False
    """It is code for Lightning 1."""


class Bypasses:
    """What one program does beside its frameworks."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def find(
        self, framework: Framework, setting: Setting, function: str
    ) -> Bypass | None:
        """The first that stands in the way of switching on what a framework drives in a function."""
        by_hand = framework.name in _DRIVEN_BY_HAND
        found = [self._lbfgs()]
        if by_hand:
            found += [self._own_backward_in(function), self._own_steps(function)]
        else:
            found.append(self._own_backward_of(framework))
        if framework.name == "the Hugging Face Trainer":
            found += [self._set_later(setting), self._environment()]
        if framework.name == "Lightning":
            found += [self._lightning_1(framework), self._clips_by_hand()]
        return next(filter(None, found), None)

    def _calls(self, name: str) -> Iterator[tuple[str, ir.Stmt, ir.Call]]:
        for function, stmt, call in self.program.all_calls():
            if ir.method_of(call) == name:
                yield function, stmt, call

    def _lbfgs(self) -> Bypass | None:
        for function, _, call in self.program.all_calls():
            if self.program.origin(call.func, function) == "torch.optim.LBFGS":
                return Bypass("LBFGS cannot be under mixed precision", call.line)
        return None

    # -- gradients ----------------------------------------------------------------------------

    def _own_backward_in(self, function: str) -> Bypass | None:
        for other, _, call in self._calls("backward"):
            if other == function and not self._is_lent(call):
                return _past(call)
        return None

    def _own_backward_of(self, framework: Framework) -> Bypass | None:
        for function, _, call in self._calls("backward"):
            own = self.program.self_class(function)
            if own is None or self._is_lent(call):
                continue
            bases = self.program.external_bases(own[1])
            # What a hook named backward is given is scaled already.
            hook = ir.local_name(function).rpartition(".")[2] == "backward"
            if not hook and any(b.split(".")[0] in framework.roots for b in bases):
                return _past(call)
        return None

    def _is_lent(self, call: ir.Call) -> bool:
        key = ir.key_of(ir.receiver_of(call)) or ""
        last = key.rpartition(".")[2].lower()
        return any(word in last for word in ("accelerator", "fabric", "super"))

    def _own_steps(self, function: str) -> Bypass | None:
        """A step of an optimizer that the framework was not given, or one with a closure."""
        prepared: set[str | None] = set()
        for name in _PREPARES:
            for _, stmt, call in self._calls(name):
                prepared |= {ir.key_of(arg.value) for arg in call.args}
                prepared |= {ir.key_of(target) for target, _, _ in unpacked(stmt)}
        for other, _, call in self._calls("step"):
            key = ir.key_of(ir.receiver_of(call))
            if other != function or (key and _NO_OPTIMIZER.search(key)):
                continue
            if key is None or key not in prepared:
                what = key or "an optimizer"
                return Bypass(f"{what} is not seen to be prepared by it", call.line)
            if call.args:
                return Bypass("a closure cannot be under a scaler", call.line)
        return None

    def _clips_by_hand(self) -> Bypass | None:
        for function, _, call in self._calls("clip_gradients"):
            if (
                ir.local_name(function).rpartition(".")[2]
                != "configure_gradient_clipping"
            ):
                return Bypass("gradients are clipped by hand, still scaled", call.line)
        return None

    # -- precision ----------------------------------------------------------------------------

    def _set_later(self, setting: Setting) -> Bypass | None:
        """``args.bf16 = True``, after the object is made."""
        names = {
            setting.argument,
            BFLOAT16.get(setting.argument, ""),
            *setting.deciding,
        }
        for function in self.program.functions.values():
            for stmt in ir.statements(function.body):
                for target, _, _ in unpacked(stmt):
                    if isinstance(target, ir.Attr) and target.attr in names:
                        return Bypass(f"{target.attr} is set later", stmt.line)
        for _, _, call in self.program.all_calls():
            match call:
                case ir.Call(
                    func=ir.Name(id="setattr"), args=(_, ir.Arg(value=key), _)
                ):
                    if not isinstance(key, ir.Const) or key.value in names:
                        return Bypass("its arguments are set later", call.line)
        return None

    def _environment(self) -> Bypass | None:
        for function in self.program.functions.values():
            for stmt in ir.statements(function.body):
                for expr in (*stmt.exprs, *stmt.targets):
                    for inner in ir.walk(expr):
                        text = inner.value if isinstance(inner, ir.Const) else None
                        if isinstance(text, str) and _ENVIRONMENT.fullmatch(text):
                            return Bypass("the environment also decides", stmt.line)
        return None

    def _lightning_1(self, framework: Framework) -> Bypass | None:
        for name, found in self.program.classes.items():
            bases = self.program.external_bases(name)
            if not any(base.split(".")[0] in framework.roots for base in bases):
                continue
            for method, qualname in found.methods:
                function = self.program.functions[qualname]
                params = {param.name for param in function.params}
                if method in _HOOKS_OF_1 or (
                    method == "training_step" and "optimizer_idx" in params
                ):
                    reason = f"{method}() here is written for its version 1"
                    return Bypass(reason, function.line, old=True)
        return None


def _past(call: ir.Call) -> Bypass:
    return Bypass("a backward() here bypasses it", call.line)
