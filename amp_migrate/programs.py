"""Which files of a project make up the programs that some of them belong to.

All files of the project are looked at, but only roughly: what they import, as it stands there. Those
that turn out to be part of a program are then read as what they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_migrate.facts.imports import ImportScan, scan_imports
from amp_migrate.project.layout import Layout, components
from amp_migrate.results import SourceError
from amp_migrate.sources import discovery, files
from amp_migrate.sources.discovery import Filters
from amp_migrate.sources.document import (
    NOTEBOOK_SUFFIX,
    Source,
    legible,
    open_document,
)

_BACKWARD = ".backward"
"""Without these characters a text holds no training loop of its own."""
_FRAMEWORK = re.compile(
    r"\b(lightning|pytorch_lightning|transformers|fastai|ignite|composer|mmengine|catalyst|skorch"
    r"|trl|sentence_transformers|detectron2)\b"
)
_DRIVES = re.compile(r"\.(fit\w*|partial_fit|fine_tune|train|run)\(|\bLightningCLI\(")


@dataclass(frozen=True, slots=True)
class ProgramSources:
    """The texts of files that imports connect, by absolute path with forward slashes."""

    texts: Mapping[str, str]
    layout: Layout | None
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could be seen of files that cannot be read as programs."""
    documents: Mapping[str, Source] = field(default_factory=dict)
    """Where the texts come from; nothing for a text that was not read from a file."""

    def mentions(self, name: str, file: str) -> str | None:
        """A file that could not be read as a program, and speaks of a function of another file."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        path = Path(file)
        module = path.parent.name if path.stem == "__init__" else path.stem
        for unread, text in self.unread.items():
            targets = scan_imports(text).targets
            if any(module in target.split(".") for target in targets):
                if word.search(text):
                    return unread
        return None


@dataclass(frozen=True, slots=True)
class Programs:
    """Programs that a run is about, and the files that should be part of one and cannot be read."""

    found: tuple[ProgramSources, ...]
    errors: Mapping[str, SourceError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileBytes:
    """A file that was not looked into yet."""

    path: str
    """The name that messages use."""
    data: bytes


def trains(text: str) -> bool:
    """Whether a text may hold a training loop, or start one that a framework drives."""
    return _BACKWARD in text or bool(_DRIVES.search(text) and _FRAMEWORK.search(text))


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run is about, told of a text at a glance: never no where it is."""

    seems: Callable[[str], bool]
    """Whether a text may be about it."""
    matters: Callable[[str], bool]
    """Whether such a text has to be readable."""


TRAINING = Subject(trains, lambda text: _BACKWARD in text)
USES_TORCH = Subject(lambda text: "torch" in text, lambda text: "torch" in text)


def key(path: str | Path) -> str:
    """The name of a file among those of its program."""
    return Path(discovery.lexical(str(path))).as_posix()


def programs_of(
    given: Mapping[str, str | FileBytes],
    filters: Filters | None,
    subject: Subject = TRAINING,
) -> Programs:
    """The programs that the given files belong to, with all files of the project that take part.

    ``given``: files by `key`, or their texts. ``filters``: of the project whose other files are read
    from disk; None: each text stands alone. Programs of which no given file seems to be about
    ``subject`` are left out; a given file that cannot be read is an error where it matters.
    """
    rough = {file: _rough(one) for file, one in given.items()}
    about = {file for file, text in rough.items() if subject.seems(text)}
    if not about:
        return Programs(())
    everything = dict(given)
    groups: Iterable[Collection[str]] = [{file} for file in about]
    scans: dict[str, ImportScan] = {}
    edits_path = False
    if filters is not None:
        others = _project_files(filters, given.keys())
        rough |= {file: _rough(one) for file, one in others.items()}
        everything |= others
        scans = {file: scan_imports(text) for file, text in rough.items()}
        edits_path = any(scan.edits_path for scan in scans.values())
        layout = _layout(filters.root, scans, edits_path)
        parts = (file.removesuffix(".py").split("/") for file in scans)
        names = {"", *itertools.chain.from_iterable(parts)}
        # Most imports are of other people's packages, and need not be looked for.
        imports = {
            file: [one for one in scan.targets if one.partition(".")[0] in names]
            for file, scan in scans.items()
        }
        groups = [
            group
            for group in components(layout, imports)
            if not about.isdisjoint(group)
        ]
    found = []
    errors: dict[str, SourceError] = {}
    for group in groups:
        members = sorted(group)
        texts: dict[str, str] = {}
        unread: dict[str, str] = {}
        documents: dict[str, Source] = {}
        for file in members:
            one = everything[file]
            try:
                if isinstance(one, str):
                    texts[file] = one
                else:
                    documents[file] = open_document(one.path, one.data)
                    texts[file] = documents[file].text
            except SourceError as error:
                unread[file] = rough[file]
                if file in about and subject.matters(rough[file]):
                    errors[file] = error
        if any(subject.seems(texts[file]) for file in about & texts.keys()):
            own = {file: scans[file] for file in members if file in scans}
            narrow = None if filters is None else _layout(filters.root, own, edits_path)
            found.append(ProgramSources(texts, narrow, unread, documents))
    found.sort(key=lambda program: next(iter(program.texts)))
    return Programs(tuple(found), errors)


def _rough(one: str | FileBytes) -> str:
    return one if isinstance(one, str) else legible(one.path, one.data)


def _layout(root: str, scans: Mapping[str, ImportScan], edits_path: bool) -> Layout:
    return Layout(
        [file for file in scans if file.endswith(".py")],
        Path(root).as_posix(),
        scripts=[
            file
            for file, scan in scans.items()
            if scan.is_script or file.endswith(NOTEBOOK_SUFFIX)
        ],
        edits_path=edits_path,
        installable=_is_installable(Path(root)),
    )


def _is_installable(root: Path) -> bool:
    """Whether a project's packages are made to be installed, and used by code that is not here."""
    if files.exists(root / "setup.py"):
        return True
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "[project]" in text or "[tool.poetry]" in text


def _project_files(filters: Filters, known: Collection[str]) -> dict[str, FileBytes]:
    """The files of a project, but for those that are known."""
    found = {}
    for path in discovery.every_file(filters.root):
        file = key(path)
        if file not in known:
            try:
                found[file] = FileBytes(path, files.read(path))
            except SourceError:
                found[file] = FileBytes(path, b"")
    return found
