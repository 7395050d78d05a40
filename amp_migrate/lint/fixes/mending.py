"""Mends what was found, round by round, and keeps only what made its finding go away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, cast

from amp_migrate.core.findings import Finding, Severity
from amp_migrate.core.results import SourceError
from amp_migrate.edit.program_work import ProgramWork
from amp_migrate.edit.rewritten import WrongError
from amp_migrate.edit.verify import comments
from amp_migrate.lint.fixes.edits import Edit, line_of
from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.programs import ProgramSources
from amp_migrate.sources.document import open_document
from amp_migrate.sources.syntax import parse

_ROUNDS = 50
"""More than any file needs: fixes of one statement are made one after the other."""

_Key = tuple[str, str, str, str]


class Look(Protocol):
    """What a look at a program brought to light."""

    work: ProgramWork
    program: Program
    found: Mapping[str, tuple[Finding, ...]]
    """For each file that was given."""
    silenced: Mapping[str, tuple[Finding, ...]]
    """What comments keep quiet, likewise."""

    def again(self, sources: ProgramSources) -> Look:
        """The same for other texts; raises `SourceError` where they cannot be read."""


class Mender:
    """Applies the fixes that are wanted until there are none left."""

    def __init__(
        self, look: Look, *, unsafe: bool, wanted: Callable[[Finding], bool]
    ) -> None:
        self.look = look
        self.unsafe = unsafe
        self.wanted = wanted
        self.fixed: dict[str, list[Finding]] = {}
        """What was mended in each file, as it was found."""
        self._mistakes: set[_Key] = set()
        """Findings whose fix does not do what it should: they stay."""

    def run(self) -> Look:
        """The program as it is afterwards."""
        for _ in range(_ROUNDS):
            chosen = {
                file: wanted
                for file in self.look.found
                if (wanted := self._chosen(file))
            }
            if not chosen:
                break
            self._round(chosen)
        return self.look

    def _round(self, chosen: Mapping[str, list[Finding]]) -> None:
        texts = {file: self._mended(file, wanted) for file, wanted in chosen.items()}
        changed = {file: text for file, text in texts.items() if text is not None}
        if not changed:
            return
        made = {file: chosen[file] for file in changed}
        try:
            after = self.look.again(self._sources(changed))
        except SourceError:
            after = None
        wrong = [
            (file, one)
            for file, found in made.items()
            for one in (found if after is None else self._left(file, found, after))
        ]
        if wrong or after is None:
            self._mistakes |= {_key(file, one) for file, one in wrong}
            return
        for file, found in made.items():
            self.fixed.setdefault(file, []).extend(found)
        self.look = after

    def _chosen(self, file: str) -> list[Finding]:
        """The findings of a file to mend together: no two in one statement."""
        chosen: list[Finding] = []
        taken: set[int] = set()
        for finding in self.look.found[file]:
            fix = finding.fix
            if fix is None or not fix.edits or not (fix.safe or self.unsafe):
                continue
            if _key(file, finding) in self._mistakes or not self.wanted(finding):
                continue
            lines = {
                _statement(self.look.program, file, line_of(edit))
                for edit in cast("tuple[Edit, ...]", fix.edits)
            }
            if taken.isdisjoint(lines):
                taken |= lines
                chosen.append(finding)
        return chosen

    def _mended(self, file: str, chosen: list[Finding]) -> str | None:
        """A file's text after some fixes; None, and their mistake noted, where one cannot be made."""
        try:
            return self._rewritten(file, chosen)
        except WrongError:
            if len(chosen) == 1:
                self._mistakes.add(_key(file, chosen[0]))
                return None
        # One of them is to blame: the next round is without it.
        good = [one for one in chosen if self._mended(file, [one]) is not None]
        if len(good) == len(chosen):
            self._mistakes |= {_key(file, one) for one in chosen[1:]}
        return None

    def _rewritten(self, file: str, chosen: list[Finding]) -> str:
        from amp_migrate.lint.fixes.rewrite import rewrite

        edits = [
            cast("Edit", edit)
            for one in chosen
            if one.fix is not None
            for edit in one.fix.edits
        ]
        before = self.look.work.sources.texts[file]
        after = self.look.work.rewritten(
            file, lambda text, mode: rewrite(text, edits, mode.line_length)
        )
        try:
            parse(after, file)
        except SourceError as error:
            raise WrongError(file, f"the output is {error.message}") from error
        if after == before:
            raise WrongError(file, "nothing changes")
        if Counter(comments(before)) != Counter(comments(after)):
            raise WrongError(file, "a comment is lost")
        return after

    def _sources(self, changed: Mapping[str, str]) -> ProgramSources:
        """The program with other texts for some files; raises `SourceError`."""
        sources = self.look.work.sources
        documents = dict(sources.documents)
        for file, text in changed.items():
            document = documents.get(file)
            if document is not None:
                data = document.encode(text)
                documents[file] = open_document(document.path, data)
        texts = {**sources.texts, **changed}
        return replace(sources, texts=texts, documents=documents)

    def _left(self, file: str, made: list[Finding], after: Look) -> list[Finding]:
        """The findings that a round was to mend and did not, or for which it brought an error."""
        before, now = self.look.found[file], after.found.get(file, ())
        if _errors(now) > _errors(before):
            return made
        counts, wanted = _counts(now), _counts(made)
        most = _counts(before)
        most.subtract(wanted)
        return [one for one in made if counts[_kind(one)] > most[_kind(one)]]


def _errors(found: Iterable[Finding]) -> int:
    return sum(one.severity is Severity.ERROR for one in found)


def _kind(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.symbol


def _counts(found: Iterable[Finding]) -> Counter[tuple[str, str]]:
    return Counter(map(_kind, found))


def _key(file: str, finding: Finding) -> _Key:
    return file, finding.code, finding.symbol, finding.expression


def _statement(program: Program, file: str, line: int) -> int:
    """Where the innermost statement around a line begins."""
    around = [
        stmt
        for function, stmt in program.all_statements()
        if ir.file_of(function) == file and stmt.line <= line <= stmt.end_line
    ]
    inner = min(around, key=lambda stmt: stmt.end_line - stmt.line, default=None)
    return line if inner is None else int(inner.line)
