"""Values that a script takes for "no device", and that ``torch.device`` would not: -1, None, ""."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from amp_migrate.analysis.objects.moves import Guards
from amp_migrate.analysis.values.conditions import literals
from amp_migrate.program import ir
from amp_migrate.program.control_flow import ends

_ORDER = ("<", "<=", ">", ">=")
_EQUALITY = ("==", "!=", "in", "not in", "is", "is not", "compare")


def tells_from_none(test: ir.Expr, is_device: Callable[[ir.Expr], bool]) -> bool:
    """Whether a test asks if the device is one at all: ``device >= 0``, ``device is not None``."""
    match test:
        case ir.Operation(op="and" | "or" | "not", operands=operands):
            return any(tells_from_none(operand, is_device) for operand in operands)
        case ir.Operation(op=op, operands=operands) if op in (*_ORDER, *_EQUALITY):
            if not any(map(is_device, operands)):
                return False
            return op in _ORDER or any(map(_is_no_name, operands))
        case ir.Call(func=ir.Name(id="isinstance"), args=(subject, *_)):
            return is_device(subject.value)
    return is_device(test)


def left_before(
    body: tuple[ir.Stmt, ...], stmt: ir.Stmt, depth: int
) -> Iterator[tuple[ir.Expr, bool]]:
    """The tests that let a block go on to ``stmt``, having left it otherwise."""
    guards: Guards = ()
    for _, index in stmt.path[depth:]:
        for earlier in body[:index]:
            if earlier.kind == "if" and earlier.value is not None:
                blocks = {block.field: block.body for block in earlier.blocks}
                for field, goes_on in (("body", False), ("orelse", True)):
                    if ends(blocks.get(field, ())):
                        guards = (*guards, (earlier.value, goes_on))
        depth += 1
        if depth < len(stmt.path):
            field = stmt.path[depth][0]
            body = next(b.body for b in body[index].blocks if b.field == field)
    return literals(guards)


def _is_no_name(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Display):
        return any(map(_is_no_name, expr.items))
    return isinstance(expr, ir.Const) and not isinstance(expr.value, str)
