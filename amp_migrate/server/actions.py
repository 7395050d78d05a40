"""What an editor offers to do: the fixes of lint, and training loops to be put under AMP."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lsprotocol import types

from amp_migrate.core.findings import Finding
from amp_migrate.core.places import Place
from amp_migrate.core.results import Loop, Outcome
from amp_migrate.server.buffers import Buffer, Text
from amp_migrate.server.diagnostics import Teller

QUICK = types.CodeActionKind.QuickFix.value
FIX_ALL = "source.fixAll.amp-migrate"
UNDER_AMP = "refactor.rewrite.amp-migrate"
KINDS: Sequence[str] = (QUICK, FIX_ALL, UNDER_AMP)

_HEADER = re.compile(r"[ \t]*(?:async[ \t]+)?(for|while|def)\b")


@dataclass(frozen=True)
class Offer:
    """What may be done in one document."""

    teller: Teller
    buffer: Buffer
    text: Text
    wanted: types.CodeActionParams

    def kind(self, kind: str) -> bool:
        """Whether the editor asks for such actions."""
        only = self.wanted.context.only
        return not only or any(f"{kind}.".startswith(f"{one}.") for one in only)

    def fixes(self, findings: Sequence[Finding]) -> Iterator[types.CodeAction]:
        """For each finding under the cursor, and for all of the file."""
        for one in findings if self.kind(QUICK) else ():
            if one.fix is None or self.buffer.find(one.place.path) != self.text:
                continue
            diagnostic = self.teller.finding(self.text, one)
            if not _touch(diagnostic.range, self.wanted.range):
                continue
            doubt = "" if one.fix.safe else " (changes what is computed)"
            yield types.CodeAction(
                title=f"{one.code}: {one.fix.title}{doubt}",
                kind=QUICK,
                diagnostics=[diagnostic],
                is_preferred=one.fix.safe,
                data=self._data(QUICK, one.code, one.place),
            )
        if self.kind(FIX_ALL) and any(one.fix and one.fix.safe for one in findings):
            yield types.CodeAction(
                title="Fix all that amp-migrate can fix safely in this file",
                kind=FIX_ALL,
                data=self._data(FIX_ALL),
            )

    def migrations(
        self, loops: Sequence[Loop], *, disabled: bool
    ) -> Iterator[types.CodeAction]:
        """For the loop under the cursor. ``disabled``: the editor shows what cannot be done, and why."""
        for one in loops if self.kind(UNDER_AMP) else ():
            if self.buffer.find(one.place.path) != self.text:
                continue
            first, last = _span(self.text.lines, one.place.line - 1)
            if not first <= self.wanted.range.start.line <= last:
                continue
            action = types.CodeAction("Put this training loop under AMP", UNDER_AMP)
            if one.outcome is Outcome.MIGRATED:
                action.data = self._data(UNDER_AMP, place=one.place)
                yield action
            elif one.outcome is Outcome.LEFT_ALONE and one.diagnostic and disabled:
                found = one.diagnostic
                reason = f"{found.code}: {found.message}"
                action.disabled = types.CodeActionDisabled(reason)
                yield action

    def _data(
        self, kind: str, code: str = "", place: Place | None = None
    ) -> dict[str, Any]:
        return {
            "path": self.buffer.path,
            "version": [list(one) for one in self.buffer.version],
            "kind": kind,
            "code": code,
            "place": None if place is None else asdict(place),
        }


def _touch(one: types.Range, other: types.Range) -> bool:
    return _order(one.start) <= _order(other.end) and (
        _order(other.start) <= _order(one.end)
    )


def covers(range_: types.Range, position: types.Position) -> bool:
    """Whether a position is in a range, or at its end."""
    return _touch(range_, types.Range(position, position))


def _order(position: types.Position) -> tuple[int, int]:
    return position.line, position.character


def _span(lines: Sequence[str], row: int) -> tuple[int, int]:
    """The rows of the loop, or else the function, around a row, by the indentation: it only decides
    where an action is offered."""

    def depth(line: str) -> int:
        return len(line) - len(line.lstrip())

    first, least = row, depth(lines[row])
    for above in range(row - 1, -1, -1):
        line = lines[above]
        if line.strip() and depth(line) < least:
            least = depth(line)
            if _HEADER.match(line):
                first = above
                break
    last = row
    for below in range(row + 1, len(lines)):
        if lines[below].strip():
            if depth(lines[below]) <= least:
                break
            last = below
    return first, last
