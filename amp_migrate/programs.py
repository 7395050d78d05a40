"""Which files of a project make up the programs that some of them belong to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_migrate.facts.imports import ImportScan, scan_imports
from amp_migrate.project.layout import Layout, components
from amp_migrate.results import SourceError
from amp_migrate.sources import discovery, files
from amp_migrate.sources.discovery import Filters
from amp_migrate.sources.document import open_document

TRAINS = ".backward"
"""Without these characters a text holds no training loop."""


@dataclass(frozen=True, slots=True)
class ProgramSources:
    """The texts of files that imports connect, by absolute path with forward slashes."""

    texts: Mapping[str, str]
    layout: Layout | None
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could be seen of files that cannot be read as programs."""

    def mentions(self, name: str) -> str | None:
        """A file that could not be read as a program, and speaks of ``name``."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        return next((f for f, text in self.unread.items() if word.search(text)), None)


def key(path: str | Path) -> str:
    """The name of a file among those of its program."""
    return Path(discovery.lexical(str(path))).as_posix()


def programs_of(
    given: Mapping[str, str], filters: Filters | None
) -> list[ProgramSources]:
    """The programs that the given texts belong to, with all files of the project that take part.

    ``given``: texts by `key`. ``filters``: of the project whose other files are read from disk; None:
    each text stands alone. Programs without a training loop in a given file are left out.
    """
    training = {file for file, text in given.items() if TRAINS in text}
    if not training:
        return []
    if filters is None:
        return [ProgramSources({file: given[file]}, None) for file in sorted(training)]
    texts, unread = _project_texts(filters, given)
    scans = {file: scan_imports(text) for file, text in {**unread, **texts}.items()}
    layout = _layout(filters.root, scans)
    imports = {file: scan.targets for file, scan in scans.items()}
    found = []
    for members in components(layout, imports):
        if members & training:
            own = {file: texts[file] for file in sorted(members) if file in texts}
            rest = {file: unread[file] for file in sorted(members) if file in unread}
            scanned = {file: scans[file] for file in members}
            found.append(ProgramSources(own, _layout(filters.root, scanned), rest))
    return sorted(found, key=lambda program: next(iter(program.texts)))


def _layout(root: str, scans: Mapping[str, ImportScan]) -> Layout:
    return Layout(
        [file for file in scans if file.endswith(".py")],
        Path(root).as_posix(),
        scripts=[file for file, scan in scans.items() if scan.is_script],
        edits_path=[file for file, scan in scans.items() if scan.edits_path],
    )


def _project_texts(
    filters: Filters, given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """(texts of the project's files, what is legible of those that cannot be read)."""
    texts = dict(given)
    unread: dict[str, str] = {}
    every = Filters(filters.root)
    for path in discovery.discover([filters.root], every).files:
        file = key(path)
        if file in texts:
            continue
        data = b""
        try:
            data = files.read(path)
            texts[file] = open_document(path, data).text
        except SourceError:
            unread[file] = data.decode("utf-8", "replace")
    return texts, unread
