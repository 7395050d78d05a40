"""A notebook as one Python program, and an edited program back into the notebook's bytes.

The program is the code cells in order, with a mark (`sources.cells`) on a line of its own between
two of them and IPython's own syntax masked (`sources.ipython`). A cell that is another program, as
``%%bash`` says, is left out. On the way back only the sources of cells that changed are put into the
JSON (`sources.splice`); every other byte stays.

Cells are counted as one counts them on the screen: from 1, cells of text too.

``await`` outside of a function, which IPython allows, stays as it is: to read it is no error, only to
compile it would be. The program is what runs when the cells run once, from the top: that somebody
may run them in another order is out of reach.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from amp_migrate.core.results import SourceError
from amp_migrate.sources import ipython, splice
from amp_migrate.sources.cells import RESERVED, cell_mark
from amp_migrate.sources.extra import unreadable
from amp_migrate.sources.ipython import Kind, LostMarkError
from amp_migrate.sources.lines import matching_blocks
from amp_migrate.sources.syntax import parse
from amp_migrate.sources.text import NEWLINE, with_newlines

_MARK = re.compile(r'^"amp-migrate: cell (\d+)"\n', re.MULTILINE)
_FORMAT = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell."""

    number: int
    raw: splice.RawCell
    source: str
    """Its lines, ended by ``\\n``, without the indentation that all of them may share."""
    newlines: tuple[str, ...]
    indent: str
    text: str
    """Its part of the program."""
    masks: tuple[ipython.Mask, ...]


@dataclass(frozen=True, slots=True)
class Notebook:
    """One notebook as it was read."""

    path: str
    """The name that messages use."""
    data: bytes
    text: str
    """The program."""
    raw: str
    """``data`` as text: JSON."""
    cells: tuple[Cell, ...]
    """Those that are part of the program."""

    @classmethod
    def decode(cls, path: str, data: bytes) -> Notebook:
        """Read ``data`` as Jupyter would.

        Raises `SourceError` where that is impossible, where it is no Python notebook, or where a cell
        cannot be read as Python.
        """
        try:
            raw = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            byte = data[error.start]
            message = f"byte 0x{byte:02x} is not valid utf-8"
            raise SourceError(path, message, line) from None
        _check(path, raw)
        cells: list[Cell] = []
        magics = 1
        for number, raw_cell in enumerate(splice.cells(raw), 1):
            if raw_cell.kind == "code":
                cell = _cell(path, number, raw_cell, magics)
                magics += len(cell.masks)
                if not any(one.only and one.kind is Kind.LINE for one in cell.masks):
                    cells.append(cell)
        notebook = cls(path, data, _joined(cells), raw, tuple(cells))
        assert notebook.split(notebook.text) == [cell.text for cell in cells]
        return notebook

    def encode(self, text: str) -> bytes:
        """The notebook with ``text``, an edited program, in its cells.

        Raises `LostMarkError` where the edits displaced what stands for a cell or a magic.
        """
        if text == self.text:
            return self.data
        parts: list[str] = []
        at = 0
        others = [cell.raw for cell in self.cells]
        for cell, piece in zip(self.cells, self.split(text), strict=True):
            if piece == cell.text:
                continue
            start, stop = cell.raw.source
            value = _restored(cell, ipython.unmask(piece, cell.masks))
            parts += [
                self.raw[at:start],
                splice.spelled(self.raw, cell.raw, value, others),
            ]
            at = stop
        return "".join([*parts, self.raw[at:]]).encode("utf-8")

    def split(self, text: str) -> list[str]:
        """The part of each code cell in ``text``, this program or one edited from it.

        Raises `LostMarkError` where the marks are not all there, in order.
        """
        found = [int(number) for number in _MARK.findall(text)]
        if found != [cell.number for cell in self.cells[1:]]:
            raise LostMarkError(f"the marks between cells are lost: {found}")
        pieces = _MARK.split(text)[::2] if self.cells else []
        return [piece.removesuffix("\n") for piece in pieces]

    def join(self, parts: Sequence[str]) -> str:
        """What `split` took apart."""
        pairs = zip(self.cells, parts, strict=True)
        return _joined([replace(cell, text=part) for cell, part in pairs])

    def said(self, line: int) -> str:
        """A line of the program as its cell has it, magics and all."""
        number, inside = self.place(line)
        for cell in self.cells:
            if cell.number == number:
                return NEWLINE.sub("\n", cell.raw.value).split("\n")[inside - 1]
        return ""

    def place(self, line: int) -> tuple[int, int]:
        """(cell, line in it) of a line of the program; a mark counts for the cell it introduces."""
        first = 1
        number, inside = 0, line
        for cell in self.cells:
            if number and line < first - 1:
                break
            number, inside = cell.number, max(line - first + 1, 1)
            first += cell.text.count("\n") + 2
        return number, inside

    def line_in_file(self, cell: int, line: int) -> int:
        """The line of JSON that holds a line of a cell."""
        for one in self.cells:
            if one.number == cell:
                return splice.line_in_file(self.raw, one.raw, line)
        return 1

    def heading(self, line: int) -> tuple[str, ...]:
        """The cell that a line of the file, counted from 0, belongs to, in words for a diff.

        None where it belongs to no code cell, or to several.
        """
        start = 0
        for _ in range(line):
            start = self.raw.find("\n", start) + 1
            if not start:
                return ()
        stop = self.raw.find("\n", start)
        stop = len(self.raw) if stop < 0 else stop
        found = [
            cell.number
            for cell in self.cells
            if cell.raw.span[0] < max(stop, start + 1) and start < cell.raw.span[1]
        ]
        return (f"cell {found[0]}",) if len(found) == 1 else ()


def legible_code(data: bytes) -> str:
    """The code of a notebook at a glance: every code cell as it stands there."""
    text = data.decode("utf-8-sig", "replace")
    try:
        cells = json.loads(text)["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return "\n".join("".join(source) for source in code)
    except (ValueError, TypeError, LookupError, RecursionError):
        # Not what it should be; lines of code may still be among its strings.
        return re.sub(r'\\n|"', "\n", text)


def _check(path: str, raw: str) -> None:
    """Raise `SourceError` unless ``raw`` is a valid notebook for Python that `splice` reads alike."""
    text = raw.removeprefix("\ufeff")
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise SourceError(path, f"not valid JSON: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError):
        raise SourceError(path, "not valid JSON: nested too deeply") from None
    version = value.get("nbformat") if isinstance(value, dict) else None
    if not isinstance(version, int):
        raise SourceError(path, "JSON, but not a notebook")
    if version != _FORMAT:
        message = f"a notebook of format {version}; only format {_FORMAT} is read"
        raise SourceError(path, message)
    notebook = _with_nbformat(path, text)
    metadata = notebook["metadata"]
    for stated in (
        metadata.get("language_info", {}).get("name"),
        metadata.get("kernelspec", {}).get("language"),
    ):
        if stated and str(stated).lower() not in ("python", "ipython"):
            raise SourceError(path, f"a notebook for {stated}, not for Python")
    read = [(cell["cell_type"], cell["source"]) for cell in notebook["cells"]]
    if read != [(cell.kind, cell.value) for cell in splice.cells(raw)]:
        raise SourceError(path, "its cells cannot be found in the text of the file")


def _with_nbformat(path: str, text: str) -> Any:
    # Imported here: the base installation is without it, and most files are no notebooks.
    try:
        import nbformat
        from nbformat import reader
    except ImportError:
        raise unreadable(path) from None
    read: Any = reader.reads  # nbformat does not say what it takes
    try:
        with warnings.catch_warnings():
            # About cells without an id, which is none of this program's business.
            warnings.simplefilter("ignore")
            notebook = read(text)
            nbformat.validate(notebook, relax_add_props=True)
    except (
        # What it has not been told to expect, nbformat trips over in ways of its own.
        *(nbformat.ValidationError, ValueError, TypeError),
        *(AttributeError, LookupError),
    ) as error:
        words = next(iter(str(error).splitlines()), type(error).__name__)
        raise SourceError(path, f"not a valid notebook: {words[:100]}") from None
    return notebook


def _cell(path: str, number: int, raw: splice.RawCell, first_magic: int) -> Cell:
    def error(line: int, message: str) -> SourceError:
        return SourceError(path, f"cell {number}, line {line}: {message}")

    whole = NEWLINE.sub("\n", raw.value)
    source, indent = _dedented(whole)
    reserved = RESERVED.search(source)
    if reserved is not None:
        line = source.count("\n", 0, reserved.start()) + 1
        raise error(line, f"{reserved[0]!r} is reserved for amp-migrate")
    try:
        text, masks = ipython.mask(source, first_magic)
    except ipython.MaskError as problem:
        raise error(problem.line, problem.message) from None
    try:
        parse(text, path)
    except SourceError as problem:
        raise error(problem.line or 1, problem.message) from None
    newlines = tuple(NEWLINE.findall(raw.value))
    cell = Cell(number, raw, source, newlines, indent, text, masks)
    if _restored(cell, ipython.unmask(text, masks)) != raw.value:
        raise error(1, "it would not survive being read and written")
    return cell


def _dedented(source: str) -> tuple[str, str]:
    """A cell without the indentation of its first line, which IPython takes off, and that."""
    found = re.match(r"(?:[ \t]*\n)*([ \t]+)(?=\S)", source)
    if found is None:
        return source, ""
    return re.sub(rf"(?m)^{found[1]}", "", source), found[1]


def _restored(cell: Cell, source: str) -> str:
    """A cell's new source with the indentation and the newlines of the old one."""
    before = NEWLINE.sub("\n", cell.raw.value)
    after = source
    if cell.indent:
        lines = source.split("\n")
        fresh = [cell.indent + line if line else line for line in lines]
        known = before.split("\n")
        for old, new, size in matching_blocks(cell.source.split("\n"), lines):
            fresh[new : new + size] = known[old : old + size]
        after = "\n".join(fresh)
    return with_newlines(before, cell.newlines, after)


def _joined(cells: Sequence[Cell]) -> str:
    parts = []
    for index, cell in enumerate(cells):
        mark = f"{cell_mark(cell.number)}\n" if index else ""
        parts.append(f"{mark}{cell.text}\n")
    return "".join(parts)
