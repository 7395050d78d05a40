"""Which files of a project make up the programs that some of them belong to.

All files of the project are looked at, but only roughly: what they import, as it stands there. Those
that turn out to be part of a program are then read as what they are.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_migrate.core.results import SourceError
from amp_migrate.program.imports import ImportScan, scan_imports
from amp_migrate.program.layout import Layout, components
from amp_migrate.sources import discovery, files
from amp_migrate.sources.discovery import Filters
from amp_migrate.sources.document import (
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


_INIT = "/__init__.py"
_PACKAGES = ("[project]", "[tool.poetry]", "[tool.flit.metadata]", "[options]")
"""Tables of a pyproject.toml or setup.cfg that make a package of a project."""
_READMES = ("README.md", "README.rst", "README.txt", "README", "index.md", "index.rst")
_TARGET = re.compile(r"\b_target_\"?'?\s*:\s*[\"']?([\w.]+)")
"""What hydra makes of a configuration, in YAML."""
_CALL = re.compile(r"(?<!torch\.)\b([A-Za-z_]\w*)\(\s*[\w*\"']")


@dataclass(frozen=True, slots=True)
class _Exports:
    """What of a project other projects may use."""

    libraries: frozenset[str] = frozenset()
    """The folders of packages that are made to be installed, or say which version they are."""
    documented: frozenset[str] = frozenset()
    """The functions of which the README of the project, or of its documentation, shows a call."""
    configured: frozenset[str] = frozenset()
    """The functions and classes that the project's configuration files name for hydra to call."""


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
    layout: Layout | None = None
    if filters is not None:
        others = _project_files(filters, given.keys())
        rough |= {file: _rough(one) for file, one in others.items()}
        everything |= others
        scans = {file: scan_imports(text) for file, text in rough.items()}
        exports = _exports(Path(filters.root), rough)
        layout = Layout(
            scans,
            Path(filters.root).as_posix(),
            libraries=exports.libraries,
            documented=exports.documented,
            configured=exports.configured,
        )
        imports = {
            file: scan.targets | layout.imported_by_configuration(scan.targets)
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
            narrow = None if layout is None else layout.narrowed(group)
            found.append(ProgramSources(texts, narrow, unread, documents))
    found.sort(key=lambda program: next(iter(program.texts)))
    return Programs(tuple(found), errors)


def _rough(one: str | FileBytes) -> str:
    return one if isinstance(one, str) else legible(one.path, one.data)


def _exports(root: Path, texts: Mapping[str, str]) -> _Exports:
    inits = {posixpath.dirname(file): file for file in texts if file.endswith(_INIT)}
    installable = _is_installable(root)
    libraries = set()
    for folder in inits:
        outermost = folder
        while posixpath.dirname(outermost) in inits:
            outermost = posixpath.dirname(outermost)
        if installable or "__version__" in texts[inits[outermost]]:
            libraries.add(folder)
    documented: set[str] = set()
    for place in (root, root / "docs", root / "doc"):
        for name in _READMES:
            documented.update(_CALL.findall(_text(place / name)))
    configured: set[str] = set()
    if any("hydra" in text for text in texts.values()):
        for path in discovery.every_file(str(root), (".yaml", ".yml")):
            configured.update(_TARGET.findall(_text(Path(path))))
    return _Exports(frozenset(libraries), frozenset(documented), frozenset(configured))


def _is_installable(root: Path) -> bool:
    """Whether a project's packages are made to be installed, and used by code that is not here."""
    tables = _text(root / "pyproject.toml") + _text(root / "setup.cfg")
    return files.exists(root / "setup.py") or any(one in tables for one in _PACKAGES)


def _text(path: Path) -> str:
    """What stands in a file; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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
