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
from typing import Any

from amp_migrate.core import phases
from amp_migrate.core.results import SourceError
from amp_migrate.program.glance import (
    Glance,
    Links,
    Memory,
    digest,
    digest_of,
    glance_at,
    seen_from,
)
from amp_migrate.program.imports import scan_imports
from amp_migrate.program.layout import Layout, components
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
    modes: Mapping[str, Any] = field(default_factory=dict)
    """How black is configured for each file, where that cannot be looked up when it is asked for."""

    def mentions(self, name: str, file: str) -> str | None:
        """A file that could not be read as a program, and speaks of a function of another file: to import it
        under its own name alone calls nothing."""
        word = re.compile(
            rf"^(?!\s*(?:from\s+[\w.]+\s+)?import\b(?!.*\bas\b)).*\b{re.escape(name)}\b",
            re.M,
        )
        path = Path(file)
        module = path.parent.name if path.stem == "__init__" else path.stem
        for unread, text in self.unread.items():
            targets = scan_imports(text).targets
            if any(module in target.split(".") for target in targets):
                if word.search(text):
                    root = "" if self.layout is None else self.layout.root
                    return seen_from(root, unread) if root else unread
        return None


_INIT = "/__init__.py"
_PACKAGES = ("[project]", "[tool.poetry]", "[tool.flit.metadata]", "[options]")
"""Tables of a pyproject.toml or setup.cfg that make a package of a project."""
_READMES = ("README.md", "README.rst", "README.txt", "README", "index.md", "index.rst")
_CONFIGURATION = (".yaml", ".yml")
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

    def facts(self, root: str) -> list[list[str]]:
        """All of it, wherever the project lies."""
        libraries = (seen_from(root, one) for one in self.libraries)
        return [sorted(libraries), sorted(self.documented), sorted(self.configured)]


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
    found = []
    errors: dict[str, SourceError] = {}
    for group in groups_of(given, filters, subject):
        sources, wrong = group.open()
        errors |= wrong
        if sources is not None:
            found.append(sources)
    return Programs(tuple(found), errors)


class Group:
    """Files that imports connect, some of which a run seems to be about; not looked into yet."""

    def __init__(self, project: _Project, files: Iterable[str], layout: str) -> None:
        self.files = tuple(sorted(files))
        self.layout = layout
        """A digest of what the layout says of them."""
        self._project = project

    def file(self, file: str) -> str | FileBytes:
        """One of them as it was read."""
        return self._project.everything[file]

    def digest(self, file: str) -> str:
        """Of what stands in one of them."""
        return self._project.digest(file)

    def open(self) -> tuple[ProgramSources | None, dict[str, SourceError]]:
        """The program, if the run is about it, and what should be part of it and cannot be read."""
        subject, about = self._project.subject, self._project.about
        texts: dict[str, str] = {}
        unread: dict[str, str] = {}
        documents: dict[str, Source] = {}
        errors: dict[str, SourceError] = {}
        for file in self.files:
            one = self.file(file)
            try:
                if isinstance(one, str):
                    texts[file] = one
                else:
                    documents[file] = open_document(one.path, one.data)
                    texts[file] = documents[file].text
            except SourceError as error:
                unread[file] = _rough(one)
                if file in about and subject.matters(unread[file]):
                    errors[file] = error
        if not any(subject.seems(texts[one]) for one in about & texts.keys()):
            return None, errors
        layout = self._project.layout
        narrow = None if layout is None else layout.narrowed(self.files)
        return ProgramSources(texts, narrow, unread, documents), errors


def groups_of(
    given: Mapping[str, str | FileBytes],
    filters: Filters | None,
    subject: Subject = TRAINING,
    memory: Memory | None = None,
) -> list[Group]:
    """The groups of files that `programs_of` opens, in the order of their first files.

    ``memory``: what is known of the project's files by what stands in them; it is added to.
    """
    project = _Project(given, filters, subject, memory)
    groups = project.groups() if project.about else []
    return sorted(groups, key=lambda group: group.files[0])


class _Project:
    """All files that may take part, and which belong together."""

    def __init__(
        self,
        given: Mapping[str, str | FileBytes],
        filters: Filters | None,
        subject: Subject,
        memory: Memory | None,
    ) -> None:
        self.everything = dict(given)
        self.subject = subject
        self._filters = filters
        self._memory = memory
        self._digests: dict[str, str] = {}
        self._layout: Layout | None = None
        self._exports: _Exports | None = None
        self.glances = {
            file: self._glance(file) for file in phases.each("looking at files", given)
        }
        self.about = {file for file, one in self.glances.items() if one.seems}

    def digest(self, file: str) -> str:
        """Of what stands in a file, and of what it is read as."""
        if file not in self._digests:
            one = self.everything[file]
            data = (
                one.encode("utf-8", "surrogatepass")
                if isinstance(one, str)
                else one.data
            )
            kind = "" if isinstance(one, str) else Path(one.path).suffix
            self._digests[file] = f"{digest(data)}{kind}"
        return self._digests[file]

    def _glance(self, file: str) -> Glance:
        def look() -> Glance:
            text = _rough(self.everything[file])
            return glance_at(text, self.subject.seems(text))

        if self._memory is None:
            return look()
        return self._memory.glance(self.digest(file), look)

    def groups(self) -> list[Group]:
        """Those that the run is about."""
        if self._filters is None:
            return [Group(self, [file], "") for file in self.about]
        others, configurations = _project_files(self._filters, self.everything.keys())
        self.everything |= others
        self.glances |= {
            file: self._glance(file)
            for file in phases.each("looking at the project", others)
        }
        links = self._links(_exports(Path(self._filters.root), self, configurations))
        files = sorted(self.everything)
        return [
            Group(self, members, layout)
            for group, layout in zip(links.groups, links.layouts, strict=True)
            if not self.about.isdisjoint(members := [files[number] for number in group])
        ]

    def _links(self, exports: _Exports) -> Links:
        assert self._filters is not None
        self._exports = exports
        files, root = sorted(self.everything), Path(self._filters.root).as_posix()
        asked = digest_of(
            [
                [(seen_from(root, file), self.glances[file].digest) for file in files],
                exports.facts(root),
            ]
        )
        known = self._memory and self._memory.links
        if known and known.key == asked:
            return known
        layout = self.layout
        assert layout is not None
        imports = {
            file: targets | layout.imported_by_configuration(targets)
            for file in files
            for targets in [frozenset(self.glances[file].targets)]
        }
        numbers = {file: number for number, file in enumerate(files)}
        groups = [sorted(group) for group in components(layout, imports)]
        links = Links(
            asked,
            tuple(tuple(numbers[file] for file in group) for group in groups),
            tuple(digest_of(layout.facts(group)) for group in groups),
        )
        if self._memory is not None:
            self._memory.links = links
        return links

    @property
    def layout(self) -> Layout | None:
        """Which file an import means; None where each text stands alone."""
        if self._layout is None and self._exports is not None:
            assert self._filters is not None
            self._layout = Layout(
                {file: self.glances[file].scan for file in sorted(self.glances)},
                Path(self._filters.root).as_posix(),
                libraries=self._exports.libraries,
                documented=self._exports.documented,
                configured=self._exports.configured,
            )
        return self._layout


def _rough(one: str | FileBytes) -> str:
    return one if isinstance(one, str) else legible(one.path, one.data)


def _exports(root: Path, project: _Project, configurations: Iterable[str]) -> _Exports:
    glances = project.glances
    inits = {posixpath.dirname(file): file for file in glances if file.endswith(_INIT)}
    installable = _is_installable(root)
    libraries = set()
    for folder in inits:
        outermost = folder
        while posixpath.dirname(outermost) in inits:
            outermost = posixpath.dirname(outermost)
        if installable or glances[inits[outermost]].versioned:
            libraries.add(folder)
    documented: set[str] = set()
    for place in (root, root / "docs", root / "doc"):
        for name in _READMES:
            documented.update(_CALL.findall(_text(place / name)))
    configured: set[str] = set()
    if any(glance.configured for glance in glances.values()):
        for path in configurations:
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


def _project_files(
    filters: Filters, known: Collection[str]
) -> tuple[dict[str, FileBytes], list[str]]:
    """The files of a project, but for those that are known; and its configuration files."""
    found = {}
    configurations = []
    for path in discovery.every_file(
        filters.root, (".py", NOTEBOOK_SUFFIX, *_CONFIGURATION)
    ):
        if path.endswith(_CONFIGURATION):
            configurations.append(path)
            continue
        file = key(path)
        if file not in known:
            try:
                found[file] = FileBytes(path, files.read(path))
            except SourceError:
                found[file] = FileBytes(path, b"")
    return found, configurations
