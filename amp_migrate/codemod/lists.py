"""Adding one entry to a written list (parameters, arguments, dict entries) in the list's own style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

Entry = TypeVar("Entry", cst.Param, cst.Arg, cst.DictElement, cst.ImportAlias)


def insert_entry(
    entries: Sequence[Entry],
    after: int,
    new: Entry,
    opening: cst.BaseParenthesizableWhitespace,
) -> list[Entry]:
    """``entries`` with ``new`` behind index ``after`` (-1: first).

    ``opening`` is the whitespace behind the opening bracket, the pattern for a new line where no
    separator shows it.
    """
    found = list(entries)
    if after < 0:
        found.insert(0, new)
        return found
    sibling = found[after]
    comma = sibling.comma
    if after < len(found) - 1:
        assert isinstance(comma, cst.Comma)
        new = new.with_changes(comma=_without_comment(comma))
    else:
        has_comma = isinstance(comma, cst.Comma)
        separator = _separator(found, after, opening, has_comma)
        if isinstance(comma, cst.Comma):
            separator = _with_comment_of(separator, comma)
            new = new.with_changes(comma=_without_comment(comma))
        found[after] = sibling.with_changes(comma=separator)
    found.insert(after + 1, new)
    return found


def _separator(
    entries: Sequence[Entry],
    last: int,
    opening: cst.BaseParenthesizableWhitespace,
    has_comma: bool,
) -> cst.Comma:
    if last > 0:
        comma = entries[last - 1].comma
        if isinstance(comma, cst.Comma):
            return _without_comment(comma)
    if has_comma and isinstance(opening, cst.ParenthesizedWhitespace):
        return _without_comment(cst.Comma(whitespace_after=opening))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _without_comment(comma: cst.Comma) -> cst.Comma:
    space = comma.whitespace_after
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return comma
    first = space.first_line.with_changes(
        comment=None, whitespace=cst.SimpleWhitespace("")
    )
    return comma.with_changes(
        whitespace_after=space.with_changes(first_line=first, empty_lines=())
    )


def _with_comment_of(separator: cst.Comma, original: cst.Comma) -> cst.Comma:
    """The separator, with the comments that stood behind the comma it replaces."""
    space, old = separator.whitespace_after, original.whitespace_after
    if not isinstance(old, cst.ParenthesizedWhitespace):
        return separator
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return separator if old.first_line.comment is None else original
    return separator.with_changes(
        whitespace_after=space.with_changes(
            first_line=old.first_line, empty_lines=old.empty_lines
        )
    )
