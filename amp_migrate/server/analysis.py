"""The jobs of the process that analyses: lint and migration of what the editor has, and their edits."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from amp_migrate.analysis.paths.loops import TrainingLoop
from amp_migrate.core.deep import with_room
from amp_migrate.core.effort import TooLargeError, limited
from amp_migrate.core.findings import Finding
from amp_migrate.core.places import Place
from amp_migrate.core.results import Loop, Outcome, Result, SourceError
from amp_migrate.edit.program_work import ProgramWork
from amp_migrate.lint.program import Lint
from amp_migrate.migrate.program import Migration
from amp_migrate.program import ir
from amp_migrate.program.programs import ProgramSources, key
from amp_migrate.report.findings import baseline
from amp_migrate.report.findings.listing import told
from amp_migrate.run import outcome
from amp_migrate.run.jobs import Job, subject
from amp_migrate.server.keeping import Kept
from amp_migrate.server.requests import Edited, Looked, Loops, Mend, Project
from amp_migrate.sources.document import NOTEBOOK_SUFFIX
from amp_migrate.sources.text import Document

_Results = Mapping[str, "Result | SourceError"]
_kept: dict[tuple[Job, Path], Kept] = {}
_FEW = 4
"""So many projects are kept at a time."""


class ProblemError(Exception):
    """What keeps a program from being analysed, in words for a log."""


class TooMuchError(ProblemError):
    """An edit more or less will not change it."""


def look(project: Project) -> Looked:
    """The findings of lint in the open files, less what the configuration leaves out."""
    kept = _update(Job.LINT, project)
    examined = _examined(kept, partial(_lint, kept))
    known: set[str] = set()
    if project.settings.showing.baseline is not None:
        try:
            entries = baseline.read(project.settings.showing.baseline)
            known = {entry["fingerprint"] for entry in entries}
        except SourceError as error:
            examined.problems.append(str(error))
    found: dict[str, tuple[Finding, ...]] = {}
    for path, (program, result) in examined.open_files(kept):
        findings = result.findings if result is not None else ()
        if known and result is not None:
            findings = _new(project, program, result, known)
        least = project.settings.showing.severity
        found[path] = tuple(f for f in findings if f.severity.rank <= least.rank)
    return Looked(found, tuple(examined.problems))


def find_loops(project: Project) -> Loops:
    """The training loops of the open files, with what a migration of their programs says of them."""
    kept = _update(Job.MIGRATE, project)
    examined = _examined(kept, partial(_migrate, kept))
    found: dict[str, tuple[Loop, ...]] = {
        path: result.loops if result is not None else ()
        for path, (_, result) in examined.open_files(kept)
    }
    return Loops(found, tuple(examined.problems))


def mend(project: Project, what: Mend) -> Edited:
    """What becomes of a file whose findings are mended."""
    kept = _update(Job.LINT, project)
    file = key(what.path)
    program = next((one for one in kept.programs if file in one.texts), None)
    if program is None or file in kept.broken:
        return Edited({}, "the file cannot be read")
    try:
        return _edited(program, _lint(kept, program, what))
    except ProblemError as problem:
        return Edited({}, str(problem).splitlines()[0])


def put_under_amp(project: Project, place: Place) -> Edited:
    """What becomes of a program whose loop at a place is migrated, with those that go with it."""
    kept = _update(Job.MIGRATE, project)
    examined = _examined(kept, partial(_migrate, kept))
    for program in kept.programs:
        results = {f: r for f, (p, r) in examined.results.items() if p is program}
        loops = [loop for result in results.values() for loop in result.loops]
        group = next((loop.group for loop in loops if loop.place == place), None)
        if group is None:
            continue
        if not kept.broken.isdisjoint(program.texts):
            return Edited({}, "a file of the program cannot be read")
        together = [loop.place for loop in loops if loop.group == group]
        done = [loop for loop in loops if loop.outcome is Outcome.MIGRATED]
        try:
            if any(loop.place not in together for loop in done):
                return _edited(program, _migrate(kept, program, together))
        except ProblemError as problem:
            return Edited({}, str(problem).splitlines()[0])
        return _edited(program, results)
    return Edited({}, "the loop is no longer there")


# -- programs -----------------------------------------------------------------------------------------


def _update(job: Job, project: Project) -> Kept:
    name = job, project.settings.root
    kept = _kept.pop(name, None) or Kept(subject(job))
    while len(_kept) >= _FEW:
        del _kept[next(iter(_kept))]
    _kept[name] = kept  # the last used is the last
    kept.update(project)
    return kept


@dataclass
class _Examined:
    """What came of all programs of the open files."""

    results: dict[str, tuple[ProgramSources, Result]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    """Files of which nothing can be said now."""
    problems: list[str] = field(default_factory=list)

    def open_files(
        self, kept: Kept
    ) -> Iterator[tuple[str, tuple[ProgramSources | None, Result | None]]]:
        """The path and the result of each open file of which something can be said."""
        for file, path in kept.paths.items():
            if file not in self.silent:
                one = self.results.get(file) if kept.is_told(file) else None
                yield path, one or (None, None)


def _examined(kept: Kept, ask: Callable[[ProgramSources], _Results]) -> _Examined:
    examined = _Examined(silent=set(kept.broken))
    for program in kept.programs:
        try:
            if tuple(program.texts) in kept.too_large:
                raise TooMuchError("still too large to be analysed")
            results = kept.once(program, partial(ask, program))
        except ProblemError as problem:
            if isinstance(problem, TooMuchError):
                kept.too_large.add(tuple(program.texts))
            examined.problems.append(str(problem))
            examined.silent |= program.texts.keys()
            continue
        for file, result in results.items():
            if isinstance(result, SourceError):
                examined.silent.add(file)
            else:
                examined.results[file] = program, result
    return examined


def _lint(kept: Kept, program: ProgramSources, what: Mend | None = None) -> _Results:
    """The lint of the open files, or of one of which something is mended."""
    assert kept.settings is not None
    options = kept.settings.options
    given = [one for one in program.texts if one in kept.paths and kept.is_told(one)]
    if what is None:
        return _run(kept, Lint(program, options, given, _names(kept, program)))
    unsafe = what.only is not None or options.lint.unsafe_fixes
    fix = replace(options.lint, fix=True, unsafe_fixes=unsafe)

    def wanted(finding: Finding) -> bool:
        return what.only is None or what.only == (finding.code, finding.place)

    lint = Lint(
        program,
        replace(options, lint=fix),
        [key(what.path)],
        _names(kept, program),
    )
    lint.wanted = wanted
    return _run(kept, lint)


def _migrate(
    kept: Kept, program: ProgramSources, places: Collection[Place] = ()
) -> _Results:
    """The migration of all loops of a program, or of those at some places."""
    assert kept.settings is not None
    # The editor can change any file, but for a notebook that it has not opened.
    given = [
        file
        for file in program.texts
        if file in kept.paths or not file.endswith(NOTEBOOK_SUFFIX)
        if kept.is_told(file)
    ]
    migration = Migration(program, kept.settings.options, given, _names(kept, program))
    if places:
        telling = migration.telling

        def wanted(loop: TrainingLoop) -> bool:
            event = loop.backwards[0].event
            file = ir.file_of(loop.function)
            return telling.place(file, event.line, event.column) in places

        migration.wanted = wanted
    return _run(kept, migration)


def _names(kept: Kept, program: ProgramSources) -> dict[str, str]:
    return {file: kept.paths.get(file, str(Path(file))) for file in program.texts}


def _run(kept: Kept, work: ProgramWork) -> _Results:
    """A job's results; raises `ProblemError` where it comes to no end, or to a wrong one."""
    work.read = kept.read

    def bounded() -> _Results:
        with limited():
            return work.run()

    try:
        return with_room(bounded)
    except (RecursionError, MemoryError, TooLargeError):
        raise TooMuchError(f"{work.given[:1]}: too large to be analysed") from None
    except Exception as error:
        words = f"{work.given[:1]}: internal error: {type(error).__name__}: {error}"
        raise ProblemError(f"{words}\n{traceback.format_exc()}") from None


def _new(
    project: Project, program: ProgramSources | None, result: Result, known: set[str]
) -> tuple[Finding, ...]:
    """The findings that a baseline does not have."""
    assert program is not None
    document = program.documents.get(key(result.path)) or Document(
        result.path, b"", result.source, "utf-8", ()
    )
    done = outcome.Migration(document, result, b"")
    found = told([done], project.settings)
    return tuple(one.finding for one in found if one.fingerprint not in known)


def _edited(program: ProgramSources, results: _Results) -> Edited:
    changed: dict[str, tuple[str | bytes, str | bytes]] = {}
    for file, result in results.items():
        if isinstance(result, SourceError):
            return Edited({}, str(result))
        if not result.changed:
            continue
        document = program.documents.get(file)
        if file.endswith(NOTEBOOK_SUFFIX):
            assert document is not None
            try:
                changed[result.path] = document.data, document.encode(result.output)
            except SourceError as error:
                return Edited({}, str(error))
        else:
            changed[result.path] = result.source, result.output
    return Edited(changed, "" if changed else "nothing can be changed")
