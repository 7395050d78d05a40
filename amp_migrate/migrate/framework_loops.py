"""Loops that a framework drives: found where they are started, and switched by one argument.

The argument is written where the call that holds it is in sight, says nothing of precision (or fp32, as
a literal), and nothing else in the program decides. Frameworks look for CUDA themselves; where there is
none, the value is the one that stands for fp32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.objects.makers import derives_from_optimizer
from amp_migrate.analysis.objects.points_to import PointsTo
from amp_migrate.analysis.paths.events import Event, Events
from amp_migrate.analysis.paths.loops import (
    Backward,
    Blocked,
    Finder,
    Refusal,
    TrainingLoop,
    refused,
)
from amp_migrate.analysis.tables import vocabulary
from amp_migrate.analysis.tables.frameworks import (
    BFLOAT16,
    FRAMEWORKS,
    LIGHTNING_1,
    OF_LIGHTNING_1,
    SETTINGS,
    Framework,
    Setting,
)
from amp_migrate.analysis.tables.torch_names import TorchNames
from amp_migrate.core.options import Options
from amp_migrate.edit.addresses import occurrence_of
from amp_migrate.edit.edits import Placed, SetArgument
from amp_migrate.migrate.framework_conflicts import Bypasses
from amp_migrate.migrate.precision.entering import Span
from amp_migrate.migrate.precision.hazards import Hazards
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_part
from amp_migrate.program.link import Program

_OF_ARRAYS = ("numpy.", "torch.", "pandas.")
_LOADS_HALF = frozenset(
    "torch_dtype dtype load_in_8bit load_in_4bit quantization_config".split()
)
_OVERFLOWS = re.compile(r"(?i)(^|[/_-])(u?m?t5|byt5|pegasus|gemma)([-_]|$)")
"""Families of models that were trained in bfloat16 and overflow in float16."""

_LIGHTNING = ("lightning", "pytorch_lightning")

Made = tuple[str, ir.Stmt, ir.Call]
"""(function, statement, call) where something is made."""


class Neighbours:
    """The framework-driven loops of one program."""

    def __init__(
        self,
        program: Program,
        options: Options,
        torch: TorchNames,
        events: Events,
        live: Callable[[TrainingLoop], Live | None],
        spans: dict[Span, None],
    ) -> None:
        """``live``: what can run with a loop, where all that runs it is in sight. ``spans``: the islands
        that the program's own loops have, to which these add theirs."""
        self.program = program
        self.live = live
        self.spans = spans
        self.options = options
        self.torch = torch
        self.forward = events.forward
        self.bypasses = Bypasses(program)
        self.finder = Finder(program, events.optimizers, events)

    def loops(self) -> Iterator[TrainingLoop]:
        """A loop for each call that starts one, with its refusal; `edit` may take that back."""
        for function, stmt, call in self.program.all_calls():
            for framework in FRAMEWORKS:
                if self._starts(framework, call, function):
                    event = Event("backward", call.line, call.column, call)
                    backward = Backward(function, stmt, event)
                    loop = TrainingLoop(function, stmt.path, [backward])
                    loop.refusal = self._refusal(framework, call.line)
                    loop.off = self.finder.is_off(loop)
                    yield loop

    def tell(self, loop: TrainingLoop) -> None:
        """Put the line of its framework into the refusal of a loop with a backward of its own."""
        refusal = loop.refusal
        if refusal is None or refusal.code != "AMP003":
            return
        framework = self._framework_of(loop)
        if framework is not None:
            line = loop.backwards[0].event.line
            told = self._refusal(framework, line)
            loop.refusal = replace(told, line=refusal.line)

    def edit(self, loop: TrainingLoop) -> list[Placed]:
        """The edits that switch a loop; where there are none, its refusal says why."""
        framework = self._framework_of(loop)
        setting = None if framework is None else SETTINGS.get(framework.name)
        if framework is None or setting is None:
            return []
        made = self._setting_call(framework, setting, loop)
        if made is None:
            return []
        function, stmt, call = made
        file = ir.file_of(function)
        name, value = self._wanted(setting, file)
        on = self._is_on(call, setting)
        if on:
            message = f"{framework.name} has mixed precision on already"
            loop.refusal = Refusal("AMP001", message, call.line)
            return []
        reason, line = self._why_not(setting, call, function), call.line
        old = bool(LIGHTNING_1 & {arg.name for arg in call.args})
        if not reason and framework.roots == _LIGHTNING and self.options.lightning_1:
            reason, old = "the project asks for its version 1", True
        bypass = self.bypasses.find(framework, setting, loop.function)
        if not reason and bypass is not None:
            reason, line, old = bypass.reason, bypass.line, bypass.old
        callee = ir.render(call.func)
        if reason or callee is None:
            message = f"{framework.name} drives this loop; {reason}"
            loop.refusal = replace(_told(framework, line), message=message)
            if old:
                by_hand = ("Trainer(precision=16)",)
                loop.refusal = replace(loop.refusal, by_hand=by_hand)
            return []
        files = frozenset({file, ir.file_of(loop.function)})
        try:
            edits = self._judge(framework, files, self.live(loop))
            paths = [edit.path for at, edit in edits if at == file]
            shadowed = self.torch.of_file(file).lost([*paths, stmt.path])
            if shadowed:
                message = "torch is bound to something else here"
                raise refused("AMP035", message, ir.Line(shadowed, file))
        except Blocked as blocked:
            loop.refusal = blocked.refusal
            return []
        loop.refusal = None
        occurrence = occurrence_of(stmt, call)
        edits.append((file, SetArgument(stmt.path, callee, occurrence, name, value)))
        return edits

    # -- who drives ---------------------------------------------------------------------------

    def _starts(self, framework: Framework, call: ir.Call, function: str) -> bool:
        if framework.starts.fullmatch(self.program.origin(call.func, function) or ""):
            return True
        return (
            isinstance(call.func, ir.Attr)
            and call.func.attr in framework.drives
            and self._is_made_by(framework, call.func.value, function)
        )

    def _refusal(self, framework: Framework, line: int) -> Refusal:
        assert isinstance(line, ir.Line)
        facts = self.program.modules[line.file]
        said = framework.speaks & (facts.identifiers | facts.strings)
        if not said:
            return _told(framework, line)
        message = (
            f"{framework.name} is configured for mixed precision here ({min(said)})"
        )
        return Refusal("AMP001", message, line)

    def _is_made_by(self, framework: Framework, expr: ir.Expr, function: str) -> bool:
        names = set()
        for ref in self.program.resolve(expr, function):
            if ref.kind == "made":
                names.add(ref.name)
            elif ref.kind == "instance":
                names |= self.program.external_bases(ref.name)
        return any(framework.makers.fullmatch(name) for name in names)

    def _framework_of(self, loop: TrainingLoop) -> Framework | None:
        backward = loop.backwards[0]
        call = backward.event.call
        if call is None or not isinstance(call.func, ir.Attr):
            return None
        receiver = call.func.value
        for framework in FRAMEWORKS:
            if self._is_made_by(framework, receiver, loop.function):
                return framework
        words = {"accelerator": "Accelerate", "fabric": "Lightning Fabric"}
        words |= dict.fromkeys(("model_engine", "ds_engine"), "DeepSpeed")
        last = (ir.key_of(receiver) or "").rsplit(".", 1)[-1]
        if call.func.attr != "backward":
            return None
        roots = self.program.import_roots(loop.function)
        lenders = [
            framework
            for framework in FRAMEWORKS
            if framework.name in ("Accelerate", "Lightning Fabric", "DeepSpeed")
            and (framework.name == words.get(last) or roots & {*framework.roots})
        ]
        named = [one for one in lenders if one.name == words.get(last)]
        found = named or lenders
        return found[0] if len(found) == 1 else None

    # -- the call that holds the argument -----------------------------------------------------

    def _setting_call(
        self, framework: Framework, setting: Setting, loop: TrainingLoop
    ) -> Made | None:
        call = loop.backwards[0].event.call
        assert call is not None and isinstance(call.func, ir.Attr)
        made = self._made(call.func.value, loop.function, loop.backwards[0].stmt)
        if made is not None and framework.name == "the Hugging Face Trainer":
            given = made[2].argument(1, "args")
            made = None if given is None else self._made(given, made[0], made[1])
        if made is None:
            return None
        origin = self.program.origin(made[2].func, made[0]) or ""
        return made if setting.maker.fullmatch(origin) else None

    def _made(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> Made | None:
        """The only call that makes what an expression of a statement holds."""
        points_to = self.program.noted(PointsTo)
        found = points_to.whole(expr, function, stmt, closed=True)
        if len({id(one.expr) for one in found}) != 1:
            return None
        made = found[0]
        if made.fields or made.stmt is None or not isinstance(made.expr, ir.Call):
            return None
        return made.function, made.stmt, made.expr

    # -- the argument -------------------------------------------------------------------------

    def _wanted(self, setting: Setting, file: str) -> tuple[str, str]:
        """The argument's name and value."""
        name, half = setting.argument, setting.half
        if self.options.dtype == "bfloat16":
            name, half = BFLOAT16.get(name, name), BFLOAT16.get(half, half)
        there = f"{self.torch.of_file(file).name}.cuda.is_available()"
        value = f"{half} if {there} else {setting.full}" if half else there
        return name, value

    def _is_on(self, call: ir.Call, setting: Setting) -> bool:
        """Whether mixed precision is asked for, on some condition or none."""
        names = {setting.argument, BFLOAT16.get(setting.argument, setting.argument)}
        return any(
            isinstance(inner, ir.Const) and _says_half(inner.value)
            for arg in call.args
            if arg.name in names
            for inner in ir.walk(arg.value)
        ) or any(
            arg.name in names
            and not setting.half
            and isinstance(arg.value, ir.Call)
            and (ir.dotted(arg.value.func) or ())[-2:] == ("cuda", "is_available")
            for arg in call.args
        )

    def _why_not(self, setting: Setting, call: ir.Call, function: str) -> str:
        """Why the argument is not written."""
        if any(arg.star for arg in call.args):
            return "its arguments are not all known"
        if setting.by_name and any(arg.name is None for arg in call.args):
            return "its arguments are those of another version"
        given = {arg.name: arg.value for arg in call.args if arg.name}
        for name in sorted(setting.deciding & given.keys()):
            if name in OF_LIGHTNING_1:
                return f"{name} is of its version 1, in which precision is a number"
            for value in self._values(given[name], function):
                if name == "accelerator" and _asks_for_cuda(value):
                    continue
                plain = value.value if isinstance(value, ir.Const) else ...
                if plain is not None and (name, plain) not in setting.harmless:
                    return f"{name} decides on its precision or device, too"
        if setting.argument not in given:
            return "" if setting.may_be_absent else "its launcher decides on precision"
        value = given[setting.argument]
        if isinstance(value, ir.Const) and any(
            value.value is one
            or (type(value.value) is type(one) and value.value == one)
            for one in setting.fp32
        ):
            return ""
        return f"{setting.argument} is decided elsewhere"

    def _values(self, expr: ir.Expr, function: str) -> list[ir.Expr]:
        """What an argument can be: of a variable, all that it is given."""
        if not isinstance(expr, ir.Name):
            return [expr]
        given = self.program.defined(expr.id, function)
        values = [d.value for d in given if d.value is not None]
        return values if values and len(values) == len(given) else [expr]

    def _judge(
        self, framework: Framework, files: frozenset[str], live: Live | None
    ) -> list[Placed]:
        """What has to run in fp32, under the framework's autocast; raise `Blocked` at what half precision
        would break, or a scaled gradient."""
        hazards = Hazards(
            self.program, self.forward, self.options, files, live, self.spans
        )
        hazards.judge_setup(frozenset(self.program.functions))
        hazards.find(frozenset(), ())
        around = frozenset(self.program.importing(files))
        running = {
            function
            for function in self.program.functions
            if ir.file_of(function) in around and (live is None or live.runs(function))
        }
        if framework.name == "the Hugging Face Trainer":
            self._judge_models(running)
        self._judge_gradients(running)
        self.spans.update(hazards.spans)
        return [(ir.file_of(function), edit) for function, edit in hazards.edits]

    def _judge_models(self, running: Collection[str]) -> None:
        """Weights that are loaded in another precision, or that overflow in float16."""
        program = self.program
        for function, _, call in program.all_calls():
            for arg in call.args if function in running else ():
                if (
                    arg.name in _LOADS_HALF
                    and arg.value != ir.Const(None)
                    and not (program.origin(call.func, function) or "").startswith(
                        _OF_ARRAYS
                    )
                ):
                    message = f"{arg.name}= decides on the precision of the weights"
                    raise refused("AMP006", message, call.line)
        for facts in (program.functions[function] for function in sorted(running)):
            for stmt, inner in each_part(facts.body):
                text = inner.value if isinstance(inner, ir.Const) else None
                if isinstance(text, str) and _OVERFLOWS.search(text):
                    message = f"{text} was trained in bfloat16 and overflows in float16"
                    if self.options.scaled:
                        line = ("TrainingArguments(bf16=True)",)
                        raise Blocked(Refusal("AMP020", message, stmt.line, line))

    def _judge_gradients(self, running: Collection[str]) -> None:
        """Gradients that the program reads or edits itself, which are scaled then."""
        for function in sorted(running):
            if self._is_optimizer_step(function):
                continue  # frameworks unscale before it
            for stmt in self.program.statements(function):
                if stmt.kind == "assign" and stmt.value == ir.Const(None):
                    continue  # a gradient that is cleared
                for expr in stmt.exprs:
                    if any(self._is_gradient(e, function) for e in ir.walk(expr)):
                        message = (
                            "gradients are read or edited here, scaled by the framework"
                        )
                        raise refused("AMP030", message, stmt.line)

    def _is_optimizer_step(self, function: str) -> bool:
        own = self.program.self_class(function)
        return (
            own is not None
            and self.program.functions[function].name == "step"
            and derives_from_optimizer(self.program.external_bases(own[1]))
        )

    def _is_gradient(self, expr: ir.Expr, function: str) -> bool:
        origin = self.program.origin(expr, function)
        if origin is not None:
            return bool(vocabulary.GRADIENT_CLIPPERS.fullmatch(origin))
        return isinstance(expr, ir.Attr) and expr.attr == "grad"


def _told(framework: Framework, line: int) -> Refusal:
    message = f"{framework.name} drives this loop, and has a switch of its own"
    return Refusal("AMP003", message, line, (framework.line,))


def _asks_for_cuda(value: ir.Expr) -> bool:
    """``"gpu" if torch.cuda.is_available() else "cpu"``: the condition under which it is switched on."""
    match value:
        case ir.Operation(
            op="if",
            operands=(
                ir.Call(func=func),
                ir.Const(value="gpu" | "cuda"),
                ir.Const(value="cpu" | "auto"),
            ),
        ):
            return (ir.dotted(func) or ())[-2:] == ("cuda", "is_available")
    return False


def _says_half(value: object) -> bool:
    if isinstance(value, str):
        return any(word in value.lower() for word in ("16", "fp8", "half"))
    return value is True or (type(value) is int and value == 16)
