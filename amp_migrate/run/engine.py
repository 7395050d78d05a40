"""From paths to results: find the files, read them, have a job done on each program, keep the errors apart.

Only `write` writes, so that a run is decided as a whole before it touches a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from amp_migrate.core.effort import watched
from amp_migrate.core.garbage import collected_seldom
from amp_migrate.core.results import SourceError
from amp_migrate.program.programs import (
    FileBytes,
    Group,
    groups_of,
    key,
)
from amp_migrate.run.cache.programs import Answers, Failed, Told, cache_of
from amp_migrate.run.cache.store import Store
from amp_migrate.run.config import Project, Settings
from amp_migrate.run.jobs import LOCAL, Job, subject
from amp_migrate.run.outcome import Failure, Migration, Progress, Report
from amp_migrate.run.task import Done, Outcome, Task, do, failed
from amp_migrate.sources import discovery, files, journal
from amp_migrate.sources.discovery import Found
from amp_migrate.sources.document import legible
from amp_migrate.sources.journal import Change

WORTH_PROCESSES = 24
"""Below this many files, starting processes costs more than they save."""


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
        self._found: Outcome = {}
        self._errors: Outcome = {}
        self._todo: dict[int, tuple[str, Group]] = {}
        """By the numbers of programs that nothing is known of: their names in the cache."""
        self._new: dict[int, tuple[str, Group, Outcome]] = {}
        """Of each program that is to be kept: its name, and the files that cannot be read."""
        if store is not None and not _may_be_about(job, given):
            # To look at what was kept takes longer than to look at these.
            store = None
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

    def tasks(self) -> Iterator[Task]:
        """What is to be done; each is opened when it is asked for."""
        for number in list(self._todo):
            name, group = self._todo.pop(number)
            with watched() as opening:
                sources, wrong = group.open()
            failures: Outcome = {file: Failure(error) for file, error in wrong.items()}
            self._errors |= failures
            if not opening.cut:
                self._new[number] = name, group, failures
            if sources is None:
                self._keep(number, Done({}))
                self.left -= 1
                continue
            named = tuple(file for file in sources.texts if file in self._given)
            yield Task(self._number, number, sources, named, self._options, self._job)

    def take(self, task: Task, one: Done | None) -> None:
        """What came of a task; None: its process died each time."""
        if one is None:
            one = Done(failed(task, "the process died"), lasting=False)
        self._found.update(one.outcome)
        # At once: what is interrupted does not begin anew.
        self._keep(task.number, one)
        self.left -= 1

    def _keep(self, number: int, one: Done) -> None:
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


def _may_be_about(job: Job, given: Mapping[str, FileBytes]) -> bool:
    """Whether a job may have something to do on files; where there are many, nobody looks."""
    seems = subject(job).seems
    return len(given) >= WORTH_PROCESSES or any(
        seems(legible(one.path, one.data)) for one in given.values()
    )


def _reports(
    runs: Iterable[_Run], executor: str, jobs: int | None, progress: Progress
) -> Iterator[Report]:
    """Do what there is to do in all of them: the next is looked at while the last is still being done."""
    begun: dict[int, _Run] = {}
    open_ = iter(runs)

    def tasks() -> Iterator[Task]:
        for number, one in enumerate(open_):
            begun[number] = one
            yield from one.tasks()

    reported = 0
    for done, (task, one) in enumerate(_all_done(tasks(), executor, jobs), 1):
        begun[task.project].take(task, one)
        progress(done, done + sum(run.left for run in begun.values()))
        # What others have come after has handed out all that there is to do.
        while len(begun) > 1 and not begun[reported].left:
            yield begun.pop(reported).report()
            reported += 1
    for number in sorted(begun):
        yield begun.pop(number).report()


def _all_done(
    tasks: Iterator[Task], executor: str, jobs: int | None
) -> Iterator[tuple[Task, Done | None]]:
    """Each with what came of it, as they come."""
    alone = executor == LOCAL and jobs == 1
    ahead: list[Task] = []
    enough = 0
    for task in tasks:
        ahead.append(task)
        enough += len(task.given)
        if executor != LOCAL or alone:
            break
        if enough >= WORTH_PROCESSES and len(ahead) > 1:
            break
    else:
        alone = executor == LOCAL
    if not ahead:
        return
    # Imported here: who finds nothing to do, or asks for help, does without it.
    from amp_migrate.run.executors import mapped, opened, processors

    most = jobs or processors()
    workers = 1 if alone else most
    sent: Iterable[Task] = chain(ahead, tasks)
    if most > 1 and executor == LOCAL:
        sent = (replace(task, helped=True) for task in sent)
    if executor != LOCAL:
        # Imported here: most runs stay where their files are.
        from amp_migrate.run.packing import packed

        sent = (replace(task, **packed(task.sources, task.options)) for task in sent)
    with opened(executor, workers) as crew:
        yield from mapped(crew, do, sent)


def _remembered(known: Answers, number: int) -> Outcome:
    """What an earlier run found out."""
    outcome: Outcome = {}
    for file, one in known.items():
        if isinstance(one, Failed):
            outcome[file] = Failure(one.error, others=one.others)
        else:
            output = one.document.encode(one.result.output)
            outcome[file] = Migration(one.document, one.result, output, number)
    return outcome
