"""Where the comments of statements go that are taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst


def led_by(
    comments: Iterable[cst.EmptyLine], stmt: cst.BaseStatement
) -> cst.BaseStatement:
    """A statement with comments on lines of their own before it."""
    lines = list(comments)
    if not lines:
        return stmt
    own = list(getattr(stmt, "leading_lines", ()))
    return stmt.with_changes(leading_lines=[*lines, *own])


class _Comments(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def visit_Comment(self, node: cst.Comment) -> None:
        self.found.append(node.value)


def comments_of(nodes: Iterable[cst.CSTNode]) -> list[str]:
    """The comments in some code, in order."""
    found = _Comments()
    for node in nodes:
        node.visit(found)
    return found.found


def lost_comments(
    old: cst.BaseStatement, made: Sequence[cst.BaseStatement]
) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The comments of a statement that what it became has no more: those before it, those behind."""
    before, after = comments_of([old]), comments_of(made)
    if not after:
        return own_lines(before), []
    for start in reversed(range(len(before) - len(after) + 1)):
        if before[start : start + len(after)] == after:
            head, tail = before[:start], before[start + len(after) :]
            return own_lines(head), own_lines(tail)
    # Those in between have no place; the check of the result says so.
    return [], []


def own_lines(comments: Iterable[str]) -> list[cst.EmptyLine]:
    """Comments on lines of their own."""
    return [cst.EmptyLine(comment=cst.Comment(text)) for text in comments]


def split(line: cst.SimpleStatementLine) -> list[cst.SimpleStatementLine]:
    """A line of several small statements as lines of one each."""
    lines = [
        cst.SimpleStatementLine(
            body=[small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]
        )
        for small in line.body
    ]
    lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
    lines[-1] = lines[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return lines
