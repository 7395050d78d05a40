"""Applies the edits of a plan to one file's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from amp_migrate.edit.lists import insert_entry
from amp_migrate.edit.mismatch import MismatchError
from amp_migrate.edit.names.edits import (
    CallDecorator,
    Edit,
    MoveImport,
    Recall,
    Rename,
)
from amp_migrate.edit.names.uses import Position
from amp_migrate.edit.snippets import Habits

TIGHT = cst.AssignEqual(
    whitespace_before=cst.SimpleWhitespace(""),
    whitespace_after=cst.SimpleWhitespace(""),
)


def rewrite(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits applied.

    Raises `MismatchError` where an edit does not find the name that the plan saw.
    """
    module = cst.parse_module(text)
    editor = NameEditor(edits, Habits(module).quote)
    # The tree is only read here, and copied where it changes.
    changed = MetadataWrapper(module, unsafe_skip_copy=True).visit(editor)
    if editor.pending:
        raise MismatchError(f"not found: {sorted(map(str, editor.pending))[0]}")
    return changed.code


class NameEditor(cst.CSTTransformer):
    """Applies edits of names; those that it did not find are ``pending``."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, edits: Iterable[Edit], quote: str) -> None:
        super().__init__()
        self.quote = quote
        self.pending = set(edits)
        self.at: dict[Position, Edit] = {edit.at: edit for edit in self.pending}

    def position(self, node: cst.CSTNode) -> Position:
        """Where a node of the original tree begins."""
        start = self.get_metadata(PositionProvider, node).start
        return start.line, start.column

    def _edit_of(self, node: cst.BaseExpression) -> Edit | None:
        """The edit of a dotted name, as it was before."""
        root = node
        while isinstance(root, cst.Attribute):
            root = root.value
        if not isinstance(root, cst.Name):
            return None
        edit = self.at.get(self.position(root))
        if edit is None or isinstance(edit, MoveImport) or _dotted(node) != edit.old:
            return None
        return edit

    # -- names --------------------------------------------------------------------------------

    def leave_Name(
        self, original_node: cst.Name, updated_node: cst.Name
    ) -> cst.BaseExpression:
        return self._renamed(original_node, updated_node)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return self._renamed(original_node, updated_node)

    def _renamed(
        self, original: cst.Name | cst.Attribute, updated: cst.Name | cst.Attribute
    ) -> cst.BaseExpression:
        edit = self._edit_of(original)
        if edit is None:
            return updated
        if isinstance(edit, Rename):
            self.pending.discard(edit)
        if edit.new == edit.old:
            return updated
        made = cst.parse_expression(edit.new)
        return made.with_changes(lpar=updated.lpar, rpar=updated.rpar)

    def leave_Call(
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.BaseExpression:
        edit = self._edit_of(original_node.func)
        if not isinstance(edit, Recall):
            return updated_node
        self.pending.discard(edit)
        args = list(updated_node.args)
        if len(args) != len(edit.keywords):
            raise MismatchError(f"other arguments than the plan saw: {edit}")
        for index, keyword in enumerate(edit.keywords):
            if keyword is not None:
                args[index] = args[index].with_changes(
                    keyword=cst.Name(keyword), equal=TIGHT
                )
        place = 0
        name, _, device = edit.device.rpartition("=")
        if name:
            # A keyword: behind what is given by position, before what is spread.
            while place < len(args) and not (args[place].keyword or args[place].star):
                place += 1
        opening = updated_node.whitespace_before_args
        new = [self._argument(name, device)]
        new += [self._argument(keyword, value) for keyword, value in edit.more]
        for offset, argument in enumerate(new):
            args = _inserted(args, place + offset, argument, opening)
        return updated_node.with_changes(args=args)

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator:
        edit = self._edit_of(original_node.decorator)
        if not isinstance(edit, CallDecorator):
            return updated_node
        self.pending.discard(edit)
        call = cst.Call(
            updated_node.decorator,
            [self._argument("device_type", f'"{edit.device}"')],
        )
        return updated_node.with_changes(decorator=call)

    def _argument(self, keyword: str, value: str) -> cst.Arg:
        return cst.Arg(
            cst.parse_expression(value.replace('"', self.quote)),
            keyword=cst.Name(keyword) if keyword else None,
            equal=TIGHT if keyword else cst.MaybeSentinel.DEFAULT,
        )

    # -- imports ------------------------------------------------------------------------------

    def _move(self, alias: cst.ImportAlias) -> MoveImport | None:
        edit = self.at.get(self.position(alias))
        return edit if isinstance(edit, MoveImport) else None

    def leave_ImportAlias(
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        edit = self._move(original_node)
        if edit is None or _dotted(original_node.name) != edit.old:
            return updated_node
        self.pending.discard(edit)
        name = cst.parse_expression(edit.new)
        assert isinstance(name, (cst.Name, cst.Attribute))
        return updated_node.with_changes(name=name)

    def leave_SimpleStatementLine(
        self,
        original_node: cst.SimpleStatementLine,
        updated_node: cst.SimpleStatementLine,
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        body: list[cst.BaseSmallStatement] = []
        before: list[cst.SimpleStatementLine] = []
        for original, small in zip(original_node.body, updated_node.body, strict=True):
            if isinstance(original, cst.ImportFrom) and isinstance(
                small, cst.ImportFrom
            ):
                made = self._imports(original, small)
                if len(made) > 1:
                    if len(original_node.body) == 1:
                        before += [cst.SimpleStatementLine([m]) for m in made[:-1]]
                    else:
                        body += [
                            m.with_changes(semicolon=_SEMICOLON) for m in made[:-1]
                        ]
                body.append(made[-1])
            else:
                body.append(small)
        line = updated_node.with_changes(body=body)
        if not before:
            return line
        before[0] = before[0].with_changes(leading_lines=line.leading_lines)
        return cst.FlattenSentinel([*before, line.with_changes(leading_lines=())])

    def _imports(
        self, original: cst.ImportFrom, updated: cst.ImportFrom
    ) -> list[cst.ImportFrom]:
        """The statement, with those of its names that move in statements before it."""
        if isinstance(original.names, cst.ImportStar):
            return [updated]
        module = "" if original.module is None else _dotted(original.module)
        targets: dict[str, list[int]] = {}
        for index, alias in enumerate(original.names):
            edit = self._move(alias)
            target = module
            if edit is not None:
                name = _dotted(alias.name)
                if f"{module}.{name}" != edit.old:
                    raise MismatchError(f"another import than the plan saw: {edit}")
                self.pending.discard(edit)
                target, _, new_name = edit.new.rpartition(".")
                if new_name != name:
                    raise MismatchError(f"an import would lose its name: {edit}")
            targets.setdefault(target, []).append(index)
        assert not isinstance(updated.names, cst.ImportStar)
        if len(targets) == 1:
            return [_from(updated, next(iter(targets)))]
        kept = targets.pop(module, [])
        made = []
        for target, indices in targets.items():
            names = [
                updated.names[i].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                for i in indices
            ]
            made.append(
                _from(updated, target).with_changes(
                    names=names,
                    lpar=None,
                    rpar=None,
                    semicolon=cst.MaybeSentinel.DEFAULT,
                )
            )
        if kept:
            rest = [updated.names[i] for i in kept]
            if updated.lpar is None:
                rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            made.append(updated.with_changes(names=rest))
        else:
            made[-1] = made[-1].with_changes(semicolon=updated.semicolon)
        return made


_SEMICOLON = cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))


def _from(statement: cst.ImportFrom, module: str) -> cst.ImportFrom:
    name = cst.parse_expression(module)
    assert isinstance(name, (cst.Name, cst.Attribute))
    return statement.with_changes(module=name)


def _inserted(
    args: Sequence[cst.Arg],
    place: int,
    new: cst.Arg,
    opening: cst.BaseParenthesizableWhitespace,
) -> list[cst.Arg]:
    """Arguments with a new one at a place; the first takes the layout of the one it stands before."""
    if place:
        return insert_entry(args, place - 1, new, opening)
    if not args:
        return [new]
    space: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace(" ")
    if isinstance(opening, cst.ParenthesizedWhitespace):
        # One argument a line.
        first = cst.TrailingWhitespace(newline=opening.first_line.newline)
        space = opening.with_changes(first_line=first, empty_lines=())
    return [new.with_changes(comma=cst.Comma(whitespace_after=space)), *args]


def _dotted(node: cst.BaseExpression) -> str:
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return ""
    return ".".join([node.value, *reversed(parts)])
