"""Ending a script that has made its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


class EnoughError(BaseException):
    """Ends the script: it has made its steps. No `Exception`, since scripts catch those."""


class Enough:
    """Whether, and how, the script of this process is ended."""

    def __init__(self) -> None:
        self.reached = False
        self.leave: Callable[[], None] | None = None
        """Ends the process, for scripts that catch all there is and go on."""

    def say(self) -> NoReturn:
        """The script is to end here. Raises `EnoughError`; where that was caught before, it leaves."""
        if self.reached and self.leave is not None:
            self.leave()
        self.reached = True
        raise EnoughError


enough = Enough()
"""Of this process."""
