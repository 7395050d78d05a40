"""Which calls make an optimizer, and which of those a scaler can step."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cached_property

from amp_migrate.analysis.objects.points_to import (
    COPIES,
    Context,
    Object,
    PointsTo,
)
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call, parts_of
from amp_migrate.program.link import Program

CLOSURE = "closure"
WRAPPED = "wrapped"
IN_ITS_OWN_WAY = "steps in its own way, which a scaler would not see"

_WRAPPERS = frozenset(
    "SAM ASAM GSAM Lookahead LARC DistributedOptimizer KFAC KFACOptimizer EKFAC NoamOpt ScheduledOptim"
    " FP16_Optimizer ZeroRedundancyOptimizer DiffOptimizer SWA Shampoo".split()
)
_LIBRARIES = ("torch.optim", "torch_optimizer")
INSTANTIATE = "hydra.utils.instantiate"
_KNOWN_ELSEWHERE = re.compile(
    r"(Adam\w*|SGD\w*|RMSprop\w*|Adagrad|Adadelta|RAdam|NAdam|Lamb|LAMB|LARS|Lars|Ranger\w*|AdaBound\w*"
    r"|AdaBelief|Adafactor|Muon\w*|Lion|Yogi|NovoGrad|DiffGrad|AdaMod|Apollo|Prodigy|Fused\w+|BertAdam"
    r"|AdaHessian)$"
)
_LOOKS_LIKE = re.compile(
    r"(?i)(^|_|\.)(optim\w*|optimi[sz]er\w*|opts?\d*|solver|trainer_[gd]|optm)(_\w+)?$"
)
_SCHEDULER_KEY = re.compile(r"(?i)\[['\"](\w*sched\w*|lr)['\"]\]$")

_SCHEDULER_NAME = re.compile(r"(?i)(^|[._])(lr_?)?sched(uler)?s?$")

_Class = tuple[ir.Expr, str, ir.Stmt | None, Context]
"""An expression that is called, its function, the statement that reads it, and the calls that led there."""


class Makers:
    """Recognises the constructions of a program's optimizers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.points_to = program.noted(PointsTo)
        self._kinds: dict[tuple[object, ...], str | None] = {}

    def construction(
        self, call: ir.Call, function: str, context: Context = ()
    ) -> str | None:
        """``plain``, `CLOSURE` or `WRAPPED` for a call that makes an optimizer, else None; ``context``:
        the calls that lead there."""
        stmt = self._read_at(call, function)
        asked = (function, call.func, tuple(map(id, context)), stmt and stmt.path)
        if asked not in self._kinds:
            origin = self.program.origin(call.func, function)
            if origin is None:
                self._kinds[asked] = self._kind_of_class(
                    call.func, function, stmt, context
                )
            else:
                known = origin if origin == INSTANTIATE else self._external_kind(origin)
                self._kinds[asked] = known
        kind = self._kinds[asked]
        return self._configured_kind(call) if kind == INSTANTIATE else kind

    def _read_at(self, call: ir.Call, function: str) -> ir.Stmt | None:
        """Where it matters which of its values a variable has that is called: ``opt = opt(params)``."""
        program = self.program
        if not isinstance(call.func, ir.Name):
            return None
        several = len(program.defined(call.func.id, function)) > 1
        return program.statement_of(call, function) if several else None

    def _configured_kind(self, call: ir.Call) -> str | None:
        """``instantiate(config.optimizer, model.parameters())``: any optimizer that the project's
        configuration files name, of which this is one."""
        layout, given = self.program.layout, parameters_of(call)
        if layout is None or given is None or not _are_parameters(call, given):
            return None
        named = (
            one
            for one in layout.configured
            if "optim" in one and "lr_scheduler" not in one
        )
        return _worst({self._external_kind(one) for one in named})

    def _kind_of_class(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None, context: Context
    ) -> str | None:
        """The same, for an expression that is called: the class of an optimizer."""
        pending: list[_Class] = [(expr, function, stmt, context)]
        seen: set[tuple[object, ...]] = set()
        kinds: set[str | None] = set()
        while pending:
            asked, there, at, calls = pending.pop()
            found = [
                one
                for one in self.points_to.of(
                    asked, there, at, calls, enough=self._is_other
                )
                if not _is_unknown(one)
            ]
            if not found or any(map(self._is_other, found)):
                options = self._among_options(asked, there)
                if options is None:
                    return None
                pending += options if (asked, there) not in seen else ()
                seen.add((asked, there))
                continue
            for one in found:
                inner = self._shortened(one)
                if inner is None:
                    kinds.add(self._kind_of(one))
                    continue
                # `make = partial(make, lr=1e-3)` leads back to itself.
                key = (id(inner[0]), inner[1], *map(id, inner[3]))
                if key not in seen:
                    seen.add(key)
                    pending.append(inner)
        return _worst(kinds)

    def _among_options(self, asked: ir.Expr, function: str) -> list[_Class] | None:
        """All that is given in sight under the name of a parameter with a default, where a call spreads out
        options among which it may be (``Trainer(model, **options)``), and that default.
        """
        program = self.program
        if isinstance(asked, ir.Attr):
            kept = program.definitions_of(asked, function)
            values: list[_Class] = [
                (made.value, made.function, made.stmt, ())
                for made in kept
                if made.value is not None
            ]
            return values if 0 < len(kept) == len(values) else None
        name = asked.id if isinstance(asked, ir.Name) else ""
        owner = program.owner(name, function)
        params = program.functions[owner].params if owner is not None else ()
        param = next((p for p in params if p.name == name), None)
        if owner is None or param is None or param.default is None:
            return None
        sites = program.call_sites.get(owner, [])
        stars = {arg.star for site in sites for arg in site.call.args}
        if "**" not in stars or "*" in stars or program.definitions(owner, name):
            return None
        keyed = self._under_key(name)
        if keyed is None:
            return None
        keyed += (
            (value, site.caller, site.stmt, ())
            for site in sites
            if (value := program.argument_at(site, name)) is not None
        )
        outer = program.functions[owner].parent or owner
        return [(param.default, outer, None, ()), *keyed]

    def _under_key(self, name: str) -> list[_Class] | None:
        """What a program gives under a name, as an option or an attribute; None where it says that name in
        another way."""
        program = self.program
        whole = re.compile(rf"\b{name}\b")
        paths = [word for word in program.words if word != name and whole.search(word)]
        if any(not _is_text_alone(stmt) for _, stmt in program.mentioning(*paths)):
            return None  # "trainer.optimizer_class"
        found: list[_Class] = [
            (made.value, made.function, made.stmt, ())
            for _, made in program.attribute_targets.get(name, ())
            if made.value is not None
        ]
        quoted = 0
        for function, stmt in program.mentioning(name):
            for inner in parts_of(stmt):
                quoted += inner == ir.Const(name)
                if isinstance(inner, ir.Display):
                    pairs = zip(inner.keys, inner.items, strict=False)
                    under = [value for key, value in pairs if key == ir.Const(name)]
                    found += ((value, function, stmt, ()) for value in under)
                    quoted -= len(under)
        if quoted:
            return None
        for function, stmt, call in program.all_calls():
            found += (
                (a.value, function, stmt, ()) for a in call.args if a.name == name
            )
        return found

    def _is_other(self, one: Object) -> bool:
        """Whether it makes no optimizer, whatever else may be called."""
        return (
            not _is_unknown(one)
            and self._shortened(one) is None
            and self._kind_of(one) is None
        )

    def _kind_of(self, one: Object) -> str | None:
        if one.kind == "external":
            if one.fields:
                return "plain" if one.name == "torch.optim.__dict__" else None
            return self._external_kind(one.name)
        if one.fields:
            return None
        if one.kind == "class":
            return self._own_kind(one.name)
        reflected = (
            one.kind == "value"
            and isinstance(one.expr, ir.Call)
            and self._is_reflection(one.expr, one)
        )
        return "plain" if reflected else None

    def _shortened(self, one: Object) -> _Class | None:
        """What is called by ``partial(Adam, lr=1e-3)`` or ``lambda params: Adam(params, lr=1e-3)``."""
        if one.kind != "value" or one.fields:
            return None
        if isinstance(one.expr, ir.Deferred):
            made, params = one.expr.body, one.expr.params
            if not isinstance(made, ir.Call) or not one.expr.plain:
                return None
            if not params or made.argument(0, "params") != ir.Name(params[0]):
                return None
            # Its variables are read when it is called.
            return made.func, one.function, None, one.context
        if not isinstance(one.expr, ir.Call):
            return None
        origin, args = self.program.origin(one.expr.func, one.function), one.expr.args
        if origin in COPIES and len(args) == 1 and not args[0].star:
            # A copy of a class is that class.
            return args[0].value, one.function, one.stmt, one.context
        if origin != "functools.partial":
            return None
        if any(arg.name in (None, "params") for arg in args[1:]):
            return None
        if not args or args[0].name or args[0].star:
            return None
        return args[0].value, one.function, one.stmt, one.context

    def _is_reflection(self, call: ir.Call, one: Object) -> bool:
        """``getattr(torch.optim, name)``, also of a parameter that is given the library."""
        if self.program.origin(call.func, one.function) != "builtins.getattr":
            return False
        holder = call.argument(0, "object")
        if holder is None:
            return False
        found = self.points_to.of(holder, one.function, one.stmt, one.context)
        return bool(found) and all(
            (o.kind, o.fields) == ("external", ())
            and (o.name in _LIBRARIES or self._has_optimizers_alone(o))
            for o in found
        )

    def _has_optimizers_alone(self, one: Object) -> bool:
        """Whether it is a file of the program that has nothing but optimizers a scaler can step."""
        program = self.program
        if isinstance(one.expr, ir.Name):
            found = program.targets(one.expr.id, one.function)
            files = [file for file, inner in found if inner is None]
        else:
            files = [*program.file_named(one.name.lstrip("."), one.function)]
        return bool(files) and all(self._are_optimizers(file, ()) for file in files)

    def _are_optimizers(self, file: str, around: tuple[str, ...]) -> bool:
        """The same of all that a file defines, or takes over from others as it is."""
        facts = self.program.modules[file]
        made = [s for s in facts.top.body if s.kind in ("classdef", "functiondef")]
        taken = [
            module for module in facts.star_imports if not module.startswith(_LIBRARIES)
        ]
        files = [
            self.program.file_named(module, facts.top.qualname) for module in taken
        ]
        return (
            bool(made or facts.star_imports)
            and file not in around
            and all(
                stmt.kind == "classdef" and self._own_kind(stmt.names[1]) == "plain"
                for stmt in made
            )
            and all(
                there and all(self._are_optimizers(f, (*around, file)) for f in there)
                for there in files
            )
        )

    def words(self) -> set[str]:
        """What `is_source` is true of says one of these, other names of imports aside."""
        found = {"optim", "instantiate", "initialize"}
        for facts in self.program.modules.values():
            found |= {
                local
                for function in facts.functions.values()
                for local, target in function.imports
                if target.startswith(_LIBRARIES) or self._external_kind(target)
            }
            if any(name.startswith(_LIBRARIES) for name in facts.star_imports):
                found |= {name for name in facts.identifiers if name[:1].isupper()}
        said = frozenset().union(
            *(f.identifiers for f in self.program.modules.values())
        )
        return found | {w for w in said if w in _WRAPPERS or _KNOWN_ELSEWHERE.match(w)}

    def is_source(self, expr: ir.Expr, function: str) -> bool:
        """Whether an imported name may make an optimizer, or holds what does, or wraps one."""
        origin = self.program.origin(expr, function)
        if origin is None:
            return isinstance(expr, ir.Attr) and (
                expr == ir.Attr(ir.Name("amp"), "initialize")
            )
        return (
            origin in (*_LIBRARIES, "torch.optim.__dict__", INSTANTIATE)
            or origin.startswith(("apex.amp", "amp."))
            or self._external_kind(origin) is not None
        )

    def classes(self) -> list[str]:
        """The classes of the program that are optimizers."""
        return [*filter(self.is_class_of_one, self.program.classes)]

    def is_class_of_one(self, class_name: str) -> bool:
        """Whether a class of the program is that of an optimizer, whatever that takes to step it."""
        return self._own_kind(class_name) is not None

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
        bases = program.external_bases(class_name) | self._chosen_bases(class_name)
        if not derives_from_optimizer(bases):
            return None
        if "torch.optim.LBFGS" in bases:
            return CLOSURE
        names = {
            name
            for c in program.bases(class_name)
            for name, _ in program.classes[c].methods
        }
        stepped = {
            call.func.value
            for c in program.bases(class_name)
            for _, method in program.classes[c].methods
            for _, call in each_call(program.functions[method].body)
            if isinstance(call.func, ir.Attr) and call.func.attr == "step"
            if not _is_super(call) and not _is_of_scheduler(call)
        }
        inner_steps = stepped and not self._shares_groups(class_name, stepped)
        return (
            WRAPPED if inner_steps or {"first_step", "second_step"} & names else "plain"
        )

    def _shares_groups(self, class_name: str, stepped: Collection[ir.Expr]) -> bool:
        """Whether an optimizer holds from the start what the one holds that it steps, and computes no
        gradients itself: what is unscaled of the one is of both (Lookahead)."""
        program = self.program
        given = program.attribute_definitions(class_name, "param_groups")
        groups = [
            d.value for d in given if program.functions[d.function].name == "__init__"
        ]
        match [*stepped]:
            case [ir.Attr(value=ir.Name(), attr=attr) as inner]:
                held = program.attribute_definitions(class_name, attr)
                holders = {inner, *(d.value for d in held if d.value is not None)}
            case _:
                return False
        computes = any(
            (isinstance(call.func, ir.Name) and program.is_param(method, call.func.id))
            or ir.last_of(call.func) in ("backward", "grad")
            or (
                isinstance(call.func, ir.Attr)
                and call.func.value == inner.value
                and program.method(class_name, call.func.attr) is None
                and not program.origin(call.func, method)
            )
            for c in program.bases(class_name)
            for _, method in program.classes[c].methods
            for _, call in each_call(program.functions[method].body)
        )
        shared = [ir.Attr(holder, "param_groups") for holder in holders]
        return not computes and bool(groups) and all(one in shared for one in groups)

    def _chosen_bases(self, class_name: str) -> set[str]:
        """The classes of libraries that a variable holds which a class derives from."""
        facts = self.program.classes[class_name]
        return {
            one.name
            for base in facts.bases
            if isinstance(base, ir.Name)
            and self.program.origin(base, facts.parent) is None
            # Most are classes, of which there are thousands, and no variables.
            and any(
                one.stmt.kind != "classdef"
                for one in self.program.definitions_of(base, facts.parent)
            )
            for one in self.points_to.of(base, facts.parent)
            if one.kind == "external" and not one.fields
        }

    def wraps(self, class_name: str) -> bool:
        """Whether a class of the program is an optimizer around another optimizer."""
        return self._own_kind(class_name) == WRAPPED

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
        if key is None or _SCHEDULER_KEY.search(key) or self._is_dict(expr, function):
            return False
        return (ir.file_of(function), key) in self._zeroed or bool(
            _LOOKS_LIKE.search(re.sub(r"\[.*?\]", "", key))
        )

    def _is_dict(self, expr: ir.Expr, function: str) -> bool:
        """Whether a variable is given nothing but dicts that are written out: ``opts = {"title": name}``."""
        given = self.program.set_to(expr, function)
        return bool(given) and all(
            one.index is None
            and (
                (isinstance(one.value, ir.Display) and one.value.kind == "dict")
                or (
                    isinstance(one.value, ir.Call)
                    and self.program.origin(one.value.func, one.function)
                    == "builtins.dict"
                )
            )
            for one in given
        )

    def is_one(self, expr: ir.Expr, function: str) -> bool:
        """The same, also of what is called otherwise and is made in sight."""
        return self.looks_like_one(expr, function) or any(
            isinstance(one.expr, ir.Call)
            and not one.fields
            and self.construction(one.expr, one.function, one.context) is not None
            for one in self.points_to.of(expr, function)
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


def parameters_of(call: ir.Call) -> ir.Expr | None:
    """The parameters that a call which makes an optimizer is given."""
    name = (ir.render(call.func) or "").rpartition(".")[2]
    return call.argument(int(name == "instantiate"), "params")


def _is_text_alone(stmt: ir.Stmt) -> bool:
    """Whether it is a text that nothing reads: a docstring."""
    return stmt.kind == "expr" and isinstance(stmt.value, ir.Const)


def _are_parameters(call: ir.Call, given: ir.Expr) -> bool:
    return any(arg.name == "params" for arg in call.args) or any(
        isinstance(inner, ir.Attr) and inner.attr == "parameters"
        for inner in ir.walk(given)
    )


def _is_unknown(one: Object) -> bool:
    """Whether callers out of sight decide what it is; or it is nothing that anybody calls."""
    return one.kind == "open" or one.is_none or is_of_text(one)


def is_of_text(one: Object) -> bool:
    """Whether it is an option of the command line, or part of one, of a number or of a text."""
    match one.expr:
        case ir.Call(func=ir.Attr(attr="parse_args"), args=()):
            return [kind for kind, _ in one.fields[:1]] == ["attribute"]
        case ir.Const():
            return bool(one.fields)
    return one.name == "sys.argv" and bool(one.fields)


def derives_from_optimizer(bases: Iterable[str]) -> bool:
    """Whether a class with some bases of libraries is an optimizer: a scheduler is none."""
    return any(
        base.startswith("torch.optim.") and "lr_sched" not in base for base in bases
    )


def _worst(kinds: set[str | None]) -> str | None:
    """What all of several classes are: none where one is not known to be an optimizer's."""
    if not kinds or None in kinds:
        return None
    return next((kind for kind in (CLOSURE, WRAPPED) if kind in kinds), "plain")


def _is_of_scheduler(call: ir.Call) -> bool:
    """``self.scheduler.step()``: who steps that steps no optimizer."""
    name = ir.key_of(call.func.value) if isinstance(call.func, ir.Attr) else None
    return name is not None and bool(_SCHEDULER_NAME.search(name))


def _is_super(call: ir.Call) -> bool:
    func = call.func
    return (
        isinstance(func, ir.Attr)
        and isinstance(func.value, ir.Call)
        and isinstance(func.value.func, ir.Name)
        and func.value.func.id == "super"
    )
