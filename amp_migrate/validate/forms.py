"""The two forms of a program that are compared, as plain data: how they came about is not said here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amp_migrate.core.results import Diagnostic, Loop, Outcome
from amp_migrate.validate.sites import Site


@dataclass(frozen=True)
class Rewriting:
    """A program before and after. Files by real path; those that are the same in both are left out."""

    files: frozenset[str]
    """All files of the program."""
    original: Mapping[str, bytes]
    rewritten: Mapping[str, bytes]
    sites: tuple[Site, ...] = ()
    """What there is to run, in files that the entry imports."""
    loops: tuple[Loop, ...] = ()
    all_needed: bool = True
    """Whether each rewritten file has to be loaded: not where some may be another program's."""

    @property
    def refusals(self) -> list[Diagnostic]:
        """Why training loops were left alone."""
        return [
            loop.diagnostic
            for loop in self.loops
            if loop.diagnostic is not None and loop.outcome is Outcome.LEFT_ALONE
        ]

    @property
    def under_amp(self) -> bool:
        """Whether some loop was migrated before."""
        return any(loop.outcome is Outcome.ALREADY for loop in self.loops)

    @property
    def scaled(self) -> bool:
        """Whether the rewrite scales losses: it does not for bfloat16."""
        return any(b"GradScaler" in text for text in self.rewritten.values())
