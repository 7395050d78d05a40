"""Which calls compute a forward pass, and what each statement reads and writes."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from amp_migrate.analysis.objects.contents import Contents
from amp_migrate.analysis.objects.modules import is_saved
from amp_migrate.analysis.tables import dtype_table, vocabulary
from amp_migrate.core.closure import reached
from amp_migrate.core.fixpoint import Fixpoint
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_part, parts_of, unpacked
from amp_migrate.program.link import Program, Ref

ANY, MODULES, MODELS = range(3)
"""What counts as forward: modules, losses and functionals; modules and losses; modules that are no
loss, and products of matrices."""

_PRODUCTS = frozenset(
    f"torch.{name}" for name in "mm bmm matmul addmm baddbmm einsum mv addbmm".split()
)
_MAKES_DATA = re.compile(
    r"(?i)(batch|load|sampl|transform|collat|token|dataset|(?<!cr)iter|read|fetch|(?<!geo)metric|accuracy|print|log$"
    r"|timer|meter|generator|env|partial|setter)"
)
_ADDS = frozenset("append extend insert update setdefault add".split())
_ABOUT = re.compile(r"(?i)(num|n|nr|dim|lr|use|is|has)_")
"""What begins the name of a number, or a choice, that a model is made with: ``num_in_critic``."""
_RESULT = re.compile(r"(?i)_(outs?|outputs?|preds?|predictions?|logits|results?)$")
"""Names of what a module gives: ``model_out``."""
_TELLS = re.compile(
    r"(?i)_(names?|paths?|dirs?|files?|filename|types?|ids?|cfg|config|args|opts?|kwargs|options?|sizes?|dims?"
    r"|num_\w+)$"
)
"""Names of what tells of a module: ``model_name``, ``encoder_num_hidden``."""
_PREPARES = tuple("load make build create get init save print plot adjust".split())
_KEEPS_BOOKS = tuple("set_ save load print reset update_ register_ get_optim".split())
"""Beginnings of the names of functions, and of methods, that compute no forward."""
_NO_MODULES = tuple("torch. torchvision. numpy.".split())
LEAVES_TORCH = ("numpy", "item", "tolist")
DETACHES = (*LEAVES_TORCH, "detach")
_CHANGE_NOTHING = frozenset("write flush close train eval".split())
"""Methods of files, and those that tell a module whether it is trained."""
_MAKES_DATA_TENSOR = ("torch.tensor", "torch.from_numpy")
_PLACES = ("argmax", "argmin", "argsort", "multinomial")
"""What gives integers, which have no gradient."""
_MAKES_TENSOR = re.compile(
    r"torch\.nn\.(functional|utils|init)\.|torch\.nn\.(parameter\.)?(Parameter|Buffer)$"
)
_OFF = ("no_grad", "inference_mode")


def _is_of_python(name: str) -> bool:
    """Whether something is of the standard library: ``importlib.import_module`` computes nothing."""
    return name.partition(".")[0] in sys.stdlib_module_names


class Forward:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.contents = program.noted(Contents)
        self._runs: dict[tuple[str, int], bool] = {}
        self._forward: dict[tuple[str, ir.Call, int], bool] = {}
        self._effects: Fixpoint[tuple[str, str], frozenset[tuple[str, str]]] = Fixpoint(
            self._find_effects,
            frozenset(),
            lambda found: frozenset().union(*found),
            lasting=True,
        )
        self._together: dict[str, list[set[str]]] = {}
        self._arrays: dict[str, bool] = {}
        self.module_keys = frozenset(self._find_module_keys())

    def _find_module_keys(self) -> Iterator[str]:
        """Keys of objects that are treated as modules somewhere: ``x.parameters()``, ``x.eval()``, or are
        moved to a device and called."""
        for _, _, call in self.program.all_calls():
            func = call.func
            if isinstance(func, ir.Attr) and func.attr in (
                "parameters",
                "named_parameters",
                "eval",
                "train",
                "zero_grad",
            ):
                key = ir.key_of(func.value)
                if key is not None:
                    yield key.rsplit(".", 1)[-1]
        for method in ("to", "cuda"):
            for _, stmt, call in self.program.calls_named(method):
                for target in stmt.targets if stmt.value is call else ():
                    key = ir.last_of(target)
                    if key is not None and any(
                        called.func == target
                        for _, _, called in self.program.calls_named(key)
                    ):
                        yield key

    # -- forward calls ------------------------------------------------------------------------

    def in_statement(self, stmt: ir.Stmt, function: str, level: int = ANY) -> bool:
        """Whether a statement, blocks included, computes a forward pass."""
        return any(
            self.is_forward(call, function, level)
            for inner in ir.statements((stmt,))
            if inner.kind not in ("functiondef", "classdef")
            for call in calls_of(inner)
        ) or any(
            isinstance(inner, ir.Operation) and inner.op == "@"
            for _, inner in each_part((stmt,))
        )

    def gives_gradients(
        self, stmt: ir.Stmt, function: str, cuts: Collection[str] = LEAVES_TORCH
    ) -> bool:
        """Whether what a plain statement computes is more to it than numbers."""
        return any(
            (
                self.is_forward(inner, function)
                if isinstance(inner, ir.Call)
                else isinstance(inner, ir.Operation) and inner.op == "@"
            )
            for expr in stmt.exprs
            for inner in self._with_gradients(expr, function, cuts)
        )

    def _with_gradients(
        self, expr: ir.Expr, function: str, cuts: Collection[str]
    ) -> Iterator[ir.Expr]:
        """The parts of an expression from which gradients may pass on to the whole: not by methods that
        are ``cuts``."""
        if isinstance(expr, ir.Call):
            if ir.method_of(expr) in cuts:
                return
            callees = self.program.callees(expr, function)
            if callees and all(map(self._gives_arrays, callees)):
                return
        yield expr
        bound = expr.targets if isinstance(expr, ir.Comprehension) else ()
        for child in ir.children(expr):
            if not any(child is target for target in bound):
                yield from self._with_gradients(child, function, cuts)

    def _gives_arrays(self, qualname: str) -> bool:
        """Whether all that a function does is to return what has left torch, or integers: an action, say."""
        if qualname not in self._arrays:
            self._arrays[qualname] = False
            body = self.program.functions[qualname].body
            returns = [stmt for stmt in ir.statements(body) if stmt.kind == "return"]
            returned = [self._returned_by(stmt, qualname) for stmt in returns]
            self._arrays[qualname] = (
                bool(returned)
                and all(v is not None and self._is_array(v, qualname) for v in returned)
                and self._keeps_nothing(qualname, frozenset())
            )
        return self._arrays[qualname]

    def _returned_by(self, stmt: ir.Stmt, function: str) -> ir.Expr | None:
        """What a ``return`` gives, of a variable the value that its block has given it above."""
        value = stmt.value
        if isinstance(value, ir.Name) and any(self._put_into(value, function)):
            return value
        for earlier in self.program.control(function).block(stmt.path):
            if earlier.path >= stmt.path:
                break
            if earlier.targets == (stmt.value,):
                value = earlier.value if earlier.kind == "assign" else stmt.value
            elif earlier.blocks:
                value = stmt.value
        return value

    def _is_array(
        self,
        expr: ir.Expr,
        function: str,
        around: frozenset[tuple[str, ir.Expr]] = frozenset(),
    ) -> bool:
        """``around``: what is being looked at, variables and attributes, each with the function that
        mentions it."""
        program = self.program

        def are(parts: Iterable[ir.Expr]) -> bool:
            return all(self._is_array(part, function, around) for part in parts)

        match expr:
            case ir.Const():
                return True
            case ir.Call(func=ir.Attr(attr=attr)) if attr in (*LEAVES_TORCH, *_PLACES):
                return True
            case ir.Call(func=func):
                origin = program.origin(func, function)
                if origin in _MAKES_DATA_TENSOR:
                    return all(arg.name != "requires_grad" for arg in expr.args)
                if origin is not None:
                    return origin.startswith("numpy.") or (
                        dtype_table.NUMBERS.fullmatch(origin) is not None
                    )
                callees = program.callees(expr, function)
                if callees:
                    return all(map(self._gives_arrays, callees))
                return isinstance(func, ir.Attr) and are((func.value,))
            case ir.Item(
                value=value, key=ir.Const(value=1 | -1)
            ) if dtype_table.tells_places(value, 1):
                return True
            case ir.Item(value=value):
                return are((value,))
            case ir.Display() if any(
                where != function or isinstance(one, ir.Attr) for where, one in around
            ):
                return False  # something may be added to it elsewhere
            case ir.Display(items=items) | ir.Operation(operands=items):
                return are(items)
            case ir.Name() | ir.Attr(value=ir.Name()) if (function, expr) in around:
                return True
            case ir.Name() | ir.Attr(value=ir.Name()):
                around |= {(function, expr)}
                given = list(self._given_to(expr, function))
                return bool(given) and all(
                    value is not None
                    and (
                        dtype_table.tells_places(value, index)
                        or self._is_array(value, where, around)
                    )
                    for value, index, where in given
                )
        return False

    def _given_to(
        self, expr: ir.Name | ir.Attr, function: str
    ) -> Iterator[tuple[ir.Expr | None, int | None, str]]:
        """The values of a variable or an attribute, None for what is none of its own, each with its place in
        what is unpacked and the function in which it stands."""
        program = self.program
        for made in program.definitions_of(expr, function):
            value = made.value if made.stmt.kind == "assign" else None
            yield value, made.index, made.function
        if isinstance(expr, ir.Name):
            yield from ((put, None, function) for put in self._put_into(expr, function))
            owner = program.owner(expr.id, function) or function
            for param in program.functions[owner].params:
                if param.name == expr.id:
                    for site in program.call_sites.get(owner, []):
                        value = program.argument_at(site, expr.id)
                        if value is None and not any(a.star for a in site.call.args):
                            value = param.default
                        yield value, None, site.caller

    def _put_into(self, holder: ir.Name, function: str) -> Iterator[ir.Expr]:
        """What a function adds to a collection of its own."""
        for stmt in self.program.statements(function):
            for target, value, _ in unpacked(stmt):
                while isinstance(target, ir.Item):
                    target = target.value
                    put = value or stmt.value
                    if target == holder and put is not None:
                        yield put
            for call in calls_of(stmt):
                match call.func:
                    case ir.Attr(value=added_to, attr=attr) if attr in _ADDS:
                        if added_to == holder:
                            yield from (arg.value for arg in call.args)

    def _keeps_nothing(self, qualname: str, around: frozenset[str]) -> bool:
        """Whether a function, with all that it calls, leaves all that is not its own as it was, but for what
        it does without gradients."""
        if qualname in around:
            return True
        if any(map(names_no_grad, self.program.functions[qualname].decorators)):
            return True
        own = self.program.self_class(qualname)
        params = {param.name for param in self.program.functions[qualname].params}
        control = self.program.control(qualname)
        for stmt in self.program.statements(qualname):
            if any(
                outer.kind == "with" and any(map(names_no_grad, outer.exprs))
                for outer in control.around(stmt.path)
            ):
                continue
            bound = self.kills(stmt, qualname)
            # What stands in a block is looked at by itself.
            for variable in self.writes(replace(stmt, blocks=()), qualname):
                if own is not None and variable.startswith(f"{own[0]}."):
                    return False
                if variable in params - bound or (
                    self.program.owner(variable, qualname) != qualname
                ):
                    return False
            for call in calls_of(stmt):
                for callee in self.program.callees(call, qualname):
                    if not self._keeps_nothing(callee, around | {qualname}):
                        return False
        return True

    def in_expression(self, expr: ir.Expr, function: str, level: int = ANY) -> bool:
        """Whether an expression computes a forward pass."""
        return any(self.is_forward(call, function, level) for call in ir.calls_in(expr))

    def is_forward(self, call: ir.Call, function: str, level: int = ANY) -> bool:
        """Whether a call reaches what the level asks for."""
        key = (function, call, level)
        if key not in self._forward:
            self._forward[key] = False
            self._forward[key] = self._is_forward(call, function, level)
        return self._forward[key]

    def _is_forward(self, call: ir.Call, function: str, level: int) -> bool:
        program = self.program
        origin = program.origin(call.func, function)
        if origin in vocabulary.RUNS_FIRST and call.args:
            return self.is_forward(
                ir.Call(call.args[0].value, call.args[1:]), function, level
            )
        if origin is not None:
            if origin in _PRODUCTS:
                return level != MODULES
            return level == ANY and self._is_functional(origin, call)
        if isinstance(call.func, ir.Call) and call.func.args:
            made_by = program.origin(call.func.func, function)
            if made_by in vocabulary.CALLED_AT_ONCE:
                first, *_ = call.func.args
                return self.is_forward(ir.Call(first.value, call.args), function, level)
        refs = program.resolve(call.func, function)
        read = Ref("made", "torch.load")
        if read in refs and is_saved(program, call.func, function):
            # What is read is what was written.
            refs -= {read}
        func = self.contents.item_of(call.func, function) or call.func
        is_loss = level == MODELS and _names_loss(ir.key_of(func))
        if refs and not (is_loss and all(ref.kind == "made" for ref in refs)):
            return any(self._called_ref_is_forward(ref, level) for ref in refs)
        if is_loss:
            # A loss that is given a module, or is a module's own, runs it.
            given = [arg.value for arg in call.args]
            if isinstance(func, ir.Attr):
                given.append(func.value)
            return any(
                self.is_module(value, function)
                for value in given
                if not _names_loss(ir.key_of(value))
            )
        if isinstance(func, ir.Attr):
            if isinstance(func.value, ir.Call) and func.value.func == ir.Name("super"):
                return func.attr == "forward"
            if func.attr in ("mm", "bmm", "matmul", "addmm", "einsum"):
                return level != MODULES
            return self._method_is_forward(func, function)
        if isinstance(func, ir.Name):
            return self._variable_is_forward(func, function, level)
        if isinstance(func, ir.Item) and _is_namespace(func.value):
            # models.__dict__[name](): a class or a function, and no module.
            key = ir.key_of(func.value) or ""
            return level == ANY and not _MAKES_DATA.search(key)
        # self.layers[0](x), (model if a else b)(x): what is called is no plain function.
        return isinstance(func, (ir.Item, ir.Operation, ir.Call))

    def _variable_is_forward(self, func: ir.Name, function: str, level: int) -> bool:
        """A variable that is called: a lambda is looked into, anything else taken for a module."""
        owner = self.program.owner(func.id, function)
        if owner is None:
            # `sum(net(x) for net in nets)`
            known = func.id in self.module_keys or any(
                func in inner.targets
                and any(self.is_module(one, function) for one in inner.iterables)
                for stmt in self.program.statements(function)
                for inner in parts_of(stmt)
                if isinstance(inner, ir.Comprehension)
            )
            return known or bool(vocabulary.MODEL_LIKE.search(func.id))
        definitions = self.program.definitions(owner, func.id)
        lambdas = [d.value for d in definitions if isinstance(d.value, ir.Deferred)]
        if lambdas and len(lambdas) == len(definitions):
            return any(self.in_expression(one.body, owner, level) for one in lambdas)
        given = () if definitions else self.program.arguments(owner, func.id)
        if given and all(self._only_makes(one, caller) for caller, one in given):
            return False
        return not _MAKES_DATA.search(func.id)

    def _only_makes(self, expr: ir.Expr, function: str) -> bool:
        """Whether what a parameter is given runs no module: ``lambda: Net(width)``, or a class."""
        if isinstance(expr, ir.Deferred):
            return not self.in_expression(expr.body, function)
        owner = (
            self.program.owner(expr.id, function) if isinstance(expr, ir.Name) else None
        )
        if isinstance(expr, ir.Name) and owner is not None:
            made = self.program.definitions(owner, expr.id)
            if made and all(isinstance(one.value, ir.Deferred) for one in made):
                return not self._variable_is_forward(expr, function, ANY)
        refs = self.program.resolve(expr, function)
        return bool(refs) and all(ref.kind == "class" for ref in refs)

    def _called_ref_is_forward(self, ref: Ref, level: int) -> bool:
        if ref.kind == "function":
            return self.function_runs(ref.name, level)
        if ref.kind == "instance":
            if level == MODELS and _names_loss(ref.name):
                return False
            return self.is_module_class(ref.name)
        if ref.kind == "made":
            if level == MODELS and _names_loss(ref.name):
                return False
            # Whatever is made and then called is a module, unless its name says data.
            own_kind = ref.name.startswith(_NO_MODULES) or _is_of_python(ref.name)
            return _makes_module(ref.name) or not (
                own_kind or _MAKES_DATA.search(ref.name)
            )
        return False

    def _is_functional(self, origin: str, call: ir.Call) -> bool:
        if origin.startswith("torch.nn.functional."):
            return origin.rsplit(".", 1)[-1] not in ("one_hot", "pad", "interpolate")
        if origin.startswith(("torch.", "numpy.")) or _is_of_python(origin):
            return False
        last = origin.rsplit(".", 1)[-1]
        if last[:1].isupper():
            return False
        if vocabulary.MODEL_LIKE.search(last) and not last.startswith(_PREPARES):
            return True
        # Somebody else's helper that is handed the model runs it.
        return "loss" in last and any(
            vocabulary.MODEL_LIKE.search(ir.key_of(arg.value) or "")
            for arg in call.args
        )

    def _ref_is_forward(self, ref: Ref) -> bool:
        if ref.kind == "function":
            return self.function_runs(ref.name)
        if ref.kind == "instance":
            # What runs a module when it is called, a teacher, say, is as good as one.
            called = self.program.method(ref.name, "__call__")
            return self.is_module_class(ref.name) or (
                called is not None and self.function_runs(called, MODULES)
            )
        if ref.kind == "made":
            return _makes_module(ref.name) or ref.name in self._makers_of_modules
        return False

    @cached_property
    def _makers_of_modules(self) -> frozenset[str]:
        """What makes, out of sight, that which is asked for its ``parameters()``."""
        return frozenset(
            ref.name
            for function, _, call in self.program.calls_named("parameters")
            if isinstance(call.func, ir.Attr)
            for ref in self.program.resolve(call.func.value, function)
            if ref.kind == "made"
            and not ref.name.startswith(_NO_MODULES)
            and not _is_of_python(ref.name)
        )

    def is_module_class(self, class_name: str) -> bool:
        """Whether a class of the program is a module, or may be one through an unseen base."""
        bases = self.program.external_bases(class_name)
        return any(
            base == "?"
            or base.startswith("torch.nn.")
            or "Module" in base
            or "Model" in base
            for base in bases
        ) or any(self.program.is_local(base) for base in bases if base != "?")

    def is_in_module(self, function: str) -> bool:
        """Whether a function is a method of such a class."""
        own = self.program.self_class(function)
        return own is not None and self.is_module_class(own[1])

    def function_runs(self, qualname: str, level: int = ANY) -> bool:
        """Whether a function of the program computes a forward pass, calls included."""
        key = (qualname, level)
        if key not in self._runs:
            self._runs[key] = False
            found = self.program.functions[qualname]
            owner = found.class_name
            if (
                found.name == "forward"
                and owner is not None
                and self.is_module_class(owner)
            ):
                self._runs[key] = level != MODELS or not _names_loss(owner)
            elif found.name != "__init__":
                self._runs[key] = any(
                    self.in_statement(stmt, qualname, level) for stmt in found.body
                )
        return self._runs[key]

    def _method_is_forward(self, func: ir.Attr, function: str) -> bool:
        method = func.attr
        if method in vocabulary.TENSOR_BOOKKEEPING:
            return False
        if method.endswith("_") and not method.startswith("_"):
            return False
        owned = self.program.instance_classes(func.value, function)
        if any(self.program.attribute_definitions(c, method) for c in owned):
            # self.model(x): an attribute that is called, not a method.
            return self.is_module(func, function)
        if self.program.class_of_self(func.value, function) is not None:
            return method in ("forward", "__call__") or self.is_module(func, function)
        if self.is_module(func.value, function):
            return (
                method not in vocabulary.MODULE_BOOKKEEPING
                and not method.startswith(_KEEPS_BOOKS)
            )
        return self.is_module(func, function)

    def is_module(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression must be taken for a module (or a loss)."""
        refs = self.program.resolve(expr, function)
        if refs:
            return any(self._ref_is_forward(ref) for ref in refs)
        key = ir.key_of(expr)
        if key is None or self._is_computed(expr, function):
            return False
        last = re.sub(r"(\[[^\]]*\])+$", "", key).rsplit(".", 1)[-1]
        if last in self.module_keys:
            return True
        if _RESULT.search(last) or _TELLS.search(last) or _ABOUT.match(last):
            return False
        return bool(vocabulary.MODEL_LIKE.search(last))

    def _is_computed(self, expr: ir.Expr, function: str) -> bool:
        """Whether a variable is a loss that is computed here, whatever its name says besides: also
        the ``loss`` of what a model returns."""
        of_result = isinstance(expr, ir.Attr)
        if not _names_loss(expr.attr if isinstance(expr, ir.Attr) else ir.key_of(expr)):
            return False
        holder = expr.value if isinstance(expr, ir.Attr) else expr
        if not isinstance(holder, ir.Name):
            return False
        found = self.program.defined(holder.id, function)
        return bool(found) and all(
            (
                isinstance(d.value, ir.Call) and self.is_forward(d.value, d.function)
                if of_result
                else isinstance(d.value, ir.Operation)
                or (
                    (isinstance(d.value, ir.Call) and isinstance(d.value.func, ir.Attr))
                    and d.value.func.attr in ("mean", "sum")
                )
                or (
                    isinstance(d.value, ir.Call) and self._is_given(d.value, d.function)
                )
            )
            or (
                isinstance(d.value, ir.Call) and self._is_made(d.value.func, d.function)
            )
            for d in found
        )

    def _is_given(self, call: ir.Call, function: str) -> bool:
        """Whether a call is of a function of the program that runs a model, and trains none: it gives what
        that computes."""
        refs = self.program.resolve(call.func, function)
        return bool(refs) and all(
            ref.kind == "function"
            and ref.name not in self._training
            and self.function_runs(ref.name, MODELS)
            for ref in refs
        )

    @cached_property
    def _training(self) -> Collection[str]:
        """The functions that go backward, and those that call them."""
        program = self.program
        return reached(
            (function for function, _, _ in program.calls_named("backward")),
            lambda one: (site.caller for site in program.call_sites.get(one, ())),
        )

    def _is_made(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression is seen to be a module, whose call computes something."""
        refs = self.program.resolve(expr, function)
        return bool(refs) and all(
            ref.kind in ("made", "instance") and self._ref_is_forward(ref)
            for ref in refs
        )

    # -- reads and writes ---------------------------------------------------------------------

    def variable(self, expr: ir.Expr, function: str) -> str | None:
        """The variable that an expression lives in: ``x`` for ``x.y[0]``, but ``self.x`` by itself."""
        own = self.program.self_class(function)
        while isinstance(expr, (ir.Attr, ir.Item)):
            if (
                isinstance(expr, ir.Attr)
                and own is not None
                and expr.value == ir.Name(own[0])
            ):
                return f"{own[0]}.{expr.attr}"
            expr = expr.value
        return expr.id if isinstance(expr, ir.Name) else None

    def reads_of(
        self, expr: ir.Expr, function: str, cuts: Collection[str] = ()
    ) -> set[str]:
        """Variables that an expression mentions; with ``cuts``, not those of which these methods take no
        gradients along."""
        found = set()
        passed = self._with_gradients(expr, function, cuts) if cuts else ir.walk(expr)
        for inner in passed:
            if isinstance(inner, (ir.Name, ir.Attr)):
                variable = self.variable(inner, function)
                if variable is not None:
                    found.add(variable)
        own = self.program.self_class(function)
        if own is not None:
            found.discard(own[0])
        return found

    def reads(
        self, stmt: ir.Stmt, function: str, cuts: Collection[str] = ()
    ) -> set[str]:
        """Variables that a statement mentions, blocks included, those aside that a loop binds."""
        return {
            variable
            for inner in ir.statements((stmt,))
            for expr in inner.exprs
            if inner.kind != "for" or not _only_names(expr) or expr is inner.value
            for variable in self.reads_of(expr, function, cuts)
        }

    def uses(
        self, stmt: ir.Stmt, function: str, cuts: Collection[str] = ()
    ) -> set[str]:
        """Variables that a statement mentions, but for those that it only gives a value."""
        reads = self.reads(stmt, function, cuts)
        kills = self.kills(stmt, function)
        if not kills or stmt.value is None:
            return reads
        return (reads - kills) | self.reads_of(stmt.value, function, cuts)

    def kills(self, stmt: ir.Stmt, function: str) -> set[str]:
        """Variables that a statement gives a wholly new value."""
        if stmt.kind not in ("assign", "annassign"):
            return set()
        own = self.program.self_class(function)
        return {
            variable
            for target, _, _ in unpacked(stmt)
            if isinstance(target, ir.Name)
            or (
                isinstance(target, ir.Attr)
                and own is not None
                and target.value == ir.Name(own[0])
            )
            if (variable := self.variable(target, function)) is not None
        }

    def writes(self, stmt: ir.Stmt, function: str) -> set[str]:
        """Variables that a statement, blocks included, may change, by whatever name."""
        found: set[str] = set()
        for inner in ir.statements((stmt,)):
            found |= self.kills(inner, function)
            changed = self._changed(inner, function)
            found |= changed
            for names in self._aliases(function) if changed else ():
                if not names.isdisjoint(changed):
                    found |= names
        return found

    def _changed(self, stmt: ir.Stmt, function: str) -> set[str]:
        """Variables whose content a statement's own line may change."""
        changed = {self.variable(target, function) for target, _, _ in unpacked(stmt)}
        changed -= self.kills(stmt, function)
        if stmt.kind == "expr" and isinstance(stmt.value, ir.Call):
            # x.append(loss), x.update(...): a call for its effect may change its receiver.
            func = stmt.value.func
            if (
                isinstance(func, ir.Attr)
                and func.attr not in _CHANGE_NOTHING
                and self.program.origin(func, function) is None
            ):
                changed.add(self.variable(func.value, function))
        found = {variable for variable in changed if variable is not None}
        for call in calls_of(stmt):
            found |= self._through(call, function, _CHANGES)
        return found

    def _aliases(self, function: str) -> list[set[str]]:
        """The variables of a function that may be names for one object: ``kept = losses``."""
        if function not in self._together:
            groups: list[set[str]] = []
            for stmt in self.program.statements(function):
                for target, value, _ in unpacked(stmt):
                    whole = stmt.value if stmt.kind == "for" else value
                    if isinstance(whole, (ir.Name, ir.Attr, ir.Item)):
                        names = {
                            name
                            for one in (target, whole)
                            if (name := self.variable(one, function)) is not None
                        }
                        names.update(*(g for g in groups if not g.isdisjoint(names)))
                        groups = [g for g in groups if g.isdisjoint(names)]
                        groups.append(names)
            self._together[function] = groups
        return self._together[function]

    def reads_inside(self, stmt: ir.Stmt, function: str) -> set[str]:
        """Variables that the functions read which a statement's own line calls: ``self.out``."""
        found: set[str] = set()
        for call in calls_of(stmt):
            found |= self._through(call, function, _READS)
        return found

    def _through(self, call: ir.Call, function: str, kind: str) -> set[str]:
        """The variables of a function that another one changes, or reads, which a call runs."""
        program = self.program
        own = program.self_class(function)
        on_itself = own is not None and (
            isinstance(call.func, ir.Attr)
            and call.func.value in (ir.Name(own[0]), ir.Call(ir.Name("super"), ()))
        )
        found: set[str | None] = set()
        for site in program.call_sites_of(call, function):
            for owner, variable in self._effects.of((site.callee, kind)):
                if owner != site.callee:
                    if program.owner(variable, function) == owner:
                        found.add(variable)
                elif not variable.startswith(_OF_ITSELF):
                    given = program.argument_at(site, variable)
                    if given is not None:
                        found.add(self.variable(given, function))
                elif on_itself and own is not None:
                    found.add(f"{own[0]}.{variable.removeprefix(_OF_ITSELF)}")
        return {variable for variable in found if variable is not None}

    def _find_effects(self, asked: tuple[str, str]) -> frozenset[tuple[str, str]]:
        """What of its callers' a function changes, or reads without being given it: attributes of its
        instance, what it is given, and outer variables, each with the function that has it.
        """
        function, kind = asked
        program = self.program
        own = program.self_class(function)
        params = {param.name for param in program.functions[function].params}
        found: set[tuple[str, str]] = set()
        for stmt in program.statements(function):
            line = replace(stmt, blocks=())
            if kind == _READS:
                variables = self.reads(line, function) | self.reads_inside(
                    stmt, function
                )
            else:
                variables = self.writes(line, function)
            rebound = self.kills(stmt, function)
            for variable in variables:
                owner = program.owner(variable, function)
                if own is not None and variable.startswith(f"{own[0]}."):
                    attr = variable.removeprefix(f"{own[0]}.")
                    found.add((function, _OF_ITSELF + attr))
                elif variable in params and owner == function:
                    if kind == _CHANGES and variable not in rebound:
                        found.add((function, variable))
                elif owner is not None and owner != function:
                    found.add((owner, variable))
        return frozenset(found)


_OF_ITSELF = "self."
"""What begins the name of an attribute of a function's own instance, whatever it calls that."""
_CHANGES, _READS = "changes", "reads"


_MODULE_MAKERS = tuple(
    "torch.nn. torch.compile torch.jit. torch.hub.load torch.distributed. torchvision.models. timm.".split()
)


def _names_loss(name: str | None) -> bool:
    return bool(
        re.search(
            r"(?i)loss|criteri|objective|(^|[._])(ce|mse|bce|nll|crit)$",
            ir.local_name(name or ""),
        )
    )


def _makes_module(origin: str) -> bool:
    """Whether the result of calling a dotted name is a module to be called."""
    if _MAKES_TENSOR.match(origin):
        return False
    if origin.startswith(_MODULE_MAKERS):
        return True
    if origin.startswith(
        ("torch.", "torchvision.", "numpy.", "builtins.", "argparse.")
    ):
        return False
    last = origin.rsplit(".", 1)[-1]
    return bool(vocabulary.MODEL_LIKE.search(last)) or last == "from_pretrained"


def _is_namespace(expr: ir.Expr) -> bool:
    """``models.__dict__``, ``vars(models)``, ``globals()``: functions and classes by their names."""
    match expr:
        case ir.Attr(attr="__dict__"):
            return True
        case ir.Call(func=ir.Name(id="globals" | "locals" | "vars")):
            return True
    return False


def _only_names(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Display):
        return all(map(_only_names, expr.items))
    return isinstance(expr, ir.Name)


def names_no_grad(expr: ir.Expr) -> bool:
    """Whether a decorator, or what a ``with`` enters, turns gradients off."""
    return ir.says(expr, _OFF)
