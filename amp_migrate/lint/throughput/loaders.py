"""TCU305 and TCU306: data that the GPU has to wait for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.core.findings import Finding
from amp_migrate.lint.context import Context
from amp_migrate.lint.throughput.training import Step, Training
from amp_migrate.program import ir
from amp_migrate.program.bindings import each_call
from amp_migrate.program.link import Program

_LOADER = "torch.utils.data.DataLoader"
_LOADERS = (_LOADER, "torch.utils.data.dataloader.DataLoader")
_DECODES = re.compile(
    r"(PIL|cv2|imageio|skimage|h5py|librosa|torchaudio|soundfile|decord|albumentations|pydicom|nibabel"
    r"|torchvision\.(transforms|io|datasets))\.|builtins\.open$|numpy\.load$|torch\.load$"
)
_TRANSFORM = re.compile(r"(?i)(^|_)(transforms?|augment\w*|preprocess)$")
_OTHER = re.compile(r"(?i)val|test|eval|dev")
_PARTS = frozenset("Subset random_split ConcatDataset".split())
_THROUGH = frozenset(
    "enumerate tqdm trange iter list zip cycle progress_bar track".split()
)


def check(context: Context, file: str) -> Iterator[Finding]:
    """What is found about the loaders that a file makes or uses."""
    training = context.noted(Training)
    yield from _idle(context, training, file)
    asynchronous = "non_blocking" in context.program.modules[file].identifiers
    for step in training.steps_in(file) if asynchronous else ():
        yield from _unpinned(context, step)


# -- no workers -------------------------------------------------------------------------------


def _idle(context: Context, training: Training, file: str) -> Iterator[Finding]:
    for name in context.functions(file):
        for stmt, call in each_call(context.program.functions[name].body):
            if context.program.origin(call.func, name) not in _LOADERS:
                continue
            if any(arg.star for arg in call.args) or not _for_training(call, stmt):
                continue
            workers = call.argument(5, "num_workers")
            dataset = call.argument(0, "dataset")
            if workers not in (None, ir.Const(0)) or dataset is None:
                continue
            what = _work(context.program, dataset, name, stmt)
            if what and training.trains(file) and not training.is_demo(name, stmt):
                message = f"no worker processes: {what} in between the steps, while the GPU waits"
                yield context.finding("TCU305", name, call, message)


def _for_training(call: ir.Call, stmt: ir.Stmt) -> bool:
    """Whether a loader's data is shuffled, or its name says what it is for."""
    names = {(ir.key_of(target) or "").rpartition(".")[2] for target in stmt.targets}
    if any(_OTHER.search(name) for name in names):
        return False
    shuffled = call.argument(2, "shuffle")
    if shuffled is not None and shuffled != ir.Const(False):
        return True
    return any("train" in name for name in names)


def _made(
    program: Program, expr: ir.Expr, function: str, stmt: ir.Stmt | None
) -> list[Object]:
    """What may have made a value, calls all of them; nothing where that is not known."""
    found = program.noted(PointsTo).whole(expr, function, stmt)
    known = all(
        isinstance(one.expr, ir.Call)
        and (not one.fields or _last(program, one.expr.func, one.function) in _PARTS)
        for one in found
    )
    return list(found) if known else []


def _last(program: Program, func: ir.Expr, function: str) -> str:
    name = program.origin(func, function) or ir.key_of(func) or ""
    return name.rpartition(".")[2]


def _unwrapped(program: Program, expr: ir.Expr, function: str) -> ir.Expr:
    """What is gone over, without ``enumerate``, ``tqdm`` and the like around it."""
    while isinstance(expr, ir.Call) and expr.args and not expr.args[0].star:
        if _last(program, expr.func, function) not in _THROUGH:
            break
        expr = expr.args[0].value
    return expr


def _work(
    program: Program,
    dataset: ir.Expr,
    function: str,
    stmt: ir.Stmt | None,
    depth: int = 0,
) -> str:
    """What is done for each item of a dataset; nothing where this is unknown, or little."""
    found = _made(program, dataset, function, stmt)
    works = {_work_of(program, one, depth) for one in found}
    return works.pop() if len(works) == 1 else ""


def _work_of(program: Program, made: Object, depth: int) -> str:
    call, function = made.expr, made.function
    assert isinstance(call, ir.Call)
    origin = program.origin(call.func, function) or ""
    package, _, name = origin.rpartition(".")
    if name in _PARTS and call.args and depth < 3:
        return _work(program, call.args[0].value, function, made.stmt, depth + 1)
    if package.startswith("torchvision.datasets"):
        given = {arg.name: arg.value for arg in call.args}
        if given.get("transform", ir.Const(None)) != ir.Const(None):
            return "items are transformed"
        return ""
    for ref in program.resolve(call.func, function):
        item = program.method(ref.name, "__getitem__") if ref.kind == "class" else None
        if item is not None and _decodes(program, item, set()):
            return "items are read and transformed"
    return ""


def _decodes(program: Program, function: str, seen: set[str]) -> bool:
    if function in seen or len(seen) > 12:
        return False
    seen.add(function)
    for _, call in each_call(program.functions[function].body):
        origin = program.origin(call.func, function) or ""
        refs = program.resolve(call.func, function)
        if _DECODES.match(origin) or any(
            ref.kind == "made" and _DECODES.match(ref.name) for ref in refs
        ):
            return True
        if isinstance(call.func, ir.Attr) and _TRANSFORM.search(call.func.attr):
            if {"torchvision", "albumentations"} & program.import_roots(function):
                return True
        if any(
            _decodes(program, callee, seen)
            for callee in program.callees(call, function)
        ):
            return True
    return False


# -- no pinned memory -------------------------------------------------------------------------


def _unpinned(context: Context, step: Step) -> Iterator[Finding]:
    loop, function = step.at, step.function
    if loop.kind != "for" or loop.value is None:
        return
    names = {name for target in loop.targets for name in ir.names_in(target)}
    move = next(
        (call for _, call in each_call(step.block) if _is_asynchronous(call, names)),
        None,
    )
    if move is None:
        return
    loader = _unwrapped(context.program, loop.value, function)
    made = _made(context.program, loader, function, loop)
    if made and all(_keeps_pageable(context.program, one) for one in made):
        yield context.finding("TCU306", function, move)


def _is_asynchronous(call: ir.Call, names: set[str]) -> bool:
    if not isinstance(call.func, ir.Attr) or call.func.attr not in ("to", "cuda"):
        return False
    root = call.func.value
    while isinstance(root, (ir.Item, ir.Attr)):
        root = root.value
    return (
        isinstance(root, ir.Name)
        and root.id in names
        and ir.Arg(ir.Const(True), "non_blocking") in call.args
    )


def _keeps_pageable(program: Program, made: Object) -> bool:
    """Whether a loader does not put its batches into pinned memory."""
    call = made.expr
    return (
        isinstance(call, ir.Call)
        and program.origin(call.func, made.function) in _LOADERS
        and not any(arg.star for arg in call.args)
        and call.argument(7, "pin_memory") in (None, ir.Const(False))
    )
