"""What a run may be for, and what does it: everything around it is the same for all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from amp_migrate.core.options import Options
from amp_migrate.core.results import Result, SourceError

if TYPE_CHECKING:
    from amp_migrate.program.programs import ProgramSources, Subject


class ExecutorError(Exception):
    """That who is to do the work cannot be had, or is lost: one line, for the user."""


LOCAL = "local"
RAY = "ray"
_ADDRESS = re.compile(r"ray://[^\s/:]+:\d+|ray://\[[0-9A-Fa-f:.]+\]:\d+")


def checked(name: str) -> str:
    """The name of who is to do the work. Raises ValueError with a message for the user."""
    if name in (LOCAL, RAY) or _ADDRESS.fullmatch(name):
        return name
    raise ValueError(f"{name!r} is none of {LOCAL}, {RAY}, ray://HOST:PORT")


class Job(str, Enum):
    """The purpose of a run."""

    MIGRATE = "migrate"
    """Training loops in fp32, for AMP."""
    MODERNIZE = "modernize"
    """Older AMP interfaces, to torch.amp."""
    LINT = "lint"
    """Sizes, misuse of AMP and idle Tensor Cores, told and not rewritten."""


class Work(Protocol):
    """Does a job on the files of one program that are ``given``; the others are only read.

    ``shown``: what messages call a file, where that is not its path. The answer has an entry for each
    given file that the job is about, that is to be changed, or that cannot be read.
    """

    def __call__(
        self,
        sources: ProgramSources,
        options: Options,
        *,
        given: Collection[str],
        shown: Mapping[str, str],
    ) -> dict[str, Result | SourceError]: ...


def subject(job: Job) -> Subject:
    """What tells at a glance whether a text concerns a job."""
    # Imported here: the command line knows of jobs before there is one.
    from amp_migrate.program.programs import TRAINING, USES_TORCH, Subject

    if job is Job.MODERNIZE:
        from amp_migrate.modernize.program import is_old

        return Subject(is_old, is_old)
    if job is Job.LINT:
        return USES_TORCH
    return TRAINING
