"""Where the sources of a notebook's cells stand in its JSON text, and how a new one is spelled there.

Writing JSON anew would change bytes that nobody asked to change: indentation, order, escapes. So
a new source is put in the place of the old one, in the old one's style, and the rest stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from amp_migrate.sources.lines import matching_blocks

_SPACE = re.compile(r"[ \t\r\n]*")
# A line of a JSON string as it is spelled, up to and with the newline that it escapes.
_LINE = re.compile(r"(?:[^\\]|\\(?!n|u000[aA]).)*(?:\\n|\\u000[aA]|\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\u(?!00[0-7])")
_DECODER = json.JSONDecoder()

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RawCell:
    """One cell of any kind, as offsets in the JSON text."""

    kind: str
    span: Span
    source: Span
    value: str
    """What the source says, its lines joined."""


def cells(raw: str) -> list[RawCell]:
    """The cells of the notebook that ``raw`` is; it has to be valid JSON in the form of a notebook."""
    top = _members(raw, _skip(raw, int(raw.startswith("\ufeff"))))
    found = []
    for start, stop in _items(raw, top["cells"][0]):
        members = _members(raw, start)
        source = members["source"]
        value = _value(raw, source)
        found.append(
            RawCell(
                kind=str(_value(raw, members["cell_type"])),
                span=(start, stop),
                source=source,
                value="".join(value) if isinstance(value, list) else str(value),
            )
        )
    return found


def line_in_file(raw: str, cell: RawCell, line: int) -> int:
    """The line of ``raw`` in which a line of a cell, both from 1, begins."""
    start = cell.source[0]
    if raw[start] != '"':
        passed = 0
        for span in _items(raw, start):
            start = span[0]
            passed += str(_value(raw, span)).count("\n")
            if passed >= line:
                break
    return raw.count("\n", 0, start) + 1


def spelled(raw: str, cell: RawCell, value: str, others: Sequence[RawCell]) -> str:
    """JSON for ``value`` in the style of the source of ``cell``; lines that stay keep their spelling.

    Where that source is too short to show a style, those of the ``others`` decide.
    """
    start, stop = cell.source
    ascii_only = _escapes(raw[start:stop], raw)
    if raw[start] == '"':
        return f'"{_string(raw[start + 1 : stop - 1], cell.value, value, ascii_only)}"'
    spans = _items(raw, start)
    old = [str(_value(raw, span)) for span in spans]
    # Python's Jupyter ends a line where Python does (at a form feed, too), JavaScript's at newlines.
    new = (
        value.splitlines(keepends=True)
        if old == cell.value.splitlines(keepends=True)
        else _lines(value)
    )
    if not new:
        return "[]"
    items = [json.dumps(line, ensure_ascii=ascii_only) for line in new]
    for at_old, at_new, size in matching_blocks(old, new):
        for offset in range(size):
            first, last = spans[at_old + offset]
            items[at_new + offset] = raw[first:last]
    before, between, after = _layout(raw, cell, others)
    return f"[{before}{between.join(items)}{after}]"


def _string(raw: str, old: str, new: str, ascii_only: bool) -> str:
    spellings = [found for found in _LINE.findall(raw) if found]
    before, after = _lines(old), _lines(new)
    parts = [json.dumps(line, ensure_ascii=ascii_only)[1:-1] for line in after]
    for at_old, at_new, size in matching_blocks(before, after):
        parts[at_new : at_new + size] = spellings[at_old : at_old + size]
    return "".join(parts)


def _layout(raw: str, cell: RawCell, others: Sequence[RawCell]) -> tuple[str, str, str]:
    """What stands before, between and after the lines of a source that is a list."""
    start, stop = cell.source
    spans = _items(raw, start)
    if len(spans) > 1:
        between = raw[spans[0][1] : spans[1][0]]
        return raw[start + 1 : spans[0][0]], between, raw[spans[-1][1] : stop - 1]
    for other in others:
        if raw[other.source[0]] == "[" and len(_items(raw, other.source[0])) > 1:
            before, between, after = _layout(raw, other, ())
            break
    else:
        before, between, after = "", ", ", ""
    if spans:
        before, after = raw[start + 1 : spans[0][0]], raw[spans[0][1] : stop - 1]
        between = f",{before}" if before else between
    return before, between, after


def _escapes(source: str, raw: str) -> bool:
    """Whether the JSON spells what is not ASCII with escapes."""
    for text in (source, raw):
        if not text.removeprefix("\ufeff").isascii():
            return False
        if _ESCAPED.search(text):
            return True
    return False


def _lines(value: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", value)


# -- JSON ---------------------------------------------------------------------------------------------


def _skip(raw: str, at: int) -> int:
    found = _SPACE.match(raw, at)
    return found.end() if found else at


def _value(raw: str, span: Span) -> object:
    value: object = _DECODER.raw_decode(raw, span[0])[0]
    return value


def _end(raw: str, at: int) -> int:
    return _DECODER.raw_decode(raw, at)[1]


def _items(raw: str, at: int) -> list[Span]:
    """Where the items of the array that begins at ``at`` are."""
    found: list[Span] = []
    at = _skip(raw, at + 1)
    while raw[at] != "]":
        end = _end(raw, at)
        found.append((at, end))
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return found


def _members(raw: str, at: int) -> dict[str, Span]:
    """Where the values of the object that begins at ``at`` are; of equal keys, the last counts."""
    found: dict[str, Span] = {}
    at = _skip(raw, at + 1)
    while raw[at] != "}":
        key, end = _DECODER.raw_decode(raw, at)
        at = _skip(raw, _skip(raw, end) + 1)
        end = _end(raw, at)
        found[key] = (at, end)
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return found
