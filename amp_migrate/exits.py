"""The exit codes: the one table that the commands return, ``--help`` prints and the tests walk."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says to its caller when it ends."""

    meaning: str

    OK = 0, "done, or nothing to do; a training loop left alone is no failure"
    WOULD_CHANGE = 1, "--check, or --diff --exit-code, found a file that would change"
    ERROR = 2, "usage, configuration, I/O or internal error (2 wins over 1)"
    INTERRUPTED = 130, "stopped by Ctrl-C"

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member
