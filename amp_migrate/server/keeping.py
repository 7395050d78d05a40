"""What is kept of a project between two edits, so that the second costs less than the first.

The process that analyses has one `Kept` for each project. Everything in it is found again by the texts
that it was made of; what depends on files that are not open goes when one of those may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from amp_migrate.core.results import SourceError
from amp_migrate.program.imports import scan_imports
from amp_migrate.program.ir import ModuleFacts
from amp_migrate.program.programs import (
    FileBytes,
    Programs,
    ProgramSources,
    Subject,
    key,
    programs_of,
)
from amp_migrate.program.reader import read_module
from amp_migrate.run.config import Settings
from amp_migrate.server.requests import Project
from amp_migrate.sources.discovery import is_left_out
from amp_migrate.sources.document import SIZE_LIMIT, legible, open_document
from amp_migrate.sources.syntax import parse

Answer = TypeVar("Answer")
_Contents = Mapping[str, "str | bytes"]


@dataclass
class Kept:
    """What is known of one project."""

    subject: Subject
    settings: Settings | None = None
    paths: dict[str, str] = field(default_factory=dict)
    """What the editor calls a file, by its key."""
    broken: set[str] = field(default_factory=set)
    """The open files, by key, that cannot be read at the moment."""
    told: dict[str, bool] = field(default_factory=dict)
    """Whether a file, by path, is told of at all: excluded ones are not."""
    too_large: set[tuple[str, ...]] = field(default_factory=set)
    """Programs, by their files, that are not tried again before something else changes than a text."""
    _readable: dict[str, tuple[str | bytes, bool]] = field(default_factory=dict)
    _good: dict[str, str | bytes] = field(default_factory=dict)
    _open: dict[str, str | bytes] = field(default_factory=dict)
    _programs: Programs = field(default_factory=lambda: Programs(()))
    _answers: dict[tuple[str, ...], tuple[ProgramSources, object]] = field(
        default_factory=dict
    )
    _facts: dict[str, tuple[str, ModuleFacts]] = field(default_factory=dict)

    @property
    def programs(self) -> tuple[ProgramSources, ...]:
        """Those of the open files."""
        return self._programs.found

    def update(self, project: Project) -> None:
        """Take what the editor has in the place of what is on disk.

        A file that cannot be read at the moment counts as it was when it last could be.
        """
        paths = {key(path): path for path in project.open}
        now = {key(path): content for path, content in project.open.items()}
        self._readable = {
            file: (
                known
                if (known := self._readable.get(file)) and known[0] == one
                else (one, _is_readable(file, one))
            )
            for file, one in now.items()
        }
        self.broken = {file for file, (_, good) in self._readable.items() if not good}
        contents = {
            file: self._good.get(file, one) if file in self.broken else one
            for file, one in now.items()
        }
        same = (
            not project.fresh
            and project.settings == self.settings
            and self.paths == paths
        )
        self._good = {f: one for f, one in contents.items() if f not in self.broken} | {
            f: one for f, one in self._good.items() if f in self.broken
        }
        self.paths = paths
        if not (same and self._replaced(contents)):
            self.settings = project.settings
            self.told, self.too_large, self._answers = {}, set(), {}
            given = {f: _as_given(paths[f], one) for f, one in contents.items()}
            self._programs = programs_of(given, self.settings.filters, self.subject)
        self._open = contents
        texts = {f for program in self._programs.found for f in program.texts}
        self._facts = {f: one for f, one in self._facts.items() if f in texts}
        found = {tuple(program.texts) for program in self._programs.found}
        self._answers = {p: one for p, one in self._answers.items() if p in found}

    def is_told(self, file: str) -> bool:
        """Whether a file, by its key, is neither excluded nor ignored."""
        if file not in self.told:
            assert self.settings is not None
            path = str(Path(file))
            self.told[file] = not is_left_out(path, self.settings.filters)
        return self.told[file]

    def once(self, program: ProgramSources, ask: Callable[[], Answer]) -> Answer:
        """What is asked of a program, or was before it came to be what it is now."""
        name = tuple(program.texts)
        known = self._answers.get(name)
        if known is None or known[0].texts != program.texts:
            known = self._answers[name] = program, ask()
        return known[1]  # type: ignore[return-value]

    def read(self, text: str, file: str) -> ModuleFacts:
        """The facts of a file; raises `SourceError`."""
        known = self._facts.get(file)
        if known is None or known[0] != text:
            known = self._facts[file] = text, read_module(text, file)
        return known[1]

    def _replaced(self, contents: _Contents) -> bool:
        """Put changed contents into the programs; no where that may change which files are in them."""
        changed = {f: one for f, one in contents.items() if self._open[f] != one}
        if self._programs.errors:
            return not changed
        for file, one in changed.items():
            before, after = _rough(file, self._open[file]), _rough(file, one)
            if scan_imports(before) != scan_imports(after):
                return False
            for asked in (self.subject.seems, self.subject.matters):
                if asked(before) != asked(after):
                    return False
        found = tuple(map(self._with(changed), self._programs.found))
        self._programs = Programs(found)
        return True

    def _with(self, changed: _Contents) -> Callable[[ProgramSources], ProgramSources]:
        def put(program: ProgramSources) -> ProgramSources:
            texts, documents = dict(program.texts), dict(program.documents)
            for file in changed.keys() & texts.keys():
                one = changed[file]
                if isinstance(one, bytes):
                    documents[file] = open_document(self.paths[file], one)
                    texts[file] = documents[file].text
                else:
                    texts[file] = one
            if texts == program.texts:
                return program
            return replace(program, texts=texts, documents=documents)

        return put


def _is_readable(file: str, content: str | bytes) -> bool:
    try:
        if isinstance(content, bytes):
            open_document(file, content)
        else:
            if len(content) > SIZE_LIMIT:
                return False
            parse(content, file)
    except SourceError:
        return False
    return True


def _as_given(path: str, content: str | bytes) -> str | FileBytes:
    return FileBytes(path, content) if isinstance(content, bytes) else content


def _rough(file: str, content: str | bytes) -> str:
    return legible(file, content) if isinstance(content, bytes) else content
