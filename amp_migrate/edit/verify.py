"""The check before anything is written: is the output the input plus AMP, and nothing else?

Independent of the plan: it sees two texts. An eraser that knows only AMP's own vocabulary takes AMP
out of both; what remains must be the same program. Every comment must be there, in order.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from amp_migrate.core.results import SourceError
from amp_migrate.edit.spelling import as_parsed
from amp_migrate.edit.verify_defined import undefined
from amp_migrate.edit.verify_gradients import without_inner_scale
from amp_migrate.edit.verify_precision import opened, same_but_for_casts
from amp_migrate.sources.syntax import compiles, parse

_CREATORS = frozenset({"GradScaler"})
_IMPORTED = frozenset({"torch", "torch._functorch.config"})
"""What is imported where it is missing."""

_DECORATORS = {
    text: form.partition(" ")[0]
    for form in ("forward", "forward in fp32", "backward")
    for text in as_parsed(form)
}
"""Decorators of the methods of a custom autograd Function, as they are written, and whose they are."""

_SETTING = re.compile(r"\w+\._functorch\.config\.backward_pass_autocast = 'off'")
_LIGHTNING: dict[str, tuple[object, ...]] = {"precision": (32, "32", "32-true", None)}
_TRAINING_ARGUMENTS: dict[str, tuple[object, ...]] = {
    "fp16": (False,),
    "bf16": (False,),
}
_SWITCHES: dict[str, dict[str, tuple[object, ...]]] = {
    "Trainer": _LIGHTNING,
    "Fabric": _LIGHTNING,
    "Accelerator": {"mixed_precision": ("no",)},
    "TrainingArguments": _TRAINING_ARGUMENTS,
    "Seq2SeqTrainingArguments": _TRAINING_ARGUMENTS,
}
"""Calls of frameworks, the arguments that decide on precision, and their values for fp32."""
_HALVES = ("16-mixed", "bf16-mixed", "fp16", "bf16")
_ASKS_CUDA = ".cuda.is_available()"
_DROPS = re.compile(r"[^()]+\.zero_grad\((set_to_none=True)?\)")
_NO_CALL = ast.Call(ast.Name(""), [], [])


def difference(before: str, after: str) -> str | None:
    """What is wrong with ``after`` as a migration of ``before``; None where nothing is."""
    found = first_difference({"": (before, after)})
    return None if found is None else found[1]


def first_difference(pairs: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """(file, what is wrong) for texts before and after that were migrated together, by file.

    A switch that is made in one file may be only a parameter in another.
    """
    befores = {file: parse(before, "input") for file, (before, _) in pairs.items()}
    afters = {}
    for file, (_, after) in pairs.items():
        try:
            afters[file] = parse(after, "output")
        except SourceError as error:
            return file, f"the output is {error.message}"
        if compiles(befores[file]) and not compiles(afters[file]):
            return file, "the output does not compile"
    switches = _switches(afters.values())
    for file, (before, after) in pairs.items():
        # Nothing that had its name before is a switch.
        new = frozenset(switches - _names(befores[file]))
        _without_imports(afters[file], _IMPORTED - _imports(befores[file]))
        if _erasable(befores[file]) - _erasable(afters[file]):
            return file, "a part of AMP that was there is lost"
        _without_switches(befores[file])
        _without_switches(afters[file])
        _call_closures_first(befores[file], _stepped(afters[file], new))
        plain = _erase(befores[file], frozenset())
        known = _names(befores[file]) | switches
        without_inner_scale(afters[file], new, known)
        bare = _erase(opened(afters[file], known), new)
        if not _is_same(plain, bare) and not same_but_for_casts(plain, bare):
            shown = shown_difference(ast.dump(plain), ast.dump(bare))
            return file, f"without AMP the output is another program ({shown})"
        if _hashes(before) != _hashes(after) and comments(before) != comments(after):
            return file, "a comment is lost or has moved"
        missing = undefined(after, new)
        if missing is not None:
            return file, missing
    return None


def _is_same(left: object, right: object) -> bool:
    """Whether two parts of syntax trees say the same, wherever that stands."""
    if type(left) is not type(right):
        return False
    if isinstance(left, ast.AST):
        return all(
            _is_same(getattr(left, field, None), getattr(right, field, None))
            for field in left._fields
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    # 0.0 is -0.0, and what is no number is not itself.
    return repr(left) == repr(right)


def _hashes(text: str) -> list[str]:
    """The lines in which comments may stand, but for their indentation: where the programs are the same,
    and these, so are the comments."""
    return [line.strip() for line in text.splitlines() if "#" in line]


def _imports(tree: ast.Module) -> set[str]:
    """The modules of which the top level says ``import module``, and no more on that line."""
    return {_sole_import(stmt) for stmt in tree.body}


def _without_imports(tree: ast.Module, modules: Iterable[str]) -> None:
    """Take the first ``import module`` of each out."""
    for module in modules:
        found = next((s for s in tree.body if _sole_import(s) == module), None)
        if found is not None:
            tree.body.remove(found)


def _sole_import(stmt: ast.stmt) -> str:
    if isinstance(stmt, ast.Import) and len(stmt.names) == 1:
        return "" if stmt.names[0].asname else stmt.names[0].name
    return ""


def _erasable(tree: ast.Module) -> Counter[str]:
    """What is erased wherever it stands: decorators, settings, regions that turn autocast off."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            texts = [ast.unparse(d) for d in node.decorator_list if _decorated(d)]
            found.update(texts)
        elif isinstance(node, ast.With) and _turns_autocast_off(node):
            found[ast.unparse(node.items[0])] += 1
        elif isinstance(node, ast.Assign) and _is_setting(node):
            found[ast.unparse(node)] += 1
    return found


def _is_setting(node: ast.Assign) -> bool:
    """``torch._functorch.config.backward_pass_autocast = "off"``."""
    # To write out each assignment takes long.
    return _last(node.targets[0]) == "backward_pass_autocast" and (
        _SETTING.fullmatch(ast.unparse(node)) is not None
    )


def _decorated(decorator: ast.expr) -> str:
    """The name of the method that a decorator of AMP is for, empty for any other."""
    text = ast.unparse(decorator)
    torch = text.partition(".")[0]
    return {key.format(torch=torch): _DECORATORS[key] for key in _DECORATORS}.get(
        text, ""
    )


def _turns_autocast_off(node: ast.With) -> bool:
    """``with torch.autocast("cuda", enabled=False):``, as it is written, around anything."""
    text = ast.unparse(node.items[0])
    torch = text.partition(".")[0]
    forms = [form.format(torch=torch) for form in as_parsed("off")]
    return len(node.items) == 1 and text in forms


def _names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
    return names


def other_than(
    before: str,
    after: str,
    plain: Callable[[ast.Module], ast.AST],
    what: str = "the output",
) -> str | None:
    """What is wrong with a text where it has to be another one, once both are brought to a plain form, with
    each comment of it; None where nothing is. ``what``: how the message begins."""
    try:
        new = parse(after, "output")
    except SourceError as error:
        return f"the output is {error.message}"
    left, right = (ast.dump(plain(tree)) for tree in (parse(before, "input"), new))
    if left != right:
        return f"{what} is another program ({shown_difference(left, right)})"
    if comments(before) != comments(after):
        return "a comment is lost or has moved"
    return None


def shown_difference(left: str, right: str) -> str:
    """Where two dumps begin to differ."""
    position = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    start = max(position - 30, 0)
    return f"{left[start : position + 30]!r} became {right[start : position + 30]!r}"


def comments(text: str) -> list[str]:
    """Every comment of a text, in order."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_autocast(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last(node.func) == "autocast"


def _is_chosen(node: ast.expr) -> bool:
    """``amp_dtype is not None``."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, (ast.Name, ast.Attribute))
        and [type(op) for op in node.ops] == [ast.IsNot]
        and ast.unparse(node.comparators[0]) == "None"
    )


def _switches(trees: Iterable[ast.Module]) -> set[str]:
    """Names that hold a scaler or the bool that stands for one.

    Assigned from ``GradScaler(...)``, used as a region's ``enabled=``, or passed on from such a name.
    """
    found: set[str] = set()
    nodes = [node for tree in trees for node in ast.walk(tree)]
    # What a region is given is named by torch: `dtype=` is no name of a switch elsewhere.
    of_regions = {
        id(keyword)
        for node in nodes
        if isinstance(node, ast.Call) and _is_autocast(node)
        for keyword in node.keywords
    }
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if _last(node.value.func) in _CREATORS:
                found |= {_last(target) for target in node.targets}
        if isinstance(node, ast.Call) and _is_autocast(node):
            for keyword in node.keywords:
                if keyword.arg == "enabled":
                    value = keyword.value
                    if (
                        isinstance(value, ast.Call)
                        and _last(value.func) == "is_enabled"
                    ):
                        assert isinstance(value.func, ast.Attribute)
                        found.add(_last(value.func.value))
                    elif isinstance(value, (ast.Name, ast.Attribute)):
                        found.add(_last(value))
                    elif _is_chosen(value):
                        assert isinstance(value, ast.Compare)
                        found.add(_last(value.left))
    changed = True
    while changed:
        changed = False
        for node in nodes:
            if (
                isinstance(node, ast.keyword)
                and node.arg
                and id(node) not in of_regions
                and (_last(node.value) in found or _makes_scaler(node.value))
            ):
                if node.arg not in found:
                    found.add(node.arg)
                    changed = True
            if isinstance(node, ast.Assign) and isinstance(
                node.value, (ast.Name, ast.Attribute)
            ):
                if _last(node.value) in found:
                    new = {_last(target) for target in node.targets} - found
                    found |= new
                    changed = changed or bool(new)
    return found - {""}


def _makes_scaler(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _last(value.func) in _CREATORS


def _stepped(tree: ast.Module, switches: frozenset[str]) -> frozenset[str]:
    """What is stepped by a switch: ``optimizer`` of ``scaler.step(optimizer)``, and ``optimizer.step(rate)``
    of what is given more."""
    return frozenset(
        ast.unparse(_plain_step(node) if node.args[1:] else node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and _last(node.func.value) in switches
        and node.args
    )


def _call_closures_first(tree: ast.Module, stepped: frozenset[str]) -> None:
    """``loss = optimizer.step(closure)`` as ``loss = closure()`` and a plain step, where a switch
    steps that optimizer.

    Done to the input alone: in the output such a step has to be gone.
    """
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                setattr(
                    node, field, [s for stmt in body for s in _apart(stmt, stepped)]
                )


def _apart(stmt: ast.stmt, stepped: frozenset[str]) -> Iterator[ast.stmt]:
    """A statement, and the step that its closure is given to behind it."""
    yield stmt
    if not isinstance(stmt, (ast.Expr, ast.Assign, ast.AugAssign)):
        return
    for node in ast.walk(stmt.value):
        if isinstance(node, ast.Call) and _last(node.func) == "step":
            given = [
                *node.args,
                *(k.value for k in node.keywords if k.arg == "closure"),
            ]
            if not isinstance(node.func, ast.Attribute) or len(given) != 1:
                continue
            if ast.unparse(node.func.value) in stepped and (
                ast.unparse(node) not in stepped
            ):
                step = ast.Call(node.func, [], [])
                node.func, node.args, node.keywords = given[0], [], []
                yield ast.Expr(step)
                return


def _without_switches(tree: ast.Module) -> None:
    """Take out the arguments by which frameworks are told their precision: fp32, or ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            known = _SWITCHES.get(_last(node.func), {})
            node.keywords = [
                keyword
                for keyword in node.keywords
                if not (keyword.arg in known and _is_switch_value(keyword.value, known))
            ]


def _is_switch_value(value: ast.expr, known: Mapping[str, tuple[object, ...]]) -> bool:
    if isinstance(value, ast.Constant):
        return any(
            value.value is one or (isinstance(one, (str, int)) and value.value == one)
            for fp32 in known.values()
            for one in fp32
        )
    test = value.test if isinstance(value, ast.IfExp) else value
    asks = isinstance(test, ast.Call) and ast.unparse(test).endswith(_ASKS_CUDA)
    if not isinstance(value, ast.IfExp):
        return asks
    half = value.body.value if isinstance(value.body, ast.Constant) else None
    return asks and half in _HALVES and isinstance(value.orelse, ast.Constant)


def _erase(tree: ast.Module, switches: frozenset[str]) -> ast.Module:
    erased = _Eraser(switches).visit(tree)
    assert isinstance(erased, ast.Module)
    return erased


class _Eraser(ast.NodeTransformer):
    def __init__(self, switches: frozenset[str]) -> None:
        self.switches = switches

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and all(
                isinstance(item, ast.stmt) for item in body
            ):
                setattr(node, field, _inlined(body))
        return node

    def _is_switch(self, node: ast.expr) -> bool:
        return (
            isinstance(node, (ast.Name, ast.Attribute)) and _last(node) in self.switches
        )

    # -- statements ---------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.decorator_list and _decorated(node.decorator_list[-1]) == node.name:
            node.decorator_list.pop()
        self.generic_visit(node)
        return node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        ours = _turns_autocast_off(node) or (
            len(node.items) == 1
            and _is_autocast(node.items[0].context_expr)
            and self._uses_switch(node.items[0].context_expr)
        )
        self.generic_visit(node)
        return list(node.body) if ours else node

    def _uses_switch(self, call: ast.expr) -> bool:
        return any(
            isinstance(n, ast.expr) and self._is_switch(n) for n in ast.walk(call)
        )

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if all(self._is_switch(target) for target in node.targets):
            return None
        if _is_setting(node):
            return None
        call = node.value
        if isinstance(call, ast.Call) and self._is_state_of_switch(call):
            return None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if self._is_switch(call.func.value) and call.func.attr == "step":
                node.value = _plain_step(call)
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        # A dataclass's field for the switch.
        if self._is_switch(node.target):
            return None
        self.generic_visit(node)
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST | None:
        node.names = [name for name in node.names if name not in self.switches]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        node.names = [alias for alias in node.names if alias.name not in self.switches]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            receiver, method = call.func.value, call.func.attr
            if self._is_switch(receiver):
                if method in ("update", "unscale_", "load_state_dict"):
                    return None
                if method == "step" and call.args:
                    node.value = _plain_step(call)
                    return node
        if isinstance(call, ast.ListComp):
            # `[scaler.step(opt) for opt in opts]`, of which nobody takes the results.
            method, step = self._called_on_switch(ast.Expr(call.elt))
            if method == "step" and step.args:
                call.elt = _plain_step(step)
        self.generic_visit(node)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST | list[ast.stmt]:
        """``try`` around a step, with nothing but ``finally: scaler.update()`` behind it."""
        called = [self._called_on_switch(stmt) for stmt in node.finalbody]
        ours = [(method, call.args) for method, call in called] == [("update", [])]
        ours = ours and not node.handlers and not node.orelse
        self.generic_visit(node)
        return list(node.body) if ours else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        if self._is_guarded_step(node):
            self.generic_visit(node)
            return list(node.body)
        norm = self._norm_asked(node)
        if norm is not None:
            # What had no name before has been put back here.
            return [ast.Expr(norm)] if isinstance(norm, ast.Call) else None
        if (
            self._is_guarded_load(node)
            or self._makes_missing_switch(node)
            or self._chooses_dtype(node)
        ):
            return None
        self.generic_visit(node)
        return node

    # Of a statement that is new, only what this tool writes may stand inside: anything else would be
    # lost, or would run under a condition that the input does not have.

    def _is_guarded_step(self, node: ast.If) -> bool:
        """``if any(p.grad is not None for ...): scaler.step(optimizer)``, with what belongs to it, or that
        alone."""
        called = [self._called_on_switch(stmt) for stmt in node.body]
        if node.orelse or any(
            method not in ("step", "update", "unscale_") for method, _ in called
        ):
            return False
        given = [
            call.args[:1] if method == "step" else call.args
            for method, call in called
            if method != "update"
        ]
        if any(len(args) != 1 for args in given):
            return False
        steps = {ast.unparse(args[0]) for args in given}
        test = ast.unparse(node.test)
        if not steps and len(called) == 1:
            # What is updated by itself has been stepped under the same condition.
            steps = {test.partition(" for group in ")[2].partition(".param_groups ")[0]}
        return len(steps) == 1 and test == ast.unparse(
            ast.parse(
                f"any(p.grad is not None for group in {steps.pop()}.param_groups "
                "for p in group['params'])"
            )
        )

    def _makes_missing_switch(self, node: ast.If) -> bool:
        """``if scaler is None: scaler = torch.amp.GradScaler("cuda", enabled=False)``."""
        if node.orelse or len(node.body) != 1:
            return False
        made, test = node.body[0], node.test
        if not isinstance(made, ast.Assign) or len(made.targets) != 1:
            return False
        value = made.value
        creates = isinstance(value, ast.Call) and _last(value.func) in _CREATORS
        is_off = isinstance(value, ast.Constant) and value.value is False
        return (
            (creates or is_off)
            and self._is_switch(made.targets[0])
            and ast.unparse(test) == f"{ast.unparse(made.targets[0])} is None"
        )

    def _chooses_dtype(self, node: ast.If) -> bool:
        """``if device.type == "cuda": amp_dtype = torch.float16 ...``, and the bfloat16 inside of it."""
        if node.orelse or any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
            return False
        if len(node.body) == 1:
            test = ast.unparse(node.test)
            return self._is_dtype(node.body[0], "bfloat16") and bool(
                re.fullmatch(
                    r"\w+\.cuda\.(is_bf16_supported\(including_emulation=False\)"
                    r"|get_device_capability\(\) >= \(8, 0\))",
                    test,
                )
            )
        return (
            len(node.body) == 2
            and self._is_dtype(node.body[0], "float16")
            and isinstance(node.body[1], ast.If)
            and self._chooses_dtype(node.body[1])
        )

    def _is_dtype(self, stmt: ast.stmt, dtype: str) -> bool:
        return (
            isinstance(stmt, ast.Assign)
            and all(self._is_switch(target) for target in stmt.targets)
            and isinstance(stmt.value, ast.Attribute)
            and stmt.value.attr == dtype
        )

    def _is_guarded_load(self, node: ast.If) -> bool:
        """``if scaler.is_enabled() and saved.get("scaler"): scaler.load_state_dict(saved["scaler"])``."""
        if node.orelse or len(node.body) != 1:
            return False
        method, call = self._called_on_switch(node.body[0])
        given = call.args[0] if len(call.args) == 1 else None
        if method != "load_state_dict" or not isinstance(given, ast.Subscript):
            return False
        assert isinstance(call.func, ast.Attribute)
        switch, saved, key = map(
            ast.unparse, (call.func.value, given.value, given.slice)
        )
        return ast.unparse(node.test) == f"{switch}.is_enabled() and {saved}.get({key})"

    def _norm_asked(self, node: ast.If) -> ast.expr | None:
        """``norm`` of ``if scaler.is_enabled() and not norm.isfinite():``, where nothing but the gradients of
        several optimizers is dropped."""
        cleared = [ast.unparse(stmt) for stmt in node.body]
        if len(cleared) < 2 or not all(map(_DROPS.fullmatch, cleared)):
            return None
        match node:
            case ast.If(
                test=ast.BoolOp(
                    op=ast.And(),
                    values=[
                        ast.Call(ast.Attribute(switch, "is_enabled"), [], []),
                        ast.UnaryOp(
                            ast.Not(), ast.Call(ast.Attribute(norm, "isfinite"), [], [])
                        ),
                    ],
                ),
                orelse=[],
            ) if self._is_switch(switch):
                return norm
        return None

    def _called_on_switch(self, stmt: ast.stmt) -> tuple[str, ast.Call]:
        """The method, and its call, that a statement calls on a switch; an empty name where none is."""
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
            call = stmt.value
            if isinstance(call.func, ast.Attribute) and self._is_switch(
                call.func.value
            ):
                return call.func.attr, call
        return "", _NO_CALL

    # -- expressions --------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [
            keyword
            for keyword in node.keywords
            if not (
                keyword.arg in self.switches
                and (self._is_switch(keyword.value) or _makes_switch(keyword.value))
            )
            and not (
                isinstance(keyword.value, ast.Call)
                and self._is_state_of_switch(keyword.value)
            )
        ]
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "backward":
            # Anywhere else the scale would stay in what is computed.
            func.value = self._unscaled(func.value)
            if _last(func.value) == "autograd":
                node.args = [self._unscaled(arg) for arg in node.args]
                for keyword in node.keywords:
                    keyword.value = self._unscaled(keyword.value)
        return node

    def _unscaled(self, node: ast.expr) -> ast.expr:
        """``scaler.scale(loss)`` without the scale."""
        scaled = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "scale"
            and self._is_switch(node.func.value)
            and len(node.args) == 1
        )
        return node.args[0] if scaled and isinstance(node, ast.Call) else node

    def _is_state_of_switch(self, call: ast.Call) -> bool:
        func = call.func
        return (
            isinstance(func, ast.Attribute)
            and func.attr == "state_dict"
            and self._is_switch(func.value)
        )

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        whole = len(node.keys)
        kept = [
            (key, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if not (isinstance(value, ast.Call) and self._is_state_of_switch(value))
        ]
        node.keys = [key for key, _ in kept]
        node.values = [value for _, value in kept]
        self.generic_visit(node)
        # `{**optimizer.state_dict(), "scaler": scaler.state_dict()}`
        is_state = whole > 1 and len(kept) == 1 and kept[0][0] is None
        return node.values[0] if is_state else node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        while node.args and node.args[-1].arg in self.switches:
            # It was added last, and so is its default.
            if node.defaults and isinstance(node.defaults[-1], ast.Constant):
                if node.defaults[-1].value in (None, False):
                    node.defaults.pop()
            node.args.pop()
        pairs = [
            (arg, default)
            for arg, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            if arg.arg not in self.switches
        ]
        node.kwonlyargs = [arg for arg, _ in pairs]
        node.kw_defaults = [default for _, default in pairs]
        self.generic_visit(node)
        return node


def _makes_switch(value: ast.expr) -> bool:
    """``torch.amp.GradScaler("cuda", enabled=...)``, or the condition alone."""
    if _makes_scaler(value):
        return True
    return not any(
        isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom))
        or (
            isinstance(node, ast.Call)
            and _last(node.func) not in ("device", "is_available")
        )
        for node in ast.walk(value)
    )


def _plain_step(call: ast.Call) -> ast.Call:
    """``optimizer.step(rate)`` of ``scaler.step(optimizer, rate)``."""
    optimizer, *given = call.args
    return ast.Call(ast.Attribute(optimizer, "step", ast.Load()), given, call.keywords)


def _inlined(body: list[ast.stmt]) -> list[ast.stmt]:
    """``loss = f(x)`` directly followed by ``loss.backward()`` as ``f(x).backward()``.

    Done to both sides, it makes a hoisted loss and one that was written so the same.
    """
    result: list[ast.stmt] = []
    for stmt in body:
        previous = result[-1] if result else None
        if (
            isinstance(stmt, ast.Expr)
            and isinstance(stmt.value, ast.Call)
            and isinstance(stmt.value.func, ast.Attribute)
            and stmt.value.func.attr == "backward"
            and isinstance(stmt.value.func.value, ast.Name)
            and isinstance(previous, ast.Assign)
            and len(previous.targets) == 1
            and isinstance(previous.targets[0], ast.Name)
            and previous.targets[0].id == stmt.value.func.value.id
        ):
            stmt.value.func.value = previous.value
            result[-1] = stmt
        else:
            result.append(stmt)
    return result
