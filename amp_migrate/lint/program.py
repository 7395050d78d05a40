"""A program's texts through all rooms of lint: facts, program, checks, and what the user wants to hear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from amp_migrate.facts import read_module
from amp_migrate.findings import Finding
from amp_migrate.lint.checks import CHECKS
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import selection
from amp_migrate.lint.suppressions import silenced
from amp_migrate.program_work import ProgramWork
from amp_migrate.programs import ProgramSources
from amp_migrate.project import Program
from amp_migrate.results import Result, SourceError

if TYPE_CHECKING:
    from amp_migrate.lint.fixes.mending import Look


class Lint(ProgramWork):
    """The lint of one program."""

    def run(self) -> dict[str, Result | SourceError]:
        """An entry for each given file that uses torch, or cannot be read."""
        before = Looked(self)
        after: Look = before
        fixed: Mapping[str, list[Finding]] = {}
        if self.options.lint.fix:
            # Imported only where something may be written.
            from amp_migrate.lint.fixes.mending import Mender

            mender = Mender(before, unsafe=self.options.lint.unsafe_fixes)
            after, fixed = mender.run(), mender.fixed
        found: dict[str, Result | SourceError] = {}
        for file in self.given:
            if file in self.errors:
                found[file] = self.errors[file]
            elif file in before.found:
                found[file] = Result(
                    self.telling.file(file),
                    self.sources.texts[file],
                    after.work.sources.texts[file],
                    findings=after.found[file],
                    fixed=tuple(fixed.get(file, ())),
                    silenced=after.silenced[file],
                )
        return found


class Looked:
    """What all checks found in the given files of a program."""

    def __init__(self, work: ProgramWork) -> None:
        self.work = work
        self.program = self._read()
        context = Context(self.program, work.sources, work.options, work.telling)
        found: dict[str, tuple[Finding, ...]] = {}
        silent: dict[str, tuple[Finding, ...]] = {}
        for file in work.given:
            if file not in work.errors and "torch" in work.sources.texts[file]:
                kept, quiet = self._findings(context, file)
                found[file] = tuple(sorted(kept, key=_order))
                silent[file] = tuple(sorted(quiet, key=_order))
        self.found: Mapping[str, tuple[Finding, ...]] = found
        self.silenced: Mapping[str, tuple[Finding, ...]] = silent

    def again(self, sources: ProgramSources) -> Looked:
        """The same for other texts; raises `SourceError` where they cannot be read."""
        old = self.work
        looked = Looked(Lint(sources, old.options, old.given, old.shown))
        for file, error in looked.work.errors.items():
            if file not in old.errors:
                raise error
        return looked

    def _read(self) -> Program:
        modules = []
        for file, text in self.work.sources.texts.items():
            try:
                modules.append(read_module(text, file))
            except SourceError as error:
                if "torch" in text:
                    self.work.errors[file] = self.work.telling.error(file, error)
        return Program(modules, self.work.sources.layout)

    def _findings(
        self, context: Context, file: str
    ) -> tuple[list[Finding], list[Finding]]:
        """What was found in a file, and what comments keep quiet of it."""
        sources = self.work.sources
        root = None if sources.layout is None else sources.layout.root
        chosen = selection(file, root, self.work.options.lint)
        found = [
            finding
            for check in CHECKS
            if check.words.search(sources.texts[file])
            and any(map(chosen.takes, check.codes))
            for finding in check.run(context, file)
            if chosen.takes(finding.code)
        ]
        return silenced(context, file, found, chosen)


def _order(one: Finding) -> tuple[int, str, int, int, str]:
    # Names of cells that are longer are those of later cells.
    place = one.place
    return (len(place.path), place.path, place.line, place.column, one.code)


lint_program = Lint.work
