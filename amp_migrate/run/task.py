"""A job on one program, in whichever process: everything that can go wrong becomes a `Failure`."""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from dataclasses import dataclass

from amp_migrate.core.beside import helped
from amp_migrate.core.deep import with_room
from amp_migrate.core.effort import TooLargeError, limited
from amp_migrate.core.garbage import one_large_program
from amp_migrate.core.options import Options
from amp_migrate.core.results import Result, SourceError
from amp_migrate.program.programs import ProgramSources
from amp_migrate.run.jobs import Job, Work, subject
from amp_migrate.run.outcome import Failure, Migration

WORTH_HELP = 24
"""Below this many files, a program is done sooner by one core alone."""


@dataclass(frozen=True, slots=True)
class Task:
    """One program, with those of its files that were named."""

    project: int
    number: int
    sources: ProgramSources
    given: tuple[str, ...]
    options: Options
    job: Job
    helped: bool = False
    """Whether more than one core may be used for it."""


Outcome = dict[str, "Migration | Failure"]


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one program."""

    outcome: Outcome
    lasting: bool = True
    """Whether the same will come of it another time: no bound of this machine decided."""


def do(task: Task) -> Done:
    """The map over programs: everything that can go wrong with one becomes its `Failure`."""
    try:
        found, cut = with_room(lambda: _found(task))
        return Done(_encoded(task, found), lasting=not cut)
    except RecursionError:
        outcome = _too_much(task, "nested too deeply to be analysed")
    except MemoryError:
        outcome = _too_much(task, "too large to be analysed: out of memory")
    except TooLargeError:
        # Counted in steps, which are the same another time.
        return Done(_too_much(task, "too large to be analysed"))
    except Exception as error:
        words = " ".join(str(error).split())
        name = type(error).__name__
        what = f"{name}: {words}" if words else name
        outcome = failed(task, what, traceback.format_exc())
    return Done(outcome, lasting=False)


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


def _found(task: Task) -> tuple[dict[str, Result | SourceError], bool]:
    """The results, and whether this machine cut them short."""
    many = len(task.sources.texts) >= WORTH_HELP
    seldom = one_large_program() if many else nullcontext()
    with limited() as effort, helped(task.helped and many), seldom:
        found = work(task.job)(
            task.sources,
            task.options,
            given=task.given,
            shown={file: task.sources.documents[file].path for file in task.given},
        )
        return found, effort.cut


def _encoded(task: Task, found: dict[str, Result | SourceError]) -> Outcome:
    """Results with the bytes to write; where one file's cannot be made, none of the program's are."""
    outcome: Outcome = {}
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


def failed(task: Task, what: str, trace: str = "") -> Outcome:
    """The internal error of a program, told at one of its files that were named."""
    file = _representative(task)
    path = task.sources.documents[file].path
    return {file: Failure(_internal(path, what), trace, _others(task, file))}


def _too_much(task: Task, what: str) -> Outcome:
    """The failure of a program that asks for more than this machine has."""
    file = _representative(task)
    path, others = task.sources.documents[file].path, len(task.sources.texts) - 1
    if others:
        count = "1 file" if others == 1 else f"{others} files"
        what += f", with the {count} that imports connect with it"
    return {file: Failure(SourceError(path, what), others=_others(task, file))}


def _others(task: Task, file: str) -> tuple[str, ...]:
    """The paths of the other files that a job on a program is about."""
    documents = task.sources.documents
    return tuple(documents[one].path for one in task.given if one != file)


def _representative(task: Task) -> str:
    """One of the named files of a program that the job is about."""
    concerns = subject(task.job).seems
    return next(file for file in task.given if concerns(task.sources.texts[file]))


def _internal(path: str, what: str) -> SourceError:
    return SourceError(
        path, f"internal error: {what}; please report it, with the file if you can"
    )
