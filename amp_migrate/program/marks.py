"""``# amp: off``: what the user wants left alone for good."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize

_OFF = re.compile(r"#\s*amp:\s*off\b", re.IGNORECASE)


def off_marks(text: str, tree: ast.Module) -> tuple[frozenset[int], bool]:
    """Lines of the statements marked ``# amp: off``, and whether the mark stands for the whole file.

    A mark at the end of a statement's line, or alone on the line above it, concerns that statement. A
    mark alone on its line before all code, or before code that is no loop, function or class, concerns
    the file.
    """
    if not _OFF.search(text):
        return frozenset(), False
    first = next((n for n in tree.body if not _is_docstring(n)), None)
    first_line = first.lineno if first is not None else sys.maxsize
    if isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        first_line = min([first.lineno, *(d.lineno for d in first.decorator_list)])
    marked: set[int] = set()
    whole_file = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or not _OFF.search(token.string):
            continue
        line = token.start[0]
        alone = not token.line[: token.start[1]].strip()
        if not alone:
            marked.add(line)
        elif line < first_line and not (
            line == first_line - 1
            and isinstance(
                first, (ast.For, ast.While, ast.With, ast.FunctionDef, ast.ClassDef)
            )
        ):
            whole_file = True
        else:
            marked.add(line + 1)
    return frozenset(marked), whole_file


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
