"""What came of each program, kept under all that it depends upon.

An answer depends on the files of its program and where they lie, on what the rest of the project lets
imports mean (`Layout.facts`), on the options, on how black is configured around the files, and on the
tool. Whatever else a job comes to read has to become part of the key: a stale answer is a wrong one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amp_migrate.core.options import Options
from amp_migrate.core.results import Result, SourceError
from amp_migrate.program.glance import Glance, Links, Memory, digest_of, seen_from
from amp_migrate.program.programs import Group
from amp_migrate.run.cache import tool
from amp_migrate.run.cache.plain import as_plain, from_plain
from amp_migrate.run.cache.store import Store
from amp_migrate.run.cache.surroundings import Surroundings, content
from amp_migrate.sources.document import Source, open_document


@dataclass(frozen=True, slots=True)
class Failed:
    """That a file cannot be processed, and the paths of those that cannot with it."""

    error: SourceError
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a file."""

    document: Source
    result: Result


Answers = Mapping[str, Told | Failed]
"""By the files of a program that something came of."""


class Cache:
    """What is known of the programs of one project, for one job."""

    def __init__(self, store: Store, root: Path, job: str, options: Options) -> None:
        """``root``: the project root."""
        self._store = store
        self._root = root.as_posix()
        self._surroundings = Surroundings()
        here, there = os.curdir, str(root)
        self._run = [
            tool.identity(),
            job,
            repr(options),
            [content(Path(str(one))) for one in options.lint.extend_rules],
            # What messages call files: from here, or in full where that leads upwards.
            *_ways(here, there),
        ]
        self._name_of_memory = digest_of([tool.identity(), job, self._root])
        self.memory = self._read_memory()

    def key(self, group: Group, given: Collection[str]) -> str:
        """The name of all that decides about the files of a program that are ``given``."""
        named = [file for file in group.files if file in given]
        folders = {Path(file).parent for file in named}
        shown = {file: getattr(group.file(file), "path", file) for file in named}
        return digest_of(
            [
                self._run,
                group.layout,
                self._surroundings.of(folders),
                [
                    (seen_from(self._root, file), group.digest(file), shown.get(file))
                    for file in group.files
                ],
            ]
        )

    def find(self, key: str, group: Group) -> Answers | None:
        """What came of a program before."""
        entry = self._store.read(key)
        try:
            if entry is None or entry["root"] not in ("", self._root):
                return None
            return {
                group.files[number]: self._answer(plain, group.files[number], group)
                for number, plain in entry["answers"]
            }
        except (LookupError, TypeError, ValueError, SourceError):
            return None

    def keep(self, key: str, group: Group, answers: Answers) -> None:
        """Remember what came of a program."""
        told = [one.result for one in answers.values() if isinstance(one, Told)]
        if any(result.changed for result in told) and self._has_moved(answers):
            return
        numbers = {file: number for number, file in enumerate(group.files)}
        plain = [(numbers[file], _plain(one)) for file, one in answers.items()]
        # A place that is told in full is true of this project only.
        in_full = json.dumps(self._root)[1:-1] in json.dumps(plain)
        root = self._root if in_full else ""
        self._store.write(key, {"root": root, "answers": plain})

    def _has_moved(self, files: Iterable[str]) -> bool:
        """Whether what is read when files are rewritten has changed since the run began."""
        folders = {Path(file).parent for file in files}
        return Surroundings().of(folders) != self._surroundings.of(folders)

    def close(self) -> None:
        """Once all is kept that there is to keep."""
        glances, links = self.memory.seen, self.memory.links
        if glances != self.memory.glances or links is not self._links:
            self._store.write(
                self._name_of_memory,
                {
                    "links": None if links is None else as_plain(links),
                    "glances": {name: as_plain(one) for name, one in glances.items()},
                },
            )
        self._store.close()

    def _answer(self, plain: Any, file: str, group: Group) -> Told | Failed:
        kind, *rest = plain
        if kind == "failed":
            (path, message, line, column), others = rest
            return Failed(SourceError(path, message, line, column), tuple(others))
        output, told = rest
        one = group.file(file)
        if isinstance(one, str) or not isinstance(output, str | None):
            raise ValueError
        document = open_document(one.path, one.data)
        result: Result = from_plain(Result, told)
        source = document.text
        output = source if output is None else output
        return Told(document, replace(result, source=source, output=output))

    def _read_memory(self) -> Memory:
        self._links: Links | None = None
        entry = self._store.read(self._name_of_memory)
        if entry is None:
            return Memory()
        try:
            if entry["links"] is not None:
                self._links = from_plain(Links, entry["links"])
            glances = {name: _glance(one) for name, one in entry["glances"].items()}
        except (LookupError, TypeError, ValueError, AttributeError):
            self._links = None
            return Memory()
        return Memory(glances, self._links)


def cache_of(
    store: Store | None, root: Path, job: str, options: Options
) -> Cache | None:
    """The cache of a project; None where there is none."""
    if store is None or tool.identity() is None:
        return None
    return Cache(store, root, job, options)


def _plain(one: Told | Failed) -> list[Any]:
    if isinstance(one, Failed):
        error = one.error
        told = [error.path, error.message, error.line, error.column]
        return ["failed", told, list(one.others)]
    result = one.result
    output = result.output if result.changed else None
    return ["told", output, as_plain(replace(result, source="", output=""))]


def _glance(plain: Any) -> Glance:
    """Thousands are read in a run, so the types of their parts are looked at together."""
    seems, versioned, configured, targets, modules, flags, name = plain
    if {*map(type, targets), *map(type, modules), type(name)} != {str}:
        raise ValueError
    return Glance(
        seems is True,
        versioned is True,
        configured is True,
        tuple(targets),
        tuple(modules),
        tuple(flag is True for flag in flags),
        name,
    )


def _ways(here: str, there: str) -> tuple[str, str]:
    """How to get from one folder to another, and back."""
    try:
        return os.path.relpath(there, here), os.path.relpath(here, there)
    except ValueError:  # on another drive
        return there, os.path.realpath(here)
