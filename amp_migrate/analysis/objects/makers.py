"""Which calls make an optimizer, and which of those a scaler can step."""

from __future__ import annotations

import re
from functools import cached_property

from amp_migrate.program import ir
from amp_migrate.program.link import CallSite, Program

CLOSURE = "closure"
WRAPPED = "wrapped"

_WRAPPERS = frozenset(
    {
        "SAM",
        "ASAM",
        "GSAM",
        "Lookahead",
        "DistributedOptimizer",
        "KFAC",
        "KFACOptimizer",
        "EKFAC",
        "NoamOpt",
        "ScheduledOptim",
        "FP16_Optimizer",
        "ZeroRedundancyOptimizer",
        "DiffOptimizer",
        "SWA",
        "Shampoo",
    }
)
_LIBRARIES = ("torch.optim", "torch_optimizer")
_MOST_NAMES = 6
_KNOWN_ELSEWHERE = re.compile(
    r"(Adam\w*|SGD\w*|RMSprop\w*|Adagrad|Adadelta|RAdam|NAdam|Lamb|LAMB|LARS|Lars|Ranger\w*|AdaBound\w*"
    r"|AdaBelief|Adafactor|Lion|Yogi|NovoGrad|DiffGrad|AdaMod|Apollo|Prodigy|Fused\w+|BertAdam"
    r"|AdaHessian)$"
)
_LOOKS_LIKE = re.compile(
    r"(?i)(^|_|\.)(optim\w*|optimi[sz]er\w*|opts?\d*|solver|trainer_[gd]|optm)(_\w+)?$"
)
_SCHEDULER_KEY = re.compile(r"(?i)\[['\"](\w*sched\w*|lr)['\"]\]$")


class Makers:
    """Recognises the constructions of a program's optimizers."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def construction(self, call: ir.Call, function: str) -> str | None:
        """``plain``, `CLOSURE` or `WRAPPED` for a call that makes an optimizer, else None."""
        return self._kind_of_class(call.func, function, 0)

    def _kind_of_class(self, expr: ir.Expr, function: str, depth: int) -> str | None:
        """The same, for an expression that is called: the class of an optimizer."""
        program = self.program
        if self._is_reflection(expr, function):
            return "plain"
        if isinstance(expr, ir.Item):
            return self._from_table(expr, function)
        kinds: set[str | None] = set()
        options = self._options(expr, function) if depth < _MOST_NAMES else []
        for at, value in options:
            if value != ir.Const(None):
                kinds.add(self._kind_of_class(value, at, depth + 1))
        for ref in () if options else program.resolve(expr, function):
            if ref.kind == "external":
                kinds.add(self._external_kind(ref.name))
            elif ref.kind == "class":
                kinds.add(self._own_kind(ref.name))
            else:
                return None
        if not kinds or None in kinds:
            return None
        return next((kind for kind in (CLOSURE, WRAPPED) if kind in kinds), "plain")

    def _options(self, expr: ir.Expr, function: str) -> list[tuple[str, ir.Expr]]:
        """(function, value) of what an expression may be: of a conditional, or of a variable whose
        values are all assigned to it by themselves."""
        program = self.program
        if isinstance(expr, ir.Operation) and expr.op == "if":
            return [(function, option) for option in expr.operands[1:]]
        owner = program.owner(expr.id, function) if isinstance(expr, ir.Name) else None
        if owner is None or not isinstance(expr, ir.Name):
            return []
        if any(param.name == expr.id for param in program.functions[owner].params):
            return []
        found = program.definitions(owner, expr.id)
        values = [
            (d.function, d.value)
            for d in found
            if d.value is not None and d.index is None
        ]
        return values if len(values) == len(found) else []

    def _is_reflection(self, expr: ir.Expr, function: str) -> bool:
        """``getattr(torch.optim, name)``."""
        if not isinstance(expr, ir.Call):
            return False
        if self.program.origin(expr.func, function) != "builtins.getattr":
            return False
        holder = expr.argument(0, "object")
        if holder is None:
            return False
        return self.program.origin(holder, function) in _LIBRARIES

    def reflects_argument(self, call: ir.Call, callee: str, site: CallSite) -> bool:
        """``init_obj("optimizer", torch.optim, ...)``, which looks into the module it is given."""
        if not isinstance(call.func, ir.Call):
            return False
        if self.program.origin(call.func.func, callee) != "builtins.getattr":
            return False
        holder = call.func.argument(0, "object")
        if not isinstance(holder, ir.Name):
            return False
        given = self.program.argument_at(site, holder.id)
        return (
            given is not None
            and self.program.origin(given, site.caller) == "torch.optim"
        )

    def _external_kind(self, origin: str) -> str | None:
        last = origin.rsplit(".", 1)[-1]
        if origin.startswith("torch.optim."):
            if origin.startswith(("torch.optim.lr_scheduler", "torch.optim.swa_utils")):
                return None
            if last == "LBFGS":
                return CLOSURE
            return "plain" if last[:1].isupper() and last != "Optimizer" else None
        if last in _WRAPPERS:
            return WRAPPED
        if self.program.is_local(origin):
            return None
        return "plain" if _KNOWN_ELSEWHERE.match(last) else None

    def _own_kind(self, class_name: str) -> str | None:
        """Whether a class of the program is an optimizer, and one that a scaler can step."""
        program = self.program
        bases = program.external_bases(class_name)
        if not any(
            base.startswith("torch.optim.") and "lr_sched" not in base for base in bases
        ):
            return None
        if "torch.optim.LBFGS" in bases:
            return CLOSURE
        names = {
            name
            for c in program.bases(class_name)
            for name, _ in program.classes[c].methods
        }
        inner_steps = any(
            isinstance(call.func, ir.Attr) and call.func.attr == "step"
            for c in program.bases(class_name)
            for _, method in program.classes[c].methods
            for stmt in ir.statements(program.functions[method].body)
            for expr in stmt.exprs
            for call in ir.calls_in(expr)
            if not _is_super(call)
        )
        return (
            WRAPPED if inner_steps or {"first_step", "second_step"} & names else "plain"
        )

    def wraps(self, class_name: str) -> bool:
        """Whether a class of the program is an optimizer around another optimizer."""
        return self._own_kind(class_name) == WRAPPED

    def _from_table(self, item: ir.Item, function: str) -> str | None:
        if isinstance(item.value, ir.Attr) and item.value.attr == "__dict__":
            holder = self.program.origin(item.value.value, function)
            return "plain" if holder == "torch.optim" else None
        found = self._tables(item.value, function)
        if not all(isinstance(table, ir.Display) for _, table in found):
            return None
        kinds = {
            self._external_kind(self.program.origin(entry, at) or "?")
            for at, table in found
            if isinstance(table, ir.Display)
            for entry in table.items
        }
        if not kinds or None in kinds:
            return None
        return CLOSURE if CLOSURE in kinds else WRAPPED if WRAPPED in kinds else "plain"

    def _tables(self, expr: ir.Expr, function: str) -> list[tuple[str, ir.Expr | None]]:
        """(function, value) of all that a table of classes may be."""
        program = self.program
        if isinstance(expr, ir.Display):
            return [(function, expr)]
        definitions = []
        if isinstance(expr, ir.Name):
            owner = program.owner(expr.id, function)
            definitions = [] if owner is None else program.definitions(owner, expr.id)
        elif isinstance(expr, ir.Attr):
            for class_name in program.instance_classes(expr.value, function):
                definitions += program.attribute_definitions(class_name, expr.attr)
        return [(d.function, d.value) for d in definitions]

    def looks_like_one(self, expr: ir.Expr, function: str) -> bool:
        """Whether an unresolved receiver of ``step()`` must be taken for an optimizer."""
        made = {
            ref.name.lower()
            for ref in self.program.resolve(expr, function)
            if ref.kind == "made"
        }
        if any("sched" in name or "optim" not in name for name in made):
            return False
        key = ir.key_of(expr)
        if key is None or _SCHEDULER_KEY.search(key):
            return False
        return (ir.file_of(function), key) in self._zeroed or bool(
            _LOOKS_LIKE.search(re.sub(r"\[.*?\]", "", key))
        )

    @cached_property
    def _zeroed(self) -> frozenset[tuple[str, str]]:
        """(file, key) of objects with both a ``zero_grad()`` and a ``step()``."""
        found: dict[str, set[tuple[str, str]]] = {"zero_grad": set(), "step": set()}
        for function, _, call in self.program.all_calls():
            if isinstance(call.func, ir.Attr) and call.func.attr in found:
                key = ir.key_of(call.func.value) or "?"
                found[call.func.attr].add((ir.file_of(function), key))
        return frozenset(found["zero_grad"] & found["step"])


def _is_super(call: ir.Call) -> bool:
    func = call.func
    return (
        isinstance(func, ir.Attr)
        and isinstance(func.value, ir.Call)
        and isinstance(func.value.func, ir.Name)
        and func.value.func.id == "super"
    )
