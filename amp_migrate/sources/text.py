"""Bytes of a Python file to text and back, without losing what the text does not show.

The rest of the program sees text whose lines end in ``\\n``. A `Document` remembers the encoding,
the byte order mark and the newlines, so that a rewritten text goes back in the form its file had.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from amp_migrate.core.results import SourceError
from amp_migrate.sources.lines import matching_blocks
from amp_migrate.sources.syntax import parse

NEWLINE = re.compile(r"\r\n|\r|\n")
"""A newline in any of the three spellings."""
_NEWLINE_BYTES = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Document:
    """One Python source as it was read."""

    path: str
    """The name that messages use."""
    data: bytes
    text: str
    encoding: str
    newlines: tuple[str, ...]
    """The newline of each line, in order; one fewer than lines where the last line has none."""

    @classmethod
    def decode(cls, path: str, data: bytes) -> Document:
        """Read ``data`` as Python itself would (PEP 263 cookie, byte order mark).

        Raises `SourceError` where that is impossible, or where the bytes would not come back.
        """
        encoding = _encoding(path, data)
        try:
            raw = data.decode(encoding)
        except UnicodeDecodeError as error:
            line = len(_NEWLINE_BYTES.findall(data[: error.start])) + 1
            raise SourceError(
                path,
                f"byte 0x{data[error.start]:02x} is not valid {_plain(encoding)}",
                line,
            ) from None
        except (LookupError, ValueError):
            raise SourceError(path, f"{encoding} is not an encoding for text") from None
        if "\0" in raw:
            raise SourceError(path, "contains a null byte")
        # A stateful or redundant encoding may spell the same text in several ways: rewriting one
        # line would then change others.
        try:
            faithful = raw.encode(encoding) == data
        except UnicodeError:
            faithful = False
        if not faithful:
            raise SourceError(
                path,
                f"its bytes would not survive a round trip through {_plain(encoding)}",
            )
        newlines = tuple(NEWLINE.findall(raw))
        return cls(path, data, NEWLINE.sub("\n", raw), encoding, newlines)

    def encode(self, text: str) -> bytes:
        """``text`` in this document's encoding and newlines.

        Lines that were there before keep their newline; new ones take the one most lines have.
        Raises `SourceError` where the encoding has no room for a character.
        """
        if text == self.text:
            return self.data
        try:
            return with_newlines(self.text, self.newlines, text).encode(self.encoding)
        except UnicodeEncodeError as error:
            culprit = error.object[error.start]
            raise SourceError(
                self.path,
                f"the rewrite needs {culprit!r}, which {_plain(self.encoding)} cannot encode",
            ) from None

    def split(self, text: str) -> list[str]:
        """The parts of ``text`` that stand by themselves: there is one."""
        return [text]

    def join(self, parts: Sequence[str]) -> str:
        """What `split` took apart."""
        return "".join(parts)

    def said(self, line: int) -> str:
        """A line of the text, counted from 1."""
        return self.text.split("\n")[line - 1]

    def place(self, line: int) -> tuple[int, int]:
        """(cell, line in it): there are no cells here, which is what 0 says."""
        return 0, line

    def line_in_file(self, cell: int, line: int) -> int:
        """The line itself: there are no cells here."""
        return line

    def heading(self, line: int) -> tuple[str, ...]:
        """The first lines of the classes and functions around a line, counted from 0."""
        return tuple(
            name for first, last, name in definitions(self.text) if first <= line < last
        )


@lru_cache(maxsize=4)
def definitions(text: str) -> tuple[tuple[int, int, str], ...]:
    """The first line (from 0), the end and the text of the first line of each class and function."""
    try:
        tree = parse(text, "")
    except SourceError:
        return ()
    lines = text.split("\n")
    return tuple(
        (
            min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1,
            node.end_lineno or node.lineno,
            lines[node.lineno - 1].strip(),
        )
        for node in ast.walk(tree)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    )


def with_newlines(before: str, newlines: Sequence[str], after: str) -> str:
    """``after`` with the newlines that ``before`` had, one for each line but the last.

    Lines that were there before keep theirs; new ones take the one most lines have.
    """
    counts = Counter(newlines)
    majority = counts.most_common(1)[0][0] if counts else "\n"
    if len(counts) <= 1:
        return after if majority == "\n" else after.replace("\n", majority)
    old_lines, new_lines = before.split("\n"), after.split("\n")
    endings = [majority] * (len(new_lines) - 1)
    for old, new, size in matching_blocks(old_lines, new_lines):
        for offset in range(size):
            if old + offset < len(newlines) and new + offset < len(endings):
                endings[new + offset] = newlines[old + offset]
    return "".join(
        line + end for line, end in zip(new_lines, [*endings, ""], strict=True)
    )


def _encoding(path: str, data: bytes) -> str:
    def first_lines() -> Iterator[bytes]:
        # The cookie is looked for line by line, and a lone carriage return ends a line in Python.
        start = 0
        for found in _NEWLINE_BYTES.finditer(data):
            yield data[start : found.start()] + b"\n"
            start = found.end()
        yield data[start:]

    try:
        encoding, _ = tokenize.detect_encoding(first_lines().__next__)
    except SyntaxError as error:
        message = str(error.msg)
        if message.startswith("invalid or missing encoding"):
            message = "not valid utf-8, and no other encoding is declared"
        raise SourceError(path, message.partition(" for ")[0], 1) from None
    return encoding


def _plain(encoding: str) -> str:
    return "utf-8" if encoding == "utf-8-sig" else encoding
