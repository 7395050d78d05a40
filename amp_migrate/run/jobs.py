"""What a run may be for, and what does it: everything around it is the same for all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Protocol

from amp_migrate.core.options import Options
from amp_migrate.core.results import Result, SourceError
from amp_migrate.program.programs import TRAINING, USES_TORCH, ProgramSources, Subject


class ExecutorError(Exception):
    """That who is to do the work cannot be had, or is lost: one line, for the user."""


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
    if job is Job.MODERNIZE:
        from amp_migrate.modernize.program import is_old

        return Subject(is_old, is_old)
    if job is Job.LINT:
        return USES_TORCH
    return TRAINING
