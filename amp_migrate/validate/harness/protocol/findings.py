"""Findings of the monitor: told when they are new, counted afterwards."""

from __future__ import annotations

from typing import Any

from ..log import Log
from ..where import Line


class Findings:
    """Says each violation once per rule, file and line, at once; and all counts at the end."""

    def __init__(self, log: Log, protocol: dict[str, Any]) -> None:
        self._log = log
        self.protocol = protocol
        self._counts: dict[tuple[str, str, int], int] = {}
        self._details: dict[tuple[str, str, int], str] = {}

    def broken_by(self, call: str, state: str, behind_backward: bool = False) -> str:
        """The rule that a call of a scaler breaks, or nothing; see the table."""
        calls = self.protocol["calls"][call]
        found: str = calls[state]
        if found in calls:
            return ""
        if behind_backward:
            found = self.protocol["behind-backward"][found]
        return found

    def broken_with(self, use: str, gradients: str, state: str = "ready") -> str:
        """The rule that a use of gradients breaks."""
        found: str = self.protocol["gradients"][state][use][gradients]
        return found

    def report(self, rule: str, line: Line | None, detail: str = "") -> None:
        """``line``: None where none of the user's code was running."""
        path, number = (line.path, line.number) if line is not None else ("", 0)
        key = (rule, path, number)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count == 1:
            self._details[key] = detail
            self._say(key, final=False)

    def any(self, rule: str) -> bool:
        """Whether the rule was broken anywhere."""
        return any(name == rule for name, _, _ in self._counts)

    def finish(self) -> None:
        """Say every finding again, with its final count."""
        for key in self._counts:
            self._say(key, final=True)

    def _say(self, key: tuple[str, str, int], final: bool) -> None:
        rule, path, number = key
        self._log.say(
            "finding",
            rule=rule,
            path=path,
            line=number,
            detail=self._details[key],
            count=self._counts[key],
            final=final,
        )
