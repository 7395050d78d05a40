"""The check of code without apex.amp: is it the program that was there, and nothing else?

Independent of what took apex out: it sees two texts. An eraser that knows only apex.amp's own
vocabulary takes it out of both, and what remains must be the same program. Every comment must be
there, in order.
"""

from __future__ import annotations

import ast
import re
from typing import TypeVar

from amp_migrate.edit.verify import other_than

_LIST = re.compile(
    r"\[p for group in ([\w.\[\]']+)\.param_groups for p in group\['params'\]\]"
)
Node = TypeVar("Node", bound=ast.AST)


def difference(before: str, after: str) -> str | None:
    """What is wrong with ``after`` as ``before`` without apex.amp; None where nothing is."""
    return other_than(before, after, _erased, "without apex.amp it")


def _erased(tree: ast.Module) -> ast.Module:
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "apex"
        for alias in node.names
        if alias.name == "amp"
    }
    names |= {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "apex.amp" and alias.asname
    }
    functions = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "apex.amp"
        for alias in node.names
    }
    available = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and _imports_amp(node)
        for stmt in (*node.body, *node.orelse)
        if isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.Constant)
        and stmt.value.value is True
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    erased = _Eraser(names, functions, available).visit(tree)
    assert isinstance(erased, ast.Module)
    return erased


def _imports_amp(node: ast.AST) -> bool:
    return any(
        isinstance(inner, (ast.Import, ast.ImportFrom)) and "apex" in ast.unparse(inner)
        for inner in ast.walk(node)
    )


class _Eraser(ast.NodeTransformer):
    def __init__(
        self, names: set[str], functions: dict[str, str], available: set[str]
    ) -> None:
        self.names = names
        self.functions = functions
        self.available = available

    def _method(self, call: ast.AST) -> str:
        """``initialize`` for ``amp.initialize(...)``."""
        if not isinstance(call, ast.Call):
            return ""
        if isinstance(call.func, ast.Name):
            return self.functions.get(call.func.id, "")
        root, _, method = ast.unparse(call.func).rpartition(".")
        known = root in self.names or root == "apex.amp"
        return method if known else ""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and any(isinstance(s, ast.stmt) for s in body):
                setattr(node, field, [stmt for stmt in body if not _is_empty(stmt)])
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        star = node.names[0].name == "*"
        if node.module == "apex.amp" or (star and node.module == "apex.fp16_utils"):
            return None
        if node.module == "apex":
            node.names = [alias for alias in node.names if alias.name != "amp"]
        return node if node.names else None

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        node.names = [
            alias for alias in node.names if alias.name not in ("apex", "apex.amp")
        ]
        return node if node.names else None

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if self._method(node.value) == "state_dict":
            return None
        if self._method(node.value) == "initialize":
            assert isinstance(node.value, ast.Call)
            given = [
                *node.value.args,
                *(
                    k.value
                    for k in node.value.keywords
                    if k.arg in ("models", "optimizers")
                ),
            ][:2]
            value = ast.Tuple(given, ast.Load()) if len(given) > 1 else given[0]
            if [_shape(target) for target in node.targets] == [_shape(value)]:
                return None
            node.value = value
        if all(
            isinstance(t, ast.Name) and t.id in self.available for t in node.targets
        ):
            return None
        node.value = self._answered(node.value)
        return self.generic_visit(node)

    def _answered(self, value: ast.expr) -> ast.expr:
        if (
            isinstance(value, ast.Call)
            and ast.unparse(value.func) == "bool"
            and len(value.args) == 1
        ):
            value.args = [self._answered(value.args[0])]
            return value
        return self._simplified(value)

    def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
        test = self._simplified(node.test)
        return None if _is_true(test) else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if self._method(node.value) == "load_state_dict":
            return None
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        call = node.items[0].context_expr
        name = node.items[0].optional_vars
        if self._method(call) == "scale_loss" and len(node.body) == 1:
            assert isinstance(call, ast.Call)
            stmt = node.body[0]
            loss = call.args[0] if call.args else call.keywords[0].value
            if (
                isinstance(stmt, ast.Expr)
                and isinstance(stmt.value, ast.Call)
                and isinstance(stmt.value.func, ast.Attribute)
                and stmt.value.func.attr == "backward"
                and isinstance(name, ast.Name)
                and ast.unparse(stmt.value.func.value) == name.id
            ):
                stmt.value.func.value = loss
                return self.generic_visit(stmt)
        return self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> ast.AST | list[ast.stmt] | None:
        ours = _imports_amp(node)
        self.generic_visit(node)
        return None if ours and not node.body and not node.orelse else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        node.test = self._simplified(node.test)
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant) and isinstance(node.test.value, bool):
            return node.body if node.test.value else node.orelse
        if not node.body and not node.orelse:
            return None
        if node.orelse and _plainly(node.body) == _plainly(node.orelse):
            # Either will do, but for whose parameters they are: those of the model.
            both = (node.body, node.orelse)
            return next((b for b in both if "PARAMETERS" not in _spelled(b)), both[0])
        return node

    def _simplified(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.Name) and test.id in self.available | self.names:
            return ast.Constant(True)
        if (
            isinstance(test, ast.Compare)
            and isinstance(test.left, ast.Name)
            and test.left.id in self.available | self.names
            and isinstance(test.comparators[0], ast.Constant)
        ):
            same = isinstance(test.ops[0], (ast.Is, ast.Eq))
            return ast.Constant(same == (test.comparators[0].value is True))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._simplified(test.operand)
            if isinstance(inner, ast.Constant) and isinstance(inner.value, bool):
                return ast.Constant(not inner.value)
            test.operand = inner
        if isinstance(test, ast.IfExp):
            answer = self._simplified(test.test)
            if isinstance(answer, ast.Constant) and isinstance(answer.value, bool):
                return test.body if answer.value else test.orelse
        if isinstance(test, ast.BoolOp):
            values = [self._simplified(value) for value in test.values]
            stops = isinstance(test.op, ast.Or)
            if any(isinstance(v, ast.Constant) and v.value is stops for v in values):
                return ast.Constant(stops)
            left = [
                v
                for v in values
                if not (
                    isinstance(v, ast.Constant)
                    and v.value is not stops
                    and isinstance(v.value, bool)
                )
            ]
            if len(left) == 1:
                return left[0]
            if stops and any(
                isinstance(v, ast.UnaryOp)
                and isinstance(v.op, ast.Not)
                and ast.dump(v.operand) in map(ast.dump, left)
                for v in left
            ):
                return ast.Constant(True)
            test.values = left
        return test

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._method(node) == "master_params" and len(node.args) == 1:
            optimizer = ast.unparse(node.args[0])
            code = f"[p for group in {optimizer}.param_groups for p in group['params']]"
            return ast.parse(code, mode="eval").body
        node.keywords = [k for k in node.keywords if not self._is_state(k.value)]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        pairs = [
            (key, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if not self._is_state(value)
        ]
        node.keys = [key for key, _ in pairs]
        node.values = [value for _, value in pairs]
        return self.generic_visit(node)

    def _is_state(self, value: ast.AST) -> bool:
        if isinstance(value, ast.IfExp):
            return self._is_state(value.body)
        return self._method(value) == "state_dict"


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _shape(node: ast.expr) -> object:
    """Names in the order and the groups in which they stand, in whatever brackets."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_shape(one) for one in node.elts]
    return ast.unparse(node)


def _is_empty(stmt: ast.AST) -> bool:
    return isinstance(stmt, ast.If) and not stmt.body and not stmt.orelse


def _spelled(body: list[ast.stmt]) -> str:
    return _LIST.sub("PARAMETERS", "\n".join(map(ast.unparse, body)))


def _plainly(body: list[ast.stmt]) -> str:
    return re.sub(r"[\w.\[\]']+\.parameters\(\)", "PARAMETERS", _spelled(body))
