"""What fixes are made of. All edits of one `Fix` are of the file of its finding, and are made together.

Calls and statements are addressed by where they stand in the text that was read: give the functions
here the facts themselves. Code is written as black would, with double quotes: it is laid out, and gets
the quotes that the file has.
"""

from __future__ import annotations

from dataclasses import dataclass

from amp_migrate.edit.names import edits as names
from amp_migrate.program import ir


@dataclass(frozen=True, slots=True)
class At:
    """A call: ``a.b().c()`` holds two that begin at one place, of ``depth`` 0 and 1."""

    line: int
    column: int
    depth: int


def at(call: ir.Call) -> At:
    """The address of a call."""
    depth, inner = 0, call.func
    while isinstance(inner, (ir.Attr, ir.Item, ir.Call)):
        depth += isinstance(inner, ir.Call)
        inner = inner.func if isinstance(inner, ir.Call) else inner.value
    return At(int(call.line), call.column, depth)


@dataclass(frozen=True, slots=True)
class RemoveArgument:
    """The argument at an index is taken out of a call."""

    at: At
    index: int


@dataclass(frozen=True, slots=True)
class ReplaceArgument:
    """The value of the argument at an index becomes another; a keyword before it stays."""

    at: At
    index: int
    value: str


@dataclass(frozen=True, slots=True)
class SetKeyword:
    """A keyword argument gets a value; it is added where the call does not have it."""

    at: At
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class DropMethod:
    """The call of a method becomes what it was called on: ``x`` for ``x.to(device)``."""

    at: At


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """Statements before or behind one that begins at a place, at its indentation."""

    line: int
    column: int
    code: str
    after: bool


@dataclass(frozen=True, slots=True)
class RemoveStatement:
    """The statement that begins at a place; a block that is left empty gets a ``pass``."""

    line: int
    column: int


def before(stmt: ir.Stmt, code: str) -> InsertStatement:
    """``code`` before a statement."""
    return InsertStatement(int(stmt.line), stmt.column, code, after=False)


def after(stmt: ir.Stmt, code: str) -> InsertStatement:
    """``code`` behind a statement, with all its blocks."""
    return InsertStatement(int(stmt.line), stmt.column, code, after=True)


def removed(stmt: ir.Stmt) -> RemoveStatement:
    """A statement taken out."""
    return RemoveStatement(int(stmt.line), stmt.column)


OfCall = RemoveArgument | ReplaceArgument | SetKeyword | DropMethod
OfStatement = InsertStatement | RemoveStatement
Edit = OfCall | OfStatement | names.Edit
"""`amp_migrate.modernize` has its own for the names of an older AMP interface, and its plan finds them."""


def line_of(edit: Edit) -> int:
    """The line that an edit is addressed to."""
    if isinstance(edit, (InsertStatement, RemoveStatement)):
        return edit.line
    return edit.at.line if isinstance(edit.at, At) else edit.at[0]
