"""A program's texts through all rooms of lint: facts, program, checks, and what the user wants to hear."""

from __future__ import annotations

from collections.abc import Mapping

from amp_migrate.facts import read_module
from amp_migrate.findings import Finding
from amp_migrate.lint.checks import CHECKS
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import is_selected
from amp_migrate.program_work import ProgramWork
from amp_migrate.project import Program
from amp_migrate.results import Result, SourceError


class Lint(ProgramWork):
    """The lint of one program."""

    def run(self) -> dict[str, Result | SourceError]:
        """An entry for each given file that uses torch, or cannot be read."""
        texts = self.sources.texts
        context = self._context(texts)
        found: dict[str, Result | SourceError] = {}
        for file in self.given:
            text = texts[file]
            if file in self.errors:
                found[file] = self.errors[file]
            elif "torch" in text:
                findings = self._findings(context, file)
                found[file] = Result(
                    self.telling.file(file), text, text, findings=findings
                )
        return found

    def _context(self, texts: Mapping[str, str]) -> Context:
        modules = []
        for file, text in texts.items():
            try:
                modules.append(read_module(text, file))
            except SourceError as error:
                if "torch" in text:
                    self.errors[file] = self.telling.error(file, error)
        program = Program(modules, self.sources.layout)
        return Context(program, self.sources, self.options, self.telling)

    def _findings(self, context: Context, file: str) -> tuple[Finding, ...]:
        text, options = self.sources.texts[file], self.options.lint
        found = [
            finding
            for check in CHECKS
            if check.words.search(text)
            and any(is_selected(code, options) for code in check.codes)
            for finding in check.run(context, file)
            if is_selected(finding.code, options)
        ]
        found.sort(key=lambda one: (one.place.line, one.place.column, one.code))
        return tuple(found)


lint_program = Lint.work
