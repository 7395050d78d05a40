"""The check before anything is written: do both texts ask for the same AMP, and nothing else differ?

Independent of the plan: it sees two texts. Both are brought to one spelling, that of the newer
interface with everything by name, and what comes out must be the same program. Every comment must be
there, in order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from amp_migrate.edit.verify import other_than
from amp_migrate.modernize.calls import PARAMETERS
from amp_migrate.modernize.verify_names import TorchNames

_OLD = re.compile(r"^torch\.(cuda|cpu)\.amp(?=\.|$)")
_NEW = re.compile(r"^torch\.amp(?=\.|$)")
_NEW_PARAMETERS = {
    "autocast": ("device_type", "dtype", "enabled", "cache_enabled"),
    "GradScaler": ("device", *PARAMETERS["GradScaler"]),
    "custom_fwd": ("fwd",),
    "custom_bwd": ("bwd",),
}
_USUAL = {"cuda": "float16", "cpu": "bfloat16"}


def difference(before: str, after: str) -> str | None:
    """What is wrong with ``after`` as a modern form of ``before``; None where nothing is."""
    return other_than(before, after, lambda tree: _Speller(tree).visit(tree))


class _Speller(ast.NodeTransformer):
    """One spelling for old and new."""

    def __init__(self, tree: ast.Module) -> None:
        self._dotted = TorchNames(tree).dotted

    # -- imports ------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for alias in node.names:
            alias.name = _OLD.sub("torch.amp", alias.name)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """One statement for each name."""
        if node.level or not (node.module or "").startswith("torch"):
            return node
        made: list[ast.stmt] = []
        for alias in node.names:
            whole = _OLD.sub("torch.amp", f"{node.module}.{alias.name}")
            module, _, alias.name = whole.rpartition(".")
            made.append(ast.ImportFrom(module, [alias], 0))
        return sorted(made, key=ast.dump)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                setattr(node, field, list(_sorted_imports(body)))
        return node

    # -- names --------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        dotted = self._dotted(node)
        found = _OLD.match(dotted) or _NEW.match(dotted)
        if found and isinstance(node.ctx, ast.Load):
            return ast.Name(f"torch.amp{dotted[found.end():]}", ast.Load())
        self.generic_visit(node)
        return node

    def _decorated(self, decorators: list[ast.expr]) -> None:
        for index, decorator in enumerate(decorators):
            dotted = self._dotted(decorator)
            if _OLD.match(dotted) and dotted.rpartition(".")[2].startswith("custom_"):
                decorators[index] = ast.Call(decorator, [], [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._decorated(node.decorator_list)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self._decorated(node.decorator_list)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        dotted = self._dotted(node.func)
        name = dotted.rpartition(".")[2]
        old = _OLD.match(dotted)
        self.generic_visit(node)
        if name not in PARAMETERS or not (old or _NEW.match(dotted)):
            return node
        parameters = (PARAMETERS if old else _NEW_PARAMETERS)[name]
        given = dict(zip(parameters, node.args, strict=False))
        spread = any(isinstance(arg, ast.Starred) for arg in node.args)
        if spread and old:
            node.args.insert(0, ast.Constant(old[1]))
        if not spread:
            rest = node.args[len(parameters) :]
            keywords = [ast.keyword(key, value) for key, value in given.items()]
            node.args, node.keywords = rest, [*keywords, *node.keywords]
            if old:
                key = _NEW_PARAMETERS[name][0]
                key = "device_type" if name.startswith("custom") else key
                node.keywords.append(ast.keyword(key, ast.Constant(old[1])))
        device = next(
            (
                k.value.value
                for k in node.keywords
                if k.arg == "device_type" and isinstance(k.value, ast.Constant)
            ),
            None,
        )
        node.keywords = sorted(
            (
                k
                for k in node.keywords
                if name != "autocast" or not _says_usual(k, device)
            ),
            key=lambda keyword: keyword.arg or "~",
        )
        return node


def _says_usual(keyword: ast.keyword, device: object) -> bool:
    """Whether an older region says by itself what a newer one may have to be told."""
    if keyword.arg == "cache_enabled":
        return isinstance(keyword.value, ast.Constant) and keyword.value.value is True
    usual = _USUAL.get(str(device))
    return keyword.arg == "dtype" and (
        isinstance(keyword.value, ast.Attribute) and keyword.value.attr == usual
    )


def _sorted_imports(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """A block with imports that stand together in one order."""
    run: list[ast.AST] = []
    for stmt in body:
        if isinstance(stmt, ast.ImportFrom):
            run.append(stmt)
            continue
        yield from sorted(run, key=ast.dump)
        run = []
        yield stmt
    yield from sorted(run, key=ast.dump)
