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
    closing: cst.BaseParenthesizableWhitespace | None = None,
) -> list[Entry]:
    """``entries`` with ``new`` behind index ``after`` (-1: first).

    ``opening`` is the whitespace behind the opening bracket, the pattern for a new line where no
    separator shows it. ``closing`` is that before the closing bracket where the bracket keeps it: a
    comment in it is copied to its entry, and the caller takes it away with `without_comment`.
    """
    found = list(entries)
    if after < 0:
        found.insert(0, new)
        return found
    sibling = found[after]
    comma = sibling.comma
    if after < len(found) - 1:
        assert isinstance(comma, cst.Comma)
        # Comments on lines of their own stay with the entry below them.
        separator = _with_comment_of(
            separator_without_comment(comma), comma.whitespace_after, opening
        )
        found[after] = sibling.with_changes(comma=separator)
        space = without_comment(comma.whitespace_after)
        new = new.with_changes(comma=comma.with_changes(whitespace_after=space))
    else:
        has_comma = isinstance(comma, cst.Comma)
        separator = _separator(found, after, opening, has_comma)
        behind: list[cst.BaseParenthesizableWhitespace | None] = [closing]
        if isinstance(comma, cst.Comma):
            behind.append(comma.whitespace_after)
            space = without_comment(comma.whitespace_after)
            new = new.with_changes(comma=comma.with_changes(whitespace_after=space))
        for kept in ("whitespace_after_param", "whitespace_after_arg"):
            # Where there is no last comma, this is what stands before the bracket.
            own = getattr(sibling, kept, None)
            if own is not None:
                behind.append(own)
                new = new.with_changes(**{kept: without_comment(own)})
                sibling = sibling.with_changes(**{kept: cst.SimpleWhitespace("")})
        for one in behind:
            separator = _with_comment_of(separator, one, opening)
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
            return separator_without_comment(comma)
    if has_comma and isinstance(opening, cst.ParenthesizedWhitespace):
        return separator_without_comment(cst.Comma(whitespace_after=opening))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def without_comment(
    space: cst.BaseParenthesizableWhitespace,
) -> cst.BaseParenthesizableWhitespace:
    """Whitespace without the comment on its first line; comments on lines of their own stay."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = space.first_line.with_changes(
        comment=None, whitespace=cst.SimpleWhitespace("")
    )
    return space.with_changes(first_line=first)


def separator_without_comment(comma: cst.Comma) -> cst.Comma:
    """A comma, and the new line behind it if there is one, as the pattern for another."""
    space = comma.whitespace_after
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return comma
    first = space.first_line.with_changes(
        comment=None, whitespace=cst.SimpleWhitespace("")
    )
    return comma.with_changes(
        whitespace_after=space.with_changes(first_line=first, empty_lines=())
    )


def _with_comment_of(
    separator: cst.Comma,
    space: cst.BaseParenthesizableWhitespace | None,
    opening: cst.BaseParenthesizableWhitespace,
) -> cst.Comma:
    """The separator, with the comment that stands on the first line of some whitespace."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return separator
    pattern = separator.whitespace_after
    if space.first_line.comment is None:
        if isinstance(pattern, cst.ParenthesizedWhitespace):
            pattern = pattern.with_changes(first_line=space.first_line)
        return separator.with_changes(whitespace_after=pattern)
    if not isinstance(pattern, cst.ParenthesizedWhitespace):
        pattern = opening if isinstance(opening, cst.ParenthesizedWhitespace) else space
    return separator.with_changes(
        whitespace_after=pattern.with_changes(
            first_line=space.first_line, empty_lines=()
        )
    )
