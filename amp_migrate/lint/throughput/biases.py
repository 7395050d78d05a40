"""TCU307: a bias that the batch normalization behind it takes away again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from amp_migrate.core.findings import Finding, Fix
from amp_migrate.lint.context import Context
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_part, parts_of
from amp_migrate.program.link import Program

_CONVS = frozenset(
    f"torch.nn.{kind}{n}d" for n in (1, 2, 3) for kind in ("Conv", "ConvTranspose")
)
_BIAS = 7
"""The position of ``bias`` among the arguments of all of them."""
_NORMS = frozenset(
    "torch.nn.BatchNorm1d torch.nn.BatchNorm2d torch.nn.BatchNorm3d torch.nn.SyncBatchNorm".split()
)
_CHECKPOINTS = (
    "load_state_dict",
    "from_pretrained",
    "load_url",
    "load_state_dict_from_url",
    "load_from_checkpoint",
)
_Layer = tuple[str, ir.Call]
"""A call that makes a layer, with the function it stands in."""


def check(context: Context, file: str) -> Iterator[Finding]:
    """One finding for each convolution whose bias does nothing."""
    training = context.noted(Training)
    found: dict[int, _Layer] = {}
    for name in context.functions(file):
        for convolution in _in_rows(context.program, name):
            found.setdefault(id(convolution[1]), convolution)
    for class_name in context.program.classes:
        if ir.file_of(class_name) == file:
            for convolution in _in_forward(context.program, class_name):
                if ir.file_of(convolution[0]) == file:
                    found.setdefault(id(convolution[1]), convolution)
    own = context.program.modules[file].identifiers
    if not found or not own.isdisjoint(_CHECKPOINTS):
        # Weights of this very architecture exist.
        return
    if training.context.is_test(file) or _is_cpu_only(training, file):
        return
    kept = training.speaks_of(file, *_CHECKPOINTS) or _is_touched(training, file)
    for function, call in found.values():
        # A checkpoint that is loaded holds the bias; and its numbers are drawn at random.
        by_name = len([arg for arg in call.args if arg.name is None]) <= _BIAS
        change = edits.SetKeyword(edits.at(call), "bias", "False")
        fix = Fix(False, "bias=False", (change,)) if by_name and not kept else None
        yield context.finding("TCU307", function, call, fix=fix)


def _is_cpu_only(training: Training, file: str) -> bool:
    """Whether a file takes part in training, and nothing there reaches an accelerator."""
    files = training.around(file)
    trained = any(ir.file_of(step.function) in files for step in training.steps)
    return trained and not training.reaches_gpu(file)


def _is_touched(training: Training, file: str) -> bool:
    """Whether somebody, such as an initialization, counts on a bias to be there."""
    files = training.around(file)
    return any(
        isinstance(inner, ir.Attr) and inner.attr == "bias"
        for function, stmt in training.program.all_statements()
        if ir.file_of(function) in files
        for inner in parts_of(stmt)
    )


def _is_biased(program: Program, layer: ir.Expr, function: str) -> bool:
    """Whether an expression makes a convolution that has a bias."""
    if not isinstance(layer, ir.Call) or any(arg.star for arg in layer.args):
        return False
    if program.origin(layer.func, function) not in _CONVS:
        return False
    return layer.argument(_BIAS, "bias") in (None, ir.Const(True))


def _is_norm(program: Program, layer: ir.Expr, function: str) -> bool:
    return (
        isinstance(layer, ir.Call)
        and (program.origin(layer.func, function) or "") in _NORMS
    )


def _in_rows(program: Program, function: str) -> Iterator[_Layer]:
    """Convolutions that are written before a norm, in a Sequential or in a list of layers."""
    for _, inner in each_part(program.functions[function].body):
        for first, second in _pairs(program, inner, function):
            if _is_norm(program, second, function) and _is_biased(
                program, first, function
            ):
                assert isinstance(first, ir.Call)
                yield function, first


def _pairs(
    program: Program, expr: ir.Expr, function: str
) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    layers: list[ir.Expr] = []
    if isinstance(expr, ir.Display) and expr.kind == "list":
        layers = list(expr.items)
    elif isinstance(expr, ir.Call) and len(expr.args) > 1:
        if program.origin(expr.func, function) == "torch.nn.Sequential":
            layers = [arg.value for arg in expr.args]
    yield from pairwise(layers)


# -- by the order in which forward() calls them -----------------------------------------------


def _in_forward(program: Program, class_name: str) -> Iterator[_Layer]:
    methods = program.classes[class_name].methods
    forward = dict(methods).get("forward")
    own = None if forward is None else program.functions[forward].self_name
    if forward is None or own is None:
        return
    body = list(program.statements(forward))
    uses = [
        inner.attr
        for name, method in methods
        if name != "__init__"
        for _, inner in each_part(program.functions[method].body)
        if isinstance(inner, ir.Attr) and isinstance(inner.value, ir.Name)
    ]
    for convolution, norm in _in_order(body, own):
        # A convolution that is used twice may have something else behind it there.
        if uses.count(convolution) != 1:
            continue
        made = _made(program, class_name, convolution)
        if not made or not all(_is_biased(program, *one[::-1]) for one in made):
            continue
        norms = _made(program, class_name, norm)
        if norms and all(_is_norm(program, *one[::-1]) for one in norms):
            yield from made


def _made(program: Program, class_name: str, attr: str) -> list[_Layer]:
    """The calls that make an attribute's layer; none where something else may be there."""
    found: list[_Layer] = []
    for definition in program.attribute_definitions(class_name, attr):
        if not isinstance(definition.value, ir.Call) or definition.index is not None:
            return []
        found.append((definition.function, definition.value))
    return found


def _in_order(body: list[ir.Stmt], own: str) -> Iterator[tuple[str, str]]:
    """Pairs of attributes, the second called on nothing but what the first gave."""
    before: tuple[ir.Expr, str, ir.Path] | None = None
    for stmt in body:
        for expr in stmt.exprs:
            for inner in ir.walk(expr):
                outer = _called(inner, own)
                given = _argument(inner)
                nested = None if given is None else _called(given, own)
                if outer is not None and nested is not None:
                    yield nested, outer
        first = None if stmt.value is None else _innermost(stmt.value, own)
        if before is not None and first is not None:
            variable, name, path = before
            if first[1] == variable and stmt.path[:-1] == path[:-1]:
                if stmt.path[-1][1] == path[-1][1] + 1 and _forgets(stmt, variable):
                    yield name, first[0]
        before = None
        if stmt.kind == "assign" and len(stmt.targets) == 1 and stmt.value is not None:
            outer = _called(stmt.value, own)
            if outer is not None and isinstance(stmt.targets[0], ir.Name):
                before = stmt.targets[0], outer, stmt.path


def _forgets(stmt: ir.Stmt, variable: ir.Expr) -> bool:
    """Whether a statement gives a variable a new value, so that nobody else sees the old one."""
    return stmt.kind == "return" or stmt.targets == (variable,)


def _called(expr: ir.Expr, own: str) -> str | None:
    """The attribute of the instance that an expression calls."""
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        if expr.func.value == ir.Name(own):
            return expr.func.attr
    return None


def _argument(expr: ir.Expr) -> ir.Expr | None:
    """The one argument of a call."""
    if isinstance(expr, ir.Call) and len(expr.args) == 1 and not expr.args[0].star:
        return expr.args[0].value
    return None


def _innermost(expr: ir.Expr, own: str) -> tuple[str, ir.Expr] | None:
    """The layer that is called first in nested calls, and what it is given."""
    while (given := _argument(expr)) is not None:
        name = _called(expr, own)
        if not isinstance(given, ir.Call):
            return None if name is None else (name, given)
        expr = given
    return None
