"""Applies the edits of fixes to one file's text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import cast

import libcst as cst
from libcst.metadata import MetadataWrapper

from amp_migrate.edit.comments import comments_of, led_by, own_lines, split
from amp_migrate.edit.lists import insert_entry
from amp_migrate.edit.mismatch import MismatchError
from amp_migrate.edit.names.edits import Edit as NameEdit
from amp_migrate.edit.names.rewrite import TIGHT, NameEditor
from amp_migrate.edit.names.uses import Position
from amp_migrate.edit.snippets import Snippets
from amp_migrate.lint.fixes.edits import (
    At,
    DropMethod,
    Edit,
    InsertStatement,
    OfCall,
    OfStatement,
    RemoveArgument,
    RemoveStatement,
    ReplaceArgument,
    SetKeyword,
)

Line = cst.SimpleStatementLine | cst.BaseCompoundStatement


def rewrite(text: str, edits: Iterable[Edit], line_length: int = 88) -> str:
    """The text with all edits applied.

    Raises `MismatchError` where an edit does not find what it is addressed to.
    """
    module = cst.parse_module(text)
    editor = _Editor(list(edits), Snippets(module, line_length))
    changed = MetadataWrapper(module, unsafe_skip_copy=True).visit(editor)
    left = [*editor.pending, *editor.missed]
    if left:
        raise MismatchError(f"not found: {sorted(map(str, left))[0]}")
    return changed.code


_GONE = "_amp_migrate_gone_"
"""Stands for a statement that is taken out, until its block is left."""


class _Editor(NameEditor):
    def __init__(self, edits: list[Edit], snippets: Snippets) -> None:
        self.of_calls: dict[At, list[OfCall]] = defaultdict(list)
        self.of_statements: dict[Position, list[OfStatement]] = defaultdict(list)
        self.missed: set[Edit] = set()
        others: list[NameEdit] = []
        for edit in edits:
            if isinstance(edit, (InsertStatement, RemoveStatement)):
                self.of_statements[edit.line, edit.column - 1].append(edit)
            elif isinstance(edit, OfCall):
                self.of_calls[edit.at].append(edit)
            else:
                others.append(edit)
                continue
            self.missed.add(edit)
        super().__init__(others, snippets.quote)
        self.snippets = snippets

    # -- calls --------------------------------------------------------------------------------

    def leave_Call(
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.BaseExpression:
        updated = super().leave_Call(original_node, updated_node)
        line, column = self.position(original_node)
        address = At(line, column + 1, _depth(original_node))
        edits = self.of_calls.get(address)
        if not edits:
            return updated
        assert isinstance(updated, cst.Call)
        self.missed.difference_update(edits)
        removed = sorted(
            (edit.index for edit in edits if isinstance(edit, RemoveArgument)),
            reverse=True,
        )
        for edit in edits:
            if isinstance(edit, ReplaceArgument):
                updated = self._replaced(updated, edit)
        for index in removed:
            updated = _without(updated, index)
        for edit in edits:
            if isinstance(edit, SetKeyword):
                updated = self._with_keyword(updated, edit)
        if any(isinstance(edit, DropMethod) for edit in edits):
            return _receiver(updated)
        return updated

    def _value(self, code: str) -> cst.BaseExpression:
        return cst.parse_expression(code.replace('"', self.quote))

    def _replaced(self, call: cst.Call, edit: ReplaceArgument) -> cst.Call:
        args = list(call.args)
        if edit.index >= len(args) or args[edit.index].star:
            raise MismatchError(f"no such argument: {edit}")
        args[edit.index] = args[edit.index].with_changes(value=self._value(edit.value))
        return call.with_changes(args=args)

    def _with_keyword(self, call: cst.Call, edit: SetKeyword) -> cst.Call:
        value = self._value(edit.value)
        args = list(call.args)
        for index, arg in enumerate(args):
            if arg.keyword is not None and arg.keyword.value == edit.name:
                args[index] = arg.with_changes(value=value)
                return call.with_changes(args=args)
        new = cst.Arg(value, keyword=cst.Name(edit.name), equal=TIGHT)
        opening = call.whitespace_before_args
        return call.with_changes(args=insert_entry(args, len(args) - 1, new, opening))

    # -- statements ---------------------------------------------------------------------------

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        """Statements of whatever kind; the rest as any transformer does."""
        updated = super().on_leave(original_node, updated_node)
        if isinstance(updated, (cst.RemovalSentinel, cst.FlattenSentinel)):
            return updated
        match original_node:
            case cst.SimpleStatementLine(body=body):
                assert isinstance(updated, cst.SimpleStatementLine)
                return self._line(body, updated) or updated
            case cst.SimpleStatementSuite(body=body):
                assert isinstance(updated, cst.SimpleStatementSuite)
                line = cst.SimpleStatementLine(
                    updated.body, trailing_whitespace=updated.trailing_whitespace
                )
                made = self._line(body, line)
                if made is None:
                    return updated
                return _block(cst.IndentedBlock(list(made.nodes)))
            case cst.BaseCompoundStatement():
                assert isinstance(updated, cst.BaseCompoundStatement)
                if not self.of_statements.get(self.position(original_node)):
                    return updated
                return cst.FlattenSentinel(self._around(original_node, updated))
            case cst.IndentedBlock():
                return _block(cast(cst.IndentedBlock, updated))
            case cst.Module():
                return _module(cast(cst.Module, updated))
        return updated

    def _line(
        self, original: Sequence[cst.BaseSmallStatement], line: cst.SimpleStatementLine
    ) -> cst.FlattenSentinel[Line] | None:
        """A line of small statements with the edits of each; None where there are none."""
        if not any(self.of_statements.get(self.position(one)) for one in original):
            return None
        if len(original) != len(line.body):
            raise MismatchError("a line has become several before its statements did")
        made: list[Line] = []
        for small, apart in zip(original, split(line), strict=True):
            made += self._around(small, apart)
        return cst.FlattenSentinel(made)

    def _around(self, original: cst.CSTNode, statement: Line) -> list[Line]:
        """A statement with what goes before and behind it, or what takes its place."""
        edits = self.of_statements.get(self.position(original), ())
        self.missed.difference_update(edits)
        indent = " " * self.position(original)[1]
        ahead: list[Line] = []
        behind: list[Line] = []
        gone = False
        for edit in edits:
            if isinstance(edit, RemoveStatement):
                gone = True
                continue
            made = self.snippets.statements(edit.code, indent)
            (behind if edit.after else ahead).extend(made)
        if ahead:
            lines = list(statement.leading_lines)
            blank = list(takewhile(lambda one: one.comment is None, lines))
            ahead[0] = ahead[0].with_changes(leading_lines=blank)
            statement = statement.with_changes(leading_lines=lines[len(blank) :])
        if gone:
            statement = _gone(statement)
        return [*ahead, statement, *behind]


def _depth(call: cst.Call) -> int:
    """How many calls begin where this one does."""
    depth, inner = 0, call.func
    while isinstance(inner, (cst.Attribute, cst.Subscript, cst.Call)):
        depth += isinstance(inner, cst.Call)
        inner = inner.func if isinstance(inner, cst.Call) else inner.value
    return depth


def _without(call: cst.Call, index: int) -> cst.Call:
    args = list(call.args)
    if index >= len(args):
        raise MismatchError("no such argument")
    gone = args.pop(index)
    if not args:
        if comments_of([call.whitespace_before_args]):
            return call.with_changes(args=args)
        return call.with_changes(
            args=args, whitespace_before_args=cst.SimpleWhitespace("")
        )
    if index == len(args):
        last = args[-1]
        comma: cst.Comma | cst.MaybeSentinel = gone.comma
        if isinstance(comma, cst.Comma) and isinstance(last.comma, cst.Comma):
            comma = _with_first_line_of(comma, last.comma)
        args[-1] = last.with_changes(
            comma=comma, whitespace_after_arg=gone.whitespace_after_arg
        )
    return call.with_changes(args=args)


def _with_first_line_of(comma: cst.Comma, other: cst.Comma) -> cst.Comma:
    """A comma that keeps the comment on its line."""
    space, kept = comma.whitespace_after, other.whitespace_after
    if (
        isinstance(space, cst.ParenthesizedWhitespace)
        and isinstance(kept, cst.ParenthesizedWhitespace)
        and space.first_line.comment is None
    ):
        space = space.with_changes(first_line=kept.first_line)
    return comma.with_changes(whitespace_after=space)


def _receiver(call: cst.Call) -> cst.BaseExpression:
    if not isinstance(call.func, cst.Attribute):
        raise MismatchError("a call of no method")
    value = call.func.value
    return value.with_changes(
        lpar=[*call.lpar, *value.lpar], rpar=[*value.rpar, *call.rpar]
    )


def _gone(statement: Line) -> cst.SimpleStatementLine:
    """What stands for a statement that is taken out, with its comments."""
    return cst.SimpleStatementLine(
        [cst.Expr(cst.Name(_GONE))], leading_lines=own_lines(comments_of([statement]))
    )


def _is_gone(statement: cst.BaseStatement) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Name(value=name))]):
            return name == _GONE
    return False


def _kept(
    body: Sequence[cst.BaseStatement],
) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
    """The statements that stay, and the comments of those that stood behind them."""
    kept: list[cst.BaseStatement] = []
    lines: list[cst.EmptyLine] = []
    for statement in body:
        if _is_gone(statement):
            assert isinstance(statement, cst.SimpleStatementLine)
            lines += statement.leading_lines
            continue
        kept.append(led_by(lines, statement))
        lines = []
    return kept, lines


def _block(block: cst.IndentedBlock) -> cst.IndentedBlock:
    if not any(map(_is_gone, block.body)):
        return block
    kept, lines = _kept(block.body)
    if not kept:
        kept = [led_by(lines, cst.SimpleStatementLine([cst.Pass()]))]
        lines = []
    return block.with_changes(body=kept, footer=[*lines, *block.footer])


def _module(module: cst.Module) -> cst.Module:
    if not any(map(_is_gone, module.body)):
        return module
    kept, lines = _kept(module.body)
    return module.with_changes(body=kept, footer=[*lines, *module.footer])
