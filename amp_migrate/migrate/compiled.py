"""Models that are compiled, scripted, traced or recorded: what becomes of them under autocast."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.paths.events import Events
from amp_migrate.analysis.paths.loops import refused
from amp_migrate.analysis.tables.torch_names import TorchNames
from amp_migrate.core.options import Options
from amp_migrate.edit.edits import Insert, Placed
from amp_migrate.migrate.precision.hazards import Hazards
from amp_migrate.migrate.regions.regions import Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.link import Program

CONFIG = "torch._functorch.config"
"""The module with the setting, which ``import torch`` alone does not load."""

_SETTING = "backward_pass_autocast"
_SETTABLE = (2, 9)
"""The first torch of which a compiled backward can be told that it runs outside autocast."""

_GRAPHS = re.compile(
    r"torch\.cuda\.(make_graphed_callables|graph|CUDAGraph|graphs\.\w+)"
)
_JIT = re.compile(
    r"torch\.jit\.(script|trace|trace_module|script_method|ScriptModule|_script\.\w+|_trace\.\w+)"
)
_COMPILE = re.compile(r"torch\.(compile|_dynamo\.(optimize|run)|compiler\.compile)")
_OPTIONS = frozenset("fullgraph dynamic backend mode options disable".split())
"""The keywords of torch.compile (the docs of `torch.compile`, 2.9)."""
_OF_JIT = re.compile(r"torch\.(jit|onnx|save$|allclose$|utils\.mobile_optimizer)")


class Compiled:
    """Answers for one group's loops."""

    def __init__(
        self,
        program: Program,
        events: Events,
        forward: Forward,
        hazards: Hazards,
        options: Options,
        torch_names: TorchNames,
    ) -> None:
        self.program = program
        self.events = events
        self.forward = forward
        self.hazards = hazards
        self.options = options
        self.torch_names = torch_names

    def plan(self, runs: Collection[Run]) -> list[Placed]:
        """The setting before each ``torch.compile``; raises `Blocked` where that would not do."""
        compiled: dict[tuple[str, ir.Path], str] = {}
        reached = self.hazards.sites(runs)
        for function, stmt, origin, call in self._mentions():
            if _GRAPHS.fullmatch(origin):
                message = f"{origin}() records a graph that ignores autocast"
                raise refused("AMP008", message, stmt.line)
            if _JIT.fullmatch(origin):
                if call is None or not self._is_export(function, stmt, call, reached):
                    message = f"{origin}() needs care under autocast"
                    raise refused("AMP008", message, stmt.line)
                continue
            if self.options.torch_version < _SETTABLE:
                message = "before torch 2.9, the backward pass of compiled code runs under autocast"
                raise refused("AMP008", message, stmt.line)
            if call is None or not self._compiles_a_module(call, function):
                message = "something other than a model is compiled"
                raise refused("AMP008", message, stmt.line)
            compiled[function, stmt.path] = function
        edits: list[Placed] = []
        for function, path in compiled:
            if _SETTING in self.program.modules[ir.file_of(function)].identifiers:
                # The script has its own mind about it.
                continue
            torch = self.torch_names.of(function)
            code = f'{torch}._functorch.config.{_SETTING} = "off"'
            edits.append((ir.file_of(function), Insert(path, code, after=False)))
        return edits

    def _mentions(self) -> Iterator[tuple[str, ir.Stmt, str, ir.Call | None]]:
        """(function, statement, origin, call) wherever something is compiled; no call: otherwise."""
        for function, stmt, in_class in self._statements():
            calls = {
                id(inner.func): inner
                for inner in parts_of(stmt)
                if isinstance(inner, ir.Call)
            }
            simple = stmt.kind in ("assign", "annassign", "expr", "return")
            for inner in parts_of(stmt):
                call = calls.get(id(inner)) if simple and not in_class else None
                if isinstance(inner, ir.Call) and self._gets_compile(inner, function):
                    yield function, stmt, "torch.compile", None
                if not isinstance(inner, (ir.Name, ir.Attr)):
                    continue
                origin = self.program.origin(inner, function) or ""
                if any(p.fullmatch(origin) for p in (_GRAPHS, _JIT, _COMPILE)):
                    yield function, stmt, origin, call
                elif origin == "" and id(inner) in calls:
                    if _takes(calls[id(inner)]) and (
                        self._compiles_itself(inner, function)
                    ):
                        yield function, stmt, "compile", calls[id(inner)]

    def _compiles_itself(self, func: ir.Expr, function: str) -> bool:
        """``model.compile()``, also of what may be a module: ``model[0].compile()``."""
        return (
            isinstance(func, ir.Attr)
            and func.attr == "compile"
            and not self.program.resolve(func, function)
            and (
                self.forward.is_module(func.value, function)
                or not self.program.resolve(func.value, function)
            )
        )

    def _gets_compile(self, call: ir.Call, function: str) -> bool:
        """``getattr(torch, "compile")``."""
        return (
            self.program.origin(call.func, function) == "builtins.getattr"
            and call.argument(1, "name") == ir.Const("compile")
            and self.program.origin(call.args[0].value, function) == "torch"
        )

    def _statements(self) -> Iterator[tuple[str, ir.Stmt, bool]]:
        program = self.program
        for function, scope in program.functions.items():
            known = function in self.hazards.functions
            if known or ir.file_of(function) in self.hazards.files:
                for stmt in ir.statements(scope.body):
                    # Of a file that is only imported, what stands above a function or a class.
                    if known or stmt.kind in ("functiondef", "classdef"):
                        yield function, stmt, False
        for name, found in program.classes.items():
            if ir.file_of(name) in self.hazards.files:
                for stmt in ir.statements(found.body):
                    yield found.parent, stmt, True

    def _compiles_a_module(self, call: ir.Call, function: str) -> bool:
        func = call.func
        given: ir.Expr | None = None
        if isinstance(func, ir.Attr) and self._compiles_itself(func, function):
            given = func.value
        elif call.args and not call.args[0].star:
            given = call.args[0].value
        if given is None:
            return False
        refs = self.program.resolve(given, function)
        if any(ref.kind in ("function", "class") for ref in refs):
            return False
        return self.forward.is_module(given, function)

    # -- exports ------------------------------------------------------------------------------

    def _is_export(
        self,
        function: str,
        stmt: ir.Stmt,
        call: ir.Call,
        reached: Collection[tuple[str, ir.Path]],
    ) -> bool:
        """Whether what is scripted or traced is a copy that training never meets."""
        if (function, stmt.path) in reached:
            return False
        if stmt.kind == "expr":
            # `torch.jit.trace(model, x).save("model.pt")`
            return True
        if stmt.kind != "assign" or stmt.value is not call or len(stmt.targets) != 1:
            return False
        (target,) = stmt.targets
        if not isinstance(target, ir.Name):
            return False
        owner = self.program.owner(target.id, function)
        if owner is None or len(self.program.definitions(owner, target.id)) != 1:
            return False
        for at in self.program.functions:
            if self.program.owner(target.id, at) != owner:
                continue
            for other in self.program.statements(at):
                if other.path == stmt.path and at == function:
                    continue
                if self._uses(other, target) and (
                    (at, other.path) in reached or self._hands_on(other, target, at)
                ):
                    return False
        return True

    @staticmethod
    def _uses(stmt: ir.Stmt, name: ir.Name) -> bool:
        return any(inner == name for inner in parts_of(stmt))

    def _hands_on(self, stmt: ir.Stmt, name: ir.Name, function: str) -> bool:
        """Whether a statement does more with a scripted model than call, save or print it."""
        mentions = sum(inner == name for inner in parts_of(stmt))
        harmless = 0
        for call in calls_of(stmt):
            origin = self.program.origin(call.func, function) or ""
            if call.func == name:
                harmless += 1
            elif isinstance(call.func, ir.Attr) and call.func.value == name:
                harmless += call.func.attr in ("save", "eval", "graph_for", "__str__")
            elif _OF_JIT.match(origin) or origin == "builtins.print":
                harmless += sum(arg.value == name for arg in call.args)
        return harmless < mentions


def _takes(call: ir.Call) -> bool:
    """Whether ``Module.compile`` may be called like this: that of Keras is given a loss."""
    return all(arg.star or arg.name in _OPTIONS for arg in call.args)
