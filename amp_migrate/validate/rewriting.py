"""The two forms of a program that are compared: what `amp-migrate` makes of it, or what git has."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from amp_migrate.core.deep import with_room
from amp_migrate.core.results import Loop, Result, SourceError
from amp_migrate.migrate.program import migrate_program
from amp_migrate.program.imports import scan_imports
from amp_migrate.program.layout import Located
from amp_migrate.program.programs import (
    FileBytes,
    ProgramSources,
    Subject,
    key,
    programs_of,
)
from amp_migrate.run.config import Settings
from amp_migrate.sources import files
from amp_migrate.sources.document import open_document
from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.sites import Site, sites

_ANY = Subject(lambda text: True, lambda text: False)


def migrated(
    entry: Path, settings: Settings, torch_version: tuple[int, int]
) -> Rewriting:
    """What `amp-migrate` makes of the program that a script belongs to.

    Written for the given torch. Raises `SourceError` where the script cannot be read.
    """
    given = {key(entry): FileBytes(str(entry), files.read(str(entry)))}
    found = programs_of(given, settings.filters, _ANY).found
    if not found:
        # It cannot be read as a program: say why.
        open_document(str(entry), files.read(str(entry)))
        raise SourceError(str(entry), "cannot be read")
    program = found[0]
    options = replace(settings.options, torch_version=torch_version)
    shown = {file: program.documents[file].path for file in program.texts}
    results = with_room(
        lambda: migrate_program(program, options, given=set(program.texts), shown=shown)
    )
    return _run_by(program, key(entry), results)


def scripts(
    results: Mapping[str, Result], settings: Settings
) -> tuple[dict[str, Rewriting], set[str]]:
    """The scripts that run what was rewritten of one program, each with what it comes to there.

    ``results``: by the paths of the files. Also those paths that no script leads to.
    """
    by_key = {key(path): path for path in results}
    given = {file: FileBytes(path, files.read(path)) for file, path in by_key.items()}
    found: dict[str, Rewriting] = {}
    left = {path for path, result in results.items() if result.changed}
    for program in programs_of(given, settings.filters, _ANY).found:
        own = {
            file: results[path]
            for file, path in by_key.items()
            if file in program.texts
        }
        changed = {file for file, result in own.items() if result.changed}
        for file, reached in _entries(program).items():
            if changed & reached:
                found[program.documents[file].path] = _run_by(program, file, own)
                left -= {by_key[one] for one in changed & reached}
    return found, left


def is_script(text: str) -> bool:
    """Whether a file can be run by itself, or trains where it is run."""
    return scan_imports(text).is_script or ".backward(" in text


def _entries(program: ProgramSources) -> dict[str, set[str]]:
    """The scripts of a program, with the files that each of them runs.

    A file that trains, and does not ask for its being ``__main__``, is none where others import it.
    """
    reached = {
        file: _reached(program, file)
        for file, text in program.texts.items()
        if file.endswith(".py") and is_script(text)
    }
    return {
        file: own
        for file, own in reached.items()
        if scan_imports(program.texts[file]).is_script
        or not any(file in others for other, others in reached.items() if other != file)
    }


def _run_by(
    program: ProgramSources, entry: str, results: Mapping[str, Result | SourceError]
) -> Rewriting:
    """What was made of the files that a script imports. Raises `SourceError` of one that it needs."""
    reached = _reached(program, entry)
    original: dict[str, bytes] = {}
    rewritten: dict[str, bytes] = {}
    places: list[Site] = []
    loops: list[Loop] = []
    for file, result in results.items():
        if isinstance(result, SourceError):
            if file in reached:
                raise result
            continue
        if file not in reached:
            continue
        loops += result.loops
        if result.changed:
            path = os.path.realpath(file)
            document = program.documents[file]
            original[path] = document.data
            rewritten[path] = document.encode(result.output)
            places += sites(path, result.source, result.output)
    return Rewriting(
        frozenset(map(os.path.realpath, program.texts)),
        original,
        rewritten,
        tuple(places),
        tuple(loops),
    )


def against(entry: Path, revision: str) -> Rewriting:
    """The Python files of a repository as they are, against those of a revision of it.

    Raises `SourceError` where git does not know the file or the revision.
    """
    root = Path(_git(entry.parent, "rev-parse", "--show-toplevel").decode().strip())
    listed = _git(root, "diff", "--name-only", "-z", revision, "--", "*.py")
    original: dict[str, bytes] = {}
    rewritten: dict[str, bytes] = {}
    places: list[Site] = []
    for name in filter(None, listed.decode().split("\0")):
        path = root / name
        if not path.is_file():
            continue
        try:
            before = _git(root, "show", f"{revision}:{name}")
        except SourceError:
            continue  # a new file: there is nothing to compare it with
        file = os.path.realpath(path)
        original[file] = before
        rewritten[file] = path.read_bytes()
        with contextlib.suppress(
            SourceError, SyntaxError
        ):  # should it be run, it says so
            texts = (
                open_document(str(path), data).text
                for data in (before, rewritten[file])
            )
            places += sites(file, *texts)
    tracked = _git(root, "ls-files", "-z", "--", "*.py").decode().split("\0")
    known = frozenset(os.path.realpath(root / name) for name in tracked if name)
    return Rewriting(known, original, rewritten, tuple(places), all_needed=False)


def as_it_is(entry: Path, settings: Settings) -> Rewriting:
    """A program that is only looked at."""
    given = {key(entry): FileBytes(str(entry), files.read(str(entry)))}
    found = programs_of(given, settings.filters, _ANY).found
    texts: Iterable[str] = found[0].texts if found else (str(entry),)
    return Rewriting(frozenset(map(os.path.realpath, texts)), {}, {})


def _reached(program: ProgramSources, entry: str) -> set[str]:
    """The files that a program imports, at whatever depth."""
    reached = {entry}
    waiting = [entry]
    while waiting and program.layout is not None:
        file = waiting.pop()
        for target in scan_imports(program.texts.get(file, "")).targets:
            located = program.layout.locate(file, target)
            if located is None:
                continue
            several = (located.file,) if isinstance(located, Located) else located.files
            new = set(several) & program.texts.keys() - reached
            reached |= new
            waiting += sorted(new)
    return reached


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, check=False
        )
    except OSError as error:
        raise SourceError(str(folder), f"git: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["failed"]
        raise SourceError(str(folder), f"git: {said[0].removeprefix('fatal: ')}")
    return done.stdout
