"""Unified diffs that ``git apply`` and ``patch -p1`` take.

They are made of bytes, since that is what those programs compare: a file's own newlines and
encoding are in its diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from amp_migrate.run.outcome import Migration
from amp_migrate.sources.discovery import git_root
from amp_migrate.sources.lines import matching_blocks

_CONTEXT = 3
_WIDEST = 80
"""Characters of a heading."""
_NO_NEWLINE = b"\n\\ No newline at end of file\n"
_ESCAPES = {
    7: "a",
    8: "b",
    9: "t",
    10: "n",
    11: "v",
    12: "f",
    13: "r",
    34: '"',
    92: "\\",
}


def of_migrations(migrations: Iterable[Migration], cwd: str | None = None) -> bytes:
    """One patch for all files that change, to be applied from ``cwd``."""
    here = cwd or str(Path.cwd())
    return b"".join(
        unified_diff(
            name_in_patch(one.document.path, here),
            one.document.data,
            one.output,
            one.document.heading,
        )
        for one in migrations
        if one.changed
    )


def name_in_patch(path: str, cwd: str) -> str:
    """``path`` as a patch must call it: relative to where git, or ``patch -p1``, starts from.

    That is the root of the git repository that ``cwd`` is in, as in git's own diffs; outside of any
    repository it is ``cwd``. For a file that is elsewhere, its own repository is the next best.
    Links are resolved, because git refuses to look behind them.
    """
    real = Path(cwd, path).resolve()
    here = Path(cwd).resolve()
    bases = [git_root(str(here)) or str(here), git_root(str(real.parent)), real.anchor]
    base = next(
        base for base in bases if base is not None and real.is_relative_to(base)
    )
    return real.relative_to(base).as_posix()


Heading = Callable[[int], Sequence[str]]
"""What a line of the old file, counted from 0, is a part of, from the outside in."""


def unified_diff(
    name: str, before: bytes, after: bytes, heading: Heading | None = None
) -> bytes:
    """The diff of one file, in the form of ``git diff``; nothing where the two are equal.

    ``heading`` says what stands behind the line numbers of a hunk, where git puts the function.
    """
    if before == after:
        return b""
    old, new = _lines(before), _lines(after)
    left, right = _quoted("a/" + name), _quoted("b/" + name)
    # A tab ends a name that holds spaces: patch would otherwise take a part of it for a date.
    end = b"\t\n" if " " in name else b"\n"
    parts = [b"diff --git " + left + b" " + right + b"\n"]
    parts += [b"--- " + left + end, b"+++ " + right + end]
    for hunk in _hunks(_changes(old, new)):
        parts += _render(hunk, old, new, heading)
    return b"".join(parts)


_Change = tuple[int, int, int, int]
"""Lines [a, b) of the old file become lines [c, d) of the new one, as (a, b, c, d)."""


def _changes(old: list[bytes], new: list[bytes]) -> Iterator[_Change]:
    at_old = at_new = 0
    for start_old, start_new, size in [
        *matching_blocks(old, new),
        (len(old), len(new), 0),
    ]:
        if start_old > at_old or start_new > at_new:
            yield at_old, start_old, at_new, start_new
        at_old, at_new = start_old + size, start_new + size


def _hunks(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    """Changes whose context would touch or overlap go together."""
    hunk: list[_Change] = []
    for change in changes:
        if hunk and change[0] - hunk[-1][1] > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _render(
    hunk: list[_Change], old: list[bytes], new: list[bytes], heading: Heading | None
) -> Iterator[bytes]:
    lead = min(_CONTEXT, hunk[0][0])
    trail = min(_CONTEXT, len(old) - hunk[-1][1])
    start_old, start_new = hunk[0][0] - lead, hunk[0][2] - lead
    stop_old, stop_new = hunk[-1][1] + trail, hunk[-1][3] + trail
    ranges = (_range(start_old, stop_old), _range(start_new, stop_new))
    about = _about(hunk, old[start_old:stop_old], heading) if heading else ""
    yield f"@@ -{ranges[0]} +{ranges[1]} @@{about and ' '}{about}\n".encode()
    at = start_old
    for old_start, old_stop, new_start, new_stop in hunk:
        yield from _marked(b" ", old[at:old_start])
        yield from _marked(b"-", old[old_start:old_stop])
        yield from _marked(b"+", new[new_start:new_stop])
        at = old_stop
    yield from _marked(b" ", old[at:stop_old])


def _about(hunk: list[_Change], shown: list[bytes], heading: Heading) -> str:
    """The innermost of what is around each change, but for what stands in the hunk itself."""
    seen = {line.strip() for line in shown}
    found: dict[str, None] = {}
    for start, stop, _, _ in hunk:
        # What is put between two lines goes with the line before.
        line = start - 1 if start == stop and start else start
        around = (one for one in reversed(heading(line)) if one.encode() not in seen)
        if name := next(around, ""):
            found[name if len(name) <= _WIDEST else f"{name[: _WIDEST - 1]}…"] = None
    return ", ".join(found)


def _range(start: int, stop: int) -> str:
    size = stop - start
    if size == 1:
        return str(start + 1)
    # Of an empty range, the number is that of the line before it.
    return f"{start + 1 if size else start},{size}"


def _marked(mark: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + (line if line.endswith(b"\n") else line + _NO_NEWLINE)


def _quoted(name: str) -> bytes:
    """A file name as git writes it: in quotes, C-style, where it holds anything unusual."""
    raw = os.fsencode(name)
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in raw):
        return raw
    escaped = (
        (
            f"\\{_ESCAPES[byte]}"
            if byte in _ESCAPES
            else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        )
        for byte in raw
    )
    return f'"{"".join(escaped)}"'.encode()


def _lines(data: bytes) -> list[bytes]:
    # Not splitlines(): to git and patch only a line feed ends a line.
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])
