"""Findings of the monitor: told when they are new, counted afterwards."""

from __future__ import annotations

from ..log import Log
from ..where import Line
from .rules import RULES


class Findings:
    """Says each violation once per rule, file and line, at once; and all counts at the end."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._counts: dict[tuple[str, str, int], int] = {}
        self._details: dict[tuple[str, str, int], str] = {}

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
            severity=RULES[rule].severity,
            path=path,
            line=number,
            message=RULES[rule].message,
            detail=self._details[key],
            count=self._counts[key],
            final=final,
        )
