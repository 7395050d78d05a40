"""Decorators that leave a function what it is: known ones, and wrappers that only call it."""

from __future__ import annotations

from collections.abc import Mapping

from amp_migrate.program import ir

KEEPING = frozenset(
    """builtins.staticmethod builtins.classmethod builtins.property functools.wraps abc.abstractmethod
    typing.final typing.override typing_extensions.override torch.no_grad torch.enable_grad
    torch.inference_mode torch.jit.ignore torch.jit.unused torch.jit.export
    contextlib.contextmanager""".split()
)
_WRAPS = (("wraps",), ("functools", "wraps"))

_Functions = Mapping[str, ir.Function]


def only_calls(functions: _Functions, name: str, made: bool) -> bool:
    """Whether a function is a decorator that gives a wrapper which calls what it is given once, with
    its own arguments, and gives back what that gives; ``made``: it is called to make such a decorator.
    """
    decorator = functions[name]
    if decorator.decorators or decorator.is_generator or decorator.is_async:
        return False
    body = [s for s in decorator.body if not isinstance(s.value, ir.Const)]
    inner = [s for s in body if s.kind == "functiondef"]
    if len(inner) != 1 or body[-1].kind != "return":
        return False
    local, wrapper = inner[0].names[:2]
    if body[-1].value != ir.Name(local):
        return False
    if made:
        returns = [s for s in ir.statements(decorator.body) if s.kind == "return"]
        return len(returns) == 1 and only_calls(functions, wrapper, False)
    if any(not _sets_on(s, local) for s in body[:-1] if s is not inner[0]):
        return False
    match decorator.params:
        case (ir.Param(name=given, kind="positional"),):
            return _passes_on(functions[wrapper], given)
    return False


def wrappers(functions: _Functions, name: str) -> tuple[list[str], frozenset[str]]:
    """The functions that a decorator is made of, and the names by which they know what it is given."""
    inside = [name]
    for one in inside:
        inside += [q for q, f in functions.items() if f.parent == one]
    parents = {functions[one].parent for one in inside}
    given = {p.name for one in inside if one in parents for p in functions[one].params}
    return inside, frozenset(given)


def times(functions: _Functions, name: str) -> tuple[bool, bool]:
    """Whether a decorator's function may leave out to call what it stands around, and whether it may
    call that more than once."""
    inside, given = wrappers(functions, name)
    sites = [
        (functions[one], stmt, expr)
        for one in inside
        for stmt in ir.statements(functions[one].body)
        for expr in stmt.exprs
        for call in ir.calls_in(expr)
        if isinstance(call.func, ir.Name) and call.func.id in given
    ]
    if len(sites) > 1:
        return True, True
    for function, stmt, expr in sites:
        by_path = {one.path: one for one in ir.statements(function.body)}
        around = [by_path.get(stmt.path[:size]) for size in range(len(stmt.path))]
        kinds = {one.kind for one in around if one is not None}
        again = bool(kinds & {"for", "while"}) or any(
            isinstance(one, ir.Comprehension) for one in ir.walk(expr)
        )
        return again or bool(kinds & {"if", "match"}), again
    return False, False


def _sets_on(stmt: ir.Stmt, name: str) -> bool:
    """``wrapper.calls = 0``"""
    return stmt.kind == "assign" and all(
        isinstance(target, ir.Attr) and target.value == ir.Name(name)
        for target in stmt.targets
    )


def _passes_on(wrapper: ir.Function, given: str) -> bool:
    """Whether a wrapper calls what is given once, as it is called itself, on every way."""
    match wrapper.params:
        case (ir.Param(name=args, kind="*"), ir.Param(name=options, kind="**")):
            pass
        case _:
            return False
    if wrapper.is_generator or wrapper.is_async:
        return False
    if not all(_is_wraps(one, given) for one in wrapper.decorators):
        return False
    call = ir.Call(
        ir.Name(given),
        (ir.Arg(ir.Name(args), star="*"), ir.Arg(ir.Name(options), star="**")),
    )
    statements = list(ir.statements(wrapper.body))
    called = [s for s in statements if s.value == call]
    returns = [s for s in statements if s.kind == "return"]
    if len(called) != 1 or len(returns) != 1:
        return False
    names = {given, args, options}
    if called != returns:
        match called[0]:
            case ir.Stmt(kind="assign", targets=(ir.Name(id=result),)) if returns[
                0
            ].value == ir.Name(result):
                names.add(result)
            case _:
                return False
    if not all(_always_runs(s, wrapper, statements) for s in (called[0], returns[0])):
        return False
    return not any(
        _touches(expr, names)
        for stmt in statements
        if stmt is not called[0] and stmt is not returns[0]
        for expr in stmt.exprs
    )


def _is_wraps(decorator: ir.Expr, given: str) -> bool:
    match decorator:
        case ir.Call(func=func, args=(ir.Arg(value=ir.Name(id=name)),)):
            return name == given and ir.dotted(func) in _WRAPS
    return False


def _always_runs(
    stmt: ir.Stmt, function: ir.Function, statements: list[ir.Stmt]
) -> bool:
    """Whether nothing but a ``try`` that handles nothing is around a statement."""
    by_path = {one.path: one for one in statements}
    for size in range(len(function.path) + 1, len(stmt.path)):
        outer = by_path.get(stmt.path[:size])
        if outer is None:
            continue
        blocks = {block.field for block in outer.blocks}
        if outer.kind != "try" or not blocks <= {"body", "finalbody"}:
            return False
        if stmt.path[size][0] != "body":
            return False
    return True


def _touches(expr: ir.Expr, names: set[str]) -> bool:
    """Whether an expression does more with some variables than to ask for their names, or changes what
    torch records."""
    match expr:
        case ir.Attr(value=ir.Name(), attr=attr) if attr.startswith("__"):
            return False
        case ir.Name(id=name):
            return name in names or "grad" in name or "autocast" in name
        case ir.Attr(attr=attr) if "grad" in attr or "autocast" in attr:
            return True
    return any(_touches(child, names) for child in ir.children(expr))
