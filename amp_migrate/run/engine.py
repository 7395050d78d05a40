"""From paths to results: find the files, read them, have a job done on each program, keep the errors apart.

Only `write` writes, so that a run is decided as a whole before it touches a file.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
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
from amp_migrate.run.cache.programs import Answers, Failed, Told, cache_of
from amp_migrate.run.cache.store import Store
from amp_migrate.run.config import Project, Settings
from amp_migrate.run.executors import LOCAL, mapped, opened, processors
from amp_migrate.run.jobs import Job, Work, subject
from amp_migrate.sources import discovery, files, journal
from amp_migrate.sources.discovery import Found
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
    """Do a job on the files that ``paths`` name, in memory; the rest is as in `run_all`."""
    project = Project(tuple(map(str, paths)), settings)
    (report,) = run_all(
        [project],
        job=job,
        jobs=jobs,
        progress=progress,
        store=store,
        executor=executor,
    )
    return report


def run_all(
    projects: Iterable[Project],
    *,
    job: Job = Job.MIGRATE,
    jobs: int | None = 1,
    progress: Progress | None = None,
    store: Store | None = None,
    executor: str = LOCAL,
) -> Iterator[Report]:
    """Do a job on projects, in memory: the report of each, in their order.

    ``jobs`` is the most processes to use, None for one per processor. More than one needs, as all
    of `multiprocessing` does, a main module that can be imported without running the program.
    ``executor``: who does the work, as `executors.opened` takes it; it is one for all projects.
    ``store``: where earlier runs left what they found out, and this one leaves it.
    Raises `PatternError` for a pattern in settings that means nothing, and `ExecutorError`.
    """
    with collected_seldom():
        begun = (
            _Run.on_files(number, one, job, store)
            for number, one in enumerate(projects)
        )
        yield from _reports(begun, executor, jobs, progress or _unheard)


def merged(reports: Sequence[Report]) -> Report:
    """The reports of several projects as one: the programs of all have numbers of their own."""
    if len(reports) == 1:
        return reports[0]
    migrations: list[Migration] = []
    before = 0
    for report in reports:
        migrations += (
            replace(one, program=before + one.program) for one in report.migrations
        )
        before = 1 + max((one.program for one in migrations), default=-1)
    return Report(
        tuple(migrations),
        tuple(one for report in reports for one in report.failures),
        tuple(path for report in reports for path in report.paths),
        sum(report.skipped for report in reports),
    )


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
    alone = _Run(0, given, settings, job, store, Found((path,), ()))
    (report,) = _reports([alone], LOCAL, 1, _unheard)
    return report


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

    project: int
    number: int
    sources: ProgramSources
    given: tuple[str, ...]
    options: Options
    job: Job


_Outcome = dict[str, "Migration | Failure"]


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of one program."""

    outcome: _Outcome
    lasting: bool = True
    """Whether the same will come of it another time: no bound of this machine decided."""


class _Run:
    """A job on one project: what there is to do, and what came of it so far."""

    def __init__(
        self,
        number: int,
        given: Mapping[str, FileBytes],
        settings: Settings,
        job: Job,
        store: Store | None,
        discovered: Found,
    ) -> None:
        self._number = number
        self._given = given
        self._options = settings.options
        self._job = job
        self._discovered = discovered
        self._found: _Outcome = {}
        self._errors: _Outcome = {}
        self._todo: dict[int, tuple[str, Group]] = {}
        """By the numbers of programs that nothing is known of: their names in the cache."""
        self._new: dict[int, tuple[str, Group, _Outcome]] = {}
        """Of each program that is to be kept: its name, and the files that cannot be read."""
        self._cache = cache_of(store, settings.root, job.value, settings.options)
        memory = None if self._cache is None else self._cache.memory
        groups = groups_of(given, settings.filters, subject(job), memory)
        for program, group in enumerate(groups):
            name = ""
            if self._cache is not None:
                name = self._cache.key(group, given.keys())
                known = self._cache.find(name, group)
                if known is not None:
                    self._found |= _remembered(known, program)
                    continue
            self._todo[program] = name, group
        self.left = len(self._todo)
        """How many programs are not done."""

    @classmethod
    def on_files(
        cls, number: int, project: Project, job: Job, store: Store | None
    ) -> _Run:
        """On the files that are named by the paths of a project."""
        found = discovery.discover(project.paths, project.settings.filters)
        errors = list(found.errors)
        given: dict[str, FileBytes] = {}
        for path in found.files:
            try:
                given[key(path)] = FileBytes(path, files.read(path))
            except SourceError as error:
                errors.append(error)
        found = replace(found, errors=tuple(errors))
        return cls(number, given, project.settings, job, store, found)

    def tasks(self) -> Iterator[_Task]:
        """What is to be done; each is opened when it is asked for."""
        for number in list(self._todo):
            name, group = self._todo.pop(number)
            with watched() as opening:
                sources, wrong = group.open()
            failures: _Outcome = {file: Failure(error) for file, error in wrong.items()}
            self._errors |= failures
            if not opening.cut:
                self._new[number] = name, group, failures
            if sources is None:
                self._keep(number, _Done({}))
                self.left -= 1
                continue
            named = tuple(file for file in sources.texts if file in self._given)
            yield _Task(
                self._number, number, sources, named, self._options, self._job
            )

    def take(self, task: _Task, one: _Done | None) -> None:
        """What came of a task; None: its process died each time."""
        if one is None:
            one = _Done(_failed(task, "the process died"), lasting=False)
        self._found.update(one.outcome)
        # At once: what is interrupted does not begin anew.
        self._keep(task.number, one)
        self.left -= 1

    def _keep(self, number: int, one: _Done) -> None:
        """Leave what came of a program to later runs."""
        new = self._new.pop(number, None)
        if self._cache is None or new is None or not one.lasting:
            return
        name, group, failures = new
        answers: dict[str, Told | Failed] = {}
        for file, outcome in {**one.outcome, **failures}.items():
            if isinstance(outcome, Failure):
                answers[file] = Failed(outcome.error, outcome.others)
            else:
                answers[file] = Told(outcome.document, outcome.result)
        self._cache.keep(name, group, answers)

    def report(self) -> Report:
        """All of it."""
        if self._cache is not None:
            self._cache.close()
        found = {**self._found, **self._errors}
        ordered = [found[file] for file in self._given if file in found]
        listed = self._discovered
        return Report(
            tuple(one for one in ordered if isinstance(one, Migration)),
            (
                *map(Failure, listed.errors),
                *(one for one in ordered if isinstance(one, Failure)),
            ),
            listed.files,
            listed.skipped,
        )


def _reports(
    runs: Iterable[_Run], executor: str, jobs: int | None, progress: Progress
) -> Iterator[Report]:
    """Do what there is to do in all of them: the next is looked at while the last is still being done."""
    begun: dict[int, _Run] = {}
    open_ = iter(runs)

    def tasks() -> Iterator[_Task]:
        for number, one in enumerate(open_):
            begun[number] = one
            yield from one.tasks()

    done = reported = 0
    for task, one in _all_done(tasks(), executor, jobs):
        begun[task.project].take(task, one)
        done += 1
        progress(done, done + sum(run.left for run in begun.values()))
        # What others have come after has handed out all that there is to do.
        while len(begun) > 1 and not begun[reported].left:
            yield begun.pop(reported).report()
            reported += 1
    for number in sorted(begun):
        yield begun.pop(number).report()


def _all_done(
    tasks: Iterator[_Task], executor: str, jobs: int | None
) -> Iterator[tuple[_Task, _Done | None]]:
    """Each with what came of it, as they come."""
    workers = jobs or processors()
    ahead: list[_Task] = []
    enough = 0
    for task in tasks:
        ahead.append(task)
        enough += len(task.given)
        if executor != LOCAL or workers == 1:
            break
        if enough >= WORTH_PROCESSES and len(ahead) > 1:
            break
    else:
        if executor == LOCAL and (enough < WORTH_PROCESSES or len(ahead) < 2):
            workers = 1
    if not ahead:
        return
    sent: Iterable[_Task] = chain(ahead, tasks)
    if executor != LOCAL:
        # Imported here: most runs stay where their files are.
        from amp_migrate.run.travel import packed

        sent = (replace(task, **packed(task.sources, task.options)) for task in sent)
    with opened(executor, workers) as crew:
        yield from mapped(crew, _do, sent)


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
