"""Which calls made a value: a loader, a dataset, a layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.analysis.objects.flow import Flow, Made
from amp_migrate.program import ir
from amp_migrate.program.link import Program

_DEEPEST = 12
_THROUGH = frozenset(
    "enumerate tqdm trange iter list zip cycle progress_bar track".split()
)


@dataclass(frozen=True, slots=True)
class Creation:
    """A call of somebody else's function, or of a class, that makes a value."""

    call: ir.Call
    function: str


def creations(flow: Flow, at: Made, depth: int = 0) -> list[Creation] | None:
    """The calls that may have made a value; None where not all of them are known."""
    if depth > _DEEPEST:
        return None
    found: list[Creation] = []
    for source in _sources(flow, at):
        if isinstance(source, Creation):
            found.append(source)
            continue
        made = None if source is None else creations(flow, source, depth + 1)
        if made is None:
            return None
        found += made
    return found or None


def _sources(flow: Flow, at: Made) -> Iterator[Creation | Made | None]:
    expr, program = at.expr, flow.program
    match expr:
        case ir.Name() | ir.Attr():
            made = flow.made(at)
            if made is None:
                yield None
            else:
                for one in made:
                    # Of an element of an element, nothing is known.
                    both = one.index is not None and at.index is not None
                    yield None if both else _indexed(one, at.index)
        case ir.Display(items=items) if at.index is not None and at.index < len(items):
            yield Made(items[at.index], at.function, at.stmt)
        case ir.Operation(op="if", operands=(_, body, orelse)):
            yield Made(body, at.function, at.stmt, at.index)
            yield Made(orelse, at.function, at.stmt, at.index)
        case ir.Call(func=func):
            refs = program.resolve(func, at.function)
            functions = [ref.name for ref in refs if ref.kind == "function"]
            if functions:
                for name in functions:
                    returned = flow.returned(name, at.index)
                    if returned is None:
                        yield None
                    else:
                        yield from returned
            elif (
                at.index is None or _last(program, func, at.function) == "random_split"
            ):
                yield Creation(expr, at.function)
            else:
                yield None
        case _:
            yield None


def unwrapped(program: Program, expr: ir.Expr, function: str) -> ir.Expr:
    """What is gone over, without ``enumerate``, ``tqdm`` and the like around it."""
    while isinstance(expr, ir.Call) and expr.args and not expr.args[0].star:
        if _last(program, expr.func, function) not in _THROUGH:
            break
        expr = expr.args[0].value
    return expr


def _last(program: Program, func: ir.Expr, function: str) -> str:
    name = program.origin(func, function) or ir.key_of(func) or ""
    return name.rpartition(".")[2]


def _indexed(made: Made, index: int | None) -> Made:
    return made if index is None else Made(made.expr, made.function, made.stmt, index)
