"""Diffs for the eye: what was removed and added in colour, the code in it highlighted.

Changed lines bring foreground and background of their own, and the rest have neither, so that all
of it can be read on dark and on light terminals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HEADERS = ("diff --git ", "--- ", "+++ ", "\\ No newline")
_LINES = {"-": "#f0f0f0 on #4a1a1f", "+": "#f0f0f0 on #153a20"}
_MARKS = {"-": "bold #ff7b72", "+": "bold #7ee787"}


def print_diff(diff: bytes, stream: IO[str]) -> None:
    """Write ``diff`` to ``stream`` with escape sequences, whatever ``stream`` is."""
    from rich.console import Console

    console = Console(file=stream, force_terminal=True, no_color=False)
    if console.color_system is None:
        console = Console(
            file=stream, force_terminal=True, no_color=False, color_system="standard"
        )
    # A control character in a source file is shown, not obeyed; the newlines of Windows are not.
    text = diff.decode("utf-8", "replace").replace("\r\n", "\n")
    for line in _styled(_CONTROL.sub("�", text).split("\n")[:-1]):
        console.print(line, soft_wrap=True, highlight=False)


def _styled(lines: list[str]) -> Iterator[Text]:
    from rich.text import Text

    hunk: list[str] = []
    in_header = True
    for line in lines:
        if line.startswith("diff --git "):
            in_header = True
        if not in_header and line[:1] in (" ", *_LINES):
            hunk.append(line)
            continue
        yield from _styled_hunk(hunk)
        hunk = []
        if line.startswith("@@ "):
            in_header = False
            yield Text(line, style="cyan")
        else:
            yield Text(line, style="bold" if line.startswith(_HEADERS) else "")
    yield from _styled_hunk(hunk)


def _styled_hunk(hunk: list[str]) -> Iterator[Text]:
    from rich.text import Text

    if not hunk:
        return
    sides = {
        mark: iter(_highlighted([line[1:] for line in hunk if line[0] in (" ", mark)]))
        for mark in _LINES
    }
    for line in hunk:
        mark = line[0]
        if mark == " ":
            for side in sides.values():
                next(side)
            yield Text(line)
        else:
            styled = Text(style=_LINES[mark]).append(mark, style=_MARKS[mark])
            yield styled.append_text(next(sides[mark]))


def _highlighted(lines: list[str]) -> list[Text]:
    """Each line of a piece of Python, highlighted as a whole so that long strings are seen."""
    from rich.syntax import Syntax
    from rich.text import Text

    whole = Syntax("", "python", theme="ansi_dark", tab_size=8).highlight(
        "\n".join(lines)
    )
    split = list(whole.split("\n", allow_blank=True))
    # The highlighter takes blank lines at the end off, and may add one.
    return [*split, *[Text("")] * len(lines)][: len(lines)]
