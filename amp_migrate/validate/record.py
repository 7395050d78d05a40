"""What was seen of one run: the lines of its log, read back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from amp_migrate.validate.order import Order

Line = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One run and what its log says; see `harness.recorder` and `harness.start` for the lines."""

    order: Order
    lines: tuple[Line, ...]
    stdout: str = ""
    killed: str = ""
    """Why the runner ended it; empty where it ended by itself."""
    _by_kind: dict[str, list[Line]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_kind: dict[str, list[Line]] = {}
        for line in self.lines:
            by_kind.setdefault(line["kind"], []).append(line)
        object.__setattr__(self, "_by_kind", by_kind)

    def all(self, kind: str) -> list[Line]:
        """The lines of one kind, in order."""
        return self._by_kind.get(kind, [])

    def last(self, kind: str) -> Line:
        """The last line of one kind; empty where there is none."""
        lines = self.all(kind)
        return lines[-1] if lines else {}

    @property
    def failure(self) -> str:
        """One line on how it failed; empty where it did not."""
        if self.killed:
            return self.killed
        exit_ = self.last("exit")
        if not exit_:
            return "the process died"
        if exit_["how"] != "failed":
            return ""
        where = f" ({place(exit_)})" if "path" in exit_ else ""
        return " ".join(str(exit_["error"]).split()) + where

    @property
    def error(self) -> str | None:
        """What the script raised, wherever that was; None where it did not fail by itself."""
        exit_ = self.last("exit")
        return str(exit_["error"]) if exit_.get("how") == "failed" else None

    @cached_property
    def events(self) -> list[Line]:
        """Losses and steps, in order."""
        return [line for line in self.lines if line["kind"] in ("loss", "step")]

    @property
    def losses(self) -> list[float]:
        """The true losses, in order; several to a step where several backward passes made it."""
        return [float(line["value"]) for line in self.all("loss")]

    @property
    def loaded(self) -> set[str]:
        """The real paths of the rewritten sources that Python asked for."""
        return {line["path"] for line in self.all("loaded")}


def shown(path: str) -> str:
    """A path as a person knows it: relative, where it is in the current directory."""
    real = os.path.realpath(path)
    here = str(Path.cwd().resolve() / "_")[:-1]
    return real.removeprefix(here)


def place(line: Line) -> str:
    """Where the code of a log line is."""
    return f"{shown(line['path'])}:{line['line']}"


def read(path: Path) -> tuple[Line, ...]:
    """The lines of a log so far; a last line that is not complete is left out."""
    if not path.exists():
        return ()
    return tuple(parsed(path.read_text(encoding="utf-8").splitlines(keepends=True)))


def parsed(lines: Iterable[str]) -> Iterable[Line]:
    """Log lines as data."""
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)
