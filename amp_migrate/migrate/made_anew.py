"""What statements put in the place of a model that an optimizer holds, or of a part of it.

What takes the place of a layer, and what thaws one, is looked for by what is changed; what gives the names of
the models other objects, by these names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from amp_migrate.analysis.objects.contents import PUTS
from amp_migrate.analysis.objects.coverage import Coverage
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.held import Identity
from amp_migrate.analysis.objects.makers import parameters_of
from amp_migrate.analysis.objects.optimizers import Birth
from amp_migrate.analysis.objects.points_to import RETURNS_SELF, WRAPPERS
from amp_migrate.core.closure import reached
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now, calls_of, unpacked
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

_COPIES = frozenset(("copy.deepcopy", "copy.copy"))
_NO_LAYERS = tuple(f"torch.nn.{name}." for name in "functional utils init".split())
_NO_MODELS = frozenset(
    "augassign delete import importfrom functiondef asyncfunctiondef classdef".split()
)
_ORDERING = frozenset("reverse sort insert pop".split())
_ADDING = PUTS.union(
    "add_module register_module register_parameter set_submodule".split()
)
_REPARAMETRIZES = frozenset(
    f"torch.nn.utils.{name}" for name in """weight_norm parametrizations.weight_norm
    parametrizations.orthogonal parametrize.remove_parametrizations""".split()
)

_Change = tuple[
    str, ir.Stmt, tuple[tuple[ir.Expr, ir.Expr | None], ...], tuple[ir.Expr, ...]
]
"""A function, a statement in it, what that puts layers into, and what it thaws: see `_layers`, `thaws`."""


def made_anew(
    program: Program, forward: Forward, coverage: Coverage, reads: bool
) -> Iterator[Definition]:
    """What may give a model that an optimizer holds, or a part of it, another object."""
    classes: set[str] = set()
    for holder, birth in _asked(coverage):
        classes |= program.instance_classes(holder, birth.function)
        objects = coverage.points_to.of(holder, birth.function, birth.stmt)
        classes |= program.classes.keys() & {one.name for one in objects}
        if isinstance(holder, ir.Item):
            for made in _put_there(program, holder, birth):
                if _is_another(made, forward, coverage) and not _is_before(
                    made, coverage
                ):
                    yield made
        # A parameter is known by what it is given.
        for made in program.definitions_of(holder, birth.function):
            if made.function == birth.function and program.is_param(
                birth.function, ir.key_of(holder) or ""
            ):
                if _is_another(made, forward, coverage):
                    yield made
    for one in coverage.held.all:
        if len(one) > 3 and one[3].startswith("["):
            continue  # in a container, whose name says nothing of the model
        for made in _where_made(coverage, one):
            if _is_another(made, forward, coverage) and not _is_before(made, coverage):
                yield made
            if made.value is not None:
                classes |= program.instance_classes(made.value, made.function)
    if not coverage.held.all:
        return
    inside = _parts(program, forward, classes)
    inside |= {related for name in inside for related in program.family(name)}
    owners = {one[1] for one in coverage.held.all if one[0] == "attribute"}
    for function, stmt, layered, thawed in (
        *program.noted(changes),
        *_changed_in_constructors(program, coverage),
    ):
        changed = [
            (holder, inside | owners if value is None else inside)
            for holder, value in layered
        ]
        if coverage.held.thawed and reads:
            changed += [(holder, inside) for holder in thawed]
        for holder, wanted in changed:
            # Where it is known which object that is, others of its class do not count.
            known = coverage.of_target(holder, function, stmt, {}).all
            if any(one[0] == "self" for one in known) or not known:
                meant = bool(program.instance_classes(holder, function) & wanted)
            else:
                # Beside what is held (`model.average = deepcopy(model.net)`), all stays what it was.
                names: list[tuple[str, ...]] = [
                    (target.attr,)
                    for target, _, _ in unpacked(stmt)
                    if isinstance(target, ir.Attr) and target.value == holder
                ]
                meant = any(
                    any(coverage.may_hold((*one, *name)) for name in names or [()])
                    or (one[0] == "attribute" and one[1] in inside)
                    for one in known
                )
            if meant:
                made = Definition(function, stmt, stmt.value)
                if not _is_before(made, coverage):
                    yield made


def _put_there(program: Program, taken: ir.Item, birth: Birth) -> Iterator[Definition]:
    """What a function may put where something is taken out, or makes another key of its key:
    ``nets[0], nets[1] = nets[1], nets[0]``."""
    function = birth.function
    if not any(isinstance(target, ir.Item) for target in birth.stmt.targets):
        for name in ir.names_in(taken.key):
            for made in program.definitions(function, name):
                if made.function == function and made.stmt.kind == "assign":
                    yield made
    for stmt in program.statements(function):
        for target, value, index in unpacked(stmt):
            if isinstance(value, ir.Const):
                continue
            if isinstance(target, ir.Item) and target.value == taken.value:
                keys = target.key, taken.key
                if len(set(keys)) < 2 or not all(isinstance(k, ir.Const) for k in keys):
                    yield Definition(function, stmt, value, index)
        for call in calls_of(stmt):
            given = [arg.value for arg in call.args[:1]]
            if program.origin(call.func, function) == "random.shuffle":
                if given == [taken.value]:
                    yield Definition(function, stmt, call)
            elif isinstance(call.func, ir.Attr) and call.func.attr in _ORDERING:
                if call.func.value == taken.value:
                    yield Definition(function, stmt, call)


def _where_made(coverage: Coverage, one: Identity) -> Iterator[Definition]:
    """What gives the names of an object a value; of a part that a constructor makes, the names of the
    object that is asked for it: another of its class has parts of its own."""
    program = coverage.program
    for made in coverage.bindings(one):
        own = program.self_class(made.function)
        if own is None or program.functions[made.function].name != "__init__":
            yield made
            continue
        again = _is_made_over(program, own[1])
        if not again and _is_of_same(coverage, own[1]):
            # What steps on its object does not know another's optimizer.
            if _is_behind(program, coverage.births, made):
                yield made
            continue
        holders = _asked_for_parts(coverage, own[1])
        if again or not holders:
            yield made
        for holder in holders:
            yield from coverage.bindings(holder)


def _is_of_same(coverage: Coverage, class_name: str) -> bool:
    """Whether each object of a class makes its optimizers of what it has made itself."""
    program = coverage.program
    family = program.family(class_name)
    own = {birth: program.self_class(birth.function) for birth in coverage.births}
    return all(
        me is not None
        and me[1] in family
        and any(
            isinstance(target, ir.Attr) and target.value == ir.Name(me[0])
            for target in birth.stmt.targets
        )
        and _is_made_by_self(
            program, parameters_of(birth.call), birth.function, family, frozenset()
        )
        for birth, me in own.items()
    )


def _is_made_by_self(
    program: Program,
    expr: ir.Expr | None,
    function: str,
    family: Collection[str],
    around: frozenset[ir.Expr],
) -> bool:
    """Whether the parameters that are meant are of modules that an object makes; ``around``: its attributes
    that are being looked at."""

    def are(parts: Iterable[ir.Expr]) -> bool:
        return all(
            _is_made_by_self(program, part, function, family, around) for part in parts
        )

    me = ir.Name(program.functions[function].self_name or "?")
    match expr:
        case ir.Operation(op="+", operands=items) | ir.Display(items=items):
            return are(items)
        case ir.Attr(value=value) if value == me:
            made = program.definitions_of(expr, function)
            return expr in around or (
                bool(made)
                and all(
                    _is_made_by_self(
                        program, one.value, one.function, family, around | {expr}
                    )
                    for one in made
                )
            )
        case ir.Call(func=func, args=args):
            origin = program.origin(func, function)
            made_here = program.callees(expr, function)
            if isinstance(func, ir.Attr) and origin is None and not made_here:
                return are((func.value,))
            if isinstance(func, ir.Name) and origin is not None:
                return are(arg.value for arg in args)
            refs = program.resolve(expr, function)
            return bool(refs) and all(
                ref.kind in ("instance", "made") and ref.name not in family
                for ref in refs
            )
    return False


def _asked_for_parts(coverage: Coverage, class_name: str) -> set[Identity]:
    """The variables and attributes with instances of a class whose methods give an optimizer what it holds;
    empty where it may come to them in another way."""
    program = coverage.program
    found: set[Identity] = set()
    for holder, birth in _asked(coverage):
        classes = program.instance_classes(holder, birth.function)
        if any(class_name in program.bases(name) for name in classes):
            named = coverage.identities(holder, birth.function, birth.stmt)
            is_named = isinstance(holder, (ir.Name, ir.Attr))
            if not is_named or not named or any(len(name) != 3 for name in named):
                return set()
            found |= named
    return found


def _asked(coverage: Coverage) -> Iterator[tuple[ir.Expr, Birth]]:
    """Whose methods give an optimizer what it holds."""
    for birth in coverage.births:
        given = parameters_of(birth.call)
        for call in () if given is None else ir.calls_in(given):
            if isinstance(call.func, ir.Attr):
                yield call.func.value, birth


def _is_made_over(program: Program, class_name: str) -> bool:
    """Whether a constructor may be run again on an object that it has made."""
    return any(
        program.functions[function].name != "__init__"
        and isinstance(call.func, ir.Attr)
        and bool(
            program.instance_classes(call.func.value, function)
            & program.family(class_name)
        )
        for function, _, call in program.calls_named("__init__")
    )


def changes(program: Program) -> list[_Change]:
    """What statements outside of constructors change of modules, whoever holds these."""
    return list(
        _changed_by(
            program,
            (
                (function, stmt)
                for function, stmt in program.all_statements()
                if program.functions[function].name != "__init__"
            ),
        )
    )


def _changed_in_constructors(program: Program, coverage: Coverage) -> Iterator[_Change]:
    """What constructors change behind a birth that they lead to."""
    births = coverage.births
    for function in program.calling(*{birth.function for birth in births}):
        if program.functions[function].name == "__init__":
            stmts = ((function, stmt) for stmt in program.statements(function))
            for change in _changed_by(program, stmts):
                made = Definition(function, change[1], change[1].value)
                if _is_behind(program, births, made):
                    yield change


def _changed_by(
    program: Program, stmts: Iterable[tuple[str, ir.Stmt]]
) -> Iterator[_Change]:
    forward = program.noted(Forward)
    for function, stmt in stmts:
        layered = tuple(_layers(program, forward, stmt, function))
        thawed = tuple(thaws(stmt))
        if layered or thawed:
            yield function, stmt, layered, thawed


def _is_behind(program: Program, births: Iterable[Birth], made: Definition) -> bool:
    """Whether a birth stands before a statement in its function, or a call that leads to one."""
    born = {birth.function for birth in births}
    at = {birth.path for birth in births if birth.function == made.function}
    leading = program.calling(*born)
    return any(
        stmt.path in at
        or any(
            callee in leading
            for call in calls_of(stmt)
            for callee in program.callees(call, made.function)
        )
        for stmt in program.statements(made.function)
        if stmt.path < made.stmt.path
    )


def _is_before(made: Definition, coverage: Coverage) -> bool:
    """Whether a birth stands behind it in the same block: whenever one is made, so is the other."""
    return any(
        birth.function == made.function
        and len(birth.path) == len(made.stmt.path)
        and (ir.distance(birth.path, made.stmt.path) or 0) > 0
        for birth in coverage.births
    )


def _is_another(made: Definition, forward: Forward, coverage: Coverage) -> bool:
    """Whether a definition may give a name another object than it has."""
    value = made.value
    if made.stmt.kind in _NO_MODELS:
        return False
    if value is None:
        return True
    options: tuple[ir.Expr, ...] = (value,)
    if isinstance(value, ir.Operation) and value.op == "if":
        options = value.operands[1:]
    return any(
        option != ir.Const(None)
        and not _goes_on(option, made, forward, coverage)
        and not coverage.holds_all(option, made.function, made.stmt)
        for option in options
    )


def _goes_on(
    value: ir.Expr, made: Definition, forward: Forward, coverage: Coverage
) -> bool:
    """Whether a value is the object that is there, or is made of it: ``Around(model)``, unless that has
    layers of its own, or ``[model]``, or is what it was made of: ``model.module``."""
    program = coverage.program
    if isinstance(value, ir.Call) and (
        program.origin(value.func, made.function) in _COPIES
        or any(
            any(True for _ in _layers(program, forward, stmt, init))
            for call in ir.calls_in(value)
            for ref in program.resolve(call.func, made.function)
            if ref.kind == "class"
            and (init := program.method(ref.name, "__init__")) is not None
            for stmt in program.statements(init)
        )
    ):
        return False
    targets = [
        target
        for target, given, index in unpacked(made.stmt)
        if given is value and index == made.index
    ]
    inner: Iterable[ir.Expr] = (value,)
    if isinstance(value, (ir.Call, ir.Display)):
        inner = ir.walk(value)
    elif isinstance(value, ir.Attr) and value.attr == "module":
        inner = (value.value,)
    return any(part in targets for part in inner)


def _parts(program: Program, forward: Forward, classes: Iterable[str]) -> set[str]:
    """The classes of some modules and of the modules inside of them."""
    modules = filter(forward.is_module_class, classes)
    return {
        *reached(
            modules,
            lambda one: (
                name
                for base in program.bases(one)
                for _, method in program.classes[base].methods
                for stmt in program.statements(method)
                for call in calls_now(stmt)
                for name in program.instance_classes(call, method)
                if forward.is_module_class(name)
            ),
        )
    }


def _layers(
    program: Program, forward: Forward, stmt: ir.Stmt, function: str
) -> Iterator[tuple[ir.Expr, ir.Expr | None]]:
    """The modules and parameters that a statement puts into something: (what, the layer); None in place
    of the layer where the name in which it is put is not in sight."""
    is_layer = partial(_is_layer, program, forward, function=function)
    for target, value, index in unpacked(stmt):
        if isinstance(target, ir.Attr) and target.attr in ("data", "grad"):
            continue  # a parameter that is given other numbers is the same
        if isinstance(target, (ir.Attr, ir.Item)) and value is not None:
            if index is None and is_layer(value):
                if not _wraps(program, value, target, function):
                    yield _whose(target.value), value
        if stmt.kind == "augassign" and isinstance(target, (ir.Attr, ir.Item)):
            if stmt.value is not None and is_layer(stmt.value):
                yield target, stmt.value
    for call in calls_of(stmt):
        args = [arg.value for arg in call.args]
        if program.origin(call.func, function) == "builtins.setattr":
            if len(args) == 3 and is_layer(args[2]):
                yield args[0], args[2] if isinstance(args[1], ir.Const) else None
        if program.origin(call.func, function) in _REPARAMETRIZES:
            if args and isinstance(args[0], (ir.Name, ir.Attr, ir.Item)):
                yield args[0], call
        if isinstance(call.func, ir.Attr):
            given = call.args[-1:]
            if call.func.attr == "update":  # not `meter.update(model)`
                given = tuple(
                    arg
                    for arg in given
                    if arg.name is not None or isinstance(arg.value, ir.Display)
                )
            if call.func.attr in _ADDING and any(is_layer(a.value) for a in given):
                yield _whose(call.func.value), args[-1]
            if call.func.attr == "__init__":
                yield call.func.value, call


def _whose(changed: ir.Expr) -> ir.Expr:
    """The module that is changed: ``net`` for ``net._modules``."""
    if isinstance(changed, ir.Attr) and changed.attr in ("_modules", "_parameters"):
        return changed.value
    return changed


def _wraps(program: Program, value: ir.Expr, target: ir.Expr, function: str) -> bool:
    """``DataParallel(model.features)`` for ``model.features``, which has the same parameters, or that itself,
    on a device."""
    if ir.before_calls(value, RETURNS_SELF) == target:
        return True
    match value:
        case ir.Call(func=func, args=(ir.Arg(value=inner), *_)):
            return inner == target and program.origin(func, function) in WRAPPERS
    return False


def thaws(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """What a statement may let have gradients again."""
    for target, value, _ in unpacked(stmt):
        if isinstance(target, ir.Attr) and target.attr == "requires_grad":
            if value != ir.Const(False):
                yield target.value
    for call in calls_of(stmt):
        if isinstance(call.func, ir.Attr) and call.func.attr == "requires_grad_":
            if not call.args or call.args[0].value != ir.Const(False):
                yield call.func.value


def _is_layer(
    program: Program, forward: Forward, value: ir.Expr, function: str
) -> bool:
    match value:
        case ir.Display(items=items):
            return any(_is_layer(program, forward, one, function) for one in items)
        case ir.Name(id=name):
            return any(
                isinstance(made.value, ir.Call)
                and made.index is None
                and _is_layer(program, forward, made.value, made.function)
                for made in program.definitions(function, name)
            )
        case ir.Call():
            return any(
                (ref.kind == "instance" and forward.is_module_class(ref.name))
                or (
                    ref.kind == "made"
                    and ref.name.startswith("torch.nn.")
                    and not ref.name.startswith(_NO_LAYERS)
                    and not ref.name.endswith("Loss")
                )
                for ref in program.resolve(value, function)
            )
    return False
