"""The Python API: text in, text out; files and the command line only wrap it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from amp_migrate.core.deep import with_room
from amp_migrate.core.findings import Finding
from amp_migrate.core.options import LintOptions, Options
from amp_migrate.core.results import (
    Diagnostic,
    Loop,
    OldUse,
    Outcome,
    Place,
    Result,
    SourceError,
)
from amp_migrate.modernize.program import modernize_program
from amp_migrate.program.programs import ProgramSources, key, programs_of
from amp_migrate.run import config, engine
from amp_migrate.run.cache.store import LIMIT, Store
from amp_migrate.run.config import ConfigError
from amp_migrate.run.jobs import LOCAL, ExecutorError, Job, checked, subject
from amp_migrate.run.outcome import Report, merged
from amp_migrate.run.task import work
from amp_migrate.sources import journal
from amp_migrate.sources.discovery import Filters
from amp_migrate.validate.verdict import Verdict

__all__ = [
    "ConfigError",
    "Diagnostic",
    "ExecutorError",
    "Finding",
    "LintOptions",
    "Loop",
    "OldUse",
    "Options",
    "Outcome",
    "Place",
    "Report",
    "Result",
    "SourceError",
    "Verdict",
    "lint_paths",
    "lint_source",
    "migrate_paths",
    "migrate_source",
    "modernize_paths",
    "modernize_source",
    "validate_script",
]

_DEFAULTS = Options()


def migrate_source(
    text: str,
    *,
    path: str = "<string>",
    options: Options = _DEFAULTS,
    root: Path | None = None,
) -> Result:
    """Migrate one file's text (newlines as ``\\n``).

    ``path`` is what diagnostics call the file, and where its imports are looked up from. Under
    ``root``, the project's other files are read: what belongs to the same program. They are not
    changed: loops that need that are left alone. Without it only the text itself is looked at.

    Raises `SourceError` where the text is not valid for the Python that runs this.
    """
    return _one_text(Job.MIGRATE, text, path, options, root)


def modernize_source(
    text: str, *, path: str = "<string>", options: Options = _DEFAULTS
) -> Result:
    """Rewrite one file's uses of older AMP interfaces for torch.amp; it is looked at by itself.

    Raises `SourceError` where the text is not valid for the Python that runs this.
    """
    found = modernize_program(
        ProgramSources({path: text}, None), options, given={path}, shown={path: path}
    )
    result = found.get(path)
    if isinstance(result, SourceError):
        raise result
    return Result(path, text, text) if result is None else result


def lint_source(
    text: str,
    *,
    path: str = "<string>",
    options: Options = _DEFAULTS,
    root: Path | None = None,
) -> Result:
    """Lint one file's text; the findings are in the result. ``path`` and ``root``: as in `migrate_source`.

    Raises `SourceError` where the text is not valid for the Python that runs this.
    """
    return _one_text(Job.LINT, text, path, options, root)


def lint_paths(
    paths: Sequence[str | Path],
    *,
    options: Options | None = None,
    jobs: int | None = 1,
    write: bool = False,
    executor: str = LOCAL,
    cache: str | Path | None = None,
) -> Report:
    """Lint files and directories as the command line does, configuration included, but for its filters of
    severity and baseline.

    ``options`` replaces what the configuration says. With ``options.lint.fix`` and ``write``, files are
    mended on disk, under the conditions of `migrate_paths`.
    """
    return _rewrite_paths(Job.LINT, paths, options, jobs, write, executor, cache)


def migrate_paths(
    paths: Sequence[str | Path],
    *,
    options: Options | None = None,
    jobs: int | None = 1,
    write: bool = False,
    executor: str = LOCAL,
    cache: str | Path | None = None,
) -> Report:
    """Migrate files and directories as the command line does, configuration included.

    ``options`` replaces what the configuration says about what to write. ``jobs`` is the number of
    processes (None: one a core); ``executor``: "local", "ray", or "ray://HOST:PORT". ``cache``: a folder
    in which results are kept from call to call, as those of the command line are; None: they are not.
    Files are written only with ``write``; the report tells what became of each, and what could not be
    read or written. Files of one program are written together or not at all; what an interrupted write
    left is first finished or rolled back.

    Raises `ConfigError` where the configuration is not valid, `SourceError` where an interrupted write
    has to be put right by hand, and `ExecutorError` where the executor cannot be had.
    """
    return _rewrite_paths(Job.MIGRATE, paths, options, jobs, write, executor, cache)


def modernize_paths(
    paths: Sequence[str | Path],
    *,
    options: Options | None = None,
    jobs: int | None = 1,
    write: bool = False,
    executor: str = LOCAL,
    cache: str | Path | None = None,
) -> Report:
    """Rewrite uses of older AMP interfaces in files and directories; otherwise as `migrate_paths`."""
    return _rewrite_paths(Job.MODERNIZE, paths, options, jobs, write, executor, cache)


def validate_script(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    interpreter: str = sys.executable,
    device: str = "auto",
    steps: int = 30,
    seconds: float = 600.0,
    against: str | None = None,
    monitor_only: bool = False,
) -> Verdict:
    """Prove the rewrite of a script by running it, as ``amp-migrate validate`` does. It is executed.

    ``device``: "cuda", "cpu", or "auto". ``steps``: optimizer steps that each of about twenty runs may
    make; ``seconds``: how long each may take. ``against``: a git revision that is the original.
    ``monitor_only``: only watch a script that uses AMP.

    Raises `ConfigError` where the configuration is not valid; what else keeps a
    script from being judged is in the verdict.
    """
    from amp_migrate.core.limits import most_memory
    from amp_migrate.validate import prove
    from amp_migrate.validate.order import Entry
    from amp_migrate.validate.runner import Limits

    request = prove.Request(
        entry=Entry(str(script), tuple(arguments)),
        file=Path(script),
        folder=Path.cwd(),
        settings=prove.settings(Path(script)),
        interpreter=interpreter,
        limits=Limits(seconds, most_memory(), steps),
        device=device,
        against=against,
        monitor_only=monitor_only,
    )
    return prove.prove(request, lambda name, done: None)


def _rewrite_paths(
    job: Job,
    paths: Sequence[str | Path],
    options: Options | None,
    jobs: int | None,
    write: bool,
    executor: str,
    cache: str | Path | None,
) -> Report:
    projects = config.projects([str(path) for path in paths])
    if write:
        for project in projects:
            _recover(project.settings.root)
    if options is not None:
        projects = [
            replace(one, settings=replace(one.settings, options=options))
            for one in projects
        ]
    reports = engine.run_all(
        projects,
        job=job,
        jobs=jobs,
        store=None if cache is None else Store(Path(cache), LIMIT),
        executor=checked(executor),
    )
    return merged(
        [
            engine.write(report, project.settings.root) if write else report
            for project, report in zip(projects, list(reports), strict=True)
        ]
    )


def _recover(root: Path) -> None:
    """Settle what an interrupted write left."""
    recovery = journal.recover(root)
    if recovery is not None and not recovery.settled:
        raise SourceError(str(root), "; ".join(recovery.lines))


def _one_text(
    job: Job, text: str, path: str, options: Options, root: Path | None
) -> Result:
    file = path if root is None else key(path)
    filters = None if root is None else Filters(str(root.resolve()))
    for program in programs_of({file: text}, filters, subject(job)).found:
        ask = partial(work(job), program, options, given={file}, shown={file: path})
        result = with_room(ask).get(file)
        if isinstance(result, SourceError):
            raise result
        if result is not None:
            return result
    return Result(path, text, text)
