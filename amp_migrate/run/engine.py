"""From paths to results: find the files, read them, have a job done on each program, keep the errors apart.

Only `write` writes, so that a run is decided as a whole before it touches a file.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from amp_migrate.core.deep import with_room
from amp_migrate.core.effort import TooLargeError, limited, watched
from amp_migrate.core.garbage import collected_seldom
from amp_migrate.core.options import Options
from amp_migrate.core.results import Result, SourceError
from amp_migrate.program.programs import (
    FileBytes,
    Group,
    ProgramSources,
    groups_of,
    key,
)
from amp_migrate.run.cache.programs import Answers, Cache, Failed, Told, cache_of
from amp_migrate.run.cache.store import Store
from amp_migrate.run.config import Settings
from amp_migrate.run.executors import LOCAL, mapped, opened, processors
from amp_migrate.run.jobs import Job, Work, subject
from amp_migrate.sources import discovery, files, journal
from amp_migrate.sources.document import Source
from amp_migrate.sources.journal import Change

WORTH_PROCESSES = 24
"""Below this many files, starting processes costs more than they save."""

Progress = Callable[[int, int], None]
"""Called with the number of programs done and the number of programs in all."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file that a run is about: as read, what came of it, and the bytes to write."""

    document: Source
    result: Result
    output: bytes
    program: int = 0
    """The number of its program: the files of one are written together, or none of them."""

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self.output != self.document.data


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be processed."""

    error: SourceError
    traceback: str = ""
    """Of an internal error; empty where the file is to blame."""
    others: tuple[str, ...] = ()
    """Paths of the other files that could not be processed with it: those of one program."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found."""

    migrations: tuple[Migration, ...]
    """In the order of discovery; files that it is not about are not among them."""
    failures: tuple[Failure, ...]
    paths: tuple[str, ...]
    """The files that were looked at."""
    skipped: int = 0
    """How many notebooks were not, for lack of nbformat."""

    @property
    def files(self) -> int:
        """How many files were looked at."""
        return len(self.paths)

    @property
    def results(self) -> tuple[Result, ...]:
        """The result of each migration."""
        return tuple(migration.result for migration in self.migrations)

    @property
    def errors(self) -> tuple[SourceError, ...]:
        """What kept files from being processed."""
        return tuple(failure.error for failure in self.failures)

    @property
    def unread(self) -> frozenset[str]:
        """The paths of the files that were not analysed."""
        return frozenset(
            path for one in self.failures for path in (one.error.path, *one.others)
        )

    @property
    def analysed(self) -> frozenset[str]:
        """The paths of the files that were: what is named and not there is neither."""
        return frozenset(self.paths) - self.unread

    @property
    def changed(self) -> tuple[Migration, ...]:
        """The migrations that have something to write."""
        return tuple(migration for migration in self.migrations if migration.changed)


@collected_seldom()
def run(
    paths: Sequence[str | Path],
    *,
    settings: Settings,
    job: Job = Job.MIGRATE,
    jobs: int | None = 1,
    progress: Progress | None = None,
    store: Store | None = None,
    executor: str = LOCAL,
) -> Report:
    """Do a job on the files that ``paths`` name, in memory.

    ``jobs`` is the most processes to use, None for one per processor. More than one needs, as all
    of `multiprocessing` does, a main module that can be imported without running the program.
    ``executor``: who does the work, as `executors.opened` takes it.
    ``store``: where earlier runs left what they found out, and this one leaves it.
    Raises `PatternError` for a pattern in ``settings`` that means nothing, and `ExecutorError`.
    """
    found = discovery.discover([str(path) for path in paths], settings.filters)
    failures = [Failure(error) for error in found.errors]
    given: dict[str, FileBytes] = {}
    for path in found.files:
        try:
            given[key(path)] = FileBytes(path, files.read(path))
        except SourceError as error:
            failures.append(Failure(error))
    migrations, more = _do_all(
        job, given, settings, executor, jobs, progress or _unheard, store
    )
    return Report(migrations, (*failures, *more), found.files, found.skipped)


def run_text(
    data: bytes,
    *,
    path: str,
    settings: Settings,
    job: Job = Job.MIGRATE,
    store: Store | None = None,
) -> Report:
    """Do a job on one source that is not read from a file; ``path`` is the name it goes by."""
    if discovery.is_force_excluded(path, settings.filters):
        return Report((), (), ())
    try:
        discovery.check_kind(path)
    except SourceError as error:
        return Report((), (Failure(error),), (path,))
    given = {key(path): FileBytes(path, data)}
    return Report(*_do_all(job, given, settings, LOCAL, 1, _unheard, store), (path,))


def _unheard(done: int, total: int) -> None:
    pass


def write(report: Report, root: Path) -> Report:
    """Replace the files that changed, those of one program together or not at all.

    ``root`` is the project root, where an interrupted write is found again (`sources.journal`). In
    the answer, changed files of programs that could not be written are no longer among the
    migrations, and the file that is to blame is a failure.
    """
    failures = []
    unwritten = set()
    programs: dict[int, list[Change]] = {}
    for one in report.changed:
        change = Change(one.document.path, one.document.data, one.output)
        programs.setdefault(one.program, []).append(change)
    for program, changes in programs.items():
        try:
            journal.replace_all(changes, root)
        except SourceError as error:
            failures.append(Failure(error))
            unwritten.add(program)
    kept = tuple(
        one
        for one in report.migrations
        if not (one.changed and one.program in unwritten)
    )
    return replace(report, migrations=kept, failures=(*report.failures, *failures))


@dataclass(frozen=True, slots=True)
class _Task:
    """One program, with those of its files that were named."""

    number: int
    sources: ProgramSources
    given: tuple[str, ...]
    options: Options
    job: Job


def _do_all(
    job: Job,
    given: Mapping[str, FileBytes],
    settings: Settings,
    executor: str,
    jobs: int | None,
    progress: Progress,
    store: Store | None,
) -> tuple[tuple[Migration, ...], tuple[Failure, ...]]:
    cache = cache_of(store, settings.root, job.value, settings.options)
    memory = None if cache is None else cache.memory
    found: _Outcome = {}
    errors: _Outcome = {}
    tasks: list[_Task] = []
    new: dict[int, tuple[Cache, str, Group, _Outcome]] = {}
    """Of each program that is to be kept: where, its key, and the files that cannot be read."""
    groups = groups_of(given, settings.filters, subject(job), memory)
    for number, group in enumerate(groups):
        name = ""
        if cache is not None:
            name = cache.key(group, given.keys())
            known = cache.find(name, group)
            if known is not None:
                found |= _remembered(known, number)
                continue
        with watched() as opening:
            sources, wrong = group.open()
        failures: _Outcome = {file: Failure(error) for file, error in wrong.items()}
        errors |= failures
        if cache is not None and not opening.cut:
            new[number] = cache, name, group, failures
        if sources is not None:
            named = tuple(file for file in sources.texts if file in given)
            tasks.append(_Task(number, sources, named, settings.options, job))
        elif number in new:
            _keep(new[number], _Done({}))

    def done(number: int, one: _Done) -> None:
        found.update(one.outcome)
        # At once: what is interrupted does not begin anew.
        if number in new:
            _keep(new[number], one)

    _do_tasks(tasks, executor, jobs, progress, done)
    if cache is not None:
        cache.close()
    found |= errors
    ordered = [found[file] for file in given if file in found]
    return (
        tuple(one for one in ordered if isinstance(one, Migration)),
        tuple(one for one in ordered if isinstance(one, Failure)),
    )


_Outcome = dict[str, "Migration | Failure"]


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of one program."""

    outcome: _Outcome
    lasting: bool = True
    """Whether the same will come of it another time: no bound of this machine decided."""


def _remembered(known: Answers, number: int) -> _Outcome:
    """What an earlier run found out."""
    outcome: _Outcome = {}
    for file, one in known.items():
        if isinstance(one, Failed):
            outcome[file] = Failure(one.error, others=one.others)
        else:
            output = one.document.encode(one.result.output)
            outcome[file] = Migration(one.document, one.result, output, number)
    return outcome


def _keep(new: tuple[Cache, str, Group, _Outcome], one: _Done) -> None:
    """Leave what came of a program to later runs."""
    cache, name, group, failures = new
    if one.lasting:
        answers: dict[str, Told | Failed] = {}
        for file, outcome in {**one.outcome, **failures}.items():
            if isinstance(outcome, Failure):
                answers[file] = Failed(outcome.error, outcome.others)
            else:
                answers[file] = Told(outcome.document, outcome.result)
        cache.keep(name, group, answers)


def _do_tasks(
    tasks: Sequence[_Task],
    executor: str,
    jobs: int | None,
    progress: Progress,
    done: Callable[[int, _Done], None],
) -> None:
    """Do all, and tell each when it is done."""
    if not tasks:
        return
    workers = jobs or processors()
    if executor == LOCAL:
        workers = min(workers, len(tasks))
        if sum(len(task.given) for task in tasks) < WORTH_PROCESSES:
            workers = 1
        sent: Iterable[_Task] = tasks
    else:
        # Imported here: most runs stay where their files are.
        from amp_migrate.run.travel import packed

        sent = (replace(task, **packed(task.sources, task.options)) for task in tasks)
    with opened(executor, workers) as crew:
        for count, (task, one) in enumerate(mapped(crew, _do, sent), 1):
            if one is None:
                one = _Done(_failed(task, "the process died"), lasting=False)
            done(task.number, one)
            progress(count, len(tasks))


def _do(task: _Task) -> _Done:
    """The map over programs: everything that can go wrong with one becomes its `Failure`."""
    try:
        found, cut = with_room(lambda: _found(task))
        return _Done(_encoded(task, found), lasting=not cut)
    except RecursionError:
        outcome = _too_much(task, "nested too deeply to be analysed")
    except MemoryError:
        outcome = _too_much(task, "too large to be analysed: out of memory")
    except TooLargeError:
        # Counted in steps, which are the same another time.
        return _Done(_too_much(task, "too large to be analysed"))
    except Exception as error:
        words = " ".join(str(error).split())
        name = type(error).__name__
        what = f"{name}: {words}" if words else name
        outcome = _failed(task, what, traceback.format_exc())
    return _Done(outcome, lasting=False)


def work(job: Job) -> Work:
    """What does a job on one program; imported here, since a run does one."""
    if job is Job.MODERNIZE:
        from amp_migrate.modernize.program import modernize_program

        return modernize_program
    if job is Job.LINT:
        from amp_migrate.lint.program import lint_program

        return lint_program
    from amp_migrate.migrate.program import migrate_program

    return migrate_program


def _found(task: _Task) -> tuple[dict[str, Result | SourceError], bool]:
    """The results, and whether this machine cut them short."""
    with limited() as effort:
        found = work(task.job)(
            task.sources,
            task.options,
            given=task.given,
            shown={file: task.sources.documents[file].path for file in task.given},
        )
        return found, effort.cut


def _encoded(task: _Task, found: dict[str, Result | SourceError]) -> _Outcome:
    """Results with the bytes to write; where one file's cannot be made, none of the program's are."""
    outcome: _Outcome = {}
    for file, result in found.items():
        if isinstance(result, SourceError):
            outcome[file] = Failure(result)
            continue
        document = task.sources.documents[file]
        try:
            output = document.encode(result.output)
        except SourceError as error:
            return {file: Failure(error, others=_others(task, file))}
        outcome[file] = Migration(document, result, output, task.number)
    return outcome


def _failed(task: _Task, what: str, trace: str = "") -> _Outcome:
    """The internal error of a program, told at one of its files that were named."""
    file = _representative(task)
    path = task.sources.documents[file].path
    return {file: Failure(_internal(path, what), trace, _others(task, file))}


def _too_much(task: _Task, what: str) -> _Outcome:
    """The failure of a program that asks for more than this machine has."""
    file = _representative(task)
    path, others = task.sources.documents[file].path, len(task.sources.texts) - 1
    if others:
        count = "1 file" if others == 1 else f"{others} files"
        what += f", with the {count} that imports connect with it"
    return {file: Failure(SourceError(path, what), others=_others(task, file))}


def _others(task: _Task, file: str) -> tuple[str, ...]:
    """The paths of the other files that a job on a program is about."""
    documents = task.sources.documents
    return tuple(documents[one].path for one in task.given if one != file)


def _representative(task: _Task) -> str:
    """One of the named files of a program that the job is about."""
    concerns = subject(task.job).seems
    return next(file for file in task.given if concerns(task.sources.texts[file]))


def _internal(path: str, what: str) -> SourceError:
    return SourceError(
        path, f"internal error: {what}; please report it, with the file if you can"
    )
