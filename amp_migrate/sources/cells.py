"""What stands for a notebook's cells and magics in the one program text that they become.

`sources.notebook` writes these spellings and reads them back; whoever reads the program may ask for
them here. None can be in a user's code: a notebook that holds ``RESERVED`` already is not read.
"""

from __future__ import annotations

import re

RESERVED = re.compile(r"amp-migrate: (?:cell|magic) \d|_amp_migrate_magic_\d")

_CELL = re.compile(r"amp-migrate: cell (\d+)")
_MAGIC = re.compile(r"amp-migrate: magic (\d+)\n*")


def cell_mark(number: int) -> str:
    """The statement, on a line of its own at the top level, that a cell begins after.

    It is a bare string: no name and no call for anybody to wonder about.
    """
    return f'"amp-migrate: cell {number}"'


def cell_number(constant: object) -> int | None:
    """The cell that begins after a statement which is nothing but ``constant``, if it is a mark."""
    found = _CELL.fullmatch(constant) if isinstance(constant, str) else None
    return int(found[1]) if found else None


def is_magic(constant: object) -> bool:
    """Whether a statement which is nothing but ``constant`` stands for a magic or a shell command."""
    return isinstance(constant, str) and _MAGIC.fullmatch(constant) is not None
