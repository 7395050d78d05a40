"""The exit codes: the one table that the commands return, ``--help`` prints and the tests walk."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amp_migrate.validate.verdict import Outcome


class _Exit(IntEnum):
    """What the process says to its caller when it ends."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> _Exit:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class ExitCode(_Exit):
    """Of the commands that rewrite files."""

    OK = (
        0,
        "done, or nothing to do; a training loop that is left alone is not a failure",
    )
    WOULD_CHANGE = 1, "--check, or --diff --exit-code, found a file that would change"
    ERROR = 2, "usage, configuration, I/O or internal error (2 wins over 1, 3 and 4)"
    DISPROVED = 3, "--write --validate: a rewrite is wrong, and was not written"
    NOT_PROVEN = (
        4,
        "--write --validate: a rewrite could not be judged, and was not written (3 wins over 4)",
    )
    INTERRUPTED = 130, "stopped by Ctrl-C"
    CUT_SHORT = 141, "the reader of the output has closed it, as `| head` does"


class Lint(_Exit):
    """Of the command that finds fault."""

    CLEAN = 0, "no finding of the severity that --fail-on asks for (by default: errors)"
    FOUND = 1, "there are such findings; or --diff has something to fix"
    ERROR = (
        2,
        "usage, configuration or I/O error, a file that cannot be read (2 wins over 1)",
    )
    INTERRUPTED = 130, "stopped by Ctrl-C"
    CUT_SHORT = 141, "the reader of the output has closed it, as `| head` does"


class Counted(_Exit):
    """Of the command that counts."""

    OK = 0, "counted"
    ERROR = (
        2,
        "usage, configuration or I/O error; a file that could not be read was not counted",
    )
    INTERRUPTED = 130, "stopped by Ctrl-C"
    CUT_SHORT = 141, "the reader of the output has closed it, as `| head` does"


class Told(_Exit):
    """Of the command that explains."""

    OK = 0, "done"
    ERROR = 2, "usage error, an unknown code, or a folder that cannot be emptied"
    INTERRUPTED = 130, "stopped by Ctrl-C"
    CUT_SHORT = 141, "the reader of the output has closed it, as `| head` does"


class Served(_Exit):
    """Of the command that serves an editor."""

    OK = 0, "the editor has ended the session"
    ERROR = 2, "usage error, or pygls is not installed"
    INTERRUPTED = 130, "stopped by Ctrl-C"


class Proof(_Exit):
    """Of the command that runs scripts."""

    PROVEN = 0, "every script is proven to train as before, in all that ran"
    DISPROVED = 1, "a rewrite is wrong (1 wins over 2)"
    COULD_NOT = (
        2,
        "a script could not be judged: it does not run here, or does not do the same twice; or a usage error",
    )
    INTERRUPTED = 130, "stopped by Ctrl-C"
    CUT_SHORT = 141, "the reader of the output has closed it, as `| head` does"

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Proof:
        """What several verdicts come to."""
        # Imported here: only one command runs scripts.
        from amp_migrate.validate.verdict import Outcome

        found = set(outcomes)
        if found != {Outcome.NOTHING}:
            found.discard(Outcome.NOTHING)
        if Outcome.DISPROVED in found:
            return cls.DISPROVED
        return (
            cls.PROVEN
            if found <= {Outcome.PROVEN, Outcome.UNDERFLOW}
            else cls.COULD_NOT
        )
