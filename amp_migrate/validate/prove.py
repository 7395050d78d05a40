"""From a script's name to a verdict: rewrite it, start the user's interpreter, run, and judge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from amp_migrate.catalogue.gpus import profiles
from amp_migrate.catalogue.gpus.profiles import Profile
from amp_migrate.core.results import SourceError
from amp_migrate.run import config
from amp_migrate.run.config import Overrides, Settings
from amp_migrate.validate import rewriting
from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.order import Entry
from amp_migrate.validate.runner import HarnessError, Limits, Program, Runner
from amp_migrate.validate.untouched import Change, changes, snapshot
from amp_migrate.validate.validation import Progress, Validation
from amp_migrate.validate.verdict import Outcome, Verdict

DEFAULT_PROFILE = "ampere"
NOTHING_SAID = Overrides()


@dataclass(frozen=True)
class Request:
    """What is to be proven, and how."""

    entry: Entry
    file: Path
    """Where the entry's source is."""
    folder: Path
    """The working directory of all runs."""
    settings: Settings
    interpreter: str
    limits: Limits
    device: str = "auto"
    against: str | None = None
    """A revision of git, whose files are the original; None: the rewrite is `amp-migrate`'s."""
    profile: str | None = None
    """The GPU that the shapes are judged for; None: the one there is."""
    made: Rewriting | None = None
    """What was rewritten, where that is known."""
    monitor_only: bool = False
    """Look at the script as it is, which uses AMP already."""
    name: str = ""
    """What messages call it, where that is not what it is started as."""

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.name or str(self.entry)


def settings(
    file: Path,
    overrides: Overrides = NOTHING_SAID,
    config_file: str | None = None,
    *,
    folder: Path | None = None,
) -> Settings:
    """The settings for a script that is started in a folder, the current one where none is given.

    The project root is looked for above both, where the script is in it. Raises `ConfigError`.
    """
    start = Path.cwd() if folder is None else folder
    inside = file.resolve().is_relative_to(start.resolve())
    places = [str(start), str(file)] if inside else [str(file)]
    return config.load(places, overrides, config_file)


def prove(request: Request, progress: Progress) -> Verdict:
    """The verdict on one script. What keeps it from being run is a verdict, too."""
    program = Program(request.entry, request.folder, frozenset())
    try:
        with Runner(
            request.interpreter, program, request.limits, device=request.device
        ) as runner:
            found = _rewriting(request, runner.machine.torch_version)
            if not found.rewritten and not request.monitor_only:
                return _nothing(request, found)
            runner.serve(
                replace(
                    program,
                    files=found.files,
                    original=found.original if request.against else {},
                    rewritten=found.rewritten,
                )
            )
            validation = Validation(runner, found, progress, _profile(request, runner))
            before = snapshot(request.folder, skipping=(runner.scratch,))
            judge = validation.watch if request.monitor_only else validation.run
            verdict = judge()
            after = snapshot(request.folder, skipping=(runner.scratch,))
            return replace(
                verdict, notes=(*verdict.notes, *map(_told, changes(before, after)))
            )
    except (HarnessError, SourceError) as error:
        return Verdict(str(request.entry), Outcome.NOT_JUDGED, str(error))


def _profile(request: Request, runner: Runner) -> Profile:
    if request.profile is not None:
        return profiles.profile(request.profile)
    gpu = runner.machine.gpu
    found = profiles.profile_of_device(gpu["capability"]) if gpu else None
    return found or profiles.profile(DEFAULT_PROFILE)


def _told(change: Change) -> str:
    return (
        f"{change.path} was {change.what} while this ran, past what keeps writes away"
    )


def _rewriting(request: Request, torch_version: tuple[int, int]) -> Rewriting:
    if request.made is not None:
        return request.made
    if request.monitor_only:
        return rewriting.as_it_is(request.file, request.settings)
    if request.against is not None:
        return rewriting.against(request.file, request.against)
    return rewriting.migrated(request.file, request.settings, torch_version)


def _nothing(request: Request, found: Rewriting) -> Verdict:
    if request.against is not None:
        reason = f"no Python file differs from {request.against}"
    elif found.refusals:
        first = found.refusals[0]
        place = f"{first.place.path}:{first.place.line}"
        reason = f"nothing is migrated: {place}: {first.code} {first.message}"
    elif found.under_amp:
        reason = "it is under AMP already: --monitor-only watches it run"
    else:
        reason = "no training loop in it or what it imports"
        return Verdict(str(request.entry), Outcome.NOTHING, reason)
    return Verdict(str(request.entry), Outcome.NOT_JUDGED, reason)
