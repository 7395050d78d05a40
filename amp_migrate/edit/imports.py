"""New imports of modules, where a reader would look for them."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst


def with_import(
    body: Sequence[cst.BaseStatement], name: str
) -> list[cst.BaseStatement]:
    """A module's statements with ``import name``.

    torch goes before the first import from it, and what lies in it behind. Where there are none, it goes
    before the first import, or the first statement.
    """
    statements = list(body)
    made = cst.parse_statement(f"import {name}")
    assert isinstance(made, cst.SimpleStatementLine)
    position = _before_own(statements, name)
    if "." in name and position and _imported(statements[position - 1]) == "torch":
        return [*statements[:position], made, *statements[position:]]
    if position < len(statements):
        following = statements[position]
        assert isinstance(
            following, (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        )
        above, own = _apart(following.leading_lines)
        made = made.with_changes(leading_lines=above)
        blank = 2 * isinstance(following, (cst.FunctionDef, cst.ClassDef))
        lines = [*[cst.EmptyLine(indent=False)] * blank, *own]
        statements[position] = following.with_changes(leading_lines=lines)
    return [*statements[:position], made, *statements[position:]]


def _apart(
    lines: Sequence[cst.EmptyLine],
) -> tuple[Sequence[cst.EmptyLine], Sequence[cst.EmptyLine]]:
    """What stands above a statement, and the comments right above it, which belong to it."""
    start = len(lines)
    while start and lines[start - 1].comment is not None:
        start -= 1
    return lines[:start], lines[start:]


def _before_own(statements: Sequence[cst.BaseStatement], name: str) -> int:
    """The place before the first import from a module, or behind that of the module it is in."""
    root = name.split(".")[0]
    for index, statement in enumerate(statements):
        if root != name and _imported(statement) == root:
            return index + 1
    for index, statement in enumerate(statements):
        if _imported(statement).strip("~").split(".")[0] == root:
            # A text in its own right is a comment on what follows.
            while index > _start(statements) and _is_text(statements[index - 1]):
                index -= 1
            return index
    return _start(statements)


def _start(statements: Sequence[cst.BaseStatement]) -> int:
    """Behind the docstring and what is imported from ``__future__``."""
    position = 0
    for index, statement in enumerate(statements):
        if _imported(statement) == "~__future__":
            position = index + 1
        elif index == 0 and _is_text(statement):
            position = 1
    return position


def _is_text(statement: cst.BaseStatement) -> bool:
    """Whether a statement is only a text: a docstring, or one that stands for a comment."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and isinstance(
        small.value, (cst.SimpleString, cst.ConcatenatedString)
    )


def _imported(statement: cst.BaseStatement) -> str:
    """The module that a statement imports, an empty text where it imports none.

    ``~module`` for ``from module import ...``: in that order they stand.
    """
    if not isinstance(statement, cst.SimpleStatementLine):
        return ""
    small = statement.body[0]
    if isinstance(small, cst.Import):
        return small.names[0].evaluated_name
    if isinstance(small, cst.ImportFrom):
        if small.module is None or small.relative:
            return "~."
        return "~" + cst.Module([]).code_for_node(small.module)
    return ""
