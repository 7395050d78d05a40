"""The checks there are: which codes each may find, and the words without which it finds none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

from amp_migrate.findings import Finding
from amp_migrate.lint.context import Context

Run = Callable[[Context, str], Iterable[Finding]]
"""A check of one file of a program, by its path."""


@dataclass(frozen=True, slots=True)
class Check:
    """One checker function, ``check`` of a module that is imported only where it is needed."""

    module: str
    """Below ``amp_migrate.lint``."""
    codes: tuple[str, ...]
    words: re.Pattern[str]
    """What a text holds if the check may find something in it."""

    def run(self, context: Context, file: str) -> Iterable[Finding]:
        """What is found in one file."""
        check: Run = import_module(f"amp_migrate.lint.{self.module}").check
        return check(context, file)


CHECKS: tuple[Check, ...] = ()
