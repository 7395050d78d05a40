"""The part of the check that knows islands of fp32: takes out what is there for precision alone.

Each form is taken out of the output only, and only where the input has what remains.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection

from amp_migrate.edit.spelling import as_parsed

_OFF = tuple(text.removeprefix("{torch}") for text in as_parsed("off"))


def opened(tree: ast.Module, names: Collection[str]) -> ast.Module:
    """A tree without islands, and with what was hoisted for them put back where it is used.

    ``names``: those that the input or a switch has; only others are taken for what was hoisted.
    """
    plain = _Opener(names).visit(tree)
    assert isinstance(plain, ast.Module)
    return plain


def same_but_for_casts(before: ast.Module, after: ast.Module) -> bool:
    """Whether two trees are the same, but for casts that only the second one has."""
    return _same(before, after)


def _is_island(stmt: ast.stmt) -> bool:
    """``with torch.autocast("cuda", enabled=False):``."""
    if not isinstance(stmt, ast.With) or len(stmt.items) != 1:
        return False
    call = stmt.items[0].context_expr
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and stmt.items[0].optional_vars is None
        and ast.unparse(call).endswith(_OFF)
    )


class _Opener(ast.NodeTransformer):
    """Opens islands, and puts what was hoisted back where it is used."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                opened = [
                    inner
                    for stmt in body
                    for inner in (
                        stmt.body
                        if isinstance(stmt, ast.With) and _is_island(stmt)
                        else [stmt]
                    )
                ]
                setattr(node, field, self._put_back(opened))
        return node

    def _put_back(self, body: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        pending: list[tuple[str, ast.Assign]] = []
        wide: dict[str, ast.expr] = {}
        unused: dict[str, ast.stmt] = {}
        for stmt in body:
            target = self._hoisted(stmt)
            variable = _widened(stmt.value) if isinstance(stmt, ast.Assign) else None
            if target and variable is not None:
                # What is only a variable may be used more than once, and in any order.
                wide[target], unused[target] = variable, stmt
                continue
            said = _names_in(stmt) if wide else frozenset()
            if wide:
                user = _Substitute(wide)
                stmt = user.visit(stmt)
                unused = {
                    name: unused[name] for name in unused if name not in user.used
                }
            if pending:
                stmt, pending, left = _with_values(stmt, pending)
                result += left
            if target:
                # Several in a row belong to the statement behind them.
                assert isinstance(stmt, ast.Assign)
                pending.append((target, stmt))
                continue
            result += [*unused.values(), *(assign for _, assign in pending), stmt]
            pending, unused = [], {}
            # It stays what it is for statements that do not speak of what it is made of.
            wide = {
                name: x
                for name, x in wide.items()
                if isinstance(x, ast.Name) and x.id not in said
            }
        return [*result, *unused.values(), *(assign for _, assign in pending)]

    def _hoisted(self, stmt: ast.stmt) -> str:
        """The name that a statement binds, if the input has no such name."""
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
            target = stmt.targets[0]
            if isinstance(target, ast.Name) and target.id not in self.names:
                return target.id
        return ""


def _names_in(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _with_values(
    stmt: ast.stmt, pending: list[tuple[str, ast.Assign]]
) -> tuple[ast.stmt, list[tuple[str, ast.Assign]], list[ast.stmt]]:
    """A statement with what was hoisted for it put back, what else may still be put back, and what stays
    where it is."""
    user = _Substitute({name: assign.value for name, assign in pending})
    changed = user.visit(copy.deepcopy(stmt))
    used = len(user.used)
    if used and user.used == [name for name, _ in pending[-used:]]:
        return changed, pending[:-used], []
    if used:
        return stmt, [], [assign for _, assign in pending]
    return stmt, pending, []


def _widened(value: ast.expr) -> ast.expr | None:
    """``x`` of ``x.float() if x.dtype is torch.float16 else x``, or ``in`` a tuple of such dtypes, also
    behind ``torch.is_tensor(x) and``; or of ``x.to(y.dtype) if torch.is_tensor(x) else x``.
    """
    match value:
        case ast.IfExp(orelse=ast.Name() | ast.Attribute()):
            pass
        case ast.IfExp(orelse=ast.Subscript() as part) if _is_element(part):
            pass
        case _:
            return None
    x, half = re.escape(ast.unparse(value.orelse)), r"\w+(\.\w+)*\.b?float16"
    said = ast.unparse(value)
    test = rf"(is {half}|in \({half}, {half}\))"
    asked = rf"(\w+(\.\w+)*\.is_tensor\({x}\) and )?"
    full = rf"{x}\.float\(\) if {asked}{x}\.dtype {test}"
    like = rf"{x}\.to\(\w+(\.\w+)*\.dtype\) if \w+(\.\w+)*\.is_tensor\({x}\)"
    found = re.fullmatch(rf"({full}|{like}) else {x}", said)
    return value.orelse if found else None


def _is_element(expr: ast.expr) -> bool:
    """``x[0]``, ``x[i][j]``."""
    while isinstance(expr, ast.Subscript) and isinstance(
        expr.slice, (ast.Constant, ast.Tuple, ast.Name)
    ):
        expr = expr.value
    return isinstance(expr, ast.Name)


class _Substitute(ast.NodeTransformer):
    """Puts values where their names are loaded. ``used``: the names, in order of their use."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values
        self.used: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.values:
            return node
        self.used.append(node.id)
        return self.values[node.id]


def _same(left: object, right: object) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        if len(left) < len(right):
            right = _without_recasts(left, right)
        return len(left) == len(right) and all(map(_same, left, right))
    if not isinstance(left, ast.AST) or not isinstance(right, ast.AST):
        return type(left) is type(right) and left == right
    if type(left) is type(right) and all(
        _same(getattr(left, field, None), getattr(right, field, None))
        for field in left._fields
        if field != "ctx"
    ):
        return True
    return isinstance(right, ast.expr) and any(
        _same(left, inner) for inner in _without_cast(right)
    )


def _without_recasts(before: list[object], after: list[object]) -> list[object]:
    """Statements without those that cast a variable, where the input has none."""
    kept: list[object] = []
    for one in after:
        if _is_recast(one) and not any(
            _same(same, one) for same in before[len(kept) : len(kept) + 1]
        ):
            continue
        kept.append(one)
    return kept


def _is_recast(stmt: object) -> bool:
    """``x = x.float()``, also only where ``x`` is half; so may ``x.data`` be cast."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    x, wide = stmt.targets[0], _widened(stmt.value)
    said = ast.unparse(stmt.value) if wide is None else f"{ast.unparse(wide)}.float()"
    if isinstance(x, ast.Attribute):
        return (
            wide is not None
            and x.attr == "data"
            and said == f"{ast.unparse(x)}.float()"
        )
    return isinstance(x, ast.Name) and said == f"{x.id}.float()"


def _without_cast(node: ast.expr) -> list[ast.expr]:
    """What an expression is without the cast that it consists of, if it does."""
    if not isinstance(node, ast.Call):
        return []
    func, args = node.func, node.args
    if isinstance(func, ast.Attribute) and func.attr == "float":
        # x.float()
        return [] if args or node.keywords else [func.value]
    if isinstance(func, ast.Attribute) and func.attr == "to" and len(args) == 1:
        # x.to(buffer.dtype)
        like = isinstance(args[0], ast.Attribute) and args[0].attr == "dtype"
        return [func.value] if like and not node.keywords else []
    if isinstance(func, ast.Name) and func.id in ("max", "min") and len(args) == 2:
        # max(-1e9, torch.finfo(x.dtype).min)
        bound = ast.unparse(args[1])
        limit = "min" if func.id == "max" else "max"
        if ".finfo(" in bound and bound.endswith(f".dtype).{limit}"):
            return [] if node.keywords else [args[0]]
    if isinstance(func, ast.Subscript) and ast.unparse(func.slice) == "-1":
        # layers[-1](layers[:-1](x).float())
        inner = _without_cast(args[0]) if len(args) == 1 and not node.keywords else []
        if len(args) == 1 and isinstance(args[0], ast.Call) and not node.keywords:
            # layers[-1](layers[:-1](x)), of which the last are layers, too
            if ast.unparse(args[0].func) == f"{ast.unparse(func.value)}[:-1]":
                return _runs_of(func.value, args[0])
        if inner and isinstance(inner[0], ast.Call):
            call = inner[0]
            layers = ast.unparse(func.value)
            if ast.unparse(call.func) == f"{layers}[:-1]":
                return _runs_of(func.value, call)
            # layers[-1](data_parallel(layers[:-1], x).float())
            if call.args and ast.unparse(call.args[0]) == f"{layers}[:-1]":
                args = [func.value, *call.args[1:]]
                return [ast.Call(call.func, args, call.keywords)]
    return []


def _runs_of(layers: ast.expr, call: ast.Call) -> list[ast.expr]:
    """``layers(x)`` and ``layers.forward(x)``, given what a call gives."""
    forward = ast.Attribute(layers, "forward", ast.Load())
    return [ast.Call(func, call.args, call.keywords) for func in (layers, forward)]
